-- Runs that a task of another run started (`run: {workflow}`). Made from run.created, like the rest of the row.
ALTER TABLE run ADD COLUMN parent TEXT; -- the run around it; NULL: it is no child
ALTER TABLE run ADD COLUMN parent_step TEXT;
ALTER TABLE run ADD COLUMN awaited INTEGER NOT NULL DEFAULT 0; -- the step lasts as long as the child
CREATE INDEX run_parent ON run(parent, seq) WHERE parent IS NOT NULL;
