// The runtime simulator as a program to start, and what a client says to its two ports. Used by the suites of tests/integration.
import http from 'node:http';
import net from 'node:net';
import { check, equal, exitOf, firstLine, launch, programs } from './harness.mjs';

// ---- The program ----

export async function start(...options) {
	const child = launch(programs.sim, ['--control-port', '0', ...options]);
	const line = await firstLine(child, 'reprise-sim');
	const ready = /^reprise-sim ready http:\/\/127\.0\.0\.1:(\d+) control http:\/\/127\.0\.0\.1:(\d+)$/.exec(line);
	check(ready, `ready line: ${line}`);
	return { child, port: Number(ready[1]), control: Number(ready[2]), agent: new http.Agent({ keepAlive: true, maxSockets: Infinity }),
		get errors() { return child.errors; } };
}

export async function stop(sim) {
	sim.agent.destroy();
	sim.child.kill('SIGTERM');
	equal(await exitOf(sim.child), { code: 0, signal: null }, `end after SIGTERM (${sim.errors})`);
}

// One HTTP exchange; never throws for what the server does, but tells in `broken`.
export function ask(port, method, path, body, { agent, headers = {}, abortAfter } = {}) {
	return new Promise(done => {
		const result = { status: 0, headers: {}, text: '', pieces: [], times: [], began: performance.now(), broken: null };
		const finish = broken => { result.broken ??= broken; result.body = Buffer.concat(result.pieces);
			result.text = result.body.toString(); result.ms = performance.now() - result.began; done(result); };
		const request = http.request({ host: '127.0.0.1', port, method, path, agent: agent ?? false,
			headers: { ...(body === undefined ? {} : { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) }), ...headers } }, response => {
			result.status = response.statusCode;
			result.headers = response.headers;
			response.on('data', data => {
				result.pieces.push(data);
				result.times.push(performance.now() - result.began);
				if (abortAfter !== undefined && result.pieces.length >= abortAfter)
					request.destroy();
			});
			response.on('end', () => finish(null));
			response.on('error', error => finish(error.code ?? error.message));
			response.on('aborted', () => finish('aborted'));
		});
		request.on('error', error => finish(error.code ?? error.message));
		if (abortAfter === 0)
			request.on('socket', socket => socket.on('connect', () => setTimeout(() => request.destroy(), 60)));
		request.end(body);
	});
}

export const control = async (sim, method, path, body) => {
	const answer = await ask(sim.control, method, path, body === undefined ? undefined : JSON.stringify(body));
	return { ...answer, json: JSON.parse(answer.text) };
};
export const state = async sim => {
	const { json } = await control(sim, 'GET', '/__sim/state');
	equal(json.completed + json.cancelled + json.faulted + json.rejected + json.inFlight, json.requests, 'each request has one end');
	return json;
};
export const script = async (sim, text) => {
	const answer = await control(sim, 'POST', '/__sim/script', text);
	equal(answer.status, 200, `script (${answer.text})`);
	equal((await control(sim, 'POST', '/__sim/reset')).status, 200, 'reset');
};

// What a client that only has a socket sees.
export function rawAsk(target, text, { end = false, linger = 2000 } = {}) {
	return new Promise(done => {
		const socket = net.connect(target.port, '127.0.0.1');
		const result = { text: '', ended: false, error: null };
		const timer = setTimeout(() => socket.destroy(), linger);
		socket.setEncoding('utf8');
		socket.on('connect', () => { socket.write(text); if (end) socket.end(); });
		socket.on('data', data => { result.text += data; });
		socket.on('end', () => { result.ended = true; });
		socket.on('error', error => { result.error = error.code; });
		socket.on('close', () => { clearTimeout(timer); done(result); });
	});
}

// Four bytes, and the rest of the UTF-8 sequence that the fourth stands in.
export function tokens(text) {
	const bytes = Buffer.from(text);
	let count = 0;
	for (let at = 0; at < bytes.length; count++) {
		at += 4;
		while (at < bytes.length && (bytes[at] & 0xc0) === 0x80)
			at++;
	}
	return count;
}
