-- Workflows that start by themselves: of each name the version that was added last, if it has a schedule. Made from the entries
-- definition.added and schedule.*, like every derived table.
CREATE TABLE schedule(
	id TEXT PRIMARY KEY NOT NULL, -- "namespace.name"
	seq INTEGER NOT NULL, -- of definition.added
	definition BLOB NOT NULL,
	namespace TEXT NOT NULL,
	name TEXT NOT NULL,
	version TEXT NOT NULL,
	added_ms INTEGER NOT NULL,
	accounted_ms INTEGER NOT NULL, -- up to this tick all have run or were skipped; added_ms before the first
	last_due_ms INTEGER,
	last_run TEXT,
	ticked INTEGER NOT NULL DEFAULT 0,
	skipped INTEGER NOT NULL DEFAULT 0,
	skipped_why TEXT,
	paused INTEGER NOT NULL DEFAULT 0
) STRICT;
