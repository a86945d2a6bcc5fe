//! One logical write of the manifest: read, swap, and find out what came of it when the answer was lost.

use std::time::{Duration, Instant};

use object_store::{Error as StoreError, ObjectStoreExt, PutMode, PutOptions, UpdateVersion};

use super::Fence;
use super::manifest::{Manifest, RECENT};
use crate::nonce::nonce;
use crate::{Error, Lost, Refusal, text};

/// How long one sleeps whose store did not answer.
const BETWEEN: Duration = Duration::from_millis(100);

/// One logical write, however often it is tried: it has one nonce.
#[derive(Debug)]
pub(super) struct Swap<'a> {
    fence: &'a Fence,
    nonce: String,
    began: Instant,
    tries: usize,
    /// The version before the first put whose outcome nobody told.
    unsure: Option<u64>,
    /// What the store said then, if it failed.
    error: Option<StoreError>,
}

/// A manifest as it was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) manifest: Manifest,
    at: UpdateVersion,
}

/// What came of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    /// It is the manifest now.
    Kept,
    /// Another one is, or nobody knows: read again.
    Again,
}

impl<'a> Swap<'a> {
    pub(super) fn new(fence: &'a Fence) -> Result<Self, Error> {
        Ok(Self { fence, nonce: nonce()?, began: Instant::now(), tries: 0, unsure: None, error: None })
    }

    pub(super) fn nonce(&self) -> &str {
        &self.nonce
    }

    pub(super) const fn tries(&self) -> usize {
        self.tries
    }

    /// The manifest that stands there.
    pub(super) async fn read(&self) -> Result<Found, Error> {
        let Fence { store, root, place, .. } = self.fence;
        let object = match store.get(&self.fence.manifest()).await {
            Err(StoreError::NotFound { .. }) => return Err(Refusal::Lost(Lost::Missing).into()),
            object => object.map_err(failed)?,
        };
        let at = UpdateVersion { e_tag: object.meta.e_tag.clone(), version: object.meta.version.clone() };
        let body = object.bytes().await.map_err(failed)?;
        let body = str::from_utf8(&body).map_err(|_| Refusal::Lost(Lost::Unreadable))?;
        let written = text::read(body)?;
        written.at(place)?;
        Ok(Found { manifest: Manifest::decode(&written, root)?, at })
    }

    /// Whether this write is in the manifest already, by an earlier try whose answer was lost. Ends the tries when their
    /// time is over: here it is known that nothing happened, or that nobody can tell.
    pub(super) fn landed(&mut self, manifest: &Manifest) -> Result<bool, Error> {
        if manifest.nonces.contains(&self.nonce) {
            return Ok(true);
        }
        let passed = self.unsure.map_or(0, |before| manifest.version.saturating_sub(before));
        if passed > RECENT as u64 {
            let what = "the store did not tell what came of the write, and too many came after it; read what is there";
            return Err(Error::Storage(what.into()));
        }
        if self.tries > 0 && self.began.elapsed() >= self.fence.patience {
            return Err(match self.error.take() {
                Some(error) => failed(error),
                None => Error::Blocked { waited: self.began.elapsed(), by: Vec::new() },
            });
        }
        Ok(false)
    }

    /// Puts the next manifest in the place of the one that was found, or where none may be.
    pub(super) async fn put(&mut self, found: Option<&Found>, next: &Manifest) -> Result<Put, Error> {
        let Fence { store, root, place, .. } = self.fence;
        let mode = found.map_or(PutMode::Create, |found| PutMode::Update(found.at.clone()));
        let body = next.encode(place, root);
        let options = PutOptions { mode, ..PutOptions::default() };
        self.tries += 1;
        let error = match store.put_opts(&self.fence.manifest(), body.into(), options).await {
            Ok(_) => return Ok(Put::Kept),
            Err(error) => error,
        };
        match error {
            StoreError::NotImplemented { .. } | StoreError::NotSupported { .. } => Err(Error::NotDurable {
                setting: "the store",
                have: "without conditional puts".to_owned(),
                want: "one that has them, or use `Generations`",
            }),
            StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => Err(failed(error)),
            // Also a "no" may come from a second request that the client made by itself, after the first one landed.
            StoreError::Precondition { .. } | StoreError::AlreadyExists { .. } | StoreError::NotFound { .. } => {
                self.unsure.get_or_insert(next.version - 1);
                self.error = None;
                Ok(Put::Again)
            }
            error => {
                self.unsure.get_or_insert(next.version - 1);
                self.error = Some(error);
                tokio::time::sleep(BETWEEN).await;
                Ok(Put::Again)
            }
        }
    }
}

pub(super) fn failed(error: StoreError) -> Error {
    Error::Storage(error.into())
}
