//! Prints a history, one line per event.

use std::fmt::Write;

use leasehold_core::codec::Reader;
use leasehold_core::command::Answer;
use leasehold_core::record::{BatchHeader, Record};

use crate::clock::{MS, SimTime};
use crate::history::{History, HistoryEvent, TargetVerdict};
use crate::message::SERVERS;

/// The whole history as text.
pub fn lines(history: &History) -> String {
    let mut out = String::new();
    for (at, event) in &history.events {
        line(&mut out, *at, event);
    }
    out
}

/// One event as a line.
pub fn line(out: &mut String, at: SimTime, event: &HistoryEvent) {
    // Writing to a string cannot fail.
    let _ = write!(out, "{:>6}.{:03}  ", at / MS, at % MS);
    let _ = match event {
        HistoryEvent::Requested { op, actor, request } => {
            writeln!(out, "{:<10} requests #{op} {}", actor_name(*actor), request_text(request))
        }
        HistoryEvent::Arrived { op, server, .. } => writeln!(out, "server {server}   receives #{op}"),
        HistoryEvent::StoreRestored => writeln!(out, "journal    is restored; servers keep their high-water marks"),
        HistoryEvent::HighWaterLost { server } => writeln!(out, "server {server}   loses its high-water mark"),
        HistoryEvent::RollbackFound { server } => {
            writeln!(out, "server {server}   finds that the journal was rolled back")
        }
        HistoryEvent::TokenPresented { presented, .. } => writeln!(out, "           {presented} is presented"),
        HistoryEvent::NewerTokenPresented { presented, .. } => {
            writeln!(out, "           {presented} is presented, which is newer than the grantor's counter")
        }
        HistoryEvent::Decided { op, server, answer, .. } => {
            writeln!(out, "server {server}   decides #{op}: {}", answer_text(answer))
        }
        HistoryEvent::ImpostorAnswered(attempt) => {
            writeln!(out, "impostor   sends a copy of {:?}: {:?}", attempt.request, attempt.answer)
        }
        HistoryEvent::OperatorActed(act) => {
            let verdict = if act.executed { "executed" } else { "refused" };
            writeln!(out, "operator   {} requests {:?}: {verdict}", act.by, act.kind)
        }
        HistoryEvent::UsageReported { identity, has, .. } => writeln!(out, "           {identity} has {has:?}"),
        HistoryEvent::LimitReached { op, identity, limit, max, has, .. } => {
            writeln!(out, "           {identity} is refused #{op}: {limit} {has} of {max}")
        }
        HistoryEvent::ReplySent { op, server, answer, .. } => {
            writeln!(out, "server {server}   replies to #{op}: {}", answer_text(answer))
        }
        HistoryEvent::ReplyReceived { op, actor, answer } => {
            writeln!(out, "{:<10} gets #{op}: {}", actor_name(*actor), answer_text(answer))
        }
        HistoryEvent::Abandoned { op, reason } => writeln!(out, "           #{op} is abandoned: {reason}"),
        HistoryEvent::BatchDurable { generation, batch } => {
            writeln!(out, "journal    stores ({generation}): {}", records(batch))
        }
        HistoryEvent::JournalReverted { cause, batches } => {
            writeln!(out, "journal    is rolled back to {} batches: {}", batches.len(), cause.name())
        }
        HistoryEvent::Serving { server, generation } => {
            writeln!(out, "server {server}   serves as generation {generation}")
        }
        HistoryEvent::Stalled { server, ms, .. } => writeln!(out, "server {server}   was paused for {ms} ms"),
        HistoryEvent::HolderActed { actor, number, clock_ok } => {
            let clock = if *clock_ok { "" } else { " by a wrong clock" };
            writeln!(out, "{:<10} believes that it holds under {number}{clock}, and acts", actor_name(*actor))
        }
        HistoryEvent::WriteArrived { target, id } => writeln!(out, "target {target}   receives #{id}"),
        HistoryEvent::WriteDecided { target, actor, presented, value, verdict, .. } => {
            let what = value.map_or("claims".to_owned(), |value| format!("writes {value}"));
            let verdict = match verdict {
                TargetVerdict::Applied => "applied".to_owned(),
                TargetVerdict::Refused(detail) => format!("REFUSED, {detail}"),
            };
            writeln!(out, "target {target}   {} {what} under {}: {verdict}", actor_name(*actor), presented.number)
        }
        HistoryEvent::TargetKilled { target, remaining } => {
            writeln!(out, "target {target}   is killed; {remaining} entries remain")
        }
        HistoryEvent::MarkChanged { target, armed: None } => writeln!(out, "target {target}   has lost its mark"),
        HistoryEvent::MarkChanged { target, armed: Some(floor) } => {
            writeln!(out, "target {target}   is re-armed from {floor}")
        }
        HistoryEvent::Adopted { target, incarnation } => {
            writeln!(out, "target {target}   adopts incarnation {incarnation}")
        }
        HistoryEvent::StateReported { server, state, .. } => {
            writeln!(out, "server {server}   reports {} leases held", state.held.len())
        }
        HistoryEvent::FaultInjected { fault, detail } => writeln!(out, "!          {}: {detail}", fault.name()),
        HistoryEvent::Healed => writeln!(out, "           everything is healed"),
        HistoryEvent::RunEnded { .. } => writeln!(out, "           end of the run"),
        HistoryEvent::InvariantBroken { promise, detail } => writeln!(out, "           BROKEN {promise}: {detail}"),
    };
}

fn actor_name(actor: u32) -> String {
    let first = SERVERS as u32 + 5;
    if actor >= first { format!("holder {}", actor - first) } else { "operator".to_owned() }
}

fn request_text(request: &crate::request::SimRequest) -> String {
    let text = format!("{request:?}");
    let fields = text.split_once(' ').map_or("", |(_, fields)| fields);
    truncate(&format!("{} {fields}", request.kind()))
}

fn answer_text(answer: &Answer) -> String {
    match answer {
        Answer::Granted(grant) => format!("granted {} for {} ms", grant.number, grant.remaining_ms),
        Answer::GrantedAll(grants) => {
            let numbers: Vec<_> = grants.iter().map(|grant| grant.number.to_string()).collect();
            format!("granted {}", numbers.join(" and "))
        }
        Answer::Current(current) => format!("current {} for {} ms", current.number, current.remaining_ms),
        Answer::Refused(refusal) => format!("{}: {refusal}", refusal.code()),
        other => truncate(&format!("{other:?}")),
    }
}

fn records(batch: &[u8]) -> String {
    let mut from = Reader::new(batch);
    let Ok(header) = BatchHeader::decode(&mut from) else { return "unreadable records".to_owned() };
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
                words.push("unreadable records".to_owned());
                break;
            }
        }
    }
    truncate(&format!("at {} {}", header.time, words.join(", ")))
}

fn truncate(text: &str) -> String {
    const LIMIT: usize = 150;
    if text.chars().count() <= LIMIT { text.to_owned() } else { text.chars().take(LIMIT).chain(['…']).collect() }
}
