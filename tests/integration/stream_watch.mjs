// The watch of answers through the whole daemon, on the simulated runtime: each reason to end an answer before its end, what is recorded of it,
// that the connection was closed then, and that no fact came of it.
import { Daemon, check, definition, documentOf, equal, extractionOf, finish, match, startSimulator, test, until } from '../support/harness.mjs';

const LONG = 200_000; // bytes of an answer that nobody ends: 12,500 pieces, a millisecond or more apart
const runtimeOf = (sim, more = {}) => ({ kind: 'simulator', url: sim.url, model: 'reprise-sim', sampling: { maxTokens: 60_000 }, retry: { attempts: 3, floor: '10ms', cap: '50ms' }, ...more });
const sim = await startSimulator(), ollama = await startSimulator('--kind', 'ollama', '--model', 'tiny');
const daemon = await new Daemon('stream-watch', { runtimes: {
	r: runtimeOf(sim),
	lines: runtimeOf(ollama, { kind: 'ollama', model: 'tiny' }),
	off: runtimeOf(sim, { watch: { whiteSpace: 'off', loopBytes: 'off', schema: false } }),
	tight: runtimeOf(sim, { watch: { whiteSpace: 40, loopBytes: 256 } }),
} }).start();
const answers = (simulator, list, more = {}) => simulator.script({ answer: { mode: 'fixed', answers: list.map(answer => typeof answer === 'string' ? { text: answer } : answer) },
	cadence: { chunkMs: 1, tokensPerChunk: 4 }, ...more });
const repeated = (before, again, bytes = LONG) => before + again.repeat(Math.ceil(bytes / again.length));
const words = Array.from({ length: LONG / 12 }, (_, i) => `word ${i} of it `).join('');
const schema = { type: 'object', required: ['text'], additionalProperties: false, properties: { text: { type: 'string' }, n: { type: 'integer' } } };
const ask = (runtime, more = {}) => ({ call: 'inference', with: { runtime, prompt: 'Say it.', ...more } });
const failures = async id => (await daemon.events(id)).filter(event => event.kind === 'attempt.failed');
const recordOf = event => JSON.parse(daemon.content(event.data.record));
let runs = 0;

// One run of one inference that is ended early. What the attempt says of it, and the run's error.
async function stopped(task, expected, simulator = sim) {
	const id = `stopped-${++runs}`;
	await daemon.post('/v1/runs', { id, definition: definition(id, [{ answer: task }]), input: {} }, 201);
	const run = await daemon.ended(id), failed = await failures(id);
	equal([run.status, run.facts?.length ?? 0], ['faulted', 0], id);
	equal(failed.map(event => event.data.class), [expected.class], 'one attempt, of this class: another would be the same');
	match(run.error.detail, expected.detail, 'detail');
	const record = recordOf(failed[0]);
	equal([record.watch.check, record.watch.of], [expected.check, expected.of ?? 'text'], 'what was found');
	if (expected.at !== undefined)
		equal(record.watch.at, expected.at, 'the byte');
	check(record.watch.pieces > 0 && record.watch.savedTokensAtMost === 60_000 - record.watch.pieces, `saved: ${JSON.stringify(record.watch)}`);
	equal([record.finishReason, record.usage], [undefined, undefined], 'what the runtime never said');
	await closedEarly(simulator);
	return { id, record };
}

async function closedEarly(simulator, requests = 1) {
	const state = await until('the simulator sees the connection closed', async () => {
		const now = await simulator.state();
		return now.inFlight === 0 && now;
	});
	equal([state.requests, state.completed, state.cancelled], [requests, 0, requests], 'requests, completed, cancelled');
	check(state.bodyBytes > 0 && state.bodyBytes < requests * LONG * 5, `${state.bodyBytes} bytes of body were sent`); // each 16 bytes of text are 200 and more of an event
}

const cases = [
	['white space between values', `{"text":${' '.repeat(LONG)}`, { check: 'white-space', class: 'looped', at: 8 + 512, detail: /white-space characters in a row outside of strings/ }],
	['white space inside a string', repeated('{"text":"', '\\n'), { check: 'white-space', class: 'looped', at: 9 + 2 * 2049 - 1, detail: /white-space characters in a row in a string/ }],
	['words inside a string', repeated('{"text":"', 'and so on '), { check: 'loop', class: 'looped', detail: /it repeats itself every 10 bytes/ }],
	['rows of an object', repeated('{"text":"a","n":1', ',"other member":"the same"'), { check: 'schema', class: 'schema-invalid', at: 31, detail: /no member "other member"/ }],
	['a member of another type', `{"text":["${words}`, { check: 'schema', class: 'schema-invalid', at: 8, detail: /\/text: expected string, got array/ }],
	['a sentence instead of JSON', `Here is the JSON: ${words}`, { check: 'json', class: 'schema-invalid', at: 0, detail: /not JSON.*expected a value/ }],
	['white space behind the value', `{"text":"whole"}${'\n'.repeat(LONG)}`, { check: 'complete', class: 'looped', at: 16 + 128, detail: /complete with byte 16/ }],
	['text behind the value', `{"text":"whole"}\n${words}`, { check: 'json', class: 'schema-invalid', at: 17, detail: /complete with byte 16, but text follows/ }],
];
for (const [name, text, expected] of cases) {
	await test(`${name}: the attempt is ${expected.class}, at once, on a stream of events`, async () => {
		await answers(sim, [text]);
		const { record } = await stopped(ask('r', { schema: { document: schema } }), expected);
		if (expected.check === 'complete')
			equal(record.watch.valueEnd, 16, 'where the value ends');
	});
	await test(`${name}: the same on a stream of lines`, async () => {
		await answers(ollama, [text]);
		await stopped(ask('lines', { schema: { document: schema } }), expected, ollama);
	});
}

await test('text that nobody asked to be JSON has limits for white space and loops alone, and so has reasoning', async () => {
	await answers(sim, [repeated('{"a": 1} ', 'and so on ')]);
	await stopped(ask('r'), { check: 'loop', class: 'looped', detail: /the answer loops/ });
	await answers(sim, [repeated('Well.', '\n')]);
	await stopped(ask('r'), { check: 'white-space', class: 'looped', at: 5 + 2048, detail: /the answer loops/ });
	await answers(sim, [{ text: '{"text":"x"}', reasoning: repeated('Let me think. ', 'Or is it? ') }]);
	await stopped(ask('r', { schema: { document: schema } }), { check: 'loop', of: 'reasoning', class: 'looped', detail: /the reasoning loops/ });
});

await test('limits of the configuration: off lets all of it through to the whole check, small ones end it sooner', async () => {
	await answers(sim, [`{"text":${' '.repeat(600)}"x"}${' '.repeat(300)}`, 'prose', `{"text":"${'and so on '.repeat(300)}"}`], { cadence: { tokensPerChunk: 64 } });
	await daemon.post('/v1/runs', { id: 'off', definition: definition('off', [{ a: ask('off', { schema: { document: schema } }) }]), input: {} }, 201);
	const run = await daemon.ended('off');
	equal([run.status, run.output.json], ['completed', { text: 'x' }], JSON.stringify(run.error));
	await daemon.post('/v1/runs', { id: 'off-2', definition: definition('off', [{ a: ask('off', { schema: { document: schema } }) }]), input: {} }, 201);
	match((await daemon.ended('off-2')).error.detail, /the answer is not JSON: json-syntax at line 1/, 'the whole check');
	equal(recordOf((await failures('off-2'))[0]).watch, undefined, 'no watch');
	await daemon.post('/v1/runs', { id: 'off-3', definition: definition('off', [{ a: ask('off', { schema: { document: schema } }) }]), input: {} }, 201);
	equal((await daemon.ended('off-3')).status, 'completed', 'a loop of 3,000 bytes');
	await answers(sim, [`{"text":${' '.repeat(LONG)}`]);
	await stopped(ask('tight', { schema: { document: schema } }), { check: 'white-space', class: 'looped', at: 8 + 40, detail: /more than 40/ });
	await answers(sim, [repeated('{"text":"', 'and so on ')]);
	const { record } = await stopped(ask('tight', { schema: { document: schema } }), { check: 'loop', class: 'looped', detail: /loops/ });
	check(record.watch.at < 500, `at ${record.watch.at}`);
});

await test('an extraction: the section that loops has no fact, the others have theirs; a bad fact alone does not end an answer', async () => {
	const bad = JSON.stringify({ facts: [{ subject: 7, colour: 'red' }, { subject: 'Werk 2', predicate: 'founded_in', object: '1802', quote: 'Werk 2 was founded in 1802.' }] });
	await sim.script({ cadence: { chunkMs: 1, tokensPerChunk: 4 }, answer: { mode: 'fixed', answers: [repeated('{"facts":[', '\n'), bad].map(text => ({ text })) } });
	await daemon.post('/v1/runs', { id: 'sections', definition: extractionOf('r'), input: { document: documentOf(2) } }, 201);
	const run = await daemon.ended('sections'), { sections } = run.output;
	equal([run.status, ...sections.map(section => section.outcome)], ['completed', 'looped', 'facts'], JSON.stringify(run.error));
	equal([run.facts.length, (await daemon.facts('run=sections')).length, (await daemon.facts('run=sections&rejected=true')).length], [1, 1, 2], 'facts, with rejected');
	const failed = await failures('sections');
	equal(failed.map(event => [event.data.class, recordOf(event).watch.check]), [['looped', 'white-space']], 'attempts');
	match(daemon.cli('show', 'sections').stdout, /looped/, 'show says so');
	match(daemon.cli('events', 'sections').stdout, /attempt\.failed.*looped/, 'events, too');
});

await test('a workflow that retries by itself gets the next answer', async () => {
	await answers(sim, [repeated('{"text":"', 'and so on '), '{"text":"fine"}']);
	const retrying = definition('retrying', [{ careful: { try: [{ a: ask('r', { schema: { document: schema } }) }],
		catch: { errors: { with: { type: 'https://serverlessworkflow.io/spec/1.0.0/errors/runtime' } }, retry: { delay: { milliseconds: 10 }, limit: { attempt: { count: 2 } } } } } }]);
	await daemon.post('/v1/runs', { id: 'retried', definition: retrying, input: {} }, 201);
	const run = await daemon.ended('retried');
	equal([run.status, run.output?.json], ['completed', { text: 'fine' }], JSON.stringify(run.error));
	equal((await failures('retried')).map(event => event.data.class), ['looped'], 'failed attempts');
});

await test('what came until then is there as live tokens, and a run can be cancelled in the middle of an answer', async () => {
	const text = repeated('{"text":"', 'and so on ');
	await answers(sim, [text]);
	const { id, record } = await stopped(ask('r', { schema: { document: schema } }), { check: 'loop', class: 'looped', detail: /loops/ });
	const { attempts } = await daemon.get(`/v1/runs/${id}/tokens`);
	equal([attempts.length, attempts[0].ended, attempts[0].outcome], [1, true, 'looped'], 'attempts');
	check(text.startsWith(attempts[0].text) && attempts[0].text.length > record.watch.at, `${attempts[0].text.length} bytes`);
	await answers(sim, [`{"text":"${words}`]);
	await daemon.post('/v1/runs', { id: 'cancelled', definition: definition('cancelled', [{ a: ask('r', { schema: { document: schema } }) }]), input: {} }, 201);
	await until('it writes', async () => (await daemon.get('/v1/runs/cancelled/tokens')).attempts[0]?.text.length > 1000);
	await daemon.post('/v1/runs/cancelled/cancel', {}, [200, 202]);
	equal((await daemon.ended('cancelled')).status, 'cancelled', 'status');
	await closedEarly(sim);
});

await test('the journal verifies, and no run of all these loops gave a fact', async () => {
	daemon.verifyJournal();
	equal((await daemon.facts('')).length, 1, 'facts');
	equal((await daemon.facts('rejected=true')).length, 2, 'with rejected');
});

await daemon.stop();
await Promise.all([sim.stop(), ollama.stop()]);
await finish();
