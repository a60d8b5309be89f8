// Crash at every place with a name (workflow/base/fail_point.h): for each one, and for several passes through it, the daemon kills itself
// there while a mixed load runs, is started again, and goes on; where an operation can fail there, it does so too, by an I/O error and by a
// full disk. Now and then, and at the end, all that was ever acknowledged is there and completes: each effect at least once under one key,
// each result recorded once, tree and signatures and replay hold. Enumerated, not sampled: a point that no load reaches fails the test.
// Needs a build with -Dfail_points=true. --long: more passes. REPRISE_POINTS=word takes only the points that hold the word.
import http from 'node:http';
import { Daemon, check, cli, definition, documentOf, equal, exitOf, extractionOf, finish, firstLine, folder, launch, pause, programs, seedOf, random, startSimulator, test, until } from '../support/harness.mjs';

const LONG = process.argv.includes('--long');
const PASSES = LONG ? [1, 2, 3, 5, 8, 13, 21] : [1, 3];
const CHECK_EVERY = LONG ? 25 : 40; /* cycles between two looks at everything */
const draw = random(seedOf(84));
const structured = { headers: { 'Content-Type': 'application/cloudevents+json' } };

// The world outside: it counts what it was asked to do, by key.
const effects = new Map(); /* key -> { run, count } */
let delivered = 0, holds = false; /* no answer to what is slow: a run is under way that a start has to take up */
const world = http.createServer((request, response) => {
	const pieces = [];
	request.on('data', data => pieces.push(data));
	request.on('end', () => {
		const key = request.headers['idempotency-key'], body = JSON.parse(Buffer.concat(pieces).toString() || 'null');
		if (request.url === '/effect') {
			const seen = effects.get(key) ?? { run: body.run, count: 0 };
			seen.same = (seen.same ?? true) && seen.run === body.run;
			seen.count++;
			effects.set(key, seen);
		} else {
			delivered++;
		}
		if (request.url === '/slow' && holds)
			return;
		response.writeHead(200, { 'Content-Type': 'application/json' });
		response.end(JSON.stringify({ did: body?.run ?? null }));
	});
});
await new Promise(done => world.listen(0, '127.0.0.1', done));
const url = `http://127.0.0.1:${world.address().port}`;
const sim = await startSimulator('--delay', '2');

const listing = launch(programs.daemon, ['--fail-points']);
equal(await exitOf(listing), { code: 0, signal: null }, `reprised --fail-points: a build with -Dfail_points=true is needed (${listing.errors.slice(-300)})`);
const points = listing.output.trim().split('\n').map(line => line.split(' ')).map(([name, ...ways]) => ({ name, ways }))
	.filter(point => !process.env.REPRISE_POINTS || point.name.includes(process.env.REPRISE_POINTS));

const configuration = {
	runtimes: { model: { kind: 'simulator', url: sim.url, model: 'reprise-sim', concurrency: 4, retry: { attempts: 3, floor: '10ms', cap: '50ms' } } },
	http: { allow: ['127.0.0.0/8'] },
	sinks: { audit: { url: `${url}/sink` } },
	signing: { checkpoint: { entries: 40, every: '60s' } },
};
const effect = { call: 'http', with: { method: 'post', endpoint: `${url}/effect`, body: { run: '${ $workflow.id }' } } };
const slow = { call: 'http', with: { ...effect.with, endpoint: `${url}/slow` } };
const kid = definition('kid', [{ act: effect }]);
const sleeper = definition('sleeper', [{ rest: { wait: { hours: 1 } } }]);
const beat = definition('beat', [{ one: { set: { done: true } } }], { schedule: { every: { hours: 5 } } });

// What only some points need, since it takes its time.
const NEEDS = {
	'append.snapshot': ['long'],
	'chunk.before-commit': ['large'], 'chunk.committed': ['large'],
	'wal.copy': ['large', 'large2', 'large3', 'large4'], 'wal.copied': ['large', 'large2', 'large3', 'large4'],
	'sink.recorded': ['sink'],
	'timer.due': ['timer'],
	'backup.begun': ['backup'], 'backup.copied': ['backup'], 'backup.verified': ['backup'], 'backup.linked': ['backup'],
	'cancel.received': ['late'], 'child.cancel': ['late'],
	'retention.begun': ['purge'], 'retention.before-commit': ['purge'], 'retention.committed': ['purge'],
	'recover.run': ['open'], 'recover.page': ['open'], 'recover.loaded': ['open'], 'start.recovered': ['open'],
};
// Where a journal has to be a new one; how often the start comes by.
const FRESH = { 'migrate.begun': 99, 'migrate.before-commit': 99, 'migrate.committed': 99, 'key.written': 2, 'key.linked': 2, 'open.keys': 1, 'open.begun': 1 };

const backups = folder('fail-points-backups');
const noise = length => Array.from({ length }, () => String.fromCharCode(97 + Math.floor(draw() * 26))).join('');
let bigText;

// ---- The load: what is asked for, how it ends, until it was acknowledged ----

class Request {
	constructor(id, ends, send) { Object.assign(this, { id, ends, send, acknowledged: false }); }
	async ask(daemon) {
		const answer = await this.send(daemon);
		if ([200, 201, 202].includes(answer.status) && answer.broken === null)
			this.acknowledged = true;
		else
			check(answer.broken !== null || [503, 507, 500].includes(answer.status), () => `${this.id}: ${answer.status} ${answer.text}`);
		return this.acknowledged;
	}
}

function load(k, needs) {
	const post = (path, body, options) => daemon => daemon.ask('POST', path, body, { timeoutMs: 30_000, ...options });
	const run = (name, tasks, ends, input = null) => new Request(`${name}-${k}`, ends, post('/v1/runs', { id: `${name}-${k}`, definition: Array.isArray(tasks) ? definition(name, tasks) : tasks, input }));
	const chains = [ /* one after the other in each, all of them side by side */
		[new Request(`definition-${k}`, null, post('/v1/definitions', definition(`added-${k}`, [{ x: { set: { k } } }])))],
		[new Request(`document-${k}`, null, post('/v1/documents', `# Document ${k}\n\ntext\n`, { headers: { 'Content-Type': 'text/markdown' } }))],
		[run('pure', [{ a: { set: { n: '${ .n }' } } }, { b: { set: { n: '${ .n }', seen: true } } }], r => equal(r.output, { n: k, seen: true }, r.id), { n: k }),
			new Request(`fork-${k}`, r => equal([r.output, r.forkedFrom.run], [{ n: k, seen: true }, `pure-${k}`], r.id), post(`/v1/runs/pure-${k}/fork`, { id: `fork-${k}`, from: 'b' }))],
		[run('effect', [{ one: effect }, { two: effect }], r => equal(r.output, { did: r.id }, r.id))],
		[run('loop', [{ each: { for: { each: 'i', in: '${ [1, 2, 3] }' }, do: [{ act: effect }] } }], r => equal(r.status, 'completed', r.id))],
		[run('both', [{ at: { fork: { branches: [{ a: { set: { a: 1 } } }, { b: effect }] } } }], r => equal(r.status, 'completed', r.id))],
		[run('parent', [{ sub: { run: { workflow: { namespace: 'tests', name: 'kid', version: '1.0.0' } } } }], r => check(/^\{"did":/.test(JSON.stringify(r.output)), () => `${r.id}: ${JSON.stringify(r.output)}`))],
		[run('facts', extractionOf('model'), r => equal(r.facts.length, 2, `${r.id}, facts`), { document: documentOf(1, `Werk${k}`) })],
		[run('tells', [{ tell: { emit: { event: { with: { source: '/load', type: `told-${k}` } } } } }], r => equal(r.status, 'completed', r.id))],
		[run('hears', [{ hear: { listen: { to: { one: { with: { type: `said-${k}` } } } } } }], r => equal(r.status, 'completed', r.id)),
			new Request(`event-${k}`, null, post('/v1/events', { specversion: '1.0', id: `said-${k}`, source: '/tests', type: `said-${k}` }, structured))],
		[run('doomed', [{ sub: { run: { workflow: { namespace: 'tests', name: 'sleeper', version: '1.0.0' } } } }], r => equal(r.status, 'cancelled', r.id)),
			new Request(`cancel-${k}`, null, post(`/v1/runs/doomed-${k}/cancel`, {}))],
		[new Request(`beat-${k}`, null, post('/v1/schedules/tests.beat/trigger', {}))],
	];
	if (needs.includes('backup'))
		chains.push([new Request(`backup-${k}`, null, post('/v1/journal/backup', { path: `${backups}/${k}.db` }))]);
	if (needs.includes('late')) /* a child that its parent's timeout ends, by itself and not as part of a tree */
		chains.push([run('late', [{ sub: { run: { workflow: { namespace: 'tests', name: 'sleeper', version: '1.0.0' } }, timeout: { after: { seconds: 1 } } } }], r => equal(r.status, 'faulted', r.id))]);
	if (needs.includes('purge')) /* what an earlier one took away whole, or not at all, is gone in the end */
		chains.push([new Request(`gone-${k}`, null, post('/v1/runs?wait=20s', { id: `gone-${k}`, definition: definition('gone', [{ a: { set: { text: noise(20_000) } } }]) })),
			new Request(`purge-${k}`, null, async daemon => {
				const answer = await daemon.ask('POST', '/v1/journal/purge', { runs: [`gone-${k}`], reason: 'test' }, { timeoutMs: 30_000 });
				return answer.status === 410 ? { ...answer, status: 200 } : answer;
			})]);
	if (needs.includes('timer'))
		chains.push([run('waits', [{ rest: { wait: { milliseconds: 60 } } }, { then: effect }], r => equal(r.status, 'completed', r.id))]);
	for (let i = 0; needs.includes('open') && i < 3; i++)
		chains.push([run(`open${i}`, [{ act: slow }], r => equal(r.output, { did: r.id }, r.id))]);
	if (needs.includes('long'))
		chains.push([run('long', [{ each: { for: { each: 'i', in: '${ [range(9000)] }' }, do: [{ x: { set: { i: '${ $i }' } } }] } }], r => equal(r.status, 'completed', r.id))]);
	for (const name of needs.filter(need => need.startsWith('large'))) {
		bigText ??= noise(1_600_000);
		chains.push([run(name, [{ a: { set: { got: '${ .n }' } } }], r => equal(r.output, { got: k }, r.id), { n: k, name, text: bigText + name + k })]);
	}
	return chains;
}

// ---- One cycle ----

const all = []; /* every request that was ever made */
let cycle = 0, kills = 0, failures = 0, kept = 0;

const dead = daemon => daemon.child === null || daemon.child.exitCode !== null || daemon.child.signalCode !== null;

async function pursue(daemon, chain) {
	for (const request of chain)
		while (!request.acknowledged && !dead(daemon))
			if (!await request.ask(daemon))
				await pause(20);
}

const ended = async (daemon, id) => {
	const answer = await daemon.ask('GET', `/v1/runs/${id}?wait=1s&include=all`, undefined, { timeoutMs: 20_000 });
	return answer.status === 200 && answer.broken === null && ['completed', 'faulted', 'cancelled'].includes(answer.json.status) ? answer.json : null;
};

async function settle(daemon, requests, withinMs) {
	const end = performance.now() + withinMs;
	for (const request of requests.filter(one => one.ends))
		while (!dead(daemon) && performance.now() < end && await ended(daemon, request.id) === null)
			await pause(5);
	if (process.env.REPRISE_VERBOSE && !dead(daemon) && performance.now() >= end)
		for (const request of requests.filter(one => one.ends))
			if (await ended(daemon, request.id) === null)
				console.log(`# ${request.id} has not ended: ${(await daemon.ask('GET', `/v1/runs/${request.id}?include=tasks`)).text.slice(0, 1500)}`);
}

// Started with a point armed, under load, stopped; how the process ended.
async function start(daemon, point) {
	daemon.env = point ? { REPRISE_FAIL_POINT: point } : {};
	const child = daemon.launch();
	let tail = ''; /* of the log only the end is kept, and the line may stand far before it */
	child.stderr.on('data', data => {
		tail = tail.slice(-100) + data;
		child.hasFailed ||= tail.includes('fail point ');
	});
	daemon.child = child;
	child.gone.then(() => { if (daemon.child === child) daemon.child = null; });
	try {
		await firstLine(child, 'reprised');
	} catch {
		await child.gone;
	}
	return child;
}

async function visit(daemon, point, chains, needs) {
	const child = await start(daemon, point), requests = chains.flat();
	if (!dead(daemon)) {
		await Promise.all(chains.map(chain => pursue(daemon, chain)));
		await settle(daemon, requests, 20_000);
		while (needs.includes('backup') && !dead(daemon) && ['copying', 'verifying'].includes((await daemon.ask('GET', '/v1/journal/backup')).json?.state))
			await pause(5);
		if (needs.includes('sink') && !dead(daemon))
			for (const end = performance.now() + (/:1:/.test(point) ? 30_000 : 1500); !dead(daemon) && !child.hasFailed && performance.now() < end;)
				await pause(20);
	}
	if (!dead(daemon))
		child.kill('SIGTERM');
	const end = await exitOf(child);
	daemon.child = null;
	check(!/ERROR: (Address|Leak)Sanitizer|runtime error:|stopped: /.test(child.errors), () => `${point}: ${child.errors.slice(-3000)}`);
	return { end, said: child.errors, hasFailed: child.hasFailed };
}

async function arm(daemon, name, pass, way) {
	const needs = NEEDS[name] ?? [], chains = load(++cycle, needs);
	for (const chain of chains)
		all.push(...chain);
	if (needs.includes('open')) { /* runs that the start has to take up */
		const open = chains.slice(-3).map(([run]) => [run]);
		holds = true;
		await start(daemon, null);
		await Promise.all(open.map(chain => pursue(daemon, chain)));
		check(open.flat().every(run => run.acknowledged), () => 'the open runs were not acknowledged');
		await daemon.kill();
		holds = false;
	}
	const { end, said, hasFailed = false } = await visit(daemon, `${name}:${pass}:${way}`, chains, needs);
	if (way === 'kill') {
		check(end.signal === 'SIGKILL' || end.code === 0, () => `${name}:${pass} ended with ${JSON.stringify(end)}: ${said.slice(-1500)}`);
		kills += end.signal === 'SIGKILL';
		return end.signal === 'SIGKILL';
	}
	check(end.code === 0 || end.code === 1, () => `${name}:${pass}:${way} ended with ${JSON.stringify(end)}: ${said.slice(-1500)}`);
	failures += hasFailed;
	return hasFailed;
}

// Everything, with no fault any more.
async function lookAtAll(daemon) {
	await start(daemon, null);
	check(!dead(daemon), () => 'it does not start');
	for (const request of all)
		if (!request.acknowledged)
			await until(`${request.id} is acknowledged`, () => request.ask(daemon), 30_000, 20);
	for (const request of all.filter(one => one.id.startsWith('gone-')))
		equal((await daemon.ask('GET', `/v1/runs/${request.id}`)).status, 410, `${request.id} is gone`);
	for (const request of all.filter(one => one.ends)) {
		const run = await until(`${request.id} has ended`, () => ended(daemon, request.id), 60_000);
		request.ends(run);
		kept++;
	}
	const seen = new Map(), entries = (await daemon.journal()).map(text => JSON.parse(text));
	for (const entry of entries)
		if (['run.created', 'run.completed', 'run.cancelled', 'task.completed', 'attempt.succeeded', 'event.consumed'].includes(entry.kind)) {
			const what = `${entry.kind} ${entry.data.runId} ${entry.data.stepId ?? ''} ${entry.kind === 'event.consumed' ? entry.data.eventSeq ?? entry.data.event ?? entry.seq : ''}`;
			check(!seen.has(what), () => `twice: ${what}`);
			seen.set(what, entry.seq);
		}
	for (const [key, { run, same }] of effects)
		check(same, () => `key ${key} of ${run} was used by another run too`);
	const byRun = new Map();
	for (const { run } of effects.values())
		byRun.set(run, (byRun.get(run) ?? 0) + 1);
	for (const request of all) {
		const expected = /^effect-/.test(request.id) ? 2 : /^loop-/.test(request.id) ? 3 : /^both-|^waits-/.test(request.id) ? 1 : 0;
		if (expected)
			equal(byRun.get(request.id), expected, `keys under which ${request.id} acted`);
	}
	daemon.verifyJournal();
	const replay = daemon.cli('replay', '--all');
	equal(replay.code, 0, `replay --all (${replay.stdout.slice(-1500)} ${replay.stderr.slice(-500)})`);
	await daemon.stop();
	all.length = 0; /* what has ended and was looked at stays ended: the journal's own checks go over it each time */
}

// ---- The points ----

const began = performance.now(), reached = new Map(), missing = [];
let visits = 0;

await test('a new journal: killed, and failed, at each step of its making, migrations one by one; then it is there and works', async () => {
	for (const { name, ways } of points.filter(point => FRESH[point.name])) {
		for (const way of ['kill', ...ways])
			for (let pass = 1; pass <= FRESH[name]; pass++) {
				const daemon = new Daemon('fail-points', configuration);
				visits++;
				const child = await start(daemon, `${name}:${pass}:${way}`);
				if (!dead(daemon)) { /* it does not come by so often */
					await daemon.stop();
					check(pass > 1, () => `${name} was never reached`);
					break;
				}
				check(way === 'kill' ? child.signalCode === 'SIGKILL' : child.exitCode === 1 && child.errors.includes(`fail point ${name}`), () => `${name}:${pass}:${way}: ${child.exitCode} ${child.errors}`);
				reached.set(name, Math.max(reached.get(name) ?? 0, pass));
				way === 'kill' ? kills++ : failures++;
				await start(daemon, null);
				check(!dead(daemon), () => `after ${name}:${pass}:${way} it does not start`);
				equal((await daemon.post('/v1/runs?wait=10s', { definition: definition('one', [{ a: { set: { x: 1 } } }]) }, 201)).status, 'completed', 'a run');
				await daemon.stop();
				equal(cli('journal', 'verify', '--data', daemon.data).code, 0, `journal verify after ${name}:${pass}:${way}`);
			}
	}
});

const main = new Daemon('fail-points', configuration);

await test('killed at each point, and failed where it can fail, while a mixed load runs; everything acknowledged is there and completes', async () => {
	await main.start();
	for (const one of [kid, sleeper, beat])
		await main.post('/v1/definitions', one, 201);
	await main.kill();
	for (const { name, ways } of points.filter(point => !FRESH[point.name])) {
		for (const way of ['kill', ...ways])
			for (const pass of way === 'kill' ? PASSES : [1]) {
				visits++;
				const was = await arm(main, name, pass, way);
				if (process.env.REPRISE_VERBOSE)
					console.log(`# ${((performance.now() - began) / 1000).toFixed(1)} s ${name}:${pass}:${way} ${was ? 'reached' : 'NOT reached'}`);
				if (was)
					reached.set(name, Math.max(reached.get(name) ?? 0, pass));
				if (!was && pass === 1)
					missing.push(`${name}:${way}`);
				if (!was)
					break;
				if (cycle % CHECK_EVERY === 0)
					await lookAtAll(main);
			}
	}
	await lookAtAll(main);
});

await test('every point was reached', () => {
	missing.push(...points.filter(({ name }) => !reached.has(name)).map(point => point.name));
	console.log(`# ${points.length} points, ${visits} visits: ${kills} kills, ${failures} failures; ${kept} acknowledged runs looked at, ${effects.size} effects, ${delivered} deliveries, ${Math.round((performance.now() - began) / 1000)} s`);
	check(missing.length === 0, () => `never reached: ${missing.join(', ')}`);
	if (!process.env.REPRISE_POINTS) {
		check(points.length >= 80, `${points.length} points`);
		check(kills >= 120 && failures >= 40, `${kills} kills, ${failures} failures`);
		check(kept >= 500, `${kept} runs looked at`);
	}
});

world.close();
world.closeAllConnections();
await sim.stop();
await finish();
