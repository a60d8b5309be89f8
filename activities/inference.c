/* See inference.h. Loop thread. */
#include "activities/inference.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timex.h>

#include "activities/gates.h"
#include "activities/supervisor.h"
#include "workflow/base/check.h"

enum { WAITED_TOLD_MIN_US = 1000, SALT_LEN = 32 /* of hexadecimal digits, half a digest: nobody has it by chance */ };

/* ---- Sampling ---- */

static bool add_sampling(struct arena *arena, const struct runtime *runtime, struct json *result, const struct json *from, struct error *error)
{
	if (from == NULL || from->type == JSON_NULL)
		return true;
	if (from->type != JSON_OBJECT) {
		error_set(error, ERR_INVALID, "sampling is not an object");
		return false;
	}
	for (size_t i = 0; i < json_count(from); i++) {
		const struct json_member *member = &from->object.members[i];
		const struct sampling_rule *rule = sampling_rule_find(member->name);
		struct sampling_fault fault;

		/* A call takes away what the configuration says; what the kind sends where nobody says anything is sent then. */
		if (rule != NULL && json_is(member->value, JSON_NULL)) {
			json_remove(result, member->name);
			continue;
		}
		if (rule != NULL && !sampling_check(rule, member->value, NULL, &fault)) {
			error_set(error, ERR_INVALID, "sampling.%s%s%s: %s", member->name, fault.inside[0] != '\0' ? "/" : "", fault.inside, fault.why);
			return false;
		}
		if (!adapter_check_sampling(runtime->adapter, member->name, member->value, &fault)) {
			error_set(error, ERR_INVALID, "sampling.%.60s: runtime %s (kind %s) %s", member->name, runtime->config.name, runtime->config.kind, fault.why);
			return false;
		}
		json_set(arena, result, member->name, rule->type == SAMPLING_SEED ? json_number(arena, sampling_seed(member->value)) : json_copy(arena, member->value));
	}
	return true;
}

struct json *inference_sampling(struct arena *arena, const struct runtime *runtime, const struct json *overlay, struct error *error)
{
	struct json *result = json_object(arena);

	if (!add_sampling(arena, runtime, result, runtime->config.sampling, error) || !add_sampling(arena, runtime, result, overlay, error))
		return NULL;
	for (const struct sampling_field *field = runtime->adapter->sampling; field->ours != NULL; field++)
		if (field->unset != NULL && json_get(result, field->ours) == NULL)
			json_set(arena, result, field->ours, sampling_field_unset(arena, field));
	return result;
}

/* ---- Ends ---- */

static void stop_deadlines(struct inference *inference)
{
	struct activities *activities = inference->work->activities;

	deadline_free(activities, inference->phase);
	deadline_free(activities, inference->total);
	inference->phase = inference->total = NULL;
}

static void keep_bodies(struct inference *inference)
{
	struct activity *activity = inference->work->activity;

	if (!inference->transfer_open)
		return;
	activity->result.response = arena_bytes(&activity->arena, buffer_bytes(&inference->transfer.received));
	activity->result.status = inference->transfer.status;
	activity->result.retry_after_ms = inference->transfer.retry_after_ms;
	inference->work->connections = inference->connections + inference->transfer.connections;
	transfer_close(&inference->transfer);
	inference->transfer_open = false;
}

struct json *inference_usage(const struct inference *inference, struct arena *arena)
{
	const struct answer *answer = &inference->answer;
	struct json *usage = json_object(arena);

	if (answer->prompt_tokens >= 0)
		json_set_number(arena, usage, "promptTokens", answer->prompt_tokens);
	if (answer->completion_tokens >= 0)
		json_set_number(arena, usage, "completionTokens", answer->completion_tokens);
	if (answer->cached_tokens >= 0)
		json_set_number(arena, usage, "cachedTokens", answer->cached_tokens);
	if (answer->reasoning_tokens >= 0)
		json_set_number(arena, usage, "reasoningTokens", answer->reasoning_tokens);
	return json_count(usage) > 0 ? usage : NULL;
}

/* What the runtime says was in force stands beside what was asked, and where the two differ is said (C76). */
static void write_effective(struct inference *inference, struct json *record)
{
	struct arena *arena = &inference->work->activity->arena;
	const struct json *effective = inference->answer.effective;
	struct json *sampling = json_get(record, "sampling"), *differs = json_array(arena);

	if (effective == NULL || sampling == NULL)
		return;
	json_set(arena, sampling, "effective", json_copy(arena, effective));
	for (size_t i = 0; i < json_count(inference->sampling); i++) {
		const struct json_member *member = &inference->sampling->object.members[i];
		const struct json *asked = member->value, *told = json_get(effective, adapter_sampling_field(inference->runtime->adapter, member->name)->wire);

		/* What is told in another form cannot be compared. All is 0 and -1. */
		if (told == NULL || told->type != asked->type || (strcmp(member->name, "topK") == 0 && asked->number <= 0 && told->number <= 0))
			continue;
		if (!sampling_is_in_force(asked, told))
			json_add(arena, differs, json_text(arena, member->name));
	}
	if (json_count(differs) > 0)
		json_set(arena, sampling, "differs", differs);
}

static const struct watch_verdict *watch_verdict(const struct stream_watch *watch)
{
	return watch != NULL && stream_watch_verdict(watch)->check != WATCH_FINE ? stream_watch_verdict(watch) : NULL;
}

/* Where the watch ended the answer, and what that may have saved: each piece is a token at least, so no more than were left of the limit. */
static void write_watch(const struct inference *inference, struct json *record)
{
	struct arena *arena = &inference->work->activity->arena;
	const struct watch_verdict *text = watch_verdict(inference->text_watch), *verdict = text != NULL ? text : watch_verdict(inference->reasoning_watch);
	double limit = json_get_number(inference->sampling, "maxTokens", 0);
	struct json *watch;

	if (verdict == NULL)
		return;
	if (limit <= 0 && inference->sent_under->context_length > 0 && inference->counted_tokens >= 0)
		limit = inference->sent_under->context_length - inference->counted_tokens;
	watch = json_object(arena);
	json_set_text(arena, watch, "check", watch_check_name(verdict->check));
	json_set_text(arena, watch, "of", text != NULL ? "text" : "reasoning");
	json_set_number(arena, watch, "at", (double)verdict->at);
	if (verdict->check == WATCH_COMPLETE)
		json_set_number(arena, watch, "valueEnd", (double)verdict->value_end);
	json_set_number(arena, watch, "pieces", inference->pieces);
	if (limit > inference->pieces)
		json_set_number(arena, watch, "savedTokensAtMost", limit - inference->pieces);
	json_set(arena, record, "watch", watch);
}

/* Short, for every attempt has it: the rest is told by the runtime and by the statements of its facts. */
static void write_instance(const struct inference *inference, struct json *record)
{
	const struct runtime_instance *instance = &inference->instance;
	struct arena *arena = &inference->work->activity->arena;
	struct json *json;

	if (instance->id[0] == '\0') {
		json_set(arena, record, "instance", instance_json(arena, instance));
		return;
	}
	json = json_object(arena);
	json_set_text(arena, json, "id", instance->id);
	json_set_text(arena, json, "basis", instance->basis);
	json_set(arena, record, "instance", json);
}

static void write_record(struct inference *inference)
{
	struct arena *arena = &inference->work->activity->arena;
	struct json *record = work_record(inference->work), *usage = inference_usage(inference, arena);
	const struct configuration *configuration = inference->configuration != NULL ? inference->configuration : inference->sent_under;

	json_set_text(arena, record, "runtime", inference->runtime->config.name);
	json_set_text(arena, record, "finishReason", inference->answer.finish_reason);
	json_set_text(arena, record, "model", inference->answer.model);
	if (usage != NULL)
		json_set(arena, record, "usage", usage);
	if (inference->answer.timings != NULL)
		json_set(arena, record, "timings", json_copy(arena, inference->answer.timings));
	if (inference->counted_tokens >= 0)
		json_set_number(arena, record, "promptTokensCounted", inference->counted_tokens);
	/* What an answer may depend on beside the request (runtimes.md 10, G): how many were in flight at its server when it began, and which of its process it was. */
	if (inference->ordinal > 0)
		json_set_number(arena, record, "inFlight", inference->slot.in_flight);
	if (inference->ordinal > 0 && inference->instance.id[0] != '\0')
		json_set_number(arena, record, "requestOfInstance", (double)inference->ordinal);
	if (inference->without != 0) {
		struct json *left_out = json_array(arena);

		json_add(arena, left_out, json_text(arena, "stream_options"));
		json_set(arena, record, "leftOut", left_out);
	}
	if (inference->salt != NULL) {
		const struct adapter_bypass *bypass = &inference->runtime->adapter->bypass;
		struct json *cache = json_object(arena);

		json_set_text(arena, cache, "bypass", bypass->name);
		json_set_text(arena, cache, "salt", bypass->is_salted ? inference->salt : NULL);
		json_set(arena, record, "cache", cache);
	}
	write_effective(inference, record);
	write_watch(inference, record);
	if (inference->sent_again > 0)
		json_set_number(arena, record, "sentAgain", inference->sent_again);
	if (inference->schema != NULL && (inference->rung != SCHEMA_FULL || inference->refused != NULL)) {
		struct json *schema = json_object(arena);

		json_set_text(arena, schema, "sent", schema_rung_name(inference->rung));
		if (inference->refused != NULL)
			json_set(arena, schema, "refused", inference->refused);
		json_set(arena, record, "schema", schema);
	}
	if (configuration != NULL) {
		json_set_digest(arena, record, "configuration", &configuration->digest);
		if (configuration->simulated)
			json_set_boolean(arena, record, "simulated", true);
		write_instance(inference, record);
	}
}

/* Nobody needs to know any more who else may have answered. */
static void end_recheck(struct inference *inference)
{
	if (inference->recheck_state == RECHECK_OUT)
		runtime_give_up(&inference->recheck);
	configuration_release(inference->recheck.configuration);
	inference->recheck.configuration = NULL;
	inference->recheck_state = RECHECK_NONE;
}

/* The one way to the end, but for cancelling. */
static void finish(struct inference *inference)
{
	struct activity *activity = inference->work->activity;

	CHECK(inference->state != INFERENCE_OVER);
	inference->state = INFERENCE_OVER;
	end_recheck(inference);
	if (inference->failure != FAILURE_NONE && activity->result.active_from_us != 0 && activity->result.active_until_us == 0)
		activity->result.active_until_us = now_us(inference->work->activities);
	write_record(inference);
	if (inference->failure == FAILURE_NONE) {
		const char *why = gates_refuse(inference, inference->configuration, true, &activity->arena);

		inference->reproducibility = gates_describe(inference, &activity->arena);
		if (why != NULL) {
			inference->failure = FAILURE_CONFIGURATION;
			detail_set(inference->detail, "%s", why);
		}
	}
	inference->on_done(inference);
}

static void fail(struct inference *inference, enum failure_class failure, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void fail(struct inference *inference, enum failure_class failure, const char *format, ...)
{
	va_list args;

	inference->failure = failure;
	va_start(args, format);
	detail_print(inference->detail, format, args);
	va_end(args);
	finish(inference);
}

/* As the runtime told it; else as far as is known without it: the prompt, where it was counted beforehand, and a token for each piece that came. */
static int64_t tokens_spent(const struct inference *inference)
{
	const struct answer *answer = &inference->answer;
	double prompt = answer->prompt_tokens, completion = answer->completion_tokens, tokens;

	if (completion < 0 && inference->work->activity->result.status >= 400)
		return 0; /* no model was at work: a runtime that refuses is not to use up a limit */
	if (prompt < 0)
		prompt = inference->counted_tokens > 0 ? inference->counted_tokens : 0;
	if (completion < 0)
		completion = inference->pieces;
	tokens = prompt + completion;
	return tokens < SPENT_TOKENS_MAX ? (int64_t)tokens : SPENT_TOKENS_MAX;
}

/* The connection is given up or over: bodies kept, deadlines gone, the slot free. */
static void leave_wire(struct inference *inference)
{
	struct spent *spent = &inference->work->activity->result.spent;
	/* Where a rung of the schema was refused, something was sent, even if the next one was not. */
	bool was_held = inference->slot.held, was_sent = inference->phase_kind > PHASE_CONNECT || inference->refused != NULL;
	int64_t tokens;

	stop_deadlines(inference);
	keep_bodies(inference);
	tokens = was_sent ? tokens_spent(inference) : 0;
	/* Not known: it may have been all that it asked for. */
	if (!was_sent || inference->answer.completion_tokens >= 0 || inference->work->activity->result.status >= 400)
		inference->slot.tokens_used = tokens;
	inference->slot.unasked = !was_sent;
	inference->slot.tokens_spent = tokens;
	runtime_leave(inference->runtime, &inference->slot);
	if (was_held && was_sent)
		*spent = (struct spent){arena_text(&inference->work->activity->arena, inference->runtime->config.name), tokens, (int64_t)inference->slot.held_us}; /* the runtime may be closed before it is read */
}

/* ---- After the answer ---- */

static void confirm(struct inference *inference);

/* Was the request sent under the same configuration as this one? More may be known by now, but nothing be another. */
static bool holds(struct inference *inference, const struct configuration *configuration)
{
	struct arena *arena = &inference->work->activity->arena;
	struct json *differences;
	struct buffer words;
	bool is_other;

	if (digest_equal(&configuration->digest, &inference->sent_under->digest))
		return true;
	differences = configuration_differences(arena, inference->sent_under->record, configuration->record);
	buffer_init(&words, DIFFERENCES_LEN_MAX);
	is_other = configuration_contradicts(differences, &words);
	if (is_other) {
		json_set(arena, work_record(inference->work), "changed", differences);
		fail(inference, FAILURE_RUNTIME_ERROR, "runtime %s is another than the one that was asked: %s", inference->runtime->config.name,
		     buffer_text(&words));
	}
	buffer_close(&words);
	return !is_other;
}

/* Who answers behind a new connection is asked beside the attempt. */
static void on_rechecked(struct configuration_wait *wait)
{
	struct inference *inference = CONTAINER_OF(wait, struct inference, recheck);

	inference->recheck_state = RECHECK_DONE;
	if (inference->state == INFERENCE_CONFIRMING)
		confirm(inference);
}

static void start_recheck(struct inference *inference)
{
	inference->recheck.on_done = on_rechecked;
	inference->recheck_state = RECHECK_OUT;
	CHECK(!runtime_configure(inference->runtime, &inference->recheck, ASK_ANEW));
}

static void on_confirmed(struct configuration_wait *wait)
{
	struct inference *inference = CONTAINER_OF(wait, struct inference, wait);
	struct configuration *configuration = wait->configuration;

	wait->configuration = NULL;
	if (configuration == NULL) {
		fail(inference, wait->failure, "%s", wait->detail);
		return;
	}
	inference->configuration = configuration; /* released by inference_close() */
	if (!holds(inference, configuration))
		return;
	if (configuration->server != NULL && strcmp(configuration->server, inference->server) != 0) {
		fail(inference, FAILURE_RUNTIME_ERROR, "runtime %s changes its Server header from answer to answer; who answered is not known",
		     inference->runtime->config.name);
		return;
	}
	finish(inference);
}

static void confirm(struct inference *inference)
{
	struct configuration_wait *recheck = &inference->recheck;
	const struct activity_ports *ports = &inference->work->activities->ports;
	/* Not every runtime says that it loaded the model first, nor does a quick load show: an answer of one that was not loaded tells as well. */
	bool loaded = inference->answer.loaded || (inference->was_unloaded && inference->runtime->is_unloaded);

	inference->state = INFERENCE_CONFIRMING;
	/* A model that was loaded for this request: only now can be told how. And a server that does one thing at a time says who it is
	 * only after its answer. */
	if (!inference->asked_again && ((inference->recheck_state == RECHECK_NONE && loaded) ||
					 (inference->recheck_state == RECHECK_DONE && (recheck->configuration == NULL || loaded)))) {
		end_recheck(inference);
		inference->asked_again = true;
		if (loaded)
			inference->runtime->loaded_ms = ports->wall_ms(ports->arg);
		start_recheck(inference);
	}
	if (inference->recheck_state == RECHECK_OUT)
		return;
	if (inference->recheck_state == RECHECK_DONE) {
		if (recheck->configuration == NULL) {
			fail(inference, recheck->failure, "who answered is not known: %s", recheck->detail);
			return;
		}
		if (!holds(inference, recheck->configuration))
			return;
		configuration_release(inference->sent_under);
		inference->sent_under = recheck->configuration;
		if (strcmp(inference->instance.id, inference->runtime->instance.id) != 0)
			inference->ordinal = ++inference->runtime->instance_requests;
		inference->instance = inference->runtime->instance; /* who is behind the new connection */
		recheck->configuration = NULL;
		inference->recheck_state = RECHECK_NONE;
	}
	inference->wait.on_done = on_confirmed;
	if (runtime_confirm(inference->runtime, &inference->wait, inference->sent_under, inference->server, inference->answer.fingerprint))
		on_confirmed(&inference->wait);
}

/* ---- Guards ---- */

static bool is_same_model(const struct inference *inference, const char *asked, const char *answered)
{
	const struct runtime_adapter *adapter = inference->runtime->adapter;
	const struct json *card = inference->sent_under->card, *aliases = json_get(card, "aliases");

	if (strcmp(asked, answered) == 0 || (adapter->is_model != NULL && adapter->is_model(asked, answered)))
		return true;
	if (card != NULL && strcmp(json_get_text(card, "id"), answered) == 0)
		return true;
	for (size_t i = 0; i < json_count(aliases); i++)
		if (strcmp(json_at(aliases, i)->string.text, answered) == 0)
			return true;
	return false;
}

/* A prompt that was cut silently gives an answer like any other (C77). */
static bool check_tokens(struct inference *inference)
{
	struct answer *answer = &inference->answer;
	double told = answer->prompt_tokens, length = inference->sent_under->context_length;

	if (answer->cut_prompt)
		return answer_fail(answer, FAILURE_TRUNCATED, "the runtime says that it cut the prompt; send smaller sections, or give it a longer context");
	if (told >= 0 && inference->counted_tokens >= 0 && told + PROMPT_TOKENS_SLACK < inference->counted_tokens)
		return answer_fail(answer, FAILURE_TRUNCATED, "the prompt has %.0f tokens by the runtime's own count, but it read only %.0f: it was cut",
				   inference->counted_tokens, told);
	if (told >= 0 && length > 0 && told + (answer->completion_tokens > 0 ? answer->completion_tokens : 0) > length)
		return answer_fail(answer, FAILURE_TRUNCATED, "prompt and answer have %.0f tokens, the context of %.0f holds fewer: something was cut",
				   told + (answer->completion_tokens > 0 ? answer->completion_tokens : 0), length);
	return true;
}

/* Is it of the launch that the daemon made, and of the weights that the runtime told? Both can be changed behind one address, the weights within one process. */
static bool check_launch(struct inference *inference)
{
	const struct configuration *sent_under = inference->sent_under;
	struct answer *answer = &inference->answer;
	const char *told = answer->fingerprint != NULL ? answer->fingerprint : "none";

	if (sent_under->launch_fingerprint != NULL && strcmp(sent_under->launch_fingerprint, told) != 0)
		return answer_fail(answer, FAILURE_RUNTIME_ERROR, "it is another launch that answered: it was started with the fingerprint %.100s, the answer has %.100s",
				   sent_under->launch_fingerprint, told);
	if (sent_under->weight_version != NULL && answer->weight_version != NULL && strcmp(sent_under->weight_version, answer->weight_version) != 0) {
		answer_fail(answer, FAILURE_RUNTIME_ERROR, "its weights have changed: version %.100s before, %.100s in the answer", sent_under->weight_version, answer->weight_version);
		runtime_doubt(inference->runtime, answer->detail, false);
		return false;
	}
	return true;
}

/* Why an answer ended that is none: OpenAI's words, SGLang's and vLLM's, and those of LM Studio's own APIs (runtimes.md 2, 3c, 5c, 7). */
static const struct {
	const char *reason;
	enum failure_class failure;
	const char *says, *advice;
} bad_ends[] = {
	{"length", FAILURE_TRUNCATED, "the answer was cut at the token limit", "; raise sampling.maxTokens or send smaller sections"},
	{"maxPredictedTokensReached", FAILURE_TRUNCATED, "the answer was cut at the token limit", "; raise sampling.maxTokens or send smaller sections"},
	{"contextLengthReached", FAILURE_TRUNCATED, "the answer was cut where the context ends", "; send smaller sections, or give the runtime a longer context"},
	{"content_filter", FAILURE_REFUSED, "the runtime's content filter held the answer back", ""},
	{"tool_calls", FAILURE_REFUSED, "the model calls a tool and does not answer", "; none was offered to it: see what the runtime adds to the prompt"},
	{"function_call", FAILURE_REFUSED, "the model calls a tool and does not answer", "; none was offered to it: see what the runtime adds to the prompt"},
	{"toolCalls", FAILURE_REFUSED, "the model calls a tool and does not answer", "; none was offered to it: see what the runtime adds to the prompt"},
	{"abort", FAILURE_RUNTIME_ERROR, "the runtime gave up its answer", ""},
	{"error", FAILURE_RUNTIME_ERROR, "the runtime gave up its answer", ""},
	{"failed", FAILURE_RUNTIME_ERROR, "the runtime gave up its answer", ""},
	{"userStopped", FAILURE_RUNTIME_ERROR, "somebody stopped the answer at the runtime", ""},
	{"modelUnloaded", FAILURE_RUNTIME_ERROR, "the model was unloaded in the middle of the answer", ""},
};

/* What a complete, well-formed answer may still be: another model's, cut off, given up. */
static bool check_answer(struct inference *inference)
{
	struct answer *answer = &inference->answer;
	const char *reason = answer->finish_reason, *asked = inference->sent_under->model, *told[] = {answer->model, answer->other_model};

	for (size_t i = 0; i < COUNT_OF(told); i++)
		if (asked != NULL && told[i] != NULL && !is_same_model(inference, asked, told[i]))
			return answer_fail(answer, FAILURE_WRONG_MODEL, "model %.100s was asked for, but %.100s answered; see what the runtime has loaded",
					   asked, told[i]);
	if (asked == NULL && answer->other_model != NULL)
		return answer_fail(answer, FAILURE_WRONG_MODEL, "one answer is of two models, %.100s and %.100s; name the one to ask (model)", answer->model,
				   answer->other_model);
	if (answer->computed_by != NULL && !inference->sent_under->is_remote)
		return answer_fail(answer, FAILURE_WRONG_MODEL, "a model of runtime %s was asked, but %.100s computed the answer; see what the runtime has under that name",
				   inference->runtime->config.name, answer->computed_by);
	/* Every kind gives one, in a stream and in one piece (runtimes.md 2 to 8): without it nobody knows that the answer is whole. */
	if (reason == NULL)
		return answer_fail(answer, FAILURE_TRUNCATED, "the %s without a finish reason%s; what came is not used",
				   inference->body_kind == BODY_STREAM ? "stream ended" : "answer came",
				   answer->ended ? "" : " and without its end marker");
	for (size_t i = 0; i < COUNT_OF(bad_ends); i++)
		if (strcmp(reason, bad_ends[i].reason) == 0)
			return answer_fail(answer, bad_ends[i].failure, "%s (finish_reason %s)%s", bad_ends[i].says, reason, bad_ends[i].advice);
	if (inference->body_kind == BODY_STREAM && inference->runtime->adapter->has_end_marker && !answer->ended)
		return answer_fail(answer, FAILURE_TRUNCATED, "the stream ended without its end marker; what came is not used");
	return check_launch(inference) && check_tokens(inference);
}

static bool is_space(uint8_t c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool finish_stream(struct inference *inference)
{
	return inference->runtime->adapter->stream == STREAM_LINES ? lines_finish(&inference->lines) : sse_finish(&inference->sse);
}

static void fail_large_event(struct inference *inference)
{
	static_assert((int)SSE_EVENT_MAX == (int)LINES_LINE_MAX, "one text says both");
	answer_fail(&inference->answer, FAILURE_RUNTIME_ERROR, "an event of the stream is larger than %d bytes (SSE_EVENT_MAX)", SSE_EVENT_MAX);
}

static void read_end(struct inference *inference)
{
	struct answer *answer = &inference->answer;
	struct transfer *transfer = &inference->transfer;
	struct bytes body = buffer_bytes(&transfer->received);

	if (transfer->status != 200) {
		inference->runtime->adapter->read_failure(answer, transfer->status, body);
		return;
	}
	switch (inference->body_kind) {
	case BODY_UNSEEN:
		answer_fail(answer, FAILURE_RUNTIME_ERROR, "the runtime answered 200 with an empty body");
		return;
	case BODY_OTHER:
		answer_fail(answer, FAILURE_RUNTIME_ERROR, "the answer is neither an event stream nor JSON: %.*s",
			    (int)(body.len < INFERENCE_DETAIL_TEXT_MAX ? body.len : INFERENCE_DETAIL_TEXT_MAX), (const char *)body.data);
		return;
	case BODY_WHOLE:
		if (!inference->runtime->adapter->read_whole(answer, body))
			return;
		break;
	case BODY_STREAM:
		if (!finish_stream(inference) && answer->failure == FAILURE_NONE)
			fail_large_event(inference);
		break;
	}
	if (answer->failure == FAILURE_NONE)
		check_answer(inference);
}

static void read_transfer(struct inference *inference)
{
	struct answer *answer = &inference->answer;
	struct transfer *transfer = &inference->transfer;
	struct runtime *runtime = inference->runtime;
	bool complete = transfer->end == TRANSFER_COMPLETE;

	/* After the end marker nothing can be missing, whatever the connection does. */
	if (answer->ended && answer->failure == FAILURE_NONE)
		complete = true;
	if (complete) {
		read_end(inference);
		return;
	}
	switch (transfer->end) {
	case TRANSFER_COMPLETE:
	case TRANSFER_STOPPED:
		if (answer->failure == FAILURE_NONE)
			fail_large_event(inference);
		break;
	case TRANSFER_NOT_CONNECTED:
	case TRANSFER_NOT_ALLOWED:
		answer_fail(answer, FAILURE_UNREACHABLE, "runtime %s cannot be reached at %s: %s", runtime->config.name, runtime->config.url,
			    transfer->detail);
		break;
	case TRANSFER_NOT_TRUSTED:
		answer_fail(answer, FAILURE_CONFIGURATION, "runtime %s: %s", runtime->config.name, transfer->detail);
		break;
	case TRANSFER_BROKEN:
		if (transfer->status == 0)
			answer_fail(answer, FAILURE_UNREACHABLE, "runtime %s closed the connection without an answer: %s", runtime->config.name,
				    transfer->detail);
		else
			answer_fail(answer, FAILURE_RUNTIME_ERROR, "the connection broke off after %zu bytes of the answer: %s",
				    transfer->received.len, transfer->detail);
		break;
	case TRANSFER_TOO_LARGE:
		answer_fail(answer, FAILURE_RUNTIME_ERROR, "the response is larger than %d bytes (ACTIVITY_BODY_MAX)", ACTIVITY_BODY_MAX);
		break;
	}
}

static void tell_text(struct inference *inference)
{
	const struct activity_ports *ports = &inference->work->activities->ports;
	struct activity *activity = inference->work->activity;
	struct bytes text = buffer_bytes(&inference->answer.text), reasoning = buffer_bytes(&inference->answer.reasoning);

	if (ports->on_text == NULL)
		return;
	if (reasoning.len > inference->reasoning_told)
		ports->on_text(ports->arg, activity, (struct bytes){reasoning.data + inference->reasoning_told, reasoning.len - inference->reasoning_told}, true);
	if (text.len > inference->text_told)
		ports->on_text(ports->arg, activity, (struct bytes){text.data + inference->text_told, text.len - inference->text_told}, false);
	inference->reasoning_told = reasoning.len;
	inference->text_told = text.len;
}

/* ---- The watch ---- */

static struct stream_watch_config watch_limits(const struct inference *inference)
{
	const struct runtime_config *config = &inference->runtime->config;

	return (struct stream_watch_config){
		.white_space = config->watch_white_space > 0 ? (unsigned)config->watch_white_space : 0,
		.loop_bytes = config->watch_loop_bytes > 0 ? (unsigned)config->watch_loop_bytes : 0,
	};
}

/* Each request of the attempt begins a new answer. */
static void start_watch(struct inference *inference)
{
	struct stream_watch_config watch = watch_limits(inference);

	stream_watch_free(inference->reasoning_watch);
	stream_watch_free(inference->text_watch);
	inference->reasoning_watch = NULL; /* made when there is any */
	if (inference->judge != NULL && !inference->runtime->config.watch_no_schema) {
		watch.json = true;
		watch.schema = inference->judge;
		watch.except = inference->judge_except;
	}
	inference->text_watch = stream_watch_new(&watch);
	inference->text_watched = inference->reasoning_watched = 0;
	inference->pieces = 0;
}

static bool fail_watched(struct inference *inference, const struct watch_verdict *verdict, const char *what)
{
	struct answer *answer = &inference->answer;

	switch (verdict->check) {
	case WATCH_NOT_JSON:
		return answer_fail(answer, FAILURE_SCHEMA_INVALID, "the answer is not JSON: %s; it was ended there, at byte %zu", verdict->detail, verdict->at);
	case WATCH_SCHEMA:
		return answer_fail(answer, FAILURE_SCHEMA_INVALID, "the answer does not match the schema: %s; it was ended there, at byte %zu", verdict->detail, verdict->at);
	case WATCH_SPACE:
	case WATCH_LOOP:
		return answer_fail(answer, FAILURE_LOOPED, "the %s loops: %s; it was ended there, at byte %zu (runtimes.%s.watch)", what, verdict->detail, verdict->at,
				   inference->runtime->config.name);
	case WATCH_COMPLETE:
		/* Without its end nobody knows whether the prompt was read whole, nor why it ended: no fact comes of that. */
		return answer_fail(answer, FAILURE_LOOPED, "the runtime does not end its answer: %s; it was ended there (runtimes.%s.watch)", verdict->detail,
				   inference->runtime->config.name);
	case WATCH_FINE:
	case WATCH_CHECK_COUNT:
		break;
	}
	CHECK(false);
	return false;
}

/* False: nothing good can come of this answer any more, and it is not waited for. */
static bool watch_piece(struct inference *inference)
{
	struct answer *answer = &inference->answer;
	struct bytes text = buffer_bytes(&answer->text), reasoning = buffer_bytes(&answer->reasoning);

	inference->pieces++;
	if (reasoning.len > inference->reasoning_watched) {
		struct bytes piece = {reasoning.data + inference->reasoning_watched, reasoning.len - inference->reasoning_watched};

		if (inference->reasoning_watch == NULL) {
			struct stream_watch_config watch = watch_limits(inference);

			inference->reasoning_watch = stream_watch_new(&watch);
		}
		inference->reasoning_watched = reasoning.len;
		if (!stream_watch_feed(inference->reasoning_watch, piece))
			return fail_watched(inference, stream_watch_verdict(inference->reasoning_watch), "reasoning");
	}
	if (text.len > inference->text_watched) {
		struct bytes piece = {text.data + inference->text_watched, text.len - inference->text_watched};

		inference->text_watched = text.len;
		if (!stream_watch_feed(inference->text_watch, piece))
			return fail_watched(inference, stream_watch_verdict(inference->text_watch), "answer");
	}
	return true;
}

/* ---- The schema ladder ---- */

static void begin_request(struct inference *inference);

/* The runtime does not take what it was told of the schema: an error with status or, before any text, within the stream. */
static bool schema_was_refused(const struct inference *inference)
{
	const struct answer *answer = &inference->answer;
	const struct transfer *transfer = &inference->transfer;

	if (inference->schema == NULL || inference->rung == SCHEMA_NONE || answer->text.len > 0 || answer->reasoning.len > 0 ||
	    (transfer->end != TRANSFER_COMPLETE && transfer->end != TRANSFER_STOPPED))
		return false;
	if (transfer->status == 200)
		return answer->failure == FAILURE_REFUSED && schema_is_refused(400, bytes_text(answer->detail));
	return schema_is_refused(transfer->status, buffer_bytes(&transfer->received));
}

/* A server that names the fields that it does not know (transformers). */
static bool wants_without(const struct inference *inference)
{
	unsigned left_out = inference->answer.left_out;

	return ((left_out & WITHOUT_SCHEMA) && inference->schema != NULL && inference->rung != SCHEMA_NONE) ||
	       (left_out & WITHOUT_STREAM_OPTIONS & ~inference->without);
}

/* A request costs a few milliseconds, an attempt one of the few that a step has; so the rungs are requests of one attempt, and its record
 * says which were refused, and how. */
static void step_down(struct inference *inference)
{
	struct work *work = inference->work;
	struct arena *arena = &work->activity->arena;
	struct json *refusal = json_object(arena);
	unsigned left_out = inference->answer.left_out;

	json_set_text(arena, refusal, "rung", schema_rung_name(inference->rung));
	json_set_number(arena, refusal, "status", inference->transfer.status);
	json_set_text(arena, refusal, "detail", inference->answer.detail);
	if (inference->refused == NULL)
		inference->refused = json_array(arena);
	json_add(arena, inference->refused, refusal);
	if (left_out & WITHOUT_SCHEMA) {
		inference->rung = SCHEMA_NONE;
	} else if (left_out == 0) {
		if (inference->rung == SCHEMA_FULL)
			inference->plain = schema_plain(arena, inference->schema);
		inference->rung = inference->rung == SCHEMA_FULL && inference->plain == NULL ? SCHEMA_JSON : inference->rung + 1;
	}
	inference->without |= left_out & WITHOUT_STREAM_OPTIONS;
	inference->runtime->without |= left_out & WITHOUT_STREAM_OPTIONS;
	stop_deadlines(inference);
	inference->connections += inference->transfer.connections;
	transfer_close(&inference->transfer);
	inference->transfer_open = false;
	sse_close(&inference->sse);
	lines_close(&inference->lines);
	inference->sse_open = false;
	answer_close(&inference->answer);
	answer_init(&inference->answer);
	inference->body_kind = BODY_UNSEEN;
	stage_enter(work, &work->activity->result.stages.dispatch);
	begin_request(inference);
}

/* ---- The end of a transfer ---- */

/* The transfer is over (or given up after the end marker): make an end of it. */
static void conclude(struct inference *inference)
{
	struct work *work = inference->work;
	struct activity_result *result = &work->activity->result;
	struct transfer *transfer = &inference->transfer;
	struct answer *answer = &inference->answer;
	enum transfer_end end = transfer->end;
	bool good;

	deadline_stop(inference->phase);
	deadline_stop(inference->total);
	if (transfer->last_byte_us != 0)
		stage_enter_at(work, &result->stages.parse, transfer->last_byte_us);
	else
		stage_enter(work, &result->stages.parse);
	transfer_header(transfer, "Server", inference->server, sizeof(inference->server));
	read_transfer(inference);
	tell_text(inference); /* of an answer in one piece */
	good = answer->failure == FAILURE_NONE;
	if (!good && (schema_was_refused(inference) || wants_without(inference))) {
		runtime_reached(inference->runtime);
		step_down(inference);
		return;
	}
	/* Remembered whatever becomes of the answer: it was begun. What was refused without a schema was another field. */
	if (transfer->status == 200 && inference->refused != NULL && inference->schema != NULL)
		schema_rungs_set(&inference->sent_under->rungs, inference->schema, inference->rung);
	if (result->active_from_us != 0)
		result->active_until_us = transfer->last_byte_us != 0 ? transfer->last_byte_us : now_us(work->activities);
	if (transfer->status != 0)
		runtime_reached(inference->runtime);
	/* Before another attempt is made it has to say that it is ready (runtimes.md 2.2). */
	if (transfer->status >= 500)
		runtime_doubt(inference->runtime, answer->detail, false);
	if (transfer->status >= 500 && answer->failure == FAILURE_RUNTIME_ERROR && work->activity->idempotency_key != NULL &&
	    runtime_erred(inference->runtime, work->activity->idempotency_key))
		result->retry_attempts = 1; /* no other attempt */
	if (end == TRANSFER_NOT_CONNECTED || (end == TRANSFER_BROKEN && !good)) {
		runtime_doubt(inference->runtime, answer->detail, transfer->status == 0);
		supervisor_doubt(inference->runtime->supervisor, true); /* also in the middle of an answer */
	}
	if (answer->failure == FAILURE_RATE_LIMITED && transfer->retry_after_ms > 0)
		runtime_hold(inference->runtime, transfer->retry_after_ms);
	leave_wire(inference);
	if (good)
		confirm(inference);
	else
		fail(inference, answer->failure, "%s", answer->detail);
}

/* ---- On the wire ---- */

static void stop_counting(struct inference *inference);
static void end_counting(struct inference *inference);

static void on_phase_due(struct deadline *deadline)
{
	struct inference *inference = deadline->owner;
	struct runtime *runtime = inference->runtime;
	const struct runtime_config *config = &runtime->config;

	if (inference->phase_kind == PHASE_COUNT) {
		stop_counting(inference);
		inference->counted_tokens = -1;
		end_counting(inference);
		return;
	}
	if (inference->phase_kind == PHASE_EMPTY) {
		stop_counting(inference);
		inference->salt = NULL;
		leave_wire(inference);
		fail(inference, FAILURE_TIMED_OUT, "runtime %s: its cache was not emptied within %d ms (POST %s, PROBE_TIMEOUT_MS)", config->name, PROBE_TIMEOUT_MS,
		     runtime->adapter->bypass.path);
		return;
	}
	transfer_cancel(&inference->transfer);
	switch (inference->phase_kind) {
	case PHASE_COUNT:
	case PHASE_EMPTY:
	case PHASE_END:
		inference->transfer.end = TRANSFER_BROKEN;
		conclude(inference);
		return;
	case PHASE_CONNECT:
		answer_fail(&inference->answer, FAILURE_UNREACHABLE, "runtime %s: no connection to %s within %lld ms (timeouts.connect)", config->name,
			    config->url, (long long)config->connect_ms);
		runtime_doubt(runtime, inference->answer.detail, true);
		break;
	case PHASE_FIRST_TOKEN:
		answer_fail(&inference->answer, FAILURE_STALLED, "runtime %s: no token within %lld ms of the request (timeouts.firstToken)",
			    config->name, (long long)config->first_token_ms);
		supervisor_doubt(runtime->supervisor, false);
		break;
	case PHASE_TOKENS:
		answer_fail(&inference->answer, FAILURE_STALLED, "runtime %s: no further token within %lld ms (timeouts.betweenTokens)", config->name,
			    (long long)config->between_tokens_ms);
		supervisor_doubt(runtime->supervisor, false);
		break;
	}
	leave_wire(inference);
	fail(inference, inference->answer.failure, "%s", inference->answer.detail);
}

static void on_total_due(struct deadline *deadline)
{
	struct inference *inference = deadline->owner;

	transfer_cancel(&inference->transfer);
	leave_wire(inference);
	fail(inference, FAILURE_TIMED_OUT, "runtime %s: the answer was not complete within %lld ms (timeouts.total)",
	     inference->runtime->config.name, (long long)inference->runtime->config.total_ms);
}

static void on_connecting(struct transfer *transfer)
{
	struct inference *inference = transfer->owner;
	struct activity_result *result = &inference->work->activity->result;

	if (inference->recheck_state == RECHECK_NONE)
		start_recheck(inference);
	if (inference->phase_kind != PHASE_CONNECT)
		return;
	stage_enter(inference->work, &result->stages.connect);
	if (result->active_from_us == 0)
		result->active_from_us = now_us(inference->work->activities);
}

static void on_sending(struct transfer *transfer)
{
	struct inference *inference = transfer->owner;
	struct activity_result *result = &inference->work->activity->result;

	/* Behind a connection that is used again is the process of before; one of several models may have been told to load another under that name. */
	if ((inference->runtime->adapter->loaded_models > 0 || inference->runtime->is_router) && inference->recheck_state == RECHECK_NONE)
		start_recheck(inference);
	if (inference->phase_kind != PHASE_CONNECT) {
		inference->sent_again++;
		return;
	}
	stage_enter(inference->work, &result->stages.first_token);
	if (result->active_from_us == 0)
		result->active_from_us = now_us(inference->work->activities);
	inference->phase_kind = PHASE_FIRST_TOKEN;
	deadline_start(inference->phase, inference->runtime->config.first_token_ms);
}

static void on_token(struct inference *inference)
{
	if (inference->phase_kind == PHASE_FIRST_TOKEN)
		stage_enter(inference->work, &inference->work->activity->result.stages.generation);
	inference->phase_kind = PHASE_TOKENS;
	deadline_start(inference->phase, inference->runtime->config.between_tokens_ms);
}

static bool on_event(void *arg, const char *name, struct bytes data)
{
	struct inference *inference = arg;
	bool token, had_ended = inference->answer.ended;

	if (!inference->runtime->adapter->read_event(&inference->answer, name, data, &token))
		return false;
	/* Comments, pings and empty pieces do not count: only text shows that the model is at work. */
	if (token) {
		on_token(inference);
		tell_text(inference);
		if (!watch_piece(inference))
			return false;
	}
	if (inference->answer.ended && !had_ended) {
		inference->phase_kind = PHASE_END;
		deadline_start(inference->phase, INFERENCE_END_MS);
	}
	return true;
}

static bool on_line(void *arg, struct bytes line)
{
	return on_event(arg, "", line);
}

static bool on_data(struct transfer *transfer, struct bytes data)
{
	struct inference *inference = transfer->owner;
	bool is_lines = inference->runtime->adapter->stream == STREAM_LINES;

	if (transfer->status != 200)
		return true;
	/* By the first byte, not by Content-Type: servers that ignore `stream` answer with plain JSON, and some label a stream
	 * wrongly (runtimes.md 2.1). */
	for (size_t i = 0; i < data.len && inference->body_kind == BODY_UNSEEN; i++)
		if (!is_space(data.data[i]))
			inference->body_kind = data.data[i] == '{' && !is_lines ? BODY_WHOLE : data.data[i] == '<' ? BODY_OTHER : BODY_STREAM;
	if (inference->body_kind == BODY_WHOLE)
		on_token(inference);
	if (inference->body_kind != BODY_STREAM)
		return true;
	return is_lines ? lines_feed(&inference->lines, data) : sse_feed(&inference->sse, data);
}

static void on_transferred(struct transfer *transfer)
{
	conclude(transfer->owner);
}

static struct inference_request request_of(const struct inference *inference)
{
	return (struct inference_request){
		.model = inference->sent_under->model,
		.messages = inference->messages,
		.schema = inference->rung == SCHEMA_FULL ? inference->schema : inference->rung == SCHEMA_PLAIN ? inference->plain : NULL,
		.schema_name = inference->schema_name,
		.json_only = inference->rung == SCHEMA_JSON,
		.sampling = inference->sampling,
		.context_length = inference->runtime->config.context_length,
		.without = inference->without,
		.cache_off = inference->sent_under->cache_off,
		.salt = inference->salt,
	};
}

/* The same attempt, the same slot; by what the runtime has refused so far, another request. */
static void send_request(struct inference *inference)
{
	struct work *work = inference->work;
	struct activity *activity = work->activity;
	struct runtime *runtime = inference->runtime;
	struct arena *arena = &activity->arena;
	struct inference_request request = request_of(inference);
	/* Another request needs another key: who answers by keys would answer with the refusal. */
	const char *key = activity->idempotency_key, *rung = inference->rung == SCHEMA_FULL ? "" : schema_rung_name(inference->rung);
	struct buffer body;
	struct error error;

	buffer_init(&body, ACTIVITY_BODY_MAX);
	json_print(runtime->adapter->make_request(arena, &request), &body);
	if (body.overflow) {
		buffer_close(&body);
		leave_wire(inference);
		fail(inference, FAILURE_CONFIGURATION, "the request is larger than %d bytes (ACTIVITY_BODY_MAX)", ACTIVITY_BODY_MAX);
		return;
	}
	activity->result.request = arena_bytes(arena, buffer_bytes(&body));
	buffer_close(&body);

	inference->transfer = (struct transfer){
		.method = "POST",
		.url = arena_printf(arena, "%s%s", runtime->config.url, runtime->adapter->request_path),
		.headers = runtime_headers(runtime, arena,
					   arena_printf(arena, "Content-Type: application/json\nAccept: text/event-stream, application/json\n%s%s%s%s%s",
							key != NULL ? "Idempotency-Key: " : "", key != NULL ? key : "",
							key != NULL && rung[0] != '\0' ? "/" : "", key != NULL ? rung : "", key != NULL ? "\n" : "")),
		.body = activity->result.request,
		.has_body = true,
		.body_max = ACTIVITY_BODY_MAX,
		.secrets = &runtime->secrets,
		.on_connecting = on_connecting,
		.on_sending = on_sending,
		.on_data = on_data,
		.on_done = on_transferred,
		.owner = inference,
	};
	inference->phase_kind = PHASE_CONNECT;
	if (transfer_start(work->activities->curl, &inference->transfer, &error) != 0) {
		transfer_close(&inference->transfer);
		leave_wire(inference);
		fail(inference, FAILURE_CONFIGURATION, "%s", error.message);
		return;
	}
	inference->transfer_open = true;
	inference->state = INFERENCE_SENT;
	inference->ordinal = ++runtime->instance_requests;
	start_watch(inference);
	sse_init(&inference->sse, on_event, inference);
	lines_init(&inference->lines, on_line, inference);
	inference->sse_open = true;
	if (inference->phase == NULL)
		inference->phase = deadline_new(work->activities, on_phase_due, inference);
	inference->total = deadline_new(work->activities, on_total_due, inference);
	deadline_start(inference->phase, runtime->config.connect_ms);
	deadline_start(inference->total, runtime->config.total_ms);
}

/* ---- Past the runtime's cache ---- */

/* What a gate asks without the cache is worth nothing if something came from there all the same, so it is not asked then. */
static void on_emptied(struct transfer *transfer)
{
	struct inference *inference = transfer->owner;
	const struct runtime *runtime = inference->runtime;
	bool reached = transfer->end == TRANSFER_COMPLETE;
	int status = transfer->status;
	char why[ACTIVITY_DETAIL_MAX];

	detail_set(why, "%s", transfer->detail);
	transfer_close(transfer);
	inference->salt = reached && status == 200 ? inference->salt : NULL; /* the record says what was done, not what was tried */
	inference->counting = false;
	deadline_stop(inference->phase);
	if (reached && status == 200) {
		send_request(inference);
		return;
	}
	leave_wire(inference);
	if (!reached)
		fail(inference, FAILURE_UNREACHABLE, "runtime %s cannot be reached at %s to empty its cache: %s", runtime->config.name, runtime->config.url, why);
	else
		fail(inference, status == 404 || status == 405 ? FAILURE_CONFIGURATION : FAILURE_RUNTIME_ERROR,
		     "runtime %s did not empty its cache: POST %s was answered with %d%s", runtime->config.name, runtime->adapter->bypass.path, status,
		     status == 400 ? "; something else is in flight there" : "");
}

static void on_errand_connecting(struct transfer *transfer)
{
	struct inference *inference = transfer->owner;

	if (inference->recheck_state == RECHECK_NONE)
		start_recheck(inference);
}

static void empty_cache(struct inference *inference)
{
	struct runtime *runtime = inference->runtime;
	struct arena *arena = &inference->work->activity->arena;
	struct error error;

	inference->count_transfer = (struct transfer){
		.method = "POST",
		.url = arena_printf(arena, "%s%s", runtime->config.url, runtime->adapter->bypass.path),
		.headers = runtime_headers(runtime, arena, "Content-Type: application/json\n"),
		.has_body = true,
		.body_max = PROBE_BODY_MAX,
		.secrets = &runtime->secrets,
		.on_connecting = on_errand_connecting,
		.on_done = on_emptied,
		.owner = inference,
	};
	if (transfer_start(inference->work->activities->curl, &inference->count_transfer, &error) != 0) {
		transfer_close(&inference->count_transfer);
		leave_wire(inference);
		fail(inference, FAILURE_CONFIGURATION, "%s", error.message);
		return;
	}
	inference->state = INFERENCE_COUNTING;
	inference->counting = true;
	inference->phase_kind = PHASE_EMPTY;
	if (inference->phase == NULL)
		inference->phase = deadline_new(inference->work->activities, on_phase_due, inference);
	deadline_start(inference->phase, PROBE_TIMEOUT_MS);
}

/* Each request has a salt of its own: also the next one of an attempt, since a server may have begun with the one before. */
static void begin_request(struct inference *inference)
{
	const struct activity *activity = inference->work->activity;
	const struct activity_ports *ports = &inference->work->activities->ports;
	struct arena *arena = &inference->work->activity->arena;
	char hex[DIGEST_HEX_LEN + 1];
	struct digest digest;

	inference->sent++;
	if (!inference->uncached) {
		send_request(inference);
		return;
	}
	digest = digest_of(bytes_text(arena_printf(arena, "%s %s %u %u %lld", activity->run_id, activity->step_id, activity->attempt, inference->sent,
						   (long long)ports->wall_ms(ports->arg))));
	digest_hex(&digest, hex);
	inference->salt = arena_text_len(arena, hex, SALT_LEN);
	if (inference->runtime->adapter->bypass.path != NULL)
		empty_cache(inference);
	else
		send_request(inference);
}

/* ---- Counting the prompt ---- */

static void count_step(struct inference *inference);
static void queue_again(struct inference *inference);

static void fail_budget(struct inference *inference);
static void await_budget(struct inference *inference);

/* Tokens that it may take at most, as far as that is known: of an answer without maxTokens it never is. */
static int64_t tokens_wanted(const struct inference *inference)
{
	return inference->slot.tokens + (inference->counted_tokens > 0 ? (int64_t)inference->counted_tokens : 0);
}

/* With the prompt counted it may be more than it was when the call was let in. False: it has failed, or waits for others of its run, without its slot. */
static bool fits_budget(struct inference *inference)
{
	struct budget_claim *claim = &inference->work->activity->claim;

	if (claim->budget == NULL || inference->counted_tokens <= 0)
		return true;
	switch (budget_ask(claim, tokens_wanted(inference))) {
	case BUDGET_GRANTED:
		return true;
	case BUDGET_WAITS:
		await_budget(inference);
		return false;
	case BUDGET_REFUSED:
		leave_wire(inference);
		fail_budget(inference);
		return false;
	}
	return false;
}

/* Counted or not: now it is sent, unless it cannot fit. */
static void end_counting(struct inference *inference)
{
	double length = inference->sent_under->context_length, counted = inference->counted_tokens;

	deadline_stop(inference->phase);
	if (inference->counted_tokens >= 0 && length > 0 && inference->counted_tokens >= length) {
		leave_wire(inference);
		fail(inference, FAILURE_REFUSED, "the prompt has %.0f tokens, the runtime's context holds %.0f; send smaller sections, or give it a longer context",
		     inference->counted_tokens, length);
		return;
	}
	if (!fits_budget(inference))
		return;
	/* Only now is known how much it may take in all: with that in hand it waits its turn, or is refused. */
	if (counted > 0 && !slot_queue_reserve(&inference->runtime->queue, &inference->slot, counted < SPENT_TOKENS_MAX ? (int64_t)counted : SPENT_TOKENS_MAX)) {
		inference->on_slot = inference_send; /* all else is there */
		queue_again(inference);
		return;
	}
	begin_request(inference);
}

static void on_counted(struct transfer *transfer)
{
	struct inference *inference = transfer->owner;
	const struct adapter_count *step = &inference->runtime->adapter->count[inference->count_index];
	bool answered = transfer->end == TRANSFER_COMPLETE;
	bool understood = answered && transfer->status == 200 &&
			  step->read(&inference->work->activity->arena, buffer_bytes(&transfer->received), &inference->count_text, &inference->counted_tokens);

	transfer_close(transfer);
	inference->counting = false;
	if (!understood) {
		/* It has no such path, and will have none for the next one. Who did not answer at all is found out by the request. */
		inference->runtime->cannot_count |= answered;
		inference->counted_tokens = -1;
		end_counting(inference);
		return;
	}
	inference->count_index++;
	count_step(inference);
}

static void count_step(struct inference *inference)
{
	struct runtime *runtime = inference->runtime;
	struct arena *arena = &inference->work->activity->arena;
	const struct adapter_count *step = &runtime->adapter->count[inference->count_index];
	struct inference_request request = request_of(inference);
	struct error error;

	if (runtime->cannot_count || inference->count_index >= ADAPTER_COUNT_STEPS_MAX || step->path == NULL) {
		end_counting(inference);
		return;
	}
	inference->count_transfer = (struct transfer){
		.method = "POST",
		.url = arena_printf(arena, "%s%s", runtime->config.url, step->path),
		.headers = runtime_headers(runtime, arena, "Content-Type: application/json\n"),
		.body = json_print_arena(step->make_body(arena, &request, inference->count_text), arena),
		.has_body = true,
		.body_max = ACTIVITY_BODY_MAX,
		.secrets = &runtime->secrets,
		.on_connecting = on_errand_connecting,
		.on_done = on_counted,
		.owner = inference,
	};
	if (transfer_start(inference->work->activities->curl, &inference->count_transfer, &error) != 0) {
		transfer_close(&inference->count_transfer);
		end_counting(inference);
		return;
	}
	inference->counting = true;
	deadline_start(inference->phase, PROBE_TIMEOUT_MS);
}

static void stop_counting(struct inference *inference)
{
	if (!inference->counting)
		return;
	transfer_cancel(&inference->count_transfer);
	transfer_close(&inference->count_transfer);
	inference->counting = false;
}

static void on_configured(struct configuration_wait *wait)
{
	struct inference *inference = CONTAINER_OF(wait, struct inference, wait);
	const char *why;

	if (wait->configuration == NULL) {
		leave_wire(inference);
		fail(inference, wait->failure, "%s", wait->detail);
		return;
	}
	configuration_release(inference->sent_under); /* where it has waited again */
	inference->sent_under = wait->configuration;
	inference->instance = inference->runtime->instance;
	inference->was_unloaded = inference->runtime->is_unloaded;
	wait->configuration = NULL;
	why = gates_refuse(inference, inference->sent_under, false, &inference->work->activity->arena);
	if (why != NULL) {
		leave_wire(inference);
		fail(inference, FAILURE_CONFIGURATION, "%s", why);
		return;
	}
	if (inference->schema != NULL)
		inference->rung = schema_rungs_get(&inference->sent_under->rungs, inference->schema);
	if (inference->rung == SCHEMA_PLAIN)
		inference->plain = schema_plain(&inference->work->activity->arena, inference->schema);
	inference->without = inference->runtime->without;
	if (inference->runtime->adapter->count[0].path == NULL || inference->runtime->cannot_count) {
		begin_request(inference);
		return;
	}
	inference->state = INFERENCE_COUNTING;
	inference->count_index = 0;
	inference->count_text = NULL;
	inference->phase = deadline_new(inference->work->activities, on_phase_due, inference);
	inference->phase_kind = PHASE_COUNT;
	count_step(inference);
}

/* ---- Life ---- */

/* What it waited for, where it waited at all, all times that it did: {"rate": microseconds, …}. */
static void add_waited(struct inference *inference, const char *name, uint64_t us)
{
	struct arena *arena = &inference->work->activity->arena;
	struct json *waited = json_get(work_record(inference->work), "waitedUs");

	if (us < WAITED_TOLD_MIN_US)
		return;
	if (waited == NULL) {
		waited = json_object(arena);
		json_set(arena, work_record(inference->work), "waitedUs", waited);
	}
	json_set_number(arena, waited, name, json_get_number(waited, name, 0) + (double)us);
}

static void write_waited(struct inference *inference)
{
	for (size_t i = 0; i < SLOT_WAIT_COUNT; i++)
		add_waited(inference, slot_wait_name((enum slot_wait)i), inference->slot.waited_us[i]);
}

static void leave_queue(struct inference *inference)
{
	struct work *work = inference->work;
	struct activity_result *result = &work->activity->result;

	if (work->queued)
		work->activities->queued--;
	work->queued = false;
	stage_enter(work, &result->stages.dispatch);
	result->queued_us = (uint64_t)result->stages.queue;
}

static void on_slot(struct slot *slot)
{
	struct inference *inference = CONTAINER_OF(slot, struct inference, slot);

	leave_queue(inference);
	write_waited(inference);
	inference->state = INFERENCE_PREPARING;
	inference->on_slot(inference);
}

/* A runtime that the daemon launches cannot be started, or was ended in the middle. */
static void on_lost(struct slot *slot, enum failure_class failure, const char *detail)
{
	struct inference *inference = CONTAINER_OF(slot, struct inference, slot);

	switch (inference->state) {
	case INFERENCE_QUEUED:
		leave_queue(inference);
		break;
	case INFERENCE_CONFIGURING:
		runtime_give_up(&inference->wait);
		break;
	case INFERENCE_COUNTING:
		stop_counting(inference);
		break;
	case INFERENCE_SENT:
		transfer_cancel(&inference->transfer);
		break;
	case INFERENCE_PREPARING: /* nothing was asked yet: inference_send() will hear of it */
	case INFERENCE_CONFIRMING: /* holds no slot any more */
	case INFERENCE_OVER:
		return;
	}
	leave_wire(inference);
	fail(inference, failure, "%s", detail);
}

/* What is written down of sampling is what was sent: our names, the seed as a text (provenance.md 2.4). */
static void write_sampling(struct inference *inference)
{
	struct arena *arena = &inference->work->activity->arena;
	struct json *record = json_object(arena), *wire = json_object(arena);

	inference->sampling_sent = json_copy(arena, inference->sampling);
	if (json_get(inference->sampling, "seed") != NULL)
		json_set(arena, inference->sampling_sent, "seed", json_printf(arena, "%.0f", json_get_number(inference->sampling, "seed", 0)));
	for (const struct sampling_field *field = inference->runtime->adapter->sampling; field->ours != NULL; field++)
		if (json_get(inference->sampling, field->ours) != NULL)
			json_set_text(arena, wire, field->ours, field->wire);
	json_set(arena, record, "asked", inference->sampling_sent);
	json_set(arena, record, "sentAs", wire);
	json_set(arena, work_record(inference->work), "sampling", record);
}

bool inference_priority(const struct json *argument, unsigned *priority, struct error *error)
{
	if (argument == NULL || argument->type == JSON_NULL)
		return true;
	if (!json_is_integer(argument) || argument->number < 0 || argument->number > PRIORITY_MAX) {
		error_set(error, ERR_INVALID, "priority is not a whole number from 0 to %d, the higher the sooner", PRIORITY_MAX);
		return false;
	}
	*priority = (unsigned)argument->number;
	return true;
}

void inference_require(struct inference *inference, const struct json *required)
{
	const struct activity *activity = inference->work->activity;

	if (required == NULL || required->type == JSON_NULL)
		return;
	inference->required = required;
	inference->slot.solo = arena_printf(&inference->work->activity->arena, "%s %.*s", activity->run_id, (int)strcspn(activity->step_id, "#"), activity->step_id);
	inference->slot.solo_last = true;
}

static void fail_budget(struct inference *inference)
{
	budget_explain(&inference->work->activity->claim, tokens_wanted(inference), inference->detail, sizeof(inference->detail));
	inference->failure = FAILURE_BUDGET;
	finish(inference);
}

static void on_budget(struct budget_claim *claim, bool granted)
{
	struct work *work = CONTAINER_OF(claim, struct activity, claim)->work;
	struct inference *inference = work->inference;

	add_waited(inference, WAITS_RUN_BUDGET, now_us(work->activities) - inference->waits_since_us);
	if (granted) {
		runtime_queue(inference->runtime, &inference->slot);
		return;
	}
	leave_queue(inference);
	fail_budget(inference);
}

static void begin_waiting(struct inference *inference)
{
	struct work *work = inference->work;

	inference->state = INFERENCE_QUEUED;
	work->inference = inference;
	work->activity->claim.on_turn = on_budget;
	work->queued = true;
	work->slot = &inference->slot;
	work->activities->queued++;
	inference->waits_since_us = now_us(work->activities);
	stage_enter(work, &work->activity->result.stages.queue);
}

/* A place in its run's budget comes first: nobody is to hold a slot, or be ahead of others, who may not begin. */
static void queue(struct inference *inference)
{
	begin_waiting(inference);
	switch (budget_ask(&inference->work->activity->claim, tokens_wanted(inference))) {
	case BUDGET_GRANTED:
		on_budget(&inference->work->activity->claim, true);
		break;
	case BUDGET_WAITS:
		break;
	case BUDGET_REFUSED:
		on_budget(&inference->work->activity->claim, false);
		break;
	}
}

/* Its slot is another's until there is room in the budget; then it has its turn once more, with what it knows of its prompt. */
static void await_budget(struct inference *inference)
{
	leave_wire(inference);
	end_recheck(inference);
	inference->on_slot = inference_send;
	begin_waiting(inference);
}

/* Its place in the budget it keeps. */
static void queue_again(struct inference *inference)
{
	leave_wire(inference);
	begin_waiting(inference);
	runtime_queue(inference->runtime, &inference->slot);
}

void inference_start(struct inference *inference)
{
	struct work *work = inference->work;
	double max_tokens = json_get_number(inference->sampling, "maxTokens", 0);

	work_set_retry(work, inference->runtime->config.retry_attempts, inference->runtime->config.retry_floor_ms,
		       inference->runtime->config.retry_cap_ms);
	write_sampling(inference);
	answer_init(&inference->answer);
	inference->counted_tokens = -1;
	list_init(&inference->recheck.link);
	list_init(&inference->slot.link);
	list_init(&inference->wait.link);
	inference->slot.on_slot = on_slot;
	inference->slot.on_lost = on_lost;
	inference->slot.priority = inference->runtime->config.priority;
	inference_priority(inference->priority, &inference->slot.priority, NULL);
	inference->slot.tokens = max_tokens > 0 ? (int64_t)max_tokens : 0;
	queue(inference);
}

void inference_wait_again(struct inference *inference)
{
	CHECK(inference->state == INFERENCE_PREPARING);
	queue_again(inference);
}

void inference_send(struct inference *inference)
{
	CHECK(inference->state == INFERENCE_PREPARING);
	if (inference->runtime->admission != RUNTIME_ADMITS) { /* it ended while this one was being prepared: as if it had waited until now */
		inference->on_slot = inference_send;
		inference_wait_again(inference);
		return;
	}
	inference->state = INFERENCE_CONFIGURING;
	inference->wait.on_done = on_configured;
	if (runtime_configure(inference->runtime, &inference->wait, ASK_IF_UNKNOWN))
		on_configured(&inference->wait);
}

void inference_end(struct inference *inference, enum failure_class failure, const char *format, ...)
{
	va_list args;

	CHECK(inference->state == INFERENCE_PREPARING);
	inference->state = INFERENCE_OVER;
	inference->failure = failure;
	va_start(args, format);
	detail_print(inference->detail, format, args);
	va_end(args);
	leave_wire(inference);
}

void inference_cancel(struct inference *inference)
{
	struct work *work = inference->work;
	struct activity_result *result = &work->activity->result;

	if (work->queued)
		work->activities->queued--;
	work->queued = false;
	if (inference->state == INFERENCE_QUEUED)
		result->queued_us = (uint64_t)result->stages.queue + now_us(work->activities) - work->clock.since_us;
	if (inference->state == INFERENCE_CONFIGURING || inference->state == INFERENCE_CONFIRMING)
		runtime_give_up(&inference->wait);
	stop_counting(inference);
	end_recheck(inference);
	if (inference->state == INFERENCE_QUEUED)
		budget_withdraw(&work->activity->claim);
	if (inference->state == INFERENCE_SENT) {
		transfer_cancel(&inference->transfer);
		if (result->active_from_us != 0)
			result->active_until_us = now_us(work->activities);
		write_record(inference);
	}
	leave_wire(inference);
	inference->state = INFERENCE_OVER;
}

void inference_close(struct inference *inference)
{
	CHECK(inference->state == INFERENCE_OVER && !inference->transfer_open && inference->phase == NULL);
	if (inference->sse_open) {
		sse_close(&inference->sse);
		lines_close(&inference->lines);
	}
	stream_watch_free(inference->text_watch);
	stream_watch_free(inference->reasoning_watch);
	answer_close(&inference->answer);
	configuration_release(inference->configuration);
	configuration_release(inference->sent_under);
}

/* ---- Evidence ---- */

static struct json *describe_body(struct arena *arena, const char *media_type, struct bytes body)
{
	struct json *json = json_object(arena);
	struct digest digest = digest_of(body);

	json_set_text(arena, json, "mediaType", media_type);
	json_set_digest(arena, json, "digest", &digest);
	return json;
}

static struct json *describe_model(const struct inference *inference, struct arena *arena)
{
	const struct configuration *configuration = inference->configuration;
	const char *name = configuration->model != NULL ? configuration->model : inference->answer.model;
	const struct runtime_config *config = &inference->runtime->config;
	const char *path = config->weights_file != NULL ? config->weights_file : config->weights_folder, *basis = "declared";
	struct json *model = json_object(arena);

	/* The weakest that holds: a hashed file is the runtime's own only by the operator's word. */
	if (name == NULL)
		basis = "unknown";
	else if (!configuration->weights.known && inference->answer.model != NULL)
		basis = "reported";
	json_set_text(arena, model, "name", name != NULL ? name : "unknown");
	json_set_text(arena, model, "basis", basis);
	/* Nobody measured or told what computed the answer: a name is all there is of it (runtimes.md 10). */
	if (json_is(json_get(json_get(json_get(configuration->record, "B"), "weights_digest"), "value"), JSON_NULL))
		json_set_boolean(arena, model, "unattested", true);
	if (configuration->weights.known && path != NULL) {
		const char *slash = strrchr(path, '/');
		struct json *weights = json_array(arena), *file = json_object(arena), *annotations = json_object(arena);

		json_set_text(arena, file, "name", slash != NULL ? slash + 1 : path);
		json_set_digest(arena, file, "digest", &configuration->weights.digest);
		json_set_number(arena, annotations, "bytes", (double)configuration->weights.identity.size);
		json_set(arena, file, "annotations", annotations);
		json_add(arena, weights, file);
		json_set(arena, model, "weights", weights);
	}
	return model;
}

static struct json *without_uuids(struct arena *arena, const struct json *gpus)
{
	struct json *list = json_array(arena);

	for (size_t i = 0; i < json_count(gpus); i++) {
		struct json *gpu = json_object(arena);

		json_set_text(arena, gpu, "name", json_get_text(json_at(gpus, i), "name"));
		json_set_text(arena, gpu, "compute_cap", json_get_text(json_at(gpus, i), "compute_cap"));
		json_add(arena, list, gpu);
	}
	return list;
}

/* Of the record's group D what makes a machine: no name of it, and no user's. NULL: it is another one. */
static struct json *describe_host(const struct configuration *configuration, struct arena *arena)
{
	static const char *const fields[] = {"os", "kernel", "wsl", "cpu_model", "thread_count", "gpu", "gpu_driver"};
	struct json *host = json_object(arena);

	for (size_t i = 0; i < COUNT_OF(fields); i++) {
		const struct json *field = json_get(json_get(configuration->record, "D"), fields[i]), *value = json_get(field, "value");

		if (value != NULL && value->type != JSON_NULL)
			json_set(arena, host, fields[i], strcmp(fields[i], "gpu") == 0 ? without_uuids(arena, value) : json_copy(arena, value));
	}
	return json_count(host) > 0 ? host : NULL;
}

/* What the daemon has started the process with. */
static void describe_launch(const struct inference *inference, struct arena *arena, struct json *runtime, struct json *engine)
{
	const struct json *launched = supervisor_launched(inference->runtime->supervisor), *c = json_get(launched, "C");
	const char *executable = json_get_text(json_get(json_get(launched, "A"), "binary_sha256"), "value");
	struct json *launch, *config, *sha256;
	struct digest digest;

	if (launched == NULL)
		return;
	launch = json_object(arena);
	config = json_object(arena);
	json_set(arena, config, "argv", json_copy(arena, json_get(json_get(c, "argv"), "value")));
	json_set(arena, config, "env", json_copy(arena, json_get(json_get(c, "env"), "value")));
	json_set_text(arena, config, "cwd", supervisor_folder(inference->runtime->supervisor));
	digest = json_digest(config);
	json_set(arena, launch, "config", config);
	json_set_digest(arena, launch, "digest", &digest);
	json_set(arena, runtime, "launch", launch);
	json_set_text(arena, runtime, "basis", "launched");
	if (executable == NULL)
		return;
	sha256 = json_object(arena);
	json_set_text(arena, sha256, "sha256", executable);
	json_set(arena, engine, "digest", sha256);
}

static struct json *describe_runtime(const struct inference *inference, struct arena *arena)
{
	const struct configuration *configuration = inference->configuration;
	bool has_server = configuration->server != NULL && configuration->server[0] != '\0';
	struct json *runtime = json_object(arena), *engine = json_object(arena), *instance = instance_json(arena, &inference->instance);
	struct json *host = describe_host(configuration, arena);

	json_set_text(arena, engine, "name", has_server ? configuration->server : inference->runtime->config.kind);
	json_set_text(arena, engine, "version", configuration->version != NULL ? configuration->version : "unknown");
	json_set(arena, runtime, "engine", engine);
	json_set_text(arena, runtime, "basis", configuration->version == NULL ? "unknown" : has_server ? "reported" : "declared");
	json_set_text(arena, runtime, "instance", json_get_text(instance, "id"));
	json_set_text(arena, runtime, "instanceBasis", json_get_text(instance, "basis"));
	json_set_text(arena, runtime, "startedOn", json_get_text(instance, "startedOn"));
	if (host != NULL)
		json_set(arena, runtime, "host", host);
	describe_launch(inference, arena, runtime, engine);
	return runtime;
}

/* What the kernel says of the wall clock: a claim, no proof (provenance.md 2.4). */
static struct json *describe_clock(struct arena *arena)
{
	struct json *clock = json_object(arena);
	struct timex status = {0};

	json_set_text(arena, clock, "source", "system");
	json_set_boolean(arena, clock, "synchronized", adjtimex(&status) >= 0 && (status.status & STA_UNSYNC) == 0);
	return clock;
}

struct json *inference_evidence(const struct inference *inference, struct arena *arena)
{
	const struct answer *answer = &inference->answer;
	const struct activity_result *result = &inference->work->activity->result;
	struct json *evidence = json_object(arena), *configuration = json_object(arena), *request;

	json_set(arena, evidence, "sampling", inference->sampling_sent);
	request = describe_body(arena, "application/json", result->request);
	if (inference->rung != SCHEMA_FULL) {
		struct json *annotations = json_object(arena);

		json_set_text(arena, annotations, "schemaSent", schema_rung_name(inference->rung));
		json_set(arena, request, "annotations", annotations);
	}
	json_set(arena, evidence, "request", request);
	json_set(arena, evidence, "response",
		 describe_body(arena, inference->body_kind == BODY_WHOLE ? "application/json" :
					    inference->runtime->adapter->stream == STREAM_LINES ? "application/x-ndjson" : "text/event-stream", result->response));
	json_set(arena, evidence, "model", describe_model(inference, arena));
	json_set(arena, evidence, "runtime", describe_runtime(inference, arena));
	json_set_text(arena, evidence, "runtimeName", inference->runtime->config.name);
	json_set(arena, evidence, "clock", describe_clock(arena));
	json_set_digest(arena, configuration, "digest", &inference->configuration->digest);
	json_set(arena, evidence, "configuration", configuration);
	json_set(arena, evidence, "reproducibility", inference->reproducibility);
	json_set_text(arena, evidence, "finishReason", answer->finish_reason);
	if (answer->prompt_tokens >= 0)
		json_set_number(arena, evidence, "promptTokens", answer->prompt_tokens);
	if (answer->completion_tokens >= 0)
		json_set_number(arena, evidence, "completionTokens", answer->completion_tokens);
	if (inference->configuration->simulated)
		json_set_boolean(arena, evidence, "simulated", true);
	return evidence;
}
