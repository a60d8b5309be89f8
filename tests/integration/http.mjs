// The daemon's HTTP API, over its Unix socket: every route, every limit that can be reached, the shape of problems, waiting,
// streams, clients that go away, a second daemon, a folder that cannot be written, SIGTERM, and kill -9 in the middle of an extraction.
// Needs Node 20 and nothing else. REPRISED and REPRISE_SIM name the programs (default build/…).
import { spawnSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { chmodSync, copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { join } from 'node:path';
import { check, cli, equal, finish, firstLine, folder as makeFolder, launch, pause, programs, sha256, test, until as untilWithin } from '../support/harness.mjs';

const folder = makeFolder('http');
// Far longer than anything takes: a busy machine makes no failure, and only a failure waits so long. The same holds for ?wait=60s.
const until = (what, condition, ms = 60000) => untilWithin(what, condition, ms);

// ---- Programs ----

function start(file, words, options = {}) {
	const child = launch(file, words, { ...options, gid: options.uid, env: { HOME: folder, XDG_CONFIG_HOME: '', REPRISE_CONFIG: '', REPRISE_DATA: '', NOTIFY_SOCKET: '', ...options.env } });
	const process_ = { child, ended: child.gone.then(end => ({ status: end.code, signal: end.signal })), first: firstLine(child, file),
		get out() { return child.output; }, get errors() { return child.errors; } };
	process_.first.catch(() => {});
	return process_;
}

async function startSim(words = [], script = null) {
	if (script) {
		const file = join(folder, `script-${randomBytes(4).toString('hex')}.json`);
		writeFileSync(file, JSON.stringify(script));
		words = [...words, '--script', file];
	}
	const sim = start(programs.sim, ['--port', '0', '--control-port', '0', ...words]);
	const [, url, control] = (await sim.first).match(/ready (\S+) control (\S+)/);
	return { ...sim, url, control, state: async () => (await fetch(`${control}/__sim/state`)).json() };
}

let daemons = 0;
async function startDaemon({ data = join(folder, `data-${daemons++}`), config = {}, words = [], env = {} } = {}) {
	const file = `${data}.json`;
	writeFileSync(file, JSON.stringify(config));
	const daemon = start(programs.daemon, ['--data', data, '--config', file, '--log', 'text', ...words], { env });
	daemon.data = data;
	daemon.socket = join(data, 'reprise.sock');
	daemon.line = await daemon.first;
	return daemon;
}
async function stop(daemon, signal = 'SIGTERM') {
	daemon.child.kill(signal);
	return daemon.ended;
}

// ---- Requests ----

function request(daemon, method, path, { body, headers = {}, agent, signal } = {}) {
	return new Promise((done, refuse) => {
		const isText = typeof body === 'string' || Buffer.isBuffer(body);
		const bytes = body === undefined ? null : isText ? Buffer.from(body) : Buffer.from(JSON.stringify(body));
		const call = http.request({ socketPath: daemon.socket, method, path, agent: agent ?? false, signal,
			headers: { ...(bytes ? { 'Content-Length': bytes.length, 'Content-Type': 'application/json' } : {}), ...headers } }, answer => {
			const parts = [];
			answer.on('data', part => parts.push(part));
			answer.on('end', () => {
				const raw = Buffer.concat(parts), type = answer.headers['content-type'] ?? '';
				const result = { status: answer.statusCode, headers: answer.headers, type, raw, text: raw.toString() };
				if (/json/.test(type))
					try { result.json = JSON.parse(result.text); } catch { result.json = undefined; }
				done(result);
			});
			answer.on('error', refuse);
		});
		call.on('error', refuse);
		call.end(bytes ?? undefined);
	});
}
const get = (daemon, path, options) => request(daemon, 'GET', path, options);
const post = (daemon, path, body, options) => request(daemon, 'POST', path, { body, ...options });

function problem(answer, status, words, what) {
	check(answer.status === status, `${what}: status ${answer.status}, expected ${status}: ${answer.text.slice(0, 500)}`);
	check(answer.type === 'application/problem+json', `${what}: type ${answer.type}`);
	for (const name of ['type', 'title', 'status', 'detail'])
		check(answer.json?.[name] !== undefined, `${what}: the problem has no ${name}: ${answer.text}`);
	equal(answer.json.status, status, `${what}: status in the body`);
	check(answer.json.type.startsWith('https://reprise.example/problems/'), `${what}: problem type ${answer.json.type}`);
	for (const word of [words].flat())
		check(answer.json.detail.includes(word), `${what}: the detail does not say "${word}": ${answer.json.detail}`);
}

// Events of a stream until `enough` says so.
function stream(daemon, path, enough, headers = {}) {
	return new Promise((done, refuse) => {
		const events = [];
		let text = '', comments = 0;
		const call = http.request({ socketPath: daemon.socket, path, agent: false, headers: { Accept: 'text/event-stream', ...headers } }, answer => {
			if (answer.statusCode !== 200 || answer.headers['content-type'] !== 'text/event-stream')
				return void refuse(new Error(`stream ${path}: ${answer.statusCode} ${answer.headers['content-type']}`));
			answer.on('data', part => {
				text += part;
				for (let end; (end = text.indexOf('\n\n')) >= 0; text = text.slice(end + 2)) {
					const event = {};
					for (const line of text.slice(0, end).split('\n')) {
						if (line.startsWith(':')) { comments++; continue; }
						const [name, ...rest] = line.split(': ');
						event[name] = rest.join(': ');
					}
					if (event.data)
						events.push({ id: Number(event.id), event: event.event, data: JSON.parse(event.data) });
				}
				if (enough(events, comments)) {
					call.destroy();
					done({ events, comments, ended: false });
				}
			});
			answer.on('end', () => done({ events, comments, ended: true }));
			answer.on('error', () => {});
		});
		call.on('error', error => { if (error.code !== 'ECONNRESET') refuse(error); });
		call.end();
	});
}

const definition = (name, tasks, version = '1.0.0') => ({ document: { dsl: '1.0.3', namespace: 'test', name, version }, do: tasks });
const noop = definition('noop', [{ a: { set: { x: 1 } } }]);
const ask = definition('ask', [{ answer: { call: 'inference', with: { runtime: 'slow', prompt: 'hello' } } }]);
const metric = (text, name) => Number(text.match(new RegExp(`^reprise_${name} (\\S+)$`, 'm'))[1]);

// ---- One daemon for most tests ----

const sim = await startSim(['--delay', '5']);
const slowSim = await startSim(['--delay', '600000']);
const daemon = await startDaemon({ config: {
	runtimes: { fast: { kind: 'simulator', url: sim.url, concurrency: 4 }, slow: { kind: 'openai', url: slowSim.url, concurrency: 2000, timeouts: { firstToken: '1h', total: '1h' } } },
	limits: { wakeEvery: '200ms', body: '2MiB', document: '8MiB', streams: 4 } } });

await test('the ready line names time, socket, journal and open runs', () => {
	check(/^reprised ready in \d+ ms on unix:\S+reprise\.sock \(journal \S+, 0 open runs\)$/.test(daemon.line), daemon.line);
});

await test('the socket is the owner\'s alone', () => {
	equal((statSync(daemon.socket).mode & 0o777).toString(8), '600', 'mode');
});

await test('health, readiness, version, configuration, metrics', async () => {
	equal((await get(daemon, '/healthz')).text, 'alive\n', 'healthz');
	equal((await get(daemon, '/readyz')).status, 200, 'readyz');
	const version = (await get(daemon, '/v1/version')).json;
	equal(version.name, 'reprised', 'name');
	check(/^\d+\.\d+\.\d+$/.test(version.version) && version.sqlite, JSON.stringify(version));
	const config = (await get(daemon, '/v1/config')).json;
	equal(config.limits.wakeEvery, '200ms', 'wakeEvery');
	equal(config.runtimes.fast.url, sim.url, 'url');
	equal(config.limits.streams, 4, 'streams');
	const metrics = await get(daemon, '/metrics');
	check(metrics.type.startsWith('text/plain; version=0.0.4'), metrics.type);
	for (const name of ['http_waiters', 'http_streams', 'journal_entries', 'store_queue', 'activities_in_flight'])
		check(Number.isFinite(metric(metrics.text, name)), name);
	for (const line of metrics.text.trim().split('\n'))
		check(/^(# (HELP|TYPE) reprise_\w+ .+|reprise_\w+(\{\w+="[^"]*"\})? [0-9.e+-]+)$/.test(line), `not Prometheus text: ${line}`);
});

await test('the description of the API lists every route that answers', async () => {
	const answer = await get(daemon, '/openapi.json');
	equal(answer.status, 200, 'status');
	check(answer.json.openapi.startsWith('3.'), 'openapi');
	for (const [path, methods] of [['/v1/runs', 'get post'], ['/v1/runs/{id}', 'get'], ['/v1/runs/{id}/events', 'get'], ['/v1/runs/{id}/tasks', 'get'], ['/v1/runs/{id}/cancel', 'post'], ['/v1/runs/{id}/kill', 'post'],
		['/v1/runs/{id}/replay', 'post'], ['/v1/runs/count', 'get'], ['/v1/definitions', 'get post'], ['/v1/definitions/{namespace}/{name}/{version}', 'get'],
		['/v1/definitions/{namespace}/{name}', 'get'], ['/v1/documents', 'post'], ['/v1/documents/{digest}', 'get'], ['/v1/facts', 'get'], ['/v1/facts/{id}', 'get'],
		['/v1/facts/{id}/attestation', 'get'], ['/v1/facts/{id}/entry', 'get'], ['/v1/events', 'get'], ['/v1/provenance/{digest}', 'get'], ['/v1/runtimes', 'get'],
		['/v1/runtimes/{name}', 'get'], ['/v1/runtimes/{name}/start', 'post'], ['/v1/runtimes/{name}/stop', 'post'], ['/v1/runtimes/{name}/reload', 'post'], ['/v1/runtimes/{name}/probe', 'post'], ['/v1/keys', 'get'], ['/v1/log/checkpoint', 'get post'], ['/v1/log/checkpoints', 'get'], ['/v1/log/entries', 'get'],
		['/v1/log/tile/{path}', 'get'], ['/v1/journal/stats', 'get'], ['/v1/config', 'get'], ['/v1/version', 'get'], ['/metrics', 'get'], ['/healthz', 'get'], ['/readyz', 'get'],
		['/openapi.json', 'get']])
		for (const method of methods.split(' '))
			check(answer.json.paths[path]?.[method], `${method} ${path} is not described`);
	let references = 0;
	JSON.stringify(answer.json, (name, value) => {
		if (name === '$ref') {
			references++;
			check(value.slice(2).split('/').reduce((at, part) => at?.[part], answer.json), `${value} leads nowhere`);
		}
		return value;
	});
	check(references > 100, `only ${references} references`);
});

await test('unknown routes are 404, other methods 405 with Allow, unknown parameters 400: all as problems', async () => {
	problem(await get(daemon, '/v1/nonsense'), 404, 'no such route', 'unknown route');
	problem(await get(daemon, '/'), 404, 'no such route', 'the root');
	const answer = await request(daemon, 'DELETE', '/v1/runs');
	problem(answer, 405, 'takes', 'DELETE');
	equal(answer.headers.allow, 'POST, GET, HEAD', 'Allow');
	equal((await request(daemon, 'PUT', '/v1/runs/a')).headers.allow, 'GET, HEAD', 'Allow of one run');
	problem(await get(daemon, '/v1/runs?stauts=running'), 400, ['stauts', 'status'], 'unknown parameter');
	problem(await get(daemon, '/v1/runs?limit=1&limit=2'), 400, 'twice', 'a parameter twice');
	problem(await get(daemon, '/v1/runs?status=%ff'), 400, 'UTF-8', 'invalid UTF-8');
	problem(await get(daemon, '/v1/runs?status=done'), 400, 'done', 'unknown status');
	problem(await get(daemon, '/v1/runs?limit=-1'), 400, 'limit', 'negative limit');
	problem(await get(daemon, '/v1/runs?limit=10001'), 400, '10000', 'limit over the page');
	problem(await get(daemon, '/v1/runs?since=yesterday'), 400, 'since', 'no time');
	problem(await get(daemon, '/v1/facts?document=abc'), 400, 'digest', 'no digest');
	for (const path of ['/v1/facts', '/v1/events', '/v1/runs/none/events'])
		problem(await get(daemon, `${path}?after=9007199254740992`), 400, '9007199254740991', `${path} behind what a JSON number holds`);
	equal((await get(daemon, '/v1/facts?after=9007199254740991')).json.next, 9007199254740991, 'the last position that can be named');
	problem(await get(daemon, `/v1/${'x'.repeat(5000)}`), 414, '4096', 'a long path');
	for (const count of [33, 300, 3000])
		problem(await get(daemon, `/v1/runs?${'a&'.repeat(count - 1)}a`), 400, 'more than 32 parameters', `${count} parameters`);
	problem(await get(daemon, `/v1/runs?${'a&'.repeat(31)}a`), 400, "'a'", '32 parameters');
	equal((await request(daemon, 'HEAD', '/v1/version')).status, 200, 'HEAD');
});

await test('a run is submitted, waited for, shown and listed', async () => {
	const made = await post(daemon, '/v1/runs?wait=60s', { definition: noop, input: { n: 1 }, id: 'first', labels: { team: 'a' } });
	equal(made.status, 201, 'status');
	equal(made.headers.location, '/v1/runs/first', 'Location');
	equal([made.json.id, made.json.status, made.json.workflow.name], ['first', 'completed', 'noop'], 'summary');
	check(made.json.overhead.wallMs > 0 && made.json.overhead.activityMs === 0, 'overhead');
	const bare = (await get(daemon, '/v1/runs/first')).json;
	equal(bare.output, undefined, 'large members are left out');
	const whole = (await get(daemon, '/v1/runs/first?include=all')).json;
	equal([whole.input, whole.output, whole.labels, whole.facts], [{ n: 1 }, { x: 1 }, { team: 'a' }, []], 'values');
	equal(whole.tasks.map(task => [task.name, task.reference, task.status]), [['a', '/do/0/a', 'completed']], 'tasks');
	equal(whole.events.map(event => event.type.replace('io.serverlessworkflow.', '')), ['workflow.started.v1', 'task.created.v1', 'task.started.v1', 'task.completed.v1', 'workflow.completed.v1'], 'events');
	check(whole.events.every(event => event.specversion === '1.0'), 'CloudEvents');
	equal((await get(daemon, '/v1/runs/first?include=output')).json.input, undefined, 'only what was asked for');
	problem(await get(daemon, '/v1/runs/first?include=outputs'), 400, 'outputs', 'unknown include');
	problem(await get(daemon, '/v1/runs/nobody'), 404, 'nobody', 'unknown run');
	problem(await get(daemon, '/v1/runs/a%20b'), 404, 'no run id', 'no id');
	problem(await get(daemon, '/v1/runs/first%00b'), 404, 'first%00b', 'a NUL in a path does not cut it');
	problem(await post(daemon, '/v1/runs', { definition: noop, id: '..' }), 400, 'id', 'an id that a URL cannot name');
	problem(await get(daemon, '/v1/runs?workflow=test/noop%00'), 400, 'noop%00', 'a NUL in a parameter does not cut it');
	equal((await get(daemon, '/v1/runs?label=team%3da')).json.runs.map(run => run.id), ['first'], 'lower case digits of percent-encoding');
	equal((await get(daemon, '/v1/runs?label=team=a')).json.runs.map(run => run.id), ['first'], 'by label');
	equal((await get(daemon, '/v1/runs?workflow=test/noop:1.0.0&status=completed')).json.runs.map(run => run.id), ['first'], 'by workflow and status');
	equal((await get(daemon, '/v1/runs/count?status=completed')).json.count, 1, 'count');
	equal((await get(daemon, '/v1/runs?status=faulted')).json, { cursor: null, runs: [] }, 'none');
});

await test('the tasks of a run come in pages, and the command line gives all of them', async () => {
	const loop = definition('loop', [{ all: { for: { in: '${ .items }' }, do: [{ one: { set: { n: '${ $item }' } } }] } }]);
	const count = 10005;
	equal((await post(daemon, '/v1/runs?wait=60s', { definition: loop, id: 'tasks', input: { items: Array.from({ length: count }, (_, i) => i) } })).json.status, 'completed', 'status');
	const first = (await get(daemon, '/v1/runs/tasks?include=tasks')).json;
	equal([first.tasks.length, first.tasksLeftOut], [10000, count + 1 - 10000], 'the document'); // and the loop itself
	const all = [];
	for (let after = 0, left = 1; left > 0;) {
		const page = (await get(daemon, `/v1/runs/tasks/tasks?after=${after}&limit=4000`)).json;
		all.push(...page.tasks);
		({ next: after, left } = page);
	}
	equal(all.length, count + 1, 'all pages');
	equal(all.slice(0, 10000).map(task => task.step), first.tasks.map(task => task.step), 'the same order');
	equal([all.at(-1).output, all.at(-1).status, new Set(all.map(task => task.step)).size], [{ n: count - 1 }, 'completed', count + 1], 'the last task, and each once');
	const shown = cli('--socket', daemon.socket, 'show', 'tasks', '-o', 'json').json();
	equal([shown.tasks.length, shown.tasksLeftOut, shown.tasks.at(-1).step], [count + 1, undefined, all.at(-1).step], 'reprise show -o json');
	problem(await get(daemon, '/v1/runs/none/tasks'), 404, 'none', 'no run');
	problem(await get(daemon, '/v1/runs/tasks/tasks?limit=10001'), 400, '10000', 'over the limit');
});

await test('lists come in pages, newest first', async () => {
	for (let i = 0; i < 7; i++)
		equal((await post(daemon, '/v1/runs?wait=60s', { definition: noop, id: `page-${i}`, labels: { page: 'yes' } })).status, 201, `page-${i}`);
	const seen = [];
	for (let cursor = ''; cursor !== null;) {
		const page = (await get(daemon, `/v1/runs?label=page=yes&limit=3${cursor && `&cursor=${cursor}`}`)).json;
		seen.push(...page.runs.map(run => run.id));
		cursor = page.cursor;
	}
	equal(seen, [6, 5, 4, 3, 2, 1, 0].map(i => `page-${i}`), 'pages');
	equal((await get(daemon, '/v1/runs?since=1h&label=page=yes')).json.runs.length, 7, 'since');
	equal((await get(daemon, '/v1/runs?until=1h&label=page=yes')).json.runs.length, 0, 'until');
});

await test('the same id with equal content is the same run, with other content a conflict with both digests', async () => {
	const body = { definition: noop, input: { n: 2 }, id: 'twice' };
	equal((await post(daemon, '/v1/runs?wait=60s', body)).status, 201, 'first');
	const again = await post(daemon, '/v1/runs?wait=60s', body);
	equal([again.status, again.json.id, again.json.status], [200, 'twice', 'completed'], 'again');
	for (const other of [{ ...body, input: { n: 3 } }, { ...body, labels: { a: 'b' } }, { ...body, definition: definition('noop', [{ a: { set: { x: 2 } } }]) }]) {
		const answer = await post(daemon, '/v1/runs', other);
		problem(answer, 409, 'twice', 'other content');
		check(/^sha256:/.test(answer.json.existing) && /^sha256:/.test(answer.json.submitted) && answer.json.existing !== answer.json.submitted, answer.text);
	}
	const many = await Promise.all(Array.from({ length: 30 }, () => post(daemon, '/v1/runs?wait=60s', { definition: noop, id: 'at-once' })));
	equal(many.filter(answer => answer.status === 201).length, 1, 'one of 30 created it');
	equal(many.filter(answer => answer.status === 200).length, 29, 'the others got it');
	const ids = await Promise.all([1, 2].map(() => post(daemon, '/v1/runs', { definition: noop })));
	check(ids[0].json.id !== ids[1].json.id && /^[0-9A-Z]{26}$/.test(ids[0].json.id), 'without an id each is a new run');
});

await test('bodies that are no runs are told why', async () => {
	problem(await post(daemon, '/v1/runs', '{'), 400, ['not JSON', 'line 1'], 'not JSON');
	problem(await post(daemon, '/v1/runs', '[]'), 400, 'array', 'an array');
	problem(await post(daemon, '/v1/runs', ''), 400, 'empty', 'empty');
	for (const member of ['inputs', 'id labels', 'def', ''])
		problem(await post(daemon, '/v1/runs', { definition: noop, [member]: {} }), 400, `'${member}'`, 'unknown member');
	problem(await post(daemon, '/v1/runs', { input: {} }), 400, 'definition', 'no definition');
	problem(await post(daemon, '/v1/runs', { definition: 7 }), 400, 'number', 'definition is a number');
	problem(await post(daemon, '/v1/runs', { definition: 'noop' }), 400, 'NAMESPACE/NAME', 'no name');
	problem(await post(daemon, '/v1/runs', { definition: 'test/none:1.0.0' }), 404, 'test/none:1.0.0', 'unknown definition');
	problem(await post(daemon, '/v1/runs', { definition: noop, id: 'a b' }), 400, 'id', 'bad id');
	problem(await post(daemon, '/v1/runs', { definition: noop, id: 'x'.repeat(65) }), 400, 'id', 'long id');
	problem(await post(daemon, '/v1/runs', { definition: noop, labels: { a: 1 } }), 400, "label 'a'", 'label is a number');
	problem(await post(daemon, '/v1/runs', { definition: noop, labels: Object.fromEntries(Array.from({ length: 65 }, (_, i) => [`l${i}`, ''])) }), 400, '64', 'too many labels');
	problem(await post(daemon, '/v1/runs', '{"definition":{},"definition":{}}'), 400, 'duplicate', 'duplicate member');
	problem(await post(daemon, '/v1/runs', '{"input": 9007199254740993, "definition": {}}'), 400, 'precision', 'an integer that would lose digits');
	problem(await post(daemon, '/v1/runs', Buffer.from([0x7b, 0xff, 0x7d])), 400, 'utf8', 'invalid UTF-8');
	problem(await post(daemon, '/v1/runs?wait=soon', { definition: noop }), 400, 'wait', 'no duration');
	problem(await post(daemon, '/v1/runs?wait=25h', { definition: noop }), 400, '24h', 'too long');
	const bad = await post(daemon, '/v1/runs', { definition: { ...noop, doo: [] } });
	problem(bad, 400, 'doo', 'unknown key');
	check(bad.json.problems.some(item => item.pointer === '/doo' && item.severity), JSON.stringify(bad.json.problems));
	problem(await post(daemon, '/v1/runs', { definition: definition('x', [{ a: { call: 'grpc', with: {} } }]) }), 400, 'grpc', 'a call that is not supported');
	problem(await post(daemon, '/v1/runs', 'definition: {', { headers: { 'Content-Type': 'application/yaml' } }), 400, 'YAML', 'not YAML');
});

await test('YAML is taken as it is', async () => {
	const yaml = "id: from-yaml\ninput: {n: 1}\ndefinition:\n  document: {dsl: '1.0.3', namespace: test, name: noop, version: '1.0.0'}\n  do:\n    - a: {set: {x: 1}}\n";
	const answer = await post(daemon, '/v1/runs?wait=60s', yaml, { headers: { 'Content-Type': 'application/yaml; charset=utf-8' } });
	equal([answer.status, answer.json.status], [201, 'completed'], 'run');
	equal(answer.json.workflow.digest, (await get(daemon, '/v1/runs/first')).json.workflow.digest, 'the same digest as its JSON');
});

await test('bodies over their limit get 413 with limit and size, before and while they are read', async () => {
	const large = Buffer.alloc((2 << 20) + 1, ' ');
	const announced = await post(daemon, '/v1/runs', large);
	problem(announced, 413, ['2097153', '2097152'], 'announced');
	equal([announced.json.limit, announced.json.size], [2097152, 2097153], 'members');
	const chunked = await new Promise((done, refuse) => {
		const call = http.request({ socketPath: daemon.socket, method: 'POST', path: '/v1/definitions', agent: false }, answer => {
			let text = '';
			answer.on('data', part => { text += part; });
			answer.on('end', () => done({ status: answer.statusCode, type: answer.headers['content-type'], text, json: JSON.parse(text) }));
		});
		call.on('error', refuse);
		for (let i = 0; i < 5; i++)
			call.write(Buffer.alloc(1 << 19, 'a'));
		call.end();
	});
	problem(chunked, 413, '2097152', 'chunked');
	const expecting = await new Promise((done, refuse) => {
		const socket = net.connect(daemon.socket);
		let text = '';
		socket.on('data', part => { text += part; });
		socket.on('end', () => { done(text); socket.destroy(); });
		socket.on('error', refuse);
		socket.write('POST /v1/runs HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2097153\r\n\r\n');
	});
	check(expecting.startsWith('HTTP/1.1 413') && expecting.includes('2097152'), `Expect: 100-continue: ${expecting}`);
	const text = "document: {dsl: '1.0.3', namespace: test, name: big, version: '1.0.0'}\ndo:\n  - a: {set: {x: 1}}\n";
	const definitionAnswer = await post(daemon, '/v1/definitions', text + '#'.repeat((2 << 20) - text.length), { headers: { 'Content-Type': 'application/yaml' } });
	problem(definitionAnswer, 413, ['2097152', '1048576'], 'a definition of 2 MiB');
	problem(await post(daemon, '/v1/runs', { definition: { ...noop, metadata: { x: 'x'.repeat(1 << 20) } } }), 413, '1048576', 'an inline definition over 1 MiB');
	problem(await post(daemon, '/v1/documents', Buffer.alloc((8 << 20) + 1)), 413, ['8388609', '8388608'], 'a document');
	problem(await request(daemon, 'GET', '/v1/version', { body: 'x' }), 413, 'no body', 'a body for GET');
	const huge = await new Promise((done, refuse) => {
		const socket = net.connect(daemon.socket);
		let answer = '';
		socket.on('data', part => { answer += part; });
		socket.on('end', () => { done(answer); socket.destroy(); });
		socket.on('error', refuse);
		socket.write(`POST /v1/documents HTTP/1.1\r\nHost: x\r\nContent-Length: ${(64 << 20) + 1}\r\n\r\n`);
	});
	check(huge.startsWith('HTTP/1.1 413') && huge.includes('67108865'), `more than is worth throwing away is answered at once: ${huge}`);
	equal((await get(daemon, '/healthz')).status, 200, 'alive');
});

await test('headers over their limit are refused and nothing else suffers', async () => {
	const status = await request(daemon, 'GET', '/healthz', { headers: { 'X-Long': 'x'.repeat(9000) } }).then(answer => answer.status, error => error.code);
	check([431, 413, 414, 400, 'ECONNRESET', 'EPIPE', 'HPE_INVALID_CONSTANT'].includes(status), String(status));
	equal((await get(daemon, '/healthz')).status, 200, 'alive');
});

await test('definitions are registered once and for ever, started by name, newest without a version', async () => {
	const yaml = version => `# comment\ndocument: {dsl: '1.0.3', namespace: test, name: named, version: '${version}', title: Named}\ndo:\n  - a:\n      set: {v: '${version}'}\n`;
	const add = (text, type = 'application/yaml') => post(daemon, '/v1/definitions', text, { headers: { 'Content-Type': type } });
	const made = await add(yaml('1.9.0'));
	equal([made.status, made.json.namespace, made.json.name, made.json.version], [201, 'test', 'named', '1.9.0'], 'made');
	equal(made.headers.location, '/v1/definitions/test/named/1.9.0', 'Location');
	equal((await add(yaml('1.9.0').replace('# comment', '# another'))).status, 200, 'comments do not count');
	const conflict = await add(yaml('1.9.0').replace('v: ', 'w: '));
	problem(conflict, 409, 'test/named:1.9.0', 'other content');
	check(conflict.json.existing === made.json.digest && conflict.json.submitted !== made.json.digest, conflict.text);
	equal((await add(yaml('1.10.0'))).status, 201, 'newer');
	equal((await add(yaml('1.10.0-rc.1'))).status, 201, 'a pre-release');
	const shown = (await get(daemon, '/v1/definitions/test/named/1.9.0')).json;
	equal([shown.digest, shown.document.document.title, shown.source], [made.json.digest, 'Named', yaml('1.9.0')], 'shown');
	equal((await get(daemon, '/v1/definitions/test/named/1.9.0', { headers: { Accept: 'application/yaml' } })).text, yaml('1.9.0'), 'its source');
	equal((await get(daemon, '/v1/definitions/test/named')).json.version, '1.10.0', 'newest');
	problem(await get(daemon, '/v1/definitions/test/named/3.0.0'), 404, '3.0.0', 'unknown version');
	problem(await get(daemon, '/v1/definitions/te_st/named/3.0.0'), 404, [], 'no name');
	const listed = (await get(daemon, '/v1/definitions')).json.definitions.map(item => `${item.namespace}/${item.name}:${item.version}`);
	for (const name of ['reprise/extract:1.0.0', 'reprise/infer:1.0.0', 'test/named:1.9.0', 'test/named:1.10.0'])
		check(listed.includes(name), `${name} is not listed: ${listed}`);
	equal((await post(daemon, '/v1/runs?wait=60s&include=output', { definition: 'test/named:1.9.0' })).json.output, { v: '1.9.0' }, 'by version');
	equal((await post(daemon, '/v1/runs?wait=60s&include=output', { definition: 'test/named' })).json.output, { v: '1.10.0' }, 'newest');
	const bad = await add("document: {dsl: '1.0.3', namespace: test, name: bad, version: '1.0.0'}\ndo:\n  - a: {sett: {x: 1}}\n");
	problem(bad, 400, 'line 3', 'a problem with its place');
	check(bad.json.problems[0].line === 3 && bad.json.problems[0].column > 0, JSON.stringify(bad.json.problems));
});

await test('documents are kept by digest; empty, torn and unknown ones are told', async () => {
	const text = '# Köln\n\nAcme was founded in 1999.\n';
	const made = await post(daemon, '/v1/documents', text, { headers: { 'Content-Type': 'text/markdown' } });
	equal([made.status, made.json], [201, { bytes: Buffer.byteLength(text), digest: `sha256:${sha256(text)}`, mediaType: 'text/markdown' }], 'made');
	equal((await post(daemon, '/v1/documents', text, { headers: { 'Content-Type': 'text/markdown' } })).status, 200, 'again');
	const back = await get(daemon, `/v1/documents/${made.json.digest}`);
	equal([back.status, back.type, back.text, back.headers['x-content-type-options']], [200, 'text/markdown', text, 'nosniff'], 'back');
	const large = randomBytes(3 << 20);
	const digest = (await post(daemon, '/v1/documents', large, { headers: { 'Content-Type': 'application/pdf' } })).json.digest;
	check((await get(daemon, `/v1/documents/${digest}`)).raw.equals(large), 'three MiB come back');
	problem(await post(daemon, '/v1/documents', ''), 400, 'empty', 'empty');
	problem(await post(daemon, '/v1/documents', Buffer.from('a\0b'), { headers: { 'Content-Type': 'text/plain' } }), 400, 'NUL', 'NUL');
	problem(await post(daemon, '/v1/documents', Buffer.from([65, 0xc3, 65]), { headers: { 'Content-Type': 'text/plain' } }), 400, 'offset 1', 'invalid UTF-8');
	problem(await get(daemon, `/v1/documents/sha256:${'0'.repeat(64)}`), 404, 'no document', 'unknown');
	problem(await get(daemon, '/v1/documents/abc'), 404, 'digest', 'no digest');
	equal((await get(daemon, '/v1/documents')).headers.allow, 'POST', 'no list');
});

const sample = Array.from({ length: 6 }, (_, i) => `## Part ${i}\n\nCompany${i} was founded in ${1990 + i}. Company${i} is located in Town${i}.\n`).join('\n');
await test('an extraction gives facts, their signatures, their place in the log, and replays', async () => {
	const digest = (await post(daemon, '/v1/documents', sample, { headers: { 'Content-Type': 'text/markdown' } })).json.digest;
	const run = await post(daemon, '/v1/runs?wait=60s&include=output,facts', { definition: 'reprise/extract:1.0.0', id: 'extraction', input: { runtime: 'fast', document: { digest } } });
	equal([run.status, run.json.status], [201, 'completed'], 'run');
	equal(run.json.output.summary.facts, 12, 'facts');
	equal(run.json.facts.length, 12, 'ids');
	const page = (await get(daemon, '/v1/facts?run=extraction&limit=5')).json;
	equal(page.facts.length, 5, 'a page');
	const rest = (await get(daemon, `/v1/facts?run=extraction&after=${page.next}`)).json;
	equal([...page.facts, ...rest.facts].map(fact => fact.id).sort(), [...run.json.facts].sort(), 'all of them, once');
	equal((await get(daemon, `/v1/facts?after=${rest.next}`)).json, { facts: [], next: rest.next }, 'the present');
	for (const [filter, count] of [[`document=${digest}`, 12], ['runtime=fast', 12], ['class=unmeasured', 12], ['class=byte-stable', 0], ['workflow=reprise/extract', 12], ['workflow=a/b', 0]])
		equal((await get(daemon, `/v1/facts?run=extraction&${filter}`)).json.facts.length, count, filter);
	const fact = (await get(daemon, `/v1/facts/${run.json.facts[0].slice(0, 12)}`)).json;
	equal(fact.id, run.json.facts[0], 'by a prefix');
	for (const name of ['contentDigest', 'seq', 'recordedAt', 'run', 'task', 'attempt', 'document', 'section', 'value', 'quote', 'grounding', 'accepted', 'checks', 'runtime', 'model',
		'configuration', 'simulated', 'reproducibility'])
		check(fact[name] !== undefined, `the fact has no ${name}`);
	equal(fact.quote, Buffer.from(sample).subarray(...fact.grounding.bytes).toString(), 'the quote stands in the document');
	equal(fact.simulated, true, 'simulated');
	problem(await get(daemon, '/v1/facts/0123'), 400, [], 'too short a prefix');
	problem(await get(daemon, `/v1/facts/${'0'.repeat(64)}`), 404, 'no fact', 'unknown');
	const envelope = await get(daemon, `/v1/facts/${fact.id}/attestation`);
	equal(sha256(Buffer.from(envelope.json.payload, 'base64')), fact.id, 'the id is the digest of the payload');
	const entry = (await get(daemon, `/v1/facts/${fact.id}/entry`)).json;
	equal([entry.seq, JSON.parse(entry.entry).kind], [fact.seq, 'fact.recorded'], 'entry');
	check(entry.proof.startsWith(`c2sp.org/tlog-proof@v1\nindex ${fact.seq}\n`), entry.proof);
	check(included(entry.entry, fact.seq, entry.proof), 'the proof leads from the entry to the root');
	const provenance = (await get(daemon, `/v1/provenance/${fact.configuration}`)).json;
	equal(provenance.digest, fact.configuration, 'provenance');
	check(provenance.record && Object.keys(provenance.record).length > 0, 'record');
	problem(await get(daemon, `/v1/provenance/sha256:${'1'.repeat(64)}`), 404, [], 'unknown configuration');
	const before = (await sim.state()).requests;
	equal((await post(daemon, '/v1/runs/extraction/replay')).json.equal, true, 'replay');
	equal((await sim.state()).requests, before, 'no model was asked');
	problem(await post(daemon, '/v1/runs/nobody/replay'), 404, 'nobody', 'replay of an unknown run');
	problem(await get(daemon, '/v1/facts?run=extractoin'), 404, 'there is no run extractoin', 'facts of an unknown run');
	problem(await get(daemon, '/v1/facts?run=extractoin', { headers: { Accept: 'text/event-stream' } }), 404, 'there is no run extractoin', 'a stream of them');
	problem(await get(daemon, `/v1/facts?run=${'x'.repeat(200)}`), 404, 'there is no run xxx', 'facts of what is no id');
	equal((await get(daemon, '/v1/facts?run=first')).json, { facts: [], next: 0 }, 'facts of a run that has none');
	const followed = await stream(daemon, '/v1/facts?run=extraction', events => events.length === 12);
	equal(followed.events.map(event => event.data.id).sort(), [...run.json.facts].sort(), 'a stream of one run');
});

// RFC 9162 2.1.3.2, written anew.
function included(entryText, index, proof) {
	const hash = (...parts) => createHash('sha256').update(Buffer.concat(parts)).digest();
	const [head, ...note] = proof.split('\n\n');
	const hashes = head.split('\n').slice(2).map(line => Buffer.from(line, 'base64'));
	const [, size, root] = note.join('\n\n').split('\n');
	let node = hash(Buffer.from([0]), Buffer.from(entryText)), at = index, last = Number(size) - 1;
	for (const sibling of hashes) {
		if (last === 0)
			return false;
		if (at % 2 === 1 || at === last) {
			node = hash(Buffer.from([1]), sibling, node);
			while (at % 2 === 0 && at !== 0) { at = Math.floor(at / 2); last = Math.floor(last / 2); }
		} else {
			node = hash(Buffer.from([1]), node, sibling);
		}
		at = Math.floor(at / 2);
		last = Math.floor(last / 2);
	}
	return last === 0 && node.toString('base64') === root;
}

await test('runtimes are listed and probed', async () => {
	const listed = (await get(daemon, '/v1/runtimes')).json.runtimes;
	equal(listed.map(runtime => runtime.name).sort(), ['fast', 'slow'], 'names');
	const probed = await post(daemon, '/v1/runtimes/fast/probe');
	equal([probed.status, probed.json.reachable], [200, true], 'probe');
	problem(await post(daemon, '/v1/runtimes/none/probe'), 404, "no runtime 'none' is configured; configured: fast, slow", 'unknown runtime');
	problem(await post(daemon, '/v1/runtimes/fats/probe'), 404, 'configured: fast, slow', 'two changes away');
	problem(await post(daemon, '/v1/runtimes/fst/probe'), 404, "; did you mean 'fast'?", 'one change away');
});

await test('keys, checkpoints, entries and tiles agree with each other', async () => {
	const keys = (await get(daemon, '/v1/keys')).json;
	equal(keys.keys.map(key => key.purpose).sort(), ['fact', 'log'], 'purposes');
	for (const key of keys.keys)
		equal([key.algorithm, Buffer.from(key.public, 'base64').length, key.keyid.length], ['ed25519', 32, 64], 'a key');
	check(keys.keys.find(key => key.purpose === 'log').vkey.startsWith(`${keys.origin}+`), 'verifier key');
	const note = await post(daemon, '/v1/log/checkpoint');
	equal(note.status, 200, 'signed');
	const [origin, size, root] = note.text.split('\n');
	equal(origin, keys.origin, 'origin');
	equal((await get(daemon, '/v1/log/checkpoint')).text, note.text, 'the newest');
	equal((await get(daemon, '/v1/log/checkpoints')).json.checkpoints.at(-1), note.text, 'the last of all');
	const entries = [];
	for (let from = 0; from < Number(size);) {
		const page = (await get(daemon, `/v1/log/entries?from=${from}&limit=50`)).json;
		entries.push(...page.entries);
		check(page.next > from && page.size >= Number(size), JSON.stringify([from, page.next, page.size]));
		from = page.next;
	}
	entries.length = Number(size);
	const leaf = text => createHash('sha256').update(Buffer.concat([Buffer.from([0]), Buffer.from(text)])).digest();
	const node = (left, right) => createHash('sha256').update(Buffer.concat([Buffer.from([1]), left, right])).digest();
	const tree = hashes => {
		if (hashes.length === 1)
			return hashes[0];
		const half = 2 ** Math.floor(Math.log2(hashes.length - 1));
		return node(tree(hashes.slice(0, half)), tree(hashes.slice(half)));
	};
	equal(tree(entries.map(leaf)).toString('base64'), root, 'the root is that of the entries');
	const width = Math.min(Number(size), 255), tile = await get(daemon, `/v1/log/tile/0/000.p/${width}`);
	check(tile.raw.equals(Buffer.concat(entries.slice(0, width).map(leaf))), 'a tile of hashes');
	const packed = (await get(daemon, `/v1/log/tile/entries/000.p/${width}`)).raw;
	for (let i = 0, at = 0; i < width; i++) {
		const length = packed.readUInt16BE(at);
		equal(packed.subarray(at + 2, at + 2 + length).toString(), entries[i], `entry ${i} of the tile`);
		at += 2 + length;
	}
	for (const path of ['9/000', '0/x000/001', '0/1', '00/001', '0/000.p/256', '0/000.p/0', 'entries/', '0/x999/999', '0/000.p/01'])
		problem(await get(daemon, `/v1/log/tile/${path}`), 404, [], path);
	const stats = (await get(daemon, '/v1/journal/stats')).json;
	check(stats.entries >= Number(size) && stats.facts === 12 && stats.databaseBytes > 0, JSON.stringify(stats));
});

await test('the entries of a run come as pages and as a stream that ends with the run and resumes', async () => {
	const page = (await get(daemon, '/v1/runs/first/events')).json;
	equal(page.events.map(event => event.kind), ['run.created', 'task.completed', 'run.completed'], 'kinds');
	equal(page.next, page.events.at(-1).seq, 'next');
	equal((await get(daemon, `/v1/runs/first/events?after=${page.next}`)).json, { events: [], next: page.next }, 'after the last');
	equal((await get(daemon, `/v1/runs/first/events?after=${page.events[0].seq}&limit=1`)).json.events.map(event => event.kind), ['task.completed'], 'one');
	const whole = await stream(daemon, '/v1/runs/first/events', () => false);
	equal([whole.ended, whole.events.map(event => event.event)], [true, ['run.created', 'task.completed', 'run.completed']], 'stream');
	equal(whole.events.map(event => event.id), page.events.map(event => event.seq), 'ids');
	equal(whole.events[1].data, page.events[1], 'the same shape');
	const resumed = await stream(daemon, '/v1/runs/first/events', () => false, { 'Last-Event-ID': String(page.events[0].seq) });
	equal(resumed.events.map(event => event.event), ['task.completed', 'run.completed'], 'resumed');
	equal((await stream(daemon, '/v1/runs/first/events', () => false, { 'Last-Event-ID': String(page.next) })).events, [], 'behind the end it ends');
	problem(await get(daemon, '/v1/runs/nobody/events'), 404, 'nobody', 'unknown run');
	problem(await get(daemon, '/v1/runs/nobody/events', { headers: { Accept: 'text/event-stream' } }), 404, 'nobody', 'a stream of an unknown run');
	problem(await get(daemon, '/v1/runs/first/events', { headers: { Accept: 'text/event-stream', 'Last-Event-ID': 'x' } }), 400, 'Last-Event-ID', 'no position');
});

await test('feeds of facts and events are live, resume, and give each once', async () => {
	const facts = (await get(daemon, '/v1/facts?limit=1000')).json;
	const half = facts.facts[5].seq;
	const digest = (await post(daemon, '/v1/documents', '# New\n\nNewco was founded in 2020.\n', { headers: { 'Content-Type': 'text/markdown' } })).json.digest;
	const live = stream(daemon, '/v1/facts', events => events.length >= 7, { 'Last-Event-ID': String(half) });
	await pause(100);
	equal((await post(daemon, '/v1/runs?wait=60s', { definition: 'reprise/extract:1.0.0', input: { runtime: 'fast', document: { digest } } })).json.status, 'completed', 'run');
	const { events } = await live;
	equal(events.slice(0, 6).map(event => event.data.id), facts.facts.slice(6).map(fact => fact.id), 'the old ones first');
	equal(events[6].data.value.subject, 'Newco', 'then the new one');
	equal(events.map(event => event.id), events.map(event => event.data.seq), 'ids are places');
	const page = (await get(daemon, '/v1/events?limit=5')).json;
	check(page.events.length >= 5 && page.events.length <= 7 && page.events.every(event => event.specversion === '1.0' && event.type && event.source && event.id), JSON.stringify(page));
	const all = [];
	for (let after = 0;;) {
		const next = (await get(daemon, `/v1/events?after=${after}&limit=20`)).json;
		all.push(...next.events);
		if (next.next <= after)
			break;
		after = next.next;
	}
	equal(new Set(all.map(event => event.id)).size, all.length, 'each once');
	const streamed = await stream(daemon, '/v1/events', got => got.length >= all.length);
	equal(streamed.events.map(event => event.data.id), all.map(event => event.id), 'the stream gives the same');
	/* Several events of one entry: only the last says where to go on, so that a client cut off between them has them all again. */
	equal(streamed.events.filter(event => Number.isNaN(event.id)).map(event => event.data.id.replace(/^\d+-/, '')),
		all.filter(event => /-/.test(event.id)).map(event => event.id.replace(/^\d+-/, '')), 'no id between');
});

await test('silent streams get a comment now and then, and there is a limit of streams', async () => {
	await until('earlier streams are gone', async () => metric((await get(daemon, '/metrics')).text, 'http_streams') === 0);
	const quiet = [];
	let asked = false; // all four stay until the fifth was refused, however long that takes
	for (let i = 0; i < 4; i++)
		quiet.push(stream(daemon, `/v1/facts?runtime=none`, (_, comments) => asked && comments >= 3));
	await until('four are open', async () => metric((await get(daemon, '/metrics')).text, 'http_streams') === 4);
	const refused = await get(daemon, '/v1/events', { headers: { Accept: 'text/event-stream' } });
	problem(refused, 503, ['4', 'limits.streams'], 'the fifth');
	equal(refused.headers['retry-after'], '1', 'Retry-After');
	asked = true;
	for (const { events, comments } of await Promise.all(quiet)) {
		equal(events, [], 'nothing but comments');
		check(comments >= 3, `${comments} comments`); // one read may bring several
	}
	await until('the streams are gone', async () => metric((await get(daemon, '/metrics')).text, 'http_streams') === 0);
});

await test('a stream whose client does not read is not filled without end, and loses nothing', async () => {
	const many = definition('many', Array.from({ length: 200 }, (_, i) => ({ [`t${i}`]: { set: { i } } })));
	let start_ = 0;
	for (let next = -1; next !== start_;)
		[next, start_] = [start_, (await get(daemon, `/v1/events?limit=10000&after=${start_}`)).json.next];
	for (let i = 0; i < 60; i++)
		equal((await post(daemon, '/v1/runs?wait=60s', { definition: many })).json.status, 'completed', `run ${i}`);
	const ids = await new Promise((done, refuse) => {
		const socket = net.connect(daemon.socket), seen = [];
		let text = '';
		socket.on('error', refuse);
		socket.on('data', part => {
			text += part;
			const end = text.lastIndexOf('\n\n') + 2;
			if (end >= 2) {
				for (const match of text.slice(0, end).matchAll(/^id: (\d+)$/gm))
					seen.push(Number(match[1]));
				text = text.slice(end);
			}
			if (seen.length >= 60 * 202) { /* one id for each entry */ socket.destroy(); done(seen); }
		});
		socket.pause();
		socket.write(`GET /v1/events?after=${start_} HTTP/1.0\r\nAccept: text/event-stream\r\n\r\n`);
		const bytes = async () => metric((await get(daemon, '/metrics')).text, 'http_stream_bytes');
		until('the stream is full', async () => await bytes() >= 1 << 20).then(() => pause(300)).then(async () => { // time to go past its limit, if it would
			const waiting = await bytes();
			check(waiting >= 1 << 20 && waiting < 2 << 20, `${waiting} bytes wait for the client`);
			socket.resume();
		}).catch(refuse);
	});
	equal(ids.length, 60 * 202, 'events');
	check(ids.every((id, i) => i === 0 || id > ids[i - 1]), 'in order');
	await until('the stream is gone', async () => metric((await get(daemon, '/metrics')).text, 'http_streams') === 0);
});

await test('?wait gives up when its time is up and answers at once when the run has ended', async () => {
	const began = Date.now();
	const answer = await post(daemon, '/v1/runs?wait=300ms', { definition: ask, id: 'waits' });
	equal([answer.status, answer.json.status], [201, 'running'], 'still under way');
	check(Date.now() - began >= 295, `after ${Date.now() - began} ms`);
	const waiting = get(daemon, '/v1/runs/waits?wait=1h&include=output');
	await until('it waits', async () => metric((await get(daemon, '/metrics')).text, 'http_waiters') === 1);
	const cancelled = await post(daemon, '/v1/runs/waits/cancel', { reason: 'enough' });
	equal([cancelled.status, cancelled.json.status], [200, 'cancelled'], 'cancelled');
	equal((await waiting).json.status, 'cancelled', 'the waiter hears of it');
	const again = await post(daemon, '/v1/runs/waits/cancel', { reason: 'again' });
	equal([again.status, again.json.status], [200, 'cancelled'], 'cancelling twice is no error');
	equal((await get(daemon, '/v1/runs/waits?include=all')).json.reason, 'enough', 'the reason');
	await until('the runtime sees the stream closed', async () => (await slowSim.state()).inFlight === 0);
});

await test('kill and cancel say what they did; unknown runs are 404', async () => {
	await post(daemon, '/v1/runs', { definition: ask, id: 'to-kill' });
	const killed = await post(daemon, '/v1/runs/to-kill/kill', { reason: 'now' });
	equal([killed.status, killed.json.status, killed.json.reason], [200, 'cancelled', 'killed'], 'killed');
	equal((await get(daemon, '/v1/runs?status=cancelled&limit=1')).json.runs[0].reason, 'killed', 'in the list');
	problem(await post(daemon, '/v1/runs/nobody/cancel'), 404, 'nobody', 'unknown');
	problem(await post(daemon, '/v1/runs/first/cancel', { because: 'x' }), 400, 'because', 'unknown member');
	problem(await post(daemon, '/v1/runs/first/cancel', { reason: 7 }), 400, 'reason', 'no text');
	equal((await post(daemon, '/v1/runs/first/cancel')).json.status, 'completed', 'an ended run stays as it is');
});

await test('1,000 waiting clients that go away are noticed, and their number returns to 0', async () => {
	await post(daemon, '/v1/runs', { definition: ask, id: 'crowd' });
	const calls = [];
	for (let i = 0; i < 1000; i++) {
		const call = http.request({ socketPath: daemon.socket, path: '/v1/runs/crowd?wait=1h', agent: false });
		call.on('error', () => {});
		call.end();
		calls.push(call);
	}
	await until('all of them wait', async () => metric((await get(daemon, '/metrics')).text, 'http_waiters') === 1000);
	const gone = metric((await get(daemon, '/metrics')).text, 'http_waiters_gone_total');
	calls.forEach(call => call.destroy());
	await until('none of them waits', async () => metric((await get(daemon, '/metrics')).text, 'http_waiters') === 0);
	const after = (await get(daemon, '/metrics')).text;
	equal(metric(after, 'http_waiters_gone_total') - gone, 1000, 'counted');
	await until('their connections are closed', async () => metric((await get(daemon, '/metrics')).text, 'http_connections') <= 2);
	equal((await post(daemon, '/v1/runs/crowd/kill')).json.status, 'cancelled', 'the run is still there');
});

await test('connections are kept and used again, also after an error', async () => {
	const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
	const before = metric((await get(daemon, '/metrics', { agent })).text, 'http_requests_total');
	for (let i = 0; i < 20; i++) {
		equal((await get(daemon, '/healthz', { agent })).status, 200, 'health');
		problem(await post(daemon, '/v1/runs', '{', { agent }), 400, [], 'an error');
		problem(await request(daemon, 'DELETE', '/v1/runs', { agent }), 405, [], 'a method');
	}
	const text = (await get(daemon, '/metrics', { agent })).text;
	check(metric(text, 'http_connections') <= 2, `${metric(text, 'http_connections')} connections`);
	check(metric(text, 'http_requests_total') - before >= 60, 'requests');
	agent.destroy();
});

await test('torn requests harm nobody', async () => {
	for (const bytes of ['GET', 'POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"defin', 'nonsense\r\n\r\n', 'GET /healthz HTTP/9.9\r\n\r\n', '\0\0\0\0', 'POST /v1/runs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n'])
		await new Promise(done => {
			const socket = net.connect(daemon.socket, () => { socket.write(bytes); setTimeout(() => { socket.destroy(); done(); }, 20); });
			socket.on('error', done);
			socket.resume();
		});
	equal((await get(daemon, '/healthz')).status, 200, 'alive');
});

await test('what libmicrohttpd itself refuses ends the connection, and the log says so at debug', async () => {
	const watched = await startDaemon({ words: ['--log-level', 'debug'] });
	for (const [bytes, status, words] of [['GET\r\n\r\n', null], ['nonsense\r\n\r\n', null], ['GET /healthz HTTP/9.9\r\n\r\n', 505, 'code is 505'],
		['GET /healthz HTTP/1.1\r\nHost x\r\n\r\n', 400, 'code is 400'], [`GET /healthz HTTP/1.1\r\nHost: x\r\nX: ${'x'.repeat(100000)}\r\n\r\n`, 431, 'code is 431'],
		[`GET /${'x'.repeat(100000)} HTTP/1.1\r\nHost: x\r\n\r\n`, 414, 'code is 414'], ['POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: abc\r\n\r\n', 400, '`Content-Length\'']]) {
		const before = watched.errors.length, what = JSON.stringify(bytes.slice(0, 40));
		let answer = '', closed = false;
		const socket = net.connect(watched.socket, () => socket.write(bytes));
		socket.on('data', part => { answer += part; });
		socket.on('error', () => {}); // what was not read makes it ECONNRESET
		socket.on('close', () => { closed = true; });
		await until(`${what}: the daemon closes the connection`, () => closed);
		check(status === null ? answer === '' : answer === '' || answer.startsWith(`HTTP/1.1 ${status}`), `${what}: ${answer.slice(0, 200)}`);
		if (words)
			await until(`${what}: the log says it`, () => watched.errors.slice(before).split('\n').some(line => line.includes('debug http') && line.includes(words)));
	}
	await until('their connections are gone', async () => metric((await get(watched, '/metrics')).text, 'http_connections') <= 1);
	equal(await stop(watched), { status: 0, signal: null }, 'stopped');
});

await test('an unknown runtime and a missing document fault the run with a word about what is missing', async () => {
	const run = input => post(daemon, '/v1/runs?wait=60s', { definition: 'reprise/extract:1.0.0', input });
	const digest = `sha256:${sha256(sample)}`;
	const unknown = (await run({ runtime: 'nonesuch', document: { digest } })).json;
	check(unknown.status === 'faulted' && JSON.stringify(unknown.error).includes("no runtime 'nonesuch' is configured; configured: fast, slow"), JSON.stringify(unknown));
	const literal = (await post(daemon, '/v1/runs?wait=60s', { definition: definition('typo', [{ a: { call: 'inference', with: { runtime: 'fas', prompt: 'x' } } }]) })).json;
	check(literal.status === 'faulted' && literal.error.type.endsWith('configuration') && literal.error.detail.includes("did you mean 'fast'?"), JSON.stringify(literal));
	const missing = (await run({ runtime: 'fast', document: { digest: `sha256:${'a'.repeat(64)}` } })).json;
	check(missing.status === 'faulted' && /document/i.test(JSON.stringify(missing.error)), JSON.stringify(missing));
});

await test('a second daemon on the same folder ends at once and names the first', async () => {
	const began = Date.now(), second = start(programs.daemon, ['--data', daemon.data]);
	const { status } = await second.ended;
	equal(status, 1, 'status');
	check(Date.now() - began < 30000, 'at once'); // it does not wait for the lock, but a busy machine may take seconds to start it
	check(second.errors.includes(`pid ${daemon.child.pid}`) && second.errors.includes('lock'), second.errors);
	equal((await get(daemon, '/healthz')).status, 200, 'the first still answers');
});

await test('another program\'s socket is not taken away, a stale one is', async () => {
	const path = join(folder, 'taken.sock'), other = net.createServer().listen(path);
	await new Promise(done => other.once('listening', done));
	const second = start(programs.daemon, ['--data', join(folder, 'data-taken'), '--listen', `unix:${path}`]);
	equal((await second.ended).status, 1, 'status');
	check(second.errors.includes('listens there'), second.errors);
	const pid = spawnSync(process.execPath, ['-e', `require('net').createServer().listen(${JSON.stringify(`${path}2`)}, () => process.kill(process.pid, 'SIGKILL'))`]);
	check(pid.signal === 'SIGKILL' && existsSync(`${path}2`), 'a stale socket is there');
	const third = start(programs.daemon, ['--data', join(folder, 'data-taken'), '--listen', `unix:${path}2`]);
	await third.first;
	equal((await get({ socket: `${path}2` }, '/healthz')).status, 200, 'taken over');
	equal(await stop(third), { status: 0, signal: null }, 'stopped');
	check(!existsSync(`${path}2`), 'the socket is removed at the end');
	writeFileSync(`${path}3`, 'mine');
	const fourth = start(programs.daemon, ['--data', join(folder, 'data-taken'), '--listen', `unix:${path}3`]);
	equal((await fourth.ended).status, 1, 'status with a file in the way');
	equal(readFileSync(`${path}3`, 'utf8'), 'mine', 'the file is left alone');
	other.close();
});

await test('a folder that cannot be written is told, with status 1', async () => {
	const readonly = join(folder, 'readonly');
	mkdirSync(readonly);
	chmodSync(readonly, 0o555);
	chmodSync(folder, 0o755);
	const asRoot = process.getuid() === 0;
	// Another user may not be able to reach the program where it was built: a copy beside the folder is.
	const copy = join(folder, 'reprised-copy');
	copyFileSync(programs.daemon, copy);
	chmodSync(copy, 0o755);
	const nobody = start(copy, ['--data', join(readonly, 'data')], asRoot ? { uid: 65534 } : {});
	equal((await nobody.ended).status, 1, 'status');
	check(nobody.errors.includes(readonly) && /permission|read-only|written/i.test(nobody.errors), nobody.errors);
});

await test('mistakes on the command line and in the configuration are told with their place', async () => {
	const run = async words => { const child = start(programs.daemon, words); const { status } = await child.ended; return { status, text: child.errors, out: child.out }; };
	equal((await run(['--nonsense'])).status, 2, 'unknown option');
	equal((await run(['--data'])).status, 2, 'no value');
	equal((await run(['--drain', 'x'])).status, 2, 'no duration');
	check((await run(['--help'])).out.includes('usage: reprised'), 'help');
	check((await run(['--version'])).out.startsWith('reprised '), 'version');
	const file = join(folder, 'bad.yaml');
	writeFileSync(file, 'runtimes:\n  a:\n    kind: openai\n    urll: http://x\n  b: {kind: vllm}\nlimits: {body: 0}\n');
	const bad = await run(['--config', file, '--data', join(folder, 'never')]);
	equal(bad.status, 1, 'status');
	const help = (await run(['--help'])).out.split('\n');
	check(help.length > 10 && help.every(line => line.length <= 80), help.filter(line => line.length > 80).join('\n'));
	const ports = join(folder, 'ports.yaml'), nowhere = join(folder, 'never-made');
	writeFileSync(ports, 'http:\n  allow: [public, 127.0.0.1:21300]\n');
	for (const words of [['--check'], []]) {
		const refused = await run([...words, '--config', ports, '--data', nowhere]);
		check(refused.status === 1 && refused.text.includes(`${ports}:2:19: `) && refused.text.includes('ports are not part of it'), refused.text);
		check(!existsSync(nowhere) && !refused.out.includes('good'), `${words} went past the configuration`);
	}
	for (const line of [`${file}:4:5: unknown key 'urll'`, `${file}:5:6: runtime 'b' has no url`, `${file}:6:16:`])
		check(bad.text.includes(line), `${line} is not in ${bad.text}`);
	check(!existsSync(join(folder, 'never')), 'nothing was made');
	// The first example of schema/CONFIGURATION.md lacks its two secrets on this machine, and nothing else; those of further sections lack nothing.
	const guide = readFileSync(new URL('../../schema/CONFIGURATION.md', import.meta.url), 'utf8'), example = join(folder, 'example.yaml');
	const examples = guide.split(/^## /m).map(section => section.split('\n').filter(line => line.startsWith('    ')).map(line => line.slice(4)).join('\n')).filter(text => text !== '');
	check(examples.length >= 2, `${examples.length} examples`);
	for (const [i, text] of examples.entries()) {
		writeFileSync(example, text);
		const guided = (await run(['--check', '--config', example, '--data', join(folder, 'never')])).text.match(/(?<=example\.yaml:)\d+:\d+: .*$/gm) ?? [];
		check(guided.length === (i === 0 ? 2 : 0) && guided.every(line => line.includes("secret '")), `example ${i + 1}: ${guided}`);
	}
	// Each key that the daemon knows stands in it.
	const source = readFileSync(new URL('../../daemon/config.c', import.meta.url), 'utf8'), keys = [...source.matchAll(/\{"(\w+)", (?:read_|NULL)/g)].map(match => match[1]);
	check(keys.length > 50, `${keys.length} keys`);
	equal(keys.filter(key => !new RegExp(`\\b${key}\\b`).test(guide)), [], 'keys that schema/CONFIGURATION.md leaves out');
	check((await run(['--config', join(folder, 'none.yaml')])).text.includes('none.yaml'), 'a file that is not there');
	const tcp = await run(['--data', join(folder, 'never'), '--listen', 'tcp:127.0.0.1:7411']);
	check(tcp.status === 1 && tcp.text.includes('token'), tcp.text);
	const checked = await run(['--check', '--data', daemon.data, '--config', `${daemon.data}.json`]);
	check(checked.status === 0 && checked.out.includes('good') && /\d+ entries/.test(checked.out), checked.out + checked.text);
	check((await run(['--check', '--data', join(folder, 'never')])).out.includes('none yet'), 'no journal yet');
	equal((await run(['--check', '--config', file])).status, 1, 'a bad configuration');
	check(checked.out.includes('keys: good'), checked.out);
	const key = join(folder, 'check.pem'), withKey = join(folder, 'check.yaml');
	writeFileSync(withKey, `signing: {log: {file: ${key}}}\n`);
	const keyed = words => run(['--check', '--data', words, '--config', withKey]);
	spawnSync('mkfifo', ['-m', '600', key]);
	const fifo = await keyed(daemon.data);
	check(fifo.status === 1 && fifo.text.includes('no regular file'), `a FIFO as key: ${fifo.out}${fifo.text}`);
	rmSync(key);
	check((await keyed(daemon.data)).text.includes('is missing'), 'the key of a journal is missing');
	equal((await keyed(join(folder, 'never'))).status, 0, 'no journal: it is made at the first start');
	copyFileSync(join(daemon.data, 'keys/fact.pem'), key);
	chmodSync(key, 0o600);
	check((await keyed(daemon.data)).text.includes('same key'), 'one key for both');
	const other = await startDaemon();
	await stop(other);
	copyFileSync(join(other.data, 'keys/log.pem'), key);
	const foreign = await keyed(daemon.data);
	check(foreign.status === 1 && foreign.text.includes('was begun with'), `the key of another journal: ${foreign.out}${foreign.text}`);
});

await test('a request that trickles in is closed after its time, a patient connection and a slow honest one are not', async () => {
	const brisk = await startDaemon({ config: { limits: { idle: '1s', request: '1s' } } });
	const trickle = (head, everyMs) => new Promise(done => {
		const socket = net.connect(brisk.socket), began = Date.now();
		let text = '', byte = 0;
		const timer = setInterval(() => socket.write(head(byte++)), everyMs);
		socket.on('data', part => { text += part; });
		socket.on('error', () => {});
		socket.on('close', () => { clearInterval(timer); done({ ms: Date.now() - began, text }); });
	});
	const begin = 'POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n';
	const [inHead, inBody, honest] = await Promise.all([
		trickle(i => i === 0 ? 'GET /healthz HTTP/1.1\r\nX: ' : 'x', 200),
		trickle(i => i === 0 ? begin : ' ', 200),
		new Promise(done => { // 200 KB, a piece every 300 ms: longer than a second, and 16 bytes a millisecond are kept
			const socket = net.connect(brisk.socket);
			let text = '', sent = 0;
			socket.on('data', part => { text += part; done(text); socket.destroy(); });
			socket.on('error', () => {});
			socket.on('close', () => done(text));
			socket.write('POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n');
			const timer = setInterval(() => { socket.write(' '.repeat(20000)); if ((sent += 20000) === 200000) clearInterval(timer); }, 300);
		}),
	]);
	// 1 s of silence would be allowed and 1 s for the head; looked at every 250 ms.
	check(inHead.ms >= 1900 && inHead.text === '', `a head: after ${inHead.ms} ms, ${inHead.text}`);
	check(inBody.ms >= 1000 && inBody.text === '', `a body: after ${inBody.ms} ms, ${inBody.text}`);
	check(honest.startsWith('HTTP/1.1 400'), `a body in time: ${honest.slice(0, 100)}`);
	equal(metric((await get(brisk, '/metrics')).text, 'http_slow_closed_total'), 2, 'counted');
	const waiting = await get(brisk, '/healthz');
	equal(waiting.status, 200, 'still serving');
	equal((await stop(brisk)).status, 0, 'stopped');
});

await test('SIGTERM answers those who wait, ends the streams, and ends with status 0', async () => {
	await post(daemon, '/v1/runs', { definition: ask, id: 'interrupted' });
	const waiting = get(daemon, '/v1/runs/interrupted?wait=1h');
	const streaming = stream(daemon, '/v1/runs/interrupted/events', () => false);
	const keep = new http.Agent({ keepAlive: true, maxSockets: 1 });
	await get(daemon, '/healthz', { agent: keep });
	await until('it waits', async () => metric((await get(daemon, '/metrics')).text, 'http_waiters') === 1);
	await until('the stream is open', async () => metric((await get(daemon, '/metrics')).text, 'http_streams') === 1);
	await until('the runtime is asked', async () => (await slowSim.state()).inFlight === 1); // else there is no attempt to interrupt
	const ended = stop(daemon);
	const answer = await waiting;
	problem(answer, 503, 'stopping', 'the waiter');
	check(answer.headers['retry-after'], 'Retry-After');
	check((await streaming).ended, 'the stream ended');
	equal(await ended, { status: 0, signal: null }, 'status');
	check(!existsSync(daemon.socket), 'the socket is gone');
	keep.destroy();
	check(!/ERROR|Sanitizer|runtime error/.test(daemon.errors), daemon.errors.slice(-3000));
});

await test('the next start takes up the run that was interrupted, and everything is still there', async () => {
	const again = await startDaemon({ data: daemon.data, config: { runtimes: { fast: { kind: 'simulator', url: sim.url }, slow: { kind: 'openai', url: sim.url } } } });
	check(again.line.includes('1 open run)'), again.line);
	const run = (await get(again, '/v1/runs/interrupted?wait=60s&include=all')).json;
	equal(run.status, 'completed', 'status');
	equal(run.tasks[0].attempts, 2, 'a second attempt');
	equal((await get(again, '/v1/runs/first?include=output')).json.output, { x: 1 }, 'an old run');
	equal((await post(again, '/v1/runs', { definition: noop, input: { n: 2 }, id: 'twice' })).status, 200, 'an old id');
	const entries = [];
	for (let from = 0, size = 1; from < size;) {
		const page = (await get(again, `/v1/log/entries?from=${from}&limit=10000`)).json;
		entries.push(...page.entries.map(text => JSON.parse(text)));
		({ next: from, size } = page);
	}
	equal(entries.filter(entry => entry.kind === 'daemon.started').length, 2, 'two starts');
	equal(entries.filter(entry => entry.kind === 'daemon.stopping').length, 1, 'one stop');
	equal(entries.filter(entry => entry.kind === 'definition.added' && entry.data.name === 'extract').length, 1, 'built-in definitions once');
	equal(await stop(again), { status: 0, signal: null }, 'stopped');
});

await test('kill -9 in the middle of an extraction: the next daemon completes it, asks nothing twice that was answered, and each fact is there once', async () => {
	const cut = await startSim(['--delay', '400']); // six rounds: after the second a second and a half is left to look and to kill
	const config = { runtimes: { fast: { kind: 'simulator', url: cut.url, concurrency: 4 } } };
	const text = Array.from({ length: 24 }, (_, i) => `## Part ${i}\n\nFirm${i} was founded in ${1950 + i}.\n`).join('\n');
	let first = await startDaemon({ config });
	const digest = (await post(first, '/v1/documents', text, { headers: { 'Content-Type': 'text/markdown' } })).json.digest;
	equal((await post(first, '/v1/runs', { definition: 'reprise/extract:1.0.0', id: 'cut', input: { runtime: 'fast', document: { digest } } })).status, 201, 'submitted');
	await until('some sections are done', async () => (await get(first, '/v1/facts?limit=1000')).json.facts.length >= 8);
	equal((await stop(first, 'SIGKILL')).signal, 'SIGKILL', 'killed');
	const second = await startDaemon({ data: first.data, config });
	check(second.line.includes('1 open run)'), second.line);
	const committed = new Set((await get(second, '/v1/facts?limit=1000')).json.facts.map(fact => fact.section.digest.slice(7)));
	const run = (await get(second, '/v1/runs/cut?wait=60s&include=output,facts')).json;
	equal([run.status, run.output.summary.facts], ['completed', 24], 'completed');
	const facts = (await get(second, '/v1/facts?run=cut&limit=1000')).json.facts;
	equal(new Set(facts.map(fact => fact.value.subject)).size, 24, 'each fact');
	equal(facts.length, 24, 'once');
	const state = await cut.state();
	for (const section of committed)
		equal(state.bySection[section]?.requests, 1, `section ${section} was asked once`);
	equal((await post(second, '/v1/runs/cut/replay')).json.equal, true, 'replay');
	equal(await stop(second), { status: 0, signal: null }, 'stopped');
	cut.child.kill();
});

await test('limits of waiters and bodies are kept, and --drain lets an activity finish', async () => {
	const short = await startSim(['--delay', '6000']); // all that is refused below has to be asked within it
	const small = await startDaemon({ config: { runtimes: { slow: { kind: 'simulator', url: short.url } }, limits: { waiters: 1, body: '1KiB', bodies: '1KiB', connections: 6 } }, words: ['--drain', '60s'] });
	await post(small, '/v1/runs', { definition: ask, id: 'one' });
	const waiting = get(small, '/v1/runs/one?wait=60s');
	await until('it waits', async () => metric((await get(small, '/metrics')).text, 'http_waiters') === 1);
	const refused = await get(small, '/v1/runs/one?wait=60s');
	problem(refused, 503, 'limits.waiters', 'the second');
	equal(refused.headers['retry-after'], '1', 'Retry-After');
	problem(await post(small, '/v1/runs', { definition: noop, input: 'x'.repeat(1100) }), 413, '1024', 'a body');
	problem(await post(small, '/v1/documents', 'x'.repeat(3000)), 503, 'limits.bodies', 'all bodies together');
	const idle = await Promise.all(Array.from({ length: 5 }, () => new Promise(done => { const socket = net.connect(small.socket, () => done(socket)); socket.on('error', () => {}); })));
	const outcome = await Promise.race([get(small, '/healthz').then(answer => answer.status, error => error.code), pause(300).then(() => 'waits')]);
	check(outcome !== 200, `one connection more than the limit: ${outcome}`);
	idle.forEach(socket => socket.destroy());
	await until('with room again it is served', () => get(small, '/healthz').then(answer => answer.status === 200, () => false));
	const ended = stop(small);
	equal((await waiting).json?.status, 'completed', 'the activity was let finish');
	equal(await ended, { status: 0, signal: null }, 'status');
	short.child.kill();
});

await test('kind: simulator without a url starts one of its own, which dies with the daemon', async () => {
	const own = await startDaemon({ config: { runtimes: { own: { kind: 'simulator' } } } });
	const url = (await get(own, '/v1/config')).json.runtimes.own.url;
	equal((await fetch(`${url}/health`)).headers.get('server'), 'reprise-sim', 'it answers');
	equal((await post(own, '/v1/runs?wait=60s&include=output', { definition: 'reprise/infer:1.0.0', input: { runtime: 'own', prompt: 'hi' } })).json.status, 'completed', 'a run');
	check(own.errors.includes('SIMULATOR'), own.errors);
	equal((await stop(own, 'SIGKILL')).signal, 'SIGKILL', 'killed');
	await until('it is gone too', () => fetch(`${url}/health`).then(() => false, () => true));
	const next = await startDaemon({ data: own.data, config: { runtimes: { own: { kind: 'simulator' } } } });
	const second = (await get(next, '/v1/config')).json.runtimes.own.url;
	equal((await stop(next)).status, 0, 'stopped');
	await until('and this one', () => fetch(`${second}/health`).then(() => false, () => true));
});

await test('systemd is told READY and STOPPING, also over an abstract socket name', async () => {
	// Node has no Unix datagram sockets; python3, which the build needs anyway, has.
	const listen = name => new Promise(done => {
		const child = launch('python3', ['-c', `
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1].replace('@', '\\0'))
print('listening', flush=True)
while True:
    print(s.recv(4096).decode(), flush=True)
`, name]);
		firstLine(child, 'python3').then(() => done({ child, said: () => child.output }));
	});
	for (const name of [join(folder, 'notify.sock'), `@reprise-test-${process.pid}`]) {
		const supervisor = await listen(name);
		const told = await startDaemon({ env: { NOTIFY_SOCKET: name } });
		await until('READY', () => supervisor.said().includes('READY=1'));
		equal((await stop(told)).status, 0, 'stopped');
		await until('STOPPING', () => supervisor.said().includes('STOPPING=1'));
		supervisor.child.kill('SIGKILL');
	}
});

await finish();
