//! The HTTP interface described for machines: every path with what it takes, tells and refuses, as OpenAPI 3.1.

mod about;
mod charters;
mod cluster;
mod describe;
mod fences;
mod leases;
mod looks;
mod past;
mod sessions;

use std::sync::LazyLock;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use leasehold_wire::json::ProblemBody;
use serde_json::Value;
use utoipa::openapi::path::HttpMethod;
use utoipa::openapi::{Components, Info, License, OpenApi, OpenApiBuilder, Paths};
use utoipa::{PartialSchema, ToSchema};

use super::http::{Nothing, Problem, Question};
use describe::Describe;

/// The document, as it is served and committed.
static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    let mut text = described().to_pretty_json().expect("a description is only texts and numbers");
    text.push('\n');
    text
});

/// The document's text.
pub fn document() -> &'static str {
    &DOCUMENT
}

/// `GET /v1/openapi.json`.
pub async fn told(_: Question<Nothing>) -> Result<Response, Problem> {
    Ok(([(header::CONTENT_TYPE, "application/json")], document()).into_response())
}

const ABOUT: &str = "\
Leases with fencing tokens. A lease says who may act, for now; the token in a grant is what a fence compares. Tokens and
token numbers are texts. Durations in requests are texts with a unit, as in `30s`.

A change is safe to send again only under its key (`Idempotency-Key: <session>:<sequence>`): without one there is no retry
protection. Every answer names the journal position that it depends on in `leasehold-position`.

A refusal is `application/problem+json` (RFC 9457) with a stable `code`, the field it is about and the next step. The names
in paths may hold `/`, which can also be written `%2F`. Unknown fields and unknown query keys are refused.";

/// Everything that is described.
#[derive(Default)]
struct Document {
    paths: Paths,
    components: Components,
}

impl Document {
    fn get(&mut self, path: &str, described: Describe) {
        self.add(HttpMethod::Get, path, described);
    }

    fn post(&mut self, path: &str, described: Describe) {
        self.add(HttpMethod::Post, path, described);
    }

    fn add(&mut self, method: HttpMethod, path: &str, described: Describe) {
        let (operation, schemas) = described.finish();
        self.components.schemas.extend(schemas);
        self.paths.add_path_operation(path, vec![method], operation);
    }
}

fn described() -> OpenApi {
    let mut document = Document::default();
    let mut schemas = vec![(ProblemBody::name().into_owned(), ProblemBody::schema())];
    ProblemBody::schemas(&mut schemas);
    document.components.schemas.extend(schemas);
    describe::share(&mut document.components);
    leases::describe(&mut document);
    sessions::describe(&mut document);
    looks::describe(&mut document);
    past::describe(&mut document);
    charters::describe(&mut document);
    fences::describe(&mut document);
    cluster::describe(&mut document);
    about::describe(&mut document);
    let mut info = Info::new("Leasehold", env!("CARGO_PKG_VERSION"));
    info.description = Some(ABOUT.to_owned());
    info.license = Some(License::builder().name("Apache-2.0").identifier(Some("Apache-2.0")).build());
    OpenApiBuilder::new()
        .info(info)
        .paths(document.paths)
        .components(Some(document.components))
        .tags(Some(describe::tags()))
        .build()
}

/// A text that stands where an example needs a token.
const TOKEN: &str = "lh1-00c0ffee00c0ffee-0badcafe-1122334455667788-w00000003-0258755447193600007-5cc3aa73";
/// Its number.
const NUMBER: &str = "258755447193600007";

/// A held lease, as a look shows it.
fn lease() -> Value {
    serde_json::json!({
        "resource": "jobs/settle", "lease": "0.0", "holder": "worker-1", "session": null, "token_number": NUMBER,
        "access": "exclusive", "slot": 0, "ttl_ms": 30_000, "remaining_ms": 29_120, "granted_ms": 4_711,
        "rung": "session", "state": "held", "priority": 100
    })
}
