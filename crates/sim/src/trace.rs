//! A history for the eye: one line for each event.

use std::fmt::Write;

use leasehold_core::codec::Reader;
use leasehold_core::command::Answer;
use leasehold_core::record::{Header, Record};

use crate::clock::{At, MS};
use crate::history::{Event, History, Verdict};
use crate::stage::SERVERS;

/// All lines of a history.
pub fn lines(history: &History) -> String {
    let mut out = String::new();
    for (at, event) in &history.events {
        line(&mut out, *at, event);
    }
    out
}

/// The line of one event.
pub fn line(out: &mut String, at: At, event: &Event) {
    // Writing to a string cannot fail.
    let _ = write!(out, "{:>6}.{:03}  ", at / MS, at % MS);
    let _ = match event {
        Event::Asked { op, who, ask } => writeln!(out, "{:<10} asks #{op} {}", name(*who), words(ask)),
        Event::Arrived { op, server, .. } => writeln!(out, "server {server}   receives #{op}"),
        Event::Newer { shown, .. } => writeln!(out, "           {shown} is shown, which its grantor does not know"),
        Event::Decided { op, server, answer, .. } => {
            writeln!(out, "server {server}   decides #{op}: {}", told(answer))
        }
        Event::Told { op, server, answer, .. } => writeln!(out, "server {server}   tells #{op}: {}", told(answer)),
        Event::Answered { op, who, answer } => writeln!(out, "{:<10} hears #{op}: {}", name(*who), told(answer)),
        Event::GaveUp { op, why } => writeln!(out, "           #{op} goes on without an answer: {why}"),
        Event::Landed { generation, batch } => writeln!(out, "journal    keeps ({generation}): {}", records(batch)),
        Event::SetBack { why, batches } => {
            writeln!(out, "journal    is set back to {} batches: {}", batches.len(), why.word())
        }
        Event::Serving { server, generation } => writeln!(out, "server {server}   serves as generation {generation}"),
        Event::Stood { server, ms, .. } => writeln!(out, "server {server}   stood still for {ms} ms"),
        Event::Acts { who, number, honest } => {
            let clock = if *honest { "" } else { " by a wrong clock" };
            writeln!(out, "{:<10} believes that it holds under {number}{clock}, and acts", name(*who))
        }
        Event::Reached { target, id } => writeln!(out, "target {target}   is reached by #{id}"),
        Event::Wrote { target, who, shown, value, verdict, .. } => {
            let what = value.map_or("claims".to_owned(), |value| format!("writes {value}"));
            let verdict = match verdict {
                Verdict::Applied => "applied".to_owned(),
                Verdict::Refused(why) => format!("REFUSED, {why}"),
            };
            writeln!(out, "target {target}   {} {what} under {}: {verdict}", name(*who), shown.number)
        }
        Event::TargetKilled { target, kept } => writeln!(out, "target {target}   is killed and has {kept} entries"),
        Event::Mark { target, armed: None } => writeln!(out, "target {target}   has lost its mark"),
        Event::Mark { target, armed: Some(floor) } => writeln!(out, "target {target}   is armed again from {floor}"),
        Event::Adopted { target, incarnation } => {
            writeln!(out, "target {target}   is told to follow incarnation {incarnation}")
        }
        Event::Shows { server, state, .. } => writeln!(out, "server {server}   shows {} leases held", state.held.len()),
        Event::Struck { fault, what } => writeln!(out, "!          {}: {what}", fault.word()),
        Event::Healed => writeln!(out, "           everything is healed"),
        Event::Over { .. } => writeln!(out, "           over"),
        Event::Broken { promise, why } => writeln!(out, "           BROKEN {promise}: {why}"),
    };
}

fn name(who: u32) -> String {
    let first = SERVERS as u32 + 5;
    if who >= first { format!("holder {}", who - first) } else { "operator".to_owned() }
}

fn words(ask: &crate::ask::Ask) -> String {
    let text = format!("{ask:?}");
    let fields = text.split_once(' ').map_or("", |(_, fields)| fields);
    shorter(&format!("{} {fields}", ask.kind()))
}

fn told(answer: &Answer) -> String {
    match answer {
        Answer::Granted(grant) => format!("granted {} for {} ms", grant.number, grant.remaining_ms),
        Answer::GrantedAll(grants) => {
            let numbers: Vec<_> = grants.iter().map(|grant| grant.number.to_string()).collect();
            format!("granted {}", numbers.join(" and "))
        }
        Answer::Current(current) => format!("current {} for {} ms", current.number, current.remaining_ms),
        Answer::Refused(refusal) => format!("{}: {refusal}", refusal.code()),
        other => shorter(&format!("{other:?}")),
    }
}

fn records(batch: &[u8]) -> String {
    let mut from = Reader::new(batch);
    let Ok(header) = Header::decode(&mut from) else { return "what cannot be read".to_owned() };
    let mut words = Vec::new();
    while !from.is_empty() {
        match Record::decode(&mut from) {
            Ok(Record::Granted(granted)) => words.push(format!("granted {} {}", granted.resource, granted.number)),
            Ok(Record::Ended { number, reason, .. }) => words.push(format!("ended {number} ({reason})")),
            Ok(record) => {
                let text = format!("{record:?}");
                let kind = text.split([' ', '(']).next().unwrap_or_default().to_lowercase();
                words.push(kind);
            }
            Err(_) => {
                words.push("what cannot be read".to_owned());
                break;
            }
        }
    }
    shorter(&format!("at {} {}", header.time, words.join(", ")))
}

fn shorter(text: &str) -> String {
    const MOST: usize = 150;
    if text.chars().count() <= MOST { text.to_owned() } else { text.chars().take(MOST).chain(['…']).collect() }
}
