//! Mutants of issuer and verifier that their tests must catch. A test chooses one at run time; none exists in a normal build.

/// A check that is left out or wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CredentialMutant {
    ExpiryIgnored,
    StartIgnored,
    LeaseOutlived,
    AudienceNotCompared,
    IssuerNotCompared,
    ResourceNotCompared,
    OldListAccepted,
    RevokedAccepted,
    WithdrawnAccepted,
    WithdrawnTooEarly,
}

#[cfg(test)]
thread_local! {
    static CHOSEN: std::cell::Cell<Option<CredentialMutant>> = const { std::cell::Cell::new(None) };
}

/// Whether this mutant is chosen.
#[cfg(test)]
pub(super) fn on(mutant: CredentialMutant) -> bool {
    CHOSEN.get() == Some(mutant)
}

#[cfg(not(test))]
pub(super) const fn on(_: CredentialMutant) -> bool {
    false
}

/// Chooses a mutant for this thread, or none.
#[cfg(test)]
pub(super) fn choose(mutant: Option<CredentialMutant>) {
    CHOSEN.set(mutant);
}
