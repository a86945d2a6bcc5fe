//! Options of every command (`--addr`, `--json`), and the client that they configure.

use leasehold::{Client, Endpoints, Error};
use serde::Serialize;

use crate::output::{CommandError, CommandOutput, json};

/// Options of every command
#[derive(clap::Args)]
pub struct GlobalArgs {
    /// Addresses of the servers, tried in order: HOST:PORT[,HOST:PORT...] [default: 127.0.0.1:7421]
    #[arg(
        long,
        global = true,
        env = "LEASEHOLD_ADDR",
        hide_env_values = true,
        value_name = "ADDR",
        help_heading = "Global options"
    )]
    addr: Option<String>,
    /// Print one JSON document per result, and errors as JSON on standard error
    #[arg(long, global = true, help_heading = "Global options")]
    pub json: bool,
}

/// Options of commands that a standby may answer
#[derive(clap::Args)]
pub struct StandbyArgs {
    /// Allow a standby to answer if it has reached this journal position. Its answer may lag behind the leader; the command
    /// reports the position of the answer
    #[arg(long, value_name = "POSITION", num_args = 0..=1, require_equals = true, default_missing_value = "0")]
    standby: Option<u64>,
}

/// Default address of a server.
const DEFAULT_ADDR: &str = "127.0.0.1:7421";

impl GlobalArgs {
    /// Addresses from `--addr` or the environment.
    pub fn addr(&self) -> Option<&str> {
        self.addr.as_deref()
    }

    /// Addresses of the servers, or the default address.
    pub fn addr_or_default(&self) -> &str {
        self.addr().unwrap_or(DEFAULT_ADDR)
    }

    /// Addresses of the servers, parsed.
    pub fn endpoints(&self) -> Result<Endpoints, Error> {
        Endpoints::parse(self.addr_or_default())
    }

    /// Runs one call against the servers.
    pub fn call<T>(&self, work: impl AsyncFnOnce(Client) -> Result<T, Error>) -> Result<T, CommandError> {
        self.with_client(async |client| work(client).await.map_err(CommandError::from))
    }

    /// Runs `work` with a client, for work that can fail without a stable code.
    pub fn with_client<T>(&self, work: impl AsyncFnOnce(Client) -> Result<T, CommandError>) -> Result<T, CommandError> {
        let endpoints = self.endpoints()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| CommandError::Other(format!("cannot start the runtime: {error}")))?;
        runtime.block_on(async { work(Client::from(endpoints)).await })
    }

    /// Runs a read-only call. If a standby may answer, also returns a note with the journal position of the answer.
    pub fn query<T>(
        &self,
        standby: &StandbyArgs,
        work: impl AsyncFnOnce(Client) -> Result<T, Error>,
    ) -> Result<(T, Option<String>), CommandError> {
        self.call(async |client| {
            let Some(min_position) = standby.standby else { return Ok((work(client).await?, None)) };
            let client = client.allow_standby(min_position);
            let result = work(client.clone()).await?;
            Ok((result, client.last_position().map(|position| format!("as of position {position}"))))
        })
    }

    /// Output as JSON, or as text.
    pub fn output<T: Serialize>(&self, body: &T, text: impl FnOnce() -> String) -> CommandOutput {
        CommandOutput::from(if self.json { json(body) } else { text() })
    }

    /// Output of a command that succeeded and has no result.
    pub fn done(&self, text: String) -> CommandOutput {
        self.output(&serde_json::json!({ "done": true }), || text)
    }
}
