-- The fence in PostgreSQL, version 1: marks beside the data, checked in the writer's own transaction.
--
--   psql -v ON_ERROR_STOP=1 -f install.sql      as the owner of the database or a superuser; again: changes nothing
--   SELECT leasehold.arm('jobs/settle', '<cluster>');                              once for the resource
--   GRANT USAGE ON SCHEMA leasehold TO app;                                        whoever writes
--   CALL leasehold.claim('lh1-…', 'jobs/settle');                                  a new holder's first act
--   BEGIN; SELECT leasehold.admit('lh1-…', 'jobs/settle'); …; COMMIT;              every write
--
-- SQLSTATE: LH001 stale, LH002 invalid, LH003 implausible, LH004 wrong cluster, LH005 mark lost, LH006 blocked,
-- LH007 not durable, LH008 version, LH009 conflict. The detail carries words like `presented=33 mark=34`.
BEGIN;
DO $$ BEGIN PERFORM pg_advisory_xact_lock(1818780003, 0); END $$; -- two who install at once

CREATE SCHEMA IF NOT EXISTS leasehold;
CREATE TABLE IF NOT EXISTS leasehold.version (one boolean PRIMARY KEY DEFAULT true CHECK (one), version integer NOT NULL);
INSERT INTO leasehold.version (version) VALUES (1) ON CONFLICT DO NOTHING;
DO $$
DECLARE have integer := (SELECT version FROM leasehold.version);
BEGIN
  IF have <> 1 THEN
    RAISE EXCEPTION USING ERRCODE = 'LH008', MESSAGE = 'UNSUPPORTED_VERSION: version ' || have || ' is installed, this is 1',
      DETAIL = 'have=' || have || ' want=1', HINT = 'Update the older side.';
  END IF;
END $$;

CREATE TABLE IF NOT EXISTS leasehold.fence (
  id          integer GENERATED ALWAYS AS IDENTITY UNIQUE,        -- names the fence in locks
  resource    text NOT NULL CHECK (resource ~ '^[0-9a-f]{16}$'),  -- hash of the name, as in a token's text
  slot        bigint NOT NULL CHECK (slot BETWEEN 0 AND 4294967295),
  name        text NOT NULL,                                      -- for people
  cluster     text NOT NULL CHECK (cluster ~ '^[0-9a-f]{16}$'),   -- whose tokens
  state       text NOT NULL CHECK (state IN ('fresh', 'armed', 'lost')),
  mark        bigint CHECK (mark > 0),                            -- the highest number seen
  incarnation text CHECK (incarnation ~ '^[0-9a-f]{8}$'),         -- of the token that set the mark
  sequence    bigint CHECK (sequence >= 0),                       -- last write under the mark, where writes are numbered
  home        text NOT NULL,                                      -- which server kept it: system and timeline
  PRIMARY KEY (resource, slot),
  CHECK (CASE state WHEN 'fresh' THEN mark IS NULL WHEN 'armed' THEN mark IS NOT NULL ELSE true END)
);

-- Who is about to raise a mark. Every check reads it, so that a claim which waits is not overtaken for ever.
CREATE TABLE IF NOT EXISTS leasehold.claiming (
  fence  integer NOT NULL, -- no foreign key: its lock on the fence's row would wait for who is inside
  pid    integer NOT NULL,
  number bigint NOT NULL,
  PRIMARY KEY (fence, pid)
);

CREATE OR REPLACE FUNCTION leasehold.mark_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' OR TG_OP = 'TRUNCATE' THEN
    RAISE EXCEPTION USING ERRCODE = 'LH009', MESSAGE = 'CONFLICT: a mark outlives its leases and is never deleted';
  ELSIF coalesce(NEW.mark, 0) < coalesce(OLD.mark, 0)
      OR (NEW.id, NEW.resource, NEW.slot, NEW.cluster) IS DISTINCT FROM (OLD.id, OLD.resource, OLD.slot, OLD.cluster) THEN
    RAISE EXCEPTION USING ERRCODE = 'LH009',
      MESSAGE = 'CONFLICT: a mark never falls, and stays with its resource, slot and cluster';
  END IF;
  RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER mark_never_falls BEFORE UPDATE OR DELETE ON leasehold.fence
  FOR EACH ROW EXECUTE FUNCTION leasehold.mark_stays();
CREATE OR REPLACE TRIGGER mark_stays BEFORE TRUNCATE ON leasehold.fence
  FOR EACH STATEMENT EXECUTE FUNCTION leasehold.mark_stays();

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

-- The parts of a token's text. Strict: what was not printed by the grantor is refused, never mended.
CREATE OR REPLACE FUNCTION leasehold.token(shown text, OUT cluster text, OUT incarnation text, OUT resource text,
  OUT slot bigint, OUT number bigint) LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  why text;
  digits text;
BEGIN
  digits := substr(shown, 58, 19);
  why := CASE
    WHEN coalesce(shown, '') = '' THEN 'absent'
    WHEN shown ~ '^lh(0|[1-9][0-9]{0,8})-' AND shown !~ '^lh1-' THEN 'version'
    WHEN length(shown) <> 85 OR shown !~ ('^lh1-[0-9a-f]{16}-[0-9a-f]{8}-[0-9a-f]{16}-(w[0-9a-f]{8}|[ru]0{8})-[0-9]{19}-'
      || '[0-9a-f]{8}$') THEN 'shape'
    WHEN lpad(to_hex(leasehold.crc32(convert_to(substr(shown, 1, 76), 'UTF8'))), 8, '0') <> substr(shown, 78) THEN 'checksum'
    WHEN digits = '0000000000000000000' THEN 'zero'
    WHEN digits COLLATE "C" > '9223372036854775807' THEN 'too_large'
  END;
  IF why = 'version' THEN
    RAISE EXCEPTION USING ERRCODE = 'LH008', MESSAGE = 'UNSUPPORTED_VERSION: a token version that is not read here',
      DETAIL = 'why=version have=' || substring(shown FROM '^lh([0-9]+)-') || ' want=1', HINT = 'Update the older side.';
  ELSIF why IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'LH002', MESSAGE = 'TOKEN_INVALID: ' || why, DETAIL = 'why=' || why,
      HINT = 'Pass the text of the grant on, unchanged and whole.';
  END IF;
  cluster := substr(shown, 5, 16);
  incarnation := substr(shown, 22, 8);
  resource := substr(shown, 31, 16);
  -- A reader's or a reservation's token has no slot.
  slot := CASE substr(shown, 48, 1) WHEN 'w' THEN ('x' || substr(shown, 49, 8))::bit(32)::bigint END;
  number := digits::bigint;
END $$;

-- Which server this is. After a failover, a recovery to a point in time or a dump into another server it is another one,
-- and its marks may be older than what holders were told.
CREATE OR REPLACE FUNCTION leasehold.home() RETURNS text LANGUAGE sql STABLE AS $$
  SELECT (SELECT system_identifier FROM pg_catalog.pg_control_system()) || '/'
    || pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8)
$$;

-- The fence that a token must pass, and all that can be checked without a lock.
CREATE OR REPLACE FUNCTION leasehold.place(shown text, of_resource text, of_slot bigint, OUT number bigint,
  OUT incarnation text, OUT fence leasehold.fence) LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t record := leasehold.token(shown);
  guarded text := coalesce(encode(substr(sha256(convert_to(of_resource, 'UTF8')), 1, 8), 'hex'), t.resource);
  why text;
BEGIN
  number := t.number;
  incarnation := t.incarnation;
  SELECT f.* INTO fence FROM leasehold.fence AS f WHERE f.resource = guarded AND f.slot = coalesce(of_slot, t.slot, 0);
  IF fence.id IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'LH005', MESSAGE = 'STORAGE_FAILED: no mark is kept for this resource and slot',
      DETAIL = 'why=missing', HINT = 'Arm the fence, if nothing was written yet.';
  ELSIF fence.cluster <> t.cluster THEN
    RAISE EXCEPTION USING ERRCODE = 'LH004', MESSAGE = 'WRONG_CLUSTER: token of another cluster', DETAIL = 'why=cluster',
      HINT = 'Acquire from the cluster this target names.';
  END IF;
  why := CASE WHEN t.resource <> guarded THEN 'resource' WHEN t.slot IS NULL THEN 'shared'
    WHEN t.slot <> fence.slot THEN 'slot' END;
  IF why IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'LH002', MESSAGE = 'TOKEN_INVALID: ' || why, DETAIL = 'why=' || why,
      HINT = 'Show the token of the resource and slot that guard this.';
  ELSIF number > (extract(epoch FROM clock_timestamp()) * 1000 - 1735689600000 + 86400000)::bigint << 22 THEN
    RAISE EXCEPTION USING ERRCODE = 'LH003', MESSAGE = 'TOKEN_IMPLAUSIBLE: over a day ahead of this server''s clock',
      DETAIL = 'why=implausible presented=' || number, HINT = 'Compare the clocks, and find where the token comes from.';
  ELSIF current_setting('fsync') = 'off' THEN
    RAISE EXCEPTION USING ERRCODE = 'LH007', MESSAGE = 'CONFIG: a power cut could forget the mark',
      DETAIL = 'setting=fsync have=off want=on', HINT = 'Set fsync to on.';
  END IF;
END $$;

-- Refuses what the mark refuses. The row was read under a lock.
CREATE OR REPLACE FUNCTION leasehold.pass(fence leasehold.fence, presented bigint, barred bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  why text := CASE WHEN fence.state = 'lost' THEN 'lost' WHEN fence.home <> leasehold.home() THEN 'moved' END;
  stands bigint := greatest(fence.mark, barred);
BEGIN
  IF why IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'LH005', MESSAGE = 'STORAGE_FAILED: the mark is lost', DETAIL = 'why=' || why,
      HINT = 'Re-arm the fence with a number no holder was given yet.';
  ELSIF presented < stands THEN
    RAISE EXCEPTION USING ERRCODE = 'LH001', MESSAGE = 'STALE_TOKEN: token ' || presented || ' is below the mark ' || stands,
      DETAIL = 'why=stale presented=' || presented || ' mark=' || stands, HINT = 'Stop. This authority is over.';
  END IF;
  -- A commit that is told before it is on disk could be forgotten.
  IF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
END $$;

-- Ends a transaction that stands still, when the lease it was admitted under is over.
CREATE OR REPLACE FUNCTION leasehold.bounded(setting text, ms bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE own numeric := extract(epoch FROM pg_catalog.current_setting(setting)::interval) * 1000;
BEGIN
  IF own = 0 OR own > ms THEN
    PERFORM pg_catalog.set_config(setting, ms::text, true);
  END IF;
END $$;

-- Admits the rest of this transaction. What it writes lands under the mark it was checked against, or not at all: the
-- fence's row stays locked until it ends. `remaining` is what is left of the lease.
CREATE OR REPLACE FUNCTION leasehold.admit(token text, resource text DEFAULT NULL, slot bigint DEFAULT NULL,
  remaining interval DEFAULT '10 s') RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  p record := leasehold.place(token, resource, slot);
  f leasehold.fence := p.fence;
  barred bigint;
  ms bigint := greatest(1, least(2147483647, ceil(extract(epoch FROM coalesce(remaining, '10 s')) * 1000)::bigint));
BEGIN
  -- Says who is inside, for a claim that waits. Nobody takes it alone, so it holds nobody up.
  PERFORM pg_advisory_xact_lock_shared(1818780001, f.id);
  SELECT max(c.number) INTO barred FROM leasehold.claiming AS c
    WHERE c.fence = f.id AND c.number > p.number AND leasehold.claims(c.pid, f.id);
  -- Writers share the row, a claim has it alone. A snapshot of before a claim fails here (40001) and must begin anew.
  IF p.number > coalesce(f.mark, 0) THEN
    SELECT g.* INTO f FROM leasehold.fence AS g WHERE g.id = f.id FOR UPDATE;
  ELSE
    SELECT g.* INTO f FROM leasehold.fence AS g WHERE g.id = f.id FOR SHARE;
  END IF;
  PERFORM leasehold.pass(f, p.number, barred);
  IF f.mark IS DISTINCT FROM p.number THEN
    UPDATE leasehold.fence AS g SET state = 'armed', mark = p.number, incarnation = p.incarnation, sequence = NULL
      WHERE g.id = f.id;
  END IF;
  PERFORM leasehold.bounded('idle_in_transaction_session_timeout', ms), leasehold.bounded('statement_timeout', ms);
  RETURN p.number;
END $$;

-- Whether that backend is still in its claim: its bar ends with the claim or with its caller.
CREATE OR REPLACE FUNCTION leasehold.claims(backend integer, fence integer) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT EXISTS (SELECT FROM pg_catalog.pg_locks AS l WHERE l.locktype = 'advisory' AND l.classid = 1818780002
    AND l.objid = fence AND l.objsubid = 2 AND l.pid = backend AND l.granted
    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database()))
$$;

-- Who was admitted and has not ended.
CREATE OR REPLACE FUNCTION leasehold.inside(fence integer) RETURNS integer[] LANGUAGE sql STABLE AS $$
  SELECT coalesce(array_agg(DISTINCT l.pid), '{}') FROM pg_catalog.pg_locks AS l WHERE l.locktype = 'advisory'
    AND l.classid = 1818780001 AND l.objid = fence AND l.objsubid = 2 AND l.granted AND l.pid <> pg_catalog.pg_backend_pid()
    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
$$;

-- The first half of a claim: bars lower tokens from beginning anything new.
CREATE OR REPLACE FUNCTION leasehold.intend(token text, resource text, slot bigint) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  p record := leasehold.place(token, resource, slot);
  f leasehold.fence := p.fence;
BEGIN
  PERFORM leasehold.pass(f, p.number, NULL);
  DELETE FROM leasehold.claiming AS c WHERE c.fence = f.id AND NOT leasehold.claims(c.pid, f.id);
  PERFORM pg_advisory_lock_shared(1818780002, f.id);
  INSERT INTO leasehold.claiming AS c (fence, pid, number) VALUES (f.id, pg_backend_pid(), p.number)
    ON CONFLICT (fence, pid) DO UPDATE SET number = EXCLUDED.number;
  RETURN f.id;
END $$;

-- The second half: raises the mark if nobody is inside, and says whether it did.
CREATE OR REPLACE FUNCTION leasehold.raised(token text, resource text, slot bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  p record := leasehold.place(token, resource, slot);
  f leasehold.fence;
BEGIN
  PERFORM set_config('lock_timeout', '100ms', true);
  BEGIN
    SELECT g.* INTO f FROM leasehold.fence AS g WHERE g.id = (p.fence).id FOR UPDATE;
  EXCEPTION WHEN lock_not_available THEN
    RETURN false;
  END;
  PERFORM leasehold.pass(f, p.number, NULL);
  UPDATE leasehold.fence AS g SET state = 'armed', mark = p.number, incarnation = p.incarnation,
      sequence = CASE g.mark WHEN p.number THEN g.sequence END WHERE g.id = f.id;
  RETURN true;
END $$;

-- Takes the bar away.
CREATE OR REPLACE FUNCTION leasehold.withdraw(of_fence integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  DELETE FROM leasehold.claiming AS c WHERE c.fence = of_fence AND c.pid = pg_backend_pid();
  PERFORM pg_advisory_unlock_shared(1818780002, of_fence);
END $$;

-- Ends who is inside. It needs an owner that may: a superuser, or a member of pg_signal_backend.
CREATE OR REPLACE FUNCTION leasehold.evict(of_fence integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  -- Only for one who is in a claim.
  PERFORM pg_terminate_backend(pid) FROM unnest(leasehold.inside(of_fence)) AS pid
    WHERE EXISTS (SELECT FROM leasehold.claiming AS c WHERE c.fence = of_fence AND c.pid = pg_backend_pid());
END $$;

-- A new holder's first act, before it reads: raises the mark, in transactions of its own, durable when it returns. It
-- waits for who is inside up to the bound; then it ends them if it may (`terminate`), or fails and names them.
CREATE OR REPLACE PROCEDURE leasehold.claim(token text, resource text DEFAULT NULL, slot bigint DEFAULT NULL,
  bound interval DEFAULT '5 s', terminate boolean DEFAULT false) LANGUAGE plpgsql AS $$
DECLARE
  fence integer;
  until timestamptz := clock_timestamp() + bound;
  done boolean := false;
  evicted boolean := false;
  code text;
  told text;
  detail text;
  hint text;
BEGIN
  COMMIT; -- inside of somebody's transaction it fails here: a claim that can be taken back is none
  fence := leasehold.intend(token, resource, slot);
  COMMIT;
  LOOP
    BEGIN
      done := leasehold.raised(token, resource, slot);
      IF NOT done AND clock_timestamp() >= until THEN
        IF terminate AND NOT evicted THEN
          PERFORM leasehold.evict(fence);
          evicted := true;
          until := clock_timestamp() + bound;
        ELSE
          RAISE EXCEPTION USING ERRCODE = 'LH006', MESSAGE = 'UNAVAILABLE: somebody was inside for all of ' || bound,
            DETAIL = 'by=' || array_to_string(leasehold.inside(fence), ','),
            HINT = 'End the backend if it is a paused holder''s, then try again.';
        END IF;
      END IF;
    EXCEPTION WHEN query_canceled OR OTHERS THEN
      GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, told = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
        hint = PG_EXCEPTION_HINT;
    END;
    EXIT WHEN done OR code IS NOT NULL;
    COMMIT; -- lets go of everything between two tries
  END LOOP;
  PERFORM leasehold.withdraw(fence);
  COMMIT;
  IF code IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = code, MESSAGE = told, DETAIL = detail, HINT = hint;
  END IF;
END $$;

-- Says that nothing was written under this resource's slot yet. Where a mark is kept already, it stays.
CREATE OR REPLACE FUNCTION leasehold.arm(resource text, cluster text, slot bigint DEFAULT 0) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE kept text;
BEGIN
  INSERT INTO leasehold.fence AS f (resource, slot, name, cluster, state, home)
    VALUES (encode(substr(sha256(convert_to(arm.resource, 'UTF8')), 1, 8), 'hex'), arm.slot, arm.resource, arm.cluster,
      'fresh', leasehold.home())
    ON CONFLICT ON CONSTRAINT fence_pkey DO NOTHING;
  SELECT f.cluster INTO kept FROM leasehold.fence AS f WHERE f.name = arm.resource AND f.slot = arm.slot;
  IF kept <> arm.cluster THEN
    RAISE EXCEPTION USING ERRCODE = 'LH004', MESSAGE = 'WRONG_CLUSTER: the mark kept here belongs to another cluster',
      DETAIL = 'why=foreign', HINT = 'Use the target of this cluster.';
  END IF;
END $$;

-- Refuses everything until it is armed again.
CREATE OR REPLACE FUNCTION leasehold.declare_lost(resource text, slot bigint DEFAULT 0) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  UPDATE leasehold.fence AS f SET state = 'lost' WHERE f.name = declare_lost.resource AND f.slot = declare_lost.slot;
  IF NOT FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'LH005', MESSAGE = 'STORAGE_FAILED: no mark is kept', DETAIL = 'why=missing';
  END IF;
END $$;

-- Sets a lost mark to a floor that no holder of before lies above, on this server.
CREATE OR REPLACE FUNCTION leasehold.rearm(resource text, floor bigint, slot bigint DEFAULT 0) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  UPDATE leasehold.fence AS f SET state = 'armed', mark = rearm.floor, sequence = NULL, home = leasehold.home()
    WHERE f.name = rearm.resource AND f.slot = rearm.slot;
  IF NOT FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'LH005', MESSAGE = 'STORAGE_FAILED: no mark is kept', DETAIL = 'why=missing';
  END IF;
END $$;

-- The app role may check and claim; it may not arm, and it cannot touch the tables.
REVOKE ALL ON ALL TABLES IN SCHEMA leasehold FROM PUBLIC;
REVOKE ALL ON FUNCTION leasehold.arm, leasehold.rearm, leasehold.declare_lost FROM PUBLIC;
COMMIT;
