//! Duplicates under one token: a sequenced write is applied once.

use super::order::applied;
use super::subject::{FenceWriter, Subject};
use super::tokens::token;
use super::violation::{ConformanceError, Obligation};
use crate::ApplyOnce;

pub(super) async fn once<S: Subject>(s: &S, o: Obligation) -> Result<bool, ConformanceError> {
    s.fresh().await;
    let (mut holder, mut retry) = (s.writer().await, s.writer().await);
    o.succeeds("a claim", holder.claim(&token(120)).await)?;
    let Some(first) = o.succeeds("a sequenced write", holder.write_once(&token(120), 1, "one").await)? else {
        return Ok(false);
    };
    o.equal("the first reply", &first, &ApplyOnce::Applied)?;
    let writes = [(1, "one again", Some(1)), (2, "two", None), (1, "one, late", Some(2)), (7, "seven", None)];
    for (sequence, value, duplicate_of) in writes {
        let reply = o.succeeds("a sequenced write", retry.write_once(&token(120), sequence, value).await)?;
        let expected = duplicate_of.map_or(ApplyOnce::Applied, |last| ApplyOnce::AlreadyApplied { last });
        o.equal(value, &reply, &Some(expected))?;
    }
    // A repeated claim must not forget the last sequence.
    o.succeeds("the same claim again", holder.claim(&token(120)).await)?;
    let reply = o.succeeds("a duplicate", holder.write_once(&token(120), 7, "seven again").await)?;
    o.equal("a duplicate after a repeated claim", &reply, &Some(ApplyOnce::AlreadyApplied { last: 7 }))?;
    let crashed = s.crash().await;
    if crashed {
        holder = s.writer().await;
        let reply = o.succeeds("a duplicate", holder.write_once(&token(120), 7, "after the crash").await)?;
        o.equal("a duplicate after a crash", &reply, &Some(ApplyOnce::AlreadyApplied { last: 7 }))?;
    }
    o.succeeds("a higher claim", holder.claim(&token(121)).await)?;
    let reply = o.succeeds("its first write", holder.write_once(&token(121), 1, "first").await)?;
    o.equal("a higher token's first write", &reply, &Some(ApplyOnce::Applied))?;
    let late = holder.write_once(&token(120), 8, "late").await;
    o.refused("a sequenced write of the predecessor", "STALE_TOKEN", late)?;
    applied(s, o, &[(120, "one"), (120, "two"), (120, "seven"), (121, "first")]).await?;
    Ok(true)
}
