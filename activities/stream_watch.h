/* Watches an answer while it is written, so that one that cannot become good any more is ended at once instead of at its token limit: white
 * space without end, words that repeat themselves, what is not JSON or no longer matches the schema, and a runtime that goes on behind a
 * complete answer (lessons.md C80, idea 9).
 *
 * What it says depends on the bytes alone, not on how they were cut into pieces. It is no judge of good answers: whatever the whole check
 * (json_parse(), json_schema_match()) would accept passes `json` and `schema`, and keywords that cannot be followed byte by byte (pattern,
 * uniqueItems, contains, if, not, alternatives of one type, …) are left to that check. Proof: tests/fuzz/fuzz_stream_watch.c.
 *
 * Pure; any thread. Time per byte and memory have limits: some 10 KiB, and 350 bytes for each level of the answer beyond the eighth.
 * Start at stream_watch_feed(). */
#pragma once

#include "workflow/base/json.h"

enum {
	/* White-space characters in a row between the values of an answer that has to be JSON: 128 levels indented by four. */
	WATCH_WHITE_SPACE = 512,
	WATCH_TEXT_WHITE_SPACE_TIMES = 4, /* so many times as many in a string, or in an answer that is text */
	WATCH_COMPLETE_WHITE_SPACE_MAX = 128, /* behind the value that is the answer; grammars of runtimes let some twenty pass */

	/* A loop is the same bytes again and again, up to now. How many bytes of it are one depends on where it is and of what: what is written
	 * in one string or line and has letters is never meant; no letters (a rule of dashes, zeros in hex) may be; so may equal rows (a table,
	 * objects of an array), and above all rows of few bytes or without letters (an array of zeros or nulls). */
	WATCH_LOOP_BYTES = 2048, /* in one line or string, with letters; in text that is no JSON, } and ] end a line as well */
	WATCH_LOOP_TIMES_PLAIN = 4, /* so many times as many in one line, without letters */
	WATCH_LOOP_TIMES_ROWS = 4, /* over several lines or values, with letters */
	WATCH_LOOP_TIMES_FILL = 16, /* over several, without letters or of a short period */
	WATCH_LOOP_FILL_PERIOD_MAX = 8, /* bytes of a short period: "null, " */
	WATCH_LOOP_PERIOD_MAX = 1024, /* bytes; what repeats itself further apart is not seen. A power of two */
	WATCH_LOOP_REPEATS_MIN = 8, /* times at least, however long the period is */

	WATCH_SCHEMAS_MAX = 4, /* that are followed at one value; further ones (allOf) are left to the whole check */
	WATCH_FOLLOWED_MAX = 100, /* looked at for one value: references, alternatives */
	WATCH_REFERENCES_MAX = 8, /* one behind the other */
	WATCH_CHOICES_MAX = 64, /* of an enum; a longer one is left to the whole check */
	WATCH_REQUIRED_MAX = 64, /* of one object, the first ones */
	WATCH_NAME_MAX = 256, /* bytes of a member's name; what a longer one holds is left to the whole check */
	WATCH_NUMBER_MAX = 64, /* bytes of a number whose value matters; a longer one is left to the whole check */
	WATCH_SCHEMA_NODES_MAX = 10000, /* of a schema whose references are followed */
	WATCH_DETAIL_MAX = 240,
};

enum watch_check { WATCH_FINE, WATCH_SPACE, WATCH_LOOP, WATCH_NOT_JSON, WATCH_SCHEMA, WATCH_COMPLETE, WATCH_CHECK_COUNT };
const char *watch_check_name(enum watch_check check); /* "", "white-space", "loop", "json", "schema", "complete" */

struct stream_watch_config {
	bool json; /* the answer has to be JSON, perhaps in a code fence; else it is text */
	const struct json *schema; /* NULL: any JSON. Borrowed; not from schema_ordered(), since members are looked up */
	const struct json *except; /* a part of it that accepts everything (json_schema_match_part()), or NULL */
	unsigned white_space; /* WATCH_WHITE_SPACE, or another number; 0: as much as it likes, behind the value too */
	unsigned loop_bytes; /* WATCH_LOOP_BYTES, or another number; 0: loops are not looked for */
};

struct watch_verdict {
	enum watch_check check; /* WATCH_FINE: nothing was found */
	size_t at; /* the byte of the answer, from 0, at which it was found */
	size_t value_end; /* WATCH_COMPLETE: the bytes up to the end of the value */
	char detail[WATCH_DETAIL_MAX]; /* "white space without end: 513 characters …"; a sentence without its end */
};

struct stream_watch;
struct stream_watch *stream_watch_new(const struct stream_watch_config *config);
void stream_watch_free(struct stream_watch *watch); /* NULL is allowed */
/* The next bytes of the answer, cut anywhere. False: the verdict stands (and stays; further bytes are not looked at). */
bool stream_watch_feed(struct stream_watch *watch, struct bytes piece);
const struct watch_verdict *stream_watch_verdict(const struct stream_watch *watch);
