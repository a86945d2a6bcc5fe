//! Whatever is refused at the doors is told as a problem and counted, also what never came as far as a request.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use leasehold_wire::{Code, METADATA_CODE, from_status, v1};
use tonic::Status;

use crate::api::{self, Problem, Refused};
use crate::door::HEAD_BYTES;
use crate::meter::Meter;
use crate::room::Room;

/// Counts what is refused, and gives what the libraries below refuse the form of a problem.
pub async fn typed(State(meter): State<Arc<Meter>>, request: Request, next: Next) -> Response {
    let grpc = speaks_grpc(request.headers());
    if grpc && has_no_time(request.headers()) {
        let told = "grpc-timeout: no time was left when it arrived; nothing happened, allow more";
        let problem = v1::Problem { field: "grpc-timeout".into(), ..v1::Problem::of(Code::Timeout, told) };
        meter.refused().at_door(&problem);
        return leasehold_wire::status(problem).into_http();
    }
    let response = next.run(request).await;
    if let Some(Refused(problem)) = response.extensions().get() {
        meter.refused().at_door(problem);
        return response;
    }
    if grpc {
        return typed_status(&meter, response);
    }
    if !response.status().is_client_error() {
        return response;
    }
    let status = response.status();
    let said = to_bytes(response.into_body(), HEAD_BYTES).await.unwrap_or_default();
    let problem = Problem::from(plain(status, &said));
    meter.refused().at_door(&problem.0);
    problem.into_response()
}

/// What a library below said in plain text.
fn plain(status: StatusCode, said: &Bytes) -> v1::Problem {
    let said: String = String::from_utf8_lossy(said).chars().filter(|c| !c.is_control()).take(200).collect();
    let invalid = |field: &str, reason: String| v1::Problem {
        field: field.into(),
        reason: reason.clone(),
        ..v1::Problem::of(Code::InvalidArgument, format!("{field}: {reason}"))
    };
    match status {
        StatusCode::NOT_FOUND => {
            let told = v1::Problem::of(Code::NotFound, "nothing is served under this path; see the paths under /v1");
            v1::Problem { about: "path".into(), ..told }
        }
        StatusCode::METHOD_NOT_ALLOWED => invalid("method", "looks are GET, requests are POST".into()),
        StatusCode::PAYLOAD_TOO_LARGE => {
            let max = leasehold_wire::MESSAGE_BYTES as u64;
            let told = v1::Problem::of(Code::ResourceExhausted, format!("a body has at most {max} bytes; send less"));
            v1::Problem { field: "body".into(), limit: "message_bytes".into(), max: Some(max), ..told }
        }
        _ if said.to_ascii_lowercase().contains("path") || said.to_ascii_lowercase().contains("utf-8") => {
            invalid("path", said)
        }
        _ => invalid("request", said),
    }
}

fn typed_status(meter: &Meter, response: Response) -> Response {
    let Some(status) = Status::from_header_map(response.headers()) else {
        return response;
    };
    if status.code() == tonic::Code::Ok {
        return response;
    }
    if response.headers().contains_key(METADATA_CODE) {
        meter.refused().at_door(&from_status(&status));
        return response;
    }
    let Some(problem) = api::of_library(&status) else {
        return response;
    };
    meter.refused().at_door(&problem);
    leasehold_wire::status(problem).into_http()
}

/// Whether the caller's deadline was over before it asked: digits and a unit.
fn has_no_time(headers: &HeaderMap) -> bool {
    let left = headers.get("grpc-timeout").map(HeaderValue::as_bytes).and_then(<[u8]>::split_last);
    left.is_some_and(|(_, digits)| !digits.is_empty() && digits.iter().all(|digit| *digit == b'0'))
}

/// Whether a request says that it is gRPC.
pub fn speaks_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.starts_with(b"application/grpc"))
}

/// A path that nobody serves.
pub async fn unknown(request: Request) -> Response {
    if speaks_grpc(request.headers()) {
        Status::unimplemented("").into_http()
    } else {
        StatusCode::NOT_FOUND.into_response()
    }
}

/// What a connection beyond the bound hears, whatever it asks.
pub fn full(room: Arc<Room>, meter: Arc<Meter>) -> Router {
    let told = move |request: Request<Body>| {
        let (meter, max) = (meter.clone(), room.most() as u64);
        async move {
            let said = format!("at most {max} connections; close one, or use one for many requests");
            let problem = v1::Problem {
                limit: "connections".into(),
                max: Some(max),
                got: Some(max + 1),
                ..v1::Problem::of(Code::ResourceExhausted, said)
            };
            meter.refused().at_door(&problem);
            if speaks_grpc(request.headers()) {
                return leasehold_wire::status(problem).into_http();
            }
            let mut response = Problem::from(problem).into_response();
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            response
        }
    };
    Router::new().fallback(told)
}
