/* See retry.h. */
#include "workflow/retry.h"

#include <stdio.h>
#include <string.h>

#include "workflow/base/digest.h"

enum { RETRY_FLOOR_MIN_MS = 10 }; /* However a policy is configured: never at once (C37). */

static uint64_t random_of(const char *run_id, const char *step_id, uint64_t count)
{
	char text[512];
	int len = snprintf(text, sizeof text, "%s\n%s\n%llu", run_id, step_id, (unsigned long long)count);
	struct digest hash = digest_of((struct bytes){(const uint8_t *)text, (size_t)len < sizeof text ? (size_t)len : sizeof text - 1});
	uint64_t random;

	memcpy(&random, hash.bytes, sizeof random);
	return random;
}

int64_t retry_delay_ms(const char *run_id, const char *step_id, unsigned failures, int64_t floor_ms, int64_t cap_ms, int64_t retry_after_ms)
{
	int64_t delay;

	if (floor_ms < RETRY_FLOOR_MIN_MS)
		floor_ms = RETRY_FLOOR_MIN_MS;
	if (cap_ms < floor_ms)
		cap_ms = floor_ms;
	delay = floor_ms;
	for (unsigned i = 1; i < failures && delay < cap_ms; i++)
		delay *= 2;
	if (delay > cap_ms)
		delay = cap_ms;

	delay -= (int64_t)(random_of(run_id, step_id, failures) % (uint64_t)(delay / 4 + 1));

	if (delay < floor_ms)
		delay = floor_ms;
	if (retry_after_ms > cap_ms)
		retry_after_ms = cap_ms;
	return delay > retry_after_ms ? delay : retry_after_ms;
}

int64_t retry_backoff_ms(enum retry_backoff backoff, int64_t delay_ms, uint64_t n)
{
	int64_t delay = delay_ms;

	if (delay > RETRY_DELAY_MAX_MS)
		delay = RETRY_DELAY_MAX_MS;
	switch (backoff) {
	case RETRY_CONSTANT:
		break;
	case RETRY_LINEAR:
		delay = delay > 0 && n > (uint64_t)(RETRY_DELAY_MAX_MS / delay) ? RETRY_DELAY_MAX_MS : delay * (int64_t)n;
		break;
	case RETRY_EXPONENTIAL:
		for (uint64_t i = 1; i < n && delay > 0 && delay < RETRY_DELAY_MAX_MS; i++)
			delay *= 2;
		if (delay > RETRY_DELAY_MAX_MS)
			delay = RETRY_DELAY_MAX_MS;
		break;
	}
	return delay > RETRY_FLOOR_MIN_MS ? delay : RETRY_FLOOR_MIN_MS;
}

int64_t retry_jitter_ms(const char *run_id, const char *step_id, uint64_t n, int64_t from_ms, int64_t to_ms)
{
	if (to_ms <= from_ms)
		return from_ms;
	return from_ms + (int64_t)(random_of(run_id, step_id, n) % (uint64_t)(to_ms - from_ms + 1));
}
