//! Units held for a while, then confirmed for good or given back. A hold belongs to whoever shows its token, not to a
//! process: it can be written down and confirmed elsewhere, and it ends by its time alone.

use std::fmt;
use std::time::Duration;

use leasehold_core::command::{Acquire, Terms};
use leasehold_core::lease::{Access, Reason};
use leasehold_core::limits::WAIT_MAX;
use leasehold_core::name::{Name, resource_hash};
use leasehold_core::refusal::Refusal;
use leasehold_core::token::{Token, TokenError};

use crate::lock::{millis, within};
use crate::look::checked;
use crate::{Client, Error, Held};

/// How long a hold lasts for those who do not say.
const KEEP: Duration = Duration::from_secs(60);

/// Units to be asked for. Nothing happens before [`Reserving::hold`].
#[derive(Clone, Debug)]
#[must_use = "nothing is asked for before it is held"]
pub struct Reserving {
    client: Client,
    resource: String,
    units: u32,
    holder: String,
    keep: Duration,
    wait: Duration,
    metadata: Vec<u8>,
}

/// Units that are held, until they are confirmed or the time is over. Dropping it gives nothing back: whoever has the token's
/// text can go on with it, in any process.
#[derive(Clone)]
pub struct Reservation {
    client: Client,
    resource: String,
    token: Token,
}

/// What became of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It stands, for so long.
    Open(Duration),
    /// It was confirmed, or cancelled, by whoever had its token.
    Settled,
    /// It is over, and its units are free.
    Over(Reason),
}

impl Client {
    /// So many units of a resource, held for a minute, not waited for, unless said otherwise.
    pub fn reserve(&self, resource: impl Into<String>, units: u32) -> Reserving {
        let holder = self.holder_name();
        let (client, resource, wait) = (self.clone(), resource.into(), Duration::ZERO);
        Reserving { client, resource, units, holder, keep: KEEP, wait, metadata: Vec::new() }
    }

    /// A hold that was placed elsewhere, by its resource and its token's text. Whether it stands, the grantor says.
    pub fn reservation(&self, resource: impl Into<String>, token: &str) -> Result<Reservation, Error> {
        let resource = resource.into();
        checked(Name::parse(&resource))?;
        let refuse = |wrong: TokenError| Error::from(&Refusal::Token(wrong));
        let token = Token::parse(token).map_err(refuse)?;
        if token.resource != resource_hash(&resource) {
            return Err(refuse(TokenError::Resource));
        }
        Ok(Reservation { client: self.clone(), resource, token })
    }
}

impl Reserving {
    /// How long the units are held. Not longer than the cluster's longest ttl.
    pub const fn keep_for(mut self, keep: Duration) -> Self {
        self.keep = keep;
        self
    }

    /// How long to wait for them.
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// For whom, for people to read.
    pub fn holder(mut self, holder: impl Into<String>) -> Self {
        self.holder = holder.into();
        self
    }

    /// Bytes for people.
    pub fn metadata(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.metadata = bytes.into();
        self
    }

    /// Holds the units, now or after waiting. What can never be had is refused at once.
    pub async fn hold(&self) -> Result<Reservation, Error> {
        checked(Name::parse(&self.resource))?;
        let wait_ms = within("wait", self.wait, 0, WAIT_MAX)?;
        let ask = Acquire {
            resource: &self.resource,
            holder: &self.holder,
            session: None,
            access: Access::Units(self.units),
            slots: None,
            ttl_ms: Some(millis(self.keep)),
            terms: Terms { wait_ms, metadata: &self.metadata, ..Terms::DEFAULT },
        };
        let token = self.client.acquire(&ask).await?.token();
        Ok(Reservation { client: self.client.clone(), resource: self.resource.clone(), token })
    }
}

impl Reservation {
    /// The resource.
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// The token's text: what names this hold elsewhere. It confirms and cancels, so it is kept like a secret; at a fence it
    /// writes nothing.
    pub fn token(&self) -> String {
        self.token.to_string()
    }

    /// Turns the hold into a commitment: its units stay taken until an operator changes the capacity. A hold that is over is
    /// refused, whatever its holder's clock says.
    pub async fn confirm(&self) -> Result<(), Error> {
        self.client.confirm_hold(&self.held()).await
    }

    /// Gives the units back.
    pub async fn cancel(&self) -> Result<(), Error> {
        self.client.release(&self.held()).await
    }

    /// Asks for more or fewer units. More are refused if they are not there; the hold stays as it was.
    pub async fn resize(&self, units: u32) -> Result<(), Error> {
        self.client.resize_hold(&self.held(), units).await.map(drop)
    }

    /// Holds for another full time, counted from now.
    pub async fn extend(&self) -> Result<Duration, Error> {
        let renewed = self.client.renew(&self.held(), None, None).await?;
        Ok(Duration::from_millis(renewed.current().remaining_ms))
    }

    /// An obligation is in flight: the hold outlasts its time for so long, as far as the charter lets it. Returns how long it
    /// stands now.
    pub async fn veto(&self, outlast: Duration) -> Result<Duration, Error> {
        let renewed = self.client.veto(&self.held(), millis(outlast)).await?;
        Ok(Duration::from_millis(renewed.current().remaining_ms))
    }

    /// What became of it, at a moment inside of this call: for whoever was not told.
    pub async fn outcome(&self) -> Result<Outcome, Error> {
        match self.client.confirm(&self.held()).await {
            Ok(current) => Ok(Outcome::Open(Duration::from_millis(current.current().remaining_ms))),
            Err(error) => match error.lost() {
                Some(Reason::Released) => Ok(Outcome::Settled),
                Some(reason) => Ok(Outcome::Over(reason)),
                None => Err(error),
            },
        }
    }

    fn held(&self) -> Held<'_> {
        Held::of(&self.resource, self.token)
    }
}

/// Without the token: it must not reach a log.
impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("resource", &self.resource).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
