// `file:` resources: the command line inlines them relative to the definition, the daemon beneath its folders and nowhere else; time zones are
// known offline.
import { createServer } from 'node:http';
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Daemon, check, cli, definition, equal, finish, folder, match, problem, sha256, test } from '../support/harness.mjs';

const place = folder('resources');
const schemas = join(place, 'schemas'), outside = join(place, 'outside');
mkdirSync(join(schemas, 'deep'), { recursive: true });
mkdirSync(outside);
const schema = { required: ['n'], type: 'object' };
writeFileSync(join(schemas, 'n.json'), JSON.stringify(schema));
writeFileSync(join(schemas, 'deep/n.yaml'), 'type: object\nrequired: [n]\n');
writeFileSync(join(outside, 'n.json'), JSON.stringify(schema));
symlinkSync(join(outside, 'n.json'), join(schemas, 'link.json'));
symlinkSync(outside, join(schemas, 'folder'));
writeFileSync(join(schemas, 'big.json'), JSON.stringify({ description: 'x'.repeat(1 << 20) }));
const description = (server, more = {}) => JSON.stringify({ openapi: '3.0.0', ...(server ? { servers: [{ url: server }] } : {}),
	paths: { '/pets/{id}': { get: { operationId: 'pet', parameters: [{ name: 'id', in: 'path', required: true }], ...more } } } });
const checked = (uri, name = 'checked') => definition(name, [{ one: { set: { got: '${ .n }' } } }], { input: { schema: { resource: { endpoint: uri } } } });
const calling = uri => definition('calling', [{ ask: { call: 'openapi', with: { document: { endpoint: uri }, operationId: 'pet', parameters: { id: '7' } } } }]);

const peer = createServer((request, response) => { response.setHeader('Content-Type', 'application/json'); response.end(JSON.stringify({ path: request.url })); });
await new Promise(done => peer.listen(0, '127.0.0.1', done));
const server = `http://127.0.0.1:${peer.address().port}`;
writeFileSync(join(schemas, 'pets.json'), description(server));
writeFileSync(join(schemas, 'homeless.json'), description(null));

const http = { allow: ['127.0.0.0/8'] };

await test('the daemon inlines what lies beneath its folders: by absolute and by relative path, when registered and when submitted', async () => {
	const daemon = new Daemon('resources', { http, resources: [place + '/none', schemas + '/'] });
	await daemon.start();
	for (const uri of [`file:${schemas}/n.json`, `file://${schemas}/n.json`, 'file:n.json', 'file:deep/n.yaml']) {
		const good = await daemon.post('/v1/runs?wait=20s&include=all', { definition: checked(uri), input: { n: 4 } }, 201);
		equal([good.status, good.output], ['completed', { got: 4 }], uri);
		const bad = await daemon.post('/v1/runs?wait=20s', { definition: checked(uri), input: { m: 4 } }, 201);
		equal([bad.status, bad.error.status], ['faulted', 400], `${uri} is a schema that counts`);
	}
	const added = await daemon.post('/v1/definitions', checked('file:n.json', 'registered'), 201);
	const shown = await daemon.get('/v1/definitions/tests/registered/1.0.0');
	equal(shown.document.input.schema, { document: schema }, 'the definition is whole');
	match(shown.source, /file:n\.json/, 'its source is what the author wrote');
	writeFileSync(join(schemas, 'n.json'), JSON.stringify({ ...schema, title: 'changed' }));
	problem(await daemon.ask('POST', '/v1/definitions', checked('file:n.json', 'registered')), 409);
	writeFileSync(join(schemas, 'n.json'), JSON.stringify(schema));
	equal((await daemon.post('/v1/definitions', checked('file:n.json', 'registered'), 200)).digest, added.digest, 'the same file, the same definition');
	const called = await daemon.post('/v1/runs?wait=20s&include=all', { definition: calling('file:pets.json') }, 201);
	equal([called.status, called.output], ['completed', { path: '/pets/7' }], 'a description');
	for (const call of ['extraction', 'inference']) {
		const asked = definition(call, [{ ask: { call, with: { runtime: 'r', document: 'd', prompt: 'p', schema: { resource: { endpoint: 'file:n.json' } } } } }]);
		if (call === 'inference')
			delete asked.do[0].ask.with.document;
		await daemon.post('/v1/definitions', asked, 201);
		equal((await daemon.get(`/v1/definitions/tests/${call}/1.0.0`)).document.do[0].ask.with.schema, { document: schema }, `what ${call} is to answer with`);
	}
	const data = { call: 'openapi', input: { schema: { resource: { endpoint: 'file:n.json' } } }, resource: { endpoint: 'file:n.json' }, with: { document: { endpoint: 'file:pets.json' }, operationId: 'pet' } };
	const kept = await daemon.post('/v1/runs?wait=20s&include=all', { definition: definition('data', [{ it: { set: data } }]) }, 201);
	equal([kept.status, kept.output], ['completed', data], 'what only looks like it is data');
	equal((await daemon.get('/v1/config')).resources, [`${place}/none`, `${schemas}/`], 'the configuration shows the folders');
	await daemon.stop();
});

await test('it opens nothing else: no link, nothing beside its folders, no folder, nothing large, and without folders nothing at all', async () => {
	const daemon = new Daemon('resources', { http, resources: [schemas] });
	await daemon.start();
	for (const [uri, says] of [['file:link.json', /reached without links/], ['file:folder/n.json', /reached without links/], [`file:${outside}/n.json`, /beneath the folders/],
		['file:../outside/n.json', /beneath the folders/], [`file:${schemas}/../outside/n.json`, /beneath the folders/], [`file:${schemas}`, /beneath the folders/], ['file:deep', /beneath the folders/],
		['file:none.json', /beneath the folders/], ['file:', /beneath the folders/], ['file:big.json', /RESOURCE_BODY_MAX/], [`file:${schemas}x/n.json`, /beneath the folders/]]) {
		const refused = problem(await daemon.ask('POST', '/v1/definitions', checked(uri)), 400, says);
		equal(refused.problems[0].pointer, '/input/schema/resource/endpoint', uri);
		problem(await daemon.ask('POST', '/v1/runs', { definition: checked(uri), input: { n: 1 } }), 400, says);
	}
	problem(await daemon.ask('POST', '/v1/definitions', calling('file:homeless.json')), 400, /cannot be used|names no server with a host/);
	await daemon.stop();
	daemon.configure({ http });
	await daemon.start();
	problem(await daemon.ask('POST', '/v1/definitions', checked('file:n.json')), 400, /'resource' is not supported.*folder of its `resources`/);
	problem(await daemon.ask('POST', '/v1/definitions', calling('file:pets.json')), 400, /must be a plain http/);
	await daemon.stop();
});

await test('the command line inlines descriptions as well, and says offline what cannot be', async () => {
	const file = (name, content) => { const path = join(place, name); writeFileSync(path, JSON.stringify(content)); return path; };
	const good = cli('definition', 'validate', file('good.json', calling('file:schemas/pets.json')), '-o', 'json');
	equal(good.code, 0, good.stdout + good.stderr);
	match(cli('definition', 'validate', file('none.json', calling('file:schemas/none.json'))).stderr, /cannot open .*none\.json/, 'a file that is not there');
	match(cli('definition', 'validate', file('homeless.json', calling('file:schemas/homeless.json'))).stderr, /cannot be used|names no server with a host/, 'no host');
	match(cli('definition', 'validate', file('wrong.json', calling('file:schemas/n.json'))).stderr, /no description in Swagger 2\.0 or OpenAPI 3/, 'no description');
	const daemon = new Daemon('resources', { http });
	await daemon.start();
	const added = daemon.cli('definition', 'add', file('good.json', calling('file:schemas/pets.json')));
	equal(added.code, 0, added.stderr);
	const { document } = await daemon.get('/v1/definitions/tests/calling/1.0.0');
	equal(document.do[0].ask.with.document.digest, `sha256:${sha256(description(server))}`, 'digest of the whole');
	equal((await daemon.post('/v1/runs?wait=20s&include=all', { definition: 'tests/calling' }, 201)).output, { path: '/pets/7' }, 'called');
	await daemon.stop();
});

await test('definition validate knows the time zones', async () => {
	const file = (name, zone) => {
		const made = definition(name, [], { schedule: { cron: '0 8 * * *' } });
		made.document.metadata = { timezone: zone };
		const path = join(place, `${name}.json`);
		writeFileSync(path, JSON.stringify(made));
		return path;
	};
	equal(cli('definition', 'validate', file('berlin', 'Europe/Berlin')).code, 0, 'Berlin');
	const none = cli('definition', 'validate', file('bielefeld', 'Europe/Bielefeld'));
	equal(none.code, 1, 'Bielefeld');
	match(none.stderr, /1:\d+: error: there is no time zone Europe\/Bielefeld .*\(at \/document\/metadata\/timezone\)/, 'Bielefeld');
});

peer.close();
await finish();
