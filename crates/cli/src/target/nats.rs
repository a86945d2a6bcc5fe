//! `nats://HOST[:PORT]/STREAM[/SUBJECT]`: a JetStream log. The stream tells its marks; a fence is that of one subject.
//! Without TLS.

use std::time::Duration;

use async_nats::ConnectOptions;
use async_nats::jetstream::{self, Context};
use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::Kept;
use leasehold_fence::nats::{Log, survey, survey_subject};

use super::{Place, Probed, probed, refused};
use crate::told::{Failure, coded};

/// How long a connection and each answer are waited for.
const WAIT: Duration = Duration::from_secs(10);

/// What an address says behind its scheme: the server, the stream, and the subject if there is one.
fn parts(url: &str) -> Result<(&str, &str, Option<&str>), Failure> {
    let mut parts = url.split_once("://").map_or("", |(_, rest)| rest).splitn(3, '/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(server), Some(stream), subject) if !server.is_empty() && !stream.is_empty() => {
            Ok((server, stream, subject.filter(|subject| !subject.is_empty())))
        }
        _ => Err(coded("INVALID_ARGUMENT", &"nats:// names no stream; write nats://HOST[:PORT]/STREAM[/SUBJECT]")),
    }
}

async fn open(server: &str) -> Result<Context, Failure> {
    let options = ConnectOptions::new().connection_timeout(WAIT).request_timeout(Some(WAIT));
    let client = options.connect(format!("nats://{server}")).await;
    let client = client.map_err(|error| refused(&leasehold_fence::Error::Storage(Box::new(error))))?;
    let mut jetstream = jetstream::new(client);
    jetstream.set_timeout(WAIT);
    Ok(jetstream)
}

async fn log(url: &str, place: &Place) -> Result<Log, Failure> {
    let (server, stream, subject) = parts(url)?;
    let Some(subject) = subject else {
        let why = "a stream has a fence for each subject; name it: nats://HOST[:PORT]/STREAM/SUBJECT";
        return Err(coded("INVALID_ARGUMENT", &why));
    };
    let jetstream = open(server).await?;
    let log = Log::open(&jetstream, stream, subject, place.cluster, place.name(), place.slot).await;
    log.map_err(|error| refused(&error))
}

pub async fn marks(url: &str) -> Result<Vec<Kept>, Failure> {
    let (server, stream, subject) = parts(url)?;
    let jetstream = open(server).await?;
    let kept = match subject {
        Some(subject) => survey_subject(&jetstream, stream, subject).await.map(|kept| kept.into_iter().collect()),
        None => survey(&jetstream, stream).await,
    };
    kept.map_err(|error| refused(&error))
}

pub async fn arm(url: &str, place: &Place) -> Result<(), Failure> {
    log(url, place).await?.arm().await.map_err(|error| refused(&error))
}

pub async fn rearm(url: &str, place: &Place, floor: Number) -> Result<(), Failure> {
    log(url, place).await?.rearm(floor).await.map_err(|error| refused(&error))
}

pub async fn declare_lost(url: &str, place: &Place) -> Result<(), Failure> {
    log(url, place).await?.declare_lost().await.map_err(|error| refused(&error))
}

pub async fn adopt(url: &str, place: &Place, incarnation: Incarnation) -> Result<(), Failure> {
    log(url, place).await?.adopt(incarnation).await.map_err(|error| refused(&error))
}

/// By a claim: one below the mark leaves nothing behind.
pub async fn probe(url: &str, place: &Place, stale: &str) -> Result<Probed, Failure> {
    probed(log(url, place).await?.claim(stale).await)
}
