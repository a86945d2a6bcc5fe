//! What a request brings beside its path, read strictly: its query, its body and its headers.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use leasehold_core::refusal::Refusal;
use leasehold_wire::headers::{IDEMPOTENCY_KEY, Key, LEASE_TOKEN, TOKEN_SEEN};
use leasehold_wire::{Code, Issuer, read_shown, v1};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::told::Problem;
use crate::api::Marks;

/// What a query asks. A key that is not known, given twice or of another kind is refused by its name.
pub struct Question<T>(pub T);

/// Nothing may be asked by the query.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Question<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        if !is_text(parts.uri.query().unwrap_or_default().as_bytes()) {
            return Err(refused("query", "not UTF-8 text behind its percent signs; write % itself as %25"));
        }
        let read = Query::try_from_uri(&parts.uri).map(|Query(asked)| Self(asked));
        read.map_err(|wrong| not_read(&wrong.body_text()))
    }
}

/// Whether every percent sign stands before two digits, and all together are text. What reads a query below would take
/// anything else for something.
fn is_text(mut query: &[u8]) -> bool {
    let mut bytes = Vec::with_capacity(query.len());
    while let Some((byte, rest)) = query.split_first() {
        query = rest;
        let byte = match (byte, rest) {
            (b'%', [high, low, after @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                query = after;
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).expect("two digits");
                u8::from_str_radix(digits, 16).expect("two digits of a byte")
            }
            (b'%', _) => return false,
            _ => *byte,
        };
        bytes.push(byte);
    }
    String::from_utf8(bytes).is_ok()
}

/// The library below says `…query string: KEY: what is wrong`.
fn not_read(said: &str) -> Problem {
    let said = said.split_once("query string: ").map_or(said, |(_, said)| said);
    let said: String = said.chars().filter(|c| !c.is_control()).take(300).collect();
    let named = said.split_once('`').filter(|(before, _)| before.ends_with("field "));
    let named = named.and_then(|(_, rest)| rest.split('`').next());
    let (key, reason) = match (named, said.split_once(": ")) {
        (Some(key), _) => (key, said.as_str()),
        (None, Some((key, reason))) => (key, reason),
        (None, None) => ("query", said.as_str()),
    };
    refused(key, reason)
}

fn refused(field: &str, reason: &str) -> Problem {
    let told = v1::Problem::of(Code::InvalidArgument, format!("{field}: {reason}"));
    v1::Problem { field: field.into(), reason: reason.into(), ..told }.into()
}

/// The body of a request, whose type says nothing else than JSON.
pub struct Sent(Bytes);

impl<S: Send + Sync> FromRequest<S> for Sent {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        is_json(request.headers()).map_err(IntoResponse::into_response)?;
        Bytes::from_request(request, state).await.map(Self).map_err(IntoResponse::into_response)
    }
}

impl Sent {
    /// Reads it, strictly.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        leasehold_wire::json::read(&self.0).map_err(Problem)
    }
}

/// Whoever says nothing is taken to send JSON, and so is curl, whose `-d` says that it sends a form.
const KINDS: [&str; 2] = ["application/json", "application/x-www-form-urlencoded"];

fn is_json(headers: &HeaderMap) -> Result<(), Problem> {
    let name = header::CONTENT_TYPE.as_str();
    let Some(kind) = text(headers, "content-type")? else {
        return Ok(());
    };
    let mut parts = kind.split(';').map(|part| part.trim().to_ascii_lowercase());
    let kind = parts.next().unwrap_or_default();
    let is_known = KINDS.contains(&kind.as_str()) || (kind.starts_with("application/") && kind.ends_with("+json"));
    let charset = parts.find_map(|part| part.strip_prefix("charset=").map(|set| set.trim_matches('"').to_owned()));
    match charset {
        _ if !is_known => Err(refused(name, "application/json is read here; send JSON, and say so")),
        Some(set) if set != "utf-8" && set != "utf8" => Err(refused(name, "JSON is UTF-8; send no other charset")),
        _ => Ok(()),
    }
}

/// What stands in the headers of a request.
pub fn marks(headers: &HeaderMap, issuer: &Issuer) -> Result<Marks, Problem> {
    let key = match text(headers, IDEMPOTENCY_KEY)? {
        None => None,
        Some(key) => Some(Key::parse(key).map_err(|_| Refusal::Invalid {
            field: IDEMPOTENCY_KEY,
            reason: "<session>:<sequence>, as in 17.0:42; without a session there is no retry protection",
        })?),
    };
    let seen = read_shown(text(headers, TOKEN_SEEN)?.unwrap_or_default(), issuer)?;
    Ok(Marks { key, seen })
}

/// The token in the header, or in the body; two that differ are refused.
pub fn token(headers: &HeaderMap, body: &mut String) -> Result<(), Problem> {
    let Some(header) = text(headers, LEASE_TOKEN)? else {
        return Ok(());
    };
    if !body.is_empty() && body != header {
        return Err(
            Refusal::Invalid { field: LEASE_TOKEN, reason: "differs from the token in the body; send one" }.into()
        );
    }
    *body = header.to_owned();
    Ok(())
}

fn text<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<Option<&'a str>, Problem> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(_), Some(_)) => Err(Refusal::Invalid { field: name, reason: "given twice; send one" }.into()),
        (Some(value), None) => match value.to_str() {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(Refusal::Invalid { field: name, reason: "plain text" }.into()),
        },
    }
}
