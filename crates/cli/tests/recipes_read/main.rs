//! Recipes of those who read (who is there, what may go, what is still true, who may), against a real server.

mod cache;
mod credential;
mod pin;
mod session;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/way.rs"]
mod way;

use std::time::Duration;

use leasehold::{Client, Endpoints, Options};
use support::Server;

/// Of leases that are to run out; long enough for a machine that does other things too.
const TTL: Duration = Duration::from_secs(2);

fn client(server: &Server, holder: &str) -> Client {
    client_at(&server.address, holder)
}

/// A client over a way, for a server that comes back at another address.
fn client_at(address: &str, holder: &str) -> Client {
    let options = Options { holder: Some(holder.into()), ..Options::default() };
    Client::with(Endpoints::parse(address).expect("an address with a port"), options)
}

/// Waits for something that comes, with a generous bound.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(support::PATIENCE, what).await.expect("it never came")
}
