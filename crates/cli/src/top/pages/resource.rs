//! One resource: why it is held or free, its leases, waiters, targets, and what happened last.

use leasehold::json::{LeaseBody, ResourceBody};
use leasehold_core::coverage::Hole;

use super::audit::{change_tone, detail};
use crate::commands::lease_text::slot_or_access;
use crate::resource_sentence::hold_sentence;
use crate::table::{format_duration, format_time};
use crate::top::job::ResourceData;
use crate::top::page_content::{Tone, ToneText};

type TonedLine = Vec<ToneText>;

pub fn lines(data: &ResourceData, time_ms: u64) -> Vec<TonedLine> {
    let mut lines = Vec::new();
    match &data.view {
        Ok(Some(view)) => {
            lines.push(vec![ToneText::new(hold_sentence(view, &data.ages, time_ms), Tone::Strong)]);
            lines.extend(lease_lines(view, time_ms));
        }
        Ok(None) => lines.push(vec![ToneText::new("Free: no one holds it and no one waits.", Tone::Strong)]),
        Err(problem) => lines.push(problem_line(problem)),
    }
    lines.extend(heading("WAITERS, IN ORDER"));
    match &data.waiters {
        Err(problem) => lines.push(problem_line(problem)),
        Ok(waiters) if waiters.is_empty() => lines.push(indented("no one waits", Tone::Dim)),
        Ok(waiters) => {
            for (at, waiter) in waiters.iter().enumerate() {
                let unseen = if waiter.seen_in_tenure { "" } else { ", not seen since the last change of leader" };
                let (priority, left) = (waiter.effective_priority, format_duration(waiter.remaining_ms));
                let text = format!("{}. {}  priority {priority}, gives up in {left}{unseen}", at + 1, waiter.holder);
                lines.push(indented(text, Tone::Plain));
            }
            let all = data.view.as_ref().ok().and_then(Option::as_ref).map_or(0, |view| view.waiters);
            let more = all.saturating_sub(waiters.len() as u64);
            lines.extend((more > 0).then(|| indented(format!("and {more} more"), Tone::Dim)));
        }
    }
    lines.extend(heading("TARGETS"));
    match &data.coverage {
        Err(problem) => lines.push(problem_line(problem)),
        Ok(coverage) => lines.extend(coverage.targets.iter().map(target_line)),
    }
    lines.extend(heading("HISTORY, NEWEST FIRST"));
    match &data.history {
        Err(problem) => lines.push(problem_line(problem)),
        Ok(entries) if entries.is_empty() => lines.push(indented("no entry is retained", Tone::Dim)),
        Ok(entries) => lines.extend(entries.iter().map(|entry| {
            let number = entry.token_number.as_ref().map(|number| format!("#{number} ")).unwrap_or_default();
            vec![
                ToneText::dim(format!("  {}  ", format_time(entry.wall_ms))),
                ToneText::new(format!("{:<16}", entry.kind.replace('_', " ")), change_tone(entry)),
                ToneText::plain(format!("{}  ", entry.holder.as_deref().unwrap_or("-"))),
                ToneText::dim(number),
                ToneText::plain(detail(entry)),
            ]
        })),
    }
    lines
}

fn lease_lines(view: &ResourceBody, time_ms: u64) -> Vec<TonedLine> {
    let mut lines = heading("LEASES");
    if view.leases.is_empty() {
        lines.push(indented("no lease is held", Tone::Dim));
    }
    let line = |lease: &LeaseBody| {
        let age = format_duration(time_ms.saturating_sub(lease.granted_ms));
        let end = match lease.ttl_ms {
            Some(ttl) => format!("ends in {} of {}", format_duration(lease.remaining_ms), format_duration(ttl)),
            None => "ends with its session".to_owned(),
        };
        let progress = lease.progress.as_ref().map(|at| format!(", progress {at}")).unwrap_or_default();
        let draining = lease.draining.as_ref().map(|reason| format!(", draining: {reason}")).unwrap_or_default();
        let text = format!(
            "{}  #{}  {}  held {age}, {end}{progress}{draining}",
            lease.holder,
            lease.token_number,
            slot_or_access(lease)
        );
        indented(text, Tone::Plain)
    };
    lines.extend(view.leases.iter().take(50).map(line));
    let more = view.held.saturating_sub(50.min(view.leases.len() as u64));
    lines.extend((more > 0).then(|| indented(format!("and {more} more"), Tone::Dim)));
    lines
}

fn target_line(target: &leasehold::json::TargetCoverageBody) -> TonedLine {
    let name = if target.name.is_empty() { "no target is known" } else { &target.name };
    let (state, tone) = match &target.hole {
        Some(hole) => {
            let advice = Hole::from_word(hole).map_or("", Hole::advice);
            (format!("{}: {advice}", hole.replace('_', " ")), Tone::Bad)
        }
        None => (format!("refuses a stale token ({})", target.mode.as_deref().unwrap_or("covered")), Tone::Good),
    };
    let zombies: u64 = target.slots.iter().map(|slot| slot.zombies).sum();
    let refused = if zombies > 0 { format!("  {zombies} zombie writes refused") } else { String::new() };
    vec![ToneText::plain(format!("  {name}  ")), ToneText::new(state, tone), ToneText::new(refused, Tone::Warn)]
}

fn heading(text: &str) -> Vec<TonedLine> {
    vec![Vec::new(), vec![ToneText::dim(text)]]
}

fn indented(text: impl Into<String>, tone: Tone) -> TonedLine {
    vec![ToneText::plain("  "), ToneText::new(text, tone)]
}

fn problem_line(problem: &str) -> TonedLine {
    indented(problem, Tone::Bad)
}
