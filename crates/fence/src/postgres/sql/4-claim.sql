-- A claim: alone, durable, and within a bound.

-- Who was admitted and has not ended.
CREATE OR REPLACE FUNCTION leasehold.inside(key bigint) RETURNS integer[] LANGUAGE sql STABLE AS $$
  SELECT coalesce(array_agg(DISTINCT l.pid), '{}') FROM pg_catalog.pg_locks AS l WHERE l.locktype = 'advisory'
    AND l.classid = ((key >> 32) & 4294967295)::oid AND l.objid = (key & 4294967295)::oid AND l.objsubid = 1 AND l.granted
    AND l.pid <> pg_catalog.pg_backend_pid()
    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
$$;

-- Raises the mark if the place can be had alone within this time, and says what was left behind; not had, it says nothing.
CREATE OR REPLACE FUNCTION leasehold.raised(token text, resource text, slot bigint, ms bigint, OUT done boolean,
  OUT left_behind text) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  p record := leasehold.place(token, resource, slot);
  f leasehold.fence;
BEGIN
  done := false;
  PERFORM leasehold.durable();
  PERFORM set_config('lock_timeout', greatest(ms, 1)::text, true);
  BEGIN
    PERFORM pg_advisory_xact_lock(leasehold.lock_of(p.name, p.slot));
  EXCEPTION WHEN lock_not_available THEN
    RETURN;
  END;
  SELECT g.* INTO f FROM leasehold.fence AS g WHERE g.name = p.name AND g.slot = p.slot FOR UPDATE;
  left_behind := leasehold.pass(f, p.number, p.incarnation);
  UPDATE leasehold.fence AS g SET state = 'armed', mark = p.number, incarnation = p.incarnation,
      sequence = CASE g.mark WHEN p.number THEN g.sequence END, shown = hashtextextended(token, 1),
      started = pg_postmaster_start_time() WHERE g.id = f.id;
  done := true;
END $$;

-- Who is inside the place of a token, and ended if asked. That needs an owner that may: a superuser, or a member of
-- pg_signal_backend. Only a token that is current or newer ends anybody.
CREATE OR REPLACE FUNCTION leasehold.who(token text, resource text, slot bigint, ended boolean) RETURNS integer[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  p record := leasehold.place(token, resource, slot);
  inside integer[] := leasehold.inside(leasehold.lock_of(p.name, p.slot));
BEGIN
  IF ended THEN
    PERFORM leasehold.pass(f, p.number, p.incarnation) FROM leasehold.fence AS f WHERE f.name = p.name AND f.slot = p.slot;
    PERFORM pg_terminate_backend(pid) FROM unnest(inside) AS pid WHERE pid IS NOT NULL;
  END IF;
  RETURN inside;
END $$;

-- A new holder's first act, before it reads: raises the mark, in transactions of its own, durable when it returns. It
-- waits for who is inside up to the bound; then it ends them if it may (`terminate`), or fails and names them. New writers
-- wait behind it. `restored` tells which incarnation was followed before, if it is another one.
CREATE OR REPLACE PROCEDURE leasehold.claim(token text, resource text DEFAULT NULL, slot bigint DEFAULT NULL,
  bound interval DEFAULT '5 s', terminate boolean DEFAULT false, INOUT restored text DEFAULT NULL) LANGUAGE plpgsql AS $$
DECLARE
  ms bigint := least(2147483647, ceil(extract(epoch FROM bound) * 1000))::bigint;
  r record;
BEGIN
  COMMIT; -- inside of somebody's transaction it fails here: a claim that can be taken back is none
  r := leasehold.raised(token, resource, slot, ms);
  IF NOT r.done AND terminate THEN
    PERFORM leasehold.who(token, resource, slot, true);
    r := leasehold.raised(token, resource, slot, ms);
  END IF;
  IF NOT r.done THEN
    RAISE EXCEPTION USING ERRCODE = 'LH006', MESSAGE = 'UNAVAILABLE: somebody was inside for all of ' || bound,
      DETAIL = 'by=' || array_to_string(leasehold.who(token, resource, slot, false), ','),
      HINT = 'End the backend if it is a paused holder''s, then try again.';
  END IF;
  restored := r.left_behind;
  COMMIT;
END $$;
