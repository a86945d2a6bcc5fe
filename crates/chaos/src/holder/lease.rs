//! How a holder asks for leases and what it is told, every question and every answer put down.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use leasehold::{Client, Endpoints, Error, Failure, Guard, Held, Options};
use leasehold_core::command::{Acquire, Terms};
use leasehold_core::lease::Access;
use leasehold_core::token::Token;
use leasehold_sim::ask::EXCLUSIVE;

use super::{Part, Taken};
use crate::said::{Asks, Voice, What};

/// A holder's way to its grantor.
pub struct Leases {
    client: Client,
    ttl: u64,
    who: u32,
    guards: bool,
    guard: Option<Guard>,
    voice: Rc<RefCell<Voice>>,
    op: Rc<Cell<u64>>,
}

/// By this name the run finds the grant of a request on record.
pub fn holder_name(who: u32, op: u64) -> String {
    format!("h{who}-{op}")
}

impl Leases {
    pub fn new(part: &Part, voice: Rc<RefCell<Voice>>, op: Rc<Cell<u64>>) -> Self {
        let options = Options {
            connect: Duration::from_millis(700),
            request: Duration::from_millis(1_500),
            session: Duration::from_millis(2 * part.ttl),
            holder: Some(format!("h{}", part.who)),
            ..Options::default()
        };
        let endpoints = Endpoints::parse(&part.servers).expect("the run names its servers");
        let client = Client::with(endpoints, options);
        Self { client, ttl: part.ttl, who: part.who, guards: part.guards, guard: None, voice, op }
    }

    fn asks(&self, ask: Asks) -> u64 {
        self.op.set(self.op.get() + 1);
        let op = self.op.get();
        self.voice.borrow_mut().say(What::Asks { op, ask });
        op
    }

    fn says(&self, what: What) {
        self.voice.borrow_mut().say(what);
    }

    /// Takes a lease, if it is to be had within this wait.
    pub async fn take(&mut self, resource: usize, wait: u64) -> Option<Taken> {
        let op = self.asks(Asks::Acquire { resource, ttl: self.ttl, wait });
        let (name, holder) = (EXCLUSIVE[resource], holder_name(self.who, op));
        if self.guards {
            return self.take_guard(op, resource, name, holder, wait).await;
        }
        let ask = Acquire {
            resource: name,
            holder: &holder,
            session: None,
            access: Access::Exclusive,
            slots: None,
            ttl_ms: Some(self.ttl),
            terms: Terms { wait_ms: wait, ..Terms::DEFAULT },
        };
        match self.client.acquire(&ask).await {
            Ok(granted) => {
                let grant = granted.grant();
                let (number, lease) = (grant.number, grant.lease);
                let (ttl, remaining) = (grant.ttl_ms, grant.remaining_ms);
                self.says(What::Granted { op, number: number.get(), lease: lease.to_string(), ttl, remaining });
                Some(Taken { resource, number, lease, token: granted.token().to_string() })
            }
            Err(error) => {
                self.failed(op, &error);
                None
            }
        }
    }

    async fn take_guard(&mut self, op: u64, resource: usize, name: &str, holder: String, wait: u64) -> Option<Taken> {
        let lock = self.client.lock(name).holder(holder).ttl(Duration::from_millis(self.ttl));
        match lock.wait(Duration::from_millis(wait)).acquire().await {
            Ok(guard) => {
                let (number, lease, token) = (guard.token_number(), guard.lease(), guard.token());
                let (ttl, lease_text) = (self.ttl, lease.to_string());
                self.says(What::Granted { op, number: number.get(), lease: lease_text, ttl, remaining: ttl });
                self.guard = Some(guard);
                Some(Taken { resource, number, lease, token })
            }
            Err(Failure::Told(error)) => {
                self.failed(op, &error);
                None
            }
            Err(unknown @ Failure::Unknown(_)) => {
                self.says(What::Unknown { op, why: unknown.to_string() });
                None
            }
        }
    }

    /// Says so if, by its own clock, it holds: at a moment after the one that is noted.
    pub fn believe(&self, taken: &Taken) {
        if let Some(guard) = &self.guard {
            let mut voice = self.voice.borrow_mut();
            let before = voice.now();
            if guard.is_held() {
                voice.say_at(before, What::Believes { number: taken.number.get() });
            }
        }
    }

    /// Renews by hand; a guard does so by itself.
    pub async fn renew(&self, taken: &Taken) {
        if self.guards {
            return;
        }
        let op = self.asks(Asks::Renew { number: taken.number.get(), lease: taken.lease.to_string() });
        let answer = self.client.renew(&held(taken), None, None).await;
        self.current(op, answer.map(|renewed| (renewed.current().number.get(), renewed.current().remaining_ms)));
    }

    /// Asks whether it still holds; whatever the answer is, it goes on.
    pub async fn confirm(&self, taken: &Taken) {
        let op = self.asks(Asks::Confirm { number: taken.number.get(), lease: taken.lease.to_string() });
        let answer = self.client.confirm(&held(taken)).await;
        self.current(op, answer.map(|renewed| (renewed.current().number.get(), renewed.current().remaining_ms)));
    }

    fn current(&self, op: u64, answer: Result<(u64, u64), Error>) {
        match answer {
            Ok((number, remaining)) => self.says(What::Current { op, number, remaining }),
            Err(error) => self.failed(op, &error),
        }
    }

    /// Gives back and waits for the answer, or says nothing more.
    pub async fn leave(&mut self, taken: &Taken, politely: bool) {
        let guard = self.guard.take();
        if !politely {
            return;
        }
        let op = self.asks(Asks::Release { number: taken.number.get(), lease: taken.lease.to_string() });
        let answer = match guard {
            Some(guard) => guard.release().await.map_err(Failure::into_error),
            None => self.client.release(&held(taken)).await,
        };
        match answer {
            Ok(()) => self.says(What::Done { op }),
            Err(error) => self.failed(op, &error),
        }
    }

    fn failed(&self, op: u64, error: &Error) {
        let reason = error.lost().map(|reason| reason.word().to_owned());
        let what = if error.is_indeterminate() || error.is_unavailable() {
            What::Unknown { op, why: error.to_string() }
        } else {
            What::Refused { op, code: error.word().to_owned(), reason }
        };
        self.says(what);
    }
}

fn held(taken: &Taken) -> Held<'_> {
    let token = Token::parse(&taken.token).expect("a token that a grantor gave");
    Held::of(EXCLUSIVE[taken.resource], token)
}
