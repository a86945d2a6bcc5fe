//! HTTP endpoints of commands. Each request becomes the operation that a session stream would carry.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use leasehold_core::refusal::Refusal;
use leasehold_wire::json::{
    AcquireAllBody, AcquireBody, ApproveBody, CapacityBody, CheckBody, CollectBelowBody, CollectBody, CurrentLeaseBody,
    DoneBody, FenceReportsBody, FreeBody, GrantBody, GrantsBody, HandoffBody, PinBody, ProgressBody, PutBody,
    ReleaseBody, RenewBody, RenewLeasesBody, RenewedLeasesBody, ResizeBody, RevisionBody, RevokeBody, SetCharterBody,
    SetMaxTtlBody, StepDownBody, TokenBody, VetoBody, WaiveBody,
};
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;
use leasehold_wire::{Code, session_id, v1};

use super::extract::{JsonBody, NoQuery, PathName, StrictQuery, metadata, token};
use super::respond::{HttpResult, WithPosition};
use super::verbs::{LeaseVerb, ProposalVerb};
use crate::api::Api;
use crate::api::problems::no_reply;
use crate::transport::{HttpProblem, RequestCharge};

/// The rate limit of a request whose operation decides whether it counts.
pub(super) type Charge = Option<Extension<Arc<RequestCharge>>>;

/// Counts a decoded request, unless its operation is exempt from the rate limit.
pub(super) fn check_rate(charge: Charge, operation: &Operation) -> Result<(), HttpProblem> {
    charge.map_or(Ok(()), |Extension(charge)| charge.check(operation)).map_err(HttpProblem)
}

/// A body without fields.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoFields {}

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
        LeaseVerb::Progress => {
            let mut body = body.parse::<ProgressBody>()?;
            token(&headers, &mut body.token)?;
            body.into_operation(name)?
        }
        LeaseVerb::Rotate => Operation::Rotate(token_body(&headers, body)?.into_lease(name)),
        LeaseVerb::Drained => Operation::FinishDrain(token_body(&headers, body)?.into_lease(name)),
        LeaseVerb::Confirm => Operation::ConfirmHold(token_body(&headers, body)?.into_lease(name)),
        LeaseVerb::Resize => {
            let mut body = body.parse::<ResizeBody>()?;
            token(&headers, &mut body.token)?;
            body.into_operation(name)
        }
        LeaseVerb::Veto => {
            let mut body = body.parse::<VetoBody>()?;
            token(&headers, &mut body.token)?;
            body.into_operation(name)
        }
        LeaseVerb::Put => {
            let mut body = body.parse::<PutBody>()?;
            token(&headers, &mut body.token)?;
            body.into_operation(name)?
        }
        LeaseVerb::Pin => {
            let mut body = body.parse::<PinBody>()?;
            token(&headers, &mut body.token)?;
            body.into_operation(name)?
        }
        LeaseVerb::Collect => body.parse::<CollectBody>()?.into_operation(name)?,
    };
    check_rate(charge, &operation)?;
    let metadata = metadata(&headers, &api)?;
    match api.call(metadata, operation).await? {
        (Answer::Granted(grant), position) => Ok(WithPosition::new(GrantBody::from(grant), position).into_response()),
        (Answer::Current(current), position) => {
            Ok(WithPosition::new(CurrentLeaseBody::new(name, current), position).into_response())
        }
        (Answer::Stored(stored), position) => {
            let revision = Some(stored.revision.to_string());
            Ok(WithPosition::new(RevisionBody { revision }, position).into_response())
        }
        (Answer::CollectBelow(below), position) => {
            Ok(WithPosition::new(CollectBelowBody { collect_below: below.to_string() }, position).into_response())
        }
        (Answer::Refused(problem), position) => Ok(HttpProblem(problem).with_position(position)),
        // The key was deleted.
        (_, position) if verb == LeaseVerb::Put => {
            Ok(WithPosition::new(RevisionBody { revision: None }, position).into_response())
        }
        (_, position) => Ok(done(position)),
    }
}

/// The body of a command that carries only the lease's token.
fn token_body(headers: &HeaderMap, body: JsonBody) -> Result<TokenBody, HttpProblem> {
    let mut body = body.parse::<TokenBody>()?;
    token(headers, &mut body.token)?;
    Ok(body)
}

/// `POST /v1/leases:acquire_all`.
pub async fn acquire_all(
    State(api): State<Api>,
    charge: Charge,
    _: StrictQuery<NoQuery>,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, HttpProblem> {
    let operation = body.parse::<AcquireAllBody>()?.into_operation()?;
    check_rate(charge, &operation)?;
    match api.call(metadata(&headers, &api)?, operation).await? {
        (Answer::GrantedAll(grants), position) => {
            Ok(WithPosition::new(GrantsBody::from(grants), position).into_response())
        }
        (Answer::Refused(problem), position) => Ok(HttpProblem(problem).with_position(position)),
        _ => Err(no_reply().into()),
    }
}

/// `POST /v1/leases:renew`.
pub async fn renew_leases(
    State(api): State<Api>,
    charge: Charge,
    _: StrictQuery<NoQuery>,
    headers: HeaderMap,
    body: JsonBody,
) -> HttpResult<RenewedLeasesBody> {
    let (session, leases) = body.parse::<RenewLeasesBody>()?.into_leases()?;
    check_rate(charge, &Operation::Renew(v1::Renew::default()))?;
    let numbers: Vec<u64> = leases.iter().map(|(_, number)| *number).collect();
    let (result, position) = api.renew_leases(&metadata(&headers, &api)?, session_id(session), leases).await?;
    Ok(WithPosition::new(RenewedLeasesBody::new(&numbers, result), position))
}

/// A verb that a path does not have.
pub(super) fn unknown_verb(path: &str, word: &str, verbs: &[&str]) -> HttpProblem {
    let shown: String = word.chars().filter(|c| !c.is_control()).take(32).collect();
    let verbs = verbs.join(", ");
    let problem =
        v1::Problem::of(Code::NotFound, format!("unknown verb {shown:?}; POST to {path}:VERB with one of {verbs}"));
    v1::Problem { subject: "verb".into(), ..problem }.into()
}

/// Success without a result.
pub(super) fn done(position: u64) -> Response {
    WithPosition::new(DoneBody { done: true }, position).into_response()
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
