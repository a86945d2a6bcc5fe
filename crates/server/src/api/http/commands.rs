//! HTTP endpoints of commands. Each request becomes the operation that a session stream would carry.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use leasehold_core::command::Answer as Decided;
use leasehold_core::grantor::Query;
use leasehold_core::ids::SessionId;
use leasehold_core::refusal::Refusal;
use leasehold_core::secret::SessionSecret;
use leasehold_wire::json::{
    AcquireBody, ApproveBody, CapacityBody, CheckBody, CurrentLeaseBody, DoneBody, FenceReportsBody, FreeBody,
    GrantBody, HandoffBody, OpenSessionBody, ReleaseBody, RenewBody, RevokeBody, SessionBody, SessionStateBody,
    SetCharterBody, SetMaxTtlBody, StepDownBody, WaiveBody,
};
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;
use leasehold_wire::{Code, problem, session_bits, v1, welcome};

use super::extract::{JsonBody, NoQuery, PathName, StrictQuery, metadata, token};
use super::respond::{HttpResult, WithPosition};
use super::verbs::{LeaseVerb, ProposalVerb, SessionVerb};
use crate::api::Api;
use crate::api::problems::no_reply;
use crate::api::queries::status_of;
use crate::api::request_with;
use crate::random;
use crate::request::RequestPayload;
use crate::transport::{HttpProblem, RequestCharge};

/// The rate limit of a request whose operation decides whether it counts.
type Charge = Option<Extension<Arc<RequestCharge>>>;

/// Counts a decoded request, unless its operation is exempt from the rate limit.
fn check_rate(charge: Charge, operation: &Operation) -> Result<(), HttpProblem> {
    charge.map_or(Ok(()), |Extension(charge)| charge.check(operation)).map_err(HttpProblem)
}

/// A body without fields.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct NoFields {}

/// `POST /v1/leases/{name}:verb`.
pub async fn lease(
    State(api): State<Api>,
    charge: Charge,
    PathName(path): PathName,
    _: StrictQuery<NoQuery>,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, HttpProblem> {
    let (name, word) = path.rsplit_once(':').unwrap_or((&path, ""));
    let verb = LeaseVerb::from_word(word).ok_or_else(|| unknown_verb("/v1/leases/NAME", word, &LeaseVerb::WORDS))?;
    let operation = match verb {
        LeaseVerb::Acquire => body.parse::<AcquireBody>()?.into_operation(name)?,
        LeaseVerb::Renew => {
            let mut body = body.parse::<RenewBody>()?;
            token(&headers, &mut body.token)?;
            body.into_operation(name)?
        }
        LeaseVerb::Release => {
            let mut body = body.parse::<ReleaseBody>()?;
            token(&headers, &mut body.token)?;
            body.into_operation(name)
        }
        LeaseVerb::Check => {
            let mut body = body.parse::<CheckBody>()?;
            token(&headers, &mut body.token)?;
            body.into_operation(name)
        }
        LeaseVerb::Handoff => {
            let mut body = body.parse::<HandoffBody>()?;
            token(&headers, &mut body.token)?;
            body.into_operation(name)?
        }
        LeaseVerb::Revoke => body.parse::<RevokeBody>()?.into_operation(name)?,
        LeaseVerb::Free => body.parse::<FreeBody>()?.into_operation(name),
        LeaseVerb::Capacity => body.parse::<CapacityBody>()?.into_operation(name),
    };
    check_rate(charge, &operation)?;
    let metadata = metadata(&headers, &api)?;
    match api.call(metadata, operation).await? {
        (Answer::Granted(grant), position) => Ok(WithPosition::new(GrantBody::from(grant), position).into_response()),
        (Answer::Current(current), position) => {
            Ok(WithPosition::new(CurrentLeaseBody::new(name, current), position).into_response())
        }
        (Answer::Refused(problem), position) => Ok(HttpProblem(problem).with_position(position)),
        (_, position) => Ok(done(position)),
    }
}

fn unknown_verb(path: &str, word: &str, verbs: &[&str]) -> HttpProblem {
    let shown: String = word.chars().filter(|c| !c.is_control()).take(32).collect();
    let verbs = verbs.join(", ");
    let problem =
        v1::Problem::of(Code::NotFound, format!("unknown verb {shown:?}; POST to {path}:VERB with one of {verbs}"));
    v1::Problem { subject: "verb".into(), ..problem }.into()
}

fn done(position: u64) -> Response {
    WithPosition::new(DoneBody { done: true }, position).into_response()
}

/// `POST /v1/sessions`.
pub async fn open_session(
    State(api): State<Api>,
    _: StrictQuery<NoQuery>,
    headers: HeaderMap,
    body: JsonBody,
) -> HttpResult<SessionBody> {
    let open = body.parse::<OpenSessionBody>()?.into_request();
    let secret = SessionSecret::new(random::bytes());
    let request = request_with(metadata(&headers, &api)?.token_seen);
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

/// `POST /v1/sessions/{id}:renew` and `:close`.
pub async fn session(
    State(api): State<Api>,
    charge: Charge,
    PathName(path): PathName,
    _: StrictQuery<NoQuery>,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, HttpProblem> {
    let NoFields {} = body.parse()?;
    let (id, word) = path.rsplit_once(':').unwrap_or((&path, ""));
    let verb =
        SessionVerb::from_word(word).ok_or_else(|| unknown_verb("/v1/sessions/ID", word, &SessionVerb::WORDS))?;
    let id: SessionId =
        id.parse().map_err(|_| Refusal::Invalid { field: "session", reason: "a session id, for example 17.0" })?;
    let session = Some(session_bits(id));
    let operation = match verb {
        SessionVerb::Renew => Operation::RenewSession(v1::RenewSession { session, held: None }),
        SessionVerb::Close => Operation::CloseSession(v1::CloseSession { session }),
    };
    check_rate(charge, &operation)?;
    match api.call(metadata(&headers, &api)?, operation).await? {
        (Answer::Session(state), position) => {
            let (ttl_ms, remaining_ms) = (state.ttl_ms, state.remaining_ms);
            let body = SessionStateBody { session: id.to_string(), ttl_ms, remaining_ms };
            Ok(WithPosition::new(body, position).into_response())
        }
        (Answer::Refused(problem), position) => Ok(HttpProblem(problem).with_position(position)),
        (_, position) => Ok(done(position)),
    }
}

/// `PUT /v1/charters/{prefix}`.
pub async fn set_charter(
    State(api): State<Api>,
    PathName(prefix): PathName,
    _: StrictQuery<NoQuery>,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, HttpProblem> {
    let body = body.parse::<SetCharterBody>()?;
    let charter = Some(leasehold_wire::encode_charter(&body.charter.to_charter()?));
    let prefix = if prefix == "*" { String::new() } else { prefix };
    let operation = Operation::SetCharter(Box::new(v1::SetCharter { prefix, charter, comment: body.comment }));
    execute(&api, &headers, operation).await
}

/// Parameters of the removal of a charter.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoveCharterQuery {
    #[serde(default)]
    comment: String,
}

/// `DELETE /v1/charters/{prefix}?comment=…`.
pub async fn remove_charter(
    State(api): State<Api>,
    PathName(prefix): PathName,
    StrictQuery(query): StrictQuery<RemoveCharterQuery>,
    headers: HeaderMap,
) -> Result<Response, HttpProblem> {
    let prefix = if prefix == "*" { String::new() } else { prefix };
    execute(&api, &headers, Operation::RemoveCharter(v1::RemoveCharter { prefix, comment: query.comment })).await
}

/// `POST /v1/coverage`.
pub async fn report_fences(
    State(api): State<Api>,
    _: StrictQuery<NoQuery>,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, HttpProblem> {
    let operation = body.parse::<FenceReportsBody>()?.into_operation()?;
    execute(&api, &headers, operation).await
}

/// Parameters of the removal of a target.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForgetTargetQuery {
    target: String,
    #[serde(default)]
    comment: String,
}

/// `DELETE /v1/coverage/{name}?target=…&comment=…`.
pub async fn forget_target(
    State(api): State<Api>,
    PathName(resource): PathName,
    StrictQuery(query): StrictQuery<ForgetTargetQuery>,
    headers: HeaderMap,
) -> Result<Response, HttpProblem> {
    let ForgetTargetQuery { target, comment } = query;
    execute(&api, &headers, Operation::ForgetTarget(v1::ForgetTarget { resource, target, comment })).await
}

/// `POST /v1/quarantine:waive`.
pub async fn waive(
    State(api): State<Api>,
    _: StrictQuery<NoQuery>,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, HttpProblem> {
    let operation = body.parse::<WaiveBody>()?.into_operation();
    execute(&api, &headers, operation).await
}

/// `POST /v1/proposals/{proposal}:approve` and `:cancel`.
pub async fn proposal(
    State(api): State<Api>,
    PathName(path): PathName,
    _: StrictQuery<NoQuery>,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, HttpProblem> {
    let (id, word) = path.rsplit_once(':').unwrap_or((&path, ""));
    let verb = ProposalVerb::from_word(word)
        .ok_or_else(|| unknown_verb("/v1/proposals/NUMBER", word, &ProposalVerb::WORDS))?;
    let is_number = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
    let proposal = id.parse().ok().filter(|_| is_number);
    let proposal =
        proposal.ok_or(Refusal::Invalid { field: "proposal", reason: "the number of a proposal, for example 17" })?;
    let operation = match verb {
        ProposalVerb::Approve => {
            let reason = "64 hexadecimal digits, as the list of proposals shows it";
            let digest = body.parse::<ApproveBody>()?.digest_bytes();
            let digest = digest.ok_or(Refusal::Invalid { field: "digest", reason })?;
            Operation::Approve(v1::Approve { proposal, digest })
        }
        ProposalVerb::Cancel => {
            let NoFields {} = body.parse()?;
            Operation::CancelProposal(v1::CancelProposal { proposal })
        }
    };
    execute(&api, &headers, operation).await
}

/// `POST /v1/cluster:step_down`.
pub async fn step_down(
    State(api): State<Api>,
    _: StrictQuery<NoQuery>,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, HttpProblem> {
    body.parse::<StepDownBody>()?;
    execute(&api, &headers, Operation::StepDown(v1::StepDown {})).await
}

/// `POST /v1/cluster:set_max_ttl`.
pub async fn set_max_ttl(
    State(api): State<Api>,
    _: StrictQuery<NoQuery>,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, HttpProblem> {
    let operation = body.parse::<SetMaxTtlBody>()?.into_operation();
    execute(&api, &headers, operation).await
}

/// Executes an operation whose answer has no content.
async fn execute(api: &Api, headers: &HeaderMap, operation: Operation) -> Result<Response, HttpProblem> {
    match api.call(metadata(headers, api)?, operation).await? {
        (Answer::Refused(problem), position) => Ok(HttpProblem(problem).with_position(position)),
        (_, position) => Ok(done(position)),
    }
}
