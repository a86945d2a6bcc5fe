//! `http://HOST[:PORT]`: the fence before a service, asked as a holder asks it. Its marks lie in a file that only its own
//! machine has.

use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use leasehold::{Code, Error};
use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::http::{CLAIM, LEASE_TOKEN, heard};

use super::{Place, Probed, probed, refused};
use crate::told::{Failure, coded};

/// How long the whole of it is waited for.
const WAIT: Duration = Duration::from_secs(10);
/// What a fence tells is short.
const LONGEST: usize = 64 * 1024;

/// What is done to the marks is done to their file.
pub fn kept_in_a_file() -> Failure {
    let why =
        "a fence before a service keeps its marks in the file of --marks; stop it, then name that file: file:PATH";
    Error::new(Code::InvalidArgument, why).then("leasehold fence marks file:PATH").into()
}

/// Claims with the lowest number there is, which every grant lies above. Where nobody claimed yet it is let in, and nobody is
/// kept out by it.
pub async fn probe(url: &str, place: &Place) -> Result<Probed, Failure> {
    let token = place.token(Number::FIRST, Incarnation(0));
    let at = format!("{}{CLAIM}", url.trim_end_matches('/'));
    let asked = Request::post(at).header(LEASE_TOKEN, token).body(Empty::<Bytes>::new());
    let asked = asked.map_err(|_| coded("INVALID_ARGUMENT", &"not an address of HTTP; write http://HOST[:PORT]"))?;
    let client = Client::builder(TokioExecutor::new()).build::<_, Empty<Bytes>>(HttpConnector::new());
    let answer = async {
        let (head, body) = client.request(asked).await.map_err(failed)?.into_parts();
        let body = Limited::new(body, LONGEST).collect().await.map_err(leasehold_fence::Error::Storage)?;
        Ok::<_, leasehold_fence::Error>((head.status, body.to_bytes()))
    };
    let late = |_| Err(leasehold_fence::Error::Storage("no answer within 10 s".into()));
    let (status, body) = tokio::time::timeout(WAIT, answer).await.unwrap_or_else(late).map_err(|e| refused(&e))?;
    match heard(&body) {
        // A fence answers every claim.
        _ if status == StatusCode::NOT_FOUND => Ok(Probed::Missing),
        Some(error) => probed(Err(error)),
        None if status != StatusCode::OK => Ok(Probed::Missing),
        None => Ok(if is_claimed(&body) { Probed::Fresh } else { Probed::Missing }),
    }
}

fn failed(error: hyper_util::client::legacy::Error) -> leasehold_fence::Error {
    leasehold_fence::Error::Storage(Box::new(error))
}

/// Whether it is a fence's answer to a claim, and not what some service says to anything.
fn is_claimed(body: &[u8]) -> bool {
    let told: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    told.is_some_and(|told| told["mark"] == Number::FIRST.to_string())
}
