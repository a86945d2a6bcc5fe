//! The rule as observed from outside: an equal token is admitted, a higher one raises the mark, a lower one changes nothing.

use super::subject::{AppliedEntry, FenceWriter, Subject};
use super::tokens::{number, token};
use super::violation::{ConformanceError, Obligation};
use crate::{Error, FenceRefusal};

/// Checks the applied writes, as (number, value).
pub(super) async fn applied<S: Subject>(
    s: &S,
    o: Obligation,
    expected: &[(u64, &str)],
) -> Result<(), ConformanceError> {
    let expected: Vec<AppliedEntry> =
        expected.iter().map(|(n, value)| AppliedEntry { number: number(*n), value: (*value).to_owned() }).collect();
    o.equal("the list of applied writes", &s.applied().await, &expected)
}

pub(super) async fn mark<S: Subject>(s: &S, o: Obligation, expected: Option<u64>) -> Result<(), ConformanceError> {
    let actual = o.succeeds("reading the mark", s.mark().await)?;
    o.equal("the mark", &actual.map(|mark| mark.get()), &expected)
}

pub(super) async fn rising<S: Subject>(s: &S, o: Obligation) -> Result<bool, ConformanceError> {
    s.fresh().await;
    mark(s, o, None).await?;
    let mut holder = s.writer().await;
    let claimed = o.succeeds("the first claim", holder.claim(&token(10)).await)?;
    o.equal("the number claimed", &claimed.get(), &10)?;
    mark(s, o, Some(10)).await?;
    applied(s, o, &[]).await?;
    o.succeeds("a write under the claim", holder.write(&token(10), "a").await)?;
    o.succeeds("a second write under an equal token", holder.write(&token(10), "b").await)?;
    o.succeeds("the same claim again", holder.claim(&token(10)).await)?;
    let mut next = s.writer().await;
    o.succeeds("a write with a higher token", next.write(&token(12), "c").await)?;
    mark(s, o, Some(12)).await?;
    o.succeeds("a higher claim", holder.claim(&token(15)).await)?;
    mark(s, o, Some(15)).await?;
    applied(s, o, &[(10, "a"), (10, "b"), (12, "c")]).await?;
    Ok(true)
}

pub(super) async fn stale<S: Subject>(s: &S, o: Obligation) -> Result<bool, ConformanceError> {
    s.fresh().await;
    let (mut old, mut new) = (s.writer().await, s.writer().await);
    o.succeeds("the predecessor's claim", old.claim(&token(20)).await)?;
    o.succeeds("its write", old.write(&token(20), "before").await)?;
    o.succeeds("the successor's claim", new.claim(&token(21)).await)?;
    // Before the successor has written anything: its claim alone must stop the predecessor.
    o.refused("a write after the successor's claim", "STALE_TOKEN", old.write(&token(20), "late").await)?;
    o.refused("a claim after it", "STALE_TOKEN", old.claim(&token(20)).await)?;
    applied(s, o, &[(20, "before")]).await?;
    o.succeeds("the successor's write", new.write(&token(21), "after").await)?;
    o.refused("a write after the successor's", "STALE_TOKEN", old.write(&token(20), "later").await)?;
    // A new connection must not be treated differently.
    let mut third = s.writer().await;
    o.refused("a late write on a new connection", "STALE_TOKEN", third.write(&token(19), "latest").await)?;
    mark(s, o, Some(21)).await?;
    applied(s, o, &[(20, "before"), (21, "after")]).await?;
    Ok(true)
}

pub(super) async fn stale_detail<S: Subject>(s: &S, o: Obligation) -> Result<bool, ConformanceError> {
    s.fresh().await;
    let (mut old, mut new) = (s.writer().await, s.writer().await);
    o.succeeds("a claim", new.claim(&token(34)).await)?;
    for (what, outcome) in
        [("a claim", old.claim(&token(33)).await.map(|_| ())), ("a write", old.write(&token(33), "late").await)]
    {
        match outcome {
            Err(Error::Refused(FenceRefusal::Stale { presented, mark })) => {
                o.equal(what, &(presented.get(), mark.get()), &(33, 34))?;
            }
            other => return Err(o.broken(format!("{what} of token 33 below mark 34 got {other:?}"))),
        }
    }
    Ok(true)
}
