//! Answers, one by one, and the compact answer to a batch of renewals.

use leasehold_core::command::{Answer, SessionGrant};
use leasehold_core::ids::LeaseId;
use leasehold_core::refusal::Refusal;

use crate::asked::Issuer;
use crate::lease::{current, grant, read_current, read_grant};
use crate::payload::{read_cache, read_delivery};
use crate::problem::problem;
use crate::v1::response::Answer as Told;
use crate::words::absent;
use crate::{session_bits, session_id, v1};

/// An answer as it is told. `resource_of` names the resource of a granted lease: its token's text is made from it.
pub fn answer<'n>(from: &Answer, issuer: &Issuer, resource_of: impl Fn(LeaseId) -> &'n str) -> Told {
    match from {
        Answer::Done => Told::Done(v1::Done {}),
        Answer::Session(session) => Told::Session((*session).into()),
        Answer::Granted(one) => Told::Granted(grant(one, issuer, resource_of(one.lease), "")),
        Answer::GrantedAll(all) => {
            let grants = all.iter().map(|one| grant(one, issuer, resource_of(one.lease), "")).collect();
            Told::GrantedAll(v1::Grants { grants })
        }
        Answer::Current(told) => Told::Current(current(told)),
        Answer::Waiting { position } => Told::Waiting(v1::Waiting { position: *position }),
        Answer::CollectBelow(below) => Told::CollectBelow(*below),
        Answer::Stored { revision } => Told::Stored(v1::Stored { revision: *revision }),
        Answer::Delivery(told) => Told::Delivery((&**told).into()),
        Answer::Cache(told) => Told::Cache((&**told).into()),
        Answer::Refused(refusal) => Told::Refused(Box::new(problem(refusal))),
        _ => Told::Refused(Box::new(v1::Problem::of(
            crate::Code::UnsupportedVersion,
            "the answer cannot be told in this version; update the server",
        ))),
    }
}

/// An answer as its asker hears it: the core's own words, or the problem. What no server should say is an error.
pub fn heard(told: &Told) -> Result<Result<Answer, Box<v1::Problem>>, Refusal> {
    Ok(Ok(match told {
        Told::Done(_) => Answer::Done,
        Told::Session(session) => Answer::Session((*session).into()),
        Told::Granted(grant) => Answer::Granted(read_grant(grant)?),
        Told::GrantedAll(all) => Answer::GrantedAll(all.grants.iter().map(read_grant).collect::<Result<_, _>>()?),
        Told::Current(current) => Answer::Current(read_current(current)?),
        Told::Waiting(waiting) => Answer::Waiting { position: waiting.position },
        Told::CollectBelow(below) => Answer::CollectBelow(*below),
        Told::Stored(stored) => Answer::Stored { revision: stored.revision },
        Told::Delivery(told) => Answer::Delivery(Box::new(read_delivery(told)?)),
        Told::Cache(told) => Answer::Cache(Box::new(read_cache(told)?)),
        Told::Refused(problem) => return Ok(Err(problem.clone())),
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

/// The answer to a batch of renewals, filled in as its renewals are answered.
#[derive(Clone, Debug)]
pub struct Renewals {
    told: v1::Renewed,
    open: usize,
}

impl Renewals {
    /// For a batch of so many.
    pub fn new(sequence: u64, count: usize) -> Self {
        let told = v1::Renewed { sequence, remaining_ms: vec![0; count], others: Vec::new() };
        Self { told, open: count }
    }

    /// Fills in what became of one. Each is told once; `number` is the one that was shown.
    pub fn tell(&mut self, index: usize, number: u64, answer: &Answer) {
        self.open = self.open.saturating_sub(1);
        match answer {
            Answer::Current(told)
                if told.number.get() == number
                    && told.remaining_ms != 0
                    && told.drain_ms.is_none()
                    && told.overlaps_ms.is_none() =>
            {
                self.told.remaining_ms[index] = told.remaining_ms;
            }
            Answer::Current(told) => self.other(index, v1::renewed_other::Outcome::Current(current(told))),
            Answer::Refused(refusal) => self.refuse(index, refusal),
            _ => self.refuse(index, &absent("answer")),
        }
    }

    /// Fills in that one was refused.
    pub fn refuse(&mut self, index: usize, refusal: &Refusal) {
        let problem = problem(refusal);
        let refused = v1::RenewRefused { code: problem.code, reason: problem.reason, state: problem.state };
        self.other(index, v1::renewed_other::Outcome::Refused(refused));
    }

    /// Whether all were told.
    pub const fn is_complete(&self) -> bool {
        self.open == 0
    }

    /// The message.
    pub fn into_told(self) -> v1::Renewed {
        self.told
    }

    fn other(&mut self, index: usize, outcome: v1::renewed_other::Outcome) {
        self.told.others.push(v1::RenewedOther { index: index as u32, outcome: Some(outcome) });
    }
}

impl v1::RenewRefused {
    /// The same as a problem, in the words of its code.
    pub fn problem(&self) -> v1::Problem {
        let code = crate::Code::from_word(&self.code);
        v1::Problem {
            code: self.code.clone(),
            message: code.map_or("refused", crate::Code::means).into(),
            next_step: code.map_or("", crate::Code::next_step).into(),
            reason: self.reason.clone(),
            state: self.state,
            ..v1::Problem::default()
        }
    }
}
