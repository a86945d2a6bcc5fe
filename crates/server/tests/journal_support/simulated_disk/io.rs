//! The journal's disk operations on the simulated disk.

use std::io;
use std::path::PathBuf;

use leasehold_server::journal::file::{Disk, HostIdentity};

use super::{DirectoryChange, Inode, SECTOR, SimulatedDisk, put};

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Disk for SimulatedDisk {
    type File = usize;

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.get().names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<usize> {
        let mut image = self.change();
        if image.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = image.files.len();
        image.files.push(Inode::default());
        image.names.insert(name.to_owned(), file);
        image.directory_changes.push(DirectoryChange::Created(name.to_owned(), file));
        Ok(file)
    }

    fn open(&self, name: &str) -> io::Result<usize> {
        self.get().names.get(name).copied().ok_or_else(not_found)
    }

    fn len(&self, file: &usize) -> io::Result<u64> {
        Ok(self.get().files[*file].current.len() as u64)
    }

    fn read(&self, file: &usize, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let image = self.get();
        let bytes = image.files[*file].current.get(at as usize..).unwrap_or_default();
        let got = bytes.len().min(into.len());
        into[..got].copy_from_slice(&bytes[..got]);
        Ok(got)
    }

    fn write(&self, file: &usize, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut image = self.change();
        let growth = (at + bytes.len() as u64).saturating_sub(image.files[*file].current.len() as u64);
        if image.capacity.is_some_and(|limit| growth > 0 && image.used() + growth > limit) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let inode = &mut image.files[*file];
        put(&mut inode.current, at as usize, bytes);
        for sector in at as usize / SECTOR..(at as usize + bytes.len()).div_ceil(SECTOR) {
            let mut version = [0; SECTOR];
            let bytes = &inode.current[sector * SECTOR..inode.current.len().min((sector + 1) * SECTOR)];
            version[..bytes.len()].copy_from_slice(bytes);
            inode.dirty.entry(sector).or_default().push(version);
        }
        Ok(())
    }

    fn reserve(&self, file: &usize, bytes: u64) -> io::Result<()> {
        let mut image = self.change();
        if image.capacity.is_some_and(|limit| image.used() + bytes > limit) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        image.files[*file].current.resize(bytes as usize, 0);
        Ok(())
    }

    fn sync(&self, file: &usize) -> io::Result<()> {
        let mut image = self.change();
        let fails = Self::sync_fails(&mut image);
        let inode = &mut image.files[*file];
        let dirty = std::mem::take(&mut inode.dirty);
        if fails {
            return Err(io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error()));
        }
        for sector in dirty.into_keys() {
            let bytes = inode.current[sector * SECTOR..inode.current.len().min((sector + 1) * SECTOR)].to_vec();
            put(&mut inode.durable, sector * SECTOR, &bytes);
        }
        inode.durable.resize(inode.current.len(), 0);
        Ok(())
    }

    fn check_present(&self, name: &str, file: &usize) -> io::Result<()> {
        if self.get().names.get(name) == Some(file) { Ok(()) } else { Err(not_found()) }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut image = self.change();
        let file = image.names.remove(from).ok_or_else(not_found)?;
        image.names.insert(to.to_owned(), file);
        image.directory_changes.push(DirectoryChange::Renamed(from.to_owned(), to.to_owned(), file));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut image = self.change();
        image.names.remove(name).ok_or_else(not_found)?;
        image.directory_changes.push(DirectoryChange::Removed(name.to_owned()));
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut image = self.change();
        if Self::sync_fails(&mut image) {
            return Err(io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error()));
        }
        image.durable_names = image.names.clone();
        image.directory_changes.clear();
        Ok(())
    }

    fn free(&self) -> io::Result<u64> {
        let image = self.get();
        Ok(image.capacity.map_or(u64::MAX, |limit| limit.saturating_sub(image.used())))
    }

    fn host_identity(&self) -> HostIdentity {
        HostIdentity { device: 1, inode: 2, machine: "simulated".to_owned() }
    }

    fn random(&self) -> io::Result<[u8; 16]> {
        let mut image = self.get();
        image.ids += 1;
        Ok([image.ids; 16])
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from("simulated-disk").join(name)
    }
}
