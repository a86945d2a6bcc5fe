//! What every command knows: where the servers are, and whether a program reads along.

use leasehold::{Client, Endpoints, Error};
use serde::Serialize;

use crate::told::{Answer, Failure, json};

/// Options of every command
#[derive(clap::Args)]
pub struct Everywhere {
    /// The servers to ask, one after the other: HOST:PORT[,HOST:PORT...] [default: 127.0.0.1:7421]
    #[arg(
        long,
        global = true,
        env = "LEASEHOLD_ADDR",
        hide_env_values = true,
        value_name = "ADDR",
        help_heading = "Everywhere"
    )]
    addr: Option<String>,
    /// Print JSON: one document for each answer, and problems on standard error
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub json: bool,
}

/// Who may answer a look
#[derive(clap::Args)]
pub struct MayStandBy {
    /// Take the answer of a server that stands by, too, if it has come as far as this position of the journal. What it tells
    /// is as of a position that is told with it, and may be behind the leader
    #[arg(long, value_name = "POSITION", num_args = 0..=1, require_equals = true, default_missing_value = "0")]
    standby: Option<u64>,
}

/// Where a server listens unless told otherwise.
const DEFAULT_ADDR: &str = "127.0.0.1:7421";

impl Everywhere {
    /// The servers, if anybody named them.
    pub fn addr(&self) -> Option<&str> {
        self.addr.as_deref()
    }

    /// The servers, or where one is expected.
    pub fn addr_or_default(&self) -> &str {
        self.addr().unwrap_or(DEFAULT_ADDR)
    }

    /// The same, checked.
    pub fn endpoints(&self) -> Result<Endpoints, Error> {
        Endpoints::parse(self.addr_or_default())
    }

    /// Asks the servers something.
    pub fn ask<T>(&self, work: impl AsyncFnOnce(Client) -> Result<T, Error>) -> Result<T, Failure> {
        self.run(async |client| work(client).await.map_err(Failure::from))
    }

    /// The same, for what can fail in other ways too.
    pub fn run<T>(&self, work: impl AsyncFnOnce(Client) -> Result<T, Failure>) -> Result<T, Failure> {
        let endpoints = self.endpoints()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::Other(format!("cannot start: {error}")))?;
        runtime.block_on(async { work(Client::connect(endpoints)).await })
    }

    /// Looks. If a server that stands by may answer, it is noted of which position that is true.
    pub fn look<T>(
        &self,
        may: &MayStandBy,
        work: impl AsyncFnOnce(Client) -> Result<T, Error>,
    ) -> Result<(T, Option<String>), Failure> {
        self.ask(async |client| {
            let Some(least) = may.standby else { return Ok((work(client).await?, None)) };
            let client = client.or_standby(least);
            let seen = work(client.clone()).await?;
            Ok((seen, client.position().map(|position| format!("as of position {position}"))))
        })
    }

    /// An answer for a program, or for people.
    pub fn answer<T: Serialize>(&self, body: &T, for_people: impl FnOnce() -> String) -> Answer {
        Answer::from(if self.json { json(body) } else { for_people() })
    }

    /// It is done; for people, in words.
    pub fn done(&self, words: String) -> Answer {
        self.answer(&serde_json::json!({ "done": true }), || words)
    }
}
