/* See check_journal.h. */
#include "daemon/check_journal.h"

#include <string.h>

#include "workflow/evidence/verify.h"

/* The verifier key that the journal itself names: whoever wants more than consistency compares it with one he kept. */
static int read_log_key(struct store_reader *reader, struct arena *arena, struct note_key *key, struct error *error)
{
	struct store_raw_entry *first;
	struct entry entry;
	uint64_t next;
	size_t count;

	if (reader_entries(reader, arena, 0, 0, 1, &first, &count, &next, error) != 0)
		return error->code;
	if (count == 0 || first[0].seq != 0)
		return error_set(error, ERR_CORRUPT, "the journal does not begin with entry 0");
	if (entry_decode(arena, first[0].bytes, NULL, &entry, error) != 0)
		return error->code;
	const char *vkey = json_get_text(entry.data, "vkey");
	return vkey ? note_key_parse(key, vkey, error) : error_set(error, ERR_CORRUPT, "journal.opened names no key");
}

static int verify(struct store_reader *reader, const struct note_key *key, struct verify_report *report, uint64_t *entries, struct error *error)
{
	struct arena arena;
	struct bytes *notes;
	size_t note_count, count = 1;
	struct verify_journal journal;

	arena_init(&arena);
	if (reader_checkpoints(reader, &arena, &notes, &note_count, error) == 0) {
		verify_journal_begin(&journal, key, notes, note_count, report);
		for (uint64_t from = 0; count > 0;) {
			struct store_log_line *page;
			struct arena page_arena;
			uint64_t before = from;
			arena_init(&page_arena);
			if (reader_log_lines(reader, &page_arena, from, CHECK_PAGE, &page, &count, &from, error) != 0)
				count = 0;
			for (size_t i = 0; i < count; i++) {
				if (page[i].bytes.data)
					verify_journal_add(&journal, page[i].bytes);
				else
					verify_journal_add_pruned(&journal, page[i].seq, page[i].count, &page[i].root);
				*entries += page[i].count;
			}
			count = from > before && error->code == ERR_NONE; /* a gap gives no line, and is no end */
			arena_close(&page_arena);
		}
		verify_journal_end(&journal);
	}
	arena_close(&arena);
	return error->code;
}

static int check_keys(const struct store_options *options, const struct note_key *journal, FILE *out, struct error *error)
{
	struct public_key log;

	if (store_check_keys(options, journal == NULL, &log, error) != 0)
		return error->code;
	if (journal && strcmp(log.id, journal->public.id) != 0)
		return error_set(error, ERR_INVALID, "the log key is not the one that journal %s was begun with: put that one back", options->data_dir);
	fprintf(out, "keys: %s\n", log.id[0] ? "good" : "made at the first start");
	return 0;
}

int check_journal(const struct store_options *options, FILE *out, struct error *error)
{
	const char *data_dir = options->data_dir;
	struct store_reader *reader;
	struct note_key key;
	struct verify_report report;
	struct arena arena;
	uint64_t entries = 0;

	*error = (struct error){0};
	if (store_open_readonly(data_dir, &reader, error) == ERR_NOT_FOUND) {
		fprintf(out, "journal %s: none yet\n", data_dir);
		*error = (struct error){0};
		return check_keys(options, NULL, out, error);
	}
	if (error->code != ERR_NONE)
		return error->code;
	arena_init(&arena);
	verify_report_init(&report);
	if (read_log_key(reader, &arena, &key, error) == 0 && verify(reader, &key, &report, &entries, error) == 0) {
		for (size_t i = 0; i < report.count; i++)
			if (report.lines[i].status == VERIFY_FAIL || report.lines[i].status == VERIFY_UNVERIFIABLE)
				fprintf(out, "journal: %s: %s: %s\n", report.lines[i].check, report.lines[i].code ? report.lines[i].code : "failed",
					report.lines[i].detail ? report.lines[i].detail : "");
		if (verify_report_result(&report) == VERIFY_VALID)
			fprintf(out, "journal %s: %llu entries, origin %s: good\n", data_dir, (unsigned long long)entries, key.name);
		else
			error_set(error, ERR_CORRUPT, "journal %s: verification failed", data_dir);
	}
	if (error->code == ERR_NONE)
		check_keys(options, &key, out, error);
	verify_report_close(&report);
	arena_close(&arena);
	store_reader_close(reader);
	return error->code;
}
