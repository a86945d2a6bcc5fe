//! The description of the HTTP interface: nothing is served that it does not tell, it tells nothing that is not served,
//! and its examples are what a really started server takes and gives.

mod http_client;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use http_client::{http, on_a_free_port, raw};
use leasehold_server::api::{document, served};
use leasehold_server::journal::memory::Memory;
use leasehold_server::server::start;
use serde_json::{Map, Value};

fn described() -> Value {
    serde_json::from_str(document()).expect("the document is JSON")
}

fn object(value: &Value) -> &Map<String, Value> {
    value.as_object().unwrap_or_else(|| panic!("an object, not {value}"))
}

/// A part of the document, behind its reference if it is one.
fn part<'a>(document: &'a Value, part: &'a Value) -> &'a Value {
    part.get("$ref").and_then(Value::as_str).map_or(part, |reference| resolve(document, reference))
}

/// Every operation: method, path and what is said about it.
fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let each = object(&document["paths"]).iter().flat_map(|(path, item)| {
        object(item).iter().map(|(method, operation)| (method.clone(), path.clone(), operation.clone()))
    });
    each.collect()
}

/// The part of the document that a reference names.
fn resolve<'a>(document: &'a Value, reference: &str) -> &'a Value {
    let pointer = reference.strip_prefix('#').unwrap_or_else(|| panic!("{reference} leads out of the document"));
    document.pointer(pointer).unwrap_or_else(|| panic!("{reference} leads nowhere"))
}

#[test]
fn the_committed_document_is_the_one_that_is_served() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/openapi.json");
    if std::env::var_os("LEASEHOLD_BLESS").is_some() {
        std::fs::write(&path, document()).expect("the document can be written");
    }
    let committed = std::fs::read_to_string(&path).expect("the document is there");
    let hint = "docs/reference/openapi.json is not what is served; run this test with LEASEHOLD_BLESS=1 and look at the difference";
    assert!(committed == document(), "{hint}");
}

#[test]
fn what_is_served_is_described_and_what_is_described_is_served() {
    let served: BTreeSet<_> = served().into_iter().map(|(method, path)| format!("{method} {path}")).collect();
    let described = operations(&described()).into_iter().map(|(method, path, _)| format!("{method} {path}"));
    assert_eq!(described.collect::<BTreeSet<_>>(), served);
}

#[test]
fn the_document_is_well_formed() {
    let document = described();
    assert_eq!(document["openapi"], "3.1.0");
    assert!(document["info"]["title"].is_string() && document["info"]["version"].is_string());
    let mut seen = BTreeSet::new();
    references(&document, &mut seen);
    for reference in &seen {
        resolve(&document, reference);
    }
    let schemas = object(&document["components"]["schemas"]);
    for name in schemas.keys() {
        assert!(seen.contains(&format!("#/components/schemas/{name}")), "nobody refers to {name}");
    }
    let tags: Vec<_> = document["tags"].as_array().expect("a list").iter().map(|tag| &tag["name"]).collect();
    let mut ids = BTreeSet::new();
    for (method, path, operation) in operations(&document) {
        let what = format!("{method} {path}");
        let id = operation["operationId"].as_str().unwrap_or_else(|| panic!("{what} has no id"));
        assert!(ids.insert(id.to_owned()), "{id} stands twice");
        assert!(operation["summary"].as_str().is_some_and(|words| !words.is_empty()), "{what} says nothing");
        assert!(operation["tags"].as_array().is_some_and(|its| its.iter().all(|tag| tags.contains(&tag))), "{what}");
        assert!(object(&operation["responses"]).contains_key("200"), "{what} is never answered");
        let in_path: BTreeSet<_> = path.split('{').skip(1).filter_map(|rest| rest.split('}').next()).collect();
        let named = parameters(&operation, "path");
        assert_eq!(named.keys().map(String::as_str).collect::<BTreeSet<_>>(), in_path, "{what}");
        for (name, parameter) in named {
            assert_eq!(parameter["required"], true, "{what}: {name}");
        }
        for (status, response) in object(&operation["responses"]) {
            assert!(status.parse::<u16>().is_ok_and(|status| (200..600).contains(&status)), "{what}: {status}");
            assert!(response["description"].is_string(), "{what}: {status}");
        }
    }
}

fn references(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            into.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|value| references(value, into));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, into)),
        _ => {}
    }
}

fn parameters(operation: &Value, place: &str) -> BTreeMap<String, Value> {
    // Those that are shared are headers.
    let all = operation["parameters"].as_array().cloned().unwrap_or_default();
    let here = all.into_iter().filter(|parameter| parameter["in"] == place);
    here.map(|parameter| (parameter["name"].as_str().expect("a name").to_owned(), parameter)).collect()
}

/// Why a value is not what a schema says; nothing if it is.
fn wrong(document: &Value, schema: &Value, value: &Value) -> Option<String> {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        return wrong(document, resolve(document, reference), value);
    }
    if let Some(choices) = schema.get("oneOf").and_then(Value::as_array) {
        let fits = choices.iter().any(|choice| wrong(document, choice, value).is_none());
        return (!fits).then(|| format!("{value} is none of {choices:?}"));
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_u64() || number.is_i64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let allowed = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().any(|one| one == kind),
        one => one == kind,
    };
    if !allowed {
        return Some(format!("{value} is not {}", schema["type"]));
    }
    match value {
        Value::Array(items) => items.iter().find_map(|item| wrong(document, &schema["items"], item)),
        Value::Object(fields) => {
            let known = schema["properties"].as_object().cloned().unwrap_or_default();
            let required = schema["required"].as_array().cloned().unwrap_or_default();
            let missing = required.iter().find(|name| !fields.contains_key(name.as_str().expect("a name")));
            if let Some(missing) = missing {
                return Some(format!("{missing} is missing in {value}"));
            }
            fields.iter().find_map(|(name, value)| match known.get(name) {
                Some(schema) => wrong(document, schema, value).map(|reason| format!("{name}: {reason}")),
                None => Some(format!("{name} is not described")),
            })
        }
        _ => None,
    }
}

#[test]
fn every_example_is_what_its_schema_says() {
    let document = described();
    let mut compared = 0;
    for (method, path, operation) in operations(&document) {
        let mut contents: Vec<_> = operation["requestBody"]["content"].as_object().into_iter().collect();
        contents.extend(object(&operation["responses"]).values().filter_map(|told| told["content"].as_object()));
        for (kind, content) in contents.into_iter().flatten() {
            let named = content.get("examples").and_then(Value::as_object).into_iter().flat_map(Map::values);
            let named = named.map(|example| &part(&document, example)["value"]);
            for example in content.get("example").into_iter().chain(named) {
                let wrong = wrong(&document, &content["schema"], example);
                assert_eq!(wrong, None, "{method} {path}, {kind}");
                compared += 1;
            }
        }
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let parameter = part(&document, parameter);
            assert_eq!(wrong(&document, &parameter["schema"], &parameter["example"]), None, "{method} {path}");
        }
    }
    assert!(compared > 100, "only {compared} examples were compared");
}

/// A path with its examples in it.
fn example_path(path: &str, operation: &Value) -> String {
    let named = parameters(operation, "path");
    named.iter().fold(path.to_owned(), |path, (name, parameter)| {
        path.replace(&format!("{{{name}}}"), parameter["example"].as_str().expect("a text"))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_started_server_takes_every_example_and_answers_as_described() {
    let running = start(Memory::default(), on_a_free_port()).await.expect("a server on a free port starts");
    let document = described();
    let mut answered = BTreeSet::new();
    // Grants before looks, so that there is something to look at.
    let mut all = operations(&document);
    all.sort_by_key(|(method, path, _)| (method != "put", !path.ends_with(":acquire"), method.clone(), path.clone()));
    for (method, path, operation) in all {
        if path == "/v1/events" {
            continue;
        }
        let query = parameters(&operation, "query").into_iter().map(|(name, parameter)| {
            let example = &parameter["example"];
            format!("{name}={}", example.as_str().map_or_else(|| example.to_string(), str::to_owned).replace(' ', "+"))
        });
        let query = query.collect::<Vec<_>>().join("&");
        let target = format!("{}?{query}", example_path(&path, &operation));
        let target = target.trim_end_matches('?');
        let body = &operation["requestBody"]["content"]["application/json"]["example"];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (status, head, bytes) = raw(running.address, &method.to_uppercase(), target, &body).await;
        let what = format!("{method} {target} {body}: {status} {}", String::from_utf8_lossy(&bytes));
        let response = operation["responses"].get(status.to_string()).unwrap_or_else(|| panic!("not told of: {what}"));
        let kind = head.lines().find_map(|line| line.strip_prefix("content-type: ")).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default();
        let content = response["content"].get(kind).unwrap_or_else(|| panic!("{kind} is not told of: {what}"));
        if kind == "application/problem+json" {
            let problem: Value = serde_json::from_slice(&bytes).expect("a problem is JSON");
            assert_eq!(wrong(&document, &content["schema"], &problem), None, "{what}");
            let code = problem["code"].as_str().expect("a code");
            assert!(response["description"].as_str().is_some_and(|told| told.contains(code)), "{what}");
            assert_ne!(code, "INVALID_ARGUMENT", "the example is not taken: {what}");
        } else if kind == "application/json" && path != "/v1/openapi.json" {
            let told: Value = serde_json::from_slice(&bytes).expect("an answer is JSON");
            assert_eq!(wrong(&document, &content["schema"], &told), None, "{what}");
            let positioned = response["headers"].get("leasehold-position").is_some();
            assert_eq!(head.contains("leasehold-position: "), positioned, "{what}");
        }
        if status == 200 {
            answered.insert(format!("{method} {path}"));
        }
    }
    assert!(answered.len() > 20, "only these were answered: {answered:?}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_query_key_is_described_and_no_other_is_taken() {
    let running = start(Memory::default(), on_a_free_port()).await.expect("a server on a free port starts");
    for (method, path, operation) in operations(&described()) {
        if !path.starts_with("/v1/") {
            continue;
        }
        let target = format!("{}?made_up=1", example_path(&path, &operation));
        let (status, answer) = http(running.address, &method.to_uppercase(), &target, "{}").await;
        let problem: Value =
            serde_json::from_str(&answer).unwrap_or_else(|e| panic!("{method} {target}: {e}: {answer}"));
        assert_eq!((status, &problem["field"]), (400, &"made_up".into()), "{method} {target}: {answer}");
        // The refusal names the keys that are known.
        let said = problem["reason"].as_str().expect("a reason");
        let known: BTreeSet<_> = said.split('`').skip(1).step_by(2).filter(|key| *key != "made_up").collect();
        let told = parameters(&operation, "query");
        assert_eq!(told.keys().map(String::as_str).collect::<BTreeSet<_>>(), known, "{method} {path}: {said}");
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_in_a_path_may_be_written_with_its_slashes_escaped() {
    let running = start(Memory::default(), on_a_free_port()).await.expect("a server on a free port starts");
    let body = r#"{"holder":"w1","ttl":"60s"}"#;
    let (status, answer) = http(running.address, "POST", "/v1/leases/jobs%2Fsettle:acquire", body).await;
    assert_eq!(status, 200, "{answer}");
    assert!(answer.contains(r#""resource":"jobs/settle""#), "{answer}");
    let (status, _) = http(running.address, "GET", "/v1/leases/jobs/settle", "").await;
    assert_eq!(status, 200);
    running.stop().await;
}
