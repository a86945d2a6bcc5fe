-- The check: takes the fence's lock, compares the token with the mark and admits the rest of the transaction.

-- Digest of the label of the base backup from which this data directory was made; NULL if initdb made it. A base backup that starts without
-- recovery, and a standby that becomes a primary without a promotion, continue on the timeline of the original: only this label
-- distinguishes them. An owner of this schema that may not read files of the server does not know it.
CREATE OR REPLACE FUNCTION leasehold.backup_label() RETURNS text LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF has_function_privilege('pg_read_file(text, bigint, bigint, boolean)', 'EXECUTE') THEN
    RETURN left(md5(pg_read_file('backup_label.old', 0, 10000, true)), 16);
  END IF;
  RETURN NULL;
END $$;

-- Identity of the place where marks are stored: system identifier, timeline, database, table and backup label. It changes after a
-- failover, a point-in-time recovery, and in every base backup or restored dump, also in the same server; then the stored marks may be
-- older than the claims that holders were granted. A dump carries none of these.
CREATE OR REPLACE FUNCTION leasehold.server_id() RETURNS text LANGUAGE sql STABLE AS $$
  SELECT pg_catalog.concat_ws('/', (SELECT system_identifier FROM pg_catalog.pg_control_system()),
    pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8),
    (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()),
    pg_catalog.to_regclass('leasehold.fence')::pg_catalog.oid, leasehold.backup_label())
$$;

-- Advisory lock key of a fence. Writers hold the lock shared until they commit, a claim holds it exclusively. The server's lock
-- queue is fair, so new writers do not overtake a waiting claim; pg_locks lists the holders.
CREATE OR REPLACE FUNCTION leasehold.lock_key(name text, slot bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT pg_catalog.hashtextextended(name, 1818780001::bigint + slot)
$$;

-- Ends backends that hold or await the lock, although neither their role nor one that it can assume may use this schema. Any role
-- that can connect can acquire an advisory lock by its number. Returns how many it ended.
CREATE OR REPLACE FUNCTION leasehold.end_strangers(key bigint) RETURNS integer LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  stranger integer;
  ended integer := 0;
BEGIN
  FOR stranger IN SELECT DISTINCT l.pid FROM pg_locks AS l JOIN pg_stat_get_activity(l.pid) AS a ON a.pid = l.pid
    WHERE l.locktype = 'advisory' AND l.classid = ((key >> 32) & 4294967295)::oid AND l.objid = (key & 4294967295)::oid
      AND l.objsubid = 1 AND l.pid <> pg_backend_pid() AND a.usesysid IS NOT NULL
      AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
      AND NOT EXISTS (SELECT FROM pg_roles AS r WHERE pg_has_role(a.usesysid, r.oid, 'MEMBER')
        AND has_schema_privilege(r.oid, 'leasehold', 'USAGE')) LOOP
    BEGIN
      ended := ended + pg_terminate_backend(stranger)::integer;
    EXCEPTION WHEN insufficient_privilege THEN
      NULL; -- the owner of this function may not end it; the error of the caller names it
    END;
  END LOOP;
  RETURN ended;
END $$;

-- Acquires the lock until the transaction ends, within `ms` if it is set. The inner block is essential: a lock acquired while a cursor
-- runs is released if the cursor fails in a savepoint, although its earlier writes remain. A lock acquired in a block with an exception
-- handler belongs to the transaction.
CREATE OR REPLACE FUNCTION leasehold.lock(key bigint, exclusive boolean, ms bigint) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  callers text := current_setting('lock_timeout');
  capped boolean := ms IS NOT NULL AND (callers = '0' OR extract(epoch FROM callers::interval) * 1000 > ms);
BEGIN
  FOR attempt IN 1 .. 2 LOOP
    IF capped THEN
      -- The second half of the time follows after strangers were ended.
      PERFORM set_config('lock_timeout', greatest(1, ms / 2)::text, true);
    END IF;
    BEGIN
      IF exclusive THEN
        PERFORM pg_advisory_xact_lock(key);
      ELSE
        PERFORM pg_advisory_xact_lock_shared(key);
      END IF;
      PERFORM set_config('lock_timeout', callers, true) WHERE capped;
      RETURN;
    EXCEPTION WHEN query_canceled THEN
      RAISE;
    WHEN lock_not_available THEN
      IF NOT capped THEN
        RAISE;
      ELSIF attempt = 2 THEN
        RAISE EXCEPTION USING ERRCODE = 'LH006', MESSAGE = 'UNAVAILABLE: the fence was locked for ' || ms || ' ms',
          DETAIL = 'blocking_pids=' || array_to_string(leasehold.lock_holders(key), ','),
          HINT = 'A holder stops, because its lease has ended. An operator ends these backends and retries.';
      END IF;
      PERFORM leasehold.end_strangers(key);
    END;
  END LOOP;
END $$;

-- Marks of versions 1 and 2 name only the server. A dump of those versions must not be restored into the server that wrote it.
UPDATE leasehold.fence SET server_id = leasehold.server_id()
  WHERE server_id ~ '^[0-9]+/[0-9A-F]{8}$' AND starts_with(leasehold.server_id(), server_id || '/')
    AND current_setting('leasehold.upgraded_from', true) IN ('1', '2');

-- HMAC-SHA256 of a text, with the two padded forms of a key.
CREATE OR REPLACE FUNCTION leasehold.hmac_sha256(inner_pad bytea, outer_pad bytea, message text) RETURNS bytea
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
  SELECT sha256(outer_pad || sha256(inner_pad || convert_to(message, 'UTF8')))
$$;

-- Whether a token carries a stamp that a key of this fence made for exactly this text: `<sealed text>.<64 hexadecimal digits>`. Digests are
-- compared, so that the time of the comparison shows nothing about the stamp.
CREATE OR REPLACE FUNCTION leasehold.is_stamped(of_fence integer, token text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT length(token) = 237 AND EXISTS (SELECT FROM leasehold.stamp_key AS k WHERE k.fence = of_fence
    AND sha256(leasehold.hmac_sha256(k.inner_pad, k.outer_pad, left(token, 172))) = sha256(decode(right(token, 64), 'hex')))
$$;

-- 128 bits of a digest that cannot be forged, to recognize the text that set the mark of a sealed fence.
CREATE OR REPLACE FUNCTION leasehold.text_digest(token text) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
  SELECT substr(sha256(convert_to(token, 'UTF8')), 1, 16)
$$;

-- Fails: a sealed fence accepts a token only with its stamp.
CREATE OR REPLACE FUNCTION leasehold.refuse_unstamped(name text, token text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'LH002',
    MESSAGE = 'TOKEN_INVALID: ' || CASE WHEN token LIKE 'lh1-%' THEN 'the token is not sealed, and fence ' || name || ' is'
      WHEN length(token) = 172 THEN 'the token has no stamp for the sealed fence ' || name
      ELSE 'the stamp of the token is not one of the sealed fence ' || name END,
    DETAIL = 'reason=' || CASE WHEN token LIKE 'lh1-%' THEN 'unsealed' ELSE 'stamp' END,
    HINT = 'Present the sealed text of the grant with its stamp for this database: <text>.<stamp>.';
END $$;

-- Parses a token, finds its fence and checks everything that needs no lock. A caller that takes the lock checks the stamp again.
CREATE OR REPLACE FUNCTION leasehold.parse_for(token text, of_resource text, of_slot bigint, OUT number bigint,
  OUT incarnation text, OUT name text, OUT slot bigint) LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t record := leasehold.parse_token(token);
  guarded text := coalesce(encode(substr(sha256(convert_to(of_resource, 'UTF8')), 1, 8), 'hex'), t.resource);
  fence leasehold.fence;
  reason text;
BEGIN
  number := t.number;
  incarnation := t.incarnation;
  SELECT f.* INTO fence FROM leasehold.fence AS f WHERE f.resource = guarded AND f.slot = coalesce(of_slot, t.slot, 0);
  IF fence.id IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'LH005',
      MESSAGE = 'STORAGE_FAILED: no mark is stored for resource ' || coalesce(of_resource, t.resource) || ', slot '
        || coalesce(of_slot, t.slot, 0),
      DETAIL = 'reason=missing', HINT = 'If nothing was written yet, call leasehold.arm.';
  ELSIF fence.cluster <> t.cluster THEN
    RAISE EXCEPTION USING ERRCODE = 'LH004',
      MESSAGE = 'WRONG_CLUSTER: the token is from cluster ' || t.cluster || ', this fence accepts cluster ' || fence.cluster,
      DETAIL = 'reason=cluster', HINT = 'Acquire the lease from the cluster that this fence is armed for.';
  END IF;
  name := fence.name;
  slot := fence.slot;
  reason := CASE WHEN t.resource <> guarded THEN 'resource' WHEN t.slot IS NULL THEN 'shared'
    WHEN t.slot <> fence.slot THEN 'slot' END;
  IF reason IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'LH002',
      MESSAGE = 'TOKEN_INVALID: ' || CASE reason
        WHEN 'resource' THEN 'the token is for another resource than ' || fence.name
        WHEN 'shared' THEN 'the token is of a shared lease or a reservation, ' || fence.name || ' needs an exclusive one'
        ELSE 'the token is for slot ' || t.slot || ', this fence guards slot ' || fence.slot END,
      DETAIL = 'reason=' || reason, HINT = 'Present the token of the resource and slot that guard this write.';
  ELSIF number > (extract(epoch FROM clock_timestamp()) * 1000 - 1735689600000 + 86400000)::bigint << 22 THEN
    RAISE EXCEPTION USING ERRCODE = 'LH003',
      MESSAGE = 'TOKEN_IMPLAUSIBLE: token ' || number || ' is more than one day ahead of this server''s clock',
      DETAIL = 'reason=implausible presented=' || number, HINT = 'Compare the clocks and verify the origin of the token.';
  END IF;
  IF fence.is_sealed AND NOT leasehold.is_stamped(fence.id, token) THEN
    PERFORM leasehold.refuse_unstamped(fence.name, token);
  END IF;
END $$;

-- Makes this transaction's commit durable before it is acknowledged; fails if the server cannot.
CREATE OR REPLACE FUNCTION leasehold.require_durable() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF current_setting('fsync') = 'off' THEN
    RAISE EXCEPTION USING ERRCODE = 'LH007', MESSAGE = 'CONFIG: fsync is off, so the mark can be lost in a power failure',
      DETAIL = 'setting=fsync have=off want=on', HINT = 'Set fsync = on.';
  END IF;
  IF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
END $$;

-- Compares a token with the mark. Raises if it is not admitted; returns the previous incarnation if the token is of another one.
-- The caller must have read the row under the fence's lock.
CREATE OR REPLACE FUNCTION leasehold.check_mark(fence leasehold.fence, presented bigint, incarnation text) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE reason text := CASE WHEN fence.state = 'lost' THEN 'lost' WHEN fence.server_id <> leasehold.server_id() THEN 'moved' END;
BEGIN
  IF reason IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'LH005',
      MESSAGE = 'STORAGE_FAILED: the mark of ' || fence.name || CASE reason WHEN 'lost' THEN ' was declared lost'
        ELSE ' was stored by another server or database (' || fence.server_id || '): failover, recovery, copy or restore' END,
      DETAIL = 'reason=' || reason, HINT = 'Call leasehold.rearm with a number that no holder was granted yet.';
  ELSIF presented < fence.mark THEN
    RAISE EXCEPTION USING ERRCODE = 'LH001',
      MESSAGE = 'STALE_TOKEN: token ' || presented || ' is below the mark ' || fence.mark || ': a later holder has claimed',
      DETAIL = 'reason=stale presented=' || presented || ' mark=' || fence.mark, HINT = 'Stop. This lease has ended.';
  ELSIF fence.incarnation <> incarnation AND fence.is_strict THEN
    RAISE EXCEPTION USING ERRCODE = 'LH010',
      MESSAGE = 'NOT_ADOPTED: token ' || presented || ' is of incarnation ' || incarnation || ', this strict fence follows '
        || fence.incarnation,
      DETAIL = 'reason=incarnation presented=' || presented || ' incarnation=' || incarnation,
      HINT = 'If the restore was intended, call leasehold.adopt with this incarnation.';
  END IF;
  RETURN CASE WHEN fence.incarnation <> incarnation THEN fence.incarnation END;
END $$;

-- Full check, for a token whose text this session has not checked yet: parses it and compares it with the row. A higher number
-- raises the mark under the exclusive lock. The lock mode is chosen before locking, because two sessions that upgrade a shared
-- lock to an exclusive one would deadlock.
CREATE OR REPLACE FUNCTION leasehold.admit_full(token text, resource text, slot bigint, ms bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  p record := leasehold.parse_for(token, resource, slot);
  key bigint := leasehold.lock_key(p.name, p.slot);
  read_committed boolean := current_setting('transaction_isolation') = 'read committed';
  f leasehold.fence;
BEGIN
  PERFORM leasehold.require_durable();
  SELECT g.* INTO f FROM leasehold.fence AS g WHERE g.name = p.name AND g.slot = p.slot;
  IF p.number > coalesce(f.mark, 0) OR (p.number = f.mark AND p.incarnation IS DISTINCT FROM f.incarnation) THEN
    PERFORM leasehold.lock(key, true, ms);
    SELECT g.* INTO f FROM leasehold.fence AS g WHERE g.name = p.name AND g.slot = p.slot FOR UPDATE;
  ELSE
    PERFORM leasehold.lock(key, false, ms);
    IF read_committed THEN
      SELECT g.* INTO f FROM leasehold.fence AS g WHERE g.name = p.name AND g.slot = p.slot;
    ELSE
      -- A snapshot older than a claim fails here with 40001; the caller must retry the transaction.
      SELECT g.* INTO f FROM leasehold.fence AS g WHERE g.name = p.name AND g.slot = p.slot FOR SHARE;
    END IF;
  END IF;
  IF f.is_sealed AND NOT leasehold.is_stamped(f.id, token) THEN
    PERFORM leasehold.refuse_unstamped(f.name, token); -- it was sealed, or its key retired, since the token was parsed
  END IF;
  PERFORM leasehold.check_mark(f, p.number, p.incarnation);
  IF f.mark IS DISTINCT FROM p.number OR f.incarnation IS DISTINCT FROM p.incarnation THEN
    UPDATE leasehold.fence AS g SET state = 'armed', mark = p.number, incarnation = p.incarnation,
        sequence = CASE g.mark WHEN p.number THEN g.sequence END, token_digest = hashtextextended(token, 1),
        text_digest = CASE WHEN f.is_sealed THEN leasehold.text_digest(token) END,
        server_started_at = pg_postmaster_start_time() WHERE g.id = f.id;
  ELSIF read_committed THEN
    -- The same token after a server restart: one of its writers records that, the others do not wait for it.
    UPDATE leasehold.fence AS g SET token_digest = hashtextextended(token, 1), server_started_at = pg_postmaster_start_time(),
        text_digest = CASE WHEN f.is_sealed THEN leasehold.text_digest(token) END
      WHERE g.id = (SELECT h.id FROM leasehold.fence AS h WHERE h.id = f.id AND (h.token_digest, h.server_started_at, h.text_digest)
        IS DISTINCT FROM (hashtextextended(token, 1), pg_postmaster_start_time(), CASE WHEN f.is_sealed THEN leasehold.text_digest(token) END)
        FOR UPDATE SKIP LOCKED);
  END IF;
  IF f.protects_tables THEN
    PERFORM set_config('leasehold.token_' || to_hex(key), pg_current_xact_id()::text || ':' || token, true);
  END IF;
  -- This session need not parse this text again. Only a digest is stored, because the pool's next client can read it.
  PERFORM set_config('leasehold.checked_token', hashtextextended(token, 0)::text, false);
  RETURN p.number;
END $$;

-- Lowers a timeout of this transaction to `ms`, so that it ends with the lease it was admitted under. A shorter timeout that the
-- caller has set stays.
CREATE OR REPLACE FUNCTION leasehold.cap_timeout(setting text, ms bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE caller_ms numeric := extract(epoch FROM current_setting(setting)::interval) * 1000;
BEGIN
  IF caller_ms = 0 OR caller_ms > ms THEN
    PERFORM set_config(setting, ms::text, true);
  END IF;
END $$;

-- A duration in milliseconds, within the range of the server's timeout settings.
CREATE OR REPLACE FUNCTION leasehold.milliseconds(duration interval) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN duration IS NOT NULL THEN greatest(1, least(2147483647,
    pg_catalog.ceil(pg_catalog.date_part('epoch', duration) OPERATOR(pg_catalog.*) 1000)))::pg_catalog.int8 END
$$;

-- The check against the row, for a token that is not in the cache. It waits for the lock for at most `remaining`.
CREATE OR REPLACE FUNCTION leasehold.admit_uncached(token text, resource text, slot bigint, remaining interval) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  ms bigint := leasehold.milliseconds(remaining);
  key bigint := leasehold.lock_key(resource, coalesce(slot, 0));
  digest bigint := hashtextextended(token, key) & -2;
  cached bigint;
  f leasehold.fence;
BEGIN
  IF current_setting('leasehold.checked_token', true) = hashtextextended(token, 0)::text
    AND current_setting('transaction_isolation') = 'read committed'
  THEN
    PERFORM leasehold.lock(key, false, ms);
    -- The snapshot is taken after the lock, so it contains every acknowledged claim.
    SELECT g.* INTO f FROM leasehold.fence AS g WHERE g.name = admit_uncached.resource
      AND g.slot = coalesce(admit_uncached.slot, 0)
      AND g.token_digest = hashtextextended(token, 1) AND g.server_started_at = pg_postmaster_start_time()
      -- A caller can find another text with the same token_digest.
      AND (NOT g.is_sealed OR g.text_digest = leasehold.text_digest(token));
  END IF;
  IF f.mark IS NULL THEN
    RETURN leasehold.admit_full(token, resource, slot, ms);
  END IF;
  PERFORM leasehold.require_durable();
  -- Only the digest of a committed row may be cached: this transaction has written nothing, or an earlier one has written the row. The ids
  -- of subtransactions follow that of their transaction, so a row of this one is not older than it.
  -- Another fence's digest is replaced only sometimes. That of a sealed fence is never cached: 63 bits can be forged.
  IF NOT f.is_sealed THEN
    cached := coalesce(pg_sequence_last_value(('leasehold.token_cache_' || (key & 63))::regclass), 0);
    IF (cached = 0 OR random() < 0.01) AND (pg_current_xact_id_if_assigned() IS NULL
        OR (SELECT age(g.xmin) > 0 FROM leasehold.fence AS g WHERE g.id = f.id)) THEN
      PERFORM setval(('leasehold.token_cache_' || (key & 63))::regclass, digest | f.protects_tables::integer);
    END IF;
  END IF;
  IF f.protects_tables THEN
    PERFORM set_config('leasehold.token_' || to_hex(key), pg_current_xact_id()::text || ':' || token, true);
  END IF;
  RETURN f.mark;
END $$;

-- Admits the rest of this transaction. Its writes commit under the mark they were checked against, or not at all: no claim
-- succeeds before the transaction ends. `remaining` is the remaining time of the lease. Pass NULL for a single statement outside
-- of a transaction block, which cannot stay idle.
--
-- Every write calls this function, so it is optimized for speed. A session that has already checked this token only acquires the
-- lock and reads the token cache; if the digest is not cached, it reads the row. The server prepares each expression again in
-- every transaction, so there are few. It sets no search path, which would double the cost, and therefore qualifies operators.
CREATE OR REPLACE FUNCTION leasehold.admit(token text, resource text DEFAULT NULL, slot bigint DEFAULT NULL,
  remaining interval DEFAULT '10 s') RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  cached bigint;
  number bigint;
  ms bigint;
  ignored pg_catalog.text;
BEGIN
  -- Difference of the cached digest to this token's: 0 none, 1 tables are protected. The lock comes first: every acknowledged
  -- claim has cleared the digest of an older token. The try-lock does not overtake waiting claims.
  -- The inner block keeps the lock until the transaction ends, see leasehold.lock.
  BEGIN
    cached := CASE WHEN pg_catalog.current_setting('leasehold.checked_token', true) OPERATOR(pg_catalog.=)
          pg_catalog.hashtextextended(token, 0)::pg_catalog.text
        AND pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) 'read committed'
        AND pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.<>) 'off'
        AND pg_catalog.pg_try_advisory_xact_lock_shared(
          pg_catalog.hashtextextended(resource, 1818780001::pg_catalog.int8 OPERATOR(pg_catalog.+) coalesce(slot, 0)))
      THEN pg_catalog.pg_sequence_last_value(('leasehold.token_cache_' OPERATOR(pg_catalog.||) (pg_catalog.hashtextextended(resource,
          1818780001::pg_catalog.int8 OPERATOR(pg_catalog.+) coalesce(slot, 0)) OPERATOR(pg_catalog.&) 63)::pg_catalog.text)::pg_catalog.regclass)
        OPERATOR(pg_catalog.#) (pg_catalog.hashtextextended(token,
          pg_catalog.hashtextextended(resource, 1818780001::pg_catalog.int8 OPERATOR(pg_catalog.+) coalesce(slot, 0))) OPERATOR(pg_catalog.&) (-2)) END;
  EXCEPTION WHEN query_canceled THEN
    RAISE;
  END;
  number := CASE WHEN cached OPERATOR(pg_catalog.=) 0 THEN pg_catalog.substr(token, 58, 19)::pg_catalog.int8
    -- The triggers read the token from a setting that names this transaction, so it is useless to the pool's next client.
    WHEN cached OPERATOR(pg_catalog.=) 1 THEN pg_catalog.substr(pg_catalog.split_part(pg_catalog.set_config('leasehold.token_' OPERATOR(pg_catalog.||) pg_catalog.to_hex(
        pg_catalog.hashtextextended(resource, 1818780001::pg_catalog.int8 OPERATOR(pg_catalog.+) coalesce(slot, 0))),
      pg_catalog.pg_current_xact_id()::pg_catalog.text OPERATOR(pg_catalog.||) ':' OPERATOR(pg_catalog.||) token, true),
      ':', 2), 58, 19)::pg_catalog.int8
    ELSE leasehold.admit_uncached(token, resource, slot, remaining) END;
  IF remaining IS NOT NULL THEN
    ms := greatest(1, least(2147483647,
      pg_catalog.ceil(pg_catalog.date_part('epoch', remaining) OPERATOR(pg_catalog.*) 1000)))::pg_catalog.int8;
    IF pg_catalog.current_setting('statement_timeout') OPERATOR(pg_catalog.=) '0' THEN
      ignored := pg_catalog.set_config('statement_timeout', ms::pg_catalog.text, true);
    ELSE
      PERFORM leasehold.cap_timeout('statement_timeout', ms);
    END IF;
    IF pg_catalog.current_setting('idle_in_transaction_session_timeout') OPERATOR(pg_catalog.=) '0' THEN
      ignored := pg_catalog.set_config('idle_in_transaction_session_timeout', ms::pg_catalog.text, true);
    ELSE
      PERFORM leasehold.cap_timeout('idle_in_transaction_session_timeout', ms);
    END IF;
  END IF;
  RETURN number;
END $$;

-- Checks a single statement outside of a transaction block, inside its condition:
-- `AND (SELECT leasehold.admit_inline('lh1-…', 'jobs/settle', 0)) > 0`. The planner inlines this expression into the statement, so
-- it runs as the caller, who may read the token cache.
CREATE OR REPLACE FUNCTION leasehold.admit_inline(token text, resource text, slot bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT CASE CASE WHEN pg_catalog.current_setting('leasehold.checked_token', true) OPERATOR(pg_catalog.=)
        pg_catalog.hashtextextended(token, 0)::pg_catalog.text
      AND pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) 'read committed'
      AND pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.<>) 'off'
      AND pg_catalog.pg_try_advisory_xact_lock_shared(
        pg_catalog.hashtextextended(resource, 1818780001::pg_catalog.int8 OPERATOR(pg_catalog.+) slot))
    THEN pg_catalog.pg_sequence_last_value(('leasehold.token_cache_' OPERATOR(pg_catalog.||) (pg_catalog.hashtextextended(resource,
        1818780001::pg_catalog.int8 OPERATOR(pg_catalog.+) slot) OPERATOR(pg_catalog.&) 63)::pg_catalog.text)::pg_catalog.regclass)
      OPERATOR(pg_catalog.#) (pg_catalog.hashtextextended(token,
        pg_catalog.hashtextextended(resource, 1818780001::pg_catalog.int8 OPERATOR(pg_catalog.+) slot)) OPERATOR(pg_catalog.&) (-2)) END
    WHEN 0 THEN 1
    WHEN 1 THEN pg_catalog.length(pg_catalog.set_config('leasehold.token_' OPERATOR(pg_catalog.||) pg_catalog.to_hex(
        pg_catalog.hashtextextended(resource, 1818780001::pg_catalog.int8 OPERATOR(pg_catalog.+) slot)),
      pg_catalog.pg_current_xact_id()::pg_catalog.text OPERATOR(pg_catalog.||) ':' OPERATOR(pg_catalog.||) token, true))::pg_catalog.int8
    ELSE leasehold.admit(token, resource, slot, NULL) END
$$;

-- Admits a sequenced write; the caller numbers the writes of one lease in ascending order. Returns NULL if the write is new. Otherwise
-- it is a late duplicate: returns the last sequence applied, and the caller must not write.
CREATE OR REPLACE FUNCTION leasehold.admit_once(token text, sequence bigint, resource text DEFAULT NULL,
  slot bigint DEFAULT NULL, remaining interval DEFAULT '10 s') RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  number bigint := leasehold.admit(token, resource, slot, remaining);
  p record := leasehold.parse_for(token, resource, slot);
  f leasehold.fence;
BEGIN
  IF sequence IS NULL OR sequence < 0 THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'INVALID_ARGUMENT: sequence is ' || coalesce(sequence::text, 'NULL') || ', expected 0 or more',
      HINT = 'Number the writes of a lease from 0 in ascending order.';
  END IF;
  SELECT g.* INTO f FROM leasehold.fence AS g WHERE g.name = p.name AND g.slot = p.slot FOR UPDATE;
  IF f.sequence >= admit_once.sequence THEN
    RETURN f.sequence;
  END IF;
  UPDATE leasehold.fence AS g SET sequence = admit_once.sequence WHERE g.id = f.id;
  RETURN NULL;
END $$;
