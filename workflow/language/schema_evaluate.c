/* A value against a compiled schema. Pure, any thread. Start at schema_evaluate(), then apply().
 *
 * Messages are made only where a mismatch counts: inside `anyOf`, `not` and the like nobody would read them (`quiet`). A limit that is
 * reached stops everything at once, also there: a value that could not be looked at neither matches nor differs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/language/schema_program.h"

enum verdict { MATCHES, DIFFERS, STOPPED };

/* What looks at a value without applying a schema to it is paid for by its size, in smaller coins. */
enum {
	LOOKS_PER_STEP = 8,
	LOOK_BYTES = 8, /* of a text counted in one look */
	LOOK_COMPARED_BYTES = 64, /* of two texts compared in one look */
};

/* Which members or items of one value were looked at, for `unevaluated*`. */
struct marks {
	uint64_t own;
	uint64_t *bits; /* &own, or more */
	size_t count;
};

/* The schemas that are applied right now, innermost first: the dynamic scope. */
struct frame {
	const struct frame *outer;
	const struct schema *schema;
	const struct json *value;
	size_t depth;
};

struct run {
	struct error *error;
	const struct schema *except;
	struct pattern_matcher *matcher;
	unsigned quiet;
	size_t steps, looks; /* looks: not yet counted in steps */
};

/* One schema at one value. */
struct here {
	struct run *run;
	const struct schema *schema;
	const struct json *value;
	const struct schema_place *place;
	const struct frame *frame;
	struct marks *marks; /* NULL: nobody asks */
};

static enum verdict apply(struct run *run, const struct schema *schema, const struct json *value, const struct schema_place *place,
			  const struct frame *outer, struct marks *marks);

#define DIFFER(here, ...) \
	((void)((here)->run->quiet == 0 ? schema_fail((here)->place, ERR_INVALID, (here)->run->error, __VA_ARGS__) : 0), DIFFERS)

static enum verdict count_steps(const struct here *here, size_t steps)
{
	if (steps <= SCHEMA_STEPS_MAX - here->run->steps) {
		here->run->steps += steps;
		return MATCHES;
	}
	here->run->steps = SCHEMA_STEPS_MAX;
	schema_fail(here->place, ERR_TOO_LARGE, here->run->error, "needs more than SCHEMA_STEPS_MAX %d steps", SCHEMA_STEPS_MAX);
	return STOPPED;
}

static enum verdict count_looks(const struct here *here, size_t looks)
{
	size_t all = here->run->looks + looks;

	here->run->looks = all % LOOKS_PER_STEP;
	return count_steps(here, all / LOOKS_PER_STEP);
}

/* What it takes, in looks, to find one of `count` that lie in order. */
static size_t search_looks(size_t count)
{
	size_t looks = 2;

	for (; count > 0; count >>= 2)
		looks++;
	return looks;
}

/* ---- Marks ---- */

static size_t word_count(size_t count)
{
	return count / 64 + 1;
}

static void open_marks(struct marks *marks, size_t count)
{
	*marks = (struct marks){.count = count};
	marks->bits = count < 64 ? &marks->own : memory_zero(word_count(count) * sizeof(uint64_t));
}

static void close_marks(struct marks *marks)
{
	if (marks->bits != &marks->own)
		free(marks->bits);
}

static void mark(struct marks *marks, size_t index)
{
	if (marks != NULL)
		marks->bits[index / 64] |= (uint64_t)1 << index % 64;
}

static bool is_marked(const struct marks *marks, size_t index)
{
	return marks->bits[index / 64] >> index % 64 & 1;
}

static void merge_marks(struct marks *into, const struct marks *from)
{
	for (size_t i = 0; i < word_count(from->count); i++)
		into->bits[i] |= from->bits[i];
}

/* ---- Schemas inside ---- */

static enum verdict apply_here(const struct here *here, const struct schema *schema)
{
	return apply(here->run, schema, here->value, here->place, here->frame, here->marks);
}

/* For an answer, not for a message; what a schema that does not match has marked is dropped. */
static enum verdict try_here(const struct here *here, const struct schema *schema)
{
	struct marks marks;
	enum verdict verdict;

	if (here->marks != NULL) {
		if (count_looks(here, word_count(here->marks->count)) != MATCHES)
			return STOPPED;
		open_marks(&marks, here->marks->count);
	}
	here->run->quiet++;
	verdict = apply(here->run, schema, here->value, here->place, here->frame, here->marks != NULL ? &marks : NULL);
	here->run->quiet--;
	if (here->marks != NULL) {
		if (verdict == MATCHES)
			merge_marks(here->marks, &marks);
		close_marks(&marks);
	}
	return verdict;
}

static enum verdict match_text(const struct here *here, const struct pattern *pattern, const char *text, size_t len)
{
	struct run *run = here->run;
	struct error error;

	if (run->matcher == NULL)
		run->matcher = pattern_matcher_new();
	switch (pattern_match(pattern, run->matcher, text, len, &error)) {
	case PATTERN_MATCHES:
		return MATCHES;
	case PATTERN_DIFFERS:
		return DIFFERS;
	case PATTERN_STOPPED:
		break;
	}
	schema_fail(here->place, error.code, run->error, "%s", error.message);
	return STOPPED;
}

/* ---- Scalars ---- */

static const char *number_text(double number, char text[32])
{
	struct buffer out;

	buffer_init(&out, 32);
	json_print_number(number, &out);
	memcpy(text, buffer_text(&out), out.len + 1);
	buffer_close(&out);
	return text;
}

/* The shortest decimal text of a double as digits * 10^exponent. That is what the author wrote, so 0.0075 is a multiple of 0.0001 although
 * neither double is exactly that number. */
static void read_decimal(double number, uint64_t *digits, int *exponent)
{
	char text[32];
	const char *at = number_text(fabs(number), text);
	bool behind_point = false;

	*digits = 0;
	*exponent = 0;
	for (; *at != '\0' && *at != 'e'; at++) {
		if (*at == '.') {
			behind_point = true;
			continue;
		}
		if (*digits >= 100000000000000000u) { /* 1e20 prints 21 digits; those behind the 17th are zeros */
			(*exponent) += !behind_point;
			continue;
		}
		*digits = *digits * 10 + (uint64_t)(*at - '0');
		*exponent -= behind_point;
	}
	if (*at == 'e')
		*exponent += atoi(at + 1);
}

static bool is_multiple(double value, double of)
{
	uint64_t dividend, divisor;
	int dividend_exponent, divisor_exponent, shift;
	unsigned __int128 rest, factor = 10;

	read_decimal(value, &dividend, &dividend_exponent);
	read_decimal(of, &divisor, &divisor_exponent);
	if (dividend == 0)
		return true;
	while (divisor % 10 == 0) {
		divisor /= 10;
		divisor_exponent++;
	}
	shift = dividend_exponent - divisor_exponent;
	for (; shift < 0; shift++) { /* then the dividend has to end in zeros */
		if (dividend % 10 != 0)
			return false;
		dividend /= 10;
	}
	rest = dividend % divisor;
	factor %= divisor;
	for (; shift > 0; shift >>= 1) {
		if (shift & 1)
			rest = rest * factor % divisor;
		factor = factor * factor % divisor;
	}
	return rest == 0;
}

static enum verdict check_number(const struct here *here)
{
	const struct schema *schema = here->schema;
	double value = here->value->number;
	char limit[32], got[32];

	if (schema->minimum != NULL && value < *schema->minimum)
		return DIFFER(here, "expected a number of at least %s, got %s", number_text(*schema->minimum, limit), number_text(value, got));
	if (schema->maximum != NULL && value > *schema->maximum)
		return DIFFER(here, "expected a number of at most %s, got %s", number_text(*schema->maximum, limit), number_text(value, got));
	if (schema->exclusive_minimum != NULL && value <= *schema->exclusive_minimum)
		return DIFFER(here, "expected a number above %s, got %s", number_text(*schema->exclusive_minimum, limit), number_text(value, got));
	if (schema->exclusive_maximum != NULL && value >= *schema->exclusive_maximum)
		return DIFFER(here, "expected a number below %s, got %s", number_text(*schema->exclusive_maximum, limit), number_text(value, got));
	if (schema->multiple_of != NULL && !is_multiple(value, *schema->multiple_of))
		return DIFFER(here, "expected a multiple of %s, got %s", number_text(*schema->multiple_of, limit), number_text(value, got));
	return MATCHES;
}

static enum verdict check_range(const struct here *here, size_t count, struct schema_range range, const char *what)
{
	char limit[32];

	if ((double)count < range.least)
		return DIFFER(here, "expected %s of at least %s, got %zu", what, number_text(range.least, limit), count);
	if ((double)count > range.most)
		return DIFFER(here, "expected %s of at most %s, got %zu", what, number_text(range.most, limit), count);
	return MATCHES;
}

static size_t count_code_points(const struct json *text)
{
	size_t count = 0;

	for (size_t i = 0; i < text->string.len; i++)
		count += ((uint8_t)text->string.text[i] & 0xC0) != 0x80;
	return count;
}

static enum verdict check_text(const struct here *here)
{
	const struct schema *schema = here->schema;
	const struct json *value = here->value;
	enum verdict verdict = MATCHES;

	if (schema->length.least > 0 || schema->length.most < INFINITY) {
		if (count_looks(here, value->string.len / LOOK_BYTES) != MATCHES)
			return STOPPED;
		verdict = check_range(here, count_code_points(value), schema->length, "a length in characters");
	}
	if (verdict != MATCHES || schema->pattern == NULL)
		return verdict;
	verdict = match_text(here, schema->pattern, value->string.text, value->string.len);
	return verdict == DIFFERS ? DIFFER(here, "expected a text that matches the pattern %s", schema->pattern_text) : verdict;
}

/* ---- type, const, enum ---- */

static enum verdict check_type(const struct here *here)
{
	const struct json *value = here->value;
	unsigned types = here->schema->types, own = 1u << value->type;
	char expected[100] = "";

	if (value->type == JSON_NUMBER && floor(value->number) == value->number)
		own |= 1u << SCHEMA_TYPE_INTEGER;
	if (types & own)
		return MATCHES;
	if (here->run->quiet > 0)
		return DIFFERS;
	/* In the order of the author, who wrote one word or several. */
	for (size_t i = 0; i < SCHEMA_TYPE_COUNT; i++) {
		const struct json *type = json_get(here->schema->source, "type"), *word = type->type == JSON_ARRAY ? json_at(type, i) : type;

		if (word == NULL || (i > 0 && type->type != JSON_ARRAY))
			break;
		strncat(expected, i == 0 ? "" : " or ", sizeof(expected) - strlen(expected) - 1);
		strncat(expected, word->string.text, sizeof(expected) - strlen(expected) - 1);
	}
	return DIFFER(here, "expected %s, got %s", expected,
		      value->type == JSON_NUMBER && types == 1u << SCHEMA_TYPE_INTEGER ? "a number with a fraction" : json_type_name(value->type));
}

/* Whether there are steps left, with what was looked at since they were counted. */
static bool is_spent(const struct run *run)
{
	return run->looks / LOOKS_PER_STEP > SCHEMA_STEPS_MAX - run->steps;
}

static int compare_texts(struct run *run, const char *a, size_t a_len, const char *b, size_t b_len)
{
	if (a_len != b_len)
		return a_len < b_len ? -1 : 1;
	run->looks += a_len / LOOK_COMPARED_BYTES;
	return memcmp(a, b, a_len);
}

/* Any order will do, as long as it is one, and equal values stand side by side. The looks it took are for the caller to count: behind the
 * limit everything is equal, so that it ends soon. */
static int compare_values(struct run *run, const struct json *a, const struct json *b)
{
	int order = 0;

	run->looks++;
	if (is_spent(run))
		return 0;
	if (a->type != b->type)
		return a->type < b->type ? -1 : 1;
	switch (a->type) {
	case JSON_NULL:
		return 0;
	case JSON_BOOLEAN:
		return (int)a->boolean - (int)b->boolean;
	case JSON_NUMBER:
		return (a->number > b->number) - (a->number < b->number);
	case JSON_STRING:
		return compare_texts(run, a->string.text, a->string.len, b->string.text, b->string.len);
	case JSON_ARRAY:
		if (a->array.count != b->array.count)
			return a->array.count < b->array.count ? -1 : 1;
		for (size_t i = 0; order == 0 && i < a->array.count && !is_spent(run); i++)
			order = compare_values(run, a->array.items[i], b->array.items[i]);
		return order;
	case JSON_OBJECT:
		if (a->object.count != b->object.count)
			return a->object.count < b->object.count ? -1 : 1;
		for (size_t i = 0; order == 0 && i < a->object.count && !is_spent(run); i++) {
			const struct json_member *left = &a->object.members[i], *right = &b->object.members[i];

			order = compare_texts(run, left->name, left->name_len, right->name, right->name_len);
			if (order == 0)
				order = compare_values(run, left->value, right->value);
		}
		return order;
	}
	return 0;
}

static enum verdict check_choice(const struct here *here)
{
	const struct json *choices = here->schema->choices;
	struct run *run = here->run;
	bool is_constant = here->schema->constant == NULL || compare_values(run, here->schema->constant, here->value) == 0;
	bool found = choices == NULL;

	for (size_t i = 0; is_constant && !found && i < json_count(choices); i++)
		found = compare_values(run, json_at(choices, i), here->value) == 0;
	if (count_looks(here, 0) != MATCHES)
		return STOPPED;
	if (!is_constant)
		return DIFFER(here, "expected the value of const");
	return found ? MATCHES : DIFFER(here, "expected one of the values of enum");
}

/* ---- Arrays ---- */

struct placed_item {
	const struct json *value;
	size_t index;
};

static int compare_items(const void *left, const void *right, void *run)
{
	return compare_values(run, ((const struct placed_item *)left)->value, ((const struct placed_item *)right)->value);
}

static enum verdict check_unique(const struct here *here)
{
	size_t count = json_count(here->value), same = 0;
	struct placed_item *items;
	enum verdict verdict = MATCHES;

	if (count < 2)
		return MATCHES;
	if (count_steps(here, count) != MATCHES)
		return STOPPED;
	items = memory_alloc(count * sizeof(*items));
	for (size_t i = 0; i < count; i++)
		items[i] = (struct placed_item){json_at(here->value, i), i};
	qsort_r(items, count, sizeof(*items), compare_items, here->run);
	for (size_t i = 1; i < count && same == 0; i++)
		same = compare_items(&items[i - 1], &items[i], here->run) == 0 ? i : 0;
	if (count_looks(here, 0) != MATCHES) {
		verdict = STOPPED;
	} else if (same > 0) {
		size_t one = items[same - 1].index, other = items[same].index;

		verdict = DIFFER(here, "expected items that differ, but %zu and %zu are equal", one < other ? one : other, one < other ? other : one);
	}
	free(items);
	return verdict;
}

static enum verdict check_contains(const struct here *here)
{
	const struct schema_range range = here->schema->contains_count;
	size_t found = 0;
	bool draft_7 = here->schema->resource->dialect->draft == SCHEMA_DRAFT_7;
	char limit[32];

	for (size_t i = 0; i < json_count(here->value); i++) {
		enum verdict verdict;

		here->run->quiet++;
		verdict = apply(here->run, here->schema->contains, json_at(here->value, i), INSIDE_INDEX(here->place, i), here->frame, NULL);
		here->run->quiet--;
		if (verdict == STOPPED)
			return STOPPED;
		if (verdict != MATCHES)
			continue;
		found++;
		if (!draft_7)
			mark(here->marks, i);
		if (here->marks == NULL && range.most == INFINITY && (double)found >= range.least)
			break; /* enough, and nobody asks which */
	}
	if ((double)found < range.least)
		return DIFFER(here, "expected at least %s items that match contains, got %zu", number_text(range.least, limit), found);
	if ((double)found > range.most)
		return DIFFER(here, "expected at most %s items that match contains, got %zu", number_text(range.most, limit), found);
	return MATCHES;
}

static enum verdict refuse_inside(const struct here *here, const struct schema_place *place, const char *what)
{
	const struct here inside = {here->run, here->schema, here->value, place, here->frame, NULL};

	return DIFFER(&inside, "%s", what);
}

static enum verdict check_array(const struct here *here)
{
	static const char not_allowed[] = "this item is not in the schema, which allows no others";
	const struct schema *schema = here->schema;
	size_t count = json_count(here->value);
	enum verdict verdict = check_range(here, count, schema->item_count, "a number of items");

	for (size_t i = 0; i < count && verdict == MATCHES; i++) {
		const struct schema *inner = i < schema->prefix_items.count ? schema->prefix_items.schemas[i] : schema->items;
		const struct schema_place *place = INSIDE_INDEX(here->place, i);

		if (inner == NULL)
			break;
		verdict = inner->accepts_none && i >= schema->prefix_items.count && schema->prefix_items.count > 0 ?
				  refuse_inside(here, place, not_allowed) :
				  apply(here->run, inner, json_at(here->value, i), place, here->frame, NULL);
		mark(here->marks, i);
	}
	if (verdict == MATCHES && schema->contains != NULL)
		verdict = check_contains(here);
	if (verdict == MATCHES && schema->unique_items)
		verdict = check_unique(here);
	return verdict;
}

static enum verdict check_unevaluated_items(const struct here *here)
{
	const struct schema *inner = here->schema->unevaluated_items;
	enum verdict verdict = MATCHES;

	if (count_looks(here, json_count(here->value)) != MATCHES)
		return STOPPED;
	for (size_t i = 0; i < json_count(here->value) && verdict == MATCHES; i++) {
		const struct schema_place *place = INSIDE_INDEX(here->place, i);

		if (is_marked(here->marks, i))
			continue;
		verdict = inner->accepts_none ? refuse_inside(here, place, "this item is not in the schema, which allows no others") :
						apply(here->run, inner, json_at(here->value, i), place, here->frame, NULL);
		mark(here->marks, i);
	}
	return verdict;
}

/* ---- Objects ---- */

static const char member_not_allowed[] = "this member is not in the schema, which allows no others";

static const struct schema_property *find_property(const struct schema_properties *properties, const struct json_member *member)
{
	size_t first = 0, behind = properties->count;

	while (first < behind) {
		size_t middle = (first + behind) / 2;
		const struct schema_property *property = &properties->items[middle];
		size_t len = property->name_len < member->name_len ? property->name_len : member->name_len;
		int order = memcmp(property->name, member->name, len);

		if (order == 0)
			order = (property->name_len > member->name_len) - (property->name_len < member->name_len);
		if (order == 0)
			return property;
		if (order < 0)
			first = middle + 1;
		else
			behind = middle;
	}
	return NULL;
}

static enum verdict check_name(const struct here *here, const struct json_member *member, const struct schema_place *place)
{
	const struct json name = {.type = JSON_STRING, .string = {member->name, member->name_len}};
	enum verdict verdict;

	here->run->quiet++;
	verdict = apply(here->run, here->schema->property_names, &name, place, here->frame, NULL);
	here->run->quiet--;
	return verdict == DIFFERS ? refuse_inside(here, place, "propertyNames does not allow this name") : verdict;
}

static enum verdict check_member(const struct here *here, size_t index)
{
	const struct schema *schema = here->schema;
	const struct json_member *member = &here->value->object.members[index];
	const struct schema_place *place = INSIDE_NAME(here->place, member->name);
	const struct schema_property *property = find_property(&schema->properties, member);
	enum verdict verdict = MATCHES;
	bool found = property != NULL;

	if (schema->property_names != NULL)
		verdict = check_name(here, member, place);
	if (property != NULL && verdict == MATCHES)
		verdict = apply(here->run, property->schema, member->value, place, here->frame, NULL);
	for (size_t i = 0; i < schema->pattern_properties.count && verdict == MATCHES; i++) {
		const struct schema_property *candidate = &schema->pattern_properties.items[i];

		verdict = match_text(here, candidate->pattern, member->name, member->name_len);
		if (verdict == MATCHES) {
			found = true;
			verdict = apply(here->run, candidate->schema, member->value, place, here->frame, NULL);
		} else if (verdict == DIFFERS) {
			verdict = MATCHES;
		}
	}
	if (!found && schema->additional_properties != NULL && verdict == MATCHES) {
		found = true;
		verdict = schema->additional_properties->accepts_none ?
				  refuse_inside(here, place, member_not_allowed) :
				  apply(here->run, schema->additional_properties, member->value, place, here->frame, NULL);
	}
	if (found)
		mark(here->marks, index);
	return verdict;
}

static enum verdict check_required(const struct here *here, const struct json *names, const char *beside)
{
	if (count_looks(here, json_count(names) * search_looks(here->value->object.count)) != MATCHES)
		return STOPPED;
	for (size_t i = 0; i < json_count(names); i++) {
		const struct json *name = json_at(names, i);

		if (json_get_len(here->value, name->string.text, name->string.len) != NULL)
			continue;
		if (beside == NULL)
			return DIFFER(here, "required, but missing: %s", name->string.text);
		return DIFFER(here, "required beside %.60s, but missing: %s", beside, name->string.text);
	}
	return MATCHES;
}

static enum verdict check_dependent(const struct here *here)
{
	enum verdict verdict = MATCHES;

	if (count_looks(here, here->schema->dependent.count * search_looks(here->value->object.count)) != MATCHES)
		return STOPPED;
	for (size_t i = 0; i < here->schema->dependent.count && verdict == MATCHES; i++) {
		const struct schema_property *item = &here->schema->dependent.items[i];

		if (json_get_len(here->value, item->name, item->name_len) == NULL)
			continue;
		verdict = item->schema != NULL ? apply_here(here, item->schema) : check_required(here, item->names, item->name);
	}
	return verdict;
}

static enum verdict check_object(const struct here *here)
{
	const struct schema *schema = here->schema;
	enum verdict verdict = check_range(here, here->value->object.count, schema->property_count, "a number of members");
	bool looks_inside = schema->properties.count > 0 || schema->pattern_properties.count > 0 || schema->additional_properties != NULL ||
			    schema->property_names != NULL;

	if (verdict == MATCHES && schema->required != NULL)
		verdict = check_required(here, schema->required, NULL);
	if (verdict == MATCHES && looks_inside)
		verdict = count_looks(here, here->value->object.count * search_looks(schema->properties.count));
	for (size_t i = 0; looks_inside && i < here->value->object.count && verdict == MATCHES; i++)
		verdict = check_member(here, i);
	if (verdict == MATCHES)
		verdict = check_dependent(here);
	return verdict;
}

static enum verdict check_unevaluated_members(const struct here *here)
{
	const struct schema *inner = here->schema->unevaluated_properties;
	enum verdict verdict = MATCHES;

	if (count_looks(here, here->value->object.count) != MATCHES)
		return STOPPED;
	for (size_t i = 0; i < here->value->object.count && verdict == MATCHES; i++) {
		const struct json_member *member = &here->value->object.members[i];
		const struct schema_place *place = INSIDE_NAME(here->place, member->name);

		if (is_marked(here->marks, i))
			continue;
		verdict = inner->accepts_none ? refuse_inside(here, place, member_not_allowed) :
						apply(here->run, inner, member->value, place, here->frame, NULL);
		mark(here->marks, i);
	}
	return verdict;
}

/* ---- Schemas that apply to the same value ---- */

/* The outermost schema that is applied right now and whose resource has this dynamic anchor. */
static const struct schema *find_dynamic(const struct here *here)
{
	const struct schema *found = here->schema->dynamic_ref;

	for (const struct frame *frame = here->frame; frame != NULL && here->schema->dynamic_anchor != NULL; frame = frame->outer) {
		here->run->looks++;
		for (const struct schema_anchor *anchor = frame->schema->resource->anchors; anchor != NULL; anchor = anchor->next) {
			here->run->looks++;
			if (anchor->dynamic && strcmp(anchor->name, here->schema->dynamic_anchor) == 0)
				found = anchor->schema;
		}
	}
	return found;
}

static enum verdict apply_dynamic(const struct here *here)
{
	const struct schema *target = find_dynamic(here);

	/* Circles of other references were refused when the schema was compiled. */
	for (const struct frame *frame = here->frame; frame != NULL && frame->value == here->value; frame = frame->outer) {
		here->run->looks++;
		if (frame->schema != target)
			continue;
		schema_fail(here->place, ERR_INVALID, here->run->error, "the schema applies itself to the same value again, through $dynamicRef");
		return STOPPED;
	}
	return count_looks(here, 0) == MATCHES ? apply_here(here, target) : STOPPED;
}

static enum verdict check_any_of(const struct here *here)
{
	const struct schema_list *list = &here->schema->any_of;
	bool found = false;

	for (size_t i = 0; i < list->count && (!found || here->marks != NULL); i++) {
		enum verdict verdict = try_here(here, list->schemas[i]);

		if (verdict == STOPPED)
			return STOPPED;
		found = found || verdict == MATCHES;
	}
	return found ? MATCHES : DIFFER(here, "matches none of the %zu schemas of anyOf", list->count);
}

static enum verdict check_one_of(const struct here *here)
{
	const struct schema_list *list = &here->schema->one_of;
	size_t found = 0;

	for (size_t i = 0; i < list->count && found < 2; i++) {
		enum verdict verdict = try_here(here, list->schemas[i]);

		if (verdict == STOPPED)
			return STOPPED;
		found += verdict == MATCHES;
	}
	if (found == 0)
		return DIFFER(here, "matches none of the %zu schemas of oneOf", list->count);
	return found == 1 ? MATCHES : DIFFER(here, "matches more than one of the %zu schemas of oneOf", list->count);
}

static enum verdict check_not(const struct here *here)
{
	const struct here unmarked = {here->run, here->schema, here->value, here->place, here->frame, NULL};
	enum verdict verdict = try_here(&unmarked, here->schema->not);

	if (verdict == STOPPED)
		return STOPPED;
	return verdict == DIFFERS ? MATCHES : DIFFER(here, "matches the schema of not, which it must not");
}

static enum verdict check_condition(const struct here *here)
{
	const struct schema *next;
	enum verdict verdict;

	if (here->marks == NULL && here->schema->then == NULL && here->schema->otherwise == NULL)
		return MATCHES;
	verdict = try_here(here, here->schema->condition);
	if (verdict == STOPPED)
		return STOPPED;
	next = verdict == MATCHES ? here->schema->then : here->schema->otherwise;
	return next == NULL ? MATCHES : apply_here(here, next);
}

static enum verdict check_applied(const struct here *here)
{
	const struct schema *schema = here->schema;
	enum verdict verdict = MATCHES;

	if (schema->ref != NULL)
		verdict = apply_here(here, schema->ref);
	if (verdict == MATCHES && schema->dynamic_ref != NULL)
		verdict = apply_dynamic(here);
	for (size_t i = 0; i < schema->all_of.count && verdict == MATCHES; i++)
		verdict = apply_here(here, schema->all_of.schemas[i]);
	if (verdict == MATCHES && schema->any_of.count > 0)
		verdict = check_any_of(here);
	if (verdict == MATCHES && schema->one_of.count > 0)
		verdict = check_one_of(here);
	if (verdict == MATCHES && schema->not != NULL)
		verdict = check_not(here);
	if (verdict == MATCHES && schema->condition != NULL)
		verdict = check_condition(here);
	return verdict;
}

static enum verdict check_all(const struct here *here)
{
	const struct schema *schema = here->schema;
	enum verdict verdict = MATCHES;

	if (schema->types != 0)
		verdict = check_type(here);
	if (verdict == MATCHES && (schema->constant != NULL || schema->choices != NULL))
		verdict = check_choice(here);
	if (verdict != MATCHES)
		return verdict;
	switch (here->value->type) {
	case JSON_NULL:
	case JSON_BOOLEAN:
		break;
	case JSON_NUMBER:
		verdict = check_number(here);
		break;
	case JSON_STRING:
		verdict = check_text(here);
		break;
	case JSON_ARRAY:
		verdict = check_array(here);
		break;
	case JSON_OBJECT:
		verdict = check_object(here);
		break;
	}
	if (verdict == MATCHES)
		verdict = check_applied(here);
	if (verdict == MATCHES && schema->unevaluated_items != NULL && here->value->type == JSON_ARRAY)
		verdict = check_unevaluated_items(here);
	if (verdict == MATCHES && schema->unevaluated_properties != NULL && here->value->type == JSON_OBJECT)
		verdict = check_unevaluated_members(here);
	return verdict;
}

static enum verdict apply(struct run *run, const struct schema *schema, const struct json *value, const struct schema_place *place,
			  const struct frame *outer, struct marks *marks)
{
	const struct frame frame = {outer, schema, value, outer == NULL ? 1 : outer->depth + 1};
	struct here here = {run, schema, value, place, &frame, marks};
	bool asks = schema->unevaluated_items != NULL || schema->unevaluated_properties != NULL;
	struct marks own;
	enum verdict verdict;

	if (count_steps(&here, 1) != MATCHES)
		return STOPPED;
	if (place->depth > SCHEMA_DEPTH_MAX || frame.depth > SCHEMA_CALLS_MAX) {
		bool too_deep = place->depth > SCHEMA_DEPTH_MAX;

		schema_fail(place, ERR_TOO_LARGE, run->error, "%s %d", too_deep ? "nested deeper than SCHEMA_DEPTH_MAX" :
			    "more schemas inside one another than SCHEMA_CALLS_MAX", too_deep ? SCHEMA_DEPTH_MAX : SCHEMA_CALLS_MAX);
		return STOPPED;
	}
	if (schema == run->except || schema->accepts_all)
		return MATCHES;
	if (schema->accepts_none)
		return DIFFER(&here, "the schema false matches nothing");
	if (!asks || (value->type != JSON_ARRAY && value->type != JSON_OBJECT))
		return check_all(&here);
	/* What a schema asks of its own keywords must not see what its neighbours have marked. */
	if (count_looks(&here, word_count(json_count(value))) != MATCHES)
		return STOPPED;
	open_marks(&own, json_count(value));
	here.marks = &own;
	verdict = check_all(&here);
	if (verdict == MATCHES && marks != NULL)
		merge_marks(marks, &own);
	close_marks(&own);
	return verdict;
}

int schema_evaluate(const struct schema *schema, const struct schema *except, const struct json *value, struct error *error)
{
	static const struct schema_place root;
	struct error own;
	struct run run = {.error = error != NULL ? error : &own, .except = except};
	enum verdict verdict;

	*run.error = (struct error){0};
	verdict = apply(&run, schema, value, &root, NULL, NULL);
	pattern_matcher_free(run.matcher);
	return verdict == MATCHES ? 0 : (int)run.error->code;
}
