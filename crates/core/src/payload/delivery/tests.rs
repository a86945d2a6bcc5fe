//! The promises about messages, one by one, and then all of them under random commands.

use proptest::prelude::*;

use super::*;
use crate::codec::Reader;
use crate::refusal::NotCurrent;

const A: SessionId = SessionId { slot: 1, reuse: 0 };
const B: SessionId = SessionId { slot: 2, reuse: 0 };

#[derive(Clone, Debug)]
enum Logged {
    Fact(Vec<u8>),
    SessionEnded(SessionId),
}

/// A grantor with nothing but queues.
#[derive(Clone, Default)]
struct Desk {
    queues: Queues,
    now: u64,
    granted: u64,
    stalled: u64,
    log: Vec<(Logged, Millis)>,
}

impl Desk {
    fn moment<T>(&self, f: impl FnOnce(&Moment<'_>) -> T) -> T {
        let next = Number::new(self.granted + 1).expect("few grants");
        f(&Moment { now: Millis(self.now), next, max_ttl: 60_000, stalls: &|_| self.stalled })
    }

    fn record(&mut self, facts: &[Fact]) {
        for fact in facts {
            let mut bytes = Vec::new();
            fact.encode(&mut bytes);
            let mut reader = Reader::new(&bytes);
            assert_eq!(Fact::decode(&mut reader).as_ref(), Ok(fact));
            reader.finish().expect("a fact is its bytes");
            if let Some(number) = fact.numbers() {
                assert!(number.get() > self.granted, "numbers rise");
                self.granted = number.get();
            }
            self.queues.apply(fact, Millis(self.now)).expect("what was decided fits");
            self.log.push((Logged::Fact(bytes), Millis(self.now)));
        }
    }

    fn ask(&mut self, command: Command<'_>) -> Result<Answer, Refusal> {
        let decision = self.moment(|at| self.queues.decide(at, &command));
        self.record(&decision.facts);
        decision.answer
    }

    fn tick(&mut self, ms: u64) {
        self.now += ms;
        let due = self.moment(|at| self.queues.due(at, usize::MAX));
        self.record(&due);
    }

    fn end_session(&mut self, session: SessionId) {
        self.queues.session_ended(session, Millis(self.now));
        self.log.push((Logged::SessionEnded(session), Millis(self.now)));
    }

    fn enqueue(&mut self, body: &str, max_attempts: u32) -> u64 {
        let (body, max_attempts) = (body.as_bytes(), Some(max_attempts));
        match self.ask(Command::Enqueue { queue: "q", body, delay_ms: 0, max_attempts }) {
            Ok(Answer::Enqueued { item }) => item,
            other => panic!("{other:?}"),
        }
    }

    fn receive(&mut self, session: Option<SessionId>, most: u32) -> Vec<Delivery> {
        match self.ask(Command::Receive { queue: "q", session, holder: "h", visibility_ms: 1_000, most }) {
            Ok(Answer::Received(deliveries)) => deliveries,
            other => panic!("{other:?}"),
        }
    }

    fn one(&mut self) -> Delivery {
        let mut all = self.receive(None, 1);
        all.pop().expect("something is ready")
    }

    fn ack(&mut self, item: u64, receipt: Number) -> Result<Answer, Refusal> {
        self.ask(Command::Ack { queue: "q", item, receipt })
    }

    fn nack(&mut self, item: u64, receipt: Number, delay_ms: u64) -> Result<Answer, Refusal> {
        self.ask(Command::Nack { queue: "q", item, receipt, delay_ms })
    }

    fn bytes(&self) -> Vec<u8> {
        bytes(&self.queues)
    }
}

fn bytes(queues: &Queues) -> Vec<u8> {
    let mut out = Vec::new();
    queues.encode(&mut out);
    out
}

fn replay(log: &[(Logged, Millis)]) -> Queues {
    let mut queues = Queues::default();
    for (logged, at) in log {
        match logged {
            Logged::Fact(bytes) => {
                let fact = Fact::decode(&mut Reader::new(bytes)).expect("recorded");
                queues.apply(&fact, *at).expect("replay fits");
            }
            Logged::SessionEnded(session) => queues.session_ended(*session, *at),
        }
    }
    queues
}

#[test]
fn q1_a_message_is_delivered_again_until_it_is_acked() {
    let mut desk = Desk::default();
    let item = desk.enqueue("pay", 5);
    let first = desk.one();
    assert_eq!((first.item, first.attempt, &*first.body, first.remaining_ms), (item, 1, &b"pay"[..], 1_000));
    desk.tick(1_000);
    let second = desk.one();
    assert_eq!((second.item, second.attempt), (item, 2));
    assert!(second.receipt > first.receipt);
    assert_eq!(desk.ack(item, second.receipt), Ok(Answer::Acked));
    assert_eq!(desk.receive(None, 1), []);
    assert_eq!(desk.queues.counts("q", Millis(desk.now)), None, "an empty queue vanishes");
    assert_eq!(desk.queues.bytes, 0);
}

#[test]
fn q2_attempts_are_counted_in_the_record_of_the_delivery() {
    let mut desk = Desk::default();
    let item = desk.enqueue("pay", 5);
    desk.one();
    let after_crash = replay(&desk.log);
    assert_eq!(after_crash.view("q", item).map(|v| v.attempts), Some(1));
}

#[test]
fn q3_a_stale_receipt_changes_nothing_and_says_so() {
    let mut desk = Desk::default();
    let item = desk.enqueue("pay", 5);
    let first = desk.one();
    desk.tick(1_000);
    let second = desk.one();
    let before = desk.bytes();
    let stale = Err(Refusal::Stale { presented: first.receipt.get(), mark: second.receipt.get() });
    assert_eq!(desk.ack(item, first.receipt), stale);
    assert_eq!(desk.nack(item, first.receipt, 0), stale);
    let extend = Command::Extend { queue: "q", item, receipt: first.receipt, visibility_ms: 5_000 };
    assert_eq!(desk.ask(extend), stale);
    assert_eq!(desk.bytes(), before);
    assert_eq!(desk.ack(item, second.receipt), Ok(Answer::Acked));
}

#[test]
fn a_receipt_that_ran_out_is_lost_even_before_the_tick_and_the_end_is_on_record() {
    let mut desk = Desk::default();
    let item = desk.enqueue("pay", 5);
    let first = desk.one();
    desk.now += 1_000;
    assert_eq!(desk.ack(item, first.receipt), Err(Refusal::Lost(Reason::Ttl)));
    let Some((Logged::Fact(last), _)) = desk.log.last() else { panic!("nothing on record") };
    let expired = Fact::Expired { item, receipt: first.receipt };
    assert_eq!(Fact::decode(&mut Reader::new(last)), Ok(expired));
    assert_eq!(desk.ack(item, first.receipt), Err(Refusal::Lost(Reason::Ttl)), "and stays lost");
    assert_eq!(desk.one().attempt, 2);
}

#[test]
fn an_unknown_message_is_not_found_and_a_receipt_from_the_future_is_unknown() {
    let mut desk = Desk::default();
    let item = desk.enqueue("pay", 5);
    let unknown = Number::new(99).expect("a number");
    assert_eq!(desk.ack(item, unknown), Err(Refusal::NotCurrent(NotCurrent::Unknown)));
    let receipt = desk.one().receipt;
    assert_eq!(desk.ack(item, unknown), Err(Refusal::NotCurrent(NotCurrent::Unknown)));
    assert_eq!(desk.ack(item + 1, receipt), Err(Refusal::NotFound(What::Message)));
    let elsewhere = Command::Ack { queue: "other", item, receipt };
    assert_eq!(desk.ask(elsewhere), Err(Refusal::NotFound(What::Message)));
    assert_eq!(desk.ack(item, receipt), Ok(Answer::Acked));
    assert_eq!(desk.ack(item, receipt), Err(Refusal::NotFound(What::Message)));
}

#[test]
fn q4_a_message_in_somebodys_hands_is_given_to_nobody_else() {
    let mut desk = Desk::default();
    let item = desk.enqueue("pay", 5);
    let held = desk.one();
    assert_eq!(desk.receive(None, 10), []);
    desk.now += 900;
    let extend = Command::Extend { queue: "q", item, receipt: held.receipt, visibility_ms: 1_000 };
    assert_eq!(desk.ask(extend), Ok(Answer::Extended { remaining_ms: 1_000 }));
    desk.tick(999);
    assert_eq!(desk.receive(None, 10), []);
    let again = Fact::Delivered {
        first: Number::new(7).expect("a number"),
        items: vec![item],
        session: None,
        holder: "thief".into(),
        visibility_ms: 1_000,
    };
    assert!(desk.queues.apply(&again, Millis(desk.now)).is_err());
    desk.tick(1);
    assert_eq!(desk.one().attempt, 2);
}

#[test]
fn q5_after_its_last_attempt_a_message_is_dead_exactly_once() {
    let mut desk = Desk::default();
    let item = desk.enqueue("poison", 2);
    let first = desk.one();
    assert_eq!(desk.nack(item, first.receipt, 0), Ok(Answer::Returned { dead: false }));
    assert_eq!(desk.nack(item, first.receipt, 0), Err(Refusal::Lost(Reason::Released)));
    let second = desk.one();
    desk.tick(1_000);
    assert_eq!(desk.receive(None, 10), []);
    let dead = Counts { dead: 1, ..Counts::default() };
    assert_eq!(desk.queues.counts("q", Millis(desk.now)), Some(dead));
    assert_eq!(desk.nack(item, second.receipt, 0), Err(Refusal::Lost(Reason::Ttl)));
    desk.tick(60_000);
    let letters = desk.queues.dead_letters("q", 0, 10);
    assert_eq!(letters.len(), 1);
    assert_eq!((letters[0].item, letters[0].attempts), (item, 2));
    assert_eq!(letters[0].standing, Standing::Dead { since: Millis(1_000), reason: Reason::Ttl });
    assert_eq!(desk.queues.dead_letters("q", item, 10), []);
}

#[test]
fn a_dead_message_is_redriven_with_all_its_attempts_or_dropped() {
    let mut desk = Desk::default();
    let item = desk.enqueue("poison", 1);
    assert_eq!(desk.ask(Command::Redrive { queue: "q", item }), Err(Refusal::Conflict(What::Message)));
    let old = desk.one();
    assert_eq!(desk.nack(item, old.receipt, 0), Ok(Answer::Returned { dead: true }));
    assert_eq!(desk.ask(Command::Redrive { queue: "q", item }), Ok(Answer::Redriven));
    let new = desk.one();
    assert_eq!(new.attempt, 1);
    let stale = Refusal::Stale { presented: old.receipt.get(), mark: new.receipt.get() };
    assert_eq!(desk.ack(item, old.receipt), Err(stale), "the receipt of its first life stays stale");
    assert_eq!(desk.nack(item, new.receipt, 0), Ok(Answer::Returned { dead: true }));
    assert_eq!(desk.ask(Command::Drop { queue: "q", item }), Ok(Answer::Dropped));
    assert_eq!(desk.ask(Command::Drop { queue: "q", item }), Err(Refusal::NotFound(What::Message)));
}

#[test]
fn messages_come_in_the_order_in_which_they_became_available() {
    let mut desk = Desk::default();
    let late = Command::Enqueue { queue: "q", body: b"late", delay_ms: 500, max_attempts: None };
    assert_eq!(desk.ask(late), Ok(Answer::Enqueued { item: 1 }));
    let second = desk.enqueue("second", 5);
    desk.now += 1;
    let third = desk.enqueue("third", 5);
    let counts = Counts { ready: 2, delayed: 1, ..Counts::default() };
    assert_eq!(desk.queues.counts("q", Millis(desk.now)), Some(counts));
    assert_eq!(desk.receive(None, 10).iter().map(|d| d.item).collect::<Vec<_>>(), [second, third]);
    assert_eq!(desk.queues.available_from("q"), Some(Millis(500)));
    desk.now = 500;
    assert_eq!(desk.one().item, 1);
    assert_eq!(desk.queues.available_from("q"), None);
}

#[test]
fn s1_a_sessions_end_gives_back_all_it_had_and_nothing_else() {
    let mut desk = Desk::default();
    for _ in 0..4 {
        desk.enqueue("pay", 2);
    }
    let of_a = desk.receive(Some(A), 2);
    let of_b = desk.receive(Some(B), 1);
    desk.now += 1;
    desk.end_session(A);
    assert_eq!(desk.ack(of_a[0].item, of_a[0].receipt), Err(Refusal::Lost(Reason::Session)));
    assert_eq!(desk.ack(of_b[0].item, of_b[0].receipt), Ok(Answer::Acked));
    let again = desk.receive(Some(B), 10);
    assert_eq!(again.iter().map(|d| (d.item, d.attempt)).collect::<Vec<_>>(), [(4, 1), (1, 2), (2, 2)]);
    desk.end_session(B);
    assert_eq!(desk.queues.dead_letters("q", 0, 10).len(), 2, "the last attempt counts whatever ends it");
}

#[test]
fn l12_a_stalled_grantor_does_not_take_a_message_from_its_holder() {
    let mut desk = Desk::default();
    let item = desk.enqueue("pay", 5);
    let held = desk.one();
    desk.stalled = 400;
    desk.tick(1_399);
    assert_eq!(desk.queues.next_deadline(), Some(Millis(1_000)));
    assert_eq!(desk.ack(item, held.receipt), Ok(Answer::Acked));
    desk.enqueue("pay", 5);
    desk.stalled = 0;
    desk.one();
    desk.stalled = u64::MAX;
    desk.tick(2_000);
    assert_eq!(desk.one().attempt, 2, "at most one ttl is given back");
}

#[test]
fn after_a_restore_no_receipt_of_the_backup_is_worth_anything() {
    let mut desk = Desk::default();
    let item = desk.enqueue("pay", 5);
    let held = desk.one();
    desk.queues.restored(Millis(desk.now));
    assert_eq!(desk.ack(item, held.receipt), Err(Refusal::Lost(Reason::Restored)));
    assert_eq!(desk.one().attempt, 2);
}

#[test]
fn what_is_out_of_bounds_is_refused_with_its_field_or_limit() {
    let mut desk = Desk::default();
    let put = |body, delay_ms, max_attempts| Command::Enqueue { queue: "q", body, delay_ms, max_attempts };
    let get = |visibility_ms, most| Command::Receive { queue: "q", session: None, holder: "h", visibility_ms, most };
    let long = vec![0; ITEM_BYTES + 1];
    let got = ITEM_BYTES as u64 + 1;
    let too_long = Refusal::Exhausted { limit: Limit::Message, max: ITEM_BYTES as u64, got };
    assert_eq!(desk.ask(put(&long, 0, None)), Err(too_long));
    for (command, name) in [
        (put(b"x", DELAY_MAX + 1, None), "delay"),
        (put(b"x", 0, Some(0)), "max_attempts"),
        (put(b"x", 0, Some(u32::MAX)), "max_attempts"),
        (get(99, 1), "visibility"),
        (get(60_001, 1), "visibility"),
        (get(1_000, 0), "most"),
        (get(1_000, u32::MAX), "most"),
    ] {
        let answer = desk.ask(command);
        assert!(matches!(answer, Err(Refusal::Invalid { field, .. }) if field == name), "{command:?}: {answer:?}");
    }
    assert!(desk.log.is_empty());
}

#[test]
fn one_receive_hands_out_a_bounded_number_of_bytes_but_always_a_message() {
    let mut desk = Desk::default();
    let long = vec![0; ITEM_BYTES];
    for _ in 0..40 {
        let put = Command::Enqueue { queue: "q", body: &long, delay_ms: 0, max_attempts: None };
        desk.ask(put).expect("room for it");
    }
    assert_eq!(desk.receive(None, 40).len(), RECEIVE_BYTES / ITEM_BYTES);
}

#[test]
fn without_numbers_nothing_is_handed_out() {
    let mut desk = Desk::default();
    desk.enqueue("pay", 5);
    desk.enqueue("pay", 5);
    desk.granted = Number::MAX.get() - 1;
    let two = Command::Receive { queue: "q", session: None, holder: "h", visibility_ms: 1_000, most: 2 };
    assert_eq!(desk.ask(two), Err(Refusal::TokensExhausted));
    assert_eq!(desk.receive(None, 1).len(), 1);
}

#[derive(Clone, Debug)]
enum Act {
    Enqueue { queue: u8, delay_ms: u64, max_attempts: u32 },
    Receive { queue: u8, session: u8, visibility_ms: u64, most: u32 },
    Receipt { verb: u8, which: usize, older: bool },
    Dead { which: u64, drop: bool },
    Wait { ms: u64, tick: bool, stalled: u64 },
    EndSession { session: u8 },
    Reload,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        3 => (0..2u8, prop_oneof![Just(0), 0..400u64], 1..4u32)
            .prop_map(|(queue, delay_ms, max_attempts)| Act::Enqueue { queue, delay_ms, max_attempts }),
        4 => (0..2u8, 0..3u8, 100..600u64, 1..4u32)
            .prop_map(|(queue, session, visibility_ms, most)| Act::Receive { queue, session, visibility_ms, most }),
        5 => (0..3u8, any::<usize>(), any::<bool>())
            .prop_map(|(verb, which, older)| Act::Receipt { verb, which, older }),
        1 => (1..20u64, any::<bool>()).prop_map(|(which, drop)| Act::Dead { which, drop }),
        3 => (0..400u64, any::<bool>(), prop_oneof![Just(0), 0..300u64])
            .prop_map(|(ms, tick, stalled)| Act::Wait { ms, tick, stalled }),
        1 => (1..3u8).prop_map(|session| Act::EndSession { session }),
        1 => Just(Act::Reload),
    ];
    proptest::collection::vec(act, 1..80)
}

const NAMES: [&str; 2] = ["jobs/a", "jobs/b"];

fn session_of(n: u8) -> Option<SessionId> {
    (n > 0).then_some(SessionId { slot: u32::from(n), reuse: 0 })
}

proptest! {
    #[test]
    fn whatever_happens_nothing_is_lost_and_replay_gives_the_same_bytes(acts in acts()) {
        let mut desk = Desk::default();
        let mut dealt: Vec<(&str, Delivery)> = Vec::new();
        let (mut enqueued, mut gone) = (0, 0);
        for act in acts {
            match act {
                Act::Enqueue { queue, delay_ms, max_attempts } => {
                    let queue = NAMES[usize::from(queue)];
                    let max_attempts = Some(max_attempts);
                    desk.ask(Command::Enqueue { queue, body: b"body", delay_ms, max_attempts }).expect("room");
                    enqueued += 1;
                }
                Act::Receive { queue, session, visibility_ms, most } => {
                    let queue = NAMES[usize::from(queue)];
                    let session = session_of(session);
                    let command = Command::Receive { queue, session, holder: "h", visibility_ms, most };
                    let Ok(Answer::Received(new)) = desk.ask(command) else { panic!("refused") };
                    for delivery in new {
                        // Q4: whatever receipt was live before is live no more.
                        for (_, old) in dealt.iter().filter(|(_, old)| old.item == delivery.item) {
                            prop_assert!(old.receipt < delivery.receipt);
                            let lost = desk.moment(|at| desk.queues.current(at, queue, old.item, old.receipt).is_err());
                            prop_assert!(lost);
                        }
                        dealt.push((queue, delivery));
                    }
                }
                Act::Receipt { verb, which, older } if !dealt.is_empty() => {
                    let (queue, delivery) = dealt[which % dealt.len()].clone();
                    let back = u64::from(older);
                    let Some(receipt) = Number::new(delivery.receipt.get() - back) else { continue };
                    let item = delivery.item;
                    let before = desk.bytes();
                    let logged = desk.log.len();
                    let answer = desk.ask(match verb {
                        0 => Command::Ack { queue, item, receipt },
                        1 => Command::Nack { queue, item, receipt, delay_ms: 50 },
                        _ => Command::Extend { queue, item, receipt, visibility_ms: 300 },
                    });
                    match answer {
                        Ok(Answer::Acked) => gone += 1,
                        Ok(_) => prop_assert!(!older),
                        Err(Refusal::Lost(Reason::Ttl)) => prop_assert!(desk.log.len() <= logged + 1),
                        Err(_) => prop_assert_eq!(desk.bytes(), before),
                    }
                }
                Act::Receipt { .. } => {}
                Act::Dead { which, drop } => {
                    for queue in NAMES {
                        let item = which;
                        let command =
                            if drop { Command::Drop { queue, item } } else { Command::Redrive { queue, item } };
                        let answer = desk.ask(command);
                        gone += usize::from(answer == Ok(Answer::Dropped));
                    }
                }
                Act::Wait { ms, tick, stalled } => {
                    desk.stalled = stalled;
                    if tick { desk.tick(ms) } else { desk.now += ms }
                }
                Act::EndSession { session } => desk.end_session(session_of(session).expect("a session")),
                Act::Reload => {
                    let bytes = desk.bytes();
                    let mut reader = Reader::new(&bytes);
                    desk.queues = Queues::decode(&mut reader).expect("its own bytes");
                    reader.finish().expect("nothing behind them");
                }
            }
            // Q1: every message is there until it was acked or dropped.
            prop_assert_eq!(desk.queues.items.len() + gone, enqueued);
            let counts = NAMES.iter().filter_map(|q| desk.queues.counts(q, Millis(desk.now)));
            let counts = counts.fold(Counts::default(), |a, b| Counts {
                ready: a.ready + b.ready, delayed: a.delayed + b.delayed, live: a.live + b.live, dead: a.dead + b.dead,
            });
            prop_assert_eq!(counts.live, desk.queues.live.len());
            prop_assert_eq!(counts.ready + counts.delayed + counts.live + counts.dead, desk.queues.items.len());
            prop_assert!(desk.queues.live.carried() <= counts.live);
        }
        prop_assert_eq!(bytes(&replay(&desk.log)), desk.bytes());
    }

    #[test]
    fn arbitrary_bytes_never_panic_a_decoder(junk in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(fact) = Fact::decode(&mut Reader::new(&junk)) {
            let mut again = Vec::new();
            fact.encode(&mut again);
            prop_assert_eq!(&again[..], &junk[..again.len()]);
            let fits = Queues::default().apply(&fact, Millis(0)).is_ok();
            prop_assert_eq!(fits, matches!(fact, Fact::Enqueued { item: 1, .. }));
        }
        let mut reader = Reader::new(&junk);
        if let Ok(queues) = Queues::decode(&mut reader) {
            prop_assert_eq!(&bytes(&queues)[..], &junk[..reader.position()]);
        }
    }

    #[test]
    fn a_damaged_snapshot_is_refused_or_is_another_whole_one(place in any::<usize>(), bit in 0..8u8) {
        let mut desk = Desk::default();
        for n in 1..5 {
            desk.enqueue("pay", n);
        }
        desk.receive(Some(A), 2);
        desk.tick(1_000);
        desk.receive(Some(B), 1);
        let mut damaged = desk.bytes();
        let place = place % damaged.len();
        damaged[place] ^= 1 << bit;
        let mut reader = Reader::new(&damaged);
        if let Ok(mut queues) = Queues::decode(&mut reader) {
            prop_assert_eq!(&bytes(&queues)[..], &damaged[..reader.position()]);
            queues.session_ended(A, Millis(0));
            queues.restored(Millis(0));
            prop_assert_eq!(queues.live.len(), 0);
        }
    }
}
