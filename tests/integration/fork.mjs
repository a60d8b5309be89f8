// Forks of runs on the real daemon: what each override changes is seen at the peer, what stays is not asked again, and a fork needs nothing of its original.
import { spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Daemon, check, definition, documentOf, equal, extractionOf, finish, folder, match, pause, problem, programs, random, seedOf, startSimulator, test, until } from '../support/harness.mjs';
import { startPeer } from '../support/peer.mjs';

const draw = random(seedOf(56));
// A peer that says what it was asked; a path may be told to hang or to fail.
const answers = new Map(), seen = [];
const peer = await startPeer({ routes: new Proxy({}, { get: (_, path) => typeof path !== 'string' || !path.startsWith('/x/') ? undefined : (request, response) => {
	const answer = answers.get(path) ?? 200;
	seen.push({ path, key: request.headers['idempotency-key'] });
	if (answer === 'hang')
		return;
	response.writeHead(answer, { 'Content-Type': 'application/json' });
	response.end(JSON.stringify({ path, n: seen.filter(one => one.path === path).length }));
} }) });
const asked = path => seen.filter(one => one.path === path).length;
const call = (path, more = {}) => ({ call: 'http', with: { method: 'get', endpoint: `${peer.url}${path}` }, ...more });
// Two simulators: which one a request reached is what `runtime` chose.
const simA = await startSimulator(), simB = await startSimulator();
await simA.script({ answer: { mode: 'fixed', answers: [{ text: 'from A' }] } });
await simB.script({ answer: { mode: 'fixed', answers: [{ text: 'from B' }] } });
const requests = async sim => (await sim.state()).requests, lastOf = async sim => (await sim.state()).lastRequest;
const runtime = sim => ({ kind: 'simulator', url: sim.url, model: 'reprise-sim', concurrency: 4, retry: { attempts: 2, floor: '10ms', cap: '50ms' } });
const configuration = { http: { allow: ['127.0.0.0/8'] }, runtimes: { a: runtime(simA), b: runtime(simB) } };
const daemon = new Daemon('fork', configuration);
await daemon.start();

const submit = (id, tasks, input = {}, more = {}) => daemon.post('/v1/runs', { id, definition: definition(id, tasks, more), input, labels: { made: 'here', kept: 'yes' } }, 201);
const done = async (id, tasks, input, more) => { await submit(id, tasks, input, more); return daemon.ended(id); };
const fork = (of, body, status = 201, query = '?wait=30s&include=all') => daemon.post(`/v1/runs/${of}/fork${query}`, body, status);
const replays = async id => {
	const answer = await daemon.post(`/v1/runs/${id}/replay`, {}, 200);
	check(answer.equal, () => `replay of ${id}: ${JSON.stringify(answer.difference)}`);
	return answer.entries;
};
// Not Daemon.cli(), which holds up this process, and so the peer in it.
const cli = (args, input = '') => new Promise(end => {
	const child = spawn(programs.cli, ['--socket', daemon.socket, ...args], { env: { ...process.env, NO_COLOR: '1' } }), result = { stdout: '', stderr: '' };
	child.stdout.on('data', data => { result.stdout += data; });
	child.stderr.on('data', data => { result.stderr += data; });
	child.on('close', code => end({ ...result, code }));
	child.stdin.end(input);
});
const steps = run => run.tasks.map(task => `${task.step} ${task.status}`);

await test('from a task on: what was before is not asked again, the rest is, with keys of its own; the original is as it was', async () => {
	const before = await done('plain', [{ a: call('/x/a') }, { b: call('/x/b') }, { c: { set: { last: '${ .n }', id: '${ $workflow.id }' } } }], { x: 1 });
	equal([before.status, before.output], ['completed', { id: 'plain', last: 1 }], 'original');
	const entries = await daemon.events('plain');
	const run = await fork('plain', { id: 'plain-b', from: '/do/1/b@1', reason: 'look again' });
	equal([run.status, run.output, run.labels, run.input], ['completed', { id: 'plain-b', last: 2 }, { kept: 'yes', made: 'here' }, { x: 1 }], 'fork');
	equal([asked('/x/a'), asked('/x/b')], [1, 2], 'requests');
	const [first, second] = seen.filter(one => one.path === '/x/b').map(one => one.key);
	check(first && second && first !== second, 'the idempotency keys differ');
	const began = entries.find(entry => entry.data.stepId === '/do/1/b@1');
	equal(run.forkedFrom, { children: 'keep', overrides: { children: 'keep', from: '/do/1/b@1' }, reason: 'look again', run: 'plain', seq: began.seq, task: '/do/1/b@1' }, 'forkedFrom');
	equal((await daemon.get('/v1/runs/plain-b')).forkedFrom, { children: 'keep', run: 'plain', seq: began.seq, task: '/do/1/b@1' }, 'forkedFrom without what is large');
	equal(steps(run), ['/do/1/b@1 completed', '/do/2/c@1 completed'], 'its tasks alone');
	equal((await daemon.events('plain')).length, entries.length, 'the original has no entry more');
	const original = await daemon.run('plain');
	equal([original.forks, original.output, original.forkedFrom], [['plain-b'], before.output, undefined], 'the original names it');
	equal((await daemon.get('/v1/runs?forkedFrom=plain')).runs.map(one => [one.id, one.forkedFrom]), [['plain-b', { run: 'plain' }]], 'list');
	await replays('plain-b');
	await replays('plain');
});

await test('another runtime, prompt and sampling: proven by what the runtimes received; the definition is another, the original\'s is not', async () => {
	const before = await done('ask', [{ first: { call: 'inference', with: { runtime: 'a', prompt: '${ "Hello " + .who }', sampling: { temperature: 0.5, seed: 7, maxTokens: 64 } } } },
		{ then: { set: { text: '${ .text }', who: '${ $workflow.input.who }' } } }], { who: 'Ada' });
	equal([before.status, before.output], ['completed', { text: 'from A', who: 'Ada' }], JSON.stringify(before.error));
	const [a, b] = [await requests(simA), await requests(simB)];
	const run = await fork('ask', { id: 'ask-b', from: 'first', set: { runtime: 'b', sampling: { temperature: 0.1, seed: 11 } } });
	equal([run.status, run.output], ['completed', { text: 'from B', who: 'Ada' }], JSON.stringify(run.error));
	equal([await requests(simA) - a, await requests(simB) - b], [0, 1], 'requests of the runtimes');
	const sent = await lastOf(simB);
	equal([sent.temperature, sent.seed, sent.max_tokens ?? sent.max_completion_tokens, sent.messages.at(-1).content], [0.1, 11, 64, 'Hello Ada'], 'what it was sent');
	check(run.workflow.digest !== before.workflow.digest && run.workflow.name === before.workflow.name, 'another definition of the same name');
	equal((await daemon.run('ask')).workflow.digest, before.workflow.digest, 'of the original');
	const prompted = await cli(['fork', 'ask', '--from', '/do/0/first', '--set', 'prompt=Good bye', '--set', 'sampling.maxTokens=32', '--set', 'runtime=b', '--wait', '-o', 'json', '--id', 'ask-c', '--reason', 'shorter', '--label', 'made=there']);
	equal(prompted.code, 0, prompted.stderr);
	const other = await lastOf(simB), shown = JSON.parse(prompted.stdout);
	equal([other.messages.at(-1).content, other.max_tokens ?? other.max_completion_tokens, other.temperature], ['Good bye', 32, 0.5], 'what it was sent');
	equal([shown.labels, shown.forkedFrom.overrides], [{ kept: 'yes', made: 'there' }, { children: 'keep', from: '/do/0/first', labels: { made: 'there' }, set: { prompt: 'Good bye', runtime: 'b', sampling: { maxTokens: 32 } } }], 'overrides');
	for (const id of ['ask-b', 'ask-c', 'ask'])
		await replays(id);
	match((await cli(['show', 'ask-c'])).stdout, /fork of +ask {2}\(from \/do\/0\/first@1\)/, 'show of the fork');
	match((await cli(['show', 'ask'])).stdout, /forks +2 {2}\(reprise list --forked-from ask\)/, 'show of the original');
	equal((await cli(['list', '--forked-from', 'ask', '-o', 'ids'])).stdout, 'ask-c\nask-b\n', 'list');
});

await test('the settings of a later task, and the extraction with another runtime: facts are the fork\'s own, those of before are named by their ids', async () => {
	await simA.script({}); await simB.script({});
	const document = documentOf(3);
	const tasks = [{ one: { call: 'extraction', with: { runtime: 'a', document: '${ $workflow.input.document }' }, output: { as: '${ {one: .} }' } } }, { two: { call: 'extraction', with: { runtime: 'a', document: '${ $workflow.input.document }' }, input: { from: '${ . }' }, output: { as: '${ {one: $input.one, two: .} }' } } }];
	const before = await done('facts', tasks, { document });
	equal(before.status, 'completed', JSON.stringify(before.error));
	const own = (await daemon.facts('run=facts')).length, b = await requests(simB);
	check(own >= 6, `facts of the original: ${own}`);
	const run = await fork('facts', { id: 'facts-b', from: 'two', set: { runtime: 'b' } });
	equal(run.status, 'completed', JSON.stringify(run.error));
	check(await requests(simB) - b >= 3, 'sections asked of the other runtime');
	equal(run.output.one, before.output.one, 'what was before names the original\'s facts');
	const facts = await daemon.facts('run=facts-b');
	equal([facts.length, facts.every(fact => fact.runtime === 'b' && fact.run === 'facts-b')], [own / 2, true], 'only what it extracted itself');
	equal(run.facts.length, facts.length, 'in its document');
	const all = await fork('facts', { from: 'one', set: { runtime: 'b' }, tasks: { '/do/1/two': { runtime: 'b' } } });
	equal([all.status, (await daemon.facts(`run=${all.id}&runtime=b`)).length], ['completed', own], 'both of them');
	match((await fork('facts', { from: '/do/0/one/do/1/extract/do/0/section#1@1', set: { runtime: 'b' } }, 400)).detail, /has its arguments from \/do\/0\/one, which has taken them already; fork from \/do\/0\/one/, 'a section');
	match((await fork('facts', { from: 'two', tasks: { '/do/0/one': { runtime: 'b' } } }, 400)).detail, /^task \/do\/0\/one comes before \/do\/1\/two@1, where the fork begins, and is not begun again: .*; fork from \/do\/0\/one/, 'a task before');
	const late = await cli(['fork', 'facts', '--from', 'two', '--set', '/do/0/one:runtime=b']);
	equal(late.code, 1, 'a task before');
	match(late.stderr, /\/do\/0\/one comes before \/do\/1\/two@1/, 'a task before');
	const section = await fork('facts', { id: 'facts-s', from: '/do/0/one/do/1/extract/do/0/section#1' });
	equal([section.status, section.output.one.facts.length], ['completed', before.output.one.facts.length], 'from a section on');
	for (const id of ['facts-b', 'facts-s', all.id])
		await replays(id);
	daemon.verifyJournal();
});

await test('another input of the task: in a list, at the beginning, inside a loop; not where it is shared', async () => {
	const before = await done('input', [{ a: { set: { n: '${ .n + 1 }' } } }, { each: { for: { each: 'x', in: '${ [1, 2, 3] }' }, do: [{ add: { set: { n: '${ .n + $x }', at: '${ $x }' } } }, { more: { set: { n: '${ .n * 2 }' } } }] } },
		{ f: { fork: { branches: [{ l: { set: { l: '${ .n }' } } }, { r: { do: [{ r1: { set: { r: '${ .n }' } } }] } }] } } }], { n: 1 });
	equal(before.output, [{ l: 38 }, { r: 38 }], JSON.stringify(before.error));
	const from = async (step, input) => { const run = await fork('input', { from: step, ...(input === undefined ? {} : { input }) }); await replays(run.id); return run.output; };
	equal(await from('a', { n: 0 }), [{ l: 30 }, { r: 30 }], 'the first task');
	equal(await from('each', { n: 0 }), [{ l: 22 }, { r: 22 }], 'a loop');
	equal(await from('add#2', { n: 100 }), [{ l: 206 }, { r: 206 }], 'the first task of an iteration');
	equal(await from('/do/1/each/do/1/more#1@1', { n: 0 }), [{ l: 6 }, { r: 6 }], 'another one of it');
	equal(await from('/do/1/each/do/1/more#1@1'), [{ l: 38 }, { r: 38 }], 'as it was');
	equal(await from('r1', { n: 5 }), [{ l: 38 }, { r: 5 }], 'inside a branch');
	match((await fork('input', { from: 'l', input: { n: 5 } }, 400)).detail, /is a branch of \/do\/2\/f, and all branches have one input; fork from \/do\/2\/f/, 'a branch');
	match((await fork('input', { from: 'more' }, 400)).detail, /has begun task more 3 times; say which \(reprise show input lists them\): .*more#0@1, .*more#1@1, .*more#2@1/, 'several');
	match((await fork('input', { from: 'more#1.2' }, 400)).detail, /stands in 1 loops/, 'too many numbers');
	match((await fork('input', { from: 'nobody' }, 404)).detail, /has no task nobody; reprise show input lists its tasks/, 'none');
	match((await fork('input', { from: '/do/0/a@2' }, 400)).detail, /has not begun task \/do\/0\/a@2; a fork can begin with any of the 12 that reprise show input lists: \/do\/0\/a@1, /, 'not entered');
	match((await fork('input', { from: 'a', set: { x: 1 } }, 400)).detail, /is no call: only members of the `with`/, 'no call');
	match((await fork('nothing', { from: 'a' }, 404)).detail, /there is no run nothing/, 'no run');
});

await test('the same id and content is the same run, also after the original is gone; other content is a conflict', async () => {
	await done('same', [{ a: call('/x/s') }, { b: { set: { v: '${ .n }' } } }]);
	const body = { id: 'same-1', from: 'b' };
	await fork('same', body, 201);
	equal((await fork('same', body, 200)).id, 'same-1', 'again');
	match((await fork('same', { ...body, from: 'a' }, 409)).detail, /run same-1 exists with other content/, 'another task');
	match((await fork('same', { ...body, input: 1 }, 409)).detail, /exists with other content/, 'another input');
	await daemon.post('/v1/runs', { id: 'same-1', definition: definition('x', [{ a: { set: { b: 1 } } }]) }, 409);
	const many = await Promise.all(Array.from({ length: 20 }, () => daemon.ask('POST', '/v1/runs/same/fork?wait=30s', { id: 'same-2', from: 'b' })));
	equal([many.filter(one => one.status === 201).length, many.filter(one => one.status === 200).length], [1, 19], 'twenty at once');
	await daemon.post('/v1/journal/purge', { runs: ['same'], reason: 'tests' }, 200);
	equal((await fork('same', body, 200)).output, { v: 1 }, 'the original is gone');
	equal((await daemon.ask('POST', '/v1/runs/same/fork', { id: 'same-3', from: 'b' })).status, 410, 'a new one');
	await replays('same-1');
	equal((await fork('same-1', { from: 'b' })).output, { v: 1 }, 'a fork of the fork');
	match((await fork('same-1', { from: 'a' }, 400)).detail, /task a of run same-1 began before that run was forked: fork run same from it/, 'what the fork did not do');
});

await test('children: what had ended is kept, or run again, or not named; one under way is begun anew, or let go', async () => {
	await daemon.post('/v1/definitions', definition('kid', [{ ask: call('/x/kid') }, { out: { set: { kid: '${ $workflow.id }', n: '${ .n }' } } }]), 201);
	const kid = (more = {}) => ({ run: { workflow: { namespace: 'tests', name: 'kid', version: '1.0.0' }, ...more } });
	const before = await done('mother', [{ k: kid() }, { s: { set: { kid: '${ .kid }', n: '${ .n }' } } }, { after: call('/x/after', { output: { as: '${ {kid: $input.kid, n: $input.n} }' } }) }]);
	equal(before.status, 'completed', JSON.stringify(before.error));
	const [child] = before.children.map(one => one.id);
	const kept = await fork('mother', { id: 'mother-keep', from: 'after' });
	equal([kept.output, kept.forkedFrom.kept, kept.children], [{ kid: child, n: 1 }, [child], []], 'keep');
	const rerun = await fork('mother', { id: 'mother-rerun', from: 'after', children: 'rerun' });
	equal([rerun.output.n, rerun.output.kid === child, rerun.children.length, rerun.forkedFrom.task, rerun.forkedFrom.kept], [2, false, 1, '/do/0/k@1', undefined], 'rerun');
	const detached = await fork('mother', { id: 'mother-detach', from: 'after', children: 'detach' });
	equal([detached.output, detached.forkedFrom.kept, detached.children], [{ kid: child, n: 1 }, undefined, []], 'detach');
	match((await fork('mother', { from: 'after', children: 'rerun', input: 1 }, 400)).detail, /begins with \/do\/0\/k@1, before after, whose input cannot be given then/, 'rerun with an input');
	equal((await fork('mother-keep', { from: 'after' })).forkedFrom.kept, [child], 'kept of the kept');
	// Under way in another branch.
	answers.set('/x/kid', 'hang');
	await submit('busy', [{ f: { fork: { branches: [{ k: kid() }, { b: { do: [{ one: call('/x/one') }, { two: { set: { two: '${ .n }' } } }] } }] } } }]);
	await until('the child and the other branch', async () => (await daemon.run('busy')).tasks.some(task => task.step === '/do/0/f/fork/branches/1/b/do/1/two@1') && (await daemon.get('/v1/runs?parent=busy')).runs.length === 1);
	const [busy] = (await daemon.get('/v1/runs?parent=busy')).runs;
	answers.set('/x/kid', 200);
	const anew = await fork('busy', { id: 'busy-keep', from: 'two' });
	equal([anew.status, anew.children.length, anew.children[0]?.id === busy.id, anew.output[0].kid === anew.children[0]?.id], ['completed', 1, false, true], 'with a child of its own');
	const alone = await fork('busy', { id: 'busy-detach', from: 'two', children: 'detach' });
	equal([alone.status, alone.children, alone.output], ['completed', [], [{}, { two: 1 }]], 'let go');
	equal([(await daemon.get(`/v1/runs/${busy.id}`)).status, (await daemon.get('/v1/runs/busy')).status], ['running', 'waiting'], 'the original goes on');
	for (const id of ['mother-keep', 'mother-rerun', 'mother-detach', 'busy-keep', 'busy-detach'])
		await replays(id);
	await daemon.post('/v1/runs/busy/cancel', {}, 200);
});

await test('of an open run, with timers, listens and maps under way: all of it begins anew', async () => {
	answers.set('/x/slow', 'hang');
	await submit('open', [{ f: { fork: { branches: [
		{ w: { wait: { milliseconds: 300 } } },
		{ l: { listen: { to: { one: { with: { type: 'tests.go' } } } } } },
		{ m: { for: { each: 'x', in: '${ [1, 2, 3, 4] }' }, metadata: { concurrency: 2 }, do: [{ c: call('/x/map') }, { d: { set: { x: '${ $x }' } } }] } },
		{ s: { try: [{ slow: call('/x/slow') }], catch: { retry: { delay: 'PT0.01S', limit: { attempt: { count: 2 } } } } } },
		{ z: { do: [{ go: call('/x/go') }, { point: { set: { here: true } } }, { fin: call('/x/fin') }] } },
	] } } }, { last: { set: { all: '${ . | length }', n: '${ .[4].n }' } } }]);
	await until('the point is passed and the map is done', async () => { const run = await daemon.run('open'); return run.tasks.some(task => task.step.endsWith('/fin@1') && task.status === 'completed') && run.tasks.some(task => task.step.endsWith('/m@1') && task.status === 'completed'); });
	answers.set('/x/slow', 200);
	const waiting = await fork('open', { id: 'open-b', from: 'point' }, 201, '');
	equal([waiting.status === 'running' || waiting.status === 'waiting', waiting.forkedFrom.run], [true, 'open'], 'under way');
	await replays('open-b');
	await daemon.kill();
	await daemon.start();
	await until('it waits for the event alone', async () => (await daemon.get('/v1/runs/open-b')).status === 'waiting');
	await daemon.post('/v1/events', { specversion: '1.0', id: String(draw()), source: '/tests', type: 'tests.go' }, 201, { headers: { 'Content-Type': 'application/cloudevents+json' } });
	const run = await daemon.ended('open-b');
	equal([run.status, run.output.all, run.output.n >= 2], ['completed', 5, true], JSON.stringify(run.error));
	await replays('open-b');
	await daemon.ask('POST', '/v1/runs/open/cancel', {});
});

await test('a faulted run from the task that failed, and a fork that faults is retried', async () => {
	answers.set('/x/f', 404);
	const failed = await done('failed', [{ a: call('/x/g') }, { f: call('/x/f') }, { o: { set: { n: '${ .n }' } } }]);
	equal(failed.status, 'faulted', 'original');
	const again = await fork('failed', { id: 'failed-b', from: 'f' });
	equal([again.status, again.error.instance], ['faulted', '/do/1/f'], 'as the original');
	answers.set('/x/f', 200);
	const retried = await daemon.post('/v1/runs/failed-b/retry?wait=20s&include=all', {}, 200);
	equal([retried.status, asked('/x/g'), retried.output], ['completed', 1, { n: 3 }], 'retried');
	equal((await cli(['fork', 'failed', '--from', 'f', '--wait'])).code, 0, 'exit status');
	answers.set('/x/f', 404);
	equal((await cli(['fork', 'failed', '--from', 'f', '--wait', '-o', 'ids', '--id', 'failed-c'])).code, 10, 'faulted');
	equal([(await cli(['fork', 'failed'])).code, (await cli(['fork', 'failed', '--from', 'zz'])).code, (await cli(['fork', 'never', '--from', 'a'])).code, (await cli(['fork', 'failed', '--from', 'a', '--id', 'failed-c'])).code], [2, 4, 4, 5], 'exit statuses');
	equal((await cli(['fork', 'failed', '--from', 'f', '--children', 'maybe'])).code, 2, 'a word');
	equal((await cli(['fork', 'failed', '--from', 'f', '--set', 'x'])).code, 2, 'no value');
	await replays('failed-b');
});

await test('a fork needs nothing of its original: purged, and over a restart, it is shown, replayed, gone on with', async () => {
	const large = 'x'.repeat(40_000), small = 'y'.repeat(3000);
	answers.set('/x/p', 'hang');
	await submit('gone', [{ a: { set: { large: '${ .large }', small: '${ .small }' }, export: { as: '${ {context: .small} }' } } }, { m: { for: { each: 'x', in: '${ [1, 2, 3] }' }, metadata: { concurrency: 1 }, do: [{ c: { set: { x: '${ $x }', of: '${ .large }' } } }] } }, { b: call('/x/p', { output: { as: '${ {had: ($input | length), of: ($input[2].of | length), context: $context.context} }' } }) }], { large, small });
	await until('the call', () => asked('/x/p') === 1);
	const waiting = await fork('gone', { id: 'stays', from: 'c#2' }, 201, '');
	check(waiting.status !== 'completed', 'under way');
	await until('the fork\'s call', () => asked('/x/p') === 2);
	await daemon.post('/v1/runs/gone/cancel', {}, 200);
	await daemon.ended('gone');
	await daemon.post('/v1/journal/purge', { runs: ['gone'], reason: 'tests' }, 200);
	await daemon.post('/v1/journal/compact', {}, 200);
	equal((await daemon.ask('GET', '/v1/runs/gone')).status, 410, 'the original');
	await daemon.kill();
	answers.set('/x/p', 200);
	await daemon.start();
	const run = await daemon.ended('stays');
	equal([run.status, run.output, run.forkedFrom.run, run.input.large.length], ['completed', { context: small, had: 3, of: 40_000 }, 'gone', 40_000], JSON.stringify(run.error));
	await replays('stays');
	equal((await fork('stays', { from: 'b' })).output, run.output, 'a fork of it');
	daemon.verifyJournal();
	equal((await cli(['replay', '--all'])).code, 0, 'replay of all');
});

await test('more records than a replay has at hand at once are carried over, and replayed', async () => {
	await done('wide', [{ m: { for: { each: 'x', in: '${ .l }' }, metadata: { concurrency: 1 }, do: [{ c: { set: { x: '${ $x }' } } }] } }, { b: { set: { n: '${ . | length }' } } }], { l: Array.from({ length: 1500 }, (_, i) => i) });
	const run = await fork('wide', { id: 'wide-b', from: 'c#1490' });
	equal(run.output, { n: 1500 }, 'output');
	check(await replays('wide-b') > 1490, 'a record each');
});

await test('more forks at once than are made side by side (API_FORKS_MAX): the others are told to ask again', async () => {
	await daemon.post('/v1/runs?wait=30s', { id: 'long', definition: definition('long', [{ each: { for: { in: '${ [range(500)] }' }, do: [{ x: { set: { i: '${ $item }' } } }] } }, { last: { set: { done: true } } }]), input: {} }, 201);
	let made = [], refused = [];
	for (let round = 0; round < 10 && refused.length === 0; round++) { // where they are made faster than we ask, once more
		const answers = await Promise.all(Array.from({ length: 150 }, (_, i) => daemon.ask('POST', '/v1/runs/long/fork', { id: `long-${round}-${i}`, from: 'last' })));
		made = answers.map((answer, i) => ({ answer, id: `long-${round}-${i}` })).filter(({ answer }) => answer.status === 201);
		refused = answers.filter(answer => answer.status !== 201);
	}
	check(made.length >= 32 && refused.length > 0, () => `${made.length} were made, ${refused.length} refused`);
	for (const answer of refused)
		problem(answer, 503, /32 forks are being made, the limit \(API_FORKS_MAX\)/);
	for (const { id } of made)
		equal((await daemon.ended(id)).status, 'completed', id);
	equal((await daemon.post('/v1/runs/long/fork?wait=20s', { id: 'long-again', from: 'last' }, 201)).status, 'completed', 'asked again');
});

await test('killed between what is asked and the answer: the fork is there as a whole, or not at all', async () => {
	await done('torn', [{ m: { for: { each: 'x', in: '${ .l }' }, metadata: { concurrency: 1 }, do: [{ c: { set: { x: '${ $x }' } } }] } }, { b: { set: { n: '${ . | length }' } } }], { l: Array.from({ length: 300 }, (_, i) => i) });
	let whole = 0, none = 0, kills = 0;
	/* How long they take here, so that kills come before, within and after. */
	const began = performance.now();
	await Promise.all(Array.from({ length: 6 }, (_, i) => fork('torn', { id: `untorn-${i}`, from: 'c#250' })));
	const spanMs = performance.now() - began;
	for (let round = 0; round < 12 || ((whole < 6 || none < 6) && round < 48); round++) {
		const ids = Array.from({ length: 6 }, (_, i) => `torn-${round}-${i}`), from = ['b', 'c#250', 'c#1'][round % 3];
		const asked = ids.map(id => daemon.ask('POST', '/v1/runs/torn/fork', { id, from }));
		await pause(draw() * 1.6 * spanMs);
		await daemon.kill();
		kills++;
		const answers = await Promise.all(asked);
		await daemon.start();
		for (const [i, id] of ids.entries()) {
			const there = await daemon.ask('GET', `/v1/runs/${id}`);
			check(answers[i].status !== 201 || there.status === 200, `${id} was acknowledged`);
			if (there.status === 200)
				whole++;
			else
				none++;
			equal((await fork('torn', { id, from }, [200, 201])).output, { n: 300 }, id);
		}
	}
	check(kills >= 12 && whole >= 6 && none >= 6, () => `too little came to pass: ${whole} were there, ${none} were not`);
	daemon.verifyJournal();
	equal((await cli(['replay', '--all'])).code, 0, 'replay of all');
});

await test('a fork is new work: a daemon that drains refuses it', async () => {
	answers.set('/x/drain', 'hang');
	await submit('draining', [{ s: { set: { a: 1 } } }, { c: call('/x/drain') }]);
	await until('the call', () => asked('/x/drain') === 1);
	const ended = daemon.child;
	await daemon.post('/v1/drain', { within: '2s' }, 202);
	const refused = await daemon.ask('POST', '/v1/runs/draining/fork', { from: 's' });
	equal([refused.status, 'retry-after' in refused.headers], [503, true], refused.text);
	await until('it has stopped', () => ended.exitCode !== null, 20_000);
	await daemon.start();
	await daemon.post('/v1/runs/draining/kill', {}, 200);
});

await daemon.stop();
await peer.stop();
await finish();
