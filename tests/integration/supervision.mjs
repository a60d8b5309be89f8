// Runtimes that the daemon launches: started, known to be ready, refused with the cause, started anew, stopped whatever they do, watched.
import { spawnSync } from 'node:child_process';
import { chmodSync, copyFileSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { dirname, isAbsolute, join, relative } from 'node:path';
import { check, Daemon, definition, equal, extractionOf, finish, folder, launch, match, pause, problem, programs, root, sha256, test, until } from '../support/harness.mjs';
import { control } from '../support/sim.mjs';

process.env.PATH = `${dirname(process.execPath)}:${process.env.PATH}`; // the scripts' interpreter is the one that runs the tests
const script = join(root, 'tests/support/runtime.mjs');
const freePort = () => new Promise(done => { const server = net.createServer().listen(0, '127.0.0.1', () => { const { port } = server.address(); server.close(() => done(port)); }); });
const alive = pid => { try { return !/^State:\s+[ZX]/m.test(readFileSync(`/proc/${pid}/status`, 'utf8')); } catch { return false; } };
const lines = path => existsSync(path) ? readFileSync(path, 'utf8').trim().split('\n') : [];

// A runtime of its own in a folder of its own.
class Launched {
	static async make(how = {}, launch = {}, more = {}) {
		const own = new Launched();
		own.folder = folder('runtime');
		own.port = await freePort();
		own.program = join(own.folder, 'runtime.mjs');
		copyFileSync(script, own.program);
		chmodSync(own.program, 0o755);
		own.how(how);
		own.configuration = { kind: 'openai', url: `http://127.0.0.1:${own.port}`, model: 'm', retry: { attempts: 3, floor: '20ms', cap: '50ms' }, ...more,
			launch: { argv: [own.program, String(own.port), own.folder], inherit: ['PATH'], ready: { path: '/health', within: '20s' }, stop: { grace: '1s' },
				restart: { attempts: 2, floor: '100ms', cap: '400ms' }, ...launch } };
		return own;
	}
	how(how) { writeFileSync(join(this.folder, 'how.json'), JSON.stringify(how)); }
	get starts() { return lines(join(this.folder, 'starts')).map(line => line.split(' ').map(Number)); }
	get child() { return Number(readFileSync(join(this.folder, 'child'), 'utf8')); }
}
const state = async (daemon, name = 'r') => (await daemon.get(`/v1/runtimes/${name}`)).launch;
const becomes = (daemon, wanted, name = 'r') => until(`${name} is ${wanted}`, async () => { const now = await state(daemon, name); return now.state === wanted && now; }, 30_000);
async function daemonOf(name, runtimes, options) {
	const daemon = new Daemon(name, { runtimes: Object.fromEntries(Object.entries(runtimes).map(([key, value]) => [key, value.configuration ?? value])) }, options);
	await daemon.start();
	return daemon;
}
const asking = (runtime = 'r') => definition('ask', [{ ask: { call: 'inference', with: { runtime, prompt: 'hello' } } }]);
const submit = (daemon, id, runtime) => daemon.post('/v1/runs', { id, definition: asking(runtime) }, 201);
// Entries about runtimes; with a kind as soon as the last one is of it: a state is seen before its entry is in the journal.
const notedNow = async daemon => (await daemon.journal()).map(text => JSON.parse(text)).filter(entry => entry.kind.startsWith('runtime.'));
const noted = (daemon, last) => last ? until(`an entry ${last}`, async () => { const list = await notedNow(daemon); return list.at(-1)?.kind === last && list; }) : notedNow(daemon);

await test('a runtime is started, known to be ready, asked, and stopped with the daemon; each is an entry', async () => {
	const r = await Launched.make({ readyAfterMs: 600 }, { env: { COLOUR: 'blue', MY_TOKEN: 'x' }, workingFolder: '/tmp' });
	r.configuration.launch.argv.push('-eHF_TOKEN=abcdef');
	const daemon = await daemonOf('launched', { r }, { env: { DAEMON_ONLY: 'secret' }, data: relative(process.cwd(), join(r.folder, 'data')) });
	await submit(daemon, 'early'); // waits in the queue: nothing is tried before it is ready
	check(['starting', 'ready'].includes((await state(daemon)).state), 'it starts with the daemon');
	const run = await daemon.ended('early');
	equal(run.status, 'completed', `run (${JSON.stringify(run.error)})`);
	equal(run.tasks[0].attempts, 1, 'attempts');
	check(run.overhead.queuedMs > 200, `waiting for the start is queued time: ${run.overhead.queuedMs}`);
	const ready = await becomes(daemon, 'ready');
	equal(r.starts.map(start => start[0]), [ready.pid], 'the process');
	const log = /^logFile +(.*)$/m.exec(daemon.cli('runtime', 'show', 'r').stdout)[1];
	check(isAbsolute(log) && readFileSync(log, 'utf8').length > 0, `whoever stands elsewhere can open the log: ${log}`);
	const { env, cwd } = JSON.parse(readFileSync(join(r.folder, 'env'), 'utf8'));
	equal(Object.keys(env).sort(), ['COLOUR', 'MY_TOKEN', 'PATH'], 'variables');
	equal(cwd, '/tmp', 'working folder');
	const found = (await daemon.get('/v1/runtimes')).runtimes[0], record = (await daemon.get(`/v1/provenance/${found.configuration}`)).record;
	const shown = [...r.configuration.launch.argv.slice(0, -1), '-eHF_TOKEN=(set)'];
	equal(record.C.argv, { basis: 'launched', source: 'launch.argv', value: shown }, 'argv of the record');
	equal((await daemon.get('/v1/config')).runtimes.r.launch.argv, shown, 'argv of the configuration');
	equal(record.C.env.value, { COLOUR: 'blue', MY_TOKEN: '(set)', PATH: '(inherited)' }, 'variables of the record');
	equal([record.A.binary_sha256.value, record.A.binary_sha256.basis], [sha256(readFileSync(r.program)), 'measured'], 'the script that was started');
	equal(record.A.interpreter_sha256.value, sha256(readFileSync(process.execPath)), 'its interpreter');
	await daemon.stop();
	check(!alive(ready.pid), 'the runtime ends with the daemon');
	await daemon.start();
	const kinds = (await noted(daemon)).map(entry => entry.kind);
	equal(kinds.slice(0, 3), ['runtime.started', 'runtime.ready', 'runtime.stopped'], 'entries');
	equal((await noted(daemon))[2].data.why, 'daemon-stopping', 'why it was stopped');
	await becomes(daemon, 'ready');
	daemon.verifyJournal();
	await daemon.stop();
});

const WRAPPER = '(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}';
for (const [refusal, line, failure] of [
	['batch-invariance-attention', "ValueError: Selected backend AttentionBackendEnum.FLASHINFER is not valid for this configuration. Reason: ['batch invariance not supported']", 'refused'],
	['batch-invariance-moe', "ValueError: NvFp4 MoE backend 'MARLIN' does not support the deployment configuration since kernel does not support batch invariance.", 'refused'],
	['batch-invariance-recurrent', 'RuntimeError: VLLM batch_invariant mode is not supported for MAMBA2_ATTN.', 'refused'],
	['too-little-kv-memory', 'ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.', 'refused'],
	['bad-arguments', 'vllm: error: unrecognized arguments: --no-such', 'configuration'],
])
	await test(`a refused start (${refusal}) ends what waits for it, with the cause from above the wrapper`, async () => {
		const r = await Launched.make({ readyAfterMs: 300, refuse: [`(EngineCore pid=77) ${line}`, ...Array(250).fill('(APIServer pid=1)   File "x.py"'), WRAPPER] });
		const daemon = await daemonOf('refused', { r });
		await submit(daemon, 'waits');
		const run = await daemon.ended('waits'), refused = await becomes(daemon, 'refused');
		equal([run.status, run.error.class ?? run.tasks[0].error?.class], ['faulted', failure], `run (${JSON.stringify(run.error)})`);
		check(run.error.detail.includes(line.slice(0, 100)), `the error tells the cause: ${run.error.detail}`);
		equal([refused.refusal.class, refused.refusal.line, refused.restarts], [refusal, line, 0], 'refusal');
		equal(r.starts.length, 1, 'what cannot pass is not tried again');
		await submit(daemon, 'later');
		equal((await daemon.ended('later')).status, 'faulted', 'a later run');
		const entry = (await noted(daemon, 'runtime.refused')).at(-1);
		equal([entry.kind, entry.data.class, entry.data.status], ['runtime.refused', refusal, 1], 'entry');
		match(daemon.cli('runtime', 'show', 'r').stdout, new RegExp(`refused for\\s+${refusal}`), 'runtime show');
		equal(daemon.cli('runtime', 'start', 'r', '--wait').code, 1, 'a start that is refused');
		r.how({});
		equal(daemon.cli('runtime', 'start', 'r', '--wait', '--timeout', '20s').code, 0, 'a start when the cause is gone');
		await submit(daemon, 'again');
		equal((await daemon.ended('again')).status, 'completed', 'a run after that');
		await daemon.stop();
	});

await test('a refusal that may pass is tried again, with growing pauses, up to the limit; the run waits until then', async () => {
	const r = await Launched.make({ refuse: ['torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB'] });
	const daemon = await daemonOf('passing', { r });
	await submit(daemon, 'waits');
	const run = await daemon.ended('waits');
	equal([run.status, r.starts.length], ['faulted', 3], 'after two further starts');
	const [first, second, third] = r.starts.map(start => start[1]);
	check(second - first >= 100 && third - second >= 200, `pauses of ${second - first} and ${third - second} ms`);
	equal((await state(daemon)).refusal.class, 'out-of-memory', 'class');
	await daemon.stop();
});

await test('what cannot be started at all is refused as a mistake of the configuration', async () => {
	const gone = await Launched.make({}, { argv: ['/no/such/program'] }), nowhere = await Launched.make({}, { workingFolder: '/no/such/folder' });
	const plain = await Launched.make({});
	const text = join(plain.folder, 'text');
	writeFileSync(text, 'no program\n', { mode: 0o755 });
	plain.configuration.launch.argv = [text];
	const daemon = await daemonOf('not-started', { gone, nowhere, plain });
	match((await becomes(daemon, 'refused', 'gone')).detail, /not-started: program \/no\/such\/program: No such file/, 'no program');
	match((await becomes(daemon, 'refused', 'nowhere')).detail, /launch.workingFolder: No such file/, 'no folder');
	match((await becomes(daemon, 'refused', 'plain')).detail, /Exec format error/, 'no program inside');
	const silent = script => ({ ...plain.configuration, launch: { ...plain.configuration.launch, argv: ['/bin/sh', '-c', script], restart: { attempts: 0 } } });
	const others = await daemonOf('silent', { background: silent('sleep 600 & exit 0'), status: silent('exit 3'), signal: silent('kill -KILL $$') });
	equal((await becomes(others, 'refused', 'background')).detail, 'unknown: it ended without a word, with status 0; it has to stay in the foreground: one that goes into the background is ended', 'one that forks');
	equal((await becomes(others, 'refused', 'status')).refusal, { class: 'unknown', line: 'it ended without a word, with status 3' }, 'an end without a word');
	equal((await becomes(others, 'refused', 'signal')).detail, 'unknown: it ended without a word, by signal 9', 'a signal');
	await others.stop();
	await submit(daemon, 'one', 'gone');
	const run = await daemon.ended('one');
	equal(run.status, 'faulted', 'run');
	match(JSON.stringify(await daemon.events('one')), /"class":"configuration"/, 'class');
	await daemon.stop();
});

await test('a runtime that crashes is started anew; the attempt in flight is tried again, and too many crashes in a row end that', async () => {
	const r = await Launched.make({ dies: true });
	const daemon = await daemonOf('crashes', { r });
	await becomes(daemon, 'ready');
	await submit(daemon, 'in-flight');
	const run = await daemon.ended('in-flight');
	equal([run.status, run.tasks[0].attempts], ['completed', 2], `run (${JSON.stringify(run.error)})`);
	const stopped = (await noted(daemon)).find(entry => entry.kind === 'runtime.stopped');
	equal([stopped.data.why, stopped.data.status], ['crashed', 7], 'entry');
	for (let i = 0; i < 2; i++) {
		const { pid } = await becomes(daemon, 'ready');
		process.kill(pid, 'SIGKILL');
		await until('it is noticed', async () => (await state(daemon)).pid !== pid);
	}
	match((await becomes(daemon, 'failed')).detail, /signal 9.*after 2 further starts, launch\.restart\.attempts/, 'detail');
	await submit(daemon, 'late');
	equal((await daemon.ended('late')).status, 'faulted', 'a run after that');
	await daemon.stop();
});

// A simulator of a kind, launched; its control port is known, so that its engine can die while its process lives.
async function launchedSim(kind, script = {}) {
	const port = await freePort(), sim = { control: await freePort() }, file = join(folder('launched-sim'), 'script.json');
	writeFileSync(file, JSON.stringify(script));
	return { sim, configuration: { kind, url: `http://127.0.0.1:${port}`, launch: { stop: { grace: '300ms' }, restart: { attempts: 3, floor: '50ms', cap: '50ms' },
		argv: [programs.sim, '--kind', kind, '--port', String(port), '--control-port', String(sim.control), '--script', file] } } };
}

for (const [kind, path] of [['vllm', '/health'], ['sglang', '/health_generate']])
	await test(`a ${kind} whose engine is dead, while its process lives and answers, is ended with its group and started anew; the run goes on`, async () => {
		const r = await launchedSim(kind, { process: { ignoreTermMs: 60_000, childMs: 600_000 } }), dies = async () => equal((await control(r.sim, 'POST', '/__sim/script', { options: { engineDead: true } })).status, 200, 'script');
		const daemon = await daemonOf(`dead-${kind}`, { r });
		const { pid } = await becomes(daemon, 'ready'), group = spawnSync('pgrep', ['-g', String(pid)], { encoding: 'utf8' }).stdout.trim().split('\n').map(Number);
		check(group.length >= 2, `it and its child: ${group}`);
		await dies();
		await submit(daemon, 'dead');
		const run = await daemon.ended('dead');
		equal([run.status, run.tasks[0].attempts], ['completed', 2], `run (${JSON.stringify(run.error)})`);
		const second = await becomes(daemon, 'ready');
		check(second.pid !== pid && group.every(one => !alive(one)), 'another process, and nothing left of the one before');
		const [first, ready, stopped, again] = await noted(daemon, 'runtime.ready');
		equal([first.kind, ready.kind, stopped.kind, again.kind], ['runtime.started', 'runtime.ready', 'runtime.stopped', 'runtime.started'], 'entries');
		equal([stopped.data.why, stopped.data.signal, stopped.data.left], ['engine-dead', 9, 0], 'entry: it ignored SIGTERM for longer than its grace');
		equal(again.data.tries, 1, 'it counts as a start anew');
		match(JSON.parse(daemon.content(stopped.data.detail)).detail, new RegExp(`^its engine is dead, though its process lives: GET ${path} said 503, .* 3 times in a row`), 'what is kept of it');
		match(daemon.child.errors, /runtime=r is ended: its engine is dead/, 'log');
		if (kind === 'vllm') { // nobody asks it anything: it is looked at all the same
			await dies();
			await until('it is noticed', async () => (await state(daemon)).pid !== second.pid, 60_000);
			await becomes(daemon, 'ready');
		}
		await daemon.stop();
	});

await test('a vLLM that says 503 fewer times than that goes on; meanwhile nobody loses an attempt to it', async () => {
	const r = await Launched.make({ sick: 2 }, {}, { kind: 'vllm' });
	const daemon = await daemonOf('sick', { r });
	const { pid } = await becomes(daemon, 'ready');
	await submit(daemon, 'sick');
	const run = await daemon.ended('sick');
	equal([run.status, run.tasks[0].attempts], ['completed', 2], `run (${JSON.stringify(run.error)})`);
	equal([(await state(daemon)).pid, r.starts.length], [pid, 1], 'the same process');
	await daemon.stop();
});

await test('stop is graceful first, and final whatever the runtime does: SIGTERM ignored, a child that outlives it in a session of its own', async () => {
	const r = await Launched.make({ ignoreTerm: true, child: true, answerMs: 10_000 });
	const daemon = await daemonOf('stubborn', { r });
	const { pid } = await becomes(daemon, 'ready'), child = r.child;
	await submit(daemon, 'in-flight');
	await until('it is in flight', async () => (await daemon.get('/v1/runtimes')).runtimes[0].inFlight === 1);
	const began = performance.now(), answer = daemon.cli('runtime', 'stop', 'r', '--yes', '--wait', '--reason', 'a new driver');
	equal([answer.code, answer.stdout.trim()], [0, 'stopped'], `stop (${answer.stderr})`);
	check(performance.now() - began >= 900, 'it had its grace');
	check(!alive(pid) && !alive(child), 'neither it nor its child is there');
	const stopped = (await noted(daemon, 'runtime.stopped')).at(-1);
	equal([stopped.kind, stopped.data.why, stopped.data.signal, stopped.data.left], ['runtime.stopped', 'asked', 9, 0], 'entry');
	await until('the attempt waits', async () => (await daemon.get('/v1/runtimes')).runtimes[0].waiting === 1);
	await pause(300);
	equal((await daemon.run('in-flight')).status, 'running', 'it waits for the operator');
	r.how({});
	equal(daemon.cli('runtime', 'start', 'r', '--wait').code, 0, 'start');
	const run = await daemon.ended('in-flight');
	equal([run.status, run.tasks[0].attempts], ['completed', 2], `run (${JSON.stringify(run.error)})`);
	await daemon.stop();
});

await test('of a container its engine is asked to stop it, beside the signal', async () => {
	const r = await Launched.make({});
	const engine = join(r.folder, 'engine');
	// As podman: `run` stays in front and hands no signal on; `stop` ends what runs inside.
	writeFileSync(engine, `#!/bin/sh
if [ "$1" = stop ]; then echo "$@" >'${r.folder}/asked'; kill -TERM "$(cat '${r.folder}/inside')"; exit; fi
trap '' TERM
(trap - TERM; exec '${r.program}' ${r.port} '${r.folder}') &
echo $! >'${r.folder}/inside'
while kill -0 $! 2>/dev/null; do sleep 0.05; done
exit 3
`, { mode: 0o755 });
	Object.assign(r.configuration.launch, { argv: [engine, 'run', '--name', 'box'], container: 'box', stop: { grace: '20s' } });
	const daemon = await daemonOf('container', { r });
	const { pid } = await becomes(daemon, 'ready'), inside = Number(readFileSync(join(r.folder, 'inside'), 'utf8'));
	const began = performance.now();
	equal(daemon.cli('runtime', 'stop', 'r', '--yes', '--wait').code, 0, 'stop');
	check(performance.now() - began < 15_000, 'the engine ended it before the grace was over');
	equal(readFileSync(join(r.folder, 'asked'), 'utf8'), 'stop -t 20 box\n', 'what the engine was asked');
	check(!alive(pid) && !alive(inside), 'nothing is left');
	equal((await noted(daemon, 'runtime.stopped')).at(-1).data.status, 3, 'status of the engine');
	await daemon.stop();
});

await test('an engine whose stop hangs gets its grace and ten seconds more (LAUNCHER_CONTAINER_MS); then all of it is killed', async () => {
	const r = await Launched.make({}), engine = join(r.folder, 'engine');
	writeFileSync(engine, `#!/bin/sh
if [ "$1" = stop ]; then echo $$ >'${r.folder}/stops'; exec sleep 1000; fi
trap '' TERM
'${r.program}' ${r.port} '${r.folder}'
`, { mode: 0o755 });
	r.how({ ignoreTerm: true });
	Object.assign(r.configuration.launch, { argv: [engine, 'run', '--name', 'box'], container: 'box', stop: { grace: '200ms' } });
	const daemon = await daemonOf('hanging-engine', { r });
	const { pid } = await becomes(daemon, 'ready'), began = performance.now();
	equal(daemon.cli('runtime', 'stop', 'r', '--yes', '--wait').code, 0, 'stop');
	check(performance.now() - began >= 10_200, `after ${performance.now() - began} ms`);
	check([pid, r.starts[0][0], Number(readFileSync(join(r.folder, 'stops'), 'utf8'))].every(one => !alive(one)), 'nothing is left, of its engine either');
	equal((await noted(daemon, 'runtime.stopped')).at(-1).data.signal, 9, 'killed');
	await daemon.stop();
});

await test('the note about a container names it and its engine up to 255 bytes each (SUPERVISOR_ENGINE_LEN_MAX), else neither', async () => {
	const runtimes = {};
	for (const [name, len] of [['fits', 255], ['long', 256]]) {
		const r = runtimes[name] = await Launched.make({}), engine = join(r.folder, 'engine');
		writeFileSync(engine, `#!/bin/sh\n[ "$1" = stop ] && exit\nexec '${r.program}' ${r.port} '${r.folder}'\n`, { mode: 0o755 });
		Object.assign(r.configuration.launch, { argv: [engine, 'run'], container: 'x'.repeat(len) });
	}
	const daemon = await daemonOf('long-names', runtimes);
	for (const [name, r] of Object.entries(runtimes)) {
		await becomes(daemon, 'ready', name);
		const { container, engine } = JSON.parse(readFileSync(join(daemon.data, 'spool', 'runtimes', `${name}.json`), 'utf8'));
		equal([container, engine], name === 'fits' ? [r.configuration.launch.container, r.configuration.launch.argv[0]] : [undefined, undefined], name);
	}
	await daemon.stop();
});

await test('reload is a new process of the same configuration; a replaced executable gives another one', async () => {
	const r = await Launched.make({});
	const daemon = await daemonOf('reload', { r });
	const first = await becomes(daemon, 'ready'), configuration = async () => (await daemon.get('/v1/runtimes')).runtimes[0].configuration, before = await configuration();
	equal(daemon.cli('runtime', 'reload', 'r', '--yes', '--wait').code, 0, 'reload');
	const second = await state(daemon);
	check(second.instance !== first.instance && !alive(first.pid), 'another process');
	equal(await configuration(), before, 'the same configuration');
	writeFileSync(r.program, `${readFileSync(r.program, 'utf8')}// another one\n`);
	equal(daemon.cli('runtime', 'reload', 'r', '--yes', '--wait').code, 0, 'reload');
	check(await configuration() !== before, 'another executable, another configuration');
	const diff = (await daemon.get(`/v1/provenance/${await configuration()}`)).record;
	equal(diff.A.binary_sha256.value, sha256(readFileSync(r.program)), 'digest');
	await daemon.stop();
});

await test('a daemon that is killed leaves nothing behind, and the next one starts the runtime anew', async () => {
	const r = await Launched.make({ ignoreTerm: true, child: true });
	const daemon = await daemonOf('killed', { r });
	const { pid } = await becomes(daemon, 'ready'), child = r.child;
	await daemon.kill();
	await daemon.start(); // at once: the launcher of the first one is still at it
	const again = await becomes(daemon, 'ready');
	check(again.pid !== pid && !alive(pid) && !alive(child), 'another process, and nothing of the first one');
	await daemon.kill();
	await until('nothing is left', () => !alive(again.pid) && !alive(r.child), 10_000);
	await daemon.start();
	await becomes(daemon, 'ready');
	daemon.verifyJournal();
	await daemon.stop();
});

await test('onDaemonExit: keep: it goes on, is adopted by the next daemon, and stopped by it; of another configuration it is ended first', async () => {
	const r = await Launched.make({ child: 'group' }, { onDaemonExit: 'keep' });
	const daemon = await daemonOf('kept', { r });
	const { pid } = await becomes(daemon, 'ready');
	await daemon.kill();
	await daemon.start();
	const adopted = await becomes(daemon, 'ready');
	equal([adopted.pid, adopted.adopted], [pid, true], 'adopted after a kill');
	await daemon.stop();
	const child = r.child;
	check(alive(pid) && alive(child), 'it goes on');
	await daemon.start();
	equal((await becomes(daemon, 'ready')).pid, pid, 'adopted after a stop');
	await submit(daemon, 'one');
	equal((await daemon.ended('one')).output.text, `answer of ${pid}`, 'it answers');
	await daemon.stop();
	r.configuration.launch.env = { COLOUR: 'red' };
	daemon.configure({ runtimes: { r: r.configuration } });
	await daemon.start();
	const other = await becomes(daemon, 'ready');
	check(other.pid !== pid && !other.adopted && !alive(pid), 'another configuration: another process');
	await until('what came of the first one is gone too', () => !alive(child));
	await daemon.stop();
	await daemon.start();
	equal((await becomes(daemon, 'ready')).adopted, true, 'adopted');
	equal(daemon.cli('runtime', 'stop', 'r', '--yes', '--wait').code, 0, 'stop');
	check(!alive(other.pid), 'stopped');
	await until('what came of it is gone too', () => !alive(r.child));
	await daemon.stop();
});

await test('a container that goes on from an earlier daemon is stopped by its engine: adopted, of another configuration, and when its client is gone', async () => {
	const r = await Launched.make({}), engine = join(r.folder, 'engine'), inside = () => Number(readFileSync(join(r.folder, 'inside'), 'utf8'));
	const asked = () => lines(join(r.folder, 'asked'));
	// The client hands no signal on, and what runs inside is not its child: only the engine can end it.
	writeFileSync(engine, `#!/bin/sh
if [ "$1" = stop ]; then echo "$@" >>'${r.folder}/asked'; kill -TERM "$(cat '${r.folder}/inside')"; exit; fi
trap '' TERM
(trap - TERM; exec setsid '${r.program}' ${r.port} '${r.folder}') &
echo $! >'${r.folder}/inside'
while kill -0 $! 2>/dev/null; do sleep 0.05; done
exit 3
`, { mode: 0o755 });
	Object.assign(r.configuration.launch, { argv: [engine, 'run', '--name', 'box'], container: 'box', stop: { grace: '20s' }, onDaemonExit: 'keep' });
	const daemon = await daemonOf('kept-container', { r });
	const first = await becomes(daemon, 'ready'), box = inside();
	await daemon.kill();
	await daemon.start();
	equal([(await becomes(daemon, 'ready')).pid, (await state(daemon)).adopted], [first.pid, true], 'adopted');
	equal(daemon.cli('runtime', 'stop', 'r', '--yes', '--wait').code, 0, 'stop');
	equal(asked(), ['stop -t 20 box'], 'what the engine was asked');
	check(!alive(first.pid) && !alive(box), 'nothing is left of it');
	// Adopted, and then the client alone is killed: what runs inside is ended before another one is started.
	equal(daemon.cli('runtime', 'start', 'r', '--wait').code, 0, 'start');
	await daemon.kill();
	await daemon.start();
	const adopted = await becomes(daemon, 'ready'), orphan = inside();
	process.kill(adopted.pid, 'SIGKILL');
	const next = await until('another one is ready', async () => { const now = await state(daemon); return now.state === 'ready' && now.pid !== adopted.pid && now; }, 30_000);
	check(!alive(orphan) && alive(inside()), 'the container of before is gone');
	equal(asked().length, 2, 'the engine was asked once more');
	// The same while no daemon is there; and one of another configuration, which has to end first.
	const third = inside();
	await daemon.stop();
	process.kill(next.pid, 'SIGKILL');
	await daemon.start();
	const fourth = await becomes(daemon, 'ready'), kept = inside();
	check(!alive(third) && asked().length === 3, 'its note names it');
	await daemon.stop();
	r.configuration.launch.env = { COLOUR: 'red' };
	daemon.configure({ runtimes: { r: r.configuration } });
	await daemon.start();
	check((await becomes(daemon, 'ready')).pid !== fourth.pid && !alive(fourth.pid) && !alive(kept), 'another configuration: another container');
	equal(asked().length, 4, 'by its engine');
	equal(daemon.cli('runtime', 'stop', 'r', '--yes', '--wait').code, 0, 'stop');
	check(!alive(inside()), 'nothing is left');
	await daemon.stop();
});

await test('a start that is refused forgets no runtime that goes on from an earlier daemon', async () => {
	const r = await Launched.make({}, { onDaemonExit: 'keep' });
	const daemon = await daemonOf('kept-refused', { r });
	const { pid } = await becomes(daemon, 'ready');
	await daemon.stop();
	renameSync(r.program, `${r.program}.away`);
	await daemon.start();
	match((await becomes(daemon, 'refused')).detail, /not-started: program .*No such file/, 'detail');
	check(alive(pid), 'it goes on');
	renameSync(`${r.program}.away`, r.program);
	equal(daemon.cli('runtime', 'start', 'r', '--wait').code, 0, 'a start when the program is back');
	const adopted = await becomes(daemon, 'ready');
	equal([adopted.pid, adopted.adopted], [pid, true], 'it is known');
	equal(daemon.cli('runtime', 'stop', 'r', '--yes', '--wait').code, 0, 'stop');
	check(!alive(pid), 'stopped');
	await daemon.stop();
});

await test('what an earlier daemon left and nothing ends is waited for so long, and then the start is refused with its number', async () => {
	const r = await Launched.make({}, { stop: { grace: '100ms' } });
	// One of our own process group: no signal to a group of its own reaches it, as none would reach one that hangs in the kernel.
	const left = launch('sleep', ['600']), start = readFileSync(`/proc/${left.pid}/stat`, 'utf8').replace(/^.*\) /s, '').split(' ')[19];
	const daemon = new Daemon('left', { runtimes: { r: r.configuration } }), notes = join(daemon.data, 'spool/runtimes');
	mkdirSync(notes, { recursive: true, mode: 0o700 });
	writeFileSync(join(notes, 'r.json'), JSON.stringify({ pid: left.pid, start, boot: readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim(), identity: '' }));
	await daemon.start();
	match((await becomes(daemon, 'refused')).detail, new RegExp(`process ${left.pid}, which an earlier daemon left, is still there 10 s after SIGKILL`), 'detail');
	check(alive(left.pid) && r.starts.length === 0, 'nothing was started beside it');
	left.kill('SIGKILL');
	await left.gone;
	equal(daemon.cli('runtime', 'start', 'r', '--wait').code, 0, 'a start when it is gone');
	await daemon.stop();
});

await test('a kept runtime that ends by itself while the daemon, which ends too, waits for a probe, is noted as such', async () => {
	const r = await Launched.make({}, { onDaemonExit: 'keep' }), pipe = join(r.folder, 'mem_info_gtt_used');
	r.configuration.launch.watchdog = [{ name: 'hangs', probe: { amd: { memory: 'gtt', card: r.folder } }, limit: 1000, every: '100ms', within: '100ms' }];
	equal(spawnSync('mkfifo', [pipe]).status, 0, 'a file that nobody comes back from');
	const daemon = await daemonOf('kept-crash', { r });
	const { pid } = await becomes(daemon, 'ready');
	await until('the probe hangs', async () => /no answer within/.test((await state(daemon)).watchdog[0].alarm));
	const { child } = daemon;
	child.kill('SIGTERM');
	await until('the daemon ends', () => /stopping: /.test(child.errors));
	await pause(300);
	process.kill(pid, 'SIGKILL');
	await pause(300);
	check(alive(child.pid), () => `the daemon waits (${child.errors.slice(-600)})`);
	writeFileSync(pipe, '1\n');
	equal(await child.gone, { code: 0, signal: null }, `end of reprised (${child.errors.slice(-600)})`);
	rmSync(pipe);
	await daemon.start();
	const stopped = (await noted(daemon)).filter(entry => entry.kind === 'runtime.stopped');
	equal(stopped.map(entry => [entry.data.why, entry.data.signal]), [['crashed', 9]], 'entry');
	equal((await becomes(daemon, 'ready')).adopted, false, 'another process');
	equal(daemon.cli('runtime', 'stop', 'r', '--yes', '--wait').code, 0, 'stop');
	await daemon.stop();
});

await test('a start that is asked for while one that was never ready is being ended, follows', async () => {
	const r = await Launched.make({ readyAfterMs: 600_000, ignoreTerm: true }, { ready: { path: '/health', within: '4s' }, restart: { attempts: 0 } });
	const daemon = await daemonOf('start-again', { r });
	await becomes(daemon, 'stopping');
	r.how({});
	await daemon.post('/v1/runtimes/r/start', {}, 200);
	await becomes(daemon, 'ready');
	equal(r.starts.length, 2, 'starts');
	equal((await noted(daemon, 'runtime.ready')).map(entry => entry.kind), ['runtime.started', 'runtime.refused', 'runtime.started', 'runtime.ready'], 'entries');
	await daemon.stop();
});

await test('a launcher that is killed takes the runtime with it; the daemon says what to do', async () => {
	const r = await Launched.make({});
	const daemon = await daemonOf('no-launcher', { r });
	const { pid } = await becomes(daemon, 'ready'), launcher = Number(readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ')[1]);
	process.kill(launcher, 'SIGKILL');
	await until('it is gone', () => !alive(pid));
	match((await becomes(daemon, 'refused')).detail, /reprise-launcher is gone; start the daemon anew/, 'detail');
	await daemon.stop();
});

await test('a launcher that is killed before it has answered leaves no start that goes on for ever', async () => {
	const r = await Launched.make({});
	const daemon = await daemonOf('silent-launcher', { r });
	const { pid } = await becomes(daemon, 'ready'), launcher = Number(readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ')[1]);
	equal(daemon.cli('runtime', 'stop', 'r', '--yes', '--wait').code, 0, 'stop');
	process.kill(launcher, 'SIGSTOP');
	await daemon.post('/v1/runtimes/r/start', {}, 200);
	await pause(500); // it has its order by then, most likely; if not, it ends the same way
	equal((await state(daemon)).state, 'starting', 'state');
	process.kill(launcher, 'SIGKILL');
	match((await becomes(daemon, 'refused')).detail, /reprise-launcher is gone; start the daemon anew/, 'detail');
	equal(r.starts.length, 1, 'starts');
	await daemon.stop();
});

await test('a server that the daemon has not started is not taken for the runtime, and is not told its key', async () => {
	const r = await Launched.make({}, { restart: { attempts: 100, floor: '1s', cap: '1s' } }, { apiKey: { secret: 'key' } });
	let heard = '';
	const foreign = net.createServer(socket => socket.on('data', data => { heard += data; }).on('error', () => {})
		.once('data', () => socket.end('HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n'))).listen(r.port, '127.0.0.1');
	const daemon = new Daemon('foreign', { secrets: { key: { env: 'KEY' } }, runtimes: { r: r.configuration } }, { env: { KEY: 'k3y-k3y' } });
	await daemon.start();
	match((await until('refused', async () => { const now = await state(daemon); return now.detail && now; })).detail, /address-in-use: a foreign server answers/, 'detail');
	equal(r.starts.length, 0, 'nothing was started');
	check(heard.includes('GET /health') && !/authorization|k3y-k3y/i.test(heard), heard);
	foreign.close();
	await becomes(daemon, 'ready'); // tried again, since it may pass
	await daemon.stop();
});

await test('a runtime that was stopped is not reachable any more, and who listens there meanwhile is not asked with its key', async () => {
	const r = await Launched.make({}, {}, { apiKey: { secret: 'key' }, probeEvery: '1s' });
	let heard = '';
	const daemon = new Daemon('stopped', { secrets: { key: { env: 'KEY' } }, runtimes: { r: r.configuration } }, { env: { KEY: 'k3y-k3y' } });
	await daemon.start();
	await becomes(daemon, 'ready');
	const before = await daemon.get('/v1/runtimes/r');
	equal([before.status, before.instance.basis], ['reachable', 'launched'], 'while it runs');
	equal(daemon.cli('runtime', 'stop', 'r', '--yes', '--wait').code, 0, 'stop');
	const foreign = net.createServer(socket => socket.on('data', data => { heard += data; }).on('error', () => {})
		.once('data', () => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}'))).listen(r.port, '127.0.0.1');
	const after = await daemon.get('/v1/runtimes/r');
	equal([after.status, after.instance, after.launch.state], ['unknown', undefined, 'stopped'], 'then');
	const probed = daemon.cli('runtime', 'probe', 'r');
	check(probed.code !== 0, 'a probe has nobody to ask');
	match(probed.stdout + probed.stderr, /runtime r is not running now, so it is not asked; see `reprise runtime show r`/, 'and says so');
	await submit(daemon, 'waits');
	await until('it waits', async () => (await daemon.get('/v1/runtimes/r')).waitsFor === 'runtime');
	equal(heard, '', 'nobody was asked');
	foreign.close();
	equal(daemon.cli('runtime', 'start', 'r', '--wait').code, 0, 'start');
	equal((await daemon.ended('waits')).status, 'completed', 'the run');
	equal((await daemon.get('/v1/runtimes/r')).status, 'reachable', 'again');
	await daemon.stop();
});

await test('a runtime that does not become ready in time is ended and refused', async () => {
	const r = await Launched.make({ readyAfterMs: 60_000 }, { ready: { path: '/health', within: '5s' }, restart: { attempts: 0 } });
	const daemon = await daemonOf('never-ready', { r });
	match((await becomes(daemon, 'refused')).detail, /not-ready: not ready within 5000 ms \(launch\.ready\.within\).*status 503/, 'detail');
	check(!alive(r.starts[0][0]), 'it is gone');
	await daemon.stop();
});

await test('orders in any moment of a start end in a state that is at rest, with one process or none', async () => {
	const r = await Launched.make({ readyAfterMs: 150 });
	const daemon = await daemonOf('orders', { r });
	for (let i = 0; i < 24; i++) {
		await daemon.post(`/v1/runtimes/r/${['stop', 'start', 'reload', 'start', 'stop', 'reload'][i % 6]}`, {}, 200);
		await pause((i * 37) % 260);
	}
	await daemon.post('/v1/runtimes/r/start', {}, 200);
	const { pid } = await becomes(daemon, 'ready');
	equal(r.starts.map(start => start[0]).filter(alive), [pid], 'processes');
	await daemon.post('/v1/runtimes/r/stop', {}, 200);
	await becomes(daemon, 'stopped');
	equal(r.starts.map(start => start[0]).filter(alive), [], 'processes');
	problem(await daemon.ask('POST', '/v1/runtimes/none/start', {}), 404, /no runtime 'none'/);
	await daemon.stop();
});

const watched = (r, watchdog) => { r.configuration.launch.watchdog = watchdog; return r; };
const meter = r => ({ command: ['cat', join(r.folder, 'memory')] });
const show = (r, value) => writeFileSync(join(r.folder, 'memory'), `${value}\n`);

await test('the watchdog trips on an absolute value, after samples in a row, and not on a single one; attempts are out of memory', async () => {
	const r = await Launched.make({ answerMs: 60_000 });
	// By its own count, not by time: of three samples two are above, until there is a file `over`; then as many as it has lines.
	const command = join(r.folder, 'meter'), samples = () => Number(readFileSync(join(r.folder, 'count'), 'utf8'));
	writeFileSync(command, `#!/bin/sh
cd '${r.folder}' || exit 1
n=$(cat count)
echo $((n + 1)) >count.new
mv count.new count
if [ -e over ]; then # three samples above, then none any more: it trips once
	if [ -s over ]; then sed -i 1d over; echo 5000; else echo 100; fi
elif [ $((n % 3)) != 0 ]; then echo 5000; else echo 100; fi
`, { mode: 0o755 });
	writeFileSync(join(r.folder, 'count'), '0\n');
	const daemon = await daemonOf('absolute', { r: watched(r, [{ probe: { command: [command] }, limit: 1000, samples: 3, every: '60ms' }]) });
	const { pid } = await becomes(daemon, 'ready');
	await submit(daemon, 'in-flight');
	await until('it is in flight', async () => (await daemon.get('/v1/runtimes')).runtimes[0].inFlight === 1);
	const before = samples();
	await until('four times two samples above', () => samples() > before + 12);
	equal((await state(daemon)).pid, pid, 'two samples end nothing');
	r.how({});
	writeFileSync(join(r.folder, 'over.new'), '1\n2\n3\n');
	renameSync(join(r.folder, 'over.new'), join(r.folder, 'over'));
	await until('it has tripped', async () => (await daemon.metric('reprise_watchdog_trips_total')) === 1);
	const run = await daemon.ended('in-flight');
	equal([run.status, run.tasks[0].attempts], ['completed', 2], `run (${JSON.stringify(run.error)})`);
	match(JSON.stringify((await daemon.events('in-flight')).filter(entry => entry.kind === 'attempt.failed')), /"class":"out-of-memory"/, 'class');
	const stopped = (await noted(daemon)).find(entry => entry.kind === 'runtime.stopped');
	equal(stopped.data.why, 'watchdog', 'entry');
	check(!alive(pid), 'it is gone');
	await daemon.stop();
});

await test('the watchdog trips on growth over what was in use before the start, not on what was there already', async () => {
	const r = await Launched.make({});
	show(r, 10_000);
	const daemon = await daemonOf('growth', { r: watched(r, [{ name: 'spill', probe: meter(r), limit: 1000, grow: true, samples: 2, every: '60ms' }]) });
	const ready = await becomes(daemon, 'ready');
	show(r, 10_900);
	const watch = await until('samples of the new value', async () => { const [watch] = (await state(daemon)).watchdog; return watch.samples.filter(sample => sample.value === 900 || sample.value === 10_900).length > 4 && watch; });
	equal([(await state(daemon)).pid, watch.baseline], [ready.pid, 10_000], 'below the limit');
	check(watch.samples.length > 2, 'samples are kept');
	show(r, 11_100);
	await until('it has tripped', async () => (await state(daemon)).pid !== ready.pid);
	match(daemon.child.errors, /watchdog probe spill: 2 samples in a row above 1000; now 1100 on top of 10000/, 'log');
	show(r, 10_000);
	await daemon.stop();
});

await test('a probe that fails, hangs or talks nonsense is an alarm and ends nothing; memory of the process is seen', async () => {
	const r = await Launched.make({});
	const daemon = await daemonOf('alarms', { r: watched(r, [
		{ name: 'missing', probe: { command: ['no-such-program'] }, limit: 1, every: '50ms' }, { name: 'hangs', probe: { command: ['sleep', '1000'] }, limit: 1, every: '50ms', within: '100ms' },
		{ name: 'nonsense', probe: { command: ['echo', 'well'] }, limit: 1, every: '50ms' }, { name: 'not-there', probe: { nvidia: 0 }, limit: 1, every: '50ms' },
		{ name: 'seen', probe: { memory: 'process' }, limit: '100GiB', every: '50ms' } ]) });
	const { pid } = await becomes(daemon, 'ready');
	await until('samples, and the alarms of the others', async () => { const { watchdog } = await state(daemon); return watchdog[4].samples.length > 3 && watchdog.slice(0, 3).every(watch => watch.alarm); });
	const now = await state(daemon), by = Object.fromEntries(now.watchdog.map(watch => [watch.probe, watch]));
	equal(now.pid, pid, 'it goes on');
	await until('more samples than are kept', async () => (await state(daemon)).watchdog[4].samples[0].at > by.seen.samples.at(-1).at);
	equal((await state(daemon)).watchdog[4].samples.length, 20, 'the last 20 samples are kept (WATCHDOG_SAMPLES_KEPT)');
	match(by.missing.alarm, /no-such-program cannot be run/, 'missing');
	match(by.hangs.alarm, /no answer within 100 ms/, 'hangs');
	match(by.nonsense.alarm, /printed no number/, 'nonsense');
	check(by['not-there'].alarm || by['not-there'].samples.length > 0, 'a driver is there or not');
	check(by.seen.samples.at(-1).value > 10e6 && !by.seen.alarm && by.seen.baseline === 0, `process memory ${JSON.stringify(by.seen.samples.at(-1))}`);
	check(await daemon.metric('reprise_watchdog_alarms_total') >= 3, 'alarms are counted');
	await daemon.stop();
});

await test('what a probe\'s command began ends with the sample: also when the command itself is over, and when it hangs', async () => {
	const r = await Launched.make({}), began = name => lines(join(r.folder, name)).map(Number);
	const probe = (name, command, within = '300ms') => ({ name, probe: { command: ['sh', '-c', command.replace('FILE', join(r.folder, name))] }, limit: 100, every: '50ms', within });
	const daemon = await daemonOf('groups', { r: watched(r, [
		probe('holds', 'sleep 1000 & echo $! >> FILE'), // over itself, but its output is held open: no answer within the time
		probe('forgets', 'sleep 1000 > /dev/null & echo $! >> FILE; echo 5', '30s'), // a good sample, on a busy machine too
		probe('waits', 'sleep 1000 & echo $! >> FILE; wait') ]) });
	await becomes(daemon, 'ready');
	await until('two of each', () => ['holds', 'forgets', 'waits'].every(name => began(name).length >= 2), 30_000);
	for (const name of ['holds', 'forgets', 'waits'])
		await until(`${name}: the first one\'s child is gone while the daemon goes on`, () => !alive(began(name)[0]), 10_000);
	const by = Object.fromEntries((await state(daemon)).watchdog.map(watch => [watch.probe, watch]));
	equal([by.forgets.samples.at(-1).value, by.forgets.alarm], [5, undefined], 'a sample all the same');
	match(by.holds.alarm, /no answer within 300 ms/, 'alarm');
	await daemon.stop();
	await until('nothing is left', () => ['holds', 'forgets', 'waits'].every(name => began(name).every(pid => !alive(pid))), 10_000);
});

await test('mistakes in launch are told with their place, and a secret never goes into one', async () => {
	const daemon = new Daemon('mistakes');
	for (const [launch, pattern] of [
		[{}, /launch has no argv/], [{ argv: [] }, /must not be empty/], [{ argv: ['./x'] }, /whole path/], [{ argv: ['x'], env: { A: 1 } }, /expected a text/],
		[{ argv: ['x'], inherit: ['REPRISE_TOKEN'] }, /the daemon's own/], [{ argv: ['x'], env: { K: 'k3y-k3y' } }, /holds the secret 'key'/], [{ argv: ['x'], inherit: ['HIDDEN'] }, /holds the secret 'key'/],
		[{ argv: ['x', '--api-key=k3y-k3y'] }, /holds the secret 'key'/], [{ argv: ['x'], stop: { grace: '11m' } }, /over the limit/], [{ argv: ['x'], watchdog: [{ limit: 1 }] }, /`probe` and `limit`/],
		[{ argv: ['x'], watchdog: [{ limit: 1, probe: { typeperf: "x'; y" } }] }, /not a counter/], [{ argv: ['x'], systemd: true }, /not supported/], [{ argv: Array(1025).fill('x') }, /over the limit of 1024/],
		[{ argv: ['x', 'y'.repeat(33_000)] }, /over the limit of 32768/], [{ argv: ['x'], watchdog: Array(17).fill({ limit: 1, probe: { nvidia: 0 } }) }, /over the limit of 16/],
	]) {
		daemon.configure({ secrets: { key: { env: 'KEY' } }, runtimes: { r: { kind: 'openai', url: 'http://127.0.0.1:1', launch } } });
		daemon.env = { KEY: 'k3y-k3y', HIDDEN: 'k3y-k3y' };
		const child = daemon.launch('--check');
		equal((await child.gone).code, 1, `status (${child.errors})`);
		match(child.errors, pattern, 'message');
	}
	const refused = new Daemon('no-launch', { runtimes: { r: { kind: 'openai', url: 'http://127.0.0.1:1' } } });
	await refused.start();
	problem(await refused.ask('POST', '/v1/runtimes/r/stop', {}), 400, /has no `launch`/);
	await refused.stop();
});

await test('the real simulator, a program and no script, is started by the descriptor that was hashed', async () => {
	const port = await freePort();
	const daemon = await daemonOf('program', { r: { kind: 'openai', url: `http://127.0.0.1:${port}`, launch: { argv: [programs.sim, '--port', String(port)] } } });
	const { pid } = await becomes(daemon, 'ready'), { configuration } = (await daemon.get('/v1/runtimes')).runtimes[0];
	equal((await daemon.get(`/v1/provenance/${configuration}`)).record.A.binary_sha256.value, sha256(readFileSync(`/proc/${pid}/exe`)), 'what was measured runs');
	await daemon.stop();
});

await test('of what llama.cpp was launched with, single fields are in the record: its cache, its batches, where its model comes from', async () => {
	const port = await freePort();
	const env = { LLAMA_ARG_CACHE_PROMPT: 'false', LLAMA_ARG_CACHE_RAM: '0', LLAMA_ARG_BATCH: '512', LLAMA_ARG_HF_REPO: 'ours/tiny:Q8_0', LLAMA_ARG_CACHE_TYPE_K: 'q8_0' };
	const daemon = await daemonOf('flags', { r: { kind: 'llamacpp', url: `http://127.0.0.1:${port}`, launch: { argv: [programs.sim, '--kind', 'llamacpp', '--port', String(port)], env } } });
	await becomes(daemon, 'ready');
	const { configuration } = (await daemon.get('/v1/runtimes')).runtimes[0], { B, C } = (await daemon.get(`/v1/provenance/${configuration}`)).record;
	equal([B.revision, C.cache_flags, C.batch_sizes].map(field => [field.value, field.basis]), [['ours/tiny:Q8_0', 'launched'],
		[{ cache_prompt: false, cache_ram: '0', cache_type_k: 'q8_0' }, 'launched'], [{ batch_size: '512' }, 'launched']], 'record');
	await daemon.post('/v1/runs', { id: 'a', definition: extractionOf('r'), input: { document: 'Acme was founded in 1901.' } }, 201);
	equal((await daemon.ended('a')).status, 'completed', 'run');
	const answered = (await daemon.get('/v1/runs/a/events')).events.find(event => event.kind === 'attempt.succeeded' && event.data.request);
	equal(JSON.parse(daemon.content(answered.data.request)).cache_prompt, false, 'no request turns on what the launch turned off');
	await daemon.stop();
});

await test('what a runtime reports as in force beats what it was launched with, which is shown beside it', async () => {
	const port = await freePort(), file = join(folder('launched'), 'script.json');
	writeFileSync(file, JSON.stringify({ options: { serverInfo: true } }));
	const daemon = await daemonOf('beside', { r: { kind: 'vllm', url: `http://127.0.0.1:${port}`, launch: { argv: [programs.sim, '--kind', 'vllm', '--port', String(port), '--script', file], env: { VLLM_BATCH_INVARIANT: '0' } } } });
	await becomes(daemon, 'ready');
	const { configuration } = (await daemon.get('/v1/runtimes')).runtimes[0], { determinism_switch } = (await daemon.get(`/v1/provenance/${configuration}`)).record.C;
	equal([determinism_switch.basis, determinism_switch.value, determinism_switch.launched], ['reported', false, '0'], 'record');
	match(daemon.cli('provenance', 'show', configuration).stdout, /^C\.determinism_switch +reported +GET \/server_info +false \(launched: "?0"?\)$/m, 'provenance show');
	await daemon.stop();
});

await finish();
