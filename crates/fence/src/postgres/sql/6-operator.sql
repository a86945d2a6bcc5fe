-- What an operator does: arm, survey, and say what only people know. The app role may do none of it.

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

-- Every mark that is kept here; `lost` says how, if it is.
CREATE OR REPLACE FUNCTION leasehold.survey() RETURNS TABLE (cluster text, resource text, name text, slot bigint,
  mark bigint, lost text, incarnation text, is_strict boolean) LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT f.cluster, f.resource, f.name, f.slot, f.mark,
    CASE WHEN f.state = 'lost' THEN 'lost' WHEN f.home <> leasehold.home() THEN 'moved' END, f.incarnation, f.is_strict
  FROM leasehold.fence AS f ORDER BY f.name, f.slot
$$;

-- Finds the place and has it alone, or says that there is none.
CREATE OR REPLACE FUNCTION leasehold.alone(resource text, slot bigint) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE found integer;
BEGIN
  PERFORM pg_advisory_xact_lock(leasehold.lock_of(resource, slot));
  SELECT f.id INTO found FROM leasehold.fence AS f WHERE f.name = alone.resource AND f.slot = alone.slot;
  IF found IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'LH005', MESSAGE = 'STORAGE_FAILED: no mark is kept', DETAIL = 'why=missing',
      HINT = 'Arm the fence, if nothing was written yet.';
  END IF;
  RETURN found;
END $$;

-- Refuses everything until it is armed again.
CREATE OR REPLACE FUNCTION leasehold.declare_lost(resource text, slot bigint DEFAULT 0) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  UPDATE leasehold.fence AS f SET state = 'lost', shown = NULL WHERE f.id = (SELECT leasehold.alone(declare_lost.resource, declare_lost.slot))
$$;

-- Sets a lost mark to a floor that no holder of before lies above, on this server.
CREATE OR REPLACE FUNCTION leasehold.rearm(resource text, floor bigint, slot bigint DEFAULT 0) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  UPDATE leasehold.fence AS f SET state = 'armed', mark = rearm.floor, sequence = NULL, home = leasehold.home(), shown = NULL
    WHERE f.id = (SELECT leasehold.alone(rearm.resource, rearm.slot))
$$;

-- Whether a token of another incarnation is refused until that is adopted.
CREATE OR REPLACE FUNCTION leasehold.strict(resource text, strictly boolean DEFAULT true, slot bigint DEFAULT 0) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  UPDATE leasehold.fence AS f SET is_strict = strict.strictly WHERE f.id = (SELECT leasehold.alone(strict.resource, strict.slot))
$$;

-- Follows this incarnation from now on. The mark stays.
CREATE OR REPLACE FUNCTION leasehold.adopt(resource text, incarnation text, slot bigint DEFAULT 0) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  UPDATE leasehold.fence AS f SET incarnation = adopt.incarnation, sequence = NULL, shown = NULL
    WHERE f.id = (SELECT leasehold.alone(adopt.resource, adopt.slot))
$$;

-- The app role may check and claim; it may not arm, and it cannot touch the tables.
REVOKE ALL ON ALL TABLES IN SCHEMA leasehold FROM PUBLIC;
REVOKE ALL ON FUNCTION leasehold.arm, leasehold.rearm, leasehold.declare_lost, leasehold.strict, leasehold.adopt,
  leasehold.survey, leasehold.alone, leasehold.protect, leasehold.unprotect, leasehold.guard_relation, leasehold.make_guard FROM PUBLIC;
COMMIT;
