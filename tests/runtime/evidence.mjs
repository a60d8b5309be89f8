// What a gate of reproducibility is to find, shown on a real model: a sampled answer (temperature 1.5, fixed seed) repeats itself as long as each request
// is computed alone from an empty cache, and no longer when prefixes are taken from a cache that other requests left (`cache_prompt`): the
// batches differ, the sums round differently, the samples part. First straight against the server, then by `reprise gate`.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Daemon, check, equal, finish, root, test } from '../support/harness.mjs';
import { gold, startLlama } from '../support/llama.mjs';

const REQUESTS = 20, CUTS = 8, MAX_TOKENS = 64, SAMPLING = { temperature: 1.5, seed: 42 };
const llama = await startLlama();
const ask = text => [{ role: 'system', content: 'Extract the facts of the section as JSON.' }, { role: 'user', content: `<section>\n${text}\n</section>` }];
// Wordings that the model was not trained on: where it is sure of its next token, nothing that this test does moves it.
const sections = readFileSync(join(root, 'tests/data/sample.md'), 'utf8').split('\n\n').filter(text => text.length > 200 && text.length < 900 && !/^[#|`]/.test(text)).slice(4, 14);

const answer = async (messages, more) => (await llama.chat({ messages, ...SAMPLING, max_tokens: MAX_TOKENS, ...more })).choices[0].message.content;
async function distinct(requests, request) {
	const answers = new Set();
	for (let i = 0; i < requests; i++)
		answers.add(await request(i));
	return answers.size;
}

await test(`an empty cache for each request: ${REQUESTS} requests, one answer; another seed gives another one`, async () => {
	equal(await distinct(REQUESTS, () => answer(ask(sections[0]))), 1, 'distinct answers');
	check(await answer(ask(sections[0])) !== await answer(ask(sections[0]), { seed: 43 }), 'the seed changes nothing, so that the test shows nothing');
});

await test('prefixes from a cache, other requests in between: more than one answer to the same request', async () => {
	const counts = [];
	// What another request leaves behind is as much of the prompt as the two have in common. How far the sums then differ is the processor's: one
	// section whose answers part is enough.
	for (const section of sections) {
		counts.push(await distinct(CUTS, async i => {
			await answer(ask(section.slice(0, section.length * i / CUTS)), { cache_prompt: true, max_tokens: 1 });
			return answer(ask(section), { cache_prompt: true });
		}));
		if (counts.at(-1) > 1)
			break;
	}
	console.log(`# distinct answers of ${CUTS} with a cache, section by section: ${counts.join(', ')}`);
	check(Math.max(...counts) > 1, `distinct answers: ${counts.join(', ')}`);
});

await test('`reprise gate` finds the same of the server with empty caches: one answer, and says what that is worth', async () => {
	const daemon = new Daemon('llama-gate', { runtimes: { real: { kind: 'openai', url: llama.url, concurrency: 1, sampling: { ...SAMPLING, maxTokens: 768 } } } });
	await daemon.start();
	const file = join(daemon.folder, 'request.json');
	writeFileSync(file, JSON.stringify({ messages: ask(gold.find(one => one.facts.length === 1 && one.section.length < 150).section) }));
	const done = daemon.cli('gate', 'real', '--request', file, '--seeds', '0', '-o', 'json', { timeoutMs: 300_000 }), report = done.json();
	equal([done.code, report.distinct, report.class, report.simulated ?? false], [0, 1, 'byte-stable', false], `report (${done.stderr})`);
	check(Math.abs(report.upperBound95 - 0.139) < 0.001, `upper bound ${report.upperBound95}`);
	await daemon.stop();
});

await test('the phase `uncached` asks the same server past its cache: one answer, whatever the cache gives', async () => {
	const daemon = new Daemon('llama-uncached', { runtimes: { real: { kind: 'llamacpp', url: llama.url, concurrency: 1, sampling: { ...SAMPLING, maxTokens: 768 } } } });
	await daemon.start();
	const file = join(daemon.folder, 'request.json');
	writeFileSync(file, JSON.stringify({ messages: ask(gold.find(one => one.facts.length === 1 && one.section.length < 150).section) }));
	const report = daemon.cli('gate', 'real', '--request', file, '-n', '8', '--seeds', '0', '--phases', 'uncached', '-o', 'json', { timeoutMs: 300_000 }).json();
	console.log(`# with the cache ${report.distinct} of ${report.requests} distinct, ${report.class}, cache ${report.conditions.cachePath}; ${report.verdicts.join(', ')}`);
	equal(report.phases.uncached, { answered: 8, asked: 8, cacheBypass: 'cache_prompt', distinct: 1 }, 'uncached');
	check(!report.verdicts.includes('cache-not-bypassed'), 'nothing came from the cache');
	await daemon.stop();
});

await llama.stop();
await finish();
