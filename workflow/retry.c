/* See retry.h. */
#include "workflow/retry.h"

#include <stdio.h>
#include <string.h>

#include "workflow/base/digest.h"

enum { RETRY_FLOOR_MIN_MS = 10 }; /* However a policy is configured: never at once (C37). */

int64_t retry_delay_ms(const char *run_id, const char *step_id, unsigned failures, int64_t floor_ms, int64_t cap_ms, int64_t retry_after_ms)
{
	char text[512];
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

	int len = snprintf(text, sizeof text, "%s\n%s\n%u", run_id, step_id, failures);
	struct digest hash = digest_of((struct bytes){(const uint8_t *)text, (size_t)len < sizeof text ? (size_t)len : sizeof text - 1});
	uint64_t random;
	memcpy(&random, hash.bytes, sizeof random);
	delay -= (int64_t)(random % (uint64_t)(delay / 4 + 1));

	if (delay < floor_ms)
		delay = floor_ms;
	if (retry_after_ms > cap_ms)
		retry_after_ms = cap_ms;
	return delay > retry_after_ms ? delay : retry_after_ms;
}
