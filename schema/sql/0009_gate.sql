-- Gates: what was measured of a configuration's reproducibility. Made from gate.recorded; the report is that entry's value. They outlive their runs.
CREATE TABLE gate(
	seq INTEGER PRIMARY KEY,
	id BLOB NOT NULL CHECK(length(id) = 32), -- of the report
	run TEXT NOT NULL, -- id
	runtime TEXT NOT NULL,
	class TEXT NOT NULL
) STRICT;
CREATE INDEX gate_id ON gate(id);
CREATE INDEX gate_runtime ON gate(runtime, seq);
