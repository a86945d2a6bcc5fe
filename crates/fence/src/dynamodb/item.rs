//! Encoding of a mark as a DynamoDB item.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use leasehold_core::name::resource_hash;
use leasehold_core::token::{Cluster, Number};

use crate::error::OTHER_FENCE;
use crate::mark_state::MarkState;
use crate::{Error, FenceId, FenceRefusal, Mark, MarkInfo, MarkLoss};

/// An item of a table.
pub(super) type Item = HashMap<String, AttributeValue>;

/// Name of the key attribute.
pub(super) const KEY: &str = "place";
/// Name of the attribute of a sealed mark; others have none.
const SEALED: &str = "sealed";

/// The key of a fence: cluster, resource and slot.
pub(super) fn key(id: &FenceId) -> String {
    format!("{}/{}/{}", id.cluster(), id.resource_hash(), id.slot())
}

/// Cluster, hash of the resource and slot in the key of an item; `None` if the item is no mark.
pub(super) fn parse_key(item: &Item) -> Option<(Cluster, String, u32)> {
    let key = item.get(KEY)?.as_s().ok()?;
    let mut parts = key.split('/');
    let (cluster, hash, slot) = (parts.next()?.parse().ok()?, parts.next()?, parts.next()?.parse().ok()?);
    let is_own = parts.next().is_none() && format!("{cluster}/{hash}/{slot}") == *key && hash.len() == 16;
    is_own.then(|| (cluster, hash.to_owned(), slot))
}

/// Encodes a mark.
pub(super) fn encode(id: &FenceId, table: &str, state: &MarkState, nonce: &str) -> Item {
    let mut item = Item::from([
        (KEY.to_owned(), text(key(id))),
        ("cluster".to_owned(), text(id.cluster())),
        ("resource".to_owned(), text(id.resource_hash())),
        ("slot".to_owned(), number(id.slot())),
        ("name".to_owned(), text(id.resource())),
        ("table".to_owned(), text(table)),
        ("lost".to_owned(), AttributeValue::Bool(state.loss.is_some())),
        ("strict".to_owned(), AttributeValue::Bool(state.strict)),
        ("nonce".to_owned(), text(nonce)),
    ]);
    if state.sealed {
        item.insert(SEALED.to_owned(), AttributeValue::Bool(true));
    }
    if let Some(seen) = state.highest {
        item.insert("seen".to_owned(), number(seen));
    }
    if let Some(incarnation) = state.incarnation {
        item.insert("incarnation".to_owned(), text(incarnation));
    }
    if let (Some(last), Some(seen)) = (state.last_sequence, state.highest) {
        item.insert("last".to_owned(), number(last));
        item.insert("last_of".to_owned(), number(seen));
    }
    item
}

/// Decodes the mark of this fence. If it was armed in another table, it is lost (F7).
pub(super) fn decode(item: &Item, id: &FenceId, table: &str) -> Result<MarkState, Error> {
    let text = |name: &str| item.get(name)?.as_s().ok();
    let slot = item.get("slot").and_then(as_u64);
    if text("cluster").is_some_and(|cluster| *cluster != id.cluster().to_string()) {
        return Err(FenceRefusal::ForeignMark.into());
    }
    if text("name").is_some_and(|name| name != id.resource()) || slot.is_some_and(|slot| slot != u64::from(id.slot())) {
        return Err(Error::Conflict(OTHER_FENCE));
    }
    state(item, table).ok_or_else(|| FenceRefusal::MarkLost(MarkLoss::Unreadable).into())
}

/// What a re-arm keeps of the mark of this fence, also if the mark is missing or unreadable. A damaged seal stays a seal, and a
/// damaged `strict` stays strict.
pub(super) fn recover(item: Option<&Item>, id: &FenceId, table: &str) -> Result<MarkState, Error> {
    let Some(item) = item else { return Ok(MarkState::FRESH) };
    match decode(item, id, table) {
        Err(Error::Refused(FenceRefusal::MarkLost(MarkLoss::Unreadable))) => Ok(MarkState {
            highest: item.get("seen").and_then(as_u64).and_then(Number::new),
            incarnation: item.get("incarnation").and_then(|value| value.as_s().ok()?.parse().ok()),
            strict: item.get("strict") != Some(&AttributeValue::Bool(false)),
            sealed: item.contains_key(SEALED),
            ..MarkState::FRESH
        }),
        state => state,
    }
}

/// The state of a mark that names its fence.
fn state(item: &Item, table: &str) -> Option<MarkState> {
    item.get("cluster")?.as_s().ok()?;
    item.get("name")?.as_s().ok()?;
    item.get("slot").and_then(as_u64)?;
    let flag = |name: &str| item.get(name)?.as_bool().ok().copied();
    let highest = optional(item.get("seen"), |value| Number::new(as_u64(value)?))?;
    let loss = if flag("lost")? {
        Some(MarkLoss::Declared)
    } else {
        (item.get("table")?.as_s().ok()? != table).then_some(MarkLoss::Moved)
    };
    let last = optional(item.get("last"), |value| Some((as_u64(value)?, as_u64(item.get("last_of")?)?)))?;
    let last_sequence = last.filter(|(_, of)| Some(*of) == highest.map(Number::get)).map(|(last, _)| last);
    let incarnation = optional(item.get("incarnation"), |value| value.as_s().ok()?.parse().ok())?;
    let sealed = optional(item.get(SEALED), |value| value.as_bool().ok().copied().filter(|sealed| *sealed))?.is_some();
    Some(MarkState { highest, loss, incarnation, strict: flag("strict")?, sealed, last_sequence })
}

/// The nonce of the last write.
pub(super) fn nonce(item: &Item) -> Option<&AttributeValue> {
    item.get("nonce")
}

/// Decodes a mark for `list_marks`; `None` if the item is no mark. A mark that cannot be read is lost.
pub(super) fn info(item: &Item, table: &str) -> Option<MarkInfo> {
    let (cluster, hash, slot) = parse_key(item)?;
    let name = item.get("name").and_then(|name| name.as_s().ok());
    let name = name.filter(|name| format!("{:016x}", u64::from_be_bytes(resource_hash(name))) == hash).cloned();
    let state = state(item, table);
    Some(MarkInfo {
        cluster,
        resource_hash: hash,
        name,
        slot,
        mark: state.map_or(Mark::Lost, |state| state.stored_mark().mark),
        incarnation: state.and_then(|state| state.incarnation),
        strict: state.is_some_and(|state| state.strict),
        sealed: item.contains_key(SEALED),
    })
}

pub(super) fn text(value: impl ToString) -> AttributeValue {
    AttributeValue::S(value.to_string())
}

/// DynamoDB's numbers have 38 decimal digits, so they represent every token number exactly.
pub(super) fn number(value: impl ToString) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

fn as_u64(value: &AttributeValue) -> Option<u64> {
    value.as_n().ok()?.parse().ok()
}

/// Parses an optional attribute; `None` if it is malformed.
fn optional<T>(value: Option<&AttributeValue>, read: impl FnOnce(&AttributeValue) -> Option<T>) -> Option<Option<T>> {
    value.map_or(Some(None), |value| read(value).map(Some))
}
