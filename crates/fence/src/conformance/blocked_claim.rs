//! A claim while another holder is stuck in the middle of a write: it must return, and report the blocker (F8).

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use super::order::{applied, mark};
use super::subject::{FenceWriter, Subject};
use super::tokens::token;
use super::violation::{ConformanceError, Obligation};
use crate::Error;

/// A holder that is stuck in the middle of a write, and a connection for its successor.
pub struct StuckHolder<W> {
    /// The process id that a blocked claim must report. `None` if the target cannot report it reliably.
    pub blocker: Option<u32>,
    /// A longer claim counts as one that never returns. Use the claim timeout of the successor plus a margin for slow
    /// machines.
    pub max_claim_time: Duration,
    /// The connection of the successor. A short claim timeout makes the test fast.
    pub successor: W,
    /// Awaited, the stuck holder continues, and its write is applied if the fence still admits it. Dropped, it aborts the write.
    pub resume: Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>,
}

pub(super) async fn claim_is_bounded<S: Subject>(s: &S, o: Obligation) -> Result<bool, ConformanceError> {
    s.fresh().await;
    let mut holder = s.writer().await;
    o.succeeds("a claim", holder.claim(&token(140)).await)?;
    let Some(stuck) = s.stuck_holder(&token(140), "stuck").await else { return Ok(false) };
    let StuckHolder { blocker, max_claim_time, mut successor, resume } = stuck;
    // In its own task: a claim may block its thread.
    let mut claim = tokio::spawn(async move { successor.claim(&token(141)).await });
    let Ok(result) = tokio::time::timeout(max_claim_time, &mut claim).await else {
        claim.abort();
        return Err(o.broken(format!("a claim has not returned after {max_claim_time:?} while a holder is stuck")));
    };
    let before = match result.map_err(|panic| o.broken(format!("the claim panicked: {panic}")))? {
        Ok(_) => {
            if resume.await.is_ok() {
                return Err(o.broken("the write of the stuck holder succeeded after its successor's claim"));
            }
            Vec::new()
        }
        Err(Error::Blocked { blockers, .. }) => {
            if let Some(pid) = blocker.filter(|pid| !blockers.contains(pid)) {
                return Err(o.broken(format!("process {pid} is stuck, and the blocked claim reports {blockers:?}")));
            }
            o.succeeds("the write of the stuck holder after a blocked claim", resume.await)?;
            mark(s, o, Some(140)).await?;
            applied(s, o, &[(140, "stuck")]).await?;
            let mut again = s.writer().await;
            o.succeeds("a claim after the stuck holder has left", again.claim(&token(141)).await)?;
            vec![(140, "stuck")]
        }
        Err(other) => return Err(o.broken(format!("a claim while a holder is stuck got {} {other}", other.code()))),
    };
    mark(s, o, Some(141)).await?;
    o.refused("a late write of the stuck holder", "STALE_TOKEN", holder.write(&token(140), "late").await)?;
    applied(s, o, &before).await?;
    Ok(true)
}
