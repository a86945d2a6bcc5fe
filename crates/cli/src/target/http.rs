//! `http://HOST[:PORT]`: an HTTP fence proxy. It can be probed over HTTP; its marks are in a file on its own machine.

use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use leasehold::{Code, Error};
use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::FenceId;
use leasehold_fence::http::{CLAIM_PATH, LEASE_TOKEN, parse_refusal};

use super::{ProbeResult, fence_error, probe_result, token};
use crate::output::{CommandError, error_with_code};

/// Timeout of the whole probe.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a response in bytes.
const MAX_RESPONSE: usize = 64 * 1024;

/// Error for an action on the marks, which are only in the proxy's file.
pub fn marks_are_in_a_file() -> CommandError {
    let message = "the proxy stores its marks in the file of --marks; stop the proxy, then use file:PATH";
    Error::new(Code::InvalidArgument, message).with_next_step("leasehold fence marks file:PATH").into()
}

/// Probes with a claim of the lowest number, which is below every granted token. A fresh fence admits it, and still admits every
/// granted token afterwards.
pub async fn probe(url: &str, fence_id: &FenceId) -> Result<ProbeResult, CommandError> {
    let token = token(fence_id, Number::FIRST, Incarnation(0));
    let claim_url = format!("{}{CLAIM_PATH}", url.trim_end_matches('/'));
    let request = Request::post(claim_url).header(LEASE_TOKEN, token).body(Empty::<Bytes>::new());
    let request =
        request.map_err(|_| error_with_code("INVALID_ARGUMENT", &"invalid HTTP address; use http://HOST[:PORT]"))?;
    let client = Client::builder(TokioExecutor::new()).build::<_, Empty<Bytes>>(HttpConnector::new());
    let response = async {
        let (head, body) = client.request(request).await.map_err(failed)?.into_parts();
        let body = Limited::new(body, MAX_RESPONSE).collect().await.map_err(leasehold_fence::Error::Storage)?;
        Ok::<_, leasehold_fence::Error>((head.status, body.to_bytes()))
    };
    let timed_out = |_| Err(leasehold_fence::Error::Storage("no response within 10 s".into()));
    let (status, body) =
        tokio::time::timeout(TIMEOUT, response).await.unwrap_or_else(timed_out).map_err(|e| fence_error(&e))?;
    match parse_refusal(&body) {
        // A fence replies to every claim.
        _ if status == StatusCode::NOT_FOUND => Ok(ProbeResult::Missing),
        Some(error) => probe_result(Err(error)),
        None if status != StatusCode::OK => Ok(ProbeResult::Missing),
        None => Ok(if is_claimed(&body) { ProbeResult::Fresh } else { ProbeResult::Missing }),
    }
}

fn failed(error: hyper_util::client::legacy::Error) -> leasehold_fence::Error {
    leasehold_fence::Error::Storage(Box::new(error))
}

/// Whether the body is a fence's reply to a claim, and not the response of another service.
fn is_claimed(body: &[u8]) -> bool {
    let reply: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    reply.is_some_and(|reply| reply["mark"] == Number::FIRST.to_string())
}
