-- Tables of the Leasehold fence for SQLite, version 5. Marks only rise, and outlive their leases.
CREATE TABLE leasehold_schema (
  one     INTEGER PRIMARY KEY CHECK (one = 1),
  version INTEGER NOT NULL
) STRICT;
INSERT INTO leasehold_schema (one, version) VALUES (1, 5);

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
