// A real model that is called off, and one that is killed, in the middle of its answers. Where in an answer that happens is counted in pieces of text.
import { Daemon, check, equal, extractionOf, finish, match, test, until } from '../support/harness.mjs';
import { gold, startLlama, startTap } from '../support/llama.mjs';

let llama = await startLlama();
const port = llama.port, tap = await startTap(() => port);
const daemon = new Daemon('llama-faults', { runtimes: { real: { kind: 'openai', url: tap.url, concurrency: 1, sampling: { temperature: 0, seed: 42, maxTokens: 768 }, retry: { attempts: 1000, floor: '200ms', cap: '1s' } } } });
await daemon.start();

// Sections with three facts or more, so that an answer has a middle.
const sections = gold.filter(one => one.facts.length >= 3 && !one.section.includes('#')).slice(0, 6);
const documentWith = chosen => chosen.map((one, i) => `# Part ${i + 1}\n\n${one.section}\n`).join('\n');
const contents = facts => facts.map(fact => `${fact.contentDigest} ${fact.section.digest}`).sort();
const submit = (id, document) => daemon.post('/v1/runs', { id, definition: extractionOf('real', { sections: { by: 'heading' } }), input: { document } }, 201);

await test('called off in the middle of an answer: the runtime stops at once, and the next request is answered', async () => {
	const before = (await llama.props()).served;
	await submit('called-off', documentWith(sections.slice(0, 1)));
	// It holds still until the connection is closed: else it might have made its answer to the end before a busy machine comes to call it off.
	await new Promise(done => tap.on(20, () => { llama.child.kill('SIGSTOP'); done(); }));
	await daemon.post('/v1/runs/called-off/cancel', {}, [200, 202]);
	const run = await daemon.ended('called-off');
	llama.child.kill('SIGCONT');
	equal([run.status, run.facts], ['cancelled', []], 'the run');
	equal((await daemon.facts('run=called-off')).length, 0, 'facts');
	await until('its slot is free again', async () => (await llama.props()).free_slots === 1, 5000);
	equal((await llama.props()).served, before, 'answers that the runtime made to their end');
	equal((await daemon.events('called-off')).filter(event => event.kind === 'attempt.succeeded' && event.data.request).length, 0, 'answers that count');
	await submit('next', documentWith(sections.slice(0, 1)));
	equal([(await daemon.ended('next')).status, (await llama.props()).served], ['completed', before + 1], 'the next one');
});

await test('killed (kill -9) in the middle of five answers and started again at its port: the run completes, each fact is there once, none is of a cut answer', async () => {
	await submit('undisturbed', documentWith(sections));
	equal((await daemon.ended('undisturbed')).status, 'completed', 'without a kill');
	const expected = contents(await daemon.facts('run=undisturbed'));
	check(expected.length >= 2 * sections.length, `${expected.length} facts`);

	const kills = [];
	await submit('disturbed', documentWith(sections));
	for (const pieces of [1, 30, 15, 60, 5]) {
		await new Promise(done => tap.on(pieces, done));
		await llama.kill();
		kills.push(pieces);
		llama = await startLlama(port);
	}
	const run = await daemon.ended('disturbed', 180_000);
	equal(run.status, 'completed', `the run (${JSON.stringify(run.error)})`);
	equal(run.output.summary.failed, 0, 'sections that failed');
	equal(contents(await daemon.facts('run=disturbed')), expected, 'facts, as without a kill');

	const events = await daemon.events('disturbed'), failed = events.filter(event => event.kind === 'attempt.failed');
	check(failed.length >= kills.length, `${failed.length} failed attempts after ${kills.length} kills`);
	for (const { data } of failed)
		match(data.class, /^(runtime-error|unreachable)$/, 'class of a failed attempt');
	check(failed.filter(event => event.data.response).length >= kills.length - 1, 'what had come of the cut answers is kept');
	// Facts are of attempts that succeeded, and of these each step has one.
	const succeeded = events.filter(event => event.kind === 'attempt.succeeded').map(event => `${event.data.stepId} ${event.data.attempt}`);
	equal(new Set(succeeded.map(text => text.split(' ')[0])).size, succeeded.length, 'steps that succeeded, once each');
	for (const event of events.filter(event => event.kind === 'fact.recorded'))
		check(succeeded.includes(`${event.data.stepId} ${event.data.attempt}`), `a fact of attempt ${event.data.attempt} of ${event.data.stepId}, which did not succeed`);
	console.log(`# killed after ${kills.join(', ')} pieces; ${failed.length} attempts failed: ${[...new Set(failed.map(event => event.data.class))].join(', ')}`);
	equal(daemon.cli('replay', 'disturbed').code, 0, 'replay');
	equal(daemon.cli('fact', 'verify', '--run', 'disturbed').code, 0, 'fact verify');
	daemon.verifyJournal();
});

await daemon.stop();
await llama.stop();
await finish();
