//! `--fence postgres://…`: the environment of the command, and what is refused before the command starts.

use crate::RESOURCE;
use crate::database::FencedDatabase;
use crate::support::{run, text};

const WRITE: &str = "psql -X -v ON_ERROR_STOP=1 -v VERBOSITY=verbose -c 'INSERT INTO paid VALUES (7, 1200)'";
const SHOW: &str = "psql -X -At -c 'SHOW statement_timeout' -c 'SHOW idle_in_transaction_session_timeout' -c 'SHOW search_path' \
                    -c 'SHOW leasehold.token'";

#[tokio::test(flavor = "multi_thread")]
async fn an_unchanged_program_writes_to_a_protected_table_and_only_under_its_lease() {
    let base = FencedDatabase::new().await;
    base.run(WRITE).ok();
    assert_eq!(base.rows().await, 1);
    let without = run(&mut base.command(&["run", RESOURCE, "--", "sh", "-c", WRITE]));
    assert!(without.exit != 0 && without.err.contains("LH002"), "{without:?}");
    let other = run(&mut base.command(&["run", "jobs/other", "--fence", &base.url(), "--", "sh", "-c", WRITE]));
    assert!(other.exit == 1 && other.err.contains("NOT_FOUND"), "{other:?}");
    assert_eq!(base.rows().await, 1);
    base.fixture.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_target_is_claimed_before_the_command_starts() {
    let base = FencedDatabase::new().await;
    let mark = "psql -X -At -c \"SELECT mark FROM leasehold.fence\"; echo \"$LEASEHOLD_TOKEN_NUMBER\"";
    let output = base.run(mark).ok().out;
    let [mark, own] = output.lines().collect::<Vec<_>>()[..] else { panic!("{output}") };
    assert_eq!(mark, own);
}

#[tokio::test(flavor = "multi_thread")]
async fn options_of_the_caller_are_kept_and_timeouts_come_from_the_remaining_time() {
    let base = FencedDatabase::new().await;
    let url = base.url();
    let args = ["run", RESOURCE, "--ttl", "20s", "--fence", &url, "--", "sh", "-c", SHOW];
    let shown = run(&mut base.command(&args)).ok().out;
    let shown: Vec<&str> = shown.lines().collect();
    for timeout in &shown[..2] {
        let ms = milliseconds(timeout);
        assert!((1..=20_000).contains(&ms), "{timeout}: at most the ttl");
    }
    let callers = "-c statement_timeout=1500 -c idle_in_transaction_session_timeout=7d -c search_path=\"a\\ b\",c";
    let kept = run(base.command(&args).env("PGOPTIONS", callers)).ok().out;
    let kept: Vec<&str> = kept.lines().collect();
    assert_eq!((kept[0], kept[2]), ("1500ms", "\"a b\",c"), "{kept:?}");
    assert!((1..=20_000).contains(&milliseconds(kept[1])), "a longer timeout is shortened: {kept:?}");
    // Those of the role and the database count too.
    base.connect()
        .await
        .batch_execute(&format!("ALTER DATABASE {} SET statement_timeout = '3s'", base.name))
        .await
        .expect("set");
    assert!(run(&mut base.command(&args)).ok().out.starts_with("3s\n"));
    base.fixture.assert_clean();
}

/// Milliseconds of a duration as PostgreSQL shows it.
fn milliseconds(shown: &str) -> u64 {
    let (number, unit) = shown.split_at(shown.find(|c: char| !c.is_ascii_digit()).unwrap_or(shown.len()));
    let unit = match unit {
        "ms" => 1,
        "s" => 1_000,
        other => panic!("{shown}: unit {other:?}"),
    };
    number.parse::<u64>().expect("a number") * unit
}

#[tokio::test(flavor = "multi_thread")]
async fn one_command_inside_another_has_the_tokens_of_both_resources() {
    let base = FencedDatabase::new().await;
    let (url, server) = (base.url(), &base.fixture.server);
    base.connect().await.batch_execute("CREATE TABLE sold (invoice bigint)").await.expect("a table");
    server.run(&["fence", "arm", &url, "--resource", "jobs/sell"]).ok();
    server.run(&["fence", "protect", &url, "--resource", "jobs/sell", "--table", "sold"]).ok();
    let both = "psql -X -v ON_ERROR_STOP=1 -c 'INSERT INTO paid VALUES (1, 1)' -c 'INSERT INTO sold VALUES (1)'; \
                psql -X -At -c 'SHOW leasehold.token' | wc -w";
    let inner = format!("\"$LEASEHOLD\" run jobs/sell --fence '{url}' -- sh -c \"{both}\"");
    let output = base.run(&inner).ok();
    assert!(output.out.ends_with("2\n"), "{output:?}");
    // The token of a resource replaces the one of an earlier lease.
    let again = format!("\"$LEASEHOLD\" run jobs/sell --fence '{url}' -- psql -X -At -c 'SHOW leasehold.token'");
    let token = text(&server.json(&["acquire", "jobs/third", "--holder", "h", "--ttl", "60s"])["token"]);
    let listed = run(base
        .command(&["run", RESOURCE, "--fence", &url, "--", "sh", "-c", &again])
        .env("PGOPTIONS", format!("-c leasehold.token={token}")));
    assert_eq!(listed.ok().out.split_whitespace().count(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_would_refuse_no_late_write_is_refused_before_the_command_starts() {
    let base = FencedDatabase::without_fence().await;
    let (url, server) = (base.url(), &base.fixture.server);
    let mark = base.fixture.tmp_dir.path().join("mark");
    let attempt = |url: &str| {
        let args = ["run", RESOURCE, "--fence", url, "--", "touch", mark.to_str().expect("plain")];
        let refused = run(&mut base.command(&args));
        assert!(!mark.exists(), "the command ran: {refused:?}");
        refused
    };
    let arm = format!("run: leasehold fence arm {url} --resource jobs/settle");
    let missing = attempt(&url).fails(1, "leasehold: NOT_FOUND: ");
    assert!(missing.err.contains("has no fence for jobs/settle") && missing.err.contains(&arm), "{missing:?}");

    server.run(&["fence", "arm", &url, "--resource", RESOURCE]).ok();
    let open = attempt(&url).fails(1, "leasehold: NOT_FOUND: ");
    let protect = format!("run: leasehold fence protect {url} --resource jobs/settle --table TABLE");
    assert!(open.err.contains("no table") && open.err.contains(&protect), "{open:?}");
    let json = run(&mut base.command(&["run", RESOURCE, "--json", "--fence", &url, "--", "true"])).problem();
    assert_eq!(json["code"], "NOT_FOUND");
    assert_eq!(json["next_step"], protect.trim_start_matches("run: "));

    server.run(&["fence", "protect", &url, "--resource", RESOURCE, "--table", "paid"]).ok();
    let db = base.connect().await;
    db.batch_execute(&format!("CREATE ROLE {}_app LOGIN", base.name)).await.expect("a role");
    let app = url.replace("//leasehold@", &format!("//{}_app@", base.name));
    let denied = attempt(&app).fails(6, "leasehold: PERMISSION_DENIED: ");
    assert!(denied.err.contains("GRANT USAGE ON SCHEMA leasehold"), "{denied:?}");
    db.batch_execute(&format!(
        "GRANT USAGE ON SCHEMA leasehold TO {0}_app; GRANT INSERT ON paid TO {0}_app",
        base.name
    ))
    .await
    .expect("granted");
    let role = format!("{}_app", base.name);
    let args = ["run", RESOURCE, "--fence", &app, "--", "sh", "-c", WRITE];
    run(base.command(&args).env("PGUSER", &role)).ok();
    assert_eq!(base.rows().await, 1, "a role that may only write");

    // What an older version of the fence left.
    db.batch_execute("DROP FUNCTION leasehold.connection_token").await.expect("a superuser can");
    let old = attempt(&url);
    assert!(old.exit != 0 && old.err.contains("UNSUPPORTED_VERSION") && old.err.contains(&arm), "{old:?}");
    server.run(&["fence", "arm", &url, "--resource", RESOURCE]).ok();
    base.run(WRITE).ok();

    db.batch_execute(&format!("SELECT leasehold.declare_lost('{RESOURCE}')")).await.expect("lost");
    let lost = attempt(&url);
    assert!(lost.exit != 0 && lost.err.contains("STORAGE_FAILED"), "{lost:?}");
    let gone = attempt(&url.replace(&base.name, "nosuch"));
    assert!(gone.exit != 0 && gone.err.contains("UNAVAILABLE"), "{gone:?}");
    let held = server.run(&["show", RESOURCE]);
    assert!(!held.out.contains("holder"), "every lease was released: {held:?}");
    base.fixture.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn options_of_the_caller_that_would_lose_the_token_are_refused_by_name() {
    let base = FencedDatabase::new().await;
    let url = base.url();
    let args = ["run", RESOURCE, "--fence", &url, "--", "echo", "ran"];
    for (callers, reason) in [
        ("-c search_path=public\\", "backslash"),
        ("-c", "correct or unset PGOPTIONS"),
        ("-c search_path=public --", "correct or unset PGOPTIONS"),
        ("-c leasehold.token=junk", "entry 1 of the setting leasehold.token is not a token"),
    ] {
        let refused = run(base.command(&args).env("PGOPTIONS", callers));
        assert!(refused.exit == 78 && refused.out.is_empty(), "{callers}: {refused:?}");
        assert!(refused.err.contains("CONFIG") && refused.err.contains(reason), "{callers}: {refused:?}");
        assert!(!refused.err.contains("pooler") && !refused.err.contains("password"), "{callers}: {refused:?}");
        let json = ["run", RESOURCE, "--json", "--fence", &url, "--", "echo", "ran"];
        assert_eq!(run(base.command(&json).env("PGOPTIONS", callers)).problem()["key"], "PGOPTIONS", "{callers}");
    }
    run(base.command(&args).env("PGOPTIONS", "-c application_name=a\\ ")).ok();
    base.fixture.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_is_in_no_argument_of_another_process_and_in_no_message() {
    let base = FencedDatabase::new().await;
    let url = base.url().replace("//leasehold@", "//leasehold:hunter2@");
    // The parent of the command is the supervisor.
    let script = "tr '\\0' ' ' < /proc/$PPID/cmdline; tr '\\0' ' ' < /proc/$$/cmdline; env";
    let shown = run(&mut base.command(&["run", RESOURCE, "--fence", &url, "--", "sh", "-c", script])).ok();
    assert!(shown.out.contains("__supervise") && shown.out.contains("PGOPTIONS="), "{shown:?}");
    assert!(!shown.out.contains("hunter2"), "{shown:?}");
    for wrong in [
        url.replace("/run", "/nosuch"),
        url.replace("postgres:", "redis:"),
        url.replace("postgres:", "mysql:"),
        format!("{url}?options=-c%20a.b%3Dc"),
    ] {
        let refused = run(&mut base.command(&["run", RESOURCE, "--fence", &wrong, "--", "true"]));
        assert!(refused.exit != 0 && !refused.err.contains("hunter2"), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn targets_that_cannot_fence_an_unchanged_command_are_refused_before_a_lease_is_acquired() {
    let base = FencedDatabase::new().await;
    for (address, reason) in [
        ("redis://127.0.0.1", "FCALL leasehold_write"),
        ("sqlite:/ledger.db", "leasehold_admit"),
        ("file:/events.log", "leasehold fence http"),
        ("https://gate:443", "no TLS"),
        ("s3://bucket", "s3:"),
        ("nonsense", "not the address of a target"),
    ] {
        let refused = run(&mut base.command(&["run", RESOURCE, "--fence", address, "--", "true"]));
        assert!(refused.exit == 2 && refused.err.contains(reason), "{address}: {refused:?}");
    }
    assert_eq!(base.fixture.server.json(&["ls"])["resources"], serde_json::json!([]), "nothing was acquired");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_waits_for_the_predecessors_transaction_which_its_timeout_ends() {
    let base = FencedDatabase::new().await;
    // The first command leaves a transaction open in a process that `run` does not know: the server ends it.
    let url = base.url();
    let open = base.connect().await;
    let first = base.run("printf %s \"$PGOPTIONS\"").ok().out;
    let stuck = base.postgres.connect_with_options("leasehold", &base.name, &first).await.expect("connected");
    stuck.batch_execute("BEGIN; INSERT INTO paid VALUES (1, 1)").await.expect("written under the first lease");
    let next = run(&mut base.command(&["run", RESOURCE, "--ttl", "30s", "--fence", &url, "--", "sh", "-c", WRITE]));
    next.ok();
    stuck.batch_execute("COMMIT").await.expect_err("the server ended the idle transaction");
    let rows = open.query("SELECT invoice FROM paid", &[]).await.expect("read");
    assert_eq!((rows.len(), rows[0].get::<_, i64>(0)), (1, 7));
}
