//! L11: a request that is sent again is done once.

use std::collections::BTreeSet;

use leasehold_core::payload::delivery::Fact;
use leasehold_core::record::Record;

use super::ledger::{Met, walk};
use super::{Finding, broken};
use crate::history::History;

/// Reads the messages that were enqueued: each request has a body of its own.
pub fn check(history: &History) -> Finding {
    let mut done = BTreeSet::new();
    walk(history, |at, ledger, met| {
        match met {
            Met::SetBack => done = ledger.items.values().map(|item| item.body.clone()).collect(),
            Met::Before(Record::Delivery(Fact::Enqueued { body, item, .. })) if !done.insert(body.to_vec()) => {
                return broken("L11", at, format!("message {item} comes from a request that was done before"));
            }
            _ => {}
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::super::sample::*;
    use super::*;

    fn enqueued(item: u64, body: u8) -> Record<'static> {
        let queue = "queue/q".into();
        Record::Delivery(Fact::Enqueued { queue, item, body: [body].into(), delay_ms: 0, max_attempts: 3 })
    }

    #[test]
    fn two_requests_are_two_messages_and_one_request_is_one() {
        assert_eq!(check(&history([landed(&[enqueued(1, 1), enqueued(2, 2)])])), Ok(()));
        assert_eq!(check(&history([landed(&[enqueued(1, 1), enqueued(2, 1)])])).unwrap_err().promise, "L11");
    }
}
