//! The trial that every fence passes, for targets of your own too: obligations by the id of the promise they hold.
//!
//! Implement [`Subject`] for the target and [`Writer`] for a way to it, and run [`check`] in a test, on a runtime with
//! several threads. It tries the fence from outside: with tokens of [`CLUSTER`] for [`RESOURCE`], slot 0, against what the
//! target really applied, which the subject reads past the fence. The answer lists what held; what the target cannot do
//! (sequences, a crash of its server, somebody inside of it) is missing in that list. A broken obligation is a
//! [`Violation`] that names the promise.
//!
//! ```no_run
//! # use leasehold_fence::conformance::{check, crashes, race, Subject};
//! # async fn example(mine: impl Subject) -> Result<(), leasehold_fence::conformance::Violation> {
//! let held = check(&mine).await?;
//! assert!(held.contains(&leasehold_fence::conformance::SEQUENCES), "{held:?}");
//! race(&mine, 8, 10_000, 1).await?; // holders that overtake each other, zombies among them
//! crashes(&mine, 10, 1).await?; // the target's server is killed while it writes
//! # Ok(())
//! # }
//! ```

mod bounded;
mod crash;
mod lost;
mod mistakes;
mod order;
mod race;
mod sequence;
mod strict;
mod subject;
mod tokens;
mod violation;

pub use bounded::Inside;
pub use crash::crashes;
pub use race::{Raced, race};
pub use subject::{Applied, Subject, Writer};
pub use tokens::{CLUSTER, INCARNATION, RESOURCE, name, number, token, token_of};
pub use violation::Violation;

use violation::Obligation;

/// A token at or above the mark passes and raises it.
pub const RISING: &str = "F1 a token at or above the mark passes, and a higher one raises it";
/// A lower one is refused.
pub const STALE: &str = "F1 a token below the mark changes nothing, whoever shows it by whichever way";
/// And told why.
pub const TOLD: &str = "F6 a refusal tells what was presented and what stands";
/// What is no token for this place.
pub const MISTAKES: &str = "F3 F4 F5 T6 what is no token for this place is refused with its code, and moves nothing";
/// A place that nobody armed.
pub const MISSING: &str = "F7 a place that nobody armed refuses every token";
/// A mark that is lost.
pub const LOST: &str = "F7 a lost mark refuses every token until it is armed from a floor";
/// What a survey reads.
pub const SURVEY: &str = "F7 a survey tells every mark that is kept";
/// Two lives of one cluster.
pub const STRICT: &str = "T5 a strict fence follows one incarnation until it adopts another";
/// Late duplicates.
pub const SEQUENCES: &str = "F1 a numbered write is applied once";
/// Crashes.
pub const DURABLE: &str = "F2 mark and effect are there after a crash of the target";
/// Somebody who stands still inside.
pub const BOUNDED: &str = "F8 a claim ends, whoever stands still inside: it passes, or changes nothing and names who";
/// Racing holders.
pub const RACE: &str = "F1 among racing holders the tokens of applied writes never fall";

/// Tries every obligation, and gives the ones that held; those that the target has no means for are left out.
pub async fn check<S: Subject>(subject: &S) -> Result<Vec<&'static str>, Violation> {
    let mut held = Vec::new();
    let mut note = |text: &'static str, tried: bool| tried.then(|| held.push(text));
    note(RISING, order::rising(subject, Obligation(RISING)).await?);
    note(STALE, order::stale(subject, Obligation(STALE)).await?);
    note(TOLD, order::told(subject, Obligation(TOLD)).await?);
    note(MISTAKES, mistakes::refused(subject, Obligation(MISTAKES)).await?);
    note(MISSING, lost::missing(subject, Obligation(MISSING)).await?);
    note(LOST, lost::declared(subject, Obligation(LOST)).await?);
    note(SURVEY, lost::surveyed(subject, Obligation(SURVEY)).await?);
    note(STRICT, strict::followed(subject, Obligation(STRICT)).await?);
    note(DURABLE, crash::kept(subject, Obligation(DURABLE)).await?);
    note(SEQUENCES, sequence::once(subject, Obligation(SEQUENCES)).await?);
    note(BOUNDED, bounded::ends(subject, Obligation(BOUNDED)).await?);
    race(subject, 4, 400, 1).await?;
    note(RACE, true);
    Ok(held)
}
