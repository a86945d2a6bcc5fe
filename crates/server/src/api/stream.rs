//! The session stream: batches both ways, one for each process that holds.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use leasehold_core::command::{Answer, Request, RequestId};
use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::refusal::Refusal;
use leasehold_core::token::Token;
use leasehold_wire::{Caller, Code, answer, arrival, event, problem, read_shown, status, v1, welcome};
use prost::Message;
use tonic::{Status, Streaming};

use super::{Api, not_taken, of_library, unanswered};
use crate::clock;
use crate::desk::{Item, Outbox, To, Told};
use crate::inbox::{Ask, Body, NotTaken, Renewals};
use crate::pace::Walk;
use crate::secret;

/// What a stream sends.
pub type Sending = Pin<Box<dyn Stream<Item = Result<v1::ServerBatch, Status>> + Send>>;

/// Opens or resumes a session by the first message, then serves it until the connection ends. The session outlives the
/// connection: whoever comes back with the secret goes on.
pub async fn serve(
    api: Api,
    mut from: Streaming<v1::ClientBatch>,
    patience: Duration,
    walk: Option<Arc<Walk>>,
) -> Result<Sending, Status> {
    let first = tokio::time::timeout(patience, from.message()).await.map_err(|_| status(no_hello()))?;
    let Some(mut first) = first? else {
        return Err(Status::cancelled("the stream ended before its hello"));
    };
    let listening = Listening(Arc::new(Outbox::default()));
    let outbox = &listening.0;
    let hello = first.hello.take().ok_or_else(absent_hello)?;
    let (welcome, session) = greet(&api, &hello, outbox).await.map_err(status)?;
    let caller = Caller { session: Some(session), issuer: api.issuer };
    let reading = Reading { api: api.clone(), caller, outbox: outbox.clone(), walk };
    match reading.take(first).await {
        Ok(()) | Err(Ended::Stopping) => {}
        Err(Ended::Nonsense(refused)) => return Err(status(*refused)),
    }
    tokio::spawn(reading.read_on(from));
    Ok(Box::pin(sending(api, listening, welcome)))
}

/// The one who is sent what an outbox holds. When it goes, nobody listens any more.
struct Listening(Arc<Outbox>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.close();
    }
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
    let ask = Ask::new(request, body, api.caller(), To::Stream(outbox.clone(), 0));
    api.inbox.ask(ask).map_err(not_taken)?;
    // In the same turn, or a slow journal is waited for twice.
    let (items, status) = tokio::join!(outbox.take(), api.look(|grantor| grantor.status()));
    match items.ok_or_else(unanswered)?.list.into_iter().next() {
        Some(Item::Answer(_, Told { answer: Answer::Session(grant), .. })) => {
            Ok((welcome(&grant, told_secret, &status?), grant.session))
        }
        Some(Item::Answer(_, Told { answer: Answer::Refused(refusal), .. })) => Err(problem(&refusal)),
        Some(Item::Goodbye(why)) => Err(*why),
        _ => Err(unanswered()),
    }
}

fn no_hello() -> v1::Problem {
    let told = v1::Problem::of(Code::Timeout, "hello: none came in time; send it first, and at once");
    v1::Problem { field: "hello".into(), ..told }
}

fn absent_hello() -> Status {
    let refusal = Refusal::Invalid { field: "hello", reason: "the first message carries it" };
    status(problem(&refusal))
}

/// Why nothing more is read.
enum Ended {
    /// The client speaks nonsense.
    Nonsense(Box<v1::Problem>),
    /// The server stops. What was asked before is still answered.
    Stopping,
}

impl From<Refusal> for Ended {
    fn from(refusal: Refusal) -> Self {
        Self::Nonsense(problem(&refusal).into())
    }
}

impl From<NotTaken> for Ended {
    fn from(why: NotTaken) -> Self {
        match why {
            NotTaken::Stopping => Self::Stopping,
            NotTaken::Full => Self::Nonsense(not_taken(why).into()),
        }
    }
}

/// The reading half of a stream.
struct Reading {
    api: Api,
    caller: Caller,
    outbox: Arc<Outbox>,
    /// How fast its connection goes.
    walk: Option<Arc<Walk>>,
}

impl Reading {
    async fn read_on(self, mut from: Streaming<v1::ClientBatch>) {
        // A connection that ends or speaks nonsense is closed; the session lives on until its deadline.
        let nonsense = loop {
            let message = tokio::select! {
                message = from.message() => message,
                () = self.outbox.closed() => return,
            };
            match message {
                Ok(Some(batch)) => match self.take(batch).await {
                    Ok(()) => {}
                    Err(Ended::Nonsense(problem)) => break problem,
                    // The last word is the driver's.
                    Err(Ended::Stopping) => return self.outbox.closed().await,
                },
                Ok(None) => return self.outbox.close(),
                Err(status) => match of_library(&status) {
                    Some(nonsense) => break Box::new(nonsense),
                    None => return self.outbox.close(),
                },
            }
        };
        self.outbox.tell(Item::Goodbye(nonsense));
    }

    /// Puts everything a batch asks into the lanes.
    async fn take(&self, batch: v1::ClientBatch) -> Result<(), Ended> {
        if batch.hello.is_some() {
            return Err(Refusal::Invalid { field: "hello", reason: "once, in the first message" }.into());
        }
        let seen = read_shown(&batch.shown, &self.api.issuer)?;
        for renewals in batch.renewals {
            self.renew(renewals).await?;
        }
        if batch.requests.is_empty() {
            return Ok(());
        }
        let mut asks = Vec::with_capacity(batch.requests.len());
        for request in batch.requests {
            match self.let_in(request.ask) {
                Ok(ask) => asks.push(self.ask(request.sequence, ask, batch.lowest, seen)),
                Err(why) => self.outbox.tell(Item::Refused(request.sequence, why)),
            }
        }
        Ok(self.api.inbox.ask_all(asks).await?)
    }

    /// What is asked, if it is something and does not come too often.
    fn let_in(&self, ask: Option<v1::request::Ask>) -> Result<v1::request::Ask, Box<v1::Problem>> {
        use v1::request::Ask::{Cancel, Drained, Progress, Release, Renew, RenewSession};
        let Some(ask) = ask else {
            let reason = "nothing that this version knows was asked";
            return Err(problem(&Refusal::Invalid { field: "ask", reason }).into());
        };
        match (&self.walk, &ask) {
            // What keeps or ends a hold is not counted.
            (_, Renew(_) | RenewSession(_) | Release(_) | Drained(_) | Cancel(_) | Progress(_)) | (None, _) => {}
            (Some(walk), _) => walk.step()?,
        }
        Ok(ask)
    }

    fn ask(&self, sequence: u64, ask: v1::request::Ask, lowest: u64, seen: Option<Token>) -> Ask {
        let session = self.caller.session.expect("a stream has a session");
        let id = RequestId { session, sequence, lowest: lowest.max(1), digest: 0 };
        let request = leasehold_wire::request(0, &ask, Some(id), seen, &self.api.issuer);
        let to = To::Stream(self.outbox.clone(), sequence);
        Ask::new(request, Body::Ask(Box::new(ask)), self.caller, to)
    }

    async fn renew(&self, from: v1::RenewBatch) -> Result<(), Ended> {
        if from.leases.len() != from.numbers.len() || from.leases.len() > leasehold_wire::RENEWALS {
            let reason = "one number for each lease, at most 8192 of them";
            return Err(Refusal::Invalid { field: "renewals", reason }.into());
        }
        let leases: Vec<(LeaseId, u64)> =
            from.leases.iter().map(|bits| leasehold_wire::lease_id(*bits)).zip(from.numbers).collect();
        if !leases.is_empty() {
            let session = self.caller.session.expect("a stream has a session");
            let to = self.outbox.clone();
            self.api.inbox.renew(Renewals { to, session, number: from.sequence, leases }).await?;
        }
        Ok(())
    }
}

/// The sending half: the welcome, then whatever the driver told.
fn sending(
    api: Api,
    listening: Listening,
    welcome: v1::Welcome,
) -> impl Stream<Item = Result<v1::ServerBatch, Status>> + Send {
    let first = v1::ServerBatch { welcome: Some(welcome), ..Default::default() };
    let none = (Vec::new().into_iter(), 0);
    let rest =
        futures::stream::unfold((api, listening, none), |(api, listening, (mut items, mut position))| async move {
            if items.len() == 0 {
                let taken = listening.0.take().await?;
                (items, position) = (taken.list.into_iter(), taken.position);
            }
            let batch = spell(&mut items, position, &api);
            if batch.goodbye.is_some() {
                listening.0.close();
            }
            Some((Ok(batch), (api, listening, (items, position))))
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
            Item::Refused(sequence, problem) => {
                api.meter.refused().at_door(&problem);
                let answer = Some(v1::response::Answer::Refused(problem));
                batch.responses.push(v1::Response { sequence, answer });
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
const SENT_ITEMS: usize = 1 << 9;
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
