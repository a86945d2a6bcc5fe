//! Scenario: the only grantor is paused. No lease may be granted or expire while it is paused.

use serde_json::json;

use super::setup::{DemoSetup, pause, resume};
use super::timeline::Timeline;
use super::two_holders::{GrantorCheck, TwoHolders};
use super::{DemoPlan, DemoVerdict, UNEXPECTED};
use crate::output::CommandError;

pub async fn run(plan: DemoPlan, timeline: &mut Timeline) -> Result<DemoVerdict, CommandError> {
    let setup = DemoSetup::single_server(plan, timeline).await?;
    let mut holders = TwoHolders::start(&setup, plan, timeline).await?;

    pause(setup.server()?)?;
    timeline.record("grantor", &format!("is paused for {:?}", plan.pause));
    tokio::time::sleep(plan.pause).await;
    let none_granted = holders.second.try_event().is_none();
    let event =
        if none_granted { "was granted nothing during the pause" } else { "was GRANTED a lease by a paused grantor" };
    timeline.record("second", event);
    resume(setup.server()?)?;
    timeline.record("grantor", "resumes, and extends all leases by the lost time");

    let GrantorCheck { same, higher } = holders.check_grantor(plan, timeline, "the grantor").await?;
    let passed = none_granted && same && higher;
    let summary = if passed {
        "The paused grantor is the only one: no lease was granted during the pause. When it resumed, it extended the leases of\n\
         live holders by the lost time, and the next token is higher."
    } else {
        UNEXPECTED
    };
    let grantor = json!({ "granted_during_pause": !none_granted, "same_token": same, "next_token_higher": higher });
    Ok(DemoVerdict { passed, summary: summary.to_owned(), targets: json!({ "grantor": grantor }) })
}
