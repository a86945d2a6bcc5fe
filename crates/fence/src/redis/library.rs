//! The Lua code of the fence, as a library of functions and as a script, and how to call it.

use std::sync::LazyLock;

use redis::aio::ConnectionLike;
use redis::{Cmd, FromRedisValue, Script};

use super::{VERSION, error};
use crate::Error;

/// Library of functions. To install it by hand, use `redis-cli -x FUNCTION LOAD REPLACE`.
///
/// | function | keys | arguments |
/// |---|---|---|
/// | `leasehold_write` | the mark, then the keys of the command | token, sequence (20 digits, or empty), command |
/// | `leasehold_claim` | the mark | token |
/// | `leasehold_arm`, `_rearm`, `_resume`, `_update`, `_read` | the mark | for operators, see `fence.lua` |
pub const FUNCTIONS: &str = concat!("#!lua name=leasehold\n", include_str!("fence.lua"), include_str!("functions.lua"));

/// The same code as a script, for servers without functions. Its first argument is the operation: `write`, `claim`, ….
pub const SCRIPT: &str = concat!(include_str!("fence.lua"), include_str!("script.lua"));

static COMPILED_SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(SCRIPT));

/// Installs the library in this server. Idempotent; fails without a change if a newer version is installed. Redis replicates
/// the library to replicas; in a Redis cluster, install it on each primary.
pub async fn install(db: &mut impl ConnectionLike) -> Result<(), Error> {
    match version(db).await? {
        Some(VERSION) => return Ok(()),
        Some(have) if have > VERSION => return Err(Error::Version { found: have, supported: VERSION }),
        Some(_) | None => {}
    }
    redis::cmd("FUNCTION").arg("LOAD").arg("REPLACE").arg(FUNCTIONS).query_async::<()>(db).await?;
    Ok(())
}

/// The installed version, if any.
pub(super) async fn version(db: &mut impl ConnectionLike) -> Result<Option<u32>, Error> {
    match redis::cmd("FCALL").arg("leasehold_version").arg(0).query_async(db).await {
        Ok(have) => Ok(Some(have)),
        Err(error) if error::is_library_missing(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Command that calls an operation with its keys; the caller appends the arguments.
pub(super) fn command(use_script: bool, operation: &str, mark: &str, keys: &[&str]) -> Cmd {
    let mut command = if use_script {
        let mut command = redis::cmd("EVALSHA");
        command.arg(COMPILED_SCRIPT.get_hash());
        command
    } else {
        let mut command = redis::cmd("FCALL");
        command.arg(format!("leasehold_{operation}"));
        command
    };
    command.arg(keys.len() + 1).arg(mark).arg(keys);
    if use_script {
        command.arg(operation);
    }
    command
}

/// Sends a command. If the server does not have the script, loads it and sends the command again; nothing ran before.
pub(super) async fn query<T: FromRedisValue>(
    use_script: bool,
    db: &mut impl ConnectionLike,
    command: &Cmd,
) -> Result<T, Error> {
    let mut reply = command.query_async(db).await;
    if use_script && matches!(&reply, Err(error) if error.code() == Some("NOSCRIPT")) {
        redis::cmd("SCRIPT").arg("LOAD").arg(SCRIPT).query_async::<()>(db).await?;
        reply = command.query_async(db).await;
    }
    Ok(reply?)
}
