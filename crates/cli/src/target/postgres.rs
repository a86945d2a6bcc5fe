//! `postgres://USER@HOST/DATABASE`: a PostgreSQL database. Without TLS; the password can also be in `PGPASSWORD`.

use std::time::Duration;

use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::postgres::{Fence, install, list_marks};
use leasehold_fence::{FenceId, FenceRefusal, MarkInfo, MarkLoss};
use tokio_postgres::{Client, Config, NoTls};

use super::{ProbeResult, fence_error, probe_result};
use crate::output::{CommandError, error_with_code};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Remaining lease time that a probe's transaction declares.
const PROBE_REMAINING: Duration = Duration::from_secs(5);

async fn open(url: &str) -> Result<Client, CommandError> {
    let mut config: Config = url.parse().map_err(|error| {
        // The invalid address may contain a password, so the message does not repeat it.
        error_with_code(
            "INVALID_ARGUMENT",
            &format!("invalid PostgreSQL address: {error}; use postgres://USER@HOST/DATABASE"),
        )
    })?;
    if let (None, Some(password)) = (config.get_password(), std::env::var_os("PGPASSWORD")) {
        config.password(password.as_encoded_bytes());
    }
    config.connect_timeout(CONNECT_TIMEOUT);
    let (client, connection) = config.connect(NoTls).await.map_err(failed)?;
    tokio::spawn(connection);
    Ok(client)
}

fn failed(error: tokio_postgres::Error) -> CommandError {
    fence_error(&error.into())
}

fn fence(fence_id: &FenceId) -> Fence {
    Fence::new(fence_id)
}

pub async fn marks(url: &str) -> Result<Vec<MarkInfo>, CommandError> {
    let db = open(url).await?;
    let installed = db.query_one("SELECT to_regclass('leasehold.fence') IS NOT NULL", &[]).await.map_err(failed)?;
    if !installed.get::<_, bool>(0) {
        return Err(fence_error(&FenceRefusal::MarkLost(MarkLoss::Missing).into()));
    }
    list_marks(&db).await.map_err(|error| fence_error(&error))
}

pub async fn arm(url: &str, fence_id: &FenceId) -> Result<(), CommandError> {
    let db = open(url).await?;
    install(&db).await.map_err(|error| fence_error(&error))?;
    fence(fence_id).arm(&db).await.map_err(|error| fence_error(&error))
}

pub async fn rearm(url: &str, fence_id: &FenceId, floor: Number) -> Result<(), CommandError> {
    fence(fence_id).rearm(&open(url).await?, floor).await.map_err(|error| fence_error(&error))
}

pub async fn declare_lost(url: &str, fence_id: &FenceId) -> Result<(), CommandError> {
    fence(fence_id).declare_lost(&open(url).await?).await.map_err(|error| fence_error(&error))
}

pub async fn adopt(url: &str, fence_id: &FenceId, incarnation: Incarnation) -> Result<(), CommandError> {
    fence(fence_id).adopt(&open(url).await?, incarnation).await.map_err(|error| fence_error(&error))
}

/// Probes the fence functions in the server, in a transaction that is rolled back.
pub async fn probe(url: &str, fence_id: &FenceId, stale: &str) -> Result<ProbeResult, CommandError> {
    let mut db = open(url).await?;
    let tx = db.transaction().await.map_err(failed)?;
    let verdict = fence(fence_id).admit(&tx, stale, PROBE_REMAINING).await;
    tx.rollback().await.map_err(failed)?;
    probe_result(verdict)
}
