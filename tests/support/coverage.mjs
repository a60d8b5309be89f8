// Lines and branches that the tests of a build with -Db_coverage=true went through, by gcov, for each folder of the project and for the
// files that fall short. Branches of CHECK are left out: the one that fails leads out of the process and must never be taken (SQLite leaves out
// those of ALWAYS and NEVER); how many they are is printed. Nothing else is left out.
//   node tests/support/coverage.mjs BUILD [--files]
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';

const WANTED = { 'workflow': 90, 'store': 90 }; /* per cent of branches asked for */
const build = resolve(process.argv[2] ?? 'build/coverage'), showFiles = process.argv.includes('--files');
const root = resolve(import.meta.dirname ?? new URL('.', import.meta.url).pathname, '../..');

function* find(folder) {
	for (const item of readdirSync(folder, { withFileTypes: true }))
		if (item.isDirectory())
			yield* find(join(folder, item.name));
		else if (item.name.endsWith('.gcda'))
			yield join(folder, item.name);
}

// One source may be compiled more than once (the simulation has the engine's): what any of them went through counts.
const files = new Map(); /* name -> line -> { count, branches: [count] } */
let read = 0;
for (const data of find(build)) {
	const result = spawnSync('gcov', ['--json-format', '--stdout', '--branch-probabilities', data], { encoding: 'utf8', maxBuffer: 256 << 20, cwd: build });
	if (result.status !== 0)
		throw new Error(`gcov ${data}: ${result.stderr}`);
	for (const text of result.stdout.split('\n').filter(line => line.startsWith('{'))) {
		read++;
		for (const file of JSON.parse(text).files) {
			const name = relative(root, resolve(build, file.file));
			if (name.startsWith('..') || name.startsWith('build') || !/\.c$/.test(name))
				continue;
			const lines = files.get(name) ?? new Map();
			files.set(name, lines);
			for (const line of file.lines) {
				const old = lines.get(line.line_number) ?? { count: 0, branches: [] };
				old.count += line.count;
				line.branches.forEach((branch, i) => { if (!branch.throw) old.branches[i] = (old.branches[i] ?? 0) + branch.count; });
				lines.set(line.line_number, old);
			}
		}
	}
}
if (read === 0)
	throw new Error(`${build}: no test has run there`);

const percent = (part, whole) => whole === 0 ? 100 : 100 * part / whole;
const rows = [];
for (const [name, lines] of [...files].sort()) {
	const source = existsSync(join(root, name)) ? readFileSync(join(root, name), 'utf8').split('\n') : [];
	const row = { name, lines: 0, hit: 0, branches: 0, taken: 0, left: 0, missed: [] };
	for (const [number, { count, branches }] of lines) {
		row.lines++;
		row.hit += count > 0;
		if (/^\s*CHECK\(/.test(source[number - 1] ?? '')) {
			row.left += branches.length;
			continue;
		}
		row.branches += branches.length;
		row.taken += branches.filter(taken => taken > 0).length;
		if (branches.some(taken => taken === 0))
			row.missed.push(number);
	}
	rows.push(row);
}
const sum = (label, list) => {
	const total = key => list.reduce((all, row) => all + row[key], 0);
	const lines = percent(total('hit'), total('lines')), branches = percent(total('taken'), total('branches'));
	console.log(`${label.padEnd(34)} lines ${lines.toFixed(1).padStart(5)} % of ${String(total('lines')).padStart(6)}   branches ${branches.toFixed(1).padStart(5)} % of ${String(total('branches')).padStart(6)}   left out ${String(total('left')).padStart(4)}`);
	return branches;
};
const inside = folder => rows.filter(row => row.name.startsWith(`${folder}/`));
let short = 0;
for (const folder of ['workflow', 'workflow/base', 'workflow/evidence', 'workflow/language', 'store', 'activities', 'daemon', 'cli']) {
	const branches = sum(folder, inside(folder));
	if (WANTED[folder] && branches < WANTED[folder])
		short++;
}
console.log('\nof workflow/ and store/, files under 90 % of their branches:');
for (const row of rows.filter(one => Object.keys(WANTED).some(folder => one.name.startsWith(`${folder}/`)) && percent(one.taken, one.branches) < 90)) {
	sum(row.name, [row]);
	if (showFiles)
		console.log(`    ${row.missed.sort((a, b) => a - b).join(' ')}`);
}
if (short > 0)
	console.log(`\n${short} of ${Object.keys(WANTED).length} folders fall short of the 90 % of branches that are asked for`);
process.exit(short > 0 ? 1 : 0);
