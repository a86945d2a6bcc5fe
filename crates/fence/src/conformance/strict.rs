//! Two lives of one cluster at one target.

use leasehold_core::token::Incarnation;

use super::order::applied;
use super::subject::{Subject, Writer};
use super::tokens::{INCARNATION, token, token_of};
use super::violation::{Obligation, Violation};

const RESTORED: Incarnation = Incarnation(INCARNATION.0 + 1);

pub(super) async fn followed<S: Subject>(s: &S, o: Obligation) -> Result<bool, Violation> {
    // Not strict: a higher number of another life passes, a lower one is stale as ever.
    s.fresh().await;
    let (mut old, mut new) = (s.writer().await, s.writer().await);
    o.done("a claim", old.claim(&token(100)).await)?;
    o.done("a claim after a restore", new.claim(&token_of(101, RESTORED)).await)?;
    o.refused("a write from before the restore", "STALE_TOKEN", old.write(&token(100), "before").await)?;
    applied(s, o, &[]).await?;

    s.fresh().await;
    if !o.done("making the place strict", s.make_strict().await)? {
        return Ok(false);
    }
    let (mut old, mut new) = (s.writer().await, s.writer().await);
    o.done("the first claim", old.claim(&token(110)).await)?;
    for number in [110, 111] {
        let shown = token_of(number, RESTORED);
        o.refused("a claim of another incarnation", "NOT_ADOPTED", new.claim(&shown).await)?;
        o.refused("a write of another incarnation", "NOT_ADOPTED", new.write(&shown, "unknown").await)?;
    }
    let lower = token_of(109, RESTORED);
    o.refused("a lower number of another incarnation", "STALE_TOKEN", new.write(&lower, "lower").await)?;
    o.done("a write of the incarnation that is followed", old.write(&token(112), "known").await)?;
    let adopted = o.done("adopting", s.adopt(RESTORED).await)?;
    o.equal("a strict target that can adopt", &adopted, &true)?;
    o.refused("a write of the one that was left", "NOT_ADOPTED", old.write(&token(113), "left").await)?;
    let below = token_of(111, RESTORED);
    o.refused("an adopted one below the mark", "STALE_TOKEN", new.write(&below, "below").await)?;
    o.done("a claim of the adopted one", new.claim(&token_of(114, RESTORED)).await)?;
    o.done("its write", new.write(&token_of(114, RESTORED), "adopted").await)?;
    applied(s, o, &[(112, "known"), (114, "adopted")]).await?;
    Ok(true)
}
