//! The real grantor, stepped where it is asked: one batch, one turn, nothing kept.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use leasehold_core::command::{Answer, Command, Held, Input, Renew, Request, RequestId, Which};
use leasehold_core::grantor::{Grantor, Opening, Output, Recovered};
use leasehold_core::ids::SessionId;
use leasehold_core::lease::Rung;
use leasehold_core::limits::TTL_MAX_DEFAULT;
use leasehold_core::time::{Instant, Now, Wall};
use leasehold_core::token::{Cluster, Incarnation, Number};
use leasehold_wire::v1::request::Ask as Message;
use leasehold_wire::{Asked, Caller, Issuer, Renewals, answer, event, lease_id, problem, v1, welcome};

use super::Connection;
use crate::Error;

/// Who waits for an answer.
enum Waiting {
    One(Arc<Connection>, u64, Message),
    Many { to: Arc<Connection>, told: Renewals, numbers: Vec<u64>, at: usize },
}

pub(super) struct World {
    grantor: Grantor,
    issuer: Issuer,
    output: Output,
    waiting: HashMap<u64, Waiting>,
    sessions: HashMap<SessionId, Arc<Connection>>,
    tags: u64,
    secrets: u8,
    /// How far the grantor's clock is ahead of the holders', in nanoseconds.
    pub(super) ahead: u64,
}

impl World {
    pub(super) fn new(at: Instant) -> Self {
        let issuer = Issuer { cluster: Cluster(*b"testing!"), incarnation: Incarnation(1) };
        let opening = Opening {
            cluster: issuer.cluster,
            incarnation: issuer.incarnation,
            generation: 1,
            rung: Rung::Session,
            max_ttl: TTL_MAX_DEFAULT,
            restore: None,
        };
        let now = Now { instant: at, wall: wall(at) };
        let mut grantor = Recovered::empty(1).open(now, &opening).expect("a new cluster can be opened");
        let mut output = Output::default();
        grantor.take_output(&mut output);
        grantor.serve(now);
        Self {
            grantor,
            issuer,
            output,
            waiting: HashMap::new(),
            sessions: HashMap::new(),
            tags: 0,
            secrets: 0,
            ahead: 0,
        }
    }

    pub(super) const fn grantor(&self) -> &Grantor {
        &self.grantor
    }

    pub(super) const fn issuer(&self) -> Issuer {
        self.issuer
    }

    fn now(&self, at: Instant) -> Now {
        let instant = Instant(at.0 + self.ahead);
        Now { instant, wall: wall(instant) }
    }

    /// Answers a hello.
    pub(super) fn open(
        &mut self,
        at: Instant,
        how: &v1::hello::How,
        to: &Arc<Connection>,
    ) -> Result<v1::Welcome, Error> {
        use v1::hello::How;
        self.secrets = self.secrets.wrapping_add(1);
        let secret = [self.secrets; 32];
        let (command, told) = match how {
            How::Open(open) => (open.command(secret), Some(secret)),
            How::Resume(resume) => (resume.command().map_err(|refusal| Error::from(&refusal))?, None),
        };
        self.grantor.step(self.now(at), &Input::Asked(Request::tagged(0), command));
        self.grantor.step(self.now(at), &Input::Tick);
        self.grantor.take_output(&mut self.output);
        let mut told_session = Err(Error::garbled("no answer to a hello"));
        let replies = std::mem::take(&mut self.output.replies);
        for reply in replies {
            match reply.answer {
                Answer::Session(grant) if reply.to == 0 => told_session = Ok(grant),
                Answer::Refused(refusal) if reply.to == 0 => told_session = Err(Error::from(&refusal)),
                other => self.tell(reply.to, &other),
            }
        }
        self.notify();
        let grant = told_session?;
        self.sessions.insert(grant.session, to.clone());
        to.speaks_for(grant.session);
        Ok(welcome(&grant, told, &self.grantor.status()))
    }

    /// Takes a turn over what a holder sent.
    pub(super) fn take(&mut self, at: Instant, batch: v1::ClientBatch, session: SessionId, from: &Arc<Connection>) {
        let now = self.now(at);
        for renewals in batch.renewals {
            self.tags += 1;
            let told = Renewals::new(renewals.sequence, renewals.leases.len());
            let numbers = renewals.numbers.clone();
            self.waiting.insert(self.tags, Waiting::Many { to: from.clone(), told, numbers, at: 0 });
            for (lease, number) in renewals.leases.iter().zip(&renewals.numbers) {
                let number = Number::new(*number).unwrap_or(Number::FIRST);
                let held = Held { lease: Which::Id(lease_id(*lease)), number, session: Some(session), holder: None };
                let renew = Command::Renew(Renew { held, ttl_ms: None, progress: None });
                self.grantor.step(now, &Input::Asked(Request::tagged(self.tags), renew));
            }
        }
        let caller = Caller { session: Some(session), issuer: self.issuer };
        for request in batch.requests {
            let Some(ask) = request.ask else { continue };
            self.tags += 1;
            let id = RequestId { session, sequence: request.sequence, lowest: batch.lowest.max(1), digest: 0 };
            let marks = leasehold_wire::request(self.tags, &ask, Some(id), None, &self.issuer);
            match Asked::read(&ask, &caller) {
                Ok(asked) => self.grantor.step(now, &Input::Asked(marks, asked.command())),
                Err(refusal) => {
                    let refused = v1::response::Answer::Refused(Box::new(problem(&refusal)));
                    from.respond(request.sequence, refused);
                }
            }
            self.waiting.insert(self.tags, Waiting::One(from.clone(), request.sequence, ask));
        }
        self.tick(at);
    }

    /// Asks as an operator does, and returns the answer.
    pub(super) fn ask(&mut self, at: Instant, command: Command<'_>) -> Answer {
        self.grantor.step(self.now(at), &Input::Asked(Request::tagged(u64::MAX), command));
        self.grantor.step(self.now(at), &Input::Tick);
        self.grantor.take_output(&mut self.output);
        let mut answer = Answer::Done;
        for reply in std::mem::take(&mut self.output.replies) {
            if reply.to == u64::MAX { answer = reply.answer } else { self.tell(reply.to, &reply.answer) }
        }
        self.notify();
        answer
    }

    /// Ends the turn, and tells what it decided.
    pub(super) fn tick(&mut self, at: Instant) {
        self.grantor.step(self.now(at), &Input::Tick);
        self.grantor.take_output(&mut self.output);
        for reply in std::mem::take(&mut self.output.replies) {
            self.tell(reply.to, &reply.answer);
        }
        self.notify();
    }

    fn tell(&mut self, to: u64, told: &Answer) {
        match self.waiting.remove(&to) {
            Some(Waiting::One(connection, sequence, ask)) => {
                let resource = match &ask {
                    Message::Acquire(acquire) => acquire.resource.as_str(),
                    _ => "",
                };
                connection.respond(sequence, answer(told, &self.issuer, |_| resource));
                if matches!(told, Answer::Waiting { .. }) {
                    self.waiting.insert(to, Waiting::One(connection, sequence, ask));
                }
            }
            Some(Waiting::Many { to: connection, told: mut all, numbers, at }) => {
                all.tell(at, numbers[at], told);
                if all.is_complete() {
                    connection.send(v1::ServerBatch { renewed: vec![all.into_told()], ..Default::default() });
                } else {
                    self.waiting.insert(to, Waiting::Many { to: connection, told: all, numbers, at: at + 1 });
                }
            }
            None => {}
        }
    }

    fn notify(&mut self) {
        for notice in std::mem::take(&mut self.output.notices) {
            if let Some(connection) = notice.session.and_then(|session| self.sessions.get(&session)) {
                let events = vec![event(&notice.event, 0, "", "")];
                connection.send(v1::ServerBatch { events, ..Default::default() });
            }
        }
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}

/// The wall goes with the clock.
const fn wall(at: Instant) -> Wall {
    Wall::after_era(50_000_000_000 + at.0 / 1_000_000)
}
