//! Taking a lease, keeping it, giving it back: one call each.

use std::fmt;
use std::time::Duration;

use leasehold_core::command::{Acquire, AcquireAll, Current, Grant, HandOff, Which};
#[cfg(any(test, feature = "testing"))]
use leasehold_core::command::{Command, Renew};
use leasehold_core::name::resource_hash;
use leasehold_core::token::Token;
use leasehold_wire::json::{CurrentBody, GrantBody};
use leasehold_wire::{lease_bits, read_current, read_grant, v1};

use crate::route::Nature;
use crate::{Client, Error};

/// A lease as its holder names it: which one, and the token that shows it.
#[derive(Clone, Copy, Debug)]
pub struct Held<'a> {
    /// By id, or by resource.
    pub lease: Which<'a>,
    /// Its token.
    pub token: Token,
    /// The holder's name, if it should be compared.
    pub holder: Option<&'a str>,
}

impl<'a> Held<'a> {
    /// The lease on a resource.
    pub const fn of(resource: &'a str, token: Token) -> Self {
        Self { lease: Which::Resource(resource), token, holder: None }
    }

    #[cfg(any(test, feature = "testing"))]
    const fn shown(&self) -> leasehold_core::command::Held<'a> {
        let (lease, number, holder) = (self.lease, self.token.number, self.holder);
        leasehold_core::command::Held { lease, number, session: None, holder }
    }

    pub(crate) fn message(&self) -> v1::Held {
        let which = match self.lease {
            Which::Id(id) => v1::held::Which::Lease(lease_bits(id)),
            Which::Resource(name) => v1::held::Which::Resource(name.into()),
        };
        v1::Held { which: Some(which), number: 0, token: self.token.to_string(), holder: self.holder.map(Into::into) }
    }
}

/// A lease that was granted.
#[derive(Clone, PartialEq)]
pub struct Granted {
    grant: Grant,
    token: Token,
    told: v1::Grant,
}

impl Granted {
    fn read(mut told: v1::Grant, resource: &str, holder: &str) -> Result<Self, Error> {
        let grant = read_grant(&told).map_err(Error::garbled)?;
        let token = Token::parse(&told.token).map_err(Error::garbled)?;
        if token.number != grant.number || token.reach != grant.reach || token.resource != resource_hash(resource) {
            return Err(Error::garbled("the token is not the grant's"));
        }
        told.resource = resource.into();
        told.holder = holder.into();
        Ok(Self { grant, token, told })
    }

    /// What fences take. Its text is what its `Display` prints.
    pub const fn token(&self) -> Token {
        self.token
    }

    /// The grant in the core's words.
    pub const fn grant(&self) -> &Grant {
        &self.grant
    }

    /// The resource.
    pub fn resource(&self) -> &str {
        &self.told.resource
    }

    /// The grant as the HTTP interface tells it.
    pub fn body(&self) -> GrantBody {
        self.told.clone().into()
    }
}

/// Without the token's text: it must not reach a log.
impl fmt::Debug for Granted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Granted").field("resource", &self.told.resource).field("grant", &self.grant).finish()
    }
}

/// A lease that was found current, or extended.
#[derive(Clone, PartialEq)]
pub struct Renewed {
    current: Current,
    token: Token,
    told: v1::Current,
}

impl Renewed {
    fn read(told: v1::Current, shown: Token) -> Result<Self, Error> {
        let current = read_current(&told).map_err(Error::garbled)?;
        let token = match told.token.as_str() {
            "" => Token { number: current.number, ..shown },
            raised => Token::parse(raised).map_err(Error::garbled)?,
        };
        if token.number != current.number {
            return Err(Error::garbled("the token is not the lease's"));
        }
        Ok(Self { current, token, told })
    }

    /// The lease's token: the one that was shown, unless it was raised.
    pub const fn token(&self) -> Token {
        self.token
    }

    /// The lease in the core's words.
    pub const fn current(&self) -> &Current {
        &self.current
    }

    /// The lease as the HTTP interface tells it.
    pub fn body(&self, resource: &str) -> CurrentBody {
        CurrentBody::new(resource, self.told.clone())
    }
}

/// Without the token's text: it must not reach a log.
impl fmt::Debug for Renewed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renewed").field("current", &self.current).finish_non_exhaustive()
    }
}

impl Client {
    /// Takes a lease, now or after waiting.
    pub async fn acquire(&self, ask: &Acquire<'_>) -> Result<Granted, Error> {
        #[cfg(any(test, feature = "testing"))]
        if let Some(told) = self.of_memory(Command::Acquire(*ask), ask.resource) {
            return match told? {
                v1::response::Answer::Granted(told) => self.granted(told, ask.resource, ask.holder),
                _ => Err(Error::garbled("another answer than a grant")),
            };
        }
        let wait = Duration::from_millis(ask.terms.wait_ms);
        let send = |mut to: To, ask| async move { to.acquire(ask).await };
        let told = self.call(Nature::Change, wait, v1::Acquire::from(ask), send).await?;
        self.granted(told, ask.resource, ask.holder)
    }

    /// Takes several leases: all or none.
    pub async fn acquire_all(&self, ask: &AcquireAll<'_>) -> Result<Vec<Granted>, Error> {
        let wait = Duration::from_millis(ask.terms.wait_ms);
        let send = |mut to: To, ask| async move { to.acquire_all(ask).await };
        let told = self.call(Nature::Change, wait, v1::AcquireAll::from(ask), send).await?;
        if told.grants.len() != ask.wanted.len() {
            return Err(Error::garbled("another number of grants than was asked for"));
        }
        let each = told.grants.into_iter().zip(ask.wanted);
        each.map(|(grant, (resource, _))| self.granted(grant, resource, ask.holder)).collect()
    }

    fn granted(&self, told: v1::Grant, resource: &str, holder: &str) -> Result<Granted, Error> {
        let granted = Granted::read(told, resource, holder)?;
        self.saw(granted.token);
        Ok(granted)
    }

    /// Extends a lease; with another ttl, or with evidence of progress, if there is any.
    pub async fn renew(&self, held: &Held<'_>, ttl_ms: Option<u64>, progress: Option<u64>) -> Result<Renewed, Error> {
        #[cfg(any(test, feature = "testing"))]
        if let Some(told) = self.of_memory(Command::Renew(Renew { held: held.shown(), ttl_ms, progress }), "") {
            return current_of(told?, held.token);
        }
        let ask = v1::Renew { held: Some(held.message()), ttl_ms, progress };
        let send = |mut to: To, ask| async move { to.renew(ask).await };
        let told = self.call(Nature::Again, Duration::ZERO, ask, send).await?;
        let renewed = Renewed::read(told, held.token)?;
        self.saw(renewed.token);
        Ok(renewed)
    }

    /// Whether a lease is current, at a moment inside of this call.
    pub async fn confirm(&self, held: &Held<'_>) -> Result<Renewed, Error> {
        #[cfg(any(test, feature = "testing"))]
        if let Some(told) = self.of_memory(Command::Confirm(held.shown()), "") {
            return current_of(told?, held.token);
        }
        let send = |mut to: To, ask| async move { to.confirm(ask).await };
        let told = self.call(Nature::Look, Duration::ZERO, held.message(), send).await?;
        Renewed::read(told, held.token)
    }

    /// Gives a lease back.
    pub async fn release(&self, held: &Held<'_>) -> Result<(), Error> {
        #[cfg(any(test, feature = "testing"))]
        if let Some(told) = self.of_memory(Command::Release(held.shown()), "") {
            return told.map(drop);
        }
        let send = |mut to: To, ask| async move { to.release(ask).await };
        self.call(Nature::Change, Duration::ZERO, held.message(), send).await.map(drop)
    }

    /// Turns a hold into a commitment.
    pub async fn confirm_hold(&self, held: &Held<'_>) -> Result<(), Error> {
        #[cfg(any(test, feature = "testing"))]
        if let Some(told) = self.of_memory(Command::ConfirmHold(held.shown()), "") {
            return told.map(drop);
        }
        let send = |mut to: To, ask| async move { to.confirm_hold(ask).await };
        self.call(Nature::Change, Duration::ZERO, held.message(), send).await.map(drop)
    }

    /// Asks for more or fewer units of a hold.
    pub async fn resize_hold(&self, held: &Held<'_>, units: u32) -> Result<Renewed, Error> {
        #[cfg(any(test, feature = "testing"))]
        if let Some(told) = self.of_memory(Command::ResizeHold { held: held.shown(), units }, "") {
            return current_of(told?, held.token);
        }
        let ask = v1::ResizeHold { held: Some(held.message()), units };
        let send = |mut to: To, ask| async move { to.resize_hold(ask).await };
        let told = self.call(Nature::Again, Duration::ZERO, ask, send).await?;
        Renewed::read(told, held.token)
    }

    /// Keeps a hold over its expiry while an obligation is in flight, as far as its charter lets it.
    pub async fn veto(&self, held: &Held<'_>, for_ms: u64) -> Result<Renewed, Error> {
        #[cfg(any(test, feature = "testing"))]
        if let Some(told) = self.of_memory(Command::Veto { held: held.shown(), for_ms }, "") {
            return current_of(told?, held.token);
        }
        let ask = v1::Veto { held: Some(held.message()), for_ms };
        let send = |mut to: To, ask| async move { to.veto(ask).await };
        let told = self.call(Nature::Again, Duration::ZERO, ask, send).await?;
        Renewed::read(told, held.token)
    }

    /// Begins a planned transfer. The holder shows its token, an operator does not.
    pub async fn hand_off(&self, ask: &HandOff<'_>, token: Option<Token>) -> Result<(), Error> {
        let token = token.map(|token| token.to_string()).unwrap_or_default();
        let ask = v1::HandOff { token, ..ask.into() };
        let send = |mut to: To, ask| async move { to.hand_off(ask).await };
        self.call(Nature::Change, Duration::ZERO, ask, send).await.map(drop)
    }

    /// Tells that the predecessor of a handoff has stopped.
    pub async fn drained(&self, held: &Held<'_>) -> Result<(), Error> {
        let send = |mut to: To, ask| async move { to.drained(ask).await };
        self.call(Nature::Change, Duration::ZERO, held.message(), send).await.map(drop)
    }
}

/// The service as calls are sent to it.
pub(crate) type To = leasehold_wire::v1::leasehold_client::LeaseholdClient<tonic::transport::Channel>;

#[cfg(any(test, feature = "testing"))]
fn current_of(told: v1::response::Answer, shown: Token) -> Result<Renewed, Error> {
    match told {
        v1::response::Answer::Current(told) => Renewed::read(told, shown),
        _ => Err(Error::garbled("another answer than a current lease")),
    }
}
