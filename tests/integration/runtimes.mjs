// Every kind of runtime, on its simulator, through the whole daemon: who answers is known field by field, each request carries all of
// its sampling, each fault has its class, a stream that ends at any point gives no fact and loses no run, and a runtime that is replaced
// under the same address is noticed and named. One table; a new kind is a row. Needs Node 20 and nothing else.
import http from 'node:http';
import { Daemon, check, cli, documentOf, equal, extractionOf, finish, match, pause, startSimulator, test, until } from '../support/harness.mjs';

const MODEL = 'reprise-sim';
const DOCUMENT = 'Acme was founded in 1901. Acme is located in Brno.';
const FACTS = 2;

// options: of the simulator, of this kind. sent: where the request has its sampling, under which names. schema: where the schema stands.
// ignored: fields that its simulator takes no notice of. record: fields that a probe has to find, and how. marker: a stream that lacks its end mark is no answer. replaced: options of another
// runtime (of another simulator: by), and the field that shows it.
const kinds = [
	{
		kind: 'openai', ignored: ['topK', 'minP', 'repetitionPenalty', 'reasoningEffort', 'generationConfig'], sent: { temperature: 0.5, top_p: 0.9, seed: 7, max_tokens: 900 }, schema: body => body.response_format.json_schema.schema,
		record: { 'A.runtime_version': 'reported', 'B.model_id': 'reported' }, marker: false,
		replaced: { version: '0.30.1' }, by: 'vllm', shows: 'A.runtime_version',
	},
	{
		kind: 'llamacpp', sent: { temperature: 0.5, top_p: 0.9, top_k: 0, min_p: 0, seed: 7, n_predict: 900, repeat_penalty: 1, presence_penalty: 0, frequency_penalty: 0, cache_prompt: true,
			dynatemp_range: 0, dynatemp_exponent: 1, typical_p: 1, top_n_sigma: -1, xtc_probability: 0, xtc_threshold: 0.1, mirostat: 0, mirostat_tau: 5, mirostat_eta: 0.1, min_keep: 0,
			samplers: ['penalties', 'dry', 'top_n_sigma', 'top_k', 'typ_p', 'top_p', 'min_p', 'xtc', 'temperature'], ignore_eos: false, repeat_last_n: 64,
			dry_multiplier: 0, dry_base: 1.75, dry_allowed_length: 2, dry_penalty_last_n: 64, stop: [] },
		schema: body => body.response_format.json_schema.schema, counts: true, marker: true,
		record: { 'A.runtime_version': 'reported', 'A.runtime_commit': 'reported', 'B.chat_template_sha256': 'reported', 'C.context_length': 'reported', 'C.parallel': 'reported', 'C.sampling_defaults': 'reported', 'C.structured_backend': 'reported' },
		replaced: { version: 'b7000-ffffff1' }, shows: 'A.runtime_version',
	},
	{
		kind: 'vllm', sent: { temperature: 0.5, top_p: 0.9, top_k: 0, min_p: 0, seed: 7, max_tokens: 900, repetition_penalty: 1, presence_penalty: 0, frequency_penalty: 0,
			min_tokens: 0, ignore_eos: false, include_stop_str_in_output: false, include_reasoning: true, stop: [] },
		schema: body => body.response_format.json_schema.schema, counts: true, marker: true,
		record: { 'A.runtime_version': 'reported', 'B.model_id': 'reported', 'C.context_length': 'reported', 'C.cache_flags': 'reported' },
		faults: { errorEvent: 'unreachable' }, // its engine has died
		replaced: { version: '0.30.1' }, shows: 'A.runtime_version',
	},
	{
		kind: 'ollama', options: { loaded: true }, place: body => body.options, weights: 'reported',
		sent: { temperature: 0.5, top_p: 0.9, top_k: 0, min_p: 0, seed: 7, num_predict: 900, repeat_penalty: 1, presence_penalty: 0, frequency_penalty: 0, num_ctx: 8192, typical_p: 1, repeat_last_n: 64, stop: [] },
		schema: body => body.format, marker: true,
		record: { 'A.runtime_version': 'reported', 'B.weights_digest': 'reported', 'B.arch': 'reported', 'B.quantisation': 'reported', 'B.chat_template_sha256': 'reported', 'C.context_length': 'reported', 'C.offload': 'reported' },
		replaced: { revision: '2' }, shows: 'B.weights_digest',
	},
	{
		kind: 'sglang', sent: { temperature: 0.5, top_p: 0.9, top_k: -1, min_p: 0, seed: 7, max_tokens: 900, repetition_penalty: 1, presence_penalty: 0, frequency_penalty: 0,
			min_tokens: 0, ignore_eos: false, no_stop_trim: false, stop: [] },
		schema: body => body.response_format.json_schema.schema, marker: true,
		record: { 'A.runtime_version': 'reported', 'C.kernels': 'reported', 'C.cache_flags': 'reported', 'C.determinism_switch': 'reported', 'C.structured_backend': 'reported' },
		replaced: { version: '0.5.9', deterministic: true }, shows: 'C.determinism_switch',
	},
	{
		kind: 'lmstudio', options: { loaded: true }, sent: { stop: [], temperature: 0.5, top_p: 0.9, top_k: 0, seed: 7, max_tokens: 900, repeat_penalty: 1, presence_penalty: 0, frequency_penalty: 0 },
		schema: body => body.response_format.json_schema.schema, marker: true,
		record: { 'A.runtime_version': 'reported', 'A.engine': 'reported', 'B.arch': 'reported', 'B.quantisation': 'reported', 'C.context_length': 'reported', 'C.load_config': 'reported', 'C.parallel': 'reported' },
		learns: true, replaced: { version: '2.9.0' }, shows: 'A.runtime_version',
	},
	{
		name: 'transformers', kind: 'openai', sim: 'transformers', sent: { temperature: 0.5, top_p: 0.9, seed: 7, max_tokens: 900 }, schema: () => ({ type: 'object' }),
		record: { 'B.model_id': 'reported' }, marker: false,
		replaced: { revision: '0123abc' }, shows: 'E.system_fingerprint',
	},
];

// A fault of the simulator, and the class that the attempt gets; '' is none. For some kinds it is another.
const faults = [
	[{ kind: 'status', status: 400 }, 'refused'],
	[{ kind: 'status', status: 401 }, 'refused'],
	[{ kind: 'status', status: 422 }, 'refused'],
	[{ kind: 'status', status: 429, retryAfter: 1 }, 'rate-limited'],
	[{ kind: 'status', status: 500 }, 'runtime-error'],
	[{ kind: 'status', status: 501 }, 'refused'],
	[{ kind: 'status', status: 503 }, 'unreachable'],
	[{ on: { every: 1 }, kind: 'refuse' }, 'unreachable'], // each: on a kept connection that breaks before any byte curl sends again, and it may have several
	[{ on: { every: 1 }, kind: 'close' }, 'unreachable'],
	[{ kind: 'hang' }, 'stalled'],
	[{ kind: 'stall', afterBytes: 700 }, 'stalled'],
	[{ kind: 'reset', afterBytes: 700 }, 'runtime-error'],
	[{ kind: 'eof' }, 'truncated'],
	[{ kind: 'errorEvent' }, 'runtime-error'],
	[{ kind: 'truncatedJson' }, 'runtime-error'],
	[{ kind: 'cutByLength' }, 'truncated'],
	[{ kind: 'cutText' }, 'schema-invalid'],
	[{ kind: 'notJson' }, 'schema-invalid'],
	[{ kind: 'ungrounded' }, 'facts'],
	[{ kind: 'contentType' }, 'facts'],
];

const sampling = { temperature: 0.5, topP: 0.9, seed: 7, maxTokens: 900 };
const runtimeOf = (row, url, more = {}) => ({
	r: { kind: row.kind, url, model: row.model ?? MODEL, sampling, timeouts: { connect: '30s', firstToken: '60s', betweenTokens: '60s', total: '2m' }, retry: { attempts: 1, floor: '10ms', cap: '50ms' }, ...more },
});
// For who is to find one stalled; a busy machine may take its time over a good answer.
const hurried = runtime => ({ ...runtime, timeouts: { ...runtime.timeouts, firstToken: '700ms', betweenTokens: '700ms' } });
let runs = 0;

async function extract(daemon, runtime = 'r') {
	const id = `run-${++runs}`;
	await daemon.post('/v1/runs', { id, definition: extractionOf(runtime), input: { document: DOCUMENT } }, 201);
	const run = await daemon.ended(id);
	equal(run.status, 'completed', `${id}: ${JSON.stringify(run.error)}`);
	return { id, sections: run.output.facts?.sections ?? run.output.sections, facts: run.output.facts?.facts ?? run.output.facts };
}

const failuresOf = async (daemon, id) => (await daemon.get(`/v1/runs/${id}/events`)).events.filter(event => event.kind === 'attempt.failed');

for (const row of kinds) {
	const name = row.name ?? row.kind;
	const sim = await startSimulator('--kind', row.sim ?? row.kind);
	const start = async (more, options = {}) => {
		await sim.script({ options: { ...row.options, ...options } });
		const { r } = runtimeOf(row, sim.url, more);
		return new Daemon(`runtimes-${name}`, { runtimes: more?.hurried ? { r: runtimeOf(row, sim.url).r, hurried: hurried(runtimeOf(row, sim.url).r) } : { r } }).start();
	};

	await test(`${name}: the record is there after the start; a probe prints each field with its basis, and what cannot be known`, async () => {
		const daemon = await start();
		await until('it was asked at the start', async () => (await daemon.get('/v1/runtimes')).runtimes[0].configuration !== undefined);
		const before = (await daemon.get('/v1/runtimes')).runtimes[0].configuration;
		const probe = await daemon.post('/v1/runtimes/r/probe', {}, 200);
		equal(probe.digest === before, row.learns !== true, 'a probe finds something new only where a token has to be made for it');
		for (const [place, basis] of Object.entries(row.record)) {
			const [group, field] = place.split('.');
			equal(probe.configuration[group]?.[field]?.basis, basis, `${place}: ${JSON.stringify(probe.configuration[group]?.[field])}`);
			check(probe.configuration[group][field].source.length > 0, `${place} has no source`);
		}
		equal(probe.configuration.A.runtime_kind.value, row.kind, 'kind');
		equal(probe.configuration.B.weights_digest?.basis, row.weights ?? 'unknown', 'weights');
		equal(probe.configuration.G.ignored_parameters.value, row.ignored ?? [], 'what it takes no notice of');
		for (const verb of [['runtime', 'probe', 'r'], ['provenance', 'show', probe.digest]]) {
			const shown = cli('--socket', daemon.socket, ...verb);
			equal(shown.code, 0, shown.stderr);
			for (const [place, basis] of Object.entries(row.record))
				match(shown.stdout, new RegExp(`^${place.replace('.', '\\.')} +${basis} +\\S`, 'm'), verb.join(' '));
			match(shown.stdout, /^G\.ignored_parameters +measured/m, verb.join(' '));
			match(shown.stdout, /^not known: .*C\.argv/m, verb.join(' '));
		}
		await daemon.stop();
	});

	await test(`${name}: extraction gives facts under that record; the request carries all sampling and the schema`, async () => {
		const daemon = await start();
		const result = await extract(daemon);
		equal(result.sections.map(section => section.outcome), ['facts'], 'outcome');
		equal(result.facts.length, FACTS, 'facts');
		const request = (await sim.state()).lastRequest;
		for (const [field, value] of Object.entries(row.sent))
			equal((row.place ?? (body => body))(request)[field], value, `${field} of ${JSON.stringify({ ...request, messages: 0, response_format: 0 })}`);
		equal(row.schema(request)?.type, 'object', 'the schema');
		const fact = await daemon.get(`/v1/facts/${result.facts[0].id}`);
		equal([fact.simulated, fact.unattested], [true, row.weights === undefined ? true : undefined], 'simulated; its weights are known or not');
		equal(cli('--socket', daemon.socket, 'replay', result.id).code, 0, 'replay');
		const record = (await daemon.get(`/v1/provenance/${fact.configuration}`)).record;
		equal(record.A.runtime_kind.value, row.kind, 'the fact\'s record');
		if (row.counts) {
			const answered = (await daemon.get(`/v1/runs/${result.id}/events`)).events.find(event => event.kind === 'attempt.succeeded' && event.data.request);
			const attempt = JSON.parse(daemon.content(answered.data.record));
			check(attempt.promptTokensCounted > 0, `no tokens counted: ${JSON.stringify(attempt)}`);
			equal(attempt.promptTokensCounted, attempt.usage.promptTokens, 'tokens counted beforehand and told afterwards');
		}
		await daemon.stop();
	});

	await test(`${name}: each fault has its class, and no answer that is not whole gives a fact`, async () => {
		const daemon = await start({ hurried: true });
		equal((await extract(daemon)).facts.length, FACTS, 'what it refuses of our own is known from here on');
		await until('of the other one as well', async () => (await extract(daemon, 'hurried')).facts.length === FACTS);
		for (const [fault, expected] of faults) {
			await sim.script({ options: row.options, faults: [{ on: 1, ...fault }] });
			const wanted = row.faults?.[`${fault.kind}${fault.status ?? ''}`] ?? expected;
			const result = await extract(daemon, wanted === 'stalled' ? 'hurried' : 'r');
			const text = JSON.stringify(fault);
			if (wanted === 'facts') {
				equal(result.sections[0].outcome, 'facts', text);
			} else {
				equal(result.sections[0].outcome, wanted, text);
				equal(result.facts.length, 0, `${text}: facts`);
			}
		}
		await daemon.stop();
	});

	await test(`${name}: a stream without its end mark ${row.marker ? 'is no answer' : 'is one, if it says that it finished'}; another model's answer never is`, async () => {
		const daemon = await start({}, { noDone: true });
		equal((await extract(daemon)).sections[0].outcome, row.marker ? 'truncated' : 'facts', 'without the mark');
		await sim.script({ options: { ...row.options, wrongModel: 'another-model' } });
		const wrong = await extract(daemon);
		equal([wrong.sections[0].outcome, wrong.facts.length], ['wrong-model', 0], 'another model');
		await daemon.stop();
	});

	await test(`${name}: a runtime that dies at any point of its stream gives no fact and loses no run`, async () => {
		const port = sim.port;
		const daemon = await start({ retry: { attempts: 100, floor: '30ms', cap: '1s' } });
		await sim.stop();
		let other = await startSimulator('--kind', row.sim ?? row.kind, '--port', String(port));
		await other.script({ options: row.options });
		equal((await extract(daemon)).facts.length, FACTS, 'what it refuses of our own is known from here on');
		for (const afterBytes of [0, 60, 300, 700, 1000, 1400]) {
			await other.script({ options: row.options, faults: [{ on: 1, kind: 'die', afterBytes }] });
			const id = `run-${++runs}`;
			await daemon.post('/v1/runs', { id, definition: extractionOf('r'), input: { document: DOCUMENT } }, 201);
			check(await Promise.race([other.child.gone.then(() => true), pause(60_000)]), `it did not die after ${afterBytes} bytes`);
			other = await startSimulator('--kind', row.sim ?? row.kind, '--port', String(port));
			await other.script({ options: row.options });
			const run = await daemon.ended(id);
			equal(run.status, 'completed', `after ${afterBytes} bytes: ${JSON.stringify(run.error)}`);
			equal((run.facts ?? []).length, FACTS, `facts of the run whose runtime died after ${afterBytes} bytes`);
		}
		// The same address, another runtime: no fact under the old record, none lost. What only a thorough probe told goes with the one before.
		if (row.learns)
			await daemon.post('/v1/runtimes/r/probe', {}, 200);
		const before = await extract(daemon);
		await other.stop();
		other = await startSimulator('--kind', row.by ?? row.sim ?? row.kind, '--port', String(port));
		await other.script({ options: { ...row.options, ...row.replaced } });
		const after = await extract(daemon);
		equal(after.facts.length, FACTS, 'facts of the other runtime');
		const of = async result => (await daemon.get(`/v1/facts/${result.facts[0].id}`)).configuration;
		const [old, now] = [await of(before), await of(after)];
		check(old !== now, 'both under one record');
		const failed = await failuresOf(daemon, after.id);
		check(failed.length >= 1, 'no attempt failed');
		const diff = await daemon.get(`/v1/provenance/${old}?against=${now}`);
		check(diff.differences.some(item => item.field === row.shows), JSON.stringify(diff.differences));
		match(daemon.child.errors, new RegExp(`configuration changed: .*${row.shows.replace('.', '\\.')}`), 'the log names the field');
		const shown = cli('--socket', daemon.socket, 'provenance', 'diff', old, now);
		equal(shown.code, 0, shown.stderr);
		match(shown.stdout, new RegExp(row.shows), 'provenance diff');
		await daemon.stop();
		await other.stop();
	});
}

// ---- Guards and discoveries that need a server which lies on purpose ----

const chunk = (delta, finish = null, model = MODEL) => `data: ${JSON.stringify({ model, choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`;
const facts = JSON.stringify({ facts: [{ subject: 'Acme', predicate: 'founded_in', object: '1901', quote: 'Acme was founded in 1901.' }] });

// A vLLM by its paths. how: {model: of the text, count, told, completion, context, reads: fields that it checks, refuses: fields that get 422}.
async function startFake(how) {
	const seen = [];
	let busy = Promise.resolve();
	const server = http.createServer((request, response) => {
		const parts = [];
		request.on('data', part => parts.push(part)).on('end', async () => {
			const before = busy;
			if (how.takes && request.url === '/v1/chat/completions')
				busy = before.then(() => pause(how.takes));
			if (how.takes)
				await (request.url === '/v1/chat/completions' ? busy : before);
			const json = (status, body) => response.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(body));
			if (request.url === '/health')
				return response.writeHead(200).end();
			if (request.url === '/v1/models')
				return json(200, { object: 'list', data: [{ id: MODEL, max_model_len: how.context ?? 4096 }] });
			if (request.url === '/version')
				return json(200, { version: how.version ?? '1' });
			if (request.url === '/tokenize' && how.count !== undefined)
				return json(200, { count: how.count });
			if (request.url !== '/v1/chat/completions')
				return json(404, { detail: 'Not Found' });
			const body = JSON.parse(Buffer.concat(parts));
			seen.push(body);
			const refused = (how.refuses ?? []).filter(field => body[field] !== undefined);
			if (refused.length > 0)
				return json(422, { detail: `Unsupported fields in the request: {${refused.map(field => `'${field}'`).join(', ')}}` });
			const objects = ['logit_bias', 'chat_template_kwargs'];
			const bad = (how.reads ?? []).find(field => body[field] !== undefined && (objects.includes(field) ? typeof body[field] !== 'object' : typeof body[field] === 'object' && !Array.isArray(body[field])));
			if (bad)
				return json(400, { error: { message: `${bad} must be a number`, type: 'BadRequestError', param: bad, code: 400 } });
			response.writeHead(200, { 'Content-Type': 'text/event-stream' });
			response.end(chunk({ content: facts }, null, how.model) + chunk({}, 'stop') +
				`data: ${JSON.stringify({ choices: [], usage: { prompt_tokens: how.told ?? 100, completion_tokens: how.completion ?? 10 } })}\n\n` + (how.done === false ? '' : 'data: [DONE]\n\n'));
		});
	});
	await new Promise(done => server.listen(0, '127.0.0.1', done));
	server.unref();
	return { url: `http://127.0.0.1:${server.address().port}`, seen, how, close: () => { server.closeAllConnections(); server.close(); } };
}

const guards = [
	['told as many tokens as were counted', { count: 100, told: 100 }, 'facts', 1],
	['told a few fewer: marks at the begin', { count: 104, told: 100 }, 'facts', 1],
	['told far fewer than were counted: the prompt was cut', { count: 200, told: 100 }, 'truncated', 1],
	['counted more than the context holds: not even sent', { count: 5000 }, 'refused', 0],
	['prompt and answer are more than the context holds', { told: 4090, completion: 10 }, 'truncated', 1],
	['it cannot count', {}, 'facts', 1],
	['the text is another model\'s, the end is of the one that was asked', { model: 'another-model' }, 'wrong-model', 1],
];

for (const [sentence, how, outcome, requests] of guards)
	await test(`guard: ${sentence}`, async () => {
		const fake = await startFake(how);
		const daemon = await new Daemon('runtimes-guards', { runtimes: runtimeOf({ kind: 'vllm' }, fake.url) }).start();
		const result = await extract(daemon);
		equal([result.sections[0].outcome, result.facts.length, fake.seen.length], [outcome, outcome === 'facts' ? 1 : 0, requests], sentence);
		await daemon.stop();
		fake.close();
	});

await test('sampling fields that are taken no notice of are found by a probe, and by no other request', async () => {
	const fake = await startFake({ reads: ['temperature', 'top_p', 'seed', 'max_tokens', 'stop', 'presence_penalty', 'frequency_penalty', 'repetition_penalty', 'reasoning_effort', 'min_tokens', 'stop_token_ids', 'include_stop_str_in_output', 'logit_bias', 'bad_words', 'thinking_token_budget', 'include_reasoning', 'chat_template_kwargs'] });
	const daemon = await new Daemon('runtimes-ignored', { runtimes: runtimeOf({ kind: 'vllm' }, fake.url) }).start();
	await until('it was asked', async () => (await daemon.get('/v1/runtimes')).runtimes[0].configuration !== undefined);
	equal(fake.seen.length, 0, 'requests of the start');
	const before = (await daemon.get('/v1/runtimes')).runtimes[0].configuration;
	const probe = await daemon.post('/v1/runtimes/r/probe', {}, 200);
	equal(probe.configuration.G.ignored_parameters.value, ['topK', 'minP', 'ignoreEos', 'allowedTokenIds'], 'ignored');
	equal(probe.digest, before, 'what was observed beside it is no part of the configuration');
	equal((await daemon.get(`/v1/provenance/${probe.digest}`)).record.G.ignored_parameters.value, ['topK', 'minP', 'ignoreEos', 'allowedTokenIds'], 'the record that is kept');
	const { id, facts: [fact] } = await extract(daemon);
	const shown = cli('--socket', daemon.socket, 'fact', 'show', fact.id).stdout;
	match(shown, /^runtime +r, model reprise-sim +\(unattested: its weights are not known\)$/m, 'a fact afterwards');
	const exported = cli('--socket', daemon.socket, 'fact', 'export', '--run', id);
	match(Buffer.from(JSON.parse(exported.stdout.split('\n')[0]).payload, 'base64').toString(), /"model":\{[^}]*"unattested":true/, 'what is signed of it');
	await daemon.stop();
	fake.close();
});

await test('transformers: reasoning between tags is none of the text, in a stream as in one piece', async () => {
	const sim = await startSimulator('--kind', 'transformers');
	const daemon = await new Daemon('runtimes-thoughts', { runtimes: runtimeOf({ kind: 'openai' }, sim.url) }).start();
	for (const ignoreStream of [false, true]) {
		await sim.script({ answer: { mode: 'fixed', answers: [{ text: facts, reasoning: 'Which facts are there? <b>One</b> is.' }] }, cadence: { tokensPerChunk: 1 }, options: { ignoreStream } });
		const result = await extract(daemon);
		equal([result.sections[0].outcome, result.facts.length], ['facts', 1], `ignoreStream ${ignoreStream}`);
	}
	await daemon.stop();
	await sim.stop();
});

await test('transformers: it is asked again without what it refuses of our own, in the same attempt; an author\'s field is named to him', async () => {
	const fake = await startFake({ refuses: ['response_format', 'stream_options', 'presence_penalty'], done: false });
	const daemon = await new Daemon('runtimes-transformers', { runtimes: runtimeOf({ kind: 'openai' }, fake.url) }).start();
	const first = await extract(daemon);
	equal([first.sections[0].outcome, first.facts.length], ['facts', 1], 'left out');
	equal(fake.seen.map(body => [body.response_format === undefined, body.stream_options === undefined]), [[false, false], [true, true]], 'requests');
	equal((await extract(daemon)).sections[0].outcome, 'facts', 'the next run');
	equal(fake.seen.length, 3, 'it is remembered');
	await daemon.post('/v1/runs', { id: 'named', definition: extractionOf('r', { sampling: { presencePenalty: 1 } }), input: { document: DOCUMENT } }, 201);
	const named = await daemon.ended('named');
	const outcome = (named.output?.facts?.sections ?? named.output?.sections)?.[0]?.outcome;
	equal(outcome, 'configuration', JSON.stringify(named.error));
	await daemon.stop();
	fake.close();
});

await test('transformers: a request without a schema whose other fields are refused is asked again too, and is answered', async () => {
	const fake = await startFake({ refuses: ['stream_options'], done: false });
	const daemon = await new Daemon('runtimes-plain', { runtimes: runtimeOf({ kind: 'openai' }, fake.url) }).start();
	const definition = { document: { dsl: '1.0.3', namespace: 'demo', name: 'ask', version: '1.0.0' }, do: [{ ask: { call: 'inference', with: { runtime: 'r', prompt: 'Say something.' } } }] };
	for (const id of ['first', 'second']) {
		await daemon.post('/v1/runs', { id, definition }, 201);
		const ended = await daemon.ended(id);
		equal([ended.status, ended.output?.text], ['completed', facts], JSON.stringify(ended.error));
	}
	equal(fake.seen.map(body => [body.response_format === undefined, body.stream_options === undefined]), [[true, false], [true, true], [true, true]], 'requests');
	await daemon.stop();
	fake.close();
});

await test('a server that does one thing at a time says who it is after its answer, and is not taken for unreachable meanwhile', async () => {
	const fake = await startFake({ takes: 5600 });
	const daemon = await new Daemon('runtimes-serial', { runtimes: runtimeOf({ kind: 'vllm' }, fake.url, { timeouts: { firstToken: '20s', betweenTokens: '20s' } }) }).start();
	await until('it was asked', async () => (await daemon.get('/v1/runtimes')).runtimes[0].configuration !== undefined);
	await pause(3500); // its connection is too old to be used again
	const result = await extract(daemon);
	equal([result.sections[0].outcome, fake.seen.length], ['facts', 1], 'outcome');
	check(!/unreachable/.test(daemon.child.errors), daemon.child.errors);
	await daemon.stop();
	fake.close();
});

await test('on its schedule a runtime is asked again: what changed is known without a run, and is in the log', async () => {
	const fake = await startFake({ version: '1' });
	const daemon = await new Daemon('runtimes-schedule', { runtimes: runtimeOf({ kind: 'vllm' }, fake.url, { probeEvery: '1s' }) }).start();
	await until('it was asked', async () => (await daemon.get('/v1/runtimes')).runtimes[0].configuration !== undefined);
	const before = (await daemon.get('/v1/runtimes')).runtimes[0].configuration;
	fake.how.version = '2';
	await until('the change is known', async () => (await daemon.get('/v1/runtimes')).runtimes[0].configuration !== before);
	match(daemon.child.errors, /configuration changed: A\.runtime_version \\?"1\\?" -> \\?"2/, 'log');
	await daemon.stop();
	fake.close();
});

await test('a runtime on another machine: its facts are signed without a host, and nothing of this one is claimed of it', async () => {
	const sim = await startSimulator('--kind', 'openai');
	// An address that is here, too, but is not known to be.
	const daemon = await new Daemon('runtimes-far', { runtimes: runtimeOf({ kind: 'openai' }, sim.url.replace('127.0.0.1', '0.0.0.0')) }).start();
	const result = await extract(daemon);
	equal(result.facts.length, FACTS, 'facts');
	const fact = await daemon.get(`/v1/facts/${result.facts[0].id}`), { record } = await daemon.get(`/v1/provenance/${fact.configuration}`);
	equal([record.D.kernel.basis, record.D.gpu.basis, (await daemon.get('/v1/runtimes')).runtimes[0].instance.basis], ['unknown', 'unknown', 'unknown'], 'the record');
	const verified = cli('--socket', daemon.socket, 'fact', 'verify', result.facts[0].id);
	equal(verified.code, 0, verified.stderr);
	await daemon.stop();
	await sim.stop();
});

await test('LM Studio on another machine: what only a thorough probe told of its engine goes when its model was loaded anew or it was away, for it may be another version then', async () => {
	const first = await startSimulator('--kind', 'lmstudio');
	const daemon = await new Daemon('runtimes-far-studio', { runtimes: runtimeOf({ kind: 'lmstudio' }, first.url.replace('127.0.0.1', '0.0.0.0'), { retry: { attempts: 5, floor: '10ms', cap: '50ms' }, probeEvery: '1s' }) }).start();
	const told = async () => (await daemon.post('/v1/runtimes/r/probe', {}, 200)).configuration.A.runtime_version.value;
	const ofFacts = async () => {
		const { facts } = await extract(daemon);
		equal(facts.length, FACTS, 'facts');
		return (await daemon.get(`/v1/provenance/${(await daemon.get(`/v1/facts/${facts[0].id}`)).configuration}`)).record.A.runtime_version;
	};
	equal([await told(), (await ofFacts()).value], ['2.8.0', '2.8.0'], 'while nothing has changed');
	const unloaded = await fetch(`${first.url}/api/v1/models/unload`, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: `{"instance_id":"${MODEL}"}` });
	equal(unloaded.status, 200, 'unloaded');
	await until('that is seen', async () => (await daemon.get('/v1/runtimes/r')).instance.id === undefined, 30_000);
	await first.script({ options: { version: '2.8.1' } });
	equal((await ofFacts()).basis, 'unknown', 'loaded anew for a request');
	equal([await told(), (await ofFacts()).value], ['2.8.1', '2.8.1'], 'told anew');
	await first.stop();
	await until('it is known to be away', async () => (await daemon.get('/v1/runtimes/r')).status === 'unreachable', 30_000);
	const second = await startSimulator('--kind', 'lmstudio', '--port', String(first.port));
	await second.script({ options: { version: '2.9.0' } });
	equal((await ofFacts()).basis, 'unknown', 'it was away');
	equal([await told(), (await ofFacts()).value], ['2.9.0', '2.9.0'], 'told anew');
	await daemon.stop();
	await second.stop();
});

await test('ollama: of a cloud model nothing is claimed that is not known here, no gate measures it, no work that relies on one is done by it', async () => {
	const sim = await startSimulator('--kind', 'ollama');
	await sim.script({ options: { loaded: true } });
	const daemon = await new Daemon('runtimes-cloud', { runtimes: runtimeOf({ kind: 'ollama' }, sim.url) }).start();
	const local = await daemon.post('/v1/runtimes/r/probe', {}, 200);
	equal([local.configuration.B.weights_digest.basis, local.configuration.B.revision.value, local.configuration.D.kernel.basis], ['reported', 'latest', 'measured'], 'a local one');
	// The name stands for something else from here on, and the answer says it before any probe does.
	await sim.script({ options: { loaded: true, remoteHost: 'https://cloud.invalid' } });
	const moved = await extract(daemon);
	equal([moved.sections[0].outcome, moved.facts.length], ['wrong-model', 0], 'moved');
	const cloud = await daemon.post('/v1/runtimes/r/probe', {}, 200), { B, C, D } = cloud.configuration;
	equal([B.remote_host.value, B.remote_model.value, B.weights_digest.basis, D.kernel.basis, D.cpu_model.basis, C.context_length.basis], ['https://cloud.invalid', 'simulated', 'unknown', 'unknown', 'unknown', 'unknown'], 'the record');
	equal((await daemon.get('/v1/runtimes')).runtimes[0].instance.basis, 'unknown', 'instance');
	const result = await extract(daemon);
	equal(result.facts.length, FACTS, 'facts');
	const fact = await daemon.get(`/v1/facts/${result.facts[0].id}`);
	equal([fact.configuration, fact.unattested], [cloud.digest, true], 'under that record, and marked');
	const requests = (await sim.state()).requests;
	const gate = cli('--socket', daemon.socket, 'gate', 'r', '-n', '2');
	check(gate.code !== 0 && /computed on another machine/.test(gate.stdout + gate.stderr), `${gate.code} ${gate.stdout} ${gate.stderr}`);
	await daemon.post('/v1/runs', { id: 'demands', definition: extractionOf('r', { requireClass: 'unstable' }), input: { document: DOCUMENT } }, 201);
	const demands = await daemon.ended('demands');
	equal((demands.output?.facts?.sections ?? demands.output?.sections)?.[0]?.outcome, 'configuration', JSON.stringify(demands.error));
	equal((await sim.state()).requests, requests, 'nothing was asked for either');
	await daemon.stop();
	await sim.stop();
});

await test('llama.cpp\'s router: it is asked by model, nothing that is asked of it loads one, and one that a request loaded is known after it, by its own command line too', async () => {
	const sim = await startSimulator('--kind', 'llamacpp');
	const options = { router: true, models: ['small'] }, models = async () => (await sim.state()).runtime.models;
	await sim.script({ options });
	const daemon = await new Daemon('runtimes-router', { runtimes: { ...runtimeOf({ kind: 'llamacpp', model: 'small' }, sim.url), other: { ...runtimeOf({ kind: 'llamacpp' }, sim.url).r, loadedModels: 4 } } }).start();
	const known = async name => (await daemon.get('/v1/runtimes')).runtimes.find(runtime => runtime.name === name).configuration;
	await until('both were asked', async () => await known('r') !== undefined && await known('other') !== undefined);
	const cold = await daemon.post('/v1/runtimes/r/probe', {}, 200), other = await daemon.post('/v1/runtimes/other/probe', {}, 200);
	equal([cold.configuration.A.runtime_version.value, cold.configuration.C.context_length.basis, cold.configuration.B.model_path, (await models()).small?.loads ?? 0], ['b6123-1a2b3c4', 'unknown', undefined, 0], 'not loaded');
	check(cold.configuration.C.argv.value.includes('small') && !cold.configuration.C.argv.value.includes('--port'), JSON.stringify(cold.configuration.C.argv));
	equal([other.configuration.C.context_length.value, other.configuration.B.adapters.value, other.configuration.C.argv.value.includes(MODEL)], [32768, [], true], 'the one that is loaded');
	const result = await extract(daemon);
	equal(result.facts.length, FACTS, 'facts');
	const fact = await daemon.get(`/v1/facts/${result.facts[0].id}`), record = (await daemon.get(`/v1/provenance/${fact.configuration}`)).record;
	equal([record.C.context_length.value, record.C.parallel.value, record.B.chat_template_sha256.basis], [32768, 1, 'reported'], 'the facts are under what was in force');
	const answered = (await daemon.get(`/v1/runs/${result.id}/events`)).events.find(event => event.kind === 'attempt.succeeded' && event.data.request);
	check(JSON.parse(daemon.content(answered.data.record)).promptTokensCounted > 0, 'its prompt was counted');
	const again = await extract(daemon);
	equal((await daemon.get(`/v1/facts/${again.facts[0].id}`)).configuration, fact.configuration, 'and so is the next');
	await daemon.stop();
	await sim.stop();
});

await test('llama.cpp\'s router: a model that somebody loads anew, behind a connection to the router that is kept, is noticed; no fact is under the settings of before', async () => {
	const sim = await startSimulator('--kind', 'llamacpp'), options = { router: true, models: ['small'] };
	await sim.script({ options });
	const daemon = await new Daemon('runtimes-router-reload', { runtimes: runtimeOf({ kind: 'llamacpp', model: 'small' }, sim.url, { retry: { attempts: 3, floor: '10ms', cap: '50ms' }, probeEvery: '1h' }) }).start();
	const found = async () => {
		const { facts } = await extract(daemon);
		equal(facts.length, FACTS, 'facts');
		const fact = await daemon.get(`/v1/facts/${facts[0].id}`);
		return [(await daemon.get(`/v1/provenance/${fact.configuration}`)).record.C.context_length.value, (await daemon.get('/v1/runtimes/r')).instance.id];
	};
	await found(); // loads it
	const [context, instance] = await found();
	const order = path => fetch(`${sim.url}/models/${path}`, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: '{"model":"small"}' });
	for (const path of ['unload', 'load'])
		equal((await order(path)).status, 200, path);
	const [same, other] = await found();
	equal([context, same], [32768, 32768], 'the same settings');
	check(instance !== other, `another instance: ${instance}, ${other}`);
	await sim.script({ options: { ...options, contextTokens: 16384 } });
	equal((await found())[0], 16384, 'other settings');
	await daemon.stop();
	await sim.stop();
});

await test('ollama: a model that is replaced under its name, behind a connection that is kept, is noticed; no fact is under the digest of before', async () => {
	const sim = await startSimulator('--kind', 'ollama');
	await sim.script({ options: { loaded: true } });
	const daemon = await new Daemon('runtimes-name', { runtimes: runtimeOf({ kind: 'ollama' }, sim.url, { retry: { attempts: 3, floor: '10ms', cap: '50ms' } }) }).start();
	const digest = async () => {
		const { facts } = await extract(daemon);
		equal(facts.length, FACTS, 'facts');
		return (await daemon.get(`/v1/provenance/${(await daemon.get(`/v1/facts/${facts[0].id}`)).configuration}`)).record.B.weights_digest.value;
	};
	const before = await digest();
	await sim.script({ options: { loaded: true, revision: '2' } });
	const after = await digest();
	check(before !== after, `both under ${before}`);
	equal(after, (await daemon.post('/v1/runtimes/r/probe', {}, 200)).configuration.B.weights_digest.value, 'the digest of the fact\'s record');
	await daemon.stop();
});

await test('ollama: a model that was loaded for a request is asked about anew, and the facts are under what is in force', async () => {
	const sim = await startSimulator('--kind', 'ollama');
	await sim.script({ options: { loaded: false, loadMs: 1300 } });
	const daemon = await new Daemon('runtimes-load', { runtimes: runtimeOf({ kind: 'ollama' }, sim.url, { timeouts: { firstToken: '10s' } }) }).start();
	await until('it was asked', async () => (await daemon.get('/v1/runtimes')).runtimes[0].configuration !== undefined);
	const cold = (await daemon.get('/v1/runtimes')).runtimes[0].configuration;
	await until('its record is in the journal', async () => (await daemon.ask('GET', `/v1/provenance/${cold}`)).status === 200);
	equal((await daemon.get(`/v1/provenance/${cold}`)).record.C.offload, undefined, 'nothing is loaded yet');
	const result = await extract(daemon);
	equal(result.sections[0].outcome, 'facts', 'outcome');
	const record = (await daemon.get(`/v1/provenance/${(await daemon.get(`/v1/facts/${result.facts[0].id}`)).configuration}`)).record;
	equal([record.C.offload.basis, record.C.context_length.basis], ['reported', 'reported'], 'of the loaded model');
	await daemon.stop();
	await sim.stop();
});

await finish();
