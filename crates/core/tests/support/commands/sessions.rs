//! Story commands for sessions.

use leasehold_core::command::{Acquire, Command, HeldDigest, IdRange, OpenSession};
use leasehold_core::ids::LeaseId;

use super::{Context, LineParser};
use crate::support::labels::{Labels, Lease};
use crate::support::tokenizer::WordReader;

pub fn parse<'a>(
    line: &LineParser<'a, '_>,
    at: &mut WordReader<'a>,
    context: &mut Context,
    lists: &'a mut Vec<LeaseId>,
) -> Result<Option<Command<'a>>, String> {
    let labels = line.labels;
    Ok(Some(if at.take("open session") {
        let holder = at.word("a holder")?;
        at.must("ttl")?;
        let ttl_ms = at.millis("a ttl")?;
        let waits_only = at.take("for waits only");
        Command::OpenSession(OpenSession { holder, ttl_ms, secret: context.secret.into(), waits_only })
    } else if at.take("open key") {
        context.secret = key(at)?;
        at.must("to acquire")?;
        // A few bytes leak.
        let acquire = Command::Acquire(Acquire::exclusive(at.word("a resource")?, "key", 60_000));
        Command::OpenKeySession { key: context.secret.into(), command: Some(Box::leak(Box::new(acquire))) }
    } else if at.take("renew key") {
        context.secret = key(at)?;
        Command::OpenKeySession { key: context.secret.into(), command: None }
    } else if at.take("resume") {
        let (session, own) = labels.session(at.word("a session")?)?;
        context.secret = own;
        let secret = if at.take("with a guessed secret") {
            [0xee; 32]
        } else if at.take("with the secret of") {
            labels.session(at.word("a session")?)?.1
        } else {
            own
        };
        Command::ResumeSession { session, secret: secret.into() }
    } else if at.take("renew session") {
        let (session, secret) = labels.session(at.word("a session")?)?;
        context.secret = secret;
        let known = if at.take("knowing") { Some(known(labels, at)?) } else { None };
        Command::RenewSession { session, held: known }
    } else if at.take("reconcile") {
        let (session, secret) = labels.session(at.word("a session")?)?;
        context.secret = secret;
        at.must("knowing")?;
        *lists = leases(labels, at)?.into_iter().map(|lease| lease.id).collect();
        lists.sort_unstable();
        let range = IdRange { from: bound(labels, at, "from")?, until: bound(labels, at, "before")? };
        Command::Reconcile { session, leases: lists, range }
    } else if at.take("close") {
        Command::CloseSession { session: labels.session(at.word("a session")?)?.0 }
    } else {
        return Ok(None);
    }))
}

/// The digest of an idempotency key of a client. No session of a story has it as its secret.
fn key(at: &mut WordReader<'_>) -> Result<[u8; 32], String> {
    Ok([0x80 | at.number::<u8>("a key")?; 32])
}

fn bound(labels: &Labels, at: &mut WordReader<'_>, word: &str) -> Result<Option<LeaseId>, String> {
    if at.take(word) { Ok(Some(labels.lease(at.word("a lease")?)?.id)) } else { Ok(None) }
}

fn leases(labels: &Labels, at: &mut WordReader<'_>) -> Result<Vec<Lease>, String> {
    if at.take("nothing") {
        return Ok(Vec::new());
    }
    let mut leases = Vec::new();
    loop {
        leases.push(labels.lease(at.word("a lease")?)?.clone());
        if !at.take("and") {
            return Ok(leases);
        }
    }
}

fn known(labels: &Labels, at: &mut WordReader<'_>) -> Result<HeldDigest, String> {
    let leases = leases(labels, at)?;
    let digest = leases.iter().fold(0, |digest, lease| digest ^ lease.number.get());
    Ok(HeldDigest { count: leases.len() as u32, digest })
}
