// A small real HTTP server for `call: http` and `call: openapi`: authentication as RFC 7617, 6750 and 7616 have it, echoes,
// redirects, and a description of itself in OpenAPI. Every request is kept in `seen`.
import { createHash, randomBytes } from 'node:crypto';
import http from 'node:http';

const md5 = text => createHash('md5').update(text).digest('hex');
const quoted = header => Object.fromEntries([...header.matchAll(/(\w+)=(?:"([^"]*)"|([^,\s]+))/g)].map(([, name, a, b]) => [name, a ?? b]));

// { port, url, seen, stop }. `routes`: path -> (request, response, body) for what one test alone needs.
export async function startPeer({ username = 'user', password = 'pass', token = 'token', routes = {} } = {}) {
	const seen = [], nonces = new Set();
	const json = (response, status, value, headers = {}) => {
		response.writeHead(status, { 'Content-Type': 'application/json', ...headers });
		response.end(JSON.stringify(value));
	};
	const digestIsGood = request => {
		const given = quoted(request.headers.authorization ?? '');
		if (!/^Digest /.test(request.headers.authorization ?? '') || !nonces.has(given.nonce) || given.username !== username || given.uri !== request.url)
			return false;
		const ha1 = md5(`${username}:peer:${password}`), ha2 = md5(`${request.method}:${given.uri}`);
		return given.response === md5(`${ha1}:${given.nonce}:${given.nc}:${given.cnonce}:${given.qop}:${ha2}`);
	};
	const server = http.createServer((request, response) => {
		const pieces = [];
		request.on('data', data => pieces.push(data));
		request.on('end', () => {
			const body = Buffer.concat(pieces).toString(), url = new URL(request.url, 'http://peer'), authorization = request.headers.authorization ?? '';
			seen.push({ method: request.method, url: request.url, headers: request.headers, body });
			if (routes[url.pathname])
				return routes[url.pathname](request, response, body);
			switch (url.pathname.replace(/^\/v2(?=\/)/, '').replace(/^\/echo\/.*/, '/echo')) {
			case '/basic':
				return authorization === `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}` ? json(response, 200, { in: true }) :
					json(response, 401, { said: authorization }, { 'WWW-Authenticate': 'Basic realm="peer"' });
			case '/bearer':
				return authorization === `Bearer ${token}` ? json(response, 200, { in: true }) : json(response, 401, { said: authorization }, { 'WWW-Authenticate': 'Bearer' });
			case '/digest': {
				if (digestIsGood(request))
					return json(response, 200, { in: true, body });
				const nonce = randomBytes(8).toString('hex');
				nonces.add(nonce);
				return json(response, 401, {}, { 'WWW-Authenticate': `Digest realm="peer", qop="auth", algorithm=MD5, nonce="${nonce}"` });
			}
			case '/echo': // all that was said, back
				return json(response, Number(url.searchParams.get('status') ?? 200), { headers: request.headers, body, query: Object.fromEntries(url.searchParams) },
					{ 'X-Echo': authorization || request.headers['x-key'] || '' });
			case '/to': // a redirect to ?url=
				response.writeHead(Number(url.searchParams.get('status') ?? 302), { Location: url.searchParams.get('url') });
				return response.end();
			default:
				return json(response, 404, { path: url.pathname });
			}
		});
	});
	await new Promise(done => server.listen(0, '127.0.0.1', done));
	const { port } = server.address();
	return { port, url: `http://127.0.0.1:${port}`, seen, stop: () => new Promise(done => { server.close(done); server.closeAllConnections(); }) };
}
