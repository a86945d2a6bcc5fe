//! HTTP endpoints of the audit log and of backups.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use leasehold_wire::json::{AuditEntryBody, AuditPageBody, AuditVerificationBody, DenialBody, DenialsBody};
use leasehold_wire::v1;
use serde::Deserialize;

use super::extract::{NoQuery, PathName, StrictQuery};
use super::respond::{HttpResult, WithPosition};
use crate::api::Api;
use crate::audit::{AuditProof, AuditQuery, VerifyError, encode_heads, hex};
use crate::transport::HttpProblem;

/// `GET /v1/backup`: one file, streamed.
pub async fn backup(State(api): State<Api>, _: StrictQuery<NoQuery>) -> Result<Response, HttpProblem> {
    let (header, chunks) = api.backup().await?;
    let disposition = format!("attachment; filename=\"leasehold-{}-{}.backup\"", header.cluster, header.position);
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, header.total().to_string()),
        (header::CONTENT_DISPOSITION, disposition),
    ];
    let body = Body::from_stream(chunks.map(|chunk| chunk.map_err(|problem| std::io::Error::other(problem.message))));
    Ok((headers, body).into_response())
}

/// Parameters of a query of the audit log.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HistoryQuery {
    after: u64,
    before: u64,
    oldest_first: bool,
    limit: usize,
}

/// `GET /v1/history/{name}?after=&before=&oldest_first=&limit=`: audit entries of a resource, newest first. A page with `next` continues.
pub async fn resource_history(
    State(api): State<Api>,
    PathName(name): PathName,
    StrictQuery(query): StrictQuery<HistoryQuery>,
) -> HttpResult<AuditPageBody> {
    audit_page(&api, Some(name), query).await
}

/// `GET /v1/history`: audit entries of all resources.
pub async fn history(
    State(api): State<Api>,
    StrictQuery(query): StrictQuery<HistoryQuery>,
) -> HttpResult<AuditPageBody> {
    audit_page(&api, None, query).await
}

async fn audit_page(api: &Api, resource: Option<String>, query: HistoryQuery) -> HttpResult<AuditPageBody> {
    let HistoryQuery { after, before, oldest_first, limit } = query;
    let query = AuditQuery { resource, after, before, oldest_first, limit, ..AuditQuery::default() };
    let (found, head) = api.audit(query).await?;
    // A damaged text is returned as it is.
    let entries = found.entries.into_iter().map(|(text, hash)| AuditEntryBody::of(text, &hash)).collect();
    let (last, hash, position) = (head.entries, hex(&head.hash), head.position);
    let body = AuditPageBody { entries, last, hash, position, next: found.next };
    Ok(WithPosition::new(body, head.position))
}

/// `GET /v1/audit`: the whole audit log, one entry per line.
pub async fn export(State(api): State<Api>, _: StrictQuery<NoQuery>) -> Result<Response, HttpProblem> {
    let chunks = api.export_audit().await?;
    let body = Body::from_stream(chunks.map(|chunk| chunk.map_err(|problem| std::io::Error::other(problem.message))));
    Ok(([(header::CONTENT_TYPE, "application/jsonl")], body).into_response())
}

/// `GET /v1/audit:verify`.
pub async fn verify(
    State(api): State<Api>,
    _: StrictQuery<NoQuery>,
) -> Result<Json<AuditVerificationBody>, HttpProblem> {
    Ok(Json(verification_body(api.verify_audit().await?)))
}

/// The result of a verification.
pub fn verification_body(result: Result<AuditProof, VerifyError>) -> AuditVerificationBody {
    match result {
        Ok(proof) => AuditVerificationBody::whole(proof.first, proof.last, &proof.hash)
            .with_gaps(proof.gaps)
            .with_heads(proof.heads),
        Err(VerifyError::Damaged { file, offset, reason }) => AuditVerificationBody::broken(file, offset, reason),
        Err(VerifyError::Read(error)) => AuditVerificationBody::broken(String::new(), 0, error.to_string()),
    }
}

/// `GET /v1/audit-heads`: the stored signed heads of the audit log, one per line, oldest first.
pub async fn heads(State(api): State<Api>, _: StrictQuery<NoQuery>) -> Result<Response, HttpProblem> {
    let heads = api.audit_heads().await?;
    Ok(([(header::CONTENT_TYPE, "application/jsonl")], encode_heads(&heads)).into_response())
}

/// `GET /v1/denials`: the last requests that the access rules refused, newest first.
pub async fn denials(State(api): State<Api>, _: StrictQuery<NoQuery>) -> Result<Json<DenialsBody>, HttpProblem> {
    let (denials, total) = api.last_denials().map_err(HttpProblem)?;
    let denials = denials.into_iter().map(|denial| DenialBody::from(v1::Denial::from(denial))).collect();
    Ok(Json(DenialsBody { denials, total }))
}
