/* See ports.h. */
#include "daemon/ports.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/daemon.h"
#include "daemon/port_reads.h"
#include "workflow/base/check.h"
#include "workflow/base/log.h"

static uint64_t port_now_us(void *arg);
static int64_t port_wall_ms(void *arg);

/* One read for a port; made for it and freed with its answer. */
struct port_read {
	struct store_read read;
	struct ports *ports;
	void *request; /* the port's struct */
	struct list link;
};

static void start_read(struct port_read *read)
{
	struct ports *ports = read->ports;

	if (store_read(ports->daemon->store, &read->read) == 0)
		return;
	list_add_last(&ports->postponed, &read->link);
}

static void on_retry(uv_timer_t *timer)
{
	struct ports *ports = timer->data;
	struct list again;

	list_init(&again);
	list_move_all(&again, &ports->postponed);
	while (!list_empty(&again)) {
		struct list *link = again.next;
		list_remove(link);
		start_read(CONTAINER_OF(link, struct port_read, link));
	}
	while (!list_empty(&ports->refused)) {
		struct engine_evaluate *evaluate = CONTAINER_OF(ports->refused.next, struct engine_evaluate, link);
		list_remove(&evaluate->link);
		evaluate->busy = true;
		evaluate->on_done(evaluate);
	}
	if (list_empty(&ports->postponed))
		uv_timer_stop(timer);
}

static void begin_read(struct ports *ports, void *request, store_read_work work, store_read_cb on_done)
{
	struct port_read *read = memory_zero(sizeof *read);

	read->ports = ports;
	read->request = request;
	read->read = (struct store_read){.work = work, .on_done = on_done, .owner = read};
	list_init(&read->link);
	start_read(read);
	if (!list_empty(&ports->postponed) && !uv_is_active((uv_handle_t *)&ports->retry))
		uv_timer_start(&ports->retry, on_retry, PORT_RETRY_MS, PORT_RETRY_MS);
}

/* --- the engine's reads ------------------------------------------------------------------------------------------- */

static void load_run_work(struct store_reader *reader, struct store_read *read)
{
	read_run_page(reader, &read->arena, ((struct port_read *)read->owner)->request, ENGINE_LOAD_PAGE, &read->error);
}

static void on_run_loaded(struct store_read *read)
{
	struct port_read *port_read = read->owner;
	struct engine_load_run *load = port_read->request;

	load->arena = read->arena;
	load->error = read->error;
	free(port_read);
	load->on_done(load);
}

static void load_run(void *arg, struct engine_load_run *load)
{
	begin_read(arg, load, load_run_work, on_run_loaded);
}

static void load_values_work(struct store_reader *reader, struct store_read *read)
{
	read_values(reader, &read->arena, ((struct port_read *)read->owner)->request, &read->error);
}

static void on_values_loaded(struct store_read *read)
{
	struct port_read *port_read = read->owner;
	struct engine_load_values *load = port_read->request;

	load->arena = read->arena;
	load->error = read->error;
	free(port_read);
	load->on_done(load);
}

static void load_values(void *arg, struct engine_load_values *load)
{
	begin_read(arg, load, load_values_work, on_values_loaded);
}

/* One evaluation on its way to a jq helper. */
struct port_evaluation {
	struct jq_request jq;
	struct engine_evaluate *evaluate;
};

static void on_answered(struct jq_request *jq)
{
	struct port_evaluation *own = jq->owner;
	struct engine_evaluate *evaluate = own->evaluate;
	struct buffer kept;

	buffer_init(&kept, EVALUATION_ANSWER_MAX);
	if (jq->error.code == ERR_CANCELLED || jq->error.code == ERR_IO)
		evaluate->busy = true; /* no fault of the expression: once more, later */
	else if (jq->error.code != ERR_NONE)
		evaluation_keep_failure(jq->error.message, &kept);
	else
		evaluation_keep(jq->answer, &kept);
	evaluate->kept = buffer_bytes(&kept);
	free(own);
	evaluate->on_done(evaluate);
	buffer_close(&kept);
}

static void evaluate(void *arg, struct engine_evaluate *evaluate)
{
	struct ports *ports = arg;
	struct port_evaluation *own = memory_zero(sizeof *own);
	struct error error;

	own->evaluate = evaluate;
	own->jq = (struct jq_request){.request = evaluate->request, .on_done = on_answered, .owner = own};
	list_init(&own->jq.link);
	if (jq_pool_ask(ports->daemon->jq, &own->jq, &error) == 0)
		return;
	free(own);
	list_add_last(&ports->refused, &evaluate->link);
	if (!uv_is_active((uv_handle_t *)&ports->retry))
		uv_timer_start(&ports->retry, on_retry, PORT_RETRY_MS, PORT_RETRY_MS);
}

/* --- children ----------------------------------------------------------------------------------------------------- */

static void look_work(struct store_reader *reader, struct store_read *read)
{
	read_child(reader, &read->arena, ((struct port_read *)read->owner)->request, &read->error);
}

static void on_child_looked(struct store_read *read)
{
	struct port_read *port_read = read->owner;
	struct children_look *look = port_read->request;
	struct definitions *definitions = &port_read->ports->daemon->definitions;

	look->arena = read->arena;
	look->error = read->error;
	free(port_read);
	if (look->definition && look->is_there) { /* from the cache, and not needed */
		definition_release(look->definition);
		look->definition = NULL;
	} else if (look->definition && look->definition->use_count == 1) { /* just loaded */
		look->definition = definition_hold(definitions_put(definitions, look->definition, true)); /* takes over this use */
	}
	look->on_done(look);
}

static void look_for_child(void *arg, struct children_look *look)
{
	struct ports *ports = arg;
	struct definition *cached = look->version ? definitions_by_name(&ports->daemon->definitions, look->namespace, look->name, look->version) : NULL;

	if (cached) {
		look->definition = definition_hold(cached);
		look->workflow_version = look->version;
	}
	begin_read(ports, look, look_work, on_child_looked);
}

struct children_ports ports_for_children(struct ports *ports)
{
	return (struct children_ports){.arg = ports, .look = look_for_child, .now_us = port_now_us, .wall_ms = port_wall_ms};
}

/* --- the activities' ports ---------------------------------------------------------------------------------------- */

static void load_content_work(struct store_reader *reader, struct store_read *read)
{
	struct content_load *load = ((struct port_read *)read->owner)->request;

	reader_content(reader, &read->arena, 0, &load->digest, NULL, &load->bytes, &read->error);
}

static void on_content_loaded(struct store_read *read)
{
	struct port_read *port_read = read->owner;
	struct content_load *load = port_read->request;

	load->arena = read->arena;
	load->error = read->error;
	free(port_read);
	load->on_done(load);
}

static void load_content(void *arg, struct content_load *load)
{
	begin_read(arg, load, load_content_work, on_content_loaded);
}

/* An entry that the activities want in the journal; tried again while the journal's queue or disk is full. */
struct note_append {
	struct store_append append;
	struct entry entry;
	struct arena arena;
	struct configuration_note *configuration; /* one of the two */
	struct runtime_note *runtime;
	struct ports *ports;
	uv_timer_t timer;
};

static void on_note_closed(uv_handle_t *handle)
{
	struct note_append *own = handle->data;
	struct configuration_note *configuration = own->configuration;
	struct runtime_note *runtime = own->runtime;

	if (configuration)
		configuration->error = own->append.error;
	else
		runtime->error = own->append.error;
	arena_close(&own->arena);
	free(own);
	if (configuration)
		configuration->on_done(configuration);
	else
		runtime->on_done(runtime);
}

static void on_note_due(uv_timer_t *timer);

static void on_noted(struct store_append *append)
{
	struct note_append *own = append->owner;

	if ((append->error.code == ERR_FULL || append->error.code == ERR_BUSY) && own->ports->daemon->stage < DAEMON_STOPPING) {
		uv_timer_start(&own->timer, on_note_due, ENGINE_RETRY_APPEND_MS, 0);
		return;
	}
	uv_close((uv_handle_t *)&own->timer, on_note_closed);
}

static void append_note(struct note_append *own)
{
	own->append = (struct store_append){.entries = &own->entry, .entry_count = 1, .on_done = on_noted, .owner = own};
	if (store_append(own->ports->daemon->store, &own->append) != 0)
		uv_timer_start(&own->timer, on_note_due, ENGINE_RETRY_APPEND_MS, 0);
}

static void on_note_due(uv_timer_t *timer)
{
	append_note(timer->data);
}

static struct note_append *make_note(struct ports *ports, enum entry_kind kind)
{
	struct note_append *own = memory_zero(sizeof *own);

	own->ports = ports;
	arena_init(&own->arena);
	CHECK(uv_timer_init(&ports->daemon->loop, &own->timer) == 0);
	own->timer.data = own;
	own->entry = (struct entry){.kind = kind, .data = json_object(&own->arena), .time_ms = clock_wall_ms()};
	return own;
}

static void note_configuration(void *arg, struct configuration_note *note)
{
	struct note_append *own = make_note(arg, ENTRY_CONFIG_LOADED);

	own->configuration = note;
	json_set_text(&own->arena, own->entry.data, "runtime", note->runtime);
	/* The configuration's identity is the digest of its values; the record, with how each is known, is content beside it. */
	entry_add_value(&own->arena, &own->entry, "record", arena_bytes(&own->arena, note->record));
	json_set_digest(&own->arena, own->entry.data, "configuration", &note->digest);
	append_note(own);
}

static void note_runtime(void *arg, struct runtime_note *note)
{
	enum entry_kind kind;
	CHECK(entry_kind_parse(note->kind, &kind));
	struct note_append *own = make_note(arg, kind);

	own->runtime = note;
	own->entry.data = json_copy(&own->arena, note->data);
	if (json_count(note->value) > 0)
		entry_add_value(&own->arena, &own->entry, "detail", json_print_arena(note->value, &own->arena));
	append_note(own);
}

/* --- what is below a run -------------------------------------------------------------------------------------------- */

int read_below(struct store_reader *reader, struct arena *arena, const char *id, size_t limit, struct store_run **found, size_t *count, struct error *error)
{
	struct store_run *open = NULL;
	size_t cap = 0;

	*count = 0;
	for (size_t at = 0; at <= *count && *count < limit; at++) {
		struct store_run_filter filter = {.parent = at == 0 ? id : open[at - 1].id, .is_open = true, .limit = STORE_PAGE_MAX};
		struct store_run *runs;
		size_t page;
		do {
			if (reader_runs(reader, arena, &filter, &runs, &page, error) != 0)
				return error->code;
			for (size_t i = 0; i < page; i++) {
				filter.before_seq = runs[i].seq;
				if (!runs[i].is_awaited || *count >= limit)
					continue;
				open = arena_grow(arena, open, *count, &cap, sizeof *open);
				open[(*count)++] = runs[i];
			}
		} while (page == filter.limit && *count < limit);
	}
	*found = open;
	return 0;
}

static void look_below_work(struct store_reader *reader, struct store_read *read)
{
	struct engine_look *look = ((struct port_read *)read->owner)->request;
	struct store_run *runs;

	if (read_below(reader, &read->arena, look->run_id, look->limit, &runs, &look->count, &read->error) != 0)
		return;
	look->ids = arena_alloc(&read->arena, (look->count + 1) * sizeof *look->ids);
	for (size_t i = 0; i < look->count; i++)
		look->ids[i] = runs[i].id;
}

static void on_looked_below(struct store_read *read)
{
	struct port_read *port_read = read->owner;
	struct engine_look *look = port_read->request;

	look->arena = read->arena;
	look->error = read->error;
	free(port_read);
	look->on_done(look);
}

static void look_below(void *arg, struct engine_look *look)
{
	begin_read(arg, look, look_below_work, on_looked_below);
}

/* --- the rest is handed on ---------------------------------------------------------------------------------------- */

static uint64_t port_now_us(void *arg)
{
	(void)arg;
	return clock_now_us();
}

static int64_t port_wall_ms(void *arg)
{
	(void)arg;
	return clock_wall_ms();
}

static int port_append(void *arg, struct store_append *append)
{
	return store_append(((struct ports *)arg)->daemon->store, append);
}

static int port_start_activity(void *arg, struct activity *activity, struct error *error)
{
	if (activity->kind == ACTIVITY_RUN)
		return children_start(&((struct ports *)arg)->daemon->children, activity, error);
	return activity_start(((struct ports *)arg)->daemon->activities, activity, error);
}

static void port_cancel_activity(void *arg, struct activity *activity)
{
	if (activity->kind == ACTIVITY_RUN)
		children_cancel(&((struct ports *)arg)->daemon->children, activity);
	else
		activity_cancel(((struct ports *)arg)->daemon->activities, activity);
}

static void port_close_activity(void *arg, struct activity *activity)
{
	token_spool_end(&((struct ports *)arg)->daemon->tokens, activity);
	activity_close(activity);
}

static void port_on_text(void *arg, struct activity *activity, struct bytes text, bool is_reasoning)
{
	token_spool_add(&((struct ports *)arg)->daemon->tokens, activity, text, is_reasoning);
}

static void port_on_answer(void *arg)
{
	store_expect(((struct ports *)arg)->daemon->store);
}

static void port_on_committed(void *arg, const char *run_id, uint64_t seq_last, bool ended)
{
	struct daemon *daemon = ((struct ports *)arg)->daemon;

	feeds_on_committed(&daemon->feeds, run_id, seq_last, ended);
	sinks_wake(daemon->sinks);
	if (ended) {
		token_spool_on_run_ended(&daemon->tokens, run_id);
		schedules_on_run_ended(&daemon->schedules, run_id);
	}
}

static void port_listen(void *arg, const char *run_id, const char *step_id, const struct task *task, struct definition *definition, int64_t since_ms, uint64_t after_seq)
{
	listeners_add(((struct ports *)arg)->daemon->listeners, run_id, step_id, task->listen->to, definition, since_ms, after_seq);
}

static void port_unlisten(void *arg, const char *run_id, const char *step_id)
{
	listeners_remove(((struct ports *)arg)->daemon->listeners, run_id, step_id);
}

static void port_on_emitted(void *arg)
{
	event_hub_wake(((struct ports *)arg)->daemon->hub);
}

static void port_on_gate(void *arg, const struct digest *id, struct bytes report)
{
	activities_note_gate(((struct ports *)arg)->daemon->activities, id, report);
}

/* For the record alone: nothing waits for it, and it is not tried again. */
struct remark {
	struct store_append append;
	struct entry entry;
	struct arena arena;
};

static void on_remarked(struct store_append *append)
{
	struct remark *own = append->owner;

	if (append->error.code != ERR_NONE)
		log_warn(LOG_ENGINE, "%s is not in the journal: %s", entry_kind_name(own->entry.kind), append->error.message);
	arena_close(&own->arena);
	free(own);
}

static struct remark *make_remark(enum entry_kind kind)
{
	struct remark *own = memory_zero(sizeof *own);

	arena_init(&own->arena);
	own->entry = (struct entry){.kind = kind, .data = json_object(&own->arena), .time_ms = clock_wall_ms()};
	return own;
}

static void append_remark(struct ports *ports, struct remark *own)
{
	own->append = (struct store_append){.entries = &own->entry, .entry_count = 1, .on_done = on_remarked, .owner = own};
	if (store_append(ports->daemon->store, &own->append) != 0) {
		error_set(&own->append.error, ERR_BUSY, "the journal's queue is full");
		on_remarked(&own->append);
	}
}

static void port_on_clock_stepped(void *arg, int64_t by_ms)
{
	struct remark *own = make_remark(ENTRY_CLOCK_STEPPED);

	log_warn(LOG_ENGINE, "the wall clock was set by %lld ms; runs that wait go on in the time that goes by", (long long)by_ms);
	json_set_number(&own->arena, own->entry.data, "byMs", (double)by_ms);
	append_remark(arg, own);
}

static void port_on_spent(void *arg, const struct activity *activity)
{
	struct remark *own = make_remark(ENTRY_RUNTIME_SPENT);

	json_set(&own->arena, own->entry.data, "spent", spent_json(&own->arena, &activity->result.spent));
	json_set_text(&own->arena, own->entry.data, "runId", activity->run_id);
	json_set_text(&own->arena, own->entry.data, "stepId", activity->step_id);
	json_set_number(&own->arena, own->entry.data, "attempt", activity->attempt);
	append_remark(arg, own);
}

static void port_on_tree_done(void *arg)
{
	children_go_on(&((struct ports *)arg)->daemon->children);
}

static void port_on_run_failed(void *arg, const char *run_id, const struct error *error)
{
	(void)arg;
	log_error(LOG_ENGINE, "run=%s put into quarantine: %s; resume it to try it again, or cancel it", run_id, error->message);
}

struct engine_ports ports_for_engine(struct ports *ports)
{
	return (struct engine_ports){
		.arg = ports, .now_us = port_now_us, .wall_ms = port_wall_ms, .append = port_append, .load_run = load_run, .load_values = load_values, .evaluate = evaluate,
		.listen = port_listen, .unlisten = port_unlisten, .on_emitted = port_on_emitted, .on_gate = port_on_gate, .on_spent = port_on_spent, .start_activity = port_start_activity, .cancel_activity = port_cancel_activity, .close_activity = port_close_activity,
		.look_below = look_below, .on_tree_done = port_on_tree_done, .on_committed = port_on_committed, .on_clock_stepped = port_on_clock_stepped, .on_run_failed = port_on_run_failed,
	};
}

struct activity_ports ports_for_activities(struct ports *ports)
{
	return (struct activity_ports){
		.arg = ports, .now_us = port_now_us, .wall_ms = port_wall_ms, .load_content = load_content, .note_configuration = note_configuration, .note_runtime = note_runtime,
		.on_text = port_on_text, .on_answer = port_on_answer,
	};
}

/* --- the engine's deadlines --------------------------------------------------------------------------------------- */

static void on_deadline(uv_timer_t *timer)
{
	struct ports *ports = timer->data;

	ports->armed_ms = 0;
	engine_on_time(ports->daemon->engine);
}

/* Once a turn, before the loop sleeps: whatever happened in the turn may have moved the next deadline. */
static void on_prepare(uv_prepare_t *prepare)
{
	struct ports *ports = prepare->data;
	int64_t due_ms = ports->daemon->engine ? engine_next_deadline_ms(ports->daemon->engine) : 0;

	/* Past what it sleeps for already: the clock was set forward. What came to wait since then must not wait for that. */
	if (due_ms == ports->armed_ms && (due_ms == 0 || due_ms > clock_wall_ms()))
		return;
	ports->armed_ms = due_ms;
	if (due_ms == 0) {
		uv_timer_stop(&ports->deadline);
		return;
	}
	int64_t left_ms = due_ms - clock_wall_ms();
	uv_update_time(&ports->daemon->loop);
	uv_timer_start(&ports->deadline, on_deadline, (uint64_t)(left_ms < 0 ? 0 : left_ms > PORT_SLEEP_MAX_MS ? PORT_SLEEP_MAX_MS : left_ms), 0);
}

void ports_init(struct ports *ports, struct daemon *daemon)
{
	*ports = (struct ports){.daemon = daemon};
	list_init(&ports->postponed);
	list_init(&ports->refused);
	CHECK(uv_timer_init(&daemon->loop, &ports->retry) == 0);
	CHECK(uv_timer_init(&daemon->loop, &ports->deadline) == 0);
	CHECK(uv_prepare_init(&daemon->loop, &ports->prepare) == 0);
	ports->retry.data = ports->deadline.data = ports->prepare.data = ports;
	CHECK(uv_prepare_start(&ports->prepare, on_prepare) == 0);
	uv_unref((uv_handle_t *)&ports->prepare);
}

void ports_close(struct ports *ports)
{
	uv_close((uv_handle_t *)&ports->retry, NULL);
	uv_close((uv_handle_t *)&ports->deadline, NULL);
	uv_close((uv_handle_t *)&ports->prepare, NULL);
}
