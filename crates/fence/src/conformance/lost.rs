//! Marks that are not there, or cannot be trusted: refuse, never start at zero.

use leasehold_core::name::resource_hash;

use super::order::applied;
use super::subject::{Subject, Writer};
use super::tokens::{CLUSTER, INCARNATION, RESOURCE, number, token};
use super::violation::{Obligation, Violation};
use crate::Mark;

pub(super) async fn missing<S: Subject>(s: &S, o: Obligation) -> Result<bool, Violation> {
    if !s.unarmed().await {
        return Ok(false);
    }
    let mut holder = s.writer().await;
    o.refused("a claim", "STORAGE_FAILED", holder.claim(&token(60)).await)?;
    o.refused("a write", "STORAGE_FAILED", holder.write(&token(60), "unarmed").await)?;
    o.refused("reading the mark", "STORAGE_FAILED", s.mark().await)?;
    Ok(true)
}

pub(super) async fn declared<S: Subject>(s: &S, o: Obligation) -> Result<bool, Violation> {
    s.fresh().await;
    let mut holder = s.writer().await;
    o.done("a claim", holder.claim(&token(70)).await)?;
    o.done("a write", holder.write(&token(70), "before").await)?;
    if !o.done("declaring the mark lost", s.declare_lost().await)? {
        return Ok(false);
    }
    for number in [69, 70, 71] {
        o.refused("a claim while the mark is lost", "STORAGE_FAILED", holder.claim(&token(number)).await)?;
        o.refused("a write while it is", "STORAGE_FAILED", holder.write(&token(number), "lost").await)?;
    }
    o.refused("reading the mark", "STORAGE_FAILED", s.mark().await)?;
    o.refused("arming below what was seen", "CONFLICT", s.rearm(number(69)).await)?;
    o.refused("a claim after that", "STORAGE_FAILED", holder.claim(&token(71)).await)?;
    let armed = o.done("arming from a floor", s.rearm(number(80)).await)?;
    o.equal("a target that can lose its mark and can arm it", &armed, &true)?;
    o.refused("a holder from below the floor", "STALE_TOKEN", holder.write(&token(79), "late").await)?;
    o.done("a holder from above it", holder.write(&token(81), "after").await)?;
    applied(s, o, &[(70, "before"), (81, "after")]).await?;
    Ok(true)
}

pub(super) async fn surveyed<S: Subject>(s: &S, o: Obligation) -> Result<bool, Violation> {
    s.fresh().await;
    let Some(fresh) = o.done("a survey", s.survey().await)? else { return Ok(false) };
    o.equal("how many marks a fresh target keeps", &fresh.len(), &1)?;
    o.equal("the mark of a fresh target", &fresh[0].mark, &Mark::Fresh)?;
    let mut holder = s.writer().await;
    o.done("a claim", holder.claim(&token(90)).await)?;
    let kept = o.done("a survey", s.survey().await)?.unwrap_or_default();
    o.equal("how many marks are kept", &kept.len(), &1)?;
    let one = &kept[0];
    let resource = format!("{:016x}", u64::from_be_bytes(resource_hash(RESOURCE)));
    o.equal("whose", &(one.cluster, one.resource.as_str(), one.slot), &(CLUSTER, resource.as_str(), 0))?;
    o.equal("the mark", &one.mark, &Mark::Armed(number(90)))?;
    o.equal("the incarnation", &one.incarnation, &Some(INCARNATION))?;
    if let Some(name) = &one.name {
        o.equal("the name", &name.as_str(), &RESOURCE)?;
    }
    if o.done("declaring the mark lost", s.declare_lost().await)? {
        let kept = o.done("a survey of what is lost", s.survey().await)?.unwrap_or_default();
        o.equal("a lost mark", &kept.iter().map(|kept| kept.mark).collect::<Vec<_>>(), &vec![Mark::Lost])?;
    }
    Ok(true)
}
