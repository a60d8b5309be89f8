/* Descriptions of services: what is kept of an operation, and what cannot be called. */
#include <check.h>
#include <string.h>

#include "tests/unit/base/suite.h"
#include "workflow/base/check.h"
#include "workflow/language/openapi.h"

#define SWAGGER(more, path) "{\"swagger\":\"2.0\",\"host\":\"api.example\"," more "\"paths\":{" path "}}"
#define OPENAPI(more, path) "{\"openapi\":\"3.0.3\"," more "\"paths\":{" path "}}"
#define KEPT(method, path, server, parameters) "{\"method\":\"" method "\",\"parameters\":[" parameters "],\"path\":\"" path "\",\"server\":\"" server "\"}"
#define PARAMETER(in, multi, name, required) "{\"in\":\"" in "\",\"multi\":" multi ",\"name\":\"" name "\",\"required\":" required "}"

START_TEST(an_operation_is_cut_down)
{
	static const struct {
		const char *description, *kept;
	} cases[] = {
		{SWAGGER("\"basePath\":\"/v2\",\"schemes\":[\"http\",\"https\"],",
			 "\"/pet/{id}\":{\"parameters\":[{\"name\":\"id\",\"in\":\"path\",\"required\":true}],\"get\":{\"operationId\":\"o\",\"parameters\":[{\"$ref\":\"#/parameters/s\"}]}}")
		 , NULL}, /* #/parameters/s leads nowhere */
		{SWAGGER("\"basePath\":\"/v2\",\"schemes\":[\"http\",\"https\"],\"parameters\":{\"s\":{\"name\":\"s\",\"in\":\"query\",\"collectionFormat\":\"multi\"}},",
			 "\"/pet/{id}\":{\"parameters\":[{\"name\":\"id\",\"in\":\"path\",\"required\":true}],\"get\":{\"operationId\":\"o\",\"parameters\":[{\"$ref\":\"#/parameters/s\"}]}}"),
		 KEPT("get", "/pet/{id}", "https://api.example/v2", PARAMETER("path", "false", "id", "true") "," PARAMETER("query", "true", "s", "false"))},
		{SWAGGER("\"schemes\":[\"http\"],", "\"/a\":{\"post\":{\"operationId\":\"o\",\"parameters\":[{\"name\":\"b\",\"in\":\"body\",\"required\":true},{\"name\":\"f\",\"in\":\"formData\"}]}}"),
		 KEPT("post", "/a", "http://api.example", PARAMETER("body", "false", "b", "true"))},
		/* an operation's own parameter replaces that of its path */
		{SWAGGER("", "\"/a\":{\"parameters\":[{\"name\":\"q\",\"in\":\"query\"}],\"put\":{\"operationId\":\"o\",\"parameters\":[{\"name\":\"q\",\"in\":\"query\",\"required\":true}]}}"),
		 KEPT("put", "/a", "https://api.example", PARAMETER("query", "false", "q", "true"))},
		{OPENAPI("\"servers\":[{\"url\":\"https://{zone}.example/{v}\",\"variables\":{\"zone\":{\"default\":\"eu\"},\"v\":{\"default\":\"v1\"}}}],",
			 "\"/a\":{\"post\":{\"operationId\":\"o\",\"parameters\":[{\"name\":\"q\",\"in\":\"query\"},{\"name\":\"r\",\"in\":\"query\",\"explode\":false}],"
			 "\"requestBody\":{\"required\":true,\"content\":{\"application/json\":{}}}}}"),
		 KEPT("post", "/a", "https://eu.example/v1", PARAMETER("query", "true", "q", "false") "," PARAMETER("query", "false", "r", "false") "," PARAMETER("body", "false", "body", "true"))},
		{OPENAPI("\"servers\":[{\"url\":\"/v3\"}],", "\"/a\":{\"get\":{\"operationId\":\"o\"}}"), KEPT("get", "/a", "https://docs.example:1/v3", "")},
		{OPENAPI("\"servers\":[{\"url\":\"v3\"}],", "\"/a\":{\"get\":{\"operationId\":\"o\"}}"), KEPT("get", "/a", "https://docs.example:1/sub/v3", "")},
		/* no host: that of the description; schemes that are none are passed over; a base of "/" adds nothing */
		{"{\"swagger\":\"2.0\",\"basePath\":\"/\",\"schemes\":[7,\"ws\",\"https\",\"http\"],\"paths\":{\"/a\":{\"get\":{\"operationId\":\"o\"}}}}", KEPT("get", "/a", "https://docs.example:1", "")},
		{"{\"swagger\":\"2.0\",\"schemes\":\"http\",\"paths\":{\"/a\":{\"get\":{\"operationId\":\"o\"}}}}", KEPT("get", "/a", "https://docs.example:1", "")},
		{SWAGGER("", "\"/a\":{\"get\":{\"operationId\":\"o\",\"parameters\":[{\"name\":\"s\",\"in\":\"query\",\"collectionFormat\":\"csv\"}]}}"),
		 KEPT("get", "/a", "https://api.example", PARAMETER("query", "false", "s", "false"))},
		/* other operations stand around it, some without an id */
		{OPENAPI("", "\"/b\":{\"get\":{\"operationId\":\"p\"},\"post\":{}},\"/a\":{\"summary\":\"x\",\"delete\":{\"operationId\":\"o\"}}"), KEPT("delete", "/a", "https://docs.example:1/", "")},
		/* a body that need not be sent and is no JSON is left out; one that may be anything is sent as JSON */
		{OPENAPI("", "\"/a\":{\"post\":{\"operationId\":\"o\",\"requestBody\":{\"content\":{\"text/xml\":{}}}}}"), KEPT("post", "/a", "https://docs.example:1/", "")},
		{OPENAPI("", "\"/a\":{\"post\":{\"operationId\":\"o\",\"requestBody\":{\"content\":{\"text/xml\":{},\"*/*\":{}}}}}"),
		 KEPT("post", "/a", "https://docs.example:1/", PARAMETER("body", "false", "body", "false"))},
		{OPENAPI("", "\"/a\":{\"get\":{\"operationId\":\"o\",\"parameters\":[{\"name\":\"X-A\",\"in\":\"header\"},{\"name\":\"c\",\"in\":\"cookie\"}]}}"),
		 KEPT("get", "/a", "https://docs.example:1/", PARAMETER("header", "false", "X-A", "false"))},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct arena arena;
		struct buffer text;
		struct error error;

		arena_init(&arena);
		buffer_init(&text, 10000);
		const struct json *description = json_parse(&arena, bytes_text(cases[i].description), JSON_STRICT, NULL, &error);
		ck_assert_msg(description != NULL, "case %zu: %s", i, error.message);
		struct json *operation = openapi_operation(&arena, description, "o", "https://docs.example:1/sub/api.json?x=1", &error);
		ck_assert_msg((operation != NULL) == (cases[i].kept != NULL), "case %zu: %s", i, error.message);
		if (operation) {
			json_print(operation, &text);
			ck_assert_str_eq(buffer_text(&text), cases[i].kept);
			ck_assert(openapi_operation_valid(operation));
		}
		buffer_close(&text);
		arena_close(&arena);
	}
}
END_TEST

/* What was kept is looked at again before it is used, since it comes out of a definition that somebody else may have written. */
START_TEST(only_whole_operations_are_valid)
{
	static const char good[] = KEPT("get", "/a", "https://h", PARAMETER("query", "false", "q", "true"));
	static const char *const changes[][2] = {
		{"\"get\"", "\"trace\""}, {"\"get\"", "7"}, {"\"/a\"", "\"a\""}, {"\"/a\"", "null"}, {"\"/a\"", "\"/a b\""}, {"\"/a\"", "\"/${.x}\""}, {"\"https://h\"", "\"https://h/{x}\""},
		{"\"https://h\"", "\"https://h?x\""}, {"\"https://h\"", "\"https://h\\u007f\""}, {"\"https://h\"", "\"ftp://h\""}, {"\"https://h\"", "null"}, {"\"q\"", "\"\""}, {"\"q\"", "1"},
		{"\"q\"", "\"q r\""}, {"\"query\"", "\"cookie\""}, {"\"query\"", "null"}, {"\"required\":true", "\"required\":1"}, {"\"multi\":false", "\"multi\":null"},
		{"\"required\":true", "\"required\":true,\"schema\":{}"}, {"\"server\"", "\"more\":1,\"server\""}, {"\"parameters\"", "\"parameter\""},
	};
	struct arena arena;
	struct error error;

	arena_init(&arena);
	ck_assert(openapi_operation_valid(json_parse(&arena, bytes_text(good), JSON_STRICT, NULL, &error)));
	for (size_t i = 0; i < COUNT_OF(changes); i++) {
		const char *at = strstr(good, changes[i][0]);

		ck_assert_ptr_nonnull(at);
		const char *text = arena_printf(&arena, "%.*s%s%s", (int)(at - good), good, changes[i][1], at + strlen(changes[i][0]));
		const struct json *operation = json_parse(&arena, bytes_text(text), JSON_STRICT, NULL, &error);
		ck_assert_msg(operation != NULL, "case %zu: %s: %s", i, text, error.message);
		ck_assert_msg(!openapi_operation_valid(operation), "case %zu: %s", i, text);
	}
	ck_assert(openapi_operation_valid(json_parse(&arena, BYTES_OF(KEPT("get", "/a", "HTTP://h", "")), JSON_STRICT, NULL, &error)));
	ck_assert(!openapi_operation_valid(json_parse(&arena, BYTES_OF("{\"method\":\"get\",\"parameters\":{},\"path\":\"/a\",\"server\":\"https://h\"}"), JSON_STRICT, NULL, &error)));
	ck_assert(!openapi_operation_valid(NULL));
	arena_close(&arena);
}
END_TEST

/* A description is data of a peer: nothing in it becomes an expression, a template or another scheme. */
START_TEST(hostile_descriptions_are_refused)
{
	static const struct {
		const char *description;
		int code;
		const char *message;
	} cases[] = {
		{"{}", ERR_UNSUPPORTED, "no description"}, {"{\"swagger\":\"1.2\"}", ERR_UNSUPPORTED, "no description"}, {"{\"openapi\":\"2.0\"}", ERR_UNSUPPORTED, "no description"},
		{"[]", ERR_UNSUPPORTED, "no description"}, {SWAGGER("", ""), ERR_NOT_FOUND, "has no operation 'o'"},
		{SWAGGER("", "\"/a${ .x }\":{\"get\":{\"operationId\":\"o\"}}"), ERR_INVALID, "cannot be used"},
		{SWAGGER("", "\"a\":{\"get\":{\"operationId\":\"o\"}}"), ERR_INVALID, "cannot be used"},
		{SWAGGER("\"basePath\":\"/{x}\",", "\"/a\":{\"get\":{\"operationId\":\"o\"}}"), ERR_INVALID, "cannot be used"},
		{OPENAPI("\"servers\":[{\"url\":\"file:///etc\"}],", "\"/a\":{\"get\":{\"operationId\":\"o\"}}"), ERR_INVALID, "cannot be used"},
		{OPENAPI("\"servers\":[{\"url\":\"https://{none}.example\"}],", "\"/a\":{\"get\":{\"operationId\":\"o\"}}"), ERR_INVALID, "cannot be used"},
		{OPENAPI("", "\"/a\":{\"get\":{\"operationId\":\"o\",\"parameters\":[{\"name\":\"${ .x }\",\"in\":\"query\"}]}}"), ERR_INVALID, "cannot be used"},
		{OPENAPI("", "\"/a\":{\"get\":{\"operationId\":\"o\",\"parameters\":[{\"name\":\"c\",\"in\":\"cookie\",\"required\":true}]}}"), ERR_UNSUPPORTED, "stands in 'cookie'"},
		{OPENAPI("", "\"/a\":{\"post\":{\"operationId\":\"o\",\"requestBody\":{\"required\":true,\"content\":{\"text/xml\":{}}}}}"), ERR_UNSUPPORTED, "no JSON"},
		{"{\"openapi\":\"3.0.3\",\"paths\":[]}", ERR_NOT_FOUND, "has no operation 'o'"},
		{OPENAPI("", "\"/a\":{\"get\":{\"operationId\":\"o\",\"parameters\":[{\"name\":\"\",\"in\":\"query\"}]}}"), ERR_INVALID, "no name or place"},
		{OPENAPI("", "\"/a\":{\"get\":{\"operationId\":\"o\",\"parameters\":[{\"name\":\"q\"}]}}"), ERR_INVALID, "no name or place"},
		{OPENAPI("", "\"/a\":{\"parameters\":[{\"in\":\"query\"}],\"get\":{\"operationId\":\"o\"}}"), ERR_INVALID, "no name or place"},
		{OPENAPI("", "\"/a\":{\"get\":{\"operationId\":\"o\",\"parameters\":[{\"$ref\":\"other.json#/x\"}]}}"), ERR_INVALID, "no name or place"},
		{OPENAPI("\"x\":{\"$ref\":\"#/x\"},", "\"/a\":{\"get\":{\"operationId\":\"o\",\"parameters\":[{\"$ref\":\"#/x\"}]}}"), ERR_INVALID, "no name or place"},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct arena arena;
		struct error error;

		arena_init(&arena);
		const struct json *description = json_parse(&arena, bytes_text(cases[i].description), JSON_STRICT, NULL, &error);
		ck_assert_msg(description != NULL, "case %zu: %s", i, error.message);
		ck_assert_msg(openapi_operation(&arena, description, "o", "https://docs.example/api.json", &error) == NULL, "case %zu", i);
		ck_assert_msg((int)error.code == cases[i].code && strstr(error.message, cases[i].message), "case %zu: %d %s", i, error.code, error.message);
		arena_close(&arena);
	}
}
END_TEST

/* An operation has at most OPENAPI_PARAMETERS_MAX parameters. */
START_TEST(parameters_are_limited)
{
	for (int count = OPENAPI_PARAMETERS_MAX; count <= OPENAPI_PARAMETERS_MAX + 1; count++) {
		struct arena arena;
		struct buffer text;
		struct error error;

		arena_init(&arena);
		buffer_init(&text, 100000);
		buffer_add_text(&text, "{\"openapi\":\"3.1.0\",\"paths\":{\"/a\":{\"get\":{\"operationId\":\"o\",\"parameters\":[");
		for (int i = 0; i < count; i++)
			buffer_printf(&text, "%s{\"name\":\"p%d\",\"in\":\"query\"}", i ? "," : "", i);
		buffer_add_text(&text, "]}}}}");
		const struct json *description = json_parse(&arena, buffer_bytes(&text), JSON_STRICT, NULL, &error);
		ck_assert_int_eq(openapi_operation(&arena, description, "o", "https://docs.example/api.json", &error) != NULL, count <= OPENAPI_PARAMETERS_MAX);
		buffer_close(&text);
		arena_close(&arena);
	}
}
END_TEST

/* A server beside the description is on the description's own host, whatever stands in its query; one that is too long is refused, not cut. */
START_TEST(servers_are_beside_the_description)
{
	static const struct {
		const char *url, *server;
	} cases[] = {
		{"https://docs.example", "https://docs.example/v3"}, {"https://docs.example?of=/a/b", "https://docs.example/v3"},
		{"https://docs.example/a?of=/b/c", "https://docs.example/v3"}, {"https://docs.example/a/b#/c", "https://docs.example/a/v3"},
	};
	static const char written[] = OPENAPI("\"servers\":[{\"url\":\"v3\"}],", "\"/a\":{\"get\":{\"operationId\":\"o\"}}");
	struct arena arena;
	struct error error;

	arena_init(&arena);
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		const struct json *operation = openapi_operation(&arena, json_parse(&arena, bytes_text(written), JSON_STRICT, NULL, &error), "o", cases[i].url, &error);
		ck_assert_str_eq(json_get_text(operation, "server"), cases[i].server);
	}
	for (int len = OPENAPI_SERVER_MAX - 40; len <= OPENAPI_SERVER_MAX; len += 40) {
		const char *text = arena_printf(&arena, OPENAPI("\"servers\":[{\"url\":\"https://h/%0*d/\"}],", "\"/a\":{\"get\":{\"operationId\":\"o\"}}"), len, 1);
		const struct json *operation = openapi_operation(&arena, json_parse(&arena, bytes_text(text), JSON_STRICT, NULL, &error), "o", cases[0].url, &error);
		ck_assert_int_eq(operation != NULL, len < OPENAPI_SERVER_MAX);
	}
	arena_close(&arena);
}
END_TEST

SUITE_NO_ABORTS
SUITE_MAIN("openapi", an_operation_is_cut_down, only_whole_operations_are_valid, hostile_descriptions_are_refused, parameters_are_limited, servers_are_beside_the_description)
