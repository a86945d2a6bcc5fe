//! Reservations in memory: what time takes back, and what it cannot.

use std::time::Duration;

use leasehold_core::charter::{AtExpiry, Charter};
use leasehold_core::command::Command;
use leasehold_core::lease::Reason;

use super::{Outcome, Reservation};
use crate::blocking::block_on;
use crate::testing::Grantor;
use crate::{Client, Code, Error};

const KEEP: Duration = Duration::from_secs(5);

fn hall(units: u32) -> Grantor {
    let grantor = Grantor::new();
    grantor.operate(Command::SetCapacity { resource: "hall/1", units }).expect("it can be sized");
    grantor
}

fn hold(client: &Client, units: u32) -> Result<Reservation, Error> {
    block_on(client.reserve("hall/1", units).keep_for(KEEP).hold())
}

fn taken(grantor: &Grantor) -> (u32, u64) {
    grantor.show("hall/1").map_or((0, 0), |shown| (shown.used, shown.confirmed))
}

#[test]
fn an_expired_hold_is_not_confirmed() {
    let grantor = hall(2);
    let (ann, ben) = (grantor.client("ann"), grantor.client("ben"));
    let late = hold(&ann, 2).expect("there are two");
    assert_eq!(hold(&ben, 1).expect_err("none is left").code(), Some(Code::Busy));
    grantor.advance(KEEP);
    let current = hold(&ben, 2).expect("they came back");
    assert_eq!(block_on(late.confirm()).expect_err("its time is over").lost(), Some(Reason::Ttl));
    block_on(current.confirm()).expect("it stands");
    assert_eq!(taken(&grantor), (0, 2));
    assert_eq!(block_on(late.outcome()).expect("it can be asked"), Outcome::Over(Reason::Ttl));
}

#[test]
fn confirmed_at_the_deadline_is_too_late_also_while_nobody_else_wants_it() {
    let grantor = hall(2);
    let held = hold(&grantor.client("ann"), 1).expect("there are two");
    grantor.advance(KEEP);
    assert_eq!(block_on(held.confirm()).expect_err("its time is over").lost(), Some(Reason::Ttl));
    assert_eq!(taken(&grantor), (0, 0), "nothing leaks");
}

#[test]
fn holds_commitments_and_changes_of_size_share_one_count() {
    let grantor = hall(10);
    let client = grantor.client("ann");
    let (one, two) = (hold(&client, 4).expect("there is room"), hold(&client, 4).expect("there is room"));
    let error = block_on(one.resize(7)).expect_err("only two are left");
    assert_eq!(error.code(), Some(Code::ResourceExhausted));
    assert_eq!(taken(&grantor), (8, 0), "it stays as it was");
    block_on(one.resize(6)).expect("two are left");
    block_on(two.cancel()).expect("it stands");
    block_on(one.confirm()).expect("it stands");
    assert_eq!(taken(&grantor), (0, 6));
    assert_eq!(hold(&client, 5).expect_err("four are left for ever").code(), Some(Code::ResourceExhausted));
    assert_eq!(block_on(one.confirm()).expect_err("it is settled").code(), Some(Code::LeaseLost));
    assert_eq!(block_on(one.outcome()).expect("it can be asked"), Outcome::Settled);
    assert_eq!(taken(&grantor), (0, 6), "confirmed once");
}

#[test]
fn a_hold_outlives_its_process_and_is_confirmed_elsewhere_by_its_token() {
    let grantor = hall(2);
    let token = {
        let client = grantor.client("ann");
        let held = hold(&client, 2).expect("there are two");
        held.token()
    };
    let other = grantor.client("desk");
    let wrong = other.reservation("hall/2", &token).expect_err("that is another hall's");
    assert_eq!(wrong.code(), Some(Code::TokenInvalid));
    let held = other.reservation("hall/1", &token).expect("a token's text");
    assert!(matches!(block_on(held.outcome()), Ok(Outcome::Open(left)) if left == KEEP));
    block_on(held.confirm()).expect("it stands");
    assert_eq!(taken(&grantor), (0, 2));
}

#[test]
fn an_obligation_in_flight_keeps_a_hold_over_its_time_as_far_as_the_charter_lets_it() {
    let grantor = hall(2);
    let charter = Charter { at_expiry: AtExpiry::Veto { max_ms: 3_000 }, ..Charter::default() };
    grantor.set_charter("hall", charter).expect("it is possible");
    let held = hold(&grantor.client("ann"), 2).expect("there are two");
    grantor.advance(KEEP - Duration::from_secs(1));
    let stands = block_on(held.veto(Duration::from_secs(3_600))).expect("it stands");
    assert_eq!(stands, Duration::from_secs(4), "one second that was left, and three");
    grantor.advance(Duration::from_secs(3));
    block_on(held.resize(1)).expect("it stands");
    grantor.advance(Duration::from_secs(1));
    assert_eq!(block_on(held.confirm()).expect_err("that was all").lost(), Some(Reason::Ttl));
    assert_eq!(taken(&grantor), (0, 0));
}

#[test]
fn a_hold_that_is_extended_stands_for_another_full_time() {
    let grantor = hall(1);
    let client = grantor.client("ann");
    let held = hold(&client, 1).expect("there is one");
    for _ in 0..3 {
        grantor.advance(KEEP - Duration::from_secs(1));
        assert_eq!(block_on(held.extend()).expect("it stands"), KEEP);
    }
    assert_eq!(hold(&client, 1).expect_err("it is held").code(), Some(Code::Busy));
}
