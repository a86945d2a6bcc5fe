//! Error body: a problem document (RFC 9457) with the members that its code sets.

use leasehold_core::lease::LeaseState;
use serde::{Deserialize, Serialize};

use super::view::CycleMemberBody;
use super::{ended_state, optional_enum_word};
use crate::{Code, MESSAGE_BYTES_LIMIT, v1};

/// Media type of a problem.
pub const PROBLEM_TYPE: &str = "application/problem+json";

/// A refusal or failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProblemBody {
    /// Stable URN of the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// Meaning of the code.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// Description of this occurrence.
    pub detail: String,
    /// Stable code.
    pub code: String,
    /// What to do next.
    pub next_step: String,
    /// The invalid field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Reason of the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// State of a lost lease: `released`, `expired` or `revoked`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Name of the exceeded limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// Value of that limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
    /// The requested value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub got: Option<u64>,
    /// Position in the queue that a wait would get, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_position: Option<u32>,
    /// Do not retry before this time has passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The presented token number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub presented: Option<String>,
    /// The current token number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<String>,
    /// The first members of the deadlock.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cycle: Vec<CycleMemberBody>,
    /// Number of members of the deadlock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycle_length: Option<u64>,
    /// The lowest sequence number that is still answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lowest: Option<u64>,
    /// The version of the peer or file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub have: Option<u32>,
    /// The supported version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub want: Option<u32>,
    /// What is missing or in conflict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Address of the leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// The request whose outcome is unknown, as `session:sequence`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The damaged or invalid file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Byte offset in that file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Line in that file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Key in that file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The incarnation that has not been adopted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<String>,
    /// The holder that has the resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// How long that holder has had it, counting only time of service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_ms: Option<u64>,
    /// Time until that holder's lease ends unless renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_ms: Option<u64>,
    /// Number of the proposal that another identity must approve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposal: Option<u64>,
}

/// The HTTP status of a body that is too large, whose code is that of every exceeded limit.
pub const BODY_TOO_LARGE: u16 = 413;

impl From<v1::Problem> for ProblemBody {
    fn from(from: v1::Problem) -> Self {
        let (code, lost) = (from.known_code(), from.lost());
        let some = |text: String| (!text.is_empty()).then_some(text);
        let cycle = from.cycle.unwrap_or_default();
        let state = match lost {
            Some(reason) => Some(ended_state(reason).into()),
            None => optional_enum_word::<v1::LeaseState, _>(from.state, LeaseState::word),
        };
        Self {
            kind: format!("urn:leasehold:error:{}", from.code),
            title: code.map_or("An error.", Code::meaning).into(),
            status: if from.limit == MESSAGE_BYTES_LIMIT { BODY_TOO_LARGE } else { code.map_or(500, Code::http) },
            detail: from.message,
            code: from.code,
            next_step: from.next_step,
            field: some(from.field),
            reason: some(from.reason),
            state,
            limit: some(from.limit),
            max: from.max,
            got: from.got,
            queue_position: from.queue_position,
            retry_after_ms: from.retry_after_ms,
            presented: from.presented.map(|number| number.to_string()),
            mark: from.mark.map(|number| number.to_string()),
            cycle_length: (cycle.length != 0).then_some(cycle.length),
            cycle: cycle.members.into_iter().map(Into::into).collect(),
            lowest: from.lowest,
            have: from.have,
            want: from.want,
            subject: some(from.subject),
            leader: some(from.leader),
            request_id: some(from.request_id),
            file: some(from.file),
            offset: from.offset,
            line: from.line,
            key: some(from.key),
            incarnation: some(from.incarnation),
            holder: some(from.holder),
            held_ms: from.held_ms,
            remaining_ms: from.remaining_ms,
            proposal: from.proposal,
        }
    }
}
