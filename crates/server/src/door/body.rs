//! A request is let in when all of it has come: a body that trickles has an end, like everything else.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use leasehold_wire::{Code, MESSAGE_BYTES, v1};

use super::refused::speaks_grpc;
use crate::api::Problem;

/// The one request whose body goes on.
const STREAM: &str = "/leasehold.v1.Leasehold/Session";
/// What gRPC puts before a message.
const PREFIX: usize = 5;

/// Waits for the whole body, and not for ever.
pub async fn whole(State(patience): State<Duration>, request: Request, next: Next) -> Response {
    if request.uri().path() == STREAM {
        return next.run(request).await;
    }
    let grpc = speaks_grpc(request.headers());
    let (head, body) = request.into_parts();
    // What is too large is told by whoever reads it: this only must not cut it to size.
    match tokio::time::timeout(patience, to_bytes(body, MESSAGE_BYTES + PREFIX)).await {
        // Its reader would do the first message and pass over the rest.
        Ok(Ok(bytes)) if grpc && is_followed(&bytes) => tonic::Status::internal("").into_http(),
        Ok(Ok(bytes)) => next.run(Request::from_parts(head, Body::from(bytes))).await,
        Ok(Err(_)) if grpc => tonic::Status::out_of_range("").into_http(),
        Ok(Err(_)) => StatusCode::PAYLOAD_TOO_LARGE.into_response(),
        Err(_) if grpc => leasehold_wire::status(late()).into_http(),
        Err(_) => {
            let mut response = Problem::from(late()).into_response();
            // What is left of the body is not waited for.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            response
        }
    }
}

/// Whether anything stands behind the first message.
fn is_followed(bytes: &[u8]) -> bool {
    let Some((&[_, a, b, c, d], rest)) = bytes.split_first_chunk::<PREFIX>() else { return false };
    rest.len() > u32::from_be_bytes([a, b, c, d]) as usize
}

fn late() -> v1::Problem {
    let told = v1::Problem::of(Code::Timeout, "body: it did not come in time; nothing happened, send it at once");
    v1::Problem { field: "body".into(), ..told }
}
