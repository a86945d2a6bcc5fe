//! A client under load: it takes leases, keeps and gives them back, and after a crash asks for what it was promised.

use std::collections::{BTreeMap, VecDeque};

use leasehold_wire::v1;
use leasehold_wire::v1::request::Ask;

use crate::chance::Chance;
use crate::history::History;
use crate::link::{Gone, LONG, Link, Own, Told, held};

/// The names that all workers want.
pub const PREFIX: &str = "load/";
const NAMES: u64 = 40;
/// Answered requests that a worker may ask again.
const REPEATED: usize = 48;
/// Requests that change nothing have no place in the counting.
const PROBES: u64 = 1 << 40;

/// One client and what it was told.
pub struct Worker {
    name: String,
    streams: bool,
    own: Option<Own>,
    chance: Chance,
    history: History,
    sequence: u64,
    outstanding: BTreeMap<u64, Sent>,
    answered: VecDeque<(u64, Sent, Told)>,
    holds: BTreeMap<String, v1::Grant>,
    ended: VecDeque<v1::Grant>,
    /// Requests whose answer a crash took away, and answers asked for again.
    pub asked_again: usize,
}

/// A request as it was sent first.
#[derive(Clone)]
struct Sent {
    resource: String,
    ask: Ask,
    floor: u64,
}

impl Worker {
    /// A client with a name of its own.
    pub fn new(name: String, streams: bool, chance: Chance, history: History) -> Self {
        Self {
            name,
            streams,
            own: None,
            chance,
            history,
            sequence: 0,
            outstanding: BTreeMap::new(),
            answered: VecDeque::new(),
            holds: BTreeMap::new(),
            ended: VecDeque::new(),
            asked_again: 0,
        }
    }

    /// Comes back after a crash and looks whether everything is as it was told.
    pub async fn recover(&mut self, address: &str) -> Result<Link, Gone> {
        let mut link = match self.streams {
            true => Link::stream(address, &self.name, &mut self.own).await?,
            false => Link::calls(address, &self.name, &mut self.own).await?,
        };
        let asks: Vec<_> = self.outstanding.iter().map(|(sequence, sent)| (*sequence, sent.ask.clone())).collect();
        self.asked_again += asks.len();
        link.ask(self.lowest(), asks, |sequence, told| self.hear(sequence, told)).await?;
        self.look_at_holds(&mut link).await?;
        self.ask_again(&mut link).await?;
        Ok(link)
    }

    /// Asks for this and that until the connection breaks.
    pub async fn load(&mut self, mut link: Link) -> Gone {
        loop {
            let asks = self.choose();
            let told = link.ask(self.lowest(), asks, |sequence, told| self.hear(sequence, told)).await;
            if let Err(gone) = told {
                return gone;
            }
        }
    }

    /// What is held is current under its number (L3), and what ended stays ended (L4).
    async fn look_at_holds(&mut self, link: &mut Link) -> Result<(), Gone> {
        let mut probes: Vec<(Ask, Told)> = Vec::new();
        for (resource, grant) in &self.holds {
            probes.push((self.probe(resource, grant), Told::Current(grant.token_number)));
        }
        for grant in self.ended.iter().rev().take(6) {
            probes.push((self.probe(&grant.resource, grant), Told::refused("LEASE_LOST", "released")));
        }
        let asks = probes.iter().zip(PROBES..).map(|((ask, _), at)| (at, ask.clone())).collect();
        link.ask(self.lowest(), asks, |at, told| {
            let (ask, expected) = &probes[(at - PROBES) as usize];
            assert_eq!(&told, expected, "{}: {ask:?} (L3, L4)", self.name);
        })
        .await
    }

    fn probe(&self, resource: &str, grant: &v1::Grant) -> Ask {
        let held = held(resource, &grant.token);
        if grant.token_number.is_multiple_of(2) {
            return Ask::Confirm(held);
        }
        Ask::Renew(v1::Renew { held: Some(held), ttl_ms: None, progress: None })
    }

    /// The same request id gives the same answer (L11); a grant that was given back meanwhile tells its end.
    async fn ask_again(&mut self, link: &mut Link) -> Result<(), Gone> {
        let known: Vec<_> = self.answered.iter().filter(|(_, sent, _)| !matches!(sent.ask, Ask::Renew(_))).collect();
        if known.is_empty() {
            return Ok(());
        }
        let picked: BTreeMap<u64, _> =
            (0..3).map(|_| *self.chance.pick(&known)).map(|(sequence, sent, told)| (*sequence, (sent, told))).collect();
        let asks = picked.iter().map(|(sequence, (sent, _))| (*sequence, sent.ask.clone())).collect();
        self.asked_again += picked.len();
        let holds = &self.holds;
        link.ask(self.lowest(), asks, |sequence, told| {
            let (sent, before) = picked[&sequence];
            match (before, &told) {
                (Told::Granted(before), Told::Granted(now)) => {
                    assert_eq!(before.token, now.token, "{} of {} (L11)", sequence, self.name);
                    assert!(holds.contains_key(&sent.resource), "{} was given back (L4)", sent.resource);
                }
                (Told::Granted(before), now) => {
                    assert_eq!(now, &Told::refused("LEASE_LOST", "released"), "{sequence} of {} (L11)", self.name);
                    let held = holds.get(&sent.resource).map(|grant| grant.token_number);
                    assert_ne!(held, Some(before.token_number), "{} is held (L3)", sent.resource);
                }
                (before, now) => assert_eq!(before, now, "{sequence} of {} (L11)", self.name),
            }
        })
        .await
    }

    fn lowest(&self) -> u64 {
        let outstanding = self.outstanding.keys().next().copied();
        let answered = self.answered.iter().map(|(sequence, ..)| *sequence).min();
        outstanding.into_iter().chain(answered).min().unwrap_or(self.sequence.max(1))
    }

    /// Several requests at once, each for another name.
    fn choose(&mut self) -> Vec<(u64, Ask)> {
        let mut chosen = BTreeMap::new();
        for _ in 0..1 + self.chance.below(6) {
            let resource = format!("{PREFIX}{}", self.chance.below(NAMES));
            let ask = match self.holds.get(&resource) {
                None => {
                    Ask::Acquire(v1::Acquire { resource: resource.clone(), ttl_ms: Some(LONG), ..Default::default() })
                }
                Some(grant) if self.chance.one_in(3) => {
                    let held = Some(held(&resource, &grant.token));
                    Ask::Renew(v1::Renew { held, ttl_ms: None, progress: None })
                }
                Some(grant) => Ask::Release(held(&resource, &grant.token)),
            };
            chosen.insert(resource, ask);
        }
        let floor = self.history.floor();
        let mut asks = Vec::new();
        for (resource, ask) in chosen {
            self.sequence += 1;
            if let (Ask::Release(_), Some(grant)) = (&ask, self.holds.get(&resource)) {
                self.history.ending(&resource, grant.token_number);
            }
            asks.push((self.sequence, ask.clone()));
            self.outstanding.insert(self.sequence, Sent { resource, ask, floor });
        }
        asks
    }

    fn hear(&mut self, sequence: u64, told: Told) {
        let sent = self.outstanding.remove(&sequence).expect("only what was asked is answered");
        let Sent { resource, ask, floor } = &sent;
        match (ask, &told) {
            (Ask::Acquire(_), Told::Granted(grant)) => {
                self.history.granted(resource, &(self.name.clone(), sequence), grant.token_number, *floor);
                self.holds.insert(resource.clone(), v1::Grant { resource: resource.clone(), ..(**grant).clone() });
            }
            (Ask::Acquire(_), Told::Refused(code, _)) if code == "BUSY" => {}
            (Ask::Renew(_), Told::Current(number)) => assert_eq!(*number, self.holds[resource].token_number),
            (Ask::Release(_), Told::Done) => {
                let grant = self.holds.remove(resource).expect("it was held");
                self.history.ended(grant.token_number, "released");
                self.ended.push_back(grant);
            }
            (ask, told) => panic!("{} asked {ask:?} and was told {told:?}", self.name),
        }
        self.answered.push_back((sequence, sent, told));
        while self.answered.len() > REPEATED {
            self.answered.pop_front();
        }
        while self.ended.len() > REPEATED {
            self.ended.pop_front();
        }
    }
}
