//! The states that a power loss may leave on the simulated disk.

use leasehold_testkit::rng::SplitMix64;

use super::{DirectoryChange, DiskImage, Inode, SECTOR, SimulatedDisk, put};

impl DiskImage {
    /// Number of outcomes of each independent choice: directory changes, sectors, file lengths.
    fn choices(&self) -> Vec<usize> {
        let changes = self.directory_changes.iter().map(|_| 2);
        let sectors = self.files.iter().flat_map(|file| file.dirty.values().map(|versions| 1 + versions.len()));
        let lengths = self.files.iter().map(|file| if file.current.len() == file.durable.len() { 1 } else { 2 });
        changes.chain(sectors).chain(lengths).collect()
    }

    /// The states that a power loss may leave: all of them, or a sample of `limit` if there are more.
    pub fn crashes(&self, limit: usize) -> Vec<SimulatedDisk> {
        let choices = self.choices();
        let all = choices.iter().try_fold(1_usize, |all, of| all.checked_mul(*of)).filter(|all| *all <= limit);
        let picks: Vec<Vec<usize>> = match all {
            Some(all) => (0..all).map(|number| digits(number, &choices)).collect(),
            None => sample(&choices, limit),
        };
        picks.into_iter().map(|picks| self.crash(&picks)).collect()
    }

    /// The state in which everything that was not synced is lost.
    pub fn lose_unsynced(&self) -> SimulatedDisk {
        self.crash(&vec![0; self.choices().len()])
    }

    fn crash(&self, picks: &[usize]) -> SimulatedDisk {
        let mut picks = picks.iter().copied();
        let mut pick = || picks.next().expect("a pick for every choice");
        let mut names = self.durable_names.clone();
        for change in &self.directory_changes {
            if pick() == 0 {
                continue;
            }
            match change {
                DirectoryChange::Created(name, file) => drop(names.insert(name.clone(), *file)),
                DirectoryChange::Renamed(from, to, file) => {
                    names.remove(from);
                    names.insert(to.clone(), *file);
                }
                DirectoryChange::Removed(name) => drop(names.remove(name)),
            }
        }
        let mut files: Vec<Inode> = self.files.clone();
        for inode in &mut files {
            inode.current = inode.durable.clone();
            for (sector, versions) in std::mem::take(&mut inode.dirty) {
                let pick = pick();
                if pick > 0 {
                    put(&mut inode.current, sector * SECTOR, &versions[pick - 1]);
                }
            }
        }
        for (inode, before) in files.iter_mut().zip(&self.files) {
            let length = if pick() == 0 { before.durable.len() } else { before.current.len() };
            inode.current.resize(length, 0);
            inode.durable = inode.current.clone();
        }
        let durable_names = names.clone();
        SimulatedDisk::from(DiskImage { files, durable_names, names, directory_changes: Vec::new(), ..self.clone() })
    }
}

/// The digits of a number in the mixed radix of the choices.
fn digits(mut number: usize, choices: &[usize]) -> Vec<usize> {
    let mut digit = |of: &usize| {
        let digit = number % of;
        number /= of;
        digit
    };
    choices.iter().map(&mut digit).collect()
}

/// All lost; all kept; each one alone kept or lost; each prefix kept; then random picks from a fixed seed.
fn sample(choices: &[usize], limit: usize) -> Vec<Vec<usize>> {
    let kept: Vec<usize> = choices.iter().map(|of| of - 1).collect();
    let lost = vec![0; choices.len()];
    let mut picks = vec![lost.clone(), kept.clone()];
    for at in 0..choices.len() {
        let mut one_kept = lost.clone();
        one_kept[at] = kept[at];
        let mut one_lost = kept.clone();
        one_lost[at] = 0;
        let prefix_kept = [&kept[..at], &lost[at..]].concat();
        picks.extend([one_kept, one_lost, prefix_kept]);
    }
    let mut rng = SplitMix64::new(1);
    while picks.len() < limit {
        picks.push(choices.iter().map(|of| rng.below(*of as u64) as usize).collect());
    }
    picks.truncate(limit.max(2));
    picks
}
