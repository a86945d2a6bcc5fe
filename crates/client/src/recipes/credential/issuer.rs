//! The issuer of credentials. It is a holder itself: it signs only while it holds its own lease, and never beyond the lease that
//! it signs for.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use jsonwebtoken::{Algorithm, Header};
use leasehold_core::lease::Validity;
use leasehold_core::limits::DRAIN_DEFAULT;
use leasehold_core::name::HolderName;
use leasehold_core::refusal::Refusal;
use leasehold_core::token::Number;
use serde::Serialize;

use super::claims::{
    CREDENTIAL, CredentialClaims, MAX_LIFETIME, MAX_SKEW, REVOCATION_LIST, RevocationList, SKEW, seconds,
};
use super::keys::SigningKeys;
use super::mutants::{self, CredentialMutant};
use super::verifier::CredentialVerifier;
use crate::{Client, Code, Error, FencingToken, HeldLease, LeaseHandle};

/// Default limit on the lifetime of a credential: how long a stolen one is valid at most.
const LIFETIME: Duration = Duration::from_secs(300);
/// Limit on the entries of a revocation list.
const MAX_REVOKED: usize = 4_096;

/// Signs credentials. Its own lease makes it the only issuer; without the lease it signs nothing.
pub struct CredentialIssuer {
    name: String,
    handle: LeaseHandle,
    skew: u64,
    max_lifetime: u64,
    state: Mutex<IssuerState>,
}

struct IssuerState {
    keys: SigningKeys,
    /// Number of signed credentials and lists.
    signed: u64,
    /// Revoked token numbers, and until when each stays on the list.
    revoked: BTreeMap<u64, u64>,
}

/// Contents of a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CredentialRequest<'a> {
    /// The verifier that the credential is for.
    pub audience: &'a str,
    /// Name of the holder.
    pub subject: &'a str,
    /// Requested lifetime; shortened to the rest of the lease and to the issuer's limit.
    pub lifetime: Duration,
}

impl<'a> CredentialRequest<'a> {
    /// A request with all its fields.
    pub const fn new(audience: &'a str, subject: &'a str, lifetime: Duration) -> Self {
        Self { audience, subject, lifetime }
    }
}

/// The lease that a credential is bound to, and its remaining time.
struct BoundLease<'a> {
    resource: &'a str,
    token: FencingToken,
    remaining: Duration,
}

impl CredentialIssuer {
    /// An issuer with this name, under its own lease.
    pub fn new(name: &str, handle: LeaseHandle, keys: SigningKeys) -> Result<Self, Error> {
        if !(1..=512).contains(&name.len()) || name.chars().any(char::is_control) {
            return Err(Error::invalid("issuer", "1 to 512 bytes without control characters"));
        }
        let state = IssuerState { keys, signed: 0, revoked: BTreeMap::new() };
        let (skew, max_lifetime) = (SKEW.as_secs(), LIFETIME.as_secs());
        Ok(Self { name: name.to_owned(), handle, skew, max_lifetime, state: Mutex::new(state) })
    }

    /// Largest difference between the clocks of issuer and verifiers, in whole seconds. Twice this is subtracted from the lease.
    #[must_use]
    pub fn skew(mut self, skew: Duration) -> Self {
        self.skew = skew.min(MAX_SKEW).as_secs();
        self
    }

    /// Limits the lifetime of a credential. Default: 300 s.
    #[must_use]
    pub fn max_lifetime(mut self, max: Duration) -> Self {
        self.max_lifetime = max.min(MAX_LIFETIME).as_secs();
        self
    }

    /// Signs a credential for a lease that this process holds.
    pub fn issue(&self, handle: &LeaseHandle, request: &CredentialRequest<'_>) -> Result<String, Error> {
        self.issue_at(handle, request, SystemTime::now())
    }

    pub(super) fn issue_at(
        &self,
        handle: &LeaseHandle,
        request: &CredentialRequest<'_>,
        now: SystemTime,
    ) -> Result<String, Error> {
        if !handle.is_held() {
            return Err(Error::unavailable("the lease is not held now")
                .with_next_step("Wait until it is held again, or acquire it."));
        }
        let lease = BoundLease { resource: handle.resource(), token: handle.token(), remaining: handle.remaining() };
        self.sign(&lease, request, now)
    }

    /// Signs a credential for a lease of another process, by its token. Asks the grantor whether the lease is current, and for how
    /// long.
    pub async fn issue_for_token(
        &self,
        client: &Client,
        resource: &str,
        token: &str,
        request: &CredentialRequest<'_>,
    ) -> Result<String, Error> {
        let token = FencingToken::parse(token).map_err(|wrong| Error::from(&Refusal::from(wrong)))?;
        // The clock is read before the request: the remaining time counts from then or later.
        let (now, clock_drift) = (SystemTime::now(), client.session_config().clock_drift);
        let lease = client.check(&HeldLease::new(resource, token)).await?;
        // A handoff can end the lease within its drain period at any time.
        let charter = client.charters(Some(resource)).await?.pop().and_then(|(_, charter)| charter.handoff);
        let drain_ms = charter.map_or(DRAIN_DEFAULT, |handoff| handoff.drain_ms);
        let current = lease.current();
        let remaining_ms = [Some(current.remaining_ms), Some(drain_ms), current.drain_ms].into_iter().flatten().min();
        let remaining = Duration::from_millis(clock_drift.shrink(remaining_ms.unwrap_or(0)));
        self.sign(&BoundLease { resource, token, remaining }, request, now)
    }

    /// Signs a credential that every verifier with a clock within the skew rejects before the lease ends (K1).
    fn sign(&self, lease: &BoundLease<'_>, request: &CredentialRequest<'_>, now: SystemTime) -> Result<String, Error> {
        HolderName::parse(request.subject)?;
        if request.audience.is_empty() || request.audience.len() > 512 {
            return Err(Error::invalid("audience", "1 to 512 bytes"));
        }
        self.may_sign()?;
        let start = seconds(now);
        let requested = start.saturating_add(request.lifetime.as_secs().min(self.max_lifetime));
        let lease_ends = seconds(now + lease.remaining).saturating_sub(2 * self.skew);
        let exp = if mutants::on(CredentialMutant::LeaseOutlived) { requested } else { lease_ends.min(requested) };
        if exp <= start {
            let min = 2 * self.skew + 1;
            let reason = format_args!(
                "too short: the lease and the drain period of its charter need more than {min} s, and the lifetime 1 s"
            );
            return Err(Error::invalid("lifetime", reason));
        }
        let number = lease.token.number().get();
        let mut state = self.lock();
        if state.revoked.contains_key(&number) {
            return Err(Error::new(Code::PermissionDenied, "the credentials of this lease were revoked"));
        }
        state.signed += 1;
        let claims = CredentialClaims {
            iss: self.name.clone(),
            aud: request.audience.to_owned(),
            sub: request.subject.to_owned(),
            jti: format!("{}-{}", self.handle.token_number().get(), state.signed),
            iat: start,
            nbf: start,
            exp,
            resource: lease.resource.to_owned(),
            token: lease.token.to_string(),
            number: number.to_string(),
            validity: Validity::Issuer.word().to_owned(),
        };
        sign_claims(&mut state.keys, CREDENTIAL, &claims, exp + self.skew)
    }

    /// Revokes all credentials of a lease, by its token number, and signs no more for it. Takes effect when verifiers have loaded the
    /// next revocation list.
    pub fn revoke(&self, token_number: Number, now: SystemTime) -> Result<(), Error> {
        self.may_sign()?;
        let mut state = self.lock();
        let now = seconds(now);
        state.revoked.retain(|_, until| *until > now);
        if state.revoked.len() >= MAX_REVOKED {
            let reason = format_args!("more than {MAX_REVOKED} at a time; revoke the signing key instead");
            return Err(Error::invalid("token_number", reason));
        }
        state.revoked.insert(token_number.get(), now + self.max_lifetime + 2 * self.skew + 1);
        Ok(())
    }

    /// Signs the revocation list. Publish it more often than the maximum age that verifiers accept.
    pub fn revocation_list(&self, now: SystemTime) -> Result<String, Error> {
        self.may_sign()?;
        let mut state = self.lock();
        let iat = seconds(now);
        state.revoked.retain(|_, until| *until > iat);
        state.signed += 1;
        let list = RevocationList {
            iss: self.name.clone(),
            iat,
            number: self.handle.token_number().get().to_string(),
            sequence: state.signed,
            keys: state.keys.names(),
            revoked: state.revoked.iter().map(|(number, until)| (number.to_string(), *until)).collect(),
        };
        sign_claims(&mut state.keys, REVOCATION_LIST, &list, iat)
    }

    /// Restores the revocations of an earlier issuer with this name from its last list. Its keys must be among these keys.
    pub fn restore_revocations(&self, list: &str, now: SystemTime) -> Result<(), Error> {
        let mut verifier = CredentialVerifier::new(&self.name, "-", &self.jwks())?.skew(Duration::from_secs(self.skew));
        let earlier = verifier.load_revocation_list(list, now)?;
        let entries = earlier.revoked.iter().filter_map(|(number, until)| Some((number.parse().ok()?, *until)));
        self.lock().revoked.extend(entries);
        Ok(())
    }

    /// The public keys as a JSON web key set, for verifiers.
    pub fn jwks(&self) -> String {
        self.lock().keys.jwks()
    }

    /// Changes the signing keys: publish, sign with, withdraw.
    pub fn update_keys<T>(&self, change: impl FnOnce(&mut SigningKeys) -> T) -> T {
        change(&mut self.lock().keys)
    }

    fn may_sign(&self) -> Result<(), Error> {
        if self.handle.is_held() {
            Ok(())
        } else {
            Err(Error::unavailable("this issuer does not hold its own lease")
                .with_next_step("Wait until it does, or use its successor."))
        }
    }

    fn lock(&self) -> MutexGuard<'_, IssuerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn sign_claims(keys: &mut SigningKeys, kind: &str, claims: &impl Serialize, until: u64) -> Result<String, Error> {
    let key = keys.sign_until(until);
    let header =
        Header { typ: Some(kind.to_owned()), kid: Some(key.name().to_owned()), ..Header::new(Algorithm::EdDSA) };
    let failed = |error| Error::new(Code::StorageFailed, format!("signing failed: {error}"));
    jsonwebtoken::encode(&header, claims, key.signing()).map_err(failed)
}

/// Omits the keys.
impl fmt::Debug for CredentialIssuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialIssuer")
            .field("name", &self.name)
            .field("lease", &self.handle)
            .finish_non_exhaustive()
    }
}
