//! The trial of the place for the audit trail.

use super::{Held, durable, open, same};
use crate::journal::{Journal, Kept, NotTold, Place, Rack};

pub(super) async fn the_rack_keeps<P: Place>(place: &P) -> Held {
    let (mut journal, _) = open(place).await?;
    durable(&mut journal, 1).await?;
    let shelf = journal.shelf();
    same("an empty rack", &shelf.files(), &Ok(Vec::new()))?;
    for number in [2, 1, 3] {
        same("create", &shelf.create(number, b"begin"), &Ok(Kept::Durable))?;
    }
    same("create in place", &shelf.create(1, b"again"), &Ok(Kept::Durable))?;
    same("write", &shelf.write(1, 5, &[7; 3_000]), &Ok(Kept::Durable))?;
    same("sync", &shelf.sync(1), &Ok(Kept::Durable))?;
    same("remove", &shelf.remove(2), &Ok(Kept::Durable))?;
    same("remove what is not there", &shelf.remove(2), &Ok(Kept::Durable))?;
    drop((shelf, journal));
    let (journal, told) = open(place).await?;
    same("batches", &told.batches.len(), &1)?;
    let shelf = journal.shelf();
    same("files", &shelf.files(), &Ok(vec![(1, 3_005), (3, 5)]))?;
    let mut bytes = [0; 4_096];
    same("read", &shelf.read(1, 0, &mut bytes), &Ok(3_005))?;
    same("its beginning", &&bytes[..6], &&b"again\x07"[..])?;
    same("read from an offset", &shelf.read(1, 3_000, &mut bytes), &Ok(5))?;
    same("read behind the end", &shelf.read(3, 9, &mut bytes), &Ok(0))?;
    match shelf.read(2, 0, &mut bytes) {
        Err(NotTold::Unreadable { .. }) => Ok(()),
        other => Err(format!("a file that was removed is told: {other:?}")),
    }
}
