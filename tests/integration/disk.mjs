// The data folder's disk: how it becomes low and full, step by step, on a real small file system; that what is under way goes on with the
// reserve, that reading always does, and that everything continues by itself when there is room again. Also a limit on file sizes, and a
// write-ahead log that somebody else keeps from starting over.
import { spawn, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { smallDisk } from '../support/disk.mjs';
import { Daemon, atEnd, check, definition, documentOf, equal, extractionOf, finish, match, pause, problem, startSimulator, test, until } from '../support/harness.mjs';

const sim = await startSimulator();
const runtimes = { extractor: { kind: 'simulator', url: sim.url, model: 'reprise-sim', concurrency: 2, retry: { attempts: 3, floor: '10ms', cap: '50ms' } } };
const setOf = (id, n = 0) => ({ id, definition: definition('set', [{ one: { set: { n: '${ .n }' } } }]), input: { n } });
const SECTIONS = 16;
const extractionRun = id => ({ id, definition: extractionOf('extractor'), input: { document: documentOf(SECTIONS) } });
// Commits all the time, until it is cancelled: what is written fits into the log's file as it is for a while.
const tickingRun = id => ({ id, definition: definition('tick', [{ loop: { for: { each: 'n', in: '${ .ticks }' }, do: [{ tick: { wait: { milliseconds: 20 } } }] } }]), input: { ticks: Array(5000).fill(0) } });
const OK = 0, LOW = 1, FULL = 2;
const state = daemon => daemon.metric('reprise_journal_state');

// Each way in is closed with the same words.
async function checkClosed(daemon, id) {
	const closed = [
		['/v1/runs', setOf(id), {}],
		['/v1/events', { specversion: '1.0', id, source: 'tests', type: 'com.example.test' }, {}],
		['/v1/documents', `Ein Text ${id}.`, { headers: { 'Content-Type': 'text/plain' } }],
		['/v1/definitions', { ...definition(id, [{ one: { set: { n: 1 } } }]) }, {}],
	];
	for (const [path, body, options] of closed) {
		const answer = await daemon.ask('POST', path, body, options);
		problem(answer, 507, /disk full/);
		match(answer.json.detail, /limits\.(reserve|wal)/, `${path} names the limit`);
		check(answer.json.detail.includes(daemon.data), `${path} names the folder`);
		check(answer.headers['retry-after'] !== undefined, `${path} says when to come back`);
	}
}

async function checkNotReady(daemon) {
	const ready = await daemon.ask('GET', '/readyz');
	check([503, 507].includes(ready.status), `readyz says ${ready.status}`);
	match(ready.text, /disk full/, 'readyz says why');
	equal((await daemon.ask('GET', '/healthz')).status, 200, 'it is alive');
}

async function checkReads(daemon, id) {
	equal((await daemon.run(id)).status, 'completed', 'a run can be read');
	check((await daemon.get('/v1/runs?limit=3')).runs.length === 3, 'the list');
	check(Array.isArray((await daemon.get('/v1/facts')).facts), 'facts');
	daemon.verifyJournal();
}

await test('ok, low, full and back: new work is refused first, what is under way uses the reserve, then waits; with room again all of it completes', async () => {
	const daemon = new Daemon('disk', { runtimes, limits: { reserve: '1MiB', lowSpace: '512KiB' } });
	const { path, outside, wrap, fill, free } = await smallDisk(daemon.folder);
	daemon.data = join(path, 'data');
	daemon.wrap = wrap;
	await daemon.start();
	const { pid } = daemon, acknowledged = [], reserve = join(outside, 'data/reserve');
	check(statSync(reserve).blocks * 512 >= 1 << 20, 'the reserve is really allocated');
	equal([await state(daemon), (await daemon.ask('GET', '/readyz')).status], [OK, 200], 'at the start');
	// So slow that it is still under way when the disk is full, however long the checks before take.
	await sim.script({ cadence: { firstByteMs: 2000 } });
	for (let i = 0; i < 10; i++) {
		await daemon.post('/v1/runs', setOf(`before-${i}`, i), 201);
		acknowledged.push(`before-${i}`);
	}
	await daemon.post('/v1/runs', extractionRun('under-way'), 201);
	acknowledged.push('under-way');
	await daemon.post('/v1/runs', tickingRun('ticking'), 201);
	await daemon.post('/v1/runs/ticking/pause', {}, 200);

	// Low: the reserve is given back with the first commit that finds no room, or the look around sees that there is none.
	fill();
	await until('the disk is low', async () => await state(daemon) === LOW, 10_000, 20);
	const events = (await daemon.events('under-way')).length;
	await sim.script({ cadence: { firstByteMs: 8000 } });
	await checkNotReady(daemon);
	await checkClosed(daemon, 'while-low');
	await checkReads(daemon, 'before-3');
	await until('what is under way goes on', async () => (await daemon.events('under-way')).length > events, 10_000);
	await until('with the room of the reserve', () => !existsSync(reserve), 10_000);

	// Full: the room of the reserve is gone as well.
	await daemon.post('/v1/runs/ticking/resume', {}, 200);
	fill();
	await until('the disk is full', async () => {
		if (await state(daemon) === FULL)
			return true;
		fill();
		return false;
	}, 20_000, 50);
	await checkNotReady(daemon);
	await checkClosed(daemon, 'while-full');
	await checkReads(daemon, 'before-3');
	for (const id of ['under-way', 'ticking'])
		check(['running', 'waiting'].includes((await daemon.run(id)).status), `what cannot be written waits: ${id}`);
	equal(daemon.child?.pid, pid, 'the same process');

	free();
	await sim.script({ cadence: { firstByteMs: 50 } });
	await until('all is well again', async () => await state(daemon) === OK && (await daemon.ask('GET', '/readyz')).status === 200, 10_000, 50);
	check(statSync(reserve).blocks * 512 >= 1 << 20, 'there is a reserve again');
	await daemon.post('/v1/runs', setOf('after'), 201);
	acknowledged.push('after');
	await daemon.post('/v1/runs/ticking/cancel', {}, 200);
	equal((await daemon.ended('ticking')).status, 'cancelled', 'what ticks');
	for (const id of acknowledged)
		equal((await daemon.ended(id)).status, 'completed', id);
	equal((await daemon.run('under-way')).facts.length, SECTIONS * 2, 'each section of what was under way');
	for (const id of ['while-low', 'while-full'])
		equal((await daemon.ask('GET', `/v1/runs/${id}`)).status, 404, `${id} was refused and is not there`);
	equal(daemon.child?.pid, pid, 'the same process');
	for (const word of ['state=low', 'state=full', 'state=ok'])
		check(daemon.child.errors.includes(word) || JSON.stringify(daemon.child.errors).includes(word), `the log says ${word}`);
	daemon.verifyJournal();
	await daemon.kill();
	await daemon.start();
	for (const id of acknowledged)
		equal((await daemon.run(id)).status, 'completed', `${id} after a kill`);
	await daemon.stop();
});

await test('started on a full disk it serves what it has and takes new work as soon as there is room', async () => {
	const daemon = new Daemon('disk', { runtimes, limits: { reserve: '1MiB', lowSpace: '512KiB' } });
	const { path, wrap, fill, free } = await smallDisk(daemon.folder);
	daemon.data = join(path, 'data');
	daemon.wrap = wrap;
	await daemon.start();
	await daemon.post('/v1/runs', setOf('first'), 201);
	equal((await daemon.ended('first')).status, 'completed', 'first');
	fill();
	await daemon.kill();
	await daemon.start();
	equal((await daemon.run('first')).status, 'completed', 'reading');
	check(await state(daemon) >= LOW, 'it knows');
	await checkClosed(daemon, 'refused');
	free();
	await until('new work is taken', async () => (await daemon.ask('POST', '/v1/runs', setOf('second'))).status === 201, 10_000, 100);
	equal((await daemon.ended('second')).status, 'completed', 'second');
	await daemon.stop();
});

await test('a limit on file sizes counts as a full disk: nothing is lost, and it goes on when the limit is lifted', async () => {
	const daemon = new Daemon('disk', { runtimes, limits: { reserve: '64KiB', lowSpace: '64KiB' } });
	daemon.wrap = ['sh', '-c', 'ulimit -S -f 2048 && exec "$@"', 'sh']; // 1 MiB in dash's blocks of 512 bytes
	await daemon.start();
	const acknowledged = [];
	let refused = null;
	for (let i = 0; i < 400 && refused === null; i++) {
		const request = { ...setOf(`file-${i}`, i), input: { n: i, filler: randomBytes(6000).toString('base64') } };
		const answer = await daemon.ask('POST', '/v1/runs', request);
		if (answer.status === 201)
			acknowledged.push(request.id);
		else
			refused = answer;
	}
	if (refused?.broken)
		console.log(daemon.child?.errors ?? daemon.errors);
	check(refused !== null && acknowledged.length > 10, `the limit was never reached (${acknowledged.length} runs)`);
	problem(refused, 507, /disk full/);
	const { pid } = daemon;
	equal((await daemon.run(acknowledged[0])).id, acknowledged[0], 'reading');
	equal(spawnSync('prlimit', ['--pid', String(pid), '--fsize=unlimited:unlimited']).status, 0, 'lifting the limit');
	await until('new work is taken', async () => (await daemon.ask('POST', '/v1/runs', setOf('lifted'))).status === 201, 10_000, 100);
	for (const id of [...acknowledged, 'lifted'])
		equal((await daemon.ended(id)).status, 'completed', id);
	equal(daemon.child?.pid, pid, 'the same process');
	daemon.verifyJournal();
	await daemon.stop();
});

await test('a reader that never ends cannot make the write-ahead log grow without end (limits.wal): new work stops, then all writing; when it ends, all goes on', async () => {
	const limit = 32 << 20, daemon = new Daemon('disk', { runtimes, limits: { wal: '32MiB', reserve: '1MiB' } });
	await daemon.start();
	const walBytes = () => statSync(join(daemon.data, 'journal.db-wal')).size;
	// What is under way writes twice the limit by itself: each run waits, and then makes values of 1 MB that nobody had before.
	const tasks = [{ rest: { wait: { seconds: 3 } } }, ...Array.from({ length: 6 }, (_, i) => ({ [`t${i}`]: { set: { i, text: '${ .text }' }, then: 'continue' } }))];
	const acknowledged = [];
	const reader = spawn('sqlite3', [join(daemon.data, 'journal.db')], { stdio: ['pipe', 'pipe', 'inherit'] });
	atEnd(() => reader.kill('SIGKILL'));
	reader.stdin.write('.timeout 10000\nBEGIN; SELECT count(*) FROM journal;\n');
	await new Promise(done => reader.stdout.once('data', done));
	let refused = null;
	for (let i = 0; i < 400 && refused === null; i++) {
		const request = { id: `wal-${i}`, definition: definition('wal', tasks), input: { text: randomBytes(900_000).toString('base64') } };
		const answer = await daemon.ask('POST', '/v1/runs', request);
		if (answer.status === 201)
			acknowledged.push(request.id);
		else
			refused = answer;
	}
	check(refused !== null, 'the limit was never reached');
	problem(refused, 507, /write-ahead log.*limits\.wal.*end it/);
	check(walBytes() >= limit, 'the log is over the limit');
	check(acknowledged.length > 10, `${acknowledged.length} runs are under way`);
	await until('nothing is written any more', async () => await state(daemon) === FULL, 60_000, 50);
	await pause(1500);
	const stopped = walBytes();
	await pause(1500);
	equal(walBytes(), stopped, 'the log grows no more');
	check((await daemon.get('/v1/journal/stats')).disk.walHeldMs > 1000, 'who holds it shows');
	check(stopped < 2 * limit + (24 << 20), `the log has ${stopped} bytes: twice the limit and one batch`);
	equal((await daemon.run(acknowledged[0])).id, acknowledged[0], 'reading');
	reader.stdin.end();
	await until('all is well again', async () => await state(daemon) === OK, 30_000, 50);
	for (const id of acknowledged)
		equal((await daemon.ended(id, 120_000)).status, 'completed', id);
	await until('the log is short again', () => walBytes() < limit, 10_000);
	await until('nobody holds it any more', async () => (await daemon.get('/v1/journal/stats')).disk.walHeldMs < 1000, 10_000); // of the last copy: a commit may have come in its middle
	console.log(`# ${acknowledged.length} runs, at most ${Math.round(stopped / (1 << 20))} MiB of log, ${Math.round(walBytes() / (1 << 20))} MiB at the end`);
	daemon.verifyJournal();
	await daemon.stop();
});

await sim.stop();
await finish();
