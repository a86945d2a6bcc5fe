//! A disk that loses power: every state that a crash may leave is a state that a test can open.
//!
//! What was written since the last sync of its file may be lost or kept, sector by sector, in any combination; so may
//! each change of a name since the last sync of the names, and a file's new length. A failed sync gives up what it was
//! to write: it can still be read, and is gone after a loss of power, though later syncs succeed.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use leasehold_server::journal::OpenError;
use leasehold_server::journal::file::{Disk, HostIdentity};

const SECTOR: usize = 512;

/// The disk. A clone is the same disk.
#[derive(Clone, Debug)]
pub struct Power {
    world: Arc<Mutex<World>>,
    lock: Option<Arc<Lock>>,
}

/// All that the disk knows at one moment.
#[derive(Clone, Debug, Default)]
pub struct World {
    files: Vec<Inode>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    renamings: Vec<Naming>,
    /// How many batches were answered durable, and how many were given, at this moment.
    pub answered: u64,
    /// How many batches were given.
    pub given: u64,
    capacity: Option<u64>,
    syncs_until_failure: Option<usize>,
    locked: bool,
    ids: u8,
}

#[derive(Clone, Debug, Default)]
struct Inode {
    now: Vec<u8>,
    durable: Vec<u8>,
    /// What each sector was since the last sync, besides what is durable.
    dirty: BTreeMap<usize, Vec<[u8; SECTOR]>>,
}

#[derive(Clone, Debug)]
enum Naming {
    Created(String, usize),
    Renamed(String, String, usize),
    Removed(String),
}

#[derive(Debug)]
struct Lock(Arc<Mutex<World>>);

impl Drop for Lock {
    fn drop(&mut self) {
        self.0.lock().expect("no panic under this lock").locked = false;
    }
}

thread_local! {
    static RECORDED: std::cell::RefCell<Option<Vec<World>>> = const { std::cell::RefCell::new(None) };
}

/// Runs something and returns the worlds before each of its changes, and after the last.
pub fn record(power: &Power, run: impl FnOnce()) -> Vec<World> {
    RECORDED.set(Some(Vec::new()));
    run();
    let mut worlds = RECORDED.take().expect("recording goes on until here");
    worlds.push(power.world());
    worlds
}

impl Power {
    /// An empty disk.
    pub fn new() -> Self {
        Self::from(World::default())
    }

    /// The disk for one who opens it; refused while another has it.
    pub fn lock(&self) -> Result<Self, OpenError> {
        let mut world = self.get();
        if world.locked {
            return Err(OpenError::InUse { path: "power".into(), pid: None });
        }
        world.locked = true;
        Ok(Self { world: Arc::clone(&self.world), lock: Some(Arc::new(Lock(Arc::clone(&self.world)))) })
    }

    /// What is there at this moment.
    pub fn world(&self) -> World {
        self.get().clone()
    }

    /// A batch is given.
    pub fn give(&self, sequence: u64) {
        self.get().given = sequence;
    }

    /// A batch was answered durable.
    pub fn answer(&self, sequence: u64) {
        self.get().answered = sequence;
    }

    /// From now on there is so much space for all files together.
    pub fn limit(&self, bytes: Option<u64>) {
        self.get().capacity = bytes;
    }

    /// How much is used.
    pub fn used(&self) -> u64 {
        self.get().used()
    }

    /// The sync after so many fails.
    pub fn fail_sync(&self, after: usize) {
        self.get().syncs_until_failure = Some(after);
    }

    /// A failure that has not come is called off; tells whether it came.
    pub fn mend(&self) -> bool {
        self.get().syncs_until_failure.take().is_none()
    }

    /// Writes behind the journal's back, durably.
    pub fn tamper(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut world = self.get();
        let file = world.names[name];
        let inode = &mut world.files[file];
        change(&mut inode.now);
        inode.durable = inode.now.clone();
        inode.dirty.clear();
    }

    /// Puts a file there behind the journal's back, durably.
    pub fn plant(&self, name: &str, bytes: &[u8]) {
        let mut world = self.get();
        let file = world.files.len();
        world.files.push(Inode { now: bytes.to_vec(), durable: bytes.to_vec(), dirty: BTreeMap::new() });
        world.names.insert(name.to_owned(), file);
        world.durable_names.insert(name.to_owned(), file);
    }

    /// Takes a file away behind the journal's back, durably.
    pub fn take_away(&self, name: &str) {
        let mut world = self.get();
        world.names.remove(name).expect("the file is there");
        world.durable_names.remove(name);
    }

    /// Every file with its bytes.
    pub fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        let world = self.get();
        world.names.iter().map(|(name, file)| (name.clone(), world.files[*file].now.clone())).collect()
    }

    /// A file's bytes.
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        let world = self.get();
        world.files[world.names[name]].now.clone()
    }

    fn get(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("no panic under this lock")
    }

    fn change(&self) -> MutexGuard<'_, World> {
        let world = self.get();
        RECORDED.with_borrow_mut(|recorded| {
            if let Some(recorded) = recorded {
                recorded.push(world.clone());
            }
        });
        world
    }

    fn sync_fails(world: &mut World) -> bool {
        match &mut world.syncs_until_failure {
            Some(0) => {
                world.syncs_until_failure = None;
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

impl From<World> for Power {
    /// The process was killed: what it wrote is still there, synced or not.
    fn from(world: World) -> Self {
        Self { world: Arc::new(Mutex::new(World { locked: false, ..world })), lock: None }
    }
}

impl World {
    fn used(&self) -> u64 {
        self.names.values().map(|file| self.files[*file].now.len() as u64).sum()
    }

    /// What a loss of power chooses: for each of these, one of so many.
    fn choices(&self) -> Vec<usize> {
        let namings = self.renamings.iter().map(|_| 2);
        let sectors = self.files.iter().flat_map(|file| file.dirty.values().map(|versions| 1 + versions.len()));
        let lengths = self.files.iter().map(|file| if file.now.len() == file.durable.len() { 1 } else { 2 });
        namings.chain(sectors).chain(lengths).collect()
    }

    /// The states that a loss of power may leave: all of them, or `most` if there are more.
    pub fn crashes(&self, most: usize) -> Vec<Power> {
        let choices = self.choices();
        let all = choices.iter().try_fold(1_usize, |all, of| all.checked_mul(*of)).filter(|all| *all <= most);
        let picks: Vec<Vec<usize>> = match all {
            Some(all) => (0..all).map(|number| digits(number, &choices)).collect(),
            None => sample(&choices, most),
        };
        picks.into_iter().map(|picks| self.crash(&picks)).collect()
    }

    /// The state in which nothing is left that was not synced.
    pub fn harshest(&self) -> Power {
        self.crash(&vec![0; self.choices().len()])
    }

    fn crash(&self, picks: &[usize]) -> Power {
        let mut picks = picks.iter().copied();
        let mut pick = || picks.next().expect("a pick for every choice");
        let mut names = self.durable_names.clone();
        for naming in &self.renamings {
            if pick() == 0 {
                continue;
            }
            match naming {
                Naming::Created(name, file) => drop(names.insert(name.clone(), *file)),
                Naming::Renamed(from, to, file) => {
                    names.remove(from);
                    names.insert(to.clone(), *file);
                }
                Naming::Removed(name) => drop(names.remove(name)),
            }
        }
        let mut files: Vec<Inode> = self.files.clone();
        for inode in &mut files {
            inode.now = inode.durable.clone();
            for (sector, versions) in std::mem::take(&mut inode.dirty) {
                let pick = pick();
                if pick > 0 {
                    put(&mut inode.now, sector * SECTOR, &versions[pick - 1]);
                }
            }
        }
        for (inode, before) in files.iter_mut().zip(&self.files) {
            let length = if pick() == 0 { before.durable.len() } else { before.now.len() };
            inode.now.resize(length, 0);
            inode.durable = inode.now.clone();
        }
        Power::from(World { files, durable_names: names.clone(), names, renamings: Vec::new(), ..self.clone() })
    }
}

fn digits(mut number: usize, choices: &[usize]) -> Vec<usize> {
    let mut digit = |of: &usize| {
        let digit = number % of;
        number /= of;
        digit
    };
    choices.iter().map(&mut digit).collect()
}

/// All lost, all kept, every one alone lost or kept, every beginning kept, and then by chance of a fixed seed.
fn sample(choices: &[usize], most: usize) -> Vec<Vec<usize>> {
    let kept: Vec<usize> = choices.iter().map(|of| of - 1).collect();
    let lost = vec![0; choices.len()];
    let mut picks = vec![lost.clone(), kept.clone()];
    for at in 0..choices.len() {
        let mut alone = lost.clone();
        alone[at] = kept[at];
        let mut but = kept.clone();
        but[at] = 0;
        let beginning = [&kept[..at], &lost[at..]].concat();
        picks.extend([alone, but, beginning]);
    }
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    while picks.len() < most {
        picks.push(
            choices
                .iter()
                .map(|of| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (seed >> 33) as usize % of
                })
                .collect(),
        );
    }
    picks.truncate(most.max(2));
    picks
}

fn put(into: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    into.resize(into.len().max(at + bytes.len()), 0);
    into[at..at + bytes.len()].copy_from_slice(bytes);
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Disk for Power {
    type File = usize;

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.get().names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<usize> {
        let mut world = self.change();
        if world.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = world.files.len();
        world.files.push(Inode::default());
        world.names.insert(name.to_owned(), file);
        world.renamings.push(Naming::Created(name.to_owned(), file));
        Ok(file)
    }

    fn open(&self, name: &str) -> io::Result<usize> {
        self.get().names.get(name).copied().ok_or_else(not_found)
    }

    fn len(&self, file: &usize) -> io::Result<u64> {
        Ok(self.get().files[*file].now.len() as u64)
    }

    fn read(&self, file: &usize, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let world = self.get();
        let bytes = world.files[*file].now.get(at as usize..).unwrap_or_default();
        let got = bytes.len().min(into.len());
        into[..got].copy_from_slice(&bytes[..got]);
        Ok(got)
    }

    fn write(&self, file: &usize, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut world = self.change();
        let grows = (at + bytes.len() as u64).saturating_sub(world.files[*file].now.len() as u64);
        if world.capacity.is_some_and(|most| grows > 0 && world.used() + grows > most) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let inode = &mut world.files[*file];
        put(&mut inode.now, at as usize, bytes);
        for sector in at as usize / SECTOR..(at as usize + bytes.len()).div_ceil(SECTOR) {
            let mut version = [0; SECTOR];
            let some = &inode.now[sector * SECTOR..inode.now.len().min((sector + 1) * SECTOR)];
            version[..some.len()].copy_from_slice(some);
            inode.dirty.entry(sector).or_default().push(version);
        }
        Ok(())
    }

    fn reserve(&self, file: &usize, bytes: u64) -> io::Result<()> {
        let mut world = self.change();
        if world.capacity.is_some_and(|most| world.used() + bytes > most) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        world.files[*file].now.resize(bytes as usize, 0);
        Ok(())
    }

    fn sync(&self, file: &usize) -> io::Result<()> {
        let mut world = self.change();
        let fails = Self::sync_fails(&mut world);
        let inode = &mut world.files[*file];
        let dirty = std::mem::take(&mut inode.dirty);
        if fails {
            return Err(io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error()));
        }
        for sector in dirty.into_keys() {
            let some = inode.now[sector * SECTOR..inode.now.len().min((sector + 1) * SECTOR)].to_vec();
            put(&mut inode.durable, sector * SECTOR, &some);
        }
        inode.durable.resize(inode.now.len(), 0);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut world = self.change();
        let file = world.names.remove(from).ok_or_else(not_found)?;
        world.names.insert(to.to_owned(), file);
        world.renamings.push(Naming::Renamed(from.to_owned(), to.to_owned(), file));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut world = self.change();
        world.names.remove(name).ok_or_else(not_found)?;
        world.renamings.push(Naming::Removed(name.to_owned()));
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut world = self.change();
        if Self::sync_fails(&mut world) {
            return Err(io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error()));
        }
        world.durable_names = world.names.clone();
        world.renamings.clear();
        Ok(())
    }

    fn free(&self) -> io::Result<u64> {
        let world = self.get();
        Ok(world.capacity.map_or(u64::MAX, |most| most.saturating_sub(world.used())))
    }

    fn host_identity(&self) -> HostIdentity {
        HostIdentity { device: 1, inode: 2, machine: "simulated".to_owned() }
    }

    fn random(&self) -> io::Result<[u8; 16]> {
        let mut world = self.get();
        world.ids += 1;
        Ok([world.ids; 16])
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from("power").join(name)
    }
}
