//! Leases as people read them: the text that several commands print.

use leasehold::json::{CurrentLeaseBody, LeaseBody, ResourceBody};

use crate::styled_text::{Style, StyledText};
use crate::table::{Cell, TextTable, format_duration, key_values, or_dash};

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

/// Columns that wide listings of leases add.
pub const LEASE_DETAILS: [&str; 11] = [
    "LEASE",
    "SESSION",
    "ACCESS",
    "TTL",
    "GRANTED AT",
    "VALIDITY",
    "PRIORITY",
    "PROGRESS",
    "DRAINING",
    "PREDECESSOR",
    "METADATA",
];

/// The cells of [`LEASE_DETAILS`]. The time of the grant is grantor time, as `leasehold status` shows it.
pub fn lease_details(lease: &LeaseBody) -> [Cell; LEASE_DETAILS.len()] {
    [
        lease.lease.clone().into(),
        or_dash(lease.session.as_ref()).into(),
        access_text(lease).into(),
        lease.ttl_ms.map_or_else(|| "session".to_owned(), format_duration).into(),
        format_duration(lease.granted_ms).into(),
        lease.validity.clone().into(),
        lease.priority.to_string().into(),
        or_dash(lease.progress.as_ref()).into(),
        drain_cell(lease),
        if lease.predecessor { "yes" } else { "no" }.into(),
        or_dash(Some(&lease.metadata).filter(|text| !text.is_empty())).into(),
    ]
}

/// A table of leases. It shows token numbers only: only the holder receives the token itself.
pub fn lease_table(leases: &[LeaseBody], is_wide: bool) -> StyledText {
    let header = ["RESOURCE", "LEASE", "HOLDER", "NUMBER", "SLOT", "REMAINING", "VALIDITY", "SESSION", "DRAINING"];
    let wide = ["ACCESS", "TTL", "GRANTED AT", "PRIORITY", "PROGRESS", "PREDECESSOR", "METADATA"];
    let mut table = TextTable::new(header).with_wide(is_wide, wide);
    for lease in leases {
        let [id, session, access, ttl, granted, validity, priority, progress, draining, predecessor, metadata] =
            lease_details(lease);
        let cells = [
            lease.resource.clone().into(),
            id,
            lease.holder.clone().into(),
            lease.token_number.clone().into(),
            slot_or_access(lease).into(),
            format_duration(lease.remaining_ms).into(),
            validity,
            session,
            draining,
        ];
        table.row_with(cells, [access, ttl, granted, priority, progress, predecessor, metadata]);
    }
    table.text()
}

fn drain_cell(lease: &LeaseBody) -> Cell {
    let drain = |reason: &String| format!("{reason}, {}", format_duration(lease.drain_ms.unwrap_or(0)));
    lease.draining.as_ref().map_or_else(|| "-".into(), |reason| Cell::styled(drain(reason), Style::Warning))
}

/// The access of a lease, with its units if it reserves some.
fn access_text(lease: &LeaseBody) -> String {
    lease.units.map_or_else(|| lease.access.clone(), |units| format!("{units} units"))
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
