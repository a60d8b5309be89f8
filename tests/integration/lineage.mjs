// What follows from a true journal: going on with faulted runs, on the real daemon, killed in the middle.
import { spawn } from 'node:child_process';
import { Daemon, check, definition, documentOf, equal, extractionOf, finish, match, pause, programs, startSimulator, test, until } from '../support/harness.mjs';
import { startPeer } from '../support/peer.mjs';

// A peer whose paths answer what the test says at the time; keys of idempotency are kept.
const answers = new Map(), keys = [];
const peer = await startPeer({ routes: new Proxy({}, { get: (_, path) => typeof path !== 'string' || !path.startsWith('/x/') ? undefined : (request, response) => {
	const answer = answers.get(path) ?? 200;
	keys.push({ path, key: request.headers['idempotency-key'] });
	if (answer === 'hang')
		return;
	response.writeHead(answer, { 'Content-Type': 'application/json' });
	response.end(JSON.stringify({ path, n: keys.filter(seen => seen.path === path).length }));
} }) });
const asked = path => keys.filter(seen => seen.path === path).length;
const call = (path, more = {}) => ({ call: 'http', with: { method: 'get', endpoint: `${peer.url}${path}` }, ...more });
const configuration = { http: { allow: ['127.0.0.0/8'] } };
const daemon = new Daemon('lineage', configuration);
await daemon.start();

const submit = (id, tasks, input = {}, more = {}) => daemon.post('/v1/runs', { id, definition: definition(id, tasks, more), input, labels: { made: 'here' } }, 201);
const replays = async id => {
	const answer = await daemon.post(`/v1/runs/${id}/replay`, {}, 200);
	check(answer.equal, () => `replay of ${id}: ${JSON.stringify(answer.difference)}`);
	return answer.entries;
};
// Not Daemon.cli(), which holds up this process, and so the peer in it.
const cli = (args, input = '') => new Promise(done => {
	const child = spawn(programs.cli, ['--socket', daemon.socket, ...args], { env: { ...process.env, NO_COLOR: '1' } }), result = { stdout: '', stderr: '' };
	child.stdout.on('data', data => { result.stdout += data; });
	child.stderr.on('data', data => { result.stderr += data; });
	child.on('close', code => done({ ...result, code }));
	child.stdin.end(input);
});
const kinds = async id => (await daemon.events(id)).map(event => event.kind);

await test('a faulted run goes on from the failed call, with another key, and what had finished is not done again', async () => {
	answers.set('/x/b', 404);
	await submit('once', [{ a: call('/x/a') }, { b: call('/x/b') }, { c: { set: { last: '${ .n }' } } }]);
	const failed = await daemon.ended('once');
	equal([failed.status, failed.error.instance], ['faulted', '/do/1/b'], 'first');
	await pause(50);
	answers.set('/x/b', 200);
	const run = await daemon.post('/v1/runs/once/retry?wait=20s&include=all', { reason: 'the peer is back' }, 200);
	equal([run.status, run.error, run.output, run.retries], ['completed', null, { last: 2 }, 1], 'after the retry');
	equal([asked('/x/a'), asked('/x/b')], [1, 2], 'requests');
	const [first, second] = keys.filter(seen => seen.path === '/x/b').map(seen => seen.key);
	check(first && second && first !== second, 'the idempotency keys differ');
	check(Date.parse(run.endedAt) > Date.parse(failed.endedAt), 'endedAt is that of the new end');
	check(run.overhead.queuedMs >= 45, `the time in between was spent waiting: ${JSON.stringify(run.overhead)}`);
	equal(run.tasks.map(task => [task.step, task.status]), [['/do/0/a@1', 'completed'], ['/do/1/b@1', 'faulted'], ['/do/1/b@2', 'completed'], ['/do/2/c@1', 'completed']], 'tasks');
	equal((await kinds('once')).filter(kind => kind.startsWith('run.')), ['run.created', 'run.faulted', 'run.retried', 'run.completed'], 'entries of the run');
	equal(run.events.filter(event => event.type.includes('.workflow.')).map(event => event.type.split('.').at(-2)), ['started', 'faulted', 'resumed', 'completed'], 'lifecycle events');
	await replays('once');
});

await test('retried twice, killed in the middle, waited for all along: it completes once the peer is good', async () => {
	answers.set('/x/d', 404);
	await submit('twice', [{ each: { for: { each: 'item', in: '${ .items }' }, metadata: { concurrency: 2 }, do: [{ ask: call('/x/e') }, { then: call('/x/d') }] } }], { items: [1, 2, 3] });
	equal((await daemon.ended('twice')).status, 'faulted', 'first');
	equal((await daemon.post('/v1/runs/twice/retry?wait=20s', {}, 200)).status, 'faulted', 'second');
	const before = asked('/x/e');
	answers.set('/x/d', 'hang');
	equal((await daemon.post('/v1/runs/twice/retry', {}, 200)).status, 'running', 'third');
	equal((await daemon.get('/v1/runs?status=running')).runs.map(run => run.id), ['twice'], 'in the list');
	equal((await daemon.get('/v1/runs/count?status=faulted')).count, 0, 'faulted runs');
	const n = asked('/x/d');
	await until('the call is under way', () => asked('/x/d') > n - 1);
	await daemon.kill();
	answers.set('/x/d', 200);
	await daemon.start();
	const run = await daemon.ended('twice');
	equal([run.status, run.output.length, run.retries, run.labels], ['completed', 3, 2, { made: 'here' }], 'at last');
	check(asked('/x/e') <= before + 3, `finished calls are not asked again: ${asked('/x/e')} after ${before}`);
	await replays('twice');
	daemon.verifyJournal();
});

await test('a workflow that ran out of time has it anew, across a restart', async () => {
	answers.set('/x/t', 'hang');
	await submit('timed', [{ ask: call('/x/t') }], {}, { timeout: { after: { seconds: 4 } } }); // in which a good peer is asked and heard on a busy machine, too
	equal((await daemon.ended('timed')).error.status, 408, 'timed out');
	const began = Date.now();
	await daemon.post('/v1/runs/timed/retry', {}, 200);
	const again = await daemon.ended('timed');
	equal(again.error.status, 408, 'timed out again');
	check(Date.parse(again.endedAt) - began >= 3900, 'after the whole time');
	answers.set('/x/t', 200);
	equal((await daemon.post('/v1/runs/timed/retry?wait=20s', {}, 200)).status, 'completed', 'in time');
	await replays('timed');
});

await test('what is no faulted run is a conflict that says why; an unknown one is not found', async () => {
	answers.set('/x/h', 'hang');
	await submit('open', [{ ask: call('/x/h') }]);
	match((await daemon.post('/v1/runs/open/retry', {}, 409)).detail, /run open is under way; only a run that has faulted/, 'under way');
	await daemon.post('/v1/runs/open/cancel', {}, 200);
	match((await daemon.post('/v1/runs/open/retry', {}, 409)).detail, /run open is cancelled; only/, 'cancelled');
	await submit('killed', [{ ask: call('/x/h') }]);
	await daemon.post('/v1/runs/killed/kill', {}, 200);
	match((await daemon.post('/v1/runs/killed/retry', {}, 409)).detail, /run killed is killed; only/, 'killed');
	match((await daemon.post('/v1/runs/once/retry', {}, 409)).detail, /run once is completed; only/, 'completed');
	await submit('badly', [{ a: { set: { b: 1 } } }], 5, { input: { schema: { document: { type: 'object' } } } });
	match((await daemon.post('/v1/runs/badly/retry', {}, 409)).detail, /failed before its first task/, 'its input');
	match((await daemon.post('/v1/runs/never/retry', {}, 404)).detail, /there is no run never/, 'unknown');
	equal((await daemon.get('/v1/runs/badly')).status, 'faulted', 'it is as it was');
});

await test('reprise retry takes ids from standard input, goes on past those that cannot be, and its exit status tells', async () => {
	answers.set('/x/r', 404);
	for (const id of ['r1', 'r2'])
		await submit(id, [{ ask: call('/x/r') }]);
	for (const id of ['r1', 'r2'])
		await daemon.ended(id);
	let result = await cli(['retry', 'r1', 'once', '--wait']);
	equal(result.code, 10, `${result.stdout}${result.stderr}`);
	match(result.stderr, /run once is completed/, 'the other');
	answers.set('/x/r', 200);
	result = await cli(['retry', '-', '--wait', '-o', 'ids', '--reason', 'again'], 'r1\nr2\n');
	equal([result.code, result.stdout], [0, 'r1\nr2\n'], result.stderr);
	equal((await cli(['retry', 'once'])).code, 5, 'a conflict');
	equal([(await cli(['retry', 'never', 'once'])).code, (await cli(['retry', 'once', 'never'])).code], [5, 5], 'the worst outcome, in whatever order');
	result = await cli(['events', 'r1', '-f']);
	equal([result.code, result.stdout.trim().split('\n').length > 8], [0, true], `follows past the faults: ${result.stdout}`);
	match(result.stdout, /run.completed/, 'to the end');
});

await test('a run that is purged while retries of it are decided is gone, not unknown', async () => {
	const failing = [{ r: { raise: { error: { type: 'https://serverlessworkflow.io/spec/1.0.0/errors/runtime', status: 500 } } } }], seen = new Map();
	for (let i = 0; i < 40; i++) {
		const id = `purged-${i}`;
		await submit(id, failing);
		await daemon.ended(id);
		const answers = await Promise.all(Array.from({ length: 24 }, (_, n) => n % 3 === 2 ? daemon.ask('POST', '/v1/journal/purge', { runs: [id], reason: 'tests' }) : daemon.ask('POST', `/v1/runs/${id}/retry`, {})));
		for (const { status } of answers)
			seen.set(status, (seen.get(status) ?? 0) + 1);
	}
	check((seen.get(410) ?? 0) > 40 && (seen.get(200) ?? 0) > 0, () => `too little came to pass: ${JSON.stringify([...seen])}`);
	equal([...seen.keys()].filter(status => ![200, 409, 410].includes(status)), [], `statuses ${JSON.stringify([...seen])}`);
});

await test('a child that is retried stands alone: its parent has ended, and a restart does not cancel it', async () => {
	answers.set('/x/k', 404);
	await daemon.post('/v1/definitions', definition('kid', [{ ask: call('/x/k') }, { more: call('/x/k2') }]), 201);
	await submit('parent', [{ start: { run: { workflow: { namespace: 'tests', name: 'kid', version: '1.0.0' } } } }]);
	equal((await daemon.ended('parent')).status, 'faulted', 'parent');
	const [kid] = (await daemon.get('/v1/runs?parent=parent')).runs;
	answers.set('/x/k', 200);
	answers.set('/x/k2', 'hang');
	await daemon.post(`/v1/runs/${kid.id}/retry`, {}, 200);
	await until('the second call', () => asked('/x/k2') > 0);
	await daemon.kill();
	answers.set('/x/k2', 200);
	await daemon.start();
	equal((await daemon.ended(kid.id)).status, 'completed', 'the child');
	equal((await daemon.post('/v1/runs/parent/retry?wait=20s', {}, 200)).status, 'completed', 'the parent, with a child of its own');
	equal((await daemon.get('/v1/runs?parent=parent')).runs.length, 2, 'children');
	await replays('parent');
	await replays(kid.id);
});

await daemon.stop();
await peer.stop();
await finish();
