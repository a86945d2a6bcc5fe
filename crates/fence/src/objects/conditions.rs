//! Whether a store refuses a put whose condition is not met. Some servers ignore conditions that they do not know.

use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutResult, UpdateVersion};

use super::cas::{storage_error, unconditional};
use crate::Error;
use crate::nonce::nonce;

/// Puts an object under `root` several times, and deletes it. Fails if the store ignores a condition.
pub(super) async fn ensure_refused(store: &dyn ObjectStore, root: &Path) -> Result<(), Error> {
    let location = root.clone().join(format!("leasehold.probe-{}", nonce()?));
    let probed = probe(store, &location).await;
    // Without the right to delete, the object stays. No reader looks at it.
    store.delete(&location).await.ok();
    probed
}

async fn probe(store: &dyn ObjectStore, location: &Path) -> Result<(), Error> {
    let first = put(store, location, PutMode::Create, "1").await.map_err(failed)?;
    let first = UpdateVersion { e_tag: first.e_tag, version: first.version };
    is_refused(put(store, location, PutMode::Create, "2").await)?;
    put(store, location, PutMode::Update(first.clone()), "3").await.map_err(failed)?;
    is_refused(put(store, location, PutMode::Update(first), "4").await)
}

async fn put(
    store: &dyn ObjectStore,
    location: &Path,
    mode: PutMode,
    body: &'static str,
) -> Result<PutResult, StoreError> {
    store.put_opts(location, body.into(), PutOptions { mode, ..PutOptions::default() }).await
}

fn is_refused(put: Result<PutResult, StoreError>) -> Result<(), Error> {
    match put {
        Ok(_) => Err(unconditional("one that ignores the conditions of puts")),
        Err(StoreError::Precondition { .. } | StoreError::AlreadyExists { .. }) => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

fn failed(error: StoreError) -> Error {
    match error {
        StoreError::NotImplemented { .. } | StoreError::NotSupported { .. } => {
            unconditional("one without conditional puts")
        }
        error => storage_error(error),
    }
}
