//! Requests to DynamoDB: the rule is a condition, in one request with the writes it admits.

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{BuildError, ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ReturnValue, ScalarAttributeType,
    TableStatus, TransactWriteItem, Update,
};
use leasehold_core::token::Incarnation;

use super::RETRY_INTERVAL;
use super::item::{self, Item, KEY, number, text};
use crate::admission::PresentedToken;
use crate::mark_state::MarkState;
use crate::{Error, FenceId};

/// The rule: armed in this table, not lost, at or above the mark, and of an incarnation that the fence follows. Names that
/// DynamoDB reserves have a `#`.
const RULE: &str = "#table = :table AND lost = :no AND (attribute_not_exists(seen) OR seen <= :seen) \
     AND (#strict = :no OR attribute_not_exists(incarnation) OR incarnation = :incarnation)";
/// The addition for a token that was not verified: the fence is not sealed.
const UNSEALED_RULE: &str = " AND attribute_not_exists(sealed)";
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

/// The result of a claim or a write.
#[derive(Debug)]
pub(super) enum WriteOutcome {
    /// Everything was applied.
    Applied {
        /// The incarnation that the fence followed before, if it is another one and the reply contains it.
        previous_incarnation: Option<Incarnation>,
    },
    /// The condition failed; nothing was applied.
    Refused,
    /// Conflict with a concurrent transaction; nothing was applied.
    Conflict,
    /// The outcome is unknown.
    Unknown(Error),
}

/// Creates the table of marks if it does not exist, and waits until it is active.
pub async fn install(client: &Client, table: &str) -> Result<(), Error> {
    let key = KeySchemaElement::builder().attribute_name(KEY).key_type(KeyType::Hash).build().map_err(build_error)?;
    let attribute = AttributeDefinition::builder().attribute_name(KEY).attribute_type(ScalarAttributeType::S);
    let attribute = attribute.build().map_err(build_error)?;
    let create = client.create_table().table_name(table).key_schema(key).attribute_definitions(attribute);
    match create.billing_mode(BillingMode::PayPerRequest).send().await {
        Err(error) if !error.as_service_error().is_some_and(|e| e.is_resource_in_use_exception()) => {
            return Err(storage_error(error));
        }
        _ => {}
    }
    loop {
        let reply = client.describe_table().table_name(table).send().await.map_err(storage_error)?;
        if reply.table().and_then(|table| table.table_status()) == Some(&TableStatus::Active) {
            return Ok(());
        }
        tokio::time::sleep(RETRY_INTERVAL * 10).await;
    }
}

impl MarkTable {
    pub(super) async fn open(client: Client, table: &str) -> Result<Self, Error> {
        let table_id = read_table_id(&client, table).await?;
        Ok(Self { client, table: table.to_owned(), table_id })
    }

    /// Whether the table of this name is still the one that was opened. A restored table is another one, with the old marks.
    pub(super) async fn is_current(&self) -> Result<bool, Error> {
        Ok(read_table_id(&self.client, &self.table).await? == self.table_id)
    }

    /// The id of the table. A table restored from a backup has another id.
    pub(super) fn table_id(&self) -> &str {
        &self.table_id
    }

    pub(super) async fn read(&self, id: &FenceId) -> Result<Option<Item>, Error> {
        let get = self.client.get_item().table_name(&self.table).key(KEY, text(item::key(id)));
        Ok(get.consistent_read(true).send().await.map_err(storage_error)?.item)
    }

    pub(super) async fn scan(&self) -> Result<Vec<Item>, Error> {
        let mut pages =
            self.client.scan().table_name(&self.table).consistent_read(true).into_paginator().items().send();
        let mut all = Vec::new();
        while let Some(item) = pages.next().await {
            all.push(item.map_err(storage_error)?);
        }
        Ok(all)
    }

    /// Creates the mark; false if it exists.
    pub(super) async fn create(&self, id: &FenceId, state: &MarkState, nonce: &str) -> Result<bool, Error> {
        let put = self.client.put_item().table_name(&self.table);
        let put = put.set_item(Some(item::encode(id, &self.table_id, state, nonce)));
        let put = put.condition_expression("attribute_not_exists(place)").send().await;
        condition_held(put.map(|_| ()), |error| error.is_conditional_check_failed_exception())
    }

    /// Replaces the state with nonce `before`; false if the nonce is another one.
    pub(super) async fn replace(
        &self,
        id: &FenceId,
        state: &MarkState,
        before: &str,
        nonce: &str,
    ) -> Result<bool, Error> {
        let put = self.client.put_item().table_name(&self.table);
        let put = put.set_item(Some(item::encode(id, &self.table_id, state, nonce)));
        let put = put.condition_expression("nonce = :before").expression_attribute_values(":before", text(before));
        condition_held(put.send().await.map(|_| ()), |error| error.is_conditional_check_failed_exception())
    }

    /// Raises the mark, without other writes.
    pub(super) async fn claim(
        &self,
        id: &FenceId,
        presented: PresentedToken,
        nonce: &str,
    ) -> Result<WriteOutcome, Error> {
        let request = self.client.update_item().table_name(&self.table).key(KEY, text(item::key(id)));
        let request =
            request.update_expression(RAISE).condition_expression(rule(presented)).return_values(ReturnValue::AllOld);
        let request = request.set_expression_attribute_names(Some(names(None)));
        let request = request.set_expression_attribute_values(Some(self.values(presented, nonce, None)));
        match request.send().await {
            Ok(reply) => {
                let before = reply.attributes.as_ref().and_then(|item| item::decode(item, &self.table_id).ok());
                let before = before.and_then(|state| state.incarnation);
                Ok(WriteOutcome::Applied {
                    previous_incarnation: before.filter(|before| *before != presented.incarnation),
                })
            }
            Err(error) => match error.as_service_error() {
                Some(kind) if kind.is_conditional_check_failed_exception() => Ok(WriteOutcome::Refused),
                Some(kind) if kind.is_transaction_conflict_exception() => Ok(WriteOutcome::Conflict),
                _ if is_rejected(&error) => Err(storage_error(error)),
                _ => Ok(WriteOutcome::Unknown(storage_error(error))),
            },
        }
    }

    /// Raises the mark and applies the items, in one transaction.
    pub(super) async fn write(
        &self,
        id: &FenceId,
        presented: PresentedToken,
        sequence: Option<u64>,
        nonce: &str,
        items: &[TransactWriteItem],
    ) -> Result<WriteOutcome, Error> {
        let (rule, raise) = match sequence {
            Some(_) => (rule(presented) + SEQUENCE_RULE, format!("{RAISE}{RAISE_SEQUENCE}")),
            None => (rule(presented), RAISE.to_owned()),
        };
        let mark = Update::builder().table_name(&self.table).key(KEY, text(item::key(id)));
        let mark = mark.update_expression(raise).condition_expression(rule);
        let mark = mark.set_expression_attribute_names(Some(names(sequence)));
        let mark = mark.set_expression_attribute_values(Some(self.values(presented, nonce, sequence)));
        let mark = TransactWriteItem::builder().update(mark.build().map_err(build_error)?).build();
        // The nonce is also the idempotency token of the request: DynamoDB applies a repeated request once, for ten minutes.
        let request = self.client.transact_write_items().client_request_token(nonce);
        let request = request.set_transact_items(Some([&[mark], items].concat()));
        let error = match request.send().await {
            Ok(_) => return Ok(WriteOutcome::Applied { previous_incarnation: None }),
            Err(error) => error,
        };
        match error.as_service_error() {
            Some(TransactWriteItemsError::TransactionCanceledException(canceled)) => {
                let codes: Vec<&str> =
                    canceled.cancellation_reasons().iter().map(|reason| reason.code().unwrap_or_default()).collect();
                match codes.first() {
                    Some(&"ConditionalCheckFailed") => Ok(WriteOutcome::Refused),
                    _ if codes.contains(&"TransactionConflict") => Ok(WriteOutcome::Conflict),
                    // A condition of the caller failed, or an item cannot be written.
                    _ => Err(storage_error(error)),
                }
            }
            Some(TransactWriteItemsError::TransactionInProgressException(_)) => Ok(WriteOutcome::Conflict),
            _ if is_rejected(&error) => Err(storage_error(error)),
            _ => Ok(WriteOutcome::Unknown(storage_error(error))),
        }
    }

    fn values(&self, presented: PresentedToken, nonce: &str, sequence: Option<u64>) -> HashMap<String, AttributeValue> {
        let mut values = HashMap::from([
            (":table".to_owned(), text(&self.table_id)),
            (":no".to_owned(), AttributeValue::Bool(false)),
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

async fn read_table_id(client: &Client, table: &str) -> Result<String, Error> {
    let reply = client.describe_table().table_name(table).send().await.map_err(storage_error)?;
    let described = reply.table().ok_or_else(|| Error::Storage("the reply does not describe the table".into()))?;
    // Servers that only emulate DynamoDB have no table ids; the creation time distinguishes tables there.
    let created = described.creation_date_time().map(|time| format!("{}.{:09}", time.secs(), time.subsec_nanos()));
    let id = described.table_id().map(str::to_owned).or(created);
    id.ok_or_else(|| Error::Storage("the server returns neither a table id nor a creation time".into()))
}

fn names(sequence: Option<u64>) -> HashMap<String, String> {
    let mut names = vec!["table", "strict"];
    names.extend(sequence.map(|_| "last"));
    names.into_iter().map(|name| (format!("#{name}"), name.to_owned())).collect()
}

/// The rule for this token.
fn rule(presented: PresentedToken) -> String {
    let unverified = presented.check_seal(true).is_err();
    format!("{RULE}{}", if unverified { UNSEALED_RULE } else { "" })
}

/// Whether the condition of a put held.
fn condition_held<E>(put: Result<(), SdkError<E>>, is_condition_failure: impl FnOnce(&E) -> bool) -> Result<bool, Error>
where
    SdkError<E>: std::error::Error + Send + Sync + 'static,
{
    match put {
        Ok(()) => Ok(true),
        Err(error) if error.as_service_error().is_some_and(is_condition_failure) => Ok(false),
        Err(error) => Err(storage_error(error)),
    }
}

/// Whether the request certainly was not applied: it was never sent, or the server rejected it.
fn is_rejected<E: ProvideErrorMetadata, R>(error: &SdkError<E, R>) -> bool {
    match error {
        SdkError::ConstructionFailure(_) => true,
        SdkError::ServiceError(reply) => !matches!(
            reply.err().code(),
            Some("InternalServerError" | "InternalServerErrorException" | "ServiceUnavailable") | None
        ),
        _ => false,
    }
}

fn storage_error<E>(error: SdkError<E>) -> Error
where
    SdkError<E>: std::error::Error + Send + Sync + 'static,
{
    Error::Storage(error.into())
}

fn build_error(error: BuildError) -> Error {
    Error::Storage(error.into())
}
