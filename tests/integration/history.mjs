// A run with a long history on the real daemon: killed in the middle it goes on from its snapshot, and what is asked about it is read page by page.
import { Daemon, check, definition, equal, finish, match, test, until } from '../support/harness.mjs';

const OUTER = 9, INNER = 1000, TASKS = OUTER * INNER + OUTER + 1; // iterations, inner loops, the outer one
const nested = definition('history', [{ outer: { for: { each: 'a', in: '$workflow.input.outer' }, do: [
	{ inner: { for: { each: 'b', in: '$workflow.input.inner' }, do: [{ step: { set: { n: '${ $b }', a: '${ $a }' } } }] } }] } }]);
const input = { outer: [...Array(OUTER).keys()], inner: [...Array(INNER).keys()] };
const daemon = new Daemon('history');
await daemon.start();

await test('a run that is killed in the middle of a long history goes on from its snapshot and misses nothing', async () => {
	await daemon.post('/v1/runs', { definition: nested, input, id: 'long' }, 201);
	await until('five thousand entries', async () => (await daemon.get('/v1/journal/stats')).entries > 5000, 120_000);
	check((await daemon.get('/v1/runs/long')).status === 'running', 'it ended before it was killed');
	await daemon.kill();
	await daemon.start();
	const run = await daemon.ended('long', 180_000);
	equal(run.status, 'completed', 'status');
	equal(run.output, { a: OUTER - 1, n: INNER - 1 }, 'output');
	const events = await daemon.events('long');
	equal(events.length, 1 + TASKS + (OUTER + 1) + 1, 'entries: each task once, loops begin and end');
	equal(new Set(events.filter(e => e.kind === 'task.completed').map(e => e.data.stepId)).size, TASKS, 'steps');
	check(!/all (its )?entries are read instead/.test(daemon.child.errors), () => daemon.child.errors);
	daemon.verifyJournal();
});

await test('its tasks come in pages, each once, and the document says how many it leaves out', async () => {
	const steps = new Set();
	for (let after = 0, left = TASKS; left > 0;) {
		const page = await daemon.get(`/v1/runs/long/tasks?after=${after}&limit=4000`);
		page.tasks.forEach(task => { check(!steps.has(task.step), task.step); steps.add(task.step); equal(task.status, 'completed', task.step); });
		equal(page.left, left - page.tasks.length, 'left');
		({ left, next: after } = page);
	}
	equal(steps.size, TASKS, 'tasks');
	const one = (await daemon.get('/v1/runs/long/tasks?limit=3')).tasks;
	equal(one.map(task => task.name), ['outer', 'inner', 'step'], 'the first ones');
	equal(one[2].output, { a: 0, n: 0 }, 'a value');
});

await test('it is replayed entry by entry, and the command line shows what it gave', async () => {
	const replay = daemon.cli('replay', 'long');
	equal(replay.code, 0, `replay (${replay.stderr})`);
	match(replay.stdout, new RegExp(`${1 + TASKS + OUTER + 1 + 1} entries`), 'replay');
	equal(daemon.cli('result', 'long').json(), { a: OUTER - 1, n: INNER - 1 }, 'result');
});

await daemon.stop();
await finish();
