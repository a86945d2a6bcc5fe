//! Middleware that turns every rejection into a problem and counts it, including those that the HTTP and gRPC libraries make.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use leasehold_wire::{Code, MESSAGE_BYTES_LIMIT, METADATA_CODE, problem_from_status, v1};
use tonic::Status;

use super::grpc_detection::{OPEN_METHODS, SERVICE_PATH, is_grpc, problem_of_status, problem_response, unknown_method};
use super::http_problem::{HttpProblem, ProblemExt};
use crate::metrics::Metrics;

/// Counts problems, and gives rejections of the libraries the form of a problem.
pub async fn problems(State(metrics): State<Arc<Metrics>>, request: Request, next: Next) -> Response {
    let grpc = is_grpc(request.headers());
    if let Some(problem) = invalid_head(&request, grpc) {
        metrics.rejections().problem(&problem);
        return problem_response(problem, grpc);
    }
    let method = request.method().clone();
    if method == Method::OPTIONS && request.uri().path() == "*" {
        return options(HeaderValue::from_static("GET,HEAD,POST,PUT,DELETE"));
    }
    let response = next.run(request).await;
    if let Some(ProblemExt(problem)) = response.extensions().get() {
        metrics.rejections().problem(problem);
        return response;
    }
    if grpc {
        return grpc_problem(&metrics, response);
    }
    if !response.status().is_client_error() {
        return response;
    }
    let (status, allow) = (response.status(), response.headers().get(header::ALLOW).cloned());
    match allow {
        Some(allow) if method == Method::OPTIONS => return options(allow),
        _ => {}
    }
    let problem = HttpProblem::from(library_problem(status, &method, allow.as_ref()));
    metrics.rejections().problem(&problem.0);
    let mut response = problem.into_response();
    if let Some(allow) = allow {
        response.headers_mut().insert(header::ALLOW, allow);
    }
    response
}

/// A response to `OPTIONS`, without permissions for pages of other origins.
fn options(allow: HeaderValue) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    response.headers_mut().insert(header::ALLOW, allow);
    response
}

/// The problem of a request that can be refused by its head.
fn invalid_head(request: &Request, grpc: bool) -> Option<v1::Problem> {
    let headers = request.headers();
    if !grpc {
        let path = request.uri().path();
        let is_service = path.starts_with(SERVICE_PATH) || OPEN_METHODS.contains(&path);
        return is_service.then(|| invalid("content-type", "must be application/grpc for a gRPC method"));
    }
    if is_deadline_exceeded(headers) {
        let message = "grpc-timeout: the deadline passed before the request arrived; nothing happened, allow more time";
        return Some(v1::Problem { field: "grpc-timeout".into(), ..v1::Problem::of(Code::Timeout, message) });
    }
    is_compressed(headers, "grpc-encoding").then(|| invalid("grpc-encoding", NOT_COMPRESSED))
}

/// Why a compressed body is refused.
pub const NOT_COMPRESSED: &str = "compression is not supported; send the body uncompressed";

/// Whether a header names a compression.
pub fn is_compressed(headers: &HeaderMap, name: &str) -> bool {
    headers.get_all(name).iter().any(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// The problem of a rejection that the HTTP library made.
fn library_problem(status: StatusCode, method: &Method, allow: Option<&HeaderValue>) -> v1::Problem {
    match status {
        StatusCode::NOT_FOUND => unknown_path(),
        StatusCode::METHOD_NOT_ALLOWED => {
            let method: String = method.as_str().chars().take(32).collect();
            let allow = allow.and_then(|allow| allow.to_str().ok()).unwrap_or_default().replace(',', ", ");
            method_not_allowed(&method, &allow)
        }
        StatusCode::PAYLOAD_TOO_LARGE => body_too_large(),
        _ => invalid("request", "cannot be processed; compare it with /v1/openapi.json"),
    }
}

/// A method that a path does not have.
pub fn method_not_allowed(method: &str, allow: &str) -> v1::Problem {
    let reason = format!("{method} is not allowed at this path; use {allow}");
    let problem = v1::Problem::of(Code::MethodNotAllowed, format!("method: {reason}"));
    v1::Problem { field: "method".into(), reason, ..problem }
}

/// An invalid field of a request.
pub fn invalid(field: &str, reason: &str) -> v1::Problem {
    let problem = v1::Problem::of(Code::InvalidArgument, format!("{field}: {reason}"));
    v1::Problem { field: field.into(), reason: reason.into(), ..problem }
}

/// A body exceeds the size limit.
pub fn body_too_large() -> v1::Problem {
    let max = leasehold_wire::MAX_TRANSPORT_BYTES as u64;
    let problem = v1::Problem::of(Code::ResourceExhausted, format!("the body is larger than {max} bytes; send less"));
    v1::Problem { field: "body".into(), limit: MESSAGE_BYTES_LIMIT.into(), max: Some(max), ..problem }
}

fn unknown_path() -> v1::Problem {
    let problem = v1::Problem::of(Code::NotFound, "unknown path; the paths are listed in /v1/openapi.json");
    v1::Problem { subject: "path".into(), ..problem }
}

fn grpc_problem(metrics: &Metrics, response: Response) -> Response {
    let Some(status) = Status::from_header_map(response.headers()) else {
        return response;
    };
    if status.code() == tonic::Code::Ok {
        return response;
    }
    if response.headers().contains_key(METADATA_CODE) {
        metrics.rejections().problem(&problem_from_status(&status));
        return response;
    }
    let Some(problem) = problem_of_status(&status) else {
        return response;
    };
    metrics.rejections().problem(&problem);
    problem_response(problem, true)
}

/// Whether the caller's deadline is zero: digits and a unit.
fn is_deadline_exceeded(headers: &HeaderMap) -> bool {
    let left = headers.get("grpc-timeout").map(HeaderValue::as_bytes).and_then(<[u8]>::split_last);
    left.is_some_and(|(_, digits)| !digits.is_empty() && digits.iter().all(|digit| *digit == b'0'))
}

/// Rejects a request for an unknown path.
pub async fn not_found(request: Request) -> Response {
    let grpc = is_grpc(request.headers());
    problem_response(if grpc { unknown_method() } else { unknown_path() }, grpc)
}
