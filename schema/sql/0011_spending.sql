-- What was used of a runtime in a day of UTC: the sums of `spent` in the entries of that day. They outlive their entries.
CREATE TABLE runtime_spending(
	runtime TEXT NOT NULL, -- its configured name
	day INTEGER NOT NULL, -- since 1970-01-01
	tokens INTEGER NOT NULL,
	us INTEGER NOT NULL,
	PRIMARY KEY(runtime, day)
) STRICT, WITHOUT ROWID;
