//! Why TLS cannot be configured, with the setting and the next step.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::credential_file::CredentialFileError;

/// The files of a TLS configuration cannot be used.
#[derive(Debug)]
pub struct TlsError {
    /// The setting that names the file.
    pub setting: &'static str,
    /// What is wrong.
    pub problem: TlsProblem,
}

/// What is wrong with a TLS configuration.
#[derive(Debug)]
pub enum TlsProblem {
    /// A file cannot be read, or others have access to a key.
    File(CredentialFileError),
    /// A file is not PEM, or contains nothing of this kind.
    NotPem {
        /// The file.
        file: PathBuf,
        /// What it must contain.
        expected: &'static str,
    },
    /// A certificate, key or revocation list cannot be decoded or used.
    Invalid {
        /// The file.
        file: PathBuf,
        /// Why.
        reason: String,
    },
    /// The key is not that of the certificate.
    KeyMismatch {
        /// The file of the key.
        key: PathBuf,
        /// The file of the certificate.
        cert: PathBuf,
    },
    /// The certificate is over.
    Expired {
        /// The file.
        file: PathBuf,
        /// How long ago.
        since_s: u64,
    },
    /// The certificate is not valid yet.
    NotYetValid {
        /// The file.
        file: PathBuf,
        /// How long until it is.
        in_s: u64,
    },
    /// Two bundles are for the same trust domain, or for none.
    RepeatedDomain {
        /// The domain; none for bundles of DNS names.
        domain: Option<String>,
    },
}

impl TlsError {
    pub(super) fn file(setting: &'static str) -> impl FnOnce(CredentialFileError) -> Self {
        move |error| Self { setting, problem: TlsProblem::File(error) }
    }

    pub(super) fn not_pem(setting: &'static str, file: &Path, expected: &'static str) -> Self {
        Self { setting, problem: TlsProblem::NotPem { file: file.to_owned(), expected } }
    }

    pub(super) fn invalid(setting: &'static str, file: &Path, reason: impl fmt::Display) -> Self {
        Self { setting, problem: TlsProblem::Invalid { file: file.to_owned(), reason: reason.to_string() } }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.setting)?;
        match &self.problem {
            TlsProblem::File(error) => error.fmt(f),
            TlsProblem::NotPem { file, expected } => {
                write!(f, "{} contains no {expected} in PEM; name a PEM file", file.display())
            }
            TlsProblem::Invalid { file, reason } => write!(f, "{} cannot be used: {reason}", file.display()),
            TlsProblem::KeyMismatch { key, cert } => write!(
                f,
                "{} is not the key of the certificate in {}; name the key that the certificate was issued for",
                key.display(),
                cert.display()
            ),
            TlsProblem::Expired { file, since_s } => {
                write!(f, "the certificate in {} expired {} ago; issue a new one", file.display(), Age(*since_s))
            }
            TlsProblem::NotYetValid { file, in_s } => write!(
                f,
                "the certificate in {} is valid only in {}; check the clock of this machine, or issue a new one",
                file.display(),
                Age(*in_s)
            ),
            TlsProblem::RepeatedDomain { domain: Some(domain) } => {
                write!(f, "two bundles for the trust domain {domain}; put their certificates into one file")
            }
            TlsProblem::RepeatedDomain { domain: None } => {
                f.write_str("two bundles without a trust domain; put their certificates into one file")
            }
        }
    }
}

impl std::error::Error for TlsError {}

/// Seconds in the largest unit that fits.
pub(super) struct Age(pub u64);

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            s @ 0..120 => write!(f, "{s} s"),
            s @ 120..7_200 => write!(f, "{} min", s / 60),
            s @ 7_200..172_800 => write!(f, "{} h", s / 3_600),
            s => write!(f, "{} days", s / 86_400),
        }
    }
}
