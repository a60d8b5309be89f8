/* Arguments of the functions that `call` knows: http, inference, extraction. Pure. New here? Read functions[]. */
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/base/priority.h"
#include "workflow/base/reproducibility.h"
#include "workflow/base/sampling.h"
#include "workflow/language/checker.h"
#include "workflow/language/expression.h"
#include "workflow/language/json_schema.h"
#include "workflow/language/openapi.h"

enum { SECTION_TOKENS_MAX = 1000000, RUNTIME_NAME_MAX = 64, METHOD_LEN_MAX = 32 };
enum { FAILED_SCHEMA_BYTES = DEFINITION_SCHEMA_BYTES_MAX / (2 * DEFINITION_PROBLEMS_MAX) }; /* one that is wrong has cost time too */

/* A member of the arguments and the check of its value; the pointer stands at the value then. */
typedef void (*check_value)(struct checker *checker, const struct json *value);

static void check_member(struct checker *checker, const struct json *object, const char *name, check_value check)
{
	const struct json *value = json_get(object, name);
	size_t len;

	if (!value)
		return;
	len = checker_enter(checker, name);
	check(checker, value);
	checker_leave(checker, len);
}

static void check_text(struct checker *checker, const struct json *value)
{
	if (checker_type(checker, value, JSON_STRING, true) && value->string.len == 0)
		checker_fail(checker, NULL, "must not be empty");
}

static void check_boolean(struct checker *checker, const struct json *value)
{
	checker_type(checker, value, JSON_BOOLEAN, true);
}

/* Names of the daemon's configuration; whether this one exists only the daemon knows. */
static void check_runtime(struct checker *checker, const struct json *value)
{
	if (!checker_type(checker, value, JSON_STRING, true))
		return;
	if (value->string.len == 0 || value->string.len > RUNTIME_NAME_MAX)
		checker_fail(checker, "the name of a runtime in the daemon's configuration", "must have 1 to %d characters", RUNTIME_NAME_MAX);
}

/* ---- http */

static void check_method(struct checker *checker, const struct json *value)
{
	if (!checker_type(checker, value, JSON_STRING, true))
		return;
	if (value->string.len == 0 || value->string.len > METHOD_LEN_MAX || /* as the activity has it */
	    strspn(value->string.text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-") != value->string.len)
		checker_fail(checker, "get, post, put, patch, delete, head, options", "'%.40s' is no HTTP method", value->string.text);
}

static void check_uri(struct checker *checker, const struct json *value)
{
	struct arena arena;
	struct error error;
	const char *uri;

	if (!checker_type(checker, value, JSON_STRING, true))
		return;
	if (strncasecmp(value->string.text, "http://", 7) != 0 && strncasecmp(value->string.text, "https://", 8) != 0) {
		checker_fail(checker, "a URI, a URI template with {name}, or an expression ${ … }", "must begin with http:// or https://");
		return;
	}
	arena_init(&arena);
	if (uri_template_eval(&arena, value->string.text, NULL, &uri, &error) != 0)
		checker_fail(checker, NULL, "%s", error.message);
	arena_close(&arena);
}

static void check_endpoint(struct checker *checker, const struct json *value)
{
	static const struct key keys[] = {{"uri", KEY_REQUIRED, NULL}, {"authentication", KEY_OPTIONAL, NULL}};

	if (!json_is(value, JSON_OBJECT)) {
		check_uri(checker, value);
		return;
	}
	checker_keys(checker, value, keys, COUNT_OF(keys), "an endpoint");
	check_member(checker, value, "uri", check_uri);
	check_member(checker, value, "authentication", authentication_check);
}

/* Header names are tokens (RFC 9110); values have no line ends: neither may smuggle in a second header. */
static void check_headers(struct checker *checker, const struct json *value)
{
	if (!checker_type(checker, value, JSON_OBJECT, true))
		return;
	for (size_t i = 0; i < value->object.count; i++) {
		const struct json_member *member = &value->object.members[i];
		size_t len = checker_enter(checker, member->name);

		if (member->name_len == 0 || strspn(member->name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~") != member->name_len)
			checker_fail_key(checker, NULL, "'%.80s' is no name of an HTTP header", member->name);
		if (checker_type(checker, member->value, JSON_STRING, true) && strpbrk(member->value->string.text, "\r\n"))
			checker_fail(checker, NULL, "a header's value must be one line");
		checker_leave(checker, len);
	}
}

static void check_query(struct checker *checker, const struct json *value)
{
	if (!checker_type(checker, value, JSON_OBJECT, true))
		return;
	for (size_t i = 0; i < value->object.count; i++) {
		const struct json_member *member = &value->object.members[i];
		size_t len = checker_enter(checker, member->name);

		if (json_is(member->value, JSON_OBJECT) || json_is(member->value, JSON_ARRAY))
			checker_fail(checker, NULL, "must be a text, a number or a boolean");
		checker_leave(checker, len);
	}
}

static void check_output(struct checker *checker, const struct json *value)
{
	static const char *const words[] = {"content", "raw", "response"};

	checker_word(checker, value, words, COUNT_OF(words));
}

static void check_http(struct checker *checker, const struct json *with)
{
	static const struct key keys[] = {
		{"method", KEY_REQUIRED, NULL}, {"endpoint", KEY_REQUIRED, NULL}, {"headers", KEY_OPTIONAL, NULL}, {"body", KEY_OPTIONAL, NULL},
		{"query", KEY_OPTIONAL, NULL}, {"output", KEY_OPTIONAL, NULL}, {"redirect", KEY_OPTIONAL, NULL},
	};

	checker_keys(checker, with, keys, COUNT_OF(keys), "the arguments of http");
	check_member(checker, with, "method", check_method);
	check_member(checker, with, "endpoint", check_endpoint);
	check_member(checker, with, "headers", check_headers);
	check_member(checker, with, "query", check_query);
	check_member(checker, with, "output", check_output);
	check_member(checker, with, "redirect", check_boolean);
}

/* ---- openapi */

/* A literal: it is fetched when the definition is registered. */
static void check_resource_uri(struct checker *checker, const struct json *value)
{
	if (!checker_type(checker, value, JSON_STRING, false))
		return;
	if (checker_is_expression(value) || strpbrk(value->string.text, "{} \t\r\n") ||
	    (strncasecmp(value->string.text, "http://", 7) != 0 && strncasecmp(value->string.text, "https://", 8) != 0))
		checker_fail(checker, "it is fetched when the definition is registered; the command line inlines file: ones", "must be a plain http:// or https:// URI, without expression and template");
}

static void check_resource_endpoint(struct checker *checker, const struct json *value)
{
	static const struct key keys[] = {{"uri", KEY_REQUIRED, NULL}, {"authentication", KEY_LATER, NULL}};

	if (!json_is(value, JSON_OBJECT)) {
		check_resource_uri(checker, value);
		return;
	}
	checker_keys(checker, value, keys, COUNT_OF(keys), "an endpoint");
	check_member(checker, value, "uri", check_resource_uri);
}

/* What the daemon adds when it has fetched the description. */
static void check_operation(struct checker *checker, const struct json *value)
{
	if (checker_type(checker, value, JSON_OBJECT, false) && !openapi_operation_valid(value))
		checker_fail(checker, "leave it out: the daemon writes it", "is no operation as the daemon writes it");
}

static void check_description(struct checker *checker, const struct json *value)
{
	static const struct key keys[] = {
		{"endpoint", KEY_REQUIRED, NULL}, {"name", KEY_OPTIONAL, NULL}, {"digest", KEY_OPTIONAL, NULL}, {"operation", KEY_OPTIONAL, NULL}};

	if (!checker_type(checker, value, JSON_OBJECT, false))
		return;
	checker_keys(checker, value, keys, COUNT_OF(keys), "a resource");
	/* What was read of a file is here already; where it came from is told, no more. */
	const char *endpoint = json_get_text(value, "endpoint");
	bool is_file = strncmp(endpoint ? endpoint : json_get_text(json_get(value, "endpoint"), "uri") ? json_get_text(json_get(value, "endpoint"), "uri") : "", "file:", 5) == 0;
	if (!is_file || !json_get(value, "operation") || !json_get(value, "digest"))
		check_member(checker, value, "endpoint", check_resource_endpoint);
	check_member(checker, value, "digest", check_text);
	check_member(checker, value, "operation", check_operation);
}

static void check_operation_id(struct checker *checker, const struct json *value)
{
	if (checker_type(checker, value, JSON_STRING, false) && (value->string.len == 0 || checker_is_expression(value)))
		checker_fail(checker, NULL, "must be the id of an operation, not an expression");
}

/* With the operation at hand, parameters that it does not have and those that it needs are told. */
static void check_parameters(struct checker *checker, const struct json *with)
{
	const struct json *given = json_get(with, "parameters"), *known = json_get(json_get(json_get(with, "document"), "operation"), "parameters");
	size_t len = checker_enter(checker, "parameters"), inner_len;

	if (given && !json_is(given, JSON_OBJECT))
		checker_type(checker, given, JSON_OBJECT, true);
	for (size_t i = 0; known && json_is(given, JSON_OBJECT) && i < given->object.count; i++) {
		const char *name = given->object.members[i].name;
		bool found = false;

		for (size_t k = 0; k < json_count(known); k++)
			found |= strcmp(json_get_text(json_at(known, k), "name"), name) == 0;
		inner_len = checker_enter(checker, name);
		if (!found)
			checker_fail_key(checker, NULL, "the operation has no parameter '%.80s'", name);
		checker_leave(checker, inner_len);
	}
	checker_leave(checker, len);
	for (size_t k = 0; known && (!given || json_is(given, JSON_OBJECT)) && k < json_count(known); k++)
		if (json_get_boolean(json_at(known, k), "required", false) && !json_get(given, json_get_text(json_at(known, k), "name")))
			checker_fail(checker, NULL, "the operation needs the parameter '%.80s'", json_get_text(json_at(known, k), "name"));
}

static void check_openapi(struct checker *checker, const struct json *with)
{
	static const struct key keys[] = {
		{"document", KEY_REQUIRED, "document: {endpoint: https://…}"}, {"operationId", KEY_REQUIRED, NULL}, {"parameters", KEY_OPTIONAL, NULL},
		{"authentication", KEY_OPTIONAL, NULL}, {"output", KEY_OPTIONAL, NULL}, {"redirect", KEY_OPTIONAL, NULL},
	};
	size_t errors = checker->problems->errors;

	checker_keys(checker, with, keys, COUNT_OF(keys), "the arguments of openapi");
	check_member(checker, with, "document", check_description);
	check_member(checker, with, "operationId", check_operation_id);
	check_member(checker, with, "authentication", authentication_check);
	check_member(checker, with, "output", check_output);
	check_member(checker, with, "redirect", check_boolean);
	if (checker->problems->errors == errors)
		check_parameters(checker, with);
}

/* As a request of http whose URL, headers and body the activity makes of the operation and its parameters. */
static const struct json *prepare_openapi(struct checker *checker, const struct json *with)
{
	static const char *const kept[] = {"parameters", "output", "redirect"};
	struct arena *arena = &checker->definition->arena;
	struct json *prepared = json_object(arena), *secrets = json_object(arena), *of_authentication = json_object(arena);
	struct json *operation = json_get(json_get(with, "document"), "operation");

	if (operation) {
		json_set(arena, prepared, "method", json_get(operation, "method"));
		json_set(arena, prepared, "endpoint", json_get(operation, "server"));
		json_set(arena, prepared, "operation", operation);
	}
	for (size_t i = 0; i < COUNT_OF(kept); i++)
		if (json_get(with, kept[i]))
			json_set(arena, prepared, kept[i], json_get(with, kept[i]));
	if (json_get(with, "authentication"))
		json_set(arena, prepared, "authentication", authentication_prepare(checker, json_get(with, "authentication"), of_authentication));
	if (json_count(of_authentication) > 0) {
		json_set(arena, secrets, "authentication", of_authentication);
		json_set(arena, prepared, "secrets", secrets);
	}
	return prepared;
}

/* ---- inference and extraction */

/* By the same table as the configuration; what a call says null for is not taken from there. Whether the runtime has the field only the daemon knows. */
static void check_sampling(struct checker *checker, const struct json *value)
{
	struct key keys[SAMPLING_RULES_MAX];
	struct sampling_fault fault;
	size_t outer, inner;

	if (!checker_type(checker, value, JSON_OBJECT, true))
		return;
	for (size_t i = 0; i < sampling_rule_count(); i++)
		keys[i] = (struct key){sampling_rules[i].name, KEY_OPTIONAL, NULL};
	checker_keys(checker, value, keys, sampling_rule_count(), "'sampling'");
	if (checker->is_stored)
		return; /* ranges were added after 0.1.0; the call refuses what cannot be */
	for (size_t i = 0; i < json_count(value); i++) {
		const struct json_member *member = &value->object.members[i];
		const struct sampling_rule *rule = sampling_rule_find(member->name);

		if (!rule || json_is(member->value, JSON_NULL) || sampling_check(rule, member->value, checker_is_expression, &fault))
			continue;
		outer = checker_enter(checker, member->name);
		inner = fault.inside[0] ? checker_enter(checker, fault.inside) : checker->pointer.len;
		checker_fail(checker, NULL, "%s", fault.why);
		checker_leave(checker, inner);
		checker_leave(checker, outer);
	}
}

static void check_format(struct checker *checker, const struct json *value)
{
	static const char *const words[] = {"json"};

	checker_word(checker, value, words, COUNT_OF(words));
}

/* The message of json_schema_compile() begins with the pointer of the keyword: the problem gets its place. */
static struct json_schema *compile_schema(struct checker *checker, const struct json *value)
{
	struct error error;
	struct arena arena;
	const char *text, *pointer;
	size_t len = checker->pointer.len;
	struct json_schema *schema;

	if (checker->too_many_schemas)
		return NULL;
	schema = checker->is_stored ? json_schema_compile_taken(value, &error) : json_schema_compile(value, NULL, 0, &error);
	checker->schema_bytes += schema ? json_schema_size(schema) : FAILED_SCHEMA_BYTES;
	checker->too_many_schemas = checker->schema_bytes > DEFINITION_SCHEMA_BYTES_MAX;
	if (checker->too_many_schemas) {
		checker_fail(checker, NULL, "the JSON Schemas up to here take more than %d MiB of memory (DEFINITION_SCHEMA_BYTES_MAX)",
			     DEFINITION_SCHEMA_BYTES_MAX >> 20);
		json_schema_free(schema);
		return NULL;
	}
	if (schema)
		return schema;
	arena_init(&arena);
	text = strstr(error.message, ": ");
	pointer = text ? arena_text_len(&arena, error.message, (size_t)(text - error.message)) : "";
	if (text && json_pointer_get(value, pointer)) {
		buffer_add_text(&checker->pointer, pointer);
		checker_fail(checker, NULL, "JSON Schema: %s", text + 2);
	} else {
		checker_fail(checker, NULL, "JSON Schema: %s", error.message);
	}
	checker_leave(checker, len);
	arena_close(&arena);
	return NULL;
}

static void check_schema_document(struct checker *checker, const struct json *value)
{
	if (checker_type(checker, value, JSON_OBJECT, true))
		json_schema_free(compile_schema(checker, value));
}

static void check_schema_keys(struct checker *checker, const struct json *value)
{
	static const struct key keys[] = {
		{"format", KEY_OPTIONAL, NULL}, {"document", KEY_OPTIONAL, NULL},
		{"resource", KEY_LATER, "a file: resource is inlined by the command line, or by the daemon if it lies in a folder of its `resources`; otherwise put the schema under 'document'"},
	};

	checker_keys(checker, value, keys, COUNT_OF(keys), "a schema");
	if (!json_get(value, "document") && !json_get(value, "resource"))
		checker_fail(checker, "schema: {document: {type: object, …}}", "'document' is missing in a schema");
	check_member(checker, value, "format", check_format);
}

static void check_schema(struct checker *checker, const struct json *value)
{
	if (!checker_type(checker, value, JSON_OBJECT, true))
		return;
	check_schema_keys(checker, value);
	check_member(checker, value, "document", check_schema_document);
}

struct json_schema *checker_schema(struct checker *checker, const struct json *value)
{
	const struct json *document = json_get(value, "document");
	struct json_schema *schema = NULL;
	size_t len;

	if (!checker_type(checker, value, JSON_OBJECT, false))
		return NULL;
	check_schema_keys(checker, value);
	if (!document)
		return NULL;
	len = checker_enter(checker, "document");
	if (checker_is_expression(document))
		checker_fail(checker, "write the schema itself", "a schema of data flow cannot be an expression");
	else if (document->type == JSON_BOOLEAN || checker_type(checker, document, JSON_OBJECT, false))
		schema = compile_schema(checker, document);
	checker_leave(checker, len);
	return schema;
}

static void check_role(struct checker *checker, const struct json *value)
{
	static const char *const words[] = {"system", "user", "assistant"};

	checker_word(checker, value, words, COUNT_OF(words));
}

static void check_content(struct checker *checker, const struct json *value)
{
	checker_type(checker, value, JSON_STRING, true);
}

static void check_messages(struct checker *checker, const struct json *value)
{
	static const struct key keys[] = {{"role", KEY_REQUIRED, NULL}, {"content", KEY_REQUIRED, NULL}};

	if (!checker_type(checker, value, JSON_ARRAY, true))
		return;
	if (value->array.count == 0)
		checker_fail(checker, NULL, "must hold at least one message");
	for (size_t i = 0; i < value->array.count; i++) {
		const struct json *message = value->array.items[i];
		size_t len = checker_enter_index(checker, i);

		if (checker_type(checker, message, JSON_OBJECT, true)) {
			checker_keys(checker, message, keys, COUNT_OF(keys), "a message");
			check_member(checker, message, "role", check_role);
			check_member(checker, message, "content", check_content);
		}
		checker_leave(checker, len);
	}
}

static void check_class(struct checker *checker, const struct json *value)
{
	static const char *const words[] = {"byte-stable", "json-stable", "solo-only", "unstable"};

	checker_word(checker, value, words, COUNT_OF(words));
}

static void check_may_differ(struct checker *checker, const struct json *value)
{
	static const char *const words[] = {"sampling", "schema", "requestsInFlight", "cachePath", "instance"};

	if (!checker_type(checker, value, JSON_ARRAY, true))
		return;
	for (size_t i = 0; i < value->array.count; i++) {
		size_t len = checker_enter_index(checker, i);

		checker_word(checker, value->array.items[i], words, COUNT_OF(words));
		checker_leave(checker, len);
	}
}

/* A class, or {class, mayDiffer}. */
static void check_require_class(struct checker *checker, const struct json *value)
{
	static const struct key keys[] = {{"class", KEY_REQUIRED, NULL}, {"mayDiffer", KEY_OPTIONAL, NULL}};

	if (!json_is(value, JSON_OBJECT)) {
		check_class(checker, value);
		return;
	}
	checker_keys(checker, value, keys, COUNT_OF(keys), "'requireClass'");
	check_member(checker, value, "class", check_class);
	check_member(checker, value, "mayDiffer", check_may_differ);
}

static void check_priority(struct checker *checker, const struct json *value)
{
	checker_integer(checker, value, 0, PRIORITY_MAX);
}

static void check_inference(struct checker *checker, const struct json *with)
{
	static const struct key keys[] = {
		{"runtime", KEY_REQUIRED, "the name of a runtime in the daemon's configuration"}, {"messages", KEY_OPTIONAL, NULL},
		{"prompt", KEY_OPTIONAL, NULL}, {"schema", KEY_OPTIONAL, NULL}, {"sampling", KEY_OPTIONAL, NULL}, {"requireClass", KEY_OPTIONAL, NULL},
		{"priority", KEY_OPTIONAL, NULL},
	};

	checker_keys(checker, with, keys, COUNT_OF(keys), "the arguments of inference");
	if (!json_get(with, "messages") == !json_get(with, "prompt"))
		checker_fail(checker, NULL, "exactly one of 'messages' and 'prompt' is needed");
	check_member(checker, with, "runtime", check_runtime);
	check_member(checker, with, "messages", check_messages);
	check_member(checker, with, "prompt", check_text);
	check_member(checker, with, "schema", check_schema);
	check_member(checker, with, "sampling", check_sampling);
	check_member(checker, with, "requireClass", check_require_class);
	check_member(checker, with, "priority", check_priority);
}

static void check_digest(struct checker *checker, const struct json *value)
{
	struct digest digest;

	if (checker_type(checker, value, JSON_STRING, true) && !digest_parse(value->string.text, &digest))
		checker_fail(checker, "sha256: and 64 hexadecimal digits", "'%.80s' is no digest", value->string.text);
}

/* A text, or {digest} of a document that the daemon has. */
static void check_document(struct checker *checker, const struct json *value)
{
	static const struct key keys[] = {{"digest", KEY_REQUIRED, NULL}};

	if (json_is(value, JSON_OBJECT)) {
		checker_keys(checker, value, keys, COUNT_OF(keys), "a document");
		check_member(checker, value, "digest", check_digest);
	} else {
		check_text(checker, value);
	}
}

static void check_by(struct checker *checker, const struct json *value)
{
	static const char *const words[] = {"heading", "paragraph", "none"};

	checker_word(checker, value, words, COUNT_OF(words));
}

static void check_section_tokens(struct checker *checker, const struct json *value)
{
	checker_integer(checker, value, 1, SECTION_TOKENS_MAX);
}

static void check_sections(struct checker *checker, const struct json *value)
{
	static const struct key keys[] = {{"by", KEY_OPTIONAL, NULL}, {"maxTokens", KEY_OPTIONAL, NULL}};

	if (!checker_type(checker, value, JSON_OBJECT, true))
		return;
	checker_keys(checker, value, keys, COUNT_OF(keys), "'sections'");
	check_member(checker, value, "by", check_by);
	check_member(checker, value, "maxTokens", check_section_tokens);
}

static void check_on_failure(struct checker *checker, const struct json *value)
{
	static const char *const words[] = {"continue", "fault"};

	checker_word(checker, value, words, COUNT_OF(words));
}

static void check_extraction(struct checker *checker, const struct json *with)
{
	static const struct key keys[] = {
		{"runtime", KEY_REQUIRED, "the name of a runtime in the daemon's configuration"}, {"document", KEY_REQUIRED, "document: '${ .document }'"},
		{"sections", KEY_OPTIONAL, NULL}, {"sampling", KEY_OPTIONAL, NULL}, {"schema", KEY_OPTIONAL, NULL}, {"prompt", KEY_OPTIONAL, NULL},
		{"onFailure", KEY_OPTIONAL, NULL}, {"repeats", KEY_LATER, NULL}, {"requireClass", KEY_OPTIONAL, NULL},
		{"priority", KEY_OPTIONAL, NULL},
	};

	checker_keys(checker, with, keys, COUNT_OF(keys), "the arguments of extraction");
	check_member(checker, with, "runtime", check_runtime);
	check_member(checker, with, "document", check_document);
	check_member(checker, with, "sections", check_sections);
	check_member(checker, with, "sampling", check_sampling);
	check_member(checker, with, "schema", check_schema);
	check_member(checker, with, "prompt", check_text);
	check_member(checker, with, "onFailure", check_on_failure);
	check_member(checker, with, "requireClass", check_require_class);
	check_member(checker, with, "priority", check_priority);
}

static void check_gate_requests(struct checker *checker, const struct json *value)
{
	checker_integer(checker, value, 2, GATE_REQUESTS_MAX);
}

static void check_gate_seeds(struct checker *checker, const struct json *value)
{
	checker_integer(checker, value, 0, GATE_SEEDS_MAX);
}

static void check_gate_concurrent(struct checker *checker, const struct json *value)
{
	checker_integer(checker, value, 2, GATE_CONCURRENT_MAX);
}

static void check_between(struct checker *checker, const struct json *value)
{
	if (!checker_type(checker, value, JSON_ARRAY, true))
		return;
	if (value->array.count > GATE_BETWEEN_MAX)
		checker_fail(checker, NULL, "more than %d prompts", GATE_BETWEEN_MAX);
	for (size_t i = 0; i < value->array.count; i++) {
		size_t len = checker_enter_index(checker, i);

		check_text(checker, value->array.items[i]);
		checker_leave(checker, len);
	}
}

static void check_gate_phases(struct checker *checker, const struct json *value)
{
	static const char *const words[] = {GATE_PHASES};

	if (!checker_type(checker, value, JSON_ARRAY, true))
		return;
	for (size_t i = 0; i < value->array.count; i++) {
		size_t len = checker_enter_index(checker, i);

		checker_word(checker, value->array.items[i], words, COUNT_OF(words));
		checker_leave(checker, len);
	}
}

static void check_gate(struct checker *checker, const struct json *with)
{
	static const struct key keys[] = {
		{"runtime", KEY_REQUIRED, "the name of a runtime in the daemon's configuration"}, {"requests", KEY_OPTIONAL, NULL}, {"seeds", KEY_OPTIONAL, NULL},
		{"messages", KEY_OPTIONAL, NULL}, {"prompt", KEY_OPTIONAL, NULL}, {"schema", KEY_OPTIONAL, NULL}, {"sampling", KEY_OPTIONAL, NULL},
		{"between", KEY_OPTIONAL, NULL}, {"phases", KEY_OPTIONAL, NULL}, {"concurrent", KEY_OPTIONAL, NULL},
	};

	checker_keys(checker, with, keys, COUNT_OF(keys), "the arguments of reproducibility-gate");
	if (json_get(with, "messages") && json_get(with, "prompt") && !checker_is_expression(json_get(with, "messages")))
		checker_fail(checker, NULL, "at most one of 'messages' and 'prompt' can be given");
	check_member(checker, with, "runtime", check_runtime);
	check_member(checker, with, "requests", check_gate_requests);
	check_member(checker, with, "seeds", check_gate_seeds);
	check_member(checker, with, "messages", check_messages);
	check_member(checker, with, "prompt", check_text);
	check_member(checker, with, "schema", check_schema);
	check_member(checker, with, "sampling", check_sampling);
	check_member(checker, with, "between", check_between);
	check_member(checker, with, "phases", check_gate_phases);
	check_member(checker, with, "concurrent", check_gate_concurrent);
	if (json_get(with, "concurrent") && !json_get(with, "phases"))
		checker_fail(checker, "add `phases: [concurrent]`", "'concurrent' is of a phase that is not asked for");
}

static const struct {
	const char *name;
	check_value check;
} functions[] = {
	{"http", check_http}, {"openapi", check_openapi}, {"inference", check_inference}, {"extraction", check_extraction}, {"reproducibility-gate", check_gate},
};

/* The expressions of one argument. Secrets are looked at where they are allowed; elsewhere they are unknown variables. */
static void check_expressions(struct checker *checker, const char *function, const char *name, const struct json *value)
{
	if (strcmp(name, "headers") == 0 && json_is(value, JSON_OBJECT)) {
		for (size_t i = 0; i < value->object.count; i++) {
			size_t len = checker_enter(checker, value->object.members[i].name);

			if (!secret_check(checker, value->object.members[i].value))
				checker_template(checker, value->object.members[i].value, true);
			checker_leave(checker, len);
		}
	} else if (strcmp(function, "openapi") == 0 && (strcmp(name, "authentication") == 0 || strcmp(name, "document") == 0)) {
		return; /* of openapi: seen to by authentication_check(), or without any */
	} else if (strcmp(name, "endpoint") == 0 && json_is(value, JSON_OBJECT)) {
		size_t len = checker_enter(checker, "uri");

		if (json_get(value, "uri")) /* authentication_check() has seen to the rest */
			checker_template(checker, json_get(value, "uri"), true);
		checker_leave(checker, len);
	} else {
		/* A JSON Schema has texts of its own ("pattern": ".foo"): no lint there. */
		checker_template(checker, value, strcmp(name, "schema") != 0);
	}
}

const struct json *arguments_prepare(struct checker *checker, const char *function, const struct json *with)
{
	struct arena *arena = &checker->definition->arena;
	struct json *prepared = json_object(arena), *secrets = json_object(arena), *of_headers = json_object(arena), *of_authentication = json_object(arena);

	if (strcmp(function, "openapi") == 0)
		return prepare_openapi(checker, with);
	if (strcmp(function, "http") != 0)
		return with;
	for (size_t i = 0; i < with->object.count; i++) {
		const struct json_member *member = &with->object.members[i];
		struct json *headers = json_object(arena);

		if (strcmp(member->name, "endpoint") == 0 && json_is(member->value, JSON_OBJECT)) {
			json_set(arena, prepared, "endpoint", json_get(member->value, "uri"));
			if (json_get(member->value, "authentication"))
				json_set(arena, prepared, "authentication", authentication_prepare(checker, json_get(member->value, "authentication"), of_authentication));
		} else if (strcmp(member->name, "headers") == 0 && json_is(member->value, JSON_OBJECT)) {
			for (size_t k = 0; k < member->value->object.count; k++) {
				const struct json_member *header = &member->value->object.members[k];
				const char *secret = use_secret(checker, header->value);

				if (secret)
					json_set_text(arena, of_headers, header->name, secret);
				else
					json_set(arena, headers, header->name, header->value);
			}
			json_set(arena, prepared, "headers", headers);
		} else {
			json_set(arena, prepared, member->name, member->value);
		}
	}
	if (json_count(of_headers) > 0)
		json_set(arena, secrets, "headers", of_headers);
	if (json_count(of_authentication) > 0)
		json_set(arena, secrets, "authentication", of_authentication);
	if (json_count(secrets) > 0)
		json_set(arena, prepared, "secrets", secrets);
	return prepared;
}

bool arguments_check(struct checker *checker, const char *function, const struct json *with)
{
	for (size_t i = 0; i < COUNT_OF(functions); i++) {
		if (strcmp(functions[i].name, function) != 0)
			continue;
		if (!checker_type(checker, with, JSON_OBJECT, false))
			return true;
		functions[i].check(checker, with);
		for (size_t m = 0; m < with->object.count; m++) {
			size_t len = checker_enter(checker, with->object.members[m].name);

			check_expressions(checker, function, with->object.members[m].name, with->object.members[m].value);
			checker_leave(checker, len);
		}
		return true;
	}
	return false;
}
