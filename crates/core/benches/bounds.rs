//! Bounds of a step: the longest single step at the largest supported sizes, and the memory per lease.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a bench reads the clock; the core does not")]
#![allow(clippy::disallowed_macros, reason = "a bench prints its results")]

mod bench_grantor;

use std::time::{Duration, Instant};

use bench_grantor::{BenchGrantor, Lease, MILLION, TTL, TURN, granted, names};
use leasehold_core::access::Caller;
use leasehold_core::command::{Command, LeaseRef, OpenSession, SessionEvent};
use leasehold_core::grantor::{Grantor, LeaseFilter, LeaseSort, Query, QueryAnswer, QueryBudget, QueryOutcome};
use leasehold_core::ids::SessionId;
use leasehold_core::lease::Access;
use leasehold_core::limits;

fn main() {
    // `cargo test` only checks that a bench binary starts.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    println!("{:<52} {:>9} {:>12} {:>12}", "", "steps", "total", "longest");
    a_million_leases();
    many_leases_end_with_their_sessions();
    many_readers_are_granted();
    a_large_deadlock_is_found();
    queries_of_a_full_session();
}

/// Durations of the steps of one case.
#[derive(Default)]
struct Steps {
    count: u32,
    total: Duration,
    longest: Duration,
}

impl Steps {
    fn time<R>(&mut self, step: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = step();
        let took = start.elapsed();
        self.count += 1;
        self.total += took;
        self.longest = self.longest.max(took);
        result
    }

    /// Runs turns until no work is left.
    fn finish_work(&mut self, bench: &mut BenchGrantor) {
        while bench.has_more_to_do() {
            self.time(|| bench.tick());
            bench.take();
        }
    }

    fn print(&self, case: &str) {
        let ms = |took: Duration| format!("{:.3} ms", took.as_secs_f64() * 1e3);
        println!("{case:<52} {:>9} {:>12} {:>12}", self.count, ms(self.total), ms(self.longest));
    }
}

fn a_million_leases() {
    let before = resident_bytes();
    let (mut bench, _) = BenchGrantor::holding(MILLION);
    println!("{:<52} {:>9.1} bytes", "resident memory of one lease among a million", (resident_bytes() - before) / 1e6);
    listings_of_a_million_leases(&bench.grantor);
    bench.advance_to_deadline(TTL);
    let mut steps = Steps::default();
    while bench.grantor.active_count() > 0 {
        steps.time(|| bench.tick());
        bench.take();
    }
    steps.print("a million leases expire at once");
}

/// Listings of held leases. Each step runs between two turns; a bound is 5 ms.
fn listings_of_a_million_leases(grantor: &Grantor) {
    let filters = [
        ("a prefix", LeaseFilter { prefix: "elsewhere".into(), ..LeaseFilter::default() }),
        ("a holder", LeaseFilter { holder: Some("no one".into()), ..LeaseFilter::default() }),
        ("stuck", LeaseFilter { stuck: Some(true), ..LeaseFilter::default() }),
    ];
    for (case, filter) in filters {
        let (mut steps, mut next) = (Steps::default(), Some(0));
        while let Some(from) = next {
            let query = Query::Leases { filter: filter.clone(), from, limit: PAGE };
            let answer = steps.time(|| grantor.query(&Caller::LOCAL, &query));
            let QueryOutcome::Answered(QueryAnswer::ListedLeases(found, more)) = answer else { panic!("a page") };
            assert!(found.is_empty());
            next = more;
        }
        steps.print(&format!("a million leases are filtered by {case}: none matches"));
    }
    let (mut steps, mut next) = (Steps::default(), Some(0));
    for _ in 0..100 {
        let Some(from) = next else { break };
        let query = Query::Leases { filter: LeaseFilter::default(), from, limit: PAGE };
        let answer = steps.time(|| grantor.query(&Caller::LOCAL, &query));
        let QueryOutcome::Answered(QueryAnswer::ListedLeases(_, more)) = answer else { panic!("a page") };
        next = more;
    }
    steps.print("pages of 1,000 leases of a million");
    for sort in LeaseSort::ALL {
        let (mut steps, mut next, mut keys) = (Steps::default(), Some(0), Vec::new());
        while let Some(from) = next {
            let query = Query::LeaseKeys { filter: LeaseFilter::default(), sort, from };
            let answer = steps.time(|| grantor.query(&Caller::LOCAL, &query));
            let QueryOutcome::Answered(QueryAnswer::LeaseKeys(found, more)) = answer else { panic!("keys") };
            keys.extend(found);
            next = more;
        }
        assert_eq!(keys.len(), MILLION as usize);
        steps.print(&format!("a million leases are collected by {sort}"));
        let mut steps = Steps::default();
        steps.time(|| keys.sort_unstable());
        steps.print("and sorted, outside of the turns");
    }
}

/// A session with the maximum number of leases is closed; ten sessions expire at once.
fn many_leases_end_with_their_sessions() {
    let mut bench = BenchGrantor::new();
    let session = bench.open_session("one");
    acquire_in_session(&mut bench, session, 0..limits::LEASES_PER_SESSION);
    let mut steps = Steps::default();
    steps.time(|| bench.request(0, Command::CloseSession { session }));
    steps.finish_work(&mut bench);
    steps.print(&format!("a session with {} leases is closed", limits::LEASES_PER_SESSION));

    let mut bench = BenchGrantor::new();
    for n in 0..10 {
        let open = OpenSession { holder: "one of ten", ttl_ms: TTL, secret: [7; 32].into(), waits_only: false };
        let session = bench.open_session_with(open);
        acquire_in_session(&mut bench, session, n * 100_000..(n + 1) * 100_000);
    }
    bench.advance_to_deadline(TTL);
    let mut steps = Steps::default();
    while bench.grantor.active_count() > 0 {
        steps.time(|| bench.tick());
        bench.take();
    }
    steps.print("ten sessions with 100,000 leases each expire at once");
}

fn acquire_in_session(bench: &mut BenchGrantor, session: SessionId, numbers: std::ops::Range<u32>) {
    for names in names(numbers).chunks(TURN) {
        names.iter().for_each(|name| bench.acquire_in(0, session, "", name, Access::Exclusive));
        bench.turn();
    }
}

/// A million readers wait behind ten writers, which release in one turn.
fn many_readers_are_granted() {
    let mut bench = BenchGrantor::new();
    let sessions: Vec<SessionId> = (0..1_000).map(|n| bench.open_session(&format!("session-{n}"))).collect();
    let resources = names(0..10);
    let mut writers: Vec<Lease> = Vec::new();
    for resource in &resources {
        bench.acquire_in(0, sessions[0], "writer", resource, Access::Exclusive);
        bench.turn();
        writers.push(granted(&bench.out.replies[0].answer));
    }
    for n in 0..100_000 {
        let (session, actor) = (sessions[n % 1_000], format!("reader-{}", n / 1_000));
        for resource in &resources {
            bench.acquire_in(0, session, &actor, resource, Access::Shared);
        }
        if n % 32 == 0 {
            bench.turn();
        }
    }
    let mut steps = Steps::default();
    steps.finish_work(&mut bench);
    steps.print("a million readers wait: the remaining work");
    let mut steps = Steps::default();
    for writer in &writers {
        steps.time(|| bench.request(0, Command::Release(LeaseRef::by_id(writer.id, writer.number))));
    }
    steps.time(|| bench.tick());
    bench.take();
    steps.finish_work(&mut bench);
    assert_eq!(bench.grantor.active_count(), MILLION as usize);
    steps.print("a million readers are granted at once");
}

/// A deadlock of 100,000 actors. In the second case other requests arrive, so that the search is repeated.
fn a_large_deadlock_is_found() {
    for busy in [false, true] {
        let (mut bench, last) = BenchGrantor::open_cycle(100_000);
        let other = bench.open_session("another");
        let mut steps = Steps::default();
        steps.time(|| last.start(&mut bench));
        let mut n = 0;
        while !bench.out.notices.iter().any(|notice| matches!(notice.event, SessionEvent::Deadlock(_))) {
            if busy {
                bench.acquire_in(0, other, "", &format!("elsewhere/{n}"), Access::Exclusive);
                n += 1;
            }
            steps.time(|| bench.tick());
            bench.take();
        }
        steps.print(if busy { "a deadlock of 100,000 among other requests" } else { "a deadlock of 100,000" });
    }
}

/// Queries of a session with the maximum number of leases, on as many resources and on one. Each delays a turn; a bound is 5 ms.
fn queries_of_a_full_session() {
    let mut bench = BenchGrantor::new();
    let session = bench.open_session("one");
    acquire_in_session(&mut bench, session, 0..limits::LEASES_PER_SESSION);
    let mut steps = Steps::default();
    let mut from = Some(0);
    while let Some(cursor) = from {
        (_, from) = steps.time(|| bench.grantor.list("", cursor, PAGE, PAGE, &mut QueryBudget::default()));
    }
    steps.print(&format!("{} leases of a session are listed", limits::LEASES_PER_SESSION));
    let mut steps = Steps::default();
    steps.time(|| bench.grantor.list("elsewhere", 0, PAGE, PAGE, &mut QueryBudget::default()));
    steps.print("a prefix without resources is searched");
    let mut steps = Steps::default();
    let mut after = 0;
    while let Some(page) = steps.time(|| bench.grantor.held_page("one", after, PAGE, &mut QueryBudget::default())) {
        match page.last() {
            Some(last) => after = last.number.get(),
            None => break,
        }
    }
    steps.print("the leases of its holder are listed");

    let mut bench = BenchGrantor::new();
    let session = bench.open_session("one");
    for n in 0..limits::LEASES_PER_SESSION {
        bench.acquire_in(0, session, &format!("reader-{}", n % 4_000), "popular", Access::Shared);
        if (n as usize).is_multiple_of(TURN) {
            bench.turn();
        }
    }
    let mut steps = Steps::default();
    for _ in 0..100 {
        let shown = steps.time(|| bench.grantor.show_first("popular", PAGE, &mut QueryBudget::default()));
        assert_eq!(shown.map(|view| view.held), Some(limits::LEASES_PER_SESSION as usize));
    }
    steps.print(&format!("a resource with {} readers is shown", limits::LEASES_PER_SESSION));
}

/// Entries of a page, as in the server.
const PAGE: usize = 1_000;

/// Resident memory of this process in bytes.
fn resident_bytes() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has /proc");
    let pages: f64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number of pages");
    pages * 4_096.0
}
