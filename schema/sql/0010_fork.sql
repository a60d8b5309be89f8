-- Of a run that is a fork: the run that it was forked of. Made from run.created, like the rest of the row.
ALTER TABLE run ADD COLUMN forked_from TEXT; -- its id; NULL: it is none
CREATE INDEX run_forked_from ON run(forked_from, seq) WHERE forked_from IS NOT NULL;
