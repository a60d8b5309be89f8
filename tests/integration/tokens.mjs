// Live tokens: what models write, by attempt and offset, from the simulated runtime to the command line.
import { spawn } from 'node:child_process';
import { request } from 'node:http';
import { Daemon, check, definition, documentOf, equal, extractionOf, finish, match, problem, programs, startSimulator, test, until } from '../support/harness.mjs';

const sim = await startSimulator();
const daemon = new Daemon('tokens', { runtimes: { r: { kind: 'simulator', url: sim.url, model: 'reprise-sim', concurrency: 4, timeouts: { firstToken: '10m', betweenTokens: '10m', total: '1h' }, retry: { attempts: 3, floor: '10ms', cap: '50ms' } } } });
await daemon.start();
const infer = (id, more = {}) => daemon.post('/v1/runs', { id, definition: definition(id, [{ answer: { call: 'inference', with: { runtime: 'r', prompt: 'Say it.' } } }]), input: {}, ...more }, 201);
const text = Array.from({ length: 60 }, (_, i) => `Wörter ${i} `).join('');
const say = (more = {}) => sim.script({ answer: { mode: 'fixed', answers: [{ text, reasoning: 'Let me think. ' }] }, cadence: { firstByteMs: 20, chunkMs: 5, tokensPerChunk: 2, splitUtf8: true }, ...more });

// Every event of the stream until it ends, or until `enough` says so.
const watch = (id, query = '', enough = () => false) => new Promise((done, fail) => {
	const events = [];
	let rest = '';
	const asked = request({ socketPath: daemon.socket, path: `/v1/runs/${id}/tokens${query}`, headers: { Accept: 'text/event-stream' } }, answer => {
		answer.setEncoding('utf8');
		answer.on('data', data => {
			rest += data;
			for (let at; (at = rest.indexOf('\n\n')) >= 0; rest = rest.slice(at + 2)) {
				const lines = Object.fromEntries(rest.slice(0, at).split('\n').filter(line => !line.startsWith(':')).map(line => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 2)]));
				if (lines.event)
					events.push({ event: lines.event, ...JSON.parse(lines.data) });
			}
			if (enough(events)) {
				asked.destroy();
				done(events);
			}
		});
		answer.on('end', () => done(events));
	});
	asked.on('error', error => enough(events) || fail(error));
	asked.end();
});
const joined = (events, kind, attempt = 1) => events.filter(event => event.event === kind && event.attempt === attempt).map(event => event.text).join('');
const inOrder = (events, kind, attempt = 1) => {
	let offset = 0;
	for (const event of events.filter(event => event.event === kind && event.attempt === attempt)) {
		equal(event.offset, offset, `${kind} goes on where it was`);
		offset += Buffer.byteLength(event.text);
	}
};

await test('a stream shows the text as it comes, whole, in order, and ends with the run', async () => {
	await say();
	await infer('live');
	const events = await watch('live');
	equal([events[0].event, events[0].step, events[0].attempt], ['attempt', '/do/0/answer@1', 1], 'the first event');
	equal([joined(events, 'text'), joined(events, 'reasoning')], [text, 'Let me think. '], 'all of it');
	inOrder(events, 'text');
	check(events.filter(event => event.event === 'text').length > 10, 'in many pieces');
	equal([events.at(-1).event, events.at(-1).outcome], ['end', 'answered'], 'the last event');
	equal((await daemon.ended('live')).output.text, text, 'the answer');
});

await test('who comes late, or again, has all of it; the texts of an ended run are there until others need the room', async () => {
	await say({ cadence: { firstByteMs: 20, chunkMs: 5, tokensPerChunk: 2, splitUtf8: true, pauseMs: 3_600_000 } }); // in its middle it waits to be let go
	await infer('late');
	await until('half of it', async () => (await daemon.get('/v1/runs/late/tokens')).attempts[0]?.text.length > text.length / 3, 10_000, 5);
	equal((await daemon.get('/v1/runs/late/tokens')).attempts[0].ended, false, 'under way');
	const both = Promise.all([watch('late'), watch('late', '?step=%2Fdo%2F0%2Fanswer%401')]);
	await until('both watch', async () => await daemon.metric('reprise_http_streams') === 2);
	await until('its middle', async () => (await daemon.get('/v1/runs/late/tokens')).attempts[0].text.length >= text.length / 2);
	await sim.release({});
	const [first, second] = await both;
	for (const events of [first, second])
		equal(joined(events, 'text'), text, 'all of it');
	equal(await watch('late', '?step=%2Fdo%2F0%2Fother%401'), [], 'another step has none');
	const { attempts } = await daemon.get('/v1/runs/late/tokens');
	equal([attempts.length, attempts[0].text, attempts[0].reasoning, attempts[0].ended, attempts[0].outcome, attempts[0].offset], [1, text, 'Let me think. ', true, 'answered', 0], 'afterwards');
	equal(joined(await watch('late'), 'text'), text, 'and as a stream');
});

await test('an attempt that breaks off and is begun anew has its own beginning', async () => {
	await say({ faults: [{ on: 1, kind: 'reset', afterBytes: 3000 }] });
	await infer('again');
	const events = await watch('again');
	equal(events.filter(event => event.event === 'attempt').map(event => event.attempt), [1, 2], 'two attempts');
	const first = joined(events, 'text', 1);
	check(first.length > 0 && first.length < text.length && text.startsWith(first), `the first one's part: ${first.length}`);
	equal(joined(events, 'text', 2), text, 'the second one\'s text');
	inOrder(events, 'text', 2);
	equal(events.filter(event => event.event === 'end').map(event => event.outcome), ['runtime-error', 'answered'], 'ends');
});

await test('after kill -9 a watcher has the new attempt; the command line follows over it', async () => {
	await say({ cadence: { firstByteMs: 20, chunkMs: 5, tokensPerChunk: 2, pauseMs: 3_600_000 } }); // it is killed in the middle of the answer
	await infer('killed');
	const child = spawn(programs.cli, ['--socket', daemon.socket, 'tokens', 'killed', '-f', '-o', 'jsonl'], { stdio: ['ignore', 'pipe', 'inherit'] });
	let out = '';
	child.stdout.on('data', data => { out += data; });
	const ended = new Promise(done => child.on('close', done));
	await until('it writes', () => out.includes('"event":"text"'));
	await daemon.kill();
	await say();
	await daemon.start();
	equal(await ended, 0, 'exit');
	const events = out.trim().split('\n').map(line => JSON.parse(line));
	equal(events.filter(event => event.event === 'attempt').map(event => event.attempt), [1, 2], `attempts (${JSON.stringify((await daemon.events('killed')).filter(entry => entry.kind === 'attempt.failed'))})`);
	equal(joined(events, 'text', 2), text, 'the second one');
	equal((await daemon.ended('killed')).output.text, text, 'the answer');
});

await test('as text: the place, the words, side by side where sections are asked at once', async () => {
	await sim.script({});
	await daemon.post('/v1/runs?wait=20s', { id: 'sections', definition: extractionOf('r'), input: { document: documentOf(3) } }, 201);
	const shown = daemon.cli('tokens', 'sections');
	equal(shown.code, 0, 'exit');
	equal([...shown.stdout.matchAll(/^\/do\/0\/facts\/do\/1\/extract\/do\/0\/section#(\d)@1, attempt 1$/gm)].map(found => found[1]).sort(), ['0', '1', '2'], 'places');
	equal([...shown.stdout.matchAll(/^\{"facts":\[\{/gm)].length, 3, 'answers');
	await say();
	await infer('shown');
	await daemon.ended('shown');
	match(daemon.cli('tokens', 'shown').stdout, /^\/do\/0\/answer@1, attempt 1 \(reasoning\)\nLet me think\. \n\n\/do\/0\/answer@1, attempt 1\nWörter 0 /, 'reasoning apart');
	await daemon.post('/v1/runs?wait=20s', { id: 'pure', definition: definition('pure', [{ a: { set: { b: 1 } } }]), input: {} }, 201);
	match(daemon.cli('tokens', 'pure').stderr, /has no tokens of run pure/, 'a run without any');
	equal([daemon.cli('tokens', 'shown', '-o', 'ids').stdout, daemon.cli('tokens', 'shown', '-f', '-o', 'ids').stdout], ['/do/0/answer@1\n', '/do/0/answer@1\n'], 'ids are those of tasks');
	match(daemon.cli('tokens', 'shown', '--step', 'answer').stderr, /no tokens of task answer of run shown; `reprise tokens shown -o ids` names/, 'another task');
	equal(daemon.cli('tokens', 'nobody').code, 4, 'no such run');
	problem(await daemon.ask('GET', '/v1/runs/nobody/tokens'), 404, /nobody/);
	problem(await daemon.ask('GET', '/v1/runs/shown/tokens?what=1'), 400, /what/);
});

await test('a watcher that does not read holds up nobody, and has what is there when it reads again', async () => {
	const long = Array.from({ length: 1 << 17 }, (_, i) => `${i}`.padStart(8)).join('');
	const asked = request({ socketPath: daemon.socket, path: '/v1/runs/slow/tokens', headers: { Accept: 'text/event-stream' } });
	await sim.script({ answer: { mode: 'fixed', answers: [{ text: `${long}${long}` }] }, cadence: { firstByteMs: 300, tokensPerChunk: 4096 } });
	await infer('slow');
	const answer = await new Promise(done => { asked.on('response', done); asked.end(); });
	answer.pause();
	equal((await daemon.ended('slow', 20_000)).status, 'completed', 'the run');
	const { attempts } = await daemon.get('/v1/runs/slow/tokens');
	check(attempts[0].offset > 0 && attempts[0].offset + attempts[0].text.length === 2 << 20, `the front is gone: ${attempts[0].offset}`);
	check(attempts[0].text.length <= 1 << 20, 'within the limit of one attempt (TOKEN_ATTEMPT_MAX)');
	let got = '';
	answer.on('data', data => { got += data; });
	answer.resume();
	await new Promise(done => answer.on('end', done));
	match(got, /event: end\ndata: \{[^\n]*"outcome":"answered"/, 'it comes to the end');
	const pieces = [...got.matchAll(/^data: (\{.*"offset".*\})$/gm)].map(found => JSON.parse(found[1]));
	equal(pieces.at(-1).offset + pieces.at(-1).text.length, 2 << 20, 'the last piece is the last');
});

await daemon.stop();
await sim.stop();
await finish();
