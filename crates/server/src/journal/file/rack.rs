//! The audit trail's files, beside the journal's own and under the same lock.

use std::io;

use super::disk::Disk;
use super::names;
use super::shelf::FileShelf;
use super::spare::remove_if_there;
use crate::journal::{Fault, Kept, NotTold, Rack};

impl<D: Disk> Rack for FileShelf<D> {
    fn files(&self) -> Result<Vec<(u64, u64)>, NotTold> {
        let disk = &self.shared().disk;
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
        let (disk, name) = (&self.shared().disk, names::trail(number));
        let read = disk.open(&name).and_then(|file| disk.read(&file, at, into));
        read.map_err(|error| self.unreadable(&name, &error))
    }

    fn create(&self, number: u64, bytes: &[u8]) -> Result<Kept, Fault> {
        let shared = self.shared();
        shared.unless_failed()?;
        let name = names::trail(number);
        let told = |error: io::Error| shared.fault(&name, &error);
        remove_if_there(&shared.disk, &name).map_err(told)?;
        let file = shared.disk.create(&name).map_err(told)?;
        shared.disk.write(&file, 0, bytes).map_err(told)?;
        let failed = |error: io::Error| shared.fail(&name, &error);
        shared.disk.sync(&file).map_err(failed)?;
        shared.disk.sync_names().map_err(failed)?;
        Ok(Kept::Durable)
    }

    fn write(&self, number: u64, at: u64, bytes: &[u8]) -> Result<Kept, Fault> {
        let shared = self.shared();
        shared.unless_failed()?;
        let name = names::trail(number);
        let written = shared.disk.open(&name).and_then(|file| shared.disk.write(&file, at, bytes));
        written.map_err(|error| shared.fault(&name, &error))?;
        Ok(Kept::Durable)
    }

    fn sync(&self, number: u64) -> Result<Kept, Fault> {
        let shared = self.shared();
        shared.unless_failed()?;
        let name = names::trail(number);
        let synced = shared.disk.open(&name).and_then(|file| shared.disk.sync(&file));
        synced.map_err(|error| shared.fail(&name, &error))?;
        Ok(Kept::Durable)
    }

    fn remove(&self, number: u64) -> Result<Kept, Fault> {
        let shared = self.shared();
        shared.unless_failed()?;
        let name = names::trail(number);
        remove_if_there(&shared.disk, &name).map_err(|error| shared.fault(&name, &error))?;
        shared.disk.sync_names().map_err(|error| shared.fail(&name, &error))?;
        Ok(Kept::Durable)
    }

    fn label(&self, number: u64) -> String {
        self.shared().disk.path(&names::trail(number)).display().to_string()
    }

    fn most(&self) -> u64 {
        u64::MAX
    }
}
