//! Database drivers with the token of the connection: unchanged programs under `leasehold run --fence`, and the spellings of
//! `docs/how-to/fence/unmodified-programs.md`, whose Python blocks run here. The tests of node-postgres, pgx and JDBC are in `clients/`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::RESOURCE;
use crate::database::FencedDatabase;
use crate::support::run;

const PAGE: &str = include_str!("../../../../docs/how-to/fence/unmodified-programs.md");

/// The Python interpreter with the drivers. `./test` installs them and sets LEASEHOLD_MOTO.
pub fn python() -> PathBuf {
    let configured = std::env::var_os("LEASEHOLD_MOTO").map(PathBuf::from);
    let venv = configured.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/moto"));
    venv.join("bin/python")
}

/// Programs as they are written without a lease. Each writes three rows.
const UNCHANGED: [(&str, &str); 3] = [
    (
        "psycopg",
        r#"
import psycopg
for _ in range(3):
    with psycopg.connect() as db:
        db.execute("INSERT INTO paid VALUES (7, 1200)")
"#,
    ),
    (
        "SQLAlchemy with its pool",
        r#"
from sqlalchemy import create_engine, text
engine = create_engine("postgresql+psycopg://", pool_size=1, max_overflow=0)
for _ in range(3):
    with engine.begin() as db:
        db.execute(text("INSERT INTO paid VALUES (7, 1200)"))
"#,
    ),
    (
        "Django",
        r#"
import os, django
from django.conf import settings
from django.db import models
settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": os.environ["PGDATABASE"]}})
django.setup()
class Paid(models.Model):
    invoice = models.BigIntegerField(primary_key=True)
    cents = models.BigIntegerField()
    class Meta:
        app_label, db_table, managed = "shop", "paid", False
for _ in range(3):
    Paid(invoice=7, cents=1200).save(force_insert=True)
"#,
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn unchanged_programs_of_libpq_drivers_write_under_their_lease_and_not_without() {
    let base = FencedDatabase::new().await;
    let (python, url) = (python(), base.url());
    let python = python.to_str().expect("plain");
    for (number, (driver, program)) in UNCHANGED.iter().enumerate() {
        let fenced = run(&mut base.command(&["run", RESOURCE, "--fence", &url, "--", python, "-c", program]));
        assert_eq!(fenced.exit, 0, "{driver}: {fenced:?}");
        let without = run(&mut base.command(&["run", RESOURCE, "--", python, "-c", program]));
        assert!(without.exit == 1 && without.err.contains("TOKEN_INVALID"), "{driver}: {without:?}");
        assert_eq!(base.rows().await, 3 * i64::try_from(number + 1).expect("small"), "{driver}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_ignores_pgoptions_is_refused_without_the_setting() {
    let base = FencedDatabase::new().await;
    let (python, url) = (python(), base.url());
    let program = r#"
import asyncio, asyncpg
async def main():
    db = await asyncpg.connect()
    await db.execute("INSERT INTO paid VALUES (7, 1200)")
asyncio.run(main())
"#;
    let python = python.to_str().expect("plain");
    let refused = run(&mut base.command(&["run", RESOURCE, "--fence", &url, "--", python, "-c", program]));
    assert!(refused.exit == 1 && refused.err.contains("TOKEN_INVALID"), "asyncpg reads PGOPTIONS now: {refused:?}");
    assert_eq!(base.rows().await, 0);
}

/// The Python blocks of the page.
fn blocks() -> Vec<&'static str> {
    PAGE.split("```python\n").skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_spellings_of_the_page_write_with_a_current_token_and_fail_with_a_stale_one() {
    let base = FencedDatabase::new().await;
    let token = |holder: &str| base.fixture.server.acquire(RESOURCE, holder);
    let blocks = blocks();
    assert_eq!(blocks.len(), 4, "psycopg, SQLAlchemy, Django, asyncpg");
    for (block, driver) in blocks.iter().zip(["psycopg", "sqlalchemy", "django", "asyncpg"]) {
        assert!(block.contains(driver), "the order of the page: {driver}");
        let python = |token: &str| {
            let mut command = Command::new(python());
            command.args(["-c", block]).env("LEASEHOLD_TOKEN", token).env_remove("PGOPTIONS");
            command.env("PGHOST", base.host()).env("PGUSER", "leasehold").env("PGDATABASE", &base.name);
            run(&mut command)
        };
        let claim = async |token: &str| {
            let sql = format!("CALL leasehold.claim('{token}', '{RESOURCE}')");
            base.connect().await.batch_execute(&sql).await.expect("claimed");
        };
        let first = token(driver);
        claim(&first).await;
        let before = base.rows().await;
        let written = python(&first);
        assert_eq!(written.exit, 0, "{driver}: {written:?}");
        assert!(base.rows().await > before, "{driver}");
        base.fixture.server.run(&["revoke", RESOURCE, "--comment", "a test"]).ok();
        let second = token(driver);
        claim(&second).await;
        let before = base.rows().await;
        let late = python(&first);
        assert!(late.exit == 1 && late.err.contains("STALE_TOKEN"), "{driver}: {late:?}");
        assert_eq!(base.rows().await, before, "{driver}");
        base.fixture.server.run(&["revoke", RESOURCE, "--comment", "a test"]).ok();
    }
}
