//! `--fence`: claims the targets of a command before it starts, and gives the command what makes its writes carry the token.
//!
//! The token and the addresses reach the command by its environment, never by the arguments of a process.

use std::io;
use std::time::Duration;

use leasehold::{Code, Error, Guard};
use leasehold_core::token::TokenScope;
use leasehold_fence::FenceId;
use leasehold_fence::proxy::{TokenForwarder, UpstreamUrl};
use tokio::sync::oneshot;

use super::stderr_writer::StderrWriter;
use crate::output::{CommandError, error_with_code};
use crate::target::{CommandFence, StartupOptions, TargetAddress, can_be_forced, fence_id, parse_named};

/// Variable with the address of the first forwarder. Those of others end in `_2`, `_3` and so on.
const FENCE_URL: &str = "LEASEHOLD_FENCE_URL";

/// A target that the command writes to.
#[derive(Clone, Debug)]
pub struct RunFence {
    /// Name of the target in the charter, which selects its stamped token.
    target: Option<String>,
    address: TargetAddress,
}

impl RunFence {
    /// Parses `[NAME=]ADDRESS`. A target that cannot fence an unchanged command is refused.
    pub fn parse(text: &str) -> Result<Self, Error> {
        if text.starts_with("https:") {
            let message = "the forwarder has no TLS to the service; run `leasehold fence http` next to the service, and use \
                           http://HOST:PORT";
            return Err(Error::new(Code::InvalidArgument, message));
        }
        let (target, address) = match can_be_forced(text) {
            None if text.contains('=') => parse_named(text).map(|(name, address)| (Some(name), address))?,
            _ => (None, TargetAddress::parse(text)?),
        };
        address.check_command_fence()?;
        Ok(Self { target, address })
    }

    /// The text that this target accepts: the token, with its stamp if the server has made one.
    fn token(&self, guard: &Guard) -> String {
        let stamped = self.target.as_deref().and_then(|target| guard.stamped_token(target));
        stamped.map_or_else(|| guard.token().to_string(), |stamped| stamped.as_str().to_owned())
    }
}

/// Claimed targets of one run. Dropping it ends its forwarders.
#[derive(Default)]
pub struct ClaimedFences {
    /// Variables of the command.
    pub env: Vec<(String, String)>,
    forwarders: Vec<ForwarderThread>,
}

impl ClaimedFences {
    /// Claims every target for the holder of this lease, in the order of the command line.
    pub async fn claim(
        fences: &[RunFence],
        guard: &Guard,
        timeout: Duration,
        stderr: &StderrWriter,
    ) -> Result<Self, CommandError> {
        let mut claimed = Self::default();
        let mut options: Option<StartupOptions> = None;
        let id = id_of(guard)?;
        for fence in fences {
            let token = fence.token(guard);
            match fence.address.claim_for_command(&id, &token, timeout).await? {
                CommandFence::Postgres(next) => {
                    options = Some(match options {
                        None => next,
                        Some(first) => combine(first, &next)?,
                    });
                }
                CommandFence::Http { upstream, is_claimed } => {
                    if !is_claimed {
                        let shown = fence.address.redacted();
                        stderr.print(&format!(
                            "{shown} has no endpoint for claims, so its fence learns the token from the first write; if it has \
                             no fence, nothing is refused: run `leasehold fence http` in front of it"
                        ));
                    }
                    claimed.start_forwarder(upstream, &token).await?;
                }
            }
        }
        if let Some(options) = options {
            claimed.env.push(("PGOPTIONS".to_owned(), options.text(guard.remaining())));
        }
        Ok(claimed)
    }

    async fn start_forwarder(&mut self, upstream: UpstreamUrl, token: &str) -> Result<(), CommandError> {
        let forwarder = ForwarderThread::start(upstream, token.to_owned()).await?;
        let name = match self.forwarders.len() {
            0 => FENCE_URL.to_owned(),
            others => format!("{FENCE_URL}_{}", others + 1),
        };
        self.env.push((name, forwarder.url.clone()));
        self.forwarders.push(forwarder);
        Ok(())
    }
}

/// The fence of a lease's resource and slot.
fn id_of(guard: &Guard) -> Result<FenceId, Error> {
    let token = guard.token().parsed();
    match token.scope {
        TokenScope::Slot(slot) => fence_id(token.cluster, guard.resource(), slot),
        _ => Err(Error::new(Code::InvalidArgument, "a fence needs an exclusive lease; omit --fence")),
    }
}

/// The options for two databases. The command has only one `PGOPTIONS`.
fn combine(first: StartupOptions, next: &StartupOptions) -> Result<StartupOptions, Error> {
    if first.tokens != next.tokens {
        let message = "two databases need different values of PGOPTIONS, and the command has only one: their roles set other \
                       tokens, or both are sealed; run one command for each database";
        return Err(Error::config("fence", message));
    }
    Ok(first.with_timeouts_of(next))
}

/// A forwarder on a thread of its own, so that its traffic does not delay what ends the command.
struct ForwarderThread {
    url: String,
    /// Dropping it ends the thread.
    _shutdown: oneshot::Sender<()>,
}

impl ForwarderThread {
    async fn start(upstream: UpstreamUrl, token: String) -> Result<Self, CommandError> {
        let (started, start) = oneshot::channel();
        let (shutdown, ended) = oneshot::channel::<()>();
        let serve = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => return drop(started.send(Err(cannot_start(&error)))),
            };
            runtime.block_on(async {
                match TokenForwarder::bind(upstream, &token).await {
                    Ok(forwarder) => {
                        let _ = started.send(Ok(format!("http://{}", forwarder.address())));
                        forwarder.serve(async { drop(ended.await) }).await;
                    }
                    Err(error) => drop(started.send(Err(error_with_code(error.code(), &error)))),
                }
            });
        };
        std::thread::Builder::new().name("forwarder".to_owned()).spawn(serve).map_err(|error| cannot_start(&error))?;
        let url = start.await.map_err(|_| cannot_start(&io::Error::other("its thread ended")))??;
        Ok(Self { url, _shutdown: shutdown })
    }
}

fn cannot_start(error: &io::Error) -> CommandError {
    CommandError::Other(format!("cannot start the forwarder: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_may_have_the_name_of_its_target() {
        for (text, target) in [
            ("postgres://app@db/shop", None),
            ("postgres://db/shop?user=app", None),
            ("ledger=postgres://app@db/shop", Some("ledger")),
            ("a=b=http://127.0.0.1:7422", Some("a=b")),
        ] {
            assert_eq!(RunFence::parse(text).expect(text).target.as_deref(), target, "{text}");
        }
        for (text, reason) in [
            ("https://gate", "no TLS"),
            ("cache=redis://:hunter2@cache", "Redis cannot fence"),
            ("mysql://db", "not supported"),
            ("ledger", "not the address"),
            ("", "not the address"),
        ] {
            let error = RunFence::parse(text).expect_err(text).to_string();
            assert!(error.contains(reason) && !error.contains("hunter2"), "{text}: {error}");
        }
    }
}
