//! Unmodified programs under `leasehold run --fence`: what makes their writes carry the token, and which targets cannot fence them.

use std::time::Duration;

use leasehold::{Code, Error};
use leasehold_fence::FenceId;
use leasehold_fence::proxy::UpstreamUrl;

use super::address::{Location, TargetAddress};
use super::startup_options::StartupOptions;
use super::timeouts::{ACTION_TIMEOUT, within};
use super::{http, run_fence_postgres};
use crate::output::CommandError;

/// A claimed target, and what the command needs to write to it.
pub enum CommandFence {
    /// The options of the command's connections.
    Postgres(StartupOptions),
    /// The service behind a forwarder that adds the token. Not every service that checks tokens accepts claims.
    Http { upstream: UpstreamUrl, is_claimed: bool },
}

impl TargetAddress {
    /// Fails if no target of this kind can fence an unchanged command, or if the address is invalid for it.
    pub fn check_command_fence(&self) -> Result<(), Error> {
        match &self.location {
            Location::Postgres(url) => run_fence_postgres::check_address(url, self.source),
            Location::Http(url) => upstream(url).map(drop),
            #[cfg(feature = "redis")]
            Location::Redis(_) => Err(cannot(
                "Redis",
                "a plain command of Redis carries no token, and only the fence's functions compare one in the same step as \
                 the write",
                "call FCALL leasehold_write with LEASEHOLD_TOKEN in the program, or write through an HTTP service behind \
                 `leasehold fence http`",
            )),
            Location::Sqlite(_) => Err(cannot(
                "SQLite",
                "a connection has no settings that a program gets from outside; each transaction must present the token",
                "run INSERT INTO leasehold_admit VALUES (resource, LEASEHOLD_TOKEN) at the start of each transaction",
            )),
            Location::File(_) => Err(cannot_compare()),
            #[cfg(feature = "etcd")]
            Location::Etcd(_) => Err(cannot_compare()),
            #[cfg(feature = "nats")]
            Location::Nats(_) => Err(cannot_compare()),
        }
    }

    /// Claims the target for the holder of this token, before its command starts.
    pub async fn claim_for_command(
        &self,
        fence_id: &FenceId,
        token: &str,
        timeout: Duration,
    ) -> Result<CommandFence, CommandError> {
        let work = async {
            match &self.location {
                Location::Postgres(url) => {
                    let target =
                        run_fence_postgres::CommandDatabase { url, source: self.source, shown: self.redacted() };
                    target.claim(fence_id, token, timeout).await.map(CommandFence::Postgres)
                }
                Location::Http(url) => {
                    let is_claimed = http::claim(url, token).await?;
                    Ok(CommandFence::Http { upstream: upstream(url)?, is_claimed })
                }
                _ => Err(self.check_command_fence().expect_err("checked when it was parsed").into()),
            }
        };
        within(timeout + ACTION_TIMEOUT, work).await
    }
}

fn upstream(url: &str) -> Result<UpstreamUrl, Error> {
    url.parse().map_err(|reason| Error::new(Code::InvalidArgument, format!("http: {reason}")))
}

/// The error for a target whose writes compare the token themselves.
fn cannot_compare() -> Error {
    cannot(
        "this target",
        "each of its writes must contain the comparison with the mark, which an unchanged program does not send",
        "use its client of leasehold-fence in the program, or write through an HTTP service behind \
         `leasehold fence http`",
    )
}

/// The error for a target that cannot fence an unchanged program.
fn cannot(target: &str, reason: &str, next_step: &str) -> Error {
    let message = format!("{target} cannot fence an unchanged command: {reason}; {next_step}");
    Error::new(Code::InvalidArgument, message).with_next_step(next_step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_cannot_fence_an_unchanged_command_says_why_and_what_to_do_instead() {
        for (address, reason, instead) in [
            ("redis://cache", "in the same step as the write", "FCALL leasehold_write"),
            ("sqlite:/ledger.db", "each transaction must present the token", "leasehold_admit"),
            ("file:/events.log", "comparison with the mark", "leasehold fence http"),
            ("etcd://a:2379", "comparison with the mark", "leasehold fence http"),
            ("nats://log/EVENTS", "comparison with the mark", "leasehold fence http"),
            ("http://gate", "HOST:PORT", "http://127.0.0.1:8080"),
            ("postgres://app@db/shop?options=-c%20a.b%3Dc", "options", "PGOPTIONS"),
            ("postgres://app:x@db:port/shop", "invalid PostgreSQL address", "postgres://USER@HOST/DATABASE"),
        ] {
            let error = TargetAddress::parse(address).expect("an address").check_command_fence().expect_err(address);
            assert_eq!(error.code(), Some(Code::InvalidArgument), "{address}");
            let text = error.to_string();
            assert!(text.contains(reason) && text.contains(instead), "{address}: {text}");
        }
        for address in ["postgres://app:hunter2@db/shop", "http://127.0.0.1:7422"] {
            TargetAddress::parse(address).expect("an address").check_command_fence().expect(address);
        }
    }
}
