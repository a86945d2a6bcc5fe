//! Two incarnations of one cluster at one target.

use leasehold_core::token::Incarnation;

use super::order::applied;
use super::subject::{FenceWriter, Subject};
use super::tokens::{INCARNATION, token, token_of};
use super::violation::{ConformanceError, Obligation};

const RESTORED: Incarnation = Incarnation(INCARNATION.0 + 1);

pub(super) async fn one_incarnation<S: Subject>(s: &S, o: Obligation) -> Result<bool, ConformanceError> {
    // Not strict: a higher number of another incarnation is admitted, a lower one is stale.
    s.fresh().await;
    let (mut old, mut new) = (s.writer().await, s.writer().await);
    o.succeeds("a claim", old.claim(&token(100)).await)?;
    o.succeeds("a claim after a restore", new.claim(&token_of(101, RESTORED)).await)?;
    o.refused("a write from before the restore", "STALE_TOKEN", old.write(&token(100), "before").await)?;
    applied(s, o, &[]).await?;

    s.fresh().await;
    if !o.succeeds("making the fence strict", s.strict(true).await)? {
        return Ok(false);
    }
    let (mut old, mut new) = (s.writer().await, s.writer().await);
    o.succeeds("the first claim", old.claim(&token(110)).await)?;
    for number in [110, 111] {
        let other = token_of(number, RESTORED);
        o.refused("a claim of another incarnation", "NOT_ADOPTED", new.claim(&other).await)?;
        o.refused("a write of another incarnation", "NOT_ADOPTED", new.write(&other, "unknown").await)?;
    }
    let lower = token_of(109, RESTORED);
    o.refused("a lower number of another incarnation", "STALE_TOKEN", new.write(&lower, "lower").await)?;
    o.succeeds("a write of the followed incarnation", old.write(&token(112), "known").await)?;
    let adopted = o.succeeds("adopting", s.adopt(RESTORED).await)?;
    o.equal("a strict target can adopt an incarnation", &adopted, &true)?;
    o.refused("a write of the former incarnation", "NOT_ADOPTED", old.write(&token(113), "left").await)?;
    let below = token_of(111, RESTORED);
    o.refused("a write of the adopted incarnation below the mark", "STALE_TOKEN", new.write(&below, "below").await)?;
    o.succeeds("a claim of the adopted incarnation", new.claim(&token_of(114, RESTORED)).await)?;
    o.succeeds("its write", new.write(&token_of(114, RESTORED), "adopted").await)?;
    applied(s, o, &[(112, "known"), (114, "adopted")]).await?;
    Ok(true)
}
