/* When the next attempt is due. Pure: the jitter is a hash of run, step and attempt, so that replay agrees. */
#pragma once

#include <stdint.h>

#include "workflow/language/definition.h"

/* Milliseconds from now: floor * 2^(failures - 1), at most cap, of which up to a quarter is taken off by the jitter, but never
 * under the floor nor under what the peer asked for (Retry-After; itself cut at the cap). failures counts from 1. */
int64_t retry_delay_ms(const char *run_id, const char *step_id, unsigned failures, int64_t floor_ms, int64_t cap_ms, int64_t retry_after_ms);

/* Of a `catch.retry` (dsl.md 1.6; the specification has no formulas): the n-th retry, counted from 1, waits delay, delay * n or
 * delay * 2^(n - 1), at most RETRY_DELAY_MAX_MS and never nothing at all; then comes what the jitter adds, between from and to, both included, from
 * a hash of run, step and n. */
enum { RETRY_DELAY_MAX_MS = 24 * 3600 * 1000 };
int64_t retry_backoff_ms(enum retry_backoff backoff, int64_t delay_ms, uint64_t n);
int64_t retry_jitter_ms(const char *run_id, const char *step_id, uint64_t n, int64_t from_ms, int64_t to_ms);
