-- What was used of a runtime in a day of UTC: the sums of `spent` in the entries of that day. They outlive their entries.
CREATE TABLE runtime_spending(
	runtime TEXT NOT NULL, -- its configured name
	day INTEGER NOT NULL, -- since 1970-01-01
	tokens INTEGER NOT NULL,
	us INTEGER NOT NULL,
	PRIMARY KEY(runtime, day)
) STRICT, WITHOUT ROWID;
-- Entries below this place are in the sums; those behind it, a few hundred at most, are looked at where somebody asks.
CREATE TABLE spending_mark(only INTEGER PRIMARY KEY CHECK(only = 1), seq INTEGER NOT NULL) STRICT;
INSERT INTO spending_mark SELECT 1, coalesce(max(seq) + 1, 0) FROM entry;
