// Schedules on the real daemon: ticks are neither lost nor doubled over restarts and SIGKILL, what is skipped is in the journal with its reason,
// runs overlap only where they may, and operators pause, resume and trigger.
import { createServer } from 'node:http';
import { Daemon, check, definition, equal, finish, match, pause, problem, random, seedOf, startSimulator, test, until } from '../support/harness.mjs';

const draw = random(seedOf(11));
const sim = await startSimulator();
const runtimes = { extractor: { kind: 'simulator', url: sim.url, model: 'reprise-sim', concurrency: 4, retry: { attempts: 3, floor: '10ms', cap: '50ms' } } };
const scheduled = (name, schedule, policy = {}, tasks = [{ one: { set: { done: true } } }], metadata = {}) => {
	const made = definition(name, tasks, { schedule });
	made.document.metadata = { ...metadata, schedule: policy };
	return made;
};
const slow = [{ ask: { call: 'inference', with: { runtime: 'extractor', prompt: 'x' } } }];
const entriesOf = async (daemon, id) => (await daemon.journal()).map(e => e.entry ?? e).map(e => typeof e === 'string' ? JSON.parse(e) : e)
	.filter(e => e.kind.startsWith('schedule.') && e.data.schedule === id);
const ms = text => Date.parse(text);

// Every tick between the first and the last stands in the journal once: as a run, or as skipped. The schedule is paused for that.
async function checkAccounted(daemon, id, everyMs) {
	await until(`${id} is paused`, async () => (await daemon.ask('POST', `/v1/schedules/${id}/pause`)).status === 200);
	const entries = await entriesOf(daemon, id), seen = new Map();
	let runs = 0, skipped = 0;
	for (const { kind, data } of entries) {
		if (kind === 'schedule.ticked' && data.by === undefined) {
			check(!seen.has(ms(data.due)), () => `tick ${data.due} twice`);
			seen.set(ms(data.due), 'run');
			runs++;
		} else if (kind === 'schedule.skipped') {
			equal((ms(data.last) - ms(data.first)) / everyMs + 1, data.count, `count of ${JSON.stringify(data)}`);
			for (let at = ms(data.first); at <= ms(data.last); at += everyMs) {
				check(!seen.has(at), () => `tick ${new Date(at).toISOString()} twice`);
				seen.set(at, data.why);
				skipped++;
			}
		}
	}
	const times = [...seen.keys()].sort((a, b) => a - b);
	for (let i = 1; i < times.length; i++)
		equal(times[i] - times[i - 1], everyMs, `between ticks ${i - 1} and ${i}`);
	for (const { kind, data } of entries.filter(e => e.kind === 'schedule.ticked'))
		equal((await daemon.ended(data.runId)).labels?.schedule ?? id, id, `label of the run of ${kind}`);
	const shown = await daemon.get(`/v1/schedules/${id}`);
	equal([shown.runs, shown.skipped], [runs + entries.filter(e => e.data.by === 'operator').length, skipped], 'what the schedule shows');
	return { runs, skipped, seen };
}

await test('a fixed rate starts a run each time, exactly once, over ten kills and three orderly restarts', async () => {
	const daemon = new Daemon('schedules', { runtimes });
	await daemon.start();
	await daemon.post('/v1/definitions', scheduled('beat', { every: { seconds: 1 } }, { catchUp: 'all', catchUpMax: 1000 }), 201);
	for (let i = 0; i < 13; i++) {
		await pause(300 + draw() * 900);
		await (i % 4 === 3 ? daemon.stop() : daemon.kill());
		if (i % 3 === 0)
			await pause(1500);
		await daemon.start();
	}
	await until('it has caught up', async () => (await daemon.get('/v1/schedules/tests.beat')).nextAt > new Date().toISOString());
	const { runs, skipped } = await checkAccounted(daemon, 'tests.beat', 1000);
	check(runs >= 12, `${runs} runs`);
	equal(skipped, 0, 'with catchUp: all nothing is skipped');
	daemon.verifyJournal();
	await daemon.stop();
});

await test('what was missed is caught up as the schedule says, and skipped ticks are in the journal with their reason', async () => {
	const daemon = new Daemon('schedules', { runtimes });
	await daemon.start();
	await daemon.post('/v1/definitions', scheduled('latest', { every: { seconds: 1 } }), 201);
	await daemon.post('/v1/definitions', scheduled('two', { every: { seconds: 1 } }, { catchUp: 'all', catchUpMax: 2 }), 201);
	await daemon.post('/v1/definitions', scheduled('fresh', { every: { seconds: 1 } }, { catchUp: 'all', catchUpMax: 100, maxLateness: 'PT0.001S' }), 201);
	await pause(1500);
	await daemon.stop();
	await pause(4000);
	await daemon.start();
	await until('all have caught up', async () => (await daemon.get('/v1/schedules')).schedules.every(s => s.nextAt > new Date().toISOString()));
	const latest = await checkAccounted(daemon, 'tests.latest', 1000);
	const two = await checkAccounted(daemon, 'tests.two', 1000);
	const fresh = await checkAccounted(daemon, 'tests.fresh', 1000);
	check([...latest.seen.values()].filter(what => what === 'missed').length >= 2, 'latest skips as missed');
	check([...two.seen.values()].filter(what => what === 'catch-up limit').length >= 1, 'two skips past its limit');
	check([...fresh.seen.values()].filter(what => what === 'too late').length >= 2, 'fresh skips what is too late');
	check(two.skipped < latest.skipped, 'two runs more than latest');
	check(await daemon.metric('reprise_schedule_skipped_total') >= 4, 'counted');
	await daemon.stop();
});

await test('runs overlap where they may and nowhere else', async () => {
	const daemon = new Daemon('schedules', { runtimes });
	await daemon.start();
	await sim.script({ cadence: { firstByteMs: 1700 } });
	await daemon.post('/v1/definitions', scheduled('alone', { every: { seconds: 1 } }, { overlap: 'skip' }, slow), 201);
	await daemon.post('/v1/definitions', scheduled('together', { every: { seconds: 1 } }, {}, slow), 201);
	let together = 0;
	for (let i = 0; i < 50; i++) {
		const { runs } = await daemon.get('/v1/runs?status=running');
		const open = name => runs.filter(run => run.workflow.name === name).length;
		check(open('alone') <= 1, 'two runs of `alone` at once');
		together = Math.max(together, open('together'));
		await pause(100);
	}
	check(together >= 2, 'runs of `together` did not overlap');
	const alone = await checkAccounted(daemon, 'tests.alone', 1000);
	check([...alone.seen.values()].includes('overlap') && alone.runs >= 2, 'alone ran and skipped');
	await sim.script({});
	await daemon.stop();
});

await test('after: the next run starts so long after the one before has ended, faulted ones too, and over a restart', async () => {
	const daemon = new Daemon('schedules', { runtimes });
	await daemon.start();
	await daemon.post('/v1/definitions', scheduled('relay', { after: { milliseconds: 700 } }, {}, [{ one: { set: { bad: '${ .a.b.c }' } } }]), 201);
	await daemon.post('/v1/definitions', scheduled('faulty', { after: 'PT0.5S' }, {}, [{ one: { for: { in: '.nothing' }, do: [{ two: { set: { x: 1 } } }] } }]), 201);
	await pause(1500);
	await daemon.kill();
	await daemon.start();
	await until('three runs of each', async () => (await daemon.get('/v1/schedules')).schedules.every(s => s.runs >= 3));
	for (const [name, delay, status] of [['relay', 700, 'completed'], ['faulty', 500, 'faulted']]) {
		const { runs } = await daemon.get(`/v1/runs?workflow=tests/${name}&limit=100`);
		const ended = runs.filter(run => run.endedAt).sort((a, b) => ms(a.createdAt) - ms(b.createdAt));
		check(ended.length >= 2, `${ended.length} runs of ${name} have ended`);
		for (let i = 0; i < ended.length; i++) {
			equal(ended[i].status, status, `a run of ${name}`);
			if (i > 0)
				check(ms(ended[i].createdAt) - ms(ended[i - 1].endedAt) >= delay, () => `only ${ms(ended[i].createdAt) - ms(ended[i - 1].endedAt)} ms between runs of ${name}`);
		}
	}
	await daemon.stop();
});

await test('after: a last run that is retried has not ended, before a restart and behind it; the next one starts so long after its end', async () => {
	const held = [];
	let how = 404;
	const answer = response => response.writeHead(how, { 'Content-Type': 'application/json' }).end('{}');
	const peer = createServer((request, response) => { how === 'holds' ? held.push(response) : answer(response); });
	await new Promise(done => peer.listen(0, '127.0.0.1', done));
	const daemon = new Daemon('schedules', { http: { allow: ['127.0.0.0/8'] } }), shown = () => daemon.get('/v1/schedules/tests.mends'), tenMinutes = 600_000;
	await daemon.start();
	await daemon.post('/v1/definitions', scheduled('mends', { after: 'PT10M' }, {}, [{ ask: { call: 'http', with: { method: 'get', endpoint: `http://127.0.0.1:${peer.address().port}/` } } }]), 201);
	const { lastRun } = await until('the first run has faulted, and the next is known', async () => { const now = await shown(); return now.lastRun && now.nextAt && now; });
	const faulted = await daemon.get(`/v1/runs/${lastRun}`);
	equal(faulted.status, 'faulted', 'the first run');
	check(ms((await shown()).nextAt) >= ms(faulted.endedAt) + tenMinutes, 'after its fault');
	how = 'holds';
	await daemon.post(`/v1/runs/${lastRun}/retry`, {}, 200);
	equal([(await shown()).nextAt, (await shown()).lastRun], [undefined, lastRun], 'retried: its end is waited for');
	await daemon.kill();
	await daemon.start();
	equal([(await shown()).nextAt, (await shown()).lastRun], [undefined, lastRun], 'and after a restart');
	how = 200;
	held.forEach(answer);
	const ended = await daemon.ended(lastRun);
	equal(ended.status, 'completed', JSON.stringify(ended.error));
	const next = await until('the next is known', async () => (await shown()).nextAt);
	check(ms(next) >= ms(ended.endedAt) + tenMinutes, `${next} is ten minutes after ${ended.endedAt}`);
	await daemon.kill();
	await daemon.start();
	check(ms((await shown()).nextAt) >= ms(ended.endedAt) + tenMinutes && ms((await shown()).nextAt) <= ms(next), 'and after a restart');
	equal((await shown()).runs, 1, 'no other run');
	await daemon.stop();
	peer.close();
	peer.closeAllConnections();
});

await test('operators list, show, pause, resume and trigger; what came due meanwhile is skipped as paused', async () => {
	const daemon = new Daemon('schedules', { runtimes });
	await daemon.start();
	match(daemon.cli('schedule', 'list').stderr, /no schedules/, 'an empty list says so');
	await daemon.post('/v1/definitions', scheduled('beat', { every: 'PT1S' }), 201);
	await until('it ticks', async () => (await daemon.get('/v1/schedules/tests.beat')).runs >= 1);
	match(daemon.cli('schedule', 'list').stdout, /tests\.beat +active +every PT1S/, 'list');
	equal(daemon.cli('schedule', 'list', '-o', 'ids').stdout, 'tests.beat\n', 'ids');
	await daemon.post('/v1/definitions', scheduled('heap', { on: { any: [{ with: { type: 'item' } }], until: '${ length > 2 }' } }), 201);
	await daemon.post('/v1/definitions', scheduled('heap2', { on: { any: [], until: { one: { with: { type: 'done' } } } } }), 201);
	match(daemon.cli('schedule', 'show', 'tests.heap').stdout, /^when +on any of item until \$\{ length > 2 \}$/m, 'an expression that ends it');
	match(daemon.cli('schedule', 'show', 'tests.heap2').stdout, /^when +on any of \* until done$/m, 'an event that ends it');
	match((await daemon.post('/v1/schedules/tests.beat/pause', { reason: 'x'.repeat(1001) }, 400)).detail, /REASON_MAX/, 'a reason over its limit');
	const paused = daemon.cli('schedule', 'pause', 'tests.beat', '--reason', 'moving house');
	equal(paused.code, 0, `pause (${paused.stderr})`);
	match(paused.stdout, /status +paused/, 'pause');
	const before = (await daemon.get('/v1/schedules/tests.beat')).runs;
	await pause(1200);
	await daemon.kill();
	await daemon.start();
	await pause(1300);
	const still = await daemon.get('/v1/schedules/tests.beat');
	equal([still.status, still.runs, still.nextAt], ['paused', before, undefined], 'paused over a restart');
	const triggered = daemon.cli('schedule', 'trigger', 'tests.beat');
	equal(triggered.code, 0, `trigger (${triggered.stderr})`);
	equal((await daemon.ended(triggered.stdout.trim())).status, 'completed', 'the run that was triggered');
	equal(daemon.cli('schedule', 'resume', 'tests.beat').code, 0, 'resume');
	await until('it ticks again', async () => (await daemon.get('/v1/schedules/tests.beat')).runs >= before + 2);
	const { seen } = await checkAccounted(daemon, 'tests.beat', 1000);
	check([...seen.values()].filter(what => what === 'paused').length >= 2, 'skipped as paused');
	equal(daemon.cli('schedule', 'show', 'tests.other').code, 4, 'an unknown schedule');
	problem(await daemon.ask('POST', '/v1/schedules/tests.other/pause'), 404, /tests\.other/);
	await daemon.stop();
});

await test('a new version takes the schedule over or ends it; inline runs make none; zones are checked', async () => {
	const daemon = new Daemon('schedules', { runtimes });
	await daemon.start();
	const nightly = scheduled('nightly', { cron: '30 2 * * *' }, {}, undefined, { timezone: 'Europe/Berlin' });
	await daemon.post('/v1/definitions', nightly, 201);
	await until('it is there', async () => (await daemon.get('/v1/schedules')).schedules.length === 1);
	const shown = await daemon.get('/v1/schedules/tests.nightly');
	const wall = new Intl.DateTimeFormat('en-GB', { timeZone: 'Europe/Berlin', hour: '2-digit', minute: '2-digit' }).format(new Date(shown.nextAt));
	check(wall === '02:30' || wall === '03:00', `next at ${shown.nextAt}, ${wall} in Berlin`);
	check(ms(shown.nextAt) > Date.now() && ms(shown.nextAt) < Date.now() + 25 * 3600e3, `next at ${shown.nextAt}`);
	await daemon.post('/v1/runs', { definition: scheduled('inline', { every: { seconds: 1 } }) }, 201);
	nightly.document.version = '1.1.0';
	nightly.schedule = { every: { hours: 1 } };
	await daemon.post('/v1/definitions', nightly, 201);
	await until('the new version has it', async () => (await daemon.get('/v1/schedules/tests.nightly')).workflow.version === '1.1.0');
	nightly.document.version = '1.2.0';
	delete nightly.schedule;
	await daemon.post('/v1/definitions', nightly, 201);
	await until('it is gone', async () => (await daemon.get('/v1/schedules')).schedules.length === 0);
	const refused = await daemon.ask('POST', '/v1/definitions', scheduled('lost', { cron: '0 0 * * *' }, {}, undefined, { timezone: 'Mars/Olympus' }));
	problem(refused, 400, /time zone Mars\/Olympus/);
	match(refused.text, /\/document\/metadata\/timezone/, 'the pointer');
	await daemon.stop();
});

await test('a thousand schedules are the limit; one that is there may still change', async () => {
	const daemon = new Daemon('schedules', {});
	await daemon.start();
	for (let i = 0; i < 1000; i += 50)
		await Promise.all(Array.from({ length: 50 }, (_, n) => daemon.post('/v1/definitions', scheduled(`many-${i + n}`, { every: { hours: 1 } }), 201)));
	await until('all are there', async () => await daemon.metric('reprise_schedules') === 1000);
	problem(await daemon.ask('POST', '/v1/definitions', scheduled('one-more', { every: { hours: 1 } })), 413, /1000 schedules are there, the limit \(SCHEDULES_MAX\)/);
	const changed = scheduled('many-7', { every: { hours: 2 } });
	changed.document.version = '2.0.0';
	await daemon.post('/v1/definitions', changed, 201);
	await daemon.kill();
	await daemon.start();
	await until('all are there again', async () => await daemon.metric('reprise_schedules') === 1000);
	equal((await daemon.get('/v1/schedules/tests.many-7')).workflow.version, '2.0.0', 'the new version');
	await daemon.stop();
});

await finish();
