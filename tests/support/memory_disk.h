/* A disk in memory, for a process that has one thread: files beneath MEMORY_DISK, for SQLite (a VFS, registered as its own) and for the
 * calls that the store makes itself (the linker brings them here: the list is memory_disk_wraps in tests/meson.build). It has a size, so
 * that it can be full; it tells what was synced from what was not, so that a cut of the power can take the rest (power_cut.h); and
 * it can die at a chosen change, from which on everything fails until the power comes back. All of it is deterministic.
 *
 * Every other path goes to the system's own files. Start at memory_disk_die() and memory_disk_cut(). */
#pragma once

#include "tests/support/power_cut.h"

#define MEMORY_DISK "/memory-disk"

/* Once in the process, before SQLite is used; then memory_disk_format() for an empty disk with so many bytes, and random numbers of this seed
 * for SQLite and libsodium. No file may be open. */
void memory_disk_set_up(void);
void memory_disk_format(uint64_t size, uint64_t seed);

/* Somebody else has so many bytes of it. */
void memory_disk_take(uint64_t bytes);
uint64_t memory_disk_free_bytes(void);
uint64_t memory_disk_refused(void); /* writes that found no room, since the format */

/* The power goes at the n-th change from now on, counting writes, truncations, syncs and names; 0: at once. */
void memory_disk_die(uint64_t n);
void memory_disk_live(void); /* not any more */
bool memory_disk_is_dead(void);
/* Syncs do nothing, but say that they did. */
void memory_disk_lie(bool lie);

/* After all of it was closed: what the cut leaves, and power again. How many changes it could take away, and how many bytes of them were writes. */
struct memory_disk_loss {
	uint64_t changes, bytes;
};
struct memory_disk_loss memory_disk_cut(enum cut cut, uint64_t seed);
