// What runtimes answer, body by body, through the whole daemon: each error, end and trap that is known of a kind is put before the adapter
// of that kind by a server that says just this, and the section gets the class that follows from it, the attempts that it allows, and no
// fact of anything that is no whole answer. One table by kind; a new body is a row. Needs Node 20 and nothing else.
import http from 'node:http';
import { Daemon, check, equal, extractionOf, finish, match, test, until } from '../support/harness.mjs';

const MODEL = 'm', DOCUMENT = 'Acme was founded in 1901.';
const FACTS = JSON.stringify({ facts: [{ subject: 'Acme', predicate: 'founded_in', object: '1901', quote: 'Acme was founded in 1901.' }] });
const json = (status, body, headers = {}) => ({ status, body: typeof body === 'string' ? body : JSON.stringify(body), headers });
const half = FACTS.slice(0, 20);

// A chunk of a chat completion, a whole one, and streams of events with their end mark.
const chunk = (delta, finish = null, more = {}) => ({ id: 'c', object: 'chat.completion.chunk', created: 1, model: MODEL, choices: [{ index: 0, delta, logprobs: null, finish_reason: finish }], ...more });
const usage = (more = {}) => ({ id: 'c', object: 'chat.completion.chunk', created: 1, model: MODEL, choices: [], usage: { prompt_tokens: 9, total_tokens: 31, completion_tokens: 22 }, ...more });
const line = event => typeof event === 'string' ? event : `data: ${JSON.stringify(event)}\n\n`;
const stream = (...events) => ({ status: 200, body: events.map(line).join(''), headers: { 'Content-Type': 'text/event-stream' } });
const DONE = 'data: [DONE]\n\n';
const whole = (message, finish = 'stop', more = {}) => json(200, { id: 'c', object: 'chat.completion', model: MODEL, choices: [{ index: 0, message: { role: 'assistant', ...message }, finish_reason: finish }], ...more });
const good = stream(chunk({ role: 'assistant', content: '' }), chunk({ content: FACTS }), chunk({}, 'stop'), usage(), DONE);

// Rows of OpenAI's wire baseline, which hold for all that speak it: [sentence, answer, outcome, what the failure says].
const baseline = [
	['a stream', good, 'facts'],
	['lines that end with \\r\\n, comments and names of events between them', { ...good, body: good.body.replaceAll('\n', '\r\n').replaceAll('data: {', ': keep-alive\r\n\r\nevent: chunk\r\ndata: {') }, 'facts'],
	['a stream that is labelled as JSON', { ...good, headers: { 'Content-Type': 'application/json' } }, 'facts'],
	['an answer in one piece', whole({ content: FACTS, refusal: null }), 'facts'],
	['the text in one event with the end', stream(chunk({ role: 'assistant', content: FACTS }, 'stop'), DONE), 'facts'],
	['reasoning under one name', stream(chunk({ reasoning: 'Look' }), chunk({ content: FACTS }), chunk({}, 'stop'), DONE), 'facts', /Look/],
	['reasoning under the other', stream(chunk({ reasoning_content: 'Look' }), chunk({ content: FACTS }), chunk({}, 'stop'), DONE), 'facts', /Look/],
	['reasoning of an answer in one piece', whole({ content: FACTS, reasoning: 'Look' }), 'facts', /Look/],
	['an end without its mark', stream(chunk({ content: FACTS }), chunk({}, 'stop')), 'truncated', /end marker/],
	['a mark without an end', stream(chunk({ content: FACTS }), DONE), 'truncated', /without a finish reason/],
	['nothing but the mark', stream(DONE), 'truncated', /without a finish reason/],
	['an answer in one piece without an end', whole({ content: FACTS }, null), 'truncated', /without a finish reason/],
	['length', stream(chunk({ content: half }), chunk({}, 'length'), DONE), 'truncated', /maxTokens/],
	['length, all of it spent on reasoning', stream(chunk({ reasoning: 'Look' }), chunk({ content: '' }, 'length'), DONE), 'truncated', /maxTokens/],
	['content_filter', stream(chunk({}, 'content_filter'), DONE), 'refused', /content filter/],
	['tool_calls', stream(chunk({ tool_calls: [{ index: 0, id: 't', type: 'function', function: { name: 'f', arguments: '{}' } }] }), chunk({}, 'tool_calls'), DONE), 'refused', /calls a tool/],
	['function_call', whole({ content: null, function_call: { name: 'f', arguments: '{}' } }, 'function_call'), 'refused', /calls a tool/],
	['an answer of the model without words', whole({ content: null }), 'schema-invalid', /json-syntax/],
	['an error with a code that is a text', json(400, { error: { message: 'too long', type: 'invalid_request_error', param: 'messages', code: 'context_length_exceeded' } }), 'refused', /too long; send smaller sections/],
	['an error inside of a stream', stream(chunk({ content: half }), { error: { message: 'boom', type: 'server_error', param: null, code: null } }, DONE), 'runtime-error', /gave up in the middle of its answer: boom/],
	['one with a code that is a number', stream(chunk({ content: half }), { error: { message: 'boom', type: 'x', param: null, code: 503 } }, DONE), 'unreachable', /boom/],
	['one with a code that is a number in a text', stream(chunk({ content: half }), { error: { message: 'boom', type: 'x', param: null, code: '429' } }, DONE), 'rate-limited', /boom/],
	['one that no other attempt will help', stream(chunk({ content: half }), { error: { message: 'boom', type: 'invalid_request_error', param: null, code: null } }, DONE), 'refused', /boom/],
	['an error that is a text', json(400, { error: 'boom' }), 'refused', /400: boom/],
	['401', json(401, { error: 'Unauthorized' }), 'refused', /apiKey/],
	['403', json(403, { error: { message: 'no', type: 'permission_error', param: null, code: null } }), 'refused', /apiKey/],
	['404 of a model', json(404, { error: { message: 'The model `x` does not exist', type: 'invalid_request_error', param: null, code: 'model_not_found' } }), 'wrong-model', /does not exist/],
	['404 of the path', json(404, { detail: 'Not Found' }), 'refused', /Not Found/],
	['408', json(408, ''), 'timed-out', /408/],
	['422 of FastAPI', json(422, { detail: [{ loc: ['body'], msg: 'bad', input: 'out of memory' }] }), 'refused', /bad/],
	['501', json(501, { error: { message: 'no', type: 'x', param: null, code: null } }), 'refused', /501/],
	['502', json(502, '<html>'), 'unreachable', /502/],
	['504', json(504, '<html>'), 'timed-out', /504/],
	['200 without a body', json(200, ''), 'runtime-error', /empty body/],
	['200 with a page of the web', json(200, '<!doctype html>'), 'runtime-error', /neither an event stream nor JSON/],
	['200 with JSON that is no answer', json(200, { status: 'ok' }), 'runtime-error', /holds no message/],
	['another model', stream(chunk({ content: FACTS }, null, { model: 'n' }), chunk({}, 'stop', { model: 'n' }), DONE), 'wrong-model', /n answered/],
	['another model in one piece', whole({ content: FACTS }, 'stop', { model: 'n' }), 'wrong-model', /n answered/],
];

const vllmError = (message, type, code, param = null) => ({ error: { message, type, param, code } });
const sglangError = (message, type, code) => ({ object: 'error', message, type, param: null, code });
const openaiError = (message, param = null, code = null) => ({ error: { message, type: 'invalid_request_error', param, code } });
const lmFinish = (reason, stop) => stream(chunk({ content: FACTS }), { ...chunk({}, reason), stats: { tokens_per_second: 1, stop_reason: stop } }, DONE);

const llamaError = (message, type, code, more = {}) => ({ error: { code, message, type, ...more } });
const timings = { cache_n: 3, prompt_n: 6, prompt_ms: 30.9, prompt_per_token_ms: 5.1, prompt_per_second: 194.2, predicted_n: 2, predicted_ms: 40.1, predicted_per_token_ms: 20, predicted_per_second: 49.8 };
const llamaUsage = { completion_tokens: 2, prompt_tokens: 9, total_tokens: 11, prompt_tokens_details: { cached_tokens: 3 } };

// Ollama's own API: lines, of which the last one is done.
const lines = (...list) => ({ status: 200, body: list.map(item => `${JSON.stringify(item)}\n`).join(''), headers: { 'Content-Type': 'application/x-ndjson' } });
const said = (content, more = {}) => ({ model: MODEL, created_at: '2026-01-01T00:00:00Z', message: { role: 'assistant', content, ...more }, done: false });
const done = (more = {}) => ({ ...said(''), done: true, done_reason: 'stop', total_duration: 5, load_duration: 1, prompt_eval_count: 9, prompt_eval_duration: 1, eval_count: 3, eval_duration: 1, ...more });
const ollamaModel = { name: `${MODEL}:latest`, model: `${MODEL}:latest`, size: 9, digest: 'ab', details: { format: 'gguf', family: 'llama', parameter_size: '7M', quantization_level: 'Q8_0' } };

// paths: what the kind's probes ask, and what they get. chat, good: where it is asked, and with what success looks like, if not as OpenAI has it; such a kind
// has no rows of the baseline. differs: the baseline's outcomes that are others. Further fields of a row: how many attempts there are of at most three.
const kinds = [
	{
		kind: 'vllm',
		paths: { 'GET /health': json(200, ''), 'GET /v1/models': json(200, { object: 'list', data: [{ id: MODEL, object: 'model', owned_by: 'vllm', root: '/m', max_model_len: 8192 }] }), 'GET /version': json(200, { version: '0.29.0' }) },
		unready: { 'GET /health': json(503, '') },
		rows: [
			['chunks with unset fields left out, the text in the last one, the fingerprint with usage', stream(chunk({ role: 'assistant', content: '' }), chunk({ reasoning: 'Look' }, null), chunk({ content: FACTS }, 'stop'), usage({ system_fingerprint: 'vllm-0.29.0-1a2b3c4d' }), DONE), 'facts'],
			['usage in every chunk', stream({ ...chunk({ content: half }), usage: { prompt_tokens: 9, completion_tokens: 3, total_tokens: 12 } }, { ...chunk({ content: FACTS.slice(20) }, 'stop'), usage: { prompt_tokens: 9, completion_tokens: 22, total_tokens: 31 } }, usage(), DONE), 'facts'],
			['a whole answer with all its members', whole({ content: FACTS, refusal: null, annotations: null, audio: null, function_call: null, reasoning: null }, 'stop', { service_tier: null, prompt_logprobs: null, prompt_token_ids: null, prompt_text: null, kv_transfer_params: null, ec_transfer_params: null, metrics: null, usage: { prompt_tokens: 9, completion_tokens: 22, total_tokens: 31 } }), 'facts'],
			['a parameter out of its range', json(400, vllmError('temperature must be in [0, 2], got 3.0.', 'BadRequestError', 400, 'temperature')), 'refused', /got 3\.0/, 1],
			['a context that is too short, in tokens', json(400, vllmError("You passed 9000 input tokens and requested 512 output tokens. However, the model's context length is only 8192 tokens, resulting in a maximum input length of 7680 tokens. Please reduce the length of the input prompt.", 'BadRequestError', 400, 'input_tokens')), 'refused', /send smaller sections/, 1],
			['a context that is too short, in characters', json(400, vllmError('You passed 90000 input characters.', 'BadRequestError', 400, 'input_text')), 'refused', /send smaller sections/, 1],
			['a malformed body', json(400, vllmError("1 validation error:\n  {'type': 'list_type', 'loc': 'body.messages', 'msg': 'out of memory'}", 'Bad Request', 400, 'messages')), 'refused', /validation error/, 1],
			['the model is not there', json(404, vllmError('The model `x` does not exist.', 'NotFoundError', 404, 'model')), 'wrong-model', /does not exist/, 1],
			['422', json(422, vllmError('no', 'UnprocessableEntityError', 422)), 'refused', /422/, 1],
			['500 is tried once more', json(500, vllmError('generation failed', 'InternalServerError', 500)), 'runtime-error', /generation failed/, 2],
			['an engine that has died is waited for', json(500, vllmError('EngineCore encountered an issue. See stack trace (above) for the root cause.', 'InternalServerError', 500)), 'unreachable', /EngineCore/, 3],
			['EngineDeadError', json(500, vllmError('EngineDeadError', 'InternalServerError', 500)), 'unreachable', /EngineDead/, 3],
			['out of memory is tried again', json(500, vllmError('CUDA out of memory. Tried to allocate 1.5 GiB', 'InternalServerError', 500)), 'out-of-memory', /out of memory/, 3],
			['501', json(501, vllmError('no', 'NotImplementedError', 501)), 'refused', /501/, 1],
			['an error in a stream, then its mark', stream(chunk({ content: half }), vllmError('generation failed', 'InternalServerError', 500), DONE), 'runtime-error', /generation failed/],
			['a refusal in a stream', stream(vllmError('no', 'BadRequestError', 400), DONE), 'refused', /no/, 1],
			['abort', stream(chunk({ content: half }), chunk({}, 'abort'), DONE), 'runtime-error', /gave up its answer/],
			['error', stream(chunk({ content: half }), chunk({}, 'error'), DONE), 'runtime-error', /gave up its answer/],
		],
	},
	{
		kind: 'sglang',
		paths: { 'GET /health': json(200, ''), 'GET /v1/models': json(200, { data: [{ id: MODEL, owned_by: 'sglang', root: MODEL, parent: null, max_model_len: 4096 }] }), 'GET /server_info': json(200, { model_path: '/m', version: '0.5.6', attention_backend: 'fa3', weight_version: 'w1', internal_states: [{}] }) },
		unready: { 'GET /health': json(503, '') },
		rows: [
			['matched_stop, and counts of its own', stream(chunk({ role: 'assistant', content: '', reasoning_content: null, tool_calls: null }), chunk({ role: null, content: FACTS, reasoning_content: null }), { ...chunk({ content: null }, 'stop'), usage: null }, usage({ usage: { prompt_tokens: 9, completion_tokens: 22, reasoning_tokens: 0, prompt_tokens_details: null } }), DONE), 'facts'],
			['the context, as a sum', json(400, sglangError("Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of 5000 tokens.", 'BadRequestError', 400)), 'refused', /send smaller sections/, 1],
			['the context, of the prompt alone', json(400, sglangError("The input (9000 tokens) is longer than the model's context length (4096 tokens).", 'BadRequestError', 400)), 'refused', /send smaller sections/, 1],
			['an internal error is tried once more', json(500, sglangError('boom', 'InternalServerError', 500)), 'runtime-error', /boom/, 2],
			['503 is waited for', json(503, sglangError('starting', 'ServiceUnavailable', 503)), 'unreachable', /503/, 3],
			['a flat error in a stream', stream(chunk({ content: half }), sglangError('boom', 'InternalServerError', 500), DONE), 'runtime-error', /boom/],
			['a flat error with 200', json(200, sglangError('boom', 'InternalServerError', 500)), 'runtime-error', /boom/],
			['an error in a stream with "error" around it', stream(chunk({ content: half }), { error: sglangError('boom', 'BadRequestError', 400) }, DONE), 'refused', /boom/],
			['the weights that it told', whole({ content: FACTS }, 'stop', { metadata: { weight_version: 'w1' } }), 'facts'],
			['other weights than it told', whole({ content: FACTS }, 'stop', { metadata: { weight_version: 'w2' } }), 'runtime-error', /weights have changed: version w1 before, w2 in the answer/],
			['abort', stream(chunk({ content: half }), { ...chunk({ content: null }, 'abort') }, DONE), 'runtime-error', /gave up its answer/],
			['/generate\'s error', json(400, { error: { message: 'no text' } }), 'refused', /no text/, 1],
		],
	},
	{
		kind: 'lmstudio',
		paths: { 'GET /api/v1/models': json(200, { models: [{ type: 'llm', key: MODEL, format: 'gguf', loaded_instances: [{ id: MODEL, config: { context_length: 4096, parallel: 1 } }] }] }) },
		other: request => json(200, { error: `Unexpected endpoint or method. (${request})` }),
		rows: [
			['the end says more than "stop": the model\'s own', lmFinish('stop', 'eosFound'), 'facts'],
			['a stop text', lmFinish('stop', 'stopStringFound'), 'facts'],
			['empty stats', stream(chunk({ content: FACTS }), { ...chunk({}, 'stop'), stats: {} }, DONE), 'facts'],
			['somebody stopped it', lmFinish('stop', 'userStopped'), 'runtime-error', /somebody stopped/],
			['the model was unloaded', lmFinish('stop', 'modelUnloaded'), 'runtime-error', /unloaded/],
			['it failed', lmFinish('stop', 'failed'), 'runtime-error', /gave up/],
			['the token limit', lmFinish('stop', 'maxPredictedTokensReached'), 'truncated', /maxTokens/],
			['the context is full', lmFinish('stop', 'contextLengthReached'), 'truncated', /longer context/],
			['a tool', lmFinish('stop', 'toolCalls'), 'refused', /calls a tool/],
			['200 for a path that it does not know', json(200, { error: 'Unexpected endpoint or method. (POST /v1/chat/completions)' }), 'refused', /Unexpected endpoint/, 1],
			['nothing is loaded', json(404, openaiError("No models loaded. Please load a model in the developer page or use the 'lms load' command.", 'model')), 'wrong-model', /No models loaded/, 1],
			['v1 has no such model', json(404, { error: { type: 'model_not_found', message: 'no', param: 'model' } }), 'wrong-model', /no/, 1],
			['v1 refuses', json(400, { error: { type: 'invalid_request', message: 'no' } }), 'refused', /no/, 1],
			['v1 fails', json(500, { error: { type: 'internal_error', message: 'no' } }), 'runtime-error', /no/, 2],
			['v1 does not know why', json(500, { error: { type: 'unknown', message: 'no' } }), 'runtime-error', /no/, 2],
			['v1 cannot do it', json(501, { error: { type: 'not_implemented', message: 'no' } }), 'refused', /no/, 1],
			['an event that is called error', stream(chunk({ content: half }), `event: error\ndata: ${JSON.stringify({ error: { message: 'boom', type: 'internal_error' } })}\n\n`), 'runtime-error', /boom/],
			['one whose data alone tells it', stream(chunk({ content: half }), `event: error\ndata: ${JSON.stringify({ message: 'boom' })}\n\n`), 'runtime-error', /boom/],
			['a field of the wrong type', json(400, openaiError('Field with key llm.prediction.seed does not satisfy the schema: expected a number', 'seed')), 'refused', /llm\.prediction\.seed/, 1],
			['a context that is too short', json(400, { error: 'The number of tokens to keep from the initial prompt is greater than the context length.' }), 'refused', /send smaller sections/, 1],
			['the same in a stream', stream({ error: { message: 'Trying to keep the first 9000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens' } }), 'refused', /send smaller sections/, 1],
			['loading is stopped by the guardrail', json(500, openaiError('Model loading was stopped due to insufficient system resources.')), 'out-of-memory', /resources/, 3],
			['loading is aborted by it', json(400, { error: 'Model loading aborted due to insufficient system resources.' }), 'out-of-memory', /resources/, 3],
			['loading finds no memory', json(500, { error: 'error loading model: unable to allocate CUDA0 buffer' }), 'out-of-memory', /allocate/, 3],
			['loading fails', json(500, { error: 'Failed to load model' }), 'runtime-error', /Failed to load/, 2],
			['the model goes away', json(400, { error: 'Model is unloaded.' }), 'runtime-error', /unloaded/],
		],
	},
	{
		kind: 'llamacpp',
		paths: {
			'GET /health': json(200, { status: 'ok' }), 'GET /v1/models': json(200, { object: 'list', data: [{ id: MODEL, owned_by: 'llamacpp', created: 1, meta: null }] }), 'GET /lora-adapters': json(200, []),
			'GET /props': json(200, { default_generation_settings: { n_ctx: 4096, params: { temperature: 0.8 } }, total_slots: 1, model_path: '/m.gguf', chat_template: 't', build_info: 'b6123-1a2b3c4' }),
		},
		unready: { 'GET /health': json(503, llamaError('Loading model', 'unavailable_error', 503)) },
		rows: [
			['the fingerprint on each chunk, an empty one with the end, timings with usage', stream(chunk({ role: 'assistant', content: null }, null, { system_fingerprint: 'b6123-1a2b3c4' }), chunk({ reasoning_content: 'Look' }),
				chunk({ content: FACTS }, null, { system_fingerprint: 'b6123-1a2b3c4' }), chunk({}, 'stop'), { ...usage(), usage: llamaUsage, timings }, DONE), 'facts', /"cache_n":3/],
			['timings with the end where no usage was asked for', stream(chunk({ content: FACTS }), { ...chunk({}, 'stop'), timings }, DONE), 'facts'],
			['a whole answer with all its members', whole({ content: FACTS, reasoning_content: 'Look' }, 'stop', { created: 1, system_fingerprint: 'b6123-1a2b3c4', usage: llamaUsage, timings: { ...timings, draft_n: 4, draft_n_accepted: 2 } }), 'facts'],
			['pings between', { ...good, body: `:\n\n${good.body.replaceAll('\n\n', '\n\n:\n\n')}` }, 'facts'],
			['a verbose one that says what was in force', whole({ content: FACTS }, 'stop', { __verbose: { prompt: 'p', generation_settings: { temperature: 0.5, seed: 7 }, truncated: false } }), 'facts'],
			['a verbose one that says that it cut the prompt', whole({ content: FACTS }, 'stop', { __verbose: { truncated: true } }), 'truncated', /cut the prompt/],
			['prompt and answer that the context cannot have held', stream(chunk({ content: FACTS }), chunk({}, 'stop'), { ...usage(), usage: { prompt_tokens: 4090, completion_tokens: 22, total_tokens: 4112 } }, DONE), 'truncated', /something was cut/],
			['a bad request', json(400, llamaError("'messages' is required", 'invalid_request_error', 400)), 'refused', /messages/, 1],
			['a context that is too short', json(400, llamaError('request (5945 tokens) exceeds the available context size (4096 tokens), try increasing it', 'exceed_context_size_error', 400, { n_prompt_tokens: 5945, n_ctx: 4096 })), 'refused', /send smaller sections/, 1],
			['the same in a stream', stream(llamaError('request (5945 tokens) exceeds the available context size (4096 tokens), try increasing it', 'exceed_context_size_error', 400)), 'refused', /send smaller sections/, 1],
			['a schema that it makes no grammar of, whatever is left of it', json(400, llamaError('"json_schema": JSON schema conversion failed: Unrecognized schema', 'invalid_request_error', 400)), 'refused', /json_schema/],
			['no key', json(401, llamaError('Invalid API Key', 'authentication_error', 401)), 'refused', /apiKey/, 1],
			['not allowed', json(403, llamaError('no', 'permission_error', 403)), 'refused', /apiKey/, 1],
			['no such path', json(404, llamaError('File Not Found', 'not_found_error', 404)), 'refused', /File Not Found/, 1],
			['the router has no such model', json(400, llamaError("model 'm' not found", 'invalid_request_error', 400)), 'wrong-model', /not found/, 1],
			['… in newer ones', json(404, llamaError("model 'm' not found", 'not_found_error', 404)), 'wrong-model', /not found/, 1],
			['the router may not load it', json(400, llamaError('model is not loaded', 'invalid_request_error', 400)), 'wrong-model', /not loaded/, 1],
			['the router\'s load fails', json(500, llamaError('model name=m failed to load', 'server_error', 500)), 'runtime-error', /failed to load/, 2],
			['an error of its own is tried once more', json(500, llamaError('boom', 'server_error', 500)), 'runtime-error', /boom/, 2],
			['a device without memory', json(500, llamaError('failed to allocate CUDA0 buffer', 'server_error', 500)), 'out-of-memory', /allocate/, 3],
			['what it does not support', json(501, llamaError('This server does not support it', 'not_supported_error', 501)), 'refused', /does not support/, 1],
			['it loads', json(503, llamaError('Loading model', 'unavailable_error', 503)), 'unreachable', /Loading model/, 3],
			['an error in a stream', stream(chunk({ content: half }), llamaError('boom', 'server_error', 500)), 'runtime-error', /boom/],
			['an unknown error in a stream that says that it loads', stream(llamaError('Loading model', 'unavailable_error', 503)), 'unreachable', /Loading model/],
		],
	},
	{
		kind: 'ollama', chat: 'POST /api/chat', good: lines(said(FACTS), done()),
		paths: {
			'GET /api/version': json(200, { version: '0.33.0' }), 'GET /api/tags': json(200, { models: [ollamaModel] }), 'GET /api/ps': json(200, { models: [{ ...ollamaModel, size_vram: 9, context_length: 4096 }] }),
			'POST /api/show': json(200, { modelfile: 'FROM /b/sha256-77', template: 't', parameters: 'temperature 0.8', details: ollamaModel.details }),
		},
		unready: { 'GET /api/version': json(503, { error: 'starting' }) },
		rows: [
			['lines, with its thinking', lines(said('', { thinking: 'Look' }), said(half), said(FACTS.slice(20)), done()), 'facts', /Look/],
			['an answer in one piece', json(200, { ...done(), message: { role: 'assistant', content: FACTS, thinking: 'Look' } }), 'facts', /Look/],
			['zeros left out', lines(said(FACTS), { model: MODEL, created_at: '2026-01-01T00:00:00Z', message: { role: 'assistant', content: '' }, done: true, done_reason: 'stop' }), 'facts'],
			['the last line without its end', { ...lines(said(FACTS)), body: `${lines(said(FACTS), done()).body.trimEnd()}` }, 'facts'],
			['lines that end with \\r\\n', { ...lines(), body: lines(said(FACTS), done()).body.replaceAll('\n', '\r\n') }, 'facts'],
			['the name with its tag', lines({ ...said(FACTS), model: `${MODEL}:latest` }, { ...done(), model: `${MODEL}:latest` }), 'facts'],
			['another tag', lines({ ...said(FACTS), model: `${MODEL}:7b` }, { ...done(), model: `${MODEL}:7b` }), 'wrong-model', /m:7b answered/],
			['another model', lines({ ...said(FACTS), model: 'n' }, { ...done(), model: 'n' }), 'wrong-model', /n answered/],
			['another machine computed it', lines({ ...said(FACTS), remote_model: 'big', remote_host: 'https://c' }, { ...done(), remote_model: 'big', remote_host: 'https://c' }), 'wrong-model', /https:\/\/c computed/],
			['length', lines(said(half), done({ done_reason: 'length' })), 'truncated', /maxTokens/],
			['length, all of it spent on thinking', lines(said('', { thinking: 'Look' }), done({ done_reason: 'length' })), 'truncated', /maxTokens/],
			['it did nothing but load', lines(done({ done_reason: 'load' })), 'runtime-error', /load the model/],
			['it did nothing but unload', lines(done({ done_reason: 'unload' })), 'runtime-error', /unload the model/],
			['no last line', lines(said(FACTS)), 'truncated', /without a finish reason and without its end marker/],
			['a last line without its reason', lines(said(FACTS), done({ done_reason: undefined })), 'truncated', /without a finish reason/],
			['a line that is cut', { ...lines(), body: lines(said(half)).body + '{"model":"m","mess' }, 'runtime-error', /not JSON as agreed/],
			['prompt and answer that the context cannot have held', lines(said(FACTS), done({ prompt_eval_count: 4090, eval_count: 9 })), 'truncated', /something was cut/],
			['an error in the place of a line', lines(said(half), { error: 'an error was encountered while running the model: boom' }), 'runtime-error', /boom/],
			['a wrong type', json(400, { error: 'option "seed" must be of type integer' }), 'refused', /seed/, 1],
			['a bad format', json(400, { error: 'invalid format: expected "json" or a valid JSON schema object' }), 'refused', /format/],
			['a context that is too short', json(400, { error: 'the input length exceeds the context length' }), 'refused', /send smaller sections/, 1],
			['the model is not there', json(404, { error: "model 'm' not found" }), 'wrong-model', /not found/, 1],
			['nor can it be pulled', json(404, { error: 'model "m" not found, try pulling it first' }), 'wrong-model', /pulling/, 1],
			['no such path', json(404, '404 page not found'), 'refused', /404 page not found/, 1],
			['it was called off there', json(499, { error: 'request canceled' }), 'runtime-error', /499/],
			['an error of its own is tried once more', json(500, { error: 'llama runner process has terminated: exit status 2' }), 'runtime-error', /terminated/, 2],
			['too little memory', json(500, { error: 'model requires more system memory (9.0 GiB) than is available (3.2 GiB)' }), 'out-of-memory', /more system memory/, 3],
			['a device without memory', json(500, { error: 'llama runner process has terminated: error loading model: unable to allocate CUDA0 buffer' }), 'out-of-memory', /allocate/, 3],
			['its queue is full', json(503, { error: 'server busy, please try again.  maximum pending requests exceeded' }), 'rate-limited', /server busy/, 3],
			['503 of something before it', json(503, '<html>'), 'unreachable', /503/, 3],
			['200 with a page of the web', json(200, '<!doctype html>'), 'runtime-error', /neither an event stream nor JSON/],
			['200 without a body', json(200, ''), 'runtime-error', /empty body/],
			['200 with JSON that is no answer', json(200, { status: 'ok' }), 'truncated', /without a finish reason/],
		],
	},
	{
		kind: 'openai', paths: { 'GET /v1/models': json(200, { object: 'list', data: [{ id: MODEL, object: 'model' }] }) },
		differs: { 'an end without its mark': 'facts' },
		rows: [
			['transformers: the model with its revision, usage with the end, no mark', stream(chunk({ role: 'assistant' }, undefined, { model: `${MODEL}@main`, system_fingerprint: '' }), chunk({ content: FACTS }, undefined, { model: `${MODEL}@main` }),
				{ ...chunk({}, 'stop', { model: `${MODEL}@main` }), usage: { prompt_tokens: 9, completion_tokens: 3, total_tokens: 12 } }), 'facts'],
			['transformers: reasoning in the text', stream(chunk({ content: '<thi' }), chunk({ content: 'nk>Look</think>\n\n' }), chunk({ content: FACTS }), chunk({}, 'stop')), 'facts', /Look/],
			['transformers: all of it spent on reasoning', stream(chunk({ content: '<think>Look' }), chunk({}, 'length')), 'truncated', /maxTokens/],
			['transformers: the end of the connection and no end', stream(chunk({ content: FACTS })), 'truncated', /without a finish reason/],
			['transformers: an error that is a text', stream(chunk({ content: half }), { error: 'boom' }), 'runtime-error', /boom/],
			['transformers: keys that it does not know', json(422, { detail: "Unexpected keys in the request: {'nonsense'}" }), 'refused', /nonsense/, 1],
			['transformers: what is ours and it does not support is left out once', json(422, { detail: "Unsupported fields in the request: {'response_format', 'stream_options'}" }), 'refused', /takes none of/, 2],
			['transformers: no such model', json(404, { detail: 'Model m is not available' }), 'refused', /not available/, 1],
		],
	},
];

// A server of a kind by its paths, which gives to each chat the answer that stands in `next`.
async function startServer(row) {
	const own = { next: row.good ?? good, seen: 0, paths: row.paths };
	const server = http.createServer((request, response) => {
		request.on('data', () => {}).on('end', () => {
			const path = `${request.method} ${request.url}`;
			const isChat = path === (row.chat ?? 'POST /v1/chat/completions');
			const { status, body, headers } = isChat ? own.next : own.paths[path] ?? row.other?.(path) ?? json(404, { detail: 'Not Found' });
			own.seen += isChat;
			response.writeHead(status, { 'Content-Type': 'application/json', ...headers });
			response.end(body);
		});
	});
	await new Promise(done => server.listen(0, '127.0.0.1', done));
	server.unref();
	own.url = `http://127.0.0.1:${server.address().port}`;
	own.close = () => { server.closeAllConnections(); server.close(); };
	return own;
}

for (const row of kinds) {
	const server = await startServer(row);
	const runtime = attempts => ({ kind: row.kind, url: server.url, model: MODEL, retry: { attempts, floor: '10ms', cap: '20ms' }, timeouts: { firstToken: '20s', betweenTokens: '20s' } });
	const daemon = await new Daemon(`runtime-bodies-${row.kind}`, { runtimes: { r: runtime(3), once: runtime(1) } }).start();
	let runs = 0;
	const extract = async (name = 'r') => {
		const id = `run-${++runs}`;
		await daemon.post('/v1/runs', { id, definition: extractionOf(name), input: { document: DOCUMENT } }, 201);
		const run = await daemon.ended(id);
		equal(run.status, 'completed', `${id}: ${JSON.stringify(run.error)}`);
		const output = run.output.facts?.sections !== undefined ? run.output.facts : run.output;
		return { id, section: output.sections[0], facts: output.facts.length };
	};

	const shared = row.chat !== undefined ? [] : baseline.map(([sentence, answer, outcome, ...more]) => row.differs?.[sentence] !== undefined ? [sentence, answer, row.differs[sentence]] : [sentence, answer, outcome, ...more]);
	for (const [sentence, answer, outcome, words, attempts] of [...row.rows, ...shared]) {
		await test(`${row.kind}: ${sentence}`, async () => {
			server.next = answer;
			server.seen = 0;
			const { id, section, facts } = await extract(attempts === undefined ? 'once' : 'r');
			equal([section.outcome, facts], [outcome, outcome === 'facts' ? 1 : 0], JSON.stringify(section));
			const { events } = await daemon.get(`/v1/runs/${id}/events`);
			const ends = events.filter(event => event.kind === (outcome === 'facts' ? 'attempt.succeeded' : 'attempt.failed') && event.data.request);
			if (words !== undefined && outcome !== 'facts')
				match(JSON.parse(daemon.content(ends.at(-1).data.record)).detail, words, 'what it says');
			else if (words !== undefined)
				match(daemon.content(ends.at(-1).data.response), words, 'the whole response is kept');
			if (attempts !== undefined)
				equal(server.seen, attempts, 'requests');
		});
	}
	if (row.unready !== undefined) {
		await test(`${row.kind}: after a 500 it is asked whether it is ready, and waited for while it is not`, async () => {
			server.next = row.good ?? good;
			equal((await extract()).section.outcome, 'facts', 'it is ready, and known to be'); // the last row may have left it in doubt
			server.next = json(500, { error: { message: 'boom', type: 'InternalServerError', param: null, code: 500 } });
			server.seen = 0;
			server.paths = { ...row.paths, ...row.unready };
			const { section } = await extract();
			equal([section.outcome, server.seen], ['unreachable', 1], JSON.stringify(section));
			server.paths = row.paths;
			server.next = row.good ?? good;
			await until('it is asked again', async () => (await extract()).section.outcome === 'facts');
		});
	}
	await daemon.stop();
	server.close();
}

await finish();
