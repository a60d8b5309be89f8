// What may be used of a runtime in a day, through the whole daemon on simulators: who is over it waits and says why, the sums outlive the daemon,
// a raised limit lets go, and a request that no day has room for is refused. The change of the day is tests/unit/activities/test_spending.c's.
// Needs Node 20 and nothing else.
import { Daemon, check, definition, equal, finish, match, startSimulator, test, until } from '../support/harness.mjs';

const MODEL = 'reprise-sim';
const inference = (runtime = 'r', more = {}) => definition('ask', [{ a: { call: 'inference', with: { runtime, prompt: '${ .prompt }', ...more } } }]);
const runtimeOf = (url, more = {}) => ({ kind: 'openai', url, model: MODEL, retry: { attempts: 3, floor: '10ms', cap: '2s' }, ...more });
const show = (daemon, name = 'r') => daemon.get(`/v1/runtimes/${name}`);
const submit = (daemon, id, body = inference(), prompt = `p ${id}`) => daemon.post('/v1/runs', { id, definition: body, input: { prompt } }, 201);
const cancel = (daemon, id) => daemon.post(`/v1/runs/${id}/cancel`, {}, [200, 202]);
const endsOf = async (daemon, id) => (await daemon.get(`/v1/runs/${id}/events`)).events.filter(event => /^attempt\.(succeeded|failed)$/.test(event.kind));
const waitsForBudget = (daemon, name = 'r') => until('it waits for the budget', async () => (await show(daemon, name)).waitsFor === 'budget');
const remarks = async daemon => (await daemon.journal()).map(text => JSON.parse(text)).filter(entry => entry.kind === 'runtime.spent');
const held = { cadence: { firstByteMs: 100_000 } };
async function completed(daemon, id) {
	const run = await daemon.ended(id);
	equal(run.status, 'completed', `${id}: ${JSON.stringify(run.error)}`);
	return run;
}
const spentOf = async (daemon, id) => (await endsOf(daemon, id)).at(-1).data.spent;

// A day of UTC may end in the middle of a test; then it is done again.
const day = () => new Date().toISOString().slice(0, 10);
const inOneDay = (name, body) => test(name, async () => {
	const began = day();
	try {
		await body('');
	} catch (error) {
		if (day() === began)
			throw error;
		await body('-again');
	}
});

await inOneDay('tokens: what is used counts by usage, who is over it waits and says so, a restart after kill -9 knows it, a raised limit lets go', async again => {
	const sim = await startSimulator();
	const configuration = tokens => ({ runtimes: { r: runtimeOf(sim.url, { budget: { tokens } }) } });
	const daemon = await new Daemon(`tokens${again}`, configuration(1_000_000)).start();
	await submit(daemon, 'one');
	const first = await completed(daemon, 'one');
	const spent = await spentOf(daemon, 'one');
	equal(spent.runtime, 'r', 'whose');
	check(spent.us > 0, () => JSON.stringify(spent));
	equal(spent.tokens, first.output.usage.promptTokens + first.output.usage.completionTokens, 'tokens');
	equal((await show(daemon)).today, { day: day(), seconds: spent.us / 1e6, tokens: spent.tokens }, 'today');
	await daemon.stop();

	daemon.configure(configuration(spent.tokens + 1)); // one is left, so one more goes
	await daemon.start();
	await submit(daemon, 'two');
	await completed(daemon, 'two');
	const both = spent.tokens + (await spentOf(daemon, 'two')).tokens;
	const before = (await sim.state()).requests;
	await submit(daemon, 'three');
	await waitsForBudget(daemon);
	const shown = await show(daemon), midnight = `${new Date(Date.now() + 86_400_000).toISOString().slice(0, 10)}T00:00:00.000Z`;
	equal([shown.today.tokens, shown.budget], [both, { tokens: spent.tokens + 1, tokensLeft: 0, tokensReserved: 0, until: midnight }], 'what is left');
	check(shown.goesOnInMs > 0 && shown.goesOnInMs <= 86_400_000, () => JSON.stringify(shown));
	match(daemon.cli('runtime', 'show', 'r').stdout, new RegExp(`^budget +${spent.tokens + 1} tokens a day, 0 left until ${midnight}$`, 'm'), 'runtime show');
	match(daemon.cli('runtime', 'show', 'r').stdout, /^waitsFor +budget$/m, 'runtime show');
	equal(JSON.parse(daemon.cli('runtime', 'show', 'r', '-o', 'json').stdout).spending, [shown.today], 'its days');
	const metrics = await daemon.get('/metrics');
	match(metrics, new RegExp(`^reprise_runtime_spent_tokens\\{runtime="r"\\} ${both}$`, 'm'), 'metrics');
	match(metrics, new RegExp(`^reprise_runtime_budget_tokens\\{runtime="r"\\} ${spent.tokens + 1}$`, 'm'), 'metrics');
	check(!metrics.includes('reprise_runtime_budget_seconds'), 'a limit that is none');

	await daemon.kill();
	await daemon.start();
	await waitsForBudget(daemon);
	equal((await show(daemon)).today, shown.today, 'after the kill');
	equal((await sim.state()).requests, before, 'nothing was sent');
	await daemon.stop();
	daemon.configure(configuration(both + 1));
	await daemon.start();
	await completed(daemon, 'three');
	equal((await endsOf(daemon, 'three')).filter(end => end.kind === 'attempt.failed' && end.data.class !== 'interrupted'), [], 'attempts that failed');
	daemon.verifyJournal();
	await daemon.stop();
	await sim.stop();
});

await inOneDay('tokens: what those in flight may take is reserved, to the token; what was called off counts as well, and lets go', async again => {
	const sim = await startSimulator();
	const daemon = await new Daemon(`reserved${again}`, { runtimes: { r: runtimeOf(sim.url, { concurrency: 8, sampling: { maxTokens: 100 }, budget: { tokens: 299 } }) } }).start();
	await sim.script(held);
	for (const id of ['one', 'two', 'three'])
		await submit(daemon, id);
	await waitsForBudget(daemon);
	await until('two are in flight', async () => (await sim.state()).inFlight === 2 || (await sim.state()).runtime?.running === 2);
	const shown = await show(daemon);
	equal([shown.inFlight, shown.waiting, shown.budget.tokensReserved, shown.budget.tokensLeft], [2, 1, 200, 99], 'reserved');
	await sim.script({});
	await cancel(daemon, 'one');
	const third = await completed(daemon, 'three');
	check(third.overhead.waitedMs.budget > 0, () => `for what it waited: ${JSON.stringify(third.overhead)}`);
	await cancel(daemon, 'two');
	await until('both are on record', async () => (await remarks(daemon)).length === 2);
	equal((await remarks(daemon)).map(entry => [entry.data.runId, entry.data.stepId, entry.data.attempt, entry.data.spent.tokens]), ['one', 'two'].map(id => [id, '/do/0/a@1', 1, 0]), 'entries');
	check((await remarks(daemon)).every(entry => entry.data.spent.us > 0), 'what was called off has held a slot');
	const { today } = await show(daemon);
	await daemon.kill();
	await daemon.start();
	const after = (await show(daemon)).today;
	equal([after.tokens, after.seconds], [today.tokens, today.seconds], 'after the kill');
	daemon.verifyJournal();
	await daemon.stop();
	await sim.stop();
});

await inOneDay('tokens: a request that is larger than the whole day is refused at once, before it is sent and where its prompt was counted', async again => {
	const sim = await startSimulator('--kind', 'llamacpp');
	const daemon = await new Daemon(`larger${again}`, { runtimes: { r: runtimeOf(sim.url, { kind: 'llamacpp', concurrency: 2, budget: { tokens: 400 } }) } }).start();
	await submit(daemon, 'answer', inference('r', { sampling: { maxTokens: 401 } }));
	const answer = await daemon.ended('answer');
	equal([answer.status, answer.error.class], ['faulted', 'configuration'], 'refused');
	match(answer.error.detail, /may take 401 tokens .*runtimes\.r\.budget\.tokens allows 400 in a whole day: ask for less, or raise it/, 'what it says');
	equal((await endsOf(daemon, 'answer')).map(end => [end.data.class, end.data.spent]), [['configuration', undefined]], 'one attempt, nothing spent');
	await submit(daemon, 'prompt', inference('r', { sampling: { maxTokens: 300 } }), 'word '.repeat(200));
	const prompt = await daemon.ended('prompt');
	match(prompt.error.detail, /may take a prompt of \d+ and 300 tokens/, 'what it says');
	equal((await sim.state()).requests, 0, 'requests');
	equal((await show(daemon)).today.tokens, 0, 'tokens');
	// With its prompt known it does not fit beside the one in flight, and waits with that in hand: no attempt is spent.
	await sim.script(held);
	await submit(daemon, 'first', inference('r', { sampling: { maxTokens: 200 } }));
	await until('the first is in flight', async () => (await show(daemon)).budget.tokensReserved > 200);
	const { budget } = await show(daemon);
	await submit(daemon, 'second', inference('r', { sampling: { maxTokens: budget.tokensLeft } }));
	await waitsForBudget(daemon);
	equal((await show(daemon)).budget, budget, 'reserved for the first alone');
	await sim.script({});
	await cancel(daemon, 'first');
	await completed(daemon, 'second');
	equal((await endsOf(daemon, 'second')).map(end => end.kind), ['attempt.succeeded'], 'attempts');
	await daemon.stop();
	await sim.stop();
});

await inOneDay('seconds: what was used and what is under way counts, nothing begins past the limit, nothing is cut off; a gate waits like all others', async again => {
	const sim = await startSimulator();
	const configuration = seconds => ({ runtimes: { r: runtimeOf(sim.url, { concurrency: 4, budget: { seconds } }) } });
	const daemon = await new Daemon(`seconds${again}`, configuration(1)).start();
	await sim.script(held);
	await submit(daemon, 'one');
	await until('nothing is left', async () => (await show(daemon)).budget.secondsLeft === 0);
	await submit(daemon, 'two');
	await waitsForBudget(daemon);
	const shown = await show(daemon);
	equal(shown.inFlight, 1, 'the first goes on');
	check(shown.today.seconds === 0 && shown.budget.secondsUnderWay >= 1, () => JSON.stringify(shown));
	await submit(daemon, 'gate', definition('g', [{ gate: { call: 'reproducibility-gate', with: { runtime: 'r', requests: 2 } } }]));
	await until('the gate waits, too', async () => (await show(daemon)).waiting === 2);
	await sim.script({});
	await daemon.stop(); // which calls off what is under way: its time is known, and counts
	await daemon.start();
	await waitsForBudget(daemon);
	check((await show(daemon)).today.seconds >= 1, () => 'used before the restart');
	match(daemon.cli('runtime', 'show', 'r').stdout, /^budget +1 s a day, 0 left until /m, 'runtime show');
	match(await daemon.get('/metrics'), /^reprise_runtime_budget_seconds\{runtime="r"\} 1$/m, 'metrics');
	await daemon.stop();
	daemon.configure(configuration(1_000_000));
	await daemon.start();
	for (const id of ['one', 'two', 'gate'])
		await completed(daemon, id);
	const ends = (await Promise.all(['one', 'two', 'gate'].map(id => endsOf(daemon, id)))).flat();
	check(ends.filter(end => end.data.spent).length >= 4, () => `two requests, and those of the gate: ${JSON.stringify(ends)}`);
	const before = (await remarks(daemon)).map(entry => entry.data.spent), spent = [...ends.map(end => end.data.spent).filter(Boolean), ...before];
	equal(before.length, 1, 'called off by the end of the daemon');
	equal(Math.round((await show(daemon)).today.seconds * 1e6), spent.reduce((sum, { us }) => sum + us, 0), 'seconds of the day');
	daemon.verifyJournal();
	await daemon.stop();
	await sim.stop();
});

await inOneDay('calls that end in the same moment, of which one takes the others away: what all of them used is on record', async again => {
	const sim = await startSimulator();
	await sim.script({ answer: { mode: 'fixed', answers: [{ text: 'one two three' }] }, cadence: { firstByteMs: 60 } });
	const daemon = await new Daemon(`moment${again}`, { runtimes: { r: runtimeOf(sim.url, { concurrency: 32, budget: { tokens: 1_000_000 } }) } }).start();
	const branches = Array.from({ length: 8 }, (_, i) => ({ [`b${i}`]: { call: 'inference', with: { runtime: 'r', prompt: 'p' } } }));
	const race = definition('race', [{ rounds: { for: { each: 'n', in: '${ [range(12)] }' }, do: [{ f: { fork: { compete: true, branches } } }] } }]);
	await submit(daemon, 'race', race);
	await completed(daemon, 'race');
	await until('nothing is in flight', async () => (await show(daemon)).inFlight === 0);
	const { today } = await show(daemon);
	check((await remarks(daemon)).length > 0, 'some were called off');
	await daemon.stop();
	await daemon.start();
	equal((await show(daemon)).today, today, 'after a restart');
	daemon.verifyJournal();
	await daemon.stop();
	await sim.stop();
});

await finish();
