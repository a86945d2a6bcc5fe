//! A storm of renewals right after a failover: no holder that renews in time loses its lease (N1).

use leasehold::session_stream::{OutgoingBatch, SessionReceiver, SessionResume, SessionSender};
use leasehold::{Client, Endpoints};
use leasehold_core::command::{Acquire, Answer, Command};
use leasehold_core::ids::LeaseId;
use leasehold_core::token::Number;
use leasehold_testkit::etcd::EtcdCluster;

use crate::faults::depth;
use crate::harness::{TEST_TIMEOUT, ThreeServers};

/// Longer than any failover, so that every renewal is in time.
const TTL: u64 = 120_000;
/// Number of leases per stream and per batch.
const EACH: usize = 1_000;

/// Leases of one session stream.
struct Holders {
    resume: SessionResume,
    leases: Vec<(LeaseId, Number)>,
}

impl Holders {
    async fn acquire(client: &Client, at: usize) -> Self {
        let holder = format!("holders-{at}");
        let (opened, sender, mut receiver) = client.stream(&holder, TTL, None).await.expect("a session");
        let resume = SessionResume {
            session: opened.id(),
            secret: opened.secret().cloned().expect("a new session has a secret"),
        };
        let mut batch = OutgoingBatch::new(1);
        for sequence in 1..=EACH {
            let name = format!("storm/{at}/{sequence}");
            batch.push_command(sequence as u64, &Command::Acquire(Acquire::exclusive(&name, &holder, TTL)));
        }
        sender.send(batch).await.expect("the batch is sent");
        let mut leases = Vec::new();
        while leases.len() < EACH {
            for (_, answer) in receive(&mut receiver).await.replies {
                let Answer::Granted(grant) = answer.expect("the resource is free") else { panic!("expected a grant") };
                leases.push((grant.lease, grant.number));
            }
        }
        Self { resume, leases }
    }

    /// Resumes the session.
    async fn reconnect(&self, client: &Client) -> (SessionSender, SessionReceiver) {
        let (_, sender, receiver) =
            client.stream("", TTL, Some(&self.resume)).await.expect("the session is resumed (L3)");
        (sender, receiver)
    }

    /// Renews all leases in one batch. Every lease must be renewed.
    async fn renew(&self, (sender, mut receiver): (SessionSender, SessionReceiver)) {
        let mut batch = OutgoingBatch::new(1 << 20);
        batch.renew(1 << 20, self.leases.iter().copied());
        sender.send(batch).await.expect("the batch is sent");
        let renewed = loop {
            if let Some(renewed) = receive(&mut receiver).await.renewals.pop() {
                break renewed;
            }
        };
        assert_eq!(renewed.remaining_ms.len(), EACH, "every renewal has a reply");
        assert!(renewed.details.is_empty(), "a lease was lost (N1): {:?}", renewed.details.first());
        assert!(renewed.remaining_ms.iter().all(|left| *left > 0), "every lease is valid (N1)");
    }
}

async fn receive(receiver: &mut SessionReceiver) -> leasehold::session_stream::IncomingBatch {
    tokio::time::timeout(TEST_TIMEOUT, receiver.recv()).await.expect("a reply").expect("the stream is open")
}

#[test]
fn a_storm_of_renewals_after_a_failover_loses_no_lease() {
    let mut cluster = ThreeServers::on(EtcdCluster::single());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let client = |cluster: &ThreeServers| Client::from(Endpoints::parse(&cluster.addresses()).expect("addresses"));
    let many = depth(10, 100);
    let before = client(&cluster);
    let mut holders = Vec::new();
    for at in 0..many {
        holders.push(runtime.block_on(Holders::acquire(&before, at)));
    }
    let old = cluster.leader();
    cluster.kill(old);
    cluster.wait_for_other_leader(old);
    let after = client(&cluster);
    runtime.block_on(async {
        let back = futures::future::join_all(holders.iter().map(|each| each.reconnect(&after))).await;
        futures::future::join_all(holders.iter().zip(back).map(|(each, transport)| each.renew(transport))).await;
        let status = after.status().await.expect("a server leads");
        assert_eq!(status.held, (many * EACH) as u64, "all leases and no others");
    });
}
