//! Whether the peer of an open connection still belongs here: its certificate is compared again with the clock and the current
//! bundles (A10).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use leasehold_wire::{Code, v1};
use tokio::sync::watch;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::{CertificateError, Error};

use super::state::TlsHandle;

/// Longest time between two checks of a connection without requests.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Why a peer no longer belongs here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MembershipEnd {
    /// Its certificate is over.
    Expired,
    /// Its certificate was revoked.
    Revoked,
    /// No current bundle vouches for it.
    Untrusted,
}

impl MembershipEnd {
    /// The reason in log lines and problems.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Expired => "the client certificate expired",
            Self::Revoked => "the client certificate was revoked",
            Self::Untrusted => "the client certificate is no longer trusted",
        }
    }

    /// The reason for the end of a stream, and the refusal of a request that arrives before the connection is closed.
    pub fn problem(self) -> v1::Problem {
        let message = format!("{}; nothing happened, reconnect with a valid certificate", self.reason());
        v1::Problem {
            field: "certificate".into(),
            reason: self.reason().into(),
            next_step: "Reconnect with a valid certificate.".into(),
            ..v1::Problem::of(Code::Unauthenticated, message)
        }
    }
}

impl fmt::Display for MembershipEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

/// The certificate of an open connection.
pub struct Membership {
    tls: Arc<TlsHandle>,
    chain: Vec<CertificateDer<'static>>,
    not_after: SystemTime,
    /// The trust epoch under which the certificate was verified last.
    verified: AtomicU64,
    epoch: watch::Receiver<u64>,
    end: watch::Sender<Option<MembershipEnd>>,
}

impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = *self.end.borrow();
        f.debug_struct("Membership").field("not_after", &self.not_after).field("end", &end).finish_non_exhaustive()
    }
}

tokio::task_local! {
    static CURRENT: Option<Arc<Membership>>;
}

impl Membership {
    /// Runs the request of a connection; [`Membership::current`] returns its membership.
    pub fn scope<F: Future>(membership: Option<Arc<Self>>, future: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(membership, future)
    }

    /// The membership of the current request; `None` without TLS.
    pub fn current() -> Option<Arc<Self>> {
        CURRENT.try_with(Clone::clone).ok().flatten()
    }

    /// A connection whose certificate was verified under a trust epoch.
    pub(super) fn new(
        tls: Arc<TlsHandle>,
        chain: Vec<CertificateDer<'static>>,
        not_after: SystemTime,
        verified: u64,
    ) -> Arc<Self> {
        let (epoch, verified, end) = (tls.trust_epoch(), AtomicU64::new(verified), watch::Sender::new(None));
        Arc::new(Self { tls, chain, not_after, verified, epoch, end })
    }

    /// Fails if the peer no longer belongs here. Cheap, unless the bundles changed since the last call.
    pub fn check(&self) -> Result<(), MembershipEnd> {
        if let Some(end) = *self.end.borrow() {
            return Err(end);
        }
        let checked = if self.not_after <= SystemTime::now() {
            Err(MembershipEnd::Expired)
        } else if self.verified.load(Ordering::Acquire) == *self.epoch.borrow() {
            Ok(())
        } else {
            self.verify()
        };
        self.record(checked)
    }

    fn record(&self, checked: Result<(), MembershipEnd>) -> Result<(), MembershipEnd> {
        if let Err(end) = checked {
            self.end.send_if_modified(|known| known.replace(end).is_none());
        }
        checked
    }

    fn verify(&self) -> Result<(), MembershipEnd> {
        match self.tls.verify(&self.chain) {
            Ok((_, epoch)) => {
                self.verified.store(epoch, Ordering::Release);
                Ok(())
            }
            Err(Error::InvalidCertificate(CertificateError::Revoked)) => Err(MembershipEnd::Revoked),
            Err(Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. })) => {
                Err(MembershipEnd::Expired)
            }
            Err(_) => Err(MembershipEnd::Untrusted),
        }
    }

    /// Checks whenever the bundles change, when the certificate ends, and periodically; returns when the peer no longer belongs here.
    pub async fn watch(&self) -> MembershipEnd {
        let mut epoch = self.epoch.clone();
        loop {
            epoch.mark_unchanged();
            if let Err(end) = self.check() {
                return end;
            }
            // The wall clock may be set, so the end of the certificate is not waited for in one sleep.
            let left = self.not_after.duration_since(SystemTime::now()).unwrap_or_default();
            let mut ended = self.end.subscribe();
            tokio::select! {
                () = tokio::time::sleep(left.min(CHECK_INTERVAL)) => {
                    // Certificates between the peer's and an authority may end before the peer's.
                    if self.chain.len() > 1 && let Err(end) = self.record(self.verify()) {
                        return end;
                    }
                }
                // The sender lives as long as `self.tls`.
                _ = epoch.changed() => {}
                _ = ended.changed() => {}
            }
        }
    }

    /// Resolves when the peer no longer belongs here, once a check has found it.
    pub async fn ended(&self) -> MembershipEnd {
        let mut end = self.end.subscribe();
        let ended = end.wait_for(Option::is_some).await.map(|end| *end);
        // The sender is part of `self`.
        ended.ok().flatten().unwrap_or(MembershipEnd::Untrusted)
    }
}
