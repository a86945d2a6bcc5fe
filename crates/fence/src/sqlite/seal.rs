//! Sealed fences in SQLite: the function that verifies tokens inside the triggers, and the operator call that seals (A8).

use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, params};

use super::{Fence, protected, row, schema};
use crate::fence_id::wall_clock;
use crate::{Error, FenceRefusal, MarkLoss, SealVerifier};

/// Registers `leasehold_verify(token, name)` on a connection. It returns the number of a token that one of these keys signed for
/// this name, and NULL for every other text. The triggers of a sealed fence call it, so a connection without it cannot write to
/// its tables. A [`Fence`] with a verifier registers it by itself; call this for connections that use plain SQL.
///
/// The first verifier of a connection stays: all sealed fences of a connection share it.
pub fn register_verifier(db: &Connection, verifier: &SealVerifier) -> Result<(), Error> {
    let verifier = verifier.clone();
    // Innocuous: it reads nothing and changes nothing, so that schemas may call it although they are not trusted.
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_INNOCUOUS;
    let verify = move |context: &rusqlite::functions::Context<'_>| {
        let (token, name): (Option<String>, Option<String>) = (context.get(0)?, context.get(1)?);
        Ok(token.zip(name).and_then(|(token, name)| number(&verifier, &token, &name)))
    };
    Ok(db.create_scalar_function("leasehold_verify", 2, flags, verify)?)
}

/// The number of a token that verifies.
fn number(verifier: &SealVerifier, token: &str, name: &str) -> Option<i64> {
    verifier.verify(token, name, wall_clock().0).ok()?;
    leasehold_core::token::Token::parse(token).ok().and_then(|token| i64::try_from(token.number.get()).ok())
}

/// Whether a statement failed because the connection has no keys.
pub(super) fn is_function_missing(error: &rusqlite::Error) -> bool {
    match error {
        rusqlite::Error::SqliteFailure(_, Some(message)) => message.contains("no such function: leasehold_verify"),
        rusqlite::Error::SqlInputError { msg, .. } => msg.contains("no such function: leasehold_verify"),
        _ => false,
    }
}

impl Fence {
    /// Seals the fence, permanently: its tables accept only transactions that present a token which a key of the connection
    /// signed. A connection without [`leasehold_verify`](register_verifier) writes nothing to them, and can no longer claim or
    /// admit in plain SQL at any fence of this database.
    pub fn seal(&self, db: &mut Connection) -> Result<(), Error> {
        let tx = self.begin(db)?;
        let stored = row::read_mark(&tx, &self.id)?;
        if stored.loss == MarkLoss::Missing {
            return Err(FenceRefusal::MarkLost(MarkLoss::Missing).into());
        }
        if let Some(found) = schema::version(&tx)?.filter(|found| *found != super::VERSION) {
            return Err(Error::Version { found, supported: super::VERSION });
        }
        if !stored.sealed {
            let (id, cluster) = (&self.id, self.id.cluster().to_string());
            let sql = "INSERT INTO main.leasehold_sealed (resource, slot, name, cluster) VALUES (?1, ?2, ?3, ?4)";
            tx.execute(sql, params![id.resource_hash(), id.slot(), id.resource(), cluster])?;
            tx.execute_batch(schema::SEAL)?;
            protected::replace_guards(&tx)?;
        }
        tx.commit()?;
        Ok(())
    }

    /// Registers the function if this fence has keys and the connection has no function yet.
    pub(super) fn ensure_registered(&self, db: &Connection) -> Result<(), Error> {
        let Some(verifier) = &self.seals.0 else { return Ok(()) };
        match db.prepare_cached("SELECT leasehold_verify(NULL, NULL)") {
            Err(error) if is_function_missing(&error) => register_verifier(db, verifier),
            prepared => Ok(prepared.map(drop)?),
        }
    }
}
