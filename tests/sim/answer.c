/* Makes replies. Loop thread. Start at answer_make(). */
#include "tests/sim/answer.h"

#include <math.h>
#include <string.h>

#include "tests/sim/extract.h"
#include "workflow/base/check.h"

enum { VOCABULARY = 32000 };
#define GREEDY_BELOW 1e-5 /* a temperature below it picks the most likely token; runtimes say so, vLLM in these words */

static bool inside_sequence(uint8_t c)
{
	return (c & 0xc0) == 0x80;
}

size_t token_bytes(struct bytes text, uint64_t tokens)
{
	size_t at = 0;

	while (tokens-- > 0 && at < text.len) {
		at += TOKEN_BYTES;
		while (at < text.len && inside_sequence(text.data[at]))
			at++;
	}
	return at < text.len ? at : text.len;
}

uint64_t token_count(struct bytes text)
{
	uint64_t count = 0;

	for (size_t at = 0; at < text.len; count++) {
		at += TOKEN_BYTES;
		while (at < text.len && inside_sequence(text.data[at]))
			at++;
	}
	return count;
}

void print_token_ids(struct bytes text, struct buffer *out)
{
	buffer_add_char(out, '[');
	for (size_t at = 0; at < text.len;) {
		struct bytes token = {text.data + at, text.len - at};

		token.len = token_bytes(token, 1);
		buffer_printf(out, "%s%u", at > 0 ? "," : "", (unsigned)(random_hash(0, token) % VOCABULARY));
		at += token.len;
	}
	buffer_add_char(out, ']');
}

/* The offset of a line that holds just `mark`, from `from` on; message.len + 1 if there is none. */
static size_t find_line(struct bytes message, size_t from, const char *mark)
{
	size_t mark_len = strlen(mark);

	for (size_t at = from; at + mark_len <= message.len; at++) {
		const uint8_t *hit = memmem(message.data + at, message.len - at, mark, mark_len);

		if (hit == NULL)
			break;
		at = (size_t)(hit - message.data);
		if ((at == 0 || message.data[at - 1] == '\n') &&
		    (at + mark_len == message.len || message.data[at + mark_len] == '\n'))
			return at;
	}
	return message.len + 1;
}

bool ask_find_section(struct bytes message, struct bytes *section)
{
	size_t start = find_line(message, 0, "<section>");
	size_t end, next;

	if (start >= message.len)
		return false;
	start += strlen("<section>\n");
	end = start <= message.len ? find_line(message, start, "</section>") : message.len + 1;
	if (end > message.len)
		return false;
	/* The section may itself talk of such lines, so the last one counts. */
	while ((next = find_line(message, end + 1, "</section>")) <= message.len)
		end = next;
	section->data = message.data + start;
	section->len = end > start ? end - 1 - start : 0;
	return true;
}

/* ---- Extraction ---- */

/* A schema that lists the predicates it takes gets no others. */
static bool allows_predicate(const struct json *schema, const char *predicate)
{
	const struct json *allowed = json_pointer_get(schema, "/properties/facts/items/properties/predicate/enum");

	if (!json_is(allowed, JSON_ARRAY))
		return true;
	for (size_t i = 0; i < json_count(allowed); i++) {
		const struct json *item = json_at(allowed, i);

		if (json_is(item, JSON_STRING) && strcmp(item->string.text, predicate) == 0)
			return true;
	}
	return false;
}

static void print_member(const char *name, struct bytes value, struct buffer *out)
{
	buffer_printf(out, "\"%s\":", name);
	json_print_string((const char *)value.data, value.len, out);
}

static struct bytes take(struct buffer *buffer, struct arena *arena)
{
	struct bytes bytes;

	CHECK(!buffer->overflow);
	bytes = arena_bytes(arena, buffer_bytes(buffer));
	buffer_close(buffer);
	return bytes;
}

/* Compact, members in the order a model would write them. ungrounded: the first quote is one we made up. */
static struct bytes print_facts(const struct ask *ask, bool ungrounded, struct arena *arena)
{
	static const struct bytes invented = BYTES_OF("The simulator made up this sentence, which the section does not hold.");
	double facts_max = json_get_number(json_pointer_get(ask->schema, "/properties/facts"), "maxItems", INFINITY);
	struct extract_fact made_up = {BYTES_OF("Simulator"), BYTES_OF("Nothing"), "uses", invented};
	struct extract_facts facts;
	struct buffer out;
	size_t printed = 0;

	extract_find(ask->section, arena, &facts);
	if (ungrounded && facts.count == 0)
		facts = (struct extract_facts){.facts = &made_up, .count = 1};
	buffer_init(&out, ANSWER_BYTES_MAX);
	buffer_add_text(&out, "{\"facts\":[");
	for (size_t i = 0; i < facts.count && (double)printed < facts_max; i++) {
		const struct extract_fact *fact = &facts.facts[i];
		size_t before = out.len;

		if (!allows_predicate(ask->schema, fact->predicate))
			continue;
		buffer_add_text(&out, printed > 0 ? ",{" : "{");
		print_member("subject", fact->subject, &out);
		buffer_printf(&out, ",\"predicate\":\"%s\",", fact->predicate);
		print_member("object", fact->object, &out);
		buffer_add_char(&out, ',');
		print_member("quote", ungrounded && printed == 0 ? invented : fact->quote, &out);
		buffer_add_char(&out, '}');
		if (out.len > ANSWER_BYTES_MAX - 16) { /* An answer that would not fit ends with the fact before. */
			out.len = before;
			break;
		}
		printed++;
	}
	buffer_add_text(&out, "]}");
	return take(&out, arena);
}

/* The smallest value that fits the usual keywords: required members, first enum, minimum, lists at minItems. */
static void print_instance(const struct json *schema, unsigned depth, struct buffer *out)
{
	const struct json *type = json_get(schema, "type");
	const char *name = json_is(type, JSON_STRING) ? type->string.text : NULL;
	const struct json *required = json_get(schema, "required");

	if (out->overflow) /* lists within lists grow by powers: what does not fit is not printed to its end */
		return;
	if (name == NULL && json_is(json_at(type, 0), JSON_STRING))
		name = json_at(type, 0)->string.text;
	if (json_get(schema, "const") != NULL) {
		json_print(json_get(schema, "const"), out);
	} else if (json_count(json_get(schema, "enum")) > 0) {
		json_print(json_at(json_get(schema, "enum"), 0), out);
	} else if (name == NULL || strcmp(name, "object") == 0) {
		buffer_add_char(out, '{');
		for (size_t i = 0; depth < SCHEMA_DEPTH_MAX && i < json_count(required); i++) {
			const struct json *member = json_at(required, i);

			if (!json_is(member, JSON_STRING))
				continue;
			if (i > 0)
				buffer_add_char(out, ',');
			json_print_string(member->string.text, member->string.len, out);
			buffer_add_char(out, ':');
			print_instance(json_get(json_get(schema, "properties"), member->string.text), depth + 1, out);
		}
		buffer_add_char(out, '}');
	} else if (strcmp(name, "array") == 0) {
		double count = json_get_number(schema, "minItems", 0);

		buffer_add_char(out, '[');
		for (int i = 0; depth < SCHEMA_DEPTH_MAX && i < count && i < SCHEMA_DEPTH_MAX; i++) {
			if (i > 0)
				buffer_add_char(out, ',');
			print_instance(json_get(schema, "items"), depth + 1, out);
		}
		buffer_add_char(out, ']');
	} else if (strcmp(name, "string") == 0) {
		buffer_add_text(out, "\"simulated\"");
	} else if (strcmp(name, "boolean") == 0) {
		buffer_add_text(out, "false");
	} else if (strcmp(name, "null") == 0) {
		buffer_add_text(out, "null");
	} else {
		json_print_number(json_get_number(schema, "minimum", 0), out);
	}
}

/* No section, so nothing to extract: an answer that depends on the prompt alone and says who gives it. */
static struct bytes make_plain(const struct ask *ask, struct arena *arena)
{
	struct digest digest = digest_of(ask->prompt);
	char hex[DIGEST_HEX_LEN + 1];
	struct buffer out;

	buffer_init(&out, INSTANCE_BYTES_MAX);
	digest_hex(&digest, hex);
	if (ask->schema != NULL)
		print_instance(ask->schema, 0, &out);
	else if (ask->json_only)
		buffer_printf(&out, "{\"simulated\":\"%.16s\"}", hex);
	else
		buffer_printf(&out, "The simulator has read %zu bytes with the digest %.16s.", ask->prompt.len, hex);
	if (out.overflow) {
		buffer_clear(&out);
		buffer_add_text(&out, "{}");
	}
	return take(&out, arena);
}

/* ---- The answer ---- */

static const struct answer *pick(const struct script *script, double unit)
{
	double left = unit * script->weight_sum;

	for (size_t i = 0; i + 1 < script->answer_count; i++) {
		left -= script->answers[i].weight;
		if (left < 0)
			return &script->answers[i];
	}
	return &script->answers[script->answer_count - 1];
}

/* What a sampling runtime gives: another draw for each request, whatever its seed; the same each time without sampling. */
static const struct answer *pick_sampled(const struct script *script, const struct ask *ask, uint64_t ordinal)
{
	if (ask->temperature < GREEDY_BELOW)
		return &script->answers[0];
	return pick(script, random_unit(random_draw(script->seed, ordinal, RANDOM_ANSWER, 0)));
}

static const struct answer *pick_seeded(const struct script *script, const struct ask *ask, const struct reply *reply)
{
	uint64_t shift = script->mode == MODE_RELOAD_SHIFT ? reply->loads - 1 : 0;
	const struct answer *answer;

	if (ask->seed_ignored)
		answer = pick_sampled(script, ask, reply->ordinal);
	else
		answer = pick(script, random_unit(random_hash(script->seed ^ random_hash(ask->seed, ask->prompt), ask->prompt)));
	return &script->answers[((uint64_t)(answer - script->answers) + shift) % script->answer_count];
}

static void choose_text(const struct script *script, const struct ask *ask, bool ungrounded, struct arena *arena, struct reply *reply)
{
	const struct answer *answer = NULL;
	uint64_t turn = reply->ordinal - 1;

	if (ungrounded) {
		reply->text = print_facts(ask, true, arena);
		return;
	}
	switch (script->mode) {
	case MODE_EXTRACT:
		break;
	case MODE_FIXED:
		answer = &script->answers[turn % script->answer_count];
		break;
	case MODE_WEIGHTED:
		answer = pick(script, random_unit(random_draw(script->seed, reply->ordinal, RANDOM_ANSWER, 0)));
		break;
	case MODE_SEEDED: case MODE_RELOAD_SHIFT:
		answer = pick_seeded(script, ask, reply);
		break;
	case MODE_SEED_IGNORED:
		answer = pick_sampled(script, ask, reply->ordinal);
		break;
	case MODE_COLD_FIRST:
		answer = &script->answers[reply->since_load == 1 ? 0 : 1];
		break;
	case MODE_CACHE_PATH:
		answer = &script->answers[reply->prompt_seen ? 0 : 1];
		break;
	case MODE_SCHEDULE:
		answer = &script->answers[script->schedule[turn < script->schedule_count ? turn : script->schedule_count - 1]];
		break;
	case MODE_COUNT:
		break;
	}
	if (script->greedy != NULL && ask->temperature < GREEDY_BELOW)
		answer = script->greedy;
	if (answer == NULL) {
		reply->text = ask->choice != NULL ? arena_bytes(arena, bytes_text(ask->choice)) :
			ask->has_section ? print_facts(ask, false, arena) : make_plain(ask, arena);
		return;
	}
	reply->text = arena_bytes(arena, bytes_text(answer->text));
	if (answer->reasoning != NULL && !ask->no_reasoning)
		reply->reasoning = arena_bytes(arena, bytes_text(answer->reasoning));
}

static void cut_at_stops(const struct ask *ask, struct reply *reply)
{
	for (size_t i = 0; i < ask->stop_count; i++) {
		const uint8_t *hit = memmem(reply->text.data, reply->text.len, ask->stops[i], strlen(ask->stops[i]));

		if (hit != NULL) {
			reply->text.len = (size_t)(hit - reply->text.data);
			reply->stop_hit = ask->stops[i];
		}
	}
	if (reply->stop_hit != NULL && ask->keeps_stop)
		reply->text.len += strlen(reply->stop_hit);
}

/* Reasoning is paid from the same budget, and first. */
static void cut_at_tokens(uint64_t tokens_max, struct reply *reply)
{
	uint64_t reasoning = token_count(reply->reasoning);

	if (reasoning + token_count(reply->text) <= tokens_max)
		return;
	reply->reasoning.len = token_bytes(reply->reasoning, tokens_max);
	reply->text.len = token_bytes(reply->text, tokens_max > reasoning ? tokens_max - reasoning : 0);
	reply->finish = "length";
	reply->stop_hit = NULL;
}

void answer_make(const struct fault *fault, struct arena *arena, struct reply *reply)
{
	const struct ask *ask = reply->ask;

	reply->finish = ask->loads_only != NULL ? ask->loads_only : "stop";
	if (ask->loads_only != NULL)
		return;
	choose_text(reply->script, ask, fault->kind == FAULT_UNGROUNDED, arena, reply);
	if (fault->kind == FAULT_NOT_JSON)
		reply->text = BYTES_OF("I am sorry, but I would rather tell you about the weather: it is fine.");
	cut_at_stops(ask, reply);
	if (ask->tokens_max > 0)
		cut_at_tokens(ask->tokens_max, reply);
	if (fault->kind == FAULT_CUT_BY_LENGTH || fault->kind == FAULT_CUT_TEXT || fault->kind == FAULT_ABORT)
		reply->text.len = token_bytes(reply->text, token_count(reply->text) / 2);
	if (fault->kind == FAULT_CUT_BY_LENGTH)
		reply->finish = "length";
	if (fault->kind == FAULT_ABORT)
		reply->finish = "abort";
	reply->prompt_tokens = token_count(ask->prompt);
	reply->text_tokens = token_count(reply->text);
	reply->reasoning_tokens = token_count(reply->reasoning);
}
