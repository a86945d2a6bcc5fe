//! What is asked of DynamoDB: the rule as a condition, in one request with what it admits.

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{BuildError, ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ReturnValue, ScalarAttributeType,
    TableStatus, TransactWriteItem, Update,
};
use leasehold_core::token::Incarnation;

use super::BETWEEN;
use super::item::{self, Item, KEY, number, text};
use crate::Error;
use crate::place::{Place, Shown};
use crate::state::State;

/// The rule: armed here, not lost, at or above the mark, and of an incarnation that is followed. Names that DynamoDB
/// reserves have a `#`.
const RULE: &str = "#table = :table AND lost = :no AND (attribute_not_exists(seen) OR seen <= :seen) \
     AND (#strict = :no OR attribute_not_exists(incarnation) OR incarnation = :incarnation)";
const RAISE: &str = "SET seen = :seen, incarnation = :incarnation, nonce = :nonce";
/// The same for a numbered write. A sequence counts only under the token with which it was kept.
const ONCE: &str = " AND (attribute_not_exists(#last) OR last_of < :seen OR #last < :last)";
const RAISE_ONCE: &str = ", #last = :last, last_of = :seen";

/// The table of marks.
#[derive(Clone, Debug)]
pub(super) struct Marks {
    client: Client,
    table: String,
    id: String,
}

/// What came of a step.
#[derive(Debug)]
pub(super) enum Outcome {
    /// All of it was applied.
    Applied {
        /// The incarnation that was followed before, if this is another one and the answer says so.
        left: Option<Incarnation>,
    },
    /// The rule did not hold; nothing was applied.
    Refused,
    /// Another transaction was there at the same time; nothing was applied.
    Conflict,
    /// Nobody told.
    Unknown(Error),
}

/// Makes the table of marks, if it is not there, and waits until it can be used.
pub async fn install(client: &Client, table: &str) -> Result<(), Error> {
    let key = KeySchemaElement::builder().attribute_name(KEY).key_type(KeyType::Hash).build().map_err(built)?;
    let attribute = AttributeDefinition::builder().attribute_name(KEY).attribute_type(ScalarAttributeType::S);
    let attribute = attribute.build().map_err(built)?;
    let create = client.create_table().table_name(table).key_schema(key).attribute_definitions(attribute);
    match create.billing_mode(BillingMode::PayPerRequest).send().await {
        Err(error) if !error.as_service_error().is_some_and(|e| e.is_resource_in_use_exception()) => {
            return Err(failed(error));
        }
        _ => {}
    }
    loop {
        let told = client.describe_table().table_name(table).send().await.map_err(failed)?;
        if told.table().and_then(|table| table.table_status()) == Some(&TableStatus::Active) {
            return Ok(());
        }
        tokio::time::sleep(BETWEEN * 10).await;
    }
}

impl Marks {
    pub(super) async fn open(client: Client, table: &str) -> Result<Self, Error> {
        let told = client.describe_table().table_name(table).send().await.map_err(failed)?;
        let described = told.table().ok_or_else(|| Error::Storage("the server does not describe the table".into()))?;
        // Servers that only speak like DynamoDB have no ids; when it was made tells tables apart there.
        let made = described.creation_date_time().map(|made| format!("{}.{:09}", made.secs(), made.subsec_nanos()));
        let id = described.table_id().map(str::to_owned).or(made);
        let id = id.ok_or_else(|| Error::Storage("the server does not tell which table it is".into()))?;
        Ok(Self { client, table: table.to_owned(), id })
    }

    /// Which table this is: one restored from a backup has another id.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) async fn read(&self, place: &Place) -> Result<Option<Item>, Error> {
        let get = self.client.get_item().table_name(&self.table).key(KEY, text(item::key(place)));
        Ok(get.consistent_read(true).send().await.map_err(failed)?.item)
    }

    pub(super) async fn all(&self) -> Result<Vec<Item>, Error> {
        let mut pages =
            self.client.scan().table_name(&self.table).consistent_read(true).into_paginator().items().send();
        let mut all = Vec::new();
        while let Some(item) = pages.next().await {
            all.push(item.map_err(failed)?);
        }
        Ok(all)
    }

    /// Makes the mark; false if there is one.
    pub(super) async fn create(&self, place: &Place, state: &State, nonce: &str) -> Result<bool, Error> {
        let put = self.client.put_item().table_name(&self.table);
        let put = put.set_item(Some(item::write(place, &self.id, state, nonce)));
        let put = put.condition_expression("attribute_not_exists(place)").send().await;
        held(put.map(|_| ()), |error| error.is_conditional_check_failed_exception())
    }

    /// Puts a state in the place of the one that had this nonce; false if another one is there.
    pub(super) async fn replace(&self, place: &Place, state: &State, before: &str, nonce: &str) -> Result<bool, Error> {
        let put = self.client.put_item().table_name(&self.table);
        let put = put.set_item(Some(item::write(place, &self.id, state, nonce)));
        let put = put.condition_expression("nonce = :before").expression_attribute_values(":before", text(before));
        held(put.send().await.map(|_| ()), |error| error.is_conditional_check_failed_exception())
    }

    /// Raises the mark alone.
    pub(super) async fn claim(&self, place: &Place, shown: Shown, nonce: &str) -> Result<Outcome, Error> {
        let ask = self.client.update_item().table_name(&self.table).key(KEY, text(item::key(place)));
        let ask = ask.update_expression(RAISE).condition_expression(RULE).return_values(ReturnValue::AllOld);
        let ask = ask.set_expression_attribute_names(Some(names(None)));
        let ask = ask.set_expression_attribute_values(Some(self.values(shown, nonce, None)));
        match ask.send().await {
            Ok(told) => {
                let before = told.attributes.as_ref().and_then(|item| item::read(item, &self.id).ok());
                let before = before.and_then(|state| state.incarnation);
                Ok(Outcome::Applied { left: before.filter(|before| *before != shown.incarnation) })
            }
            Err(error) => match error.as_service_error() {
                Some(known) if known.is_conditional_check_failed_exception() => Ok(Outcome::Refused),
                Some(known) if known.is_transaction_conflict_exception() => Ok(Outcome::Conflict),
                _ if refused_before(&error) => Err(failed(error)),
                _ => Ok(Outcome::Unknown(failed(error))),
            },
        }
    }

    /// Raises the mark and applies the items, in one transaction.
    pub(super) async fn write(
        &self,
        place: &Place,
        shown: Shown,
        sequence: Option<u64>,
        nonce: &str,
        items: &[TransactWriteItem],
    ) -> Result<Outcome, Error> {
        let (rule, raise) = match sequence {
            Some(_) => (format!("{RULE}{ONCE}"), format!("{RAISE}{RAISE_ONCE}")),
            None => (RULE.to_owned(), RAISE.to_owned()),
        };
        let mark = Update::builder().table_name(&self.table).key(KEY, text(item::key(place)));
        let mark = mark.update_expression(raise).condition_expression(rule);
        let mark = mark.set_expression_attribute_names(Some(names(sequence)));
        let mark = mark.set_expression_attribute_values(Some(self.values(shown, nonce, sequence)));
        let mark = TransactWriteItem::builder().update(mark.build().map_err(built)?).build();
        // The nonce is the request's token too: asked again within ten minutes, DynamoDB applies it once.
        let ask = self.client.transact_write_items().client_request_token(nonce);
        let ask = ask.set_transact_items(Some([&[mark], items].concat()));
        let error = match ask.send().await {
            Ok(_) => return Ok(Outcome::Applied { left: None }),
            Err(error) => error,
        };
        match error.as_service_error() {
            Some(TransactWriteItemsError::TransactionCanceledException(canceled)) => {
                let codes: Vec<&str> =
                    canceled.cancellation_reasons().iter().map(|reason| reason.code().unwrap_or_default()).collect();
                match codes.first() {
                    Some(&"ConditionalCheckFailed") => Ok(Outcome::Refused),
                    _ if codes.contains(&"TransactionConflict") => Ok(Outcome::Conflict),
                    // A condition of the caller's own, or an item that cannot be written.
                    _ => Err(failed(error)),
                }
            }
            Some(TransactWriteItemsError::TransactionInProgressException(_)) => Ok(Outcome::Conflict),
            _ if refused_before(&error) => Err(failed(error)),
            _ => Ok(Outcome::Unknown(failed(error))),
        }
    }

    fn values(&self, shown: Shown, nonce: &str, sequence: Option<u64>) -> HashMap<String, AttributeValue> {
        let mut values = HashMap::from([
            (":table".to_owned(), text(&self.id)),
            (":no".to_owned(), AttributeValue::Bool(false)),
            (":seen".to_owned(), number(shown.number)),
            (":incarnation".to_owned(), text(shown.incarnation)),
            (":nonce".to_owned(), text(nonce)),
        ]);
        if let Some(sequence) = sequence {
            values.insert(":last".to_owned(), number(sequence));
        }
        values
    }
}

fn names(sequence: Option<u64>) -> HashMap<String, String> {
    let mut names = vec!["table", "strict"];
    names.extend(sequence.map(|_| "last"));
    names.into_iter().map(|name| (format!("#{name}"), name.to_owned())).collect()
}

/// Whether a put under a condition happened.
fn held<E>(put: Result<(), SdkError<E>>, no: impl FnOnce(&E) -> bool) -> Result<bool, Error>
where
    SdkError<E>: std::error::Error + Send + Sync + 'static,
{
    match put {
        Ok(()) => Ok(true),
        Err(error) if error.as_service_error().is_some_and(no) => Ok(false),
        Err(error) => Err(failed(error)),
    }
}

/// Whether the request cannot have been applied: it was never sent, or the server said that it was wrong.
fn refused_before<E: ProvideErrorMetadata, R>(error: &SdkError<E, R>) -> bool {
    match error {
        SdkError::ConstructionFailure(_) => true,
        SdkError::ServiceError(told) => !matches!(
            told.err().code(),
            Some("InternalServerError" | "InternalServerErrorException" | "ServiceUnavailable") | None
        ),
        _ => false,
    }
}

fn failed<E>(error: SdkError<E>) -> Error
where
    SdkError<E>: std::error::Error + Send + Sync + 'static,
{
    Error::Storage(error.into())
}

fn built(error: BuildError) -> Error {
    Error::Storage(error.into())
}
