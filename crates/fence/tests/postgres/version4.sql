-- Tables of the fence and the upgrade from versions 1, 2 and 3.
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
    INSERT INTO leasehold.version (version) VALUES (4);
    IF NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
      RAISE WARNING 'installed without DDL checks on protected tables; install as a superuser to enable them';
    END IF;
  END IF;
END $$;

DO $$
DECLARE have integer := (SELECT version FROM leasehold.version);
BEGIN
  IF have NOT IN (1, 2, 3, 4) THEN
    RAISE EXCEPTION USING ERRCODE = 'LH008',
      MESSAGE = 'UNSUPPORTED_VERSION: version ' || have || ' is installed, this script installs version 4',
      DETAIL = 'have=' || have || ' want=4', HINT = 'Update the older side.';
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
    UPDATE leasehold.version SET version = 4;
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
-- Token parser, as strict as every other parser of token text, including the checksum. PostgreSQL has no built-in CRC-32.
CREATE OR REPLACE FUNCTION leasehold.crc32(bytes bytea) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  step constant bigint[] := '{
    0,1996959894,3993919788,2567524794,124634137,1886057615,3915621685,2657392035,249268274,2044508324,3772115230,
    2547177864,162941995,2125561021,3887607047,2428444049,498536548,1789927666,4089016648,2227061214,450548861,
    1843258603,4107580753,2211677639,325883990,1684777152,4251122042,2321926636,335633487,1661365465,4195302755,
    2366115317,997073096,1281953886,3579855332,2724688242,1006888145,1258607687,3524101629,2768942443,901097722,
    1119000684,3686517206,2898065728,853044451,1172266101,3705015759,2882616665,651767980,1373503546,3369554304,
    3218104598,565507253,1454621731,3485111705,3099436303,671266974,1594198024,3322730930,2970347812,795835527,
    1483230225,3244367275,3060149565,1994146192,31158534,2563907772,4023717930,1907459465,112637215,2680153253,
    3904427059,2013776290,251722036,2517215374,3775830040,2137656763,141376813,2439277719,3865271297,1802195444,
    476864866,2238001368,4066508878,1812370925,453092731,2181625025,4111451223,1706088902,314042704,2344532202,
    4240017532,1658658271,366619977,2362670323,4224994405,1303535960,984961486,2747007092,3569037538,1256170817,
    1037604311,2765210733,3554079995,1131014506,879679996,2909243462,3663771856,1141124467,855842277,2852801631,
    3708648649,1342533948,654459306,3188396048,3373015174,1466479909,544179635,3110523913,3462522015,1591671054,
    702138776,2966460450,3352799412,1504918807,783551873,3082640443,3233442989,3988292384,2596254646,62317068,
    1957810842,3939845945,2647816111,81470997,1943803523,3814918930,2489596804,225274430,2053790376,3826175755,
    2466906013,167816743,2097651377,4027552580,2265490386,503444072,1762050814,4150417245,2154129355,426522225,
    1852507879,4275313526,2312317920,282753626,1742555852,4189708143,2394877945,397917763,1622183637,3604390888,
    2714866558,953729732,1340076626,3518719985,2797360999,1068828381,1219638859,3624741850,2936675148,906185462,
    1090812512,3747672003,2825379669,829329135,1181335161,3412177804,3160834842,628085408,1382605366,3423369109,
    3138078467,570562233,1426400815,3317316542,2998733608,733239954,1555261956,3268935591,3050360625,752459403,
    1541320221,2607071920,3965973030,1969922972,40735498,2617837225,3943577151,1913087877,83908371,2512341634,
    3803740692,2075208622,213261112,2463272603,3855990285,2094854071,198958881,2262029012,4057260610,1759359992,
    534414190,2176718541,4139329115,1873836001,414664567,2282248934,4279200368,1711684554,285281116,2405801727,
    4167216745,1634467795,376229701,2685067896,3608007406,1308918612,956543938,2808555105,3495958263,1231636301,
    1047427035,2932959818,3654703836,1088359270,936918000,2847714899,3736837829,1202900863,817233897,3183342108,
    3401237130,1404277552,615818150,3134207493,3453421203,1423857449,601450431,3009837614,3294710456,1567103746,
    711928724,3020668471,3272380065,1510334235,755167117}';
  sum bigint := 4294967295;
BEGIN
  FOR i IN 0 .. length(bytes) - 1 LOOP
    sum := step[((sum # get_byte(bytes, i)) & 255) + 1] # (sum >> 8);
  END LOOP;
  RETURN sum # 4294967295;
END $$;

-- Splits a token text into its parts. Text that the grantor did not print exactly so is rejected. A sealed text (`lh2-`) means what its
-- first 76 bytes mean; its signature is not verified here, and a stamp after it is verified by leasehold.is_stamped.
CREATE OR REPLACE FUNCTION leasehold.parse_token(token text, OUT cluster text, OUT incarnation text, OUT resource text,
  OUT slot bigint, OUT number bigint) LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  fields constant text := '[0-9a-f]{16}-[0-9a-f]{8}-[0-9a-f]{16}-(w[0-9a-f]{8}|[ru]0{8})-[0-9]{19}-[0-9a-f]{8}';
  reason text;
  digits text;
BEGIN
  digits := substr(token, 58, 19);
  reason := CASE
    WHEN coalesce(token, '') = '' THEN 'absent'
    WHEN token ~ '^lh(0|[1-9][0-9]{0,8})-' AND token !~ '^lh[12]-' THEN 'version'
    -- The last character of a signature has four bits to spare, which are zero.
    WHEN CASE length(token) WHEN 85 THEN token !~ ('^lh1-' || fields || '$')
      WHEN 172 THEN token !~ ('^lh2-' || fields || '-[A-Za-z0-9_-]{85}[AQgw]$')
      WHEN 237 THEN token !~ ('^lh2-' || fields || '-[A-Za-z0-9_-]{85}[AQgw][.][0-9a-f]{64}$')
      ELSE true END THEN 'shape'
    WHEN length(token) = 85 AND lpad(to_hex(leasehold.crc32(convert_to(substr(token, 1, 76), 'UTF8'))), 8, '0') <> substr(token, 78) THEN 'checksum'
    WHEN digits = '0000000000000000000' THEN 'zero'
    WHEN digits COLLATE "C" > '9223372036854775807' THEN 'too_large'
  END;
  IF reason = 'version' THEN
    RAISE EXCEPTION USING ERRCODE = 'LH008',
      MESSAGE = 'UNSUPPORTED_VERSION: token version ' || substring(token FROM '^lh([0-9]+)-') || ' is not supported, expected 1 or 2',
      DETAIL = 'reason=version have=' || substring(token FROM '^lh([0-9]+)-') || ' want=1', HINT = 'Update the older side.';
  ELSIF reason IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'LH002',
      MESSAGE = 'TOKEN_INVALID: ' || CASE reason
        WHEN 'absent' THEN 'no token was presented'
        WHEN 'shape' THEN 'the text is not a token'
        WHEN 'checksum' THEN 'the token''s checksum does not match'
        WHEN 'zero' THEN 'the token''s number is zero'
        ELSE 'the token''s number is above 9223372036854775807' END,
      DETAIL = 'reason=' || reason, HINT = 'Present the complete token text of the grant, unchanged.';
  END IF;
  cluster := substr(token, 5, 16);
  incarnation := substr(token, 22, 8);
  resource := substr(token, 31, 16);
  -- Tokens of shared leases and reservations have no slot.
  slot := CASE substr(token, 48, 1) WHEN 'w' THEN ('x' || substr(token, 49, 8))::bit(32)::bigint END;
  number := digits::bigint;
END $$;
-- The check: takes the fence's lock, compares the token with the mark and admits the rest of the transaction.

-- Digest of the label of the base backup from which this data directory was made; NULL if initdb made it. A base backup that starts without
-- recovery, and a standby that becomes a primary without a promotion, continue on the timeline of the original: only this label
-- distinguishes them. An owner of this schema that may not read files of the server does not know it.
CREATE OR REPLACE FUNCTION leasehold.backup_label() RETURNS text LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF has_function_privilege('pg_read_file(text, bigint, bigint, boolean)', 'EXECUTE') THEN
    RETURN left(md5(pg_read_file('backup_label.old', 0, 10000, true)), 16);
  END IF;
  RETURN NULL;
END $$;

-- Identity of the place where marks are stored: system identifier, timeline, database, table and backup label. It changes after a
-- failover, a point-in-time recovery, and in every base backup or restored dump, also in the same server; then the stored marks may be
-- older than the claims that holders were granted. A dump carries none of these.
CREATE OR REPLACE FUNCTION leasehold.server_id() RETURNS text LANGUAGE sql STABLE AS $$
  SELECT pg_catalog.concat_ws('/', (SELECT system_identifier FROM pg_catalog.pg_control_system()),
    pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8),
    (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()),
    pg_catalog.to_regclass('leasehold.fence')::pg_catalog.oid, leasehold.backup_label())
$$;

-- Advisory lock key of a fence. Writers hold the lock shared until they commit, a claim holds it exclusively. The server's lock
-- queue is fair, so new writers do not overtake a waiting claim; pg_locks lists the holders.
CREATE OR REPLACE FUNCTION leasehold.lock_key(name text, slot bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT pg_catalog.hashtextextended(name, 1818780001::bigint + slot)
$$;

-- Ends backends that hold or await the lock, although neither their role nor one that it can assume may use this schema. Any role
-- that can connect can acquire an advisory lock by its number. Returns how many it ended.
CREATE OR REPLACE FUNCTION leasehold.end_strangers(key bigint) RETURNS integer LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  stranger integer;
  ended integer := 0;
BEGIN
  FOR stranger IN SELECT DISTINCT l.pid FROM pg_locks AS l JOIN pg_stat_get_activity(l.pid) AS a ON a.pid = l.pid
    WHERE l.locktype = 'advisory' AND l.classid = ((key >> 32) & 4294967295)::oid AND l.objid = (key & 4294967295)::oid
      AND l.objsubid = 1 AND l.pid <> pg_backend_pid() AND a.usesysid IS NOT NULL
      AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
      AND NOT EXISTS (SELECT FROM pg_roles AS r WHERE pg_has_role(a.usesysid, r.oid, 'MEMBER')
        AND has_schema_privilege(r.oid, 'leasehold', 'USAGE')) LOOP
    BEGIN
      ended := ended + pg_terminate_backend(stranger)::integer;
    EXCEPTION WHEN insufficient_privilege THEN
      NULL; -- the owner of this function may not end it; the error of the caller names it
    END;
  END LOOP;
  RETURN ended;
END $$;

-- Acquires the lock until the transaction ends, within `ms` if it is set. The inner block is essential: a lock acquired while a cursor
-- runs is released if the cursor fails in a savepoint, although its earlier writes remain. A lock acquired in a block with an exception
-- handler belongs to the transaction.
CREATE OR REPLACE FUNCTION leasehold.lock(key bigint, exclusive boolean, ms bigint) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  callers text := current_setting('lock_timeout');
  capped boolean := ms IS NOT NULL AND (callers = '0' OR extract(epoch FROM callers::interval) * 1000 > ms);
BEGIN
  FOR attempt IN 1 .. 2 LOOP
    IF capped THEN
      -- The second half of the time follows after strangers were ended.
      PERFORM set_config('lock_timeout', greatest(1, ms / 2)::text, true);
    END IF;
    BEGIN
      IF exclusive THEN
        PERFORM pg_advisory_xact_lock(key);
      ELSE
        PERFORM pg_advisory_xact_lock_shared(key);
      END IF;
      PERFORM set_config('lock_timeout', callers, true) WHERE capped;
      RETURN;
    EXCEPTION WHEN query_canceled THEN
      RAISE;
    WHEN lock_not_available THEN
      IF NOT capped THEN
        RAISE;
      ELSIF attempt = 2 THEN
        RAISE EXCEPTION USING ERRCODE = 'LH006', MESSAGE = 'UNAVAILABLE: the fence was locked for ' || ms || ' ms',
          DETAIL = 'blocking_pids=' || array_to_string(leasehold.lock_holders(key), ','),
          HINT = 'A holder stops, because its lease has ended. An operator ends these backends and retries.';
      END IF;
      PERFORM leasehold.end_strangers(key);
    END;
  END LOOP;
END $$;

-- Marks of versions 1 and 2 name only the server. A dump of those versions must not be restored into the server that wrote it.
UPDATE leasehold.fence SET server_id = leasehold.server_id()
  WHERE server_id ~ '^[0-9]+/[0-9A-F]{8}$' AND starts_with(leasehold.server_id(), server_id || '/')
    AND current_setting('leasehold.upgraded_from', true) IN ('1', '2');

-- HMAC-SHA256 of a text, with the two padded forms of a key.
CREATE OR REPLACE FUNCTION leasehold.hmac_sha256(inner_pad bytea, outer_pad bytea, message text) RETURNS bytea
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
  SELECT sha256(outer_pad || sha256(inner_pad || convert_to(message, 'UTF8')))
$$;

-- Whether a token carries a stamp that a key of this fence made for exactly this text: `<sealed text>.<64 hexadecimal digits>`. Digests are
-- compared, so that the time of the comparison shows nothing about the stamp.
CREATE OR REPLACE FUNCTION leasehold.is_stamped(of_fence integer, token text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT length(token) = 237 AND EXISTS (SELECT FROM leasehold.stamp_key AS k WHERE k.fence = of_fence
    AND sha256(leasehold.hmac_sha256(k.inner_pad, k.outer_pad, left(token, 172))) = sha256(decode(right(token, 64), 'hex')))
$$;

-- 128 bits of a digest that cannot be forged, to recognize the text that set the mark of a sealed fence.
CREATE OR REPLACE FUNCTION leasehold.text_digest(token text) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
  SELECT substr(sha256(convert_to(token, 'UTF8')), 1, 16)
$$;

-- Fails: a sealed fence accepts a token only with its stamp.
CREATE OR REPLACE FUNCTION leasehold.refuse_unstamped(name text, token text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'LH002',
    MESSAGE = 'TOKEN_INVALID: ' || CASE WHEN token LIKE 'lh1-%' THEN 'the token is not sealed, and fence ' || name || ' is'
      WHEN length(token) = 172 THEN 'the token has no stamp for the sealed fence ' || name
      ELSE 'the stamp of the token is not one of the sealed fence ' || name END,
    DETAIL = 'reason=' || CASE WHEN token LIKE 'lh1-%' THEN 'unsealed' ELSE 'stamp' END,
    HINT = 'Present the sealed text of the grant with its stamp for this database: <text>.<stamp>.';
END $$;

-- Parses a token, finds its fence and checks everything that needs no lock. A caller that takes the lock checks the stamp again.
CREATE OR REPLACE FUNCTION leasehold.parse_for(token text, of_resource text, of_slot bigint, OUT number bigint,
  OUT incarnation text, OUT name text, OUT slot bigint) LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t record := leasehold.parse_token(token);
  guarded text := coalesce(encode(substr(sha256(convert_to(of_resource, 'UTF8')), 1, 8), 'hex'), t.resource);
  fence leasehold.fence;
  reason text;
BEGIN
  number := t.number;
  incarnation := t.incarnation;
  SELECT f.* INTO fence FROM leasehold.fence AS f WHERE f.resource = guarded AND f.slot = coalesce(of_slot, t.slot, 0);
  IF fence.id IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'LH005',
      MESSAGE = 'STORAGE_FAILED: no mark is stored for resource ' || coalesce(of_resource, t.resource) || ', slot '
        || coalesce(of_slot, t.slot, 0),
      DETAIL = 'reason=missing', HINT = 'If nothing was written yet, call leasehold.arm.';
  ELSIF fence.cluster <> t.cluster THEN
    RAISE EXCEPTION USING ERRCODE = 'LH004',
      MESSAGE = 'WRONG_CLUSTER: the token is from cluster ' || t.cluster || ', this fence accepts cluster ' || fence.cluster,
      DETAIL = 'reason=cluster', HINT = 'Acquire the lease from the cluster that this fence is armed for.';
  END IF;
  name := fence.name;
  slot := fence.slot;
  reason := CASE WHEN t.resource <> guarded THEN 'resource' WHEN t.slot IS NULL THEN 'shared'
    WHEN t.slot <> fence.slot THEN 'slot' END;
  IF reason IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'LH002',
      MESSAGE = 'TOKEN_INVALID: ' || CASE reason
        WHEN 'resource' THEN 'the token is for another resource than ' || fence.name
        WHEN 'shared' THEN 'the token is of a shared lease or a reservation, ' || fence.name || ' needs an exclusive one'
        ELSE 'the token is for slot ' || t.slot || ', this fence guards slot ' || fence.slot END,
      DETAIL = 'reason=' || reason, HINT = 'Present the token of the resource and slot that guard this write.';
  ELSIF number > (extract(epoch FROM clock_timestamp()) * 1000 - 1735689600000 + 86400000)::bigint << 22 THEN
    RAISE EXCEPTION USING ERRCODE = 'LH003',
      MESSAGE = 'TOKEN_IMPLAUSIBLE: token ' || number || ' is more than one day ahead of this server''s clock',
      DETAIL = 'reason=implausible presented=' || number, HINT = 'Compare the clocks and verify the origin of the token.';
  END IF;
  IF fence.is_sealed AND NOT leasehold.is_stamped(fence.id, token) THEN
    PERFORM leasehold.refuse_unstamped(fence.name, token);
  END IF;
END $$;

-- Makes this transaction's commit durable before it is acknowledged; fails if the server cannot.
CREATE OR REPLACE FUNCTION leasehold.require_durable() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF current_setting('fsync') = 'off' THEN
    RAISE EXCEPTION USING ERRCODE = 'LH007', MESSAGE = 'CONFIG: fsync is off, so the mark can be lost in a power failure',
      DETAIL = 'setting=fsync have=off want=on', HINT = 'Set fsync = on.';
  END IF;
  IF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
END $$;

-- Compares a token with the mark. Raises if it is not admitted; returns the previous incarnation if the token is of another one.
-- The caller must have read the row under the fence's lock.
CREATE OR REPLACE FUNCTION leasehold.check_mark(fence leasehold.fence, presented bigint, incarnation text) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE reason text := CASE WHEN fence.state = 'lost' THEN 'lost' WHEN fence.server_id <> leasehold.server_id() THEN 'moved' END;
BEGIN
  IF reason IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'LH005',
      MESSAGE = 'STORAGE_FAILED: the mark of ' || fence.name || CASE reason WHEN 'lost' THEN ' was declared lost'
        ELSE ' was stored by another server or database (' || fence.server_id || '): failover, recovery, copy or restore' END,
      DETAIL = 'reason=' || reason, HINT = 'Call leasehold.rearm with a number that no holder was granted yet.';
  ELSIF presented < fence.mark THEN
    RAISE EXCEPTION USING ERRCODE = 'LH001',
      MESSAGE = 'STALE_TOKEN: token ' || presented || ' is below the mark ' || fence.mark || ': a later holder has claimed',
      DETAIL = 'reason=stale presented=' || presented || ' mark=' || fence.mark, HINT = 'Stop. This lease has ended.';
  ELSIF fence.incarnation <> incarnation AND fence.is_strict THEN
    RAISE EXCEPTION USING ERRCODE = 'LH010',
      MESSAGE = 'NOT_ADOPTED: token ' || presented || ' is of incarnation ' || incarnation || ', this strict fence follows '
        || fence.incarnation,
      DETAIL = 'reason=incarnation presented=' || presented || ' incarnation=' || incarnation,
      HINT = 'If the restore was intended, call leasehold.adopt with this incarnation.';
  END IF;
  RETURN CASE WHEN fence.incarnation <> incarnation THEN fence.incarnation END;
END $$;

-- Full check, for a token whose text this session has not checked yet: parses it and compares it with the row. A higher number
-- raises the mark under the exclusive lock. The lock mode is chosen before locking, because two sessions that upgrade a shared
-- lock to an exclusive one would deadlock.
CREATE OR REPLACE FUNCTION leasehold.admit_full(token text, resource text, slot bigint, ms bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  p record := leasehold.parse_for(token, resource, slot);
  key bigint := leasehold.lock_key(p.name, p.slot);
  read_committed boolean := current_setting('transaction_isolation') = 'read committed';
  f leasehold.fence;
BEGIN
  PERFORM leasehold.require_durable();
  SELECT g.* INTO f FROM leasehold.fence AS g WHERE g.name = p.name AND g.slot = p.slot;
  IF p.number > coalesce(f.mark, 0) OR (p.number = f.mark AND p.incarnation IS DISTINCT FROM f.incarnation) THEN
    PERFORM leasehold.lock(key, true, ms);
    SELECT g.* INTO f FROM leasehold.fence AS g WHERE g.name = p.name AND g.slot = p.slot FOR UPDATE;
  ELSE
    PERFORM leasehold.lock(key, false, ms);
    IF read_committed THEN
      SELECT g.* INTO f FROM leasehold.fence AS g WHERE g.name = p.name AND g.slot = p.slot;
    ELSE
      -- A snapshot older than a claim fails here with 40001; the caller must retry the transaction.
      SELECT g.* INTO f FROM leasehold.fence AS g WHERE g.name = p.name AND g.slot = p.slot FOR SHARE;
    END IF;
  END IF;
  IF f.is_sealed AND NOT leasehold.is_stamped(f.id, token) THEN
    PERFORM leasehold.refuse_unstamped(f.name, token); -- it was sealed, or its key retired, since the token was parsed
  END IF;
  PERFORM leasehold.check_mark(f, p.number, p.incarnation);
  IF f.mark IS DISTINCT FROM p.number OR f.incarnation IS DISTINCT FROM p.incarnation THEN
    UPDATE leasehold.fence AS g SET state = 'armed', mark = p.number, incarnation = p.incarnation,
        sequence = CASE g.mark WHEN p.number THEN g.sequence END, token_digest = hashtextextended(token, 1),
        text_digest = CASE WHEN f.is_sealed THEN leasehold.text_digest(token) END,
        server_started_at = pg_postmaster_start_time() WHERE g.id = f.id;
  ELSIF read_committed THEN
    -- The same token after a server restart: one of its writers records that, the others do not wait for it.
    UPDATE leasehold.fence AS g SET token_digest = hashtextextended(token, 1), server_started_at = pg_postmaster_start_time(),
        text_digest = CASE WHEN f.is_sealed THEN leasehold.text_digest(token) END
      WHERE g.id = (SELECT h.id FROM leasehold.fence AS h WHERE h.id = f.id AND (h.token_digest, h.server_started_at, h.text_digest)
        IS DISTINCT FROM (hashtextextended(token, 1), pg_postmaster_start_time(), CASE WHEN f.is_sealed THEN leasehold.text_digest(token) END)
        FOR UPDATE SKIP LOCKED);
  END IF;
  IF f.protects_tables THEN
    PERFORM set_config('leasehold.token_' || to_hex(key), pg_current_xact_id()::text || ':' || token, true);
  END IF;
  -- This session need not parse this text again. Only a digest is stored, because the pool's next client can read it.
  PERFORM set_config('leasehold.checked_token', hashtextextended(token, 0)::text, false);
  RETURN p.number;
END $$;

-- Lowers a timeout of this transaction to `ms`, so that it ends with the lease it was admitted under. A shorter timeout that the
-- caller has set stays.
CREATE OR REPLACE FUNCTION leasehold.cap_timeout(setting text, ms bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE caller_ms numeric := extract(epoch FROM current_setting(setting)::interval) * 1000;
BEGIN
  IF caller_ms = 0 OR caller_ms > ms THEN
    PERFORM set_config(setting, ms::text, true);
  END IF;
END $$;

-- A duration in milliseconds, within the range of the server's timeout settings.
CREATE OR REPLACE FUNCTION leasehold.milliseconds(duration interval) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN duration IS NOT NULL THEN greatest(1, least(2147483647,
    pg_catalog.ceil(pg_catalog.date_part('epoch', duration) OPERATOR(pg_catalog.*) 1000)))::pg_catalog.int8 END
$$;

-- The check against the row, for a token that is not in the cache. It waits for the lock for at most `remaining`.
CREATE OR REPLACE FUNCTION leasehold.admit_uncached(token text, resource text, slot bigint, remaining interval) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  ms bigint := leasehold.milliseconds(remaining);
  key bigint := leasehold.lock_key(resource, coalesce(slot, 0));
  digest bigint := hashtextextended(token, key) & -2;
  cached bigint;
  f leasehold.fence;
BEGIN
  IF current_setting('leasehold.checked_token', true) = hashtextextended(token, 0)::text
    AND current_setting('transaction_isolation') = 'read committed'
  THEN
    PERFORM leasehold.lock(key, false, ms);
    -- The snapshot is taken after the lock, so it contains every acknowledged claim.
    SELECT g.* INTO f FROM leasehold.fence AS g WHERE g.name = admit_uncached.resource
      AND g.slot = coalesce(admit_uncached.slot, 0)
      AND g.token_digest = hashtextextended(token, 1) AND g.server_started_at = pg_postmaster_start_time()
      -- A caller can find another text with the same token_digest.
      AND (NOT g.is_sealed OR g.text_digest = leasehold.text_digest(token));
  END IF;
  IF f.mark IS NULL THEN
    RETURN leasehold.admit_full(token, resource, slot, ms);
  END IF;
  PERFORM leasehold.require_durable();
  -- A transaction without writes cannot have raised the mark itself, so the row is committed and its digest may be cached.
  -- Another fence's digest is replaced only sometimes. That of a sealed fence is never cached: 63 bits can be forged.
  IF NOT f.is_sealed AND pg_current_xact_id_if_assigned() IS NULL THEN
    cached := coalesce(pg_sequence_last_value(('leasehold.token_cache_' || (key & 63))::regclass), 0);
    IF cached = 0 OR random() < 0.01 THEN
      PERFORM setval(('leasehold.token_cache_' || (key & 63))::regclass, digest | f.protects_tables::integer);
    END IF;
  END IF;
  IF f.protects_tables THEN
    PERFORM set_config('leasehold.token_' || to_hex(key), pg_current_xact_id()::text || ':' || token, true);
  END IF;
  RETURN f.mark;
END $$;

-- Admits the rest of this transaction. Its writes commit under the mark they were checked against, or not at all: no claim
-- succeeds before the transaction ends. `remaining` is the remaining time of the lease. Pass NULL for a single statement outside
-- of a transaction block, which cannot stay idle.
--
-- Every write calls this function, so it is optimized for speed. A session that has already checked this token only acquires the
-- lock and reads the token cache; if the digest is not cached, it reads the row. The server prepares each expression again in
-- every transaction, so there are few. It sets no search path, which would double the cost, and therefore qualifies operators.
CREATE OR REPLACE FUNCTION leasehold.admit(token text, resource text DEFAULT NULL, slot bigint DEFAULT NULL,
  remaining interval DEFAULT '10 s') RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  cached bigint;
  number bigint;
  ms bigint;
  ignored pg_catalog.text;
BEGIN
  -- Difference of the cached digest to this token's: 0 none, 1 tables are protected. The lock comes first: every acknowledged
  -- claim has cleared the digest of an older token. The try-lock does not overtake waiting claims.
  -- The inner block keeps the lock until the transaction ends, see leasehold.lock.
  BEGIN
    cached := CASE WHEN pg_catalog.current_setting('leasehold.checked_token', true) OPERATOR(pg_catalog.=)
          pg_catalog.hashtextextended(token, 0)::pg_catalog.text
        AND pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) 'read committed'
        AND pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.<>) 'off'
        AND pg_catalog.pg_try_advisory_xact_lock_shared(
          pg_catalog.hashtextextended(resource, 1818780001::pg_catalog.int8 OPERATOR(pg_catalog.+) coalesce(slot, 0)))
      THEN pg_catalog.pg_sequence_last_value(('leasehold.token_cache_' OPERATOR(pg_catalog.||) (pg_catalog.hashtextextended(resource,
          1818780001::pg_catalog.int8 OPERATOR(pg_catalog.+) coalesce(slot, 0)) OPERATOR(pg_catalog.&) 63)::pg_catalog.text)::pg_catalog.regclass)
        OPERATOR(pg_catalog.#) (pg_catalog.hashtextextended(token,
          pg_catalog.hashtextextended(resource, 1818780001::pg_catalog.int8 OPERATOR(pg_catalog.+) coalesce(slot, 0))) OPERATOR(pg_catalog.&) (-2)) END;
  EXCEPTION WHEN query_canceled THEN
    RAISE;
  END;
  number := CASE WHEN cached OPERATOR(pg_catalog.=) 0 THEN pg_catalog.substr(token, 58, 19)::pg_catalog.int8
    -- The triggers read the token from a setting that names this transaction, so it is useless to the pool's next client.
    WHEN cached OPERATOR(pg_catalog.=) 1 THEN pg_catalog.substr(pg_catalog.split_part(pg_catalog.set_config('leasehold.token_' OPERATOR(pg_catalog.||) pg_catalog.to_hex(
        pg_catalog.hashtextextended(resource, 1818780001::pg_catalog.int8 OPERATOR(pg_catalog.+) coalesce(slot, 0))),
      pg_catalog.pg_current_xact_id()::pg_catalog.text OPERATOR(pg_catalog.||) ':' OPERATOR(pg_catalog.||) token, true),
      ':', 2), 58, 19)::pg_catalog.int8
    ELSE leasehold.admit_uncached(token, resource, slot, remaining) END;
  IF remaining IS NOT NULL THEN
    ms := greatest(1, least(2147483647,
      pg_catalog.ceil(pg_catalog.date_part('epoch', remaining) OPERATOR(pg_catalog.*) 1000)))::pg_catalog.int8;
    IF pg_catalog.current_setting('statement_timeout') OPERATOR(pg_catalog.=) '0' THEN
      ignored := pg_catalog.set_config('statement_timeout', ms::pg_catalog.text, true);
    ELSE
      PERFORM leasehold.cap_timeout('statement_timeout', ms);
    END IF;
    IF pg_catalog.current_setting('idle_in_transaction_session_timeout') OPERATOR(pg_catalog.=) '0' THEN
      ignored := pg_catalog.set_config('idle_in_transaction_session_timeout', ms::pg_catalog.text, true);
    ELSE
      PERFORM leasehold.cap_timeout('idle_in_transaction_session_timeout', ms);
    END IF;
  END IF;
  RETURN number;
END $$;

-- Checks a single statement outside of a transaction block, inside its condition:
-- `AND (SELECT leasehold.admit_inline('lh1-…', 'jobs/settle', 0)) > 0`. The planner inlines this expression into the statement, so
-- it runs as the caller, who may read the token cache.
CREATE OR REPLACE FUNCTION leasehold.admit_inline(token text, resource text, slot bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT CASE CASE WHEN pg_catalog.current_setting('leasehold.checked_token', true) OPERATOR(pg_catalog.=)
        pg_catalog.hashtextextended(token, 0)::pg_catalog.text
      AND pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) 'read committed'
      AND pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.<>) 'off'
      AND pg_catalog.pg_try_advisory_xact_lock_shared(
        pg_catalog.hashtextextended(resource, 1818780001::pg_catalog.int8 OPERATOR(pg_catalog.+) slot))
    THEN pg_catalog.pg_sequence_last_value(('leasehold.token_cache_' OPERATOR(pg_catalog.||) (pg_catalog.hashtextextended(resource,
        1818780001::pg_catalog.int8 OPERATOR(pg_catalog.+) slot) OPERATOR(pg_catalog.&) 63)::pg_catalog.text)::pg_catalog.regclass)
      OPERATOR(pg_catalog.#) (pg_catalog.hashtextextended(token,
        pg_catalog.hashtextextended(resource, 1818780001::pg_catalog.int8 OPERATOR(pg_catalog.+) slot)) OPERATOR(pg_catalog.&) (-2)) END
    WHEN 0 THEN 1
    WHEN 1 THEN pg_catalog.length(pg_catalog.set_config('leasehold.token_' OPERATOR(pg_catalog.||) pg_catalog.to_hex(
        pg_catalog.hashtextextended(resource, 1818780001::pg_catalog.int8 OPERATOR(pg_catalog.+) slot)),
      pg_catalog.pg_current_xact_id()::pg_catalog.text OPERATOR(pg_catalog.||) ':' OPERATOR(pg_catalog.||) token, true))::pg_catalog.int8
    ELSE leasehold.admit(token, resource, slot, NULL) END
$$;

-- Admits a sequenced write; the caller numbers the writes of one lease in ascending order. Returns NULL if the write is new. Otherwise
-- it is a late duplicate: returns the last sequence applied, and the caller must not write.
CREATE OR REPLACE FUNCTION leasehold.admit_once(token text, sequence bigint, resource text DEFAULT NULL,
  slot bigint DEFAULT NULL, remaining interval DEFAULT '10 s') RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  number bigint := leasehold.admit(token, resource, slot, remaining);
  p record := leasehold.parse_for(token, resource, slot);
  f leasehold.fence;
BEGIN
  IF sequence IS NULL OR sequence < 0 THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'INVALID_ARGUMENT: sequence is ' || coalesce(sequence::text, 'NULL') || ', expected 0 or more',
      HINT = 'Number the writes of a lease from 0 in ascending order.';
  END IF;
  SELECT g.* INTO f FROM leasehold.fence AS g WHERE g.name = p.name AND g.slot = p.slot FOR UPDATE;
  IF f.sequence >= admit_once.sequence THEN
    RETURN f.sequence;
  END IF;
  UPDATE leasehold.fence AS g SET sequence = admit_once.sequence WHERE g.id = f.id;
  RETURN NULL;
END $$;
-- Claim: raises the mark exclusively, durably and within a timeout (F8).

-- Backends that hold the fence's lock: admitted transactions that have not ended.
CREATE OR REPLACE FUNCTION leasehold.lock_holders(key bigint) RETURNS integer[] LANGUAGE sql STABLE AS $$
  SELECT coalesce(array_agg(DISTINCT l.pid), '{}') FROM pg_catalog.pg_locks AS l WHERE l.locktype = 'advisory'
    AND l.classid = ((key >> 32) & 4294967295)::oid AND l.objid = (key & 4294967295)::oid AND l.objsubid = 1 AND l.granted
    AND l.pid <> pg_catalog.pg_backend_pid()
    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
$$;

-- Raises the mark if the exclusive lock is acquired within `ms`; otherwise `done` is false and nothing has changed.
-- `previous_incarnation` is set if the token is of another incarnation than the mark.
CREATE OR REPLACE FUNCTION leasehold.try_raise(token text, resource text, slot bigint, ms bigint, OUT done boolean,
  OUT previous_incarnation text) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  p record := leasehold.parse_for(token, resource, slot);
  f leasehold.fence;
BEGIN
  done := false;
  PERFORM leasehold.require_durable();
  PERFORM set_config('lock_timeout', greatest(ms, 1)::text, true);
  BEGIN
    PERFORM pg_advisory_xact_lock(leasehold.lock_key(p.name, p.slot));
  EXCEPTION WHEN lock_not_available THEN
    RETURN;
  END;
  SELECT g.* INTO f FROM leasehold.fence AS g WHERE g.name = p.name AND g.slot = p.slot FOR UPDATE;
  IF f.is_sealed AND NOT leasehold.is_stamped(f.id, token) THEN
    PERFORM leasehold.refuse_unstamped(f.name, token); -- it was sealed, or its key retired, since the token was parsed
  END IF;
  previous_incarnation := leasehold.check_mark(f, p.number, p.incarnation);
  UPDATE leasehold.fence AS g SET state = 'armed', mark = p.number, incarnation = p.incarnation,
      sequence = CASE g.mark WHEN p.number THEN g.sequence END, token_digest = hashtextextended(token, 1),
      text_digest = CASE WHEN f.is_sealed THEN leasehold.text_digest(token) END,
      server_started_at = pg_postmaster_start_time() WHERE g.id = f.id;
  done := true;
END $$;

-- Fails with the backends that block a claim with this token.
CREATE OR REPLACE FUNCTION leasehold.raise_blocked(token text, resource text, slot bigint, timeout interval) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE p record := leasehold.parse_for(token, resource, slot);
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'LH006',
    MESSAGE = 'UNAVAILABLE: admitted transactions blocked the claim for ' || timeout,
    DETAIL = 'blocking_pids=' || array_to_string(leasehold.lock_holders(leasehold.lock_key(p.name, p.slot)), ','),
    HINT = 'End these backends if their holder is paused, then retry; or claim with terminate => true, if the role may call '
      'leasehold.terminate_blockers.';
END $$;

-- Ends backends that block a claim without the right to use the fence, see leasehold.end_strangers.
CREATE OR REPLACE FUNCTION leasehold.end_blocking_strangers(token text, resource text, slot bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE p record := leasehold.parse_for(token, resource, slot);
BEGIN
  RETURN leasehold.end_strangers(leasehold.lock_key(p.name, p.slot)) > 0;
END $$;

-- Ends all backends that block a claim with this token, which must be current or newer. The owner of this function must be a superuser
-- or a member of pg_signal_backend. Token text can be forged, so only roles that an operator grants it to can call this function.
CREATE OR REPLACE FUNCTION leasehold.terminate_blockers(token text, resource text, slot bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE p record := leasehold.parse_for(token, resource, slot);
BEGIN
  PERFORM leasehold.check_mark(f, p.number, p.incarnation) FROM leasehold.fence AS f WHERE f.name = p.name AND f.slot = p.slot;
  PERFORM pg_terminate_backend(pid) FROM unnest(leasehold.lock_holders(leasehold.lock_key(p.name, p.slot))) AS pid
    WHERE pid IS NOT NULL;
END $$;

-- Claims the fence for a new holder, which calls this first, before it reads. Raises the mark in transactions of its own; the mark
-- is durable when the call returns. Waits up to `timeout` for admitted transactions; then it ends them if `terminate` is set and
-- waits as long again, or fails and names their backends. Backends that hold the lock without the right to use the fence are ended.
-- New writers queue behind it. `previous_incarnation` returns the incarnation of the old mark if the token is of another one, because
-- the cluster was restored.
CREATE OR REPLACE PROCEDURE leasehold.claim(token text, resource text DEFAULT NULL, slot bigint DEFAULT NULL,
  timeout interval DEFAULT '5 s', terminate boolean DEFAULT false, INOUT previous_incarnation text DEFAULT NULL)
LANGUAGE plpgsql AS $$
DECLARE
  ms bigint := leasehold.milliseconds(timeout);
  r record;
BEGIN
  -- It cannot set a search path, because it commits. So it calls functions only, which do.
  COMMIT; -- fails inside a transaction block: a claim that can be rolled back proves nothing
  r := leasehold.try_raise(token, resource, slot, ms);
  IF NOT r.done AND terminate THEN
    PERFORM leasehold.terminate_blockers(token, resource, slot);
    r := leasehold.try_raise(token, resource, slot, ms);
  ELSIF NOT r.done AND leasehold.end_blocking_strangers(token, resource, slot) THEN
    r := leasehold.try_raise(token, resource, slot, ms);
  END IF;
  IF NOT r.done THEN
    PERFORM leasehold.raise_blocked(token, resource, slot, timeout);
  END IF;
  previous_incarnation := r.previous_incarnation;
  COMMIT;
END $$;
-- Session tokens, and the trigger functions that reject a write whose transaction was not admitted (F3).

-- Stores a token in the session, with timeouts for its transactions. Only timeouts that an earlier call set, or longer ones, are
-- replaced.
CREATE OR REPLACE FUNCTION leasehold.store_session_token(token text, resource text, slot bigint, remaining interval) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  p record := leasehold.parse_for(token, resource, slot);
  ms bigint := least(2147483647, ceil(extract(epoch FROM remaining) * 1000));
  previous text := current_setting('leasehold.session_timeout', true);
  number bigint := leasehold.admit_uncached(token, p.name, p.slot, remaining);
BEGIN
  IF ms <= 0 THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'INVALID_ARGUMENT: remaining is ' || remaining || ', expected more than 0',
      HINT = 'Renew the lease first, or pass NULL for no timeout.';
  END IF;
  IF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'on', false);
  END IF;
  PERFORM set_config(t.name, ms::text, false) FROM pg_settings AS t
    WHERE t.name IN ('statement_timeout', 'idle_in_transaction_session_timeout') AND ms IS NOT NULL
      AND (t.setting = previous OR t.setting::bigint NOT BETWEEN 1 AND ms);
  PERFORM set_config('leasehold.session_timeout', ms::text, false) WHERE ms IS NOT NULL;
  PERFORM set_config('leasehold.token_' || to_hex(leasehold.lock_key(p.name, p.slot)), token, false);
  RETURN number;
END $$;

-- Presents a token once for all later writes of this session to protected tables. The statements carry no token; the triggers check
-- each of them. Use it on a dedicated connection only; on pooled connections use `admit`. `clear_session_token` and DISCARD ALL end
-- it. Like any use of a token it raises a lower mark, in transactions of its own, and caches the digest once that is durable.
-- `remaining` limits the session's transactions as in `admit`.
CREATE OR REPLACE PROCEDURE leasehold.set_session_token(token text, resource text DEFAULT NULL, slot bigint DEFAULT NULL,
  remaining interval DEFAULT '10 s', INOUT number bigint DEFAULT NULL) LANGUAGE plpgsql AS $$
BEGIN
  COMMIT; -- fails inside a transaction block
  number := leasehold.admit_full(token, resource, slot, leasehold.milliseconds(remaining));
  COMMIT;
  number := leasehold.store_session_token(token, resource, slot, remaining);
  COMMIT;
END $$;

-- Removes the session's token and the timeouts that came with it.
CREATE OR REPLACE FUNCTION leasehold.clear_session_token(resource text, slot bigint DEFAULT 0) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM set_config('leasehold.token_' || to_hex(leasehold.lock_key(resource, slot)), '', false);
  PERFORM set_config(t.name, t.reset_val, false) FROM pg_settings AS t
    WHERE t.name IN ('statement_timeout', 'idle_in_transaction_session_timeout')
      AND t.setting = current_setting('leasehold.session_timeout', true);
  PERFORM set_config('leasehold.session_timeout', '', false);
END $$;

-- Fails unless this transaction was admitted or its session has a token. It then presents that token again, because only the mark
-- decides whether it is still current; the token cache does not decide. A token that another transaction presented does not count.
CREATE OR REPLACE FUNCTION leasehold.require_admitted(name text, slot bigint, key text, relation text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  presented pg_catalog.text := pg_catalog.current_setting('leasehold.token_' OPERATOR(pg_catalog.||) key, true);
  number bigint;
BEGIN
  -- A token of the session; that of a transaction comes after the id of the transaction and a colon.
  IF pg_catalog.length(presented) OPERATOR(pg_catalog.>=) 85 AND pg_catalog.strpos(presented, ':') OPERATOR(pg_catalog.=) 0 THEN
    number := leasehold.admit_uncached(presented, name, slot, NULL);
    RETURN;
  END IF;
  IF coalesce(pg_catalog.split_part(presented, ':', 1), '') OPERATOR(pg_catalog.<>)
      coalesce(pg_catalog.pg_current_xact_id_if_assigned()::pg_catalog.text, 'none') THEN
    RAISE EXCEPTION USING ERRCODE = 'LH002',
      MESSAGE = pg_catalog.concat('TOKEN_INVALID: table ', relation, ' is protected by ', name,
        ', and this transaction presented no token'),
      DETAIL = 'reason=absent', HINT = 'Call leasehold.admit with a current token in the same transaction before it writes, or '
        'leasehold.set_session_token once on a dedicated connection.';
  END IF;
  number := leasehold.admit_uncached(pg_catalog.split_part(presented, ':', 2), name, slot, NULL);
END $$;

-- Name of the trigger functions of one fence.
CREATE OR REPLACE FUNCTION leasehold.guard_name(name text, slot bigint) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT 'guard_' OPERATOR(pg_catalog.||) pg_catalog.to_hex(leasehold.lock_key(name, slot))
$$;

-- Body of the trigger functions of one fence. The statement trigger fires after the statement, so that the statement itself may contain
-- the check. Like `admit` it compares the presented token, which can be any text, with the token cache under the lock; if the digest is
-- not cached, or the text does not have the form of a token of this fence, it presents the token again. The inner block keeps the lock
-- until the transaction ends, see leasehold.lock. Each fence has its own functions, because passing trigger arguments would double the
-- cost. A sealed fence always presents the token again: a text with a cached digest can be forged (A8).
CREATE OR REPLACE FUNCTION leasehold.guard_body(of_name text, of_slot bigint, result text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $make$
DECLARE
  key bigint := leasehold.lock_key(of_name, of_slot);
  fence leasehold.fence := (SELECT f FROM leasehold.fence AS f WHERE (f.name, f.slot) = (of_name, of_slot));
  form text := concat('lh1-', fence.cluster, '-________-', fence.resource, '-w', lpad(to_hex(fence.slot), 8, '0'), '-', repeat('_', 19),
    '-________');
  sealed_form text := concat(replace(form, 'lh1-', 'lh2-'), '-', repeat('_', 86));
  -- The setting is a token of the session, or the id of a transaction, a colon and its token.
  setting text := format('pg_catalog.current_setting(%L, true)', 'leasehold.token_' || to_hex(key));
  presented text := format('pg_catalog.substr(%1$s, pg_catalog.strpos(%1$s, %2$L) OPERATOR(pg_catalog.+) 1)', setting, ':');
BEGIN
  IF fence.is_sealed THEN
    RETURN format($body$
    BEGIN
      PERFORM leasehold.require_admitted(%1$L, %2$s, %3$L, TG_TABLE_NAME);
      RETURN %4$s;
    END $body$, of_name, of_slot, to_hex(key), result);
  END IF;
  RETURN format($body$
    BEGIN
      BEGIN
        IF pg_catalog.pg_try_advisory_xact_lock_shared(%1$s)
          AND ((pg_catalog.pg_sequence_last_value(%3$L) OPERATOR(pg_catalog.#)
            pg_catalog.hashtextextended(%2$s, %1$s)) OPERATOR(pg_catalog.&) (-2)) OPERATOR(pg_catalog.=) 0
          AND (%2$s OPERATOR(pg_catalog.~~) %8$L OR %2$s OPERATOR(pg_catalog.~~) %9$L)
          AND pg_catalog.translate(pg_catalog.left(%2$s, 85), '0123456789abcdef', '') OPERATOR(pg_catalog.=) 'lh----w--'
          AND (pg_catalog.strpos(%10$s, ':') OPERATOR(pg_catalog.=) 0
            OR pg_catalog.starts_with(%10$s, pg_catalog.pg_current_xact_id_if_assigned()::pg_catalog.text OPERATOR(pg_catalog.||) ':'))
        THEN
          RETURN %7$s;
        END IF;
      EXCEPTION WHEN query_canceled THEN
        RAISE;
      END;
      PERFORM leasehold.require_admitted(%4$L, %5$s, %6$L, TG_TABLE_NAME);
      RETURN %7$s;
    END $body$, key, presented, 'leasehold.token_cache_' || (key & 63), of_name, of_slot, to_hex(key), result,
    form, sealed_form, setting);
END $make$;

-- Creates the trigger functions of one fence: for statements, and for rows that are written through a table without a guard.
CREATE OR REPLACE FUNCTION leasehold.create_guard(of_name text, of_slot bigint) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE guard text := leasehold.guard_name(of_name, of_slot);
BEGIN
  EXECUTE format('CREATE OR REPLACE FUNCTION leasehold.%s() RETURNS trigger LANGUAGE plpgsql AS %L', guard,
    leasehold.guard_body(of_name, of_slot, 'NULL'));
  EXECUTE format('CREATE OR REPLACE FUNCTION leasehold.%s_row() RETURNS trigger LANGUAGE plpgsql AS %L', guard,
    leasehold.guard_body(of_name, of_slot, 'coalesce(NEW, OLD)'));
  RETURN guard;
END $$;
-- Protected tables: the database rejects every write whose transaction was not admitted, whichever table the statement names (F3).

-- Each protected table with its descendants, and the fence that protects them.
CREATE OR REPLACE FUNCTION leasehold.members() RETURNS TABLE (relation regclass, name text, slot bigint)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  WITH RECURSIVE tree(relation, name, slot) AS (
    SELECT p.relation::oid, p.name, p.slot FROM leasehold.protected AS p
    UNION SELECT i.inhrelid, t.name, t.slot FROM pg_inherits AS i JOIN tree AS t ON i.inhparent = t.relation
  ) SELECT t.relation::regclass, t.name, t.slot FROM tree AS t
$$;

-- A table and all its descendants, partitioned tables first.
CREATE OR REPLACE FUNCTION leasehold.table_tree(target regclass) RETURNS regclass[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  WITH RECURSIVE tree(relation) AS (
    SELECT target::oid
    UNION SELECT i.inhrelid FROM pg_inherits AS i JOIN tree AS t ON i.inhparent = t.relation
  ) SELECT array_agg(t.relation::regclass ORDER BY c.relkind <> 'p', t.relation) FROM tree AS t JOIN pg_class AS c ON c.oid = t.relation
$$;

-- Protected tables below a table that is not protected: a statement that names that one fires no statement trigger of ours.
CREATE OR REPLACE FUNCTION leasehold.open_members() RETURNS TABLE (relation regclass, ancestor regclass)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  WITH RECURSIVE above(relation, ancestor) AS (
    SELECT i.inhrelid, i.inhparent FROM pg_inherits AS i JOIN leasehold.protected AS p ON p.relation = i.inhrelid
    UNION SELECT a.relation, i.inhparent FROM pg_inherits AS i JOIN above AS a ON i.inhrelid = a.ancestor
  ) SELECT a.relation::regclass, a.ancestor::regclass FROM above AS a
    WHERE NOT EXISTS (SELECT FROM leasehold.protected AS p WHERE p.relation = a.ancestor)
$$;

-- Digest of everything that gives a table's rows their meaning: name, columns, defaults, constraints, parents, and the types of its
-- columns with what they are made of. NULL if the table is gone.
CREATE OR REPLACE FUNCTION leasehold.definition(target regclass) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  WITH RECURSIVE types(id) AS (
    SELECT a.atttypid FROM pg_attribute AS a WHERE a.attrelid = target AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= 16384
    UNION
    SELECT part.id FROM types JOIN pg_type AS t ON t.oid = types.id CROSS JOIN LATERAL (
      SELECT t.typelem UNION ALL SELECT t.typbasetype
      UNION ALL SELECT r.rngsubtype FROM pg_range AS r WHERE t.oid IN (r.rngtypid, r.rngmultitypid)
      UNION ALL SELECT a.atttypid FROM pg_attribute AS a WHERE a.attrelid = t.typrelid AND t.typrelid <> 0 AND a.attnum > 0
    ) AS part(id) WHERE part.id >= 16384
  )
  SELECT md5(concat_ws(E'\n',
    (SELECT ROW(n.nspname, c.relname, c.relkind, c.relpersistence, c.reloftype, c.relispartition, c.relpartbound::text)::text
      FROM pg_namespace AS n WHERE n.oid = c.relnamespace),
    (SELECT string_agg(ROW(a.attnum, a.attname, a.atttypid, a.atttypmod, a.attcollation, a.attnotnull, a.attisdropped, a.attgenerated,
        a.attidentity, d.adbin::text)::text, ' ' ORDER BY a.attnum)
      FROM pg_attribute AS a LEFT JOIN pg_attrdef AS d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
      WHERE a.attrelid = target AND a.attnum > 0),
    -- A key that refers to a partitioned table has one more row for each of its partitions; a constraint trigger is a trigger.
    (SELECT string_agg(ROW(k.conname, k.contype, k.condeferrable, k.condeferred, k.convalidated, k.conkey, k.confrelid, k.confkey,
        k.confupdtype, k.confdeltype, k.conbin::text)::text, ' ' ORDER BY k.conname, k.contype)
      FROM pg_constraint AS k WHERE k.conrelid = target AND k.conparentid = 0 AND k.contype <> 't'),
    (SELECT string_agg(ROW(i.inhparent, i.inhseqno, i.inhdetachpending)::text, ' ' ORDER BY i.inhseqno, i.inhparent)
      FROM pg_inherits AS i WHERE i.inhrelid = target),
    (SELECT string_agg(ROW(t.oid, t.typtype, t.typbasetype, t.typtypmod, t.typnotnull, t.typdefaultbin::text,
        (SELECT string_agg(ROW(e.oid, e.enumlabel)::text, ' ' ORDER BY e.enumsortorder) FROM pg_enum AS e WHERE e.enumtypid = t.oid),
        (SELECT string_agg(ROW(k.conname, k.convalidated, k.conbin::text)::text, ' ' ORDER BY k.conname)
          FROM pg_constraint AS k WHERE k.contypid = t.oid),
        (SELECT string_agg(ROW(a.attnum, a.attname, a.atttypid, a.atttypmod, a.attisdropped)::text, ' ' ORDER BY a.attnum)
          FROM pg_attribute AS a WHERE a.attrelid = t.typrelid AND t.typrelid <> 0 AND a.attnum > 0))::text, ' ' ORDER BY t.oid)
      FROM types JOIN pg_type AS t ON t.oid = types.id)))
  FROM pg_class AS c WHERE c.oid = target
$$;

-- Triggers that each protected table must have, and what is wrong with each; NULL if it is in order. A statement is checked after INSERT,
-- UPDATE, DELETE and TRUNCATE, always. A row is checked before INSERT, UPDATE and DELETE: always below a table that is not protected,
-- otherwise only when a subscription applies it.
CREATE OR REPLACE FUNCTION leasehold.list_triggers() RETURNS TABLE (relation regclass, guard text, problem text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  WITH expected AS (
    SELECT p.relation, 'statement trigger' AS guard, 'leasehold_guard' AS name, leasehold.guard_name(p.name, p.slot) AS function,
        60 AS type, 'A' AS enabled
      FROM leasehold.protected AS p JOIN pg_class AS c ON c.oid = p.relation
    UNION ALL
    SELECT p.relation, 'row trigger', 'leasehold_guard_row', leasehold.guard_name(p.name, p.slot) || '_row', 31,
        CASE WHEN p.relation IN (SELECT o.relation FROM leasehold.open_members() AS o) THEN 'A' ELSE 'R' END
      FROM leasehold.protected AS p JOIN pg_class AS c ON c.oid = p.relation AND c.relkind <> 'p'
  )
  SELECT e.relation, e.guard, CASE
      WHEN t.oid IS NULL THEN 'missing'
      WHEN t.tgfoid IS DISTINCT FROM to_regproc('leasehold.' || e.function) THEN 'calls another function'
      WHEN t.tgtype <> e.type OR t.tgqual IS NOT NULL OR t.tgattr::text <> '' OR t.tgnargs <> 0 THEN 'fires for other events'
      WHEN t.tgenabled = 'D' THEN 'disabled'
      WHEN t.tgenabled <> e.enabled THEN 'enabled for other sessions'
    END
    FROM expected AS e LEFT JOIN pg_trigger AS t ON t.tgrelid = e.relation AND t.tgname = e.name AND NOT t.tgisinternal
$$;

-- Creates or replaces the triggers of one table and stores its definition. The caller has suspended the DDL check.
-- A statement trigger fires only for the table that a statement names. If a table above is not protected, each row is checked too.
-- Partitioned tables store no rows. A row trigger of an earlier version, which its partitions inherited, is removed.
CREATE OR REPLACE FUNCTION leasehold.guard_relation(target regclass, of_name text, of_slot bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  guard text := leasehold.guard_name(of_name, of_slot);
  kind "char" := (SELECT c.relkind FROM pg_class AS c WHERE c.oid = target);
BEGIN
  EXECUTE format('CREATE OR REPLACE TRIGGER leasehold_guard AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s
    FOR EACH STATEMENT EXECUTE FUNCTION leasehold.%s()', target, guard);
  EXECUTE format('ALTER TABLE ONLY %s ENABLE ALWAYS TRIGGER leasehold_guard', target);
  IF EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgrelid = target AND t.tgname = 'leasehold_guard_row' AND t.tgparentid = 0
      AND (kind = 'p' OR t.tgfoid IS DISTINCT FROM to_regproc('leasehold.' || guard || '_row') OR t.tgtype <> 31 OR t.tgqual IS NOT NULL
        OR t.tgattr::text <> '' OR t.tgnargs <> 0)) THEN
    EXECUTE format('DROP TRIGGER leasehold_guard_row ON %s', target);
  END IF;
  IF kind = 'r' THEN
    IF NOT EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgrelid = target AND t.tgname = 'leasehold_guard_row') THEN
      EXECUTE format('CREATE TRIGGER leasehold_guard_row BEFORE INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW
        EXECUTE FUNCTION leasehold.%s_row()', target, guard);
    END IF;
    EXECUTE format('ALTER TABLE ONLY %s ENABLE %s TRIGGER leasehold_guard_row', target,
      CASE WHEN EXISTS (SELECT FROM leasehold.open_members() AS o WHERE o.relation = target) THEN 'ALWAYS' ELSE 'REPLICA' END);
  END IF;
  UPDATE leasehold.protected AS p SET definition = leasehold.definition(target), server_id = leasehold.server_id()
    WHERE p.relation = target;
END $$;

-- Suspends the DDL check for this transaction until `resume_check`, and makes transactions with an older snapshot fail that change a
-- table. It waits for transactions that have run DDL, because the list could miss what they created.
CREATE OR REPLACE FUNCTION leasehold.suspend_check() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION USING ERRCODE = 'LH009', MESSAGE = 'CONFLICT: the snapshot of this transaction can miss tables',
      DETAIL = 'reason=isolation', HINT = 'Use READ COMMITTED.';
  END IF;
  LOCK TABLE leasehold.protected IN EXCLUSIVE MODE;
  INSERT INTO leasehold.changing_guards VALUES (pg_current_xact_id());
  UPDATE leasehold.version SET version = version;
END $$;

CREATE OR REPLACE FUNCTION leasehold.resume_check() RETURNS void LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  DELETE FROM leasehold.changing_guards
$$;

-- Fails if one of these tables cannot be protected by this fence.
CREATE OR REPLACE FUNCTION leasehold.require_protectable(tables regclass[], resource text, slot bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE other record;
BEGIN
  SELECT c.oid::regclass AS relation, c.relkind, c.relpersistence INTO other FROM pg_class AS c
    WHERE c.oid = ANY (tables) AND (c.relkind NOT IN ('r', 'p') OR c.relpersistence = 't' OR c.oid < 16384
      OR c.oid IN (SELECT o.relation FROM leasehold.own_relations() AS o));
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'LH009', MESSAGE = 'CONFLICT: ' || other.relation || CASE
        WHEN other.relkind = 'f' THEN ' is a foreign table: its rows are not in this database'
        WHEN other.relpersistence = 't' THEN ' is temporary'
        WHEN other.relkind NOT IN ('r', 'p') THEN ' is not a table'
        ELSE ' is a table of the server or of the fence' END,
      DETAIL = 'reason=kind', HINT = 'Protect the tables that store the rows, without temporary and foreign children.';
  END IF;
  SELECT m.relation, m.name, m.slot INTO other FROM leasehold.members() AS m
    WHERE m.relation = ANY (tables) AND (m.name, m.slot) <> (resource, require_protectable.slot) LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'LH009',
      MESSAGE = 'CONFLICT: ' || other.relation || ' is already protected by ' || other.name || ' slot ' || other.slot,
      DETAIL = 'reason=protected', HINT = 'Call leasehold.unprotect first.';
  END IF;
END $$;

-- Locks a table with all its descendants against writes and DDL, and returns them. No descendant joins while it waits.
CREATE OR REPLACE FUNCTION leasehold.lock_tree(target regclass) RETURNS regclass[] LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  tables regclass[];
  locked regclass[] := '{}';
BEGIN
  LOOP
    tables := leasehold.table_tree(target);
    EXIT WHEN tables <@ locked;
    EXECUTE (SELECT 'LOCK TABLE ' || string_agg('ONLY ' || c.oid::regclass, ', ') || ' IN SHARE ROW EXCLUSIVE MODE'
      FROM unnest(tables) AS t(relation) JOIN pg_class AS c ON c.oid = t.relation AND c.relkind IN ('r', 'p'));
    locked := tables;
  END LOOP;
  RETURN tables;
END $$;

-- Protects a table with its partitions and children: every write by any client and role needs a current token of the resource. Waits for
-- transactions that are writing to them.
CREATE OR REPLACE FUNCTION leasehold.protect(target regclass, resource text, slot bigint DEFAULT 0) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE tables regclass[] := ARRAY[target];
BEGIN
  PERFORM leasehold.lock_exclusive(resource, slot);
  PERFORM leasehold.require_protectable(tables, resource, slot);
  tables := leasehold.lock_tree(target);
  PERFORM leasehold.suspend_check();
  PERFORM leasehold.require_protectable(tables, resource, slot);
  INSERT INTO leasehold.protected (relation, name, slot) SELECT t, resource, protect.slot FROM unnest(tables) AS t ON CONFLICT DO NOTHING;
  PERFORM leasehold.create_guard(resource, slot);
  PERFORM leasehold.guard_relation(t, resource, protect.slot) FROM unnest(tables) AS t;
  UPDATE leasehold.fence AS f SET protects_tables = true WHERE f.name = protect.resource AND f.slot = protect.slot;
  PERFORM leasehold.resume_check();
END $$;

-- Removes the protection of a table and its descendants.
CREATE OR REPLACE FUNCTION leasehold.unprotect(target regclass) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  tables regclass[];
  one regclass;
  parent regclass;
BEGIN
  -- Locks the fence before the table, in the order of writers, to avoid deadlocks.
  PERFORM leasehold.lock(key, true, 60000) FROM (SELECT DISTINCT leasehold.lock_key(p.name, p.slot) AS key
    FROM leasehold.protected AS p WHERE p.relation = ANY (leasehold.table_tree(target)) ORDER BY key) AS fences;
  tables := leasehold.lock_tree(target);
  PERFORM leasehold.suspend_check();
  SELECT i.inhparent::regclass INTO parent FROM pg_inherits AS i JOIN leasehold.protected AS p ON p.relation = i.inhparent
    WHERE i.inhrelid = ANY (tables) AND i.inhparent <> ALL (tables) LIMIT 1;
  IF parent IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'LH009', MESSAGE = 'CONFLICT: ' || target || ' is protected together with its parent ' || parent,
      DETAIL = 'reason=parent', HINT = 'Detach it, or call leasehold.unprotect for the parent.';
  END IF;
  DELETE FROM leasehold.protected AS p WHERE p.relation = ANY (tables);
  FOREACH one IN ARRAY tables LOOP
    EXECUTE format('DROP TRIGGER IF EXISTS leasehold_guard ON %s', one);
    IF EXISTS (SELECT FROM pg_trigger WHERE tgrelid = one AND tgname = 'leasehold_guard_row' AND tgparentid = 0) THEN
      EXECUTE format('DROP TRIGGER leasehold_guard_row ON %s', one);
    END IF;
  END LOOP;
  UPDATE leasehold.fence AS f SET protects_tables = false WHERE f.protects_tables
    AND NOT EXISTS (SELECT FROM leasehold.protected AS p WHERE (p.name, p.slot) = (f.name, f.slot));
  PERFORM leasehold.resume_check();
END $$;

-- Restores the guards of all protected tables as they must be: after a dump was restored, a database was copied, or a superuser changed
-- them. Tables that have a guard trigger and are not listed are listed. Rights of others on the fence's own objects are revoked, see
-- leasehold.list_grants. Returns the tables. Marks are left as they are, see `rearm`.
CREATE OR REPLACE FUNCTION leasehold.repair_guards() RETURNS SETOF regclass LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM leasehold.suspend_check();
  PERFORM leasehold.revoke_grants();
  DELETE FROM leasehold.protected AS p WHERE NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = p.relation);
  INSERT INTO leasehold.protected (relation, name, slot) SELECT t.tgrelid, f.name, f.slot FROM pg_trigger AS t
    JOIN leasehold.fence AS f ON t.tgfoid = to_regproc('leasehold.' || leasehold.guard_name(f.name, f.slot))
    WHERE t.tgname = 'leasehold_guard' ON CONFLICT DO NOTHING;
  INSERT INTO leasehold.protected (relation, name, slot) SELECT m.relation, m.name, m.slot FROM leasehold.members() AS m ON CONFLICT DO NOTHING;
  PERFORM leasehold.require_protectable(array_agg(p.relation), p.name, p.slot) FROM leasehold.protected AS p GROUP BY p.name, p.slot;
  PERFORM leasehold.create_guard(p.name, p.slot) FROM (SELECT DISTINCT p.name, p.slot FROM leasehold.protected AS p) AS p;
  PERFORM leasehold.guard_relation(p.relation, p.name, p.slot) FROM (SELECT p.* FROM leasehold.protected AS p
    JOIN pg_class AS c ON c.oid = p.relation ORDER BY c.relkind <> 'p', p.relation) AS p;
  UPDATE leasehold.fence AS f SET protects_tables = EXISTS (SELECT FROM leasehold.protected AS p WHERE (p.name, p.slot) = (f.name, f.slot))
    WHERE f.protects_tables <> EXISTS (SELECT FROM leasehold.protected AS p WHERE (p.name, p.slot) = (f.name, f.slot));
  PERFORM leasehold.resume_check();
  RETURN QUERY SELECT p.relation FROM leasehold.protected AS p ORDER BY p.relation;
END $$;
-- The DDL check: a command that changes a protected table needs a token like any write, whichever object it names, and cannot remove a
-- guard. It compares definitions before and after, so it does not depend on a list of commands.

-- DETACH PARTITION CONCURRENTLY commits in the middle, where no token can be required. It is a statement of its own, so its words and
-- the names are in the text of the query; a name in Unicode escapes could be any.
CREATE OR REPLACE FUNCTION leasehold.check_ddl_start() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  query text := lower(current_query());
  named regclass;
BEGIN
  IF query LIKE '%detach%' AND query LIKE '%concurrently%' THEN
    SELECT p.relation INTO named FROM leasehold.protected AS p JOIN pg_class AS c ON c.oid = p.relation
      WHERE c.relispartition AND (query LIKE '%u&"%' OR strpos(query, lower(replace(c.relname, '"', '""'))) > 0) LIMIT 1;
    IF FOUND THEN
      RAISE EXCEPTION USING ERRCODE = 'LH009', MESSAGE = 'CONFLICT: ' || named || ' is protected and cannot be detached concurrently',
        DETAIL = 'reason=concurrently', HINT = 'Use DETACH PARTITION in a transaction that presents a token.';
    END IF;
  END IF;
END $$;

-- Fails unless this transaction was admitted by the fence of a table.
CREATE OR REPLACE FUNCTION leasehold.require_admitted(name text, slot bigint, relation text) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  SELECT leasehold.require_admitted(name, slot, to_hex(leasehold.lock_key(name, slot)), relation)
$$;

-- Stores definitions that changed under a token, lists tables that joined a protected one, and gives both the triggers they need.
CREATE OR REPLACE FUNCTION leasehold.extend_guards(changed regclass[], added regclass[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  p record;
  mixed regclass;
BEGIN
  -- One transaction at a time changes the list, and reads what the previous one committed.
  LOCK TABLE leasehold.protected IN SHARE ROW EXCLUSIVE MODE;
  SELECT m.relation INTO mixed FROM leasehold.members() AS m GROUP BY m.relation HAVING count(*) > 1 LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'LH009', MESSAGE = 'CONFLICT: ' || mixed || ' would be protected by two fences',
      DETAIL = 'reason=protected', HINT = 'Call leasehold.unprotect for one of its parents first.';
  END IF;
  INSERT INTO leasehold.changing_guards VALUES (pg_current_xact_id());
  FOR p IN SELECT m.name, m.slot, array_agg(m.relation) AS tables FROM leasehold.members() AS m WHERE m.relation = ANY (added)
      GROUP BY m.name, m.slot LOOP
    PERFORM leasehold.require_protectable(p.tables, p.name, p.slot);
    INSERT INTO leasehold.protected (relation, name, slot) SELECT t, p.name, p.slot FROM unnest(p.tables) AS t ON CONFLICT DO NOTHING;
  END LOOP;
  UPDATE leasehold.protected AS o SET definition = leasehold.definition(o.relation) WHERE o.relation = ANY (changed);
  -- A new parent without protection makes row checks necessary.
  FOR p IN SELECT o.relation, o.name, o.slot FROM leasehold.protected AS o WHERE o.relation = ANY (added)
      OR o.relation IN (SELECT t.relation FROM leasehold.list_triggers() AS t
        WHERE t.guard = 'row trigger' AND t.problem = 'enabled for other sessions') LOOP
    PERFORM leasehold.guard_relation(p.relation, p.name, p.slot);
  END LOOP;
  UPDATE leasehold.version SET version = version;
  DELETE FROM leasehold.changing_guards;
END $$;

CREATE OR REPLACE FUNCTION leasehold.check_ddl() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  p record;
  changed regclass[] := '{}';
  added regclass[];
  -- Programs create temporary tables often, so commands that change no existing table skip the comparison.
  creates boolean := TG_TAG LIKE 'CREATE %' OR TG_TAG IN ('COMMENT', 'GRANT', 'REVOKE', 'SELECT INTO', 'REFRESH MATERIALIZED VIEW', 'REINDEX');
BEGIN
  -- Waits for `protect`, which changes the list.
  LOCK TABLE leasehold.protected IN ROW SHARE MODE;
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    -- A snapshot older than a change of the list fails here with 40001; the caller must retry the transaction.
    PERFORM FROM leasehold.version FOR SHARE;
  END IF;
  IF NOT EXISTS (SELECT FROM leasehold.protected)
      OR EXISTS (SELECT FROM leasehold.changing_guards AS c WHERE c.transaction = pg_current_xact_id_if_assigned()) THEN
    RETURN;
  ELSIF EXISTS (SELECT FROM leasehold.protected AS o WHERE o.server_id IS DISTINCT FROM leasehold.server_id()) THEN
    RAISE EXCEPTION USING ERRCODE = 'LH005',
      MESSAGE = 'STORAGE_FAILED: this database was copied, restored or failed over after its tables were protected',
      DETAIL = 'reason=moved', HINT = 'As the owner of schema leasehold, call leasehold.repair_guards(), and leasehold.rearm for each resource.';
  END IF;

  IF TG_EVENT = 'table_rewrite' THEN
    PERFORM leasehold.require_admitted(o.name, o.slot, o.relation::text) FROM leasehold.protected AS o
      WHERE o.relation = pg_event_trigger_table_rewrite_oid();
    RETURN;
  ELSIF TG_EVENT = 'sql_drop' THEN
    FOR p IN SELECT DISTINCT o.name, o.slot, d.object_identity, d.objid FROM pg_event_trigger_dropped_objects() AS d
        JOIN leasehold.protected AS o ON o.relation = d.objid WHERE d.classid = 'pg_class'::regclass AND d.objsubid = 0 LOOP
      PERFORM leasehold.require_admitted(p.name, p.slot, p.object_identity);
      DELETE FROM leasehold.protected AS o WHERE o.relation = p.objid;
    END LOOP;
    creates := NOT EXISTS (SELECT FROM pg_event_trigger_dropped_objects() AS d WHERE NOT d.is_temporary);
  ELSE
    PERFORM leasehold.require_admitted(m.name, m.slot, c.object_identity) FROM pg_event_trigger_ddl_commands() AS c
      JOIN leasehold.members() AS m ON m.relation = c.objid
      WHERE c.classid = 'pg_class'::regclass AND c.command_tag LIKE 'ALTER %';
    creates := creates OR TG_TAG LIKE 'DROP %'; -- was compared in sql_drop
  END IF;

  IF NOT creates THEN
    FOR p IN SELECT o.* FROM leasehold.protected AS o WHERE o.definition IS DISTINCT FROM leasehold.definition(o.relation) LOOP
      PERFORM leasehold.require_admitted(p.name, p.slot, p.relation::text);
      changed := changed || p.relation;
    END LOOP;
  END IF;
  added := ARRAY(SELECT m.relation FROM leasehold.members() AS m
    WHERE NOT EXISTS (SELECT FROM leasehold.protected AS o WHERE o.relation = m.relation));
  IF changed <> '{}' OR added <> '{}' THEN
    PERFORM leasehold.extend_guards(changed, added);
  ELSIF creates AND TG_TAG <> 'CREATE TRIGGER' THEN
    RETURN;
  END IF;
  FOR p IN SELECT t.* FROM leasehold.list_triggers() AS t WHERE t.problem IS NOT NULL LOOP
    RAISE EXCEPTION USING ERRCODE = 'LH009',
      MESSAGE = 'CONFLICT: ' || p.relation || ' is protected and its triggers cannot be changed: the ' || p.guard || ' is ' || p.problem,
      DETAIL = 'reason=guard', HINT = 'Call leasehold.unprotect to remove the protection.';
  END LOOP;
END $$;
-- What operators and `leasehold coverage --probe` read of the guards, and the attempt of a write without a token.

-- Functions that only the owner of the schema may call, and roles that it grants them to.
CREATE OR REPLACE FUNCTION leasehold.operator_functions() RETURNS name[] LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT '{arm, rearm, declare_lost, set_strict, adopt, list_marks, lock_exclusive, protect, unprotect, guard_relation, create_guard,
    repair_guards, suspend_check, resume_check, extend_guards, lock_tree, list_guards, list_triggers, list_grants, revoke_grants,
    function_digests, probe_writes, end_strangers, terminate_blockers, seal, retire_stamp_key, list_stamp_keys, is_stamped}'::name[]
$$;

-- Rights that no one but the owner needs: to change the fence's tables and sequences, to create objects in its schema, and to call an
-- operator's function without a grant to a role. An operator may grant USAGE on the schema, EXECUTE on functions and SELECT on tables.
CREATE OR REPLACE FUNCTION leasehold.list_grants() RETURNS TABLE (object text, kind text, grantee text, privileges text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT g.object, g.kind, CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END,
    string_agg(DISTINCT g.privilege, ', ' ORDER BY g.privilege)
  FROM (
    SELECT o.relation::text AS object, o.kind, a.grantee, a.privilege_type AS privilege
      FROM leasehold.own_relations() AS o JOIN pg_class AS c ON c.oid = o.relation CROSS JOIN LATERAL (SELECT c.relacl UNION ALL
        SELECT t.attacl FROM pg_attribute AS t WHERE t.attrelid = c.oid AND NOT t.attisdropped) AS r(acl) CROSS JOIN aclexplode(r.acl) AS a
      WHERE a.grantee <> c.relowner AND a.privilege_type <> 'SELECT'
    UNION ALL
    SELECT n.nspname, 'SCHEMA', a.grantee, a.privilege_type FROM pg_namespace AS n CROSS JOIN aclexplode(n.nspacl) AS a
      WHERE n.nspname = 'leasehold' AND a.grantee <> n.nspowner AND a.privilege_type <> 'USAGE'
    UNION ALL
    SELECT p.oid::regprocedure::text, 'FUNCTION', a.grantee, a.privilege_type FROM pg_proc AS p
      CROSS JOIN aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
      WHERE p.pronamespace = 'leasehold'::regnamespace AND p.proname = ANY (leasehold.operator_functions()) AND a.grantee = 0
  ) AS g GROUP BY g.object, g.kind, g.grantee
$$;

CREATE OR REPLACE FUNCTION leasehold.revoke_grants() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE g record;
BEGIN
  FOR g IN SELECT * FROM leasehold.list_grants() LOOP
    EXECUTE format('REVOKE %s ON %s %s FROM %s CASCADE', g.privileges, g.kind, g.object, g.grantee);
  END LOOP;
END $$;

-- Digest of each function of this schema, without the trigger functions of fences, which are compared with leasehold.guard_body.
CREATE OR REPLACE FUNCTION leasehold.function_digests() RETURNS TABLE (signature text, digest text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT p.oid::regprocedure::text, md5(ROW(p.prosrc, l.lanname, p.prokind, p.provolatile, p.proparallel, p.prosecdef, p.proisstrict,
      p.proleakproof, p.proconfig, p.proowner = n.nspowner, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid))::text)
  FROM pg_proc AS p JOIN pg_language AS l ON l.oid = p.prolang JOIN pg_namespace AS n ON n.oid = p.pronamespace
  WHERE n.nspname = 'leasehold' AND p.proname NOT IN (SELECT leasehold.guard_name(f.name, f.slot) || s.suffix
    FROM leasehold.fence AS f CROSS JOIN (VALUES (''), ('_row')) AS s(suffix))
$$;

-- Guards of the tables that a resource protects (of all resources if it is NULL) and of the database, and what is wrong with each; NULL
-- if it is in order. Grants, functions of the fence and triggers of its own tables are listed only if something is wrong with them.
CREATE OR REPLACE FUNCTION leasehold.list_guards(resource text DEFAULT NULL, slot bigint DEFAULT 0)
RETURNS TABLE (object text, guard text, problem text) LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  WITH listed AS (
    SELECT p.*, c.oid AS id FROM leasehold.protected AS p LEFT JOIN pg_class AS c ON c.oid = p.relation
    WHERE list_guards.resource IS NULL OR (p.name, p.slot) = (list_guards.resource, list_guards.slot)
  ), fences AS (
    SELECT DISTINCT l.name, l.slot, leasehold.guard_name(l.name, l.slot) AS guard FROM listed AS l
  )
  SELECT t.relation::text, t.guard, t.problem FROM leasehold.list_triggers() AS t JOIN listed AS l ON l.relation = t.relation
  UNION ALL
  SELECT l.relation::text, 'definition', CASE
      WHEN l.id IS NULL THEN 'table is gone'
      WHEN l.server_id IS DISTINCT FROM leasehold.server_id() THEN 'copied or restored; call leasehold.repair_guards'
      WHEN l.definition IS DISTINCT FROM leasehold.definition(l.relation) THEN 'changed without a check; call leasehold.repair_guards'
    END FROM listed AS l
  UNION ALL
  SELECT m.relation::text, 'list', 'is not protected, unlike its parent'
    FROM leasehold.members() AS m JOIN fences AS f ON (f.name, f.slot) = (m.name, m.slot)
    WHERE NOT EXISTS (SELECT FROM leasehold.protected AS p WHERE p.relation = m.relation)
  UNION ALL
  SELECT t.tgrelid::regclass::text, 'list', 'has a guard, but is not listed; call leasehold.repair_guards'
    FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid AND p.pronamespace = 'leasehold'::regnamespace
    WHERE t.tgname = 'leasehold_guard' AND NOT EXISTS (SELECT FROM leasehold.protected AS l WHERE l.relation = t.tgrelid)
      AND (list_guards.resource IS NULL OR p.proname = leasehold.guard_name(list_guards.resource, list_guards.slot))
  UNION ALL
  SELECT g.object, 'grants', 'role ' || g.grantee || ' has ' || g.privileges || '; call leasehold.repair_guards'
    FROM leasehold.list_grants() AS g
  UNION ALL
  SELECT signature, 'installed function', CASE
      WHEN d.digest IS NULL THEN 'missing; install again'
      WHEN i.digest IS NULL THEN 'has the name of a function of the fence, and is not one; inspect and drop it'
      ELSE 'replaced; install again'
    END
    FROM leasehold.installed_function AS i FULL JOIN leasehold.function_digests() AS d USING (signature)
    WHERE i.digest IS DISTINCT FROM d.digest AND (i.digest IS NOT NULL OR split_part(signature, '(', 1) IN
      (SELECT split_part(k.signature, '(', 1) FROM leasehold.installed_function AS k))
  UNION ALL
  SELECT o.relation::text, 'own trigger', o.name || CASE
      WHEN t.oid IS NULL THEN ' is missing; install again'
      WHEN t.tgfoid IS DISTINCT FROM to_regproc('leasehold.' || o.function) OR t.tgtype <> o.type OR t.tgqual IS NOT NULL
        OR t.tgattr::text <> '' THEN ' was replaced; install again'
      ELSE ' is disabled, or enabled for other sessions; install again'
    END
    FROM (SELECT r.relation, 'check_owner', 'check_owner', 62 FROM leasehold.own_relations() AS r WHERE r.kind = 'TABLE'
      UNION ALL VALUES ('leasehold.fence'::regclass, 'check_mark_change', 'check_mark_change', 27),
        ('leasehold.fence'::regclass, 'check_mark_truncate', 'check_mark_change', 34)) AS o(relation, name, function, type)
    LEFT JOIN pg_trigger AS t ON t.tgrelid = o.relation AND t.tgname = o.name AND NOT t.tgisinternal
    WHERE t.tgenabled IS DISTINCT FROM 'A' OR t.tgfoid IS DISTINCT FROM to_regproc('leasehold.' || o.function) OR t.tgtype <> o.type
      OR t.tgqual IS NOT NULL OR t.tgattr::text <> ''
  UNION ALL
  SELECT 'leasehold.' || f.guard || b.suffix, 'function', CASE
      WHEN p.oid IS NULL THEN 'missing'
      WHEN p.prosrc <> leasehold.guard_body(f.name, f.slot, b.result) THEN 'replaced; call leasehold.repair_guards'
    END
    FROM fences AS f CROSS JOIN (VALUES ('', 'NULL'), ('_row', 'coalesce(NEW, OLD)')) AS b(suffix, result)
    LEFT JOIN pg_proc AS p ON p.oid = to_regproc('leasehold.' || f.guard || b.suffix)
  UNION ALL
  SELECT e.name, 'event trigger', CASE
      WHEN t.oid IS NULL THEN 'missing; install as a superuser, who must own schema leasehold'
      WHEN t.evtfoid IS DISTINCT FROM to_regproc('leasehold.' || e.function) OR t.evtevent <> e.event THEN 'calls another function; install again'
      WHEN t.evtenabled = 'D' THEN 'disabled; install again'
      WHEN t.evtenabled <> 'A' THEN 'enabled for other sessions; install again'
    END
    FROM (VALUES ('leasehold_check_start', 'check_ddl_start', 'ddl_command_start'), ('leasehold_check_ddl', 'check_ddl', 'ddl_command_end'),
      ('leasehold_check_drop', 'check_ddl', 'sql_drop'), ('leasehold_check_rewrite', 'check_ddl', 'table_rewrite')) AS e(name, function, event)
    LEFT JOIN pg_event_trigger AS t ON t.evtname = e.name
  ORDER BY 1, 2
$$;

-- Attempts a write without a token to each protected table of a resource, and undoes it. `refused` is false if the write passed; then its
-- table is open. A statement without rows fires the statement triggers, also those of others, and changes nothing.
CREATE OR REPLACE FUNCTION leasehold.probe_writes(resource text, slot bigint DEFAULT 0)
RETURNS TABLE (object text, refused boolean, sqlstate text, message text) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE target regclass;
BEGIN
  FOR target IN SELECT m.relation FROM leasehold.members() AS m JOIN pg_class AS c ON c.oid = m.relation
      WHERE (m.name, m.slot) = (resource, probe_writes.slot) ORDER BY m.relation::text LOOP
    object := target::text;
    BEGIN
      -- A token of this session or transaction does not count.
      PERFORM set_config('leasehold.token_' || to_hex(leasehold.lock_key(resource, probe_writes.slot)), '', true);
      EXECUTE format('DELETE FROM %s WHERE false', target);
      RAISE EXCEPTION USING ERRCODE = 'LH000', MESSAGE = 'a write without a token was accepted';
    EXCEPTION WHEN OTHERS THEN
      probe_writes.sqlstate := SQLSTATE;
      message := SQLERRM;
      refused := SQLSTATE = 'LH002';
    END;
    RETURN NEXT;
  END LOOP;
END $$;
-- Functions for operators: arm, re-arm, adopt and list marks. Application roles may call none of them.

-- Stores a fresh mark for a resource and slot under which nothing was written yet. An existing mark is left unchanged.
CREATE OR REPLACE FUNCTION leasehold.arm(resource text, cluster text, slot bigint DEFAULT 0) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE existing text;
BEGIN
  INSERT INTO leasehold.fence AS f (resource, slot, name, cluster, state, server_id)
    VALUES (encode(substr(sha256(convert_to(arm.resource, 'UTF8')), 1, 8), 'hex'), arm.slot, arm.resource, arm.cluster,
      'fresh', leasehold.server_id())
    ON CONFLICT ON CONSTRAINT fence_pkey DO NOTHING;
  SELECT f.cluster INTO existing FROM leasehold.fence AS f WHERE f.name = arm.resource AND f.slot = arm.slot;
  IF existing <> arm.cluster THEN
    RAISE EXCEPTION USING ERRCODE = 'LH004',
      MESSAGE = 'WRONG_CLUSTER: the stored mark belongs to cluster ' || existing || ', not to ' || arm.cluster,
      DETAIL = 'reason=foreign', HINT = 'Use a database of this cluster.';
  END IF;
END $$;

-- Lists all marks. `lost` is the reason if a mark is lost: 'lost' (declared) or 'moved' (stored by another server).
CREATE OR REPLACE FUNCTION leasehold.list_marks() RETURNS TABLE (cluster text, resource text, name text, slot bigint,
  mark bigint, lost text, incarnation text, is_strict boolean) LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT f.cluster, f.resource, f.name, f.slot, f.mark,
    CASE WHEN f.state = 'lost' THEN 'lost' WHEN f.server_id <> leasehold.server_id() THEN 'moved' END, f.incarnation, f.is_strict
  FROM leasehold.fence AS f ORDER BY f.name, f.slot
$$;

-- Acquires the fence's exclusive lock within a minute and returns the id of its row; fails if there is none.
CREATE OR REPLACE FUNCTION leasehold.lock_exclusive(resource text, slot bigint) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE row_id integer;
BEGIN
  PERFORM leasehold.lock(leasehold.lock_key(resource, slot), true, 60000);
  SELECT f.id INTO row_id FROM leasehold.fence AS f WHERE f.name = lock_exclusive.resource AND f.slot = lock_exclusive.slot;
  IF row_id IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'LH005',
      MESSAGE = 'STORAGE_FAILED: no mark is stored for resource ' || resource || ', slot ' || slot,
      DETAIL = 'reason=missing', HINT = 'If nothing was written yet, call leasehold.arm.';
  END IF;
  RETURN row_id;
END $$;

-- Declares the mark lost: every token is rejected until `rearm`.
CREATE OR REPLACE FUNCTION leasehold.declare_lost(resource text, slot bigint DEFAULT 0) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  UPDATE leasehold.fence AS f SET state = 'lost', token_digest = NULL
    WHERE f.id = (SELECT leasehold.lock_exclusive(declare_lost.resource, declare_lost.slot))
$$;

-- Sets a lost mark to `floor` in this database. No earlier holder may have a higher number. In a copied or restored database it also
-- repairs the guards of protected tables.
CREATE OR REPLACE FUNCTION leasehold.rearm(resource text, floor bigint, slot bigint DEFAULT 0) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  UPDATE leasehold.fence AS f SET state = 'armed', mark = rearm.floor, sequence = NULL, server_id = leasehold.server_id(),
      token_digest = NULL
    WHERE f.id = (SELECT leasehold.lock_exclusive(rearm.resource, rearm.slot));
  IF EXISTS (SELECT FROM leasehold.protected AS p WHERE p.server_id IS DISTINCT FROM leasehold.server_id()) THEN
    PERFORM leasehold.repair_guards();
  END IF;
END $$;

-- Sets whether tokens of another incarnation are rejected until it is adopted (T5).
CREATE OR REPLACE FUNCTION leasehold.set_strict(resource text, enabled boolean DEFAULT true, slot bigint DEFAULT 0) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  UPDATE leasehold.fence AS f SET is_strict = set_strict.enabled
    WHERE f.id = (SELECT leasehold.lock_exclusive(set_strict.resource, set_strict.slot))
$$;

-- Makes the fence follow this incarnation. The mark is unchanged.
CREATE OR REPLACE FUNCTION leasehold.adopt(resource text, incarnation text, slot bigint DEFAULT 0) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  UPDATE leasehold.fence AS f SET incarnation = adopt.incarnation, sequence = NULL, token_digest = NULL
    WHERE f.id = (SELECT leasehold.lock_exclusive(adopt.resource, adopt.slot))
$$;

-- Seals a fence, permanently: from now on it accepts only tokens with a stamp that this key made. A second key is accepted besides the
-- first, so that the key can be replaced. The key must have 32 random bytes; what makes the stamps has the same key, the holders do not.
CREATE OR REPLACE FUNCTION leasehold.seal(resource text, stamp_key bytea, slot bigint DEFAULT 0) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  fence_id integer;
  new_key_id text := encode(substr(sha256(stamp_key), 1, 4), 'hex');
  padded bytea;
  inner_pad bytea := decode(repeat('00', 64), 'hex');
  outer_pad bytea := inner_pad;
BEGIN
  IF coalesce(length(stamp_key), 0) <> 32 THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'INVALID_ARGUMENT: stamp_key has ' || coalesce(length(stamp_key), 0) || ' bytes, expected 32',
      HINT = 'Use 32 random bytes, for example of openssl rand -hex 32.';
  END IF;
  padded := stamp_key || decode(repeat('00', 32), 'hex');
  FOR i IN 0 .. 63 LOOP
    inner_pad := set_byte(inner_pad, i, get_byte(padded, i) # 54);
    outer_pad := set_byte(outer_pad, i, get_byte(padded, i) # 92);
  END LOOP;
  fence_id := leasehold.lock_exclusive(resource, slot);
  PERFORM leasehold.suspend_check();
  IF NOT (SELECT c.relrowsecurity FROM pg_class AS c WHERE c.oid = 'leasehold.stamp_key'::regclass) THEN
    -- Without a policy only the owner and roles that bypass row security read the keys, not members of pg_read_all_data.
    ALTER TABLE leasehold.stamp_key ENABLE ROW LEVEL SECURITY;
  END IF;
  INSERT INTO leasehold.stamp_key VALUES (fence_id, new_key_id, inner_pad, outer_pad) ON CONFLICT DO NOTHING;
  UPDATE leasehold.fence AS f SET is_sealed = true WHERE f.id = fence_id AND NOT f.is_sealed;
  IF (SELECT f.protects_tables FROM leasehold.fence AS f WHERE f.id = fence_id) THEN
    PERFORM leasehold.create_guard(resource, slot);
  END IF;
  PERFORM leasehold.resume_check();
  RETURN new_key_id;
END $$;

-- Lists the ids of a fence's stamp keys.
CREATE OR REPLACE FUNCTION leasehold.list_stamp_keys(resource text, slot bigint DEFAULT 0) RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT k.key_id FROM leasehold.stamp_key AS k JOIN leasehold.fence AS f ON f.id = k.fence
    WHERE (f.name, f.slot) = (list_stamp_keys.resource, list_stamp_keys.slot) ORDER BY k.key_id
$$;

-- Removes a stamp key: tokens that it stamped are refused from now on. The last key stays.
CREATE OR REPLACE FUNCTION leasehold.retire_stamp_key(resource text, key_id text, slot bigint DEFAULT 0) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE fence_id integer := leasehold.lock_exclusive(resource, slot);
BEGIN
  IF NOT EXISTS (SELECT FROM leasehold.stamp_key AS k WHERE k.fence = fence_id AND k.key_id <> retire_stamp_key.key_id) THEN
    RAISE EXCEPTION USING ERRCODE = 'LH009', MESSAGE = 'CONFLICT: fence ' || resource || ' has no other stamp key than ' || key_id,
      DETAIL = 'reason=last_key', HINT = 'Call leasehold.seal with the next key first.';
  END IF;
  DELETE FROM leasehold.stamp_key AS k WHERE k.fence = fence_id AND k.key_id = retire_stamp_key.key_id;
  -- A text that the key stamped must not be recognized without its stamp.
  UPDATE leasehold.fence AS f SET token_digest = NULL, text_digest = NULL WHERE f.id = fence_id;
END $$;

-- Application roles may check and claim. They may not arm, and they have no access to the tables. Default privileges of the installer can
-- give rights on every object that it creates, or withhold those of PUBLIC: objects of this installation get exactly the rights they need.
-- On objects that existed before, what an operator granted stays, except the rights in leasehold.list_grants.
REVOKE ALL ON ALL TABLES IN SCHEMA leasehold FROM PUBLIC;
DO $$
DECLARE
  existing text[] := string_to_array(current_setting('leasehold.existing'), ',');
  g record;
BEGIN
  FOR g IN
    SELECT DISTINCT o.kind, o.name, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END AS grantee FROM (
      SELECT 'SCHEMA' AS kind, n.nspname::text AS name, 'n' || n.oid AS id, n.nspowner AS owner, n.nspacl AS acl FROM pg_namespace AS n
        WHERE n.nspname = 'leasehold'
      UNION ALL SELECT r.kind, r.relation::text, 'c' || c.oid, c.relowner, c.relacl
        FROM leasehold.own_relations() AS r JOIN pg_class AS c ON c.oid = r.relation
      UNION ALL SELECT 'ROUTINE', p.oid::regprocedure::text, 'p' || p.oid, p.proowner, p.proacl
        FROM pg_proc AS p WHERE p.pronamespace = 'leasehold'::regnamespace
    ) AS o CROSS JOIN aclexplode(o.acl) AS a WHERE o.id <> ALL (existing) AND a.grantee <> o.owner LOOP
    EXECUTE format('REVOKE ALL ON %s %s FROM %s CASCADE', g.kind, g.name, g.grantee);
  END LOOP;
  FOR g IN SELECT p.oid::regprocedure::text AS name FROM pg_proc AS p WHERE p.pronamespace = 'leasehold'::regnamespace
      AND p.proname <> ALL (leasehold.operator_functions()) AND 'p' || p.oid <> ALL (existing) LOOP
    EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO PUBLIC', g.name);
  END LOOP;
  FOR n IN 0 .. 63 LOOP
    EXECUTE format('GRANT SELECT ON SEQUENCE leasehold.token_cache_%s TO PUBLIC', n);
  END LOOP;
  PERFORM leasehold.revoke_grants();
END $$;

-- Replaces the triggers and functions that an earlier installation created. In a copied or restored database they wait for an operator.
DO $$
BEGIN
  IF current_setting('leasehold.upgraded_from', true) = '2' OR EXISTS (SELECT FROM leasehold.list_guards() AS g
      JOIN leasehold.protected AS p ON p.server_id = leasehold.server_id() WHERE g.guard = 'function' AND g.problem IS NOT NULL) THEN
    PERFORM leasehold.repair_guards();
    DROP FUNCTION IF EXISTS leasehold.guard_row();
  END IF;
END $$;

-- What `list_guards` compares the functions with.
DELETE FROM leasehold.installed_function;
INSERT INTO leasehold.installed_function SELECT * FROM leasehold.function_digests();

-- Only a superuser can create event triggers. Without them, the owner of a protected table can drop its triggers.
DO $$
BEGIN
  IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
    CREATE EVENT TRIGGER leasehold_check_start ON ddl_command_start WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION leasehold.check_ddl_start();
    CREATE EVENT TRIGGER leasehold_check_ddl ON ddl_command_end EXECUTE FUNCTION leasehold.check_ddl();
    CREATE EVENT TRIGGER leasehold_check_drop ON sql_drop EXECUTE FUNCTION leasehold.check_ddl();
    CREATE EVENT TRIGGER leasehold_check_rewrite ON table_rewrite EXECUTE FUNCTION leasehold.check_ddl();
    ALTER EVENT TRIGGER leasehold_check_start ENABLE ALWAYS;
    ALTER EVENT TRIGGER leasehold_check_ddl ENABLE ALWAYS;
    ALTER EVENT TRIGGER leasehold_check_drop ENABLE ALWAYS;
    ALTER EVENT TRIGGER leasehold_check_rewrite ENABLE ALWAYS;
  END IF;
END $$;
COMMIT;
