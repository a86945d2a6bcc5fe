-- Tables of the fence and the upgrade from versions 1 to 4.
BEGIN;
-- Only the server's own functions and operators are called: this script may run as a superuser, in a database of another role.
SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL client_min_messages = warning;
SET LOCAL lock_timeout = '1min';
DO $$ BEGIN PERFORM pg_advisory_xact_lock(1818780003, 0); END $$; -- serializes concurrent installations

-- Objects that another role owns could run its code with the installer's rights. So nothing that could call one comes before this block.
-- Only a superuser can have installed event triggers; they are created again at the end, and until the commit they check other sessions.
DO $$
DECLARE
  planted record;
  installed name;
BEGIN
  SELECT o.kind || ' ' || o.name AS object, pg_get_userbyid(o.owner) AS owner INTO planted FROM (
    SELECT 'schema' AS kind, n.nspname AS name, n.nspowner AS owner, n.oid AS id FROM pg_namespace AS n
    UNION ALL SELECT 'relation', c.relname, c.relowner, c.relnamespace FROM pg_class AS c
    UNION ALL SELECT 'function', p.proname, p.proowner, p.pronamespace FROM pg_proc AS p
    UNION ALL SELECT 'type', t.typname, t.typowner, t.typnamespace FROM pg_type AS t
    UNION ALL SELECT 'operator', o.oprname, o.oprowner, o.oprnamespace FROM pg_operator AS o
    UNION ALL SELECT 'operator class', o.opcname, o.opcowner, o.opcnamespace FROM pg_opclass AS o
    UNION ALL SELECT 'collation', c.collname, c.collowner, c.collnamespace FROM pg_collation AS c
    UNION ALL SELECT 'conversion', c.conname, c.conowner, c.connamespace FROM pg_conversion AS c
  ) AS o WHERE o.id = to_regnamespace('leasehold') AND o.owner <> current_user::regrole
    ORDER BY o.kind <> 'schema', o.kind, o.name LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'LH009',
      MESSAGE = 'CONFLICT: ' || planted.object || ' belongs to role ' || planted.owner || ', the installer is ' || current_user,
      DETAIL = 'reason=owner',
      HINT = 'Install as that role if it installed the fence; otherwise inspect schema leasehold, and drop it if it is not a fence.';
  END IF;
  -- Objects that exist already keep the grants that an operator made; see the end of the installation.
  PERFORM set_config('leasehold.existing', concat_ws(',', 'n' || to_regnamespace('leasehold')::oid,
    (SELECT string_agg('c' || c.oid, ',') FROM pg_class AS c WHERE c.relnamespace = to_regnamespace('leasehold')),
    (SELECT string_agg('p' || p.oid, ',') FROM pg_proc AS p WHERE p.pronamespace = to_regnamespace('leasehold'))), true);
  FOR installed IN SELECT evtname FROM pg_event_trigger WHERE evtname LIKE 'leasehold\_check\_%' LOOP
    EXECUTE format('DROP EVENT TRIGGER %I', installed);
  END LOOP;
  IF to_regnamespace('leasehold') IS NULL THEN
    CREATE SCHEMA leasehold;
  END IF;
END $$;

CREATE TABLE IF NOT EXISTS leasehold.version (one boolean PRIMARY KEY DEFAULT true CHECK (one), version integer NOT NULL);
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM leasehold.version) THEN
    INSERT INTO leasehold.version (version) VALUES (5);
    IF NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
      RAISE WARNING 'installed without DDL checks on protected tables; install as a superuser to enable them';
    END IF;
  END IF;
END $$;

DO $$
DECLARE have integer := (SELECT version FROM leasehold.version);
BEGIN
  IF have NOT IN (1, 2, 3, 4, 5) THEN
    RAISE EXCEPTION USING ERRCODE = 'LH008',
      MESSAGE = 'UNSUPPORTED_VERSION: version ' || have || ' is installed, this script installs version 5',
      DETAIL = 'have=' || have || ' want=5', HINT = 'Update the older side.';
  END IF;
  IF have = 1 THEN
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
  ELSIF have = 2 THEN
    -- Transactions that version 2 admitted hold the same lock.
    DROP FUNCTION leasehold.lock(bigint, boolean), leasehold.admit_uncached(text, text, bigint), leasehold.admit_full(text, text, bigint),
      leasehold.blocking_pids(text, text, bigint, boolean), leasehold.table_tree, leasehold.guard_relation;
    ALTER TABLE leasehold.protected ALTER COLUMN relation TYPE regclass, ADD COLUMN definition text, ADD COLUMN server_id text;
  END IF;
  IF have < 4 THEN
    ALTER TABLE leasehold.fence ADD COLUMN is_sealed boolean NOT NULL DEFAULT false, ADD COLUMN text_digest bytea;
  END IF;
  IF have < 5 THEN
    -- Version 5 changes functions only: guards accept the token of a connection. The end of the installation replaces them.
    UPDATE leasehold.version SET version = 5;
    PERFORM set_config('leasehold.upgraded_from', have::text, true);
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
  server_id   text NOT NULL,                                      -- server and database that stored the mark, see leasehold.server_id
  PRIMARY KEY (resource, slot),
  CHECK (CASE state WHEN 'fresh' THEN mark IS NULL WHEN 'armed' THEN mark IS NOT NULL ELSE true END),
  is_strict   boolean NOT NULL DEFAULT false,                     -- another incarnation must be adopted first
  token_digest      bigint,      -- of the token that set the mark; the same text needs no second parse
  server_started_at timestamptz, -- start time of the server that stored token_digest; after a restart server_id is checked again
  protects_tables   boolean NOT NULL DEFAULT false,               -- tables are protected by this fence
  is_sealed   boolean NOT NULL DEFAULT false,                     -- only stamped tokens are accepted; never unset
  text_digest bytea,       -- of a sealed fence: 128 bits of the SHA-256 of the text that set the mark; token_digest can be forged
  CONSTRAINT fence_name UNIQUE (name, slot)
);

-- Keys that verify the stamps of sealed fences (A8), as HMAC-SHA256 uses them: the key padded to 64 bytes and combined with its two constants.
-- No one but the owner reads them, see leasehold.seal. A dump contains them.
CREATE TABLE IF NOT EXISTS leasehold.stamp_key (
  fence     integer NOT NULL,
  key_id    text NOT NULL CHECK (key_id ~ '^[0-9a-f]{8}$'),       -- of the SHA-256 of the key
  inner_pad bytea NOT NULL CHECK (length(inner_pad) = 64),
  outer_pad bytea NOT NULL CHECK (length(outer_pad) = 64),
  PRIMARY KEY (fence, key_id)
);

-- Token cache: for each frequently written fence, a digest of its current token. It is stored in a sequence, because a sequence
-- is read without a snapshot and much faster than a row. Fences share the 64 sequences by lock key; a check that finds another
-- fence's digest, or none, reads the row instead.
-- A digest is stored only by a session that holds the fence's lock and has read a committed row. Every change of the row takes
-- the exclusive lock and clears the digest before it commits. So in any prefix of the WAL a cached digest matches its row.
-- Each session checks once, before it uses the cache, that the row was stored by this server.
-- A sequence has no triggers, and a member of pg_write_all_data can set its value. So a guard accepts a cached digest only of a text that
-- has the form of a token of its own fence.
DO $$
BEGIN
  FOR n IN 0 .. 63 LOOP
    EXECUTE format('CREATE SEQUENCE IF NOT EXISTS leasehold.token_cache_%s MINVALUE -9223372036854775808 START 1', n);
  END LOOP;
END $$;

-- Protected tables with their partitions and children, each with its fence. A dump contains their names, not their ids.
CREATE TABLE IF NOT EXISTS leasehold.protected (
  relation   regclass PRIMARY KEY,
  name       text NOT NULL,
  slot       bigint NOT NULL,
  definition text,               -- of the table, see leasehold.definition; a DDL command that changes it needs a token
  server_id  text                -- server and database in which the definition was read
);

-- Functions of this schema as they were installed, without the trigger functions of single fences; see leasehold.list_guards.
CREATE TABLE IF NOT EXISTS leasehold.installed_function (signature text PRIMARY KEY, digest text NOT NULL);

-- Transactions in which the fence itself changes triggers. Only the owner of this schema can add one.
CREATE TABLE IF NOT EXISTS leasehold.changing_guards (transaction xid8 PRIMARY KEY);

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
  ELSIF OLD.is_sealed AND NOT NEW.is_sealed THEN
    RAISE EXCEPTION USING ERRCODE = 'LH009', MESSAGE = 'CONFLICT: fence ' || OLD.name || ' is sealed and stays sealed',
      DETAIL = 'reason=sealed', HINT = 'Arm another resource for writers without sealed tokens.';
  END IF;
  IF (NEW.name, NEW.mark, NEW.state, NEW.incarnation, NEW.is_strict, NEW.server_id, NEW.protects_tables, NEW.is_sealed)
      IS DISTINCT FROM (OLD.name, OLD.mark, OLD.state, OLD.incarnation, OLD.is_strict, OLD.server_id, OLD.protects_tables, OLD.is_sealed) THEN
    key := leasehold.lock_key(OLD.name, OLD.slot);
    PERFORM leasehold.lock(key, true, NULL);
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
-- Also for changes that a subscription applies.
ALTER TABLE leasehold.fence ENABLE ALWAYS TRIGGER check_mark_change, ENABLE ALWAYS TRIGGER check_mark_truncate;

-- Tables and sequences of the fence. A role named leasehold creates its own tables in this schema too, by the default search path.
CREATE OR REPLACE FUNCTION leasehold.own_relations() RETURNS TABLE (relation regclass, kind text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT c.oid::regclass, CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END FROM pg_class AS c
    WHERE c.relnamespace = 'leasehold'::regnamespace AND (c.relkind = 'r'
      AND c.relname IN ('fence', 'version', 'protected', 'installed_function', 'changing_guards', 'stamp_key')
      OR c.relkind = 'S' AND (c.relname = 'fence_id_seq' OR c.relname ~ '^token_cache_[0-9]+$'))
$$;

-- Rejects writes of a role that has neither the rights of the owner nor those of a superuser, also if it was granted a right on the table
-- or is a member of pg_write_all_data. It runs with the rights and the search path of the caller, so it qualifies every name.
CREATE OR REPLACE FUNCTION leasehold.check_owner() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT pg_catalog.pg_has_role((SELECT c.relowner FROM pg_catalog.pg_class AS c WHERE c.oid OPERATOR(pg_catalog.=) TG_RELID), 'USAGE') THEN
    RAISE EXCEPTION USING ERRCODE = 'LH009',
      MESSAGE = pg_catalog.concat('CONFLICT: role ', current_user, ' may not change leasehold.', TG_TABLE_NAME),
      DETAIL = 'reason=rights', HINT = 'Connect as the owner of schema leasehold, or as a member of that role.';
  END IF;
  RETURN NULL;
END $$;
DO $$
DECLARE own regclass;
BEGIN
  FOR own IN SELECT o.relation FROM leasehold.own_relations() AS o WHERE o.kind = 'TABLE' LOOP
    EXECUTE format('CREATE OR REPLACE TRIGGER check_owner BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s
      FOR EACH STATEMENT EXECUTE FUNCTION leasehold.check_owner()', own);
    EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER check_owner', own);
  END LOOP;
END $$;
