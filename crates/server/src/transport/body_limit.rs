//! Middleware that reads the whole body of a request, within a size and a time limit.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;
use leasehold_wire::{Code, MAX_TRANSPORT_BYTES, v1};

use super::error_layer::body_too_large;
use super::grpc_requests::{SESSION_PATH, is_grpc, malformed_message, message_too_large, problem_response};

/// Bytes before each gRPC message: a flag and the length.
const GRPC_PREFIX: usize = 5;

/// Passes a request on when its whole body has arrived. The session stream is exempt: its body does not end.
pub async fn read_body(State(timeout): State<Duration>, request: Request, next: Next) -> Response {
    if request.uri().path() == SESSION_PATH {
        return next.run(request).await;
    }
    let grpc = is_grpc(request.headers());
    let (head, body) = request.into_parts();
    // The decoder reports a message that is slightly too large; this limit only bounds memory.
    match tokio::time::timeout(timeout, to_bytes(body, MAX_TRANSPORT_BYTES + GRPC_PREFIX)).await {
        // The decoder would execute the first message and ignore the rest.
        Ok(Ok(bytes)) if grpc && has_trailing_bytes(&bytes) => problem_response(malformed_message(), grpc),
        Ok(Ok(bytes)) => next.run(Request::from_parts(head, Body::from(bytes))).await,
        Ok(Err(_)) if grpc => problem_response(message_too_large(), grpc),
        Ok(Err(_)) => problem_response(body_too_large(), grpc),
        Err(_) => {
            let mut response = problem_response(body_timeout(), grpc);
            if !grpc {
                // Do not wait for the rest of the body.
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            response
        }
    }
}

/// Whether bytes follow the first gRPC message.
fn has_trailing_bytes(bytes: &[u8]) -> bool {
    let Some((&[_, a, b, c, d], rest)) = bytes.split_first_chunk::<GRPC_PREFIX>() else { return false };
    rest.len() > u32::from_be_bytes([a, b, c, d]) as usize
}

fn body_timeout() -> v1::Problem {
    let problem = v1::Problem::of(Code::Timeout, "body: did not arrive in time; nothing happened, send it at once");
    v1::Problem { field: "body".into(), ..problem }
}
