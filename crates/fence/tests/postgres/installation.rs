//! Installation: it trusts no object of another role, is quiet, and upgrades earlier versions.

use leasehold_fence::Error;
use leasehold_fence::postgres::install;
use tokio_postgres::Client;

use crate::database::Database;
use crate::support::{CLUSTER, RESOURCE, number, token};

/// A new database that belongs to another role, with a connection as that role and one as the superuser.
async fn owned_by_another(base: &Database) -> (String, Client, Client) {
    let (role, name) = (format!("mallory_{}", base.name), format!("theirs_{}", base.name));
    base.db.batch_execute(&format!("CREATE ROLE {role} LOGIN")).await.expect("a role");
    base.db.batch_execute(&format!("CREATE DATABASE {name} OWNER {role}")).await.expect("a database");
    let theirs = base.server.connect(&role, &name).await.expect("connected");
    let ours = base.server.connect("leasehold", &name).await.expect("connected");
    (role, theirs, ours)
}

async fn is_superuser(db: &Client, role: &str) -> bool {
    db.query_one("SELECT rolsuper FROM pg_roles WHERE rolname = $1", &[&role]).await.expect("a role").get(0)
}

#[tokio::test]
async fn objects_that_another_role_planted_are_refused_and_never_called() {
    let base = Database::new().await;
    let (role, theirs, ours) = owned_by_another(&base).await;
    let rise = format!("BEGIN ALTER ROLE {role} SUPERUSER; RETURN NULL; END");
    for plant in [
        "CREATE SCHEMA leasehold".to_owned(),
        format!(
            "CREATE SCHEMA leasehold; CREATE FUNCTION leasehold.check_ddl() RETURNS event_trigger LANGUAGE plpgsql AS
               'BEGIN ALTER ROLE {role} SUPERUSER; END'"
        ),
        format!(
            "CREATE SCHEMA leasehold; CREATE TABLE leasehold.version (one boolean PRIMARY KEY DEFAULT true, version integer);
             CREATE FUNCTION leasehold.rise() RETURNS trigger LANGUAGE plpgsql AS '{rise}';
             CREATE TRIGGER rise BEFORE INSERT ON leasehold.version FOR EACH ROW EXECUTE FUNCTION leasehold.rise()"
        ),
    ] {
        theirs.batch_execute(&plant).await.expect("the owner of a database can create a schema");
        let error = install(&ours).await.expect_err("planted");
        assert!(matches!(&error, Error::Conflict(text) if text.contains("another role")), "{plant}: {error}");
        assert!(!is_superuser(&base.db, &role).await, "{plant}");
        theirs.batch_execute("DROP SCHEMA leasehold CASCADE").await.expect("it still belongs to them");
    }
    // Operators that match better than the server's are not called either.
    let operators = format!(
        "CREATE FUNCTION public.joined(text, int) RETURNS text LANGUAGE plpgsql AS 'BEGIN ALTER ROLE {role} SUPERUSER; RETURN 1; END';
         CREATE OPERATOR public.|| (LEFTARG = text, RIGHTARG = int, FUNCTION = public.joined)"
    );
    theirs.batch_execute(&operators).await.expect("public belongs to the database's owner");
    install(&ours).await.expect("installed");
    ours.batch_execute("CREATE TABLE public.unrelated (a int)").await.expect("the event triggers are ours");
    assert!(!is_superuser(&base.db, &role).await);
}

#[tokio::test]
async fn a_database_owner_installs_and_upgrades_its_own_schema_and_no_one_elses() {
    let base = Database::new().await;
    let (_, theirs, ours) = owned_by_another(&base).await;
    for _ in 0..2 {
        install(&theirs).await.expect("installed without event triggers");
    }
    assert_eq!(install(&ours).await.expect_err("as another role").code(), "CONFLICT");
    let (_, theirs, ours) = {
        let other = Database::new().await;
        owned_by_another(&other).await
    };
    install(&ours).await.expect("installed as a superuser");
    assert_eq!(install(&theirs).await.expect_err("as another role").code(), "CONFLICT");
}

#[tokio::test]
async fn version_2_is_upgraded_with_its_marks_and_protected_tables() {
    let base = Database::new().await;
    let name = format!("old_{}", base.name);
    base.db.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("a database");
    let old = base.server.connect("leasehold", &name).await.expect("connected");
    old.batch_execute(include_str!("version2.sql")).await.expect("version 2 installed");
    let setup = format!(
        "CREATE TABLE public.written (place bigserial PRIMARY KEY, number bigint NOT NULL);
         CREATE TABLE public.root (id int, v int) PARTITION BY RANGE (id);
         CREATE TABLE public.leaf PARTITION OF root FOR VALUES FROM (0) TO (10);
         CREATE TABLE public.ledger (id int, v int) PARTITION BY RANGE (id);
         CREATE TABLE public.part PARTITION OF ledger FOR VALUES FROM (0) TO (10); INSERT INTO ledger VALUES (1, 1);
         SELECT leasehold.arm('{RESOURCE}', '{CLUSTER}'); SELECT leasehold.protect('written', '{RESOURCE}');
         SELECT leasehold.protect('root', '{RESOURCE}'); SELECT leasehold.protect('part', '{RESOURCE}')"
    );
    old.batch_execute(&setup).await.expect("protected by version 2");
    old.batch_execute(&format!("CALL leasehold.claim('{}', '{RESOURCE}')", token(20))).await.expect("claimed");
    old.batch_execute("UPDATE ledger SET v = 2").await.expect("version 2 did not see a write through the root");
    for _ in 0..2 {
        install(&old).await.expect("upgraded");
        let mut prober = base.server.connect("leasehold", &name).await.expect("connected");
        let report = base.fence.probe(&mut prober, &token(3)).await.expect("probed");
        assert_eq!(report.holes(), [""; 0]);
        assert_eq!(report.writes.len(), 4, "{:?}", report.writes);
        assert_eq!(base.fence.mark(&old).await.expect("preserved"), Some(number(20)));
        let error = old.batch_execute("UPDATE ledger SET v = 3").await.expect_err("refused now");
        assert_eq!(error.code().map(|code| code.code()), Some("LH002"));
    }
    let mut writer = base.server.connect("leasehold", &name).await.expect("connected");
    base.write(&mut writer, 20).await.expect("the holder continues");

    let objects = "SELECT string_agg(o, E'\\n' ORDER BY o) FROM (
        SELECT 'f ' || p.oid::regprocedure::text FROM pg_proc AS p WHERE p.pronamespace = 'leasehold'::regnamespace
        UNION ALL SELECT 'c ' || c.relname || ' ' || a.attname || ' ' || a.atttypid::regtype FROM pg_class AS c
          JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
          WHERE c.relnamespace = 'leasehold'::regnamespace
        UNION ALL SELECT 'e ' || e.evtname || ' ' || e.evtevent || ' ' || e.evtenabled::text FROM pg_event_trigger AS e) AS all_objects(o)";
    base.fence.protect(&base.db, "written").await.expect("protected");
    let [upgraded, new]: [String; 2] = [
        old.query_one(objects, &[]).await.expect("read").get(0),
        base.db.query_one(objects, &[]).await.expect("read").get(0),
    ];
    assert_eq!(upgraded, new, "the upgraded schema equals a new one");
}
