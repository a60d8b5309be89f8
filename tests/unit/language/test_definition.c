/* Definitions: the tree of tasks that good ones become, and what bad ones are told, with pointer, line and column. */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/language/definition.h"
#include "workflow/language/evaluation.h"
#include "workflow/language/expand.h"

#define DOCUMENT "document: {dsl: '1.0.3', namespace: test, name: sample, version: '1.0.0'}\n" /* line 1 */

struct fixture {
	struct problems problems;
	struct definition *definition;
};

static void load_bytes(struct fixture *fixture, struct bytes text)
{
	problems_init(&fixture->problems);
	fixture->definition = definition_load(text, TEXT_GUESS, &fixture->problems);
	ck_assert((fixture->definition == NULL) == (fixture->problems.errors > 0));
}

static void load(struct fixture *fixture, const char *text)
{
	load_bytes(fixture, bytes_text(text));
}

static void load_good(struct fixture *fixture, const char *text)
{
	load(fixture, text);
	ck_assert_msg(fixture->definition != NULL, "%s: %s %s", text, fixture->problems.items ? fixture->problems.items[0].pointer : "",
		      fixture->problems.items ? fixture->problems.items[0].message : "");
}

static void unload(struct fixture *fixture)
{
	definition_free(fixture->definition);
	problems_close(&fixture->problems);
}

static const struct task *child(const struct task *task, size_t index)
{
	ck_assert_uint_lt(index, task->body.count);
	ck_assert_ptr_eq(task->body.tasks[index]->parent, task);
	ck_assert_uint_eq(task->body.tasks[index]->index, index);
	return task->body.tasks[index];
}

static void expect_json(const struct json *json, const char *canonical)
{
	struct buffer text;

	ck_assert_ptr_nonnull(json);
	buffer_init(&text, 100000);
	json_print(json, &text);
	ck_assert_str_eq(buffer_text(&text), canonical);
	buffer_close(&text);
}

/* ---- Good definitions */

/* What stands in `document` is at hand, as is the source; the digest is that of the canonical document. */
START_TEST(document_is_read)
{
	static const char text[] = "# a comment\ndocument:\n  dsl: '1.0.3'\n  namespace: Test-1\n  name: sample\n  version: '0.1.0-rc.1+b'\n  title: A title\n"
				   "  summary: '*text*'\n  tags: {a: b}\n  metadata: {free: [1]}\ndo: []\n";
	struct fixture fixture, other;
	struct digest digest;

	load_good(&fixture, text);
	ck_assert_str_eq(fixture.definition->namespace, "Test-1");
	ck_assert_str_eq(fixture.definition->name, "sample");
	ck_assert_str_eq(fixture.definition->version, "0.1.0-rc.1+b");
	ck_assert_str_eq(fixture.definition->title, "A title");
	ck_assert(bytes_equal_text(fixture.definition->source, text));
	ck_assert_uint_eq(fixture.definition->use_count, 1);
	ck_assert_uint_eq(fixture.definition->task_count, 0);
	ck_assert_uint_eq(fixture.problems.count, 0);
	digest = json_digest(fixture.definition->document);
	ck_assert(digest_equal(&digest, &fixture.definition->digest));

	/* Layout and comments do not count, JSON or YAML does not either. */
	load_good(&other, "{\"do\":[],\"document\":{\"version\":\"0.1.0-rc.1+b\",\"dsl\":\"1.0.3\",\"namespace\":\"Test-1\",\"name\":\"sample\","
			  "\"title\":\"A title\",\"summary\":\"*text*\",\"tags\":{\"a\":\"b\"},\"metadata\":{\"free\":[1]}}}");
	ck_assert(digest_equal(&other.definition->digest, &fixture.definition->digest));
	unload(&other);

	/* The same from a document that is JSON already. */
	problems_init(&other.problems);
	other.definition = definition_load_json(fixture.definition->document, &other.problems);
	ck_assert_ptr_nonnull(other.definition);
	ck_assert(digest_equal(&other.definition->digest, &fixture.definition->digest));
	digest = digest_of(other.definition->source);
	ck_assert(digest_equal(&digest, &fixture.definition->digest));
	unload(&other);

	/* One letter does count. */
	load_good(&other, DOCUMENT "do: []\n");
	ck_assert(!digest_equal(&other.definition->digest, &fixture.definition->digest));
	ck_assert_ptr_null(other.definition->title);
	unload(&other);
	unload(&fixture);
}
END_TEST

/* Tasks keep their order, names, references and places; loops count their depth. */
START_TEST(tasks_become_a_tree)
{
	struct fixture fixture;
	const struct task *root, *task, *loop, *inner;

	load_good(&fixture, DOCUMENT
		  "do:\n"
		  "  - greet: {set: {text: 'hello ', who: '${ .who }'}, metadata: {note: x}}\n"
		  "  - whole: {set: '${ .who }'}\n"
		  "  - a/b~c:\n"
		  "      do:\n"
		  "        - greet: {set: {a: 1}}\n"
		  "  - outer:\n"
		  "      for: {in: '${ .rows }'}\n"
		  "      while: ${ .more == true }\n"
		  "      do:\n"
		  "        - inner:\n"
		  "            for: {each: cell, at: column, in: $item.cells}\n"
		  "            metadata: {concurrency: 8}\n"
		  "            do:\n"
		  "              - use: {set: {v: '${ $cell }', i: '${ $index }', c: '${ $column }', x: '${ $item }'}}\n");
	root = fixture.definition->root;
	ck_assert_int_eq(root->kind, TASK_DO);
	ck_assert_str_eq(root->name, "");
	ck_assert_str_eq(root->reference, "");
	ck_assert_ptr_null(root->parent);
	ck_assert_uint_eq(root->body.count, 4);
	ck_assert_uint_eq(fixture.definition->task_count, 7);

	task = child(root, 0);
	ck_assert_int_eq(task->kind, TASK_SET);
	ck_assert_str_eq(task->name, "greet");
	ck_assert_str_eq(task->reference, "/do/0/greet");
	expect_json(task->set, "{\"text\":\"hello \",\"who\":\"${ .who }\"}");
	expect_json(child(root, 1)->set, "\"${ .who }\"");

	task = child(root, 2);
	ck_assert_int_eq(task->kind, TASK_DO);
	ck_assert_ptr_null(task->built_in);
	ck_assert_str_eq(task->name, "a/b~c");
	ck_assert_str_eq(task->reference, "/do/2/a~1b~0c");
	ck_assert_str_eq(child(task, 0)->reference, "/do/2/a~1b~0c/do/0/greet");
	ck_assert_uint_eq(child(task, 0)->loop_depth, 0);

	loop = child(root, 3);
	ck_assert_int_eq(loop->kind, TASK_FOR);
	ck_assert_str_eq(loop->each, "item");
	ck_assert_str_eq(loop->at, "index");
	ck_assert_str_eq(loop->in, ".rows");
	ck_assert_str_eq(loop->condition, ".more == true");
	ck_assert_uint_eq(loop->concurrency, 0);
	ck_assert_uint_eq(loop->loop_depth, 0);
	inner = child(loop, 0);
	ck_assert_str_eq(inner->each, "cell");
	ck_assert_str_eq(inner->at, "column");
	ck_assert_str_eq(inner->in, "$item.cells");
	ck_assert_ptr_null(inner->condition);
	ck_assert_uint_eq(inner->concurrency, 8);
	ck_assert_uint_eq(inner->loop_depth, 1);
	ck_assert_uint_eq(child(inner, 0)->loop_depth, 2);
	ck_assert_str_eq(child(inner, 0)->reference, "/do/3/outer/do/0/inner/do/0/use");

	/* Every reference finds its task, nothing else finds one. */
	ck_assert_ptr_eq(definition_find_task(fixture.definition, ""), root);
	ck_assert_ptr_eq(definition_find_task(fixture.definition, "/do/2/a~1b~0c/do/0/greet"), child(child(root, 2), 0));
	ck_assert_ptr_eq(definition_find_task(fixture.definition, "/do/3/outer/do/0/inner/do/0/use"), child(inner, 0));
	ck_assert_ptr_null(definition_find_task(fixture.definition, "/do/3/outer/do/0/inner/do/0/use/do/0/x"));
	ck_assert_ptr_null(definition_find_task(fixture.definition, "/do/0/gree"));
	ck_assert_ptr_null(definition_find_task(fixture.definition, "/do/0/greeting"));
	ck_assert_ptr_null(definition_find_task(fixture.definition, "nonsense"));
	ck_assert_ptr_null(definition_find_task(fixture.definition, "/do/"));
	ck_assert_ptr_null(definition_find_task(fixture.definition, "/do/4/x"));
	ck_assert_ptr_null(definition_find_task(fixture.definition, "/do/18446744073709551616/greet"));
	unload(&fixture);
}
END_TEST

/* The functions of this release take all of their arguments. */
START_TEST(calls_are_read)
{
	struct fixture fixture;
	const struct task *root;

	load_good(&fixture, DOCUMENT
		  "do:\n"
		  "  - a: {call: http, with: {method: get, endpoint: 'https://a.example/pet/{petId}'}}\n"
		  "  - b:\n"
		  "      call: http\n"
		  "      with:\n"
		  "        method: POST\n"
		  "        endpoint: {uri: '${ .uri }'}\n"
		  "        headers: {Accept: application/json, X-Id: '${ .id }'}\n"
		  "        body: {a: ['${ .x }']}\n"
		  "        query: {q: '${ .q }', n: 1, b: true}\n"
		  "        output: response\n"
		  "        redirect: true\n"
		  "  - c: {call: http, with: {method: '${ .m }', endpoint: '${ .e }', headers: '${ .h }', query: '${ .q }', output: '${ .o }', redirect: '${ .r }'}}\n"
		  "  - d: {call: inference, with: {runtime: local, prompt: 'Say hello.'}}\n"
		  "  - e:\n"
		  "      call: inference:1.0.0@default\n"
		  "      with:\n"
		  "        runtime: local\n"
		  "        messages:\n"
		  "          - {role: system, content: Be brief.}\n"
		  "          - {role: user, content: '${ .question }'}\n"
		  "        schema: {format: json, document: {type: object, properties: {a: {type: string}}}}\n"
		  "        sampling: {temperature: 0.6, topP: 0.95, topK: 20, minP: 0, seed: '9007199254740991', maxTokens: 100, stop: [x, '${ .y }'],\n"
		  "                   frequencyPenalty: 0, presencePenalty: 0, repetitionPenalty: 1.1, reasoningEffort: low, typicalP: '${ .p }', mirostat: null,\n"
		  "                   stopTokenIds: [1, '${ .t }'], logitBias: {'15': -5, '16': '${ .b }'}, templateArguments: {enable_thinking: false}}\n"
		  "  - f: {call: inference, with: {runtime: '${ .r }', messages: '${ .m }', sampling: '${ .s }', schema: {document: '${ .d }'}}}\n");
	root = fixture.definition->root;
	ck_assert_uint_eq(fixture.problems.count, 0);
	ck_assert_int_eq(child(root, 0)->kind, TASK_CALL);
	ck_assert_int_eq(child(root, 0)->function, FUNCTION_HTTP);
	expect_json(child(root, 0)->with, "{\"endpoint\":\"https://a.example/pet/{petId}\",\"method\":\"get\"}");
	ck_assert_int_eq(child(root, 3)->function, FUNCTION_INFERENCE);
	ck_assert_int_eq(child(root, 4)->function, FUNCTION_INFERENCE);
	ck_assert_int_eq(child(root, 5)->function, FUNCTION_INFERENCE);
	expect_json(child(root, 3)->with, "{\"prompt\":\"Say hello.\",\"runtime\":\"local\"}");
	unload(&fixture);
}
END_TEST

/* An extraction becomes three tasks with entries of their own, its arguments completed with the defaults. */
START_TEST(extraction_is_expanded)
{
	struct fixture fixture;
	const struct task *task, *part;
	struct digest digest;

	load_good(&fixture, DOCUMENT
		  "do:\n"
		  "  - loop:\n"
		  "      for: {in: .documents}\n"
		  "      do:\n"
		  "        - facts: {call: extraction, with: {runtime: extractor, document: '${ $item }', prompt: Find facts.}}\n");
	task = child(child(fixture.definition->root, 0), 0);
	ck_assert_int_eq(task->kind, TASK_DO);
	ck_assert_str_eq(task->built_in, "extraction");
	ck_assert_str_eq(task->reference, "/do/0/loop/do/0/facts");
	ck_assert_uint_eq(task->loop_depth, 1);
	ck_assert_uint_eq(task->body.count, 3);
	ck_assert_uint_eq(fixture.definition->task_count, 6);

	part = child(task, 0);
	ck_assert_int_eq(part->kind, TASK_CALL);
	ck_assert_int_eq(part->function, FUNCTION_SECTIONS);
	ck_assert_str_eq(part->reference, "/do/0/loop/do/0/facts/do/0/sections");
	expect_json(json_get(part->with, "sections"), "{\"by\":\"heading\",\"maxTokens\":1200}");
	expect_json(json_get(part->with, "onFailure"), "\"continue\"");
	expect_json(json_get(part->with, "document"), "\"${ $item }\"");
	expect_json(json_get(part->with, "runtime"), "\"extractor\"");
	expect_json(json_get(part->with, "prompt"), "\"Find facts.\"");
	ck_assert_ptr_null(json_get(part->with, "sampling"));
	ck_assert_uint_eq(json_count(part->with), 6);
	digest = json_digest(json_get(json_get(part->with, "schema"), "document"));
	ck_assert(!digest_equal(&digest, &(struct digest){{0}}));

	part = child(task, 1);
	ck_assert_int_eq(part->kind, TASK_FOR);
	ck_assert_str_eq(part->name, "extract");
	ck_assert_str_eq(part->in, ".sections");
	ck_assert_str_eq(part->each, "section");
	ck_assert_str_eq(part->at, "index");
	ck_assert_ptr_null(part->condition);
	ck_assert_uint_eq(part->concurrency, EXTRACTION_CONCURRENCY);
	ck_assert_uint_eq(part->body.count, 1);
	part = child(part, 0);
	ck_assert_int_eq(part->kind, TASK_CALL);
	ck_assert_int_eq(part->function, FUNCTION_EXTRACT);
	ck_assert_str_eq(part->reference, "/do/0/loop/do/0/facts/do/1/extract/do/0/section");
	ck_assert_uint_eq(part->loop_depth, 2);
	expect_json(part->with, "{\"plan\":\"${ .plan }\",\"section\":\"${ $section }\"}");
	ck_assert_ptr_eq(definition_find_task(fixture.definition, part->reference), part);

	part = child(task, 2);
	ck_assert_int_eq(part->kind, TASK_CALL);
	ck_assert_int_eq(part->function, FUNCTION_MERGE);
	ck_assert_str_eq(part->name, "result");
	expect_json(part->with, "\"${ . }\"");

	/* The document, whose digest is signed, holds what the author wrote and no more. */
	ck_assert_ptr_null(json_pointer_get(fixture.definition->document, "/do/0/loop/do/0/facts/with/schema"));
	ck_assert_ptr_null(json_pointer_get(fixture.definition->document, "/do/0/loop/do/0/facts/with/onFailure"));
	unload(&fixture);
}
END_TEST

/* call: reproducibility-gate is a plan, one request after the other, and a report; what is asked about when nothing is given comes along. */
START_TEST(gate_expansion)
{
	struct fixture fixture;
	const struct task *task, *part;

	load_good(&fixture, DOCUMENT "do:\n  - gate: {call: reproducibility-gate, with: {runtime: r, requests: 5}}\n");
	task = child(fixture.definition->root, 0);
	ck_assert_int_eq(task->kind, TASK_DO);
	ck_assert_str_eq(task->built_in, "reproducibility-gate");
	ck_assert_uint_eq(task->body.count, 3);
	part = child(task, 0);
	ck_assert_int_eq(part->function, FUNCTION_GATE_PLAN);
	expect_json(json_get(part->with, "requests"), "5");
	ck_assert_ptr_nonnull(json_get(json_get(part->with, "sectionSchema"), "document"));
	part = child(task, 1);
	ck_assert_int_eq(part->kind, TASK_FOR);
	ck_assert_str_eq(part->in, ".asks");
	ck_assert_uint_eq(part->concurrency, 1);
	part = child(part, 0);
	ck_assert_int_eq(part->function, FUNCTION_GATE_ASK);
	expect_json(part->with, "{\"ask\":\"${ $ask }\",\"plan\":\"${ .plan }\"}");
	part = child(task, 2);
	ck_assert_int_eq(part->function, FUNCTION_GATE_REPORT);
	expect_json(part->with, "\"${ . }\"");
	ck_assert_ptr_null(json_pointer_get(fixture.definition->document, "/do/0/gate/with/sectionSchema"));
	unload(&fixture);
}
END_TEST

/* What the author says is kept; half a `sections` is completed, an expression is left alone. */
START_TEST(extraction_keeps_what_is_said)
{
	struct fixture fixture;
	const struct task *sections;

	load_good(&fixture, DOCUMENT
		  "do:\n"
		  "  - a:\n"
		  "      call: extraction:1.0.0@default\n"
		  "      with:\n"
		  "        runtime: r\n"
		  "        document: {digest: 'sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'}\n"
		  "        sections: {maxTokens: 77}\n"
		  "        schema: {document: {type: object}}\n"
		  "        sampling: {seed: 1}\n"
		  "        onFailure: fault\n"
		  "  - b: {call: extraction, with: {runtime: r, document: text, sections: '${ .s }', schema: '${ .schema }'}}\n");
	sections = child(child(fixture.definition->root, 0), 0);
	expect_json(sections->with,
		    "{\"document\":{\"digest\":\"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\"},\"onFailure\":\"fault\","
		    "\"runtime\":\"r\",\"sampling\":{\"seed\":1},\"schema\":{\"document\":{\"type\":\"object\"}},\"sections\":{\"by\":\"heading\","
		    "\"maxTokens\":77}}");
	sections = child(child(fixture.definition->root, 1), 0);
	expect_json(json_get(sections->with, "sections"), "\"${ .s }\"");
	expect_json(json_get(sections->with, "schema"), "\"${ .schema }\"");
	unload(&fixture);
}
END_TEST

static struct bytes read_file(const char *path, uint8_t *data, size_t max)
{
	FILE *file = fopen(path, "rb");
	size_t len;

	ck_assert_msg(file != NULL, "cannot open %s", path);
	len = fread(data, 1, max, file);
	fclose(file);
	return (struct bytes){data, len};
}

/* The default facts schema stands twice in the tree (workflow/ includes nothing of schema/): both are the same. */
START_TEST(default_schema_is_the_schema_file)
{
	static uint8_t data[65536];
	struct fixture fixture;
	struct arena arena;
	struct digest expanded, file;
	struct json *schema;

	arena_init(&arena);
	schema = json_parse(&arena, read_file(FACTS_SCHEMA_FILE, data, sizeof data), JSON_STRICT, NULL, NULL);
	ck_assert_ptr_nonnull(schema);
	load_good(&fixture, DOCUMENT "do:\n  - a: {call: extraction, with: {runtime: r, document: x}}\n");
	expanded = json_digest(json_get(json_get(child(child(fixture.definition->root, 0), 0)->with, "schema"), "document"));
	file = json_digest(schema);
	ck_assert(digest_equal(&expanded, &file));
	unload(&fixture);
	arena_close(&arena);
}
END_TEST

/* ---- Bad definitions */

#define TASK(text) DOCUMENT "do:\n  - a: " text "\n" /* the task stands at line 3, column 8 */
#define HTTP(text) TASK("{call: http, with: {method: get, endpoint: 'http://a.example', " text "}}") /* column 71 */
#define INFER(text) TASK("{call: inference, with: {runtime: r, " text "}}") /* column 44 */
#define EXTRACT(text) TASK("{call: extraction, with: {runtime: r, document: x, " text "}}") /* column 58 */

struct bad {
	const char *text, *pointer;
	size_t line, column;
	const char *message, *hint; /* parts of them; hint NULL: not looked at, "": there is none */
};

static const struct bad bad[] = {
	/* the whole */
	{"[]", "", 1, 1, "must be an object, not array", NULL},
	{"just text", "", 1, 1, "must be an object, not string", NULL},
	{DOCUMENT, "", 1, 1, "'do' is missing in a definition", NULL},
	{"do: []", "", 1, 1, "'document' is missing in a definition", "dsl: '1.0.3'"},
	{DOCUMENT "do: []\nfoo: 1\n", "/foo", 3, 1, "unknown key 'foo' in a definition", ""},
	{DOCUMENT "do: []\nimput: 1\n", "/imput", 3, 1, "unknown key 'imput'", "did you mean 'input'?"},
	{DOCUMENT "do: []\nuse: {catalogs: {}}\n", "/use/catalogs", 3, 7, "not supported in this release", NULL},
	{DOCUMENT "do: []\ninput: {schema: {}}\n", "/input/schema", 3, 17, "'document' is missing in a schema", NULL},
	{DOCUMENT "do: []\ninput: {as: .a}\n", "/input/as", 3, 9, "unknown key 'as'", NULL},
	{DOCUMENT "do: []\ninput: {from: '$context.a'}\n", "/input/from", 3, 15, "$context", NULL},
	{DOCUMENT "do: []\noutput: {as: '$input.a'}\n", "/output/as", 3, 14, "$input", NULL},
	{DOCUMENT "do: []\noutput: {from: .a}\n", "/output/from", 3, 10, "unknown key 'from'", NULL},
	{DOCUMENT "do: []\nexport: {as: .a}\n", "/export", 3, 1, "unknown key 'export'", NULL},
	{DOCUMENT "do: []\nschedule: {}\n", "/schedule", 3, 11, "must have exactly one of every, cron, after, on", "every"},
	/* document */
	{"document: x\ndo: []\n", "/document", 1, 11, "must be an object, not string", NULL},
	{"document: {dsl: 1.0, namespace: a, name: b, version: '1.0.0'}\ndo: []\n", "/document/dsl", 1, 17, "must be a string, not a number", "quote it"},
	{"document: {dsl: '1.0.3', namespace: a, name: b, version: 0.1}\ndo: []\n", "/document/version", 1, 58, "must be a string, not a number", "quote it"},
	{"document: {dsl: '1.0.3', namespace: a, name: b, version: '0.1'}\ndo: []\n", "/document/version", 1, 58, "is no semantic version", "1.0.0"},
	{"document: {dsl: '1.1.0', namespace: a, name: b, version: '1.0.0'}\ndo: []\n", "/document/dsl", 1, 17, "version 1.0 of the language only", NULL},
	{"document: {dsl: '2', namespace: a, name: b, version: '1.0.0'}\ndo: []\n", "/document/dsl", 1, 17, "is no semantic version", NULL},
	{"document: {dsl: '1.0.3', namespace: a_b, name: b, version: '1.0.0'}\ndo: []\n", "/document/namespace", 1, 37, "letters, digits or hyphens", NULL},
	{"document: {dsl: '1.0.3', namespace: a, name: -b, version: '1.0.0'}\ndo: []\n", "/document/name", 1, 46, "letters, digits or hyphens", NULL},
	{"document: {dsl: '1.0.3', namespace: a, name: ~, version: '1.0.0'}\ndo: []\n", "/document/name", 1, 46, "must be a string, not null", NULL},
	{"document: {dsl: '1.0.3', namespace: a, version: '1.0.0'}\ndo: []\n", "/document", 1, 11, "'name' is missing in 'document'", NULL},
	{"document: {dsl: '1.0.3', namespace: a, name: b, version: '1.0.0', titel: x}\ndo: []\n", "/document/titel", 1, 67, "unknown key 'titel'",
	 "did you mean 'title'?"},
	{"document: {dsl: '1.0.3', namespace: a, name: b, version: '1.0.0', tags: {a: 1}}\ndo: []\n", "/document/tags/a", 1, 77, "must be a string", "quote it"},
	{"document: {dsl: '1.0.3', namespace: a, name: b, version: '1.0.0', metadata: 1}\ndo: []\n", "/document/metadata", 1, 77, "must be an object", NULL},
	/* lists */
	{DOCUMENT "do: {a: {set: {x: 1}}}\n", "/do", 2, 5, "must be a list of tasks, not an object", "'- NAME:'"},
	{DOCUMENT "do: x\n", "/do", 2, 5, "must be an array, not string", NULL},
	{DOCUMENT "do:\n  - x\n", "/do/0", 3, 5, "must be an object, not string", NULL},
	{DOCUMENT "do:\n  - {}\n", "/do/0", 3, 5, "this one has 0", NULL},
	{DOCUMENT "do:\n  - a: {set: {x: 1}}\n    b: {set: {x: 1}}\n", "/do/0", 3, 5, "this one has 2", "begin each task with '- '"},
	{DOCUMENT "do:\n  - a: {set: {x: 1}}\n  - b: {set: {x: 1}}\n  - a: {set: {x: 1}}\n", "/do/2/a", 5, 5, "a second task 'a' in one list", NULL},
	{DOCUMENT "do:\n  - exit: {set: {x: 1}}\n", "/do/0/exit", 3, 5, "'exit' is a flow directive", NULL},
	{DOCUMENT "do:\n  - continue: {set: {x: 1}}\n", "/do/0/continue", 3, 5, "flow directive", NULL},
	{DOCUMENT "do:\n  - end: {set: {x: 1}}\n", "/do/0/end", 3, 5, "flow directive", NULL},
	{DOCUMENT "do:\n  - '': {set: {x: 1}}\n", "/do/0/", 3, 5, "a task without a name", NULL},
	/* tasks */
	{TASK("x"), "/do/0/a", 3, 8, "must be an object, not string", NULL},
	{TASK("{}"), "/do/0/a", 3, 8, "a task without a kind", "one of call, do, emit, for, fork"},
	{TASK("{sett: {x: 1}}"), "/do/0/a", 3, 8, "a task without a kind", "did you mean 'set'?"},
	{TASK("{set: {x: 1}, call: http}"), "/do/0/a", 3, 8, "this one has 'set' and 'call'", NULL},
	{TASK("{fork: {}}"), "/do/0/a/fork", 3, 15, "'branches' is missing in 'fork'", NULL},
	{TASK("{fork: {branches: []}}"), "/do/0/a/fork/branches", 3, 26, "at least one branch", NULL},
	{TASK("{fork: {branches: [b: {set: {x: 1}}], compete: 1}}"), "/do/0/a/fork/compete", 3, 55, "must be a boolean", NULL},
	{TASK("{fork: {branches: [b: {set: {x: 1}, then: c}, c: {set: {x: 1}}]}}"), "/do/0/a/fork/branches/0/b/then", 3, 50, "there is no task 'c' in this list", NULL},
	{TASK("{for: {in: .x}, metadata: {concurrency: 600}, do: [f: {fork: {branches: [b: {set: {x: 1}}, c: {set: {x: 1}}]}}]}"),
	 "/do/0/a/do/0/f/fork/branches", 3, 80, "more than 1024 tasks under way at once", "metadata.concurrency"},
	{TASK("{emit: {}}"), "/do/0/a/emit", 3, 15, "'event' is missing in 'emit'", "event: {with: {type: …}}"},
	{TASK("{emit: {event: {}}}"), "/do/0/a/emit/event", 3, 23, "'with' is missing in 'event'", NULL},
	{TASK("{emit: {event: {with: {source: /s}}}}"), "/do/0/a/emit/event/with", 3, 30, "'type' is missing in an event", NULL},
	{TASK("{emit: {event: {with: {type: 5}}}}"), "/do/0/a/emit/event/with/type", 3, 37, "must be a string, not number", "quote it"},
	{TASK("{emit: {event: {with: {type: t, roomId: x}}}}"), "/do/0/a/emit/event/with/roomId", 3, 40, "'roomId' cannot be an attribute of an event", "lower-case"},
	{TASK("{emit: {event: {with: {type: t, level: 1.5}}}}"), "/do/0/a/emit/event/with/level", 3, 47, "a string, a boolean or an integer, not number", NULL},
	{TASK("{emit: {event: {with: {type: t, specversion: '0.3'}}}}"), "/do/0/a/emit/event/with/specversion", 3, 53, "events are of version 1.0", "leave it out"},
	{TASK("{emit: {event: {with: {type: t, data: {a: '${ $nobody }'}}}}}"), "/do/0/a/emit/event/with/data/a", 3, 50, "$nobody", NULL},
	{TASK("{emit: {event: {with: {type: t}, to: x}}}"), "/do/0/a/emit/event/to", 3, 41, "unknown key 'to' in 'event'", NULL},
	{TASK("{listen: {}}"), "/do/0/a/listen", 3, 17, "'to' is missing in 'listen'", NULL},
	{TASK("{listen: {to: {one: {with: {type: a}}}, read: all}}"), "/do/0/a/listen/read", 3, 54, "'all' is none of: data, envelope, raw", NULL},
	{TASK("{listen: {to: {one: {with: {type: a}}}, read: '${ .x }'}}"), "/do/0/a/listen/read", 3, 54, "cannot be an expression", "data, envelope or raw"},
	{TASK("{listen: {to: {one: {with: {type: a}}}, timeout: 5}}"), "/do/0/a/listen/timeout", 3, 48, "unknown key 'timeout' in 'listen'", NULL},
	{TASK("{listen: {to: {any: [], until: '$item.x'}}, foreach: {do: []}}"), "/do/0/a/listen/to/until", 3, 39, "$item", NULL},
	{TASK("{listen: {to: {any: []}}, foreach: {item: e, at: e}}"), "/do/0/a/foreach", 3, 43, "'item' and 'at' name the same variable $e", NULL},
	{TASK("{listen: {to: {any: []}}, foreach: {input: {from: .x}}}"), "/do/0/a/foreach/input", 3, 44, "unknown key 'input' in 'foreach'", NULL},
	{TASK("{listen: {to: {any: []}}, foreach: {do: [{x: {set: {b: '${ $item.[ }'}}}]}}"), "/do/0/a/foreach/do/0/x/set/b", 3, 63, "", NULL},
	{TASK("{listen: {to: {any: []}}, foreach: {output: {as: $nobody}}}"), "/do/0/a/foreach/output/as", 3, 57, "$nobody", NULL},
	/* run */
	{TASK("{run: {}}"), "/do/0/a/run", 3, 14, "'workflow' is missing in 'run'", "workflow: {namespace"},
	{TASK("{run: {shell: {command: ls}}}"), "/do/0/a/run/shell", 3, 15, "'shell' is not supported in this release", NULL},
	{TASK("{run: {script: {language: js, code: x}}}"), "/do/0/a/run/script", 3, 15, "'script' is not supported in this release", NULL},
	{TASK("{run: {container: {image: x}}}"), "/do/0/a/run/container", 3, 15, "'container' is not supported in this release", NULL},
	{TASK("{run: {workflow: {namespace: n, name: m}, return: all}}"), "/do/0/a/run/return", 3, 58, "means nothing for a workflow", "the child's output"},
	{TASK("{run: {workflow: {namespace: n, name: m}, await: 1}}"), "/do/0/a/run/await", 3, 57, "must be a boolean", NULL},
	{TASK("{run: {workflow: {name: m}}}"), "/do/0/a/run/workflow", 3, 25, "'namespace' is missing in 'workflow'", NULL},
	{TASK("{run: {workflow: {namespace: n_, name: m}}}"), "/do/0/a/run/workflow/namespace", 3, 37, "letters, digits or hyphens", NULL},
	{TASK("{run: {workflow: {namespace: n, name: '${ .m }'}}}"), "/do/0/a/run/workflow/name", 3, 46, "cannot be an expression", "switch"},
	{TASK("{run: {workflow: {namespace: n, name: m, version: 1.0}}}"), "/do/0/a/run/workflow/version", 3, 58, "must be a string, not a number", "quote it"},
	{TASK("{run: {workflow: {namespace: n, name: m, version: newest}}}"), "/do/0/a/run/workflow/version", 3, 58, "neither a semantic version nor 'latest'", NULL},
	{TASK("{run: {workflow: {namespace: n, name: m, input: 5}}}"), "/do/0/a/run/workflow/input", 3, 56, "must be an object", NULL},
	{TASK("{run: {workflow: {namespace: n, name: m, input: {a: '${ $nope }'}}}}"), "/do/0/a/run/workflow/input/a", 3, 60, "there is no variable $nope", NULL},
	{TASK("{run: {workflow: {namespace: n, name: m, sort: 5}}}"), "/do/0/a/run/workflow/sort", 3, 49, "unknown key 'sort'", NULL},
	/* if, then, switch */
	{TASK("{set: {x: 1}, if: true}"), "/do/0/a/if", 3, 26, "must be an expression, not boolean", NULL},
	{TASK("{set: {x: 1}, if: '.a ['}"), "/do/0/a/if", 3, 26, "bracket", NULL},
	{TASK("{set: {x: 1}, then: 1}"), "/do/0/a/then", 3, 28, "must be a string", NULL},
	{TASK("{set: {x: 1}, then: b}"), "/do/0/a/then", 3, 28, "there is no task 'b' in this list", "in the same list"},
	{DOCUMENT "do:\n  - first: {set: {x: 1}, then: secnd}\n  - second: {set: {x: 1}}\n", "/do/0/first/then", 3, 32, "there is no task 'secnd'", "did you mean 'second'?"},
	{DOCUMENT "do:\n  - a: {do: [b: {set: {x: 1}, then: c}]}\n  - c: {set: {x: 1}}\n", "/do/0/a/do/0/b/then", 3, 37, "there is no task 'c' in this list", NULL},
	{DOCUMENT "do:\n  - a: {set: {x: 1}, then: c}\n  - b: {do: [c: {set: {x: 1}}]}\n", "/do/0/a/then", 3, 28, "there is no task 'c' in this list", NULL},
	{TASK("{switch: []}"), "/do/0/a/switch", 3, 17, "at least one case", NULL},
	{TASK("{switch: {x: {then: end}}}"), "/do/0/a/switch", 3, 17, "a list of cases, not an object", "'- NAME:'"},
	{TASK("{switch: [x: {when: .a}]}"), "/do/0/a/switch/0/x", 3, 21, "'then' is missing in a case of 'switch'", "continue, exit, end"},
	{TASK("{switch: [x: {then: b}]}"), "/do/0/a/switch/0/x/then", 3, 28, "there is no task 'b' in this list", NULL},
	{TASK("{switch: [x: {then: end}, y: {then: exit}]}"), "/do/0/a/switch/1/y", 3, 34, "a second case without 'when', 'x' is the default already", NULL},
	{TASK("{switch: [x: {then: end}, x: {when: .a, then: exit}]}"), "/do/0/a/switch/1/x", 3, 34, "a second case 'x'", NULL},
	{TASK("{switch: [x: {when: '$nope', then: end}]}"), "/do/0/a/switch/0/x/when", 3, 28, "there is no variable $nope", NULL},
	/* raise */
	{TASK("{raise: {}}"), "/do/0/a/raise", 3, 16, "'error' is missing in 'raise'", NULL},
	{TASK("{raise: {error: {status: 400}}}"), "/do/0/a/raise/error", 3, 24, "'type' is missing in an error", NULL},
	{TASK("{raise: {error: {type: x}}}"), "/do/0/a/raise/error", 3, 24, "'status' is missing in an error", NULL},
	{TASK("{raise: {error: {type: x, status: 4}}}"), "/do/0/a/raise/error/status", 3, 42, "an integer from 100 to 599", NULL},
	{TASK("{raise: {error: {type: 5, status: 400}}}"), "/do/0/a/raise/error/type", 3, 31, "must be a string", NULL},
	{TASK("{raise: {error: mine}}"), "/do/0/a/raise/error", 3, 24, "use.errors has no 'mine'", "define it in use.errors"},
	{DOCUMENT "do: []\nuse: {errors: {mine: {type: x}}}\n", "/use/errors/mine", 3, 22, "'status' is missing in an error", NULL},
	{DOCUMENT "do: []\nuse: {extensions: []}\n", "/use/extensions", 3, 7, "'extensions' is not supported in this release", NULL},
	/* wait, timeout, try */
	{TASK("{wait: {}}"), "/do/0/a/wait", 3, 15, "at least one of days", NULL},
	{TASK("{wait: {weeks: 1}}"), "/do/0/a/wait", 3, 15, "weeks", NULL},
	{TASK("{wait: P1Y}"), "/do/0/a/wait", 3, 15, "years and months have no fixed length", NULL},
	{TASK("{wait: '${ $nope }'}"), "/do/0/a/wait", 3, 15, "there is no variable $nope", NULL},
	{TASK("{set: {x: 1}, timeout: {}}"), "/do/0/a/timeout", 3, 31, "'after' is missing in a timeout", NULL},
	{TASK("{set: {x: 1}, timeout: {after: 5}}"), "/do/0/a/timeout/after", 3, 39, "a duration is", NULL},
	{TASK("{set: {x: 1}, timeout: soon}"), "/do/0/a/timeout", 3, 31, "use.timeouts has no 'soon'", "define it in use.timeouts"},
	{DOCUMENT "do: []\ntimeout: {after: '${ $task.name }'}\n", "/timeout/after", 3, 18, "there is no variable $task", NULL},
	{DOCUMENT "do: []\ntimeout: {after: '${ $context.x }'}\n", "/timeout/after", 3, 18, "there is no variable $context", NULL},
	{DOCUMENT "do: []\nevaluate: {language: js}\n", "/evaluate/language", 3, 22, "language 'js' is not supported in this release", "expressions are jq"},
	{DOCUMENT "do: []\nevaluate: {mode: loose}\n", "/evaluate/mode", 3, 18, "mode 'loose' is not supported in this release", "around each expression"},
	{DOCUMENT "do: []\nevaluate: {made: strict}\n", "/evaluate/made", 3, 12, "unknown key 'made'", NULL},
	{DOCUMENT "do: []\nuse: {timeouts: {soon: {after: 1}}}\n", "/use/timeouts/soon/after", 3, 32, "a duration is", NULL},
	{DOCUMENT "do: []\nuse: {retries: {often: {delay: 1}}}\n", "/use/retries/often/delay", 3, 32, "a duration is", NULL},
	{TASK("{try: []}"), "/do/0/a", 3, 8, "'catch' is missing in a 'try' task", "catch: {}"},
	{TASK("{try: {}, catch: {}}"), "/do/0/a/try", 3, 14, "must be a list of tasks", NULL},
	{TASK("{try: [], catch: {then: end}}"), "/do/0/a/catch/then", 3, 26, "'then' is not supported in this release", "at the try itself"},
	{TASK("{try: [], catch: {errors: {with: {}}}}"), "/do/0/a/catch/errors/with", 3, 41, "at least one member", NULL},
	{TASK("{try: [], catch: {errors: {with: {status: '4'}}}}"), "/do/0/a/catch/errors/with/status", 3, 50, "must be an integer", NULL},
	{TASK("{try: [], catch: {as: input}}"), "/do/0/a/catch/as", 3, 30, "$input is a variable of the language", NULL},
	{TASK("{try: [], catch: {when: $e.x}}"), "/do/0/a/catch/when", 3, 32, "there is no variable $e", NULL},
	{TASK("{try: [b: {set: {x: '${ $error }'}}], catch: {}}"), "/do/0/a/try/0/b/set/x", 3, 28, "there is no variable $error", NULL},
	{TASK("{try: [], catch: {retry: often}}"), "/do/0/a/catch/retry", 3, 33, "use.retries has no 'often'", NULL},
	{TASK("{try: [], catch: {retry: {backoff: {}}}}"), "/do/0/a/catch/retry/backoff", 3, 43, "exactly one of constant, linear and exponential", NULL},
	{TASK("{try: [], catch: {retry: {backoff: {linear: {by: 2}}}}}"), "/do/0/a/catch/retry/backoff/linear", 3, 52, "has no members", NULL},
	{TASK("{try: [], catch: {retry: {limit: {attempt: {count: 1000001}}}}}"), "/do/0/a/catch/retry/limit/attempt/count", 3, 59, "from 0 to 1000000", NULL},
	{TASK("{try: [], catch: {retry: {jitter: {from: PT1S}}}}"), "/do/0/a/catch/retry/jitter", 3, 42, "'to' is missing in 'jitter'", NULL},
	{TASK("{try: [], catch: {do: [b: {set: {x: 1}, then: c}]}}"), "/do/0/a/catch/do/0/b/then", 3, 54, "there is no task 'c' in this list", NULL},
	{TASK("{set: {x: 1}, input: []}"), "/do/0/a/input", 3, 29, "must be an object, not array", NULL},
	{TASK("{set: {x: 1}, input: {from: 1}}"), "/do/0/a/input/from", 3, 36, "must be an expression or an object, not number", NULL},
	{TASK("{set: {x: 1}, input: {from: $input.a}}"), "/do/0/a/input/from", 3, 36, "$input", NULL},
	{TASK("{set: {x: 1}, output: {as: $output}}"), "/do/0/a/output/as", 3, 35, "$output", NULL},
	{TASK("{set: {x: 1}, output: {as: {y: '${ $output }'}}}"), "/do/0/a/output/as/y", 3, 39, "$output", NULL},
	{TASK("{set: {x: '${ $output }'}}"), "/do/0/a/set/x", 3, 18, "$output", NULL},
	{TASK("{set: {x: 1}, export: {to: .}}"), "/do/0/a/export/to", 3, 31, "unknown key 'to'", NULL},
	{TASK("{set: {x: 1}, output: {schema: {document: {minimum: a}}}}"), "/do/0/a/output/schema/document/minimum", 3, 60, "JSON Schema: expected number",
	 NULL},
	{TASK("{set: {x: 1}, output: {schema: {document: '${ . }'}}}"), "/do/0/a/output/schema/document", 3, 50, "cannot be an expression", NULL},
	{TASK("{set: {x: 1}, output: {schema: {resource: {endpoint: 'file:x.json'}}}}"), "/do/0/a/output/schema/resource", 3, 40,
	 "'resource' is not supported", "is inlined"},
	{TASK("{set: {x: 1}, foo: 1}"), "/do/0/a/foo", 3, 22, "unknown key 'foo' in a 'set' task", ""},
	{TASK("{set: {x: 1}, with: {}}"), "/do/0/a/with", 3, 22, "unknown key 'with' in a 'set' task", NULL},
	{TASK("{set: {x: 1}, metadata: 1}"), "/do/0/a/metadata", 3, 32, "must be an object, not number", NULL},
	{TASK("{do: x}"), "/do/0/a/do", 3, 13, "must be an array", NULL},
	/* set and its expressions */
	{TASK("{set: 1}"), "/do/0/a/set", 3, 14, "must be an object", NULL},
	{TASK("{set: {}}"), "/do/0/a/set", 3, 14, "at least one member", NULL},
	{TASK("{set: .x}"), "/do/0/a/set", 3, 14, "must be an object or an expression", "write '${ … }'"},
	{TASK("{set: {x: ['${ .a[ }']}}"), "/do/0/a/set/x/0", 3, 19, "opens a bracket that is not closed", NULL},
	{TASK("{set: {x: '${ $item }'}}"), "/do/0/a/set/x", 3, 18, "there is no variable $item here", NULL},
	{TASK("{set: {x: '${ $secrets.key }'}}"), "/do/0/a/set/x", 3, 18, "a secret cannot stand here", "nowhere else"},
	{TASK("{set: {x: '${}'}}"), "/do/0/a/set/x", 3, 18, "expression is empty", NULL},
	{TASK("{set: {x: '${ .a } and ${ .b }'}}"), "/do/0/a/set/x", 3, 18, "expression '.a } and ${ .b'", "must be the whole text"},
	/* for */
	{TASK("{for: {in: .x}}"), "/do/0/a", 3, 8, "'do' is missing in a 'for' task", NULL},
	{TASK("{for: x, do: []}"), "/do/0/a/for", 3, 14, "must be an object", NULL},
	{TASK("{for: {}, do: []}"), "/do/0/a/for", 3, 14, "'in' is missing in 'for'", NULL},
	{TASK("{for: {in: .x, eech: y}, do: []}"), "/do/0/a/for/eech", 3, 23, "unknown key 'eech'", "did you mean 'each'?"},
	{TASK("{for: {in: [1, 2]}, do: []}"), "/do/0/a/for/in", 3, 19, "an array in 'in' is not supported", "'set' task"},
	{TASK("{for: {in: 7}, do: []}"), "/do/0/a/for/in", 3, 19, "must be an expression, not number", NULL},
	{TASK("{for: {in: $item.x}, do: []}"), "/do/0/a/for/in", 3, 19, "there is no variable $item here", NULL},
	{TASK("{for: {in: .x, each: $pet}, do: []}"), "/do/0/a/for/each", 3, 29, "'$pet' cannot name a variable", "leave out the $"},
	{TASK("{for: {in: .x, each: a-b}, do: []}"), "/do/0/a/for/each", 3, 29, "'a-b' cannot name a variable", NULL},
	{TASK("{for: {in: .x, at: and}, do: []}"), "/do/0/a/for/at", 3, 27, "'and' cannot name a variable", NULL},
	{TASK("{for: {in: .x, each: input}, do: []}"), "/do/0/a/for/each", 3, 29, "$input is a variable of the language", NULL},
	{TASK("{for: {in: .x, each: index}, do: []}"), "/do/0/a/for", 3, 14, "'each' and 'at' name the same variable $index", NULL},
	{TASK("{for: {in: .x}, while: '$nope', do: []}"), "/do/0/a/while", 3, 31, "there is no variable $nope here", NULL},
	{TASK("{for: {in: .x}, while: .y, metadata: {concurrency: 2}, do: []}"), "/do/0/a/while", 3, 24, "'while' cannot stand with metadata.concurrency", NULL},
	{TASK("{for: {in: .x}, metadata: {concurrency: 0}, do: []}"), "/do/0/a/metadata/concurrency", 3, 48, "an integer from 1 to 1024", NULL},
	{TASK("{for: {in: .x}, metadata: {concurrency: 1025}, do: []}"), "/do/0/a/metadata/concurrency", 3, 48, "an integer from 1 to 1024", NULL},
	{TASK("{for: {in: .x}, metadata: {concurrency: '2'}, do: []}"), "/do/0/a/metadata/concurrency", 3, 48, "an integer from 1 to 1024", NULL},
	{TASK("{for: {in: .x}, do: [b: {set: {v: '${ $itme }'}}]}"), "/do/0/a/do/0/b/set/v", 3, 42, "there is no variable $itme here", NULL},
	/* call */
	{TASK("{call: 7, with: {}}"), "/do/0/a/call", 3, 15, "must be a string", NULL},
	{TASK("{call: http}"), "/do/0/a", 3, 8, "'with' is missing in a 'call' task", NULL},
	{TASK("{call: http, with: x}"), "/do/0/a/with", 3, 27, "must be an object, not string", NULL},
	{TASK("{call: openapi, with: {document: {endpoint: 'https://h/{x}'}, operationId: o}}"), "/do/0/a/with/document/endpoint", 3, 52, "must be a plain http:// or https:// URI", NULL},
	{TASK("{call: htp, with: {}}"), "/do/0/a/call", 3, 15, "there is no function 'htp'", "did you mean 'http'?"},
	{TASK("{call: mine, with: {}}"), "/do/0/a/call", 3, 15, "there is no function 'mine'", "use.functions"},
	{TASK("{call: grpc, with: {}}"), "/do/0/a/call", 3, 15, "call: grpc is not supported in this release", NULL},
	{TASK("{call: judgement, with: {}}"), "/do/0/a/call", 3, 15, "call: judgement is not supported in this release", NULL},
	{TASK("{call: 'reproducibility-gate:1.0.0@default', with: {}}"), "/do/0/a/with", 3, 59, "'runtime' is missing", NULL},
	{TASK("{call: reproducibility-gate, with: {runtime: r, requests: 1}}"), "/do/0/a/with/requests", 3, 66, "an integer from 2 to 1000", NULL},
	{TASK("{call: reproducibility-gate, with: {runtime: r, phases: [cold]}}"), "/do/0/a/with/phases/0", 3, 65, "interleaved", NULL},
	{TASK("{call: reproducibility-gate, with: {runtime: r, concurrent: 4}}"), "/do/0/a/with", 3, 43, "'concurrent' is of a phase that is not asked for", NULL},
	{TASK("{call: reproducibility-gate, with: {runtime: r, phases: [], concurrent: 65}}"), "/do/0/a/with/concurrent", 3, 80, "an integer from 2 to 64", NULL},
	{TASK("{call: reproducibility-gate, with: {runtime: r, seeds: 21}}"), "/do/0/a/with/seeds", 3, 63, "an integer from 0 to 20", NULL},
	{TASK("{call: reproducibility-gate, with: {runtime: r, prompt: x, messages: [{role: user, content: x}]}}"), "/do/0/a/with", 3, 43, "at most one of 'messages' and 'prompt'", NULL},
	{TASK("{call: reproducibility-gate, with: {runtime: r, between: [a, 1]}}"), "/do/0/a/with/between/1", 3, 69, "must be a string", NULL},
	{TASK("{call: reproducibility-gate, with: {runtime: r, between: ['1', '2', '3', '4', '5', '6', '7', '8', '9', '10', '11']}}"), "/do/0/a/with/between", 3, 65, "more than 10 prompts", NULL},
	{TASK("{call: 'inference:2.0.0@default', with: {}}"), "/do/0/a/call", 3, 15, "other catalogs or versions", NULL},
	{TASK("{call: 'https://a.example/f.yaml', with: {}}"), "/do/0/a/call", 3, 15, "other catalogs or versions", NULL},
	/* http */
	{TASK("{call: http, with: {endpoint: 'http://a.example'}}"), "/do/0/a/with", 3, 27, "'method' is missing", NULL},
	{TASK("{call: http, with: {method: get}}"), "/do/0/a/with", 3, 27, "'endpoint' is missing", NULL},
	{TASK("{call: http, with: {method: 'g t', endpoint: 'http://a.example'}}"), "/do/0/a/with/method", 3, 36, "'g t' is no HTTP method", NULL},
	{TASK("{call: http, with: {method: 'g_t', endpoint: 'http://a.example'}}"), "/do/0/a/with/method", 3, 36, "'g_t' is no HTTP method", NULL},
	{TASK("{call: http, with: {method: get, endpoint: 'ftp://a.example'}}"), "/do/0/a/with/endpoint", 3, 51, "must begin with http:// or https://", NULL},
	{TASK("{call: http, with: {method: get, endpoint: 'http://a.example/{'}}"), "/do/0/a/with/endpoint", 3, 51, "a { without its }", NULL},
	{TASK("{call: http, with: {method: get, endpoint: 'http://a.example/{+x}'}}"), "/do/0/a/with/endpoint", 3, 51, "level 1", NULL},
	{TASK("{call: http, with: {method: get, endpoint: {}}}"), "/do/0/a/with/endpoint", 3, 51, "'uri' is missing", NULL},
	{TASK("{call: http, with: {method: get, endpoint: {uri: x}}}"), "/do/0/a/with/endpoint/uri", 3, 57, "must begin with http", NULL},
	{TASK("{call: http, with: {method: get, endpoint: {uri: 'http://a.example', authentication: {}}}}"), "/do/0/a/with/endpoint/authentication", 3, 93,
	 "an authentication is of exactly one kind", "basic, bearer, digest or use"},
	{HTTP("header: {}"), "/do/0/a/with/header", 3, 71, "unknown key 'header' in the arguments of http", "did you mean 'headers'?"},
	{HTTP("headers: {'a b': x}"), "/do/0/a/with/headers/a b", 3, 81, "'a b' is no name of an HTTP header", NULL},
	{HTTP("headers: {a: \"x\\r\\nb: y\"}"), "/do/0/a/with/headers/a", 3, 84, "must be one line", NULL},
	{HTTP("headers: {a: 1}"), "/do/0/a/with/headers/a", 3, 84, "must be a string, not number", "quote it"},
	{HTTP("query: {a: []}"), "/do/0/a/with/query/a", 3, 82, "must be a text, a number or a boolean", NULL},
	{HTTP("output: text"), "/do/0/a/with/output", 3, 79, "'text' is none of: content, raw, response", NULL},
	{HTTP("output: contents"), "/do/0/a/with/output", 3, 79, "is none of", "did you mean 'content'?"},
	{HTTP("redirect: 'yes'"), "/do/0/a/with/redirect", 3, 81, "must be a boolean", NULL},
	/* inference */
	{TASK("{call: inference, with: {prompt: x}}"), "/do/0/a/with", 3, 32, "'runtime' is missing", NULL},
	{TASK("{call: inference, with: {runtime: r}}"), "/do/0/a/with", 3, 32, "exactly one of 'messages' and 'prompt'", NULL},
	{INFER("prompt: x, messages: [{role: user, content: x}]"), "/do/0/a/with", 3, 32, "exactly one of 'messages' and 'prompt'", NULL},
	{INFER("prompt: ''"), "/do/0/a/with/prompt", 3, 53, "must not be empty", NULL},
	{INFER("messages: []"), "/do/0/a/with/messages", 3, 55, "at least one message", NULL},
	{INFER("messages: [{role: usr, content: x}]"), "/do/0/a/with/messages/0/role", 3, 63, "'usr' is none of: system, user, assistant", "did you mean 'user'?"},
	{INFER("messages: [{role: user}]"), "/do/0/a/with/messages/0", 3, 56, "'content' is missing in a message", NULL},
	{INFER("messages: [{role: user, content: 1}]"), "/do/0/a/with/messages/0/content", 3, 78, "must be a string", NULL},
	{INFER("prompt: x, priority: 10"), "/do/0/a/with/priority", 3, 66, "0 to 9", NULL},
	{INFER("prompt: x, requireClass: stable"), "/do/0/a/with/requireClass", 3, 70, "byte-stable", NULL},
	{INFER("prompt: x, requireClass: {class: byte-stable, mayDiffer: [seed]}"), "/do/0/a/with/requireClass/mayDiffer/0", 3, 103, "cachePath", NULL},
	{INFER("prompt: x, sampling: {temperature: hot}"), "/do/0/a/with/sampling/temperature", 3, 80, "must be a number from 0 to 10", NULL},
	{INFER("prompt: x, sampling: {top_p: 1}"), "/do/0/a/with/sampling/top_p", 3, 67, "unknown key 'top_p' in 'sampling'", NULL},
	{INFER("prompt: x, sampling: {topp: 1}"), "/do/0/a/with/sampling/topp", 3, 67, "unknown key 'topp'", "did you mean 'topP'?"},
	{INFER("prompt: x, sampling: {seed: 1.5}"), "/do/0/a/with/sampling/seed", 3, 73, "must be a whole number from", NULL},
	{INFER("prompt: x, sampling: {seed: x}"), "/do/0/a/with/sampling/seed", 3, 73, "must be a whole number from", NULL},
	{INFER("prompt: x, sampling: {seed: '9223372036854775807'}"), "/do/0/a/with/sampling/seed", 3, 73, "to 9007199254740991, as a number or as text", NULL},
	{INFER("prompt: x, sampling: {mirostat: 3}"), "/do/0/a/with/sampling/mirostat", 3, 77, "must be a whole number from 0 to 2", NULL},
	{INFER("prompt: x, sampling: {xtcProbabilty: 1}"), "/do/0/a/with/sampling/xtcProbabilty", 3, 67, "unknown key 'xtcProbabilty'", "did you mean 'xtcProbability'?"},
	{INFER("prompt: x, sampling: {logitBias: {'7': 101}}"), "/do/0/a/with/sampling/logitBias/7", 3, 84, "from -100 to 100", NULL},
	{INFER("prompt: x, sampling: {maxTokens: 0}"), "/do/0/a/with/sampling/maxTokens", 3, 78, "a whole number from 1 to 1000000000", NULL},
	{INFER("prompt: x, sampling: {stop: [1]}"), "/do/0/a/with/sampling/stop/0", 3, 74, "must be a text of 1 to 1024 bytes", NULL},
	{INFER("prompt: x, schema: {}"), "/do/0/a/with/schema", 3, 64, "'document' is missing in a schema", NULL},
	{INFER("prompt: x, schema: {resource: {endpoint: 'file:x.json'}}"), "/do/0/a/with/schema/resource", 3, 65, "'resource' is not supported",
	 "a file: resource is inlined by the command line"},
	{INFER("prompt: x, schema: {format: xml, document: {}}"), "/do/0/a/with/schema/format", 3, 73, "'xml' is none of: json", NULL},
	{INFER("prompt: x, schema: {document: []}"), "/do/0/a/with/schema/document", 3, 75, "must be an object", NULL},
	{INFER("prompt: x, schema: {document: {properties: {a: {pattern: 1}}}}"), "/do/0/a/with/schema/document/properties/a/pattern", 3, 102,
	 "JSON Schema: ", NULL},
	/* extraction */
	{TASK("{call: extraction, with: {runtime: r}}"), "/do/0/a/with", 3, 33, "'document' is missing", NULL},
	{TASK("{call: extraction, with: {runtime: '', document: x}}"), "/do/0/a/with/runtime", 3, 43, "1 to 64 characters", NULL},
	{TASK("{call: extraction, with: {runtime: r, document: {digest: md5}}}"), "/do/0/a/with/document/digest", 3, 65, "'md5' is no digest", NULL},
	{TASK("{call: extraction, with: {runtime: r, document: {digest: '${ .d }', path: x}}}"), "/do/0/a/with/document/path", 3, 76, "unknown key 'path' in a document",
	 NULL},
	{EXTRACT("sections: {by: page}"), "/do/0/a/with/sections/by", 3, 74, "'page' is none of: heading, paragraph, none", NULL},
	{EXTRACT("sections: {maxTokens: 0.5}"), "/do/0/a/with/sections/maxTokens", 3, 81, "an integer from 1 to 1000000", NULL},
	{EXTRACT("sections: {max: 5}"), "/do/0/a/with/sections/max", 3, 70, "unknown key 'max' in 'sections'", NULL},
	{EXTRACT("onFailure: ignore"), "/do/0/a/with/onFailure", 3, 70, "'ignore' is none of: continue, fault", NULL},
	{EXTRACT("repeats: {count: 3}"), "/do/0/a/with/repeats", 3, 59, "'repeats' is not supported in this release", NULL},
	{EXTRACT("promt: x"), "/do/0/a/with/promt", 3, 59, "unknown key 'promt'", "did you mean 'prompt'?"},
	/* JSON has places too */
	{"{\"document\": {\"dsl\": \"1.0.3\", \"namespace\": \"a\", \"name\": \"b\", \"version\": \"1.0.0\"},\n \"do\": [{\"é\": {\"set\": {\"é\": 1, \"y\": \"${ }\"}}}]}",
	 "/do/0/é/set/y", 2, 37, "expression is empty", NULL},
};

/* Each mistake is told once, where it stands, with what to do. */
START_TEST(mistakes_are_told)
{
	for (size_t i = 0; i < COUNT_OF(bad); i++) {
		struct fixture fixture;
		const struct problem *problem;

		load(&fixture, bad[i].text);
		ck_assert_msg(fixture.definition == NULL, "%s", bad[i].text);
		problem = &fixture.problems.items[0];
		ck_assert_msg(fixture.problems.errors == 1, "%s: %zu errors, %s, %s", bad[i].text, fixture.problems.errors, problem->message,
			      fixture.problems.items[1].message);
		if (problem->warning)
			problem++;
		ck_assert_msg(strstr(problem->message, bad[i].message) != NULL, "%s: '%s'", bad[i].text, problem->message);
		ck_assert_msg(strcmp(problem->pointer, bad[i].pointer) == 0, "%s: %s", bad[i].text, problem->pointer);
		ck_assert_msg(problem->line == bad[i].line && problem->column == bad[i].column, "%s: %zu:%zu", bad[i].text, problem->line,
			      problem->column);
		if (bad[i].hint && !*bad[i].hint)
			ck_assert_msg(problem->hint == NULL, "%s: %s", bad[i].text, problem->hint);
		else if (bad[i].hint)
			ck_assert_msg(problem->hint && strstr(problem->hint, bad[i].hint), "%s: hint %s", bad[i].text, problem->hint ? problem->hint : "none");
		unload(&fixture);
	}
}
END_TEST

/* All mistakes of a file come at once, in the order of the text. */
START_TEST(all_mistakes_come_at_once)
{
	static const char *const pointers[] = {"/document/version", "/zzz", "/do/0/one/set/b", "/do/1/two/call", "/do/2/three/if", "/do/3/four/emit"};
	struct fixture fixture;

	load(&fixture, "document: {dsl: '1.0.3', namespace: a, name: b, version: 1}\n"
		       "zzz: 1\n"
		       "do:\n"
		       "  - one: {set: {b: '${ .a | c( }'}}\n"
		       "  - two: {call: nope, with: {}}\n"
		       "  - three: {if: 1, set: {a: 1}}\n"
		       "  - four: {emit: {}}\n");
	ck_assert_uint_eq(fixture.problems.errors, COUNT_OF(pointers));
	for (size_t i = 0; i < COUNT_OF(pointers); i++)
		ck_assert_str_eq(fixture.problems.items[i].pointer, pointers[i]);
	unload(&fixture);
}
END_TEST

/* A document that came as JSON values has pointers, but no lines. */
START_TEST(json_documents_have_pointers)
{
	struct arena arena;
	struct problems problems;

	arena_init(&arena);
	problems_init(&problems);
	ck_assert_ptr_null(definition_load_json(json_parse(&arena, BYTES_OF("{\"do\":[],\"foo\":1}"), 0, NULL, NULL), &problems));
	ck_assert_uint_eq(problems.errors, 2);
	ck_assert_str_eq(problems.items[0].pointer, "/foo");
	ck_assert_uint_eq(problems.items[0].line, 0);
	problems_close(&problems);
	arena_close(&arena);
}
END_TEST

/* Lint: what is legal but most likely not meant is a warning, and the definition is still good. */
START_TEST(lint_warns)
{
	static const struct {
		const char *text, *pointer, *message; /* NULL: no warning */
	} cases[] = {
		{TASK("{set: {x: .foo}}"), "/do/0/a/set/x", "'.foo' looks like an expression but is not wrapped"},
		{TASK("{set: {x: $input.a}}"), "/do/0/a/set/x", "looks like an expression"},
		{TASK("{set: {x: 'hello ${ .name }!'}}"), "/do/0/a/set/x", "text around ${ } stays as it is"},
		{TASK("{set: {x: '${ .a'}}"), "/do/0/a/set/x", "opens ${ and does not close it"},
		{DOCUMENT "do:\n  - a:\n      set:\n        x: ${ .a # why }\n", "/do/0/a/set/x", "opens ${ and does not close it"},
		{TASK("{for: {in: .x}, metadata: {concurrency: 4}, do: [b: {set: {c: 1}}]}"), "/do/0/a/metadata/concurrency", "other engines run this loop one"},
		{TASK("{set: {x: 1}, metadata: {concurrency: 4}}"), "/do/0/a/metadata/concurrency", "on a 'for' task only"},
		{TASK("{fork: {branches: [b: {set: {x: 1}, export: {as: .}}]}}"), "/do/0/a/fork/branches/0/b/export", "stays inside its branch"},
		{TASK("{fork: {compete: true, branches: [b: {do: [c: {set: {x: 1}, export: {as: .}}]}]}}"), "/do/0/a/fork/branches/0/b/do/0/c/export", "only the winner's exports stay"},
		{TASK("{set: {a: '.', b: '...', c: '.5', d: '$5', e: 'a.b', f: '. foo', g: '$nobody', h: '{x}'}}"), NULL, NULL},
		{INFER("prompt: x, schema: {document: {title: .foo, default: '$input'}}"), NULL, NULL},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct fixture fixture;

		load_good(&fixture, cases[i].text);
		ck_assert_msg(fixture.problems.count == (cases[i].pointer ? 1 : 0), "%s: %zu warnings", cases[i].text, fixture.problems.count);
		if (cases[i].pointer) {
			ck_assert(fixture.problems.items[0].warning);
			ck_assert_uint_ge(fixture.problems.items[0].line, 3);
			ck_assert_str_eq(fixture.problems.items[0].pointer, cases[i].pointer);
			ck_assert_msg(strstr(fixture.problems.items[0].message, cases[i].message) != NULL, "%s", fixture.problems.items[0].message);
		}
		unload(&fixture);
	}
}
END_TEST

/* ---- Limits */

/* 10,000 tasks are taken, one more is refused. */
START_TEST(tasks_are_limited)
{
	struct buffer text;
	struct fixture fixture;

	buffer_init(&text, DEFINITION_SOURCE_MAX);
	buffer_add_text(&text, DOCUMENT "do:\n");
	for (int i = 0; i < DEFINITION_TASKS_MAX; i++)
		buffer_printf(&text, "- t%d: {set: {a: 1}}\n", i);
	load_good(&fixture, buffer_text(&text));
	ck_assert_uint_eq(fixture.definition->task_count, DEFINITION_TASKS_MAX);
	ck_assert_ptr_nonnull(definition_find_task(fixture.definition, "/do/9999/t9999"));
	unload(&fixture);
	buffer_add_text(&text, "- more: {set: {a: 1}}\n- again: {set: {a: 1}}\n");
	load(&fixture, buffer_text(&text));
	ck_assert_uint_eq(fixture.problems.errors, 1);
	ck_assert_str_eq(fixture.problems.items[0].message, "more than 10000 tasks");
	ck_assert_str_eq(fixture.problems.items[0].pointer, "/do/10000/more");
	unload(&fixture);
	/* What a built-in function expands to counts too. */
	buffer_clear(&text);
	buffer_add_text(&text, DOCUMENT "do:\n");
	for (int i = 0; i < 2500; i++)
		buffer_printf(&text, "- t%d: {call: extraction, with: {runtime: r, document: x}}\n", i);
	load(&fixture, buffer_text(&text));
	ck_assert_ptr_null(fixture.definition);
	ck_assert_str_eq(fixture.problems.items[0].message, "more than 10000 tasks");
	unload(&fixture);
	buffer_close(&text);
}
END_TEST

/* A name of 128 bytes is taken, one more is refused; a concurrency of 1024 is taken. */
START_TEST(names_and_concurrency_are_limited)
{
	struct buffer text;
	struct fixture fixture;

	for (int extra = 0; extra < 2; extra++) {
		buffer_init(&text, DEFINITION_SOURCE_MAX);
		buffer_add_text(&text, DOCUMENT "do:\n- ");
		for (int i = 0; i < DEFINITION_TASK_NAME_MAX + extra; i++)
			buffer_add_char(&text, 'n');
		buffer_add_text(&text, ": {for: {in: .x}, metadata: {concurrency: 1024}, do: [{b: {set: {c: 1}}}]}\n");
		load(&fixture, buffer_text(&text));
		ck_assert_uint_eq(fixture.problems.errors, (size_t)extra);
		if (extra)
			ck_assert_str_eq(fixture.problems.items[0].message, "a task's name has at most 128 bytes");
		else
			ck_assert_uint_eq(child(fixture.definition->root, 0)->concurrency, FOR_CONCURRENCY_MAX);
		unload(&fixture);
		buffer_close(&text);
	}
}
END_TEST

/* Loops inside one another share the iterations that may be under way: an inner one gets what the outer ones leave, and a chained one
 * takes nothing. An extraction is a loop like any other. */
START_TEST(nested_loops_share_concurrency)
{
	struct fixture fixture;
	const struct task *task;

	load_good(&fixture, DOCUMENT "do: [{a: {for: {in: .x}, metadata: {concurrency: 100}, do: [{b: {for: {in: .x}, do: [{c: {for: {in: .x}, "
				     "metadata: {concurrency: 20}, do: [{d: {call: extraction, with: {runtime: r, document: '${ .x }'}}}]}}]}}]}}]");
	task = child(fixture.definition->root, 0);
	ck_assert_uint_eq(task->concurrency, 100);
	task = child(task, 0);
	ck_assert_uint_eq(task->concurrency, 0);
	task = child(task, 0);
	ck_assert_uint_eq(task->concurrency, 10);
	task = child(child(task, 0), 1);
	ck_assert_uint_eq(task->concurrency, 1);
	ck_assert_uint_eq(task->parallel, 1000);
	unload(&fixture);
}
END_TEST

/* Sixteen loops inside one another are taken, each with its variables in scope; one more is not, be it one that `extraction` makes:
 * iteration paths have no more room. */
START_TEST(nested_loops_are_limited)
{
	static const struct {
		int loops;
		const char *innermost;
		size_t errors;
	} cases[] = {
		{DEFINITION_LOOPS_MAX, "{set: '${ $e0 }'}", 0},
		{DEFINITION_LOOPS_MAX + 1, "{set: '${ $e0 }'}", 1},
		{DEFINITION_LOOPS_MAX - 1, "{call: extraction, with: {runtime: r, document: '${ $e0 }'}}", 0},
		{DEFINITION_LOOPS_MAX - 1, "{call: reproducibility-gate, with: {runtime: '${ $e0 }'}}", 0},
		{DEFINITION_LOOPS_MAX - 1, "{call: reproducibility-gate, with: {runtime: '${ $e0 }', phases: []}}", 1}, /* two */
		{DEFINITION_LOOPS_MAX - 2, "{call: reproducibility-gate, with: {runtime: '${ $e0 }', phases: []}}", 0},
		{DEFINITION_LOOPS_MAX, "{call: extraction, with: {runtime: r, document: '${ $e0 }'}}", 1},
	};

	for (size_t c = 0; c < COUNT_OF(cases); c++) {
		struct buffer text;
		struct fixture fixture;
		const struct task *task;

		buffer_init(&text, DEFINITION_SOURCE_MAX);
		buffer_add_text(&text, DOCUMENT "do: ");
		for (int i = 0; i < cases[c].loops; i++)
			buffer_printf(&text, "[{l%d: {for: {each: e%d, at: a%d, in: .x}, do: ", i, i, i);
		buffer_printf(&text, "[{s: %s}]", cases[c].innermost);
		for (int i = 0; i < cases[c].loops; i++)
			buffer_add_text(&text, "}}]");
		load(&fixture, buffer_text(&text));
		ck_assert_uint_eq(fixture.problems.errors, cases[c].errors);
		if (cases[c].errors > 0) {
			ck_assert_str_eq(fixture.problems.items[0].message, "more than 16 loops inside one another");
		} else {
			task = fixture.definition->root;
			for (int i = 0; i < cases[c].loops; i++)
				task = child(task, 0);
			ck_assert_uint_eq(child(task, 0)->loop_depth, (size_t)cases[c].loops);
		}
		unload(&fixture);
		buffer_close(&text);
	}
}
END_TEST

/* A switch has at most SWITCH_CASES_MAX cases; a jump finds its task in a list of any length. */
START_TEST(cases_are_limited)
{
	for (int more = 0; more < 2; more++) {
		struct buffer text;
		struct fixture fixture;

		buffer_init(&text, DEFINITION_SOURCE_MAX);
		buffer_add_text(&text, DOCUMENT "do:\n- s:\n    switch:\n");
		for (int i = 0; i < SWITCH_CASES_MAX + more; i++)
			buffer_printf(&text, "    - c%d: {when: .n == %d, then: t%d}\n", i, i, i % 100);
		for (int i = 0; i < 100; i++)
			buffer_printf(&text, "- t%d: {set: {x: 1}}\n", i);
		load(&fixture, buffer_text(&text));
		ck_assert_uint_eq(fixture.problems.errors, (size_t)more);
		if (more)
			ck_assert_str_eq(fixture.problems.items[0].message, "more than 1000 cases");
		else
			ck_assert_uint_eq(child(fixture.definition->root, 0)->cases[142].then.index, 43);
		unload(&fixture);
		buffer_close(&text);
	}
}
END_TEST

/* ---- The specification's own definitions */

static size_t load_folder(const char *shared, const char *name, bool must_fail, size_t *good)
{
	static uint8_t data[DEFINITION_SOURCE_MAX];
	char path[4096], file[8192];
	size_t count = 0;
	struct dirent *entry;
	DIR *folder;

	snprintf(path, sizeof path, "%s/conformance/serverless-workflow/%s", shared, name);
	folder = opendir(path);
	ck_assert_msg(folder != NULL, "no folder %s", path);
	while ((entry = readdir(folder)) != NULL) {
		struct fixture fixture;

		if (!strstr(entry->d_name, ".yaml"))
			continue;
		snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
		load_bytes(&fixture, read_file(file, data, sizeof data));
		ck_assert_msg(!must_fail || fixture.definition == NULL, "%s is taken", file);
		for (size_t i = 0; i < fixture.problems.count; i++)
			ck_assert_msg(fixture.problems.items[i].line > 0, "%s: %s has no line", file, fixture.problems.items[i].message);
		*good += fixture.definition != NULL;
		count++;
		unload(&fixture);
	}
	closedir(folder);
	return count;
}

/* Every example loads or is refused with a place, every invalid definition is refused. */
START_TEST(specification_definitions)
{
	const char *shared = getenv("REPRISE_SHARED");
	size_t good = 0, none = 0;

	if (!shared || !*shared) {
		printf("skipped: shared conformance data not present\n");
		return;
	}
	ck_assert_uint_gt(load_folder(shared, "examples", false, &good), 0);
	ck_assert_uint_gt(good, 0);
	ck_assert_uint_gt(load_folder(shared, "invalid", true, &none), 0);
}
END_TEST

/* What an earlier release took is read back from the journal, though it could not be registered any more: the call says so, not the run's loading. */
START_TEST(stored_definitions_are_still_read)
{
	static const struct {
		const char *more;
		bool is_read;
	} cases[] = {
		{"\"sampling\":{\"temperature\":0.5}", true},
		{"\"sampling\":{\"temperature\":50,\"seed\":\"123456789012345678901\"}", true},
		{"\"sampling\":{\"temperatur\":1}", false},
		{"\"schema\":{\"document\":{\"required\":[\"a\",\"a\"]}}", true},
		{"\"schema\":{\"document\":{\"required\":[1]}}", false},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct problems problems;
		struct definition *definition;
		struct json *document;
		char text[400];

		problems_init(&problems);
		snprintf(text, sizeof text,
			 "{\"document\":{\"dsl\":\"1.0.3\",\"namespace\":\"n\",\"name\":\"a\",\"version\":\"1.0.0\"},\"do\":[{\"a\":{\"call\":\"inference\",\"with\":"
			 "{\"runtime\":\"r\",\"prompt\":\"x\",%s}}}]}", cases[i].more);
		document = json_parse(&problems.arena, bytes_text(text), JSON_STRICT, NULL, NULL);
		ck_assert_ptr_nonnull(document);
		definition = definition_load_json(document, &problems);
		ck_assert_msg((definition != NULL) == (i == 0), "%s", cases[i].more);
		definition_free(definition);
		definition = definition_load_stored(document, &problems);
		ck_assert_msg((definition != NULL) == cases[i].is_read, "%s", cases[i].more);
		definition_free(definition);
		problems_close(&problems);
	}
}
END_TEST

/* What only jq understands is no mistake yet: it is kept for whoever registers the definition, with its place and the variables it speaks of. */
START_TEST(expressions_for_jq_are_kept)
{
	struct fixture fixture;
	size_t line, column;

	load_good(&fixture, DOCUMENT "do:\n"
			    "  - a: {set: {x: '${ .a | length }', y: '${ .plain }', z: ['${ $input + $x }']}}\n"
			    "  - b: {for: {in: '.x[]', each: row}, do: [{c: {set: {v: '${ \"\\($row) $none $context\" }'}}}]}\n"
			    "  - e: {emit: {event: {with: {type: t, data: {x: '${ .a + 1 }'}}}}}\n"
			    "  - l: {listen: {to: {any: [{with: {data: '${ .t > $input.t }'}, correlate: {k: {from: .a.b + 1, expect: '${ .a + 1 }'}}}], until: length > 3}},\n"
			    "        foreach: {item: e, output: {as: .x + $e}, export: {as: '$e + 1'}, do: [{c: {set: {v: '${ $e + $index }'}}}]}}\n");
	const struct definition *definition = fixture.definition;
	static const char *const pointers[] = {
		"/do/0/a/set/x", "/do/0/a/set/z/0", "/do/1/b/for/in", "/do/1/b/do/0/c/set/v", "/do/2/e/emit/event/with/data/x", "/do/3/l/listen/to/any/0/with/data",
		"/do/3/l/listen/to/any/0/correlate/k/from", "/do/3/l/listen/to/any/0/correlate/k/expect", "/do/3/l/listen/to/until", "/do/3/l/foreach/output/as",
		"/do/3/l/foreach/export/as", "/do/3/l/foreach/do/0/c/set/v",
	};
	ck_assert_uint_eq(definition->expression_count, COUNT_OF(pointers));
	for (size_t i = 0; i < COUNT_OF(pointers); i++)
		ck_assert_str_eq(definition->expressions[i].pointer, pointers[i]);
	ck_assert_str_eq(definition->expressions[0].text, ".a | length");
	ck_assert_uint_eq(definition->expressions[0].name_count, 0);
	ck_assert_uint_eq(definition->expressions[1].name_count, 1);
	ck_assert_str_eq(definition->expressions[1].names[0], "input");
	ck_assert_uint_eq(definition->expressions[3].name_count, 2);
	ck_assert_str_eq(definition->expressions[3].names[0], "row");
	ck_assert_str_eq(definition->expressions[3].names[1], "context");
	ck_assert(text_position(definition->positions, definition->expressions[1].pointer, false, &line, &column));
	ck_assert_uint_eq(line, 3);
	unload(&fixture);
}
END_TEST

/* An expression for jq has a limit of bytes, a definition one of their number. */
START_TEST(expressions_for_jq_are_limited)
{
	struct fixture fixture;
	struct buffer text;

	buffer_init(&text, DEFINITION_SOURCE_MAX);
	buffer_add_text(&text, DOCUMENT "do:\n  - a: {set: {x: '${ 1");
	for (size_t i = 0; i < EVALUATION_EXPRESSION_MAX / 2; i++)
		buffer_add_text(&text, "+1");
	buffer_add_text(&text, " }'}}\n");
	load(&fixture, buffer_text(&text));
	ck_assert_uint_eq(fixture.problems.errors, 1);
	ck_assert_ptr_nonnull(strstr(fixture.problems.items[0].message, "EVALUATION_EXPRESSION_MAX"));
	unload(&fixture);

	buffer_clear(&text);
	buffer_add_text(&text, DOCUMENT "do:\n  - a: {set: {x: [");
	for (size_t i = 0; i <= DEFINITION_EXPRESSIONS_MAX; i++)
		buffer_printf(&text, "%s'${ .a+1 }'", i > 0 ? "," : "");
	buffer_add_text(&text, "]}}\n");
	load(&fixture, buffer_text(&text));
	ck_assert_uint_eq(fixture.problems.errors, 1);
	ck_assert_ptr_nonnull(strstr(fixture.problems.items[0].message, "DEFINITION_EXPRESSIONS_MAX"));
	unload(&fixture);
	buffer_close(&text);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("definition");
	TCase *tests = tcase_create("definition");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_test(tests, document_is_read);
	tcase_add_test(tests, tasks_become_a_tree);
	tcase_add_test(tests, calls_are_read);
	tcase_add_test(tests, extraction_is_expanded);
	tcase_add_test(tests, gate_expansion);
	tcase_add_test(tests, extraction_keeps_what_is_said);
	tcase_add_test(tests, default_schema_is_the_schema_file);
	tcase_add_test(tests, mistakes_are_told);
	tcase_add_test(tests, all_mistakes_come_at_once);
	tcase_add_test(tests, json_documents_have_pointers);
	tcase_add_test(tests, lint_warns);
	tcase_add_test(tests, stored_definitions_are_still_read);
	tcase_add_test(tests, expressions_for_jq_are_kept);
	tcase_add_test(tests, expressions_for_jq_are_limited);
	tcase_add_test(tests, tasks_are_limited);
	tcase_add_test(tests, names_and_concurrency_are_limited);
	tcase_add_test(tests, nested_loops_share_concurrency);
	tcase_add_test(tests, nested_loops_are_limited);
	tcase_add_test(tests, cases_are_limited);
	tcase_add_test(tests, specification_definitions);
	suite_add_tcase(suite, tests);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
