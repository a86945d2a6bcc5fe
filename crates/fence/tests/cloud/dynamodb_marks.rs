//! Marks in DynamoDB that were deleted, damaged, copied or restored, and tables that cannot hold marks.

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, Delete, KeySchemaElement, KeyType, ScalarAttributeType,
    TransactWriteItem,
};
use leasehold_core::token::Cluster;
use leasehold_fence::conformance::{CLUSTER, Subject, fence_id, number, seal_keys, sealed_token, token};
use leasehold_fence::{Error, FenceId, Mark, SealVerifier, dynamodb};

use crate::moto::server;
use crate::proxy::{FaultyProxy, ProxyAction, calls, dynamodb_response};
use crate::scenarios::block_on;
use crate::subject::CloudSubject;
use crate::target::{TargetAddress, append_update};

type Item = HashMap<String, AttributeValue>;

/// A fence at mark 33, with a client that bypasses it.
struct Raw {
    fence: dynamodb::Fence,
    client: Client,
    table: String,
    item: Item,
}

impl Raw {
    async fn new() -> Self {
        let subject = CloudSubject::new("dynamodb");
        subject.fresh().await;
        let (client, table) = (subject.address().client(), subject.address().name);
        let fence = dynamodb::Fence::open(client.clone(), &table, &fence_id()).await.expect("opened");
        fence.claim(&token(33)).await.expect("claimed");
        let item = client.scan().table_name(&table).send().await.expect("scanned").items.expect("one").remove(0);
        Self { fence, client, table, item }
    }

    /// Stores the item of the mark with one attribute changed, or removed.
    async fn change(&self, name: &str, value: Option<AttributeValue>) {
        let mut item = self.item.clone();
        match value {
            Some(value) => item.insert(name.to_owned(), value),
            None => item.remove(name),
        };
        self.put(item).await;
    }

    async fn put(&self, item: Item) {
        self.client.put_item().table_name(&self.table).set_item(Some(item)).send().await.expect("put");
    }

    async fn delete(&self) {
        let key = self.item["place"].clone();
        self.client.delete_item().table_name(&self.table).key("place", key).send().await.expect("deleted");
    }

    /// Deletes the table and creates it again with the item, as a restore does.
    async fn restore(&self) {
        self.client.delete_table().table_name(&self.table).send().await.expect("deleted");
        dynamodb::install(&self.client, &self.table).await.expect("created again");
        self.put(self.item.clone()).await;
    }
}

fn reason(result: Result<impl std::fmt::Debug, Error>) -> String {
    let error = result.expect_err("refused");
    error.refusal().map_or_else(|| error.code().to_owned(), |refusal| refusal.reason().to_owned())
}

fn s(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

fn n(text: &str) -> AttributeValue {
    AttributeValue::N(text.to_owned())
}

/// Damaged attributes: with none of them is a token admitted.
fn damages() -> Vec<(&'static str, Option<AttributeValue>)> {
    vec![
        ("seen", Some(n("-1"))),
        ("seen", Some(n("0"))),
        ("seen", Some(AttributeValue::Null(true))),
        ("lost", None),
        ("lost", Some(s("no"))),
        ("strict", None),
        ("strict", Some(s("no"))),
        ("table", None),
        ("table", Some(AttributeValue::L(Vec::new()))),
        ("sealed", Some(AttributeValue::Bool(false))),
        ("sealed", Some(s("true"))),
        ("name", None),
        ("slot", Some(s("0"))),
        ("cluster", None),
    ]
}

pub fn damaged() {
    block_on(async {
        let raw = Raw::new().await;
        for (name, value) in damages() {
            raw.change(name, value.clone()).await;
            assert_eq!(reason(raw.fence.claim(&token(34)).await), "unreadable", "{name} {value:?}: a claim");
            let written = raw.fence.write_once(&token(34), 7, []).await;
            assert_eq!(reason(written), "unreadable", "{name} {value:?}: a write");
            assert_eq!(reason(raw.fence.mark().await), "unreadable", "{name} {value:?}");
            assert_eq!(reason(raw.fence.adopt(leasehold_core::token::Incarnation(8)).await), "unreadable", "{name}");
            let listed = dynamodb::list_marks(raw.client.clone(), &raw.table).await.expect("listed");
            assert_eq!((listed.len(), listed[0].mark), (1, Mark::Lost), "{name} {value:?}");
            raw.fence.rearm(number(40)).await.unwrap_or_else(|error| panic!("{name} {value:?}: {error}"));
            // A damaged seal stays a seal.
            let (mut holder, mut earlier, mut next) = (raw.fence.clone(), token(39), token(41));
            if name == "sealed" {
                assert_eq!(reason(raw.fence.claim(&token(41)).await), "unsealed", "{value:?}");
                holder = holder.with_seal_verifier(&SealVerifier::new(seal_keys()));
                (earlier, next) = (sealed_token(39), sealed_token(41));
            }
            assert_eq!(reason(holder.claim(&earlier).await), "stale", "{name} {value:?}");
            holder.claim(&next).await.unwrap_or_else(|error| panic!("{name} {value:?}: {error}"));
        }
        // A number that can be read is still a limit of the floor.
        raw.change("strict", None).await;
        assert_eq!(raw.fence.rearm(number(32)).await.expect_err("below the mark").code(), "CONFLICT");
        // Without its nonce a mark is whole, and an operator replaces it.
        for nonce in [None, Some(n("1"))] {
            raw.change("nonce", nonce).await;
            raw.fence.adopt(leasehold_core::token::Incarnation(7)).await.expect("adopted");
        }
        // The last sequence of an unknown token.
        raw.change("last", Some(n("9"))).await;
        assert_eq!(reason(raw.fence.write_once(&token(33), 7, []).await), "unreadable");
    });
}

pub fn deleted() {
    block_on(async {
        let raw = Raw::new().await;
        raw.delete().await;
        assert_eq!(reason(raw.fence.claim(&token(34)).await), "missing");
        assert_eq!(reason(raw.fence.declare_lost().await), "missing");
        raw.fence.rearm(number(40)).await.expect("a mark at the floor is created");
        assert_eq!(reason(raw.fence.claim(&token(34)).await), "stale");
        raw.fence.claim(&token(41)).await.expect("a later holder");
    });
}

pub fn copied() {
    block_on(async {
        let raw = Raw::new().await;
        // The item of another cluster, resource or slot, under the key of this fence.
        for (name, value, expected) in [
            ("cluster", s(&Cluster(*b"another!").to_string()), "cluster"),
            ("name", s("conformance/other"), "CONFLICT"),
            ("slot", n("1"), "CONFLICT"),
        ] {
            raw.change(name, Some(value)).await;
            assert_eq!(reason(raw.fence.claim(&token(34)).await), expected, "{name}");
            assert_eq!(reason(raw.fence.write(&token(34), []).await), expected, "{name}");
            assert_eq!(reason(raw.fence.rearm(number(40)).await), expected, "{name}: an operator of another fence");
        }
        // Fences of one table do not meet: the slot and the cluster are in the key.
        raw.put(raw.item.clone()).await;
        for id in [
            fence_id().with_slot(1),
            FenceId::new(CLUSTER, "conformance/target/0").expect("a name"),
            FenceId::new(Cluster(*b"another!"), fence_id().resource()).expect("a name"),
        ] {
            let other = dynamodb::Fence::open(raw.client.clone(), &raw.table, &id).await.expect("opened");
            assert_eq!(reason(other.mark().await), "missing", "{id}");
        }
    });
}

pub fn opened_before_a_restore() {
    block_on(async {
        let raw = Raw::new().await;
        raw.restore().await;
        assert_eq!(reason(raw.fence.rearm(number(40)).await), "moved", "it would arm the old table");
        assert_eq!(reason(raw.fence.declare_lost().await), "moved");
        raw.delete().await;
        assert_eq!(reason(raw.fence.arm().await), "moved");
        let fence = dynamodb::Fence::open(raw.client.clone(), &raw.table, &fence_id()).await.expect("opened");
        fence.rearm(number(40)).await.expect("re-armed in the new table");
        assert_eq!(reason(raw.fence.write(&token(41), []).await), "moved");
        fence.claim(&token(41)).await.expect("a later holder");
    });
}

pub fn too_many_items() {
    block_on(async {
        let raw = Raw::new().await;
        let data = format!("{}-data", raw.table);
        let items = (0..100).map(|_| append_update(&data, "33 x"));
        let error = raw.fence.write(&token(34), items).await.expect_err("more than a transaction can have");
        assert_eq!(error.code(), "INVALID_ARGUMENT", "{error}");
        assert!(error.to_string().contains("99"), "{error}");
        assert_eq!(raw.fence.mark().await.expect("readable"), Some(number(33)));
        // The marks of other fences are not data.
        let other = fence_id().with_slot(1);
        let key = s(&format!("{}/{}/{}", other.cluster(), other.resource_hash(), other.slot()));
        for table in [raw.table.clone(), format!("arn:aws:dynamodb:us-east-1:123456789012:table/{}", raw.table)] {
            let delete = Delete::builder().table_name(table).key("place", key.clone()).build().expect("whole");
            let item = TransactWriteItem::builder().delete(delete).build();
            let error = raw.fence.write(&token(34), [item]).await.expect_err("the mark of another fence");
            assert_eq!(error.code(), "INVALID_ARGUMENT", "{error}");
        }
        assert_eq!(raw.fence.mark().await.expect("readable"), Some(number(33)));
    });
}

pub fn foreign_tables() {
    block_on(async {
        let address = TargetAddress { kind: "dynamodb", url: server().url(), name: "foreign".to_owned() };
        let client = address.client();
        let key =
            |name: &str, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build().expect("whole");
        let attribute = |name: &str| {
            let attribute = AttributeDefinition::builder().attribute_name(name);
            attribute.attribute_type(ScalarAttributeType::S).build().expect("whole")
        };
        let create = |table: &str| client.create_table().table_name(table).billing_mode(BillingMode::PayPerRequest);
        let other = create("foreign-key").key_schema(key("id", KeyType::Hash)).attribute_definitions(attribute("id"));
        other.send().await.expect("a table of data");
        let range =
            create("foreign-range").key_schema(key("place", KeyType::Hash)).key_schema(key("at", KeyType::Range));
        let range = range.attribute_definitions(attribute("place")).attribute_definitions(attribute("at"));
        range.send().await.expect("a table with a range key");
        for table in ["foreign-key", "foreign-range"] {
            for result in [
                dynamodb::install(&client, table).await,
                dynamodb::Fence::open(client.clone(), table, &fence_id()).await.map(|_| ()),
                dynamodb::list_marks(client.clone(), table).await.map(|_| ()),
            ] {
                let error = result.expect_err("not a table of marks");
                assert_eq!(error.code(), "CONFLICT", "{table}: {error}");
                assert!(error.to_string().contains("place"), "{table}: {error}");
            }
        }
        let error = dynamodb::Fence::open(client.clone(), "nowhere", &fence_id()).await.expect_err("no table");
        assert_eq!(error.code(), "NOT_FOUND", "{error}");
        assert!(error.to_string().contains("install"), "{error}");
        // An item that is no mark does not hide the marks.
        let raw = Raw::new().await;
        raw.put(Item::from([("place".to_owned(), s("a note"))])).await;
        let listed = dynamodb::list_marks(raw.client.clone(), &raw.table).await.expect("listed");
        assert_eq!(listed.iter().map(|info| info.mark).collect::<Vec<_>>(), [Mark::Armed(number(33))]);
    });
}

pub fn installing() {
    // The description of a new table is not consistent at once, and a table can be unusable for good.
    let missing = r#"{"__type":"com.amazonaws.dynamodb.v20120810#ResourceNotFoundException","message":"not found"}"#;
    let mut missed = 0;
    let proxy = FaultyProxy::start(server().address, move |head| {
        missed += usize::from(calls(head, "DescribeTable"));
        if calls(head, "DescribeTable") && missed <= 3 {
            return ProxyAction::Respond(dynamodb_response(400, missing));
        }
        ProxyAction::Forward
    });
    let address = TargetAddress { kind: "dynamodb", url: proxy.url(), name: "installed".to_owned() };
    block_on(dynamodb::install(&address.client(), "installed")).expect("it waits for the description");

    let archived = r#"{"Table":{"TableName":"installed","TableStatus":"ARCHIVED","KeySchema":[{"AttributeName":"place","KeyType":"HASH"}]}}"#;
    let proxy = FaultyProxy::start(server().address, move |head| {
        if calls(head, "DescribeTable") {
            return ProxyAction::Respond(dynamodb_response(200, archived));
        }
        ProxyAction::Forward
    });
    let address = TargetAddress { url: proxy.url(), ..address };
    let error = block_on(dynamodb::install(&address.client(), "installed")).expect_err("it is never active");
    assert_eq!(error.code(), "CONFLICT", "{error}");
    assert!(error.to_string().contains("ARCHIVED"), "{error}");
}
