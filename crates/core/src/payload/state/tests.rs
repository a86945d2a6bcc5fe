//! The promises about small state, one by one, and then all of them under random commands.

use proptest::prelude::*;

use super::*;
use crate::codec::Reader;
use crate::time::Millis;

/// A grantor with nothing but small state.
#[derive(Clone, Default)]
struct Desk {
    small: Small,
    log: Vec<Vec<u8>>,
}

impl Desk {
    fn ask(&mut self, command: Command<'_>) -> Result<Answer, Refusal> {
        let at = Moment { now: Millis(0), next: Number::FIRST, max_ttl: 60_000, stalls: &|_| 0 };
        let decision = self.small.decide(&at, &command);
        for fact in &decision.facts {
            let mut bytes = Vec::new();
            fact.encode(&mut bytes);
            let mut reader = Reader::new(&bytes);
            assert_eq!(Fact::decode(&mut reader).as_ref(), Ok(fact));
            reader.finish().expect("a fact is its bytes");
            self.small.apply(fact, Millis(0)).expect("what was decided fits");
            self.log.push(bytes);
        }
        decision.answer
    }

    fn put(&mut self, token: u64, key: &str, value: &str) -> Result<Answer, Refusal> {
        self.put_if(token, key, value, None)
    }

    fn put_if(&mut self, token: u64, key: &str, value: &str, expect: Option<u64>) -> Result<Answer, Refusal> {
        self.ask(Command::Put { resource: "shard/7", token: n(token), key, bytes: value.as_bytes(), expect })
    }

    fn delete(&mut self, token: u64, key: &str, expect: Option<u64>) -> Result<Answer, Refusal> {
        self.ask(Command::Delete { resource: "shard/7", token: n(token), key, expect })
    }

    fn value(&self, key: &str) -> Option<(&[u8], u64)> {
        self.small.get("shard/7", key).map(|stored| (&*stored.bytes, stored.token.get()))
    }
}

fn n(number: u64) -> Number {
    Number::new(number).expect("a number")
}

fn bytes(small: &Small) -> Vec<u8> {
    let mut out = Vec::new();
    small.encode(&mut out);
    out
}

#[test]
fn h1_a_checkpoint_is_stored_with_its_token_and_a_lower_one_is_refused() {
    let mut desk = Desk::default();
    assert_eq!(desk.put(5, "offset", "100"), Ok(Answer::Put { revision: 1 }));
    assert_eq!(desk.put(5, "offset", "101"), Ok(Answer::Put { revision: 2 }), "the same hold writes again");
    assert_eq!(desk.put(8, "offset", "102"), Ok(Answer::Put { revision: 3 }));
    assert_eq!(desk.put(5, "offset", "103"), Err(Refusal::Stale { presented: 5, mark: 8 }));
    assert_eq!(desk.value("offset"), Some((&b"102"[..], 8)));
}

#[test]
fn h1_a_zombies_checkpoint_is_refused_to_every_key_of_its_resource() {
    let mut desk = Desk::default();
    desk.put(8, "offset", "102").expect("current");
    assert_eq!(desk.put(5, "other", "x"), Err(Refusal::Stale { presented: 5, mark: 8 }));
    assert_eq!(desk.delete(5, "offset", None), Err(Refusal::Stale { presented: 5, mark: 8 }));
    let elsewhere = Command::Put { resource: "shard/8", token: n(5), key: "offset", bytes: b"1", expect: None };
    assert_eq!(desk.ask(elsewhere), Ok(Answer::Put { revision: 1 }), "another resource has its own mark");
}

#[test]
fn h1_a_successor_starts_from_the_newest() {
    let mut desk = Desk::default();
    assert_eq!(desk.small.newest("shard/7"), None);
    desk.put(5, "b", "old").expect("current");
    desk.put(5, "a", "new").expect("current");
    let (key, stored) = desk.small.newest("shard/7").expect("two were written");
    assert_eq!((key, &*stored.bytes, stored.token), ("a", &b"new"[..], n(5)));
    assert_eq!(desk.small.list("shard/7").map(|(key, _)| key).collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn a_lower_token_cannot_bring_a_deleted_key_back() {
    let mut desk = Desk::default();
    desk.put(5, "offset", "100").expect("current");
    assert_eq!(desk.delete(8, "offset", None), Ok(Answer::Deleted));
    assert_eq!(desk.put(5, "offset", "99"), Err(Refusal::Stale { presented: 5, mark: 8 }));
    assert_eq!(desk.value("offset"), None);
    assert_eq!(desk.small.mark("shard/7"), Some(n(8)), "the mark outlives the key");
    assert_eq!(desk.delete(8, "offset", None), Err(Refusal::NotFound(What::Key)));
}

#[test]
fn an_expected_revision_is_compared_and_never_comes_back() {
    let mut desk = Desk::default();
    assert_eq!(desk.put_if(5, "k", "a", Some(1)), Err(Refusal::Conflict(What::Key)));
    assert_eq!(desk.put_if(5, "k", "a", Some(0)), Ok(Answer::Put { revision: 1 }));
    assert_eq!(desk.put_if(5, "k", "b", Some(0)), Err(Refusal::Conflict(What::Key)));
    assert_eq!(desk.delete(5, "k", Some(2)), Err(Refusal::Conflict(What::Key)));
    assert_eq!(desk.delete(5, "k", Some(1)), Ok(Answer::Deleted));
    assert_eq!(desk.put_if(5, "k", "c", Some(1)), Err(Refusal::Conflict(What::Key)));
    assert_eq!(desk.put_if(5, "k", "c", Some(0)), Ok(Answer::Put { revision: 3 }));
}

#[test]
fn what_is_out_of_bounds_is_refused_with_its_field_or_limit() {
    let mut desk = Desk::default();
    let long = "k".repeat(STATE_KEY_BYTES + 1);
    for key in ["", "line\nbreak", &*long] {
        let answer = desk.put(5, key, "x");
        assert!(matches!(answer, Err(Refusal::Invalid { field: "key", .. })), "{key:?}: {answer:?}");
    }
    let large = "v".repeat(STATE_BYTES + 1);
    let got = STATE_BYTES as u64 + 1;
    let too_large = Refusal::Exhausted { limit: Limit::Value, max: STATE_BYTES as u64, got };
    assert_eq!(desk.put(5, "k", &large), Err(too_large));
    for i in 0..STATE_KEYS {
        desk.put(5, &format!("k{i}"), "x").expect("room");
    }
    let max = STATE_KEYS as u64;
    let full = Refusal::Exhausted { limit: Limit::Keys, max, got: max + 1 };
    assert_eq!(desk.put(5, "one more", "x"), Err(full));
    desk.put(5, "k0", "y").expect("a key that is there can be written");
    desk.delete(5, "k0", None).expect("it is there");
    desk.put(5, "one more", "x").expect("a deleted key makes room");
}

#[test]
fn all_state_together_is_bounded_however_small_its_pieces() {
    let mut desk = Desk::default();
    desk.put(5, "k", "12345").expect("room");
    assert_eq!(desk.small.bytes, 2 * OVERHEAD + "shard/7".len() + "k".len() + 5);
    desk.put(5, "k", "1").expect("room");
    assert_eq!(desk.small.bytes, 2 * OVERHEAD + "shard/7".len() + "k".len() + 1);
    desk.small.bytes = STATE_TOTAL;
    desk.put(5, "k", "2").expect("no more than before");
    let max = STATE_TOTAL as u64;
    assert_eq!(desk.put(5, "k", "33"), Err(Refusal::Exhausted { limit: Limit::Value, max, got: max + 1 }));
    desk.delete(5, "k", None).expect("a delete makes room");
    desk.put(5, "k", "").expect("room again");
}

/// Verb, resource, token, key, expected revision.
fn act() -> impl Strategy<Value = (u8, usize, u64, usize, Option<u64>)> {
    (0..3u8, 0..2usize, 1..12u64, 0..4usize, proptest::option::of(0..6u64))
}

proptest! {
    #[test]
    fn tokens_never_fall_and_replay_gives_the_same_bytes(
        acts in proptest::collection::vec(act(), 1..80)
    ) {
        let resources = ["shard/7", "shard/8"];
        let keys = ["a", "b", "c", "d"];
        let mut desk = Desk::default();
        for (verb, resource, token, key, expect) in acts {
            let (resource, key, token) = (resources[resource], keys[key], n(token));
            let value = [verb];
            let mark = desk.small.mark(resource);
            let before = bytes(&desk.small);
            let answer = desk.ask(if verb < 2 {
                Command::Put { resource, token, key, bytes: &value, expect }
            } else {
                Command::Delete { resource, token, key, expect }
            });
            match answer {
                Ok(_) => {
                    prop_assert!(mark.is_none_or(|mark| mark <= token));
                    prop_assert_eq!(desk.small.mark(resource), Some(token));
                }
                Err(Refusal::Stale { mark: told, .. }) => {
                    prop_assert!(mark.is_some_and(|mark| mark > token && mark.get() == told));
                    prop_assert_eq!(&bytes(&desk.small), &before);
                }
                Err(_) => prop_assert_eq!(&bytes(&desk.small), &before),
            }
            let bytes_now = bytes(&desk.small);
            let mut reader = Reader::new(&bytes_now);
            let again = Small::decode(&mut reader).expect("its own bytes");
            reader.finish().expect("nothing behind them");
            prop_assert_eq!(again.bytes, desk.small.bytes);
            prop_assert_eq!(bytes(&again), bytes_now);
        }
        let mut replayed = Small::default();
        for bytes in &desk.log {
            let fact = Fact::decode(&mut Reader::new(bytes)).expect("recorded");
            replayed.apply(&fact, Millis(0)).expect("replay fits");
        }
        prop_assert_eq!(bytes(&replayed), bytes(&desk.small));
    }

    #[test]
    fn arbitrary_bytes_never_panic_a_decoder(junk in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(fact) = Fact::decode(&mut Reader::new(&junk)) {
            let mut again = Vec::new();
            fact.encode(&mut again);
            prop_assert_eq!(&again[..], &junk[..again.len()]);
            let fits = Small::default().apply(&fact, Millis(0)).is_ok();
            prop_assert_eq!(fits, matches!(fact, Fact::Put { .. }));
        }
        let mut reader = Reader::new(&junk);
        if let Ok(small) = Small::decode(&mut reader) {
            prop_assert_eq!(&bytes(&small)[..], &junk[..reader.position()]);
        }
    }

    #[test]
    fn a_damaged_snapshot_is_refused_or_is_another_whole_one(place in any::<usize>(), bit in 0..8u8) {
        let mut desk = Desk::default();
        for (token, key) in [(5, "a"), (6, "b"), (9, "c")] {
            desk.put(token, key, "value").expect("rising tokens");
        }
        let mut damaged = bytes(&desk.small);
        let place = place % damaged.len();
        damaged[place] ^= 1 << bit;
        let mut reader = Reader::new(&damaged);
        if let Ok(small) = Small::decode(&mut reader) {
            prop_assert_eq!(&bytes(&small)[..], &damaged[..reader.position()]);
        }
    }
}
