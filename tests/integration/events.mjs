// CloudEvents on the real daemon: in, in both modes and once each; out, on the feed; over restarts and SIGKILL.
import { Daemon, check, definition, equal, finish, match, pause, problem, random, seedOf, test, until } from '../support/harness.mjs';

const draw = random(seedOf(12));
const event = (id, more = {}) => ({ specversion: '1.0', id: String(id), source: '/tests', type: 'com.example.test', ...more });
const structured = { headers: { 'Content-Type': 'application/cloudevents+json' } };
const journalOf = async (daemon, kind) => (await daemon.journal()).map(e => e.entry ?? e).map(e => typeof e === 'string' ? JSON.parse(e) : e).filter(e => e.kind === kind);

// Everything on the feed, page by page.
async function feed(daemon, limit = 7) {
	const list = [];
	for (let after = 0;;) {
		const page = await daemon.get(`/v1/events?after=${after}&limit=${limit}`);
		list.push(...page.events);
		if (page.next === after)
			return list;
		after = page.next;
	}
}

await test('an event is taken in both modes, once for its source and id, and what was acknowledged survives SIGKILL', async () => {
	const daemon = new Daemon('events');
	await daemon.start();
	const first = await daemon.post('/v1/events', event(1, { data: { a: 1 } }), 201, structured);
	equal([first.id, first.source, first.duplicate], ['1', '/tests', false], 'the answer');
	const again = await daemon.post('/v1/events', event(1, { type: 'other', data: 'other' }), 200, structured);
	equal([again.seq, again.duplicate], [first.seq, true], 'the answer to a duplicate');
	const headers = { 'ce-specversion': '1.0', 'ce-id': '1', 'ce-source': '/tests', 'ce-type': 'com.example.test', 'Content-Type': 'text/plain' };
	equal((await daemon.post('/v1/events', 'hello', 200, { headers })).seq, first.seq, 'in binary mode it is the same one');
	await daemon.post('/v1/events', 'hello', 201, { headers: { ...headers, 'ce-id': '2' } });
	await daemon.post('/v1/events', Buffer.alloc(0), 201, { headers: { ...headers, 'ce-id': '3', 'ce-source': '/a%20b'.replace('%20', '-') } });
	await daemon.kill();
	await daemon.start();
	equal((await daemon.post('/v1/events', event(1), 200, structured)).seq, first.seq, 'after SIGKILL it is known');
	await daemon.post('/v1/events', event(2), 200, structured);
	equal((await journalOf(daemon, 'event.received')).length, 3, 'entries');
	check(!JSON.stringify(await journalOf(daemon, 'event.received')).includes('com.example'), 'an entry holds digests alone');
	daemon.verifyJournal();
	await daemon.stop();
});

await test('twenty senders of the same hundred events: each is kept once, over three kills', async () => {
	const daemon = new Daemon('events');
	await daemon.start();
	let done = false;
	const sender = async () => {
		for (let id = 0; id < 100;) {
			const answer = await daemon.ask('POST', '/v1/events', event(id), structured);
			if (answer.status === 201 || answer.status === 200)
				id++;
			else
				await pause(20);
		}
	};
	const killer = (async () => {
		for (let i = 0; i < 3 && !done; i++) {
			await pause(100 + draw() * 200);
			await daemon.kill();
			await daemon.start();
		}
	})();
	await Promise.all(Array.from({ length: 20 }, sender));
	done = true;
	await killer;
	equal((await journalOf(daemon, 'event.received')).length, 100, 'events');
	await daemon.stop();
});

await test('what is no event is refused with a problem that says why', async () => {
	const daemon = new Daemon('events');
	await daemon.start();
	const refused = async (body, options, status, pattern) => problem(await daemon.ask('POST', '/v1/events', body, options), status, pattern);
	await refused('{', structured, 400, /json-syntax/);
	await refused({ ...event(1), type: undefined }, structured, 400, /'type' is missing/);
	await refused(event(1, { specversion: '0.3' }), structured, 400, /only 1\.0/);
	await refused(event(1, { Bad: 'x' }), structured, 400, /'Bad' is no attribute name/);
	await refused([event(1)], structured, 415, /one event at a time/);
	await refused([event(1)], { headers: { 'Content-Type': 'application/cloudevents-batch+json' } }, 415, /one event at a time/);
	await refused('<x/>', { headers: { 'Content-Type': 'application/xml' } }, 415, /no CloudEvent/);
	await refused('x', { headers: { 'Content-Type': 'text/plain', 'ce-id': '1' } }, 400, /is missing/);
	await refused(event(1, { data: 'x'.repeat(1 << 20) }), structured, 413, /1048576/);
	equal((await journalOf(daemon, 'event.received')).length, 0, 'entries');
	const large = event(1, { data: 'x'.repeat((1 << 20) - 200) });
	await daemon.post('/v1/events', large, 201, structured);
	await daemon.stop();
});

await test('reprise send fills in what is left out, reads files, and says when an event is known', async () => {
	const daemon = new Daemon('events');
	await daemon.start();
	const sent = daemon.cli('send', '{"type": "t", "data": {"a": 1}}', '-o', 'json');
	equal(sent.code, 0, sent.stderr);
	equal(sent.json().duplicate, false, 'duplicate');
	const whole = JSON.stringify(event('x'));
	match(daemon.cli('send', '-', { input: whole }).stdout, /^x {2}com\.example\.test\n$/, 'text');
	match(daemon.cli('send', whole).stdout, /known already/, 'text of a duplicate');
	equal(daemon.cli('send', whole, '-o', 'ids').stdout, 'x\n', 'ids');
	const wrong = daemon.cli('send', '{"data": 1}');
	equal(wrong.code, 2, 'exit status');
	match(wrong.stderr, /'type' is missing/, 'message');
	equal((await journalOf(daemon, 'event.received')).length, 2, 'entries');
	await daemon.stop();
	equal(daemon.cli('send', '{"type": "t"}').code, 6, 'exit status without a daemon');
});

await test('the feed has the lifecycle of each run, complete and in order, page by page and as a stream, and nothing that only came in', async () => {
	const daemon = new Daemon('events');
	await daemon.start();
	await daemon.post('/v1/events', event(1), 201, structured);
	await daemon.post('/v1/runs', { id: 'good', definition: definition('good', [{ one: { set: { a: 1 } } }, { two: { wait: { milliseconds: 10 } } }]) }, 201);
	await daemon.ended('good');
	await daemon.post('/v1/runs', { id: 'bad', definition: definition('bad', [{ fails: { raise: { error: { type: 'https://example.com/e', status: 500, title: 'no' } } } }]) }, 201);
	await daemon.ended('bad');
	await daemon.post('/v1/runs', { id: 'long', definition: definition('long', [{ one: { wait: { hours: 1 } } }]) }, 201);
	await daemon.post('/v1/runs/long/cancel', {}, [200, 202]);
	await daemon.ended('long');
	const all = await feed(daemon), of = run => all.filter(e => e.subject === run).map(e => e.type.replace(/^io\.serverlessworkflow\.|\.v1$/g, ''));
	equal(of('good'), ['workflow.started', 'task.created', 'task.started', 'task.completed', 'task.created', 'task.started', 'task.completed', 'workflow.completed'], 'good');
	equal(of('long'), ['workflow.started', 'task.created', 'task.started', 'task.cancelled', 'workflow.cancelled'], 'long');
	equal(of('bad').filter(t => !/created|started/.test(t)), ['task.faulted', 'workflow.faulted'], 'bad');
	equal(new Set(all.map(e => `${e.source} ${e.id}`)).size, all.length, 'each has an id of its own');
	check(all.every(e => e.specversion === '1.0' && e.source.startsWith('https://') && !Number.isNaN(Date.parse(e.time))), 'all are CloudEvents');
	const last = type => all.findLast(e => e.type === `io.serverlessworkflow.${type}.v1`).data;
	equal([last('workflow.faulted').error.type, last('workflow.faulted').error.status], ['https://example.com/e', 500], 'the error stands in the event');
	equal(last('task.faulted').task, '/do/0/fails', 'task');
	equal(all.find(e => e.type.endsWith('task.completed.v1')).data.output, { a: 1 }, 'output');
	equal((await daemon.run('good')).events.length, 8, 'the run document has them too');
	const stream = await daemon.ask('GET', '/v1/events', undefined, { headers: { Accept: 'text/event-stream' }, timeoutMs: 1500 });
	equal(stream.text.split('\n').filter(line => line.startsWith('data: ')).map(line => JSON.parse(line.slice(6)).id), all.map(e => e.id), 'the stream has the same');
	await daemon.stop();
});

await finish();
