-- The journal's first schema. `entry` and `content` (with `blob` and `blob_chunk`, where its large values lie) are the
-- truth; every other table is made from the two by store/tables.c and can be made again.
-- Rows are appended by row id wherever that is possible: each page that a commit touches is two writes and a longer
-- fsync, and a tree keyed by digest grows slower with every row. No IN with three values or more in a CHECK or an index: SQLite
-- builds a temporary tree for it on every insert (a third of a commit's time).

-- Level 0 of the Merkle tree.
CREATE TABLE journal(
	seq INTEGER PRIMARY KEY CHECK(seq >= 0),
	leaf BLOB NOT NULL CHECK(length(leaf) = 32)
) STRICT;

CREATE TABLE entry(
	seq INTEGER PRIMARY KEY REFERENCES journal(seq),
	bytes BLOB NOT NULL CHECK(length(bytes) <= 65535)
) STRICT;

-- Roots of perfect subtrees, levels 8, 16, 24 … alone; what lies between is hashed again when it is asked for.
CREATE TABLE journal_node(
	level INTEGER NOT NULL CHECK(level >= 1),
	idx INTEGER NOT NULL CHECK(idx >= 0),
	hash BLOB NOT NULL CHECK(length(hash) = 32),
	PRIMARY KEY(level, idx)
) STRICT, WITHOUT ROWID;

-- What retention took away.
CREATE TABLE journal_prune(
	tile INTEGER PRIMARY KEY,
	root BLOB NOT NULL CHECK(length(root) = 32),
	at TEXT NOT NULL
) STRICT;

CREATE TABLE checkpoint(
	size INTEGER PRIMARY KEY,
	note BLOB NOT NULL,
	signed_at TEXT NOT NULL
) STRICT;

-- Holds a row only inside the transaction of a retention pass: the key to the triggers below. They are meant against
-- accidents, not against attackers; those are what the tree and its checkpoints are for.
CREATE TABLE pruning(allowed INTEGER PRIMARY KEY) STRICT;

CREATE TRIGGER journal_update BEFORE UPDATE ON journal BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER entry_update BEFORE UPDATE ON entry BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER journal_node_update BEFORE UPDATE ON journal_node BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER checkpoint_update BEFORE UPDATE ON checkpoint BEGIN SELECT RAISE(ABORT, 'checkpoints are append-only'); END;
CREATE TRIGGER journal_delete BEFORE DELETE ON journal WHEN NOT EXISTS (SELECT 1 FROM pruning)
BEGIN SELECT RAISE(ABORT, 'only retention deletes from the journal'); END;
CREATE TRIGGER entry_delete BEFORE DELETE ON entry WHEN NOT EXISTS (SELECT 1 FROM pruning)
BEGIN SELECT RAISE(ABORT, 'only retention deletes from the journal'); END;
CREATE TRIGGER journal_node_delete BEFORE DELETE ON journal_node BEGIN SELECT RAISE(ABORT, 'nodes of the tree are kept for ever'); END;
CREATE TRIGGER checkpoint_delete BEFORE DELETE ON checkpoint WHEN NOT EXISTS (SELECT 1 FROM pruning)
BEGIN SELECT RAISE(ABORT, 'only retention thins out checkpoints'); END;

-- Values, at (seq << 8) + slot + 1 of the entry that first names them. encoding: 0 the bytes as they are, 2 in `blob`
-- under the digest, 3 erased (the digest stays).
CREATE TABLE content(
	id INTEGER PRIMARY KEY,
	digest BLOB NOT NULL CHECK(length(digest) = 32),
	size INTEGER NOT NULL CHECK(size >= 0),
	encoding INTEGER NOT NULL CHECK(encoding = 0 OR encoding = 2 OR encoding = 3),
	bytes BLOB
) STRICT;
-- Who still names a large value: for retention. Small values have no row here.
CREATE INDEX content_blob ON content(digest) WHERE encoding = 2;

-- Values over 16 KiB, stored once. encoding: 0 as they are, 1 zstd, 2 in `blob_chunk`.
CREATE TABLE blob(
	digest BLOB PRIMARY KEY NOT NULL CHECK(length(digest) = 32),
	size INTEGER NOT NULL,
	encoding INTEGER NOT NULL CHECK(encoding = 0 OR encoding = 1 OR encoding = 2),
	bytes BLOB
) STRICT;

-- Values over 1 MiB, written before the transaction that names them. encoding: 0 as they are, 1 zstd.
CREATE TABLE blob_chunk(
	digest BLOB NOT NULL CHECK(length(digest) = 32),
	n INTEGER NOT NULL CHECK(n >= 0),
	encoding INTEGER NOT NULL CHECK(encoding = 0 OR encoding = 1),
	bytes BLOB NOT NULL,
	PRIMARY KEY(digest, n)
) STRICT;

-- For `commitment: salted`: the salt of the content row `id`; erased together with it.
CREATE TABLE salt(
	id INTEGER PRIMARY KEY,
	salt BLOB NOT NULL
) STRICT;

-- seq is that of run.created: newest first is a walk from the end.
CREATE TABLE run(
	seq INTEGER PRIMARY KEY,
	id TEXT NOT NULL UNIQUE,
	namespace TEXT NOT NULL,
	name TEXT NOT NULL,
	version TEXT NOT NULL,
	definition BLOB NOT NULL,
	request BLOB NOT NULL,
	status TEXT NOT NULL,
	created_ms INTEGER NOT NULL,
	ended_ms INTEGER,
	killed INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX run_open ON run(seq) WHERE ended_ms IS NULL;
-- Rare states only, so that the common way through a run touches no index of states.
CREATE INDEX run_trouble ON run(status, seq) WHERE status = 'faulted' OR status = 'cancelled' OR status = 'suspended';

CREATE TABLE run_label(
	key TEXT NOT NULL,
	value TEXT NOT NULL,
	run INTEGER NOT NULL,
	PRIMARY KEY(key, value, run)
) STRICT, WITHOUT ROWID;

-- One row for each decision: which entries of the journal are the run's.
CREATE TABLE run_entry(
	run INTEGER NOT NULL,
	seq_first INTEGER NOT NULL,
	count INTEGER NOT NULL,
	PRIMARY KEY(run, seq_first)
) STRICT, WITHOUT ROWID;

-- Ids of runs that retention removed: an id is never quietly used for other work.
CREATE TABLE run_tombstone(
	id TEXT PRIMARY KEY NOT NULL,
	request BLOB NOT NULL,
	purged_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE fact(
	seq INTEGER PRIMARY KEY,
	id BLOB NOT NULL CHECK(length(id) = 32),
	accepted INTEGER NOT NULL,
	run INTEGER NOT NULL,
	runtime TEXT NOT NULL,
	class TEXT NOT NULL,
	document BLOB NOT NULL
) STRICT;
CREATE INDEX fact_id ON fact(id);
CREATE INDEX fact_document ON fact(document, seq);

-- document, source: row ids of content.
CREATE TABLE definition(
	seq INTEGER PRIMARY KEY,
	namespace TEXT NOT NULL,
	name TEXT NOT NULL,
	version TEXT NOT NULL,
	digest BLOB NOT NULL CHECK(length(digest) = 32),
	added_ms INTEGER NOT NULL,
	registered INTEGER NOT NULL,
	document INTEGER NOT NULL,
	source INTEGER
) STRICT;
CREATE UNIQUE INDEX definition_name ON definition(namespace, name, version) WHERE registered = 1;
CREATE INDEX definition_digest ON definition(digest);

CREATE TABLE document(
	seq INTEGER PRIMARY KEY,
	digest BLOB NOT NULL UNIQUE CHECK(length(digest) = 32),
	size INTEGER NOT NULL,
	media_type TEXT NOT NULL,
	added_ms INTEGER NOT NULL,
	content INTEGER NOT NULL
) STRICT;

-- digest: of the configuration's values; record: of the stored record, which also holds basis and source.
CREATE TABLE configuration(
	seq INTEGER PRIMARY KEY,
	runtime TEXT NOT NULL,
	digest BLOB NOT NULL CHECK(length(digest) = 32),
	record BLOB NOT NULL CHECK(length(record) = 32),
	content INTEGER NOT NULL
) STRICT;
CREATE INDEX configuration_digest ON configuration(digest);
CREATE INDEX configuration_runtime ON configuration(runtime);

CREATE TABLE timer(
	run INTEGER NOT NULL,
	timer TEXT NOT NULL,
	due_ms INTEGER NOT NULL,
	PRIMARY KEY(run, timer)
) STRICT, WITHOUT ROWID;

-- Every public key the log has told of; the newest of a purpose is the one in use.
CREATE TABLE public_key(
	seq INTEGER PRIMARY KEY,
	purpose TEXT NOT NULL,
	key_id TEXT NOT NULL,
	public TEXT NOT NULL
) STRICT;
