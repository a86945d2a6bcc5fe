//! Requests to DynamoDB: the rule is a condition, in one request with the writes it admits.

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue, TransactWriteItem, Update};
use leasehold_core::token::{Incarnation, Number};

use super::failure::Failure;
use super::item::{self, Item, KEY, number, text};
use super::table;
use crate::admission::PresentedToken;
use crate::mark_state::MarkState;
use crate::{Error, FenceId};

/// The rule: of this fence, armed in this table, not lost, at or above the mark, and of an incarnation that the fence follows.
/// It does not hold for a damaged mark. Names that DynamoDB reserves have a `#`.
const RULE: &str = "#cluster = :cluster AND #name = :name AND slot = :slot AND #table = :table AND lost = :no \
     AND (attribute_not_exists(seen) OR seen BETWEEN :first AND :seen) \
     AND (#strict = :no OR (#strict = :yes AND (attribute_not_exists(incarnation) OR incarnation = :incarnation)))";
/// The addition for a token that was not verified: the fence is not sealed.
const UNSEALED_RULE: &str = " AND attribute_not_exists(sealed)";
/// The addition for a verified token.
const SEALED_RULE: &str = " AND (attribute_not_exists(sealed) OR sealed = :yes)";
const RAISE: &str = "SET seen = :seen, incarnation = :incarnation, nonce = :nonce";
/// The addition for a sequenced write. A sequence is valid only for the token with which it was stored.
const SEQUENCE_RULE: &str = " AND (attribute_not_exists(#last) OR last_of < :seen OR #last < :last)";
const RAISE_SEQUENCE: &str = ", #last = :last, last_of = :seen";

/// The table of marks.
#[derive(Clone, Debug)]
pub(super) struct MarkTable {
    client: Client,
    table: String,
    table_id: String,
}

impl MarkTable {
    pub(super) async fn open(client: &Client, table: &str) -> Result<Self, Failure> {
        let client = table::without_retries(client);
        let table_id = table::read_id(&client, table).await?;
        Ok(Self { client, table: table.to_owned(), table_id })
    }

    /// Whether the table of this name is still the one that was opened. A restored table is another one, with the old marks.
    pub(super) async fn is_current(&self) -> Result<bool, Failure> {
        Ok(table::read_id(&self.client, &self.table).await? == self.table_id)
    }

    /// The id of the table. A table restored from a backup has another id.
    pub(super) fn table_id(&self) -> &str {
        &self.table_id
    }

    pub(super) async fn read(&self, id: &FenceId) -> Result<Option<Item>, Failure> {
        let get = self.client.get_item().table_name(&self.table).key(KEY, text(item::key(id)));
        Ok(get.consistent_read(true).send().await?.item)
    }

    /// One page of all items, and the key after which the next one begins.
    pub(super) async fn scan(&self, after: Option<&Item>) -> Result<(Vec<Item>, Option<Item>), Failure> {
        let scan = self.client.scan().table_name(&self.table).consistent_read(true);
        let page = scan.set_exclusive_start_key(after.cloned()).send().await?;
        Ok((page.items.unwrap_or_default(), page.last_evaluated_key))
    }

    /// Replaces the item that was read, or creates it. The condition fails if it has changed since.
    pub(super) async fn replace(
        &self,
        id: &FenceId,
        before: Option<&Item>,
        state: &MarkState,
        nonce: &str,
    ) -> Result<(), Failure> {
        let put = self.client.put_item().table_name(&self.table);
        let put = put.set_item(Some(item::encode(id, &self.table_id, state, nonce)));
        let put = match before.map(item::nonce) {
            None => put.condition_expression("attribute_not_exists(place)"),
            Some(None) => put.condition_expression("attribute_exists(place) AND attribute_not_exists(nonce)"),
            Some(Some(nonce)) => {
                put.condition_expression("nonce = :before").expression_attribute_values(":before", nonce.clone())
            }
        };
        put.send().await?;
        Ok(())
    }

    /// Raises the mark, without other writes. Returns the incarnation that the fence followed before.
    pub(super) async fn claim(
        &self,
        id: &FenceId,
        presented: PresentedToken,
        nonce: &str,
    ) -> Result<Option<Incarnation>, Failure> {
        let request = self.client.update_item().table_name(&self.table).key(KEY, text(item::key(id)));
        let request =
            request.update_expression(RAISE).condition_expression(rule(presented)).return_values(ReturnValue::AllOld);
        let request = request.set_expression_attribute_names(Some(names(None)));
        let request = request.set_expression_attribute_values(Some(self.values(id, presented, nonce, None)));
        let before = request.send().await?.attributes;
        let before = before.ok_or_else(|| Failure::Unknown(Error::Storage("the reply lacks the mark".into())))?;
        Ok(item::decode(&before, id, &self.table_id).ok().and_then(|state| state.incarnation))
    }

    /// Raises the mark and applies the items, in one transaction.
    pub(super) async fn write(
        &self,
        id: &FenceId,
        presented: PresentedToken,
        sequence: Option<u64>,
        nonce: &str,
        items: &[TransactWriteItem],
    ) -> Result<(), Failure> {
        let build_error = |error: BuildError| Failure::Rejected(Error::Storage(error.into()));
        let (rule, raise) = match sequence {
            Some(_) => (rule(presented) + SEQUENCE_RULE, format!("{RAISE}{RAISE_SEQUENCE}")),
            None => (rule(presented), RAISE.to_owned()),
        };
        let mark = Update::builder().table_name(&self.table).key(KEY, text(item::key(id)));
        let mark = mark.update_expression(raise).condition_expression(rule);
        let mark = mark.set_expression_attribute_names(Some(names(sequence)));
        let mark = mark.set_expression_attribute_values(Some(self.values(id, presented, nonce, sequence)));
        let mark = TransactWriteItem::builder().update(mark.build().map_err(build_error)?).build();
        // The nonce is also the idempotency token of the request: DynamoDB applies a repeated request once, for ten minutes.
        let request = self.client.transact_write_items().client_request_token(nonce);
        let error = match request.set_transact_items(Some([&[mark], items].concat())).send().await {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        let Some(TransactWriteItemsError::TransactionCanceledException(canceled)) = error.as_service_error() else {
            return Err(error.into());
        };
        let reasons = canceled.cancellation_reasons();
        let codes: Vec<&str> = reasons.iter().map(|reason| reason.code().unwrap_or_default()).collect();
        let throttling = ["ThrottlingError", "ProvisionedThroughputExceeded"];
        Err(match codes.first() {
            Some(&"ConditionalCheckFailed") => Failure::Condition,
            _ if codes.contains(&"TransactionConflict") => Failure::Conflict,
            _ if codes.iter().any(|code| throttling.contains(code)) => Failure::Throttled(codes.join(", ")),
            // A condition of the caller failed, or an item cannot be written.
            _ => Failure::Rejected(Error::Storage(error.into())),
        })
    }

    /// Whether a write would change the mark of a fence.
    pub(super) fn is_mark(&self, item: &TransactWriteItem) -> bool {
        let (table, key) = match item {
            TransactWriteItem { put: Some(put), .. } => (put.table_name(), put.item()),
            TransactWriteItem { update: Some(update), .. } => (update.table_name(), update.key()),
            TransactWriteItem { delete: Some(delete), .. } => (delete.table_name(), delete.key()),
            _ => return false,
        };
        // A table can also be named by its ARN.
        let is_table = table == self.table || table.ends_with(&format!(":table/{}", self.table));
        is_table && item::parse_key(key).is_some()
    }

    fn values(
        &self,
        id: &FenceId,
        presented: PresentedToken,
        nonce: &str,
        sequence: Option<u64>,
    ) -> HashMap<String, AttributeValue> {
        let mut values = HashMap::from([
            (":cluster".to_owned(), text(id.cluster())),
            (":name".to_owned(), text(id.resource())),
            (":slot".to_owned(), number(id.slot())),
            (":table".to_owned(), text(&self.table_id)),
            (":no".to_owned(), AttributeValue::Bool(false)),
            (":yes".to_owned(), AttributeValue::Bool(true)),
            (":first".to_owned(), number(Number::FIRST)),
            (":seen".to_owned(), number(presented.number)),
            (":incarnation".to_owned(), text(presented.incarnation)),
            (":nonce".to_owned(), text(nonce)),
        ]);
        if let Some(sequence) = sequence {
            values.insert(":last".to_owned(), number(sequence));
        }
        values
    }
}

fn names(sequence: Option<u64>) -> HashMap<String, String> {
    let mut names = vec!["cluster", "name", "table", "strict"];
    names.extend(sequence.map(|_| "last"));
    names.into_iter().map(|name| (format!("#{name}"), name.to_owned())).collect()
}

/// The rule for this token.
fn rule(presented: PresentedToken) -> String {
    let unverified = presented.check_seal(true).is_err();
    format!("{RULE}{}", if unverified { UNSEALED_RULE } else { SEALED_RULE })
}
