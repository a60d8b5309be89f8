// How many instructions a run of one inference costs the loop and the writer, counted by Callgrind: unlike times, counts repeat.
// The difference of two lengths of `reprise bench overhead`, so that the start does not count. Needs valgrind and a build
// without sanitizers.
import { chmodSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { spawnSync } from 'node:child_process';
import { check, finish, folder, programs, test } from '../support/harness.mjs';

// Some 3 to 4 % above what was counted on Debian 12. Nettle's instructions for SHA-256 are unknown to Valgrind, so each count holds
// the slower way. Whoever makes something cheaper lowers the number.
const LIMITS = { loop: 970_000, writer: 570_000 };
const RUNS = [40, 140];

function count(runs) {
	const place = folder('instructions'), wrapper = join(place, 'reprised');
	writeFileSync(wrapper, `#!/bin/sh\nexec valgrind -q --tool=callgrind --separate-threads=yes --callgrind-out-file='${place}/out' '${programs.daemon}' "$@"\n`);
	chmodSync(wrapper, 0o755);
	const bench = spawnSync(programs.cli, ['bench', 'overhead', '--runs', String(runs), '--reprised', wrapper, '--sim', programs.sim, '-o', 'json'],
		{ encoding: 'utf8', timeout: 900_000 });
	check(bench.status === 0, () => `bench overhead: exit ${bench.status}: ${bench.stderr.slice(-500)}`);
	const counts = {};
	for (const name of readdirSync(place).filter(name => /^out-\d+$/.test(name))) {
		const text = readFileSync(join(place, name), 'utf8');
		const thread = / main$/m.test(text) ? 'loop' : / commit_batch$/m.test(text) ? 'writer' : null;
		if (thread)
			counts[thread] = Number(text.match(/^(?:summary|totals): (\d+)/m)[1]);
	}
	return counts;
}

const [few, many] = RUNS.map(count);
for (const [thread, limit] of Object.entries(LIMITS)) {
	const each = Math.round((many[thread] - few[thread]) / (RUNS[1] - RUNS[0]));
	console.log(`${thread}: ${each} instructions for a run of one inference (limit ${limit})`);
	await test(`the ${thread} spends no more instructions on a run than its limit`, () => {
		check(each > limit / 10, `${each}: this cannot be what a run costs; is the count right?`);
		check(each <= limit, `${each} instructions, at most ${limit}`);
	});
}
await finish();
