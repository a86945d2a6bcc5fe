//! The one place where the state is read. Every query names its action; the rights of its caller are checked where it is answered (A5).

use std::sync::Arc;
use std::time::Instant;

use leasehold_core::access::{Action, NO_SESSION_PROOF, Permission, ReadScope};
use leasehold_core::grantor::{Grantor, Query, QueryAnswer, QueryOutcome};
use leasehold_core::refusal::{Refusal, RefusalSubject};
use leasehold_wire::{problem, v1};
use tokio::sync::oneshot;

use super::problems::{no_reply, not_answered, not_submitted, position_not_reached, standby_not_ready};
use super::{Api, problem_code};
use crate::identity::{Identity, current_or_local};
use crate::metrics::{DenialReason, OK};
use crate::request_queue::QueryReply;

impl Api {
    /// Answers a query of the current identity, and returns the journal position that the answer depends on, which is at least
    /// `min_position` (E1). `convert` runs where the state is read; it returns `None` for the answer of another query. Metrics count
    /// the query under `name`.
    pub async fn query_at<T: Send + 'static>(
        &self,
        name: &'static str,
        min_position: u64,
        query: Query,
        convert: impl FnOnce(QueryAnswer<'_>) -> Option<T> + Send + 'static,
    ) -> Result<(T, u64), v1::Problem> {
        let arrived = Instant::now();
        let result = self.query(min_position, query, convert).await;
        let code = result.as_ref().map_or_else(problem_code, |_| OK);
        self.metrics.requests().answered(name, code, arrived.elapsed());
        result
    }

    /// [`Api::query_at`] without metrics.
    pub async fn query<T: Send + 'static>(
        &self,
        min_position: u64,
        query: Query,
        convert: impl FnOnce(QueryAnswer<'_>) -> Option<T> + Send + 'static,
    ) -> Result<(T, u64), v1::Problem> {
        let (identity, access) = (current_or_local(), self.access.clone());
        let (sender, action) = (identity.clone(), query.action());
        // The rights are those at the moment of the read, in a turn or on a standby.
        let read = move |grantor: &Grantor| {
            let rules = access.rules();
            match grantor.query(&rules.caller(&sender), &query) {
                QueryOutcome::Answered(answer) => (Ok(convert(answer)), None),
                QueryOutcome::Hidden(answer) => (Ok(convert(answer)), Some(DenialReason::Hidden)),
                QueryOutcome::Denied(refusal) => {
                    let reason = denial_reason(&refusal);
                    (Err(refusal), reason)
                }
            }
        };
        let ((answer, denial), position) = self.read_state(&identity, min_position, read).await?;
        if let Some(reason) = denial {
            self.denials.denied(&self.metrics, &identity, action, reason);
        }
        let answer = answer.map_err(|refusal| problem(&refusal))?;
        Ok((answer.ok_or_else(no_reply)?, position))
    }

    /// Waits until a turn has confirmed that this server leads, and that everything that was replied before is durable.
    pub async fn confirm(&self) -> Result<u64, v1::Problem> {
        // A query of the server itself: a flood of the caller's identity is no reason to report that the server is not ready.
        self.read_state(&Identity::local(None), 0, |_| ()).await.map(|((), position)| position)
    }

    /// Reads the state for the server itself.
    pub async fn read_for_server<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Grantor) -> T + Send + 'static,
    ) -> Result<T, v1::Problem> {
        self.read_state(&Identity::local(None), 0, read).await.map(|(result, _)| result)
    }

    /// Fails unless an identity may perform an action that reads what the grantor does not hold.
    pub fn authorize(&self, identity: &Arc<Identity>, action: Action) -> Result<(), Box<v1::Problem>> {
        let rules = self.access.rules();
        let refused = |refusal| {
            self.denials.denied(&self.metrics, identity, action, DenialReason::Role);
            Box::new(problem(&refusal))
        };
        ReadScope::of(&rules.caller(identity), action).map(|_| ()).map_err(refused)
    }

    /// Fails unless an identity may perform an action on something, be it only on what it was given itself.
    pub fn authorize_any(&self, identity: &Arc<Identity>, action: Action) -> Result<(), Box<v1::Problem>> {
        let rules = self.access.rules();
        if rules.caller(identity).rights.permission_anywhere(action) != Permission::No {
            return Ok(());
        }
        self.denials.denied(&self.metrics, identity, action, DenialReason::Role);
        Err(Box::new(problem(&Refusal::Denied(action.missing_role()))))
    }

    /// [`Api::authorize`] for the current identity, which it returns.
    pub fn authorize_current(&self, action: Action) -> Result<Arc<Identity>, Box<v1::Problem>> {
        let identity = current_or_local();
        self.authorize(&identity, action).map(|()| identity)
    }

    /// Reads the state: in a turn of the leader, or as of the position of a standby.
    async fn read_state<T: Send + 'static>(
        &self,
        identity: &Identity,
        min_position: u64,
        read: impl FnOnce(&Grantor) -> T + Send + 'static,
    ) -> Result<(T, u64), v1::Problem> {
        let (result, position) = match &self.standby {
            Some(standby) => standby.query(read).ok_or_else(standby_not_ready)?,
            None => self.read_in_turn(identity, read).await?,
        };
        if position < min_position {
            return Err(position_not_reached(min_position, position));
        }
        Ok((result, position))
    }

    async fn read_in_turn<T: Send + 'static>(
        &self,
        identity: &Identity,
        read: impl FnOnce(&Grantor) -> T + Send + 'static,
    ) -> Result<(T, u64), v1::Problem> {
        let (to, result) = oneshot::channel();
        let read = move |grantor: &Grantor| {
            let result = read(grantor);
            let reply: QueryReply = Box::new(move |position| {
                // Fails if the caller has disconnected.
                let _ = to.send((result, position));
            });
            reply
        };
        self.queue.query(identity, Box::new(read)).map_err(|error| not_submitted(error, &self.queue))?;
        result.await.map_err(|_| not_answered(&self.queue))
    }
}

/// Why the access rules refused a query; none if its session has ended.
fn denial_reason(refusal: &Refusal) -> Option<DenialReason> {
    match refusal {
        Refusal::Denied(NO_SESSION_PROOF) => Some(DenialReason::Secret),
        Refusal::NotFound(RefusalSubject::Session) => Some(DenialReason::Hidden),
        Refusal::Lost(_) => None,
        _ => Some(DenialReason::Role),
    }
}
