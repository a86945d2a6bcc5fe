//! The rules as the server gets them, the same text either way: a library of functions, or a script.

use std::sync::LazyLock;

use redis::aio::ConnectionLike;
use redis::{Cmd, FromRedisValue, Script};

use super::told;
use crate::Error;

/// The version of [`FUNCTIONS`] and [`SCRIPT`].
pub const VERSION: u32 = 1;

/// The library, for who installs it by hand: `redis-cli -x FUNCTION LOAD REPLACE`. Its functions are `leasehold_write` (keys:
/// the mark, then what the command touches; arguments: token, sequence of 20 digits or an empty text, the command),
/// `leasehold_claim` (the mark; the token), and `leasehold_arm`, `_rearm`, `_resume`, `_set` and `_tell` for operators.
pub const FUNCTIONS: &str = concat!("#!lua name=leasehold\n", include_str!("fence.lua"), include_str!("functions.lua"));

/// The same as a script, for servers without functions; its first argument is the verb.
pub const SCRIPT: &str = concat!(include_str!("fence.lua"), include_str!("script.lua"));

static SCRIPTED: LazyLock<Script> = LazyLock::new(|| Script::new(SCRIPT));

/// Installs the library in this server; again, it changes nothing. A newer version is refused and left as it is. Replicas
/// and the nodes of a cluster: it reaches replicas by itself, and must be installed in each primary.
pub async fn install(db: &mut impl ConnectionLike) -> Result<(), Error> {
    match version(db).await? {
        Some(VERSION) => return Ok(()),
        Some(have) if have > VERSION => return Err(Error::Version { have, want: VERSION }),
        Some(_) | None => {}
    }
    redis::cmd("FUNCTION").arg("LOAD").arg("REPLACE").arg(FUNCTIONS).query_async::<()>(db).await?;
    Ok(())
}

/// The version installed, if any is.
pub(super) async fn version(db: &mut impl ConnectionLike) -> Result<Option<u32>, Error> {
    match redis::cmd("FCALL").arg("leasehold_version").arg(0).query_async(db).await {
        Ok(have) => Ok(Some(have)),
        Err(error) if told::no_library(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A verb with its keys; the arguments follow.
pub(super) fn call(scripted: bool, verb: &str, mark: &str, keys: &[&str]) -> Cmd {
    let mut call = if scripted {
        let mut call = redis::cmd("EVALSHA");
        call.arg(SCRIPTED.get_hash());
        call
    } else {
        let mut call = redis::cmd("FCALL");
        call.arg(format!("leasehold_{verb}"));
        call
    };
    call.arg(keys.len() + 1).arg(mark).arg(keys);
    if scripted {
        call.arg(verb);
    }
    call
}

/// Sends it. A script that the server does not have yet, or has no more, is sent whole first: nothing ran in between.
pub(super) async fn ask<T: FromRedisValue>(
    scripted: bool,
    db: &mut impl ConnectionLike,
    call: &Cmd,
) -> Result<T, Error> {
    let mut answer = call.query_async(db).await;
    if scripted && matches!(&answer, Err(error) if error.code() == Some("NOSCRIPT")) {
        redis::cmd("SCRIPT").arg("LOAD").arg(SCRIPT).query_async::<()>(db).await?;
        answer = call.query_async(db).await;
    }
    Ok(answer?)
}
