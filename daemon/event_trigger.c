/* See event_trigger.h. */
#include "daemon/event_trigger.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/definitions.h"
#include "workflow/base/check.h"
#include "workflow/base/log.h"
#include "workflow/language/evaluation.h"
#include "workflow/language/expression.h"

struct event_trigger {
	struct event_trigger_config config;
	struct event_subscription subscription;
	uv_timer_t retry;
	bool ended, firing, asking;

	/* Of the events that have come for the next firing. */
	struct arena kept;
	struct event_progress progress;
	struct buffer input; /* "[envelope,envelope" */
	size_t event_count; /* in it */
	struct json *events; /* the same, for an `until` expression; else NULL */

	/* Of the event that is being matched. */
	const struct hub_event *event;
	struct arena arena;
	/* What jq has said, in the order of asking: matched anew, an event asks the same again. Each is [value], or a text: it failed. */
	const struct json **answers;
	size_t answer_count, answer_cap;
	size_t used; /* of them, in this round */
	struct arena asked; /* of `wanted`, until it is answered */
	struct evaluation wanted;
	bool wants;
	struct jq_request jq;
	char name[];
};

/* --- evaluating --------------------------------------------------------------------------------------------------- */

struct evaluating {
	struct event_trigger *trigger;
	const struct json *self;
};

static const struct json *get_value(void *context, const char *name)
{
	const struct evaluating *e = context;

	return strcmp(name, ".") == 0 ? e->self : NULL;
}

static int evaluate_jq(void *context, const char *text, const struct json **result, struct error *error)
{
	const struct evaluating *e = context;
	struct event_trigger *trigger = e->trigger;

	if (trigger->used == trigger->answer_count) {
		if (!trigger->wants) {
			arena_close(&trigger->asked);
			if (evaluation_request(&trigger->asked, text, e->self, NULL, NULL, 0, &trigger->wanted, error) != 0)
				return ERR_INVALID;
			trigger->wants = true;
		}
		return error_set(error, ERR_NOT_FOUND, "jq has to be asked");
	}
	const struct json *kept = trigger->answers[trigger->used++];
	if (!json_is(kept, JSON_ARRAY))
		return error_set(error, ERR_INVALID, "%s", json_is(kept, JSON_STRING) ? kept->string.text : "jq failed");
	*result = json_at(kept, 0);
	return *result ? 0 : error_set(error, ERR_INVALID, "jq gave nothing");
}

static int evaluate(void *context, const struct json *self, const struct json *template, const char *expression, const struct json **result, struct error *error)
{
	struct event_trigger *trigger = context;
	/* A schedule has no input: that is null. */
	struct evaluating e = {.trigger = trigger, .self = self ? self : json_null(&trigger->arena)};
	const struct scope scope = {.get = get_value, .context = &e, .evaluate = evaluate_jq};
	int code = template ? template_eval(&trigger->arena, template, &scope, result, error) : expression_eval(&trigger->arena, expression, &scope, result, error);

	/* Not at hand is only what jq is asked for; a variable that is not there will never be. */
	return code == ERR_NOT_FOUND && !trigger->wants ? ERR_INVALID : code;
}

/* --- matching ----------------------------------------------------------------------------------------------------- */

static void match(struct event_trigger *trigger);

static void on_answered(struct jq_request *jq);
static void ask_later(struct event_trigger *trigger);
static void free_trigger(struct event_trigger *trigger);

static void ask(struct event_trigger *trigger)
{
	struct error error;

	trigger->jq = (struct jq_request){.request = trigger->wanted.request, .on_done = on_answered, .owner = trigger};
	list_init(&trigger->jq.link);
	trigger->asking = jq_pool_ask(trigger->config.jq, &trigger->jq, &error) == 0;
	if (!trigger->asking)
		ask_later(trigger);
}

static void on_retry(uv_timer_t *timer)
{
	ask(timer->data);
}

static void ask_later(struct event_trigger *trigger)
{
	uv_timer_start(&trigger->retry, on_retry, TRIGGER_RETRY_MS, 0);
}

static void on_answered(struct jq_request *jq)
{
	struct event_trigger *trigger = jq->owner;
	struct buffer kept;

	trigger->asking = false;
	if (trigger->ended) {
		free_trigger(trigger);
		return;
	}
	if (jq->error.code == ERR_CANCELLED || jq->error.code == ERR_IO) { /* no fault of the expression */
		ask_later(trigger);
		return;
	}
	buffer_init(&kept, EVALUATION_ANSWER_MAX);
	if (jq->error.code != ERR_NONE)
		evaluation_keep_failure(jq->error.message, &kept);
	else
		evaluation_keep(jq->answer, &kept);
	trigger->answers = arena_grow(&trigger->arena, trigger->answers, trigger->answer_count, &trigger->answer_cap, sizeof *trigger->answers);
	trigger->answers[trigger->answer_count++] = json_parse(&trigger->arena, arena_bytes(&trigger->arena, buffer_bytes(&kept)), JSON_STORED, NULL, NULL);
	buffer_close(&kept);
	match(trigger);
}

static void end_event(struct event_trigger *trigger)
{
	trigger->event = NULL;
	trigger->answers = NULL;
	trigger->answer_count = trigger->answer_cap = 0;
	arena_close(&trigger->arena);
	arena_close(&trigger->asked);
}

static void forget(struct event_trigger *trigger)
{
	trigger->progress = (struct event_progress){0};
	trigger->event_count = 0;
	trigger->events = NULL;
	arena_close(&trigger->kept);
	buffer_close(&trigger->input);
	buffer_init(&trigger->input, TRIGGER_BYTES_MAX);
}

static void take(struct event_trigger *trigger, const struct event_match *found)
{
	const struct hub_event *event = trigger->event;

	if (!found->is_until) {
		buffer_add_char(&trigger->input, trigger->event_count == 0 ? '[' : ',');
		buffer_add_bytes(&trigger->input, event->bytes);
		trigger->event_count++;
		if (trigger->config.strategy->until) {
			trigger->events = trigger->events ? trigger->events : json_array(&trigger->kept);
			json_add(&trigger->kept, trigger->events, json_copy(&trigger->kept, event->envelope));
		}
	}
	trigger->progress = found->progress;
	trigger->progress.correlation = found->progress.correlation ? json_copy(&trigger->kept, found->progress.correlation) : NULL;
	bool is_too_large = trigger->input.overflow || trigger->event_count > TRIGGER_EVENTS_MAX;
	if (!found->is_last && !is_too_large) {
		end_event(trigger);
		event_hub_next(trigger->config.hub, &trigger->subscription);
		return;
	}
	buffer_add_text(&trigger->input, trigger->event_count == 0 ? "[]" : "]");
	trigger->firing = true;
	uint64_t seq = event->seq;
	int64_t time_ms = event->time_ms;
	end_event(trigger);
	trigger->config.on_fire(trigger->config.arg, is_too_large || trigger->input.overflow ? (struct bytes){0} : buffer_bytes(&trigger->input), seq, time_ms);
}

/* Whether the event that matched is the last: `.` is the array that a run would get. False also when jq has to be asked first. */
static bool until_holds(struct event_trigger *trigger, struct error *error)
{
	struct json *events = json_array(&trigger->arena);
	const struct json *holds = NULL;

	for (size_t i = 0; i < trigger->event_count; i++)
		json_add(&trigger->arena, events, json_at(trigger->events, i));
	json_add(&trigger->arena, events, (struct json *)trigger->event->envelope);
	return evaluate(trigger, events, NULL, trigger->config.strategy->until, &holds, error) == 0 && json_truthy(holds);
}

static void match(struct event_trigger *trigger)
{
	const struct event_scope scope = {.evaluate = evaluate, .context = trigger};
	struct event_match found = {0};
	struct error error = {0};

	trigger->wants = false;
	trigger->used = 0;
	int code = event_match(&trigger->arena, trigger->config.strategy, &trigger->progress, trigger->event->envelope, &scope, &found, &error);
	if (code == 0 && found.matches && !found.is_until && trigger->config.strategy->until) {
		found.is_last = until_holds(trigger, &error);
		if (trigger->wants)
			code = ERR_NOT_FOUND;
		else if (error.code != ERR_NONE)
			log_warn(LOG_ENGINE, "schedule=%s event %llu is taken, and more are waited for: 'until' fails: %s", trigger->name, (unsigned long long)trigger->event->seq, error.message);
	}
	if (code == ERR_NOT_FOUND && trigger->wants && trigger->answer_count < TRIGGER_EVALUATIONS_MAX) {
		ask(trigger);
		return;
	}
	if (code == ERR_NOT_FOUND && trigger->wants)
		error_set(&error, ERR_TOO_LARGE, "it needs more than %d evaluations (TRIGGER_EVALUATIONS_MAX)", TRIGGER_EVALUATIONS_MAX);
	if (code != 0)
		log_warn(LOG_ENGINE, "schedule=%s event %llu is passed over: %s", trigger->name, (unsigned long long)trigger->event->seq, error.message);
	if (code == 0 && found.matches) {
		take(trigger, &found);
		return;
	}
	end_event(trigger);
	event_hub_next(trigger->config.hub, &trigger->subscription);
}

static void on_event(struct event_subscription *subscription, const struct hub_event *event)
{
	struct event_trigger *trigger = subscription->owner;

	trigger->event = event;
	match(trigger);
}

/* --- around it ---------------------------------------------------------------------------------------------------- */

struct event_trigger *event_trigger_new(const struct event_trigger_config *config)
{
	size_t len = strlen(config->name);
	struct event_trigger *trigger = memory_zero(sizeof *trigger + len + 1);

	trigger->config = *config;
	memcpy(trigger->name, config->name, len + 1);
	definition_hold(config->definition);
	arena_init(&trigger->arena);
	arena_init(&trigger->kept);
	arena_init(&trigger->asked);
	buffer_init(&trigger->input, TRIGGER_BYTES_MAX);
	CHECK(uv_timer_init(config->loop, &trigger->retry) == 0);
	trigger->retry.data = trigger;
	trigger->subscription =
		(struct event_subscription){.strategy = config->strategy, .since_ms = config->since_ms, .position = config->after_seq, .on_event = on_event, .owner = trigger};
	event_hub_subscribe(config->hub, &trigger->subscription);
	return trigger;
}

void event_trigger_next(struct event_trigger *trigger)
{
	CHECK(trigger->firing);
	trigger->firing = false;
	forget(trigger);
	event_hub_next(trigger->config.hub, &trigger->subscription);
}

static void on_closed(uv_handle_t *handle)
{
	free(handle->data);
}

static void free_trigger(struct event_trigger *trigger)
{
	definition_release(trigger->config.definition);
	arena_close(&trigger->arena);
	arena_close(&trigger->kept);
	arena_close(&trigger->asked);
	buffer_close(&trigger->input);
	uv_close((uv_handle_t *)&trigger->retry, on_closed);
}

void event_trigger_end(struct event_trigger *trigger)
{
	if (!trigger)
		return;
	trigger->ended = true;
	uv_timer_stop(&trigger->retry);
	event_hub_unsubscribe(trigger->config.hub, &trigger->subscription);
	if (!trigger->asking) /* else jq's answer frees it: what it was asked lies here */
		free_trigger(trigger);
}
