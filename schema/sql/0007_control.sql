-- Runs that are suspended: why, and whether it was an operator or because they could not go on. Made from run.suspended, like the rest of the row.
ALTER TABLE run ADD COLUMN suspended INTEGER; -- seq of the run.suspended; NULL: it is not
ALTER TABLE run ADD COLUMN quarantined INTEGER NOT NULL DEFAULT 0;
