/* Reads scripts and makes their choices. Loop thread. Start at script_new(). */
#include "tests/sim/script.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/file.h"
#include "workflow/base/check.h"
#include "workflow/base/json.h"

static const char *const fault_names[FAULT_KIND_COUNT] = {
#define X(name, text) [name] = text,
	FAULT_KINDS(X)
#undef X
};
static const char *const mode_names[MODE_COUNT] = {"extract", "fixed", "weighted", "seeded", "seedIgnored", "coldFirst", "cachePath",
	"schedule", "reloadShift"};

const char *fault_kind_name(enum fault_kind kind)
{
	return fault_names[kind];
}

/* ---- Randomness: the finaliser of SplitMix64 over a sum of odd multiples; small, well mixed, not secret. ---- */

static uint64_t mix(uint64_t value)
{
	value += UINT64_C(0x9e3779b97f4a7c15);
	value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
	return value ^ (value >> 31);
}

uint64_t random_draw(uint64_t seed, uint64_t ordinal, enum random_purpose purpose, uint64_t step)
{
	return mix(mix(mix(seed) + ordinal) + (uint64_t)purpose * UINT64_C(0xd1342543de82ef95) + step);
}

uint64_t random_hash(uint64_t seed, struct bytes bytes)
{
	uint64_t hash = mix(seed ^ bytes.len);
	size_t i;

	for (i = 0; i + 8 <= bytes.len; i += 8) {
		uint64_t word;

		memcpy(&word, bytes.data + i, 8);
		hash = mix(hash ^ word);
	}
	for (; i < bytes.len; i++)
		hash = mix(hash ^ bytes.data[i]);
	return hash;
}

double random_unit(uint64_t draw)
{
	return (double)(draw >> 11) * 0x1p-53;
}

/* ---- Reading ---- */

/* Absent: *number stays as it is. */
static int read_integer(const struct json *object, const char *where, const char *name, double min, double max, double *number,
	struct error *error)
{
	const struct json *value = json_get(object, name);

	if (value == NULL)
		return 0;
	if (!json_is_integer(value) || value->number < min || value->number > max)
		return error_set(error, ERR_INVALID, "%s/%s: must be an integer from %.0f to %.0f", where, name, min, max);
	*number = value->number;
	return 0;
}

static int read_int(const struct json *object, const char *where, const char *name, int min, int max, int *result,
	struct error *error)
{
	double number = *result;

	if (read_integer(object, where, name, min, max, &number, error) != 0)
		return ERR_INVALID;
	*result = (int)number;
	return 0;
}

static int read_boolean(const struct json *object, const char *where, const char *name, bool *result, struct error *error)
{
	const struct json *value = json_get(object, name);

	if (value == NULL)
		return 0;
	if (!json_is(value, JSON_BOOLEAN))
		return error_set(error, ERR_INVALID, "%s/%s: must be true or false", where, name);
	*result = value->boolean;
	return 0;
}

static int read_answer(struct answer *answer, const struct json *json, const char *where, struct error *error)
{
	const struct json *weight = json_get(json, "weight");

	if (members_check(json, where, "text reasoning weight ", error) != 0)
		return ERR_INVALID;
	if (json_get_text(json, "text") == NULL)
		return error_set(error, ERR_INVALID, "%s/text: must be a string", where);
	if (json_get(json, "reasoning") != NULL && json_get_text(json, "reasoning") == NULL)
		return error_set(error, ERR_INVALID, "%s/reasoning: must be a string", where);
	if (weight != NULL && (!json_is(weight, JSON_NUMBER) || weight->number <= 0 || weight->number > 1e9))
		return error_set(error, ERR_INVALID, "%s/weight: must be a number above 0, at most 1e9", where);
	answer->text = json_get_text(json, "text");
	answer->reasoning = json_get_text(json, "reasoning");
	answer->weight = weight != NULL ? weight->number : 1;
	return 0;
}

static int read_schedule(struct script *script, const struct json *json, struct error *error)
{
	if (!json_is(json, JSON_ARRAY) || json_count(json) == 0 || json_count(json) > SCRIPT_SCHEDULE_MAX)
		return error_set(error, ERR_INVALID, "/answer/schedule: must be a list of 1 to %d indices of answers", SCRIPT_SCHEDULE_MAX);
	script->schedule_count = json_count(json);
	script->schedule = arena_alloc(&script->arena, script->schedule_count * sizeof(*script->schedule));
	for (size_t i = 0; i < script->schedule_count; i++) {
		const struct json *index = json_at(json, i);

		if (!json_is_integer(index) || index->number < 0 || index->number >= (double)script->answer_count)
			return error_set(error, ERR_INVALID, "/answer/schedule/%zu: must be an index of answers, from 0 on", i);
		script->schedule[i] = (uint32_t)index->number;
	}
	return 0;
}

static int read_answers(struct script *script, const struct json *json, struct error *error)
{
	const struct json *answers = json_get(json, "answers");
	const struct json *greedy = json_get(json, "greedy");
	const char *mode = json_get_text(json, "mode");
	int found = -1;
	char where[64];

	if (json == NULL)
		return 0;
	if (members_check(json, "/answer", "mode answers greedy schedule ", error) != 0)
		return ERR_INVALID;
	for (int i = 0; i < MODE_COUNT; i++) {
		if (mode != NULL && strcmp(mode, mode_names[i]) == 0)
			found = i;
	}
	if (found < 0)
		return error_set(error, ERR_INVALID, "/answer/mode: must be extract, fixed, weighted, seeded, seedIgnored, coldFirst, cachePath, "
			"schedule or reloadShift");
	script->mode = (enum answer_mode)found;
	if (greedy != NULL) {
		struct answer *answer = arena_zero(&script->arena, sizeof(*answer));

		if (read_answer(answer, greedy, "/answer/greedy", error) != 0)
			return ERR_INVALID;
		script->greedy = answer;
	}
	if (script->mode == MODE_EXTRACT)
		return answers == NULL ? 0 : error_set(error, ERR_INVALID, "/answer/answers: mode extract takes none");
	if (!json_is(answers, JSON_ARRAY) || json_count(answers) == 0 || json_count(answers) > SCRIPT_ANSWERS_MAX)
		return error_set(error, ERR_INVALID, "/answer/answers: must be a list of 1 to %d answers", SCRIPT_ANSWERS_MAX);
	script->answer_count = json_count(answers);
	script->answers = arena_zero(&script->arena, script->answer_count * sizeof(*script->answers));
	for (size_t i = 0; i < script->answer_count; i++) {
		snprintf(where, sizeof(where), "/answer/answers/%zu", i);
		if (read_answer(&script->answers[i], json_at(answers, i), where, error) != 0)
			return ERR_INVALID;
		script->weight_sum += script->answers[i].weight;
	}
	if ((script->mode == MODE_COLD_FIRST || script->mode == MODE_CACHE_PATH) && script->answer_count != 2)
		return error_set(error, ERR_INVALID, "/answer/answers: mode %s takes two answers", mode);
	if (script->mode == MODE_SCHEDULE)
		return read_schedule(script, json_get(json, "schedule"), error);
	if (json_get(json, "schedule") != NULL)
		return error_set(error, ERR_INVALID, "/answer/schedule: only mode schedule takes one");
	return 0;
}

static bool is_ordinal(const struct json *json)
{
	return json_is_integer(json) && json->number >= 1;
}

static int read_on(struct script *script, struct fault_rule *rule, const struct json *on, const char *where, struct error *error)
{
	const struct json *every = json_get(on, "every");

	if (is_ordinal(every) && json_count(on) == 1) {
		rule->every = (uint64_t)every->number;
		return 0;
	}
	if (is_ordinal(on)) {
		rule->ordinal_count = 1;
		rule->ordinals = arena_alloc(&script->arena, sizeof(*rule->ordinals));
		rule->ordinals[0] = (uint64_t)on->number;
		return 0;
	}
	if (!json_is(on, JSON_ARRAY) || json_count(on) == 0)
		goto fail;
	rule->ordinal_count = json_count(on);
	rule->ordinals = arena_alloc(&script->arena, rule->ordinal_count * sizeof(*rule->ordinals));
	for (size_t i = 0; i < rule->ordinal_count; i++) {
		if (!is_ordinal(json_at(on, i)))
			goto fail;
		rule->ordinals[i] = (uint64_t)json_at(on, i)->number;
	}
	return 0;
fail:
	return error_set(error, ERR_INVALID, "%s/on: must be an ordinal from 1 on, a list of these, or {\"every\": N}", where);
}

static int read_rule(struct script *script, const struct json *json, size_t index, struct error *error)
{
	struct fault_rule *rule = &script->rules[index];
	const char *kind = json_get_text(json, "kind");
	double after_bytes = 0, times = 0x1p53;
	char where[64];

	snprintf(where, sizeof(where), "/faults/%zu", index);
	if (members_check(json, where, "on match times kind afterBytes status retryAfter exitCode ", error) != 0)
		return ERR_INVALID;
	rule->fault.status = 500;
	rule->fault.retry_after = -1;
	for (int i = FAULT_NONE + 1; i < FAULT_KIND_COUNT; i++) {
		if (kind != NULL && strcmp(kind, fault_names[i]) == 0)
			rule->fault.kind = (enum fault_kind)i;
	}
	if (rule->fault.kind == FAULT_NONE)
		return error_set(error, ERR_INVALID, "%s/kind: \"%.40s\" is no kind of fault", where, kind != NULL ? kind : "");
	if (json_get(json, "on") == NULL && json_get(json, "match") == NULL)
		return error_set(error, ERR_INVALID, "%s: needs \"on\" or \"match\"", where);
	if (json_get(json, "on") != NULL && read_on(script, rule, json_get(json, "on"), where, error) != 0)
		return ERR_INVALID;
	rule->match = json_get_text(json, "match");
	if (json_get(json, "match") != NULL && (rule->match == NULL || rule->match[0] == '\0'))
		return error_set(error, ERR_INVALID, "%s/match: must be a text that is not empty", where);
	if (read_integer(json, where, "times", 1, 0x1p53, &times, error) != 0 ||
	    read_integer(json, where, "afterBytes", 0, 0x1p53, &after_bytes, error) != 0 ||
	    read_int(json, where, "status", 400, 599, &rule->fault.status, error) != 0 ||
	    read_int(json, where, "retryAfter", 0, 86400, &rule->fault.retry_after, error) != 0)
		return ERR_INVALID;
	if (rule->fault.kind == FAULT_DIE) {
		rule->fault.status = 1;
		if (read_int(json, where, "exitCode", 0, 255, &rule->fault.status, error) != 0)
			return ERR_INVALID;
	}
	rule->times = (uint64_t)times;
	rule->fault.after_bytes = (uint64_t)after_bytes;
	return 0;
}

static int read_cadence(struct cadence *cadence, const struct json *json, struct error *error)
{
	static const char where[] = "/cadence";

	if (json == NULL)
		return 0;
	if (members_check(json, where, "firstByteMs chunkMs jitterMs pauseMs pingMs tokensPerChunk splitUtf8 ", error) != 0 ||
	    read_int(json, where, "firstByteMs", 0, SCRIPT_TIME_MAX_MS, &cadence->first_byte_ms, error) != 0 ||
	    read_int(json, where, "chunkMs", 0, SCRIPT_TIME_MAX_MS, &cadence->chunk_ms, error) != 0 ||
	    read_int(json, where, "jitterMs", 0, SCRIPT_TIME_MAX_MS, &cadence->jitter_ms, error) != 0 ||
	    read_int(json, where, "pauseMs", 0, SCRIPT_TIME_MAX_MS, &cadence->pause_ms, error) != 0 ||
	    read_int(json, where, "pingMs", 0, SCRIPT_TIME_MAX_MS, &cadence->ping_ms, error) != 0 ||
	    read_int(json, where, "tokensPerChunk", 1, 1000 * 1000, &cadence->tokens_per_chunk, error) != 0 ||
	    read_boolean(json, where, "splitUtf8", &cadence->split_utf8, error) != 0)
		return ERR_INVALID;
	return 0;
}

static int read_script(struct script *script, const struct json *json, enum kind_bit kind, struct error *error)
{
	const struct json *options = json_get(json, "options");
	const struct json *faults = json_get(json, "faults");
	double seed = (double)script->seed;

	if (members_check(json, "/", "seed model answer cadence options faults process ", error) != 0)
		return ERR_INVALID;
	if (json_get(json, "model") != NULL && json_get_text(json, "model") == NULL)
		return error_set(error, ERR_INVALID, "/model: must be a string");
	if (json_get_text(json, "model") != NULL)
		script->model = json_get_text(json, "model");
	if (read_integer(json, "", "seed", 0, 0x1p53 - 1, &seed, error) != 0)
		return ERR_INVALID;
	if (json_get(json, "seed") != NULL)
		script->seed = (uint64_t)seed;
	if (read_answers(script, json_get(json, "answer"), error) != 0 ||
	    read_cadence(&script->cadence, json_get(json, "cadence"), error) != 0)
		return ERR_INVALID;
	if (options != NULL && options_read(&script->options, options, kind, error) != 0)
		return ERR_INVALID;
	script->process = json_get(json, "process");
	if (faults == NULL)
		return 0;
	if (!json_is(faults, JSON_ARRAY) || json_count(faults) > SCRIPT_FAULTS_MAX)
		return error_set(error, ERR_INVALID, "/faults: must be a list of at most %d", SCRIPT_FAULTS_MAX);
	script->rule_count = json_count(faults);
	script->rules = arena_zero(&script->arena, (script->rule_count + 1) * sizeof(*script->rules));
	for (size_t i = 0; i < script->rule_count; i++) {
		if (read_rule(script, json_at(faults, i), i, error) != 0)
			return ERR_INVALID;
	}
	return 0;
}

struct script *script_new(struct bytes text, const struct script_defaults *defaults, struct error *error)
{
	struct script *script = memory_zero(sizeof(*script));
	const struct json *json;

	script->holders = 1;
	arena_init(&script->arena);
	script->options = *defaults->options;
	script->seed = defaults->seed;
	script->model = arena_text(&script->arena, defaults->model);
	script->cadence.first_byte_ms = defaults->delay_ms;
	script->cadence.tokens_per_chunk = 4;
	json = json_parse(&script->arena, text, JSON_STRICT, NULL, error);
	if (json == NULL || read_script(script, json, defaults->kind, error) != 0) {
		error_wrap(error, "script");
		goto fail;
	}
	return script;
fail:
	script_release(script);
	return NULL;
}

struct script *script_hold(struct script *script)
{
	script->holders++;
	return script;
}

void script_release(struct script *script)
{
	if (script == NULL || --script->holders > 0)
		return;
	arena_close(&script->arena);
	free(script);
}

/* ---- Choosing ---- */

static bool fits_ordinal(const struct fault_rule *rule, uint64_t ordinal)
{
	if (rule->every != 0)
		return ordinal % rule->every == 0;
	if (rule->ordinal_count == 0)
		return true;
	for (size_t i = 0; i < rule->ordinal_count; i++) {
		if (rule->ordinals[i] == ordinal)
			return true;
	}
	return false;
}

bool script_refuses(struct script *script, uint64_t ordinal)
{
	for (size_t i = 0; i < script->rule_count; i++) {
		struct fault_rule *rule = &script->rules[i];

		if (rule->match != NULL || rule->times == 0 || !fits_ordinal(rule, ordinal))
			continue;
		if (rule->fault.kind != FAULT_REFUSE)
			return false;
		rule->times--;
		return true;
	}
	return false;
}

struct fault script_choose_fault(struct script *script, uint64_t ordinal, struct bytes prompt)
{
	for (size_t i = 0; i < script->rule_count; i++) {
		struct fault_rule *rule = &script->rules[i];

		if (rule->times == 0 || !fits_ordinal(rule, ordinal))
			continue;
		if (rule->match != NULL && memmem(prompt.data, prompt.len, rule->match, strlen(rule->match)) == NULL)
			continue;
		rule->times--;
		return rule->fault;
	}
	return (struct fault){.kind = FAULT_NONE};
}
