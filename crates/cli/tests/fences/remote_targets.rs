//! The same checks for every remote target: arm, list, probe, lost, rearm, restore, and a removed fence.

use std::time::{SystemTime, UNIX_EPOCH};

use leasehold_core::charter::TargetMode;
use leasehold_core::name::resource_hash;
use leasehold_core::token::{Incarnation, Number, Token, TokenScope};
use leasehold_fence::{Error, FenceRefusal};
use serde_json::{Value, json};

use crate::support::{Server, run, text};
use crate::{RESOURCE, cluster, declare, number, zombie_and_successor};

/// Runs all checks. `claim` is a claim of a holder, `remove` removes the fence from the target.
pub async fn check_target(
    server: &Server,
    url: &str,
    claim: impl AsyncFn(&str) -> Result<Number, Error>,
    remove: impl AsyncFnOnce(),
) {
    server.run(&["fence", "arm", url, "--resource", RESOURCE]).ok();
    declare(server, "store", url, TargetMode::Cooperative).await;
    let target = format!("store={url}");
    let probe = || server.run(&["coverage", RESOURCE, "--probe", "--target", &target, "--json"]);
    let fresh = probe();
    assert_eq!((fresh.exit, probe_result(&fresh.json())), (8, json!("fresh")), "no token was claimed yet");
    let (zombie, successor) = zombie_and_successor(server);
    claim(&zombie).await.expect("the first holder claims");
    claim(&successor).await.expect("the second holder claims");

    let marks = server.json(&["fence", "marks", url]);
    let mark = (&marks[0]["resource"], &marks[0]["state"], text(&marks[0]["mark"]));
    assert_eq!(mark, (&RESOURCE.into(), &"armed".into(), number(&successor)));
    let proven = probe();
    assert_eq!(proven.exit, 0, "{proven:?}");
    assert_eq!(probe_result(&proven.json()), "refused", "{proven:?}");
    assert_eq!(established(&proven.json()), "cooperative", "{proven:?}");
    assert_eq!(proven.json()["targets"][0]["hole"], Value::Null, "no hole and exit code 0 agree");
    let by_charter = server.run(&["coverage", RESOURCE, "--probe", "--charter-addresses", "--json"]);
    assert_eq!((by_charter.exit, probe_result(&by_charter.json())), (0, json!("refused")), "{by_charter:?}");
    declare(server, "store", url, TargetMode::Forced).await;
    let claimed_forced = probe();
    assert_eq!(claimed_forced.exit, 8, "it accepts writes that bypass the fence: {claimed_forced:?}");
    assert_eq!(claimed_forced.json()["targets"][0]["hole"], "not_forced", "{claimed_forced:?}");
    assert!(claimed_forced.err.contains("leasehold charter apply"), "{claimed_forced:?}");
    declare(server, "store", url, TargetMode::Cooperative).await;
    assert_eq!(marks, server.json(&["fence", "marks", url]), "a probe changes nothing");

    server.run(&["fence", "lost", url]).ok();
    assert_eq!(server.json(&["fence", "marks", url])[0]["state"], "lost");
    let refused = claim(&successor).await;
    assert!(matches!(refused, Err(Error::Refused(FenceRefusal::MarkLost(_)))), "{refused:?}");
    server.run(&["fence", "rearm", url, "--resource", RESOURCE]).ok();
    assert_eq!(server.json(&["fence", "marks", url])[0]["state"], "armed");
    let stale = claim(&zombie).await;
    assert!(matches!(stale, Err(Error::Refused(FenceRefusal::Stale { .. }))), "{stale:?}");
    let lower = server.run(&["fence", "rearm", url, "--floor", "7"]);
    assert!(lower.exit != 0 && lower.err.contains("CONFLICT"), "{lower:?}");

    check_restore_floor(server, url, &claim).await;

    remove().await;
    let removed = probe();
    assert_eq!(removed.exit, 8, "{removed:?}");
    assert!(removed.err.contains("store: has no fence"), "{removed:?}");
}

fn established(coverage: &Value) -> Value {
    coverage["targets"][0]["probe"]["established"].clone()
}

fn probe_result(coverage: &Value) -> Value {
    coverage["targets"][0]["probe"]["result"].clone()
}

/// A restore must issue tokens above a mark that is half an hour ahead of the clock.
async fn check_restore_floor(server: &Server, url: &str, claim: &impl AsyncFn(&str) -> Result<Number, Error>) {
    let dir = tempfile::tempdir().expect("a directory");
    let backup = dir.path().join("monday.backup");
    server.run(&["backup", backup.to_str().expect("plain")]).ok();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64 + 1_800_000;
    let ahead = Number::new((since - 1_735_689_600_000) << 22).expect("a number");
    let (cluster, incarnation, scope) = (cluster(server), Incarnation(0x0bad_cafe), TokenScope::Slot(0));
    let token = Token { cluster, incarnation, resource: resource_hash(RESOURCE), scope, number: ahead };
    server.run(&["fence", "adopt", url, "--incarnation", "0badcafe"]).ok();
    assert_eq!(server.json(&["fence", "marks", url])[0]["incarnation"], "0badcafe");
    claim(&token.to_string()).await.expect("plausible");
    let restore = |into: &str, more: &[&str]| {
        let mut command = crate::support::leasehold(&["restore", "--json"]);
        let data = dir.path().join(into);
        run(command.arg(&backup).arg("--data").arg(&data).args(more)).ok().json()
    };
    let floor = |restored: &Value| text(&restored["token_floor"]).parse::<u64>().expect("a number");
    let plain = restore("plain", &[]);
    assert!(floor(&plain) < ahead.get(), "the clock alone gives a lower floor: {plain}");
    let with_marks = restore("with_marks", &["--target", url]);
    assert!(floor(&with_marks) >= ahead.get(), "{with_marks}");
    assert_eq!(with_marks["marks"][0]["mark"], json!(ahead.to_string()));
}
