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

-- Admissions of the open transaction, for those triggers. The deferred foreign key of a row cannot be satisfied, so a commit fails
-- while a row exists: end the transaction with DELETE FROM leasehold_admission. A row that is left nevertheless opens no table, see
-- the guards.
CREATE TABLE leasehold_empty (id INTEGER PRIMARY KEY CHECK (0)) STRICT;
CREATE TABLE leasehold_admission (
  resource    TEXT NOT NULL,
  slot        INTEGER NOT NULL,
  number      INTEGER NOT NULL,
  must_delete INTEGER NOT NULL DEFAULT 0 CHECK (must_delete = 0)
    REFERENCES leasehold_empty (id) DEFERRABLE INITIALLY DEFERRED,
  PRIMARY KEY (resource, slot)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER leasehold_reject_admission_update BEFORE UPDATE ON leasehold_admission
BEGIN SELECT RAISE(ABORT, 'CONFLICT: an admission cannot be changed; delete it and insert into leasehold_admit again'); END;

-- The check in plain SQL: INSERT INTO leasehold_admit VALUES ('jobs/settle', 'lh1-…') as the first statement of a transaction.
-- A new holder first claims with INSERT INTO leasehold_claim. `leasehold_admit_once` also takes a sequence and rejects late
-- duplicates. These checks do not verify the token's checksum.
CREATE VIEW leasehold_claim (resource, token) AS SELECT NULL, NULL WHERE 0;
CREATE VIEW leasehold_admit (resource, token) AS SELECT NULL, NULL WHERE 0;
CREATE VIEW leasehold_admit_once (resource, token, sequence) AS SELECT NULL, NULL, NULL WHERE 0;
-- Internal steps: parse the token text, then check its parts.
CREATE VIEW leasehold_parse (name, token, sequence, is_write) AS SELECT NULL, NULL, NULL, NULL WHERE 0;
CREATE VIEW leasehold_check (name, resource, slot, cluster, incarnation, number, sequence, is_write) AS
  SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL WHERE 0;

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

CREATE TRIGGER leasehold_on_parse INSTEAD OF INSERT ON leasehold_parse BEGIN
  SELECT RAISE(ABORT, 'TOKEN_INVALID: absent: no token was presented; pass the token text of the grant')
    WHERE coalesce(NEW.token, '') = '';
  SELECT RAISE(ABORT, 'TOKEN_INVALID: shape: the text is not a token; pass the token text of the grant unchanged')
    WHERE length(NEW.token) <> 85 OR substr(NEW.token, 1, 4) <> 'lh1-' OR substr(NEW.token, 58, 19) GLOB '*[^0-9]*'
      OR substr(NEW.token, 77, 1) <> '-' OR substr(NEW.token, 57, 1) <> '-';
  SELECT RAISE(ABORT, 'TOKEN_INVALID: shared: the token is of a shared lease or a reservation; acquire an exclusive lease')
    WHERE substr(NEW.token, 48, 1) <> 'w';
  SELECT RAISE(ABORT, 'TOKEN_INVALID: zero: the number is zero; pass the token text of the grant unchanged')
    WHERE substr(NEW.token, 58, 19) = '0000000000000000000';
  SELECT RAISE(ABORT, 'TOKEN_INVALID: too_large: the number is 2^63 or more; pass the token text of the grant unchanged')
    WHERE substr(NEW.token, 58, 19) > '9223372036854775807';
  INSERT INTO leasehold_check VALUES (NEW.name, substr(NEW.token, 31, 16),
    (SELECT slot FROM leasehold_slot WHERE token_slot = substr(NEW.token, 48, 9)), substr(NEW.token, 5, 16),
    substr(NEW.token, 22, 8), CAST(substr(NEW.token, 58, 19) AS INTEGER), NEW.sequence, NEW.is_write);
END;
