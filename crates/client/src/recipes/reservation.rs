//! Reservations: units that are reserved for a time, then confirmed permanently or canceled.
//!
//! A reservation belongs to any process that has its token, not to a process: it can be stored, and confirmed by another process. It ends
//! by its ttl alone.

use std::fmt;
use std::time::Duration;

use leasehold_core::command::{Acquire, AcquireOptions};
use leasehold_core::lease::{Access, EndReason};
use leasehold_core::limits::WAIT_MAX;
use leasehold_core::name::{Name, resource_hash};
use leasehold_core::refusal::Refusal;
use leasehold_core::token::TokenError;

use crate::lock_builder::{millis, millis_within};
use crate::{Client, Error, FencingToken, HeldLease, LeaseSecret};

/// Default ttl.
const TTL: Duration = Duration::from_secs(60);

/// Units to reserve. Nothing is sent before [`ReservationBuilder::acquire`].
#[derive(Clone, Debug)]
#[must_use = "a reservation builder does nothing until `acquire`"]
pub struct ReservationBuilder {
    client: Client,
    resource: String,
    units: u32,
    holder: String,
    ttl: Duration,
    wait: Duration,
    metadata: Vec<u8>,
}

/// Reserved units, until they are confirmed or the ttl ends. Dropping it cancels nothing: another process with the token's text
/// can continue with it.
#[derive(Clone)]
pub struct Reservation {
    client: Client,
    resource: String,
    token: FencingToken,
    secret: Option<LeaseSecret>,
}

/// State of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReservationStatus {
    /// It is open for this long.
    Open(Duration),
    /// It was confirmed or canceled by a caller with its token.
    Settled,
    /// It ended, and its units are free.
    Ended(EndReason),
}

impl Client {
    /// Units of a resource to reserve. Defaults: for 60 seconds, without waiting.
    pub fn reserve(&self, resource: impl Into<String>, units: u32) -> ReservationBuilder {
        let holder = self.holder_name();
        let (client, resource, wait) = (self.clone(), resource.into(), Duration::ZERO);
        ReservationBuilder { client, resource, units, holder, ttl: TTL, wait, metadata: Vec::new() }
    }

    /// A reservation that was made elsewhere, by its resource and its token's text. [`Reservation::status`] reports whether it is
    /// open.
    pub fn reservation(&self, resource: impl Into<String>, token: &str) -> Result<Reservation, Error> {
        let resource = resource.into();
        Name::parse(&resource)?;
        let invalid = |error: TokenError| Error::from(&Refusal::Token(error));
        let token = FencingToken::parse(token).map_err(invalid)?;
        if token.parsed().resource != resource_hash(&resource) {
            return Err(invalid(TokenError::Resource));
        }
        Ok(Reservation { client: self.clone(), resource, token, secret: None })
    }
}

impl ReservationBuilder {
    /// How long the units are reserved. At most the longest ttl of the cluster.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Time to wait for the units.
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Holder name. Default: the client's.
    pub fn holder(mut self, name: impl Into<String>) -> Self {
        self.holder = name.into();
        self
    }

    /// Metadata that queries show.
    pub fn metadata(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.metadata = bytes.into();
        self
    }

    /// Reserves the units, now or after waiting. A request that can never succeed is refused immediately.
    pub async fn acquire(&self) -> Result<Reservation, Error> {
        Name::parse(&self.resource)?;
        let wait_ms = millis_within("wait", self.wait, 0, WAIT_MAX)?;
        let acquire = Acquire {
            resource: &self.resource,
            holder: &self.holder,
            session: None,
            access: Access::Units(self.units),
            slots: None,
            ttl_ms: Some(millis(self.ttl)),
            options: AcquireOptions { wait_ms, metadata: &self.metadata, ..AcquireOptions::DEFAULT },
        };
        let granted = self.client.acquire(&acquire).await?;
        let (token, secret) = (granted.token(), granted.secret().cloned());
        let reservation =
            Reservation { client: self.client.clone(), resource: self.resource.clone(), token, secret: None };
        Ok(match secret {
            Some(secret) => reservation.with_secret(secret),
            None => reservation,
        })
    }
}

impl Reservation {
    /// Name of the resource.
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// The token, whose text identifies the reservation in other processes. Without access rules at the server it confirms and
    /// cancels, so store it like a secret. A fence accepts no write with it.
    pub const fn token(&self) -> FencingToken {
        self.token
    }

    /// The secret that, together with the identity, confirms and cancels at a server with access rules. Give it to another process
    /// with the token.
    pub const fn secret(&self) -> Option<&LeaseSecret> {
        self.secret.as_ref()
    }

    /// Presents the secret of a reservation that was made elsewhere.
    #[must_use]
    pub fn with_secret(mut self, secret: LeaseSecret) -> Self {
        self.client = self.client.with_lease_secret(&secret);
        self.secret = Some(secret);
        self
    }

    /// Confirms the reservation: its units stay in use until an operator changes the capacity. A reservation that has ended is
    /// refused, whatever the caller's clock says.
    pub async fn confirm(&self) -> Result<(), Error> {
        self.client.confirm_reservation(&self.held()).await
    }

    /// Cancels the reservation and frees its units.
    pub async fn cancel(&self) -> Result<(), Error> {
        self.client.release(&self.held()).await
    }

    /// Changes the number of units. If more units are not available, the reservation stays as it was.
    pub async fn resize(&self, units: u32) -> Result<(), Error> {
        self.client.resize_reservation(&self.held(), units).await.map(drop)
    }

    /// Extends the reservation to its full ttl, counted from now. Returns the remaining time.
    pub async fn extend(&self) -> Result<Duration, Error> {
        let renewed = self.client.renew(&self.held(), None, None).await?;
        Ok(Duration::from_millis(renewed.current().remaining_ms))
    }

    /// Vetoes the expiry while an obligation is in flight: the reservation outlasts its ttl by this time, as far as the charter
    /// allows. Returns the remaining time.
    pub async fn veto(&self, outlast: Duration) -> Result<Duration, Error> {
        let renewed = self.client.veto(&self.held(), millis(outlast)).await?;
        Ok(Duration::from_millis(renewed.current().remaining_ms))
    }

    /// State of the reservation at a moment during this call.
    pub async fn status(&self) -> Result<ReservationStatus, Error> {
        match self.client.check(&self.held()).await {
            Ok(lease) => Ok(ReservationStatus::Open(Duration::from_millis(lease.current().remaining_ms))),
            Err(error) => match error.end_reason() {
                Some(EndReason::Released) => Ok(ReservationStatus::Settled),
                Some(reason) => Ok(ReservationStatus::Ended(reason)),
                None => Err(error),
            },
        }
    }

    fn held(&self) -> HeldLease<'_> {
        HeldLease::new(&self.resource, self.token)
    }
}

/// Omits the token, which must not reach a log.
impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("resource", &self.resource).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
