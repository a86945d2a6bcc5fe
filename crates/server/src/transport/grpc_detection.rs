//! gRPC requests: their detection, their paths, and problems for statuses that the gRPC library makes.

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use leasehold_wire::{Code, METADATA_CODE, problem_from_status, v1};
use tonic::Status;

use super::http_problem::HttpProblem;

/// Path of the service; a method's name follows.
pub const SERVICE_PATH: &str = "/leasehold.v1.Leasehold/";
/// Path of the session stream, the only method of the service with a body that does not end.
pub(super) const SESSION_PATH: &str = "/leasehold.v1.Leasehold/Session";

/// The health check, which is served above every limit like its counterpart over HTTP.
pub(super) const HEALTH_CHECK_PATH: &str = "/grpc.health.v1.Health/Check";
/// Reflection: streams of requests that each get a response.
pub(super) const REFLECTION_PATHS: [&str; 2] = [
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];
/// Methods that every server answers for anyone: they show nothing of the state.
pub const OPEN_METHODS: [&str; 4] =
    [HEALTH_CHECK_PATH, "/grpc.health.v1.Health/Watch", REFLECTION_PATHS[0], REFLECTION_PATHS[1]];

/// Whether the body of a request does not end before its response begins.
pub(super) fn is_streamed(path: &str) -> bool {
    path == SESSION_PATH || REFLECTION_PATHS.contains(&path)
}

/// Whether a request is gRPC, by its content type.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.starts_with(b"application/grpc"))
}

/// A problem as the response to a gRPC or HTTP request.
pub fn problem_response(problem: v1::Problem, grpc: bool) -> Response {
    if grpc {
        leasehold_wire::problem_to_status(problem).into_http()
    } else {
        HttpProblem::from(problem).into_response()
    }
}

/// The problem of a status. A status of the gRPC library names a problem of the message; `None` if the message is not at fault
/// because the connection broke or the peer cancelled.
pub fn problem_of_status(status: &Status) -> Option<v1::Problem> {
    if status.metadata().contains_key(METADATA_CODE) {
        return Some(problem_from_status(status));
    }
    match status.code() {
        tonic::Code::OutOfRange | tonic::Code::ResourceExhausted => Some(message_too_large()),
        tonic::Code::Unimplemented => Some(unknown_method()),
        tonic::Code::Internal | tonic::Code::InvalidArgument => Some(malformed_message()),
        _ => None,
    }
}

/// A message exceeds the size limit.
pub(super) fn message_too_large() -> v1::Problem {
    let max = leasehold_wire::MAX_REQUEST_BYTES as u64;
    let problem =
        v1::Problem::of(Code::ResourceExhausted, format!("the message is larger than {max} bytes; send less at once"));
    v1::Problem { limit: leasehold_wire::MESSAGE_BYTES_LIMIT.into(), max: Some(max), ..problem }
}

/// The service has no such method.
pub(super) fn unknown_method() -> v1::Problem {
    let message = "unknown gRPC method; compare the versions of client and server";
    v1::Problem { field: "method".into(), want: Some(1), ..v1::Problem::of(Code::UnsupportedVersion, message) }
}

/// The bytes are not one message of the service.
pub(super) fn malformed_message() -> v1::Problem {
    v1::Problem::of(Code::FrameError, "the message cannot be decoded; compare the versions of client and server")
}
