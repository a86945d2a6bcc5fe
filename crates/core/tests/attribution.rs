//! Who caused a change is recorded with it, and costs nothing where there is nothing to record (A13).

mod support;

use leasehold_core::access::{Caller, Rights};
use leasehold_core::command::{Answer, Command, Input, LeaseRef, LeaseSelector, Renew, Request};
use leasehold_core::grantor::Output;
use leasehold_core::limits::PRINCIPAL_BYTES;
use leasehold_core::refusal::Refusal;
use support::attribution::{
    AttributedRun, USER, WORKER, acquire, changes_name_their_caller, now, open_session, revoke,
};

#[test]
fn every_change_names_who_caused_it_and_an_expiry_names_no_one() {
    changes_name_their_caller().unwrap();
}

#[test]
fn a_caller_is_recorded_once_for_all_its_requests_in_a_turn() {
    let mut run = AttributedRun::new();
    let names: Vec<String> = (0..10).map(|at| format!("jobs/{at}")).collect();
    let requests: Vec<_> = names.iter().map(|name| (WORKER, acquire(name, 60_000))).collect();
    run.turn(20, &requests);
    assert_eq!(AttributedRun::attributions(&run.batches[1]), 1);
    run.turn(40, &[(WORKER, acquire("a", 60_000)), (USER, acquire("b", 60_000)), (WORKER, acquire("c", 60_000))]);
    assert_eq!(AttributedRun::attributions(&run.batches[2]), 3);
    run.turn(60, &[(WORKER, acquire("d", 60_000)), ("local", acquire("e", 60_000)), ("local", acquire("f", 60_000))]);
    assert_eq!(AttributedRun::attributions(&run.batches[3]), 2, "local ends the attribution once");
}

#[test]
fn requests_of_local_renewals_and_refused_requests_record_no_caller() {
    let mut run = AttributedRun::new();
    let names: Vec<String> = (0..10).map(|at| format!("jobs/{at}")).collect();
    let requests: Vec<_> = names.iter().map(|name| ("local", acquire(name, 100))).collect();
    run.turn(20, &requests);
    run.turn(500, &[("local", acquire("again", 60_000))]);
    assert_eq!(run.batches.len(), 3);
    let all: usize = run.batches.iter().map(|batch| AttributedRun::attributions(batch)).sum();
    assert_eq!(all, 0, "a server without identities writes the same bytes as before");

    let answers = run.turn(520, &[(WORKER, acquire("mine", 60_000))]);
    let [Answer::Granted(grant)] = answers[..] else { panic!("{answers:?}") };
    let held = LeaseRef { selector: LeaseSelector::Id(grant.lease), number: grant.number, session: None, holder: None };
    let before = run.batches.len();
    let renew = Command::Renew(Renew { lease: held, ttl_ms: None, progress: None });
    let answers = run.turn(540, &[(WORKER, renew), (USER, acquire("mine", 60_000)), (USER, revoke("nothing", 0))]);
    assert!(matches!(answers[..], [Answer::Current(_), Answer::Refused(_), Answer::Refused(_)]), "{answers:?}");
    assert_eq!(run.batches.len(), before, "nothing is written");
}

#[test]
fn a_restore_names_the_user_who_restored() {
    let mut run = AttributedRun::new();
    run.turn(20, &[(WORKER, open_session()), (WORKER, acquire("jobs/a", 60_000))]);
    let before = run.changes().len();
    let changes = run.restored(Some(1000)).changes();
    assert_eq!(
        changes[before..],
        ["restored uid:1000 uid", "session_ended uid:1000 uid", "ended jobs/a uid:1000 uid", "opened",]
    );
    assert_eq!(run.restored(None).changes()[before], "restored local local");
}

#[test]
fn an_identity_that_cannot_be_recorded_is_refused_before_it_changes_anything() {
    let run = AttributedRun::new();
    let mut grantor = leasehold_core::grantor::recover(1, None, run.batches.iter().map(Vec::as_slice))
        .unwrap()
        .open(
            now(0),
            &leasehold_core::grantor::TenureOptions {
                cluster: leasehold_core::token::Cluster(*b"examples"),
                incarnation: leasehold_core::token::Incarnation(9),
                generation: 2,
                validity: leasehold_core::lease::Validity::Session,
                max_ttl: 600_000,
                restore: None,
            },
        )
        .unwrap();
    let mut out = Output::default();
    grantor.take_output(&mut out);
    grantor.serve(now(0));
    let long = "x".repeat(PRINCIPAL_BYTES + 1);
    for principal in ["", &long] {
        let caller = Caller { principal, rights: Rights::UNRESTRICTED };
        let waive = Command::SetCapacity { resource: "pool", units: 3 };
        grantor.step(now(10), &Input::Request(Request { caller, ..Request::tagged(1) }, waive));
        grantor.take_output(&mut out);
        assert!(out.batch.is_empty());
        let refused = &out.replies[0].answer;
        assert!(matches!(refused, Answer::Refused(Refusal::Invalid { field: "identity", .. })), "{refused:?}");
    }
}
