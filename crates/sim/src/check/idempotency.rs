//! L11: a retried request is executed once.

use std::collections::BTreeSet;

use leasehold_core::payload::delivery::DeliveryRecord;
use leasehold_core::record::Record;

use super::recorded_state::{WalkStep, walk};
use super::{CheckFinding, broken};
use crate::history::History;

/// Checks enqueued messages: each request has a unique body.
pub fn check(history: &History) -> CheckFinding {
    let mut done = BTreeSet::new();
    walk(history, |at, model, step| {
        match step {
            WalkStep::JournalReverted => done = model.items.values().map(|item| item.body.clone()).collect(),
            WalkStep::Before(Record::Delivery(DeliveryRecord::Enqueued { body, item, .. }))
                if !done.insert(body.to_vec()) =>
            {
                return broken("L11", at, format!("message {item} comes from a request that was executed before"));
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

    fn enqueued(item: u64, body: u8) -> Record<'static> {
        let queue = "queue/q".into();
        Record::Delivery(DeliveryRecord::Enqueued {
            queue,
            item,
            owner: None,
            body: [body].into(),
            delay_ms: 0,
            max_attempts: 3,
        })
    }

    #[test]
    fn two_requests_are_two_messages_and_one_request_is_one() {
        assert_eq!(check(&history([batch(&[enqueued(1, 1), enqueued(2, 2)])])), Ok(()));
        assert_eq!(check(&history([batch(&[enqueued(1, 1), enqueued(2, 1)])])).unwrap_err().promise, "L11");
    }
}
