//! A problem as RFC 9457 has it, with the members that its code carries.

use leasehold_core::lease::State;
use serde::{Deserialize, Serialize};

use super::maybe_word;
use super::view::CycleMemberBody;
use crate::{Code, v1};

/// The media type of a problem.
pub const PROBLEM_TYPE: &str = "application/problem+json";

/// A refusal or failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProblemBody {
    /// Which kind, as a name that never changes.
    #[serde(rename = "type")]
    pub kind: String,
    /// What the code means.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What happened here, in words.
    pub detail: String,
    /// The stable code.
    pub code: String,
    /// What to do now.
    pub next_step: String,
    /// The field that holds what it may not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The state of a lost lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The bound that was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// That bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
    /// What was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub got: Option<u64>,
    /// The place in the queue that a wait would get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_position: Option<u32>,
    /// Not before this many milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The token number shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub presented: Option<String>,
    /// The token number that is current.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<String>,
    /// The first members of a deadlock.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cycle: Vec<CycleMemberBody>,
    /// How many members the deadlock has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycle_length: Option<u64>,
    /// The lowest request sequence that is still answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lowest: Option<u64>,
    /// The version shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub have: Option<u32>,
    /// The version that is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub want: Option<u32>,
    /// What is missing, or in the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// Where the leader is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// The request whose outcome is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The file that is damaged or wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// At which byte of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// At which line of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// At which key of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The incarnation that was not adopted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<String>,
}

impl From<v1::Problem> for ProblemBody {
    fn from(from: v1::Problem) -> Self {
        let code = from.known_code();
        let some = |text: String| (!text.is_empty()).then_some(text);
        let cycle = from.cycle.unwrap_or_default();
        Self {
            kind: format!("urn:leasehold:error:{}", from.code),
            title: code.map_or("An error.", Code::means).into(),
            status: code.map_or(500, Code::http),
            detail: from.message,
            code: from.code,
            next_step: from.next_step,
            field: some(from.field),
            reason: some(from.reason),
            state: maybe_word::<v1::State, _>(from.state, State::word),
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
            about: some(from.about),
            leader: some(from.leader),
            request_id: some(from.request_id),
            file: some(from.file),
            offset: from.offset,
            line: from.line,
            key: some(from.key),
            incarnation: some(from.incarnation),
        }
    }
}
