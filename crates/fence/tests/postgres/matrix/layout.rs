//! Layouts of the protected table, and the roles that attack it.

use tokio_postgres::Client;

use crate::database::Database;
use crate::server::Server;
use crate::support::token;

/// How the protected table is related to others. Its name is always `app.t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableLayout {
    Plain,
    Partition,
    PartitionedRoot,
    Inherited,
    Typed,
}

impl TableLayout {
    pub const ALL: [Self; 5] = [Self::Plain, Self::Partition, Self::PartitionedRoot, Self::Inherited, Self::Typed];

    pub const fn title(self) -> &'static str {
        match self {
            Self::Plain => "plain table",
            Self::Partition => "partition, root not protected",
            Self::PartitionedRoot => "partitioned table, root protected",
            Self::Inherited => "child of two unprotected parents",
            Self::Typed => "typed table",
        }
    }

    /// Statements of the tables' owner that create the layout; `app.t` has one row with id 1.
    fn sql(self) -> String {
        let columns = "id int NOT NULL, v int DEFAULT app.twice(5), region text NOT NULL DEFAULT 'eu', mood app.mood DEFAULT 'calm',
             cents app.cents DEFAULT 5, name app.citext DEFAULT 'n', pair app.pair, ref int, w int DEFAULT 1,
             twice int GENERATED ALWAYS AS (app.twice(1)) STORED";
        match self {
            Self::Plain => format!("CREATE TABLE app.t ({columns}, PRIMARY KEY (id, region))"),
            Self::Partition => format!(
                "CREATE TABLE app.root ({columns}, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
                 CREATE TABLE app.parent PARTITION OF app.root FOR VALUES IN ('eu') PARTITION BY RANGE (id);
                 CREATE TABLE app.t PARTITION OF app.parent FOR VALUES FROM (0) TO (100);
                 CREATE TABLE app.us PARTITION OF app.root FOR VALUES IN ('us');
                 INSERT INTO app.root (id, v, region) VALUES (51, 10, 'us')"
            ),
            Self::PartitionedRoot => format!(
                "CREATE TABLE app.t ({columns}, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
                 CREATE TABLE app.kid PARTITION OF app.t FOR VALUES IN ('eu');
                 CREATE TABLE app.us PARTITION OF app.t FOR VALUES IN ('us');
                 INSERT INTO app.t (id, v, region) VALUES (51, 10, 'us')"
            ),
            Self::Inherited => format!(
                "CREATE TABLE app.root ({columns}); CREATE TABLE app.parent () INHERITS (app.root);
                 CREATE TABLE app.second (id int NOT NULL, v int); CREATE TABLE app.t (PRIMARY KEY (id, region)) INHERITS (app.parent, app.second);
                 CREATE TABLE app.kid () INHERITS (app.t)"
            ),
            Self::Typed => "CREATE TABLE app.t OF app.line (v DEFAULT app.twice(5), region NOT NULL DEFAULT 'eu', mood DEFAULT 'calm',
                 PRIMARY KEY (id, region))"
                .to_owned(),
        }
    }

    /// The table above all others that a statement can name to reach `app.t`.
    pub const fn top(self) -> &'static str {
        match self {
            Self::Partition | Self::Inherited => "app.root",
            Self::Plain | Self::PartitionedRoot | Self::Typed => "app.t",
        }
    }
}

/// Who attacks. All of them may call the fence's functions, so a refusal is not for want of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attacker {
    /// May read and write every table.
    Writer,
    /// Owns the tables.
    TableOwner,
    /// Has no right on the tables and owns types, the function and the extension that they use.
    TypeOwner,
    /// Owns the database and the schema.
    DatabaseOwner,
    /// A member of `pg_write_all_data`.
    DataWriter,
    /// Has all rights on what the installer creates, by default privileges, and those of a writer.
    Heir,
}

impl Attacker {
    pub const ALL: [Self; 6] =
        [Self::Writer, Self::TableOwner, Self::TypeOwner, Self::DatabaseOwner, Self::DataWriter, Self::Heir];

    pub const fn title(self) -> &'static str {
        match self {
            Self::Writer => "writer",
            Self::TableOwner => "table owner",
            Self::TypeOwner => "type owner",
            Self::DatabaseOwner => "database owner",
            Self::DataWriter => "data writer",
            Self::Heir => "heir",
        }
    }

    pub fn role(self, database: &str) -> String {
        format!("{}_{database}", self.title().replace(' ', "_"))
    }
}

/// A database with one layout, a protected `app.t`, and one connection per attacker.
pub struct AttackedDatabase {
    pub base: Database,
    pub layout: TableLayout,
    /// [`AttackedDatabase::state`] before the first attack.
    pub initial: String,
    attackers: Vec<(Attacker, Client)>,
}

impl AttackedDatabase {
    /// Statements before the installation: the roles, and the default privileges of the installer.
    fn before(name: &str) -> String {
        let roles = Attacker::ALL.map(|attacker| format!("CREATE ROLE {} LOGIN;", attacker.role(name))).concat();
        let kinds = ["TABLES", "SEQUENCES", "FUNCTIONS", "SCHEMAS"];
        let heir = Attacker::Heir.role(name);
        let defaults = kinds.map(|kind| format!("ALTER DEFAULT PRIVILEGES GRANT ALL ON {kind} TO {heir};")).concat();
        format!("{roles} {defaults}")
    }

    pub async fn new(layout: TableLayout) -> Self {
        let server = tokio::task::spawn_blocking(Server::shared).await.expect("a server");
        let base = Database::prepared(server, Self::before).await;
        let [writer, owner, types, database, data, heir] = Attacker::ALL.map(|attacker| attacker.role(&base.name));
        let all = format!("{writer}, {owner}, {types}, {database}, {data}, {heir}");
        let setup = format!(
            "GRANT pg_read_all_data, pg_write_all_data TO {data}; ALTER DATABASE {name} OWNER TO {database}; CREATE SCHEMA app AUTHORIZATION {database};
             GRANT USAGE ON SCHEMA leasehold, app TO {all}; GRANT CREATE ON SCHEMA app TO {owner}, {types};
             GRANT CREATE ON DATABASE {name} TO {types}; GRANT pg_execute_server_program TO {all};
             SET ROLE {types};
             CREATE EXTENSION citext SCHEMA app; CREATE TYPE app.mood AS ENUM ('calm', 'busy'); CREATE DOMAIN app.cents AS int;
             CREATE TYPE app.pair AS (a int, b int);
             CREATE FUNCTION app.twice(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 2 * $1';
             SET ROLE {owner};
             CREATE TYPE app.line AS (id int, v int, region text, mood app.mood, cents app.cents, name app.citext, pair app.pair, ref int, w int);
             {layout};
             CREATE TABLE app.referenced (id int PRIMARY KEY); INSERT INTO app.referenced VALUES (1);
             ALTER TABLE app.t ADD CONSTRAINT refers FOREIGN KEY (ref) REFERENCES app.referenced ON DELETE CASCADE ON UPDATE CASCADE;
             INSERT INTO app.t (id, v, ref) VALUES (1, 10, 1);
             CREATE VIEW app.seen AS SELECT id, v, region FROM {top};
             CREATE TABLE app.ruled (id int, v int, region text); INSERT INTO app.ruled VALUES (1, 10, 'eu');
             CREATE RULE i AS ON INSERT TO app.ruled DO INSTEAD INSERT INTO {top} (id, v, region) VALUES (NEW.id, NEW.v, NEW.region);
             CREATE RULE u AS ON UPDATE TO app.ruled DO INSTEAD UPDATE {top} SET v = NEW.v WHERE id = OLD.id;
             CREATE RULE d AS ON DELETE TO app.ruled DO INSTEAD DELETE FROM {top} WHERE id = OLD.id;
             CREATE FUNCTION app.run(statement text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS 'BEGIN EXECUTE statement; END';
             CREATE TABLE app.other (statement text);
             CREATE FUNCTION app.spill() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS 'BEGIN EXECUTE NEW.statement; RETURN NEW; END';
             CREATE TRIGGER spill BEFORE INSERT ON app.other FOR EACH ROW EXECUTE FUNCTION app.spill();
             GRANT ALL ON ALL TABLES IN SCHEMA app TO {writer}, {heir};
             RESET ROLE; GRANT SET ON PARAMETER session_replication_role TO {writer};",
            name = base.name,
            layout = layout.sql(),
            top = layout.top(),
        );
        base.db.batch_execute(&setup).await.unwrap_or_else(|error| panic!("{layout:?}: {error:?}"));
        base.fence.claim(&base.db, &token(20)).await.expect("claimed");
        base.fence.protect(&base.db, "app.t").await.expect("protected");
        let mut attackers = Vec::new();
        for attacker in Attacker::ALL {
            let client = base.server.connect(&attacker.role(&base.name), &base.name).await.expect("connected");
            attackers.push((attacker, client));
        }
        let mut target = Self { base, layout, initial: String::new(), attackers };
        target.initial = target.state().await;
        target
    }

    pub fn client(&self, attacker: Attacker) -> &Client {
        &self.attackers.iter().find(|(of, _)| *of == attacker).expect("every attacker is connected").1
    }

    /// Everything that an attack must not change: rows, definitions, parents and guards of the protected tables.
    pub async fn state(&self) -> String {
        let sql = "SELECT concat_ws(E'\\n',
            (SELECT string_agg(r::text, ' ' ORDER BY r::text) FROM app.t AS r),
            (SELECT string_agg(concat(c.oid::regclass, ' ', leasehold.definition(c.oid), ' ', c.relfilenode), ' ' ORDER BY c.oid)
              FROM pg_class AS c WHERE c.oid IN (to_regclass('app.t'), to_regclass('app.kid'))),
            (SELECT string_agg(g::text, ' ') FROM leasehold.list_guards() AS g WHERE g.problem IS NOT NULL),
            (SELECT count(*) FROM pg_inherits WHERE inhdetachpending))";
        self.base.db.query_one(sql, &[]).await.expect("app.t is there").get(0)
    }
}
