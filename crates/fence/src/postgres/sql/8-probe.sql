-- What operators and `leasehold coverage --probe` read of the guards, and the attempt of a write without a token.

-- Guards of the tables that a resource protects (of all resources if it is NULL) and of the database, and what is wrong with each; NULL
-- if it is in order.
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
  SELECT 'leasehold.' || f.guard || b.suffix, 'function', CASE
      WHEN p.oid IS NULL THEN 'missing'
      WHEN p.prosrc <> leasehold.guard_body(f.name, f.slot, b.result) THEN 'replaced; call leasehold.repair_guards'
    END
    FROM fences AS f CROSS JOIN (VALUES ('', 'NULL'), ('_row', 'coalesce(NEW, OLD)')) AS b(suffix, result)
    LEFT JOIN pg_proc AS p ON p.oid = to_regproc('leasehold.' || f.guard || b.suffix)
  UNION ALL
  SELECT e.name, 'event trigger', CASE
      WHEN t.oid IS NULL THEN 'missing; install as a superuser'
      WHEN t.evtfoid IS DISTINCT FROM to_regproc('leasehold.' || e.function) OR t.evtevent <> e.event THEN 'calls another function'
      WHEN t.evtenabled = 'D' THEN 'disabled'
      WHEN t.evtenabled <> 'A' THEN 'enabled for other sessions'
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
