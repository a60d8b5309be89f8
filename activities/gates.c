/* See gates.h. Loop thread. Start at gates_describe(). */
#include "activities/gates.h"

#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/base/reproducibility.h"

struct gate {
	struct list link; /* of the runtime, newest first */
	struct arena arena;
	const struct json *report;
	char id[DIGEST_HEX_LEN + 1];
};

static void free_gate(struct runtime *runtime, struct gate *gate)
{
	list_remove(&gate->link);
	runtime->gate_count--;
	arena_close(&gate->arena);
	free(gate);
}

void activities_note_gate(struct activities *activities, const struct digest *id, struct bytes report)
{
	struct gate *gate = memory_zero(sizeof(*gate));
	struct runtime *runtime;

	arena_init(&gate->arena);
	digest_hex(id, gate->id);
	gate->report = json_parse(&gate->arena, report, JSON_STORED, NULL, NULL);
	runtime = runtime_get(activities, json_get_text(gate->report, "runtime"));
	if (runtime == NULL || json_get_text(gate->report, "configuration") == NULL) { /* not configured any more; or it never answered */
		arena_close(&gate->arena);
		free(gate);
		return;
	}
	list_add_first(&runtime->gates, &gate->link);
	if (++runtime->gate_count > GATES_KEPT_MAX)
		free_gate(runtime, CONTAINER_OF(runtime->gates.prev, struct gate, link));
}

void gates_close(struct runtime *runtime)
{
	while (!list_empty(&runtime->gates))
		free_gate(runtime, CONTAINER_OF(runtime->gates.next, struct gate, link));
}

/* ---- What holds for an answer ---- */

static const char *cache_path_of(const struct inference *inference)
{
	return inference->answer.cached_tokens > 0 ? "prefix" : inference->answer.cached_tokens == 0 ? "none" : "unknown";
}

/* A gate that measured both paths, and found no other answer on the second one, holds for both. */
static bool is_cache_path(const char *measured, const char *path)
{
	if (measured != NULL && strcmp(measured, "any") == 0)
		return strcmp(path, "unknown") != 0;
	return measured != NULL && strcmp(measured, path) == 0;
}

static void add_if(struct arena *arena, struct json *differs, bool differ, const char *name)
{
	if (differ)
		json_add(arena, differs, json_text(arena, name));
}

/* The names of the conditions under which the answer was not given as the gate's were. */
static struct json *compare(const struct inference *inference, const struct json *report, struct arena *arena)
{
	const struct json *conditions = json_get(report, "conditions");
	const char *sampling = json_get_text(report, "sampling"), *cache = json_get_text(conditions, "cachePath"), *instance = json_get_text(conditions, "instance");
	struct digest digest = json_digest(inference->sampling_sent);
	struct json *differs = json_array(arena);
	char text[DIGEST_TEXT_LEN + 1];

	digest_text(&digest, text);
	add_if(arena, differs, sampling == NULL || strcmp(sampling, text) != 0, "sampling");
	add_if(arena, differs, json_get_boolean(conditions, "schema", false) != (inference->schema != NULL), "schema");
	/* A gate with several in flight has measured one alone as well. */
	add_if(arena, differs, json_get_number(conditions, "requestsInFlight", 1) < slot_company_max(&inference->slot), "requestsInFlight");
	/* The same configuration in another process is what the comparison is about; where nothing tells one from the other, neither do we. */
	add_if(arena, differs, strcmp(instance != NULL ? instance : "", inference->instance.id) != 0, "instance");
	add_if(arena, differs, !is_cache_path(cache, cache_path_of(inference)), "cachePath");
	return differs;
}

static bool is_listed(const struct json *list, const char *name)
{
	for (size_t i = 0; i < json_count(list); i++)
		if (json_is(json_at(list, i), JSON_STRING) && strcmp(json_at(list, i)->string.text, name) == 0)
			return true;
	return false;
}

/* The first condition that is another and must not be; NULL: none. Only the answer tells of the cache. */
static const char *first_objection(const struct json *differs, const struct json *may_differ, bool answered)
{
	for (size_t i = 0; i < json_count(differs); i++) {
		const char *condition = json_at(differs, i)->string.text;
		if (!is_listed(may_differ, condition) && (answered || strcmp(condition, "cachePath") != 0))
			return condition;
	}
	return NULL;
}

/* The newest gate of the configuration that was taken under the same conditions; else the newest one of which those differ alone that may; else the newest. */
static const struct gate *find_gate(const struct inference *inference, const struct digest *of, const struct json *may_differ, bool answered, struct arena *arena,
				    struct json **differs)
{
	const struct gate *found = NULL;
	bool fits = false;
	char configuration[DIGEST_TEXT_LEN + 1];

	digest_text(of, configuration);
	LIST_EACH(link, &inference->runtime->gates) {
		const struct gate *gate = CONTAINER_OF(link, struct gate, link);
		struct json *names;

		if (strcmp(json_get_text(gate->report, "configuration"), configuration) != 0)
			continue;
		names = compare(inference, gate->report, arena);
		bool is_exact = first_objection(names, NULL, answered) == NULL, fits_too = first_objection(names, may_differ, answered) == NULL;
		if (found == NULL || is_exact || (fits_too && !fits)) {
			found = gate;
			fits = fits_too;
			*differs = names;
		}
		if (is_exact)
			break;
	}
	return found;
}

struct json *gates_describe(const struct inference *inference, struct arena *arena)
{
	static const char *const copied[] = {"class", "requests", "distinct", "upperBound95", "measuredOn", "conditions"};
	struct json *json = json_object(arena), *differs = NULL;
	const struct gate *gate = find_gate(inference, &inference->configuration->digest, NULL, true, arena, &differs);

	if (gate == NULL) {
		json_set_text(arena, json, "class", reproducibility_class_name(CLASS_UNMEASURED));
		return json;
	}
	for (size_t i = 0; i < COUNT_OF(copied); i++)
		if (json_get(gate->report, copied[i]) != NULL)
			json_set(arena, json, copied[i], json_copy(arena, json_get(gate->report, copied[i])));
	json_set_text(arena, json, "applies", json_count(differs) == 0 ? "exact" : "conditions-differ");
	json_set(arena, json, "differs", differs);
	json_set_text(arena, json, "gate", gate->id);
	return json;
}

/* ---- What a definition demands ---- */

const char *gates_refuse(const struct inference *inference, const struct configuration *configuration, bool answered, struct arena *arena)
{
	const struct json *required = inference->required, *may_differ = json_get(required, "mayDiffer");
	const char *word = json_is(required, JSON_STRING) ? required->string.text : json_get_text(required, "class"), *name = inference->runtime->config.name;
	enum reproducibility_class wanted, measured;
	struct json *differs = NULL;
	const char *condition;
	const struct gate *gate;

	/* In the lane for itself alone works what measures, or relies on it. */
	if (configuration->is_remote && inference->slot.solo != NULL)
		return arena_printf(arena, "the model of runtime %s is computed on another machine (B.remote_host of its configuration record), where nobody can tell what answers: "
				    "nothing is measured of it; ask a model that the runtime itself has", name);
	if (required == NULL || required->type == JSON_NULL)
		return NULL;
	if (!reproducibility_class_parse(word, &wanted) || wanted < CLASS_UNSTABLE)
		return "requireClass is none of byte-stable, json-stable, solo-only and unstable";
	gate = find_gate(inference, &configuration->digest, may_differ, answered, arena, &differs);
	if (gate == NULL)
		return arena_printf(arena, "requireClass %s: the configuration of runtime %s is unmeasured; `reprise gate %s` measures it", word, name, name);
	CHECK(reproducibility_class_parse(json_get_text(gate->report, "class"), &measured));
	if (!reproducibility_holds(measured, wanted, inference->slot.solo != NULL))
		return arena_printf(arena, "requireClass %s: the configuration of runtime %s was measured as %s (gate %.12s)", word, name, json_get_text(gate->report, "class"), gate->id);
	condition = first_objection(differs, may_differ, answered);
	if (condition != NULL)
		return arena_printf(arena, "requireClass %s: gate %.12s of runtime %s was taken under another condition: %s; take one under this one, or list it in requireClass.mayDiffer", word,
				    gate->id, name, condition);
	return NULL;
}
