/* See rig.h. */
#include "tests/unit/activities/rig.h"

#include <curl/curl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "workflow/base/check.h"

enum { WAIT_MS_MAX = 240 * 1000 };

/* ---- The simulator ---- */

void sim_start(struct sim *sim, const char *script_json)
{
	const char *program = getenv("REPRISE_SIM");
	char line[256], path[] = "/tmp/reprise-test-XXXXXX";
	int out[2], fd = -1;
	FILE *file;

	ck_assert_msg(program != NULL, "REPRISE_SIM names no program");
	if (script_json != NULL) {
		fd = mkstemp(path);
		ck_assert_int_ge(fd, 0);
		ck_assert_int_eq(write(fd, script_json, strlen(script_json)), (ssize_t)strlen(script_json));
		close(fd);
	}
	ck_assert_int_eq(pipe(out), 0);
	sim->pid = fork();
	ck_assert_int_ge(sim->pid, 0);
	if (sim->pid == 0) {
		dup2(out[1], 1);
		close(out[0]);
		close(out[1]);
		if (fd >= 0)
			execl(program, program, "--model", "m", "--control-port", "0", "--script", path, (char *)NULL);
		else
			execl(program, program, "--model", "m", "--control-port", "0", (char *)NULL);
		_exit(127);
	}
	close(out[1]);
	file = fdopen(out[0], "r");
	ck_assert_ptr_nonnull(fgets(line, sizeof(line), file));
	ck_assert_msg(sscanf(line, "reprise-sim ready %63s control %63s", sim->url, sim->control) == 2, "%s", line);
	fclose(file);
	if (fd >= 0)
		unlink(path);
}

void sim_stop(struct sim *sim)
{
	int status;

	kill(sim->pid, SIGTERM);
	ck_assert_int_eq(waitpid(sim->pid, &status, 0), sim->pid);
}

static size_t on_body(char *data, size_t size, size_t count, void *arg)
{
	buffer_add(arg, data, size * count);
	return size * count;
}

static void ask_control(const struct sim *sim, const char *path, const char *post, struct buffer *answer)
{
	CURL *easy = curl_easy_init();
	char url[256];

	snprintf(url, sizeof(url), "%s%s", sim->control, path);
	curl_easy_setopt(easy, CURLOPT_URL, url);
	curl_easy_setopt(easy, CURLOPT_PROXY, "");
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, answer);
	if (post != NULL)
		curl_easy_setopt(easy, CURLOPT_POSTFIELDS, post);
	ck_assert_int_eq(curl_easy_perform(easy), CURLE_OK);
	curl_easy_cleanup(easy);
}

struct json *sim_state(const struct sim *sim, struct arena *arena)
{
	struct buffer answer;
	struct json *state;
	struct error error;

	buffer_init(&answer, 8 << 20);
	ask_control(sim, "/__sim/state", NULL, &answer);
	state = json_parse(arena, buffer_bytes(&answer), 0, NULL, &error);
	ck_assert_msg(state != NULL, "%s", error.message);
	buffer_close(&answer);
	return state;
}

void sim_set_script(const struct sim *sim, const char *json)
{
	struct buffer answer;

	buffer_init(&answer, 1 << 20);
	ask_control(sim, "/__sim/script", json, &answer);
	ck_assert_msg(strstr(buffer_text(&answer), "error") == NULL, "%s", buffer_text(&answer));
	buffer_clear(&answer);
	ask_control(sim, "/__sim/reset", "", &answer);
	buffer_close(&answer);
}

/* ---- The stub ---- */

struct connection {
	uv_tcp_t tcp;
	uv_timer_t timer;
	struct stub *stub;
	struct list link;
	char in[STUB_SEEN_MAX];
	size_t in_len;
	unsigned piece, repeated;
	bool answering, closing;
	unsigned handles;
};

struct write {
	uv_write_t request;
	struct connection *connection;
	char *copy;
	bool last;
};

static void on_connection_closed(uv_handle_t *handle)
{
	struct connection *connection = handle->data;

	if (--connection->handles == 0) {
		list_remove(&connection->link);
		free(connection);
	}
}

static void close_connection(struct connection *connection)
{
	if (connection->closing)
		return;
	connection->closing = true;
	uv_close((uv_handle_t *)&connection->tcp, on_connection_closed);
	uv_close((uv_handle_t *)&connection->timer, on_connection_closed);
}

static void next_piece(struct connection *connection);

static void on_written(uv_write_t *request, int status)
{
	struct write *write = request->data;
	struct connection *connection = write->connection;
	bool last = write->last;

	free(write->copy);
	free(write);
	if (connection->closing)
		return;
	if (status != 0)
		close_connection(connection);
	else if (last)
		close_connection(connection);
	else if (connection->answering)
		next_piece(connection);
}

static void send_bytes(struct connection *connection, const char *text, size_t len, bool last)
{
	struct write *write = memory_zero(sizeof(*write));
	uv_buf_t buf;

	write->copy = memory_alloc(len + 1);
	memcpy(write->copy, text, len);
	write->connection = connection;
	write->last = last;
	write->request.data = write;
	buf = uv_buf_init(write->copy, (unsigned)len);
	ck_assert_int_eq(uv_write(&write->request, (uv_stream_t *)&connection->tcp, &buf, 1, on_written), 0);
}

static void on_piece_due(uv_timer_t *timer)
{
	struct connection *connection = timer->data;
	const struct stub_piece *piece = &connection->stub->pieces[connection->piece];

	if (++connection->repeated >= piece->repeat)
		connection->piece++, connection->repeated = 0;
	send_bytes(connection, piece->text, piece->len > 0 ? piece->len : strlen(piece->text), false);
}

static void next_piece(struct connection *connection)
{
	const struct stub_piece *piece = &connection->stub->pieces[connection->piece];

	if (connection->piece >= STUB_PIECES_MAX || piece->text == NULL) {
		connection->answering = false;
		if (!connection->stub->keep_open)
			close_connection(connection);
		return;
	}
	uv_timer_start(&connection->timer, on_piece_due, connection->repeated > 0 ? 0 : piece->delay_ms, 0);
}

static void take_request(struct connection *connection)
{
	struct stub *stub = connection->stub;
	char *end, *length;
	size_t body = 0, whole;

	connection->in[connection->in_len] = '\0';
	end = strstr(connection->in, "\r\n\r\n");
	if (end == NULL || connection->answering || stub->silent)
		return;
	length = strcasestr(connection->in, "content-length: ");
	if (length != NULL && length < end)
		body = strtoul(length + 16, NULL, 10);
	whole = (size_t)(end + 4 - connection->in) + body;
	if (connection->in_len < whole)
		return;
	if (strncmp(connection->in, "GET /v1/models", 14) == 0 || strncmp(connection->in, "GET /api/v1/models", 18) == 0 || strncmp(connection->in, "GET /version", 12) == 0) {
		bool models = strncmp(connection->in, "GET /version", 12) != 0;
		const char *text = !models ? "{}" : stub->models != NULL ? stub->models : "{\"data\":[{\"id\":\"m\"}]}";
		char answer[4096];

		stub->gets++;
		snprintf(answer, sizeof(answer), "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nServer: %s\r\nContent-Length: %zu\r\n\r\n%s",
			 stub->server != NULL ? stub->server : "stub", strlen(text), text);
		connection->in_len = 0;
		send_bytes(connection, answer, strlen(answer), false);
		return;
	}
	memcpy(stub->seen, connection->in, connection->in_len + 1);
	connection->in_len = 0;
	stub->requests++;
	connection->answering = true;
	connection->piece = connection->repeated = 0;
	next_piece(connection);
}

static void on_alloc(uv_handle_t *handle, size_t size, uv_buf_t *buf)
{
	struct connection *connection = handle->data;

	(void)size;
	*buf = uv_buf_init(connection->in + connection->in_len, (unsigned)(sizeof(connection->in) - 1 - connection->in_len));
}

static void on_read(uv_stream_t *stream, ssize_t got, const uv_buf_t *buf)
{
	struct connection *connection = stream->data;

	(void)buf;
	if (got < 0) {
		connection->stub->closed_by_client++;
		close_connection(connection);
		return;
	}
	connection->in_len += (size_t)got;
	take_request(connection);
}

static void on_connection(uv_stream_t *listener, int status)
{
	struct stub *stub = listener->data;
	struct connection *connection = memory_zero(sizeof(*connection));

	ck_assert_int_eq(status, 0);
	connection->stub = stub;
	uv_tcp_init(listener->loop, &connection->tcp);
	uv_timer_init(listener->loop, &connection->timer);
	connection->handles = 2;
	connection->tcp.data = connection->timer.data = connection;
	list_add_last(&stub->connections, &connection->link);
	ck_assert_int_eq(uv_accept(listener, (uv_stream_t *)&connection->tcp), 0);
	uv_read_start((uv_stream_t *)&connection->tcp, on_alloc, on_read);
}

void rig_stub(struct rig *rig, struct stub *stub)
{
	struct sockaddr_in address;
	int len = sizeof(address);

	*stub = (struct stub){.rig = rig};
	list_init(&stub->connections);
	uv_ip4_addr("127.0.0.1", 0, &address);
	uv_tcp_init(&rig->loop, &stub->listener);
	stub->listener.data = stub;
	ck_assert_int_eq(uv_tcp_bind(&stub->listener, (struct sockaddr *)&address, 0), 0);
	ck_assert_int_eq(uv_listen((uv_stream_t *)&stub->listener, 128, on_connection), 0);
	ck_assert_int_eq(uv_tcp_getsockname(&stub->listener, (struct sockaddr *)&address, &len), 0);
	stub->port = ntohs(address.sin_port);
	snprintf(stub->url, sizeof(stub->url), "http://127.0.0.1:%d", stub->port);
	rig->stubs[rig->stub_count++] = stub;
}

/* ---- The rig ---- */

struct later {
	uv_timer_t timer;
	struct rig *rig;
	struct content_load *load;
	struct configuration_note *note;
};

static void on_later_closed(uv_handle_t *handle)
{
	free(handle->data);
}

static void answer_note(struct rig *rig, struct configuration_note *note)
{
	struct error error;

	rig->last_note = json_parse(&rig->note_arena, note->record, 0, NULL, &error);
	ck_assert_msg(rig->last_note != NULL, "%s", error.message);
	note->error = (struct error){0};
	if (rig->notes_fail)
		error_set(&note->error, ERR_FULL, "disk full");
	note->on_done(note);
}

static void on_later(uv_timer_t *timer)
{
	struct later *later = timer->data;
	struct rig *rig = later->rig;

	uv_close((uv_handle_t *)timer, on_later_closed);
	if (later->note != NULL) {
		if (rig->hold_notes)
			rig->held_note = later->note;
		else
			answer_note(rig, later->note);
		return;
	}
	later->load->error = (struct error){0};
	error_set(&later->load->error, ERR_NOT_FOUND, "no such document");
	for (size_t i = 0; i < rig->document_count; i++) {
		struct digest digest = digest_of(rig->documents[i]);

		if (digest_equal(&digest, &later->load->digest)) {
			later->load->error = (struct error){0};
			later->load->bytes = arena_bytes(&later->load->arena, rig->documents[i]);
		}
	}
	later->load->on_done(later->load);
}

static struct later *begin_later(struct rig *rig)
{
	struct later *later = memory_zero(sizeof(*later));

	later->rig = rig;
	uv_timer_init(&rig->loop, &later->timer);
	later->timer.data = later;
	uv_timer_start(&later->timer, on_later, 0, 0);
	return later;
}

static void load_content(void *arg, struct content_load *load)
{
	((struct rig *)arg)->loads++;
	begin_later(arg)->load = load;
}

static void note_configuration(void *arg, struct configuration_note *note)
{
	((struct rig *)arg)->notes++;
	begin_later(arg)->note = note;
}

static uint64_t now(void)
{
	return uv_hrtime() / 1000;
}

static uint64_t port_now_us(void *arg)
{
	struct rig *rig = arg;

	rig->last_now_us = now() + rig->skew_us;
	if (rig->first_now_us == 0)
		rig->first_now_us = rig->last_now_us;
	return rig->last_now_us;
}

static int64_t port_wall_ms(void *arg)
{
	struct timespec time;

	(void)arg;
	clock_gettime(CLOCK_REALTIME, &time);
	return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

void rig_init(struct rig *rig)
{
	*rig = (struct rig){0};
	signal(SIGPIPE, SIG_IGN);
	arena_init(&rig->note_arena);
	ck_assert_int_eq(uv_loop_init(&rig->loop), 0);
}

struct runtime_config *rig_runtime(struct rig *rig, const char *name, const char *url)
{
	struct runtime_config *config = &rig->runtimes[rig->runtime_count++];

	*config = (struct runtime_config){.name = name, .kind = "openai", .url = url, .model = "m", .concurrency = 1};
	return config;
}

void rig_open(struct rig *rig)
{
	struct activities_config config = {
		.runtimes = rig->runtimes, .runtime_count = rig->runtime_count, .http_allow = rig->http_allow,
		.http_allow_count = rig->http_allow_count, .daemon_version = "test",
	};
	struct activity_ports ports = {
		.arg = rig, .now_us = port_now_us, .wall_ms = port_wall_ms, .load_content = load_content, .note_configuration = note_configuration,
	};
	struct error error;

	ck_assert_msg(activities_open(&rig->activities, &rig->loop, &config, &ports, &error) == 0, "%s", error.message);
}

struct digest rig_document(struct rig *rig, struct bytes bytes)
{
	rig->documents[rig->document_count++] = bytes;
	return digest_of(bytes);
}

static void on_closed(void *arg)
{
	((struct rig *)arg)->closed = true;
}

void rig_close(struct rig *rig)
{
	if (rig->activities != NULL) {
		activities_close(rig->activities, on_closed, rig);
		ck_assert_msg(!rig->closed, "closed inside of activities_close()");
	}
	for (size_t i = 0; i < rig->stub_count; i++) {
		LIST_EACH(link, &rig->stubs[i]->connections)
			close_connection(CONTAINER_OF(link, struct connection, link));
		uv_close((uv_handle_t *)&rig->stubs[i]->listener, NULL);
	}
	uv_run(&rig->loop, UV_RUN_DEFAULT);
	ck_assert(rig->activities == NULL || rig->closed);
	ck_assert_int_eq(uv_loop_close(&rig->loop), 0);
	arena_close(&rig->note_arena);
}

static unsigned done_count;

static void on_done(struct activity *activity)
{
	struct task *task = activity->owner;

	ck_assert_msg(!task->done, "the callback fired twice");
	task->done = true;
	task->order = ++done_count;
	task->ended_us = now();
}

void task_init(struct task *task, enum activity_kind kind, const char *with_json)
{
	*task = (struct task){0};
	arena_init(&task->arena);
	task->activity.kind = kind;
	task->activity.run_id = "run";
	task->activity.step_id = "/do/0/x@1";
	task->activity.idempotency_key = "00000000000000000000000000000000000000000000000000000000000000ab";
	task->activity.attempt = 1;
	task->activity.with = json_parse(&task->arena, bytes_text(with_json), 0, NULL, &task->error);
	ck_assert_msg(task->activity.with != NULL, "%s: %s", with_json, task->error.message);
	task->activity.on_done = on_done;
	task->activity.owner = task;
}

void task_start(struct rig *rig, struct task *task)
{
	task->begun_us = now();
	rig->first_now_us = 0;
	ck_assert_msg(activity_start(rig->activities, &task->activity, &task->error) == 0, "%s", task->error.message);
	ck_assert_msg(!task->done, "done inside of activity_start()");
}

void task_wait(struct rig *rig, struct task *task)
{
	uint64_t until = now() + (uint64_t)WAIT_MS_MAX * 1000;

	while (!task->done) {
		ck_assert_msg(now() < until, "no end after %d ms", WAIT_MS_MAX);
		uv_run(&rig->loop, UV_RUN_ONCE);
	}
}

void task_run(struct rig *rig, struct task *task)
{
	task_start(rig, task);
	task_wait(rig, task);
}

void task_close(struct task *task)
{
	activity_close(&task->activity);
	arena_close(&task->arena);
}

void task_expect(struct rig *rig, enum activity_kind kind, const char *with_json, enum failure_class failure, const char *detail)
{
	struct task task;

	task_init(&task, kind, with_json);
	task_run(rig, &task);
	ck_assert_msg(task.activity.result.failure == failure, "expected \"%s\", got \"%s\": %s", failure_name(failure),
		      failure_name(task.activity.result.failure), task.activity.result.detail);
	ck_assert(task.activity.result.ok == (failure == FAILURE_NONE));
	if (detail != NULL)
		ck_assert_msg(strstr(task.activity.result.detail, detail) != NULL, "\"%s\" does not say \"%s\"", task.activity.result.detail, detail);
	task_close(&task);
}

static void on_turns(uv_timer_t *timer)
{
	*(bool *)timer->data = true;
}

void rig_turns(struct rig *rig, unsigned ms)
{
	uv_timer_t timer;
	bool over = false;

	uv_timer_init(&rig->loop, &timer);
	timer.data = &over;
	uv_timer_start(&timer, on_turns, ms, 0);
	while (!over)
		uv_run(&rig->loop, UV_RUN_ONCE);
	uv_close((uv_handle_t *)&timer, NULL);
	uv_run(&rig->loop, UV_RUN_NOWAIT);
}

void full_listener_open(struct full_listener *full)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(address);

	full->listener = socket(AF_INET, SOCK_STREAM, 0);
	ck_assert_int_eq(bind(full->listener, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(full->listener, 0), 0);
	ck_assert_int_eq(getsockname(full->listener, (struct sockaddr *)&address, &len), 0);
	for (size_t i = 0; i < COUNT_OF(full->fillers); i++) {
		full->fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		connect(full->fillers[i], (struct sockaddr *)&address, sizeof(address));
	}
	snprintf(full->url, sizeof(full->url), "http://127.0.0.1:%d", ntohs(address.sin_port));
}

void full_listener_close(struct full_listener *full)
{
	for (size_t i = 0; i < COUNT_OF(full->fillers); i++)
		close(full->fillers[i]);
	close(full->listener);
}

int64_t stages_sum(const struct stage_times *s)
{
	return s->admission + s->queue + s->journal + s->dispatch + s->connect + s->first_token + s->generation + s->parse + s->ground + s->sign +
	       s->commit;
}
