//! The OpenAPI 3.1 document of the HTTP API.

mod audit_and_backup;
mod charters;
mod cluster;
mod coverage;
mod health_and_metrics;
mod leases;
mod operation;
mod payloads;
mod proposals;
mod queries;
mod sessions;

use std::sync::LazyLock;

use leasehold_wire::json::ProblemBody;
use serde_json::Value;
use utoipa::openapi::path::HttpMethod;
use utoipa::openapi::{Components, Info, License, OpenApi, OpenApiBuilder, Paths};
use utoipa::{PartialSchema, ToSchema};

use operation::OperationSpec;

/// The document, as it is served and committed.
static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    let mut text = build().to_pretty_json().expect("the document can be serialized");
    text.push('\n');
    text
});

/// The document as text.
pub fn document() -> &'static str {
    &DOCUMENT
}

const DESCRIPTION: &str = "\
Leases with fencing tokens. A lease decides who may act; fences compare the token of a grant. Tokens and token numbers are
strings. Durations in requests are strings with a unit, for example `30s`.

A command can be retried safely only with a key (`Idempotency-Key: <session>:<sequence>`, or a UUID); without a key a retry is not
detected. Every response names the journal position that it depends on in `leasehold-position`.

A problem is `application/problem+json` (RFC 9457) with a stable `code`, the field it concerns and the next step. Names in
paths may contain `/`, which can also be written `%2F`. Unknown fields and unknown query parameters are refused.

A server with access rules needs to know its caller: by a client certificate, a bearer token, or the user at the other end of the
unix socket. A caller that is not known gets `401`, and one that may not send the request `403`.";

/// The document under construction.
#[derive(Default)]
struct Document {
    paths: Paths,
    components: Components,
}

impl Document {
    fn get(&mut self, path: &str, spec: OperationSpec) {
        self.add(HttpMethod::Get, path, spec);
    }

    fn post(&mut self, path: &str, spec: OperationSpec) {
        self.add(HttpMethod::Post, path, spec);
    }

    fn add(&mut self, method: HttpMethod, path: &str, spec: OperationSpec) {
        let (operation, schemas) = spec.finish();
        self.components.schemas.extend(schemas);
        self.paths.add_path_operation(path, vec![method], operation);
    }
}

fn build() -> OpenApi {
    let mut document = Document::default();
    let mut schemas = vec![(ProblemBody::name().into_owned(), ProblemBody::schema())];
    ProblemBody::schemas(&mut schemas);
    document.components.schemas.extend(schemas);
    operation::share(&mut document.components);
    let security = operation::security(&mut document.components);
    leases::describe(&mut document);
    sessions::describe(&mut document);
    payloads::describe(&mut document);
    queries::describe(&mut document);
    audit_and_backup::describe(&mut document);
    charters::describe(&mut document);
    coverage::describe(&mut document);
    proposals::describe(&mut document);
    cluster::describe(&mut document);
    health_and_metrics::describe(&mut document);
    let mut info = Info::new("Leasehold", env!("CARGO_PKG_VERSION"));
    info.description = Some(DESCRIPTION.to_owned());
    info.license = Some(License::builder().name("Apache-2.0").identifier(Some("Apache-2.0")).build());
    OpenApiBuilder::new()
        .info(info)
        .paths(document.paths)
        .components(Some(document.components))
        .security(Some(security))
        .tags(Some(operation::tags()))
        .build()
}

/// A token for examples.
const TOKEN: &str = "lh1-00c0ffee00c0ffee-0badcafe-1122334455667788-w00000003-0258755447193600007-5cc3aa73";
/// The number of that token.
const NUMBER: &str = "258755447193600007";

/// A held lease for examples.
fn lease() -> Value {
    serde_json::json!({
        "resource": "jobs/settle", "lease": "0.0", "holder": "worker-1", "session": null, "token_number": NUMBER,
        "access": "exclusive", "slot": 0, "ttl_ms": 30_000, "remaining_ms": 29_120, "granted_ms": 4_711,
        "validity": "session", "state": "held", "priority": 100
    })
}
