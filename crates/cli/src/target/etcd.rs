//! `etcd://HOST:PORT[,HOST:PORT…][/PREFIX]`: an etcd cluster, with the marks under a key prefix. Without TLS and users.

use std::time::Duration;

use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::etcd::{Fence, list_marks};
use leasehold_fence::{FenceId, MarkInfo};
use tonic::transport::{Channel, Endpoint};

use super::fence_error;
use super::probe::{TokenProbe, token_probe};
use crate::output::{CommandError, error_with_code};

/// Timeout of the connection and of each request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Splits an address into the members and the optional prefix.
fn parts(url: &str) -> (&str, Option<&str>) {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let (members, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    (members, Some(prefix).filter(|prefix| !prefix.is_empty()))
}

/// Connects to the first member that replies. Reads are linearizable, so that any member will do.
async fn open(url: &str) -> Result<Channel, CommandError> {
    let mut last_error =
        error_with_code("INVALID_ARGUMENT", &"the address has no member; use etcd://HOST:PORT[,HOST:PORT][/PREFIX]");
    for member in parts(url).0.split(',').filter(|member| !member.is_empty()) {
        let Some(endpoint) = endpoint(member) else {
            return Err(error_with_code(
                "INVALID_ARGUMENT",
                &"invalid etcd address; use etcd://HOST:PORT, without a user",
            ));
        };
        match endpoint.connect().await {
            Ok(channel) => return Ok(channel),
            Err(error) => last_error = fence_error(&leasehold_fence::Error::Storage(Box::new(error))),
        }
    }
    Err(last_error)
}

fn endpoint(member: &str) -> Option<Endpoint> {
    let without_user = !member.contains('@');
    let endpoint = Endpoint::from_shared(format!("http://{member}")).ok().filter(|_| without_user)?;
    Some(endpoint.connect_timeout(TIMEOUT).timeout(TIMEOUT))
}

async fn fence(url: &str, fence_id: &FenceId) -> Result<Fence, CommandError> {
    let fence = Fence::new(open(url).await?, fence_id);
    Ok(match parts(url).1 {
        Some(prefix) => fence.with_prefix(prefix),
        None => fence,
    })
}

pub async fn marks(url: &str) -> Result<Vec<MarkInfo>, CommandError> {
    list_marks(open(url).await?, parts(url).1).await.map_err(|error| fence_error(&error))
}

pub async fn arm(url: &str, fence_id: &FenceId) -> Result<(), CommandError> {
    fence(url, fence_id).await?.arm().await.map_err(|error| fence_error(&error))
}

pub async fn rearm(url: &str, fence_id: &FenceId, floor: Number) -> Result<(), CommandError> {
    fence(url, fence_id).await?.rearm(floor).await.map_err(|error| fence_error(&error))
}

pub async fn declare_lost(url: &str, fence_id: &FenceId) -> Result<(), CommandError> {
    fence(url, fence_id).await?.declare_lost().await.map_err(|error| fence_error(&error))
}

pub async fn adopt(url: &str, fence_id: &FenceId, incarnation: Incarnation) -> Result<(), CommandError> {
    fence(url, fence_id).await?.adopt(incarnation).await.map_err(|error| fence_error(&error))
}

pub async fn seal(url: &str, fence_id: &FenceId) -> Result<(), CommandError> {
    fence(url, fence_id).await?.seal().await.map_err(|error| fence_error(&error))
}

/// Probes with a claim: a claim below the mark changes nothing.
pub async fn probe(url: &str, fence_id: &FenceId, stale: &str) -> Result<TokenProbe, CommandError> {
    token_probe(fence(url, fence_id).await?.claim(stale).await)
}
