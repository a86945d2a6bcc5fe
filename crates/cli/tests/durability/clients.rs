//! All clients of a test, across server restarts: they work until their connections break, reconnect, and check that the
//! state matches the replies they received.

use std::collections::BTreeMap;

use leasehold_testkit::rng::SplitMix64;
use leasehold_wire::v1;

use crate::fifo::Fifo;
use crate::history::History;
use crate::silent_holder::SilentHolder;
use crate::transport::{Disconnected, GrpcClient, Transport, connect, within};
use crate::worker::{PREFIX, Worker};
use crate::writer::Writer;

const WORKERS: usize = 6;
const SILENT_HOLDERS: usize = 3;

/// All clients of a server, across its restarts.
pub struct Clients {
    workers: Vec<Worker>,
    silent_holders: Vec<SilentHolder>,
    fifo: Fifo,
    writer: Writer,
    /// Replies that the clients received.
    pub history: History,
}

/// Connections after a reconnect.
pub struct Recovered {
    workers: Vec<Transport>,
    silent_holders: Vec<GrpcClient>,
    writer: GrpcClient,
}

impl Clients {
    /// Creates clients without requests. `new_tenures` is true if every reconnect starts a new tenure; then a waiter that
    /// stays silent may be passed (L8).
    pub fn new(rng: &mut SplitMix64, new_tenures: bool) -> Self {
        let history = History::default();
        let worker = |i| Worker::new(format!("worker-{i}"), i % 2 == 0, rng.fork(), history.clone());
        let workers = (0..WORKERS).map(worker).collect();
        let silent_holder = |i| SilentHolder::new(format!("sleep/{i}"), rng.fork(), history.clone());
        let silent_holders = (0..SILENT_HOLDERS).map(silent_holder).collect();
        let (fifo, writer) = (Fifo::new(rng.fork(), history.clone(), new_tenures), Writer::new(history.clone()));
        Self { workers, silent_holders, fifo, writer, history }
    }

    /// Reconnects all clients; each checks its leases. Then the list of all leases must match the history.
    pub async fn reconnect(&mut self, address: &str) -> Result<Recovered, Disconnected> {
        let workers = futures::future::join_all(self.workers.iter_mut().map(|worker| worker.recover(address)));
        let silent_holders =
            futures::future::join_all(self.silent_holders.iter_mut().map(|holder| holder.recover(address)));
        let (fifo, writer) = (self.fifo.recover(address), self.writer.recover(address));
        let (workers, silent_holders, fifo, writer) = tokio::join!(workers, silent_holders, fifo, writer);
        fifo?;
        let recovered = Recovered {
            workers: workers.into_iter().collect::<Result<_, _>>()?,
            silent_holders: silent_holders.into_iter().collect::<Result<_, _>>()?,
            writer: writer?,
        };
        self.history.assert_matches(PREFIX, &list_leases(address).await?);
        Ok(recovered)
    }

    /// Runs all clients until their connections break.
    pub async fn work(&mut self, recovered: Recovered) {
        let workers = self.workers.iter_mut().zip(recovered.workers).map(|(worker, transport)| worker.load(transport));
        let silent_holders =
            self.silent_holders.iter_mut().zip(recovered.silent_holders).map(|(holder, calls)| holder.load(calls));
        let (workers, silent_holders) = (futures::future::join_all(workers), futures::future::join_all(silent_holders));
        tokio::join!(workers, silent_holders, self.fifo.load(), self.writer.load(recovered.writer));
    }

    /// Fails if too little happened for the test to be meaningful.
    pub fn assert_progress(&self, kills: usize) {
        let grants = self.history.count();
        let retries: usize = self.workers.iter().map(|worker| worker.retries).sum();
        let expired: usize = self.silent_holders.iter().map(|holder| holder.expired).sum();
        let (turns, passed) = (self.fifo.turns, self.fifo.passed);
        println!("{kills} kills: {grants} grants acked, {retries} requests retried, {expired} leases expired,");
        let (applied, refused) = (self.writer.applied(), self.writer.refused);
        println!("{turns} queue grants, {passed} past a silent waiter; {applied} writes applied, {refused} rejected");
        assert!(grants > kills && retries > 0 && expired > 0 && turns > 0, "too little happened");
        assert!(applied > 0 && refused > 0, "too little was written");
        assert!(passed > 0 || kills < 200, "no silent waiter was passed");
    }
}

/// All leases under the prefix of the workers, by token number.
async fn list_leases(address: &str) -> Result<BTreeMap<String, u64>, Disconnected> {
    let mut calls = connect(address).await?;
    let request = v1::ListRequest { prefix: PREFIX.trim_end_matches('/').into(), ..Default::default() };
    let list = within(calls.list(request)).await.map_err(|_| Disconnected)?.into_inner();
    assert_eq!(list.next_cursor, None, "one page contains all leases");
    let leases = list.resources.into_iter().flat_map(|resource| resource.leases);
    Ok(leases.map(|lease| (lease.resource, lease.token_number)).collect())
}
