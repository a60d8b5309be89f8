-- Of a run that waits for nothing but times: the first of them, and the time of the entry with which it began to. A start leaves such a run alone
-- until then, however many there are.
ALTER TABLE run ADD COLUMN wake_ms INTEGER;
ALTER TABLE run ADD COLUMN rested_ms INTEGER;
