//! A mark as an item of its table, and back.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use leasehold_core::token::{Cluster, Number};

use crate::place::Place;
use crate::state::State;
use crate::{Error, Kept, Lost, Refusal};

/// What a table keeps of one thing.
pub(super) type Item = HashMap<String, AttributeValue>;

/// The item's key.
pub(super) const KEY: &str = "place";

/// The key of a place: whose, which resource, which slot.
pub(super) fn key(place: &Place) -> String {
    format!("{}/{}/{}", place.guarded.cluster, place.resource(), place.guarded.slot)
}

/// The whole item.
pub(super) fn write(place: &Place, table: &str, state: &State, nonce: &str) -> Item {
    let mut item = Item::from([
        (KEY.to_owned(), text(key(place))),
        ("cluster".to_owned(), text(place.guarded.cluster)),
        ("resource".to_owned(), text(place.resource())),
        ("slot".to_owned(), number(place.guarded.slot)),
        ("name".to_owned(), text(&place.name)),
        ("table".to_owned(), text(table)),
        ("lost".to_owned(), AttributeValue::Bool(state.lost.is_some())),
        ("strict".to_owned(), AttributeValue::Bool(state.strict)),
        ("nonce".to_owned(), text(nonce)),
    ]);
    if let Some(seen) = state.seen {
        item.insert("seen".to_owned(), number(seen));
    }
    if let Some(incarnation) = state.incarnation {
        item.insert("incarnation".to_owned(), text(incarnation));
    }
    if let (Some(last), Some(seen)) = (state.last, state.seen) {
        item.insert("last".to_owned(), number(last));
        item.insert("last_of".to_owned(), number(seen));
    }
    item
}

/// The state in an item. In a table that is not the one in which it was armed the mark is lost (F7).
pub(super) fn read(item: &Item, table: &str) -> Result<State, Error> {
    state(item, table).ok_or_else(|| Refusal::Lost(Lost::Unreadable).into())
}

fn state(item: &Item, table: &str) -> Option<State> {
    let flag = |name: &str| item.get(name)?.as_bool().ok().copied();
    let seen = some(item.get("seen"), |value| Number::new(figure(value)?))?;
    let lost = if flag("lost")? {
        Some(Lost::Declared)
    } else {
        (item.get("table")?.as_s().ok()? != table).then_some(Lost::Moved)
    };
    let of = some(item.get("last_of"), figure)?;
    let last = some(item.get("last"), figure)?.filter(|_| of == seen.map(Number::get));
    let incarnation = some(item.get("incarnation"), |value| value.as_s().ok()?.parse().ok())?;
    Some(State { seen, lost, incarnation, strict: flag("strict")?, last })
}

/// The nonce of whoever wrote last.
pub(super) fn nonce(item: &Item) -> Option<&str> {
    item.get("nonce")?.as_s().ok().map(String::as_str)
}

/// The same for a survey.
pub(super) fn kept(item: &Item, table: &str) -> Result<Kept, Error> {
    let State { incarnation, strict, .. } = read(item, table)?;
    let mark = read(item, table)?.standing().mark;
    let word = |name: &str| item.get(name)?.as_s().ok().cloned();
    let whole = || {
        let cluster: Cluster = word("cluster")?.parse().ok()?;
        let slot = u32::try_from(figure(item.get("slot")?)?).ok()?;
        Some(Kept { cluster, resource: word("resource")?, name: word("name"), slot, mark, incarnation, strict })
    };
    whole().ok_or_else(|| Refusal::Lost(Lost::Unreadable).into())
}

pub(super) fn text(value: impl ToString) -> AttributeValue {
    AttributeValue::S(value.to_string())
}

/// DynamoDB's numbers are decimal with 38 digits: they hold every token's number exactly.
pub(super) fn number(value: impl ToString) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

fn figure(value: &AttributeValue) -> Option<u64> {
    value.as_n().ok()?.parse().ok()
}

/// A value that may be absent; `None` if it is there and makes no sense.
fn some<T>(value: Option<&AttributeValue>, read: impl FnOnce(&AttributeValue) -> Option<T>) -> Option<Option<T>> {
    value.map_or(Some(None), |value| read(value).map(Some))
}
