//! What changes something: each request becomes the message that a stream would carry.

use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use leasehold_core::command::{Answer as Decided, Request};
use leasehold_core::ids::SessionId;
use leasehold_core::refusal::Refusal;
use leasehold_wire::json::{
    AcquireBody, CapacityBody, CheckBody, CurrentBody, FreeBody, GrantBody, HandoffBody, OpenBody, ReleaseBody,
    RenewBody, RevokeBody, SessionBody, SetCharterBody, WaiveBody,
};
use leasehold_wire::v1::request::Ask;
use leasehold_wire::v1::response::Answer;
use leasehold_wire::{Code, problem, session_bits, v1, welcome};

use super::told::{At, Problem, Told, marks, read, token};
use crate::api::{Api, unanswered};
use crate::inbox::Body;
use crate::secret;

/// `POST /v1/leases/{name}:verb`.
pub async fn lease(
    State(api): State<Api>,
    Path(path): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    let (name, verb) = path.rsplit_once(':').ok_or_else(|| unknown_verb(""))?;
    let ask = match verb {
        "acquire" => read::<AcquireBody>(&body)?.ask(name)?,
        "renew" => {
            let mut body = read::<RenewBody>(&body)?;
            token(&headers, &mut body.token)?;
            body.ask(name)?
        }
        "release" => {
            let mut body = read::<ReleaseBody>(&body)?;
            token(&headers, &mut body.token)?;
            body.ask(name)
        }
        "check" => {
            let mut body = read::<CheckBody>(&body)?;
            token(&headers, &mut body.token)?;
            body.ask(name)
        }
        "handoff" => read::<HandoffBody>(&body)?.ask(name)?,
        "revoke" => read::<RevokeBody>(&body)?.ask(name)?,
        "free" => read::<FreeBody>(&body)?.ask(name),
        "capacity" => read::<CapacityBody>(&body)?.ask(name),
        _ => return Err(unknown_verb(verb)),
    };
    let marks = marks(&headers, &api.issuer)?;
    let holder = holder_of(&ask);
    match api.call(marks, ask).await? {
        (Answer::Granted(grant), at) => Ok(At::new(GrantBody { holder, ..GrantBody::from(grant) }, at).into_response()),
        (Answer::Current(current), at) => Ok(At::new(CurrentBody::new(name, current), at).into_response()),
        (Answer::Refused(problem), at) => Ok(Problem(problem).at(at)),
        (_, at) => Ok(done(at)),
    }
}

fn holder_of(ask: &Ask) -> String {
    match ask {
        Ask::Acquire(acquire) => acquire.holder.clone(),
        _ => String::new(),
    }
}

fn unknown_verb(verb: &str) -> Problem {
    let verbs = "acquire, renew, release, check, handoff, revoke, free or capacity";
    let shown: String = verb.chars().filter(|c| !c.is_control()).take(32).collect();
    let told =
        v1::Problem::of(Code::NotFound, format!("no such verb {shown:?}; POST to /v1/leases/NAME:VERB with {verbs}"));
    v1::Problem { about: "verb".into(), ..told }.into()
}

fn done(position: u64) -> Response {
    At::new(serde_json::json!({ "done": true }), position).into_response()
}

/// `POST /v1/sessions`.
pub async fn open_session(State(api): State<Api>, headers: HeaderMap, body: Bytes) -> Told<SessionBody> {
    let open = read::<OpenBody>(&body)?.open();
    let drawn = secret::draw();
    let request = Request { tag: 0, id: None, shown: marks(&headers, &api.issuer)?.seen };
    match api.ask(request, Body::Open(open, drawn), api.caller()).await?.answer {
        Decided::Session(grant) => {
            At::told(api.look_from(0, move |grantor| welcome(&grant, Some(drawn), &grantor.status())).await?)
        }
        Decided::Refused(refusal) => Err(problem(&refusal).into()),
        _ => Err(unanswered().into()),
    }
}

/// `POST /v1/sessions/{id}:renew` and `:close`.
pub async fn session(
    State(api): State<Api>,
    Path(path): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (id, verb) = path.rsplit_once(':').unwrap_or((&path, ""));
    let id: SessionId = id.parse().map_err(|_| Refusal::Invalid { field: "session", reason: "it looks like 17.0" })?;
    let session = Some(session_bits(id));
    let ask = match verb {
        "renew" => Ask::RenewSession(v1::RenewSession { session, known: None }),
        "close" => Ask::CloseSession(v1::CloseSession { session }),
        _ => {
            let told = v1::Problem::of(Code::NotFound, "POST to /v1/sessions/ID:renew or /v1/sessions/ID:close");
            return Err(v1::Problem { about: "verb".into(), ..told }.into());
        }
    };
    match api.call(marks(&headers, &api.issuer)?, ask).await? {
        (Answer::Session(state), at) => {
            let body = serde_json::json!({
                "session": id.to_string(),
                "ttl_ms": state.ttl_ms,
                "remaining_ms": state.remaining_ms,
            });
            Ok(At::new(body, at).into_response())
        }
        (Answer::Refused(problem), at) => Ok(Problem(problem).at(at)),
        (_, at) => Ok(done(at)),
    }
}

/// `PUT /v1/charters/{prefix}`.
pub async fn set_charter(
    State(api): State<Api>,
    Path(prefix): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    let body = read::<SetCharterBody>(&body)?;
    let charter = Some(leasehold_wire::charter(&body.charter.read()?));
    let prefix = if prefix == "*" { String::new() } else { prefix };
    let ask = Ask::SetCharter(Box::new(v1::SetCharter { prefix, charter, why: body.reason }));
    plain(&api, &headers, ask).await
}

/// Why a charter is removed.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Why {
    #[serde(default)]
    reason: String,
}

/// `DELETE /v1/charters/{prefix}?reason=…`.
pub async fn remove_charter(
    State(api): State<Api>,
    Path(prefix): Path<String>,
    Query(why): Query<Why>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let prefix = if prefix == "*" { String::new() } else { prefix };
    plain(&api, &headers, Ask::RemoveCharter(v1::RemoveCharter { prefix, why: why.reason })).await
}

/// `POST /v1/quarantine:waive`.
pub async fn waive(State(api): State<Api>, headers: HeaderMap, body: Bytes) -> Result<Response, Problem> {
    let ask = read::<WaiveBody>(&body)?.ask();
    plain(&api, &headers, ask).await
}

async fn plain(api: &Api, headers: &HeaderMap, ask: Ask) -> Result<Response, Problem> {
    match api.call(marks(headers, &api.issuer)?, ask).await? {
        (Answer::Refused(problem), at) => Ok(Problem(problem).at(at)),
        (_, at) => Ok(done(at)),
    }
}
