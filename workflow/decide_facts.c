/* A part of decide.c: a candidate of an answer becomes a statement to sign and a fact document. Read decide_record_facts(). */
#include "workflow/deciding.h"

#include <string.h>

#include "workflow/evidence/statement.h"

/* One signed statement and one fact document for a candidate. Returns the fact's id (hex). */
static const char *record_fact(struct deciding *d, const struct instance *instance, const char *step, const struct json *candidate, size_t index, size_t count)
{
	const struct outcome *outcome = d->trigger->outcome;
	const struct json *evidence = outcome->evidence;
	const struct definition *definition = d->draft.definition;
	struct arena *arena = d->arena;
	bool accepted = json_get_boolean(candidate, "accepted", false);

	struct json *fact = json_object(arena);
	json_set(arena, fact, "value", json_get(candidate, "value"));
	json_set(arena, fact, "quote", json_get(candidate, "quote"));
	struct digest subject = json_digest(fact);

	struct json *workflow = json_object(arena), *gate = json_object(arena), *daemon = json_object(arena);
	json_set_text(arena, workflow, "name", definition->name);
	json_set_text(arena, workflow, "namespace", definition->namespace);
	json_set_text(arena, workflow, "version", definition->version);
	json_set_digest(arena, workflow, "digest", &definition->digest);
	json_set_text(arena, gate, "result", accepted ? "PASSED" : "FAILED");
	json_set(arena, gate, "checks", json_get(candidate, "checks"));
	json_set_text(arena, daemon, "name", "reprise");
	json_set_text(arena, daemon, "version", d->context->daemon_version);

	const char *predicate = json_get_text(json_get(candidate, "value"), "predicate");
	struct statement_parts parts = {
		.subject_name = predicate && strlen(predicate) <= 128 ? arena_printf(arena, "fact:%s", predicate) : "fact",
		.subject = subject,
		.workflow = workflow,
		.step = instance->task->reference,
		.source = json_get(evidence, "source"),
		.prompt = json_get(evidence, "prompt"),
		.schema = json_get(evidence, "schema"),
		.sampling = json_get(evidence, "sampling"),
		.request = json_get(evidence, "request"),
		.model = json_get(evidence, "model"),
		.configuration = json_get(evidence, "configuration"),
		.reproducibility = json_get(evidence, "reproducibility"),
		.runtime = json_get(evidence, "runtime"),
		.response = json_get(evidence, "response"),
		.finish_reason = json_get_text(evidence, "finishReason"),
		.prompt_tokens = json_get_number(evidence, "promptTokens", -1),
		.completion_tokens = json_get_number(evidence, "completionTokens", -1),
		.fact_index = (unsigned)index,
		.fact_count = (unsigned)count,
		.gate = gate,
		.daemon = daemon,
		.journal = d->context->origin,
		.run_id = d->draft.id,
		.step_id = step,
		.attempt = instance->attempt,
		.started_ms = outcome->started_ms,
		.finished_ms = outcome->finished_ms,
		.signed_ms = d->trigger->wall_ms,
		.duration_ms = outcome->duration_ms,
		.clock = json_get(evidence, "clock"),
	};
	struct bytes payload = statement_build(arena, &parts);
	struct digest id = digest_of(payload);
	char *hex = arena_alloc(arena, DIGEST_HEX_LEN + 1), content[DIGEST_TEXT_LEN + 1];
	digest_hex(&id, hex);
	digest_text(&subject, content); /* no salt, positions or confidence in it: the content digest too */

	struct digest configuration;
	char configuration_text[DIGEST_TEXT_LEN + 1] = "";
	if (json_get_digest(parts.configuration, "digest", &configuration))
		digest_text(&configuration, configuration_text);
	const char *runtime = json_get_text(evidence, "runtimeName"), *class = json_get_text(parts.reproducibility, "class");
	struct json *document = json_copy(arena, candidate);
	json_set_text(arena, document, "contentDigest", content);
	json_set_text(arena, document, "run", d->draft.id);
	json_set_text(arena, document, "task", instance->task->reference);
	json_set_text(arena, document, "step", step);
	json_set_number(arena, document, "attempt", instance->attempt);
	json_set_text(arena, document, "runtime", runtime);
	json_set_text(arena, document, "model", json_get_text(parts.model, "name"));
	if (configuration_text[0])
		json_set_text(arena, document, "configuration", configuration_text);
	json_set_boolean(arena, document, "simulated", json_get_boolean(evidence, "simulated", false));
	if (json_get_boolean(parts.model, "unattested", false))
		json_set_boolean(arena, document, "unattested", true);
	if (parts.reproducibility)
		json_set(arena, document, "reproducibility", (struct json *)parts.reproducibility);

	struct entry *entry = decide_new_step_entry(d, ENTRY_FACT_RECORDED, step);
	json_set_number(arena, entry->data, "attempt", instance->attempt);
	json_set_number(arena, entry->data, "index", (double)index);
	json_set_text(arena, entry->data, "verdict", accepted ? "PASSED" : "FAILED");
	json_set_digest(arena, entry->data, "subject", &subject);
	json_set_text(arena, entry->data, "runtime", runtime);
	json_set_text(arena, entry->data, "class", class ? class : "unmeasured");
	struct digest source;
	if (digest_parse(json_get_text(candidate, "document") ? json_get_text(candidate, "document") : "", &source))
		json_set_digest(arena, entry->data, "document", &source);
	if (configuration_text[0])
		json_set_digest(arena, entry->data, "configuration", &configuration);
	entry->statement = payload;
	entry_add_value(arena, entry, "payload", payload);
	entry_add_value(arena, entry, "fact", json_print_arena(document, arena));
	decide_emit(d, entry);
	return hex;
}

const struct json *decide_record_facts(struct deciding *d, const struct instance *instance, const char *step)
{
	const struct outcome *outcome = d->trigger->outcome;
	struct json *output = json_copy(d->arena, outcome->output), *facts = json_array(d->arena);
	size_t count = json_count(outcome->facts), rejected = 0;

	for (size_t i = 0; i < count; i++) {
		const struct json *candidate = json_at(outcome->facts, i);
		const char *id = record_fact(d, instance, step, candidate, i, count);
		if (!json_get_boolean(candidate, "accepted", false)) {
			rejected++;
			continue;
		}
		struct json *fact = json_object(d->arena);
		json_set_text(d->arena, fact, "id", id);
		json_set(d->arena, fact, "value", json_get(candidate, "value"));
		json_set(d->arena, fact, "quote", json_get(candidate, "quote"));
		json_add(d->arena, facts, fact);
	}
	json_set(d->arena, output, "facts", facts);
	json_set_number(d->arena, output, "rejected", (double)rejected);
	return output;
}
