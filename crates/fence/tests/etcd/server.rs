//! An etcd server of the test's own, and the fence's place in it.

use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::conformance::{Applied, CLUSTER, Subject, Writer, name, number};
use leasehold_fence::etcd::{Change, Fence, survey};
use leasehold_fence::{Error, Kept, Once};
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};

use crate::daemon::{Daemon, address};

/// Below it lie the writes, each at a key of its own: etcd's revisions tell in which order they were applied.
const GHOST: &str = "ghost/";

pub struct Etcd {
    daemon: Daemon,
    at: SocketAddr,
}

impl Etcd {
    pub async fn start() -> Self {
        let (at, peers) = (address(), address());
        let daemon = Daemon::start("etcd", move |dir| {
            let data = dir.join("data").display().to_string();
            let (client, peer) = (format!("http://{at}"), format!("http://{peers}"));
            let cluster = format!("alone={peer}");
            let own = [
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
            own.into_iter().flat_map(|(name, value)| [name.to_owned(), value.to_owned()]).collect()
        });
        let etcd = Self { daemon, at };
        etcd.answers().await;
        etcd
    }

    async fn answers(&self) {
        // A mark that nobody armed is an answer too.
        let ask = || async {
            match self.fence().mark().await {
                Err(error @ Error::Storage(_)) => Err(error),
                _ => Ok(()),
            }
        };
        self.daemon.answers(ask).await;
    }

    pub fn at(&self) -> String {
        format!("http://{}", self.at)
    }

    /// A connection of its own.
    pub fn channel(&self) -> Channel {
        channel(&self.at())
    }

    pub fn fence(&self) -> Fence {
        Fence::new(self.channel(), CLUSTER, name(), 0).patience(Duration::from_secs(120))
    }

    /// etcd's own client, which knows no fence.
    pub async fn ctl(&self, words: &[&str]) -> String {
        let told = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &self.at()])
            .args(words)
            .output()
            .expect("etcdctl can be started; ./test installs it");
        assert!(told.status.success(), "etcdctl {words:?}: {}", String::from_utf8_lossy(&told.stderr));
        String::from_utf8(told.stdout).expect("text")
    }
}

pub fn channel(at: &str) -> Channel {
    Endpoint::from_shared(at.to_owned()).expect("an address").timeout(Duration::from_secs(120)).connect_lazy()
}

pub fn put(token: &str, value: &str) -> Change {
    Change::put(format!("{GHOST}{value}"), token.get(57..76).unwrap_or("0"))
}

pub struct Way(pub Fence);

impl Writer for Way {
    async fn claim(&mut self, token: &str) -> Result<Number, Error> {
        self.0.claim(token).await
    }

    async fn write(&mut self, token: &str, value: &str) -> Result<(), Error> {
        self.0.write(token, &[put(token, value)]).await.map(|_| ())
    }

    async fn write_sequenced(&mut self, token: &str, sequence: u64, value: &str) -> Result<Option<Once>, Error> {
        self.0.write_once(token, sequence, &[put(token, value)]).await.map(Some)
    }
}

impl Subject for Etcd {
    type Writer = Way;

    async fn fresh(&self) {
        self.unarmed().await;
        self.fence().arm().await.expect("armed");
    }

    async fn writer(&self) -> Way {
        Way(self.fence())
    }

    async fn applied(&self) -> Vec<Applied> {
        let told = self.ctl(&["get", GHOST, "--prefix", "--sort-by=MODIFY", "--order=ASCEND"]).await;
        let lines: Vec<&str> = told.lines().collect();
        let parts = lines.chunks_exact(2).map(|pair| (pair[0].strip_prefix(GHOST).expect("a key"), pair[1]));
        parts
            .map(|(value, n)| Applied { number: number(n.parse().expect("digits")), value: value.to_owned() })
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

    async fn make_strict(&self) -> Result<bool, Error> {
        self.fence().strict(true).await.map(|()| true)
    }

    async fn adopt(&self, incarnation: Incarnation) -> Result<bool, Error> {
        self.fence().adopt(incarnation).await.map(|()| true)
    }

    async fn survey(&self) -> Result<Option<Vec<Kept>>, Error> {
        survey(self.channel(), None).await.map(Some)
    }

    async fn crash(&self) -> bool {
        self.daemon.kill();
        self.daemon.start_again();
        self.answers().await;
        true
    }
}
