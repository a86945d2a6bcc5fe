//! The grantor is stopped instead: on one machine nobody can take its place, so nothing may end or begin meanwhile.

use serde_json::json;

use super::stage::{Stage, go_on, stop};
use super::talk::{Order, Said};
use super::timeline::Timeline;
use super::{Plan, Verdict, failed};
use crate::told::Failure;

pub async fn play(plan: Plan, timeline: &mut Timeline) -> Result<Verdict, Failure> {
    let stage = Stage::set(plan, timeline).await?;
    let mut first = stage.holder("first", 30, plan)?;
    let number = loop {
        if let Said::Granted { number } = first.says(plan).await? {
            break number;
        }
    };
    timeline.tell("first", &format!("is granted the lease, token {number}, ttl {:?}, and renews it", plan.ttl));
    let mut second = stage.holder("second", 50, plan)?;
    timeline.tell("second", "asks for the same lease, and waits");
    // It renews, so that the grantor has heard it just before it is stopped.
    first.order(Order::Prepare)?;
    while !matches!(first.says(plan).await?, Said::Prepared { .. }) {}

    stop(stage.server()?)?;
    timeline.tell("grantor", &format!("is stopped, for {:?}", plan.pause));
    tokio::time::sleep(plan.pause).await;
    let meanwhile = second.said();
    let nobody = meanwhile.is_none();
    timeline.tell("second", if nobody { "was granted nothing meanwhile" } else { "was GRANTED by a stopped grantor" });
    go_on(stage.server()?)?;
    timeline.tell("grantor", "is continued, and credits the time that was lost");

    first.order(Order::Confirm)?;
    let kept = loop {
        match first.says(plan).await? {
            Said::Kept { number } => break Ok(number),
            Said::Lost { code } => break Err(code),
            _ => {}
        }
    };
    match &kept {
        Ok(number) => timeline.tell("first", &format!("renews, and still holds: token {number}")),
        Err(code) => timeline.tell("first", &format!("LOST its lease, though it renewed all the time: {code}")),
    }
    let mut successor = None;
    if kept.is_ok() {
        first.order(Order::Release)?;
        timeline.tell("first", "gives the lease back");
        let granted = loop {
            if let Said::Granted { number } = second.says(plan).await? {
                break number;
            }
        };
        timeline.tell("second", &format!("is granted the lease, token {granted}"));
        successor = Some(granted);
    }
    let value = |number: &str| number.parse::<u64>().map_err(|_| failed("a token without a number"));
    let higher = match &successor {
        Some(successor) => value(successor)? > value(&number)?,
        None => false,
    };
    let same = kept.as_ref() == Ok(&number);
    let shown = nobody && same && higher;
    let words = if shown {
        "On one machine the stopped grantor is the only one: nobody was granted while it stood still, on waking it credited\n\
         the time to those who live, and the next token is higher."
    } else {
        "This is not what must happen."
    };
    let grantor = json!({ "granted_meanwhile": !nobody, "kept_its_token": same, "next_is_higher": higher });
    Ok(Verdict { shown, words: words.to_owned(), targets: json!({ "grantor": grantor }) })
}
