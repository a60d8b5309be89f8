// Runs that runs start (`run: {workflow}`) on the real daemon: output, error, version, cancellation, depth, and over SIGKILL at any moment
// exactly one child each.
import { Daemon, check, definition, equal, finish, match, pause, problem, random, seedOf, startSimulator, test, until } from '../support/harness.mjs';

const draw = random(seedOf(23));
const sim = await startSimulator();
const runtimes = { model: { kind: 'simulator', url: sim.url, model: 'reprise-sim', concurrency: 16, retry: { attempts: 3, floor: '10ms', cap: '50ms' } } };
const child = (name, more = {}, run = {}) => ({ run: { workflow: { namespace: 'tests', name, ...more }, ...run } });
const versioned = (name, version, tasks) => { const made = definition(name, tasks); made.document.version = version; return made; };
const register = (daemon, ...all) => Promise.all(all.map(one => daemon.post('/v1/definitions', one, [200, 201])));
const fresh = async name => { const daemon = new Daemon(name, { runtimes }); await daemon.start(); return daemon; };
const run = (daemon, tasks, input = null, more = {}) => daemon.post('/v1/runs?wait=30s&include=all', { definition: definition('parent', tasks, more), input }, [200, 201]);
const start = async (daemon, tasks, input = null, more = {}) => (await daemon.post('/v1/runs', { definition: definition('parent', tasks, more), input }, 201)).id;
const childrenOf = async (daemon, id) => (await daemon.run(id)).children;

await test('the output of the child is the task\'s; each shows the other; lists filter by parent', async () => {
	const daemon = await fresh('children');
	await register(daemon, definition('double', [{ two: { set: { n: '${ .n * 2 }' } } }]));
	const parent = await run(daemon, [{ first: child('double', { input: { n: '${ .n }' } }) }, { again: child('double', { version: '1.0.0', input: { n: '${ .n }' } }) }], { n: 5 });
	equal([parent.status, parent.output], ['completed', { n: 20 }], 'parent');
	equal(parent.children.map(one => [one.step, one.status, one.awaited, one.workflow.name]).sort(), [['/do/0/first@1', 'completed', true, 'double'], ['/do/1/again@1', 'completed', true, 'double']], 'children');
	const first = await daemon.run(parent.children.find(one => one.step.includes('first')).id);
	equal([first.parent, first.input, first.output], [{ run: parent.id, step: '/do/0/first@1' }, { n: 5 }, { n: 10 }], 'child');
	const listed = await daemon.get(`/v1/runs?parent=${parent.id}`);
	equal(listed.runs.map(one => one.parent.run), [parent.id, parent.id], 'list by parent');
	equal((await daemon.get(`/v1/runs/count?parent=${parent.id}`)).count, 2, 'count by parent');
	match(daemon.cli('list', '--parent', parent.id, '-o', 'ids').stdout, new RegExp(`${first.id}\n`), 'list --parent');
	match(daemon.cli('show', parent.id).stdout, new RegExp(`children +2 [^]*${first.id} +completed +/do/0/first@1`), 'show of the parent');
	match(daemon.cli('show', first.id).stdout, new RegExp(`parent +${parent.id}`), 'show of the child');
	equal(daemon.cli('replay', '--all').code, 0, 'replay');
	daemon.verifyJournal();
	await daemon.stop();
});

await test('without a version it is the highest one, and a run that was started before keeps its own', async () => {
	const daemon = await fresh('children');
	const one = version => versioned('one', version, [{ say: { set: { version: '${ $workflow.definition.document.version }' } } }]);
	await register(daemon, one('1.9.0'), one('1.10.0'), one('1.10.1-rc.1'));
	equal((await run(daemon, [{ a: child('one') }])).output, { version: '1.10.1-rc.1' }, 'the highest by semantic version');
	await register(daemon, one('2.0.0'));
	equal((await run(daemon, [{ a: child('one', { version: 'latest' }) }])).output, { version: '2.0.0' }, 'latest');
	equal((await run(daemon, [{ a: child('one', { version: '1.9.0' }) }])).output, { version: '1.9.0' }, 'a version by name');
	await daemon.stop();
});

await test('a fault of the child is the task\'s, type and all; a definition that is not there is an error of configuration', async () => {
	const daemon = await fresh('children');
	const error = { type: 'https://example.com/errors/mine', status: 418, title: 'Teapot', detail: 'short' };
	await register(daemon, definition('bad', [{ no: { raise: { error } } }]));
	const bad = await run(daemon, [{ a: child('bad') }]);
	equal([bad.status, bad.error], ['faulted', { detail: 'short', instance: '/do/0/a', status: 418, title: 'Teapot', type: error.type }], 'faulted');
	equal((await daemon.run(bad.children[0].id)).error.instance, '/do/0/no', 'of the child');
	const caught = await run(daemon, [{ t: { try: [{ a: child('bad') }], catch: { errors: { with: { type: error.type } }, do: [{ s: { set: { title: '${ $error.title }' } } }] } } }]);
	equal(caught.output, { title: 'Teapot' }, 'caught by its type');
	const retried = await run(daemon, [{ t: { try: [{ a: child('bad') }], catch: { retry: { delay: 'PT0.01S', limit: { attempt: { count: 2 } } }, do: [{ s: { set: { x: 1 } } }] } } }]);
	equal([retried.status, retried.children.length, new Set(retried.children.map(c => c.id)).size], ['completed', 3, 3], 'each retry is a child of its own');
	const none = await run(daemon, [{ a: child('nobody', { version: '1.0.0' }) }]);
	equal([none.error.type, none.error.status, none.children], ['https://serverlessworkflow.io/spec/1.0.0/errors/configuration', 400, []], 'no definition');
	match(none.error.detail, /no definition tests\/nobody:1\.0\.0 is registered/, 'which one');
	equal(daemon.cli('replay', '--all').code, 0, 'replay');
	await daemon.stop();
});

await test('await: false ends with the submission, and the child goes on alone', async () => {
	const daemon = await fresh('children');
	await register(daemon, definition('slow', [{ rest: { listen: { to: { one: { with: { type: 'go' } } } } } }, { say: { set: { done: true } } }]));
	const parent = await run(daemon, [{ a: child('slow', {}, { await: false }) }], { n: 3 });
	equal([parent.status, parent.output], ['completed', { n: 3 }], 'its own input comes out');
	equal(parent.children.map(one => one.awaited), [false], 'its child');
	await until('the child is under way', async () => (await childrenOf(daemon, parent.id))[0].status === 'waiting');
	equal(daemon.cli('send', '{"type": "go", "source": "test", "id": "1"}').code, 0, 'send');
	equal((await daemon.ended(parent.children[0].id)).output, { done: true }, 'the child');
	await daemon.stop();
});

await test('who cancels, kills or times out a parent ends the child that it waits for, whole trees at once; and no other', async () => {
	const daemon = await fresh('children');
	await register(daemon, definition('leaf', [{ rest: { wait: { hours: 1 } } }]),
		definition('branch', [{ both: { for: { in: '${ [1,2] }' }, metadata: { concurrency: 2 }, do: [{ leaf: child('leaf') }] } }]));
	const tree = async id => {
		const own = await daemon.get(`/v1/runs?parent=${id}&limit=100`);
		return [...own.runs, ...(await Promise.all(own.runs.map(one => tree(one.id)))).flat()];
	};
	const full = id => until('the tree is there', async () => { const all = await tree(id); return all.length === 6 && all; });
	const ended = id => until('the tree has ended', async () => { const all = await tree(id); return all.every(one => one.status === 'cancelled') && all; });
	const tasks = [{ both: { for: { in: '${ [1,2] }' }, metadata: { concurrency: 2 }, do: [{ branch: child('branch') }] } }];
	const cancelled = await start(daemon, tasks);
	const other = await start(daemon, [{ a: child('leaf', {}, { await: false }) }]);
	await full(cancelled);
	await daemon.post(`/v1/runs/${cancelled}/cancel`, {}, 200);
	for (const one of await ended(cancelled))
		match((await daemon.run(one.id)).reason, /does not wait for it any more/, 'reason');
	const killed = await start(daemon, tasks);
	await full(killed);
	await daemon.post(`/v1/runs/${killed}/kill`, {}, 200);
	for (const one of await ended(killed))
		equal((await daemon.run(one.id)).reason, 'killed', 'a kill is a kill');
	const late = await run(daemon, [{ a: { ...child('leaf'), timeout: { after: 'PT3S' } } }]); // time for its child to begin
	equal([late.status, late.error.status], ['faulted', 408], 'timed out');
	await until('its child has ended', async () => (await childrenOf(daemon, late.id))[0].status === 'cancelled');
	equal((await childrenOf(daemon, other)).map(one => one.status), ['waiting'], 'nobody waits for this one, and it goes on');
	const victim = await start(daemon, [{ a: child('leaf') }]);
	const [own] = await until('it has a child', async () => { const all = await childrenOf(daemon, victim); return all.length && all; });
	await daemon.post(`/v1/runs/${own.id}/cancel`, { reason: 'by hand' }, 200);
	const lost = await daemon.ended(victim);
	equal([lost.status, lost.error.status, lost.error.title], ['faulted', 500, 'Child run cancelled'], 'a child that is cancelled is an error');
	match(lost.error.detail, /by hand/, 'with its reason');
	equal(daemon.cli('replay', '--all').code, 0, 'replay');
	await daemon.stop();
});

await test('a workflow that runs itself ends at RUN_DEPTH_MAX', async () => {
	const daemon = await fresh('children');
	await register(daemon, definition('self', [{ again: child('self') }]));
	const top = await run(daemon, [{ a: child('self') }]);
	equal([top.status, top.error.type], ['faulted', 'https://serverlessworkflow.io/spec/1.0.0/errors/configuration'], 'top');
	match(top.error.detail, /RUN_DEPTH_MAX/, 'the limit has a name');
	equal((await daemon.get('/v1/runs/count')).count, 17, 'runs: the parent and sixteen inside one another');
	await daemon.stop();
});

await test('waiting for a child is queued time of the parent, over a restart too', async () => {
	const daemon = await fresh('children');
	await register(daemon, definition('slow', [{ rest: { wait: { milliseconds: 3000 } } }]));
	const id = await start(daemon, [{ a: child('slow') }]);
	await until('the child is there', async () => (await childrenOf(daemon, id)).length === 1);
	await pause(700);
	await daemon.kill();
	await daemon.start();
	const { overhead } = await daemon.ended(id);
	check(overhead.queuedMs > 2900 && overhead.activityMs === 0, () => JSON.stringify(overhead));
	check(overhead.overheadMs < overhead.wallMs / 4, () => JSON.stringify(overhead));
	await daemon.stop();
});

await test('killed at any moment, each step has exactly one child, and what it gives is what the child gave', async () => {
	const daemon = await fresh('children');
	await sim.script({ cadence: { firstByteMs: 20 } });
	await register(daemon, definition('work', [{ ask: { call: 'inference', with: { runtime: 'model', prompt: '${ "say \\(.n)" }' } } }, { n: { set: { n: '${ $workflow.input.n }' } } }]));
	const count = 12, ids = [];
	const tasks = [{ all: { for: { in: '${ [range(6)] }' }, metadata: { concurrency: 3 }, do: [{ one: child('work', { input: { n: '${ $item }' } }) }] } },
		{ let: child('work', { input: { n: 99 } }, { await: false }) }];
	for (let i = 0; i < 14; i++) {
		if (ids.length < count)
			ids.push(await start(daemon, tasks));
		await pause(draw() * 260);
		await daemon.kill();
		if (i % 4 === 2)
			await daemon.killWhileStarting(draw() * 200);
		await daemon.start();
	}
	for (const id of ids) {
		const parent = await daemon.ended(id);
		equal([parent.status, parent.tasks.find(task => task.name === 'all').output], ['completed', [0, 1, 2, 3, 4, 5].map(n => ({ n }))], `parent ${id}`);
		equal(parent.children.map(one => one.step).sort(), [...[0, 1, 2, 3, 4, 5].map(n => `/do/0/all/do/0/one#${n}@1`), '/do/1/let@1'], `children of ${id}`);
	}
	const open = async () => (await Promise.all(['running', 'waiting'].map(status => daemon.get(`/v1/runs/count?status=${status}`)))).reduce((sum, one) => sum + one.count, 0);
	await until('all have ended', async () => await open() === 0);
	equal((await daemon.get('/v1/runs/count')).count, ids.length * 8, 'runs in all');
	check(await daemon.metric('reprise_children_started_total') >= 0 && await daemon.metric("reprise_children_attached_total") >= 0 && await daemon.metric('reprise_children_waiting') === 0, 'metrics');
	equal(daemon.cli('replay', '--all').code, 0, 'replay');
	daemon.verifyJournal();
	await daemon.stop();
	await sim.script({});
});

await test('a parent that ends in the moment of the kill takes its child along at the next start', async () => {
	const daemon = await fresh('children');
	await register(daemon, definition('leaf', [{ rest: { wait: { hours: 1 } } }]));
	let orphans = 0;
	for (let i = 0; i < 12; i++) {
		const id = await start(daemon, [{ a: child('leaf') }]);
		await until('the child is there', async () => (await childrenOf(daemon, id)).length === 1);
		daemon.ask('POST', `/v1/runs/${id}/cancel`, {});
		await pause(draw() * 12);
		await daemon.kill();
		await daemon.start();
		const parent = await daemon.run(id);
		if (parent.status !== 'cancelled')
			await daemon.post(`/v1/runs/${id}/cancel`, {}, 200);
		else if (parent.children[0].status === 'waiting')
			orphans++;
		await until('the child is cancelled', async () => (await childrenOf(daemon, id))[0].status === 'cancelled');
	}
	console.log(`# ${orphans} of 12 were orphans when the daemon was back`);
	for (const status of ['running', 'waiting'])
		equal((await daemon.get(`/v1/runs/count?status=${status}`)).count, 0, 'nothing is left');
	await daemon.stop();
});

await test('a run document shows a thousand children and says how many more there are', async () => {
	const daemon = await fresh('children');
	await register(daemon, definition('leaf', [{ one: { set: { x: 1 } } }]));
	const parent = await run(daemon, [{ all: { for: { in: '${ [range(1003)] }' }, metadata: { concurrency: 50 }, do: [{ leaf: child('leaf', {}, { await: false }) }] } }]);
	equal([parent.status, parent.children.length, parent.childrenLeftOut], ['completed', 1000, 3], 'children');
	equal((await daemon.get(`/v1/runs/count?parent=${parent.id}`)).count, 1003, 'all of them');
	await daemon.stop();
});

await test('what belongs to somebody else is not taken for a child', async () => {
	const daemon = await fresh('children');
	await register(daemon, definition('leaf', [{ one: { set: { x: 1 } } }]));
	const seen = await run(daemon, [{ a: child('leaf') }]);
	match(seen.children[0].id, /^[0-9a-f]{32}$/, 'the id of a child');
	problem(await daemon.ask('POST', '/v1/runs', { definition: 'tests/leaf', id: seen.children[0].id, input: 'another' }), 409, /exists with other content/);
	await daemon.stop();
});

await sim.stop();
await finish();
