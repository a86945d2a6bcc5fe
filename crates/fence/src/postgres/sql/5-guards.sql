-- Tokens of sessions and connections, and the trigger functions that reject a write whose transaction was not admitted (F3).

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

-- Removes the session's token and the timeouts that came with it. A token of the connection counts again.
CREATE OR REPLACE FUNCTION leasehold.clear_session_token(resource text, slot bigint DEFAULT 0) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM set_config('leasehold.token_' || to_hex(leasehold.lock_key(resource, slot)), '', false);
  PERFORM set_config(t.name, t.reset_val, false) FROM pg_settings AS t
    WHERE t.name IN ('statement_timeout', 'idle_in_transaction_session_timeout')
      AND t.setting = current_setting('leasehold.session_timeout', true);
  PERFORM set_config('leasehold.session_timeout', '', false);
END $$;

-- Token for one fence in the setting `leasehold.token`, which a connection string sets: tokens separated by spaces, at most one for each
-- resource and slot. NULL if none is for the resource; tokens of other resources are ignored. A text that is not a token is refused
-- with its place. A token of the resource that cannot be admitted (of a shared lease, another slot or cluster) is returned, so that its refusal
-- says why. The whole list is checked once per session; only a digest of it is stored, as in leasehold.admit_full.
CREATE OR REPLACE FUNCTION leasehold.connection_token(of_name text, of_slot bigint) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  tokens text := coalesce(current_setting('leasehold.token', true), '');
  digest text := hashtextextended(tokens, 0)::text;
  is_checked boolean := coalesce(current_setting('leasehold.checked_tokens', true) = digest, false);
  guarded text := encode(substr(sha256(convert_to(of_name, 'UTF8')), 1, 8), 'hex');
  accepted text := (SELECT f.cluster FROM leasehold.fence AS f WHERE (f.name, f.slot) = (of_name, of_slot));
  chosen text;
  chosen_rank integer := 0;
  seen text[] := '{}';
  place integer := 0;
  scope text;
  rank integer;
  entry text;
  parsed record;
  message text;
  reasons text;
  advice text;
BEGIN
  FOREACH entry IN ARRAY string_to_array(tokens, ' ') LOOP
    CONTINUE WHEN entry = '';
    place := place + 1;
    IF NOT is_checked THEN
      BEGIN
        parsed := leasehold.parse_token(entry);
      EXCEPTION WHEN SQLSTATE 'LH002' OR SQLSTATE 'LH008' THEN
        GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, reasons = PG_EXCEPTION_DETAIL, advice = PG_EXCEPTION_HINT;
        RAISE EXCEPTION USING ERRCODE = SQLSTATE,
          MESSAGE = regexp_replace(message, '^([A-Z_]+): ', '\1: entry ' || place || ' of setting leasehold.token: '),
          DETAIL = reasons || ' entry=' || place, HINT = advice;
      END;
      scope := concat(substr(entry, 5, 16), substr(entry, 30, 27)); -- cluster, resource and slot
      IF parsed.slot IS NOT NULL AND scope = ANY (seen) THEN
        RAISE EXCEPTION USING ERRCODE = 'LH002',
          MESSAGE = 'TOKEN_INVALID: entry ' || place || ' of setting leasehold.token is for the resource and slot of an earlier entry',
          DETAIL = 'reason=shape entry=' || place, HINT = 'Set only the current token of each resource.';
      END IF;
      seen := seen || scope;
    END IF;
    rank := CASE WHEN substr(entry, 31, 16) = guarded THEN 1 + 2 * (substr(entry, 5, 16) = accepted)::integer
      + (substr(entry, 48, 9) = 'w' || lpad(to_hex(of_slot), 8, '0'))::integer ELSE 0 END;
    IF rank > chosen_rank THEN
      chosen := entry;
      chosen_rank := rank;
    END IF;
  END LOOP;
  IF place > 0 AND NOT is_checked THEN
    PERFORM set_config('leasehold.checked_tokens', digest, false);
  END IF;
  RETURN chosen;
END $$;

-- Fails unless this transaction was admitted, or its session or connection has a token. It then presents that token again, because only
-- the mark decides whether it is still current; the token cache does not decide. A token that another transaction presented does not
-- count. The token of the transaction overrides that of the session, which overrides that of the connection.
CREATE OR REPLACE FUNCTION leasehold.require_admitted(name text, slot bigint, key text, relation text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  presented pg_catalog.text := pg_catalog.current_setting('leasehold.token_' OPERATOR(pg_catalog.||) key, true);
  number bigint;
BEGIN
  IF coalesce(presented, '') OPERATOR(pg_catalog.=) '' THEN
    presented := leasehold.connection_token(name, slot);
  END IF;
  -- A token of the session or connection; that of a transaction comes after the id of the transaction and a colon.
  IF pg_catalog.length(presented) OPERATOR(pg_catalog.>=) 85 AND pg_catalog.strpos(presented, ':') OPERATOR(pg_catalog.=) 0 THEN
    number := leasehold.admit_uncached(presented, name, slot, NULL);
    RETURN;
  END IF;
  IF coalesce(pg_catalog.split_part(presented, ':', 1), '') OPERATOR(pg_catalog.<>)
      coalesce(pg_catalog.pg_current_xact_id_if_assigned()::pg_catalog.text, 'none') THEN
    RAISE EXCEPTION USING ERRCODE = 'LH002',
      MESSAGE = pg_catalog.concat('TOKEN_INVALID: table ', relation, ' is protected by ', name, CASE
        WHEN presented IS NULL AND pg_catalog.current_setting('leasehold.token', true) OPERATOR(pg_catalog.<>) ''
          THEN ', and no token in setting leasehold.token is for this resource'
        ELSE ', and this transaction presented no token' END),
      DETAIL = 'reason=absent', HINT = 'Call leasehold.admit with a current token in the same transaction before it writes, or '
        'leasehold.set_session_token once on a dedicated connection, or connect with the setting leasehold.token.';
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
-- The token of the connection counts if there is no other. It was not presented before the transaction began, so a snapshot that is older
-- than the claim, or a commit that is not durable, needs the check of the row, as in `admit`.
CREATE OR REPLACE FUNCTION leasehold.guard_body(of_name text, of_slot bigint, result text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $make$
DECLARE
  key bigint := leasehold.lock_key(of_name, of_slot);
  fence leasehold.fence := (SELECT f FROM leasehold.fence AS f WHERE (f.name, f.slot) = (of_name, of_slot));
  scope text := concat('-', fence.resource, '-w', lpad(to_hex(fence.slot), 8, '0'), '-');
  form text := concat('lh1-', fence.cluster, '-________', scope, repeat('_', 19), '-________');
  sealed_form text := concat(replace(form, 'lh1-', 'lh2-'), '-', repeat('_', 86));
  -- The setting is a token of the session, or the id of a transaction, a colon and its token.
  setting text := format('pg_catalog.current_setting(%L, true)', 'leasehold.token_' || to_hex(key));
  presented text := format('pg_catalog.substr(%1$s, pg_catalog.strpos(%1$s, %2$L) OPERATOR(pg_catalog.+) 1)', setting, ':');
  -- The connection's token for this resource and slot: 29 bytes before these fields, up to a space.
  tokens text := 'pg_catalog.current_setting(''leasehold.token'', true)';
  connections text := format('pg_catalog.split_part(pg_catalog.substr(%1$s, pg_catalog.strpos(%1$s, %2$L) OPERATOR(pg_catalog.-) 29), '' '', 1)',
    tokens, scope);
  is_current text := $check$((pg_catalog.pg_sequence_last_value(%2$L) OPERATOR(pg_catalog.#)
            pg_catalog.hashtextextended(%1$s, %3$s)) OPERATOR(pg_catalog.&) (-2)) OPERATOR(pg_catalog.=) 0
          AND (%1$s OPERATOR(pg_catalog.~~) %4$L OR %1$s OPERATOR(pg_catalog.~~) %5$L)
          AND pg_catalog.translate(pg_catalog.left(%1$s, 85), '0123456789abcdef', '') OPERATOR(pg_catalog.=) 'lh----w--'$check$;
  cache text := 'leasehold.token_cache_' || (key & 63);
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
          AND %2$s
          AND (pg_catalog.strpos(%3$s, ':') OPERATOR(pg_catalog.=) 0
            OR pg_catalog.starts_with(%3$s, pg_catalog.pg_current_xact_id_if_assigned()::pg_catalog.text OPERATOR(pg_catalog.||) ':'))
        THEN
          RETURN %8$s;
        ELSIF coalesce(%3$s, '') OPERATOR(pg_catalog.=) ''
          AND pg_catalog.current_setting('leasehold.checked_tokens', true) OPERATOR(pg_catalog.=)
            pg_catalog.hashtextextended(%4$s, 0)::pg_catalog.text
          AND pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) 'read committed'
          AND pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.<>) 'off'
          AND pg_catalog.pg_try_advisory_xact_lock_shared(%1$s)
          AND %5$s
        THEN
          RETURN %8$s;
        END IF;
      EXCEPTION WHEN query_canceled THEN
        RAISE;
      END;
      PERFORM leasehold.require_admitted(%6$L, %7$s, %9$L, TG_TABLE_NAME);
      RETURN %8$s;
    END $body$, key, format(is_current, presented, cache, key, form, sealed_form), setting, tokens,
    format(is_current, connections, cache, key, form, sealed_form), of_name, of_slot, result, to_hex(key));
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
