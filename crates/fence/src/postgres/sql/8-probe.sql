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
      -- A token of this connection, session or transaction does not count.
      PERFORM set_config('leasehold.token', '', true);
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
