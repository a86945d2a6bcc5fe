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
