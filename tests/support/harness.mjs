// What the scripts that drive the real programs share: a small test runner, scratch folders, the daemon, the simulator,
// HTTP over the daemon's socket, the command line. Needs Node 20 and nothing else.
//
// REPRISED, REPRISE and REPRISE_SIM name the programs (default build/daemon/reprised, build/cli/reprise,
// build/tests/sim/reprise-sim). REPRISE_SEED seeds what a test draws by chance; it is printed, so that a failure can be repeated.
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import http from 'node:http';
import { appendFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = resolve(dirname(fileURLToPath(import.meta.url)), '../..');
export const programs = {
	daemon: resolve(process.env.REPRISED ?? join(root, 'build/daemon/reprised')),
	cli: resolve(process.env.REPRISE ?? join(root, 'build/cli/reprise')),
	sim: resolve(process.env.REPRISE_SIM ?? join(root, 'build/tests/sim/reprise-sim')),
};
// A sanitized program is several times slower, and so may be the machine. What is waited for comes; a limit is there for what never does, so
// none is shorter than these, whatever a test says.
const READY_WITHIN_MS = 120_000, EXIT_WITHIN_MS = 120_000, TRUE_WITHIN_MS = 60_000, ENDED_WITHIN_MS = 180_000, SQLITE_WAITS_MS = 60_000, LOG_KEPT = 64 << 10;
const HELD_MS = 3_600_000;

// ---- Tests ----

let passed = 0, failed = 0;

// One sentence that holds, and the body that would throw if it did not. REPRISE_ONLY=word runs the sentences that hold the word.
export async function test(sentence, body) {
	if (process.env.REPRISE_ONLY && !sentence.includes(process.env.REPRISE_ONLY))
		return;
	const began = performance.now();
	try {
		await body();
		passed++;
		console.log(`ok ${passed + failed} - ${sentence} (${Math.round(performance.now() - began)} ms)`);
	} catch (error) {
		failed++;
		console.log(`not ok ${passed + failed} - ${sentence}\n  ${String(error.stack ?? error).replaceAll('\n', '\n  ')}`);
	}
}

// The last line, and the end of the process: nothing that was started stays behind.
export async function finish() {
	for (const child of running)
		child.kill('SIGKILL');
	await Promise.all([...running].map(child => child.gone));
	for (const undo of undone.reverse())
		undo();
	if (!process.env.REPRISE_KEEP)
		for (const folder of folders)
			rmSync(folder, { recursive: true, force: true });
	console.log(`${passed} passed, ${failed} failed`);
	process.exit(failed > 0 || passed === 0 ? 1 : 0);
}

export function check(condition, message) {
	if (!condition)
		throw new Error(typeof message === 'function' ? message() : message);
}

export function equal(actual, expected, what) {
	const a = JSON.stringify(actual), b = JSON.stringify(expected);
	check(a === b, () => `${what}: got ${shorten(a)}, expected ${shorten(b)}`);
}

export function match(text, pattern, what) {
	check(pattern.test(text), () => `${what}: ${shorten(JSON.stringify(text))} does not match ${pattern}`);
}

const shorten = text => text === undefined ? 'undefined' : text.length > 1500 ? `${text.slice(0, 1500)}… (${text.length} characters)` : text;

export const pause = ms => new Promise(done => setTimeout(done, ms));

// Ask again until it is true; what the condition gave last is the result.
export async function until(what, condition, withinMs = TRUE_WITHIN_MS, everyMs = 15) {
	const end = performance.now() + Math.max(withinMs, TRUE_WITHIN_MS);
	for (;;) {
		const result = await condition();
		if (result)
			return result;
		check(performance.now() < end, () => `never came true within ${withinMs} ms: ${what}`);
		await pause(everyMs);
	}
}

// ---- Chance ----

// xorshift64*: small, and the same on every machine.
export function random(seed) {
	let state = BigInt.asUintN(64, BigInt(seed) * 0x9e3779b97f4a7c15n + 0x2545f4914f6cdd1dn) || 1n;
	return () => {
		state ^= state >> 12n;
		state = BigInt.asUintN(64, state ^ (state << 25n));
		state ^= state >> 27n;
		return Number(BigInt.asUintN(64, state * 0x2545f4914f6cdd1dn) >> 11n) / 2 ** 53;
	};
}

export function seedOf(defaultSeed) {
	const seed = Number(process.env.REPRISE_SEED ?? defaultSeed);
	console.log(`# seed ${seed} (REPRISE_SEED=${seed} repeats it)`);
	return seed;
}

// ---- Folders and files ----

const folders = new Set(), undone = [];

export function folder(name) {
	const path = mkdtempSync(join(tmpdir(), `reprise-${name}-`));
	folders.add(path);
	return path;
}

// Runs at the end whatever happens, the last one first.
export const atEnd = undo => undone.push(undo);

export const sha256 = bytes => createHash('sha256').update(bytes).digest('hex');

// ---- Programs ----

const running = new Set();
// Also where a script breaks off half way: nothing that was started stays behind.
process.on('exit', () => running.forEach(child => child.kill('SIGKILL')));

export function launch(program, args, { env = {}, uid, gid, wrap = [] } = {}) {
	const [file, ...rest] = [...wrap, program, ...args];
	const child = spawn(file, rest, { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...env }, uid, gid });
	child.output = '';
	child.errors = '';
	running.add(child);
	child.gone = new Promise(done => {
		child.on('error', error => { running.delete(child); child.errors += error.message; done({ code: null, signal: null, error }); });
		child.on('close', (code, signal) => { running.delete(child); done({ code, signal }); });
	});
	child.stdout.on('data', data => { child.output = (child.output + data).slice(-LOG_KEPT); });
	child.stderr.on('data', data => {
		child.errors = (child.errors + data).slice(-LOG_KEPT);
		if (process.env.REPRISE_LOG)
			appendFileSync(process.env.REPRISE_LOG, data);
	});
	return child;
}

// Until the program has ended, with a limit after which it is killed and the test fails.
export async function exitOf(child, withinMs = EXIT_WITHIN_MS) {
	let timer;
	const late = new Promise(done => { timer = setTimeout(() => done(null), Math.max(withinMs, EXIT_WITHIN_MS)); });
	const end = await Promise.race([child.gone, late]);
	clearTimeout(timer);
	if (end === null) {
		child.kill('SIGKILL');
		await child.gone;
		throw new Error(`pid ${child.pid} had not ended after ${withinMs} ms; its log: ${shorten(child.errors.slice(-1500))}`);
	}
	return end;
}

// What SQL says to a database, whose daemon may run: it is waited for.
export function sqlite(path, sql, ...options) {
	const result = spawnSync('sqlite3', [...options, '-cmd', `.timeout ${SQLITE_WAITS_MS}`, path, sql], { encoding: 'utf8', maxBuffer: 64 << 20 });
	equal([result.status, result.stderr], [0, ''], sql);
	return result.stdout.trim();
}

// What a program says first.
export async function firstLine(child, what, withinMs = READY_WITHIN_MS) {
	let timer;
	const line = new Promise((done, fail) => {
		const look = () => { const at = child.output.indexOf('\n'); if (at >= 0) done(child.output.slice(0, at)); };
		child.stdout.on('data', look);
		look();
		child.gone.then(end => fail(new Error(`${what} ended (${end.code ?? end.signal}) before it was ready: ${shorten(child.errors)}`)));
		timer = setTimeout(() => fail(new Error(`${what} was not ready after ${withinMs} ms: ${shorten(child.errors)}`)), withinMs);
	});
	try {
		return await line;
	} finally {
		clearTimeout(timer);
	}
}

// ---- HTTP ----

// One exchange; never throws for what the other end does: `broken` holds the error code instead. `where`: { socketPath } or { host, port }.
export function ask(where, method, path, body, { headers = {}, agent = false, timeoutMs = 120_000 } = {}) {
	return new Promise(done => {
		const bytes = body === undefined ? undefined : Buffer.isBuffer(body) || typeof body === 'string' ? body : JSON.stringify(body);
		const result = { status: 0, headers: {}, text: '', json: undefined, broken: null };
		const pieces = [];
		let over = false, timer;
		const end = broken => {
			if (over)
				return;
			over = true;
			clearTimeout(timer);
			result.broken = broken;
			result.body = Buffer.concat(pieces);
			result.text = result.body.toString();
			if (/json/.test(result.headers['content-type'] ?? '') && broken === null)
				try { result.json = JSON.parse(result.text); } catch { result.broken = 'not-json'; }
			done(result);
		};
		const request = http.request({ ...where, method, path, agent, headers: {
			...(bytes === undefined ? {} : { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(bytes) }), ...headers } }, response => {
			result.status = response.statusCode;
			result.headers = response.headers;
			response.on('data', data => pieces.push(data));
			response.on('end', () => end(response.complete ? null : 'cut'));
			response.on('error', error => end(error.code ?? error.message));
			response.on('aborted', () => end('aborted'));
		});
		request.on('error', error => end(error.code ?? error.message));
		timer = setTimeout(() => { end('no-answer-in-time'); request.destroy(); }, timeoutMs);
		request.end(bytes);
	});
}

// ---- The simulator ----

export async function startSimulator(...options) {
	const child = launch(programs.sim, ['--port', '0', '--control-port', '0', ...options]);
	const line = await firstLine(child, 'reprise-sim');
	const ready = /^reprise-sim ready http:\/\/127\.0\.0\.1:(\d+) control http:\/\/127\.0\.0\.1:(\d+)$/.exec(line);
	check(ready, `ready line of reprise-sim: ${line}`);
	const control = { host: '127.0.0.1', port: Number(ready[2]) };
	const must = async (method, path, body) => {
		const answer = await ask(control, method, path, body);
		equal(answer.status, 200, `${method} ${path} of the simulator (${answer.broken ?? answer.text})`);
		return answer.json;
	};
	// A new script, and counters and ordinals from the start.
	const script = async script => { await must('POST', '/__sim/script', script); await must('POST', '/__sim/reset', {}); };
	return {
		child,
		port: Number(ready[1]),
		url: `http://127.0.0.1:${ready[1]}`,
		state: () => must('GET', '/__sim/state'),
		script,
		// By this script, but no answer begins before it is released: what a test needs to be under way is, on any machine. A release is for those that wait now;
		// what is asked afterwards is answered by the script that comes with it. Counters begin anew first, so that all that are held are counted.
		hold: async (held = {}) => { await must('POST', '/__sim/reset', {}); await must('POST', '/__sim/script', { ...held, cadence: { ...held.cadence, firstByteMs: HELD_MS } }); },
		release: async (next = {}) => { await must('POST', '/__sim/script', next); await must('POST', '/__sim/release', {}); },
		reset: () => must('POST', '/__sim/reset', {}),
		stop: async () => { child.kill('SIGTERM'); equal(await exitOf(child), { code: 0, signal: null }, `end of reprise-sim (${child.errors})`); },
	};
}

// ---- The daemon ----

// A folder with a configuration (JSON is YAML too), and the daemon that is started on it as often as wanted.
export class Daemon {
	constructor(name, configuration = {}, { data, wrap, env } = {}) {
		this.folder = folder(name);
		this.data = data ?? join(this.folder, 'data');
		this.socket = join(this.folder, 's');
		this.file = join(this.folder, 'reprise.yaml');
		this.wrap = wrap;
		this.env = env;
		this.child = null;
		this.configure(configuration);
	}

	configure(configuration) {
		writeFileSync(this.file, JSON.stringify(configuration, null, '\t'));
	}

	get args() {
		return ['--config', this.file, '--data', this.data, '--listen', `unix:${this.socket}`];
	}

	launch(...more) {
		return launch(programs.daemon, [...this.args, ...more], { env: this.env, wrap: this.wrap });
	}

	async start(...more) {
		check(this.child === null, 'the daemon runs already');
		const child = this.launch(...more);
		this.child = child;
		child.gone.then(() => { if (this.child === child) this.child = null; });
		this.ready = await firstLine(child, 'reprised');
		match(this.ready, /^reprised ready in \d+(\.\d+)? ms on unix:/, 'ready line');
		return this;
	}

	get pid() {
		return this.child.pid;
	}

	async kill() {
		const child = this.child;
		child.kill('SIGKILL');
		const end = await child.gone;
		this.child = null;
		// It may have ended by itself before: that would be a crash, and is not what the test wanted.
		equal(end, { code: null, signal: 'SIGKILL' }, `end of reprised by SIGKILL (${child.errors.slice(-1500)})`);
	}

	// Started and killed after so many milliseconds, ready or not.
	async killWhileStarting(ms) {
		const child = this.launch();
		await pause(ms);
		child.kill('SIGKILL');
		equal(await child.gone, { code: null, signal: 'SIGKILL' }, `end of reprised by SIGKILL (${child.errors.slice(-1500)})`);
	}

	// SIGTERM; status 0, and nothing said by a sanitizer.
	async stop() {
		const child = this.child;
		child.kill('SIGTERM');
		const end = await exitOf(child);
		this.child = null;
		equal(end, { code: 0, signal: null }, `end of reprised after SIGTERM (${child.errors.slice(-3000)})`);
		check(!/ERROR: (Address|Leak)Sanitizer|runtime error:/.test(child.errors), () => `sanitizer: ${child.errors}`);
	}

	ask(method, path, body, options) {
		return ask({ socketPath: this.socket }, method, path, body, options);
	}

	async get(path, status = 200) {
		const answer = await this.ask('GET', path);
		equal(answer.status, status, `GET ${path} (${answer.broken ?? answer.text.slice(0, 500)})`);
		return answer.json ?? answer.text;
	}

	async post(path, body, status, options) {
		const answer = await this.ask('POST', path, body, options);
		check((Array.isArray(status) ? status : [status]).includes(answer.status), () =>
			`POST ${path}: got ${answer.status}, expected ${status} (${answer.broken ?? answer.text.slice(0, 800)})`);
		return answer.json;
	}

	// The command line against this daemon: { code, stdout, stderr, json() }.
	cli(...args) {
		const options = typeof args.at(-1) === 'object' && !Buffer.isBuffer(args.at(-1)) ? args.pop() : {};
		return cli('--socket', this.socket, ...args, options);
	}

	run(id, include = 'all') {
		return this.get(`/v1/runs/${id}?include=${include}`);
	}

	// Until the run has ended; the whole document.
	async ended(id, withinMs = ENDED_WITHIN_MS) {
		const end = performance.now() + Math.max(withinMs, ENDED_WITHIN_MS);
		for (;;) {
			const answer = await this.ask('GET', `/v1/runs/${id}?wait=10s&include=all`, undefined, { timeoutMs: 120_000 });
			equal(answer.status, 200, `waiting for ${id} (${answer.broken ?? answer.text.slice(0, 500)})`);
			if (['completed', 'faulted', 'cancelled'].includes(answer.json.status))
				return answer.json;
			check(performance.now() < end, () => `${id} had not ended after ${withinMs} ms: ${shorten(answer.text)}`);
		}
	}

	// All entries of a run.
	async events(id) {
		const list = [];
		for (let after = null;;) {
			const page = await this.get(`/v1/runs/${id}/events${after === null ? '' : `?after=${after}`}`);
			list.push(...page.events);
			if (page.events.length === 0)
				return list;
			after = page.events.at(-1).seq;
		}
	}

	// All entries of the journal, parsed and as they are.
	async journal(from = 0) {
		const list = [];
		for (;;) {
			const page = await this.get(`/v1/log/entries?from=${from}&limit=5000`);
			list.push(...page.entries);
			if (page.entries.length === 0 || page.next >= page.size)
				return list;
			from = page.next;
		}
	}

	// The whole facts feed, as a service that follows it sees it.
	async facts(query = '') {
		const list = [];
		for (let after = null;;) {
			const page = await this.get(`/v1/facts?${after === null ? '' : `after=${after}&`}${query}`);
			if (page.facts.length === 0)
				return list;
			list.push(...page.facts);
			after = page.facts.at(-1).seq;
		}
	}

	// A number from /metrics; undefined when it is not there.
	async metric(name) {
		const line = (await this.get('/metrics')).split('\n').find(text => text.startsWith(`${name} `) || text.startsWith(`${name}{`));
		return line === undefined ? undefined : Number(line.slice(line.lastIndexOf(' ') + 1));
	}

	// A value that an entry names, as it lies in the journal; none of the API's paths gives it.
	content(digest) {
		const sql = query => sqlite(join(this.data, 'journal.db'), query, '-readonly').split('|');
		let [encoding, hex] = sql(`SELECT encoding, hex(bytes) FROM content WHERE digest = x'${digest.sha256}' LIMIT 1`), bytes;
		if (encoding === '2')
			[encoding, hex] = sql(`SELECT encoding, hex(bytes) FROM blob WHERE digest = x'${digest.sha256}'`);
		bytes = Buffer.from(hex, 'hex');
		if (encoding === '1')
			bytes = spawnSync('zstd', ['-dc'], { input: bytes, maxBuffer: 64 << 20 }).stdout;
		equal(sha256(bytes), digest.sha256, 'digest of the value');
		return bytes.toString();
	}

	// Signatures, tree and checkpoints as the command line checks them.
	verifyJournal() {
		const result = this.cli('journal', 'verify');
		equal(result.code, 0, `journal verify (${result.stdout}${result.stderr})`);
		return result;
	}
}

export function cli(...args) {
	const options = typeof args.at(-1) === 'object' && !Buffer.isBuffer(args.at(-1)) ? args.pop() : {};
	const result = spawnSync(programs.cli, args, { input: options.input ?? '', encoding: options.encoding ?? 'utf8', timeout: options.timeoutMs ?? 300_000,
		maxBuffer: 256 << 20, cwd: options.cwd, env: { ...process.env, NO_COLOR: '1', ...options.env } });
	return { code: result.status, signal: result.signal, stdout: result.stdout, stderr: result.stderr, json: () => JSON.parse(result.stdout) };
}

// Resident memory of a process in MiB; `private` is what it alone holds.
export function memoryOf(pid) {
	const text = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8');
	const sum = pattern => [...text.matchAll(pattern)].reduce((total, found) => total + Number(found[1]), 0) / 1024;
	return { resident: sum(/^Rss:\s+(\d+) kB/gm), private: sum(/^Private_(?:Clean|Dirty):\s+(\d+) kB/gm) };
}

// ---- Things to submit ----

export const definition = (name, tasks, more = {}) => ({ document: { dsl: '1.0.3', namespace: 'tests', name, version: '1.0.0' }, ...more, do: tasks });

export const extractionOf = (runtime, more = {}) => definition('extract', [{ facts: { call: 'extraction', with: { runtime, document: '${ .document }', ...more } } }]);

// A Markdown document of `count` sections, each with two facts that the simulator's rules find. Every section differs.
export function documentOf(count, word = 'Werk') {
	const parts = [];
	for (let i = 1; i <= count; i++)
		parts.push(`# ${word} ${i}\n\n${word} ${i} was founded in ${1800 + i}. Žofie Čapková ${i} works at ${word} ${i}.\n`);
	return parts.join('\n');
}

export const problemMembers = ['type', 'title', 'status', 'detail'];

// An RFC 9457 problem with the members that the API promises.
export function problem(answer, status, pattern) {
	equal(answer.status, status, `status (${answer.broken ?? answer.text.slice(0, 500)})`);
	match(answer.headers['content-type'] ?? '', /^application\/problem\+json/, 'content type');
	for (const member of problemMembers)
		check(member in answer.json, () => `problem has no "${member}": ${answer.text}`);
	equal(answer.json.status, status, 'status member');
	if (pattern)
		match(answer.text, pattern, 'problem');
	return answer.json;
}
