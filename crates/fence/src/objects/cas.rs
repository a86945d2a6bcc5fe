//! Compare-and-swap of the manifest, with detection of writes that were applied although the reply was lost.

use std::future::Future;
use std::time::{Duration, Instant};

use object_store::{Error as StoreError, ObjectStoreExt, PutMode, PutOptions, UpdateVersion};

use super::Fence;
use super::manifest::{Manifest, RECENT_NONCES};
use crate::nonce::nonce;
use crate::{Error, FenceRefusal, MarkLoss, mark_text};

/// Pause before a retry, if the store did not reply.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// How long one request for the manifest waits at least, also if less time is left.
const MIN_REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// One logical write. All its attempts have the same nonce.
#[derive(Debug)]
pub(super) struct ManifestCas<'a> {
    fence: &'a Fence,
    nonce: String,
    began: Instant,
    tries: usize,
    /// The version before the first put with an unknown outcome.
    unconfirmed_version: Option<u64>,
    /// The last error of the store.
    error: Option<StoreError>,
}

/// A manifest with its ETag.
#[derive(Debug)]
pub(super) struct StoredManifest {
    pub(super) manifest: Manifest,
    version: UpdateVersion,
}

/// The result of a conditional put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CasOutcome {
    /// The new manifest is stored.
    Swapped,
    /// Another manifest is stored, or the outcome is unknown: read again.
    Retry,
}

impl<'a> ManifestCas<'a> {
    pub(super) fn new(fence: &'a Fence) -> Result<Self, Error> {
        Ok(Self { fence, nonce: nonce()?, began: Instant::now(), tries: 0, unconfirmed_version: None, error: None })
    }

    pub(super) fn nonce(&self) -> &str {
        &self.nonce
    }

    pub(super) const fn tries(&self) -> usize {
        self.tries
    }

    /// Reads the current manifest.
    pub(super) async fn read(&self) -> Result<StoredManifest, Error> {
        let Fence { store, root, id, .. } = self.fence;
        let request = async {
            let object = store.get(&self.fence.manifest()).await?;
            let version = UpdateVersion { e_tag: object.meta.e_tag.clone(), version: object.meta.version.clone() };
            Ok((version, object.bytes().await?))
        };
        let (version, body) = match self.within_timeout(request).await {
            Err(StoreError::NotFound { .. }) => return Err(FenceRefusal::MarkLost(MarkLoss::Missing).into()),
            read => read.map_err(storage_error)?,
        };
        let body = str::from_utf8(&body).map_err(|_| FenceRefusal::MarkLost(MarkLoss::Unreadable))?;
        let parsed = mark_text::parse(body)?;
        parsed.state_for(id)?;
        Ok(StoredManifest { manifest: Manifest::decode(&parsed, root)?, version })
    }

    /// Ends a request for which no time is left (F8). Its outcome is unknown.
    async fn within_timeout<T>(&self, request: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let left = self.fence.claim_timeout.saturating_sub(self.began.elapsed()).max(MIN_REQUEST_TIMEOUT);
        tokio::time::timeout(left, request).await.unwrap_or_else(|_| {
            let source = format!("the store did not reply within {left:?}").into();
            Err(StoreError::Generic { store: "manifest", source })
        })
    }

    /// Whether an earlier attempt with a lost reply applied this write. Returns an error once the claim timeout has passed: at
    /// this point it is certain that the write was not applied, or that this cannot be determined.
    pub(super) fn is_applied(&mut self, manifest: &Manifest) -> Result<bool, Error> {
        if manifest.nonces.contains(&self.nonce) {
            return Ok(true);
        }
        let newer = self.unconfirmed_version.map_or(0, |before| manifest.version.saturating_sub(before));
        if newer > RECENT_NONCES as u64 {
            let message = "the store did not confirm the write, and many others followed; read the data before a retry";
            return Err(Error::Storage(message.into()));
        }
        if newer > 0 {
            // All attempts so far expect an older manifest: none of them was applied, and none will be.
            self.unconfirmed_version = None;
        }
        if self.tries > 0 && self.began.elapsed() >= self.fence.claim_timeout {
            return Err(match self.error.take() {
                Some(error) => storage_error(error),
                None => Error::Blocked { waited: self.began.elapsed(), blockers: Vec::new() },
            });
        }
        Ok(false)
    }

    /// Replaces `stored` by the next manifest. With `None` the manifest must not exist.
    pub(super) async fn put(&mut self, stored: Option<&StoredManifest>, next: &Manifest) -> Result<CasOutcome, Error> {
        let Fence { store, root, id, .. } = self.fence;
        let mode = stored.map_or(PutMode::Create, |stored| PutMode::Update(stored.version.clone()));
        let body = next.encode(id, root);
        let options = PutOptions { mode, ..PutOptions::default() };
        self.tries += 1;
        let manifest = self.fence.manifest();
        let error = match self.within_timeout(store.put_opts(&manifest, body.into(), options)).await {
            Ok(_) => return Ok(CasOutcome::Swapped),
            Err(error) => error,
        };
        match error {
            StoreError::NotImplemented { .. } | StoreError::NotSupported { .. } => {
                Err(unconditional("one without conditional puts"))
            }
            StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => Err(storage_error(error)),
            // A rejection too can be the reply to an automatic retry of the client, after the first request was applied.
            StoreError::Precondition { .. } | StoreError::AlreadyExists { .. } | StoreError::NotFound { .. } => {
                self.unconfirmed_version.get_or_insert(next.version - 1);
                self.error = None;
                Ok(CasOutcome::Retry)
            }
            error => {
                self.unconfirmed_version.get_or_insert(next.version - 1);
                self.error = Some(error);
                tokio::time::sleep(RETRY_INTERVAL).await;
                Ok(CasOutcome::Retry)
            }
        }
    }
}

/// The error for a store that cannot refuse a write.
pub(super) fn unconditional(actual: &str) -> Error {
    Error::NotDurable {
        setting: "the store",
        actual: actual.to_owned(),
        required: "one with conditional puts, or use `Generations`",
    }
}

pub(super) fn storage_error(error: StoreError) -> Error {
    Error::Storage(error.into())
}
