// Nothing acknowledged is lost: sixteen clients submit a thousand runs while the daemon is killed with SIGKILL ten times. A client that
// gets no answer asks again with the same id. Every id that ever got a 201 or 200 is there, completes, and is there once.
import { Daemon, check, definition, equal, finish, pause, problem, random, seedOf, startSimulator, test, until } from '../support/harness.mjs';

const RUNS = 1000, CLIENTS = 16, KILLS = 10, GIVE_UP_MS = 120_000;
const seed = seedOf(7461), draw = random(seed);
const sim = await startSimulator('--delay', '3');
const daemon = new Daemon('submissions', {
	runtimes: { model: { kind: 'simulator', url: sim.url, model: 'reprise-sim', concurrency: 8, retry: { attempts: 3, floor: '10ms', cap: '100ms' } } },
	http: { allow: ['127.0.0.0/8'] },
});

const kinds = {
	set: definition('set', [{ first: { set: { n: '${ .n }' } } }, { second: { set: { n: '${ .n }', seen: true } } }]),
	http: definition('http', [{ ask: { call: 'http', with: { method: 'get', endpoint: `${sim.url}/v1/models` } } }]),
	inference: definition('inference', [{ ask: { call: 'inference', with: { runtime: 'model', prompt: '${ .prompt }' } } }]),
};
const kindOf = i => i % 5 === 1 ? 'http' : i % 5 === 3 ? 'inference' : 'set';
const request = i => ({ id: `run-${i}`, definition: kinds[kindOf(i)], input: { n: i, prompt: `Number ${i}` }, labels: { kind: kindOf(i) } });

const acknowledged = new Map(); /* id -> status of the answer */
let unanswered = 0, refused = 0, next = 0;

async function client() {
	while (next < RUNS) {
		const i = next++, end = performance.now() + GIVE_UP_MS;
		for (;;) {
			const answer = await daemon.ask('POST', '/v1/runs', request(i), { timeoutMs: 30_000 });
			if ([200, 201].includes(answer.status) && answer.broken === null) {
				equal(answer.json.id, `run-${i}`, 'id in the answer');
				acknowledged.set(answer.json.id, answer.status);
				break;
			}
			check(answer.broken !== null || answer.status === 503, () => `run-${i}: ${answer.status} ${answer.text}`);
			check(performance.now() < end, () => `run-${i} was not accepted within ${GIVE_UP_MS} ms: ${answer.broken} ${answer.text}`);
			if (answer.broken !== null)
				unanswered++;
			else
				refused++;
			await pause(5 + draw() * 20);
		}
	}
}

// Ten times, after so many more acknowledgements and a moment; three times once more while it starts.
async function killer() {
	for (let kill = 1; kill <= KILLS; kill++) {
		const goal = Math.floor((kill - draw()) / (KILLS + 0.5) * RUNS);
		await until(`${goal} runs are acknowledged`, () => acknowledged.size >= goal, GIVE_UP_MS, 1);
		await pause(draw() * 15);
		await daemon.kill();
		if (kill % 3 === 0)
			await daemon.killWhileStarting(draw() * 100);
		await daemon.start();
	}
}

await daemon.start();
await test(`${CLIENTS} clients submit ${RUNS} runs while the daemon is killed ${KILLS} times, and each is acknowledged in the end`, async () => {
	await Promise.all([killer(), ...Array.from({ length: CLIENTS }, client)]);
	equal(acknowledged.size, RUNS, 'acknowledged runs');
	check(unanswered >= KILLS / 2, () => `only ${unanswered} requests went unanswered: the kills hit nothing`);
	const again = [...acknowledged.values()].filter(status => status === 200).length;
	console.log(`# ${unanswered} requests unanswered, ${refused} refused with 503, ${again} acknowledged as already there`);
});

await test('every acknowledged run completes', async () => {
	await until('all runs have completed', async () => (await daemon.get('/v1/runs/count?status=completed')).count >= RUNS, 120_000, 100);
	equal((await daemon.get('/v1/runs/count')).count, RUNS, 'runs in all');
	for (let i = 0; i < RUNS; i++) {
		const run = await daemon.run(`run-${i}`, 'input,output,labels');
		equal([run.status, run.input.n, run.labels, run.error ?? null], ['completed', i, { kind: kindOf(i) }, null], `run-${i}`);
		if (kindOf(i) === 'set')
			equal(run.output, { n: i, seen: true }, `output of run-${i}`);
		else if (kindOf(i) === 'http')
			equal(run.output.data?.[0]?.id, 'reprise-sim', `output of run-${i}`);
		else
			check(typeof run.output.text === 'string' && run.output.text.length > 0, () => `output of run-${i}: ${JSON.stringify(run.output)}`);
	}
});

await test('nothing appears twice: in the list, in the journal', async () => {
	const listed = [];
	for (let cursor = null;;) {
		const page = await daemon.get(`/v1/runs?limit=300${cursor === null ? '' : `&cursor=${encodeURIComponent(cursor)}`}`);
		listed.push(...page.runs.map(run => run.id));
		cursor = page.cursor;
		if (cursor === null || page.runs.length === 0)
			break;
	}
	equal([listed.length, new Set(listed).size], [RUNS, RUNS], 'ids in the list');
	const counts = new Map(), entries = (await daemon.journal()).map(text => JSON.parse(text));
	for (const entry of entries)
		if (['run.created', 'run.completed', 'task.completed', 'attempt.succeeded'].includes(entry.kind)) {
			const key = `${entry.kind} ${entry.data.runId} ${entry.data.stepId ?? ''}`;
			counts.set(key, (counts.get(key) ?? 0) + 1);
		}
	for (const [key, count] of counts)
		equal(count, 1, key);
	const starts = entries.filter(entry => entry.kind === 'daemon.started').length;
	check(starts >= KILLS + 1 && starts <= KILLS + 4, () => `${starts} starts`);
	entries.forEach((entry, index) => equal(entry.seq, index, 'positions without a gap'));
});

await test('the same id with the same content is there already, with other content a conflict, also after the kills', async () => {
	const same = await daemon.post('/v1/runs', request(17), 200);
	equal(same.id, 'run-17', 'id');
	problem(await daemon.ask('POST', '/v1/runs', { ...request(17), input: { n: -1 } }), 409, /run-17/);
});

await test('the journal verifies, and replay of each kind is equal', async () => {
	daemon.verifyJournal();
	for (const i of [0, 1, 3]) {
		const replay = daemon.cli('replay', `run-${i}`, '-o', 'json');
		equal([replay.code, replay.json().equal], [0, true], `replay of run-${i} (${replay.stderr})`);
	}
});

await test('SIGTERM ends it cleanly', () => daemon.stop());
await sim.stop();
await finish();
