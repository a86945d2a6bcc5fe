//! Fields that many request bodies contain: a lease, a session and decimal numbers, with the refusals of invalid ones.

use leasehold_core::refusal::Refusal;

use crate::{session_bits, v1};

/// Refers to a lease by the name of its resource and its token.
pub(super) fn lease_ref(resource: &str, token: String) -> v1::LeaseRef {
    v1::LeaseRef {
        selector: Some(v1::lease_ref::Selector::Resource(resource.into())),
        token_number: 0,
        token,
        holder: None,
    }
}

/// Parses the id of a session.
pub(super) fn session(text: Option<&str>) -> Result<Option<u64>, Refusal> {
    text.map(|text| text.parse().map(session_bits).map_err(|_| invalid_id("session"))).transpose()
}

pub(super) const fn invalid_id(field: &'static str) -> Refusal {
    Refusal::Invalid { field, reason: "not an id; write it like 17.0" }
}

/// Parses a 64-bit number, which JSON carries as a text of decimal digits.
pub(super) fn decimal(field: &'static str, text: &str) -> Result<u64, Refusal> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let number = if plain { text.parse().ok() } else { None };
    number.ok_or(Refusal::Invalid { field, reason: "must be a text of decimal digits below 2^64, like \"42\"" })
}
