/* What is done to the journal, and what has to be there afterwards. An append is known by its number: run, values and all follow from it.
 * Main thread, as the loop. Start at scenario_work() and journal_is_good(). */
#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>

#include "daemon/check_journal.h"
#include "tests/torture/session.h"
#include "workflow/base/coverage.h"

enum { SMALL_SIZE = 300, ENDED_MEDIUM_EVERY = 8, MEDIUM_SIZE = 20000, LARGE_SIZE = CONTENT_CHUNK + 200000, BATCH_MAX = 8, PAGE = 1000 /* more than a journal has of anything */ };

_Noreturn void wrong(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	fprintf(stderr, "WRONG: ");
	vfprintf(stderr, format, list);
	fprintf(stderr, "\n");
	va_end(list);
	_exit(END_WRONG);
}

/* --- folders ------------------------------------------------------------------------------------------------------------- */

void folder_remove(const char *folder)
{
	remove_tree(folder);
}

static void copy_file(const char *from, const char *to)
{
	static char block[1 << 16];
	int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	ssize_t n;

	CHECK(in >= 0);
	CHECK(out >= 0);
	while ((n = read(in, block, sizeof(block))) > 0)
		CHECK(write(out, block, (size_t)n) == n);
	CHECK(n == 0);
	close(in);
	close(out);
}

void folder_copy(const char *from, const char *to)
{
	DIR *list = opendir(from);

	CHECK(list != NULL);
	CHECK(mkdir(to, 0700) == 0);
	for (struct dirent *item; (item = readdir(list)) != NULL;) {
		char one[PATH_LEN * 2], other[PATH_LEN * 2];
		struct stat status;

		if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0 || strcmp(item->d_name, "journal.db-shm") == 0)
			continue;
		snprintf(one, sizeof(one), "%s/%s", from, item->d_name);
		snprintf(other, sizeof(other), "%s/%s", to, item->d_name);
		CHECK(lstat(one, &status) == 0);
		(S_ISDIR(status.st_mode) ? folder_copy : copy_file)(one, other);
	}
	closedir(list);
}

/* --- entries that follow from a number --------------------------------------------------------------------------------------- */

void print_run_id(char id[32], unsigned number)
{
	snprintf(id, 32, "run-%05u", number);
}

/* Does not shrink. */
static struct bytes make_noise(struct arena *arena, unsigned number, size_t len)
{
	uint8_t *data = arena_alloc(arena, len);
	uint32_t noise = number * 2654435761u + 1;

	for (size_t i = 0; i < len; i++) {
		noise = noise * 1664525u + 1013904223u;
		data[i] = (uint8_t)(noise >> 24);
	}
	return (struct bytes){data, len};
}

static struct bytes make_output(struct arena *arena, unsigned number)
{
	return bytes_text(arena_printf(arena, "\"output of %u\"", number));
}

static struct bytes make_value(struct arena *arena, enum shape shape, unsigned number)
{
	switch (shape) {
	case SHAPE_ENDED:
		return make_noise(arena, number, number % ENDED_MEDIUM_EVERY == 0 ? MEDIUM_SIZE : SMALL_SIZE);
	case SHAPE_MEDIUM:
	case SHAPE_DOCUMENT:
		return make_noise(arena, number, MEDIUM_SIZE);
	case SHAPE_LARGE:
		return make_noise(arena, number, LARGE_SIZE);
	case SHAPE_FACT:
		return bytes_text(arena_printf(arena, "{\"_type\":\"statement\",\"n\":%u}", number));
	case SHAPE_EVENT:
		return bytes_text(arena_printf(arena, "{\"id\":\"event-%u\"}", number));
	case SHAPE_DEFINITION:
		return bytes_text(arena_printf(arena, "{\"do\":[],\"of\":%u}", number));
	default:
		return (struct bytes){0};
	}
}

struct digest digest_of_value(enum shape shape, unsigned number)
{
	struct arena arena;
	struct digest digest;

	arena_init(&arena);
	digest = digest_of(make_value(&arena, shape, number));
	arena_close(&arena);
	return digest;
}

static void make_fact(struct arena *arena, struct entry *entry, const char *id, unsigned number)
{
	struct digest document = digest_of(bytes_text("document")), subject;
	struct bytes fact = bytes_text(arena_printf(arena, "{\"object\":\"%u\"}", number)), statement = make_value(arena, SHAPE_FACT, number);

	*entry = (struct entry){.kind = ENTRY_FACT_RECORDED, .data = run_data(arena, id), .statement = statement, .time_ms = fixture_wall_ms()};
	subject = digest_of(fact);
	entry->values[entry->value_count++] = (struct entry_value){digest_of(statement), statement, statement.len};
	json_set_text(arena, entry->data, "stepId", "/do/0/x@1");
	json_set_number(arena, entry->data, "attempt", 1);
	json_set_number(arena, entry->data, "index", number);
	json_set_text(arena, entry->data, "verdict", "PASSED");
	json_set_text(arena, entry->data, "runtime", "torture");
	json_set_text(arena, entry->data, "class", "unmeasured");
	json_set_digest(arena, entry->data, "document", &document);
	json_set_digest(arena, entry->data, "subject", &subject);
	entry_add_value(arena, entry, "fact", fact);
}

enum { ENTRIES_MAX = 4 };

/* A definition with a schedule that has ticked once and is paused. */
static size_t make_definition(struct arena *arena, struct entry *entries, const char *id, struct bytes document)
{
	static const enum entry_kind kinds[] = {ENTRY_DEFINITION_ADDED, ENTRY_SCHEDULE_TICKED, ENTRY_SCHEDULE_PAUSED};
	struct digest digest = digest_of(document);

	for (size_t i = 0; i < COUNT_OF(kinds); i++) {
		entries[i] = (struct entry){.kind = kinds[i], .data = json_object(arena), .time_ms = fixture_wall_ms()};
		if (i > 0)
			json_set_text(arena, entries[i].data, "schedule", arena_printf(arena, "torture.%s", id));
	}
	json_set_text(arena, entries[0].data, "namespace", "torture");
	json_set_text(arena, entries[0].data, "name", id);
	json_set_text(arena, entries[0].data, "version", "1.0.0");
	json_set_digest(arena, entries[0].data, "definition", &digest);
	json_set_boolean(arena, entries[0].data, "registered", true);
	json_set_boolean(arena, entries[0].data, "scheduled", true);
	entry_add_value(arena, &entries[0], "document", document);
	json_set_text(arena, entries[1].data, "due", "2026-11-30T00:00:00.000Z");
	json_set_text(arena, entries[1].data, "runId", "none");
	return COUNT_OF(kinds);
}

static size_t entry_count_of(enum shape shape)
{
	return shape == SHAPE_ENDED ? 4 : shape == SHAPE_FACT || shape == SHAPE_OVER ? 3 : 2;
}

/* Events, definitions and documents stand alone; all others create a run and do something in it. */
static size_t make_entries(struct arena *arena, struct entry *entries, enum shape shape, unsigned number)
{
	struct bytes value = make_value(arena, shape, number);
	struct digest key;
	char id[32];

	print_run_id(id, number);
	if (shape == SHAPE_EVENT) {
		key = digest_of(bytes_text(id));
		entries[0] = (struct entry){.kind = ENTRY_EVENT_RECEIVED, .data = json_object(arena), .time_ms = fixture_wall_ms()};
		json_set_digest(arena, entries[0].data, "key", &key);
		entry_add_value(arena, &entries[0], "event", value);
		return 1;
	}
	if (shape == SHAPE_DOCUMENT) {
		entries[0] = (struct entry){.kind = ENTRY_DOCUMENT_ADDED, .data = json_object(arena), .time_ms = fixture_wall_ms()};
		json_set_text(arena, entries[0].data, "mediaType", "text/plain");
		entry_add_value(arena, &entries[0], "document", value);
		return 1;
	}
	if (shape == SHAPE_DEFINITION)
		return make_definition(arena, entries, arena_text(arena, id), value);
	make_created(arena, &entries[0], arena_text(arena, id), "torture", shape == SHAPE_LABELS ? "{\"of\":\"torture\",\"and\":\"more\"}" : NULL);
	make_step(arena, &entries[1], ENTRY_TASK_COMPLETED, arena_text(arena, id), "/do/0/a@1", make_output(arena, number));
	if (shape == SHAPE_MEDIUM || shape == SHAPE_LARGE || shape == SHAPE_ENDED)
		entry_add_value(arena, &entries[1], "more", value);
	if (shape == SHAPE_OVER)
		make_step(arena, &entries[2], ENTRY_RUN_COMPLETED, arena_text(arena, id), NULL, BYTES_OF("null"));
	if (shape != SHAPE_FACT && shape != SHAPE_ENDED)
		return entry_count_of(shape);
	make_fact(arena, &entries[2], arena_text(arena, id), number);
	if (shape == SHAPE_ENDED)
		make_step(arena, &entries[3], ENTRY_RUN_COMPLETED, arena_text(arena, id), NULL, BYTES_OF("null"));
	return entry_count_of(shape);
}

/* --- a session: a store, a loop ------------------------------------------------------------------------------------------------ */

static void on_broken(void *arg, const struct error *error)
{
	((struct session *)arg)->broken = *error;
}

bool is_faulty(void)
{
	return atomic_load(&faults->failed) > 0;
}

bool session_open(struct session *s, const char *folder, struct ledger *ledger, const struct store_retention *retention)
{
	struct store_options options = {.data_dir = folder, .checkpoint_entries = 20, .checkpoint_every_ms = 3600000, .wal_mib = 1, .now_us = fixture_now_us,
					.wall_ms = fixture_wall_ms, .on_broken = on_broken, .arg = s};
	int code;

	memset(s, 0, sizeof(*s));
	s->ledger = ledger;
	if (retention != NULL)
		options.retention = *retention;
	code = uv_loop_init(&s->loop);
	if (code != 0) {
		error_set(&s->error, ERR_IO, "loop: %s", uv_strerror(code));
		return false;
	}
	code = store_open(&s->store, &s->loop, &options, &s->error);
	if (code == 0)
		return true;
	if (code != (int)s->error.code || s->error.message[0] == '\0')
		wrong("store_open() gave %d, its error says %d \"%s\"", code, (int)s->error.code, s->error.message);
	uv_run(&s->loop, UV_RUN_DEFAULT);
	if (uv_loop_close(&s->loop) != 0)
		wrong("a handle is left after store_open() failed: %s", s->error.message);
	return false;
}

void session_close(struct session *s)
{
	store_close(s->store);
	uv_run(&s->loop, UV_RUN_DEFAULT);
	if (uv_loop_close(&s->loop) != 0)
		wrong("a handle is left after store_close()");
}

struct pending {
	struct store_append append;
	struct entry entries[ENTRIES_MAX];
	struct session *session;
	unsigned number;
	bool done;
};

void demand_excuse(const char *what, const struct error *error)
{
	if (!is_faulty())
		wrong("%s failed without a fault: %s", what, error->message);
	if (error->message[0] == '\0')
		wrong("%s failed without a word", what);
	if (error->code != ERR_FULL && error->code != ERR_BUSY && error->code != ERR_IO && error->code != ERR_CORRUPT)
		wrong("%s: code %d for a fault of the disk or of memory: %s", what, (int)error->code, error->message);
}

static void on_done(struct store_append *append)
{
	struct pending *pending = append->owner;
	char what[32];

	pending->done = true;
	switch (append->error.code) {
	case ERR_NONE:
		if (append->committed_us == 0)
			wrong("acknowledged without a commit");
		pending->session->ledger->runs[pending->number].outcome = OUTCOME_ACKNOWLEDGED;
		recording_acknowledge(PROMISE_APPEND, pending->number);
		return;
	case ERR_FULL: /* "nothing was written, try again" */
	case ERR_BUSY:
		pending->session->ledger->runs[pending->number].outcome = OUTCOME_REFUSED;
		break;
	default:
		break; /* the truth is unknown */
	}
	pending->session->refused = append->error;
	if (pending->session->is_judge)
		return;
	snprintf(what, sizeof(what), "append %u", pending->number);
	demand_excuse(what, &append->error);
}

/* All in one turn of the loop, so that they make one batch; until all have come back. */
void session_append(struct session *s, const enum shape *shapes, unsigned count)
{
	struct pending *pending = memory_zero(BATCH_MAX * sizeof(*pending));
	struct arena arena;

	CHECK(count <= BATCH_MAX);
	arena_init(&arena);
	for (unsigned i = 0; i < count; i++) {
		struct pending *one = &pending[i];

		CHECK(s->ledger->count < RUNS_MAX);
		one->number = s->ledger->count++;
		one->session = s;
		s->ledger->runs[one->number].shape = (uint8_t)shapes[i];
		s->ledger->runs[one->number].outcome = OUTCOME_UNKNOWN;
		one->append = (struct store_append){.entries = one->entries, .entry_count = make_entries(&arena, one->entries, shapes[i], one->number), .on_done = on_done, .owner = one};
		CHECK(store_append(s->store, &one->append) == 0);
	}
	for (unsigned i = 0; i < count; i++)
		while (!pending[i].done)
			uv_run(&s->loop, UV_RUN_ONCE);
	arena_close(&arena);
	free(pending);
}

void session_append_one(struct session *s, enum shape shape)
{
	session_append(s, &shape, 1);
}

/* A further entry of a run, and with it a snapshot of it. */
static void session_snapshot(struct session *s)
{
	struct pending pending = {.session = s, .number = s->ledger->count};
	struct arena arena;
	char id[32];

	session_append_one(s, SHAPE_SNAPSHOT);
	if (s->ledger->runs[pending.number].outcome != OUTCOME_ACKNOWLEDGED)
		return;
	arena_init(&arena);
	print_run_id(id, pending.number);
	make_step(&arena, &pending.entries[0], ENTRY_TASK_STARTED, id, "/do/1/b@1", (struct bytes){0});
	pending.append = (struct store_append){.entries = pending.entries, .entry_count = 1, .on_done = on_done, .owner = &pending, .snapshot_run = id,
					       .snapshot = make_noise(&arena, pending.number, 600), .snapshot_seq = 3};
	CHECK(store_append(s->store, &pending.append) == 0);
	while (!pending.done)
		uv_run(&s->loop, UV_RUN_ONCE);
	/* The run itself is there in any case. */
	s->ledger->runs[pending.number].outcome = OUTCOME_ACKNOWLEDGED;
	arena_close(&arena);
}

void session_sign(struct session *s)
{
	bool done = false;
	struct store_sign sign = {.on_done = on_signed, .owner = &done};
	struct checkpoint checkpoint;
	struct error error;

	CHECK(store_sign_checkpoint(s->store, &sign) == 0);
	while (!done)
		uv_run(&s->loop, UV_RUN_ONCE);
	if (sign.error.code != ERR_NONE && !is_faulty())
		wrong("signing failed without a fault: %s", sign.error.message);
	if (sign.error.code == ERR_NONE) {
		if (checkpoint_parse(buffer_bytes(&sign.note), &checkpoint, &error) != 0)
			wrong("a checkpoint that is none: %s", error.message);
		s->ledger->signed_size = checkpoint.size;
		recording_acknowledge(PROMISE_CHECKPOINT, checkpoint.size);
	}
	buffer_close(&sign.note);
}

/* --- reading ------------------------------------------------------------------------------------------------------------------- */

void blame(struct look *look, const char *format, ...)
{
	va_list list;

	if (look->why[0] != '\0')
		return;
	va_start(list, format);
	vsnprintf(look->why, WHY_LEN, format, list);
	va_end(list);
}

/* True: it came. An error while there is a fault is one; "not found" never, of what is there. */
static bool came(struct look *look, int code, const struct error *error, const char *what, unsigned number)
{
	if (code == 0)
		return true;
	if (!look->may_fail || !is_faulty() || code == ERR_NOT_FOUND || code == ERR_INVALID)
		blame(look, "%s %u: %s (code %d)", what, number, error->message, code);
	return false;
}

/* It is no run any more: so its value is nowhere either, once that was said. */
static void look_at_removed(struct store_reader *reader, struct look *look, unsigned number, int code)
{
	struct digest digest = digest_of_value(look->ledger->runs[number].shape, number);
	struct error error = {0};
	struct arena arena;
	struct bytes bytes;

	if (code == 0) {
		blame(look, "run %u is there although its removal was acknowledged", number);
		return;
	}
	look->good++;
	if (look->ledger->runs[number].removal != REMOVAL_DONE)
		return;
	arena_init(&arena);
	if (reader_content(reader, &arena, 0, &digest, NULL, &bytes, &error) == 0)
		blame(look, "the value of run %u is there although the run's removal was acknowledged", number);
	arena_close(&arena);
}

static void look_at_run(struct store_reader *reader, struct look *look, unsigned number)
{
	enum outcome outcome = look->ledger->runs[number].outcome;
	enum shape shape = look->ledger->runs[number].shape;
	enum removal removal = look->ledger->runs[number].removal, erasure = look->ledger->runs[number].erasure;
	struct error error = {0};
	struct entry *entries;
	struct arena arena;
	struct bytes expected;
	size_t count;
	int code;
	char id[32];

	arena_init(&arena);
	print_run_id(id, number);
	code = reader_run_entries(reader, &arena, id, 0, 10, CONTENT_MAX, &entries, &count, &error);
	if (code == 0 && count == 0)
		code = error_set(&error, ERR_NOT_FOUND, "no entries");
	if (outcome != OUTCOME_ACKNOWLEDGED && code == ERR_NOT_FOUND)
		goto out;
	if (removal != REMOVAL_NONE && (code == ERR_GONE || (removal == REMOVAL_DONE && code == 0))) {
		look_at_removed(reader, look, number, code);
		goto out;
	}
	if (!came(look, code, &error, outcome == OUTCOME_ACKNOWLEDGED ? "acknowledged run" : "run", number))
		goto out;
	if (outcome == OUTCOME_REFUSED)
		blame(look, "run %u is there although its append said that nothing was written", number);
	if (count < entry_count_of(shape) || count > entry_count_of(shape) + (shape == SHAPE_SNAPSHOT))
		blame(look, "run %u has %zu entries, expected %zu", number, count, entry_count_of(shape));
	else if (!bytes_equal(entries[1].values[0].bytes, make_output(&arena, number)))
		blame(look, "run %u has another output", number);
	else if (erasure != REMOVAL_NONE && entries[1].values[1].bytes.data == NULL)
		look->good++;
	else if (erasure == REMOVAL_DONE)
		blame(look, "run %u still has the value that was erased", number);
	else if ((expected = make_value(&arena, shape, number), expected.data != NULL) &&
		 !bytes_equal(shape == SHAPE_FACT ? entries[2].values[0].bytes : entries[1].values[1].bytes, expected))
		blame(look, "run %u has another value", number);
	else
		look->good++;
out:
	arena_close(&arena);
}

static void look_at_event(struct store_reader *reader, struct look *look, unsigned number)
{
	enum outcome outcome = look->ledger->runs[number].outcome;
	struct error error = {0};
	struct digest key;
	uint64_t seq;
	char id[32];
	int code;

	print_run_id(id, number);
	key = digest_of(bytes_text(id));
	code = reader_event_find(reader, &key, &seq, &error);
	if (outcome != OUTCOME_ACKNOWLEDGED && code == ERR_NOT_FOUND)
		return;
	if (!came(look, code, &error, "event", number))
		return;
	if (outcome == OUTCOME_REFUSED)
		blame(look, "event %u is there although its append said that nothing was written", number);
	look->good++;
}

static void look_at_document(struct store_reader *reader, struct look *look, unsigned number)
{
	enum outcome outcome = look->ledger->runs[number].outcome;
	struct store_document document;
	struct error error = {0};
	struct digest digest;
	struct bytes bytes;
	struct arena arena;
	int code;

	arena_init(&arena);
	digest = digest_of_value(SHAPE_DOCUMENT, number);
	code = reader_document(reader, &arena, &digest, &document, &error);
	if (outcome != OUTCOME_ACKNOWLEDGED && code == ERR_NOT_FOUND)
		goto out;
	if (!came(look, code, &error, "document", number))
		goto out;
	if (outcome == OUTCOME_REFUSED)
		blame(look, "document %u is there although its append said that nothing was written", number);
	if (document.size != MEDIUM_SIZE || strcmp(document.media_type, "text/plain") != 0)
		blame(look, "document %u is of %llu bytes and %s", number, (unsigned long long)document.size, document.media_type);
	if (came(look, reader_content(reader, &arena, 0, &digest, NULL, &bytes, &error), &error, "bytes of document", number)) {
		if (!bytes_equal(bytes, make_value(&arena, SHAPE_DOCUMENT, number)))
			blame(look, "document %u has other bytes", number);
		look->good++;
	}
out:
	arena_close(&arena);
}

/* The newest of its name, its text, and its schedule: all of them or none. */
static void look_at_definition(struct store_reader *reader, struct look *look, unsigned number)
{
	enum outcome outcome = look->ledger->runs[number].outcome;
	struct store_definition definition;
	struct store_schedule *schedule;
	struct error error = {0};
	struct arena arena;
	struct bytes bytes;
	size_t count;
	char id[32];
	int code;

	arena_init(&arena);
	print_run_id(id, number);
	code = reader_definition(reader, &arena, "torture", id, NULL, &definition, &error);
	if (outcome != OUTCOME_ACKNOWLEDGED && code == ERR_NOT_FOUND)
		goto out;
	if (!came(look, code, &error, "definition", number))
		goto out;
	if (outcome == OUTCOME_REFUSED)
		blame(look, "definition %u is there although its append said that nothing was written", number);
	if (came(look, reader_definition_document(reader, &arena, &definition.digest, &bytes, NULL, &error), &error, "text of definition", number)) {
		if (!bytes_equal(bytes, make_value(&arena, SHAPE_DEFINITION, number)))
			blame(look, "definition %u has another text", number);
		look->good++;
	}
	if (came(look, reader_schedule(reader, &arena, arena_printf(&arena, "torture.%s", id), &schedule, &count, &error), &error, "schedule", number) &&
	    (count != 1 || schedule->ticked != 1 || !schedule->paused))
		blame(look, "definition %u is there, its schedule is not, or has not ticked, or is not paused", number);
out:
	arena_close(&arena);
}

static void look_at_pages(struct store_reader *reader, struct look *look)
{
	struct store_fact_filter facts_filter = {.from_start = true, .limit = PAGE};
	struct store_run_filter filter = {.limit = PAGE};
	struct error error = {0};
	struct store_event *events;
	struct store_stats stats;
	struct store_fact *facts;
	struct store_run *runs;
	struct bytes *notes;
	struct arena arena;
	size_t count;
	uint64_t next, size;
	unsigned expected[SHAPE_COUNT] = {0};

	for (unsigned i = 0; i < look->ledger->count; i++)
		if (look->ledger->runs[i].outcome == OUTCOME_ACKNOWLEDGED)
			expected[look->ledger->runs[i].shape]++;
	arena_init(&arena);
	if (came(look, reader_facts(reader, &arena, &facts_filter, &facts, &count, &error), &error, "facts", 0)) {
		/* Those of runs that were removed stay. */
		if (count < expected[SHAPE_FACT] + expected[SHAPE_ENDED])
			blame(look, "%zu facts, %u were acknowledged", count, expected[SHAPE_FACT] + expected[SHAPE_ENDED]);
		for (size_t i = 0; i < count; i++) {
			struct store_fact_record record;
			struct digest payload;

			if (!came(look, reader_fact_record(reader, &arena, facts[i].seq, &record, &error), &error, "fact", (unsigned)i))
				continue;
			payload = digest_of(record.payload);
			if (!digest_equal(&payload, &facts[i].id))
				blame(look, "fact %zu has another payload", i);
		}
	}
	if (came(look, reader_runs(reader, &arena, &filter, &runs, &count, &error), &error, "runs", 0)) {
		for (size_t i = 0; i < count; i++)
			if (look->ledger->entries_before == 0 && strcmp(runs[i].name, "torture") != 0)
				blame(look, "run %s is listed as one of %s", runs[i].id, runs[i].name);
			else if (strcmp(runs[i].name, "torture") == 0 && strcmp(runs[i].status, runs[i].ended_ms > 0 ? "completed" : "running") != 0)
				blame(look, "run %s is listed as %s, of %s", runs[i].id, runs[i].status, runs[i].name);
	}
	if (came(look, reader_events(reader, &arena, 0, 0, PAGE, &events, &count, &next, &error), &error, "events", 0) && count < expected[SHAPE_EVENT])
		blame(look, "%zu events, %u were acknowledged", count, expected[SHAPE_EVENT]);
	if (came(look, reader_checkpoints(reader, &arena, &notes, &count, &error), &error, "checkpoints", 0) && count > 0) {
		struct checkpoint newest;

		if (checkpoint_parse(notes[count - 1], &newest, &error) != 0)
			blame(look, "the newest checkpoint is none: %s", error.message);
		else if (newest.size < look->ledger->signed_size)
			blame(look, "the newest checkpoint is of %llu entries, one of %llu was handed out", (unsigned long long)newest.size,
			      (unsigned long long)look->ledger->signed_size);
	}
	if (came(look, reader_stats(reader, &stats, &error), &error, "figures", 0) && came(look, reader_log_size(reader, &size, &error), &error, "size", 0)) {
		if (stats.entries != size)
			blame(look, "%llu entries in the figures, %llu in the log", (unsigned long long)stats.entries, (unsigned long long)size);
		if (size < look->ledger->entries_before)
			blame(look, "%llu entries, it began with %llu", (unsigned long long)size, (unsigned long long)look->ledger->entries_before);
	}
	arena_close(&arena);
}

void look_at_all(struct store_reader *reader, struct look *look)
{
	for (unsigned i = 0; i < look->ledger->count; i++)
		switch (look->ledger->runs[i].shape) {
		case SHAPE_EVENT:
			look_at_event(reader, look, i);
			break;
		case SHAPE_DEFINITION:
			look_at_definition(reader, look, i);
			break;
		case SHAPE_DOCUMENT:
			look_at_document(reader, look, i);
			break;
		default:
			look_at_run(reader, look, i);
		}
	look_at_pages(reader, look);
}

static void read_work(struct store_reader *reader, struct store_read *read)
{
	look_at_all(reader, ((struct look **)read->owner)[0]);
}

static void on_read(struct store_read *read)
{
	*(bool *)((void **)read->owner)[1] = true;
}

static void session_look(struct session *s, struct look *look)
{
	bool done = false;
	void *owner[] = {look, &done};
	struct store_read read = {.work = read_work, .on_done = on_read, .owner = owner};

	CHECK(store_read(s->store, &read) == 0);
	while (!done)
		uv_run(&s->loop, UV_RUN_ONCE);
	if (read.error.code != ERR_NONE && !(look->may_fail && is_faulty()))
		blame(look, "read: %s", read.error.message);
	arena_close(&read.arena);
}

void session_read(struct session *s)
{
	char why[WHY_LEN] = "";
	struct look look = {s->ledger, true, 0, why};

	session_look(s, &look);
	if (why[0] != '\0')
		wrong("while it runs: %s", why);
	s->ledger->reads += look.good;
}

/* --- scenarios ------------------------------------------------------------------------------------------------------------------- */

bool session_refused(struct session *s)
{
	if (!is_faulty())
		wrong("the journal could not be opened, without a fault: %s", s->error.message);
	return false;
}

bool scenario_new(const char *folder, struct ledger *ledger)
{
	struct session s;

	if (!session_open(&s, folder, ledger, NULL))
		return session_refused(&s);
	session_append_one(&s, SHAPE_SMALL);
	session_append(&s, (enum shape[]){SHAPE_SMALL, SHAPE_FACT, SHAPE_EVENT}, 3);
	session_read(&s);
	session_close(&s);
	return true;
}

static void work(struct session *s)
{
	session_append_one(s, SHAPE_SMALL);
	session_append(s, (enum shape[]){SHAPE_LABELS, SHAPE_FACT, SHAPE_SMALL, SHAPE_EVENT, SHAPE_MEDIUM}, 5);
	session_read(s);
	session_snapshot(s);
	session_sign(s);
	session_append(s, (enum shape[]){SHAPE_DEFINITION, SHAPE_DOCUMENT, SHAPE_ENDED}, 3);
	session_append(s, (enum shape[]){SHAPE_LARGE, SHAPE_SMALL}, 2); /* in chunks; and past the limit of the log, so that it is copied back */
	session_append_one(s, SHAPE_FACT);
	store_expect(s->store);
	session_append_one(s, SHAPE_MEDIUM);
	for (unsigned i = 0; i < 3; i++)
		session_append_one(s, SHAPE_SMALL); /* into a log that has begun anew */
	session_read(s);
}

bool scenario_work(const char *folder, struct ledger *ledger)
{
	struct session s;

	if (!session_open(&s, folder, ledger, NULL))
		return session_refused(&s);
	work(&s);
	session_close(&s);
	return true;
}

bool scenario_dirty(const char *folder, struct ledger *ledger)
{
	struct session s;

	if (!session_open(&s, folder, ledger, NULL))
		return session_refused(&s);
	work(&s);
	COVERAGE_KEEP();
	_exit(END_CLEAN); /* no close: the log stays as it is */
}

bool scenario_recover(const char *folder, struct ledger *ledger)
{
	struct session s;

	if (!session_open(&s, folder, ledger, NULL))
		return session_refused(&s);
	session_read(&s);
	session_append(&s, (enum shape[]){SHAPE_SMALL, SHAPE_MEDIUM}, 2);
	session_close(&s);
	return true;
}

bool scenario_read(const char *folder, struct ledger *ledger)
{
	char why[WHY_LEN] = "";
	struct look look = {ledger, true, 0, why};
	struct store_reader *reader;
	struct error error;

	if (store_open_readonly(folder, &reader, &error) != 0) {
		if (!is_faulty() || error.code == ERR_NOT_FOUND)
			wrong("read-only: %s", error.message);
		return false;
	}
	look_at_all(reader, &look);
	store_reader_close(reader);
	if (why[0] != '\0')
		wrong("read-only: %s", why);
	if (store_check_tables(folder, &error) != 0 && !is_faulty())
		wrong("tables: %s", error.message);
	ledger->reads += look.good;
	return true;
}

bool journal_is_good(const char *folder, const struct ledger *ledger, char *why)
{
	struct look look = {ledger, false, 0, why};
	struct store_options options = {.data_dir = folder, .now_us = fixture_now_us, .wall_ms = fixture_wall_ms};
	struct ledger more = *ledger;
	struct session s;
	struct error error;
	char *said = NULL;
	size_t said_len;
	FILE *out;

	why[0] = '\0';
	CHECK(!atomic_load(&faults->armed));
	if (!upkeep_is_good(folder, ledger, why))
		return false;
	if (!session_open(&s, folder, &more, NULL)) {
		snprintf(why, WHY_LEN, "does not open: %s", s.error.message);
		return false;
	}
	s.is_judge = true;
	session_look(&s, &look);
	session_append_one(&s, SHAPE_SMALL);
	if (more.runs[more.count - 1].outcome != OUTCOME_ACKNOWLEDGED)
		blame(&look, "takes no append: %s", s.refused.message);
	session_close(&s);
	if (s.broken.code != ERR_NONE)
		blame(&look, "breaks: %s", s.broken.message);
	if (why[0] == '\0' && store_check_tables(folder, &error) != 0)
		blame(&look, "%s", error.message);
	out = open_memstream(&said, &said_len);
	if (why[0] == '\0' && check_journal(&options, out, &error) != 0) {
		fflush(out);
		blame(&look, "%s: %s", error.message, said);
	}
	fclose(out);
	free(said);
	return why[0] == '\0';
}
