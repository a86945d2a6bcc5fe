-- Forced mode: the database itself refuses a write to a protected table whose transaction was not admitted.

-- What a session holds, and how long its transactions may stand still. What it set itself before, it may set anew.
CREATE OR REPLACE FUNCTION leasehold.held(token text, resource text, slot bigint, remaining interval) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  p record := leasehold.place(token, resource, slot);
  ms bigint := least(2147483647, ceil(extract(epoch FROM remaining) * 1000));
  before text := current_setting('leasehold.bound', true);
  number bigint := leasehold.admit_unworn(token, p.name, p.slot);
BEGIN
  IF ms <= 0 THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'INVALID_ARGUMENT: remaining: nothing is left of the lease',
      HINT = 'Renew it first, or pass NULL for no bound.';
  END IF;
  IF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'on', false);
  END IF;
  PERFORM set_config(t.name, ms::text, false) FROM pg_settings AS t
    WHERE t.name IN ('statement_timeout', 'idle_in_transaction_session_timeout') AND ms IS NOT NULL
      AND (t.setting = before OR t.setting::bigint NOT BETWEEN 1 AND ms);
  PERFORM set_config('leasehold.bound', ms::text, false) WHERE ms IS NOT NULL;
  PERFORM set_config('leasehold.p' || to_hex(leasehold.lock_of(p.name, p.slot)), token, false);
  RETURN number;
END $$;

-- Shows a token once for all that this session writes to protected tables from now on, so that its statements stay as they are:
-- the triggers check each, and none carries a token. For a connection of one's own; DISCARD ALL and `let_go` end it, and where
-- clients share connections, `admit` is the way. It is a use of the token like any other, in transactions of its own: it raises
-- a lower mark, and puts the badge on when that is durable. `remaining` bounds what the session does, as in `admit`.
CREATE OR REPLACE PROCEDURE leasehold.hold(token text, resource text DEFAULT NULL, slot bigint DEFAULT NULL,
  remaining interval DEFAULT '10 s', INOUT number bigint DEFAULT NULL) LANGUAGE plpgsql AS $$
BEGIN
  COMMIT; -- inside of somebody's transaction it fails here
  number := leasehold.admit_unknown(token, resource, slot);
  COMMIT;
  number := leasehold.held(token, resource, slot, remaining);
  COMMIT;
END $$;

-- Shows nothing any more, and bounds no more.
CREATE OR REPLACE FUNCTION leasehold.let_go(resource text, slot bigint DEFAULT 0) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM set_config('leasehold.p' || to_hex(leasehold.lock_of(resource, slot)), '', false);
  PERFORM set_config(t.name, t.reset_val, false) FROM pg_settings AS t
    WHERE t.name IN ('statement_timeout', 'idle_in_transaction_session_timeout')
      AND t.setting = current_setting('leasehold.bound', true);
  PERFORM set_config('leasehold.bound', '', false);
END $$;

-- Refuses unless this transaction showed a token for the place, or its session holds one, and shows it again: only the mark can
-- tell whether it is still the newest. What another transaction showed is nobody's.
CREATE OR REPLACE FUNCTION leasehold.shown(name text, slot bigint, key text, what text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  was pg_catalog.text := pg_catalog.current_setting('leasehold.p' OPERATOR(pg_catalog.||) key, true);
  number bigint;
BEGIN
  IF pg_catalog.length(was) OPERATOR(pg_catalog.=) 85 THEN
    number := leasehold.admit(was, name, slot, NULL);
    RETURN;
  END IF;
  IF coalesce(pg_catalog.split_part(was, ':', 1), '') OPERATOR(pg_catalog.<>)
      coalesce(pg_catalog.pg_current_xact_id_if_assigned()::pg_catalog.text, 'none') THEN
    RAISE EXCEPTION USING ERRCODE = 'LH002', MESSAGE = pg_catalog.concat('TOKEN_INVALID: absent: ', what, ' is protected by ', name),
      DETAIL = 'why=absent', HINT = 'Call leasehold.admit with a current token in the same transaction, before it writes, or '
        'leasehold.hold once in a session of your own.';
  END IF;
  number := leasehold.admit(pg_catalog.split_part(was, ':', 2), name, slot, NULL);
END $$;

-- The trigger of one place, after each statement, so that the statement itself may carry the check. It looks as `admit` does:
-- what this transaction showed can be anybody's text, so it is compared with the badge under the lock, and without a badge it
-- is shown again. The lock is taken in a block with a handler, as in `leasehold.lock`. Each place has a function of its own, because what a trigger is told in arguments costs as much as all else.
CREATE OR REPLACE FUNCTION leasehold.make_guard(of_name text, of_slot bigint) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $make$
DECLARE
  key bigint := leasehold.lock_of(of_name, of_slot);
  guard text := 'leasehold.guard_' || to_hex(key);
  shown text := 'leasehold.p' || to_hex(key);
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
      PERFORM leasehold.shown(%4$L, %5$s, %6$L, TG_TABLE_NAME);
      RETURN NULL;
    END $body$, key, shown, 'leasehold.badge_' || (key & 63), of_name, of_slot, to_hex(key)));
  RETURN guard;
END $make$;

-- Those that an earlier version made.
SELECT leasehold.make_guard(p.name, p.slot) FROM (SELECT DISTINCT name, slot FROM leasehold.protected) AS p;

-- Before each row where only row triggers fire: when changes of a publication are applied.
CREATE OR REPLACE FUNCTION leasehold.guard_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM leasehold.shown(TG_ARGV[0], TG_ARGV[1]::pg_catalog.int8, TG_ARGV[2], TG_TABLE_NAME);
  RETURN coalesce(NEW, OLD);
END $$;

-- Puts the triggers on one relation. A partition has the row trigger of its parent already.
CREATE OR REPLACE FUNCTION leasehold.guard_relation(target regclass, of_name text, of_slot bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  args text := format('%L, %L, %L', of_name, of_slot, to_hex(leasehold.lock_of(of_name, of_slot)));
BEGIN
  EXECUTE format('CREATE OR REPLACE TRIGGER leasehold_guard AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s
    FOR EACH STATEMENT EXECUTE FUNCTION %s()', target, leasehold.make_guard(of_name, of_slot));
  IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = target AND tgname = 'leasehold_guard_row') THEN
    EXECUTE format('CREATE TRIGGER leasehold_guard_row BEFORE INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW
      EXECUTE FUNCTION leasehold.guard_row(%s)', target, args);
  END IF;
  EXECUTE format('ALTER TABLE ONLY %s ENABLE ALWAYS TRIGGER leasehold_guard', target);
  -- Where statements' triggers fire as well, this one would only cost.
  EXECUTE format('ALTER TABLE ONLY %s ENABLE REPLICA TRIGGER leasehold_guard_row', target);
END $$;

-- A table and all that inherits from it.
CREATE OR REPLACE FUNCTION leasehold.family(target regclass) RETURNS SETOF regclass LANGUAGE sql STABLE AS $$
  WITH RECURSIVE family(relation) AS (
    SELECT target::pg_catalog.oid
    UNION SELECT i.inhrelid FROM pg_catalog.pg_inherits AS i JOIN family AS f ON i.inhparent = f.relation
  ) SELECT relation::pg_catalog.regclass FROM family
$$;

-- From now on nobody writes to this table without a current token of the resource, whichever client and whichever way. It
-- waits for who is writing there.
CREATE OR REPLACE FUNCTION leasehold.protect(target regclass, resource text, slot bigint DEFAULT 0) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  one regclass;
  other text;
BEGIN
  PERFORM leasehold.alone(resource, slot);
  IF (SELECT relkind FROM pg_class WHERE oid = target) NOT IN ('r', 'p') THEN
    RAISE EXCEPTION USING ERRCODE = 'LH009', MESSAGE = 'CONFLICT: ' || target || ' is no table; only tables can be protected';
  END IF;
  SELECT p.name || ' slot ' || p.slot INTO other FROM leasehold.protected AS p
    WHERE p.relation IN (SELECT leasehold.family(target)) AND (p.name, p.slot) <> (resource, protect.slot);
  IF other IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'LH009', MESSAGE = 'CONFLICT: ' || target || ' is protected by ' || other,
      HINT = 'Unprotect it first.';
  END IF;
  -- What is not listed yet may be altered.
  DELETE FROM leasehold.protected AS p WHERE p.relation IN (SELECT leasehold.family(target));
  FOR one IN SELECT leasehold.family(target) LOOP
    PERFORM leasehold.guard_relation(one, resource, slot);
  END LOOP;
  INSERT INTO leasehold.protected (relation, name, slot) SELECT f, resource, protect.slot FROM leasehold.family(target) AS f;
  UPDATE leasehold.fence AS f SET forced = true WHERE f.name = protect.resource AND f.slot = protect.slot;
END $$;

-- Takes the triggers away again.
CREATE OR REPLACE FUNCTION leasehold.unprotect(target regclass) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE one regclass;
BEGIN
  -- The place before the table, as a writer has them.
  PERFORM pg_advisory_xact_lock(key) FROM (SELECT DISTINCT leasehold.lock_of(p.name, p.slot) AS key
    FROM leasehold.protected AS p WHERE p.relation IN (SELECT leasehold.family(target)) ORDER BY key) AS places;
  DELETE FROM leasehold.protected AS p WHERE p.relation IN (SELECT leasehold.family(target));
  FOR one IN SELECT leasehold.family(target) LOOP
    EXECUTE format('DROP TRIGGER IF EXISTS leasehold_guard ON %s', one);
    IF EXISTS (SELECT FROM pg_trigger WHERE tgrelid = one AND tgname = 'leasehold_guard_row' AND tgparentid = 0) THEN
      EXECUTE format('DROP TRIGGER leasehold_guard_row ON %s', one);
    END IF;
  END LOOP;
  UPDATE leasehold.fence AS f SET forced = false WHERE f.forced
    AND NOT EXISTS (SELECT FROM leasehold.protected AS p WHERE (p.name, p.slot) = (f.name, f.slot));
END $$;

-- After every DDL: what changes a protected table needs a token like any write, new members of its family are guarded, and
-- the triggers are in their places.
CREATE OR REPLACE FUNCTION leasehold.watch() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  p record;
  c record;
  listed leasehold.protected[];
  fresh leasehold.protected[];
BEGIN
  IF NOT EXISTS (SELECT FROM leasehold.protected) THEN
    RETURN;
  END IF;
  IF TG_EVENT = 'sql_drop' THEN
    FOR p IN SELECT DISTINCT o.name, o.slot, d.object_identity, d.objid FROM pg_event_trigger_dropped_objects() AS d
        JOIN leasehold.protected AS o ON o.relation = d.objid WHERE d.classid = 'pg_class'::regclass AND d.objsubid = 0 LOOP
      PERFORM leasehold.shown(p.name, p.slot, to_hex(leasehold.lock_of(p.name, p.slot)), p.object_identity);
      DELETE FROM leasehold.protected AS o WHERE o.relation = p.objid;
    END LOOP;
  ELSE
    FOR c IN SELECT * FROM pg_event_trigger_ddl_commands() WHERE classid = 'pg_class'::regclass LOOP
      SELECT o.name, o.slot INTO p FROM leasehold.protected AS o
        WHERE c.objid IN (SELECT leasehold.family(o.relation)) ORDER BY o.relation = c.objid DESC LIMIT 1;
      CONTINUE WHEN p.name IS NULL;
      IF c.command_tag = 'ALTER TABLE' THEN
        PERFORM leasehold.shown(p.name, p.slot, to_hex(leasehold.lock_of(p.name, p.slot)), c.object_identity);
      END IF;
    END LOOP;
    fresh := ARRAY(SELECT DISTINCT ROW(m.relation::oid, o.name, o.slot)::leasehold.protected
      FROM leasehold.protected AS o, leasehold.family(o.relation) AS m(relation)
      WHERE NOT EXISTS (SELECT FROM leasehold.protected AS k WHERE k.relation = m.relation)
        -- A partition that leaves loses the row trigger that it had from its parent.
        OR NOT EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgrelid = m.relation AND t.tgname = 'leasehold_guard_row'));
    IF fresh <> '{}' THEN
      -- What is not listed may be altered: the list is set aside while the new ones get their triggers.
      listed := ARRAY(SELECT k FROM leasehold.protected AS k);
      DELETE FROM leasehold.protected;
      FOR p IN SELECT * FROM unnest(fresh) LOOP
        PERFORM leasehold.guard_relation(p.relation::regclass, p.name, p.slot);
      END LOOP;
      INSERT INTO leasehold.protected SELECT * FROM unnest(listed || fresh) ON CONFLICT DO NOTHING;
    END IF;
  END IF;
  FOR p IN SELECT o.relation::regclass AS relation FROM leasehold.protected AS o WHERE 2 <> (SELECT count(*) FROM pg_trigger AS t
      WHERE t.tgrelid = o.relation
        AND (t.tgname, t.tgenabled, t.tgfoid) IN (('leasehold_guard', 'A',
            to_regproc('leasehold.guard_' || to_hex(leasehold.lock_of(o.name, o.slot)))),
          ('leasehold_guard_row', 'R', 'leasehold.guard_row'::regproc))) LOOP
    RAISE EXCEPTION USING ERRCODE = 'LH009', MESSAGE = 'CONFLICT: ' || p.relation || ' is protected, and its triggers stay',
      HINT = 'Call leasehold.unprotect, if that is meant.';
  END LOOP;
END $$;

-- Only a superuser may make event triggers. Without them, the owner of a protected table can take its triggers away.
DO $$
BEGIN
  IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
    DROP EVENT TRIGGER IF EXISTS leasehold_watch;
    DROP EVENT TRIGGER IF EXISTS leasehold_watch_drop;
    CREATE EVENT TRIGGER leasehold_watch ON ddl_command_end EXECUTE FUNCTION leasehold.watch();
    CREATE EVENT TRIGGER leasehold_watch_drop ON sql_drop EXECUTE FUNCTION leasehold.watch();
    ALTER EVENT TRIGGER leasehold_watch ENABLE ALWAYS;
    ALTER EVENT TRIGGER leasehold_watch_drop ENABLE ALWAYS;
  ELSE
    RAISE NOTICE 'not a superuser: DDL on protected tables is not watched';
  END IF;
END $$;
