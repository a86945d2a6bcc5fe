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
