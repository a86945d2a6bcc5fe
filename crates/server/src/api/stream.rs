//! The session stream: batches both ways, one for each process that holds.

use std::pin::Pin;
use std::sync::Arc;

use futures::Stream;
use leasehold_core::command::{Answer, Request, RequestId};
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::refusal::Refusal;
use leasehold_core::token::Token;
use leasehold_wire::{Caller, answer, arrival, event, from_status, problem, read_shown, status, v1, welcome};
use prost::Message;
use tonic::{Status, Streaming};

use super::{Api, too_many};
use crate::clock;
use crate::desk::{Item, Outbox, To, Told};
use crate::inbox::{Ask, Body, Renewals};
use crate::secret;

/// What a stream sends.
pub type Sending = Pin<Box<dyn Stream<Item = Result<v1::ServerBatch, Status>> + Send>>;

/// Opens or resumes a session by the first message, then serves it until the connection ends. The session outlives the
/// connection: whoever comes back with the secret goes on.
pub async fn serve(api: Api, mut from: Streaming<v1::ClientBatch>) -> Result<Sending, Status> {
    let Some(first) = from.message().await? else {
        return Err(Status::cancelled("the stream ended before its hello"));
    };
    let outbox = Arc::new(Outbox::default());
    let hello = first.hello.as_ref().ok_or_else(absent_hello)?;
    let (welcome, session) = greet(&api, hello, &outbox).await.map_err(status)?;
    let caller = Caller { session: Some(session), issuer: api.issuer };
    let reading = Reading { api: api.clone(), caller, outbox: outbox.clone() };
    if let Err(refused) = reading.take(first) {
        return Err(status(*refused));
    }
    tokio::spawn(reading.read_on(from));
    Ok(Box::pin(sending(api, outbox, welcome)))
}

async fn greet(api: &Api, hello: &v1::Hello, outbox: &Arc<Outbox>) -> Result<(v1::Welcome, SessionId), v1::Problem> {
    use v1::hello::How;
    let drawn = secret::draw();
    let arrival = arrival(hello, drawn, &api.issuer)?;
    let request = Request { tag: 0, id: None, shown: arrival.seen };
    let (body, told_secret) = match hello.how.clone() {
        Some(How::Open(open)) => (Body::Open(open, drawn), Some(drawn)),
        Some(How::Resume(resume)) => (Body::Resume(resume), None),
        None => return Err(problem(&Refusal::Invalid { field: "how", reason: "open or resume" })),
    };
    if let Some(wall_ms) = arrival.wall_ms {
        api.meter.clocks().holder(wall_ms, clock::now().wall.0);
    }
    let ask = Ask { request, body, caller: api.caller(), to: To::Stream(outbox.clone(), 0) };
    api.inbox.ask(ask).map_err(|_| too_many())?;
    let Some(items) = outbox.take().await else {
        return Err(super::stopping());
    };
    for item in items.list {
        if let Item::Answer(_, told) = item {
            return match told.answer {
                Answer::Session(grant) => {
                    let status = api.look(|grantor| grantor.status()).await?;
                    Ok((welcome(&grant, told_secret, &status), grant.session))
                }
                Answer::Refused(refusal) => Err(problem(&refusal)),
                _ => Err(super::stopping()),
            };
        }
    }
    Err(super::stopping())
}

fn absent_hello() -> Status {
    let refusal = Refusal::Invalid { field: "hello", reason: "the first message carries it" };
    status(problem(&refusal))
}

/// The reading half of a stream.
struct Reading {
    api: Api,
    caller: Caller,
    outbox: Arc<Outbox>,
}

impl Reading {
    async fn read_on(self, mut from: Streaming<v1::ClientBatch>) {
        // A connection that ends or speaks nonsense is closed; the session lives on until its deadline.
        let nonsense = loop {
            match from.message().await {
                Ok(Some(batch)) => {
                    if let Err(problem) = self.take(batch) {
                        break problem;
                    }
                }
                Ok(None) => return self.outbox.close(),
                Err(status) => break Box::new(from_status(&status)),
            }
        };
        self.outbox.tell(Item::Goodbye(nonsense));
    }

    /// Puts everything a batch asks into the lanes.
    fn take(&self, batch: v1::ClientBatch) -> Result<(), Box<v1::Problem>> {
        let seen = read_shown(&batch.shown, &self.api.issuer).map_err(|refusal| problem(&refusal))?;
        for renewals in batch.renewals {
            self.renew(renewals)?;
        }
        if batch.requests.is_empty() {
            return Ok(());
        }
        let mut asks = Vec::with_capacity(batch.requests.len());
        for request in batch.requests {
            match request.ask {
                Some(ask) => asks.push(self.ask(request.sequence, ask, batch.lowest, seen)),
                None => self.refuse_nothing(request.sequence),
            }
        }
        self.api.inbox.ask_all(&mut asks).map_err(|_| too_many().into())
    }

    /// A request of another version, or of none.
    fn refuse_nothing(&self, sequence: u64) {
        let refusal = Refusal::Invalid { field: "ask", reason: "nothing that this version knows was asked" };
        let nothing = Body::Ask(Box::new(v1::request::Ask::ShowToken(v1::ShowToken::default())));
        self.outbox.tell(Item::Answer(sequence, Told { answer: Answer::Refused(refusal), body: nothing, position: 0 }));
    }

    fn ask(&self, sequence: u64, ask: v1::request::Ask, lowest: u64, seen: Option<Token>) -> Ask {
        let session = self.caller.session.expect("a stream has a session");
        let id = RequestId { session, sequence, lowest: lowest.max(1), digest: 0 };
        let request = leasehold_wire::request(0, &ask, Some(id), seen, &self.api.issuer);
        let to = To::Stream(self.outbox.clone(), sequence);
        Ask { request, body: Body::Ask(Box::new(ask)), caller: self.caller, to }
    }

    fn renew(&self, from: v1::RenewBatch) -> Result<(), Box<v1::Problem>> {
        if from.leases.len() != from.numbers.len() || from.leases.len() > leasehold_wire::RENEWALS {
            let reason = "one number for each lease, at most 8192 of them";
            return Err(problem(&Refusal::Invalid { field: "renewals", reason }).into());
        }
        let leases: Vec<(LeaseId, u64)> =
            from.leases.iter().map(|bits| leasehold_wire::lease_id(*bits)).zip(from.numbers).collect();
        if !leases.is_empty() {
            let session = self.caller.session.expect("a stream has a session");
            self.api.inbox.renew(Renewals { to: self.outbox.clone(), session, number: from.sequence, leases });
        }
        Ok(())
    }
}

/// The sending half: the welcome, then whatever the driver told.
fn sending(
    api: Api,
    outbox: Arc<Outbox>,
    welcome: v1::Welcome,
) -> impl Stream<Item = Result<v1::ServerBatch, Status>> + Send {
    let first = v1::ServerBatch { welcome: Some(welcome), ..Default::default() };
    let none = (Vec::new().into_iter(), 0);
    let rest = futures::stream::unfold((api, outbox, none), |(api, outbox, (mut items, mut position))| async move {
        if items.len() == 0 {
            let taken = outbox.take().await?;
            (items, position) = (taken.list.into_iter(), taken.position);
        }
        let batch = spell(&mut items, position, &api);
        if batch.goodbye.is_some() {
            outbox.close();
        }
        Some((Ok(batch), (api, outbox, (items, position))))
    });
    futures::StreamExt::chain(futures::stream::iter([Ok(first)]), rest)
}

/// As much as one message takes; a client that reads is never sent more than it accepts.
fn spell(items: &mut std::vec::IntoIter<Item>, position: u64, api: &Api) -> v1::ServerBatch {
    let mut batch = v1::ServerBatch { position, ..Default::default() };
    let mut room = SENT_BYTES;
    for item in items.by_ref().take(SENT_ITEMS) {
        match item {
            Item::Answer(sequence, told) => {
                let answer = spell_answer(&told, api);
                match &answer {
                    v1::response::Answer::Delivery(delivery) => room = room.saturating_sub(delivery.encoded_len()),
                    v1::response::Answer::Refused(problem) => api.meter.refused().at_door(problem),
                    _ => {}
                }
                batch.responses.push(v1::Response { sequence, answer: Some(answer) });
            }
            Item::Goodbye(problem) => {
                api.meter.refused().at_door(&problem);
                batch.goodbye = Some(*problem);
            }
            Item::Renewed(renewed) => {
                room = room.saturating_sub(8 * renewed.remaining_ms.len() + 128 * renewed.others.len());
                batch.renewed.push(renewed);
            }
            Item::Event(happened, position) => batch.events.push(event(&happened, position, "", "")),
        }
        if room == 0 {
            break;
        }
    }
    batch
}

/// Answers and events of one message.
const SENT_ITEMS: usize = 1 << 12;
/// About how many bytes of large answers go into one message before it leaves.
const SENT_BYTES: usize = 1 << 20;

const _: () = {
    use leasehold_core::limits::{ITEM_BYTES, RECEIVE_BYTES};
    assert!(SENT_ITEMS < leasehold_wire::ANSWER_FIELDS, "a client takes what is sent together");
    assert!(SENT_BYTES + RECEIVE_BYTES + ITEM_BYTES + SENT_ITEMS * 384 <= leasehold_wire::ANSWER_BYTES);
};

/// An answer with its tokens spelled out.
pub fn spell_answer(told: &Told, api: &Api) -> v1::response::Answer {
    let order: Vec<LeaseId> = match &told.answer {
        Answer::GrantedAll(all) => all.iter().map(|grant| grant.lease).collect(),
        _ => Vec::new(),
    };
    let resource = |lease: LeaseId| {
        let index = order.iter().position(|other| *other == lease).unwrap_or(0);
        told.body.resource(index)
    };
    answer(&told.answer, &api.issuer, resource)
}
