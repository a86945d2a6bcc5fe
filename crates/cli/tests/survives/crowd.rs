//! Everybody who talks to the servers, over all their lives: they work until their connections break, come back, and look
//! whether everything is as it was told.

use std::collections::BTreeMap;

use leasehold_wire::v1;

use crate::chance::Chance;
use crate::history::History;
use crate::line::Line;
use crate::link::{Calls, Gone, Link, connect, within};
use crate::sleeper::Sleeper;
use crate::worker::{PREFIX, Worker};
use crate::writer::Writer;

const WORKERS: usize = 6;
const SLEEPERS: usize = 3;

/// Everybody who talks to the server, over all its lives.
pub struct Crowd {
    workers: Vec<Worker>,
    sleepers: Vec<Sleeper>,
    line: Line,
    writer: Writer,
    /// What all of them were told.
    pub history: History,
}

/// The connections of those who came back.
pub struct Returned {
    workers: Vec<Link>,
    sleepers: Vec<Calls>,
    writer: Calls,
}

impl Crowd {
    /// Nobody has asked for anything yet. Whether connections break only when a tenure ends decides what may be expected
    /// of those who are silent then (L8).
    pub fn new(chance: &mut Chance, new_tenures: bool) -> Self {
        let history = History::default();
        let worker = |i| Worker::new(format!("worker-{i}"), i % 2 == 0, chance.fork(), history.clone());
        let workers = (0..WORKERS).map(worker).collect();
        let sleeper = |i| Sleeper::new(format!("sleep/{i}"), chance.fork(), history.clone());
        let sleepers = (0..SLEEPERS).map(sleeper).collect();
        let (line, writer) = (Line::new(chance.fork(), history.clone(), new_tenures), Writer::new(history.clone()));
        Self { workers, sleepers, line, writer, history }
    }

    /// Everybody finds what it was told. When nothing is open any more, the whole state is what everybody holds.
    pub async fn come_back(&mut self, address: &str) -> Result<Returned, Gone> {
        let workers = futures::future::join_all(self.workers.iter_mut().map(|worker| worker.recover(address)));
        let sleepers = futures::future::join_all(self.sleepers.iter_mut().map(|sleeper| sleeper.recover(address)));
        let (line, writer) = (self.line.recover(address), self.writer.recover(address));
        let (workers, sleepers, line, writer) = tokio::join!(workers, sleepers, line, writer);
        line?;
        let returned = Returned {
            workers: workers.into_iter().collect::<Result<_, _>>()?,
            sleepers: sleepers.into_iter().collect::<Result<_, _>>()?,
            writer: writer?,
        };
        self.history.is_all(PREFIX, &listed(address).await?);
        Ok(returned)
    }

    /// Everybody works until its connection breaks.
    pub async fn work(&mut self, returned: Returned) {
        let workers = self.workers.iter_mut().zip(returned.workers).map(|(worker, link)| worker.load(link));
        let sleepers = self.sleepers.iter_mut().zip(returned.sleepers).map(|(sleeper, calls)| sleeper.load(calls));
        let (workers, sleepers) = (futures::future::join_all(workers), futures::future::join_all(sleepers));
        tokio::join!(workers, sleepers, self.line.load(), self.writer.load(returned.writer));
    }

    /// Nothing was proved if nothing happened.
    pub fn has_done_something(&self, kills: usize) {
        let grants = self.history.count();
        let again: usize = self.workers.iter().map(|worker| worker.asked_again).sum();
        let expired: usize = self.sleepers.iter().map(|sleeper| sleeper.expired).sum();
        let (turns, passed) = (self.line.turns, self.line.passed);
        println!("{kills} kills: {grants} grants acked, {again} requests asked again, {expired} leases ran out,");
        let (applied, refused) = (self.writer.applied(), self.writer.refused);
        println!("{turns} turns in line, {passed} past somebody silent; {applied} writes applied, {refused} refused");
        assert!(grants > kills && again > 0 && expired > 0 && turns > 0, "too little to prove anything");
        assert!(applied > 0 && refused > 0, "too little was written to prove anything");
        assert!(passed > 0 || kills < 200, "nobody was passed");
    }
}

/// Everything that is held under the workers' prefix, by number.
async fn listed(address: &str) -> Result<BTreeMap<String, u64>, Gone> {
    let mut calls = connect(address).await?;
    let ask = v1::ListRequest { prefix: PREFIX.trim_end_matches('/').into(), ..Default::default() };
    let list = within(calls.list(ask)).await.map_err(|_| Gone)?.into_inner();
    assert_eq!(list.next, None, "one page holds them all");
    let leases = list.resources.into_iter().flat_map(|resource| resource.leases);
    Ok(leases.map(|lease| (lease.resource, lease.token_number)).collect())
}
