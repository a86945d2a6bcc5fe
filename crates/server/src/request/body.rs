//! The payload of a request, as it was decoded from the wire.

use leasehold_core::command::LeaseSelector;
use leasehold_core::ids::SessionId;
use leasehold_core::secret::SecretDigest;
use leasehold_core::token::{Number, Token};
use leasehold_wire::v1;

use super::operation_name::operation_name;

/// Payload of a request. It contains no secret, only digests.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestPayload {
    /// Any operation, inside of a session or without one.
    Operation(Box<v1::request::Operation>),
    /// A new session, with the digest of the secret generated for it.
    Open(v1::OpenSession, SecretDigest),
    /// The session of an idempotency key, by the digest of the caller's identity and the key, and the request under it if the session
    /// may be new.
    OpenKey(SecretDigest, Option<Box<v1::request::Operation>>),
    /// A session to resume, with the digest of the secret that was presented.
    Resume(SessionId, SecretDigest),
}

impl RequestPayload {
    /// The resource of the grant at `index`, in the order of the request; empty if the request acquires nothing.
    pub fn resource(&self, index: usize) -> &str {
        match self {
            Self::Operation(operation) => match &**operation {
                v1::request::Operation::Acquire(acquire) => &acquire.resource,
                v1::request::Operation::AcquireAll(all) => {
                    all.resources.get(index).map_or("", |wanted| &wanted.resource)
                }
                _ => "",
            },
            Self::Open(..) | Self::OpenKey(..) | Self::Resume(..) => "",
        }
    }

    /// The holder that the request names; empty for the session's own, and for a request that acquires nothing.
    pub fn holder(&self) -> &str {
        match self {
            Self::Operation(operation) => match &**operation {
                v1::request::Operation::Acquire(acquire) => &acquire.holder,
                v1::request::Operation::AcquireAll(all) => &all.holder,
                _ => "",
            },
            Self::Open(..) | Self::OpenKey(..) | Self::Resume(..) => "",
        }
    }

    /// The queue of a request about a queue.
    pub fn queue(&self) -> Option<&str> {
        match self {
            Self::Operation(operation) => match &**operation {
                v1::request::Operation::Delivery(delivery) => Some(&delivery.queue),
                _ => None,
            },
            Self::Open(..) | Self::OpenKey(..) | Self::Resume(..) => None,
        }
    }

    /// The key of a request about a cached key.
    pub fn cached_key(&self) -> Option<&str> {
        match self {
            Self::Operation(operation) => match &**operation {
                v1::request::Operation::Cache(cache) => Some(&cache.key),
                _ => None,
            },
            Self::Open(..) | Self::OpenKey(..) | Self::Resume(..) => None,
        }
    }

    /// Sets the holder of an acquire that named none.
    pub fn set_holder(&mut self, name: &str) {
        let Self::Operation(operation) = self else { return };
        match &mut **operation {
            v1::request::Operation::Acquire(acquire) => acquire.holder = name.to_owned(),
            v1::request::Operation::AcquireAll(all) => all.holder = name.to_owned(),
            _ => {}
        }
    }

    /// The lease that the request acts on, if its token is not the one with this number.
    pub fn raised_lease(&self, number: Number) -> Option<LeaseSelector<'_>> {
        let Self::Operation(operation) = self else { return None };
        let held = leasehold_wire::presented_lease(operation)?;
        let presented = match held.token_number {
            0 => Token::parse(&held.token).ok()?.number.get(),
            number => number,
        };
        selector(held).filter(|_| presented != number.get())
    }

    /// The lease that the request renews or whose token it raises, so that only its holder sends it.
    pub fn renewed_lease(&self) -> Option<LeaseSelector<'_>> {
        use v1::request::Operation::{Renew, Rotate};
        match self {
            Self::Operation(operation) if matches!(**operation, Renew(_) | Rotate(_)) => {
                selector(leasehold_wire::presented_lease(operation)?)
            }
            _ => None,
        }
    }

    /// The name of the operation in metrics.
    pub fn operation_name(&self) -> &'static str {
        match self {
            Self::Operation(operation) => operation_name(operation),
            Self::Open(..) => "open_session",
            Self::OpenKey(..) => "open_key_session",
            Self::Resume(..) => "resume_session",
        }
    }

    /// Whether the request extends a lease or a session.
    pub fn is_renewal(&self) -> bool {
        use v1::request::Operation::{Renew, RenewSession};
        matches!(self, Self::Operation(operation) if matches!(**operation, Renew(_) | RenewSession(_)))
    }

    /// Approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Operation(operation) => operation.encoded_len(),
            Self::Open(open, _) => open.holder.len(),
            Self::OpenKey(_, operation) => operation.as_ref().map_or(0, |operation| operation.encoded_len()),
            Self::Resume(..) => 0,
        }
    }
}

fn selector(held: &v1::LeaseRef) -> Option<LeaseSelector<'_>> {
    Some(match held.selector.as_ref()? {
        v1::lease_ref::Selector::Lease(bits) => LeaseSelector::Id(leasehold_wire::lease_id(*bits)),
        v1::lease_ref::Selector::Resource(name) => LeaseSelector::Resource(name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_contains_no_secret() {
        let digest = SecretDigest::of(&[0xab; 32]);
        let open = RequestPayload::Open(v1::OpenSession { holder: "w".into(), ..Default::default() }, digest);
        let resume = RequestPayload::Resume(SessionId { slot: 1, reuse: 0 }, digest);
        for body in [open, resume] {
            let text = format!("{body:?}");
            assert!(text.contains("SecretDigest(..)") && !text.contains("171"), "{text}");
        }
    }
}
