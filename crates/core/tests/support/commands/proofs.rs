//! What a story's caller proves: by default the secrets of everything that its command names.

use leasehold_core::command::{Acquire, AcquireAll, Command, Handoff, Proof, Renew, Request};
use leasehold_core::ids::SessionId;
use leasehold_core::payload::cache::CacheCommand;
use leasehold_core::payload::delivery::DeliveryCommand;
use leasehold_core::secret::SecretDigest;
use leasehold_core::token::Number;

use crate::support::labels::{Entity, Labels, Lease};

/// The secrets of the session and of the lease, the receipt or the cached key that a command names.
pub fn of(labels: &Labels, request: &Request<'_>, command: &Command<'_>, lease: Option<&Lease>) -> Proof {
    let session = request.id.map(|id| id.session).or_else(|| session_of(command));
    let session = session.and_then(|id| labels.secret_of(id)).map(SecretDigest::from);
    Proof { stream: None, session, lease: number_of(command).or(lease.map(|lease| lease.number)) }
}

/// The secret of one entity.
pub fn secret(labels: &Labels, label: &str) -> Result<Proof, String> {
    match labels.get(label)? {
        Entity::Session { secret, .. } => Ok(Proof { session: Some((*secret).into()), ..Proof::NONE }),
        other => {
            let number = other.number().ok_or_else(|| format!("{label} has no secret"))?;
            Ok(Proof { lease: Some(number), ..Proof::NONE })
        }
    }
}

fn session_of(command: &Command<'_>) -> Option<SessionId> {
    match command {
        Command::RenewSession { session, .. }
        | Command::Reconcile { session, .. }
        | Command::CloseSession { session }
        | Command::Cancel { session, .. }
        | Command::Withdraw { session, .. } => Some(*session),
        Command::Acquire(Acquire { session, .. })
        | Command::AcquireAll(AcquireAll { session, .. })
        | Command::Delivery(DeliveryCommand::Receive { session, .. })
        | Command::Cache(
            CacheCommand::Read { session, .. }
            | CacheCommand::Intend { session, .. }
            | CacheCommand::GetOrFill { session, .. },
        ) => *session,
        _ => None,
    }
}

fn number_of(command: &Command<'_>) -> Option<Number> {
    match command {
        Command::Renew(Renew { lease, .. })
        | Command::Release(lease)
        | Command::Confirm(lease)
        | Command::Rotate(lease)
        | Command::Drained(lease)
        | Command::ConfirmHold(lease)
        | Command::Progress { lease, .. }
        | Command::ResizeHold { lease, .. }
        | Command::Veto { lease, .. }
        | Command::Pin { lease, .. }
        | Command::Put { lease, .. } => Some(lease.number),
        Command::Handoff(Handoff { number, .. }) => *number,
        Command::Delivery(
            DeliveryCommand::Extend { receipt, .. }
            | DeliveryCommand::Ack { receipt, .. }
            | DeliveryCommand::Nack { receipt, .. },
        ) => Some(*receipt),
        Command::Cache(
            CacheCommand::RenewRead { lease: number, .. }
            | CacheCommand::Invalidated { lease: number, .. }
            | CacheCommand::Commit { intent: number, .. }
            | CacheCommand::Abort { number, .. }
            | CacheCommand::Filled { token: number, .. },
        ) => Some(*number),
        _ => None,
    }
}
