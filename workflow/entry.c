/* Entries to bytes and back, the names of their kinds, step ids and idempotency keys. Pure; any thread.
 * Start at entry_encode(): those bytes are what is hashed, and nothing ever prints them a second time. */
#include "workflow/entry.h"

#include <stdio.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/base/time.h"

enum { ENTRY_VERSION = 1, ENTRY_MEMBERS = 6 /* data, kind, log, seq, ts, v */ };
static const uint64_t integer_max = 9007199254740991; /* 2^53 - 1: beyond it a JSON number is no longer exact */

struct kind_row {
	const char *name;
	bool touches_run;
};

static const struct kind_row kinds[ENTRY_KIND_COUNT] = {
#define X(kind, text, run) [kind] = {text, run},
	ENTRY_KINDS(X)
#undef X
};

/* Sets of kinds are 64-bit masks (reader_entries). */
_Static_assert(ENTRY_KIND_COUNT <= 64, "a set of kinds fits into 64 bits");

const char *entry_kind_name(enum entry_kind kind)
{
	CHECK((unsigned)kind < ENTRY_KIND_COUNT);
	return kinds[kind].name;
}

bool entry_kind_parse(const char *text, enum entry_kind *kind)
{
	for (unsigned i = 0; text != NULL && i < ENTRY_KIND_COUNT; i++)
		if (strcmp(kinds[i].name, text) == 0) {
			*kind = (enum entry_kind)i;
			return true;
		}
	return false;
}

bool entry_kind_touches_run(enum entry_kind kind)
{
	CHECK((unsigned)kind < ENTRY_KIND_COUNT);
	return kinds[kind].touches_run;
}

/* The members are written in canonical order by hand: a tree around `data` would be made for every entry only to be
 * walked once. */
int entry_encode(const struct entry *entry, const char *origin, uint64_t seq, struct buffer *out, struct error *error)
{
	size_t start = out->len;
	char ts[TIME_TEXT_LEN + 1];

	CHECK(seq <= integer_max);
	CHECK(json_is(entry->data, JSON_OBJECT));
	time_text(entry->time_ms, ts);
	buffer_add_text(out, "{\"data\":");
	json_print(entry->data, out);
	buffer_printf(out, ",\"kind\":\"%s\",\"log\":", entry_kind_name(entry->kind));
	json_print_string(origin, strlen(origin), out);
	buffer_printf(out, ",\"seq\":%llu,\"ts\":\"%s\",\"v\":%d}", (unsigned long long)seq, ts, ENTRY_VERSION);
	if (out->overflow || out->len - start > ENTRY_LEN_MAX)
		return error_set(error, ERR_TOO_LARGE, "entry %s: more than %d bytes; values belong into content",
				 entry_kind_name(entry->kind), ENTRY_LEN_MAX);
	return 0;
}

int entry_decode(struct arena *arena, struct bytes text, const char *origin, struct entry *entry, struct error *error)
{
	struct error why = {0};
	struct json *json;
	const char *kind, *log, *ts;

	*entry = (struct entry){0};
	if (text.len > ENTRY_LEN_MAX)
		return error_set(error, ERR_CORRUPT, "entry: %zu bytes, more than %d", text.len, ENTRY_LEN_MAX);
	json = json_parse(arena, text, JSON_STORED, NULL, &why);
	if (json == NULL)
		return error_set(error, ERR_CORRUPT, "entry: %s", why.message);
	if (!json_is(json, JSON_OBJECT) || json_count(json) != ENTRY_MEMBERS)
		return error_set(error, ERR_CORRUPT, "entry: not an object of the six members data, kind, log, seq, ts, v");
	if (json_get_number(json, "v", 0) != ENTRY_VERSION)
		return error_set(error, ERR_CORRUPT, "entry: v is not %d", ENTRY_VERSION);
	entry->data = json_get(json, "data");
	if (!json_is(entry->data, JSON_OBJECT))
		return error_set(error, ERR_CORRUPT, "entry: data is no object");
	kind = json_get_text(json, "kind");
	if (!entry_kind_parse(kind, &entry->kind))
		return error_set(error, ERR_CORRUPT, "entry: unknown kind \"%.64s\"", kind ? kind : "");
	log = json_get_text(json, "log");
	if (log == NULL || (origin != NULL && strcmp(log, origin) != 0))
		return error_set(error, ERR_CORRUPT, "entry: of log \"%.128s\", not of \"%.128s\"", log ? log : "",
				 origin ? origin : "");
	if (!json_is_integer(json_get(json, "seq")) || json_get_number(json, "seq", -1) < 0)
		return error_set(error, ERR_CORRUPT, "entry: seq is no whole number");
	entry->seq = (uint64_t)json_get_number(json, "seq", 0);
	ts = json_get_text(json, "ts");
	if (ts == NULL || strlen(ts) != TIME_TEXT_LEN || !time_parse(ts, &entry->time_ms))
		return error_set(error, ERR_CORRUPT, "entry %llu: ts is no time", (unsigned long long)entry->seq);
	return 0;
}

struct digest entry_add_value(struct arena *arena, struct entry *entry, const char *name, struct bytes bytes)
{
	struct digest digest = digest_of(bytes);

	CHECK(entry->value_count < ENTRY_VALUES_MAX);
	entry->values[entry->value_count++] = (struct entry_value){.digest = digest, .bytes = bytes, .size = bytes.len};
	if (entry->data == NULL)
		entry->data = json_object(arena);
	json_set_digest(arena, entry->data, name, &digest);
	return digest;
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

char *step_id_print(struct arena *arena, const struct step_id *id)
{
	struct buffer text;
	char *copy;

	CHECK(id->iteration_count <= STEP_LOOPS_MAX);
	buffer_init(&text, ENTRY_LEN_MAX);
	buffer_add_text(&text, id->reference);
	for (size_t i = 0; i < id->iteration_count; i++)
		buffer_printf(&text, "%c%llu", i == 0 ? '#' : '.', (unsigned long long)id->iterations[i]);
	buffer_printf(&text, "@%llu", (unsigned long long)id->execution);
	CHECK(!text.overflow);
	copy = arena_text_len(arena, buffer_text(&text), text.len);
	buffer_close(&text);
	return copy;
}

/* A decimal number without leading zeros that ends at `end`. */
static bool parse_number(const char *text, const char *end, uint64_t *number)
{
	if (text == end || (*text == '0' && end - text > 1))
		return false;
	*number = 0;
	for (; text < end; text++) {
		if (*text < '0' || *text > '9')
			return false;
		*number = *number * 10 + (uint64_t)(*text - '0');
		if (*number > integer_max)
			return false;
	}
	return true;
}

static bool parse_iterations(const char *text, const char *end, struct step_id *id)
{
	id->iteration_count = 0;
	for (;;) {
		const char *dot = memchr(text, '.', (size_t)(end - text));
		const char *stop = dot != NULL ? dot : end;

		if (id->iteration_count == STEP_LOOPS_MAX || !parse_number(text, stop, &id->iterations[id->iteration_count]))
			return false;
		id->iteration_count++;
		if (dot == NULL)
			return true;
		text = dot + 1;
	}
}

/* The name of a task may hold '@' and '#', so both are looked for from the end, and a '#' with anything but numbers
 * behind it belongs to the name. */
bool step_id_parse(struct arena *arena, const char *text, struct step_id *id)
{
	const char *at = strrchr(text, '@'), *hash;

	*id = (struct step_id){0};
	if (at == NULL || !parse_number(at + 1, text + strlen(text), &id->execution))
		return false;
	hash = memrchr(text, '#', (size_t)(at - text));
	if (hash == NULL || !parse_iterations(hash + 1, at, id)) {
		id->iteration_count = 0;
		hash = at;
	}
	if (hash == text)
		return false;
	id->reference = arena_text_len(arena, text, (size_t)(hash - text));
	return true;
}

void step_idempotency_key(const char *run_id, const struct step_id *id, char key[DIGEST_HEX_LEN + 1])
{
	struct buffer text;
	struct digest digest;

	CHECK(id->iteration_count <= STEP_LOOPS_MAX);
	CHECK(id->execution <= integer_max);
	buffer_init(&text, ENTRY_LEN_MAX);
	buffer_add_char(&text, '[');
	json_print_string(run_id, strlen(run_id), &text);
	buffer_add_char(&text, ',');
	json_print_string(id->reference, strlen(id->reference), &text);
	buffer_add_text(&text, ",[");
	for (size_t i = 0; i < id->iteration_count; i++) {
		CHECK(id->iterations[i] <= integer_max);
		buffer_printf(&text, "%s%llu", i == 0 ? "" : ",", (unsigned long long)id->iterations[i]);
	}
	buffer_printf(&text, "],%llu]", (unsigned long long)id->execution);
	CHECK(!text.overflow);
	digest = digest_of(buffer_bytes(&text));
	digest_hex(&digest, key);
	buffer_close(&text);
}
