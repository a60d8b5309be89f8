// Whose turn it is at a runtime, through the whole daemon on simulators: slots as the runtime tells them, priorities, models of one server,
// limits per time, a runtime that wants to be left alone; and why a request waits. Needs Node 20 and nothing else.
import { Daemon, check, definition, equal, finish, match, startSimulator, test, until } from '../support/harness.mjs';

const MODEL = 'reprise-sim';
const inference = (runtime, more = {}) => definition('ask', [{ a: { call: 'inference', with: { runtime, prompt: '${ .prompt }', ...more } } }]);
const runtimeOf = (url, more = {}) => ({ kind: 'openai', url, model: MODEL, retry: { attempts: 3, floor: '10ms', cap: '2s' }, ...more });
const show = (daemon, name = 'r') => daemon.get(`/v1/runtimes/${name}`);
const submit = (daemon, id, body, input = {}) => daemon.post('/v1/runs', { id, definition: body, input: { prompt: `p ${id}`, ...input } }, 201);
const eventsOf = async (daemon, id, kind) => (await daemon.get(`/v1/runs/${id}/events`)).events.filter(event => event.kind === kind);
// The first request is not answered until all others are waiting behind it, and then is cancelled.
async function behindOne(daemon, sim, runtime, submitOthers, waiting, script = {}) {
	await sim.script({ ...script, cadence: { firstByteMs: 100_000 } });
	await submit(daemon, 'first', inference(runtime));
	await until('the first is in flight', async () => (await show(daemon, runtime)).inFlight === 1 && (await sim.state()).runtime.running === 1);
	await sim.script(script);
	await submitOthers();
	await until('the others wait', async () => (await Promise.all(Object.keys(waiting).map(async name => (await show(daemon, name)).waiting === waiting[name]))).every(Boolean));
	const why = await Promise.all(Object.keys(waiting).map(async name => (await show(daemon, name)).waitsFor));
	await daemon.post('/v1/runs/first/cancel', {}, [200, 202]);
	return why;
}
async function completed(daemon, ids) {
	const runs = [];
	for (const id of ids) {
		const run = await daemon.ended(id);
		equal(run.status, 'completed', `${id}: ${JSON.stringify(run.error)}`);
		runs.push(run);
	}
	return runs;
}

const recordOf = (daemon, event) => JSON.parse(daemon.content(event.data.record));
// Attempts whose runtime answered; of an extraction not the cutting into sections.
const answersOf = async (daemon, id) => (await eventsOf(daemon, id, 'attempt.succeeded')).filter(event => recordOf(daemon, event).usage !== undefined);
async function inOrderOfAnswers(daemon, ids) {
	const seqs = new Map();
	for (const id of ids)
		seqs.set(id, (await answersOf(daemon, id))[0].seq);
	return ids.toSorted((a, b) => seqs.get(a) - seqs.get(b));
}

await test('concurrency: auto is what the runtime tells, with its basis; it changes with its record, and is one where nothing is told', async () => {
	const sim = await startSimulator('--kind', 'llamacpp');
	await sim.script({ options: { slots: 3 } });
	const silent = await startSimulator();
	const daemon = await new Daemon('auto', { runtimes: { r: runtimeOf(sim.url, { kind: 'llamacpp', concurrency: 'auto' }), s: runtimeOf(silent.url, { concurrency: 'auto' }), t: runtimeOf(silent.url, { concurrency: 2 }) } }).start();
	await until('all were asked', async () => (await daemon.get('/v1/runtimes')).runtimes.every(runtime => runtime.configuration !== undefined));
	const told = await show(daemon);
	equal([told.concurrency, told.concurrencyBasis, told.concurrencySource], [3, 'reported', 'GET /props'], 'as told');
	match(daemon.cli('runtime', 'show', 'r').stdout, /^concurrency +3$/m, 'runtime show');
	const { stdout } = daemon.cli('runtime', 'show', 'r');
	match(stdout, /^concurrencyBasis +reported$/m, 'runtime show');
	equal(new Set(stdout.match(/^\w+ +(?=\S)/gm).map(label => label.length)).size, 1, `its values stand in one column: ${stdout}`);
	await sim.script({ options: { slots: 2 } });
	await daemon.post('/v1/runtimes/r/probe', {}, 200);
	equal((await show(daemon)).concurrency, 2, 'after the change');
	const untold = await show(daemon, 's'), configured = await show(daemon, 't');
	equal([untold.concurrency, untold.concurrencyBasis], [1, 'unknown'], 'not told');
	equal([configured.concurrency, configured.concurrencyBasis], [2, 'configured'], 'configured');
	await daemon.stop();
	await sim.stop();
	await silent.stop();
});

await test('the higher priority goes first, whether a workflow says it or the runtime; one that cannot be is refused', async () => {
	const sim = await startSimulator();
	const daemon = await new Daemon('priority', { runtimes: { r: runtimeOf(sim.url, { priority: 3 }) } }).start();
	const wanted = inference('r', { priority: '${ .priority }' });
	const why = await behindOne(daemon, sim, 'r', async () => {
		await submit(daemon, 'low', wanted, { priority: 2 });
		await submit(daemon, 'usual', inference('r'));
		await submit(daemon, 'high', wanted, { priority: 9 });
		await submit(daemon, 'sections', definition('e', [{ facts: { call: 'extraction', with: { runtime: 'r', document: 'Acme was founded in 1901.', priority: 5 } } }]));
		await submit(daemon, 'wrong', wanted, { priority: 10 });
	}, { r: 4 });
	equal(why, ['slot'], 'why they wait');
	const wrong = await daemon.ended('wrong');
	equal(wrong.status, 'faulted', 'priority 10');
	match(wrong.error.detail, /whole number from 0 to 9/, 'what it says');
	const runs = await completed(daemon, ['high', 'sections', 'usual', 'low']);
	equal(await inOrderOfAnswers(daemon, runs.map(run => run.id)), ['high', 'sections', 'usual', 'low'], 'order of the answers');
	const late = recordOf(daemon, (await answersOf(daemon, 'low'))[0]);
	check(late.waitedUs.slot > 0, () => `what it waited for: ${JSON.stringify(late)}`);
	await daemon.stop();
	await sim.stop();
});

await test('of a server that holds one model the requests are grouped by model: it loads each once, and answers for one at a time', async () => {
	const sim = await startSimulator('--kind', 'lmstudio');
	const options = { models: ['other'], loaded: false, loadMs: 20 };
	await sim.script({ options });
	const daemon = await new Daemon('models', { runtimes: { a: runtimeOf(sim.url, { kind: 'lmstudio' }), b: runtimeOf(sim.url, { kind: 'lmstudio', model: 'other' }) } }).start();
	const ids = [];
	const why = await behindOne(daemon, sim, 'a', async () => {
		for (let i = 0; i < 10; i++) {
			for (const runtime of ['b', 'a']) {
				ids.push(`${runtime}-${i}`);
				await submit(daemon, ids.at(-1), inference(runtime));
			}
		}
	}, { a: 10, b: 10 }, { options });
	equal(why, ['slot', 'model'], 'why they wait');
	await completed(daemon, ids);
	const models = (await sim.state()).runtime.models;
	equal([models[MODEL].loads, models.other.loads], [1, 1], 'loads');
	equal((await inOrderOfAnswers(daemon, ids)).map(id => id[0]).join(''), 'aaaaaaaaaabbbbbbbbbb', 'order of the answers');
	await daemon.stop();
	await sim.stop();
});

await test('who is over the limit of requests per time waits: queued time with its reason, no failed attempt', async () => {
	const sim = await startSimulator();
	const daemon = await new Daemon('rate', { runtimes: { r: runtimeOf(sim.url, { concurrency: 8, rate: { requests: 2, per: '6s' } }) } }).start();
	const ids = ['one', 'two', 'three', 'four'];
	for (const id of ids)
		await submit(daemon, id, inference('r'));
	const waiting = await until('one waits for the limit', async () => { const now = await show(daemon); return now.waitsFor === 'rate' && now; });
	check(waiting.goesOnInMs > 0 && waiting.goesOnInMs <= 6000, () => `until: ${JSON.stringify(waiting)}`);
	const runs = await completed(daemon, ids);
	equal((await Promise.all(ids.map(id => eventsOf(daemon, id, 'attempt.failed')))).flat(), [], 'failed attempts');
	const last = runs.toSorted((a, b) => a.overhead.queuedMs - b.overhead.queuedMs).at(-1);
	check(last.overhead.queuedMs > 2000, () => `queued: ${JSON.stringify(last.overhead)}`);
	check(last.overhead.waitedMs.rate > 2000, () => `for what: ${JSON.stringify(last.overhead)}`);
	match(daemon.cli('overhead', last.id).stdout, /^ +for rate: [2-9]\.\d+ s in all attempts$/m, 'overhead of the run');
	check(last.overhead.overheadMs < last.overhead.wallMs - last.overhead.queuedMs, () => `apart from overhead: ${JSON.stringify(last.overhead)}`);
	await daemon.stop();
	await sim.stop();
});

await test('a runtime that answers 429 with Retry-After is left alone by all that wait for it', async () => {
	const sim = await startSimulator();
	const daemon = await new Daemon('retry-after', { runtimes: { r: runtimeOf(sim.url, { retry: { attempts: 3, floor: '10ms', cap: '10s' } }) } }).start();
	await until('it was asked', async () => (await show(daemon)).configuration !== undefined);
	await sim.script({ faults: [{ on: 1, kind: 'status', status: 429, retryAfter: 4 }] });
	const ids = ['one', 'two', 'three'];
	for (const id of ids)
		await submit(daemon, id, inference('r'));
	await completed(daemon, ids);
	const failures = (await Promise.all(ids.map(id => eventsOf(daemon, id, 'attempt.failed')))).flat();
	equal(failures.map(event => event.data.class), ['rate-limited'], 'the one who was told');
	const waits = (await Promise.all(ids.map(id => answersOf(daemon, id)))).flat().map(event => recordOf(daemon, event).waitedUs?.rate ?? 0);
	check(waits.filter(us => us > 500_000).length >= 2, () => `waits: ${waits}`);
	await daemon.stop();
	await sim.stop();
});

await test('a run says at once why its tasks wait, of a thousand of them', async () => {
	const sim = await startSimulator();
	const daemon = await new Daemon('why', { runtimes: { r: runtimeOf(sim.url, { rate: { requests: 1, per: '24h' } }) } }).start();
	await until('it was asked', async () => (await show(daemon)).configuration !== undefined);
	await submit(daemon, 'first', inference('r'));
	await completed(daemon, ['first']);
	const ask = { ask: { call: 'inference', with: { runtime: 'r', prompt: 'x' } } };
	await daemon.post('/v1/runs', { id: 'many', definition: { document: { dsl: '1.0.3', namespace: 'tests', name: 'many', version: '1.0.0' },
		do: [{ each: { for: { in: '${ [range(1005)] }' }, metadata: { concurrency: 1005 }, do: [ask] } }] }, input: {} }, 201);
	await until('all wait', async () => (await show(daemon)).waiting === 1005, 30_000);
	const waits = (await daemon.get('/v1/runs/many?include=tasks')).tasks.filter(task => task.reference.endsWith('/ask')).map(task => task.waitsFor);
	equal([waits.length, waits.filter(why => why === 'rate').length, waits.filter(why => why === undefined).length], [1005, 1000, 5], 'API_VIEW_WAITS_MAX');
	await submit(daemon, 'second', inference('r'));
	await until('it says so', async () => (await daemon.get('/v1/runs/second?include=tasks')).tasks.at(-1)?.waitsFor === 'rate');
	match(daemon.cli('show', 'second').stdout, /running \(waits: rate\)/, 'as text');
	equal((await daemon.get('/v1/runs/first?include=tasks')).tasks.map(task => task.waitsFor), [undefined], 'of one that is over nothing');
	await daemon.stop();
	// What waits for a place in its run's budget is in no queue yet.
	await sim.script({ cadence: { firstByteMs: 600_000 } });
	const other = await new Daemon('why-budget', { runtimes: { r: runtimeOf(sim.url, { concurrency: 4, sampling: { maxTokens: 50 } }) } }).start();
	await other.post('/v1/runs', { id: 'tight', budget: { tokens: 60 }, definition: { document: { dsl: '1.0.3', namespace: 'tests', name: 'tight', version: '1.0.0' },
		do: [{ each: { for: { in: '${ [1, 2] }' }, metadata: { concurrency: 2 }, do: [ask] } }] }, input: {} }, 201);
	await until('the second one waits', async () => (await other.get('/v1/runs/tight?include=tasks')).tasks.some(task => task.waitsFor === 'run-budget'), 20_000);
	await other.post('/v1/runs/tight/kill', {}, [200, 202]);
	await other.stop();
	await sim.stop();
});

await test('an attempt that no model has answered uses up none of the tokens per time: one that was refused, one that reached nobody', async () => {
	const sim = await startSimulator();
	const limited = { sampling: { maxTokens: 500 }, rate: { tokens: 1000, per: '24h' } };
	const daemon = await new Daemon('tokens-unused', { runtimes: { r: runtimeOf(sim.url, limited), gone: runtimeOf('http://127.0.0.1:1', limited) } }).start();
	await until('it was asked', async () => (await show(daemon)).configuration !== undefined);
	await sim.script({ faults: [1, 2].map(on => ({ on, kind: 'status', status: 429 })) });
	await submit(daemon, 'refused', inference('r'));
	await completed(daemon, ['refused']);
	for (const id of ['gone', 'gone-again'])
		await submit(daemon, id, inference('gone'));
	equal((await Promise.all(['gone', 'gone-again'].map(id => daemon.ended(id)))).map(run => run.error.title), Array(2).fill('Attempt 3 failed: unreachable'), 'three attempts each');
	await daemon.stop();
	await sim.stop();
});

await test('an attempt that reached nobody does not count against the requests per time; one that was refused does', async () => {
	const sim = await startSimulator();
	const limited = { retry: { attempts: 2, floor: '10ms', cap: '20ms' }, rate: { requests: 2, per: '24h' } };
	const daemon = await new Daemon('requests-unused', { runtimes: { r: runtimeOf(sim.url, limited), gone: runtimeOf('http://127.0.0.1:1', limited) } }).start();
	await until('it was asked', async () => (await show(daemon)).configuration !== undefined);
	const ids = ['gone', 'gone-again', 'gone-too'];
	for (const id of ids)
		await submit(daemon, id, inference('gone'));
	equal((await Promise.all(ids.map(id => daemon.ended(id)))).map(run => run.error.title), Array(3).fill('Attempt 2 failed: unreachable'), 'six attempts where two would be the limit');
	await sim.script({ faults: [1, 2].map(on => ({ on, kind: 'status', status: 429 })) });
	await submit(daemon, 'refused', inference('r'));
	equal((await daemon.ended('refused')).status, 'faulted', 'both were sent');
	await submit(daemon, 'late', inference('r'));
	await until('it waits for the limit', async () => (await show(daemon)).waitsFor === 'rate');
	await daemon.stop();
	await sim.stop();
});

await finish();
