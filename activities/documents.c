/* See documents.h. Loop thread. Start at document_hold(). */
#include "activities/documents.h"

#include <stdlib.h>

#include "activities/internal.h"
#include "workflow/base/check.h"

struct document {
	struct list link;
	struct content_load load; /* its arena holds the bytes */
	struct activities *activities;
	struct list waits;
	unsigned holders;
	bool loaded;
};

void documents_init(struct documents *documents)
{
	*documents = (struct documents){0};
	list_init(&documents->items);
}

static void drop(struct document *document)
{
	list_remove(&document->link);
	arena_close(&document->load.arena);
	free(document);
}

void documents_close(struct activities *activities)
{
	struct documents *documents = &activities->documents;

	LIST_EACH_SAFE(link, &documents->items) {
		struct document *document = CONTAINER_OF(link, struct document, link);

		CHECK(document->loaded && document->holders == 0);
		drop(document);
	}
	documents_init(documents);
}

static void shrink(struct documents *documents)
{
	LIST_EACH_SAFE(link, &documents->items) {
		struct document *document = CONTAINER_OF(link, struct document, link);

		if (documents->count <= DOCUMENTS_MAX && documents->bytes <= DOCUMENTS_BYTES_MAX)
			return;
		if (!document->loaded || document->holders > 0)
			continue;
		documents->count--;
		documents->bytes -= document->load.bytes.len;
		drop(document);
	}
}

static void hold(struct documents *documents, struct document *document, struct document_wait *wait)
{
	if (document->holders++ == 0) {
		documents->count--;
		documents->bytes -= document->load.bytes.len;
	}
	list_remove(&document->link);
	list_add_last(&documents->items, &document->link);
	wait->document = document;
	wait->bytes = document->load.bytes;
}

static void on_loaded(struct content_load *load)
{
	struct document *document = CONTAINER_OF(load, struct document, load);
	struct activities *activities = document->activities;
	struct documents *documents = &activities->documents;
	bool ok = load->error.code == ERR_NONE;
	struct list waits;

	document->loaded = true;
	documents->count++;
	documents->bytes += load->bytes.len;
	list_init(&waits);
	list_move_all(&waits, &document->waits);
	LIST_EACH(link, &waits) {
		struct document_wait *wait = CONTAINER_OF(link, struct document_wait, link);

		wait->loading = NULL;
		wait->error = load->error;
		if (ok)
			hold(documents, document, wait);
	}
	if (!ok) {
		documents->count--;
		documents->bytes -= load->bytes.len;
		drop(document);
	} else {
		shrink(documents);
	}
	while (!list_empty(&waits)) {
		struct document_wait *wait = CONTAINER_OF(waits.next, struct document_wait, link);

		list_remove(&wait->link);
		wait->on_done(wait);
	}
	outside_end(activities);
}

bool document_hold(struct activities *activities, struct document_wait *wait)
{
	struct documents *documents = &activities->documents;
	struct document *document = NULL;

	wait->document = NULL;
	wait->error = (struct error){0};
	wait->loading = NULL;
	list_init(&wait->link);
	LIST_EACH(link, &documents->items) {
		struct document *item = CONTAINER_OF(link, struct document, link);

		if (digest_equal(&item->load.digest, &wait->digest))
			document = item;
	}
	if (document != NULL && document->loaded) {
		hold(documents, document, wait);
		return true;
	}
	if (document == NULL) {
		document = memory_zero(sizeof(*document));
		document->activities = activities;
		list_init(&document->waits);
		list_add_last(&documents->items, &document->link);
		document->load.digest = wait->digest;
		document->load.on_done = on_loaded;
		document->load.owner = document;
		arena_init(&document->load.arena);
		outside_begin(activities);
		activities->ports.load_content(activities->ports.arg, &document->load);
	}
	wait->loading = document;
	list_add_last(&document->waits, &wait->link);
	return false;
}

void document_give_up(struct document_wait *wait)
{
	/* Also while on_loaded() goes through its list: a wait that was already given the document lets go of it. */
	list_remove(&wait->link);
	wait->loading = NULL;
}

void document_release(struct activities *activities, struct document *document)
{
	struct documents *documents = &activities->documents;

	if (document == NULL)
		return;
	CHECK(document->holders > 0);
	if (--document->holders > 0)
		return;
	documents->count++;
	documents->bytes += document->load.bytes.len;
	shrink(documents);
}
