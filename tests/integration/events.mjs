// CloudEvents on the real daemon: in, in both modes and once each; out, on the feed; over restarts and SIGKILL.
import http from 'node:http';
import { Daemon, atEnd, check, definition, equal, finish, match, pause, problem, random, seedOf, test, until } from '../support/harness.mjs';

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

// The same as a stream: so many, and what else may come right behind them.
const streamed = (daemon, count) => new Promise((done, fail) => {
	const events = [];
	let rest = '', over = null;
	const asked = http.request({ socketPath: daemon.socket, path: '/v1/events', headers: { Accept: 'text/event-stream' }, agent: false }, answer => {
		answer.setEncoding('utf8');
		answer.on('error', () => {});
		answer.on('data', data => {
			const lines = (rest + data).split('\n');
			rest = lines.pop();
			events.push(...lines.filter(line => line.startsWith('data: ')).map(line => JSON.parse(line.slice(6))));
			if (events.length >= count)
				over ??= setTimeout(() => { asked.destroy(); done(events); }, 300);
		});
		answer.on('end', () => done(events));
	});
	asked.on('error', error => over ?? fail(error));
	asked.end();
});

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
	match(wrong.stderr, /'type' is missing[^]*needs a `type`/, 'message');
	match(daemon.cli('send', '{"type": "t", "Bad": 1}').stderr, /^reprise: CloudEvent: 'Bad' is no attribute name[^\n]*\n$/, 'a hint only where it helps');
	match(daemon.cli('send', 'nothing').stderr, /quotes of its own: '"text"'/, 'no option of another verb');
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
	match(daemon.cli('show', 'long').stdout, /^status +waiting\ncreated [^\n]*\nTASK/m, 'no figures that are none');
	match(daemon.cli('overhead').stdout, /^long +waiting +- +- +- +- /m, 'nor in the list of them');
	match(daemon.cli('overhead', 'long').stderr, /has not ended/, 'nor alone');
	await daemon.post('/v1/runs/long/cancel', {}, [200, 202]);
	await daemon.ended('long');
	match(daemon.cli('show', 'long').stdout, /^overhead +[0-9.]+ ms outside/m, 'figures of a run that has ended');
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
	equal((await streamed(daemon, all.length)).map(e => e.id), all.map(e => e.id), 'the stream has the same');
	await daemon.stop();
});

// A receiver of events: what it answers is up to the test, what it took (status 200) is kept. It can be closed and opened again on its port.
class Receiver {
	constructor() {
		this.taken = [];
		this.seen = 0;
		this.answer = () => 200;
		this.port = 0;
		atEnd(() => this.close());
	}

	async open() {
		this.server = http.createServer((request, response) => {
			let body = '';
			request.on('data', data => { body += data; });
			request.on('end', async () => {
				this.seen++;
				const status = await this.answer(this.seen);
				if (status === 0)
					return request.socket.destroy();
				if (status === 200)
					this.taken.push({ event: JSON.parse(body), headers: request.headers });
				response.writeHead(status, { 'Content-Type': 'application/json' });
				response.end('not json at all');
			});
		});
		await new Promise(done => this.server.listen(this.port, '127.0.0.1', done));
		this.port = this.server.address().port;
	}

	close() {
		this.server?.closeAllConnections();
		this.server?.close();
		this.server = null;
	}

	get ids() {
		return this.taken.map(t => t.event.id);
	}
}

const small = { definition: definition('small', [{ one: { set: { a: 1 } } }]) };
// The first time that each was taken; at least once is the promise, so some may have come again.
const firsts = ids => ids.filter((id, i) => ids.indexOf(id) === i);

await test('a sink gets every event in order although it is down at first, slow, fails and breaks off, and the daemon is killed meanwhile', async () => {
	const receiver = new Receiver();
	await receiver.open();
	receiver.close();
	const daemon = new Daemon('events', { http: { allow: ['127.0.0.0/8'] }, sinks: { audit: { url: `http://127.0.0.1:${receiver.port}/in`, headers: { 'X-Key': 'k' } } } });
	await daemon.start();
	for (let i = 0; i < 5; i++)
		await daemon.post('/v1/runs', { id: `r${i}`, ...small }, 201);
	await daemon.ended('r4');
	await until('a delivery has failed', async () => await daemon.metric('reprise_sink_failures_total') >= 2);
	check(await daemon.metric('reprise_sink_lag_seconds') > 0, 'it lags behind');
	receiver.answer = async n => { await pause(n % 4 === 0 ? 60 : 5); return n % 9 === 3 ? 500 : n % 9 === 6 ? 0 : 200; };
	await receiver.open();
	for (let i = 5; i < 15; i++) {
		await daemon.post('/v1/runs', { id: `r${i}`, ...small }, 201);
		if (i % 4 === 0) {
			await pause(300);
			await daemon.kill();
			await daemon.start();
		}
	}
	receiver.answer = () => 200;
	await daemon.ended('r14');
	const all = (await feed(daemon, 100)).map(e => e.id);
	await until('all have come', () => firsts(receiver.ids).length >= all.length, 60_000);
	equal(firsts(receiver.ids), all, 'in order, none left out');
	check(receiver.taken.every(t => /^application\/cloudevents\+json/.test(t.headers['content-type']) && t.headers['x-key'] === 'k' && t.headers['idempotency-key']), 'headers');
	check(receiver.taken.length <= all.length + 64, `${receiver.taken.length - all.length} came again`);
	await until('the metric says so', async () => await daemon.metric('reprise_sink_lag_seconds') === 0);
	const before = receiver.taken.length;
	await daemon.stop(); /* in order: its place is written, wherever it was */
	await daemon.start();
	await pause(500);
	equal(receiver.taken.length, before, 'nothing comes again after an orderly rest');
	check((await journalOf(daemon, 'sink.advanced')).length < all.length, 'its place is not written for each event');
	const entries = (await daemon.journal()).length;
	await pause(2500);
	equal((await daemon.journal()).length, entries, 'at rest nothing is written');
	daemon.verifyJournal();
	await daemon.stop();
});

await test('a sink gets the types that it asks for, nothing older than itself, and nothing at all where the allow-list says so', async () => {
	const receiver = new Receiver(), forbidden = new Receiver();
	await receiver.open();
	await forbidden.open();
	const daemon = new Daemon('events');
	await daemon.start();
	await daemon.post('/v1/runs', { id: 'before', ...small }, 201);
	await daemon.ended('before');
	await daemon.stop();
	daemon.configure({ http: { allow: ['127.0.0.1'] }, sinks: {
		some: { url: `http://127.0.0.1:${receiver.port}`, types: ['io.serverlessworkflow.workflow.*', 'x'] }, closed: { url: `http://[::1]:${forbidden.port}` } } });
	await daemon.start();
	await pause(300);
	await daemon.post('/v1/runs', { id: 'after', ...small }, 201);
	await until('two have come', () => receiver.taken.length >= 2);
	await until('the other is refused', async () => /sink="closed"\} [1-9]/.test((await daemon.get('/metrics')).split('\n').filter(l => l.includes('sink_failures')).join('\n')));
	await pause(300);
	equal(receiver.taken.map(t => [t.event.subject, t.event.type.replace(/^io\.serverlessworkflow\.|\.v1$/g, '')]), [['after', 'workflow.started'], ['after', 'workflow.completed']], 'what came');
	equal(forbidden.seen, 0, 'at the forbidden one');
	await daemon.stop();
});

await test('a sink is sent secrets in headers and as a bearer token, which stand nowhere else; one that does not list its host starts no daemon', async () => {
	const receiver = new Receiver();
	await receiver.open();
	const url = `http://127.0.0.1:${receiver.port}`;
	const daemon = new Daemon('events', {}, { env: { SINK_KEY: 'key-of-the-sink', SINK_TOKEN: 'token-of-the-sink' } });
	const configured = (sink, hosts = ['127.0.0.1']) => daemon.configure({ http: { allow: ['127.0.0.1'] }, sinks: { audit: { url, ...sink } },
		secrets: { key: { env: 'SINK_KEY', hosts }, token: { env: 'SINK_TOKEN', hosts } } });
	const both = { headers: { 'X-Key': { secret: 'key' }, 'X-Plain': 'seen' }, apiKey: { secret: 'token' } };
	configured(both);
	await daemon.start();
	await daemon.post('/v1/runs', { id: 'told', ...small }, 201);
	await until('it has come', () => receiver.taken.length >= 2);
	equal(receiver.taken.map(t => [t.headers['x-key'], t.headers['x-plain'], t.headers.authorization])[0], ['key-of-the-sink', 'seen', 'Bearer token-of-the-sink'], 'headers');
	const shown = JSON.stringify([await daemon.get('/v1/config'), await daemon.journal(), daemon.child.errors]);
	check(shown.includes('X-Key') && !shown.includes('of-the-sink'), 'neither configuration, journal nor log show them');
	await daemon.stop();
	for (const [sink, hosts, says] of [[both, ['other.example'], /secret 'key' may not be sent to 127\.0\.0\.1/], [both, undefined, /may not be sent to/], [{ apiKey: { secret: 'none' } }, undefined, /there is no secret 'none'/],
		[{ headers: Object.fromEntries(Array.from({ length: 17 }, (_, i) => [`X-${i}`, { secret: 'key' }])) }, ['127.0.0.1'], /CONFIG_SINK_SECRETS_MAX/], [{ apiKey: 'written' }, ['127.0.0.1'], /never written into the configuration/]]) {
		daemon.configure({ http: { allow: ['127.0.0.1'] }, sinks: { audit: { url, ...sink } }, secrets: { key: { env: 'SINK_KEY', ...(hosts ? { hosts } : {}) }, token: { env: 'SINK_TOKEN', ...(hosts ? { hosts } : {}) } } });
		const refused = daemon.launch();
		check((await refused.gone).code !== 0, 'it does not start');
		match(refused.errors, says, 'why');
	}
});

await test('events are known as long as events.keep says, and what is forgotten is an entry of the journal', async () => {
	const daemon = new Daemon('events', { events: { keep: '1s', window: '0s' } });
	await daemon.start();
	const first = await daemon.post('/v1/events', event(1), 201, structured);
	await daemon.post('/v1/events', event(1), 200, structured);
	const again = await until('it is forgotten', async () => {
		const answer = await daemon.ask('POST', '/v1/events', event(1), structured);
		return answer.status === 201 && answer.json;
	});
	check(again.seq > first.seq, 'it is another entry');
	const forgotten = await journalOf(daemon, 'events.forgotten');
	check(forgotten.length >= 1 && forgotten[0].data.before > first.seq, 'the entry says up to which');
	daemon.verifyJournal();
	await daemon.stop();
	const wrong = new Daemon('events', { events: { keep: '1s', window: '1m' } });
	const child = wrong.launch('--check');
	check((await child.gone).code !== 0, 'a window longer than keep is refused');
	match(child.errors + child.output, /shorter than window/, 'message');
});

const listener = (name, to, more = {}) => definition(name, [{ wait: { listen: { to, ...more } } }]);

await test('a listen takes events that were sent or emitted, before it within the window and after it; others of its kind get them too', async () => {
	const daemon = new Daemon('events', { events: { window: '30s' } });
	await daemon.start();
	const send = (id, type, data) => daemon.post('/v1/events', event(id, { type, data }), 201, structured);
	await send('before', 'a', { n: 0 });
	await daemon.post('/v1/runs', { id: 'one', definition: listener('one', { one: { with: { type: 'a' } } }, { read: 'envelope' }) }, 201);
	await daemon.post('/v1/runs', { id: 'two', definition: listener('two', { one: { with: { type: 'a', data: '${ .n > 0 }' } } }) }, 201);
	await daemon.post('/v1/runs', { id: 'jq', definition: listener('jq', { one: { with: { type: 'a', data: '${ (.n | tostring) == "7" }' } } }) }, 201);
	await daemon.post('/v1/runs', { id: 'all', definition: listener('all', { all: [{ with: { type: 'b' } }, { with: { type: 'out' } }] }) }, 201);
	equal((await daemon.ended('one')).output.map(e => e.id), ['before'], 'what was there before');
	await send('7', 'a', { n: 7 });
	equal((await daemon.ended('two')).output, [{ n: 7 }], 'what came after');
	equal((await daemon.ended('jq')).output, [{ n: 7 }], 'by jq');
	await send('b', 'b', 'text');
	await daemon.post('/v1/runs', { id: 'emits', definition: definition('emits', [{ tell: { emit: { event: { with: { source: 'urn:x', type: 'out', data: { from: '${ $workflow.id }' } } } } } }]) }, 201);
	const emitted = await daemon.ended('emits');
	equal((await daemon.ended('all')).output, ['text', { from: 'emits' }], 'sent and emitted');
	const consumed = await journalOf(daemon, 'event.consumed');
	match(daemon.cli('events', 'all').stdout, new RegExp(`event.consumed +/do/0/wait@1 {2}event ${consumed.findLast(e => e.data.runId === 'all').data.eventSeq}\\n`), 'which event');
	const told = (await feed(daemon, 100)).find(e => e.type === 'out');
	equal([told.source, told.data], ['urn:x', { from: 'emits' }], 'on the feed');
	equal(emitted.events.filter(e => e.type === 'out').map(e => e.id), [told.id], 'in the run document');
	equal(await daemon.metric('reprise_event_listeners'), 0, 'nobody listens any more');
	const types = (await feed(daemon, 100)).filter(e => e.subject === 'all').map(e => e.type.replace(/^io\.serverlessworkflow\.|\.v1$/g, ''));
	check(types.includes('workflow.correlation-started') && types.includes('workflow.correlation-completed'), () => `lifecycle: ${types}`);
	equal(daemon.cli('replay', '--all').code, 0, 'replay');
	daemon.verifyJournal();
	await daemon.stop();
});

await test('twenty listeners get forty events each, in order and once, over five kills', async () => {
	const daemon = new Daemon('events');
	await daemon.start();
	const waits = listener('waits', { any: [{ with: { type: 'n' } }], until: '${ length == 40 }' });
	for (let i = 0; i < 20; i++)
		await daemon.post('/v1/runs', { id: `w${i}`, definition: waits }, 201);
	let done = false;
	const sender = (async () => {
		for (let i = 0; i < 40; await pause(30)) {
			const answer = await daemon.ask('POST', '/v1/events', event(i, { type: i % 2 ? 'other' : 'n', data: i }), structured);
			if (answer.status === 201 || answer.status === 200)
				i++;
		}
		for (let i = 40; i < 80; i += 2)
			await until('it is taken', async () => [200, 201].includes((await daemon.ask('POST', '/v1/events', event(i, { type: 'n', data: i }), structured)).status));
		done = true;
	})();
	for (let kills = 0; kills < 5 && !done; kills++) {
		await pause(100 + draw() * 300);
		await daemon.kill();
		await daemon.start();
	}
	await sender;
	for (let i = 0; i < 20; i++)
		equal((await daemon.ended(`w${i}`)).output, Array.from({ length: 40 }, (_, n) => 2 * n), `output of w${i}`);
	equal(daemon.cli('replay', '--all').code, 0, 'replay');
	daemon.verifyJournal();
	await daemon.stop();
});

// Workflows that begin with events: `on`, its own name, what their runs were given.
const begins = (name, on, more = {}) => { const made = definition(name, [{ one: { set: { ids: '${ [ $workflow.input[] | .id ] }' } } }], { schedule: { on } }); made.document.metadata = more; return made; };
const runsOf = async (daemon, name) => (await daemon.get(`/v1/runs?workflow=tests/${name}&limit=1000`)).runs.map(r => r.id).reverse();
const inputsOf = async (daemon, name) => {
	const inputs = [];
	for (const id of await runsOf(daemon, name))
		inputs.push((await daemon.ended(id)).input.map(e => e.id));
	return inputs;
};

await test('a schedule begins a run with one event, any of some, or all of some, which get the envelopes as input', async () => {
	const daemon = new Daemon('events');
	await daemon.start();
	await daemon.post('/v1/events', event('early', { type: 'a' }), 201, structured);
	await daemon.post('/v1/definitions', begins('one', { one: { with: { type: 'a' } } }), 201);
	await daemon.post('/v1/definitions', begins('any', { any: [{ with: { type: 'a' } }, { with: { type: '^b.$' } }] }), 201);
	await daemon.post('/v1/definitions', begins('all', { all: [{ with: { type: 'a' } }, { with: { type: 'b1', data: '${ .warm > 38 }' } }] }), 201);
	await daemon.post('/v1/definitions', begins('jq', { one: { with: { type: 'a', data: '${ (.list | length) == 2 }' }, correlate: { who: { from: '.data.list[0]', expect: 'x' } } } }), 201);
	await until('all listen', async () => await daemon.metric('reprise_event_listeners') === 4);
	const send = (id, type, data) => daemon.post('/v1/events', event(id, { type, data }), 201, structured);
	await send('1', 'a', { list: [1, 2] });
	await send('2', 'b1', { warm: 20 });
	await send('3', 'b22');
	await send('4', 'a', { list: ['x', 'y'] });
	await send('5', 'b1', { warm: 39 });
	await send('6', 'a', {});
	await until('all have run', async () => (await runsOf(daemon, 'one')).length >= 3 && (await runsOf(daemon, 'any')).length >= 5 && (await runsOf(daemon, 'all')).length >= 1);
	await pause(300);
	equal(await inputsOf(daemon, 'one'), [['1'], ['4'], ['6']], 'one');
	equal(await inputsOf(daemon, 'any'), [['1'], ['2'], ['4'], ['5'], ['6']], 'any');
	equal(await inputsOf(daemon, 'all'), [['1', '5']], 'all');
	equal(await inputsOf(daemon, 'jq'), [['4']], 'jq and correlation');
	const run = await daemon.ended((await runsOf(daemon, 'one'))[1]);
	equal([run.input[0].data, run.output, run.labels.schedule], [{ list: ['x', 'y'] }, { ids: ['4'] }, 'tests.one'], 'the run');
	equal((await daemon.get('/v1/schedules/tests.one')).runs, 3, 'the schedule');
	match(daemon.cli('schedule', 'list').stdout, /tests\.all +active +on all of a, b1 /, 'schedule list');
	// Another version begins anew; one without a schedule ends it.
	const next = begins('one', { one: { with: { type: 'b1' } } });
	next.document.version = '1.0.1';
	await daemon.post('/v1/definitions', next, 201);
	await until('the new version has it', async () => (await daemon.get('/v1/schedules/tests.one')).workflow.version === '1.0.1');
	await send('7', 'b1', {});
	await send('8', 'a', {});
	await until('the new one has run', async () => (await runsOf(daemon, 'one')).length === 4);
	equal((await inputsOf(daemon, 'one')).at(-1), ['7'], 'of the new version');
	daemon.verifyJournal();
	await daemon.stop();
});

await test('a schedule with until begins a run when enough events have come: by expressions in and outside of jq, by other events, over kills', async () => {
	const daemon = new Daemon('events');
	await daemon.start();
	const any = (until, types = ['a']) => ({ any: types.map(type => ({ with: { type } })), until });
	await daemon.post('/v1/definitions', begins('path', any('${ .[2].data.n > 0 }')), 201);
	await daemon.post('/v1/definitions', begins('jq', any('${ (map(.data.n) | add) >= 10 }')), 201);
	await daemon.post('/v1/definitions', begins('other', any({ all: [{ with: { type: 'b' } }, { with: { type: 'c' } }] })), 201);
	await daemon.post('/v1/definitions', begins('empty', any({ one: { with: { type: 'c' } } }, ['never'])), 201);
	await daemon.post('/v1/definitions', begins('fails', any('${ .[0].data | error }')), 201);
	await until('all listen', async () => await daemon.metric('reprise_event_listeners') === 5);
	let sent = 0;
	const send = async (type, n) => daemon.post('/v1/events', event(`u${++sent}`, { type, data: { n } }), 201, structured);
	await send('a', 4); // 1
	await send('a', 5); // 2
	await daemon.kill();
	await daemon.start();
	await send('c', 0); // 3
	await send('a', 6); // 4: three, and 15
	await send('b', 0); // 5: b after c
	await send('a', 1); // 6
	await daemon.kill();
	await daemon.start();
	await send('a', 20); // 7: 21
	await send('c', 0); // 8
	await send('a', 3); // 9: the third of the next three
	await send('b', 0); // 10
	await until('all have run', async () => (await runsOf(daemon, 'path')).length >= 2 && (await runsOf(daemon, 'jq')).length >= 2 && (await runsOf(daemon, 'other')).length >= 2 && (await runsOf(daemon, 'empty')).length >= 2);
	await pause(300);
	equal(await inputsOf(daemon, 'path'), [['u1', 'u2', 'u4'], ['u6', 'u7', 'u9']], 'a path');
	equal(await inputsOf(daemon, 'jq'), [['u1', 'u2', 'u4'], ['u6', 'u7']], 'jq');
	equal(await inputsOf(daemon, 'other'), [['u1', 'u2', 'u4'], ['u6', 'u7', 'u9']], 'another strategy');
	equal(await inputsOf(daemon, 'empty'), [[], []], 'none but the end');
	equal([await runsOf(daemon, 'fails'), (await daemon.get('/v1/schedules/tests.fails')).skipped], [[], 0], 'one that fails');
	check(daemon.child.errors.includes("'until' fails"), 'the log says so');
	daemon.verifyJournal();
	await daemon.stop();
});

await test('what an until never lets begin is skipped: 10,000 events and one more', async () => {
	const daemon = new Daemon('events');
	await daemon.start();
	await daemon.post('/v1/definitions', begins('ever', { any: [{ with: { type: 'n' } }], until: '${ .[20000] }' }), 201);
	const emits = definition('emits', [{ each: { for: { in: '${ .list }', each: 'n' }, do: [{ tell: { emit: { event: { with: { source: 'urn:x', type: 'n' } } } } }] } }]);
	await daemon.post('/v1/runs', { id: 'emits', definition: emits, input: { list: Array(10001).fill(0) } }, 201);
	const shown = await until('it is skipped', async () => { const s = await daemon.get('/v1/schedules/tests.ever'); return s.skipped === 1 && s; }, 120_000);
	equal([shown.skippedWhy, shown.runs], ['too large', 0], 'the schedule');
	await daemon.stop();
});

await test('each event begins one run, exactly, over six kills; what comes while a schedule is paused is skipped', async () => {
	const daemon = new Daemon('events');
	await daemon.start();
	await daemon.post('/v1/definitions', begins('each', { one: { with: { type: 'a' } } }), 201);
	await daemon.post('/v1/definitions', begins('pair', { all: [{ with: { type: 'a' } }, { with: { type: 'b' } }] }), 201);
	let done = false, kills = 0;
	const sender = (async () => {
		for (let i = 0; i < 120; await pause(15)) {
			if (i === 110 && kills < 6)
				continue; // the last ones come after the last kill, on any machine
			const answer = await daemon.ask('POST', '/v1/events', event(i, { type: i % 2 ? 'b' : 'a' }), structured);
			if (answer.status === 201 || answer.status === 200)
				i++;
			else
				await pause(20);
		}
		done = true;
	})();
	for (; kills < 6 && !done; kills++) {
		await pause(50 + draw() * 250);
		await daemon.kill();
		await daemon.start();
	}
	await sender;
	check(kills === 6, `${kills} kills`);
	await until('all have begun', async () => (await runsOf(daemon, 'each')).length >= 60 && (await runsOf(daemon, 'pair')).length >= 60);
	await pause(300);
	equal(await inputsOf(daemon, 'each'), Array.from({ length: 60 }, (_, i) => [String(2 * i)]), 'one');
	equal(await inputsOf(daemon, 'pair'), Array.from({ length: 60 }, (_, i) => [String(2 * i), String(2 * i + 1)]), 'all');
	await daemon.post('/v1/schedules/tests.each/pause', {}, 200);
	await daemon.post('/v1/events', event('p', { type: 'a' }), 201, structured);
	await until('it is skipped', async () => (await daemon.get('/v1/schedules/tests.each')).skipped === 1);
	await daemon.post('/v1/schedules/tests.each/resume', {}, 200);
	await daemon.kill();
	await daemon.start();
	await daemon.post('/v1/events', event('q', { type: 'a' }), 201, structured);
	await until('it runs again', async () => (await runsOf(daemon, 'each')).length === 61);
	equal((await inputsOf(daemon, 'each')).at(-1), ['q'], 'after the pause');
	equal((await journalOf(daemon, 'schedule.skipped')).map(e => e.data.why), ['paused'], 'skipped');
	daemon.verifyJournal();
	await daemon.stop();
});

await test('a schedule that feeds itself with events is paused at once, and resumed and triggered while it is', async () => {
	const daemon = new Daemon('events');
	await daemon.start();
	await daemon.post('/v1/definitions', { ...begins('storm', { one: { with: { type: 'turn' } } }), do: [{ again: { emit: { event: { with: { type: 'turn', source: 'tests' } } } } }] }, 201);
	await daemon.post('/v1/events', event('first', { type: 'turn' }), 201, structured);
	const runs = async () => (await daemon.get('/v1/schedules/tests.storm')).runs;
	await until('it goes round', async () => await runs() > 50);
	await daemon.post('/v1/schedules/tests.storm/pause', {}, 200);
	const then = await runs();
	await until('the last event is skipped', async () => (await daemon.get('/v1/schedules/tests.storm')).skipped === 1);
	equal(await runs(), then, 'runs after the pause');
	await daemon.post('/v1/schedules/tests.storm/resume', {}, 200);
	await daemon.post('/v1/schedules/tests.storm/trigger', {}, 201); /* its emit sets the storm off again */
	await until('it goes round again', async () => await runs() > then + 20);
	const answers = await Promise.all(Array.from({ length: 10 }, (_, i) => daemon.ask('POST', `/v1/schedules/tests.storm/${i % 2 ? 'resume' : 'pause'}`, {})));
	equal(answers.map(answer => answer.status), Array(10).fill(200), 'all in turn');
	await daemon.post('/v1/schedules/tests.storm/pause', {}, 200);
	daemon.verifyJournal();
	await daemon.stop();
});

await test('events that are large: pages, the stream and a sink have them all, and more than 8 MiB for one run are skipped', async () => {
	const receiver = new Receiver();
	await receiver.open();
	const daemon = new Daemon('events', { http: { allow: ['127.0.0.1'] }, sinks: { audit: { url: `http://127.0.0.1:${receiver.port}`, types: ['big'] } } });
	await daemon.start();
	const emits = definition('emits', [{ each: { for: { in: '${ .list }', each: 'n' }, do: [
		{ tell: { emit: { event: { with: { source: 'urn:x', type: 'big', subject: '${ $n }', data: '${ $input.text }' } } } } }] } }]);
	emits.do[0].each.do[0].tell.emit.event.with.data = 'x'.repeat(600_000);
	await daemon.post('/v1/runs', { id: 'emits', definition: emits, input: { list: ['0', '1', '2', '3', '4', '5', '6', '7'] } }, 201);
	equal((await daemon.ended('emits')).status, 'completed', 'the run');
	const subjects = ['0', '1', '2', '3', '4', '5', '6', '7'];
	equal((await feed(daemon, 1000)).filter(e => e.type === 'big').map(e => e.subject), subjects, 'pages');
	await until('the sink has them', () => receiver.taken.length >= 8);
	equal(firsts(receiver.taken.map(t => t.event.subject)), subjects, 'the sink');
	equal((await streamed(daemon, (await feed(daemon, 1000)).length)).filter(e => e.type === 'big').map(e => e.subject), subjects, 'the stream');
	await daemon.post('/v1/definitions', begins('nine', { all: Array.from({ length: 9 }, (_, i) => ({ with: { type: `t${i}` } })) }), 201);
	await until('it listens', async () => await daemon.metric('reprise_event_listeners') === 1);
	for (let i = 0; i < 9; i++)
		await daemon.post('/v1/events', event(`L${i}`, { type: `t${i}`, data: 'x'.repeat(1_000_000) }), 201, structured);
	const shown = await until('it is skipped', async () => { const s = await daemon.get('/v1/schedules/tests.nine'); return s.skipped === 1 && s; });
	equal([shown.skippedWhy, shown.runs], ['too large', 0], 'the schedule');
	for (let i = 0; i < 9; i++)
		await daemon.post('/v1/events', event(`S${i}`, { type: `t${i}` }), 201, structured);
	equal(await until('the next ones begin a run', async () => { const list = await inputsOf(daemon, 'nine'); return list.length === 1 && list[0].length; }), 9, 'events of it');
	await daemon.stop();
});

await finish();
