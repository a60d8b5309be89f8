// The simulator's kinds: what each runtime's dialect looks like on the wire, request by request, and how each behaves when it loads,
// queues, truncates or refuses. Needs Node 20 and nothing else. REPRISE_SIM names the program (default build/tests/sim/reprise-sim).
import { check, equal, finish, pause, random, test, until } from '../support/harness.mjs';
import { ask, control, rawAsk, script, start, state, stop } from '../support/sim.mjs';

const MODEL = 'reprise-sim';
const one = (text, more = {}) => ({ mode: 'fixed', answers: [{ text, ...more }] });
const user = content => [{ role: 'user', content }];

async function post(sim, path, body, options) {
	const answer = await ask(sim.port, 'POST', path, typeof body === 'string' ? body : JSON.stringify(body), options);
	let json = null;
	try { json = JSON.parse(answer.text); } catch { /* a stream, or a text */ }
	return { ...answer, json };
}

async function get(sim, path, options) {
	const answer = await ask(sim.port, 'GET', path, undefined, options);
	let json = null;
	try { json = JSON.parse(answer.text); } catch { /* a text */ }
	return { ...answer, json };
}

// Events of a stream of "data:" lines, in order; the end mark as 'done'.
function events(text) {
	const list = text.split('\n\n');
	equal(list.pop(), '', 'the stream ends with an event');
	return list.filter(event => !event.startsWith(':')).map(event => event === 'data: [DONE]' ? 'done' : JSON.parse(event.replace(/^data: /, '')));
}

// Each row: a sentence, a request, and what comes back. `want` may be a status, or a function that looks closer.
async function table(sim, rows) {
	for (const [sentence, method, path, body, want] of rows) {
		await test(`${sim.kind}: ${sentence}`, async () => {
			const answer = method === 'GET' ? await get(sim, path) : await post(sim, path, body);
			equal(answer.headers.server, 'reprise-sim', 'Server');
			if (typeof want === 'number')
				equal(answer.status, want, answer.text.slice(0, 300));
			else
				await want(answer);
		});
	}
}

async function startKind(kind, ...options) {
	const sim = await start('--kind', kind, ...options);
	sim.kind = kind;
	return sim;
}

// What all kinds share: bodies that are nonsense get the kind's own error, never a crash, and the next request is answered.
async function refuseNonsense(sim, paths, isError, fits = () => true) {
	await test(`${sim.kind}: bodies that make no sense get the kind's own error`, async () => {
		const nonsense = ['', '{', '[]', '7', 'null', '"x"', '{"messages":7}', '{"messages":[]}', '{"messages":[7]}', '{"messages":[{}]}',
			'{"model":{}}', '{"model":"a","model":"b"}', '\u0000', '{"a":'.repeat(200), JSON.stringify({ model: MODEL, messages: [{ role: 'user', content: 7 }] }),
			JSON.stringify({ model: MODEL, messages: [{ role: 'user', content: [{ type: 'audio' }] }] })];
		for (const path of paths) {
			for (const body of nonsense.filter(text => fits(path, text))) {
				const answer = await post(sim, path, body);
				check(answer.status >= 400 && answer.status < 500 && answer.json !== null, `${path} ${body.slice(0, 60)}: ${answer.status} ${answer.text}`);
				check(isError(answer.json, answer.status), `${path} ${body.slice(0, 60)}: ${answer.text}`);
			}
		}
		equal((await state(sim)).inFlight, 0, 'in flight');
	});
}

// Valid bodies, changed at random: whatever comes of them, it is an answer, and the next request is answered too.
async function refuseMutations(sim, bodies) {
	await test(`${sim.kind}: mutated bodies are answered, one way or another`, async () => {
		await script(sim, {});
		const draw = random(20261130);
		const strange = [null, true, -1, 0, 1e308, 1.5, 9007199254740993, '', 'x', '\ud83d\ude00'.repeat(9), [], [[]], {}, { a: 1 }, [null], Array(70).fill('s')];
		const pick = list => list[Math.floor(draw() * list.length)];
		const replace = value => { // one member somewhere, or all there is
			if (value === null || typeof value !== 'object' || draw() < 0.2) return pick(strange);
			const copy = Array.isArray(value) ? [...value] : { ...value }, keys = Object.keys(copy);
			if (keys.length === 0) return pick(strange);
			const key = pick(keys);
			if (draw() < 0.15) delete copy[key]; else copy[key] = replace(copy[key]);
			return copy;
		};
		const bytes = text => {
			const data = Buffer.from(text), at = Math.floor(draw() * data.length), count = Math.floor(draw() * 8);
			if (draw() < 0.5) data[at] = Math.floor(draw() * 256);
			return draw() < 0.5 ? data : Buffer.concat([data.subarray(0, at), data.subarray(at + count)]);
		};
		for (const [path, body] of bodies) {
			for (let i = 0; i < 150; i++) {
				const sent = draw() < 0.6 ? JSON.stringify(replace(body)) : bytes(JSON.stringify(body));
				const answer = await ask(sim.port, 'POST', path, sent, { agent: sim.agent });
				check(answer.broken === null && answer.status >= 200, `${path} ${sent}: ${answer.broken}`);
				if (answer.headers['content-type'].startsWith('application/json'))
					JSON.parse(answer.text);
			}
		}
		equal((await state(sim)).inFlight, 0, 'in flight');
	});
}

// A stop right after the last test, so that a kind that crashes is told by its own rows.
const done = sim => test(`${sim.kind}: it ends cleanly`, () => stop(sim));

// ---- llama.cpp ----

{
	const sim = await startKind('llamacpp');
	const error = (status, type, message) => answer => {
		equal([answer.status, answer.json.error.code, answer.json.error.type], [status, status, type], 'error');
		check(answer.json.error.message.includes(message), answer.text);
	};
	await script(sim, { answer: one('Prague.', { reasoning: 'Capital of Czechia' }) });
	await table(sim, [
		['health', 'GET', '/health', null, answer => equal([answer.status, answer.text], [200, '{"status":"ok"}'], 'health')],
		['props tell build, context, slots and defaults', 'GET', '/props', null, ({ json }) => {
			equal([json.build_info, json.total_slots, json.default_generation_settings.n_ctx, json.model_path], ['b6123-1a2b3c4', 1, 32768, '/models/simulated.gguf'], 'props');
			const { temperature, top_k, top_p, min_p, seed, samplers } = json.default_generation_settings.params;
			equal([temperature, top_k, top_p, min_p, seed, samplers.length], [0.8, 40, 0.95, 0.05, 4294967295, 9], 'defaults');
			check(typeof json.chat_template === 'string', 'template');
		}],
		['models', 'GET', '/v1/models', null, ({ json }) => equal([json.data[0].id, json.data[0].owned_by, json.data[0].meta.n_vocab], [MODEL, 'llamacpp', 32000], 'model')],
		['slots', 'GET', '/slots', null, ({ json }) => equal(json, [{ id: 0, n_ctx: 32768, speculative: false, is_processing: false }], 'slots')],
		['lora adapters', 'GET', '/lora-adapters', null, ({ json }) => equal(json, [], 'adapters')],
		['metrics are off unless asked for', 'GET', '/metrics', null, error(501, 'not_supported_error', 'metrics')],
		['unknown paths', 'GET', '/nothing', null, error(404, 'not_found_error', 'File Not Found')],
		['the router is off', 'POST', '/models/load', { model: MODEL }, error(404, 'not_found_error', 'File')],
		['tokenize', 'POST', '/tokenize', { content: 'abcdefghi' }, ({ json }) => equal(json.tokens.length, 3, 'tokens')],
		['apply-template', 'POST', '/apply-template', { messages: user('a') }, ({ json }) => equal(json, { prompt: 'a' }, 'prompt')],
		['a plain answer', 'POST', '/v1/chat/completions', { messages: user('Where?'), model: 'whatever' }, ({ status, json }) => {
			equal(status, 200, 'status');
			equal(json.choices, [{ finish_reason: 'stop', index: 0, message: { role: 'assistant', reasoning_content: 'Capital of Czechia', content: 'Prague.' } }], 'choices');
			equal([json.model, json.system_fingerprint, json.object, /^chatcmpl-[0-9a-f]{32}$/.test(json.id)], [MODEL, 'b6123-1a2b3c4', 'chat.completion', true], 'head');
			equal(json.usage, { completion_tokens: 7, prompt_tokens: 2, total_tokens: 9, prompt_tokens_details: { cached_tokens: 0 } }, 'usage');
			equal(json.timings, { cache_n: 0, prompt_n: 2, prompt_ms: 2, prompt_per_token_ms: 1, prompt_per_second: 1000,
				predicted_n: 7, predicted_ms: 70, predicted_per_token_ms: 10, predicted_per_second: 100 }, 'timings');
		}],
		['a stream: role, reasoning, text, finish, usage with timings, [DONE]', 'POST', '/v1/chat/completions',
			{ messages: user('Where?'), stream: true, stream_options: { include_usage: true } }, answer => {
			const list = events(answer.text);
			equal(list.map(event => event === 'done' ? event : [event.choices[0]?.delta ?? null, event.choices[0]?.finish_reason ?? null, Boolean(event.usage), Boolean(event.timings)]), [
				[{ role: 'assistant', content: null }, null, false, false], [{ reasoning_content: 'Capital of Czech' }, null, false, false],
				[{ reasoning_content: 'ia' }, null, false, false], [{ content: 'Prague.' }, null, false, false],
				[{}, 'stop', false, false], [null, null, true, true], 'done'], 'events');
			check(list.slice(0, -1).every(event => event.system_fingerprint === 'b6123-1a2b3c4'), 'the fingerprint is on every chunk');
		}],
		['without usage the timings ride on the finish chunk', 'POST', '/v1/chat/completions', { messages: user('Where?'), stream: true }, answer =>
			equal(events(answer.text).slice(-2).map(event => event.timings?.predicted_n ?? event), [7, 'done'], 'end')],
		['/completion describes itself', 'POST', '/completion', { prompt: 'Where?', temperature: 0, top_k: 1, seed: 42, n_predict: 9, return_tokens: true }, ({ json }) => {
			equal([json.content, json.stop, json.stop_type, json.stopping_word, json.model, json.prompt, json.id_slot], ['Prague.', true, 'eos', '', MODEL, 'Where?', 0], 'answer');
			equal([json.generation_settings.temperature, json.generation_settings.top_k, json.generation_settings.seed, json.generation_settings.n_predict, json.generation_settings.top_p],
				[0, 1, 42, 9, 0.95], 'settings in force');
			equal([json.tokens.length, json.tokens_evaluated, json.truncated], [2, 2, false], 'tokens');
		}],
		['/completion streams without [DONE]', 'POST', '/completion', { prompt: 'Where?', stream: true }, answer => {
			const list = events(answer.text);
			equal(list.map(event => [event.content, event.stop]), [['Capital of Czech', false], ['ia', false], ['Prague.', false], ['', true]], 'events');
			equal(list.at(-1).generation_settings.seed, 4294967295, 'random');
		}],
		['n_predict wins over max_completion_tokens over max_tokens', 'POST', '/v1/chat/completions', { messages: user('x'), max_tokens: 9, max_completion_tokens: 8, n_predict: 6 },
			({ json }) => equal([json.choices[0].finish_reason, json.usage.completion_tokens, json.choices[0].message.content], ['length', 6, 'Prag'], 'limit')],
		['reasoning_effort none ends the reasoning', 'POST', '/v1/chat/completions', { messages: user('x'), reasoning_effort: 'none' },
			({ json }) => equal(json.choices[0].message, { role: 'assistant', content: 'Prague.' }, 'message')],
		['stop texts, and the word that stopped', 'POST', '/completion', { prompt: 'x', stop: ['gue'] }, ({ json }) =>
			equal([json.content, json.stop_type, json.stopping_word], ['Pra', 'word', 'gue'], 'stop')],
		['/completion reads a list of stops only', 'POST', '/completion', { prompt: 'x', stop: 'gue' }, ({ json }) => equal(json.content, 'Prague.', 'a text is not read')],
		['a bad schema', 'POST', '/v1/chat/completions', { messages: user('x'), response_format: { type: 'json_object', schema: 7 } }, error(400, 'invalid_request_error', '"json_schema"')],
		['no messages', 'POST', '/v1/chat/completions', {}, error(400, 'invalid_request_error', "'messages' is required")],
		['no prompt', 'POST', '/completion', {}, error(400, 'invalid_request_error', '"prompt"')],
		['a context that is too small', 'POST', '/v1/chat/completions', { messages: user('x'.repeat(200000)) }, answer => {
			error(400, 'exceed_context_size_error', 'request (50000 tokens) exceeds the available context size (32768 tokens), try increasing it')(answer);
			equal([answer.json.error.n_prompt_tokens, answer.json.error.n_ctx], [50000, 32768], 'members');
		}],
		['the text is cut where the context ends', 'POST', '/v1/chat/completions', { messages: user('x'.repeat(4 * 32766)) },
			({ json }) => equal([json.choices[0].finish_reason, json.usage.completion_tokens], ['length', 2], 'cut')],
	]);
	await refuseNonsense(sim, ['/v1/chat/completions', '/completion', '/apply-template'], (json, status) => json.error.code === status && typeof json.error.type === 'string');

	await test('llamacpp: both nestings of a schema, json_schema and grammar', async () => {
		await script(sim, {});
		const schema = { type: 'object', required: ['a'], properties: { a: { enum: ['x'] } } };
		for (const more of [{ response_format: { type: 'json_object', schema } }, { response_format: { type: 'json_schema', schema } },
			{ response_format: { type: 'json_schema', json_schema: { name: 'n', schema } } }, { json_schema: schema }])
			equal((await post(sim, '/v1/chat/completions', { messages: user('x'), ...more })).json.choices[0].message.content, '{"a":"x"}', JSON.stringify(more));
		check(/simulator/.test((await post(sim, '/v1/chat/completions', { messages: user('x'), json_schema: schema, grammar: 'root ::= "a"' })).text), 'a grammar hides the schema');
	});

	await test('llamacpp: the prompt cache counts, unless the request or the flag switches it off', async () => {
		const long = 'x'.repeat(40);
		const cached = async more => (await post(sim, '/v1/chat/completions', { messages: user(long), ...more })).json.timings.cache_n;
		await script(sim, {});
		await control(sim, 'POST', '/__sim/flush');
		equal([await cached({}), await cached({}), await cached({ cache_prompt: false }), await cached({ messages: user(long + 'abcdefgh') })], [0, 8, 0, 8], 'cache_n');
		await script(sim, { options: { promptCache: false } });
		equal(await cached({}), 0, '--no-cache-prompt');
	});

	await test('llamacpp: two slots make two answers, a third waits; /slots and /metrics show it', async () => {
		await script(sim, { answer: one('x'.repeat(40)), cadence: { firstByteMs: 1500 }, options: { slots: 2, metrics: true } });
		const asked = [1, 2, 3].map(() => post(sim, '/v1/chat/completions', { messages: user('x'), top_k: 7 }));
		await until('three', async () => (await state(sim)).inFlight === 3);
		const { runtime } = await state(sim);
		equal([runtime.running, runtime.waiting], [2, 1], 'running and waiting');
		const slots = (await get(sim, '/slots')).json;
		equal(slots.map(slot => [slot.is_processing, slot.params.top_k]), [[true, 7], [true, 7]], 'slots');
		equal((await get(sim, '/slots?fail_on_no_slot=1')).json.error, { code: 503, message: 'no slot available', type: 'unavailable_error' }, 'no slot');
		check(/^llamacpp:requests_processing 2$/m.test((await get(sim, '/metrics')).text) && /^llamacpp:requests_deferred 1$/m.test((await get(sim, '/metrics')).text), 'metrics');
		check((await Promise.all(asked)).every(answer => answer.status === 200), 'all answered');
		check((await asked[2]).ms >= 2900, `the third waited: ${(await asked[2]).ms}`);
		check(Number(/^llamacpp:tokens_predicted_total (\d+)$/m.exec((await get(sim, '/metrics')).text)[1]) >= 30, 'tokens');
	});

	await test('llamacpp: with keepsGenerating a client that goes away frees no slot until the answer is made', async () => {
		await script(sim, { answer: one('x'.repeat(160)), cadence: { chunkMs: 150, tokensPerChunk: 4 }, options: { keepsGenerating: true } });
		await ask(sim.port, 'POST', '/v1/chat/completions', JSON.stringify({ messages: user('x'), stream: true }), { abortAfter: 1 });
		await until('cancelled', async () => (await state(sim)).cancelled === 1);
		equal([(await state(sim)).runtime.abandoned, (await get(sim, '/slots')).json[0].is_processing], [1, true], 'still busy');
		await until('free', async () => !(await get(sim, '/slots')).json[0].is_processing);
		equal((await state(sim)).runtime.abandoned, 0, 'abandoned');
		await script(sim, { answer: one('x'.repeat(160)), cadence: { chunkMs: 60 } });
		await ask(sim.port, 'POST', '/v1/chat/completions', JSON.stringify({ messages: user('x'), stream: true }), { abortAfter: 1 });
		await until('cancelled', async () => (await state(sim)).cancelled === 1);
		equal((await get(sim, '/slots')).json[0].is_processing, false, 'without it the slot is free at once');
	});

	await test('llamacpp: a key is asked for, but not by /health', async () => {
		await script(sim, { options: { apiKey: 'k' } });
		const denied = await post(sim, '/v1/chat/completions', { messages: user('x') });
		equal([denied.status, denied.json.error], [401, { code: 401, message: 'Invalid API Key', type: 'authentication_error' }], 'denied');
		equal([(await get(sim, '/health')).status, (await get(sim, '/props')).status], [200, 401], 'other paths');
		equal((await get(sim, '/props', { headers: { Authorization: 'Bearer k' } })).status, 200, 'with the key');
	});

	await test('llamacpp: the router lists, loads and unloads models, and loads one on request unless told not to', async () => {
		await script(sim, { options: { router: true, models: ['small'], loadMs: 1000 } });
		const states = async () => (await get(sim, '/models')).json.data.map(model => [model.id, model.status.value]);
		equal(await states(), [[MODEL, 'loaded'], ['small', 'unloaded']], 'at the start');
		equal((await post(sim, '/models/load', { model: 'small' })).json, { success: true }, 'load');
		equal((await states())[1][1], 'loading', 'loading');
		await until('loaded', async () => (await states())[1][1] === 'loaded');
		equal((await post(sim, '/models/load', { model: 'small' })).status, 400, 'twice');
		equal((await post(sim, '/models/unload', { model: 'small' })).json, { success: true }, 'unload');
		const jit = await post(sim, '/v1/chat/completions', { model: 'small', messages: user('x') });
		check(jit.status === 200 && jit.json.model === 'small' && jit.ms >= 990, `loaded for the request: ${jit.ms}`);
		equal((await post(sim, '/v1/chat/completions', { model: 'none', messages: user('x') })).json.error.type, 'not_found_error', 'unknown');
		equal((await post(sim, '/models/unload', { model: 'small' })).status, 200, 'unload again');
		await script(sim, { options: { router: true, models: ['small'], jit: false } });
		equal((await post(sim, '/v1/chat/completions', { model: 'small', messages: user('x') })).json.error.message, 'model is not loaded', 'no autoload');
		check((await get(sim, '/models')).json.data[0].status.args.includes('--alias'), 'the argv of the child');
		equal([(await get(sim, '/props?model=small&autoload=true')).json.error.message, (await get(sim, '/lora-adapters')).status, (await get(sim, '/props?model=none')).status], ['model is not loaded', 400, 404], 'by model');
		equal([(await post(sim, '/tokenize', { content: 'x' })).status, (await post(sim, '/tokenize', { content: 'x', model: 'small' })).json.error.message], [400, 'model is not loaded'], 'tokenize');
		await script(sim, { options: { router: true, models: ['small'] } });
		equal((await get(sim, '/props')).json, { role: 'router', max_instances: 4, models_autoload: true, model_alias: 'llama-server', model_path: 'none',
			default_generation_settings: { params: {}, n_ctx: 0 }, build_info: 'b6123-1a2b3c4' }, 'of the router itself');
		equal([(await get(sim, '/props?model=small&autoload=false')).json.error.message, (await states())[1][1]], ['model is not loaded', 'unloaded'], 'asked without a load');
		equal([(await get(sim, '/props?model=small')).json.model_alias, (await states())[1][1]], ['small', 'loaded'], 'asked with one');
		equal((await post(sim, '/models/unload', { model: 'small' })).status, 200, 'and away');
		await script(sim, { options: { router: true, models: ['small'], loadError: 'failed to allocate CUDA0 buffer' } });
		equal((await post(sim, '/v1/chat/completions?autoload=false', { model: 'small', messages: user('x') })).json.error.message, 'model is not loaded', 'autoload=false');
		equal((await post(sim, '/models/load', { model: 'small' })).json, { success: true }, 'a load that will fail');
		const { value, failed, exit_code } = (await get(sim, '/models')).json.data[1].status;
		equal([value, failed, exit_code], ['unloaded', true, 1], 'only the list tells');
		equal((await post(sim, '/v1/chat/completions', { model: 'small', messages: user('x') })).json.error, { code: 500, message: 'failed to allocate CUDA0 buffer', type: 'server_error' }, 'on request');
	});

	await test('llamacpp: pings are bare comments', async () => {
		await script(sim, { cadence: { firstByteMs: 1000, pingMs: 100 } });
		check((await post(sim, '/v1/chat/completions', { messages: user('x'), stream: true })).text.startsWith(':\n\n'), 'ping');
	});

	await test('llamacpp: an option of another kind is refused', async () => {
		const answer = await control(sim, 'POST', '/__sim/script', { options: { cacheReport: true } });
		check(answer.status === 400 && answer.json.error.includes('cacheReport'), answer.text);
	});
	await refuseMutations(sim, [['/v1/chat/completions', { model: MODEL, messages: user('x'), stop: ['a'], seed: 1, temperature: 1, n_predict: 5, response_format: { type: 'json_schema', json_schema: { name: 'n', schema: { type: 'object', required: ['a'] } } }, chat_template_kwargs: { enable_thinking: false } }],
		['/completion', { prompt: 'x', stream: true, stop: ['a'], return_tokens: true, json_schema: { type: 'array', minItems: 2 } }], ['/tokenize', { content: 'x' }], ['/apply-template', { messages: user('x') }]]);
	await done(sim);
}

// ---- vLLM ----

{
	const sim = await startKind('vllm');
	const error = (status, type, param, message) => answer => {
		equal([answer.status, answer.json?.error.code, answer.json?.error.type, answer.json?.error.param], [status, status, type, param], answer.text);
		check(answer.json.error.message.includes(message), answer.text);
	};
	const chat = '/v1/chat/completions';
	const bad = (more, param, message) => ['POST', chat, { messages: user('x'), ...more }, error(400, 'BadRequestError', param, message)];
	await script(sim, { answer: one('{"a":1}', { reasoning: 'Look' }) });
	await table(sim, [
		['health is empty', 'GET', '/health', null, answer => equal([answer.status, answer.text], [200, ''], 'health')],
		['version', 'GET', '/version', null, ({ json }) => equal(json, { version: '0.29.0' }, 'version')],
		['models change with each call', 'GET', '/v1/models', null, async ({ json }) => {
			const again = (await get(sim, '/v1/models')).json.data[0], card = json.data[0];
			equal([card.id, card.owned_by, card.root, card.parent, card.max_model_len], [MODEL, 'vllm', '/models/simulated', null, 32768], 'card');
			check(card.created !== again.created && card.permission[0].id !== again.permission[0].id && card.permission[0].created !== again.permission[0].created, 'volatile');
		}],
		['a plain answer', 'POST', chat, { messages: user('Where?') }, ({ json }) => {
			equal(json.choices, [{ index: 0, message: { role: 'assistant', content: '{"a":1}', refusal: null, annotations: null, audio: null, function_call: null, reasoning: 'Look' },
				logprobs: null, finish_reason: 'stop', stop_reason: null, token_ids: null, routed_experts: null }], 'choices');
			equal(json.usage, { prompt_tokens: 2, total_tokens: 5, completion_tokens: 3 }, 'usage without details');
			check(/^vllm-0\.29\.0-[0-9a-f]{8}$/.test(json.system_fingerprint), json.system_fingerprint);
			equal([json.metrics, json.prompt_token_ids, json.prompt_text], [null, null, null], 'not asked for');
		}],
		['a stream: role, reasoning, text that ends it, usage with the fingerprint, [DONE]', 'POST', chat, { messages: user('Where?'), stream: true, stream_options: { include_usage: true } }, answer => {
			equal(answer.headers['content-type'], 'text/event-stream; charset=utf-8', 'type');
			const list = events(answer.text);
			equal(list.map(event => event === 'done' ? event : [event.choices[0]?.delta ?? null, event.choices[0]?.finish_reason, Boolean(event.usage), Boolean(event.system_fingerprint)]), [
				[{ role: 'assistant', content: '' }, null, false, false], [{ reasoning: 'Look' }, null, false, false],
				[{ content: '{"a":1}' }, 'stop', false, false], [null, undefined, true, true], 'done'], 'events');
			equal(list[2].choices[0].stop_reason, null, 'stop_reason');
		}],
		['without usage the fingerprint is on the terminal chunk', 'POST', chat, { messages: user('x'), stream: true }, answer =>
			equal(events(answer.text).map(event => Boolean(event.system_fingerprint)), [false, false, true, false], 'fingerprints')],
		['token ids and the rendered prompt', 'POST', chat, { messages: user('abcdefgh'), return_token_ids: true, return_prompt_text: true, request_id: 'r"1' }, ({ json }) =>
			equal([json.prompt_token_ids.length, json.choices[0].token_ids.length, json.prompt_text, json.id], [2, 2, 'abcdefgh', 'chatcmpl-r"1'], 'ids')],
		['token ids in a stream', 'POST', chat, { messages: user('abcdefgh'), return_token_ids: true, stream: true }, answer => {
			const list = events(answer.text);
			equal([list[0].prompt_token_ids.length, list[2].choices[0].token_ids.length], [2, 2], 'ids');
		}],
		['reasoning is left out with include_reasoning false', 'POST', chat, { messages: user('x'), include_reasoning: false }, ({ json }) => equal(json.choices[0].message.reasoning, null, 'reasoning')],
		['and with enable_thinking false, which wins over the effort', 'POST', chat, { messages: user('x'), reasoning_effort: 'high', chat_template_kwargs: { enable_thinking: false } },
			({ json }) => equal(json.choices[0].message.reasoning, null, 'reasoning')],
		['a stop text is told', 'POST', chat, { messages: user('x'), stop: '1' }, ({ json }) => equal([json.choices[0].message.content, json.choices[0].stop_reason], ['{"a":', '1'], 'stop')],
		['and kept if asked for', 'POST', chat, { messages: user('x'), stop: '1', include_stop_str_in_output: true }, ({ json }) => equal(json.choices[0].message.content, '{"a":1', 'stop')],
		['all spent on reasoning', 'POST', chat, { messages: user('x'), max_tokens: 1 }, ({ json }) => equal([json.choices[0].message.content, json.choices[0].finish_reason], [null, 'length'], 'content')],
		['max_completion_tokens wins', 'POST', chat, { messages: user('x'), max_tokens: 1, max_completion_tokens: 2 }, ({ json }) => equal(json.usage.completion_tokens, 2, 'tokens')],
		['tokenize a prompt', 'POST', '/tokenize', { prompt: 'abcdefghi' }, ({ json }) => equal([json.count, json.max_model_len, json.tokens.length], [3, 32768, 3], 'count')],
		['tokenize messages', 'POST', '/tokenize', { messages: user('abcd') }, ({ json }) => equal(json.count, 1, 'count')],
		['temperature out of range', ...bad({ temperature: 3 }, 'temperature', 'temperature must be in [0, 2], got 3.0.')],
		['top_p 0', ...bad({ top_p: 0 }, 'top_p', 'top_p must be in (0, 1], got 0.0.')],
		['min_p', ...bad({ min_p: 1.5 }, 'min_p', 'got 1.5')], ['top_k', ...bad({ top_k: -2 }, 'top_k', 'top_k')], ['repetition_penalty', ...bad({ repetition_penalty: 0 }, 'repetition_penalty', 'greater than zero')],
		['an empty stop text', ...bad({ stop: '' }, 'stop', 'empty string')], ['max_tokens 0', ...bad({ max_tokens: 0 }, 'max_tokens', 'at least 1')],
		['two structured outputs', ...bad({ structured_outputs: { regex: 'a', json: {} } }, 'structured_outputs', 'only use one kind')],
		['none', ...bad({ structured_outputs: {} }, 'structured_outputs', 'must use one kind')], ['a salt with a slash', ...bad({ cache_salt: 'a/b' }, 'cache_salt', 'cache_salt')],
		['a long salt', ...bad({ cache_salt: 'a'.repeat(129) }, 'cache_salt', 'cache_salt')],
		['a malformed body', 'POST', chat, { messages: 7 }, error(400, 'Bad Request', 'messages', '1 validation error:\n  {')],
		['a wrong type', 'POST', chat, { messages: user('x'), temperature: 'hot' }, error(400, 'Bad Request', 'temperature', 'float')],
		['another model', 'POST', chat, { model: 'x', messages: user('x') }, error(404, 'NotFoundError', 'model', 'The model `x` does not exist.')],
		['a context that is too small', 'POST', chat, { messages: user('x'.repeat(131000)), max_tokens: 512 }, error(400, 'BadRequestError', 'input_tokens', 'You passed 32750 input tokens and requested 512 output tokens. ' +
			"However, the model's context length is only 32768 tokens, resulting in a maximum input length of 32256 tokens. Please reduce the length of the input prompt.")],
		['unknown paths', 'GET', '/nothing', null, error(404, 'Not Found', null, 'Not Found')],
		['the wrong method', 'GET', chat, null, 405], ['server_info is for developers', 'GET', '/server_info', null, 404], ['load is off', 'GET', '/load', null, 404],
		['tokenizer_info is off', 'GET', '/tokenizer_info', null, 404], ['nor can the cache be reset', 'POST', '/reset_prefix_cache', {}, 404],
	]);
	await refuseNonsense(sim, [chat, '/tokenize'], (json, status) => json.error.code === status && 'param' in json.error);

	await test('vllm: another Content-Type is a validation error', async () => {
		const answer = await post(sim, chat, { messages: user('x') }, { headers: { 'Content-Type': 'text/plain' } });
		error(400, 'Bad Request', null, 'application/json')(answer);
	});

	await test('vllm: unknown fields are ignored and only logged, guided_json too', async () => {
		await script(sim, {});
		const schema = { type: 'object', required: ['a'], properties: { a: { enum: ['x'] } } };
		const answer = await post(sim, chat, { messages: user('x'), guided_json: schema, nonsense: 1 });
		check(/simulator/.test(answer.json.choices[0].message.content), 'unconstrained');
		await until('log', () => /^\(APIServer pid=\d+\) WARNING .*The following fields were present in the request but ignored: \{'guided_json', 'nonsense'\}$/m.test(sim.errors));
		for (const more of [{ structured_outputs: { json: schema } }, { structured_outputs: { json: JSON.stringify(schema) } }, { response_format: { type: 'json_schema', json_schema: { name: 'n', schema } } }])
			equal((await post(sim, chat, { messages: user('x'), ...more })).json.choices[0].message.content, '{"a":"x"}', JSON.stringify(more));
		equal((await post(sim, chat, { messages: user('x'), structured_outputs: { choice: ['yes', 'no'] } })).json.choices[0].message.content, 'yes', 'choice');
	});

	await test('vllm: cached tokens are told with the flag only; a salt starts anew; metrics count queries and hits', async () => {
		const cached = async more => (await post(sim, chat, { messages: user('x'.repeat(40)), ...more })).json.usage.prompt_tokens_details?.cached_tokens;
		await script(sim, { options: { promptTokensDetails: true } });
		await control(sim, 'POST', '/__sim/reload');
		equal([await cached({}), await cached({}), await cached({ cache_salt: 's' }), await cached({ cache_salt: 's' }), await cached({ prompt_logprobs: 1 })], [0, 8, 0, 8, 0], 'cached');
		const metrics = (await get(sim, '/metrics')).text;
		check(/^vllm:prefix_cache_queries_total\{.*\} 40$/m.test(metrics) && /^vllm:prefix_cache_hits_total\{.*\} 16$/m.test(metrics), metrics);
		check(/^vllm:num_requests_running\{engine="0",model_name="reprise-sim"\} 0$/m.test(metrics) && /finished_reason="stop",model_name="reprise-sim"\} 5$/m.test(metrics), metrics);
		check(/enable_prefix_caching="True"/.test(metrics), 'config');
		await script(sim, { options: { promptCache: false } });
		await cached({});
		equal([await cached({}), /enable_prefix_caching="False"/.test((await get(sim, '/metrics')).text)], [undefined, true], 'no flag');
	});

	await test('vllm: options change the fingerprint, the reasoning field and what there is to see', async () => {
		const print = async options => { await script(sim, { answer: one('t', { reasoning: 'r' }), options }); return (await post(sim, chat, { messages: user('x') })).json; };
		equal([(await print({ fingerprintMode: 'custom', fingerprintValue: 'reprise:1' })).system_fingerprint, (await print({ fingerprintMode: 'none' })).system_fingerprint], ['reprise:1', null], 'modes');
		check((await print({})).system_fingerprint !== (await print({ contextTokens: 4096 })).system_fingerprint, 'by configuration');
		equal((await print({ reasoningField: 'reasoning_content', version: '0.19.0' })).choices[0].message.reasoning_content, 'r', 'older name');
		equal((await get(sim, '/version')).json.version, '0.19.0', 'version');
		check((await print({ requestMetrics: true })).metrics.tokens_per_second > 0, 'metrics');
		await script(sim, { options: { serverInfo: true, tokenizerInfo: true, loadTracking: true, forceIncludeUsage: true } });
		const info = (await get(sim, '/server_info?config_format=json')).json;
		equal([info.vllm_config.cache_config.enable_prefix_caching, info.vllm_env.VLLM_BATCH_INVARIANT], [true, false], 'server_info');
		equal([typeof (await get(sim, '/server_info')).json.vllm_config, (await get(sim, '/load')).json, (await post(sim, '/reset_prefix_cache', {})).status], ['string', { server_load: 0 }, 200], 'more');
		check((await get(sim, '/tokenizer_info')).json.chat_template, 'tokenizer_info');
		check(events((await post(sim, chat, { messages: user('x'), stream: true })).text).slice(0, -1).every(event => event.usage), 'usage on every chunk');
		await script(sim, { options: { engineDead: true } });
		equal([(await get(sim, '/health')).status, (await post(sim, chat, { messages: user('x') })).json.error.type], [503, 'InternalServerError'], 'dead');
		await script(sim, { options: { apiKey: 'k' } });
		equal([(await post(sim, chat, { messages: user('x') })).json, (await get(sim, '/health')).status], [{ error: 'Unauthorized' }, 200], 'key');
	});

	await test('vllm: faults inside a stream keep its shape', async () => {
		await script(sim, { faults: [{ on: 1, kind: 'errorEvent' }, { on: 2, kind: 'eof' }] });
		const failing = events((await post(sim, chat, { messages: user('x'), stream: true })).text);
		equal([failing.at(-2).error.type, failing.at(-1), failing.some(event => event.choices?.[0]?.finish_reason)], ['InternalServerError', 'done', false], 'error');
		const cut = events((await post(sim, chat, { messages: user('x'), stream: true })).text);
		check(!cut.includes('done') && !cut.some(event => event.choices[0].finish_reason), 'eof');
	});
	await refuseMutations(sim, [[chat, { model: MODEL, messages: user('x'), stop: ['a'], seed: 1, temperature: 1, top_p: 0.5, cache_salt: 's', request_id: 'r', return_token_ids: true, stream: true, stream_options: { include_usage: true }, structured_outputs: { json: { type: 'object', required: ['a'] } } }],
		['/tokenize', { prompt: 'x' }]]);
	await done(sim);
}

// ---- Ollama ----

const lines = text => { equal(text.at(-1), '\n', 'the stream ends with a line'); return text.trimEnd().split('\n').map(line => JSON.parse(line)); };

{
	const sim = await startKind('ollama');
	const error = (status, message) => answer => {
		equal([answer.status, Object.keys(answer.json)], [status, ['error']], answer.text);
		check(answer.json.error.includes(message), answer.text);
	};
	const v1error = (status, type, message) => answer => {
		equal([answer.status, answer.json.error.type, answer.json.error.param, answer.json.error.code], [status, type, null, null], answer.text);
		check(answer.json.error.message.includes(message), answer.text);
	};
	const chat = '/api/chat', generate = '/api/generate', v1 = '/v1/chat/completions', base = { model: MODEL };
	const loaded = async () => (await get(sim, '/api/ps')).json.models.map(model => model.name);
	await script(sim, { answer: one('Prague.', { reasoning: 'Look' }) });
	await table(sim, [
		['it says that it runs', 'GET', '/', null, answer => equal(answer.text, 'Ollama is running', 'text')],
		['version', 'GET', '/api/version', null, ({ json }) => equal(json, { version: '0.33.0' }, 'version')],
		['tags', 'GET', '/api/tags', null, ({ json }) => {
			const [card] = json.models;
			equal([json.models.length, card.name, card.model, card.size, /^[0-9a-f]{64}$/.test(card.digest), card.details.quantization_level, card.remote_host], [1, `${MODEL}:latest`, `${MODEL}:latest`, 8000000, true, 'Q8_0', undefined], 'card');
		}],
		['nothing is loaded at the start', 'GET', '/api/ps', null, ({ json }) => equal(json, { models: [] }, 'ps')],
		['show', 'POST', '/api/show', base, async ({ json }) => {
			equal([json.template, json.model_info['general.architecture'], json.capabilities.includes('completion')], ['{{ .Prompt }}', 'llama', true], 'show');
			check(json.modelfile.includes(`FROM /models/blobs/sha256-${(await get(sim, '/api/tags')).json.models[0].digest}\n`), json.modelfile);
		}],
		['show of another', 'POST', '/api/show', { model: 'x' }, error(404, "model 'x' not found")], ['show of none', 'POST', '/api/show', {}, error(400, 'model is required')],
		['an empty prompt loads', 'POST', generate, base, async ({ json }) => {
			equal(json, { model: MODEL, created_at: json.created_at, response: '', done: true, done_reason: 'load' }, 'load');
			equal(await loaded(), [`${MODEL}:latest`], 'ps');
		}],
		['keep_alive 0 unloads', 'POST', generate, { ...base, keep_alive: 0 }, async ({ json }) => equal([json.done_reason, await loaded()], ['unload', []], 'unload')],
		['empty messages load too', 'POST', chat, { ...base, messages: [], keep_alive: -1 }, async ({ json }) =>
			equal([json.message, json.done_reason, await loaded()], [{ role: 'assistant', content: '' }, 'load', [`${MODEL}:latest`]], 'load')],
		['a plain chat', 'POST', chat, { ...base, messages: user('Where?'), stream: false }, ({ json }) => equal(json, { model: MODEL, created_at: json.created_at,
			message: { role: 'assistant', content: 'Prague.', thinking: 'Look' }, done: true, done_reason: 'stop', total_duration: 32000000, prompt_eval_count: 2, prompt_eval_duration: 2000000, eval_count: 3, eval_duration: 30000000 }, 'answer')],
		['a stream is the default: lines of JSON', 'POST', chat, { ...base, messages: user('Where?') }, answer => {
			equal(answer.headers['content-type'], 'application/x-ndjson', 'type');
			equal(lines(answer.text).map(({ message, done, done_reason }) => [message, done, done_reason]), [[{ role: 'assistant', content: '', thinking: 'Look' }, false, undefined],
				[{ role: 'assistant', content: 'Prague.' }, false, undefined], [{ role: 'assistant', content: '' }, true, 'stop']], 'lines');
		}],
		['generate', 'POST', generate, { ...base, prompt: 'Where?', stream: false, think: false }, ({ json }) => equal([json.response, json.thinking, json.done_reason], ['Prague.', undefined, 'stop'], 'answer')],
		['generate streams', 'POST', generate, { ...base, prompt: 'Where?' }, answer => equal(lines(answer.text).map(line => line.response), ['', 'Prague.', ''], 'lines')],
		['num_predict limits', 'POST', chat, { ...base, messages: user('x'), stream: false, options: { num_predict: 2 } }, ({ json }) => equal([json.message.content, json.done_reason], ['Prag', 'length'], 'limit')],
		['stop texts', 'POST', chat, { ...base, messages: user('x'), stream: false, options: { stop: ['gue'] } }, ({ json }) => equal(json.message.content, 'Pra', 'stop')],
		['an option of the wrong type', 'POST', chat, { ...base, messages: user('x'), options: { seed: 'a' } }, error(500, 'option "seed" must be of type integer')],
		['a bad format', 'POST', chat, { ...base, messages: user('x'), format: 'xml' }, error(400, 'invalid format')],
		['a bad think', 'POST', chat, { ...base, messages: user('x'), think: 7 }, error(400, 'think')],
		['a bad keep_alive', 'POST', chat, { ...base, messages: user('x'), keep_alive: '5 weeks' }, error(400, 'time: invalid duration')],
		['another model', 'POST', chat, { model: 'x', messages: user('x') }, error(404, "model 'x' not found")],
		['the name with its tag', 'POST', chat, { model: `${MODEL}:latest`, messages: user('x'), stream: false }, 200],
		['v1', 'POST', v1, { ...base, messages: user('Where?') }, ({ json }) => equal(json, { id: json.id, object: 'chat.completion', created: json.created, model: MODEL, system_fingerprint: 'fp_ollama',
			choices: [{ index: 0, message: { role: 'assistant', content: 'Prague.', reasoning: 'Look' }, finish_reason: 'stop' }], usage: { prompt_tokens: 2, completion_tokens: 3, total_tokens: 5 } }, 'answer')],
		['v1 streams SSE', 'POST', v1, { ...base, messages: user('Where?'), stream: true, stream_options: { include_usage: true } }, answer =>
			equal(events(answer.text).map(event => event === 'done' ? event : [event.choices[0]?.delta, event.choices[0]?.finish_reason, event.usage?.total_tokens]), [
				[{ role: 'assistant', content: '', reasoning: 'Look' }, null, undefined], [{ role: 'assistant', content: 'Prague.' }, null, undefined], [{}, 'stop', undefined], [undefined, undefined, 5], 'done'], 'events')],
		['v1 drops max_completion_tokens without a word', 'POST', v1, { ...base, messages: user('x'), max_completion_tokens: 1, top_k: 'x', n: 5 }, ({ json }) => equal(json.choices[0].finish_reason, 'stop', 'not read')],
		['v1 reads max_tokens', 'POST', v1, { ...base, messages: user('x'), max_tokens: 2 }, ({ json }) => equal(json.choices[0].finish_reason, 'length', 'read')],
		['v1 effort none', 'POST', v1, { ...base, messages: user('x'), reasoning: { effort: 'none' } }, ({ json }) => equal(json.choices[0].message.reasoning, undefined, 'reasoning')],
		['v1 and another model', 'POST', v1, { model: 'x', messages: user('x') }, v1error(404, 'not_found_error', 'model "x" not found, try pulling it first')],
		['v1 and a bad body', 'POST', v1, { ...base, messages: 7 }, v1error(400, 'invalid_request_error', 'messages')],
		['v1 models', 'GET', '/v1/models', null, ({ json }) => equal([json.data[0].id, json.data[0].owned_by], [`${MODEL}:latest`, 'library'], 'model')],
		['unknown paths are not JSON', 'GET', '/nothing', null, answer => equal([answer.status, answer.text], [404, '404 page not found'], 'text')],
	]);
	await refuseNonsense(sim, [chat, generate, v1, '/api/show'], json => typeof (json.error.message ?? json.error) === 'string',
		(path, body) => path === chat || path === v1 || !body.includes(MODEL)); // to the others a model is enough

	await test('ollama: an unknown option is logged and skipped', async () => {
		equal((await post(sim, chat, { ...base, messages: user('x'), stream: false, options: { nonsense: 1 } })).status, 200, 'status');
		await until('log', () => sim.errors.includes('msg="invalid option provided" option=nonsense'));
	});

	await test('ollama: what does not fit the context is left out without a word, unless truncate is false', async () => {
		await script(sim, {});
		const messages = [{ role: 'system', content: 'Extract.' }, { role: 'user', content: 'x'.repeat(400) }, { role: 'assistant', content: 'ok' }, { role: 'user', content: '<section>\nAcme uses Zinc. Bolt uses Iron.\n</section>' }];
		const send = more => post(sim, chat, { ...base, messages, stream: false, ...more });
		const whole = (await send({})).json;
		const cut = (await send({ options: { num_ctx: 20 } })).json;
		equal([whole.prompt_eval_count > 100, cut.prompt_eval_count <= 20, JSON.parse(cut.message.content).facts.length], [true, true, 2], 'old messages are gone');
		const short = (await send({ options: { num_ctx: 8 } })).json;
		equal([short.prompt_eval_count, short.done_reason, JSON.parse(short.message.content).facts.map(fact => fact.subject)], [8, 'stop', ['Bolt']], 'then the beginning of the last one');
		error(400, 'the input length exceeds the context length')(await send({ options: { num_ctx: 20 }, truncate: false }));
		equal((await send({ truncate: false, shift: false, options: { num_ctx: whole.prompt_eval_count + 1 } })).json.done_reason, 'length', 'shift false ends at the context');
		const one = (await post(sim, generate, { ...base, prompt: 'x'.repeat(400), stream: false, options: { num_ctx: 8 } })).json;
		equal(one.prompt_eval_count, 8, 'generate');
		await script(sim, { options: { contextTokens: 20 } });
		equal((await post(sim, v1, { ...base, messages })).json.usage.prompt_tokens <= 20, true, 'v1 has no switch');
	});

	await test('ollama: formats', async () => {
		await script(sim, {});
		const format = { type: 'object', required: ['a'], properties: { a: { enum: ['x'] } } };
		equal((await post(sim, chat, { ...base, messages: user('x'), format, stream: false })).json.message.content, '{"a":"x"}', 'schema');
		equal(typeof JSON.parse((await post(sim, generate, { ...base, prompt: 'x', format: 'json', stream: false })).json.response), 'object', 'json');
	});

	await test('ollama: a load takes its time and is told; the model goes when its time is over', async () => {
		await script(sim, { options: { loadMs: 150, ttlMs: 3000, models: ['second'], vramPercent: 50 } });
		const send = more => post(sim, chat, { ...base, messages: user('x'), stream: false, ...more });
		await control(sim, 'POST', '/__sim/reload');
		const { loads } = (await state(sim)).runtime.models[MODEL];
		const first = await send({});
		check(first.ms >= 140 && first.json.load_duration === 150000000, `loaded: ${first.ms} ${first.text}`);
		equal((await send({})).json.load_duration, undefined, 'a zero is left out');
		const [card] = (await get(sim, '/api/ps')).json.models;
		equal([card.size_vram * 2, card.context_length], [card.size, 4096], 'half of it on the CPU');
		await until('gone', async () => (await loaded()).length === 0);
		await send({ keep_alive: '1h' });
		await send({ model: 'second', keep_alive: -1 });
		await pause(3300);
		equal(await loaded(), [`${MODEL}:latest`, 'second:latest'], 'kept');
		await send({ keep_alive: '0s' });
		equal(await loaded(), ['second:latest'], 'told to go');
		equal((await state(sim)).runtime.models[MODEL].loads, loads + 2, 'loads');
		await script(sim, { options: { loadError: 'llama runner process has terminated: error loading model: unable to allocate CUDA0 buffer' } });
		error(500, 'unable to allocate CUDA0 buffer')(await send({}));
		equal((await post(sim, generate, { ...base, keep_alive: 0 })).json.done_reason, 'unload', 'an unload loads nothing');
	});

	await test('ollama: one answer at a time, and a full queue is refused', async () => {
		await script(sim, { cadence: { firstByteMs: 1500 }, options: { queueMax: 1 } });
		const asked = [post(sim, chat, { ...base, messages: user('x') }), post(sim, chat, { ...base, messages: user('x') })];
		await until('one waits', async () => (await state(sim)).runtime.waiting === 1);
		error(503, 'server busy, please try again.  maximum pending requests exceeded')(await post(sim, chat, { ...base, messages: user('x') }));
		v1error(503, 'api_error', 'server busy')(await post(sim, v1, { ...base, messages: user('x') }));
		check((await Promise.all(asked)).every(answer => answer.status === 200), 'those before are answered');
	});

	await test('ollama: an error inside a stream stands in the place of the last line; a cloud model says so', async () => {
		await script(sim, { faults: [{ on: 1, kind: 'errorEvent' }], options: { remoteHost: 'https://cloud.invalid' } });
		const answer = await post(sim, chat, { ...base, messages: user('x') });
		equal([answer.status, Object.keys(lines(answer.text).at(-1))], [200, ['error']], 'error');
		equal((await get(sim, '/api/tags')).json.models[0].remote_host, 'https://cloud.invalid', 'remote');
		const digest = async options => { await script(sim, { options }); return (await get(sim, '/api/tags')).json.models[0].digest; };
		check(await digest({}) !== await digest({ revision: '2' }), 'another revision, another digest');
	});
	await refuseMutations(sim, [[chat, { ...base, messages: user('x'), options: { seed: 1, num_ctx: 9, num_predict: 3, stop: ['a'] }, keep_alive: '5m', think: true, format: { type: 'object' } }], [generate, { ...base, prompt: 'x', options: { num_ctx: 1 } }],
		[v1, { ...base, messages: user('x'), reasoning: { effort: 'low' }, max_tokens: 4 }], ['/api/show', base]]);
	await done(sim);
}

// ---- SGLang ----

{
	const sim = await startKind('sglang');
	const error = (status, type, message) => answer => {
		equal([answer.status, Object.keys(answer.json), answer.json.object, answer.json.type, answer.json.param, answer.json.code],
			[status, ['object', 'message', 'type', 'param', 'code'], 'error', type, null, status], answer.text);
		check(answer.json.message.includes(message), answer.text);
	};
	const chat = '/v1/chat/completions';
	await script(sim, { answer: one('Prague.', { reasoning: 'Look' }) });
	await table(sim, [
		['health', 'GET', '/health', null, answer => equal([answer.status, answer.text], [200, ''], 'health')],
		['health_generate', 'GET', '/health_generate', null, 200],
		['server_info tells the launch', 'GET', '/server_info', null, async ({ text, json }) => {
			equal([json.model_path, json.version, json.enable_deterministic_inference, json.disable_radix_cache, json.random_seed, json.internal_states.length], ['/models/simulated', '0.5.6', false, false, 42, 1], 'info');
			equal((await get(sim, '/get_server_info')).text, text, 'the old name');
		}],
		['model_info', 'GET', '/model_info', null, async ({ text, json }) => equal([json.is_generation, json.weight_version, (await get(sim, '/get_model_info')).text === text], [true, 'default', true], 'info')],
		['models', 'GET', '/v1/models', null, ({ json }) => equal([json.data[0].id, json.data[0].owned_by, json.data[0].max_model_len], [MODEL, 'sglang', 32768], 'model')],
		['a plain answer', 'POST', chat, { messages: user('Where?'), return_token_ids: true, return_prompt_token_ids: true }, ({ json }) => {
			const [choice] = json.choices;
			equal([choice.message, choice.finish_reason, choice.matched_stop, choice.token_ids.length, choice.prompt_token_ids.length],
				[{ role: 'assistant', content: 'Prague.', reasoning_content: 'Look', tool_calls: null }, 'stop', 2, 2, 2], 'choice');
			equal([json.usage, json.metadata, 'system_fingerprint' in json], [{ prompt_tokens: 2, total_tokens: 5, completion_tokens: 3, prompt_tokens_details: null, reasoning_tokens: 1 }, { weight_version: 'default' }, false], 'rest');
		}],
		['a stream', 'POST', chat, { messages: user('Where?'), stream: true, stream_options: { include_usage: true } }, answer =>
			equal(events(answer.text).map(event => event === 'done' ? event : [event.choices[0]?.delta.content, event.choices[0]?.delta.reasoning_content, event.choices[0]?.finish_reason, event.choices[0]?.matched_stop, event.usage?.total_tokens]), [
				['', null, null, null, undefined], [null, 'Look', null, null, undefined], ['Prague.', null, null, null, undefined], [null, null, 'stop', 2, undefined],
				[undefined, undefined, undefined, undefined, 5], 'done'], 'events')],
		['a stop text is told', 'POST', chat, { messages: user('x'), stop: 'gue' }, ({ json }) => equal([json.choices[0].message.content, json.choices[0].matched_stop], ['Pra', 'gue'], 'stop')],
		['and kept with no_stop_trim', 'POST', chat, { messages: user('x'), stop: 'gue', no_stop_trim: true }, ({ json }) => equal(json.choices[0].message.content, 'Prague', 'stop')],
		['length matches nothing', 'POST', chat, { messages: user('x'), max_completion_tokens: 2, max_tokens: 9 }, ({ json }) => equal([json.choices[0].finish_reason, json.choices[0].matched_stop], ['length', null], 'length')],
		['effort none', 'POST', chat, { messages: user('x'), reasoning_effort: 'none' }, ({ json }) => equal(json.choices[0].message.reasoning_content, null, 'reasoning')],
		['any name is taken', 'POST', chat, { model: 'x', messages: user('x') }, 200],
		['two grammars', 'POST', chat, { messages: user('x'), regex: 'a', ebnf: 'b' }, error(400, 'BadRequestError', 'Only one of')],
		['a range', 'POST', chat, { messages: user('x'), temperature: 3 }, error(400, 'BadRequestError', 'temperature')],
		['a long prompt', 'POST', chat, { messages: user('x'.repeat(132000)) }, error(400, 'BadRequestError', "The input (33000 tokens) is longer than the model's context length (32768 tokens).")],
		['a long answer', 'POST', chat, { messages: user('x'), max_tokens: 32768 }, error(400, 'BadRequestError', "Requested token count exceeds the model's maximum context length of 32768 tokens.")],
		['generate', 'POST', '/generate', { text: 'Where?', sampling_params: { temperature: 0, max_new_tokens: 9, stop: ['gue'] } }, ({ json }) => {
			equal([json.text, json.meta_info.finish_reason, json.meta_info.prompt_tokens, json.meta_info.completion_tokens], ['Pra', { type: 'stop', matched: 'gue' }, 2, 2], 'answer');
		}],
		['generate tells the text from its beginning in each event', 'POST', '/generate', { text: 'Where?', stream: true, sampling_params: { max_new_tokens: 2 } }, answer =>
			equal(events(answer.text).map(event => event === 'done' ? event : [event.text, event.meta_info.finish_reason]), [['Prag', null], ['Prag', { type: 'length', length: 2 }], 'done'], 'events')],
		['generate has errors of its own', 'POST', '/generate', { sampling_params: 7 }, ({ status, json }) => equal([status, Object.keys(json.error)], [400, ['message']], 'error')],
		['generate with a schema in a text', 'POST', '/generate', { text: 'x', sampling_params: { json_schema: '7' } }, 400],
		['unknown paths', 'GET', '/nothing', null, ({ status, json }) => equal([status, json], [404, { detail: 'Not Found' }], 'path')],
		['metrics are off', 'GET', '/metrics', null, 404],
	]);
	await refuseNonsense(sim, [chat], (json, status) => json.object === 'error' && json.code === status);

	await test('sglang: the cache is reported if told so, emptied by /flush_cache but not while something runs', async () => {
		const cached = async more => (await post(sim, chat, { messages: user('x'.repeat(40)), ...more })).json.usage.prompt_tokens_details?.cached_tokens;
		await script(sim, { options: { cacheReport: true, metrics: true, weightVersion: 'w1', deterministic: true } });
		await post(sim, '/flush_cache', '');
		equal([await cached({}), await cached({}), await cached({ cache_salt: 's' })], [0, 8, 0], 'cached');
		equal([(await post(sim, '/flush_cache', '')).status, await cached({})], [200, 0], 'flushed');
		equal([(await get(sim, '/model_info')).json.weight_version, (await get(sim, '/server_info')).json.enable_deterministic_inference], ['w1', true], 'options');
		check(/^sglang:cached_tokens_total 8$/m.test((await get(sim, '/metrics')).text), 'metrics');
		await script(sim, { cadence: { firstByteMs: 1500 } });
		const running = cached({});
		await until('running', async () => (await state(sim)).runtime.running === 1);
		equal((await post(sim, '/flush_cache', '')).status, 400, 'not now');
		await running;
	});

	await test('sglang: the fault "abort" ends an answer with that reason; errors inside a stream; a key', async () => {
		await script(sim, { answer: one('Prague.'), faults: [{ on: 1, kind: 'abort' }, { on: 2, kind: 'errorEvent' }] });
		const cut = (await post(sim, chat, { messages: user('x') })).json.choices[0];
		equal([cut.finish_reason, cut.message.content, cut.matched_stop], ['abort', 'Prag', null], 'abort');
		equal(events((await post(sim, chat, { messages: user('x'), stream: true })).text).at(-2).error.code, 500, 'error');
		await script(sim, { options: { apiKey: 'k' } });
		equal((await post(sim, chat, { messages: user('x') })).json, { error: 'Unauthorized' }, 'key');
	});
	await refuseMutations(sim, [[chat, { messages: user('x'), stop: ['a'], seed: 1, cache_salt: 's', regex: 'a', return_token_ids: true, max_tokens: 3, stream: true }],
		['/generate', { text: 'x', stream: true, sampling_params: { sampling_seed: 1, max_new_tokens: 5, stop: ['a'], json_schema: '{}' } }]]);
	await done(sim);
}

// ---- LM Studio ----

// Named events: [type, data] each, where the data says its type too.
function named(text) {
	const list = text.split('\n\n');
	equal(list.pop(), '', 'the stream ends with an event');
	return list.map(event => {
		const [, type, data] = /^event: ([a-z_.]+)\ndata: (.*)$/.exec(event);
		equal(JSON.parse(data).type, type, 'the type twice');
		return [type, JSON.parse(data)];
	});
}

{
	const sim = await startKind('lmstudio');
	const chat = '/v1/chat/completions', v0 = '/api/v0/chat/completions', v1 = '/api/v1/chat';
	const error = (status, param, message) => answer => {
		equal([answer.status, answer.json.error.type, answer.json.error.param, answer.json.error.code], [status, 'invalid_request_error', param, null], answer.text);
		check(answer.json.error.message.includes(message), answer.text);
	};
	const plain = (status, message) => answer => check(answer.status === status && typeof answer.json.error === 'string' && answer.json.error.includes(message), `${answer.status} ${answer.text}`);
	const v1error = (status, type, message) => answer => {
		equal([answer.status, answer.json.error.type], [status, type], answer.text);
		check(answer.json.error.message.includes(message), answer.text);
	};
	const unknown = (method, path) => [`${method} ${path} is unknown, with 200`, method, path, method === 'GET' ? null : {}, ({ status, json }) =>
		equal([status, json], [200, { error: `Unexpected endpoint or method. (${method} ${path})` }], 'unknown')];
	await script(sim, { answer: one('Prague.', { reasoning: 'Look' }) });
	await table(sim, [
		['the greeting', 'GET', '/lmstudio-greeting', null, ({ json }) => equal(json, { lmstudio: true }, 'greeting')],
		['v1 models', 'GET', '/api/v1/models', null, ({ json }) => {
			const [model] = json.models;
			equal([model.type, model.key, model.quantization.name, model.format, model.max_context_length], ['llm', MODEL, 'Q8_0', 'gguf', 262144], 'model');
			equal(model.loaded_instances, [{ id: MODEL, config: { context_length: 32768, eval_batch_size: 512, parallel: 4, flash_attention: true, offload_kv_cache_to_gpu: true } }], 'instances');
		}],
		['v0 models', 'GET', '/api/v0/models', null, ({ json }) => equal([json.data[0].id, json.data[0].state, json.data[0].compatibility_type], [MODEL, 'loaded', 'gguf'], 'model')],
		['one v0 model', 'GET', `/api/v0/models/${MODEL}`, null, ({ json }) => equal(json.type, 'llm', 'model')], ['another v0 model', 'GET', '/api/v0/models/x', null, 404],
		['OpenAI models', 'GET', '/v1/models', null, ({ json }) => equal(json.data[0].id, MODEL, 'model')],
		['a plain answer, and how long the connection lives', 'POST', chat, { model: MODEL, messages: user('Where?') }, ({ json, headers }) => {
			equal([json.choices[0].message, json.choices[0].finish_reason, json.usage.total_tokens, 'stats' in json], [{ role: 'assistant', content: 'Prague.', reasoning_content: 'Look', tool_calls: [] }, 'stop', 5, false], 'answer');
			equal(headers['keep-alive'] ?? 'timeout=5', 'timeout=5', 'Keep-Alive');
		}],
		['a stream', 'POST', chat, { model: MODEL, messages: user('Where?'), stream: true, stream_options: { include_usage: true } }, answer =>
			equal(events(answer.text).map(event => event === 'done' ? event : [event.choices[0]?.delta, event.choices[0]?.finish_reason, event.usage?.total_tokens]), [
				[{ role: 'assistant', reasoning_content: 'Look' }, null, undefined], [{ role: 'assistant', content: 'Prague.' }, null, undefined], [{}, 'stop', undefined], [undefined, undefined, 5], 'done'], 'events')],
		['v0 names the engine', 'POST', v0, { model: MODEL, messages: user('Where?') }, ({ json }) => {
			equal(json.stats, { tokens_per_second: 100, time_to_first_token: 0.002, generation_time: 0.03, stop_reason: 'eosFound' }, 'stats');
			equal([json.model_info, json.runtime], [{ arch: 'llama', quant: 'Q8_0', format: 'gguf', context_length: 32768 }, { name: 'llama.cpp-linux-x86_64-nvidia-cuda-avx2', version: '2.8.0', supported_formats: ['gguf'] }], 'engine');
		}],
		['v0 stop reasons', 'POST', v0, { model: MODEL, messages: user('x'), max_tokens: 2 }, ({ json }) => equal(json.stats.stop_reason, 'maxPredictedTokensReached', 'reason')],
		['v0 stop texts', 'POST', v0, { model: MODEL, messages: user('x'), stop: ['gue'] }, ({ json }) => equal([json.stats.stop_reason, json.choices[0].message.content], ['stopStringFound', 'Pra'], 'reason')],
		['v0 streams the same', 'POST', v0, { model: MODEL, messages: user('x'), stream: true }, answer => check(events(answer.text).at(-2).runtime.version === '2.8.0', answer.text)],
		['max_tokens -1 is no limit', 'POST', chat, { model: MODEL, messages: user('x'), max_tokens: -1 }, ({ json }) => equal(json.choices[0].finish_reason, 'stop', 'finish')],
		['v1 chat', 'POST', v1, { model: MODEL, input: 'Where?', system_prompt: 'Be short.' }, ({ json }) => {
			equal(json, { model_instance_id: MODEL, output: [{ type: 'reasoning', content: 'Look' }, { type: 'message', content: 'Prague.' }],
				stats: { input_tokens: 4, total_output_tokens: 3, reasoning_output_tokens: 1, tokens_per_second: 100, time_to_first_token_seconds: 0.004 }, response_id: json.response_id }, 'answer');
			check(/^resp_/.test(json.response_id), 'stored');
		}],
		['v1 chat stores nothing with store false', 'POST', v1, { model: MODEL, input: [{ type: 'message', content: 'a' }, { type: 'message', content: 'b' }], store: false, reasoning: 'off' }, ({ json }) =>
			equal([json.response_id, json.output], [undefined, [{ type: 'message', content: 'Prague.' }]], 'answer')],
		['v1 chat streams named events', 'POST', v1, { model: MODEL, input: 'Where?', stream: true }, answer => {
			const list = named(answer.text);
			equal(list.map(([type]) => type), ['chat.start', 'prompt_processing.start', 'prompt_processing.progress', 'prompt_processing.end', 'reasoning.start', 'reasoning.delta', 'reasoning.end',
				'message.start', 'message.delta', 'message.end', 'chat.end'], 'events');
			equal([list[5][1].content, list[8][1].content, list.at(-1)[1].result.output.length], ['Look', 'Prague.', 2], 'contents');
		}],
		['a wrong type names the key of the setting', 'POST', chat, { model: MODEL, messages: user('x'), seed: 'a' }, error(400, 'seed', 'Field with key llm.prediction.seed does not satisfy the schema')],
		['no messages', 'POST', chat, { model: MODEL }, plain(400, "'messages' field is required")],
		['json_object is not known here', 'POST', chat, { model: MODEL, messages: user('x'), response_format: { type: 'json_object' } }, plain(400, 'response_format.type')],
		['another model', 'POST', chat, { model: 'x', messages: user('x') }, error(404, 'model', 'not found')],
		['v1: another model', 'POST', v1, { model: 'x', input: 'x' }, v1error(404, 'model_not_found', 'not found')],
		['v1: a range of its own', 'POST', v1, { model: MODEL, input: 'x', temperature: 1.5 }, v1error(400, 'invalid_request', 'temperature')],
		['v1: a bad level', 'POST', v1, { model: MODEL, input: 'x', reasoning: 'deep' }, v1error(400, 'invalid_request', 'reasoning')],
		['a context that is too small', 'POST', chat, { model: MODEL, messages: user('x'.repeat(140000)) }, plain(400, 'Trying to keep the first 35000 tokens when context the overflows')],
		unknown('GET', '/health'), unknown('POST', '/api/generate'), unknown('GET', '/version'), unknown('POST', '/v1/models'),
	]);
	await refuseNonsense(sim, [chat, v0, v1, '/api/v1/models/load', '/api/v1/models/unload'], json => 'error' in json, (path, body) => path !== '/api/v1/models/load' || !body.includes(MODEL));

	await test('lmstudio: a model is loaded on request, which takes its time and is told; it goes after its TTL', async () => {
		await script(sim, { options: { models: ['second', 'third'], loadMs: 2000, ttlMs: 3000 } });
		const loaded = async () => (await get(sim, '/api/v1/models')).json.models.filter(model => model.loaded_instances.length > 0).map(model => model.key);
		const answer = await post(sim, v1, { model: 'second', input: 'x' });
		check(answer.ms >= 1990 && answer.json.stats.model_load_time_seconds === 2, `loaded: ${answer.ms} ${answer.text}`);
		equal([(await post(sim, v1, { model: 'second', input: 'x' })).json.stats.model_load_time_seconds, await loaded()], [undefined, [MODEL, 'second']], 'once');
		const stream = await post(sim, v1, { model: 'third', input: 'x', stream: true });
		equal(named(stream.text).slice(0, 4).map(([type]) => type), ['chat.start', 'model_load.start', 'model_load.progress', 'model_load.end'], 'events of a load');
		check(stream.times[0] + 500 < stream.ms && stream.ms >= 1990, `the first event comes before the load: ${stream.times[0]} ${stream.ms}`);
		equal(await loaded(), [MODEL, 'third'], 'one model on request at a time');
		await until('gone', async () => !(await loaded()).includes('third'));
		equal(await loaded(), [MODEL], 'what was loaded from the start stays');
		await post(sim, chat, { model: 'second', messages: user('x'), ttl: 3600 });
		await pause(3300);
		equal(await loaded(), [MODEL, 'second'], 'a ttl in the request');
	});

	await test('lmstudio: load and unload; without JIT the wrong model answers, or none', async () => {
		await script(sim, { options: { models: ['second'], jit: false, loadMs: 120 } });
		equal((await post(sim, '/api/v1/models/unload', { instance_id: MODEL })).json, { instance_id: MODEL }, 'unload');
		if ((await state(sim)).runtime.models.second?.loaded)
			await post(sim, '/api/v1/models/unload', { instance_id: 'second' });
		error(404, 'model', 'No models loaded. Please load a model in the developer page')(await post(sim, chat, { model: MODEL, messages: user('x') }));
		v1error(404, 'model_not_found', 'No models loaded.')(await post(sim, v1, { model: MODEL, input: 'x' }));
		const load = await post(sim, '/api/v1/models/load', { model: 'second', context_length: 2048, echo_load_config: true });
		equal(load.json, { type: 'llm', instance_id: 'second', load_time_seconds: 0.12, status: 'loaded', load_config: { context_length: 2048, eval_batch_size: 512, parallel: 4, flash_attention: true, offload_kv_cache_to_gpu: true } }, 'load');
		check(load.ms >= 110, `it takes its time: ${load.ms}`);
		equal((await post(sim, chat, { model: MODEL, messages: user('x') })).json.model, 'second', 'another model answers');
		plain(400, 'context length of only 2048 tokens')(await post(sim, chat, { model: 'second', messages: user('x'.repeat(9000)) }));
		v1error(404, 'model_not_found', 'not found')(await post(sim, '/api/v1/models/load', { model: 'x' }));
		v1error(404, 'model_not_found', 'No such instance')(await post(sim, '/api/v1/models/unload', { instance_id: MODEL }));
		v1error(400, 'invalid_request', 'context_length')(await post(sim, '/api/v1/models/load', { model: 'second', context_length: -1 }));
		await script(sim, { options: { models: ['second'], loadError: 'Model loading was stopped due to insufficient system resources.' , loaded: false } });
		v1error(500, 'internal_error', 'insufficient system resources')(await post(sim, '/api/v1/models/load', { model: MODEL }));
		check((await post(sim, chat, { model: MODEL, messages: user('x') })).json.error.message.includes('insufficient'), 'on request too');
	});

	await test('lmstudio: MLX ignores the seed, GGUF does not', async () => {
		const answers = ['A', 'B', 'C', 'D', 'E', 'F', 'G', 'H'].map(text => ({ text }));
		const distinct = async format => {
			await script(sim, { answer: { mode: 'seeded', answers }, options: { format, reasoningField: 'reasoning' } });
			const got = new Set();
			for (let i = 0; i < 8; i++) got.add((await post(sim, chat, { model: MODEL, messages: user('x'), seed: 42, temperature: 1 })).json.choices[0].message.content);
			return got.size;
		};
		equal([await distinct('gguf'), await distinct('mlx') > 1], [1, true], 'distinct answers');
		equal((await post(sim, v0, { model: MODEL, messages: user('x') })).json.runtime.name.startsWith('mlx'), true, 'runtime');
	});

	await test('lmstudio: an older app has no v1, or no v0; a connection is closed after 5 seconds', async () => {
		await script(sim, { options: { v1: false } });
		equal([(await get(sim, '/api/v1/models')).json.error.slice(0, 10), (await get(sim, '/api/v0/models')).status], ['Unexpected', 200], 'v1');
		await script(sim, { options: { v0: false } });
		check('error' in (await get(sim, '/api/v0/models')).json, 'v0');
		await script(sim, {});
		const began = performance.now();
		const raw = await rawAsk(sim, 'GET /lmstudio-greeting HTTP/1.1\r\nHost: x\r\n\r\n', { linger: 9000 });
		check(raw.ended && /\r\nKeep-Alive: timeout=5\r\n/.test(raw.text) && performance.now() - began > 4900, `closed after ${performance.now() - began}`);
	});

	await test('lmstudio: an error inside a v1 stream is an event of its own', async () => {
		await script(sim, { faults: [{ on: [1, 2], kind: 'errorEvent' }] });
		const list = named((await post(sim, v1, { model: MODEL, input: 'x', stream: true })).text);
		equal([list.at(-1)[0], list.at(-1)[1].error.type, list.some(([type]) => type === 'chat.end')], ['error', 'internal_error', false], 'error');
		check(/\n\ndata: \[DONE\]\n\n$/.test((await post(sim, chat, { model: MODEL, messages: user('x'), stream: true })).text), 'openai');
	});
	await refuseMutations(sim, [[chat, { model: MODEL, messages: user('x'), stop: ['a'], seed: 1, max_tokens: 3, ttl: 5 }], [v0, { model: MODEL, messages: user('x'), stream: true }], [v1, { model: MODEL, input: [{ type: 'message', content: 'x' }], system_prompt: 's', reasoning: 'on', stream: true }],
		['/api/v1/models/load', { model: MODEL, context_length: 4096, echo_load_config: true }], ['/api/v1/models/unload', { instance_id: MODEL }]]);
	await done(sim);
}

// ---- transformers ----

{
	const sim = await startKind('transformers');
	const chat = '/v1/chat/completions';
	const error = (status, message) => answer => {
		equal([answer.status, Object.keys(answer.json)], [status, ['detail']], answer.text);
		check(answer.json.detail.includes(message), answer.text);
	};
	await script(sim, { answer: one('Prague.', { reasoning: 'Look' }) });
	await table(sim, [
		['health', 'GET', '/health', null, ({ json }) => equal(json, { status: 'ok' }, 'health')],
		['models', 'GET', '/v1/models', null, ({ json }) => equal(json.data[0].id, MODEL, 'model')],
		['load_model tells its progress', 'POST', '/load_model', { model: MODEL }, answer => equal(events(answer.text).map(event => event.status), ['loading', 'ready'], 'events')],
		['load_model without a model', 'POST', '/load_model', {}, error(422, 'model')],
		['a plain answer without nulls, reasoning in the text', 'POST', chat, { model: MODEL, messages: user('Where?') }, ({ json, headers }) => {
			equal(json, { id: json.id, object: 'chat.completion', created: json.created, model: `${MODEL}@main`, system_fingerprint: '',
				choices: [{ index: 0, message: { role: 'assistant', content: '<think>Look</think>Prague.' }, finish_reason: 'stop' }], usage: { prompt_tokens: 2, completion_tokens: 3, total_tokens: 5 } }, 'answer');
			check(/^[0-9a-f]{16}$/.test(headers['x-request-id']), 'x-request-id is made');
		}],
		['the revision is confirmed', 'POST', chat, { model: `${MODEL}@0123456789abcdef`, messages: user('x') }, ({ json }) => equal(json.model, `${MODEL}@0123456789abcdef`, 'model')],
		['a stream ends with usage, and no [DONE]', 'POST', chat, { model: MODEL, messages: user('Where?'), stream: true }, answer =>
			equal(events(answer.text).map(event => [event.choices[0].delta, event.choices[0].finish_reason, event.usage?.total_tokens]), [[{ role: 'assistant' }, undefined, undefined],
				[{ content: '<think>' }, undefined, undefined], [{ content: 'Look' }, undefined, undefined], [{ content: '</think>' }, undefined, undefined], [{ content: 'Prague.' }, undefined, undefined],
				[{}, 'stop', 5]], 'events')],
		['unknown keys', 'POST', chat, { model: MODEL, messages: user('x'), nonsense: 1, top_k: 1 }, error(422, "Unexpected keys in the request: {'nonsense', 'top_k'}")],
		['unsupported fields', 'POST', chat, { model: MODEL, messages: user('x'), response_format: {}, max_completion_tokens: 1 }, error(422, "Unsupported fields in the request: {'max_completion_tokens', 'response_format'}")],
		['many long keys', 'POST', chat, Object.fromEntries(Array.from({ length: 99 }, (_, i) => ['ž'.repeat(30) + i, 1])), error(422, 'Unexpected keys')],
		['another model', 'POST', chat, { model: 'x', messages: user('x') }, error(404, 'x is not available')],
		['a generation config that is no text', 'POST', chat, { model: MODEL, messages: user('x'), generation_config: {} }, error(422, 'generation_config')],
		['a limit', 'POST', chat, { model: MODEL, messages: user('x'), max_tokens: 2 }, ({ json }) => equal([json.choices[0].finish_reason, json.choices[0].message.content], ['length', '<think>Look</think>Prag'], 'length')],
		['unknown paths', 'GET', '/version', null, error(404, 'Not Found')],
	]);
	await refuseNonsense(sim, [chat, '/load_model'], json => typeof json.detail === 'string', (path, body) => path !== '/load_model' || !body.includes(MODEL));

	await test('transformers: the request id is kept, a generation config counts, and 1,024 tokens are the default', async () => {
		equal((await post(sim, chat, { model: MODEL, messages: user('x') }, { headers: { 'x-request-id': 'r1' } })).headers['x-request-id'], 'r1', 'id');
		await script(sim, { answer: { ...one('x'.repeat(8000)), greedy: { text: 'greedy' } } });
		const get1 = async more => (await post(sim, chat, { model: MODEL, messages: user('x'), ...more })).json;
		equal([(await get1({})).usage.completion_tokens, (await get1({ generation_config: '{"max_new_tokens":1500}' })).usage.completion_tokens, (await get1({ generation_config: '{"do_sample":false}' })).choices[0].message.content,
			(await get1({ temperature: 0 })).choices[0].message.content], [1024, 1500, 'greedy', 'greedy'], 'limits');
		await script(sim, { faults: [{ on: 1, kind: 'errorEvent' }], options: { revision: 'abc' } });
		const failing = events((await post(sim, chat, { model: MODEL, messages: user('x'), stream: true })).text);
		equal([failing.at(-1), failing[0].model], [{ error: 'the simulator was told to fail' }, `${MODEL}@abc`], 'error');
	});
	await refuseMutations(sim, [[chat, { model: MODEL, messages: user('x'), stop: ['a'], seed: 1, generation_config: '{"max_new_tokens":2000}' }], ['/load_model', { model: MODEL }]]);
	await done(sim);
}

// ---- Answer models that need a runtime's state ----

{
	const sim = await startKind('llamacpp');
	const text = async (more = {}) => (await post(sim, '/v1/chat/completions', { messages: user('same'), seed: 42, temperature: 1, ...more })).json.choices[0].message.content;
	const series = async (count, more) => { const got = []; for (let i = 0; i < count; i++) got.push(await text(more)); return got.join(''); };
	const answers = texts => texts.map(text => ({ text }));

	await test('coldFirst: the first answer after a load is another one', async () => {
		await script(sim, { answer: { mode: 'coldFirst', answers: answers(['A', 'B']) } });
		await control(sim, 'POST', '/__sim/reload');
		equal(await series(4), 'ABBB', 'first');
		await control(sim, 'POST', '/__sim/reload');
		equal(await series(3), 'ABB', 'after a reload');
		equal((await state(sim)).runtime.instance, 3, 'instance');
	});

	await test('cachePath: a prompt that was seen before takes another path, until a flush or without the cache', async () => {
		await script(sim, { answer: { mode: 'cachePath', answers: answers(['A', 'B']) } });
		await control(sim, 'POST', '/__sim/flush');
		equal([await series(3), await series(2, { cache_prompt: false }), await series(2, { messages: user('other') })], ['BAA', 'BB', 'BA'], 'paths');
		await control(sim, 'POST', '/__sim/flush');
		equal(await series(2), 'BA', 'after a flush');
	});

	await test('schedule: exactly these answers, the last one again and again', async () => {
		await script(sim, { answer: { mode: 'schedule', answers: answers(['A', 'B', 'C']), schedule: [2, 0, 0, 1] } });
		equal(await series(6), 'CAABBB', 'schedule');
	});

	await test('seedIgnored: the seed changes nothing; at temperature 0 there is one answer', async () => {
		await script(sim, { answer: { mode: 'seedIgnored', answers: answers(['A', 'B', 'C', 'D', 'E', 'F', 'G', 'H']) } });
		check(new Set(await series(10)).size > 1, 'several answers of one seed');
		equal(new Set(await series(5, { temperature: 0 })).size, 1, 'greedy');
	});

	await test('greedy: temperature 0 gets one answer, whatever the mode; a seed of -1 is random', async () => {
		await script(sim, { answer: { mode: 'seeded', answers: answers(['A', 'B', 'C', 'D', 'E', 'F']), greedy: { text: 'G' } } });
		equal(await series(2, { temperature: 0 }), 'GG', 'greedy');
		equal(new Set(await series(6)).size, 1, 'seeded');
		check(new Set(await series(12, { seed: -1 })).size > 1, 'random');
	});

	await test('reloadShift: after each reload the seeds lead to other answers', async () => {
		await script(sim, { answer: { mode: 'reloadShift', answers: answers(['A', 'B', 'C']) } });
		await control(sim, 'POST', '/__sim/reload');
		const before = await series(3);
		await control(sim, 'POST', '/__sim/reload');
		const after = await series(3);
		equal([new Set(before).size, new Set(after).size, before[0] !== after[0]], [1, 1, true], `${before} ${after}`);
	});

	await test('wrongModel: the answer names another model than the one asked', async () => {
		await script(sim, { options: { wrongModel: 'other' } });
		equal((await post(sim, '/v1/chat/completions', { messages: user('x') })).json.model, 'other', 'model');
	});

	await test('a reload ends what is under way, as a fault, and forgets the metrics', async () => {
		await script(sim, { cadence: { firstByteMs: 60000 } });
		const cut = post(sim, '/v1/chat/completions', { messages: user('x') });
		await until('in flight', async () => (await state(sim)).inFlight === 1);
		await control(sim, 'POST', '/__sim/reload');
		check((await cut).broken, 'cut');
		const after = await state(sim);
		equal([after.faulted, after.inFlight, after.runtime.running, after.runtime.promptTokens], [1, 0, 0, 0], 'state');
	});

	await test('the fault "die" ends the process in the middle of a stream', async () => {
		await script(sim, { faults: [{ on: 1, kind: 'die', afterBytes: 20, exitCode: 7 }] });
		const answer = await ask(sim.port, 'POST', '/v1/chat/completions', JSON.stringify({ messages: user('x'), stream: true }));
		check(answer.broken && answer.body.length === 20, `cut: ${answer.text}`);
		await until('ended', () => sim.child.exitCode === 7);
	});
}

// ---- Limits ----

{
	const sim = await startKind('llamacpp');
	const chat = '/v1/chat/completions';
	const names = (from, count) => Array.from({ length: count }, (_, i) => `m${from + i}`);

	await test('limits: 64 further models, texts of 1,024 bytes, 64 stops, schedules of 100,000', async () => {
		const refused = async (text, place) => {
			const answer = await control(sim, 'POST', '/__sim/script', text);
			check(answer.status === 400 && answer.json.error.includes(place), answer.text.slice(0, 200));
		};
		await script(sim, { options: { models: names(0, 64), version: 'x'.repeat(1024) } });
		await refused({ options: { models: names(0, 65) } }, '/options/models');
		await refused({ options: { version: 'x'.repeat(1025) } }, '/options/version');
		await refused({ options: { models: [''] } }, '/options/models/0');
		await refused({ options: { contextTokens: 0 } }, '/options/contextTokens');
		await refused({ options: { slots: 4097 } }, 'from 0 to 4096');
		const answers = [{ text: 'A' }];
		await script(sim, { answer: { mode: 'schedule', answers, schedule: Array(100000).fill(0) } });
		await refused({ answer: { mode: 'schedule', answers, schedule: Array(100001).fill(0) } }, '1 to 100000');
		await refused({ answer: { mode: 'schedule', answers, schedule: [1] } }, '/answer/schedule/0');
		await refused({ answer: { mode: 'schedule', answers } }, '/answer/schedule');
		await refused({ answer: { mode: 'fixed', answers, schedule: [0] } }, '/answer/schedule');
		await refused({ answer: { mode: 'coldFirst', answers } }, 'two answers');
		await refused({ answer: { mode: 'extract', greedy: { text: 7 } } }, '/answer/greedy/text');
		equal((await post(sim, chat, { messages: user('x'), stop: Array(64).fill('s') })).status, 200, '64 stops');
		equal((await post(sim, chat, { messages: user('x'), stop: Array(65).fill('s') })).json.error.message, 'stop: must be a text or a list of at most 64', '65 stops');
	});

	await test('limits: the prefix cache forgets all when it is full', async () => {
		await script(sim, { options: { contextTokens: 4000000 } });
		await control(sim, 'POST', '/__sim/flush');
		const cached = async count => (await post(sim, chat, { messages: user('abcdefghijklmnop'.repeat(count)), max_tokens: 1 })).json.timings.cache_n;
		await cached(200000);
		check(await cached(200000) > 0, 'below');
		await control(sim, 'POST', '/__sim/flush');
		// Blocks of one text differ, since each hash goes on from the one before; 262,144 entries fit, a prompt's own among them.
		await cached(270000);
		equal(await cached(270000), 0, 'above: the first blocks are gone');
	});

	await test('limits: 256 names of models are known, a further one does not exist', async () => {
		for (let from = 0; from < 256; from += 64) {
			await script(sim, { options: { router: true, models: names(from, 64) } });
			await get(sim, '/models');
		}
		await script(sim, { options: { router: true, models: ['late'] } });
		equal((await post(sim, chat, { model: 'late', messages: user('x') })).status, 404, 'late');
		equal((await post(sim, chat, { model: MODEL, messages: user('x') })).status, 200, 'the first one');
	});
	await done(sim);
}

// ---- Connections ----

await test('what is too large or no HTTP gets the kind\'s own error too', async () => {
	const large = 'x'.repeat(8 * 1024 * 1024 + 1);
	for (const [kind, path, members] of [['vllm', '/v1/chat/completions', ['error']], ['sglang', '/v1/chat/completions', ['object', 'message', 'type', 'param', 'code']], ['transformers', '/v1/chat/completions', ['detail']], ['ollama', '/api/chat', ['error']]]) {
		const sim = await startKind(kind);
		const answer = await post(sim, path, large);
		equal([answer.status, Object.keys(answer.json)], [413, members], kind);
		check((await rawAsk(sim, 'nonsense\r\n\r\n', { end: true })).text.startsWith('HTTP/1.1 400'), 'no HTTP');
		equal((await state(sim)).rejected, 1, 'counted');
		await stop(sim);
	}
	const sim = await startKind('openai');
	equal(typeof JSON.parse((await ask(sim.control, 'POST', '/__sim/script', large)).text).error, 'string', 'the control port');
	await stop(sim);
});

await test('pauseMs: one longer pause in the middle of the text', async () => {
	const sim = await startKind('openai');
	await script(sim, { answer: one('x'.repeat(64)), cadence: { pauseMs: 4000, tokensPerChunk: 4 } });
	const answer = await post(sim, '/v1/chat/completions', { model: MODEL, messages: user('x'), stream: true });
	check(answer.ms >= 3990 && answer.times[0] + 1000 < answer.ms, `once: ${answer.times}`);
	check(answer.ms < 7900, `not again: ${answer.ms}`);
	await stop(sim);
});

await test('idleMs: a connection that waits for its next request is closed', async () => {
	const sim = await startKind('openai');
	await script(sim, { options: { idleMs: 120 } });
	const began = performance.now();
	const raw = await rawAsk(sim, 'GET /health HTTP/1.1\r\nHost: x\r\n\r\n');
	const ms = performance.now() - began;
	check(raw.ended && ms >= 110 && ms < 4000, `closed after ${ms} ms`);
	await stop(sim);
});

await finish();
