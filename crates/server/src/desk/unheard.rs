//! A grant on its way to a caller who may be gone: heard, or given back (W3).

use std::fmt;
use std::sync::Arc;

use leasehold_core::command::{Answer, Grant, Held};

use crate::inbox::Inbox;

/// Grants that nobody can ask for again. Dropped before they were heard, they are given back.
pub struct Unheard {
    inbox: Arc<Inbox>,
    grants: Vec<Held<'static>>,
}

impl Unheard {
    /// What an answer grants, if it does.
    pub(super) fn of(answer: &Answer, inbox: &Arc<Inbox>) -> Option<Self> {
        let held = |grant: &Grant| Held::by_id(grant.lease, grant.number);
        let grants = match answer {
            Answer::Granted(grant) => vec![held(grant)],
            Answer::GrantedAll(grants) => grants.iter().map(held).collect(),
            _ => return None,
        };
        Some(Self { inbox: inbox.clone(), grants })
    }

    /// The caller is there.
    pub fn heard(mut self) {
        self.grants.clear();
    }
}

impl Drop for Unheard {
    fn drop(&mut self) {
        if !self.grants.is_empty() {
            // A server that stops leaves them to their ttl.
            let _ = self.inbox.give_back(std::mem::take(&mut self.grants));
        }
    }
}

impl fmt::Debug for Unheard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Unheard").field(&self.grants).finish()
    }
}
