/* See trust.h. */
#include "cli/trust.h"

#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"

static int add_key(struct command *command, struct public_key **keys, size_t *count, const struct public_key *key)
{
	for (size_t i = 0; i < *count; i++)
		if (strcmp((*keys)[i].id, key->id) == 0)
			return STATUS_OK;
	if (*keys == NULL)
		*keys = arena_alloc(&command->arena, TRUST_KEYS_MAX * sizeof **keys);
	if (*count == TRUST_KEYS_MAX)
		return command_fail(command, STATUS_ERROR, NULL, "more keys than the limit of %d (TRUST_KEYS_MAX)", TRUST_KEYS_MAX);
	(*keys)[(*count)++] = *key;
	return STATUS_OK;
}

static char *trimmed_text(struct arena *arena, struct bytes bytes)
{
	while (bytes.len > 0 && strchr(" \t\r\n", bytes.data[bytes.len - 1]) != NULL)
		bytes.len--;
	return arena_text_len(arena, (const char *)bytes.data, bytes.len);
}

/* A PEM public key, or a signed-note verifier key; never a secret one, which nobody should have at hand to verify. */
static int read_key_file(struct command *command, const char *path, struct trust *trust, bool root)
{
	struct bytes bytes;
	struct error error;
	struct public_key key;
	int status = command_read_file(command, path, &bytes);
	if (status != STATUS_OK)
		return status;
	if (bytes.len > 0 && memmem(bytes.data, bytes.len, "-----BEGIN", 10) == NULL) {
		if (note_key_parse(&trust->log_key, trimmed_text(&command->arena, bytes), &error) != 0)
			return command_fail(command, STATUS_MALFORMED, "PEM (\"BEGIN PUBLIC KEY\") or a line NAME+ID+BASE64 is meant", "%s is no key: %s", path, error.message);
		trust->has_log_key = true;
		return STATUS_OK;
	}
	if (public_key_parse_pem(&key, bytes, &error) != 0)
		return command_fail(command, STATUS_MALFORMED, NULL, "%s: %s", path, error.message);
	return root ? add_key(command, &trust->root_keys, &trust->root_key_count, &key) : add_key(command, &trust->fact_keys, &trust->fact_key_count, &key);
}

int trust_read_options(struct command *command, struct trust *trust)
{
	static const char *const names[] = {"key", "root-key", "log-key"};
	int status;
	memset(trust, 0, sizeof *trust);
	for (size_t n = 0; n < COUNT_OF(names); n++)
		for (size_t i = 0; command_option_at(command, names[n], i) != NULL; i++)
			if ((status = read_key_file(command, command_option_at(command, names[n], i), trust, n == 1)) != STATUS_OK)
				return status;
	if (command_option(command, "keyring") != NULL)
		return command_read_file(command, command_option(command, "keyring"), &trust->keyring);
	return STATUS_OK;
}

static bool read_public(const char *text, struct public_key *key)
{
	struct buffer bytes;
	buffer_init(&bytes, 64);
	bool good = text != NULL && base64_decode(bytes_text(text), &bytes) && bytes.len == KEY_PUBLIC_LEN;
	if (good)
		public_key_init(key, bytes.data);
	buffer_close(&bytes);
	return good;
}

int trust_ask_daemon(struct command *command, struct trust *trust)
{
	struct json *answer;
	struct error error;
	bool want_fact = trust->fact_key_count == 0, want_log = !trust->has_log_key;
	if (!want_fact && !want_log)
		return STATUS_OK;
	int status = command_get(command, "/v1/keys", &answer);
	if (status != STATUS_OK)
		return status;
	const struct json *keys = json_get(answer, "keys");
	const char *origin = json_get_text(answer, "origin");
	for (size_t i = 0; i < json_count(keys); i++) {
		const struct json *item = json_at(keys, i);
		const char *purpose = json_get_text(item, "purpose"), *vkey = json_get_text(item, "vkey");
		struct public_key key;
		if (purpose == NULL || !read_public(json_get_text(item, "public"), &key))
			continue;
		if (want_fact && strcmp(purpose, "fact") == 0) {
			if ((status = add_key(command, &trust->fact_keys, &trust->fact_key_count, &key)) != STATUS_OK)
				return status;
			trust->fact_keys_from_daemon = true;
		} else if (want_log && strcmp(purpose, "log") == 0) {
			if ((vkey != NULL ? note_key_parse(&trust->log_key, vkey, &error) : note_key_init(&trust->log_key, origin == NULL ? "" : origin, NOTE_KEY_LOG, &key, &error)) != 0)
				return command_fail(command, STATUS_MALFORMED, NULL, "the daemon's log key: %s", error.message);
			trust->has_log_key = trust->log_key_from_daemon = true;
		}
	}
	return STATUS_OK;
}

void trust_note(struct command *command, const struct trust *trust)
{
	if (trust->fact_keys_from_daemon)
		output_note(&command->output, "note: fact key from the daemon itself; --key FILE takes one that you kept");
	if (trust->log_key_from_daemon)
		output_note(&command->output, "note: log key from the daemon itself; --log-key FILE takes one that you kept");
}

const char *const verify_result_names[] = {
	[VERIFY_VALID] = "VALID", [VERIFY_INVALID] = "INVALID", [VERIFY_MALFORMED] = "MALFORMED", [VERIFY_CANNOT] = "UNVERIFIABLE",
};

void print_verify_lines(struct command *command, const struct verify_report *report, const char *before, bool all)
{
	static const char *const words[] = {
		[VERIFY_PASS] = "pass", [VERIFY_FAIL] = "fail", [VERIFY_UNVERIFIABLE] = "unverifiable", [VERIFY_SKIPPED] = "skipped", [VERIFY_NOTE] = "note",
	};
	for (size_t i = 0; i < report->count; i++) {
		const struct verify_line *line = &report->lines[i];
		if (!all && line->status != VERIFY_FAIL && line->status != VERIFY_UNVERIFIABLE)
			continue;
		output_text(&command->output, before);
		output_coloured(&command->output, status_colour(words[line->status]), arena_printf(&command->arena, "%-12s", words[line->status]));
		output_line(&command->output, "  %-11s %s%s%s", line->check, line->code == NULL ? "" : line->code, line->code != NULL && line->detail != NULL ? ": " : "",
			    line->detail == NULL ? "" : line->detail);
	}
}
