/* When the next attempt is due. Pure: the jitter is a hash of run, step and attempt, so that replay agrees. */
#pragma once

#include <stdint.h>

/* Milliseconds from now: floor * 2^(failures - 1), at most cap, of which up to a quarter is taken off by the jitter, but never
 * under the floor nor under what the peer asked for (Retry-After; itself cut at the cap). failures counts from 1. */
int64_t retry_delay_ms(const char *run_id, const char *step_id, unsigned failures, int64_t floor_ms, int64_t cap_ms, int64_t retry_after_ms);
