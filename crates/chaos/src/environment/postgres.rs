//! Connections of the run to PostgreSQL.

use std::io;
use std::time::{Duration, Instant};

use leasehold_testkit::postgres::{DATABASE, PostgresServer, USER};
use leasehold_testkit::process::TIMEOUT;
use tokio_postgres::{Client, Config, NoTls};

/// Connects as soon as the server accepts connections.
pub async fn connect(server: &PostgresServer) -> io::Result<Client> {
    let until = Instant::now() + TIMEOUT;
    loop {
        let mut config = Config::new();
        config.host_path(server.socket_dir()).user(USER).dbname(DATABASE);
        match config.connect(NoTls).await {
            Ok((client, connection)) => {
                // The task ends with the client; errors surface in the client's calls.
                tokio::spawn(connection);
                return Ok(client);
            }
            Err(error) if Instant::now() > until => return Err(io::Error::other(error)),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}
