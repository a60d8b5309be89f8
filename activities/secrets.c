/* See secrets.h. */
#include "activities/secrets.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "workflow/base/check.h"

static bool lists(const struct json *texts, const char *text, bool exact)
{
	for (size_t i = 0; i < json_count(texts); i++) {
		const struct json *item = json_at(texts, i);
		if (json_is(item, JSON_STRING) && (exact ? strcmp(item->string.text, text) : strcasecmp(item->string.text, text)) == 0)
			return true;
	}
	return false;
}

bool secret_allows_host(const struct secret_config *secret, const char *host)
{
	return lists(secret->hosts, host, false);
}

const struct secret_config *secret_find(const struct secret_config *secrets, size_t count, const char *name, const char *namespace, const char *host,
					struct error *error)
{
	for (size_t i = 0; i < count; i++) {
		const struct secret_config *secret = &secrets[i];
		if (strcmp(secret->name, name) != 0)
			continue;
		if (namespace && !lists(secret->namespaces, namespace, true))
			error_set(error, ERR_DENIED, "secret '%.80s' may not be used by workflows of namespace %.63s: its 'namespaces' in the configuration do not list it", name, namespace);
		else if (!secret_allows_host(secret, host))
			error_set(error, ERR_DENIED, "secret '%.80s' may not be sent to %.200s: its 'hosts' in the configuration do not list it", name, host);
		else
			return secret;
		return NULL;
	}
	error_set(error, ERR_DENIED, "there is no secret '%.80s': name it under secrets: in the configuration", name);
	return NULL;
}

static void add_text(struct secret_texts *used, const char *text)
{
	size_t at;

	if (strlen(text) < SECRET_BLOT_MIN)
		return;
	CHECK(used->count < SECRETS_USED_MAX); /* whoever adds has counted */
	/* Longer ones first: a short one that begins a longer one must not leave the rest of it standing. */
	for (at = used->count++; at > 0 && strlen(used->texts[at - 1]) < strlen(text); at--)
		used->texts[at] = used->texts[at - 1];
	used->texts[at] = memory_text(text);
}

/* Peers mostly echo inside of JSON, where some characters are written in another way. */
void secret_texts_add(struct secret_texts *used, const char *text)
{
	struct buffer written;

	add_text(used, text);
	buffer_init(&written, 6 * strlen(text) + 1);
	for (const char *at = text; *at; at++) {
		if (*at == '"' || *at == '\\')
			buffer_printf(&written, "\\%c", *at);
		else if (*at == '\n' || *at == '\r' || *at == '\t')
			buffer_printf(&written, "\\%c", *at == '\n' ? 'n' : *at == '\r' ? 'r' : 't');
		else
			buffer_add_char(&written, *at);
	}
	if (written.len != strlen(text))
		add_text(used, buffer_text(&written));
	if (written.data)
		explicit_bzero(written.data, written.cap);
	buffer_close(&written);
}

void secret_texts_close(struct secret_texts *used)
{
	for (size_t i = 0; i < used->count; i++) {
		explicit_bzero(used->texts[i], strlen(used->texts[i]));
		free(used->texts[i]);
	}
	used->count = 0;
}

bool secret_texts_found(const struct secret_texts *used, const char *text)
{
	for (size_t i = 0; i < used->count; i++)
		if (strcasestr(text, used->texts[i]) != NULL)
			return true;
	return false;
}

void secret_texts_blot(const struct secret_texts *used, uint8_t *data, size_t len)
{
	for (size_t i = 0; i < used->count; i++) {
		size_t text_len = strlen(used->texts[i]);
		uint8_t *at = data, *found;
		while (len > 0 && (found = memmem(at, len - (size_t)(at - data), used->texts[i], text_len)) != NULL) {
			memset(found, '*', text_len);
			at = found + text_len;
		}
	}
}
