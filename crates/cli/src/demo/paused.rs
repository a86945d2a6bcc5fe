//! The holder is stopped with its write ready: what arrives late, and what becomes of it.

use serde_json::json;

use super::ledger::{self, Books};
use super::stage::{Holder, Stage, go_on, stop};
use super::talk::{Order, Outcome, Said, Target};
use super::timeline::Timeline;
use super::{Plan, Verdict, failed};
use crate::told::Failure;

const FIRST_PAYS: i64 = 30;
const SECOND_PAYS: i64 = 50;

pub async fn play(plan: Plan, timeline: &mut Timeline) -> Result<Verdict, Failure> {
    let stage = Stage::set(plan, timeline).await?;
    let late = plan.pause >= plan.ttl;
    let mut first = stage.holder("first", FIRST_PAYS, plan)?;
    let number = comes_in(&mut first, plan, timeline).await?;
    let mut second = stage.holder("second", SECOND_PAYS, plan)?;
    // It lies in the pipe until it has the lease, and then it writes at once.
    second.order(Order::Write)?;
    timeline.tell("second", "asks for the same lease, and waits");

    first.order(Order::Prepare)?;
    let left = loop {
        match first.says(plan).await? {
            Said::Prepared { left_ms } => break left_ms,
            Said::Lost { code } => return Err(too_slow(&code)),
            _ => {}
        }
    };
    let ready = format!("has its write ready: pay {FIRST_PAYS}. By its own clock it holds for {left} ms more");
    timeline.tell("first", &ready);
    stop(first.id())?;
    timeline.tell("first", &format!("is stopped, for {:?}", plan.pause));
    first.order(Order::Write)?;
    let mut successor = None;
    if late {
        // However long that takes: the first holder stands until the second has written.
        let (taken, ()) = tokio::join!(takes_over(&mut second, plan, timeline), tokio::time::sleep(plan.pause));
        successor = Some(taken?);
    } else {
        tokio::time::sleep(plan.pause).await;
    }
    timeline.tell("first", "is continued, and writes what it had ready");
    go_on(first.id())?;
    let wrote = hears_writes(&mut first, plan, timeline).await?;
    if !late {
        first.order(Order::Release)?;
        timeline.tell("first", "gives the lease back");
        successor = Some(takes_over(&mut second, plan, timeline).await?);
    }
    let successor = successor.ok_or_else(|| failed("nobody took over"))?;
    judge(&stage, plan, late, &Played { number, successor, wrote })
}

/// What was seen.
struct Played {
    /// The first holder's token.
    number: String,
    successor: String,
    /// What became of the first holder's write.
    wrote: Vec<(Target, Outcome)>,
}

async fn comes_in(holder: &mut Holder, plan: Plan, timeline: &mut Timeline) -> Result<String, Failure> {
    let mut number = String::new();
    loop {
        match holder.says(plan).await? {
            Said::Granted { number: granted } => {
                timeline.tell(holder.name, &format!("is granted the lease, token {granted}, ttl {:?}", plan.ttl));
                number = granted;
            }
            Said::Claimed => timeline.tell(holder.name, "claims: shows its token to the fence before it reads"),
            Said::Read { balance } => {
                timeline.tell(holder.name, &format!("reads the balance: {balance}"));
                return Ok(number);
            }
            Said::Lost { code } => return Err(too_slow(&code)),
            _ => {}
        }
    }
}

async fn takes_over(second: &mut Holder, plan: Plan, timeline: &mut Timeline) -> Result<String, Failure> {
    let number = comes_in(second, plan, timeline).await?;
    hears_writes(second, plan, timeline).await?;
    Ok(number)
}

/// Hears of a write to each target.
async fn hears_writes(
    holder: &mut Holder,
    plan: Plan,
    timeline: &mut Timeline,
) -> Result<Vec<(Target, Outcome)>, Failure> {
    let mut wrote = Vec::new();
    while wrote.len() < if plan.fenced { 2 } else { 1 } {
        match holder.says(plan).await? {
            Said::Wrote { target, outcome } => {
                timeline.tell(holder.name, &in_words(target, &outcome));
                wrote.push((target, outcome));
            }
            Said::Lost { code } => timeline.tell(holder.name, &format!("is told by the grantor: {code}")),
            _ => {}
        }
    }
    Ok(wrote)
}

fn in_words(target: Target, outcome: &Outcome) -> String {
    let target = if target == Target::Fenced { "fenced database" } else { "unfenced database" };
    match outcome {
        Outcome::Written => format!("writes to the {target}: written"),
        Outcome::Refused { code, presented, mark } => {
            let number = |n: &Option<String>| n.clone().unwrap_or_else(|| "?".to_owned());
            format!("writes to the {target}: REFUSED, {code}: token {} is below {}", number(presented), number(mark))
        }
    }
}

fn judge(stage: &Stage, plan: Plan, late: bool, played: &Played) -> Result<Verdict, Failure> {
    let mut lines = Vec::new();
    let mut targets = serde_json::Map::new();
    let mut shown = played.wrote.len() == if plan.fenced { 2 } else { 1 };
    for (target, outcome) in &played.wrote {
        let books = ledger::books(stage.directory(), *target)?;
        let (word, as_it_must) = match (target, late) {
            (Target::Fenced, true) => ("fenced", refused_as_stale(outcome, played) && books.sound),
            (Target::Unfenced, true) => ("unfenced", *outcome == Outcome::Written && !books.sound),
            (Target::Fenced, false) => ("fenced", *outcome == Outcome::Written && books.sound),
            (Target::Unfenced, false) => ("unfenced", *outcome == Outcome::Written && books.sound),
        };
        shown &= as_it_must;
        lines.push(summary(word, outcome, books));
        targets.insert(word.to_owned(), json!({ "late_write": outcome, "books": books, "as_it_must": as_it_must }));
    }
    lines.push(String::new());
    lines.push(why(late, shown, plan.fenced).to_owned());
    Ok(Verdict { shown, words: lines.join("\n"), targets: targets.into() })
}

fn refused_as_stale(outcome: &Outcome, played: &Played) -> bool {
    let (number, successor) = (Some(&played.number), Some(&played.successor));
    matches!(outcome, Outcome::Refused { code, presented, mark }
        if code == "STALE_TOKEN" && presented.as_ref() == number && mark.as_ref() == successor)
}

fn summary(word: &str, outcome: &Outcome, books: Books) -> String {
    let Books { balance, paid, sound } = books;
    let done = if *outcome == Outcome::Written { "accepted" } else { "refused" };
    let state = if sound { "sound" } else { "CORRUPTED" };
    let left = ledger::BEGINNING - paid;
    format!(
        "{word:<9} first holder's write {done}; paid {paid} of {}, balance {balance}, must be {left}: {state}",
        ledger::BEGINNING
    )
}

const fn why(late: bool, shown: bool, fenced: bool) -> &'static str {
    match (late, shown, fenced) {
        (_, false, _) => "This is not what must happen.",
        (true, true, true) => {
            "The first holder could not know: the pause came after its last look. Only the target could refuse it, by the token."
        }
        (true, true, false) => {
            "Without a fence the lease alone did not help: the late write took back what the second holder had paid."
        }
        (false, true, _) => {
            "The pause was shorter than the ttl: the lease was still the first holder's, nobody had been granted it, and its\nwrite counts. The second holder came after it and built on it."
        }
    }
}

fn too_slow(code: &str) -> Failure {
    failed(&format!("a holder lost its lease before it was stopped ({code}); choose a longer --ttl for this machine"))
}
