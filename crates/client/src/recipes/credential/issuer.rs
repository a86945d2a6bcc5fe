//! The issuer: itself a holder, which signs only while it holds, and never beyond the lease that it signs for.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use jsonwebtoken::{Algorithm, Header};
use leasehold_core::lease::Rung;
use leasehold_core::limits::DRAIN_DEFAULT;
use leasehold_core::name::HolderName;
use leasehold_core::refusal::Refusal;
use leasehold_core::token::{Number, Token};
use serde::Serialize;

use super::claims::{CREDENTIAL, Claims, LIFE_MOST, LIST, List, SKEW, SKEW_MOST, seconds};
use super::faults::{self, Fault};
use super::keys::Keys;
use super::verifier::Verifier;
use crate::look::checked;
use crate::{Client, Code, Error, Held, Hold, RateError};

/// The longest life of a credential, unless said otherwise: what a stolen one reaches, it reaches for so long.
const LIFE: Duration = Duration::from_secs(300);
/// Most entries of a list.
const REVOKED: usize = 4_096;

/// Signs credentials. Its own lease makes it the only one: without it nothing is signed.
pub struct Issuer {
    name: String,
    hold: Hold,
    skew: u64,
    life: u64,
    state: Mutex<State>,
}

struct State {
    keys: Keys,
    /// Credentials and lists that were signed, counted together.
    signed: u64,
    revoked: BTreeMap<u64, u64>,
}

/// What a credential is to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish<'a> {
    /// Who is to believe it.
    pub audience: &'a str,
    /// Who holds.
    pub subject: &'a str,
    /// How long it should live; less if the lease, or the issuer's bound, has less.
    pub life: Duration,
}

/// The lease that a credential is bound to, and what is left of it.
struct Bound<'a> {
    resource: &'a str,
    token: Token,
    left: Duration,
}

impl Issuer {
    /// An issuer of this name, under its own lease.
    pub fn new(name: &str, hold: Hold, keys: Keys) -> Result<Self, Error> {
        if !(1..=512).contains(&name.len()) || name.chars().any(char::is_control) {
            return Err(Error::invalid("issuer", "1 to 512 bytes without control characters"));
        }
        let state = State { keys, signed: 0, revoked: BTreeMap::new() };
        let (skew, life) = (SKEW.as_secs(), LIFE.as_secs());
        Ok(Self { name: name.to_owned(), hold, skew, life, state: Mutex::new(state) })
    }

    /// How far apart the clocks of issuer and verifiers may be, in whole seconds. Twice this is taken off every lease.
    #[must_use]
    pub fn skew(mut self, skew: Duration) -> Self {
        self.skew = skew.min(SKEW_MOST).as_secs();
        self
    }

    /// The longest life of a credential.
    #[must_use]
    pub fn longest(mut self, life: Duration) -> Self {
        self.life = life.min(LIFE_MOST).as_secs();
        self
    }

    /// A credential for a lease that this process holds.
    pub fn for_hold(&self, hold: &Hold, wish: &Wish<'_>) -> Result<String, Error> {
        self.for_hold_at(hold, wish, SystemTime::now())
    }

    pub(super) fn for_hold_at(&self, hold: &Hold, wish: &Wish<'_>, now: SystemTime) -> Result<String, Error> {
        if !hold.is_held() {
            return Err(
                Error::unavailable("the lease is not held now").then("Wait until it is held again, or acquire it.")
            );
        }
        let token = Token::parse(&hold.token()).map_err(Error::garbled)?;
        self.sign(&Bound { resource: hold.resource(), token, left: hold.left() }, wish, now)
    }

    /// A credential for a lease that another process holds and shows the token of. The grantor is asked whether it is
    /// current, and for how long.
    pub async fn for_token(
        &self,
        client: &Client,
        resource: &str,
        token: &str,
        wish: &Wish<'_>,
    ) -> Result<String, Error> {
        let token = Token::parse(token).map_err(|wrong| Error::from(&Refusal::from(wrong)))?;
        // Both clocks are read before the asking: what is left was left then or later.
        let (now, rate): (_, RateError) = (SystemTime::now(), client.shared.options.rate_error);
        let confirmed = client.confirm(&Held::of(resource, token)).await?;
        // A handoff can end the lease within its drain period, whenever it begins.
        let charter = client.charters(Some(resource)).await?.pop().and_then(|(_, charter)| charter.handoff);
        let drain_ms = charter.map_or(DRAIN_DEFAULT, |handoff| handoff.drain_ms);
        let current = confirmed.current();
        let left_ms = [Some(current.remaining_ms), Some(drain_ms), current.drain_ms].into_iter().flatten().min();
        let left = Duration::from_millis(rate.shorter(left_ms.unwrap_or(0)));
        self.sign(&Bound { resource, token, left }, wish, now)
    }

    /// K1: what a verifier believes until its clock shows expiry and skew is over before the lease is, on any two clocks
    /// within the skew.
    fn sign(&self, bound: &Bound<'_>, wish: &Wish<'_>, now: SystemTime) -> Result<String, Error> {
        checked(HolderName::parse(wish.subject))?;
        if wish.audience.is_empty() || wish.audience.len() > 512 {
            return Err(Error::invalid("audience", "1 to 512 bytes"));
        }
        self.may_sign()?;
        let start = seconds(now);
        let wanted = start.saturating_add(wish.life.as_secs().min(self.life));
        let lease_ends = seconds(now + bound.left).saturating_sub(2 * self.skew);
        let exp = if faults::on(Fault::LeaseOutlived) { wanted } else { lease_ends.min(wanted) };
        if exp <= start {
            let least = 2 * self.skew + 1;
            let reason = format_args!(
                "too short: it takes more than {least} s of the lease, and of the drain period in its charter, and 1 s of life"
            );
            return Err(Error::invalid("life", reason));
        }
        let number = bound.token.number.get();
        let mut state = self.lock();
        if state.revoked.contains_key(&number) {
            return Err(Error::new(Code::PermissionDenied, "the lease's credentials were revoked"));
        }
        state.signed += 1;
        let claims = Claims {
            iss: self.name.clone(),
            aud: wish.audience.to_owned(),
            sub: wish.subject.to_owned(),
            jti: format!("{}-{}", self.hold.token_number().get(), state.signed),
            iat: start,
            nbf: start,
            exp,
            resource: bound.resource.to_owned(),
            token: bound.token.to_string(),
            number: number.to_string(),
            rung: Rung::Issuer.word().to_owned(),
        };
        seal(&mut state.keys, CREDENTIAL, &claims, exp + self.skew)
    }

    /// Nothing that was signed for a lease is to be believed any more, and nothing more is signed for it. It counts when
    /// verifiers have loaded the next list.
    pub fn revoke(&self, lease: Number, now: SystemTime) -> Result<(), Error> {
        self.may_sign()?;
        let mut state = self.lock();
        let over = seconds(now);
        state.revoked.retain(|_, until| *until > over);
        if state.revoked.len() >= REVOKED {
            let reason = format_args!("more than {REVOKED} at a time; give the key up instead");
            return Err(Error::invalid("lease", reason));
        }
        state.revoked.insert(lease.get(), over + self.life + 2 * self.skew + 1);
        Ok(())
    }

    /// The list of what is over, signed. Publish it more often than the age at which verifiers refuse it.
    pub fn list(&self, now: SystemTime) -> Result<String, Error> {
        self.may_sign()?;
        let mut state = self.lock();
        let iat = seconds(now);
        state.revoked.retain(|_, until| *until > iat);
        state.signed += 1;
        let list = List {
            iss: self.name.clone(),
            iat,
            number: self.hold.token_number().get().to_string(),
            sequence: state.signed,
            keys: state.keys.names(),
            revoked: state.revoked.iter().map(|(number, until)| (number.to_string(), *until)).collect(),
        };
        seal(&mut state.keys, LIST, &list, iat)
    }

    /// Goes on with what an earlier issuer of this name had revoked, by its last list. Its keys must be among these.
    pub fn carry_on(&self, list: &str, now: SystemTime) -> Result<(), Error> {
        let mut reader = Verifier::new(&self.name, "-", &self.jwks())?.skew(Duration::from_secs(self.skew));
        let before = reader.load_list(list, now)?;
        let entries = before.revoked.iter().filter_map(|(number, until)| Some((number.parse().ok()?, *until)));
        self.lock().revoked.extend(entries);
        Ok(())
    }

    /// The public keys as a JSON web key set: what verifiers load.
    pub fn jwks(&self) -> String {
        self.lock().keys.jwks()
    }

    /// Changes the keys: introduce, sign with, withdraw.
    pub fn rotate<T>(&self, change: impl FnOnce(&mut Keys) -> T) -> T {
        change(&mut self.lock().keys)
    }

    fn may_sign(&self) -> Result<(), Error> {
        if self.hold.is_held() {
            Ok(())
        } else {
            Err(Error::unavailable("this issuer does not hold its own lease")
                .then("Wait until it does, or ask its successor."))
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn seal(keys: &mut Keys, kind: &str, claims: &impl Serialize, until: u64) -> Result<String, Error> {
    let key = keys.sign_until(until);
    let header =
        Header { typ: Some(kind.to_owned()), kid: Some(key.name().to_owned()), ..Header::new(Algorithm::EdDSA) };
    let unable = |why| Error::new(Code::StorageFailed, format!("it could not be signed: {why}"));
    jsonwebtoken::encode(&header, claims, key.signing()).map_err(unable)
}

/// Without the keys.
impl fmt::Debug for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issuer").field("name", &self.name).field("hold", &self.hold).finish_non_exhaustive()
    }
}
