-- Tables of the fence and the upgrade from version 1.
BEGIN;
DO $$ BEGIN PERFORM pg_advisory_xact_lock(1818780003, 0); END $$; -- serializes concurrent installations

CREATE SCHEMA IF NOT EXISTS leasehold;
CREATE TABLE IF NOT EXISTS leasehold.version (one boolean PRIMARY KEY DEFAULT true CHECK (one), version integer NOT NULL);
INSERT INTO leasehold.version (version) VALUES (2) ON CONFLICT DO NOTHING;

DO $$
DECLARE have integer := (SELECT version FROM leasehold.version);
BEGIN
  IF have NOT IN (1, 2) THEN
    RAISE EXCEPTION USING ERRCODE = 'LH008',
      MESSAGE = 'UNSUPPORTED_VERSION: version ' || have || ' is installed, this script installs version 2',
      DETAIL = 'have=' || have || ' want=2', HINT = 'Update the older side.';
  ELSIF have = 1 THEN
    -- ALTER TABLE waits for transactions that version 1 admitted. Marks are preserved.
    ALTER TABLE leasehold.fence RENAME COLUMN home TO server_id;
    ALTER TABLE leasehold.fence ADD COLUMN is_strict boolean NOT NULL DEFAULT false, ADD COLUMN token_digest bigint,
      ADD COLUMN server_started_at timestamptz, ADD COLUMN protects_tables boolean NOT NULL DEFAULT false,
      ADD CONSTRAINT fence_name UNIQUE (name, slot);
    DROP TRIGGER mark_never_falls ON leasehold.fence;
    DROP TRIGGER mark_stays ON leasehold.fence;
    DROP TABLE leasehold.claiming;
    DROP PROCEDURE leasehold.claim(text, text, bigint, interval, boolean);
    DROP FUNCTION leasehold.claims, leasehold.intend, leasehold.raised, leasehold.withdraw, leasehold.evict,
      leasehold.inside, leasehold.pass, leasehold.place, leasehold.bounded, leasehold.home, leasehold.token, leasehold.mark_stays;
    UPDATE leasehold.version SET version = 2;
  END IF;
END $$;

-- One row per guarded resource and slot. The mark is the high-water mark of token numbers.
CREATE TABLE IF NOT EXISTS leasehold.fence (
  id          integer GENERATED ALWAYS AS IDENTITY UNIQUE,
  resource    text NOT NULL CHECK (resource ~ '^[0-9a-f]{16}$'),  -- hash of the name, as in the token text
  slot        bigint NOT NULL CHECK (slot BETWEEN 0 AND 4294967295),
  name        text NOT NULL,
  cluster     text NOT NULL CHECK (cluster ~ '^[0-9a-f]{16}$'),   -- issuer of the accepted tokens
  state       text NOT NULL CHECK (state IN ('fresh', 'armed', 'lost')),
  mark        bigint CHECK (mark > 0),                            -- highest token number seen
  incarnation text CHECK (incarnation ~ '^[0-9a-f]{8}$'),         -- of the token that set the mark, or adopted by an operator
  sequence    bigint CHECK (sequence >= 0),                       -- last sequenced write applied under the mark
  server_id   text NOT NULL,                                      -- server that stored the mark: system identifier and timeline
  PRIMARY KEY (resource, slot),
  CHECK (CASE state WHEN 'fresh' THEN mark IS NULL WHEN 'armed' THEN mark IS NOT NULL ELSE true END),
  is_strict   boolean NOT NULL DEFAULT false,                     -- another incarnation must be adopted first
  token_digest      bigint,      -- of the token that set the mark; the same text needs no second parse
  server_started_at timestamptz, -- start time of the server that stored token_digest; after a restart server_id is checked again
  protects_tables   boolean NOT NULL DEFAULT false,               -- tables are protected by this fence
  CONSTRAINT fence_name UNIQUE (name, slot)
);

-- Token cache: for each frequently written fence, a digest of its current token. It is stored in a sequence, because a sequence
-- is read without a snapshot and much faster than a row. Fences share the 64 sequences by lock key; a check that finds another
-- fence's digest, or none, reads the row instead.
-- A digest is stored only by a session that holds the fence's lock and has read a committed row. Every change of the row takes
-- the exclusive lock and clears the digest before it commits. So in any prefix of the WAL a cached digest matches its row.
-- Each session checks once, before it uses the cache, that the row was stored by this server.
DO $$
BEGIN
  FOR n IN 0 .. 63 LOOP
    EXECUTE format('CREATE SEQUENCE IF NOT EXISTS leasehold.token_cache_%s MINVALUE -9223372036854775808 START 1', n);
    EXECUTE format('GRANT SELECT ON SEQUENCE leasehold.token_cache_%s TO PUBLIC', n);
  END LOOP;
END $$;

-- Protected tables with their partitions and children, each with its fence.
CREATE TABLE IF NOT EXISTS leasehold.protected (
  relation oid PRIMARY KEY,
  name     text NOT NULL,
  slot     bigint NOT NULL
);

-- Rejects changes that lower, move or delete a mark, and clears the token cache on every other change.
CREATE OR REPLACE FUNCTION leasehold.check_mark_change() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE key bigint;
BEGIN
  IF TG_OP = 'DELETE' OR TG_OP = 'TRUNCATE' THEN
    RAISE EXCEPTION USING ERRCODE = 'LH009', MESSAGE = 'CONFLICT: a mark outlives its leases and cannot be deleted',
      HINT = 'Call leasehold.declare_lost to reject all tokens.';
  ELSIF coalesce(NEW.mark, 0) < coalesce(OLD.mark, 0)
      OR (NEW.id, NEW.resource, NEW.slot, NEW.cluster) IS DISTINCT FROM (OLD.id, OLD.resource, OLD.slot, OLD.cluster) THEN
    RAISE EXCEPTION USING ERRCODE = 'LH009',
      MESSAGE = 'CONFLICT: a mark cannot be lowered or moved to another resource, slot or cluster',
      DETAIL = 'presented=' || coalesce(NEW.mark, 0) || ' mark=' || coalesce(OLD.mark, 0),
      HINT = 'Use a number that is not below the mark.';
  END IF;
  IF (NEW.name, NEW.mark, NEW.state, NEW.incarnation, NEW.is_strict, NEW.server_id, NEW.protects_tables)
      IS DISTINCT FROM (OLD.name, OLD.mark, OLD.state, OLD.incarnation, OLD.is_strict, OLD.server_id, OLD.protects_tables) THEN
    key := leasehold.lock_key(OLD.name, OLD.slot);
    PERFORM leasehold.lock(key, true);
    PERFORM setval(('leasehold.token_cache_' || (key & 63))::regclass, 0);
    -- A digest that this change did not set belongs to the previous token.
    NEW.token_digest := nullif(NEW.token_digest, OLD.token_digest);
  END IF;
  RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER check_mark_change BEFORE UPDATE OR DELETE ON leasehold.fence
  FOR EACH ROW EXECUTE FUNCTION leasehold.check_mark_change();
CREATE OR REPLACE TRIGGER check_mark_truncate BEFORE TRUNCATE ON leasehold.fence
  FOR EACH STATEMENT EXECUTE FUNCTION leasehold.check_mark_change();
