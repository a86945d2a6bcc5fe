//! What was, over HTTP: backups.

use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures::StreamExt;

use super::told::Problem;
use crate::api::Api;

/// `GET /v1/backup`: one file, streamed.
pub async fn backup(State(api): State<Api>) -> Result<Response, Problem> {
    let (about, pieces) = api.backup().await?;
    let named = format!("attachment; filename=\"leasehold-{}-{}.backup\"", about.cluster, about.position);
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, about.total().to_string()),
        (header::CONTENT_DISPOSITION, named),
    ];
    let body = Body::from_stream(pieces.map(Ok::<_, std::convert::Infallible>));
    Ok((headers, body).into_response())
}
