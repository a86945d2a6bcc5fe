//! Charters: read, set, removed.

use std::time::Duration;

use leasehold_core::charter::Charter;
use leasehold_wire::{charter, read_charter, v1};

use crate::lease::To;
use crate::route::Nature;
use crate::{Client, Error};

/// Charters of one page.
const PAGE: u32 = 256;

impl Client {
    /// All charters by prefix, or only the one that covers a resource.
    pub async fn charters(&self, resource: Option<&str>) -> Result<Vec<(String, Charter)>, Error> {
        let mut all: Vec<(String, Charter)> = Vec::new();
        loop {
            let after = all.last().map(|(prefix, _)| prefix.clone());
            let ask =
                v1::ChartersRequest { resource: resource.unwrap_or_default().into(), after: after.clone(), most: PAGE };
            let send = |mut to: To, ask| async move { to.charters(ask).await };
            let page = self.call(Nature::Look, Duration::ZERO, ask, send).await?.charters;
            let before = all.len();
            for entry in page.into_iter().filter(|entry| after.as_ref().is_none_or(|after| entry.prefix > *after)) {
                let told = entry.charter.ok_or_else(|| Error::garbled("an entry without its charter"))?;
                all.push((entry.prefix, read_charter(&told).map_err(Error::garbled)?));
            }
            if all.len() == before || resource.is_some() {
                return Ok(all);
            }
        }
    }

    /// Sets the charter of a prefix; the empty prefix covers everything.
    pub async fn set_charter(&self, prefix: &str, terms: &Charter, why: &str) -> Result<(), Error> {
        let ask = v1::SetCharter { prefix: prefix.into(), charter: Some(charter(terms)), why: why.into() };
        let send = |mut to: To, ask| async move { to.set_charter(ask).await };
        self.call(Nature::Change, Duration::ZERO, ask, send).await.map(drop)
    }

    /// Removes the charter of a prefix.
    pub async fn remove_charter(&self, prefix: &str, why: &str) -> Result<(), Error> {
        let ask = v1::RemoveCharter { prefix: prefix.into(), why: why.into() };
        let send = |mut to: To, ask| async move { to.remove_charter(ask).await };
        self.call(Nature::Change, Duration::ZERO, ask, send).await.map(drop)
    }
}
