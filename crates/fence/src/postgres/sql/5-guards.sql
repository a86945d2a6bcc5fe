-- Session tokens, and the trigger functions that reject a write whose transaction was not admitted (F3).

-- Stores a token in the session, with timeouts for its transactions. Only timeouts that an earlier call set, or longer ones, are
-- replaced.
CREATE OR REPLACE FUNCTION leasehold.store_session_token(token text, resource text, slot bigint, remaining interval) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  p record := leasehold.parse_for(token, resource, slot);
  ms bigint := least(2147483647, ceil(extract(epoch FROM remaining) * 1000));
  previous text := current_setting('leasehold.session_timeout', true);
  number bigint := leasehold.admit_uncached(token, p.name, p.slot, remaining);
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
  number := leasehold.admit_full(token, resource, slot, leasehold.milliseconds(remaining));
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
-- decides whether it is still current; the token cache does not decide. A token that another transaction presented does not count.
CREATE OR REPLACE FUNCTION leasehold.require_admitted(name text, slot bigint, key text, relation text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  presented pg_catalog.text := pg_catalog.current_setting('leasehold.token_' OPERATOR(pg_catalog.||) key, true);
  number bigint;
BEGIN
  -- A token of the session; that of a transaction comes after the id of the transaction and a colon.
  IF pg_catalog.length(presented) OPERATOR(pg_catalog.>=) 85 AND pg_catalog.strpos(presented, ':') OPERATOR(pg_catalog.=) 0 THEN
    number := leasehold.admit_uncached(presented, name, slot, NULL);
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
  number := leasehold.admit_uncached(pg_catalog.split_part(presented, ':', 2), name, slot, NULL);
END $$;

-- Name of the trigger functions of one fence.
CREATE OR REPLACE FUNCTION leasehold.guard_name(name text, slot bigint) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT 'guard_' OPERATOR(pg_catalog.||) pg_catalog.to_hex(leasehold.lock_key(name, slot))
$$;

-- Body of the trigger functions of one fence. The statement trigger fires after the statement, so that the statement itself may contain
-- the check. Like `admit` it compares the presented token, which can be any text, with the token cache under the lock; if the digest is
-- not cached, or the text does not have the form of a token of this fence, it presents the token again. The inner block keeps the lock
-- until the transaction ends, see leasehold.lock. Each fence has its own functions, because passing trigger arguments would double the
-- cost. A sealed fence always presents the token again: a text with a cached digest can be forged (A8).
CREATE OR REPLACE FUNCTION leasehold.guard_body(of_name text, of_slot bigint, result text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $make$
DECLARE
  key bigint := leasehold.lock_key(of_name, of_slot);
  fence leasehold.fence := (SELECT f FROM leasehold.fence AS f WHERE (f.name, f.slot) = (of_name, of_slot));
  form text := concat('lh1-', fence.cluster, '-________-', fence.resource, '-w', lpad(to_hex(fence.slot), 8, '0'), '-', repeat('_', 19),
    '-________');
  sealed_form text := concat(replace(form, 'lh1-', 'lh2-'), '-', repeat('_', 86));
  -- The setting is a token of the session, or the id of a transaction, a colon and its token.
  setting text := format('pg_catalog.current_setting(%L, true)', 'leasehold.token_' || to_hex(key));
  presented text := format('pg_catalog.substr(%1$s, pg_catalog.strpos(%1$s, %2$L) OPERATOR(pg_catalog.+) 1)', setting, ':');
BEGIN
  IF fence.is_sealed THEN
    RETURN format($body$
    BEGIN
      PERFORM leasehold.require_admitted(%1$L, %2$s, %3$L, TG_TABLE_NAME);
      RETURN %4$s;
    END $body$, of_name, of_slot, to_hex(key), result);
  END IF;
  RETURN format($body$
    BEGIN
      BEGIN
        IF pg_catalog.pg_try_advisory_xact_lock_shared(%1$s)
          AND ((pg_catalog.pg_sequence_last_value(%3$L) OPERATOR(pg_catalog.#)
            pg_catalog.hashtextextended(%2$s, %1$s)) OPERATOR(pg_catalog.&) (-2)) OPERATOR(pg_catalog.=) 0
          AND (%2$s OPERATOR(pg_catalog.~~) %8$L OR %2$s OPERATOR(pg_catalog.~~) %9$L)
          AND pg_catalog.translate(pg_catalog.left(%2$s, 85), '0123456789abcdef', '') OPERATOR(pg_catalog.=) 'lh----w--'
          AND (pg_catalog.strpos(%10$s, ':') OPERATOR(pg_catalog.=) 0
            OR pg_catalog.starts_with(%10$s, pg_catalog.pg_current_xact_id_if_assigned()::pg_catalog.text OPERATOR(pg_catalog.||) ':'))
        THEN
          RETURN %7$s;
        END IF;
      EXCEPTION WHEN query_canceled THEN
        RAISE;
      END;
      PERFORM leasehold.require_admitted(%4$L, %5$s, %6$L, TG_TABLE_NAME);
      RETURN %7$s;
    END $body$, key, presented, 'leasehold.token_cache_' || (key & 63), of_name, of_slot, to_hex(key), result,
    form, sealed_form, setting);
END $make$;

-- Creates the trigger functions of one fence: for statements, and for rows that are written through a table without a guard.
CREATE OR REPLACE FUNCTION leasehold.create_guard(of_name text, of_slot bigint) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE guard text := leasehold.guard_name(of_name, of_slot);
BEGIN
  EXECUTE format('CREATE OR REPLACE FUNCTION leasehold.%s() RETURNS trigger LANGUAGE plpgsql AS %L', guard,
    leasehold.guard_body(of_name, of_slot, 'NULL'));
  EXECUTE format('CREATE OR REPLACE FUNCTION leasehold.%s_row() RETURNS trigger LANGUAGE plpgsql AS %L', guard,
    leasehold.guard_body(of_name, of_slot, 'coalesce(NEW, OLD)'));
  RETURN guard;
END $$;
