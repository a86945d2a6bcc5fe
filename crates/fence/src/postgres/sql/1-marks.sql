-- What is kept, and the way here from version 1.
BEGIN;
DO $$ BEGIN PERFORM pg_advisory_xact_lock(1818780003, 0); END $$; -- two who install at once

CREATE SCHEMA IF NOT EXISTS leasehold;
CREATE TABLE IF NOT EXISTS leasehold.version (one boolean PRIMARY KEY DEFAULT true CHECK (one), version integer NOT NULL);
INSERT INTO leasehold.version (version) VALUES (2) ON CONFLICT DO NOTHING;

DO $$
DECLARE have integer := (SELECT version FROM leasehold.version);
BEGIN
  IF have NOT IN (1, 2) THEN
    RAISE EXCEPTION USING ERRCODE = 'LH008', MESSAGE = 'UNSUPPORTED_VERSION: version ' || have || ' is installed, this is 2',
      DETAIL = 'have=' || have || ' want=2', HINT = 'Update the older side.';
  ELSIF have = 1 THEN
    -- It waits for who is inside under version 1; marks stay.
    ALTER TABLE leasehold.fence ADD COLUMN is_strict boolean NOT NULL DEFAULT false, ADD COLUMN shown bigint,
      ADD COLUMN started timestamptz, ADD COLUMN forced boolean NOT NULL DEFAULT false, ADD CONSTRAINT fence_name UNIQUE (name, slot);
    DROP TABLE leasehold.claiming;
    DROP PROCEDURE leasehold.claim(text, text, bigint, interval, boolean);
    DROP FUNCTION leasehold.claims, leasehold.intend, leasehold.raised, leasehold.withdraw, leasehold.evict,
      leasehold.inside, leasehold.pass, leasehold.place, leasehold.bounded;
    UPDATE leasehold.version SET version = 2;
  END IF;
END $$;

CREATE TABLE IF NOT EXISTS leasehold.fence (
  id          integer GENERATED ALWAYS AS IDENTITY UNIQUE,
  resource    text NOT NULL CHECK (resource ~ '^[0-9a-f]{16}$'),  -- hash of the name, as in a token's text
  slot        bigint NOT NULL CHECK (slot BETWEEN 0 AND 4294967295),
  name        text NOT NULL,
  cluster     text NOT NULL CHECK (cluster ~ '^[0-9a-f]{16}$'),   -- whose tokens
  state       text NOT NULL CHECK (state IN ('fresh', 'armed', 'lost')),
  mark        bigint CHECK (mark > 0),                            -- the highest number seen
  incarnation text CHECK (incarnation ~ '^[0-9a-f]{8}$'),         -- of the token that set the mark, or adopted
  sequence    bigint CHECK (sequence >= 0),                       -- last write under the mark, where writes are numbered
  home        text NOT NULL,                                      -- which server kept it: system and timeline
  PRIMARY KEY (resource, slot),
  CHECK (CASE state WHEN 'fresh' THEN mark IS NULL WHEN 'armed' THEN mark IS NOT NULL ELSE true END),
  is_strict   boolean NOT NULL DEFAULT false,                     -- whether another incarnation must be adopted first
  shown       bigint,      -- digest of the token that set the mark: who shows the same text need not be read again
  started     timestamptz, -- of the server that did; another one looks where it is first
  forced      boolean NOT NULL DEFAULT false,                     -- whether tables are protected by it
  CONSTRAINT fence_name UNIQUE (name, slot)
);

-- Badges: for a place that is written often, a digest of the token that stands there, in a sequence, because its value is read
-- without a snapshot and in a fraction of the time of a row. Places share them by their lock's number; whoever finds another's
-- badge, or none, reads the row. One is put on only by who holds the place's lock and saw a committed row, and whatever
-- changes the row has the lock alone and takes the badge off before it commits: so in any prefix of the log a badge is true of
-- its row. Whether the row is this server's is looked at once in every session, before it looks at badges.
DO $$
BEGIN
  FOR n IN 0 .. 63 LOOP
    EXECUTE format('CREATE SEQUENCE IF NOT EXISTS leasehold.badge_%s MINVALUE -9223372036854775808 START 1', n);
    EXECUTE format('GRANT SELECT ON SEQUENCE leasehold.badge_%s TO PUBLIC', n);
  END LOOP;
END $$;

-- The tables that the database itself guards, and their partitions and children, each with its place.
CREATE TABLE IF NOT EXISTS leasehold.protected (
  relation oid PRIMARY KEY,
  name     text NOT NULL,
  slot     bigint NOT NULL
);

CREATE OR REPLACE FUNCTION leasehold.mark_stays() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE key bigint;
BEGIN
  IF TG_OP = 'DELETE' OR TG_OP = 'TRUNCATE' THEN
    RAISE EXCEPTION USING ERRCODE = 'LH009', MESSAGE = 'CONFLICT: a mark outlives its leases and is never deleted';
  ELSIF coalesce(NEW.mark, 0) < coalesce(OLD.mark, 0)
      OR (NEW.id, NEW.resource, NEW.slot, NEW.cluster) IS DISTINCT FROM (OLD.id, OLD.resource, OLD.slot, OLD.cluster) THEN
    RAISE EXCEPTION USING ERRCODE = 'LH009',
      MESSAGE = 'CONFLICT: a mark never falls, and stays with its resource, slot and cluster';
  END IF;
  IF (NEW.name, NEW.mark, NEW.state, NEW.incarnation, NEW.is_strict, NEW.home, NEW.forced)
      IS DISTINCT FROM (OLD.name, OLD.mark, OLD.state, OLD.incarnation, OLD.is_strict, OLD.home, OLD.forced) THEN
    key := leasehold.lock_of(OLD.name, OLD.slot);
    PERFORM leasehold.lock(key, true);
    PERFORM setval(('leasehold.badge_' || (key & 63))::regclass, 0);
    -- What is not of the same change is of who stood there before.
    NEW.shown := nullif(NEW.shown, OLD.shown);
  END IF;
  RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER mark_never_falls BEFORE UPDATE OR DELETE ON leasehold.fence
  FOR EACH ROW EXECUTE FUNCTION leasehold.mark_stays();
CREATE OR REPLACE TRIGGER mark_stays BEFORE TRUNCATE ON leasehold.fence
  FOR EACH STATEMENT EXECUTE FUNCTION leasehold.mark_stays();
