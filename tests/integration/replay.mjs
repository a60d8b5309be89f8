// Replay finds what the interpreter decides otherwise: the entry, the task with its place in the definition, and the members that differ; others go on.
import { join } from 'node:path';
import { Daemon, check, equal, finish, match, problem, sqlite, test } from '../support/harness.mjs';

const yaml = name => `document: {dsl: '1.0.3', namespace: tests, name: ${name}, version: '1.0.0'}
do:
  - choose:
      switch:
        - low: {when: .n < 10, then: small}
        - high: {then: large}
  - small: {set: {is: small}, then: end}
  - large: {set: {is: large}}
`;

const daemon = new Daemon('replay', {});
await daemon.start();
const sql = text => sqlite(join(daemon.data, 'journal.db'), text);

await test('a branch that is not the one on record is told with the task, its line and column, and what differs', async () => {
	const added = await daemon.ask('POST', '/v1/definitions', yaml('chooses'), { headers: { 'Content-Type': 'application/yaml' } });
	equal(added.status, 201, added.text);
	for (let n = 0; n < 20; n++)
		equal((await daemon.post('/v1/runs?wait=20s&include=all', { id: `run-${n}`, definition: 'tests/chooses:1.0.0', input: { n } }, 201)).output, { is: n < 10 ? 'small' : 'large' }, `run ${n}`);
	const all = daemon.cli('replay', '--all');
	equal(all.code, 0, all.stderr);
	match(all.stderr, /20 runs replayed, \d+ entries, no model was called: 0 differ/, 'all');
	// The entry is made to say the other branch, as a faulty interpreter would have: both names have five letters.
	const seq = sql(`SELECT seq FROM entry WHERE instr(bytes, '"runId":"run-3"') AND instr(bytes, '"then":"small"')`);
	check(/^\d+$/.test(seq), `one entry has the branch (${seq})`);
	sql(`DROP TRIGGER entry_update; UPDATE entry SET bytes = CAST(replace(CAST(bytes AS TEXT), '"then":"small"', '"then":"large"') AS BLOB) WHERE seq = ${seq}`);
	const one = daemon.cli('replay', 'run-3');
	equal(one.code, 20, one.stderr);
	match(one.stderr, new RegExp(`run run-3: replay differs at entry ${seq}, /do/0/choose \\(line 3, column 5 of the definition\\)`), 'where');
	match(one.stderr, /then: expected large, got small/, 'what');
	check(!/runId|stepId/.test(one.stderr), `what is the same is left out: ${one.stderr}`);
	const json = JSON.parse(daemon.cli('replay', 'run-3', '-o', 'json').stdout);
	equal([json.equal, json.difference.seq, json.difference.expected.data.then, json.difference.got.data.then, json.difference.line, json.difference.column], [false, Number(seq), 'large', 'small', 3, 5], 'as JSON');
});

await test('replay --all goes on past what differs and what cannot be replayed, and takes a status and a time', async () => {
	equal(daemon.cli('purge', 'run-5', '--reason', 'test', '--yes').code, 0, 'purge');
	const values = await daemon.get('/v1/runs/run-7?include=all');
	check(values.input.n === 7, 'the input is there');
	const digest = (await daemon.events('run-7'))[0].data.input.sha256;
	equal(daemon.cli('document', 'erase', `sha256:${digest}`, '--reason', 'test', '--yes').code, 0, 'erase');
	const all = daemon.cli('replay', '--all');
	equal(all.code, 20, all.stderr);
	match(all.stderr, /18 runs replayed, \d+ entries, no model was called: 1 differ, 1 could not be replayed/, 'all');
	match(all.stderr, /run-7.*erased|erased.*run-7/s, 'which value and why');
	match(daemon.cli('replay', '--all', '--status', 'faulted').stderr, /0 runs replayed/, 'by status');
	match(daemon.cli('replay', '--all', '--since', '2100-01-01T00:00:00Z').stderr, /0 runs replayed/, 'by time');
	equal(daemon.cli('replay', '--all', '--status', 'strange').code, 2, 'a status that is none');
	problem(await daemon.ask('POST', '/v1/runs/run-5/replay'), 410);
});

await daemon.stop();
await finish();
