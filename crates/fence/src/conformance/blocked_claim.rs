//! A claim while another holder is stuck in the middle of a write: it must return, and report the blocker (F8).

use super::order::{applied, mark};
use super::subject::{FenceWriter, StuckHolder, Subject};
use super::tokens::token;
use super::violation::{ConformanceError, Obligation};
use crate::Error;

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
