//! Reservations on the test server: expiry, confirmation and capacity.

use std::time::Duration;

use leasehold_core::charter::{AtExpiry, Charter};
use leasehold_core::lease::EndReason;

use super::{Reservation, ReservationStatus};
use crate::blocking::block_on;
use crate::testing::TestServer;
use crate::{Client, Code, Error};

const TTL: Duration = Duration::from_secs(5);

fn hall(units: u32) -> TestServer {
    let server = TestServer::new();
    server.set_capacity("hall/1", units).expect("the capacity is valid");
    server
}

fn reserve(client: &Client, units: u32) -> Result<Reservation, Error> {
    block_on(client.reserve("hall/1", units).ttl(TTL).acquire())
}

fn used_and_confirmed(server: &TestServer) -> (u32, u64) {
    server.show("hall/1").map_or((0, 0), |view| (view.used, view.confirmed))
}

#[test]
fn an_expired_reservation_cannot_be_confirmed() {
    let server = hall(2);
    let (ann, ben) = (server.client("ann"), server.client("ben"));
    let late = reserve(&ann, 2).expect("two units are free");
    assert_eq!(reserve(&ben, 1).expect_err("no unit is left").code(), Some(Code::Busy));
    server.advance(TTL);
    let current = reserve(&ben, 2).expect("the units are free again");
    assert_eq!(block_on(late.confirm()).expect_err("the reservation expired").end_reason(), Some(EndReason::Ttl));
    block_on(current.confirm()).expect("the reservation is open");
    assert_eq!(used_and_confirmed(&server), (0, 2));
    assert_eq!(block_on(late.status()).expect("the server replies"), ReservationStatus::Ended(EndReason::Ttl));
}

#[test]
fn a_confirmation_at_the_deadline_is_too_late_even_without_competition() {
    let server = hall(2);
    let held = reserve(&server.client("ann"), 1).expect("two units are free");
    server.advance(TTL);
    assert_eq!(block_on(held.confirm()).expect_err("the reservation expired").end_reason(), Some(EndReason::Ttl));
    assert_eq!(used_and_confirmed(&server), (0, 0), "no unit leaks");
}

#[test]
fn reservations_confirmations_and_resizes_share_one_capacity() {
    let server = hall(10);
    let client = server.client("ann");
    let (one, two) =
        (reserve(&client, 4).expect("the server accepts it"), reserve(&client, 4).expect("the server accepts it"));
    let error = block_on(one.resize(7)).expect_err("only two units are left");
    assert_eq!(error.code(), Some(Code::ResourceExhausted));
    assert_eq!(used_and_confirmed(&server), (8, 0), "the reservation is unchanged");
    block_on(one.resize(6)).expect("two units are left");
    block_on(two.cancel()).expect("the reservation is open");
    block_on(one.confirm()).expect("the reservation is open");
    assert_eq!(used_and_confirmed(&server), (0, 6));
    assert_eq!(reserve(&client, 5).expect_err("only four units are left").code(), Some(Code::ResourceExhausted));
    assert_eq!(block_on(one.confirm()).expect_err("the reservation is settled").code(), Some(Code::LeaseLost));
    assert_eq!(block_on(one.status()).expect("the server replies"), ReservationStatus::Settled);
    assert_eq!(used_and_confirmed(&server), (0, 6), "it is confirmed once");
}

#[test]
fn a_reservation_outlives_its_process_and_is_confirmed_elsewhere_by_its_token() {
    let server = hall(2);
    let token = {
        let client = server.client("ann");
        let held = reserve(&client, 2).expect("two units are free");
        held.token()
    };
    let other = server.client("box-office");
    let wrong = other.reservation("hall/2", &token).expect_err("the token belongs to another resource");
    assert_eq!(wrong.code(), Some(Code::TokenInvalid));
    let held = other.reservation("hall/1", &token).expect("the token is valid");
    assert!(matches!(block_on(held.status()), Ok(ReservationStatus::Open(left)) if left == TTL));
    block_on(held.confirm()).expect("the reservation is open");
    assert_eq!(used_and_confirmed(&server), (0, 2));
}

#[test]
fn a_veto_extends_a_reservation_as_far_as_its_charter_allows() {
    let server = hall(2);
    let charter = Charter { at_expiry: AtExpiry::Veto { max_ms: 3_000 }, ..Charter::default() };
    server.set_charter("hall", charter).expect("the charter is valid");
    let held = reserve(&server.client("ann"), 2).expect("two units are free");
    server.advance(TTL - Duration::from_secs(1));
    let remaining = block_on(held.veto(Duration::from_secs(3_600))).expect("the reservation is open");
    assert_eq!(remaining, Duration::from_secs(4), "one second remaining plus three");
    server.advance(Duration::from_secs(3));
    block_on(held.resize(1)).expect("the reservation is open");
    server.advance(Duration::from_secs(1));
    assert_eq!(block_on(held.confirm()).expect_err("the veto ended").end_reason(), Some(EndReason::Ttl));
    assert_eq!(used_and_confirmed(&server), (0, 0));
}

#[test]
fn an_extended_reservation_gets_its_full_ttl_again() {
    let server = hall(1);
    let client = server.client("ann");
    let held = reserve(&client, 1).expect("one unit is free");
    for _ in 0..3 {
        server.advance(TTL - Duration::from_secs(1));
        assert_eq!(block_on(held.extend()).expect("the reservation is open"), TTL);
    }
    assert_eq!(reserve(&client, 1).expect_err("the lease is held").code(), Some(Code::Busy));
}
