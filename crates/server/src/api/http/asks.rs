//! What changes something: each request becomes the message that a stream would carry.

use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use leasehold_core::command::{Answer as Decided, Request};
use leasehold_core::ids::SessionId;
use leasehold_core::refusal::Refusal;
use leasehold_wire::json::{
    AcquireBody, CapacityBody, CheckBody, CurrentBody, DoneBody, FreeBody, GrantBody, HandoffBody, OpenBody,
    ReleaseBody, RenewBody, ReportsBody, RevokeBody, SessionBody, SessionStateBody, SetCharterBody, StepDownBody,
    WaiveBody,
};
use leasehold_wire::v1::request::Ask;
use leasehold_wire::v1::response::Answer;
use leasehold_wire::{Code, problem, session_bits, v1, welcome};

use super::heard::{Nothing, Question, Sent, marks, token};
use super::told::{At, Problem, Told};
use super::verbs::{OfLease, OfSession};
use crate::api::{Api, unanswered};
use crate::inbox::Body;
use crate::secret;

/// `POST /v1/leases/{name}:verb`.
pub async fn lease(
    State(api): State<Api>,
    Path(path): Path<String>,
    _: Question<Nothing>,
    headers: HeaderMap,
    body: Sent,
) -> Result<Response, Problem> {
    let (name, word) = path.rsplit_once(':').unwrap_or((&path, ""));
    let verb = OfLease::from_word(word).ok_or_else(|| no_such_verb("/v1/leases/NAME", word, &OfLease::WORDS))?;
    let ask = match verb {
        OfLease::Acquire => body.read::<AcquireBody>()?.ask(name)?,
        OfLease::Renew => {
            let mut body = body.read::<RenewBody>()?;
            token(&headers, &mut body.token)?;
            body.ask(name)?
        }
        OfLease::Release => {
            let mut body = body.read::<ReleaseBody>()?;
            token(&headers, &mut body.token)?;
            body.ask(name)
        }
        OfLease::Check => {
            let mut body = body.read::<CheckBody>()?;
            token(&headers, &mut body.token)?;
            body.ask(name)
        }
        OfLease::Handoff => {
            let mut body = body.read::<HandoffBody>()?;
            token(&headers, &mut body.token)?;
            body.ask(name)?
        }
        OfLease::Revoke => body.read::<RevokeBody>()?.ask(name)?,
        OfLease::Free => body.read::<FreeBody>()?.ask(name),
        OfLease::Capacity => body.read::<CapacityBody>()?.ask(name),
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

fn no_such_verb(at: &str, word: &str, verbs: &[&str]) -> Problem {
    let shown: String = word.chars().filter(|c| !c.is_control()).take(32).collect();
    let verbs = verbs.join(", ");
    let told =
        v1::Problem::of(Code::NotFound, format!("no such verb {shown:?}; POST to {at}:VERB with one of {verbs}"));
    v1::Problem { about: "verb".into(), ..told }.into()
}

fn done(position: u64) -> Response {
    At::new(DoneBody { done: true }, position).into_response()
}

/// `POST /v1/sessions`.
pub async fn open_session(
    State(api): State<Api>,
    _: Question<Nothing>,
    headers: HeaderMap,
    body: Sent,
) -> Told<SessionBody> {
    let open = body.read::<OpenBody>()?.open();
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
    _: Question<Nothing>,
    headers: HeaderMap,
    _: Sent,
) -> Result<Response, Problem> {
    let (id, word) = path.rsplit_once(':').unwrap_or((&path, ""));
    let verb = OfSession::from_word(word).ok_or_else(|| no_such_verb("/v1/sessions/ID", word, &OfSession::WORDS))?;
    let id: SessionId = id.parse().map_err(|_| Refusal::Invalid { field: "session", reason: "it looks like 17.0" })?;
    let session = Some(session_bits(id));
    let ask = match verb {
        OfSession::Renew => Ask::RenewSession(v1::RenewSession { session, known: None }),
        OfSession::Close => Ask::CloseSession(v1::CloseSession { session }),
    };
    match api.call(marks(&headers, &api.issuer)?, ask).await? {
        (Answer::Session(state), at) => {
            let (ttl_ms, remaining_ms) = (state.ttl_ms, state.remaining_ms);
            let body = SessionStateBody { session: id.to_string(), ttl_ms, remaining_ms };
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
    _: Question<Nothing>,
    headers: HeaderMap,
    body: Sent,
) -> Result<Response, Problem> {
    let body = body.read::<SetCharterBody>()?;
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
    Question(why): Question<Why>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let prefix = if prefix == "*" { String::new() } else { prefix };
    plain(&api, &headers, Ask::RemoveCharter(v1::RemoveCharter { prefix, why: why.reason })).await
}

/// `POST /v1/fences`.
pub async fn report(
    State(api): State<Api>,
    _: Question<Nothing>,
    headers: HeaderMap,
    body: Sent,
) -> Result<Response, Problem> {
    let ask = body.read::<ReportsBody>()?.ask()?;
    plain(&api, &headers, ask).await
}

/// Which target is forgotten, and why.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gone {
    target: String,
    #[serde(default)]
    reason: String,
}

/// `DELETE /v1/fences/{name}?target=…&reason=…`.
pub async fn forget_target(
    State(api): State<Api>,
    Path(resource): Path<String>,
    Question(gone): Question<Gone>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let Gone { target, reason: why } = gone;
    plain(&api, &headers, Ask::ForgetTarget(v1::ForgetTarget { resource, target, why })).await
}

/// `POST /v1/quarantine:waive`.
pub async fn waive(
    State(api): State<Api>,
    _: Question<Nothing>,
    headers: HeaderMap,
    body: Sent,
) -> Result<Response, Problem> {
    let ask = body.read::<WaiveBody>()?.ask();
    plain(&api, &headers, ask).await
}

/// `POST /v1/cluster:step_down`.
pub async fn step_down(
    State(api): State<Api>,
    _: Question<Nothing>,
    headers: HeaderMap,
    body: Sent,
) -> Result<Response, Problem> {
    body.read::<StepDownBody>()?;
    plain(&api, &headers, Ask::StepDown(v1::StepDown {})).await
}

async fn plain(api: &Api, headers: &HeaderMap, ask: Ask) -> Result<Response, Problem> {
    match api.call(marks(headers, &api.issuer)?, ask).await? {
        (Answer::Refused(problem), at) => Ok(Problem(problem).at(at)),
        (_, at) => Ok(done(at)),
    }
}
