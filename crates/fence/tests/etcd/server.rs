//! An etcd server process for a test, and its fence.

use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::conformance::{AppliedEntry, FenceWriter, Subject, fence_id, number};
use leasehold_fence::etcd::{Fence, KvChange, list_marks};
use leasehold_fence::{ApplyOnce, Error, MarkInfo};
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};

use crate::daemon::{Daemon, address};

/// Prefix of the applied writes, each in its own key. The revisions of etcd give their order.
const WRITES: &str = "ghost/";

pub struct EtcdServer {
    daemon: Daemon,
    at: SocketAddr,
}

impl EtcdServer {
    pub async fn start() -> Self {
        let (at, peers) = (address(), address());
        let daemon = Daemon::start("etcd", move |dir| {
            let data = dir.join("data").display().to_string();
            let (client, peer) = (format!("http://{at}"), format!("http://{peers}"));
            let cluster = format!("alone={peer}");
            let options = [
                ("--name", "alone"),
                ("--data-dir", &data),
                ("--listen-client-urls", &client),
                ("--advertise-client-urls", &client),
                ("--listen-peer-urls", &peer),
                ("--initial-advertise-peer-urls", &peer),
                ("--initial-cluster", &cluster),
                ("--heartbeat-interval", "10"),
                ("--election-timeout", "100"),
            ];
            options.into_iter().flat_map(|(name, value)| [name.to_owned(), value.to_owned()]).collect()
        });
        let etcd = Self { daemon, at };
        etcd.answers().await;
        etcd
    }

    async fn answers(&self) {
        // An unarmed mark is also a reply.
        let request = || async {
            match self.fence().mark().await {
                Err(error @ Error::Storage(_)) => Err(error),
                _ => Ok(()),
            }
        };
        self.daemon.answers(request).await;
    }

    pub fn at(&self) -> String {
        format!("http://{}", self.at)
    }

    /// Opens a new connection.
    pub fn channel(&self) -> Channel {
        channel(&self.at())
    }

    pub fn fence(&self) -> Fence {
        Fence::new(self.channel(), &fence_id()).with_claim_timeout(Duration::from_secs(120))
    }

    /// Runs etcdctl, which has no fence.
    pub async fn ctl(&self, args: &[&str]) -> String {
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &self.at()])
            .args(args)
            .output()
            .expect("etcdctl can be started; ./test installs it");
        assert!(output.status.success(), "etcdctl {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }
}

pub fn channel(at: &str) -> Channel {
    Endpoint::from_shared(at.to_owned()).expect("an address").timeout(Duration::from_secs(120)).connect_lazy()
}

pub fn put(token: &str, value: &str) -> KvChange {
    KvChange::put(format!("{WRITES}{value}"), token.get(57..76).unwrap_or("0"))
}

pub struct EtcdWriter(pub Fence);

impl FenceWriter for EtcdWriter {
    async fn claim(&mut self, token: &str) -> Result<Number, Error> {
        self.0.claim(token).await
    }

    async fn write(&mut self, token: &str, value: &str) -> Result<(), Error> {
        self.0.write(token, &[put(token, value)]).await.map(|_| ())
    }

    async fn write_once(&mut self, token: &str, sequence: u64, value: &str) -> Result<Option<ApplyOnce>, Error> {
        self.0.write_once(token, sequence, &[put(token, value)]).await.map(Some)
    }
}

impl Subject for EtcdServer {
    type Writer = EtcdWriter;

    async fn fresh(&self) {
        self.unarmed().await;
        self.fence().arm().await.expect("armed");
    }

    async fn writer(&self) -> EtcdWriter {
        EtcdWriter(self.fence())
    }

    async fn applied(&self) -> Vec<AppliedEntry> {
        let output = self.ctl(&["get", WRITES, "--prefix", "--sort-by=MODIFY", "--order=ASCEND"]).await;
        let lines: Vec<&str> = output.lines().collect();
        let parts = lines.chunks_exact(2).map(|pair| (pair[0].strip_prefix(WRITES).expect("a key"), pair[1]));
        parts
            .map(|(value, n)| AppliedEntry { number: number(n.parse().expect("digits")), value: value.to_owned() })
            .collect()
    }

    async fn mark(&self) -> Result<Option<Number>, Error> {
        self.fence().mark().await
    }

    async fn unarmed(&self) -> bool {
        self.ctl(&["del", "", "--prefix"]).await;
        true
    }

    async fn declare_lost(&self) -> Result<bool, Error> {
        self.fence().declare_lost().await.map(|()| true)
    }

    async fn rearm(&self, floor: Number) -> Result<bool, Error> {
        self.fence().rearm(floor).await.map(|()| true)
    }

    async fn strict(&self, enabled: bool) -> Result<bool, Error> {
        self.fence().strict(enabled).await.map(|()| true)
    }

    async fn adopt(&self, incarnation: Incarnation) -> Result<bool, Error> {
        self.fence().adopt(incarnation).await.map(|()| true)
    }

    async fn list_marks(&self) -> Result<Option<Vec<MarkInfo>>, Error> {
        list_marks(self.channel(), None).await.map(Some)
    }

    async fn crash(&self) -> bool {
        self.daemon.kill();
        self.daemon.start_again();
        self.answers().await;
        true
    }
}
