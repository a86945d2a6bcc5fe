//! Q2: attempts are counted as they are told. Q3: a stale receipt changes nothing. Q4: a message has one live receipt. Q5:
//! what is dead is not handed out.

use leasehold_core::command::Answer;
use leasehold_core::payload::delivery::{self, Fact};
use leasehold_core::record::Record;

use super::ledger::{Met, walk};
use super::{Finding, broken};
use crate::history::{Event, History};

/// Reads the records, and what receivers were told.
pub fn check(history: &History) -> Finding {
    walk(history, |at, ledger, met| {
        match met {
            Met::Before(Record::Delivery(Fact::Delivered { items, .. })) => {
                for id in items {
                    match ledger.items.get(id) {
                        Some(item) if item.receipt.is_some() => {
                            return broken("Q4", at, format!("message {id} is handed out twice"));
                        }
                        Some(item) if item.dead => return broken("Q5", at, format!("message {id} is dead")),
                        Some(_) => {}
                        None => return broken("Q1", at, format!("message {id} is handed out and not there")),
                    }
                }
            }
            Met::Before(Record::Delivery(
                Fact::Acked { item, receipt }
                | Fact::Returned { item, receipt, .. }
                | Fact::Extended { item, receipt, .. },
            )) => {
                let live = ledger.items.get(item).and_then(|item| item.receipt);
                if live != Some(receipt.get()) {
                    return broken(
                        "Q3",
                        at,
                        format!("receipt {receipt} moves message {item}, which is under {live:?}"),
                    );
                }
            }
            Met::Other(Event::Told { answer: Answer::Delivery(told), .. }) => {
                if let delivery::Answer::Received(items) = &**told {
                    for told in items {
                        let item = ledger.items.get(&told.item).filter(|i| i.receipt == Some(told.receipt.get()));
                        if let Some(item) = item
                            && item.attempts != told.attempt
                        {
                            let why = format!("message {} is told as attempt {}", told.item, told.attempt);
                            return broken("Q2", at, format!("{why}, and is {}", item.attempts));
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
    use super::super::sample::*;
    use super::*;

    fn fact(fact: Fact) -> Record<'static> {
        Record::Delivery(fact)
    }

    fn enqueued() -> Record<'static> {
        fact(Fact::Enqueued { queue: "queue/q".into(), item: 1, body: [1].into(), delay_ms: 0, max_attempts: 1 })
    }

    fn delivered(number: u64) -> Record<'static> {
        let (first, items) = (n(number), vec![1]);
        fact(Fact::Delivered { first, items, session: None, holder: "a".into(), visibility_ms: 1_000 })
    }

    fn acked(number: u64) -> Record<'static> {
        fact(Fact::Acked { item: 1, receipt: n(number) })
    }

    #[test]
    fn the_live_receipt_acks_and_a_stale_one_does_not() {
        assert_eq!(check(&history([landed(&[enqueued(), delivered(5), acked(5)])])), Ok(()));
        assert_eq!(check(&history([landed(&[enqueued(), delivered(5), acked(4)])])).unwrap_err().promise, "Q3");
    }

    #[test]
    fn a_message_is_in_one_hand_and_not_handed_out_when_dead() {
        let expired = fact(Fact::Expired { item: 1, receipt: n(5) });
        assert_eq!(check(&history([landed(&[enqueued(), delivered(5), delivered(6)])])).unwrap_err().promise, "Q4");
        let dead = history([landed(&[enqueued(), delivered(5), expired, delivered(6)])]);
        assert_eq!(check(&dead).unwrap_err().promise, "Q5");
    }
}
