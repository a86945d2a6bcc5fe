//! Strict extractors of a request's path, query, body and headers.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use leasehold_core::refusal::Refusal;
use leasehold_wire::TokenIssuer;
use leasehold_wire::headers::LEASE_TOKEN;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::api::RequestMetadata;
use crate::transport::HttpProblem;
use crate::transport::error_layer::{body_too_large, invalid};

/// The parameter of a path, decoded from percent-encoding.
pub struct PathName(pub String);

impl<S: Send + Sync> FromRequestParts<S> for PathName {
    type Rejection = HttpProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, HttpProblem> {
        let path = Path::from_request_parts(parts, state).await;
        path.map(|Path(name)| Self(name)).map_err(|rejection| invalid("path", &rejection.body_text()).into())
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
            return Err(invalid("query", "not UTF-8 after percent-decoding; encode % itself as %25").into());
        }
        let query = Query::try_from_uri(&parts.uri).map(|Query(query)| Self(query));
        query.map_err(|rejection| query_problem(&rejection.body_text()))
    }
}

/// Whether each percent sign precedes two hexadecimal digits and the decoded bytes are UTF-8. The library would accept more.
fn is_percent_encoded(mut query: &[u8]) -> bool {
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
    let field = text.split_once('`').filter(|(before, _)| before.ends_with("field "));
    let field = field.and_then(|(_, rest)| rest.split('`').next());
    let (field, reason) = match (field, text.split_once(": ")) {
        (Some(field), _) => (field, text.as_str()),
        (None, Some((field, reason))) => (field, reason),
        (None, None) => ("query", text.as_str()),
    };
    invalid(field, reason).into()
}

/// The body of a request whose content type is JSON or missing.
pub struct JsonBody(Bytes);

impl<S: Send + Sync> FromRequest<S> for JsonBody {
    type Rejection = HttpProblem;

    async fn from_request(request: Request, state: &S) -> Result<Self, HttpProblem> {
        check_content_type(request.headers())?;
        Bytes::from_request(request, state).await.map(Self).map_err(|rejection| {
            let text = rejection.body_text();
            match rejection.into_response().status() {
                StatusCode::PAYLOAD_TOO_LARGE => body_too_large().into(),
                _ => invalid("body", &text).into(),
            }
        })
    }
}

impl JsonBody {
    /// Parses the body strictly.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, HttpProblem> {
        leasehold_wire::json::decode(&self.0).map_err(HttpProblem)
    }
}

/// Accepted content types. `curl -d` sends the second one by default.
const CONTENT_TYPES: [&str; 2] = ["application/json", "application/x-www-form-urlencoded"];

fn check_content_type(headers: &HeaderMap) -> Result<(), HttpProblem> {
    let name = header::CONTENT_TYPE.as_str();
    let Some(kind) = header_text(headers, "content-type")? else {
        return Ok(());
    };
    let mut parts = kind.split(';').map(|part| part.trim().to_ascii_lowercase());
    let kind = parts.next().unwrap_or_default();
    let is_json =
        CONTENT_TYPES.contains(&kind.as_str()) || (kind.starts_with("application/") && kind.ends_with("+json"));
    let charset = parts.find_map(|part| part.strip_prefix("charset=").map(|set| set.trim_matches('"').to_owned()));
    match charset {
        _ if !is_json => Err(invalid(name, "must be application/json").into()),
        Some(set) if set != "utf-8" && set != "utf8" => Err(invalid(name, "the charset of JSON must be UTF-8").into()),
        _ => Ok(()),
    }
}

/// The metadata in the headers of a request.
pub fn metadata(headers: &HeaderMap, issuer: &TokenIssuer) -> Result<RequestMetadata, HttpProblem> {
    Ok(RequestMetadata::parse(issuer, |name| header_text(headers, name))?)
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
