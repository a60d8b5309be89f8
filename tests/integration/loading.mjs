// A runtime that the daemon does not launch, but whose API loads models (LM Studio's /api/v1): start, stop and reload by order of an operator
// or of a gate. A reload keeps the settings, makes another instance of it, holds who waits and tries anew what was in flight; what cannot be
// loaded is refused with its reason. Needs Node 20 and nothing else.
import http from 'node:http';
import { Daemon, ask, check, equal, extractionOf, finish, match, problem, startSimulator, test, until } from '../support/harness.mjs';

const MODEL = 'reprise-sim', DOCUMENT = 'Acme was founded in 1901.';
const runtimeOf = (url, more = {}) => ({ kind: 'lmstudio', url, model: MODEL, retry: { attempts: 5, floor: '10ms', cap: '50ms' }, ...more });
const daemonOf = (name, runtimes, options) => new Daemon(`loading-${name}`, { runtimes }, options).start();
const known = (daemon, name = 'r') => until('it was asked', async () => { const runtime = await daemon.get(`/v1/runtimes/${name}`); return runtime.configuration && runtime; });
const becomes = (daemon, state, name = 'r') => until(`it is ${state}`, async () => { const { load } = await daemon.get(`/v1/runtimes/${name}`); return load?.state === state && load; });
const models = async sim => (await ask({ host: '127.0.0.1', port: sim.port }, 'GET', '/api/v1/models')).json.models;
const loaded = async sim => (await models(sim))[0].loaded_instances;
// Entries about runtimes, as soon as the last one is of this kind: a state is seen before its entry is in the journal.
const noted = (daemon, last) => until(`an entry ${last}`, async () => {
	const list = (await daemon.journal()).map(text => JSON.parse(text)).filter(entry => entry.kind.startsWith('runtime.'));
	return list.at(-1)?.kind === last && list;
});
let runs = 0;
const submit = async (daemon, document = DOCUMENT, more = {}) => { const id = `run-${++runs}`; await daemon.post('/v1/runs', { id, definition: extractionOf('r', more), input: { document } }, 201); return id; };
const outcome = async (daemon, id) => { const run = await daemon.ended(id); equal(run.status, 'completed', JSON.stringify(run.error)); return (run.output.facts?.sections ?? run.output.sections)[0].outcome; };

await test('reload: the model is another instance under the same settings, in the journal, and gates of the one before do not vouch for it', async () => {
	const sim = await startSimulator('--kind', 'lmstudio'), daemon = await daemonOf('reload', { r: runtimeOf(sim.url) });
	await ask({ host: '127.0.0.1', port: sim.port }, 'POST', '/api/v1/models/load', { model: MODEL, context_length: 4096 });
	await daemon.post('/v1/runtimes/r/probe', {}, 200);
	equal(daemon.cli('gate', 'r', '-n', '2', '--seeds', '0', '-o', 'json').json().class, 'byte-stable', 'gate');
	const describe = async () => { const run = await daemon.ended(await submit(daemon)); return (await daemon.get(`/v1/facts/${(run.facts ?? run.output.facts)[0].id ?? (run.facts ?? run.output.facts)[0]}`)); };
	const fact = await describe();
	const { instance, configuration } = await daemon.get('/v1/runtimes/r');
	const order = daemon.cli('runtime', 'reload', 'r', '--yes', '--wait', '--reason', 'to see what changes');
	equal([order.code, order.stdout.trim()], [0, 'ready'], order.stderr);
	equal((await loaded(sim)).map(item => item.config.context_length), [4096], 'the settings that it had');
	const after = await daemon.get('/v1/runtimes/r');
	equal([after.load.state, after.configuration, after.status], ['ready', configuration, 'reachable'], 'the same configuration');
	check(after.instance.id !== instance.id, `another instance: ${after.instance.id}`);
	const later = await describe();
	check(JSON.stringify(fact.reproducibility) !== JSON.stringify(later.reproducibility), `facts say so: ${JSON.stringify(later.reproducibility)}`);
	const [stopped, ready] = await noted(daemon, 'runtime.ready');
	equal([stopped.kind, stopped.data.why, stopped.data.instance, ready.kind, ready.data.instance, `sha256:${ready.data.configuration.sha256}`],
		['runtime.stopped', 'reload', instance.id, 'runtime.ready', after.instance.id, configuration], JSON.stringify([stopped.data, ready.data]));
	match(daemon.content(stopped.data.detail ?? Object.values(stopped.values ?? {})[0]), /to see what changes/, 'the reason');
	await daemon.stop();
	await sim.stop();
});

await test('a model that somebody else loads anew, behind a connection that is kept, is noticed and named; no fact is under the settings of before', async () => {
	const sim = await startSimulator('--kind', 'lmstudio'), daemon = await daemonOf('elsewhere', { r: runtimeOf(sim.url) });
	const order = async (path, body) => equal((await ask({ host: '127.0.0.1', port: sim.port }, 'POST', path, body)).status, 200, path);
	const length = async () => {
		const run = await daemon.ended(await submit(daemon)), id = run.facts[0].id ?? run.facts[0];
		return (await daemon.get(`/v1/provenance/${(await daemon.get(`/v1/facts/${id}`)).configuration}`)).record.C.context_length.value;
	};
	await known(daemon);
	const before = await length();
	await order('/api/v1/models/unload', { instance_id: MODEL });
	await order('/api/v1/models/load', { model: MODEL, context_length: 4096 });
	equal([before, await length()], [32768, 4096], 'context of each fact\'s record');
	match(daemon.child.errors, /configuration changed: .*C\.context_length/, 'the log names the field');
	await daemon.stop();
	await sim.stop();
});

await test('the configured context wins over the one that it had', async () => {
	const sim = await startSimulator('--kind', 'lmstudio'), daemon = await daemonOf('context', { r: runtimeOf(sim.url, { contextLength: 2048 }) });
	await known(daemon);
	equal(daemon.cli('runtime', 'reload', 'r', '--yes', '--wait').code, 0, 'reload');
	equal((await loaded(sim))[0].config.context_length, 2048, 'context');
	await daemon.stop();
	await sim.stop();
});

await test('stop unloads it and holds who comes, of all runtimes that ask this model; start loads it, and they go on', async () => {
	const sim = await startSimulator('--kind', 'lmstudio');
	await sim.script({ options: { models: ['second'] } });
	const daemon = await daemonOf('stop', { r: runtimeOf(sim.url), same: runtimeOf(sim.url), other: runtimeOf(sim.url, { model: 'second' }) });
	await known(daemon);
	equal([daemon.cli('runtime', 'stop', 'r', '--yes', '--wait').stdout.trim(), await loaded(sim)], ['stopped', []], 'stop');
	match(daemon.cli('runtime', 'list').stdout, /^r +lmstudio \(simulated\) +stopped /m, 'list');
	const ids = [await submit(daemon)];
	await daemon.post('/v1/runs', { id: 'same', definition: extractionOf('same'), input: { document: DOCUMENT } }, 201);
	await daemon.post('/v1/runs', { id: 'other', definition: extractionOf('other'), input: { document: DOCUMENT } }, 201);
	equal(await outcome(daemon, 'other'), 'facts', 'another model of the same server');
	equal([(await daemon.get('/v1/runtimes/r')).waitsFor, (await daemon.get('/v1/runtimes/same')).waiting, await loaded(sim)], ['runtime', 1, []], 'they wait, and nobody loads it');
	equal(daemon.cli('runtime', 'start', 'r', '--wait').stdout.trim(), 'ready', 'start');
	equal([await outcome(daemon, ids[0]), await outcome(daemon, 'same')], ['facts', 'facts'], 'they go on');
	const { instance } = await daemon.get('/v1/runtimes/r');
	equal(daemon.cli('runtime', 'start', 'r', '--wait').stdout.trim(), 'ready', 'start of what is loaded');
	equal((await daemon.get('/v1/runtimes/r')).instance.id, instance.id, 'loads nothing');
	await daemon.stop();
	await sim.stop();
});

await test('what is in flight is lost and tried again', async () => {
	const sim = await startSimulator('--kind', 'lmstudio'), daemon = await daemonOf('flight', { r: runtimeOf(sim.url) });
	await known(daemon);
	await sim.script({ cadence: { firstByteMs: 60_000 } });
	const id = await submit(daemon);
	await until('it is asked', async () => (await sim.state()).inFlight === 1);
	await sim.script({});
	equal(daemon.cli('runtime', 'reload', 'r', '--yes', '--wait').code, 0, 'reload');
	equal(await outcome(daemon, id), 'facts', 'outcome');
	const failed = (await daemon.events(id)).filter(entry => entry.kind === 'attempt.failed');
	equal([failed.length, failed[0].data.class ?? failed[0].data.failure], [1, 'unreachable'], JSON.stringify(failed));
	await daemon.stop();
	await sim.stop();
});

await test('a model that cannot be loaded is refused with its reason, attempts hear it, and another order tries again', async () => {
	const sim = await startSimulator('--kind', 'lmstudio'), daemon = await daemonOf('refused', { r: runtimeOf(sim.url, { retry: { attempts: 1 } }) });
	await known(daemon);
	await sim.script({ options: { loadError: 'Model loading was stopped due to insufficient system resources.' } });
	const order = daemon.cli('runtime', 'reload', 'r', '--yes', '--wait');
	check(order.code !== 0, 'exit');
	match(order.stderr, /runtime r is refused: runtime r does not load its model: Model loading was stopped due to insufficient system resources\.; free memory/, 'command line');
	equal(await outcome(daemon, await submit(daemon)), 'out-of-memory', 'attempts');
	const entries = await noted(daemon, 'runtime.refused');
	equal([entries.at(-1).kind, entries.at(-1).data.class], ['runtime.refused', 'out-of-memory'], JSON.stringify(entries.at(-1)));
	await sim.script({});
	equal(daemon.cli('runtime', 'start', 'r', '--wait').code, 0, 'start');
	equal(await outcome(daemon, await submit(daemon)), 'facts', 'afterwards');
	await daemon.stop();
	await sim.stop();
});

await test('one order at a time; a daemon that stops in the middle of one leaves nothing behind', async () => {
	const sim = await startSimulator('--kind', 'lmstudio'), daemon = await daemonOf('twice', { r: runtimeOf(sim.url), same: runtimeOf(sim.url) });
	await known(daemon);
	await sim.script({ options: { loadMs: 60_000 } });
	equal((await daemon.post('/v1/runtimes/r/reload', {}, 200)).load.state, 'stopping', 'begun');
	await becomes(daemon, 'starting');
	for (const name of ['r', 'same'])
		problem(await daemon.ask('POST', `/v1/runtimes/${name}/reload`, {}), 409, /is starting already/);
	await daemon.stop();
	await sim.stop();
	const next = await startSimulator('--kind', 'lmstudio', '--port', String(sim.port));
	await daemon.start();
	equal(await outcome(daemon, await submit(daemon)), 'facts', 'the next daemon');
	await daemon.stop();
	await next.stop();
});

await test('a server without that API, or that is not there, fails the order and holds nobody', async () => {
	const sim = await startSimulator('--kind', 'lmstudio');
	await sim.script({ options: { v1: false } });
	const daemon = await daemonOf('absent', { r: runtimeOf(sim.url, { retry: { attempts: 1 } }) });
	await known(daemon);
	match(daemon.cli('runtime', 'reload', 'r', '--yes', '--wait').stderr, /runtime r is failed: GET \/api\/v1\/models gives no list of models/, 'before 0.4');
	equal(await outcome(daemon, await submit(daemon)), 'facts', 'attempts go on');
	await sim.stop();
	match(daemon.cli('runtime', 'reload', 'r', '--yes', '--wait').stderr, /runtime r is failed: it does not answer at /, 'gone');
	equal((await daemon.get('/v1/runtimes/r')).status, 'unreachable', 'status');
	equal(await outcome(daemon, await submit(daemon)), 'unreachable', 'attempts find it out');
	await daemon.stop();
});

await test('a gate loads it anew in its turn: before, cold and warm are told apart', async () => {
	const sim = await startSimulator('--kind', 'lmstudio'), daemon = await daemonOf('gate', { r: runtimeOf(sim.url) });
	const { instance } = await known(daemon);
	await daemon.post('/v1/runtimes/r/probe', {}, 200); // thorough: the engine's version is known now, and stays so in the same process
	const report = daemon.cli('gate', 'r', '-n', '3', '--seeds', '0', '--phases', 'reload', '-o', 'json').json();
	equal([report.class, report.phases.before], ['byte-stable', { answered: 3, asked: 3, distinct: 1 }], 'report');
	const after = (await daemon.get('/v1/runtimes/r')).instance;
	check(after.id !== instance.id && report.conditions.instance === after.id, `measured of the new one: ${JSON.stringify(report.conditions)}`);
	equal((await noted(daemon, 'runtime.ready')).map(entry => entry.kind), ['runtime.stopped', 'runtime.ready'], 'entries');
	await daemon.stop();
	await sim.stop();
});

await test('names and numbers of instances: a given name is not lost, no more than 16 are unloaded; a 200 may be no', async () => {
	const own = { instances: [], asked: [], answer: {} };
	const server = http.createServer((request, response) => {
		const parts = [];
		request.on('data', part => parts.push(part)).on('end', () => {
			const path = `${request.method} ${request.url}`, answer = body => response.writeHead(200, { 'Content-Type': 'application/json' }).end(JSON.stringify(body));
			if (path === 'GET /api/v1/models')
				return answer({ models: [{ type: 'llm', key: MODEL, selected_variant: `${MODEL}@q8_0`, loaded_instances: own.instances.map(id => ({ id, config: { context_length: 512, flash_attention: false, num_experts: 6, parallel: 2 } })) }] });
			if (request.method === 'POST')
				own.asked.push([request.url, JSON.parse(Buffer.concat(parts).toString() || 'null')]);
			answer(own.answer[request.url] ?? { error: `Unexpected endpoint or method. (${path})` });
		});
	});
	await new Promise(done => server.listen(0, '127.0.0.1', done));
	server.unref();
	const url = `http://127.0.0.1:${server.address().port}`, load = '/api/v1/models/load', unload = '/api/v1/models/unload';
	const daemon = await daemonOf('names', { r: runtimeOf(url), variant: runtimeOf(url, { model: `${MODEL}@q8_0` }), given: runtimeOf(url, { model: 'mine' }), none: { kind: 'openai', url } });
	// This server is in our own process, which a command line that is waited for would hold up.
	const reload = async name => {
		await daemon.post(`/v1/runtimes/${name}/reload`, {}, 200);
		return until('it is over', async () => { const { load } = await daemon.get(`/v1/runtimes/${name}`); return !['starting', 'stopping'].includes(load.state) && `${load.state} ${load.detail ?? ''}`; });
	};
	own.instances = Array.from({ length: 17 }, (_, i) => `${MODEL}:${i}`);
	match(await reload('r'), /its model is loaded 17 times; at most 16 are unloaded \(LOADING_UNLOADS_MAX\)/, '17');
	own.instances.pop();
	match(await reload('r'), /does not unload its model: Unexpected endpoint/, 'a 200 that is none');
	equal(own.asked, [[unload, { instance_id: `${MODEL}:0` }]], 'asked once');
	own.answer = { [unload]: { instance_id: 'x' } };
	own.asked = [];
	match(await reload('r'), /does not load its model: Unexpected endpoint/, 'nor of the load');
	equal([own.asked.length, own.asked[16]], [17, [load, { context_length: 512, echo_load_config: true, flash_attention: false, model: MODEL, num_experts: 6 }]], 'the settings that it had');
	own.answer[load] = { type: 'llm', instance_id: MODEL, load_time_seconds: 1, status: 'loaded' };
	own.asked = [];
	equal([(await reload('variant')).trim(), own.asked.at(-1)[1].model], ['ready', `${MODEL}@q8_0`], 'a variant');
	own.instances = ['mine'];
	match(await reload('given'), /lms load --identifier/, 'a name that was given');
	problem(await daemon.ask('POST', '/v1/runtimes/none/reload', {}), 400, /has no `launch`.*no API to load models/);
	await daemon.stop();
	server.closeAllConnections();
	server.close();
});

await test('a gate that waits behind an order that fails orders a reload of its own in that moment, and all of this model wait for it', async () => {
	const sim = await startSimulator('--kind', 'lmstudio'), chats = [], lists = [];
	let holdsChats = false, holdsLists = false;
	const between = http.createServer((request, response) => {
		const pass = () => request.pipe(http.request({ port: sim.port, method: request.method, path: request.url, headers: request.headers }, answer => { response.writeHead(answer.statusCode, answer.headers); answer.pipe(response); }));
		if (request.url === '/api/v1/models' && holdsLists)
			lists.push(response);
		else if (request.url === '/v1/chat/completions' && chats.push(pass) > 2 && holdsChats)
			return;
		else
			pass();
	});
	await new Promise(done => between.listen(0, '127.0.0.1', done));
	between.unref();
	const url = `http://127.0.0.1:${between.address().port}`, daemon = await daemonOf('behind', { r: runtimeOf(url), same: runtimeOf(url) });
	await known(daemon);
	holdsChats = true;
	await daemon.post('/v1/gates', { id: 'gate', runtime: 'r', requests: 2, seeds: 0, phases: ['reload'], request: { prompt: 'x', sampling: { maxTokens: 8 } } }, 201);
	await until('its first request behind the reload is in flight', async () => chats.length === 3);
	holdsLists = true;
	await daemon.post('/v1/runtimes/r/reload', {}, 200);
	await until('it was lost and waits again', async () => lists.length >= 1 && (await daemon.get('/v1/runtimes/r')).waiting === 1); // a probe may ask for the list, too
	await daemon.post('/v1/runs', { id: 'same', definition: extractionOf('same'), input: { document: DOCUMENT } }, 201);
	await until('it waits', async () => (await daemon.get('/v1/runtimes/same')).waiting === 1);
	holdsChats = holdsLists = false;
	await sim.script({ options: { loadMs: 5000 } });
	for (const list of lists)
		list.writeHead(200, { 'Content-Length': 100 }).write('{');
	setTimeout(() => lists.forEach(list => list.destroy()), 50);
	await becomes(daemon, 'starting');
	equal((await daemon.get('/v1/runtimes/same')).waitsFor, 'runtime', 'who asks the same model waits for it, too');
	equal([(await daemon.ended('gate')).status, await outcome(daemon, 'same')], ['completed', 'facts'], 'both go on');
	await daemon.stop();
	await sim.stop();
	between.closeAllConnections();
	between.close();
});

await finish();
