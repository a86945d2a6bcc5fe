//! Somebody who stands still inside the target: its successor's claim ends all the same, and tells who it is (F8).

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use super::order::{applied, mark};
use super::subject::{Subject, Writer};
use super::tokens::token;
use super::violation::{Obligation, Violation};
use crate::Error;

/// A holder that stands still inside the target, and its successor before the door.
pub struct Inside<W> {
    /// Who is inside, as a claim that is blocked must name it. None if the target cannot tell, or not always.
    pub who: Option<u32>,
    /// A claim that takes longer counts as one that never ends: the successor's patience, and what a slow machine may
    /// need beside it.
    pub bound: Duration,
    /// Another's way to the target. The less patience it has, the sooner the trial is over.
    pub successor: W,
    /// Awaited, the one inside goes on, and its write counts if it still can. Dropped, it leaves without its write.
    pub goes_on: Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>,
}

pub(super) async fn ends<S: Subject>(s: &S, o: Obligation) -> Result<bool, Violation> {
    s.fresh().await;
    let mut holder = s.writer().await;
    o.done("a claim", holder.claim(&token(140)).await)?;
    let Some(inside) = s.occupied(&token(140), "inside").await else { return Ok(false) };
    let Inside { who, bound, mut successor, goes_on } = inside;
    // A task of its own: a claim may keep its thread while it waits.
    let mut claim = tokio::spawn(async move { successor.claim(&token(141)).await });
    let Ok(ended) = tokio::time::timeout(bound, &mut claim).await else {
        claim.abort();
        return Err(o.broken(format!("a claim had not ended after {bound:?}, and somebody was still inside")));
    };
    let before = match ended.map_err(|panic| o.broken(format!("the claim panicked: {panic}")))? {
        Ok(_) => {
            if goes_on.await.is_ok() {
                return Err(o.broken("who was inside was told that its write counts, after its successor's claim"));
            }
            Vec::new()
        }
        Err(Error::Blocked { by, .. }) => {
            if let Some(who) = who.filter(|who| !by.contains(who)) {
                return Err(o.broken(format!("{who} is inside, and the claim that was blocked names {by:?}")));
            }
            o.done("the write of who was inside, after a claim that was blocked", goes_on.await)?;
            mark(s, o, Some(140)).await?;
            applied(s, o, &[(140, "inside")]).await?;
            let mut again = s.writer().await;
            o.done("a claim when nobody is inside any more", again.claim(&token(141)).await)?;
            vec![(140, "inside")]
        }
        Err(other) => return Err(o.broken(format!("a claim while somebody is inside got {} {other}", other.code()))),
    };
    mark(s, o, Some(141)).await?;
    o.refused("a late write of who was inside", "STALE_TOKEN", holder.write(&token(140), "late").await)?;
    applied(s, o, &before).await?;
    Ok(true)
}
