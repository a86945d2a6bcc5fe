//! Every refusal of the core as one message, and that message inside a gRPC status.

use leasehold_core::lease::{Reason, State};
use leasehold_core::name::{NameError, NameProblem};
use leasehold_core::refusal::{Cycle, Member, NotCurrent, Refusal};
use leasehold_core::token::TokenError;
use prost::Message;
use tonic::metadata::{MetadataMap, MetadataValue};

use crate::{Code, v1};

/// The metadata that carries the stable code of a refused call.
pub const METADATA_CODE: &str = "leasehold-code";

/// The name under which a problem travels inside a status.
const TYPE_URL: &str = "type.googleapis.com/leasehold.v1.Problem";

impl v1::Problem {
    /// A problem with its code, its words and the code's next step.
    pub fn of(code: Code, message: impl Into<String>) -> Self {
        Self {
            code: code.word().into(),
            message: message.into(),
            next_step: code.next_step().into(),
            ..Self::default()
        }
    }

    /// The code, if this version knows it.
    pub fn known_code(&self) -> Option<Code> {
        Code::from_word(&self.code)
    }

    /// Why the lease is over, if that is the problem.
    pub fn lost(&self) -> Option<Reason> {
        let reason = || Reason::ALL.into_iter().find(|reason| reason.word() == self.reason);
        (self.known_code() == Some(Code::LeaseLost)).then(reason).flatten()
    }

    fn about_field(mut self, field: &str, reason: impl Into<String>) -> Self {
        self.field = field.into();
        self.reason = reason.into();
        self
    }
}

/// A refusal as it is told.
pub fn problem(refusal: &Refusal) -> v1::Problem {
    let code = Code::from_word(refusal.code()).unwrap_or(Code::InvalidArgument);
    let base = v1::Problem::of(code, refusal.to_string());
    match refusal {
        Refusal::Invalid { field, reason } => base.about_field(field, *reason),
        Refusal::Name(error) => name_problem(base, error),
        Refusal::Token(error) => token_problem(base, error),
        Refusal::Implausible { shown } => v1::Problem { presented: Some(shown.get()), ..base },
        Refusal::NotFound(what) | Refusal::Conflict(what) => v1::Problem { about: what.word().into(), ..base },
        Refusal::Lost(reason) => v1::Problem {
            state: v1::State::from(reason.state()).into(),
            reason: reason.word().into(),
            next_step: after(reason.state()).into(),
            ..base
        },
        Refusal::NotCurrent(why) => v1::Problem { reason: not_current(*why).into(), ..base },
        Refusal::Stale { presented, mark } => v1::Problem { presented: Some(*presented), mark: Some(*mark), ..base },
        Refusal::Busy { position } => v1::Problem { queue_position: Some(*position), ..base },
        Refusal::Deadlock(told) => v1::Problem { cycle: Some(cycle(told)), ..base },
        Refusal::Exhausted { limit, max, got } => {
            v1::Problem { limit: limit.word().into(), max: Some(*max), got: Some(*got), ..base }
        }
        Refusal::TooOld { lowest } => v1::Problem { lowest: Some(*lowest), ..base },
        Refusal::Quarantined { remaining, .. } => v1::Problem { retry_after_ms: Some(*remaining), ..base },
        Refusal::Denied(why) => v1::Problem { reason: (*why).into(), ..base },
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

/// Problems travel boxed: they are large, and most calls have none.
impl From<Box<Self>> for v1::Problem {
    fn from(boxed: Box<Self>) -> Self {
        *boxed
    }
}

fn name_problem(base: v1::Problem, error: &NameError) -> v1::Problem {
    let base = base.about_field(error.field, error.problem.to_string());
    match error.problem {
        NameProblem::TooLong { bytes, max } => v1::Problem { max: Some(max as u64), got: Some(bytes as u64), ..base },
        _ => base,
    }
}

fn token_problem(base: v1::Problem, error: &TokenError) -> v1::Problem {
    let base = base.about_field("token", error.why());
    match error {
        TokenError::Version { have } => v1::Problem { have: Some(*have), want: Some(1), ..base },
        _ => base,
    }
}

const fn after(state: State) -> &'static str {
    match state {
        State::Held | State::Expired => "Stop, then acquire again.",
        State::Revoked => "Stop, and ask before you acquire again.",
    }
}

pub(crate) const fn not_current(why: NotCurrent) -> &'static str {
    match why {
        NotCurrent::Unknown => "unknown",
        NotCurrent::NotHolder => "not_holder",
        NotCurrent::Superseded => "superseded",
    }
}

pub(crate) fn cycle(cycle: &Cycle) -> v1::Cycle {
    let member =
        |member: &Member| v1::CycleMember { holder: member.holder.clone(), waits_for: member.waits_for.clone() };
    v1::Cycle { members: cycle.members.iter().map(member).collect(), length: cycle.length }
}

pub(crate) fn read_cycle(cycle: &v1::Cycle) -> Cycle {
    let member =
        |member: &v1::CycleMember| Member { holder: member.holder.clone(), waits_for: member.waits_for.clone() };
    Cycle { members: cycle.members.iter().map(member).collect(), length: cycle.length }
}

/// What every gRPC library reads out of `grpc-status-details-bin`.
#[derive(Clone, PartialEq, Message)]
struct RichStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Detail>,
}

/// One detail of a status, named by its type.
#[derive(Clone, PartialEq, Message)]
struct Detail {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// The gRPC status that carries a problem.
pub fn status(problem: v1::Problem) -> tonic::Status {
    let grpc = problem.known_code().map_or(tonic::Code::Unknown, Code::grpc);
    let mut metadata = MetadataMap::new();
    if let Ok(code) = MetadataValue::try_from(problem.code.as_str()) {
        metadata.insert(METADATA_CODE, code);
    }
    let detail = Detail { type_url: TYPE_URL.into(), value: problem.encode_to_vec() };
    let rich = RichStatus { code: grpc as i32, message: problem.message.clone(), details: vec![detail] };
    tonic::Status::with_details_and_metadata(grpc, problem.message, rich.encode_to_vec().into(), metadata)
}

/// The problem inside a gRPC status. One that carries none was not told by a grantor: only what is refused before
/// anything happens is a no, and every other outcome is unknown (X3). Who knows that it never connected may say more.
pub fn from_status(status: &tonic::Status) -> v1::Problem {
    let details = RichStatus::decode(status.details()).map(|rich| rich.details).unwrap_or_default();
    let told = details.iter().find(|detail| detail.type_url == TYPE_URL);
    if let Some(problem) = told.and_then(|detail| v1::Problem::decode(&*detail.value).ok()) {
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
