//! Two holders of one lease, before something befalls the grantor and after it.

use super::stage::{Holder, Stage};
use super::talk::{Order, Said};
use super::timeline::Timeline;
use super::{Plan, failed};
use crate::told::Failure;

pub struct Pair {
    pub first: Holder,
    pub second: Holder,
    /// What the first was granted.
    number: String,
}

/// What the holders saw.
pub struct Seen {
    /// The first still holds under the token that it had.
    pub same: bool,
    /// The token of the second is higher.
    pub higher: bool,
}

impl Pair {
    /// One holds and the other waits. The first has renewed, so that the grantor has heard it just before.
    pub async fn take_places(stage: &Stage, plan: Plan, timeline: &mut Timeline) -> Result<Self, Failure> {
        let mut first = stage.holder("first", 30, plan)?;
        let number = granted(&mut first, plan).await?;
        timeline.tell("first", &format!("is granted the lease, token {number}, ttl {:?}, and renews it", plan.ttl));
        let second = stage.holder("second", 50, plan)?;
        timeline.tell("second", "asks for the same lease, and waits");
        first.order(Order::Prepare)?;
        while !matches!(first.says(plan).await?, Said::Prepared { .. }) {}
        Ok(Self { first, second, number })
    }

    /// The first asks whether it holds, and gives the lease back; the second is granted it by this grantor.
    pub async fn go_on(&mut self, plan: Plan, timeline: &mut Timeline, by: &str) -> Result<Seen, Failure> {
        self.first.order(Order::Confirm)?;
        let kept = loop {
            match self.first.says(plan).await? {
                Said::Kept { number } => break Ok(number),
                Said::Lost { code } => break Err(code),
                _ => {}
            }
        };
        match &kept {
            Ok(number) => timeline.tell("first", &format!("asks {by}, and still holds: token {number}")),
            Err(code) => timeline.tell("first", &format!("LOST its lease, though it renewed all the time: {code}")),
        }
        if kept.is_err() {
            return Ok(Seen { same: false, higher: false });
        }
        self.first.order(Order::Release)?;
        timeline.tell("first", "gives the lease back");
        let next = granted(&mut self.second, plan).await?;
        timeline.tell("second", &format!("is granted the lease by {by}, token {next}"));
        let value = |number: &str| number.parse::<u64>().map_err(|_| failed("a token without a number"));
        Ok(Seen { same: kept.as_ref() == Ok(&self.number), higher: value(&next)? > value(&self.number)? })
    }
}

async fn granted(holder: &mut Holder, plan: Plan) -> Result<String, Failure> {
    loop {
        if let Said::Granted { number } = holder.says(plan).await? {
            return Ok(number);
        }
    }
}
