/* See fetch.h. */
#include "activities/fetch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "activities/internal.h"
#include "workflow/base/check.h"

struct fetching {
	struct resource_fetch *fetch;
	struct activities *activities;
	struct transfer transfer;
	struct deadline *total;
	char host[256];
	char *headers;
};

static void finish(struct fetching *own)
{
	struct activities *activities = own->activities;
	struct resource_fetch *fetch = own->fetch;

	deadline_free(activities, own->total);
	fetch->bytes = buffer_bytes(&own->transfer.received);
	fetch->on_done(fetch);
	transfer_close(&own->transfer);
	free(own->headers);
	free(own);
	outside_end(activities);
}

static void on_transferred(struct transfer *transfer)
{
	struct fetching *own = transfer->owner;
	struct error *error = &own->fetch->error;

	if (transfer->end == TRANSFER_NOT_ALLOWED)
		error_set(error, ERR_DENIED, "%s (%s) may not be reached: http.allow does not name it", own->host, transfer->address);
	else if (transfer->end == TRANSFER_TOO_LARGE)
		error_set(error, ERR_TOO_LARGE, "it is larger than %d bytes (RESOURCE_BODY_MAX)", RESOURCE_BODY_MAX);
	else if (transfer->end != TRANSFER_COMPLETE)
		error_set(error, ERR_INVALID, "%s cannot be reached: %s", own->host, transfer->detail);
	else if (transfer->status != 200)
		error_set(error, ERR_INVALID, "%s answered %d", own->host, transfer->status);
	finish(own);
}

static void on_due(struct deadline *deadline)
{
	struct fetching *own = deadline->owner;

	transfer_cancel(&own->transfer);
	error_set(&own->fetch->error, ERR_INVALID, "no whole answer of %s within %d ms (RESOURCE_TOTAL_MS)", own->host, RESOURCE_TOTAL_MS);
	finish(own);
}

int resource_fetch_start(struct activities *activities, struct resource_fetch *fetch, struct error *error)
{
	struct fetching *own;
	char host[256];

	if (activities->closing)
		return error_set(error, ERR_BUSY, "the daemon is stopping");
	if (!url_check(fetch->url, host, error))
		return (int)error->code;
	if (address_rules_empty(activities->http_allow))
		return error_set(error, ERR_DENIED, "%s may not be reached: http.allow is empty", host);
	own = memory_zero(sizeof(*own));
	own->fetch = fetch;
	own->activities = activities;
	memcpy(own->host, host, sizeof(host));
	own->headers = memory_alloc(sizeof(activities->user_agent) + 64);
	sprintf(own->headers, "User-Agent: %s\nAccept: application/json, application/yaml\n", activities->user_agent);
	fetch->error = (struct error){0};
	own->transfer = (struct transfer){.method = "GET", .url = fetch->url, .headers = own->headers, .effectful = true, .allow = activities->http_allow, .host = own->host,
					  .body_max = RESOURCE_BODY_MAX, .on_done = on_transferred, .owner = own};
	if (transfer_start(activities->curl, &own->transfer, error) != 0) {
		transfer_close(&own->transfer);
		free(own->headers);
		free(own);
		return (int)error->code;
	}
	own->total = deadline_new(activities, on_due, own);
	deadline_start(own->total, RESOURCE_TOTAL_MS);
	outside_begin(activities);
	return 0;
}
