//! Impostors: identities that send copies of the requests of holders, with everything that an eavesdropper sees. A copy may never
//! be answered like the holder's own request, nor change anything (A4, A5, A6). The token that it presents is made up, and stops
//! nothing (A9).

use std::collections::BTreeMap;

use leasehold_core::access::{AccessGrant, Caller, IdentityLimits, IdentityUsage, Rights, Role};
use leasehold_core::command::{Answer, Command, Input, Proof, Request};
use leasehold_core::grantor::Grantor;
use leasehold_core::time::Now;
use leasehold_core::token::{Number, Token};

use crate::message::{Envelope, SimActor};
use crate::request::SimRequest;
use crate::rng::SimRng;

/// Tags of copies start here; requests of holders have lower ones.
const FIRST_TAG: u64 = 1 << 62;

/// Turns from one recount of what identities have to the next. A recount decodes a snapshot, which takes longer than a turn.
const RECOUNT_EVERY: u64 = 16;

/// Limits that a holder reaches often.
const NARROW: IdentityLimits = IdentityLimits {
    sessions: 2,
    leases: 3,
    waiters: 1,
    messages: 3,
    cache_grants: 1,
    state_bytes: 320,
    ..IdentityLimits::UNLIMITED
};
/// Limits that all holders together reach, and none of them alone.
const WIDE: IdentityLimits = IdentityLimits {
    sessions: 12,
    leases: 24,
    waiters: 12,
    messages: 40,
    cache_grants: 12,
    state_bytes: 4_000,
    ..IdentityLimits::UNLIMITED
};

/// The identity of the operator's requests that create charters and targets, in runs with limits.
pub const MONITOR: &str = "spiffe://sim/monitor";
/// Limits that the reports of all targets exceed.
const MONITOR_LIMITS: IdentityLimits = IdentityLimits { charters: 1, targets: 2, ..IdentityLimits::UNLIMITED };

/// Who sends the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImpostorKind {
    /// It has the same rights as the holders, and was granted nothing. It presents a forged token.
    Neighbor,
    /// Another process with the identity of the holder. It knows every number and id, and no secret.
    Twin,
    /// It may acquire only under names that nothing here has.
    Outsider,
    /// It may do nothing. It presents a forged token.
    Stranger,
}

/// A copy that was sent, and what came of it.
#[derive(Clone, Debug)]
pub struct ImpostorAttempt {
    /// Who sent it.
    pub kind: ImpostorKind,
    /// The request of the holder.
    pub request: SimRequest,
    /// The reply to the impostor.
    pub answer: Answer,
    /// What it changed.
    pub effect: ImpostorEffect,
}

/// What the request of an impostor changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImpostorEffect {
    /// Nothing.
    None,
    /// A record was written.
    Recorded,
    /// Its forged token was taken as the proof of a rollback.
    Lifted,
}

/// The identities of a run, and its impostors. It draws from its own numbers, so that a run is the same with and without it.
pub struct Impostors {
    rng: SimRng,
    holder_rights: Rights,
    /// The rights of the identities that have narrow limits.
    limited_rights: Rights,
    monitor_rights: Rights,
    /// Whether identities have limits.
    pub has_limits: bool,
    /// What was last reported of each identity.
    pub reported: BTreeMap<String, IdentityUsage>,
    /// Turns of servers with these identities.
    turns: u64,
    last_tag: u64,
}

impl Impostors {
    /// The impostors of a seed; half of all runs have access rules.
    pub fn of_seed(seed: u64) -> Option<Self> {
        let mut rng = SimRng::new(seed ^ 0x1d0_9e7f);
        let everywhere = |role| AccessGrant { role, prefix: "".into() };
        // Holders also report refusals of targets, and collect what no reader pins.
        let grants = vec![
            everywhere(Role::Holder),
            everywhere(Role::Reporter),
            AccessGrant { role: Role::Operator, prefix: "read".into() },
        ];
        let has_limits = SimRng::new(seed ^ 0x0001_1417).one_in(2);
        let rights = |limits: IdentityLimits| {
            let limits = if has_limits { limits } else { IdentityLimits::UNLIMITED };
            Rights::new(1, grants.clone()).with_limits(limits)
        };
        let (holder_rights, limited_rights) = (rights(WIDE), rights(NARROW));
        let monitor_rights = Rights::new(1, vec![everywhere(Role::Reporter), everywhere(Role::Operator)]);
        rng.one_in(2).then(|| Self {
            rng,
            holder_rights,
            limited_rights,
            monitor_rights: monitor_rights.with_limits(MONITOR_LIMITS),
            has_limits,
            reported: BTreeMap::new(),
            turns: 0,
            last_tag: FIRST_TAG,
        })
    }

    /// The caller with an identity; `local` without one.
    pub fn caller<'a>(&'a self, principal: &'a str) -> Caller<'a> {
        self.rights_of(principal).map_or(Caller::LOCAL, |rights| Caller { principal, rights })
    }

    /// The rights of an identity. Every other holder has narrow limits.
    pub fn rights_of(&self, identity: &str) -> Option<&Rights> {
        match holder_of(identity) {
            Some(index) if index.is_multiple_of(2) => Some(&self.limited_rights),
            Some(_) => Some(&self.holder_rights),
            None => (identity == MONITOR && self.has_limits).then_some(&self.monitor_rights),
        }
    }

    /// Whether this turn is one of those after which it is counted again what identities have.
    pub const fn recounts_now(&mut self) -> bool {
        self.turns += 1;
        self.turns.is_multiple_of(RECOUNT_EVERY)
    }

    /// Sends a copy of a request, sometimes, if an impostor would gain by it.
    pub fn send_copy(
        &mut self,
        grantor: &mut Grantor,
        now: Now,
        envelope: &Envelope,
    ) -> Option<(u64, ImpostorKind, ImpostorEffect)> {
        let kinds = [ImpostorKind::Neighbor, ImpostorKind::Twin, ImpostorKind::Outsider, ImpostorKind::Stranger];
        let kind = *self.rng.pick(&kinds);
        let gains = match kind {
            ImpostorKind::Neighbor => names_what_is_owned(&envelope.request) || envelope.id.is_some(),
            // A copy of this one contains the secret.
            ImpostorKind::Twin if matches!(envelope.request, SimRequest::Resume { .. }) => false,
            ImpostorKind::Twin => names_what_is_owned(&envelope.request) || envelope.id.is_some(),
            ImpostorKind::Stranger => true,
            ImpostorKind::Outsider => !matches!(envelope.request, SimRequest::Open { .. } | SimRequest::ObserveToken),
        };
        let SimActor::Holder(index) = envelope.from else { return None };
        if !self.rng.one_in(4) || !gains {
            return None;
        }
        let twin = identity_of(index);
        let (outside, none) = (outsider_rights(&envelope.request), Rights::new(1, Vec::new()));
        let caller = match kind {
            ImpostorKind::Neighbor => Caller { principal: "neighbor", rights: &self.holder_rights },
            ImpostorKind::Twin => Caller { principal: &twin, rights: &self.holder_rights },
            ImpostorKind::Outsider => Caller { principal: "outsider", rights: &outside },
            ImpostorKind::Stranger => Caller { principal: "stranger", rights: &none },
        };
        self.last_tag += 1;
        let forged = forged_token(grantor, envelope).filter(|_| kind != ImpostorKind::Outsider);
        let request = Request { id: envelope.id, observed: forged, caller, ..Request::tagged(self.last_tag) };
        let before = (grantor.pending_bytes(), grantor.rollback_proofs());
        envelope.request.command("impostor", |command| grantor.step(now, &Input::Request(request, command)));
        let effect = match (grantor.pending_bytes(), grantor.rollback_proofs()) {
            (_, proofs) if proofs != before.1 => ImpostorEffect::Lifted,
            (bytes, _) if bytes != before.0 => ImpostorEffect::Recorded,
            _ => ImpostorEffect::None,
        };
        Some((self.last_tag, kind, effect))
    }

    /// Whether the reply with this tag is to an impostor.
    pub const fn is_copy(tag: u64) -> bool {
        tag > FIRST_TAG
    }
}

/// The identity that sends a request; empty for `local`.
pub fn sender_of(from: SimActor, request: &SimRequest) -> String {
    match (from, request) {
        (SimActor::Holder(index), _) => identity_of(index),
        (SimActor::Operator, SimRequest::Report { .. } | SimRequest::SetCharter) => MONITOR.to_owned(),
        _ => String::new(),
    }
}

/// The identity of a holder.
pub fn identity_of(index: usize) -> String {
    format!("spiffe://sim/holder-{index}")
}

/// The secret of a holder's sessions, as the byte that it repeats.
pub const fn secret_of(index: usize) -> u8 {
    index as u8 + 1
}

/// What a holder proves: it knows the secret of its sessions, and of every lease, receipt and cached key that it was granted.
pub fn proof_of(from: SimActor, command: &Command<'_>) -> Proof {
    let SimActor::Holder(index) = from else { return Proof::NONE };
    Proof { session: Some([secret_of(index); 32].into()), lease: command.token_number(), ..Proof::NONE }
}

/// The holder with this identity.
pub fn holder_of(identity: &str) -> Option<usize> {
    identity.strip_prefix("spiffe://sim/holder-")?.parse().ok()
}

/// A token that was never issued, as if it proved that the state was rolled back.
fn forged_token(grantor: &Grantor, envelope: &Envelope) -> Option<Token> {
    let status = grantor.status();
    let token = envelope.presented?;
    let number = Number::new(status.counter.checked_add(1_000)?)?;
    Some(Token { cluster: status.cluster, incarnation: status.incarnation, number, ..token })
}

/// Rights whose prefixes are not whole segments of any name here. Of an atomic acquire they cover the first name.
fn outsider_rights(request: &SimRequest) -> Rights {
    let first = match request {
        SimRequest::AcquireAll { resources, .. } if resources.len() > 1 => resources.first().copied(),
        _ => None,
    };
    let prefixes = ["job", "slot", "unit", "queu", "rea", "rus", "wor", "cach"].into_iter().chain(first);
    Rights::new(1, prefixes.map(|prefix| AccessGrant { role: Role::Holder, prefix: prefix.into() }).collect())
}

/// Whether the request names something that its holder was granted.
pub const fn names_what_is_owned(request: &SimRequest) -> bool {
    match request {
        SimRequest::RenewSession { .. }
        | SimRequest::Close { .. }
        | SimRequest::AcquireAll { .. }
        | SimRequest::Cancel { .. }
        | SimRequest::Renew { .. }
        | SimRequest::Release { .. }
        | SimRequest::Rotate { .. }
        | SimRequest::Drained { .. }
        | SimRequest::ConfirmHold { .. }
        | SimRequest::ResizeHold { .. }
        | SimRequest::Put { .. }
        | SimRequest::Ack { .. }
        | SimRequest::Nack { .. }
        | SimRequest::Extend { .. }
        | SimRequest::Resume { .. }
        | SimRequest::Pin { .. }
        | SimRequest::Dropped { .. }
        | SimRequest::Commit { .. }
        | SimRequest::Abort { .. } => true,
        SimRequest::Acquire { session, .. }
        | SimRequest::Receive { session, .. }
        | SimRequest::Read { session, .. }
        | SimRequest::Intend { session, .. } => session.is_some(),
        SimRequest::Open { .. }
        | SimRequest::Confirm { .. }
        | SimRequest::Revoke { .. }
        | SimRequest::Handoff { .. }
        | SimRequest::SetCapacity { .. }
        | SimRequest::Enqueue { .. }
        | SimRequest::Collect { .. }
        | SimRequest::Report { .. }
        | SimRequest::SetCharter
        | SimRequest::ObserveToken => false,
    }
}
