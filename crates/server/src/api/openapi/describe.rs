//! One operation in words and types: parameters, body, answer and refusals.

use std::collections::BTreeMap;

use leasehold_wire::headers::{IDEMPOTENCY_KEY, LEASE_TOKEN, POSITION, STANDBY, TOKEN_SEEN};
use leasehold_wire::json::{PROBLEM_TYPE, ProblemBody};
use leasehold_wire::{Code, v1};
use serde_json::Value;
use utoipa::ToSchema;
use utoipa::openapi::example::{Example, ExampleBuilder};
use utoipa::openapi::path::{Operation, OperationBuilder, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{ArrayBuilder, KnownFormat, ObjectBuilder, Schema, SchemaFormat, Type};
use utoipa::openapi::tag::{Tag, TagBuilder};
use utoipa::openapi::{Components, ContentBuilder, HeaderBuilder, Ref, RefOr, Required, ResponseBuilder};

use super::TOKEN;

/// What belongs together.
pub const TAGS: [(&str, &str); 7] = [
    ("leases", "Take, keep, give back and take away."),
    ("sessions", "What carries many leases, and makes retries safe."),
    ("looks", "What is there. Numbers of tokens only: a token is had by holding."),
    ("past", "The audit trail and backups."),
    ("charters", "What is agreed about the resources under a prefix."),
    ("fences", "What targets check, and which zombies they refused."),
    ("server", "For machines that watch this one."),
];

pub fn tags() -> Vec<Tag> {
    TAGS.map(|(name, about)| TagBuilder::new().name(name).description(Some(about)).build()).to_vec()
}

/// An operation that is being described.
pub struct Describe {
    operation: OperationBuilder,
    schemas: Vec<(String, RefOr<Schema>)>,
    refused: Option<Vec<Code>>,
}

/// What every request can meet.
const EVERY: [Code; 4] = [Code::InvalidArgument, Code::ResourceExhausted, Code::Unavailable, Code::Indeterminate];

impl Describe {
    /// What it is called by generators, and what it does in a few words.
    pub fn new(tag: &str, id: &str, summary: &str) -> Self {
        let operation = OperationBuilder::new().tag(tag).operation_id(Some(id)).summary(Some(summary));
        Self { operation, schemas: Vec::new(), refused: None }
    }

    /// What else to know.
    pub fn about(self, text: &str) -> Self {
        Self { operation: self.operation.description(Some(text)), ..self }
    }

    /// The name in the path.
    pub fn path(self, name: &str, about: &str, example: &str) -> Self {
        self.parameter(ParameterIn::Path, name, about, text(), example.into())
    }

    /// A key of the query that is a text.
    pub fn asks(self, name: &str, about: &str, example: &str) -> Self {
        self.parameter(ParameterIn::Query, name, about, text(), example.into())
    }

    /// A key of the query that counts.
    pub fn counts(self, name: &str, about: &str, example: u64) -> Self {
        self.parameter(ParameterIn::Query, name, about, number(), example.into())
    }

    /// A key of the query that is said or not.
    pub fn says(self, name: &str, about: &str) -> Self {
        self.parameter(ParameterIn::Query, name, about, one(Type::Boolean), false.into())
    }

    /// What stands in the headers of every change.
    pub fn changes(self) -> Self {
        self.header(IDEMPOTENCY_KEY).header(TOKEN_SEEN)
    }

    /// A server that stands by may answer it too.
    pub fn may_be_of_standby(self) -> Self {
        self.header(STANDBY)
    }

    /// The token of the lease.
    pub fn shows_token(self) -> Self {
        self.header(LEASE_TOKEN)
    }

    fn header(self, name: &str) -> Self {
        let shared = Ref::new(format!("#/components/parameters/{name}"));
        Self { operation: self.operation.parameter_ref(shared), ..self }
    }

    fn parameter(self, place: ParameterIn, name: &str, about: &str, schema: Schema, example: Value) -> Self {
        Self { operation: self.operation.parameter(parameter(place, name, about, schema, example)), ..self }
    }

    /// What is sent.
    pub fn takes<T: ToSchema>(mut self, needed: bool, example: Value) -> Self {
        let content = ContentBuilder::new().schema(Some(self.refer::<T>())).example(Some(example)).build();
        let needed = if needed { Required::True } else { Required::False };
        let body = RequestBodyBuilder::new().content("application/json", content).required(Some(needed)).build();
        Self { operation: self.operation.request_body(Some(body)), ..self }
    }

    /// What is told as JSON, at a journal position.
    pub fn tells<T: ToSchema>(mut self, about: &str, example: Value) -> Self {
        let schema = self.refer::<T>();
        self.answers(about, schema.into(), example, true)
    }

    /// A list of what is told, at a journal position.
    pub fn tells_all<T: ToSchema>(mut self, about: &str, example: Value) -> Self {
        let schema = ArrayBuilder::new().items(self.refer::<T>()).build();
        self.answers(about, Schema::Array(schema).into(), example, true)
    }

    /// What is told as JSON, of no position.
    pub fn tells_plainly<T: ToSchema>(mut self, about: &str, example: Value) -> Self {
        let schema = self.refer::<T>();
        self.answers(about, schema.into(), example, false)
    }

    fn answers(self, about: &str, schema: RefOr<Schema>, example: Value, positioned: bool) -> Self {
        let content = ContentBuilder::new().schema(Some(schema)).example(Some(example)).build();
        let mut response = ResponseBuilder::new().description(about).content("application/json", content);
        if positioned {
            response = response.header_ref(POSITION, Ref::new(format!("#/components/headers/{POSITION}")));
        }
        Self { operation: self.operation.response("200", response), ..self }
    }

    /// What is told as text or bytes of a kind.
    pub fn gives(self, status: &str, kind: &str, about: &str, example: Option<&str>) -> Self {
        let schema = match kind {
            "application/octet-stream" => binary(),
            "application/json" => one(Type::Object),
            _ => text(),
        };
        let content = ContentBuilder::new().schema(Some(schema)).example(example.map(Into::into)).build();
        let response = ResponseBuilder::new().description(about).content(kind, content);
        Self { operation: self.operation.response(status, response), ..self }
    }

    /// How it is refused, beside what every request can meet.
    pub fn refuses(mut self, codes: &[Code]) -> Self {
        self.refused.get_or_insert_default().extend_from_slice(codes);
        self
    }

    fn refer<T: ToSchema>(&mut self) -> Ref {
        let name = T::name().into_owned();
        T::schemas(&mut self.schemas);
        self.schemas.push((name.clone(), T::schema()));
        Ref::from_schema_name(name)
    }

    pub fn finish(self) -> (Operation, Vec<(String, RefOr<Schema>)>) {
        let mut statuses: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
        for code in self.refused.iter().flat_map(|codes| codes.iter().chain(&EVERY)) {
            let known = statuses.entry(code.http()).or_default();
            if !known.contains(code) {
                known.push(*code);
            }
        }
        let mut operation = self.operation;
        for (status, codes) in statuses {
            operation = operation.response(status.to_string(), problem(&codes));
        }
        (operation.build(), self.schemas)
    }
}

fn parameter(place: ParameterIn, name: &str, about: &str, schema: Schema, example: Value) -> Parameter {
    let required = if matches!(place, ParameterIn::Path) { Required::True } else { Required::False };
    ParameterBuilder::new()
        .name(name)
        .parameter_in(place)
        .required(required)
        .description(Some(about))
        .schema(Some(schema))
        .example(Some(example))
        .build()
}

/// A refusal with one of these codes.
fn problem(codes: &[Code]) -> ResponseBuilder {
    let means: Vec<_> = codes.iter().map(|code| format!("`{}`: {}", code.word(), code.means())).collect();
    let examples = codes.iter().map(|code| {
        let shared = Ref::new(format!("#/components/examples/{}", code.word()));
        (code.word(), RefOr::<Example>::Ref(shared))
    });
    let schema = Ref::from_schema_name(ProblemBody::name());
    let content = ContentBuilder::new().schema(Some(schema)).examples_from_iter(examples).build();
    let response = ResponseBuilder::new().description(means.join(" ")).content(PROBLEM_TYPE, content);
    match codes.iter().any(|code| code.carries().any(|field| field == "retry_after_ms")) {
        true => response.header_ref("retry-after", Ref::new("#/components/headers/retry-after")),
        false => response,
    }
}

/// What operations share: headers, and an example of each refusal.
pub fn share(components: &mut Components) {
    let key = "The session and its own counting of requests, from 1: the same key again gets the same answer. Any other \
               form is refused; without a session there is no key and no retry protection";
    let seen = "The highest token that the caller was granted: a cluster that was rolled back is found by it";
    let token = "The text of the lease's token. It may stand in the body instead; two that differ are refused";
    let standby = "The least journal position from which a server that stands by may answer, 0 for any. Its answer is as \
                   of the position that it names, and renewals that left no record are not in it. Without this only the \
                   leader answers";
    for (name, about, example) in [
        (IDEMPOTENCY_KEY, key, "17.0:42"),
        (TOKEN_SEEN, seen, TOKEN),
        (LEASE_TOKEN, token, TOKEN),
        (STANDBY, standby, "0"),
    ] {
        let shared = parameter(ParameterIn::Header, name, about, text(), example.into());
        components.parameters.insert(name.into(), shared.into());
    }
    let position = "The journal position that the answer depends on; it is durable";
    for (name, about) in [(POSITION, position), ("retry-after", "In how many seconds to ask again, where it is known")]
    {
        let header = HeaderBuilder::new().schema(Some(number())).description(Some(about)).build();
        components.headers.insert(name.into(), header.into());
    }
    for code in Code::ALL {
        let told = ProblemBody::from(v1::Problem::of(*code, code.means()));
        let value = serde_json::to_value(told).expect("a body has only texts for keys");
        let example = ExampleBuilder::new().summary(code.means()).value(Some(value)).build();
        components.examples.insert(code.word().into(), example.into());
    }
}

fn one(kind: Type) -> Schema {
    Schema::Object(ObjectBuilder::new().schema_type(kind).build())
}

fn text() -> Schema {
    one(Type::String)
}

fn number() -> Schema {
    let format = SchemaFormat::KnownFormat(KnownFormat::Int64);
    let least = Some(0.0);
    Schema::Object(ObjectBuilder::new().schema_type(Type::Integer).format(Some(format)).minimum(least).build())
}

fn binary() -> Schema {
    let format = SchemaFormat::KnownFormat(KnownFormat::Binary);
    Schema::Object(ObjectBuilder::new().schema_type(Type::String).format(Some(format)).build())
}

/// How many there may be on a page.
pub const PAGE: &str = "At most so many; 0 for as many as a page has, which is 1000";
/// A read that is not older than what the caller has seen.
pub const LEAST: &str = "Not older than this journal position; a server that is not there yet refuses";
/// A resource in a path.
pub const NAME: &str = "The resource";
