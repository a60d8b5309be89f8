/* CloudEvents 1.0: read from a request (structured or binary mode) or made by `emit`, checked, and brought into one canonical form,
 * the envelope: an object of the attributes with `data` or `data_base64`, printed canonically. The envelope is what is kept, matched,
 * given to workflows and sent on; whichever way an event came in, equal events have equal bytes.
 *
 * Sources: CloudEvents 1.0.2, its JSON format and its HTTP binding; the named limits are ours. Pure; any thread.
 * New here? Read cloud_event_check(). */
#pragma once

#include "workflow/base/json.h"

enum {
	CLOUD_EVENT_BYTES_MAX = 1 << 20, /* of an envelope, and of a request that brings one */
	CLOUD_EVENT_ATTRIBUTES_MAX = 64,
	CLOUD_EVENT_NAME_MAX = 64, /* bytes of an attribute's name; the specification advises 20 */
	CLOUD_EVENT_TEXT_MAX = 4096, /* bytes of an attribute's value */
	CLOUD_EVENT_LEVELS_MAX = 100, /* of an envelope; what workflows put around it must be readable too (JSON_DEPTH_MAX) */
};

/* All of it lies in the arena given. */
struct cloud_event {
	struct json *envelope;
	const char *id, *source, *type; /* parts of it */
	struct bytes bytes; /* its canonical form */
	struct digest key; /* cloud_event_key(): what an event is told from another by */
};

/* SHA-256 of the canonical [source, id]. */
struct digest cloud_event_key(const char *source, const char *id);

/* An object that should be an envelope: names, types and sizes of all attributes; one that is null is unset and left out.
 * `envelope` is not changed; what is in it lives on in the event. ERR_INVALID, ERR_TOO_LARGE; the message names the attribute. */
int cloud_event_check(struct arena *arena, const struct json *envelope, struct cloud_event *event, struct error *error);

/* Structured mode: application/cloudevents+json. */
int cloud_event_parse(struct arena *arena, struct bytes text, struct cloud_event *event, struct error *error);

/* Canonical bytes of our own, out of the journal: read back without the checks. ERR_CORRUPT. */
int cloud_event_read(struct arena *arena, struct bytes stored, struct cloud_event *event, struct error *error);

/* Binary mode: attributes in headers `ce-*`, the body as data. Of JSON (application/json, *+json, or no content type) the value becomes `data`, of text
 * (text/…, in UTF-8) the text, of anything else `data_base64`; an empty body is no data. */
struct cloud_event_header {
	const char *name; /* with its ce-, in any case; others are passed over */
	const char *value; /* percent-encoded as the binding has it */
};
int cloud_event_from_headers(struct arena *arena, const struct cloud_event_header *headers, size_t count, const char *content_type /* or NULL */,
			     struct bytes body, struct cloud_event *event, struct error *error);

/* An `emit`: what `with` leaves out is put in (specversion 1.0, and the id, source and time given; a NULL source: then it is required). */
struct cloud_event_defaults {
	const char *id, *source;
	int64_t time_ms;
};
int cloud_event_make(struct arena *arena, const struct json *with, const struct cloud_event_defaults *defaults, struct cloud_event *event, struct error *error);
