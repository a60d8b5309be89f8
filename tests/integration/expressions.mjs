// Expressions that need jq, against the real daemon with its real helper processes: what they give, that registration refuses what does not
// compile, and that a hostile expression costs its own run an expression error and nobody else anything.
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Daemon, check, definition, equal, finish, match, pause, problem, test, until } from '../support/harness.mjs';

const daemon = new Daemon('expressions');
await daemon.start();
const pid = daemon.pid;

// The processes that the daemon has started, by name.
function helpers() {
	return readdirSync('/proc').filter(name => /^\d+$/.test(name)).filter(name => {
		try {
			const [, comm, parent] = readFileSync(`/proc/${name}/stat`, 'utf8').match(/^\d+ \((.*)\) \S (\d+)/);
			return comm === 'reprise-jq' && Number(parent) === daemon.pid;
		} catch {
			return false;
		}
	});
}

const expressionError = 'https://serverlessworkflow.io/spec/1.0.0/errors/expression';
let number = 0;
async function run(tasks, input = null, more = {}) {
	const id = `e${++number}`;
	const answer = await daemon.post('/v1/runs', { id, definition: definition('expression', tasks), input, ...more }, [201]);
	check(answer.id === id, 'id');
	return daemon.ended(id);
}
const evaluate = (expression, input = null) => run([{ it: { set: { result: `\${ ${expression} }` } } }], input);
async function replayed(id) {
	const answer = await daemon.post(`/v1/runs/${id}/replay`, {}, 200);
	check(answer.equal, () => `replay of ${id}: ${JSON.stringify(answer.difference)}`);
}

await test('no helper process runs before an expression needs one', async () => {
	const done = await evaluate('.a.b', { a: { b: 3 } });
	equal(done.output, { result: 3 }, 'output');
	equal(helpers(), [], 'helpers');
});

await test('jq expressions give what jq 1.6 says: the first result, null for none', async () => {
	const input = { list: [{ n: 1, w: 'a' }, { n: 2, w: 'b' }, { n: 3, w: 'a' }], text: 'Žofie' };
	const cases = {
		'.list | map(.n) | add': 6,
		'[.list[] | select(.w == "a") | .n]': [1, 3],
		'{count: (.list | length), last: .list[-1].n}': { count: 3, last: 3 },
		'"Hello \\(.text), \\(.list | length) items"': 'Hello Žofie, 3 items',
		'.list | group_by(.w) | map({key: .[0].w, value: length}) | from_entries': { a: 2, b: 1 },
		'.list[].n': 1,
		'empty': null,
		'.list[] | select(.n > 5)': null,
		'if .list | length > 2 then "many" else "few" end': 'many',
		'.text | test("^Ž")': true,
		'reduce .list[] as $x (0; . + $x.n * 10)': 60,
		'.missing // "none"': 'none',
		'0.1 + 0.2': 0.1 + 0.2,
		'$workflow.input.text + "!" | ascii_downcase': 'Žofie!'.replace('F', 'f'),
		'$task.name + ($context | tojson)': 'it{}',
		'# a comment\n.list | length # another': 3,
		'pow(2;60)': 2 ** 60,
	};
	for (const [expression, expected] of Object.entries(cases)) {
		const done = await evaluate(expression, input);
		equal(done.status, 'completed', `${expression}: ${JSON.stringify(done.error)}`);
		equal(done.output, { result: expected }, expression);
		await replayed(done.id);
	}
	check(helpers().length >= 1, 'a helper works');
});

await test('in loops, arguments and conditions, with the names of the loops around; replay equals', async () => {
	const done = await run([
		{ each: { for: { each: 'row', in: '[.rows[] | select(. > 1)]', at: 'i' }, metadata: { concurrency: 4 }, do: [{ one: { set: { v: '${ $row * 10 + $i }', w: ['${ "\\($row)" }', '${ $row + 0 }', '${ $row }'] } } }] } },
		{ sum: { set: { sum: '${ map(.v) | add }', list: '${ . }' } } },
		{ count: { for: { in: '[range(20)]' }, while: '.sum + 0 < 1000', do: [{ up: { set: { sum: '${ .sum + 100 }' } } }] } },
	], { rows: [1, 2, 3] });
	equal(done.status, 'completed', JSON.stringify(done.error));
	equal(done.output, { sum: 1051 }, 'output');
	await replayed(done.id);
});

await test('a long chain of evaluations is committed piece by piece, and its replay is equal', async () => {
	const done = await run([{ count: { for: { in: '[range(150)]' }, do: [{ up: { set: { n: '${ (.n // 0) + 1 }', at: '${ $task.startedAt.epoch.milliseconds }' } } }] } }], {});
	equal(done.status, 'completed', JSON.stringify(done.error));
	equal(done.output.n, 150, 'output');
	await replayed(done.id);
});

await test('a run that never rests is cancelled, killed, timed out, and hears of the ends of its other branches', async () => {
	const never = [{ outer: { for: { in: '[range(100000)]' }, do: [{ inner: { for: { in: '[range(100000)]' }, do: [{ it: { set: { x: 1 } } }] } }] } }];
	const busy = definition('busy', never);
	for (const verb of ['cancel', 'kill']) {
		const id = `busy-${verb}`;
		await daemon.post('/v1/runs', { id, definition: busy }, [201]);
		await until('the run is under way', async () => (await daemon.get(`/v1/runs/${id}/events?limit=1&after=300`)).events?.length > 0);
		await daemon.post(`/v1/runs/${id}/${verb}`, {}, 200, { timeoutMs: 20_000 });
		equal((await daemon.ended(id)).status, 'cancelled', verb);
		await replayed(id);
	}
	await daemon.post('/v1/runs', { id: 'busy-timeout', definition: { ...busy, timeout: { after: { seconds: 1 } } } }, [201]);
	equal((await daemon.ended('busy-timeout')).error?.status, 408, 'of the workflow');
	await replayed('busy-timeout');
	const caught = await run([{ guard: { try: [{ body: { timeout: { after: { seconds: 1 } }, do: never } }], catch: { as: 'e', do: [{ tell: { set: { status: '${ $e.status }' } } }] } } }]);
	equal(caught.output, { status: 408 }, 'of a task');
	await replayed(caught.id);
	const first = await run([{ race: { fork: { compete: true, branches: [{ spin: { do: never } }, { rest: { wait: { seconds: 1 } } }] } } }]);
	equal(first.status, 'completed', 'the branch that waits wins');
	await replayed(first.id);
});

await test('a failing expression faults its run with its message', async () => {
	for (const [expression, pattern] of [['.a + 1', /cannot be added/], ['error("no such thing")', /no such thing/], ['.a | tonumber', /cannot be parsed|tonumber/], ['error({code: 7})', /"code":7/]]) {
		const done = await evaluate(expression, { a: 'text' });
		equal(done.status, 'faulted', expression);
		equal([done.error.type, done.error.status], [expressionError, 400], 'error');
		match(done.error.detail, pattern, 'detail');
		await replayed(done.id);
	}
});

// dsl.md 3: what runs on, what kills its process, and what would reach out of it.
const hostile = [
	'last(range(infinite))', 'def f: f; f', '0 | until(false; . + 1)', '[range(1e9)]', 'def f: 1 + f; f', 'def f: [f]; f',
	'reduce range(60) as $i ("x"; . + .)', 'reduce range(60) as $i ([1]; . + .)', 'null | setpath([100000000]; 1)',
	'reduce range(3000000) as $i (null; [.]) | 1', 'reduce range(3000000) as $i (null; [.]) | . == .', '[1,2] | .[nan:1]', '[recurse(. + 1)]', '"x" * 1e9',
	'[limit(100000000; repeat("xxxxxxxxxxxxxxxxxxxxxxxxx"))]',
];
const guarded = ['input', '[inputs]', 'halt', 'halt_error', '"no" | halt_error', 'now', '"a" | modulemeta'];
const harmless = [['env', {}], ['$ENV | .', {}], ['env.PATH', null], ['$ENV | .HOME', null], ['"x" | debug', 'x'], ['"x" | stderr', 'x'], ['input_filename', null], ['get_search_list', []],
	['{env: 1, input: 2} | .env + .input', 3], ['"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!" | try test("(a+)+$") catch false', false]];

await test('each hostile expression costs its own run an expression error and nobody else anything', async () => {
	let others = 0, stop = false, broken = false;
	const busy = (async () => { // another run goes on all the time
		while (!stop) {
			const done = await daemon.post('/v1/runs?wait=60s&include=output', { definition: definition('other', [{ it: { set: { n: '${ [1, 2, 3] | add }' } } }]), input: null }, 201);
			equal(done.status, 'completed', `another run (${JSON.stringify(done.error)})`);
			equal(done.output, { n: 6 }, 'output of another run');
			others++;
		}
	})().finally(() => { broken = true; });
	busy.catch(() => {}); // told where it is awaited
	try {
		for (const expression of hostile) {
			const done = await evaluate(expression);
			equal(done.status, 'faulted', `${expression}: ${JSON.stringify(done.output)}`);
			equal([done.error.type, done.error.status], [expressionError, 400], `error of ${expression}`);
			match(done.error.detail, /JQ_EVALUATE_MS|the process that evaluated it is gone|EVALUATION_RESULT_MAX|cannot be|too (large|long)/i, expression);
			await replayed(done.id);
			const before = others;
			await until('another run goes on', () => others > before || broken);
		}
	} finally {
		stop = true;
		await busy;
	}
	check(others >= hostile.length, `other runs went on: ${others}`);
	equal(daemon.child?.pid, pid, 'the daemon is the same process');
	await until('at most three helpers', () => helpers().length <= 3);
});

await test('many hostile runs at once leave the daemon serving', async () => {
	const ids = Array.from({ length: 16 }, (_, i) => `many${i}`); // two at once, a second each: eight seconds
	// They wait first: a submission is answered when its first decision is made, and that needs the value.
	await daemon.post('/v1/definitions', definition('many', [{ rest: { wait: { milliseconds: 10 } } }, { it: { set: { x: '${ last(range(infinite)) + .i }' } } }]), 201);
	await Promise.all(ids.map((id, i) => daemon.post('/v1/runs', { id, definition: 'tests/many:1.0.0', input: { i } }, 201)));
	equal((await daemon.ask('GET', '/healthz')).status, 200, 'health');
	const quick = await daemon.post('/v1/runs?wait=60s&include=output', { definition: definition('quick', [{ it: { set: { x: '${ .a }' } } }]), input: { a: 1 } }, 201);
	equal(quick.output, { x: 1 }, 'a run without jq');
	for (const id of ids)
		equal((await daemon.ended(id)).status, 'faulted', id);
	const lastOf = async id => (await daemon.events(id)).at(-1).seq;
	check(await lastOf(quick.id) < Math.max(...await Promise.all(ids.map(lastOf))), 'it waits for no helper');
});

await test('what an expression could reach is not there', async () => {
	for (const expression of guarded) {
		const done = await evaluate(expression);
		equal(done.status, 'faulted', `${expression}: ${JSON.stringify(done.output)}`);
		match(done.error.detail, /not available|not defined|Cannot|null \(null\) not a string|cannot/i, expression);
	}
	for (const [expression, expected] of harmless) {
		const done = await evaluate(expression);
		equal(done.output, { result: expected }, `${expression}: ${JSON.stringify(done.error)}`);
	}
});

await test('a result that is too large, or nests too deep, is an error of its run', async () => {
	const large = await evaluate('[range(300000)]');
	match(large.error.detail, /EVALUATION_RESULT_MAX/, 'large');
	const deep = await evaluate('reduce range(200) as $i (1; [.])');
	match(deep.error.detail, /nests deeper|more than 128 levels/, 'deep');
	const arguments_ = await evaluate('.text + $input.text + $workflow.input.text | length', { text: 'x'.repeat(3 << 19) });
	match(arguments_.error.detail, /EVALUATION_REQUEST_MAX/, 'arguments');
	await replayed(arguments_.id);
});

await test('registration compiles every expression: all errors at once, with pointer, line, column and hint', async () => {
	const yaml = `document: {dsl: '1.0.3', namespace: tests, name: broken, version: '1.0.0'}
do:
  - a: {set: {good: '\${ .x + 1 }', bad: '\${ .x + }'}}
  - b: {set: {v: '\${ nope(.x) }'}}
  - c:
      set:
        v: '\${ if .x then 1 end }'
        w: '\${ [1] | .x.[0] }'
        y: '\${ -1 | abs }'
        z: '\${ include "x"; 1 }'
  - d: {for: {in: '.list | map(', each: r}, do: [{e: {set: {v: '\${ $r + $q }'}}}]}
`;
	const answer = await daemon.ask('POST', '/v1/definitions', yaml, { headers: { 'content-type': 'application/yaml' } });
	problem(answer, 400, /line 11, column 19/);
	const found = Object.fromEntries(answer.json.problems.map(p => [p.pointer, p]));
	// A bracket that stays open is seen without jq, and then the definition is bad as it is.
	equal(Object.keys(found), ['/do/3/d/for/in'], 'pointers');
	const again = await daemon.ask('POST', '/v1/definitions', yaml.replace('.list | map(', '.list | map(.)'), { headers: { 'content-type': 'application/yaml' } });
	const problems = Object.fromEntries(again.json.problems.map(p => [p.pointer, p]));
	equal(Object.keys(problems), ['/do/0/a/set/bad', '/do/1/b/set/v', '/do/2/c/set/v', '/do/2/c/set/w', '/do/2/c/set/y', '/do/2/c/set/z', '/do/3/d/do/0/e/set/v'], 'pointers');
	equal([problems['/do/0/a/set/bad'].line, problems['/do/0/a/set/bad'].column], [3, 41], 'place');
	match(problems['/do/0/a/set/bad'].message, /syntax error/, 'message');
	match(problems['/do/1/b/set/v'].message, /nope\/1 is not defined/, 'message');
	match(problems['/do/2/c/set/v'].hint, /else.*jq 1\.7|jq 1\.7.*else/, 'hint on if');
	match(problems['/do/2/c/set/w'].hint, /jq 1\.7/, 'hint on .a.[0]');
	match(problems['/do/2/c/set/y'].hint, /abs\/0 needs jq 1\.7/, 'hint on abs');
	match(problems['/do/2/c/set/z'].message, /syntax error, unexpected include/, 'include');
	match(problems['/do/3/d/do/0/e/set/v'].message, /\$q is not defined/, 'variable');
	const inline = await daemon.ask('POST', '/v1/runs', { definition: definition('inline', [{ a: { set: { v: '${ foo }' } } }]), input: null });
	problem(inline, 400, /foo\/0 is not defined/);
});

await test('a batch tells all that is wrong with it, however much; one expression that jq cannot take is found among good ones', async () => {
	const set = {};
	for (let i = 0; i < 30; i++) {
		set[`good${i}`] = `\${ .a + ${i} }`;
		set[`syntax${i}`] = `\${ .a + ${i} | }`;
		set[`undefined${i}`] = `\${ nope${i} }`;
	}
	const answer = await daemon.ask('POST', '/v1/definitions', definition('many-bad', [{ a: { set } }]));
	problem(answer, 400, /syntax error|not defined/);
	equal(answer.json.problems.map(p => p.pointer.split('/').at(-1)).sort(), Object.keys(set).filter(name => !name.startsWith('good')).sort(), 'pointers');
	// A chain of 8,000 filters is more than jq takes; should it take it, it is good.
	const crash = { ...Object.fromEntries(Object.entries(set).filter(([name]) => name.startsWith('good'))), bad: `\${ ${'[.a] | '.repeat(8000)} 1 }` };
	const found = await daemon.ask('POST', '/v1/definitions', definition('one-bad', [{ a: { set: crash } }]), { timeoutMs: 180_000 });
	if (found.status !== 201) {
		problem(found, 400, /jq|memory|syntax/);
		equal(found.json.problems.map(p => p.pointer), ['/do/0/a/set/bad'], 'pointers');
	}
	equal(daemon.child?.pid, pid, 'the daemon is the same process');
});

await test('jq in conditions of tasks and in switches', async () => {
	const tasks = [
		{ no: { if: '.n * 2 > 100', set: { wrong: 1 } } },
		{ choose: { switch: [{ small: { when: '.n + 1 < 3', then: 'wrong' } }, { even: { when: '(.n % 2) == 0', then: 'right' } }] } },
		{ wrong: { set: { wrong: '${ .n + 1 }' } } },
		{ right: { set: { n: '${ .n + 1 }' } } },
	];
	const done = await run(tasks, { n: 4 });
	equal(done.status, 'completed', JSON.stringify(done.error));
	equal(done.output, { n: 5 }, 'output');
	await replayed(done.id);
});

await test('jq in what catches, and in what is caught', async () => {
	const caught = await run([{ t: {
		try: [{ a: { set: { v: '${ .n + "x" }' } } }],
		catch: { as: 'e', when: '$e.status + 0 == 400', do: [{ c: { set: { got: '${ $e.type | split("/") | last }', s: '${ $e.status + 1 }' } } }] },
	} }], { n: 1 });
	equal(caught.output, { got: 'expression', s: 401 }, JSON.stringify(caught.error));
	await replayed(caught.id);
	const retried = await run([{ t: {
		try: [{ a: { raise: { error: { type: 'https://tests.example/e', status: 500, title: '${ "n is \\(.n)" }' } } } }],
		catch: { exceptWhen: '.status + 0 == 404', retry: { delay: { milliseconds: 5 }, limit: { attempt: { count: 2 } } }, do: [{ c: { set: { ok: '${ [1, 2] | add }' } } }] },
	} }], { n: 1 });
	equal(retried.output, { ok: 3 }, JSON.stringify(retried.error));
	await replayed(retried.id);
});

await test('the command line says the same offline', async () => {
	const file = join(daemon.folder, 'bad.yaml');
	writeFileSync(file, `document: {dsl: '1.0.3', namespace: tests, name: broken, version: '1.0.0'}\ndo:\n  - a: {set: {v: '\${ .x | pick(.a) }'}}\n`);
	const result = daemon.cli('definition', 'validate', file, '-o', 'json');
	equal(result.code, 1, result.stderr);
	const [bad] = result.json().files[0].problems;
	equal([bad.pointer, bad.line, bad.column], ['/do/0/a/set/v', 3, 18], 'place');
	match(bad.hint, /pick\/1 needs jq 1\.7/, 'hint');
	writeFileSync(file, `document: {dsl: '1.0.3', namespace: tests, name: good, version: '1.0.0'}\ndo:\n  - a: {set: {v: '\${ .x | map(.a) }'}}\n`);
	equal(daemon.cli('definition', 'validate', file).code, 0, 'a good one');
});

await test('a definition with 100 jq expressions is registered, and its run completes', async () => {
	const set = {};
	for (let i = 0; i < 100; i++)
		set[`v${i}`] = `\${ .n + ${i} | {sum: ., text: "\\(.)"} }`;
	const document = definition('hundred', [{ a: { set } }]);
	await daemon.post('/v1/definitions', document, 201);
	const done = await daemon.post('/v1/runs?wait=60s&include=output', { definition: 'tests/hundred:1.0.0', input: { n: 1 } }, 201);
	equal(done.status, 'completed', JSON.stringify(done.error));
	equal(done.output.v99, { sum: 100, text: '100' }, 'output');
});

await test('expressions survive a kill -9 of the daemon: the run goes on and its replay is equal', async () => {
	await daemon.post('/v1/runs', { id: 'killed', definition: definition('killed', [
		{ loop: { for: { in: '[range(400)]' }, do: [{ up: { set: { n: '${ (.n // 0) + 1 }' } } }] } },
	]), input: {} }, 201);
	await pause(150);
	await daemon.kill();
	await daemon.start();
	const done = await daemon.ended('killed');
	equal(done.output, { n: 400 }, 'output');
	await replayed('killed');
});

await test('metrics tell of the helpers: how many there are, what they answered, what died of it', async () => {
	const figures = async () => Object.fromEntries(await Promise.all(['helpers', 'working', 'waiting', 'started_total', 'answered_total', 'killed_total', 'died_total', 'retired_total', 'refused_total']
		.map(async name => [name, await daemon.metric(`reprise_jq_${name}`)])));
	await evaluate('1 + 1');
	let before;
	await until('as many helpers as there are processes', async () => (before = await figures()).helpers === helpers().length && before.helpers > 0);
	await evaluate('2 + 2 + .', 3);
	await evaluate('last(range(infinite))');
	await evaluate('[1,2]|.[nan:1]');
	const after = await figures();
	check(after.answered_total > before.answered_total && after.killed_total === before.killed_total + 1 && after.died_total === before.died_total + 1, () => JSON.stringify([before, after]));
	await evaluate('3 + 3 + .', 4); /* one is left; the next that waits for it has another started */
	await Promise.all([evaluate('4 + 4 + .', 5), evaluate('5 + 5 + .', 6)]);
	await until('others were started', async () => (await figures()).started_total > before.started_total);
	equal((await figures()).waiting, 0, 'waiting');
});

await test('no helper outlives the daemon', async () => {
	const now = daemon.pid;
	await evaluate('[1] | add');
	await daemon.stop();
	await until('all helpers of it are gone', () => readdirSync('/proc').filter(name => /^\d+$/.test(name)).every(name => {
		try {
			const [, comm, parent] = readFileSync(`/proc/${name}/stat`, 'utf8').match(/^\d+ \((.*)\) \S (\d+)/);
			return comm !== 'reprise-jq' || Number(parent) !== now;
		} catch {
			return true;
		}
	}));
});

await finish();
