//! An in-memory disk that can lose power: a test can open every state that a crash may leave.
//!
//! A power loss keeps or loses each sector written since the last sync of its file, in any combination. The same holds for each
//! directory change since the last sync of the directory, and for a file's new length. A failed sync drops the data it should
//! have written: it can still be read, and a power loss loses it even if later syncs succeed.

mod io;
mod power_loss;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use leasehold_server::journal::OpenError;

const SECTOR: usize = 512;

/// The disk. Clones share it.
#[derive(Clone, Debug)]
pub struct SimulatedDisk {
    image: Arc<Mutex<DiskImage>>,
    lock: Option<Arc<Lock>>,
}

/// The contents of the disk at one moment, durable and not.
#[derive(Clone, Debug, Default)]
pub struct DiskImage {
    files: Vec<Inode>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// Directory changes since the last sync of the directory.
    directory_changes: Vec<DirectoryChange>,
    /// The last batch whose append returned durable.
    pub acknowledged: u64,
    /// The last batch whose append was started.
    pub submitted: u64,
    capacity: Option<u64>,
    syncs_until_failure: Option<usize>,
    locked: bool,
    ids: u8,
}

#[derive(Clone, Debug, Default)]
struct Inode {
    current: Vec<u8>,
    durable: Vec<u8>,
    /// Every version of each sector since the last sync, besides the durable one.
    dirty: BTreeMap<usize, Vec<[u8; SECTOR]>>,
}

#[derive(Clone, Debug)]
enum DirectoryChange {
    Created(String, usize),
    Renamed(String, String, usize),
    Removed(String),
}

#[derive(Debug)]
struct Lock(Arc<Mutex<DiskImage>>);

impl Drop for Lock {
    fn drop(&mut self) {
        self.0.lock().expect("no panic under this lock").locked = false;
    }
}

thread_local! {
    static RECORDED: std::cell::RefCell<Option<Vec<DiskImage>>> = const { std::cell::RefCell::new(None) };
}

/// Runs a function and returns the image before each of its changes, and after the last one.
pub fn record(disk: &SimulatedDisk, run: impl FnOnce()) -> Vec<DiskImage> {
    RECORDED.set(Some(Vec::new()));
    run();
    let mut images = RECORDED.take().expect("recording started above");
    images.push(disk.image());
    images
}

impl SimulatedDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::from(DiskImage::default())
    }

    /// Locks the disk; fails while another clone holds the lock.
    pub fn lock(&self) -> Result<Self, OpenError> {
        let mut image = self.get();
        if image.locked {
            return Err(OpenError::InUse { path: "simulated-disk".into(), pid: None });
        }
        image.locked = true;
        Ok(Self { image: Arc::clone(&self.image), lock: Some(Arc::new(Lock(Arc::clone(&self.image)))) })
    }

    /// A copy of the current contents.
    pub fn image(&self) -> DiskImage {
        self.get().clone()
    }

    /// Records that the append of a batch started.
    pub fn submitted(&self, sequence: u64) {
        self.get().submitted = sequence;
    }

    /// Records that the append of a batch returned durable.
    pub fn acknowledged(&self, sequence: u64) {
        self.get().acknowledged = sequence;
    }

    /// Limits the total size of all files.
    pub fn limit(&self, bytes: Option<u64>) {
        self.get().capacity = bytes;
    }

    /// Total size of all files.
    pub fn used(&self) -> u64 {
        self.get().used()
    }

    /// Lets this many syncs succeed, and fails the next one.
    pub fn fail_sync(&self, after: usize) {
        self.get().syncs_until_failure = Some(after);
    }

    /// Cancels a scheduled failure; returns whether it had already happened.
    pub fn cancel_sync_failure(&self) -> bool {
        self.get().syncs_until_failure.take().is_none()
    }

    /// Changes a file without the journal, durably.
    pub fn tamper(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut image = self.get();
        let file = image.names[name];
        let inode = &mut image.files[file];
        change(&mut inode.current);
        inode.durable = inode.current.clone();
        inode.dirty.clear();
    }

    /// Adds a file without the journal, durably.
    pub fn add_file(&self, name: &str, bytes: &[u8]) {
        let mut image = self.get();
        let file = image.files.len();
        image.files.push(Inode { current: bytes.to_vec(), durable: bytes.to_vec(), dirty: BTreeMap::new() });
        image.names.insert(name.to_owned(), file);
        image.durable_names.insert(name.to_owned(), file);
    }

    /// Removes a file without the journal, durably.
    pub fn remove_file(&self, name: &str) {
        let mut image = self.get();
        image.names.remove(name).expect("the file exists");
        image.durable_names.remove(name);
    }

    /// Every file name with its bytes.
    pub fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        let image = self.get();
        image.names.iter().map(|(name, file)| (name.clone(), image.files[*file].current.clone())).collect()
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        let image = self.get();
        image.files[image.names[name]].current.clone()
    }

    fn get(&self) -> MutexGuard<'_, DiskImage> {
        self.image.lock().expect("no panic under this lock")
    }

    fn change(&self) -> MutexGuard<'_, DiskImage> {
        let image = self.get();
        RECORDED.with_borrow_mut(|recorded| {
            if let Some(recorded) = recorded {
                recorded.push(image.clone());
            }
        });
        image
    }

    fn sync_fails(image: &mut DiskImage) -> bool {
        match &mut image.syncs_until_failure {
            Some(0) => {
                image.syncs_until_failure = None;
                true
            }
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }
}

impl From<DiskImage> for SimulatedDisk {
    /// The disk after the process was killed: unsynced writes are still there.
    fn from(image: DiskImage) -> Self {
        Self { image: Arc::new(Mutex::new(DiskImage { locked: false, ..image })), lock: None }
    }
}

impl DiskImage {
    fn used(&self) -> u64 {
        self.names.values().map(|file| self.files[*file].current.len() as u64).sum()
    }
}

fn put(into: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    into.resize(into.len().max(at + bytes.len()), 0);
    into[at..at + bytes.len()].copy_from_slice(bytes);
}
