/* See schema_ladder.h. Start at plain(). */
#include "activities/schema_ladder.h"

#include <string.h>
#include <strings.h>

#include "workflow/base/check.h"

const char *schema_rung_name(enum schema_rung rung)
{
	static const char *const names[SCHEMA_RUNG_COUNT] = {"full", "plain", "json", "none"};

	return names[rung];
}

static bool is_required(const struct json *required, const struct json_member *property)
{
	for (size_t i = 0; i < json_count(required); i++) {
		const struct json *name = json_at(required, i);

		if (json_is(name, JSON_STRING) && name->string.len == property->name_len && memcmp(name->string.text, property->name, property->name_len) == 0)
			return true;
	}
	return false;
}

/* ---- Order ---- */

/* A value that is no schema (an enum, an example) may hold a member `properties` too: its order is as good as any other. */
static void order(struct json *json)
{
	for (size_t i = 0; i < json_count(json); i++)
		order(json->type == JSON_OBJECT ? json->object.members[i].value : json->array.items[i]);
	if (json_is(json_get(json, "properties"), JSON_OBJECT) && json_is(json_get(json, "required"), JSON_ARRAY))
		json_order(json_get(json, "properties"), json_get(json, "required"));
}

struct json *schema_ordered(struct arena *arena, const struct json *schema)
{
	struct json *copy = json_copy(arena, schema);

	order(copy);
	return copy;
}

/* ---- The plain rung ---- */

struct plainer {
	struct arena *arena;
	size_t printed; /* bytes that the result takes, about: alternatives share their nodes, but not what is printed of them */
	bool impossible;
};

static struct json *plain(struct plainer *plainer, const struct json *schema);

static struct json *plain_members(struct plainer *plainer, const struct json *schemas)
{
	struct json *made = json_object(plainer->arena);

	for (size_t i = 0; i < json_count(schemas); i++) {
		const struct json_member *member = &schemas->object.members[i];

		plainer->printed += 2 * member->name_len; /* its name stands in `required` as well */
		json_set_len(plainer->arena, made, member->name, member->name_len, plain(plainer, member->value));
	}
	return made;
}

/* An object with its required properties and, of the optional ones, those whose bit is set in `chosen`. */
static struct json *make_object(struct arena *arena, const struct json *schema, const struct json *made, unsigned chosen)
{
	const struct json *properties = json_get(schema, "properties"), *required = json_get(schema, "required");
	struct json *object = json_object(arena), *members = json_object(arena), *names = json_array(arena);
	unsigned bit = 1;

	for (size_t i = 0; i < json_count(properties); i++) {
		const struct json_member *property = &properties->object.members[i];

		if (!is_required(required, property)) {
			bool included = (chosen & bit) != 0;

			bit <<= 1;
			if (!included)
				continue;
		}
		json_set_len(arena, members, property->name, property->name_len, json_get_len(made, property->name, property->name_len));
		json_add(arena, names, json_text_len(arena, property->name, property->name_len));
	}
	json_order(members, names);
	json_set_text(arena, object, "type", "object");
	json_set(arena, object, "properties", members);
	json_set(arena, object, "required", names);
	json_set_boolean(arena, object, "additionalProperties", false);
	return object;
}

static struct json *plain_object(struct plainer *plainer, const struct json *schema)
{
	struct arena *arena = plainer->arena;
	const struct json *properties = json_get(schema, "properties"), *required = json_get(schema, "required"), *type = json_get(schema, "type");
	size_t before = plainer->printed;
	struct json *made = plain_members(plainer, properties), *all = json_array(arena), *choice = json_object(arena);
	unsigned optional = 0;

	for (size_t i = 0; i < json_count(properties); i++)
		optional += !is_required(required, &properties->object.members[i]);
	if (optional > SCHEMA_OPTIONAL_MAX) {
		plainer->impossible = true;
		return choice;
	}
	plainer->printed = before + ((plainer->printed - before) << optional);
	for (unsigned chosen = 0; chosen < 1U << optional; chosen++)
		json_add(arena, all, make_object(arena, schema, made, chosen));
	for (size_t i = 0; json_is(type, JSON_ARRAY) && i < json_count(type); i++) {
		struct json *other = json_object(arena);

		if (!json_is(json_at(type, i), JSON_STRING) || strcmp(json_at(type, i)->string.text, "object") == 0)
			continue;
		json_set(arena, other, "type", json_at(type, i));
		json_add(arena, all, other);
	}
	if (json_count(all) == 1)
		return json_at(all, 0);
	json_set(arena, choice, "anyOf", all);
	return choice;
}

static struct json *plain_choice(struct plainer *plainer, const struct json *alternatives)
{
	struct json *choice = json_object(plainer->arena), *all = json_array(plainer->arena);

	for (size_t i = 0; i < json_count(alternatives); i++)
		json_add(plainer->arena, all, plain(plainer, json_at(alternatives, i)));
	json_set(plainer->arena, choice, "anyOf", all);
	return choice;
}

static struct json *plain_value(struct plainer *plainer, const struct json *schema)
{
	static const char *const kept[] = {"type", "enum", "const", "$ref"};
	struct json *value = json_object(plainer->arena);

	for (size_t i = 0; i < COUNT_OF(kept); i++)
		if (json_get(schema, kept[i]) != NULL)
			json_set(plainer->arena, value, kept[i], json_copy(plainer->arena, json_get(schema, kept[i])));
	plainer->printed += json_print_arena(value, plainer->arena).len;
	if (json_is(json_get(schema, "items"), JSON_OBJECT))
		json_set(plainer->arena, value, "items", plain(plainer, json_get(schema, "items")));
	return value;
}

static struct json *plain(struct plainer *plainer, const struct json *schema)
{
	static const char *const definitions[] = {"$defs", "definitions"};
	const struct json *choice = json_get(schema, "anyOf");
	struct json *result;

	if (!json_is(choice, JSON_ARRAY))
		choice = json_get(schema, "oneOf");
	if (json_is(json_get(schema, "properties"), JSON_OBJECT))
		result = plain_object(plainer, schema);
	else if (json_is(choice, JSON_ARRAY))
		result = plain_choice(plainer, choice);
	else
		result = plain_value(plainer, schema);
	for (size_t i = 0; i < COUNT_OF(definitions); i++)
		if (json_is(json_get(schema, definitions[i]), JSON_OBJECT))
			json_set(plainer->arena, result, definitions[i], plain_members(plainer, json_get(schema, definitions[i])));
	plainer->printed += strlen("{\"type\":\"object\"}");
	plainer->impossible = plainer->impossible || plainer->printed > SCHEMA_PLAIN_LEN_MAX;
	return result;
}

struct json *schema_plain(struct arena *arena, const struct json *schema)
{
	struct plainer plainer = {.arena = arena};
	struct json *result = plain(&plainer, schema);

	if (plainer.impossible || bytes_equal(json_print_arena(schema, arena), json_print_arena(result, arena)))
		return NULL;
	return result;
}

/* ---- Refusals ---- */

static bool mentions(struct bytes text, const char *word)
{
	size_t len = strlen(word);

	for (size_t i = 0; i + len <= text.len; i++)
		if (strncasecmp((const char *)text.data + i, word, len) == 0)
			return true;
	return false;
}

bool schema_is_refused(int status, struct bytes text)
{
	static const char *const words[] = {"schema", "response_format", "grammar", "structured", "json_object", "guided", "\"format\""};

	if (status != 400 && status != 422 && status != 500 && status != 501)
		return false;
	if (text.len > SCHEMA_REFUSAL_LEN_MAX)
		text.len = SCHEMA_REFUSAL_LEN_MAX;
	if (mentions(text, "llm.prediction.") && !mentions(text, "llm.prediction.structured"))
		return false; /* LM Studio speaks of the schema of its settings */
	for (size_t i = 0; i < COUNT_OF(words); i++)
		if (mentions(text, words[i]))
			return true;
	return false;
}

/* ---- What was learned ---- */

enum schema_rung schema_rungs_get(const struct schema_rungs *rungs, const struct json *schema)
{
	struct digest digest;

	if (rungs->count == 0) /* the usual case: nobody hashes a schema for that */
		return SCHEMA_FULL;
	digest = json_digest(schema);
	for (size_t i = 0; i < rungs->count; i++)
		if (digest_equal(&rungs->kept[i].schema, &digest))
			return rungs->kept[i].rung;
	return SCHEMA_FULL;
}

void schema_rungs_set(struct schema_rungs *rungs, const struct json *schema, enum schema_rung rung)
{
	struct digest digest = json_digest(schema);

	for (size_t i = 0; i < rungs->count; i++)
		if (digest_equal(&rungs->kept[i].schema, &digest)) {
			rungs->kept[i].rung = rung;
			return;
		}
	rungs->kept[rungs->next].schema = digest;
	rungs->kept[rungs->next].rung = rung;
	rungs->next = (rungs->next + 1) % SCHEMA_RUNGS_KEPT_MAX;
	if (rungs->count < SCHEMA_RUNGS_KEPT_MAX)
		rungs->count++;
}
