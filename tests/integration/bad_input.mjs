// Bad input and bad luck, each with a clear error and nothing lost: what is wrong with a request is told before anything is accepted, what
// goes wrong at a runtime names its class, and after each case the daemon lives and an earlier run is there with all its facts.
import { chmodSync, chownSync, copyFileSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync } from 'node:fs';
import net from 'node:net';
import { join } from 'node:path';
import { Daemon, ask, check, cli, definition, documentOf, equal, exitOf, extractionOf, finish, match, pause, problem, programs, sha256, startSimulator, test, until } from '../support/harness.mjs';

// A port on which nobody listens: it was ours a moment ago.
async function deadPort() {
	const server = net.createServer().listen(0, '127.0.0.1');
	await new Promise(done => server.on('listening', done));
	const { port } = server.address();
	await new Promise(done => server.close(done));
	return port;
}

const sim = await startSimulator();
// A busy machine may take its time over a good answer; only who is to find one stalled is in a hurry.
const timeouts = { connect: '30s', firstToken: '60s', betweenTokens: '60s', total: '2m' }, hurry = { ...timeouts, firstToken: '4s', betweenTokens: '3s' }, once = { attempts: 1, floor: '10ms', cap: '50ms' };
const configuration = { runtimes: {
	extractor: { kind: 'simulator', url: sim.url, model: 'reprise-sim', concurrency: 2, timeouts, retry: once },
	patient: { kind: 'simulator', url: sim.url, model: 'reprise-sim', concurrency: 2, timeouts, retry: { attempts: 3, floor: '20ms', cap: '50ms' } },
	hurried: { kind: 'simulator', url: sim.url, model: 'reprise-sim', concurrency: 2, timeouts: hurry, retry: once },
	again: { kind: 'simulator', url: sim.url, model: 'reprise-sim', concurrency: 2, timeouts: hurry, retry: { attempts: 3, floor: '20ms', cap: '50ms' } },
	nobody: { kind: 'openai', url: `http://127.0.0.1:${await deadPort()}`, model: 'none', timeouts, retry: once },
} };
const daemon = new Daemon('bad-input', configuration);
await daemon.start();
const pid = daemon.pid;

const two = documentOf(2), plain = documentOf(1);
const submit = (id, document, { runtime = 'extractor', ...more } = {}) =>
	daemon.post('/v1/runs', { id, definition: extractionOf(runtime, more), input: { document } }, 201);
await submit('earlier', documentOf(3));
const earlier = await daemon.ended('earlier'), earlierFacts = await daemon.facts('run=earlier');

// What holds after each case.
async function nothingLost(ids = []) {
	equal(daemon.child?.pid, pid, 'the daemon is the same process');
	equal((await daemon.ask('GET', '/healthz')).status, 200, 'health');
	equal(await daemon.run('earlier'), earlier, 'the earlier run');
	equal(await daemon.facts('run=earlier'), earlierFacts, "the earlier run's facts");
	for (const id of ids)
		problem(await daemon.ask('GET', `/v1/runs/${id}`), 404, new RegExp(id));
}

await test('the earlier run is good: what is compared below is not empty', () => {
	equal([earlier.status, earlier.facts.length, earlierFacts.length], ['completed', 6, 6], 'earlier');
});

// ---- Refused before anything is accepted ----

const yaml = { headers: { 'Content-Type': 'application/yaml' } };
const yamlDefinition = `document:
  dsl: '1.0.3'
  namespace: tests
  name: bad
  version: '1.0.0'
do:
  - one:
      set: {a: 1}
      colour: blue
`;

await test('a definition that is not YAML: 400, with line and column of the place', async () => {
	for (const [text, line] of [['document: [1, 2\ndo: {', 2], ['a: b: c', 1], ['document:\n\tdsl: x\n', 2], ['"unclosed', 1], ['just a text', 1]]) {
		const answer = problem(await daemon.ask('POST', '/v1/definitions', text, yaml), 400);
		check(answer.problems?.length > 0, () => `no problems: ${JSON.stringify(answer)}`);
		const [first] = answer.problems;
		check(first.line >= 1 && first.line <= line + 1 && first.column >= 1 && first.message.length > 0, () => `place of ${JSON.stringify(text)}: ${JSON.stringify(first)}`);
	}
	await nothingLost();
});

await test('an unknown key: 400 that names the key, its pointer, line and column', async () => {
	const answer = problem(await daemon.ask('POST', '/v1/definitions', yamlDefinition, yaml), 400, /colour/);
	const found = answer.problems.find(item => /colour/.test(item.message));
	equal([found?.line, found?.column, found?.pointer], [9, 7, '/do/0/one/colour'], `place (${JSON.stringify(answer.problems)})`);
	const { definitions } = await daemon.get('/v1/definitions');
	check(!definitions.some(item => item.name === 'bad'), 'it was not registered');
	await nothingLost();
});

await test('an unknown key in an inline definition: 400 with the pointer, and no run', async () => {
	const bad = definition('inline', [{ one: { set: { a: 1 }, colour: 'blue' } }]);
	const answer = problem(await daemon.ask('POST', '/v1/runs', { id: 'unknown-key', definition: bad }), 400, /colour/);
	equal(answer.problems.find(item => /colour/.test(item.message))?.pointer, '/do/0/one/colour', 'pointer');
	await nothingLost(['unknown-key']);
});

await test('a definition over the body limit: 413 that names the limit and the size, whether registered or inline', async () => {
	const size = (2 << 20) + 4096, filler = 'x'.repeat(size - Buffer.byteLength(yamlDefinition) - 2);
	const text = `${yamlDefinition}#${filler}\n`;
	equal(Buffer.byteLength(text), size, 'size');
	const registered = problem(await daemon.ask('POST', '/v1/definitions', text, yaml), 413);
	match(registered.detail, new RegExp(`${size}.*${2 << 20}|${2 << 20}.*${size}`), 'detail');
	equal([registered.limit, registered.size], [2 << 20, size], 'members limit and size');
	const body = JSON.stringify({ id: 'huge', definition: definition('huge', [{ one: { set: { a: 'x'.repeat(2 << 20) } } }]) });
	match(problem(await daemon.ask('POST', '/v1/runs', body), 413).detail, new RegExp(`${body.length}.*${2 << 20}|${2 << 20}.*${body.length}`), 'detail');
	await nothingLost(['huge']);
});

await test('a definition of 2 MiB less a little is over the limit of one definition: refused, with limit and size', async () => {
	const text = `${yamlDefinition.replace(/ +colour.*\n/, '')}#${'x'.repeat((2 << 20) - 4096)}\n`;
	const answer = await daemon.ask('POST', '/v1/definitions', text, yaml);
	check([400, 413].includes(answer.status), () => `${answer.status} ${answer.text.slice(0, 300)}`);
	problem(answer, answer.status, new RegExp(`${1 << 20}`));
	match(answer.text, new RegExp(`${Buffer.byteLength(text)}`), 'the size');
	await nothingLost();
});

await test('a body over the limit that comes in chunks, without a length: 413 all the same', async () => {
	const answer = await new Promise(done => {
		const socket = net.connect(daemon.socket, () => {
			socket.write('POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n');
			const piece = Buffer.concat([Buffer.from('10000\r\n'), Buffer.alloc(0x10000, 0x20), Buffer.from('\r\n')]);
			for (let i = 0; i < 40; i++)
				socket.write(piece);
			socket.write('0\r\n\r\n');
		});
		let text = '';
		socket.on('data', data => { text += data; });
		socket.on('error', () => {});
		socket.on('close', () => done(text));
	});
	match(answer, /^HTTP\/1\.1 413 /, 'status');
	match(answer, new RegExp(`${2 << 20}`), 'limit');
	await nothingLost();
});

await test('requests that are not JSON, no object, or hold unknown members: 400', async () => {
	const set = definition('set', [{ one: { set: { a: 1 } } }]);
	for (const [body, pattern] of [['{', /./], ['', /./], ['[]', /./], ['null', /./], [JSON.stringify({ id: 'x' }), /definition/], [JSON.stringify({ definition: 7 }), /definition/],
		[JSON.stringify({ id: 'bad id', definition: set }), /id/], [JSON.stringify({ id: 'x'.repeat(65), definition: set }), /64/],
		[JSON.stringify({ id: '', definition: set }), /id/], [JSON.stringify({ id: 'x', definition: set, colour: 1 }), /colour/],
		[JSON.stringify({ id: 'x', definition: set, labels: { a: 1 } }), /label/], ['{"id":"x","id":"x","definition":{}}', /duplicate|twice/i]])
		problem(await daemon.ask('POST', '/v1/runs', body), 400, pattern);
	problem(await daemon.ask('POST', '/v1/runs', { id: 'x', definition: 'tests/none:1.0.0' }), 404, /tests\/none/);
	await nothingLost(['x']);
});

await test('invalid UTF-8 and NUL in a request: 400', async () => {
	const [before, after] = JSON.stringify({ id: 'utf8', definition: extractionOf('extractor'), input: { document: 'A@B' } }).split('@');
	for (const bytes of [[0xff], [0xc3], [0xed, 0xa0, 0x80], [0xc0, 0xaf], [0xf4, 0x90, 0x80, 0x80]])
		problem(await daemon.ask('POST', '/v1/runs', Buffer.concat([Buffer.from(before), Buffer.from(bytes), Buffer.from(after)])), 400, /UTF-8/);
	problem(await daemon.ask('POST', '/v1/runs', Buffer.concat([Buffer.from(before), Buffer.from([0]), Buffer.from(after)])), 400);
	problem(await daemon.ask('POST', '/v1/runs', `${before}\\u0000${after}`), 400, /NUL|U\+0000|u0000/i);
	problem(await daemon.ask('POST', '/v1/runs', `${before}\\ud800${after}`), 400, /surrogate/i);
	await nothingLost(['utf8']);
});

await test('bytes that are no UTF-8 in a definition: 400, with the place', async () => {
	const bytes = Buffer.from(yamlDefinition.replace('blue', '@'));
	bytes[bytes.indexOf('@')] = 0xff;
	const answer = problem(await daemon.ask('POST', '/v1/definitions', bytes, yaml), 400, /UTF-8/);
	equal(answer.problems[0].line, 9, `line (${JSON.stringify(answer.problems)})`);
	await nothingLost();
});

// ---- Documents ----

// A run whose document cannot be used faults before a model is asked, and names the class `configuration`.
async function unusable(id, document, pattern) {
	const requests = (await sim.state()).requests;
	await submit(id, document);
	const run = await daemon.ended(id);
	equal([run.status, run.error?.class, run.facts], ['faulted', 'configuration', []], `${id} (${JSON.stringify(run.error)})`);
	for (const member of ['type', 'status', 'title', 'detail', 'instance'])
		check(member in run.error, () => `error has no "${member}": ${JSON.stringify(run.error)}`);
	match(run.error.type, /^https:\/\/serverlessworkflow\.io\/spec\/1\.0\.0\/errors\/configuration$/, 'type');
	match(run.error.detail, pattern, 'detail');
	equal((await sim.state()).requests, requests, 'no model was asked');
	equal((await daemon.facts(`run=${id}&rejected=true`)).length, 0, 'no fact, not even a rejected one');
	await nothingLost();
}

await test('a document that is not there: faulted with class configuration, and the digest', () =>
	unusable('missing', { digest: `sha256:${'0'.repeat(64)}` }, new RegExp(`sha256:${'0'.repeat(64)}`)));

await test('a document with a malformed digest', () => unusable('no-digest', { digest: 'sha256:xyz' }, /digest/));

await test('a document that is neither text nor digest', () => unusable('no-document', 7, /document/));

await test('an empty document', () => unusable('empty', '', /empty/));

await test('a document of white space alone', () => unusable('blank', ' \n\n\t\n', /empty|no section|white space|blank/));

await test('an unknown runtime: faulted with class configuration, and what there is to do', async () => {
	await submit('no-runtime', two, { runtime: 'other' });
	const run = await daemon.ended('no-runtime');
	equal([run.status, run.error?.class, run.facts], ['faulted', 'configuration', []], JSON.stringify(run.error));
	match(run.error.detail, /no runtime 'other' is configured; configured: /, 'detail');
	await daemon.post('/v1/runs', { id: 'no-runtime-2', definition: definition('infer', [{ ask: { call: 'inference', with: { runtime: 'other', prompt: 'x' } } }]) }, 201);
	const second = await daemon.ended('no-runtime-2');
	equal([second.status, second.error?.class], ['faulted', 'configuration'], JSON.stringify(second.error));
	match(second.error.detail, /other/, 'detail');
	await nothingLost();
});

// Uploaded bytes that are no text: as text they are refused at once; as plain bytes they are kept, and refused by the run that uses them.
async function badUpload(id, bytes, pattern) {
	const digest = `sha256:${sha256(bytes)}`;
	problem(await daemon.ask('POST', '/v1/documents', bytes, { headers: { 'Content-Type': 'text/markdown' } }), 400, pattern);
	problem(await daemon.ask('GET', `/v1/documents/${digest}`), 404);
	await nothingLost();
	const answer = await daemon.ask('POST', '/v1/documents', bytes, { headers: { 'Content-Type': 'application/octet-stream' } });
	if (bytes.length === 0) {
		problem(answer, 400, pattern);
		return;
	}
	equal([answer.status, answer.json.digest, answer.json.bytes], [201, digest, bytes.length], `as bytes (${answer.text})`);
	await unusable(id, { digest }, pattern);
}

await test('an uploaded document of invalid UTF-8', () =>
	badUpload('bad-utf8', Buffer.concat([Buffer.from('# A\n\nAcme was founded in 1921.'), Buffer.from([0xc3, 0x28, 0xff])]), /UTF-8/));

await test('an uploaded document with NUL bytes', () => badUpload('nul', Buffer.from('# A\n\nAcme was\0 founded in 1921.\n'), /NUL|U\+0000|zero byte/i));

await test('an uploaded document that is empty', () => badUpload('empty-upload', Buffer.alloc(0), /empty/));

await test('an uploaded document is used byte for byte', async () => {
	const bytes = Buffer.from(documentOf(2, 'Färberei'));
	const { digest } = await daemon.post('/v1/documents', bytes, 201, { headers: { 'Content-Type': 'text/markdown' } });
	equal(digest, `sha256:${sha256(bytes)}`, 'digest');
	await submit('upload', { digest });
	const run = await daemon.ended('upload');
	equal([run.status, run.facts.length], ['completed', 4], JSON.stringify(run.error));
	check((await daemon.ask('GET', `/v1/documents/${digest}`)).body.equals(bytes), 'the bytes again');
});

// ---- Answers and connections ----

// One of two sections gets a bad answer. The run completes, the other section's facts are there, the outcome says what was wrong.
async function badAnswer(id, fault, outcome, { rejected = 0, facts = 2, runtime, attempts = 1 } = {}) {
	await sim.script({ faults: [{ match: 'Werk 2 was founded', ...fault }] });
	await submit(id, two, { runtime });
	const run = await daemon.ended(id), { sections, summary } = run.output;
	equal(run.status, 'completed', `status (${JSON.stringify(run.error)})`);
	equal([sections[0].outcome, sections[0].status, sections[0].facts], ['facts', 'completed', 2], 'the other section');
	equal(sections[1].outcome, outcome, 'outcome of the section');
	equal([sections[1].status, sections[1].facts], [outcome === 'facts' || outcome === 'empty' ? 'completed' : 'failed', facts - 2], 'status, facts');
	equal([summary.sections, summary.facts, summary.rejected, summary.failed], [2, facts, rejected, sections[1].status === 'failed' ? 1 : 0], 'summary');
	const accepted = await daemon.facts(`run=${id}`), all = await daemon.facts(`run=${id}&rejected=true`);
	equal([run.facts.length, accepted.length, all.length], [facts, facts, facts + rejected], 'facts, accepted, with rejected');
	check(accepted.every(fact => fact.accepted && two.includes(fact.quote)), 'each accepted quote stands in the document');
	const failures = (await daemon.events(id)).filter(event => event.kind === 'attempt.failed');
	equal(failures.map(event => event.data.class), sections[1].status === 'failed' ? Array(attempts).fill(outcome) : [], 'classes of failed attempts');
	await nothingLost();
	return { run, all };
}

await test('an answer that is not JSON is schema-invalid and gives no candidate', () => badAnswer('not-json', { kind: 'notJson' }, 'schema-invalid'));
await test('an answer that stops in the middle is schema-invalid', () => badAnswer('cut-text', { kind: 'cutText' }, 'schema-invalid'));
await test('an answer that was cut by length is truncated', () => badAnswer('cut', { kind: 'cutByLength' }, 'truncated'));
await test('a stream that ends without an end is truncated', () => badAnswer('eof', { kind: 'eof' }, 'truncated'));
await test('a stalled stream is stalled, within betweenTokens', async () => {
	const began = performance.now();
	await badAnswer('stalled', { kind: 'stall', afterBytes: 400 }, 'stalled', { runtime: 'hurried' });
	check(performance.now() - began < 60_000, 'it took longer than the time-outs allow');
});
await test('a runtime that takes the request and says nothing is stalled, within firstToken', () => badAnswer('hang', { kind: 'hang' }, 'stalled', { runtime: 'hurried' }));
await test('a stream that was reset is a runtime error', () => badAnswer('reset', { kind: 'reset', afterBytes: 400 }, 'runtime-error'));
await test('a connection that is closed without an answer is unreachable', () => badAnswer('closed', { kind: 'close' }, 'unreachable'));
await test('a runtime that is overloaded is rate-limited', () => badAnswer('busy', { kind: 'status', status: 429 }, 'rate-limited'));
await test('what may pass is tried again, as often as the policy says', () => badAnswer('busy-3', { kind: 'status', status: 503 }, 'unreachable', { runtime: 'patient', attempts: 3 }));

await test('a stalled stream is tried again, and the second answer counts', async () => {
	await sim.script({ faults: [{ match: 'Werk 2 was founded', times: 1, kind: 'stall', afterBytes: 400 }] });
	await submit('again', two, { runtime: 'again' });
	const run = await daemon.ended('again');
	equal([run.status, run.facts.length, run.output.summary.answered], ['completed', 4, 2], 'run');
	const kinds = (await daemon.events('again')).filter(event => /^attempt\.|retrying/.test(event.kind) && /#1@/.test(event.data.stepId)).map(event => event.kind);
	equal(kinds, ['attempt.started', 'attempt.failed', 'task.retrying', 'attempt.started', 'attempt.succeeded'], 'entries of the section');
	await nothingLost();
});

await test('a quote that is not in the text is rejected: recorded and signed as FAILED, in no list, output or count', async () => {
	const { run, all } = await badAnswer('ungrounded', { kind: 'ungrounded' }, 'facts', { facts: 3, rejected: 1 });
	const bad = all.find(fact => !fact.accepted);
	check(!two.includes(bad.quote), 'its quote is not in the document');
	equal(bad.grounding?.grade, 'ungrounded', 'grade');
	check(bad.checks.some(item => item.name === 'quote-in-source' && item.result === 'FAILED'), () => `checks: ${JSON.stringify(bad.checks)}`);
	check(!run.facts.includes(bad.id) && !JSON.stringify(run.output).includes(bad.id), 'not in the run');
	const envelope = await daemon.get(`/v1/facts/${bad.id}/attestation`);
	equal(JSON.parse(Buffer.from(envelope.payload, 'base64')).predicate.result.gate.result, 'FAILED', 'what was signed');
	equal(daemon.cli('fact', 'verify', bad.id).code, 0, 'its signature holds');
});

await test('"no facts" is outcome empty, which is not "could not ask"', async () => {
	await sim.script({});
	await submit('none', `${plain}\n# Quiet\n\nNothing happened here for many years.\n`);
	const run = await daemon.ended('none');
	equal(run.output.sections.map(section => [section.status, section.outcome, section.facts]), [['completed', 'facts', 2], ['completed', 'empty', 0]], 'sections');
	equal([run.output.summary.empty, run.output.summary.failed], [1, 0], 'summary');
	await nothingLost();
});

await test('a refused connection: every section unreachable, the run completes and says 0 of 2; with onFailure: fault it faults', async () => {
	await submit('refused', two, { runtime: 'nobody' });
	const run = await daemon.ended('refused');
	equal([run.status, run.facts], ['completed', []], JSON.stringify(run.error));
	equal(run.output.sections.map(section => [section.status, section.outcome, section.facts]), [['failed', 'unreachable', 0], ['failed', 'unreachable', 0]], 'sections');
	equal([run.output.summary.answered, run.output.summary.empty, run.output.summary.failed], [0, 0, 2], 'summary');
	await submit('refused-fault', two, { runtime: 'nobody', onFailure: 'fault' });
	const faulted = await daemon.ended('refused-fault');
	equal([faulted.status, faulted.error?.class, faulted.facts], ['faulted', 'unreachable', []], JSON.stringify(faulted.error));
	match(faulted.error.type, /\/errors\/communication$/, 'type');
	match(faulted.error.detail, /nobody/, 'detail');
	await nothingLost();
});

// ---- Full queues ----

await test('too many that wait: 503 with Retry-After and the limit; those that wait are not disturbed', async () => {
	const small = new Daemon('full', { ...configuration, limits: { waiters: 3 } });
	await small.start();
	await sim.hold();
	await small.post('/v1/runs', { id: 'slow', definition: extractionOf('extractor'), input: { document: plain } }, 201);
	const waiting = Array.from({ length: 3 }, () => small.ask('GET', '/v1/runs/slow?wait=20s'));
	await until('three wait', async () => await small.metric('reprise_http_waiters') === 3);
	const fourth = await small.ask('GET', '/v1/runs/slow?wait=20s');
	match(problem(fourth, 503).detail, /3.*limits\.waiters/, 'detail');
	match(fourth.headers['retry-after'] ?? '', /^[1-9]\d*$/, 'Retry-After');
	await sim.release();
	// A submission that may not wait was not accepted either, or was: its answer must say which, and asking again with the id is safe.
	for (const answer of await Promise.all(waiting))
		equal([answer.status, answer.json?.status], [200, 'completed'], `a waiter (${answer.broken})`);
	await small.stop();
});

await test('a full queue: 503 with Retry-After and the limit; what is refused was not accepted, and later is', async () => {
	const small = new Daemon('full', { ...configuration, limits: { bodies: '1MiB' } });
	await small.start();
	// Three bodies under way that hold 300 KiB each, and do not end.
	const held = [];
	for (let i = 0; i < 3; i++) {
		const socket = net.connect(small.socket);
		await new Promise(done => socket.on('connect', done));
		socket.on('error', () => {});
		socket.write(`POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 400000\r\n\r\n`);
		socket.write(Buffer.alloc(300 << 10, 0x20));
		held.push(socket);
	}
	await pause(2000); // time for them to come; a probe that came before one of them would have its room
	const body = { id: 'later', definition: definition('set', [{ one: { set: { a: '${ .a }' } } }]), input: { a: 'y'.repeat(300 << 10) } };
	const answer = await small.ask('POST', '/v1/runs', body);
	match(problem(answer, 503).detail, /1048576.*limits\.bodies/, 'detail');
	match(answer.headers['retry-after'] ?? '', /^[1-9]\d*$/, 'Retry-After');
	problem(await small.ask('GET', '/v1/runs/later'), 404);
	held.forEach(socket => socket.destroy());
	await until('there is room again', async () => (await small.ask('POST', '/v1/runs', body)).status === 201, 5000, 50);
	equal((await small.ended('later')).status, 'completed', 'later');
	await small.stop();
});

// ---- A data folder that cannot be written ----

// root may write anywhere, so the daemon runs as nobody, from a copy that nobody can reach.
async function asNobody(name, configure) {
	const readOnly = new Daemon(name, configuration), nobody = 65534, program = join(readOnly.folder, 'reprised');
	const { daemon: original } = programs;
	if (process.getuid() === 0) {
		copyFileSync(original, program);
		chmodSync(program, 0o755);
		chmodSync(readOnly.folder, 0o755);
		chownSync(readOnly.folder, nobody, nobody);
		readOnly.wrap = ['setpriv', '--reuid', String(nobody), '--regid', String(nobody), '--clear-groups'];
		programs.daemon = program;
	}
	try {
		await configure(readOnly);
	} finally {
		programs.daemon = original;
	}
}

await test('a data folder that cannot be made or written: the daemon says so and ends with 1', () => asNobody('read-only', async readOnly => {
	mkdirSync(readOnly.data);
	chmodSync(readOnly.data, 0o555);
	const child = readOnly.launch(), end = await exitOf(child, 20_000);
	equal(end, { code: 1, signal: null }, `end (${child.errors})`);
	match(child.errors, new RegExp(`${readOnly.data}.*(read-only|cannot be written|Permission denied|not writable)`, 'i'), 'message');
	check(!/ready/.test(child.output), 'it never said that it is ready');
	equal(readdirSync(readOnly.data), [], 'nothing was written');
	readOnly.data = join(readOnly.data, 'below');
	const second = readOnly.launch();
	equal(await exitOf(second, 20_000), { code: 1, signal: null }, `a folder that cannot be made (${second.errors})`);
	match(second.errors, new RegExp(`${readOnly.data}`), 'message');
}));

await test('a journal that became read-only is refused and unharmed: made writable again, everything is there', () => asNobody('read-only', async readOnly => {
	await readOnly.start();
	await readOnly.post('/v1/runs', { id: 'kept', definition: definition('set', [{ one: { set: { a: 1 } } }]) }, 201);
	const kept = await readOnly.ended('kept');
	await readOnly.stop();
	const before = new Map(), files = [readOnly.data, ...readdirSync(readOnly.data, { recursive: true }).map(name => join(readOnly.data, name))];
	for (const path of files) {
		before.set(path, statSync(path).mode);
		chmodSync(path, statSync(path).isDirectory() ? 0o555 : 0o444);
	}
	const child = readOnly.launch(), end = await exitOf(child, 20_000);
	equal(end, { code: 1, signal: null }, `end (${child.errors})`);
	match(child.errors, /read-only|cannot be written|Permission denied|not writable/i, 'message');
	match(child.errors, new RegExp(readOnly.data), 'names the folder');
	for (const [path, mode] of before)
		chmodSync(path, mode);
	await readOnly.start();
	// The journal cannot hold the duration of the commit that ended the run: the figures differ by that, and it is said.
	const { overhead, ...again } = await readOnly.run('kept'), { overhead: exact, ...before_ } = kept;
	equal([again, overhead.withoutLastCommit, exact.withoutLastCommit], [before_, true, undefined], 'the run');
	readOnly.verifyJournal();
	await readOnly.stop();
}));

// ---- The end ----

await test('after all of it: the journal verifies, every signature holds, replay is equal, SIGTERM is clean', async () => {
	daemon.verifyJournal();
	equal(daemon.cli('fact', 'verify', '--all').code, 0, 'fact verify --all');
	for (const id of ['earlier', 'ungrounded', 'stalled', 'again', 'refused', 'refused-fault', 'missing', 'empty']) {
		const result = daemon.cli('replay', id, '-o', 'json');
		equal([result.code, result.json().equal], [0, true], `replay of ${id} (${result.stdout}${result.stderr})`);
	}
	await daemon.stop();
});

await sim.stop();
await finish();
