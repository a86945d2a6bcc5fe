//! Verifies client certificates: the name selects the bundle of its trust domain, and only that bundle may vouch for it (A3).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, PeerIncompatible, RootCertStore,
    SignatureScheme, crypto,
};

use super::certificate::PeerName;

/// Verifies the certificates of all trust domains.
pub(super) struct ClientVerifier {
    /// By trust domain; without one for DNS names.
    bundles: BTreeMap<Option<String>, Arc<dyn ClientCertVerifier>>,
    subjects: Vec<DistinguishedName>,
    /// Whether a client may present none. One that is presented is verified in any case.
    optional: bool,
    provider: Arc<CryptoProvider>,
}

impl fmt::Debug for ClientVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientVerifier").field("domains", &self.bundles.keys()).finish_non_exhaustive()
    }
}

impl ClientVerifier {
    /// A verifier with one bundle for each trust domain.
    pub fn new(
        bundles: BTreeMap<Option<String>, RootCertStore>,
        lists: &[CertificateRevocationListDer<'static>],
        optional: bool,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, VerifierBuilderError> {
        let subjects = bundles.values().flat_map(RootCertStore::subjects).collect();
        let verifier = |roots: RootCertStore| {
            let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
            // An authority without a list has revoked nothing that is known here. A list that is past its next update still counts.
            builder.with_crls(lists.iter().cloned()).allow_unknown_revocation_status().build()
        };
        let bundles = bundles
            .into_iter()
            .map(|(domain, roots)| Ok((domain, verifier(roots)?)))
            .collect::<Result<_, VerifierBuilderError>>()?;
        Ok(Self { bundles, subjects, optional, provider })
    }

    /// The name of a certificate that the bundle of its trust domain vouches for.
    pub fn verify(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<PeerName, Error> {
        let name = PeerName::of_client(certificate)
            .map_err(|error| Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error)))))?;
        let bundle = self.bundles.get(&name.trust_domain().map(str::to_owned));
        let bundle = bundle.ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
        bundle.verify_client_cert(certificate, intermediates, now)?;
        Ok(name)
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn offer_client_auth(&self) -> bool {
        // Without a bundle no certificate could be accepted.
        !self.optional || !self.bundles.is_empty()
    }

    fn client_auth_mandatory(&self) -> bool {
        !self.optional
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.subjects
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.verify(end_entity, intermediates, now).map(|_| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::PeerIncompatible(PeerIncompatible::Tls12NotOfferedOrEnabled))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        crypto::verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
