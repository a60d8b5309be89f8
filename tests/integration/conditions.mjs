// Rough conditions: clients that go away, a second daemon, SIGTERM under load, SIGKILL while streams are open, a full disk, a lock, many runs.
// Nothing acknowledged is lost, nothing stays behind, and the daemon goes on by itself as soon as it can.
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { join } from 'node:path';
import { smallDisk } from '../support/disk.mjs';
import { Daemon, check, definition, documentOf, equal, exitOf, extractionOf, finish, firstLine, launch, match, memoryOf, pause, problem, programs, random, seedOf, startSimulator, test, until } from '../support/harness.mjs';

const draw = random(seedOf(5));
const sim = await startSimulator();
const runtimes = { extractor: { kind: 'simulator', url: sim.url, model: 'reprise-sim', concurrency: 4, retry: { attempts: 3, floor: '10ms', cap: '50ms' } } };
const setOf = (id, n = 0) => ({ id, definition: definition('set', [{ one: { set: { n: '${ .n }' } } }]), input: { n } });
const extractionRun = (id, document) => ({ id, definition: extractionOf('extractor'), input: { document } });

// ---- Clients that go away ----

const CLIENTS = 1000;

await test(`${CLIENTS} clients that wait go away: they are counted, noticed and let go of, and the run is not disturbed`, async () => {
	const daemon = new Daemon('conditions', { runtimes, limits: { waiters: CLIENTS + 10, connections: 2 * CLIENTS, wakeEvery: '200ms' } });
	await daemon.start();
	await sim.script({ cadence: { firstByteMs: 6000 } });
	await daemon.post('/v1/runs', extractionRun('slow', documentOf(1)), 201);
	const sockets = await Promise.all(Array.from({ length: CLIENTS }, () => new Promise((done, fail) => {
		const socket = net.connect(daemon.socket, () => { socket.write('GET /v1/runs/slow?wait=60s HTTP/1.1\r\nHost: x\r\n\r\n'); done(socket); });
		socket.on('error', fail);
	})));
	await until('all are counted as waiters', async () => await daemon.metric('reprise_http_waiters') === CLIENTS);
	sockets.forEach(socket => socket.destroy());
	const began = performance.now();
	await until('the count is back to 0', async () => await daemon.metric('reprise_http_waiters') === 0, 5000);
	console.log(`# noticed within ${Math.round(performance.now() - began)} ms`);
	const fds = spawnSync('ls', [`/proc/${daemon.pid}/fd`], { encoding: 'utf8' }).stdout.trim().split('\n').length;
	check(fds < 100, `${fds} descriptors are open`);
	equal((await daemon.ended('slow')).status, 'completed', 'the run they waited for');
	await daemon.stop();
});

await test('clients that wait are answered when the daemon stops, which ends at once all the same', async () => {
	const daemon = new Daemon('conditions', { runtimes });
	await daemon.start();
	await sim.script({ cadence: { firstByteMs: 20_000 } });
	await daemon.post('/v1/runs', extractionRun('slow', documentOf(1)), 201);
	const waiting = Array.from({ length: 50 }, () => daemon.ask('GET', '/v1/runs/slow?wait=60s'));
	await until('all are counted', async () => await daemon.metric('reprise_http_waiters') === 50);
	const began = performance.now();
	await daemon.stop();
	check(performance.now() - began < 5000, 'it took too long');
	for (const answer of await Promise.all(waiting))
		check([200, 503].includes(answer.status) && answer.broken === null, () => `a waiter got ${answer.status} ${answer.broken}`);
	// The section that was being asked is asked again; nothing is lost.
	await sim.script({});
	await daemon.start();
	equal((await daemon.ended('slow')).status, 'completed', 'after the restart');
	await daemon.stop();
});

// ---- Two daemons ----

await test('a second daemon on the same data ends at once with a clear message, and the first goes on', async () => {
	const daemon = new Daemon('conditions', { runtimes });
	await daemon.start();
	await daemon.post('/v1/runs', setOf('first'), 201);
	const first = await daemon.ended('first'), began = performance.now();
	const second = daemon.launch(), end = await exitOf(second, 10_000);
	equal(end, { code: 1, signal: null }, 'end of the second');
	check(performance.now() - began < 3000, 'it took too long');
	match(second.errors, new RegExp(`another reprised.*${daemon.pid}`), 'message names the pid');
	match(second.errors, new RegExp(`${daemon.data}/lock`), 'message names the lock');
	check(!/ready/.test(second.output), 'it never said that it is ready');
	equal(await daemon.run('first'), first, 'the first still answers on its socket');
	await daemon.stop();
	await daemon.start();
	await daemon.stop();
});

// ---- Few descriptors ----

await test('with any number of descriptors it becomes ready or says what it lacks, and never aborts', async () => {
	const seen = { ready: 0, refused: 0 };
	for (const most of [8, 9, 10, 11, 12, 14, 16, 18, 20, 22, 24, 32, 64]) {
		const daemon = new Daemon('descriptors', { runtimes }, { wrap: ['sh', '-c', 'ulimit -n "$0" && exec "$@"', String(most)] });
		const child = daemon.launch(), line = firstLine(child, 'reprised').catch(() => null);
		if (await line !== null) {
			seen.ready++;
			child.kill('SIGKILL');
			await child.gone;
			continue;
		}
		seen.refused++;
		equal(await exitOf(child), { code: 1, signal: null }, `its end with ${most} (${child.errors})`);
		match(child.errors, /^reprised: ./m, `its reason with ${most}`);
	}
	check(seen.ready > 0 && seen.refused > 2, `${JSON.stringify(seen)}`);
	console.log(`# ${seen.refused} refused, ${seen.ready} ready`);
});

// ---- Stopping under load ----

await test('SIGTERM under load ends with 0, and nothing acknowledged is lost', async () => {
	const daemon = new Daemon('conditions', { runtimes });
	await sim.script({ cadence: { firstByteMs: 20 } });
	const acknowledged = new Set();
	let unclear = 0, stopped = false, next = 0;
	for (let round = 0; round < 3; round++) {
		stopped = false;
		await daemon.start();
		const clients = Array.from({ length: 16 }, async () => {
			while (!stopped) {
				const i = next++, request = i % 20 === 0 ? extractionRun(`load-${i}`, documentOf(3)) : setOf(`load-${i}`, i);
				const answer = await daemon.ask('POST', '/v1/runs', request);
				if (answer.status === 201)
					acknowledged.add(request.id);
				else if (answer.broken !== null)
					unclear++;
				else
					problem(answer, 503);
				if (answer.status !== 201)
					await pause(5);
			}
		});
		const goal = acknowledged.size + 150 + Math.floor(draw() * 100);
		await until(`${goal} are acknowledged`, () => acknowledged.size >= goal, 60_000, 2);
		await daemon.stop();
		stopped = true;
		await Promise.all(clients);
	}
	await daemon.start();
	for (const id of acknowledged)
		equal((await daemon.ended(id)).status, 'completed', id);
	daemon.verifyJournal();
	const kinds = (await daemon.journal()).map(text => JSON.parse(text).kind);
	equal(kinds.filter(kind => kind === 'daemon.stopping').length, 3, 'each stop is in the journal');
	console.log(`# ${acknowledged.size} acknowledged, ${unclear} unanswered`);
	await daemon.stop();
});

// ---- Streams ----

// Follows an event stream until it ends or breaks; what came, as [id, data].
function follow(daemon, path, lastId) {
	const stream = { events: [], status: 0, comments: 0 };
	stream.over = new Promise(done => {
		stream.request = http.request({ socketPath: daemon.socket, path, agent: false, headers: { Accept: 'text/event-stream',
			...(lastId === undefined ? {} : { 'Last-Event-ID': lastId }) } }, response => {
			stream.status = response.statusCode;
			let text = '';
			response.setEncoding('utf8');
			response.on('data', data => {
				text += data;
				for (let at; (at = text.indexOf('\n\n')) >= 0; text = text.slice(at + 2)) {
					const lines = text.slice(0, at).split('\n');
					const field = name => lines.filter(line => line.startsWith(`${name}:`)).map(line => line.slice(name.length + 1).replace(/^ /, '')).join('\n');
					if (field('data') === '')
						stream.comments++;
					else
						stream.events.push([field('id'), JSON.parse(field('data'))]);
				}
			});
			response.on('close', done);
			response.on('error', () => {});
		});
		stream.request.on('error', done);
		stream.request.end();
	});
	return stream;
}

await test('killed while streams are open, they go on after the restart from Last-Event-ID: each event once, none left out', async () => {
	const daemon = new Daemon('conditions', { runtimes, limits: { wakeEvery: '200ms' } });
	await daemon.start();
	await sim.script({ cadence: { firstByteMs: 30 } });
	await daemon.post('/v1/runs', extractionRun('streamed', documentOf(30)), 201);
	const paths = ['/v1/runs/streamed/events', '/v1/facts?after=0', '/v1/events?after=0'], seen = paths.map(() => []);
	let streams = paths.map(path => follow(daemon, path));
	for (let kill = 0; kill < 3; kill++) {
		const goal = (kill + 1) * 12;
		await until('facts came in', () => seen[1].length + streams[1].events.length >= goal);
		await daemon.kill();
		for (const [i, stream] of streams.entries()) {
			equal(stream.status, 200, `status of ${paths[i]}`);
			await stream.over;
			seen[i].push(...stream.events);
		}
		await daemon.start();
		streams = paths.map((path, i) => follow(daemon, path.replace('?after=0', ''), seen[i].at(-1)?.[0]));
	}
	const run = await daemon.ended('streamed');
	equal([run.status, run.facts.length], ['completed', 60], 'run');
	const events = await daemon.events('streamed'), facts = await daemon.facts();
	const feed = (await daemon.get('/v1/events?after=0&limit=10000')).events;
	const expected = [events.map(event => event.seq), facts.map(fact => fact.id), feed.map(event => event.id)];
	const keys = [event => event.seq, fact => fact.id, event => event.id];
	for (const [i, stream] of streams.entries()) {
		await until(`${paths[i]} has caught up`, () => seen[i].length + stream.events.length >= expected[i].length, 10_000)
			.catch(() => { /* compared below */ });
		equal([...seen[i], ...stream.events].map(([, data]) => keys[i](data)), expected[i], `what ${paths[i]} gave`);
		stream.request.destroy();
	}
	await until('the streams are gone', async () => await daemon.metric('reprise_http_streams') === 0, 5000);
	await daemon.stop();
});

// ---- A full disk ----

await test('a disk that fills up: submissions get 507, what was acknowledged stays, and with space again it goes on without a restart', async () => {
	const daemon = new Daemon('conditions', { runtimes, limits: { reserve: '512KiB', lowSpace: '256KiB' } });
	const { path, wrap, fill, free } = await smallDisk(daemon.folder);
	daemon.data = join(path, 'data');
	daemon.wrap = wrap;
	await daemon.start();
	const { pid } = daemon, acknowledged = [];
	await sim.script({ cadence: { firstByteMs: 1500 } });
	for (let i = 0; i < 20; i++) {
		await daemon.post('/v1/runs', setOf(`before-${i}`, i), 201);
		acknowledged.push(`before-${i}`);
	}
	await daemon.post('/v1/runs', extractionRun('across', documentOf(8)), 201);
	acknowledged.push('across');
	await pause(200);
	fill();

	// Some more may fit into pages that are there already; then it says so.
	let full = null;
	for (let i = 0; i < 400 && full === null; i++) {
		const request = { ...setOf(`during-${i}`, i), input: { n: i, filler: `${i}`.repeat(2000) } };
		const answer = await daemon.ask('POST', '/v1/runs', request);
		if (answer.status === 201)
			acknowledged.push(request.id);
		else
			full = { answer, request };
	}
	check(full !== null, 'the disk never became full');
	problem(full.answer, 507, /disk.*full|no space/i);
	console.log(`# ${full.answer.status}: ${full.answer.json.detail}`);
	equal((await daemon.ask('GET', '/healthz')).status, 200, 'it lives');
	for (let i = 0; i < 5; i++)
		problem(await daemon.ask('POST', '/v1/runs', { ...full.request, id: `full-${i}` }), 507);
	// Reading goes on.
	equal((await daemon.run('before-3')).status, 'completed', 'an earlier run');
	check((await daemon.get('/v1/runs?limit=5')).runs.length === 5, 'the list');
	// The answers for `across` arrive meanwhile and cannot be committed.
	await pause(2500);
	equal(daemon.child?.pid, pid, 'the same process');

	free();
	await until('submissions are taken again', async () => (await daemon.ask('POST', '/v1/runs', full.request)).status === 201, 15_000, 100);
	acknowledged.push(full.request.id);
	for (const id of acknowledged)
		equal((await daemon.ended(id)).status, 'completed', id);
	const across = await daemon.run('across');
	equal([across.facts.length, across.output.summary.failed], [16, 0], 'the run that was under way');
	for (const [digest, { requests }] of Object.entries((await sim.state()).bySection))
		equal(requests, 1, `requests for section ${digest}`);
	equal(daemon.child?.pid, pid, 'the same process');
	daemon.verifyJournal();
	await daemon.stop();
	await daemon.start();
	for (const id of acknowledged)
		equal((await daemon.run(id)).status, 'completed', `${id} after a restart`);
	daemon.verifyJournal();
	await daemon.stop();
});

// ---- Somebody else at the journal ----

await test('a foreign process that holds the journal\'s write lock delays submissions and loses none; reading goes on', async () => {
	const daemon = new Daemon('conditions', { runtimes });
	await daemon.start();
	await daemon.post('/v1/runs', setOf('before'), 201);
	equal((await daemon.ended('before')).status, 'completed', 'before');
	const holder = launch('sh', ['-c', '(echo ".timeout 10000"; echo "BEGIN IMMEDIATE; SELECT 1;"; sleep 3; echo "ROLLBACK;") | sqlite3 "$1"', 'sh', join(daemon.data, 'journal.db')]);
	equal(await firstLine(holder, 'sqlite3'), '1', 'the lock is held');
	let released = false;
	holder.gone.then(() => { released = true; });
	const submitted = Array.from({ length: 40 }, (_, i) => daemon.ask('POST', '/v1/runs', setOf(`locked-${i}`, i)).then(answer => answer.status));
	await pause(200);
	equal((await daemon.run('before')).status, 'completed', 'reading');
	equal((await daemon.ask('GET', '/healthz')).status, 200, 'health');
	check(!released, 'the lock was held meanwhile');
	await exitOf(holder);
	equal(await Promise.all(submitted), Array(40).fill(201), 'each is acknowledged in the end');
	for (let i = 0; i < 40; i++)
		equal((await daemon.ended(`locked-${i}`)).status, 'completed', `locked-${i}`);
	daemon.verifyJournal();
	await daemon.stop();
});

// ---- Memory ----

// Before: what fills the caches that have a bound (values of 8 MiB, a thousand ended runs, SQLite's pages).
const WARM = 1500, RUNS = 5000;
const sanitized = readFileSync(programs.daemon).includes('__asan_init');

await test(`no growth of memory over ${RUNS} runs, of which each twenty-fifth is an extraction`, async () => {
	// A sanitizer keeps freed memory back; with that bounded, what it adds is bounded too.
	const allowedMiB = sanitized ? 40 : 2;
	const daemon = new Daemon('conditions', { runtimes }, { env: sanitized ? { ASAN_OPTIONS: `${process.env.ASAN_OPTIONS ?? ''}:quarantine_size_mb=8` } : {} });
	await daemon.start();
	await sim.script({});
	const idle = memoryOf(daemon.pid);
	const agent = new http.Agent({ keepAlive: true, maxSockets: 32 });
	let next = 0;
	const submit = async upTo => {
		await Promise.all(Array.from({ length: 32 }, async () => {
			while (next < upTo) {
				const i = next++, request = i % 25 === 0 || i < WARM && i % 5 !== 1 ? extractionRun(`run-${i}`, documentOf(3, `Werk ${i}.`)) : setOf(`run-${i}`, i);
				const answer = await daemon.ask('POST', '/v1/runs?wait=30s', request, { agent });
				equal([answer.status, answer.json?.status], [201, 'completed'], `run-${i} (${answer.broken ?? answer.text})`);
			}
		}));
		await pause(300);
		return memoryOf(daemon.pid);
	};
	const warm = await submit(WARM), began = performance.now(), after = await submit(WARM + RUNS);
	const show = memory => `${memory.resident.toFixed(1)} MiB (${memory.private.toFixed(1)} private)`;
	console.log(`# resident: idle ${show(idle)}, after ${WARM} runs ${show(warm)}, after ${WARM + RUNS} ${show(after)}; ${Math.round(RUNS / (performance.now() - began) * 1000)} runs/s`);
	check(after.private - warm.private <= allowedMiB, `private memory grew by ${(after.private - warm.private).toFixed(1)} MiB, allowed ${allowedMiB}`);
	agent.destroy();
	await daemon.stop();
});

await sim.stop();
await finish();
