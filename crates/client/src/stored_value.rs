//! Small state that holders store under their leases, read with the token it was written under.

use std::time::Duration;

use leasehold_core::token::Number;
use leasehold_wire::v1;

use crate::failover::RetrySafety;
use crate::server_pool::GrpcClient;
use crate::{Client, Error};

/// Keys of one page.
const PAGE: u32 = 64;

/// A value that was written under a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredValue {
    /// Key of the value.
    pub key: String,
    /// The value.
    pub bytes: Vec<u8>,
    /// Token number of the lease under which it was written.
    pub token_number: Number,
    /// Increases with every write to the resource.
    pub revision: u64,
}

impl Client {
    /// The small state of a resource, by key. The state of a slot above the first is stored under the resource name, `#` and the
    /// slot.
    pub async fn state_of(&self, resource: &str) -> Result<Vec<StoredValue>, Error> {
        let mut all: Vec<StoredValue> = Vec::new();
        loop {
            let after = all.last().map(|value| value.key.clone()).unwrap_or_default();
            let request = v1::StateRequest { resource: resource.into(), after, limit: PAGE, ..Default::default() };
            let page = self.state_page(request).await?.entries;
            if page.is_empty() {
                return Ok(all);
            }
            for entry in page {
                let token_number =
                    Number::new(entry.token_number).ok_or_else(|| Error::invalid_reply("a value without its token"))?;
                all.push(StoredValue { key: entry.key, bytes: entry.value, token_number, revision: entry.revision });
            }
        }
    }

    async fn state_page(&self, request: v1::StateRequest) -> Result<v1::StateList, Error> {
        #[cfg(any(test, feature = "testing"))]
        if let Some(page) = self.servers.memory_query(|grantor| {
            leasehold_wire::state_list(grantor.state(), &request.resource, &request.after, request.limit as usize)
        }) {
            return page;
        }
        let send = |mut client: GrpcClient, request| async move { client.state(request).await };
        self.servers.call(RetrySafety::ReadOnly, Duration::ZERO, request, send).await
    }
}
