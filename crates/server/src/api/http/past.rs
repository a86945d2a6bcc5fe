//! What was, over HTTP: the audit trail and backups.

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use leasehold_wire::json::{EntryBody, ProofBody, TrailBody};
use serde::Deserialize;

use super::heard::{Nothing, Question};
use super::told::{At, Problem, Told};
use crate::api::Api;
use crate::trail::{Asked, Broken, hex};

/// `GET /v1/backup`: one file, streamed.
pub async fn backup(State(api): State<Api>, _: Question<Nothing>) -> Result<Response, Problem> {
    let (about, pieces) = api.backup().await?;
    let named = format!("attachment; filename=\"leasehold-{}-{}.backup\"", about.cluster, about.position);
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, about.total().to_string()),
        (header::CONTENT_DISPOSITION, named),
    ];
    let body = Body::from_stream(pieces.map(|piece| piece.map_err(|problem| std::io::Error::other(problem.message))));
    Ok((headers, body).into_response())
}

/// Which entries.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Which {
    after: u64,
    before: u64,
    oldest_first: bool,
    most: usize,
}

/// `GET /v1/history/{name}?after=&before=&oldest_first=&most=`: what happened to a resource, newest first.
pub async fn history(
    State(api): State<Api>,
    Path(name): Path<String>,
    Question(which): Question<Which>,
) -> Told<TrailBody> {
    told(&api, Some(name), which).await
}

/// `GET /v1/history`: the same about everything.
pub async fn all(State(api): State<Api>, Question(which): Question<Which>) -> Told<TrailBody> {
    told(&api, None, which).await
}

async fn told(api: &Api, resource: Option<String>, which: Which) -> Told<TrailBody> {
    let Which { after, before, oldest_first, most } = which;
    let (entries, head) = api.trail(Asked { resource, after, before, oldest_first, most }).await?;
    // What was damaged since it was written is told as it is.
    let entries = entries.into_iter().map(|(text, hash)| EntryBody::of(text, &hash)).collect();
    let body = TrailBody { entries, last: head.entries, hash: hex(&head.hash), position: head.position };
    Ok(At::new(body, head.position))
}

/// `GET /v1/trail`: all of the trail, one entry a line.
pub async fn export(State(api): State<Api>, _: Question<Nothing>) -> Result<Response, Problem> {
    let lines = api.export_trail().await?;
    let body = Body::from_stream(lines.map(|piece| piece.map_err(|problem| std::io::Error::other(problem.message))));
    Ok(([(header::CONTENT_TYPE, "application/jsonl")], body).into_response())
}

/// `GET /v1/trail:verify`.
pub async fn verify(State(api): State<Api>, _: Question<Nothing>) -> Result<Json<ProofBody>, Problem> {
    Ok(Json(match api.verify_trail().await? {
        Ok(found) => ProofBody::whole(found.first, found.last, &found.hash),
        Err(Broken::At { file, offset, why }) => ProofBody::broken(file, offset, why),
        Err(Broken::NotTold(why)) => ProofBody::broken(String::new(), 0, why.to_string()),
    }))
}
