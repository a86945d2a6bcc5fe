//! A PostgreSQL server for tests, and connections to it. If it cannot be started, the test fails.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use leasehold_testkit::postgres::PostgresServer;
use leasehold_testkit::temp_dir;
use tempfile::TempDir;
use tokio_postgres::{Client, Config, NoTls};

/// A running server; dropping it stops the server and removes its data.
pub struct Server {
    socket_dir: PathBuf,
    process: Mutex<PostgresServer>,
}

impl Server {
    /// Returns the server shared by the tests of this process; each test uses its own database.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(Self::start(&[]));
            *shared = Arc::downgrade(&server);
            server
        })
    }

    /// Starts a server with these settings, with its data in memory.
    pub fn start(settings: &[&str]) -> Self {
        Self::start_in(temp_dir::in_memory().expect("a directory"), settings)
    }

    /// Starts a server with its data in `dir`.
    pub fn start_in(dir: TempDir, settings: &[&str]) -> Self {
        let mut server = PostgresServer::start_in(dir, settings).expect("PostgreSQL starts; ./test installs it");
        server.wait_until_ready();
        Self { socket_dir: server.socket_dir().to_owned(), process: Mutex::new(server) }
    }

    /// Starts a streaming standby of this server.
    pub fn start_standby(&self) -> Self {
        let mut standby = self.process().start_standby().expect("a standby starts");
        standby.wait_until_ready();
        Self { socket_dir: standby.socket_dir().to_owned(), process: Mutex::new(standby) }
    }

    /// Starts a copy of this server as a primary on the same timeline.
    pub fn start_copy(&self) -> Self {
        let mut copy = self.process().start_copy(&[]).expect("a copy starts");
        copy.wait_until_ready();
        Self { socket_dir: copy.socket_dir().to_owned(), process: Mutex::new(copy) }
    }

    /// Starts a standby again as a primary, without a promotion.
    pub fn restart_as_primary(&self) {
        self.process().restart_as_primary().expect("the standby starts again");
    }

    /// Stops the server without a checkpoint, as in a crash, and restarts it.
    pub fn crash_and_restart(&self) {
        let mut process = self.process();
        process.crash();
        process.restart_when_gone();
    }

    /// Kills the server with `kill -9` and restarts it.
    pub fn kill_and_restart(&self) {
        let mut process = self.process();
        process.kill();
        process.restart_when_gone();
    }

    fn process(&self) -> MutexGuard<'_, PostgresServer> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Directory of the Unix socket.
    pub fn socket(&self) -> &Path {
        &self.socket_dir
    }

    /// Opens a connection.
    pub async fn connect(&self, user: &str, database: &str) -> Result<Client, tokio_postgres::Error> {
        self.connect_with_options(user, database, "").await
    }

    /// Opens a connection with startup options, as `PGOPTIONS` spells them.
    pub async fn connect_with_options(
        &self,
        user: &str,
        database: &str,
        options: &str,
    ) -> Result<Client, tokio_postgres::Error> {
        let mut config = Config::new();
        let config = config.host_path(self.socket()).user(user).dbname(database).options(options);
        let (client, connection) = config.connect(NoTls).await?;
        // It ends with the client, or with an error that the client's calls return.
        tokio::spawn(connection);
        Ok(client)
    }
}
