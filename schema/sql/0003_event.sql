-- Events that came in or were emitted, in the order of the journal, as long as they are known: a second one of the same key is
-- a duplicate, and listeners are offered them. Made from event.received, event.emitted and events.forgotten.
CREATE TABLE event(
	seq INTEGER PRIMARY KEY,
	key BLOB NOT NULL UNIQUE CHECK(length(key) = 32), -- of source and id
	time_ms INTEGER NOT NULL -- of the entry, not the event's own
) STRICT;
CREATE INDEX event_time ON event(time_ms, seq);

-- How far each HTTP sink has come. Made from sink.advanced.
CREATE TABLE sink(
	name TEXT PRIMARY KEY NOT NULL,
	position INTEGER NOT NULL
) STRICT;

-- Of a schedule that waits for events: all up to this one have counted.
ALTER TABLE schedule ADD COLUMN event_seq INTEGER NOT NULL DEFAULT 0;
