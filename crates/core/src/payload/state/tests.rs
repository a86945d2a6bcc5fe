//! Tests of stored state: each promise on its own, then all of them under random commands.

use proptest::prelude::*;

use super::*;
use crate::access::LOCAL_OWNER;
use crate::codec::Reader;
use crate::time::GrantorTime;

/// A grantor with only stored state.
#[derive(Clone, Default)]
struct StateFixture {
    table: StateTable,
    log: Vec<Vec<u8>>,
}

impl StateFixture {
    fn execute(&mut self, command: StateCommand<'_>) -> Result<StateAnswer, Refusal> {
        let at = TurnContext { now: GrantorTime(0), next: Number::FIRST, max_ttl: 60_000, stalls: &|_| 0, owner: None };
        let decision = self.table.decide(&at, &command);
        for record in &decision.records {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            let mut reader = Reader::new(&bytes);
            assert_eq!(StateRecord::decode(&mut reader).as_ref(), Ok(record));
            reader.finish().expect("a record decodes completely");
            self.table.apply(record, GrantorTime(0), LOCAL_OWNER).expect("a decided record applies");
            self.log.push(bytes);
        }
        decision.answer
    }

    fn put(&mut self, token: u64, key: &str, value: &str) -> Result<StateAnswer, Refusal> {
        self.put_if(token, key, value, None)
    }

    fn put_if(&mut self, token: u64, key: &str, value: &str, expect: Option<u64>) -> Result<StateAnswer, Refusal> {
        self.execute(StateCommand::Put { resource: "shard/7", token: n(token), key, bytes: value.as_bytes(), expect })
    }

    fn delete(&mut self, token: u64, key: &str, expect: Option<u64>) -> Result<StateAnswer, Refusal> {
        self.execute(StateCommand::Delete { resource: "shard/7", token: n(token), key, expect })
    }

    fn value(&self, key: &str) -> Option<(&[u8], u64)> {
        self.table.get("shard/7", key).map(|stored| (&*stored.bytes, stored.token.get()))
    }
}

fn n(number: u64) -> Number {
    Number::new(number).expect("a number")
}

fn bytes(table: &StateTable) -> Vec<u8> {
    let mut out = Vec::new();
    table.encode(&mut out);
    out
}

#[test]
fn h1_a_checkpoint_is_stored_with_its_token_and_a_lower_one_is_refused() {
    let mut fixture = StateFixture::default();
    assert_eq!(fixture.put(5, "offset", "100"), Ok(StateAnswer::Put { revision: 1 }));
    assert_eq!(fixture.put(5, "offset", "101"), Ok(StateAnswer::Put { revision: 2 }), "the same lease writes again");
    assert_eq!(fixture.put(8, "offset", "102"), Ok(StateAnswer::Put { revision: 3 }));
    assert_eq!(fixture.put(5, "offset", "103"), Err(Refusal::Stale { presented: 5, mark: 8 }));
    assert_eq!(fixture.value("offset"), Some((&b"102"[..], 8)));
}

#[test]
fn h1_a_zombie_is_refused_at_every_key_of_its_resource() {
    let mut fixture = StateFixture::default();
    fixture.put(8, "offset", "102").expect("current");
    assert_eq!(fixture.put(5, "other", "x"), Err(Refusal::Stale { presented: 5, mark: 8 }));
    assert_eq!(fixture.delete(5, "offset", None), Err(Refusal::Stale { presented: 5, mark: 8 }));
    let elsewhere = StateCommand::Put { resource: "shard/8", token: n(5), key: "offset", bytes: b"1", expect: None };
    assert_eq!(fixture.execute(elsewhere), Ok(StateAnswer::Put { revision: 1 }), "another resource has its own mark");
}

#[test]
fn h1_a_successor_starts_from_the_newest_value() {
    let mut fixture = StateFixture::default();
    assert_eq!(fixture.table.newest("shard/7"), None);
    fixture.put(5, "b", "old").expect("current");
    fixture.put(5, "a", "new").expect("current");
    let (key, stored) = fixture.table.newest("shard/7").expect("two were written");
    assert_eq!((key, &*stored.bytes, stored.token), ("a", &b"new"[..], n(5)));
    assert_eq!(fixture.table.list("shard/7").map(|(key, _)| key).collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn a_lower_token_cannot_recreate_a_deleted_key() {
    let mut fixture = StateFixture::default();
    fixture.put(5, "offset", "100").expect("current");
    assert_eq!(fixture.delete(8, "offset", None), Ok(StateAnswer::Deleted));
    assert_eq!(fixture.put(5, "offset", "99"), Err(Refusal::Stale { presented: 5, mark: 8 }));
    assert_eq!(fixture.value("offset"), None);
    assert_eq!(fixture.table.mark("shard/7"), Some(n(8)), "the mark outlives the key");
    assert_eq!(fixture.delete(8, "offset", None), Err(Refusal::NotFound(RefusalSubject::Key)));
}

#[test]
fn an_expected_revision_is_compared_and_revisions_are_never_reused() {
    let mut fixture = StateFixture::default();
    assert_eq!(fixture.put_if(5, "k", "a", Some(1)), Err(Refusal::Conflict(RefusalSubject::Key)));
    assert_eq!(fixture.put_if(5, "k", "a", Some(0)), Ok(StateAnswer::Put { revision: 1 }));
    assert_eq!(fixture.put_if(5, "k", "b", Some(0)), Err(Refusal::Conflict(RefusalSubject::Key)));
    assert_eq!(fixture.delete(5, "k", Some(2)), Err(Refusal::Conflict(RefusalSubject::Key)));
    assert_eq!(fixture.delete(5, "k", Some(1)), Ok(StateAnswer::Deleted));
    assert_eq!(fixture.put_if(5, "k", "c", Some(1)), Err(Refusal::Conflict(RefusalSubject::Key)));
    assert_eq!(fixture.put_if(5, "k", "c", Some(0)), Ok(StateAnswer::Put { revision: 3 }));
}

#[test]
fn values_outside_their_limits_are_refused_with_the_field_or_limit() {
    let mut fixture = StateFixture::default();
    let long = "k".repeat(STATE_KEY_BYTES + 1);
    for key in ["", "line\nbreak", &*long] {
        let answer = fixture.put(5, key, "x");
        assert!(matches!(answer, Err(Refusal::Invalid { field: "key", .. })), "{key:?}: {answer:?}");
    }
    let large = "v".repeat(STATE_BYTES + 1);
    let got = STATE_BYTES as u64 + 1;
    let too_large = Refusal::Exhausted { limit: Limit::Value, max: STATE_BYTES as u64, got };
    assert_eq!(fixture.put(5, "k", &large), Err(too_large));
    for i in 0..STATE_KEYS {
        fixture.put(5, &format!("k{i}"), "x").expect("within the limit");
    }
    let max = STATE_KEYS as u64;
    let full = Refusal::Exhausted { limit: Limit::Keys, max, got: max + 1 };
    assert_eq!(fixture.put(5, "one more", "x"), Err(full));
    fixture.put(5, "k0", "y").expect("an existing key can be written");
    fixture.delete(5, "k0", None).expect("it is there");
    fixture.put(5, "one more", "x").expect("a deleted key frees space");
}

#[test]
fn the_total_size_is_bounded_also_for_many_small_values() {
    let mut fixture = StateFixture::default();
    fixture.put(5, "k", "12345").expect("within the limit");
    assert_eq!(fixture.table.bytes, 2 * OVERHEAD + "shard/7".len() + "k".len() + 5);
    fixture.put(5, "k", "1").expect("within the limit");
    assert_eq!(fixture.table.bytes, 2 * OVERHEAD + "shard/7".len() + "k".len() + 1);
    fixture.table.bytes = STATE_TOTAL;
    fixture.put(5, "k", "2").expect("the size does not grow");
    let max = STATE_TOTAL as u64;
    assert_eq!(fixture.put(5, "k", "33"), Err(Refusal::Exhausted { limit: Limit::Value, max, got: max + 1 }));
    fixture.delete(5, "k", None).expect("a delete frees space");
    fixture.put(5, "k", "").expect("within the limit again");
}

/// Verb, resource, token, key, expected revision.
fn action() -> impl Strategy<Value = (u8, usize, u64, usize, Option<u64>)> {
    (0..3u8, 0..2usize, 1..12u64, 0..4usize, proptest::option::of(0..6u64))
}

proptest! {
    #[test]
    fn tokens_never_decrease_and_replay_gives_the_same_bytes(
        acts in proptest::collection::vec(action(), 1..80)
    ) {
        let resources = ["shard/7", "shard/8"];
        let keys = ["a", "b", "c", "d"];
        let mut fixture = StateFixture::default();
        for (verb, resource, token, key, expect) in acts {
            let (resource, key, token) = (resources[resource], keys[key], n(token));
            let value = [verb];
            let mark = fixture.table.mark(resource);
            let before = bytes(&fixture.table);
            let answer = fixture.execute(if verb < 2 {
                StateCommand::Put { resource, token, key, bytes: &value, expect }
            } else {
                StateCommand::Delete { resource, token, key, expect }
            });
            match answer {
                Ok(_) => {
                    prop_assert!(mark.is_none_or(|mark| mark <= token));
                    prop_assert_eq!(fixture.table.mark(resource), Some(token));
                }
                Err(Refusal::Stale { mark: reported, .. }) => {
                    prop_assert!(mark.is_some_and(|mark| mark > token && mark.get() == reported));
                    prop_assert_eq!(&bytes(&fixture.table), &before);
                }
                Err(_) => prop_assert_eq!(&bytes(&fixture.table), &before),
            }
            let bytes_now = bytes(&fixture.table);
            let mut reader = Reader::new(&bytes_now);
            let again = StateTable::decode(&mut reader).expect("its own encoding");
            reader.finish().expect("no trailing bytes");
            prop_assert_eq!(again.bytes, fixture.table.bytes);
            prop_assert_eq!(bytes(&again), bytes_now);
        }
        let mut replayed = StateTable::default();
        for bytes in &fixture.log {
            let record = StateRecord::decode(&mut Reader::new(bytes)).expect("recorded");
            replayed.apply(&record, GrantorTime(0), LOCAL_OWNER).expect("replay fits");
        }
        prop_assert_eq!(bytes(&replayed), bytes(&fixture.table));
    }

    #[test]
    fn arbitrary_bytes_never_panic_a_decoder(junk in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(record) = StateRecord::decode(&mut Reader::new(&junk)) {
            let mut again = Vec::new();
            record.encode(&mut again);
            prop_assert_eq!(&again[..], &junk[..again.len()]);
            let fits = StateTable::default().apply(&record, GrantorTime(0), LOCAL_OWNER).is_ok();
            prop_assert_eq!(fits, matches!(record, StateRecord::Put { .. }));
        }
        let mut reader = Reader::new(&junk);
        if let Ok(table) = StateTable::decode(&mut reader) {
            prop_assert_eq!(&bytes(&table)[..], &junk[..reader.position()]);
        }
    }

    #[test]
    fn a_damaged_snapshot_is_refused_or_decodes_to_another_valid_one(index in any::<usize>(), bit in 0..8u8) {
        let mut fixture = StateFixture::default();
        for (token, key) in [(5, "a"), (6, "b"), (9, "c")] {
            fixture.put(token, key, "value").expect("ascending tokens");
        }
        let mut damaged = bytes(&fixture.table);
        let index = index % damaged.len();
        damaged[index] ^= 1 << bit;
        let mut reader = Reader::new(&damaged);
        if let Ok(table) = StateTable::decode(&mut reader) {
            prop_assert_eq!(&bytes(&table)[..], &damaged[..reader.position()]);
        }
    }
}
