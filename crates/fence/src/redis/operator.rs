//! Operator calls: arm, re-arm, resume, adopt and list marks.

use leasehold_core::token::{Incarnation, Number};
use redis::aio::ConnectionLike;

use super::{Fence, durability, library};
use crate::mark_fixed_text::FixedMark;
use crate::{Error, FenceRefusal, MarkInfo, MarkLoss};

/// Lists all marks of this server. In a Redis cluster, call it on each primary.
pub async fn list_marks(db: &mut impl ConnectionLike) -> Result<Vec<MarkInfo>, Error> {
    let (mut found, mut cursor) = (Vec::new(), "0".to_owned());
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(&cursor).arg("MATCH").arg("leasehold:{*}:????????????????:????????").arg("COUNT").arg(1000);
        let (next, keys): (String, Vec<String>) = scan.query_async(db).await?;
        found.extend(keys);
        if next == "0" {
            break;
        }
        cursor = next;
    }
    // SCAN may return a key twice.
    found.sort_unstable();
    found.dedup();
    let use_script = library::version(db).await?.is_none();
    let mut all = Vec::new();
    for key in found {
        let (text, is_current_server): (String, u8) =
            library::query(use_script, db, &library::command(use_script, "read", &key, &[])).await?;
        all.push(
            FixedMark::parse(&text).ok_or(FenceRefusal::MarkLost(MarkLoss::Unreadable))?.info(is_current_server == 1),
        );
    }
    Ok(all)
}

impl Fence {
    /// Arms the fence for a resource and slot under which nothing was written yet: the first token sets the mark. An existing
    /// mark is left unchanged; one of another cluster is an error.
    pub async fn arm(&self, db: &mut impl ConnectionLike) -> Result<(), Error> {
        let mut command = self.command("arm", &[]);
        command.arg(self.id.cluster().to_string()).arg(self.id.resource_hash());
        command.arg(format!("{:08x}", self.id.slot())).arg(self.id.resource()).arg(0);
        self.query::<Option<String>>(db, &command).await?;
        self.ensure_own(db).await
    }

    /// Reads the mark; `None` if no token was admitted yet. A lost mark is an error.
    pub async fn mark(&self, db: &mut impl ConnectionLike) -> Result<Option<Number>, Error> {
        let (text, is_current_server): (String, u8) = self.query(db, &self.command("read", &[])).await?;
        FixedMark::parse(&text).ok_or(FenceRefusal::MarkLost(MarkLoss::Unreadable))?.mark(is_current_server == 1)
    }

    /// Refuses if the mark is that of another cluster, whose key is the same. The cluster of a mark never changes, so the check
    /// need not be one step with what follows.
    async fn ensure_own(&self, db: &mut impl ConnectionLike) -> Result<(), Error> {
        let (text, _): (String, u8) = self.query(db, &self.command("read", &[])).await?;
        let mark = FixedMark::parse(&text).ok_or(FenceRefusal::MarkLost(MarkLoss::Unreadable))?;
        mark.stored_mark(&self.id, "").map(|_| ())
    }

    /// Declares the mark lost, for example after the server's data was restored from a backup: every token is refused until
    /// [`Fence::rearm`].
    pub async fn declare_lost(&self, db: &mut impl ConnectionLike) -> Result<(), Error> {
        self.update(db, "lost", None).await
    }

    /// Sets a lost mark to a floor. No earlier holder may have a higher number. A floor below the mark is refused.
    pub async fn rearm(&self, db: &mut impl ConnectionLike, floor: Number) -> Result<(), Error> {
        self.ensure_own(db).await?;
        let mut command = self.command("rearm", &[]);
        self.query::<()>(db, command.arg(format!("{:019}", floor.get()))).await
    }

    /// Confirms that this is the server that stored the mark, restarted on its own disk, and keeps using the mark. Fails if the
    /// server is not durable or was a replica. It cannot detect a server that was restored from a backup, or a replica that was
    /// restarted as a primary: there, call [`Fence::rearm`].
    pub async fn resume(&self, db: &mut impl ConnectionLike) -> Result<(), Error> {
        durability(db).await?.require()?;
        self.ensure_own(db).await?;
        self.query::<()>(db, &self.command("resume", &[])).await
    }

    /// Sets whether tokens of another incarnation are refused until it is adopted (T5).
    pub async fn strict(&self, db: &mut impl ConnectionLike, enabled: bool) -> Result<(), Error> {
        self.update(db, if enabled { "strict" } else { "lenient" }, None).await
    }

    /// Seals the mark, permanently: the server refuses plain tokens from now on. It cannot verify sealed ones, so every client
    /// needs a [`SealVerifier`](crate::SealVerifier) (A8).
    pub async fn seal(&self, db: &mut impl ConnectionLike) -> Result<(), Error> {
        self.update(db, "seal", None).await
    }

    /// Makes the fence follow this incarnation. The mark is unchanged.
    pub async fn adopt(&self, db: &mut impl ConnectionLike, incarnation: Incarnation) -> Result<(), Error> {
        self.update(db, "adopt", Some(incarnation)).await
    }

    async fn update(
        &self,
        db: &mut impl ConnectionLike,
        change: &str,
        incarnation: Option<Incarnation>,
    ) -> Result<(), Error> {
        self.ensure_own(db).await?;
        let mut command = self.command("update", &[]);
        command.arg(change).arg(incarnation.map(|incarnation| incarnation.to_string()));
        self.query::<()>(db, &command).await
    }
}
