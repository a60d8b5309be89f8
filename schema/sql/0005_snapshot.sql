-- The state of a long run as of one of its entries, so that a start does not fold all that came before it. A cache: neither truth
-- nor made from it by rebuilding. It counts only with its digest and with the leaf that the journal has at `seq`; with every row deleted the
-- journal says the same, and starts take longer.
CREATE TABLE snapshot(
	run INTEGER PRIMARY KEY, -- seq of run.created
	seq INTEGER NOT NULL, -- the last entry that is in it
	leaf BLOB NOT NULL CHECK(length(leaf) = 32),
	digest BLOB NOT NULL CHECK(length(digest) = 32),
	bytes BLOB NOT NULL
) STRICT;
