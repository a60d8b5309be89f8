// What an operator does to runs under way, on the real daemon: waiting, pause, resume, also killed in the middle of it.
import { spawnSync } from 'node:child_process';
import { unlinkSync } from 'node:fs';
import { join } from 'node:path';
import { Daemon, check, definition, equal, exitOf, finish, match, pause, programs, random, seedOf, sqlite, startSimulator, test, until } from '../support/harness.mjs';

const sim = await startSimulator();
const runtimes = { model: { kind: 'simulator', url: sim.url, model: 'reprise-sim', concurrency: 16 } };
const ask = { call: 'inference', with: { runtime: 'model', prompt: 'say it' } };
const draw = random(seedOf(7)), HELD_MS = 3_600_000;
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
	await sim.hold();
	await start(daemon, 'both', [{ f: { fork: { branches: [{ w: { wait: { hours: 1 } } }, { a: ask }] } } }]);
	await start(daemon, 'rests', rest);
	equal([await count(daemon, 'running'), await count(daemon, 'waiting')], [1, 1], 'while it asks');
	await until('it was asked', async () => (await sim.state()).inFlight === 1);
	await sim.release();
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
	await sim.hold();
	await start(daemon, 'two', [{ a: ask }, { b: ask }]);
	equal(daemon.cli('pause', 'two', '--reason', 'moving it').stdout, 'two  suspended\n', 'pause');
	equal((await daemon.get('/v1/runs/two')).reason, 'moving it', 'why');
	await until('it was asked', async () => (await sim.state()).inFlight === 1);
	await sim.release({ cadence: { firstByteMs: HELD_MS } }); // the next one is held, too
	await until('what was in flight', async () => (await kinds(daemon, 'two')).includes('attempt.succeeded'));
	equal((await daemon.post('/v1/runs/two/pause', {}, 200)).status, 'suspended', 'again');
	await daemon.kill();
	await daemon.start();
	await pause(300);
	equal(await kinds(daemon, 'two'), ['run.created', 'task.started', 'attempt.started', 'run.suspended', 'attempt.succeeded', 'task.completed'], 'entries');
	equal(daemon.cli('list', '--status', 'suspended', '-o', 'ids').stdout, 'two\n', 'list');
	equal(daemon.cli('resume', 'two').stdout, 'two  running\n', 'resume');
	equal((await daemon.post('/v1/runs/two/resume', {}, 200)).status !== 'suspended', true, 'again');
	await until('it asks again', async () => (await sim.state()).inFlight === 1);
	await sim.release();
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

await test('a reason has a limit, stays on its line, and what it holds is shown escaped', async () => {
	const daemon = await fresh();
	await start(daemon, 'told', rest);
	for (const verb of ['pause', 'resume', 'cancel', 'kill', 'retry'])
		match((await daemon.post(`/v1/runs/told/${verb}`, { reason: 'x'.repeat(1001) }, 400)).detail, /1001 bytes are over the limit of 1000 \(REASON_MAX\)/, verb);
	equal((await daemon.get('/v1/runs/told')).status, 'waiting', 'nothing was done');
	await daemon.post('/v1/runs/told/pause', { reason: 'x'.repeat(1000) }, 200);
	await daemon.post('/v1/runs/told/resume', {}, 200);
	equal(daemon.cli('pause', 'told', '--reason', 'as asked\nstatus    completed\u001b[31m').code, 0, 'pause');
	check(!/^overhead /m.test(daemon.cli('show', 'told').stdout), 'what a run cost is told when it has ended');
	match(daemon.cli('show', 'told').stdout, /^reason    as asked\\u\{A\}status    completed\\u\{1B\}\[31m$/m, 'show');
	match(daemon.cli('list', '--status', 'suspended').stdout, /as asked status completed\\u\{1B\}\[31m$/m, 'list');
	for (const verb of ['pause', 'resume', 'retry', 'cancel', 'kill', 'purge'])
		equal(daemon.cli(verb, '', ...(/cancel|kill|purge/.test(verb) ? ['--yes'] : []), ...(verb === 'purge' ? ['--reason', 'x'] : [])).code, 2, `${verb} of an empty id is not nothing`);
	equal(daemon.cli('cancel', '-', '--yes', { input: '\n' }).code, 0, 'an empty list is');
	equal([daemon.cli('drain', '--within', 'abc').code, daemon.cli('document', 'erase', 'abc', '--reason', 'x', '--yes').code], [2, 2], 'what is no duration, no digest');
	equal(daemon.cli('cancel', 'told', '--yes').code, 0, 'cancel');
	equal(daemon.cli('purge', 'told', '--yes', '--reason', 'gone\nreprise: all is well').code, 0, 'purge');
	match(daemon.cli('show', 'told').stderr, /because: gone\\u\{A\}reprise: all is well\n$/, 'an error is one line');
	await daemon.stop();
});

await test('timers that come due and events wait while a run is suspended', async () => {
	const daemon = await fresh();
	await start(daemon, 'event', [{ l: { listen: { to: { one: { with: { type: 'it' } } } } } }]);
	const waits = 3000, began = Date.now();
	await start(daemon, 'timer', [{ w: { wait: { milliseconds: waits } } }]); // it is to be paused before that, on a busy machine too: at once
	await daemon.post('/v1/runs/timer/pause', {}, 200);
	const due = Date.now() + waits; // at the latest
	check(Date.now() - began < waits, 'it was not paused in time');
	equal(daemon.cli('pause', 'timer', 'event').code, 0, 'pause');
	equal(daemon.cli('send', '{"type": "it", "source": "test", "id": "1"}').code, 0, 'send');
	await until('the timer is due', () => Date.now() > due);
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
	equal((await daemon.post('/v1/runs/root/pause', { reason: 'all' }, 200)).tree, { atomic: true, runs: 13 }, 'as one');
	equal([await count(daemon, 'suspended'), await count(daemon, 'waiting')], [13, 0], 'all are suspended when it answers');
	await daemon.kill();
	await daemon.start();
	await pause(400);
	equal(await count(daemon, 'suspended'), 13, 'no child is taken for an orphan');
	const before = (await daemon.get('/v1/journal/stats')).entries;
	equal((await daemon.post('/v1/runs/root/pause', {}, 200)).tree, { atomic: true, runs: 13 }, 'again');
	equal((await daemon.get('/v1/journal/stats')).entries, before, 'nothing is written for it');
	equal((await daemon.post('/v1/runs/root/resume', {}, 200)).tree, { atomic: true, runs: 13 }, 'resumed as one');
	await until('all wait again', async () => await count(daemon, 'waiting') === 13);
	equal((await daemon.post('/v1/runs/root/cancel', {}, 200)).tree, { atomic: true, runs: 13 }, 'cancelled as one');
	equal(await count(daemon, 'cancelled'), 13, 'all are cancelled when it answers');
	equal((await daemon.post('/v1/runs/root/cancel', {}, 200)).status, 'cancelled', 'twice is once');
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

await test('killed in the middle of cancel, kill, pause and resume of a tree of 200 runs, all of them are as before or as asked', async () => {
	const daemon = await fresh();
	const branches = 13, leaves = 15, size = 1 + branches + branches * leaves;
	await sim.script({ cadence: { firstByteMs: 60_000 } });
	const each = (name, n) => [{ all: { for: { in: `\${ [range(${n})] }` }, metadata: { concurrency: n }, do: [{ one: { run: { workflow: { namespace: 'tests', name, version: '1.0.0', input: { n: '${ $index }' } } } } }] } }];
	await daemon.post('/v1/definitions', definition('leaf', [{ some: { if: '${ .n == 3 }', ...ask } }, ...rest]), 201);
	await daemon.post('/v1/definitions', definition('branch', each('leaf', leaves)), 201);
	await daemon.post('/v1/definitions', definition('tree', each('branch', branches)), 201);
	const of = async (...statuses) => (await Promise.all(statuses.map(status => count(daemon, status)))).reduce((sum, n) => sum + n, 0);
	let id = null, gone = 0, took = 100;
	const outcomes = { before: 0, after: 0 };
	// A few more rounds where most kills came too early, or too late, as it goes on another machine.
	for (let round = 0; round < 12 || ((outcomes.before < 2 || outcomes.after < 2) && round < 48); round++) {
		const verb = ['pause', 'resume', 'cancel', 'kill'][round % 4], ended = verb === 'cancel' || verb === 'kill';
		if (id === null) {
			id = `tree-${round}`;
			await daemon.post('/v1/runs', { id, definition: 'tests/tree', input: {} }, 201);
			await until('the tree', async () => await of('running', 'waiting') === size, 60_000);
		}
		const asked = performance.now(), answer = daemon.ask('POST', `/v1/runs/${id}/${verb}`, {}).catch(() => null);
		await Promise.race([answer, pause(draw() * took * 1.3)]);
		await daemon.kill();
		const answered = await answer;
		await daemon.start();
		const done = ended ? await count(daemon, 'cancelled') - gone : verb === 'pause' ? await count(daemon, 'suspended') : await of('running', 'waiting');
		check(done === 0 || done === size, () => `${verb}: ${done} of ${size}`);
		check(done === size || answered?.status !== 200, () => `${verb} was answered and is not done`);
		outcomes[done === size ? 'after' : 'before']++;
		const again = performance.now();
		equal((await daemon.post(`/v1/runs/${id}/${verb}`, {}, 200)).id, id, 'once more');
		took = done === 0 ? performance.now() - again : took;
		equal(ended ? await count(daemon, 'cancelled') - gone : verb === 'pause' ? await count(daemon, 'suspended') : await of('running', 'waiting'), size, `${verb}, whole`);
		if (ended) {
			gone += size;
			id = null;
		}
	}
	console.log(`# ${outcomes.before} as before, ${outcomes.after} as asked; one took ${Math.round(took)} ms`);
	check(outcomes.before >= 2 && outcomes.after >= 2, 'the kills did not meet both');
	equal(daemon.cli('replay', '--all').code, 0, 'replay');
	daemon.verifyJournal();
	await daemon.stop();
});

await test('a drain takes nothing new, lets what is under way finish, and stops the daemon; runs go on after the next start', async () => {
	const daemon = await fresh();
	await sim.hold();
	await start(daemon, 'asks', [{ a: ask }, { b: { set: { x: 1 } } }, { c: ask }]);
	await start(daemon, 'rests', rest);
	const parent = definition('parent', [{ a: { run: { workflow: { namespace: 'tests', name: 'leaf', version: '1.0.0' } } } }]);
	await daemon.post('/v1/definitions', definition('leaf', rest), 201);
	await daemon.post('/v1/runs', { id: 'parent', definition: parent, input: {} }, 201);
	await until('its child', async () => await count(daemon, 'waiting') === 3);
	await start(daemon, 'unwanted', rest);
	await daemon.kill();
	await daemon.start(); // runs that only wait are not read
	await until('it asks again', async () => (await kinds(daemon, 'asks')).filter(kind => kind === 'attempt.started').length === 2);
	const drained = daemon.child;
	match(daemon.cli('drain', '--within', '1m').stdout, /^draining: 1 activity is under way; the daemon stops when it has finished, or at 20/, 'drain');
	const refused = await daemon.ask('POST', '/v1/runs', { id: 'late', definition: definition('late', rest), input: {} });
	equal([refused.status, refused.headers['retry-after']], [503, '5'], 'a submission');
	match(refused.json.detail, /draining/, 'with the word why');
	equal((await daemon.ask('POST', '/v1/events', { specversion: '1.0', type: 'a', source: 'b', id: 'c' })).status, 503, 'an event');
	const ready = await daemon.ask('GET', '/readyz');
	equal(ready.status, 503, 'readiness');
	equal((await daemon.get('/v1/runs/rests')).status, 'waiting', 'who looks is served');
	equal((await daemon.post('/v1/runs/unwanted/cancel', {}, 200)).status, 'cancelled', 'and who cancels');
	check(drained.exitCode === null, 'before it stops');
	await daemon.post('/v1/drain', { within: 'soon' }, 400);
	await daemon.post('/v1/drain', { within: '25h' }, 400);
	await sim.release({ cadence: { firstByteMs: HELD_MS } }); // the one that is under way; what comes afterwards is held again
	equal(await exitOf(drained), { code: 0, signal: null }, `it stops: ${drained.errors}`);
	match(drained.errors, /drained/, 'and says so');
	await daemon.start();
	equal((await kinds(daemon, 'asks')).slice(4, 8), ['attempt.started', 'attempt.succeeded', 'task.completed', 'task.completed'], 'the outcome was recorded');
	await until('it asks once more', async () => (await sim.state()).inFlight === 1);
	await sim.release();
	equal((await daemon.ended('asks')).status, 'completed', 'it goes on');
	await sim.hold();
	await start(daemon, 'slow', [{ a: ask }]);
	await until('it was asked', async () => (await sim.state()).inFlight === 1);
	const began = performance.now(), hurried = daemon.child;
	await daemon.post('/v1/drain', { within: '200ms' }, 202);
	equal(await exitOf(hurried), { code: 0, signal: null }, 'it stops');
	check(performance.now() - began < HELD_MS / 10, 'the time was not kept');
	await daemon.start('--drain', '10m');
	await until('it asks again', async () => (await kinds(daemon, 'slow')).filter(kind => kind === 'attempt.started').length >= 2);
	const last = daemon.child;
	last.kill('SIGTERM');
	await until('it drains', async () => (await daemon.ask('GET', '/readyz')).status === 503);
	await sim.release();
	equal(await exitOf(last), { code: 0, signal: null }, `it stops: ${last.errors}`);
	match(last.errors, /drained/, 'SIGTERM drains with --drain');
	await daemon.start();
	equal((await daemon.ended('slow')).status, 'completed', 'and loses nothing');
	daemon.verifyJournal();
	await daemon.stop();
});

await test('a run that cannot be loaded is tried, then put into quarantine with its reason; others go on, and a resume tries it again', async () => {
	const daemon = await fresh();
	await start(daemon, 'poor', [{ rest: { listen: { to: { one: { with: { type: 'hours' } } } } } }]); // not one that is left alone until its time
	await start(daemon, 'good', [{ w: { wait: { milliseconds: 100 } } }]);
	await daemon.kill();
	const sql = text => sqlite(join(daemon.data, 'journal.db'), text);
	const definitionOf = `id IN (SELECT id FROM content WHERE CAST(bytes AS TEXT) LIKE '{"do":[{"rest"%')`;
	equal(sql(`SELECT count(*) FROM content WHERE ${definitionOf}`), '1', 'its definition');
	sql(`UPDATE content SET bytes = CAST(replace(CAST(bytes AS TEXT), 'hours', 'years') AS BLOB) WHERE ${definitionOf}`);
	await daemon.start();
	equal((await daemon.ended('good')).status, 'completed', 'the other one');
	const poor = await until('quarantine', async () => { const [run] = (await daemon.get('/v1/runs?status=suspended')).runs; return run; });
	equal([poor.id, poor.quarantined], ['poor', true], 'listed');
	match(poor.reason, /run poor cannot go on/, 'with the reason');
	equal(await daemon.metric('reprise_runs_quarantined'), 1, 'alarm');
	match(daemon.cli('list', '--status', 'suspended').stdout, /poor .*suspended .*run poor cannot go on/, 'command line');
	await daemon.kill();
	await daemon.start();
	equal([await daemon.metric('reprise_runs_quarantined'), await count(daemon, 'suspended')], [1, 1], 'after a restart');
	equal((await kinds(daemon, 'poor')).filter(kind => kind === 'run.suspended').length, 1, 'once');
	check((await daemon.ask('POST', '/v1/runs/poor/resume', {})).status >= 500, 'still damaged');
	await daemon.post('/v1/runs/poor/pause', {}, 409);
	equal(await daemon.metric('reprise_runs_quarantined'), 1, 'back in quarantine');
	await daemon.kill();
	sql(`UPDATE content SET bytes = CAST(replace(CAST(bytes AS TEXT), 'years', 'hours') AS BLOB) WHERE ${definitionOf}`);
	await daemon.start();
	equal((await daemon.post('/v1/runs/poor/resume', {}, 200)).status, 'waiting', 'repaired and resumed');
	equal(await daemon.metric('reprise_runs_quarantined'), 0, 'no alarm');
	await daemon.kill();
	await daemon.start();
	equal((await daemon.get('/v1/runs/poor')).status, 'waiting', 'it stays so');
	equal(daemon.cli('replay', '--all').code, 0, 'replay');
	await daemon.kill();
	sql(`UPDATE content SET bytes = CAST(replace(CAST(bytes AS TEXT), 'hours', 'years') AS BLOB) WHERE ${definitionOf}`);
	await daemon.start();
	await until('quarantine', async () => await count(daemon, 'suspended') === 1);
	await daemon.post('/v1/runs/poor/cancel', {}, 200);
	equal([(await daemon.get('/v1/runs/poor')).status, await daemon.metric('reprise_runs_quarantined')], ['cancelled', 0], 'or it is ended by hand');
	await daemon.kill();
	sql(`UPDATE content SET bytes = CAST(replace(CAST(bytes AS TEXT), 'years', 'hours') AS BLOB) WHERE ${definitionOf}`);
	await daemon.start();
	equal(daemon.cli('replay', '--all').code, 0, 'which replays');
	await daemon.stop();
});

await test('a daemon whose lock was taken away stops instead of writing, and the next one serves', async () => {
	const daemon = await fresh(), first = daemon.child;
	await start(daemon, 'mine', rest);
	unlinkSync(join(daemon.data, 'lock'));
	daemon.child = null;
	daemon.socket += '2';
	await daemon.start();
	await start(daemon, 'yours', rest);
	const ask = spawnSync(programs.cli, ['--socket', daemon.socket.slice(0, -1), 'cancel', '-y', 'mine'], { encoding: 'utf8' });
	check(ask.status !== 0, 'the first one still answers');
	equal(await exitOf(first), { code: 1, signal: null }, 'it stops');
	match(first.errors, /lock was moved, deleted or replaced|owns it now/, 'and says why');
	equal((await daemon.get('/v1/runs/mine')).status, 'waiting', 'the other one serves');
	daemon.verifyJournal();
	await daemon.stop();
});

await sim.stop();
await finish();
