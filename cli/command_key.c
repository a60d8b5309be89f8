/* reprise key list | generate | export. Secret keys are made here and never leave their file. */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/command.h"
#include "workflow/base/check.h"
#include "workflow/base/time.h"
#include "workflow/evidence/key.h"

enum { KEY_FILE_MAX = 4096 };

int command_key_list(struct command *command)
{
	static const struct table_column columns[] = {{"PURPOSE", 0, false}, {"KEY", 0, false}, {"ALGORITHM", 0, false}, {"VERIFIER KEY", 0, false}};
	struct json *answer;
	int status = command_get(command, "/v1/keys", &answer);
	if (status != STATUS_OK)
		return status;
	if (command->output.format == FORMAT_JSON) {
		output_json(&command->output, answer);
		return STATUS_OK;
	}
	struct table table;
	const struct json *keys = json_get(answer, "keys");
	table_init(&table, &command->arena, columns, COUNT_OF(columns));
	table.uncut = true;
	for (size_t i = 0; json_is(keys, JSON_ARRAY) && i < json_count(keys); i++) {
		const struct json *key = json_at(keys, i);
		const char *id = json_get_text(key, "keyid");
		if (command->output.format == FORMAT_JSONL)
			output_json(&command->output, key);
		else if (command->output.format == FORMAT_IDS)
			output_line(&command->output, "%s", id);
		const char *cells[] = {json_get_text(key, "purpose"), id == NULL ? NULL : arena_printf(&command->arena, "%.16s", id), json_get_text(key, "algorithm"), json_get_text(key, "vkey")};
		table_add(&table, cells);
	}
	if (command->output.format == FORMAT_TEXT) {
		table_print(&table, &command->output);
		if (json_get_text(answer, "origin") != NULL)
			output_line(&command->output, "journal %s", json_get_text(answer, "origin"));
	}
	table_close(&table);
	return STATUS_OK;
}

/* A new file, durable before anybody relies on it: its bytes, then its name in the folder. */
static int write_new_file(struct command *command, const char *path, mode_t mode, struct bytes bytes)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
	if (fd < 0)
		return command_fail(command, errno == EEXIST ? STATUS_CONFLICT : STATUS_ERROR, errno == EEXIST ? "a key is never overwritten: choose another name" : NULL,
				    "create %s: %s", path, strerror(errno));
	size_t done = 0;
	while (done < bytes.len) {
		ssize_t wrote = write(fd, bytes.data + done, bytes.len - done);
		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote < 0)
			break;
		done += (size_t)wrote;
	}
	bool good = done == bytes.len && fchmod(fd, mode) == 0 && fsync(fd) == 0;
	int reason = errno;
	if (close(fd) != 0 && good) {
		good = false;
		reason = errno;
	}
	if (!good) {
		unlink(path);
		return command_fail(command, STATUS_ERROR, NULL, "write %s: %s", path, strerror(reason));
	}
	const char *slash = strrchr(path, '/');
	char *folder = slash == NULL ? arena_text(&command->arena, ".") : arena_text_len(&command->arena, path, slash == path ? 1 : (size_t)(slash - path));
	int folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (folder_fd >= 0) {
		fsync(folder_fd);
		close(folder_fd);
	}
	return STATUS_OK;
}

int command_key_generate(struct command *command)
{
	const char *path = command->arguments[0], *purpose = command_option(command, "purpose");
	if (purpose == NULL || (strcmp(purpose, "fact") != 0 && strcmp(purpose, "log") != 0 && strcmp(purpose, "root") != 0))
		return command_fail(command, STATUS_USAGE, "one of: --purpose fact, --purpose log, --purpose root",
				    purpose == NULL ? "key generate: what is the key for?" : "--purpose %s is unknown", purpose);
	char *public_path = arena_printf(&command->arena, "%s.pub", path);
	if (access(public_path, F_OK) == 0)
		return command_fail(command, STATUS_CONFLICT, "a key is never overwritten: choose another name", "%s is already there", public_path);

	struct secret_key *key = sodium_malloc(sizeof *key);
	uint8_t *seed = sodium_malloc(KEY_SEED_LEN);
	CHECK(key != NULL);
	CHECK(seed != NULL);
	randombytes_buf(seed, KEY_SEED_LEN);
	secret_key_init(key, seed);
	sodium_free(seed);

	struct buffer secret_pem, public_pem;
	buffer_init(&secret_pem, KEY_FILE_MAX);
	buffer_init(&public_pem, KEY_FILE_MAX);
	secret_key_print_pem(key, &secret_pem);
	public_key_print_pem(&key->public, &public_pem);
	int status = write_new_file(command, path, 0600, buffer_bytes(&secret_pem));
	bool wrote = status == STATUS_OK;
	if (wrote)
		status = write_new_file(command, public_path, 0644, buffer_bytes(&public_pem));
	if (status != STATUS_OK && wrote)
		unlink(path); /* half a pair would stand in the way of the next try */
	if (status == STATUS_OK) {
		if (command->output.format == FORMAT_JSON || command->output.format == FORMAT_JSONL) {
			struct json *json = json_object(&command->arena);
			json_set_text(&command->arena, json, "keyid", key->public.id);
			json_set_text(&command->arena, json, "algorithm", "ed25519");
			json_set_text(&command->arena, json, "purpose", purpose);
			json_set_text(&command->arena, json, "file", path);
			json_set_text(&command->arena, json, "publicFile", public_path);
			output_json(&command->output, json);
		} else if (command->output.format == FORMAT_IDS) {
			output_line(&command->output, "%s", key->public.id);
		} else {
			output_line(&command->output, "%s key %s", purpose, key->public.id);
			output_line(&command->output, "secret   %s  (mode 0600; keep it, back it up, show it to nobody)", path);
			output_line(&command->output, "public   %s", public_path);
		}
	}
	if (secret_pem.data != NULL)
		sodium_memzero(secret_pem.data, secret_pem.cap);
	buffer_close(&secret_pem);
	buffer_close(&public_pem);
	secret_key_wipe(key);
	sodium_free(key);
	return status;
}

static int export_pem(struct command *command, const struct json *item)
{
	const char *text = json_get_text(item, "public");
	struct buffer bytes, pem;
	struct public_key key;
	buffer_init(&bytes, 64);
	buffer_init(&pem, KEY_FILE_MAX);
	bool good = text != NULL && base64_decode(bytes_text(text), &bytes) && bytes.len == KEY_PUBLIC_LEN;
	if (good) {
		public_key_init(&key, bytes.data);
		public_key_print_pem(&key, &pem);
		fwrite(pem.data, 1, pem.len, stdout);
	}
	buffer_close(&bytes);
	buffer_close(&pem);
	return good ? STATUS_OK : command_fail(command, STATUS_MALFORMED, NULL, "the daemon names a key that is none: %s", json_get_text(item, "keyid"));
}

/* A key ring that nobody signed yet (provenance.md 3.3): version 1, for a root key to sign. */
static void export_ring(struct command *command, const struct json *answer, const struct json *chosen)
{
	struct arena *arena = &command->arena;
	struct json *ring = json_object(arena), *keys = json_array(arena);
	char now[TIME_TEXT_LEN + 1];
	time_text(clock_wall_ms(), now);
	for (size_t i = 0; i < json_count(chosen); i++) {
		static const char *const members[] = {"keyid", "algorithm", "public", "purpose", "vkey", "notBefore", "notAfter", "revoked"};
		struct json *key = json_object(arena);
		for (size_t m = 0; m < COUNT_OF(members); m++) {
			struct json *value = json_get(json_at(chosen, i), members[m]);
			if (value != NULL)
				json_set(arena, key, members[m], value);
		}
		json_add(arena, keys, key);
	}
	json_set_text(arena, ring, "_type", "https://reprise.example/keyring/v1");
	json_set_text(arena, ring, "journal", json_get_text(answer, "origin"));
	json_set_number(arena, ring, "version", 1);
	json_set_text(arena, ring, "issuedOn", now);
	json_set_number(arena, ring, "threshold", 1);
	json_set(arena, ring, "keys", keys);
	output_json(&command->output, ring);
}

int command_key_export(struct command *command)
{
	const char *purpose = command_option(command, "purpose"), *format = command_option(command, "format");
	struct json *answer, *chosen = json_array(&command->arena);
	if (purpose != NULL && strcmp(purpose, "fact") != 0 && strcmp(purpose, "log") != 0 && strcmp(purpose, "root") != 0)
		return command_fail(command, STATUS_USAGE, "one of: fact, log, root", "--purpose %s is unknown", purpose);
	if (format != NULL && strcmp(format, "pem") != 0 && strcmp(format, "vkey") != 0 && strcmp(format, "ring") != 0)
		return command_fail(command, STATUS_USAGE, "one of: pem, vkey, ring", "--format %s is unknown", format);
	bool vkey = format != NULL && strcmp(format, "vkey") == 0, ring = format != NULL && strcmp(format, "ring") == 0;
	/* A verifier key is a log's; a fact's key is what is mostly asked for. */
	if (purpose == NULL && !ring)
		purpose = vkey ? "log" : "fact";
	int status = command_get(command, "/v1/keys", &answer);
	if (status != STATUS_OK)
		return status;
	const struct json *keys = json_get(answer, "keys");
	for (size_t i = 0; json_is(keys, JSON_ARRAY) && i < json_count(keys); i++) {
		const char *of = json_get_text(json_at(keys, i), "purpose");
		if (purpose == NULL || (of != NULL && strcmp(of, purpose) == 0))
			json_add(&command->arena, chosen, json_at(keys, i));
	}
	if (json_count(chosen) == 0)
		return command_fail(command, STATUS_NOT_FOUND, "reprise key list shows the keys", "the daemon has no %s key", purpose == NULL ? "public" : purpose);
	if (ring) {
		export_ring(command, answer, chosen);
		return STATUS_OK;
	}
	for (size_t i = 0; i < json_count(chosen) && status == STATUS_OK; i++) {
		const char *text = json_get_text(json_at(chosen, i), "vkey");
		if (!vkey)
			status = export_pem(command, json_at(chosen, i));
		else if (text == NULL)
			status = command_fail(command, STATUS_USAGE, "verifier keys exist for the log: --purpose log", "a %s key has no verifier key", purpose);
		else
			output_line(&command->output, "%s", text);
	}
	return status;
}
