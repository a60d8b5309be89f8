/* A part of decide.c: entries, effects, and the values that entries name. Read decide_new_entry(), decide_value_json(). */
#include "workflow/deciding.h"

#include <string.h>

#include "workflow/base/check.h"

/* --- the decision's lists ----------------------------------------------------------------------------------------- */

void decision_init(struct decision *decision)
{
	*decision = (struct decision){0};
	arena_init(&decision->arena);
}

void decision_close(struct decision *decision)
{
	arena_close(&decision->arena);
	*decision = (struct decision){0};
}

static void name_results(struct deciding *d, struct entry *entry);

struct entry *decide_new_entry(struct deciding *d, enum entry_kind kind)
{
	struct decision *decision = d->decision;

	decision->entries = arena_grow(d->arena, decision->entries, decision->entry_count, &decision->entry_cap, sizeof *decision->entries);
	struct entry *entry = &decision->entries[decision->entry_count++];
	*entry = (struct entry){.kind = kind, .data = json_object(d->arena), .time_ms = d->trigger->wall_ms};
	const char *id = d->draft.entry_count > 0 ? d->draft.id : d->trigger->run_id;
	if (entry_kind_touches_run(kind))
		json_set_text(d->arena, entry->data, "runId", id);
	name_results(d, entry);
	return entry;
}

void decide_emit(struct deciding *d, struct entry *entry)
{
	struct error error = {0};

	if (workflow_apply(&d->draft, entry, &error) != 0) /* a mistake of ours: say which */
		check_failed(__FILE__, __LINE__, error.message);
}

struct effect *decide_new_effect(struct deciding *d, enum effect_kind kind)
{
	struct decision *decision = d->decision;

	decision->effects = arena_grow(d->arena, decision->effects, decision->effect_count, &decision->effect_cap, sizeof *decision->effects);
	struct effect *effect = &decision->effects[decision->effect_count++];
	*effect = (struct effect){.kind = kind};
	return effect;
}

bool decide_stopped(const struct deciding *d)
{
	return d->ended || d->decision->need_count > 0;
}

/* --- values ------------------------------------------------------------------------------------------------------- */

/* Where this digest stands among the needs, or where its number would have to be put. */
static uint32_t *find_need(const struct deciding *d, const struct digest *digest)
{
	uint64_t hash;

	memcpy(&hash, digest->bytes, sizeof hash);
	for (size_t slot = hash & (d->need_slot_count - 1);; slot = (slot + 1) & (d->need_slot_count - 1))
		if (d->need_slots[slot] == 0 || digest_equal(&d->decision->needs[d->need_slots[slot] - 1].digest, digest))
			return &d->need_slots[slot];
}

static void need_value(struct deciding *d, const struct value *value)
{
	struct decision *decision = d->decision;

	if (decision->need_count * 2 >= d->need_slot_count) {
		d->need_slot_count = d->need_slot_count ? d->need_slot_count * 2 : 16;
		d->need_slots = arena_zero(d->arena, d->need_slot_count * sizeof *d->need_slots);
		for (size_t i = 0; i < decision->need_count; i++)
			*find_need(d, &decision->needs[i].digest) = (uint32_t)i + 1;
	}
	uint32_t *slot = find_need(d, &value->digest);
	if (*slot != 0 || decision->need_count >= DECISION_NEEDS_MAX)
		return;
	decision->needs = arena_grow(d->arena, decision->needs, decision->need_count, &decision->need_cap, sizeof *decision->needs);
	decision->needs[decision->need_count++] = (struct value_need){value->digest, value->content_id, value->size, NULL};
	*slot = (uint32_t)decision->need_count;
}

void decide_need_result(struct deciding *d, const struct digest *digest, const struct evaluation *evaluation)
{
	const struct value value = {.digest = *digest, .size = evaluation->request.len};
	size_t before = d->decision->need_count;

	if (d->evaluation_needs >= DECISION_EVALUATIONS_MAX)
		return; /* others are needed as it is */
	need_value(d, &value);
	if (d->decision->need_count == before)
		return;
	d->decision->needs[before].evaluation = evaluation;
	d->evaluation_needs++;
}

const struct json *decide_value_json(struct deciding *d, const struct value *value)
{
	struct error error = {0};

	if (value->json)
		return value->json;
	for (size_t i = 0; i < PARSED_KEPT; i++)
		if (d->parsed[i].value == value)
			return d->parsed[i].json;
	const struct json *json = NULL;
	if (value->bytes.data) {
		json = json_parse(d->arena, value->bytes, JSON_STORED, NULL, &error);
		CHECK(json != NULL); /* We printed it, and its digest was checked when it was read. */
	} else if (d->context->values.get) {
		json = d->context->values.get(d->context->values.context, &value->digest);
	}
	if (!json) {
		need_value(d, value);
		return NULL;
	}
	d->parsed[d->parsed_next].value = value;
	d->parsed[d->parsed_next].json = json;
	d->parsed_next = (d->parsed_next + 1) % PARSED_KEPT;
	return json;
}

struct value *decide_value_of_bytes(struct deciding *d, const struct json *json, struct bytes bytes)
{
	struct digest digest = digest_of(bytes);
	struct value *value = state_find_value(&d->draft, &digest);

	if (value && !value->bytes.data) { /* an entry may have to carry it all the same */
		d->remade = arena_grow(d->arena, d->remade, d->remade_count, &d->remade_cap, sizeof *d->remade);
		d->remade[d->remade_count++] = (struct entry_value){digest, bytes, bytes.len};
	}
	if (value)
		return value;
	value = arena_zero(d->arena, sizeof *value);
	value->digest = digest;
	value->size = bytes.len;
	value->bytes = bytes;
	value->json = json;
	return value;
}

struct bytes decide_bytes(const struct deciding *d, const struct value *value)
{
	for (size_t i = 0; !value->bytes.data && i < d->remade_count; i++)
		if (digest_equal(&d->remade[i].digest, &value->digest))
			return d->remade[i].bytes;
	return value->bytes;
}

struct value *decide_make_value(struct deciding *d, const struct json *json)
{
	return decide_value_of_bytes(d, json, json_print_arena(json, d->arena));
}

struct value *decide_make_bounded(struct deciding *d, const struct json *json, struct error *error)
{
	struct buffer text;
	struct value *value = NULL;

	if (!json_nests_within(json, JSON_DEPTH_MAX)) {
		error_set(error, ERR_TOO_LARGE, "the value nests deeper than %d levels, the most allowed (JSON_DEPTH_MAX)", JSON_DEPTH_MAX);
		return NULL;
	}
	buffer_init(&text, DECISION_VALUE_MAX);
	json_print(json, &text);
	if (text.overflow)
		error_set(error, ERR_TOO_LARGE, "the value is larger than %d MiB, the most allowed (DECISION_VALUE_MAX)", DECISION_VALUE_MAX >> 20);
	else
		value = decide_value_of_bytes(d, json, arena_bytes(d->arena, buffer_bytes(&text)));
	d->made_bytes += text.len;
	buffer_close(&text);
	return value;
}

void decide_name_value(struct deciding *d, struct entry *entry, const char *name, struct value *value)
{
	json_set_digest(d->arena, entry->data, name, &value->digest);
	if (state_find_value(&d->draft, &value->digest))
		return; /* known to the run, or carried by an earlier entry of this decision */
	for (size_t i = 0; i < entry->value_count; i++)
		if (digest_equal(&entry->values[i].digest, &value->digest))
			return;
	CHECK(entry->value_count < ENTRY_VALUES_MAX);
	entry->values[entry->value_count++] = (struct entry_value){value->digest, value->bytes, value->size};
}

/* Results of evaluations stand beside what became of them, so that replay evaluates nothing and still puts every value together anew:
 * one as itself, for it mostly is the task's output as well; several, or a failure, as [[value] or text …]. */
static void name_results(struct deciding *d, struct entry *entry)
{
	const struct json *results = d->results, *only = json_count(results) == 1 ? json_at(json_at(results, 0), 0) : NULL;

	if (json_count(results) == 0)
		return;
	d->results = NULL;
	d->result_bytes = 0;
	decide_name_value(d, entry, only ? "result" : "results", decide_make_value(d, only ? only : results));
}

void decide_carry(struct deciding *d, struct entry *entry, const char *name, struct bytes bytes)
{
	if (bytes.data && bytes.len > 0)
		entry_add_value(d->arena, entry, name, bytes);
}

/* --- step ids ----------------------------------------------------------------------------------------------------- */

const char *decide_step_text(struct deciding *d, const struct task *task, const uint64_t *path, size_t path_count, uint64_t execution,
			     char key[DIGEST_HEX_LEN + 1])
{
	struct step_id id = {.reference = task->reference, .iteration_count = path_count, .execution = execution};

	memcpy(id.iterations, path, path_count * sizeof *path);
	if (key)
		step_idempotency_key(d->draft.id, &id, key);
	return step_id_print(d->arena, &id);
}

struct entry *decide_new_step_entry(struct deciding *d, enum entry_kind kind, const char *step)
{
	struct entry *entry = decide_new_entry(d, kind);

	json_set_text(d->arena, entry->data, "stepId", step);
	return entry;
}

struct entry *decide_new_task_entry(struct deciding *d, enum entry_kind kind, const struct task *task, const uint64_t *path, uint64_t execution)
{
	return decide_new_step_entry(d, kind, decide_step_text(d, task, path, task->loop_depth, execution, NULL));
}
