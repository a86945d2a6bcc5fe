//! What fences report and what is known about targets, in JSON.

use leasehold_core::coverage::Mode;
use leasehold_core::refusal::Refusal;
use serde::{Deserialize, Serialize};

use super::ask::decimal;
use super::word;
use crate::duration::Lasting;
use crate::v1;
use crate::v1::request::Ask;

/// `POST /v1/fences`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ReportsBody {
    /// The cluster whose tokens the fences check, as tokens print it.
    pub cluster: String,
    /// One entry for each place, and one for each zombie; at most 256.
    pub reports: Vec<ReportBody>,
}

/// One place of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ReportBody {
    /// The resource that guards it.
    pub resource: String,
    /// The resource's slot.
    pub slot: u32,
    /// What people call the target.
    pub target: String,
    /// `forced` or `cooperative`.
    pub mode: String,
    /// Tokens checked since the last report, refused ones among them.
    pub checks: u64,
    /// How many of them were refused, for whatever reason.
    pub refusals: u64,
    /// How long ago the last check was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checked_ago: Option<Lasting>,
    /// The highest number that the fence admitted or keeps as its mark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub highest: Option<String>,
    /// A holder whose authority is over and who wrote all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zombie: Option<RefusedBody>,
}

/// A refused zombie.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RefusedBody {
    /// The number it showed.
    pub presented: String,
    /// The number that stood.
    pub mark: String,
    /// How often since the last report; once unless said.
    #[serde(default = "once")]
    pub times: u64,
    /// Who, if the fence knows.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub holder: String,
}

const fn once() -> u64 {
    1
}

impl ReportsBody {
    /// The message.
    pub fn ask(self) -> Result<Ask, Refusal> {
        let reports = self.reports.into_iter().map(ReportBody::told).collect::<Result<_, _>>()?;
        Ok(Ask::Report(v1::Reports { cluster: self.cluster, reports }))
    }
}

impl ReportBody {
    fn told(self) -> Result<v1::FenceReport, Refusal> {
        let mode = Mode::from_word(&self.mode)
            .ok_or(Refusal::Invalid { field: "mode", reason: "one of forced and cooperative" })?;
        let zombie = |zombie: RefusedBody| {
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
            checked_ago_ms: self.checked_ago.map_or(0, Lasting::millis),
            highest: self.highest.as_deref().map(|text| decimal("highest", text)).transpose()?,
            zombie: self.zombie.map(zombie).transpose()?,
        })
    }
}

/// Every target that a resource covers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FencesBody {
    /// The resource.
    pub resource: String,
    /// Declared ones first; one without a name stands for having none.
    pub targets: Vec<CoveredBody>,
}

/// One target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CoveredBody {
    /// What people call it.
    pub name: String,
    /// Where it is, as the charter says.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub at: String,
    /// Whether a charter declares it.
    pub declared: bool,
    /// How the charter says that it meets a stale token; none while nobody has said.
    pub mode: Option<String>,
    /// What its fences reported, by slot.
    pub places: Vec<PlaceBody>,
    /// What is missing: `no_target`, `never_reported`, `undeclared`, `weaker`, `unsaid` or `unfenced`; none if nothing is.
    pub hole: Option<String>,
}

/// One slot of a target that reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PlaceBody {
    /// The slot.
    pub slot: u32,
    /// `forced` or `cooperative`.
    pub mode: String,
    /// When it first said so, in milliseconds since 1970.
    pub since_ms: u64,
    /// Tokens checked since the server was started.
    pub checks: u64,
    /// Refused since the server was started, for whatever reason.
    pub refusals: u64,
    /// When it last checked one, in milliseconds since 1970; none if it did not since the server was started.
    pub checked_ms: Option<u64>,
    /// Writes of zombies that it refused, ever.
    pub zombies: u64,
    /// The last of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastZombieBody>,
}

/// The last zombie that a place refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LastZombieBody {
    /// When the grantor heard of it, in milliseconds since 1970.
    pub at_ms: u64,
    /// The number that was shown.
    pub presented: String,
    /// The number that stood.
    pub mark: String,
    /// Who; none if nobody remembers.
    pub holder: Option<String>,
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

impl From<v1::Fences> for FencesBody {
    fn from(from: v1::Fences) -> Self {
        Self { resource: from.resource, targets: from.targets.into_iter().map(Into::into).collect() }
    }
}

impl From<v1::TargetView> for CoveredBody {
    fn from(from: v1::TargetView) -> Self {
        Self {
            name: from.name,
            at: from.at,
            declared: from.declared,
            mode: some(from.mode),
            places: from.places.into_iter().map(Into::into).collect(),
            hole: some(from.hole),
        }
    }
}

impl From<v1::PlaceView> for PlaceBody {
    fn from(from: v1::PlaceView) -> Self {
        let last = from.last.map(|last| LastZombieBody {
            at_ms: last.at_ms,
            presented: last.presented.to_string(),
            mark: last.mark.to_string(),
            holder: some(last.holder),
        });
        Self {
            slot: from.slot,
            mode: word::<v1::FenceMode, _>(from.mode, Mode::word),
            since_ms: from.since_ms,
            checks: from.checks,
            refusals: from.refusals,
            checked_ms: from.checked_ms,
            zombies: from.zombies,
            last,
        }
    }
}
