// Copies of the journal that are made while the daemon works, and journals out of copies: whole or not there at all, wherever something is
// killed; and no log is ever continued behind a checkpoint that is known.
import { spawnSync as spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { copyFileSync, cpSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Daemon, check, cli, definition, equal, exitOf, finish, launch, match, pause, programs, random, root, seedOf, sqlite, test, until } from '../support/harness.mjs';

const draw = random(seedOf(9));
const setOf = (id, n = 0) => ({ id, definition: definition('set', [{ one: { set: { n: '${ .n }' } } }]), input: { n } });
const waiting = id => ({ id, definition: definition('wait', [{ rest: { wait: { seconds: 3600 } } }]), input: {} });
const percentile = (times, p) => times.toSorted((a, b) => a - b)[Math.min(times.length - 1, Math.floor(times.length * p))] ?? 0;
const runIds = lines => lines.map(line => JSON.parse(line)).filter(entry => entry.kind === 'run.created').map(entry => entry.data.runId);

// A folder of keys and nothing else, as an operator keeps them apart from the copy.
function keysOnly(daemon, data) {
	mkdirSync(data, { recursive: true, mode: 0o700 });
	cpSync(join(daemon.data, 'keys'), join(data, 'keys'), { recursive: true });
}

// Many MiB that do not compress, so that copying takes a while.
async function fatten(daemon, count) {
	for (let i = 0; i < count; i++)
		await daemon.post('/v1/documents', randomBytes(700_000).toString('base64'), 201, { headers: { 'Content-Type': 'text/plain' } });
}

const RUNS = 1000;

await test(`a backup while ${RUNS} runs are submitted: whole up to its checkpoint; only a restore that knows a checkpoint makes a journal of it, and open runs go on there`, async () => {
	const daemon = new Daemon('backup');
	await daemon.start();
	await fatten(daemon, 24);
	await daemon.post('/v1/runs', waiting('sleeper'), 201);
	const before = [], during = [], acknowledged = [], path = join(daemon.folder, 'copy.db');
	let next = 0, copying = false, begun = false, done = null;
	const submit = async () => {
		while (next < RUNS) {
			const id = `run-${next++}`, began = performance.now();
			const answer = await daemon.ask('POST', '/v1/runs', setOf(id, next));
			equal(answer.status, 201, id);
			(copying ? during : before).push(performance.now() - began);
			acknowledged.push(id);
			if (next >= RUNS >> 2 && !begun) {
				begun = true;
				await daemon.post('/v1/journal/backup', { path }, 202);
				copying = true;
				done = until('the backup has ended', async () => {
					const job = await daemon.get('/v1/journal/backup');
					copying = job.endedAt === undefined;
					return copying ? null : job;
				}, 60_000, 20);
			}
		}
	};
	await Promise.all(Array.from({ length: 8 }, submit));
	const job = await done, size = statSync(path);
	equal([job.state, job.path, size.size, size.mode & 0o777], ['completed', path, job.bytes, 0o600], 'the copy');
	check(during.length >= 20, `only ${during.length} runs were submitted while it was copied`);
	check(!existsSync(`${path}.partial`), 'nothing else stays');
	console.log(`# ${(job.bytes / (1 << 20)).toFixed(0)} MiB; a submission before p50 ${percentile(before, .5).toFixed(1)} p99 ${percentile(before, .99).toFixed(1)} ms (${before.length}), ` +
		`during p50 ${percentile(during, .5).toFixed(1)} p99 ${percentile(during, .99).toFixed(1)} ms (${during.length})`);
	const refused = daemon.cli('journal', 'backup', path);
	equal(refused.code, 5, 'it overwrites nothing');
	match(refused.stderr, /exists and is not overwritten/, 'and says so');
	for (const id of acknowledged)
		equal((await daemon.ended(id)).status, 'completed', id);

	// As it is nobody may continue it.
	const bare = new Daemon('backup-bare');
	keysOnly(daemon, bare.data);
	copyFileSync(path, join(bare.data, 'journal.db'));
	const child = bare.launch(), end = await exitOf(child);
	equal(end.code, 1, 'a daemon does not start on a copy');
	match(child.errors, /copy that journal backup made.*journal restore/s, 'and says what to do');
	equal(cli('journal', 'verify', '--data', bare.data).code, 0, 'but it can be verified');

	// Restored without a word of how far the log had come: refused. With one that is newer than the copy: refused.
	const other = new Daemon('backup-restored'), newest = join(daemon.folder, 'newest');
	keysOnly(daemon, other.data);
	const unknown = cli('journal', 'restore', path, '--data', other.data);
	equal(unknown.code, 26, 'nothing is known');
	match(unknown.stderr, /--checkpoint FILE.*--original-is-gone.*twice/s, 'what to do, and why');
	writeFileSync(newest, (await daemon.ask('POST', '/v1/log/checkpoint', {})).text);
	const behind = cli('journal', 'restore', path, '--data', other.data, '--checkpoint', newest);
	equal(behind.code, 23, 'behind a known checkpoint');
	match(behind.stderr, /journal-rolled-back.*--new-log/s, 'and the way out');
	check(!existsSync(join(other.data, 'journal.db')), 'nothing was made');

	// With the one that the copy reaches it becomes a journal; the original is gone by now.
	const known = join(daemon.folder, 'known');
	await daemon.stop();
	writeFileSync(known, checkpointOf(daemon, job.checkpointSize));
	const restored = cli('journal', 'restore', path, '--data', other.data, '--checkpoint', known, '-o', 'json');
	equal(restored.code, 0, `restore (${restored.stderr})`);
	equal([restored.json().openRuns >= 1, restored.json().heldAgainst], [true, 1], 'what it says');
	match(restored.stderr, /must never start again/, 'the word about open runs');
	await other.start();
	const lines = await other.journal(), there = new Set(runIds(lines));
	check(lines.length >= job.checkpointSize, 'all entries up to the checkpoint');
	other.verifyJournal();
	for (const id of there)
		if (id !== 'sleeper')
			equal((await other.ended(id)).status, 'completed', id);
	check(there.size > RUNS >> 3 && [...there].every(id => id === 'sleeper' || acknowledged.includes(id)), `${there.size} runs`);
	equal((await other.run('sleeper')).status, 'waiting', 'the open run goes on');
	equal((await other.post('/v1/runs', setOf('new'), 201)).id, 'new', 'and new ones come');
	await other.stop();
});

// The note of this size as the journal of a stopped daemon keeps it.
function checkpointOf(daemon, size) {
	const found = sqlite(join(daemon.data, 'journal.db'), `SELECT hex(note) FROM checkpoint WHERE size = ${size}`);
	return Buffer.from(found, 'hex');
}

await test('a copy that is behind: kept to be read, and another log begins that names where the old one ended', async () => {
	const daemon = new Daemon('backup'), path = join(daemon.folder, 'copy.db');
	await daemon.start();
	await daemon.post('/v1/runs', setOf('one'), 201);
	await daemon.ended('one');
	equal(daemon.cli('journal', 'backup', path).code, 0, 'backup');
	await daemon.post('/v1/runs', setOf('two'), 201);
	await daemon.ended('two');
	await daemon.post('/v1/log/checkpoint', {}, 200);
	const held = cli('journal', 'restore', path, '--data', daemon.data, '--yes');
	equal(held.code, 1, 'a daemon holds the folder');
	match(held.stderr, /another reprised \(pid \d+\) holds .*: stop it, or choose another folder/, 'which one');
	const origin = JSON.parse((await daemon.journal())[0]).log;
	await daemon.stop();
	const present = cli('journal', 'restore', path, '--data', daemon.data);
	equal(present.code, 23, 'the folder\'s own anchor is ahead');
	equal(cli('journal', 'restore', path, '--data', daemon.data, '--yes').code, 23, 'also with --yes');
	const again = cli('journal', 'restore', path, '--data', daemon.data, '--new-log');
	equal(again.code, 5, 'a journal is there');
	match(again.stderr, /--yes/, 'what to say');
	const made = cli('journal', 'restore', path, '--data', daemon.data, '--new-log', '--yes', '-o', 'json');
	equal(made.code, 0, `new log (${made.stderr})`);
	const { kept, aside, checkpointSize } = made.json();
	check(existsSync(join(aside, 'journal.db')), 'the journal that was there is kept');
	equal(cli('journal', 'verify', '--data', kept).code, 0, 'the copy can be read');
	await daemon.start();
	const opened = JSON.parse((await daemon.journal())[0]);
	check(opened.log !== origin, 'it is another log');
	equal([opened.data.continues.origin, opened.data.continues.size], [origin, checkpointSize], 'that names the old one');
	equal((await daemon.ask('GET', '/v1/runs/one')).status, 404, 'what was in the old one is not continued');
	await daemon.post('/v1/runs', setOf('one'), 201);
	daemon.verifyJournal();
	await daemon.stop();
	await daemon.start();
	await daemon.stop();
});

await test('a damaged copy, one that is none, and one of a newer schema are refused before anything is changed', async () => {
	const daemon = new Daemon('backup'), path = join(daemon.folder, 'copy.db'), bad = join(daemon.folder, 'bad.db'), data = join(daemon.folder, 'new');
	await daemon.start();
	await fatten(daemon, 2);
	await daemon.post('/v1/runs', setOf('one'), 201);
	await daemon.ended('one');
	equal(daemon.cli('journal', 'backup', path).code, 0, 'backup');
	match(daemon.cli('journal', 'backup', join(daemon.data, 'no/such/folder/copy.db')).stderr, /the folder has to be there.*No such file/, 'a folder that is not there');
	equal(daemon.cli('journal', 'backup', '').code, 2, 'no name');
	const entries = cli('journal', 'verify', path);
	equal([entries.code, entries.stderr.trim().split('\n').length], [25, 2], `a database is no file of entries (${entries.stderr})`);
	match(entries.stderr, /is a database, not entries.*\n.*journal restore .* --new-log/, 'and what to do with it');
	await daemon.stop();
	const good = readFileSync(path), restore = file => cli('journal', 'restore', file, '--data', data, '--original-is-gone');
	match(restore(daemon.folder).stderr, /is no file: name the one that `reprise journal backup` made/, 'a folder');
	const cases = [
		[() => copyFileSync(path, bad) ?? sqlite(bad, 'DROP TRIGGER entry_update; UPDATE entry SET bytes = CAST(replace(CAST(bytes AS TEXT), \'completed\', \'completeD\') AS BLOB) WHERE seq = (SELECT max(seq) FROM entry WHERE instr(CAST(bytes AS TEXT), \'completed\') > 0)'), 23, /journal-entry|journal-changed/],
		[() => copyFileSync(path, bad) ?? sqlite(bad, 'DROP TRIGGER journal_delete; DROP TRIGGER entry_delete; PRAGMA foreign_keys=0; DELETE FROM entry WHERE seq > 3; DELETE FROM journal WHERE seq > 3'), 23, /journal-rolled-back|journal-changed/],
		[() => writeFileSync(bad, good.subarray(0, good.length >> 1)), 23, /malformed|journal|corrupt/i],
		[() => writeFileSync(bad, 'no database at all, and not by far. '.repeat(40)), 23, /is no database, or damaged/],
		[() => copyFileSync(path, bad) ?? sqlite(bad, 'PRAGMA user_version=999'), 1, /schema version 999.*versions up to \d+.*newer reprised/],
	];
	for (const [damage, code, pattern] of cases) {
		damage();
		const result = restore(bad);
		equal(result.code, code, `restore (${result.stderr})`);
		match(result.stderr, pattern, 'why');
		check(!existsSync(join(data, 'journal.db')), 'nothing was made');
	}
	equal(restore(join(daemon.folder, 'nowhere.db')).code, 4, 'no such file');
	const made = restore(path);
	equal(made.code, 0, `the good one (${made.stderr})`);
});

await test('cancelled, or with the daemon killed in its middle, a backup leaves no file of that name; the next one to there succeeds', async () => {
	const daemon = new Daemon('backup'), path = join(daemon.folder, 'copy.db');
	await daemon.start();
	await fatten(daemon, 40);
	await daemon.post('/v1/journal/backup', { path }, 202);
	equal((await daemon.ask('POST', '/v1/journal/backup', { path: `${path}2` })).status, 503, 'one at a time');
	const cancelled = await daemon.ask('POST', '/v1/journal/backup/cancel', {});
	equal(cancelled.status, 202, 'cancel');
	const job = await until('it has ended', async () => { const job = await daemon.get('/v1/journal/backup'); return job.endedAt && job; });
	equal([job.state, job.error.type, existsSync(path), existsSync(`${path}.partial`)], ['cancelled', 'cancelled', false, false], 'the end');
	equal((await daemon.ask('POST', '/v1/journal/backup/cancel', {})).status, 404, 'none is under way');
	let partial = 0;
	for (let i = 0; i < 8 || (partial < 2 && i < 40); i++) {
		await daemon.post('/v1/journal/backup', { path }, 202);
		await pause(draw() * 250);
		await daemon.kill();
		if (existsSync(path)) { // it was done before
			equal(cli('journal', 'restore', path, '--data', join(daemon.folder, `whole-${i}`), '--original-is-gone').code, 0, 'whole');
			if (partial >= 2)
				break;
			rmSync(path); // it was too fast for us
		}
		partial += existsSync(`${path}.partial`);
		await daemon.start();
	}
	check(partial >= 2, `only ${partial} kills met a backup under way`);
	if (daemon.child === null)
		await daemon.start();
	equal(daemon.cli('journal', 'backup', `${path}3`).code, 0, 'another');
	check(readdirSync(daemon.folder).filter(name => name.endsWith('3.partial')).length === 0, 'nothing else stays');
	daemon.verifyJournal();
	await daemon.stop();
});

await test('a restore that is killed anywhere leaves the journal as it was, or says that it was interrupted; the same restore once more completes it', async () => {
	const daemon = new Daemon('backup'), path = join(daemon.folder, 'copy.db');
	await daemon.start();
	await fatten(daemon, 12);
	await daemon.post('/v1/runs', setOf('one'), 201);
	await daemon.ended('one');
	await daemon.stop();
	await daemon.start();
	equal(daemon.cli('journal', 'backup', path).code, 0, 'backup');
	await daemon.kill();
	const args = ['journal', 'restore', path, '--data', daemon.data, '--yes'];
	const began = performance.now();
	equal(cli(...args).code, 0, 'a whole one');
	const whole = performance.now() - began;
	let interrupted = 0, untouched = 0;
	for (let i = 0; i < 24 || (interrupted < 2 && i < 200); i++) { // a fast build is seldom hit between the first change and the last
		const child = launch(programs.cli, args);
		if (i % 2 === 0) {
			await pause(whole * (.3 + .8 * draw()));
		} else { // aimed at the end, where files change their places
			const aside = () => readdirSync(daemon.data).filter(name => name.startsWith('replaced-')).length, before = aside();
			while (aside() === before && child.exitCode === null)
				await new Promise(setImmediate);
			for (const until = performance.now() + 4 * draw(); performance.now() < until;)
				;
		}
		child.kill('SIGKILL');
		await child.gone;
		if (existsSync(join(daemon.data, 'restoring'))) {
			interrupted++;
			const refusing = daemon.launch();
			equal((await exitOf(refusing)).code, 1, 'the daemon refuses the folder');
			match(refusing.errors, /interrupted.*once more/, 'and says what to do');
			equal(cli(...args.slice(0, -1)).code, 0, 'once more, and --yes was said already');
		} else {
			untouched++;
		}
	}
	check(interrupted >= 2, `only ${interrupted} were killed between the first change and the last`);
	console.log(`# ${interrupted} interrupted after the first change, ${untouched} before it or done`);
	await daemon.start();
	equal((await daemon.run('one')).status, 'completed', 'the run');
	daemon.verifyJournal();
	await daemon.stop();
});

await test('the kept journal of each earlier schema opens after kills in its migration, verifies, and has the runs that it had, which are decided the same; a copy of it can be restored', async () => {
	const folder = join(root, 'tests/journals'), files = readdirSync(folder).filter(name => /^schema-\d{4}\.db\.zst$/.test(name)).sort();
	check(files.length >= 5, `${files.length} kept journals`);
	let kills = 0;
	for (const file of files) {
		const daemon = new Daemon('backup'), journal = join(daemon.data, 'journal.db');
		mkdirSync(join(daemon.data, 'keys'), { recursive: true, mode: 0o700 });
		for (const key of ['fact.pem', 'log.pem'])
			writeFileSync(join(daemon.data, 'keys', key), readFileSync(join(folder, 'keys', key)), { mode: 0o600 });
		const unpacked = spawn('zstd', ['-q', '-d', join(folder, file), '-o', journal], { encoding: 'utf8' });
		equal(unpacked.status, 0, `zstd (${unpacked.stderr ?? unpacked.error})`);
		const ended = JSON.parse(sqlite(journal, 'SELECT json_group_array(json_array(id, status)) FROM run WHERE ended_ms IS NOT NULL'));
		check(ended.length >= 3, `${file} has ${ended.length} ended runs`);
		const older = cli('doctor', '--data', daemon.data, '-o', 'json').json().checks.find(item => item.check === 'journal');
		check(older.status === 'ok' || older.status === 'warn' && /start reprised on it once/.test(older.detail), () => `${file}: ${older.detail}`);
		for (let i = 0; i < 4; i++, kills++)
			await daemon.killWhileStarting(20 + 60 * draw());
		await daemon.start();
		for (const [id, status] of ended)
			equal((await daemon.run(id)).status, status, `${file}: ${id}`);
		const replayed = daemon.cli('replay', ...ended.map(([id]) => id));
		equal(replayed.code, 0, `${file}: its runs are decided as they were (${replayed.stderr})`);
		daemon.verifyJournal();
		const path = join(daemon.folder, 'copy.db'), data = join(daemon.folder, 'restored');
		equal(daemon.cli('journal', 'backup', path).code, 0, 'backup');
		await daemon.stop();
		equal(cli('journal', 'restore', path, '--data', data, '--original-is-gone').code, 0, 'restore');
		// What an earlier schema left is removed as well, by the same rules, and the log is as good as before.
		daemon.configure({ retention: { runs: '1s', entries: '2s' } });
		await daemon.start();
		await until(`${file}: its ended runs are gone`, async () => (await daemon.ask('GET', `/v1/runs/${ended[0][0]}`)).status === 410);
		equal(daemon.cli('journal', 'compact').code, 0, 'compact');
		for (const [id] of ended)
			equal((await daemon.ask('GET', `/v1/runs/${id}`)).status, 410, `${file}: ${id} is gone`);
		equal(daemon.cli('fact', 'verify', '--all').code, 0, `${file}: facts verify`);
		daemon.verifyJournal();
		await daemon.stop();
		equal(spawn(programs.daemon, [...daemon.args, '--check'], { encoding: 'utf8' }).status, 0, `${file}: tables follow`);
	}
	check(kills >= 20, `${kills} kills`);
});

await finish();
