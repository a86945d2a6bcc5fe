//! A target as the conformance suite sees it, with the log of what was applied read past the fence.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ReturnValue, ScalarAttributeType,
};
use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::conformance::{Applied, Subject, Writer, number};
use leasehold_fence::{Error, Kept, Once, dynamodb, objects};
use object_store::ObjectStoreExt;
use object_store::path::Path;
use tokio::sync::Mutex as Turn;

use crate::moto::server;
use crate::target::{LOG, Place, Target, append, appended, line};

/// How many lines DynamoDB's log item gets before they are taken out: the server copies its table for each transaction.
const LINES: u64 = 64;

static WORLDS: AtomicU64 = AtomicU64::new(0);

/// One kind of target, empty again whenever it is asked for.
pub struct World {
    kind: &'static str,
    /// Whether the fence stands there; without it the writers write as if there were none.
    fenced: bool,
    current: Mutex<Place>,
    taken: Arc<Taken>,
}

/// Lines that were taken out of the log, in order.
#[derive(Default)]
struct Taken {
    lines: Turn<Vec<String>>,
    writes: AtomicU64,
}

impl World {
    pub fn new(kind: &'static str) -> Self {
        let current = Mutex::new(Place { kind, url: server().url(), name: String::new() });
        Self { kind, fenced: true, current, taken: Arc::default() }
    }

    pub fn unfenced(kind: &'static str) -> Self {
        Self { fenced: false, ..Self::new(kind) }
    }

    pub fn place(&self) -> Place {
        self.current.lock().expect("nobody panicked").clone()
    }

    pub async fn open(&self) -> Target {
        self.place().open().await
    }

    /// An empty bucket, or empty tables.
    async fn empty(&self) {
        let name = format!("world-{}", WORLDS.fetch_add(1, Ordering::Relaxed));
        *self.current.lock().expect("nobody panicked") = Place { kind: self.kind, url: server().url(), name };
        self.taken.lines.lock().await.clear();
        let place = self.place();
        if self.kind == "s3" {
            return server().make_bucket(&place.name);
        }
        dynamodb::install(&place.client(), &place.name).await.expect("a table of marks");
        let key = KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash).build().expect("whole");
        let id = AttributeDefinition::builder().attribute_name("id").attribute_type(ScalarAttributeType::S);
        let table = place.client().create_table().table_name(place.data()).key_schema(key);
        let table = table.attribute_definitions(id.build().expect("whole")).billing_mode(BillingMode::PayPerRequest);
        table.send().await.expect("a table of data");
    }

    /// The numbers and values of all that was applied.
    pub async fn log(&self) -> Vec<(u64, String)> {
        let place = self.place();
        let lines = if self.kind == "s3" {
            let at = if self.fenced { self.named().await } else { Some(Path::from(LOG)) };
            let Some(at) = at else { return Vec::new() };
            let object = match place.store().get(&at).await {
                Err(object_store::Error::NotFound { .. }) => return Vec::new(),
                object => object.expect("the log").bytes().await.expect("its bytes"),
            };
            String::from_utf8(object.to_vec()).expect("text").lines().map(str::to_owned).collect()
        } else {
            self.taken.take(&place).await;
            self.taken.lines.lock().await.clone()
        };
        let pairs = lines.iter().map(|line| line.split_once(' ').expect("a number and a value"));
        pairs.map(|(number, value)| (number.parse().expect("a number"), value.to_owned())).collect()
    }

    /// The data key that the manifest's text names for the log, read without the fence.
    async fn named(&self) -> Option<Path> {
        let manifest = self.place().store().get(&Path::from("guarded/leasehold.manifest")).await.ok()?;
        let body = String::from_utf8(manifest.bytes().await.expect("its bytes").to_vec()).expect("text");
        let entry = body.lines().find_map(|line| line.strip_prefix("entry ")?.strip_suffix(&format!(" {LOG}")))?;
        Some(Path::from(format!("guarded/data/{entry}")))
    }
}

impl Taken {
    /// Takes all lines out of DynamoDB's log item, in one step.
    async fn take(&self, place: &Place) {
        let mut lines = self.lines.lock().await;
        let key = AttributeValue::S(LOG.to_owned());
        let take = place.client().update_item().table_name(place.data()).key("id", key);
        let take = take.update_expression("SET written = :none").return_values(ReturnValue::AllOld);
        let take = take.expression_attribute_values(":none", AttributeValue::L(Vec::new()));
        let before = take.send().await.expect("taken").attributes.unwrap_or_default();
        let Some(found) = before.get("written") else { return };
        let found = found.as_l().expect("a list").iter().map(|line| line.as_s().expect("a line").clone());
        lines.extend(found);
    }
}

impl Subject for World {
    type Writer = One;

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

    async fn writer(&self) -> One {
        let (place, taken) = (self.place(), self.taken.clone());
        One { target: place.open().await, place, taken, fenced: self.fenced }
    }

    async fn applied(&self) -> Vec<Applied> {
        let log = self.log().await.into_iter();
        log.map(|(number_, value)| Applied { number: number(number_), value }).collect()
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

    async fn make_strict(&self) -> Result<bool, Error> {
        match self.open().await {
            Target::Objects(fence) => fence.make_strict().await.map(|()| true),
            Target::Dynamo(fence, _) => fence.make_strict().await.map(|()| true),
        }
    }

    async fn adopt(&self, incarnation: Incarnation) -> Result<bool, Error> {
        match self.open().await {
            Target::Objects(fence) => fence.adopt(incarnation).await.map(|()| true),
            Target::Dynamo(fence, _) => fence.adopt(incarnation).await.map(|()| true),
        }
    }

    async fn survey(&self) -> Result<Option<Vec<Kept>>, Error> {
        let place = self.place();
        if self.kind == "s3" {
            return objects::survey(&place.store(), None).await.map(Some);
        }
        dynamodb::survey(place.client(), &place.name).await.map(Some)
    }
}

/// One holder's way.
pub struct One {
    target: Target,
    place: Place,
    taken: Arc<Taken>,
    fenced: bool,
}

impl Writer for One {
    async fn claim(&mut self, token: &str) -> Result<Number, Error> {
        if !self.fenced {
            return Ok(number(token[57..76].parse().expect("the suite shows whole tokens to this one")));
        }
        self.target.claim(token).await
    }

    async fn write(&mut self, token: &str, value: &str) -> Result<(), Error> {
        if self.place.kind == "dynamodb" && self.taken.writes.fetch_add(1, Ordering::Relaxed) % LINES == LINES - 1 {
            self.taken.take(&self.place).await;
        }
        if self.fenced {
            return self.target.write(token, value).await;
        }
        let line = line(token, value);
        if self.place.kind == "s3" {
            let (store, at) = (self.place.store(), Path::from(LOG));
            let old = match store.get(&at).await {
                Ok(object) => Some(object.bytes().await.expect("its bytes")),
                Err(_) => None,
            };
            store.put(&at, appended(old.as_deref(), &line).into()).await.expect("put");
        } else {
            let items = append(&self.place.data(), &line);
            self.place.client().transact_write_items().transact_items(items).send().await.expect("written");
        }
        Ok(())
    }

    async fn write_sequenced(&mut self, token: &str, sequence: u64, value: &str) -> Result<Option<Once>, Error> {
        self.target.write_once(token, sequence, value).await.map(Some)
    }
}
