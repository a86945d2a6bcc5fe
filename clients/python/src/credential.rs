//! Credentials that prove a lease offline.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use leasehold::recipes::credential::{
    CredentialIssuer, CredentialRequest, CredentialVerifier, SigningKey, SigningKeys,
};
use leasehold::types::Number;
use leasehold::{Code, Error};
use pyo3::prelude::*;

use crate::failure::{Failure, exception};
use crate::lease::NativeLease;
use crate::runtime::OwnedByProcess;

/// Signs credentials under the lease of the issuer.
#[pyclass(frozen, module = "leasehold._native")]
pub struct NativeIssuer(OwnedByProcess<CredentialIssuer>);

impl NativeIssuer {
    fn issuer(&self, py: Python<'_>) -> PyResult<&CredentialIssuer> {
        self.0.get().ok_or_else(|| Failure::Forked.into_exception(py))
    }
}

#[pymethods]
impl NativeIssuer {
    /// An issuer under its own lease. Without a key it generates one.
    #[new]
    #[pyo3(signature = (name, lease, key_name, key))]
    fn new(py: Python<'_>, name: &str, lease: &NativeLease, key_name: &str, key: Option<Vec<u8>>) -> PyResult<Self> {
        let failed = |error: Error| exception(py, error);
        let key = match key {
            Some(der) => SigningKey::from_pkcs8(key_name, &der),
            None => SigningKey::generate(key_name),
        };
        let keys = SigningKeys::new(key.map_err(failed)?);
        let issuer = CredentialIssuer::new(name, lease.handle(py)?, keys).map_err(failed)?;
        Ok(Self(OwnedByProcess::new(issuer)))
    }

    /// Signs a credential for a lease of this process.
    fn issue(
        &self,
        py: Python<'_>,
        lease: &NativeLease,
        audience: &str,
        subject: &str,
        lifetime_ms: u64,
    ) -> PyResult<String> {
        let request = CredentialRequest::new(audience, subject, Duration::from_millis(lifetime_ms));
        self.issuer(py)?.issue(&lease.handle(py)?, &request).map_err(|error| exception(py, error))
    }

    fn revoke(&self, py: Python<'_>, token_number: u64) -> PyResult<()> {
        let invalid =
            || Error::new(Code::InvalidArgument, "token_number: not a token number; pass `lease.token_number`");
        let number = Number::new(token_number).ok_or_else(|| exception(py, invalid()))?;
        self.issuer(py)?.revoke(number, SystemTime::now()).map_err(|error| exception(py, error))
    }

    fn revocation_list(&self, py: Python<'_>) -> PyResult<String> {
        self.issuer(py)?.revocation_list(SystemTime::now()).map_err(|error| exception(py, error))
    }

    fn jwks(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.issuer(py)?.jwks())
    }
}

/// Verifies credentials of one issuer for one audience. It needs no server.
#[pyclass(frozen, module = "leasehold._native")]
pub struct NativeVerifier(Mutex<CredentialVerifier>);

#[pymethods]
impl NativeVerifier {
    #[new]
    fn new(py: Python<'_>, issuer: &str, audience: &str, jwks: &str) -> PyResult<Self> {
        let verifier = CredentialVerifier::new(issuer, audience, jwks).map_err(|error| exception(py, error))?;
        Ok(Self(Mutex::new(verifier)))
    }

    fn set_revocation_list(&self, py: Python<'_>, list: &str) -> PyResult<()> {
        let mut verifier = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        verifier.set_revocation_list(list).map(drop).map_err(|error| exception(py, error.into()))
    }

    /// Subject, token text, token number and expiry in seconds since 1970.
    fn verify(&self, py: Python<'_>, text: &str, resource: &str) -> PyResult<(String, String, u64, u64)> {
        let verifier = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let verified = verifier.verify(text, resource).map_err(|error| exception(py, error.into()))?;
        Ok((verified.subject, verified.token.to_string(), verified.token.number.get(), verified.expires))
    }
}
