//! Leases without a session, as unary calls: acquire, renew, check, release, hand off.
//!
//! Nothing renews these leases by itself; [`Client::lock`](crate::Client::lock) does.

use std::fmt;
use std::time::Duration;

use leasehold_core::command::{Acquire, AcquireAll, CurrentLease, Grant, Handoff, LeaseSelector};
#[cfg(any(test, feature = "testing"))]
use leasehold_core::command::{Command, LeaseRef, Renew};
use leasehold_core::ids::SessionId;
use leasehold_core::name::resource_hash;
use leasehold_core::secret::LeaseSecret;
use leasehold_core::token::Token;
use leasehold_wire::json::{CurrentLeaseBody, GrantBody};
use leasehold_wire::{decode_current, decode_grant, lease_bits, v1};
use zeroize::Zeroize;

use crate::failover::RetrySafety;
use crate::server_pool::GrpcClient;
use crate::{Client, Error, FencingToken, StampedToken};

/// A lease and the token that proves it, as arguments of a call.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HeldLease<'a> {
    /// The lease, by id or by resource.
    pub lease: LeaseSelector<'a>,
    /// Token of the lease.
    pub token: FencingToken,
    /// Holder name, if the grantor is to compare it.
    pub holder: Option<&'a str>,
}

impl<'a> HeldLease<'a> {
    /// The lease on a resource.
    pub fn new(resource: &'a str, token: impl Into<FencingToken>) -> Self {
        Self::select(LeaseSelector::Resource(resource), token)
    }

    /// A lease by id or by resource.
    pub fn select(lease: LeaseSelector<'a>, token: impl Into<FencingToken>) -> Self {
        Self { lease, token: token.into(), holder: None }
    }

    /// Lets the grantor compare the holder name.
    #[must_use]
    pub const fn holder(mut self, holder: &'a str) -> Self {
        self.holder = Some(holder);
        self
    }

    #[cfg(any(test, feature = "testing"))]
    const fn lease_ref(&self) -> LeaseRef<'a> {
        let (lease, number, holder) = (self.lease, self.token.number(), self.holder);
        LeaseRef { selector: lease, number, session: None, holder }
    }

    fn message(&self) -> v1::LeaseRef {
        let selector = match self.lease {
            LeaseSelector::Id(id) => v1::lease_ref::Selector::Lease(lease_bits(id)),
            LeaseSelector::Resource(name) => v1::lease_ref::Selector::Resource(name.into()),
        };
        let (token, holder) = (self.token.to_string(), self.holder.map(Into::into));
        v1::LeaseRef { selector: Some(selector), token_number: 0, token, holder }
    }
}

/// A granted lease.
#[derive(Clone)]
pub struct GrantedLease {
    grant: Grant,
    token: FencingToken,
    secret: Option<LeaseSecret>,
    stamped: Vec<StampedToken>,
    /// Without the secret.
    message: v1::Grant,
}

impl GrantedLease {
    fn decode(mut message: v1::Grant, resource: &str, holder: &str) -> Result<Self, Error> {
        let grant = decode_grant(&message).map_err(Error::invalid_reply)?;
        let token = FencingToken::parse(&message.token).map_err(Error::invalid_reply)?;
        let Token { number, scope, resource: hash, .. } = token.parsed();
        if number != grant.number || scope != grant.scope || hash != resource_hash(resource) {
            return Err(Error::invalid_reply("the token does not belong to the grant"));
        }
        message.resource = resource.into();
        // In a session, only the server knows the name of the session's holder.
        if !holder.is_empty() {
            message.holder = holder.into();
        }
        let secret = take_secret(&mut message.secret)?;
        let stamped = StampedToken::decode_all(&message.stamped_tokens, token.parsed())?;
        Ok(Self { grant, token, secret, stamped, message })
    }

    /// The secret that proves in unary calls that the caller was granted the lease, for [`Client::with_lease_secret`]. Servers before
    /// this version send none.
    pub const fn secret(&self) -> Option<&LeaseSecret> {
        self.secret.as_ref()
    }

    /// Whether unary calls about the lease need the secret, because the server has access rules.
    pub const fn is_secret_required(&self) -> bool {
        self.message.secret_required
    }

    /// The tokens with stamps, for the targets of the charter whose stamp keys the server has.
    pub fn stamped_tokens(&self) -> &[StampedToken] {
        &self.stamped
    }

    /// The token, with the text that fences accept.
    pub const fn token(&self) -> FencingToken {
        self.token
    }

    /// The grant.
    pub const fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Name of the resource.
    pub fn resource(&self) -> &str {
        &self.message.resource
    }

    /// The grant as JSON, with the field names of the HTTP API. It contains the secret.
    pub fn body(&self) -> GrantBody {
        GrantBody { secret: self.secret.as_ref().map(LeaseSecret::expose_hex), ..self.message.clone().into() }
    }
}

/// Omits the token's text, which must not reach a log.
impl fmt::Debug for GrantedLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrantedLease").field("resource", &self.message.resource).field("grant", &self.grant).finish()
    }
}

/// A lease that was renewed, or confirmed as current.
#[derive(Clone)]
pub struct RenewedLease {
    current: CurrentLease,
    token: FencingToken,
    secret: Option<LeaseSecret>,
    stamped: Vec<StampedToken>,
    /// Without the secret.
    message: v1::CurrentLease,
}

impl RenewedLease {
    fn decode(mut message: v1::CurrentLease, presented: FencingToken) -> Result<Self, Error> {
        let current = decode_current(&message).map_err(Error::invalid_reply)?;
        let token = match message.token.as_str() {
            "" if presented.number() == current.number => presented,
            "" => Token { number: current.number, ..presented.parsed() }.into(),
            raised => FencingToken::parse(raised).map_err(Error::invalid_reply)?,
        };
        if token.number() != current.number {
            return Err(Error::invalid_reply("the token does not belong to the lease"));
        }
        let secret = take_secret(&mut message.secret)?;
        let stamped = StampedToken::decode_all(&message.stamped_tokens, token.parsed())?;
        Ok(Self { current, token, secret, stamped, message })
    }

    /// The new secret of the lease, if its token was raised.
    pub const fn secret(&self) -> Option<&LeaseSecret> {
        self.secret.as_ref()
    }

    /// The tokens with stamps, made with the newest stamp keys. A check brings none.
    pub fn stamped_tokens(&self) -> &[StampedToken] {
        &self.stamped
    }

    /// Token of the lease: the presented one, unless it was raised.
    pub const fn token(&self) -> FencingToken {
        self.token
    }

    /// State of the lease.
    pub const fn current(&self) -> &CurrentLease {
        &self.current
    }

    /// The lease as JSON, with the field names of the HTTP API. It contains the new secret, if there is one.
    pub fn body(&self, resource: &str) -> CurrentLeaseBody {
        let body = CurrentLeaseBody::new(resource, self.message.clone());
        CurrentLeaseBody { secret: self.secret.as_ref().map(LeaseSecret::expose_hex), ..body }
    }
}

/// Omits the token's text, which must not reach a log.
impl fmt::Debug for RenewedLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RenewedLease").field("current", &self.current).finish_non_exhaustive()
    }
}

/// Moves a secret out of a message and wipes it there.
fn take_secret(bytes: &mut Vec<u8>) -> Result<Option<LeaseSecret>, Error> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let secret = LeaseSecret::from_slice(bytes);
    bytes.zeroize();
    secret.map(Some).ok_or_else(|| Error::invalid_reply("a lease secret of a wrong length"))
}

impl Client {
    /// Acquires a lease, now or after waiting. A wait without a session survives a change of the leader.
    pub async fn acquire(&self, acquire: &Acquire<'_>) -> Result<GrantedLease, Error> {
        #[cfg(any(test, feature = "testing"))]
        if let Some(answer) = self.servers.memory_call(Command::Acquire(*acquire), acquire.resource) {
            return match answer? {
                v1::response::Answer::Granted(grant) => self.granted(grant, acquire.resource, acquire.holder),
                _ => Err(Error::invalid_reply("an answer other than a grant")),
            };
        }
        let wait = Duration::from_millis(acquire.options.wait_ms);
        let call = |client: Self| async move {
            let send = |mut client: GrpcClient, request| async move { client.acquire(request).await };
            client.servers.call(RetrySafety::NotIdempotent, wait, v1::Acquire::from(acquire), send).await
        };
        let grant = if self.needs_wait_session(acquire.session, wait) {
            self.call_with_wait_session(acquire.holder, wait, call).await?
        } else {
            call(self.clone()).await?
        };
        self.granted(grant, acquire.resource, acquire.holder)
    }

    /// Acquires several leases: all or none.
    pub async fn acquire_all(&self, acquire: &AcquireAll<'_>) -> Result<Vec<GrantedLease>, Error> {
        let wait = Duration::from_millis(acquire.options.wait_ms);
        let call = |client: Self| async move {
            let send = |mut client: GrpcClient, request| async move { client.acquire_all(request).await };
            client.servers.call(RetrySafety::NotIdempotent, wait, v1::AcquireAll::from(acquire), send).await
        };
        let reply = if self.needs_wait_session(acquire.session, wait) {
            self.call_with_wait_session(acquire.holder, wait, call).await?
        } else {
            call(self.clone()).await?
        };
        if reply.grants.len() != acquire.resources.len() {
            return Err(Error::invalid_reply("another number of grants than requested"));
        }
        let each = reply.grants.into_iter().zip(acquire.resources);
        each.map(|(grant, (resource, _))| self.granted(grant, resource, acquire.holder)).collect()
    }

    /// Whether a wait has neither a session nor a key of its own.
    fn needs_wait_session(&self, session: Option<SessionId>, wait: Duration) -> bool {
        !wait.is_zero() && session.is_none() && self.servers.idempotency_key.is_none()
    }

    fn granted(&self, message: v1::Grant, resource: &str, holder: &str) -> Result<GrantedLease, Error> {
        let lease = GrantedLease::decode(message, resource, holder)?;
        self.servers.observe_token(lease.token, resource);
        Ok(lease)
    }

    /// Renews a lease, optionally with another ttl or with progress.
    pub async fn renew(
        &self,
        held: &HeldLease<'_>,
        ttl_ms: Option<u64>,
        progress: Option<u64>,
    ) -> Result<RenewedLease, Error> {
        #[cfg(any(test, feature = "testing"))]
        if let Some(answer) =
            self.servers.memory_call(Command::Renew(Renew { lease: held.lease_ref(), ttl_ms, progress }), "")
        {
            return decode_current_answer(answer?, held.token);
        }
        let request = v1::Renew { lease: Some(held.message()), ttl_ms, progress };
        let send = |mut client: GrpcClient, request| async move { client.renew(request).await };
        let reply = self.servers.call(RetrySafety::Idempotent, Duration::ZERO, request, send).await?;
        let renewed = RenewedLease::decode(reply, held.token)?;
        if let LeaseSelector::Resource(resource) = held.lease {
            self.servers.observe_token(renewed.token, resource);
        }
        Ok(renewed)
    }

    /// Checks whether a lease is current at a moment during this call.
    pub async fn check(&self, held: &HeldLease<'_>) -> Result<RenewedLease, Error> {
        #[cfg(any(test, feature = "testing"))]
        if let Some(answer) = self.servers.memory_call(Command::Confirm(held.lease_ref()), "") {
            return decode_current_answer(answer?, held.token);
        }
        let send = |mut client: GrpcClient, request| async move { client.check(request).await };
        let reply = self.servers.call(RetrySafety::ReadOnly, Duration::ZERO, held.message(), send).await?;
        RenewedLease::decode(reply, held.token)
    }

    /// Releases a lease.
    pub async fn release(&self, held: &HeldLease<'_>) -> Result<(), Error> {
        #[cfg(any(test, feature = "testing"))]
        if let Some(answer) = self.servers.memory_call(Command::Release(held.lease_ref()), "") {
            return answer.map(drop);
        }
        let send = |mut client: GrpcClient, request| async move { client.release(request).await };
        self.servers.call(RetrySafety::NotIdempotent, Duration::ZERO, held.message(), send).await.map(drop)
    }

    /// Confirms a reservation: its units stay in use permanently.
    pub async fn confirm_reservation(&self, held: &HeldLease<'_>) -> Result<(), Error> {
        #[cfg(any(test, feature = "testing"))]
        if let Some(answer) = self.servers.memory_call(Command::ConfirmHold(held.lease_ref()), "") {
            return answer.map(drop);
        }
        let send = |mut client: GrpcClient, request| async move { client.confirm_hold(request).await };
        self.servers.call(RetrySafety::NotIdempotent, Duration::ZERO, held.message(), send).await.map(drop)
    }

    /// Changes the units of a reservation.
    pub async fn resize_reservation(&self, held: &HeldLease<'_>, units: u32) -> Result<RenewedLease, Error> {
        #[cfg(any(test, feature = "testing"))]
        if let Some(answer) = self.servers.memory_call(Command::ResizeHold { lease: held.lease_ref(), units }, "") {
            return decode_current_answer(answer?, held.token);
        }
        let request = v1::ResizeHold { lease: Some(held.message()), units };
        let send = |mut client: GrpcClient, request| async move { client.resize_hold(request).await };
        let reply = self.servers.call(RetrySafety::Idempotent, Duration::ZERO, request, send).await?;
        RenewedLease::decode(reply, held.token)
    }

    /// Vetoes the expiry of a reservation while an obligation is in flight, as far as its charter allows.
    pub async fn veto(&self, held: &HeldLease<'_>, for_ms: u64) -> Result<RenewedLease, Error> {
        #[cfg(any(test, feature = "testing"))]
        if let Some(answer) = self.servers.memory_call(Command::Veto { lease: held.lease_ref(), for_ms }, "") {
            return decode_current_answer(answer?, held.token);
        }
        let request = v1::Veto { lease: Some(held.message()), duration_ms: for_ms };
        let send = |mut client: GrpcClient, request| async move { client.veto(request).await };
        let reply = self.servers.call(RetrySafety::Idempotent, Duration::ZERO, request, send).await?;
        RenewedLease::decode(reply, held.token)
    }

    /// Starts a planned handoff. The holder presents its token; an operator has none.
    pub async fn handoff(&self, handoff: &Handoff<'_>, token: Option<FencingToken>) -> Result<(), Error> {
        let token = token.map(|token| token.to_string()).unwrap_or_default();
        let request = v1::Handoff { token, ..handoff.into() };
        let send = |mut client: GrpcClient, request| async move { client.handoff(request).await };
        self.servers.call(RetrySafety::NotIdempotent, Duration::ZERO, request, send).await.map(drop)
    }

    /// Reports that the predecessor of a handoff has drained.
    pub async fn finish_drain(&self, held: &HeldLease<'_>) -> Result<(), Error> {
        let send = |mut client: GrpcClient, request| async move { client.finish_drain(request).await };
        self.servers.call(RetrySafety::NotIdempotent, Duration::ZERO, held.message(), send).await.map(drop)
    }
}

#[cfg(any(test, feature = "testing"))]
fn decode_current_answer(answer: v1::response::Answer, presented: FencingToken) -> Result<RenewedLease, Error> {
    match answer {
        v1::response::Answer::Current(message) => RenewedLease::decode(message, presented),
        _ => Err(Error::invalid_reply("an answer other than a current lease")),
    }
}
