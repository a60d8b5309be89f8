// A run whose deciding stops the daemon, by a CHECK or by a fault of memory: after ENGINE_RECOVERY_TRIES such stops the next start puts it into
// quarantine with its reason, untouched, and all others go on. Needs a build with -Dfail_points=true.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Daemon, check, definition, equal, exitOf, finish, firstLine, match, test, until } from '../support/harness.mjs';

const TRIES = 3;
const waits = ms => [{ rest: { wait: { milliseconds: ms } } }, { say: { set: { done: true } } }];
const listens = [{ hear: { listen: { to: { one: { with: { type: 'it' } } } } } }];
const start = (daemon, id, tasks) => daemon.post('/v1/runs', { id, definition: definition('it', tasks), input: null }, 201);
const words = daemon => { const path = join(daemon.data, 'last-words'); return existsSync(path) ? readFileSync(path, 'utf8') : ''; };

// A start that the poisoned run stops; how it ended.
async function stopped(daemon) {
	const child = daemon.launch();
	await firstLine(child, 'reprised').catch(() => {});
	return { ...await exitOf(child), said: child.errors };
}

for (const [how, trigger, signal] of [['a CHECK', 'poor', 'SIGABRT'], ['a fault of memory', 'poor:segv', 'SIGSEGV']])
	await test(`a run whose deciding ends in ${how} comes into quarantine, and others complete`, async () => {
		const daemon = new Daemon('quarantine');
		await daemon.start();
		await start(daemon, 'poor', listens);
		await start(daemon, 'good', waits(1500));
		await start(daemon, 'other', listens);
		await daemon.kill();
		daemon.env = { REPRISE_FAIL_RUN: trigger };
		for (let i = 1; i <= TRIES; i++) {
			const end = await stopped(daemon);
			check(end.signal === signal || /Sanitizer/.test(end.said), () => `start ${i} ended with ${JSON.stringify(end)}`);
			equal(words(daemon), 'poor\n'.repeat(i), `last words of start ${i}`);
		}
		await daemon.start();
		equal((await daemon.ended('good')).status, 'completed', 'the other one');
		const [poor] = await until('quarantine', async () => { const { runs } = await daemon.get('/v1/runs?status=suspended'); return runs.length && runs; });
		equal([poor.id, poor.quarantined], ['poor', true], 'listed');
		match(poor.reason, /run poor was being decided each of the 3 times that a mistake of the daemon's own stopped it/, 'with the reason');
		equal(await daemon.metric('reprise_runs_quarantined'), 1, 'alarm');
		equal(words(daemon), '', 'counted anew');
		equal(daemon.cli('send', '{"type": "it", "source": "test", "id": "1"}').code, 0, 'send');
		equal((await daemon.ended('other')).status, 'completed', 'one that waited for it');
		await daemon.kill();
		await daemon.start();
		equal((await daemon.get('/v1/runs/poor')).status, 'suspended', 'it stays there');
		await daemon.kill();
		daemon.env = {}; // another version of the daemon, say
		await daemon.start();
		equal((await daemon.post('/v1/runs/poor/resume', {}, 200)).status !== 'suspended', true, 'resumed');
		equal((await daemon.ended('poor')).status, 'completed', 'what came meanwhile is heard');
		equal(daemon.cli('replay', '--all').code, 0, 'replay');
		daemon.verifyJournal();
		await daemon.stop();
	});

await test('a run that stops the daemon in the middle of its work is counted too; a stop that is asked for begins the count anew', async () => {
	const daemon = new Daemon('quarantine');
	await daemon.start();
	await start(daemon, 'poor', waits(1200));
	await daemon.kill();
	daemon.env = { REPRISE_FAIL_RUN: 'poor' };
	for (let i = 1; i <= TRIES; i++) {
		if (i === TRIES) {
			daemon.env = {};
			writeFileSync(join(daemon.data, 'last-words'), words(daemon) + 'somebody\n'.repeat(1000)); // more than is read
			await daemon.start();
			equal(words(daemon), '', 'a file that is too long begins anew');
			await daemon.stop();
			equal(words(daemon), '', 'after a clean stop');
			break;
		}
		await stopped(daemon); // it only waits, so the start does not decide it: its time does
		equal(words(daemon), 'poor\n'.repeat(i), 'last words');
	}
	await daemon.start();
	equal((await daemon.ended('poor')).status, 'completed', 'in the end');
	await daemon.stop();
});

await finish();
