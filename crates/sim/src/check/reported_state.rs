//! V1: a grantor's reported leases, queues and messages match the model. This covers lost messages (Q1), leftovers of ended
//! sessions (S1) or of a backup (T5), and inherited priority (P2).

use std::cmp::Reverse;

use leasehold_core::ids::SessionId;

use super::recorded_state::{Model, WalkStep, walk};
use super::{CheckFinding, broken, preemption};
use crate::history::{History, HistoryEvent, ReportedState};
use crate::run_constants::QUEUED;

/// Compares reported states with the model.
pub fn check(history: &History) -> CheckFinding {
    walk(history, |at, model, step| {
        let WalkStep::Other(HistoryEvent::StateReported { generation, state, .. }) = step else { return Ok(()) };
        // A deposed grantor may report an older state.
        if *generation != model.generation {
            return Ok(());
        }
        let expected = expected(model);
        if expected.held != state.held {
            return broken("V1", at, format!("leases: model {:?}, reported {:?}", expected.held, state.held));
        }
        if expected.queues != state.queues {
            return broken("P2", at, format!("queues: model {:?}, reported {:?}", expected.queues, state.queues));
        }
        if expected.items != state.items {
            return broken("Q1", at, format!("messages: model {:?}, reported {:?}", expected.items, state.items));
        }
        Ok(())
    })
}

fn expected(model: &Model) -> ReportedState {
    let priorities = preemption::effective_priorities(model);
    let queues = QUEUED.iter().map(|name| {
        let waits = model.waits.iter().filter(|(_, wait)| wait.wanted.iter().any(|(requested, _)| requested == name));
        let mut waits: Vec<_> = waits.collect();
        waits.sort_by_key(|(id, wait)| (Reverse(priorities[id]), wait.order));
        let waits: Vec<_> = waits.into_iter().map(|(_, wait)| wait).collect();
        let reuse = |slot: u32| model.sessions.get(&slot).map_or(0, |session| session.reuse);
        waits.iter().map(|wait| SessionId { slot: wait.session, reuse: reuse(wait.session) }).collect()
    });
    let items = model.items.iter().filter(|(id, _)| **id < 200);
    ReportedState {
        held: model.held().into_iter().collect(),
        queues: queues.collect(),
        items: items.map(|(id, item)| (*id, item.attempts, item.receipt, item.dead)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample_histories::*;
    use super::*;

    #[test]
    fn a_grantor_reports_exactly_the_recorded_state() {
        let shows = |held: Vec<u64>, generation| {
            let state = ReportedState { held, queues: vec![vec![]; 7], items: vec![] };
            HistoryEvent::StateReported { server: 0, generation, state }
        };
        let grant = || batch(&[opened(1), granted(0, 5, "jobs/a")]);
        assert_eq!(check(&history([grant(), shows(vec![5], 1)])), Ok(()));
        assert_eq!(check(&history([grant(), shows(vec![], 1)])).unwrap_err().promise, "V1");
        assert_eq!(check(&history([grant(), shows(vec![], 0)])), Ok(()), "a deposed grantor may be behind");
    }
}
