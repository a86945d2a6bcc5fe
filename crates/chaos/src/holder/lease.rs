//! A holder's requests for leases, with every request and every reply in the event log.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use leasehold::{Client, Error, FencingToken, Guard, HeldLease, RequestError};
use leasehold_core::command::{Acquire, AcquireOptions};
use leasehold_core::lease::Access;

use super::{AcquiredLease, HolderArgs};
use crate::holder_log::{EventLog, LoggedEvent, RequestKind};
use leasehold_sim::run_constants::EXCLUSIVE;

/// A holder's client, with its event log.
pub struct HolderLeases {
    client: Client,
    ttl: u64,
    holder: u32,
    guards: bool,
    guard: Option<Guard>,
    events: Rc<RefCell<EventLog>>,
    op: Rc<Cell<u64>>,
}

/// Holder name of a request, by which the run finds its grant in the journal.
pub fn holder_name(holder: u32, op: u64) -> String {
    format!("h{holder}-{op}")
}

impl HolderLeases {
    pub fn new(args: &HolderArgs, events: Rc<RefCell<EventLog>>, op: Rc<Cell<u64>>) -> Self {
        let client = Client::builder(&args.servers)
            .expect("the run names its servers")
            .connect_timeout(Duration::from_millis(700))
            .request_timeout(Duration::from_millis(1_500))
            .session_ttl(Duration::from_millis(2 * args.ttl))
            .holder(format!("h{}", args.holder))
            .build();
        Self { client, ttl: args.ttl, holder: args.holder, guards: args.guards, guard: None, events, op }
    }

    fn log_request(&self, request: RequestKind) -> u64 {
        self.op.set(self.op.get() + 1);
        let op = self.op.get();
        self.events.borrow_mut().append(LoggedEvent::Requested { op, request });
        op
    }

    fn log(&self, event: LoggedEvent) {
        self.events.borrow_mut().append(event);
    }

    /// Acquires a lease, waiting up to `wait` milliseconds.
    pub async fn acquire(&mut self, resource: usize, wait: u64) -> Option<AcquiredLease> {
        let op = self.log_request(RequestKind::Acquire { resource, ttl: self.ttl, wait });
        let (name, holder) = (EXCLUSIVE[resource], holder_name(self.holder, op));
        if self.guards {
            return self.acquire_guard(op, resource, name, holder, wait).await;
        }
        let request = Acquire {
            resource: name,
            holder: &holder,
            session: None,
            access: Access::Exclusive,
            slots: None,
            ttl_ms: Some(self.ttl),
            options: AcquireOptions { wait_ms: wait, ..AcquireOptions::DEFAULT },
        };
        match self.client.acquire(&request).await {
            Ok(granted) => {
                let grant = granted.grant();
                let (number, lease) = (grant.number, grant.lease);
                let (ttl, remaining) = (grant.ttl_ms, grant.remaining_ms);
                self.log(LoggedEvent::Granted { op, number: number.get(), lease: lease.to_string(), ttl, remaining });
                Some(AcquiredLease { resource, number, lease, token: granted.token().to_string() })
            }
            Err(error) => {
                self.log_failure(op, &error);
                None
            }
        }
    }

    async fn acquire_guard(
        &mut self,
        op: u64,
        resource: usize,
        name: &str,
        holder: String,
        wait: u64,
    ) -> Option<AcquiredLease> {
        let lock = self.client.lock(name).holder(holder).ttl(Duration::from_millis(self.ttl));
        match lock.wait(Duration::from_millis(wait)).acquire().await {
            Ok(guard) => {
                let (number, lease, token) = (guard.token_number(), guard.lease_id(), guard.token().to_string());
                let (ttl, lease_text) = (self.ttl, lease.to_string());
                self.log(LoggedEvent::Granted { op, number: number.get(), lease: lease_text, ttl, remaining: ttl });
                self.guard = Some(guard);
                Some(AcquiredLease { resource, number, lease, token })
            }
            Err(RequestError::Rejected(error)) => {
                self.log_failure(op, &error);
                None
            }
            Err(unknown) => {
                self.log(LoggedEvent::OutcomeUnknown { op, error: unknown.to_string() });
                None
            }
        }
    }

    /// Logs that the lease is held by the holder's own clock, with a time taken before the check.
    pub fn log_belief(&self, acquired: &AcquiredLease) {
        if let Some(guard) = &self.guard {
            let mut events = self.events.borrow_mut();
            let before = events.now();
            if guard.is_held() {
                events.append_at(before, LoggedEvent::BelievedHeld { number: acquired.number.get() });
            }
        }
    }

    /// Renews the lease explicitly. A guard renews by itself.
    pub async fn renew(&self, acquired: &AcquiredLease) {
        if self.guards {
            return;
        }
        let op =
            self.log_request(RequestKind::Renew { number: acquired.number.get(), lease: acquired.lease.to_string() });
        let answer = self.client.renew(&held(acquired), None, None).await;
        self.log_current(op, answer.map(|renewed| (renewed.current().number.get(), renewed.current().remaining_ms)));
    }

    /// Asks the grantor whether the lease is still held; the holder continues with any answer.
    pub async fn confirm(&self, acquired: &AcquiredLease) {
        let op =
            self.log_request(RequestKind::Confirm { number: acquired.number.get(), lease: acquired.lease.to_string() });
        let answer = self.client.check(&held(acquired)).await;
        self.log_current(op, answer.map(|renewed| (renewed.current().number.get(), renewed.current().remaining_ms)));
    }

    fn log_current(&self, op: u64, answer: Result<(u64, u64), Error>) {
        match answer {
            Ok((number, remaining)) => self.log(LoggedEvent::Current { op, number, remaining }),
            Err(error) => self.log_failure(op, &error),
        }
    }

    /// Releases the lease and waits for the reply, or drops it silently.
    pub async fn finish(&mut self, acquired: &AcquiredLease, release: bool) {
        let guard = self.guard.take();
        if !release {
            return;
        }
        let op =
            self.log_request(RequestKind::Release { number: acquired.number.get(), lease: acquired.lease.to_string() });
        let answer = match guard {
            Some(guard) => guard.release().await.map_err(RequestError::into_error),
            None => self.client.release(&held(acquired)).await,
        };
        match answer {
            Ok(()) => self.log(LoggedEvent::Done { op }),
            Err(error) => self.log_failure(op, &error),
        }
    }

    fn log_failure(&self, op: u64, error: &Error) {
        let reason = error.end_reason().map(|reason| reason.word().to_owned());
        let event = if error.outcome_unknown() || error.is_retryable() {
            LoggedEvent::OutcomeUnknown { op, error: error.to_string() }
        } else {
            LoggedEvent::Refused { op, code: error.code_name().to_owned(), reason }
        };
        self.log(event);
    }
}

fn held(acquired: &AcquiredLease) -> HeldLease<'_> {
    let token = FencingToken::parse(&acquired.token).expect("the grantor issues valid tokens");
    HeldLease::new(EXCLUSIVE[acquired.resource], token)
}
