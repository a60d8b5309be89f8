/* See runtimes.h. Loop thread. In this order: slots; noting of records; probes; the questions of inferences; life. */
#include "activities/runtimes.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "activities/gates.h"
#include "activities/loading.h"
#include "activities/stream_watch.h"
#include "activities/supervisor.h"
#include "workflow/base/check.h"
#include "workflow/base/log.h"

/* Where the configuration names no limit. */
enum {
	CONNECT_MS = 5 * 1000,
	FIRST_TOKEN_MS = 120 * 1000,
	BETWEEN_TOKENS_MS = 30 * 1000,
	TOTAL_MS = 20 * 60 * 1000,
	ATTEMPTS = 3,
	PROBE_EVERY_MS = 5 * 60 * 1000,
	US_PER_MS = 1000,
	US_PER_S = 1000 * 1000,
	GPUS_WITHIN_MS = 5 * 1000, /* a driver that somebody else waits for is not waited for longer */
};

/* What a runtime tells about itself, asked step by step. */
struct probe {
	struct runtime *runtime; /* NULL: given up; the pool or the port is still out */
	struct activities *activities;
	struct arena arena;
	struct runtime_facts facts;
	char server[256];
	size_t index; /* of adapter->probes */
	struct transfer transfer;
	bool transferring, sending, timed_out;
	struct deadline *deadline;
	char *headers;
	bool weights_only_check; /* only look whether the weights are the ones; go on to ask if they are not */
	bool thorough; /* somebody asked for it: also what makes the model work */
	size_t field; /* of adapter->sampling: which one is sent with a value that cannot be */
	struct json *ignored;
	struct json *learned; /* fields that only a request tells which makes the model work */
	/* For the pool. */
	uv_work_t pool;
	bool local;
	struct gpus gpus;
	char *weights_path;
	bool weights_are_folder;
	struct weights weights;
	struct weights_progress progress;
	struct weights_reading *reading; /* under way; NULL: not begun, or over */
	struct listener listener;
	char host_name[256];
	unsigned port; /* 0: who listens there is not looked for, or was */
	struct error error;
};

/* Making a record durable. */
struct note {
	struct configuration_note note;
	struct activities *activities;
	struct runtime *runtime; /* NULL: given up */
	struct configuration *configuration;
	struct list waits;
	struct list link;
};

/* The host does not change while the process runs; read once, by the first probe's turn on the pool. */
static struct host host;
static uv_once_t host_once = UV_ONCE_INIT;

static void read_host(void)
{
	host_read(&host);
}

/* ---- Slots ---- */

static void give_slots(struct runtime_server *server);

static void on_wake(struct deadline *deadline)
{
	give_slots(deadline->owner);
}

static void wake_at(struct runtime_server *server, uint64_t at_us)
{
	struct activities *activities = server->activities;
	uint64_t now = now_us(activities);

	if (at_us == SLOT_NEVER || activities->closing) {
		deadline_free(activities, server->wake);
		server->wake = NULL;
		return;
	}
	if (server->wake == NULL)
		server->wake = deadline_new(activities, on_wake, server);
	deadline_start(server->wake, at_us > now ? (int64_t)((at_us - now + US_PER_MS - 1) / US_PER_MS) : 0);
}

bool runtime_has_budget(const struct runtime *runtime)
{
	return runtime->config.budget_tokens > 0 || runtime->config.budget_seconds > 0;
}

/* Whose day it is by now, and what was used in it. */
static void tell_spent(struct runtime *runtime)
{
	const struct activity_ports *ports = &runtime->activities->ports;

	if (runtime_has_budget(runtime))
		spending_tell(&runtime->spending, &runtime->queue, ports->wall_ms(ports->arg), now_us(runtime->activities));
}

static void give_slots(struct runtime_server *server)
{
	struct slot *slot;
	uint64_t wake_us;

	/* on_slot may fail at once and give its slot back: the outer call goes on with it, so that the stack stays flat. */
	if (server->giving_slots)
		return;
	server->giving_slots = true;
	LIST_EACH(link, &server->slots.queues)
		tell_spent(CONTAINER_OF(CONTAINER_OF(link, struct slot_queue, link), struct runtime, queue));
	while ((slot = slot_server_next(&server->slots, now_us(server->activities), &wake_us)) != NULL)
		slot->on_slot(slot);
	server->giving_slots = false;
	wake_at(server, wake_us);
}

static struct slot *find_refusable(const struct slot_queue *queue)
{
	for (unsigned priority = PRIORITY_COUNT; priority-- > 0;) {
		LIST_EACH(link, &queue->waiting[priority]) {
			struct slot *slot = CONTAINER_OF(link, struct slot, link);

			if (slot->on_lost != NULL)
				return slot;
		}
	}
	return NULL;
}

/* Each in its turn: what one of them does may take others out of the queue. */
static void refuse_waiting(struct runtime *runtime)
{
	struct slot *slot;

	while ((slot = find_refusable(&runtime->queue)) != NULL) {
		slot_queue_leave(&runtime->queue, slot, now_us(runtime->activities));
		slot->on_lost(slot, runtime->refusal, runtime->refusal_detail);
	}
	give_slots(runtime->server); /* the lane may have been kept for one of them */
}

void runtime_admit(struct runtime *runtime, enum runtime_admission admission, enum failure_class failure, const char *detail)
{
	runtime->admission = admission;
	runtime->queue.open = admission == RUNTIME_ADMITS;
	give_slots(runtime->server);
	if (admission != RUNTIME_REFUSES)
		return;
	runtime->refusal = failure;
	detail_set(runtime->refusal_detail, "%s", detail);
	refuse_waiting(runtime);
}

void runtime_lose(struct runtime *runtime, enum failure_class failure, const char *detail)
{
	struct list taken;

	/* Nobody gets the slots that come free: the queue is held. */
	CHECK(runtime->admission != RUNTIME_ADMITS);
	list_init(&taken);
	list_move_all(&taken, &runtime->queue.holding);
	while (!list_empty(&taken)) {
		struct slot *slot = CONTAINER_OF(taken.next, struct slot, link);

		list_remove(&slot->link);
		list_add_last(&runtime->queue.holding, &slot->link);
		if (slot->on_lost != NULL)
			slot->on_lost(slot, failure, detail);
	}
}

/* No day is long enough for it. True: it was told. */
static bool refuse_excess(struct runtime *runtime, struct slot *slot)
{
	char detail[ACTIVITY_DETAIL_MAX], prompt[64] = "";

	if (!slot_exceeds_budget(&runtime->queue, slot) || slot->on_lost == NULL)
		return false;
	if (slot->prompt_tokens > 0)
		snprintf(prompt, sizeof(prompt), "a prompt of %lld and ", (long long)slot->prompt_tokens);
	detail_set(detail, "the request may take %s%lld tokens (sampling.maxTokens), runtimes.%s.budget.tokens allows %lld in a whole day: ask for less, or raise it and restart the daemon",
		   prompt, (long long)slot->tokens, runtime->config.name, (long long)runtime->config.budget_tokens);
	slot->on_lost(slot, FAILURE_CONFIGURATION, detail);
	return true;
}

void runtime_queue(struct runtime *runtime, struct slot *slot)
{
	if (refuse_excess(runtime, slot))
		return;
	slot_queue_add(&runtime->queue, slot, now_us(runtime->activities));
	if (runtime->admission == RUNTIME_REFUSES)
		refuse_waiting(runtime);
	else
		give_slots(runtime->server);
}

void runtime_leave(struct runtime *runtime, struct slot *slot)
{
	const struct activity_ports *ports = &runtime->activities->ports;
	bool had = slot->waiting || slot->held, was_held = slot->held;

	slot_queue_leave(&runtime->queue, slot, now_us(runtime->activities));
	if (was_held && !slot->unasked) {
		spending_add(&runtime->spending, spent_day_of(ports->wall_ms(ports->arg)), slot->tokens_spent, (int64_t)slot->held_us);
		tell_spent(runtime);
	}
	if (runtime->activities->closing)
		slot_server_end_solo(&runtime->server->slots);
	if (had)
		give_slots(runtime->server);
}

void runtime_hold(struct runtime *runtime, int64_t for_ms)
{
	int64_t cap_ms = runtime->config.retry_cap_ms;

	slot_queue_hold(&runtime->queue, (for_ms < cap_ms ? for_ms : cap_ms) * US_PER_MS, now_us(runtime->activities));
	give_slots(runtime->server);
}

/* How many at once: as configured, or by what the record in force says. */
static void set_concurrency(struct runtime *runtime)
{
	const struct json *field = runtime->configuration != NULL ? json_get(json_get(runtime->configuration->record, "C"), "parallel") : NULL, *told = json_get(field, "value");
	const char *source = json_get_text(field, "source");
	unsigned before = runtime->queue.concurrency, concurrency = runtime->config.concurrency;

	snprintf(runtime->concurrency_basis, sizeof(runtime->concurrency_basis), "%s", "configured");
	runtime->concurrency_source[0] = '\0';
	if (runtime->config.concurrency_auto && json_is_integer(told) && told->number >= 1) {
		concurrency = told->number < RUNTIME_CONCURRENCY_MAX ? (unsigned)told->number : RUNTIME_CONCURRENCY_MAX;
		snprintf(runtime->concurrency_basis, sizeof(runtime->concurrency_basis), "%s", json_get_text(field, "basis"));
		snprintf(runtime->concurrency_source, sizeof(runtime->concurrency_source), "%.79s", source != NULL ? source : "");
	} else if (runtime->config.concurrency_auto) {
		concurrency = CONCURRENCY_UNTOLD;
		snprintf(runtime->concurrency_basis, sizeof(runtime->concurrency_basis), "%s", "unknown");
	}
	runtime->queue.concurrency = concurrency;
	if (concurrency != before && runtime->config.concurrency_auto && runtime->configuration != NULL)
		log_info(LOG_ACTIVITY, "runtime=%s takes %u requests at once (%s)", runtime->config.name, concurrency, runtime->concurrency_basis);
	if (concurrency > before)
		give_slots(runtime->server);
}

/* ---- Noting ---- */

static void answer_wait(struct configuration_wait *wait, struct configuration *configuration, enum failure_class failure,
			const char *detail)
{
	wait->configuration = configuration != NULL ? configuration_hold(configuration) : NULL;
	wait->failure = failure;
	detail_set(wait->detail, "%s", detail);
}

static void answer_waits(struct list *waits, struct configuration *configuration, enum failure_class failure, const char *detail)
{
	struct list taken;

	/* Taken out first: an answer may lead to a new wait, which is not for this answer. */
	list_init(&taken);
	list_move_all(&taken, waits);
	while (!list_empty(&taken)) {
		struct configuration_wait *wait = CONTAINER_OF(taken.next, struct configuration_wait, link);

		list_remove(&wait->link);
		answer_wait(wait, configuration, failure, detail);
		wait->on_done(wait);
	}
}

static void keep(struct runtime *runtime, struct configuration *configuration)
{
	list_add_last(&runtime->kept, &configuration_hold(configuration)->link);
	runtime->kept_count++;
	if (runtime->kept_count > CONFIGURATIONS_KEPT_MAX) {
		struct configuration *oldest = CONTAINER_OF(runtime->kept.next, struct configuration, link);

		list_remove(&oldest->link);
		runtime->kept_count--;
		configuration_release(oldest);
	}
}

static void forget_observed(struct runtime *runtime)
{
	arena_close(&runtime->observed_arena);
	runtime->ignored = runtime->learned = NULL;
}

bool runtime_reload_forgets(const struct runtime *runtime)
{
	return runtime->supervisor != NULL || runtime->process[0] == '\0';
}

void runtime_forget_learned(struct runtime *runtime)
{
	if (runtime->learned == NULL)
		return;
	forget_observed(runtime);
	runtime->known = false;
}

/* Field by field into the log: who answers here is what every fact rests on. */
static void tell_differences(struct runtime *runtime, const struct configuration *configuration)
{
	struct arena scratch;
	struct json *differences;
	struct buffer words;

	arena_init(&scratch);
	buffer_init(&words, DIFFERENCES_LEN_MAX);
	differences = configuration_differences(&scratch, runtime->configuration->record, configuration->record);
	if (configuration_contradicts(differences, &words)) {
		log_warn(LOG_ACTIVITY, "runtime=%s configuration changed: %s%s", runtime->config.name, buffer_text(&words), words.overflow ? " …" : "");
		forget_observed(runtime);
		runtime->cannot_count = false;
		runtime->without = 0;
	} else if (json_count(differences) > 0) {
		log_info(LOG_ACTIVITY, "runtime=%s more is known of its configuration: %zu fields", runtime->config.name, json_count(differences));
	}
	buffer_close(&words);
	arena_close(&scratch);
}

static void set_configuration(struct runtime *runtime, struct configuration *configuration)
{
	if (runtime->configuration != NULL && !digest_equal(&runtime->configuration->digest, &configuration->digest))
		tell_differences(runtime, configuration);
	configuration_hold(configuration);
	configuration_release(runtime->configuration);
	runtime->configuration = configuration;
	set_concurrency(runtime);
}

static void on_noted(struct configuration_note *done)
{
	struct note *note = CONTAINER_OF(done, struct note, note);
	struct activities *activities = note->activities;
	struct runtime *runtime = note->runtime;
	char detail[ACTIVITY_DETAIL_MAX];

	if (done->error.code == ERR_NONE) {
		note->configuration->noted = true;
		if (runtime != NULL)
			answer_waits(&note->waits, note->configuration, FAILURE_NONE, "");
	} else {
		if (runtime != NULL) {
			runtime->known = false;
			detail_set(detail, "the configuration record of runtime %s cannot be made durable: %s", runtime->config.name,
				   done->error.message);
			answer_waits(&note->waits, NULL, FAILURE_RUNTIME_ERROR, detail);
		}
		/* Not durable: the next one who needs it has to try again. */
		if (runtime != NULL && !list_empty(&note->configuration->link)) {
			list_remove(&note->configuration->link);
			runtime->kept_count--;
			configuration_release(note->configuration);
		}
	}
	CHECK(list_empty(&note->waits));
	configuration_release(note->configuration);
	free((void *)note->note.runtime);
	free((void *)note->note.record.data);
	list_remove(&note->link);
	free(note);
	outside_end(activities);
}

static struct note *find_note(const struct activities *activities, const struct configuration *configuration)
{
	LIST_EACH(link, &activities->notes) {
		struct note *note = CONTAINER_OF(link, struct note, link);

		if (note->configuration == configuration)
			return note;
	}
	return NULL;
}

/* Takes over the caller's hold. The one of the same digest that is already there, if there is one. Still held once. A record of which
 * more was observed takes the other's place, and is made durable in its turn. */
static struct configuration *find_same(struct runtime *runtime, struct configuration *configuration)
{
	LIST_EACH(link, &runtime->kept) {
		struct configuration *kept = CONTAINER_OF(link, struct configuration, link);
		const struct json *observed = json_get(configuration->record, "G");

		if (!digest_equal(&kept->digest, &configuration->digest))
			continue;
		if (observed == NULL || (json_get(kept->record, "G") != NULL && json_equal(observed, json_get(kept->record, "G")))) {
			configuration_release(configuration);
			return configuration_hold(kept);
		}
		list_remove(&kept->link);
		runtime->kept_count--;
		configuration_release(kept);
		break;
	}
	keep(runtime, configuration);
	return configuration;
}

/* All of `waits` get the configuration once it is durable. True: it is now, and they stay where they are. */
static bool require_noted(struct runtime *runtime, struct configuration *configuration, struct list *waits)
{
	struct activities *activities = runtime->activities;
	struct note *note;
	struct buffer record;

	if (configuration->noted)
		return true;
	note = find_note(activities, configuration);
	if (note != NULL) {
		list_move_all(&note->waits, waits);
		return false;
	}
	note = memory_zero(sizeof(*note));
	note->activities = activities;
	note->runtime = runtime;
	note->configuration = configuration_hold(configuration);
	list_init(&note->waits);
	list_move_all(&note->waits, waits);
	list_add_last(&activities->notes, &note->link);
	buffer_init(&record, ACTIVITY_BODY_MAX);
	json_print(configuration->record, &record);
	CHECK(!record.overflow);
	note->note.runtime = memory_text(runtime->config.name);
	note->note.digest = configuration->digest;
	note->note.record = buffer_bytes(&record); /* freed in on_noted() */
	note->note.on_done = on_noted;
	note->note.owner = note;
	outside_begin(activities);
	activities->ports.note_configuration(activities->ports.arg, &note->note);
	return false;
}

/* ---- Probes ---- */

static void next_step(struct probe *probe);
static void start_probe(struct runtime *runtime, bool weights_only_check);

static void free_probe(struct probe *probe)
{
	struct activities *activities = probe->activities;

	deadline_free(activities, probe->deadline);
	arena_close(&probe->arena);
	free(probe->headers);
	weights_reading_free(probe->reading);
	free(probe->weights_path);
	free(probe);
}

/* Those who wait for it go into `waits`; who asked meanwhile to be told of what holds from then on gets the next probe. */
static void end_probe(struct probe *probe, struct list *waits)
{
	struct runtime *runtime = probe->runtime;

	runtime->probe = NULL;
	free_probe(probe);
	list_init(waits);
	list_move_all(waits, &runtime->waits);
	list_move_all(&runtime->waits, &runtime->waits_next);
	if (!list_empty(&runtime->waits))
		start_probe(runtime, false);
}

static void fail_probe(struct probe *probe, enum failure_class failure, const char *detail)
{
	struct runtime *runtime = probe->runtime;
	char copy[ACTIVITY_DETAIL_MAX];
	struct list waits;

	detail_set(copy, "%s", detail);
	/* A server that does one thing at a time says nothing while it answers. */
	runtime_doubt(runtime, copy, failure == FAILURE_UNREACHABLE && !(probe->timed_out && runtime->queue.in_flight > 0));
	end_probe(probe, &waits);
	answer_waits(&waits, NULL, failure, copy);
}

/* What was learned by an earlier, thorough probe and is not told by a common one still holds, as long as nothing else is another. */
static void add_learned(struct probe *probe, const struct json *learned)
{
	for (size_t i = 0; i < json_count(learned); i++) {
		const struct json_member *group = &learned->object.members[i];

		for (size_t j = 0; j < json_count(group->value); j++) {
			const struct json_member *field = &group->value->object.members[j];

			if (json_get(json_get(probe->facts.fields, group->name), field->name) == NULL)
				facts_set(&probe->facts, arena_printf(&probe->arena, "%s.%s", group->name, field->name),
					  json_copy(&probe->arena, json_get(field->value, "value")), json_get_text(field->value, "source"));
		}
	}
}

/* The server still has the fingerprint that its last answer told, unless it is another by what was asked now. */
static struct configuration *make_configuration(struct probe *probe)
{
	struct runtime *runtime = probe->runtime;
	const struct configuration *before = runtime->configuration;
	struct configuration *configuration;
	struct configuration_input input = {
		.config = &runtime->config,
		.adapter = runtime->adapter,
		.facts = &probe->facts,
		.host = runtime->local && !probe->facts.is_remote ? &host : NULL,
		.gpus = &probe->gpus,
		.weights = &runtime->weights,
		.fingerprint = before != NULL ? before->fingerprint : NULL,
		.ignored = probe->ignored != NULL ? probe->ignored : runtime->ignored,
		.launched = supervisor_launched(runtime->supervisor),
	};
	struct json *told;
	struct buffer words;
	bool is_other;

	told = probe->facts.fields != NULL ? json_copy(&probe->arena, probe->facts.fields) : NULL;
	add_learned(probe, runtime->learned);
	configuration = configuration_new(&input);
	if (before == NULL || digest_equal(&before->digest, &configuration->digest))
		return configuration;
	buffer_init(&words, DIFFERENCES_LEN_MAX);
	is_other = configuration_contradicts(configuration_differences(&probe->arena, before->record, configuration->record), &words);
	buffer_close(&words);
	if (!is_other)
		return configuration;
	/* Another runtime: what was learned of the one before goes with its fingerprint. */
	configuration_release(configuration);
	input.fingerprint = NULL;
	input.ignored = probe->ignored;
	probe->facts.fields = told;
	add_learned(probe, probe->learned);
	return configuration_new(&input);
}

/* Which process answers, as far as can be told. A new one under the same configuration is worth a word: gates of the one before do not vouch for it. */
static void set_instance(struct probe *probe)
{
	struct runtime *runtime = probe->runtime;
	const struct activity_ports *ports = &runtime->activities->ports;
	struct runtime_instance instance;

	if (probe->facts.is_remote)
		instance_is_unknown(&instance, "the model is computed on another machine");
	else if (supervisor_instance(runtime->supervisor, &instance))
		;
	else if (runtime->local)
		instance_from_listener(&instance, &runtime->listener, ports->wall_ms(ports->arg));
	else
		instance_is_unknown(&instance, "the runtime is on another machine");
	if (strcmp(instance.id, runtime->process) != 0) {
		/* Another process under the same address may be another version: what a common probe does not tell was told by the one before. */
		if (runtime->process[0] != '\0')
			forget_observed(runtime);
		memcpy(runtime->process, instance.id, sizeof(runtime->process));
	}
	if (!probe->facts.is_remote)
		instance_add_model(&instance, probe->facts.instance, runtime->loaded_ms);
	/* Where no process can be seen a model that was unloaded or loaded since is all that shows of an update. */
	if (runtime->process[0] == '\0' && runtime->instance.id[0] != '\0' && strcmp(instance.id, runtime->instance.id) != 0)
		runtime_forget_learned(runtime);
	if (strcmp(instance.id, runtime->instance.id) == 0 && runtime->instance.basis != NULL)
		return; /* times of a process are taken once */
	if (runtime->instance.id[0] != '\0')
		log_info(LOG_ACTIVITY, "runtime=%s another instance answers: %s, before %s", runtime->config.name, instance.id[0] != '\0' ? instance.id : instance.source, runtime->instance.id);
	runtime->instance = instance;
	runtime->instance_requests = 0;
}

static void finish_probe(struct probe *probe);

/* On the pool. */
static void look_who_listens(uv_work_t *pool)
{
	struct probe *probe = CONTAINER_OF(pool, struct probe, pool);

	instance_measure(probe->host_name, probe->port, &probe->listener);
}

static void on_looked(uv_work_t *pool, int status)
{
	struct probe *probe = CONTAINER_OF(pool, struct probe, pool);
	struct activities *activities = probe->activities;

	(void)status;
	if (probe->runtime == NULL) {
		free_probe(probe);
	} else {
		probe->runtime->listener = probe->listener;
		probe->port = 0; /* done */
		finish_probe(probe);
	}
	outside_end(activities);
}

static void finish_probe(struct probe *probe)
{
	struct runtime *runtime = probe->runtime;
	struct configuration *configuration;
	struct list waits;

	/* Only now: who has answered listens. Before it another one may have, or nobody. */
	if (probe->port != 0) {
		outside_begin(probe->activities);
		CHECK(uv_queue_work(probe->activities->loop, &probe->pool, look_who_listens, on_looked) == 0);
		return;
	}
	probe->facts.server = probe->server;
	set_instance(probe); /* first: of another process nothing is known yet that only a thorough probe tells */
	configuration = find_same(runtime, make_configuration(probe));
	arena_close(&runtime->models_arena);
	runtime->models = probe->facts.models != NULL ? json_copy(&runtime->models_arena, probe->facts.models) : NULL;
	set_configuration(runtime, configuration);
	runtime->is_unloaded = probe->facts.is_unloaded && configuration->model != NULL;
	runtime->is_router = probe->facts.is_router;
	if (probe->ignored != NULL || probe->learned != NULL) {
		struct json *ignored = probe->ignored != NULL ? probe->ignored : runtime->ignored, *learned = probe->learned != NULL ? probe->learned : runtime->learned;
		struct arena kept;

		arena_init(&kept);
		ignored = ignored != NULL ? json_copy(&kept, ignored) : NULL;
		learned = learned != NULL ? json_copy(&kept, learned) : NULL;
		forget_observed(runtime);
		runtime->observed_arena = kept;
		runtime->ignored = ignored;
		runtime->learned = learned;
	}
	runtime->known = true;
	runtime_reached(runtime);
	end_probe(probe, &waits);
	if (require_noted(runtime, configuration, &waits))
		answer_waits(&waits, configuration, FAILURE_NONE, "");
	configuration_release(configuration);
}

/* ---- Probes: one request after the other ---- */

static bool is_in_probes(const struct probe *probe)
{
	return probe->index < ADAPTER_PROBES_MAX && probe->runtime->adapter->probes[probe->index].path != NULL;
}

/* The runtime was sent a field with a value that no runtime can use: who takes it takes no notice of the field. */
static void judge_field(struct probe *probe, int status)
{
	const struct sampling_field *field = &probe->runtime->adapter->sampling[probe->field];

	if (status == 200) {
		json_add(&probe->arena, probe->ignored, json_text(&probe->arena, field->ours));
	} else if (status == 0 || status == 401 || status == 403 || status == 404 || status == 429 || status >= 502) {
		/* It says nothing of the field, and will say nothing of the others. */
		probe->thorough = false;
		probe->ignored = NULL;
	}
	probe->field++;
}

static void on_probe_answer(struct transfer *transfer)
{
	struct probe *probe = transfer->owner;
	struct runtime *runtime = probe->runtime;
	char detail[ACTIVITY_DETAIL_MAX];
	bool first = probe->index == 0;
	const struct adapter_probe *step = &runtime->adapter->probes[first ? 0 : probe->index < ADAPTER_PROBES_MAX ? probe->index : 0];

	probe->transferring = false;
	deadline_stop(probe->deadline);
	if (!is_in_probes(probe)) {
		judge_field(probe, transfer->end == TRANSFER_COMPLETE ? transfer->status : 0);
		transfer_close(transfer);
		next_step(probe);
		return;
	}
	if (first && transfer->end != TRANSFER_COMPLETE) {
		enum failure_class failure = transfer->end == TRANSFER_NOT_TRUSTED ? FAILURE_CONFIGURATION : FAILURE_UNREACHABLE;

		if (transfer->end == TRANSFER_TOO_LARGE)
			detail_set(detail, "runtime %s answers GET %s with more than %d bytes, the limit (PROBE_BODY_MAX)", runtime->config.name, step->path, PROBE_BODY_MAX);
		else
			detail_set(detail, "runtime %s does not answer at %s: %s", runtime->config.name, runtime->config.url, transfer->detail);
		transfer_close(transfer);
		fail_probe(probe, failure, detail);
		return;
	}
	/* 502 and 503: started, but not ready, or only the gateway is there. Any other status is a server without this path. */
	if (first && (transfer->status == 502 || transfer->status == 503)) {
		detail_set(detail, "runtime %s is not ready: GET %s answered %d", runtime->config.name, step->path, transfer->status);
		transfer_close(transfer);
		fail_probe(probe, FAILURE_UNREACHABLE, detail);
		return;
	}
	if (first)
		transfer_header(transfer, "Server", probe->server, sizeof(probe->server));
	if (transfer->end == TRANSFER_COMPLETE && transfer->status == 200 && step->read != NULL) {
		struct json *fields = probe->facts.fields;

		if (step->generates)
			probe->facts.fields = NULL;
		step->read(buffer_bytes(&transfer->received), &probe->facts);
		if (step->generates) {
			probe->learned = probe->facts.fields;
			probe->facts.fields = fields;
			add_learned(probe, probe->learned);
		}
	}
	transfer_close(transfer);
	probe->index++;
	next_step(probe);
}

static int64_t connect_limit(const struct runtime *runtime)
{
	return runtime->config.connect_ms < PROBE_TIMEOUT_MS ? runtime->config.connect_ms : PROBE_TIMEOUT_MS;
}

static void on_probe_sending(struct transfer *transfer)
{
	struct probe *probe = transfer->owner;

	probe->sending = true;
	deadline_start(probe->deadline, PROBE_TIMEOUT_MS);
}

static void on_probe_due(struct deadline *deadline)
{
	struct probe *probe = deadline->owner;
	struct runtime *runtime = probe->runtime;
	char detail[ACTIVITY_DETAIL_MAX];

	CHECK(probe->transferring);
	transfer_cancel(&probe->transfer);
	transfer_close(&probe->transfer);
	probe->transferring = false;
	probe->timed_out = true;
	if (!is_in_probes(probe)) {
		judge_field(probe, 0);
		next_step(probe);
		return;
	}
	if (probe->index > 0) {
		probe->index++;
		next_step(probe);
		return;
	}
	if (!probe->sending)
		detail_set(detail, "runtime %s: no connection to %s within %lld ms (%s)", runtime->config.name, runtime->config.url,
			   (long long)connect_limit(runtime), connect_limit(runtime) < PROBE_TIMEOUT_MS ? "timeouts.connect" : "PROBE_TIMEOUT_MS");
	else
		detail_set(detail, "runtime %s: GET %s had no answer within %d ms (PROBE_TIMEOUT_MS)", runtime->config.name,
			   runtime->adapter->probes[0].path, PROBE_TIMEOUT_MS);
	fail_probe(probe, FAILURE_UNREACHABLE, detail);
}

static void ask(struct probe *probe, const char *path, const struct json *body)
{
	struct runtime *runtime = probe->runtime;
	struct activities *activities = probe->activities;
	struct error error;

	if (probe->headers == NULL)
		probe->headers = memory_text(runtime_headers(runtime, &probe->arena, "Content-Type: application/json\n"));
	probe->transfer = (struct transfer){
		.method = body != NULL ? "POST" : "GET",
		.url = arena_printf(&probe->arena, "%s%s", runtime->config.url, path),
		.headers = probe->headers,
		.body = body != NULL ? json_print_arena(body, &probe->arena) : (struct bytes){0},
		.has_body = body != NULL,
		.body_max = PROBE_BODY_MAX,
		.secrets = &runtime->secrets,
		.on_sending = on_probe_sending,
		.on_done = on_probe_answer,
		.owner = probe,
	};
	probe->sending = false;
	if (probe->deadline == NULL)
		probe->deadline = deadline_new(activities, on_probe_due, probe);
	if (transfer_start(activities->curl, &probe->transfer, &error) != 0) {
		transfer_close(&probe->transfer);
		fail_probe(probe, FAILURE_CONFIGURATION, error.message);
		return;
	}
	probe->transferring = true;
	deadline_start(probe->deadline, connect_limit(runtime));
}

/* A request for one token in which one field has a value of a type that it cannot have: an object, or a text where it is one. */
static struct json *make_trial(struct probe *probe, const char *field)
{
	struct arena *arena = &probe->arena;
	const struct runtime *runtime = probe->runtime;
	enum sampling_type type = sampling_rule_find(field)->type;
	struct json *messages = json_array(arena), *message = json_object(arena), *sampling = json_object(arena), *wrong = json_object(arena);
	struct inference_request request = {
		.model = facts_model(&probe->facts),
		.messages = messages,
		.sampling = sampling,
		.context_length = runtime->config.context_length,
		.without = runtime->without,
	};

	json_set_text(arena, message, "role", "user");
	json_set_text(arena, message, "content", "Hi");
	json_add(arena, messages, message);
	json_set_number(arena, sampling, "maxTokens", 1);
	json_set_text(arena, wrong, "reprise", "probe");
	json_set(arena, sampling, field, type == SAMPLING_OBJECT || type == SAMPLING_BIAS ? json_text(arena, "reprise probe") : wrong);
	return runtime->adapter->make_request(arena, &request);
}

/* Somebody else may listen by now where a process of ours did, who is not to get its key. */
static void end_unasked(struct probe *probe)
{
	const struct runtime *runtime = probe->runtime;
	char detail[ACTIVITY_DETAIL_MAX];
	struct list waits;

	detail_set(detail, "runtime %s is not running now, so it is not asked; see `reprise runtime show %s`", runtime->config.name, runtime->config.name);
	end_probe(probe, &waits);
	answer_waits(&waits, NULL, FAILURE_UNREACHABLE, detail);
}

static void next_step(struct probe *probe)
{
	const struct runtime_adapter *adapter = probe->runtime->adapter;
	const struct sampling_field *field;

	if (!supervisor_is_up(probe->runtime->supervisor)) {
		end_unasked(probe);
		return;
	}
	while (is_in_probes(probe)) {
		const struct adapter_probe *step = &adapter->probes[probe->index];
		struct json *body = step->make_body != NULL ? step->make_body(&probe->facts) : NULL;
		const char *path = step->make_path != NULL ? step->make_path(&probe->facts) : step->path;

		if ((!step->generates || (probe->thorough && !probe->facts.is_unloaded)) && (step->make_body == NULL || body != NULL) && path != NULL) {
			ask(probe, path, body);
			return;
		}
		probe->index++;
	}
	if (probe->thorough && adapter->finds_ignored)
		probe->ignored = probe->facts.ignored;
	if (!probe->thorough || probe->facts.is_unloaded || adapter->finds_ignored) {
		finish_probe(probe);
		return;
	}
	if (probe->ignored == NULL)
		probe->ignored = json_array(&probe->arena);
	field = &adapter->sampling[probe->field];
	if (field->ours == NULL)
		finish_probe(probe);
	else
		ask(probe, adapter->request_path, make_trial(probe, field->ours));
}

/* On the pool: reading /proc is quick but may not be, and weights are large: a slice of them at a time, since the pool has four threads. */
static void read_files(uv_work_t *pool)
{
	struct probe *probe = CONTAINER_OF(pool, struct probe, pool);

	if (probe->reading == NULL) {
		struct error error;

		uv_once(&host_once, read_host);
		if (probe->local && !probe->gpus.known)
			memory_probe_gpus(GPUS_WITHIN_MS, &probe->gpus, &error); /* unknown then */
		if (probe->weights_path == NULL)
			return;
		if (probe->weights_only_check && weights_same(probe->weights_path, probe->weights_are_folder, &probe->weights))
			return;
		probe->weights_only_check = false;
		probe->reading = weights_reading_new(probe->weights_path, probe->weights_are_folder, &probe->weights, &probe->progress);
	}
	if (weights_reading_go_on(probe->reading, &probe->error)) {
		weights_reading_free(probe->reading);
		probe->reading = NULL;
	}
}

static void on_files_read(uv_work_t *pool, int status)
{
	struct probe *probe = CONTAINER_OF(pool, struct probe, pool);
	struct activities *activities = probe->activities;
	struct runtime *runtime = probe->runtime;

	(void)status;
	if (runtime == NULL) {
		free_probe(probe);
		outside_end(activities);
		return;
	}
	if (probe->reading != NULL) {
		CHECK(uv_queue_work(activities->loop, pool, read_files, on_files_read) == 0);
		return;
	}
	runtime->weights = probe->weights;
	runtime->weights_checked_us = now_us(activities);
	if (probe->error.code != ERR_NONE) {
		runtime->weights.known = false;
		/* A file that changes right now may be at rest for the next attempt. */
		fail_probe(probe, probe->error.code == ERR_BUSY ? FAILURE_RUNTIME_ERROR : FAILURE_CONFIGURATION, probe->error.message);
	} else if (probe->weights_only_check && runtime->known) {
		struct configuration *configuration = configuration_hold(runtime->configuration);
		struct list waits;

		end_probe(probe, &waits);
		if (require_noted(runtime, configuration, &waits))
			answer_waits(&waits, configuration, FAILURE_NONE, "");
		configuration_release(configuration);
	} else {
		next_step(probe);
	}
	outside_end(activities);
}

static const char *weights_path(const struct runtime_config *config)
{
	return config->weights_file != NULL ? config->weights_file : config->weights_folder;
}

static void start_probe(struct runtime *runtime, bool weights_only_check)
{
	struct activities *activities = runtime->activities;
	struct probe *probe = memory_zero(sizeof(*probe));

	probe->runtime = runtime;
	probe->activities = activities;
	arena_init(&probe->arena);
	probe->facts.arena = &probe->arena;
	probe->facts.wanted = runtime->config.model;
	probe->facts.context_length = runtime->config.context_length;
	probe->weights = runtime->weights;
	probe->weights_path = weights_path(&runtime->config) != NULL ? memory_text(weights_path(&runtime->config)) : NULL;
	probe->weights_are_folder = runtime->config.weights_folder != NULL;
	probe->weights_only_check = weights_only_check;
	probe->local = runtime->local;
	probe->listener = runtime->listener;
	memcpy(probe->host_name, runtime->host_name, sizeof(probe->host_name));
	probe->port = runtime->local && runtime->supervisor == NULL ? url_port(runtime->config.url) : 0;
	probe->thorough = runtime->thorough_next;
	runtime->thorough_next = false;
	runtime->probe = probe;
	outside_begin(activities);
	CHECK(uv_queue_work(activities->loop, &probe->pool, read_files, on_files_read) == 0);
}

static void give_up_probe(struct runtime *runtime)
{
	struct probe *probe = runtime->probe;

	if (probe == NULL)
		return;
	runtime->probe = NULL;
	probe->runtime = NULL;
	atomic_store(&probe->progress.stop, true);
	if (probe->transferring) {
		transfer_cancel(&probe->transfer);
		transfer_close(&probe->transfer);
		free_probe(probe);
	} /* else on the pool: on_files_read() frees it */
}

bool runtime_hashing(const struct runtime *runtime, double *done, double *total)
{
	if (runtime->probe == NULL)
		return false;
	*total = (double)atomic_load(&runtime->probe->progress.total);
	*done = (double)atomic_load(&runtime->probe->progress.done);
	return *total > 0;
}

static void on_probe_time(struct deadline *deadline)
{
	struct runtime *runtime = deadline->owner;

	/* One that the daemon launches is asked when it is ready; until then somebody else may be at its address, who is not to get its key. */
	if (runtime->probe == NULL && runtime->admission == RUNTIME_ADMITS)
		start_probe(runtime, false);
	deadline_start(deadline, runtime->config.probe_every_ms);
}

void runtimes_watch(struct activities *activities)
{
	for (size_t i = 0; i < activities->runtime_count; i++) {
		struct runtime *runtime = activities->runtimes[i];

		CHECK(runtime->schedule == NULL);
		runtime->schedule = deadline_new(activities, on_probe_time, runtime);
		on_probe_time(runtime->schedule);
	}
}

/* ---- Questions ---- */

bool runtime_configure(struct runtime *runtime, struct configuration_wait *wait, enum runtime_ask how)
{
	bool check_weights = weights_path(&runtime->config) != NULL &&
			     now_us(runtime->activities) - runtime->weights_checked_us > (uint64_t)WEIGHTS_CHECK_MS * US_PER_MS;
	struct list waits;

	list_init(&wait->link);
	wait->configuration = NULL;
	if (runtime->probe == NULL && runtime->known && how == ASK_IF_UNKNOWN && !check_weights) {
		list_init(&waits);
		list_add_last(&waits, &wait->link);
		if (!require_noted(runtime, runtime->configuration, &waits))
			return false;
		list_remove(&wait->link);
		answer_wait(wait, runtime->configuration, FAILURE_NONE, "");
		return true;
	}
	runtime->thorough_next |= how == ASK_THOROUGHLY;
	/* One that is under way began before now: what it found may be over. */
	list_add_last(how != ASK_IF_UNKNOWN && runtime->probe != NULL ? &runtime->waits_next : &runtime->waits, &wait->link);
	if (runtime->probe == NULL)
		start_probe(runtime, runtime->known && how == ASK_IF_UNKNOWN);
	return false;
}

bool runtime_confirm(struct runtime *runtime, struct configuration_wait *wait, struct configuration *used, const char *server,
		     const char *fingerprint)
{
	struct configuration *configuration;
	struct list waits;
	bool ready;

	list_init(&wait->link);
	wait->configuration = NULL;
	if (used->server != NULL && strcmp(used->server, server) != 0) {
		runtime->known = false;
		return runtime_configure(runtime, wait, ASK_ANEW);
	}
	if (fingerprint == NULL || (used->fingerprint != NULL && strcmp(used->fingerprint, fingerprint) == 0)) {
		answer_wait(wait, used, FAILURE_NONE, "");
		return true;
	}
	configuration = find_same(runtime, configuration_with_fingerprint(used, fingerprint));
	/* What comes next is asked under it, unless a probe has meanwhile found another one. */
	if (runtime->configuration != NULL && digest_equal(&runtime->configuration->digest, &used->digest))
		set_configuration(runtime, configuration);
	list_init(&waits);
	list_add_last(&waits, &wait->link);
	ready = require_noted(runtime, configuration, &waits);
	if (ready) {
		list_remove(&wait->link);
		answer_wait(wait, configuration, FAILURE_NONE, "");
	}
	configuration_release(configuration);
	return ready;
}

void runtime_give_up(struct configuration_wait *wait)
{
	list_remove(&wait->link);
}

void runtime_doubt(struct runtime *runtime, const char *why, bool unreachable)
{
	if (unreachable && runtime->reach != RUNTIME_UNREACHABLE)
		log_warn(LOG_ACTIVITY, "runtime=%s unreachable: %s", runtime->config.name, why);
	runtime->known = false;
	if (unreachable)
		runtime->reach = RUNTIME_UNREACHABLE;
	if (unreachable && runtime->process[0] == '\0') /* it may come back as another version, and nothing would tell */
		runtime_forget_learned(runtime);
	detail_set(runtime->last_error, "%s", why);
	supervisor_doubt(runtime->supervisor, unreachable);
}

void runtime_reached(struct runtime *runtime)
{
	if (runtime->reach == RUNTIME_UNREACHABLE)
		log_info(LOG_ACTIVITY, "runtime=%s reachable again", runtime->config.name);
	runtime->reach = RUNTIME_REACHABLE;
	runtime->last_error[0] = '\0';
}

void runtime_is_gone(struct runtime *runtime)
{
	struct probe *probe = runtime->probe;

	runtime->known = false;
	runtime->reach = RUNTIME_UNKNOWN;
	runtime->instance = (struct runtime_instance){0};
	if (probe == NULL || !probe->transferring)
		return; /* its next step sees it */
	/* Not to be sent again on another connection. */
	transfer_cancel(&probe->transfer);
	transfer_close(&probe->transfer);
	probe->transferring = false;
	deadline_stop(probe->deadline);
	end_unasked(probe);
}

bool runtime_erred(struct runtime *runtime, const char *key)
{
	if (strlen(key) < RUNTIME_ERRED_KEY_LEN)
		return false;
	for (size_t i = 0; i < RUNTIME_ERRED_MAX; i++)
		if (memcmp(runtime->erred[i], key, RUNTIME_ERRED_KEY_LEN) == 0) {
			memset(runtime->erred[i], 0, RUNTIME_ERRED_KEY_LEN);
			if (runtime->probe == NULL && runtime->admission == RUNTIME_ADMITS && !runtime->activities->closing)
				start_probe(runtime, false);
			return true;
		}
	memcpy(runtime->erred[runtime->erred_next], key, RUNTIME_ERRED_KEY_LEN);
	runtime->erred_next = (runtime->erred_next + 1) % RUNTIME_ERRED_MAX;
	return false;
}

char *runtime_headers(const struct runtime *runtime, struct arena *arena, const char *more)
{
	const char *key = runtime->config.api_key;

	return arena_printf(arena, "User-Agent: %s\n%s%s%s%s", runtime->activities->user_agent, key != NULL ? "Authorization: Bearer " : "",
			    key != NULL ? key : "", key != NULL ? "\n" : "", more);
}

/* ---- Life ---- */

static bool is_local(const char *host_name)
{
	struct in_addr address; /* "127.example.com" is a name like another */

	return strcmp(host_name, "localhost") == 0 || strcmp(host_name, "::1") == 0 ||
	       (inet_pton(AF_INET, host_name, &address) == 1 && ntohl(address.s_addr) >> 24 == 127);
}

static int64_t or_default(int64_t value, int64_t fallback)
{
	return value > 0 ? value : fallback;
}

static const char *copy_or_null(const char *text)
{
	return text != NULL ? memory_text(text) : NULL;
}

static struct runtime_server *find_server(struct activities *activities, const char *url)
{
	for (size_t i = 0; i < activities->runtime_count; i++)
		if (strcmp(activities->runtimes[i]->config.url, url) == 0)
			return activities->runtimes[i]->server;
	return NULL;
}

static void open_queue(struct runtime *runtime)
{
	const struct runtime_config *config = &runtime->config;
	struct runtime_server *server = find_server(runtime->activities, runtime->config.url);

	if (server == NULL) {
		server = memory_zero(sizeof(*server));
		server->activities = runtime->activities;
		slot_server_init(&server->slots);
	}
	server->holders++;
	runtime->server = server;
	slot_queue_init(&runtime->queue, &server->slots, config->model != NULL ? config->model : "");
	if (config->loaded_models > 0) /* all of a server say the same: daemon/config.c */
		server->slots.models_max = config->loaded_models;
	else if (server->slots.models_max == 0)
		server->slots.models_max = runtime->adapter->loaded_models;
	runtime->queue.requests = (struct slot_rate){.limit = config->rate_requests, .per_us = config->rate_per_ms * US_PER_MS};
	runtime->queue.tokens = (struct slot_rate){.limit = config->rate_tokens, .per_us = config->rate_per_ms * US_PER_MS};
	runtime->queue.budget.tokens_max = config->budget_tokens;
	runtime->queue.budget.us_max = config->budget_seconds * US_PER_S;
	set_concurrency(runtime);
}

static void close_queue(struct runtime *runtime)
{
	struct runtime_server *server = runtime->server;

	slot_queue_close(&runtime->queue);
	if (--server->holders > 0)
		return;
	CHECK(server->wake == NULL);
	free(server);
}

static int open_runtime(struct activities *activities, const struct runtime_config *config, struct runtime **result, struct error *error)
{
	const struct runtime_adapter *adapter = runtime_adapter_get(config->kind);
	struct runtime *runtime;
	char host_name[sizeof(runtime->host_name)];
	char *url;
	size_t len;

	if (adapter == NULL)
		return error_set(error, ERR_UNSUPPORTED, "runtime %s: there is no kind \"%.40s\"; there are %s", config->name, config->kind,
				 runtime_adapter_kinds());
	if (!url_check(config->url, host_name, error))
		return error_wrap(error, "runtime %s: url", config->name);
	if (config->concurrency > RUNTIME_CONCURRENCY_MAX)
		return error_set(error, ERR_INVALID, "runtime %s: concurrency %u is above %d", config->name, config->concurrency,
				 RUNTIME_CONCURRENCY_MAX);
	if (config->api_key != NULL && strpbrk(config->api_key, "\r\n") != NULL)
		return error_set(error, ERR_INVALID, "runtime %s: the key holds a line break", config->name);
	url = memory_text(config->url);
	len = strlen(url);
	while (len > 0 && url[len - 1] == '/')
		url[--len] = '\0';
	runtime = memory_zero(sizeof(*runtime));
	runtime->activities = activities;
	runtime->config = *config;
	runtime->config.url = url;
	runtime->config.name = memory_text(config->name);
	runtime->config.kind = memory_text(config->kind);
	runtime->config.model = copy_or_null(config->model);
	runtime->config.weights_file = copy_or_null(config->weights_file);
	runtime->config.weights_folder = copy_or_null(config->weights_folder);
	runtime->config.probe_every_ms = or_default(config->probe_every_ms, PROBE_EVERY_MS);
	runtime->config.concurrency = config->concurrency > 0 ? config->concurrency : 1;
	runtime->config.connect_ms = or_default(config->connect_ms, CONNECT_MS);
	runtime->config.first_token_ms = or_default(config->first_token_ms, FIRST_TOKEN_MS);
	runtime->config.between_tokens_ms = or_default(config->between_tokens_ms, BETWEEN_TOKENS_MS);
	runtime->config.total_ms = or_default(config->total_ms, TOTAL_MS);
	runtime->config.retry_attempts = config->retry_attempts > 0 ? config->retry_attempts : ATTEMPTS;
	runtime->config.retry_floor_ms = or_default(config->retry_floor_ms, RETRY_FLOOR_MS);
	runtime->config.retry_cap_ms = or_default(config->retry_cap_ms, RETRY_CAP_MS);
	if (config->watch_white_space == 0)
		runtime->config.watch_white_space = WATCH_WHITE_SPACE;
	if (config->watch_loop_bytes == 0)
		runtime->config.watch_loop_bytes = WATCH_LOOP_BYTES;
	if (config->api_key != NULL)
		secret_texts_add(&runtime->secrets, config->api_key);
	runtime->adapter = adapter;
	runtime->local = is_local(host_name);
	memcpy(runtime->host_name, host_name, sizeof(host_name));
	list_init(&runtime->gates);
	open_queue(runtime);
	list_init(&runtime->kept);
	list_init(&runtime->waits);
	list_init(&runtime->waits_next);
	arena_init(&runtime->observed_arena);
	arena_init(&runtime->models_arena);
	*result = runtime;
	return 0;
}

int runtimes_open(struct activities *activities, const struct runtime_config *configs, size_t count, struct error *error)
{
	if (count > RUNTIMES_MAX)
		return error_set(error, ERR_TOO_LARGE, "there are %zu runtimes; at most %d are possible", count, RUNTIMES_MAX);
	activities->runtimes = memory_zero((count + 1) * sizeof(*activities->runtimes));
	for (size_t i = 0; i < count; i++) {
		if (open_runtime(activities, &configs[i], &activities->runtimes[i], error) != 0) {
			runtimes_close(activities);
			return (int)error->code;
		}
		activities->runtime_count++;
	}
	return 0;
}

void runtimes_stop(struct activities *activities)
{
	for (size_t i = 0; i < activities->runtime_count; i++) {
		struct runtime *runtime = activities->runtimes[i];

		deadline_free(activities, runtime->schedule);
		runtime->schedule = NULL;
		supervisor_end(runtime->supervisor);
		loading_end(runtime->loading);
		give_up_probe(runtime);
		wake_at(runtime->server, SLOT_NEVER);
		list_move_all(&runtime->waits, &runtime->waits_next);
		answer_waits(&runtime->waits, NULL, FAILURE_INTERRUPTED, "the daemon stops");
		LIST_EACH(link, &activities->notes) {
			struct note *note = CONTAINER_OF(link, struct note, link);

			if (note->runtime == runtime) {
				note->runtime = NULL;
				answer_waits(&note->waits, NULL, FAILURE_INTERRUPTED, "the daemon stops");
			}
		}
	}
}

void runtimes_close(struct activities *activities)
{
	for (size_t i = 0; i < activities->runtime_count; i++) {
		struct runtime *runtime = activities->runtimes[i];

		CHECK(runtime->probe == NULL);
		close_queue(runtime);
		supervisor_free(runtime->supervisor);
		loading_free(runtime->loading);
		while (!list_empty(&runtime->kept)) {
			struct configuration *configuration = CONTAINER_OF(runtime->kept.next, struct configuration, link);

			list_remove(&configuration->link);
			configuration_release(configuration);
		}
		configuration_release(runtime->configuration);
		gates_close(runtime);
		arena_close(&runtime->models_arena);
		arena_close(&runtime->observed_arena);
		secret_texts_close(&runtime->secrets);
		free((void *)runtime->config.url);
		free((void *)runtime->config.name);
		free((void *)runtime->config.kind);
		free((void *)runtime->config.model);
		free((void *)runtime->config.weights_file);
		free((void *)runtime->config.weights_folder);
		free(runtime);
	}
	free(activities->runtimes);
	activities->runtimes = NULL;
	activities->runtime_count = 0;
}

struct runtime *runtime_get(const struct activities *activities, const char *name)
{
	for (size_t i = 0; i < activities->runtime_count && name != NULL; i++)
		if (strcmp(activities->runtimes[i]->config.name, name) == 0)
			return activities->runtimes[i];
	return NULL;
}

/* The one that is an insertion, a deletion, a change or the case of letters away; NULL: none. */
static const char *find_similar(const struct activities *activities, const char *name)
{
	for (size_t i = 0; i < activities->runtime_count; i++) {
		const char *known = activities->runtimes[i]->config.name;
		size_t name_len = strlen(name), known_len = strlen(known), same = 0;

		while (name[same] != '\0' && name[same] == known[same])
			same++;
		if (strcasecmp(name, known) == 0)
			return known;
		if (name_len < 2 || known_len < 2) /* one change makes any letter any other */
			continue;
		if ((name_len == known_len + 1 && strcmp(name + same + 1, known + same) == 0) ||
		    (name_len + 1 == known_len && strcmp(name + same, known + same + 1) == 0) ||
		    (name_len == known_len && strcmp(name + same + 1, known + same + 1) == 0))
			return known;
	}
	return NULL;
}

int runtime_refuse_name(const struct activities *activities, const char *name, struct error *error)
{
	const char *similar = find_similar(activities, name);
	struct buffer names;

	if (activities->runtime_count == 0)
		return error_set(error, ERR_NOT_FOUND, "no runtime '%.60s' is configured, and no other; runtimes: in the configuration file names them",
				 name);
	buffer_init(&names, 2 * RUNTIMES_NAMED_LEN_MAX);
	for (size_t i = 0; i < activities->runtime_count; i++) {
		if (names.len + strlen(activities->runtimes[i]->config.name) > RUNTIMES_NAMED_LEN_MAX) {
			buffer_printf(&names, "%sand %zu more", i > 0 ? " " : "", activities->runtime_count - i);
			break;
		}
		buffer_printf(&names, "%s%s%s", i > 0 ? " " : "", activities->runtimes[i]->config.name, i + 1 < activities->runtime_count ? "," : "");
	}
	error_set(error, ERR_NOT_FOUND, "no runtime '%.60s' is configured; configured: %s%s%s%s", name, buffer_text(&names),
		  similar != NULL ? "; did you mean '" : "", similar != NULL ? similar : "", similar != NULL ? "'?" : "");
	buffer_close(&names);
	return ERR_NOT_FOUND;
}
