#!/usr/bin/env node
// A runtime as the supervision tests need it: a small process that starts slowly, refuses, ignores SIGTERM, leaves a child behind, dies.
//
// runtime.mjs PORT FOLDER, where FOLDER/how.json says how this start goes:
//   readyAfterMs, refuse: [lines on standard error, then exit 1], ignoreTerm, child: true (one that outlives it, in a session of its own; 'group': in its process group), answerMs,
//   dies: true (at the first request of all its starts), sick: looks (the first chat request gets 500, and so many looks at /health then 503). Each start adds a line to FOLDER/starts; the child's pid goes to FOLDER/child; the variables it sees to FOLDER/env.
import { spawn } from 'node:child_process';
import { appendFileSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { join } from 'node:path';

const [port, folder] = process.argv.slice(2);
const how = JSON.parse(readFileSync(join(folder, 'how.json'), 'utf8'));
appendFileSync(join(folder, 'starts'), `${process.pid} ${Date.now()}\n`);
writeFileSync(join(folder, 'env'), JSON.stringify({ env: process.env, cwd: process.cwd() }));
console.log(`(EngineCore pid=${process.pid}) loading`);
if (how.ignoreTerm)
	process.on('SIGTERM', () => console.log('SIGTERM is ignored'));
if (how.child) {
	const child = spawn('/bin/sh', ['-c', 'trap "" TERM HUP; while :; do sleep 1; done'], { detached: how.child !== 'group', stdio: 'inherit' });
	writeFileSync(join(folder, 'child'), String(child.pid));
	child.unref();
}
if (how.refuse) {
	for (const line of how.refuse)
		console.error(line);
	setTimeout(() => process.exit(1), how.readyAfterMs ?? 0);
} else {
	const from = Date.now() + (how.readyAfterMs ?? 0);
	let sick = 0, wasSick = false;
	const json = (response, status, body) => { response.writeHead(status, { 'Content-Type': 'application/json', Server: 'test-runtime' }); response.end(JSON.stringify(body)); };
	http.createServer((request, response) => {
		if (request.url === '/health')
			return json(response, Date.now() < from || sick-- > 0 ? 503 : 200, {});
		if (request.url === '/v1/models')
			return json(response, 200, { object: 'list', data: [{ id: 'm', object: 'model' }] });
		request.resume().on('end', () => {
			if (request.method === 'POST' && how.dies && !existsSync(join(folder, 'died'))) {
				writeFileSync(join(folder, 'died'), '');
				process.exit(7);
			}
			if (how.sick && !wasSick && request.url === '/v1/chat/completions') {
				[wasSick, sick] = [true, how.sick];
				return json(response, 500, { error: { message: 'the engine did not answer', type: 'InternalServerError', code: 500 } });
			}
			setTimeout(() => json(response, 200, { id: 'x', object: 'chat.completion', model: 'm', usage: { prompt_tokens: 1, completion_tokens: 1 },
				choices: [{ index: 0, message: { role: 'assistant', content: `answer of ${process.pid}` }, finish_reason: 'stop' }] }), how.answerMs ?? 0);
		});
	}).listen(Number(port), '127.0.0.1');
}
