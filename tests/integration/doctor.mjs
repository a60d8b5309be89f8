// reprise doctor and reprise journal stats: with the daemon up and down, and what each finds where something is really wrong.
import { chmodSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { spawnSync } from 'node:child_process';
import { smallDisk } from '../support/disk.mjs';
import { Daemon, check, cli, definition, equal, finish, match, startSimulator, test } from '../support/harness.mjs';

const setOf = (id, n = 0) => ({ id, definition: definition('set', [{ one: { set: { n: '${ .n }' } } }]), input: { n } });

function doctor(daemon, ...args) {
	const result = cli('doctor', '--data', daemon.data, '--socket', daemon.socket, '-o', 'json', ...args), json = result.json();
	equal(result.code, json.status === 'fail' ? 1 : 0, `exit status for ${json.status}`);
	return { ...json, of: name => json.checks.find(item => item.check === name) };
}

await test('all is well with the daemon up and down, and each line says what it saw', async () => {
	const sim = await startSimulator(), daemon = new Daemon('doctor', { runtimes: {
		there: { kind: 'simulator', url: sim.url, model: 'reprise-sim' }, gone: { kind: 'openai', url: 'http://127.0.0.1:9', model: 'm' } } });
	equal(doctor(daemon).of('data folder').status, 'warn', 'no folder yet');
	await daemon.start();
	await daemon.post('/v1/runs', setOf('one'), 201);
	await daemon.ended('one');
	const up = doctor(daemon);
	for (const name of ['data folder', 'disk space', 'reserve', 'daemon', 'ready', 'journal', 'write-ahead log', 'clock', 'fact key', 'log key', 'reprise-jq', 'runtime there'])
		equal(up.of(name)?.status, 'ok', `${name}: ${up.of(name)?.detail}`);
	match(up.of('daemon').detail, new RegExp(`process ${daemon.pid} and answers`), 'the daemon');
	match(up.of('journal').detail, /\d+ entries, 1 runs \(0 open\)/, 'the journal');
	const [, flush] = /fdatasync takes (\d+) us/.exec(up.of('flush').detail);
	equal(up.of('flush').status, flush > 50_000 ? 'warn' : 'ok', `the flush, as this disk is: ${flush} us`);
	equal(up.of('runtime gone').status, 'warn', 'a runtime that is not there');
	check(up.of('runtime gone').advice.length > 0, 'with what to do');
	await daemon.stop();
	const down = doctor(daemon);
	equal([down.of('daemon').status, down.of('daemon').detail, down.of('journal').status, down.of('ready')], ['ok', 'not running on this folder', 'ok', undefined], 'down');
	const text = cli('doctor', '--data', daemon.data, '--socket', daemon.socket);
	match(text.stdout, /^ok +data folder +\//m, 'text');
	const lined = (text, name) => text.split('\n').find(line => line.includes(name));
	await daemon.start();
	const table = cli('doctor', '--data', daemon.data, '--socket', daemon.socket).stdout, begins = lined(table, 'data folder').indexOf('/');
	equal([lined(table, 'runtime there').indexOf('http'), lined(table, 'runtime gone').indexOf('GET'), table.split('\n').filter(line => line.includes('→')).every(line => line.indexOf('→') === begins)],
		[begins, begins, true], `the details line up:\n${table}`);
	const stats = cli('journal', 'stats', '--socket', daemon.socket).stdout.trim().split('\n').map(line => line.search(/(?<=  )[^ ]/));
	equal([stats.length > 40, new Set(stats).size], [true, 1], 'so do those of journal stats');
	await daemon.stop();
	await sim.stop();
});

await test('what is wrong is found, told with what to do, and ends with status 1', async () => {
	const daemon = new Daemon('doctor');
	await daemon.start();
	await daemon.stop();
	const journal = join(daemon.data, 'journal.db'), key = join(daemon.data, 'keys/log.pem');
	const broken = [
		['log key', 'fail', /chmod 600/, () => chmodSync(key, 0o644), () => chmodSync(key, 0o600)],
		['data folder', 'warn', /chmod 700/, () => chmodSync(daemon.data, 0o755), () => chmodSync(daemon.data, 0o700)],
		['restore', 'fail', /once more/, () => writeFileSync(join(daemon.data, 'restoring'), ''), () => rmSync(join(daemon.data, 'restoring'))],
		['clock', 'warn', /set the clock/, () => utimesSync(journal, new Date(), new Date(Date.now() + 3_600_000)), () => utimesSync(journal, new Date(), new Date())],
		['reserve', 'warn', /it is made/, () => rmSync(join(daemon.data, 'reserve')), () => {}],
		['journal', 'fail', /message says/, () => spawnSync('sqlite3', [journal, 'PRAGMA user_version=999']), () => {}],
	];
	for (const [name, status, advice, damage, repair] of broken) {
		damage();
		const found = doctor(daemon).of(name);
		equal(found?.status, status, `${name}: ${found?.detail}`);
		match(found.advice, advice, `${name}: what to do`);
		repair();
	}
	match(doctor(daemon).of('journal').detail, /schema version 999.*newer reprised/, 'a newer journal');
});

await test('a full disk is a failure, and the daemon on it says so too; stats show its state, runs by status and where the room is', async () => {
	const daemon = new Daemon('doctor', { limits: { reserve: '512KiB', lowSpace: '256KiB' } });
	const { path, outside, wrap, fill, free } = await smallDisk(daemon.folder);
	daemon.data = join(path, 'data');
	daemon.wrap = wrap;
	await daemon.start();
	for (let i = 0; i < 5; i++) {
		await daemon.post('/v1/runs', setOf(`run-${i}`, i), 201);
		equal((await daemon.ended(`run-${i}`)).status, 'completed', `run-${i}`);
	}
	const stats = daemon.cli('journal', 'stats', '-o', 'json').json();
	equal([stats.runsByStatus, stats.disk.state, stats.disk.reserveBytes], [{ completed: 5 }, 'ok', 512 << 10], 'stats');
	check(stats.schema >= 5 && stats.databaseBytes > 0, 'schema and size');
	if (stats.tables !== undefined) // an SQLite with dbstat
		check(stats.tables.run.rows === 5 && stats.tables.entry.rows === stats.entries && stats.tables.entry.bytes > 0, () => JSON.stringify(stats.tables));
	fill();
	if (outside === path) { // else doctor, outside of the namespace, does not see that disk
		const found = doctor(daemon);
		equal([found.of('disk space').status, found.status], ['fail', 'fail'], 'no space');
		match(found.of('disk space').advice, /make room/, 'what to do');
	}
	free();
	await daemon.stop();
});

await finish();
