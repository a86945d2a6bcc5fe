//! HTTP endpoints of cached keys: `POST /v1/cache/{key}:verb`.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use leasehold_wire::json::{AbortBody, CacheActorBody, CacheBody, FillBody, GetOrFillBody, IntentBody, ReadLeaseBody};
use leasehold_wire::v1::response::Answer;

use super::commands::{Charge, check_rate, unknown_verb};
use super::extract::{JsonBody, NoQuery, PathName, StrictQuery, metadata};
use super::respond::WithPosition;
use super::verbs::CacheVerb;
use crate::api::Api;
use crate::api::problems::no_reply;
use crate::transport::HttpProblem;

/// `POST /v1/cache/{key}:verb`.
pub async fn command(
    State(api): State<Api>,
    charge: Charge,
    PathName(path): PathName,
    _: StrictQuery<NoQuery>,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, HttpProblem> {
    let (key, word) = path.rsplit_once(':').unwrap_or((&path, ""));
    let verb = CacheVerb::from_word(word).ok_or_else(|| unknown_verb("/v1/cache/KEY", word, &CacheVerb::WORDS))?;
    let operation = match verb {
        CacheVerb::Read => body.parse::<CacheActorBody>()?.into_read(key)?,
        CacheVerb::Renew => body.parse::<ReadLeaseBody>()?.into_renew(key)?,
        CacheVerb::Invalidated => body.parse::<ReadLeaseBody>()?.into_invalidated(key)?,
        CacheVerb::Intend => body.parse::<CacheActorBody>()?.into_intend(key)?,
        CacheVerb::Commit => body.parse::<IntentBody>()?.into_operation(key)?,
        CacheVerb::Abort => body.parse::<AbortBody>()?.into_operation(key)?,
        CacheVerb::GetOrFill => body.parse::<GetOrFillBody>()?.into_operation(key)?,
        CacheVerb::Filled => body.parse::<FillBody>()?.into_operation(key)?,
    };
    check_rate(charge, &operation)?;
    match api.call(metadata(&headers, &api)?, operation).await? {
        (Answer::Cache(answer), position) => Ok(WithPosition::new(CacheBody::from(answer), position).into_response()),
        (Answer::Refused(problem), position) => Ok(HttpProblem(problem).with_position(position)),
        _ => Err(no_reply().into()),
    }
}
