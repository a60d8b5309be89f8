// Retention with times of seconds on the real daemon: what is over leaves, what is open or kept stays, over kills at any moment; the log can be proven
// by our own verifier and by the independent one as before, and the file gets smaller.
import { spawnSync } from 'node:child_process';
import { existsSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Daemon, check, definition, documentOf, equal, extractionOf, finish, folder, match, pause, problem, programs, random, root, seedOf, startSimulator, test, until } from '../support/harness.mjs';

const draw = random(seedOf(33));
const shared = process.env.REPRISE_SHARED || join(root, '../shared'), tool = join(shared, 'tools/verify-tlog.mjs');
const out = folder('retention');
const file = (name, bytes) => { const path = join(out, name); writeFileSync(path, bytes); return path; };
const filler = () => Array.from({ length: 1500 }, () => Math.floor(draw() * 36).toString(36)).join('');
const quick = definition('quick', [{ a: { set: { text: '${ .text }' } } }, { b: { set: '${ .text }' } }]);

// Ours, of the running daemon; and the one that shares no line with ours, of what is exported.
function prove(daemon, least) {
	const result = daemon.verifyJournal();
	if (least > 0)
		match(result.stdout, /journal-pruned +\d+ entries were pruned|\d+ entries were pruned/, 'verify says pruned');
	check(!/broken|damaged/.test(result.stdout), () => result.stdout);
	const exported = daemon.cli('journal', 'export'), vkey = daemon.cli('key', 'export', '--purpose', 'log', '--format', 'vkey');
	equal([exported.code, vkey.code], [0, 0], 'export');
	const gone = exported.stdout.split('\n').filter(line => line.startsWith('pruned ')).reduce((sum, line) => sum + Number(line.split(' ')[2]), 0);
	check(gone >= least, `${gone} entries are pruned, at least ${least} expected`);
	return { lines: file('journal.jsonl', exported.stdout), vkey: file('log.vkey', vkey.stdout), gone };
}

async function proveIndependently(daemon, least) {
	const checkpoint = await daemon.ask('POST', '/v1/log/checkpoint', {});
	equal(checkpoint.status, 200, 'checkpoint');
	const { lines, vkey } = prove(daemon, least);
	equal(daemon.cli('journal', 'verify', lines, '--log-key', vkey, '--trusted', file('now', checkpoint.body)).code, 0, 'our verifier takes the export');
	if (!existsSync(tool)) {
		console.log('skipped: ../shared is not present (independent verifier)');
		return;
	}
	const kept = (await daemon.get('/v1/log/checkpoints')).checkpoints.flatMap((note, i) => ['--trusted', file(`kept-${i}`, note)]);
	const result = spawnSync(process.execPath, [tool, 'journal', '--vkey', vkey, '--entries', lines, '--checkpoint', file('now', checkpoint.body), ...kept], { encoding: 'utf8' });
	equal(result.status, 0, `verify-tlog (${(result.stdout + result.stderr).slice(0, 600)})`);
	match(result.stdout, /^OK .* pruned \d+/, 'verify-tlog says pruned');
}

await test('with times of seconds and kills all the while: runs leave, facts and open runs stay, the log is proven, the file shrinks', async () => {
	const sim = await startSimulator();
	const daemon = new Daemon('retention', { runtimes: { extractor: { kind: 'simulator', url: sim.url, model: 'reprise-sim', concurrency: 4 } },
		signing: { checkpoint: { entries: 64, every: '1s' } }, retention: { runs: '3s', entries: '6s', keepFacts: 'forever' }, events: { window: '1s', keep: '2s' } });
	await daemon.start();
	await daemon.post('/v1/runs', { id: 'open', definition: definition('open', [{ w: { wait: { hours: 1 } } }]), input: {} }, 201);
	await daemon.post('/v1/runs', { id: 'facts', definition: extractionOf('extractor'), input: { document: documentOf(12) } }, 201);
	const whole = await daemon.ended('facts');
	equal(whole.status, 'completed', 'extraction');
	const facts = await daemon.facts();
	check(facts.length >= 24, 'facts');
	let made = 0, largest = 0, kills = 0;
	for (let round = 0; round < 6; round++) {
		const batch = Array.from({ length: 100 }, () => `quick-${made++}`);
		await Promise.all(batch.map(id => daemon.post('/v1/runs?wait=30s', { id, definition: quick, input: { text: filler() } }, [200, 201])));
		await daemon.post('/v1/events', { specversion: '1.0', id: String(round), source: '/tests', type: 'com.example.test' }, 201, { headers: { 'Content-Type': 'application/cloudevents+json' } });
		if (round < 2) {
			const id = `quick-${made++}`;
			await daemon.post('/v1/runs?wait=30s', { id, definition: quick, input: { text: filler() } }, 201);
			equal((await daemon.run(id)).status, 'completed', 'a run within its time is there');
		}
		await pause(200 + draw() * 1500);
		largest = Math.max(largest, statSync(join(daemon.data, 'journal.db')).size);
		await daemon.kill();
		kills++;
		await daemon.start();
	}
	for (let i = 0; i < 8; i++) { // no more work: these kills fall among passes
		await pause(300 + draw() * 900);
		await daemon.kill();
		kills++;
		await daemon.start();
	}
	equal(kills, 14, 'kills');
	await until('all quick runs are removed', async () => (await daemon.get('/v1/journal/stats')).removedRuns === made + 1, 60_000, 200);
	await until('tiles are pruned', async () => (await daemon.get('/v1/journal/stats')).prunedEntries > 1500, 60_000, 200);
	const stats = await daemon.get('/v1/journal/stats');
	equal([stats.runs, stats.openRuns, stats.retention], [1, 1, { dueRuns: 0 }], 'only the open run is left, and nothing is due');
	const kinds = Object.values(stats.entryKinds).reduce((sum, kind) => sum + kind.rows, 0);
	equal(kinds, stats.tables.entry.rows, 'entries by kind');
	check(stats.entryKinds['fact.recorded'].rows >= 1 && stats.entryKinds['fact.recorded'].bytes > 100, () => JSON.stringify(stats.entryKinds));

	// Reads of what is gone: 410 and the story.
	for (const path of ['', '?include=all', '/events', '/tasks'])
		problem(await daemon.ask('GET', `/v1/runs/quick-0${path}`), 410, /quick-0 ended on .* removed on .* by retention \(retention\.runs: 3s\)/);
	problem(await daemon.ask('POST', '/v1/runs/quick-0/replay', {}), 410, /by retention/);
	problem(await daemon.ask('GET', '/v1/runs/nobody'), 404, /there is no run nobody/);
	problem(await daemon.ask('POST', '/v1/runs', { id: 'quick-0', definition: quick, input: { text: 'x' } }), 410, /the id is not used again, choose another/);
	for (const verb of [['show'], ['result'], ['events'], ['replay']]) {
		const result = daemon.cli(...verb, 'quick-1');
		equal(result.code, 4, `${verb} of a run that is gone (${result.stderr})`);
		match(result.stderr, /removed on .* by retention/, verb[0]);
	}
	// Facts are kept, listed, and proven, each with its envelope.
	equal((await daemon.facts()).map(fact => fact.id), facts.map(fact => fact.id), 'facts');
	equal((await daemon.facts('workflow=tests/extract')).length, facts.length, 'facts by workflow');
	equal((await daemon.get(`/v1/facts/${facts[0].id}`)).run, 'facts', 'the run of a kept fact');
	const verified = daemon.cli('fact', 'verify', '--all');
	equal(verified.code, 0, `fact verify (${verified.stdout.slice(-800)}${verified.stderr})`);
	// Feeds go on behind what is gone, and say so.
	const page = await daemon.get('/v1/events?after=2000&limit=5');
	check(page.pruned !== undefined && page.pruned.from === 2001 && page.pruned.to > 2001, () => `the feed says what was pruned: ${JSON.stringify(page).slice(0, 300)}`);
	check(page.next > page.pruned.to, 'and goes on behind it');
	problem(await daemon.ask('GET', '/v1/log/tile/entries/005'), 410, /was pruned/);
	await proveIndependently(daemon, 1500);
	// What is open goes on.
	equal((await daemon.run('open')).status, 'waiting', 'the open run');
	await daemon.post('/v1/runs/open/cancel', {}, 200);
	equal((await daemon.ended('open')).status, 'cancelled', 'the open run ends');
	equal(daemon.cli('replay', 'open').code, 0, 'and replays');
	// Its pages go back.
	const compact = daemon.cli('journal', 'compact', '-o', 'json');
	equal(compact.code, 0, `journal compact (${compact.stderr})`);
	const now = statSync(join(daemon.data, 'journal.db')).size;
	check(now < largest / 2, `the file has ${now} bytes, it had ${largest}`);
	equal((await daemon.get('/v1/journal/stats')).freeBytes, 0, 'no page is free');
	await daemon.stop();
	const checked = spawnSync(programs.daemon, ['--data', daemon.data, '--check'], { encoding: 'utf8' });
	equal(checked.status, 0, `reprised --check (${checked.stdout}${checked.stderr})`);
	const offline = spawnSync(programs.cli, ['journal', 'verify', '--data', daemon.data], { encoding: 'utf8' });
	equal(offline.status, 0, `journal verify --data (${offline.stdout}${offline.stderr})`);
	match(offline.stdout, /entries were pruned/, 'offline');
	await daemon.start();
	await daemon.stop();
});

await test('purge removes ended runs at once, for a reason; erasing takes a value everywhere, and replay says which one it misses', async () => {
	const daemon = new Daemon('retention-purge');
	await daemon.start();
	await daemon.post('/v1/runs', { id: 'open', definition: definition('open', [{ w: { wait: { hours: 1 } } }]), input: {} }, 201);
	for (const id of ['one', 'two', 'three'])
		await daemon.post('/v1/runs?wait=30s', { id, definition: quick, input: { text: 'a very personal sentence' } }, 201);
	const purge = (...args) => daemon.cli('purge', ...args);
	equal(purge('one', '--yes').code, 2, 'without a reason');
	equal(purge('open', 'one', '--reason', 'why', '--yes').code, 5, 'a run that has not ended');
	equal((await daemon.run('one')).status, 'completed', 'none or all');
	equal(purge('nobody', '--reason', 'why', '--yes').code, 4, 'no such run');
	const reason = `asked to ${'ü'.repeat(120)}`; // nearly as long as a reason can be
	const done = purge('one', '--reason', reason, '--yes', '-o', 'json');
	equal([done.code, done.json().runs], [0, 1], 'purged');
	problem(await daemon.ask('GET', '/v1/runs/one'), 410, new RegExp(`was purged on .* because: ${reason}"`));
	equal(purge('one', '--reason', 'again', '--yes').code, 4, 'again');
	problem(await daemon.ask('POST', '/v1/journal/purge', { runs: ['two'] }), 400, /reason/);
	problem(await daemon.ask('POST', '/v1/journal/purge', { runs: [], reason: 'x' }), 400, /1 to 256/);
	problem(await daemon.ask('POST', '/v1/journal/purge', { runs: ['a/b'], reason: 'x' }), 400, /runs\[0\]/);
	problem(await daemon.ask('POST', '/v1/journal/purge', { content: 'x', reason: 'x' }), 400, /digest/);
	problem(await daemon.ask('POST', '/v1/journal/purge', { content: `sha256:${'0'.repeat(64)}`, runs: ['two'], reason: 'x' }), 400, /either/);
	problem(await daemon.ask('POST', '/v1/journal/purge', { content: `sha256:${'0'.repeat(64)}`, reason: 'x' }), 404, /no value/);

	// One value of two runs.
	equal(daemon.cli('replay', 'two').code, 0, 'replay');
	const created = (await daemon.events('two')).find(entry => entry.kind === 'run.created');
	const digest = `sha256:${JSON.stringify(created.data).match(/"input":\{"sha256":"([0-9a-f]{64})"/)?.[1] ?? JSON.stringify(created.data).match(/"input":"sha256:([0-9a-f]{64})"/)[1]}`;
	const erased = daemon.cli('document', 'erase', digest, '--reason', 'a person asked', '--yes', '-o', 'json');
	equal([erased.code, erased.json?.().values], [0, 2], `document erase (${erased.stderr})`);
	for (const id of ['two', 'three']) {
		problem(await daemon.ask('POST', `/v1/runs/${id}/replay`, {}), 410, new RegExp(`cannot be decided again.*${digest} was erased on .* because: a person asked`));
		equal((await daemon.run(id)).status, 'completed', 'the run is still listed');
	}
	equal(daemon.cli('document', 'erase', digest, '--reason', 'again', '--yes').code, 4, 'again');

	// A document that is uploaded.
	const document = await daemon.post('/v1/documents', 'the whole document', 201, { headers: { 'Content-Type': 'text/plain' } });
	equal((await daemon.ask('GET', `/v1/documents/${document.digest}`)).status, 200, 'the document');
	equal(daemon.cli('document', 'erase', document.digest, '--reason', 'a person asked', '--yes').stdout, `${document.digest}  erased, 1 stored copy\n`, 'erase');
	problem(await daemon.ask('GET', `/v1/documents/${document.digest}`), 410, /was erased on .* because: a person asked/);
	await daemon.kill();
	await daemon.start();
	problem(await daemon.ask('GET', `/v1/documents/${document.digest}`), 410, /was erased on/);
	problem(await daemon.ask('GET', '/v1/runs/one'), 410, /asked to/);
	match(daemon.verifyJournal().stdout, /2 values were erased/, 'verify says erased');
	await daemon.stop();
});

await finish();
