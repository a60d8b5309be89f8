// Which process answers: found for a runtime on this machine, known of a launched one, named by LM Studio itself, absent where nothing can tell; on each
// attempt, in the signed statement, with a gate's result, which holds for the process that it was measured of.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, rmSync, watch, writeFileSync } from 'node:fs';
import net from 'node:net';
import { join } from 'node:path';
import { check, Daemon, documentOf, equal, exitOf, extractionOf, finish, match, programs, root, startSimulator, test, until } from '../support/harness.mjs';

const freePort = () => new Promise(done => { const server = net.createServer().listen(0, '127.0.0.1', () => { const { port } = server.address(); server.close(() => done(port)); }); });
const instanceOf = pid => `${pid}-${readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').pop().split(' ')[19]}`;
const sampling = { temperature: 0.6, seed: 42, maxTokens: 500 };
const dsse = process.env.REPRISE_SHARED ? join(process.env.REPRISE_SHARED, 'tools/verify-dsse.mjs') : join(root, '../shared/tools/verify-dsse.mjs');

// A run of one section: the first fact, what is signed of it, and the last attempt.
async function factOf(daemon, id, runtime, more = {}) {
	await daemon.post('/v1/runs?wait=30s', { id, definition: extractionOf(runtime, more), input: { document: documentOf(1) } }, 201);
	const run = await daemon.run(id);
	if (run.status !== 'completed' || run.facts.length === 0)
		return { run };
	const fact = await daemon.get(`/v1/facts/${run.facts[0]}`), envelope = daemon.cli('fact', 'export', fact.id).json();
	const answered = (await daemon.events(id)).find(entry => entry.kind === 'attempt.succeeded' && entry.data.request);
	return { run, fact, envelope, attempt: JSON.parse(daemon.content(answered.data.record)), predicate: JSON.parse(Buffer.from(envelope.payload, 'base64')).predicate };
}
const canonical = value => Array.isArray(value) ? `[${value.map(canonical)}]` : value && typeof value === 'object' ?
	`{${Object.keys(value).sort().map(key => `${JSON.stringify(key)}:${canonical(value[key])}`)}}` : JSON.stringify(value);

await test('a process that listens on this machine is found; a new one makes the gate one of another instance, until the next gate', async () => {
	let sim = await startSimulator();
	const { port } = sim, daemon = new Daemon('instance', { runtimes: { r: { kind: 'simulator', url: sim.url, model: 'reprise-sim', concurrency: 1, sampling } } });
	await daemon.start();
	const gate = daemon.cli('gate', 'r', '-n', '3', '--seeds', '0', '-o', 'json').json(), first = instanceOf(sim.child.pid);
	equal([gate.class, gate.conditions.instance, gate.conditions.instanceBasis], ['byte-stable', first, 'measured'], 'gate');
	let { fact, predicate, attempt } = await factOf(daemon, 'same', 'r');
	equal([fact.reproducibility.applies, fact.reproducibility.differs], ['exact', []], 'the same process');
	equal([predicate.runtime.instance, predicate.runtime.instanceBasis], [first, 'measured'], 'and it is signed');
	equal(attempt.instance, { basis: 'measured', id: first }, 'the attempt');
	const age = Date.now() - Date.parse(predicate.runtime.startedOn);
	check(age > -5000 && age < 600_000, () => `started on ${predicate.runtime.startedOn}`);
	check(predicate.runtime.host.kernel.length > 0 && predicate.runtime.launch === undefined, 'its machine; nobody launched it');
	equal((await daemon.get('/v1/runtimes/r')).instance.id, first, 'and it is shown');
	await daemon.kill();
	await daemon.start();
	equal((await factOf(daemon, 'restarted', 'r')).fact.reproducibility.applies, 'exact', 'a restart of the daemon makes no other process of it');
	await sim.stop();
	sim = await startSimulator('--port', String(port));
	const second = instanceOf(sim.child.pid);
	const other = await factOf(daemon, 'other', 'r');
	equal([other.fact.reproducibility.class, other.fact.reproducibility.applies, other.fact.reproducibility.differs], ['byte-stable', 'conditions-differ', ['instance']], 'another process');
	equal([other.predicate.runtime.instance, other.predicate.result.reproducibility.conditions.instance, other.predicate.configuration.digest], [second, first, predicate.configuration.digest], 'both are named');
	let demanding = await factOf(daemon, 'demanding', 'r', { requireClass: 'byte-stable', onFailure: 'fault' });
	match(demanding.run.error.detail, /gate [0-9a-f]{12} of runtime r was taken under another condition: instance; take one under this one, or list it in requireClass\.mayDiffer/, 'a demand');
	demanding = await factOf(daemon, 'may-differ', 'r', { requireClass: { class: 'byte-stable', mayDiffer: ['instance'] }, onFailure: 'fault' });
	equal(demanding.run.status, 'completed', 'which may be given up');
	equal(daemon.cli('gate', 'r', '-n', '3', '--seeds', '0', '-o', 'json').json().conditions.instance, second, 'the next gate');
	({ fact } = await factOf(daemon, 'measured-again', 'r', { requireClass: 'byte-stable', onFailure: 'fault' }));
	equal(fact.reproducibility.applies, 'exact', 'and what it is worth');
	equal(daemon.cli('fact', 'verify', '--all').code, 0, 'signatures');
	await daemon.stop();
	await sim.stop();
});

await test('a runtime that is replaced in the middle of a gate makes it inconclusive', async () => {
	let sim = await startSimulator();
	const { port } = sim, daemon = new Daemon('instance-gate', { runtimes: { r: { kind: 'simulator', url: sim.url, concurrency: 1, sampling, retry: { attempts: 100, floor: '50ms', cap: '1s' } } } });
	await daemon.start();
	await sim.script({ cadence: { firstByteMs: 20 } });
	await daemon.post('/v1/gates', { runtime: 'r', requests: 300, seeds: 0, id: 'replaced' }, 201);
	await until('it asks', async () => (await daemon.events('replaced')).filter(entry => entry.kind === 'attempt.succeeded').length >= 2, 20_000, 5);
	sim.child.kill('SIGKILL');
	await exitOf(sim.child);
	sim = await startSimulator('--port', String(port));
	const { output } = await daemon.ended('replaced', 60_000);
	equal([output.class, output.reason], ['inconclusive', 'the runtime was started anew between two requests'], 'report');
	await daemon.stop();
	await sim.stop();
});

await test('an attempt says which request of its instance it was, and how many were in flight; another process begins anew', async () => {
	const sim = await startSimulator('--kind', 'openai');
	const daemon = await new Daemon('ordinals', { runtimes: { r: { kind: 'openai', url: sim.url, model: 'reprise-sim', concurrency: 2 } } }).start();
	let runs = 0;
	const told = async () => {
		const id = `run-${++runs}`;
		await daemon.post('/v1/runs', { id, definition: extractionOf('r'), input: { document: 'Acme was founded in 1901.' } }, 201);
		equal((await daemon.ended(id)).status, 'completed', id);
		const answered = (await daemon.get(`/v1/runs/${id}/events`)).events.find(event => event.kind === 'attempt.succeeded' && event.data.request);
		const record = JSON.parse(daemon.content(answered.data.record));
		return [record.requestOfInstance, record.inFlight];
	};
	equal([await told(), await told(), await told()], [[1, 1], [2, 1], [3, 1]], 'one after the other');
	const { port } = sim;
	await sim.stop();
	const other = await startSimulator('--kind', 'openai', '--port', String(port));
	equal([await told(), await told()], [[1, 1], [2, 1]], 'of another process');
	await daemon.stop();
	await other.stop();
});

await test('of a launched runtime the process and its launch are signed; reloaded between gate and fact it is another instance', async () => {
	const port = await freePort(), argv = [programs.sim, '--port', String(port)];
	const daemon = new Daemon('instance-launched', { runtimes: { r: { kind: 'simulator', url: `http://127.0.0.1:${port}`, concurrency: 1, sampling, launch: { argv, env: { COLOUR: 'blue', MY_TOKEN: 'x' } } } } });
	await daemon.start();
	const ready = () => until('it is ready', async () => { const { launch } = await daemon.get('/v1/runtimes/r'); return launch.state === 'ready' && launch; }, 30_000);
	const { instance: first } = await ready();
	const gate = daemon.cli('gate', 'r', '-n', '3', '--seeds', '0', '-o', 'json').json();
	equal([gate.conditions.instance, gate.conditions.instanceBasis], [first, 'launched'], 'gate');
	const before = await factOf(daemon, 'before', 'r');
	equal(before.fact.reproducibility.applies, 'exact', 'the same process');
	const { runtime } = before.predicate, config = { argv, cwd: '/', env: { COLOUR: 'blue', MY_TOKEN: '(set)' } };
	equal([runtime.instance, runtime.instanceBasis, runtime.basis, runtime.launch.config], [first, 'launched', 'launched', config], 'what is signed');
	equal(runtime.launch.digest.sha256, createHash('sha256').update(canonical(config)).digest('hex'), 'the digest of the launch');
	equal(runtime.engine.digest.sha256, createHash('sha256').update(readFileSync(programs.sim)).digest('hex'), 'the executable');
	const envelope = join(daemon.folder, 'fact.dsse');
	writeFileSync(envelope, JSON.stringify(before.envelope));
	if (existsSync(dsse)) {
		const key = join(daemon.folder, 'fact.pem');
		writeFileSync(key, daemon.cli('key', 'export', '--purpose', 'fact', '--format', 'pem').stdout);
		const done = spawnSync(process.execPath, [dsse, '--key', key, '--canonical', '--predicate-type', 'https://reprise.example/attestation/extracted-fact/v1', envelope], { encoding: 'utf8' });
		equal(done.status, 0, `the independent verifier (${done.stdout}${done.stderr})`);
	}
	match(daemon.cli('verify', envelope, '--offline').stdout + daemon.cli('fact', 'verify', before.fact.id).stdout, /launch configuration hashes to its digest|verified|PASS|ok/i, 'and ours');
	equal(daemon.cli('runtime', 'reload', 'r').code, 0, 'reload');
	const second = await until('another process', async () => { const { launch } = await daemon.get('/v1/runtimes/r'); return launch.state === 'ready' && launch.instance !== first && launch.instance; }, 30_000);
	const after = await factOf(daemon, 'after', 'r');
	equal([after.fact.reproducibility.differs, after.predicate.runtime.instance, after.fact.configuration], [['instance'], second, before.fact.configuration], 'the same configuration, another process');
	await daemon.stop();
});

await test('kernels that the log of a launched runtime names are in its record, also when another daemon adopts it', async () => {
	const port = await freePort(), argv = [programs.sim, '--kind', 'vllm', '--port', String(port)];
	const daemon = new Daemon('kernels', { runtimes: { r: { kind: 'vllm', url: `http://127.0.0.1:${port}`, launch: { argv, onDaemonExit: 'keep' } } } });
	await daemon.start();
	const ready = () => until('it is ready', async () => { const found = await daemon.get('/v1/runtimes/r'); return found.launch.state === 'ready' && found; }, 30_000);
	const first = await ready(), { record } = await daemon.get(`/v1/provenance/${first.configuration}`);
	equal(record.C.kernels, { basis: 'log', source: 'its log', value: { attention: ['FLASH_ATTN'] } }, 'record');
	const lines = record.G.log_lines;
	equal([lines.basis, lines.value.length], ['log', 3], JSON.stringify(lines));
	match(lines.value.join('\n'), /^vLLM server version 0\.29\.0, serving model reprise-sim\nnon-default args: \{.*\}\nModel loading took 0\.01 GiB$/, 'lines that show it');
	match(daemon.cli('provenance', 'show', first.configuration).stdout, /^C\.kernels +log +its log +\{"attention":\["FLASH_ATTN"\]\}$/m, 'as text');
	await daemon.kill();
	await daemon.start();
	const second = await ready();
	equal([second.configuration, second.instance], [first.configuration, { ...second.instance, id: first.instance.id, basis: 'launched' }], 'adopted, it is the same');
	const changes = [], watcher = watch(join(daemon.folder, 'data/spool/runtimes'), (kind, name) => changes.push(`${kind} ${name}`));
	equal(daemon.cli('runtime', 'reload', 'r').code, 0, 'reload');
	await until('another process', async () => { const { instance } = await ready(); return instance.id !== first.instance.id; }, 30_000);
	await until('its note is there', async () => changes.filter(change => change === 'rename r.json').length >= 3); // the old one goes, then without kernels, then with them
	equal(changes.filter(change => change === 'change r.json'), [], 'a note is never half written: a daemon killed then would leave a process that nobody knows');
	watcher.close();
	equal(daemon.cli('runtime', 'stop', 'r').code, 0, 'stop');
	await until('it is stopped', async () => (await daemon.get('/v1/runtimes/r')).launch.state === 'stopped', 30_000);
	await daemon.stop();
});

await test('what vLLM was launched with is in its record, field by field; an answer says which launch it is of, and one of another is none', async () => {
	const port = await freePort(), folder = mkdtempSync('/tmp/reprise-launch-'), script = join(folder, 'vllm'), how = join(folder, 'how');
	// Tells what --fingerprint-value says, as long as `how` is not there.
	writeFileSync(script, `#!/bin/sh\nvalue="$4"; [ -e ${how} ] && value=somebody-else\nprintf '{"options":{"fingerprintMode":"custom","fingerprintValue":"%s"}}' "$value" > ${folder}/script.json\n` +
		`exec ${programs.sim} --kind vllm --port ${port} --script ${folder}/script.json\n`, { mode: 0o755 });
	const argv = [script, '--fingerprint-mode', 'custom', '--fingerprint-value', 'reprise:{launch}', '--no-enable-prefix-caching', '--kv-cache-dtype=fp8', '--generation-config', 'vllm', '--moe-backend', 'marlin'];
	const daemon = new Daemon('launch-mark', { runtimes: { r: { kind: 'vllm', url: `http://127.0.0.1:${port}`, model: 'reprise-sim', retry: { attempts: 1 }, launch: { argv, inherit: ['PATH'] } } } });
	await daemon.start();
	const ready = () => until('it is ready', async () => { const found = await daemon.get('/v1/runtimes/r'); return found.launch.state === 'ready' && found; }, 30_000);
	await ready();
	const ask = async id => { await daemon.post('/v1/runs', { id, definition: extractionOf('r'), input: { document: 'Acme was founded in 1901.' } }, 201); const run = await daemon.ended(id); return { run, section: (run.output.facts?.sections ?? run.output.sections)[0] }; };
	equal((await ask('first')).section.outcome, 'facts', 'of this launch');
	const { configuration } = await ready(), { record } = await daemon.get(`/v1/provenance/${configuration}`), mark = record.E.system_fingerprint.value;
	match(mark, /^reprise:[0-9a-f]{32}$/, 'what it says');
	equal([record.C.argv.value[4], record.C.fingerprint.value], [mark, { mode: 'custom', value: mark }], 'what it was told');
	equal([record.C.cache_flags.launched ?? record.C.cache_flags.value, record.C.sampling_defaults.value, record.C.backends], [{ cache_dtype: 'fp8', enable_prefix_caching: false }, { generation_config: 'vllm' },
		{ basis: 'launched', source: 'launch.argv, launch.env', value: { moe: 'marlin' } }], JSON.stringify(record.C));
	writeFileSync(how, '');
	equal(daemon.cli('runtime', 'reload', 'r', '--yes', '--wait').code, 0, 'reload');
	const { section } = await ask('second');
	equal([section.outcome, section.facts], ['runtime-error', 0], 'of another');
	const failed = (await daemon.events('second')).find(entry => entry.kind === 'attempt.failed');
	match(JSON.parse(daemon.content(failed.data.record)).detail, /^it is another launch that answered: it was started with the fingerprint reprise:[0-9a-f]{32}, the answer has somebody-else$/, 'detail');
	await daemon.stop();
	rmSync(folder, { recursive: true });
});

await test('kernels are known however many lines a start writes behind them, and adopted however many texts they are', async () => {
	const port = await freePort(), folder = mkdtempSync('/tmp/reprise-kernels-'), script = join(folder, 'runtime');
	const texts = [0, 1, 2, 3].map(i => `${i}${'"'.repeat(199)}`); // as many and as long as are kept, and each byte but one escaped where they are noted
	writeFileSync(join(folder, 'log'), texts.map(text => `system_info: ${text}\nINFO Using ${text} attention backend out of\nINFO Using '${text.slice(0, 100)}' ${text.slice(101)} MoE backend out of\n`).join(''));
	writeFileSync(script, `#!/bin/sh\ncat ${folder}/log\nsleep 0.4\nseq 600\nexec ${programs.sim} --port ${port}\n`, { mode: 0o755 });
	const daemon = new Daemon('kernels-many', { runtimes: { r: { kind: 'simulator', url: `http://127.0.0.1:${port}`, launch: { argv: [script], onDaemonExit: 'keep' } } } });
	await daemon.start();
	const ready = () => until('it is ready', async () => { const found = await daemon.get('/v1/runtimes/r'); return found.launch.state === 'ready' && found; }, 30_000);
	const first = await ready(), { record } = await daemon.get(`/v1/provenance/${first.configuration}`);
	equal(record.C.kernels.value, { attention: texts, moe: texts.map(text => `${text.slice(0, 100)} ${text.slice(101)}`), systemInfo: texts }, 'record');
	await daemon.kill();
	await daemon.start();
	const second = await ready();
	equal([second.configuration, second.instance.id], [first.configuration, first.instance.id], 'adopted, it is the same');
	equal(daemon.cli('runtime', 'stop', 'r').code, 0, 'stop');
	await until('it is stopped', async () => (await daemon.get('/v1/runtimes/r')).launch.state === 'stopped', 30_000);
	await daemon.stop();
	rmSync(folder, { recursive: true });
});

await test('LM Studio names what it has loaded; of a runtime on another machine nothing is said, and that', async () => {
	const sim = await startSimulator('--kind', 'lmstudio');
	const daemon = new Daemon('instance-named', { runtimes: {
		named: { kind: 'lmstudio', url: sim.url, sampling: { maxTokens: 500 } },
		far: { kind: 'lmstudio', url: `http://reprise-elsewhere.invalid:${sim.port}`, sampling: { maxTokens: 500 }, retry: { attempts: 1 } },
	} });
	await daemon.start();
	const { instance } = await until('it is known', async () => { const found = await daemon.get('/v1/runtimes/named'); return found.instance && found; });
	equal(instance.basis, 'reported', 'basis');
	check(instance.id.startsWith(`${instanceOf(sim.child.pid)}/`), () => `the process and the name: ${JSON.stringify(instance)}`);
	equal((await daemon.get('/v1/runtimes/far')).instance, undefined, 'nobody was asked yet');
	await daemon.stop();
	await sim.stop();
});

await finish();
