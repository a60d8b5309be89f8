// One extraction, exported whole, and checked by two programs that share no line with Reprise: verify-dsse.mjs and verify-tlog.mjs in
// ../shared/tools (REPRISE_SHARED). Then single bytes are flipped in copies, and they and `reprise` refuse them.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { Daemon, check, cli, documentOf, equal, extractionOf, finish, folder, match, random, root, seedOf, startSimulator, test } from '../support/harness.mjs';

const shared = process.env.REPRISE_SHARED || join(root, '../shared');
if (!existsSync(join(shared, 'tools/verify-dsse.mjs')) || !existsSync(join(shared, 'tools/verify-tlog.mjs'))) {
	console.log('skipped: ../shared is not present (independent verifiers)');
	console.log('0 passed, 0 failed');
	process.exit(0);
}

const draw = random(seedOf(91));
const out = folder('verifiers');
const file = (name, bytes) => { const path = join(out, name); mkdirSync(dirname(path), { recursive: true }); writeFileSync(path, bytes); return path; };
const verifier = (tool, ...args) => {
	const result = spawnSync(process.execPath, [join(shared, 'tools', tool), ...args], { encoding: 'utf8', maxBuffer: 64 << 20 });
	return { code: result.status, text: result.stdout + result.stderr, stdout: result.stdout };
};
const good = (what, tool, ...args) => {
	const result = verifier(tool, ...args);
	equal(result.code, 0, `${what} (${result.text.slice(0, 1000)})`);
	return result;
};
const refused = (what, tool, ...args) => {
	const result = verifier(tool, ...args);
	check([1, 2].includes(result.code), () => `${what}: was taken (exit ${result.code}): ${result.text.slice(0, 500)}`);
	match(result.text, /^(FAIL|MALFORMED)/m, what);
	return result;
};
// The same program, loaded once: a process for each of many flipped bytes takes minutes on a busy machine.
const dsse = await import(join(shared, 'tools/verify-dsse.mjs')), tlog = await import(join(shared, 'tools/verify-tlog.mjs'));
function throws(what, body) {
	let said = null;
	try { body(); } catch (error) { said = error; }
	check(said instanceof tlog.Failed || said instanceof tlog.Malformed, () => `${what}: ${said === null ? 'was taken' : said.stack}`);
}
// A copy with one bit of one byte changed.
const flipped = (bytes, at, bit = 0) => { const copy = Buffer.from(bytes); copy[at] ^= 1 << bit; return copy; };

const sim = await startSimulator();
const daemon = new Daemon('verifiers', { runtimes: { extractor: { kind: 'simulator', url: sim.url, model: 'reprise-sim', concurrency: 4 } },
	signing: { checkpoint: { entries: 256, every: '1h' } } });
await daemon.start();
const SECTIONS = 150; /* more than two tiles of 256 entries */
const text = documentOf(SECTIONS, 'Mühle');
await daemon.post('/v1/runs', { id: 'proof', definition: extractionOf('extractor'), input: { document: text } }, 201);
const run = await daemon.ended('proof');
const must = (...args) => { const result = daemon.cli(...args); equal(result.code, 0, `reprise ${args.join(' ')} (${result.stderr})`); return result.stdout; };

let facts = [], envelopes, factKey, vkey, ring;
await test('the run gives its facts, and everything can be exported', async () => {
	equal([run.status, run.facts.length], ['completed', 2 * SECTIONS], 'run');
	facts = await daemon.facts('run=proof');
	envelopes = file('facts.intoto.jsonl', must('fact', 'export', '--run', 'proof', '--format', 'dsse'));
	factKey = file('fact.pem', must('key', 'export', '--purpose', 'fact', '--format', 'pem'));
	vkey = file('log.vkey', must('key', 'export', '--purpose', 'log', '--format', 'vkey'));
	ring = file('ring.json', must('key', 'export', '--format', 'ring'));
	equal(readFileSync(envelopes, 'utf8').trim().split('\n').length, facts.length, 'one envelope a line');
});

// ---- Envelopes ----

await test('verify-dsse: every envelope is signed by the fact key, its payload canonical, its predicate ours', () => {
	const result = good('envelopes', 'verify-dsse.mjs', '--key', factKey, '--canonical', '--predicate-type',
		'https://reprise.example/attestation/extracted-fact/v1', '--json', envelopes);
	const lines = result.stdout.trim().split('\n').map(line => JSON.parse(line));
	equal([lines.length, lines.every(line => line.ok)], [facts.length, true], 'results');
	equal(lines.map(line => line.payloadSha256).sort(), facts.map(fact => fact.id).sort(), "a fact's id is its payload's digest");
});

await test('verify-dsse: the subject is the fact of the fact document, and the key ring takes the key at the time of signing', async () => {
	for (const fact of [facts[0], facts.at(-1)]) {
		const envelope = await daemon.ask('GET', `/v1/facts/${fact.id}/attestation`);
		equal(envelope.status, 200, 'attestation');
		const path = file('one.json', envelope.body);
		const statement = JSON.parse(good('payload', 'verify-dsse.mjs', '--key', factKey, '--print-payload', path).stdout);
		good('subject', 'verify-dsse.mjs', '--key', factKey, '--subject-sha256', statement.subject[0].digest.sha256, path);
		refused('another subject', 'verify-dsse.mjs', '--key', factKey, '--subject-sha256', '0'.repeat(64), path);
		const source = statement.predicate.extraction.source;
		equal(source.digest.sha256, fact.section.digest.replace('sha256:', ''), 'section');
		const { byteStart, byteEnd } = source.annotations, [start, end] = fact.grounding.bytes;
		equal([byteStart, byteEnd], fact.section.bytes, 'place of the section');
		check(byteStart <= start && end <= byteEnd, 'the quote lies in its section');
		equal(Buffer.from(text).subarray(start, end).toString(), fact.quote, 'the quote stands in the document where the fact says');
	}
	good('ring', 'verify-dsse.mjs', '--key', factKey, '--keyring', ring, envelopes);
});

await test('a flipped byte anywhere in an envelope is refused by verify-dsse and by reprise', () => {
	const line = Buffer.from(readFileSync(envelopes, 'utf8').split('\n')[0]);
	const shape = JSON.parse(line.toString()), trusted = [dsse.loadKey(factKey)];
	check(dsse.verifyEnvelope(line, trusted).ok, 'verify-dsse takes it as it is');
	// What is signed: the payload, its type, the signature. The key id is a hint, and layout means nothing.
	const places = [];
	for (const [name, value] of [['payload', shape.payload], ['payloadType', shape.payloadType], ['sig', shape.signatures[0].sig]]) {
		const start = line.indexOf(`"${name}":"`) + name.length + 4;
		check(start > name.length + 4, `the envelope has "${name}"`);
		for (let i = 0; i < 12; i++)
			places.push([name, start + Math.floor(draw() * (value.length - 3))]);
	}
	for (const [name, at] of places) {
		const bytes = flipped(line, at, Math.floor(draw() * 5)), path = file('flipped.json', bytes);
		check(!dsse.verifyEnvelope(bytes, trusted).ok, `verify-dsse took byte ${at} in ${name}`);
		const result = cli('fact', 'verify', path, '--key', factKey);
		check([22, 25].includes(result.code), () => `reprise took byte ${at} in ${name} (exit ${result.code}): ${result.stdout}${result.stderr}`);
	}
	const whole = file('whole.json', line), control = cli('fact', 'verify', whole, '--key', factKey);
	equal(control.code, 0, `reprise takes it as it is (${control.stdout}${control.stderr})`);
});

await test('another key is refused by both', () => {
	const other = join(out, 'other.pem');
	equal(cli('key', 'generate', '--purpose', 'fact', other).code, 0, 'key generate');
	refused('another key', 'verify-dsse.mjs', '--key', `${other}.pub`, envelopes);
	const result = cli('fact', 'verify', envelopes, '--key', `${other}.pub`);
	check([22, 26].includes(result.code), () => `exit ${result.code}: ${result.stdout}${result.stderr}`);
});

// ---- The log ----

let entries, oldCheckpoint, newCheckpoint, journalFile;
const sizeOf = path => Number(readFileSync(path, 'utf8').split('\n')[1]);

await test('verify-tlog: a checkpoint signed now, and all entries lead to its root', async () => {
	const signed = await daemon.ask('POST', '/v1/log/checkpoint', {});
	check([200, 201].includes(signed.status), () => `POST /v1/log/checkpoint: ${signed.status} ${signed.text}`);
	oldCheckpoint = file('old', (await daemon.ask('GET', '/v1/log/checkpoint')).body);
	good('checkpoint', 'verify-tlog.mjs', 'checkpoint', '--vkey', vkey, oldCheckpoint);
	entries = await daemon.journal();
	journalFile = file('journal.jsonl', entries.map(entry => `${entry}\n`).join(''));
	check(entries.length > 512, `${entries.length} entries are not more than two tiles`);
	match(good('journal', 'verify-tlog.mjs', 'journal', '--vkey', vkey, '--entries', journalFile, '--checkpoint', oldCheckpoint).text, /^OK /, 'journal');
});

await test('verify-tlog: every checkpoint that the daemon kept is one of this journal', async () => {
	const { checkpoints } = await daemon.get('/v1/log/checkpoints');
	check(checkpoints.length >= 3, `${checkpoints.length} checkpoints`);
	const trusted = checkpoints.flatMap((note, i) => ['--trusted', file(`checkpoint.${i}`, note)]);
	good('checkpoints', 'verify-tlog.mjs', 'journal', '--vkey', vkey, '--entries', journalFile, '--checkpoint', oldCheckpoint, ...trusted);
});

await test('verify-tlog: each fact is proven to be in the log', async () => {
	for (const fact of [facts[0], facts[Math.floor(facts.length / 2)], facts.at(-1)]) {
		const answer = await daemon.get(`/v1/facts/${fact.id}/entry`);
		equal([answer.seq, answer.entry], [fact.seq, entries[fact.seq]], 'entry');
		const proof = file('fact.tlog-proof', answer.proof), entry = file('fact.entry', answer.entry);
		good('inclusion', 'verify-tlog.mjs', 'inclusion', '--vkey', vkey, '--proof', proof, '--entry', entry);
		const recorded = JSON.parse(answer.entry);
		equal([recorded.kind, recorded.data.payload.sha256], ['fact.recorded', fact.id], 'what the entry records');
		refused('flipped entry', 'verify-tlog.mjs', 'inclusion', '--vkey', vkey, '--proof', proof, '--entry', file('flipped.entry', flipped(Buffer.from(answer.entry), 40)));
		const key = tlog.parseVkey(readFileSync(vkey, 'utf8'), 1);
		const include = (proofBytes, entryBytes) => {
			const parsed = tlog.parseTlogProof(proofBytes), checkpoint = tlog.openCheckpoint(parsed.checkpoint, key);
			tlog.checkInclusion(parsed.index, checkpoint.size, tlog.leafHash(entryBytes), parsed.hashes, checkpoint.root);
		};
		const proofBytes = Buffer.from(answer.proof), entryBytes = Buffer.from(answer.entry);
		include(proofBytes, entryBytes);
		for (let i = 0; i < 200; i++) {
			throws('flipped entry', () => include(proofBytes, flipped(entryBytes, Math.floor(draw() * entryBytes.length), i % 8)));
			throws('flipped proof', () => include(flipped(proofBytes, Math.floor(draw() * (proofBytes.length - 1)), i % 8), entryBytes));
		}
	}
});

// RFC 6962 2.1.2, from the exported entries alone: PROOF(m, D[n]).
function rootOf(leaves) { const tree = new tlog.Frontier(); leaves.forEach(leaf => tree.push(leaf)); return tree.root(); }
const splitOf = n => { let k = 1; while (2 * k < n) k *= 2; return k; };
function consistency(m, leaves, whole = true) {
	const n = leaves.length, k = splitOf(n);
	if (m === n)
		return whole ? [] : [rootOf(leaves)];
	return m <= k ? [...consistency(m, leaves.slice(0, k), whole), rootOf(leaves.slice(k))] : [...consistency(m - k, leaves.slice(k), false), rootOf(leaves.slice(0, k))];
}

await test('verify-tlog: a later checkpoint continues the earlier one, over a SIGKILL and a restart', async () => {
	await daemon.post('/v1/runs', { id: 'later', definition: extractionOf('extractor'), input: { document: documentOf(5, 'Turm') } }, 201);
	await daemon.ended('later');
	await daemon.kill();
	await daemon.start();
	await daemon.ask('POST', '/v1/log/checkpoint', {});
	newCheckpoint = file('new', (await daemon.ask('GET', '/v1/log/checkpoint')).body);
	const all = await daemon.journal(), m = sizeOf(oldCheckpoint), n = sizeOf(newCheckpoint);
	check(n > m, `sizes ${m}, ${n}`);
	equal(all.slice(0, entries.length), entries, 'what was there before is there unchanged');
	entries = all;
	journalFile = file('journal.jsonl', all.map(entry => `${entry}\n`).join(''));
	const proof = consistency(m, all.slice(0, n).map(entry => tlog.leafHash(Buffer.from(entry)))).map(hash => `${hash.toString('base64')}\n`).join('');
	good('consistency', 'verify-tlog.mjs', 'consistency', '--vkey', vkey, '--old', oldCheckpoint, '--new', newCheckpoint, '--proof', file('consistency', proof));
	good('journal', 'verify-tlog.mjs', 'journal', '--vkey', vkey, '--entries', journalFile, '--checkpoint', newCheckpoint, '--trusted', oldCheckpoint);
	refused('the wrong way round', 'verify-tlog.mjs', 'consistency', '--vkey', vkey, '--old', newCheckpoint, '--new', oldCheckpoint, '--proof', join(out, 'consistency'));
});

await test('verify-tlog: the tiles that the daemon serves are those of the journal', async () => {
	const size = sizeOf(newCheckpoint), dir = join(out, 'tiles');
	for (let n = 0; n * 256 < size; n++) {
		const width = Math.min(256, size - n * 256), partial = width < 256 ? `.p/${width}` : '';
		const path = String(n).padStart(3, '0') + partial;
		const bundle = await daemon.ask('GET', `/v1/log/tile/entries/${path}`);
		equal(bundle.status, 200, `tile/entries/${path} (${bundle.text.slice(0, 200)})`);
		file(join('tiles/tile/entries', path), bundle.body);
		const hashes = await daemon.ask('GET', `/v1/log/tile/0/${path}`);
		equal(hashes.status, 200, `tile/0/${path}`);
		const expected = Buffer.concat(entries.slice(n * 256, n * 256 + width).map(entry => tlog.leafHash(Buffer.from(entry))));
		check(hashes.body.equals(expected), `hashes of tile/0/${path}`);
	}
	good('tiles', 'verify-tlog.mjs', 'journal', '--vkey', vkey, '--tiles', dir, '--checkpoint', newCheckpoint, '--trusted', oldCheckpoint);
	const first = await daemon.ask('GET', `/v1/log/tile/1/000.p/${Math.floor(size / 256)}`);
	equal(first.status, 200, 'tile of level 1');
	check(first.body.subarray(0, 32).equals(rootOf(entries.slice(0, 256).map(entry => tlog.leafHash(Buffer.from(entry))))), 'its first hash is the root of the first 256 leaves');
});

await test('a flipped byte in the exported journal or a checkpoint is refused by verify-tlog', () => {
	const journal = readFileSync(journalFile), note = readFileSync(newCheckpoint);
	const covered = Buffer.from(entries.slice(0, sizeOf(newCheckpoint)).map(entry => `${entry}\n`).join('')).length;
	refused('a byte of the journal', 'verify-tlog.mjs', 'journal', '--vkey', vkey, '--entries', file('flipped.jsonl', flipped(journal, covered >> 1)), '--checkpoint', newCheckpoint);
	refused('a byte of the checkpoint', 'verify-tlog.mjs', 'checkpoint', '--vkey', vkey, file('flipped.checkpoint', flipped(note, note.length >> 1)));
	const key = tlog.parseVkey(readFileSync(vkey, 'utf8'), 1), signed = { ...tlog.openCheckpoint(note, key), label: 'new' };
	const replay = bytes => tlog.replay(tlog.jsonlEntries(file('flipped.jsonl', bytes)), [signed]);
	replay(journal);
	for (let i = 0; i < 40; i++) {
		const at = Math.floor(draw() * (covered - 1)), place = Math.floor(draw() * (note.length - 1));
		throws(`byte ${at} of the journal`, () => replay(flipped(journal, at, i % 8)));
		throws(`byte ${place} of the checkpoint`, () => tlog.openCheckpoint(flipped(note, place, i % 8), key));
	}
	const lines = journal.toString().trimEnd().split('\n');
	refused('a dropped entry', 'verify-tlog.mjs', 'journal', '--vkey', vkey, '--entries', file('dropped.jsonl', [...lines.slice(0, 40), ...lines.slice(41), ''].join('\n')), '--checkpoint', newCheckpoint);
	refused('a cut journal', 'verify-tlog.mjs', 'journal', '--vkey', vkey, '--entries', file('cut.jsonl', [...lines.slice(0, sizeOf(newCheckpoint) - 1), ''].join('\n')), '--checkpoint', newCheckpoint);
});

await test('reprise journal verify takes the journal, with a kept checkpoint too, and refuses a checkpoint of another log', () => {
	daemon.verifyJournal();
	equal(daemon.cli('journal', 'verify', '--trusted', oldCheckpoint).code, 0, 'with a kept checkpoint');
	const note = readFileSync(oldCheckpoint);
	const result = daemon.cli('journal', 'verify', '--trusted', file('flipped.checkpoint', flipped(note, note.indexOf(0x0a) + 1)));
	check([23, 25].includes(result.code), () => `exit ${result.code}: ${result.stdout}${result.stderr}`);
});

await daemon.stop();

// ---- The data folder itself ----

await test('a byte flipped in the data folder is found by reprise: exit 23', async () => {
	const database = readdirSync(daemon.data).find(name => /\.(db|sqlite3?)$/.test(name));
	check(database, `no database in ${readdirSync(daemon.data)}`);
	equal(cli('journal', 'verify', '--data', daemon.data).code, 0, 'as it is');
	const path = join(daemon.data, database), bytes = readFileSync(path);
	// A short entry lies in the file in one piece; its time stamp gets another digit.
	const entry = entries.filter(text => text.length < 300)[20], at = bytes.indexOf(entry);
	check(at > 0, 'the entry stands in the file');
	writeFileSync(path, flipped(bytes, at + entry.indexOf('"ts":"') + 26));
	const result = cli('journal', 'verify', '--data', daemon.data);
	equal(result.code, 23, `journal verify (${result.stdout}${result.stderr})`);
	writeFileSync(path, bytes);
	equal(cli('journal', 'verify', '--data', daemon.data).code, 0, 'put back');
});

await sim.stop();
await finish();
