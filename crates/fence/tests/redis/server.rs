//! Starts a Redis server for a test, with an installed fence, as a subject of the conformance suite.

use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::Error;
use leasehold_fence::conformance::{AppliedEntry, FenceWriter, Subject, fence_id, number};
use leasehold_fence::redis::{Fence, install, list_marks};
use leasehold_fence::{ApplyOnce, MarkInfo, SealVerifier};
use leasehold_testkit::third_party_server::ThirdPartyServer;
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;

/// List of applied writes, in order, read without the fence.
pub const GHOST: &str = "{conformance/target}:ghost";

pub struct Redis {
    server: ThirdPartyServer,
    /// Fence of its writers.
    pub fence: Fence,
}

impl Redis {
    /// Starts a server with durable settings.
    pub async fn durable() -> Self {
        Self::start(&["--appendonly", "yes", "--appendfsync", "always"]).await
    }

    pub async fn start(settings: &'static [&'static str]) -> Self {
        let server = ThirdPartyServer::start("redis-server", |dir| {
            let socket = dir.join("socket").display().to_string();
            let defaults = ["--port", "0", "--save", "", "--dir", ".", "--unixsocket", &socket];
            defaults.into_iter().chain(settings.iter().copied()).map(str::to_owned).collect()
        });
        let redis = Self { server, fence: Fence::new(&fence_id()) };
        install(&mut redis.connect().await).await.expect("installed");
        redis
    }

    pub fn with_fence(mut self, fence: Fence) -> Self {
        self.fence = fence;
        self
    }

    pub async fn connect(&self) -> MultiplexedConnection {
        let address = format!("unix:{}", self.server.dir().join("socket").display());
        self.server.retry(|| connect(&address)).await
    }

    pub fn kill_and_start(&self) {
        self.server.kill();
        self.server.restart();
    }

    pub fn socket(&self) -> String {
        self.server.dir().join("socket").display().to_string()
    }

    pub fn kill(&self) {
        self.server.kill();
    }

    pub fn restart(&self) {
        self.server.restart();
    }

    /// The file to which the server appends now.
    pub fn append_only_file(&self) -> std::path::PathBuf {
        let dir = self.server.dir().join("appendonlydir");
        let files = std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path());
        files.filter(|file| file.to_string_lossy().ends_with(".incr.aof")).max().expect("a file")
    }
}

/// Connects without timeouts, because the machine may be busy.
pub async fn connect(address: &str) -> redis::RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
    let client = redis::Client::open(address)?;
    let mut db = client.get_multiplexed_async_connection_with_config(&config).await?;
    redis::cmd("PING").query_async::<String>(&mut db).await?;
    Ok(db)
}

pub fn put(number: &str, value: &str) -> redis::Cmd {
    let mut put = redis::cmd("RPUSH");
    put.arg(GHOST).arg(format!("{number} {value}"));
    put
}

/// The number in a token text, with leading zeros.
pub fn digits(token: &str) -> &str {
    token.get(57..76).unwrap_or("0")
}

pub struct RedisWriter {
    pub fence: Fence,
    pub db: MultiplexedConnection,
}

impl FenceWriter for RedisWriter {
    async fn claim(&mut self, token: &str) -> Result<Number, Error> {
        self.fence.claim(&mut self.db, token).await
    }

    async fn write(&mut self, token: &str, value: &str) -> Result<(), Error> {
        self.fence.write(&mut self.db, token, &[GHOST], &put(digits(token), value)).await
    }

    async fn write_once(&mut self, token: &str, sequence: u64, value: &str) -> Result<Option<ApplyOnce>, Error> {
        let put = put(digits(token), value);
        self.fence.write_once(&mut self.db, token, sequence, &[GHOST], &put).await.map(Some)
    }
}

impl Subject for Redis {
    type Writer = RedisWriter;

    async fn fresh(&self) {
        self.unarmed().await;
        self.fence.arm(&mut self.connect().await).await.expect("armed");
    }

    async fn writer(&self) -> RedisWriter {
        RedisWriter { fence: self.fence.clone(), db: self.connect().await }
    }

    async fn applied(&self) -> Vec<AppliedEntry> {
        let entries: Vec<String> =
            redis::cmd("LRANGE").arg(GHOST).arg(0).arg(-1).query_async(&mut self.connect().await).await.expect("read");
        let parts = entries.iter().map(|entry| entry.split_once(' ').expect("a number and a value"));
        parts
            .map(|(n, value)| AppliedEntry { number: number(n.parse().expect("digits")), value: value.to_owned() })
            .collect()
    }

    async fn mark(&self) -> Result<Option<Number>, Error> {
        self.fence.mark(&mut self.connect().await).await
    }

    async fn unarmed(&self) -> bool {
        redis::cmd("FLUSHALL").query_async::<()>(&mut self.connect().await).await.expect("emptied");
        true
    }

    async fn declare_lost(&self) -> Result<bool, Error> {
        self.fence.declare_lost(&mut self.connect().await).await.map(|()| true)
    }

    async fn rearm(&self, floor: Number) -> Result<bool, Error> {
        self.fence.rearm(&mut self.connect().await, floor).await.map(|()| true)
    }

    async fn strict(&self, enabled: bool) -> Result<bool, Error> {
        self.fence.strict(&mut self.connect().await, enabled).await.map(|()| true)
    }

    async fn adopt(&self, incarnation: Incarnation) -> Result<bool, Error> {
        self.fence.adopt(&mut self.connect().await, incarnation).await.map(|()| true)
    }

    async fn seal(&self) -> Result<bool, Error> {
        self.fence.seal(&mut self.connect().await).await.map(|()| true)
    }

    async fn sealed_writer(&self, verifier: &SealVerifier) -> Option<RedisWriter> {
        Some(RedisWriter { fence: self.fence.clone().with_seal_verifier(verifier), db: self.connect().await })
    }

    fn relies_on_clients(&self) -> bool {
        true
    }

    async fn list_marks(&self) -> Result<Option<Vec<MarkInfo>>, Error> {
        list_marks(&mut self.connect().await).await.map(Some)
    }

    async fn crash(&self) -> bool {
        self.kill_and_start();
        self.fence.resume(&mut self.connect().await).await.expect("resumed");
        true
    }
}
