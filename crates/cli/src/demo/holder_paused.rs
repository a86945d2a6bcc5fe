//! Scenario: a holder is paused with a prepared write, which then arrives late.

use serde_json::json;

use super::ipc::{DemoTarget, DemoWriteOutcome, HolderCommand, HolderEvent};
use super::ledger::{self, AccountState};
use super::setup::{DemoSetup, HolderHandle, pause, resume};
use super::timeline::Timeline;
use super::{DemoPlan, DemoVerdict, UNEXPECTED, failed};
use crate::output::CommandError;

const FIRST_PAYS: i64 = 30;
const SECOND_PAYS: i64 = 50;

pub async fn run(plan: DemoPlan, timeline: &mut Timeline) -> Result<DemoVerdict, CommandError> {
    let setup = DemoSetup::single_server(plan, timeline).await?;
    let late = plan.pause >= plan.ttl;
    let mut first = setup.start_holder("first", FIRST_PAYS, plan)?;
    let number = claim_and_read(&mut first, plan, timeline).await?;
    let mut second = setup.start_holder("second", SECOND_PAYS, plan)?;
    // The command waits in the pipe until the second holder has the lease; then it writes immediately.
    second.send(HolderCommand::Write)?;
    timeline.record("second", "requests the same lease and waits");

    first.send(HolderCommand::Prepare)?;
    let left = loop {
        match first.next_event(plan).await? {
            HolderEvent::Prepared { left_ms } => break left_ms,
            HolderEvent::Lost { code } => return Err(too_slow(&code)),
            _ => {}
        }
    };
    let event = format!("prepares its write: pay {FIRST_PAYS}. By its own clock it holds the lease for {left} ms more");
    timeline.record("first", &event);
    pause(first.id())?;
    timeline.record("first", &format!("is paused for {:?}", plan.pause));
    first.send(HolderCommand::Write)?;
    let mut successor = None;
    if late {
        // The first holder stays paused until the second has written, however long that takes.
        let (taken, ()) = tokio::join!(take_over(&mut second, plan, timeline), tokio::time::sleep(plan.pause));
        successor = Some(taken?);
    } else {
        tokio::time::sleep(plan.pause).await;
    }
    timeline.record("first", "resumes and sends its prepared write");
    resume(first.id())?;
    let wrote = collect_writes(&mut first, plan, timeline).await?;
    if !late {
        first.send(HolderCommand::Release)?;
        timeline.record("first", "releases the lease");
        successor = Some(take_over(&mut second, plan, timeline).await?);
    }
    let successor = successor.ok_or_else(|| failed("the second holder did not acquire the lease"))?;
    judge(&setup, plan, late, &Observations { number, successor, wrote })
}

/// Observations of the scenario.
struct Observations {
    /// Token number of the first holder.
    number: String,
    /// Token number of the second holder.
    successor: String,
    /// Outcomes of the first holder's write.
    wrote: Vec<(DemoTarget, DemoWriteOutcome)>,
}

async fn claim_and_read(
    holder: &mut HolderHandle,
    plan: DemoPlan,
    timeline: &mut Timeline,
) -> Result<String, CommandError> {
    let mut number = String::new();
    loop {
        match holder.next_event(plan).await? {
            HolderEvent::Granted { number: granted } => {
                timeline.record(holder.name, &format!("is granted the lease, token {granted}, ttl {:?}", plan.ttl));
                number = granted;
            }
            HolderEvent::Claimed => {
                timeline.record(holder.name, "claims: presents its token to the fence before it reads")
            }
            HolderEvent::Read { balance } => {
                timeline.record(holder.name, &format!("reads the balance: {balance}"));
                return Ok(number);
            }
            HolderEvent::Lost { code } => return Err(too_slow(&code)),
            _ => {}
        }
    }
}

async fn take_over(second: &mut HolderHandle, plan: DemoPlan, timeline: &mut Timeline) -> Result<String, CommandError> {
    let number = claim_and_read(second, plan, timeline).await?;
    collect_writes(second, plan, timeline).await?;
    Ok(number)
}

/// Waits for the outcome of the write to each target.
async fn collect_writes(
    holder: &mut HolderHandle,
    plan: DemoPlan,
    timeline: &mut Timeline,
) -> Result<Vec<(DemoTarget, DemoWriteOutcome)>, CommandError> {
    let mut wrote = Vec::new();
    while wrote.len() < if plan.fenced { 2 } else { 1 } {
        match holder.next_event(plan).await? {
            HolderEvent::Wrote { target, outcome } => {
                timeline.record(holder.name, &describe(target, &outcome));
                wrote.push((target, outcome));
            }
            HolderEvent::Lost { code } => timeline.record(holder.name, &format!("receives {code} from the grantor")),
            _ => {}
        }
    }
    Ok(wrote)
}

fn describe(target: DemoTarget, outcome: &DemoWriteOutcome) -> String {
    let target = if target == DemoTarget::Fenced { "fenced database" } else { "unfenced database" };
    match outcome {
        DemoWriteOutcome::Written => format!("writes to the {target}: written"),
        DemoWriteOutcome::Refused { code, presented, mark } => {
            let number = |n: &Option<String>| n.clone().unwrap_or_else(|| "?".to_owned());
            format!(
                "writes to the {target}: REFUSED, {code}: token {} is below mark {}",
                number(presented),
                number(mark)
            )
        }
    }
}

fn judge(setup: &DemoSetup, plan: DemoPlan, late: bool, observed: &Observations) -> Result<DemoVerdict, CommandError> {
    let mut lines = Vec::new();
    let mut targets = serde_json::Map::new();
    let mut passed = observed.wrote.len() == if plan.fenced { 2 } else { 1 };
    for (target, outcome) in &observed.wrote {
        let account = ledger::account_state(setup.directory(), *target)?;
        let (word, as_expected) = match (target, late) {
            (DemoTarget::Fenced, true) => ("fenced", refused_as_stale(outcome, observed) && account.consistent),
            (DemoTarget::Unfenced, true) => ("unfenced", *outcome == DemoWriteOutcome::Written && !account.consistent),
            (DemoTarget::Fenced, false) => ("fenced", *outcome == DemoWriteOutcome::Written && account.consistent),
            (DemoTarget::Unfenced, false) => ("unfenced", *outcome == DemoWriteOutcome::Written && account.consistent),
        };
        passed &= as_expected;
        lines.push(summary(word, outcome, account));
        targets
            .insert(word.to_owned(), json!({ "late_write": outcome, "account": account, "as_expected": as_expected }));
    }
    lines.push(String::new());
    lines.push(explanation(late, passed, plan.fenced).to_owned());
    Ok(DemoVerdict { passed, summary: lines.join("\n"), targets: targets.into() })
}

fn refused_as_stale(outcome: &DemoWriteOutcome, observed: &Observations) -> bool {
    let (number, successor) = (Some(&observed.number), Some(&observed.successor));
    matches!(outcome, DemoWriteOutcome::Refused { code, presented, mark }
        if code == "STALE_TOKEN" && presented.as_ref() == number && mark.as_ref() == successor)
}

fn summary(word: &str, outcome: &DemoWriteOutcome, account: AccountState) -> String {
    let AccountState { balance, paid, consistent } = account;
    let done = if *outcome == DemoWriteOutcome::Written { "accepted" } else { "rejected" };
    let state = if consistent { "consistent" } else { "CORRUPTED" };
    let left = ledger::INITIAL_BALANCE - paid;
    format!(
        "{word:<9} first holder's write {done}; paid {paid} of {}, balance {balance}, expected {left}: {state}",
        ledger::INITIAL_BALANCE
    )
}

const fn explanation(late: bool, passed: bool, fenced: bool) -> &'static str {
    match (late, passed, fenced) {
        (_, false, _) => UNEXPECTED,
        (true, true, true) => {
            "The first holder could not know that its lease had ended: the pause came after its last check. Only the target can\nreject the write, by its token."
        }
        (true, true, false) => {
            "Without a fence the lease alone did not help: the late write overwrote the second holder's payment."
        }
        (false, true, _) => {
            "The pause was shorter than the ttl: the first holder still had the lease, and its write is valid. The second holder\nacquired the lease afterwards and read the new balance."
        }
    }
}

fn too_slow(code: &str) -> CommandError {
    failed(&format!("a holder lost its lease before it was paused ({code}); use a longer --ttl on this machine"))
}
