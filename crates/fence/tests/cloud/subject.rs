//! S3 and DynamoDB as subjects of the conformance suite. Applied writes are read without the fence.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ReturnValue, ScalarAttributeType,
};
use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::conformance::{AppliedEntry, FenceWriter, Subject, number};
use leasehold_fence::{ApplyOnce, Error, MarkInfo, SealVerifier, dynamodb, objects};
use object_store::ObjectStoreExt;
use object_store::path::Path;
use tokio::sync::Mutex as Turn;

use crate::moto::server;
use crate::target::{LOG, Target, TargetAddress, append_line, append_update, line};

/// Number of lines in DynamoDB's log item before they are moved out: moto copies its table for each transaction.
const LINES: u64 = 64;

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// A target that `fresh` empties.
pub struct CloudSubject {
    kind: &'static str,
    /// Whether writers use the fence.
    fenced: bool,
    current: Mutex<TargetAddress>,
    moved: Arc<MovedLines>,
}

/// Lines that were moved out of the log, in order.
#[derive(Default)]
struct MovedLines {
    lines: Turn<Vec<String>>,
    writes: AtomicU64,
}

impl CloudSubject {
    pub fn new(kind: &'static str) -> Self {
        let current = Mutex::new(TargetAddress { kind, url: server().url(), name: String::new() });
        Self { kind, fenced: true, current, moved: Arc::default() }
    }

    pub fn unfenced(kind: &'static str) -> Self {
        Self { fenced: false, ..Self::new(kind) }
    }

    pub fn address(&self) -> TargetAddress {
        self.current.lock().expect("not poisoned").clone()
    }

    pub async fn open(&self) -> Target {
        self.address().open().await
    }

    /// Creates an empty bucket, or empty tables.
    async fn empty(&self) {
        let name = format!("subject-{}", NEXT_ID.fetch_add(1, Ordering::Relaxed));
        *self.current.lock().expect("not poisoned") = TargetAddress { kind: self.kind, url: server().url(), name };
        self.moved.lines.lock().await.clear();
        let address = self.address();
        if self.kind == "s3" {
            return server().create_bucket(&address.name);
        }
        dynamodb::install(&address.client(), &address.name).await.expect("a table of marks");
        let key = KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash).build().expect("whole");
        let id = AttributeDefinition::builder().attribute_name("id").attribute_type(ScalarAttributeType::S);
        let table = address.client().create_table().table_name(address.data()).key_schema(key);
        let table = table.attribute_definitions(id.build().expect("whole")).billing_mode(BillingMode::PayPerRequest);
        table.send().await.expect("a table of data");
    }

    /// Token numbers and values of all applied writes.
    pub async fn log(&self) -> Vec<(u64, String)> {
        let address = self.address();
        let lines = if self.kind == "s3" {
            let at = if self.fenced { self.log_path().await } else { Some(Path::from(LOG)) };
            let Some(at) = at else { return Vec::new() };
            let object = match address.store().get(&at).await {
                Err(object_store::Error::NotFound { .. }) => return Vec::new(),
                object => object.expect("the log").bytes().await.expect("its bytes"),
            };
            String::from_utf8(object.to_vec()).expect("text").lines().map(str::to_owned).collect()
        } else {
            self.moved.move_out(&address).await;
            self.moved.lines.lock().await.clone()
        };
        let pairs = lines.iter().map(|line| line.split_once(' ').expect("a number and a value"));
        pairs.map(|(number, value)| (number.parse().expect("a number"), value.to_owned())).collect()
    }

    /// The data key of the log in the manifest, read without the fence.
    async fn log_path(&self) -> Option<Path> {
        let manifest = self.address().store().get(&Path::from("guarded/leasehold.manifest")).await.ok()?;
        let body = String::from_utf8(manifest.bytes().await.expect("its bytes").to_vec()).expect("text");
        let entry = body.lines().find_map(|line| line.strip_prefix("entry ")?.strip_suffix(&format!(" {LOG}")))?;
        Some(Path::from(format!("guarded/data/{entry}")))
    }
}

impl MovedLines {
    /// Moves all lines out of DynamoDB's log item, in one step.
    async fn move_out(&self, address: &TargetAddress) {
        let mut lines = self.lines.lock().await;
        let key = AttributeValue::S(LOG.to_owned());
        let take = address.client().update_item().table_name(address.data()).key("id", key);
        let take = take.update_expression("SET written = :none").return_values(ReturnValue::AllOld);
        let take = take.expression_attribute_values(":none", AttributeValue::L(Vec::new()));
        let before = take.send().await.expect("taken").attributes.unwrap_or_default();
        let Some(found) = before.get("written") else { return };
        let found = found.as_l().expect("a list").iter().map(|line| line.as_s().expect("a line").clone());
        lines.extend(found);
    }
}

impl Subject for CloudSubject {
    type Writer = CloudWriter;

    async fn fresh(&self) {
        self.empty().await;
        match self.open().await {
            Target::Objects(fence) => fence.arm().await.expect("armed"),
            Target::Dynamo(fence, _) => fence.arm().await.expect("armed"),
        }
    }

    async fn unarmed(&self) -> bool {
        self.empty().await;
        true
    }

    async fn writer(&self) -> CloudWriter {
        let (address, moved) = (self.address(), self.moved.clone());
        CloudWriter { target: address.open().await, address, moved, fenced: self.fenced }
    }

    async fn applied(&self) -> Vec<AppliedEntry> {
        let log = self.log().await.into_iter();
        log.map(|(number_, value)| AppliedEntry { number: number(number_), value }).collect()
    }

    async fn mark(&self) -> Result<Option<Number>, Error> {
        match self.open().await {
            Target::Objects(fence) => fence.mark().await,
            Target::Dynamo(fence, _) => fence.mark().await,
        }
    }

    async fn declare_lost(&self) -> Result<bool, Error> {
        match self.open().await {
            Target::Objects(fence) => fence.declare_lost().await.map(|()| true),
            Target::Dynamo(fence, _) => fence.declare_lost().await.map(|()| true),
        }
    }

    async fn rearm(&self, floor: Number) -> Result<bool, Error> {
        match self.open().await {
            Target::Objects(fence) => fence.rearm(floor).await.map(|()| true),
            Target::Dynamo(fence, _) => fence.rearm(floor).await.map(|()| true),
        }
    }

    async fn strict(&self, enabled: bool) -> Result<bool, Error> {
        match self.open().await {
            Target::Objects(fence) => fence.strict(enabled).await.map(|()| true),
            Target::Dynamo(fence, _) => fence.strict(enabled).await.map(|()| true),
        }
    }

    async fn adopt(&self, incarnation: Incarnation) -> Result<bool, Error> {
        match self.open().await {
            Target::Objects(fence) => fence.adopt(incarnation).await.map(|()| true),
            Target::Dynamo(fence, _) => fence.adopt(incarnation).await.map(|()| true),
        }
    }

    async fn seal(&self) -> Result<bool, Error> {
        match self.open().await {
            Target::Objects(fence) => fence.seal().await.map(|()| true),
            Target::Dynamo(fence, _) => fence.seal().await.map(|()| true),
        }
    }

    async fn sealed_writer(&self, verifier: &SealVerifier) -> Option<CloudWriter> {
        let writer = self.writer().await;
        let target = match writer.target {
            Target::Objects(fence) => Target::Objects(fence.with_seal_verifier(verifier)),
            Target::Dynamo(fence, data) => Target::Dynamo(fence.with_seal_verifier(verifier), data),
        };
        Some(CloudWriter { target, ..writer })
    }

    async fn list_marks(&self) -> Result<Option<Vec<MarkInfo>>, Error> {
        let address = self.address();
        if self.kind == "s3" {
            return objects::list_marks(&address.store(), None).await.map(Some);
        }
        dynamodb::list_marks(address.client(), &address.name).await.map(Some)
    }
}

/// The connection of one holder.
pub struct CloudWriter {
    target: Target,
    address: TargetAddress,
    moved: Arc<MovedLines>,
    fenced: bool,
}

impl FenceWriter for CloudWriter {
    async fn claim(&mut self, token: &str) -> Result<Number, Error> {
        if !self.fenced {
            return Ok(number(token[57..76].parse().expect("a valid token")));
        }
        self.target.claim(token).await
    }

    async fn write(&mut self, token: &str, value: &str) -> Result<(), Error> {
        if self.address.kind == "dynamodb" && self.moved.writes.fetch_add(1, Ordering::Relaxed) % LINES == LINES - 1 {
            self.moved.move_out(&self.address).await;
        }
        if self.fenced {
            return self.target.write(token, value).await;
        }
        let line = line(token, value);
        if self.address.kind == "s3" {
            let (store, at) = (self.address.store(), Path::from(LOG));
            let old = match store.get(&at).await {
                Ok(object) => Some(object.bytes().await.expect("its bytes")),
                Err(_) => None,
            };
            store.put(&at, append_line(old.as_deref(), &line).into()).await.expect("put");
        } else {
            let items = append_update(&self.address.data(), &line);
            self.address.client().transact_write_items().transact_items(items).send().await.expect("written");
        }
        Ok(())
    }

    async fn write_once(&mut self, token: &str, sequence: u64, value: &str) -> Result<Option<ApplyOnce>, Error> {
        self.target.write_once(token, sequence, value).await.map(Some)
    }
}
