-- Tables of the Leasehold fence for SQLite, version 4. Marks only rise, and outlive their leases.
CREATE TABLE leasehold_schema (
  one     INTEGER PRIMARY KEY CHECK (one = 1),
  version INTEGER NOT NULL
) STRICT;
INSERT INTO leasehold_schema (one, version) VALUES (1, 4);

-- One row per guarded resource and slot. The mark is the high-water mark of token numbers.
CREATE TABLE leasehold_fence (
  resource    TEXT NOT NULL CHECK (length(resource) = 16), -- hash of the name, as in the token text
  slot        INTEGER NOT NULL CHECK (slot BETWEEN 0 AND 4294967295),
  name        TEXT NOT NULL,                               -- for people
  cluster     TEXT NOT NULL CHECK (length(cluster) = 16),  -- issuer of the accepted tokens
  state       TEXT NOT NULL CHECK (state IN ('fresh', 'armed', 'lost')),
  mark        INTEGER CHECK (mark > 0),                    -- highest token number seen
  incarnation TEXT CHECK (length(incarnation) = 8),        -- of the token that set the mark, or adopted by an operator
  sequence    INTEGER CHECK (sequence >= 0),               -- last sequenced write applied under the mark
  strict      INTEGER NOT NULL DEFAULT 0 CHECK (strict IN (0, 1)), -- another incarnation must be adopted first
  PRIMARY KEY (resource, slot),
  CHECK (CASE state WHEN 'fresh' THEN mark IS NULL WHEN 'armed' THEN mark IS NOT NULL ELSE 1 END)
) STRICT, WITHOUT ROWID;
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
-- Triggers that keep an admission inside its transaction. `PRAGMA ignore_check_constraints` does not disable them.
CREATE TRIGGER leasehold_reject_empty_insert BEFORE INSERT ON leasehold_empty
BEGIN SELECT RAISE(ABORT, 'CONFLICT: leasehold_empty stays empty, so that no admission outlives its transaction; write nothing to it'); END;

CREATE TRIGGER leasehold_check_admission BEFORE INSERT ON leasehold_admission BEGIN
  SELECT RAISE(ABORT, 'CONFLICT: an object named pragma_foreign_keys or pragma_defer_foreign_keys hides a setting; drop it')
    WHERE EXISTS (SELECT 1 FROM sqlite_schema WHERE lower(name) IN ('pragma_foreign_keys', 'pragma_defer_foreign_keys'));
  SELECT RAISE(ABORT, 'CONFIG: foreign_keys is OFF, protected tables need it; run PRAGMA foreign_keys = ON before BEGIN')
    WHERE (SELECT foreign_keys FROM pragma_foreign_keys) = 0;
  -- SQLite ends this setting with the transaction, so that a later one is not admitted by a row that was left.
  SELECT RAISE(ABORT, 'CONFIG: defer_foreign_keys is OFF, protected tables need it; run PRAGMA defer_foreign_keys = ON after BEGIN')
    WHERE (SELECT defer_foreign_keys FROM pragma_defer_foreign_keys) = 0;
  SELECT RAISE(ABORT, 'CONFLICT: leasehold_empty has a row, so an admission could outlive its transaction; delete the row')
    WHERE EXISTS (SELECT 1 FROM leasehold_empty);
  SELECT RAISE(ABORT, 'STALE_TOKEN: the number is not the current mark; insert a token into leasehold_admit instead')
    WHERE NOT EXISTS (SELECT 1 FROM leasehold_fence AS f
      WHERE f.resource = NEW.resource AND f.slot = NEW.slot AND f.state = 'armed' AND f.mark = NEW.number);
END;

-- The check of a token whose text was parsed.
CREATE TRIGGER leasehold_on_check INSTEAD OF INSERT ON leasehold_check BEGIN
  SELECT RAISE(ABORT, 'STORAGE_FAILED: missing: no mark is stored for this resource; if nothing was written yet, arm the fence')
    WHERE NOT EXISTS (SELECT 1 FROM leasehold_fence AS f WHERE f.name = NEW.name);
  SELECT RAISE(ABORT, 'TOKEN_INVALID: resource: the token is for another resource; present the token of the guarding resource')
    WHERE NOT EXISTS (SELECT 1 FROM leasehold_fence AS f WHERE f.name = NEW.name AND f.resource = NEW.resource);
  SELECT RAISE(ABORT, 'TOKEN_INVALID: slot: the token is for another slot; present the token of an armed slot')
    WHERE NOT EXISTS (SELECT 1 FROM leasehold_fence AS f WHERE f.resource = NEW.resource AND f.slot = NEW.slot);
  SELECT RAISE(ABORT, 'WRONG_CLUSTER: the token is from another cluster than the mark; acquire from the cluster of this database')
    FROM leasehold_fence AS f WHERE f.resource = NEW.resource AND f.slot = NEW.slot AND f.cluster <> NEW.cluster;
  SELECT RAISE(ABORT, 'STORAGE_FAILED: lost: the mark was declared lost; re-arm it with a number no holder was granted yet')
    FROM leasehold_fence AS f WHERE f.resource = NEW.resource AND f.slot = NEW.slot AND f.state = 'lost';
  SELECT RAISE(ABORT, 'TOKEN_IMPLAUSIBLE: the token is more than one day ahead of the clock; compare the clocks')
    WHERE NEW.number > (CAST(strftime('%s', 'now') AS INTEGER) * 1000 - 1735689600000 + 86400000) << 22;
  SELECT RAISE(ABORT, 'STALE_TOKEN: the token is below the mark, a later holder has claimed; stop, this lease has ended')
    FROM leasehold_fence AS f WHERE f.resource = NEW.resource AND f.slot = NEW.slot AND f.mark > NEW.number;
  SELECT RAISE(ABORT, 'NOT_ADOPTED: this strict fence follows another incarnation; adopt this one if the restore was intended')
    FROM leasehold_fence AS f
    WHERE f.resource = NEW.resource AND f.slot = NEW.slot AND f.strict AND f.incarnation <> NEW.incarnation;
  SELECT RAISE(ABORT, 'ALREADY_APPLIED: this sequence was applied before; write nothing and go on with the next')
    FROM leasehold_fence AS f
    WHERE f.resource = NEW.resource AND f.slot = NEW.slot AND f.mark = NEW.number AND f.sequence >= NEW.sequence;
  UPDATE leasehold_fence SET state = 'armed', mark = NEW.number, incarnation = NEW.incarnation,
      sequence = coalesce(NEW.sequence, CASE mark WHEN NEW.number THEN sequence END)
    WHERE resource = NEW.resource AND slot = NEW.slot;
  DELETE FROM leasehold_admission WHERE resource = NEW.resource AND slot = NEW.slot; -- also one that an earlier transaction left
  INSERT INTO leasehold_admission (resource, slot, number) SELECT NEW.resource, NEW.slot, NEW.number WHERE NEW.is_write
    AND EXISTS (SELECT 1 FROM leasehold_protected AS p WHERE p.resource = NEW.resource AND p.slot = NEW.slot);
END;
