/* What a disk keeps when the power goes. What a file or folder had when it was last synced is there; of what came later a cut keeps what it
 * likes: nothing, all, a first part with a torn end, or any sectors in any order, and of names (made, linked, renamed, removed) as well,
 * which become durable with a sync of their folder alone. A sector of 512 bytes is written whole or not, and a write touches no byte
 * beside its own (SQLite's "powersafe overwrite"). Pure. Used by tests/torture/recording.c and memory_disk.c. Start at cut_file(). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	CUT_SECTOR = 512, /* what a disk writes whole */
	CUT_NAMES_MAX = 32, /* in one folder */
	CUT_NAME_LEN = 64,
};

enum cut { CUT_DROP, CUT_KEEP, CUT_PREFIX, CUT_RANDOM, CUT_COUNT }; /* of what was not synced: nothing, all, the first part with a torn end, any sectors in any order */
enum change_kind { CHANGE_WRITE, CHANGE_TRUNCATE, CHANGE_NAME, CHANGE_NO_NAME, CHANGE_RENAME };

/* Of a file (the first two), or of a folder. */
struct change {
	enum change_kind kind;
	uint64_t number; /* among all of the disk, in order */
	int target; /* what is called so from then on */
	uint64_t at; /* of a truncation: the size */
	size_t len;
	uint8_t *data;
	char name[CUT_NAME_LEN], old[CUT_NAME_LEN]; /* old: renamed from */
};

struct content {
	uint8_t *data; /* owned */
	size_t len, cap;
};

struct names {
	unsigned count;
	struct {
		char name[CUT_NAME_LEN];
		int node;
	} list[CUT_NAMES_MAX];
};

void content_resize(struct content *content, uint64_t size); /* what is new is zero */
void content_copy(struct content *to, const struct content *from);
void content_apply(struct content *content, const struct change *change);

int names_find(const struct names *names, const char *name); /* its place in the list, or -1 */
void names_set(struct names *names, const char *name, int node);
void names_forget(struct names *names, const char *name);
void names_apply(struct names *names, const struct change *change);

/* One cut: the same seed, kind and changes give the same disk. */
struct cutting {
	enum cut cut;
	uint64_t until; /* CUT_PREFIX: the number of the change at which it ends */
	uint64_t state; /* of the draws */
};
/* first, last: the numbers of the first change that is not durable, and of the last one. */
void cut_begin(struct cutting *cutting, enum cut cut, uint64_t seed, uint64_t first, uint64_t last);
/* `content` is what is durable, `pending` what came since then; afterwards it is what the cut leaves. */
void cut_file(struct cutting *cutting, struct content *content, const struct change *const *pending, size_t count);
void cut_folder(struct cutting *cutting, struct names *names, const struct change *const *pending, size_t count);
