-- The DDL check: a command that changes a protected table needs a token like any write, whichever object it names, and cannot remove a
-- guard. It compares definitions before and after, so it does not depend on a list of commands.

-- DETACH PARTITION CONCURRENTLY commits in the middle, where no token can be required. It is a statement of its own, so its words and
-- the names are in the text of the query; a name in Unicode escapes could be any.
CREATE OR REPLACE FUNCTION leasehold.check_ddl_start() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  query text := lower(current_query());
  named regclass;
BEGIN
  IF query LIKE '%detach%' AND query LIKE '%concurrently%' THEN
    SELECT p.relation INTO named FROM leasehold.protected AS p JOIN pg_class AS c ON c.oid = p.relation
      WHERE c.relispartition AND (query LIKE '%u&"%' OR strpos(query, lower(replace(c.relname, '"', '""'))) > 0) LIMIT 1;
    IF FOUND THEN
      RAISE EXCEPTION USING ERRCODE = 'LH009', MESSAGE = 'CONFLICT: ' || named || ' is protected and cannot be detached concurrently',
        DETAIL = 'reason=concurrently', HINT = 'Use DETACH PARTITION in a transaction that presents a token.';
    END IF;
  END IF;
END $$;

-- Fails unless this transaction was admitted by the fence of a table.
CREATE OR REPLACE FUNCTION leasehold.require_admitted(name text, slot bigint, relation text) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  SELECT leasehold.require_admitted(name, slot, to_hex(leasehold.lock_key(name, slot)), relation)
$$;

-- Stores definitions that changed under a token, lists tables that joined a protected one, and gives both the triggers they need.
CREATE OR REPLACE FUNCTION leasehold.extend_guards(changed regclass[], added regclass[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  p record;
  mixed regclass;
BEGIN
  -- One transaction at a time changes the list, and reads what the previous one committed.
  LOCK TABLE leasehold.protected IN SHARE ROW EXCLUSIVE MODE;
  SELECT m.relation INTO mixed FROM leasehold.members() AS m GROUP BY m.relation HAVING count(*) > 1 LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'LH009', MESSAGE = 'CONFLICT: ' || mixed || ' would be protected by two fences',
      DETAIL = 'reason=protected', HINT = 'Call leasehold.unprotect for one of its parents first.';
  END IF;
  INSERT INTO leasehold.changing_guards VALUES (pg_current_xact_id());
  FOR p IN SELECT m.name, m.slot, array_agg(m.relation) AS tables FROM leasehold.members() AS m WHERE m.relation = ANY (added)
      GROUP BY m.name, m.slot LOOP
    PERFORM leasehold.require_protectable(p.tables, p.name, p.slot);
    INSERT INTO leasehold.protected (relation, name, slot) SELECT t, p.name, p.slot FROM unnest(p.tables) AS t ON CONFLICT DO NOTHING;
  END LOOP;
  UPDATE leasehold.protected AS o SET definition = leasehold.definition(o.relation) WHERE o.relation = ANY (changed);
  -- A new parent without protection makes row checks necessary.
  FOR p IN SELECT o.relation, o.name, o.slot FROM leasehold.protected AS o WHERE o.relation = ANY (added)
      OR o.relation IN (SELECT t.relation FROM leasehold.list_triggers() AS t
        WHERE t.guard = 'row trigger' AND t.problem = 'enabled for other sessions') LOOP
    PERFORM leasehold.guard_relation(p.relation, p.name, p.slot);
  END LOOP;
  UPDATE leasehold.version SET version = version;
  DELETE FROM leasehold.changing_guards;
END $$;

CREATE OR REPLACE FUNCTION leasehold.check_ddl() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  p record;
  changed regclass[] := '{}';
  added regclass[];
  -- Programs create temporary tables often, so commands that change no existing table skip the comparison.
  creates boolean := TG_TAG LIKE 'CREATE %' OR TG_TAG IN ('COMMENT', 'GRANT', 'REVOKE', 'SELECT INTO', 'REFRESH MATERIALIZED VIEW', 'REINDEX');
BEGIN
  -- Waits for `protect`, which changes the list.
  LOCK TABLE leasehold.protected IN ROW SHARE MODE;
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    -- A snapshot older than a change of the list fails here with 40001; the caller must retry the transaction.
    PERFORM FROM leasehold.version FOR SHARE;
  END IF;
  IF NOT EXISTS (SELECT FROM leasehold.protected)
      OR EXISTS (SELECT FROM leasehold.changing_guards AS c WHERE c.transaction = pg_current_xact_id_if_assigned()) THEN
    RETURN;
  ELSIF EXISTS (SELECT FROM leasehold.protected AS o WHERE o.server_id IS DISTINCT FROM leasehold.server_id()) THEN
    RAISE EXCEPTION USING ERRCODE = 'LH005',
      MESSAGE = 'STORAGE_FAILED: this database was copied, restored or failed over after its tables were protected',
      DETAIL = 'reason=moved', HINT = 'As the owner of schema leasehold, call leasehold.repair_guards(), and leasehold.rearm for each resource.';
  END IF;

  IF TG_EVENT = 'table_rewrite' THEN
    PERFORM leasehold.require_admitted(o.name, o.slot, o.relation::text) FROM leasehold.protected AS o
      WHERE o.relation = pg_event_trigger_table_rewrite_oid();
    RETURN;
  ELSIF TG_EVENT = 'sql_drop' THEN
    FOR p IN SELECT DISTINCT o.name, o.slot, d.object_identity, d.objid FROM pg_event_trigger_dropped_objects() AS d
        JOIN leasehold.protected AS o ON o.relation = d.objid WHERE d.classid = 'pg_class'::regclass AND d.objsubid = 0 LOOP
      PERFORM leasehold.require_admitted(p.name, p.slot, p.object_identity);
      DELETE FROM leasehold.protected AS o WHERE o.relation = p.objid;
    END LOOP;
    creates := NOT EXISTS (SELECT FROM pg_event_trigger_dropped_objects() AS d WHERE NOT d.is_temporary);
  ELSE
    PERFORM leasehold.require_admitted(m.name, m.slot, c.object_identity) FROM pg_event_trigger_ddl_commands() AS c
      JOIN leasehold.members() AS m ON m.relation = c.objid
      WHERE c.classid = 'pg_class'::regclass AND c.command_tag LIKE 'ALTER %';
    creates := creates OR TG_TAG LIKE 'DROP %'; -- was compared in sql_drop
  END IF;

  IF NOT creates THEN
    FOR p IN SELECT o.* FROM leasehold.protected AS o WHERE o.definition IS DISTINCT FROM leasehold.definition(o.relation) LOOP
      PERFORM leasehold.require_admitted(p.name, p.slot, p.relation::text);
      changed := changed || p.relation;
    END LOOP;
  END IF;
  added := ARRAY(SELECT m.relation FROM leasehold.members() AS m
    WHERE NOT EXISTS (SELECT FROM leasehold.protected AS o WHERE o.relation = m.relation));
  IF changed <> '{}' OR added <> '{}' THEN
    PERFORM leasehold.extend_guards(changed, added);
  ELSIF creates AND TG_TAG <> 'CREATE TRIGGER' THEN
    RETURN;
  END IF;
  FOR p IN SELECT t.* FROM leasehold.list_triggers() AS t WHERE t.problem IS NOT NULL LOOP
    RAISE EXCEPTION USING ERRCODE = 'LH009',
      MESSAGE = 'CONFLICT: ' || p.relation || ' is protected and its triggers cannot be changed: the ' || p.guard || ' is ' || p.problem,
      DETAIL = 'reason=guard', HINT = 'Call leasehold.unprotect to remove the protection.';
  END LOOP;
END $$;
