/* The control port: counters out, scripts in. A port of its own, so that the product's paths stay as a runtime has them.
 * Loop thread. */
#include <string.h>

#include "tests/sim/sim.h"
#include "workflow/base/json.h"

enum { STATE_BYTES_MAX = 128 * 1024 * 1024 /* two full tallies and the largest body are below 60 MiB */ };

static void reply_json(struct http_connection *connection, int status, const char *name, const char *text)
{
	struct buffer body;

	buffer_init(&body, 8192);
	buffer_printf(&body, "{\"%s\":", name);
	json_print_string(text, strlen(text), &body);
	buffer_add_text(&body, "}\n");
	http_reply(connection, status, "application/json", "", buffer_bytes(&body));
	buffer_close(&body);
}

static void reply_state(struct sim *sim, struct http_connection *connection)
{
	struct buffer body;

	buffer_init(&body, STATE_BYTES_MAX);
	counters_print(&sim->counters, sim->product.connection_count, sim->product.connections_refused, &body);
	http_reply(connection, 200, "application/json", "", buffer_bytes(&body));
	buffer_close(&body);
}

static void replace_script(struct sim *sim, struct http_connection *connection)
{
	struct error error = {.code = ERR_NONE};
	struct script *script = script_new(buffer_bytes(&connection->body), &sim->defaults, &error);

	if (script == NULL) {
		reply_json(connection, 400, "error", error.message);
		return;
	}
	script_free(sim->script);
	sim->script = script;
	reply_json(connection, 200, "status", "ok");
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

	if (connection->method == HTTP_GET && bytes_equal_text(path, "/__sim/state")) {
		reply_state(sim, connection);
	} else if (post && bytes_equal_text(path, "/__sim/script")) {
		replace_script(sim, connection);
	} else if (post && bytes_equal_text(path, "/__sim/reset")) {
		counters_reset(&sim->counters);
		reply_json(connection, 200, "status", "ok");
	} else {
		reply_json(connection, 404, "error", "known: GET /__sim/state, POST /__sim/script, POST /__sim/reset");
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
};
