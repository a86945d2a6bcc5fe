//! An etcd server process for a test, and its fence.

use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::conformance::{AppliedEntry, FenceWriter, Subject, fence_id, number};
use leasehold_fence::etcd::{Fence, KvChange, list_marks};
use leasehold_fence::{ApplyOnce, Error, MarkInfo, SealVerifier};
use leasehold_testkit::etcd::{EtcdCluster, EtcdOptions};
use leasehold_testkit::process::TIMEOUT;
use leasehold_testkit::temp_dir;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};

/// Prefix of the applied writes, each in its own key. The revisions of etcd give their order.
const WRITES: &str = "ghost/";

pub struct EtcdServer {
    cluster: Mutex<EtcdCluster>,
    at: String,
    _dir: TempDir,
}

impl EtcdServer {
    pub async fn start() -> Self {
        let dir = temp_dir::in_memory().expect("a directory");
        let flags = ["--heartbeat-interval", "10", "--election-timeout", "100"].map(str::to_owned).to_vec();
        let options = EtcdOptions { flags, ..EtcdOptions::default() };
        let cluster = EtcdCluster::start_in(dir.path(), options).unwrap_or_else(|error| panic!("etcd: {error}"));
        let at = format!("http://{}", cluster.members[0].client);
        Self { cluster: Mutex::new(cluster), at, _dir: dir }
    }

    fn cluster(&self) -> MutexGuard<'_, EtcdCluster> {
        self.cluster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn wait_until_ready(&self) {
        let deadline = Instant::now() + TIMEOUT;
        // An unarmed mark is also a reply.
        while let Err(error @ Error::Storage(_)) = self.fence().mark().await {
            assert!(Instant::now() < deadline, "etcd does not respond: {error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub fn at(&self) -> String {
        self.at.clone()
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
        self.cluster().ctl_ok(args)
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

    async fn seal(&self) -> Result<bool, Error> {
        self.fence().seal().await.map(|()| true)
    }

    async fn sealed_writer(&self, verifier: &SealVerifier) -> Option<EtcdWriter> {
        Some(EtcdWriter(self.fence().with_seal_verifier(verifier)))
    }

    async fn list_marks(&self) -> Result<Option<Vec<MarkInfo>>, Error> {
        list_marks(self.channel(), None).await.map(Some)
    }

    async fn crash(&self) -> bool {
        self.cluster().kill(0);
        self.cluster().start_member(0).expect("etcd can be started");
        self.wait_until_ready().await;
        true
    }
}
