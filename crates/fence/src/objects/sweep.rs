//! What lies in a store beside its manifests: data that no manifest names and none can name any more, and all marks.

use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use super::Fence;
use super::manifest::{FILE, Manifest, number_of};
use super::swap::{Swap, failed};
use crate::{Error, Kept, Lost, Refusal, text};

impl Fence {
    /// The data keys that the manifest does not name and that lie below the mark: what zombies and writers that died left
    /// behind, and what was replaced by an earlier holder. A key at the mark may be one that its holder is about to name.
    pub async fn orphans(&self) -> Result<Vec<Path>, Error> {
        let manifest = Swap::new(self)?.read().await?.manifest;
        let Some(mark) = manifest.state.mark()? else { return Ok(Vec::new()) };
        let folder = self.root.clone().join("data");
        let mut listed: Vec<Path> =
            self.store.list(Some(&folder)).map_ok(|object| object.location).try_collect().await.map_err(failed)?;
        listed.retain(|location| {
            let Some(key) = location.filename() else { return false };
            number_of(key).is_some_and(|number| number < mark) && !manifest.entries.values().any(|named| named == key)
        });
        listed.sort_unstable();
        Ok(listed)
    }

    /// Deletes the orphans, and says how many there were. It can run at any time, beside any writer.
    pub async fn sweep(&self) -> Result<usize, Error> {
        let orphans = self.orphans().await?;
        for orphan in &orphans {
            match self.store.delete(orphan).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(orphans.len())
    }
}

/// Every mark that is kept under a prefix, or in the whole store.
pub async fn survey(store: &dyn ObjectStore, prefix: Option<&Path>) -> Result<Vec<Kept>, Error> {
    let listed = store.list(prefix).map_ok(|object| object.location);
    let mut manifests: Vec<Path> = listed
        .try_filter(|location| std::future::ready(location.filename() == Some(FILE)))
        .try_collect()
        .await
        .map_err(failed)?;
    manifests.sort_unstable();
    let mut kept = Vec::with_capacity(manifests.len());
    for location in manifests {
        let body = store.get(&location).await.map_err(failed)?.bytes().await.map_err(failed)?;
        let body = str::from_utf8(&body).map_err(|_| Refusal::Lost(Lost::Unreadable))?;
        let written = text::read(body)?;
        let root: Path = location.parts().take(location.parts().count() - 1).collect();
        kept.push(written.kept(&Manifest::decode(&written, &root)?.state));
    }
    Ok(kept)
}
