//! The right to keep a stream open: it ends when the access rules or the credential of its identity do (A10).

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use leasehold_core::access::{Action, ReadScope};
use leasehold_core::refusal::Refusal;
use leasehold_wire::{Code, problem, v1};
use tokio::sync::watch;

use super::{AccessControl, AccessRules};
use crate::bearer::PresentedBearer;
use crate::identity::Identity;
use crate::transport::tls::Membership;

/// Longest time between two looks at the wall clock, which may be set while a stream is open.
const CLOCK_INTERVAL: Duration = Duration::from_secs(30);

/// The identity of a stream and the rules that it is compared with.
pub struct StreamAccess {
    identity: Arc<Identity>,
    control: Arc<AccessControl>,
    epochs: watch::Receiver<u32>,
    /// The action that must stay allowed; any right is enough if there is none.
    action: Option<Action>,
    /// Whether the certificate of its connection still counts; none without TLS.
    membership: Option<Arc<Membership>>,
    /// The bearer token of its opening request; none if it presented none.
    bearer: Option<Arc<PresentedBearer>>,
}

impl StreamAccess {
    /// A stream that stays open as long as its identity has any right.
    pub fn of_session(control: &Arc<AccessControl>, identity: Arc<Identity>) -> Self {
        Self::new(control, identity, None)
    }

    /// A stream that stays open as long as its identity may perform an action.
    pub fn of_action(control: &Arc<AccessControl>, identity: Arc<Identity>, action: Action) -> Self {
        Self::new(control, identity, Some(action))
    }

    fn new(control: &Arc<AccessControl>, identity: Arc<Identity>, action: Option<Action>) -> Self {
        Self {
            identity,
            epochs: control.subscribe(),
            control: control.clone(),
            action,
            membership: Membership::current(),
            bearer: PresentedBearer::current(),
        }
    }

    /// The identity.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The rules in effect.
    pub fn rules(&self) -> Arc<AccessRules> {
        self.control.rules()
    }

    /// The reason to end the stream now, if there is one.
    pub fn end_reason(&self) -> Option<v1::Problem> {
        if let Some(Err(end)) = self.membership.as_ref().map(|membership| membership.check()) {
            return Some(end.problem());
        }
        if let Some(Err(end)) = self.bearer.as_ref().map(|bearer| bearer.check()) {
            return Some(end.problem());
        }
        if self.identity.not_after.is_some_and(|end| SystemTime::now() >= end) {
            return Some(credential_expired());
        }
        let rules = self.control.rules();
        let refusal = match self.action {
            Some(action) => ReadScope::of(&rules.caller(&self.identity), action).err()?,
            None if rules.knows(&self.identity.principal) => return None,
            None => Refusal::Denied("this identity has no grant any more; ask an administrator for one"),
        };
        Some(problem(&refusal))
    }

    /// Waits for a reason to end the stream. Cancel safe.
    pub async fn ended(&mut self) -> v1::Problem {
        loop {
            if let Some(reason) = self.end_reason() {
                return reason;
            }
            tokio::select! {
                // The sender lives as long as the rules, which this stream holds.
                _ = self.epochs.changed() => {}
                () = next_clock_look(self.identity.not_after) => {}
                // The task of the connection checks it.
                () = membership_ended(self.membership.as_deref()) => {}
                () = bearer_ended(self.bearer.as_deref()) => {}
            }
        }
    }
}

/// Waits until the certificate of a connection no longer counts; forever without TLS.
async fn membership_ended(membership: Option<&Membership>) {
    match membership {
        Some(membership) => drop(membership.ended().await),
        None => pending().await,
    }
}

/// Waits until a bearer token no longer counts; forever without one.
async fn bearer_ended(bearer: Option<&PresentedBearer>) {
    match bearer {
        Some(bearer) => drop(bearer.ended().await),
        None => pending().await,
    }
}

/// Waits for the next look at the wall clock; forever if the credential does not expire.
async fn next_clock_look(expiry: Option<SystemTime>) {
    match expiry.map(|end| end.duration_since(SystemTime::now()).unwrap_or_default()) {
        Some(left) => tokio::time::sleep(left.min(CLOCK_INTERVAL)).await,
        None => pending().await,
    }
}

/// The credential of the identity is over.
fn credential_expired() -> v1::Problem {
    let reason = "the credential of this connection has expired; reconnect with a new one";
    let message = format!("not allowed: {reason}");
    v1::Problem { reason: reason.to_owned(), ..v1::Problem::of(Code::PermissionDenied, message) }
}
