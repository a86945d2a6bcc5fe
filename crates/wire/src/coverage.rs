//! Encoding and decoding of fence reports and of the coverage of a resource.

use leasehold_core::charter;
use leasehold_core::coverage::{CheckCounts, FenceMode, FenceReport, RefusedZombie, TargetStatus, TargetView};
use leasehold_core::refusal::Refusal;
use leasehold_core::token::Cluster;

use crate::enums::{decode_number, required_enum};
use crate::v1;

impl From<FenceMode> for v1::FenceMode {
    fn from(mode: FenceMode) -> Self {
        match mode {
            FenceMode::Forced => Self::Forced,
            FenceMode::Cooperative => Self::Cooperative,
        }
    }
}

impl From<v1::FenceMode> for Option<FenceMode> {
    fn from(mode: v1::FenceMode) -> Self {
        match mode {
            v1::FenceMode::Unspecified => None,
            v1::FenceMode::Forced => Some(FenceMode::Forced),
            v1::FenceMode::Cooperative => Some(FenceMode::Cooperative),
        }
    }
}

/// Encodes a batch of reports.
pub(crate) fn encode_reports(cluster: Cluster, from: &[FenceReport<'_>]) -> v1::FenceReports {
    v1::FenceReports { cluster: cluster.to_string(), reports: from.iter().map(encode_report).collect() }
}

fn encode_report(from: &FenceReport<'_>) -> v1::FenceReport {
    v1::FenceReport {
        resource: from.resource.into(),
        slot: from.slot,
        target: from.target.into(),
        mode: v1::FenceMode::from(from.mode).into(),
        checks: from.checks,
        refusals: from.refusals,
        checked_ago_ms: from.checked_ago_ms,
        highest: from.highest.map(|number| number.get()),
        zombie: from.zombie.map(|zombie| v1::RefusedZombie {
            presented: zombie.presented.get(),
            mark: zombie.mark.get(),
            times: zombie.times,
            holder: zombie.holder.into(),
        }),
    }
}

/// Decodes a batch of reports.
pub(crate) fn decode_reports(from: &v1::FenceReports) -> Result<(Cluster, Vec<FenceReport<'_>>), Refusal> {
    let wrong = Refusal::Invalid { field: "cluster", reason: "must be 16 hexadecimal digits, as printed in tokens" };
    let cluster = from.cluster.parse().map_err(|_| wrong)?;
    Ok((cluster, from.reports.iter().map(decode_report).collect::<Result<_, _>>()?))
}

fn decode_report(from: &v1::FenceReport) -> Result<FenceReport<'_>, Refusal> {
    let zombie = |zombie: &v1::RefusedZombie| {
        Ok::<_, Refusal>(RefusedZombie {
            presented: decode_number(zombie.presented)?,
            mark: decode_number(zombie.mark)?,
            times: zombie.times,
            holder: "",
        })
    };
    let refused = from.zombie.as_ref().map(zombie).transpose()?;
    let holder = from.zombie.as_ref().map_or("", |zombie| &zombie.holder);
    Ok(FenceReport {
        resource: &from.resource,
        slot: from.slot,
        target: &from.target,
        mode: required_enum::<v1::FenceMode, FenceMode>(from.mode, "mode")?,
        checks: from.checks,
        refusals: from.refusals,
        checked_ago_ms: from.checked_ago_ms,
        highest: from.highest.map(decode_number).transpose()?,
        zombie: refused.map(|refused| RefusedZombie { holder, ..refused }),
    })
}

/// Encodes the coverage of a resource.
pub fn encode_coverage(resource: &str, from: &[TargetView]) -> v1::Coverage {
    v1::Coverage { resource: resource.into(), targets: from.iter().map(encode_target).collect() }
}

fn encode_target(from: &TargetView) -> v1::TargetView {
    let declared = from.declared.as_ref();
    v1::TargetView {
        name: from.name.clone(),
        at: from.at.clone(),
        declared: declared.is_some(),
        mode: declared.and_then(Option::as_ref).map_or("", charter::TargetMode::word).into(),
        slots: from.reports.iter().map(encode_target_slot).collect(),
        hole: from.hole.map_or("", |hole| hole.word()).into(),
    }
}

fn encode_target_slot((slot, seen, counted): &(u32, TargetStatus, Option<CheckCounts>)) -> v1::TargetSlotView {
    v1::TargetSlotView {
        slot: *slot,
        mode: v1::FenceMode::from(seen.mode).into(),
        since_ms: seen.since.0,
        checks: counted.map_or(0, |counted| counted.checks),
        refusals: counted.map_or(0, |counted| counted.refusals),
        checked_ms: counted.map(|counted| counted.last.0),
        zombies: seen.zombies,
        last_zombie: seen.last.as_ref().map(|last| v1::LastZombie {
            at_ms: last.at.0,
            presented: last.presented.get(),
            mark: last.mark.get(),
            holder: last.holder.to_string(),
        }),
    }
}
