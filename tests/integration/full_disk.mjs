// Started on a disk without a byte left, the reserve gone too: whatever the data folder was left in, the daemon starts, serves what it has, says what is
// the matter and goes on by itself as soon as there is room, with its start on record. Where it cannot (a migration, the index of the write-ahead log, a
// folder that is read-only) it says so and has changed nothing.
import { spawnSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { smallDisk } from '../support/disk.mjs';
import { Daemon, check, definition, documentOf, equal, exitOf, extractionOf, finish, match, pause, problem, programs, random, seedOf, startSimulator, test, until } from '../support/harness.mjs';

const draw = random(seedOf(7)), below = n => Math.floor(draw() * n);
const ROUNDS = Number(process.env.ROUNDS ?? 6);
const sim = await startSimulator();
const limits = { reserve: '1MiB', lowSpace: '512KiB' };
const runtimes = { extractor: { kind: 'simulator', url: sim.url, model: 'reprise-sim', concurrency: 2, retry: { attempts: 3, floor: '10ms', cap: '50ms' } } };
const setOf = (id, value = 0) => ({ id, definition: definition('set', [{ one: { set: { n: '${ .n }' } } }]), input: { n: value } });
const waitOf = (id, milliseconds) => ({ id, definition: definition('wait', [{ w: { wait: { milliseconds } } }]) });
const large = bytes => randomBytes(Math.ceil(bytes * 0.75)).toString('base64');
const offline = (...args) => spawnSync(programs.cli, args, { encoding: 'utf8', env: { ...process.env, NO_COLOR: '1' } });

async function onSmallDisk(...options) {
	const daemon = new Daemon('full-disk', { runtimes, limits });
	const disk = await smallDisk(daemon.folder, ...options);
	daemon.data = join(disk.path, 'data');
	daemon.wrap = disk.wrap;
	return { daemon, disk, inside: name => join(disk.outside, 'data', name) };
}

// No reserve, and not a byte.
function fillUp({ disk, inside }) {
	rmSync(inside('reserve'), { force: true });
	disk.fill();
}

async function checkServes({ daemon, disk, inside }, completed) {
	equal((await daemon.run(completed)).status, 'completed', 'a run');
	check(await daemon.metric('reprise_journal_state') > 0, 'it knows');
	problem(await daemon.ask('POST', '/v1/runs', setOf('refused')), 507, /disk full/);
	match((await daemon.ask('GET', '/readyz')).text, /disk full/, 'readyz says why');
	for (const verb of [['list'], ['show', completed], ['replay', completed], ['journal', 'verify'], ['journal', 'stats']])
		equal(daemon.cli(...verb).code, 0, verb.join(' '));
	const copy = join(daemon.folder, 'copy.db');
	rmSync(copy, { force: true });
	const backup = daemon.cli('journal', 'backup', copy);
	equal(backup.code, 0, `a copy to another disk (${backup.stderr})`);
	if (disk.wrap) // the folder is another one from here
		return;
	equal(offline('journal', 'verify', '--data', daemon.data).status, 0, 'journal verify --data');
	const doctor = offline('doctor', '--data', daemon.data, '--socket', daemon.socket);
	equal(doctor.status, 1, 'doctor says fail');
	match(doctor.stdout, /disk space +0 B free/, 'doctor says what');
}

const startsOf = async daemon => (await daemon.journal()).filter(text => JSON.parse(text).kind === 'daemon.started').length;

async function checkGoesOn({ daemon, disk }, acknowledged, starts, id) {
	disk.free();
	await until('new work is taken', async () => (await daemon.ask('POST', '/v1/runs', setOf(id))).status === 201, 30_000, 50);
	for (const run of [...acknowledged, id])
		equal((await daemon.ended(run)).status, 'completed', run);
	await until('its start is on record', async () => await startsOf(daemon) > starts, 30_000, 50);
	daemon.verifyJournal();
}

const states = {
	'just made': async ({ daemon }) => { await daemon.stop(); },
	'killed': async ({ daemon }) => { await daemon.kill(); },
	'killed with a long write-ahead log': async ({ daemon }, acknowledged) => {
		for (let i = 0; i < 30; i++) {
			await daemon.post('/v1/runs', setOf(`long-${i}`, large(40_000)), 201);
			acknowledged.push(`long-${i}`);
		}
		await daemon.kill();
	},
	'killed in the middle of a large value': async ({ daemon }) => {
		const asked = daemon.ask('POST', '/v1/runs', setOf('large', large(1_600_000)));
		await pause(below(40));
		await daemon.kill();
		await asked;
	},
	'with runs under way': async ({ daemon }, acknowledged) => {
		await sim.script({ cadence: { firstByteMs: 300 } });
		await daemon.post('/v1/runs', { id: 'asks', definition: extractionOf('extractor'), input: { document: documentOf(3) } }, 201);
		await daemon.post('/v1/runs', waitOf('waits', 200), 201);
		acknowledged.push('asks', 'waits');
		await daemon.kill();
	},
	'a lock without its number': async ({ daemon, inside }) => { await daemon.kill(); truncateSync(inside('lock'), 0); },
	'no lock, no anchor, no last words': async ({ daemon, inside }) => { await daemon.kill(); for (const name of ['lock', 'anchor', 'last-words']) rmSync(inside(name)); },
};

await test('started on a full disk without its reserve it serves what it has, and goes on as soon as there is room', async () => {
	let late = 0;
	for (const [name, leave] of Object.entries(states)) {
		const place = await onSmallDisk(), { daemon } = place, acknowledged = ['first'];
		await daemon.start();
		await daemon.post('/v1/runs', setOf('first'), 201);
		equal((await daemon.ended('first')).status, 'completed', `${name}: first`);
		const starts = await startsOf(daemon);
		await leave(place, acknowledged);
		fillUp(place);
		await daemon.start();
		late += /the start is recorded as soon as there is room: disk full/.test(daemon.child.errors); // else the log had begun anew in blocks that it has
		await daemon.kill();
		fillUp(place); // what the kill gave back
		await daemon.start();
		await checkServes(place, 'first');
		await checkGoesOn(place, acknowledged, starts, 'second');
		await daemon.stop();
	}
	check(late > 0, 'no start was without room');
	console.log(`# ${Object.keys(states).length} states, ${late} starts without room`);
});

await test('filled, killed and started at any moment: nothing acknowledged is lost, and each start succeeds', async () => {
	const place = await onSmallDisk(), { daemon } = place, acknowledged = [];
	await daemon.start();
	await daemon.post('/v1/runs', setOf('first'), 201);
	equal((await daemon.ended('first')).status, 'completed', 'first');
	acknowledged.push('first');
	for (let round = 0; round < ROUNDS; round++) {
		const starts = await startsOf(daemon), ids = [], submit = async (count, bytes) => {
			for (let i = 0; i < count; i++) {
				const id = `r${round}-${bytes}-${i}`, answer = await daemon.ask('POST', '/v1/runs', draw() < 0.2 ? waitOf(id, below(300)) : setOf(id, large(1 + below(bytes))));
				if (answer.status === 201)
					ids.push(id);
			}
		};
		const load = [submit(8, 20_000), submit(1, draw() < 0.3 ? 1_200_000 : 3000), submit(8, 400)];
		await pause(below(150));
		if (draw() < 0.5)
			place.disk.fill();
		await (draw() < 0.8 ? daemon.kill() : daemon.stop());
		await Promise.all(load);
		acknowledged.push(...ids);
		fillUp(place);
		await daemon.start();
		await checkServes(place, 'first');
		await checkGoesOn(place, ids, starts, `after-${round}`);
		acknowledged.push(`after-${round}`);
		if (spawnSync('du', ['-sm', join(place.disk.outside, 'data')], { encoding: 'utf8' }).stdout.split('\t')[0] > 5)
			daemon.cli('journal', 'compact');
	}
	for (const id of acknowledged)
		equal((await daemon.run(id)).status, 'completed', id);
	console.log(`# ${ROUNDS} rounds, ${acknowledged.length} runs`);
	await daemon.stop();
});

await test('SIGTERM on a full disk ends it, also where somebody waits for a cancel that cannot be written down; the run is as it was', async () => {
	const place = await onSmallDisk(), { daemon, disk } = place;
	await daemon.start();
	await daemon.post('/v1/runs', waitOf('waits', 3_600_000), 201);
	await daemon.stop();
	fillUp(place);
	await daemon.start();
	const { child } = daemon, asked = daemon.ask('POST', '/v1/runs/waits/cancel', {});
	await until('the cancel waits for room', () => /run=waits commit postponed: disk full/.test(child.errors));
	child.kill('SIGTERM');
	equal(await exitOf(child), { code: 1, signal: null }, `its end (${child.errors.slice(-1500)})`);
	daemon.child = null;
	check((await asked).status !== 200, 'the cancel was not acknowledged');
	match(child.errors, /not everybody could be answered within \d+ ms: stopping all the same/, 'its reason');
	disk.free();
	await daemon.start();
	equal((await daemon.run('waits')).status, 'waiting', 'the run');
	await daemon.post('/v1/runs/waits/cancel', {}, 200);
	equal((await daemon.ended('waits')).status, 'cancelled', 'cancelled now');
	daemon.verifyJournal();
	await daemon.stop();
});

const digestOf = file => createHash('sha256').update(readFileSync(file)).digest('hex');

await test('without room for a migration, or for the index of the write-ahead log, the start is refused and has changed nothing', async () => {
	const kept = join(dirname(fileURLToPath(import.meta.url)), '../journals/schema-0008.db.zst');
	const journal = spawnSync('zstd', ['-dc', kept], { maxBuffer: 64 << 20 }).stdout;
	for (const [left, words] of [[0, /no room on the disk for the index of the write-ahead log/], [64 << 10, /migrate to schema version \d+ \(the journal is as it was\): .*full/]]) {
		const place = await onSmallDisk(), { daemon, disk, inside } = place;
		mkdirSync(join(disk.outside, 'data'), { mode: 0o700 });
		writeFileSync(inside('journal.db'), journal, { mode: 0o600 });
		disk.fill();
		if (left > 0)
			disk.give(left);
		const before = digestOf(inside('journal.db'));
		for (let i = 0; i < 2; i++) {
			const child = daemon.launch();
			equal(await exitOf(child), { code: 1, signal: null }, 'its end');
			match(child.errors, words, 'its reason');
			equal(digestOf(inside('journal.db')), before, 'the journal');
		}
	}
});

await test('a new journal on a full disk is refused in words, and begins as soon as there is room', async () => {
	const { daemon, disk } = await onSmallDisk();
	mkdirSync(join(disk.outside, 'data'), { mode: 0o700 });
	disk.fill();
	const child = daemon.launch();
	equal(await exitOf(child), { code: 1, signal: null }, 'its end');
	match(child.errors, /the disk has no room for a new journal: make some there/, 'its reason');
	disk.free();
	await daemon.start();
	await daemon.post('/v1/runs', setOf('one'), 201);
	equal((await daemon.ended('one')).status, 'completed', 'a run');
	await daemon.stop();
});

await test('a data folder on a disk that is read-only is refused with its reason, and is read all the same', async () => {
	const { daemon, disk } = await onSmallDisk();
	if (!disk.remount) {
		console.log('# nothing may be mounted here: left out');
		return;
	}
	await daemon.start();
	await daemon.post('/v1/runs', setOf('first'), 201);
	equal((await daemon.ended('first')).status, 'completed', 'first');
	for (const end of ['kill', 'stop']) {
		await daemon[end]();
		disk.remount('ro');
		const child = daemon.launch();
		equal(await exitOf(child), { code: 1, signal: null }, 'its end');
		match(child.errors, /data is read-only \(Read-only file system\): make it writable/, 'its reason');
		equal(offline('journal', 'verify', '--data', daemon.data).status, 0, 'journal verify --data');
		match(offline('doctor', '--data', daemon.data, '--socket', daemon.socket).stdout, /fail  data folder .*Read-only/, 'doctor');
		disk.remount('rw');
		await daemon.start();
	}
	await daemon.stop();
});

await test('a disk that takes no more files: the journal goes on in those that are there, a start too', async () => {
	const place = await onSmallDisk({ inodes: 32 }), { daemon, disk, inside } = place;
	if (!disk.remount) {
		console.log('# nothing may be mounted here: left out');
		return;
	}
	await daemon.start();
	await daemon.post('/v1/runs', setOf('first'), 201);
	equal((await daemon.ended('first')).status, 'completed', 'first');
	let files = 0;
	try {
		for (;; files++)
			closeSync(openSync(join(disk.path, `file-${files}`), 'w'));
	} catch (error) {
		equal(error.code, 'ENOSPC', 'no more files');
	}
	for (const end of ['kill', 'stop']) {
		await daemon[end]();
		await daemon.start();
		await daemon.post('/v1/runs', setOf(`after-${end}`), 201);
		equal((await daemon.ended(`after-${end}`)).status, 'completed', `after ${end}`);
	}
	match(offline('doctor', '--data', daemon.data, '--socket', daemon.socket).stdout, /fail  files left +0/, 'doctor');
	check(existsSync(inside('reserve')), 'the reserve');
	daemon.verifyJournal();
	await daemon.stop();
});

await sim.stop();
await finish();
