//! The timeline of one resource, from its audit entries: holders with their tokens, gaps and overlaps between them, and writes that
//! targets refused. The dashboard and `leasehold trace` draw it with the same code.

mod events;
mod scale;
mod svg;

use std::collections::BTreeMap;

use leasehold_wire::json::AuditEntryBody;

pub use events::{TimelineEvent, events};
pub use scale::TimeScale;
pub use svg::{STYLE, TimelineSvg};

/// The time between two holders of one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turnover {
    /// No one held the slot for this many milliseconds.
    Gap(u64),
    /// Both held it for this many milliseconds.
    Overlap(u64),
}

impl Turnover {
    /// The milliseconds without a sign.
    pub const fn millis(self) -> u64 {
        match self {
            Self::Gap(ms) | Self::Overlap(ms) => ms,
        }
    }
}

/// One holder of a resource, from its grant to the end of its lease. Times are those of the server's wall clock, unless they are grantor
/// time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HoldSpan {
    /// Name of the holder.
    pub holder: String,
    /// Id of the lease.
    pub lease: String,
    /// Number of the audit entry of the grant; none if the grant precedes the entries.
    pub granted_entry: Option<u64>,
    /// Token numbers with the times from which they count. A rotation adds one.
    pub tokens: Vec<(u64, u64)>,
    /// `exclusive`, `shared`, `slot` or `units`.
    pub access: String,
    /// Slot of an exclusive lease.
    pub slot: Option<u32>,
    /// Lifetime after each renewal; none if it is that of the session.
    pub ttl_ms: Option<u64>,
    /// When the lease was granted, or the start of the timeline.
    pub from_ms: u64,
    /// When the lease ended; none if it is held.
    pub until_ms: Option<u64>,
    /// Grantor time of the grant and of the end.
    pub grantor_ms: (Option<u64>, Option<u64>),
    /// The reason of the end; empty if it is held.
    pub reason: String,
    /// `expired`, `released` or `revoked`; empty if it is held.
    pub state: String,
    /// Who ended it, and the comment.
    pub ended_by: String,
    /// The operator's comment on the end.
    pub comment: String,
    /// When its holder was asked to drain.
    pub drain_from_ms: Option<u64>,
    /// The time since the end of the previous holder of the slot.
    pub turnover: Option<Turnover>,
    /// The hold of the previous holder of the slot, as an index of [`ResourceTimeline::holds`].
    pub previous: Option<usize>,
}

impl HoldSpan {
    /// The last token number.
    pub fn token(&self) -> u64 {
        self.tokens.last().map_or(0, |(_, number)| *number)
    }

    /// From when on no renewal arrived, if the lease ended because of that.
    pub fn silent_from_ms(&self) -> Option<u64> {
        let (until, ttl) = (self.until_ms?, self.ttl_ms?);
        (self.reason == "ttl").then(|| until.saturating_sub(ttl).max(self.from_ms))
    }
}

/// Writes of one zombie that a target refused, as its fence reported them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusedWrite {
    /// Number of the audit entry.
    pub entry: u64,
    /// When the server received the report.
    pub at_ms: u64,
    /// The target.
    pub target: String,
    /// The token number that the zombie presented.
    pub presented: u64,
    /// The mark of the target, which is higher.
    pub mark: u64,
    /// Number of refused writes.
    pub times: u64,
    /// Name of the zombie; empty if it is unknown.
    pub holder: String,
}

/// The first report of a target's fence in its mode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetReport {
    /// Number of the audit entry.
    pub entry: u64,
    /// When the server received it.
    pub at_ms: u64,
    /// The target.
    pub target: String,
    /// `forced` or `cooperative`.
    pub mode: String,
}

/// A renewal that was observed while someone looked at the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedRenewal {
    /// The token number of the lease.
    pub token: u64,
    /// When it was renewed.
    pub at_ms: u64,
}

/// A held lease that nothing has renewed for half of its ttl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SilentLease {
    /// The token number of the lease.
    pub token: u64,
    /// When it was renewed last.
    pub since_ms: u64,
}

/// What is known besides the audit log.
#[derive(Clone, Debug, Default)]
pub struct TimelineContext {
    /// The current time; held leases extend to it.
    pub now_ms: u64,
    /// Renewals that were observed.
    pub renewals: Vec<ObservedRenewal>,
    /// Held leases that are overdue for a renewal.
    pub silent: Vec<SilentLease>,
    /// Targets that are declared or have reported.
    pub targets: Vec<String>,
}

/// What happened to one resource.
#[derive(Clone, Debug, Default)]
pub struct ResourceTimeline {
    /// The resource.
    pub resource: String,
    /// Holders, oldest grant first.
    pub holds: Vec<HoldSpan>,
    /// Refused writes.
    pub refusals: Vec<RefusedWrite>,
    /// First reports of fences.
    pub reports: Vec<TargetReport>,
    /// Other changes: their entry, time and kind.
    pub changes: Vec<(u64, u64, String)>,
    /// Renewals that were observed.
    pub renewals: Vec<ObservedRenewal>,
    /// Held leases that are overdue for a renewal.
    pub silent: Vec<SilentLease>,
    /// All targets, in order.
    pub targets: Vec<String>,
    /// Time of the first and of the last event.
    pub range_ms: (u64, u64),
    /// All times at which something happened, ascending.
    pub instants: Vec<u64>,
    /// The current time.
    pub now_ms: u64,
}

impl ResourceTimeline {
    /// The timeline of the entries of one resource, in any order.
    pub fn new(resource: &str, entries: &[AuditEntryBody], context: TimelineContext) -> Self {
        let mut sorted: Vec<&AuditEntryBody> = entries.iter().filter(|entry| entry.entry > 0).collect();
        sorted.sort_by_key(|entry| entry.entry);
        let TimelineContext { now_ms, renewals, silent, targets } = context;
        let mut timeline = Self { resource: resource.to_owned(), renewals, silent, targets, now_ms, ..Self::default() };
        let first = sorted.first().map_or(now_ms, |entry| entry.wall_ms);
        // The wall clock may be set back; the order of the entries counts.
        let mut at = first;
        let mut open: BTreeMap<String, usize> = BTreeMap::new();
        for entry in sorted {
            at = at.max(entry.wall_ms);
            timeline.instants.push(at);
            timeline.add(entry, at, first, &mut open);
        }
        timeline.range_ms = (first, now_ms.max(at));
        let silences = timeline.holds.iter().filter_map(HoldSpan::silent_from_ms);
        let silences: Vec<u64> = silences.chain(timeline.silent.iter().map(|lease| lease.since_ms)).collect();
        timeline.instants.extend(silences.into_iter().filter(|at| *at >= first));
        if !open.is_empty() {
            timeline.instants.push(timeline.range_ms.1);
        }
        timeline.instants.sort_unstable();
        timeline.instants.dedup();
        timeline.find_turnovers();
        for target in
            timeline.refusals.iter().map(|one| &one.target).chain(timeline.reports.iter().map(|one| &one.target))
        {
            if !target.is_empty() && !timeline.targets.contains(target) {
                timeline.targets.push(target.clone());
            }
        }
        timeline
    }

    fn add(&mut self, entry: &AuditEntryBody, at: u64, first: u64, open: &mut BTreeMap<String, usize>) {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let number = |text: &Option<String>| text.as_ref().and_then(|text| text.parse().ok()).unwrap_or(0);
        let lease = text(&entry.lease);
        match entry.kind.as_str() {
            "granted" => {
                open.insert(lease.clone(), self.holds.len());
                self.holds.push(HoldSpan {
                    holder: text(&entry.holder),
                    lease,
                    granted_entry: Some(entry.entry),
                    tokens: vec![(at, number(&entry.token_number))],
                    access: text(&entry.access),
                    slot: entry.slot,
                    ttl_ms: entry.ttl_ms,
                    from_ms: at,
                    grantor_ms: (Some(entry.time_ms), None),
                    ..HoldSpan::default()
                });
            }
            "ended" | "hold_confirmed" => {
                let index = open.remove(&lease).unwrap_or_else(|| self.add_earlier(entry, first));
                let hold = &mut self.holds[index];
                hold.until_ms = Some(at);
                hold.grantor_ms.1 = Some(entry.time_ms);
                // Entries of earlier versions have neither.
                hold.slot = hold.slot.or(entry.slot);
                if hold.access.is_empty() {
                    hold.access = text(&entry.access);
                }
                hold.reason = text(&entry.reason);
                hold.state = text(&entry.state);
                hold.ended_by = text(&entry.by);
                hold.comment = text(&entry.comment);
            }
            "rotated" | "handoff" | "revoked" | "preempted" => {
                let index = match open.get(&lease) {
                    Some(index) => *index,
                    None => {
                        let index = self.add_earlier(entry, first);
                        open.insert(lease, index);
                        index
                    }
                };
                let hold = &mut self.holds[index];
                match entry.kind.as_str() {
                    "rotated" => hold.tokens.push((at, number(&entry.token_number))),
                    _ => hold.drain_from_ms = Some(at),
                }
                self.changes.push((entry.entry, at, entry.kind.clone()));
            }
            "kept_after_all" => {
                if let Some(index) = open.get(&lease) {
                    self.holds[*index].drain_from_ms = None;
                }
                self.changes.push((entry.entry, at, entry.kind.clone()));
            }
            "zombie" => self.refusals.push(RefusedWrite {
                entry: entry.entry,
                at_ms: at,
                target: text(&entry.target),
                presented: number(&entry.token_number),
                mark: number(&entry.mark),
                times: entry.units.unwrap_or(1),
                holder: text(&entry.holder),
            }),
            "target_reported" => self.reports.push(TargetReport {
                entry: entry.entry,
                at_ms: at,
                target: text(&entry.target),
                mode: text(&entry.mode),
            }),
            "retimed" => {
                if let Some(index) = open.get(&lease) {
                    self.holds[*index].ttl_ms = entry.ttl_ms;
                }
            }
            _ => self.changes.push((entry.entry, at, entry.kind.clone())),
        }
    }

    /// A lease that was granted before the first entry.
    fn add_earlier(&mut self, entry: &AuditEntryBody, first: u64) -> usize {
        let number = entry.token_number.as_ref().and_then(|text| text.parse().ok()).unwrap_or(0);
        self.holds.push(HoldSpan {
            holder: entry.holder.clone().unwrap_or_default(),
            lease: entry.lease.clone().unwrap_or_default(),
            tokens: vec![(first, number)],
            access: entry.access.clone().unwrap_or_default(),
            slot: entry.slot,
            from_ms: first,
            ..HoldSpan::default()
        });
        self.holds.len() - 1
    }

    /// Compares each holder with the one before it, by slot. Shared leases and units have no order of holders.
    fn find_turnovers(&mut self) {
        // Token numbers ascend with the grants. A lease from before the entries may have got a higher number since.
        let mut order: Vec<usize> = (0..self.holds.len()).collect();
        order.sort_by_key(|index| {
            let hold = &self.holds[*index];
            (hold.granted_entry.is_some(), hold.tokens.first().map_or(0, |(_, number)| *number))
        });
        let mut last: BTreeMap<u32, usize> = BTreeMap::new();
        for index in order {
            let hold = &self.holds[index];
            let Some(slot) = hold.slot.filter(|_| hold.access == "exclusive" || hold.access == "slot") else {
                continue;
            };
            let previous = last.insert(slot, index);
            let Some(granted) = hold.grantor_ms.0 else { continue };
            let end = previous.and_then(|previous| self.holds[previous].grantor_ms.1);
            let turnover = end.map(|end| match granted.checked_sub(end) {
                Some(gap) => Turnover::Gap(gap),
                None => Turnover::Overlap(end - granted),
            });
            (self.holds[index].previous, self.holds[index].turnover) = (previous, turnover);
        }
    }

    /// Changes of holder in the order of the holds: the earlier hold, the later one, and the time between them.
    pub fn turnovers(&self) -> impl Iterator<Item = (&HoldSpan, &HoldSpan, Turnover)> {
        self.holds.iter().filter_map(|hold| Some((&self.holds[hold.previous?], hold, hold.turnover?)))
    }

    /// Names of holders in the order of their first grant.
    pub fn holders(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for name in self.holds.iter().map(|hold| hold.holder.as_str()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An audit entry of the lease `lease`.
    pub(super) fn entry(number: u64, at_ms: u64, kind: &str, lease: &str, holder: &str, token: u64) -> AuditEntryBody {
        AuditEntryBody {
            entry: number,
            time_ms: at_ms,
            wall_ms: 1_700_000_000_000 + at_ms,
            kind: kind.to_owned(),
            lease: Some(lease.to_owned()),
            holder: Some(holder.to_owned()),
            token_number: Some(token.to_string()),
            ..AuditEntryBody::default()
        }
    }

    pub(super) fn granted(number: u64, at_ms: u64, lease: &str, holder: &str, token: u64) -> AuditEntryBody {
        AuditEntryBody {
            access: Some("exclusive".into()),
            slot: Some(0),
            ttl_ms: Some(10_000),
            ..entry(number, at_ms, "granted", lease, holder, token)
        }
    }

    pub(super) fn ended(
        number: u64,
        at_ms: u64,
        lease: &str,
        holder: &str,
        token: u64,
        reason: &str,
    ) -> AuditEntryBody {
        AuditEntryBody {
            reason: Some(reason.into()),
            state: Some("expired".into()),
            ..entry(number, at_ms, "ended", lease, holder, token)
        }
    }

    fn at(now_ms: u64) -> TimelineContext {
        TimelineContext { now_ms: 1_700_000_000_000 + now_ms, ..TimelineContext::default() }
    }

    #[test]
    fn gaps_and_overlaps_between_holders_are_measured_in_grantor_time() {
        let entries = [
            granted(1, 0, "1.0", "a", 10),
            ended(2, 20_000, "1.0", "a", 10, "ttl"),
            granted(3, 20_007, "2.0", "b", 11),
            granted(4, 30_000, "3.0", "c", 12),
            ended(5, 31_500, "2.0", "b", 11, "handed_off"),
        ];
        let timeline = ResourceTimeline::new("jobs/x", &entries, at(40_000));
        let found: Vec<_> = timeline.holds.iter().map(|hold| (hold.holder.as_str(), hold.turnover)).collect();
        assert_eq!(found, [("a", None), ("b", Some(Turnover::Gap(7))), ("c", Some(Turnover::Overlap(1_500)))]);
        assert_eq!(timeline.holds[0].silent_from_ms(), Some(1_700_000_010_000), "the last ttl had no renewal");
        assert_eq!(timeline.holds[1].silent_from_ms(), None, "a handoff is not silence");
        assert_eq!(timeline.holds[2].until_ms, None, "it is held");
    }

    #[test]
    fn entries_in_any_order_and_a_clock_that_is_set_back_give_ascending_times() {
        let mut entries = vec![
            granted(1, 5_000, "1.0", "a", 10),
            ended(2, 6_000, "1.0", "a", 10, "released"),
            granted(3, 7_000, "2.0", "b", 11),
        ];
        entries[2].wall_ms = 1_699_999_000_000;
        entries.reverse();
        let timeline = ResourceTimeline::new("jobs/x", &entries, at(9_000));
        assert!(timeline.instants.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", timeline.instants);
        assert_eq!(timeline.holds[1].from_ms, 1_700_000_006_000);
        assert_eq!(timeline.holds[1].turnover, Some(Turnover::Gap(1_000)), "grantor time is not set back");
    }

    #[test]
    fn a_lease_that_was_granted_before_the_first_entry_starts_with_the_timeline() {
        let entries = [entry(7, 1_000, "rotated", "1.0", "a", 12), ended(8, 3_000, "1.0", "a", 12, "released")];
        let timeline = ResourceTimeline::new("jobs/x", &entries, at(4_000));
        assert_eq!((timeline.holds.len(), timeline.holds[0].granted_entry), (1, None));
        assert_eq!(timeline.holds[0].from_ms, 1_700_000_001_000);
    }

    #[test]
    fn an_earlier_lease_is_the_predecessor_of_the_first_grant_of_its_slot() {
        let with_slot = |entry: AuditEntryBody, slot: u32| AuditEntryBody {
            access: Some("slot".into()),
            slot: Some(slot),
            ..entry
        };
        let entries = [
            // Granted in an overlap with the first, which ends later.
            with_slot(granted(11, 500, "5.0", "a2", 50), 0),
            entry(12, 600, "handoff", "1.0", "a1", 10),
            with_slot(ended(13, 1_000, "1.0", "a1", 10, "handed_off"), 0),
            with_slot(ended(14, 2_000, "2.0", "b1", 11, "ttl"), 1),
            with_slot(granted(15, 2_300, "6.0", "b2", 51), 1),
            // An entry of an earlier version does not say which slot it was.
            ended(16, 2_400, "3.0", "c1", 12, "ttl"),
            with_slot(granted(17, 2_500, "7.0", "c2", 52), 2),
        ];
        let timeline = ResourceTimeline::new("pool", &entries, at(4_000));
        let mut found: Vec<_> = timeline
            .turnovers()
            .map(|(from, to, turnover)| (from.holder.as_str(), to.holder.as_str(), turnover))
            .collect();
        found.sort_by_key(|(_, to, _)| *to);
        assert_eq!(found, [("a1", "a2", Turnover::Overlap(500)), ("b1", "b2", Turnover::Gap(300))]);
    }

    #[test]
    fn refused_writes_name_their_target_and_both_numbers() {
        let zombie = AuditEntryBody {
            target: Some("ledger".into()),
            mark: Some("12".into()),
            units: Some(3),
            ..entry(2, 500, "zombie", "", "a", 10)
        };
        let timeline = ResourceTimeline::new("jobs/x", &[granted(1, 0, "1.0", "a", 10), zombie], at(1_000));
        let refused = &timeline.refusals[0];
        assert_eq!((refused.presented, refused.mark, refused.times, refused.holder.as_str()), (10, 12, 3, "a"));
        assert_eq!(timeline.targets, ["ledger"]);
    }
}
