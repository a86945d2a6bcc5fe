//! HTTP endpoints of queues: `POST /v1/queues/{name}:verb`, and the view of a queue.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use leasehold_core::refusal::Refusal;
use leasehold_wire::json::{
    DeliveriesBody, ExtendBody, ExtendedBody, ItemBody, NackBody, NackedBody, QueueBody, ReceiptBody, ReceiveBody,
    SendBody, SentBody,
};
use leasehold_wire::v1;
use leasehold_wire::v1::delivery_answer::Answer as DeliveryAnswer;
use leasehold_wire::v1::request::Operation;
use leasehold_wire::v1::response::Answer;
use serde::Deserialize;

use super::commands::{Charge, check_rate, done, unknown_verb};
use super::extract::{JsonBody, NoQuery, PathName, StrictQuery, metadata};
use super::respond::{HttpResult, WithPosition};
use super::verbs::QueueVerb;
use crate::api::Api;
use crate::api::problems::no_reply;
use crate::transport::HttpProblem;

/// `POST /v1/queues/{name}:verb`.
pub async fn command(
    State(api): State<Api>,
    charge: Charge,
    PathName(path): PathName,
    _: StrictQuery<NoQuery>,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, HttpProblem> {
    let (queue, word) = path.rsplit_once(':').unwrap_or((&path, ""));
    let verb = QueueVerb::from_word(word).ok_or_else(|| unknown_verb("/v1/queues/NAME", word, &QueueVerb::WORDS))?;
    let operation = match verb {
        QueueVerb::Send => body.parse::<SendBody>()?.into_operation(queue)?,
        QueueVerb::Receive => body.parse::<ReceiveBody>()?.into_operation(queue)?,
        QueueVerb::Ack => body.parse::<ReceiptBody>()?.into_operation(queue)?,
        QueueVerb::Nack => body.parse::<NackBody>()?.into_operation(queue)?,
        QueueVerb::Extend => body.parse::<ExtendBody>()?.into_operation(queue)?,
        QueueVerb::Redrive => body.parse::<ItemBody>()?.into_redrive(queue)?,
        QueueVerb::Drop => body.parse::<ItemBody>()?.into_drop(queue)?,
    };
    check_rate(charge, &operation)?;
    let Operation::Delivery(command) = operation else { return Err(no_reply().into()) };
    let (answer, position) = match api.delivery(metadata(&headers, &api)?, command).await? {
        (Answer::Delivery(answer), position) => (answer.answer, position),
        (Answer::Refused(problem), position) => return Ok(HttpProblem(problem).with_position(position)),
        _ => return Err(no_reply().into()),
    };
    Ok(match answer {
        Some(DeliveryAnswer::Enqueued(item)) => {
            WithPosition::new(SentBody { item: item.to_string() }, position).into_response()
        }
        Some(DeliveryAnswer::Received(list)) => {
            WithPosition::new(DeliveriesBody::new(queue, list, &api.issuer), position).into_response()
        }
        Some(DeliveryAnswer::ExtendedMs(remaining_ms)) => {
            WithPosition::new(ExtendedBody { remaining_ms }, position).into_response()
        }
        Some(DeliveryAnswer::ReturnedDead(dead)) => WithPosition::new(NackedBody { dead }, position).into_response(),
        Some(DeliveryAnswer::Acked(_) | DeliveryAnswer::Redriven(_) | DeliveryAnswer::Dropped(_)) => done(position),
        None => return Err(no_reply().into()),
    })
}

/// Parameters of the view of a queue.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueQuery {
    after: String,
    limit: u32,
    min_position: u64,
}

/// `GET /v1/queues/{name}?after=ITEM&limit=&min_position=`: counters and dead letters.
pub async fn show(
    State(api): State<Api>,
    PathName(queue): PathName,
    StrictQuery(QueueQuery { after, limit, min_position }): StrictQuery<QueueQuery>,
) -> HttpResult<QueueBody> {
    let after = match after.as_str() {
        "" => 0,
        text => text.parse().map_err(|_| Refusal::Invalid {
            field: "after",
            reason: "the id of a message, the last one of the previous page",
        })?,
    };
    let request = v1::QueueRequest { queue: queue.clone(), after, limit: Some(limit), min_position };
    let (view, position) = api.queue(request).await?;
    Ok(WithPosition::new(QueueBody::new(queue, view), position))
}
