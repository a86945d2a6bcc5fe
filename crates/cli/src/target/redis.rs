//! `redis://HOST[:PORT][/DB]`: a Redis or Valkey server. Without TLS.

use std::time::Duration;

use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::redis::{Fence, install, list_marks};
use leasehold_fence::{FenceId, MarkInfo};
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;

use super::fence_error;
use super::probe::{TokenProbe, token_probe};
use crate::output::{CommandError, error_with_code};

/// Timeout of the connection and of each request.
const TIMEOUT: Duration = Duration::from_secs(10);

async fn open(url: &str) -> Result<MultiplexedConnection, CommandError> {
    let client = redis::Client::open(url).map_err(|_| {
        // The invalid address may contain a password, so the message does not repeat it.
        error_with_code("INVALID_ARGUMENT", &"invalid Redis address; use redis://HOST[:PORT][/DB]")
    })?;
    let config = AsyncConnectionConfig::new().set_connection_timeout(Some(TIMEOUT)).set_response_timeout(Some(TIMEOUT));
    client.get_multiplexed_async_connection_with_config(&config).await.map_err(failed)
}

fn failed(error: redis::RedisError) -> CommandError {
    fence_error(&error.into())
}

/// Whether the server is too old for functions, so that the fence must be sent as a script.
async fn lacks_functions(db: &mut MultiplexedConnection) -> Result<bool, CommandError> {
    match redis::cmd("FUNCTION").arg("STATS").query_async::<redis::Value>(db).await {
        Ok(_) => Ok(false),
        Err(error) if error.detail().is_some_and(|detail| detail.contains("unknown command")) => Ok(true),
        Err(error) => Err(failed(error)),
    }
}

async fn fence(db: &mut MultiplexedConnection, fence_id: &FenceId) -> Result<Fence, CommandError> {
    let fence = Fence::new(fence_id);
    Ok(if lacks_functions(db).await? { fence.use_script() } else { fence })
}

pub async fn marks(url: &str) -> Result<Vec<MarkInfo>, CommandError> {
    list_marks(&mut open(url).await?).await.map_err(|error| fence_error(&error))
}

pub async fn arm(url: &str, fence_id: &FenceId) -> Result<(), CommandError> {
    let mut db = open(url).await?;
    if !lacks_functions(&mut db).await? {
        install(&mut db).await.map_err(|error| fence_error(&error))?;
    }
    fence(&mut db, fence_id).await?.arm(&mut db).await.map_err(|error| fence_error(&error))
}

pub async fn rearm(url: &str, fence_id: &FenceId, floor: Number) -> Result<(), CommandError> {
    let mut db = open(url).await?;
    fence(&mut db, fence_id).await?.rearm(&mut db, floor).await.map_err(|error| fence_error(&error))
}

pub async fn declare_lost(url: &str, fence_id: &FenceId) -> Result<(), CommandError> {
    let mut db = open(url).await?;
    fence(&mut db, fence_id).await?.declare_lost(&mut db).await.map_err(|error| fence_error(&error))
}

pub async fn adopt(url: &str, fence_id: &FenceId, incarnation: Incarnation) -> Result<(), CommandError> {
    let mut db = open(url).await?;
    fence(&mut db, fence_id).await?.adopt(&mut db, incarnation).await.map_err(|error| fence_error(&error))
}

pub async fn seal(url: &str, fence_id: &FenceId) -> Result<(), CommandError> {
    let mut db = open(url).await?;
    fence(&mut db, fence_id).await?.seal(&mut db).await.map_err(|error| fence_error(&error))
}

/// Probes the fence functions in the server with a claim: a claim below the mark changes nothing.
pub async fn probe(url: &str, fence_id: &FenceId, stale: &str) -> Result<TokenProbe, CommandError> {
    let mut db = open(url).await?;
    token_probe(fence(&mut db, fence_id).await?.claim(&mut db, stale).await)
}
