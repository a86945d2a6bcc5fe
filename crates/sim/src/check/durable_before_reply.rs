//! L3: a grant is on record before its reply is sent. L7, E1: a deposed grantor does not reply to later requests, including
//! reads. X3: a client never treats silence as a reply.

use std::collections::{BTreeMap, BTreeSet};

use super::recorded_state::{WalkStep, walk};
use super::tokens;
use super::{CheckFinding, broken};
use crate::history::{History, HistoryEvent};
use crate::request::SimRequest;

/// Checks replies against the records.
pub fn check(history: &History) -> CheckFinding {
    let mut requested = BTreeMap::new();
    let mut leader = (0, 0);
    let mut replied = BTreeSet::new();
    walk(history, |at, model, step| {
        match step {
            WalkStep::Other(HistoryEvent::Requested { op, request, .. }) => {
                let reads = matches!(request, SimRequest::Confirm { .. } | SimRequest::ObserveToken);
                requested.insert(*op, (at, if reads { "E1" } else { "L7" }));
            }
            WalkStep::Other(HistoryEvent::ReplyReceived { op, answer, .. }) if !replied.contains(op) => {
                return broken("X3", at, format!("#{op} is treated as {answer:?}, which no server sent"));
            }
            WalkStep::Other(HistoryEvent::Serving { generation, .. }) if *generation > leader.0 => {
                leader = (*generation, at)
            }
            WalkStep::Other(HistoryEvent::ReplySent { op, generation, answer, .. }) => {
                replied.insert(*op);
                if let Some((_, promise)) =
                    requested.get(op).filter(|(requested, _)| *generation < leader.0 && *requested > leader.1)
                {
                    let detail =
                        format!("generation {generation} replies to #{op}, which was requested under {}", leader.0);
                    return broken(promise, at, detail);
                }
                let is_receipt = matches!(answer, leasehold_core::command::Answer::Delivery(_));
                for number in tokens::granted(answer) {
                    if !is_receipt && !model.numbers.contains_key(&number) {
                        return broken("L3", at, format!("the reply grants {number}, which is not on record"));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::super::sample_histories::*;
    use super::*;

    #[test]
    fn a_grant_is_sent_after_it_is_on_record_and_never_before() {
        assert_eq!(check(&history([requested(1), batch(&[granted(0, 5, "jobs/a")]), grant_sent(1, 5)])), Ok(()));
        let early = history([requested(1), grant_sent(1, 5), batch(&[granted(0, 5, "jobs/a")])]);
        assert_eq!(check(&early).unwrap_err().promise, "L3");
    }

    #[test]
    fn silence_is_not_a_reply() {
        let stored = || batch(&[granted(0, 5, "jobs/a")]);
        assert_eq!(check(&history([requested(1), stored(), grant_sent(1, 5), grant_received(1, 5)])), Ok(()));
        assert_eq!(check(&history([requested(1), stored(), grant_received(1, 5)])).unwrap_err().promise, "X3");
    }

    #[test]
    fn a_deposed_grantor_may_reply_to_earlier_requests_and_not_to_later_ones() {
        let serving = |generation| HistoryEvent::Serving { server: 0, generation };
        let legal = history([serving(1), renew_requested(1, 0, 5), serving(2), reply_sent(1, 1, 0, current(5))]);
        assert_eq!(check(&legal), Ok(()));
        let illegal = history([serving(1), serving(2), renew_requested(1, 0, 5), reply_sent(1, 1, 0, current(5))]);
        assert_eq!(check(&illegal).unwrap_err().promise, "L7");
    }
}
