//! X1: after everything is healed, every request gets a reply, and some leases are granted.

use std::collections::BTreeMap;

use leasehold_core::command::Answer;

use super::{CheckFinding, broken};
use crate::clock::{MS, SimTime};
use crate::history::{History, HistoryEvent};
use crate::world::QUIET;

/// Time a healed world may need before it replies: for an election, for expiries and for a quarantine.
const SETTLE_TIME: SimTime = 5_000 * MS;

/// Checks requests sent after healing.
pub fn check(history: &History) -> CheckFinding {
    let (Some(healed), Some((end, HistoryEvent::RunEnded { .. }))) = (history.healed(), history.events.last()) else {
        return Ok(());
    };
    let mut open = BTreeMap::new();
    let (mut requested, mut granted) = (0, 0);
    for (at, event) in &history.events {
        match event {
            HistoryEvent::Requested { op, request, .. } if *at > healed + SETTLE_TIME && *at + QUIET < *end => {
                requested += 1;
                open.insert(*op, (*at, request.kind()));
            }
            HistoryEvent::ReplyReceived { op, answer, .. } => {
                open.remove(op);
                granted += u32::from(*at > healed && matches!(answer, Answer::Granted(_) | Answer::GrantedAll(_)));
            }
            // The end of a session ends its requests.
            HistoryEvent::Abandoned { op, reason: "session ended" } => {
                open.remove(op);
            }
            _ => {}
        }
    }
    if let Some((op, (at, kind))) = open.first_key_value() {
        return broken("X1", *at, format!("#{op} ({kind}) gets no reply in a healed world"));
    }
    if requested > 30 && granted == 0 {
        return broken("X1", *end, "no lease is granted in a healed world");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::sample_histories::{grant, reply_received, requested};
    use super::*;

    fn run(events: Vec<(SimTime, HistoryEvent)>) -> History {
        let mut all = vec![(0, HistoryEvent::Healed)];
        all.extend(events);
        all.push((20_000 * MS, HistoryEvent::RunEnded { served: None }));
        History { events: all }
    }

    #[test]
    fn a_request_with_a_reply_is_legal_and_one_without_is_not() {
        assert_eq!(check(&run(vec![(6_000 * MS, requested(1)), (6_001 * MS, reply_received(1, grant(5)))])), Ok(()));
        assert_eq!(check(&run(vec![(6_000 * MS, requested(1))])).unwrap_err().promise, "X1");
        assert_eq!(check(&run(vec![(19_000 * MS, requested(1))])), Ok(()), "a request near the end may stay open");
    }
}
