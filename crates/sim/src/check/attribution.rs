//! A13: what a holder causes is recorded with its identity, and what time causes with none.

use leasehold_core::codec::Reader;
use leasehold_core::lease::EndReason;
use leasehold_core::record::{BatchHeader, DrainCause, Record};

use super::identities::RecordedOwners;
use super::{CheckFinding, broken};
use crate::clock::SimTime;
use crate::history::{Batch, History, HistoryEvent};
use crate::operators::OPERATORS;

/// Checks the attribution of every record that only the owner of its subject can cause, and of every expiry.
pub fn check(history: &History) -> CheckFinding {
    let mut owners = RecordedOwners::default();
    for (at, event) in &history.events {
        match event {
            HistoryEvent::BatchDurable { batch, .. } => check_batch(*at, batch, &mut owners)?,
            HistoryEvent::JournalReverted { batches, .. } => {
                owners = RecordedOwners::default();
                batches.iter().try_for_each(|batch| check_batch(*at, batch, &mut owners))?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_batch(at: SimTime, batch: &Batch, owners: &mut RecordedOwners) -> CheckFinding {
    let mut from = Reader::new(batch);
    if BatchHeader::decode(&mut from).is_err() {
        return Ok(());
    }
    let mut by: Option<String> = None;
    while !from.is_empty() {
        let Ok(record) = Record::decode(&mut from) else { return Ok(()) };
        owners.apply(&record);
        match &record {
            Record::AttributedTo(attribution) => by = Some(attribution.principal.to_owned()),
            Record::AttributionEnded => by = None,
            Record::Expired(_) if by.is_some() => {
                return broken("A13", at, format!("an expiry is attributed to {by:?}"));
            }
            _ => {}
        }
        if let Some(owner) = only_caller(&record, owners)
            && *owner != by
            && !(is_revocation(&record) && by.as_ref().is_some_and(|by| by.starts_with(OPERATORS)))
        {
            return broken("A13", at, format!("{record:?} of {owner:?} is attributed to {by:?}"));
        }
    }
    Ok(())
}

const LOCAL: Option<String> = None;

/// Whether a record is a revocation, which operators with identities may cause too.
const fn is_revocation(record: &Record<'_>) -> bool {
    matches!(
        record,
        Record::Ended { reason: EndReason::Operator, .. }
            | Record::Draining { cause: DrainCause::Revoked { reason: EndReason::Operator, .. }, .. }
    )
}

/// The identity that alone can cause a record; `None` is `local`. Nothing for a record that others or time may cause.
fn only_caller<'a>(record: &Record<'_>, owners: &'a RecordedOwners) -> Option<&'a Option<String>> {
    match record {
        Record::SessionOpened { session, .. } | Record::SessionEnded { session, reason: EndReason::Released } => {
            owners.sessions.get(&session.slot)
        }
        // Only operators comment on a revocation: `local`, or identities of their own.
        Record::Ended { reason: EndReason::Operator, comment, .. } if !comment.is_empty() => Some(&LOCAL),
        Record::Draining { cause: DrainCause::Revoked { reason: EndReason::Operator, .. }, .. } => Some(&LOCAL),
        Record::Granted(granted) if granted.waiter.is_none() => owners.leases.get(&granted.lease.slot),
        Record::Ended { lease, reason: EndReason::Released, .. }
        | Record::Rotated { lease, .. }
        | Record::HoldConfirmed { lease, .. }
        | Record::HoldResized { lease, .. }
        | Record::Pinned { lease, .. } => owners.leases.get(lease),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::access::{Attribution, RequestOrigin};
    use leasehold_core::record::{ExpiredBatch, GrantRecord};

    use super::super::sample_histories::*;
    use super::*;

    fn by(principal: &str) -> Record<'_> {
        Record::AttributedTo(Attribution { principal, origin: RequestOrigin::LOCAL })
    }

    fn grant_of(owner: Option<&str>, waiter: Option<u32>) -> Record<'_> {
        let Record::Granted(granted) = granted(0, 5, "jobs/a") else { panic!("a grant") };
        Record::Granted(GrantRecord { owner, waiter, ..granted })
    }

    fn released() -> Record<'static> {
        Record::Ended { lease: 0, number: n(5), reason: EndReason::Released, hold: false, comment: "" }
    }

    #[test]
    fn what_a_holder_causes_names_the_holder() {
        let run = |records: &[Record<'_>]| check(&history([batch(records)]));
        assert_eq!(run(&[by("dns:a"), grant_of(Some("dns:a"), None), released()]), Ok(()));
        assert_eq!(run(&[grant_of(None, None), released()]), Ok(()), "local is not recorded");
        let wrong: [&[Record<'_>]; 4] = [
            &[grant_of(Some("dns:a"), None)],
            &[by("dns:b"), grant_of(Some("dns:a"), None)],
            &[by("dns:a"), grant_of(None, None)],
            &[by("dns:a"), grant_of(Some("dns:a"), None), Record::AttributionEnded, released()],
        ];
        for records in wrong {
            assert_eq!(run(records).unwrap_err().promise, "A13", "{records:?}");
        }
    }

    #[test]
    fn time_is_attributed_to_no_one_and_a_wait_may_end_in_any_turn() {
        let run = |records: &[Record<'_>]| check(&history([batch(records)]));
        let expired = || Record::Expired(ExpiredBatch(vec![(0, n(5))]));
        let granted = || [by("dns:a"), grant_of(Some("dns:a"), None)];
        assert_eq!(run(&[&granted()[..], &[Record::AttributionEnded, expired()]].concat()), Ok(()));
        assert_eq!(run(&[&granted()[..], &[expired()]].concat()).unwrap_err().promise, "A13");
        assert_eq!(run(&[grant_of(Some("dns:a"), Some(1))]), Ok(()));
    }

    #[test]
    fn an_attribution_does_not_reach_the_next_batch() {
        let batches = [batch(&[by("dns:a"), grant_of(Some("dns:a"), None)]), batch(&[released()])];
        assert_eq!(check(&history(batches)).unwrap_err().promise, "A13");
    }
}
