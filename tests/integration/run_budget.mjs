// What a run may use of models (`budget`), through the whole daemon on simulators: to the last token, side by side, counted beforehand, caught, gone on with,
// shared with children, bounded by the configuration, and over SIGKILL. Needs Node 20 and nothing else.
import { Daemon, check, definition, documentOf, equal, extractionOf, finish, match, problem, startSimulator, test, until } from '../support/harness.mjs';

const TYPE = 'https://serverlessworkflow.io/spec/1.0.0/errors/budget';
const ask = (n, more = {}) => ({ [`a${n}`]: { call: 'inference', with: { runtime: 'r', prompt: `question ${n}`, sampling: { maxTokens: 50 }, ...more } } });
const sequence = count => definition('row', Array.from({ length: count }, (_, i) => ask(i)));
const several = (concurrency, more = {}) => definition('several', [{ each: { for: { each: 'n', in: '${ [range(.count)] }' }, metadata: { concurrency },
	do: [{ a: { call: 'inference', with: { runtime: 'r', prompt: 'question n', sampling: { maxTokens: 50 }, ...more } } }] } }]);
const fixed = { answer: { mode: 'fixed', answers: [{ text: 'one two three four five six seven' }] } };
const runtimeOf = (url, more = {}) => ({ kind: 'openai', url, model: 'reprise-sim', concurrency: 16, retry: { attempts: 3, floor: '10ms', cap: '50ms' }, ...more });
const submit = (daemon, body, status = 201) => daemon.post('/v1/runs', body, status);
const run = (daemon, workflow, budget, input = null) => daemon.post('/v1/runs?wait=30s&include=all', { definition: workflow, input, budget }, [200, 201]);
const eventsOf = async (daemon, id, kind) => (await daemon.get(`/v1/runs/${id}/events`)).events.filter(event => event.kind === kind);
const ends = async (daemon, id) => [...await eventsOf(daemon, id, 'attempt.succeeded'), ...await eventsOf(daemon, id, 'attempt.failed')];
const tokensOf = async (daemon, id) => (await ends(daemon, id)).reduce((sum, event) => sum + (event.data.spent?.tokens ?? 0), 0);
// Whatever happened: the document says what the entries do, and every run is decided again as it was.
async function settle(daemon) {
	for (const { id } of (await daemon.get('/v1/runs?limit=1000')).runs) {
		const shown = await daemon.run(id);
		equal(shown.spent?.tokens ?? 0, await tokensOf(daemon, id), `tokens of ${id}`);
	}
	equal(daemon.cli('replay', '--all').code, 0, 'replay');
	daemon.verifyJournal();
}

const sim = await startSimulator();
const begin = async (script = fixed, more = {}) => { await sim.script(script); return await new Daemon('run-budget', { runtimes: { r: runtimeOf(sim.url) }, ...more }).start(); };
// What one of the calls above uses.
const EACH = await (async () => {
	const daemon = await begin();
	const one = await run(daemon, sequence(1));
	await daemon.stop();
	equal([one.status, one.budget], ['completed', undefined], 'without a budget');
	check(one.spent.tokens > 5 && one.spent.tokens < 50 && one.spent.seconds > 0, () => JSON.stringify(one.spent));
	return one.spent.tokens;
})();

await test('calls begin as long as what they may take fits, to the last token; then the run fails, keeps its work, and goes on with more', async () => {
	const daemon = await begin();
	const fits = await run(daemon, sequence(3), { tokens: 2 * EACH + 50 });
	equal([fits.status, fits.spent.tokens, fits.budget], ['completed', 3 * EACH, { tokens: 2 * EACH + 50 }], 'to the last token');
	await sim.reset();
	const id = (await run(daemon, sequence(4), { tokens: 2 * EACH + 49, seconds: 1000 })).id, failed = await daemon.run(id);
	equal([failed.status, failed.spent.tokens, failed.budget], ['faulted', 2 * EACH, { seconds: 1000, tokens: 2 * EACH + 49 }], 'one token less');
	equal([failed.error.type, failed.error.status, failed.error.class, failed.error.instance], [TYPE, 403, 'budget', '/do/2/a2'], 'error');
	match(failed.error.detail, new RegExp(`^run ${id} may use ${2 * EACH + 49} tokens and has used ${2 * EACH}; this call may take 50; give it more, as far as limits.run of the configuration allows, and go on: reprise retry ${id} --budget tokens=${4 * EACH + 50}$`), 'detail');
	equal((await sim.state()).requests, 2, 'requests');
	equal(failed.tasks.at(-1).attempts, 1, 'not tried again');
	match(daemon.cli('show', id).stdout, new RegExp(`^spent +${2 * EACH} tokens of ${2 * EACH + 49}, \\d\\.\\d+ seconds of 1000$`, 'm'), 'show');
	equal((await daemon.post(`/v1/runs/${id}/retry?wait=30s`, {}, 200)).error.type, TYPE, 'unchanged it fails again');
	const again = daemon.cli('retry', id, '--budget', `tokens=${3 * EACH + 50}`, '--wait', '-o', 'json');
	equal(again.code, 0, `retry: ${again.stderr}`);
	const done = await daemon.run(id);
	equal([done.status, done.spent.tokens, done.budget], ['completed', 4 * EACH, { seconds: 1000, tokens: 3 * EACH + 50 }], 'gone on with');
	equal((await sim.state()).requests, 4, 'nothing was asked twice');
	equal((await eventsOf(daemon, id, 'run.retried')).map(event => event.data.budget), [undefined, { tokens: 3 * EACH + 50 }], 'run.retried');
	await settle(daemon);
	await daemon.stop();
});

await test('an overrun can be caught like any error', async () => {
	const daemon = await begin();
	const tasks = [{ t: { try: [ask(0), ask(1), ask(2)], catch: { errors: { with: { type: TYPE } }, as: 'e', do: [{ s: { set: { class: '${ $e.class }' } } }] } } }];
	const caught = await run(daemon, definition('caught', tasks), { tokens: EACH + 50 });
	equal([caught.status, caught.output, caught.spent.tokens], ['completed', { class: 'budget' }, 2 * EACH], 'caught');
	await settle(daemon);
	await daemon.stop();
});

await test('side by side: what others hold is waited for, not failed for, and never is more in flight than fits', async () => {
	const daemon = await begin({ ...fixed, cadence: { firstByteMs: 200 } });
	const tokens = 11 * EACH + 50;
	const fits = await run(daemon, several(12), { tokens }, { count: 12 });
	equal([fits.status, fits.spent.tokens], ['completed', 12 * EACH], 'it would fit one after the other');
	check(fits.overhead.waitedMs['run-budget'] >= 1, () => JSON.stringify(fits.overhead));
	const most = async id => {
		let open = 0, max = 0;
		for (const event of (await daemon.get(`/v1/runs/${id}/events`)).events) {
			open += event.kind === 'attempt.started' ? 1 : ['attempt.succeeded', 'attempt.failed', 'task.cancelled'].includes(event.kind) ? -1 : 0;
			max = Math.max(max, open);
		}
		return max;
	};
	equal(await most(fits.id), 12, 'begun at once');
	const { maxInFlight } = await sim.state();
	check(maxInFlight >= 2 && maxInFlight <= Math.floor(tokens / 50), () => `in flight: ${maxInFlight}, of ${tokens} tokens at 50 each`);
	const less = await run(daemon, several(12), { tokens: tokens - 1 }, { count: 12 });
	equal([less.status, less.error.type, less.spent.tokens], ['faulted', TYPE, 11 * EACH], 'one token less');
	await settle(daemon);
	await daemon.stop();
});

await test('a prompt that is counted beforehand counts; without maxTokens a call begins while a token is left', async () => {
	const counting = await startSimulator('--kind', 'llamacpp');
	await counting.script({ ...fixed, options: { slots: 4 }, cadence: { firstByteMs: 30 } });
	const daemon = await new Daemon('run-budget', { runtimes: { r: runtimeOf(counting.url, { kind: 'llamacpp', concurrency: 4 }) } }).start();
	const one = await run(daemon, sequence(1));
	const prompt = JSON.parse(daemon.content((await eventsOf(daemon, one.id, 'attempt.succeeded'))[0].data.record)).promptTokensCounted;
	check(prompt > 0, () => `counted: ${prompt}`);
	equal((await run(daemon, sequence(1), { tokens: 50 + prompt })).status, 'completed', 'it fits');
	const less = await run(daemon, sequence(1), { tokens: 49 + prompt });
	equal([less.status, less.error.type, less.spent.tokens], ['faulted', TYPE, 0], 'one less');
	match(less.error.detail, new RegExp(`this call may take ${50 + prompt};`), 'with its prompt');
	// Two are let in by maxTokens alone; with their prompts they do not fit beside each other, so the second waits for the first.
	const shared = await run(daemon, several(2), { tokens: 110 }, { count: 2 });
	equal([shared.status, shared.spent.tokens <= 110], ['completed', true], `side by side: ${JSON.stringify(shared.error)}`);
	const unbounded = await run(daemon, definition('open', [ask(0, { sampling: {} }), ask(1, { sampling: {} })]), { tokens: prompt + 1 });
	equal([unbounded.status, unbounded.error.instance, unbounded.spent.tokens > prompt + 1], ['faulted', '/do/1/a1', true], 'without maxTokens');
	match(unbounded.error.detail, /reprise retry/, 'what to do');
	await settle(daemon);
	await daemon.stop();
	await counting.stop();
});

await test('seconds: a call begins while time is left, and is not cut off', async () => {
	const daemon = await begin({ ...fixed, cadence: { firstByteMs: 1000 } });
	const failed = await run(daemon, sequence(2), { seconds: 1 });
	equal([failed.status, failed.error.type, failed.error.instance], ['faulted', TYPE, '/do/1/a1'], 'after a second');
	check(failed.spent.seconds >= 1 && failed.budget.seconds === 1, () => JSON.stringify(failed.spent));
	match(failed.error.detail, /may use a runtime for 1 seconds, and has for \d[.\d]*; give it more, as far as limits.run of the configuration allows, and go on: reprise retry [^ ]+ --budget seconds=\d+$/, 'detail');
	await sim.script(fixed);
	equal((await daemon.post(`/v1/runs/${failed.id}/retry?wait=30s`, { budget: { seconds: 100 } }, 200)).status, 'completed', 'with more');
	await settle(daemon);
	await daemon.stop();
});

await test('an extraction stops as well, whatever its sections may do, and goes on with those that are left', async () => {
	const daemon = await begin({});
	const whole = await run(daemon, extractionOf('r', { sampling: { maxTokens: 2000 } }), undefined, { document: documentOf(6) });
	equal(whole.status, 'completed', JSON.stringify(whole.error));
	const sections = whole.output.facts.summary?.sections ?? whole.output.summary.sections;
	check(sections >= 3, () => `sections: ${sections}`);
	await sim.reset();
	const failed = await run(daemon, extractionOf('r', { sampling: { maxTokens: 2000 } }), { tokens: 2000 + Math.floor(whole.spent.tokens / 2) }, { document: documentOf(6) });
	equal([failed.status, failed.error.class], ['faulted', 'budget'], 'half of it');
	const before = (await sim.state()).requests;
	check(before > 0, () => `requests: ${before}`);
	const done = await daemon.post(`/v1/runs/${failed.id}/retry?wait=30s&include=all`, { budget: { tokens: whole.spent.tokens + 2000 } }, 200);
	equal([done.status, done.facts.length, done.spent.tokens], ['completed', whole.facts.length, whole.spent.tokens], 'the rest');
	await settle(daemon);
	await daemon.stop();
});

await test('a child has what its parent has left, and counts for it, as do children side by side; one that nobody waits for does not', async () => {
	const daemon = await begin({ ...fixed, cadence: { firstByteMs: 20 } });
	const child = (name, run = {}) => ({ run: { workflow: { namespace: 'tests', name }, ...run } });
	await daemon.post('/v1/definitions', sequence(1), [200, 201]);
	await daemon.post('/v1/definitions', definition('three', [ask(0), ask(1), ask(2)]), [200, 201]);
	const parent = await run(daemon, definition('parent', [ask(0), { c: child('three') }, ask(1)]), { tokens: 4 * EACH + 50, seconds: 500 });
	equal([parent.status, parent.spent.tokens], ['completed', 5 * EACH], `parent: ${JSON.stringify(parent.error)}`);
	const inner = await daemon.run(parent.children[0].id);
	equal([inner.budget.tokens, inner.spent.tokens], [3 * EACH + 50, 3 * EACH], 'child');
	check(inner.budget.seconds < 500 && inner.budget.seconds > 400, () => JSON.stringify(inner.budget));
	const told = (await eventsOf(daemon, parent.id, 'attempt.succeeded')).find(event => event.data.stepId.startsWith('/do/1/c')).data.spent;
	equal([told.tokens, told.runtime, told.us > 0], [3 * EACH, undefined, true], 'of the child');
	const deep = await run(daemon, definition('deep', [{ c: child('three') }, ask(1)]), { tokens: 2 * EACH + 49 });
	equal([deep.status, deep.error.type, deep.error.instance, deep.spent.tokens], ['faulted', TYPE, '/do/0/c', 2 * EACH], 'in the child');
	match(deep.error.detail, new RegExp(`^run ${deep.id}, of which this one is a part, may use `), 'whose budget');
	equal((await daemon.post(`/v1/runs/${deep.id}/retry?wait=30s`, { budget: { tokens: 5 * EACH + 50 } }, 200)).status, 'completed', 'with more, the child begins anew');
	const many = definition('many', [{ each: { for: { each: 'n', in: '${ [1,2,3,4] }' }, metadata: { concurrency: 4 }, do: [{ c: child('three') }] } }]);
	const beside = await run(daemon, many, { tokens: 11 * EACH + 50 });
	equal([beside.status, beside.spent.tokens], ['completed', 12 * EACH], `side by side: ${JSON.stringify(beside.error)}`);
	const over = await run(daemon, many, { tokens: 7 * EACH + 49 });
	equal([over.status, over.error.type], ['faulted', TYPE], 'side by side, too much');
	const used = await Promise.all(over.children.map(async one => { await daemon.ended(one.id); return tokensOf(daemon, one.id); }));
	check(used.reduce((a, b) => a + b) <= 7 * EACH + 49, () => `used together: ${used}`);
	const left = await run(daemon, definition('left', [{ c: child('three', { await: false }) }, ask(0)]), { tokens: 50 + EACH });
	equal([left.status, left.spent.tokens], ['completed', EACH], 'one that is let go counts for itself');
	const alone = await daemon.ended(left.children[0].id);
	equal([alone.budget.tokens, alone.error?.class], [50 + EACH, 'budget'], 'with what was left then');
	await settle(daemon);
	await daemon.stop();
});

await test('the configuration bounds what may be asked for, and is the default of submissions, schedules, gates and forks', async () => {
	const daemon = await begin(fixed, { limits: { run: { tokens: 3 * EACH + 50, seconds: 100 } } });
	const all = { tokens: 3 * EACH + 50, seconds: 100 };
	equal((await daemon.get('/v1/config')).limits.run, { seconds: 100, tokens: all.tokens }, 'config');
	const one = await run(daemon, sequence(5));
	equal([one.status, one.budget, one.spent.tokens], ['faulted', { seconds: 100, tokens: all.tokens }, 4 * EACH], 'the default');
	match((await daemon.run(one.id)).error.detail, /as far as limits\.run of the configuration allows/, 'who is at the bound is told of it');
	problem(await daemon.ask('POST', '/v1/runs', { definition: sequence(1), budget: { tokens: all.tokens + 1 } }), 400, new RegExp(`${all.tokens + 1} is more than the ${all.tokens} that a run may have`));
	problem(await daemon.ask('POST', `/v1/runs/${one.id}/retry`, { budget: { seconds: 101 } }), 400, /101 is more than the 100/);
	for (const [budget, says] of [[{}, /neither tokens nor seconds/], [{ tokens: 0 }, /whole number from 1/], [{ hours: 1 }, /'hours'/], [7, /found number/]])
		problem(await daemon.ask('POST', '/v1/runs', { definition: sequence(1), budget }), 400, says);
	const plain = { definition: sequence(1), id: 'plain' };
	await submit(daemon, plain);
	await daemon.ended('plain');
	const body = { definition: sequence(5), id: 'same', budget: { tokens: 2 * EACH + 50 } };
	await submit(daemon, body);
	await daemon.ended('same');
	equal((await submit(daemon, body, 200)).budget, { seconds: 100, tokens: 2 * EACH + 50 }, 'the same again');
	problem(await daemon.ask('POST', '/v1/runs', { ...body, budget: { tokens: 2 * EACH + 49 } }), 409, /definition, input, labels or budget/);
	problem(await daemon.ask('POST', '/v1/runs', { ...body, budget: undefined }), 409, /budget/);
	const fork = await daemon.post('/v1/runs/same/fork?wait=30s', { from: 'a1', id: 'fork' }, 201), lesser = { from: 'a1', id: 'lesser', budget: { tokens: EACH + 50 } }, less = await daemon.post('/v1/runs/same/fork?wait=30s', lesser, 201);
	equal([fork.budget.tokens, fork.spent.tokens, fork.error.instance], [2 * EACH + 50, 3 * EACH, '/do/4/a4'], 'a fork begins with nothing spent');
	equal([less.budget, less.spent.tokens], [{ seconds: 100, tokens: EACH + 50 }, 2 * EACH], 'a fork with a budget of its own');
	problem(await daemon.ask('POST', '/v1/runs/same/fork', { from: 'a1', budget: { tokens: all.tokens + 1 } }), 400, /is more than/);
	const gate = await daemon.post('/v1/gates?wait=30s', { runtime: 'r', requests: 5, request: { prompt: 'x', sampling: { maxTokens: 50 } }, budget: { tokens: 2 * EACH + 50 } }, 201);
	equal([gate.status, gate.error?.class], ['faulted', 'budget'], 'a gate');
	await daemon.post('/v1/definitions', { ...sequence(5), document: { dsl: '1.0.3', namespace: 'tests', name: 'planned', version: '1.0.0' }, schedule: { every: { hours: 1 } } }, [200, 201]);
	equal(daemon.cli('schedule', 'trigger', 'tests.planned').code, 0, 'trigger');
	const ticked = (await until('it began', async () => (await daemon.get('/v1/runs?workflow=tests/planned')).runs[0])).id;
	equal([(await daemon.ended(ticked)).error.class, (await daemon.run(ticked)).budget.tokens], ['budget', all.tokens], 'a schedule');
	const bad = daemon.cli('submit', '-', '--budget', 'tokens=many');
	equal(bad.code, 2, 'what is no number');
	match(bad.stderr, /--budget tokens=many/, 'what it says');
	equal(daemon.cli('retry', one.id, '--budget', 'tokens=1,tokens=2').code, 2, 'twice the same');
	await settle(daemon);
	// Less than runs had before is for new ones alone: what is on record stays, and a fork of it has no more.
	daemon.configure({ runtimes: { r: runtimeOf(sim.url) }, limits: { run: { tokens: 60 } } });
	await daemon.stop();
	await daemon.start();
	equal((await submit(daemon, plain, 200)).budget.tokens, all.tokens, 'the same submission under another configuration');
	equal((await daemon.run('same')).budget.tokens, 2 * EACH + 50, 'as it was');
	equal((await submit(daemon, body, 200)).id, 'same', 'also one that asks for more than that');
	equal((await daemon.post('/v1/runs/same/fork', lesser, 200)).id, 'lesser', 'and a fork');
	problem(await daemon.ask('POST', '/v1/runs', { ...body, budget: { tokens: 61 } }), 409, /definition, input, labels or budget/);
	problem(await daemon.ask('POST', '/v1/runs', { ...body, id: 'other' }), 400, /is more than the 60 that a run may have/);
	problem(await daemon.ask('POST', '/v1/runs/same/fork', { ...lesser, id: 'other' }), 400, /is more than the 60 that a run may have/);
	equal((await daemon.post('/v1/runs/same/fork?wait=30s', { from: 'a1' }, 201)).budget.tokens, 60, 'a fork now');
	await settle(daemon);
	await daemon.stop();
});

await test('over SIGKILL at any moment what was spent stays spent', async () => {
	const held = { ...fixed, cadence: { firstByteMs: 3_600_000 } };
	const daemon = await begin(held);
	const tokens = 20 * EACH + 50;
	const id = (await submit(daemon, { definition: several(3), input: { count: 40 }, budget: { tokens } })).id;
	for (let kills = 0; kills < 4; kills++) {
		await until('three are asked', async () => (await sim.state()).inFlight === 3);
		const seen = (await ends(daemon, id)).length;
		await sim.release(held); // these three; those that follow wait
		await until('it went on', async () => (await ends(daemon, id)).length > seen);
		await daemon.kill();
		await daemon.start();
	}
	await sim.release(fixed);
	const failed = await daemon.ended(id);
	equal([failed.status, failed.error.type], ['faulted', TYPE], 'end');
	check(failed.spent.tokens + 50 > tokens && failed.spent.tokens <= tokens, () => `${JSON.stringify(failed.spent)} of ${tokens}`);
	await settle(daemon);
	await daemon.stop();
});

await test('a wait for room in the budget that SIGKILL cuts off is waiting, not overhead', async () => {
	const daemon = await begin({ ...fixed, cadence: { firstByteMs: 3_600_000 } });
	const id = (await submit(daemon, { definition: several(2), input: { count: 2 }, budget: { tokens: EACH + 50 } })).id;
	const oneWaits = () => until('one waits', async () => (await daemon.run(id)).tasks.some(task => task.waitsFor === 'run-budget'));
	await oneWaits();
	await daemon.kill();
	const away = Date.now();
	await until('a second went by', () => Date.now() - away > 1000);
	await daemon.start();
	await oneWaits();
	await sim.release(fixed);
	const done = await daemon.ended(id), { wallMs, activityMs, queuedMs, overheadMs, waitedMs } = done.overhead;
	equal(done.status, 'completed', JSON.stringify(done.error));
	check(waitedMs.restart >= 2000 && queuedMs >= 1000, () => `two calls waited for a second each: ${JSON.stringify(done.overhead)}`);
	check(overheadMs < wallMs - 1000 && Math.abs(wallMs - activityMs - queuedMs - overheadMs) < 1, () => `apart from overhead: ${JSON.stringify(done.overhead)}`);
	match(daemon.cli('overhead', id).stdout, /^ +for restart: .+ in all attempts$/m, 'overhead');
	await settle(daemon);
	await daemon.stop();
});

await sim.stop();
await finish();
