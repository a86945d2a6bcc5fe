//! `redis://HOST[:PORT][/DB]`: a Redis or Valkey server that keeps the marks beside its data. Without TLS.

use std::time::Duration;

use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::Kept;
use leasehold_fence::redis::{Fence, install, survey};
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;

use super::{Place, Probed, probed, refused};
use crate::told::{Failure, coded};

/// How long a connection and each answer are waited for.
const WAIT: Duration = Duration::from_secs(10);

async fn open(url: &str) -> Result<MultiplexedConnection, Failure> {
    let client = redis::Client::open(url).map_err(|_| {
        // What could not be read may hold a password: it is not repeated.
        coded("INVALID_ARGUMENT", &"not an address of Redis; write redis://HOST[:PORT][/DB]")
    })?;
    let bounds = AsyncConnectionConfig::new().set_connection_timeout(Some(WAIT)).set_response_timeout(Some(WAIT));
    client.get_multiplexed_async_connection_with_config(&bounds).await.map_err(failed)
}

fn failed(error: redis::RedisError) -> Failure {
    refused(&error.into())
}

/// Whether the server is one from before functions, where the rules are sent as a script.
async fn is_before_functions(db: &mut MultiplexedConnection) -> Result<bool, Failure> {
    match redis::cmd("FUNCTION").arg("STATS").query_async::<redis::Value>(db).await {
        Ok(_) => Ok(false),
        Err(error) if error.detail().is_some_and(|why| why.contains("unknown command")) => Ok(true),
        Err(error) => Err(failed(error)),
    }
}

async fn fence(db: &mut MultiplexedConnection, place: &Place) -> Result<Fence, Failure> {
    let fence = Fence::new(place.cluster, place.name(), place.slot);
    Ok(if is_before_functions(db).await? { fence.scripted() } else { fence })
}

pub async fn marks(url: &str) -> Result<Vec<Kept>, Failure> {
    survey(&mut open(url).await?).await.map_err(|error| refused(&error))
}

pub async fn arm(url: &str, place: &Place) -> Result<(), Failure> {
    let mut db = open(url).await?;
    if !is_before_functions(&mut db).await? {
        install(&mut db).await.map_err(|error| refused(&error))?;
    }
    fence(&mut db, place).await?.arm(&mut db).await.map_err(|error| refused(&error))
}

pub async fn rearm(url: &str, place: &Place, floor: Number) -> Result<(), Failure> {
    let mut db = open(url).await?;
    fence(&mut db, place).await?.rearm(&mut db, floor).await.map_err(|error| refused(&error))
}

pub async fn declare_lost(url: &str, place: &Place) -> Result<(), Failure> {
    let mut db = open(url).await?;
    fence(&mut db, place).await?.declare_lost(&mut db).await.map_err(|error| refused(&error))
}

pub async fn adopt(url: &str, place: &Place, incarnation: Incarnation) -> Result<(), Failure> {
    let mut db = open(url).await?;
    fence(&mut db, place).await?.adopt(&mut db, incarnation).await.map_err(|error| refused(&error))
}

/// By a claim, which the rules in the server answer: one below the mark leaves nothing behind.
pub async fn probe(url: &str, place: &Place, stale: &str) -> Result<Probed, Failure> {
    let mut db = open(url).await?;
    probed(fence(&mut db, place).await?.claim(&mut db, stale).await)
}
