/* See config.h. One function per mapping of the file; each says which keys there are, and take_keys() refuses the rest. */
#include "daemon/config.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "activities/adapter.h"
#include "activities/address.h"
#include "activities/curl_loop.h"
#include "activities/launch.h"
#include "activities/launcher.h"
#include "activities/slot_queue.h"
#include "activities/stream_watch.h"
#include "activities/watchdog.h"
#include "workflow/base/check.h"
#include "workflow/base/id.h"
#include "workflow/base/sampling.h"
#include "workflow/base/time.h"

enum { COUNT_LIMIT_MAX = 1000000, RUNTIME_CONCURRENCY_MAX = 10000, RETRY_ATTEMPTS_MAX = 1000, NAME_LEN_MAX = 64 };

struct reading {
	struct config *config;
	const struct text_positions *positions;
	struct problems *problems;
	struct buffer pointer; /* of the value being looked at */
};

/* --- problems ----------------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 4, 5))) static void complain(struct reading *r, bool at_key, const char *hint, const char *format, ...)
{
	char message[1024];
	size_t line = 0, column = 0;
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof message, format, args);
	va_end(args);
	text_position(r->positions, buffer_text(&r->pointer), at_key, &line, &column);
	problems_add(r->problems, false, buffer_text(&r->pointer), line, column, hint, "%s", message);
}

/* Go into a member and come back. */
static size_t enter(struct reading *r, const char *name)
{
	size_t before = r->pointer.len;

	json_pointer_add(&r->pointer, name);
	return before;
}

static size_t enter_item(struct reading *r, size_t index)
{
	char name[32];

	snprintf(name, sizeof name, "%zu", index);
	return enter(r, name);
}

static void leave(struct reading *r, size_t before)
{
	r->pointer.len = before;
	if (r->pointer.data)
		r->pointer.data[before] = 0;
}

/* Number of single-character changes between two words, as far as `max` matters. For "did you mean". */
static size_t word_distance(const char *a, const char *b)
{
	size_t row[64], b_len = strlen(b);

	if (b_len + 1 > COUNT_OF(row) || strlen(a) > 60)
		return SIZE_MAX;
	for (size_t j = 0; j <= b_len; j++)
		row[j] = j;
	for (size_t i = 1; a[i - 1]; i++) {
		size_t diagonal = row[0];
		row[0] = i;
		for (size_t j = 1; j <= b_len; j++) {
			size_t change = diagonal + (a[i - 1] != b[j - 1]), least = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;
			diagonal = row[j];
			row[j] = change < least ? change : least;
		}
	}
	return row[b_len];
}

/* The keys of one mapping. Those with `later` are of the contract, but not of this release. */
struct key {
	const char *name;
	void (*read)(struct reading *r, const struct json *value, void *target);
	void *target;
	const char *later; /* why it is refused */
};

static void take_keys(struct reading *r, const struct json *object, const struct key *keys, size_t count)
{
	for (size_t i = 0; i < object->object.count; i++) {
		const struct json_member *member = &object->object.members[i];
		const struct key *found = NULL, *nearest = NULL;
		size_t nearest_distance = 3;
		size_t before = enter(r, member->name);

		for (size_t k = 0; k < count && !found; k++) {
			if (strcmp(keys[k].name, member->name) == 0)
				found = &keys[k];
			size_t distance = word_distance(member->name, keys[k].name);
			if (distance < nearest_distance) {
				nearest = &keys[k];
				nearest_distance = distance;
			}
		}
		if (found && found->later) {
			complain(r, true, found->later, "'%s' is not supported in this release", member->name);
		} else if (found) {
			found->read(r, member->value, found->target);
		} else if (nearest) {
			char hint[128];
			snprintf(hint, sizeof hint, "did you mean '%s'?", nearest->name);
			complain(r, true, hint, "unknown key '%s'", member->name);
		} else {
			struct buffer hint;
			buffer_init(&hint, 1024);
			buffer_add_text(&hint, "known here:");
			for (size_t k = 0; k < count; k++)
				buffer_printf(&hint, "%s %s", k ? "," : "", keys[k].name);
			complain(r, true, buffer_text(&hint), "unknown key '%s'", member->name);
			buffer_close(&hint);
		}
		leave(r, before);
	}
}

static bool expect(struct reading *r, const struct json *value, enum json_type type, const char *what)
{
	if (json_is(value, type))
		return true;
	complain(r, false, NULL, "expected %s, found %s", what, json_type_name(value->type));
	return false;
}

/* --- plain values ------------------------------------------------------------------------------------------------- */

static void read_text(struct reading *r, const struct json *value, void *target)
{
	const char **text = target;

	if (!expect(r, value, JSON_STRING, "a text"))
		return;
	if (value->string.len == 0)
		complain(r, false, NULL, "must not be empty");
	*text = value->string.text;
}

static void read_path(struct reading *r, const struct json *value, void *target)
{
	const char **path = target;

	read_text(r, value, target);
	if (*path && strlen(*path) >= CONFIG_PATH_MAX)
		complain(r, false, NULL, "a path of %zu bytes is over the limit of %d", strlen(*path), CONFIG_PATH_MAX - 1);
}

static void read_duration(struct reading *r, const struct json *value, void *target)
{
	int64_t *ms = target, parsed;
	struct error error;

	if (!json_is(value, JSON_STRING)) {
		complain(r, false, "write a unit: 250ms, 30s, 5m, PT1H", "expected a duration, found %s", json_type_name(value->type));
		return;
	}
	if (duration_parse(value->string.text, &parsed, &error) != 0)
		complain(r, false, "write a unit: 250ms, 30s, 5m, PT1H", "not a duration: %s", error.message);
	else if (parsed == 0)
		complain(r, false, NULL, "must be longer than nothing");
	else
		*ms = parsed;
}

bool size_parse(const char *text, uint64_t *bytes)
{
	static const struct {
		const char *unit;
		double factor;
	} units[] = {{"", 1}, {"B", 1}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}};
	char *end;

	if (*text < '0' || *text > '9' || strpbrk(text, "xXpPeE") != NULL)
		return false;
	double number = strtod(text, &end);
	for (size_t i = 0; i < COUNT_OF(units); i++) {
		if (strcmp(end, units[i].unit) != 0)
			continue;
		number *= units[i].factor;
		if (!(number <= 0x1p53))
			return false;
		*bytes = (uint64_t)number;
		return true;
	}
	return false;
}

static void read_size(struct reading *r, const struct json *value, void *target)
{
	uint64_t *bytes = target, parsed;

	if (json_is(value, JSON_NUMBER) && json_is_integer(value) && value->number >= 0)
		parsed = (uint64_t)value->number;
	else if (!json_is(value, JSON_STRING) || !size_parse(value->string.text, &parsed)) {
		complain(r, false, "write bytes, or a unit: 64KiB, 2MiB, 1.5GiB", "expected a size");
		return;
	}
	if (parsed == 0)
		complain(r, false, NULL, "must be at least 1 byte");
	else
		*bytes = parsed;
}

static void read_count_up_to(struct reading *r, const struct json *value, unsigned *count, unsigned max)
{
	if (!json_is_integer(value) || value->number < 1 || value->number > max)
		complain(r, false, NULL, "expected a whole number from 1 to %u", max);
	else
		*count = (unsigned)value->number;
}

static void read_count(struct reading *r, const struct json *value, void *target)
{
	read_count_up_to(r, value, target, COUNT_LIMIT_MAX);
}

static void read_concurrency(struct reading *r, const struct json *value, void *target)
{
	struct runtime_config *runtime = target;

	runtime->concurrency_auto = json_is(value, JSON_STRING) && strcmp(value->string.text, "auto") == 0;
	if (!runtime->concurrency_auto && json_is(value, JSON_STRING))
		complain(r, false, "auto: as many as the runtime says it takes", "expected a whole number from 1 to %u, or auto", RUNTIME_CONCURRENCY_MAX);
	else if (!runtime->concurrency_auto)
		read_count_up_to(r, value, &runtime->concurrency, RUNTIME_CONCURRENCY_MAX);
}

static void read_priority(struct reading *r, const struct json *value, void *target)
{
	if (!json_is_integer(value) || value->number < 0 || value->number > PRIORITY_MAX)
		complain(r, false, NULL, "expected a whole number from 0 to %d, the higher the sooner", PRIORITY_MAX);
	else
		*(unsigned *)target = (unsigned)value->number;
}

static void read_loaded_models(struct reading *r, const struct json *value, void *target)
{
	read_count_up_to(r, value, target, MODELS_LOADED_MAX);
}

static void read_rate_amount(struct reading *r, const struct json *value, void *target)
{
	unsigned amount = 0;

	read_count_up_to(r, value, &amount, RATE_COST_MAX);
	*(int64_t *)target = amount;
}

static void read_rate_per(struct reading *r, const struct json *value, void *target)
{
	int64_t *ms = target;

	read_duration(r, value, target);
	if (*ms < RATE_PER_MIN_MS || *ms > RATE_PER_MAX_MS)
		complain(r, false, NULL, "a limit is for a time from %d ms to %d h", RATE_PER_MIN_MS, RATE_PER_MAX_MS / (60 * 60 * 1000));
}

static void read_rate(struct reading *r, const struct json *value, void *target)
{
	struct runtime_config *runtime = target;
	const struct key keys[] = {
		{"requests", read_rate_amount, &runtime->rate_requests, NULL},
		{"tokens", read_rate_amount, &runtime->rate_tokens, NULL},
		{"per", read_rate_per, &runtime->rate_per_ms, NULL},
	};

	if (!expect(r, value, JSON_OBJECT, "a mapping with requests, tokens and per"))
		return;
	take_keys(r, value, keys, COUNT_OF(keys));
	if (!json_get(value, "requests") && !json_get(value, "tokens"))
		complain(r, false, "rate: {requests: 60, per: 1m}", "rate limits nothing: it has neither requests nor tokens");
}

static void read_budget_amount(struct reading *r, const struct json *value, int64_t *amount, int64_t max)
{
	if (!json_is_integer(value) || value->number < 1 || value->number > (double)max)
		complain(r, false, NULL, "expected a whole number from 1 to %lld", (long long)max);
	else
		*amount = (int64_t)value->number;
}

static void read_budget_tokens(struct reading *r, const struct json *value, void *target)
{
	read_budget_amount(r, value, target, BUDGET_TOKENS_MAX);
}

static void read_budget_seconds(struct reading *r, const struct json *value, void *target)
{
	read_budget_amount(r, value, target, BUDGET_SECONDS_MAX);
}

/* Of a runtime's day, or of a run. What is not said stays as it is. */
static void read_amounts(struct reading *r, const struct json *value, const char *name, const char *example, int64_t *tokens, int64_t *seconds)
{
	const struct key keys[] = {
		{"tokens", read_budget_tokens, tokens, NULL},
		{"seconds", read_budget_seconds, seconds, NULL},
	};

	if (!expect(r, value, JSON_OBJECT, "a mapping with tokens and seconds"))
		return;
	take_keys(r, value, keys, COUNT_OF(keys));
	if (json_count(value) == 0)
		complain(r, false, example, "%s limits nothing: it has neither tokens nor seconds", name);
}

static void read_budget(struct reading *r, const struct json *value, void *target)
{
	struct runtime_config *runtime = target;

	read_amounts(r, value, "budget", "budget: {tokens: 1000000, seconds: 3600}", &runtime->budget_tokens, &runtime->budget_seconds);
}

static void read_context_length(struct reading *r, const struct json *value, void *target)
{
	read_count_up_to(r, value, target, RUNTIME_CONTEXT_MAX);
}

static void read_probe_every(struct reading *r, const struct json *value, void *target)
{
	int64_t *ms = target;

	read_duration(r, value, target);
	if (*ms < RUNTIME_PROBE_EVERY_MIN_MS)
		complain(r, false, NULL, "a runtime is asked every %d ms at most", RUNTIME_PROBE_EVERY_MIN_MS);
}

static void read_attempts(struct reading *r, const struct json *value, void *target)
{
	read_count_up_to(r, value, target, RETRY_ATTEMPTS_MAX);
}

/* --- listen ------------------------------------------------------------------------------------------------------- */

static int check_listen(const char *text, const char **path, struct error *error)
{
	size_t max = sizeof ((struct sockaddr_un *)NULL)->sun_path - 1;

	if (!utf8_valid(bytes_text(text), NULL))
		return error_set(error, ERR_INVALID, "listen: the address is not valid UTF-8");
	if (strncmp(text, "tcp:", 4) == 0)
		return error_set(error, ERR_UNSUPPORTED, "listen %s: a TCP address needs access tokens, which this release cannot issue or check yet; "
			"use unix:PATH (mode 0600 guards it) and, from another machine, ssh -L", text);
	if (strncmp(text, "unix:", 5) != 0 || text[5] == 0)
		return error_set(error, ERR_INVALID, "listen %s: expected unix:PATH", text);
	if (strlen(text + 5) > max)
		return error_set(error, ERR_TOO_LARGE, "listen %s: the path has %zu bytes, the system's limit for a socket is %zu", text, strlen(text + 5), max);
	*path = text + 5;
	return 0;
}

static void read_listen_item(struct reading *r, const struct json *value)
{
	struct config *config = r->config;
	struct error error;
	const char *path;

	if (!expect(r, value, JSON_STRING, "an address such as unix:/run/reprise/reprise.sock"))
		return;
	if (check_listen(value->string.text, &path, &error) != 0)
		complain(r, false, NULL, "%s", error.message);
	else if (config->listen_count == CONFIG_LISTEN_MAX)
		complain(r, false, NULL, "more than %d addresses (CONFIG_LISTEN_MAX)", CONFIG_LISTEN_MAX);
	else
		config->listen[config->listen_count++] = path;
}

static void read_listen(struct reading *r, const struct json *value, void *target)
{
	(void)target;
	if (json_is(value, JSON_STRING)) {
		read_listen_item(r, value);
		return;
	}
	if (!expect(r, value, JSON_ARRAY, "an address or a list of them"))
		return;
	for (size_t i = 0; i < json_count(value); i++) {
		size_t before = enter_item(r, i);
		read_listen_item(r, json_at(value, i));
		leave(r, before);
	}
}

/* --- secrets ------------------------------------------------------------------------------------------------------ */

/* A trailing newline is the editor's, not the secret's. */
static int read_secret_file(struct arena *arena, const char *path, const char **value, struct error *error)
{
	char *text = memory_alloc(CONFIG_SECRET_MAX + 1);
	/* O_NONBLOCK: a FIFO in its place would hold the start for ever. */
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat status;
	ssize_t len = 0, got = 0;

	if (fd < 0) {
		error_set(error, ERR_IO, errno == ELOOP ? "%s: is a symbolic link, expected a regular file" : "%s: %s", path, strerror(errno));
		goto end;
	}
	if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
		error_set(error, ERR_INVALID, "%s: is no regular file", path);
		close(fd);
		goto end;
	}
	while (len <= CONFIG_SECRET_MAX && (got = read(fd, text + len, (size_t)(CONFIG_SECRET_MAX + 1 - len))) > 0)
		len += got;
	if (got < 0)
		error_set(error, ERR_IO, "%s: %s", path, strerror(errno));
	else if (len > CONFIG_SECRET_MAX)
		error_set(error, ERR_TOO_LARGE, "%s: larger than the limit of %d bytes", path, CONFIG_SECRET_MAX);
	else if (memchr(text, 0, (size_t)len) != NULL)
		error_set(error, ERR_INVALID, "%s: holds a NUL byte", path);
	close(fd);
	while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r'))
		len--;
	if (error->code == ERR_NONE && len == 0)
		error_set(error, ERR_INVALID, "%s: is empty", path);
	if (error->code == ERR_NONE)
		*value = arena_text_len(arena, text, (size_t)len);
end:
	explicit_bzero(text, CONFIG_SECRET_MAX + 1);
	free(text);
	return error->code;
}

static void read_texts(struct reading *r, const struct json *value, void *target)
{
	const struct json **texts = target;

	if (!expect(r, value, JSON_ARRAY, "a list of texts"))
		return;
	for (size_t i = 0; i < json_count(value); i++) {
		size_t before = enter_item(r, i);
		expect(r, json_at(value, i), JSON_STRING, "a text");
		leave(r, before);
	}
	*texts = value;
}

static void read_secret(struct reading *r, const char *name, const struct json *value)
{
	struct secret_config *secret = &r->config->secrets[r->config->secret_count];
	const char *file = NULL, *variable = NULL, *credential = NULL;
	struct error error = {0};
	const struct key keys[] = {
		{"file", read_path, &file, NULL},
		{"env", read_text, &variable, NULL},
		{"credential", read_text, &credential, NULL},
		{"hosts", read_texts, &secret->hosts, NULL},
		{"namespaces", read_texts, &secret->namespaces, NULL},
	};

	if (!expect(r, value, JSON_OBJECT, "a mapping with file, env or credential"))
		return;
	take_keys(r, value, keys, COUNT_OF(keys));
	if ((file != NULL) + (variable != NULL) + (credential != NULL) != 1) {
		complain(r, false, NULL, "a secret comes from exactly one of file, env and credential");
		return;
	}
	if (secret->namespaces && !secret->hosts)
		complain(r, false, "hosts: [api.example]", "a secret that workflows may use lists the hosts that it may be sent to");
	if (credential) {
		const char *folder = getenv("CREDENTIALS_DIRECTORY");
		if (!folder || strchr(credential, '/')) {
			complain(r, false, NULL, folder ? "a credential's name has no '/'" : "no systemd credentials are there (CREDENTIALS_DIRECTORY is not set)");
			return;
		}
		file = arena_printf(&r->config->arena, "%s/%s", folder, credential);
	}
	if (file && read_secret_file(&r->config->arena, file, &secret->value, &error) != 0)
		complain(r, false, NULL, "secret '%s': %s", name, error.message);
	if (variable) {
		const char *text = getenv(variable);
		if (!text || !*text)
			complain(r, false, NULL, "secret '%s': the environment has no variable %s", name, variable);
		else
			secret->value = arena_text(&r->config->arena, text);
	}
	secret->name = name;
	r->config->secret_count++;
}

static void read_secrets(struct reading *r, const struct json *value, void *target)
{
	size_t count = json_count(value);

	(void)target;
	if (!expect(r, value, JSON_OBJECT, "a mapping of names to secrets"))
		return;
	if (count > CONFIG_SECRETS_MAX) {
		complain(r, false, NULL, "%zu secrets are over the limit of %d", count, CONFIG_SECRETS_MAX);
		return;
	}
	r->config->secrets = arena_zero(&r->config->arena, (count + 1) * sizeof *r->config->secrets);
	for (size_t i = 0; i < count; i++) {
		size_t before = enter(r, value->object.members[i].name);
		read_secret(r, value->object.members[i].name, value->object.members[i].value);
		leave(r, before);
	}
}

/* --- runtimes ----------------------------------------------------------------------------------------------------- */

/* The host of "http://HOST[:PORT]…", without brackets. */
static const char *url_host(struct arena *arena, const char *url)
{
	const char *host = strstr(url, "://");

	if (!host)
		return "";
	host += 3;
	if (*host == '[')
		return arena_text_len(arena, host + 1, strcspn(host + 1, "]"));
	return arena_text_len(arena, host, strcspn(host, ":/?#"));
}

/* The port may be left out; 0 is none. */
static bool has_good_port(const char *url)
{
	const char *authority = strstr(url, "://") + 3, *bracket = memchr(authority, ']', strcspn(authority, "/"));
	const char *port = bracket ? bracket + 1 : authority + strcspn(authority, ":/");
	unsigned value = 0;
	size_t len;

	if (*port != ':')
		return *port == 0 || *port == '/';
	len = strcspn(++port, "/");
	if (len == 0 || len > 5 || strspn(port, "0123456789") != len)
		return false;
	for (size_t i = 0; i < len; i++)
		value = 10 * value + (unsigned)(port[i] - '0');
	return value > 0 && value <= UINT16_MAX;
}

static void read_url(struct reading *r, const struct json *value, void *target)
{
	const char **url = target;
	char host[256];
	struct error error;

	read_text(r, value, target);
	if (!*url)
		return;
	size_t len = strlen(*url);
	if (strncmp(*url, "http://", 7) != 0 && strncmp(*url, "https://", 8) != 0)
		complain(r, false, "http://127.0.0.1:1234", "a URL begins with http:// or https://");
	else if (*url_host(&r->config->arena, *url) == 0)
		complain(r, false, "http://127.0.0.1:1234", "the URL names no host");
	else if (strpbrk(*url, " \t\r\n?#") || strchr(*url, '@'))
		complain(r, false, "a key belongs to apiKey", "the URL must have no spaces, user, query or fragment");
	else if (!has_good_port(*url))
		complain(r, false, "http://127.0.0.1:1234", "the URL's port is no number from 1 to 65535");
	else if (!url_check(*url, host, &error))
		complain(r, false, "http://127.0.0.1:1234", "%s", error.message);
	while (len > 0 && (*url)[len - 1] == '/')
		len--;
	if (len > 3 && strncmp(*url + len - 3, "/v1", 3) == 0)
		complain(r, false, "leave the /v1 out: it is added", "the URL ends in /v1");
	*url = arena_text_len(&r->config->arena, *url, len);
}

static const char *kinds_hint(struct reading *r)
{
	return arena_printf(&r->config->arena, "one of: %s", runtime_adapter_kinds());
}

static void read_kind(struct reading *r, const struct json *value, void *target)
{
	const char **kind = target;

	if (!expect(r, value, JSON_STRING, "the kind of runtime"))
		return;
	if (runtime_adapter_get(value->string.text))
		*kind = value->string.text;
	else
		complain(r, false, kinds_hint(r), "unknown kind '%s'", value->string.text);
}

static void read_weights(struct reading *r, const struct json *value, void *target)
{
	struct runtime_config *runtime = target;
	const struct key keys[] = {{"file", read_path, &runtime->weights_file, NULL}, {"dir", read_path, &runtime->weights_folder, NULL}};

	if (!expect(r, value, JSON_OBJECT, "a mapping with file or dir"))
		return;
	take_keys(r, value, keys, COUNT_OF(keys));
	if (runtime->weights_file && runtime->weights_folder)
		complain(r, false, "weights: {file: …} for a GGUF file (or its first shard), {dir: …} for a folder", "weights are a file or a folder, not both");
}

static void read_sampling_field(struct reading *r, const struct json *value, void *target)
{
	const struct sampling_rule *rule = sampling_rule_find(target);
	struct sampling_fault fault;
	size_t before = r->pointer.len;

	if (sampling_check(rule, value, NULL, &fault))
		return;
	if (fault.inside[0] != '\0')
		enter(r, fault.inside);
	complain(r, false, NULL, "%s", fault.why);
	leave(r, before);
}

static void read_sampling(struct reading *r, const struct json *value, void *target)
{
	const struct json **sampling = target;
	struct key keys[SAMPLING_RULES_MAX];

	if (!expect(r, value, JSON_OBJECT, "a mapping such as {temperature: 0.6, seed: 42}"))
		return;
	for (size_t i = 0; i < sampling_rule_count(); i++)
		keys[i] = (struct key){sampling_rules[i].name, read_sampling_field, (char *)sampling_rules[i].name, NULL};
	take_keys(r, value, keys, sampling_rule_count());
	*sampling = value;
}

/* What a kind cannot say is refused here, by name, and not left out of its requests. */
static void check_sampling(struct reading *r, const struct runtime_config *runtime)
{
	const struct runtime_adapter *adapter = runtime_adapter_get(runtime->kind);
	size_t outer = enter(r, "sampling");

	for (size_t i = 0; i < json_count(runtime->sampling); i++) {
		const struct json_member *member = &runtime->sampling->object.members[i];
		size_t before = enter(r, member->name);
		struct sampling_fault fault;

		if (!adapter_check_sampling(adapter, member->name, member->value, &fault)) {
			if (fault.inside[0] != '\0')
				enter(r, fault.inside);
			complain(r, false, NULL, "kind %s %s", runtime->kind, fault.why);
		}
		leave(r, before);
	}
	leave(r, outer);
}

static void read_timeouts(struct reading *r, const struct json *value, void *target)
{
	struct runtime_config *runtime = target;
	const struct key keys[] = {
		{"connect", read_duration, &runtime->connect_ms, NULL},
		{"firstToken", read_duration, &runtime->first_token_ms, NULL},
		{"betweenTokens", read_duration, &runtime->between_tokens_ms, NULL},
		{"total", read_duration, &runtime->total_ms, NULL},
	};

	if (expect(r, value, JSON_OBJECT, "a mapping of durations"))
		take_keys(r, value, keys, COUNT_OF(keys));
}

static void read_retry(struct reading *r, const struct json *value, void *target)
{
	struct runtime_config *runtime = target;
	const struct key keys[] = {
		{"attempts", read_attempts, &runtime->retry_attempts, NULL},
		{"floor", read_duration, &runtime->retry_floor_ms, NULL},
		{"cap", read_duration, &runtime->retry_cap_ms, NULL},
	};

	if (!expect(r, value, JSON_OBJECT, "a mapping with attempts, floor and cap"))
		return;
	take_keys(r, value, keys, COUNT_OF(keys));
	if (runtime->retry_floor_ms > runtime->retry_cap_ms)
		complain(r, false, NULL, "floor (%lld ms) is above cap (%lld ms)", (long long)runtime->retry_floor_ms, (long long)runtime->retry_cap_ms);
}

/* "off", or a number that leaves room for what people mean. */
static void read_watch_limit(struct reading *r, const struct json *value, int *limit, int least)
{
	if (json_is(value, JSON_STRING) && strcmp(value->string.text, "off") == 0)
		*limit = -1;
	else if (!json_is_integer(value) || value->number < least || value->number > RUNTIME_WATCH_MAX)
		complain(r, false, NULL, "expected off, or a whole number from %d to %d", least, RUNTIME_WATCH_MAX);
	else
		*limit = (int)value->number;
}

static void read_watch_white_space(struct reading *r, const struct json *value, void *target)
{
	read_watch_limit(r, value, target, RUNTIME_WATCH_WHITE_SPACE_MIN);
}

static void read_watch_loop(struct reading *r, const struct json *value, void *target)
{
	read_watch_limit(r, value, target, RUNTIME_WATCH_LOOP_MIN);
}

static void read_watch_schema(struct reading *r, const struct json *value, void *target)
{
	if (expect(r, value, JSON_BOOLEAN, "true or false"))
		*(bool *)target = !value->boolean;
}

static void read_stream_watch(struct reading *r, const struct json *value, void *target)
{
	struct runtime_config *runtime = target;
	const struct key keys[] = {
		{"whiteSpace", read_watch_white_space, &runtime->watch_white_space, NULL},
		{"loopBytes", read_watch_loop, &runtime->watch_loop_bytes, NULL},
		{"schema", read_watch_schema, &runtime->watch_no_schema, NULL},
	};

	if (expect(r, value, JSON_OBJECT, "a mapping with whiteSpace, loopBytes and schema"))
		take_keys(r, value, keys, COUNT_OF(keys));
}

static void read_secret_name(struct reading *r, const struct json *value, void *target)
{
	const struct key keys[] = {{"secret", read_text, target, NULL}};

	if (json_is(value, JSON_STRING))
		complain(r, false, "secrets: {NAME: {file: …}} and apiKey: {secret: NAME}", "a key is never written into the configuration itself");
	else if (expect(r, value, JSON_OBJECT, "{secret: NAME}"))
		take_keys(r, value, keys, COUNT_OF(keys));
}

/* For a header of requests to this URL (NULL: it is wrong already). The secrets were read before all others, wherever they stand in the file. A
 * secret without `hosts` may go to runtimes alone. Returns its value, or NULL: a problem was added. */
static const char *use_secret(struct reading *r, const char *name, const char *url, bool is_runtime)
{
	for (size_t i = 0; i < r->config->secret_count; i++) {
		struct secret_config *secret = &r->config->secrets[i];
		if (strcmp(secret->name, name) != 0)
			continue;
		if (secret->value && strpbrk(secret->value, "\r\n"))
			complain(r, false, "a key is one line", "secret '%s' holds a line break, which no header can carry", name);
		if ((secret->hosts || !is_runtime) && url) {
			const char *host = url_host(&r->config->arena, url);
			if (!secret_allows_host(secret, host))
				complain(r, false, "add it to the secret's hosts if that is meant", "secret '%s' may not be sent to %s", name, host);
		}
		return secret->value;
	}
	complain(r, false, "name it under secrets:", "there is no secret '%s'", name);
	return NULL;
}

/* --- launch -------------------------------------------------------------------------------------------------------- */

/* Arguments and variables are shown by `ps`, kept in the journal and given to somebody else's program: no place for a secret. */
static void refuse_secret_in(struct reading *r, const char *text)
{
	for (size_t i = 0; i < r->config->secret_count; i++) {
		const struct secret_config *secret = &r->config->secrets[i];
		if (secret->value && strstr(text, secret->value))
			complain(r, false, "give the runtime a file of its own to read it from", "this holds the secret '%s', which never goes to a program that is launched", secret->name);
	}
}

/* A list of texts that ends with NULL, for execve(). */
static void read_words(struct reading *r, const struct json *value, void *target)
{
	const char ***words = target;
	const struct json *texts = NULL;
	size_t errors_before = r->problems->errors, bytes = 0;

	read_texts(r, value, &texts);
	if (r->problems->errors != errors_before)
		return;
	if (json_count(texts) > LAUNCHER_WORDS_MAX)
		complain(r, false, NULL, "%zu words are over the limit of %d", json_count(texts), LAUNCHER_WORDS_MAX);
	else if (json_count(texts) == 0)
		complain(r, false, NULL, "must not be empty");
	const char **made = arena_zero(&r->config->arena, (json_count(texts) + 1) * sizeof *made);
	for (size_t i = 0; i < json_count(texts); i++) {
		made[i] = json_at(texts, i)->string.text;
		bytes += strlen(made[i]) + 1;
		refuse_secret_in(r, made[i]);
	}
	if (bytes > LAUNCHER_WORDS_BYTES_MAX)
		complain(r, false, NULL, "%zu bytes of words are over the limit of %d", bytes, LAUNCHER_WORDS_BYTES_MAX);
	*words = made;
}

/* Of what is started: a path is looked at from no particular folder. */
static void read_argv(struct reading *r, const struct json *value, void *target)
{
	const char ***argv = target;

	read_words(r, value, target);
	if (*argv && (*argv)[0] && strchr((*argv)[0], '/') && (*argv)[0][0] != '/')
		complain(r, false, NULL, "the program is given by its whole path, or by a name that is looked for along PATH");
}

static bool is_variable(const char *name)
{
	if (!*name || (*name >= '0' && *name <= '9'))
		return false;
	for (; *name; name++)
		if (*name != '_' && !(*name >= 'A' && *name <= 'Z') && !(*name >= 'a' && *name <= 'z') && !(*name >= '0' && *name <= '9'))
			return false;
	return true;
}

/* `env` and `inherit` as they were read, until both are there. */
struct launch_reading {
	struct launch_config *launch;
	const struct json *env, *inherit;
};

static void read_env(struct reading *r, const struct json *value, void *target)
{
	struct launch_reading *own = target;

	if (!expect(r, value, JSON_OBJECT, "a mapping of variables to texts"))
		return;
	for (size_t i = 0; i < json_count(value); i++) {
		const struct json_member *member = &value->object.members[i];
		size_t before = enter(r, member->name);
		if (!is_variable(member->name))
			complain(r, true, NULL, "not the name of a variable");
		if (!json_is(member->value, JSON_STRING))
			complain(r, false, "put it in quotes", "expected a text, found %s", json_type_name(member->value->type));
		else
			refuse_secret_in(r, member->value->string.text);
		leave(r, before);
	}
	own->env = value;
}

static void read_inherit(struct reading *r, const struct json *value, void *target)
{
	struct launch_reading *own = target;
	size_t errors_before = r->problems->errors;
	const struct json *names = NULL;

	read_texts(r, value, &names);
	for (size_t i = 0; r->problems->errors == errors_before && i < json_count(names); i++) {
		const char *name = json_at(names, i)->string.text;
		size_t before = enter_item(r, i);
		if (!is_variable(name))
			complain(r, false, NULL, "not the name of a variable");
		else if (strncmp(name, "REPRISE_", 8) == 0 || strcmp(name, "CREDENTIALS_DIRECTORY") == 0 || strcmp(name, "NOTIFY_SOCKET") == 0)
			complain(r, false, NULL, "%s is the daemon's own and goes to nobody", name);
		else if (getenv(name))
			refuse_secret_in(r, getenv(name));
		leave(r, before);
	}
	own->inherit = names;
}

/* What is written goes before what is inherited. */
static void make_env(struct reading *r, const struct launch_reading *own)
{
	size_t count = 0, inherited = 0, bytes = 0, most = json_count(own->env) + json_count(own->inherit) + 1;
	const char **env = arena_zero(&r->config->arena, most * sizeof *env), **names = arena_zero(&r->config->arena, most * sizeof *names);

	for (size_t i = 0; i < json_count(own->env); i++) {
		const struct json_member *member = &own->env->object.members[i];
		env[count++] = arena_printf(&r->config->arena, "%s=%s", member->name, member->value->string.text);
	}
	for (size_t i = 0; i < json_count(own->inherit); i++) {
		const char *name = json_at(own->inherit, i)->string.text, *text = getenv(name);
		if (!text || !utf8_valid(bytes_text(text), NULL) || json_get(own->env, name))
			continue;
		env[count++] = arena_printf(&r->config->arena, "%s=%s", name, text);
		names[inherited++] = name;
	}
	for (size_t i = 0; i < count; i++)
		bytes += strlen(env[i]) + 1;
	if (count > LAUNCHER_WORDS_MAX || bytes > LAUNCHER_WORDS_BYTES_MAX)
		complain(r, false, NULL, "%zu variables of %zu bytes are over the limit of %d and %d", count, bytes, LAUNCHER_WORDS_MAX, LAUNCHER_WORDS_BYTES_MAX);
	own->launch->env = env;
	own->launch->inherited = names;
}

static void read_absolute(struct reading *r, const struct json *value, void *target)
{
	const char **path = target;

	read_path(r, value, target);
	if (*path && (*path)[0] != '/')
		complain(r, false, NULL, "must be a whole path, from /");
}

static void read_ready_path(struct reading *r, const struct json *value, void *target)
{
	const char **path = target;

	read_text(r, value, target);
	if (*path && ((*path)[0] != '/' || strpbrk(*path, " \t\r\n#") || strlen(*path) >= CONFIG_PATH_MAX))
		complain(r, false, "/health", "the path of a URL: it begins with / and has no spaces");
}

static void read_limited_duration(struct reading *r, const struct json *value, int64_t *ms, int64_t max)
{
	read_duration(r, value, ms);
	if (*ms > max)
		complain(r, false, NULL, "%lld ms are over the limit of %lld ms", (long long)*ms, (long long)max);
}

static void read_within(struct reading *r, const struct json *value, void *target)
{
	read_limited_duration(r, value, target, LAUNCH_WITHIN_MS_MAX);
}

static void read_grace(struct reading *r, const struct json *value, void *target)
{
	read_limited_duration(r, value, target, LAUNCH_GRACE_MS_MAX);
}

static void read_ready(struct reading *r, const struct json *value, void *target)
{
	struct launch_config *launch = target;
	const struct key keys[] = {{"path", read_ready_path, &launch->ready_path, NULL}, {"within", read_within, &launch->ready_ms, NULL}};

	if (expect(r, value, JSON_OBJECT, "a mapping with path and within"))
		take_keys(r, value, keys, COUNT_OF(keys));
}

static void read_stopping(struct reading *r, const struct json *value, void *target)
{
	struct launch_config *launch = target;
	const struct key keys[] = {{"grace", read_grace, &launch->grace_ms, NULL}};

	if (expect(r, value, JSON_OBJECT, "a mapping with grace"))
		take_keys(r, value, keys, COUNT_OF(keys));
}

static void read_restart_attempts(struct reading *r, const struct json *value, void *target)
{
	unsigned *attempts = target;

	if (!json_is_integer(value) || value->number < 0 || value->number > LAUNCH_ATTEMPTS_MAX)
		complain(r, false, NULL, "expected a whole number from 0 to %d", LAUNCH_ATTEMPTS_MAX);
	else
		*attempts = (unsigned)value->number;
}

static void read_restart(struct reading *r, const struct json *value, void *target)
{
	struct launch_config *launch = target;
	const struct key keys[] = {
		{"attempts", read_restart_attempts, &launch->restart_attempts, NULL},
		{"floor", read_duration, &launch->restart_floor_ms, NULL},
		{"cap", read_duration, &launch->restart_cap_ms, NULL},
		{"settled", read_duration, &launch->restart_settled_ms, NULL},
	};

	if (!expect(r, value, JSON_OBJECT, "a mapping with attempts, floor, cap and settled"))
		return;
	take_keys(r, value, keys, COUNT_OF(keys));
	if (launch->restart_floor_ms > launch->restart_cap_ms)
		complain(r, false, NULL, "floor (%lld ms) is above cap (%lld ms)", (long long)launch->restart_floor_ms, (long long)launch->restart_cap_ms);
}

static void read_on_daemon_exit(struct reading *r, const struct json *value, void *target)
{
	const char *word = NULL;

	read_text(r, value, &word);
	if (word && strcmp(word, "stop") != 0 && strcmp(word, "keep") != 0)
		complain(r, false, "one of: stop, keep", "unknown word '%s'", word);
	*(bool *)target = word && strcmp(word, "keep") == 0;
}

/* --- watchdog ------------------------------------------------------------------------------------------------------ */

static void read_probe_command(struct reading *r, const struct json *value, void *target)
{
	struct watch_config *watch = target;

	watch->kind = WATCH_COMMAND;
	watch->name = "command";
	read_words(r, value, &watch->argv);
}

/* Counters of Windows, by their English names; both commands reach the host from WSL. */
static const char *read_counter(struct reading *r, const struct json *value)
{
	static const struct {
		const char *word, *path;
	} known[] = {{"sharedGpuMemory", "\\GPU Adapter Memory(*)\\Shared Usage"}, {"dedicatedGpuMemory", "\\GPU Adapter Memory(*)\\Dedicated Usage"}};
	const char *text = NULL;

	read_text(r, value, &text);
	for (size_t i = 0; text && i < COUNT_OF(known); i++)
		if (strcmp(known[i].word, text) == 0)
			return known[i].path;
	if (text && (text[0] != '\\' || strpbrk(text, "'\"`$\r\n")))
		complain(r, false, "one of: sharedGpuMemory, dedicatedGpuMemory, or the path of a counter: \\GPU Adapter Memory(*)\\Shared Usage", "not a counter: '%s'", text);
	return text ? text : "";
}

static const char **make_words(struct arena *arena, const char *const *from, size_t count)
{
	const char **words = arena_zero(arena, (count + 1) * sizeof *words);

	memcpy(words, from, count * sizeof *words);
	return words;
}

static void read_probe_typeperf(struct reading *r, const struct json *value, void *target)
{
	const char *const words[] = {"typeperf.exe", read_counter(r, value), "-sc", "1"};
	struct watch_config *watch = target;

	watch->kind = WATCH_COMMAND;
	watch->name = "typeperf";
	watch->argv = make_words(&r->config->arena, words, COUNT_OF(words));
}

static void read_probe_powershell(struct reading *r, const struct json *value, void *target)
{
	const char *script = arena_printf(&r->config->arena,
		"(Get-Counter '%s').CounterSamples | ForEach-Object { $_.InstanceName + ',' + [int64]$_.CookedValue }", read_counter(r, value));
	const char *const words[] = {"powershell.exe", "-NoProfile", "-NonInteractive", "-Command", script};
	struct watch_config *watch = target;

	watch->kind = WATCH_COMMAND;
	watch->name = "powershell";
	watch->argv = make_words(&r->config->arena, words, COUNT_OF(words));
}

static void read_probe_nvidia(struct reading *r, const struct json *value, void *target)
{
	struct watch_config *watch = target;

	watch->kind = WATCH_NVIDIA;
	watch->name = "nvidia";
	if (json_is_integer(value) && value->number >= 0 && value->number < 1000)
		watch->device = arena_printf(&r->config->arena, "%.0f", value->number);
	else
		read_text(r, value, &watch->device);
}

static void read_probe_amd(struct reading *r, const struct json *value, void *target)
{
	struct watch_config *watch = target;
	const char *memory = NULL;
	const struct key keys[] = {{"memory", read_text, &memory, NULL}, {"card", read_text, &watch->device, NULL}};

	if (!expect(r, value, JSON_OBJECT, "a mapping such as {memory: gtt, card: card0}"))
		return;
	take_keys(r, value, keys, COUNT_OF(keys));
	if (!memory || (strcmp(memory, "vram") != 0 && strcmp(memory, "gtt") != 0))
		complain(r, false, "vram: on the card; gtt: of the host, what has spilled", "memory is vram or gtt");
	watch->kind = memory && strcmp(memory, "gtt") == 0 ? WATCH_AMD_GTT : WATCH_AMD_VRAM;
	watch->name = watch->kind == WATCH_AMD_GTT ? "amd-gtt" : "amd-vram";
}

static void read_probe_memory(struct reading *r, const struct json *value, void *target)
{
	struct watch_config *watch = target;
	const char *word = NULL;

	read_text(r, value, &word);
	if (word && strcmp(word, "process") != 0 && strcmp(word, "cgroup") != 0)
		complain(r, false, "one of: process, cgroup", "unknown word '%s'", word);
	watch->kind = word && strcmp(word, "cgroup") == 0 ? WATCH_CGROUP : WATCH_PROCESS;
	watch->name = watch->kind == WATCH_CGROUP ? "cgroup" : "process";
}

static void read_probe(struct reading *r, const struct json *value, void *target)
{
	const struct key keys[] = {
		{"command", read_probe_command, target, NULL}, {"typeperf", read_probe_typeperf, target, NULL}, {"powershell", read_probe_powershell, target, NULL},
		{"nvidia", read_probe_nvidia, target, NULL},   {"amd", read_probe_amd, target, NULL},		{"memory", read_probe_memory, target, NULL},
	};

	if (!expect(r, value, JSON_OBJECT, "a mapping such as {nvidia: 0} or {command: [program, argument]}"))
		return;
	take_keys(r, value, keys, COUNT_OF(keys));
	if (json_count(value) != 1)
		complain(r, false, NULL, "a probe is exactly one of command, typeperf, powershell, nvidia, amd and memory");
}

static void read_grow(struct reading *r, const struct json *value, void *target)
{
	if (expect(r, value, JSON_BOOLEAN, "true or false"))
		*(bool *)target = value->boolean;
}

static void read_samples(struct reading *r, const struct json *value, void *target)
{
	read_count_up_to(r, value, target, WATCHDOG_SAMPLES_KEPT);
}

static void read_unit(struct reading *r, const struct json *value, void *target)
{
	uint64_t bytes = 1;
	const char *word = NULL;

	read_text(r, value, &word);
	if (word && !size_parse(arena_printf(&r->config->arena, "1%s", word), &bytes))
		complain(r, false, "one of: B, KiB, MiB, GiB, TiB, kB, MB, GB, TB", "unknown unit '%s'", word);
	*(double *)target = (double)bytes;
}

static void read_watch(struct reading *r, const struct json *value, struct watch_config *watch)
{
	uint64_t limit = 0;
	const char *name = NULL;

	*watch = (struct watch_config){.name = "probe", .samples = 3, .every_ms = 5000, .within_ms = 10000, .unit = 1};
	const struct key keys[] = {
		{"name", read_text, &name, NULL},	    {"probe", read_probe, watch, NULL},		    {"limit", read_size, &limit, NULL},
		{"grow", read_grow, &watch->grow, NULL},    {"samples", read_samples, &watch->samples, NULL}, {"every", read_duration, &watch->every_ms, NULL},
		{"within", read_duration, &watch->within_ms, NULL}, {"unit", read_unit, &watch->unit, NULL},
	};
	if (!expect(r, value, JSON_OBJECT, "a mapping with probe and limit"))
		return;
	take_keys(r, value, keys, COUNT_OF(keys));
	if (!json_get(value, "probe") || !json_get(value, "limit"))
		complain(r, false, NULL, "a probe of the watchdog has `probe` and `limit`");
	if (watch->every_ms > LAUNCH_WITHIN_MS_MAX || watch->within_ms > LAUNCH_WITHIN_MS_MAX)
		complain(r, false, NULL, "every and within are at most %d ms", LAUNCH_WITHIN_MS_MAX);
	watch->limit = (double)limit;
	if (name)
		watch->name = name;
}

static void read_watchdog(struct reading *r, const struct json *value, void *target)
{
	struct launch_config *launch = target;

	if (!expect(r, value, JSON_ARRAY, "a list of probes"))
		return;
	if (json_count(value) > LAUNCH_WATCHES_MAX) {
		complain(r, false, NULL, "%zu probes are over the limit of %d", json_count(value), LAUNCH_WATCHES_MAX);
		return;
	}
	struct watch_config *watches = arena_zero(&r->config->arena, (json_count(value) + 1) * sizeof *watches);
	for (size_t i = 0; i < json_count(value); i++) {
		size_t before = enter_item(r, i);
		read_watch(r, json_at(value, i), &watches[i]);
		leave(r, before);
	}
	launch->watches = watches;
	launch->watch_count = json_count(value);
}

static void read_launch(struct reading *r, const struct json *value, void *target)
{
	const struct launch_config **result = target;
	struct launch_config *launch = arena_zero(&r->config->arena, sizeof *launch);
	struct launch_reading own = {.launch = launch};
	size_t errors_before = r->problems->errors;

	*launch = (struct launch_config){.ready_path = "/v1/models", .ready_ms = 20 * 60 * 1000, .grace_ms = 10000, .restart_attempts = 5, .restart_floor_ms = 1000,
					 .restart_cap_ms = 60000, .restart_settled_ms = 10 * 60 * 1000};
	const struct key keys[] = {
		{"argv", read_argv, &launch->argv, NULL},
		{"env", read_env, &own, NULL},
		{"inherit", read_inherit, &own, NULL},
		{"workingFolder", read_absolute, &launch->folder, NULL},
		{"ready", read_ready, launch, NULL},
		{"stop", read_stopping, launch, NULL},
		{"restart", read_restart, launch, NULL},
		{"container", read_text, &launch->container, NULL},
		{"onDaemonExit", read_on_daemon_exit, &launch->keep, NULL},
		{"watchdog", read_watchdog, launch, NULL},
		{"systemd", NULL, NULL, "it is started by reprise-launcher, outside of any confinement of the daemon"},
	};
	if (!expect(r, value, JSON_OBJECT, "a mapping with argv"))
		return;
	take_keys(r, value, keys, COUNT_OF(keys));
	if (!json_get(value, "argv"))
		complain(r, false, "argv: [llama-server, -m, /models/m.gguf, --port, '8080']", "launch has no argv");
	if (r->problems->errors != errors_before)
		return;
	make_env(r, &own);
	*result = launch;
}

/* Two runtimes of one server that differ in how many models it holds cannot both be right. */
static void check_loaded_models(struct reading *r, const struct runtime_config *runtime)
{
	for (size_t i = 0; i < r->config->runtime_count && runtime->url && runtime->loaded_models > 0; i++) {
		const struct runtime_config *other = &r->config->runtimes[i];

		if (other->url && other->loaded_models > 0 && other->loaded_models != runtime->loaded_models && strcmp(other->url, runtime->url) == 0)
			complain(r, false, "it is one server: say one number, or say it once", "runtimes '%s' and '%s' have the same url, but loadedModels %u and %u",
				 other->name, runtime->name, other->loaded_models, runtime->loaded_models);
	}
}

static void read_runtime(struct reading *r, const char *name, const struct json *value)
{
	size_t index = r->config->runtime_count;
	struct runtime_config *runtime = &r->config->runtimes[index];
	const char *secret = NULL;

	*runtime = (struct runtime_config){
		.name = name, .concurrency = 1, .connect_ms = 5000, .first_token_ms = 120000, .between_tokens_ms = 30000, .total_ms = 20 * 60 * 1000,
		.retry_attempts = 3, .retry_floor_ms = 500, .retry_cap_ms = 60000, .probe_every_ms = 5 * 60 * 1000,
		.watch_white_space = WATCH_WHITE_SPACE, .watch_loop_bytes = WATCH_LOOP_BYTES,
		.priority = PRIORITY_USUAL, .rate_per_ms = 60 * 1000,
	};
	const struct key keys[] = {
		{"kind", read_kind, &runtime->kind, NULL},
		{"url", read_url, &runtime->url, NULL},
		{"model", read_text, &runtime->model, NULL},
		{"weights", read_weights, runtime, NULL},
		{"contextLength", read_context_length, &runtime->context_length, NULL},
		{"probeEvery", read_probe_every, &runtime->probe_every_ms, NULL},
		{"concurrency", read_concurrency, runtime, NULL},
		{"priority", read_priority, &runtime->priority, NULL},
		{"loadedModels", read_loaded_models, &runtime->loaded_models, NULL},
		{"rate", read_rate, runtime, NULL},
		{"budget", read_budget, runtime, NULL},
		{"sampling", read_sampling, &runtime->sampling, NULL},
		{"timeouts", read_timeouts, runtime, NULL},
		{"retry", read_retry, runtime, NULL},
		{"watch", read_stream_watch, runtime, NULL},
		{"apiKey", read_secret_name, &secret, NULL},
		{"launch", read_launch, &runtime->launch, NULL},
	};

	if (!id_valid(name))
		complain(r, true, NULL, "a runtime's name is 1 to %d of A-Z a-z 0-9 . _ -", NAME_LEN_MAX);
	if (!expect(r, value, JSON_OBJECT, "a mapping with kind and url"))
		return;
	size_t errors_before = r->problems->errors;
	take_keys(r, value, keys, COUNT_OF(keys));
	if (!json_get(value, "kind"))
		complain(r, false, kinds_hint(r), "runtime '%s' has no kind", name);
	else if (!runtime->url && runtime->kind && strcmp(runtime->kind, "simulator") != 0 && !json_get(value, "url"))
		complain(r, false, NULL, "runtime '%s' has no url", name);
	else if (!runtime->url && json_get(value, "launch"))
		complain(r, false, "give its url, which argv makes it listen at", "runtime '%s' has launch, but no url", name);
	runtime->launcher = -1;
	if (secret) {
		size_t before = enter(r, "apiKey");
		runtime->api_key = use_secret(r, secret, runtime->url, true);
		leave(r, before);
	}
	if (r->problems->errors == errors_before && runtime->kind)
		check_sampling(r, runtime);
	check_loaded_models(r, runtime);
	if (r->problems->errors == errors_before)
		r->config->runtime_starts_simulator[index] = strcmp(runtime->kind, "simulator") == 0 && !runtime->url;
	r->config->runtime_count++;
}

static void read_runtimes(struct reading *r, const struct json *value, void *target)
{
	size_t count = json_count(value);

	(void)target;
	if (!expect(r, value, JSON_OBJECT, "a mapping of names to runtimes"))
		return;
	if (count > CONFIG_RUNTIMES_MAX) {
		complain(r, false, NULL, "%zu runtimes are over the limit of %d", count, CONFIG_RUNTIMES_MAX);
		return;
	}
	r->config->runtimes = arena_zero(&r->config->arena, (count + 1) * sizeof *r->config->runtimes);
	r->config->runtime_starts_simulator = arena_zero(&r->config->arena, count + 1);
	for (size_t i = 0; i < count; i++) {
		size_t before = enter(r, value->object.members[i].name);
		read_runtime(r, value->object.members[i].name, value->object.members[i].value);
		leave(r, before);
	}
}

/* --- signing, http, limits ---------------------------------------------------------------------------------------- */

static void read_key_file(struct reading *r, const struct json *value, void *target)
{
	const struct key keys[] = {{"file", read_path, target, NULL}};

	if (expect(r, value, JSON_OBJECT, "a mapping with file"))
		take_keys(r, value, keys, COUNT_OF(keys));
}

static void read_checkpoint(struct reading *r, const struct json *value, void *target)
{
	const struct key keys[] = {{"entries", read_count, &r->config->checkpoint_entries, NULL}, {"every", read_duration, &r->config->checkpoint_every_ms, NULL}};

	(void)target;
	if (expect(r, value, JSON_OBJECT, "a mapping with entries and every"))
		take_keys(r, value, keys, COUNT_OF(keys));
}

static void read_signing(struct reading *r, const struct json *value, void *target)
{
	const struct key keys[] = {
		{"fact", read_key_file, &r->config->fact_key_file, NULL},
		{"log", read_key_file, &r->config->log_key_file, NULL},
		{"checkpoint", read_checkpoint, NULL, NULL},
		{"keyring", NULL, NULL, "reprise key export --format ring makes one from the daemon's keys"},
	};

	(void)target;
	if (expect(r, value, JSON_OBJECT, "a mapping with fact, log and checkpoint"))
		take_keys(r, value, keys, COUNT_OF(keys));
}

static void read_allow(struct reading *r, const struct json *value, void *target)
{
	struct config *config = r->config;

	(void)target;
	if (!expect(r, value, JSON_ARRAY, "a list such as [public, '127.0.0.0/8']"))
		return;
	if (json_count(value) > ADDRESS_RULES_MAX) {
		complain(r, false, NULL, "%zu rules are over the limit of %d", json_count(value), ADDRESS_RULES_MAX);
		return;
	}
	config->http_allow = arena_zero(&config->arena, (json_count(value) + 1) * sizeof *config->http_allow);
	for (size_t i = 0; i < json_count(value); i++) {
		size_t before = enter_item(r, i);
		const char **rule = &config->http_allow[config->http_allow_count];
		*rule = NULL;
		read_text(r, json_at(value, i), rule);
		if (*rule && **rule) {
			struct error error;
			struct address_rules *rules = address_rules_new(rule, 1, &error);
			if (rules)
				config->http_allow_count++;
			else
				complain(r, false, NULL, "%s", error.message);
			address_rules_free(rules);
		}
		leave(r, before);
	}
}

static void read_resources(struct reading *r, const struct json *value, void *target)
{
	struct config *config = r->config;

	(void)target;
	if (!expect(r, value, JSON_ARRAY, "a list of folders such as [/etc/reprise/schemas]"))
		return;
	if (json_count(value) > CONFIG_RESOURCE_FOLDERS_MAX) {
		complain(r, false, NULL, "%zu folders are over the limit of %d (CONFIG_RESOURCE_FOLDERS_MAX)", json_count(value), CONFIG_RESOURCE_FOLDERS_MAX);
		return;
	}
	config->resource_folders = arena_zero(&config->arena, (json_count(value) + 1) * sizeof *config->resource_folders);
	for (size_t i = 0; i < json_count(value); i++) {
		size_t before = enter_item(r, i);
		const char **folder = &config->resource_folders[config->resource_folder_count];
		*folder = NULL;
		read_text(r, json_at(value, i), folder);
		if (*folder && **folder != '/')
			complain(r, false, NULL, "'%.200s' is no absolute path", *folder);
		else if (*folder)
			config->resource_folder_count++;
		leave(r, before);
	}
}

static void read_http(struct reading *r, const struct json *value, void *target)
{
	const struct key keys[] = {{"allow", read_allow, NULL, NULL}};

	(void)target;
	if (expect(r, value, JSON_OBJECT, "a mapping with allow"))
		take_keys(r, value, keys, COUNT_OF(keys));
}

static void read_run_budget(struct reading *r, const struct json *value, void *target)
{
	struct budget_amount *limit = target;
	int64_t seconds = BUDGET_NONE;

	read_amounts(r, value, "run", "run: {tokens: 200000, seconds: 3600}", &limit->tokens, &seconds);
	limit->us = seconds == BUDGET_NONE ? BUDGET_NONE : seconds * BUDGET_US;
}

static void read_limits(struct reading *r, const struct json *value, void *target)
{
	struct config_limits *limits = &r->config->limits;
	const struct key keys[] = {
		{"connections", read_count, &limits->connections, NULL},
		{"waiters", read_count, &limits->waiters, NULL},
		{"streams", read_count, &limits->streams, NULL},
		{"body", read_size, &limits->body, NULL},
		{"document", read_size, &limits->document, NULL},
		{"bodies", read_size, &limits->bodies, NULL},
		{"wakeEvery", read_duration, &limits->wake_every_ms, NULL},
		{"idle", read_duration, &limits->idle_ms, NULL},
		{"request", read_duration, &limits->request_ms, NULL},
		{"reserve", read_size, &limits->reserve, NULL},
		{"lowSpace", read_size, &limits->low_space, NULL},
		{"wal", read_size, &limits->wal, NULL},
		{"run", read_run_budget, &limits->run, NULL},
	};

	(void)target;
	if (!expect(r, value, JSON_OBJECT, "a mapping of limits"))
		return;
	take_keys(r, value, keys, COUNT_OF(keys));
	/* One value of the journal holds no more. */
	const struct {
		const char *name;
		uint64_t bytes;
	} sizes[] = {{"body", limits->body}, {"document", limits->document}};
	for (size_t i = 0; i < COUNT_OF(sizes); i++) {
		size_t before = enter(r, sizes[i].name);
		if (sizes[i].bytes > CONFIG_BODY_MAX)
			complain(r, false, NULL, "%llu bytes are over the limit of 64 MiB", (unsigned long long)sizes[i].bytes);
		leave(r, before);
	}
	/* Less than the log has in daily work would close admission for nothing. */
	if (limits->wal < (uint64_t)CONFIG_WAL_MIN) {
		size_t before = enter(r, "wal");
		complain(r, false, NULL, "%llu bytes are below the least of 32 MiB", (unsigned long long)limits->wal);
		leave(r, before);
	}
}

/* --- events ------------------------------------------------------------------------------------------------------- */

static void read_window(struct reading *r, const struct json *value, void *target)
{
	int64_t *ms = target;

	if (json_is(value, JSON_STRING) && (strcmp(value->string.text, "0s") == 0 || strcmp(value->string.text, "PT0S") == 0))
		*ms = 0;
	else
		read_duration(r, value, target);
}

static void read_events(struct reading *r, const struct json *value, void *target)
{
	struct config *config = r->config;
	const struct key keys[] = {{"window", read_window, &config->events_window_ms, NULL}, {"keep", read_duration, &config->events_keep_ms, NULL}};

	(void)target;
	if (!expect(r, value, JSON_OBJECT, "a mapping with window and keep"))
		return;
	take_keys(r, value, keys, COUNT_OF(keys));
	if (config->events_keep_ms < config->events_window_ms)
		complain(r, false, NULL, "keep (%lld ms) is shorter than window (%lld ms)", (long long)config->events_keep_ms, (long long)config->events_window_ms);
}

/* --- retention ---------------------------------------------------------------------------------------------------- */

static bool is_word(const struct json *value, const char *word)
{
	return json_is(value, JSON_STRING) && strcmp(value->string.text, word) == 0;
}

static void read_time_kept(struct reading *r, const struct json *value, void *target)
{
	int64_t *ms = target;

	if (is_word(value, "forever"))
		*ms = 0;
	else
		read_duration(r, value, target);
}

static void read_facts_kept(struct reading *r, const struct json *value, void *target)
{
	bool *drop = target;

	if (!is_word(value, "forever") && !is_word(value, "runs"))
		complain(r, false, "runs: as long as the run that found them", "expected forever or runs");
	*drop = is_word(value, "runs");
}

static void read_retention(struct reading *r, const struct json *value, void *target)
{
	struct config *config = r->config;
	int64_t tokens_ms = 0; /* live tokens are kept by nobody: whatever is asked for holds */
	const struct key keys[] = {
		{"runs", read_time_kept, &config->retention_runs_ms, NULL},
		{"entries", read_time_kept, &config->retention_entries_ms, NULL},
		{"tokens", read_duration, &tokens_ms, NULL},
		{"keepFacts", read_facts_kept, &config->retention_drop_facts, NULL},
	};

	(void)target;
	if (!expect(r, value, JSON_OBJECT, "a mapping with runs, entries, tokens and keepFacts"))
		return;
	take_keys(r, value, keys, COUNT_OF(keys));
	if (config->retention_entries_ms != 0 && (config->retention_runs_ms == 0 || config->retention_entries_ms < config->retention_runs_ms))
		complain(r, false, "entries go after their runs: give entries a longer time, or forever", "entries is shorter than runs");
}

static void read_types(struct reading *r, const struct json *value, void *target)
{
	const struct json **types = target;

	if (!expect(r, value, JSON_ARRAY, "a list such as [com.example.paid, 'io.serverlessworkflow.workflow.*']"))
		return;
	if (json_count(value) == 0 || json_count(value) > CONFIG_SINK_WORDS_MAX)
		complain(r, false, "left out, every event is sent", "%zu types; 1 to %d are possible (CONFIG_SINK_WORDS_MAX)", json_count(value), CONFIG_SINK_WORDS_MAX);
	for (size_t i = 0; i < json_count(value); i++) {
		size_t before = enter_item(r, i);
		const char *text = NULL;
		read_text(r, json_at(value, i), &text);
		if (text && strchr(text, '*') && strchr(text, '*')[1])
			complain(r, false, NULL, "'*' stands at the end of a type alone");
		leave(r, before);
	}
	*types = value;
}

/* What curl, the connection and the delivery itself say in a request. */
static bool is_own_header(const char *name)
{
	static const char *const ours[] = {"Content-Length", "Transfer-Encoding", "Connection", "Expect", "Upgrade", "Host", "Idempotency-Key"};

	for (size_t i = 0; i < COUNT_OF(ours); i++)
		if (strcasecmp(name, ours[i]) == 0)
			return true;
	return false;
}

static void read_sink_headers(struct reading *r, const struct json *value, void *target)
{
	const struct json **headers = target;

	if (!expect(r, value, JSON_OBJECT, "a mapping of names to texts or {secret: NAME}"))
		return;
	if (json_count(value) > CONFIG_SINK_WORDS_MAX)
		complain(r, false, NULL, "%zu headers are over the limit of %d (CONFIG_SINK_WORDS_MAX)", json_count(value), CONFIG_SINK_WORDS_MAX);
	for (size_t i = 0; i < json_count(value); i++) {
		size_t before = enter(r, value->object.members[i].name);
		const char *text = NULL;
		if (json_is(value->object.members[i].value, JSON_OBJECT))
			read_secret_name(r, value->object.members[i].value, &text);
		else
			read_text(r, value->object.members[i].value, &text);
		const char *name = value->object.members[i].name;
		if (name[0] == '\0' || name[strspn(name, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")] != '\0')
			complain(r, true, "letters, digits and - do", "a header's name holds no blank, colon or control character");
		if (is_own_header(name))
			complain(r, true, NULL, "the delivery says this itself");
		if (strcasecmp(name, "Content-Type") == 0)
			complain(r, true, NULL, "the content type of an event is its own");
		if (text && strpbrk(text, "\r\n"))
			complain(r, false, NULL, "a header is one line");
		leave(r, before);
	}
	*headers = value;
}

static void use_sink_secrets(struct reading *r, const struct sink_config *sink)
{
	size_t before = enter(r, "headers"), count = 0;
	for (size_t i = 0; i < json_count(sink->headers); i++) {
		const struct json_member *member = &sink->headers->object.members[i];
		const char *secret = json_get_text(member->value, "secret");
		size_t inner = enter(r, member->name);
		if (secret && ++count > CONFIG_SINK_SECRETS_MAX)
			complain(r, false, NULL, "more than %d headers with secrets (CONFIG_SINK_SECRETS_MAX)", CONFIG_SINK_SECRETS_MAX);
		else if (secret)
			use_secret(r, secret, sink->url, false);
		leave(r, inner);
	}
	leave(r, before);
	before = enter(r, "apiKey");
	if (sink->api_key)
		use_secret(r, sink->api_key, sink->url, false);
	leave(r, before);
}

static void read_sinks(struct reading *r, const struct json *value, void *target)
{
	struct config *config = r->config;

	(void)target;
	if (!expect(r, value, JSON_OBJECT, "a mapping of names to sinks"))
		return;
	if (json_count(value) > CONFIG_SINKS_MAX) {
		complain(r, false, NULL, "%zu sinks are over the limit of %d (CONFIG_SINKS_MAX)", json_count(value), CONFIG_SINKS_MAX);
		return;
	}
	config->sinks = arena_zero(&config->arena, (json_count(value) + 1) * sizeof *config->sinks);
	for (size_t i = 0; i < json_count(value); i++) {
		const struct json_member *member = &value->object.members[i];
		struct sink_config *sink = &config->sinks[config->sink_count];
		const struct key keys[] = {
			{"url", read_url, &sink->url, NULL},
			{"types", read_types, &sink->types, NULL},
			{"headers", read_sink_headers, &sink->headers, NULL},
			{"apiKey", read_secret_name, &sink->api_key, NULL},
		};
		size_t before = enter(r, member->name);

		*sink = (struct sink_config){.name = member->name};
		if (!id_valid(member->name))
			complain(r, true, NULL, "a sink's name is 1 to %d of A-Z a-z 0-9 . _ -", NAME_LEN_MAX);
		if (expect(r, member->value, JSON_OBJECT, "a mapping with url")) {
			take_keys(r, member->value, keys, COUNT_OF(keys));
			if (!json_get(member->value, "url"))
				complain(r, false, NULL, "sink '%s' has no url", member->name);
			use_sink_secrets(r, sink);
			config->sink_count++;
		}
		leave(r, before);
	}
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

static void read_nothing(struct reading *r, const struct json *value, void *target)
{
	(void)r, (void)value, (void)target;
}

static void read_top(struct reading *r, const struct json *root)
{
	const struct key keys[] = {
		{"data", read_path, &r->config->data_dir, NULL},
		{"listen", read_listen, NULL, NULL},
		{"secrets", read_nothing, NULL, NULL}, /* before all others */
		{"runtimes", read_runtimes, NULL, NULL},
		{"signing", read_signing, NULL, NULL},
		{"http", read_http, NULL, NULL},
		{"limits", read_limits, NULL, NULL},
		{"events", read_events, NULL, NULL},
		{"sinks", read_sinks, NULL, NULL},
		{"resources", read_resources, NULL, NULL},
		{"retention", read_retention, NULL, NULL},
	};
	const struct json *secrets = json_get(root, "secrets");

	if (secrets) {
		size_t before = enter(r, "secrets");
		read_secrets(r, secrets, NULL);
		leave(r, before);
	}
	take_keys(r, root, keys, COUNT_OF(keys));
}

void config_init(struct config *config)
{
	*config = (struct config){
		.events_window_ms = 60 * 1000, .events_keep_ms = 7LL * 24 * 3600 * 1000,
		.retention_runs_ms = 30LL * 24 * 3600 * 1000, .retention_entries_ms = 90LL * 24 * 3600 * 1000,
		.limits = {.connections = 4096, .waiters = 4096, .streams = 512, .body = 2 << 20, .document = 64 << 20, .bodies = 256 << 20,
			   .wake_every_ms = 15000, .idle_ms = 120000, .request_ms = 60000, .reserve = 16 << 20, .low_space = 32 << 20, .wal = 256 << 20, .run = BUDGET_UNLIMITED},
	};
	arena_init(&config->arena);
}

void config_close(struct config *config)
{
	for (size_t i = 0; i < config->secret_count; i++)
		if (config->secrets[i].value)
			explicit_bzero((char *)config->secrets[i].value, strlen(config->secrets[i].value));
	arena_close(&config->arena);
	config->secret_count = 0;
}

int config_parse(struct config *config, struct bytes text, struct problems *problems)
{
	struct reading r = {.config = config, .problems = problems};
	struct text_positions *positions = NULL;
	bool blank = true;

	/* A file of comments alone is a configuration in which nothing is set. */
	for (size_t i = 0; i < text.len && blank; i++) {
		if (text.data[i] == '#')
			while (i < text.len && text.data[i] != '\n')
				i++;
		else if (!strchr(" \t\r\n", text.data[i]) || text.data[i] == 0)
			blank = false;
	}
	if (blank)
		return 0;
	struct json *root = text_load(&config->arena, text, TEXT_GUESS, &positions, problems);
	if (!root)
		return ERR_INVALID;
	r.positions = positions;
	buffer_init(&r.pointer, 4 * CONFIG_FILE_MAX);
	if (expect(&r, root, JSON_OBJECT, "a mapping at the top"))
		read_top(&r, root);
	buffer_close(&r.pointer);
	return problems->errors > 0 ? ERR_INVALID : 0;
}

/* --- places ------------------------------------------------------------------------------------------------------- */

static const char *environment(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

/* The file that counts; NULL: none. One that somebody named has to be there. */
static const char *find_file(struct arena *arena, const char *option)
{
	const char *folder = environment("XDG_CONFIG_HOME"), *home = environment("HOME"), *path = option ? option : environment("REPRISE_CONFIG");

	if (path)
		return path;
	path = folder ? arena_printf(arena, "%s/reprise/reprise.yaml", folder) : home ? arena_printf(arena, "%s/.config/reprise/reprise.yaml", home) : NULL;
	if (path && access(path, F_OK) == 0)
		return path;
	return access("/etc/reprise/reprise.yaml", F_OK) == 0 ? "/etc/reprise/reprise.yaml" : NULL;
}

static const char *default_data_dir(struct arena *arena)
{
	const char *folder = environment("XDG_STATE_HOME"), *home = environment("HOME");

	if (folder)
		return arena_printf(arena, "%s/reprise", folder);
	if (geteuid() == 0 || !home)
		return "/var/lib/reprise";
	return arena_printf(arena, "%s/.local/state/reprise", home);
}

static int read_file(const char *path, struct buffer *text, struct error *error)
{
	char part[16384];
	ssize_t got;
	struct stat status;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return error_set(error, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "configuration %s: %s", path, strerror(errno));
	if (fstat(fd, &status) == 0 && S_ISDIR(status.st_mode)) {
		close(fd);
		return error_set(error, ERR_INVALID, "configuration %s: is a folder", path);
	}
	while ((got = read(fd, part, sizeof part)) > 0 && !text->overflow)
		buffer_add(text, part, (size_t)got);
	int reason = errno;
	close(fd);
	if (got < 0)
		return error_set(error, ERR_IO, "configuration %s: %s", path, strerror(reason));
	if (text->overflow)
		return error_set(error, ERR_TOO_LARGE, "configuration %s: larger than the limit of %d bytes", path, CONFIG_FILE_MAX);
	return 0;
}

int config_load(struct config *config, const struct config_options *options, struct problems *problems, struct error *error)
{
	struct buffer text;
	int code = 0;

	config_init(config);
	config->file = find_file(&config->arena, options->file);
	if (config->file && !utf8_valid(bytes_text(config->file), NULL))
		return error_set(error, ERR_INVALID, "the configuration's path is not valid UTF-8");
	buffer_init(&text, CONFIG_FILE_MAX);
	if (config->file && (code = read_file(config->file, &text, error)) == 0 && config_parse(config, buffer_bytes(&text), problems) != 0)
		code = error_set(error, ERR_INVALID, "configuration %s: %zu problem%s", config->file, problems->errors, problems->errors == 1 ? "" : "s");
	buffer_close(&text);
	if (code != 0)
		return code;

	if (options->data_dir)
		config->data_dir = options->data_dir;
	else if (environment("REPRISE_DATA"))
		config->data_dir = environment("REPRISE_DATA");
	else if (!config->data_dir)
		config->data_dir = default_data_dir(&config->arena);
	if (!utf8_valid(bytes_text(config->data_dir), NULL))
		return error_set(error, ERR_INVALID, "the data folder's path is not valid UTF-8");
	if (options->listen_count > 0) {
		config->listen_count = 0;
		for (size_t i = 0; i < options->listen_count; i++)
			if (check_listen(options->listen[i], &config->listen[config->listen_count++], error) != 0)
				return error->code;
	}
	if (config->listen_count == 0) {
		const char *path;
		if (check_listen(arena_printf(&config->arena, "unix:%s/reprise.sock", config->data_dir), &path, error) != 0)
			return error->code;
		config->listen[config->listen_count++] = path;
	}
	return 0;
}

/* --- showing ------------------------------------------------------------------------------------------------------ */

static void set_duration(struct arena *arena, struct json *object, const char *name, int64_t ms)
{
	json_set(arena, object, name, json_printf(arena, ms % 1000 == 0 ? "%llds" : "%lldms", (long long)(ms % 1000 == 0 ? ms / 1000 : ms)));
}

/* Of variables the names alone, of arguments no secret. */
static struct json *launch_json(const struct launch_config *launch, struct arena *arena)
{
	struct json *json = json_object(arena), *env = json_array(arena), *ready = json_object(arena), *stop = json_object(arena), *restart = json_object(arena),
		    *watchdog = json_array(arena);

	json_set(arena, json, "argv", launch_argv_json(arena, launch->argv));
	for (size_t i = 0; launch->env[i]; i++)
		json_add(arena, env, json_text_len(arena, launch->env[i], strcspn(launch->env[i], "=")));
	json_set(arena, json, "env", env);
	json_set(arena, json, "inherit", launch_argv_json(arena, launch->inherited));
	json_set_text(arena, json, "workingFolder", launch->folder ? launch->folder : "/");
	json_set_text(arena, ready, "path", launch->ready_path);
	set_duration(arena, ready, "within", launch->ready_ms);
	json_set(arena, json, "ready", ready);
	set_duration(arena, stop, "grace", launch->grace_ms);
	json_set(arena, json, "stop", stop);
	json_set_number(arena, restart, "attempts", launch->restart_attempts);
	set_duration(arena, restart, "floor", launch->restart_floor_ms);
	set_duration(arena, restart, "cap", launch->restart_cap_ms);
	set_duration(arena, restart, "settled", launch->restart_settled_ms);
	json_set(arena, json, "restart", restart);
	json_set_text(arena, json, "container", launch->container);
	json_set_text(arena, json, "onDaemonExit", launch->keep ? "keep" : "stop");
	for (size_t i = 0; i < launch->watch_count; i++) {
		const struct watch_config *watch = &launch->watches[i];
		struct json *item = json_object(arena);

		json_set_text(arena, item, "name", watch->name);
		if (watch->argv)
			json_set(arena, item, "command", launch_argv_json(arena, watch->argv));
		json_set_text(arena, item, "device", watch->device);
		json_set_number(arena, item, "limit", watch->limit);
		json_set_boolean(arena, item, "grow", watch->grow);
		json_set_number(arena, item, "samples", watch->samples);
		set_duration(arena, item, "every", watch->every_ms);
		set_duration(arena, item, "within", watch->within_ms);
		json_add(arena, watchdog, item);
	}
	json_set(arena, json, "watchdog", watchdog);
	return json;
}

static struct json *watch_limit_json(int limit, struct arena *arena)
{
	return limit < 0 ? json_text(arena, "off") : json_number(arena, limit);
}

static struct json *runtime_json(const struct runtime_config *runtime, struct arena *arena)
{
	struct json *json = json_object(arena), *timeouts = json_object(arena), *retry = json_object(arena), *watch = json_object(arena);

	json_set_text(arena, json, "kind", runtime->kind);
	json_set_text(arena, json, "url", runtime->url);
	json_set_text(arena, json, "model", runtime->model);
	if (runtime->weights_file || runtime->weights_folder) {
		struct json *weights = json_object(arena);
		json_set_text(arena, weights, "file", runtime->weights_file);
		json_set_text(arena, weights, "dir", runtime->weights_folder);
		json_set(arena, json, "weights", weights);
	}
	if (runtime->context_length)
		json_set_number(arena, json, "contextLength", runtime->context_length);
	set_duration(arena, json, "probeEvery", runtime->probe_every_ms);
	if (runtime->concurrency_auto)
		json_set_text(arena, json, "concurrency", "auto");
	else
		json_set_number(arena, json, "concurrency", runtime->concurrency);
	json_set_number(arena, json, "priority", runtime->priority);
	if (runtime->loaded_models)
		json_set_number(arena, json, "loadedModels", runtime->loaded_models);
	if (runtime->rate_requests || runtime->rate_tokens) {
		struct json *rate = json_object(arena);
		if (runtime->rate_requests)
			json_set_number(arena, rate, "requests", (double)runtime->rate_requests);
		if (runtime->rate_tokens)
			json_set_number(arena, rate, "tokens", (double)runtime->rate_tokens);
		set_duration(arena, rate, "per", runtime->rate_per_ms);
		json_set(arena, json, "rate", rate);
	}
	if (runtime->budget_tokens || runtime->budget_seconds) {
		struct json *budget = json_object(arena);
		if (runtime->budget_tokens)
			json_set_number(arena, budget, "tokens", (double)runtime->budget_tokens);
		if (runtime->budget_seconds)
			json_set_number(arena, budget, "seconds", (double)runtime->budget_seconds);
		json_set(arena, json, "budget", budget);
	}
	if (runtime->sampling)
		json_set(arena, json, "sampling", json_copy(arena, runtime->sampling));
	set_duration(arena, timeouts, "connect", runtime->connect_ms);
	set_duration(arena, timeouts, "firstToken", runtime->first_token_ms);
	set_duration(arena, timeouts, "betweenTokens", runtime->between_tokens_ms);
	set_duration(arena, timeouts, "total", runtime->total_ms);
	json_set(arena, json, "timeouts", timeouts);
	json_set_number(arena, retry, "attempts", runtime->retry_attempts);
	set_duration(arena, retry, "floor", runtime->retry_floor_ms);
	set_duration(arena, retry, "cap", runtime->retry_cap_ms);
	json_set(arena, json, "retry", retry);
	json_set(arena, watch, "whiteSpace", watch_limit_json(runtime->watch_white_space, arena));
	json_set(arena, watch, "loopBytes", watch_limit_json(runtime->watch_loop_bytes, arena));
	json_set_boolean(arena, watch, "schema", !runtime->watch_no_schema);
	json_set(arena, json, "watch", watch);
	json_set_boolean(arena, json, "hasApiKey", runtime->api_key != NULL);
	if (runtime->launch)
		json_set(arena, json, "launch", launch_json(runtime->launch, arena));
	return json;
}

struct json *config_json(const struct config *config, struct arena *arena)
{
	struct json *json = json_object(arena), *listen = json_array(arena), *runtimes = json_object(arena), *http = json_object(arena), *allow = json_array(arena);
	struct json *signing = json_object(arena), *checkpoint = json_object(arena), *limits = json_object(arena), *secrets = json_object(arena), *key;
	const char *const files[] = {config->fact_key_file, config->log_key_file}, *const purposes[] = {"fact", "log"};

	json_set_text(arena, json, "file", config->file);
	json_set_text(arena, json, "data", config->data_dir);
	for (size_t i = 0; i < config->listen_count; i++)
		json_add(arena, listen, json_printf(arena, "unix:%s", config->listen[i]));
	json_set(arena, json, "listen", listen);
	for (size_t i = 0; i < config->runtime_count; i++)
		json_set(arena, runtimes, config->runtimes[i].name, runtime_json(&config->runtimes[i], arena));
	json_set(arena, json, "runtimes", runtimes);
	for (size_t i = 0; i < config->http_allow_count; i++)
		json_add(arena, allow, json_text(arena, config->http_allow[i]));
	json_set(arena, http, "allow", allow);
	struct json *folders = json_array(arena);
	for (size_t i = 0; i < config->resource_folder_count; i++)
		json_add(arena, folders, json_text(arena, config->resource_folders[i]));
	json_set(arena, json, "resources", folders);
	json_set(arena, json, "http", http);
	for (size_t i = 0; i < COUNT_OF(files); i++) {
		key = json_object(arena);
		json_set(arena, key, "file", files[i] ? json_text(arena, files[i]) : json_printf(arena, "%s/keys/%s.pem", config->data_dir, purposes[i]));
		json_set(arena, signing, purposes[i], key);
	}
	json_set_number(arena, checkpoint, "entries", config->checkpoint_entries ? config->checkpoint_entries : 256);
	set_duration(arena, checkpoint, "every", config->checkpoint_every_ms ? config->checkpoint_every_ms : 60000);
	json_set(arena, signing, "checkpoint", checkpoint);
	json_set(arena, json, "signing", signing);
	for (size_t i = 0; i < config->secret_count; i++) {
		struct json *secret = json_object(arena);
		if (config->secrets[i].hosts)
			json_set(arena, secret, "hosts", json_copy(arena, config->secrets[i].hosts));
		if (config->secrets[i].namespaces)
			json_set(arena, secret, "namespaces", json_copy(arena, config->secrets[i].namespaces));
		json_set(arena, secrets, config->secrets[i].name, secret);
	}
	json_set(arena, json, "secrets", secrets);
	json_set_number(arena, limits, "connections", config->limits.connections);
	json_set_number(arena, limits, "waiters", config->limits.waiters);
	json_set_number(arena, limits, "streams", config->limits.streams);
	json_set_number(arena, limits, "body", (double)config->limits.body);
	json_set_number(arena, limits, "document", (double)config->limits.document);
	json_set_number(arena, limits, "bodies", (double)config->limits.bodies);
	set_duration(arena, limits, "wakeEvery", config->limits.wake_every_ms);
	set_duration(arena, limits, "idle", config->limits.idle_ms);
	set_duration(arena, limits, "request", config->limits.request_ms);
	json_set_number(arena, limits, "reserve", (double)config->limits.reserve);
	json_set_number(arena, limits, "lowSpace", (double)config->limits.low_space);
	json_set_number(arena, limits, "wal", (double)config->limits.wal);
	if (budget_limits(&config->limits.run))
		json_set(arena, limits, "run", budget_json(arena, &config->limits.run));
	json_set(arena, json, "limits", limits);
	struct json *events = json_object(arena), *sinks = json_object(arena), *retention = json_object(arena);
	if (config->retention_runs_ms > 0)
		set_duration(arena, retention, "runs", config->retention_runs_ms);
	else
		json_set_text(arena, retention, "runs", "forever");
	if (config->retention_entries_ms > 0)
		set_duration(arena, retention, "entries", config->retention_entries_ms);
	else
		json_set_text(arena, retention, "entries", "forever");
	json_set_text(arena, retention, "keepFacts", config->retention_drop_facts ? "runs" : "forever");
	json_set(arena, json, "retention", retention);
	set_duration(arena, events, "window", config->events_window_ms);
	set_duration(arena, events, "keep", config->events_keep_ms);
	json_set(arena, json, "events", events);
	for (size_t i = 0; i < config->sink_count; i++) {
		const struct sink_config *sink = &config->sinks[i];
		struct json *shown = json_object(arena), *names = json_array(arena);
		json_set_text(arena, shown, "url", sink->url);
		if (sink->types)
			json_set(arena, shown, "types", json_copy(arena, sink->types));
		for (size_t k = 0; k < json_count(sink->headers); k++) /* their values may be keys */
			json_add(arena, names, json_text(arena, sink->headers->object.members[k].name));
		if (json_count(names) > 0)
			json_set(arena, shown, "headers", names);
		json_set(arena, sinks, sink->name, shown);
	}
	if (config->sink_count > 0)
		json_set(arena, json, "sinks", sinks);
	return json;
}
