-- The check: one lock, one look at the mark, and the rest of the transaction is admitted.

-- Which server this is. After a failover, a recovery to a point in time or a dump into another server it is another one,
-- and its marks may be older than what holders were told.
CREATE OR REPLACE FUNCTION leasehold.home() RETURNS text LANGUAGE sql STABLE AS $$
  SELECT (SELECT system_identifier FROM pg_catalog.pg_control_system()) || '/'
    || pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8)
$$;

-- The lock of a place: writers share it until they commit, a claim has it alone. The server's queue is fair, so a claim
-- that waits is not overtaken, and it knows who is inside.
CREATE OR REPLACE FUNCTION leasehold.lock_of(name text, slot bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT pg_catalog.hashtextextended(name, 1818780001::bigint + slot)
$$;

-- Takes it until the transaction ends, whatever took it: a lock that is taken while a cursor runs goes with it when it fails in
-- a savepoint, though what it wrote before stays; what a block with a handler took belongs to the transaction.
CREATE OR REPLACE FUNCTION leasehold.lock(key bigint, alone boolean) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  BEGIN
    IF alone THEN
      PERFORM pg_advisory_xact_lock(key);
    ELSE
      PERFORM pg_advisory_xact_lock_shared(key);
    END IF;
  EXCEPTION WHEN query_canceled THEN
    RAISE;
  END;
END $$;

-- The fence that a token must pass, and all that can be checked without a lock.
CREATE OR REPLACE FUNCTION leasehold.place(shown text, of_resource text, of_slot bigint, OUT number bigint,
  OUT incarnation text, OUT name text, OUT slot bigint) LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t record := leasehold.token(shown);
  guarded text := coalesce(encode(substr(sha256(convert_to(of_resource, 'UTF8')), 1, 8), 'hex'), t.resource);
  fence leasehold.fence;
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
  name := fence.name;
  slot := fence.slot;
  why := CASE WHEN t.resource <> guarded THEN 'resource' WHEN t.slot IS NULL THEN 'shared'
    WHEN t.slot <> fence.slot THEN 'slot' END;
  IF why IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'LH002', MESSAGE = 'TOKEN_INVALID: ' || why, DETAIL = 'why=' || why,
      HINT = 'Show the token of the resource and slot that guard this.';
  ELSIF number > (extract(epoch FROM clock_timestamp()) * 1000 - 1735689600000 + 86400000)::bigint << 22 THEN
    RAISE EXCEPTION USING ERRCODE = 'LH003', MESSAGE = 'TOKEN_IMPLAUSIBLE: over a day ahead of this server''s clock',
      DETAIL = 'why=implausible presented=' || number, HINT = 'Compare the clocks, and find where the token comes from.';
  END IF;
END $$;

-- A commit that is told before it is on disk, or never is, could be forgotten.
CREATE OR REPLACE FUNCTION leasehold.durable() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF current_setting('fsync') = 'off' THEN
    RAISE EXCEPTION USING ERRCODE = 'LH007', MESSAGE = 'CONFIG: a power cut could forget the mark',
      DETAIL = 'setting=fsync have=off want=on', HINT = 'Set fsync to on.';
  END IF;
  IF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
END $$;

-- Refuses what the mark refuses, and says which incarnation it leaves. The row was read under the place's lock.
CREATE OR REPLACE FUNCTION leasehold.pass(fence leasehold.fence, presented bigint, incarnation text) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE why text := CASE WHEN fence.state = 'lost' THEN 'lost' WHEN fence.home <> leasehold.home() THEN 'moved' END;
BEGIN
  IF why IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'LH005', MESSAGE = 'STORAGE_FAILED: the mark is lost', DETAIL = 'why=' || why,
      HINT = 'Re-arm the fence with a number no holder was given yet.';
  ELSIF presented < fence.mark THEN
    RAISE EXCEPTION USING ERRCODE = 'LH001',
      MESSAGE = 'STALE_TOKEN: token ' || presented || ' is below the mark ' || fence.mark,
      DETAIL = 'why=stale presented=' || presented || ' mark=' || fence.mark, HINT = 'Stop. This authority is over.';
  ELSIF fence.incarnation <> incarnation AND fence.is_strict THEN
    RAISE EXCEPTION USING ERRCODE = 'LH010', MESSAGE = 'NOT_ADOPTED: this strict fence follows another incarnation',
      DETAIL = 'why=incarnation presented=' || presented || ' incarnation=' || incarnation,
      HINT = 'Adopt the incarnation, if the restore was meant.';
  END IF;
  RETURN CASE WHEN fence.incarnation <> incarnation THEN fence.incarnation END;
END $$;

-- The long way of a check, for a token that is not the one that set the mark: everything is read and compared. A higher
-- number raises the mark, alone; which it is, is looked up before the lock is asked for, because nobody can trade a shared
-- one for a whole one without waiting for another who does the same.
CREATE OR REPLACE FUNCTION leasehold.admit_unknown(token text, resource text, slot bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  p record := leasehold.place(token, resource, slot);
  key bigint := leasehold.lock_of(p.name, p.slot);
  latest boolean := current_setting('transaction_isolation') = 'read committed';
  f leasehold.fence;
BEGIN
  PERFORM leasehold.durable();
  SELECT g.* INTO f FROM leasehold.fence AS g WHERE g.name = p.name AND g.slot = p.slot;
  IF p.number > coalesce(f.mark, 0) OR (p.number = f.mark AND p.incarnation IS DISTINCT FROM f.incarnation) THEN
    PERFORM leasehold.lock(key, true);
    SELECT g.* INTO f FROM leasehold.fence AS g WHERE g.name = p.name AND g.slot = p.slot FOR UPDATE;
  ELSE
    PERFORM leasehold.lock(key, false);
    IF latest THEN
      SELECT g.* INTO f FROM leasehold.fence AS g WHERE g.name = p.name AND g.slot = p.slot;
    ELSE
      -- A snapshot of before a claim fails here (40001) and must begin anew.
      SELECT g.* INTO f FROM leasehold.fence AS g WHERE g.name = p.name AND g.slot = p.slot FOR SHARE;
    END IF;
  END IF;
  PERFORM leasehold.pass(f, p.number, p.incarnation);
  IF f.mark IS DISTINCT FROM p.number OR f.incarnation IS DISTINCT FROM p.incarnation THEN
    UPDATE leasehold.fence AS g SET state = 'armed', mark = p.number, incarnation = p.incarnation,
        sequence = CASE g.mark WHEN p.number THEN g.sequence END, shown = hashtextextended(token, 1),
        started = pg_postmaster_start_time() WHERE g.id = f.id;
  ELSIF latest THEN
    -- The same token after a restart of the server: one of those who show it notes so, the others need not wait for it.
    UPDATE leasehold.fence AS g SET shown = hashtextextended(token, 1), started = pg_postmaster_start_time()
      WHERE g.id = (SELECT h.id FROM leasehold.fence AS h WHERE h.id = f.id AND (h.shown, h.started) IS DISTINCT FROM
        (hashtextextended(token, 1), pg_postmaster_start_time()) FOR UPDATE SKIP LOCKED);
  END IF;
  IF f.forced THEN
    PERFORM set_config('leasehold.p' || to_hex(key), pg_current_xact_id()::text || ':' || token, true);
  END IF;
  -- From now on this session need not read this text again. A digest, because a pool's next client can see it.
  PERFORM set_config('leasehold.checked', hashtextextended(token, 0)::text, false);
  RETURN p.number;
END $$;

-- Ends a transaction that stands still, when the lease it was admitted under is over. Never later than the caller's own.
CREATE OR REPLACE FUNCTION leasehold.bounded(setting text, ms bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE own numeric := extract(epoch FROM current_setting(setting)::interval) * 1000;
BEGIN
  IF own = 0 OR own > ms THEN
    PERFORM set_config(setting, ms::text, true);
  END IF;
END $$;

-- The look at the mark, where no badge is worn.
CREATE OR REPLACE FUNCTION leasehold.admit_unworn(token text, resource text, slot bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  key bigint := leasehold.lock_of(resource, coalesce(slot, 0));
  digest bigint := hashtextextended(token, key) & -2;
  worn bigint;
  f leasehold.fence;
BEGIN
  IF current_setting('leasehold.checked', true) = hashtextextended(token, 0)::text
    AND current_setting('transaction_isolation') = 'read committed'
  THEN
    PERFORM leasehold.lock(key, false);
    -- After the lock, and with a snapshot of now: every claim that was told is in it.
    SELECT g.* INTO f FROM leasehold.fence AS g WHERE g.name = admit_unworn.resource
      AND g.slot = coalesce(admit_unworn.slot, 0)
      AND g.shown = hashtextextended(token, 1) AND g.started = pg_postmaster_start_time();
  END IF;
  IF f.mark IS NULL THEN
    RETURN leasehold.admit_unknown(token, resource, slot);
  END IF;
  PERFORM leasehold.durable();
  -- A transaction that has written nothing cannot have raised the mark itself, so that row is committed, and its badge may be
  -- put on. Another place's is taken over now and then.
  IF pg_current_xact_id_if_assigned() IS NULL THEN
    worn := coalesce(pg_sequence_last_value(('leasehold.badge_' || (key & 63))::regclass), 0);
    IF worn = 0 OR random() < 0.01 THEN
      PERFORM setval(('leasehold.badge_' || (key & 63))::regclass, digest | f.forced::integer);
    END IF;
  END IF;
  IF f.forced THEN
    PERFORM set_config('leasehold.p' || to_hex(key), pg_current_xact_id()::text || ':' || token, true);
  END IF;
  RETURN f.mark;
END $$;

-- Admits the rest of this transaction. What it writes lands under the mark it was checked against, or not at all: no claim
-- gets in before it ends. `remaining` is what is left of the lease; NULL for a single statement outside of a transaction
-- block, which has nothing to stand still in.
--
-- This is every writer's way, so it is written for speed. A session that has had this text checked asks for the lock and looks
-- at the badge, and no more; without one it looks at the mark. The server prepares each expression anew in every transaction,
-- so there are few, and it sets no search path, which would cost as much as all else, and so spells out operators.
CREATE OR REPLACE FUNCTION leasehold.admit(token text, resource text DEFAULT NULL, slot bigint DEFAULT NULL,
  remaining interval DEFAULT '10 s') RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  worn bigint;
  number bigint;
  ms bigint;
  was pg_catalog.text;
BEGIN
  -- How the badge differs from this token's: 0 not at all, 1 in that tables are protected. The lock comes before the look:
  -- every claim that was told has taken another's badge off. Trying passes nobody who waits.
  -- In a block of its own, because a lock that is taken while a cursor runs goes with it when it fails in a savepoint, though what
  -- it wrote before stays; what a block took belongs to the transaction.
  BEGIN
    worn := CASE WHEN pg_catalog.current_setting('leasehold.checked', true) OPERATOR(pg_catalog.=)
          pg_catalog.hashtextextended(token, 0)::pg_catalog.text
        AND pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) 'read committed'
        AND pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.<>) 'off'
        AND pg_catalog.pg_try_advisory_xact_lock_shared(
          pg_catalog.hashtextextended(resource, 1818780001::pg_catalog.int8 OPERATOR(pg_catalog.+) coalesce(slot, 0)))
      THEN pg_catalog.pg_sequence_last_value(('leasehold.badge_' OPERATOR(pg_catalog.||) (pg_catalog.hashtextextended(resource,
          1818780001::pg_catalog.int8 OPERATOR(pg_catalog.+) coalesce(slot, 0)) OPERATOR(pg_catalog.&) 63)::pg_catalog.text)::pg_catalog.regclass)
        OPERATOR(pg_catalog.#) (pg_catalog.hashtextextended(token,
          pg_catalog.hashtextextended(resource, 1818780001::pg_catalog.int8 OPERATOR(pg_catalog.+) coalesce(slot, 0))) OPERATOR(pg_catalog.&) (-2)) END;
  EXCEPTION WHEN query_canceled THEN
    RAISE;
  END;
  number := CASE WHEN worn OPERATOR(pg_catalog.=) 0 THEN pg_catalog.substr(token, 58, 19)::pg_catalog.int8
    -- To the triggers it is shown bound to this transaction, so that what a pool's next client finds is nothing.
    WHEN worn OPERATOR(pg_catalog.=) 1 THEN pg_catalog.left(pg_catalog.right(pg_catalog.set_config('leasehold.p' OPERATOR(pg_catalog.||) pg_catalog.to_hex(
        pg_catalog.hashtextextended(resource, 1818780001::pg_catalog.int8 OPERATOR(pg_catalog.+) coalesce(slot, 0))),
      pg_catalog.pg_current_xact_id()::pg_catalog.text OPERATOR(pg_catalog.||) ':' OPERATOR(pg_catalog.||) token, true),
      28), 19)::pg_catalog.int8
    ELSE leasehold.admit_unworn(token, resource, slot) END;
  IF remaining IS NOT NULL THEN
    ms := greatest(1, least(2147483647,
      pg_catalog.ceil(pg_catalog.date_part('epoch', remaining) OPERATOR(pg_catalog.*) 1000)))::pg_catalog.int8;
    IF pg_catalog.current_setting('statement_timeout') OPERATOR(pg_catalog.=) '0' THEN
      was := pg_catalog.set_config('statement_timeout', ms::pg_catalog.text, true);
    ELSE
      PERFORM leasehold.bounded('statement_timeout', ms);
    END IF;
    IF pg_catalog.current_setting('idle_in_transaction_session_timeout') OPERATOR(pg_catalog.=) '0' THEN
      was := pg_catalog.set_config('idle_in_transaction_session_timeout', ms::pg_catalog.text, true);
    ELSE
      PERFORM leasehold.bounded('idle_in_transaction_session_timeout', ms);
    END IF;
  END IF;
  RETURN number;
END $$;

-- The same for a single statement outside of a transaction block, folded into its condition: `AND (SELECT leasehold.folded('lh1-…',
-- 'jobs/settle', 0)) > 0`. The planner puts this expression into the statement in place of a call; it runs as the caller, who may
-- read badges.
CREATE OR REPLACE FUNCTION leasehold.folded(token text, resource text, slot bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT CASE CASE WHEN pg_catalog.current_setting('leasehold.checked', true) OPERATOR(pg_catalog.=)
        pg_catalog.hashtextextended(token, 0)::pg_catalog.text
      AND pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) 'read committed'
      AND pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.<>) 'off'
      AND pg_catalog.pg_try_advisory_xact_lock_shared(
        pg_catalog.hashtextextended(resource, 1818780001::pg_catalog.int8 OPERATOR(pg_catalog.+) slot))
    THEN pg_catalog.pg_sequence_last_value(('leasehold.badge_' OPERATOR(pg_catalog.||) (pg_catalog.hashtextextended(resource,
        1818780001::pg_catalog.int8 OPERATOR(pg_catalog.+) slot) OPERATOR(pg_catalog.&) 63)::pg_catalog.text)::pg_catalog.regclass)
      OPERATOR(pg_catalog.#) (pg_catalog.hashtextextended(token,
        pg_catalog.hashtextextended(resource, 1818780001::pg_catalog.int8 OPERATOR(pg_catalog.+) slot)) OPERATOR(pg_catalog.&) (-2)) END
    WHEN 0 THEN 1
    WHEN 1 THEN pg_catalog.length(pg_catalog.set_config('leasehold.p' OPERATOR(pg_catalog.||) pg_catalog.to_hex(
        pg_catalog.hashtextextended(resource, 1818780001::pg_catalog.int8 OPERATOR(pg_catalog.+) slot)),
      pg_catalog.pg_current_xact_id()::pg_catalog.text OPERATOR(pg_catalog.||) ':' OPERATOR(pg_catalog.||) token, true))::pg_catalog.int8
    ELSE leasehold.admit(token, resource, slot, NULL) END
$$;

-- The same for a write that carries its sequence inside the hold, rising from write to write. NULL: apply it. A number: it is
-- a late duplicate, this is the last one applied, and the caller writes nothing.
CREATE OR REPLACE FUNCTION leasehold.admit_once(token text, sequence bigint, resource text DEFAULT NULL,
  slot bigint DEFAULT NULL, remaining interval DEFAULT '10 s') RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  number bigint := leasehold.admit(token, resource, slot, remaining);
  p record := leasehold.place(token, resource, slot);
  f leasehold.fence;
BEGIN
  IF sequence IS NULL OR sequence < 0 THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'INVALID_ARGUMENT: the sequence is a whole number from 0';
  END IF;
  SELECT g.* INTO f FROM leasehold.fence AS g WHERE g.name = p.name AND g.slot = p.slot FOR UPDATE;
  IF f.sequence >= admit_once.sequence THEN
    RETURN f.sequence;
  END IF;
  UPDATE leasehold.fence AS g SET sequence = admit_once.sequence WHERE g.id = f.id;
  RETURN NULL;
END $$;
