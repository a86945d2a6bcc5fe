//! Faults of issuer and verifier that their tests must catch: one is chosen at run time, and none exists in a normal build.

/// What is left out or done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    ExpiryForgiven,
    StartIgnored,
    LeaseOutlived,
    AudienceNotCompared,
    IssuerNotCompared,
    PlaceNotCompared,
    OldListBelieved,
    RevokedBelieved,
    WithdrawnBelieved,
    WithdrawnTooEarly,
}

#[cfg(test)]
thread_local! {
    static CHOSEN: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

/// Whether this fault is chosen.
#[cfg(test)]
pub(super) fn on(fault: Fault) -> bool {
    CHOSEN.get() == Some(fault)
}

#[cfg(not(test))]
pub(super) const fn on(_: Fault) -> bool {
    false
}

/// Chooses a fault for this thread, or none.
#[cfg(test)]
pub(super) fn choose(fault: Option<Fault>) {
    CHOSEN.set(fault);
}
