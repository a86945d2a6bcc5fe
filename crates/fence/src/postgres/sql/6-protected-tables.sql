-- Protected tables: the database rejects every write whose transaction was not admitted, whichever table the statement names (F3).

-- Each protected table with its descendants, and the fence that protects them.
CREATE OR REPLACE FUNCTION leasehold.members() RETURNS TABLE (relation regclass, name text, slot bigint)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  WITH RECURSIVE tree(relation, name, slot) AS (
    SELECT p.relation::oid, p.name, p.slot FROM leasehold.protected AS p
    UNION SELECT i.inhrelid, t.name, t.slot FROM pg_inherits AS i JOIN tree AS t ON i.inhparent = t.relation
  ) SELECT t.relation::regclass, t.name, t.slot FROM tree AS t
$$;

-- A table and all its descendants, partitioned tables first.
CREATE OR REPLACE FUNCTION leasehold.table_tree(target regclass) RETURNS regclass[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  WITH RECURSIVE tree(relation) AS (
    SELECT target::oid
    UNION SELECT i.inhrelid FROM pg_inherits AS i JOIN tree AS t ON i.inhparent = t.relation
  ) SELECT array_agg(t.relation::regclass ORDER BY c.relkind <> 'p', t.relation) FROM tree AS t JOIN pg_class AS c ON c.oid = t.relation
$$;

-- Protected tables below a table that is not protected: a statement that names that one fires no statement trigger of ours.
CREATE OR REPLACE FUNCTION leasehold.open_members() RETURNS TABLE (relation regclass, ancestor regclass)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  WITH RECURSIVE above(relation, ancestor) AS (
    SELECT i.inhrelid, i.inhparent FROM pg_inherits AS i JOIN leasehold.protected AS p ON p.relation = i.inhrelid
    UNION SELECT a.relation, i.inhparent FROM pg_inherits AS i JOIN above AS a ON i.inhrelid = a.ancestor
  ) SELECT a.relation::regclass, a.ancestor::regclass FROM above AS a
    WHERE NOT EXISTS (SELECT FROM leasehold.protected AS p WHERE p.relation = a.ancestor)
$$;

-- Digest of everything that gives a table's rows their meaning: name, columns, defaults, constraints, parents, and the types of its
-- columns with what they are made of. NULL if the table is gone.
CREATE OR REPLACE FUNCTION leasehold.definition(target regclass) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  WITH RECURSIVE types(id) AS (
    SELECT a.atttypid FROM pg_attribute AS a WHERE a.attrelid = target AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= 16384
    UNION
    SELECT part.id FROM types JOIN pg_type AS t ON t.oid = types.id CROSS JOIN LATERAL (
      SELECT t.typelem UNION ALL SELECT t.typbasetype
      UNION ALL SELECT r.rngsubtype FROM pg_range AS r WHERE t.oid IN (r.rngtypid, r.rngmultitypid)
      UNION ALL SELECT a.atttypid FROM pg_attribute AS a WHERE a.attrelid = t.typrelid AND t.typrelid <> 0 AND a.attnum > 0
    ) AS part(id) WHERE part.id >= 16384
  )
  SELECT md5(concat_ws(E'\n',
    (SELECT ROW(n.nspname, c.relname, c.relkind, c.relpersistence, c.reloftype, c.relispartition, c.relpartbound::text)::text
      FROM pg_namespace AS n WHERE n.oid = c.relnamespace),
    (SELECT string_agg(ROW(a.attnum, a.attname, a.atttypid, a.atttypmod, a.attcollation, a.attnotnull, a.attisdropped, a.attgenerated,
        a.attidentity, d.adbin::text)::text, ' ' ORDER BY a.attnum)
      FROM pg_attribute AS a LEFT JOIN pg_attrdef AS d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
      WHERE a.attrelid = target AND a.attnum > 0),
    -- A key that refers to a partitioned table has one more row for each of its partitions; a constraint trigger is a trigger.
    (SELECT string_agg(ROW(k.conname, k.contype, k.condeferrable, k.condeferred, k.convalidated, k.conkey, k.confrelid, k.confkey,
        k.confupdtype, k.confdeltype, k.conbin::text)::text, ' ' ORDER BY k.conname, k.contype)
      FROM pg_constraint AS k WHERE k.conrelid = target AND k.conparentid = 0 AND k.contype <> 't'),
    (SELECT string_agg(ROW(i.inhparent, i.inhseqno, i.inhdetachpending)::text, ' ' ORDER BY i.inhseqno, i.inhparent)
      FROM pg_inherits AS i WHERE i.inhrelid = target),
    (SELECT string_agg(ROW(t.oid, t.typtype, t.typbasetype, t.typtypmod, t.typnotnull, t.typdefaultbin::text,
        (SELECT string_agg(ROW(e.oid, e.enumlabel)::text, ' ' ORDER BY e.enumsortorder) FROM pg_enum AS e WHERE e.enumtypid = t.oid),
        (SELECT string_agg(ROW(k.conname, k.convalidated, k.conbin::text)::text, ' ' ORDER BY k.conname)
          FROM pg_constraint AS k WHERE k.contypid = t.oid),
        (SELECT string_agg(ROW(a.attnum, a.attname, a.atttypid, a.atttypmod, a.attisdropped)::text, ' ' ORDER BY a.attnum)
          FROM pg_attribute AS a WHERE a.attrelid = t.typrelid AND t.typrelid <> 0 AND a.attnum > 0))::text, ' ' ORDER BY t.oid)
      FROM types JOIN pg_type AS t ON t.oid = types.id)))
  FROM pg_class AS c WHERE c.oid = target
$$;

-- Triggers that each protected table must have, and what is wrong with each; NULL if it is in order. A statement is checked after INSERT,
-- UPDATE, DELETE and TRUNCATE, always. A row is checked before INSERT, UPDATE and DELETE: always below a table that is not protected,
-- otherwise only when a subscription applies it.
CREATE OR REPLACE FUNCTION leasehold.list_triggers() RETURNS TABLE (relation regclass, guard text, problem text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  WITH expected AS (
    SELECT p.relation, 'statement trigger' AS guard, 'leasehold_guard' AS name, leasehold.guard_name(p.name, p.slot) AS function,
        60 AS type, 'A' AS enabled
      FROM leasehold.protected AS p JOIN pg_class AS c ON c.oid = p.relation
    UNION ALL
    SELECT p.relation, 'row trigger', 'leasehold_guard_row', leasehold.guard_name(p.name, p.slot) || '_row', 31,
        CASE WHEN p.relation IN (SELECT o.relation FROM leasehold.open_members() AS o) THEN 'A' ELSE 'R' END
      FROM leasehold.protected AS p JOIN pg_class AS c ON c.oid = p.relation AND c.relkind <> 'p'
  )
  SELECT e.relation, e.guard, CASE
      WHEN t.oid IS NULL THEN 'missing'
      WHEN t.tgfoid IS DISTINCT FROM to_regproc('leasehold.' || e.function) THEN 'calls another function'
      WHEN t.tgtype <> e.type OR t.tgqual IS NOT NULL OR t.tgattr::text <> '' OR t.tgnargs <> 0 THEN 'fires for other events'
      WHEN t.tgenabled = 'D' THEN 'disabled'
      WHEN t.tgenabled <> e.enabled THEN 'enabled for other sessions'
    END
    FROM expected AS e LEFT JOIN pg_trigger AS t ON t.tgrelid = e.relation AND t.tgname = e.name AND NOT t.tgisinternal
$$;

-- Creates or replaces the triggers of one table and stores its definition. The caller has suspended the DDL check.
-- A statement trigger fires only for the table that a statement names. If a table above is not protected, each row is checked too.
-- Partitioned tables store no rows. A row trigger of an earlier version, which its partitions inherited, is removed.
CREATE OR REPLACE FUNCTION leasehold.guard_relation(target regclass, of_name text, of_slot bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  guard text := leasehold.guard_name(of_name, of_slot);
  kind "char" := (SELECT c.relkind FROM pg_class AS c WHERE c.oid = target);
BEGIN
  EXECUTE format('CREATE OR REPLACE TRIGGER leasehold_guard AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s
    FOR EACH STATEMENT EXECUTE FUNCTION leasehold.%s()', target, guard);
  EXECUTE format('ALTER TABLE ONLY %s ENABLE ALWAYS TRIGGER leasehold_guard', target);
  IF EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgrelid = target AND t.tgname = 'leasehold_guard_row' AND t.tgparentid = 0
      AND (kind = 'p' OR t.tgfoid IS DISTINCT FROM to_regproc('leasehold.' || guard || '_row') OR t.tgtype <> 31 OR t.tgqual IS NOT NULL
        OR t.tgattr::text <> '' OR t.tgnargs <> 0)) THEN
    EXECUTE format('DROP TRIGGER leasehold_guard_row ON %s', target);
  END IF;
  IF kind = 'r' THEN
    IF NOT EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgrelid = target AND t.tgname = 'leasehold_guard_row') THEN
      EXECUTE format('CREATE TRIGGER leasehold_guard_row BEFORE INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW
        EXECUTE FUNCTION leasehold.%s_row()', target, guard);
    END IF;
    EXECUTE format('ALTER TABLE ONLY %s ENABLE %s TRIGGER leasehold_guard_row', target,
      CASE WHEN EXISTS (SELECT FROM leasehold.open_members() AS o WHERE o.relation = target) THEN 'ALWAYS' ELSE 'REPLICA' END);
  END IF;
  UPDATE leasehold.protected AS p SET definition = leasehold.definition(target), server_id = leasehold.server_id()
    WHERE p.relation = target;
END $$;

-- Suspends the DDL check for this transaction until `resume_check`, and makes transactions with an older snapshot fail that change a
-- table. It waits for transactions that have run DDL, because the list could miss what they created.
CREATE OR REPLACE FUNCTION leasehold.suspend_check() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION USING ERRCODE = 'LH009', MESSAGE = 'CONFLICT: the snapshot of this transaction can miss tables',
      DETAIL = 'reason=isolation', HINT = 'Use READ COMMITTED.';
  END IF;
  LOCK TABLE leasehold.protected IN EXCLUSIVE MODE;
  INSERT INTO leasehold.changing_guards VALUES (pg_current_xact_id());
  UPDATE leasehold.version SET version = version;
END $$;

CREATE OR REPLACE FUNCTION leasehold.resume_check() RETURNS void LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  DELETE FROM leasehold.changing_guards
$$;

-- Fails if one of these tables cannot be protected by this fence.
CREATE OR REPLACE FUNCTION leasehold.require_protectable(tables regclass[], resource text, slot bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE other record;
BEGIN
  SELECT c.oid::regclass AS relation, c.relkind, c.relpersistence INTO other FROM pg_class AS c
    WHERE c.oid = ANY (tables) AND (c.relkind NOT IN ('r', 'p') OR c.relpersistence = 't' OR c.oid < 16384
      OR c.oid IN (SELECT o.relation FROM leasehold.own_relations() AS o));
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'LH009', MESSAGE = 'CONFLICT: ' || other.relation || CASE
        WHEN other.relkind = 'f' THEN ' is a foreign table: its rows are not in this database'
        WHEN other.relpersistence = 't' THEN ' is temporary'
        WHEN other.relkind NOT IN ('r', 'p') THEN ' is not a table'
        ELSE ' is a table of the server or of the fence' END,
      DETAIL = 'reason=kind', HINT = 'Protect the tables that store the rows, without temporary and foreign children.';
  END IF;
  SELECT m.relation, m.name, m.slot INTO other FROM leasehold.members() AS m
    WHERE m.relation = ANY (tables) AND (m.name, m.slot) <> (resource, require_protectable.slot) LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'LH009',
      MESSAGE = 'CONFLICT: ' || other.relation || ' is already protected by ' || other.name || ' slot ' || other.slot,
      DETAIL = 'reason=protected', HINT = 'Call leasehold.unprotect first.';
  END IF;
END $$;

-- Locks a table with all its descendants against writes and DDL, and returns them. No descendant joins while it waits.
CREATE OR REPLACE FUNCTION leasehold.lock_tree(target regclass) RETURNS regclass[] LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  tables regclass[];
  locked regclass[] := '{}';
BEGIN
  LOOP
    tables := leasehold.table_tree(target);
    EXIT WHEN tables <@ locked;
    EXECUTE (SELECT 'LOCK TABLE ' || string_agg('ONLY ' || c.oid::regclass, ', ') || ' IN SHARE ROW EXCLUSIVE MODE'
      FROM unnest(tables) AS t(relation) JOIN pg_class AS c ON c.oid = t.relation AND c.relkind IN ('r', 'p'));
    locked := tables;
  END LOOP;
  RETURN tables;
END $$;

-- Protects a table with its partitions and children: every write by any client and role needs a current token of the resource. Waits for
-- transactions that are writing to them.
CREATE OR REPLACE FUNCTION leasehold.protect(target regclass, resource text, slot bigint DEFAULT 0) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE tables regclass[] := ARRAY[target];
BEGIN
  PERFORM leasehold.lock_exclusive(resource, slot);
  PERFORM leasehold.require_protectable(tables, resource, slot);
  tables := leasehold.lock_tree(target);
  PERFORM leasehold.suspend_check();
  PERFORM leasehold.require_protectable(tables, resource, slot);
  INSERT INTO leasehold.protected (relation, name, slot) SELECT t, resource, protect.slot FROM unnest(tables) AS t ON CONFLICT DO NOTHING;
  PERFORM leasehold.create_guard(resource, slot);
  PERFORM leasehold.guard_relation(t, resource, protect.slot) FROM unnest(tables) AS t;
  UPDATE leasehold.fence AS f SET protects_tables = true WHERE f.name = protect.resource AND f.slot = protect.slot;
  PERFORM leasehold.resume_check();
END $$;

-- Removes the protection of a table and its descendants.
CREATE OR REPLACE FUNCTION leasehold.unprotect(target regclass) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  tables regclass[];
  one regclass;
  parent regclass;
BEGIN
  -- Locks the fence before the table, in the order of writers, to avoid deadlocks.
  PERFORM leasehold.lock(key, true, 60000) FROM (SELECT DISTINCT leasehold.lock_key(p.name, p.slot) AS key
    FROM leasehold.protected AS p WHERE p.relation = ANY (leasehold.table_tree(target)) ORDER BY key) AS fences;
  tables := leasehold.lock_tree(target);
  PERFORM leasehold.suspend_check();
  SELECT i.inhparent::regclass INTO parent FROM pg_inherits AS i JOIN leasehold.protected AS p ON p.relation = i.inhparent
    WHERE i.inhrelid = ANY (tables) AND i.inhparent <> ALL (tables) LIMIT 1;
  IF parent IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'LH009', MESSAGE = 'CONFLICT: ' || target || ' is protected together with its parent ' || parent,
      DETAIL = 'reason=parent', HINT = 'Detach it, or call leasehold.unprotect for the parent.';
  END IF;
  DELETE FROM leasehold.protected AS p WHERE p.relation = ANY (tables);
  FOREACH one IN ARRAY tables LOOP
    EXECUTE format('DROP TRIGGER IF EXISTS leasehold_guard ON %s', one);
    IF EXISTS (SELECT FROM pg_trigger WHERE tgrelid = one AND tgname = 'leasehold_guard_row' AND tgparentid = 0) THEN
      EXECUTE format('DROP TRIGGER leasehold_guard_row ON %s', one);
    END IF;
  END LOOP;
  UPDATE leasehold.fence AS f SET protects_tables = false WHERE f.protects_tables
    AND NOT EXISTS (SELECT FROM leasehold.protected AS p WHERE (p.name, p.slot) = (f.name, f.slot));
  PERFORM leasehold.resume_check();
END $$;

-- Restores the guards of all protected tables as they must be: after a dump was restored, a database was copied, or a superuser changed
-- them. Tables that have a guard trigger and are not listed are listed. Rights of others on the fence's own objects are revoked, see
-- leasehold.list_grants. Returns the tables. Marks are left as they are, see `rearm`.
CREATE OR REPLACE FUNCTION leasehold.repair_guards() RETURNS SETOF regclass LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM leasehold.suspend_check();
  PERFORM leasehold.revoke_grants();
  DELETE FROM leasehold.protected AS p WHERE NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = p.relation);
  INSERT INTO leasehold.protected (relation, name, slot) SELECT t.tgrelid, f.name, f.slot FROM pg_trigger AS t
    JOIN leasehold.fence AS f ON t.tgfoid = to_regproc('leasehold.' || leasehold.guard_name(f.name, f.slot))
    WHERE t.tgname = 'leasehold_guard' ON CONFLICT DO NOTHING;
  INSERT INTO leasehold.protected (relation, name, slot) SELECT m.relation, m.name, m.slot FROM leasehold.members() AS m ON CONFLICT DO NOTHING;
  PERFORM leasehold.require_protectable(array_agg(p.relation), p.name, p.slot) FROM leasehold.protected AS p GROUP BY p.name, p.slot;
  PERFORM leasehold.create_guard(p.name, p.slot) FROM (SELECT DISTINCT p.name, p.slot FROM leasehold.protected AS p) AS p;
  PERFORM leasehold.guard_relation(p.relation, p.name, p.slot) FROM (SELECT p.* FROM leasehold.protected AS p
    JOIN pg_class AS c ON c.oid = p.relation ORDER BY c.relkind <> 'p', p.relation) AS p;
  UPDATE leasehold.fence AS f SET protects_tables = EXISTS (SELECT FROM leasehold.protected AS p WHERE (p.name, p.slot) = (f.name, f.slot))
    WHERE f.protects_tables <> EXISTS (SELECT FROM leasehold.protected AS p WHERE (p.name, p.slot) = (f.name, f.slot));
  PERFORM leasehold.resume_check();
  RETURN QUERY SELECT p.relation FROM leasehold.protected AS p ORDER BY p.relation;
END $$;
