//! `nats://HOST[:PORT]/STREAM[/SUBJECT]`: a JetStream log, with one fence for each subject. Without TLS.

use std::time::Duration;

use async_nats::jetstream::{self, Context};
use async_nats::{ConnectErrorKind, ConnectOptions};
use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::nats::{Fence, list_marks, subject_mark};
use leasehold_fence::{FenceId, MarkInfo};

use super::fence_error;
use super::probe::{TokenProbe, token_probe};
use crate::output::{CommandError, error_with_code};

/// Timeout of the connection and of each request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Splits an address into the server, the stream and the optional subject.
fn parts(url: &str) -> Result<(&str, &str, Option<&str>), CommandError> {
    let mut parts = url.split_once("://").map_or("", |(_, rest)| rest).splitn(3, '/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(server), Some(stream), subject) if !server.is_empty() && !stream.is_empty() => {
            Ok((server, stream, subject.filter(|subject| !subject.is_empty())))
        }
        _ => Err(error_with_code(
            "INVALID_ARGUMENT",
            &"the address has no stream; use nats://HOST[:PORT]/STREAM[/SUBJECT]",
        )),
    }
}

async fn open(server: &str) -> Result<Context, CommandError> {
    let options = ConnectOptions::new().connection_timeout(TIMEOUT).request_timeout(Some(TIMEOUT));
    // The server can name others, to which the client would reconnect with the credentials of this address.
    let options = options.ignore_discovered_servers();
    let client = options.connect(format!("nats://{server}")).await;
    let client = client.map_err(|error| {
        // An invalid address may contain a password, so the message repeats nothing of it.
        if error.kind() == ConnectErrorKind::ServerParse {
            return error_with_code(
                "INVALID_ARGUMENT",
                &"invalid NATS address; use nats://HOST[:PORT]/STREAM[/SUBJECT]",
            );
        }
        fence_error(&leasehold_fence::Error::Storage(Box::new(error)))
    })?;
    let mut jetstream = jetstream::new(client);
    jetstream.set_timeout(TIMEOUT);
    Ok(jetstream)
}

async fn log(url: &str, fence_id: &FenceId) -> Result<Fence, CommandError> {
    let (server, stream, subject) = parts(url)?;
    let Some(subject) = subject else {
        let message = "a stream has a fence for each subject; use nats://HOST[:PORT]/STREAM/SUBJECT";
        return Err(error_with_code("INVALID_ARGUMENT", &message));
    };
    let jetstream = open(server).await?;
    let log = Fence::open(&jetstream, stream, subject, fence_id).await;
    log.map_err(|error| fence_error(&error))
}

pub async fn marks(url: &str) -> Result<Vec<MarkInfo>, CommandError> {
    let (server, stream, subject) = parts(url)?;
    let jetstream = open(server).await?;
    let info = match subject {
        Some(subject) => subject_mark(&jetstream, stream, subject).await.map(|info| info.into_iter().collect()),
        None => list_marks(&jetstream, stream).await,
    };
    info.map_err(|error| fence_error(&error))
}

pub async fn arm(url: &str, fence_id: &FenceId) -> Result<(), CommandError> {
    log(url, fence_id).await?.arm().await.map_err(|error| fence_error(&error))
}

pub async fn rearm(url: &str, fence_id: &FenceId, floor: Number) -> Result<(), CommandError> {
    log(url, fence_id).await?.rearm(floor).await.map_err(|error| fence_error(&error))
}

pub async fn declare_lost(url: &str, fence_id: &FenceId) -> Result<(), CommandError> {
    log(url, fence_id).await?.declare_lost().await.map_err(|error| fence_error(&error))
}

pub async fn adopt(url: &str, fence_id: &FenceId, incarnation: Incarnation) -> Result<(), CommandError> {
    log(url, fence_id).await?.adopt(incarnation).await.map_err(|error| fence_error(&error))
}

pub async fn seal(url: &str, fence_id: &FenceId) -> Result<(), CommandError> {
    log(url, fence_id).await?.seal().await.map_err(|error| fence_error(&error))
}

/// Probes with a claim: a claim below the mark changes nothing.
pub async fn probe(url: &str, fence_id: &FenceId, stale: &str) -> Result<TokenProbe, CommandError> {
    token_probe(log(url, fence_id).await?.claim(stale).await)
}
