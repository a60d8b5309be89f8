/* reprise journal verify | stats. The tree is computed again here from the entries' bytes; start at command_journal_verify(). */
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "cli/trust.h"
#include "store/store.h"
#include "workflow/base/check.h"

enum { ENTRIES_PAGE = 5000, NOTES_MAX = 100000 };

struct notes {
	struct bytes *items;
	size_t count;
};

static int add_note(struct command *command, struct notes *notes, struct bytes note)
{
	if (notes->items == NULL)
		notes->items = arena_alloc(&command->arena, NOTES_MAX * sizeof *notes->items);
	if (notes->count == NOTES_MAX)
		return command_fail(command, STATUS_ERROR, NULL, "more checkpoints than the limit of %d (NOTES_MAX)", NOTES_MAX);
	notes->items[notes->count++] = note;
	return STATUS_OK;
}

/* Entries alone prove nothing: what they are held against are checkpoints, and those count by the log's signature only. */
static int need_log_key(struct command *command, const struct trust *trust)
{
	if (trust->has_log_key)
		return STATUS_OK;
	return command_fail(command, STATUS_UNVERIFIABLE, "`reprise key export --purpose log --format vkey` prints it", "the log's key is needed: --log-key FILE");
}

static int add_trusted(struct command *command, struct notes *notes)
{
	for (size_t i = 0; command_option_at(command, "trusted", i) != NULL; i++) {
		struct bytes note;
		int status = command_read_file(command, command_option_at(command, "trusted", i), &note);
		if (status != STATUS_OK || (status = add_note(command, notes, note)) != STATUS_OK)
			return status;
	}
	return STATUS_OK;
}

/* "pruned <first seq> <count> <tile root, base64>" (semantics.md 9), or an entry. False: neither. */
static bool add_line(struct verify_journal *journal, struct bytes line)
{
	if (line.len < 7 || memcmp(line.data, "pruned ", 7) != 0) {
		verify_journal_add(journal, line);
		return true;
	}
	char text[256], root_text[64];
	unsigned long long first, count;
	struct digest root;
	if (line.len >= sizeof text)
		return false;
	memcpy(text, line.data, line.len);
	text[line.len] = '\0';
	if (sscanf(text, "pruned %llu %llu %63s", &first, &count, root_text) != 3)
		return false;
	struct buffer bytes;
	buffer_init(&bytes, 64);
	bool good = base64_decode(bytes_text(root_text), &bytes) && bytes.len == sizeof root.bytes;
	if (good) {
		memcpy(root.bytes, bytes.data, sizeof root.bytes);
		verify_journal_add_pruned(journal, first, count, &root);
	}
	buffer_close(&bytes);
	return good;
}

/* --- from the daemon ---------------------------------------------------------------------------------------------- */

static int ask_checkpoints(struct command *command, struct notes *notes)
{
	struct json *answer;
	int status = command_get(command, "/v1/log/checkpoints", &answer);
	const struct json *list = status == STATUS_OK ? json_get(answer, "checkpoints") : NULL;
	for (size_t i = 0; i < json_count(list) && status == STATUS_OK; i++)
		if (json_is(json_at(list, i), JSON_STRING))
			status = add_note(command, notes, bytes_text(json_at(list, i)->string.text));
	return status;
}

/* What is done with one entry, or with the line of a pruned tile. text NULL: the answer held none at this place. */
typedef int (*daemon_line_cb)(void *arg, uint64_t seq, const struct json *text);

/* Every line of the daemon's journal as it is now; what is appended while we read belongs to the next time. *promised: how many
 * entries there should be; *got: as far as they came. */
static int each_daemon_line(struct command *command, daemon_line_cb on_line, void *arg, uint64_t *got, uint64_t *promised)
{
	uint64_t from = 0, size = 0;
	bool know_size = false, stuck = false;
	int status = STATUS_OK;
	while (status == STATUS_OK && !stuck && (!know_size || from < size)) {
		/* One page's memory at a time: a journal of any length can be read. */
		struct arena kept = command->arena;
		struct json *answer;
		arena_init(&command->arena);
		status = command_get(command, arena_printf(&command->arena, "/v1/log/entries?from=%llu&limit=%d", (unsigned long long)from, ENTRIES_PAGE), &answer);
		const struct json *entries = status == STATUS_OK ? json_get(answer, "entries") : NULL;
		if (status == STATUS_OK && !know_size) {
			size = (uint64_t)json_get_number(answer, "size", 0);
			know_size = true;
		}
		uint64_t before = from;
		for (size_t i = 0; i < json_count(entries) && from < size && status == STATUS_OK; i++, from++)
			status = on_line(arg, from, json_is(json_at(entries, i), JSON_STRING) ? json_at(entries, i) : NULL);
		uint64_t next = status == STATUS_OK ? (uint64_t)json_get_number(answer, "next", 0) : 0;
		if (next > from && next <= size)
			from = next; /* a pruned tile took one line for many entries */
		stuck = from == before && from < size;
		arena_close(&command->arena);
		command->arena = kept;
		char text[80];
		snprintf(text, sizeof text, "%llu of %llu entries", (unsigned long long)from, (unsigned long long)size);
		progress_show(&command->output, from, size, text);
	}
	progress_clear(&command->output);
	*got = from;
	*promised = size;
	return status;
}

static int check_line(void *arg, uint64_t seq, const struct json *text)
{
	struct verify_journal *journal = arg;
	if (text == NULL || !add_line(journal, (struct bytes){(const uint8_t *)text->string.text, text->string.len}))
		verify_add(journal->report, VERIFY_FAIL, "journal", "journal-entry", "entry %llu: the daemon's answer holds no text of an entry", (unsigned long long)seq);
	return STATUS_OK;
}

static int add_entries_of_daemon(struct command *command, struct verify_journal *journal)
{
	uint64_t got, promised;
	int status = each_daemon_line(command, check_line, journal, &got, &promised);
	if (status == STATUS_OK && got < promised)
		verify_add(journal->report, VERIFY_FAIL, "journal", "journal-truncated", "%llu entries present, %llu promised by the daemon", (unsigned long long)got, (unsigned long long)promised);
	return status;
}

/* --- from a file, from a data folder ------------------------------------------------------------------------------ */

/* Each of its lines would be an error of its own, and none would say what is wrong. */
static int refuse_database(struct command *command, const char *path)
{
	static const char magic[] = "SQLite format 3"; /* with its NUL */
	char head[sizeof magic] = {0};
	FILE *file = strcmp(path, "-") == 0 ? NULL : fopen(path, "re");
	size_t len = file != NULL ? fread(head, 1, sizeof head, file) : 0;
	if (file != NULL)
		fclose(file);
	if (len < sizeof head || memcmp(head, magic, sizeof head) != 0)
		return STATUS_OK;
	return command_fail(command, STATUS_MALFORMED, arena_printf(&command->arena, "a data folder: reprise journal verify --data DIR; a backup is checked whole by: reprise journal restore %s --data NEW-FOLDER --new-log", path),
			    "%s is a database, not entries as `reprise journal export` prints them", path);
}

static int add_entries_of_file(struct command *command, const char *path, struct verify_journal *journal)
{
	struct bytes bytes;
	int status = command_read_file(command, path, &bytes);
	size_t number = 0;
	for (size_t at = 0; status == STATUS_OK && at < bytes.len;) {
		const uint8_t *newline = memchr(bytes.data + at, '\n', bytes.len - at);
		size_t end = newline == NULL ? bytes.len : (size_t)(newline - bytes.data);
		number++;
		if (!add_line(journal, (struct bytes){bytes.data + at, end - at}))
			verify_add(journal->report, VERIFY_FAIL, "journal", "journal-entry", "line %zu of %s is neither an entry nor a pruned tile", number, path);
		at = end + 1;
	}
	return status;
}

static int add_entries_of_store(struct command *command, struct store_reader *reader, struct verify_journal *journal)
{
	struct error error;
	uint64_t from = 0, size;
	if (reader_log_size(reader, &size, &error) != 0)
		return command_fail(command, STATUS_JOURNAL_DAMAGED, NULL, "%s", error.message);
	while (from < size) {
		struct arena page;
		struct store_log_line *lines;
		size_t count;
		uint64_t next = from;
		arena_init(&page);
		int code = reader_log_lines(reader, &page, from, ENTRIES_PAGE, &lines, &count, &next, &error);
		for (size_t i = 0; code == 0 && i < count; i++)
			if (lines[i].bytes.data != NULL)
				verify_journal_add(journal, lines[i].bytes);
			else
				verify_journal_add_pruned(journal, lines[i].seq, lines[i].count, &lines[i].root);
		arena_close(&page);
		if (code != 0)
			return command_fail(command, STATUS_JOURNAL_DAMAGED, NULL, "read the journal from entry %llu on: %s", (unsigned long long)from, error.message);
		if (next <= from) {
			verify_add(journal->report, VERIFY_FAIL, "journal", "journal-truncated", "entry %llu is missing, of %llu in all", (unsigned long long)from, (unsigned long long)size);
			break;
		}
		from = next;
		char text[80];
		snprintf(text, sizeof text, "%llu of %llu entries", (unsigned long long)from, (unsigned long long)size);
		progress_show(&command->output, from, size, text);
	}
	progress_clear(&command->output);
	return STATUS_OK;
}

static int verify_store(struct command *command, const char *data_dir, struct trust *trust, struct notes *notes, struct verify_journal *journal, struct verify_report *report)
{
	struct store_reader *reader;
	struct bytes *kept;
	size_t count;
	struct error error;
	if (store_open_readonly(data_dir, &reader, &error) != 0)
		return command_fail(command, error.code == ERR_CORRUPT ? STATUS_JOURNAL_DAMAGED : STATUS_ERROR, NULL, "%s", error.message);
	int status = STATUS_OK;
	/* The log key of a data folder is what its first entry says: as good as the folder. */
	if (!trust->has_log_key) {
		trust->has_log_key = store_reader_log_key(reader, &trust->log_key, &error) == 0;
		if (trust->has_log_key)
			output_note(&command->output, "note: log key from the journal itself; --log-key FILE takes one that you kept");
	}
	if (reader_checkpoints(reader, &command->arena, &kept, &count, &error) != 0)
		status = command_fail(command, STATUS_JOURNAL_DAMAGED, NULL, "%s", error.message);
	for (size_t i = 0; status == STATUS_OK && i < count; i++)
		status = add_note(command, notes, kept[i]);
	if (status == STATUS_OK && (status = need_log_key(command, trust)) == STATUS_OK) {
		verify_journal_begin(journal, &trust->log_key, notes->items, notes->count, report);
		status = add_entries_of_store(command, reader, journal);
		verify_journal_end(journal);
	}
	store_reader_close(reader);
	return status;
}

int command_journal_verify(struct command *command)
{
	struct trust trust;
	struct notes notes = {NULL, 0};
	struct verify_journal journal;
	struct verify_report report;
	const char *data_dir = command_option(command, "data"), *path = command->argument_count > 0 ? command->arguments[0] : NULL;
	int status;
	if ((status = trust_read_options(command, &trust)) != STATUS_OK || (status = add_trusted(command, &notes)) != STATUS_OK)
		return status;
	verify_report_init(&report);
	if (path != NULL) {
		if ((status = refuse_database(command, path)) == STATUS_OK && (status = need_log_key(command, &trust)) == STATUS_OK) {
			verify_journal_begin(&journal, &trust.log_key, notes.items, notes.count, &report);
			status = add_entries_of_file(command, path, &journal);
			verify_journal_end(&journal);
		}
	} else if (data_dir != NULL) {
		status = verify_store(command, data_dir, &trust, &notes, &journal, &report);
	} else if ((status = trust_ask_daemon(command, &trust)) == STATUS_OK && (status = need_log_key(command, &trust)) == STATUS_OK &&
		   (status = ask_checkpoints(command, &notes)) == STATUS_OK) {
		verify_journal_begin(&journal, &trust.log_key, notes.items, notes.count, &report);
		status = add_entries_of_daemon(command, &journal);
		verify_journal_end(&journal);
	}
	if (status == STATUS_OK) {
		status = verify_report_exit(&report);
		if (command->output.format == FORMAT_JSON || command->output.format == FORMAT_JSONL) {
			struct json *result = verify_report_json(&report, &command->arena);
			json_set_number(&command->arena, result, "checkpoints", (double)notes.count);
			json_set_number(&command->arena, result, "entries", (double)journal.tree.size);
			json_set_number(&command->arena, result, "facts", (double)journal.facts);
			output_json(&command->output, result);
		} else if (command->output.format == FORMAT_TEXT) {
			const char *name = verify_result_names[verify_report_result(&report)];
			print_verify_lines(command, &report, "", true);
			output_coloured(&command->output, status_colour(name), name);
			output_line(&command->output, "  journal of %llu entr%s, %llu of them fact%s, against %zu checkpoint%s%s%s", (unsigned long long)journal.tree.size, journal.tree.size == 1 ? "y" : "ies",
				    (unsigned long long)journal.facts, journal.facts == 1 ? "" : "s", notes.count, notes.count == 1 ? "" : "s", journal.origin[0] == '\0' ? "" : ", ", journal.origin);
		}
		trust.fact_keys_from_daemon = false; /* they were not used */
		trust_note(command, &trust);
	}
	verify_report_close(&report);
	return status;
}

static int print_line(void *arg, uint64_t seq, const struct json *text)
{
	if (text == NULL)
		return command_fail(arg, STATUS_ERROR, NULL, "entry %llu: the daemon's answer holds no text of an entry", (unsigned long long)seq);
	fwrite(text->string.text, 1, text->string.len, stdout);
	fputc('\n', stdout);
	return STATUS_OK;
}

/* The entries' bytes, one a line, as the daemon keeps them (provenance.md 4.4): what `journal verify FILE` reads. */
int command_journal_export(struct command *command)
{
	uint64_t got, promised;
	int status = each_daemon_line(command, print_line, command, &got, &promised);
	if (status == STATUS_OK && got < promised)
		status = command_fail(command, STATUS_ERROR, NULL, "the daemon gave %llu of the %llu entries that it promised", (unsigned long long)got, (unsigned long long)promised);
	return status;
}

/* How wide the names are that print_members() prints: each with those of the objects around it. */
static size_t members_width(const struct json *object)
{
	size_t wide = 0;
	for (size_t i = 0; json_is(object, JSON_OBJECT) && i < object->object.count; i++) {
		const struct json *value = object->object.members[i].value;
		size_t width = strlen(object->object.members[i].name) + (json_is(value, JSON_OBJECT) ? 1 + members_width(value) : 0);
		wide = width > wide ? width : wide;
	}
	return wide;
}

static void print_members(struct command *command, const struct json *object, const char *before, size_t wide)
{
	for (size_t i = 0; json_is(object, JSON_OBJECT) && i < object->object.count; i++) {
		const struct json_member *member = &object->object.members[i];
		const char *name = arena_printf(&command->arena, "%s%s", before, member->name);
		if (json_is(member->value, JSON_OBJECT)) {
			print_members(command, member->value, arena_printf(&command->arena, "%s.", name), wide);
			continue;
		}
		size_t len = strlen(member->name);
		const char *size = len >= 5 && strcasecmp(member->name + len - 5, "bytes") == 0 && json_is(member->value, JSON_NUMBER)
					   ? arena_printf(&command->arena, "  (%s)", text_size(&command->arena, member->value->number)) : "";
		output_line(&command->output, "%-*s  %s%s", (int)wide, name, value_text(&command->arena, member->value), size);
	}
}

int command_journal_stats(struct command *command)
{
	struct json *answer;
	int status = command_get(command, "/v1/journal/stats", &answer);
	if (status != STATUS_OK)
		return status;
	if (command->output.format == FORMAT_TEXT || command->output.format == FORMAT_IDS)
		print_members(command, answer, "", members_width(answer));
	else
		output_json(&command->output, answer);
	return STATUS_OK;
}
