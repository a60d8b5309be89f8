/* Tests of workflow/language/cloud_event.c: both modes give one form, each rule refuses, each limit is reached. */
#include "workflow/language/cloud_event.h"

#include <stdio.h>
#include <string.h>

#include "tests/unit/base/suite.h"
#include "workflow/base/check.h"

static const char least[] = "{\"specversion\":\"1.0\",\"id\":\"1\",\"source\":\"/door\",\"type\":\"t\"}";

static struct cloud_event parse(struct arena *arena, const char *text)
{
	struct error error = {0};
	struct cloud_event event;

	ck_assert_msg(cloud_event_parse(arena, bytes_text(text), &event, &error) == 0, "%s: %s", text, error.message);
	return event;
}

static void refuse(const char *text, const char *part)
{
	struct error error = {0};
	struct cloud_event event;
	struct arena arena;

	arena_init(&arena);
	ck_assert_msg(cloud_event_parse(&arena, bytes_text(text), &event, &error) != 0, "%s: accepted", text);
	ck_assert_msg(strstr(error.message, part) != NULL, "%s: '%s' is not in '%s'", text, part, error.message);
	arena_close(&arena);
}

/* An event's bytes are its canonical form, unset attributes are not in it, and its key is of source and id alone. */
START_TEST(structured)
{
	struct cloud_event event, other;
	struct digest expected = digest_of(BYTES_OF("[\"/door\",\"1\"]"));
	struct arena arena;

	arena_init(&arena);
	event = parse(&arena, "{\"type\":\"t\", \"source\":\"/door\", \"id\":\"1\", \"subject\":null, \"specversion\":\"1.0\",\"data\":null, \"data_base64\":null,\n"
			      "\"time\":\"2026-11-30T10:00:00.123456+01:00\",\"flag\":true,\"number\":-2147483648,\"dataschema\":\"urn:x\"}");
	ck_assert(bytes_equal_text(event.bytes, "{\"data\":null,\"dataschema\":\"urn:x\",\"flag\":true,\"id\":\"1\",\"number\":-2147483648,\"source\":\"/door\",\"specversion\":\"1.0\","
						"\"time\":\"2026-11-30T10:00:00.123456+01:00\",\"type\":\"t\"}"));
	ck_assert_str_eq(event.id, "1");
	ck_assert_str_eq(event.source, "/door");
	ck_assert_str_eq(event.type, "t");
	ck_assert(digest_equal(&event.key, &expected));
	other = parse(&arena, "{\"specversion\":\"1.0\",\"id\":\"1\",\"source\":\"/door\",\"type\":\"other\",\"data\":{\"a\":[1,2]}}");
	ck_assert(digest_equal(&event.key, &other.key));
	other = parse(&arena, "{\"specversion\":\"1.0\",\"id\":\"2\",\"source\":\"/door\",\"type\":\"t\"}");
	ck_assert(!digest_equal(&event.key, &other.key));
	/* Neither id nor source can imitate the border between the two. */
	ck_assert(memcmp(cloud_event_key("a", "b\",\"c").bytes, cloud_event_key("a\",\"b", "c").bytes, 32) != 0);
	arena_close(&arena);
}
END_TEST

/* What the journal gives back is the event that was put in. */
START_TEST(read_back)
{
	struct cloud_event event, again;
	struct error error = {0};
	struct arena arena;

	arena_init(&arena);
	event = parse(&arena, "{\"specversion\":\"1.0\",\"id\":\"1\",\"source\":\"s\",\"type\":\"t\",\"data\":{\"b\":1,\"a\":[true,null]}}");
	ck_assert_int_eq(cloud_event_read(&arena, event.bytes, &again, &error), 0);
	ck_assert(json_equal(event.envelope, again.envelope));
	ck_assert(digest_equal(&event.key, &again.key));
	ck_assert_int_eq(cloud_event_read(&arena, BYTES_OF("{\"id\":\"1\"}"), &again, &error), ERR_CORRUPT);
	ck_assert_int_eq(cloud_event_read(&arena, BYTES_OF("{"), &again, &error), ERR_CORRUPT);
	arena_close(&arena);
}
END_TEST

/* Each rule of the specification names the attribute that breaks it. */
START_TEST(refused)
{
	static const struct {
		const char *text, *part;
	} cases[] = {
		{"[]", "batches"},
		{"7", "is number, not an object"},
		{"{", "json-syntax"},
		{"{\"a\":1,\"a\":2}", "json-duplicate"},
		{"{}", "'id' is missing"},
		{"{\"specversion\":\"1.0\",\"id\":\"1\",\"source\":\"s\"}", "'type' is missing"},
		{"{\"specversion\":\"1.0\",\"id\":\"1\",\"source\":null,\"type\":\"t\"}", "'source' is missing"},
		{"{\"id\":\"1\",\"source\":\"s\",\"type\":\"t\"}", "'specversion' is missing"},
		{"{\"specversion\":\"0.3\",\"id\":\"1\",\"source\":\"s\",\"type\":\"t\"}", "only 1.0 is known"},
		{"{\"specversion\":1.0,\"id\":\"1\",\"source\":\"s\",\"type\":\"t\"}", "'specversion' is no text"},
		{"{\"specversion\":\"1.0\",\"id\":\"\",\"source\":\"s\",\"type\":\"t\"}", "'id' is empty"},
		{"{\"specversion\":\"1.0\",\"id\":7,\"source\":\"s\",\"type\":\"t\"}", "'id' is no text"},
		{"{\"specversion\":\"1.0\",\"id\":\"1\",\"source\":\"a b\",\"type\":\"t\"}", "'source' is no URI reference"},
		{"{\"specversion\":\"1.0\",\"id\":\"1\",\"source\":\"a%2\",\"type\":\"t\"}", "'source' is no URI reference"},
		{"{\"specversion\":\"1.0\",\"id\":\"1\",\"source\":\"s\",\"type\":\"t\\n\"}", "'type' holds control"},
		{"{\"specversion\":\"1.0\",\"id\":\"1\",\"source\":\"s\",\"type\":\"\\u0085\"}", "'type' holds control"},
		{"{\"specversion\":\"1.0\",\"id\":\"1\",\"source\":\"s\",\"type\":\"\xEF\xBF\xBF\"}", "'type' holds control"},
		{"{\"specversion\":\"1.0\",\"id\":\"1\",\"source\":\"s\",\"type\":\"t\",\"Big\":\"x\"}", "'Big' is no attribute name"},
		{"{\"specversion\":\"1.0\",\"id\":\"1\",\"source\":\"s\",\"type\":\"t\",\"a_b\":\"x\"}", "'a_b' is no attribute name"},
		{"{\"specversion\":\"1.0\",\"id\":\"1\",\"source\":\"s\",\"type\":\"t\",\"\":\"x\"}", "0 bytes"},
		{"{\"specversion\":\"1.0\",\"id\":\"1\",\"source\":\"s\",\"type\":\"t\",\"x\":{}}", "belongs into data"},
		{"{\"specversion\":\"1.0\",\"id\":\"1\",\"source\":\"s\",\"type\":\"t\",\"x\":1.5}", "no integer of 32 bits"},
		{"{\"specversion\":\"1.0\",\"id\":\"1\",\"source\":\"s\",\"type\":\"t\",\"x\":2147483648}", "no integer of 32 bits"},
		{"{\"specversion\":\"1.0\",\"id\":\"1\",\"source\":\"s\",\"type\":\"t\",\"time\":\"yesterday\"}", "'time' is no time"},
		{"{\"specversion\":\"1.0\",\"id\":\"1\",\"source\":\"s\",\"type\":\"t\",\"subject\":\"\"}", "'subject' is empty"},
		{"{\"specversion\":\"1.0\",\"id\":\"1\",\"source\":\"s\",\"type\":\"t\",\"subject\":true}", "'subject' is no text"},
		{"{\"specversion\":\"1.0\",\"id\":\"1\",\"source\":\"s\",\"type\":\"t\",\"dataschema\":\"x/y\"}", "'dataschema' is no absolute URI"},
		{"{\"specversion\":\"1.0\",\"id\":\"1\",\"source\":\"s\",\"type\":\"t\",\"datacontenttype\":\"json\"}", "'datacontenttype' is no media type"},
		{"{\"specversion\":\"1.0\",\"id\":\"1\",\"source\":\"s\",\"type\":\"t\",\"data\":null,\"data_base64\":\"\"}", "exclude each other"},
		{"{\"specversion\":\"1.0\",\"id\":\"1\",\"source\":\"s\",\"type\":\"t\",\"data_base64\":\"a\"}", "no base64"},
		{"{\"specversion\":\"1.0\",\"id\":\"1\",\"source\":\"s\",\"type\":\"t\",\"data_base64\":7}", "data_base64 is no text"},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++)
		refuse(cases[i].text, cases[i].part);
}
END_TEST

/* Each limit holds: what is just within is accepted, one more is refused and the limit is named. */
START_TEST(limits)
{
	struct error error = {0};
	struct cloud_event event;
	struct buffer text;
	struct arena arena;

	arena_init(&arena);
	buffer_init(&text, 4 * CLOUD_EVENT_BYTES_MAX);
	for (int more = 0; more < 2; more++) {
		struct json *envelope = parse(&arena, least).envelope;
		for (int i = 0; json_count(envelope) < (size_t)(CLOUD_EVENT_ATTRIBUTES_MAX + more); i++)
			json_set_text(&arena, envelope, arena_printf(&arena, "x%d", i), "");
		ck_assert_int_eq(cloud_event_check(&arena, envelope, &event, &error), more ? ERR_TOO_LARGE : 0);

		envelope = parse(&arena, least).envelope;
		json_set_text(&arena, envelope, arena_printf(&arena, "%0*d", CLOUD_EVENT_NAME_MAX + more, 0), "x");
		ck_assert_int_eq(cloud_event_check(&arena, envelope, &event, &error), more ? ERR_TOO_LARGE : 0);

		envelope = parse(&arena, least).envelope;
		json_set_text(&arena, envelope, "x", arena_printf(&arena, "%0*d", CLOUD_EVENT_TEXT_MAX + more, 0));
		ck_assert_int_eq(cloud_event_check(&arena, envelope, &event, &error), more ? ERR_TOO_LARGE : 0);

		envelope = parse(&arena, least).envelope;
		struct json *data = json_array(&arena);
		for (int i = 1; i < CLOUD_EVENT_LEVELS_MAX - 1 + more; i++) {
			struct json *outer = json_array(&arena);
			json_add(&arena, outer, data);
			data = outer;
		}
		json_set(&arena, envelope, "data", data);
		ck_assert_int_eq(cloud_event_check(&arena, envelope, &event, &error), more ? ERR_TOO_LARGE : 0);

		/* In bytes, of the canonical form and of what is read. */
		size_t rest = CLOUD_EVENT_BYTES_MAX - strlen(least) - strlen(",\"data\":\"\"");
		buffer_clear(&text);
		buffer_printf(&text, "%.*s,\"data\":\"%0*d\"}", (int)strlen(least) - 1, least, (int)rest + more, 0);
		ck_assert_int_eq(cloud_event_parse(&arena, buffer_bytes(&text), &event, &error), more ? ERR_TOO_LARGE : 0);
		envelope = parse(&arena, least).envelope;
		json_set_text(&arena, envelope, "data", arena_printf(&arena, "%0*d", (int)rest + more, 0));
		ck_assert_int_eq(cloud_event_check(&arena, envelope, &event, &error), more ? ERR_TOO_LARGE : 0);
		ck_assert(more || event.bytes.len == CLOUD_EVENT_BYTES_MAX);
	}
	buffer_clear(&text);
	buffer_printf(&text, "%0*d", CLOUD_EVENT_BYTES_MAX + 1, 0);
	ck_assert_int_eq(cloud_event_from_headers(&arena, NULL, 0, "text/plain", buffer_bytes(&text), &event, &error), ERR_TOO_LARGE);
	buffer_close(&text);
	arena_close(&arena);
}
END_TEST

/* Headers and body give what the structured form of the same event gives. */
START_TEST(binary)
{
	static const struct {
		struct cloud_event_header more;
		const char *content_type, *body, *envelope;
	} cases[] = {
		{{"CE-Subject", "Euro%20%E2%82%AC"}, "application/json; charset=utf-8", " {\"a\": 1} ", "\"data\":{\"a\":1},\"datacontenttype\":\"application/json; charset=utf-8\",\"subject\":\"Euro \xE2\x82\xAC\""},
		{{"ce-x", "\"a\\\"b%22 c\""}, NULL, "7", "\"data\":7,\"x\":\"a\\\"b\\\" c\""},
		{{"ce-x", "100%"}, "application/x+JSON", "null", "\"data\":null,\"datacontenttype\":\"application/x+JSON\",\"x\":\"100%\""},
		{{"x-other", "1"}, "text/plain", "hello", "\"data\":\"hello\",\"datacontenttype\":\"text/plain\""},
		{{"ce-time", "2026-11-30T00:00:00Z"}, "text/plain", "\xFF", "\"data_base64\":\"/w==\",\"datacontenttype\":\"text/plain\",\"time\":\"2026-11-30T00:00:00Z\""},
		{{"ce-flag", "true"}, "application/jsonlines", "{}", "\"data_base64\":\"e30=\",\"datacontenttype\":\"application/jsonlines\",\"flag\":\"true\""},
		{{"x", ""}, "application/json", "", "\"datacontenttype\":\"application/json\""},
	};
	struct error error = {0};
	struct cloud_event event, expected;
	struct arena arena;

	arena_init(&arena);
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct cloud_event_header headers[] = {{"ce-specversion", "1.0"}, {"Ce-Id", "1"}, {"ce-source", "/door"}, {"host", "h"}, {"ce-type", "t"}, cases[i].more};
		expected = parse(&arena, arena_printf(&arena, "%.*s,%s}", (int)strlen(least) - 1, least, cases[i].envelope));
		ck_assert_msg(cloud_event_from_headers(&arena, headers, COUNT_OF(headers), cases[i].content_type, bytes_text(cases[i].body), &event, &error) == 0,
			      "%zu: %s", i, error.message);
		ck_assert_msg(bytes_equal(event.bytes, expected.bytes), "%.*s", (int)event.bytes.len, (const char *)event.bytes.data);
	}
	arena_close(&arena);
}
END_TEST

/* What binary mode cannot mean is refused. */
START_TEST(binary_refused)
{
	static const struct {
		struct cloud_event_header more;
		const char *content_type, *body, *part;
	} cases[] = {
		{{"ce-id", "2"}, NULL, "", "comes twice"},
		{{"ce-a-b", "2"}, NULL, "", "no attribute name"},
		{{"ce-data", "2"}, NULL, "", "no meaning"},
		{{"ce-datacontenttype", "text/plain"}, NULL, "", "no meaning"},
		{{"ce-x", "%00"}, NULL, "", "no UTF-8"},
		{{"ce-x", "%ff"}, NULL, "", "no UTF-8"},
		{{"ce-x", "%0a"}, NULL, "", "control"},
		{{"ce-x", "x"}, "application/json", "{", "json-syntax"},
		{{"ce-x", "x"}, "json", "{}", "no media type"},
		{{"ce-x", "x"}, "a/\xFF", "{}", "no UTF-8"},
	};
	struct error error = {0};
	struct cloud_event event;
	struct arena arena;

	arena_init(&arena);
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct cloud_event_header headers[] = {{"ce-specversion", "1.0"}, {"ce-id", "1"}, {"ce-source", "/door"}, {"ce-type", "t"}, cases[i].more};
		ck_assert_int_ne(cloud_event_from_headers(&arena, headers, COUNT_OF(headers), cases[i].content_type, bytes_text(cases[i].body), &event, &error), 0);
		ck_assert_msg(strstr(error.message, cases[i].part) != NULL, "%zu: %s", i, error.message);
	}
	arena_close(&arena);
}
END_TEST

/* An emit's event has what its author wrote, and the defaults for the rest; without a source of either it is refused. */
START_TEST(made)
{
	struct cloud_event_defaults defaults = {.id = "run/do/0/x@1", .time_ms = 1000};
	struct error error = {0};
	struct cloud_event event;
	struct json *with;
	struct arena arena;

	arena_init(&arena);
	with = json_object(&arena);
	json_set_text(&arena, with, "type", "t");
	json_set(&arena, with, "data", json_null(&arena));
	ck_assert_int_eq(cloud_event_make(&arena, with, &defaults, &event, &error), ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(error.message, "'source' is missing"));
	defaults.source = "/reprise";
	ck_assert_int_eq(cloud_event_make(&arena, with, &defaults, &event, &error), 0);
	ck_assert(bytes_equal_text(event.bytes, "{\"data\":null,\"id\":\"run/do/0/x@1\",\"source\":\"/reprise\",\"specversion\":\"1.0\",\"time\":\"1970-01-01T00:00:01.000Z\",\"type\":\"t\"}"));
	json_set_text(&arena, with, "id", "mine");
	json_set_text(&arena, with, "source", "urn:mine");
	json_set(&arena, with, "time", json_null(&arena));
	ck_assert_int_eq(cloud_event_make(&arena, with, &defaults, &event, &error), 0);
	ck_assert_str_eq(event.id, "mine");
	ck_assert_str_eq(event.source, "urn:mine");
	ck_assert_str_eq(json_get_text(event.envelope, "time"), "1970-01-01T00:00:01.000Z");
	ck_assert_int_eq(cloud_event_make(&arena, json_text(&arena, "x"), &defaults, &event, &error), ERR_INVALID);
	ck_assert_int_eq(cloud_event_make(&arena, NULL, &defaults, &event, &error), ERR_INVALID);
	arena_close(&arena);
}
END_TEST

SUITE_NO_ABORTS
SUITE_MAIN("cloud_event", structured, read_back, refused, limits, binary, binary_refused, made)
