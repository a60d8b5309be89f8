// The command line `reprise`: offline verbs, the whole API against a small server of our own that can misbehave, and the
// main job against the real daemon and the simulator where they are built.
// Needs Node 20 and nothing else. REPRISE, REPRISED, REPRISE_SIM name the programs (default build/…).
import { spawn, spawnSync } from 'node:child_process';
import { createHash, createPublicKey, generateKeyPairSync, sign as signBytes } from 'node:crypto';
import http from 'node:http';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const program = resolve(process.env.REPRISE ?? 'build/cli/reprise');
const daemonProgram = resolve(process.env.REPRISED ?? 'build/daemon/reprised');
const simProgram = resolve(process.env.REPRISE_SIM ?? 'build/tests/sim/reprise-sim');
const root = resolve(dirname(fileURLToPath(import.meta.url)), '../..');
const vectors = join(root, 'tests/vectors/fact');
const folder = mkdtempSync(join(tmpdir(), 'reprise-cli-'));
let passed = 0, failed = 0;

async function test(sentence, body) {
	try {
		await body();
		passed++;
		console.log(`ok ${passed + failed} - ${sentence}`);
	} catch (error) {
		failed++;
		console.log(`not ok ${passed + failed} - ${sentence}\n  ${String(error.stack ?? error).replaceAll('\n', '\n  ')}`);
	}
}
function check(condition, message) {
	if (!condition)
		throw new Error(message);
}
// Members in one order: JSON objects have none.
function sorted(value) {
	if (Array.isArray(value))
		return value.map(sorted);
	return value !== null && typeof value === 'object' ? Object.fromEntries(Object.keys(value).sort().map(name => [name, sorted(value[name])])) : value;
}
function equal(actual, expected, what) {
	const a = JSON.stringify(sorted(actual)), b = JSON.stringify(sorted(expected));
	check(a === b, `${what}: got ${a}, expected ${b}`);
}
const pause = ms => new Promise(done => setTimeout(done, ms));
const sha256 = data => createHash('sha256').update(data).digest('hex');

// ---- Running the program ----

const environment = { PATH: process.env.PATH, HOME: folder, TMPDIR: folder, TERM: 'dumb', ASAN_OPTIONS: process.env.ASAN_OPTIONS ?? '', UBSAN_OPTIONS: process.env.UBSAN_OPTIONS ?? '' };
const socketPath = join(folder, 'fake.sock');

// options: {input, env, socket: path or null, begun: told the process}
function reprise(words, options = {}) {
	return new Promise(done => {
		const env = { ...environment, ...(options.socket === null ? {} : { REPRISE_SOCKET: options.socket ?? socketPath }), ...options.env };
		const child = spawn(program, words, { env, cwd: options.cwd ?? folder, stdio: ['pipe', 'pipe', 'pipe'] });
		let out = [], errors = '';
		child.stdout.on('data', data => out.push(data));
		child.stderr.on('data', data => { errors += data; });
		child.stdin.on('error', () => {});
		child.stdin.end(options.input ?? '');
		options.begun?.(child);
		child.on('close', (status, signal) => {
			const text = Buffer.concat(out).toString();
			check(!/AddressSanitizer|runtime error:|LeakSanitizer/.test(errors), `sanitizer: ${errors}`);
			done({ status, signal, out: text, errors, get json() { return JSON.parse(text); } });
		});
	});
}
async function expects(status, words, options) {
	const result = await reprise(words, options);
	check(result.status === status, `reprise ${words.join(' ').slice(0, 300)}: exit ${result.status}, expected ${status}\nout: ${result.out.slice(0, 2000)}\nerrors: ${result.errors.slice(0, 2000)}`);
	return result;
}

// On a terminal of its own, by util-linux's `script`; null where that is missing. Standard error comes with the output.
const terminal = (words, env) => new Promise(done => {
	const child = spawn('script', ['-qec', `${program} ${words}`, '/dev/null'], { env: { ...environment, TERM: 'xterm', REPRISE_SOCKET: socketPath, ...env }, stdio: ['ignore', 'pipe', 'ignore'] });
	let out = '';
	child.on('error', () => done(null));
	child.stdout.on('data', data => { out += data; });
	child.on('close', () => done(out));
});

// ---- A server that answers what a test tells it ----

let answer = () => [404, { title: 'not-found', detail: 'nothing here' }];
const asked = [];
const fake = http.createServer((request, response) => {
	const body = [];
	request.on('data', data => body.push(data));
	request.on('end', () => {
		const url = new URL(request.url, 'http://fake');
		const seen = { method: request.method, path: url.pathname, query: Object.fromEntries(url.searchParams), headers: request.headers, body: Buffer.concat(body).toString() };
		asked.push(seen);
		const result = answer(seen, request, response);
		if (result === undefined)
			return; // the test answers by itself
		const [status, value, headers] = result;
		const text = typeof value === 'string' || Buffer.isBuffer(value) ? value : JSON.stringify(value);
		response.writeHead(status, { 'Content-Type': status >= 400 ? 'application/problem+json' : 'application/json', ...headers });
		response.end(text);
	});
});
await new Promise(done => fake.listen(socketPath, done));
function serve(handler) {
	asked.length = 0;
	answer = handler;
}
const runDocument = (id, more) => ({ id, workflow: { namespace: 'test', name: 'hello', version: '1.0.0', digest: `sha256:${'0'.repeat(64)}` }, status: 'running', createdAt: '2026-01-01T00:00:00.000Z', ...more });

const hello = join(folder, 'hello.yaml');
writeFileSync(hello, `document:
  dsl: '1.0.3'
  namespace: test
  name: hello
  version: '1.0.0'
do:
  - greet:
      set: {greeting: '\${ .name }'}
`);

// ---- Usage and help ----

const verbs = spawnSync(program, ['--help'], { env: environment }).stdout.toString().split('\n').filter(line => /^ {2}[a-z]/.test(line)).map(line => line.slice(2, 23).trim()).filter(name => !name.startsWith('reprise'));

await test('every verb of this release has a help text with an example, on standard output', async () => {
	for (const verb of ['submit', 'list', 'count', 'show', 'result', 'events', 'replay', 'overhead', 'cancel', 'extract', 'infer', 'fact list', 'fact show', 'fact verify', 'fact export', 'journal verify', 'journal export', 'journal stats', 'key list', 'key generate', 'key export', 'definition add', 'definition list', 'definition show', 'definition validate', 'runtime list', 'runtime show', 'runtime probe', 'provenance show', 'config show', 'bench overhead', 'bench memory', 'version'])
		check(verbs.includes(verb), `${verb} is not in the help: ${verbs}`);
	for (const verb of verbs) {
		const result = await expects(0, [...verb.split(' '), '--help']);
		check(result.out.startsWith(`reprise ${verb}`) && /Example:\n {2}.*reprise /.test(result.out), `help of ${verb}: ${result.out}`);
		const crooked = result.out.split('\n').filter(line => /^ {2}(-\w,| {3}) --/.test(line) && line.length > 26 && !/^.{25} \S/.test(line) && line.trim().split(/ +/).length > 2 + /^ {2}-/.test(line));
		equal(crooked, [], `texts of options of ${verb} stand in one column`);
		equal(result.errors, '', 'standard error');
	}
});

await test('standard streams that are closed are nobody else\'s: printing fails, and the daemon serves', async () => {
	const closed = spawnSync('sh', ['-c', `"${program}" --version >&-`], { env: environment });
	equal([closed.status, closed.stderr.toString()], [1, 'reprise: writing to standard output failed\n'], 'of the command line');
	equal(spawnSync('sh', ['-c', `"${program}" --help <&- >&- 2>&-`], { env: environment }).status, 1, 'all three');
	if (!existsSync(daemonProgram))
		return;
	const data = join(folder, 'closed');
	writeFileSync(join(folder, 'closed.yaml'), '{}\n');
	const child = spawn('sh', ['-c', `exec "${daemonProgram}" --data "${data}" --config "${join(folder, 'closed.yaml')}" <&- >&- 2>&-`], { env: environment, stdio: 'ignore' });
	const ended = new Promise(done => child.on('exit', done));
	const until = performance.now() + 120_000;
	let answer;
	do {
		await pause(50);
		answer = await reprise(['list', '-o', 'json'], { socket: join(data, 'reprise.sock') });
	} while (answer.status !== 0 && performance.now() < until && child.exitCode === null);
	child.kill('SIGTERM');
	equal([answer.status, await ended], [0, 0], `of the daemon: ${answer.errors}`);
});

await test('unknown verbs and options end with 2 and name the nearest', async () => {
	for (const [words, hint] of [[['submti'], 'reprise submit'], [['fact', 'lits'], 'reprise fact list'], [['list', '--limti', '3'], '--limit'], [['lst', '-o', 'json'], 'reprise list'], [['defintion'], 'reprise definition?']]) {
		const result = await expects(2, words);
		check(result.errors.includes('did you mean') && result.errors.includes(hint), result.errors);
	}
	check((await expects(2, [])).errors.includes('--help'), 'no verb');
	check((await expects(2, ['fact'])).errors.includes('reprise fact verify'), 'the verbs of a group');
	equal((await expects(2, ['lst', '-o', 'json'])).json.exitStatus, 2, 'a problem object');
	check((await expects(2, ['fcat', 'list'])).errors.includes('reprise fact list'), 'the first word of two');
	const full = spawnSync('sh', ['-c', `"${program}" --help >/dev/full`], { env: environment });
	check(full.status === 1 && full.stderr.toString().includes('writing to standard output failed'), `a full disk: ${full.status} ${full.stderr}`);
	await expects(2, ['show']);
	await expects(2, ['show', 'a', 'b']);
	await expects(2, ['list', '-o', 'xml']);
	await expects(2, ['submit', hello, '--timeout', 'soon']);
	await expects(2, ['submit', hello, '--label', 'nothing']);
	await expects(2, ['submit', hello, '--id', 'a b']);
	await expects(2, ['list', '--status', 'dead']);
	await expects(2, ['list', '--since', 'yesterday']);
	check(!(await expects(2, ['wibble'])).errors.includes('did you mean'), 'a far word');
	equal((await expects(2, ['list', 'x'])).errors.split('\n')[1], '  usage: reprise list', 'no space at the end');
	check((await expects(0, ['fact', 'help'])).out.includes('fact verify'), 'help on a group');
	await expects(2, ['version', '--socket', '/x', '--url', 'http://x'].slice(0, 0).concat(['list', '--socket', '/x', '--url', 'http://x']));
});

// ---- Offline ----

await test('definition validate checks files without a daemon, all problems with file, line and column', async () => {
	const bad = join(folder, 'bad.yaml');
	writeFileSync(bad, readFileSync(hello, 'utf8') + '  - other:\n      sett: {x: 1}\n  - third:\n      call: inference\n      wiht: {}\n');
	let result = await expects(0, ['definition', 'validate', hello], { socket: null });
	check(result.out.includes('test/hello:1.0.0'), result.out);
	result = await expects(1, ['definition', 'validate', hello, bad], { socket: null });
	check(/bad\.yaml:10:\d+: error: /.test(result.errors) && /bad\.yaml:1[123]:\d+: error: /.test(result.errors), result.errors);
	result = await expects(1, ['definition', 'validate', bad, '-o', 'json'], { socket: null });
	equal(result.json.valid, false, 'valid');
	const problem = result.json.files[0].problems[0];
	check(problem.pointer === '/do/1/other' && problem.line === 10 && problem.severity === 'error' && problem.file === bad, JSON.stringify(problem));
	result = await expects(0, ['definition', 'validate', '-', '-o', 'json'], { socket: null, input: readFileSync(hello) });
	check(/^sha256:[0-9a-f]{64}$/.test(result.json.files[0].digest), result.out);
	await expects(4, ['definition', 'validate', join(folder, 'missing.yaml')]);
	writeFileSync(bad, 'a: [');
	await expects(1, ['definition', 'validate', bad]);
	writeFileSync(bad, Buffer.from([0xff, 0xfe, 0x00]));
	await expects(1, ['definition', 'validate', bad]);
});

const extraction = (schema, name = 'extraction') => {
	const path = join(folder, `${name}.yaml`);
	writeFileSync(path, `document: {dsl: '1.0.3', namespace: test, name: ${name}, version: '1.0.0'}
do:
  - facts:
      call: extraction
      with:
        runtime: extractor
        document: '\${ .document }'
        schema: {resource: {endpoint: '${schema}'}}
`);
	return path;
};
const factsSchema = { type: 'object', properties: { facts: { type: 'array', items: { type: 'object' } } }, required: ['facts'] };

await test('file: resources are read relative to the definition, as JSON or YAML; what cannot be read is told with its place', async () => {
	mkdirSync(join(folder, 'schemas'), { recursive: true });
	writeFileSync(join(folder, 'schemas/facts.json'), JSON.stringify(factsSchema));
	await expects(0, ['definition', 'validate', extraction('file:schemas/facts.json')], { cwd: '/' });
	await expects(0, ['definition', 'validate', extraction(`file://${join(folder, 'schemas/facts.json')}`)]);
	writeFileSync(join(folder, 'schemas/facts.yaml'), 'type: object\nproperties: {facts: {type: array}}\nrequired: [facts]\n');
	await expects(0, ['definition', 'validate', extraction('file:schemas/facts.yaml')]);
	const result = await expects(1, ['definition', 'validate', extraction('file:schemas/none.json')]);
	check(/extraction\.yaml:8:\d+: error: cannot open .*none\.json/.test(result.errors), result.errors);
	writeFileSync(join(folder, 'schemas/big.json'), JSON.stringify({ description: 'x'.repeat(9 << 20) }));
	check((await expects(1, ['definition', 'validate', extraction('file:schemas/big.json')])).errors.includes('RESOURCE_BYTES_MAX'), 'the limit on bytes is named');
	const many = join(folder, 'many.yaml');
	writeFileSync(many, `document: {dsl: '1.0.3', namespace: test, name: many, version: '1.0.0'}\ndo:\n` + Array.from({ length: 1001 }, (_, i) => `  - t${i}: {call: extraction, with: {runtime: r, document: d, schema: {resource: {endpoint: 'file:schemas/facts.json'}}}}\n`).join(''));
	check((await expects(1, ['definition', 'validate', many])).errors.includes('RESOURCE_FILES_MAX'), 'the limit on files is named');
});

await test('key generate makes a PKCS#8 key that others read, mode 0600, and overwrites nothing', async () => {
	const path = join(folder, 'fact.pem');
	const result = await expects(0, ['key', 'generate', '--purpose', 'fact', path, '-o', 'json'], { socket: null });
	equal(statSync(path).mode & 0o777, 0o600, 'mode');
	const fromSecret = createPublicKey(readFileSync(path)).export({ type: 'spki', format: 'der' });
	const fromPublic = createPublicKey(readFileSync(`${path}.pub`)).export({ type: 'spki', format: 'der' });
	check(fromSecret.equals(fromPublic), 'both files hold one key');
	equal(result.json.keyid, sha256(fromPublic), 'key id');
	const before = readFileSync(path);
	await expects(5, ['key', 'generate', '--purpose', 'fact', path]);
	rmSync(`${path}.pub`);
	await expects(5, ['key', 'generate', '--purpose', 'fact', path]);
	check(readFileSync(path).equals(before), 'untouched');
	await expects(2, ['key', 'generate', '--purpose', 'everything', join(folder, 'x.pem')]);
	await expects(2, ['key', 'generate', join(folder, 'x.pem')]);
	await expects(1, ['key', 'generate', '--purpose', 'log', join(folder, 'no/such/folder/x.pem')]);
	const other = JSON.parse((await expects(0, ['key', 'generate', '--purpose', 'root', join(folder, 'root.pem'), '-o', 'json'])).out);
	check(other.keyid !== result.json.keyid, 'another key each time');
});

// The list of damaged evidence that the independent verifiers are run on; exit 1 there is 22, 23 or 26 here, 2 is 25.
await test('fact verify and journal verify judge the example and every damaged copy as the independent verifiers do', async () => {
	const { cases } = JSON.parse(readFileSync(join(vectors, 'cases.json'), 'utf8'));
	let used = 0;
	for (const one of cases) {
		const words = [];
		let kind = one.tool === 'verify-dsse.mjs' ? 'fact' : one.args[0], skip = false;
		if (kind !== 'fact' && kind !== 'journal')
			continue; // single checkpoints, inclusion, consistency: unit tests of workflow/evidence
		for (let i = kind === 'fact' ? 0 : 1; i < one.args.length; i++) {
			const word = one.args[i];
			if (['--key', '--fact', '--keyring', '--entry', '--section', '--prompt', '--schema', '--request', '--response', '--document', '--root-key'].includes(word))
				words.push(word, one.args[++i]);
			else if (word === '--vkey')
				words.push('--log-key', one.args[++i]);
			else if (word === '--checkpoint' || word === '--trusted')
				words.push('--trusted', one.args[++i]);
			else if (word === '--entries')
				words.push(one.args[++i]);
			else if (word === '--predicate-type' && one.args[i + 1].endsWith('extracted-fact/v1'))
				i++;
			else if (word === '--canonical')
				continue;
			else if (word.startsWith('--'))
				skip = true;
			else
				words.push(word);
		}
		if (skip)
			continue;
		const result = await reprise([kind, 'verify', ...words, '-o', 'json'], { socket: null, cwd: vectors });
		const expected = one.exit === 0 ? [0] : one.exit === 1 ? [22, 23, 26] : [25];
		check(expected.includes(result.status), `${one.name}: exit ${result.status}, expected ${expected}: ${words.join(' ')}\n${result.out}${result.errors}`);
		if (one.code)
			check(result.out.includes(one.code), `${one.name}: no ${one.code} in ${result.out}`);
		used++;
	}
	check(used >= 10, `${used} cases fitted`);
});

await test('fact verify without a key is unverifiable (26), of what is no envelope malformed (25), of a wrong key invalid (22)', async () => {
	await expects(26, ['fact', 'verify', join(vectors, 'envelope.json')], { socket: null });
	await expects(25, ['fact', 'verify', '--key', join(vectors, 'keys/fact.pub.pem'), hello], { socket: null });
	await expects(22, ['fact', 'verify', '--key', join(vectors, 'keys/root.pub.pem'), join(vectors, 'envelope.json')], { socket: null });
	await expects(25, ['fact', 'verify', '--key', hello, join(vectors, 'envelope.json')], { socket: null });
	await expects(4, ['fact', 'verify', '--key', join(vectors, 'keys/fact.pub.pem'), join(folder, 'nothing.json')], { socket: null });
	const result = await expects(0, ['fact', 'verify', '--key', join(vectors, 'keys/fact.pub.pem'), '--entry', join(vectors, 'fact.entry'), '--proof', join(vectors, 'fact.tlog-proof'), '--log-key', join(vectors, 'keys/log.vkey'), '--fact', join(vectors, 'fact.json'), '--document', join(vectors, 'document.txt'), '--section', join(vectors, 'section.txt'), join(vectors, 'envelope.json')], { socket: null });
	for (const line of ['signature', 'subject', 'entry', 'inclusion', 'time'])
		check(new RegExp(`pass +${line}`).test(result.out), `${line} passes: ${result.out}`);
	check(/skipped +artefact +request/.test(result.out), 'what was not looked at is said');
});

await test('journal verify of a file, of a data folder and of a daemon without the log\'s key is unverifiable (26) and says where the key comes from', async () => {
	const entries = join(vectors, 'journal.jsonl');
	let result = await expects(26, ['journal', 'verify', entries], { socket: null });
	check(result.errors.includes("the log's key is needed: --log-key FILE") && result.errors.includes('reprise key export --purpose log --format vkey'), result.errors);
	equal((await expects(26, ['journal', 'verify', entries, '-o', 'json'], { socket: null })).json.title, 'unverifiable', 'a problem object');
	await expects(26, ['journal', 'verify', entries, '--trusted', join(vectors, 'checkpoint.20')], { socket: null });
	check((await expects(0, ['journal', 'verify', entries, '--trusted', join(vectors, 'checkpoint.20'), '--log-key', join(vectors, 'keys/log.vkey')], { socket: null })).out.includes('VALID'), 'with the key');
	serve(seen => [200, seen.path === '/v1/keys' ? { keys: [] } : { checkpoints: [], entries: [], next: 0, size: 0 }]);
	result = await expects(26, ['journal', 'verify']);
	check(result.errors.includes("the log's key is needed"), result.errors);
});

await test('evidence that is given is used, or refused: never skipped in silence', async () => {
	const key = ['--key', join(vectors, 'keys/fact.pub.pem')], file = join(vectors, 'envelope.json'), empty = join(folder, 'empty'), proof = join(vectors, 'fact.tlog-proof'), recorded = join(vectors, 'fact.entry');
	writeFileSync(empty, '');
	check((await expects(2, ['fact', 'verify', file, ...key, '--proof', proof], { socket: null })).errors.includes('--proof goes with --entry FILE'), 'a proof without its entry');
	for (const name of ['fact', 'entry', 'proof'])
		check((await expects(2, ['fact', 'verify', '123456789012', `--${name}`, recorded], { socket: null })).errors.includes(`--${name} goes with a FILE`), name);
	check((await expects(2, ['fact', 'verify', file, ...key, '--root-key', key[1]], { socket: null })).errors.includes('--keyring'), 'a root key without a ring');
	for (const bad of [empty, hello]) {
		for (const words of [['--entry', recorded, '--proof', bad], ['--entry', bad], ['--fact', bad], ['--keyring', bad]])
			for (const keys of [key, []])
				check((await expects(25, ['fact', 'verify', file, ...keys, ...words], { socket: null })).errors.includes(bad), words.join(' '));
	}
	for (const name of ['document', 'section', 'prompt', 'schema', 'request', 'response'])
		await expects(25, ['fact', 'verify', file, ...key, `--${name}`, empty], { socket: null });
	const many = join(folder, 'many.jsonl'), line = JSON.stringify(JSON.parse(readFileSync(file, 'utf8')));
	writeFileSync(many, `${line}\n`.repeat(4));
	const short = await expects(0, ['fact', 'verify', many, ...key, '--document', join(vectors, 'document.txt')], { socket: null });
	check(/passed:.* artefacts \(document, section\).*; not checked:.* artefacts \(prompt, schema, request, response\)/.test(short.out.split('\n')[0]), short.out);
});

await test('an offline check takes TRUST_KEYS_MAX keys and refuses more', async () => {
	const words = ['fact', 'verify', join(vectors, 'envelope.json')];
	mkdirSync(join(folder, 'keys'));
	for (let i = 0; i < 1025; i++) {
		writeFileSync(join(folder, `keys/${i}`), generateKeyPairSync('ed25519').publicKey.export({ type: 'spki', format: 'pem' }));
		words.push('--key', join(folder, `keys/${i}`));
	}
	check((await expects(1, words)).errors.includes('TRUST_KEYS_MAX'), 'the limit is named');
	await expects(22, words.slice(0, -2));
});

// ---- Where the daemon is ----

await test('a daemon that is not there is 6, with the socket and how to start it', async () => {
	for (const words of [['list'], ['show', 'x'], ['submit', hello], ['result', 'x', '--wait'], ['events', 'x', '-f'], ['fact', 'list'], ['journal', 'verify']]) {
		const result = await expects(6, words, { socket: join(folder, 'nobody.sock') });
		check(result.errors.includes(join(folder, 'nobody.sock')) && result.errors.includes('reprised'), result.errors);
		equal(result.out, '', 'standard output');
	}
	const problem = (await expects(6, ['list', '-o', 'json'], { socket: join(folder, 'nobody.sock') })).json;
	check(problem.title === 'unreachable' && problem.detail.includes('nobody.sock') && problem.hint.includes('reprised'), JSON.stringify(problem));
	await expects(6, ['list', '--url', 'http://127.0.0.1:1'], { socket: null });
	let result = await expects(6, ['list', '--data', join(folder, 'gone')], { socket: null });
	check(result.errors.includes(`reprised --data ${join(folder, 'gone')} --config FILE;`), result.errors);
	check((await expects(6, ['list'], { socket: join(folder, 'nobody.sock') })).errors.includes(`reprised --data DIR --config FILE --listen unix:${join(folder, 'nobody.sock')}`), 'a socket of another name');
	check((await expects(6, ['list'], { socket: hello })).errors.includes(`${hello} is no socket but a regular file`), 'a file');
	check((await expects(6, ['list', '--socket', folder])).errors.includes(`${folder} is no socket but a folder`), 'a folder');
	for (const [words, text] of [[['--socket', ''], '--socket is empty'], [['--socket='], '--socket is empty'], [['--url', ''], '--url is empty'], [['--data', ''], '--data is empty']])
		check((await expects(2, ['list', ...words], { socket: null })).errors.includes(text), text);
	await expects(2, ['list', '--url', 'file:///etc/passwd'], { socket: null });
});

await test('a token goes to the URL as a bearer and is never printed', async () => {
	serve(() => [401, { title: 'not-authorised', detail: 'no such token' }]);
	const port = await new Promise(done => { const tcp = http.createServer((q, r) => fake.emit('request', q, r)); tcp.listen(0, '127.0.0.1', () => { tcp.unref(); done(tcp.address().port); }); });
	const result = await expects(3, ['list'], { socket: null, env: { REPRISE_URL: `http://127.0.0.1:${port}/`, REPRISE_TOKEN: 's3cret-token' } });
	equal(asked[0].headers.authorization, 'Bearer s3cret-token', 'header');
	equal(asked[0].path, '/v1/runs', 'path');
	check(!result.errors.includes('s3cret') && result.errors.includes('REPRISE_TOKEN'), result.errors);
});

// ---- Errors of the daemon ----

await test('problem objects become messages and exit codes; with -o json they are printed as they came', async () => {
	for (const [http, exit] of [[400, 1], [401, 3], [403, 3], [404, 4], [409, 5], [413, 1], [429, 1], [500, 1], [503, 1]]) {
		const problem = { type: 'https://reprise.example/problems/x', title: 'x', status: http, detail: `it failed with ${http}, limit 7`, hint: 'do this next' };
		serve(() => [http, problem, http === 503 ? { 'Retry-After': '9' } : {}]);
		const result = await expects(exit, ['show', 'some-run', '-o', 'json']);
		equal(result.json, problem, 'problem object');
		const text = await expects(exit, ['show', 'some-run']);
		check(text.errors.includes(`it failed with ${http}, limit 7`) && text.errors.includes('do this next'), text.errors);
		equal(text.out, '', 'standard output');
		if (http === 503)
			check(text.errors.includes('9 s'), `Retry-After: ${text.errors}`);
	}
	serve(() => [400, { title: 'invalid', detail: 'the definition is bad', problems: [{ pointer: '/do/0/x', line: 7, column: 3, message: "unknown key 'foo'", hint: 'remove it', severity: 'error' }] }]);
	const result = await expects(1, ['definition', 'add', hello]);
	check(/7:3: error: unknown key 'foo'/.test(result.errors) && result.errors.includes('/do/0/x'), result.errors);
	serve(() => [500, '<html>oops']);
	check((await expects(1, ['list'])).errors.includes('500'), 'an answer that is no problem object');
	serve(() => [200, '<html>hello']);
	check((await expects(1, ['list'])).errors.includes('not JSON'), 'an answer that is no JSON');
});

await test('an answer past CLIENT_BODY_MAX is refused, not swallowed', async () => {
	serve((seen, request, response) => {
		const block = Buffer.alloc(1 << 20, 0x20);
		response.writeHead(200);
		const go = () => { while (!response.destroyed && response.write(block)); };
		response.on('drain', go);
		request.socket.on('close', () => response.destroy());
		go();
	});
	check((await expects(1, ['list'])).errors.includes('limit of 268435456'), 'the limit is named');
});

await test('files past COMMAND_FILE_MAX and id lists past COMMAND_IDS_MAX are refused with the limit', async () => {
	const big = join(folder, 'big.md');
	writeFileSync(big, '');
	truncateSync(big, (64 << 20) + 1);
	serve(() => [200, {}]);
	check((await expects(1, ['extract', big, '--runtime', 'r'])).errors.includes('COMMAND_FILE_MAX'), 'file');
	rmSync(big);
	check((await expects(1, ['cancel', '-'], { input: 'a\n'.repeat(1000001) })).errors.includes('COMMAND_IDS_MAX'), 'ids');
	equal(asked.length, 0, 'requests');
});

// ---- Runs ----

await test('submit sends the definition, the input, labels and an id of its own', async () => {
	serve(seen => [201, runDocument(JSON.parse(seen.body).id)]);
	const one = await expects(0, ['submit', hello, '--input', '{"name": "Ada"}', '--label', 'team=a', '-l', 'x=y=z', '-o', 'ids']);
	const body = JSON.parse(asked[0].body);
	check(/^[0-9A-HJKMNP-TV-Z]{26}$/i.test(body.id), body.id);
	equal(one.out, `${body.id}\n`, 'output');
	equal([body.input, body.labels, body.definition.document.name, body.definition.do[0].greet.set.greeting], [{ name: 'Ada' }, { team: 'a', x: 'y=z' }, 'hello', '${ .name }'], 'body');
	await expects(0, ['submit', 'test/hello:1.0.0', '--id', 'my-id', '--input', '-'], { input: '[1, 2]' });
	equal(JSON.parse(asked[1].body), { definition: 'test/hello:1.0.0', id: 'my-id', input: [1, 2] }, 'body of a registered one');
	writeFileSync(join(folder, 'input.json'), '{"from": "file"}');
	await expects(0, ['submit', '-', '--input', '@input.json'], { input: readFileSync(hello) });
	equal(JSON.parse(asked[2].body).input, { from: 'file' }, 'input file');
	await expects(0, ['submit', extraction('file:schemas/facts.json')]);
	equal(JSON.parse(asked[3].body).definition.do[0].facts.with.schema, { document: factsSchema }, 'the inlined schema');
	await expects(2, ['submit', '-', '--input', '-']);
	await expects(2, ['submit', hello, '--input', '{']);
	await expects(4, ['submit', 'no-such-file']);
	equal(asked.length, 4, 'requests');
});

await test('submit repeats itself with the same id when the connection breaks before the answer', async () => {
	let broken = 0;
	serve((seen, request) => {
		if (++broken <= 2)
			return void request.socket.destroy();
		return [200, runDocument(JSON.parse(seen.body).id)];
	});
	await expects(0, ['submit', hello]);
	equal(new Set(asked.map(seen => JSON.parse(seen.body).id)).size, 1, 'ids');
	equal(asked.length, 3, 'requests');
});

await test('--wait asks until the run has ended, over a broken connection and a 503, and exits with the outcome', async () => {
	for (const [end, exit, text] of [[{ status: 'completed', output: { a: 1 } }, 0, ''], [{ status: 'faulted', error: { type: 'https://x/errors/communication', status: 500, title: 'no answer', detail: 'refused', instance: '/do/0/x' } }, 10, 'communication at /do/0/x: no answer: refused'], [{ status: 'cancelled' }, 11, ''], [{ status: 'cancelled', reason: 'killed' }, 12, ''], [{ status: 'faulted', error: { status: 408, title: 'too long' } }, 13, 'too long']]) {
		let asks = 0;
		serve((seen, request) => {
			if (seen.method === 'POST')
				return [201, runDocument('w')];
			if (++asks === 1)
				return void request.socket.destroy();
			if (asks === 2)
				return [503, { detail: 'starting' }];
			return [200, runDocument('w', asks > 3 ? end : {})];
		});
		const result = await expects(exit, ['submit', hello, '--id', 'w', '--wait', '-o', 'json']);
		equal(result.json.status, end.status, 'document');
		check(result.errors.includes(text), result.errors);
		equal(asked.at(-1).query.include, 'all', 'include');
		check(/^\d+m?s$/.test(asked.at(-1).query.wait), asked.at(-1).query.wait);
	}
});

await test('a wait that is over ends with 7, names the run and how to go on', async () => {
	serve(() => [200, runDocument('slow')]);
	const started = Date.now();
	const result = await expects(7, ['submit', hello, '--id', 'slow', '--wait', '--timeout', '300ms']);
	check(result.errors.includes('slow') && result.errors.includes('reprise result slow --wait'), result.errors);
	check(Date.now() - started >= 300, 'waited');
	check(asked.length < 12, `${asked.length} questions in 300 ms`);
	await expects(7, ['result', 'slow', '--wait', '--timeout', '0s']);
});

await test('control-C during a wait ends with 130 and says that the run goes on', async () => {
	let child;
	serve(seen => {
		if (seen.method === 'POST')
			return [201, runDocument('c')];
		child.kill('SIGINT'); // it waits: it asks for the end of the run, and gets no answer
	});
	const result = await reprise(['submit', hello, '--id', 'c', '--wait'], { begun: begun => { child = begun; } });
	equal(result.status, 130, 'exit');
	check(result.errors.includes('the run goes on') && result.errors.includes('reprise result c'), result.errors);
});

await test('result prints the output alone; without one it says so', async () => {
	serve(() => [200, runDocument('r', { status: 'completed', output: { b: 2, a: [1] } })]);
	equal((await expects(0, ['result', 'r'])).json, { a: [1], b: 2 }, 'output');
	equal(asked[0].query.include, 'output', 'include');
	serve(() => [200, runDocument('r', { status: 'completed', output: 'plain text' })]);
	equal((await expects(0, ['result', 'r'])).out, 'plain text\n', 'a text');
	equal((await expects(0, ['result', 'r', '-o', 'json'])).out, '"plain text"\n', 'as JSON');
	serve(() => [200, runDocument('r')]);
	check((await expects(1, ['result', 'r'])).errors.includes('--wait'), 'still running');
	serve(() => [200, runDocument('r', { status: 'faulted', error: { status: 500, title: 'bad' } })]);
	await expects(1, ['result', 'r']);
	await expects(10, ['result', 'r', '--wait']);
	await expects(0, ['show', 'r']);
	await expects(10, ['show', 'r', '--exit-status']);
});

await test('list follows pages to the limit, passes filters on, and prints ids for pipes', async () => {
	const all = Array.from({ length: 2500 }, (_, i) => runDocument(`run-${i}`, { status: 'completed', endedAt: '2026-01-01T00:00:01.000Z' }));
	serve(seen => {
		const from = Number(seen.query.cursor ?? 0), count = Number(seen.query.limit);
		return [200, { runs: all.slice(from, from + count), cursor: from + count < all.length ? String(from + count) : null }];
	});
	equal((await expects(0, ['list', '-o', 'json'])).json.runs.length, 100, 'default');
	equal((await expects(0, ['list', '--limit', '1500', '-o', 'ids'])).out.trim().split('\n').length, 1500, 'limit');
	const ids = (await expects(0, ['list', '--all', '-o', 'ids'])).out.trim().split('\n');
	equal([ids.length, ids[0], ids.at(-1)], [2500, 'run-0', 'run-2499'], 'all');
	equal((await expects(0, ['list', '--all', '-o', 'jsonl'])).out.trim().split('\n').map(line => JSON.parse(line).id).length, 2500, 'jsonl');
	const table = await expects(0, ['list', '--limit', '2']);
	check(/^ID +STATUS +CREATED +TOOK +WORKFLOW\nrun-0 +completed +\d+d ago +1\.00 s +test\/hello:1\.0\.0\n/.test(table.out), table.out);
	check(table.errors.includes('--all'), 'more follow');
	asked.length = 0;
	for (const TZ of ['UTC', 'Asia/Kolkata', 'XXX+3:30']) {
		const iso = /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d/.exec((await expects(0, ['list', '--limit', '1', '--time-format', 'iso'], { env: { TZ } })).out)?.[0];
		equal(new Date(iso).toISOString(), '2026-01-01T00:00:00.000Z', `an RFC 3339 time in ${TZ}`);
		await expects(0, ['list', '--limit', '1', '--since', iso]);
		equal(asked.at(-1).query.since, '2026-01-01T00:00:00.000Z', 'taken back');
	}
	asked.length = 0;
	await expects(0, ['list', '--status', 'faulted', '--workflow', 'a/b', '--label', 'k=v w', '--since', '2026-01-01T00:00:00Z', '--until', '1h', '--limit', '1']);
	const { query } = asked[0];
	equal([query.status, query.workflow, query.label, query.since], ['faulted', 'a/b', 'k=v w', '2026-01-01T00:00:00.000Z'], 'filters');
	check(Math.abs(Date.parse(query.until) - (Date.now() - 3600e3)) < 60e3, query.until);
	serve(() => [200, { count: 42 }]);
	equal((await expects(0, ['count', '--status', 'running'])).out, '42\n', 'count');
	equal([asked[0].path, asked[0].query.status], ['/v1/runs/count', 'running'], 'asked');
});

await test('cancel takes ids from standard input, sends the reason, goes on past one that is gone', async () => {
	serve(seen => seen.path === '/v1/runs/b/cancel' ? [404, { detail: 'no run b' }] : [200, runDocument('x', { status: 'cancelled' })]);
	const result = await expects(4, ['cancel', '-', '--reason', 'wrong'], { input: 'a\nb\n\nc d\n' });
	equal(asked.map(seen => seen.path), ['a', 'b', 'c', 'd'].map(id => `/v1/runs/${id}/cancel`), 'paths');
	equal(JSON.parse(asked[0].body), { reason: 'wrong' }, 'body');
	check(result.errors.includes('no run b'), result.errors);
	await expects(4, ['cancel', 'b', '-y']);
	asked.length = 0;
	for (const words of [['cancel', 'a/../b', '-y'], ['kill', 'a', 'a/b', '-y'], ['show', ''], ['result', 'a b'], ['events', 'ä'], ['replay', 'x'.repeat(65)], ['overhead', '../x'], ['fact', 'list', '--run', 'a b'], ['fact', 'show', '123'], ['fact', 'show', 'nothing of hex'], ['fact', 'export', '123']])
		check(/is no (run id|fact's id)/.test((await expects(2, words)).errors), words.join(' '));
	await expects(2, ['cancel', '-'], { input: 'a/../b\n' });
	equal(asked.length, 0, 'nothing is asked with a malformed id');
	serve(() => [200, { name: 'r' }]);
	await expects(0, ['runtime', 'probe', 'a/../b']);
	equal(asked.at(-1).path, '/v1/runtimes/a%2F..%2Fb/probe', 'a name cannot leave its place');
	serve(() => [200, runDocument('x', { status: 'completed' })]);
	equal((await expects(0, ['cancel', 'x'])).out, 'x  had already ended (completed)\n', 'of an ended run');
	serve(() => [200, runDocument('x', { status: 'cancelled', endedAt: '2026-01-01T00:00:01.000Z', reason: 'wrong input' })]);
	equal((await expects(0, ['cancel', 'x'])).out, 'x  had already ended (cancelled)\n', 'of one that was cancelled before');
	check((await expects(0, ['show', 'x'])).out.includes('\nreason    wrong input\n'), 'why it was ended');
	serve(() => [200, runDocument('x', { status: 'cancelled', endedAt: new Date(Date.now() + 60e3).toISOString() })]);
	equal((await expects(0, ['cancel', 'x'])).out, 'x  cancelled\n', 'of one that is cancelled now');
	serve(() => [200, runDocument('x', { status: 'cancelled' })]);
	await expects(0, ['kill', 'a', '--yes']);
	equal([asked.at(-1).path, asked.at(-1).body], ['/v1/runs/a/kill', '{}'], 'kill');
});

const entry = (seq, kind, data = {}) => ({ seq, kind, ts: '2026-01-01T00:00:00.000Z', data: { runId: 'e', ...data } });

await test('events pages through the journal; -f follows the stream over reconnects without a gap or a double', async () => {
	const entries = [3, 5, 8, 13].map(seq => entry(seq, seq === 13 ? 'run.completed' : 'task.completed', { stepId: '/do/0/x@1' }));
	serve(seen => {
		const after = seen.query.after === undefined ? -1 : Number(seen.query.after), page = entries.filter(one => one.seq > after).slice(0, 2);
		return [200, { events: page, next: page.length ? page.at(-1).seq : after }];
	});
	equal((await expects(0, ['events', 'e', '-o', 'json'])).json.events.map(one => one.seq), [3, 5, 8, 13], 'pages');
	equal((await expects(0, ['events', 'e', '--after', '5', '-o', 'ids'])).out, '8\n13\n', 'after');
	let connections = 0;
	serve((seen, request, response) => {
		connections++;
		equal(seen.headers.accept, 'text/event-stream', 'accept');
		const last = Number(seen.headers['last-event-id'] ?? -1);
		response.writeHead(200, { 'Content-Type': 'text/event-stream' });
		response.write(': hello\n\n');
		// Two entries a connection, the first of them one that was already told; then the connection breaks.
		const next = entries.filter(one => one.seq >= last).slice(0, 2);
		for (const one of next)
			response.write(`id: ${one.seq}\nevent: ${one.kind}\ndata: ${JSON.stringify(one)}\n\n`);
		setTimeout(() => next.at(-1).seq === 13 ? undefined : connections % 2 ? request.socket.destroy() : response.end(), 50);
	});
	const result = await expects(0, ['events', 'e', '-f', '-o', 'jsonl']);
	equal(result.out.trim().split('\n').map(line => JSON.parse(line).seq), [3, 5, 8, 13], 'stream');
	check(connections >= 3, `${connections} connections`);
	// Behind the last entry of a run that has ended there is nothing to wait for.
	serve(seen => seen.path.endsWith('/events') ? [200, { events: entries.filter(one => one.seq > Number(seen.query.after)), next: 13 }] : [200, runDocument('e', { status: 'completed' })]);
	equal((await expects(0, ['events', 'e', '-f', '--after', '13'])).out, '', 'behind the end');
	equal((await expects(0, ['events', 'e', '-f', '--after', '8', '-o', 'json'])).json.seq, 13, 'one entry a line');
	serve(() => [404, { detail: 'no run e' }]);
	await expects(4, ['events', 'e', '-f']);
});

await test('replay is 0 when equal, 20 on a difference, and --all goes through every run', async () => {
	serve(() => [200, { equal: true, entries: 7, difference: null }]);
	check((await expects(0, ['replay', 'r'])).out.includes('7 entries'), 'equal');
	equal([asked[0].method, asked[0].path], ['POST', '/v1/runs/r/replay'], 'asked');
	serve(() => [200, { equal: false, entries: 7, difference: { seq: 5, expected: { kind: 'task.completed', data: { same: 1, then: 'a' } }, got: { kind: 'task.faulted', data: { same: 1, error: 'e\u001b' } }, reference: '/do/0/x', line: 12, column: 3 } }]);
	const result = await expects(20, ['replay', 'r']);
	check(result.errors.includes('entry 5, /do/0/x (line 12, column 3 of the definition)') && result.errors.includes('kind: expected task.completed, got task.faulted'), result.errors);
	check(result.errors.includes('then: expected a, got nothing') && result.errors.includes('error: expected nothing, got e\\u{1B}') && !result.errors.includes('same'), result.errors);
	serve(seen => seen.path === '/v1/runs/count' ? [200, { count: 2 }] : seen.method === 'GET' ? [200, seen.query.cursor ? { runs: [runDocument('b')], cursor: null } : { runs: [runDocument('a')], cursor: 'next' }] : [200, { equal: !seen.path.includes('/b/'), entries: 1, difference: { seq: 1, expected: null, got: { kind: 'y', data: {} } } }]);
	check((await expects(20, ['replay', '--all'])).errors.includes('2 runs replayed, 2 entries, no model was called: 1 differ'), 'all');
	await expects(2, ['replay']);
});

// ---- Hostile text ----

await test('control and bidirectional characters of documents and models are escaped in text and in JSON, values unharmed', async () => {
	const evil = 'a\u001b[31m\u202eb\u2066\u200f\u061c\u009b\u0007end';
	serve(() => [200, runDocument('h', { status: 'completed', output: evil, labels: { [`k${evil}`]: evil } })]);
	for (const words of [['result', 'h'], ['show', 'h'], ['show', 'h', '-o', 'json'], ['result', 'h', '-o', 'jsonl'], ['list']]) {
		if (words[0] === 'list')
			serve(() => [200, { runs: [runDocument(evil)], cursor: null }]);
		const result = await expects(0, words);
		check(!/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/.test(result.out), `${words}: ${JSON.stringify(result.out)}`);
	}
	serve(() => [200, runDocument('h', { status: 'completed', output: evil })]);
	check((await expects(0, ['result', 'h'])).out.includes('a\\u{1B}[31m\\u{202E}b\\u{2066}\\u{200F}\\u{61C}\\u{9B}\\u{7}end'), 'as \\u{…}');
	equal((await expects(0, ['result', 'h', '-o', 'json'])).json, evil, 'JSON keeps the value');
	serve(() => [404, { detail: `no ${evil}` }]);
	check(!/[\u001b\u202e]/.test((await expects(4, ['show', 'h'])).errors), 'errors too');
});

await test('colour comes only when it is asked for, or on a terminal without NO_COLOR', async () => {
	serve(() => [200, { runs: [runDocument('c', { status: 'completed' })], cursor: null }]);
	check(!(await expects(0, ['list'])).out.includes('\u001b'), 'a pipe has none');
	check((await expects(0, ['list', '--colour', 'always'])).out.includes('\u001b[32m'), 'always');
	check((await expects(0, ['list', '--color=always'])).out.includes('\u001b[32m'), 'the other spelling');
	const coloured = await terminal('list', {});
	if (coloured === null)
		return console.log('skipped: colours on a terminal (no program `script`)');
	check(coloured.includes('\u001b[32m'), `on a terminal: ${JSON.stringify(coloured)}`);
	check(!(await terminal('list', { NO_COLOR: '1' })).includes('\u001b['), 'NO_COLOR');
	check(!(await terminal('list', { TERM: 'dumb' })).includes('\u001b['), 'TERM=dumb');
});

// ---- Documents and facts ----

const factDocument = (seq, more) => ({ id: sha256(String(seq)), seq, run: 'x', task: '/do/0/facts', attempt: 1, document: `sha256:${'1'.repeat(64)}`, value: { subject: `S${seq}`, predicate: 'uses', object: 'O' }, quote: 'line two', grounding: { grade: 'exact', score: 1, bytes: [9, 17], codePoints: [9, 17], utf16: [9, 17] }, accepted: true, checks: [], runtime: 'r', model: 'm', simulated: true, reproducibility: { class: 'unmeasured' }, recordedAt: '2026-01-01T00:00:00.000Z', ...more });

await test('extract uploads the document, submits the built-in workflow, and prints facts with their lines and the counts', async () => {
	const document = join(folder, 'doc.md');
	writeFileSync(document, 'line one\nline two\n');
	const handler = sections => seen => {
		if (seen.path === '/v1/runtimes')
			return [200, { runtimes: [{ name: 'only' }] }];
		if (seen.path === '/v1/documents')
			return [201, { digest: `sha256:${'1'.repeat(64)}`, bytes: 18, mediaType: 'text/markdown' }];
		if (seen.path === '/v1/facts')
			return [200, seen.query.after === undefined ? { facts: [factDocument(4, { grounding: { grade: 'exact', bytes: [9, 17] } }), factDocument(2, { grounding: { grade: 'exact', bytes: [0, 4] }, quote: 'line' })], next: 4 } : { facts: [], next: 4 }];
		return [seen.method === 'POST' ? 201 : 200, runDocument('x', seen.method === 'POST' ? {} : { status: 'completed', output: { facts: [], sections } })];
	};
	serve(handler([{ outcome: 'facts', status: 'completed' }, { outcome: 'empty', status: 'completed' }, ...['truncated', 'unreachable', 'unreachable'].map(outcome => ({ outcome, status: 'failed' }))]));
	const result = await expects(0, ['extract', document, '--id', 'x']);
	const [runtimes, upload, submit] = asked;
	equal([runtimes.path, upload.headers['content-type'], upload.body], ['/v1/runtimes', 'text/markdown', 'line one\nline two\n'], 'upload');
	equal(JSON.parse(submit.body), { definition: 'reprise/extract:1.0.0', id: 'x', input: { runtime: 'only', document: { digest: `sha256:${'1'.repeat(64)}` } } }, 'submission');
	const rows = result.out.split('\n');
	check(/^LINE +SUBJECT +PREDICATE +OBJECT +QUOTE$/.test(rows[0]) && /^ *1 +S2 +uses +O +line$/.test(rows[1]) && /^ *2 +S4 +uses +O +line two$/.test(rows[2]), result.out);
	check(rows[3].startsWith('2 facts from 2 of 5 sections; 1 without facts; 3 gave no usable answer (') && rows[3].includes('1 truncated') && rows[3].includes('2 unreachable'), rows[3]);
	const json = (await expects(0, ['extract', document, '--id', 'x', '-o', 'json'])).json;
	equal([json.id, json.factDocuments.length], ['x', 2], 'JSON');
	serve(handler([]));
	equal((await expects(0, ['extract', document, '--runtime', 'r', '--no-wait', '--id', 'x', '-o', 'ids'])).out, 'x\n', 'no wait');
	await expects(0, ['extract', document, '--runtime', 'r', '--schema', join(folder, 'schemas/facts.json'), '--id', 'x']);
	equal(JSON.parse(asked.find(seen => seen.path === '/v1/runs' && seen.body.includes('with-schema')).body).definition.do[0].facts.with.schema, { document: factsSchema }, 'schema');
	check(result.out.endsWith('run x  completed\nfrom a SIMULATED runtime: no model was asked\n'), result.out);
	serve(handler(['truncated', 'unreachable', 'unreachable'].map(outcome => ({ outcome, status: 'failed' }))));
	for (const format of ['text', 'json', 'ids']) {
		const none = await expects(1, ['extract', document, '--id', 'x', '-o', format]);
		check(none.errors.includes('none of the 3 sections was answered usably: 1 truncated, 2 unreachable') && none.errors.includes('reprise runtime probe only'), none.errors);
	}
	for (const [i, bad] of [{}, { type: 'object' }, { properties: { facts: { type: 'object' } } }, { properties: { items: { type: 'array' } } }, [], 5].entries()) {
		writeFileSync(join(folder, `bad-${i}.json`), JSON.stringify(bad));
		asked.length = 0;
		check((await expects(2, ['extract', document, '--schema', join(folder, `bad-${i}.json`)])).errors.includes('have no array `facts`'), JSON.stringify(bad));
		equal(asked.length, 0, 'nothing was sent');
	}
	check((await expects(4, ['extract', document, '--schema', join(folder, 'none.json'), '--runtime', 'r'])).errors.includes('none.json'), 'the schema is named');
	serve(seen => seen.path === '/v1/documents' ? [413, { detail: 'too large' }] : [200, {}]);
	check((await expects(1, ['extract', document, '--runtime', 'r'])).errors.includes(`document ${document} was refused`), 'the document is named');
	const long = join(folder, 'long.yaml');
	writeFileSync(long, `# ${'x'.repeat(1 << 20)}\n`);
	for (const verb of [['submit'], ['definition', 'add'], ['definition', 'validate']])
		check((await expects(1, [...verb, long])).errors.includes(`definition ${long} is larger than the limit of 1048576 bytes (DEFINITION_SOURCE_MAX)`), 'the limit of a definition');
	check((await expects(1, ['submit', document])).errors.includes(`reprise extract ${document}`), 'a document is for extract');
	const loop = join(folder, 'loop.yaml');
	writeFileSync(loop, `document: {dsl: '1.0.3', namespace: test, name: loop, version: '1.0.0'}\ndo:\n  - each:\n      metadata: {concurrency: 2}\n      for: {each: x, in: '\${ .xs }'}\n      do: [{one: {set: {a: 1}}}]\n`);
	serve(seen => [201, seen.path === '/v1/runs' ? runDocument('x') : { namespace: 'test', name: 'loop', version: '1.0.0', digest: 'sha256:aa' }]);
	equal((await expects(0, ['submit', loop])).errors, '', 'what asks nothing of the user is not told at each submission');
	check((await expects(0, ['definition', 'add', loop])).errors.includes('other engines run this loop') && (await expects(0, ['definition', 'validate', loop])).errors.includes('other engines'), 'but where the definition is looked at');
	writeFileSync(document, '');
	check((await expects(1, ['extract', document, '--runtime', 'r'])).errors.includes('empty'), 'an empty document');
	await expects(4, ['extract', join(folder, 'none.md'), '--runtime', 'r']);
	serve(() => [200, { runtimes: [{ name: 'a' }, { name: 'b' }] }]);
	check((await expects(2, ['infer', 'hello'])).errors.includes('a, b'), 'several runtimes');
});

await test('on a terminal extract shows how many sections are done, from the live entries, and clears the bar', async () => {
	writeFileSync(join(folder, 'doc.md'), 'line one\n');
	const at = '/do/0/facts/do/1/extract';
	serve((seen, request, response) => {
		if (seen.path === '/v1/runs/x/events') {
			const entries = [entry(1, 'run.created'), entry(2, 'task.started', { stepId: `${at}@1`, items: 3 }), ...[0, 1, 2].flatMap(i => [entry(3 + 2 * i, 'fact.recorded', { stepId: `${at}/do/0/section#${i}@1`, verdict: i === 1 ? 'FAILED' : 'PASSED' }), entry(4 + 2 * i, 'task.completed', { stepId: `${at}/do/0/section#${i}@1` })]), entry(9, 'task.completed', { stepId: `${at}@1` }), entry(10, 'run.completed')];
			response.writeHead(200, { 'Content-Type': 'text/event-stream' });
			entries.forEach((one, i) => setTimeout(() => response.write(`id: ${one.seq}\ndata: ${JSON.stringify(one)}\n\n`), i * 70));
			return;
		}
		if (seen.path === '/v1/documents')
			return [201, { digest: `sha256:${'1'.repeat(64)}` }];
		if (seen.path === '/v1/facts')
			return [200, { facts: [], next: 0 }];
		return [200, runDocument('x', seen.method === 'GET' ? { status: 'completed', output: { sections: Array(3).fill({ status: 'completed', outcome: 'facts' }) } } : {})];
	});
	const out = await terminal(`extract ${join(folder, 'doc.md')} --runtime r --id x`, {});
	if (out === null)
		return console.log('skipped: progress on a terminal (no program `script`)');
	check(out.includes('1 of 3 sections, 1 fact') && out.includes('3 of 3 sections, 2 facts') && out.includes('####'), JSON.stringify(out));
	check(/\r\u001b\[K0 facts from 3 of 3 sections/.test(out), `cleared before the result: ${JSON.stringify(out.slice(-300))}`);
});

await test('values of a record come whole into a pipe; on a terminal what was cut is marked, and a note says how to see it', async () => {
	const value = 'v'.repeat(5000), source = `GET /${'s'.repeat(300)}`, record = { A: { server: { basis: 'reported', source, value } }, B: { arch: { basis: 'reported', source: 'GET /props', value: 'short' } } };
	serve(seen => seen.method === 'POST' ? [200, { name: 'r', digest: 'sha256:1', reachable: true, models: [{ id: 'm' }], configuration: record }] :
		seen.query.against !== undefined ? [200, { differences: [{ field: 'A.server', basis: { old: 'reported', new: 'reported' }, old: `${value}1`, new: `${value}2` }] }] : [200, { digest: 'sha256:1', record }]);
	for (const words of [['provenance', 'show', 'd'], ['runtime', 'probe', 'r'], ['provenance', 'diff', 'd', 'e']]) {
		const { out, errors } = await expects(0, words, { env: { COLUMNS: '60' } });
		check(out.includes(`${value}`) && (words[1] === 'diff' ? out.includes(`${value}1`) && out.includes(`${value}2`) : out.includes(source)), `${words}: whole: ${out.slice(0, 200)}`);
		check(!out.includes('…') && !errors.includes('…'), `${words}: nothing is cut`);
		const shown = await terminal(words.join(' '), {});
		if (shown === null)
			return console.log('skipped: tables on a terminal (no program `script`)');
		check(/v…/.test(shown) && !shown.includes(value) && /ends with … is longer than there is room for: into a pipe \(\| cat\), and with -o json, it comes whole/.test(shown), `${words}: on a terminal: ${JSON.stringify(shown.slice(-300))}`);
	}
});

await test('infer prints the text, sends its sampling, and writes the call out for a schema', async () => {
	serve(seen => [seen.method === 'POST' ? 201 : 200, runDocument('i', seen.method === 'POST' ? {} : { status: 'completed', output: { text: 'Hello!\nTwo', finishReason: 'stop' } })]);
	equal((await expects(0, ['infer', 'Say hello', '--runtime', 'r', '--id', 'i'])).out, 'Hello!\nTwo\n', 'text');
	equal(JSON.parse(asked.find(seen => seen.method === 'POST').body), { definition: 'reprise/infer:1.0.0', id: 'i', input: { runtime: 'r', prompt: 'Say hello' } }, 'body');
	equal((await expects(0, ['infer', '-', '--runtime', 'r', '--id', 'i', '-o', 'json'], { input: 'from a pipe' })).json.finishReason, 'stop', 'JSON');
	await expects(0, ['infer', 'x', '--runtime', 'r', '--id', 'i', '--max-tokens', '7', '--temperature', '0.5', '--schema', join(folder, 'schemas/facts.json')]);
	const sent = JSON.parse(asked.filter(seen => seen.method === 'POST').at(-1).body), call = sent.definition.do[0].answer;
	equal([call.call, sent.input.sampling, call.with.schema], ['inference', { maxTokens: 7, temperature: 0.5 }, { document: factsSchema }], 'call');
	await expects(2, ['infer', 'x', '--runtime', 'r', '--temperature', 'hot']);
	await expects(0, ['infer', 'x', '--runtime', 'r', '--id', 'i', '--seed', '9007199254740991']);
	equal(JSON.parse(asked.filter(seen => seen.method === 'POST').at(-1).body).input.sampling, { seed: 9007199254740991 }, 'the largest seed that JSON numbers carry');
	await expects(2, ['infer', 'x', '--runtime', 'r', '--seed', '9007199254740992']); // would be sent as another one
	await expects(2, ['infer', '', '--runtime', 'r']);
	await expects(2, ['infer', '-', '--runtime', 'r'], { input: '' });
});

await test('fact list pages through the feed with its filters; export gives stored envelopes, JSON lines, inert CSV', async () => {
	const all = Array.from({ length: 2300 }, (_, i) => factDocument(i * 2, i === 0 ? { value: { subject: '=cmd()', predicate: '@x', object: 'a,"b"\nc' }, quote: '-1' } : {}));
	const envelope = id => `{"payload":"eA==", "payloadType":"x","signatures":[],"id":"${id}"}`;
	serve(seen => {
		const single = /^\/v1\/facts\/([0-9a-f]+)(\/attestation)?$/.exec(seen.path);
		if (single)
			return [200, single[2] ? envelope(single[1]) : all.find(fact => fact.id.startsWith(single[1]))];
		const after = seen.query.after === undefined ? -1 : Number(seen.query.after), page = all.filter(fact => fact.seq > after).slice(0, Number(seen.query.limit));
		return [200, { facts: page, next: page.length ? page.at(-1).seq : after }];
	});
	equal((await expects(0, ['fact', 'list', '-o', 'json'])).json.facts.length, 100, 'default');
	equal((await expects(0, ['fact', 'list', '--all', '-o', 'ids'])).out.trim().split('\n'), all.map(fact => fact.id), 'all');
	asked.length = 0;
	await expects(0, ['fact', 'list', '--run', 'r1', '--document', 'sha256:aa', '--runtime', 'rt', '--class', 'byte-stable', '--rejected', '--limit', '3']);
	equal(asked[0].query, { run: 'r1', document: 'sha256:aa', runtime: 'rt', class: 'byte-stable', rejected: 'true', limit: '4' }, 'filters, and one fact more than is shown');
	check((await expects(0, ['fact', 'list', '--limit', '3'])).errors.includes('showing 3; --all lists every one'), 'that there is more');
	check(!(await expects(0, ['fact', 'list', '--limit', '2300'])).errors.includes('--all'), 'that these are all');
	check((await expects(0, ['fact', 'list', '--limit', '3'])).out.endsWith('\nfrom a SIMULATED runtime: no model was asked\n'), 'that no model was asked');
	equal((await expects(0, ['fact', 'export', all[0].id, all[1].id])).out, `${envelope(all[0].id)}\n${envelope(all[1].id)}\n`, 'envelopes to the byte');
	const csv = (await expects(0, ['fact', 'export', all[0].id, '--format', 'csv'])).out.split('\r\n');
	check(csv[0].startsWith('id,subject,predicate,object,quote,'), csv[0]);
	check(csv[1].startsWith(`${all[0].id},"'=cmd()","'@x","a,""b""\nc","'-1",exact,`), csv[1]);
	equal((await expects(0, ['fact', 'export', '--run', 'x', '--format', 'jsonl'])).out.trim().split('\n').length, 2300, 'jsonl');
	await expects(2, ['fact', 'export', '--format', 'xml']);
	check((await expects(0, ['fact', 'show', all[1].id.slice(0, 12)])).out.includes('SIMULATED'), 'show');
});

// ---- A daemon that lies ----

const journal = readFileSync(join(vectors, 'journal.jsonl'), 'utf8').trimEnd().split('\n');
const logKey = readFileSync(join(vectors, 'keys/log.vkey'), 'utf8').trim();
const spki = name => createPublicKey(readFileSync(join(vectors, `keys/${name}.pub.pem`))).export({ type: 'spki', format: 'der' });
const keys = { origin: 'reprise.example/journal/7f3a', keys: [{ keyid: sha256(spki('fact')), algorithm: 'ed25519', public: spki('fact').subarray(12).toString('base64'), purpose: 'fact' }, { keyid: sha256(spki('log')), algorithm: 'ed25519', public: spki('log').subarray(12).toString('base64'), purpose: 'log', vkey: logKey }] };
const logServer = (entries, size, notes) => seen => {
	if (seen.path === '/v1/keys')
		return [200, keys];
	if (seen.path === '/v1/log/checkpoints')
		return [200, { checkpoints: notes }];
	if (seen.path === '/v1/log/entries') {
		const from = Number(seen.query.from), page = entries.slice(from, from + 6); // a server may give fewer than asked
		return [200, { entries: page, next: from + page.length, size }];
	}
	return [404, {}];
};
const note = size => readFileSync(join(vectors, `checkpoint.${size}`), 'utf8');

await test('journal verify computes the tree of what the daemon sends, and catches changed, cut and rewritten journals', async () => {
	serve(logServer(journal, 20, [note(8), note(13), note(20)]));
	check(/VALID +journal of 20 entries/.test((await expects(0, ['journal', 'verify'])).out), 'good');
	check((await expects(0, ['journal', 'verify', '--trusted', join(vectors, 'checkpoint.13'), '--log-key', join(vectors, 'keys/log.vkey')])).out.includes('VALID'), 'trusted');
	serve(logServer(journal.map((line, i) => i === 9 ? line.replace('"v":1', '"v":1 ') : line), 20, [note(8), note(20)]));
	check((await expects(23, ['journal', 'verify', '-o', 'json'])).out.includes('journal-'), 'a changed entry');
	serve(logServer(journal.slice(0, 18), 18, [note(8)]));
	await expects(0, ['journal', 'verify']);
	check((await expects(23, ['journal', 'verify', '--trusted', join(vectors, 'checkpoint.20')])).out.includes('journal-truncated'), 'cut behind the last checkpoint that it shows');
	serve(logServer(journal.slice(0, 18), 20, [note(8)]));
	check((await expects(23, ['journal', 'verify'])).out.includes('journal-truncated'), 'entries promised and not given');
	serve(logServer([...journal.slice(0, 3), journal[4], journal[3], ...journal.slice(5)], 20, [note(20)]));
	await expects(23, ['journal', 'verify']);
	serve(logServer(journal, 20, [note(20).replace(/\n(?=\n)/, '\n')]));
	await expects(0, ['journal', 'verify']);
	serve(logServer(journal, 20, [note(20)]));
	equal((await expects(0, ['journal', 'export'])).out, `${journal.join('\n')}\n`, 'exported to the byte');
	serve(logServer(journal.slice(0, 18), 20, []));
	check((await expects(1, ['journal', 'export'])).errors.includes('gave 18 of the 20 entries'), 'an export that is cut');
	serve(logServer(journal, 20, Array(100001).fill(note(20))));
	check((await expects(1, ['journal', 'verify'])).errors.includes('NOTES_MAX'), 'the limit on checkpoints is named');
});

await test('fact verify takes envelope, entry and proof from the daemon and checks them here', async () => {
	const fact = JSON.parse(readFileSync(join(vectors, 'fact.json'), 'utf8'));
	const lines = { envelope: readFileSync(join(vectors, 'envelope.json'), 'utf8'), entry: readFileSync(join(vectors, 'fact.entry'), 'utf8'), proof: readFileSync(join(vectors, 'fact.tlog-proof'), 'utf8') };
	const id = sha256(Buffer.from(JSON.parse(lines.envelope).payload, 'base64'));
	const document = readFileSync(join(vectors, 'document.txt'));
	const server = change => seen => {
		if (seen.path === '/v1/keys')
			return [200, keys];
		if (seen.path === `/v1/documents/sha256%3A${sha256(document)}`)
			return [200, change.document ?? document, { 'Content-Type': 'text/plain' }];
		if (seen.path.endsWith('/attestation'))
			return [200, change.envelope ?? lines.envelope];
		if (seen.path.endsWith('/entry'))
			return [200, { entry: change.entry ?? lines.entry, seq: JSON.parse(lines.entry).seq, proof: change.proof ?? lines.proof }];
		if (seen.path.startsWith('/v1/facts/'))
			return [200, { ...fact, id, document: `sha256:${sha256(document)}`, ...change.fact }];
		return [200, { facts: seen.query.after === undefined ? [{ ...fact, id, document: `sha256:${sha256(document)}` }] : [], next: 0 }];
	};
	// The example's fact has a member `type` besides value and quote, which the daemon's facts have not: so its subject cannot match.
	serve(server({}));
	const result = await reprise(['fact', 'verify', id.slice(0, 12)]);
	for (const line of ['signature', 'entry', 'inclusion', 'time', 'artefact +section within the document'])
		check(new RegExp(`pass +${line}`).test(result.out), `${line} passes: ${result.out}${result.errors}`);
	check(result.errors.includes('from the daemon itself'), 'where the keys came from is said');
	const flipped = JSON.parse(lines.envelope);
	flipped.signatures[0].sig = flipped.signatures[0].sig.replace(/^./, c => c === 'A' ? 'B' : 'A');
	for (const [change, code] of [[{ envelope: JSON.stringify(flipped) }, 'signature-invalid'], [{ entry: lines.entry.replace(/"attempt":\d+/, '"attempt":77') }, 'entry-mismatch'], [{ document: 'another document, which is long enough to hold the section that was signed, and then some more of it to be sure'.repeat(20) }, 'artefact-mismatch']]) {
		serve(server(change));
		check((await expects(22, ['fact', 'verify', id])).out.includes(code), code);
	}
	serve(server({}));
	equal((await expects(0, ['fact', 'export', id, '--format', 'proof'])).out, lines.proof, 'the proof to the byte');
	equal((await expects(0, ['fact', 'export', id, '--format', 'entry'])).out, lines.entry, 'the entry to the byte');
	await expects(2, ['fact', 'export', '--format', 'proof', '--run', 'x']);
	check((await reprise(['fact', 'verify', '--run', 'x'])).out.includes('1 facts') === false, 'one fact is shown in full or in short, without a sum');
	serve(seen => seen.path === '/v1/keys' ? [200, keys] : seen.path === '/v1/facts' ? [200, { facts: [], next: 0 }] : [404, { detail: 'there is no run nope' }]);
	for (const verb of ['list', 'export', 'verify']) {
		const unknown = await expects(4, ['fact', verb, '--run', 'nope']);
		check(unknown.errors.includes('there is no run nope') && unknown.out === '', `${verb}: ${unknown.out}${unknown.errors}`);
	}
	serve(() => [404, { detail: 'no fact 123456789012' }]);
	await expects(4, ['fact', 'verify', '123456789012', '--key', join(vectors, 'keys/fact.pub.pem'), '--log-key', join(vectors, 'keys/log.vkey')]);
});

await test('answers whose members have other types than agreed, or none, end with an error or a short listing, never with a crash', async () => {
	const odd = [null, 5, 'x', [null, 5, 'x', {}, [[]]], { a: [1], id: 7 }, {}];
	const names = ['id', 'status', 'workflow', 'labels', 'tasks', 'error', 'overhead', 'facts', 'events', 'runs', 'keys', 'runtimes', 'entries', 'checkpoints', 'definitions', 'output',
		'value', 'grounding', 'section', 'checks', 'reproducibility', 'detail', 'problems', 'next'];
	const bodies = ['', 'null', '5', '[]', ...odd.map(value => JSON.stringify(Object.fromEntries(names.map(name => [name, value])))),
		JSON.stringify({ id: 'x', status: 'completed', tasks: [{ name: 'a', reference: '/do/0/a', iteration: ['x', null], status: 'completed' }] })];
	const verbs = [['list'], ['show', 'x'], ['result', 'x'], ['events', 'x'], ['events', 'x', '-f'], ['overhead', 'x'], ['overhead'], ['replay', '--all'], ['fact', 'list'], ['fact', 'show', 'x'],
		['fact', 'verify', 'x'], ['fact', 'verify', '--all'], ['fact', 'export'], ['fact', 'export', '--format', 'csv'], ['journal', 'stats'], ['key', 'list'], ['key', 'export'], ['runtime', 'list'],
		['runtime', 'probe', 'x'], ['definition', 'list'], ['definition', 'show', 'n/t'], ['config', 'show', '--effective'], ['version']];
	for (const body of bodies) {
		serve(() => [200, body]);
		// Those without a code for it end with a signal, those with a sanitizer fail in reprise().
		for (const result of await Promise.all(verbs.map(verb => reprise(verb))))
			check(result.signal === null, `signal ${result.signal} on ${body.slice(0, 200)}: ${result.errors}`);
	}
});

await test('key list and export print public keys as PEM, verifier key and ring', async () => {
	serve(() => [200, keys]);
	check((await expects(0, ['key', 'list'])).out.includes(logKey), 'list');
	equal((await expects(0, ['key', 'export'])).out, readFileSync(join(vectors, 'keys/fact.pub.pem'), 'utf8'), 'PEM');
	equal((await expects(0, ['key', 'export', '--purpose', 'log', '--format', 'vkey'])).out, `${logKey}\n`, 'verifier key');
	const ring = (await expects(0, ['key', 'export', '--format', 'ring'])).json;
	equal([ring._type, ring.journal, ring.version, ring.keys.length], ['https://reprise.example/keyring/v1', keys.origin, 1, 2], 'ring');
	await expects(4, ['key', 'export', '--purpose', 'root']);
	await expects(2, ['key', 'export', '--purpose', 'fact', '--format', 'vkey']);
});

await test('definitions and runtimes are added, listed, shown and probed', async () => {
	serve(seen => seen.method === 'POST' ? [201, { namespace: 'test', name: 'hello', version: '1.0.0', digest: 'sha256:aa' }] : [200, { definitions: [{ namespace: 'test', name: 'hello', version: '1.0.0', digest: 'sha256:aa' }] }]);
	check((await expects(0, ['definition', 'add', hello])).out.includes('test/hello:1.0.0  added'), 'add');
	equal([asked[0].headers['content-type'], asked[0].body], ['application/yaml', readFileSync(hello, 'utf8')], 'the source as it is');
	await expects(0, ['definition', 'add', extraction('file:schemas/facts.json')]);
	equal([asked[1].headers['content-type'], JSON.parse(asked[1].body).do[0].facts.with.schema], ['application/json', { document: factsSchema }], 'inlined');
	equal((await expects(0, ['definition', 'list', '-o', 'ids'])).out, 'test/hello:1.0.0\n', 'list');
	await expects(0, ['definition', 'show', 'test/hello:1.0.0']);
	equal(asked.at(-1).path, '/v1/definitions/test/hello/1.0.0', 'show');
	await expects(2, ['definition', 'show', 'hello']);
	serve(seen => seen.method === 'POST' ? [200, { name: 'r', reachable: false }] : [200, { runtimes: [{ name: 'r', kind: 'openai', url: 'http://x', model: 'm', status: 'ready', inFlight: 1, waiting: 0, concurrency: 4, simulated: true }] }]);
	check(/r +openai \(simulated\) +ready +1 of 4 +0 +m +http:\/\/x/.test((await expects(0, ['runtime', 'list'])).out), 'list');
	await expects(1, ['runtime', 'probe', 'r']);
	serve(() => [200, { name: 'r', reachable: true, simulated: false, digest: 'sha256:1', models: [], configuration: {} }]);
	check(/named no model/.test((await expects(0, ['runtime', 'probe', 'r'])).errors), 'a server of something else');
	const launched = { name: 'r', kind: 'openai', url: 'http://x', status: 'unknown', inFlight: 0, waiting: 2, concurrency: 1, launch: { state: 'refused', since: '2026-11-29T10:00:00.000Z', starts: 1, restarts: 0,
		refusal: { class: 'no-kernel', line: 'no kernel image', advice: 'another build' }, log: ['first', 'no kernel image'] } };
	serve(seen => seen.path.startsWith('/v1/runtimes/none') ? [404, { type: 'x', title: 'not-found', status: 404, detail: 'no runtime none' }] : [200, launched]);
	const shown = (await expects(0, ['runtime', 'show', 'r'])).out;
	check(/state +refused/.test(shown) && /cause +no kernel image/.test(shown) && /what helps +another build/.test(shown) && shown.endsWith('log\n  first\n  no kernel image\n'), shown);
	await expects(4, ['runtime', 'show', 'none']);
	check((await expects(1, ['runtime', 'start', 'r', '--wait'])).errors.includes('runtime r is refused'), 'a start that is refused');
	equal((await expects(0, ['runtime', 'stop', 'r', '--reason', 'a driver'])).out, 'refused\n', 'stop');
	equal([asked.at(-1).method, asked.at(-1).path, JSON.parse(asked.at(-1).body)], ['POST', '/v1/runtimes/r/stop', { reason: 'a driver' }], 'what is asked');
	serve(() => [200, { ...launched, launch: { ...launched.launch, state: 'starting' } }]);
	await expects(7, ['runtime', 'reload', 'r', '--yes', '--wait', '--timeout', '300ms']);
	const before = asked.length;
	for (const words of [['stop', 'r', '--yes', '--wait', '--timeout', 'soon'], ['start', 'r', '--timeout', '5s'], ['stop', ''], ['probe', '']])
		await expects(2, ['runtime', ...words]);
	equal(asked.length, before, 'what cannot be meant stops nothing');
	check(/argument 1 is empty/.test((await expects(2, ['gate', ''])).errors), 'a gate of nothing');
	serve(() => [404, { type: 'x', title: 'not-found', status: 404, detail: 'no runtime a b' }]);
	check(!/run id/.test((await expects(4, ['gate', 'a b'])).errors), 'a runtime is no run');
});

await test('version tells both sides, and does not need the daemon', async () => {
	serve(() => [200, { name: 'reprised', version: '9.9.9' }]);
	equal((await expects(0, ['version', '-o', 'json'])).json.daemon.version, '9.9.9', 'daemon');
	equal((await expects(0, ['version', '-o', 'json'], { socket: join(folder, 'nobody.sock') })).json.daemon, null, 'none');
	check(/^reprise \d+\.\d+\.\d+\n$/.test((await expects(0, ['--version'])).out), '--version');
});

// ---- The real daemon ----

fake.close();
fake.closeAllConnections();

function startProgram(path, words, log) {
	const child = spawn(path, words, { env: environment, stdio: ['ignore', 'pipe', 'pipe'] });
	child.log = '';
	child.stderr.on('data', data => { child.log += data; });
	child.ended = new Promise(done => child.on('exit', done));
	child.ready = new Promise((done, fail) => {
		let out = '';
		child.stdout.on('data', data => { out += data; if (out.includes('\n')) done(out); });
		child.on('exit', () => fail(new Error(`${path} ended: ${child.log}`)));
	});
	return child;
}

if (!existsSync(daemonProgram) || !existsSync(simProgram)) {
	// Who names the programs wants them tested; only a look at the offline part alone may do without.
	if (process.env.REPRISED !== undefined || process.env.REPRISE_SIM !== undefined) {
		failed++;
		console.log(`not ok - the programs are built: ${daemonProgram}, ${simProgram}`);
	}
	console.log(`skipped: the main job (${existsSync(daemonProgram) ? simProgram : daemonProgram} is not built)`);
} else {
	const sim = startProgram(simProgram, ['--port', '0', '--model', 'sim-model']);
	const simUrl = /http:\/\/[^ \n]+/.exec(await sim.ready)[0];
	const data = join(folder, 'data'), config = join(folder, 'reprise.yaml');
	writeFileSync(config, `runtimes:\n  extractor: {kind: openai, url: '${simUrl}', model: sim-model, concurrency: 4, sampling: {temperature: 0, seed: 42, maxTokens: 2048}}\n`);
	let daemon = startProgram(daemonProgram, ['--config', config, '--data', data]);
	const socket = join(data, 'reprise.sock');
	const real = { socket };
	try {
		await daemon.ready;
		const sample = join(root, 'tests/data/sample.md');
		await test('the main job: a document becomes facts with lines, all verified here, exported, replayed', async () => {
			const result = await expects(0, ['extract', sample, '--id', 'main'], real);
			check(/\d+ facts from (\d+) of \1 sections/.test(result.out), result.out.slice(-1500));
			const lines = readFileSync(sample, 'utf8').split('\n');
			const facts = (await expects(0, ['fact', 'list', '--run', 'main', '--all', '-o', 'jsonl'], real)).out.trim().split('\n').map(line => JSON.parse(line));
			check(facts.length > 40, `${facts.length} facts`);
			const bytes = readFileSync(sample);
			for (const fact of facts.filter(one => one.grounding.grade === 'exact'))
				equal(bytes.subarray(...fact.grounding.bytes).toString(), fact.quote, 'quote in the document');
			const row = /^ *(\d+) {2}(\S.*?) {2,}/.exec(result.out.split('\n')[1]);
			check(row && lines[Number(row[1]) - 1] !== undefined, 'a line number');
			const verified = await expects(0, ['fact', 'verify', '--run', 'main', '-o', 'json'], real);
			equal([verified.json.VALID, verified.json.exit], [facts.length, 0], 'verified');
			for (const name of ['signature', 'subject', 'entry', 'inclusion'])
				check(verified.json.facts.every(fact => fact.checks.some(one => one.check === name && one.status === 'pass')), `${name} passes for each`);
			check(verified.json.facts.every(fact => fact.checks.some(one => one.check === 'artefact' && one.status === 'pass' && one.detail.startsWith('section within'))), 'each section is the signed one');
			const envelopes = join(folder, 'facts.intoto.jsonl');
			writeFileSync(envelopes, (await expects(0, ['fact', 'export', '--run', 'main'], real)).out);
			writeFileSync(join(folder, 'daemon.pub'), (await expects(0, ['key', 'export'], real)).out);
			await expects(0, ['fact', 'verify', envelopes, '--key', join(folder, 'daemon.pub')], { socket: null });
			await expects(22, ['fact', 'verify', envelopes, '--key', join(vectors, 'keys/fact.pub.pem')], { socket: null });
			await expects(0, ['replay', 'main'], real);
			await expects(0, ['journal', 'verify'], real);
			// All that an offline check takes comes from the command line itself.
			const place = name => join(folder, `offline.${name}`);
			for (const [name, words] of [['entry', ['fact', 'export', facts[0].id, '--format', 'entry']], ['proof', ['fact', 'export', facts[0].id, '--format', 'proof']], ['envelope', ['fact', 'export', facts[0].id]], ['vkey', ['key', 'export', '--purpose', 'log', '--format', 'vkey']], ['journal', ['journal', 'export']]])
				writeFileSync(place(name), (await expects(0, words, real)).out);
			const offline = await expects(0, ['fact', 'verify', place('envelope'), '--key', join(folder, 'daemon.pub'), '--entry', place('entry'), '--proof', place('proof'), '--log-key', place('vkey'), '--document', sample], { socket: null });
			check(/pass +inclusion +anchored/.test(offline.out) && /pass +artefact +document/.test(offline.out), offline.out);
			check(/VALID +journal of \d+ entries/.test((await expects(0, ['journal', 'verify', place('journal'), '--log-key', place('vkey')], { socket: null })).out), 'the exported journal');
			for (const verb of ['list', 'export', 'verify'])
				check((await expects(4, ['fact', verb, '--run', 'nope'], real)).errors.includes('there is no run nope'), verb);
			equal((await expects(0, ['cancel', 'main'], real)).out, 'main  had already ended (completed)\n', 'cancel of an ended run');
			await expects(0, ['overhead', 'main'], real);
		});
		await test('runs are submitted, waited for, listed, counted, shown, followed; equal ids and other content conflict', async () => {
			const result = await expects(0, ['submit', hello, '--id', 'greeting', '--input', '{"name": "Ada"}', '--label', 'team=x', '--wait', '-o', 'json'], real);
			equal(result.json.output, { greeting: 'Ada' }, 'output');
			equal((await expects(0, ['submit', hello, '--id', 'greeting', '--input', '{"name": "Ada"}', '--label', 'team=x', '-o', 'ids'], real)).out, 'greeting\n', 'the same again');
			await expects(5, ['submit', hello, '--id', 'greeting', '--input', '{"name": "Bob"}'], real);
			equal((await expects(0, ['list', '--label', 'team=x', '-o', 'ids'], real)).out, 'greeting\n', 'list');
			equal((await expects(0, ['count', '--status', 'completed', '--label', 'team=x'], real)).out, '1\n', 'count');
			equal((await expects(0, ['result', 'greeting'], real)).json, { greeting: 'Ada' }, 'result');
			const kinds = (await expects(0, ['events', 'greeting', '-f', '-o', 'jsonl'], real)).out.trim().split('\n').map(line => JSON.parse(line).kind);
			equal([kinds[0], kinds.at(-1)], ['run.created', 'run.completed'], 'events');
			equal((await expects(0, ['events', 'greeting', '-o', 'json'], real)).json.events.map(one => one.kind), kinds, 'pages');
			await expects(4, ['show', 'no-such-run'], real);
			await expects(4, ['submit', 'no/such:1.0.0'], real);
		});
		await test('infer, runtimes, definitions, keys, statistics, version and configuration answer', async () => {
			check((await expects(0, ['infer', 'Say hello', '--runtime', 'extractor'], real)).out.length > 1, 'infer');
			check((await expects(0, ['runtime', 'list'], real)).out.includes('extractor'), 'runtimes');
			await expects(0, ['runtime', 'probe', 'extractor'], real);
			check((await expects(0, ['definition', 'list', '-o', 'ids'], real)).out.includes('reprise/extract:1.0.0'), 'built-in definitions');
			check((await expects(0, ['definition', 'add', hello], real)).out.includes('test/hello:1.0.0'), 'add');
			await expects(0, ['definition', 'show', 'test/hello:1.0.0'], real);
			check(/\+[0-9a-f]{8}\+/.test((await expects(0, ['key', 'export', '--purpose', 'log', '--format', 'vkey'], real)).out), 'verifier key');
			await expects(0, ['journal', 'stats'], real);
			await expects(0, ['config', 'show', '--effective'], real);
			check((await expects(0, ['version', '-o', 'json'], real)).json.daemon !== null, 'version');
			const configuration = JSON.parse((await expects(0, ['fact', 'list', '--limit', '1', '-o', 'jsonl'], real)).out).configuration;
			await expects(0, ['provenance', 'show', configuration], real);
		});
		await test('extract --wait and events -f go on over a daemon that is killed and started again', async () => {
			const slowSim = startProgram(simProgram, ['--port', '0', '--control-port', '0', '--model', 'sim-model']);
			try {
				const [slowUrl, control] = (await slowSim.ready).match(/http:\/\/[^ \n]+/g);
				const script = async faults => equal((await fetch(`${control}/__sim/script`, { method: 'POST', body: JSON.stringify({ model: 'sim-model', faults }) })).status, 200, 'script');
				const sectionsAsked = async () => (await (await fetch(`${control}/__sim/state`)).json()).inFlight;
				await script([{ on: Array.from({ length: 1000 }, (_, i) => i + 7), kind: 'hang' }]); // six answers come, the others not before it is told otherwise
				daemon.kill('SIGTERM');
				await daemon.ended;
				writeFileSync(config, readFileSync(config, 'utf8').replace(simUrl, slowUrl));
				daemon = startProgram(daemonProgram, ['--config', config, '--data', data]);
				await daemon.ready;
				const extract = expects(0, ['extract', sample, '--id', 'survivor', '--runtime', 'extractor'], real);
				for (let i = 0; (await reprise(['show', 'survivor'], real)).status !== 0; i++) {
					check(i < 200, 'the run is created');
					await pause(20);
				}
				const follow = expects(0, ['events', 'survivor', '-f', '-o', 'ids'], real);
				for (const promise of [extract, follow])
					promise.catch(() => {}); // told where it is awaited
				for (let i = 0; await sectionsAsked() < 4; i++) {
					check(i < 3000, 'it asks for further sections');
					await pause(20);
				}
				check(JSON.parse((await expects(0, ['show', 'survivor', '-o', 'json'], real)).out).status === 'running', 'it is under way');
				daemon.kill('SIGKILL');
				await daemon.ended;
				await script([]);
				await pause(500);
				daemon = startProgram(daemonProgram, ['--config', config, '--data', data]);
				await daemon.ready;
				check(/\d+ facts from (\d+) of \1 sections/.test((await extract).out), 'all sections');
				const seqs = (await follow).out.trim().split('\n').map(Number);
				const all = (await expects(0, ['events', 'survivor', '-o', 'json'], real)).json.events.map(one => one.seq);
				equal(seqs, all, 'each entry once, in order');
				await expects(0, ['fact', 'verify', '--run', 'survivor'], real);
				await expects(0, ['replay', 'survivor'], real);
			} finally {
				slowSim.kill('SIGTERM');
			}
		});
		await test('journal verify works on the data folder, with the daemon up and down', async () => {
			await expects(0, ['journal', 'verify', '--data', data], { socket: null });
			daemon.kill('SIGTERM');
			await daemon.ended;
			const result = await expects(0, ['journal', 'verify', '--data', data, '-o', 'json'], { socket: null });
			check(result.json.entries > 100 && result.json.checkpoints >= 1, result.out);
			await expects(1, ['journal', 'verify', '--data', join(folder, 'schemas')], { socket: null });
		});
		await test('bench overhead measures and prints the shape of the contract', async () => {
			const result = (await expects(0, ['bench', 'overhead', '--runs', '10', '-o', 'json', '--reprised', daemonProgram, '--sim', simProgram], { socket: null })).json;
			for (const name of ['overheadMs', 'againstNominalMs'])
				check(['p50', 'p95', 'p99'].every(p => typeof result[name][p] === 'number'), `${name}: ${JSON.stringify(result)}`);
			check(result.runs === 10 && result.fdatasyncUs.p50 > 0 && result.fdatasyncUs.afterIdleP50 > 0 && typeof result.machine === 'string' && result.readyMs > 0 && result.idleRssMiB > 0, JSON.stringify(result));
			const noOp = (await expects(0, ['bench', 'overhead', '--no-op', '--runs', '5', '-o', 'json', '--reprised', daemonProgram], { socket: null })).json;
			equal(noOp.nominalActivityMs, 0, 'no activity');
			const memory = (await expects(0, ['bench', 'memory', '--runs', '200', '-o', 'json', '--reprised', daemonProgram], { socket: null })).json;
			check(memory.runs === 200 && memory.residentMiB['100%'] > 0, JSON.stringify(memory));
		});
	} catch (error) {
		failed++;
		console.log(`not ok - the daemon starts\n  ${error.stack}`);
	} finally {
		if (failed > 0)
			console.log(`the daemon's log ends:\n${daemon.log.slice(-4000)}`);
		daemon.kill('SIGTERM');
		sim.kill('SIGTERM');
		await Promise.race([daemon.ended, pause(60_000)]);
	}
}

rmSync(folder, { recursive: true, force: true });
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
