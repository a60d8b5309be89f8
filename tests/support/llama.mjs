// A real runtime for tests: llama.cpp with the small model of tests/runtime/model, and a tap between it and the daemon.
import { existsSync, readFileSync } from 'node:fs';
import net from 'node:net';
import { join } from 'node:path';
import { ask, check, equal, firstLine, launch, root, until } from './harness.mjs';

const modules = join(root, 'build/node/llama'), model = join(root, 'tests/runtime/model/reprise-tiny-extractor-q8_0.gguf');
const READY_WITHIN_MS = 60_000;

// { id, section, facts: [{ subject, predicate, object, quote }] }, each section with what stands in it.
export const gold = readFileSync(join(root, 'tests/runtime/model/sections.jsonl'), 'utf8').trim().split('\n').map(line => JSON.parse(line));

// One thread: two were measured to be four to five times slower on two cores.
export async function startLlama(port = 0) {
	check(existsSync(join(modules, 'installed')), 'llama.cpp is not installed; run tests/runtime/install');
	const child = launch(process.execPath, [join(root, 'tests/runtime/server/llama-openai-server.mjs'), '--model', model, '--port', String(port), '--threads', '1', '--modules', modules]);
	const listening = JSON.parse(await firstLine(child, 'the llama.cpp server'));
	await until('the model is loaded', () => { check(child.exitCode === null, child.errors); return child.output.includes('"event":"ready"'); }, READY_WITHIN_MS);
	const where = { host: '127.0.0.1', port: listening.port };
	return {
		child,
		port: listening.port,
		url: `http://127.0.0.1:${listening.port}`,
		props: async () => { const answer = await ask(where, 'GET', '/props'); equal(answer.status, 200, 'GET /props'); return answer.json; },
		chat: async body => {
			const answer = await ask(where, 'POST', '/v1/chat/completions', body, { timeoutMs: 120_000 });
			equal(answer.status, 200, `chat (${answer.broken ?? answer.text})`);
			return answer.json;
		},
		kill: async () => { child.kill('SIGKILL'); equal((await child.gone).signal, 'SIGKILL', `end of the server (${child.errors})`); },
		stop: async () => { child.kill('SIGTERM'); equal((await child.gone).code, 0, `end of the server (${child.errors})`); },
	};
}

// Passes everything on, and counts the pieces of text that went through: where in an answer a test strikes is its own choice. tap.on(n, what) calls
// `what` once, as soon as the n-th piece from now on has passed; nothing of that answer passes behind it, however far the runtime is by then.
export async function startTap(portOf) {
	const tap = { pieces: 0, waiting: null, on: (n, what) => { tap.waiting = { at: tap.pieces + n, what }; } };
	const server = net.createServer(client => {
		const runtime = net.connect(portOf(), '127.0.0.1');
		const end = () => { client.destroy(); runtime.destroy(); };
		let struck = false;
		client.on('data', data => runtime.write(data));
		runtime.on('data', data => {
			if (struck)
				return;
			const events = data.toString('latin1').split(/(?<=\n\n)/), passed = [];
			for (const event of events) {
				passed.push(event);
				tap.pieces += event.includes('"delta":{"content"');
				struck = tap.waiting !== null && tap.pieces >= tap.waiting.at;
				if (struck)
					break;
			}
			client.write(Buffer.from(passed.join(''), 'latin1'));
			if (struck) {
				const { what } = tap.waiting;
				tap.waiting = null;
				what();
			}
		});
		for (const side of [client, runtime]) {
			side.on('error', end);
			side.on('close', end);
		}
	});
	await new Promise(done => server.listen(0, '127.0.0.1', done));
	server.unref();
	tap.url = `http://127.0.0.1:${server.address().port}`;
	return tap;
}
