//! HTTP endpoints of sessions: open, renew, reconcile, cancel and close, the leases of a session, and its events.

use std::convert::Infallible;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt};
use leasehold_core::command::Answer as Decided;
use leasehold_core::grantor::Query;
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::refusal::Refusal;
use leasehold_core::secret::SessionSecret;
use leasehold_wire::headers::IDEMPOTENCY_KEY;
use leasehold_wire::json::{
    CancelWaitBody, EventBody, OpenSessionBody, ProblemBody, ReconcileBody, RenewSessionBody, SessionBody,
    SessionLeasesBody, SessionStateBody,
};
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;
use leasehold_wire::{lease_bits, problem, session_bits, v1, welcome};
use serde::Deserialize;

use super::commands::{Charge, NoFields, check_rate, done, unknown_verb};
use super::extract::{JsonBody, NoQuery, PathName, StrictQuery, metadata};
use super::respond::{HttpResult, WithPosition, heartbeat};
use super::verbs::SessionVerb;
use crate::api::problems::no_reply;
use crate::api::queries::status_of;
use crate::api::{Api, request_with};
use crate::random;
use crate::request::RequestPayload;
use crate::transport::HttpProblem;

/// `POST /v1/sessions`.
pub async fn open(
    State(api): State<Api>,
    _: StrictQuery<NoQuery>,
    headers: HeaderMap,
    body: JsonBody,
) -> HttpResult<SessionBody> {
    let open = body.parse::<OpenSessionBody>()?.into_request();
    let secret = SessionSecret::new(random::bytes());
    let metadata = metadata(&headers, &api)?;
    if metadata.client_key.is_some() {
        let reason = "not to open a session, whose secret is only in the first reply; open another one";
        return Err(Refusal::Invalid { field: IDEMPOTENCY_KEY, reason }.into());
    }
    let request = request_with(metadata.token_seen, metadata.trace);
    let reply = api.submit(request, RequestPayload::Open(open, secret.digest()), api.caller()).await?;
    api.observe(&reply);
    match reply.answer {
        Decided::Session(grant) => {
            let (status, position) = api.query(0, Query::Status, status_of).await?;
            WithPosition::from_query((welcome(&grant, Some(&secret), &status), position))
        }
        Decided::Refused(refusal) => Err(problem(&refusal).into()),
        _ => Err(no_reply().into()),
    }
}

/// Parses the id of a session in a path.
fn session_in_path(text: &str) -> Result<SessionId, Refusal> {
    text.parse().map_err(|_| Refusal::Invalid { field: "session", reason: "a session id, for example 17.0" })
}

/// `POST /v1/sessions/{session}:verb`.
pub async fn command(
    State(api): State<Api>,
    charge: Charge,
    PathName(path): PathName,
    _: StrictQuery<NoQuery>,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, HttpProblem> {
    let (id, word) = path.rsplit_once(':').unwrap_or((&path, ""));
    let verb =
        SessionVerb::from_word(word).ok_or_else(|| unknown_verb("/v1/sessions/ID", word, &SessionVerb::WORDS))?;
    let id = session_in_path(id)?;
    let session = Some(session_bits(id));
    let operation = match verb {
        SessionVerb::Renew => body.parse::<RenewSessionBody>()?.into_operation(session)?,
        SessionVerb::Reconcile => body.parse::<ReconcileBody>()?.into_operation(session)?,
        SessionVerb::Cancel => body.parse::<CancelWaitBody>()?.into_operation(session)?,
        SessionVerb::Close => {
            let NoFields {} = body.parse()?;
            Operation::CloseSession(v1::CloseSession { session })
        }
    };
    check_rate(charge, &operation)?;
    match api.call(metadata(&headers, &api)?, operation).await? {
        (Answer::Session(state), position) => {
            let v1::SessionState { ttl_ms, remaining_ms, mismatch, .. } = state;
            let body = SessionStateBody { session: id.to_string(), ttl_ms, remaining_ms, mismatch };
            Ok(WithPosition::new(body, position).into_response())
        }
        (Answer::Refused(problem), position) => Ok(HttpProblem(problem).with_position(position)),
        (_, position) => Ok(done(position)),
    }
}

/// Parameters of a list of the leases of a session.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SessionLeasesQuery {
    cursor: String,
    limit: u32,
}

/// `GET /v1/sessions/{session}/leases?cursor=&limit=`.
pub async fn leases(
    State(api): State<Api>,
    PathName(session): PathName,
    StrictQuery(SessionLeasesQuery { cursor, limit }): StrictQuery<SessionLeasesQuery>,
    headers: HeaderMap,
) -> HttpResult<SessionLeasesBody> {
    let session = session_bits(session_in_path(&session)?);
    let after = match cursor.as_str() {
        "" => None,
        text => {
            let reason = "the field next of the previous page, for example 17.0";
            let lease: LeaseId = text.parse().map_err(|_| Refusal::Invalid { field: "cursor", reason })?;
            Some(lease_bits(lease))
        }
    };
    let secret = metadata(&headers, &api)?.session_secret;
    WithPosition::from_query(api.session_leases(v1::SessionLeasesRequest { session, after, limit }, secret).await?)
}

/// `GET /v1/sessions/{session}/events`: server-sent events, each with the journal position it depends on as its id.
pub async fn events(
    State(api): State<Api>,
    PathName(session): PathName,
    _: StrictQuery<NoQuery>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, HttpProblem> {
    let session = session_in_path(&session)?;
    let events = api.session_events(session, metadata(&headers, &api)?.session_secret).await?.map(|event| {
        Ok(match event {
            Ok(event) => {
                let position = event.position;
                let body = EventBody::from(event);
                let name = body.event.clone();
                Event::default().id(position.to_string()).event(name).json_data(body).unwrap_or_default()
            }
            Err(problem) => Event::default().event("close").json_data(ProblemBody::from(problem)).unwrap_or_default(),
        })
    });
    Ok(Sse::new(events).keep_alive(heartbeat()))
}
