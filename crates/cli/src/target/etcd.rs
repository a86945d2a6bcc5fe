//! `etcd://HOST:PORT[,HOST:PORT…][/PREFIX]`: an etcd cluster, with its marks below a prefix. Without TLS and users.

use std::time::Duration;

use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::Kept;
use leasehold_fence::etcd::{Fence, survey};
use tonic::transport::{Channel, Endpoint};

use super::{Place, Probed, probed, refused};
use crate::told::{Failure, coded};

/// How long a connection and each answer are waited for.
const WAIT: Duration = Duration::from_secs(10);

/// The members, and the prefix if there is one.
fn parts(url: &str) -> (&str, Option<&str>) {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let (members, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    (members, Some(prefix).filter(|prefix| !prefix.is_empty()))
}

/// The first member that answers: any of them knows all that was answered before.
async fn open(url: &str) -> Result<Channel, Failure> {
    let mut why = coded("INVALID_ARGUMENT", &"etcd:// names no member; write etcd://HOST:PORT[,HOST:PORT][/PREFIX]");
    for member in parts(url).0.split(',').filter(|member| !member.is_empty()) {
        let Some(endpoint) = endpoint(member) else {
            return Err(coded("INVALID_ARGUMENT", &"not an address of etcd; write etcd://HOST:PORT, without a user"));
        };
        match endpoint.connect().await {
            Ok(channel) => return Ok(channel),
            Err(error) => why = refused(&leasehold_fence::Error::Storage(Box::new(error))),
        }
    }
    Err(why)
}

fn endpoint(member: &str) -> Option<Endpoint> {
    let plain = !member.contains('@');
    let endpoint = Endpoint::from_shared(format!("http://{member}")).ok().filter(|_| plain)?;
    Some(endpoint.connect_timeout(WAIT).timeout(WAIT))
}

async fn fence(url: &str, place: &Place) -> Result<Fence, Failure> {
    let fence = Fence::new(open(url).await?, place.cluster, place.name(), place.slot);
    Ok(match parts(url).1 {
        Some(prefix) => fence.under(prefix),
        None => fence,
    })
}

pub async fn marks(url: &str) -> Result<Vec<Kept>, Failure> {
    survey(open(url).await?, parts(url).1).await.map_err(|error| refused(&error))
}

pub async fn arm(url: &str, place: &Place) -> Result<(), Failure> {
    fence(url, place).await?.arm().await.map_err(|error| refused(&error))
}

pub async fn rearm(url: &str, place: &Place, floor: Number) -> Result<(), Failure> {
    fence(url, place).await?.rearm(floor).await.map_err(|error| refused(&error))
}

pub async fn declare_lost(url: &str, place: &Place) -> Result<(), Failure> {
    fence(url, place).await?.declare_lost().await.map_err(|error| refused(&error))
}

pub async fn adopt(url: &str, place: &Place, incarnation: Incarnation) -> Result<(), Failure> {
    fence(url, place).await?.adopt(incarnation).await.map_err(|error| refused(&error))
}

/// By a claim: one below the mark leaves nothing behind.
pub async fn probe(url: &str, place: &Place, stale: &str) -> Result<Probed, Failure> {
    probed(fence(url, place).await?.claim(stale).await)
}
