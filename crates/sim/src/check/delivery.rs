//! Q2: replies report the recorded attempts. Q3: a stale receipt changes nothing. Q4: a message has one live receipt. Q5: a
//! dead message is not delivered.

use leasehold_core::command::Answer;
use leasehold_core::payload::delivery::{self, DeliveryRecord};
use leasehold_core::record::Record;

use super::recorded_state::{WalkStep, walk};
use super::{CheckFinding, broken};
use crate::history::{History, HistoryEvent};

/// Checks the records and the replies to receivers.
pub fn check(history: &History) -> CheckFinding {
    walk(history, |at, model, step| {
        match step {
            WalkStep::Before(Record::Delivery(DeliveryRecord::Delivered { items, .. })) => {
                for id in items {
                    match model.items.get(id) {
                        Some(item) if item.receipt.is_some() => {
                            return broken("Q4", at, format!("message {id} is delivered twice"));
                        }
                        Some(item) if item.dead => {
                            return broken("Q5", at, format!("message {id} is delivered, but dead"));
                        }
                        Some(_) => {}
                        None => return broken("Q1", at, format!("message {id} is delivered, but does not exist")),
                    }
                }
            }
            WalkStep::Before(Record::Delivery(
                DeliveryRecord::Acked { item, receipt }
                | DeliveryRecord::Returned { item, receipt, .. }
                | DeliveryRecord::Extended { item, receipt, .. },
            )) => {
                let live = model.items.get(item).and_then(|item| item.receipt);
                if live != Some(receipt.get()) {
                    return broken(
                        "Q3",
                        at,
                        format!("receipt {receipt} changes message {item}, whose live receipt is {live:?}"),
                    );
                }
            }
            WalkStep::Other(HistoryEvent::ReplySent { answer: Answer::Delivery(received), .. }) => {
                if let delivery::DeliveryAnswer::Received(items) = &**received {
                    for received in items {
                        let item =
                            model.items.get(&received.item).filter(|i| i.receipt == Some(received.receipt.get()));
                        if let Some(item) = item
                            && item.attempts != received.attempt
                        {
                            let detail =
                                format!("message {} is reported as attempt {}", received.item, received.attempt);
                            return broken("Q2", at, format!("{detail}, but is {}", item.attempts));
                        }
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

    fn record(record: DeliveryRecord) -> Record<'static> {
        Record::Delivery(record)
    }

    fn enqueued() -> Record<'static> {
        record(DeliveryRecord::Enqueued {
            queue: "queue/q".into(),
            item: 1,
            owner: None,
            body: [1].into(),
            delay_ms: 0,
            max_attempts: 1,
        })
    }

    fn delivered(number: u64) -> Record<'static> {
        let (first, items) = (n(number), vec![1]);
        let (session, owner, holder) = (None, None, "a".into());
        record(DeliveryRecord::Delivered { first, items, session, owner, holder, visibility_ms: 1_000 })
    }

    fn acked(number: u64) -> Record<'static> {
        record(DeliveryRecord::Acked { item: 1, receipt: n(number) })
    }

    #[test]
    fn the_live_receipt_acks_and_a_stale_one_does_not() {
        assert_eq!(check(&history([batch(&[enqueued(), delivered(5), acked(5)])])), Ok(()));
        assert_eq!(check(&history([batch(&[enqueued(), delivered(5), acked(4)])])).unwrap_err().promise, "Q3");
    }

    #[test]
    fn a_message_has_one_receipt_and_is_not_delivered_when_dead() {
        let expired = record(DeliveryRecord::Expired { item: 1, receipt: n(5) });
        assert_eq!(check(&history([batch(&[enqueued(), delivered(5), delivered(6)])])).unwrap_err().promise, "Q4");
        let dead = history([batch(&[enqueued(), delivered(5), expired, delivered(6)])]);
        assert_eq!(check(&dead).unwrap_err().promise, "Q5");
    }
}
