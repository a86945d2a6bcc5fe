//! The rule itself, as it is seen from outside: equal passes, higher raises, lower changes nothing.

use super::subject::{Applied, Subject, Writer};
use super::tokens::{number, token};
use super::violation::{Obligation, Violation};
use crate::{Error, Refusal};

/// What must have been applied, as (number, value).
pub(super) async fn applied<S: Subject>(s: &S, o: Obligation, want: &[(u64, &str)]) -> Result<(), Violation> {
    let want: Vec<Applied> =
        want.iter().map(|(n, value)| Applied { number: number(*n), value: (*value).to_owned() }).collect();
    o.equal("what was applied", &s.applied().await, &want)
}

pub(super) async fn mark<S: Subject>(s: &S, o: Obligation, want: Option<u64>) -> Result<(), Violation> {
    let have = o.done("reading the mark", s.mark().await)?;
    o.equal("the mark", &have.map(|mark| mark.get()), &want)
}

pub(super) async fn rising<S: Subject>(s: &S, o: Obligation) -> Result<bool, Violation> {
    s.fresh().await;
    mark(s, o, None).await?;
    let mut holder = s.writer().await;
    let claimed = o.done("the first claim", holder.claim(&token(10)).await)?;
    o.equal("the number claimed", &claimed.get(), &10)?;
    mark(s, o, Some(10)).await?;
    applied(s, o, &[]).await?;
    o.done("a write under the claim", holder.write(&token(10), "a").await)?;
    o.done("a second write under an equal token", holder.write(&token(10), "b").await)?;
    o.done("the same claim again", holder.claim(&token(10)).await)?;
    let mut next = s.writer().await;
    o.done("a write that shows a higher token", next.write(&token(12), "c").await)?;
    mark(s, o, Some(12)).await?;
    o.done("a claim above", holder.claim(&token(15)).await)?;
    mark(s, o, Some(15)).await?;
    applied(s, o, &[(10, "a"), (10, "b"), (12, "c")]).await?;
    Ok(true)
}

pub(super) async fn stale<S: Subject>(s: &S, o: Obligation) -> Result<bool, Violation> {
    s.fresh().await;
    let (mut old, mut new) = (s.writer().await, s.writer().await);
    o.done("the predecessor's claim", old.claim(&token(20)).await)?;
    o.done("its write", old.write(&token(20), "before").await)?;
    o.done("the successor's claim", new.claim(&token(21)).await)?;
    // Before the successor has written anything: the claim alone must keep its predecessor out.
    o.refused("a write after the successor's claim", "STALE_TOKEN", old.write(&token(20), "late").await)?;
    o.refused("a claim after it", "STALE_TOKEN", old.claim(&token(20)).await)?;
    applied(s, o, &[(20, "before")]).await?;
    o.done("the successor's write", new.write(&token(21), "after").await)?;
    o.refused("a write after the successor's", "STALE_TOKEN", old.write(&token(20), "later").await)?;
    // A way to the target that was never used before knows no more than one that was.
    let mut third = s.writer().await;
    o.refused("a late write by another way", "STALE_TOKEN", third.write(&token(19), "latest").await)?;
    mark(s, o, Some(21)).await?;
    applied(s, o, &[(20, "before"), (21, "after")]).await?;
    Ok(true)
}

pub(super) async fn told<S: Subject>(s: &S, o: Obligation) -> Result<bool, Violation> {
    s.fresh().await;
    let (mut old, mut new) = (s.writer().await, s.writer().await);
    o.done("a claim", new.claim(&token(34)).await)?;
    for (what, outcome) in
        [("a claim", old.claim(&token(33)).await.map(|_| ())), ("a write", old.write(&token(33), "late").await)]
    {
        match outcome {
            Err(Error::Refused(Refusal::Stale { presented, mark })) => {
                o.equal(what, &(presented.get(), mark.get()), &(33, 34))?;
            }
            other => return Err(o.broken(format!("{what} of token 33 below mark 34 got {other:?}"))),
        }
    }
    Ok(true)
}
