// A decision costs the same early and late in a long run (C47): instructions of the loop for the second and for the last stretch of a loop's iterations,
// counted by Callgrind. The difference of two lengths of run, so that start and end do not count. Needs valgrind and a build without sanitizers.
import { chmodSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Daemon, check, definition, equal, finish, folder, programs, test } from '../support/harness.mjs';

const LENGTHS = [4000, 8000, 16_000, 20_000], MORE_AT_MOST = 1.05;
const loop = definition('history', [{ outer: { for: { each: 'a', in: '$workflow.input.outer' }, do: [
	{ inner: { for: { each: 'b', in: '$workflow.input.inner' }, do: [{ step: { set: { n: '${ $b }', a: '${ $a }' } } }] } }] } }]);

async function count(length) {
	const place = folder('instructions'), wrapper = join(place, 'reprised'), real = programs.daemon;
	writeFileSync(wrapper, `#!/bin/sh\nexec valgrind -q --tool=callgrind --separate-threads=yes --callgrind-out-file='${place}/out' '${real}' "$@"\n`);
	chmodSync(wrapper, 0o755);
	programs.daemon = wrapper;
	const daemon = new Daemon('history');
	await daemon.start();
	await daemon.post('/v1/runs', { definition: loop, input: { outer: [...Array(length / 1000).keys()], inner: [...Array(1000).keys()] }, id: 'long' }, 201);
	for (let status = 'running'; status === 'running';)
		({ status } = await daemon.get('/v1/runs/long?wait=30s'));
	equal((await daemon.get('/v1/runs/long')).status, 'completed', 'status');
	await daemon.stop();
	programs.daemon = real;
	for (const name of readdirSync(place).filter(name => /^out-\d+$/.test(name))) {
		const text = readFileSync(join(place, name), 'utf8');
		if (/ main$/m.test(text))
			return Number(text.match(/^(?:summary|totals): (\d+)/m)[1]);
	}
	throw new Error('no counts of the loop');
}

const counts = [];
for (const length of LENGTHS)
	counts.push(await count(length));
const early = (counts[1] - counts[0]) / (LENGTHS[1] - LENGTHS[0]), late = (counts[3] - counts[2]) / (LENGTHS[3] - LENGTHS[2]);
console.log(`loop: ${Math.round(early)} instructions for an iteration early, ${Math.round(late)} late in the run`);
await test('an iteration late in a long run costs the loop no more instructions than one early in it', () => {
	check(early > 10_000 && late > 10_000, `${early}, ${late}: this cannot be what an iteration costs; is the count right?`);
	check(late <= early * MORE_AT_MOST, `${Math.round(late)} late, ${Math.round(early)} early: at most ${MORE_AT_MOST} times as many`);
});
await finish();
