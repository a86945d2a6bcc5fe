//! Encoding and decoding of answers, and the compact reply to a batch of renewals.

use leasehold_core::command::{Answer, SessionGrant};
use leasehold_core::ids::LeaseId;
use leasehold_core::refusal::Refusal;

use crate::command_context::TokenIssuer;
use crate::enums::missing_field;
use crate::lease::{decode_current, decode_grant, encode_current, encode_grant};
use crate::payload::{decode_cache_answer, decode_delivery_answer};
use crate::problem::problem;
use crate::v1::response::Answer as WireAnswer;
use crate::{session_bits, session_id, v1};

/// Encodes an answer. `resource_of` returns the resource of a granted lease, which is part of its token text; `holder` is the name
/// of its holder.
pub fn encode_answer<'n>(
    from: &Answer,
    issuer: &TokenIssuer,
    resource_of: impl Fn(LeaseId) -> &'n str,
    holder: &str,
) -> WireAnswer {
    match from {
        Answer::Done => WireAnswer::Done(v1::Done {}),
        Answer::Session(session) => WireAnswer::Session((*session).into()),
        Answer::Granted(one) => WireAnswer::Granted(encode_grant(one, issuer, resource_of(one.lease), holder)),
        Answer::GrantedAll(all) => {
            let grants = all.iter().map(|one| encode_grant(one, issuer, resource_of(one.lease), holder)).collect();
            WireAnswer::GrantedAll(v1::Grants { grants })
        }
        Answer::Current(current) => WireAnswer::Current(encode_current(current)),
        Answer::Waiting { position } => WireAnswer::Waiting(v1::WaitPosition { position: *position }),
        Answer::CollectBelow(below) => WireAnswer::CollectBelow(*below),
        Answer::Stored { revision } => WireAnswer::Stored(v1::PutResult { revision: *revision }),
        Answer::Delivery(delivery) => WireAnswer::Delivery((&**delivery).into()),
        Answer::Cache(cache) => WireAnswer::Cache((&**cache).into()),
        Answer::Refused(refusal) => WireAnswer::Refused(Box::new(problem(refusal))),
        _ => WireAnswer::Refused(Box::new(v1::Problem::of(
            crate::Code::UnsupportedVersion,
            "this version of the protocol cannot encode the answer; update the server",
        ))),
    }
}

/// Decodes an answer: the core's answer, or the problem. The outer error means that the server sent an invalid message.
pub fn decode_answer(answer: &WireAnswer) -> Result<Result<Answer, Box<v1::Problem>>, Refusal> {
    Ok(Ok(match answer {
        WireAnswer::Done(_) => Answer::Done,
        WireAnswer::Session(session) => Answer::Session((*session).into()),
        WireAnswer::Granted(grant) => Answer::Granted(decode_grant(grant)?),
        WireAnswer::GrantedAll(all) => {
            Answer::GrantedAll(all.grants.iter().map(decode_grant).collect::<Result<_, _>>()?)
        }
        WireAnswer::Current(current) => Answer::Current(decode_current(current)?),
        WireAnswer::Waiting(waiting) => Answer::Waiting { position: waiting.position },
        WireAnswer::CollectBelow(below) => Answer::CollectBelow(*below),
        WireAnswer::Stored(stored) => Answer::Stored { revision: stored.revision },
        WireAnswer::Delivery(delivery) => Answer::Delivery(Box::new(decode_delivery_answer(delivery)?)),
        WireAnswer::Cache(cache) => Answer::Cache(Box::new(decode_cache_answer(cache)?)),
        WireAnswer::Refused(problem) => return Ok(Err(problem.clone())),
    }))
}

impl From<SessionGrant> for v1::SessionState {
    fn from(from: SessionGrant) -> Self {
        Self {
            session: session_bits(from.session),
            ttl_ms: from.ttl_ms,
            remaining_ms: from.remaining_ms,
            mismatch: from.mismatch,
        }
    }
}

impl From<v1::SessionState> for SessionGrant {
    fn from(from: v1::SessionState) -> Self {
        Self {
            session: session_id(from.session),
            ttl_ms: from.ttl_ms,
            remaining_ms: from.remaining_ms,
            mismatch: from.mismatch,
        }
    }
}

/// The reply to a batch of renewals, filled in as each renewal is answered.
#[derive(Clone, Debug)]
pub struct RenewBatchReply {
    message: v1::RenewBatchResult,
    open: usize,
}

impl RenewBatchReply {
    /// Creates the reply to a batch of `count` renewals.
    pub fn new(sequence: u64, count: usize) -> Self {
        let message = v1::RenewBatchResult { sequence, remaining_ms: vec![0; count], details: Vec::new() };
        Self { message, open: count }
    }

    /// Records the answer to one renewal. Call it once per renewal; `number` is the token number that was presented.
    pub fn record(&mut self, index: usize, number: u64, answer: &Answer) {
        self.open = self.open.saturating_sub(1);
        match answer {
            Answer::Current(current)
                if current.number.get() == number
                    && current.remaining_ms != 0
                    && current.drain_ms.is_none()
                    && current.overlaps_ms.is_none() =>
            {
                self.message.remaining_ms[index] = current.remaining_ms;
            }
            Answer::Current(current) => {
                self.add_detail(index, v1::renew_detail::Outcome::Current(encode_current(current)))
            }
            Answer::Refused(refusal) => self.refuse(index, refusal),
            _ => self.refuse(index, &missing_field("answer")),
        }
    }

    /// Records the refusal of one renewal.
    pub fn refuse(&mut self, index: usize, refusal: &Refusal) {
        let problem = problem(refusal);
        let refused = v1::RenewRefusal { code: problem.code, reason: problem.reason, state: problem.state };
        self.add_detail(index, v1::renew_detail::Outcome::Refused(refused));
    }

    /// Whether every renewal is answered.
    pub const fn is_complete(&self) -> bool {
        self.open == 0
    }

    /// Returns the message.
    pub fn into_message(self) -> v1::RenewBatchResult {
        self.message
    }

    fn add_detail(&mut self, index: usize, outcome: v1::renew_detail::Outcome) {
        self.message.details.push(v1::RenewDetail { index: index as u32, outcome: Some(outcome) });
    }
}

impl v1::RenewRefusal {
    /// Expands the refusal into a problem, with the texts of its code.
    pub fn problem(&self) -> v1::Problem {
        let code = crate::Code::from_word(&self.code);
        v1::Problem {
            code: self.code.clone(),
            message: code.map_or("refused", crate::Code::meaning).into(),
            next_step: code.map_or("", crate::Code::next_step).into(),
            reason: self.reason.clone(),
            state: self.state,
            ..v1::Problem::default()
        }
    }
}
