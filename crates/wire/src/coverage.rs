//! What fences report, and what is known about the targets of a resource.

use leasehold_core::charter;
use leasehold_core::coverage::{Checked, Mode, Refused, Report, Seen, TargetView};
use leasehold_core::refusal::Refusal;
use leasehold_core::token::Cluster;

use crate::v1;
use crate::words::{must_say, number};

impl From<Mode> for v1::FenceMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Forced => Self::Forced,
            Mode::Cooperative => Self::Cooperative,
        }
    }
}

impl From<v1::FenceMode> for Option<Mode> {
    fn from(mode: v1::FenceMode) -> Self {
        match mode {
            v1::FenceMode::Unspecified => None,
            v1::FenceMode::Forced => Some(Mode::Forced),
            v1::FenceMode::Cooperative => Some(Mode::Cooperative),
        }
    }
}

/// A batch of reports as it is told.
pub(crate) fn reports(cluster: Cluster, from: &[Report<'_>]) -> v1::Reports {
    v1::Reports { cluster: cluster.to_string(), reports: from.iter().map(report).collect() }
}

fn report(from: &Report<'_>) -> v1::FenceReport {
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

/// A batch of reports as it is read.
pub(crate) fn read_reports(from: &v1::Reports) -> Result<(Cluster, Vec<Report<'_>>), Refusal> {
    let wrong = Refusal::Invalid { field: "cluster", reason: "16 hexadecimal digits, as tokens print it" };
    let cluster = from.cluster.parse().map_err(|_| wrong)?;
    Ok((cluster, from.reports.iter().map(read_report).collect::<Result<_, _>>()?))
}

fn read_report(from: &v1::FenceReport) -> Result<Report<'_>, Refusal> {
    let zombie = |zombie: &v1::RefusedZombie| {
        Ok::<_, Refusal>(Refused {
            presented: number(zombie.presented)?,
            mark: number(zombie.mark)?,
            times: zombie.times,
            holder: "",
        })
    };
    let refused = from.zombie.as_ref().map(zombie).transpose()?;
    let holder = from.zombie.as_ref().map_or("", |zombie| &zombie.holder);
    Ok(Report {
        resource: &from.resource,
        slot: from.slot,
        target: &from.target,
        mode: must_say::<v1::FenceMode, Mode>(from.mode, "mode")?,
        checks: from.checks,
        refusals: from.refusals,
        checked_ago_ms: from.checked_ago_ms,
        highest: from.highest.map(number).transpose()?,
        zombie: refused.map(|refused| Refused { holder, ..refused }),
    })
}

/// The targets of a resource as they are told.
pub fn fences(resource: &str, from: &[TargetView]) -> v1::Fences {
    v1::Fences { resource: resource.into(), targets: from.iter().map(target).collect() }
}

fn target(from: &TargetView) -> v1::TargetView {
    let declared = from.declared.as_ref();
    v1::TargetView {
        name: from.name.clone(),
        at: from.at.clone(),
        declared: declared.is_some(),
        mode: declared.and_then(Option::as_ref).map_or("", charter::Mode::word).into(),
        places: from.seen.iter().map(place).collect(),
        hole: from.hole.map_or("", |hole| hole.word()).into(),
    }
}

fn place((slot, seen, counted): &(u32, Seen, Option<Checked>)) -> v1::PlaceView {
    v1::PlaceView {
        slot: *slot,
        mode: v1::FenceMode::from(seen.mode).into(),
        since_ms: seen.since.0,
        checks: counted.map_or(0, |counted| counted.checks),
        refusals: counted.map_or(0, |counted| counted.refusals),
        checked_ms: counted.map(|counted| counted.last.0),
        zombies: seen.zombies,
        last: seen.last.as_ref().map(|last| v1::LastZombie {
            at_ms: last.at.0,
            presented: last.presented.get(),
            mark: last.mark.get(),
            holder: last.holder.to_string(),
        }),
    }
}
