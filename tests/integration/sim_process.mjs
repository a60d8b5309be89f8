// The simulator as a process and as the programs around a runtime: how it starts, refuses and ends, the fake probes, and the golden case.
// Needs Node 20 and nothing else. REPRISE_SIM names the program (default build/tests/sim/reprise-sim).
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { check, equal, exitOf, finish, firstLine, folder as makeFolder, launch, pause, programs, root, test, until } from '../support/harness.mjs';
import { ask, control, script, start, state, stop } from '../support/sim.mjs';

const folder = makeFolder('sim-process');
let files = 0;
const scriptFile = json => { const path = join(folder, `script-${++files}.json`); writeFileSync(path, JSON.stringify(json)); return path; };
const user = content => [{ role: 'user', content }];
const chat = (sim, body = {}) => ask(sim.port, 'POST', '/v1/chat/completions', JSON.stringify({ model: 'reprise-sim', messages: user('x'), ...body }), { agent: sim.agent });

// The program before it is ready: its ports come with the first line.
async function launchStarting(kind, process, env = {}) {
	const child = launch(programs.sim, ['--kind', kind, '--control-port', '0', '--script', scriptFile({ process })], { env });
	const line = await firstLine(child, 'reprise-sim');
	const ports = /^reprise-sim (starting|ready) http:\/\/127\.0\.0\.1:(\d+) control http:\/\/127\.0\.0\.1:(\d+)$/.exec(line);
	check(ports, line);
	return { child, word: ports[1], port: Number(ports[2]), control: Number(ports[3]) };
}

const run = (process, { kind = 'vllm', env = {} } = {}) => spawnSync(programs.sim, ['--kind', kind, '--script', scriptFile({ process })],
	{ encoding: 'utf8', timeout: 60_000, env: { ...globalThis.process.env, ...env } });

// ---- Starting ----

await test('vLLM refuses connections until it is ready, and says so in its log', async () => {
	const sim = await launchStarting('vllm', { startMs: 1500, log: ['a line of its own'] });
	equal([sim.word, (await ask(sim.port, 'GET', '/health')).broken], ['starting', 'ECONNREFUSED'], 'before');
	await until('ready', async () => (await ask(sim.port, 'GET', '/health')).status === 200);
	for (const line of [/^\(APIServer pid=\d+\) INFO .*vLLM server version 0\.29\.0, serving model reprise-sim$/m, /^\(APIServer pid=\d+\) .*non-default args: \{/m,
		/^\(EngineCore pid=\d+\) .*Using FLASH_ATTN attention backend out of potential backends: \[/m, /^\(APIServer pid=\d+\) INFO: {5}Application startup complete\.$/m, /^a line of its own$/m])
		await until(String(line), () => line.test(sim.child.errors));
	sim.child.kill('SIGTERM');
	equal((await exitOf(sim.child)).code, 0, 'end');
});

await test('the others answer 503 in their own words, and can be told to refuse', async () => {
	for (const [kind, path, wanted, line] of [['llamacpp', '/health', { error: { code: 503, message: 'Loading model', type: 'unavailable_error' } }, 'server is listening'],
		['sglang', '/health_generate', { object: 'error', message: 'The server is starting', type: 'InternalServerError', param: null, code: 503 }, 'The server is fired up and ready to roll!']]) {
		const sim = await launchStarting(kind, { startMs: 1500 });
		const early = await ask(sim.port, 'GET', path);
		equal([early.status, JSON.parse(early.text)], [503, wanted], kind);
		equal((await ask(sim.port, 'POST', '/v1/chat/completions', '{"messages":[]}')).status, 503, 'chat');
		await until('ready', async () => (await ask(sim.port, 'GET', path)).status === 200);
		await until(line, () => sim.child.errors.includes(line));
		sim.child.kill('SIGTERM');
		await exitOf(sim.child);
	}
	const sim = await launchStarting('llamacpp', { startMs: 1500, start: 'refused' });
	equal((await ask(sim.port, 'GET', '/health')).broken, 'ECONNREFUSED', 'refused');
	sim.child.kill('SIGTERM');
	equal((await exitOf(sim.child)).code, 0, 'a signal while it starts');
});

await test('a reload takes the start time again: connections are refused, or 503 meanwhile', async () => {
	for (const [kind, early] of [['vllm', 'ECONNREFUSED'], ['llamacpp', 503]]) {
		const sim = await launchStarting(kind, { startMs: 1000 });
		const up = () => ask(sim.port, 'GET', '/health').then(answer => answer.broken ?? answer.status);
		await until('ready', async () => await up() === 200);
		for (let i = 0; i < 2; i++) {
			equal((await control(sim, 'POST', '/__sim/reload')).status, 200, 'reload');
			equal([await up(), (await state(sim)).runtime.ready], [early, false], 'meanwhile');
			await until('ready again', async () => await up() === 200);
		}
		equal((await state(sim)).runtime.instance, 3, 'instance');
		sim.child.kill('SIGTERM');
		equal((await exitOf(sim.child)).code, 0, 'end');
	}
});

// ---- Refusing to start ----

const wrapper = /^\(APIServer pid=\d+\) RuntimeError: Engine core initialization failed\. See root cause above\. Failed core proc\(s\): \{\}$/;
const vllmRefusals = {
	attentionBackend: /^\(EngineCore pid=\d+\) ERROR ValueError: Selected backend \S+ is not valid for this configuration\. Reason: \[.*'batch invariance not supported'.*\]$/m,
	attention: /ERROR ValueError: No valid attention backend found for .* Reasons: \{.*batch invariance not supported/m,
	moe: /ERROR ValueError: NvFp4 MoE backend '\S+' does not support the deployment configuration since kernel does not support batch invariance\.$/m,
	w4a16: /Using 'MARLIN' NvFp4 MoE backend .*W4A16[^]*ERROR ValueError: NvFp4 MoE backend 'MARLIN'/m,
	noMoe: /ERROR NotImplementedError: No NvFp4 MoE backend supports the deployment configuration\.$/m,
	recurrent: /ERROR RuntimeError: VLLM batch_invariant mode is not supported for MAMBA2_ATTN\.$/m,
	backendRequired: /ERROR RuntimeError: VLLM batch_invariant mode requires an attention backend in \[.*\], but got 'None'/m,
	gpuBusy: /ERROR ValueError: Free memory on device cuda:0 \(3\.2\/23\.4 GiB\) on startup is less than desired GPU memory utilization/m,
	cacheMemory: /ERROR ValueError: No available memory for the cache blocks\. Try increasing `gpu_memory_utilization`/m,
	outOfMemory: /ERROR torch\.OutOfMemoryError: CUDA out of memory/m,
	uva: /ERROR RuntimeError: UVA is not available$/m,
};
await test('vLLM refuses to start in each of its ways: the cause, noise, and the wrapper as the last line', () => {
	for (const [name, cause] of Object.entries(vllmRefusals)) {
		const { status, stderr, stdout } = run({ refuse: name, noise: 300 });
		const lines = stderr.trimEnd().split('\n');
		equal([status, stdout], [1, ''], name);
		check(cause.test(stderr) && wrapper.test(lines.at(-1)) && lines.length > 300, `${name}: ${stderr.slice(0, 800)}`);
	}
	const usage = run({ refuse: 'arguments' });
	check(usage.status === 2 && /unrecognized arguments: --nonsense$/m.test(usage.stderr) && !/Engine core/.test(usage.stderr), usage.stderr);
	check(/ValidationError: 1 validation error for ModelConfig/.test(run({ refuse: 'validation' }).stderr), 'validation');
});

await test('a model that batch invariance does not support starts without that mode, and is refused with it', async () => {
	const refused = run({ unsupported: 'recurrent' }, { env: { VLLM_BATCH_INVARIANT: '1' } });
	check(refused.status === 1 && vllmRefusals.recurrent.test(refused.stderr), refused.stderr);
	const sim = await launchStarting('vllm', { unsupported: 'recurrent' }, { VLLM_BATCH_INVARIANT: '0' });
	equal((await ask(sim.port, 'GET', '/health')).status, 200, 'it starts');
	sim.child.kill('SIGTERM');
	await exitOf(sim.child);
});

await test('the other kinds refuse in their own words', () => {
	for (const [kind, name, cause, status] of [['sglang', 'deterministicBackend', /ValueError: Currently only \[.*\] attention backends are supported for deterministic inference, but you explicitly specified '/, 1],
		['sglang', 'deterministicSpeculation', /ValueError: Speculative decoding/, 1], ['sglang', 'outOfMemory', /torch\.OutOfMemoryError: CUDA out of memory/, 1],
		['llamacpp', 'model', /error loading model[^]*failed to load model/, 1], ['llamacpp', 'outOfMemory', /failed to allocate CUDA0 buffer[^]*unable to allocate CUDA0 buffer/, 1],
		['llamacpp', 'context', /failed to create context/, 1], ['lmstudio', 'resources', /Model loading was stopped due to insufficient system resources/, 1],
		['lmstudio', 'outOfMemory', /unable to allocate/, 1], ['ollama', 'portTaken', /address already in use/, 1], ['transformers', 'outOfMemory', /OutOfMemoryError/, 1]]) {
		const result = run({ refuse: name }, { kind });
		check(result.status === status && cause.test(result.stderr), `${kind} ${name}: ${result.status} ${result.stderr}`);
	}
});

await test('mistakes in "process" are refused with their place', () => {
	for (const [process, place] of [[{ refuse: 'nope' }, '/process/refuse'], [{ unsupported: 7 }, '/process/unsupported'], [{ startMs: -1 }, '/process/startMs'], [{ start: 'slowly' }, '/process/start'],
		[{ log: [7] }, '/process/log/0'], [{ log: Array(10001).fill('x') }, 'at most 10000'], [{ noise: 10001 }, '/process/noise'], [{ childMs: 600001 }, '/process/childMs'], [{ memory: {} }, '/process/memory/file'],
		[{ memory: { file: 'x', usedMiB: [] } }, '/process/memory/usedMiB'], [{ memory: { file: 'x', sharedBytes: Array(10001).fill(1) } }, '1 to 10000'], [{ ignoreTermMs: 'x' }, '/process/ignoreTermMs'], [{ dieAt: 1 }, 'dieAt'], [7, '/process']]) {
		const result = run(process);
		check(result.status === 2 && result.stderr.includes(place), `${JSON.stringify(process).slice(0, 60)}: ${result.status} ${result.stderr.slice(0, 300)}`);
	}
});

// ---- Ending ----

await test('SIGTERM is ignored as long as told, however often it comes', async () => {
	const sim = await launchStarting('vllm', { ignoreTermMs: 1500 });
	const began = performance.now();
	sim.child.kill('SIGTERM');
	await pause(100);
	sim.child.kill('SIGTERM');
	equal((await ask(sim.port, 'GET', '/health')).status, 200, 'still there');
	equal(await exitOf(sim.child), { code: 0, signal: null }, 'then it ends');
	check(performance.now() - began >= 1490, `after ${performance.now() - began}`);
});

const alive = pid => { try { process.kill(pid, 0); return !/^\d+ \([^)]*\) Z/.test(readFileSync(`/proc/${pid}/stat`, 'utf8')); } catch { return false; } };

await test('a child outlives it, in its process group, and holds the memory until it ends', async () => {
	const memory = join(folder, 'memory-child.json');
	const sim = await launchStarting('vllm', { childMs: 2000, memory: { file: memory, usedMiB: [9000] } });
	await until('log', () => /\(EngineCore pid=\d+\)/.test(sim.child.errors));
	const pid = Number(/\(EngineCore pid=(\d+)\)/.exec(sim.child.errors)[1]);
	check(pid !== sim.child.pid && alive(pid), 'the engine is the child');
	equal(readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ')[2], readFileSync(`/proc/${sim.child.pid}/stat`, 'utf8').split(') ')[1].split(' ')[2], 'process group');
	sim.child.kill('SIGKILL');
	await until('gone', () => !alive(sim.child.pid));
	check(alive(pid), 'it lives on');
	equal(JSON.parse(readFileSync(memory)).usedMiB, 9000, 'with the memory');
	await until('the child ends too', () => !alive(pid));
	equal(JSON.parse(readFileSync(memory)).usedMiB, 0, 'the memory is free');
});

// ---- The memory file and the probes ----

for (const name of ['nvidia-smi', 'typeperf', 'powershell.exe'])
	symlinkSync(programs.sim, join(folder, name));
function probe(name, args, settings, { link = true, memory } = {}) {
	const env = { ...process.env };
	if (settings !== undefined) env.REPRISE_SIM_PROBE = typeof settings === 'string' ? settings : scriptFile(settings);
	if (memory) env.REPRISE_SIM_MEMORY = memory;
	return spawnSync(link ? join(folder, name) : programs.sim, link ? args : ['probe', name, ...args], { encoding: 'utf8', timeout: 60_000, env });
}
const query = ['--query-gpu=index,uuid,name,driver_version,memory.total,memory.used,memory.free,compute_cap', '--format=csv,noheader,nounits'];
const shared = '\\GPU Adapter Memory(*)\\Shared Usage';
const command = `(Get-Counter '${shared}').CounterSamples | % { $_.InstanceName + ',' + [int64]$_.CookedValue }`;

await test('the memory file tells what is in use after each request, and the probes read it', async () => {
	const memory = join(folder, 'memory.json');
	const sim = await launchStarting('vllm', { memory: { file: memory, usedMiB: [5000, 6000, 22000], sharedBytes: [0, 100, 2000000000] } });
	const told = () => [probe('nvidia-smi', ['--query-gpu=memory.used', '--format=csv,noheader,nounits'], undefined, { memory }).stdout, probe('powershell.exe', ['-NoProfile', '-Command', command], undefined, { memory }).stdout.split('\r\n')[0]];
	const expect = (used, bytes) => [`${used}\n`, `luid_0x00000000_0x0000c83f_phys_0,${bytes}`];
	equal(told(), expect(5000, 0), 'at the start');
	await chat({ port: sim.port });
	equal(told(), expect(6000, 100), 'after one request');
	await chat({ port: sim.port });
	await chat({ port: sim.port });
	equal(told(), expect(22000, 2000000000), 'the last one stays');
	equal(probe('nvidia-smi', ['--query-compute-apps=gpu_uuid,pid,used_gpu_memory', '--format=csv,noheader'], undefined, { memory }).stdout, `GPU-00000000-0000-4000-8000-000000000001, ${sim.child.pid}, 22000 MiB\n`, 'processes');
	sim.child.kill('SIGTERM');
	await exitOf(sim.child);
	equal(told(), expect(0, 0), 'after its end');
});

await test('nvidia-smi prints CSV, with header and units if not told otherwise', () => {
	const settings = { usedMiB: 1000, totalMiB: 24000, name: 'GPU X', driver: '580.1', computeCap: '12.0' };
	equal(probe('nvidia-smi', query, settings).stdout, '0, GPU-00000000-0000-4000-8000-000000000001, GPU X, 580.1, 24000, 1000, 23000, 12.0\n', 'line');
	equal(probe('nvidia-smi', ['--query-gpu=name, memory.used', '--format=csv'], settings, { link: false }).stdout, 'name, memory.used [MiB]\nGPU X, 1000 MiB\n', 'header and units');
	equal(probe('nvidia-smi', ['--query-gpu=memory.used,memory.total,ecc.mode.current', '--format=csv,noheader'], { mode: 'notAvailable' }).stdout, '[N/A], [N/A], [N/A]\n', 'N/A');
	const unknown = probe('nvidia-smi', ['--query-gpu=memory.nonsense', '--format=csv'], settings);
	equal([unknown.status, unknown.stdout], [2, 'Field "memory.nonsense" is not a valid field to query.\n\n'], 'unknown');
	equal(probe('nvidia-smi', [`--query-gpu=${Array(65).fill('name').join(',')}`, '--format=csv'], settings).status, 2, 'too many fields');
	check(probe('nvidia-smi', ['--help-query-gpu'], settings).stdout.includes('"memory.used"\n'), 'help');
	check(probe('nvidia-smi', ['-L'], settings).stdout.startsWith('GPU 0: GPU X (UUID: GPU-'), '-L');
	equal(probe('nvidia-smi', [], settings).status, 1, 'nothing asked');
	equal(probe('nvidia-smi', ['--query-compute-apps=pid', '--format=csv,noheader'], settings).stdout, '', 'no process');
});

await test('the Windows counters come in their own shapes', () => {
	const settings = { sharedBytes: [100, 200, 300], usedMiB: 2 };
	const table = probe('typeperf', [shared, '-sc', '2', '-si', '0'], settings).stdout;
	equal(table, '\r\n"(PDH-CSV 4.0)","\\\\SIM\\GPU Adapter Memory(luid_0x00000000_0x0000C83F_phys_0)\\Shared Usage","\\\\SIM\\GPU Adapter Memory(luid_0x00000000_0x0000D1A2_phys_0)\\Shared Usage"\r\n' +
		'"01/01/2026 00:00:00.000","100.000000","0.000000"\r\n"01/01/2026 00:00:00.000","200.000000","0.000000"\r\nExiting, please wait...\r\nThe command completed successfully.\r\n\r\n', 'typeperf');
	equal(probe('powershell.exe', ['-NoProfile', '-Command', command], { sharedBytes: 7 }).stdout, 'luid_0x00000000_0x0000c83f_phys_0,7\r\nluid_0x00000000_0x0000d1a2_phys_0,0\r\n', 'powershell');
	check(probe('powershell.exe', ['-Command', command.replace('Shared', 'Dedicated')], { usedMiB: 2 }).stdout.includes(',2097152\r\n'), 'dedicated');
	check(/pid_0_luid_.*,7\r\n$/.test(probe('powershell.exe', ['-Command', command.replace('Adapter', 'Process')], { sharedBytes: 7 }).stdout), 'of processes');
	equal([probe('typeperf', ['\\Processor(*)\\Idle', '-sc', '1'], {}).status, probe('typeperf', [shared, '-sc', '1001'], {}).status, probe('powershell.exe', ['-Command', 'Get-Date'], {}).status], [1, 1, 1], 'unknown, too many');
});

await test('a probe may be slow, malformed, without values or fail, by call; its settings are checked', () => {
	const path = scriptFile({ mode: ['ok', 'malformed', 'fails', 'slow'], slowMs: 300, usedMiB: [1, 2, 3] });
	const call = () => probe('nvidia-smi', ['--query-gpu=memory.used,memory.total', '--format=csv,noheader'], path);
	equal(call().stdout, '1 MiB, 24576 MiB\n', 'ok');
	equal(call().stdout, '2 MiB, 2', 'malformed');
	const failed = call();
	check(failed.status === 9 && /couldn't communicate with the NVIDIA driver/.test(failed.stdout), 'fails');
	const began = performance.now();
	equal([call().stdout, performance.now() - began >= 295], ['3 MiB, 24576 MiB\n', true], 'slow, and the last values again');
	for (const [name, args] of [['typeperf', [shared, '-sc', '1']], ['powershell.exe', ['-Command', command]]]) {
		equal(probe(name, args, { mode: 'fails' }).status, 1, `${name} fails`);
		check(!/phys_0,\d+\r\n/.test(probe(name, args, { mode: 'malformed' }).stdout), `${name} malformed`);
		check(!/,\d/.test(probe(name, args, { mode: 'notAvailable' }).stdout), `${name} without values`);
	}
	for (const settings of [{ mode: 'odd' }, { usedMiB: -1 }, { nonsense: 1 }, { sharedBytes: [] }, { usedMiB: Array(10001).fill(1) }, { memory: join(folder, 'none') }])
		equal(probe('nvidia-smi', query, settings).status, 2, JSON.stringify(settings).slice(0, 60));
	writeFileSync(join(folder, 'large.json'), `{"mode":"ok","name":"${'x'.repeat(1024 * 1024)}"}`);
	equal(probe('nvidia-smi', query, join(folder, 'large.json')).status, 2, 'settings over 1 MiB');
	check(existsSync(`${path}.calls`) && readFileSync(`${path}.calls`).length === 4, 'calls are counted');
});

// ---- The golden case: seven answers on one runtime, one on the other ----

const golden = name => JSON.parse(readFileSync(join(root, 'tests/sim/golden', name)));
async function answers(sim, count, more, stopAt = () => false) {
	const seen = new Map();
	for (let i = 0; i < count && !stopAt(seen); i++) {
		const text = JSON.parse((await chat(sim, { model: 'nemotron-3.5-lightning', seed: 42, temperature: 1, ...more })).text).choices[0].message.content;
		seen.set(text, (seen.get(text) ?? 0) + 1);
	}
	return seen;
}

await test('golden: seven answers in 200 requests on vLLM, one in 200 on LM Studio', async () => {
	const vllm = await start('--kind', 'vllm', '--script', join(root, 'tests/sim/golden/nemotron-vllm.json'));
	const seen = await answers(vllm, 200);
	equal(seen.size, 7, [...seen.values()].join());
	check(Math.max(...seen.values()) >= 180, 'one of them is most of all');
	await stop(vllm);
	const other = await start('--kind', 'lmstudio', '--script', join(root, 'tests/sim/golden/nemotron-lmstudio.json'));
	equal((await answers(other, 200)).size, 1, 'one answer');
	await stop(other);
});

await test('golden: twenty requests are all equal for about half of the seeds, by luck', async () => {
	const sim = await start('--kind', 'vllm');
	const seeds = 300;
	let lucky = 0;
	for (let seed = 0; seed < seeds; seed++) {
		await script(sim, { ...golden('nemotron-vllm.json'), seed });
		if ((await answers(sim, 20, {}, seen => seen.size > 1)).size === 1)
			lucky++;
	}
	// 0.97^20 is 54.4 %; 300 draws of it are within 45 and 64 % but for one case in a thousand. The seeds are fixed, so the count is too.
	console.log(`# ${lucky} of ${seeds} seeds pass twenty requests by luck`);
	check(lucky / seeds > 0.45 && lucky / seeds < 0.64, `${lucky} of ${seeds}`);
	await stop(sim);
});

await finish();
