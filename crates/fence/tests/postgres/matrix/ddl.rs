//! DDL commands that could change the protected table, its guards, or what its columns are made of.

use super::layout::TableLayout::{self, Inherited, Partition, PartitionedRoot, Plain, Typed};

/// A command with the layouts it applies to, and the command that undoes it if it is allowed without a token.
pub type DdlAttack = (&'static [TableLayout], &'static str, &'static str);

const ANY: &[TableLayout] = &TableLayout::ALL;
const BELOW: &[TableLayout] = &[Partition, Inherited];

pub const ATTACKS: [DdlAttack; 79] = [
    // The table itself.
    (ANY, "ALTER TABLE app.t ADD COLUMN extra int DEFAULT 1", ""),
    (ANY, "ALTER TABLE app.t DROP COLUMN mood", ""),
    (ANY, "ALTER TABLE app.t ALTER w TYPE int USING w + 1", ""),
    (ANY, "ALTER TABLE app.t RENAME COLUMN v TO x", ""),
    (ANY, "ALTER TABLE app.t RENAME TO u", ""),
    (ANY, "ALTER TABLE app.t ALTER v SET DEFAULT 7", ""),
    (ANY, "ALTER TABLE app.t ADD CHECK (v < 1000)", ""),
    (ANY, "ALTER TABLE app.t DROP CONSTRAINT refers", ""),
    (ANY, "ALTER TABLE app.t SET UNLOGGED", ""),
    (ANY, "ALTER TABLE app.t ENABLE ROW LEVEL SECURITY", ""),
    (ANY, "ALTER TABLE app.t REPLICA IDENTITY FULL", ""),
    (ANY, "ALTER INDEX app.t RENAME TO u", ""),
    (ANY, "ALTER VIEW app.t RENAME TO u", ""),
    (ANY, "ALTER SEQUENCE app.t RENAME TO u", ""),
    (ANY, "DROP TABLE app.t CASCADE", ""),
    (ANY, "DROP TABLE app.referenced CASCADE", ""),
    (ANY, "ALTER SCHEMA app RENAME TO gone", ""),
    (ANY, "DROP SCHEMA app CASCADE", ""),
    (
        &[Plain],
        "CREATE TABLE app.above (LIKE app.t INCLUDING ALL) PARTITION BY LIST (region); ALTER TABLE app.above ATTACH PARTITION app.t DEFAULT",
        "",
    ),
    (&[Plain, Inherited], "CREATE TABLE app.above (id int NOT NULL, v int); ALTER TABLE app.t INHERIT app.above", ""),
    (&[Plain, Inherited], "CREATE TABLE app.loose (LIKE app.t INCLUDING ALL); ALTER TABLE app.loose INHERIT app.t", ""),
    (&[Plain, Inherited], "CREATE TABLE app.heir () INHERITS (app.t)", "DROP TABLE app.heir"),
    (&[Plain, Inherited], "CREATE TEMP TABLE heir () INHERITS (app.t)", ""),
    // Its guards.
    (ANY, "ALTER TABLE app.t DISABLE TRIGGER USER", ""),
    (ANY, "ALTER TABLE app.t DISABLE TRIGGER leasehold_guard", ""),
    (ANY, "ALTER TABLE app.t ENABLE TRIGGER leasehold_guard", ""),
    (ANY, "ALTER TABLE app.t ENABLE REPLICA TRIGGER leasehold_guard", ""),
    (&[Plain, Partition, Inherited, Typed], "ALTER TABLE app.t DISABLE TRIGGER leasehold_guard_row", ""),
    (&[Plain, Partition, Inherited, Typed], "DROP TRIGGER leasehold_guard_row ON app.t", ""),
    (ANY, "DROP TRIGGER leasehold_guard ON app.t", ""),
    (ANY, "ALTER TRIGGER leasehold_guard ON app.t RENAME TO gone", ""),
    (
        ANY,
        "CREATE OR REPLACE TRIGGER leasehold_guard AFTER INSERT ON app.t FOR EACH STATEMENT EXECUTE FUNCTION app.spill()",
        "",
    ),
    (ANY, "SELECT leasehold.unprotect('app.t')", ""),
    (ANY, "SELECT leasehold.repair_guards()", ""),
    (ANY, "DELETE FROM leasehold.protected", ""),
    (ANY, "ALTER EVENT TRIGGER leasehold_check_ddl DISABLE", ""),
    (ANY, "DROP SCHEMA leasehold CASCADE", ""),
    // Tables above it.
    (BELOW, "ALTER TABLE app.root ADD COLUMN extra int DEFAULT 1", ""),
    (BELOW, "ALTER TABLE app.root DROP COLUMN mood", ""),
    (BELOW, "ALTER TABLE app.root ALTER w TYPE int USING w + 1", ""),
    (BELOW, "ALTER TABLE app.root RENAME COLUMN w TO x", ""),
    (BELOW, "ALTER TABLE app.root ADD CHECK (v < 1000)", ""),
    (BELOW, "ALTER TABLE app.parent ALTER mood SET NOT NULL", ""),
    (BELOW, "DROP TABLE app.root CASCADE", ""),
    (BELOW, "DROP TABLE app.parent CASCADE", ""),
    (&[Inherited], "DROP TABLE app.second CASCADE", ""),
    (&[Inherited], "ALTER TABLE app.t NO INHERIT app.second", ""),
    (&[Partition], "ALTER TABLE app.parent DETACH PARTITION app.t", ""),
    (&[Partition], "ALTER TABLE app.parent DETACH PARTITION app.t CONCURRENTLY", ""),
    (&[Partition], "ALTER TABLE app.root DISABLE TRIGGER USER", "ALTER TABLE app.root ENABLE TRIGGER USER"),
    (
        &[Partition],
        "ALTER TABLE app.root DETACH PARTITION app.parent",
        "ALTER TABLE app.root ATTACH PARTITION app.parent FOR VALUES IN ('eu')",
    ),
    // Tables below it.
    (&[PartitionedRoot], "ALTER TABLE app.t DETACH PARTITION app.kid", ""),
    (&[PartitionedRoot], "ALTER TABLE app.t DETACH PARTITION app.kid CONCURRENTLY", ""),
    (&[PartitionedRoot, Inherited], "ALTER TABLE app.kid DISABLE TRIGGER leasehold_guard", ""),
    (&[PartitionedRoot, Inherited], "DROP TABLE app.kid", ""),
    (&[PartitionedRoot], "CREATE TABLE app.more PARTITION OF app.t FOR VALUES IN ('asia')", "DROP TABLE app.more"),
    (
        &[PartitionedRoot],
        "CREATE TABLE app.loose (LIKE app.t INCLUDING ALL); ALTER TABLE app.t ATTACH PARTITION app.loose FOR VALUES IN ('asia')",
        "",
    ),
    // What its columns are made of.
    (ANY, "DROP TYPE app.mood CASCADE", ""),
    (ANY, "ALTER TYPE app.mood RENAME VALUE 'calm' TO 'mad'", ""),
    (ANY, "ALTER TYPE app.mood ADD VALUE 'new'", ""),
    (ANY, "DROP DOMAIN app.cents CASCADE", ""),
    (ANY, "ALTER DOMAIN app.cents ADD CHECK (VALUE < 1000)", ""),
    (ANY, "DROP TYPE app.pair CASCADE", ""),
    (ANY, "ALTER TYPE app.pair RENAME ATTRIBUTE a TO z", ""),
    (ANY, "DROP FUNCTION app.twice CASCADE", ""),
    (ANY, "DROP EXTENSION citext CASCADE", ""),
    (&[Typed], "ALTER TYPE app.line ADD ATTRIBUTE extra int CASCADE", ""),
    (&[Typed], "ALTER TYPE app.line DROP ATTRIBUTE mood CASCADE", ""),
    (&[Typed], "ALTER TYPE app.line ALTER ATTRIBUTE w TYPE bigint CASCADE", ""),
    (&[Typed], "ALTER TYPE app.line RENAME ATTRIBUTE v TO x CASCADE", ""),
    (&[Typed], "DROP TYPE app.line CASCADE", ""),
    // What leaves rows, columns and guards as they are.
    (ANY, "ALTER TABLE app.referenced ALTER id TYPE bigint", "ALTER TABLE app.referenced ALTER id TYPE int"),
    (ANY, "CREATE POLICY extra ON app.t USING (true)", "DROP POLICY extra ON app.t"),
    (ANY, "CREATE RULE extra AS ON INSERT TO app.t DO INSTEAD NOTHING", "DROP RULE extra ON app.t"),
    (ANY, "CREATE STATISTICS app.extra ON id, v FROM app.t", "DROP STATISTICS app.extra"),
    (ANY, "CREATE INDEX extra ON app.t (v)", "DROP INDEX app.extra"),
    (
        ANY,
        "CREATE TRIGGER extra BEFORE INSERT ON app.t FOR EACH ROW EXECUTE FUNCTION app.spill()",
        "DROP TRIGGER extra ON app.t",
    ),
    (ANY, "GRANT SELECT ON app.t TO PUBLIC", "REVOKE SELECT ON app.t FROM PUBLIC"),
    (ANY, "ALTER FUNCTION app.twice(int) RENAME TO thrice", "ALTER FUNCTION app.thrice(int) RENAME TO twice"),
];
