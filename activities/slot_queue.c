/* See slot_queue.h. */
#include "activities/slot_queue.h"

#include <stdio.h>
#include <string.h>

#include "workflow/base/check.h"

enum { US_PER_MS = 1000 };
/* Nothing waits longer for a limit than this, whatever it cost. */
#define RATE_AHEAD_MAX_US ((uint64_t)RATE_PER_MAX_MS * US_PER_MS)

const char *slot_wait_name(enum slot_wait wait)
{
	static const char *const names[SLOT_WAIT_COUNT] = {
#define X(name, text) [name] = text,
		SLOT_WAITS(X)
#undef X
	};

	return names[wait];
}

/* All times kept here are of this clock. */
static uint64_t tick(struct slot_server *server, uint64_t now_us)
{
	if (now_us + server->offset_us < server->last_us)
		server->offset_us = server->last_us - now_us;
	server->last_us = now_us + server->offset_us;
	return server->last_us;
}

/* ---- Limits per time ---- */

/* A bucket that fills in per_us, told by the moment when it is full: no sum can overflow, and nothing has to be counted on. */
static uint64_t cost_us(const struct slot_rate *rate, int64_t amount)
{
	if (amount > RATE_COST_MAX)
		amount = RATE_COST_MAX;
	return (uint64_t)(amount * rate->per_us / rate->limit);
}

static uint64_t rate_ready_us(const struct slot_rate *rate, int64_t amount)
{
	uint64_t cost, at;

	if (rate->limit == 0)
		return 0;
	cost = cost_us(rate, amount);
	if (cost > (uint64_t)rate->per_us)
		cost = (uint64_t)rate->per_us;
	at = rate->full_us + cost;
	return at > (uint64_t)rate->per_us ? at - (uint64_t)rate->per_us : 0;
}

static void rate_take(struct slot_rate *rate, int64_t amount, uint64_t now_us)
{
	if (rate->limit == 0 || amount <= 0)
		return;
	if (rate->full_us < now_us)
		rate->full_us = now_us;
	rate->full_us += cost_us(rate, amount);
	if (rate->full_us > now_us + RATE_AHEAD_MAX_US)
		rate->full_us = now_us + RATE_AHEAD_MAX_US;
}

static void rate_give_back(struct slot_rate *rate, int64_t amount)
{
	uint64_t cost;

	if (rate->limit == 0 || amount <= 0)
		return;
	cost = cost_us(rate, amount);
	rate->full_us = rate->full_us > cost ? rate->full_us - cost : 0;
}

static uint64_t ready_us(const struct slot_queue *queue, const struct slot *slot)
{
	uint64_t requests = rate_ready_us(&queue->requests, 1), tokens = rate_ready_us(&queue->tokens, slot->tokens), at = queue->held_until_us;

	at = requests > at ? requests : at;
	return tokens > at ? tokens : at;
}

/* ---- The budget ---- */

static int64_t capped(int64_t tokens)
{
	return tokens <= BUDGET_TOKENS_MAX ? tokens : BUDGET_TOKENS_MAX + 1;
}

/* At most; 0: not known. No sum of two of them overflows. */
static int64_t tokens_wanted(const struct slot *slot)
{
	return capped(slot->tokens) + capped(slot->prompt_tokens);
}

static bool has_tokens(const struct slot_budget *budget, int64_t wanted)
{
	int64_t left = budget->tokens_max - budget->tokens_spent - budget->tokens_reserved;

	return budget->tokens_max == 0 || (wanted > 0 ? wanted <= left : left > 0);
}

static uint64_t under_way_us(const struct slot_queue *queue, uint64_t now_us)
{
	return queue->in_flight * now_us - queue->budget.given_sum_us;
}

static bool is_in_budget(const struct slot_queue *queue, const struct slot *slot, uint64_t now_us)
{
	const struct slot_budget *budget = &queue->budget;

	if (budget->us_max > 0 && budget->us_spent + (int64_t)under_way_us(queue, now_us) >= budget->us_max)
		return false;
	return has_tokens(budget, tokens_wanted(slot));
}

bool slot_exceeds_budget(const struct slot_queue *queue, const struct slot *slot)
{
	return queue->budget.tokens_max > 0 && tokens_wanted(slot) > queue->budget.tokens_max;
}

void slot_queue_set_spent(struct slot_queue *queue, const struct slot_day *day, uint64_t now_us)
{
	struct slot_budget *budget = &queue->budget;

	now_us = tick(queue->server, now_us);
	budget->tokens_spent = day->tokens;
	budget->us_spent = day->us;
	budget->ends_us = now_us + (uint64_t)day->ends_in_us;
	budget->look_us = now_us + (uint64_t)day->look_in_us;
}

bool slot_queue_reserve(struct slot_queue *queue, struct slot *slot, int64_t prompt_tokens)
{
	struct slot_budget *budget = &queue->budget;
	bool fits;

	CHECK(slot->held);
	slot->prompt_tokens = prompt_tokens;
	budget->tokens_reserved -= slot->reserved;
	fits = has_tokens(budget, tokens_wanted(slot));
	if (fits)
		slot->reserved = tokens_wanted(slot);
	budget->tokens_reserved += slot->reserved;
	return fits;
}

uint64_t slot_queue_under_way_us(const struct slot_queue *queue, uint64_t now_us)
{
	uint64_t now = now_us + queue->server->offset_us;

	return under_way_us(queue, now > queue->server->last_us ? now : queue->server->last_us);
}

/* ---- Order ---- */

static bool goes_before(const struct slot *slot, const struct slot *other)
{
	return slot->order_us != other->order_us ? slot->order_us < other->order_us : slot->number < other->number;
}

/* Within a level the order is that of arrival, so only the first of each has to be looked at. */
static struct slot *first_waiting(const struct slot_queue *queue)
{
	struct slot *first = NULL;

	for (unsigned levels = queue->levels; levels != 0; levels &= levels - 1) {
		struct slot *slot = CONTAINER_OF(queue->waiting[__builtin_ctz(levels)].next, struct slot, link);

		if (first == NULL || goes_before(slot, first))
			first = slot;
	}
	return first;
}

static void take_out(struct slot *slot)
{
	struct slot_queue *queue = slot->queue;

	list_remove(&slot->link);
	list_remove(&slot->solo_link);
	if (list_empty(&queue->waiting[slot->priority]))
		queue->levels &= ~(1u << slot->priority);
	queue->waiting_count--;
	slot->waiting = false;
}

/* ---- Why it waits ---- */

static void count_wait(struct slot_queue *queue, uint64_t now_us)
{
	queue->waited_us[queue->reason] += now_us - queue->reason_since_us;
	queue->reason_since_us = now_us;
}

static void set_reason(struct slot_queue *queue, enum slot_wait reason, uint64_t until_us, uint64_t now_us)
{
	count_wait(queue, now_us);
	queue->reason = reason;
	queue->reason_until_us = until_us;
}

static void set_reasons(struct slot_server *server, enum slot_wait reason, uint64_t now_us)
{
	LIST_EACH(link, &server->queues) {
		struct slot_queue *queue = CONTAINER_OF(link, struct slot_queue, link);

		set_reason(queue, queue->open ? reason : SLOT_WAITS_RUNTIME, SLOT_NEVER, now_us);
	}
}

/* ---- Models ---- */

static size_t find_loaded(const struct slot_server *server, const char *model)
{
	size_t i = 0;

	while (i < server->loaded_count && strcmp(server->loaded[i], model) != 0)
		i++;
	return i;
}

static bool is_loaded(const struct slot_server *server, const struct slot_queue *queue)
{
	return find_loaded(server, queue->model) < server->loaded_count;
}

static bool is_model_in_use(const struct slot_server *server, const char *model)
{
	LIST_EACH(link, &server->queues) {
		const struct slot_queue *queue = CONTAINER_OF(link, struct slot_queue, link);

		if (queue->in_flight > 0 && strcmp(queue->model, model) == 0)
			return true;
	}
	return false;
}

/* There is room for another model, or one that answers nobody can go: its place; else loaded_count. */
static bool can_load(const struct slot_server *server, size_t *place)
{
	*place = server->loaded_count;
	if (server->loaded_count < server->models_max)
		return true;
	for (size_t i = 0; i < server->loaded_count; i++) {
		if (!is_model_in_use(server, server->loaded[i])) {
			*place = i;
			return true;
		}
	}
	return false;
}

static void use_model(struct slot_server *server, const char *model, size_t place)
{
	if (place < server->loaded_count) {
		memmove(&server->loaded[place], &server->loaded[place + 1], (server->loaded_count - place - 1) * sizeof(*server->loaded));
		server->loaded_count--;
	}
	server->loaded[server->loaded_count++] = model;
}

/* ---- The turn ---- */

static struct slot *give(struct slot *slot, uint64_t now_us)
{
	struct slot_queue *queue = slot->queue;
	struct slot_server *server = queue->server;

	take_out(slot);
	list_add_last(&queue->holding, &slot->link);
	slot->mixed = server->in_flight > queue->in_flight;
	queue->in_flight++;
	server->in_flight++;
	queue->given++;
	server->given++;
	slot->held = true;
	slot->in_flight = server->in_flight;
	slot->concurrency = queue->concurrency;
	slot->given_to_others = server->given - queue->given;
	slot->given_us = now_us;
	slot->reserved = tokens_wanted(slot);
	queue->budget.tokens_reserved += slot->reserved;
	queue->budget.given_sum_us += now_us;
	rate_take(&queue->requests, 1, now_us);
	rate_take(&queue->tokens, slot->tokens, now_us);
	count_wait(queue, now_us);
	for (size_t i = 0; i < SLOT_WAIT_COUNT; i++)
		slot->waited_us[i] = queue->waited_us[i] - slot->waited_us[i];
	if (slot->solo != NULL) {
		server->solo_over = false;
		snprintf(server->solo, sizeof(server->solo), "%s", slot->solo);
	}
	return slot;
}

static void look_at(uint64_t *wake_us, uint64_t at_us)
{
	if (at_us < *wake_us)
		*wake_us = at_us;
}

/* As far as the limits of its own runtime are concerned; else its queue is told why not, and until when. */
static bool may_go(struct slot *slot, uint64_t now_us, uint64_t *wake_us)
{
	struct slot_queue *queue = slot->queue;
	uint64_t at_us = ready_us(queue, slot);

	if (at_us > now_us) {
		look_at(wake_us, at_us);
		set_reason(queue, SLOT_WAITS_RATE, at_us, now_us);
		return false;
	}
	if (is_in_budget(queue, slot, now_us))
		return true;
	look_at(wake_us, queue->budget.look_us);
	set_reason(queue, SLOT_WAITS_BUDGET, queue->budget.ends_us, now_us);
	return false;
}

/* Of those who wait the first one that has the lane; NULL: none. */
static struct slot *find_solo(const struct slot_server *server)
{
	LIST_EACH(link, &server->solos) {
		struct slot *slot = CONTAINER_OF(link, struct slot, solo_link);

		if (strncmp(slot->solo, server->solo, sizeof(server->solo) - 1) == 0)
			return slot;
	}
	return NULL;
}

static unsigned solo_width(const struct slot *slot)
{
	if (slot->solo_width == 0)
		return 1;
	return slot->solo_width < slot->queue->concurrency ? slot->solo_width : slot->queue->concurrency;
}

/* The lane is kept for somebody: only his requests may go, also while he is between two of them, or may not go on: that is no reason to let others
 * into his measurement. */
static struct slot *next_solo(struct slot_server *server, uint64_t now_us, uint64_t *wake_us)
{
	struct slot *slot = find_solo(server);

	if (slot == NULL && server->in_flight == 0 && now_us >= server->solo_until_us) {
		server->solo[0] = '\0';
		return NULL;
	}
	set_reasons(server, SLOT_WAITS_SOLO, now_us);
	if (slot == NULL) {
		if (server->in_flight == 0)
			look_at(wake_us, server->solo_until_us);
		return NULL;
	}
	if (!slot->queue->open || server->in_flight >= solo_width(slot))
		return NULL;
	if (may_go(slot, now_us, wake_us))
		return slot;
	return NULL;
}

struct candidates {
	struct slot *first; /* of all */
	struct slot *loaded; /* of those for models that are loaded, an ordinary one */
};

/* The first ones of all queues that may go as far as their own runtime is concerned; of the others, why not. */
static struct candidates find_candidates(struct slot_server *server, uint64_t now_us, uint64_t *wake_us)
{
	struct candidates found = {NULL, NULL};

	LIST_EACH(link, &server->queues) {
		struct slot_queue *queue = CONTAINER_OF(link, struct slot_queue, link);
		struct slot *slot = first_waiting(queue);

		if (slot == NULL)
			continue;
		if (!queue->open) {
			set_reason(queue, SLOT_WAITS_RUNTIME, SLOT_NEVER, now_us);
			continue;
		}
		if (!may_go(slot, now_us, wake_us))
			continue;
		set_reason(queue, SLOT_WAITS_TURN, SLOT_NEVER, now_us);
		if (slot->solo == NULL && queue->in_flight >= queue->concurrency)
			continue;
		if (found.first == NULL || goes_before(slot, found.first))
			found.first = slot;
		if (server->models_max > 0 && slot->solo == NULL && is_loaded(server, queue) && (found.loaded == NULL || goes_before(slot, found.loaded)))
			found.loaded = slot;
	}
	return found;
}

/* Why those wait whose own runtime would have them go. */
static void set_reason_of_turn(struct slot_server *server, enum slot_wait reason, uint64_t now_us)
{
	LIST_EACH(link, &server->queues) {
		struct slot_queue *queue = CONTAINER_OF(link, struct slot_queue, link);

		if (queue->reason == SLOT_WAITS_TURN && (reason == SLOT_WAITS_SOLO || queue->in_flight < queue->concurrency))
			set_reason(queue, reason, SLOT_NEVER, now_us);
	}
}

/* The server would have to load the model of `first`. */
static struct slot *next_of_models(struct slot_server *server, struct candidates found, uint64_t now_us)
{
	struct slot *first = found.first;
	size_t place;
	bool may_pass = first->passed < MODEL_ROW_MAX && (first->passed == 0 || now_us - first->passed_since_us < (uint64_t)MODEL_STAY_MS * US_PER_MS);

	if (server->loaded_count == server->models_max && found.loaded != NULL && found.loaded->priority >= first->priority && may_pass) {
		if (first->passed++ == 0)
			first->passed_since_us = now_us;
		return found.loaded;
	}
	if (!can_load(server, &place)) {
		set_reason_of_turn(server, SLOT_WAITS_MODEL, now_us);
		return NULL;
	}
	use_model(server, first->queue->model, place);
	return first;
}

struct slot *slot_server_next(struct slot_server *server, uint64_t now_us, uint64_t *wake_us)
{
	struct candidates found;
	struct slot *slot;

	*wake_us = SLOT_NEVER;
	now_us = tick(server, now_us);
	slot = NULL;
	if (server->solo[0] != '\0') {
		slot = next_solo(server, now_us, wake_us);
		if (slot == NULL && server->solo[0] != '\0')
			goto none;
	}
	if (slot == NULL) {
		found = find_candidates(server, now_us, wake_us);
		slot = found.first;
		if (slot != NULL && slot->solo != NULL && server->in_flight > 0) {
			/* Those behind it wait meanwhile, else a busy server would never come to it. */
			set_reason_of_turn(server, SLOT_WAITS_SOLO, now_us);
			slot = NULL;
		} else if (slot != NULL && server->models_max > 0 && !is_loaded(server, slot->queue)) {
			slot = next_of_models(server, found, now_us);
		}
	}
	if (slot != NULL) {
		size_t place = find_loaded(server, slot->queue->model);

		if (place + 1 < server->loaded_count)
			use_model(server, slot->queue->model, place);
		return give(slot, now_us);
	}
none:
	if (*wake_us != SLOT_NEVER)
		*wake_us -= server->offset_us;
	return NULL;
}

void slot_queue_add(struct slot_queue *queue, struct slot *slot, uint64_t now_us)
{
	struct slot_server *server = queue->server;

	CHECK(slot->priority <= PRIORITY_MAX);
	now_us = tick(server, now_us);
	slot->queue = queue;
	slot->waiting = true;
	slot->held = false;
	slot->since_us = now_us;
	slot->order_us = now_us + (uint64_t)(PRIORITY_MAX - slot->priority) * PRIORITY_STEP_MS * US_PER_MS;
	slot->number = server->numbers++;
	slot->passed = 0;
	slot->tokens_used = -1;
	slot->unasked = false;
	slot->reserved = 0;
	count_wait(queue, now_us);
	memcpy(slot->waited_us, queue->waited_us, sizeof(slot->waited_us));
	list_init(&slot->solo_link);
	list_add_last(&queue->waiting[slot->priority], &slot->link);
	if (slot->solo != NULL)
		list_add_last(&server->solos, &slot->solo_link);
	queue->levels |= 1u << slot->priority;
	queue->waiting_count++;
}

static bool is_mixed(const struct slot *slot)
{
	return slot->mixed || (slot->held && slot->queue->server->given - slot->queue->given != slot->given_to_others);
}

void slot_queue_leave(struct slot_queue *queue, struct slot *slot, uint64_t now_us)
{
	struct slot_server *server = queue->server;

	if (slot->waiting) {
		take_out(slot);
		return;
	}
	if (!slot->held)
		return;
	now_us = tick(server, now_us);
	slot->mixed = is_mixed(slot);
	slot->held = false;
	slot->held_us = now_us - slot->given_us;
	queue->budget.tokens_reserved -= slot->reserved;
	queue->budget.given_sum_us -= slot->given_us;
	list_remove(&slot->link);
	queue->in_flight--;
	server->in_flight--;
	if (slot->unasked)
		rate_give_back(&queue->requests, 1);
	if (slot->tokens_used > slot->tokens)
		rate_take(&queue->tokens, slot->tokens_used - slot->tokens, now_us);
	else if (slot->tokens_used >= 0)
		rate_give_back(&queue->tokens, slot->tokens - slot->tokens_used);
	if (slot->solo == NULL)
		return;
	server->solo_over |= slot->solo_last;
	if (server->in_flight > 0) /* others of the lane */
		return;
	server->solo_until_us = now_us + (uint64_t)SOLO_LINGER_MS * US_PER_MS;
	if (server->solo_over)
		server->solo[0] = '\0';
}

void slot_queue_hold(struct slot_queue *queue, int64_t for_us, uint64_t now_us)
{
	uint64_t until_us = tick(queue->server, now_us) + (uint64_t)for_us;

	if (for_us > 0 && until_us > queue->held_until_us)
		queue->held_until_us = until_us;
}

unsigned slot_company_max(const struct slot *slot)
{
	const struct slot_queue *own = slot->queue;
	/* It may have changed: more at the begin are in flight still, more at the end came in between. */
	unsigned width = slot->concurrency > own->concurrency ? slot->concurrency : own->concurrency;

	if (slot->solo != NULL)
		return slot->solo_width > 1 ? width : 1;
	if (!is_mixed(slot))
		return width;
	LIST_EACH(link, &own->server->queues) {
		const struct slot_queue *queue = CONTAINER_OF(link, struct slot_queue, link);

		width += queue != own ? queue->concurrency : 0;
	}
	return width;
}

void slot_server_end_solo(struct slot_server *server)
{
	server->solo[0] = '\0';
}

double slot_queue_oldest_ms(const struct slot_queue *queue, uint64_t now_us)
{
	uint64_t oldest = SLOT_NEVER, now = now_us + queue->server->offset_us;

	for (unsigned levels = queue->levels; levels != 0; levels &= levels - 1) {
		const struct slot *slot = CONTAINER_OF(queue->waiting[__builtin_ctz(levels)].next, struct slot, link);

		if (slot->since_us < oldest)
			oldest = slot->since_us;
	}
	return oldest < now ? (double)(now - oldest) / US_PER_MS : 0;
}

void slot_server_init(struct slot_server *server)
{
	*server = (struct slot_server){0};
	list_init(&server->queues);
	list_init(&server->solos);
}

void slot_queue_init(struct slot_queue *queue, struct slot_server *server, const char *model)
{
	*queue = (struct slot_queue){.server = server, .model = model, .concurrency = 1, .open = true, .budget = {.ends_us = SLOT_NEVER, .look_us = SLOT_NEVER}, .reason_until_us = SLOT_NEVER};
	for (size_t i = 0; i < PRIORITY_COUNT; i++)
		list_init(&queue->waiting[i]);
	list_init(&queue->holding);
	list_add_last(&server->queues, &queue->link);
}

void slot_queue_close(struct slot_queue *queue)
{
	CHECK(queue->waiting_count == 0 && queue->in_flight == 0);
	list_remove(&queue->link);
}
