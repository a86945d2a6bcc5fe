//! `postgres://USER@HOST/DATABASE`: a database whose server keeps the marks. Without TLS; a password may also come from
//! the environment, as `PGPASSWORD`.

use std::time::Duration;

use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::postgres::{Fence, install, survey};
use leasehold_fence::{Kept, Lost, Refusal};
use tokio_postgres::{Client, Config, NoTls};

use super::{Place, Probed, probed, refused};
use crate::told::{Failure, coded};

/// How long a connection is waited for.
const CONNECT: Duration = Duration::from_secs(10);
/// What a probe's transaction may take.
const PROBE: Duration = Duration::from_secs(5);

async fn open(url: &str) -> Result<Client, Failure> {
    let mut config: Config = url.parse().map_err(|error| {
        // What could not be read may hold a password: it is not repeated.
        coded(
            "INVALID_ARGUMENT",
            &format!("not an address of PostgreSQL: {error}; write postgres://USER@HOST/DATABASE"),
        )
    })?;
    if let (None, Some(password)) = (config.get_password(), std::env::var_os("PGPASSWORD")) {
        config.password(password.as_encoded_bytes());
    }
    config.connect_timeout(CONNECT);
    let (client, connection) = config.connect(NoTls).await.map_err(failed)?;
    tokio::spawn(connection);
    Ok(client)
}

fn failed(error: tokio_postgres::Error) -> Failure {
    refused(&error.into())
}

fn fence(place: &Place) -> Fence {
    Fence::new(place.cluster, place.name(), place.slot)
}

pub async fn marks(url: &str) -> Result<Vec<Kept>, Failure> {
    let db = open(url).await?;
    let there = db.query_one("SELECT to_regclass('leasehold.fence') IS NOT NULL", &[]).await.map_err(failed)?;
    if !there.get::<_, bool>(0) {
        return Err(refused(&Refusal::Lost(Lost::Missing).into()));
    }
    survey(&db).await.map_err(|error| refused(&error))
}

pub async fn arm(url: &str, place: &Place) -> Result<(), Failure> {
    let db = open(url).await?;
    install(&db).await.map_err(|error| refused(&error))?;
    fence(place).arm(&db).await.map_err(|error| refused(&error))
}

pub async fn rearm(url: &str, place: &Place, floor: Number) -> Result<(), Failure> {
    fence(place).rearm(&open(url).await?, floor).await.map_err(|error| refused(&error))
}

pub async fn declare_lost(url: &str, place: &Place) -> Result<(), Failure> {
    fence(place).declare_lost(&open(url).await?).await.map_err(|error| refused(&error))
}

pub async fn adopt(url: &str, place: &Place, incarnation: Incarnation) -> Result<(), Failure> {
    fence(place).adopt(&open(url).await?, incarnation).await.map_err(|error| refused(&error))
}

/// The server's own rules answer, in a transaction that is given up.
pub async fn probe(url: &str, place: &Place, stale: &str) -> Result<Probed, Failure> {
    let mut db = open(url).await?;
    let tx = db.transaction().await.map_err(failed)?;
    let answer = fence(place).admit(&tx, stale, PROBE).await;
    tx.rollback().await.map_err(failed)?;
    probed(answer)
}
