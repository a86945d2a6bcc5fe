//! When certificates end, and the warnings before they do.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use super::error::Age;

/// Days before the end at which a warning is logged, once each.
const WARN_DAYS: [u64; 3] = [30, 7, 1];
const DAY: Duration = Duration::from_secs(86_400);

/// The end of one certificate or revocation list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CertificateExpiry {
    /// What it is: `server`, `client_ca`, `client_ca DOMAIN`, `client_crl FILE`.
    pub certificate: String,
    /// Its end.
    pub not_after: SystemTime,
}

impl CertificateExpiry {
    /// Seconds until the end; negative afterwards.
    pub fn seconds_left(&self, now: SystemTime) -> f64 {
        match self.not_after.duration_since(now) {
            Ok(left) => left.as_secs_f64(),
            Err(past) => -past.duration().as_secs_f64(),
        }
    }
}

/// Which warnings were logged.
#[derive(Debug, Default)]
pub(super) struct ExpiryWarnings {
    /// The nearest threshold that was logged for each certificate.
    logged: Mutex<BTreeMap<CertificateExpiry, u64>>,
}

impl ExpiryWarnings {
    /// Warnings that are due now and were not returned before.
    pub fn due(&self, certificates: &[CertificateExpiry], now: SystemTime) -> Vec<String> {
        let mut logged = self.logged.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        logged.retain(|certificate, _| certificates.contains(certificate));
        let mut due = Vec::new();
        for certificate in certificates {
            let left = certificate.not_after.duration_since(now).unwrap_or_default();
            let reached = WARN_DAYS.into_iter().filter(|days| left <= DAY * u32::try_from(*days).unwrap_or(0)).min();
            // Past its end: one more warning, as threshold zero.
            let reached = if left.is_zero() { Some(0) } else { reached };
            let Some(reached) = reached else { continue };
            if logged.get(certificate).is_none_or(|before| reached < *before) {
                logged.insert(certificate.clone(), reached);
                let name = &certificate.certificate;
                due.push(if left.is_zero() {
                    format!("certificate expired: {name}; replace it")
                } else {
                    format!("certificate expires in {}: {name}; replace it before", Age(left.as_secs()))
                });
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_threshold_is_warned_of_once() {
        let (warnings, start) = (ExpiryWarnings::default(), SystemTime::UNIX_EPOCH + 20_000 * DAY);
        let server = CertificateExpiry { certificate: "server".into(), not_after: start + 90 * DAY };
        let at = |day: u32| warnings.due(std::slice::from_ref(&server), start + DAY * day).len();
        let counts: Vec<_> = [0, 59, 60, 61, 83, 84, 88, 89, 89, 90, 91].into_iter().map(at).collect();
        assert_eq!(counts, [0, 0, 1, 0, 1, 0, 0, 1, 0, 1, 0]);
        let renewed = CertificateExpiry { not_after: start + 91 * DAY, ..server.clone() };
        let text = warnings.due(&[renewed], start + 90 * DAY);
        assert_eq!(text, ["certificate expires in 24 h: server; replace it before"], "a new certificate warns again");
    }

    #[test]
    fn a_start_shortly_before_the_end_warns_once_with_the_nearest_threshold() {
        let (warnings, now) = (ExpiryWarnings::default(), SystemTime::UNIX_EPOCH + 20_000 * DAY);
        let server = [CertificateExpiry { certificate: "server".into(), not_after: now + DAY / 2 }];
        assert_eq!(warnings.due(&server, now).len(), 1);
        assert_eq!(warnings.due(&server, now).len(), 0);
        assert_eq!(server[0].seconds_left(now + DAY), -43_200.0);
    }
}
