//! Garbage collection of data objects that no manifest lists, and listing of marks.

use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use super::Fence;
use super::cas::{ManifestCas, storage_error};
use super::manifest::{FILE, Manifest, number_of};
use crate::{Error, FenceRefusal, MarkInfo, MarkLoss, mark_text};

impl Fence {
    /// The data objects below the mark that the manifest does not list: leftovers of zombies and of writers that died, and
    /// objects that an earlier holder replaced. An object at the mark is excluded: its holder may be about to list it.
    pub async fn orphans(&self) -> Result<Vec<Path>, Error> {
        let manifest = ManifestCas::new(self)?.read().await?.manifest;
        let Some(mark) = manifest.state.mark()? else { return Ok(Vec::new()) };
        let data = self.root.clone().join("data");
        let mut listed: Vec<Path> =
            self.store.list(Some(&data)).map_ok(|object| object.location).try_collect().await.map_err(storage_error)?;
        listed.retain(|location| {
            // A fence with a longer prefix may have its objects in a folder below.
            let Some(key) = location.filename().filter(|key| self.data(key) == *location) else { return false };
            number_of(key).is_some_and(|number| number < mark) && !manifest.entries.values().any(|named| named == key)
        });
        listed.sort_unstable();
        Ok(listed)
    }

    /// Deletes the [`orphans`](Self::orphans) and returns their number. It is safe at any time, concurrently with writers.
    pub async fn delete_orphans(&self) -> Result<usize, Error> {
        let orphans = self.orphans().await?;
        for orphan in &orphans {
            match self.store.delete(orphan).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(storage_error(error)),
            }
        }
        Ok(orphans.len())
    }
}

/// Returns the marks under a prefix, or of the whole store.
pub async fn list_marks(store: &dyn ObjectStore, prefix: Option<&Path>) -> Result<Vec<MarkInfo>, Error> {
    let listed = store.list(prefix).map_ok(|object| object.location);
    let mut manifests: Vec<Path> = listed
        .try_filter(|location| std::future::ready(location.filename() == Some(FILE)))
        .try_collect()
        .await
        .map_err(storage_error)?;
    manifests.sort_unstable();
    let mut marks = Vec::with_capacity(manifests.len());
    for location in manifests {
        let body = store.get(&location).await.map_err(storage_error)?.bytes().await.map_err(storage_error)?;
        let body = str::from_utf8(&body).map_err(|_| FenceRefusal::MarkLost(MarkLoss::Unreadable))?;
        let parsed = mark_text::parse(body)?;
        let root: Path = location.parts().take(location.parts().count() - 1).collect();
        marks.push(parsed.info(&Manifest::decode(&parsed, &root)?.state));
    }
    Ok(marks)
}
