//! One export request to a collector over HTTP/1.1, on a connection of its own.

use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::CollectorSettings;
use super::pb::{ErrorStatus, ExportTraceServiceResponse};

/// Time for one attempt, the default of OTLP exporters.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Size limit of a response. A longer one is not read.
const MAX_RESPONSE_BYTES: usize = 64 << 10;
/// Longest message of a collector in a log line.
const MAX_MESSAGE: usize = 300;
const PROTOBUF: &str = "application/x-protobuf";
const USER_AGENT: &str = concat!("OTel-OTLP-Exporter-Leasehold/", env!("CARGO_PKG_VERSION"));

/// The answer of a collector that took the request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportReceipt {
    /// Spans that it did not take, and never will.
    pub rejected: u64,
    /// Why, or a warning.
    pub message: String,
}

/// The collector did not take the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PostError {
    /// It may take it later.
    Retryable {
        /// When, if it said so.
        after: Option<Duration>,
        /// What happened.
        reason: String,
    },
    /// It never will.
    Permanent {
        /// What happened.
        reason: String,
    },
}

trait CollectorConnection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> CollectorConnection for T {}

/// Sends an encoded request.
pub async fn post(settings: &CollectorSettings, body: Bytes) -> Result<ExportReceipt, PostError> {
    match tokio::time::timeout(TIMEOUT, attempt(settings, body)).await {
        Ok(Ok((status, headers, body))) => outcome(status, &headers, &body),
        Ok(Err(reason)) => Err(PostError::Retryable { after: None, reason }),
        Err(_) => {
            let reason = format!("no answer within {} s", TIMEOUT.as_secs());
            Err(PostError::Retryable { after: None, reason })
        }
    }
}

async fn attempt(settings: &CollectorSettings, body: Bytes) -> Result<(StatusCode, HeaderMap, Bytes), String> {
    let url = settings.url();
    let mut request = Request::post(url.path())
        .header(header::HOST, url.authority())
        .header(header::CONTENT_TYPE, PROTOBUF)
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::CONNECTION, "close")
        .body(Body::from(body))
        .map_err(|error| error.to_string())?;
    for (name, value) in settings.headers() {
        request.headers_mut().insert(name.clone(), value.clone());
    }
    let stream = connect(settings).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    // It ends with the response, or with the attempt.
    let connection = AbortOnDrop(tokio::spawn(async move { drop(connection.await) }));
    let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
    let (head, body) = response.into_parts();
    // The status counts, whatever the body is.
    let body = to_bytes(Body::new(body), MAX_RESPONSE_BYTES).await.unwrap_or_default();
    drop(connection);
    Ok((head.status, head.headers, body))
}

async fn connect(settings: &CollectorSettings) -> Result<Box<dyn CollectorConnection>, String> {
    let url = settings.url();
    let stream = TcpStream::connect((url.host(), url.port())).await.map_err(|error| error.to_string())?;
    let Some(tls) = settings.tls() else { return Ok(Box::new(stream)) };
    let name = ServerName::try_from(url.host().to_owned()).map_err(|error| error.to_string())?;
    let stream = TlsConnector::from(tls.clone()).connect(name, stream).await.map_err(|error| error.to_string())?;
    Ok(Box::new(stream))
}

/// Ends a task with the attempt that started it.
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Judges a response as the specification says: 429, 502, 503 and 504 may be repeated, and nothing else.
fn outcome(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Result<ExportReceipt, PostError> {
    if status.is_success() {
        let partial = ExportTraceServiceResponse::decode(body).unwrap_or_default().partial_success.unwrap_or_default();
        let rejected = u64::try_from(partial.rejected_spans).unwrap_or(0);
        return Ok(ExportReceipt { rejected, message: shortened(&partial.error_message) });
    }
    let message = ErrorStatus::decode(body).map(|status| shortened(&status.message)).unwrap_or_default();
    let reason = if message.is_empty() { status.to_string() } else { format!("{status}: {message}") };
    match status {
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Err(PostError::Retryable { after: retry_after(headers), reason }),
        _ => Err(PostError::Permanent { reason }),
    }
}

/// The seconds of `retry-after`. A date is not read; then the exporter waits as long as it does without one.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u64 = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

fn shortened(message: &str) -> String {
    message.chars().filter(|c| !c.is_control()).take(MAX_MESSAGE).collect()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::super::pb::ExportTracePartialSuccess;
    use super::*;

    #[test]
    fn only_the_statuses_of_the_specification_are_repeated() {
        for code in 100..600 {
            let status = StatusCode::from_u16(code).expect("a status");
            let outcome = outcome(status, &HeaderMap::new(), b"");
            match code {
                200..300 => assert_eq!(outcome, Ok(ExportReceipt::default())),
                429 | 502 | 503 | 504 => assert!(matches!(outcome, Err(PostError::Retryable { after: None, .. }))),
                _ => assert!(matches!(outcome, Err(PostError::Permanent { .. })), "{code}"),
            }
        }
    }

    #[test]
    fn a_collector_says_when_to_repeat_and_what_it_rejected() {
        let headers = |text| HeaderMap::from_iter([(header::RETRY_AFTER, HeaderValue::from_static(text))]);
        let after = |text| match outcome(StatusCode::SERVICE_UNAVAILABLE, &headers(text), b"") {
            Err(PostError::Retryable { after, .. }) => after,
            other => panic!("{other:?}"),
        };
        assert_eq!(after("7"), Some(Duration::from_secs(7)));
        assert_eq!(after("Thu, 19 Nov 2026 20:00:00 GMT"), None);
        let partial = ExportTracePartialSuccess { rejected_spans: 3, error_message: "too old".into() };
        let body = ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec();
        let accepted = outcome(StatusCode::OK, &HeaderMap::new(), &body);
        assert_eq!(accepted, Ok(ExportReceipt { rejected: 3, message: "too old".into() }));
        let body = ErrorStatus { code: 3, message: "no such\ntenant".into() }.encode_to_vec();
        let refused = outcome(StatusCode::BAD_REQUEST, &HeaderMap::new(), &body);
        assert_eq!(refused, Err(PostError::Permanent { reason: "400 Bad Request: no suchtenant".into() }));
    }
}
