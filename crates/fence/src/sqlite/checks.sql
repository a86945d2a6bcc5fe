-- Triggers that reject changes which lower, move or delete a mark.
CREATE TRIGGER leasehold_check_mark_change BEFORE UPDATE ON leasehold_fence
WHEN coalesce(NEW.mark, 0) < coalesce(OLD.mark, 0)
  OR (NEW.resource, NEW.slot, NEW.cluster) IS NOT (OLD.resource, OLD.slot, OLD.cluster)
BEGIN SELECT RAISE(ABORT, 'CONFLICT: a mark cannot be lowered or moved to another resource, slot or cluster; use a higher number'); END;

CREATE TRIGGER leasehold_reject_mark_delete BEFORE DELETE ON leasehold_fence
BEGIN SELECT RAISE(ABORT, 'CONFLICT: a mark outlives its leases and cannot be deleted; declare it lost to reject all tokens'); END;

-- INSERT OR REPLACE would delete a row without firing the triggers above.
CREATE TRIGGER leasehold_reject_mark_replace BEFORE INSERT ON leasehold_fence
WHEN EXISTS (SELECT 1 FROM leasehold_fence AS f WHERE f.resource = NEW.resource AND f.slot = NEW.slot)
BEGIN SELECT RAISE(ABORT, 'CONFLICT: a mark already exists for this resource and slot; update it instead'); END;

-- Tables whose triggers reject transactions that were not admitted.
CREATE TABLE leasehold_protected (
  relation TEXT PRIMARY KEY,
  resource TEXT NOT NULL,
  slot     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- A table without rows, see leasehold_admission.
CREATE TABLE leasehold_empty (id INTEGER PRIMARY KEY CHECK (0)) STRICT;

-- The check in plain SQL: INSERT INTO leasehold_admit VALUES ('jobs/settle', 'lh1-…') as the first statement of a transaction.
-- A new holder first claims with INSERT INTO leasehold_claim. `leasehold_admit_once` also takes a sequence and rejects late
-- duplicates. These checks do not verify the token's checksum.
CREATE VIEW leasehold_claim (resource, token) AS SELECT NULL, NULL WHERE 0;
CREATE VIEW leasehold_admit (resource, token) AS SELECT NULL, NULL WHERE 0;
CREATE VIEW leasehold_admit_once (resource, token, sequence) AS SELECT NULL, NULL, NULL WHERE 0;
-- Internal steps: parse the token text, then check its parts (leasehold_check).
CREATE VIEW leasehold_parse (name, token, sequence, is_write) AS SELECT NULL, NULL, NULL, NULL WHERE 0;

CREATE VIEW leasehold_slot (token_slot, slot) AS -- the slot of a row in the spelling of the token text
SELECT DISTINCT 'w' || printf('%08x', slot), slot FROM leasehold_fence;

CREATE TRIGGER leasehold_on_claim INSTEAD OF INSERT ON leasehold_claim BEGIN
  INSERT INTO leasehold_parse VALUES (NEW.resource, NEW.token, NULL, 0);
END;

CREATE TRIGGER leasehold_on_admit INSTEAD OF INSERT ON leasehold_admit BEGIN
  INSERT INTO leasehold_parse VALUES (NEW.resource, NEW.token, NULL, 1);
END;

CREATE TRIGGER leasehold_on_admit_once INSTEAD OF INSERT ON leasehold_admit_once BEGIN
  SELECT RAISE(ABORT, 'INVALID_ARGUMENT: the sequence is not an integer of 0 or more; number the writes of a lease from 0')
    WHERE typeof(NEW.sequence) <> 'integer' OR NEW.sequence < 0;
  INSERT INTO leasehold_parse VALUES (NEW.resource, NEW.token, NEW.sequence, 1);
END;
