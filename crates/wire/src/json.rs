//! The same messages for people and for languages without gRPC: JSON bodies, strict on the way in.
//!
//! Durations are texts with a unit, ids and token numbers are texts. A field that is not known, given twice or of
//! another kind is refused by its name.

mod ask;
mod charter;
mod cluster;
mod event;
mod fence;
mod problem;
mod told;
mod trail;
mod view;

pub use ask::{
    AcquireBody, CapacityBody, CheckBody, FreeBody, HandoffBody, OpenBody, ReleaseBody, RenewBody, RevokeBody,
    WaiveBody,
};
pub use charter::{
    AtExpiryBody, CharterBody, CharterEntryBody, HandoffTermsBody, PreemptionBody, RenewalBody, SetCharterBody,
    StartsFromBody, TargetBody,
};
pub use cluster::{ClusterBody, EtcdMemberBody, StepDownBody};
pub use event::EventBody;
pub use fence::{CoveredBody, FencesBody, LastZombieBody, PlaceBody, RefusedBody, ReportBody, ReportsBody};
pub use problem::{PROBLEM_TYPE, ProblemBody};
pub use told::{CurrentBody, DoneBody, GrantBody, SessionBody, SessionStateBody};
pub use trail::{EntryBody, ProofBody, TrailBody};
pub use view::{
    CycleMemberBody, DeadlockBody, EndedBody, LeaseBody, ResourceBody, ResourcesBody, StatusBody, UsageBody,
    UsageRowBody, WaiterBody,
};

use std::fmt::Write;

use serde::de::DeserializeOwned;

use crate::words::said;
use crate::{Code, v1};

/// Reads a body. An empty one counts as `{}`.
pub fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Box<v1::Problem>> {
    let body = if body.is_empty() { b"{}".as_slice() } else { body };
    // A list would be read as fields without names.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(refused("body".into(), "not an object; write {\"field\": value}".into()));
    }
    let mut from = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut from).map_err(|error| {
        let path = error.path().to_string();
        let said = error.inner().to_string();
        let field = if path == "." || path == "?" { quoted(&said).unwrap_or("body").to_owned() } else { path };
        refused(field, said)
    })?;
    from.end().map_err(|error| refused("body".into(), error.to_string()))?;
    Ok(value)
}

/// The field that an error names between backticks.
fn quoted(said: &str) -> Option<&str> {
    said.split('`').nth(1).filter(|name| !name.is_empty())
}

fn refused(field: String, reason: String) -> Box<v1::Problem> {
    let message = format!("{field}: {reason}");
    Box::new(v1::Problem { field, reason, ..v1::Problem::of(Code::InvalidArgument, message) })
}

/// Bytes as people write them.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes all");
        text
    })
}

/// A wire number as the core's word; empty where nothing was said.
fn word<W, C>(raw: i32, of: impl Fn(C) -> &'static str) -> String
where
    W: TryFrom<i32>,
    Option<C>: From<W>,
{
    said::<W, C>(raw, "").ok().flatten().map_or("", of).into()
}

/// The same, absent where nothing was said.
fn maybe_word<W, C>(raw: i32, of: impl Fn(C) -> &'static str) -> Option<String>
where
    W: TryFrom<i32>,
    Option<C>: From<W>,
{
    said::<W, C>(raw, "").ok().flatten().map(|word| of(word).into())
}
