//! Two holder processes that compete for one lease, before and after a failure of the grantor.

use super::ipc::{HolderCommand, HolderEvent};
use super::setup::{DemoSetup, HolderHandle};
use super::timeline::Timeline;
use super::{DemoPlan, failed};
use crate::output::CommandError;

pub struct TwoHolders {
    pub first: HolderHandle,
    pub second: HolderHandle,
    /// Token number of the first holder.
    number: String,
}

/// Observations of the holders after the failure.
pub struct GrantorCheck {
    /// The first holder still holds the lease with the same token.
    pub same: bool,
    /// The second holder's token is higher.
    pub higher: bool,
}

impl TwoHolders {
    /// Starts both: the first holds the lease and has just renewed it, the second waits.
    pub async fn start(setup: &DemoSetup, plan: DemoPlan, timeline: &mut Timeline) -> Result<Self, CommandError> {
        let mut first = setup.start_holder("first", 30, plan)?;
        let number = granted(&mut first, plan).await?;
        timeline.record("first", &format!("is granted the lease, token {number}, ttl {:?}, and renews it", plan.ttl));
        let second = setup.start_holder("second", 50, plan)?;
        timeline.record("second", "requests the same lease and waits");
        first.send(HolderCommand::Prepare)?;
        while !matches!(first.next_event(plan).await?, HolderEvent::Prepared { .. }) {}
        Ok(Self { first, second, number })
    }

    /// Lets the first holder confirm and release its lease, and waits until the grantor grants it to the second.
    pub async fn check_grantor(
        &mut self,
        plan: DemoPlan,
        timeline: &mut Timeline,
        grantor: &str,
    ) -> Result<GrantorCheck, CommandError> {
        self.first.send(HolderCommand::Confirm)?;
        let confirmed = loop {
            match self.first.next_event(plan).await? {
                HolderEvent::Confirmed { number } => break Ok(number),
                HolderEvent::Lost { code } => break Err(code),
                _ => {}
            }
        };
        match &confirmed {
            Ok(number) => {
                timeline.record("first", &format!("still holds the lease, confirmed by {grantor}: token {number}"))
            }
            Err(code) => timeline.record("first", &format!("LOST its lease although it kept renewing: {code}")),
        }
        if confirmed.is_err() {
            return Ok(GrantorCheck { same: false, higher: false });
        }
        self.first.send(HolderCommand::Release)?;
        timeline.record("first", "releases the lease");
        let next = granted(&mut self.second, plan).await?;
        timeline.record("second", &format!("is granted the lease by {grantor}, token {next}"));
        let value = |number: &str| number.parse::<u64>().map_err(|_| failed("invalid token number"));
        Ok(GrantorCheck { same: confirmed.as_ref() == Ok(&self.number), higher: value(&next)? > value(&self.number)? })
    }
}

async fn granted(holder: &mut HolderHandle, plan: DemoPlan) -> Result<String, CommandError> {
    loop {
        if let HolderEvent::Granted { number } = holder.next_event(plan).await? {
            return Ok(number);
        }
    }
}
