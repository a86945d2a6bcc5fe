//! Specification of one operation: parameters, body, response and problems.

use std::collections::BTreeMap;

use leasehold_wire::headers::{
    ALONE, IDEMPOTENCY_KEY, LEASE_SECRET, LEASE_TOKEN, POSITION, SESSION_SECRET, STANDBY, TOKEN_SEEN,
    TOKEN_SEEN_RESOURCE, TRACEPARENT,
};
use leasehold_wire::json::{BODY_TOO_LARGE, PROBLEM_TYPE, ProblemBody};
use leasehold_wire::{Code, v1};
use serde_json::Value;
use utoipa::ToSchema;
use utoipa::openapi::example::{Example, ExampleBuilder};
use utoipa::openapi::path::{Operation, OperationBuilder, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{ArrayBuilder, KnownFormat, ObjectBuilder, Schema, SchemaFormat, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::tag::{Tag, TagBuilder};
use utoipa::openapi::{Components, ContentBuilder, HeaderBuilder, Ref, RefOr, Required, ResponseBuilder};

use super::TOKEN;

/// Groups of operations.
pub const TAGS: [(&str, &str); 10] = [
    ("leases", "Acquire, renew, release and revoke leases."),
    ("sessions", "Sessions own many leases and make retries safe."),
    ("queues", "Messages with visibility timeouts, receipts and dead letters."),
    ("state", "Small values that are written under a lease."),
    ("cache", "Read leases on cached copies, and writes that wait for them."),
    ("queries", "Read the current state. Only token numbers are shown; the token itself belongs to its holder."),
    ("history", "The audit log and backups."),
    ("charters", "Rules for the resources under a prefix."),
    ("coverage", "Reports of fences, and the targets that a lease covers."),
    ("server", "Health, metrics and cluster status."),
];

pub fn tags() -> Vec<Tag> {
    TAGS.map(|(name, about)| TagBuilder::new().name(name).description(Some(about)).build()).to_vec()
}

/// Specification of an operation.
pub struct OperationSpec {
    operation: OperationBuilder,
    schemas: Vec<(String, RefOr<Schema>)>,
    problems: Vec<Code>,
    has_body: bool,
}

/// Problems of callers that are not known or may not send a request; without access rules and TLS they do not occur.
const ACCESS_PROBLEMS: [Code; 2] = [Code::Unauthenticated, Code::PermissionDenied];
/// Problems of every operation whose problems are documents.
const COMMON_PROBLEMS: [Code; 4] =
    [Code::InvalidArgument, Code::ResourceExhausted, Code::Unavailable, Code::Indeterminate];

impl OperationSpec {
    /// An operation with its id for code generators and its summary.
    pub fn new(tag: &str, id: &str, summary: &str) -> Self {
        let operation = OperationBuilder::new().tag(tag).operation_id(Some(id)).summary(Some(summary));
        Self { operation, schemas: Vec::new(), problems: Vec::new(), has_body: false }
    }

    /// A longer description.
    pub fn description(self, text: &str) -> Self {
        Self { operation: self.operation.description(Some(text)), ..self }
    }

    /// A parameter in the path.
    pub fn path(self, name: &str, about: &str, example: &str) -> Self {
        self.parameter(ParameterIn::Path, name, about, text(), example.into())
    }

    /// A query parameter of type string.
    pub fn text_parameter(self, name: &str, about: &str, example: &str) -> Self {
        self.parameter(ParameterIn::Query, name, about, text(), example.into())
    }

    /// A query parameter of type integer.
    pub fn number_parameter(self, name: &str, about: &str, example: u64) -> Self {
        self.parameter(ParameterIn::Query, name, about, number(), example.into())
    }

    /// A query parameter of type boolean.
    pub fn flag_parameter(self, name: &str, about: &str) -> Self {
        self.parameter(ParameterIn::Query, name, about, one(Type::Boolean), false.into())
    }

    /// The headers of every command.
    pub fn command_headers(self) -> Self {
        self.header(IDEMPOTENCY_KEY)
            .header(SESSION_SECRET)
            .header(TOKEN_SEEN)
            .header(TOKEN_SEEN_RESOURCE)
            .header(TRACEPARENT)
    }

    /// The header of a command that needs two identities where the access file lists it, and what it is answered then.
    pub fn may_need_approval(self) -> Self {
        self.header(ALONE).problems(&[Code::ApprovalRequired, Code::PermissionDenied])
    }

    /// The header with the secret of a delivery or of a grant of a cached key.
    pub fn lease_secret_header(self) -> Self {
        self.header(LEASE_SECRET)
    }

    /// The header with the secret of a session.
    pub fn session_secret_header(self) -> Self {
        self.header(SESSION_SECRET)
    }

    /// The header with which a standby answers it too.
    pub fn served_by_standby(self) -> Self {
        self.header(STANDBY)
    }

    /// The headers with the token and the secret of the lease.
    pub fn token_header(self) -> Self {
        self.header(LEASE_TOKEN).header(LEASE_SECRET)
    }

    fn header(self, name: &str) -> Self {
        let shared = Ref::new(format!("#/components/parameters/{name}"));
        Self { operation: self.operation.parameter_ref(shared), ..self }
    }

    fn parameter(self, place: ParameterIn, name: &str, about: &str, schema: Schema, example: Value) -> Self {
        Self { operation: self.operation.parameter(parameter(place, name, about, schema, example)), ..self }
    }

    /// The request body.
    pub fn body<T: ToSchema>(mut self, required: bool, example: Value) -> Self {
        let content = ContentBuilder::new().schema(Some(self.refer::<T>())).example(Some(example)).build();
        let required = if required { Required::True } else { Required::False };
        let body = RequestBodyBuilder::new().content("application/json", content).required(Some(required)).build();
        Self { operation: self.operation.request_body(Some(body)), has_body: true, ..self }
    }

    /// A JSON response with a journal position.
    pub fn responds<T: ToSchema>(mut self, about: &str, example: Value) -> Self {
        let schema = self.refer::<T>();
        self.respond(about, schema.into(), example, true)
    }

    /// A JSON list with a journal position.
    pub fn responds_list<T: ToSchema>(mut self, about: &str, example: Value) -> Self {
        let schema = ArrayBuilder::new().items(self.refer::<T>()).build();
        self.respond(about, Schema::Array(schema).into(), example, true)
    }

    /// A JSON response without a journal position.
    pub fn responds_unpositioned<T: ToSchema>(mut self, about: &str, example: Value) -> Self {
        let schema = self.refer::<T>();
        self.respond(about, schema.into(), example, false)
    }

    fn respond(self, about: &str, schema: RefOr<Schema>, example: Value, positioned: bool) -> Self {
        let content = ContentBuilder::new().schema(Some(schema)).example(Some(example)).build();
        let mut response = ResponseBuilder::new().description(about).content("application/json", content);
        if positioned {
            response = response.header_ref(POSITION, Ref::new(format!("#/components/headers/{POSITION}")));
        }
        Self { operation: self.operation.response("200", response), ..self }
    }

    /// A response of another content type.
    pub fn responds_raw(self, status: &str, kind: &str, about: &str, example: Option<&str>) -> Self {
        let schema = match kind {
            "application/octet-stream" => binary(),
            "application/json" => one(Type::Object),
            _ => text(),
        };
        let content = ContentBuilder::new().schema(Some(schema)).example(example.map(Into::into)).build();
        let response = ResponseBuilder::new().description(about).content(kind, content);
        Self { operation: self.operation.response(status, response), ..self }
    }

    /// Problems of this operation, in addition to those of every operation.
    pub fn problems(mut self, codes: &[Code]) -> Self {
        self.problems.extend(codes.iter().chain(&COMMON_PROBLEMS));
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
        for code in self.problems.iter().chain(&ACCESS_PROBLEMS) {
            let known = statuses.entry(code.http()).or_default();
            if !known.contains(code) {
                known.push(*code);
            }
        }
        if self.has_body {
            statuses.insert(BODY_TOO_LARGE, vec![Code::ResourceExhausted]);
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

/// A response with one of these codes.
fn problem(codes: &[Code]) -> ResponseBuilder {
    let means: Vec<_> = codes.iter().map(|code| format!("`{}`: {}", code.word(), code.meaning())).collect();
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

/// Adds the shared components: headers, and an example of each problem.
pub fn share(components: &mut Components) {
    let key = "`<session>:<sequence>`, where the session counts its requests from 1, or 16 to 128 visible ASCII characters that the \
               client makes, for example a UUID. A retry with the same body and key gets the same response; a key of the client is \
               kept for 10 minutes after its last use. `receive`, opening a session and a wait in a session take no key of the client. Without \
               a key a retry is not detected";
    let seen = "The highest token that the caller has received; it detects a cluster that was rolled back";
    let seen_resource = "The resource of that token, percent-encoded. Where access is restricted, only a sealed token with its \
                         resource counts";
    let token = "The token of the lease. It may be in the body instead; two different tokens are refused";
    let lease_secret = "The field `secret` of the grant. A server with access rules requires it, or the secret of the session that \
                        carries the lease";
    let session_secret = "The field `secret` of the opened session. A server with access rules requires it for a request in the \
                          session and for a key of the session";
    let standby = "The lowest journal position that a standby may answer from, 0 for any. The response is valid as of the \
                   position it names and does not contain renewals that were not recorded. Without this header only the \
                   leader answers";
    let alone = "Why the command is executed without the approval of a second identity. Only for identities that the access file \
                 lets act alone; the reason is logged and recorded. Percent-encoded where it is not plain ASCII";
    let trace = "The operation of a distributed trace that makes the request (W3C Trace Context). It is kept in the audit log, and the \
                 hold becomes a span below it. An invalid one is ignored";
    for (name, about, example) in [
        (IDEMPOTENCY_KEY, key, "17.0:42"),
        (TOKEN_SEEN, seen, TOKEN),
        (TOKEN_SEEN_RESOURCE, seen_resource, "db/orders"),
        (LEASE_TOKEN, token, TOKEN),
        (LEASE_SECRET, lease_secret, "00112233445566778899aabbccddeeff"),
        (SESSION_SECRET, session_secret, &"00112233445566778899aabbccddeeff".repeat(2)),
        (STANDBY, standby, "0"),
        (ALONE, alone, "the site is down and no approver answers"),
        (TRACEPARENT, trace, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    ] {
        let shared = parameter(ParameterIn::Header, name, about, text(), example.into());
        components.parameters.insert(name.into(), shared.into());
    }
    let position = "The durable journal position that the response depends on";
    for (name, about) in [(POSITION, position), ("retry-after", "Seconds after which to retry, if known")] {
        let header = HeaderBuilder::new().schema(Some(number())).description(Some(about)).build();
        components.headers.insert(name.into(), header.into());
    }
    for code in Code::ALL {
        let body = ProblemBody::from(v1::Problem::of(*code, code.meaning()));
        let value = serde_json::to_value(body).expect("all keys are strings");
        let example = ExampleBuilder::new().summary(code.meaning()).value(Some(value)).build();
        components.examples.insert(code.word().into(), example.into());
    }
}

/// How callers prove who they are. Either is enough, and both must name the same principal; a server without access rules needs none.
pub fn security(components: &mut Components) -> Vec<SecurityRequirement> {
    const CERTIFICATE: &str = "clientCertificate";
    const BEARER: &str = "bearerToken";
    let certificate = "A client certificate over TLS 1.3 with one URI or DNS name, of a CA in the server's `client_ca`";
    let certificate =
        SecurityScheme::MutualTls { description: Some(certificate.to_owned()), deprecated: None, extensions: None };
    components.add_security_scheme(CERTIFICATE, certificate);
    let bearer = "A token of `leasehold bearer create` (`lhb1_…`), or a JWT of a configured issuer. Accepted over TLS, from the same \
                  machine and over the unix socket only";
    let bearer =
        HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("lhb1 or JWT").description(Some(bearer));
    components.add_security_scheme(BEARER, SecurityScheme::Http(bearer.build()));
    let none: [&str; 0] = [];
    vec![
        SecurityRequirement::new(CERTIFICATE, none),
        SecurityRequirement::new(BEARER, none),
        // From the same machine: the unix socket proves the user, and a server without access rules asks for nothing.
        SecurityRequirement::default(),
    ]
}

fn one(kind: Type) -> Schema {
    Schema::Object(ObjectBuilder::new().schema_type(kind).build())
}

fn text() -> Schema {
    one(Type::String)
}

fn number() -> Schema {
    let format = SchemaFormat::KnownFormat(KnownFormat::Int64);
    Schema::Object(ObjectBuilder::new().schema_type(Type::Integer).format(Some(format)).minimum(Some(0.0)).build())
}

fn binary() -> Schema {
    let format = SchemaFormat::KnownFormat(KnownFormat::Binary);
    Schema::Object(ObjectBuilder::new().schema_type(Type::String).format(Some(format)).build())
}

/// Description of the parameter `limit`.
pub const LIMIT: &str = "Maximum number of entries; 0 for the maximum of 1000";
/// Description of the parameter `min_position`.
pub const MIN_POSITION: &str =
    "Lowest journal position that the response may depend on; refused if the server has not reached it";
/// Description of a resource in a path.
pub const NAME: &str = "Name of the resource";
