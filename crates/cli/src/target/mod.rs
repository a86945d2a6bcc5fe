//! Targets by their address, and the operator's actions on their fences. Each scheme has its own file.

mod address;
#[cfg(feature = "etcd")]
mod etcd;
mod fence_id;
mod file;
mod http;
#[cfg(feature = "nats")]
mod nats;
mod postgres;
mod probe;
#[cfg(feature = "redis")]
mod redis;
mod run_fence_postgres;
mod sqlite;
mod startup_options;
mod timeouts;
mod unmodified_program;

use std::time::Duration;

use leasehold::{Code, Error};
use leasehold_core::token::{Cluster, Incarnation, Number};
use leasehold_fence::postgres::StampKey;
use leasehold_fence::{FenceId, FenceRefusal, Mark, MarkInfo, MarkLoss};

use crate::output::{CommandError, error_with_code};
use address::Location;
pub use address::{AddressParser, TargetAddress, can_be_forced, parse_named};
use fence_id::token;
pub use fence_id::{display_name, fence_id, is_mark_of};
pub use probe::{ProbeResult, TableFinding, TokenProbe, WriteProbe};
pub use startup_options::StartupOptions;
use timeouts::{ACTION_TIMEOUT, on_thread, within};
pub use unmodified_program::CommandFence;

/// Longest error text of a target that is shown.
const MAX_ERROR_CHARS: usize = 500;

/// What a probe presents, and for how long it waits.
#[derive(Clone, Copy, Debug)]
pub struct ProbeOptions<'a> {
    pub cluster: Cluster,
    /// The incarnation of the cluster, for a fence that does not say which one it follows.
    pub incarnation: Incarnation,
    pub resource: &'a str,
    /// Slots that have reported. Slots with a mark are probed too.
    pub slots: &'a [u32],
    /// Whether writes without a token are attempted too.
    pub attempt_writes: bool,
    pub timeout: Duration,
}

impl TargetAddress {
    /// Lists all marks.
    pub async fn marks(&self) -> Result<Vec<MarkInfo>, CommandError> {
        within(ACTION_TIMEOUT, self.marks_without_limit()).await
    }

    async fn marks_without_limit(&self) -> Result<Vec<MarkInfo>, CommandError> {
        match self.location.clone() {
            Location::Postgres(url) => postgres::marks(&url, self.source).await,
            #[cfg(feature = "redis")]
            Location::Redis(url) => redis::marks(&url).await,
            #[cfg(feature = "etcd")]
            Location::Etcd(url) => etcd::marks(&url).await,
            #[cfg(feature = "nats")]
            Location::Nats(url) => nats::marks(&url).await,
            Location::Http(_) => Err(http::marks_are_in_a_file()),
            Location::Sqlite(path) => on_thread(move || sqlite::marks(&path)).await,
            Location::File(path) => on_thread(move || file::marks(&path)).await,
        }
    }

    /// Installs the fence if necessary, and arms it for a resource that was not written to under a lease before.
    pub async fn arm(&self, fence_id: &FenceId) -> Result<(), CommandError> {
        let id = fence_id.clone();
        let work = async {
            match self.location.clone() {
                Location::Postgres(url) => postgres::arm(&url, self.source, &id).await,
                #[cfg(feature = "redis")]
                Location::Redis(url) => redis::arm(&url, &id).await,
                #[cfg(feature = "etcd")]
                Location::Etcd(url) => etcd::arm(&url, &id).await,
                #[cfg(feature = "nats")]
                Location::Nats(url) => nats::arm(&url, &id).await,
                Location::Http(_) => Err(http::marks_are_in_a_file()),
                Location::Sqlite(path) => on_thread(move || sqlite::arm(&path, &id)).await,
                Location::File(path) => on_thread(move || file::arm(&path, &id)).await,
            }
        };
        within(ACTION_TIMEOUT, work).await
    }

    /// Protects a table of a database: it refuses every write without a current token.
    pub async fn protect(&self, fence_id: &FenceId, table: &str) -> Result<(), CommandError> {
        let (id, table) = (fence_id.clone(), table.to_owned());
        let work = async {
            match self.location.clone() {
                Location::Postgres(url) => postgres::protect(&url, self.source, &id, &table).await,
                Location::Sqlite(path) => on_thread(move || sqlite::protect(&path, &id, &table)).await,
                _ => Err(error_with_code(
                    "INVALID_ARGUMENT",
                    &"only PostgreSQL and SQLite have tables; use postgres://USER@HOST/DATABASE or sqlite:PATH",
                )),
            }
        };
        within(ACTION_TIMEOUT, work).await
    }

    /// Whether [`TargetAddress::rearm`] creates a mark that is missing.
    pub const fn rearm_creates_marks(&self) -> bool {
        match self.location {
            #[cfg(feature = "etcd")]
            Location::Etcd(_) => true,
            #[cfg(feature = "nats")]
            Location::Nats(_) => true,
            #[cfg(feature = "redis")]
            Location::Redis(_) => false,
            Location::File(_) | Location::Http(_) | Location::Postgres(_) | Location::Sqlite(_) => false,
        }
    }

    /// Sets the mark to `floor`.
    pub async fn rearm(&self, fence_id: &FenceId, floor: Number) -> Result<(), CommandError> {
        let id = fence_id.clone();
        let work = async {
            match self.location.clone() {
                Location::Postgres(url) => postgres::rearm(&url, self.source, &id, floor).await,
                #[cfg(feature = "redis")]
                Location::Redis(url) => redis::rearm(&url, &id, floor).await,
                #[cfg(feature = "etcd")]
                Location::Etcd(url) => etcd::rearm(&url, &id, floor).await,
                #[cfg(feature = "nats")]
                Location::Nats(url) => nats::rearm(&url, &id, floor).await,
                Location::Http(_) => Err(http::marks_are_in_a_file()),
                Location::Sqlite(path) => on_thread(move || sqlite::rearm(&path, &id, floor)).await,
                Location::File(path) => on_thread(move || file::rearm(&path, &id, floor)).await,
            }
        };
        within(ACTION_TIMEOUT, work).await
    }

    /// Declares the mark lost.
    pub async fn declare_lost(&self, fence_id: &FenceId) -> Result<(), CommandError> {
        let id = fence_id.clone();
        let work = async {
            match self.location.clone() {
                Location::Postgres(url) => postgres::declare_lost(&url, self.source, &id).await,
                #[cfg(feature = "redis")]
                Location::Redis(url) => redis::declare_lost(&url, &id).await,
                #[cfg(feature = "etcd")]
                Location::Etcd(url) => etcd::declare_lost(&url, &id).await,
                #[cfg(feature = "nats")]
                Location::Nats(url) => nats::declare_lost(&url, &id).await,
                Location::Http(_) => Err(http::marks_are_in_a_file()),
                Location::Sqlite(path) => on_thread(move || sqlite::declare_lost(&path, &id)).await,
                Location::File(path) => on_thread(move || file::declare_lost(&path, &id)).await,
            }
        };
        within(ACTION_TIMEOUT, work).await
    }

    /// Accepts tokens of this incarnation from now on.
    pub async fn adopt(&self, fence_id: &FenceId, incarnation: Incarnation) -> Result<(), CommandError> {
        let id = fence_id.clone();
        let work = async {
            match self.location.clone() {
                Location::Postgres(url) => postgres::adopt(&url, self.source, &id, incarnation).await,
                #[cfg(feature = "redis")]
                Location::Redis(url) => redis::adopt(&url, &id, incarnation).await,
                #[cfg(feature = "etcd")]
                Location::Etcd(url) => etcd::adopt(&url, &id, incarnation).await,
                #[cfg(feature = "nats")]
                Location::Nats(url) => nats::adopt(&url, &id, incarnation).await,
                Location::Http(_) => Err(http::marks_are_in_a_file()),
                Location::Sqlite(path) => on_thread(move || sqlite::adopt(&path, &id, incarnation)).await,
                Location::File(path) => on_thread(move || file::adopt(&path, &id, incarnation)).await,
            }
        };
        within(ACTION_TIMEOUT, work).await
    }

    /// Seals the fence, permanently. Only PostgreSQL takes a stamp key.
    pub async fn seal(&self, fence_id: &FenceId, stamp_key: Option<&StampKey>) -> Result<(), CommandError> {
        let id = fence_id.clone();
        let work = async {
            match (self.location.clone(), stamp_key) {
                (Location::Postgres(url), Some(key)) => postgres::seal(&url, self.source, &id, key).await,
                (Location::Postgres(_), None) => Err(error_with_code(
                    "INVALID_ARGUMENT",
                    &"PostgreSQL verifies stamps; pass --stamp-key FILE with the key that makes them",
                )),
                (_, Some(_)) => Err(error_with_code(
                    "INVALID_ARGUMENT",
                    &"only PostgreSQL has stamps; omit --stamp-key, and give the fence the public keys",
                )),
                #[cfg(feature = "redis")]
                (Location::Redis(url), None) => redis::seal(&url, &id).await,
                #[cfg(feature = "etcd")]
                (Location::Etcd(url), None) => etcd::seal(&url, &id).await,
                #[cfg(feature = "nats")]
                (Location::Nats(url), None) => nats::seal(&url, &id).await,
                (Location::Http(_), None) => Err(http::marks_are_in_a_file()),
                (Location::Sqlite(path), None) => on_thread(move || sqlite::seal(&path, &id)).await,
                (Location::File(path), None) => on_thread(move || file::seal(&path, &id)).await,
            }
        };
        within(ACTION_TIMEOUT, work).await
    }

    /// Presents a token below the mark to the fence of each slot, and attempts writes without a token if the options ask for
    /// it. Returns the reply of the first slot that does not refuse.
    ///
    /// Nothing changes in the target, with one exception: an HTTP fence that has not seen any token accepts the lowest number.
    pub async fn probe(&self, options: ProbeOptions<'_>) -> Result<ProbeResult, CommandError> {
        within(options.timeout, self.probe_without_limit(options)).await
    }

    async fn probe_without_limit(&self, options: ProbeOptions<'_>) -> Result<ProbeResult, CommandError> {
        let marks = match self.location {
            Location::Http(_) => Vec::new(),
            _ => match self.marks_without_limit().await {
                Err(error) if is_missing(&error) => return Ok(ProbeResult::token_only(TokenProbe::Missing)),
                marks => marks?,
            },
        };
        let main = fence_id(options.cluster, options.resource, 0)?;
        let mut slots = options.slots.to_vec();
        slots.extend(marks.iter().filter(|info| info.resource_hash == main.resource_hash()).map(|info| info.slot));
        slots.sort_unstable();
        slots.dedup();
        if slots.is_empty() {
            slots.push(0);
        }
        let mut report = ProbeResult::token_only(TokenProbe::Missing);
        let mut write = WriteProbe::NotAttempted;
        for slot in slots {
            let fence = fence_id(options.cluster, options.resource, slot)?;
            let mark = marks.iter().find(|info| is_mark_of(info, &fence));
            let token = self.probe_token(&fence, mark, options).await?;
            report = ProbeResult::token_only(token);
            if !report.refuses_stale() {
                return Ok(report);
            }
            if options.attempt_writes {
                write = write.merge(self.probe_writes(&fence).await?);
            }
        }
        Ok(ProbeResult { write, ..report })
    }

    /// Presents a token below the mark to the fence inside the target.
    async fn probe_token(
        &self,
        fence_id: &FenceId,
        mark: Option<&MarkInfo>,
        options: ProbeOptions<'_>,
    ) -> Result<TokenProbe, CommandError> {
        if let Location::Http(url) = &self.location {
            return http::probe(url, fence_id, options.incarnation).await;
        }
        let stale = match mark {
            None => return Ok(TokenProbe::Missing),
            Some(info) if info.cluster != fence_id.cluster() => return Ok(TokenProbe::Foreign(Some(info.cluster))),
            Some(MarkInfo { mark: Mark::Lost, .. }) => return Ok(TokenProbe::Lost),
            Some(MarkInfo { mark: Mark::Fresh, .. }) => return Ok(TokenProbe::Fresh),
            Some(MarkInfo { mark: Mark::Armed(mark), incarnation, .. }) => {
                let Some(below) = Number::new(mark.get() - 1) else { return Ok(TokenProbe::Fresh) };
                token(fence_id, below, incarnation.unwrap_or(options.incarnation))
            }
        };
        let id = fence_id.clone();
        match self.location.clone() {
            Location::Postgres(url) => postgres::probe(&url, self.source, &id, &stale).await,
            #[cfg(feature = "redis")]
            Location::Redis(url) => redis::probe(&url, &id, &stale).await,
            #[cfg(feature = "etcd")]
            Location::Etcd(url) => etcd::probe(&url, &id, &stale).await,
            #[cfg(feature = "nats")]
            Location::Nats(url) => nats::probe(&url, &id, &stale).await,
            Location::Http(url) => http::probe(&url, &id, options.incarnation).await,
            Location::Sqlite(path) => on_thread(move || sqlite::probe(&path, &id, &stale)).await,
            Location::File(path) => on_thread(move || file::probe(&path, &id, &stale)).await,
        }
    }

    /// Attempts writes without a token, which are rolled back.
    async fn probe_writes(&self, fence_id: &FenceId) -> Result<WriteProbe, CommandError> {
        let (id, tables) = (fence_id.clone(), self.tables.clone());
        match self.location.clone() {
            Location::Postgres(url) => postgres::probe_writes(&url, self.source, &id, &tables).await,
            Location::Sqlite(path) => on_thread(move || sqlite::probe_writes(&path, &id, &tables)).await,
            Location::Http(url) => http::probe_writes(&url, &id).await,
            Location::File(_) => Ok(WriteProbe::NeverRefused),
            #[cfg(feature = "redis")]
            Location::Redis(_) => Ok(WriteProbe::NeverRefused),
            #[cfg(feature = "etcd")]
            Location::Etcd(_) => Ok(WriteProbe::NeverRefused),
            #[cfg(feature = "nats")]
            Location::Nats(_) => Ok(WriteProbe::NeverRefused),
        }
    }
}

/// Converts a fence's error, with its code. A target may be anyone's, so that its text is cut and cannot control the terminal.
fn fence_error(error: &leasehold_fence::Error) -> CommandError {
    let shown = printable(&error.to_string());
    if let leasehold_fence::Error::Refused(FenceRefusal::MarkLost(MarkLoss::Missing)) = error {
        return CommandError::Coded(Error::new(Code::NotFound, shown));
    }
    error_with_code(error.code(), &shown)
}

/// A text from a target on one line, without control characters.
fn printable(text: &str) -> String {
    let mut shown: String = text.chars().take(MAX_ERROR_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(MAX_ERROR_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

fn is_missing(error: &CommandError) -> bool {
    matches!(error, CommandError::Coded(error) if error.code() == Some(Code::NotFound))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_target_is_cut_and_cannot_control_the_terminal() {
        let error = leasehold_fence::Error::Storage(format!("\u{1b}[2J\r\n{}", "x".repeat(10_000)).into());
        let CommandError::Coded(error) = fence_error(&error) else { panic!("it has a code") };
        assert!(!error.to_string().chars().any(char::is_control), "{error}");
        assert!(error.to_string().chars().count() < 600, "{error}");
    }
}
