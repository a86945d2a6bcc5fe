//! The OpenAPI document describes exactly the served HTTP API, and its examples work on a running server.

mod http_client;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use http_client::{free_port_config, http, http_with, raw};
use leasehold_server::access::{AccessControl, AccessFile};
use leasehold_server::api::{document, served};
use leasehold_server::bearer::{BearerSettings, BearerVerifier};
use leasehold_server::journal::memory::Memory;
use leasehold_server::server::{ServerConfig, start};
use serde_json::{Map, Value};

fn openapi() -> Value {
    serde_json::from_str(document()).expect("the document is JSON")
}

fn object(value: &Value) -> &Map<String, Value> {
    value.as_object().unwrap_or_else(|| panic!("expected an object, got {value}"))
}

/// A node of the document, or the target of its reference.
fn dereference<'a>(document: &'a Value, node: &'a Value) -> &'a Value {
    node.get("$ref").and_then(Value::as_str).map_or(node, |reference| resolve(document, reference))
}

/// Every operation: method, path and description.
fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let operations = object(&document["paths"]).iter().flat_map(|(path, item)| {
        object(item).iter().map(|(method, operation)| (method.clone(), path.clone(), operation.clone()))
    });
    operations.collect()
}

/// The target of a reference.
fn resolve<'a>(document: &'a Value, reference: &str) -> &'a Value {
    let pointer = reference.strip_prefix('#').unwrap_or_else(|| panic!("{reference} is not a local reference"));
    document.pointer(pointer).unwrap_or_else(|| panic!("{reference} does not resolve"))
}

#[test]
fn the_committed_document_equals_the_served_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/openapi.json");
    if std::env::var_os("LEASEHOLD_BLESS").is_some() {
        std::fs::write(&path, document()).expect("the document can be written");
    }
    let committed = std::fs::read_to_string(&path).expect("the document exists");
    let hint =
        "docs/reference/openapi.json is out of date; run this test with LEASEHOLD_BLESS=1 and review the difference";
    assert!(committed == document(), "{hint}");
}

#[test]
fn served_and_documented_operations_are_equal() {
    let served: BTreeSet<_> = served().into_iter().map(|(method, path)| format!("{method} {path}")).collect();
    let documented = operations(&openapi()).into_iter().map(|(method, path, _)| format!("{method} {path}"));
    assert_eq!(documented.collect::<BTreeSet<_>>(), served);
}

#[test]
fn the_document_is_well_formed() {
    let document = openapi();
    assert_eq!(document["openapi"], "3.1.0");
    assert!(document["info"]["title"].is_string() && document["info"]["version"].is_string());
    let mut used = BTreeSet::new();
    references(&document, &mut used);
    for reference in &used {
        resolve(&document, reference);
    }
    let schemas = object(&document["components"]["schemas"]);
    for name in schemas.keys() {
        assert!(used.contains(&format!("#/components/schemas/{name}")), "{name} is not used");
    }
    let tags: Vec<_> = document["tags"].as_array().expect("tags are an array").iter().map(|tag| &tag["name"]).collect();
    let mut ids = BTreeSet::new();
    for (method, path, operation) in operations(&document) {
        let what = format!("{method} {path}");
        let id = operation["operationId"].as_str().unwrap_or_else(|| panic!("{what} has no id"));
        assert!(ids.insert(id.to_owned()), "duplicate operation id {id}");
        assert!(operation["summary"].as_str().is_some_and(|summary| !summary.is_empty()), "{what} has no summary");
        assert!(operation["tags"].as_array().is_some_and(|own| own.iter().all(|tag| tags.contains(&tag))), "{what}");
        assert!(object(&operation["responses"]).contains_key("200"), "{what} has no success response");
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

fn parameters(operation: &Value, location: &str) -> BTreeMap<String, Value> {
    // Shared parameters are references to headers.
    let all = operation["parameters"].as_array().cloned().unwrap_or_default();
    let matching = all.into_iter().filter(|parameter| parameter["in"] == location);
    matching
        .map(|parameter| (parameter["name"].as_str().expect("the name is a string").to_owned(), parameter))
        .collect()
}

/// Validates a value against a schema and returns the first violation.
fn violation(document: &Value, schema: &Value, value: &Value) -> Option<String> {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        return violation(document, resolve(document, reference), value);
    }
    if let Some(choices) = schema.get("oneOf").and_then(Value::as_array) {
        let matches = choices.iter().any(|choice| violation(document, choice, value).is_none());
        return (!matches).then(|| format!("{value} matches none of {choices:?}"));
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
        Value::Array(items) => items.iter().find_map(|item| violation(document, &schema["items"], item)),
        Value::Object(fields) => {
            let known = schema["properties"].as_object().cloned().unwrap_or_default();
            let required = schema["required"].as_array().cloned().unwrap_or_default();
            let missing =
                required.iter().find(|name| !fields.contains_key(name.as_str().expect("the name is a string")));
            if let Some(missing) = missing {
                return Some(format!("{missing} is missing in {value}"));
            }
            fields.iter().find_map(|(name, value)| match known.get(name) {
                Some(schema) => violation(document, schema, value).map(|reason| format!("{name}: {reason}")),
                None => Some(format!("{name} is not documented")),
            })
        }
        _ => None,
    }
}

#[test]
fn every_example_matches_its_schema() {
    let document = openapi();
    let mut compared = 0;
    for (method, path, operation) in operations(&document) {
        let mut contents: Vec<_> = operation["requestBody"]["content"].as_object().into_iter().collect();
        contents
            .extend(object(&operation["responses"]).values().filter_map(|response| response["content"].as_object()));
        for (kind, content) in contents.into_iter().flatten() {
            let named = content.get("examples").and_then(Value::as_object).into_iter().flat_map(Map::values);
            let named = named.map(|example| &dereference(&document, example)["value"]);
            for example in content.get("example").into_iter().chain(named) {
                let violation = violation(&document, &content["schema"], example);
                assert_eq!(violation, None, "{method} {path}, {kind}");
                compared += 1;
            }
        }
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let parameter = dereference(&document, parameter);
            assert_eq!(violation(&document, &parameter["schema"], &parameter["example"]), None, "{method} {path}");
        }
    }
    assert!(compared > 100, "only {compared} examples were compared");
}

/// A path with its parameters replaced by their examples.
fn example_path(path: &str, operation: &Value) -> String {
    let parameters = parameters(operation, "path");
    parameters.iter().fold(path.to_owned(), |path, (name, parameter)| {
        path.replace(&format!("{{{name}}}"), parameter["example"].as_str().expect("the example is a string"))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_server_accepts_every_example_and_responds_as_documented() {
    let server = start(Memory::default(), free_port_config()).await.expect("a server starts on a free port");
    let document = openapi();
    let mut succeeded = BTreeSet::new();
    // Grants before queries, so that queries find something.
    let mut all = operations(&document);
    all.sort_by_key(|(method, path, _)| (method != "put", !path.ends_with(":acquire"), method.clone(), path.clone()));
    for (method, path, operation) in all {
        // Its response has no end.
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
        let (status, head, bytes) = raw(server.address, &method.to_uppercase(), target, &body).await;
        let what = format!("{method} {target} {body}: {status} {}", String::from_utf8_lossy(&bytes));
        let response =
            operation["responses"].get(status.to_string()).unwrap_or_else(|| panic!("undocumented status: {what}"));
        let kind = head.lines().find_map(|line| line.strip_prefix("content-type: ")).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default();
        let content =
            response["content"].get(kind).unwrap_or_else(|| panic!("undocumented content type {kind}: {what}"));
        if kind == "application/problem+json" {
            let problem: Value = serde_json::from_slice(&bytes).expect("a problem is JSON");
            assert_eq!(violation(&document, &content["schema"], &problem), None, "{what}");
            let code = problem["code"].as_str().expect("the code is a string");
            assert!(response["description"].as_str().is_some_and(|text| text.contains(code)), "{what}");
            assert_ne!(code, "INVALID_ARGUMENT", "the example is refused: {what}");
        } else if kind == "application/json" && path != "/v1/openapi.json" {
            let body: Value = serde_json::from_slice(&bytes).expect("the body is JSON");
            assert_eq!(violation(&document, &content["schema"], &body), None, "{what}");
            let has_position = response["headers"].get("leasehold-position").is_some();
            assert_eq!(head.contains("leasehold-position: "), has_position, "{what}");
        }
        if status == 200 {
            succeeded.insert(format!("{method} {path}"));
        }
    }
    assert!(succeeded.len() > 20, "only these succeeded: {succeeded:?}");
    server.stop().await;
}

#[test]
fn every_operation_names_how_callers_prove_who_they_are_and_documents_401_and_403() {
    let document = openapi();
    let schemes = object(&document["components"]["securitySchemes"]);
    assert_eq!(schemes["clientCertificate"]["type"], "mutualTLS");
    assert_eq!(
        (&schemes["bearerToken"]["type"], &schemes["bearerToken"]["scheme"]),
        (&"http".into(), &"bearer".into())
    );
    let required = document["security"].as_array().expect("security is an array");
    let named: BTreeSet<_> = required.iter().flat_map(|one| object(one).keys()).collect();
    assert_eq!(named, schemes.keys().collect(), "every scheme is required somewhere, and no other");
    for (method, path, operation) in operations(&document) {
        assert!(operation.get("security").is_none(), "{method} {path} has the security of the document");
        for (status, code) in [("401", "UNAUTHENTICATED"), ("403", "PERMISSION_DENIED")] {
            let text = &operation["responses"][status]["description"];
            assert!(text.as_str().is_some_and(|text| text.contains(code)), "{method} {path}: {status} {text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_caller_gets_401_and_one_without_rights_403_on_documented_operations() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("bearers.toml");
    std::fs::write(&path, "").expect("the file is writable");
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("the mode is set");
    let bearers = BearerVerifier::load(BearerSettings { bearers: Some(path), jwt: Vec::new() }).expect("no tokens");
    let rules = "[[grant]]\nprincipal = \"uid:1\"\nrole = \"admin\"\nprefix = \"\"\n";
    let access = Arc::new(AccessControl::new(&AccessFile::parse(rules).expect("a valid file")));
    let config = ServerConfig { access, bearers: Some(bearers), ..free_port_config() };
    let server = start(Memory::default(), config).await.expect("a server starts on a free port");
    for (header, status, code) in [
        ("", 403, "PERMISSION_DENIED"),
        ("authorization: Bearer lhb1_unknown\r\n", 401, "UNAUTHENTICATED"),
        ("authorization: Basic eDp5\r\n", 401, "UNAUTHENTICATED"),
    ] {
        let (found, body) = http_with(server.address, "GET", "/v1/leases", header, "").await;
        let problem: Value = serde_json::from_str(&body).expect("a problem is JSON");
        assert_eq!((found, &problem["code"]), (status, &code.into()), "{body}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_query_key_is_documented_and_no_other_is_accepted() {
    let server = start(Memory::default(), free_port_config()).await.expect("a server starts on a free port");
    for (method, path, operation) in operations(&openapi()) {
        if !path.starts_with("/v1/") {
            continue;
        }
        let target = format!("{}?made_up=1", example_path(&path, &operation));
        let body = if operation.get("requestBody").is_some() { "{}" } else { "" };
        let (status, body) = http(server.address, &method.to_uppercase(), &target, body).await;
        let problem: Value = serde_json::from_str(&body).unwrap_or_else(|e| panic!("{method} {target}: {e}: {body}"));
        assert_eq!((status, &problem["field"]), (400, &"made_up".into()), "{method} {target}: {body}");
        // The refusal lists the accepted keys.
        let reason = problem["reason"].as_str().expect("the reason is a string");
        let known: BTreeSet<_> = reason.split('`').skip(1).step_by(2).filter(|key| *key != "made_up").collect();
        let documented = parameters(&operation, "query");
        assert_eq!(documented.keys().map(String::as_str).collect::<BTreeSet<_>>(), known, "{method} {path}: {reason}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_in_a_path_may_have_escaped_slashes() {
    let server = start(Memory::default(), free_port_config()).await.expect("a server starts on a free port");
    let body = r#"{"holder":"w1","ttl":"60s"}"#;
    let (status, body) = http(server.address, "POST", "/v1/leases/jobs%2Fsettle:acquire", body).await;
    assert_eq!(status, 200, "{body}");
    assert!(body.contains(r#""resource":"jobs/settle""#), "{body}");
    let (status, _) = http(server.address, "GET", "/v1/leases/jobs/settle", "").await;
    assert_eq!(status, 200);
    server.stop().await;
}
