/* See port_reads.h. */
#include "daemon/port_reads.h"

#include <string.h>

#include "workflow/base/check.h"
#include "workflow/base/log.h"

/* Of its first entry. */
static int read_definition(struct store_reader *reader, struct arena *arena, struct engine_load_run *load, struct error *error)
{
	struct entry *first;
	struct digest definition;
	size_t count;

	if (reader_run_entries(reader, arena, load->run_id, 0, 1, 0, &first, &count, error) != 0)
		return error->code;
	if (count == 0)
		return error_set(error, ERR_NOT_FOUND, "run %s has no entries", load->run_id);
	if (!json_get_digest(first->data, "definition", &definition))
		return error_set(error, ERR_CORRUPT, "run %s: its first entry names no definition", load->run_id);
	if (reader_definition_document(reader, arena, &definition, &load->document, NULL, error) != 0)
		error_wrap(error, "definition of run %s", load->run_id);
	return error->code;
}

int read_run_page(struct store_reader *reader, struct arena *arena, struct engine_load_run *load, size_t page, struct error *error)
{
	uint64_t after = load->after_seq;

	if (after == 0) {
		if (read_definition(reader, arena, load, error) != 0)
			return error->code;
		if (!load->whole && reader_snapshot(reader, arena, load->run_id, &after, &load->snapshot, error) != 0) {
			if (error->code != ERR_CORRUPT && error->code != ERR_NOT_FOUND)
				return error->code;
			load->whole = error->code == ERR_CORRUPT;
			if (load->whole) /* it is a cache: there is another way */
				log_warn(LOG_ENGINE, "%s: all entries are read instead", error->message);
			*error = (struct error){0};
			after = 0;
		}
	}
	if (reader_run_entries(reader, arena, load->run_id, after, page, VALUE_INLINE_MAX, &load->entries, &load->entry_count, error) == 0)
		load->more = load->entry_count == page;
	return error->code;
}

int read_values(struct store_reader *reader, struct arena *arena, struct engine_load_values *load, struct error *error)
{
	load->values = arena_zero(arena, (load->need_count + 1) * sizeof *load->values);
	for (size_t i = 0; i < load->need_count; i++)
		if (reader_content(reader, arena, load->needs[i].content_id, &load->needs[i].digest, load->run_id, &load->values[i], error) != 0)
			return error->code;
	return 0;
}

/* The child's run, if it is there. */
static int read_its_run(struct store_reader *reader, struct arena *arena, struct children_look *look, struct error *error)
{
	struct store_run run;
	static const char *const names[] = {"output", "error", "reason"};
	struct bytes *const values[] = {&look->output, &look->run_error, &look->reason};

	if (reader_run(reader, arena, look->run_id, &run, error) != 0)
		return error->code;
	look->is_there = true;
	look->parent_run = run.parent ? run.parent : "";
	look->parent_step = run.parent_step ? run.parent_step : "";
	look->workflow_version = run.version;
	look->status = run.ended_ms == 0 ? RUN_RUNNING : strcmp(run.status, "completed") == 0 ? RUN_COMPLETED : strcmp(run.status, "faulted") == 0 ? RUN_FAULTED : RUN_CANCELLED;
	if (!look->wants_values || run.ended_ms == 0)
		return 0;
	struct entry *last;
	size_t count;
	if (reader_run_entries(reader, arena, look->run_id, run.seq_last - 1, 1, VALUE_INLINE_MAX, &last, &count, error) != 0)
		return error->code;
	if (count > 0)
		budget_spend(&look->spent, json_get(last->data, "spent"));
	for (size_t i = 0; count > 0 && i < COUNT_OF(names); i++) {
		struct digest digest;
		if (json_get_digest(last->data, names[i], &digest) && reader_content(reader, arena, 0, &digest, look->run_id, values[i], error) != 0)
			return error->code;
	}
	return 0;
}

/* … or else the definition that it would run. */
static int read_child_definition(struct store_reader *reader, struct arena *arena, struct children_look *look, struct error *error)
{
	struct store_definition row;
	struct bytes document;
	struct problems problems;
	struct json *json;

	if (reader_definition(reader, arena, look->namespace, look->name, look->version, &row, error) != 0)
		return error->code == ERR_NOT_FOUND ? error_set(error, ERR_NOT_FOUND, "no definition %s/%s%s%s is registered; reprise definition add does that", look->namespace, look->name,
								look->version ? ":" : "", look->version ? look->version : "") : (int)error->code;
	look->workflow_version = row.version;
	if (reader_definition_document(reader, arena, &row.digest, &document, NULL, error) != 0 || (json = json_parse(arena, document, JSON_STORED, NULL, error)) == NULL)
		return error->code;
	problems_init(&problems);
	look->definition = definition_load_stored(json, &problems);
	if (!look->definition)
		error_set(error, ERR_UNSUPPORTED, "definition %s/%s:%s cannot be read by this release: %s", row.namespace, row.name, row.version,
			  problems.count > 0 ? problems.items[0].message : "");
	problems_close(&problems);
	return error->code;
}

int read_child(struct store_reader *reader, struct arena *arena, struct children_look *look, struct error *error)
{
	if (read_its_run(reader, arena, look, error) != ERR_NOT_FOUND || look->is_there)
		return error->code;
	*error = (struct error){0};
	return look->definition ? 0 : read_child_definition(reader, arena, look, error);
}
