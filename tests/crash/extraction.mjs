// kill -9 at twenty moments of an extraction: the run completes each time, no section whose result was committed is asked again,
// each fact exists exactly once, and the journal and every signature hold.
// Moments are drawn by chance over the whole run; the seed is printed.
import { Daemon, check, documentOf, equal, extractionOf, finish, pause, random, seedOf, startSimulator, test, until } from '../support/harness.mjs';

const SECTIONS = 48, CONCURRENCY = 4, DELAY_MS = 50, MOMENTS = 20;
const seed = seedOf(20240611), draw = random(seed);
const sim = await startSimulator('--delay', String(DELAY_MS));
const text = documentOf(SECTIONS);
const runtime = { kind: 'simulator', url: sim.url, model: 'reprise-sim', concurrency: CONCURRENCY };
const configuration = { runtimes: { extractor: runtime }, signing: { checkpoint: { entries: 64, every: '1s' } } };

// A run from submission to its end without a kill: what comes out is what must come out with kills.
async function undisturbed() {
	const daemon = new Daemon('crash', configuration);
	await daemon.start();
	await sim.hold();
	await daemon.post('/v1/runs', { id: 'undisturbed', definition: extractionOf('extractor'), input: { document: text } }, 201);
	await until('as many at once as there may be', async () => (await sim.state()).inFlight === CONCURRENCY);
	const began = performance.now();
	await sim.release();
	const run = await daemon.ended('undisturbed');
	const took = performance.now() - began;
	equal(run.status, 'completed', 'status');
	const state = await sim.state();
	equal([state.requests, state.completed, state.maxInFlight], [SECTIONS, SECTIONS, CONCURRENCY], 'requests, completed, most at once');
	const facts = await daemon.facts('run=undisturbed');
	equal(facts.length, 2 * SECTIONS, 'facts');
	await daemon.stop();
	return { took, facts, sections: Object.keys(state.bySection) };
}

// What the simulator has been asked when the daemon is gone. A request that the kernel still held reaches it before the third of these questions does.
async function afterTheKill() {
	for (let i = 0; i < 3; i++)
		await sim.state();
	return until('the simulator sees the closed connections', async () => { const state = await sim.state(); return state.inFlight === 0 && state; });
}

let reference;
await test(`without a kill: ${SECTIONS} sections, ${2 * SECTIONS} facts, never more than ${CONCURRENCY} requests at once`, async () => {
	reference = await undisturbed();
	equal(reference.sections.length, SECTIONS, 'sections that the runtime saw');
	console.log(`# undisturbed: ${Math.round(reference.took)} ms`);
});

const contentOf = fact => `${fact.contentDigest} ${fact.section.digest}`;

// Everything that must hold after the run has completed.
async function checkAll(daemon, id, committed) {
	const run = await daemon.ended(id);
	equal(run.status, 'completed', `status (${JSON.stringify(run.error)})`);

	// Facts: those of the undisturbed run, each once.
	const facts = await daemon.facts(`run=${id}`);
	const ids = new Set(facts.map(fact => fact.id));
	equal([facts.length, ids.size, new Set(facts.map(contentOf)).size], [2 * SECTIONS, 2 * SECTIONS, 2 * SECTIONS], 'facts, ids, contents');
	equal(facts.map(contentOf).sort(), reference.facts.map(contentOf).sort(), 'the same facts as without a kill');
	equal([...run.facts].sort(), [...ids].sort(), 'ids in the run document');
	equal(run.output.facts.map(fact => fact.id).sort(), [...ids].sort(), 'ids in the output');
	equal(run.output.sections.length, SECTIONS, 'sections in the output');
	equal(run.output.summary, { answered: SECTIONS, empty: 0, facts: 2 * SECTIONS, failed: 0, rejected: 0, sections: SECTIONS }, 'summary');

	// Each step succeeded exactly once; nothing committed was tried again.
	const events = await daemon.events(id);
	const succeeded = events.filter(event => event.kind === 'attempt.succeeded').map(event => event.data.stepId);
	equal(succeeded.length, new Set(succeeded).size, 'attempts that succeeded, by step');
	const startedAfter = events.filter(event => event.kind === 'attempt.started' && event.seq > committed.last);
	for (const event of startedAfter)
		check(!committed.steps.has(event.data.stepId), () => `${event.data.stepId} had a committed result and was started again (seq ${event.seq})`);

	// The same from the runtime's side: a section with a committed result was asked as often as before the kill, every other one
	// exactly once more. The iteration is the section's place.
	const state = await sim.state();
	equal(Object.keys(state.bySection).length, SECTIONS, 'sections that the runtime saw');
	const kept = new Set([...committed.steps].map(step => /#(\d+)@/.exec(step)?.[1]).filter(Boolean).map(Number));
	let asked = 0;
	run.output.sections.forEach((section, index) => {
		const digest = section.digest.replace('sha256:', ''), before = committed.requests[digest]?.requests ?? 0;
		check(!kept.has(index) || before > 0, () => `the runtime never saw section ${index}, whose result is committed`);
		equal(state.bySection[digest]?.requests, before + (kept.has(index) ? 0 : 1), `requests for section ${index}, ${kept.has(index) ? 'committed' : 'not committed'} before the kill`);
		asked += state.bySection[digest].requests;
	});

	daemon.verifyJournal();
	const verified = daemon.cli('fact', 'verify', '--run', id, '-o', 'json');
	equal(verified.code, 0, `fact verify (${verified.stdout.slice(0, 1000)}${verified.stderr})`);
	const replay = daemon.cli('replay', id, '-o', 'json');
	equal(replay.code, 0, `replay (${replay.stdout}${replay.stderr})`);
	equal([replay.json().equal, replay.json().difference], [true, null], 'replay');
	equal((await sim.state()).requests, state.requests, 'requests after the replay: no model is called');
	return { asked, sections: kept.size };
}

// From the journal after the restart: what had been committed before it. `daemon.started` is the first entry that the new process
// writes, so all before it was there when the old one died.
async function committedBefore(daemon, id, simBefore) {
	const entries = (await daemon.journal()).map(text => JSON.parse(text));
	const starts = entries.filter(entry => entry.kind === 'daemon.started');
	const last = starts.at(-1).seq;
	const steps = new Set(entries.filter(entry => entry.seq < last && entry.data.runId === id && entry.kind === 'attempt.succeeded').map(entry => entry.data.stepId));
	return { last, steps, requests: simBefore.bySection };
}

let killedWithin = 0, asked = 0;
for (let i = 0; i < MOMENTS && reference; i++) {
	// One moment in each twentieth of the run, so that very early and very late ones are among them: counted in answers that the runtime
	// has given, since time means little on a busy machine; then within the moments in which those are committed, or until the next ones.
	const answers = Math.floor((i + draw()) / MOMENTS * (SECTIONS + 1)), more = draw() * (i % 2 ? 4 : DELAY_MS);
	await test(`killed ${more.toFixed(1)} ms after ${answers} answers, it goes on where it was`, async () => {
		const daemon = new Daemon('crash', configuration), id = `killed-${i}`;
		await daemon.start();
		await sim.script({});
		const submitted = daemon.ask('POST', '/v1/runs', { id, definition: extractionOf('extractor'), input: { document: text } });
		if (answers > 0)
			await until(`${answers} answers`, async () => (await sim.state()).completed >= answers, 60_000, 1);
		await pause(more);
		await daemon.kill();
		const simBefore = await afterTheKill();
		let answer = await submitted;
		await daemon.start();
		if (answer.status !== 201) {
			// Nobody was told that it was accepted: the client asks again with the same id.
			answer = await daemon.ask('POST', '/v1/runs', { id, definition: extractionOf('extractor'), input: { document: text } });
			check([200, 201].includes(answer.status), () => `submitted again: ${answer.status} ${answer.broken ?? answer.text}`);
		}
		const committed = await committedBefore(daemon, id, simBefore);
		const result = await checkAll(daemon, id, committed);
		console.log(`# results of ${result.sections} of ${SECTIONS} sections were committed; ${result.asked} requests`);
		if (result.sections > 0 && result.sections < SECTIONS)
			killedWithin++;
		asked += result.asked;
		await daemon.stop();
	});
}

await test('most of the moments lay within the run, so that the above was worth something', async () => {
	check(killedWithin >= MOMENTS / 2, `${killedWithin} of ${MOMENTS}`);
	console.log(`# ${killedWithin} of ${MOMENTS} kills within the run; ${asked} requests for ${MOMENTS * SECTIONS} sections`);
});

await test('killed five times during one run, also while it was starting, it completes all the same', async () => {
	const began = performance.now();
	const daemon = new Daemon('crash', configuration), id = 'often';
	const startTook = await daemon.start().then(() => performance.now() - began);
	await sim.script({});
	await daemon.post('/v1/runs', { id, definition: extractionOf('extractor'), input: { document: text } }, 201);
	let committed;
	for (let kill = 0; kill < 5; kill++) {
		await pause(20 + draw() * reference.took / 5);
		await daemon.kill();
		for (let early = 0; early < 2; early++)
			await daemon.killWhileStarting(draw() * startTook * 1.5);
		const simBefore = await afterTheKill();
		await daemon.start();
		committed = await committedBefore(daemon, id, simBefore);
	}
	await checkAll(daemon, id, committed);
	await daemon.stop();
});

await sim.stop();
await finish();
