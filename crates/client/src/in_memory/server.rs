//! The real grantor without a journal: every batch is one turn, decided immediately.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use leasehold_core::command::{Answer, Command, Input, LeaseRef, LeaseSelector, Renew, Request, RequestId};
use leasehold_core::grantor::{Grantor, Output, RecoveredGrantor, TenureOptions};
use leasehold_core::ids::SessionId;
use leasehold_core::lease::Validity;
use leasehold_core::limits::TTL_MAX_DEFAULT;
use leasehold_core::secret::SessionSecret;
use leasehold_core::time::{Instant, Now, WallClock};
use leasehold_core::token::{Cluster, Incarnation, Number};
use leasehold_core::trace_context::TraceContext;
use leasehold_wire::v1::request::Operation as Message;
use leasehold_wire::{
    CommandContext, DecodedCommand, RenewBatchReply, TokenIssuer, encode_event, lease_id, problem, v1, welcome,
};

use super::outbox::MemoryOutbox;
use crate::Error;

/// Where a reply goes.
enum ReplyRoute {
    Request(Arc<MemoryOutbox>, u64, Message),
    RenewalBatch { outbox: Arc<MemoryOutbox>, results: RenewBatchReply, numbers: Vec<u64>, next: usize },
}

/// The grantor and its open streams.
pub(crate) struct MemoryServer {
    grantor: Grantor,
    issuer: TokenIssuer,
    output: Output,
    routes: HashMap<u64, ReplyRoute>,
    sessions: HashMap<SessionId, Arc<MemoryOutbox>>,
    last_tag: u64,
    last_secret: u8,
    /// Lead of the grantor's clock over the holders' clocks, in nanoseconds.
    pub(crate) ahead: u64,
}

impl MemoryServer {
    pub(crate) fn new(at: Instant) -> Self {
        let issuer = TokenIssuer { cluster: Cluster(*b"testing!"), incarnation: Incarnation(1) };
        let options = TenureOptions {
            cluster: issuer.cluster,
            incarnation: issuer.incarnation,
            generation: 1,
            validity: Validity::Session,
            max_ttl: TTL_MAX_DEFAULT,
            restore: None,
        };
        let now = Now { instant: at, wall: wall(at) };
        let mut grantor = RecoveredGrantor::empty(1).open(now, &options).expect("a new cluster can be opened");
        let mut output = Output::default();
        grantor.take_output(&mut output);
        grantor.serve(now);
        Self {
            grantor,
            issuer,
            output,
            routes: HashMap::new(),
            sessions: HashMap::new(),
            last_tag: 0,
            last_secret: 0,
            ahead: 0,
        }
    }

    pub(crate) const fn grantor(&self) -> &Grantor {
        &self.grantor
    }

    pub(crate) const fn issuer(&self) -> TokenIssuer {
        self.issuer
    }

    fn now(&self, at: Instant) -> Now {
        let instant = Instant(at.0 + self.ahead);
        Now { instant, wall: wall(instant) }
    }

    /// Handles a hello.
    pub(super) fn open(
        &mut self,
        at: Instant,
        hello: &v1::hello::Session,
        outbox: &Arc<MemoryOutbox>,
    ) -> Result<v1::Welcome, Error> {
        use v1::hello::Session;
        self.last_secret = self.last_secret.wrapping_add(1);
        let secret = SessionSecret::new([self.last_secret; 32]);
        let (command, new_secret) = match hello {
            Session::Open(open) => (open.command(secret.digest()), Some(&secret)),
            Session::Resume(resume) => (resume.command().map_err(|refusal| Error::from(&refusal))?, None),
        };
        self.grantor.step(self.now(at), &Input::Request(Request::tagged(0), command));
        self.grantor.step(self.now(at), &Input::Tick);
        self.grantor.take_output(&mut self.output);
        let mut session = Err(Error::invalid_reply("no answer to a hello"));
        for reply in std::mem::take(&mut self.output.replies) {
            match reply.answer {
                Answer::Session(grant) if reply.tag == 0 => session = Ok(grant),
                Answer::Refused(refusal) if reply.tag == 0 => session = Err(Error::from(&refusal)),
                other => self.reply(reply.tag, &other),
            }
        }
        self.send_events();
        let grant = session?;
        self.sessions.insert(grant.session, outbox.clone());
        outbox.bind_session(grant.session);
        Ok(welcome(&grant, new_secret, &self.grantor.status()))
    }

    /// Takes one turn over a holder's batch.
    pub(super) fn handle_batch(
        &mut self,
        at: Instant,
        batch: v1::ClientBatch,
        session: SessionId,
        outbox: &Arc<MemoryOutbox>,
    ) {
        let now = self.now(at);
        for renewals in batch.renewals {
            self.last_tag += 1;
            let results = RenewBatchReply::new(renewals.sequence, renewals.leases.len());
            let numbers = renewals.token_numbers.clone();
            let route = ReplyRoute::RenewalBatch { outbox: outbox.clone(), results, numbers, next: 0 };
            self.routes.insert(self.last_tag, route);
            for (lease, number) in renewals.leases.iter().zip(&renewals.token_numbers) {
                let number = Number::new(*number).unwrap_or(Number::FIRST);
                let selector = LeaseSelector::Id(lease_id(*lease));
                let lease = LeaseRef { selector, number, session: Some(session), holder: None };
                let renew = Command::Renew(Renew { lease, ttl_ms: None, progress: None });
                self.grantor.step(now, &Input::Request(Request::tagged(self.last_tag), renew));
            }
        }
        let caller = CommandContext { session: Some(session), issuer: self.issuer };
        for request in batch.requests {
            let Some(operation) = request.operation else { continue };
            self.last_tag += 1;
            let id = RequestId { session, sequence: request.sequence, lowest: batch.lowest_pending.max(1), digest: 0 };
            let trace = request.traceparent.as_deref().and_then(TraceContext::parse);
            let metadata = leasehold_wire::core_request(self.last_tag, &operation, Some(id), None, &self.issuer);
            let metadata = metadata.traced(trace);
            match DecodedCommand::decode(&operation, &caller) {
                Ok(asked) => self.grantor.step(now, &Input::Request(metadata, asked.command())),
                Err(refusal) => {
                    let refused = v1::response::Answer::Refused(Box::new(problem(&refusal)));
                    outbox.respond(request.sequence, refused);
                }
            }
            self.routes.insert(self.last_tag, ReplyRoute::Request(outbox.clone(), request.sequence, operation));
        }
        self.tick(at);
    }

    /// Executes a command without a session and returns its answer.
    pub(crate) fn execute(&mut self, at: Instant, command: Command<'_>) -> Answer {
        self.grantor.step(self.now(at), &Input::Request(Request::tagged(u64::MAX), command));
        self.grantor.step(self.now(at), &Input::Tick);
        self.grantor.take_output(&mut self.output);
        let mut answer = Answer::Done;
        for reply in std::mem::take(&mut self.output.replies) {
            if reply.tag == u64::MAX { answer = reply.answer } else { self.reply(reply.tag, &reply.answer) }
        }
        self.send_events();
        answer
    }

    /// Ends the turn and sends its replies.
    pub(crate) fn tick(&mut self, at: Instant) {
        self.grantor.step(self.now(at), &Input::Tick);
        self.grantor.take_output(&mut self.output);
        for reply in std::mem::take(&mut self.output.replies) {
            self.reply(reply.tag, &reply.answer);
        }
        self.send_events();
    }

    fn reply(&mut self, to: u64, answer: &Answer) {
        match self.routes.remove(&to) {
            Some(ReplyRoute::Request(outbox, sequence, operation)) => {
                let resource = match &operation {
                    Message::Acquire(acquire) => acquire.resource.as_str(),
                    _ => "",
                };
                outbox.respond(sequence, leasehold_wire::encode_answer(answer, &self.issuer, |_| resource, ""));
                if matches!(answer, Answer::Waiting { .. }) {
                    self.routes.insert(to, ReplyRoute::Request(outbox, sequence, operation));
                }
            }
            Some(ReplyRoute::RenewalBatch { outbox, mut results, numbers, next }) => {
                results.record(next, numbers[next], answer);
                if results.is_complete() {
                    outbox.send(v1::ServerBatch { renewals: vec![results.into_message()], ..Default::default() });
                } else {
                    let next = next + 1;
                    self.routes.insert(to, ReplyRoute::RenewalBatch { outbox, results, numbers, next });
                }
            }
            None => {}
        }
    }

    fn send_events(&mut self) {
        for notice in std::mem::take(&mut self.output.notices) {
            if let Some(outbox) = notice.session.and_then(|session| self.sessions.get(&session)) {
                let events = vec![encode_event(&notice.event, 0, "", "")];
                outbox.send(v1::ServerBatch { events, ..Default::default() });
            }
        }
    }
}

impl fmt::Debug for MemoryServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryServer").finish_non_exhaustive()
    }
}

/// The wall clock advances with the manual clock.
const fn wall(at: Instant) -> WallClock {
    WallClock::after_era(50_000_000_000 + at.0 / 1_000_000)
}
