//! Leases that were asked for together: all of them are handed out, or none.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use leasehold_core::time::Instant;

use super::Handle;
use super::inbox::{By, Given};
use crate::{Error, Guard};

/// Who waits for leases to be handed out, and until when.
pub(super) struct Group {
    pub handle: Weak<Handle>,
    pub patience: Instant,
    pub born: Instant,
    together: Mutex<Option<Together>>,
}

struct Together {
    by: By,
    guards: Vec<Option<Guard>>,
}

impl Group {
    pub(super) fn new(by: By, handle: Weak<Handle>, patience: Instant, born: Instant, count: usize) -> Arc<Self> {
        let guards = std::iter::repeat_with(|| None).take(count).collect();
        Arc::new(Self { handle, patience, born, together: Mutex::new(Some(Together { by, guards })) })
    }

    /// One of them may act; with the last one all are handed out. If they were refused meanwhile, or if nobody waits any
    /// more, the guards are dropped, and give their leases back.
    pub(super) fn add(&self, index: usize, guard: Guard) {
        let mut waiting = self.together.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(together) = waiting.as_mut() else {
            return;
        };
        together.guards[index] = Some(guard);
        if together.guards.iter().all(Option::is_some)
            && let Some(Together { by, guards }) = waiting.take()
        {
            by.tell.done(Ok(Given::Guards(guards.into_iter().flatten().collect())));
        }
    }

    /// One of them cannot be had, and so none.
    pub(super) fn refuse(&self, error: Error) {
        let waiting = self.together.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Together { by, guards }) = waiting {
            drop(guards);
            by.tell.done(Err(error));
        }
    }
}
