//! Conversion of refusals into problems, and of problems into gRPC statuses and back.

use leasehold_core::lease::{EndReason, LeaseState};
use leasehold_core::name::{NameError, NameProblem};
use leasehold_core::refusal::{Cycle, CycleMember, NotCurrent, Refusal};
use leasehold_core::token::TokenError;
use prost::Message;
use tonic::metadata::{MetadataMap, MetadataValue};

use crate::{Code, v1};

/// Metadata key for the stable code of a refused call.
pub const METADATA_CODE: &str = "leasehold-code";

/// Type URL of a problem in the details of a gRPC status.
const TYPE_URL: &str = "type.googleapis.com/leasehold.v1.Problem";

impl v1::Problem {
    /// Creates a problem with the next step of its code.
    pub fn of(code: Code, message: impl Into<String>) -> Self {
        Self {
            code: code.word().into(),
            message: message.into(),
            next_step: code.next_step().into(),
            ..Self::default()
        }
    }

    /// Returns the code, if this version knows it.
    pub fn known_code(&self) -> Option<Code> {
        Code::from_word(&self.code)
    }

    /// Returns the end reason if the problem is a lost lease.
    pub fn lost(&self) -> Option<EndReason> {
        let reason = || EndReason::ALL.into_iter().find(|reason| reason.word() == self.reason);
        (self.known_code() == Some(Code::LeaseLost)).then(reason).flatten()
    }

    fn with_field(mut self, field: &str, reason: impl Into<String>) -> Self {
        self.field = field.into();
        self.reason = reason.into();
        self
    }
}

/// Converts a refusal.
pub fn problem(refusal: &Refusal) -> v1::Problem {
    let code = Code::from_word(refusal.code()).unwrap_or(Code::InvalidArgument);
    let base = v1::Problem::of(code, refusal.to_string());
    match refusal {
        Refusal::Invalid { field, reason } => base.with_field(field, *reason),
        Refusal::OutOfRange { field, requested, max, .. } => {
            let reason = base.message.split_once(": ").map_or("", |(_, reason)| reason).to_owned();
            v1::Problem { max: Some(*max), got: Some(*requested), ..base.with_field(field, reason) }
        }
        Refusal::Name(error) => name_problem(base, error),
        Refusal::Token(error) => token_problem(base, error),
        Refusal::Implausible { presented: shown } => v1::Problem { presented: Some(shown.get()), ..base },
        Refusal::NotFound(what) | Refusal::Conflict(what) | Refusal::SubjectChanged { subject: what, .. } => {
            v1::Problem { subject: what.word().into(), ..base }
        }
        Refusal::Lost(reason) => v1::Problem {
            state: v1::LeaseState::from(reason.state()).into(),
            reason: reason.word().into(),
            next_step: next_step_after(reason.state()).into(),
            ..base
        },
        Refusal::NotCurrent(reason) => v1::Problem { reason: not_current(*reason).into(), ..base },
        Refusal::Stale { presented, mark } => v1::Problem { presented: Some(*presented), mark: Some(*mark), ..base },
        Refusal::Busy { position, holder } => {
            let base = v1::Problem { queue_position: Some(*position), ..base };
            match holder.as_deref() {
                None => base,
                Some(by) => v1::Problem {
                    holder: by.holder.clone(),
                    held_ms: Some(by.held_ms),
                    remaining_ms: Some(by.remaining_ms),
                    ..base
                },
            }
        }
        Refusal::AccessChange { held, requested } => {
            v1::Problem { reason: format!("{}_to_{}", held.word(), requested.word()), ..base }
        }
        Refusal::Deadlock(cycle) => v1::Problem { cycle: Some(encode_cycle(cycle)), ..base },
        Refusal::Exhausted { limit, max, got } => {
            v1::Problem { limit: limit.word().into(), max: Some(*max), got: Some(*got), ..base }
        }
        Refusal::TooOld { lowest } => v1::Problem { lowest: Some(*lowest), ..base },
        Refusal::Quarantined { remaining, .. } => v1::Problem { retry_after_ms: Some(*remaining), ..base },
        Refusal::Denied(reason) => v1::Problem { reason: (*reason).into(), ..base },
        Refusal::DeniedField { field, reason } => base.with_field(field, *reason),
        Refusal::ApprovalRequired { proposal } => v1::Problem { proposal: Some(*proposal), ..base },
        Refusal::TokensExhausted
        | Refusal::Timeout
        | Refusal::Cancelled
        | Refusal::HeldForOperator
        | Refusal::StorageFull => base,
    }
}

impl From<&Refusal> for v1::Problem {
    fn from(refusal: &Refusal) -> Self {
        problem(refusal)
    }
}

/// Problems are boxed because they are large and most calls have none.
impl From<Box<Self>> for v1::Problem {
    fn from(boxed: Box<Self>) -> Self {
        *boxed
    }
}

fn name_problem(base: v1::Problem, error: &NameError) -> v1::Problem {
    let base = base.with_field(error.field, error.problem.to_string());
    match error.problem {
        NameProblem::TooLong { bytes, max } => v1::Problem { max: Some(max as u64), got: Some(bytes as u64), ..base },
        _ => base,
    }
}

fn token_problem(base: v1::Problem, error: &TokenError) -> v1::Problem {
    let base = base.with_field("token", error.reason());
    match error {
        TokenError::Version { have } => v1::Problem { have: Some(*have), want: Some(1), ..base },
        _ => base,
    }
}

const fn next_step_after(state: LeaseState) -> &'static str {
    match state {
        LeaseState::Held | LeaseState::Expired => "Stop writing, then acquire the lease again.",
        LeaseState::Revoked => "Stop writing. Acquire again only after the operator agrees.",
    }
}

pub(crate) const fn not_current(reason: NotCurrent) -> &'static str {
    match reason {
        NotCurrent::Unknown => "unknown",
        NotCurrent::NotHolder => "not_holder",
        NotCurrent::Superseded => "superseded",
    }
}

pub(crate) fn encode_cycle(cycle: &Cycle) -> v1::Cycle {
    let member =
        |member: &CycleMember| v1::CycleMember { holder: member.holder.clone(), waits_for: member.waits_for.clone() };
    v1::Cycle { members: cycle.members.iter().map(member).collect(), length: cycle.length }
}

pub(crate) fn decode_cycle(cycle: &v1::Cycle) -> Cycle {
    let member =
        |member: &v1::CycleMember| CycleMember { holder: member.holder.clone(), waits_for: member.waits_for.clone() };
    Cycle { members: cycle.members.iter().map(member).collect(), length: cycle.length }
}

/// `google.rpc.Status`, the content of `grpc-status-details-bin`.
#[derive(Clone, PartialEq, Message)]
struct RichStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Detail>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
struct Detail {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// Converts a problem into a gRPC status.
pub fn problem_to_status(problem: v1::Problem) -> tonic::Status {
    let grpc = problem.known_code().map_or(tonic::Code::Unknown, Code::grpc);
    let mut metadata = MetadataMap::new();
    if let Ok(code) = MetadataValue::try_from(problem.code.as_str()) {
        metadata.insert(METADATA_CODE, code);
    }
    let detail = Detail { type_url: TYPE_URL.into(), value: problem.encode_to_vec() };
    let rich = RichStatus { code: grpc as i32, message: problem.message.clone(), details: vec![detail] };
    tonic::Status::with_details_and_metadata(grpc, problem.message, rich.encode_to_vec().into(), metadata)
}

/// Extracts the problem from a gRPC status. A status without one does not come from a grantor. Then only codes that mean
/// "refused before execution" count as refusals; every other outcome is unknown (X3). A caller that knows that it never
/// connected may conclude more.
pub fn problem_from_status(status: &tonic::Status) -> v1::Problem {
    let details = RichStatus::decode(status.details()).map(|rich| rich.details).unwrap_or_default();
    let detail = details.iter().find(|detail| detail.type_url == TYPE_URL);
    if let Some(problem) = detail.and_then(|detail| v1::Problem::decode(&*detail.value).ok()) {
        return problem;
    }
    let code = match status.code() {
        tonic::Code::InvalidArgument => Code::InvalidArgument,
        tonic::Code::NotFound => Code::NotFound,
        tonic::Code::PermissionDenied => Code::PermissionDenied,
        tonic::Code::Unauthenticated => Code::Unauthenticated,
        tonic::Code::Unimplemented => Code::UnsupportedVersion,
        _ => Code::Indeterminate,
    };
    v1::Problem::of(code, status.message())
}
