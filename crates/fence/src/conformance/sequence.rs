//! Late duplicates inside one hold: a numbered write is applied once.

use super::order::applied;
use super::subject::{Subject, Writer};
use super::tokens::token;
use super::violation::{Obligation, Violation};
use crate::Once;

pub(super) async fn once<S: Subject>(s: &S, o: Obligation) -> Result<bool, Violation> {
    s.fresh().await;
    let (mut holder, mut retry) = (s.writer().await, s.writer().await);
    o.done("a claim", holder.claim(&token(120)).await)?;
    let Some(first) = o.done("a numbered write", holder.write_sequenced(&token(120), 1, "one").await)? else {
        return Ok(false);
    };
    o.equal("the first answer", &first, &Once::Applied)?;
    let ask = [(1, "one again", Some(1)), (2, "two", None), (1, "one, late", Some(2)), (7, "seven", None)];
    for (sequence, value, duplicate_of) in ask {
        let answer = o.done("a numbered write", retry.write_sequenced(&token(120), sequence, value).await)?;
        let want = duplicate_of.map_or(Once::Applied, |last| Once::AlreadyApplied { last });
        o.equal(value, &answer, &Some(want))?;
    }
    // The same claim again must not forget what was applied under it.
    o.done("the same claim again", holder.claim(&token(120)).await)?;
    let answer = o.done("a duplicate", holder.write_sequenced(&token(120), 7, "seven again").await)?;
    o.equal("a duplicate after a repeated claim", &answer, &Some(Once::AlreadyApplied { last: 7 }))?;
    let crashed = s.crash().await;
    if crashed {
        holder = s.writer().await;
        let answer = o.done("a duplicate", holder.write_sequenced(&token(120), 7, "after the crash").await)?;
        o.equal("a duplicate after a crash", &answer, &Some(Once::AlreadyApplied { last: 7 }))?;
    }
    o.done("a claim above", holder.claim(&token(121)).await)?;
    let answer = o.done("its first write", holder.write_sequenced(&token(121), 1, "anew").await)?;
    o.equal("a higher token's first write", &answer, &Some(Once::Applied))?;
    let late = holder.write_sequenced(&token(120), 8, "late").await;
    o.refused("a numbered write of the one before", "STALE_TOKEN", late)?;
    applied(s, o, &[(120, "one"), (120, "two"), (120, "seven"), (121, "anew")]).await?;
    Ok(true)
}
