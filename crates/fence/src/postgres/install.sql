-- Leasehold fence for PostgreSQL, version 5. Marks are stored next to the data and checked in the writer's own transaction.
--
--   psql -v ON_ERROR_STOP=1 -f install.sql      Run as a superuser, or as the database owner (then DDL on protected tables is not
--                                               checked). Idempotent and quiet. Upgrades versions 1 to 4 and
--                                               preserves their marks.
--   SELECT leasehold.arm('jobs/settle', '<cluster>');                              once per resource
--   SELECT leasehold.protect('paid', 'jobs/settle');                               optional: the database enforces the fence
--   SELECT leasehold.seal('jobs/settle', '\\x<32 bytes>');                          optional, permanent: only stamped tokens
--   GRANT USAGE ON SCHEMA leasehold TO app;                                        for each role that writes
--   CALL leasehold.claim('lh1-…', 'jobs/settle');                                  first call of a new holder, before it reads
--   BEGIN; SELECT leasehold.admit('lh1-…', 'jobs/settle'); …; COMMIT;              every write
--   psql "options='-c leasehold.token=lh1-…'"                                      or the token of a connection, for protected tables
--
-- SQLSTATE: LH001 stale, LH002 invalid, LH003 implausible, LH004 wrong cluster, LH005 mark lost, LH006 blocked,
-- LH007 not durable, LH008 version, LH009 conflict, LH010 not adopted. The detail holds the values: `presented=33 mark=34`.
\set QUIET on
\ir sql/1-marks.sql
\ir sql/2-token.sql
\ir sql/3-check.sql
\ir sql/4-claim.sql
\ir sql/5-guards.sql
\ir sql/6-protected-tables.sql
\ir sql/7-ddl-check.sql
\ir sql/8-probe.sql
\ir sql/9-operator.sql
