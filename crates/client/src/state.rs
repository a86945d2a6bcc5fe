//! Small state that was written under a resource's leases, read back with the token it was written under.

use std::time::Duration;

use leasehold_core::token::Number;
use leasehold_wire::v1;

use crate::lease::To;
use crate::route::Nature;
use crate::{Client, Error};

/// Keys of one page.
const PAGE: u32 = 64;

/// A value that was written under a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its key.
    pub key: String,
    /// The value.
    pub bytes: Vec<u8>,
    /// The token's number of the lease under which it was written.
    pub token_number: Number,
    /// Rises with every write to the resource.
    pub revision: u64,
}

impl Client {
    /// The small state of a resource, by key. That of a slot above the first stands under its name, `#` and the slot.
    pub async fn state_of(&self, resource: &str) -> Result<Vec<Stored>, Error> {
        let mut all: Vec<Stored> = Vec::new();
        loop {
            let after = all.last().map(|stored| stored.key.clone()).unwrap_or_default();
            let ask = v1::StateRequest { resource: resource.into(), after, most: PAGE, min_position: 0 };
            let page = self.state_page(ask).await?.entries;
            if page.is_empty() {
                return Ok(all);
            }
            for entry in page {
                let token_number =
                    Number::new(entry.token_number).ok_or_else(|| Error::garbled("a value without its token"))?;
                all.push(Stored { key: entry.key, bytes: entry.value, token_number, revision: entry.revision });
            }
        }
    }

    async fn state_page(&self, ask: v1::StateRequest) -> Result<v1::StateList, Error> {
        #[cfg(any(test, feature = "testing"))]
        if let Some(seen) = self.in_memory(|grantor| {
            leasehold_wire::state_list(grantor.small_state(), &ask.resource, &ask.after, ask.most as usize)
        }) {
            return seen;
        }
        let send = |mut to: To, ask| async move { to.state(ask).await };
        self.call(Nature::Look, Duration::ZERO, ask, send).await
    }
}
