// Extraction through the whole daemon with a real model: llama.cpp, streamed and held to the schema. Facts are compared with those that are known to
// stand in each section; one counts only if subject, predicate, object and quote are all exactly right.
import { Daemon, check, equal, extractionOf, finish, test } from '../support/harness.mjs';
import { gold, startLlama } from '../support/llama.mjs';

const WANTED_PERCENT = 90, WANTED_OF_FEW_PERCENT = 80;
const llama = await startLlama();
const daemon = new Daemon('llama', { runtimes: { real: { kind: 'openai', url: llama.url, concurrency: 1, sampling: { temperature: 0, seed: 42, maxTokens: 768 } } } });
await daemon.start();

const key = (fact, quote) => JSON.stringify([fact.subject, fact.predicate, fact.object, quote]);

// A run for each section; how many of the facts that stand there were found, and the last attempts' records.
async function extract(name, sections, wantedPercent, more = {}) {
	const began = performance.now(), result = { right: 0, wanted: 0, found: 0, emptyRight: 0, records: [], runs: [] };
	for (const { id, section } of sections)
		await daemon.post('/v1/runs', { id: `${name}-${id}`, definition: extractionOf('real', { sections: { by: 'none' }, ...more }), input: { document: section } }, 201);
	for (const { id, facts } of sections) {
		const run = await daemon.ended(`${name}-${id}`, 300_000);
		equal(run.status, 'completed', `${id} (${JSON.stringify(run.error)})`);
		equal(run.output.summary.failed, 0, `${id}: sections that failed (${JSON.stringify(run.output.sections)})`);
		const have = new Set(run.output.facts.map(fact => key(fact.value, fact.quote)));
		result.right += facts.filter(fact => have.has(key(fact, fact.quote))).length;
		result.wanted += facts.length;
		result.found += run.output.facts.length;
		result.emptyRight += facts.length === 0 && run.output.facts.length === 0;
		const attempts = (await daemon.events(run.id)).filter(event => event.kind === 'attempt.succeeded' && event.data.request);
		equal(attempts.length, 1, `${id}: requests that were answered`);
		const { data } = attempts[0];
		result.runs.push({ id: run.id, request: JSON.parse(daemon.content(data.request)), response: daemon.content(data.response) });
		result.records.push(JSON.parse(daemon.content(data.record)));
	}
	const percent = (part, whole) => `${(100 * part / whole).toFixed(1)} %`;
	console.log(`# ${name}: ${result.right} of ${result.wanted} facts exactly right (${percent(result.right, result.wanted)}), ${result.found} found, ${sections.length} sections, ${((performance.now() - began) / 1000).toFixed(1)} s`);
	check(100 * result.right >= wantedPercent * result.wanted, `${result.right} of ${result.wanted} facts are fewer than ${wantedPercent} %`);
	check(result.found - result.right <= 0.1 * result.found, `${result.found - result.right} of ${result.found} facts are none of the section's`);
	return result;
}

await test(`${gold.length} sections: at least ${WANTED_PERCENT} % of the facts exactly right, streamed, under the schema as it is`, async () => {
	const result = await extract('gold', gold, WANTED_PERCENT);
	equal(result.emptyRight, gold.filter(one => one.facts.length === 0).length, 'sections without facts that were left without');
	for (const { request, response } of result.runs) {
		equal([request.stream, request.response_format.type], [true, 'json_schema'], 'request');
		check(/^data: \{/.test(response) && response.endsWith('data: [DONE]\n\n') && response.split('\n\n').length > 5, 'the answer is a whole stream of several pieces');
	}
	equal(result.records.filter(record => record.schema).length, 0, 'requests without the whole schema');
});

await test('every fact verifies, names the model that answered, and the runs replay', async () => {
	const verified = daemon.cli('fact', 'verify', '--all', '-o', 'json');
	equal(verified.code, 0, `fact verify (${verified.stdout.slice(0, 500)}${verified.stderr})`);
	const facts = await daemon.facts();
	check(facts.length > 100, `${facts.length} facts`);
	equal([...new Set(facts.map(fact => fact.model))], ['reprise-tiny-extractor'], 'models');
	equal(facts.filter(fact => fact.simulated).length, 0, 'facts that are said to be simulated');
	const replay = daemon.cli('replay', '--all');
	equal(replay.code, 0, `replay (${replay.stdout.slice(-500)}${replay.stderr})`);
	daemon.verifyJournal();
});

const text = { type: 'string' };
const schemaOf = (properties, required) => ({ schema: { document: { type: 'object', required: ['facts'], additionalProperties: false, properties: {
	facts: { type: 'array', items: { type: 'object', properties, required, additionalProperties: false } } } } } });
const required = ['subject', 'predicate', 'object', 'quote'];
const few = gold.slice(0, 8);

await test('a schema that its grammars refuse (`pattern`, a property that may be absent) is sent plain, and refused only once', async () => {
	const result = await extract('plain', few, WANTED_OF_FEW_PERCENT, schemaOf({ subject: text, predicate: { type: 'string', pattern: '^[a-z_]+$' }, object: text, quote: text, unit: text }, required));
	equal(result.records.map(record => record.schema?.sent), few.map(() => 'plain'), 'what was sent of the schema');
	equal(result.records.map(record => record.schema.refused?.map(refusal => [refusal.rung, refusal.status]) ?? []), [[['full', 400]], ...few.slice(1).map(() => [])], 'refused');
	for (const { id, request } of result.runs) {
		equal(request.response_format.json_schema.schema.properties.facts.items.anyOf.length, 2, 'alternatives, with and without the property');
		for (const fact of await daemon.facts(`run=${id}`)) {
			const statement = JSON.parse(Buffer.from((daemon.cli('fact', 'export', fact.id)).json().payload, 'base64'));
			equal(statement.predicate.extraction.request.annotations, { schemaSent: 'plain' }, 'in the statement');
		}
	}
});

await test('more properties that may be absent than make sense as alternatives: any JSON object is asked for, and held against the whole schema', async () => {
	const result = await extract('json', few, WANTED_OF_FEW_PERCENT, schemaOf({ subject: text, predicate: text, object: text, quote: text, a: text, b: text, c: text, d: text, e: text }, required));
	equal(result.records.map(record => record.schema?.sent), few.map(() => 'json'), 'what was sent of the schema');
	equal(result.records[0].schema.refused.map(refusal => refusal.rung), ['full'], 'refused');
	equal(result.runs[0].request.response_format, { type: 'json_object' }, 'format');
});

await daemon.stop();
await llama.stop();
await finish();
