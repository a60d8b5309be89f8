/* /v1/documents: bytes by their digest. What is a text is checked when it comes in, so that no run starts on something that
 * cannot be read. */
#include <string.h>
#include <strings.h>

#include "daemon/api.h"
#include "workflow/base/check.h"
#include "workflow/base/fail_point.h"

struct upload {
	struct daemon *daemon;
	struct request *request;
	uv_work_t work;
	const char *media_type;
	struct digest digest;
	struct error error;
	struct store_document existing;
	struct entry entry;
	struct store_append append;
};

static void finish(struct upload *u, unsigned status)
{
	struct arena *arena = &u->request->arena;
	struct json *json = json_object(arena);
	char text[DIGEST_TEXT_LEN + 1];

	digest_text(&u->digest, text);
	json_set_text(arena, json, "digest", text);
	json_set_number(arena, json, "bytes", (double)u->request->body.len);
	json_set_text(arena, json, "mediaType", u->media_type);
	request_add_header(u->request, "Location", arena_printf(arena, "/v1/documents/%s", text));
	request_answer_json(u->request, status, json);
}

static void on_added(struct store_append *append)
{
	struct upload *u = append->owner;

	FAIL_POINT(DOCUMENT_RECORDED);
	if (append->error.code == ERR_NONE)
		finish(u, 201);
	else
		api_fail(u->request, &append->error);
}

static void look_up_work(struct store_reader *reader, struct store_read *read)
{
	struct upload *u = ((struct api_read *)read->owner)->args;

	reader_document(reader, &read->arena, &u->digest, &u->existing, &read->error);
}

static void on_looked_up(struct api_read *own)
{
	struct upload *u = own->args;
	struct arena *arena = &u->request->arena;
	struct error error = own->read.error;

	buffer_close(&own->body);
	if (error.code == ERR_NONE) {
		u->media_type = arena_text(arena, u->existing.media_type);
		finish(u, 200);
		return;
	}
	if (error.code == ERR_NOT_FOUND) {
		u->entry = (struct entry){.kind = ENTRY_DOCUMENT_ADDED, .data = json_object(arena), .time_ms = clock_wall_ms()};
		json_set_number(arena, u->entry.data, "bytes", (double)u->request->body.len);
		json_set_text(arena, u->entry.data, "mediaType", u->media_type);
		/* As entry_add_value() does it, without hashing 64 MiB again on the loop. */
		json_set_digest(arena, u->entry.data, "document", &u->digest);
		u->entry.values[u->entry.value_count++] = (struct entry_value){.digest = u->digest, .bytes = buffer_bytes(&u->request->body), .size = u->request->body.len};
		u->append = (struct store_append){.entries = &u->entry, .entry_count = 1, .on_done = on_added, .owner = u};
		if (store_append(u->daemon->store, &u->append) == 0)
			return;
		error_set(&error, ERR_BUSY, "%d appends wait for the journal, the limit (STORE_QUEUE_MAX); retry", STORE_QUEUE_MAX);
	}
	api_fail(u->request, &error);
}

/* Pure: may run on the pool. */
static void examine(struct upload *u)
{
	struct bytes body = buffer_bytes(&u->request->body);
	size_t bad;

	if (strncasecmp(u->media_type, "text/", 5) == 0) {
		const uint8_t *nul = memchr(body.data, 0, body.len);
		if (nul)
			error_set(&u->error, ERR_INVALID, "the document holds a NUL byte at offset %zu: %s cannot", (size_t)(nul - body.data), u->media_type);
		else if (!utf8_valid(body, &bad))
			error_set(&u->error, ERR_INVALID, "the document is not valid UTF-8: byte 0x%02x at offset %zu; convert it first (iconv)", body.data[bad], bad);
	}
	if (u->error.code == ERR_NONE)
		u->digest = digest_of(body);
}

static void on_examined(struct upload *u)
{
	if (u->error.code != ERR_NONE)
		request_problem(u->request, &u->error);
	else
		api_read(u->daemon, u->request, look_up_work, u, on_looked_up);
}

static void on_pool(uv_work_t *work)
{
	examine(work->data);
}

static void on_pool_done(uv_work_t *work, int status)
{
	(void)status;
	on_examined(work->data);
}

/* type/subtype of tokens and parameters, printable, short: it is journaled and sent back as a header. */
static bool media_type_valid(const char *text)
{
	size_t len = strlen(text);

	for (size_t i = 0; i < len; i++)
		if (text[i] < ' ' || text[i] > '~')
			return false;
	const char *slash = strchr(text, '/');
	return len <= 200 && slash && slash != text && slash[1] != 0 && slash[1] != ';';
}

void api_add_document(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct upload *u = arena_zero(&request->arena, sizeof *u);
	const char *type = request_header(request, "Content-Type");

	(void)parameters;
	if (request->body.len == 0) {
		api_invalid(request, "the document is empty");
		return;
	}
	/* curl's habit for --data-binary: it says nothing about the bytes. */
	if (!type || strcasecmp(type, "application/x-www-form-urlencoded") == 0)
		type = "application/octet-stream";
	if (!media_type_valid(type)) {
		api_invalid(request, "Content-Type: no media type");
		return;
	}
	u->daemon = daemon;
	u->request = request;
	u->media_type = arena_text(&request->arena, type);
	u->work.data = u;
	if (request->body.len > API_PARSE_ON_LOOP_MAX) {
		CHECK(uv_queue_work(&daemon->loop, &u->work, on_pool, on_pool_done) == 0);
		return;
	}
	examine(u);
	on_examined(u);
}

/* --- looking ------------------------------------------------------------------------------------------------------ */

struct get_args {
	struct digest digest;
	char media_type[256];
};

static void get_work(struct store_reader *reader, struct store_read *read)
{
	struct api_read *own = read->owner;
	struct get_args *args = own->args;
	struct store_document document;
	struct bytes bytes;

	if (reader_document(reader, &read->arena, &args->digest, &document, &read->error) != 0 ||
	    reader_content(reader, &read->arena, 0, &args->digest, NULL, &bytes, &read->error) != 0) {
		if (read->error.code == ERR_NOT_FOUND)
			error_set(&read->error, ERR_NOT_FOUND, "there is no document with this digest");
		return;
	}
	snprintf(args->media_type, sizeof args->media_type, "%s", document.media_type);
	own->content_type = args->media_type;
	buffer_add_bytes(&own->body, bytes);
}

void api_get_document(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct get_args *args = arena_zero(&request->arena, sizeof *args);
	struct error error;

	if (!digest_parse(parameters[0], &args->digest)) {
		error_set(&error, ERR_NOT_FOUND, "'%s' is no digest (sha256: and 64 hex digits)", parameters[0]);
		request_problem(request, &error);
		return;
	}
	/* Whatever is in it, a browser shows it as what it was called, in no page of ours. */
	request_add_header(request, "X-Content-Type-Options", "nosniff");
	request_add_header(request, "Content-Security-Policy", "default-src 'none'; sandbox");
	api_read(daemon, request, get_work, args, NULL);
}
