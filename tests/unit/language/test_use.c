/* `use` and what names its parts: secrets, authentications, functions. What good definitions become, and what bad ones are told. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/base/suite.h"
#include "workflow/base/check.h"
#include "workflow/language/checker.h"

#define DOCUMENT "document: {dsl: '1.0.3', namespace: test, name: sample, version: '1.0.0'}\n" /* line 1 */
#define GET(more) DOCUMENT "use: {secrets: [key, \"the key\"], authentications: {login: {basic: {username: u, password: '${ $secrets.key }'}}}}\n" \
	"do: [a: {call: http, with: {method: get, endpoint: {uri: 'http://h', " more "}}}]\n"
#define HEADERS(more) DOCUMENT "use: {secrets: [key]}\ndo: [a: {call: http, with: {method: get, endpoint: 'http://h', headers: {" more "}}}]\n"
#define OPENAPI(document, more) DOCUMENT "use: {secrets: [key]}\ndo: [a: {call: openapi, with: {document: {endpoint: " document "}, operationId: o" more "}}]\n"
#define OPERATION "'https://h/d', digest: d, operation: {method: get, path: /a, server: 'https://h', parameters: [{in: query, multi: false, name: q, required: true}]}"
#define FUNCTIONS(functions, tasks) DOCUMENT "use: {functions: {" functions "}}\ndo: [" tasks "]\n"

static struct definition *load(const char *text, struct problems *problems)
{
	problems_init(problems);
	return definition_load(bytes_text(text), TEXT_YAML, problems);
}

/* Calls reach an activity complete: the endpoint a text, its authentication beside it, and the names of secrets where no author and
 * no data can put them. The secret's place in the arguments stays empty. */
START_TEST(calls_are_made_complete)
{
	static const struct {
		const char *text, *with;
	} cases[] = {
		{GET("authentication: {basic: {username: '${ .u }', password: '${ $secrets.key }'}}"),
		 "{\"authentication\":{\"scheme\":\"basic\",\"username\":\"${ .u }\"},\"endpoint\":\"http://h\",\"method\":\"get\",\"secrets\":{\"authentication\":{\"password\":\"key\"}}}"},
		{GET("authentication: {bearer: {token: '${ $secrets[\"the key\"] }'}}"),
		 "{\"authentication\":{\"scheme\":\"bearer\"},\"endpoint\":\"http://h\",\"method\":\"get\",\"secrets\":{\"authentication\":{\"token\":\"the key\"}}}"},
		{GET("authentication: {digest: {use: key}}"),
		 "{\"authentication\":{\"scheme\":\"digest\"},\"endpoint\":\"http://h\",\"method\":\"get\",\"secrets\":{\"authentication\":{\"use\":\"key\"}}}"},
		{GET("authentication: {use: login}"),
		 "{\"authentication\":{\"scheme\":\"basic\",\"username\":\"u\"},\"endpoint\":\"http://h\",\"method\":\"get\",\"secrets\":{\"authentication\":{\"password\":\"key\"}}}"},
		{HEADERS("X-A: '${ .a }', X-Key: '${ $secrets.key }', X-Quoted: '${$secrets.\"key\"}'"),
		 "{\"endpoint\":\"http://h\",\"headers\":{\"X-A\":\"${ .a }\"},\"method\":\"get\",\"secrets\":{\"headers\":{\"X-Key\":\"key\",\"X-Quoted\":\"key\"}}}"},
		{OPENAPI(OPERATION, ", parameters: {q: 1}, redirect: true, authentication: {bearer: {token: '${ $secrets.key }'}}"),
		 "{\"authentication\":{\"scheme\":\"bearer\"},\"endpoint\":\"https://h\",\"method\":\"get\",\"operation\":{\"method\":\"get\",\"parameters\":[{\"in\":\"query\",\"multi\":false,\"name\":\"q\","
		 "\"required\":true}],\"path\":\"/a\",\"server\":\"https://h\"},\"parameters\":{\"q\":1},\"redirect\":true,\"secrets\":{\"authentication\":{\"token\":\"key\"}}}"},
		{HEADERS("X-A: b"), "{\"endpoint\":\"http://h\",\"headers\":{\"X-A\":\"b\"},\"method\":\"get\"}"},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct problems problems;
		struct definition *definition = load(cases[i].text, &problems);
		struct buffer text;

		ck_assert_msg(definition != NULL, "case %zu: %s: %s", i, problems.items ? problems.items[0].pointer : "", problems.items ? problems.items[0].message : "");
		buffer_init(&text, 10000);
		json_print(definition->root->body.tasks[0]->with, &text);
		ck_assert_str_eq(buffer_text(&text), cases[i].with);
		ck_assert_str_eq(json_get_text(json_get(definition->document, "document"), "name"), "sample"); /* the document itself is not changed */
		buffer_close(&text);
		definition_free(definition);
		problems_close(&problems);
	}
}
END_TEST

/* A custom function is a `do` of its arguments and its task; it may call others, have loops, and shadow our own functions. */
START_TEST(functions_are_expanded)
{
	struct problems problems;
	struct definition *definition = load(FUNCTIONS("outer: {do: [x: {call: inner, with: {v: '${ .n }'}}]}, inner: {set: {got: '${ .v }'}}, inference: {set: {shim: true}}",
						       "a: {call: outer, with: {n: 1}}, b: {call: inference}, c: {call: inner, with: {v: 2}}"), &problems);

	ck_assert_msg(definition != NULL, "%s", problems.items ? problems.items[0].message : "");
	const struct task *a = definition->root->body.tasks[0], *b = definition->root->body.tasks[1], *inner;
	ck_assert_int_eq(a->kind, TASK_DO);
	ck_assert_str_eq(a->built_in, "outer");
	ck_assert_uint_eq(a->body.count, 2);
	ck_assert_int_eq(a->body.tasks[0]->kind, TASK_SET);
	ck_assert_str_eq(a->body.tasks[0]->reference, "/do/0/a/do/0/with");
	ck_assert_str_eq(a->body.tasks[1]->reference, "/do/0/a/do/1/outer");
	inner = a->body.tasks[1]->body.tasks[0];
	ck_assert_str_eq(inner->built_in, "inner");
	ck_assert_str_eq(inner->body.tasks[1]->reference, "/do/0/a/do/1/outer/do/0/x/do/1/inner");
	ck_assert_ptr_eq(definition_find_task(definition, inner->body.tasks[1]->reference), inner->body.tasks[1]);
	ck_assert_int_eq(b->kind, TASK_DO); /* the shim, not the model */
	ck_assert_int_eq(b->body.tasks[1]->kind, TASK_SET);
	ck_assert_uint_eq(definition->task_count, 3 + 2 + 1 + 2 + 2 + 2); /* of the calls alone; checking the functions counts nothing */
	definition_free(definition);
	problems_close(&problems);
}
END_TEST

/* What cannot be is refused, with the place of the mistake. */
START_TEST(mistakes_have_their_place)
{
	static const struct {
		const char *text, *pointer, *message, *hint;
	} cases[] = {
		{DOCUMENT "use: []\ndo: []\n", "/use", "must be an object", NULL},
		{DOCUMENT "use: {secret: [a]}\ndo: []\n", "/use/secret", "unknown key 'secret'", "did you mean 'secrets'?"},
		{DOCUMENT "use: {extensions: []}\ndo: []\n", "/use/extensions", "not supported in this release", NULL},
		{DOCUMENT "use: {catalogs: {}}\ndo: []\n", "/use/catalogs", "not supported in this release", NULL},
		/* secrets */
		{DOCUMENT "use: {secrets: {a: 1}}\ndo: []\n", "/use/secrets", "must be an array", NULL},
		{DOCUMENT "use: {secrets: [a, 1]}\ndo: []\n", "/use/secrets/1", "must be a string", NULL},
		{DOCUMENT "use: {secrets: [a, a]}\ndo: []\n", "/use/secrets/1", "'a' comes twice", NULL},
		{DOCUMENT "use: {secrets: ['']}\ndo: []\n", "/use/secrets/0", "must not be empty", NULL},
		{HEADERS("X: '${ $secrets.other }'"), "/do/0/a/with/headers/X", "use.secrets has no 'other'", "list it in use.secrets"},
		{HEADERS("X: '${ $secrets }'"), "/do/0/a/with/headers/X", "a secret cannot stand here", NULL},
		{HEADERS("X: '${ $secretskey }'"), "/do/0/a/with/headers/X", "a secret cannot stand here", NULL},
		{HEADERS("X: '${ $secrets\"key\" }'"), "/do/0/a/with/headers/X", "a secret cannot stand here", NULL},
		{HEADERS("X: '${ $secrets.key.part }'"), "/do/0/a/with/headers/X", "a secret cannot stand here", "nowhere else"},
		{HEADERS("X: '${ $secrets.key | length }'"), "/do/0/a/with/headers/X", "a secret cannot stand here", NULL},
		{HEADERS("X: '${ $secrets.the-key }'"), "/do/0/a/with/headers/X", "a secret cannot stand here", NULL},
		{DOCUMENT "use: {secrets: [key]}\ndo: [a: {call: http, with: {method: get, endpoint: 'http://h', query: {k: '${ $secrets.key }'}}}]\n", "/do/0/a/with/query/k",
		 "a secret cannot stand here", NULL},
		{DOCUMENT "use: {secrets: [key]}\ndo: [a: {call: http, with: {method: get, endpoint: 'http://h', body: {k: ['${ $secrets.key }']}}}]\n", "/do/0/a/with/body/k/0",
		 "a secret cannot stand here", NULL},
		{DOCUMENT "use: {secrets: [key]}\ndo: [a: {call: http, with: {method: get, endpoint: '${ $secrets.key }'}}]\n", "/do/0/a/with/endpoint", "a secret cannot stand here", NULL},
		{DOCUMENT "use: {secrets: [key]}\ndo: [a: {set: {x: '${ $secrets.key }'}}]\n", "/do/0/a/set/x", "a secret cannot stand here", NULL},
		{DOCUMENT "use: {secrets: [key]}\ndo: [a: {call: inference, with: {runtime: r, prompt: '${ $secrets.key }'}}]\n", "/do/0/a/with/prompt", "a secret cannot stand here", NULL},
		{DOCUMENT "use: {secrets: [key], functions: {f: {set: {x: 1}}}}\ndo: [a: {call: f, with: {k: '${ $secrets.key }'}}]\n", "/do/0/a/with/k", "a secret cannot stand here", NULL},
		{DOCUMENT "do: [a: {call: http, with: {method: get, endpoint: 'http://h', secrets: {headers: {X: key}}}}]\n", "/do/0/a/with/secrets", "unknown key 'secrets'", NULL},
		{DOCUMENT "do: [a: {call: http, with: {method: get, endpoint: 'http://h', authentication: {scheme: basic}}}]\n", "/do/0/a/with/authentication",
		 "unknown key 'authentication'", NULL},
		/* authentications */
		{GET("authentication: x"), "/do/0/a/with/endpoint/authentication", "must be an object", NULL},
		{GET("authentication: '${ .a }'"), "/do/0/a/with/endpoint/authentication", "must be an object", NULL},
		{GET("authentication: {basic: {username: u}}"), "/do/0/a/with/endpoint/authentication/basic", "'password' is missing", NULL},
		{GET("authentication: {basic: {username: u, password: 1}}"), "/do/0/a/with/endpoint/authentication/basic/password", "must be a string", "quote it"},
		{GET("authentication: {basic: {use: key, username: u}}"), "/do/0/a/with/endpoint/authentication/basic", "nothing stands beside it", NULL},
		{GET("authentication: {bearer: {use: other}}"), "/do/0/a/with/endpoint/authentication/bearer/use", "use.secrets has no 'other'", NULL},
		{GET("authentication: {bearer: {tokn: x, token: y}}"), "/do/0/a/with/endpoint/authentication/bearer/tokn", "unknown key", "did you mean 'token'?"},
		{GET("authentication: {bearer: {token: x}, use: login}"), "/do/0/a/with/endpoint/authentication", "exactly one kind", NULL},
		{GET("authentication: {use: nobody}"), "/do/0/a/with/endpoint/authentication/use", "use.authentications has no 'nobody'", "define it in use.authentications"},
		{GET("authentication: {oauth2: {}}"), "/do/0/a/with/endpoint/authentication/oauth2", "not supported in this release", NULL},
		{GET("authentication: {oidc: {}}"), "/do/0/a/with/endpoint/authentication/oidc", "not supported in this release", NULL},
		{DOCUMENT "use: {authentications: {a: {use: b}, b: {bearer: {token: x}}}}\ndo: []\n", "/use/authentications/a/use", "cannot name another one", NULL},
		{DOCUMENT "use: {authentications: {a: {bearer: {token: '${ $secrets.none }'}}}}\ndo: []\n", "/use/authentications/a/bearer/token", "use.secrets has no 'none'", NULL},
		/* descriptions of services */
		{DOCUMENT "do: [a: {call: openapi, with: {document: 'https://h/d', operationId: o}}]\n", "/do/0/a/with/document", "must be an object", NULL},
		{OPENAPI("7", ""), "/do/0/a/with/document/endpoint", "must be a string", NULL},
		{OPENAPI("'ftp://h/d'", ""), "/do/0/a/with/document/endpoint", "must be a plain http:// or https:// URI", "inlines file: ones"},
		{OPENAPI("'https://h/{x}'", ""), "/do/0/a/with/document/endpoint", "must be a plain http:// or https:// URI", NULL},
		{OPENAPI("'${ .x }'", ""), "/do/0/a/with/document/endpoint", "must be a plain http:// or https:// URI", NULL},
		{OPENAPI("{uri: 'ftp://h/d'}", ""), "/do/0/a/with/document/endpoint/uri", "must be a plain http:// or https:// URI", NULL},
		{OPENAPI("{uri: 1}", ""), "/do/0/a/with/document/endpoint/uri", "must be a string", NULL},
		{OPENAPI("{}", ""), "/do/0/a/with/document/endpoint", "'uri' is missing", NULL},
		{OPENAPI("{uri: 'https://h/d', authentication: {basic: {use: key}}}", ""), "/do/0/a/with/document/endpoint/authentication", "not supported in this release", NULL},
		{OPENAPI("'file:d.yaml'", ""), "/do/0/a/with/document/endpoint", "must be a plain http:// or https:// URI", NULL},
		{OPENAPI("{uri: 'file:d.yaml'}", ""), "/do/0/a/with/document/endpoint/uri", "must be a plain http:// or https:// URI", NULL},
		{OPENAPI("'https://h/d', operation: 1", ""), "/do/0/a/with/document/operation", "must be an object", NULL},
		{OPENAPI("'https://h/d', operation: {method: get}", ""), "/do/0/a/with/document/operation", "is no operation as the daemon writes it", "leave it out"},
		{DOCUMENT "do: [a: {call: openapi, with: {document: {endpoint: 'https://h/d'}, operationId: ''}}]\n", "/do/0/a/with/operationId", "must be the id of an operation", NULL},
		{DOCUMENT "do: [a: {call: openapi, with: {document: {endpoint: 'https://h/d'}, operationId: '${ .x }'}}]\n", "/do/0/a/with/operationId", "must be the id of an operation", NULL},
		{OPENAPI("'https://h/d'", ", parameters: [1]"), "/do/0/a/with/parameters", "must be an object", NULL},
		{OPENAPI(OPERATION, ", parameters: {q: 1, r: 2}"), "/do/0/a/with/parameters/r", "the operation has no parameter 'r'", NULL},
		{OPENAPI(OPERATION, ", parameters: {}"), "/do/0/a/with", "the operation needs the parameter 'q'", NULL},
		{OPENAPI(OPERATION, ""), "/do/0/a/with", "the operation needs the parameter 'q'", NULL},
		/* functions */
		{FUNCTIONS("f: {sett: {}}", ""), "/use/functions/f", "a task without a kind", "did you mean 'set'?"},
		{FUNCTIONS("http: {set: {a: 1}}", ""), "/use/functions/http", "cannot be called 'http'", NULL},
		{FUNCTIONS("'a:1': {set: {a: 1}}", ""), "/use/functions/a:1", "cannot be called 'a:1'", NULL},
		{FUNCTIONS("f: {set: {a: 1}, then: end}", ""), "/use/functions/f", "a function has no 'then'", NULL},
		{FUNCTIONS("f: {set: {a: '${ $item }'}}", "l: {for: {in: .x}, do: [c: {call: f}]}"), "/use/functions/f/set/a", "there is no variable $item here", NULL},
		{FUNCTIONS("f: {set: {a: 1}}", "c: {call: f, with: [1]}"), "/do/0/c/with", "must be an object", NULL},
		{FUNCTIONS("f: {set: {a: 1}}", "c: {call: g, with: {}}"), "/do/0/c/call", "there is no function 'g'", NULL},
		{FUNCTIONS("f: {do: [x: {call: f}]}", "c: {call: f}"), "/do/0/c", "the function 'f' calls itself", NULL},
		{FUNCTIONS("f: {do: [x: {call: g}]}, g: {do: [x: {call: f}]}", "c: {call: f}"), "/do/0/c", "the function 'f' calls itself", NULL},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct problems problems;
		struct definition *definition = load(cases[i].text, &problems);

		ck_assert_msg(definition == NULL, "case %zu is taken: %s", i, cases[i].text);
		const struct problem *problem = &problems.items[0];
		ck_assert_msg(strcmp(problem->pointer, cases[i].pointer) == 0, "case %zu: pointer %s, expected %s (%s)", i, problem->pointer, cases[i].pointer, problem->message);
		ck_assert_msg(strstr(problem->message, cases[i].message) != NULL, "case %zu: %s", i, problem->message);
		ck_assert_msg(cases[i].hint == NULL || (problem->hint && strstr(problem->hint, cases[i].hint)), "case %zu: hint %s", i, problem->hint ? problem->hint : "none");
		problems_close(&problems);
	}
}
END_TEST

/* Functions that call one another go CHECKER_FUNCTIONS_MAX deep; past it the call is refused. */
START_TEST(functions_have_a_depth)
{
	for (int depth = CHECKER_FUNCTIONS_MAX; depth <= CHECKER_FUNCTIONS_MAX + 1; depth++) {
		struct problems problems;
		struct buffer text;

		buffer_init(&text, 100000);
		buffer_add_text(&text, DOCUMENT "use: {functions: {f0: {set: {a: 1}}");
		for (int i = 1; i < depth; i++)
			buffer_printf(&text, ", f%d: {call: f%d}", i, i - 1);
		buffer_printf(&text, "}}\ndo: [a: {call: f%d}]\n", depth - 1);
		struct definition *definition = load(buffer_text(&text), &problems);
		ck_assert_int_eq(definition != NULL, depth <= CHECKER_FUNCTIONS_MAX);
		if (!definition)
			ck_assert_ptr_nonnull(strstr(problems.items[0].message, "more than 16 functions call one another"));
		definition_free(definition);
		problems_close(&problems);
		buffer_close(&text);
	}
}
END_TEST

/* A function is read anew at each call: together they hold at most DEFINITION_FUNCTION_VALUES_MAX values, and the schemas in them are counted. */
START_TEST(functions_have_a_size)
{
	enum { VALUES = 10000 };
	struct problems problems;
	struct buffer text;

	buffer_init(&text, DEFINITION_SOURCE_MAX);
	for (int calls = 98; calls <= 102; calls += 4) {
		buffer_clear(&text);
		buffer_add_text(&text, DOCUMENT "use: {functions: {f: {set: {a: [");
		for (int i = 0; i < VALUES; i++)
			buffer_printf(&text, "%s0", i > 0 ? "," : "");
		buffer_add_text(&text, "]}}}}\ndo:\n");
		for (int i = 0; i < calls; i++)
			buffer_printf(&text, "- t%d: {call: f}\n", i);
		struct definition *definition = load(buffer_text(&text), &problems);
		ck_assert_int_eq(definition != NULL, calls == 98);
		if (!definition) {
			ck_assert_uint_eq(problems.errors, 1);
			ck_assert_str_eq(problems.items[0].pointer, "/do/99/t99");
			ck_assert_ptr_nonnull(strstr(problems.items[0].message, "hold more than 1000000 values (DEFINITION_FUNCTION_VALUES_MAX)"));
		}
		definition_free(definition);
		problems_close(&problems);
	}
	for (int calls = 10; calls <= 1000; calls += 990) {
		buffer_clear(&text);
		buffer_add_text(&text, DOCUMENT "use: {functions: {f: {set: {a: 1}, input: {schema: {document: {$ref: 'https://json-schema.org/draft/2020-12/schema'}}}}}}\ndo:\n");
		for (int i = 0; i < calls; i++)
			buffer_printf(&text, "- t%d: {call: f}\n", i);
		struct definition *definition = load(buffer_text(&text), &problems);
		ck_assert_int_eq(definition != NULL, calls == 10);
		if (!definition) {
			ck_assert_uint_eq(problems.errors, 1);
			ck_assert_ptr_nonnull(strstr(problems.items[0].message, "take more than 64 MiB of memory (DEFINITION_SCHEMA_BYTES_MAX)"));
		}
		definition_free(definition);
		problems_close(&problems);
	}
	buffer_close(&text);
}
END_TEST

/* Functions that call the next one twice would be 2 to the 16th tasks: the limit of tasks stops it, quickly. */
START_TEST(functions_do_not_explode)
{
	struct problems problems;
	struct buffer text;

	buffer_init(&text, 100000);
	buffer_add_text(&text, DOCUMENT "use: {functions: {f0: {set: {a: 1}}");
	for (int i = 1; i < CHECKER_FUNCTIONS_MAX; i++)
		buffer_printf(&text, ", f%d: {do: [x: {call: f%d}, y: {call: f%d}]}", i, i - 1, i - 1);
	buffer_printf(&text, "}}\ndo: [a: {call: f%d}]\n", CHECKER_FUNCTIONS_MAX - 1);
	ck_assert_ptr_null(load(buffer_text(&text), &problems));
	ck_assert_ptr_nonnull(strstr(problems.items[0].message, "more than 10000 tasks"));
	problems_close(&problems);
	buffer_close(&text);
}
END_TEST

/* 256 secrets, and 256 authentications, may be named; one more is told with the limit. */
START_TEST(names_are_limited)
{
	for (int kind = 0; kind < 2; kind++)
		for (int extra = 0; extra < 2; extra++) {
			struct problems problems;
			struct buffer text;

			buffer_init(&text, 100000);
			buffer_add_text(&text, kind ? DOCUMENT "use: {authentications: {" : DOCUMENT "use: {secrets: [");
			for (int i = 0; i < 256 + extra; i++)
				buffer_printf(&text, kind ? "n%d: {basic: {username: u, password: p}}, " : "n%d, ", i);
			buffer_add_text(&text, kind ? "}}\ndo: []\n" : "]}\ndo: []\n");
			struct definition *definition = load(buffer_text(&text), &problems);
			if (extra) {
				ck_assert_ptr_null(definition);
				ck_assert_str_eq(problems.items[0].message, kind ? "more than 256 authentications (AUTHENTICATIONS_MAX)" : "more than 256 secrets (SECRETS_MAX)");
			} else {
				ck_assert_msg(definition != NULL, "%s", problems.count ? problems.items[0].message : "");
				definition_free(definition);
			}
			problems_close(&problems);
			buffer_close(&text);
		}
}
END_TEST

SUITE_NO_ABORTS
SUITE_MAIN("use", calls_are_made_complete, functions_are_expanded, mistakes_have_their_place, functions_have_a_depth, functions_have_a_size, functions_do_not_explode, names_are_limited)
