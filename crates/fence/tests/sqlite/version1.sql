-- What a fence keeps in your database, version 1. Marks only rise, and stay when leases end.
CREATE TABLE leasehold_schema (
  one     INTEGER PRIMARY KEY CHECK (one = 1),
  version INTEGER NOT NULL
) STRICT;
INSERT INTO leasehold_schema (one, version) VALUES (1, 1);

CREATE TABLE leasehold_fence (
  resource    TEXT NOT NULL CHECK (length(resource) = 16), -- hash of the name, as in a token's text
  slot        INTEGER NOT NULL CHECK (slot BETWEEN 0 AND 4294967295),
  name        TEXT NOT NULL,                               -- for people
  cluster     TEXT NOT NULL CHECK (length(cluster) = 16),  -- whose tokens
  state       TEXT NOT NULL CHECK (state IN ('fresh', 'armed', 'lost')),
  mark        INTEGER CHECK (mark > 0),                    -- the highest number seen
  incarnation TEXT CHECK (length(incarnation) = 8),        -- of the token that set the mark
  sequence    INTEGER CHECK (sequence >= 0),               -- last write applied under the mark, where writes are numbered
  PRIMARY KEY (resource, slot),
  CHECK (CASE state WHEN 'fresh' THEN mark IS NULL WHEN 'armed' THEN mark IS NOT NULL ELSE 1 END)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER leasehold_mark_never_falls BEFORE UPDATE ON leasehold_fence
WHEN coalesce(NEW.mark, 0) < coalesce(OLD.mark, 0)
  OR (NEW.resource, NEW.slot, NEW.cluster) IS NOT (OLD.resource, OLD.slot, OLD.cluster)
BEGIN SELECT RAISE(ABORT, 'CONFLICT: a mark never falls, and stays with its resource, slot and cluster'); END;

CREATE TRIGGER leasehold_mark_stays BEFORE DELETE ON leasehold_fence
BEGIN SELECT RAISE(ABORT, 'CONFLICT: a mark outlives its leases and is never deleted'); END;

-- The check in plain SQL: INSERT INTO leasehold_admit VALUES ('jobs/settle', 'lh1-…') as the first statement of a
-- transaction. A claim is the same, with nothing after it. The checksum is not looked at here.
CREATE VIEW leasehold_admit (resource, token) AS SELECT NULL, NULL WHERE 0;

CREATE VIEW leasehold_slot (token_slot, slot) AS -- the slot of a row as a token spells it
SELECT DISTINCT 'w' || printf('%08x', slot), slot FROM leasehold_fence;

CREATE TRIGGER leasehold_admits INSTEAD OF INSERT ON leasehold_admit BEGIN
  SELECT RAISE(ABORT, 'TOKEN_INVALID: absent') WHERE coalesce(NEW.token, '') = '';
  SELECT RAISE(ABORT, 'TOKEN_INVALID: shape') WHERE length(NEW.token) <> 85 OR substr(NEW.token, 1, 4) <> 'lh1-'
    OR substr(NEW.token, 58, 19) GLOB '*[^0-9]*' OR substr(NEW.token, 77, 1) <> '-' OR substr(NEW.token, 57, 1) <> '-';
  SELECT RAISE(ABORT, 'TOKEN_INVALID: shared') WHERE substr(NEW.token, 48, 1) <> 'w';
  SELECT RAISE(ABORT, 'TOKEN_INVALID: zero') WHERE substr(NEW.token, 58, 19) = '0000000000000000000';
  SELECT RAISE(ABORT, 'TOKEN_INVALID: too_large') WHERE substr(NEW.token, 58, 19) > '9223372036854775807';
  SELECT RAISE(ABORT, 'STORAGE_FAILED: missing') WHERE NOT EXISTS (
    SELECT 1 FROM leasehold_fence WHERE name = NEW.resource);
  SELECT RAISE(ABORT, 'TOKEN_INVALID: resource') WHERE NOT EXISTS (
    SELECT 1 FROM leasehold_fence WHERE name = NEW.resource AND resource = substr(NEW.token, 31, 16));
  SELECT RAISE(ABORT, 'TOKEN_INVALID: slot') WHERE NOT EXISTS (
    SELECT 1 FROM leasehold_fence AS f, leasehold_slot AS s WHERE f.resource = substr(NEW.token, 31, 16)
      AND f.slot = s.slot AND s.token_slot = substr(NEW.token, 48, 9));
  SELECT RAISE(ABORT, 'WRONG_CLUSTER') FROM leasehold_fence AS f WHERE f.resource = substr(NEW.token, 31, 16)
    AND f.slot = (SELECT slot FROM leasehold_slot WHERE token_slot = substr(NEW.token, 48, 9))
    AND f.cluster <> substr(NEW.token, 5, 16);
  SELECT RAISE(ABORT, 'STORAGE_FAILED: lost') FROM leasehold_fence AS f WHERE f.resource = substr(NEW.token, 31, 16)
    AND f.slot = (SELECT slot FROM leasehold_slot WHERE token_slot = substr(NEW.token, 48, 9))
    AND f.state = 'lost';
  SELECT RAISE(ABORT, 'TOKEN_IMPLAUSIBLE') WHERE CAST(substr(NEW.token, 58, 19) AS INTEGER)
    > (CAST(strftime('%s', 'now') AS INTEGER) * 1000 - 1735689600000 + 86400000) << 22;
  SELECT RAISE(ABORT, 'STALE_TOKEN') FROM leasehold_fence AS f WHERE f.resource = substr(NEW.token, 31, 16)
    AND f.slot = (SELECT slot FROM leasehold_slot WHERE token_slot = substr(NEW.token, 48, 9))
    AND f.mark > CAST(substr(NEW.token, 58, 19) AS INTEGER);
  UPDATE leasehold_fence SET state = 'armed', mark = CAST(substr(NEW.token, 58, 19) AS INTEGER),
      incarnation = substr(NEW.token, 22, 8),
      sequence = CASE mark WHEN CAST(substr(NEW.token, 58, 19) AS INTEGER) THEN sequence END
    WHERE resource = substr(NEW.token, 31, 16)
      AND slot = (SELECT slot FROM leasehold_slot WHERE token_slot = substr(NEW.token, 48, 9));
END;
