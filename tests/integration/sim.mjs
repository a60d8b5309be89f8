// The runtime simulator, asked over its two ports as a client would: answers, pace, faults, counters, limits.
// Needs Node 20 and nothing else. REPRISE_SIM names the program (default build/tests/sim/reprise-sim).
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import net from 'node:net';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { check, equal, exitOf, finish, firstLine, folder as makeFolder, launch, pause, programs, test, until } from '../support/harness.mjs';
import { ask, control, rawAsk, script, start, state, stop, tokens } from '../support/sim.mjs';

const folder = makeFolder('sim');

const section = 'Acme Works was founded in 1921. Nothing else happened.\nŽofie Čapková works at Acme Works.';
const prompt = text => `Extract the facts.\n<section>\n${text}\n</section>`;
const request = (text, more = {}) => JSON.stringify({ model: 'reprise-sim', stream: true, stream_options: { include_usage: true },
	messages: [{ role: 'system', content: 'Extract.' }, { role: 'user', content: text }], ...more });
const chat = (sim, body = request(prompt(section)), options) => ask(sim.port, 'POST', '/v1/chat/completions', body, options);

function events(text) {
	const list = text.split('\n\n');
	check(list.pop() === '', `the stream ends inside an event: ${JSON.stringify(text.slice(-80))}`);
	return list.filter(event => !event.startsWith(':')).map(event => {
		check(event.startsWith('data: ') && !event.includes('\n'), `event: ${event}`);
		return event === 'data: [DONE]' ? 'done' : JSON.parse(event.slice(6));
	});
}

// The stream as a client sees it: text, reasoning, finish, usage, done.
function read(text) {
	const result = { text: '', reasoning: '', finish: null, usage: null, done: false, chunks: 0, error: null };
	for (const event of events(text)) {
		if (event === 'done') { result.done = true; continue; }
		if (event.error) { result.error = event.error; continue; }
		result.usage = event.usage ?? result.usage;
		for (const choice of event.choices) {
			if (choice.delta.content) result.chunks++;
			result.text += choice.delta.content ?? '';
			result.reasoning += choice.delta.reasoning_content ?? '';
			result.finish = choice.finish_reason ?? result.finish;
		}
	}
	return result;
}

const facts = text => JSON.parse(text).facts;
const brief = text => facts(text).map(fact => [fact.subject, fact.predicate, fact.object]);
const plainOf = answer => JSON.parse(answer.text).choices[0].message.content;
const digest = text => createHash('sha256').update(text).digest('hex');

const sim = await start();

// ---- The product's paths ----

await test('health, version, models and unknown paths answer as a runtime does, and say who answers', async () => {
	const health = await ask(sim.port, 'GET', '/health');
	equal([health.status, health.text, health.headers.server], [200, '{"status":"ok"}', 'reprise-sim'], 'health');
	equal((await ask(sim.port, 'GET', '/version')).status, 200, 'version');
	const models = await ask(sim.port, 'GET', '/v1/models?x=1');
	equal(JSON.parse(models.text).data.map(model => model.id), ['reprise-sim'], 'models');
	equal((await ask(sim.port, 'GET', '/v1/models/reprise-sim')).status, 200, 'one model');
	for (const [method, path, status] of [['GET', '/v1/models/other', 404], ['GET', '/', 404], ['GET', '/__sim/state', 404],
		['POST', '/v1/models', 404], ['GET', '/v1/chat/completions', 405]]) {
		const answer = await ask(sim.port, method, path);
		equal(answer.status, status, `${method} ${path}`);
		equal(answer.headers.server, 'reprise-sim', 'Server');
		equal(Object.keys(JSON.parse(answer.text).error).sort(), ['code', 'message', 'param', 'type'], 'error members');
	}
});

await test('a stream has a role chunk, content chunks, a finish chunk, a usage chunk and [DONE]', async () => {
	await script(sim, {});
	const answer = await chat(sim);
	equal([answer.status, answer.headers['content-type'], answer.headers['transfer-encoding'], answer.headers.server],
		[200, 'text/event-stream', 'chunked', 'reprise-sim'], 'header');
	const list = events(answer.text);
	equal(list[0].choices[0].delta.role, 'assistant', 'first chunk');
	check(list.slice(0, -1).every(event => event.object === 'chat.completion.chunk' && event.id === 'chatcmpl-sim-1'), 'ids');
	equal(list.at(-1), 'done', 'last');
	equal([list.at(-2).choices, list.at(-3).choices[0].finish_reason], [[], 'stop'], 'usage and finish');
	const result = read(answer.text);
	equal(result.usage.completion_tokens, tokens(result.text), 'tokens by the stated rule');
	equal(result.usage.total_tokens, result.usage.prompt_tokens + result.usage.completion_tokens, 'total');
	equal(result.chunks, Math.ceil(result.usage.completion_tokens / 4), 'four tokens a chunk');
});

await test('without include_usage there is no usage chunk', async () => {
	equal(read((await chat(sim, request('Hello', { stream_options: undefined }))).text).usage, null, 'usage');
});

await test('the plain answer says the same as the stream', async () => {
	const stream = read((await chat(sim)).text);
	const answer = await chat(sim, request(prompt(section), { stream: false }));
	const json = JSON.parse(answer.text);
	equal(answer.headers['content-type'], 'application/json', 'type');
	equal([json.object, plainOf(answer), json.choices[0].finish_reason], ['chat.completion', stream.text, 'stop'], 'answer');
	equal(json.usage, stream.usage, 'usage');
});

await test('an HTTP/1.0 client gets its stream without chunked transfer, and then the end of the connection', async () => {
	const body = request(prompt(section));
	const raw = await rawAsk(sim, `POST /v1/chat/completions HTTP/1.0\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
	const [head, text] = raw.text.split('\r\n\r\n');
	check(!/transfer-encoding/i.test(head) && raw.ended, 'framing');
	check(read(text).done, 'done');
});

await test('requests that a runtime would refuse are refused with 400, another model with 404', async () => {
	await script(sim, {});
	const bad = [ '{', '[]', '{"model":"reprise-sim"}', request('x', { messages: [] }), request('x', { temperature: 3 }),
		request('x', { n: 2 }), request('x', { max_tokens: 0 }), request('x', { stop: 7 }), request('x', { seed: 'a' }),
		request('x', { stream: 'yes' }), request('x', { response_format: { type: 'xml' } }),
		request('x', { messages: [{ role: 'user', content: [{ type: 'image_url' }] }] }), '{"model":"a","model":"b"}' ];
	for (const body of bad) {
		const answer = await chat(sim, body);
		equal([answer.status, JSON.parse(answer.text).error.type], [400, 'invalid_request_error'], body);
	}
	const other = await chat(sim, request('x', { model: 'other' }));
	equal([other.status, JSON.parse(other.text).error.code], [404, 'model_not_found'], 'model');
	const counters = await state(sim);
	equal([counters.requests, counters.rejected], [bad.length + 1, bad.length + 1], 'counted');
});

await test('content may come as text parts, and a message without content is taken', async () => {
	const answer = await chat(sim, request('', { messages: [{ role: 'assistant', content: null },
		{ role: 'user', content: [{ type: 'text', text: 'Extract' }, { type: 'text', text: `<section>\n${section}\n</section>` }] }] }));
	equal(facts(read(answer.text).text).length, 2, 'facts');
});

// ---- Extraction ----

await test('extraction quotes the exact bytes of its sentences', async () => {
	const list = facts(read((await chat(sim)).text).text);
	equal(list, [
		{ subject: 'Acme Works', predicate: 'founded_in', object: '1921', quote: 'Acme Works was founded in 1921.' },
		{ subject: 'Žofie Čapková', predicate: 'works_at', object: 'Acme Works', quote: 'Žofie Čapková works at Acme Works.' },
	], 'facts');
});

const cases = [
	['Acme was founded in 1921.', [['Acme', 'founded_in', '1921']]],
	['The Acme Works is located in Old Town.', [['Acme Works', 'located_in', 'Old Town']]],
	['Acme is based in Brno.', [['Acme', 'located_in', 'Brno']]],
	['Acme acquired Bolt GmbH in 2019.', [['Acme', 'acquired', 'Bolt GmbH']]],
	['Ann Lee works at Acme, a small firm.', [['Ann Lee', 'works_at', 'Acme']]],
	['Acme released Anvil 3 on Monday.', [['Acme', 'released', 'Anvil 3']]],
	['The Anvil costs 1,200 EUR.', [['Anvil', 'price', '1,200 EUR']]],
	['The price of the Anvil is 40.50 EUR.', [['Anvil', 'price', '40.50 EUR']]],
	['Ann Lee reports to Dr. Bob Ray.', [['Ann Lee', 'reports_to', 'Dr. Bob Ray']]],
	['Acme uses SQLite.', [['Acme', 'uses', 'SQLite']]],
	['Bolt is part of the Acme Group.', [['Bolt', 'part_of', 'Acme Group']]],
	['Ann Lee leads Acme.', [['Ann Lee', 'leads', 'Acme']]],
	['Anvil was funded by Smith and Sons.', [['Anvil', 'funded_by', 'Smith and Sons']]],
	['Project Anvil started on March 5, 2019, and ended on 2020-01-02.',
		[['Project Anvil', 'started_on', 'March 5, 2019'], ['Project Anvil', 'ended_on', '2020-01-02']]],
	['Probe 7 measured 3.5 m.', [['Probe 7', 'measured', '3.5 m']]],
	['The current version of Anvil is 3.2.1.', [['Anvil', 'version_of', '3.2.1']]],
	['Ann Lee was born in Ústí nad Labem.', [['Ann Lee', 'born_in', 'Ústí nad Labem']]],
	['In 1999, Acme acquired Bolt.', [['Acme', 'acquired', 'Bolt']]],
	['Ann Lee leads Acme and Bob Ray reports to Ann Lee.', [['Ann Lee', 'leads', 'Acme'], ['Bob Ray', 'reports_to', 'Ann Lee']]],
	['Операция Снег started on 3 мая 1999.', [['Операция Снег', 'started_on', '3 мая 1999']]],
	['東京社 was founded in 大阪。富士社 uses SQLite。', [['東京社', 'founded_in', '大阪'], ['富士社', 'uses', 'SQLite']]],
	['## Acme was founded in 1900\n\n- Bolt uses Zinc\n- Nut uses Iron\n\n1. Pin uses Tin', [['Bolt', 'uses', 'Zinc'], ['Nut', 'uses', 'Iron'],
		['Pin', 'uses', 'Tin']]],
	['Acme was funded by Daphne\nCole.', [['Acme', 'funded_by', 'Daphne Cole']]],
	['```\nAcme uses Zinc.\n```\n| Acme uses Iron. |', []],
	['Acme builds engines and uses Zinc. Bolt grew quickly but released Nut.', []],
	['Acme also uses Zinc. Bolt has acquired Nut and also uses Iron.', [['Acme', 'uses', 'Zinc'], ['Bolt', 'acquired', 'Nut'], ['Bolt', 'uses', 'Iron']]],
	['The newest version of Nut is called Pin. The start was good, but Ann Lee, who reports to Bob Ray, left.', [['Ann Lee', 'reports_to', 'Bob Ray']]],
	['Ann Lee, who reports to Bob Ray, likes tea. Acme, a firm from Brno, released Nut.',
		[['Ann Lee', 'reports_to', 'Bob Ray'], ['Acme', 'released', 'Nut']]],
	['Some think that Acme uses Zinc. Acme no longer uses Iron. The Nut has just released Pin. • Bolt uses Tin',
		[['Nut', 'released', 'Pin'], ['• Bolt', 'uses', 'Tin']]],
	['• Bolt uses Tin\n• Nut uses Zinc', [['Bolt', 'uses', 'Tin'], ['Nut', 'uses', 'Zinc']]],
	['It was founded in 1921. Acme was not founded in 1921. Acme never acquired Bolt. Acme may acquire Bolt.', []],
	['Was it Acme who uses Zinc? Bolt was acquired by Acme. If Acme uses Zinc, all is well.', []],
	['', []],
	['Nothing happened.', []],
];
await test('the stated rules find just these facts', async () => {
	for (const [text, expected] of cases) {
		const answer = read((await chat(sim, request(prompt(text)))).text).text;
		equal(brief(answer), expected, text);
		for (const fact of facts(answer))
			check(text.includes(fact.quote), `quote stands in the section: ${fact.quote}`);
	}
});

await test('a section may hold its own marks; the last message with a section counts', async () => {
	const text = 'Acme uses Zinc.\n</section>\nBolt uses Iron.';
	equal(brief(read((await chat(sim, request(prompt(text)))).text).text).length, 2, 'facts');
	const two = request('', { messages: [{ role: 'user', content: prompt('Old uses Rust.') }, { role: 'user', content: prompt('New uses C.') }] });
	equal(brief(read((await chat(sim, two)).text).text), [['New', 'uses', 'C']], 'facts');
	check((await state(sim)).bySection[digest(text)].completed === 1, 'section bytes are what stands between the lines');
});

await test('a schema limits the predicates and the number of facts', async () => {
	const schema = { type: 'object', properties: { facts: { type: 'array', maxItems: 1, items: { type: 'object',
		properties: { predicate: { enum: ['uses', 'leads'] } } } } } };
	const text = 'Acme was founded in 1921. Acme uses Zinc. Ann leads Acme.';
	const answer = await chat(sim, request(prompt(text), { response_format: { type: 'json_schema', json_schema: { name: 'facts', strict: true, schema } } }));
	equal(brief(read(answer.text).text), [['Acme', 'uses', 'Zinc']], 'facts');
});

await test('a prompt without a section gets an answer that depends on it alone, in the form asked for', async () => {
	const one = read((await chat(sim, request('Hello'))).text).text, again = read((await chat(sim, request('Hello'))).text).text;
	const other = read((await chat(sim, request('Hullo'))).text).text;
	check(one === again && one !== other && /simulator/.test(one), one);
	equal(typeof JSON.parse(read((await chat(sim, request('Hello', { response_format: { type: 'json_object' } }))).text).text), 'object', 'object');
	const schema = { type: 'object', required: ['a', 'b', 'c', 'd'], properties: { a: { enum: ['x', 'y'] }, b: { type: 'integer', minimum: 3 },
		c: { type: 'array', items: { type: 'string' }, minItems: 2 }, d: { type: 'boolean' } } };
	equal(JSON.parse(read((await chat(sim, request('Hello', { response_format: { type: 'json_schema', json_schema: { name: 'x', schema } } }))).text).text),
		{ a: 'x', b: 3, c: ['simulated', 'simulated'], d: false }, 'instance');
	// An instance of 16 to the power of 15 items is not made up to its end.
	const deep = levels => levels === 0 ? { type: 'null' } : { type: 'array', minItems: 16, items: deep(levels - 1) };
	equal(read((await chat(sim, request('Hello', { response_format: { type: 'json_schema', json_schema: { name: 'x', schema: deep(15) } } }))).text).text, '{}', 'a huge instance');
});

await test('at most 1,000 facts are found in a section, and the longest body is 8 MiB', async () => {
	equal(facts(read((await chat(sim, request(prompt('Acme uses Zinc. '.repeat(1005))))).text).text).length, 1000, 'facts');
	const frame = request('', { stream: false }).length;
	const largest = await chat(sim, request('x'.repeat(8 * 1024 * 1024 - frame), { stream: false }));
	equal(largest.status, 200, 'largest body');
	const larger = await chat(sim, request('x'.repeat(8 * 1024 * 1024 - frame + 1), { stream: false }));
	equal(larger.status, 413, 'one byte more');
	const chunked = await ask(sim.port, 'POST', '/v1/chat/completions', undefined, { headers: { 'Transfer-Encoding': 'chunked' } });
	equal(chunked.status, 400, 'empty chunked body');
});

// ---- Answer models, lengths, options ----

const texts = answers => ({ answers: answers.map(text => ({ text })) });

await test('fixed answers come in order, again and again, with their reasoning', async () => {
	await script(sim, { answer: { mode: 'fixed', answers: [{ text: 'one', reasoning: 'because' }, { text: 'two' }] } });
	const got = [];
	for (let i = 0; i < 3; i++) {
		const answer = read((await chat(sim)).text);
		got.push([answer.text, answer.reasoning, answer.usage.completion_tokens_details.reasoning_tokens]);
	}
	equal(got, [['one', 'because', 2], ['two', '', 0], ['one', 'because', 2]], 'answers');
	equal(JSON.parse((await chat(sim, request('x', { stream: false }))).text).choices[0].message.reasoning_content, undefined, 'reasoning');
});

async function series(count, more) {
	const got = [];
	for (let i = 0; i < count; i++)
		got.push(plainOf(await chat(sim, request('same', { stream: false, ...more(i) }), { agent: sim.agent })));
	return got;
}

await test('weighted answers follow the script\'s seed and the ordinal, not the request\'s seed', async () => {
	const weighted = seed => ({ seed, answer: { mode: 'weighted', answers: [{ text: 'A', weight: 97 }, { text: 'B', weight: 3 }] } });
	await script(sim, weighted(42));
	const one = await series(300, () => ({ seed: 1 }));
	await script(sim, weighted(42));
	const two = await series(300, i => ({ seed: i }));
	await script(sim, weighted(43));
	const three = await series(300, () => ({ seed: 1 }));
	equal(one, two, 'same script, other request seeds');
	check(one.join() !== three.join(), 'another script seed changes something');
	const share = one.filter(text => text === 'B').length;
	check(share >= 1 && share <= 25, `3 % of 300 are about 9, not ${share}`);
});

await test('seeded answers follow the request\'s seed and the prompt, not the ordinal', async () => {
	await script(sim, { answer: { mode: 'seeded', ...texts(['A', 'B', 'C', 'D']) } });
	const one = await series(40, i => ({ seed: i }));
	const two = await series(40, i => ({ seed: 39 - i }));
	equal(one, two.reverse(), 'by seed');
	equal(new Set(one).size, 4, 'all answers occur');
	const other = await series(40, i => ({ seed: i, messages: [{ role: 'user', content: 'another' }] }));
	check(other.join() !== one.join(), 'another prompt changes something');
});

await test('max_tokens and max_completion_tokens cut by the stated rule and say so; stop texts do not', async () => {
	await script(sim, { answer: { mode: 'fixed', answers: [{ text: 'abčdefgh', reasoning: 'abcdefgh' }] } });
	const get = async more => {
		const answer = read((await chat(sim, request('x', more))).text);
		return [answer.reasoning, answer.text, answer.finish, answer.usage.completion_tokens];
	};
	equal(await get({ max_tokens: 5 }), ['abcdefgh', 'abčdefgh', 'stop', 5], 'enough');
	equal(await get({ max_tokens: 4 }), ['abcdefgh', 'abčdefg', 'length', 4], 'one too few');
	equal(await get({ max_tokens: 3 }), ['abcdefgh', 'abč', 'length', 3], 'a sequence is not cut');
	equal(await get({ max_tokens: 2 }), ['abcdefgh', '', 'length', 2], 'all spent on reasoning');
	equal(await get({ max_tokens: 5, max_completion_tokens: 1 }), ['abcd', '', 'length', 1], 'max_completion_tokens wins');
	equal((await get({ stop: ['ef', 'gh'] })).slice(1, 3), ['abčd', 'stop'], 'stop');
});

await test('ignoreStream answers with plain JSON, noDone leaves out the end mark', async () => {
	await script(sim, { options: { ignoreStream: true } });
	const answer = await chat(sim);
	equal([answer.headers['content-type'], facts(plainOf(answer)).length], ['application/json', 2], 'plain');
	await script(sim, { options: { noDone: true } });
	const stream = await chat(sim);
	equal([read(stream.text).done, read(stream.text).finish, stream.broken], [false, 'stop', null], 'no end mark');
});

await test('plainSchemas, noSchemas and noFormats refuse what runtimes with simple grammars, or with none, refuse', async () => {
	const formats = [undefined, { type: 'json_object' }, ...[{ type: 'object', properties: { a: { type: 'string' } }, required: ['a'] }, { type: 'object', properties: { a: { type: 'string' } } },
		{ type: 'object', properties: { a: { type: 'array', items: { type: 'string', pattern: 'x' } } }, required: ['a'] }].map(schema => ({ type: 'json_schema', json_schema: { name: 'a', schema } }))];
	for (const [taken, statuses] of Object.entries({ noDone: [200, 200, 200, 200, 200], plainSchemas: [200, 200, 200, 400, 400], noSchemas: [200, 200, 400, 400, 400], noFormats: [200, 400, 400, 400, 400] })) {
		await script(sim, { options: { [taken]: true } });
		const answers = [];
		for (const response_format of formats)
			answers.push((await chat(sim, request('x', { response_format }))).status);
		equal(answers, statuses, taken);
	}
});

await test('another model by script or command line', async () => {
	await script(sim, { model: 'tiny "1"' });
	equal(read((await chat(sim, request('x', { model: 'tiny "1"' }))).text).done, true, 'script');
	equal(JSON.parse((await ask(sim.port, 'GET', '/v1/models')).text).data[0].id, 'tiny "1"', 'models');
	await script(sim, {});
	equal((await chat(sim, request('x', { model: 'tiny "1"' }))).status, 404, 'back');
});

// ---- Cadence ----

await test('first byte, chunk pauses, jitter and pings keep their times', async () => {
	await script(sim, { answer: { mode: 'fixed', ...texts(['x'.repeat(40)]) }, cadence: { firstByteMs: 100, chunkMs: 20, tokensPerChunk: 1 } });
	const stream = await chat(sim);
	check(stream.times[0] >= 95, `first byte after ${stream.times[0]} ms`);
	check(stream.ms >= 95 + 9 * 19, `ten chunks after ${stream.ms} ms`);
	check(stream.pieces.length >= 8, `${stream.pieces.length} reads`);
	const plain = await chat(sim, request('x', { stream: false }));
	check(plain.ms >= 95 + 9 * 19, `plain after ${plain.ms} ms`);
	await script(sim, { cadence: { firstByteMs: 1000, pingMs: 150 } });
	const pings = await chat(sim);
	const count = pings.text.split(': ping\n\n').length - 1;
	check(count >= 1 && count <= 7, `${count} pings`); // late ones are not made up for
	check(pings.text.indexOf(': ping') < pings.text.indexOf('data:') && read(pings.text).done, 'pings come before the first token');
	await script(sim, { answer: { mode: 'fixed', ...texts(['x'.repeat(40)]) }, cadence: { jitterMs: 30, tokensPerChunk: 1 } });
	check((await chat(sim)).ms > 20, 'jitter');
});

await test('an answer that waits for its first byte, or within its stream, goes on when it is released', async () => {
	const hour = 3_600_000, once = { mode: 'fixed', ...texts(['x'.repeat(40)]) };
	await script(sim, { answer: once, cadence: { firstByteMs: hour } });
	const held = [chat(sim), chat(sim, request('x', { stream: false }))];
	await until('both are in flight', async () => (await state(sim)).inFlight === 2);
	equal((await control(sim, 'POST', '/__sim/release')).status, 200, 'release');
	equal((await Promise.all(held)).map(answer => answer.text.includes('x'.repeat(4))), [true, true], 'both come');
	await script(sim, { answer: once, cadence: { pauseMs: hour, tokensPerChunk: 1 } });
	const stream = chat(sim);
	await until('it is under way', async () => (await state(sim)).inFlight === 1);
	let over = false;
	stream.then(() => { over = true; });
	await until('it is released in its middle', async () => { await control(sim, 'POST', '/__sim/release'); return over; });
	equal(read((await stream).text).text, 'x'.repeat(40), 'the stream');
	equal((await state(sim)).completed, 1, 'completed');
});

await test('splitUtf8 cuts an event and a UTF-8 sequence over two writes', async () => {
	await script(sim, { answer: { mode: 'fixed', ...texts(['žžžž']) }, cadence: { splitUtf8: true } });
	const answer = await chat(sim);
	equal(read(answer.text).text, 'žžžž', 'text');
	check(answer.pieces.some(piece => piece.at(-1) === 0xc5), 'a read ends inside a sequence');
	check(answer.pieces.some(piece => piece.at(0) === 0xbe), 'and the next begins with its rest');
	check(answer.pieces.some(piece => piece.toString().endsWith('data: [')), 'a read ends inside a line');
	// On a busy machine the client may read both halves at once.
	await until('a plain answer in two reads', async () => {
		const plain = await chat(sim, request('x', { stream: false }));
		equal(plainOf(plain), 'žžžž', 'plain answer too');
		return plain.pieces.length >= 2;
	});
});

// ---- Faults ----

const faulty = (fault, more = {}) => script(sim, { faults: [{ on: 1, ...fault }], ...more });
const good = async what => check(read((await chat(sim)).text).done, `${what}: the next request is answered`);

for (const stream of [true, false]) {
	const how = stream ? 'stream' : 'plain';
	const body = request(prompt(section), { stream });
	const whole = { text: '' };

	await test(`${how}: refuse, close and reset end without an answer`, async () => {
		await faulty({ kind: 'refuse' });
		const refused = await chat(sim, body);
		equal([refused.status, refused.broken], [0, 'ECONNRESET'], 'refuse');
		await good('refuse');
		await script(sim, { faults: [{ match: 'Acme', times: 1, kind: 'refuse' }] });
		equal((await chat(sim, body)).broken, 'ECONNRESET', 'refuse by content');
		await good('refuse by content');
		await faulty({ kind: 'close' });
		const closed = await rawAsk(sim, `POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
		equal([closed.text, closed.ended, closed.error], ['', true, null], 'close');
		await good('close');
		const counters = await state(sim);
		equal([counters.requests, counters.faulted, counters.completed, counters.faults], [2, 1, 1, { close: 1 }], 'counters');
	});

	await test(`${how}: reset and stall come after the bytes they name`, async () => {
		await script(sim, {});
		whole.text = (await chat(sim, body)).text;
		for (const bytes of [0, 1, 250, 1000000]) {
			await faulty({ kind: 'reset', afterBytes: bytes });
			const reset = await chat(sim, body);
			check(reset.status === 200 && reset.broken, `reset after ${bytes}: ${reset.status} ${reset.broken}`);
			equal(reset.body.length, Math.min(bytes, Buffer.byteLength(whole.text) - (stream ? 0 : 1)), 'bytes before the reset');
			equal(reset.text, whole.text.slice(0, reset.text.length), 'the same bytes');
		}
		await faulty({ kind: 'stall', afterBytes: 100 });
		const stalled = chat(sim, body, { abortAfter: 1 });
		await until('in flight', async () => (await state(sim)).requests === 1);
		equal((await stalled).body.length, 100, 'bytes before the stall');
		await until('cancelled', async () => (await state(sim)).cancelled === 1);
		equal((await state(sim)).inFlight, 0, 'in flight');
		await good('stall');
	});

	await test(`${how}: hang never answers`, async () => {
		await faulty({ kind: 'hang' });
		const began = performance.now();
		equal((await rawAsk(sim, `POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
			{ linger: 300 })).text, '', 'hang');
		check(performance.now() - began >= 290, 'it kept the connection');
		await until('cancelled', async () => (await state(sim)).cancelled === 1);
	});

	await test(`${how}: each status comes with an error object and Retry-After`, async () => {
		for (const status of [400, 401, 404, 422, 429, 500, 503]) {
			await faulty({ kind: 'status', status, retryAfter: 7 });
			const answer = await chat(sim, body);
			equal([answer.status, answer.headers['retry-after'], typeof JSON.parse(answer.text).error.message], [status, '7', 'string'], 'status');
			await good(status);
		}
		await faulty({ kind: 'status', status: 503 });
		equal((await chat(sim, body)).headers['retry-after'], undefined, 'no Retry-After');
	});
}

await test('stream: eof ends without finish and end mark, errorEvent tells its error, and both are counted as faults', async () => {
	await faulty({ kind: 'eof' });
	const eof = await chat(sim);
	const half = read(eof.text);
	check(eof.broken === null && half.finish === null && !half.done && half.text.length > 0, 'eof');
	check(half.text.length < read((await chat(sim)).text).text.length, 'half of the text');
	await faulty({ kind: 'errorEvent' });
	const failing = await chat(sim);
	const told = read(failing.text);
	equal([failing.status, told.error.type, told.finish, told.done], [200, 'server_error', null, true], 'errorEvent');
	equal((await state(sim)).faulted, 1, 'counted');
	await faulty({ kind: 'eof' }, { answer: { mode: 'fixed', ...texts(['']) } });
	equal(read((await chat(sim)).text).finish, null, 'eof of an empty answer');
});

await test('plain: eof ends before the length it promised, errorEvent is an error object with status 200', async () => {
	const body = request(prompt(section), { stream: false });
	await faulty({ kind: 'eof' });
	const eof = await chat(sim, body);
	check(eof.status === 200 && eof.broken && eof.body.length * 2 - Number(eof.headers['content-length']) <= 0, `eof: ${eof.broken}`);
	await faulty({ kind: 'errorEvent' });
	const failing = await chat(sim, body);
	equal([failing.status, JSON.parse(failing.text).error.type], [200, 'server_error'], 'errorEvent');
});

await test('truncatedJson, duplicateChunk and contentType change the wire', async () => {
	await faulty({ kind: 'truncatedJson' });
	const cut = (await chat(sim)).text;
	const broken = cut.split('\n\n').filter(event => { try { return event.startsWith('data: {') && !JSON.parse(event.slice(6)); } catch { return true; } });
	equal([broken.length, cut.endsWith('data: [DONE]\n\n')], [1, true], 'one event is cut');
	await faulty({ kind: 'truncatedJson' });
	const plain = await chat(sim, request(prompt(section), { stream: false }));
	let parsed = true;
	try { JSON.parse(plain.text); } catch { parsed = false; }
	equal([parsed, plain.broken], [false, null], 'plain');
	await script(sim, { answer: { mode: 'fixed', ...texts(['aaaabbbbcccc']) }, cadence: { tokensPerChunk: 1 }, faults: [{ on: 1, kind: 'duplicateChunk' }] });
	equal(read((await chat(sim)).text).text, 'aaaabbbbbbbbcccc', 'twice');
	equal(read((await chat(sim)).text).text, 'aaaabbbbcccc', 'once');
	await faulty({ kind: 'contentType' });
	equal((await chat(sim)).headers['content-type'], 'text/html', 'type');
});

await test('notJson, cutText, cutByLength and ungrounded change the text', async () => {
	const full = read((await chat(sim)).text).text;
	const get = async (kind, text = section) => { await faulty({ kind }); return read((await chat(sim, request(prompt(text)))).text); };
	const parses = text => { try { JSON.parse(text); return true; } catch { return false; } };
	const prose = await get('notJson');
	equal([parses(prose.text), prose.finish, prose.done], [false, 'stop', true], 'notJson');
	const cut = await get('cutText');
	equal([parses(cut.text), full.startsWith(cut.text), cut.finish], [false, true, 'stop'], 'cutText');
	const short = await get('cutByLength');
	equal([parses(short.text), full.startsWith(short.text), short.finish], [false, true, 'length'], 'cutByLength');
	const invented = facts((await get('ungrounded')).text);
	equal([invented.length, section.includes(invented[0].quote), section.includes(invented[1].quote)], [2, false, true], 'ungrounded');
	equal(facts((await get('ungrounded', 'Nothing.')).text).length, 1, 'ungrounded without a fact');
	const counters = await state(sim);
	equal([counters.completed, counters.faulted, counters.faults], [1, 0, { ungrounded: 1 }], 'these answers are complete');
});

await test('faults are aimed by ordinal, list, every, content and times; the first that fits wins', async () => {
	const statuses = async count => { const got = []; for (let i = 0; i < count; i++) got.push((await chat(sim)).status); return got; };
	await script(sim, { faults: [{ on: [2, 4], kind: 'status', status: 429 }, { on: { every: 2 }, kind: 'status', status: 503 }] });
	equal(await statuses(6), [200, 429, 200, 429, 200, 503], 'ordinals');
	await script(sim, { faults: [{ match: 'Žofie', times: 2, kind: 'status', status: 500 }] });
	equal((await chat(sim, request(prompt('Other.')))).status, 200, 'no match');
	equal(await statuses(3), [500, 500, 200], 'match');
	await script(sim, { faults: [{ match: 'Acme', on: 2, kind: 'status', status: 500 }] });
	equal(await statuses(3), [200, 500, 200], 'match and ordinal');
});

// ---- Counters, connections, limits ----

await test('a client that goes away is counted, and its answer stops', async () => {
	await script(sim, { cadence: { firstByteMs: 10, chunkMs: 20, tokensPerChunk: 1 } });
	equal((await chat(sim, undefined, { abortAfter: 3 })).text.includes('[DONE]'), false, 'aborted');
	await until('cancelled', async () => (await state(sim)).cancelled === 1);
	await script(sim, { cadence: { firstByteMs: 60000 } });
	await chat(sim, undefined, { abortAfter: 0 });
	await until('cancelled before the first byte', async () => (await state(sim)).cancelled === 1);
	const counters = await state(sim);
	equal([counters.requests, counters.completed, counters.inFlight, counters.maxInFlight], [1, 0, 0, 1], 'counters');
});

await test('requests and completed answers are counted by section and by idempotency key; the last body is kept', async () => {
	await script(sim, { faults: [{ on: 1, kind: 'status', status: 503 }] });
	const headers = { 'Idempotency-Key': 'key-1' };
	await chat(sim, undefined, { headers });
	await chat(sim, undefined, { headers });
	await chat(sim, request('no section'));
	const counters = await state(sim);
	equal(counters.bySection, { [digest(section)]: { requests: 2, completed: 1 } }, 'sections');
	equal(counters.byIdempotencyKey, { 'key-1': { requests: 2, completed: 1 } }, 'keys');
	equal([counters.requests, counters.completed, counters.faulted], [3, 2, 1], 'totals');
	equal(counters.lastRequest.messages[1].content, 'no section', 'last request');
	await control(sim, 'POST', '/__sim/reset');
	const empty = await state(sim);
	equal([empty.requests, empty.completed, empty.maxInFlight, empty.bySection, empty.lastRequest], [0, 0, 0, {}, null], 'reset');
});

await test('a reset while an answer is under way leaves no trace of it', async () => {
	await script(sim, { cadence: { firstByteMs: 150 } });
	const late = chat(sim);
	await until('in flight', async () => (await state(sim)).inFlight === 1);
	await control(sim, 'POST', '/__sim/reset');
	check(read((await late).text).done, 'the answer still comes');
	const counters = await state(sim);
	equal([counters.requests, counters.completed, counters.inFlight], [0, 0, 0], 'counters');
});

await test('a connection is kept and takes requests one after another, also when they are sent ahead', async () => {
	await script(sim, {});
	const body = request('x', { stream: false });
	const one = `POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
	const many = await rawAsk(sim, one.repeat(50) + 'GET /health HTTP/1.1\r\nConnection: close\r\n\r\n');
	equal(many.text.split('HTTP/1.1 200 OK').length - 1, 51, 'answers');
	check(many.ended && many.text.indexOf('chatcmpl-sim-50"') > many.text.indexOf('chatcmpl-sim-49"'), 'in order');
	const odd = await rawAsk(sim, 'GET /health HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n', { linger: 200 });
	check(odd.text.startsWith('HTTP/1.1 200'), 'an offer to upgrade is ignored');
});

await test('bytes that are no HTTP, long paths and headers, and a client that sends too far ahead are cut off', async () => {
	check((await rawAsk(sim, 'nonsense\r\n\r\n', { end: true })).text.startsWith('HTTP/1.1 400'), '400');
	check((await rawAsk(sim, `GET /${'x'.repeat(3000)} HTTP/1.1\r\n\r\n`, { end: true })).text.startsWith('HTTP/1.1 414'), '414');
	check((await rawAsk(sim, `GET / HTTP/1.1\r\nX: ${'x'.repeat(100000)}\r\n\r\n`, { end: true })).text.startsWith('HTTP/1.1 431'), '431');
	await script(sim, {});
	check((await rawAsk(sim, 'POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n', { end: true })).text
		.startsWith('HTTP/1.1 400'), 'bad chunk');
	equal((await state(sim)).rejected, 1, 'counted as rejected');
	await script(sim, { faults: [{ on: 1, kind: 'hang' }] });
	const body = request('x');
	const ahead = await rawAsk(sim, `POST /v1/chat/completions HTTP/1.1\r\nContent-Length: ${body.length}\r\n\r\n${body}${'x'.repeat(100000)}`);
	check(ahead.ended || ahead.error, 'cut off');
	equal((await state(sim)).cancelled, 1, 'counted');
	check((await rawAsk(sim, 'POST /v1/chat/completions HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n', { linger: 100 })).text
		.startsWith('HTTP/1.1 100'), '100');
});

await test('a script with a mistake is refused with its place, and the old one stays', async () => {
	await script(sim, { answer: { mode: 'fixed', ...texts(['kept']) } });
	const bad = [[{ faults: [{ on: 1, kind: 'nope' }] }, '/faults/0/kind'], [{ cadance: {} }, 'cadance'], [{ faults: [{ kind: 'close' }] }, '/faults/0'],
		[{ answer: { mode: 'weighted', answers: [] } }, '/answer/answers'], [{ answer: { mode: 'fixed', answers: [{ text: 1 }] } }, '/answer/answers/0/text'],
		[{ cadence: { chunkMs: -1 } }, '/cadence/chunkMs'], [{ faults: [{ on: 0, kind: 'close' }] }, '/faults/0/on'],
		[{ options: { noDone: 1 } }, '/options/noDone'], [{ options: { noSchemas: 'some' } }, '/options/noSchemas'], [{ faults: [{ on: 1, kind: 'status', status: 200 }] }, '/faults/0/status'], [[], 'object'],
		[{ faults: Array(10001).fill({ on: 1, kind: 'close' }) }, 'at most 10000'],
		[{ answer: { mode: 'fixed', ...texts(Array(10001).fill('x')) } }, '1 to 10000']];
	for (const [text, place] of bad) {
		const answer = await control(sim, 'POST', '/__sim/script', text);
		check(answer.status === 400 && answer.json.error.includes(place), `${JSON.stringify(text).slice(0, 80)}: ${answer.text.slice(0, 200)}`);
	}
	equal((await control(sim, 'GET', '/__sim/nothing')).status, 404, 'unknown control path');
	equal(read((await chat(sim)).text).text, 'kept', 'the old script');
});

await test('a client that reads slowly gets every byte of a long answer', async () => {
	await script(sim, { answer: { mode: 'fixed', ...texts(['0123456789abcdef'.repeat(60000)]) } });
	const body = request('x');
	const got = await new Promise(done => {
		const pieces = [];
		const socket = net.connect(sim.port, '127.0.0.1', () => socket.write(
			`POST /v1/chat/completions HTTP/1.0\r\nContent-Length: ${body.length}\r\n\r\n${body}`));
		socket.pause();
		setTimeout(() => socket.resume(), 200);
		socket.on('data', data => { pieces.push(data); if (pieces.length % 50 === 0) { socket.pause(); setTimeout(() => socket.resume(), 5); } });
		socket.on('close', () => done(Buffer.concat(pieces).toString()));
	});
	equal(read(got.slice(got.indexOf('\r\n\r\n') + 4)).text.length, 960000, 'text');
	const counters = await state(sim);
	equal([counters.completed, counters.cancelled], [1, 0], 'counters');
});

await test('1,000 streams at once are all answered', async () => {
	await script(sim, { cadence: { firstByteMs: 3_600_000, chunkMs: 10, tokensPerChunk: 16 } });
	const asked = Array.from({ length: 1000 }, () => chat(sim));
	await until('all are in flight', async () => (await state(sim)).inFlight === 1000);
	await control(sim, 'POST', '/__sim/release');
	const answers = await Promise.all(asked);
	check(answers.every(answer => answer.status === 200 && read(answer.text).done), 'answers');
	const counters = await state(sim);
	equal([counters.completed, counters.inFlight], [1000, 0], 'counters');
	equal(counters.maxInFlight, 1000, 'at once');
});

await test('equal scripts and equal requests give equal bytes in another process', async () => {
	const text = { seed: 5, answer: { mode: 'weighted', answers: [{ text: 'a', weight: 1 }, { text: 'b', weight: 1 }] }, cadence: { jitterMs: 2 } };
	const path = join(folder, 'script.json');
	writeFileSync(path, JSON.stringify(text));
	const runs = [];
	for (let i = 0; i < 2; i++) {
		const other = await start('--script', path, '--seed', String(i));
		let bytes = '';
		for (let k = 0; k < 20; k++)
			bytes += (await chat(other)).text;
		runs.push(digest(bytes));
		await stop(other);
	}
	equal(runs[0], runs[1], 'bytes');
});

// ---- The command line ----

await test('--delay, --model, --connections-max and --sections-max hold; SIGTERM ends streams under way', async () => {
	const other = await start('--delay', '80', '--model', 'm', '--connections-max', '3', '--sections-max', '2', '--verbose');
	const answer = await chat(other, request('x', { model: 'm' }));
	check(answer.ms >= 75 && read(answer.text).done, `delay: ${answer.ms}`);
	for (const text of ['a', 'b', 'c', 'b'])
		await chat(other, request(prompt(text), { model: 'm' }));
	const counters = await state(other);
	equal(Object.values(counters.bySection).map(entry => entry.requests), [1, 2], 'sections');
	equal([counters.bySectionFull, counters.byIdempotencyKeyFull], [true, false], 'full');
	await until('free connections', async () => (await state(other)).connections === 0);
	const sockets = [1, 2, 3].map(() => net.connect(other.port, '127.0.0.1'));
	await until('three connections', async () => (await state(other)).connections === 3);
	check((await rawAsk(other, 'GET /health HTTP/1.1\r\n\r\n')).text === '', 'the fourth is closed');
	equal((await state(other)).connectionsRefused, 1, 'counted');
	sockets.forEach(socket => socket.destroy());
	await until('room', async () => (await state(other)).connections === 0);
	await script(other, { model: 'm', cadence: { firstByteMs: 60000 } });
	const cut = chat(other, request('x', { model: 'm' }));
	await until('in flight', async () => (await state(other)).inFlight === 1);
	await stop(other);
	check((await cut).broken, 'the stream ended');
	check(/request=1 outcome=completed fault=none/.test(other.errors), `verbose: ${other.errors}`);
});

await test('mistakes on the command line end with status 2 and a word, a taken port with 1', async () => {
	const path = join(folder, 'bad.json');
	writeFileSync(path, '{"answer":{"mode":"nope"}}');
	for (const [options, status, word] of [[['--port', 'x'], 2, '--port'], [['--port', '70000'], 2, '65535'], [['--kind', 'gpt'], 2, 'gpt'],
		[['--what', '1'], 2, '--what'], [['--script'], 2, '--script'], [['--connections-max', '4097'], 2, '4096'],
		[['--sections-max', '100001'], 2, '100000'], [['--script', path], 2, '/answer/mode'],
		[['--script', join(folder, 'none.json')], 1, 'none.json'], [['--port', String(sim.port)], 1, 'address already in use']]) {
		const result = spawnSync(programs.sim, options, { encoding: 'utf8', timeout: 60_000 });
		equal(result.status, status, options.join(' '));
		check(result.stderr.includes(word), `${options.join(' ')}: ${result.stderr}`);
	}
	check(spawnSync(programs.sim, ['--help'], { encoding: 'utf8' }).stdout.startsWith('usage:'), '--help');
	const bare = launch(programs.sim, []);
	const line = await firstLine(bare, 'reprise-sim');
	check(/^reprise-sim ready http:\/\/127\.0\.0\.1:\d+$/.test(line), `without a control port: ${line}`);
	bare.kill('SIGINT');
	equal(await exitOf(bare), { code: 0, signal: null }, 'SIGINT');
});

await test('it ends cleanly after all this', () => stop(sim));

await finish();
