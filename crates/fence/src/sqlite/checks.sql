-- Without this, INSERT OR REPLACE would take a row away with no trigger seeing it.
CREATE TRIGGER leasehold_mark_is_not_replaced BEFORE INSERT ON leasehold_fence
WHEN EXISTS (SELECT 1 FROM leasehold_fence AS f WHERE f.resource = NEW.resource AND f.slot = NEW.slot)
BEGIN SELECT RAISE(ABORT, 'CONFLICT: a mark never falls, and stays with its resource, slot and cluster'); END;

-- Tables whose triggers refuse whoever was not admitted.
CREATE TABLE leasehold_protected (
  relation TEXT PRIMARY KEY,
  resource TEXT NOT NULL,
  slot     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Who is inside, for those triggers. A row here points to nothing, and that must be over when the transaction commits: so
-- an admission cannot be left to the next one. Take it away with DELETE FROM leasehold_inside, as the last statement.
CREATE TABLE leasehold_never (id INTEGER PRIMARY KEY CHECK (0)) STRICT;
CREATE TABLE leasehold_inside (
  resource TEXT NOT NULL,
  slot     INTEGER NOT NULL,
  number   INTEGER NOT NULL,
  leave    INTEGER NOT NULL DEFAULT 0 CHECK (leave = 0) REFERENCES leasehold_never (id) DEFERRABLE INITIALLY DEFERRED,
  PRIMARY KEY (resource, slot)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER leasehold_enters BEFORE INSERT ON leasehold_inside BEGIN
  SELECT RAISE(ABORT, 'CONFIG: PRAGMA foreign_keys is OFF; a protected table needs it ON')
    WHERE (SELECT foreign_keys FROM pragma_foreign_keys) = 0;
  SELECT RAISE(ABORT, 'STALE_TOKEN') WHERE NOT EXISTS (SELECT 1 FROM leasehold_fence AS f
    WHERE f.resource = NEW.resource AND f.slot = NEW.slot AND f.state = 'armed' AND f.mark = NEW.number);
END;

CREATE TRIGGER leasehold_stays BEFORE UPDATE ON leasehold_inside
BEGIN SELECT RAISE(ABORT, 'CONFLICT: who is inside is not changed; leave, and be admitted again'); END;

-- The check in plain SQL: INSERT INTO leasehold_admit VALUES ('jobs/settle', 'lh1-…') as the first statement of a
-- transaction, INSERT INTO leasehold_claim … as a holder's first act. `leasehold_admit_once` takes a sequence as well, and
-- refuses a late duplicate. The checksum is not looked at here.
CREATE VIEW leasehold_claim (resource, token) AS SELECT NULL, NULL WHERE 0;
CREATE VIEW leasehold_admit (resource, token) AS SELECT NULL, NULL WHERE 0;
CREATE VIEW leasehold_admit_once (resource, token, sequence) AS SELECT NULL, NULL, NULL WHERE 0;
-- Inside: a token's text, then its parts.
CREATE VIEW leasehold_show (name, token, sequence, writes) AS SELECT NULL, NULL, NULL, NULL WHERE 0;
CREATE VIEW leasehold_check (name, resource, slot, cluster, incarnation, number, sequence, writes) AS
  SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL WHERE 0;

CREATE VIEW leasehold_slot (token_slot, slot) AS -- the slot of a row as a token spells it
SELECT DISTINCT 'w' || printf('%08x', slot), slot FROM leasehold_fence;

CREATE TRIGGER leasehold_claims INSTEAD OF INSERT ON leasehold_claim BEGIN
  INSERT INTO leasehold_show VALUES (NEW.resource, NEW.token, NULL, 0);
END;

CREATE TRIGGER leasehold_admits INSTEAD OF INSERT ON leasehold_admit BEGIN
  INSERT INTO leasehold_show VALUES (NEW.resource, NEW.token, NULL, 1);
END;

CREATE TRIGGER leasehold_admits_once INSTEAD OF INSERT ON leasehold_admit_once BEGIN
  SELECT RAISE(ABORT, 'INVALID_ARGUMENT: the sequence is a whole number from 0')
    WHERE typeof(NEW.sequence) <> 'integer' OR NEW.sequence < 0;
  INSERT INTO leasehold_show VALUES (NEW.resource, NEW.token, NEW.sequence, 1);
END;

CREATE TRIGGER leasehold_shows INSTEAD OF INSERT ON leasehold_show BEGIN
  SELECT RAISE(ABORT, 'TOKEN_INVALID: absent') WHERE coalesce(NEW.token, '') = '';
  SELECT RAISE(ABORT, 'TOKEN_INVALID: shape') WHERE length(NEW.token) <> 85 OR substr(NEW.token, 1, 4) <> 'lh1-'
    OR substr(NEW.token, 58, 19) GLOB '*[^0-9]*' OR substr(NEW.token, 77, 1) <> '-' OR substr(NEW.token, 57, 1) <> '-';
  SELECT RAISE(ABORT, 'TOKEN_INVALID: shared') WHERE substr(NEW.token, 48, 1) <> 'w';
  SELECT RAISE(ABORT, 'TOKEN_INVALID: zero') WHERE substr(NEW.token, 58, 19) = '0000000000000000000';
  SELECT RAISE(ABORT, 'TOKEN_INVALID: too_large') WHERE substr(NEW.token, 58, 19) > '9223372036854775807';
  INSERT INTO leasehold_check VALUES (NEW.name, substr(NEW.token, 31, 16),
    (SELECT slot FROM leasehold_slot WHERE token_slot = substr(NEW.token, 48, 9)), substr(NEW.token, 5, 16),
    substr(NEW.token, 22, 8), CAST(substr(NEW.token, 58, 19) AS INTEGER), NEW.sequence, NEW.writes);
END;

CREATE TRIGGER leasehold_checks INSTEAD OF INSERT ON leasehold_check BEGIN
  SELECT RAISE(ABORT, 'STORAGE_FAILED: missing') WHERE NOT EXISTS (
    SELECT 1 FROM leasehold_fence AS f WHERE f.name = NEW.name);
  SELECT RAISE(ABORT, 'TOKEN_INVALID: resource') WHERE NOT EXISTS (
    SELECT 1 FROM leasehold_fence AS f WHERE f.name = NEW.name AND f.resource = NEW.resource);
  SELECT RAISE(ABORT, 'TOKEN_INVALID: slot') WHERE NOT EXISTS (
    SELECT 1 FROM leasehold_fence AS f WHERE f.resource = NEW.resource AND f.slot = NEW.slot);
  SELECT RAISE(ABORT, 'WRONG_CLUSTER') FROM leasehold_fence AS f
    WHERE f.resource = NEW.resource AND f.slot = NEW.slot AND f.cluster <> NEW.cluster;
  SELECT RAISE(ABORT, 'STORAGE_FAILED: lost') FROM leasehold_fence AS f
    WHERE f.resource = NEW.resource AND f.slot = NEW.slot AND f.state = 'lost';
  SELECT RAISE(ABORT, 'TOKEN_IMPLAUSIBLE') WHERE NEW.number
    > (CAST(strftime('%s', 'now') AS INTEGER) * 1000 - 1735689600000 + 86400000) << 22;
  SELECT RAISE(ABORT, 'STALE_TOKEN') FROM leasehold_fence AS f
    WHERE f.resource = NEW.resource AND f.slot = NEW.slot AND f.mark > NEW.number;
  SELECT RAISE(ABORT, 'NOT_ADOPTED') FROM leasehold_fence AS f
    WHERE f.resource = NEW.resource AND f.slot = NEW.slot AND f.strict AND f.incarnation <> NEW.incarnation;
  SELECT RAISE(ABORT, 'ALREADY_APPLIED') FROM leasehold_fence AS f
    WHERE f.resource = NEW.resource AND f.slot = NEW.slot AND f.mark = NEW.number AND f.sequence >= NEW.sequence;
  UPDATE leasehold_fence SET state = 'armed', mark = NEW.number, incarnation = NEW.incarnation,
      sequence = coalesce(NEW.sequence, CASE mark WHEN NEW.number THEN sequence END)
    WHERE resource = NEW.resource AND slot = NEW.slot;
  DELETE FROM leasehold_inside WHERE NEW.writes AND resource = NEW.resource AND slot = NEW.slot;
  INSERT INTO leasehold_inside (resource, slot, number) SELECT NEW.resource, NEW.slot, NEW.number WHERE NEW.writes
    AND EXISTS (SELECT 1 FROM leasehold_protected AS p WHERE p.resource = NEW.resource AND p.slot = NEW.slot);
END;
