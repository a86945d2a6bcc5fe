//! The bearer token of the current request. A stream keeps it, and ends when it no longer counts (A10).

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;

use super::error::BearerError;
use super::verifier::{BearerVerifier, VerifiedBearer};
use crate::identity::{Identity, Via};

/// Longest time between two looks at the wall clock.
const CLOCK_INTERVAL: Duration = Duration::from_secs(30);

/// A token that a request presented.
pub struct PresentedBearer {
    verifier: Arc<BearerVerifier>,
    bearer: VerifiedBearer,
    epoch: watch::Receiver<u64>,
}

impl fmt::Debug for PresentedBearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PresentedBearer").field("bearer", &self.bearer).finish_non_exhaustive()
    }
}

tokio::task_local! {
    static CURRENT: Option<Arc<PresentedBearer>>;
}

impl PresentedBearer {
    /// Verifies the token of a request.
    pub fn verify(verifier: &Arc<BearerVerifier>, text: &str) -> Result<Arc<Self>, BearerError> {
        // Before the verification, so that a reload during it is noticed.
        let epoch = verifier.subscribe();
        let bearer = verifier.verify(text, SystemTime::now())?;
        Ok(Arc::new(Self { verifier: verifier.clone(), bearer, epoch }))
    }

    /// The identity that the token proves.
    pub fn identity(&self, peer: Option<SocketAddr>) -> Identity {
        Identity {
            principal: self.bearer.principal.clone(),
            via: Via::Bearer,
            credential: self.bearer.credential.clone(),
            peer,
            not_after: Some(self.bearer.not_after),
        }
    }

    /// Runs a request; [`PresentedBearer::current`] returns its token.
    pub fn scope<F: Future>(bearer: Option<Arc<Self>>, future: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(bearer, future)
    }

    /// The token of the current request; none if it presented none.
    pub fn current() -> Option<Arc<Self>> {
        CURRENT.try_with(Clone::clone).ok().flatten()
    }

    /// Fails if the token no longer counts.
    pub fn check(&self) -> Result<(), BearerError> {
        self.verifier.verify_again(&self.bearer, SystemTime::now())
    }

    /// Waits until the token no longer counts. Cancel safe.
    pub async fn ended(&self) -> BearerError {
        // From when the token was presented on.
        let mut reloads = self.epoch.clone();
        loop {
            if let Err(end) = self.check() {
                return end;
            }
            // The wall clock may be set, so the end is not waited for in one sleep.
            let left = self.bearer.not_after.duration_since(SystemTime::now()).unwrap_or_default();
            tokio::select! {
                () = tokio::time::sleep(left.min(CLOCK_INTERVAL)) => {}
                // The sender lives as long as `self.verifier`.
                _ = reloads.changed() => {}
            }
        }
    }
}
