// Limits that only whole programs reach: each is named where it is hit, and nothing else suffers.
import { createServer } from 'node:http';
import { Daemon, check, definition, equal, finish, match, test } from '../support/harness.mjs';

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

await finish();
