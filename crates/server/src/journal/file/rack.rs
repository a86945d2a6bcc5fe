//! The audit trail's files, beside the journal's own and under the same lock.

use std::io;
use std::sync::OnceLock;

use super::disk::Disk;
use super::names;
use super::shelf::FileShelf;
use super::spare::remove_if_there;
use crate::journal::error::is_full;
use crate::journal::{Fault, Kept, NotTold, Rack};

/// The files of an audit trail on a disk, whichever journal they are about.
pub(in crate::journal) struct Trail<'a, D> {
    pub disk: &'a D,
    /// Why nothing is written here any more (V3).
    pub failed: &'a OnceLock<String>,
}

impl<D: Disk> Trail<'_, D> {
    fn unless_failed(&self) -> Result<(), Fault> {
        self.failed.get().map_or(Ok(()), |why| Err(Fault::Failed { why: why.clone() }))
    }

    fn fail(&self, name: &str, error: &io::Error) -> Fault {
        let why = format!("{}: {error}", self.disk.path(name).display());
        Fault::Failed { why: self.failed.get_or_init(|| why).clone() }
    }

    fn fault(&self, name: &str, error: &io::Error) -> Fault {
        if is_full(error) { Fault::Full } else { self.fail(name, error) }
    }

    fn unreadable(&self, name: &str, error: &io::Error) -> NotTold {
        NotTold::Unreadable { why: format!("{}: {error}", self.disk.path(name).display()) }
    }
}

impl<D: Disk> Rack for Trail<'_, D> {
    fn files(&self) -> Result<Vec<(u64, u64)>, NotTold> {
        let disk = self.disk;
        let mut files = Vec::new();
        for name in disk.names().map_err(|error| self.unreadable("", &error))? {
            if let names::Kind::Trail(number) = names::kind(&name) {
                match disk.open(&name).and_then(|file| disk.len(&file)) {
                    Ok(length) => files.push((number, length)),
                    // It was let go in this moment.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(self.unreadable(&name, &error)),
                }
            }
        }
        files.sort_unstable();
        Ok(files)
    }

    fn read(&self, number: u64, at: u64, into: &mut [u8]) -> Result<usize, NotTold> {
        let (disk, name) = (self.disk, names::trail(number));
        let read = disk.open(&name).and_then(|file| disk.read(&file, at, into));
        read.map_err(|error| self.unreadable(&name, &error))
    }

    fn create(&self, number: u64, bytes: &[u8]) -> Result<Kept, Fault> {
        self.unless_failed()?;
        let name = names::trail(number);
        let told = |error: io::Error| self.fault(&name, &error);
        remove_if_there(self.disk, &name).map_err(told)?;
        let file = self.disk.create(&name).map_err(told)?;
        self.disk.write(&file, 0, bytes).map_err(told)?;
        let failed = |error: io::Error| self.fail(&name, &error);
        self.disk.sync(&file).map_err(failed)?;
        self.disk.sync_names().map_err(failed)?;
        Ok(Kept::Durable)
    }

    fn write(&self, number: u64, at: u64, bytes: &[u8]) -> Result<Kept, Fault> {
        self.unless_failed()?;
        let name = names::trail(number);
        let written = self.disk.open(&name).and_then(|file| self.disk.write(&file, at, bytes));
        written.map_err(|error| self.fault(&name, &error))?;
        Ok(Kept::Durable)
    }

    fn sync(&self, number: u64) -> Result<Kept, Fault> {
        self.unless_failed()?;
        let name = names::trail(number);
        let synced = self.disk.open(&name).and_then(|file| self.disk.sync(&file));
        synced.map_err(|error| self.fail(&name, &error))?;
        Ok(Kept::Durable)
    }

    fn remove(&self, number: u64) -> Result<Kept, Fault> {
        self.unless_failed()?;
        let name = names::trail(number);
        remove_if_there(self.disk, &name).map_err(|error| self.fault(&name, &error))?;
        self.disk.sync_names().map_err(|error| self.fail(&name, &error))?;
        Ok(Kept::Durable)
    }

    fn label(&self, number: u64) -> String {
        self.disk.path(&names::trail(number)).display().to_string()
    }

    fn most(&self) -> u64 {
        u64::MAX
    }
}

impl<D: Disk> Rack for FileShelf<D> {
    fn files(&self) -> Result<Vec<(u64, u64)>, NotTold> {
        self.trail().files()
    }

    fn read(&self, number: u64, at: u64, into: &mut [u8]) -> Result<usize, NotTold> {
        self.trail().read(number, at, into)
    }

    fn create(&self, number: u64, bytes: &[u8]) -> Result<Kept, Fault> {
        self.trail().create(number, bytes)
    }

    fn write(&self, number: u64, at: u64, bytes: &[u8]) -> Result<Kept, Fault> {
        self.trail().write(number, at, bytes)
    }

    fn sync(&self, number: u64) -> Result<Kept, Fault> {
        self.trail().sync(number)
    }

    fn remove(&self, number: u64) -> Result<Kept, Fault> {
        self.trail().remove(number)
    }

    fn label(&self, number: u64) -> String {
        self.trail().label(number)
    }

    fn most(&self) -> u64 {
        self.trail().most()
    }
}
