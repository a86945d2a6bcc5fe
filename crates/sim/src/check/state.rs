//! V1: what a grantor shows is what a naive fold of the records says: leases, queues, messages. So nothing is dropped
//! (Q1), nothing stays when its session ends (S1), nothing of a backup is held (T5), and who is waited for by somebody
//! urgent stands where that one would (P2).

use std::cmp::Reverse;

use leasehold_core::ids::SessionId;

use super::ledger::{Ledger, Met, walk};
use super::{Finding, broken, urgency};
use crate::ask::QUEUED;
use crate::history::{Event, History, State};

/// Compares what is shown with the ledger.
pub fn check(history: &History) -> Finding {
    walk(history, |at, ledger, met| {
        let Met::Other(Event::Shows { generation, state, .. }) = met else { return Ok(()) };
        // A grantor that is deposed and does not know it shows an older state.
        if *generation != ledger.generation {
            return Ok(());
        }
        let expected = expected(ledger);
        if expected.held != state.held {
            return broken("V1", at, format!("held by the records {:?}, shown {:?}", expected.held, state.held));
        }
        if expected.queues != state.queues {
            return broken("P2", at, format!("waiting by the records {:?}, shown {:?}", expected.queues, state.queues));
        }
        if expected.items != state.items {
            return broken("Q1", at, format!("messages by the records {:?}, shown {:?}", expected.items, state.items));
        }
        Ok(())
    })
}

fn expected(ledger: &Ledger) -> State {
    let urgent = urgency::effective(ledger);
    let queues = QUEUED.iter().map(|name| {
        let waits = ledger.waits.iter().filter(|(_, wait)| wait.asks.iter().any(|(asked, _)| asked == name));
        let mut waits: Vec<_> = waits.collect();
        waits.sort_by_key(|(id, wait)| (Reverse(urgent[id]), wait.order));
        let waits: Vec<_> = waits.into_iter().map(|(_, wait)| wait).collect();
        let reuse = |slot: u32| ledger.sessions.get(&slot).map_or(0, |session| session.reuse);
        waits.iter().map(|wait| SessionId { slot: wait.session, reuse: reuse(wait.session) }).collect()
    });
    let items = ledger.items.iter().filter(|(id, _)| **id < 200);
    State {
        held: ledger.held().into_iter().collect(),
        queues: queues.collect(),
        items: items.map(|(id, item)| (*id, item.attempts, item.receipt, item.dead)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::*;
    use super::*;

    #[test]
    fn a_grantor_shows_what_is_on_record_and_nothing_else() {
        let shows = |held: Vec<u64>, generation| {
            let state = State { held, queues: vec![vec![]; 7], items: vec![] };
            Event::Shows { server: 0, generation, state }
        };
        let grant = || landed(&[opened(1), granted(0, 5, "jobs/a")]);
        assert_eq!(check(&history([grant(), shows(vec![5], 1)])), Ok(()));
        assert_eq!(check(&history([grant(), shows(vec![], 1)])).unwrap_err().promise, "V1");
        assert_eq!(check(&history([grant(), shows(vec![], 0)])), Ok(()), "who is deposed may be behind");
    }
}
