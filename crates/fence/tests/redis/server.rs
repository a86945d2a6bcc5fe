//! A Redis server of the test's own, and the fence's place in it.

use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::Error;
use leasehold_fence::conformance::{Applied, CLUSTER, Subject, Writer, name, number};
use leasehold_fence::redis::{Fence, install, survey};
use leasehold_fence::{Kept, Once};
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;

use crate::daemon::Daemon;

/// The ghost log: what was applied, in the order in which it was.
pub const GHOST: &str = "{conformance/target}:ghost";

pub struct Redis {
    daemon: Daemon,
    /// The fence by which its writers go.
    pub fence: Fence,
}

impl Redis {
    /// One that keeps what it acknowledged.
    pub async fn durable() -> Self {
        Self::start(&["--appendonly", "yes", "--appendfsync", "always"]).await
    }

    pub async fn start(settings: &'static [&'static str]) -> Self {
        let daemon = Daemon::start("redis-server", |dir| {
            let socket = dir.join("socket").display().to_string();
            let own = ["--port", "0", "--save", "", "--dir", ".", "--unixsocket", &socket];
            own.into_iter().chain(settings.iter().copied()).map(str::to_owned).collect()
        });
        let redis = Self { daemon, fence: Fence::new(CLUSTER, name(), 0) };
        install(&mut redis.connect().await).await.expect("installed");
        redis
    }

    pub fn by(mut self, fence: Fence) -> Self {
        self.fence = fence;
        self
    }

    pub async fn connect(&self) -> MultiplexedConnection {
        let address = format!("unix:{}", self.daemon.dir().join("socket").display());
        self.daemon.answers(|| connect(&address)).await
    }

    pub fn kill_and_start(&self) {
        self.daemon.kill();
        self.daemon.start_again();
    }

    pub fn socket(&self) -> String {
        self.daemon.dir().join("socket").display().to_string()
    }

    pub fn kill(&self) {
        self.daemon.kill();
    }
}

/// A connection that waits as long as it takes: the machine may be busy with other things.
pub async fn connect(address: &str) -> redis::RedisResult<MultiplexedConnection> {
    let patient = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
    let client = redis::Client::open(address)?;
    let mut db = client.get_multiplexed_async_connection_with_config(&patient).await?;
    redis::cmd("PING").query_async::<String>(&mut db).await?;
    Ok(db)
}

pub fn put(number: &str, value: &str) -> redis::Cmd {
    let mut put = redis::cmd("RPUSH");
    put.arg(GHOST).arg(format!("{number} {value}"));
    put
}

/// The number in a token's text, with zeros in front.
pub fn digits(token: &str) -> &str {
    token.get(57..76).unwrap_or("0")
}

pub struct Way {
    pub fence: Fence,
    pub db: MultiplexedConnection,
}

impl Writer for Way {
    async fn claim(&mut self, token: &str) -> Result<Number, Error> {
        self.fence.claim(&mut self.db, token).await
    }

    async fn write(&mut self, token: &str, value: &str) -> Result<(), Error> {
        self.fence.write(&mut self.db, token, &[GHOST], &put(digits(token), value)).await
    }

    async fn write_sequenced(&mut self, token: &str, sequence: u64, value: &str) -> Result<Option<Once>, Error> {
        let put = put(digits(token), value);
        self.fence.write_once(&mut self.db, token, sequence, &[GHOST], &put).await.map(Some)
    }
}

impl Subject for Redis {
    type Writer = Way;

    async fn fresh(&self) {
        self.unarmed().await;
        self.fence.arm(&mut self.connect().await).await.expect("armed");
    }

    async fn writer(&self) -> Way {
        Way { fence: self.fence.clone(), db: self.connect().await }
    }

    async fn applied(&self) -> Vec<Applied> {
        let all: Vec<String> =
            redis::cmd("LRANGE").arg(GHOST).arg(0).arg(-1).query_async(&mut self.connect().await).await.expect("read");
        let parts = all.iter().map(|one| one.split_once(' ').expect("a number and a value"));
        parts
            .map(|(n, value)| Applied { number: number(n.parse().expect("digits")), value: value.to_owned() })
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

    async fn make_strict(&self) -> Result<bool, Error> {
        self.fence.strict(&mut self.connect().await, true).await.map(|()| true)
    }

    async fn adopt(&self, incarnation: Incarnation) -> Result<bool, Error> {
        self.fence.adopt(&mut self.connect().await, incarnation).await.map(|()| true)
    }

    async fn survey(&self) -> Result<Option<Vec<Kept>>, Error> {
        survey(&mut self.connect().await).await.map(Some)
    }

    async fn crash(&self) -> bool {
        self.kill_and_start();
        self.fence.resume(&mut self.connect().await).await.expect("it is the same server, on its own disk");
        true
    }
}
