//! The events of a timeline as lines of text: one for each audit entry, and one for each silence of a holder.

use std::collections::BTreeMap;

use leasehold_wire::json::AuditEntryBody;

use super::{HoldSpan, ResourceTimeline, Turnover};
use crate::dashboard::text::{duration, plural};

/// One line of a timeline. Its texts come from callers: escape them where they are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct TimelineEvent {
    /// When it happened, by the wall clock of the server.
    pub at_ms: u64,
    /// The audit entry; none for a silence, which follows from the ttl.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<u64>,
    /// `granted`, `silent`, `ended`, `refused`, `first_report`, or the kind of the audit entry.
    pub event: String,
    /// The holder; empty if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub holder: String,
    /// The token number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_number: Option<String>,
    /// The slot of a lease with a numbered slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<u32>,
    /// Milliseconds between the end of the previous holder and this grant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap_ms: Option<u64>,
    /// Milliseconds for which this holder and the previous one both held it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlap_ms: Option<u64>,
    /// The rest, in words.
    pub detail: String,
}

/// The events of a timeline, oldest first. `entries` are those that the timeline was made from.
pub fn events(timeline: &ResourceTimeline, entries: &[AuditEntryBody]) -> Vec<TimelineEvent> {
    let mut sorted: Vec<&AuditEntryBody> = entries.iter().filter(|entry| entry.entry > 0).collect();
    sorted.sort_by_key(|entry| entry.entry);
    let granted: BTreeMap<u64, &HoldSpan> =
        timeline.holds.iter().filter_map(|hold| Some((hold.granted_entry?, hold))).collect();
    let ended: BTreeMap<&str, &HoldSpan> = timeline.holds.iter().map(|hold| (hold.lease.as_str(), hold)).collect();
    let by_token =
        |number: u64| timeline.holds.iter().find(|hold| hold.tokens.iter().any(|(_, token)| *token == number));
    let mut events = Vec::with_capacity(sorted.len());
    let mut at = 0;
    for entry in sorted {
        // The wall clock may be set back; the order of the entries counts.
        at = entry.wall_ms.max(at);
        let lease = entry.lease.as_deref().and_then(|lease| ended.get(lease)).copied();
        let number = entry.token_number.as_ref().and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut event = TimelineEvent {
            at_ms: at,
            entry: Some(entry.entry),
            event: entry.kind.clone(),
            holder: entry.holder.clone().unwrap_or_default(),
            token_number: entry.token_number.clone(),
            slot: entry.slot,
            ..TimelineEvent::default()
        };
        let mut words = Vec::new();
        match entry.kind.as_str() {
            "granted" => {
                let hold = granted.get(&entry.entry);
                match hold.and_then(|hold| hold.turnover) {
                    Some(Turnover::Gap(ms)) => {
                        event.gap_ms = Some(ms);
                        words.push(format!("gap {}", duration(ms)));
                    }
                    Some(Turnover::Overlap(ms)) => {
                        event.overlap_ms = Some(ms);
                        words.push(format!("overlap {}", duration(ms)));
                    }
                    None => {}
                }
                words.extend(entry.access.clone().filter(|access| access != "exclusive"));
                words.push(
                    entry
                        .ttl_ms
                        .map_or_else(|| "ttl of its session".to_owned(), |ttl| format!("ttl {}", duration(ttl))),
                );
            }
            "ended" | "hold_confirmed" => {
                let (state, reason) =
                    (entry.state.clone().unwrap_or_default(), entry.reason.clone().unwrap_or_default());
                match (state.is_empty(), state == reason) {
                    (true, _) => words.push("confirmed".to_owned()),
                    (false, true) => words.push(state),
                    (false, false) => words.push(format!("{state}: {}", reason.replace('_', " "))),
                }
                if let Some(hold) = lease.filter(|hold| hold.granted_entry.is_some()) {
                    words.push(format!("held {}", duration(at.saturating_sub(hold.from_ms))));
                }
                if let Some(silent) = lease.and_then(HoldSpan::silent_from_ms) {
                    words.push(format!("no renewal for {}", duration(at.saturating_sub(silent))));
                }
            }
            "zombie" => {
                event.event = "refused".to_owned();
                let target = entry.target.as_deref().unwrap_or("an unknown target");
                words.push(format!("{target} refused {}", plural(entry.units.unwrap_or(1), "write")));
                words.extend(entry.mark.as_ref().map(|mark| format!("its mark is {mark}")));
                if let Some(ended) = by_token(number).and_then(|hold| hold.until_ms) {
                    words.push(format!("reported {} after the lease ended", duration(at.saturating_sub(ended))));
                }
            }
            "target_reported" => {
                event.event = "first_report".to_owned();
                words.push(format!("target {}", entry.target.as_deref().unwrap_or_default()));
                words.extend(entry.mode.clone());
            }
            _ => {
                words.extend(entry.handoff_mode.clone());
                words.extend(entry.to.as_ref().map(|to| format!("to {to}")));
                words.extend(entry.reason.as_ref().map(|reason| reason.replace('_', " ")));
                words.extend(entry.ttl_ms.map(|ttl| format!("ttl {}", duration(ttl))));
                words.extend(entry.target.as_ref().map(|target| format!("target {target}")));
            }
        }
        words.extend(entry.by.as_ref().map(|by| format!("by {by}")));
        words.extend(entry.comment.as_ref().map(|comment| format!("\"{comment}\"")));
        event.detail = words.join(", ");
        events.push(event);
    }
    events.extend(silences(timeline));
    // A silence precedes what happened at the same time.
    events.sort_by_key(|event| (event.at_ms, event.entry.is_some(), event.entry));
    events
}

/// When holders fell silent: those whose lease expired, and those that are overdue now.
fn silences(timeline: &ResourceTimeline) -> Vec<TimelineEvent> {
    let event = |hold: &HoldSpan, at_ms, detail: String| TimelineEvent {
        at_ms,
        event: "silent".to_owned(),
        holder: hold.holder.clone(),
        token_number: Some(hold.token().to_string()),
        slot: hold.slot,
        detail,
        ..TimelineEvent::default()
    };
    let mut silences = Vec::new();
    for hold in &timeline.holds {
        if let Some(at) = hold.silent_from_ms() {
            silences.push(event(hold, at, "no renewal arrives from here on".to_owned()));
        }
        let overdue = timeline.silent.iter().find(|one| one.token == hold.token() && hold.until_ms.is_none());
        if let Some(overdue) = overdue {
            let ago = duration(timeline.now_ms.saturating_sub(overdue.since_ms));
            silences.push(event(hold, overdue.since_ms, format!("no renewal for {ago}, and it still holds")));
        }
    }
    silences
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ended, entry, granted};
    use super::super::{SilentLease, TimelineContext};
    use super::*;

    #[test]
    fn each_entry_is_one_line_and_a_silence_has_a_line_of_its_own() {
        let zombie = AuditEntryBody {
            target: Some("ledger".into()),
            mark: Some("11".into()),
            units: Some(2),
            ..entry(4, 26_000, "zombie", "", "a", 10)
        };
        let entries = [
            zombie,
            granted(1, 0, "1.0", "a", 10),
            ended(2, 20_000, "1.0", "a", 10, "ttl"),
            granted(3, 20_007, "2.0", "b", 11),
        ];
        let start = 1_700_000_000_000;
        let context = TimelineContext {
            now_ms: start + 40_000,
            silent: vec![SilentLease { token: 11, since_ms: start + 30_000 }],
            ..TimelineContext::default()
        };
        let timeline = ResourceTimeline::new("jobs/x", &entries, context);
        let found: Vec<_> = events(&timeline, &entries)
            .into_iter()
            .map(|event| (event.at_ms - start, event.event, event.holder, event.detail))
            .collect();
        let line =
            |at, event: &str, holder: &str, detail: &str| (at, event.to_owned(), holder.to_owned(), detail.to_owned());
        assert_eq!(
            found,
            [
                line(0, "granted", "a", "ttl 10 s"),
                line(10_000, "silent", "a", "no renewal arrives from here on"),
                line(20_000, "ended", "a", "expired: ttl, held 20 s, no renewal for 10 s"),
                line(20_007, "granted", "b", "gap 7 ms, ttl 10 s"),
                line(
                    26_000,
                    "refused",
                    "a",
                    "ledger refused 2 writes, its mark is 11, reported 6.0 s after the lease ended"
                ),
                line(30_000, "silent", "b", "no renewal for 10 s, and it still holds"),
            ]
        );
    }

    #[test]
    fn a_lease_from_before_the_first_entry_and_a_change_have_lines() {
        let handoff = AuditEntryBody {
            handoff_mode: Some("overlap".into()),
            to: Some("b".into()),
            by: Some("ops".into()),
            comment: Some("why".into()),
            ..entry(1, 500, "handoff", "1.0", "a", 10)
        };
        let entries = [handoff, ended(2, 900, "1.0", "a", 10, "handed_off")];
        let timeline = ResourceTimeline::new("jobs/x", &entries, TimelineContext::default());
        let found: Vec<_> = events(&timeline, &entries).into_iter().map(|event| event.detail).collect();
        assert_eq!(found, ["overlap, to b, by ops, \"why\"", "expired: handed off"]);
    }
}
