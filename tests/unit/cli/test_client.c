/* Tests of cli/client.c: the event stream's parser, addresses. */
#include "cli/client.h"

#include <stdio.h>
#include <string.h>

#include "tests/unit/cli/suite.h"
#include "workflow/base/check.h"

struct heard {
	struct buffer text;
	unsigned count, stop_after;
};

static bool on_event(void *arg, bool has_id, uint64_t id, const char *name, struct bytes data)
{
	struct heard *heard = arg;
	buffer_printf(&heard->text, "[%s %s %.*s]", has_id ? "" : "-", name, (int)data.len, (const char *)data.data);
	if (has_id)
		buffer_printf(&heard->text, "#%llu", (unsigned long long)id);
	return ++heard->count != heard->stop_after;
}

static void feed(const char *stream, size_t piece, unsigned stop_after, char *out, size_t out_len)
{
	struct heard heard = {.stop_after = stop_after};
	struct event_parser parser;
	buffer_init(&heard.text, 65536);
	event_parser_init(&parser, on_event, &heard);
	for (size_t at = 0, len = strlen(stream); at < len; at += piece)
		event_parser_add(&parser, stream + at, len - at < piece ? len - at : piece);
	snprintf(out, out_len, "%s", buffer_text(&heard.text));
	event_parser_close(&parser);
	buffer_close(&heard.text);
}

/* However the stream is cut, the same events come out: names, ids that stay, data of several lines, comments, all line ends. */
START_TEST(events_are_read_in_any_pieces)
{
	static const struct {
		const char *stream, *events;
	} rows[] = {
		{"data: one\n\n", "[- message one]"},
		{"id: 7\nevent: entry\ndata: {\"a\":1}\n\n", "[ entry {\"a\":1}]#7"},
		{"id: 7\ndata: a\n\ndata: b\n\n", "[ message a]#7[ message b]#7"},
		{"data: a\ndata: b\n\n", "[- message a\nb]"},
		{"data:a\n\n", "[- message a]"},
		{"data:  a\n\n", "[- message  a]"},
		{": comment\n\ndata: a\n: in between\n\n", "[- message a]"},
		{"data: a\r\n\r\ndata: b\r\rdata: c\n\n", "[- message a][- message b][- message c]"},
		{"event: x\n\ndata: a\n\n", "[- message a]"},
		{"retry: 5\nunknown\ndata: a\n\n", "[- message a]"},
		{"id: nonsense\ndata: a\n\n", "[- message a]"},
		{"data: unfinished\n", ""},
		{"", ""},
	};
	char events[1024];
	for (size_t i = 0; i < COUNT_OF(rows); i++)
		for (size_t piece = 1; piece < 12; piece++) {
			feed(rows[i].stream, piece, 0, events, sizeof events);
			ck_assert_str_eq(events, rows[i].events);
		}
}
END_TEST

/* The callback ends the stream, also in the middle of a piece. */
START_TEST(the_callback_can_stop)
{
	char events[1024];
	feed("data: a\n\ndata: b\n\ndata: c\n\n", 1000, 2, events, sizeof events);
	ck_assert_str_eq(events, "[- message a][- message b]");
}
END_TEST

/* One event past CLIENT_EVENT_MAX is refused instead of eating the memory. */
START_TEST(a_huge_event_is_refused)
{
	static char block[1 << 20];
	struct heard heard = {0};
	struct event_parser parser;
	buffer_init(&heard.text, 100);
	event_parser_init(&parser, on_event, &heard);
	memset(block, 'x', sizeof block);
	event_parser_add(&parser, "data: ", 6);
	for (size_t i = 0; i < CLIENT_EVENT_MAX / sizeof block && !parser.overflow; i++)
		event_parser_add(&parser, block, sizeof block);
	ck_assert(parser.overflow);
	ck_assert_uint_eq(heard.count, 0);
	event_parser_close(&parser);
	buffer_close(&heard.text);
}
END_TEST

/* Path segments and query values are percent-encoded; the first query takes the question mark. */
START_TEST(addresses_are_encoded)
{
	struct buffer path;
	buffer_init(&path, 1000);
	buffer_add_text(&path, "/v1/runs/");
	url_add(&path, "a/b ?ü");
	query_add(&path, "label", "team=a&b");
	query_add(&path, "none", NULL);
	query_add(&path, "limit", "5");
	ck_assert_str_eq(buffer_text(&path), "/v1/runs/a%2Fb%20%3F%C3%BC?label=team%3Da%26b&limit=5");
	buffer_close(&path);
}
END_TEST

/* Flag before environment before data folder before default; a flag is not mixed with the environment's other kind. */
START_TEST(the_place_is_chosen_in_order)
{
	struct client client;
	struct error error;
	setenv("REPRISE_SOCKET", "/run/env.sock", 1);
	setenv("REPRISE_URL", "http://env:1", 1);
	setenv("REPRISE_DATA", "/srv/data", 1);
	ck_assert_int_eq(client_open(&client, &(struct client_options){.socket_path = "/flag.sock"}, &error), 0);
	ck_assert_str_eq(client_place(&client), "/flag.sock");
	client_close(&client);
	ck_assert_int_eq(client_open(&client, &(struct client_options){.url = "http://flag:2/"}, &error), 0);
	ck_assert_str_eq(client_place(&client), "http://flag:2");
	client_close(&client);
	ck_assert_int_eq(client_open(&client, &(struct client_options){.data_dir = "/flag/data"}, &error), 0);
	ck_assert_str_eq(client_place(&client), "/flag/data/reprise.sock");
	client_close(&client);
	ck_assert_int_eq(client_open(&client, &(struct client_options){0}, &error), 0);
	ck_assert_str_eq(client_place(&client), "/run/env.sock");
	client_close(&client);
	unsetenv("REPRISE_SOCKET");
	ck_assert_int_eq(client_open(&client, &(struct client_options){0}, &error), 0);
	ck_assert_str_eq(client_place(&client), "http://env:1");
	client_close(&client);
	unsetenv("REPRISE_URL");
	ck_assert_int_eq(client_open(&client, &(struct client_options){0}, &error), 0);
	ck_assert_str_eq(client_place(&client), "/srv/data/reprise.sock");
	client_close(&client);
	unsetenv("REPRISE_DATA");
	setenv("XDG_STATE_HOME", "/home/u/state", 1);
	ck_assert_int_eq(client_open(&client, &(struct client_options){0}, &error), 0);
	ck_assert_str_eq(client_place(&client), "/home/u/state/reprise/reprise.sock");
	client_close(&client);
}
END_TEST

/* What cannot be an address is refused with the reason. */
START_TEST(bad_places_are_refused)
{
	struct client client;
	struct error error;
	char path[300];
	memset(path, 'p', sizeof path - 1);
	path[0] = '/';
	path[sizeof path - 1] = '\0';
	ck_assert_int_eq(client_open(&client, &(struct client_options){.socket_path = path}, &error), ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(error.message, "limit of 107"));
	ck_assert_int_eq(client_open(&client, &(struct client_options){.socket_path = ""}, &error), ERR_INVALID);
	ck_assert_str_eq(error.message, "--socket is empty: the path of the daemon's socket is meant");
	ck_assert_int_eq(client_open(&client, &(struct client_options){.socket_path = "unix:"}, &error), ERR_INVALID);
	ck_assert_int_eq(client_open(&client, &(struct client_options){.url = ""}, &error), ERR_INVALID);
	ck_assert_int_eq(client_open(&client, &(struct client_options){.data_dir = ""}, &error), ERR_INVALID);
	ck_assert_int_eq(client_open(&client, &(struct client_options){.url = "ftp://x"}, &error), ERR_INVALID);
	ck_assert_int_eq(client_open(&client, &(struct client_options){.url = "http://x", .socket_path = "/x"}, &error), ERR_INVALID);
}
END_TEST

RUN_SUITE("cli-client", events_are_read_in_any_pieces, the_callback_can_stop, a_huge_event_is_refused, addresses_are_encoded, the_place_is_chosen_in_order,
	  bad_places_are_refused)
