//! A credential never outlives its lease, is valid only for its audience and resource, and is rejected after a revocation.

mod forged;
mod mutants;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::charter::{Charter, HandoffMode, HandoffTerms};

use super::{CredentialError, CredentialIssuer, CredentialRequest, CredentialVerifier, SigningKey, SigningKeys};
use crate::blocking::block_on;
use crate::testing::TestServer;
use crate::{Client, Code, Guard};

const ISSUER: &str = "https://issuer.example";
const AUDIENCE: &str = "ledger";
const SKEW: Duration = Duration::from_secs(2);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// An issuer with its own lease, a holder with a lease of a minute, and a wall clock that advances with the test server.
struct Scene {
    server: TestServer,
    issuing: Client,
    worker: Client,
    issuer: CredentialIssuer,
    issuer_lease: Guard,
    lease: Guard,
    elapsed: Duration,
}

impl Scene {
    fn new() -> Self {
        let server = TestServer::new();
        // A handoff can end a lease within its drain period, so that bounds the lifetime of credentials.
        let handoff = Some(HandoffTerms { mode: HandoffMode::Gap, drain_ms: 60_000 });
        server.set_charter("", Charter { handoff, ..Charter::default() }).expect("the charter is valid");
        let client = |holder: &str| server.client_with(|client| client.holder(holder).session_ttl(HOUR / 12));
        let (issuing, worker) = (client("issuing"), client("worker"));
        let issuer_lease = acquire(&issuing, "issuers/example");
        let keys = SigningKeys::new(SigningKey::generate("k1").expect("a key is generated"));
        let issuer = CredentialIssuer::new(ISSUER, issuer_lease.handle().clone(), keys)
            .expect("the name is valid")
            .skew(SKEW)
            .max_lifetime(HOUR);
        let lease = acquire(&worker, "jobs/settle");
        Self { server, issuing, worker, issuer, issuer_lease, lease, elapsed: Duration::ZERO }
    }

    fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_800_000_000) + self.elapsed
    }

    fn advance(&mut self, by: Duration) {
        self.server.advance(by);
        self.elapsed += by;
    }

    fn issue(&self, lifetime: Duration) -> String {
        let request = CredentialRequest::new(AUDIENCE, "worker", lifetime);
        self.issuer.issue_at(&self.lease, &request, self.now()).expect("the lease is held")
    }

    /// A verifier with the issuer's keys and its newest list.
    fn verifier(&self) -> CredentialVerifier {
        let verifier = CredentialVerifier::new(ISSUER, AUDIENCE, &self.issuer.jwks()).expect("the key set is valid");
        let mut verifier = verifier.skew(SKEW).max_list_age(HOUR);
        self.load_newest_list(&mut verifier);
        verifier
    }

    fn load_newest_list(&self, verifier: &mut CredentialVerifier) {
        let list = self.issuer.revocation_list(self.now()).expect("the issuer holds its lease");
        verifier.set_revocation_list_at(&list, self.now()).expect("the list is the newest");
    }

    fn verify(&self, verifier: &CredentialVerifier, credential: &str) -> Result<(), CredentialError> {
        let verified = verifier.verify_at(credential, "jobs/settle", self.now())?;
        assert_eq!((verified.subject.as_str(), verified.token.to_string()), ("worker", self.lease.token().to_string()));
        Ok(())
    }
}

fn acquire(client: &Client, name: &str) -> Guard {
    block_on(client.lock(name).ttl(Duration::from_secs(60)).acquire()).expect("the resource is free")
}

#[test]
fn a_credential_expires_before_its_lease_even_on_the_slowest_clock() {
    let mut scene = Scene::new();
    let (credential, verifier) = (scene.issue(HOUR), scene.verifier());
    scene.server.partition(&scene.worker);
    let mut accepted = 0;
    for _ in 0..90 {
        let slow = scene.now() - SKEW;
        if verifier.verify_at(&credential, "jobs/settle", slow).is_ok() {
            accepted += 1;
            let held = scene.server.show("jobs/settle").is_some_and(|view| !view.leases.is_empty());
            assert!(held, "accepted {accepted} s after it was signed, when its lease was over");
        }
        scene.advance(SECOND);
    }
    assert!((30..60).contains(&accepted), "accepted for {accepted} s of a lease of 60");
    assert_eq!(scene.verify(&verifier, &credential), Err(CredentialError::Expired));
}

#[test]
fn a_credential_of_a_short_lease_expires_before_it_at_any_fraction_of_a_second() {
    for part in (0..1_000).step_by(97).map(Duration::from_millis) {
        let mut scene = Scene::new();
        scene.advance(part);
        let short = Duration::from_secs(10);
        let lease = block_on(scene.worker.lock("jobs/short").ttl(short).acquire()).expect("the resource is free");
        let (signed, request) = (scene.now(), CredentialRequest::new(AUDIENCE, "worker", HOUR));
        let credential = scene.issuer.issue_at(&lease, &request, signed).expect("the lease is held");
        let verifier = scene.verifier();
        let accepted = |real: SystemTime| verifier.verify_at(&credential, "jobs/short", real - SKEW).is_ok();
        assert!(accepted(signed));
        let last =
            (0..2_000).map(|step| signed + step * Duration::from_millis(10)).take_while(|real| accepted(*real)).last();
        assert!(last.is_some_and(|last| last < signed + short), "signed {part:?} into a second");
    }
}

#[test]
fn a_long_lifetime_is_shortened_to_the_lease_and_the_issuers_limit() {
    let scene = Scene::new();
    let Scene { issuer, lease, .. } = &scene;
    let verifier = scene.verifier();
    let request = |lifetime| CredentialRequest::new(AUDIENCE, "worker", lifetime);
    let life = |credential: &str| {
        let verified = verifier.verify_at(credential, "jobs/settle", scene.now()).expect("the credential is valid");
        verified.expires - super::claims::seconds(scene.now())
    };
    assert_eq!(life(&scene.issue(10 * SECOND)), 10, "what was asked for");
    assert!(life(&scene.issue(10_000 * HOUR)) <= 60 - 2 * SKEW.as_secs(), "what the lease has");
    let keys = SigningKeys::new(SigningKey::generate("k1").expect("a key is generated"));
    let strict = CredentialIssuer::new(ISSUER, scene.issuer_lease.handle().clone(), keys)
        .expect("the name is valid")
        .max_lifetime(20 * SECOND);
    let cut = strict.issue_at(lease, &request(HOUR), scene.now()).expect("the lease is held");
    let mut other = CredentialVerifier::new(ISSUER, AUDIENCE, &strict.jwks()).expect("the key set is valid");
    other
        .set_revocation_list_at(&strict.revocation_list(scene.now()).expect("the issuer holds its lease"), scene.now())
        .expect("the first");
    let verified = other.verify_at(&cut, "jobs/settle", scene.now()).expect("the credential is valid");
    assert_eq!(verified.expires - super::claims::seconds(scene.now()), 20, "what the issuer allows");
    for life in [Duration::ZERO, Duration::from_millis(999)] {
        let short = issuer.issue_at(lease, &request(life), scene.now()).expect_err("it would be over at once");
        assert_eq!(short.code(), Some(Code::InvalidArgument));
    }
}

#[test]
fn a_lease_with_too_little_time_gets_no_credential() {
    let mut scene = Scene::new();
    scene.server.partition(&scene.worker);
    let request = CredentialRequest::new(AUDIENCE, "worker", HOUR);
    let mut refused = None;
    for _ in 0..70 {
        match scene.issuer.issue_at(&scene.lease, &request, scene.now()) {
            Ok(_) => assert_eq!(refused, None, "what was refused is not signed later"),
            Err(error) => refused = refused.or(error.code()),
        }
        scene.advance(SECOND);
    }
    assert_eq!(refused, Some(Code::InvalidArgument), "before the lease was over");
    let over = scene.issuer.issue_at(&scene.lease, &request, scene.now()).expect_err("it is not held");
    assert_eq!(over.code(), Some(Code::Unavailable));
}

#[test]
fn a_revoked_credential_is_rejected_after_the_next_list() {
    let mut scene = Scene::new();
    let (credential, mut verifier) = (scene.issue(HOUR), scene.verifier());
    scene.issuer.revoke(scene.lease.token_number(), scene.now()).expect("the issuer holds its lease");
    assert_eq!(scene.verify(&verifier, &credential), Ok(()), "until the list is there");
    scene.advance(SECOND);
    scene.load_newest_list(&mut verifier);
    assert_eq!(scene.verify(&verifier, &credential), Err(CredentialError::Revoked));
    let request = CredentialRequest::new(AUDIENCE, "worker", HOUR);
    let again = scene.issuer.issue_at(&scene.lease, &request, scene.now()).expect_err("the lease was revoked");
    assert_eq!(again.code(), Some(Code::PermissionDenied));
}

#[test]
fn a_verifier_without_a_recent_list_rejects_every_credential() {
    let mut scene = Scene::new();
    let credential = scene.issue(HOUR);
    let blind =
        CredentialVerifier::new(ISSUER, AUDIENCE, &scene.issuer.jwks()).expect("the key set is valid").skew(SKEW);
    assert_eq!(scene.verify(&blind, &credential), Err(CredentialError::ListTooOld));
    let mut verifier = scene.verifier().max_list_age(10 * SECOND);
    let almost = Duration::from_millis(1);
    scene.advance(10 * SECOND + SKEW - almost);
    assert_eq!(scene.verify(&verifier, &credential), Ok(()));
    scene.advance(almost);
    assert_eq!(scene.verify(&verifier, &credential), Err(CredentialError::ListTooOld));
    scene.load_newest_list(&mut verifier);
    assert_eq!(scene.verify(&verifier, &credential), Ok(()));
}

#[test]
fn a_rotated_key_verifies_its_credentials_until_it_is_withdrawn() {
    let mut scene = Scene::new();
    let (old, mut verifier) = (scene.issue(20 * SECOND), scene.verifier());
    let next = SigningKey::generate("k2").expect("a key is generated");
    scene.issuer.update_keys(|keys| keys.publish(next)).expect("the name is new");
    verifier.set_keys(&scene.issuer.jwks()).expect("the key set is valid");
    scene.issuer.update_keys(|keys| keys.sign_with("k2")).expect("the key is published");
    scene.load_newest_list(&mut verifier);
    let new = scene.issue(20 * SECOND);
    assert_eq!((scene.verify(&verifier, &old), scene.verify(&verifier, &new)), (Ok(()), Ok(())));
    let early = scene.issuer.update_keys(|keys| keys.withdraw("k1", scene.now())).expect_err("what it signed is valid");
    assert_eq!(early.code(), Some(Code::InvalidArgument));
    let signs = scene.issuer.update_keys(|keys| keys.revoke("k2")).expect_err("signing succeeds");
    assert_eq!(signs.code(), Some(Code::InvalidArgument));
    scene.advance(20 * SECOND + SKEW);
    scene.issuer.update_keys(|keys| keys.withdraw("k1", scene.now())).expect("nothing of it is valid");
    assert!(!scene.issuer.jwks().contains("k1"));
    verifier.set_keys(&scene.issuer.jwks()).expect("the key set is valid");
    assert_eq!(scene.verify(&verifier, &old), Err(CredentialError::Key));
}

#[test]
fn a_stolen_key_is_rejected_after_the_next_list_although_the_verifier_still_has_it() {
    let mut scene = Scene::new();
    let (credential, mut verifier) = (scene.issue(HOUR), scene.verifier());
    let stolen_list = scene.issuer.revocation_list(scene.now()).expect("the issuer holds its lease");
    let next = SigningKey::generate("k2").expect("a key is generated");
    scene.issuer.update_keys(|keys| keys.publish(next)).expect("the name is new");
    verifier.set_keys(&scene.issuer.jwks()).expect("the key set is valid");
    scene.issuer.update_keys(|keys| keys.sign_with("k2").and_then(|()| keys.revoke("k1"))).expect("another one signs");
    assert_eq!(scene.verify(&verifier, &credential), Ok(()), "until the list is there");
    scene.advance(SECOND);
    scene.load_newest_list(&mut verifier);
    assert_eq!(scene.verify(&verifier, &credential), Err(CredentialError::Key));
    assert_eq!(
        verifier.set_revocation_list_at(&stolen_list, scene.now()),
        Err(CredentialError::Key),
        "and it signs no list any more"
    );
}

#[test]
fn an_issuer_without_its_lease_signs_nothing_and_its_list_is_older_than_its_successors() {
    let mut scene = Scene::new();
    let (credential, mut verifier) = (scene.issue(HOUR), scene.verifier());
    let late = scene.issuer.revocation_list(scene.now()).expect("the issuer holds its lease");
    let key =
        SigningKey::from_pkcs8("k1", scene.issuer.update_keys(|keys| keys.sign_until(0).pkcs8().to_vec()).as_slice());
    scene.issuer.revoke(scene.lease.token_number(), scene.now()).expect("the issuer holds its lease");
    let last = scene.issuer.revocation_list(scene.now()).expect("the issuer holds its lease");
    scene.server.partition(&scene.issuing);
    scene.advance(61 * SECOND);
    let refused = scene.issuer.revocation_list(scene.now()).expect_err("it does not hold");
    assert_eq!(refused.code(), Some(Code::Unavailable));
    let other = scene.server.client("issuing-2");
    let issuer_lease = block_on(other.lock("issuers/example").acquire()).expect("the first lease expired");
    let keys = SigningKeys::new(key.expect("the same key"));
    let successor = CredentialIssuer::new(ISSUER, issuer_lease.handle().clone(), keys)
        .expect("the name is valid")
        .skew(SKEW)
        .max_lifetime(HOUR);
    successor.restore_revocations(&last, scene.now()).expect("it is its predecessor's");
    let list = successor.revocation_list(scene.now()).expect("the issuer holds its lease");
    verifier.set_revocation_list_at(&list, scene.now()).expect("the list is the newest");
    assert_eq!(verifier.set_revocation_list_at(&late, scene.now()), Err(CredentialError::ListBehind));
    let denied = verifier.verify_at(&credential, "jobs/settle", scene.now() - 60 * SECOND);
    assert_eq!(denied, Err(CredentialError::Revoked), "what the predecessor revoked stays so");
    drop(issuer_lease);
}

#[test]
fn the_clock_skew_is_tolerated_on_both_sides_and_no_further() {
    let scene = Scene::new();
    let (credential, verifier) = (scene.issue(10 * SECOND), scene.verifier());
    let at = |now| verifier.verify_at(&credential, "jobs/settle", now).map(drop);
    assert_eq!(at(scene.now() - SKEW), Ok(()));
    assert_eq!(at(scene.now() - SKEW - SECOND), Err(CredentialError::NotYet));
    assert_eq!(at(scene.now() + 10 * SECOND + SKEW - Duration::from_millis(1)), Ok(()));
    assert_eq!(at(scene.now() + 10 * SECOND + SKEW), Err(CredentialError::Expired));
}
