//! What a unary request proves about the lease and the session that it names, and the secrets of granted leases (A6).
//!
//! The secret of a lease is made and verified here, on the task of the connection; the core decides whether it is needed.

use std::borrow::Cow;

use leasehold_core::command::{Answer, Proof};
use leasehold_core::token::Number;
use leasehold_wire::v1::request::Operation;
use leasehold_wire::{Code, TokenIssuer, delivery_resource, v1};

use super::{Api, RequestMetadata};
use crate::request::{DurableReply, RequestPayload};

impl Api {
    /// What a request proves with the secrets in its metadata.
    pub(super) fn proof(&self, metadata: &RequestMetadata, operation: &Operation) -> Proof {
        let lease = metadata.lease_secret.as_ref().zip(NamedLease::of(operation)).and_then(|(secret, named)| {
            let (issuer, number) = named.presented(&self.issuer)?;
            self.keys.cluster.verify_lease(secret, &issuer, number, &named.resource).then_some(number)
        });
        Proof { session: metadata.session_secret, lease, ..Proof::NONE }
    }

    /// The refusal of a successful check whose token has a seal that no key of this cluster made for the named resource (A8). The core
    /// has compared the number, and has decided that the caller may check this lease.
    pub(super) fn broken_seal(&self, reply: &DurableReply) -> Option<v1::Problem> {
        let (RequestPayload::Operation(operation), Answer::Current(_)) = (&reply.body, &reply.answer) else {
            return None;
        };
        if !self.access.is_restricted() || !matches!(**operation, Operation::Check(_)) {
            return None;
        }
        let (text, resource) = leasehold_wire::presented_token(operation)?;
        let error = self.sealer.broken_seal(text, resource?)?;
        let problem = v1::Problem::of(Code::TokenInvalid, error.to_string());
        Some(v1::Problem { field: "token".into(), reason: error.reason().into(), ..problem })
    }

    /// Adds the secrets of granted leases to an answer, and of a lease whose token was raised.
    pub(super) fn add_secrets(&self, reply: &DurableReply, answer: &mut v1::response::Answer) {
        let secret = |number: u64, resource: &str| {
            let number = Number::new(number).filter(|_| !resource.is_empty());
            number.map_or_else(Vec::new, |number| {
                self.keys.cluster.lease_secret(&self.issuer, number, resource).expose().to_vec()
            })
        };
        let is_required = self.access.is_restricted();
        let add = |grant: &mut v1::Grant| {
            grant.secret = secret(grant.token_number, &grant.resource);
            grant.secret_required = is_required;
        };
        match answer {
            v1::response::Answer::Granted(grant) => add(grant),
            v1::response::Answer::GrantedAll(all) => all.grants.iter_mut().for_each(add),
            v1::response::Answer::Current(current) => {
                if let (RequestPayload::Operation(operation), Answer::Current(_)) = (&reply.body, &reply.answer)
                    && let Some(named) = NamedLease::of(operation)
                    && named.presented(&self.issuer).is_some_and(|(_, number)| number.get() != current.token_number)
                {
                    current.secret = secret(current.token_number, &named.resource);
                }
            }
            v1::response::Answer::Delivery(delivery) => {
                if let (Some(queue), Some(v1::delivery_answer::Answer::Received(received))) =
                    (reply.body.queue(), &mut delivery.answer)
                {
                    for one in &mut received.deliveries {
                        one.secret = secret(one.receipt, &delivery_resource(queue, one.item));
                    }
                }
            }
            v1::response::Answer::Cache(cache) => {
                use v1::cache_answer::Answer::{Fill, Intended, Read};
                let key = reply.body.cached_key().unwrap_or_default();
                match &mut cache.answer {
                    Some(Read(read)) => read.secret = secret(read.lease, key),
                    Some(Intended(intent)) => intent.secret = secret(intent.intent, key),
                    Some(Fill(task)) => task.secret = secret(task.token, key),
                    _ => {}
                }
            }
            _ => {}
        }
    }
}

/// A lease, a delivery or a grant of a cached key that an operation names by its resource. A secret covers the name, so a lease that is named by its id alone proves nothing.
struct NamedLease<'a> {
    resource: Cow<'a, str>,
    token: &'a str,
    number: Option<u64>,
}

impl<'a> NamedLease<'a> {
    fn of(operation: &'a Operation) -> Option<Self> {
        let held = match operation {
            Operation::Renew(v1::Renew { lease, .. })
            | Operation::Progress(v1::Progress { lease, .. })
            | Operation::Pin(v1::Pin { lease, .. })
            | Operation::Put(v1::Put { lease, .. })
            | Operation::ResizeHold(v1::ResizeHold { lease, .. })
            | Operation::Veto(v1::Veto { lease, .. }) => lease.as_ref()?,
            Operation::Release(held)
            | Operation::Rotate(held)
            | Operation::Check(held)
            | Operation::FinishDrain(held)
            | Operation::ConfirmHold(held) => held,
            Operation::Handoff(handoff) => {
                let v1::handoff::Selector::Resource(resource) = handoff.selector.as_ref()? else { return None };
                let resource = resource.as_str().into();
                return Some(Self { resource, token: &handoff.token, number: handoff.token_number });
            }
            Operation::Delivery(delivery) => {
                use v1::delivery_command::Command::{Ack, Extend, Nack};
                let receipt = match delivery.command.as_ref()? {
                    Ack(receipt) => receipt,
                    Nack(v1::Nack { delivery, .. }) | Extend(v1::Extend { delivery, .. }) => delivery.as_ref()?,
                    _ => return None,
                };
                let resource = delivery_resource(&delivery.queue, receipt.item).into();
                return Some(Self { resource, token: "", number: Some(receipt.receipt) });
            }
            Operation::Cache(cache) => {
                use v1::cache_command::Command::{Abort, Commit, Filled, Invalidated, RenewRead};
                let (RenewRead(number) | Invalidated(number) | Commit(number) | Abort(number) | Filled(number)) =
                    cache.command.as_ref()?
                else {
                    return None;
                };
                return Some(Self { resource: cache.key.as_str().into(), token: "", number: Some(*number) });
            }
            _ => return None,
        };
        let v1::lease_ref::Selector::Resource(resource) = held.selector.as_ref()? else { return None };
        let resource = resource.as_str().into();
        Some(Self { resource, token: &held.token, number: (held.token_number != 0).then_some(held.token_number) })
    }

    /// The number that is presented, and who issued it. A token says which incarnation made its secret, because a lease may be older
    /// than a restore. A token that cannot be parsed is refused elsewhere.
    fn presented(&self, issuer: &TokenIssuer) -> Option<(TokenIssuer, Number)> {
        match self.token {
            "" => Some((*issuer, Number::new(self.number?)?)),
            text => {
                let token = issuer.parse_token(text).ok()?;
                Some((TokenIssuer { cluster: token.cluster, incarnation: token.incarnation }, token.number))
            }
        }
    }
}
