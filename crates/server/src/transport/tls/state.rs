//! The TLS configuration in effect: loaded from files as a whole, and replaced as a whole.
//!
//! A configuration that does not load changes nothing (A10). The trust epoch rises only if a bundle or a revocation list changed, so
//! that a new server certificate makes no connection verify its peer again.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::SystemTime;

use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tokio_rustls::rustls::crypto::{CryptoProvider, SupportedKxGroup, aws_lc_rs};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use tokio_rustls::rustls::server::NoServerSessionStorage;
use tokio_rustls::rustls::{Error, InconsistentKeys, RootCertStore, ServerConfig, version};

use super::certificate::{self, PeerName};
use super::client_verifier::ClientVerifier;
use super::error::{TlsError, TlsProblem};
use super::expiry::{CertificateExpiry, ExpiryWarnings};
use super::settings::{ClientCa, TlsSettings};
use crate::credential_file::{self, FileFingerprint};

/// Key exchanges in order of preference: the hybrid one also resists a quantum computer.
const KEY_EXCHANGES: [&dyn SupportedKxGroup; 4] = [
    aws_lc_rs::kx_group::X25519MLKEM768,
    aws_lc_rs::kx_group::X25519,
    aws_lc_rs::kx_group::SECP256R1,
    aws_lc_rs::kx_group::SECP384R1,
];

/// What a reload changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsReload {
    /// The server's certificate, at most. Open connections are not affected.
    Certificate,
    /// Bundles or revocation lists. Every connection verifies its peer again.
    Trust,
}

/// The TLS configuration in effect.
pub struct TlsHandle {
    current: RwLock<Arc<TlsState>>,
    /// The trust epoch, for connections that wait for a change.
    trust: watch::Sender<u64>,
    loaded: Mutex<LoadedFiles>,
    warnings: ExpiryWarnings,
}

/// The files from which the configuration was loaded.
struct LoadedFiles {
    settings: TlsSettings,
    stamps: Vec<FileFingerprint>,
    /// The last error of a reload, so that it is reported once.
    error: Option<String>,
}

/// One configuration. It never changes.
struct TlsState {
    config: Arc<ServerConfig>,
    verifier: Arc<ClientVerifier>,
    trust_epoch: u64,
    trust_digest: [u8; 32],
    host_names: Vec<String>,
    expiry: Vec<CertificateExpiry>,
    /// The first end of an authority: then the bundles are built again without it.
    authority_ends: Option<SystemTime>,
}

impl fmt::Debug for TlsHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsHandle").field("settings", &self.loaded().settings).finish_non_exhaustive()
    }
}

impl TlsHandle {
    /// Loads the files.
    pub fn load(settings: TlsSettings) -> Result<Arc<Self>, TlsError> {
        let stamps = settings.stamps();
        let state = TlsState::load(&settings, SystemTime::now(), None)?;
        Ok(Arc::new(Self {
            current: RwLock::new(Arc::new(state)),
            trust: watch::Sender::new(0),
            loaded: Mutex::new(LoadedFiles { settings, stamps, error: None }),
            warnings: ExpiryWarnings::default(),
        }))
    }

    /// Loads the files again, or other files. If that fails, the configuration in effect stays.
    pub fn reload(&self, settings: Option<TlsSettings>) -> Result<TlsReload, TlsError> {
        let mut loaded = self.loaded();
        let settings = settings.unwrap_or_else(|| loaded.settings.clone());
        // Before the files are read: a file that changes meanwhile is read again at the next look.
        let stamps = settings.stamps();
        let before = self.state();
        let state = match TlsState::load(&settings, SystemTime::now(), Some(&before)) {
            Ok(state) => state,
            Err(error) => {
                loaded.error = Some(error.to_string());
                return Err(error);
            }
        };
        *loaded = LoadedFiles { settings, stamps, error: None };
        let (epoch, changed) = (state.trust_epoch, state.trust_epoch != before.trust_epoch);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(state);
        self.trust.send_if_modified(|known| std::mem::replace(known, epoch) != epoch);
        Ok(if changed { TlsReload::Trust } else { TlsReload::Certificate })
    }

    /// Loads the files again if one of them changed or an authority is over. An error is returned once, and tried again at each look.
    pub fn reload_if_changed(&self) -> Option<Result<TlsReload, TlsError>> {
        let (changed, failed_before) = {
            let loaded = self.loaded();
            (loaded.stamps != loaded.settings.stamps(), loaded.error.clone())
        };
        let authority_over = self.state().authority_ends.is_some_and(|end| end <= SystemTime::now());
        if !changed && !authority_over {
            return None;
        }
        let result = self.reload(None);
        match &result {
            Err(error) if failed_before == Some(error.to_string()) => None,
            _ => Some(result),
        }
    }

    /// The files in effect.
    pub fn settings(&self) -> TlsSettings {
        self.loaded().settings.clone()
    }

    /// Whether a client may connect without a certificate.
    pub(super) fn certificate_optional(&self) -> bool {
        self.loaded().settings.certificate_optional
    }

    /// The configuration for new connections, and its trust epoch.
    pub(super) fn config(&self) -> (Arc<ServerConfig>, u64) {
        let state = self.state();
        (state.config.clone(), state.trust_epoch)
    }

    /// Verifies a peer's certificates under the current bundles. Returns its name and the trust epoch.
    pub(super) fn verify(&self, chain: &[CertificateDer<'_>]) -> Result<(PeerName, u64), Error> {
        let state = self.state();
        let (certificate, intermediates) = chain.split_first().ok_or(Error::NoCertificatesPresented)?;
        let name = state.verifier.verify(certificate, intermediates, UnixTime::now())?;
        Ok((name, state.trust_epoch))
    }

    /// The trust epoch, as it changes.
    pub(super) fn trust_epoch(&self) -> watch::Receiver<u64> {
        self.trust.subscribe()
    }

    /// Whether the server's certificate has this host name.
    pub fn has_host_name(&self, host: &str) -> bool {
        let parent = host.split_once('.').map(|(_, parent)| parent);
        self.state().host_names.iter().any(|name| match name.strip_prefix("*.") {
            Some(suffix) => parent.is_some_and(|parent| parent.eq_ignore_ascii_case(suffix)),
            None => name.eq_ignore_ascii_case(host),
        })
    }

    /// The certificates, and the seconds until each ends; negative afterwards.
    pub fn seconds_left(&self) -> Vec<(String, f64)> {
        let now = SystemTime::now();
        let left = |one: &CertificateExpiry| (one.certificate.clone(), one.seconds_left(now));
        self.state().expiry.iter().map(left).collect()
    }

    /// Warnings about certificates that end soon; each is returned once.
    pub fn expiry_warnings(&self) -> Vec<String> {
        self.warnings.due(&self.state().expiry, SystemTime::now())
    }

    fn state(&self) -> Arc<TlsState> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn loaded(&self) -> MutexGuard<'_, LoadedFiles> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bundles and revocation lists.
struct Trust {
    bundles: BTreeMap<Option<String>, RootCertStore>,
    lists: Vec<CertificateRevocationListDer<'static>>,
    digest: Sha256,
    expiry: Vec<CertificateExpiry>,
    authority_ends: Option<SystemTime>,
}

impl TlsState {
    /// Loads a configuration. At the start a bundle without a valid authority is an error; later it only trusts no one.
    fn load(settings: &TlsSettings, now: SystemTime, before: Option<&Self>) -> Result<Self, TlsError> {
        let provider = Arc::new(CryptoProvider { kx_groups: KEY_EXCHANGES.to_vec(), ..aws_lc_rs::default_provider() });
        let mut trust = Trust {
            bundles: BTreeMap::new(),
            lists: Vec::new(),
            digest: Sha256::new(),
            expiry: Vec::new(),
            authority_ends: None,
        };
        for bundle in &settings.client_ca {
            trust.add_bundle(bundle, now, before.is_none())?;
        }
        trust.add_lists(settings)?;
        let Trust { bundles, lists, digest, mut expiry, authority_ends } = trust;
        let verifier = ClientVerifier::new(bundles, &lists, settings.certificate_optional, provider.clone());
        let first_list = settings.client_crl.first();
        let first_bundle = settings.client_ca.first();
        let verifier = verifier.map_err(|error| match (first_list, first_bundle) {
            (Some(file), _) => TlsError::invalid("client_crl", file, error),
            (None, bundle) => {
                TlsError::invalid("client_ca", bundle.map_or(Path::new("none"), |bundle| &bundle.file), error)
            }
        })?;
        let verifier = Arc::new(verifier);
        let (config, chain) = server_config(settings, now, provider, verifier.clone())?;
        expiry.extend(
            certificate::earliest_end(&chain)
                .map(|not_after| CertificateExpiry { certificate: "server".into(), not_after }),
        );
        let trust_digest = digest.finalize().into();
        let trust_epoch =
            before.map_or(0, |before| before.trust_epoch + u64::from(before.trust_digest != trust_digest));
        let host_names = certificate::host_names(&chain[0]);
        Ok(Self { config, verifier, trust_epoch, trust_digest, host_names, expiry, authority_ends })
    }
}

impl Trust {
    fn add_bundle(&mut self, bundle: &ClientCa, now: SystemTime, at_start: bool) -> Result<(), TlsError> {
        const SETTING: &str = "client_ca";
        let ClientCa { domain, file } = bundle;
        let mut roots = RootCertStore::empty();
        let mut ends = Vec::new();
        let mut last_end = None;
        self.digest.update(domain.as_deref().unwrap_or_default());
        self.digest.update([0]);
        for authority in certificates(SETTING, file)? {
            if !certificate::is_authority(&authority) {
                let reason = "it contains a certificate that is not of an authority (CA:TRUE); name the CA certificate";
                return Err(TlsError::invalid(SETTING, file, reason));
            }
            let (_, end) =
                certificate::validity(&authority).ok_or_else(|| TlsError::invalid(SETTING, file, "malformed"))?;
            last_end = last_end.max(Some(end));
            if end <= now {
                continue;
            }
            ends.push(end);
            self.digest.update(&authority);
            roots.add(authority).map_err(|error| TlsError::invalid(SETTING, file, error))?;
        }
        if roots.is_empty() && at_start {
            let since = last_end.and_then(|end| now.duration_since(end).ok()).unwrap_or_default();
            let problem = TlsProblem::Expired { file: file.clone(), since_s: since.as_secs() };
            return Err(TlsError { setting: SETTING, problem });
        }
        let name = domain.as_ref().map_or_else(|| SETTING.to_owned(), |domain| format!("{SETTING} {domain}"));
        let first_end = ends.iter().min().copied();
        self.authority_ends = [self.authority_ends, first_end].into_iter().flatten().min();
        let not_after = first_end.or(last_end);
        self.expiry.extend(not_after.map(|not_after| CertificateExpiry { certificate: name, not_after }));
        if roots.is_empty() {
            return Ok(());
        }
        match self.bundles.insert(domain.clone(), roots) {
            None => Ok(()),
            Some(_) => {
                Err(TlsError { setting: SETTING, problem: TlsProblem::RepeatedDomain { domain: domain.clone() } })
            }
        }
    }

    fn add_lists(&mut self, settings: &TlsSettings) -> Result<(), TlsError> {
        const SETTING: &str = "client_crl";
        for file in &settings.client_crl {
            let bytes = credential_file::read(file).map_err(TlsError::file(SETTING))?;
            let lists = CertificateRevocationListDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
            let expected = "certificate revocation list";
            let lists = lists.map_err(|_| TlsError::not_pem(SETTING, file, expected))?;
            if lists.is_empty() {
                return Err(TlsError::not_pem(SETTING, file, expected));
            }
            for list in lists {
                self.digest.update(&list);
                if let Some(not_after) = certificate::next_update(&list) {
                    let certificate = format!("{SETTING} {}", file.display());
                    self.expiry.push(CertificateExpiry { certificate, not_after });
                }
                self.lists.push(list);
            }
        }
        Ok(())
    }
}

/// The certificates of a PEM file; at least one.
fn certificates(setting: &'static str, file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = credential_file::read(file).map_err(TlsError::file(setting))?;
    let found = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(TlsError::not_pem(setting, file, "certificate")),
    }
}

/// TLS 1.3 only, without resumption: a resumed session would carry an earlier verdict about the peer (A10).
fn server_config(
    settings: &TlsSettings,
    now: SystemTime,
    provider: Arc<CryptoProvider>,
    verifier: Arc<ClientVerifier>,
) -> Result<(Arc<ServerConfig>, Vec<CertificateDer<'static>>), TlsError> {
    let TlsSettings { cert, key, .. } = settings;
    let chain = certificates("tls_cert", cert)?;
    let invalid = |reason: &str| TlsError::invalid("tls_cert", cert, reason);
    let (begin, end) = certificate::validity(&chain[0]).ok_or_else(|| invalid("the certificate cannot be decoded"))?;
    if let Ok(since) = now.duration_since(end) {
        let problem = TlsProblem::Expired { file: cert.clone(), since_s: since.as_secs() };
        return Err(TlsError { setting: "tls_cert", problem });
    }
    if let Ok(left) = begin.duration_since(now).map(|left| left.as_secs())
        && left > 0
    {
        return Err(TlsError {
            setting: "tls_cert",
            problem: TlsProblem::NotYetValid { file: cert.clone(), in_s: left },
        });
    }
    let bytes = credential_file::read_private(key).map_err(TlsError::file("tls_key"))?;
    let private_key =
        PrivateKeyDer::from_pem_slice(&bytes).map_err(|_| TlsError::not_pem("tls_key", key, "private key"))?;
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])
        .map_err(|error| TlsError::invalid("tls_cert", cert, error))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain.clone(), private_key);
    let mut config = config.map_err(|error| match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            TlsError { setting: "tls_key", problem: TlsProblem::KeyMismatch { key: key.clone(), cert: cert.clone() } }
        }
        error => TlsError::invalid("tls_key", key, error),
    })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    Ok((Arc::new(config), chain))
}
