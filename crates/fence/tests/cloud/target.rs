//! The fenced targets S3 and DynamoDB, each with a log of applied writes.

use std::sync::Arc;

use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region, retry::RetryConfig};
use aws_sdk_dynamodb::types::{AttributeValue, TransactWriteItem, Update};
use aws_sdk_dynamodb::{Client, Config};
use leasehold_core::token::Number;
use leasehold_fence::conformance::fence_id;
use leasehold_fence::{ApplyOnce, Error, dynamodb, objects};
use object_store::aws::{AmazonS3, AmazonS3Builder};

use crate::plain_http::PlainHttpConnector;

/// Name of the log of applied writes.
pub const LOG: &str = "log";

/// The kinds of targets.
pub const KINDS: [&str; 2] = ["s3", "dynamodb"];

/// The address of a target: server, and bucket or table.
#[derive(Clone)]
pub struct TargetAddress {
    pub kind: &'static str,
    pub url: String,
    pub name: String,
}

/// The connection of a holder.
#[derive(Clone)]
pub enum Target {
    Objects(objects::Fence),
    Dynamo(dynamodb::Fence, String),
}

impl TargetAddress {
    pub fn store(&self) -> AmazonS3 {
        let retry = object_store::RetryConfig { max_retries: 0, ..Default::default() };
        let builder = AmazonS3Builder::new().with_endpoint(&self.url).with_allow_http(true).with_retry(retry);
        let builder = builder.with_http_connector(PlainHttpConnector);
        let builder = builder.with_region("us-east-1").with_access_key_id("key").with_secret_access_key("secret");
        builder.with_bucket_name(&self.name).build().expect("a store")
    }

    pub fn client(&self) -> Client {
        let http = aws_smithy_http_client::Builder::new().build_http();
        let config = Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .endpoint_url(&self.url)
            .http_client(http)
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::new("key", "secret", None, None, "tests"))
            .retry_config(RetryConfig::disabled());
        Client::from_conf(config.build())
    }

    /// The table of the fenced data.
    pub fn data(&self) -> String {
        format!("{}-data", self.name)
    }

    pub async fn open(&self) -> Target {
        if self.kind == "s3" {
            let fence = objects::Fence::new(Arc::new(self.store()), "guarded", &fence_id());
            return Target::Objects(fence.expect("a prefix"));
        }
        let fence = dynamodb::Fence::open(self.client(), &self.name, &fence_id()).await;
        Target::Dynamo(fence.expect("the table is there"), self.data())
    }
}

impl Target {
    pub async fn claim(&self, token: &str) -> Result<Number, Error> {
        match self {
            Self::Objects(fence) => fence.claim(token).await,
            Self::Dynamo(fence, _) => fence.claim(token).await,
        }
    }

    pub async fn write(&self, token: &str, value: &str) -> Result<(), Error> {
        let line = line(token, value);
        match self {
            Self::Objects(fence) => fence.update(token, LOG, |old| append_line(old, &line)).await.map(|_| ()),
            Self::Dynamo(fence, data) => fence.write(token, [append_update(data, &line)]).await.map(|_| ()),
        }
    }

    pub async fn write_once(&self, token: &str, sequence: u64, value: &str) -> Result<ApplyOnce, Error> {
        let line = line(token, value);
        match self {
            // There is one holder, so the content does not change between the requests.
            Self::Objects(fence) => {
                let old = fence.get(LOG).await?;
                let content = append_line(old.as_deref(), &line);
                fence.write_once(token, sequence, &[objects::ObjectChange::Put(LOG, &content)]).await
            }
            Self::Dynamo(fence, data) => fence.write_once(token, sequence, [append_update(data, &line)]).await,
        }
    }
}

/// A line of the log: token number and value.
pub fn line(token: &str, value: &str) -> String {
    let number = token.get(57..76).unwrap_or_default();
    format!("{number} {value}")
}

pub fn append_line(old: Option<&[u8]>, line: &str) -> Vec<u8> {
    [old.unwrap_or_default(), line.as_bytes(), b"\n"].concat()
}

/// The update that appends a line to the log item.
pub fn append_update(table: &str, line: &str) -> TransactWriteItem {
    let update = Update::builder()
        .table_name(table)
        .key("id", AttributeValue::S(LOG.to_owned()))
        .update_expression("SET written = list_append(if_not_exists(written, :none), :line)")
        .expression_attribute_values(":none", AttributeValue::L(Vec::new()))
        .expression_attribute_values(":line", AttributeValue::L(vec![AttributeValue::S(line.to_owned())]));
    TransactWriteItem::builder().update(update.build().expect("whole")).build()
}
