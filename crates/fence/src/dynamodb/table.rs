//! The table of marks: its id, its key, and its creation.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType, TableDescription, TableStatus,
};

use super::attempts::Attempts;
use super::failure::Failure;
use super::item::KEY;
use crate::Error;

/// How long a new table may take to become active.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(180);

/// Creates the table of marks if it does not exist, and waits until it is active.
pub async fn install(client: &Client, table: &str) -> Result<(), Error> {
    let client = without_retries(client);
    let (mut attempts, mut is_requested) = (Attempts::new(INSTALL_TIMEOUT), false);
    loop {
        // The description of a table is eventually consistent: a new table may be missing for some seconds.
        let found = match attempts.send(describe(&client, table)).await {
            Ok(found) => Some(found),
            Err(Failure::Rejected(error)) if error.code() == "NOT_FOUND" => None,
            Err(failure) => {
                attempts.note(failure)?;
                attempts.pause().await?;
                continue;
            }
        };
        match found.as_ref().map(|table| table.table_status()) {
            None if is_requested => {}
            None => match attempts.send(create(&client, table)).await {
                Ok(()) => is_requested = true,
                Err(failure) => attempts.note(failure)?,
            },
            Some(Some(TableStatus::Creating)) => {}
            Some(Some(TableStatus::Active | TableStatus::Updating)) => {
                return found.map_or(Ok(()), |found| check(&found));
            }
            Some(status) => {
                let status = status.map_or("unknown", TableStatus::as_str);
                let message =
                    format!("the table {table} has status {status}; wait until it is ACTIVE, or use another name");
                return Err(Error::Rejected { code: "CONFLICT", message });
            }
        }
        attempts.pause().await?;
    }
}

/// The same client without automatic retries: a reply to a retry does not show what the first request did.
pub(super) fn without_retries(client: &Client) -> Client {
    Client::from_conf(client.config().to_builder().retry_config(RetryConfig::disabled()).build())
}

/// The id of the table, if it can store marks. A table that was restored or created again has another id.
pub(super) async fn read_id(client: &Client, table: &str) -> Result<String, Failure> {
    let described = describe(client, table).await?;
    check(&described).map_err(Failure::Rejected)?;
    // Servers that only emulate DynamoDB have no table ids; the creation time distinguishes tables there.
    let created = described.creation_date_time().map(|time| format!("{}.{:09}", time.secs(), time.subsec_nanos()));
    described.table_id().map(str::to_owned).or(created).ok_or_else(|| {
        Failure::Rejected(Error::Storage("the server returns neither a table id nor a creation time".into()))
    })
}

async fn describe(client: &Client, table: &str) -> Result<TableDescription, Failure> {
    let reply = client.describe_table().table_name(table).send().await?;
    reply.table.ok_or_else(|| Failure::Unknown(Error::Storage("the reply does not describe the table".into())))
}

async fn create(client: &Client, table: &str) -> Result<(), Failure> {
    let build_error = |error: aws_sdk_dynamodb::error::BuildError| Failure::Rejected(Error::Storage(error.into()));
    let key = KeySchemaElement::builder().attribute_name(KEY).key_type(KeyType::Hash).build().map_err(build_error)?;
    let attribute = AttributeDefinition::builder().attribute_name(KEY).attribute_type(ScalarAttributeType::S);
    let attribute = attribute.build().map_err(build_error)?;
    let create = client.create_table().table_name(table).key_schema(key).attribute_definitions(attribute);
    match create.billing_mode(BillingMode::PayPerRequest).send().await {
        // Another process was faster.
        Err(error) if error.as_service_error().is_some_and(|kind| kind.is_resource_in_use_exception()) => Ok(()),
        created => created.map(|_| ()).map_err(Failure::from),
    }
}

/// Whether the key of a table is that of marks.
fn check(table: &TableDescription) -> Result<(), Error> {
    let has_key = |keys: &[KeySchemaElement]| matches!(keys, [key] if key.attribute_name() == KEY && *key.key_type() == KeyType::Hash);
    let is_text = |attribute: &AttributeDefinition| {
        attribute.attribute_name() != KEY || *attribute.attribute_type() == ScalarAttributeType::S
    };
    if has_key(table.key_schema()) && table.attribute_definitions().iter().all(is_text) {
        return Ok(());
    }
    Err(Error::Conflict(
        "the table is not one of marks, whose only key is the text `place`; use the table that `install` created",
    ))
}
