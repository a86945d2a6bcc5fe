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
