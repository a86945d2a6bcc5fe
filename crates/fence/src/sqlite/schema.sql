-- What a fence keeps in your database, version 2. Marks only rise, and stay when leases end.
CREATE TABLE leasehold_schema (
  one     INTEGER PRIMARY KEY CHECK (one = 1),
  version INTEGER NOT NULL
) STRICT;
INSERT INTO leasehold_schema (one, version) VALUES (1, 2);

CREATE TABLE leasehold_fence (
  resource    TEXT NOT NULL CHECK (length(resource) = 16), -- hash of the name, as in a token's text
  slot        INTEGER NOT NULL CHECK (slot BETWEEN 0 AND 4294967295),
  name        TEXT NOT NULL,                               -- for people
  cluster     TEXT NOT NULL CHECK (length(cluster) = 16),  -- whose tokens
  state       TEXT NOT NULL CHECK (state IN ('fresh', 'armed', 'lost')),
  mark        INTEGER CHECK (mark > 0),                    -- the highest number seen
  incarnation TEXT CHECK (length(incarnation) = 8),        -- of the token that set the mark, or adopted
  sequence    INTEGER CHECK (sequence >= 0),               -- last write applied under the mark, where writes are numbered
  strict      INTEGER NOT NULL DEFAULT 0 CHECK (strict IN (0, 1)), -- whether another incarnation must be adopted first
  PRIMARY KEY (resource, slot),
  CHECK (CASE state WHEN 'fresh' THEN mark IS NULL WHEN 'armed' THEN mark IS NOT NULL ELSE 1 END)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER leasehold_mark_never_falls BEFORE UPDATE ON leasehold_fence
WHEN coalesce(NEW.mark, 0) < coalesce(OLD.mark, 0)
  OR (NEW.resource, NEW.slot, NEW.cluster) IS NOT (OLD.resource, OLD.slot, OLD.cluster)
BEGIN SELECT RAISE(ABORT, 'CONFLICT: a mark never falls, and stays with its resource, slot and cluster'); END;

CREATE TRIGGER leasehold_mark_stays BEFORE DELETE ON leasehold_fence
BEGIN SELECT RAISE(ABORT, 'CONFLICT: a mark outlives its leases and is never deleted'); END;
