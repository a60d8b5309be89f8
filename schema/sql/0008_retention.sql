-- What retention leaves in the place of what it takes. The tables of before were always empty: nothing removed anything yet.

-- Ids of runs that are gone: an id is never quietly used for other work. Made from runs.purged.
DROP TABLE run_tombstone;
CREATE TABLE run_tombstone(
	id TEXT PRIMARY KEY NOT NULL,
	run INTEGER NOT NULL, -- seq of run.created
	request BLOB NOT NULL,
	ended_ms INTEGER NOT NULL,
	purged_ms INTEGER NOT NULL,
	kept_ms INTEGER NOT NULL, -- the policy: so long after its end; 0: an operator said so
	reason TEXT -- the operator's
) STRICT, WITHOUT ROWID;

-- Of removed runs whose facts are kept: what these are still listed by. Made from runs.purged.
CREATE TABLE kept_run(
	run INTEGER PRIMARY KEY, -- seq of run.created
	id TEXT NOT NULL,
	namespace TEXT NOT NULL,
	name TEXT NOT NULL
) STRICT;

-- Removed runs whose values are yet to be deleted: work that a crash must not forget. They and their rows of run_entry go together.
CREATE TABLE run_clearing(
	run INTEGER PRIMARY KEY,
	seq_next INTEGER NOT NULL -- the first entry whose values were not looked at yet
) STRICT;

-- Values that somebody had erased. Made from content.erased, whose entry is kept for ever.
CREATE TABLE erasure(
	digest BLOB PRIMARY KEY NOT NULL CHECK(length(digest) = 32),
	seq INTEGER NOT NULL, -- of content.erased, the last one
	erased_ms INTEGER NOT NULL,
	reason TEXT
) STRICT, WITHOUT ROWID;

-- kept: how many entries of the tile stay. leaves: its leaves stay too, for one of these or for a cosigned checkpoint that ends within it.
ALTER TABLE journal_prune ADD COLUMN kept INTEGER NOT NULL DEFAULT 0;
ALTER TABLE journal_prune ADD COLUMN leaves INTEGER NOT NULL DEFAULT 0;
