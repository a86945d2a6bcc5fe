//! The promises about cached keys, one by one, and then all of them under random commands.

use proptest::prelude::*;

use super::*;
use crate::codec::Reader;

const A: SessionId = SessionId { slot: 1, reuse: 0 };
const B: SessionId = SessionId { slot: 2, reuse: 0 };
const W: SessionId = SessionId { slot: 3, reuse: 0 };

#[derive(Clone, Debug)]
enum Logged {
    Fact(Vec<u8>),
    SessionEnded(SessionId),
}

/// A grantor with nothing but cached keys.
#[derive(Clone, Default)]
struct Desk {
    cache: Cache,
    now: u64,
    granted: u64,
    stalled: u64,
    notices: Vec<Notice>,
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
            self.cache.apply(fact, Millis(self.now)).expect("what was decided fits");
            self.log.push((Logged::Fact(bytes), Millis(self.now)));
        }
    }

    fn ask(&mut self, command: Command<'_>) -> Result<Answer, Refusal> {
        let decision = self.moment(|at| self.cache.decide(at, &command));
        self.record(&decision.facts);
        self.notices = decision.notices;
        decision.answer
    }

    fn tick(&mut self, ms: u64) {
        self.now += ms;
        let due = self.moment(|at| self.cache.due(at, usize::MAX));
        self.record(&due);
    }

    fn end_session(&mut self, session: SessionId) {
        self.cache.session_ended(session, Millis(self.now));
        self.log.push((Logged::SessionEnded(session), Millis(self.now)));
    }

    fn try_read(&mut self, key: &str, session: Option<SessionId>) -> Result<Answer, Refusal> {
        self.ask(Command::Read { key, session, reader: "r", ttl_ms: 1_000 })
    }

    /// Version and read lease.
    fn read(&mut self, key: &str, session: Option<SessionId>) -> (u64, Number) {
        match self.try_read(key, session) {
            Ok(Answer::Reading { version, lease, remaining_ms: 1_000 }) => (version, lease),
            other => panic!("{other:?}"),
        }
    }

    fn renew(&mut self, lease: Number) -> Result<Answer, Refusal> {
        self.ask(Command::RenewRead { key: "k", lease })
    }

    fn invalidated(&mut self, lease: Number) -> Result<Answer, Refusal> {
        self.ask(Command::Invalidated { key: "k", lease })
    }

    /// The intent and for how many readers it waits.
    fn intend(&mut self, key: &str) -> (Number, u32) {
        match self.ask(Command::Intend { key, session: Some(W), writer: "w", ttl_ms: 5_000 }) {
            Ok(Answer::Intended { intent, waiting_for, .. }) => (intent, waiting_for),
            other => panic!("{other:?}"),
        }
    }

    fn commit(&mut self, key: &str, intent: Number) -> Result<Answer, Refusal> {
        self.ask(Command::Commit { key, intent })
    }

    fn write(&mut self, key: &str) -> u64 {
        let (intent, _) = self.intend(key);
        match self.commit(key, intent) {
            Ok(Answer::Committed { version }) => version,
            other => panic!("{other:?}"),
        }
    }

    fn get_or_fill(&mut self, session: Option<SessionId>, missing: Option<u64>) -> Result<Answer, Refusal> {
        self.ask(Command::GetOrFill { key: "k", session, reader: "r", ttl_ms: 1_000, missing })
    }

    fn fill(&mut self, session: Option<SessionId>) -> Number {
        match self.get_or_fill(session, None) {
            Ok(Answer::Fill { token, remaining_ms: 1_000 }) => token,
            other => panic!("{other:?}"),
        }
    }

    fn filled(&mut self, token: Number) -> Result<Answer, Refusal> {
        self.ask(Command::Filled { key: "k", token })
    }
}

fn bytes(cache: &Cache) -> Vec<u8> {
    let mut out = Vec::new();
    cache.encode(&mut out);
    out
}

fn replay(log: &[(Logged, Millis)]) -> Cache {
    let mut cache = Cache::default();
    for (logged, at) in log {
        match logged {
            Logged::Fact(bytes) => {
                let fact = Fact::decode(&mut Reader::new(bytes)).expect("recorded");
                cache.apply(&fact, *at).expect("replay fits");
            }
            Logged::SessionEnded(session) => cache.session_ended(*session, *at),
        }
    }
    cache
}

#[test]
fn r1_no_read_lease_is_granted_or_renewed_while_a_write_is_meant() {
    let mut desk = Desk::default();
    let (version, old) = desk.read("k", Some(A));
    assert_eq!(version, 0);
    let (intent, waiting_for) = desk.intend("k");
    assert_eq!(waiting_for, 1);
    assert_eq!(desk.notices, [Notice::Invalidate { session: A, key: "k".into(), lease: old }]);
    let refused = Err(Refusal::Conflict(What::Intent));
    assert_eq!(desk.try_read("k", Some(B)), refused);
    assert_eq!(desk.renew(old), refused);
    assert_eq!(desk.get_or_fill(Some(B), None), refused);
    assert_eq!(desk.commit("k", intent), Err(Refusal::Busy { position: 1 }));
    assert_eq!(desk.invalidated(old), Ok(Answer::Dropped));
    assert_eq!(desk.notices, [Notice::Clear { session: W, key: "k".into(), intent }]);
    assert_eq!(desk.try_read("k", Some(B)), refused, "nobody reads between the last drop and the commit");
    assert_eq!(desk.commit("k", intent), Ok(Answer::Committed { version: intent.get() }));
    assert_eq!(desk.read("k", Some(B)).0, intent.get());
    assert_eq!(desk.commit("k", intent), Err(Refusal::Lost(Reason::Released)));
}

#[test]
fn r1_a_silent_reader_is_waited_out_and_not_a_moment_less() {
    let mut desk = Desk::default();
    desk.read("k", None);
    desk.now = 400;
    let (_, second) = desk.read("k", Some(A));
    let command = Command::Intend { key: "k", session: None, writer: "w", ttl_ms: 5_000 };
    let Ok(Answer::Intended { intent, waiting_for: 2, until }) = desk.ask(command) else { panic!("refused") };
    assert_eq!(until, Millis(1_400));
    assert_eq!(desk.notices, [Notice::Invalidate { session: A, key: "k".into(), lease: second }]);
    desk.now = 1_399;
    assert_eq!(desk.moment(|at| desk.cache.waiting_for(at, "k", intent)), Ok(1));
    assert_eq!(desk.commit("k", intent), Err(Refusal::Busy { position: 1 }));
    desk.now = 1_400;
    assert_eq!(desk.moment(|at| desk.cache.waiting_for(at, "k", intent)), Ok(0));
    assert_eq!(desk.commit("k", intent), Ok(Answer::Committed { version: intent.get() }));
    assert_eq!(desk.cache.live.len(), 0, "the commit is the readers' end on record");
    assert_eq!(desk.renew(second), Err(Refusal::NotCurrent(NotCurrent::Unknown)));
}

#[test]
fn r1_a_reader_whom_the_grantors_stall_kept_waiting_is_still_waited_for() {
    let mut desk = Desk::default();
    desk.read("k", None);
    let (intent, _) = desk.intend("k");
    desk.stalled = 300;
    desk.now = 1_299;
    assert_eq!(desk.commit("k", intent), Err(Refusal::Busy { position: 1 }));
    desk.now = 1_300;
    assert_eq!(desk.commit("k", intent), Ok(Answer::Committed { version: intent.get() }));
}

#[test]
fn r2_read_leases_and_their_renewals_survive_a_failover() {
    let mut desk = Desk::default();
    let (_, lease) = desk.read("k", Some(A));
    desk.now = 900;
    assert_eq!(desk.renew(lease), Ok(Answer::Reading { version: 0, lease, remaining_ms: 1_000 }));
    desk.cache = replay(&desk.log);
    let (intent, waiting_for) = desk.intend("k");
    assert_eq!(waiting_for, 1);
    desk.tick(999);
    assert_eq!(desk.commit("k", intent), Err(Refusal::Busy { position: 1 }));
    desk.tick(1);
    assert_eq!(desk.commit("k", intent), Ok(Answer::Committed { version: intent.get() }));
}

#[test]
fn a_read_lease_that_ran_out_is_lost_and_the_end_is_on_record() {
    let mut desk = Desk::default();
    let (_, lease) = desk.read("k", None);
    desk.now = 1_000;
    assert_eq!(desk.renew(lease), Err(Refusal::Lost(Reason::Ttl)));
    assert_eq!(replay(&desk.log).view("k").readers, 0);
    assert_eq!(desk.renew(lease), Err(Refusal::NotCurrent(NotCurrent::Unknown)));
    assert!(desk.cache.entries.is_empty(), "a key that says nothing vanishes");
}

#[test]
fn a_dead_writer_does_not_block_readers_for_ever_and_its_write_may_have_happened() {
    let mut desk = Desk::default();
    let before = desk.write("k");
    let (intent, _) = desk.intend("k");
    desk.now = 4_999;
    assert_eq!(desk.try_read("k", None), Err(Refusal::Conflict(What::Intent)));
    desk.now = 5_000;
    let (version, _) = desk.read("k", None);
    assert!(version > before, "a copy from before the intent is not believed");
    assert_eq!(version, intent.get());
    assert_eq!(desk.commit("k", intent), Err(Refusal::Lost(Reason::Ttl)));
    assert_eq!(desk.cache.view("k").version, version);
}

#[test]
fn a_commit_after_the_deadline_is_refused_even_before_the_tick() {
    let mut desk = Desk::default();
    let (intent, _) = desk.intend("k");
    desk.now = 5_000;
    assert_eq!(desk.commit("k", intent), Err(Refusal::Lost(Reason::Ttl)));
    assert_eq!(replay(&desk.log).view("k").sole, None, "the end is on record");
}

#[test]
fn an_aborted_write_leaves_the_version_and_frees_the_key() {
    let mut desk = Desk::default();
    let version = desk.write("k");
    let (intent, _) = desk.intend("k");
    let second = Command::Intend { key: "k", session: None, writer: "x", ttl_ms: 1_000 };
    assert_eq!(desk.ask(second), Err(Refusal::Busy { position: 1 }));
    assert_eq!(desk.ask(Command::Abort { key: "k", number: intent }), Ok(Answer::Aborted));
    assert_eq!(desk.read("k", None).0, version);
    assert_eq!(desk.commit("k", intent), Err(Refusal::Lost(Reason::Released)));
    let (newer, _) = desk.intend("k");
    let stale = Refusal::Stale { presented: intent.get(), mark: newer.get() };
    assert_eq!(desk.commit("k", intent), Err(stale));
}

#[test]
fn a_stampede_gets_exactly_one_filler() {
    let mut desk = Desk::default();
    let token = desk.fill(Some(A));
    for _ in 0..5 {
        assert_eq!(desk.get_or_fill(Some(B), None), Ok(Answer::Wait { remaining_ms: 1_000 }));
    }
    assert_eq!(desk.filled(token), Ok(Answer::Filled { version: token.get() }));
    let Ok(Answer::Reading { version, .. }) = desk.get_or_fill(Some(B), None) else { panic!("no hit") };
    assert_eq!(version, token.get());
    assert_eq!(desk.filled(token), Err(Refusal::Lost(Reason::Released)));
}

#[test]
fn a_late_filler_is_refused_and_the_next_one_takes_over() {
    let mut desk = Desk::default();
    let late = desk.fill(None);
    desk.now = 1_000;
    let next = desk.fill(None);
    assert_eq!(desk.filled(late), Err(Refusal::Stale { presented: late.get(), mark: next.get() }));
    desk.now = 2_000;
    assert_eq!(desk.filled(next), Err(Refusal::Lost(Reason::Ttl)));
    desk.tick(0);
    assert_eq!(desk.filled(next), Err(Refusal::Lost(Reason::Ttl)));
    assert!(!desk.cache.view("k").filled);
}

#[test]
fn a_write_takes_the_key_from_a_filler_whose_copy_would_be_old() {
    let mut desk = Desk::default();
    let filler = desk.fill(Some(A));
    let version = desk.write("k");
    assert_eq!(desk.filled(filler), Err(Refusal::Stale { presented: filler.get(), mark: version }));
    let again = desk.fill(Some(B));
    assert_eq!(desk.commit("k", again), Err(Refusal::NotCurrent(NotCurrent::Unknown)), "a filler is no writer");
    assert_eq!(desk.filled(again), Ok(Answer::Filled { version: again.get() }));
}

#[test]
fn a_copy_that_got_lost_is_filled_again_by_one() {
    let mut desk = Desk::default();
    let token = desk.fill(None);
    desk.filled(token).expect("in time");
    let Ok(Answer::Fill { token: again, .. }) = desk.get_or_fill(None, Some(token.get())) else { panic!("no fill") };
    assert!(matches!(desk.get_or_fill(None, Some(token.get())), Ok(Answer::Wait { .. })));
    desk.filled(again).expect("in time");
    assert!(
        matches!(desk.get_or_fill(None, Some(token.get())), Ok(Answer::Reading { .. })),
        "an older loss is repaired"
    );
}

#[test]
fn s1_a_sessions_end_ends_its_reads_intents_and_fills_in_one_step() {
    let mut desk = Desk::default();
    desk.read("k", Some(A));
    desk.read("l", Some(A));
    let (_, other) = desk.read("k", Some(B));
    let (intent, waiting_for) = desk.intend("k");
    assert_eq!(waiting_for, 2);
    desk.end_session(A);
    assert_eq!(desk.commit("k", intent), Err(Refusal::Busy { position: 1 }));
    desk.end_session(W);
    assert_eq!(desk.commit("k", intent), Err(Refusal::Lost(Reason::Session)));
    assert_eq!(desk.cache.live.len(), 1);
    assert_eq!(desk.renew(other), Ok(Answer::Reading { version: intent.get(), lease: other, remaining_ms: 1_000 }));
    let filler = desk.fill(Some(A));
    desk.end_session(A);
    assert_eq!(desk.filled(filler), Err(Refusal::Lost(Reason::Session)));
}

#[test]
fn after_a_restore_nothing_of_the_backup_is_worth_anything() {
    let mut desk = Desk::default();
    let (_, lease) = desk.read("l", None);
    let (intent, _) = desk.intend("k");
    desk.cache.restored(Millis(desk.now));
    assert_eq!(desk.commit("k", intent), Err(Refusal::Lost(Reason::Restored)));
    let renew = Command::RenewRead { key: "l", lease };
    assert_eq!(desk.ask(renew), Err(Refusal::NotCurrent(NotCurrent::Unknown)));
}

#[test]
fn a_version_never_falls_although_keys_are_forgotten_for_want_of_room() {
    let mut desk = Desk { cache: Cache::with_room(2), ..Desk::default() };
    let first = desk.write("a");
    let second = desk.write("b");
    let (version, lease) = desk.read("c", Some(A));
    assert_eq!(version, first, "a key that is new here starts from what was forgotten");
    assert_eq!(desk.cache.view("a").version, first);
    assert_eq!(desk.cache.view("b").version, second);
    desk.read("d", Some(A));
    let full = Refusal::Exhausted { limit: Limit::CacheKeys, max: 2, got: 3 };
    assert_eq!(desk.try_read("a", None), Err(full), "what is in use is not forgotten");
    desk.end_session(A);
    assert!(desk.read("a", None).0 >= first);
    assert!(desk.read("b", None).0 >= second);
    let renew = Command::RenewRead { key: "c", lease };
    assert_eq!(desk.ask(renew), Err(Refusal::NotCurrent(NotCurrent::Unknown)));
}

#[test]
fn a_ttl_out_of_bounds_is_refused() {
    let mut desk = Desk::default();
    for ttl_ms in [0, 99, 60_001, u64::MAX] {
        let (key, session) = ("k", None);
        for command in [
            Command::Read { key, session, reader: "r", ttl_ms },
            Command::Intend { key, session, writer: "w", ttl_ms },
            Command::GetOrFill { key, session, reader: "r", ttl_ms, missing: None },
        ] {
            let answer = desk.ask(command);
            assert!(matches!(answer, Err(Refusal::Invalid { field: "ttl", .. })), "{command:?}: {answer:?}");
        }
    }
    assert!(desk.log.is_empty());
}

#[derive(Clone, Debug)]
enum Act {
    Ask { verb: u8, key: usize, session: u8, ttl_ms: u64, number: u64 },
    Wait { ms: u64, tick: bool, stalled: u64 },
    EndSession { session: u8 },
    Reload,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        10 => (0..8u8, 0..4usize, 0..3u8, 100..800u64, any::<u64>())
            .prop_map(|(verb, key, session, ttl_ms, number)| Act::Ask { verb, key, session, ttl_ms, number }),
        3 => (0..400u64, any::<bool>(), prop_oneof![Just(0), 0..300u64])
            .prop_map(|(ms, tick, stalled)| Act::Wait { ms, tick, stalled }),
        1 => (1..3u8).prop_map(|session| Act::EndSession { session }),
        1 => Just(Act::Reload),
    ];
    proptest::collection::vec(act, 1..100)
}

const KEYS: [&str; 4] = ["a", "b", "c", "d"];
const ROOM: usize = 3;

fn session_of(n: u8) -> Option<SessionId> {
    (n > 0).then_some(SessionId { slot: u32::from(n), reuse: 0 })
}

proptest! {
    #[test]
    fn whatever_happens_versions_rise_and_replay_gives_the_same_bytes(acts in acts()) {
        let mut desk = Desk { cache: Cache::with_room(ROOM), ..Desk::default() };
        let mut told = [0; KEYS.len()];
        for act in acts {
            match act {
                Act::Ask { verb, key: place, session, ttl_ms, number } => {
                    let key = KEYS[place];
                    let session = session_of(session);
                    let recent = Number::new(desk.granted.saturating_sub(number % 8)).unwrap_or(Number::FIRST);
                    let live = desk.moment(|at| desk.cache.readers(at, key).count());
                    let intent = desk.moment(|at| {
                        desk.cache.see(at, key).sole.is_some_and(|sole| sole.kind == Kind::Intent)
                    });
                    let answer = desk.ask(match verb {
                        0 => Command::Read { key, session, reader: "r", ttl_ms },
                        1 => Command::RenewRead { key, lease: recent },
                        2 => Command::Invalidated { key, lease: recent },
                        3 => Command::Intend { key, session, writer: "w", ttl_ms },
                        4 => Command::Commit { key, intent: recent },
                        5 => Command::Abort { key, number: recent },
                        6 => Command::GetOrFill { key, session, reader: "r", ttl_ms, missing: None },
                        _ => Command::Filled { key, token: recent },
                    });
                    match answer {
                        Ok(Answer::Reading { version, .. }) => {
                            prop_assert!(!intent, "R1");
                            prop_assert!(version >= told[place]);
                            prop_assert_eq!(version, desk.cache.view(key).version);
                            told[place] = version;
                        }
                        Ok(Answer::Committed { version }) => {
                            prop_assert!(intent && live == 0, "R1");
                            prop_assert!(version > told[place]);
                            told[place] = version;
                        }
                        Ok(Answer::Filled { version }) => {
                            prop_assert!(version > told[place]);
                            told[place] = version;
                        }
                        Ok(Answer::Fill { .. }) => prop_assert!(!intent),
                        _ => {}
                    }
                }
                Act::Wait { ms, tick, stalled } => {
                    desk.stalled = stalled;
                    if tick { desk.tick(ms) } else { desk.now += ms }
                }
                Act::EndSession { session } => desk.end_session(session_of(session).expect("a session")),
                Act::Reload => {
                    let bytes = bytes(&desk.cache);
                    let mut reader = Reader::new(&bytes);
                    desk.cache = Cache::decode(&mut reader).expect("its own bytes");
                    desk.cache.room = ROOM;
                    reader.finish().expect("nothing behind them");
                }
            }
            let cache = &desk.cache;
            let live = cache.entries.values().map(|e| e.readers.len() + usize::from(e.sole.is_some())).sum::<usize>();
            prop_assert_eq!(live, cache.live.len());
            prop_assert_eq!(live, cache.held.len());
            prop_assert!(cache.live.carried() <= live);
            let idle = cache.entries.iter().filter(|(_, e)| e.readers.is_empty() && e.sole.is_none());
            let idle: BTreeSet<_> = idle.map(|(key, e)| (e.version, key.clone())).collect();
            prop_assert_eq!(&idle, &cache.idle);
            prop_assert!(cache.entries.len() <= ROOM);
        }
        prop_assert_eq!(bytes(&replay(&desk.log)), bytes(&desk.cache));
    }

    #[test]
    fn arbitrary_bytes_never_panic_a_decoder(junk in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(fact) = Fact::decode(&mut Reader::new(&junk)) {
            let mut again = Vec::new();
            fact.encode(&mut again);
            prop_assert_eq!(&again[..], &junk[..again.len()]);
            let fits = Cache::default().apply(&fact, Millis(0)).is_ok();
            prop_assert_eq!(fits, matches!(fact, Fact::Read { .. } | Fact::Began { .. }));
        }
        let mut reader = Reader::new(&junk);
        if let Ok(cache) = Cache::decode(&mut reader) {
            prop_assert_eq!(&bytes(&cache)[..], &junk[..reader.position()]);
        }
    }

    #[test]
    fn a_damaged_snapshot_is_refused_or_is_another_whole_one(place in any::<usize>(), bit in 0..8u8) {
        let mut desk = Desk::default();
        desk.write("j");
        desk.read("j", Some(A));
        desk.read("k", Some(B));
        desk.fill(Some(A));
        desk.read("l", None);
        desk.intend("l");
        let mut damaged = bytes(&desk.cache);
        let place = place % damaged.len();
        damaged[place] ^= 1 << bit;
        let mut reader = Reader::new(&damaged);
        if let Ok(mut cache) = Cache::decode(&mut reader) {
            prop_assert_eq!(&bytes(&cache)[..], &damaged[..reader.position()]);
            cache.session_ended(A, Millis(0));
            cache.restored(Millis(0));
            prop_assert_eq!(cache.live.len(), 0);
        }
    }
}
