//! A client under load: it acquires, renews and releases leases, and checks its replies after a crash.

use std::collections::{BTreeMap, VecDeque};

use leasehold_testkit::rng::SplitMix64;
use leasehold_wire::v1;
use leasehold_wire::v1::request::Operation;

use crate::history::History;
use crate::transport::{Disconnected, LONG, OwnSession, Reply, Transport, held};

/// Prefix of the resources that all workers use.
pub const PREFIX: &str = "load/";
const NAMES: u64 = 40;
/// Number of completed requests that a worker may repeat.
const REPEATABLE: usize = 48;
/// First sequence number of probes, which do not count as requests.
const PROBES: u64 = 1 << 40;

/// One client and its replies.
pub struct Worker {
    name: String,
    streams: bool,
    own: Option<OwnSession>,
    rng: SplitMix64,
    history: History,
    sequence: u64,
    outstanding: BTreeMap<u64, Sent>,
    completed: VecDeque<(u64, Sent, Reply)>,
    holds: BTreeMap<String, v1::Grant>,
    ended: VecDeque<v1::Grant>,
    /// Number of retried and repeated requests.
    pub retries: usize,
}

/// A request as it was first sent.
#[derive(Clone)]
struct Sent {
    resource: String,
    operation: Operation,
    floor: u64,
}

impl Worker {
    pub fn new(name: String, streams: bool, rng: SplitMix64, history: History) -> Self {
        Self {
            name,
            streams,
            own: None,
            rng,
            history,
            sequence: 0,
            outstanding: BTreeMap::new(),
            completed: VecDeque::new(),
            holds: BTreeMap::new(),
            ended: VecDeque::new(),
            retries: 0,
        }
    }

    /// Reconnects after a crash, retries pending requests and checks earlier replies.
    pub async fn recover(&mut self, address: &str) -> Result<Transport, Disconnected> {
        let mut transport = match self.streams {
            true => Transport::stream(address, &self.name, &mut self.own).await?,
            false => Transport::unary(address, &self.name, &mut self.own).await?,
        };
        let operations: Vec<_> =
            self.outstanding.iter().map(|(sequence, sent)| (*sequence, sent.operation.clone())).collect();
        self.retries += operations.len();
        transport.call(self.lowest(), operations, |sequence, reply| self.receive(sequence, reply)).await?;
        self.check_leases(&mut transport).await?;
        self.repeat_completed(&mut transport).await?;
        Ok(transport)
    }

    /// Sends random requests until the connection breaks.
    pub async fn load(&mut self, mut transport: Transport) -> Disconnected {
        loop {
            let operations = self.choose();
            let reply =
                transport.call(self.lowest(), operations, |sequence, reply| self.receive(sequence, reply)).await;
            if let Err(gone) = reply {
                return gone;
            }
        }
    }

    /// Checks that held leases are current (L3) and ended ones stay ended (L4).
    async fn check_leases(&mut self, transport: &mut Transport) -> Result<(), Disconnected> {
        let mut probes: Vec<(Operation, Reply)> = Vec::new();
        for (resource, grant) in &self.holds {
            probes.push((self.probe(resource, grant), Reply::Current(grant.token_number)));
        }
        for grant in self.ended.iter().rev().take(6) {
            probes.push((self.probe(&grant.resource, grant), Reply::refused("LEASE_LOST", "released")));
        }
        let operations = probes.iter().zip(PROBES..).map(|((operation, _), at)| (at, operation.clone())).collect();
        transport
            .call(self.lowest(), operations, |at, reply| {
                let (operation, expected) = &probes[(at - PROBES) as usize];
                assert_eq!(&reply, expected, "{}: {operation:?} (L3, L4)", self.name);
            })
            .await
    }

    fn probe(&self, resource: &str, grant: &v1::Grant) -> Operation {
        let held = held(resource, &grant.token);
        if grant.token_number.is_multiple_of(2) {
            return Operation::Check(held);
        }
        Operation::Renew(v1::Renew { lease: Some(held), ttl_ms: None, progress: None })
    }

    /// Repeats completed requests: the same request id gives the same reply (L11), or the end of a released grant.
    async fn repeat_completed(&mut self, transport: &mut Transport) -> Result<(), Disconnected> {
        let known: Vec<_> =
            self.completed.iter().filter(|(_, sent, _)| !matches!(sent.operation, Operation::Renew(_))).collect();
        if known.is_empty() {
            return Ok(());
        }
        let picked: BTreeMap<u64, _> =
            (0..3).map(|_| self.rng.pick(&known)).map(|(sequence, sent, reply)| (*sequence, (sent, reply))).collect();
        let operations = picked.iter().map(|(sequence, (sent, _))| (*sequence, sent.operation.clone())).collect();
        self.retries += picked.len();
        let holds = &self.holds;
        transport
            .call(self.lowest(), operations, |sequence, reply| {
                let (sent, before) = picked[&sequence];
                match (before, &reply) {
                    (Reply::Granted(before), Reply::Granted(now)) => {
                        assert_eq!(before.token, now.token, "{} of {} (L11)", sequence, self.name);
                        assert!(holds.contains_key(&sent.resource), "{} was released (L4)", sent.resource);
                    }
                    (Reply::Granted(before), now) => {
                        assert_eq!(now, &Reply::refused("LEASE_LOST", "released"), "{sequence} of {} (L11)", self.name);
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
        let completed = self.completed.iter().map(|(sequence, ..)| *sequence).min();
        outstanding.into_iter().chain(completed).min().unwrap_or(self.sequence.max(1))
    }

    /// Chooses several requests, each for another resource.
    fn choose(&mut self) -> Vec<(u64, Operation)> {
        let mut chosen = BTreeMap::new();
        for _ in 0..1 + self.rng.below(6) {
            let resource = format!("{PREFIX}{}", self.rng.below(NAMES));
            let operation = match self.holds.get(&resource) {
                None => Operation::Acquire(v1::Acquire {
                    resource: resource.clone(),
                    ttl_ms: Some(LONG),
                    ..Default::default()
                }),
                Some(grant) if self.rng.one_in(3) => {
                    let held = Some(held(&resource, &grant.token));
                    Operation::Renew(v1::Renew { lease: held, ttl_ms: None, progress: None })
                }
                Some(grant) => Operation::Release(held(&resource, &grant.token)),
            };
            chosen.insert(resource, operation);
        }
        let floor = self.history.floor();
        let mut operations = Vec::new();
        for (resource, operation) in chosen {
            self.sequence += 1;
            if let (Operation::Release(_), Some(grant)) = (&operation, self.holds.get(&resource)) {
                self.history.ending(&resource, grant.token_number);
            }
            operations.push((self.sequence, operation.clone()));
            self.outstanding.insert(self.sequence, Sent { resource, operation, floor });
        }
        operations
    }

    fn receive(&mut self, sequence: u64, reply: Reply) {
        let sent = self.outstanding.remove(&sequence).expect("a reply belongs to a request");
        let Sent { resource, operation, floor } = &sent;
        match (operation, &reply) {
            (Operation::Acquire(_), Reply::Granted(grant)) => {
                self.history.granted(resource, &(self.name.clone(), sequence), grant.token_number, *floor);
                self.holds.insert(resource.clone(), v1::Grant { resource: resource.clone(), ..(**grant).clone() });
            }
            (Operation::Acquire(_), Reply::Refused(code, _)) if code == "BUSY" => {}
            (Operation::Renew(_), Reply::Current(number)) => assert_eq!(*number, self.holds[resource].token_number),
            (Operation::Release(_), Reply::Done) => {
                let grant = self.holds.remove(resource).expect("the lease was held");
                self.history.ended(grant.token_number, "released");
                self.ended.push_back(grant);
            }
            (operation, reply) => panic!("{} sent {operation:?} and received {reply:?}", self.name),
        }
        self.completed.push_back((sequence, sent, reply));
        while self.completed.len() > REPEATABLE {
            self.completed.pop_front();
        }
        while self.ended.len() > REPEATABLE {
            self.ended.pop_front();
        }
    }
}
