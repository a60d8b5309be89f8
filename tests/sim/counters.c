/* Counters of the simulator. Loop thread. Start at tally_get(). */
#include "tests/sim/counters.h"

#include <stdlib.h>
#include <string.h>

#include "tests/sim/http.h"
#include "workflow/base/check.h"
#include "workflow/base/json.h"

static const char *const outcome_names[OUTCOME_COUNT] = {"completed", "cancelled", "faulted", "rejected"};

const char *outcome_name(enum outcome outcome)
{
	return outcome_names[outcome];
}

void tally_init(struct tally *tally, size_t max)
{
	*tally = (struct tally){.max = max};
}

void tally_close(struct tally *tally)
{
	for (size_t i = 0; i < tally->count; i++) {
		free(tally->entries[i]->key);
		free(tally->entries[i]);
	}
	free(tally->entries);
	free(tally->slots);
	tally_init(tally, tally->max);
}

static void put_slot(struct tally *tally, size_t index)
{
	size_t slot = tally->entries[index]->hash & (tally->slot_count - 1);

	while (tally->slots[slot] != 0)
		slot = (slot + 1) & (tally->slot_count - 1);
	tally->slots[slot] = (uint32_t)(index + 1);
}

/* At most half of the slots are taken, so that every search meets an empty one. */
static void grow(struct tally *tally)
{
	tally->cap = tally->cap ? tally->cap * 2 : 64;
	tally->entries = memory_resize(tally->entries, tally->cap * sizeof(*tally->entries));
	tally->slot_count = tally->cap * 2;
	free(tally->slots);
	tally->slots = memory_zero(tally->slot_count * sizeof(*tally->slots));
	for (size_t i = 0; i < tally->count; i++)
		put_slot(tally, i);
}

struct tally_entry *tally_get(struct tally *tally, const char *key)
{
	uint64_t hash = random_hash(0, bytes_text(key));
	struct tally_entry *entry;

	if (tally->slot_count > 0) {
		for (size_t slot = hash & (tally->slot_count - 1); tally->slots[slot] != 0; slot = (slot + 1) & (tally->slot_count - 1)) {
			entry = tally->entries[tally->slots[slot] - 1];
			if (entry->hash == hash && strcmp(entry->key, key) == 0)
				return entry;
		}
	}
	if (tally->count == tally->max) {
		tally->full = true;
		return NULL;
	}
	if (tally->count == tally->cap)
		grow(tally);
	entry = memory_zero(sizeof(*entry));
	entry->key = memory_text(key);
	entry->hash = hash;
	tally->entries[tally->count] = entry;
	put_slot(tally, tally->count++);
	return entry;
}

static void print_tally(const struct tally *tally, struct buffer *out)
{
	buffer_add_char(out, '{');
	for (size_t i = 0; i < tally->count; i++) {
		const struct tally_entry *entry = tally->entries[i];

		if (i > 0)
			buffer_add_char(out, ',');
		json_print_string(entry->key, strlen(entry->key), out);
		buffer_printf(out, ":{\"requests\":%llu,\"completed\":%llu}", (unsigned long long)entry->requests,
			(unsigned long long)entry->completed);
	}
	buffer_add_char(out, '}');
}

void counters_init(struct counters *counters, size_t tally_max)
{
	*counters = (struct counters){.requests = 0};
	tally_init(&counters->sections, tally_max);
	tally_init(&counters->keys, tally_max);
	buffer_init(&counters->last_request, HTTP_BODY_MAX);
}

void counters_close(struct counters *counters)
{
	tally_close(&counters->sections);
	tally_close(&counters->keys);
	buffer_close(&counters->last_request);
}

void counters_reset(struct counters *counters)
{
	uint64_t epoch = counters->epoch + 1;
	size_t max = counters->sections.max;

	counters_close(counters);
	counters_init(counters, max);
	counters->epoch = epoch;
}

void counters_print(const struct counters *counters, uint64_t connections, uint64_t connections_refused, struct buffer *out)
{
	bool first = true;

	buffer_printf(out, "{\"requests\":%llu", (unsigned long long)counters->requests);
	for (int i = 0; i < OUTCOME_COUNT; i++)
		buffer_printf(out, ",\"%s\":%llu", outcome_names[i], (unsigned long long)counters->outcomes[i]);
	buffer_printf(out, ",\"inFlight\":%llu,\"maxInFlight\":%llu,\"bodyBytes\":%llu,\"connections\":%llu,\"connectionsRefused\":%llu",
		(unsigned long long)counters->in_flight, (unsigned long long)counters->in_flight_max, (unsigned long long)counters->body_bytes,
		(unsigned long long)connections, (unsigned long long)connections_refused);
	buffer_add_text(out, ",\"faults\":{");
	for (int i = FAULT_NONE + 1; i < FAULT_KIND_COUNT; i++) {
		if (counters->faults[i] == 0)
			continue;
		buffer_printf(out, "%s\"%s\":%llu", first ? "" : ",", fault_kind_name((enum fault_kind)i),
			(unsigned long long)counters->faults[i]);
		first = false;
	}
	buffer_add_text(out, "},\"bySection\":");
	print_tally(&counters->sections, out);
	buffer_printf(out, ",\"bySectionFull\":%s,\"byIdempotencyKey\":", counters->sections.full ? "true" : "false");
	print_tally(&counters->keys, out);
	buffer_printf(out, ",\"byIdempotencyKeyFull\":%s,\"lastRequest\":", counters->keys.full ? "true" : "false");
	if (counters->last_request.len > 0)
		buffer_add_bytes(out, buffer_bytes(&counters->last_request)); /* Only ever JSON that was parsed. */
	else
		buffer_add_text(out, "null");
	buffer_add_text(out, "}\n");
}
