//! What the servers on one etcd compare about their keys: a digest of the cluster key, and the ids of the seal keys and stamp keys in
//! use.
//!
//! With another cluster key, a standby that takes over would refuse the secret of every lease; without a seal key of the cluster, it
//! would not recognize its tokens; without a stamp key, a database would reject the tokens that it grants. A record is text, one line
//! for each key: `cluster DIGEST`, then `seal KID` or `seal KID END`, then `stamp ID`.

use std::path::PathBuf;
use std::sync::Arc;

use leasehold_seal::{Kid, wall_ms};

use crate::journal::KeyMismatch;
use crate::journal::etcd::KeyDigestRecord;
use crate::keys::{CLUSTER_KEY, KeySource, ServerKeys};
use crate::sealing::{TokenSealer, key_file_name, stamp_file_name};

/// First line of a record.
const VERSION: &str = "leasehold-keys 1";

/// The keys of this server, as digests and ids for the record.
pub struct KeyDigests {
    /// `None` if this server makes random keys of its own.
    directory: Option<PathBuf>,
    keys: Arc<ServerKeys>,
    sealer: Arc<TokenSealer>,
}

impl KeyDigests {
    /// The keys that a server has loaded.
    pub fn new(source: &KeySource, keys: Arc<ServerKeys>, sealer: Arc<TokenSealer>) -> Self {
        Self { directory: source.directory().map(Into::into), keys, sealer }
    }

    fn digest(&self) -> String {
        self.keys.cluster.check_value().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Seal keys that this server has in any state.
    fn has(&self, kid: Kid) -> bool {
        self.sealer.ring().public().get(kid).is_some()
    }

    /// Whether this server has a stamp key, active or not.
    fn stamps_with(&self, id: Kid) -> bool {
        self.sealer.ring().stamp_keys().iter().any(|key| key.key.id() == id)
    }
}

impl KeyDigestRecord for KeyDigests {
    /// Without a key directory there is nothing to share, and the record says so.
    fn record(&self) -> String {
        let mut text = format!("{VERSION}\n");
        if self.directory.is_some() {
            text += &format!("cluster {}\n", self.digest());
        }
        let (ring, now) = (self.sealer.ring(), wall_ms());
        for key in ring.keys().iter().filter(|key| key.is_active(now)) {
            text += &match key.public().end_ms() {
                Some(end) => format!("seal {} {end}\n", key.kid()),
                None => format!("seal {}\n", key.kid()),
            };
        }
        for key in ring.stamp_keys().iter().filter(|key| key.active_ms <= now) {
            text += &format!("stamp {}\n", key.key.id());
        }
        text
    }

    /// A server has the cluster key of the record, every seal key of it that has not ended, and every stamp key. It may have more: a key that waits, or
    /// one that the others receive next.
    fn compare(&self, recorded: Option<&str>, at: &str) -> Result<(), KeyMismatch> {
        let Some(recorded) = recorded.map(KeyRecord::parse) else { return Ok(()) };
        let Some(recorded) = recorded else {
            let problem = format!("{at} in etcd is not a record of keys that this version reads; update leasehold");
            return Err(KeyMismatch::ClusterKey(problem));
        };
        let Some(directory) = &self.directory else {
            if recorded.cluster.is_none() && recorded.seal.is_empty() {
                return Ok(());
            }
            let problem = format!(
                "the servers of this cluster have keys, and this server has no key directory; set keys to a directory with the same \
                 files, or, if the cluster is to have no keys, stop all servers and delete {at} in etcd"
            );
            return Err(KeyMismatch::ClusterKey(problem));
        };
        let directory = directory.display();
        if recorded.cluster.is_some_and(|cluster| cluster != self.digest()) {
            let problem = format!(
                "{directory} has another {CLUSTER_KEY} than the other servers of the cluster, so the secrets of leases would end with a \
                 failover; copy {CLUSTER_KEY} from another server, or, if it was replaced on all of them, stop all servers and delete \
                 {at} in etcd"
            );
            return Err(KeyMismatch::ClusterKey(problem));
        }
        let now = wall_ms();
        let missing = |(kid, end): &&(Kid, Option<u64>)| end.is_none_or(|end| end > now) && !self.has(*kid);
        if let Some((kid, _)) = recorded.seal.iter().find(missing) {
            return Err(KeyMismatch::SealKeys(format!(
                "{directory} has no {file}, with which the cluster seals tokens; copy it from another server, or, if the key was \
                 withdrawn on all of them, stop all servers and delete {at} in etcd",
                file = key_file_name(*kid)
            )));
        }
        match recorded.stamp.iter().find(|id| !self.stamps_with(**id)) {
            None => Ok(()),
            Some(id) => Err(KeyMismatch::StampKeys(format!(
                "{directory} has no {file}, with which the cluster stamps tokens for a database; copy it from another server, or, if \
                 the key was withdrawn on all of them, stop all servers and delete {at} in etcd",
                file = stamp_file_name(*id)
            ))),
        }
    }
}

/// A record that was read.
struct KeyRecord<'a> {
    cluster: Option<&'a str>,
    /// Ids, with their ends in milliseconds since 1970.
    seal: Vec<(Kid, Option<u64>)>,
    /// Ids of stamp keys.
    stamp: Vec<Kid>,
}

impl<'a> KeyRecord<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next()? != VERSION {
            return None;
        }
        let mut record = Self { cluster: None, seal: Vec::new(), stamp: Vec::new() };
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["cluster", digest] => record.cluster = Some(digest),
                ["seal", kid] => record.seal.push((kid.parse().ok()?, None)),
                ["seal", kid, end] => record.seal.push((kid.parse().ok()?, Some(end.parse().ok()?))),
                ["stamp", id] => record.stamp.push(id.parse().ok()?),
                _ => return None,
            }
        }
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use leasehold_seal::{SealKey, TargetStampKey};

    use super::*;
    use crate::keys::new_cluster_key;

    const AT: &str = "/leasehold/keys";

    fn write(directory: &Path, name: &str, text: &str) {
        let path = directory.join(name);
        fs::write(&path, text).expect("the file is writable");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("the mode is set");
    }

    /// A key directory with a cluster key and these seal keys.
    fn directory(cluster_key: &str, seal: &[&SealKey]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).expect("the mode is set");
        write(directory.path(), CLUSTER_KEY, cluster_key);
        for key in seal {
            write(directory.path(), &key_file_name(key.kid()), &key.to_file_text().expect("a text"));
        }
        directory
    }

    fn load(source: &KeySource) -> KeyDigests {
        let sealer = source.directory().map_or_else(TokenSealer::default, |directory| {
            TokenSealer::open(directory.to_owned()).expect("the keys are active")
        });
        KeyDigests::new(source, Arc::new(source.load().expect("the keys load")), Arc::new(sealer))
    }

    fn of(directory: &tempfile::TempDir) -> KeyDigests {
        load(&KeySource::SharedIn(directory.path().to_owned()))
    }

    fn key() -> SealKey {
        SealKey::generate(0).expect("a key")
    }

    #[test]
    fn equal_keys_pass_and_another_cluster_key_is_named_with_the_next_step() {
        let (text, seal) = (new_cluster_key(), key());
        let (one, two) = (directory(&text, &[&seal]), directory(&text, &[&seal]));
        let record = of(&one).record();
        assert!(!record.contains(text.trim()), "the record shows no key: {record}");
        assert_eq!(of(&two).compare(Some(&record), AT), Ok(()));
        assert_eq!(of(&two).compare(None, AT), Ok(()), "nothing is recorded before the first leader");
        let other = directory(&new_cluster_key(), &[&seal]);
        let Err(KeyMismatch::ClusterKey(refused)) = of(&other).compare(Some(&record), AT) else { panic!("refused") };
        for expected in [other.path().to_str().expect("UTF-8"), "copy cluster.key", "delete /leasehold/keys"] {
            assert!(refused.contains(expected), "{refused}");
        }
    }

    #[test]
    fn a_seal_key_in_use_is_required_and_one_that_waits_or_has_ended_is_not() {
        let (text, old, new) = (new_cluster_key(), key(), key());
        let of_cluster = directory(&text, &[&old]);
        let without = directory(&text, &[&new]);
        let mismatch = of(&without).compare(Some(&of(&of_cluster).record()), AT);
        let Err(KeyMismatch::SealKeys(refused)) = mismatch else { panic!("{mismatch:?}") };
        assert!(refused.contains(&key_file_name(old.kid())) && refused.contains("copy it"), "{refused}");
        // A rotation: the next key is on one server first, then active on all, then the old one ends and its file is deleted.
        let waits = new.with_active(u64::MAX).expect("a time");
        write(of_cluster.path(), &key_file_name(waits.kid()), &waits.to_file_text().expect("a text"));
        let both = of(&of_cluster).record();
        assert_eq!(of(&directory(&text, &[&old])).compare(Some(&both), AT), Ok(()), "the new key is not needed yet");
        let new = waits.with_active(0).expect("a time");
        let rotated = directory(&text, &[&old, &new]);
        assert!(of(&directory(&text, &[&old])).compare(Some(&of(&rotated).record()), AT).is_err(), "now it is");
        let old = old.with_end(Some(wall_ms() + 3_600_000)).expect("a time");
        let ending = of(&directory(&text, &[&old, &new])).record();
        let end = old.public().end_ms().expect("an end").to_string();
        let alone = directory(&text, &[&new]);
        assert!(of(&alone).compare(Some(&ending), AT).is_err(), "the old one still verifies");
        assert_eq!(of(&alone).compare(Some(&ending.replace(&end, "1")), AT), Ok(()), "the old one has ended");
    }

    #[test]
    fn a_stamp_key_in_use_is_required_and_one_that_waits_is_not() {
        let (text, seal) = (new_cluster_key(), key());
        let stamp = |active_ms| TargetStampKey::generate("ledger", "jobs", 0, active_ms).expect("a key");
        let with = |keys: &[&TargetStampKey]| {
            let directory = directory(&text, &[&seal]);
            for key in keys {
                let (name, text) = (stamp_file_name(key.key.id()), key.to_file_text().expect("a text"));
                write(directory.path(), &name, &text);
            }
            directory
        };
        let (active, waits) = (stamp(0), stamp(u64::MAX));
        let record = of(&with(&[&active, &waits])).record();
        let mismatch = of(&with(&[&waits])).compare(Some(&record), AT);
        let Err(KeyMismatch::StampKeys(refused)) = mismatch else { panic!("{mismatch:?}") };
        assert!(refused.contains(&stamp_file_name(active.key.id())) && refused.contains("copy it"), "{refused}");
        assert_eq!(of(&with(&[&active])).compare(Some(&record), AT), Ok(()), "the other one is not used yet");
        assert_eq!(of(&with(&[&active])).compare(Some(&of(&with(&[])).record()), AT), Ok(()), "it can be introduced");
    }

    #[test]
    fn a_server_without_a_key_directory_does_not_join_servers_with_keys() {
        let (none, with) = (load(&KeySource::Process), directory(&new_cluster_key(), &[]));
        assert_eq!(none.compare(Some(&none.record()), AT), Ok(()));
        assert_eq!(load(&KeySource::Process).compare(Some(&none.record()), AT), Ok(()));
        let refused = none.compare(Some(&of(&with).record()), AT).expect_err("the cluster has keys").to_string();
        assert!(refused.contains("no key directory") && refused.contains(AT), "{refused}");
        assert_eq!(of(&with).compare(Some(&none.record()), AT), Ok(()), "keys can be introduced");
    }

    #[test]
    fn a_record_of_another_form_is_refused_and_never_ignored() {
        let with = directory(&new_cluster_key(), &[]);
        let mine = of(&with).record();
        for text in [
            "",
            "leasehold-keys 2\n",
            "x",
            &format!("{mine}more\n"),
            &format!("{mine}seal xyz\n"),
            &format!("{mine}stamp xyz\n"),
        ] {
            let refused = of(&with).compare(Some(text), AT).expect_err(text).to_string();
            assert!(refused.contains("update leasehold"), "{refused}");
        }
    }
}
