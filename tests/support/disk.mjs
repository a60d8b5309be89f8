// A file system of a few MiB that a test can fill.
import { spawnSync } from 'node:child_process';
import { closeSync, mkdirSync, mkdtempSync, openSync, rmSync, statSync, statfsSync, truncateSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { atEnd, check, equal, firstLine, launch } from './harness.mjs';

// A small file system for a data folder: { path, outside, wrap?, fill(), give(bytes), free(), remount?('ro' or 'rw') }. A mount where that is allowed, else one in a namespace of its own,
// else the machine's own small one (containers have 64 MiB at /dev/shm).
export async function smallDisk(folder, { inodes } = {}) {
	const path = join(folder, 'disk');
	mkdirSync(path);
	const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', `size=8m,mode=0755${inodes === undefined ? '' : `,nr_inodes=${inodes}`}`, 'none', path], { encoding: 'utf8' });
	if (mounted.status === 0) {
		atEnd(() => spawnSync('umount', ['-l', path]));
		return { ...diskAt(path, path), remount: how => equal(spawnSync('mount', ['-o', `remount,${how}`, path], { encoding: 'utf8' }).stderr, '', `mounted ${how}`) };
	}
	const holder = launch('unshare', ['--user', '--map-root-user', '--mount', 'sh', '-c', '/bin/mount -t tmpfs -o size=8m none "$1" && echo ready && exec sleep 3600', 'sh', path]);
	if (await firstLine(holder, 'unshare').catch(() => null) === 'ready') {
		console.log('# nothing may be mounted here: a mount in a namespace of its own instead');
		return { ...diskAt(path, `/proc/${holder.pid}/root${path}`), wrap: ['nsenter', '--preserve-credentials', '--user', '--mount', '--target', String(holder.pid)] };
	}
	const { bsize, blocks } = statfsSync('/dev/shm');
	check(bsize * blocks <= 256 << 20, 'this test needs a small file system: it may neither mount one nor make a namespace, and /dev/shm is large');
	console.log('# nothing may be mounted here: /dev/shm instead');
	const shm = mkdtempSync('/dev/shm/reprise-');
	atEnd(() => rmSync(shm, { recursive: true, force: true }));
	return diskAt(shm, shm);
}

function diskAt(path, outside) {
	const filler = join(outside, 'filler');
	return {
		path,
		outside,
		fill() {
			const fd = openSync(filler, 'a');
			for (let size = 64 << 10; size >= 512; size >>= 1)
				try { for (;;) writeSync(fd, Buffer.alloc(size)); } catch (error) { equal(error.code, 'ENOSPC', 'filling'); }
			closeSync(fd);
			equal(statfsSync(outside).bavail, 0, 'free blocks');
		},
		give: bytes => truncateSync(filler, statSync(filler).size - bytes),
		free: () => rmSync(filler),
	};
}
