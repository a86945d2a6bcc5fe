//! `http://HOST[:PORT]`: an HTTP fence proxy. It can be probed over HTTP; its marks are in a file on its own machine.

use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use leasehold::{Code, Error};
use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::http::{CLAIM_PATH, LEASE_TOKEN, PROBE_METHOD, parse_refusal};
use leasehold_fence::{FenceId, FenceRefusal, TokenError};
use serde_json::Value;

use super::probe::{TableFinding, TokenProbe, WriteProbe, token_probe};
use super::{fence_error, printable, token};
use crate::output::{CommandError, error_with_code};

/// Maximum size of a response in bytes.
const MAX_RESPONSE: usize = 64 * 1024;

/// Error for an action on the marks, which are only in the proxy's file.
pub fn marks_are_in_a_file() -> CommandError {
    let message = "the proxy stores its marks in the file of --marks; stop the proxy, then use file:PATH";
    Error::new(Code::InvalidArgument, message).with_next_step("leasehold fence marks file:PATH").into()
}

/// Probes with a claim of the lowest number, which is below every granted token. A fresh fence admits it, and still admits every
/// granted token afterwards.
pub async fn probe(url: &str, fence_id: &FenceId, incarnation: Incarnation) -> Result<TokenProbe, CommandError> {
    let token = token(fence_id, Number::FIRST, incarnation);
    let (status, body) = send(url, CLAIM_PATH, Method::POST, Some(&token)).await?;
    match parse_refusal(&body) {
        // A fence replies to every claim.
        _ if status == StatusCode::NOT_FOUND => Ok(TokenProbe::Missing),
        Some(error) => token_probe(Err(error)),
        None if status != StatusCode::OK => Ok(TokenProbe::Missing),
        None => Ok(if is_claimed(&body) { TokenProbe::Fresh } else { TokenProbe::Missing }),
    }
}

/// Claims the fence. False if the service has no endpoint for claims: whether it checks tokens is not known then.
pub async fn claim(url: &str, token: &str) -> Result<bool, CommandError> {
    let (status, body) = send(url, CLAIM_PATH, Method::POST, Some(token)).await?;
    let reply: Value = serde_json::from_slice(&body).unwrap_or_default();
    match parse_refusal(&body) {
        Some(error) => Err(fence_error(&error)),
        None if status == StatusCode::OK && reply["mark"].is_string() => Ok(true),
        None if status.is_server_error() => {
            let message =
                format!("the claim was answered with HTTP {}; check the service and its fence", status.as_u16());
            Err(error_with_code("UNAVAILABLE", &message))
        }
        None => Ok(false),
    }
}

/// Sends a probe without a token. The fence refuses it with its rules; each exemption is a finding.
pub async fn probe_writes(url: &str, fence_id: &FenceId) -> Result<WriteProbe, CommandError> {
    let method = Method::from_bytes(PROBE_METHOD.as_bytes()).expect("it is a token of HTTP");
    let (_, body) = send(url, "/", method, None).await?;
    let absent = leasehold_fence::Error::Refused(FenceRefusal::Token(TokenError::Absent));
    let is_refused = parse_refusal(&body).is_some_and(|error| error.refusal() == absent.refusal());
    let reply: Value = serde_json::from_slice(&body).unwrap_or_default();
    let (mut refused, mut findings) = judge_rules(&reply["rules"], fence_id);
    if !is_refused && findings.is_empty() {
        refused.clear();
        findings.push(finding("/", "a request without a token was not refused by a fence"));
    } else if reply["rules"].is_null() {
        refused.clear();
        findings.push(finding("/", "the fence does not report its rules, update it"));
    }
    Ok(WriteProbe::Attempted { refused, findings })
}

/// What the rules of a fence refuse without a token, and what they do not.
fn judge_rules(report: &Value, fence_id: &FenceId) -> (Vec<String>, Vec<TableFinding>) {
    let shown = |guard: &Value, path: &str| {
        let (resource, slot) = (guard["resource"].as_str().unwrap_or_default(), guard["slot"].as_u64());
        let is_own = resource == fence_id.resource() && slot == Some(fence_id.slot().into());
        if is_own { path.to_owned() } else { format!("{path} (guarded by {resource}@{})", slot.unwrap_or(0)) }
    };
    let (mut refused, mut findings) = (vec![printable(&shown(&report["guard"], "/"))], Vec::new());
    for rule in report["rules"].as_array().into_iter().flatten() {
        let methods: Vec<&str> = rule["methods"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let path = rule["path"].as_str().unwrap_or_default();
        let pattern = if methods.is_empty() { path.to_owned() } else { format!("{} {path}", methods.join(",")) };
        if !rule["guard"].is_null() {
            refused.push(printable(&shown(&rule["guard"], &pattern)));
        } else if rule["reads_only"] != true {
            findings.push(finding(&printable(&pattern), "exempt, passes without a token"));
        }
    }
    refused.retain(|path| !findings.iter().any(|at| at.table == *path));
    (refused, findings)
}

fn finding(path: &str, finding: &str) -> TableFinding {
    TableFinding { table: path.to_owned(), finding: finding.to_owned() }
}

/// Sends one request without a body, and follows no redirect.
async fn send(url: &str, path: &str, method: Method, token: Option<&str>) -> Result<(StatusCode, Bytes), CommandError> {
    let mut request = Request::builder().method(method).uri(format!("{}{path}", url.trim_end_matches('/')));
    if let Some(token) = token {
        request = request.header(LEASE_TOKEN, token);
    }
    let request = request.body(Empty::<Bytes>::new());
    let request =
        request.map_err(|_| error_with_code("INVALID_ARGUMENT", &"invalid HTTP address; use http://HOST[:PORT]"))?;
    let client = Client::builder(TokioExecutor::new()).build::<_, Empty<Bytes>>(HttpConnector::new());
    let (head, body) = client.request(request).await.map_err(|error| unreachable(url, &error))?.into_parts();
    let body = match Limited::new(body, MAX_RESPONSE).collect().await {
        Ok(body) => body.to_bytes(),
        // No response of a fence is as large.
        Err(error) if error.is::<LengthLimitError>() => Bytes::new(),
        Err(error) => return Err(unreachable(url, &*error)),
    };
    Ok((head.status, body))
}

/// The error of a service that did not answer over HTTP. A claim or a probe writes nothing to the service behind the fence.
fn unreachable(url: &str, error: &(dyn std::error::Error + 'static)) -> CommandError {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    let reason = printable(&cause.to_string());
    // Without a user and a password.
    let uri = url.parse::<Uri>().unwrap_or_default();
    let host = printable(
        uri.authority().map_or("the service", |authority| authority.as_str().rsplit('@').next().unwrap_or_default()),
    );
    let message = format!(
        "{host} did not answer over HTTP ({reason}); check the address, and that the service or its `leasehold fence http` runs there"
    );
    error_with_code("UNAVAILABLE", &message)
}

/// Whether the body is a fence's reply to a claim, and not the response of another service.
fn is_claimed(body: &[u8]) -> bool {
    let reply: Option<Value> = serde_json::from_slice(body).ok();
    reply.is_some_and(|reply| reply["mark"] == Number::FIRST.to_string())
}
