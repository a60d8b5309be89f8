/* See power_cut.h. */
#include "tests/support/power_cut.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"

/* --- what a change does --------------------------------------------------------------------------------------------- */

void content_resize(struct content *content, uint64_t size)
{
	if (size > content->cap) {
		content->cap = (size_t)size * 2;
		content->data = memory_resize(content->data, content->cap);
	}
	if (size > content->len)
		memset(content->data + content->len, 0, (size_t)size - content->len);
	content->len = (size_t)size;
}

void content_copy(struct content *to, const struct content *from)
{
	to->len = 0; /* nothing of what was has to be kept by a resize */
	content_resize(to, from->len);
	if (from->len > 0)
		memcpy(to->data, from->data, from->len);
}

/* Bytes `from` to `to` of a write. */
static void put(struct content *content, const struct change *change, size_t from, size_t to)
{
	if (change->at + to > content->len)
		content_resize(content, change->at + to);
	memcpy(content->data + change->at + from, change->data + from, to - from);
}

void content_apply(struct content *content, const struct change *change)
{
	if (change->kind == CHANGE_WRITE)
		put(content, change, 0, change->len);
	else
		content_resize(content, change->at);
}

int names_find(const struct names *names, const char *name)
{
	for (unsigned i = 0; i < names->count; i++)
		if (strcmp(names->list[i].name, name) == 0)
			return (int)i;
	return -1;
}

void names_set(struct names *names, const char *name, int node)
{
	int at = names_find(names, name);

	if (at < 0) {
		CHECK(names->count < CUT_NAMES_MAX);
		at = (int)names->count++;
	}
	snprintf(names->list[at].name, CUT_NAME_LEN, "%s", name);
	names->list[at].node = node;
}

void names_forget(struct names *names, const char *name)
{
	int at = names_find(names, name);

	if (at >= 0)
		names->list[at] = names->list[--names->count];
}

void names_apply(struct names *names, const struct change *change)
{
	if (change->kind == CHANGE_NO_NAME) {
		names_forget(names, change->name);
		return;
	}
	if (change->kind == CHANGE_RENAME)
		names_forget(names, change->old);
	names_set(names, change->name, change->target);
}

/* --- one cut -------------------------------------------------------------------------------------------------------- */

static uint64_t draw(struct cutting *cutting, uint64_t below)
{
	uint64_t *state = &cutting->state;

	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state % below;
}

void cut_begin(struct cutting *cutting, enum cut cut, uint64_t seed, uint64_t first, uint64_t last)
{
	*cutting = (struct cutting){.cut = cut, .state = seed * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du};
	for (int i = 0; i < 8; i++)
		draw(cutting, 2);
	cutting->until = first + draw(cutting, last - first + 1);
}

/* Of one write: sectors, each or none; or the first ones. */
static void put_torn(struct cutting *cutting, struct content *content, const struct change *change, bool first_part)
{
	size_t keep = first_part ? (size_t)draw(cutting, change->len + 1) : 0;

	for (size_t from = 0; from < change->len;) {
		size_t to = from + CUT_SECTOR - (change->at + from) % CUT_SECTOR;

		if (to > change->len)
			to = change->len;
		if (first_part ? to <= keep : draw(cutting, 2) == 0)
			put(content, change, from, to);
		from = to;
	}
	/* The new size may be there without what was written. */
	if (draw(cutting, 2) == 0 && change->at + change->len > content->len)
		content_resize(content, change->at + change->len);
}

void cut_file(struct cutting *cutting, struct content *content, const struct change *const *pending, size_t count)
{
	enum cut cut = cutting->cut;
	const struct change **order;

	if (count == 0 || cut == CUT_DROP)
		return;
	order = memory_alloc(count * sizeof(*order));
	memcpy(order, pending, count * sizeof(*order));
	for (size_t i = count; cut == CUT_RANDOM && i > 1; i--) {
		size_t other = (size_t)draw(cutting, i);
		const struct change *kept = order[other];

		order[other] = order[i - 1];
		order[i - 1] = kept;
	}
	for (size_t i = 0; i < count; i++) {
		const struct change *change = order[i];

		if (cut == CUT_PREFIX && change->number > cutting->until)
			break;
		if (change->kind == CHANGE_TRUNCATE && (cut != CUT_RANDOM || draw(cutting, 2) == 0))
			content_resize(content, change->at);
		else if (change->kind == CHANGE_WRITE && (cut == CUT_KEEP || (cut == CUT_PREFIX && change->number < cutting->until)))
			put(content, change, 0, change->len);
		else if (change->kind == CHANGE_WRITE && (cut == CUT_PREFIX || draw(cutting, 4) > 0))
			put_torn(cutting, content, change, cut == CUT_PREFIX);
	}
	free(order);
}

void cut_folder(struct cutting *cutting, struct names *names, const struct change *const *pending, size_t count)
{
	enum cut cut = cutting->cut;

	for (size_t i = 0; i < count && cut != CUT_DROP; i++)
		if (cut == CUT_KEEP || (cut == CUT_PREFIX ? pending[i]->number <= cutting->until : draw(cutting, 2) == 0))
			names_apply(names, pending[i]);
}
