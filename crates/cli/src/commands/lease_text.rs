//! Leases as people read them: the text that several commands print.

use leasehold::json::{CurrentLeaseBody, LeaseBody, ResourceBody};

use crate::table::{TextTable, format_duration, key_values, or_dash};

/// A lease that was just renewed or confirmed.
pub fn current_lease(body: &CurrentLeaseBody) -> String {
    let mut lines = vec![
        ("resource", body.resource.clone()),
        ("state", body.state.clone()),
        ("number", body.token_number.clone()),
        ("remaining", format_duration(body.remaining_ms)),
    ];
    if let Some(token) = &body.token {
        lines.push(("token", token.clone()));
    }
    if let Some(secret) = &body.secret {
        lines.push(("secret", secret.clone()));
    }
    for (target, token) in &body.stamped_tokens {
        lines.push(("stamped", format!("{target} {token}")));
    }
    if let Some(ms) = body.drain_ms {
        lines.push(("drain", format!("release it within {}", format_duration(ms))));
    }
    if let Some(ms) = body.overlaps_ms {
        lines.push(("overlap", format!("the predecessor drains for {}", format_duration(ms))));
    }
    key_values(&lines)
}

/// A table of leases. It shows token numbers only: only the holder receives the token itself.
pub fn lease_table(leases: &[LeaseBody]) -> String {
    let mut table = TextTable::new([
        "RESOURCE",
        "LEASE",
        "HOLDER",
        "NUMBER",
        "SLOT",
        "REMAINING",
        "VALIDITY",
        "SESSION",
        "DRAINING",
    ]);
    for lease in leases {
        let drain = |reason: &String| format!("{reason}, {}", format_duration(lease.drain_ms.unwrap_or(0)));
        table.row([
            lease.resource.clone(),
            lease.lease.clone(),
            lease.holder.clone(),
            lease.token_number.clone(),
            slot_or_access(lease),
            format_duration(lease.remaining_ms),
            lease.validity.clone(),
            or_dash(lease.session.as_ref()),
            or_dash(lease.draining.as_ref().map(drain)),
        ]);
    }
    table.text()
}

/// The slot's number, or the access of a lease without a slot.
pub fn slot_or_access(lease: &LeaseBody) -> String {
    lease.slot.map_or_else(|| lease.access.clone(), |slot| slot.to_string())
}

/// Used units of a resource with slots or a capacity. Exclusive and shared leases use none.
pub fn used_units(resource: &ResourceBody) -> Option<String> {
    let counts = resource.used > 0 || resource.capacity > 1;
    counts.then(|| format!("{} of {}", resource.used, resource.capacity))
}

/// The end of a lease. A release and a handoff are no expiry to a reader, although both end in the state `expired`.
pub fn lease_end(state: &str, reason: &str) -> String {
    match reason {
        "released" => "released".to_owned(),
        "handed_off" => "handed off".to_owned(),
        _ => format!("{state}: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::lease_end;

    #[test]
    fn a_released_lease_is_not_shown_as_expired() {
        assert_eq!(lease_end("expired", "released"), "released");
        assert_eq!(lease_end("expired", "handed_off"), "handed off");
        assert_eq!(lease_end("expired", "ttl"), "expired: ttl");
        assert_eq!(lease_end("revoked", "operator"), "revoked: operator");
    }
}
