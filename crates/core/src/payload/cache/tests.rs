//! Tests of cached keys: each promise on its own, then all of them under random commands.

use proptest::prelude::*;

use super::*;
use crate::access::LOCAL_OWNER;
use crate::codec::Reader;

const A: SessionId = SessionId { slot: 1, reuse: 0 };
const B: SessionId = SessionId { slot: 2, reuse: 0 };
const W: SessionId = SessionId { slot: 3, reuse: 0 };

#[derive(Clone, Debug)]
enum CacheLogEntry {
    Record(Vec<u8>),
    SessionEnded(SessionId),
}

/// A grantor with only cached keys.
#[derive(Clone, Default)]
struct CacheFixture {
    cache: CacheTable,
    now: u64,
    granted: u64,
    stalled: u64,
    notices: Vec<PayloadNotice>,
    log: Vec<(CacheLogEntry, GrantorTime)>,
}

impl CacheFixture {
    fn in_turn<T>(&self, f: impl FnOnce(&TurnContext<'_>) -> T) -> T {
        let next = Number::new(self.granted + 1).expect("few grants");
        f(&TurnContext { now: GrantorTime(self.now), next, max_ttl: 60_000, stalls: &|_| self.stalled, owner: None })
    }

    fn record(&mut self, records: &[CacheRecord]) {
        for record in records {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            let mut reader = Reader::new(&bytes);
            assert_eq!(CacheRecord::decode(&mut reader).as_ref(), Ok(record));
            reader.finish().expect("a record decodes completely");
            if let Some(number) = record.numbers() {
                assert!(number.get() > self.granted, "numbers rise");
                self.granted = number.get();
            }
            self.cache.apply(record, GrantorTime(self.now), LOCAL_OWNER).expect("a decided record applies");
            self.log.push((CacheLogEntry::Record(bytes), GrantorTime(self.now)));
        }
    }

    fn execute(&mut self, command: CacheCommand<'_>) -> Result<CacheAnswer, Refusal> {
        let decision = self.in_turn(|at| self.cache.decide(at, &command));
        self.record(&decision.records);
        self.notices = decision.notices;
        decision.answer
    }

    fn tick(&mut self, ms: u64) {
        self.now += ms;
        let due = self.in_turn(|at| self.cache.due(at, usize::MAX));
        self.record(&due);
    }

    fn end_session(&mut self, session: SessionId) {
        self.cache.session_ended(session, GrantorTime(self.now));
        self.log.push((CacheLogEntry::SessionEnded(session), GrantorTime(self.now)));
    }

    fn try_read(&mut self, key: &str, session: Option<SessionId>) -> Result<CacheAnswer, Refusal> {
        self.execute(CacheCommand::Read { key, session, reader: "r", ttl_ms: 1_000 })
    }

    /// Version and read lease.
    fn read(&mut self, key: &str, session: Option<SessionId>) -> (u64, Number) {
        match self.try_read(key, session) {
            Ok(CacheAnswer::Reading { version, lease, remaining_ms: 1_000 }) => (version, lease),
            other => panic!("{other:?}"),
        }
    }

    fn renew(&mut self, lease: Number) -> Result<CacheAnswer, Refusal> {
        self.execute(CacheCommand::RenewRead { key: "k", lease })
    }

    fn invalidated(&mut self, lease: Number) -> Result<CacheAnswer, Refusal> {
        self.execute(CacheCommand::Invalidated { key: "k", lease })
    }

    /// The intent and the number of readers it waits for.
    fn intend(&mut self, key: &str) -> (Number, u32) {
        match self.execute(CacheCommand::Intend { key, session: Some(W), writer: "w", ttl_ms: 5_000 }) {
            Ok(CacheAnswer::Intended { intent, waiting_for, .. }) => (intent, waiting_for),
            other => panic!("{other:?}"),
        }
    }

    fn commit(&mut self, key: &str, intent: Number) -> Result<CacheAnswer, Refusal> {
        self.execute(CacheCommand::Commit { key, intent })
    }

    fn write(&mut self, key: &str) -> u64 {
        let (intent, _) = self.intend(key);
        match self.commit(key, intent) {
            Ok(CacheAnswer::Committed { version }) => version,
            other => panic!("{other:?}"),
        }
    }

    fn get_or_fill(&mut self, session: Option<SessionId>, missing: Option<u64>) -> Result<CacheAnswer, Refusal> {
        self.execute(CacheCommand::GetOrFill { key: "k", session, reader: "r", ttl_ms: 1_000, missing })
    }

    fn fill(&mut self, session: Option<SessionId>) -> Number {
        match self.get_or_fill(session, None) {
            Ok(CacheAnswer::Fill { token, remaining_ms: 1_000 }) => token,
            other => panic!("{other:?}"),
        }
    }

    fn filled(&mut self, token: Number) -> Result<CacheAnswer, Refusal> {
        self.execute(CacheCommand::Filled { key: "k", token })
    }
}

fn bytes(cache: &CacheTable) -> Vec<u8> {
    let mut out = Vec::new();
    cache.encode(&mut out);
    out
}

fn replay(log: &[(CacheLogEntry, GrantorTime)]) -> CacheTable {
    let mut cache = CacheTable::default();
    for (logged, at) in log {
        match logged {
            CacheLogEntry::Record(bytes) => {
                let record = CacheRecord::decode(&mut Reader::new(bytes)).expect("recorded");
                cache.apply(&record, *at, LOCAL_OWNER).expect("replay fits");
            }
            CacheLogEntry::SessionEnded(session) => cache.session_ended(*session, *at),
        }
    }
    cache
}

#[test]
fn r1_no_read_lease_is_granted_or_renewed_under_a_write_intent() {
    let mut fixture = CacheFixture::default();
    let (version, old) = fixture.read("k", Some(A));
    assert_eq!(version, 0);
    let (intent, waiting_for) = fixture.intend("k");
    assert_eq!(waiting_for, 1);
    assert_eq!(fixture.notices, [PayloadNotice::Invalidate { session: A, key: "k".into(), lease: old }]);
    let refused = Err(Refusal::Conflict(RefusalSubject::Intent));
    assert_eq!(fixture.try_read("k", Some(B)), refused);
    assert_eq!(fixture.renew(old), refused);
    assert_eq!(fixture.get_or_fill(Some(B), None), refused);
    assert_eq!(fixture.commit("k", intent), Err(Refusal::busy(1)));
    assert_eq!(fixture.invalidated(old), Ok(CacheAnswer::Dropped));
    assert_eq!(fixture.notices, [PayloadNotice::Clear { session: W, key: "k".into(), intent }]);
    assert_eq!(fixture.try_read("k", Some(B)), refused, "no read lease between the last drop and the commit");
    assert_eq!(fixture.commit("k", intent), Ok(CacheAnswer::Committed { version: intent.get() }));
    assert_eq!(fixture.read("k", Some(B)).0, intent.get());
    assert_eq!(fixture.commit("k", intent), Err(Refusal::Lost(EndReason::Released)));
}

#[test]
fn r1_a_writer_waits_until_a_silent_reader_expires() {
    let mut fixture = CacheFixture::default();
    fixture.read("k", None);
    fixture.now = 400;
    let (_, second) = fixture.read("k", Some(A));
    let command = CacheCommand::Intend { key: "k", session: None, writer: "w", ttl_ms: 5_000 };
    let Ok(CacheAnswer::Intended { intent, waiting_for: 2, until }) = fixture.execute(command) else {
        panic!("refused")
    };
    assert_eq!(until, GrantorTime(1_400));
    assert_eq!(fixture.notices, [PayloadNotice::Invalidate { session: A, key: "k".into(), lease: second }]);
    fixture.now = 1_399;
    assert_eq!(fixture.in_turn(|at| fixture.cache.waiting_for(at, "k", intent)), Ok(1));
    assert_eq!(fixture.commit("k", intent), Err(Refusal::busy(1)));
    fixture.now = 1_400;
    assert_eq!(fixture.in_turn(|at| fixture.cache.waiting_for(at, "k", intent)), Ok(0));
    assert_eq!(fixture.commit("k", intent), Ok(CacheAnswer::Committed { version: intent.get() }));
    assert_eq!(fixture.cache.live.len(), 0, "the commit record ends the readers");
    assert_eq!(fixture.renew(second), Err(Refusal::NotCurrent(NotCurrent::Unknown)));
}

#[test]
fn r1_a_writer_waits_for_a_reader_that_gets_credit_for_a_stall() {
    let mut fixture = CacheFixture::default();
    fixture.read("k", None);
    let (intent, _) = fixture.intend("k");
    fixture.stalled = 300;
    fixture.now = 1_299;
    assert_eq!(fixture.commit("k", intent), Err(Refusal::busy(1)));
    fixture.now = 1_300;
    assert_eq!(fixture.commit("k", intent), Ok(CacheAnswer::Committed { version: intent.get() }));
}

#[test]
fn r2_read_leases_and_their_renewals_survive_a_failover() {
    let mut fixture = CacheFixture::default();
    let (_, lease) = fixture.read("k", Some(A));
    fixture.now = 900;
    assert_eq!(fixture.renew(lease), Ok(CacheAnswer::Reading { version: 0, lease, remaining_ms: 1_000 }));
    fixture.cache = replay(&fixture.log);
    let (intent, waiting_for) = fixture.intend("k");
    assert_eq!(waiting_for, 1);
    fixture.tick(999);
    assert_eq!(fixture.commit("k", intent), Err(Refusal::busy(1)));
    fixture.tick(1);
    assert_eq!(fixture.commit("k", intent), Ok(CacheAnswer::Committed { version: intent.get() }));
}

#[test]
fn an_expired_read_lease_is_lost_and_its_end_is_recorded() {
    let mut fixture = CacheFixture::default();
    let (_, lease) = fixture.read("k", None);
    fixture.now = 1_000;
    assert_eq!(fixture.renew(lease), Err(Refusal::Lost(EndReason::Ttl)));
    assert_eq!(replay(&fixture.log).view("k").readers, 0);
    assert_eq!(fixture.renew(lease), Err(Refusal::NotCurrent(NotCurrent::Unknown)));
    assert!(fixture.cache.entries.is_empty(), "a key without content is removed");
}

#[test]
fn an_expired_intent_unblocks_readers_and_raises_the_version() {
    let mut fixture = CacheFixture::default();
    let before = fixture.write("k");
    let (intent, _) = fixture.intend("k");
    fixture.now = 4_999;
    assert_eq!(fixture.try_read("k", None), Err(Refusal::Conflict(RefusalSubject::Intent)));
    fixture.now = 5_000;
    let (version, _) = fixture.read("k", None);
    assert!(version > before, "a copy from before the intent is invalid");
    assert_eq!(version, intent.get());
    assert_eq!(fixture.commit("k", intent), Err(Refusal::Lost(EndReason::Ttl)));
    assert_eq!(fixture.cache.view("k").version, version);
}

#[test]
fn a_commit_after_the_deadline_is_refused_even_before_the_tick() {
    let mut fixture = CacheFixture::default();
    let (intent, _) = fixture.intend("k");
    fixture.now = 5_000;
    assert_eq!(fixture.commit("k", intent), Err(Refusal::Lost(EndReason::Ttl)));
    assert_eq!(replay(&fixture.log).view("k").owner, None, "the end is recorded");
}

#[test]
fn an_aborted_write_leaves_the_version_and_frees_the_key() {
    let mut fixture = CacheFixture::default();
    let version = fixture.write("k");
    let (intent, _) = fixture.intend("k");
    let second = CacheCommand::Intend { key: "k", session: None, writer: "x", ttl_ms: 1_000 };
    assert_eq!(fixture.execute(second), Err(Refusal::busy(1)));
    assert_eq!(fixture.execute(CacheCommand::Abort { key: "k", number: intent }), Ok(CacheAnswer::Aborted));
    assert_eq!(fixture.read("k", None).0, version);
    assert_eq!(fixture.commit("k", intent), Err(Refusal::Lost(EndReason::Released)));
    let (newer, _) = fixture.intend("k");
    let stale = Refusal::Stale { presented: intent.get(), mark: newer.get() };
    assert_eq!(fixture.commit("k", intent), Err(stale));
}

#[test]
fn many_readers_get_exactly_one_filler() {
    let mut fixture = CacheFixture::default();
    let token = fixture.fill(Some(A));
    for _ in 0..5 {
        assert_eq!(fixture.get_or_fill(Some(B), None), Ok(CacheAnswer::Wait { remaining_ms: 1_000 }));
    }
    assert_eq!(fixture.filled(token), Ok(CacheAnswer::Filled { version: token.get() }));
    let Ok(CacheAnswer::Reading { version, .. }) = fixture.get_or_fill(Some(B), None) else { panic!("no hit") };
    assert_eq!(version, token.get());
    assert_eq!(fixture.filled(token), Err(Refusal::Lost(EndReason::Released)));
}

#[test]
fn a_late_filler_is_refused_and_the_next_one_fills() {
    let mut fixture = CacheFixture::default();
    let late = fixture.fill(None);
    fixture.now = 1_000;
    let next = fixture.fill(None);
    assert_eq!(fixture.filled(late), Err(Refusal::Stale { presented: late.get(), mark: next.get() }));
    fixture.now = 2_000;
    assert_eq!(fixture.filled(next), Err(Refusal::Lost(EndReason::Ttl)));
    fixture.tick(0);
    assert_eq!(fixture.filled(next), Err(Refusal::Lost(EndReason::Ttl)));
    assert!(!fixture.cache.view("k").filled);
}

#[test]
fn a_write_intent_replaces_a_filler_whose_copy_would_be_outdated() {
    let mut fixture = CacheFixture::default();
    let filler = fixture.fill(Some(A));
    let version = fixture.write("k");
    assert_eq!(fixture.filled(filler), Err(Refusal::Stale { presented: filler.get(), mark: version }));
    let again = fixture.fill(Some(B));
    assert_eq!(fixture.commit("k", again), Err(Refusal::NotCurrent(NotCurrent::Unknown)), "a filler is no writer");
    assert_eq!(fixture.filled(again), Ok(CacheAnswer::Filled { version: again.get() }));
}

#[test]
fn a_missing_copy_is_filled_again_by_one_reader() {
    let mut fixture = CacheFixture::default();
    let token = fixture.fill(None);
    fixture.filled(token).expect("in time");
    let Ok(CacheAnswer::Fill { token: again, .. }) = fixture.get_or_fill(None, Some(token.get())) else {
        panic!("no fill")
    };
    assert!(matches!(fixture.get_or_fill(None, Some(token.get())), Ok(CacheAnswer::Wait { .. })));
    fixture.filled(again).expect("in time");
    assert!(
        matches!(fixture.get_or_fill(None, Some(token.get())), Ok(CacheAnswer::Reading { .. })),
        "the older version was filled again already"
    );
}

#[test]
fn s1_the_end_of_a_session_ends_its_reads_intents_and_fills_in_one_step() {
    let mut fixture = CacheFixture::default();
    fixture.read("k", Some(A));
    fixture.read("l", Some(A));
    let (_, other) = fixture.read("k", Some(B));
    let (intent, waiting_for) = fixture.intend("k");
    assert_eq!(waiting_for, 2);
    fixture.end_session(A);
    assert_eq!(fixture.commit("k", intent), Err(Refusal::busy(1)));
    fixture.end_session(W);
    assert_eq!(fixture.commit("k", intent), Err(Refusal::Lost(EndReason::Session)));
    assert_eq!(fixture.cache.live.len(), 1);
    assert_eq!(
        fixture.renew(other),
        Ok(CacheAnswer::Reading { version: intent.get(), lease: other, remaining_ms: 1_000 })
    );
    let filler = fixture.fill(Some(A));
    fixture.end_session(A);
    assert_eq!(fixture.filled(filler), Err(Refusal::Lost(EndReason::Session)));
}

#[test]
fn a_restore_ends_all_grants_of_the_backup() {
    let mut fixture = CacheFixture::default();
    let (_, lease) = fixture.read("l", None);
    let (intent, _) = fixture.intend("k");
    fixture.cache.restored(GrantorTime(fixture.now));
    assert_eq!(fixture.commit("k", intent), Err(Refusal::Lost(EndReason::Restored)));
    let renew = CacheCommand::RenewRead { key: "l", lease };
    assert_eq!(fixture.execute(renew), Err(Refusal::NotCurrent(NotCurrent::Unknown)));
}

#[test]
fn versions_never_decrease_although_keys_are_evicted() {
    let mut fixture = CacheFixture { cache: CacheTable::with_capacity(2), ..CacheFixture::default() };
    let first = fixture.write("a");
    let second = fixture.write("b");
    let (version, lease) = fixture.read("c", Some(A));
    assert_eq!(version, first, "a new key starts at the floor of evicted keys");
    assert_eq!(fixture.cache.view("a").version, first);
    assert_eq!(fixture.cache.view("b").version, second);
    fixture.read("d", Some(A));
    let full = Refusal::Exhausted { limit: Limit::CacheKeys, max: 2, got: 3 };
    assert_eq!(fixture.try_read("a", None), Err(full), "keys in use are not evicted");
    fixture.end_session(A);
    assert!(fixture.read("a", None).0 >= first);
    assert!(fixture.read("b", None).0 >= second);
    let renew = CacheCommand::RenewRead { key: "c", lease };
    assert_eq!(fixture.execute(renew), Err(Refusal::NotCurrent(NotCurrent::Unknown)));
}

#[test]
fn a_ttl_outside_its_limits_is_refused() {
    let mut fixture = CacheFixture::default();
    for ttl_ms in [0, 99, 60_001, u64::MAX] {
        let (key, session) = ("k", None);
        for command in [
            CacheCommand::Read { key, session, reader: "r", ttl_ms },
            CacheCommand::Intend { key, session, writer: "w", ttl_ms },
            CacheCommand::GetOrFill { key, session, reader: "r", ttl_ms, missing: None },
        ] {
            let answer = fixture.execute(command);
            assert!(
                matches!(answer, Err(Refusal::OutOfRange { field: "ttl", max: 60_000, .. })),
                "{command:?}: {answer:?}"
            );
        }
    }
    assert!(fixture.log.is_empty());
}

#[derive(Clone, Debug)]
enum CacheAction {
    Execute { verb: u8, key: usize, session: u8, ttl_ms: u64, number: u64 },
    Wait { ms: u64, tick: bool, stalled: u64 },
    EndSession { session: u8 },
    Reload,
}

fn actions() -> impl Strategy<Value = Vec<CacheAction>> {
    let action = prop_oneof![
        10 => (0..8u8, 0..4usize, 0..3u8, 100..800u64, any::<u64>())
            .prop_map(|(verb, key, session, ttl_ms, number)| CacheAction::Execute { verb, key, session, ttl_ms, number }),
        3 => (0..400u64, any::<bool>(), prop_oneof![Just(0), 0..300u64])
            .prop_map(|(ms, tick, stalled)| CacheAction::Wait { ms, tick, stalled }),
        1 => (1..3u8).prop_map(|session| CacheAction::EndSession { session }),
        1 => Just(CacheAction::Reload),
    ];
    proptest::collection::vec(action, 1..100)
}

const KEYS: [&str; 4] = ["a", "b", "c", "d"];
const ROOM: usize = 3;

fn session_of(n: u8) -> Option<SessionId> {
    (n > 0).then_some(SessionId { slot: u32::from(n), reuse: 0 })
}

proptest! {
    #[test]
    fn versions_rise_and_replay_gives_the_same_bytes(actions in actions()) {
        let mut fixture = CacheFixture { cache: CacheTable::with_capacity(ROOM), ..CacheFixture::default() };
        let mut replies = [0; KEYS.len()];
        for action in actions {
            match action {
                CacheAction::Execute { verb, key: index, session, ttl_ms, number } => {
                    let key = KEYS[index];
                    let session = session_of(session);
                    let recent = Number::new(fixture.granted.saturating_sub(number % 8)).unwrap_or(Number::FIRST);
                    let live = fixture.in_turn(|at| fixture.cache.readers(at, key).count());
                    let intent = fixture.in_turn(|at| {
                        fixture.cache.current_key(at, key).owner.is_some_and(|owner| owner.kind == OwnerKind::Intent)
                    });
                    let answer = fixture.execute(match verb {
                        0 => CacheCommand::Read { key, session, reader: "r", ttl_ms },
                        1 => CacheCommand::RenewRead { key, lease: recent },
                        2 => CacheCommand::Invalidated { key, lease: recent },
                        3 => CacheCommand::Intend { key, session, writer: "w", ttl_ms },
                        4 => CacheCommand::Commit { key, intent: recent },
                        5 => CacheCommand::Abort { key, number: recent },
                        6 => CacheCommand::GetOrFill { key, session, reader: "r", ttl_ms, missing: None },
                        _ => CacheCommand::Filled { key, token: recent },
                    });
                    match answer {
                        Ok(CacheAnswer::Reading { version, .. }) => {
                            prop_assert!(!intent, "R1");
                            prop_assert!(version >= replies[index]);
                            prop_assert_eq!(version, fixture.cache.view(key).version);
                            replies[index] = version;
                        }
                        Ok(CacheAnswer::Committed { version }) => {
                            prop_assert!(intent && live == 0, "R1");
                            prop_assert!(version > replies[index]);
                            replies[index] = version;
                        }
                        Ok(CacheAnswer::Filled { version }) => {
                            prop_assert!(version > replies[index]);
                            replies[index] = version;
                        }
                        Ok(CacheAnswer::Fill { .. }) => prop_assert!(!intent),
                        _ => {}
                    }
                }
                CacheAction::Wait { ms, tick, stalled } => {
                    fixture.stalled = stalled;
                    if tick { fixture.tick(ms) } else { fixture.now += ms }
                }
                CacheAction::EndSession { session } => fixture.end_session(session_of(session).expect("a session")),
                CacheAction::Reload => {
                    let bytes = bytes(&fixture.cache);
                    let mut reader = Reader::new(&bytes);
                    fixture.cache = CacheTable::decode(&mut reader).expect("its own encoding");
                    fixture.cache.capacity = ROOM;
                    reader.finish().expect("no trailing bytes");
                }
            }
            let cache = &fixture.cache;
            let live = cache.entries.values().map(|e| e.readers.len() + usize::from(e.owner.is_some())).sum::<usize>();
            prop_assert_eq!(live, cache.live.len());
            prop_assert_eq!(live, cache.held.len());
            prop_assert!(cache.live.session_entries() <= live);
            let idle = cache.entries.iter().filter(|(_, e)| e.readers.is_empty() && e.owner.is_none());
            let idle: BTreeSet<_> = idle.map(|(key, e)| (e.version, key.clone())).collect();
            prop_assert_eq!(&idle, &cache.idle);
            prop_assert!(cache.entries.len() <= ROOM);
        }
        prop_assert_eq!(bytes(&replay(&fixture.log)), bytes(&fixture.cache));
    }

    #[test]
    fn arbitrary_bytes_never_panic_a_decoder(bytes_in in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(record) = CacheRecord::decode(&mut Reader::new(&bytes_in)) {
            let mut again = Vec::new();
            record.encode(&mut again);
            prop_assert_eq!(&again[..], &bytes_in[..again.len()]);
            let fits = CacheTable::default().apply(&record, GrantorTime(0), LOCAL_OWNER).is_ok();
            prop_assert_eq!(fits, matches!(record, CacheRecord::Read { .. } | CacheRecord::Began { .. }));
        }
        let mut reader = Reader::new(&bytes_in);
        if let Ok(cache) = CacheTable::decode(&mut reader) {
            prop_assert_eq!(&bytes(&cache)[..], &bytes_in[..reader.position()]);
        }
    }

    #[test]
    fn a_damaged_snapshot_is_refused_or_decodes_to_another_valid_one(index in any::<usize>(), bit in 0..8u8) {
        let mut fixture = CacheFixture::default();
        fixture.write("j");
        fixture.read("j", Some(A));
        fixture.read("k", Some(B));
        fixture.fill(Some(A));
        fixture.read("l", None);
        fixture.intend("l");
        let mut damaged = bytes(&fixture.cache);
        let index = index % damaged.len();
        damaged[index] ^= 1 << bit;
        let mut reader = Reader::new(&damaged);
        if let Ok(mut cache) = CacheTable::decode(&mut reader) {
            prop_assert_eq!(&bytes(&cache)[..], &damaged[..reader.position()]);
            cache.session_ended(A, GrantorTime(0));
            cache.restored(GrantorTime(0));
            prop_assert_eq!(cache.live.len(), 0);
        }
    }
}
