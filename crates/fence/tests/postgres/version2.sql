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

-- Splits a token text into its parts. Text that the grantor did not print exactly so is rejected.
CREATE OR REPLACE FUNCTION leasehold.parse_token(token text, OUT cluster text, OUT incarnation text, OUT resource text,
  OUT slot bigint, OUT number bigint) LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  reason text;
  digits text;
BEGIN
  digits := substr(token, 58, 19);
  reason := CASE
    WHEN coalesce(token, '') = '' THEN 'absent'
    WHEN token ~ '^lh(0|[1-9][0-9]{0,8})-' AND token !~ '^lh1-' THEN 'version'
    WHEN length(token) <> 85 OR token !~ ('^lh1-[0-9a-f]{16}-[0-9a-f]{8}-[0-9a-f]{16}-(w[0-9a-f]{8}|[ru]0{8})-[0-9]{19}-'
      || '[0-9a-f]{8}$') THEN 'shape'
    WHEN lpad(to_hex(leasehold.crc32(convert_to(substr(token, 1, 76), 'UTF8'))), 8, '0') <> substr(token, 78) THEN 'checksum'
    WHEN digits = '0000000000000000000' THEN 'zero'
    WHEN digits COLLATE "C" > '9223372036854775807' THEN 'too_large'
  END;
  IF reason = 'version' THEN
    RAISE EXCEPTION USING ERRCODE = 'LH008',
      MESSAGE = 'UNSUPPORTED_VERSION: token version ' || substring(token FROM '^lh([0-9]+)-') || ' is not supported, expected 1',
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

-- Identity of this server: system identifier and timeline. It changes after a failover, a point-in-time recovery or a dump into
-- another server; then the stored marks may be older than the claims that holders were granted.
CREATE OR REPLACE FUNCTION leasehold.server_id() RETURNS text LANGUAGE sql STABLE AS $$
  SELECT (SELECT system_identifier FROM pg_catalog.pg_control_system()) || '/'
    || pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8)
$$;

-- Advisory lock key of a fence. Writers hold the lock shared until they commit, a claim holds it exclusively. The server's lock
-- queue is fair, so new writers do not overtake a waiting claim; pg_locks lists the holders.
CREATE OR REPLACE FUNCTION leasehold.lock_key(name text, slot bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT pg_catalog.hashtextextended(name, 1818780001::bigint + slot)
$$;

-- Acquires the lock until the transaction ends. The inner block is essential: a lock acquired while a cursor runs is released if
-- the cursor fails in a savepoint, although its earlier writes remain. A lock acquired in a block with an exception handler
-- belongs to the transaction.
CREATE OR REPLACE FUNCTION leasehold.lock(key bigint, exclusive boolean) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  BEGIN
    IF exclusive THEN
      PERFORM pg_advisory_xact_lock(key);
    ELSE
      PERFORM pg_advisory_xact_lock_shared(key);
    END IF;
  EXCEPTION WHEN query_canceled THEN
    RAISE;
  END;
END $$;

-- Parses a token, finds its fence and checks everything that needs no lock.
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
        ELSE ' was stored by another server (' || fence.server_id || '): failover, recovery or restore' END,
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
CREATE OR REPLACE FUNCTION leasehold.admit_full(token text, resource text, slot bigint) RETURNS bigint
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
    PERFORM leasehold.lock(key, true);
    SELECT g.* INTO f FROM leasehold.fence AS g WHERE g.name = p.name AND g.slot = p.slot FOR UPDATE;
  ELSE
    PERFORM leasehold.lock(key, false);
    IF read_committed THEN
      SELECT g.* INTO f FROM leasehold.fence AS g WHERE g.name = p.name AND g.slot = p.slot;
    ELSE
      -- A snapshot older than a claim fails here with 40001; the caller must retry the transaction.
      SELECT g.* INTO f FROM leasehold.fence AS g WHERE g.name = p.name AND g.slot = p.slot FOR SHARE;
    END IF;
  END IF;
  PERFORM leasehold.check_mark(f, p.number, p.incarnation);
  IF f.mark IS DISTINCT FROM p.number OR f.incarnation IS DISTINCT FROM p.incarnation THEN
    UPDATE leasehold.fence AS g SET state = 'armed', mark = p.number, incarnation = p.incarnation,
        sequence = CASE g.mark WHEN p.number THEN g.sequence END, token_digest = hashtextextended(token, 1),
        server_started_at = pg_postmaster_start_time() WHERE g.id = f.id;
  ELSIF read_committed THEN
    -- The same token after a server restart: one of its writers records that, the others do not wait for it.
    UPDATE leasehold.fence AS g SET token_digest = hashtextextended(token, 1), server_started_at = pg_postmaster_start_time()
      WHERE g.id = (SELECT h.id FROM leasehold.fence AS h WHERE h.id = f.id AND (h.token_digest, h.server_started_at)
        IS DISTINCT FROM (hashtextextended(token, 1), pg_postmaster_start_time()) FOR UPDATE SKIP LOCKED);
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

-- The check against the row, for a token that is not in the cache.
CREATE OR REPLACE FUNCTION leasehold.admit_uncached(token text, resource text, slot bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  key bigint := leasehold.lock_key(resource, coalesce(slot, 0));
  digest bigint := hashtextextended(token, key) & -2;
  cached bigint;
  f leasehold.fence;
BEGIN
  IF current_setting('leasehold.checked_token', true) = hashtextextended(token, 0)::text
    AND current_setting('transaction_isolation') = 'read committed'
  THEN
    PERFORM leasehold.lock(key, false);
    -- The snapshot is taken after the lock, so it contains every acknowledged claim.
    SELECT g.* INTO f FROM leasehold.fence AS g WHERE g.name = admit_uncached.resource
      AND g.slot = coalesce(admit_uncached.slot, 0)
      AND g.token_digest = hashtextextended(token, 1) AND g.server_started_at = pg_postmaster_start_time();
  END IF;
  IF f.mark IS NULL THEN
    RETURN leasehold.admit_full(token, resource, slot);
  END IF;
  PERFORM leasehold.require_durable();
  -- A transaction without writes cannot have raised the mark itself, so the row is committed and its digest may be cached.
  -- Another fence's digest is replaced only sometimes.
  IF pg_current_xact_id_if_assigned() IS NULL THEN
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
    WHEN cached OPERATOR(pg_catalog.=) 1 THEN pg_catalog.left(pg_catalog.right(pg_catalog.set_config('leasehold.token_' OPERATOR(pg_catalog.||) pg_catalog.to_hex(
        pg_catalog.hashtextextended(resource, 1818780001::pg_catalog.int8 OPERATOR(pg_catalog.+) coalesce(slot, 0))),
      pg_catalog.pg_current_xact_id()::pg_catalog.text OPERATOR(pg_catalog.||) ':' OPERATOR(pg_catalog.||) token, true),
      28), 19)::pg_catalog.int8
    ELSE leasehold.admit_uncached(token, resource, slot) END;
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
  previous_incarnation := leasehold.check_mark(f, p.number, p.incarnation);
  UPDATE leasehold.fence AS g SET state = 'armed', mark = p.number, incarnation = p.incarnation,
      sequence = CASE g.mark WHEN p.number THEN g.sequence END, token_digest = hashtextextended(token, 1),
      server_started_at = pg_postmaster_start_time() WHERE g.id = f.id;
  done := true;
END $$;

-- Backends that block a claim with this token. With `terminate` it also ends them, which requires that the owner of this function
-- is a superuser or a member of pg_signal_backend, and that the token is current or newer.
CREATE OR REPLACE FUNCTION leasehold.blocking_pids(token text, resource text, slot bigint, terminate boolean) RETURNS integer[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  p record := leasehold.parse_for(token, resource, slot);
  pids integer[] := leasehold.lock_holders(leasehold.lock_key(p.name, p.slot));
BEGIN
  IF terminate THEN
    PERFORM leasehold.check_mark(f, p.number, p.incarnation) FROM leasehold.fence AS f WHERE f.name = p.name AND f.slot = p.slot;
    PERFORM pg_terminate_backend(pid) FROM unnest(pids) AS pid WHERE pid IS NOT NULL;
  END IF;
  RETURN pids;
END $$;

-- Claims the fence for a new holder, which calls this first, before it reads. Raises the mark in transactions of its own; the mark
-- is durable when the call returns. Waits up to `timeout` for admitted transactions; then it ends them if `terminate` is set and
-- waits as long again, or fails and names their backends. New writers queue behind it. `previous_incarnation` returns the
-- incarnation of the old mark if the token is of another one, because the cluster was restored.
CREATE OR REPLACE PROCEDURE leasehold.claim(token text, resource text DEFAULT NULL, slot bigint DEFAULT NULL,
  timeout interval DEFAULT '5 s', terminate boolean DEFAULT false, INOUT previous_incarnation text DEFAULT NULL)
LANGUAGE plpgsql AS $$
DECLARE
  ms bigint := least(2147483647, ceil(extract(epoch FROM timeout) * 1000))::bigint;
  r record;
BEGIN
  COMMIT; -- fails inside a transaction block: a claim that can be rolled back proves nothing
  r := leasehold.try_raise(token, resource, slot, ms);
  IF NOT r.done AND terminate THEN
    PERFORM leasehold.blocking_pids(token, resource, slot, true);
    r := leasehold.try_raise(token, resource, slot, ms);
  END IF;
  IF NOT r.done THEN
    RAISE EXCEPTION USING ERRCODE = 'LH006',
      MESSAGE = 'UNAVAILABLE: admitted transactions blocked the claim for ' || timeout,
      DETAIL = 'blocking_pids=' || array_to_string(leasehold.blocking_pids(token, resource, slot, false), ','),
      HINT = 'End these backends if their holder is paused, then retry; or claim with terminate => true.';
  END IF;
  previous_incarnation := r.previous_incarnation;
  COMMIT;
END $$;
-- Protected tables: the database rejects every write whose transaction was not admitted (F3).

-- Stores a token in the session, with timeouts for its transactions. Only timeouts that an earlier call set, or longer ones, are
-- replaced.
CREATE OR REPLACE FUNCTION leasehold.store_session_token(token text, resource text, slot bigint, remaining interval) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  p record := leasehold.parse_for(token, resource, slot);
  ms bigint := least(2147483647, ceil(extract(epoch FROM remaining) * 1000));
  previous text := current_setting('leasehold.session_timeout', true);
  number bigint := leasehold.admit_uncached(token, p.name, p.slot);
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
  number := leasehold.admit_full(token, resource, slot);
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
-- decides whether it is still current. A token that another transaction presented does not count.
CREATE OR REPLACE FUNCTION leasehold.require_admitted(name text, slot bigint, key text, relation text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  presented pg_catalog.text := pg_catalog.current_setting('leasehold.token_' OPERATOR(pg_catalog.||) key, true);
  number bigint;
BEGIN
  IF pg_catalog.length(presented) OPERATOR(pg_catalog.=) 85 THEN
    number := leasehold.admit(presented, name, slot, NULL);
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
  number := leasehold.admit(pg_catalog.split_part(presented, ':', 2), name, slot, NULL);
END $$;

-- Creates the statement trigger function of one fence. It fires after the statement, so that the statement itself may contain the
-- check. Like `admit` it compares the presented token, which can be any text, with the token cache under the lock; if the digest is
-- not cached, it presents the token again. The inner block keeps the lock until the transaction ends, see leasehold.lock. Each fence
-- has its own function, because passing trigger arguments would double the cost.
CREATE OR REPLACE FUNCTION leasehold.create_guard(of_name text, of_slot bigint) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $make$
DECLARE
  key bigint := leasehold.lock_key(of_name, of_slot);
  guard text := 'leasehold.guard_' || to_hex(key);
  setting text := 'leasehold.token_' || to_hex(key);
BEGIN
  EXECUTE format('CREATE OR REPLACE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql AS %L', guard, format($body$
    BEGIN
      BEGIN
        IF pg_catalog.pg_try_advisory_xact_lock_shared(%1$s)
          AND ((pg_catalog.pg_sequence_last_value(%3$L) OPERATOR(pg_catalog.#)
            pg_catalog.hashtextextended(pg_catalog.right(pg_catalog.current_setting(%2$L, true), 85), %1$s))
            OPERATOR(pg_catalog.&) (-2)) OPERATOR(pg_catalog.=) 0
          AND (pg_catalog.length(pg_catalog.current_setting(%2$L, true)) OPERATOR(pg_catalog.=) 85
            OR pg_catalog.starts_with(pg_catalog.current_setting(%2$L, true),
              pg_catalog.pg_current_xact_id_if_assigned()::pg_catalog.text OPERATOR(pg_catalog.||) ':'))
        THEN
          RETURN NULL;
        END IF;
      EXCEPTION WHEN query_canceled THEN
        RAISE;
      END;
      PERFORM leasehold.require_admitted(%4$L, %5$s, %6$L, TG_TABLE_NAME);
      RETURN NULL;
    END $body$, key, setting, 'leasehold.token_cache_' || (key & 63), of_name, of_slot, to_hex(key)));
  RETURN guard;
END $make$;

-- Replaces the functions that an earlier installation created.
SELECT leasehold.create_guard(p.name, p.slot) FROM (SELECT DISTINCT name, slot FROM leasehold.protected) AS p;

-- Row trigger for changes that fire only row triggers: those of a logical replication subscription.
CREATE OR REPLACE FUNCTION leasehold.guard_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM leasehold.require_admitted(TG_ARGV[0], TG_ARGV[1]::pg_catalog.int8, TG_ARGV[2], TG_TABLE_NAME);
  RETURN coalesce(NEW, OLD);
END $$;

-- Creates the triggers of one relation. A partition already has the row trigger of its parent.
CREATE OR REPLACE FUNCTION leasehold.guard_relation(target regclass, of_name text, of_slot bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  args text := format('%L, %L, %L', of_name, of_slot, to_hex(leasehold.lock_key(of_name, of_slot)));
BEGIN
  EXECUTE format('CREATE OR REPLACE TRIGGER leasehold_guard AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s
    FOR EACH STATEMENT EXECUTE FUNCTION %s()', target, leasehold.create_guard(of_name, of_slot));
  IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = target AND tgname = 'leasehold_guard_row') THEN
    EXECUTE format('CREATE TRIGGER leasehold_guard_row BEFORE INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW
      EXECUTE FUNCTION leasehold.guard_row(%s)', target, args);
  END IF;
  EXECUTE format('ALTER TABLE ONLY %s ENABLE ALWAYS TRIGGER leasehold_guard', target);
  -- Where statement triggers fire, the row trigger would only add cost.
  EXECUTE format('ALTER TABLE ONLY %s ENABLE REPLICA TRIGGER leasehold_guard_row', target);
END $$;

-- A table and all its descendants.
CREATE OR REPLACE FUNCTION leasehold.table_tree(target regclass) RETURNS SETOF regclass LANGUAGE sql STABLE AS $$
  WITH RECURSIVE tree(relation) AS (
    SELECT target::pg_catalog.oid
    UNION SELECT i.inhrelid FROM pg_catalog.pg_inherits AS i JOIN tree AS f ON i.inhparent = f.relation
  ) SELECT relation::pg_catalog.regclass FROM tree
$$;

-- Protects a table: every write by any client and role needs a current token of the resource. Waits for transactions that are
-- writing to the table.
CREATE OR REPLACE FUNCTION leasehold.protect(target regclass, resource text, slot bigint DEFAULT 0) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  one regclass;
  other text;
BEGIN
  PERFORM leasehold.lock_exclusive(resource, slot);
  IF (SELECT relkind FROM pg_class WHERE oid = target) NOT IN ('r', 'p') THEN
    RAISE EXCEPTION USING ERRCODE = 'LH009', MESSAGE = 'CONFLICT: ' || target || ' is not a table',
      HINT = 'Protect the tables behind it.';
  END IF;
  SELECT p.name || ' slot ' || p.slot INTO other FROM leasehold.protected AS p
    WHERE p.relation IN (SELECT leasehold.table_tree(target)) AND (p.name, p.slot) <> (resource, protect.slot);
  IF other IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'LH009', MESSAGE = 'CONFLICT: ' || target || ' is already protected by ' || other,
      HINT = 'Call leasehold.unprotect first.';
  END IF;
  -- The DDL check allows changes only to tables that are not listed.
  DELETE FROM leasehold.protected AS p WHERE p.relation IN (SELECT leasehold.table_tree(target));
  FOR one IN SELECT leasehold.table_tree(target) LOOP
    PERFORM leasehold.guard_relation(one, resource, slot);
  END LOOP;
  INSERT INTO leasehold.protected (relation, name, slot) SELECT f, resource, protect.slot FROM leasehold.table_tree(target) AS f;
  UPDATE leasehold.fence AS f SET protects_tables = true WHERE f.name = protect.resource AND f.slot = protect.slot;
END $$;

-- Removes the protection of a table and its descendants.
CREATE OR REPLACE FUNCTION leasehold.unprotect(target regclass) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE one regclass;
BEGIN
  -- Locks the fence before the table, in the order of writers, to avoid deadlocks.
  PERFORM pg_advisory_xact_lock(key) FROM (SELECT DISTINCT leasehold.lock_key(p.name, p.slot) AS key
    FROM leasehold.protected AS p WHERE p.relation IN (SELECT leasehold.table_tree(target)) ORDER BY key) AS fences;
  DELETE FROM leasehold.protected AS p WHERE p.relation IN (SELECT leasehold.table_tree(target));
  FOR one IN SELECT leasehold.table_tree(target) LOOP
    EXECUTE format('DROP TRIGGER IF EXISTS leasehold_guard ON %s', one);
    IF EXISTS (SELECT FROM pg_trigger WHERE tgrelid = one AND tgname = 'leasehold_guard_row' AND tgparentid = 0) THEN
      EXECUTE format('DROP TRIGGER leasehold_guard_row ON %s', one);
    END IF;
  END LOOP;
  UPDATE leasehold.fence AS f SET protects_tables = false WHERE f.protects_tables
    AND NOT EXISTS (SELECT FROM leasehold.protected AS p WHERE (p.name, p.slot) = (f.name, f.slot));
END $$;

-- Runs after every DDL command. A change of a protected table needs a token like any write, new descendants become protected, and
-- the triggers must be unchanged.
CREATE OR REPLACE FUNCTION leasehold.check_ddl() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  p record;
  c record;
  listed leasehold.protected[];
  added leasehold.protected[];
BEGIN
  IF NOT EXISTS (SELECT FROM leasehold.protected) THEN
    RETURN;
  END IF;
  IF TG_EVENT = 'sql_drop' THEN
    FOR p IN SELECT DISTINCT o.name, o.slot, d.object_identity, d.objid FROM pg_event_trigger_dropped_objects() AS d
        JOIN leasehold.protected AS o ON o.relation = d.objid WHERE d.classid = 'pg_class'::regclass AND d.objsubid = 0 LOOP
      PERFORM leasehold.require_admitted(p.name, p.slot, to_hex(leasehold.lock_key(p.name, p.slot)), p.object_identity);
      DELETE FROM leasehold.protected AS o WHERE o.relation = p.objid;
    END LOOP;
  ELSE
    FOR c IN SELECT * FROM pg_event_trigger_ddl_commands() WHERE classid = 'pg_class'::regclass LOOP
      SELECT o.name, o.slot INTO p FROM leasehold.protected AS o
        WHERE c.objid IN (SELECT leasehold.table_tree(o.relation)) ORDER BY o.relation = c.objid DESC LIMIT 1;
      CONTINUE WHEN p.name IS NULL;
      IF c.command_tag = 'ALTER TABLE' THEN
        PERFORM leasehold.require_admitted(p.name, p.slot, to_hex(leasehold.lock_key(p.name, p.slot)), c.object_identity);
      END IF;
    END LOOP;
    added := ARRAY(SELECT DISTINCT ROW(m.relation::oid, o.name, o.slot)::leasehold.protected
      FROM leasehold.protected AS o, leasehold.table_tree(o.relation) AS m(relation)
      WHERE NOT EXISTS (SELECT FROM leasehold.protected AS k WHERE k.relation = m.relation)
        -- A detached partition loses the row trigger it inherited from its parent.
        OR NOT EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgrelid = m.relation AND t.tgname = 'leasehold_guard_row'));
    IF added <> '{}' THEN
      -- This check rejects DDL on listed tables, so the list is emptied while the new tables get their triggers.
      listed := ARRAY(SELECT k FROM leasehold.protected AS k);
      DELETE FROM leasehold.protected;
      FOR p IN SELECT * FROM unnest(added) LOOP
        PERFORM leasehold.guard_relation(p.relation::regclass, p.name, p.slot);
      END LOOP;
      INSERT INTO leasehold.protected SELECT * FROM unnest(listed || added) ON CONFLICT DO NOTHING;
    END IF;
  END IF;
  FOR p IN SELECT o.relation::regclass AS relation FROM leasehold.protected AS o WHERE 2 <> (SELECT count(*) FROM pg_trigger AS t
      WHERE t.tgrelid = o.relation
        AND (t.tgname, t.tgenabled, t.tgfoid) IN (('leasehold_guard', 'A',
            to_regproc('leasehold.guard_' || to_hex(leasehold.lock_key(o.name, o.slot)))),
          ('leasehold_guard_row', 'R', 'leasehold.guard_row'::regproc))) LOOP
    RAISE EXCEPTION USING ERRCODE = 'LH009', MESSAGE = 'CONFLICT: ' || p.relation || ' is protected and its triggers cannot be changed',
      HINT = 'Call leasehold.unprotect to remove the protection.';
  END LOOP;
END $$;

-- Only a superuser can create event triggers. Without them, the owner of a protected table can drop its triggers.
DO $$
BEGIN
  IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
    DROP EVENT TRIGGER IF EXISTS leasehold_check_ddl;
    DROP EVENT TRIGGER IF EXISTS leasehold_check_drop;
    CREATE EVENT TRIGGER leasehold_check_ddl ON ddl_command_end EXECUTE FUNCTION leasehold.check_ddl();
    CREATE EVENT TRIGGER leasehold_check_drop ON sql_drop EXECUTE FUNCTION leasehold.check_ddl();
    ALTER EVENT TRIGGER leasehold_check_ddl ENABLE ALWAYS;
    ALTER EVENT TRIGGER leasehold_check_drop ENABLE ALWAYS;
  ELSE
    RAISE NOTICE 'installed without DDL checks on protected tables; install as a superuser to enable them';
  END IF;
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

-- Acquires the fence's exclusive lock and returns the id of its row; fails if there is none.
CREATE OR REPLACE FUNCTION leasehold.lock_exclusive(resource text, slot bigint) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE row_id integer;
BEGIN
  PERFORM pg_advisory_xact_lock(leasehold.lock_key(resource, slot));
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

-- Sets a lost mark to `floor` on this server. No earlier holder may have a higher number.
CREATE OR REPLACE FUNCTION leasehold.rearm(resource text, floor bigint, slot bigint DEFAULT 0) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  UPDATE leasehold.fence AS f SET state = 'armed', mark = rearm.floor, sequence = NULL, server_id = leasehold.server_id(),
      token_digest = NULL
    WHERE f.id = (SELECT leasehold.lock_exclusive(rearm.resource, rearm.slot))
$$;

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

-- Application roles may check and claim. They may not arm, and they have no access to the tables.
REVOKE ALL ON ALL TABLES IN SCHEMA leasehold FROM PUBLIC;
REVOKE ALL ON FUNCTION leasehold.arm, leasehold.rearm, leasehold.declare_lost, leasehold.set_strict, leasehold.adopt,
  leasehold.list_marks, leasehold.lock_exclusive, leasehold.protect, leasehold.unprotect, leasehold.guard_relation,
  leasehold.create_guard FROM PUBLIC;
COMMIT;
