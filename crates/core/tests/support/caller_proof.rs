//! What a story's caller proves: by default the secrets of everything that its command names.

use leasehold_core::command::{Command, Proof, Request};
use leasehold_core::secret::SecretDigest;

use crate::support::labels::{Entity, Labels, Lease};

/// The secrets of the session and of the lease, the receipt or the cached key that a command names.
pub fn of(labels: &Labels, request: &Request<'_>, command: &Command<'_>, lease: Option<&Lease>) -> Proof {
    let session = request.id.map(|id| id.session).or_else(|| command.session());
    let session = session.and_then(|id| labels.secret_of(id)).map(SecretDigest::from);
    Proof { stream: None, session, lease: command.token_number().or(lease.map(|lease| lease.number)) }
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
