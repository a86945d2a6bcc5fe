//! Who leads, as others see it: every answer was true at a moment inside of the call that gave it, and none goes back.

use leasehold_wire::json::LeaseBody;

use super::Election;
use crate::{Client, Code, Error, Watch, look};

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Its name.
    pub holder: String,
    /// Its token's number: who leads later has a higher one.
    pub token_number: u64,
    /// What it announced.
    pub announced: String,
}

impl Election {
    /// Who leads, at a moment inside of this call; none if nobody does.
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        leader(&self.client, &self.resource).await
    }

    /// Watches who leads, from now on.
    pub async fn observe(&self) -> Result<Observing, Error> {
        look::checked(leasehold_core::name::Name::parse(&self.resource))?;
        let watch = self.client.watch(&self.resource).await?;
        Ok(Observing { of: self.clone(), watch, stale: true, told: None, highest: 0 })
    }
}

async fn leader(client: &Client, resource: &str) -> Result<Option<Leader>, Error> {
    let shown = match client.show(resource).await {
        Ok(shown) => shown,
        Err(error) if error.code() == Some(Code::NotFound) => return Ok(None),
        Err(error) => return Err(error),
    };
    // The predecessor of an overlap still finishes, and leads no more.
    let leads = |lease: &&LeaseBody| !lease.apart && lease.access == "exclusive";
    let Some(lease) = shown.leases.iter().find(leads) else {
        return Ok(None);
    };
    let token_number = lease.token_number.parse().map_err(Error::garbled)?;
    let (holder, announced) = (lease.holder.clone(), lease.metadata.clone());
    Ok(Some(Leader { holder, token_number, announced }))
}

/// Who leads, as it changes.
#[derive(Debug)]
pub struct Observing {
    of: Election,
    watch: Watch,
    /// Something happened since the last look.
    stale: bool,
    /// What was told last.
    told: Option<Option<Leader>>,
    highest: u64,
}

impl Observing {
    /// Who leads: first at once, then whenever that has changed. What happens between two calls is told by its outcome: the
    /// event only says when to look, and the look is made inside of this call. Dropping this future loses nothing.
    pub async fn next(&mut self) -> Result<Option<Leader>, Error> {
        loop {
            if !self.stale {
                // Also when the feed broke and was made again.
                self.watch.next().await?;
                self.stale = true;
            }
            let seen = self.of.leader().await?;
            self.stale = false;
            let number = seen.as_ref().map_or(self.highest, |leader| leader.token_number);
            // A server that is behind is not believed.
            if number < self.highest || self.told.as_ref() == Some(&seen) {
                continue;
            }
            self.highest = number;
            self.told = Some(seen.clone());
            return Ok(seen);
        }
    }
}
