//! Tests of message queues: each promise on its own, then all of them under random commands.

use proptest::prelude::*;

use super::*;
use crate::access::LOCAL_OWNER;
use crate::codec::Reader;
use crate::refusal::NotCurrent;

const A: SessionId = SessionId { slot: 1, reuse: 0 };
const B: SessionId = SessionId { slot: 2, reuse: 0 };

#[derive(Clone, Debug)]
enum DeliveryLogEntry {
    Record(Vec<u8>),
    SessionEnded(SessionId),
}

/// A grantor with only queues.
#[derive(Clone, Default)]
struct DeliveryFixture {
    queues: QueueTable,
    now: u64,
    granted: u64,
    stalled: u64,
    log: Vec<(DeliveryLogEntry, GrantorTime)>,
}

impl DeliveryFixture {
    fn in_turn<T>(&self, f: impl FnOnce(&TurnContext<'_>) -> T) -> T {
        let next = Number::new(self.granted + 1).expect("few grants");
        f(&TurnContext { now: GrantorTime(self.now), next, max_ttl: 60_000, stalls: &|_| self.stalled, owner: None })
    }

    fn record(&mut self, records: &[DeliveryRecord]) {
        for record in records {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            let mut reader = Reader::new(&bytes);
            assert_eq!(DeliveryRecord::decode(&mut reader).as_ref(), Ok(record));
            reader.finish().expect("a record decodes completely");
            if let Some(number) = record.numbers() {
                assert!(number.get() > self.granted, "numbers rise");
                self.granted = number.get();
            }
            self.queues.apply(record, GrantorTime(self.now), LOCAL_OWNER).expect("a decided record applies");
            self.log.push((DeliveryLogEntry::Record(bytes), GrantorTime(self.now)));
        }
    }

    fn execute(&mut self, command: DeliveryCommand<'_>) -> Result<DeliveryAnswer, Refusal> {
        let decision = self.in_turn(|at| self.queues.decide(at, &command));
        self.record(&decision.records);
        decision.answer
    }

    fn tick(&mut self, ms: u64) {
        self.now += ms;
        let due = self.in_turn(|at| self.queues.due(at, usize::MAX));
        self.record(&due);
    }

    fn end_session(&mut self, session: SessionId) {
        self.queues.session_ended(session, GrantorTime(self.now));
        self.log.push((DeliveryLogEntry::SessionEnded(session), GrantorTime(self.now)));
    }

    fn enqueue(&mut self, body: &str, max_attempts: u32) -> u64 {
        let (body, max_attempts) = (body.as_bytes(), Some(max_attempts));
        match self.execute(DeliveryCommand::Enqueue { queue: "q", body, delay_ms: 0, max_attempts }) {
            Ok(DeliveryAnswer::Enqueued { item }) => item,
            other => panic!("{other:?}"),
        }
    }

    fn receive(&mut self, session: Option<SessionId>, limit: u32) -> Vec<DeliveredMessage> {
        match self.execute(DeliveryCommand::Receive { queue: "q", session, holder: "h", visibility_ms: 1_000, limit }) {
            Ok(DeliveryAnswer::Received(deliveries)) => deliveries,
            other => panic!("{other:?}"),
        }
    }

    fn one(&mut self) -> DeliveredMessage {
        let mut all = self.receive(None, 1);
        all.pop().expect("a message is ready")
    }

    fn ack(&mut self, item: u64, receipt: Number) -> Result<DeliveryAnswer, Refusal> {
        self.execute(DeliveryCommand::Ack { queue: "q", item, receipt })
    }

    fn nack(&mut self, item: u64, receipt: Number, delay_ms: u64) -> Result<DeliveryAnswer, Refusal> {
        self.execute(DeliveryCommand::Nack { queue: "q", item, receipt, delay_ms })
    }

    fn bytes(&self) -> Vec<u8> {
        bytes(&self.queues)
    }
}

fn bytes(queues: &QueueTable) -> Vec<u8> {
    let mut out = Vec::new();
    queues.encode(&mut out);
    out
}

fn replay(log: &[(DeliveryLogEntry, GrantorTime)]) -> QueueTable {
    let mut queues = QueueTable::default();
    for (logged, at) in log {
        match logged {
            DeliveryLogEntry::Record(bytes) => {
                let record = DeliveryRecord::decode(&mut Reader::new(bytes)).expect("recorded");
                queues.apply(&record, *at, LOCAL_OWNER).expect("replay fits");
            }
            DeliveryLogEntry::SessionEnded(session) => queues.session_ended(*session, *at),
        }
    }
    queues
}

#[test]
fn q1_a_message_is_delivered_again_until_it_is_acked() {
    let mut fixture = DeliveryFixture::default();
    let item = fixture.enqueue("pay", 5);
    let first = fixture.one();
    assert_eq!((first.item, first.attempt, &*first.body, first.remaining_ms), (item, 1, &b"pay"[..], 1_000));
    fixture.tick(1_000);
    let second = fixture.one();
    assert_eq!((second.item, second.attempt), (item, 2));
    assert!(second.receipt > first.receipt);
    assert_eq!(fixture.ack(item, second.receipt), Ok(DeliveryAnswer::Acked));
    assert_eq!(fixture.receive(None, 1), []);
    assert_eq!(fixture.queues.counts("q", GrantorTime(fixture.now)), None, "an empty queue is removed");
    assert_eq!(fixture.queues.bytes, 0);
}

#[test]
fn q2_attempts_are_counted_in_the_record_of_the_delivery() {
    let mut fixture = DeliveryFixture::default();
    let item = fixture.enqueue("pay", 5);
    fixture.one();
    let after_crash = replay(&fixture.log);
    assert_eq!(after_crash.view("q", item).map(|v| v.attempts), Some(1));
}

#[test]
fn q3_a_stale_receipt_is_refused_and_changes_nothing() {
    let mut fixture = DeliveryFixture::default();
    let item = fixture.enqueue("pay", 5);
    let first = fixture.one();
    fixture.tick(1_000);
    let second = fixture.one();
    let before = fixture.bytes();
    let stale = Err(Refusal::Stale { presented: first.receipt.get(), mark: second.receipt.get() });
    assert_eq!(fixture.ack(item, first.receipt), stale);
    assert_eq!(fixture.nack(item, first.receipt, 0), stale);
    let extend = DeliveryCommand::Extend { queue: "q", item, receipt: first.receipt, visibility_ms: 5_000 };
    assert_eq!(fixture.execute(extend), stale);
    assert_eq!(fixture.bytes(), before);
    assert_eq!(fixture.ack(item, second.receipt), Ok(DeliveryAnswer::Acked));
}

#[test]
fn an_expired_receipt_is_lost_even_before_the_tick_and_its_end_is_recorded() {
    let mut fixture = DeliveryFixture::default();
    let item = fixture.enqueue("pay", 5);
    let first = fixture.one();
    fixture.now += 1_000;
    assert_eq!(fixture.ack(item, first.receipt), Err(Refusal::Lost(EndReason::Ttl)));
    let Some((DeliveryLogEntry::Record(last), _)) = fixture.log.last() else { panic!("no record") };
    let expired = DeliveryRecord::Expired { item, receipt: first.receipt };
    assert_eq!(DeliveryRecord::decode(&mut Reader::new(last)), Ok(expired));
    assert_eq!(fixture.ack(item, first.receipt), Err(Refusal::Lost(EndReason::Ttl)), "and stays lost");
    assert_eq!(fixture.one().attempt, 2);
}

#[test]
fn an_unknown_message_is_not_found_and_a_receipt_that_was_never_issued_is_unknown() {
    let mut fixture = DeliveryFixture::default();
    let item = fixture.enqueue("pay", 5);
    let unknown = Number::new(99).expect("a number");
    assert_eq!(fixture.ack(item, unknown), Err(Refusal::NotCurrent(NotCurrent::Unknown)));
    let receipt = fixture.one().receipt;
    assert_eq!(fixture.ack(item, unknown), Err(Refusal::NotCurrent(NotCurrent::Unknown)));
    assert_eq!(fixture.ack(item + 1, receipt), Err(Refusal::NotFound(RefusalSubject::Message)));
    let elsewhere = DeliveryCommand::Ack { queue: "other", item, receipt };
    assert_eq!(fixture.execute(elsewhere), Err(Refusal::NotFound(RefusalSubject::Message)));
    assert_eq!(fixture.ack(item, receipt), Ok(DeliveryAnswer::Acked));
    assert_eq!(fixture.ack(item, receipt), Err(Refusal::NotFound(RefusalSubject::Message)));
}

#[test]
fn q4_a_delivered_message_is_not_delivered_to_another_consumer() {
    let mut fixture = DeliveryFixture::default();
    let item = fixture.enqueue("pay", 5);
    let live_message = fixture.one();
    assert_eq!(fixture.receive(None, 10), []);
    fixture.now += 900;
    let extend = DeliveryCommand::Extend { queue: "q", item, receipt: live_message.receipt, visibility_ms: 1_000 };
    assert_eq!(fixture.execute(extend), Ok(DeliveryAnswer::Extended { remaining_ms: 1_000 }));
    fixture.tick(999);
    assert_eq!(fixture.receive(None, 10), []);
    let again = DeliveryRecord::Delivered {
        first: Number::new(7).expect("a number"),
        items: vec![item],
        owner: None,
        session: None,
        holder: "thief".into(),
        visibility_ms: 1_000,
    };
    assert!(fixture.queues.apply(&again, GrantorTime(fixture.now), LOCAL_OWNER).is_err());
    fixture.tick(1);
    assert_eq!(fixture.one().attempt, 2);
}

#[test]
fn q5_a_message_becomes_a_dead_letter_once_after_its_last_attempt() {
    let mut fixture = DeliveryFixture::default();
    let item = fixture.enqueue("poison", 2);
    let first = fixture.one();
    assert_eq!(fixture.nack(item, first.receipt, 0), Ok(DeliveryAnswer::Returned { dead: false }));
    assert_eq!(fixture.nack(item, first.receipt, 0), Err(Refusal::Lost(EndReason::Released)));
    let second = fixture.one();
    fixture.tick(1_000);
    assert_eq!(fixture.receive(None, 10), []);
    let dead = QueueCounts { dead: 1, ..QueueCounts::default() };
    assert_eq!(fixture.queues.counts("q", GrantorTime(fixture.now)), Some(dead));
    assert_eq!(fixture.nack(item, second.receipt, 0), Err(Refusal::Lost(EndReason::Ttl)));
    fixture.tick(60_000);
    let letters = fixture.queues.dead_letters("q", 0, 10);
    assert_eq!(letters.len(), 1);
    assert_eq!((letters[0].item, letters[0].attempts), (item, 2));
    assert_eq!(letters[0].state, MessageState::Dead { since: GrantorTime(1_000), reason: EndReason::Ttl });
    assert_eq!(fixture.queues.dead_letters("q", item, 10), []);
}

#[test]
fn a_dead_letter_is_redriven_with_all_its_attempts_or_dropped() {
    let mut fixture = DeliveryFixture::default();
    let item = fixture.enqueue("poison", 1);
    assert_eq!(
        fixture.execute(DeliveryCommand::Redrive { queue: "q", item }),
        Err(Refusal::Conflict(RefusalSubject::Message))
    );
    let old = fixture.one();
    assert_eq!(fixture.nack(item, old.receipt, 0), Ok(DeliveryAnswer::Returned { dead: true }));
    assert_eq!(fixture.execute(DeliveryCommand::Redrive { queue: "q", item }), Ok(DeliveryAnswer::Redriven));
    let new = fixture.one();
    assert_eq!(new.attempt, 1);
    let stale = Refusal::Stale { presented: old.receipt.get(), mark: new.receipt.get() };
    assert_eq!(fixture.ack(item, old.receipt), Err(stale), "the receipt from before the redrive stays stale");
    assert_eq!(fixture.nack(item, new.receipt, 0), Ok(DeliveryAnswer::Returned { dead: true }));
    assert_eq!(fixture.execute(DeliveryCommand::Drop { queue: "q", item }), Ok(DeliveryAnswer::Dropped));
    assert_eq!(
        fixture.execute(DeliveryCommand::Drop { queue: "q", item }),
        Err(Refusal::NotFound(RefusalSubject::Message))
    );
}

#[test]
fn messages_are_received_in_the_order_in_which_they_became_available() {
    let mut fixture = DeliveryFixture::default();
    let late = DeliveryCommand::Enqueue { queue: "q", body: b"late", delay_ms: 500, max_attempts: None };
    assert_eq!(fixture.execute(late), Ok(DeliveryAnswer::Enqueued { item: 1 }));
    let second = fixture.enqueue("second", 5);
    fixture.now += 1;
    let third = fixture.enqueue("third", 5);
    let counts = QueueCounts { ready: 2, delayed: 1, ..QueueCounts::default() };
    assert_eq!(fixture.queues.counts("q", GrantorTime(fixture.now)), Some(counts));
    assert_eq!(fixture.receive(None, 10).iter().map(|d| d.item).collect::<Vec<_>>(), [second, third]);
    assert_eq!(fixture.queues.available_from("q"), Some(GrantorTime(500)));
    fixture.now = 500;
    assert_eq!(fixture.one().item, 1);
    assert_eq!(fixture.queues.available_from("q"), None);
}

#[test]
fn s1_the_end_of_a_session_returns_all_its_messages_and_no_others() {
    let mut fixture = DeliveryFixture::default();
    for _ in 0..4 {
        fixture.enqueue("pay", 2);
    }
    let of_a = fixture.receive(Some(A), 2);
    let of_b = fixture.receive(Some(B), 1);
    fixture.now += 1;
    fixture.end_session(A);
    assert_eq!(fixture.ack(of_a[0].item, of_a[0].receipt), Err(Refusal::Lost(EndReason::Session)));
    assert_eq!(fixture.ack(of_b[0].item, of_b[0].receipt), Ok(DeliveryAnswer::Acked));
    let again = fixture.receive(Some(B), 10);
    assert_eq!(again.iter().map(|d| (d.item, d.attempt)).collect::<Vec<_>>(), [(4, 1), (1, 2), (2, 2)]);
    fixture.end_session(B);
    assert_eq!(fixture.queues.dead_letters("q", 0, 10).len(), 2, "the last attempt counts however it ends");
}

#[test]
fn l12_a_stalled_grantor_does_not_expire_a_delivery() {
    let mut fixture = DeliveryFixture::default();
    let item = fixture.enqueue("pay", 5);
    let live_message = fixture.one();
    fixture.stalled = 400;
    fixture.tick(1_399);
    assert_eq!(fixture.queues.next_deadline(), Some(GrantorTime(1_000)));
    assert_eq!(fixture.ack(item, live_message.receipt), Ok(DeliveryAnswer::Acked));
    fixture.enqueue("pay", 5);
    fixture.stalled = 0;
    fixture.one();
    fixture.stalled = u64::MAX;
    fixture.tick(2_000);
    assert_eq!(fixture.one().attempt, 2, "at most one ttl is credited");
}

#[test]
fn a_restore_invalidates_all_receipts_of_the_backup() {
    let mut fixture = DeliveryFixture::default();
    let item = fixture.enqueue("pay", 5);
    let live_message = fixture.one();
    fixture.queues.restored(GrantorTime(fixture.now));
    assert_eq!(fixture.ack(item, live_message.receipt), Err(Refusal::Lost(EndReason::Restored)));
    assert_eq!(fixture.one().attempt, 2);
}

#[test]
fn values_outside_their_limits_are_refused_with_the_field_or_limit() {
    let mut fixture = DeliveryFixture::default();
    let put = |body, delay_ms, max_attempts| DeliveryCommand::Enqueue { queue: "q", body, delay_ms, max_attempts };
    let get = |visibility_ms, limit| DeliveryCommand::Receive {
        queue: "q",
        session: None,
        holder: "h",
        visibility_ms,
        limit,
    };
    let long = vec![0; ITEM_BYTES + 1];
    let got = ITEM_BYTES as u64 + 1;
    let too_long = Refusal::Exhausted { limit: Limit::Message, max: ITEM_BYTES as u64, got };
    assert_eq!(fixture.execute(put(&long, 0, None)), Err(too_long));
    for (command, name) in [
        (put(b"x", DELAY_MAX + 1, None), "delay"),
        (put(b"x", 0, Some(0)), "max_attempts"),
        (put(b"x", 0, Some(u32::MAX)), "max_attempts"),
        (get(99, 1), "visibility"),
        (get(60_001, 1), "visibility"),
        (get(1_000, 0), "limit"),
        (get(1_000, u32::MAX), "limit"),
    ] {
        let answer = fixture.execute(command);
        let refused = |field| field == name;
        assert!(
            matches!(answer, Err(Refusal::Invalid { field, .. } | Refusal::OutOfRange { field, .. }) if refused(field)),
            "{command:?}: {answer:?}"
        );
    }
    assert!(fixture.log.is_empty());
}

#[test]
fn one_receive_returns_a_bounded_number_of_bytes_but_at_least_one_message() {
    let mut fixture = DeliveryFixture::default();
    let long = vec![0; ITEM_BYTES];
    for _ in 0..40 {
        let put = DeliveryCommand::Enqueue { queue: "q", body: &long, delay_ms: 0, max_attempts: None };
        fixture.execute(put).expect("within the limit");
    }
    assert_eq!(fixture.receive(None, 40).len(), RECEIVE_BYTES / ITEM_BYTES);
}

#[test]
fn without_token_numbers_nothing_is_delivered() {
    let mut fixture = DeliveryFixture::default();
    fixture.enqueue("pay", 5);
    fixture.enqueue("pay", 5);
    fixture.granted = Number::MAX.get() - 1;
    let two = DeliveryCommand::Receive { queue: "q", session: None, holder: "h", visibility_ms: 1_000, limit: 2 };
    assert_eq!(fixture.execute(two), Err(Refusal::TokensExhausted));
    assert_eq!(fixture.receive(None, 1).len(), 1);
}

#[derive(Clone, Debug)]
enum DeliveryAction {
    Enqueue { queue: u8, delay_ms: u64, max_attempts: u32 },
    Receive { queue: u8, session: u8, visibility_ms: u64, limit: u32 },
    Receipt { verb: u8, which: usize, older: bool },
    Dead { which: u64, drop: bool },
    Wait { ms: u64, tick: bool, stalled: u64 },
    EndSession { session: u8 },
    Reload,
}

fn actions() -> impl Strategy<Value = Vec<DeliveryAction>> {
    let action = prop_oneof![
        3 => (0..2u8, prop_oneof![Just(0), 0..400u64], 1..4u32)
            .prop_map(|(queue, delay_ms, max_attempts)| DeliveryAction::Enqueue { queue, delay_ms, max_attempts }),
        4 => (0..2u8, 0..3u8, 100..600u64, 1..4u32)
            .prop_map(|(queue, session, visibility_ms, limit)| DeliveryAction::Receive { queue, session, visibility_ms, limit }),
        5 => (0..3u8, any::<usize>(), any::<bool>())
            .prop_map(|(verb, which, older)| DeliveryAction::Receipt { verb, which, older }),
        1 => (1..20u64, any::<bool>()).prop_map(|(which, drop)| DeliveryAction::Dead { which, drop }),
        3 => (0..400u64, any::<bool>(), prop_oneof![Just(0), 0..300u64])
            .prop_map(|(ms, tick, stalled)| DeliveryAction::Wait { ms, tick, stalled }),
        1 => (1..3u8).prop_map(|session| DeliveryAction::EndSession { session }),
        1 => Just(DeliveryAction::Reload),
    ];
    proptest::collection::vec(action, 1..80)
}

const NAMES: [&str; 2] = ["jobs/a", "jobs/b"];

fn session_of(n: u8) -> Option<SessionId> {
    (n > 0).then_some(SessionId { slot: u32::from(n), reuse: 0 })
}

proptest! {
    #[test]
    fn no_message_is_lost_and_replay_gives_the_same_bytes(actions in actions()) {
        let mut fixture = DeliveryFixture::default();
        let mut dealt: Vec<(&str, DeliveredMessage)> = Vec::new();
        let (mut enqueued, mut removed) = (0, 0);
        for action in actions {
            match action {
                DeliveryAction::Enqueue { queue, delay_ms, max_attempts } => {
                    let queue = NAMES[usize::from(queue)];
                    let max_attempts = Some(max_attempts);
                    fixture.execute(DeliveryCommand::Enqueue { queue, body: b"body", delay_ms, max_attempts }).expect("within the limit");
                    enqueued += 1;
                }
                DeliveryAction::Receive { queue, session, visibility_ms, limit } => {
                    let queue = NAMES[usize::from(queue)];
                    let session = session_of(session);
                    let command = DeliveryCommand::Receive { queue, session, holder: "h", visibility_ms, limit };
                    let Ok(DeliveryAnswer::Received(new)) = fixture.execute(command) else { panic!("refused") };
                    for delivery in new {
                        // Q4: the previous receipt is no longer live.
                        for (_, old) in dealt.iter().filter(|(_, old)| old.item == delivery.item) {
                            prop_assert!(old.receipt < delivery.receipt);
                            let lost = fixture.in_turn(|at| fixture.queues.current(at, queue, old.item, old.receipt).is_err());
                            prop_assert!(lost);
                        }
                        dealt.push((queue, delivery));
                    }
                }
                DeliveryAction::Receipt { verb, which, older } if !dealt.is_empty() => {
                    let (queue, delivery) = dealt[which % dealt.len()].clone();
                    let back = u64::from(older);
                    let Some(receipt) = Number::new(delivery.receipt.get() - back) else { continue };
                    let item = delivery.item;
                    let before = fixture.bytes();
                    let logged = fixture.log.len();
                    let answer = fixture.execute(match verb {
                        0 => DeliveryCommand::Ack { queue, item, receipt },
                        1 => DeliveryCommand::Nack { queue, item, receipt, delay_ms: 50 },
                        _ => DeliveryCommand::Extend { queue, item, receipt, visibility_ms: 300 },
                    });
                    match answer {
                        Ok(DeliveryAnswer::Acked) => removed += 1,
                        Ok(_) => prop_assert!(!older),
                        Err(Refusal::Lost(EndReason::Ttl)) => prop_assert!(fixture.log.len() <= logged + 1),
                        Err(_) => prop_assert_eq!(fixture.bytes(), before),
                    }
                }
                DeliveryAction::Receipt { .. } => {}
                DeliveryAction::Dead { which, drop } => {
                    for queue in NAMES {
                        let item = which;
                        let command =
                            if drop { DeliveryCommand::Drop { queue, item } } else { DeliveryCommand::Redrive { queue, item } };
                        let answer = fixture.execute(command);
                        removed += usize::from(answer == Ok(DeliveryAnswer::Dropped));
                    }
                }
                DeliveryAction::Wait { ms, tick, stalled } => {
                    fixture.stalled = stalled;
                    if tick { fixture.tick(ms) } else { fixture.now += ms }
                }
                DeliveryAction::EndSession { session } => fixture.end_session(session_of(session).expect("a session")),
                DeliveryAction::Reload => {
                    let bytes = fixture.bytes();
                    let mut reader = Reader::new(&bytes);
                    fixture.queues = QueueTable::decode(&mut reader).expect("its own encoding");
                    reader.finish().expect("no trailing bytes");
                }
            }
            // Q1: every message exists until it is acknowledged or dropped.
            prop_assert_eq!(fixture.queues.items.len() + removed, enqueued);
            let counts = NAMES.iter().filter_map(|q| fixture.queues.counts(q, GrantorTime(fixture.now)));
            let counts = counts.fold(QueueCounts::default(), |a, b| QueueCounts {
                ready: a.ready + b.ready, delayed: a.delayed + b.delayed, live: a.live + b.live, dead: a.dead + b.dead,
            });
            prop_assert_eq!(counts.live, fixture.queues.live.len());
            prop_assert_eq!(counts.ready + counts.delayed + counts.live + counts.dead, fixture.queues.items.len());
            prop_assert!(fixture.queues.live.session_entries() <= counts.live);
        }
        prop_assert_eq!(bytes(&replay(&fixture.log)), fixture.bytes());
    }

    #[test]
    fn arbitrary_bytes_never_panic_a_decoder(junk in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(record) = DeliveryRecord::decode(&mut Reader::new(&junk)) {
            let mut again = Vec::new();
            record.encode(&mut again);
            prop_assert_eq!(&again[..], &junk[..again.len()]);
            let fits = QueueTable::default().apply(&record, GrantorTime(0), LOCAL_OWNER).is_ok();
            prop_assert_eq!(fits, matches!(record, DeliveryRecord::Enqueued { item: 1, .. }));
        }
        let mut reader = Reader::new(&junk);
        if let Ok(queues) = QueueTable::decode(&mut reader) {
            prop_assert_eq!(&bytes(&queues)[..], &junk[..reader.position()]);
        }
    }

    #[test]
    fn a_damaged_snapshot_is_refused_or_decodes_to_another_valid_one(index in any::<usize>(), bit in 0..8u8) {
        let mut fixture = DeliveryFixture::default();
        for n in 1..5 {
            fixture.enqueue("pay", n);
        }
        fixture.receive(Some(A), 2);
        fixture.tick(1_000);
        fixture.receive(Some(B), 1);
        let mut damaged = fixture.bytes();
        let index = index % damaged.len();
        damaged[index] ^= 1 << bit;
        let mut reader = Reader::new(&damaged);
        if let Ok(mut queues) = QueueTable::decode(&mut reader) {
            prop_assert_eq!(&bytes(&queues)[..], &damaged[..reader.position()]);
            queues.session_ended(A, GrantorTime(0));
            queues.restored(GrantorTime(0));
            prop_assert_eq!(queues.live.len(), 0);
        }
    }
}
