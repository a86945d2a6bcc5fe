//! Conformance suite for fences. All fences of this crate pass it; use it for the fence of your own target too.
//!
//! Implement [`Subject`] for the target and [`FenceWriter`] for a connection to it, and run [`check`] in a test, on a
//! multi-threaded runtime. The suite tests the fence from outside: it presents tokens of [`CLUSTER`] for [`RESOURCE`], slot 0,
//! and compares the results with what the target applied, which the subject reads without the fence. [`check`] returns the
//! obligations that hold. An obligation that the target does not support (sequences, seals, a crash of its server, a blocked
//! claim) is left out. A broken obligation is a [`ConformanceError`] that contains the id of the promise.
//!
//! ```no_run
//! # use leasehold_fence::conformance::{check, crashes, race, Subject};
//! # async fn example(mine: impl Subject) -> Result<(), leasehold_fence::conformance::ConformanceError> {
//! let held = check(&mine).await?;
//! assert!(held.contains(&leasehold_fence::conformance::SEQUENCES), "{held:?}");
//! race(&mine, 8, 10_000, 1).await?; // concurrent holders, some of them zombies
//! crashes(&mine, 10, 1).await?; // kills the target's server during writes
//! # Ok(())
//! # }
//! ```

mod blocked_claim;
mod crash;
mod duplicates;
mod incarnations;
mod invalid_tokens;
mod lost_marks;
mod order;
mod race;
mod sealed_tokens;
mod subject;
mod tokens;
mod violation;

pub use crash::crashes;
pub use race::{RaceReport, race};
pub use subject::{AppliedEntry, FenceWriter, StuckHolder, Subject};
pub use tokens::{
    CLUSTER, INCARNATION, RESOURCE, fence_id, forged_tokens, number, seal_keys, sealed_token, token, token_of,
};
pub use violation::ConformanceError;

use violation::Obligation;

/// A token at or above the mark is admitted and raises it.
pub const RISING: &str = "F1 a token at or above the mark is admitted, and a higher one raises it";
/// A stale token is rejected.
pub const STALE: &str = "F1 a token below the mark changes nothing, from any writer";
/// A refusal contains both numbers.
pub const STALE_DETAIL: &str = "F6 a stale refusal reports the presented number and the mark";
/// An invalid token is rejected.
pub const INVALID_TOKENS: &str = "F3 F4 F5 T6 an invalid token is rejected with its code and changes nothing";
/// The text of a sealed token.
pub const SEALED_TEXTS: &str = "F4 a sealed token text is admitted like the plain text of the same token";
/// A sealed fence.
pub const SEALED: &str =
    "A8 a sealed fence admits only tokens that a key signed for the whole name, and says why it refuses others";
/// The seal is part of the mark.
pub const SEAL_STAYS: &str = "A8 a sealed fence stays sealed, also for processes without keys";
/// A fence that was never armed.
pub const UNARMED: &str = "F7 a fence that was never armed rejects every token";
/// A lost mark.
pub const LOST_MARK: &str = "F7 a lost mark rejects every token until it is re-armed from a floor";
/// The list of marks.
pub const LIST_MARKS: &str = "F7 list_marks returns every stored mark";
/// Two incarnations of one cluster.
pub const STRICT: &str = "T5 a strict fence follows one incarnation until it adopts another";
/// Duplicates.
pub const SEQUENCES: &str = "F1 a sequenced write is applied once";
/// Crashes of the target.
pub const DURABLE: &str = "F2 mark and effect survive a crash of the target";
/// A holder that is stuck in the middle of a write.
pub const BOUNDED_CLAIM: &str =
    "F8 a claim returns although a holder is stuck: it succeeds, or changes nothing and reports the blocker";
/// Concurrent holders.
pub const RACE: &str = "F1 with concurrent holders the token numbers of applied writes never decrease";

/// Tests all obligations and returns those that hold. Obligations that the target does not support are left out.
pub async fn check<S: Subject>(subject: &S) -> Result<Vec<&'static str>, ConformanceError> {
    let mut held = Vec::new();
    let mut note = |text: &'static str, tried: bool| tried.then(|| held.push(text));
    note(RISING, order::rising(subject, Obligation(RISING)).await?);
    note(STALE, order::stale(subject, Obligation(STALE)).await?);
    note(STALE_DETAIL, order::stale_detail(subject, Obligation(STALE_DETAIL)).await?);
    note(INVALID_TOKENS, invalid_tokens::rejected(subject, Obligation(INVALID_TOKENS)).await?);
    note(SEALED_TEXTS, sealed_tokens::texts(subject, Obligation(SEALED_TEXTS)).await?);
    note(SEALED, sealed_tokens::verified(subject, Obligation(SEALED)).await?);
    note(SEAL_STAYS, sealed_tokens::permanent(subject, Obligation(SEAL_STAYS)).await?);
    note(UNARMED, lost_marks::unarmed(subject, Obligation(UNARMED)).await?);
    note(LOST_MARK, lost_marks::declared(subject, Obligation(LOST_MARK)).await?);
    note(LIST_MARKS, lost_marks::listed(subject, Obligation(LIST_MARKS)).await?);
    note(STRICT, incarnations::one_incarnation(subject, Obligation(STRICT)).await?);
    note(DURABLE, crash::durable(subject, Obligation(DURABLE)).await?);
    note(SEQUENCES, duplicates::once(subject, Obligation(SEQUENCES)).await?);
    note(BOUNDED_CLAIM, blocked_claim::claim_is_bounded(subject, Obligation(BOUNDED_CLAIM)).await?);
    race(subject, 4, 400, 1).await?;
    note(RACE, true);
    Ok(held)
}
