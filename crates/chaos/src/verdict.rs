//! Whether every promise held: the simulator's checkers over the histories, and what only real targets can show.

use std::collections::BTreeMap;
use std::io;

use leasehold_sim::check::{self, Violation, never_early, stale};
use leasehold_sim::clock::{At, MS};
use leasehold_sim::history::{Event, History};
use leasehold_sim::trace;
use serde::Serialize;

use crate::holder::target::Kind;
use crate::read::history::{Left, Sent, sent};
use crate::read::measured::measured;
use crate::read::tally::Tally;
use crate::said::What;

/// The checkers whose promises these processes can break. Others need what real processes do not tell (when a renewal was
/// decided, what a grantor shows of itself) or what these holders do not do.
const HERE: [&str; 8] = ["stale", "tokens", "acked", "one_holder", "never_early", "alive", "queue", "linear"];
/// How many events are shown before a violation.
const SHOWN: usize = 40;

/// A broken promise, and what led to it.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// Which promise.
    pub promise: String,
    /// Who found it.
    pub by: String,
    /// How it was broken.
    pub why: String,
    /// The events before it.
    pub events: Vec<String>,
}

impl Found {
    /// Something that no checker found.
    pub fn plain(promise: &str, why: &str) -> Self {
        Self { promise: promise.to_owned(), by: "run".to_owned(), why: why.to_owned(), events: Vec::new() }
    }

    fn of(by: &str, violation: &Violation, history: &History) -> Self {
        let target = violation.why.strip_prefix("target ").and_then(|rest| rest.split(' ').next()?.parse().ok());
        let events = shown(history, violation.at, target);
        Self { promise: violation.promise.to_owned(), by: by.to_owned(), why: violation.to_string(), events }
    }
}

/// The last events up to a moment, or those at one target.
fn shown(history: &History, until: At, target: Option<u32>) -> Vec<String> {
    let wanted = |event: &Event| match (event, target) {
        (Event::Wrote { target: at, .. }, Some(target)) => *at == target,
        (Event::Struck { .. }, _) | (_, None) => true,
        (_, Some(_)) => false,
    };
    let before: Vec<_> = history.events.iter().filter(|(at, event)| *at <= until && wanted(event)).collect();
    let line = |(at, event): &&(At, Event)| {
        let mut line = String::new();
        trace::line(&mut line, *at, event);
        line.trim_end().to_owned()
    };
    before[before.len().saturating_sub(SHOWN)..].iter().map(line).collect()
}

/// What a run without fences comes to: the corrupted write.
pub fn without_fence(history: &History) -> Vec<Found> {
    stale::check(history).err().map(|violation| Found::of("stale", &violation, history)).into_iter().collect()
}

/// Every checker over everything.
pub fn all(left: &Left, told: impl Fn(&Left) -> History, tally: &Tally) -> Vec<Found> {
    let mut found = Vec::new();
    let fenced = Left {
        said: left.said.clone(),
        batches: left.batches.clone(),
        ghosts: left.ghosts.iter().copied().filter(|ghost| Kind::of(ghost.target) != Kind::Twin).collect(),
    };
    let history = told(&fenced);
    for (name, _, check) in check::ALL.iter().filter(|(name, ..)| HERE.contains(name)) {
        found.extend(check(&history).err().map(|violation| Found::of(name, &violation, &history)));
    }
    let measured = measured(&fenced);
    if let Err(violation) = never_early::check(&measured) {
        found.push(Found { by: "never_early, measured".to_owned(), ..Found::of("", &violation, &history) });
    }
    if tally.late_accepted > 0 {
        found.push(Found::plain("F1", &format!("{} late writes got in", tally.late_accepted)));
    }
    let twin = Left {
        said: left.said.clone(),
        batches: Vec::new(),
        ghosts: left.ghosts.iter().copied().filter(|ghost| Kind::of(ghost.target) == Kind::Twin).collect(),
    };
    if stale::check(&told(&twin)).is_ok() {
        found.push(Found::plain("F1", "no unfenced twin was corrupted: the run proves nothing"));
    }
    found
}

/// Marks that were read while the run went on never fall.
pub fn marks_rise(known: &mut BTreeMap<u32, u64>, read: &io::Result<Vec<(u32, u64)>>) -> Vec<Found> {
    // A log whose lock a stopped holder has cannot be read now; the next glance will.
    let Ok(read) = read else { return Vec::new() };
    let mut found = Vec::new();
    for (target, mark) in read {
        let last = known.insert(*target, *mark).unwrap_or(0);
        if *mark < last {
            found.push(Found::plain("F7", &format!("the mark of target {target} fell from {last} to {mark}")));
        }
    }
    found
}

/// What a target told to be claimed or written lies at or below its mark.
pub fn marks_cover(left: &Left, kept: &io::Result<Vec<(u32, u64)>>) -> Vec<Found> {
    let kept: BTreeMap<u32, u64> = match kept {
        Ok(kept) => kept.iter().copied().collect(),
        Err(error) => return vec![Found::plain("F7", &format!("the marks cannot be read: {error}"))],
    };
    let sent = sent(&left.said);
    let mut found = Vec::new();
    for said in &left.said {
        let What::Written { op } = &said.what else { continue };
        let Some(Sent { target, number, .. }) = sent.get(op) else { continue };
        if let Some(mark) = kept.get(target).filter(|mark| *mark < number) {
            let why = format!("target {target} took {number} at {} ms and has the mark {mark}", said.at / MS);
            found.push(Found::plain("F2", &why));
        }
    }
    let applied: std::collections::BTreeSet<u64> = left.ghosts.iter().map(|ghost| ghost.op).collect();
    for said in &left.said {
        let What::Written { op } = &said.what else { continue };
        if sent.get(op).is_some_and(|write| write.value) && !applied.contains(op) {
            found.push(Found::plain("F2", &format!("write {op} was told to be in and is not there")));
        }
    }
    found.truncate(10);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_checker_that_is_named_here_is_one_of_the_simulators() {
        let known: Vec<_> = check::ALL.iter().map(|(name, ..)| *name).collect();
        assert!(HERE.iter().all(|name| known.contains(name)), "{known:?}");
    }
}
