//! What the command line does at a target that is a server, the same for each scheme: arm, list, prove, lose, re-arm, survey,
//! and find that the fence was removed.

use std::time::{SystemTime, UNIX_EPOCH};

use leasehold_core::charter::Mode;
use leasehold_core::name::resource_hash;
use leasehold_core::token::{Incarnation, Number, Reach, Token};
use leasehold_fence::{Error, Refusal};
use serde_json::{Value, json};

use crate::support::{Server, run, text};
use crate::{RESOURCE, cluster, declare, number, zombie_and_successor};

/// All of it. `claim` is a holder's, `remove` takes the fence away past every rule.
pub async fn is_tended(
    server: &Server,
    url: &str,
    claim: impl AsyncFn(&str) -> Result<Number, Error>,
    remove: impl AsyncFnOnce(),
) {
    server.run(&["fence", "arm", url, "--resource", RESOURCE]).ok();
    declare(server, "store", url, Mode::Cooperative).await;
    let fresh = server.run(&["fences", RESOURCE, "--probe", "--json"]);
    assert_eq!((fresh.exit, found(&fresh.json())), (8, json!("fresh")), "nobody claimed it yet");
    let (zombie, successor) = zombie_and_successor(server);
    claim(&zombie).await.expect("the first holder claims");
    claim(&successor).await.expect("the second holder claims");

    let marks = server.json(&["fence", "marks", url]);
    let kept = (&marks[0]["name"], &marks[0]["state"], text(&marks[0]["mark"]));
    assert_eq!(kept, (&RESOURCE.into(), &"armed".into(), number(&successor)));
    let proven = server.run(&["fences", RESOURCE, "--probe", "--json"]);
    assert_eq!(proven.exit, 0, "{proven:?}");
    assert_eq!(found(&proven.json()), "refused", "{proven:?}");
    assert_eq!(marks, server.json(&["fence", "marks", url]), "a probe changes nothing");

    server.run(&["fence", "lost", url]).ok();
    assert_eq!(server.json(&["fence", "marks", url])[0]["state"], "lost");
    let refused = claim(&successor).await;
    assert!(matches!(refused, Err(Error::Refused(Refusal::Lost(_)))), "{refused:?}");
    server.run(&["fence", "rearm", url, "--resource", RESOURCE]).ok();
    assert_eq!(server.json(&["fence", "marks", url])[0]["state"], "armed");
    let stale = claim(&zombie).await;
    assert!(matches!(stale, Err(Error::Refused(Refusal::Stale { .. }))), "{stale:?}");
    let lower = server.run(&["fence", "rearm", url, "--floor", "7"]);
    assert!(lower.exit != 0 && lower.err.contains("CONFLICT"), "{lower:?}");

    lifts_a_restored_counter(server, url, &claim).await;

    remove().await;
    let removed = server.run(&["fences", RESOURCE, "--probe"]);
    assert_eq!(removed.exit, 8, "{removed:?}");
    assert!(removed.err.contains("store: there is no fence"), "{removed:?}");
}

fn found(shown: &Value) -> Value {
    shown["targets"][0]["probe"]["found"].clone()
}

/// By a token that the backup never saw, half an hour above what the clock lifts to.
async fn lifts_a_restored_counter(server: &Server, url: &str, claim: &impl AsyncFn(&str) -> Result<Number, Error>) {
    let folder = tempfile::tempdir().expect("a directory");
    let backup = folder.path().join("monday.backup");
    server.run(&["backup", backup.to_str().expect("plain")]).ok();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64 + 1_800_000;
    let ahead = Number::new((since - 1_735_689_600_000) << 22).expect("a number");
    let (cluster, incarnation, reach) = (cluster(server), Incarnation(0x0bad_cafe), Reach::Slot(0));
    let token = Token { cluster, incarnation, resource: resource_hash(RESOURCE), reach, number: ahead };
    server.run(&["fence", "adopt", url, "--incarnation", "0badcafe"]).ok();
    assert_eq!(server.json(&["fence", "marks", url])[0]["incarnation"], "0badcafe");
    claim(&token.to_string()).await.expect("believable");
    let restore = |into: &str, more: &[&str]| {
        let mut command = crate::support::leasehold(&["restore", "--json"]);
        let data = folder.path().join(into);
        run(command.arg(&backup).arg("--data").arg(&data).args(more)).ok().json()
    };
    let floor = |restored: &Value| text(&restored["token_floor"]).parse::<u64>().expect("a number");
    let plain = restore("plain", &[]);
    assert!(floor(&plain) < ahead.get(), "the clock alone does not lift so far: {plain}");
    let surveyed = restore("surveyed", &["--survey", url]);
    assert!(floor(&surveyed) >= ahead.get(), "{surveyed}");
    assert_eq!(surveyed["surveyed"][0]["mark"], json!(ahead.to_string()));
}
