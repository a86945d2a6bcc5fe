//! What an operator does at a fence: arming, losing and arming again, following another incarnation, and reading every mark.

use leasehold_core::token::{Incarnation, Number};
use redis::aio::ConnectionLike;

use super::{Fence, durability, library};
use crate::fixed::MarkText;
use crate::{Error, Kept, Lost, Refusal};

/// Every mark that this server keeps. In a cluster each primary is asked for its own.
pub async fn survey(db: &mut impl ConnectionLike) -> Result<Vec<Kept>, Error> {
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
    // A scan may give a key twice.
    found.sort_unstable();
    found.dedup();
    let scripted = library::version(db).await?.is_none();
    let mut all = Vec::new();
    for key in found {
        let (text, ours): (String, u8) =
            library::ask(scripted, db, &library::call(scripted, "tell", &key, &[])).await?;
        all.push(MarkText::parse(&text).ok_or(Refusal::Lost(Lost::Unreadable))?.kept(ours == 1));
    }
    Ok(all)
}

impl Fence {
    /// Says that nothing was written under this resource's slot yet: its first token sets the mark. Where a mark is kept
    /// already, it stays.
    pub async fn arm(&self, db: &mut impl ConnectionLike) -> Result<(), Error> {
        let mut call = self.call("arm", &[]);
        call.arg(self.place.guarded.cluster.to_string()).arg(self.place.resource());
        call.arg(format!("{:08x}", self.place.guarded.slot)).arg(&self.place.name).arg(0);
        self.ask::<Option<String>>(db, &call).await?;
        Ok(())
    }

    /// The mark that is kept. What is lost is told as a refusal.
    pub async fn mark(&self, db: &mut impl ConnectionLike) -> Result<Option<Number>, Error> {
        let (text, ours): (String, u8) = self.ask(db, &self.call("tell", &[])).await?;
        MarkText::parse(&text).ok_or(Refusal::Lost(Lost::Unreadable))?.mark(ours == 1)
    }

    /// Refuses everything until [`Fence::rearm`]: after the server's data was put back from a copy.
    pub async fn declare_lost(&self, db: &mut impl ConnectionLike) -> Result<(), Error> {
        self.set(db, "lost", None).await
    }

    /// Sets a lost mark to a floor that no holder of before lies above. A floor below what was seen here is refused.
    pub async fn rearm(&self, db: &mut impl ConnectionLike, floor: Number) -> Result<(), Error> {
        let mut call = self.call("rearm", &[]);
        self.ask::<()>(db, call.arg(format!("{:019}", floor.get()))).await
    }

    /// Says that this is the server that kept the mark, started again on its own disk: it goes on where it stopped. Refused
    /// where that can be seen to be wrong: the server could have forgotten marks, or was a replica. One that was restored from
    /// a copy, or is a replica that was started anew as a primary, cannot be told from it: there, [`Fence::rearm`].
    pub async fn resume(&self, db: &mut impl ConnectionLike) -> Result<(), Error> {
        durability(db).await?.required()?;
        self.ask::<()>(db, &self.call("resume", &[])).await
    }

    /// Whether another incarnation is refused until it is adopted (T5).
    pub async fn strict(&self, db: &mut impl ConnectionLike, strict: bool) -> Result<(), Error> {
        self.set(db, if strict { "strict" } else { "lenient" }, None).await
    }

    /// Follows this incarnation from now on.
    pub async fn adopt(&self, db: &mut impl ConnectionLike, incarnation: Incarnation) -> Result<(), Error> {
        self.set(db, "adopt", Some(incarnation)).await
    }

    async fn set(&self, db: &mut impl ConnectionLike, what: &str, to: Option<Incarnation>) -> Result<(), Error> {
        let mut call = self.call("set", &[]);
        call.arg(what).arg(to.map(|incarnation| incarnation.to_string()));
        self.ask::<()>(db, &call).await
    }
}
