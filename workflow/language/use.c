/* `use` of a definition, and what refers to it from calls: secrets, authentications. Names are resolved when the definition is
 * loaded, so a call that reaches an activity is complete but for the secrets, of which it has the names alone. Pure.
 * New here? Read use_check(), then authentication_prepare(). */
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/language/checker.h"
#include "workflow/language/expression.h"

enum { SECRETS_MAX = 256, AUTHENTICATIONS_MAX = 256 };

static const char *const schemes[] = {"basic", "bearer", "digest"};

static const struct json *used(const struct checker *checker, const char *group)
{
	return json_get(json_get(checker->definition->document, "use"), group);
}

const struct json *use_find(struct checker *checker, const char *group, const char *name)
{
	const struct json *known = used(checker, group), *found = json_is(known, JSON_OBJECT) ? json_get(known, name) : NULL;

	if (!found)
		checker_fail(checker, arena_printf(&checker->definition->arena, "define it in use.%s", group), "use.%s has no '%.80s'", group, name);
	return found;
}

/* ---- Secrets */

static bool lists_secret(const struct checker *checker, const char *name)
{
	const struct json *names = used(checker, "secrets");

	for (size_t i = 0; json_is(names, JSON_ARRAY) && i < names->array.count; i++)
		if (json_is(names->array.items[i], JSON_STRING) && strcmp(names->array.items[i]->string.text, name) == 0)
			return true;
	return false;
}

static void need_secret(struct checker *checker, const char *name)
{
	if (!lists_secret(checker, name))
		checker_fail(checker, "list it in use.secrets", "use.secrets has no '%.80s'", name);
}

/* What stands behind "$secrets": .name, ."name" or ["name"], and nothing else. NULL: something else. */
static const char *secret_name(struct arena *arena, struct bytes path)
{
	const char *text = arena_text_len(arena, (const char *)path.data, path.len);
	const struct json *quoted;
	size_t len;

	if (*text != '.' && *text != '[')
		return NULL; /* "$secretsX" is another variable */
	if (*text == '.')
		text++;
	len = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
	if (len > 0 && text[len] == '\0' && (*text < '0' || *text > '9'))
		return text;
	len = strlen(text);
	if (*text == '[' && text[len - 1] == ']')
		quoted = json_parse(arena, (struct bytes){(const uint8_t *)text + 1, len - 2}, JSON_STRICT, NULL, NULL);
	else
		quoted = json_parse(arena, bytes_text(text), JSON_STRICT, NULL, NULL);
	return json_is(quoted, JSON_STRING) && quoted->string.len > 0 ? quoted->string.text : NULL;
}

const char *use_secret(struct checker *checker, const struct json *value)
{
	static const char variable[] = "$secrets";
	struct bytes inner;

	if (!json_is(value, JSON_STRING) || !expression_unwrap(value->string.text, &inner) || inner.len < sizeof variable ||
	    memcmp(inner.data, variable, sizeof variable - 1) != 0)
		return NULL;
	inner.data += sizeof variable - 1;
	inner.len -= sizeof variable - 1;
	return secret_name(&checker->definition->arena, inner);
}

/* A text that may be a secret's. */
static void check_credential(struct checker *checker, const struct json *value)
{
	const char *secret = use_secret(checker, value);

	if (secret)
		need_secret(checker, secret);
	else if (checker_type(checker, value, JSON_STRING, true) || checker_is_expression(value))
		checker_template(checker, value, true);
}

bool secret_check(struct checker *checker, const struct json *value)
{
	const char *secret = use_secret(checker, value);

	if (secret)
		need_secret(checker, secret);
	return secret != NULL;
}

/* ---- Authentications */

/* {use: SECRET}, or all of the members. */
static void check_scheme(struct checker *checker, const struct json *value, const char *const *members, size_t count, const char *what)
{
	struct key keys[3];

	if (!checker_type(checker, value, JSON_OBJECT, false))
		return;
	for (size_t i = 0; i < count; i++)
		keys[i] = (struct key){members[i], json_get(value, "use") ? KEY_OPTIONAL : KEY_REQUIRED, NULL};
	keys[count] = (struct key){"use", KEY_OPTIONAL, NULL};
	checker_keys(checker, value, keys, count + 1, what);
	if (json_get(value, "use") && value->object.count > 1)
		checker_fail(checker, NULL, "'use' names a secret that holds all of %s: nothing stands beside it", what);
	for (size_t i = 0; i < value->object.count; i++) {
		const struct json_member *member = &value->object.members[i];
		size_t len = checker_enter(checker, member->name);

		if (strcmp(member->name, "use") != 0)
			check_credential(checker, member->value);
		else if (checker_type(checker, member->value, JSON_STRING, false))
			need_secret(checker, member->value->string.text);
		checker_leave(checker, len);
	}
}

static void check_authentication(struct checker *checker, const struct json *value, bool may_use)
{
	static const struct key keys[] = {
		{"basic", KEY_OPTIONAL, NULL}, {"bearer", KEY_OPTIONAL, NULL}, {"digest", KEY_OPTIONAL, NULL}, {"use", KEY_OPTIONAL, NULL},
		{"oauth2", KEY_LATER, NULL}, {"oidc", KEY_LATER, NULL}, {"certificate", KEY_LATER, NULL},
	};
	static const char *const login[] = {"username", "password"}, *const token[] = {"token"};
	size_t len;

	if (!checker_type(checker, value, JSON_OBJECT, false))
		return;
	checker_keys(checker, value, keys, COUNT_OF(keys), "an authentication");
	if (value->object.count != 1)
		checker_fail(checker, may_use ? "basic, bearer, digest or use" : "basic, bearer or digest", "an authentication is of exactly one kind");
	for (size_t i = 0; i < COUNT_OF(schemes); i++) {
		const struct json *scheme = json_get(value, schemes[i]);

		if (!scheme)
			continue;
		len = checker_enter(checker, schemes[i]);
		check_scheme(checker, scheme, i == 1 ? token : login, i == 1 ? 1 : 2, i == 1 ? "'bearer'" : i == 0 ? "'basic'" : "'digest'");
		checker_leave(checker, len);
	}
	if (!json_get(value, "use"))
		return;
	len = checker_enter(checker, "use");
	if (!may_use)
		checker_fail_key(checker, NULL, "what is in use.authentications cannot name another one");
	else if (checker_type(checker, json_get(value, "use"), JSON_STRING, false))
		use_find(checker, "authentications", json_get_text(value, "use"));
	checker_leave(checker, len);
}

void authentication_check(struct checker *checker, const struct json *value)
{
	check_authentication(checker, value, true);
}

struct json *authentication_prepare(struct checker *checker, const struct json *value, struct json *secrets)
{
	struct arena *arena = &checker->definition->arena;
	struct json *prepared = json_object(arena);
	const char *name = json_get_text(value, "use");

	if (name)
		value = json_get(used(checker, "authentications"), name);
	for (size_t i = 0; i < COUNT_OF(schemes); i++) {
		const struct json *scheme = json_get(value, schemes[i]);

		if (!scheme)
			continue;
		json_set_text(arena, prepared, "scheme", schemes[i]);
		for (size_t m = 0; m < scheme->object.count; m++) {
			const struct json_member *member = &scheme->object.members[m];
			const char *secret = strcmp(member->name, "use") == 0 ? member->value->string.text : use_secret(checker, member->value);

			if (secret)
				json_set_text(arena, secrets, member->name, secret);
			else
				json_set(arena, prepared, member->name, member->value);
		}
	}
	return prepared;
}

/* ---- The whole of it */

static void check_secrets(struct checker *checker, const struct json *names)
{
	if (!checker_type(checker, names, JSON_ARRAY, false))
		return;
	if (names->array.count > SECRETS_MAX) {
		checker_fail(checker, NULL, "more than %d secrets (SECRETS_MAX)", SECRETS_MAX);
		return;
	}
	for (size_t i = 0; i < names->array.count; i++) {
		size_t len = checker_enter_index(checker, i);

		if (checker_type(checker, names->array.items[i], JSON_STRING, false)) {
			if (names->array.items[i]->string.len == 0)
				checker_fail(checker, NULL, "must not be empty");
			for (size_t k = 0; k < i; k++)
				if (json_equal(names->array.items[k], names->array.items[i]))
					checker_fail(checker, NULL, "'%.80s' comes twice", names->array.items[i]->string.text);
		}
		checker_leave(checker, len);
	}
}

void use_check(struct checker *checker, const struct json *use)
{
	const struct json *authentications = json_get(use, "authentications"), *secrets = json_get(use, "secrets");
	size_t len, inner_len;

	if (secrets) {
		len = checker_enter(checker, "secrets");
		check_secrets(checker, secrets);
		checker_leave(checker, len);
	}
	if (!authentications)
		return;
	len = checker_enter(checker, "authentications");
	if (checker_type(checker, authentications, JSON_OBJECT, false)) {
		if (authentications->object.count > AUTHENTICATIONS_MAX)
			checker_fail(checker, NULL, "more than %d authentications (AUTHENTICATIONS_MAX)", AUTHENTICATIONS_MAX);
		for (size_t i = 0; i < authentications->object.count && i < AUTHENTICATIONS_MAX; i++) {
			inner_len = checker_enter(checker, authentications->object.members[i].name);
			check_authentication(checker, authentications->object.members[i].value, false);
			checker_leave(checker, inner_len);
		}
	}
	checker_leave(checker, len);
}
