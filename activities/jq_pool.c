/* See jq_pool.h. */
#include "activities/jq_pool.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "workflow/base/check.h"
#include "workflow/base/log.h"
#include "workflow/language/evaluation.h"

enum { HANDLES = 3, CHUNK = 64 << 10 };

enum {
	LATE_MS = 100, /* a deadline that fires so much after its time was held up by the loop */
	LOOK_MS = 20, /* at least so long to the next look at what a helper has used */
	LATE_MAX = 8, /* so often it begins anew then */
};

struct jq_helper {
	struct jq_pool *pool;
	struct list link; /* in the list of idle ones */
	struct list of_pool; /* until it ends */
	uv_process_t process;
	uv_pipe_t socket;
	uv_timer_t deadline;
	unsigned open; /* handles that are not closed yet */
	bool process_runs, ending;
	struct jq_request *request; /* NULL: idle */
	bool warming; /* it is asked to compile; the request follows */
	uint64_t asked_ms, busy_ms, limit_ms;
	uint64_t used_ms; /* of processor time, when it was asked */
	uint64_t due_ms; /* of the deadline */
	unsigned late; /* how often that came late */
	struct buffer warm; /* the frame of that */
	struct buffer in;
};

/* One frame on its way out. */
struct frame_write {
	uv_write_t write;
	struct jq_helper *helper;
	uint8_t head[4];
};

struct jq_pool {
	uv_loop_t *loop;
	struct jq_pool_config config;
	char *program;
	struct list idle_helpers; /* that can be asked, the longest idle last */
	struct list helpers; /* all that do not end */
	struct list evaluations, compilations; /* struct jq_request that wait; evaluations first: runs wait for them */
	struct list unstarted; /* struct jq_request that end with ERR_IO in the next turn */
	size_t helper_handles; /* struct jq_helper not freed yet, also those that end */
	uv_timer_t idle, soon;
	unsigned open_timers;
	bool closing;
	struct jq_counts counts;
	char chunk[CHUNK];
};

static void dispatch(struct jq_pool *pool);
static void send_request(struct jq_helper *helper);
static void send_warm(struct jq_helper *helper);

static void free_pool_if_done(struct jq_pool *pool)
{
	if (!pool->closing || pool->open_timers > 0 || pool->helper_handles > 0)
		return;
	free(pool->program);
	free(pool);
}

/* --- the end of a helper ------------------------------------------------------------------------------------------ */

static void on_helper_handle_closed(uv_handle_t *handle)
{
	struct jq_helper *helper = handle->data;
	struct jq_pool *pool = helper->pool;

	if (--helper->open > 0)
		return;
	buffer_close(&helper->in);
	buffer_close(&helper->warm);
	free(helper);
	pool->helper_handles--;
	free_pool_if_done(pool);
}

static void on_helper_exit(uv_process_t *process, int64_t status, int signal_number)
{
	struct jq_helper *helper = process->data;

	helper->process_runs = false;
	uv_close((uv_handle_t *)process, on_helper_handle_closed);
	if (!helper->ending && (status != 0 || signal_number != 0))
		log_info(LOG_ENGINE, "a jq helper ended: status %lld, signal %d", (long long)status, signal_number);
	/* Its request, if there is one, ends when the socket says so. */
}

/* It is asked nothing more. Its process ends of the closed socket, or is killed. */
static void end_helper(struct jq_helper *helper, bool kill_it)
{
	if (helper->ending)
		return;
	helper->ending = true;
	list_remove(&helper->link);
	list_remove(&helper->of_pool);
	helper->pool->counts.helpers--;
	if (helper->process_runs && kill_it)
		uv_process_kill(&helper->process, SIGKILL);
	uv_close((uv_handle_t *)&helper->socket, on_helper_handle_closed);
	uv_close((uv_handle_t *)&helper->deadline, on_helper_handle_closed);
}

/* --- answers ------------------------------------------------------------------------------------------------------ */

static void finish(struct jq_helper *helper)
{
	struct jq_request *request = helper->request;

	helper->request = NULL;
	helper->pool->counts.working--;
	request->on_done(request);
}

/* Of its processor time, all in all; UINT64_MAX: it is gone. */
static uint64_t processor_ms(const struct jq_helper *helper)
{
	struct timespec time;
	clockid_t clock;

	if (!helper->process_runs || clock_getcpuclockid(helper->process.pid, &clock) != 0 || clock_gettime(clock, &time) != 0)
		return UINT64_MAX;
	return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

/* Since it was asked. */
static uint64_t used_ms(const struct jq_helper *helper)
{
	uint64_t now_ms = processor_ms(helper);

	return now_ms == UINT64_MAX || now_ms < helper->used_ms ? UINT64_MAX : now_ms - helper->used_ms;
}

static void lose_helper(struct jq_helper *helper, enum error_code code)
{
	struct jq_pool *pool = helper->pool;
	uint64_t used = used_ms(helper);

	end_helper(helper, true);
	if (!helper->request)
		return;
	if (helper->warming && !helper->request->alone) { /* perhaps of another one's program: once more, without the others */
		struct jq_request *request = helper->request;
		helper->request = NULL;
		pool->counts.working--;
		request->alone = true;
		list_add_first(&pool->evaluations, &request->link);
		pool->counts.waiting++;
		dispatch(pool);
		return;
	}
	if (code == ERR_TIMEOUT) {
		const char *limit = helper->limit_ms == pool->config.compile_ms ? "JQ_COMPILE_MS" : "JQ_EVALUATE_MS";
		pool->counts.killed++;
		if (used >= helper->limit_ms)
			error_set(&helper->request->error, code, "it took longer than %llu ms, the most allowed (%s)", (unsigned long long)helper->limit_ms, limit);
		else
			error_set(&helper->request->error, code, "the machine is too busy: within %llu ms (%d times %s, JQ_WAIT_TIMES) it got less than %llu ms of processor time. Try it again",
				  (unsigned long long)helper->limit_ms * JQ_WAIT_TIMES, JQ_WAIT_TIMES, limit, (unsigned long long)helper->limit_ms);
	} else {
		pool->counts.died++;
		error_set(&helper->request->error, code, "jq ran out of memory (512 MiB) or stack, or failed: the process that evaluated it is gone");
	}
	log_warn(LOG_ENGINE, "a jq helper is replaced: %s", code == ERR_TIMEOUT ? "deadline" : "it died of an expression");
	finish(helper);
	dispatch(pool);
}

static void on_deadline(uv_timer_t *timer);

static void set_deadline(struct jq_helper *helper, uint64_t after_ms)
{
	helper->due_ms = uv_now(helper->pool->loop) + after_ms;
	uv_timer_start(&helper->deadline, on_deadline, after_ms, 0);
}

/* Where the loop itself was held up the answer may be there unread, or the request not yet out: that is not the expression's doing. Nor is it that others have
 * the processor. */
static void on_deadline(uv_timer_t *timer)
{
	struct jq_helper *helper = timer->data;
	uint64_t now_ms = uv_now(helper->pool->loop), used = used_ms(helper);

	if (now_ms >= helper->due_ms + LATE_MS && helper->late < LATE_MAX) {
		helper->late++;
		set_deadline(helper, helper->limit_ms);
	} else if (used < helper->limit_ms && now_ms < helper->asked_ms + helper->limit_ms * JQ_WAIT_TIMES) {
		set_deadline(helper, helper->limit_ms - used > LOOK_MS ? helper->limit_ms - used : LOOK_MS);
	} else {
		lose_helper(helper, ERR_TIMEOUT);
	}
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
	struct jq_helper *helper = handle->data;

	(void)suggested;
	*buffer = uv_buf_init(helper->pool->chunk, CHUNK);
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
	struct jq_helper *helper = stream->data;
	struct jq_pool *pool = helper->pool;
	struct bytes payload;

	if (helper->ending || count == 0)
		return;
	if (count < 0 || !helper->request) { /* gone; or talking without being asked */
		lose_helper(helper, ERR_CORRUPT);
		return;
	}
	buffer_add(&helper->in, buffer->base, (size_t)count);
	switch (evaluation_read_frame(&helper->in, EVALUATION_ANSWER_MAX, &payload)) {
	case FRAME_PARTIAL:
		if (helper->in.overflow)
			lose_helper(helper, ERR_CORRUPT);
		return;
	case FRAME_TOO_LARGE:
		lose_helper(helper, ERR_CORRUPT);
		return;
	case FRAME_WHOLE:
		break;
	}
	if (uv_stream_get_write_queue_size(stream) > 0) { /* it answers what it has not read: the request's bytes are still needed */
		lose_helper(helper, ERR_CORRUPT);
		return;
	}
	uv_timer_stop(&helper->deadline);
	helper->busy_ms += uv_now(pool->loop) - helper->asked_ms;
	if (payload.len == 1 && payload.data[0] == (helper->warming ? EVALUATION_READY : EVALUATION_MISSING)) {
		buffer_clear(&helper->in);
		if (helper->warming)
			send_request(helper);
		else
			send_warm(helper);
		return;
	}
	if (helper->warming || (payload.len == 1 && payload.data[0] == EVALUATION_READY)) {
		lose_helper(helper, ERR_CORRUPT);
		return;
	}
	pool->counts.answered++;
	helper->request->answer = payload;
	finish(helper); /* It may ask again: this helper is not in the list of idle ones before the buffer is free. */
	if (helper->ending)
		return;
	buffer_clear(&helper->in);
	list_add_first(&pool->idle_helpers, &helper->link);
	if (helper->busy_ms >= pool->config.busy_ms) {
		pool->counts.retired++;
		end_helper(helper, false);
	}
	dispatch(pool);
}

/* --- asking ------------------------------------------------------------------------------------------------------- */

static void on_written(uv_write_t *write, int status)
{
	struct frame_write *frame = CONTAINER_OF(write, struct frame_write, write);
	struct jq_helper *helper = frame->helper;

	free(frame);
	if (status < 0 && !helper->ending)
		lose_helper(helper, ERR_CORRUPT);
}

/* limit_ms for the answer to this frame. The bytes stay as they are until they are written, or the helper ends. */
static void send_frame(struct jq_helper *helper, struct bytes payload, uint64_t limit_ms)
{
	struct jq_pool *pool = helper->pool;
	struct frame_write *frame = memory_alloc(sizeof *frame);
	uint32_t len = (uint32_t)payload.len;

	frame->helper = helper;
	for (int i = 0; i < 4; i++)
		frame->head[i] = (uint8_t)(len >> 8 * i);
	uv_buf_t buffers[2] = {uv_buf_init((char *)frame->head, sizeof frame->head), uv_buf_init((char *)(uintptr_t)payload.data, len)};
	uv_update_time(pool->loop);
	helper->asked_ms = uv_now(pool->loop);
	helper->limit_ms = limit_ms;
	helper->used_ms = processor_ms(helper);
	helper->late = 0;
	set_deadline(helper, limit_ms);
	/* A failure shows itself on the reading side as well. */
	if (uv_write(&frame->write, (uv_stream_t *)&helper->socket, buffers, 2, on_written) != 0) {
		free(frame);
		uv_timer_start(&helper->deadline, on_deadline, 0, 0);
	}
}

static void send_request(struct jq_helper *helper)
{
	const struct jq_request *request = helper->request;

	helper->warming = false;
	send_frame(helper, request->request, request->request.data[0] == EVALUATION_COMPILE ? helper->pool->config.compile_ms : helper->pool->config.evaluate_ms);
}

static void send_warm(struct jq_helper *helper)
{
	struct bytes program = evaluation_program(helper->request->request);
	size_t count = 1;

	helper->warming = true;
	buffer_clear(&helper->warm);
	buffer_add_char(&helper->warm, EVALUATION_WARM);
	buffer_add_bytes(&helper->warm, program);
	LIST_EACH(link, &helper->pool->evaluations) {
		const struct jq_request *waiting = CONTAINER_OF(link, struct jq_request, link);
		if (helper->request->alone || count == EVALUATION_BATCH_MAX)
			break;
		program = evaluation_program(waiting->request);
		if (waiting->alone || helper->warm.len + program.len > EVALUATION_BATCH_BYTES_MAX)
			continue;
		buffer_add_bytes(&helper->warm, program);
		count++;
	}
	send_frame(helper, buffer_bytes(&helper->warm), helper->pool->config.compile_ms);
}

static void ask(struct jq_helper *helper, struct jq_request *request)
{
	list_remove(&helper->link); /* of the idle ones */
	helper->request = request;
	helper->pool->counts.working++;
	send_request(helper);
}

static int start_helper(struct jq_pool *pool)
{
	struct jq_helper *helper = memory_zero(sizeof *helper);
	char *arguments[] = {pool->program, NULL}, *environment[] = {NULL};
	uv_stdio_container_t streams[] = {{.flags = UV_CREATE_PIPE | UV_READABLE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&helper->socket},
					  {.flags = UV_IGNORE}, {.flags = UV_IGNORE}};
	uv_process_options_t options = {.file = pool->program, .args = arguments, .env = environment, .cwd = "/", .exit_cb = on_helper_exit, .stdio = streams,
					.stdio_count = COUNT_OF(streams)};

	helper->pool = pool;
	list_init(&helper->link);
	list_init(&helper->of_pool);
	buffer_init(&helper->in, EVALUATION_ANSWER_MAX + 4);
	buffer_init(&helper->warm, EVALUATION_REQUEST_MAX);
	helper->process.data = helper->socket.data = helper->deadline.data = helper;
	CHECK(uv_pipe_init(pool->loop, &helper->socket, 0) == 0);
	CHECK(uv_timer_init(pool->loop, &helper->deadline) == 0);
	pool->helper_handles++;
	pool->counts.helpers++;
	helper->open = HANDLES;
	list_add_first(&pool->idle_helpers, &helper->link);
	list_add_last(&pool->helpers, &helper->of_pool);
	int rc = uv_spawn(pool->loop, &helper->process, &options);
	if (rc != 0) {
		log_error(LOG_ENGINE, "start %s: %s", pool->program, uv_strerror(rc));
		uv_close((uv_handle_t *)&helper->process, on_helper_handle_closed);
		end_helper(helper, false);
		return rc;
	}
	helper->process_runs = true;
	pool->counts.started++;
	CHECK(uv_read_start((uv_stream_t *)&helper->socket, on_alloc, on_read) == 0);
	return 0;
}

static void on_soon(uv_timer_t *timer)
{
	struct jq_pool *pool = timer->data;

	while (!list_empty(&pool->unstarted)) {
		struct jq_request *request = CONTAINER_OF(pool->unstarted.next, struct jq_request, link);
		list_remove(&request->link);
		request->on_done(request);
	}
}

static struct jq_request *take_request(struct jq_pool *pool)
{
	struct list *from = list_empty(&pool->evaluations) ? &pool->compilations : &pool->evaluations;

	if (list_empty(from))
		return NULL;
	struct jq_request *request = CONTAINER_OF(from->next, struct jq_request, link);
	list_remove(&request->link);
	pool->counts.waiting--;
	return request;
}

/* Give waiting requests to idle helpers, and see that one more is warm than there is work for. */
static void dispatch(struct jq_pool *pool)
{
	int failed = 0;

	while (!pool->closing && pool->counts.waiting > 0 && pool->counts.working < JQ_WORKING_MAX) {
		if (list_empty(&pool->idle_helpers) && (failed = start_helper(pool)) != 0)
			break;
		ask(CONTAINER_OF(pool->idle_helpers.next, struct jq_helper, link), take_request(pool));
	}
	if (!pool->closing && failed == 0 && pool->counts.working > 0 && list_empty(&pool->idle_helpers) && pool->counts.helpers < JQ_HELPERS_MAX)
		start_helper(pool);
	if (failed != 0 && pool->counts.working == 0) { /* no helper at all: nobody would come back to the queue */
		for (struct jq_request *request; (request = take_request(pool)) != NULL;) {
			error_set(&request->error, ERR_IO, "the helper program %s cannot be started: %s", pool->program, uv_strerror(failed));
			list_add_last(&pool->unstarted, &request->link);
		}
		uv_timer_start(&pool->soon, on_soon, 0, 0);
	}
	if (!pool->closing)
		uv_timer_again(&pool->idle);
}

int jq_pool_ask(struct jq_pool *pool, struct jq_request *request, struct error *error)
{
	if (!pool->program)
		return error_set(error, ERR_NOT_FOUND, "it needs jq, and the program reprise-jq is neither beside this one nor in PATH");
	if (pool->closing || pool->counts.waiting >= pool->config.queue_max) {
		pool->counts.refused++;
		return error_set(error, ERR_BUSY, "%zu expressions wait for jq, the most allowed (JQ_QUEUE_MAX); retry", pool->counts.waiting);
	}
	CHECK(request->request.len > 0);
	request->error = (struct error){0};
	request->answer = (struct bytes){0};
	request->alone = false;
	list_add_last(request->request.data[0] == EVALUATION_COMPILE ? &pool->compilations : &pool->evaluations, &request->link);
	pool->counts.waiting++;
	dispatch(pool);
	return 0;
}

/* --- the pool ----------------------------------------------------------------------------------------------------- */

static void on_idle(uv_timer_t *timer)
{
	struct jq_pool *pool = timer->data;

	if (pool->counts.working > 0)
		return;
	while (!list_empty(&pool->idle_helpers))
		end_helper(CONTAINER_OF(pool->idle_helpers.next, struct jq_helper, link), false);
	uv_timer_stop(timer);
}

struct jq_pool *jq_pool_open(uv_loop_t *loop, const struct jq_pool_config *config)
{
	struct jq_pool *pool = memory_zero(sizeof *pool);

	pool->loop = loop;
	pool->config = *config;
	pool->program = config->program ? memory_text(config->program) : NULL;
	if (!pool->config.queue_max)
		pool->config.queue_max = JQ_QUEUE_MAX;
	if (!pool->config.evaluate_ms)
		pool->config.evaluate_ms = JQ_EVALUATE_MS;
	if (!pool->config.compile_ms)
		pool->config.compile_ms = JQ_COMPILE_MS;
	if (!pool->config.busy_ms)
		pool->config.busy_ms = JQ_BUSY_MS_MAX;
	if (!pool->config.idle_ms)
		pool->config.idle_ms = JQ_IDLE_MS;
	list_init(&pool->idle_helpers);
	list_init(&pool->helpers);
	list_init(&pool->evaluations);
	list_init(&pool->compilations);
	list_init(&pool->unstarted);
	CHECK(uv_timer_init(loop, &pool->idle) == 0);
	CHECK(uv_timer_init(loop, &pool->soon) == 0);
	pool->open_timers = 2;
	pool->idle.data = pool->soon.data = pool;
	uv_timer_start(&pool->idle, on_idle, pool->config.idle_ms, pool->config.idle_ms); /* each dispatch() begins it anew */
	uv_timer_stop(&pool->idle);
	return pool;
}

void jq_pool_counts(const struct jq_pool *pool, struct jq_counts *counts)
{
	*counts = pool->counts;
}

static void on_timer_closed(uv_handle_t *handle)
{
	struct jq_pool *pool = handle->data;

	pool->open_timers--;
	free_pool_if_done(pool);
}

static void cancel(struct jq_request *request)
{
	error_set(&request->error, ERR_CANCELLED, "the daemon is stopping");
	request->on_done(request);
}

void jq_pool_close(struct jq_pool *pool)
{
	if (!pool)
		return;
	pool->closing = true;
	for (struct jq_request *request; (request = take_request(pool)) != NULL;)
		cancel(request);
	on_soon(&pool->soon);
	while (!list_empty(&pool->helpers)) {
		struct jq_helper *helper = CONTAINER_OF(pool->helpers.next, struct jq_helper, of_pool);
		end_helper(helper, true);
		if (helper->request) {
			error_set(&helper->request->error, ERR_CANCELLED, "the daemon is stopping");
			finish(helper);
		}
	}
	uv_close((uv_handle_t *)&pool->idle, on_timer_closed);
	uv_close((uv_handle_t *)&pool->soon, on_timer_closed);
}
