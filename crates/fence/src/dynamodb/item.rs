//! Encoding of a mark as a DynamoDB item.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use leasehold_core::token::{Cluster, Number};

use crate::mark_state::MarkState;
use crate::{Error, FenceId, FenceRefusal, MarkInfo, MarkLoss};

/// An item of a table.
pub(super) type Item = HashMap<String, AttributeValue>;

/// Name of the key attribute.
pub(super) const KEY: &str = "place";
/// Name of the attribute of a sealed mark; others have none.
pub(super) const SEALED: &str = "sealed";

/// The key of a fence: cluster, resource and slot.
pub(super) fn key(id: &FenceId) -> String {
    format!("{}/{}/{}", id.cluster(), id.resource_hash(), id.slot())
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

/// Decodes a mark. If it was armed in another table, it is lost (F7).
pub(super) fn decode(item: &Item, table: &str) -> Result<MarkState, Error> {
    state(item, table).ok_or_else(|| FenceRefusal::MarkLost(MarkLoss::Unreadable).into())
}

fn state(item: &Item, table: &str) -> Option<MarkState> {
    let flag = |name: &str| item.get(name)?.as_bool().ok().copied();
    let highest = optional(item.get("seen"), |value| Number::new(as_u64(value)?))?;
    let loss = if flag("lost")? {
        Some(MarkLoss::Declared)
    } else {
        (item.get("table")?.as_s().ok()? != table).then_some(MarkLoss::Moved)
    };
    let last_number = optional(item.get("last_of"), as_u64)?;
    let last = optional(item.get("last"), as_u64)?.filter(|_| last_number == highest.map(Number::get));
    let incarnation = optional(item.get("incarnation"), |value| value.as_s().ok()?.parse().ok())?;
    let sealed = optional(item.get(SEALED), |value| value.as_bool().ok().copied())? == Some(true);
    Some(MarkState { highest, loss, incarnation, strict: flag("strict")?, sealed, last_sequence: last })
}

/// The nonce of the last write.
pub(super) fn nonce(item: &Item) -> Option<&str> {
    item.get("nonce")?.as_s().ok().map(String::as_str)
}

/// Decodes a mark for `list_marks`.
pub(super) fn info(item: &Item, table: &str) -> Result<MarkInfo, Error> {
    let MarkState { incarnation, strict, sealed, .. } = decode(item, table)?;
    let mark = decode(item, table)?.stored_mark().mark;
    let text = |name: &str| item.get(name)?.as_s().ok().cloned();
    let info = || {
        let cluster: Cluster = text("cluster")?.parse().ok()?;
        let slot = u32::try_from(as_u64(item.get("slot")?)?).ok()?;
        Some(MarkInfo {
            cluster,
            resource_hash: text("resource")?,
            name: text("name"),
            slot,
            mark,
            incarnation,
            strict,
            sealed,
        })
    };
    info().ok_or_else(|| FenceRefusal::MarkLost(MarkLoss::Unreadable).into())
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
