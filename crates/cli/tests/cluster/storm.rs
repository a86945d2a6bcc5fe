//! Everybody renews at once, right after a failover: nobody who asks in time loses its lease (N1).

use leasehold::stream::{Asking, Batch, Hearing, Resume};
use leasehold::{Client, Endpoints};
use leasehold_core::command::{Acquire, Answer, Command};
use leasehold_core::ids::LeaseId;
use leasehold_core::token::Number;

use crate::befalls::depth;
use crate::etcd_support::Server as Etcd;
use crate::trio::{PATIENCE, Trio};

/// Longer than a failover takes, on any machine: who has so long is in time.
const TTL: u64 = 120_000;
/// How many hold on one stream, and how many are asked for together.
const EACH: usize = 1_000;

/// Some holders that share a stream.
struct Holders {
    resume: Resume,
    leases: Vec<(LeaseId, Number)>,
}

impl Holders {
    async fn take(client: &Client, at: usize) -> Self {
        let holder = format!("holders-{at}");
        let (opened, asking, mut hearing) = client.stream(&holder, TTL, None).await.expect("a session");
        let resume = Resume { session: opened.session(), secret: opened.secret().try_into().expect("32 bytes") };
        let mut batch = Batch::from(1);
        for sequence in 1..=EACH {
            let name = format!("storm/{at}/{sequence}");
            batch.ask(sequence as u64, &Command::Acquire(Acquire::exclusive(&name, &holder, TTL)));
        }
        asking.send(batch).await.expect("it is sent");
        let mut leases = Vec::new();
        while leases.len() < EACH {
            for (_, answer) in hear(&mut hearing).await.answers {
                let Answer::Granted(grant) = answer.expect("it is free") else { panic!("it is free") };
                leases.push((grant.lease, grant.number));
            }
        }
        Self { resume, leases }
    }

    /// Comes back, ready to ask.
    async fn come_back(&self, client: &Client) -> (Asking, Hearing) {
        let (_, asking, hearing) = client.stream("", TTL, Some(&self.resume)).await.expect("the session goes on (L3)");
        (asking, hearing)
    }

    /// Renews everything. Each is told how long it lives, and none that it is over.
    async fn renew(&self, (asking, mut hearing): (Asking, Hearing)) {
        let mut batch = Batch::from(1 << 20);
        batch.renew(1 << 20, self.leases.iter().copied());
        asking.send(batch).await.expect("it is sent");
        let renewed = loop {
            if let Some(renewed) = hear(&mut hearing).await.renewed.pop() {
                break renewed;
            }
        };
        assert_eq!(renewed.remaining_ms.len(), EACH, "each is answered");
        assert!(renewed.others.is_empty(), "somebody lost its lease (N1): {:?}", renewed.others.first());
        assert!(renewed.remaining_ms.iter().all(|left| *left > 0), "each lives on (N1)");
    }
}

async fn hear(hearing: &mut Hearing) -> leasehold::stream::Heard {
    tokio::time::timeout(PATIENCE, hearing.next()).await.expect("an answer").expect("the stream goes on")
}

#[test]
fn a_storm_of_renewals_right_after_a_failover_loses_nobody() {
    let mut trio = Trio::over(Etcd::single());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let client = |trio: &Trio| Client::connect(Endpoints::parse(&trio.everywhere()).expect("addresses"));
    let many = depth(10, 100);
    let before = client(&trio);
    let mut holders = Vec::new();
    for at in 0..many {
        holders.push(runtime.block_on(Holders::take(&before, at)));
    }
    let old = trio.leader();
    trio.kill(old);
    trio.another_than(old);
    let after = client(&trio);
    runtime.block_on(async {
        let back = futures::future::join_all(holders.iter().map(|each| each.come_back(&after))).await;
        futures::future::join_all(holders.iter().zip(back).map(|(each, link)| each.renew(link))).await;
        let status = after.status().await.expect("somebody leads");
        assert_eq!(status.held, (many * EACH) as u64, "all of them, and nobody else");
    });
}
