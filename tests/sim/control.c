/* The control port: counters out, scripts in. A port of its own, so that the product's paths stay as a runtime has them.
 * Loop thread. */
#include <string.h>

#include "tests/sim/sim.h"
#include "workflow/base/json.h"

enum { STATE_BYTES_MAX = 128 * 1024 * 1024 /* two full tallies and the largest body are below 60 MiB */ };

static void reply_word(struct http_connection *connection, int status, const char *name, const char *text)
{
	struct buffer body;

	buffer_init(&body, 8192);
	buffer_printf(&body, "{\"%s\":", name);
	json_print_string(text, strlen(text), &body);
	buffer_add_text(&body, "}\n");
	http_reply(connection, status, "application/json", "", buffer_bytes(&body));
	buffer_close(&body);
}

static void print_runtime(const struct runtime *runtime, struct buffer *out)
{
	buffer_printf(out, ",\"runtime\":{\"ready\":%s,\"instance\":%llu,\"running\":%llu,\"waiting\":%llu,\"abandoned\":%llu,"
		"\"promptTokens\":%llu,\"cachedTokens\":%llu,\"generatedTokens\":%llu,\"models\":{",
		runtime->phase == RUNTIME_READY ? "true" : "false", (unsigned long long)runtime->instance,
		(unsigned long long)runtime->running, (unsigned long long)runtime->waiting, (unsigned long long)runtime->abandoned,
		(unsigned long long)runtime->prompt_tokens, (unsigned long long)runtime->cached_tokens,
		(unsigned long long)runtime->text_tokens);
	for (size_t i = 0; i < runtime->model_count; i++) {
		const struct model_state *model = runtime->models[i];

		if (i > 0)
			buffer_add_char(out, ',');
		json_print_string(model->name, strlen(model->name), out);
		buffer_printf(out, ":{\"loaded\":%s,\"loads\":%llu,\"sinceLoad\":%llu}", model->loaded ? "true" : "false",
			(unsigned long long)model->loads, (unsigned long long)model->since_load);
	}
	buffer_add_text(out, "}}");
}

static void reply_state(struct sim *sim, struct http_connection *connection)
{
	struct buffer body;

	buffer_init(&body, STATE_BYTES_MAX);
	counters_print(&sim->counters, sim->product.connection_count, sim->product.connections_refused, &body);
	body.len -= strlen("}\n");
	print_runtime(&sim->runtime, &body);
	buffer_add_text(&body, "}\n");
	http_reply(connection, 200, "application/json", "", buffer_bytes(&body));
	buffer_close(&body);
}

static void replace_script(struct sim *sim, struct http_connection *connection)
{
	struct error error = {.code = ERR_NONE};
	struct script *script = script_new(buffer_bytes(&connection->body), &sim->defaults, &error);

	if (script == NULL) {
		reply_word(connection, 400, "error", error.message);
		return;
	}
	script_release(sim->script);
	sim->script = script;
	sim_apply_script(sim);
	reply_word(connection, 200, "status", "ok");
}

static void print_error(struct http_connection *connection, int status, struct buffer *out)
{
	(void)connection;
	buffer_printf(out, "{\"error\":\"HTTP status %d\"}\n", status);
}

static bool on_header(struct http_connection *connection)
{
	(void)connection;
	return true;
}

static void on_request(struct http_connection *connection)
{
	struct sim *sim = connection->server->context;
	struct bytes path = buffer_bytes(&connection->path);
	bool post = connection->method == HTTP_POST;
	struct error error = {.code = ERR_NONE};

	if (connection->method == HTTP_GET && bytes_equal_text(path, "/__sim/state")) {
		reply_state(sim, connection);
	} else if (post && bytes_equal_text(path, "/__sim/script")) {
		replace_script(sim, connection);
	} else if (post && bytes_equal_text(path, "/__sim/reset")) {
		counters_reset(&sim->counters);
		reply_word(connection, 200, "status", "ok");
	} else if (post && bytes_equal_text(path, "/__sim/reload")) {
		if (sim_reload(sim, &error) != 0)
			reply_word(connection, 503, "error", error.message);
		else
			reply_word(connection, 200, "status", "ok");
	} else if (post && bytes_equal_text(path, "/__sim/flush")) {
		runtime_flush_cache(&sim->runtime);
		reply_word(connection, 200, "status", "ok");
	} else if (post && bytes_equal_text(path, "/__sim/release")) {
		exchange_release(sim);
		reply_word(connection, 200, "status", "ok");
	} else {
		reply_word(connection, 404, "error", "known: GET /__sim/state, POST /__sim/script, /__sim/release, /__sim/reset, /__sim/reload, /__sim/flush");
	}
}

static void on_nothing(struct http_connection *connection)
{
	(void)connection;
}

const struct http_handler control_handler = {
	.on_header = on_header,
	.on_request = on_request,
	.on_gone = on_nothing,
	.on_drained = on_nothing,
	.print_error = print_error,
};
