-- Protected tables: the database rejects every write whose transaction was not admitted (F3).

-- Stores a token in the session, with timeouts for its transactions. Only timeouts that an earlier call set, or longer ones, are
-- replaced.
CREATE OR REPLACE FUNCTION leasehold.store_session_token(token text, resource text, slot bigint, remaining interval) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  p record := leasehold.parse_for(token, resource, slot);
  ms bigint := least(2147483647, ceil(extract(epoch FROM remaining) * 1000));
  previous text := current_setting('leasehold.session_timeout', true);
  number bigint := leasehold.admit_uncached(token, p.name, p.slot);
BEGIN
  IF ms <= 0 THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'INVALID_ARGUMENT: remaining is ' || remaining || ', expected more than 0',
      HINT = 'Renew the lease first, or pass NULL for no timeout.';
  END IF;
  IF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'on', false);
  END IF;
  PERFORM set_config(t.name, ms::text, false) FROM pg_settings AS t
    WHERE t.name IN ('statement_timeout', 'idle_in_transaction_session_timeout') AND ms IS NOT NULL
      AND (t.setting = previous OR t.setting::bigint NOT BETWEEN 1 AND ms);
  PERFORM set_config('leasehold.session_timeout', ms::text, false) WHERE ms IS NOT NULL;
  PERFORM set_config('leasehold.token_' || to_hex(leasehold.lock_key(p.name, p.slot)), token, false);
  RETURN number;
END $$;

-- Presents a token once for all later writes of this session to protected tables. The statements carry no token; the triggers check
-- each of them. Use it on a dedicated connection only; on pooled connections use `admit`. `clear_session_token` and DISCARD ALL end
-- it. Like any use of a token it raises a lower mark, in transactions of its own, and caches the digest once that is durable.
-- `remaining` limits the session's transactions as in `admit`.
CREATE OR REPLACE PROCEDURE leasehold.set_session_token(token text, resource text DEFAULT NULL, slot bigint DEFAULT NULL,
  remaining interval DEFAULT '10 s', INOUT number bigint DEFAULT NULL) LANGUAGE plpgsql AS $$
BEGIN
  COMMIT; -- fails inside a transaction block
  number := leasehold.admit_full(token, resource, slot);
  COMMIT;
  number := leasehold.store_session_token(token, resource, slot, remaining);
  COMMIT;
END $$;

-- Removes the session's token and the timeouts that came with it.
CREATE OR REPLACE FUNCTION leasehold.clear_session_token(resource text, slot bigint DEFAULT 0) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM set_config('leasehold.token_' || to_hex(leasehold.lock_key(resource, slot)), '', false);
  PERFORM set_config(t.name, t.reset_val, false) FROM pg_settings AS t
    WHERE t.name IN ('statement_timeout', 'idle_in_transaction_session_timeout')
      AND t.setting = current_setting('leasehold.session_timeout', true);
  PERFORM set_config('leasehold.session_timeout', '', false);
END $$;

-- Fails unless this transaction was admitted or its session has a token. It then presents that token again, because only the mark
-- decides whether it is still current. A token that another transaction presented does not count.
CREATE OR REPLACE FUNCTION leasehold.require_admitted(name text, slot bigint, key text, relation text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  presented pg_catalog.text := pg_catalog.current_setting('leasehold.token_' OPERATOR(pg_catalog.||) key, true);
  number bigint;
BEGIN
  IF pg_catalog.length(presented) OPERATOR(pg_catalog.=) 85 THEN
    number := leasehold.admit(presented, name, slot, NULL);
    RETURN;
  END IF;
  IF coalesce(pg_catalog.split_part(presented, ':', 1), '') OPERATOR(pg_catalog.<>)
      coalesce(pg_catalog.pg_current_xact_id_if_assigned()::pg_catalog.text, 'none') THEN
    RAISE EXCEPTION USING ERRCODE = 'LH002',
      MESSAGE = pg_catalog.concat('TOKEN_INVALID: table ', relation, ' is protected by ', name,
        ', and this transaction presented no token'),
      DETAIL = 'reason=absent', HINT = 'Call leasehold.admit with a current token in the same transaction before it writes, or '
        'leasehold.set_session_token once on a dedicated connection.';
  END IF;
  number := leasehold.admit(pg_catalog.split_part(presented, ':', 2), name, slot, NULL);
END $$;

-- Creates the statement trigger function of one fence. It fires after the statement, so that the statement itself may contain the
-- check. Like `admit` it compares the presented token, which can be any text, with the token cache under the lock; if the digest is
-- not cached, it presents the token again. The inner block keeps the lock until the transaction ends, see leasehold.lock. Each fence
-- has its own function, because passing trigger arguments would double the cost.
CREATE OR REPLACE FUNCTION leasehold.create_guard(of_name text, of_slot bigint) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $make$
DECLARE
  key bigint := leasehold.lock_key(of_name, of_slot);
  guard text := 'leasehold.guard_' || to_hex(key);
  setting text := 'leasehold.token_' || to_hex(key);
BEGIN
  EXECUTE format('CREATE OR REPLACE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql AS %L', guard, format($body$
    BEGIN
      BEGIN
        IF pg_catalog.pg_try_advisory_xact_lock_shared(%1$s)
          AND ((pg_catalog.pg_sequence_last_value(%3$L) OPERATOR(pg_catalog.#)
            pg_catalog.hashtextextended(pg_catalog.right(pg_catalog.current_setting(%2$L, true), 85), %1$s))
            OPERATOR(pg_catalog.&) (-2)) OPERATOR(pg_catalog.=) 0
          AND (pg_catalog.length(pg_catalog.current_setting(%2$L, true)) OPERATOR(pg_catalog.=) 85
            OR pg_catalog.starts_with(pg_catalog.current_setting(%2$L, true),
              pg_catalog.pg_current_xact_id_if_assigned()::pg_catalog.text OPERATOR(pg_catalog.||) ':'))
        THEN
          RETURN NULL;
        END IF;
      EXCEPTION WHEN query_canceled THEN
        RAISE;
      END;
      PERFORM leasehold.require_admitted(%4$L, %5$s, %6$L, TG_TABLE_NAME);
      RETURN NULL;
    END $body$, key, setting, 'leasehold.token_cache_' || (key & 63), of_name, of_slot, to_hex(key)));
  RETURN guard;
END $make$;

-- Replaces the functions that an earlier installation created.
SELECT leasehold.create_guard(p.name, p.slot) FROM (SELECT DISTINCT name, slot FROM leasehold.protected) AS p;

-- Row trigger for changes that fire only row triggers: those of a logical replication subscription.
CREATE OR REPLACE FUNCTION leasehold.guard_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM leasehold.require_admitted(TG_ARGV[0], TG_ARGV[1]::pg_catalog.int8, TG_ARGV[2], TG_TABLE_NAME);
  RETURN coalesce(NEW, OLD);
END $$;

-- Creates the triggers of one relation. A partition already has the row trigger of its parent.
CREATE OR REPLACE FUNCTION leasehold.guard_relation(target regclass, of_name text, of_slot bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  args text := format('%L, %L, %L', of_name, of_slot, to_hex(leasehold.lock_key(of_name, of_slot)));
BEGIN
  EXECUTE format('CREATE OR REPLACE TRIGGER leasehold_guard AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s
    FOR EACH STATEMENT EXECUTE FUNCTION %s()', target, leasehold.create_guard(of_name, of_slot));
  IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = target AND tgname = 'leasehold_guard_row') THEN
    EXECUTE format('CREATE TRIGGER leasehold_guard_row BEFORE INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW
      EXECUTE FUNCTION leasehold.guard_row(%s)', target, args);
  END IF;
  EXECUTE format('ALTER TABLE ONLY %s ENABLE ALWAYS TRIGGER leasehold_guard', target);
  -- Where statement triggers fire, the row trigger would only add cost.
  EXECUTE format('ALTER TABLE ONLY %s ENABLE REPLICA TRIGGER leasehold_guard_row', target);
END $$;

-- A table and all its descendants.
CREATE OR REPLACE FUNCTION leasehold.table_tree(target regclass) RETURNS SETOF regclass LANGUAGE sql STABLE AS $$
  WITH RECURSIVE tree(relation) AS (
    SELECT target::pg_catalog.oid
    UNION SELECT i.inhrelid FROM pg_catalog.pg_inherits AS i JOIN tree AS f ON i.inhparent = f.relation
  ) SELECT relation::pg_catalog.regclass FROM tree
$$;

-- Protects a table: every write by any client and role needs a current token of the resource. Waits for transactions that are
-- writing to the table.
CREATE OR REPLACE FUNCTION leasehold.protect(target regclass, resource text, slot bigint DEFAULT 0) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  one regclass;
  other text;
BEGIN
  PERFORM leasehold.lock_exclusive(resource, slot);
  IF (SELECT relkind FROM pg_class WHERE oid = target) NOT IN ('r', 'p') THEN
    RAISE EXCEPTION USING ERRCODE = 'LH009', MESSAGE = 'CONFLICT: ' || target || ' is not a table',
      HINT = 'Protect the tables behind it.';
  END IF;
  SELECT p.name || ' slot ' || p.slot INTO other FROM leasehold.protected AS p
    WHERE p.relation IN (SELECT leasehold.table_tree(target)) AND (p.name, p.slot) <> (resource, protect.slot);
  IF other IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'LH009', MESSAGE = 'CONFLICT: ' || target || ' is already protected by ' || other,
      HINT = 'Call leasehold.unprotect first.';
  END IF;
  -- The DDL check allows changes only to tables that are not listed.
  DELETE FROM leasehold.protected AS p WHERE p.relation IN (SELECT leasehold.table_tree(target));
  FOR one IN SELECT leasehold.table_tree(target) LOOP
    PERFORM leasehold.guard_relation(one, resource, slot);
  END LOOP;
  INSERT INTO leasehold.protected (relation, name, slot) SELECT f, resource, protect.slot FROM leasehold.table_tree(target) AS f;
  UPDATE leasehold.fence AS f SET protects_tables = true WHERE f.name = protect.resource AND f.slot = protect.slot;
END $$;

-- Removes the protection of a table and its descendants.
CREATE OR REPLACE FUNCTION leasehold.unprotect(target regclass) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE one regclass;
BEGIN
  -- Locks the fence before the table, in the order of writers, to avoid deadlocks.
  PERFORM pg_advisory_xact_lock(key) FROM (SELECT DISTINCT leasehold.lock_key(p.name, p.slot) AS key
    FROM leasehold.protected AS p WHERE p.relation IN (SELECT leasehold.table_tree(target)) ORDER BY key) AS fences;
  DELETE FROM leasehold.protected AS p WHERE p.relation IN (SELECT leasehold.table_tree(target));
  FOR one IN SELECT leasehold.table_tree(target) LOOP
    EXECUTE format('DROP TRIGGER IF EXISTS leasehold_guard ON %s', one);
    IF EXISTS (SELECT FROM pg_trigger WHERE tgrelid = one AND tgname = 'leasehold_guard_row' AND tgparentid = 0) THEN
      EXECUTE format('DROP TRIGGER leasehold_guard_row ON %s', one);
    END IF;
  END LOOP;
  UPDATE leasehold.fence AS f SET protects_tables = false WHERE f.protects_tables
    AND NOT EXISTS (SELECT FROM leasehold.protected AS p WHERE (p.name, p.slot) = (f.name, f.slot));
END $$;

-- Runs after every DDL command. A change of a protected table needs a token like any write, new descendants become protected, and
-- the triggers must be unchanged.
CREATE OR REPLACE FUNCTION leasehold.check_ddl() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  p record;
  c record;
  listed leasehold.protected[];
  added leasehold.protected[];
BEGIN
  IF NOT EXISTS (SELECT FROM leasehold.protected) THEN
    RETURN;
  END IF;
  IF TG_EVENT = 'sql_drop' THEN
    FOR p IN SELECT DISTINCT o.name, o.slot, d.object_identity, d.objid FROM pg_event_trigger_dropped_objects() AS d
        JOIN leasehold.protected AS o ON o.relation = d.objid WHERE d.classid = 'pg_class'::regclass AND d.objsubid = 0 LOOP
      PERFORM leasehold.require_admitted(p.name, p.slot, to_hex(leasehold.lock_key(p.name, p.slot)), p.object_identity);
      DELETE FROM leasehold.protected AS o WHERE o.relation = p.objid;
    END LOOP;
  ELSE
    FOR c IN SELECT * FROM pg_event_trigger_ddl_commands() WHERE classid = 'pg_class'::regclass LOOP
      SELECT o.name, o.slot INTO p FROM leasehold.protected AS o
        WHERE c.objid IN (SELECT leasehold.table_tree(o.relation)) ORDER BY o.relation = c.objid DESC LIMIT 1;
      CONTINUE WHEN p.name IS NULL;
      IF c.command_tag = 'ALTER TABLE' THEN
        PERFORM leasehold.require_admitted(p.name, p.slot, to_hex(leasehold.lock_key(p.name, p.slot)), c.object_identity);
      END IF;
    END LOOP;
    added := ARRAY(SELECT DISTINCT ROW(m.relation::oid, o.name, o.slot)::leasehold.protected
      FROM leasehold.protected AS o, leasehold.table_tree(o.relation) AS m(relation)
      WHERE NOT EXISTS (SELECT FROM leasehold.protected AS k WHERE k.relation = m.relation)
        -- A detached partition loses the row trigger it inherited from its parent.
        OR NOT EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgrelid = m.relation AND t.tgname = 'leasehold_guard_row'));
    IF added <> '{}' THEN
      -- This check rejects DDL on listed tables, so the list is emptied while the new tables get their triggers.
      listed := ARRAY(SELECT k FROM leasehold.protected AS k);
      DELETE FROM leasehold.protected;
      FOR p IN SELECT * FROM unnest(added) LOOP
        PERFORM leasehold.guard_relation(p.relation::regclass, p.name, p.slot);
      END LOOP;
      INSERT INTO leasehold.protected SELECT * FROM unnest(listed || added) ON CONFLICT DO NOTHING;
    END IF;
  END IF;
  FOR p IN SELECT o.relation::regclass AS relation FROM leasehold.protected AS o WHERE 2 <> (SELECT count(*) FROM pg_trigger AS t
      WHERE t.tgrelid = o.relation
        AND (t.tgname, t.tgenabled, t.tgfoid) IN (('leasehold_guard', 'A',
            to_regproc('leasehold.guard_' || to_hex(leasehold.lock_key(o.name, o.slot)))),
          ('leasehold_guard_row', 'R', 'leasehold.guard_row'::regproc))) LOOP
    RAISE EXCEPTION USING ERRCODE = 'LH009', MESSAGE = 'CONFLICT: ' || p.relation || ' is protected and its triggers cannot be changed',
      HINT = 'Call leasehold.unprotect to remove the protection.';
  END LOOP;
END $$;

-- Only a superuser can create event triggers. Without them, the owner of a protected table can drop its triggers.
DO $$
BEGIN
  IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
    DROP EVENT TRIGGER IF EXISTS leasehold_check_ddl;
    DROP EVENT TRIGGER IF EXISTS leasehold_check_drop;
    CREATE EVENT TRIGGER leasehold_check_ddl ON ddl_command_end EXECUTE FUNCTION leasehold.check_ddl();
    CREATE EVENT TRIGGER leasehold_check_drop ON sql_drop EXECUTE FUNCTION leasehold.check_ddl();
    ALTER EVENT TRIGGER leasehold_check_ddl ENABLE ALWAYS;
    ALTER EVENT TRIGGER leasehold_check_drop ENABLE ALWAYS;
  ELSE
    RAISE NOTICE 'installed without DDL checks on protected tables; install as a superuser to enable them';
  END IF;
END $$;
