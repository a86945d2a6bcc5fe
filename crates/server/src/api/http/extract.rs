//! Strict extractors of a request's path, query, body and headers.

use axum::body::{Bytes, HttpBody};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use leasehold_core::refusal::Refusal;
use leasehold_wire::headers::LEASE_TOKEN;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::api::{Api, RequestMetadata};
use crate::transport::HttpProblem;
use crate::transport::error_layer::{NOT_COMPRESSED, body_too_large, invalid, is_compressed};

/// The parameter of a path, decoded from percent-encoding.
pub struct PathName(pub String);

impl<S: Send + Sync> FromRequestParts<S> for PathName {
    type Rejection = HttpProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, HttpProblem> {
        if !is_percent_encoded(parts.uri.path().as_bytes()) {
            return Err(invalid("path", NOT_PERCENT_ENCODED).into());
        }
        let path = Path::from_request_parts(parts, state).await;
        path.map(|Path(name)| Self(name)).map_err(|_| invalid("path", NOT_PERCENT_ENCODED).into())
    }
}

/// The query of a request. A parameter that is unknown, repeated or of the wrong type is refused by name.
pub struct StrictQuery<T>(pub T);

/// A query without parameters.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoQuery {}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for StrictQuery<T> {
    type Rejection = HttpProblem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, HttpProblem> {
        if !is_percent_encoded(parts.uri.query().unwrap_or_default().as_bytes()) {
            return Err(invalid("query", NOT_PERCENT_ENCODED).into());
        }
        let query = Query::try_from_uri(&parts.uri).map(|Query(query)| Self(query));
        query.map_err(|rejection| query_problem(&rejection.body_text()))
    }
}

/// The fields of a form, as strict as a query: a field that is unknown, repeated or of the wrong type is refused by name.
pub fn form_fields<T: DeserializeOwned>(headers: &HeaderMap, body: &[u8]) -> Result<T, HttpProblem> {
    let kind = header_text(headers, "content-type")?.unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if kind != "application/x-www-form-urlencoded" {
        return Err(invalid("content-type", "must be application/x-www-form-urlencoded").into());
    }
    // A number sign would end the address that the fields are parsed as.
    let is_encoded = body.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'#') && is_percent_encoded(body);
    let text = std::str::from_utf8(body).ok().filter(|_| is_encoded);
    let uri = text.and_then(|text| format!("/?{text}").parse::<Uri>().ok());
    let uri = uri.ok_or_else(|| invalid("body", NOT_PERCENT_ENCODED))?;
    Query::try_from_uri(&uri).map(|Query(fields)| fields).map_err(|rejection| query_problem(&rejection.body_text()))
}

const NOT_PERCENT_ENCODED: &str = "not UTF-8 after percent-decoding; encode % itself as %25";

/// Whether each percent sign precedes two hexadecimal digits and the decoded bytes are UTF-8. The library would accept more.
pub fn is_percent_encoded(mut query: &[u8]) -> bool {
    let mut bytes = Vec::with_capacity(query.len());
    while let Some((byte, rest)) = query.split_first() {
        query = rest;
        let byte = match (byte, rest) {
            (b'%', [high, low, after @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                query = after;
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).expect("two ASCII digits");
                u8::from_str_radix(digits, 16).expect("two hexadecimal digits")
            }
            (b'%', _) => return false,
            _ => *byte,
        };
        bytes.push(byte);
    }
    String::from_utf8(bytes).is_ok()
}

/// Finds the parameter in the library's text, which is `…query string: PARAMETER: reason` or contains ``field `PARAMETER` ``.
fn query_problem(text: &str) -> HttpProblem {
    let text = text.split_once("query string: ").map_or(text, |(_, text)| text);
    let text: String = text.chars().filter(|c| !c.is_control()).take(300).collect();
    let mut quoted = text.split('`').skip(1).step_by(2);
    let field = quoted.next().filter(|_| text.contains("field `"));
    let field = field.or_else(|| text.split_once(": ").map(|(field, _)| field)).filter(|field| !field.is_empty());
    let field = field.unwrap_or("query");
    let allowed = quoted.map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
    let unknown = match allowed.as_str() {
        "" => "unknown field; no parameter is allowed".to_owned(),
        allowed => format!("unknown field; allowed are {allowed}"),
    };
    let reasons = [
        ("unknown field", unknown.as_str()),
        ("duplicate field", "duplicate field; send it once"),
        ("missing field", "required"),
        ("`true`", "must be true or false"),
        ("too large", "the number is too large"),
        ("digit", "must be a whole number"),
        ("empty string", "must be a whole number"),
    ];
    let reason =
        reasons.into_iter().find(|(part, _)| text.contains(part)).map_or("invalid value", |(_, reason)| reason);
    invalid(field, reason).into()
}

/// The body of a request, which is JSON and says so. The type that `curl -d` states is accepted too, unless a browser sent the request:
/// a web page could send commands as a form.
pub struct JsonBody(Bytes);

impl<S: Send + Sync> FromRequest<S> for JsonBody {
    type Rejection = HttpProblem;

    async fn from_request(request: Request, state: &S) -> Result<Self, HttpProblem> {
        let (head, body) = request.into_parts();
        if !body.is_end_stream() {
            check_content_type(&head.headers)?;
        }
        Bytes::from_request(Request::from_parts(head, body), state).await.map(Self).map_err(|rejection| match rejection
            .into_response()
            .status()
        {
            StatusCode::PAYLOAD_TOO_LARGE => body_too_large().into(),
            _ => invalid("body", "cannot be read to its end").into(),
        })
    }
}

impl JsonBody {
    /// Parses the body strictly. It is dropped with that, because a request may then wait for long.
    pub fn parse<T: DeserializeOwned>(self) -> Result<T, HttpProblem> {
        leasehold_wire::json::decode(&self.0).map_err(HttpProblem)
    }
}

/// Passes a request on if it has no body, for endpoints that take none.
pub async fn no_body(request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    HttpProblem::from(invalid("body", "not allowed here; send the request without a body")).into_response()
}

fn check_content_type(headers: &HeaderMap) -> Result<(), HttpProblem> {
    if is_compressed(headers, "content-encoding") {
        return Err(invalid("content-encoding", NOT_COMPRESSED).into());
    }
    let name = header::CONTENT_TYPE.as_str();
    let kind = header_text(headers, "content-type")?.unwrap_or_default();
    let mut parts = kind.split(';').map(|part| part.trim().to_ascii_lowercase());
    let kind = parts.next().unwrap_or_default();
    let is_json = kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"));
    let is_page = headers.contains_key(header::ORIGIN) || headers.contains_key("sec-fetch-site");
    let is_accepted = is_json || (kind == "application/x-www-form-urlencoded" && !is_page);
    let charset = parts.find_map(|part| part.strip_prefix("charset=").map(|set| set.trim_matches('"').to_owned()));
    match charset {
        _ if !is_accepted => Err(invalid(name, "must be application/json for a body; with curl, use --json").into()),
        Some(set) if set != "utf-8" && set != "utf8" => Err(invalid(name, "the charset of JSON must be UTF-8").into()),
        _ => Ok(()),
    }
}

/// The metadata in the headers of a request.
pub fn metadata(headers: &HeaderMap, api: &Api) -> Result<RequestMetadata, HttpProblem> {
    Ok(RequestMetadata::parse(api, |name| header_text(headers, name))?)
}

/// Moves the token from the header into `body`. Two different tokens are refused.
pub fn token(headers: &HeaderMap, body: &mut String) -> Result<(), HttpProblem> {
    let Some(header) = header_text(headers, LEASE_TOKEN)? else {
        return Ok(());
    };
    if !body.is_empty() && body != header {
        let reason = "differs from the token in the body; send only one";
        return Err(Refusal::Invalid { field: LEASE_TOKEN, reason }.into());
    }
    *body = header.to_owned();
    Ok(())
}

fn header_text<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<Option<&'a str>, Refusal> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(_), Some(_)) => Err(Refusal::Invalid { field: name, reason: "repeated; send it once" }),
        (Some(value), None) => {
            value.to_str().map(Some).map_err(|_| Refusal::Invalid { field: name, reason: "must be plain text" })
        }
    }
}
