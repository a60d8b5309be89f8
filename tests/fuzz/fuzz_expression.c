/* Fuzzing entry: any text as an expression, a template and a URI template. What the check takes never asks for jq when it is
 * evaluated, and what the evaluation gives can be printed and parsed. libFuzzer; see HACKING.md. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/language/expression.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct json *get_value(void *context, const char *name)
{
	const struct json *values = context;

	return strcmp(name, ".") == 0 ? values : json_get(values, name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char values_text[] = "{\"a\":[1,{\"b\":null}],\"c\":\"x\",\"d\":{\"e\":1.5,\"f g\":true}}";
	struct arena arena;
	struct json *values;
	struct scope scope;
	struct error error;
	const struct json *result;
	const char *uri, *text;
	const char *const *names;
	int check, rc;

	arena_init(&arena);
	text = arena_text_len(&arena, (const char *)data, size);
	values = json_parse(&arena, BYTES_OF(values_text), JSON_STRICT, NULL, NULL);
	scope = (struct scope){get_value, values};
	check = expression_check(text, NULL, 0, &error);
	rc = expression_eval(&arena, text, &scope, &result, &error);
	CHECK(check == 0 || rc != 0 || strstr(text, "$secrets"));
	CHECK(check != 0 || rc != ERR_UNSUPPORTED);
	for (size_t i = expression_variables(&arena, text, &names); i-- > 0;)
		CHECK(names[i][0] && strspn(names[i], "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == strlen(names[i]));
	if (rc == 0)
		CHECK(json_parse(&arena, json_print_arena(result, &arena), JSON_STRICT, NULL, NULL));
	else
		CHECK(utf8_valid(bytes_text(error.message), NULL) || !utf8_valid(bytes_text(text), NULL));
	if (utf8_valid(bytes_text(text), NULL) && template_eval(&arena, json_text(&arena, text), &scope, &result, &error) == 0)
		CHECK(json_parse(&arena, json_print_arena(result, &arena), JSON_STRICT, NULL, NULL));
	if (uri_template_eval(&arena, text, values, &uri, &error) == 0)
		CHECK(strpbrk(uri, " \r\n{}") == NULL);
	arena_close(&arena);
	return 0;
}
