// A journal as an earlier revision writes it, for tests/journals/schema-NNNN.db.zst: run with REPRISED, REPRISE and REPRISE_SIM naming that revision's programs.
//
//   node tests/journals/make_schema.mjs OUT.db
//
// The daemon is killed while some runs are open, so that whoever opens the journal has to go on with them. What a revision does not know yet it refuses, and
// the journal has less in it. The keys are those of tests/journals/keys, which are good for nothing else.
import { copyFileSync, cpSync, mkdirSync } from 'node:fs';
import { execFileSync } from 'node:child_process';
import http from 'node:http';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Daemon, atEnd, check, definition, documentOf, extractionOf, finish, sqlite, startSimulator, test, until } from '../support/harness.mjs';

const out = process.argv[2];
const here = dirname(fileURLToPath(import.meta.url));

// A peer that answers, fails or never answers.
const peer = http.createServer((request, response) => {
	if (request.url === '/hangs')
		return;
	response.writeHead(request.url === '/fails' ? 500 : 200, { 'content-type': 'application/json' });
	response.end(JSON.stringify({ path: request.url }));
});
await new Promise(done => peer.listen(0, '127.0.0.1', done));
atEnd(() => { peer.closeAllConnections(); peer.close(); });
const call = (path, more = {}) => ({ call: 'http', with: { method: 'get', endpoint: `http://127.0.0.1:${peer.address().port}${path}` }, ...more });

const ended = {
	pure: [definition('pure', [{ one: { set: { n: '${ .n + 1 }' } } }, { choose: { switch: [{ big: { when: '.n > 1', then: 'two' } }, { otherwise: { then: 'end' } }] } }, { two: { set: { m: '${ .n }' } } }]), { n: 1 }],
	nested: [definition('nested', [{ outer: { do: [{ a: { set: { x: 1 } } }, { b: { set: { y: '${ .x }' }, export: { as: '${ . }' } } }] } }]), null],
	chained: [definition('chained', [{ each: { for: { each: 'item', in: '${ .items }' }, do: [{ add: { set: { sum: '${ $item }' } } }] } }]), { items: [1, 2, 3] }],
	map: [definition('map', [{ each: { for: { each: 'item', in: '${ .items }' }, metadata: { concurrency: 2 }, do: [{ ask: call('/works') }] } }]), { items: [1, 2, 3] }],
	called: [definition('called', [{ ask: call('/works') }]), null],
	failed: [definition('failed', [{ before: { set: { ok: true } } }, { ask: call('/fails') }]), null],
	raised: [definition('raised', [{ stop: { raise: { error: { type: 'https://example.com/errors/no', status: 400, title: 'No' } } } }]), null],
	extracted: [extractionOf('extractor'), { document: documentOf(2) }],
	forked: [definition('forked', [{ both: { fork: { branches: [{ a: { set: { a: 1 } } }, { b: call('/works') }] } } }]), null],
	tried: [definition('tried', [{ careful: { try: [{ ask: call('/fails') }], catch: { errors: { with: { status: 500 } }, do: [{ after: { set: { caught: true } } }] } } }]), null],
	waited: [definition('waited', [{ pause: { wait: 'PT0.05S' } }]), null],
	emitted: [definition('emitted', [{ say: { emit: { event: { with: { source: 'https://example.com/s', type: 'com.example.said', data: { n: 1 } } } } } }]), null],
	parent: [definition('parent', [{ start: { run: { workflow: { namespace: 'tests', name: 'child', version: '1.0.0', input: { n: 2 } } } } }]), null],
};
const open = {
	'open-call': [definition('hanging', [{ before: { set: { ok: true } } }, { ask: call('/hangs') }]), null],
	'open-map': [definition('hanging-map', [{ each: { for: { each: 'item', in: '${ .items }' }, metadata: { concurrency: 2 }, do: [{ ask: call('/works') }, { hang: call('/hangs') }] } }]), { items: [1, 2, 3] }],
	'open-wait': [definition('sleeping', [{ pause: { wait: 'PT8760H' } }]), null],
	'open-fork': [definition('hanging-fork', [{ both: { fork: { branches: [{ a: { set: { a: 1 } } }, { b: call('/hangs') }] } } }]), null],
	'open-listen': [definition('listening', [{ hear: { listen: { to: { one: { with: { type: 'com.example.never' } } } } } }]), null],
};

await test(`the journal ${out} is made`, async () => {
	const sim = await startSimulator();
	const daemon = new Daemon('schema', { runtimes: { extractor: { kind: 'simulator', url: sim.url, model: 'reprise-sim', concurrency: 2 } }, http: { allow: ['127.0.0.0/8'] } });
	mkdirSync(daemon.data, { recursive: true, mode: 0o700 });
	cpSync(join(here, 'keys'), join(daemon.data, 'keys'), { recursive: true });
	execFileSync('chmod', ['-R', 'go-rwx', join(daemon.data, 'keys')]);
	await daemon.start();
	const taken = [], refused = [];
	const submit = async (id, [document, input]) => {
		const answer = await daemon.ask('POST', '/v1/runs', { id, definition: document, input, labels: { made: 'test' } });
		(answer.status === 201 ? taken : refused).push(id);
		return answer.status === 201;
	};
	await daemon.ask('POST', '/v1/definitions', definition('child', [{ give: { set: { twice: '${ .n * 2 }' } } }]));
	for (const [id, what] of Object.entries(ended))
		if (await submit(id, what))
			await daemon.ended(id);
	if (await submit('stopped', open['open-call']))
		await daemon.post('/v1/runs/stopped/cancel', { reason: 'no longer needed' }, 200);
	if (await submit('killed', open['open-call']))
		await daemon.post('/v1/runs/killed/kill', {}, 200);
	for (const n of [1, 2])
		await daemon.ask('POST', '/v1/events', { specversion: '1.0', id: `event-${n}`, source: 'https://example.com/peer', type: 'com.example.came', data: { n } },
			{ headers: { 'content-type': 'application/cloudevents+json' } });
	await daemon.ask('POST', '/v1/definitions', definition('nightly', [{ give: { set: { ok: true } } }], { schedule: { every: { days: 365 } } }));
	for (const [id, what] of Object.entries(open))
		await submit(id, what);
	await until('the open map has answers', async () => (await daemon.events('open-map')).filter(event => event.kind === 'attempt.succeeded').length >= 2);
	check(taken.length >= 11, `taken: ${taken}; refused: ${refused}`);
	console.log(`# taken ${taken.join(' ')}; refused ${refused.join(' ') || 'none'}`);
	await daemon.kill();
	sqlite(join(daemon.data, 'journal.db'), 'PRAGMA wal_checkpoint(TRUNCATE); PRAGMA user_version;');
	copyFileSync(join(daemon.data, 'journal.db'), out);
});
await finish();
