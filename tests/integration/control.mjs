// What an operator does to runs under way, on the real daemon: waiting, pause, resume, also killed in the middle of it.
import { Daemon, check, definition, equal, finish, match, pause, random, seedOf, startSimulator, test, until } from '../support/harness.mjs';

const sim = await startSimulator();
const runtimes = { model: { kind: 'simulator', url: sim.url, model: 'reprise-sim', concurrency: 16 } };
const ask = { call: 'inference', with: { runtime: 'model', prompt: 'say it' } };
const draw = random(seedOf(7));
const fresh = async () => {
	const daemon = new Daemon('control', { runtimes });
	await daemon.start();
	return daemon;
};
const start = async (daemon, id, tasks, input = {}) => daemon.post('/v1/runs', { id, definition: definition(id, tasks), input }, 201);
const count = async (daemon, status) => (await daemon.get(`/v1/runs/count?status=${status}`)).count;
const kinds = async (daemon, id) => (await daemon.events(id)).map(entry => entry.kind);
const rest = [{ rest: { wait: { hours: 1 } } }];

await test('a run that only waits is listed and counted as waiting, and as running while something is in flight', async () => {
	const daemon = await fresh();
	await sim.script({ cadence: { firstByteMs: 700 } });
	await start(daemon, 'both', [{ f: { fork: { branches: [{ w: { wait: { hours: 1 } } }, { a: ask }] } } }]);
	await start(daemon, 'rests', rest);
	equal([await count(daemon, 'running'), await count(daemon, 'waiting')], [1, 1], 'while it asks');
	await until('the answer', async () => await count(daemon, 'waiting') === 2);
	equal((await daemon.get('/v1/runs?status=waiting')).runs.map(run => run.id), ['rests', 'both'], 'list');
	equal((await daemon.get('/v1/runs/both')).status, 'waiting', 'document');
	await daemon.kill();
	await daemon.start();
	equal([await count(daemon, 'running'), await count(daemon, 'waiting')], [0, 2], 'after kill -9');
	equal(daemon.cli('list', '--status', 'waiting', '-o', 'ids').stdout, 'rests\nboth\n', 'command line');
	equal(daemon.cli('replay', '--all').code, 0, 'replay');
	daemon.verifyJournal();
	await daemon.stop();
});

await test('a paused run begins nothing, records what was in flight, and goes on when it is resumed; twice is once', async () => {
	const daemon = await fresh();
	await sim.script({ cadence: { firstByteMs: 600 } });
	await start(daemon, 'two', [{ a: ask }, { b: ask }]);
	equal(daemon.cli('pause', 'two', '--reason', 'moving it').stdout, 'two  suspended\n', 'pause');
	equal((await daemon.get('/v1/runs/two')).reason, 'moving it', 'why');
	await until('what was in flight', async () => (await kinds(daemon, 'two')).includes('attempt.succeeded'));
	equal((await daemon.post('/v1/runs/two/pause', {}, 200)).status, 'suspended', 'again');
	await daemon.kill();
	await daemon.start();
	await pause(300);
	equal(await kinds(daemon, 'two'), ['run.created', 'task.started', 'attempt.started', 'run.suspended', 'attempt.succeeded', 'task.completed'], 'entries');
	equal(daemon.cli('list', '--status', 'suspended', '-o', 'ids').stdout, 'two\n', 'list');
	equal(daemon.cli('resume', 'two').stdout, 'two  running\n', 'resume');
	equal((await daemon.post('/v1/runs/two/resume', {}, 200)).status !== 'suspended', true, 'again');
	const run = await daemon.ended('two');
	equal([run.status, run.tasks.length, (await kinds(daemon, 'two')).filter(kind => /run.(suspended|resumed)/.test(kind)).length], ['completed', 2, 2], 'in the end');
	check(run.overhead.queuedMs > 250, () => `suspended time is not queued time: ${JSON.stringify(run.overhead)}`);
	const types = (await daemon.get('/v1/events?limit=1000')).events.map(event => event.type).filter(type => /suspended|resumed/.test(type));
	equal(types, ['workflow.suspended', 'task.suspended', 'workflow.resumed'].map(type => `io.serverlessworkflow.${type}.v1`), 'lifecycle events');
	equal(daemon.cli('replay', '--all').code, 0, 'replay');
	await daemon.stop();
});

await test('what has ended cannot be paused or resumed, what never was is not found, and each id has its own outcome', async () => {
	const daemon = await fresh();
	await start(daemon, 'over', [{ a: { set: { x: 1 } } }]);
	await start(daemon, 'open', rest);
	await daemon.ended('over');
	for (const verb of ['pause', 'resume'])
		match((await daemon.post(`/v1/runs/over/${verb}`, {}, 409)).detail, /run over has ended \(completed\): only a run that has not can be (paused|resumed)/, verb);
	await daemon.post('/v1/runs/nobody/pause', {}, 404);
	const result = daemon.cli('pause', 'nobody', 'open', 'over', '-o', 'json');
	equal(result.code, 5, 'the worst outcome');
	equal(daemon.cli('pause', 'over', 'nobody', 'open').code, 5, 'in whatever order');
	match(result.stdout, /no run nobody[^]*"status": *"suspended"[^]*run over has ended/, 'one result for each');
	equal(daemon.cli('cancel', '-', '-y', { input: 'open\n' }).stdout, 'open  cancelled\n', 'what is suspended can be cancelled');
	await daemon.stop();
});

await test('timers that come due and events wait while a run is suspended', async () => {
	const daemon = await fresh();
	await start(daemon, 'timer', [{ w: { wait: { milliseconds: 400 } } }]);
	await start(daemon, 'event', [{ l: { listen: { to: { one: { with: { type: 'it' } } } } } }]);
	equal(daemon.cli('pause', 'timer', 'event').code, 0, 'pause');
	equal(daemon.cli('send', '{"type": "it", "source": "test", "id": "1"}').code, 0, 'send');
	await pause(700);
	await daemon.kill();
	await daemon.start();
	await pause(300);
	equal([await count(daemon, 'suspended'), await count(daemon, 'completed')], [2, 0], 'suspended');
	equal(daemon.cli('resume', 'timer', 'event').code, 0, 'resume');
	equal([(await daemon.ended('timer')).status, (await daemon.ended('event')).output.length], ['completed', 1], 'both');
	equal(daemon.cli('replay', '--all').code, 0, 'replay');
	await daemon.stop();
});

await test('pause and resume take the whole tree of runs that wait for one another', async () => {
	const daemon = await fresh();
	const child = name => ({ run: { workflow: { namespace: 'tests', name, version: '1.0.0' } } });
	await daemon.post('/v1/definitions', definition('leaf', rest), 201);
	await daemon.post('/v1/definitions', definition('branch', [{ both: { for: { in: '${ [1,2,3] }' }, metadata: { concurrency: 3 }, do: [{ leaf: child('leaf') }] } }]), 201);
	await start(daemon, 'root', [{ both: { for: { in: '${ [1,2,3] }' }, metadata: { concurrency: 3 }, do: [{ branch: child('branch') }] } }]);
	await until('the tree', async () => await count(daemon, 'waiting') === 13);
	await daemon.post('/v1/runs/root/pause', { reason: 'all' }, 200);
	equal([await count(daemon, 'suspended'), await count(daemon, 'waiting')], [13, 0], 'all are suspended when it answers');
	await daemon.kill();
	await daemon.start();
	await pause(400);
	equal(await count(daemon, 'suspended'), 13, 'no child is taken for an orphan');
	await daemon.post('/v1/runs/root/resume', {}, 200);
	await until('all wait again', async () => await count(daemon, 'waiting') === 13);
	await daemon.post('/v1/runs/root/cancel', {}, 200);
	await until('all are cancelled', async () => await count(daemon, 'cancelled') === 13);
	equal(daemon.cli('replay', '--all').code, 0, 'replay');
	await daemon.stop();
});

await test('killed in the middle of each verb: what was answered holds, and everything ends', async () => {
	const daemon = await fresh();
	await sim.script({ cadence: { firstByteMs: 30 } });
	const ids = [];
	for (let round = 0; round < 8; round++) {
		for (let i = 0; i < 4; i++) {
			ids.push(`r${round}-${i}`);
			await start(daemon, ids.at(-1), [{ a: ask }, { w: { wait: { milliseconds: 20 } } }, { b: ask }, { c: ask }]);
		}
		const verb = ['pause', 'resume', 'cancel', 'pause'][round % 4], answered = [];
		await pause(draw() * 60);
		const asked = ids.slice(-4).map(id => daemon.ask('POST', `/v1/runs/${id}/${verb}`, {}).then(answer => answer.status === 200 && answered.push(id), () => {}));
		await pause(draw() * 15);
		await daemon.kill();
		await Promise.all(asked);
		await daemon.start();
		for (const id of answered) {
			const { status } = await daemon.get(`/v1/runs/${id}`);
			if (verb === 'pause')
				check(['suspended', 'completed'].includes(status), () => `${id} was paused and is ${status}`);
			if (verb === 'cancel')
				check(['cancelled', 'completed'].includes(status), () => `${id} was cancelled and is ${status}`);
		}
	}
	await until('all have ended', async () => {
		daemon.cli('resume', '-', { input: daemon.cli('list', '--status', 'suspended', '-o', 'ids').stdout });
		return await count(daemon, 'completed') + await count(daemon, 'cancelled') === ids.length;
	}, 60_000, 300);
	check(await count(daemon, 'completed') >= 8, 'too few came through');
	equal(daemon.cli('replay', '--all').code, 0, 'replay');
	daemon.verifyJournal();
	await daemon.stop();
});

await sim.stop();
await finish();
