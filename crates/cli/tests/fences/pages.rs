//! Runs the blocks marked `sh postgres` of the documentation against a real database, and the Rust block of the README.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use leasehold::Client;
use leasehold_fence::{FenceId, sqlite};
use rusqlite::{Connection, Transaction};

use crate::Ledger;
use crate::server::Server as Database;
use crate::support::{Server, run};

/// The pages with such blocks, and how many of their commands must fail: each such command has a comment `# ERROR`.
const PAGES: [&str; 2] = ["docs/tutorials/fence-a-postgres-table.md", "docs/how-to/fence/postgres.md"];

/// The blocks of a page as one script.
fn script(page: &str) -> String {
    blocks(page).map(block_script).collect()
}

/// The blocks of a page that run against a database.
fn blocks(page: &str) -> impl Iterator<Item = &str> {
    page.split("```sh postgres\n").skip(1).filter_map(|rest| rest.split("```").next())
}

/// A line that the page marks with `# ERROR: CODE` must fail and name the code.
fn block_script(block: &str) -> String {
    let mut script = String::new();
    for line in block.lines().map(str::trim_start) {
        match line.split_once("# ERROR: ") {
            Some((command, note)) => {
                let code = note.split_whitespace().next().expect("the note names a code");
                let quoted = command.trim().replace("psql -c", "psql -v VERBOSITY=verbose -v ON_ERROR_STOP=1 -c");
                script += &format!(
                    "if out=$({quoted} 2>&1); then echo 'not refused'; exit 1; fi; case $out in *{code}*) ;; *) echo \"$out\"; exit 1;; esac\n"
                );
            }
            None => script += &(line.replace("psql -c", "psql -v ON_ERROR_STOP=1 -c") + "\n"),
        }
    }
    script
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_on_the_pages_about_postgres_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let binary = Path::new(env!("CARGO_BIN_EXE_leasehold")).parent().expect("the binary is in a folder");
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
    let database = tokio::task::spawn_blocking(Database::shared).await.expect("the database starts");
    let host = database.socket().to_str().expect("the socket's path is UTF-8").to_owned();
    let db = database.connect("leasehold", "postgres").await.expect("the database answers");
    for (number, name) in PAGES.iter().enumerate() {
        let page = fs::read_to_string(root.join(name)).expect("the page exists");
        let base = format!("page_{number}");
        db.batch_execute(&format!("CREATE DATABASE {base}")).await.expect("the database is created");
        if db
            .query_one("SELECT count(*) FROM pg_roles WHERE rolname = 'app'", &[])
            .await
            .expect("roles are listed")
            .get::<_, i64>(0)
            == 0
        {
            db.batch_execute("CREATE ROLE app").await.expect("the role is created");
        }
        let own = database.connect("leasehold", &base).await.expect("the database answers");
        if name.contains("how-to") {
            own.batch_execute("CREATE TABLE paid (id int, cents int)").await.expect("the table is created");
        }
        let server = Server::start();
        let address = format!("postgres://leasehold@{}/{base}", host.replace('/', "%2F"));
        let script = script(&page).replace("postgres://postgres@localhost/shop", &address);
        assert!(script.lines().count() >= 3, "{name} has commands: {script}");
        let mut shell = Command::new("sh");
        shell.args(["-euc", &script]).current_dir(&root).env("PATH", &path).env("LEASEHOLD_ADDR", &server.address);
        shell.env("PGHOST", &host).env("PGUSER", "leasehold").env("PGDATABASE", &base);
        let result = run(&mut shell);
        assert_eq!(result.exit, 0, "{name}: {script}\n{result:?}");
    }
}

/// The first block creates the keys of the server, so it runs before the server starts.
#[tokio::test(flavor = "multi_thread")]
async fn the_commands_on_the_page_about_stamps_run_with_a_server_that_gives_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let binary = Path::new(env!("CARGO_BIN_EXE_leasehold")).parent().expect("the binary is in a folder");
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
    let database = tokio::task::spawn_blocking(Database::shared).await.expect("the database starts");
    let host = database.socket().to_str().expect("the socket's path is UTF-8").to_owned();
    let db = database.connect("leasehold", "postgres").await.expect("the database answers");
    db.batch_execute("CREATE DATABASE stamps").await.expect("the database is created");
    let own = database.connect("leasehold", "stamps").await.expect("the database answers");
    own.batch_execute("CREATE TABLE paid (id int, cents int)").await.expect("the table is created");
    let page = fs::read_to_string(root.join("docs/how-to/fence/sealed.md")).expect("the page exists");
    let directory = tempfile::tempdir().expect("a directory");
    let (data, keys) = (directory.path().join("data"), directory.path().join("keys"));
    let flags = ["--data", data.to_str().expect("UTF-8"), "--keys", keys.to_str().expect("UTF-8")];
    let address = format!("postgres://leasehold@{}/stamps", host.replace('/', "%2F"));
    let mut server: Option<Server> = None;
    let scripts: Vec<_> = blocks(&page).map(block_script).collect();
    assert_eq!(scripts.len(), 3, "keys, fence, holder");
    for script in scripts {
        let mut shell = Command::new("sh");
        let script = script.replace("postgres://postgres@localhost/shop", &address);
        shell.args(["-euc", &script]).current_dir(directory.path()).env("PATH", &path);
        shell.env("PGHOST", &host).env("PGUSER", "leasehold").env("PGDATABASE", "stamps");
        if let Some(server) = &server {
            shell.env("LEASEHOLD_ADDR", &server.address);
        }
        let result = run(&mut shell);
        assert_eq!(result.exit, 0, "{script}\n{result:?}");
        server.get_or_insert_with(|| Server::with_flags(&[&["--listen", "127.0.0.1:0"][..], &flags].concat()));
    }
    let paid: i64 = own.query_one("SELECT count(*) FROM paid", &[]).await.expect("a count").get(0);
    assert_eq!(paid, 1, "the holder wrote with its stamped token");
    let refused = own.batch_execute("INSERT INTO paid VALUES (8, 1)").await.expect_err("a write without a token");
    assert!(refused.as_db_error().is_some_and(|error| error.code().code().starts_with("LH")), "{refused:?}");
}

/// `crates/cli/tests/pages.rs` compares this test with the page.
#[tokio::test]
async fn the_rust_block_of_the_readme_runs() -> Result<(), Box<dyn Error>> {
    let server = Server::start();
    let ledger = Ledger::fenced(&server);
    let settle = |tx: &Transaction<'_>| tx.execute("INSERT INTO paid VALUES (7)", []);
    let client = Client::new(&server.address)?;
    let fence = sqlite::Fence::new(&FenceId::new(client.cluster_id().await?, "jobs/settle")?);
    let lock = client.lock("jobs/settle").wait(Duration::from_secs(60));
    lock.run_try(async |lease| {
        let mut db = Connection::open(&ledger.path)?;
        fence.claim(&mut db, lease.token())?; // before anything is read
        fence.write(&mut db, lease.token(), settle)?; // check and write are one step
        Ok::<_, Box<dyn Error>>(())
    })
    .await?;
    let paid: i64 = ledger.open().query_row("SELECT count(*) FROM paid", [], |row| row.get(0))?;
    assert_eq!(paid, 1);
    Ok(())
}
