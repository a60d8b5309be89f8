/* The files of a model, measured: one file, all shards of one, or a folder, hashed once per identity; and what their headers
 * say. Any thread: for the uv pool, since files are large and folders may be slow. Start at weights_reading_go_on(). */
#pragma once

#include <stdatomic.h>
#include <sys/types.h>

#include "workflow/base/digest.h"
#include "workflow/base/error.h"

enum {
	WEIGHTS_CHUNK = 1 << 20,
	WEIGHTS_SLICE = 32 << 20, /* bytes that are hashed at once: then whatever else waits for the pool has its turn */
	WEIGHTS_FILES_MAX = 1000, /* of a folder, or shards */
	WEIGHTS_CONFIG_MAX = 4 << 20, /* bytes of a config.json or the like that are read */
	WEIGHTS_TEXT_MAX = 64,
};

/* The digest holds as long as the identity does; of several files: sums and the newest times. */
struct weights_identity {
	off_t size;
	int64_t mtime_ns, ctime_ns;
	uint64_t inode, device;
};

/* What the header of a GGUF file, or the JSON files of a folder, say; "" and false: nothing. */
struct weights_header {
	const char *source; /* where from, in words; NULL: no header was understood */
	char arch[WEIGHTS_TEXT_MAX], quantisation[WEIGHTS_TEXT_MAX];
	bool has_chat_template, has_generation_config;
	struct digest chat_template, generation_config;
	double context_length; /* that it was trained for; 0: not said */
	/* How it was quantised, of a GGUF file: which form of the format, and by the measure of which texts; negative and "": not said. */
	int64_t quantisation_version, imatrix_entries, imatrix_chunks;
	char imatrix_file[WEIGHTS_TEXT_MAX], imatrix_dataset[WEIGHTS_TEXT_MAX]; /* base names: folders are somebody's machine */
};

struct weights {
	bool known;
	size_t file_count;
	struct weights_identity identity;
	/* Of one file its SHA-256; of several that of the canonical JSON [{"name", "sha256", "size"}], by name. */
	struct digest digest;
	struct weights_header header;
};

/* Shared between the thread that reads and one that watches. */
struct weights_progress {
	atomic_bool stop; /* set: give up (ERR_CANCELLED) */
	atomic_ullong done, total; /* bytes */
};

/* Hash what lies at path unless its identity is the one that `weights` knows. folder: path is one, and all regular files directly
 * in it count. Else it is a file; a name "…-00001-of-00003.gguf" stands for all three. */
int weights_read(const char *path, bool folder, struct weights *weights, struct weights_progress *progress, struct error *error);
struct weights_reading;
/* The same in slices of WEIGHTS_SLICE, each by any thread, one at a time. All that is given must live until weights_reading_free(). */
struct weights_reading *weights_reading_new(const char *path, bool folder, struct weights *weights, struct weights_progress *progress);
bool weights_reading_go_on(struct weights_reading *reading, struct error *error); /* true: it is over, well or with an error */
void weights_reading_free(struct weights_reading *reading); /* also in its middle; NULL: nothing */
/* Without reading: false when it is not what was hashed. */
bool weights_same(const char *path, bool folder, const struct weights *weights);
