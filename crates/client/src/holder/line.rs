//! The holder's state between two things that happen: what is asked, what is heard, what time brings. It does no I/O.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::Duration;

use leasehold_core::command::{Answer, Event, Part};
use leasehold_core::holder::{RateError, Timing};
use leasehold_core::time::Instant;
use leasehold_wire::RENEWALS;
use leasehold_wire::v1::request::Ask as Message;
use tokio::sync::watch::Sender;

use super::actors::Actors;
use super::alarms::Alarms;
use super::chance::Chance;
use super::inbox::{Ask, Given};
use super::leases::{Leases, Turned};
use super::reply::Reply;
use super::requests::{Pending, Purpose, Renewing, Requests};
use super::saying::Listen;
use super::session::Session;
use crate::meter::Hooks;
use crate::stream::{Batch, Heard, RenewedBatch, Resume};
use crate::{Client, Error};

/// How often it is looked at whose patience is over.
const LOOK_EVERY: u64 = 250;
/// The shortest and the longest silence after which a stream is given up, in milliseconds.
const SILENCE: (u64, u64) = (500, 5_000);
/// The pauses between attempts to connect, in milliseconds.
const PAUSE: (u64, u64) = (20, 1_000);

/// What a client chose.
pub(super) struct Settings {
    pub holder: String,
    pub timing: Timing,
    pub patience_ms: u64,
    pub rate: RateError,
    /// Who is told of the session.
    pub told: Sender<Option<Resume>>,
}

pub(super) struct Line {
    pub settings: Settings,
    pub client: Client,
    pub meter: Hooks,
    pub chance: Chance,
    pub session: Option<Session>,
    pub connected: bool,
    pub requests: Requests,
    pub leases: Leases,
    pub actors: Actors,
    alarms: Alarms,
    pub listeners: Vec<Weak<dyn Listen>>,
    /// Renewals under way, by the number of their batch.
    renewing: BTreeMap<u64, (Instant, Vec<Renewing>)>,
    next_renewal: u64,
    /// Since when an answer is due.
    asked_since: Option<Instant>,
    /// The shortest ttl so far: for its sake a silent stream is given up in time.
    pub shortest_ms: u64,
    look_at: Instant,
    /// The grantor knows other leases than this client: it is told the list, and this of it is still to be told.
    pub reconcile: Option<Part>,
    connect_at: Instant,
    failures: u32,
    /// Why there is no stream.
    pub unreached: Option<Error>,
    /// Nobody will ask any more; the session is closed, then the thread ends.
    pub closing: Option<Instant>,
    pub over: bool,
}

/// However the thread ends, nobody goes on without it.
impl Drop for Line {
    fn drop(&mut self) {
        self.stop_for_good();
    }
}

impl Line {
    pub(super) fn new(settings: Settings, client: Client, meter: Hooks, chance: Chance) -> Self {
        let shortest_ms = settings.timing.ttl_ms();
        Self {
            settings,
            client,
            meter,
            chance,
            session: None,
            connected: false,
            requests: Requests::default(),
            leases: Leases::default(),
            actors: Actors::default(),
            alarms: Alarms::default(),
            listeners: Vec::new(),
            renewing: BTreeMap::new(),
            next_renewal: 0,
            asked_since: None,
            shortest_ms,
            look_at: Instant::default(),
            reconcile: None,
            unreached: None,
            connect_at: Instant::default(),
            failures: 0,
            closing: None,
            over: false,
        }
    }

    /// Takes in what was asked.
    pub(super) fn take(&mut self, now: Instant, ask: Ask) {
        match ask {
            Ask::Acquire { by, wanted, handle } => self.acquire(now, by, *wanted, handle),
            Ask::Call { by, cell, what } => self.call(now, by, &cell, what),
            Ask::Say { by, message, handle } => self.say(now, by, *message, handle),
            Ask::Tell(message) => self.ask(now, 0, *message, Purpose::Tell),
            Ask::Listen(listener) => self.listeners.push(listener),
            Ask::Alarm { at, tell } => self.alarms.set(at, tell),
            Ask::Release { key, cell, tell } => self.release(now, key, &cell, tell),
            Ask::Progress { cell } => {
                if let Some(kept) = self.leases.of(&cell) {
                    kept.renewal.ask_now(now);
                    self.attend(cell.place, now);
                }
            }
            Ask::Dropped(key) => self.dropped(key),
            Ask::Again(key) => {
                let patience = now.plus_millis(self.settings.patience_ms);
                if let Some(pending) = self.requests.by_key(key) {
                    (pending.patience, pending.told_unknown) = (patience, false);
                }
            }
            Ask::Close(tell) => self.close(now, Some(tell)),
        }
    }

    /// Does what time has brought.
    pub(super) fn turn(&mut self, now: Instant) {
        self.chance.another_round();
        self.attend_session(now);
        self.alarms.ring(now);
        while let Some(bucket) = self.leases.timers.due(now) {
            for entry in &bucket {
                if self.leases.counts(*entry) {
                    self.attend(entry.0, now);
                }
            }
            self.leases.timers.used(bucket);
        }
        if now >= self.look_at {
            self.look_at = now.plus_millis(LOOK_EVERY);
            self.lose_patience(now);
            self.requests.take_turns();
        }
        if self.closing.is_some_and(|until| now >= until) {
            self.given_up();
        }
    }

    /// The next batch to send; none if there is nothing.
    pub(super) fn flush(&mut self, now: Instant) -> Option<Batch> {
        if self.reconcile.is_some()
            && self.requests.has_window()
            && let Some(list) = self.list()
        {
            self.asked_since.get_or_insert(now);
            return Some(self.requests.send_alone(now, list, Purpose::Reconcile));
        }
        let mut batch = Batch::from(self.requests.lowest());
        let take = self.leases.out.len().min(RENEWALS);
        let mut rest = self.leases.out.split_off(take);
        std::mem::swap(&mut rest, &mut self.leases.out);
        self.renew(now, rest, &mut batch);
        if let Some(session) = &self.session {
            self.requests.fill(now, session.id, &mut batch);
        }
        if batch.is_empty() {
            return None;
        }
        batch.lowest(self.requests.lowest());
        self.asked_since.get_or_insert(now);
        Some(batch)
    }

    /// Renewals go together, but for those that carry progress or raise a token.
    fn renew(&mut self, now: Instant, renewals: Vec<Renewing>, batch: &mut Batch) {
        let mut together = Vec::with_capacity(renewals.len());
        for one in renewals {
            let Some(kept) = self.leases.at(one.place).filter(|kept| kept.life == one.life) else {
                continue;
            };
            if kept.raising {
                continue;
            }
            let (lease, progress) = (kept.cell.lease, kept.cell.take_progress());
            kept.raising = one.raises;
            if progress.is_some() || one.raises {
                self.renew_alone(now, lease, progress, one);
            } else {
                together.push((one, lease));
            }
        }
        if !together.is_empty() {
            self.next_renewal += 1;
            batch.renew(self.next_renewal, together.iter().map(|(one, lease)| (*lease, one.attempt.token())));
            let sent = together.into_iter().map(|(one, _)| one).collect();
            self.renewing.insert(self.next_renewal, (now, sent));
        }
    }

    /// Takes in what was heard.
    pub(super) fn hear(&mut self, now: Instant, heard: Heard) {
        self.chance.another_round();
        for batch in heard.renewed {
            self.renewed(now, batch);
        }
        for (sequence, answer) in heard.answers {
            self.answered(now, sequence, answer);
        }
        for event in heard.events {
            self.happened(now, event);
        }
        self.failures = 0;
        let expects = !self.renewing.is_empty() || self.requests.expects();
        self.asked_since = expects.then_some(now);
    }

    fn renewed(&mut self, now: Instant, batch: RenewedBatch) {
        let Some((sent, renewals)) = self.renewing.remove(&batch.sequence) else {
            return;
        };
        self.meter.tell(|meter| meter.renewed(renewals.len(), since(sent, now)));
        let mut others = batch.others.into_iter().peekable();
        for (index, one) in renewals.into_iter().enumerate() {
            let told = match others.next_if(|(at, _)| *at == index) {
                Some((_, told)) => told,
                None => {
                    let remaining_ms = batch.remaining_ms.get(index).copied().unwrap_or(0);
                    let number = one.attempt.token();
                    Ok(Answer::Current(leasehold_core::command::Current {
                        number,
                        remaining_ms,
                        drain_ms: None,
                        overlaps_ms: None,
                    }))
                }
            };
            self.renewal_told(now, one, &told);
        }
    }

    pub(super) fn renewal_told(&mut self, now: Instant, one: Renewing, told: &Result<Answer, Error>) {
        if let Some(kept) = self.leases.at(one.place).filter(|kept| kept.life == one.life) {
            kept.answered(one.attempt, now, told);
            self.attend(one.place, now);
        }
    }

    fn happened(&mut self, now: Instant, event: Event) {
        let (lease, ended) = match event {
            Event::Ended { lease, reason, .. } => (lease, Some(reason)),
            Event::Draining { lease, .. } => (lease, None),
            Event::Drained { lease } => {
                if let Some(kept) = self.leases.place_of(lease).and_then(|place| self.leases.at(place)) {
                    kept.alone();
                }
                return;
            }
            // The others are for recipes and for people.
            other => return self.tell_listeners(&other),
        };
        let Some(place) = self.leases.place_of(lease) else {
            return;
        };
        if let Some(kept) = self.leases.at(place) {
            match ended {
                Some(reason) => kept.renewal.ended(reason),
                None => kept.renewal.ask_now(now),
            }
        }
        self.attend(place, now);
    }

    /// Looks at one lease, and tells what turned.
    pub(super) fn attend(&mut self, place: u32, now: Instant) {
        let mut lost = None;
        let meter = &self.meter;
        self.leases.attend(place, now, &self.chance, self.connected, |leases, turned| match turned {
            Turned::Suspended => {
                if let Some(kept) = leases.at(place) {
                    tracing::warn!(resource = %kept.cell.resource, "not renewed in time: work stops");
                    meter.tell(|meter| meter.suspended(&kept.cell.resource));
                }
            }
            Turned::Resumed => {
                if let Some(kept) = leases.at(place) {
                    meter.tell(|meter| meter.resumed(&kept.cell.resource));
                }
            }
            Turned::Lost(kept, loss) => lost = Some((kept, loss)),
        });
        match lost {
            Some((kept, loss)) => self.lost(*kept, loss),
            None => self.hand_out(now, place),
        }
    }

    /// The stream broke: nothing that was asked on it is known to have been heard.
    pub(super) fn broken(&mut self, now: Instant) {
        if std::mem::replace(&mut self.connected, false) {
            self.meter.tell(|meter| meter.disconnected());
            tracing::info!("the stream broke; coming back to the session");
        }
        (self.asked_since, self.reconcile) = (None, None);
        self.leases.out.clear();
        let unavailable = || Err(Error::unavailable("the stream broke"));
        for (_, (_, renewals)) in std::mem::take(&mut self.renewing) {
            renewals.into_iter().for_each(|one| self.renewal_told(now, one, &unavailable()));
        }
        for pending in self.requests.broken() {
            match pending.purpose {
                Purpose::Renew(one) => self.shown(now, one, &unavailable()),
                Purpose::Session(attempt, _) => self.session_told(now, attempt, &unavailable()),
                _ => {}
            }
        }
        self.connect_later(now);
    }

    /// A pause before the next attempt to connect, longer each time, never at the same moment as others.
    pub(super) fn connect_later(&mut self, now: Instant) {
        let longest = (PAUSE.0 << self.failures.min(8)).min(PAUSE.1);
        let pause = longest / 2 + self.chance.next() % (longest / 2 + 1);
        self.failures = self.failures.saturating_add(1);
        self.connect_at = now.plus_millis(pause);
    }

    /// Whether a stream is needed and there is none, or one that has been silent for too long.
    pub(super) fn lacks_stream(&self, now: Instant) -> bool {
        self.needs_stream() && (!self.connected || self.deaf_at().is_some_and(|at| now >= at))
    }

    fn needs_stream(&self) -> bool {
        !self.over && (self.session.is_some() || self.leases.count > 0 || !self.requests.is_empty())
    }

    /// Whether the pause after the last attempt is over.
    pub(super) fn may_connect(&self, now: Instant) -> bool {
        now >= self.connect_at
    }

    fn deaf_at(&self) -> Option<Instant> {
        self.asked_since.map(|since| since.plus_millis(self.silence()))
    }

    fn silence(&self) -> u64 {
        (self.shortest_ms / 4).clamp(SILENCE.0, SILENCE.1)
    }

    /// How long one of several may say nothing before a welcome: longer each time, because whoever leads now may be slow.
    pub(super) fn welcome_within(&self) -> Duration {
        let most = (self.settings.timing.ttl_ms() / 2).max(1);
        Duration::from_millis((self.silence() << self.failures.saturating_sub(1).min(8)).min(most))
    }

    /// The same of one who is doubted. It may be busy, and to begin anew would be to wait longer: as long as the session
    /// lasts, nothing is gained by it.
    pub(super) fn welcome_at_last_within(&self) -> Duration {
        Duration::from_millis(self.settings.timing.ttl_ms())
    }

    /// By when something is due, while somebody is asked for a stream or not.
    pub(super) fn next_due(&self, asking: bool) -> Instant {
        let lacking = if self.connected { self.deaf_at() } else { Some(self.connect_at) };
        let connect = lacking.filter(|_| !asking && self.needs_stream()).map(|at| at.max(self.connect_at));
        let look = (!self.requests.is_empty() || self.leases.count > 0).then_some(self.look_at);
        let session = self.session.as_ref().map(|session| session.due);
        let alarm = self.alarms.next();
        let all = [self.leases.timers.next(), self.closing, session, connect, look, alarm];
        all.into_iter().flatten().min().unwrap_or(Instant(u64::MAX))
    }

    /// Puts a request in the queue.
    pub(super) fn ask(&mut self, now: Instant, key: u64, message: Message, purpose: Purpose) {
        let patience = now.plus_millis(self.settings.patience_ms);
        self.requests.put(Pending { key, patience, ..Pending::nobodys(message, purpose) });
    }
}

/// Answers somebody, if somebody waits.
pub(super) fn tell(tell: Option<Reply<Given>>, answer: Result<Answer, Error>) {
    if let Some(tell) = tell {
        tell.done(answer.map(Given::Answer));
    }
}

pub(super) fn since(earlier: Instant, now: Instant) -> Duration {
    Duration::from_nanos(now.0.saturating_sub(earlier.0))
}
