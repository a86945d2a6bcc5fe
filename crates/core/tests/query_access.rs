//! Queries of callers with grants: what they may not see is left out, within the step budget (A4, A5, A7).

use leasehold_core::access::{AccessGrant, Action, Caller, Rights, Role};
use leasehold_core::charter::{Charter, HandoffMode, HandoffTerms};
use leasehold_core::command::{Acquire, AcquireOptions, Command, Input, OpenSession, Request};
use leasehold_core::grantor::{
    Grantor, LeaseFilter, LeaseSort, Output, Query, QueryAnswer, QueryOutcome, RecoveredGrantor, TenureOptions,
    hide_names,
};
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::lease::Validity;
use leasehold_core::limits;
use leasehold_core::refusal::{Cycle, CycleMember, Refusal};
use leasehold_core::time::{Instant, Now, WallClock};
use leasehold_core::token::{Cluster, Incarnation};

const AT: Now = Now { instant: Instant(0), wall: WallClock::after_era(1_000) };

fn grantor_with(names: impl Iterator<Item = String>) -> Grantor {
    let opening = TenureOptions {
        cluster: Cluster(*b"cluster1"),
        incarnation: Incarnation(1),
        generation: 1,
        validity: Validity::Session,
        max_ttl: 600_000,
        restore: None,
    };
    let mut grantor = RecoveredGrantor::empty(1).open(AT, &opening).expect("a new cluster opens");
    let mut out = Output::default();
    grantor.take_output(&mut out);
    grantor.serve(AT);
    for (at, name) in names.enumerate() {
        let acquire = Command::Acquire(Acquire::exclusive(&name, "same holder", 600_000));
        grantor.step(AT, &Input::Request(Request::tagged(0), acquire));
        if at % 4_096 == 0 {
            grantor.take_output(&mut out);
        }
    }
    grantor.take_output(&mut out);
    grantor
}

fn rights(grants: &[(Role, &str)]) -> Rights {
    let grant = |(role, prefix): &(Role, &str)| AccessGrant { role: *role, prefix: (*prefix).into() };
    Rights::new(1, grants.iter().map(grant).collect())
}

/// Names and number of the pages of a listing.
fn list(grantor: &Grantor, rights: &Rights, limit: usize) -> (Vec<String>, usize) {
    let caller = Caller { principal: "dns:a", rights };
    let (mut names, mut from, mut pages) = (Vec::new(), 0, 0);
    loop {
        let query = Query::List { prefix: String::new(), from, limit, leases: 10 };
        let QueryOutcome::Answered(QueryAnswer::Resources(found, next)) = grantor.query(&caller, &query) else {
            panic!("a list is allowed");
        };
        pages += 1;
        names.extend(found.into_iter().map(|resource| resource.resource));
        match next {
            Some(next) => {
                assert!(next > from, "a page makes progress");
                from = next;
            }
            None => return (names, pages),
        }
    }
}

#[test]
fn a_listing_among_many_hidden_names_keeps_the_step_budget_and_finds_every_visible_one() {
    let slots = 2 * limits::QUERY_STEPS / limits::SLOT_STEPS;
    let name = |at: usize| match at % (slots / 4) {
        7 => format!("team/a/{at}"),
        8 => format!("team/ab/{at}"),
        _ => format!("hidden/{at}"),
    };
    let grantor = grantor_with((0..slots).map(name));
    let team = rights(&[(Role::Holder, "team/a")]);
    for limit in [1, 1_000] {
        let (names, pages) = list(&grantor, &team, limit);
        assert_eq!(names.len(), 4, "{names:?}");
        assert!(names.iter().all(|name| name.starts_with("team/a/")), "{names:?}");
        assert!(pages >= 2, "one page does not scan everything");
    }
    let (_, pages) = list(&grantor, &rights(&[(Role::Observer, "nothing")]), 1_000);
    // Names that may not be seen cost as much as vacant slots: the pages are as long as the budget allows.
    assert_eq!(pages, slots.div_ceil(limits::QUERY_STEPS / limits::SLOT_STEPS));
}

/// The slot that the first page of a listing of leases continues at, and its leases.
fn lease_page(grantor: &Grantor, rights: &Rights, filter: LeaseFilter, from: u32) -> (Vec<String>, Option<u32>) {
    let caller = Caller { principal: "dns:a", rights };
    match grantor.query(&caller, &Query::Leases { filter, from, limit: 1_000 }) {
        QueryOutcome::Answered(QueryAnswer::ListedLeases(found, next)) => {
            (found.into_iter().map(|listed| listed.lease.resource).collect(), next)
        }
        _ => panic!("a list is allowed"),
    }
}

/// Slots of leases that one query visits if it returns nothing.
const SLOTS: usize = limits::QUERY_STEPS / limits::SLOT_STEPS;

#[test]
fn a_listing_of_leases_among_many_hidden_ones_keeps_the_step_budget_and_does_not_show_them() {
    let name = |at: usize| match at % 30_000 {
        7 => format!("team/a/{at}"),
        8 => format!("team/ab/{at}"),
        _ => format!("hidden/{at}"),
    };
    let grantor = grantor_with((0..2 * SLOTS).map(name));
    let (team, nothing) = (rights(&[(Role::Holder, "team/a")]), rights(&[(Role::Observer, "nothing")]));
    let (mut found, mut from, mut pages) = (Vec::new(), Some(0), 0);
    while let Some(at) = from {
        let (names, next) = lease_page(&grantor, &team, LeaseFilter::default(), at);
        found.extend(names);
        (from, pages) = (next, pages + 1);
    }
    let expected: Vec<_> = (0..2 * SLOTS).filter(|at| at % 30_000 == 7).map(|at| format!("team/a/{at}")).collect();
    assert_eq!((found, pages), (expected, 3), "the views of some leases are within the budget of each page");
    // A caller that sees nothing gets pages of the same length for every filter, also for holders and names that do not exist.
    let all = LeaseFilter::default;
    for filter in [
        all(),
        LeaseFilter { prefix: "hidden".into(), ..all() },
        LeaseFilter { holder: Some("same holder".into()), ..all() },
        LeaseFilter { holder: Some("no holder".into()), ..all() },
        LeaseFilter { stuck: Some(false), ..all() },
        LeaseFilter { draining: Some(true), ..all() },
        LeaseFilter { min_age_ms: Some(1), ..all() },
    ] {
        let page = lease_page(&grantor, &nothing, filter.clone(), 0);
        assert_eq!(page, (Vec::new(), Some(SLOTS as u32)), "{filter:?}");
        let last = lease_page(&grantor, &nothing, filter.clone(), SLOTS as u32);
        assert_eq!(last, (Vec::new(), None), "{filter:?}");
    }
    let caller = Caller { principal: "dns:a", rights: &team };
    for (sort, visited) in [(LeaseSort::Age, SLOTS), (LeaseSort::Name, SLOTS - 3 * limits::NAME_KEY_STEPS / 4)] {
        let query = Query::LeaseKeys { filter: all(), sort, from: 0 };
        let QueryOutcome::Answered(QueryAnswer::LeaseKeys(keys, next)) = grantor.query(&caller, &query) else {
            panic!("a list is allowed")
        };
        assert_eq!((keys.len(), next), (3, Some(visited as u32)), "{sort}");
    }
    let hidden = LeaseId { slot: 9, reuse: 0 };
    let leases = vec![LeaseId { slot: 7, reuse: 0 }, hidden, LeaseId { slot: 7, reuse: 1 }];
    let query = Query::LeasesWithIds { filter: all(), leases };
    let QueryOutcome::Answered(QueryAnswer::ListedLeases(found, None)) = grantor.query(&caller, &query) else {
        panic!("a list is allowed")
    };
    assert_eq!(found.into_iter().map(|one| one.lease.resource).collect::<Vec<_>>(), ["team/a/7"]);
}

#[test]
fn resources_with_waiters_are_paged_and_hidden_ones_are_left_out() {
    let names: Vec<String> =
        (0..12).map(|at| format!("{}/{at}", if at % 3 == 0 { "hidden" } else { "team" })).collect();
    let mut grantor = grantor_with(names.iter().cloned());
    let open = OpenSession { holder: "waiter", ttl_ms: 600_000, secret: [1; 32].into(), waits_only: false };
    grantor.step(AT, &Input::Request(Request::tagged(0), Command::OpenSession(open)));
    let session = SessionId { slot: 0, reuse: 0 };
    // All but the last two are waited for.
    for name in &names[..10] {
        let options = AcquireOptions { wait_ms: 60_000, ..AcquireOptions::DEFAULT };
        let exclusive = Acquire::exclusive(name, "", 600_000);
        let wait = Command::Acquire(Acquire { session: Some(session), options, ..exclusive });
        grantor.step(AT, &Input::Request(Request::tagged(0), wait));
    }
    let pages = |grantor: &Grantor, rights: &Rights, limit: usize| {
        let caller = Caller { principal: "dns:a", rights };
        let (mut found, mut from) = (Vec::new(), Some(0));
        while let Some(at) = from {
            let query = Query::ContendedResources { from: at, limit, leases: 1, waiters: 1 };
            let QueryOutcome::Answered(QueryAnswer::ContendedResources(page, next)) = grantor.query(&caller, &query)
            else {
                panic!("a reader of waiters may list what is waited for")
            };
            assert!(page.len() <= limit && next.is_none_or(|next| next > at), "a page makes progress");
            for one in page {
                let shown = (one.view.leases.len(), one.view.waiters, one.waiters.len());
                assert_eq!((shown, one.waiters[0].holder.as_str()), ((1, 1, 1), "waiter"));
                found.push(one.view.resource);
            }
            from = next;
        }
        found
    };
    let team: Vec<&String> = names[..10].iter().filter(|name| name.starts_with("team")).collect();
    for limit in [1, 2, 100] {
        assert_eq!(pages(&grantor, &rights(&[(Role::Holder, "team")]), limit).iter().collect::<Vec<_>>(), team);
        assert_eq!(pages(&grantor, &rights(&[(Role::Observer, "")]), limit), names[..10]);
    }
    assert!(pages(&grantor, &rights(&[(Role::Observer, "nothing")]), 1).is_empty());
    // What is granted is not waited for any more.
    grantor.step(AT, &Input::Request(Request::tagged(0), Command::CloseSession { session }));
    assert!(pages(&grantor, &rights(&[(Role::Observer, "")]), 1).is_empty());
}

#[test]
fn charters_of_hidden_resources_are_left_out() {
    let mut grantor = grantor_with(std::iter::empty());
    for (prefix, drain_ms) in [("", 1_000), ("team", 2_000), ("team/a/b", 3_000)] {
        let charter =
            Charter { handoff: Some(HandoffTerms { mode: HandoffMode::Gap, drain_ms }), ..Charter::default() };
        let set = Command::SetCharter { prefix, charter: Box::new(charter), comment: "terms" };
        grantor.step(AT, &Input::Request(Request::tagged(0), set));
    }
    let resources = ["team/a", "team/a/b/c", "team/a/bc", "other"].map(str::to_owned).to_vec();
    let drains = |rights: &Rights| {
        let query = Query::ChartersOf { resources: resources.clone() };
        match grantor.query(&Caller { principal: "dns:a", rights }, &query) {
            QueryOutcome::Answered(QueryAnswer::ChartersOf(found)) => {
                let drain =
                    |charter: &Option<&Charter>| charter.and_then(|charter| charter.handoff).map(|one| one.drain_ms);
                found.iter().map(drain).collect::<Vec<_>>()
            }
            _ => panic!("an observer reads charters"),
        }
    };
    assert_eq!(drains(&rights(&[(Role::Observer, "")])), [Some(2_000), Some(3_000), Some(2_000), Some(1_000)]);
    assert_eq!(drains(&rights(&[(Role::Observer, "team")])), [Some(2_000), Some(3_000), Some(2_000), None]);
}

#[test]
fn a_query_about_a_hidden_name_is_answered_like_one_about_an_unknown_name() {
    let grantor = grantor_with(["team/a/1".to_owned(), "hidden/1".to_owned()].into_iter());
    let rights = rights(&[(Role::Observer, "team/a")]);
    let caller = Caller { principal: "dns:a", rights: &rights };
    let show = |name: &str| grantor.query(&caller, &Query::Show { resource: name.to_owned(), leases: 10 });
    assert!(matches!(show("team/a/1"), QueryOutcome::Answered(QueryAnswer::Resource(Some(_)))));
    assert!(matches!(show("team/a/2"), QueryOutcome::Answered(QueryAnswer::Resource(None))));
    for hidden in ["hidden/1", "hidden/2", "team/ab", "team", ""] {
        assert!(matches!(show(hidden), QueryOutcome::Hidden(QueryAnswer::Resource(None))), "{hidden}");
    }
    let held = Query::HeldBy { holder: "same holder".to_owned(), after: 0, limit: 10 };
    let QueryOutcome::Answered(QueryAnswer::Leases(Some(leases))) = grantor.query(&caller, &held) else {
        panic!("an observer lists leases");
    };
    assert_eq!(leases.iter().map(|lease| lease.resource.as_str()).collect::<Vec<_>>(), ["team/a/1"]);
}

#[test]
fn a_query_that_no_grant_allows_is_denied() {
    let grantor = grantor_with(std::iter::empty());
    let cases = [
        (rights(&[]), Query::Status),
        (rights(&[(Role::Reporter, "")]), Query::Show { resource: "a".to_owned(), leases: 1 }),
        (rights(&[(Role::Holder, "")]), Query::Deadlocks { limit: 1 }),
        (rights(&[(Role::Observer, "a")]), Query::UsagePage { after: String::new(), limit: 1 }),
        (rights(&[(Role::Operator, "a")]), Query::Metrics),
    ];
    for (rights, query) in &cases {
        let outcome = grantor.query(&Caller { principal: "dns:a", rights }, query);
        assert!(matches!(outcome, QueryOutcome::Denied(_)), "{query:?}");
    }
    assert_eq!(Query::Metrics.action(), Action::Metrics);
    let outcome = grantor.query(&Caller::LOCAL, &Query::Metrics);
    assert!(matches!(outcome, QueryOutcome::Answered(QueryAnswer::Everything(_))));
}

#[test]
fn a_deadlock_names_only_what_its_caller_may_see() {
    let member = |holder: &str, waits_for: &str| CycleMember { holder: holder.into(), waits_for: waits_for.into() };
    let members = vec![member("a", "x/1"), member("b", "y/1"), member("c", "z/1")];
    let cycle = Cycle { length: 3, members };
    let shown = |rights: &Rights| {
        let mut refusal = Refusal::Deadlock(Box::new(cycle.clone()));
        hide_names(&Caller { principal: "dns:a", rights }, &mut refusal);
        let Refusal::Deadlock(left) = refusal else { panic!("it is still a deadlock") };
        *left
    };
    let left = shown(&rights(&[(Role::Holder, "x"), (Role::Holder, "z")]));
    assert_eq!(left, Cycle { length: 2, members: vec![member("a", "x/1"), member("c", "z/1")] });
    assert_eq!(shown(&rights(&[(Role::Observer, "")])), cycle);
    assert_eq!(shown(Rights::UNRESTRICTED), cycle);
}
