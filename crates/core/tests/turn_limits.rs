//! Limits of the records and queries of one turn, and the end of waits whose caller has disconnected.

use leasehold_core::command::{
    Acquire, AcquireOptions, Answer, Command, Input, LeaseSelector, OpenSession, Request, Revoke,
};
use leasehold_core::grantor::{Grantor, Output, QueryBudget, RecoveredGrantor, TenureOptions};
use leasehold_core::ids::SessionId;
use leasehold_core::lease::{Access, EndReason, Validity};
use leasehold_core::limits;
use leasehold_core::refusal::{Refusal, RefusalSubject};
use leasehold_core::time::{Instant, Now, WallClock};
use leasehold_core::token::{Cluster, Incarnation};

const AT: Now = Now { instant: Instant(0), wall: WallClock::after_era(1_000) };
const SESSION: SessionId = SessionId { slot: 0, reuse: 0 };

fn grantor() -> Grantor {
    let opening = TenureOptions {
        cluster: Cluster(*b"cluster1"),
        incarnation: Incarnation(1),
        generation: 1,
        validity: Validity::Session,
        max_ttl: 600_000,
        restore: None,
    };
    let mut grantor = RecoveredGrantor::empty(1).open(AT, &opening).expect("a new cluster opens");
    grantor.take_output(&mut Output::default());
    grantor.serve(AT);
    let open = OpenSession { holder: "app", ttl_ms: 600_000, secret: [1; 32].into(), waits_only: false };
    step(&mut grantor, 0, Command::OpenSession(open));
    grantor
}

/// Runs one step and returns its immediate answer.
fn step(grantor: &mut Grantor, tag: u64, command: Command<'_>) -> Answer {
    grantor.step(AT, &Input::Request(Request::tagged(tag), command));
    let mut out = Output::default();
    grantor.take_output(&mut out);
    out.replies.pop().expect("an answer").answer
}

fn shared<'a>(holder: &'a str) -> Command<'a> {
    Command::Acquire(Acquire { access: Access::Shared, ..Acquire::exclusive("popular", holder, 600_000) })
}

fn waits<'a>(resource: &'a str, metadata: &'a [u8]) -> Command<'a> {
    let options = AcquireOptions { wait_ms: 600_000, metadata, ..AcquireOptions::DEFAULT };
    Command::Acquire(Acquire { session: Some(SESSION), options, ..Acquire::exclusive(resource, "", 600_000) })
}

#[test]
fn the_comment_of_a_revocation_is_limited_by_the_number_of_leases() {
    let mut grantor = grantor();
    let limit = limits::STEP_BYTES / limits::COMMENT_BYTES;
    for reader in 0..limit {
        grantor.step(AT, &Input::Request(Request::tagged(0), shared(&format!("reader-{reader}"))));
        if reader % 4_096 == 0 {
            grantor.take_output(&mut Output::default());
        }
    }
    grantor.take_output(&mut Output::default());
    let revoke = |comment| {
        let selector = LeaseSelector::Resource("popular");
        Command::Revoke(Revoke { selector, reason: EndReason::Operator, comment, grace_ms: 0 })
    };
    let long = "w".repeat(limits::COMMENT_BYTES);
    let answer = step(&mut grantor, 1, revoke(&long));
    assert!(matches!(answer, Answer::Refused(Refusal::Invalid { field: "comment", .. })), "{answer:?}");
    assert_eq!(grantor.status().held, limit, "nothing has ended");
    grantor.step(AT, &Input::Request(Request::tagged(2), revoke("too popular")));
    assert!(grantor.pending_bytes() <= limits::STEP_BYTES);
    assert_eq!(grantor.status().held, 0);
}

#[test]
fn grants_of_one_tick_stop_at_the_record_limit_and_continue_in_the_next_tick() {
    const WAITERS: usize = 2_000;
    let mut grantor = grantor();
    let names: Vec<String> = (0..WAITERS).map(|i| format!("wanted/{i}")).collect();
    let metadata = vec![7; limits::METADATA_BYTES];
    for (tag, name) in (1..).zip(&names) {
        let held = Command::Acquire(Acquire::exclusive(name, "first", 600_000));
        assert!(matches!(step(&mut grantor, 0, held), Answer::Granted(_)));
        assert!(matches!(step(&mut grantor, tag, waits(name, &metadata)), Answer::Waiting { .. }));
    }
    for held in grantor.held_by("first") {
        let selector = LeaseSelector::Id(held.lease);
        let revoke = Revoke { selector, reason: EndReason::Operator, comment: "all at once", grace_ms: 0 };
        grantor.step(AT, &Input::Request(Request::tagged(0), Command::Revoke(revoke)));
    }
    let (mut out, mut granted, mut turns) = (Output::default(), 0, 0);
    while granted < WAITERS {
        grantor.step(AT, &Input::Tick);
        grantor.take_output(&mut out);
        assert!(out.batch.len() < limits::OFFER_BYTES + 2 * limits::METADATA_BYTES, "{}", out.batch.len());
        granted += out.replies.iter().filter(|reply| matches!(reply.answer, Answer::Granted(_))).count();
        turns += 1;
        assert!(granted == WAITERS || grantor.next_deadline() <= Some(AT.instant), "the rest follows immediately");
    }
    assert!(turns > 1);
}

#[test]
fn only_the_wait_of_a_disconnected_caller_ends() {
    let mut grantor = grantor();
    let held = Command::Acquire(Acquire::exclusive("one", "first", 600_000));
    assert!(matches!(step(&mut grantor, 1, held), Answer::Granted(_)));
    for tag in [7, 8] {
        assert!(matches!(step(&mut grantor, tag, waits("one", &[])), Answer::Waiting { .. }));
    }
    grantor.step(AT, &Input::Request(Request::tagged(9), Command::Withdraw { session: SESSION, tag: 7 }));
    let mut out = Output::default();
    grantor.take_output(&mut out);
    let answer: Vec<_> = out.replies.iter().map(|reply| (reply.tag, reply.answer.clone())).collect();
    assert_eq!(answer, [(7, Answer::Refused(Refusal::Cancelled)), (9, Answer::Done)]);
    let again = step(&mut grantor, 9, Command::Withdraw { session: SESSION, tag: 7 });
    assert_eq!(again, Answer::Refused(Refusal::NotFound(RefusalSubject::Wait)));
    assert_eq!(grantor.status().waiters, 1);
}

/// One holder with `readers` leases of one resource and `others` leases of others.
fn busy_holder(readers: usize, others: usize) -> Grantor {
    let mut grantor = grantor();
    for _ in 0..readers {
        grantor.step(AT, &Input::Request(Request::tagged(0), shared("worker")));
    }
    for other in 0..others {
        let name = format!("jobs/{other}");
        let acquire = Acquire::exclusive(&name, "worker", 600_000);
        grantor.step(AT, &Input::Request(Request::tagged(0), Command::Acquire(acquire)));
        if other % 4_096 == 0 {
            grantor.take_output(&mut Output::default());
        }
    }
    grantor.take_output(&mut Output::default());
    assert_eq!(grantor.active_count(), readers + others);
    grantor
}

#[test]
fn a_query_inspects_each_lease_of_a_resource_once_and_builds_only_the_views_it_returns() {
    let grantor = busy_holder(5_000, 5_000);
    let all = grantor.show("popular").expect("it is held");
    assert_eq!((all.held, all.leases.len()), (5_000, 5_000));
    let mut budget = QueryBudget::default();
    let first = grantor.show_first("popular", 100, &mut budget).expect("it is held");
    assert_eq!((first.held, &first.leases[..]), (5_000, &all.leases[..100]));
    assert_eq!(budget.used(), 5_000 + 100 * limits::VIEW_STEPS);
    let mut budget = QueryBudget::new(50);
    let some = grantor.show_first("popular", 100, &mut budget).expect("it is held");
    assert_eq!((some.held, some.leases.len()), (5_000, 50), "no more than the budget");
}

#[test]
fn the_pages_of_a_list_stay_within_the_budget_and_contain_every_resource_once() {
    let grantor = busy_holder(2_000, 3_000);
    let most = 20_000;
    let (mut names, mut from, mut pages) = (Vec::new(), 0, 0);
    loop {
        let mut budget = QueryBudget::new(most);
        let (page, next) = grantor.list("", from, 1_000, 500, &mut budget);
        assert!(budget.used() <= most);
        let views: usize = page.iter().map(|view| view.leases.len()).sum();
        assert!(views * limits::VIEW_STEPS <= most, "{views} views");
        names.extend(page.into_iter().map(|view| (view.resource, view.held)));
        pages += 1;
        match next {
            Some(next) => from = next,
            None => break,
        }
    }
    assert_eq!((names.len(), pages), (3_001, 7));
    assert!(names.contains(&("popular".to_owned(), 2_000)));
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 3_001);
    let (nothing, next) = grantor.list("elsewhere", 0, 10, 10, &mut QueryBudget::new(100 * limits::SLOT_STEPS));
    assert_eq!((nothing, next), (Vec::new(), Some(100)), "slots that do not match count too");
}

#[test]
fn a_page_of_a_holder_is_cut_before_views_are_built_and_is_refused_beyond_the_budget() {
    let grantor = busy_holder(0, 5_000);
    let all = grantor.held_by("worker");
    assert_eq!(all.len(), 5_000);
    let mut budget = QueryBudget::default();
    let page = grantor.held_page("worker", all[1_999].number.get(), 10, &mut budget);
    assert_eq!(page.as_deref(), Some(&all[2_000..2_010]));
    assert_eq!(budget.used(), 1 + 5_000 + 10 * limits::VIEW_STEPS);
    assert_eq!(grantor.held_page("worker", 0, 10, &mut QueryBudget::new(5_000)), None);
    assert_eq!(grantor.held_page("another", 0, 10, &mut QueryBudget::new(0)), Some(Vec::new()));
}
