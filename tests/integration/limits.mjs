// Limits that only whole programs reach: each is named where it is hit, and nothing else suffers.
import { createServer } from 'node:http';
import { Daemon, check, definition, equal, finish, match, problem, test } from '../support/harness.mjs';

await test('what a runtime says of itself may have so many bytes (PROBE_BODY_MAX)', async () => {
	let bytes = 0;
	const peer = createServer((request, response) => {
		response.setHeader('Content-Type', 'application/json');
		response.end(JSON.stringify({ object: 'list', data: [{ id: 'm', object: 'model', note: 'x'.repeat(bytes) }] }));
	});
	await new Promise(done => peer.listen(0, '127.0.0.1', done));
	const daemon = new Daemon('limits', { runtimes: { big: { kind: 'openai', url: `http://127.0.0.1:${peer.address().port}`, model: 'm' } } });
	await daemon.start();
	const probed = await daemon.post('/v1/runtimes/big/probe', {}, 200);
	equal(probed.reachable, true, 'a small answer');
	bytes = 1 << 20;
	const answer = await daemon.ask('POST', '/v1/runtimes/big/probe', {});
	check(answer.status !== 200 || answer.json.reachable === false || !JSON.stringify(answer.json.models ?? '').includes('"m"'), () => `a large one: ${answer.text.slice(0, 500)}`);
	match(answer.text, /more than 1048576 bytes, the limit \(PROBE_BODY_MAX\)/, 'the limit is named');
	equal((await daemon.get('/healthz')) !== undefined, true, 'the daemon serves on');
	await daemon.stop();
	peer.close();
});

await test('a run document shows values up to a sum of bytes, the rest by digest (API_VIEW_BYTES_MAX)', async () => {
	const daemon = new Daemon('limits', { limits: { body: '32MiB' } });
	await daemon.start();
	const size = 15 << 20, count = 6; // together more than 64 MiB
	const tasks = Array.from({ length: count }, (_, i) => ({ [`t${i}`]: { set: { i, text: '${ .text }' } } }));
	const { id } = await daemon.post('/v1/runs?wait=60s', { definition: definition('large', tasks), input: { text: 'x'.repeat(size) } }, 201, { timeoutMs: 120_000 });
	const run = (await daemon.ask('GET', `/v1/runs/${id}?include=tasks`, undefined, { timeoutMs: 120_000 })).json;
	equal(run.status, 'completed', 'status');
	const outputs = run.tasks.map(task => task.output), whole = outputs.filter(output => output.text?.length === size), stubs = outputs.filter(output => output.digest && output.size > size);
	equal(whole.length + stubs.length, count, 'each is one or the other');
	check(whole.length >= 1 && whole.length <= 4 && stubs.length >= 2, () => `${whole.length} whole, ${stubs.length} by digest`);
	await daemon.stop();
});

await test('bodies that may be large mean the same on the loop and on the pool; where none can be meant they are refused (API_PARSE_ON_LOOP_MAX)', async () => {
	const limit = 64 << 10, daemon = new Daemon('limits', { limits: { body: '32MiB' }, runtimes: { r: { kind: 'openai', url: 'http://127.0.0.1:9', model: 'm', retry: { attempts: 1 } } } });
	await daemon.start();
	await daemon.post('/v1/runs?wait=60s', { id: 'first', definition: definition('first', [{ a: { set: { n: '${ .n }' } } }]), input: { n: 1 } }, 201);
	const padded = (body, size) => JSON.stringify({ ...body, input: { n: 2, pad: 'x'.repeat(size - JSON.stringify({ ...body, input: { n: 2, pad: '' } }).length) } });
	for (const size of [limit, limit + 1, 8 << 20]) {
		const body = padded({ from: 'a', id: `fork-${size}` }, size), fork = await daemon.ask('POST', '/v1/runs/first/fork?wait=60s&include=output', JSON.parse(body), { timeoutMs: 120_000 });
		equal([body.length, fork.status, fork.json.output], [size, 201, { n: 2 }], `a fork of ${size} bytes`);
		match(problem(await daemon.ask('POST', '/v1/runs/first/fork', { ...JSON.parse(body), form: 'a' }), 400).detail, /unknown member 'form' in the body; known here: from id/, 'an unknown member');
		match(problem(await daemon.ask('POST', '/v1/runs/first/fork', { ...JSON.parse(body), from: 5 }), 400).detail, /from: expected a task/, 'a member that cannot be');
		const request = { prompt: 'x'.repeat(size) };
		match(problem(await daemon.ask('POST', '/v1/gates', { runtime: 'nobody', request }), 404).detail, /configured: r/, 'a gate of no runtime');
		match(problem(await daemon.ask('POST', '/v1/gates', { request }), 400).detail, /runtime is missing/, 'a gate without one');
		match(problem(await daemon.ask('POST', '/v1/gates', { runtime: 'r', request: { ...request, schema: {} } }), 400).detail, /request\.schema/, 'a gate with a schema');
		equal((await daemon.ask('POST', '/v1/gates', { runtime: 'r', requests: 2, seeds: 0, request, id: `gate-${size}` })).status, 201, 'a gate');
		match(problem(await daemon.ask('POST', '/v1/journal/purge', { runs: ['x'.repeat(size)], reason: 'old' }), 400).detail, /runs\[0\]: not an id/, 'a purge');
	}
	for (const path of ['/v1/runs/first/cancel', '/v1/runs/first/replay', '/v1/drain', '/v1/runtimes/r/stop', '/v1/log/checkpoint', '/v1/journal/backup', '/v1/journal/compact'])
		match(problem(await daemon.ask('POST', path, { reason: 'x'.repeat(limit) }), 413).detail, /the body has 655\d\d bytes, the limit of this route is 65536 \(API_PARSE_ON_LOOP_MAX\)/, path);
	await daemon.stop();
});

await finish();
