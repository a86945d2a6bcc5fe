-- The fence in PostgreSQL, version 2: marks beside the data, checked in the writer's own transaction.
--
--   psql -v ON_ERROR_STOP=1 -f install.sql      as a superuser, or as the owner of the database without watching DDL; again:
--                                               changes nothing; over version 1: brings it up to date, marks stay
--   SELECT leasehold.arm('jobs/settle', '<cluster>');                              once for the resource
--   SELECT leasehold.protect('paid', 'jobs/settle');                               the database itself refuses (forced mode)
--   GRANT USAGE ON SCHEMA leasehold TO app;                                        whoever writes
--   CALL leasehold.claim('lh1-…', 'jobs/settle');                                  a new holder's first act
--   BEGIN; SELECT leasehold.admit('lh1-…', 'jobs/settle'); …; COMMIT;              every write
--
-- SQLSTATE: LH001 stale, LH002 invalid, LH003 implausible, LH004 wrong cluster, LH005 mark lost, LH006 blocked,
-- LH007 not durable, LH008 version, LH009 conflict, LH010 not adopted. The detail carries `presented=33 mark=34`.
\ir sql/1-marks.sql
\ir sql/2-token.sql
\ir sql/3-check.sql
\ir sql/4-claim.sql
\ir sql/5-forced.sql
\ir sql/6-operator.sql
