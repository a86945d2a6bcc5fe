//! What one turn and one request put on record has an end, and a wait without a listener has one too.

use leasehold_core::command::{Acquire, Answer, Command, Input, OpenSession, Request, Revoke, Terms, Which};
use leasehold_core::grantor::{Grantor, Opening, Output, Recovered};
use leasehold_core::ids::SessionId;
use leasehold_core::lease::{Access, Reason, Rung};
use leasehold_core::limits;
use leasehold_core::refusal::{Refusal, What};
use leasehold_core::time::{Instant, Now, Wall};
use leasehold_core::token::{Cluster, Incarnation};

const AT: Now = Now { instant: Instant(0), wall: Wall::after_era(1_000) };
const SESSION: SessionId = SessionId { slot: 0, reuse: 0 };

fn grantor() -> Grantor {
    let opening = Opening {
        cluster: Cluster(*b"cluster1"),
        incarnation: Incarnation(1),
        generation: 1,
        rung: Rung::Session,
        max_ttl: 600_000,
        restore: None,
    };
    let mut grantor = Recovered::empty(1).open(AT, &opening).expect("a new cluster opens");
    grantor.take_output(&mut Output::default());
    grantor.serve(AT);
    let open = OpenSession { holder: "app", ttl_ms: 600_000, secret: [1; 32].into(), waits_only: false };
    ask(&mut grantor, 0, Command::OpenSession(open));
    grantor
}

/// One step; the answer that it gives at once.
fn ask(grantor: &mut Grantor, tag: u64, command: Command<'_>) -> Answer {
    grantor.step(AT, &Input::Asked(Request::tagged(tag), command));
    let mut out = Output::default();
    grantor.take_output(&mut out);
    out.replies.pop().expect("an answer").answer
}

fn shared<'a>(holder: &'a str) -> Command<'a> {
    Command::Acquire(Acquire { access: Access::Shared, ..Acquire::exclusive("popular", holder, 600_000) })
}

fn waits<'a>(resource: &'a str, metadata: &'a [u8]) -> Command<'a> {
    let terms = Terms { wait_ms: 600_000, metadata, ..Terms::DEFAULT };
    Command::Acquire(Acquire { session: Some(SESSION), terms, ..Acquire::exclusive(resource, "", 600_000) })
}

#[test]
fn a_revocation_of_many_leases_has_room_for_fewer_words() {
    let mut grantor = grantor();
    let most = limits::STEP_BYTES / limits::REASON_BYTES;
    for reader in 0..most {
        grantor.step(AT, &Input::Asked(Request::tagged(0), shared(&format!("reader-{reader}"))));
        if reader % 4_096 == 0 {
            grantor.take_output(&mut Output::default());
        }
    }
    grantor.take_output(&mut Output::default());
    let revoke = |why| {
        let which = Which::Resource("popular");
        Command::Revoke(Revoke { which, reason: Reason::Operator, why, grace_ms: 0 })
    };
    let long = "w".repeat(limits::REASON_BYTES);
    let told = ask(&mut grantor, 1, revoke(&long));
    assert!(matches!(told, Answer::Refused(Refusal::Invalid { field: "why", .. })), "{told:?}");
    assert_eq!(grantor.status().held, most, "nothing has ended");
    grantor.step(AT, &Input::Asked(Request::tagged(2), revoke("too popular")));
    assert!(grantor.to_record() <= limits::STEP_BYTES);
    assert_eq!(grantor.status().held, 0);
}

#[test]
fn offers_of_one_tick_end_where_their_record_is_long_enough_and_go_on_in_the_next() {
    const WAITERS: usize = 2_000;
    let mut grantor = grantor();
    let names: Vec<String> = (0..WAITERS).map(|i| format!("wanted/{i}")).collect();
    let metadata = vec![7; limits::METADATA_BYTES];
    for (tag, name) in (1..).zip(&names) {
        let held = Command::Acquire(Acquire::exclusive(name, "first", 600_000));
        assert!(matches!(ask(&mut grantor, 0, held), Answer::Granted(_)));
        assert!(matches!(ask(&mut grantor, tag, waits(name, &metadata)), Answer::Waiting { .. }));
    }
    for held in grantor.held_by("first") {
        let which = Which::Id(held.lease);
        let revoke = Revoke { which, reason: Reason::Operator, why: "all at once", grace_ms: 0 };
        grantor.step(AT, &Input::Asked(Request::tagged(0), Command::Revoke(revoke)));
    }
    let (mut out, mut granted, mut turns) = (Output::default(), 0, 0);
    while granted < WAITERS {
        grantor.step(AT, &Input::Tick);
        grantor.take_output(&mut out);
        assert!(out.batch.len() < limits::OFFER_BYTES + 2 * limits::METADATA_BYTES, "{}", out.batch.len());
        granted += out.replies.iter().filter(|reply| matches!(reply.answer, Answer::Granted(_))).count();
        turns += 1;
        assert!(granted == WAITERS || grantor.next_deadline() <= Some(AT.instant), "the rest follows at once");
    }
    assert!(turns > 1);
}

#[test]
fn a_wait_whose_listener_has_gone_ends_and_no_other_does() {
    let mut grantor = grantor();
    let held = Command::Acquire(Acquire::exclusive("one", "first", 600_000));
    assert!(matches!(ask(&mut grantor, 1, held), Answer::Granted(_)));
    for tag in [7, 8] {
        assert!(matches!(ask(&mut grantor, tag, waits("one", &[])), Answer::Waiting { .. }));
    }
    grantor.step(AT, &Input::Asked(Request::tagged(9), Command::Withdraw { session: SESSION, tag: 7 }));
    let mut out = Output::default();
    grantor.take_output(&mut out);
    let told: Vec<_> = out.replies.iter().map(|reply| (reply.to, reply.answer.clone())).collect();
    assert_eq!(told, [(7, Answer::Refused(Refusal::Cancelled)), (9, Answer::Done)]);
    let again = ask(&mut grantor, 9, Command::Withdraw { session: SESSION, tag: 7 });
    assert_eq!(again, Answer::Refused(Refusal::NotFound(What::Wait)));
    assert_eq!(grantor.status().waiters, 1);
}
