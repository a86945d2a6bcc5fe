//! The bearer tokens that a server accepts now: own tokens and issuers of JWT, replaced as a whole by a reload.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use super::bearer_file::{BearerEntry, BearerFile};
use super::error::BearerError;
use super::jwt::{self, JwtIssuer, JwtIssuers, LoadedIssuer, VerifiedJwt};
use super::{jwks, token_text};
use crate::credential_file::{self, FileFingerprint};
use crate::hex::hex;

/// Digits of the digest that names a JWT in logs and audit entries.
const CREDENTIAL_DIGITS: usize = 16;

/// Where the accepted tokens come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BearerSettings {
    /// The bearer file; no own tokens without one.
    pub bearers: Option<PathBuf>,
    /// Issuers of JWT.
    pub jwt: Vec<JwtIssuer>,
}

impl BearerSettings {
    /// Whether no token is accepted.
    pub fn is_empty(&self) -> bool {
        self.bearers.is_none() && self.jwt.is_empty()
    }

    fn files(&self) -> impl Iterator<Item = &Path> {
        self.bearers.iter().chain(self.jwt.iter().map(|issuer| &issuer.jwks)).map(PathBuf::as_path)
    }

    fn fingerprints(&self) -> Vec<FileFingerprint> {
        self.files().map(FileFingerprint::of).collect()
    }
}

/// A file of bearer tokens or keys cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BearerSettingsError {
    /// The setting that names it: `bearers` or `jwt`.
    pub setting: &'static str,
    /// The file; empty for an error of the setting itself.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: Option<u64>,
    /// The key in the file, or the setting.
    pub key: String,
    /// What is wrong, and the next step.
    pub message: String,
}

impl fmt::Display for BearerSettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.setting)?;
        if !self.file.as_os_str().is_empty() {
            write!(f, "{}: ", self.file.display())?;
        }
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for BearerSettingsError {}

/// A verified token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VerifiedBearer {
    pub principal: Box<str>,
    /// The id of an own token, or the first digits of the digest of a JWT.
    pub credential: Box<str>,
    pub not_after: SystemTime,
    source: TokenSource,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TokenSource {
    Own { id: String, digest: [u8; 32] },
    Jwt(Box<VerifiedJwt>),
}

/// The tokens between two reloads.
struct BearerState {
    /// By id.
    own: Option<HashMap<String, BearerEntry>>,
    issuers: JwtIssuers,
}

/// The tokens that a server accepts, shared by all of its connections.
pub struct BearerVerifier {
    settings: BearerSettings,
    state: RwLock<Arc<BearerState>>,
    epoch: watch::Sender<u64>,
    loaded: Mutex<LoadedBearerFiles>,
}

/// The files as they were read last.
struct LoadedBearerFiles {
    fingerprints: Vec<FileFingerprint>,
    /// The last error of a reload, so that it is reported once.
    error: Option<BearerSettingsError>,
}

impl fmt::Debug for BearerVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BearerVerifier").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl BearerVerifier {
    /// Loads the files.
    pub fn load(settings: BearerSettings) -> Result<Arc<Self>, BearerSettingsError> {
        // Before the files are read: a file that changes meanwhile is read again at the next look.
        let fingerprints = settings.fingerprints();
        let state = BearerState::load(&settings)?;
        Ok(Arc::new(Self {
            settings,
            state: RwLock::new(Arc::new(state)),
            epoch: watch::Sender::new(0),
            loaded: Mutex::new(LoadedBearerFiles { fingerprints, error: None }),
        }))
    }

    /// Loads the files again. If that fails, the tokens in effect stay. Open streams compare themselves with the new ones (A10).
    pub fn reload(&self) -> Result<(), BearerSettingsError> {
        let mut loaded = self.loaded();
        loaded.fingerprints = self.settings.fingerprints();
        match BearerState::load(&self.settings) {
            Ok(state) => {
                loaded.error = None;
                *self.state.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(state);
                self.epoch.send_modify(|epoch| *epoch += 1);
                Ok(())
            }
            Err(error) => {
                loaded.error = Some(error.clone());
                Err(error)
            }
        }
    }

    /// Loads the files again if one of them changed. An error is returned once, and the load is tried again at each call.
    pub fn reload_if_changed(&self) -> Option<Result<(), BearerSettingsError>> {
        let before = {
            let loaded = self.loaded();
            if loaded.error.is_none() && loaded.fingerprints == self.settings.fingerprints() {
                return None;
            }
            loaded.error.clone()
        };
        match self.reload() {
            Err(error) if before.as_ref() == Some(&error) => None,
            result => Some(result),
        }
    }

    /// Number of own tokens that are neither revoked nor over.
    pub fn valid_tokens(&self, now: SystemTime) -> usize {
        let now = seconds(now);
        let state = self.state();
        let own = state.own.iter().flat_map(HashMap::values);
        own.filter(|entry| entry.revoked.is_none() && now < entry.expires).count()
    }

    /// The principal of a token.
    pub(super) fn verify(&self, text: &str, now: SystemTime) -> Result<VerifiedBearer, BearerError> {
        let state = self.state();
        if token_text::is_own(text) {
            return state.verify_own(text, now);
        }
        if state.issuers.is_empty() {
            return Err(BearerError::NotAccepted);
        }
        let verified = jwt::verify(text, &state.issuers, now)?;
        let mut credential = hex(&Sha256::digest(text).into());
        credential.truncate(CREDENTIAL_DIGITS);
        Ok(VerifiedBearer {
            principal: verified.principal.as_str().into(),
            credential: credential.into(),
            not_after: verified.not_after,
            source: TokenSource::Jwt(Box::new(verified)),
        })
    }

    /// Whether a token that was verified before still counts.
    pub(super) fn verify_again(&self, bearer: &VerifiedBearer, now: SystemTime) -> Result<(), BearerError> {
        if bearer.not_after <= now {
            return Err(BearerError::Expired);
        }
        let state = self.state();
        match &bearer.source {
            TokenSource::Jwt(verified) => jwt::is_current(verified, &state.issuers),
            TokenSource::Own { id, digest } => {
                let entry = state.own_entry(id, digest)?;
                check_entry(entry, now)?;
                if *entry.principal == *bearer.principal { Ok(()) } else { Err(BearerError::Unknown) }
            }
        }
    }

    /// Changes with each reload.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.epoch.subscribe()
    }

    fn state(&self) -> Arc<BearerState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn loaded(&self) -> MutexGuard<'_, LoadedBearerFiles> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BearerState {
    fn load(settings: &BearerSettings) -> Result<Self, BearerSettingsError> {
        let own = settings.bearers.as_deref().map(load_own).transpose()?;
        let mut issuers = JwtIssuers::new();
        for JwtIssuer { issuer, audience, jwks: file } in &settings.jwt {
            let error = |file: &Path, key: &str, message: String| BearerSettingsError {
                setting: "jwt",
                file: file.to_owned(),
                line: None,
                key: key.to_owned(),
                message,
            };
            // A `#` ends the issuer in a principal.
            let printable = issuer.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
            if issuer.is_empty() || issuer.len() > 255 || !printable {
                let message =
                    format!("issuer: {issuer:?} is not a URL without a fragment; write the claim iss exactly");
                return Err(error(Path::new(""), "issuer", message));
            }
            if audience.is_empty() {
                let message = "audience: empty; write the name of this server in the claim aud".to_owned();
                return Err(error(Path::new(""), "audience", message));
            }
            let bytes = credential_file::read(file).map_err(|problem| error(file, "jwks", problem.to_string()))?;
            let keys = jwks::parse(&bytes).map_err(|reason| error(file, "jwks", format!("jwks: {reason}")))?;
            let loaded = LoadedIssuer { audience: audience.clone(), keys };
            if issuers.insert(issuer.clone(), loaded).is_some() {
                let message = format!("issuer: {issuer} is configured twice; keep one table, with one JWKS file");
                return Err(error(Path::new(""), "issuer", message));
            }
        }
        Ok(Self { own, issuers })
    }

    fn verify_own(&self, text: &str, now: SystemTime) -> Result<VerifiedBearer, BearerError> {
        if self.own.is_none() {
            return Err(BearerError::NotAccepted);
        }
        let token = token_text::parse(text)?;
        let entry = self.own_entry(token.id, &token.digest)?;
        // Only the owner of the token learns more.
        check_entry(entry, now)?;
        Ok(VerifiedBearer {
            principal: entry.principal.as_str().into(),
            credential: entry.id.as_str().into(),
            not_after: UNIX_EPOCH + Duration::from_secs(entry.expires),
            source: TokenSource::Own { id: entry.id.clone(), digest: entry.digest },
        })
    }

    /// The entry of an id, if the digest is equal. An unknown id costs a comparison too.
    fn own_entry(&self, id: &str, digest: &[u8; 32]) -> Result<&BearerEntry, BearerError> {
        let entry = self.own.as_ref().and_then(|own| own.get(id));
        let expected = entry.map_or(&[0; 32], |entry| &entry.digest);
        let is_equal = verify_slices_are_equal(expected, digest).is_ok();
        entry.filter(|_| is_equal).ok_or(BearerError::Unknown)
    }
}

fn load_own(file: &Path) -> Result<HashMap<String, BearerEntry>, BearerSettingsError> {
    let error = |line, key: &str, message: String| BearerSettingsError {
        setting: "bearers",
        file: file.to_owned(),
        line,
        key: key.to_owned(),
        message,
    };
    let bytes = credential_file::read_private(file).map_err(|problem| error(None, "", problem.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| error(None, "", "not UTF-8 text; restore the file".to_owned()))?;
    let parsed = BearerFile::parse(&text).map_err(|problem| error(problem.line, &problem.key, problem.message))?;
    Ok(parsed.entries.into_iter().map(|entry| (entry.id.clone(), entry)).collect())
}

fn check_entry(entry: &BearerEntry, now: SystemTime) -> Result<(), BearerError> {
    match entry.revoked {
        Some(_) => Err(BearerError::Revoked),
        None if seconds(now) >= entry.expires => Err(BearerError::Expired),
        None => Ok(()),
    }
}

fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests;
