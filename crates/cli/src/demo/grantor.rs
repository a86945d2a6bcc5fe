//! The grantor is stopped instead: on one machine nobody can take its place, so nothing may end or begin meanwhile.

use serde_json::json;

use super::pair::{Pair, Seen};
use super::stage::{Stage, go_on, stop};
use super::timeline::Timeline;
use super::{Plan, Verdict};
use crate::told::Failure;

pub async fn play(plan: Plan, timeline: &mut Timeline) -> Result<Verdict, Failure> {
    let stage = Stage::set(plan, timeline).await?;
    let mut pair = Pair::take_places(&stage, plan, timeline).await?;

    stop(stage.server()?)?;
    timeline.tell("grantor", &format!("is stopped, for {:?}", plan.pause));
    tokio::time::sleep(plan.pause).await;
    let meanwhile = pair.second.said();
    let nobody = meanwhile.is_none();
    timeline.tell("second", if nobody { "was granted nothing meanwhile" } else { "was GRANTED by a stopped grantor" });
    go_on(stage.server()?)?;
    timeline.tell("grantor", "is continued, and credits the time that was lost");

    let Seen { same, higher } = pair.go_on(plan, timeline, "the grantor").await?;
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
