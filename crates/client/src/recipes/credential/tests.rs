//! What a credential must never do: outlive its lease, reach further than it says, or be believed when it is over.

mod caught;
mod forged;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::charter::{Charter, Handoff, Style};

use super::{Denied, Issuer, Key, Keys, Verifier, Wish};
use crate::blocking::block_on;
use crate::testing::Grantor;
use crate::{Client, Code, Guard, Options};

const ISSUER: &str = "https://issuer.example";
const AUDIENCE: &str = "ledger";
const SKEW: Duration = Duration::from_secs(2);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// An issuer with its own lease, a holder with a lease of a minute, and a wall clock that goes with the grantor's.
struct Scene {
    grantor: Grantor,
    office: Client,
    worker: Client,
    issuer: Issuer,
    _desk: Guard,
    lease: Guard,
    passed: Duration,
}

impl Scene {
    fn new() -> Self {
        let grantor = Grantor::new();
        // A handoff can end a lease within its drain period, so what is short there is short here.
        let handoff = Some(Handoff { style: Style::Gap, drain_ms: 60_000 });
        grantor.set_charter("", Charter { handoff, ..Charter::default() }).expect("it is possible");
        let options = |holder: &str| Options { holder: Some(holder.into()), session: HOUR / 12, ..Options::default() };
        let (office, worker) = (grantor.client_with(options("office")), grantor.client_with(options("worker")));
        let desk = hold(&office, "issuers/example");
        let keys = Keys::new(Key::generate("k1").expect("a key"));
        let issuer = Issuer::new(ISSUER, desk.hold().clone(), keys).expect("a name").skew(SKEW).longest(HOUR);
        let lease = hold(&worker, "jobs/settle");
        Self { grantor, office, worker, issuer, _desk: desk, lease, passed: Duration::ZERO }
    }

    fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_800_000_000) + self.passed
    }

    fn advance(&mut self, by: Duration) {
        self.grantor.advance(by);
        self.passed += by;
    }

    fn issue(&self, life: Duration) -> String {
        let wish = Wish { audience: AUDIENCE, subject: "worker", life };
        self.issuer.for_hold_at(&self.lease, &wish, self.now()).expect("the lease is held")
    }

    /// A verifier with the issuer's keys and its newest list.
    fn verifier(&self) -> Verifier {
        let verifier = Verifier::new(ISSUER, AUDIENCE, &self.issuer.jwks()).expect("a key set");
        let mut verifier = verifier.skew(SKEW).list_age(HOUR);
        self.bring_list(&mut verifier);
        verifier
    }

    fn bring_list(&self, verifier: &mut Verifier) {
        let list = self.issuer.list(self.now()).expect("the issuer holds");
        verifier.set_list_at(&list, self.now()).expect("it is the newest");
    }

    fn verify(&self, verifier: &Verifier, credential: &str) -> Result<(), Denied> {
        let verified = verifier.verify_at(credential, "jobs/settle", self.now())?;
        assert_eq!((verified.subject.as_str(), verified.token.to_string()), ("worker", self.lease.token()));
        Ok(())
    }
}

fn hold(client: &Client, name: &str) -> Guard {
    block_on(client.lock(name).ttl(Duration::from_secs(60)).acquire()).expect("it is free")
}

#[test]
fn a_credential_is_over_before_its_lease_even_for_the_slowest_clock() {
    let mut scene = Scene::new();
    let (credential, verifier) = (scene.issue(HOUR), scene.verifier());
    scene.grantor.partition(&scene.worker);
    let mut believed = 0;
    for _ in 0..90 {
        let slow = scene.now() - SKEW;
        if verifier.verify_at(&credential, "jobs/settle", slow).is_ok() {
            believed += 1;
            let held = scene.grantor.show("jobs/settle").is_some_and(|shown| !shown.leases.is_empty());
            assert!(held, "believed {believed} s after it was signed, when its lease was over");
        }
        scene.advance(SECOND);
    }
    assert!((30..60).contains(&believed), "believed for {believed} s of a lease of 60");
    assert_eq!(scene.verify(&verifier, &credential), Err(Denied::Expired));
}

#[test]
fn a_credential_is_over_with_a_short_lease_at_whatever_part_of_a_second_it_is_signed() {
    for part in (0..1_000).step_by(97).map(Duration::from_millis) {
        let mut scene = Scene::new();
        scene.advance(part);
        let short = Duration::from_secs(10);
        let lease = block_on(scene.worker.lock("jobs/short").ttl(short).acquire()).expect("it is free");
        let (signed, wish) = (scene.now(), Wish { audience: AUDIENCE, subject: "worker", life: HOUR });
        let credential = scene.issuer.for_hold_at(&lease, &wish, signed).expect("the lease is held");
        let verifier = scene.verifier();
        let believed = |real: SystemTime| verifier.verify_at(&credential, "jobs/short", real - SKEW).is_ok();
        assert!(believed(signed));
        let last =
            (0..2_000).map(|step| signed + step * Duration::from_millis(10)).take_while(|real| believed(*real)).last();
        assert!(last.is_some_and(|last| last < signed + short), "signed {part:?} into a second");
    }
}

#[test]
fn a_long_life_is_cut_to_the_lease_and_to_the_issuers_bound() {
    let scene = Scene::new();
    let Scene { issuer, lease, .. } = &scene;
    let verifier = scene.verifier();
    let wish = |life| Wish { audience: AUDIENCE, subject: "worker", life };
    let life = |credential: &str| {
        let verified = verifier.verify_at(credential, "jobs/settle", scene.now()).expect("it is fresh");
        verified.expires - super::claims::seconds(scene.now())
    };
    assert_eq!(life(&scene.issue(10 * SECOND)), 10, "what was asked for");
    assert!(life(&scene.issue(10_000 * HOUR)) <= 60 - 2 * SKEW.as_secs(), "what the lease has");
    let keys = Keys::new(Key::generate("k1").expect("a key"));
    let strict = Issuer::new(ISSUER, scene._desk.hold().clone(), keys).expect("a name").longest(20 * SECOND);
    let cut = strict.for_hold_at(lease, &wish(HOUR), scene.now()).expect("the lease is held");
    let mut other = Verifier::new(ISSUER, AUDIENCE, &strict.jwks()).expect("a key set");
    other.set_list_at(&strict.list(scene.now()).expect("it holds"), scene.now()).expect("the first");
    let verified = other.verify_at(&cut, "jobs/settle", scene.now()).expect("it is fresh");
    assert_eq!(verified.expires - super::claims::seconds(scene.now()), 20, "what the issuer allows");
    for life in [Duration::ZERO, Duration::from_millis(999)] {
        let short = issuer.for_hold_at(lease, &wish(life), scene.now()).expect_err("it would be over at once");
        assert_eq!(short.code(), Some(Code::InvalidArgument));
    }
}

#[test]
fn too_little_of_a_lease_is_not_signed_for() {
    let mut scene = Scene::new();
    scene.grantor.partition(&scene.worker);
    let wish = Wish { audience: AUDIENCE, subject: "worker", life: HOUR };
    let mut refused = None;
    for _ in 0..70 {
        match scene.issuer.for_hold_at(&scene.lease, &wish, scene.now()) {
            Ok(_) => assert_eq!(refused, None, "what was refused is not signed later"),
            Err(error) => refused = refused.or(error.code()),
        }
        scene.advance(SECOND);
    }
    assert_eq!(refused, Some(Code::InvalidArgument), "before the lease was over");
    let over = scene.issuer.for_hold_at(&scene.lease, &wish, scene.now()).expect_err("it is not held");
    assert_eq!(over.code(), Some(Code::Unavailable));
}

#[test]
fn what_is_revoked_and_not_yet_expired_is_refused_from_the_next_list_on() {
    let mut scene = Scene::new();
    let (credential, mut verifier) = (scene.issue(HOUR), scene.verifier());
    scene.issuer.revoke(scene.lease.token_number(), scene.now()).expect("the issuer holds");
    assert_eq!(scene.verify(&verifier, &credential), Ok(()), "until the list is there");
    scene.advance(SECOND);
    scene.bring_list(&mut verifier);
    assert_eq!(scene.verify(&verifier, &credential), Err(Denied::Revoked));
    let wish = Wish { audience: AUDIENCE, subject: "worker", life: HOUR };
    let again = scene.issuer.for_hold_at(&scene.lease, &wish, scene.now()).expect_err("it was revoked");
    assert_eq!(again.code(), Some(Code::PermissionDenied));
}

#[test]
fn a_verifier_without_a_recent_list_believes_nobody() {
    let mut scene = Scene::new();
    let credential = scene.issue(HOUR);
    let blind = Verifier::new(ISSUER, AUDIENCE, &scene.issuer.jwks()).expect("a key set").skew(SKEW);
    assert_eq!(scene.verify(&blind, &credential), Err(Denied::ListTooOld));
    let mut verifier = scene.verifier().list_age(10 * SECOND);
    let almost = Duration::from_millis(1);
    scene.advance(10 * SECOND + SKEW - almost);
    assert_eq!(scene.verify(&verifier, &credential), Ok(()));
    scene.advance(almost);
    assert_eq!(scene.verify(&verifier, &credential), Err(Denied::ListTooOld));
    scene.bring_list(&mut verifier);
    assert_eq!(scene.verify(&verifier, &credential), Ok(()));
}

#[test]
fn a_rotated_key_verifies_what_it_signed_until_it_is_withdrawn() {
    let mut scene = Scene::new();
    let (old, mut verifier) = (scene.issue(20 * SECOND), scene.verifier());
    let next = Key::generate("k2").expect("a key");
    scene.issuer.rotate(|keys| keys.introduce(next)).expect("a new name");
    verifier.set_keys(&scene.issuer.jwks()).expect("a key set");
    scene.issuer.rotate(|keys| keys.sign_with("k2")).expect("it is published");
    scene.bring_list(&mut verifier);
    let new = scene.issue(20 * SECOND);
    assert_eq!((scene.verify(&verifier, &old), scene.verify(&verifier, &new)), (Ok(()), Ok(())));
    let early = scene.issuer.rotate(|keys| keys.withdraw("k1", scene.now())).expect_err("what it signed is valid");
    assert_eq!(early.code(), Some(Code::InvalidArgument));
    let signs = scene.issuer.rotate(|keys| keys.give_up("k2")).expect_err("it signs");
    assert_eq!(signs.code(), Some(Code::InvalidArgument));
    scene.advance(20 * SECOND + SKEW);
    scene.issuer.rotate(|keys| keys.withdraw("k1", scene.now())).expect("nothing of it is valid");
    assert!(!scene.issuer.jwks().contains("k1"));
    verifier.set_keys(&scene.issuer.jwks()).expect("a key set");
    assert_eq!(scene.verify(&verifier, &old), Err(Denied::Key));
}

#[test]
fn a_stolen_key_is_out_with_the_next_list_although_the_verifier_still_has_it() {
    let mut scene = Scene::new();
    let (credential, mut verifier) = (scene.issue(HOUR), scene.verifier());
    let stolen_list = scene.issuer.list(scene.now()).expect("the issuer holds");
    let next = Key::generate("k2").expect("a key");
    scene.issuer.rotate(|keys| keys.introduce(next)).expect("a new name");
    verifier.set_keys(&scene.issuer.jwks()).expect("a key set");
    scene.issuer.rotate(|keys| keys.sign_with("k2").and_then(|()| keys.give_up("k1"))).expect("another one signs");
    assert_eq!(scene.verify(&verifier, &credential), Ok(()), "until the list is there");
    scene.advance(SECOND);
    scene.bring_list(&mut verifier);
    assert_eq!(scene.verify(&verifier, &credential), Err(Denied::Key));
    assert_eq!(verifier.set_list_at(&stolen_list, scene.now()), Err(Denied::Key), "and it signs no list any more");
}

#[test]
fn an_issuer_that_lost_its_own_lease_signs_nothing_and_its_list_is_behind_its_successors() {
    let mut scene = Scene::new();
    let (credential, mut verifier) = (scene.issue(HOUR), scene.verifier());
    let late = scene.issuer.list(scene.now()).expect("the issuer holds");
    let key = Key::from_pkcs8("k1", scene.issuer.rotate(|keys| keys.sign_until(0).pkcs8().to_vec()).as_slice());
    scene.issuer.revoke(scene.lease.token_number(), scene.now()).expect("the issuer holds");
    let last = scene.issuer.list(scene.now()).expect("the issuer holds");
    scene.grantor.partition(&scene.office);
    scene.advance(61 * SECOND);
    let refused = scene.issuer.list(scene.now()).expect_err("it does not hold");
    assert_eq!(refused.code(), Some(Code::Unavailable));
    let other = scene.grantor.client("office-2");
    let desk = block_on(other.lock("issuers/example").acquire()).expect("the other's is over");
    let keys = Keys::new(key.expect("the same key"));
    let successor = Issuer::new(ISSUER, desk.hold().clone(), keys).expect("a name").skew(SKEW).longest(HOUR);
    successor.carry_on(&last, scene.now()).expect("it is its predecessor's");
    let list = successor.list(scene.now()).expect("it holds");
    verifier.set_list_at(&list, scene.now()).expect("it is the newest");
    assert_eq!(verifier.set_list_at(&late, scene.now()), Err(Denied::ListBehind));
    let denied = verifier.verify_at(&credential, "jobs/settle", scene.now() - 60 * SECOND);
    assert_eq!(denied, Err(Denied::Revoked), "what the predecessor revoked stays so");
    drop(desk);
}

#[test]
fn the_skew_between_clocks_counts_on_both_sides_and_no_further() {
    let scene = Scene::new();
    let (credential, verifier) = (scene.issue(10 * SECOND), scene.verifier());
    let at = |now| verifier.verify_at(&credential, "jobs/settle", now).map(drop);
    assert_eq!(at(scene.now() - SKEW), Ok(()));
    assert_eq!(at(scene.now() - SKEW - SECOND), Err(Denied::NotYet));
    assert_eq!(at(scene.now() + 10 * SECOND + SKEW - Duration::from_millis(1)), Ok(()));
    assert_eq!(at(scene.now() + 10 * SECOND + SKEW), Err(Denied::Expired));
}
