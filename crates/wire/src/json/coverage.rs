//! Bodies of fence reports and of the coverage of a resource.

use leasehold_core::coverage::FenceMode;
use leasehold_core::refusal::Refusal;
use serde::{Deserialize, Serialize};

use super::enum_word;
use super::request_fields::decimal;
use crate::duration::HumanDuration;
use crate::v1;
use crate::v1::request::Operation;

/// `POST /v1/coverage`: reports of fences.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields, default)]
pub struct FenceReportsBody {
    /// The cluster whose tokens the fences check, as printed in tokens.
    pub cluster: String,
    /// One entry per fenced slot of a target, and one per refused zombie; at most 256.
    pub reports: Vec<FenceReportBody>,
}

/// The report for one slot of one target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields, default)]
pub struct FenceReportBody {
    /// The resource whose tokens the fence checks.
    pub resource: String,
    /// Slot of the resource.
    pub slot: u32,
    /// Name of the target.
    pub target: String,
    /// `forced` or `cooperative`.
    pub mode: String,
    /// Tokens checked since the last report, including refused ones.
    pub checks: u64,
    /// Tokens refused since the last report, for any reason.
    pub refusals: u64,
    /// Time since the last check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checked_ago: Option<HumanDuration>,
    /// The highest token number that the fence admitted or stores as its mark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub highest: Option<String>,
    /// A holder that kept writing after its lease had ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zombie: Option<RefusedZombieBody>,
}

/// Refused writes of one zombie.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct RefusedZombieBody {
    /// The token number that the zombie presented.
    pub presented: String,
    /// The mark of the fence at that time.
    pub mark: String,
    /// Refused writes since the last report; 1 by default.
    #[serde(default = "once")]
    pub times: u64,
    /// Name of the zombie, if the fence knows it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub holder: String,
}

const fn once() -> u64 {
    1
}

impl FenceReportsBody {
    /// Converts the body into the request.
    pub fn into_operation(self) -> Result<Operation, Refusal> {
        let reports = self.reports.into_iter().map(FenceReportBody::into_report).collect::<Result<_, _>>()?;
        Ok(Operation::ReportFences(v1::FenceReports { cluster: self.cluster, reports }))
    }
}

impl FenceReportBody {
    fn into_report(self) -> Result<v1::FenceReport, Refusal> {
        let mode = FenceMode::from_word(&self.mode)
            .ok_or(Refusal::Invalid { field: "mode", reason: "one of forced and cooperative" })?;
        let zombie = |zombie: RefusedZombieBody| {
            Ok::<_, Refusal>(v1::RefusedZombie {
                presented: decimal("presented", &zombie.presented)?,
                mark: decimal("mark", &zombie.mark)?,
                times: zombie.times,
                holder: zombie.holder,
            })
        };
        Ok(v1::FenceReport {
            resource: self.resource,
            slot: self.slot,
            target: self.target,
            mode: v1::FenceMode::from(mode).into(),
            checks: self.checks,
            refusals: self.refusals,
            checked_ago_ms: self.checked_ago.map_or(0, HumanDuration::millis),
            highest: self.highest.as_deref().map(|text| decimal("highest", text)).transpose()?,
            zombie: self.zombie.map(zombie).transpose()?,
        })
    }
}

/// The targets of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CoverageBody {
    /// Name of the resource.
    pub resource: String,
    /// Declared targets first. A target without a name means that the resource has no target.
    pub targets: Vec<TargetCoverageBody>,
}

/// One target of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TargetCoverageBody {
    /// Name of the target.
    pub name: String,
    /// Address from the charter.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub at: String,
    /// Whether a charter declares the target.
    pub declared: bool,
    /// Fence mode that the charter declares; null if it declares none.
    pub mode: Option<String>,
    /// What the fences reported, by slot.
    pub slots: Vec<TargetSlotBody>,
    /// What is missing: `no_target`, `never_reported`, `undeclared`, `weaker`, `no_mode` or `unfenced`; none if nothing is.
    pub hole: Option<String>,
}

/// The reports for one slot of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TargetSlotBody {
    /// Slot number.
    pub slot: u32,
    /// `forced` or `cooperative`.
    pub mode: String,
    /// Time of the first report in this mode, in Unix milliseconds.
    pub since_ms: u64,
    /// Tokens checked since the server started.
    pub checks: u64,
    /// Tokens refused since the server started, for any reason.
    pub refusals: u64,
    /// Time of the last check in Unix milliseconds; null if there was none since the server started.
    pub checked_ms: Option<u64>,
    /// Refused writes of zombies, over all time.
    pub zombies: u64,
    /// The most recent zombie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_zombie: Option<LastZombieBody>,
}

/// The zombie that a fence refused most recently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LastZombieBody {
    /// Time of the report, in Unix milliseconds.
    pub at_ms: u64,
    /// The token number that the zombie presented.
    pub presented: String,
    /// The mark of the fence at that time.
    pub mark: String,
    /// Name of the zombie; null if unknown.
    pub holder: Option<String>,
}

fn non_empty(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

impl From<v1::Coverage> for CoverageBody {
    fn from(from: v1::Coverage) -> Self {
        Self { resource: from.resource, targets: from.targets.into_iter().map(Into::into).collect() }
    }
}

impl From<v1::TargetView> for TargetCoverageBody {
    fn from(from: v1::TargetView) -> Self {
        Self {
            name: from.name,
            at: from.at,
            declared: from.declared,
            mode: non_empty(from.mode),
            slots: from.slots.into_iter().map(Into::into).collect(),
            hole: non_empty(from.hole),
        }
    }
}

impl From<v1::TargetSlotView> for TargetSlotBody {
    fn from(from: v1::TargetSlotView) -> Self {
        let last = from.last_zombie.map(|last| LastZombieBody {
            at_ms: last.at_ms,
            presented: last.presented.to_string(),
            mark: last.mark.to_string(),
            holder: non_empty(last.holder),
        });
        Self {
            slot: from.slot,
            mode: enum_word::<v1::FenceMode, _>(from.mode, FenceMode::word),
            since_ms: from.since_ms,
            checks: from.checks,
            refusals: from.refusals,
            checked_ms: from.checked_ms,
            zombies: from.zombies,
            last_zombie: last,
        }
    }
}
