//! Opens a journal in etcd: checks etcd and the prefix, then replays the log as of the claim.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock};

use leasehold_core::grantor::CorruptionError;
use leasehold_core::journal_lineage::LineageVerdict;

use super::client::EtcdClient;
use super::error::EtcdError;
use super::keys::JournalKeys;
use super::leadership::{EtcdLeadership, Generation};
use super::local::{HighWater, LocalFiles};
use super::meta::{FORMAT, JournalMeta, MetaError, SnapshotMeta};
use super::pb::{AlarmType, Compare, RangeRequest, RequestOp};
use super::quota::Quota;
use super::reader::{EtcdReadError, EtcdReader};
use super::rollback_marker::leave_marker;
use super::version::EtcdVersion;
use super::writer::{EtcdWriter, StoredBatch};
use super::{EtcdJournal, EtcdLocation};
use crate::journal::EtcdOpenError;
use crate::journal::{FIRST, OpenError, OpenedJournal, Replay, ReplayedHead};
use crate::random;

/// An etcd that was checked and can be written.
#[derive(Clone)]
pub struct CheckedEtcd {
    pub client: Arc<EtcdClient>,
    pub keys: JournalKeys,
    pub local: Arc<LocalFiles>,
    quota: Arc<Quota>,
    quota_bytes: u64,
    accept_restored: bool,
    /// Whether an etcd whose access control can be bypassed is accepted.
    accept_bypass: bool,
    authenticates: bool,
    reads_are_fresh: bool,
    warnings: Vec<String>,
}

/// What an operator should know about a version that is supported.
fn version_warning(endpoint: &str, version: EtcdVersion, authenticates: bool) -> Option<String> {
    if authenticates && !version.protects_leases() {
        return Some(format!(
            "etcd at {endpoint} is version {version}: anyone who reaches it can end the leader's lease despite its authentication; \
             upgrade it to 3.4.44, 3.5.30, 3.6.11 or newer"
        ));
    }
    (!version.keeps_renewed_leases()).then(|| {
        format!(
            "etcd at {endpoint} is version {version}, which can end the leader's lease after a stall of its own; upgrade it to \
             3.4.31, 3.5.13 or newer"
        )
    })
}

impl CheckedEtcd {
    /// Checks etcd. Nothing is changed, except that a journal that is gone leaves a marker.
    pub async fn check(location: &EtcdLocation) -> Result<Self, OpenError> {
        let unreachable = |reason| OpenError::Etcd(EtcdOpenError::Unreachable { reason });
        let client = Arc::new(EtcdClient::new(&location.endpoints).map_err(unreachable)?);
        let mut etcd = Self {
            client,
            keys: JournalKeys::under(&location.prefix),
            local: location.local.clone(),
            quota: Arc::default(),
            quota_bytes: location.quota_bytes,
            accept_restored: location.accept_restored,
            accept_bypass: location.insecure,
            authenticates: location.endpoints.login.is_some(),
            reads_are_fresh: true,
            warnings: Vec::new(),
        };
        etcd.check_members().await.map_err(OpenError::Etcd)?;
        etcd.check_alarms().await?;
        etcd.check_prefix().await?;
        Ok(etcd)
    }

    async fn check_members(&mut self) -> Result<(), EtcdOpenError> {
        let statuses = self.client.each_status().await;
        let mut errors = Vec::new();
        for (endpoint, status) in &statuses {
            match status {
                Ok(status) => {
                    let version = EtcdVersion::parse(&status.version).filter(|version| version.is_supported());
                    let Some(version) = version else {
                        let (endpoint, have) = ((*endpoint).to_owned(), status.version.clone());
                        return Err(EtcdOpenError::Version { endpoint, have });
                    };
                    self.reads_are_fresh &= version.reads_are_fresh();
                    if self.authenticates && !version.protects_leases() && !self.accept_bypass {
                        let (endpoint, have) = ((*endpoint).to_owned(), status.version.clone());
                        return Err(EtcdOpenError::Bypass { endpoint, have });
                    }
                    self.warnings.extend(version_warning(endpoint, version, self.authenticates));
                }
                Err(EtcdError::Login(reason)) => return Err(EtcdOpenError::Login { reason: reason.clone() }),
                Err(error) => {
                    // The member may have any version.
                    self.reads_are_fresh = false;
                    errors.push(error.to_string());
                }
            }
        }
        if errors.len() == statuses.len() {
            return Err(EtcdOpenError::Unreachable { reason: errors.join(", ") });
        }
        self.quota.update(statuses.iter().filter_map(|(_, status)| status.as_ref().ok()), self.quota_bytes);
        Ok(())
    }

    async fn check_alarms(&self) -> Result<(), OpenError> {
        let mut attempts = self.client.max_attempts();
        let response = loop {
            attempts -= 1;
            match self.client.alarms().await {
                Err(EtcdError::Unknown(_)) if attempts > 0 => {}
                response => break response.map_err(|error| self.open_error(error))?,
            }
        };
        for alarm in response.alarms {
            match alarm.alarm() {
                AlarmType::Nospace => {
                    return Err(OpenError::Etcd(EtcdOpenError::Full { what: "alarm NOSPACE".to_owned() }));
                }
                AlarmType::Corrupt => {
                    let endpoint = format!("member {:x}", alarm.member_id);
                    return Err(OpenError::Etcd(EtcdOpenError::Damaged { endpoint }));
                }
                AlarmType::None => {}
            }
        }
        Ok(())
    }

    /// The prefix must be empty or hold a journal.
    async fn check_prefix(&self) -> Result<(), OpenError> {
        match self.reader(0).meta().await {
            Ok((Some(meta), _)) => self.check_journal(&meta),
            Ok((None, revision)) => {
                self.check_missing(revision, 0).await?;
                let (key, range_end) = self.keys.all();
                // At that revision, because another server that starts now may have created a journal since.
                let range = RangeRequest { key, range_end, revision, keys_only: true, ..Default::default() };
                let response = self.client.range_with_retry(range).await.map_err(|error| self.open_error(error))?;
                let (members, end) = self.keys.members();
                let ours = |key: &[u8]| key == self.keys.leader() || (key >= &members[..] && key < &end[..]);
                match response.kvs.iter().find(|entry| !ours(&entry.key)) {
                    None => Ok(()),
                    Some(entry) => Err(OpenError::Etcd(EtcdOpenError::Foreign {
                        prefix: self.keys.prefix().to_owned(),
                        key: String::from_utf8_lossy(&entry.key).into_owned(),
                    })),
                }
            }
            Err(error) => Err(self.read_error(error)),
        }
    }

    /// A reader at a revision; zero is the newest.
    pub fn reader(&self, revision: i64) -> EtcdReader<'_> {
        EtcdReader { client: &self.client, keys: &self.keys, revision }
    }

    /// Registers this server with a lease.
    pub async fn register(&self, location: &EtcdLocation) -> Result<EtcdLeadership, OpenError> {
        let (client, keys, ttl) = (self.client.clone(), self.keys.clone(), i64::from(location.lease_seconds));
        let leadership = EtcdLeadership::register(client, keys, &location.address, ttl).await;
        leadership.map_err(|error| self.open_error(error))
    }

    /// Opens the claimed journal and replays the batches after `position`; `restored` if it is known that etcd was restored. Releases
    /// the claim on failure.
    pub async fn open(
        self,
        leadership: Arc<EtcdLeadership>,
        generation: Generation,
        position: u64,
        restored: bool,
        replay: &mut (dyn Replay + Send),
    ) -> Result<OpenedJournal<EtcdJournal>, OpenError> {
        match self.read(&generation, position, replay).await {
            Ok((meta, last, found)) => {
                Ok(self.into_journal(leadership, generation, meta, last, restored || found, replay.head()))
            }
            Err(error) => {
                leadership.end().await;
                Err(error)
            }
        }
    }

    /// Replays the journal as of the claim. Returns its meta, the last batch, and whether etcd was restored.
    async fn read(
        &self,
        generation: &Generation,
        position: u64,
        replay: &mut (dyn Replay + Send),
    ) -> Result<(JournalMeta, StoredBatch, bool), OpenError> {
        let reader = self.reader(generation.revision);
        let (meta, current) = reader.meta().await.map_err(|error| self.read_error(error))?;
        let meta = match meta {
            Some(meta) => meta,
            None => {
                self.check_missing(generation.revision, position).await?;
                self.create(generation).await?
            }
        };
        let (next, _) = self.replay(&reader, meta.snapshot, position, replay).await?;
        let restored = self.check_restored(&reader, &meta, current, next - 1, replay).await?;
        let revision = reader.batch_revision(next - 1).await.map_err(|error| self.read_error(error))?;
        Ok((meta, StoredBatch { sequence: next - 1, revision }, restored))
    }

    /// Replays what follows `position`; from the newest snapshot on if the position is zero or the log does not reach back to it.
    /// Returns the next sequence and the revision it was read at.
    pub async fn replay(
        &self,
        reader: &EtcdReader<'_>,
        newest: Option<SnapshotMeta>,
        position: u64,
        replay: &mut (dyn Replay + Send),
    ) -> Result<(u64, i64), OpenError> {
        if position > 0 {
            let digest = reader.digest(position).await.map_err(|error| self.read_error(error))?;
            let differs = |head: ReplayedHead| digest.is_some_and(|digest| digest != head.digest);
            if replay.head().is_some_and(differs) {
                let what = format!("this server has replayed another batch {position} than etcd has");
                return Err(OpenError::Etcd(EtcdOpenError::Restored { what }));
            }
            match self.replay_batches(reader, position, position, replay).await {
                // The last batch is never trimmed. If it is missing, etcd was restored.
                Ok((next, _)) if next == position => {
                    let what = format!("this server has replayed batch {position}, and etcd has no such batch");
                    return Err(OpenError::Etcd(EtcdOpenError::Restored { what }));
                }
                Err(ReplayError::Read(EtcdReadError::Trimmed { .. })) => {}
                result => return result.map_err(|error| self.replay_error(error)),
            }
        }
        let mut from = FIRST;
        if let Some(newest) = newest {
            let bytes = reader.snapshot(newest).await.map_err(|error| self.read_error(error))?;
            let replayed = replay.snapshot(newest.sequence, &bytes);
            replayed.map_err(|error| corrupt(&self.keys.chunks(newest.sequence).0, error))?;
            from = newest.sequence + 1;
        }
        self.replay_batches(reader, from, from - 1, replay).await.map_err(|error| self.replay_error(error))
    }

    /// Reads batches from a sequence on and replays those above `above`.
    async fn replay_batches(
        &self,
        reader: &EtcdReader<'_>,
        from: u64,
        above: u64,
        replay: &mut (dyn Replay + Send),
    ) -> Result<(u64, i64), ReplayError> {
        let mut refused = None;
        let mut each = |sequence: u64, batch: &[u8]| {
            let replayed = if sequence > above { replay.batch(sequence, batch) } else { Ok(()) };
            match replayed {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    refused = Some(corrupt(&self.keys.log(sequence), error));
                    ControlFlow::Break(())
                }
            }
        };
        let reached = reader.batches(from, &mut each).await.map_err(ReplayError::Read)?;
        refused.map_or(Ok(reached), |error| Err(ReplayError::Refused(error)))
    }

    fn replay_error(&self, error: ReplayError) -> OpenError {
        match error {
            ReplayError::Read(error) => self.read_error(error),
            ReplayError::Refused(error) => error,
        }
    }

    /// Creates a journal, unless this server no longer leads.
    async fn create(&self, generation: &Generation) -> Result<JournalMeta, OpenError> {
        let id = random::bytes::<16>().iter().map(|byte| format!("{byte:02x}")).collect();
        let meta = JournalMeta { id, snapshot: None };
        let mut compare = generation.conditions(&self.keys);
        compare.push(Compare::absent(&self.keys.meta()));
        compare.push(Compare::absent(&self.keys.rolled_back()));
        let success = vec![RequestOp::put(&self.keys.meta(), meta.encode(), 0)];
        let failure = vec![RequestOp::get(&self.keys.meta())];
        let txn = super::pb::TxnRequest { compare, success, failure };
        let mut attempts = self.client.max_attempts();
        loop {
            attempts -= 1;
            match self.client.txn(txn.clone()).await {
                Ok(response) if response.succeeded => return Ok(meta),
                // An earlier attempt succeeded without a response.
                Ok(response) if response.got(0).is_some_and(|found| found.value == meta.encode()) => return Ok(meta),
                Ok(_) => return Err(OpenError::Etcd(EtcdOpenError::Taken)),
                Err(EtcdError::Unknown(_) | EtcdError::Behind) if attempts > 0 => {}
                Err(error) => return Err(self.open_error(error)),
            }
        }
    }

    /// The journal must be the one that this server has served.
    fn check_journal(&self, meta: &JournalMeta) -> Result<(), OpenError> {
        match self.local.high_water() {
            Some(HighWater { journal, .. }) if journal != meta.id => {
                let (prefix, found) = (self.keys.prefix().to_owned(), meta.id.clone());
                Err(OpenError::Etcd(EtcdOpenError::OtherJournal { prefix, seen: journal, found }))
            }
            _ => Ok(()),
        }
    }

    /// Compares what was replayed, up to the batch `last`, with this server's high-water mark. True if etcd was restored, this is
    /// accepted, and no new incarnation has begun since. The mark may not be overwritten before.
    pub async fn check_restored(
        &self,
        reader: &EtcdReader<'_>,
        meta: &JournalMeta,
        revision: i64,
        last: u64,
        replay: &mut (dyn Replay + Send),
    ) -> Result<bool, OpenError> {
        self.check_journal(meta)?;
        if let Some(what) = self.difference(reader, revision, last, replay).await? {
            let accepted = reader.accepted().await.map_err(|error| self.read_error(error))?;
            self.leave_marker(&what, accepted).await;
            let error = EtcdOpenError::Restored { what };
            return if self.accept_restored { Ok(true) } else { Err(OpenError::Etcd(error)) };
        }
        self.check_marker().await
    }

    /// Leaves a marker that etcd was restored, unless a restore was accepted after `accepted`, the revision of the last one.
    pub async fn leave_marker(&self, what: &str, accepted: i64) {
        let unchanged = Compare::changed_at(&self.keys.accepted(), accepted);
        leave_marker(&self.client, &self.keys, what, unchanged).await;
    }

    /// Whether another server found that etcd was restored, and this is accepted; an error if it is not.
    pub async fn check_marker(&self) -> Result<bool, OpenError> {
        match self.reader(0).rolled_back().await.map_err(|error| self.read_error(error))? {
            Some(marker) if !self.accept_restored => Err(OpenError::Etcd(EtcdOpenError::Marked { marker })),
            marker => Ok(marker.is_some()),
        }
    }

    /// What this server has seen and etcd has lost.
    async fn difference(
        &self,
        reader: &EtcdReader<'_>,
        revision: i64,
        last: u64,
        replay: &mut (dyn Replay + Send),
    ) -> Result<Option<String>, OpenError> {
        let Some(seen) = self.local.high_water() else { return Ok(None) };
        let verdict = seen.batch().map_or(LineageVerdict::Unknown, |batch| replay.compare(&batch));
        if verdict == LineageVerdict::Superseded {
            return Ok(None);
        }
        if verdict == LineageVerdict::Lost || last < seen.sequence {
            return Ok(Some(format!(
                "this server has seen batch {}, which etcd has lost; its last batch is {last}",
                seen.sequence
            )));
        }
        if let Some(digest) = seen.digest {
            let found = reader.digest(seen.sequence).await.map_err(|error| self.read_error(error))?;
            if found.is_some_and(|found| found != digest) {
                return Ok(Some(format!("this server has seen another batch {} than etcd has", seen.sequence)));
            }
        }
        if revision < seen.revision {
            return Ok(Some(format!("this server has seen revision {}, etcd has {revision}", seen.revision)));
        }
        Ok(None)
    }

    fn into_journal(
        self,
        leadership: Arc<EtcdLeadership>,
        generation: Generation,
        meta: JournalMeta,
        last: StoredBatch,
        restored: bool,
        head: Option<ReplayedHead>,
    ) -> OpenedJournal<EtcdJournal> {
        let warnings = self.local.warnings().into_iter().chain(self.warnings).collect();
        let writer = Arc::new(EtcdWriter {
            client: self.client.clone(),
            keys: self.keys,
            local: self.local,
            quota: self.quota.clone(),
            generation,
            journal: meta.id,
            reads_are_fresh: self.reads_are_fresh,
            next: AtomicU64::new(last.sequence + 1),
            last: Mutex::new(last),
            fenced: AtomicBool::new(false),
            failed: OnceLock::new(),
            restored,
            incarnation: head.and_then(|head| head.incarnation),
            opening: OnceLock::new(),
        });
        writer.save_high_water(head.map(|head| head.digest), head.and_then(|head| head.opening));
        let quota_poll = self.quota.poll(self.client, self.quota_bytes);
        OpenedJournal { journal: EtcdJournal { writer, _leadership: leadership, quota_poll }, warnings }
    }

    /// The error of opening for the error of a call.
    pub fn open_error(&self, error: EtcdError) -> OpenError {
        OpenError::Etcd(match error {
            EtcdError::Full => EtcdOpenError::Full { what: "database space exceeded".to_owned() },
            EtcdError::Denied(_) => EtcdOpenError::ReadOnly { prefix: self.keys.prefix().to_owned() },
            EtcdError::Login(reason) => EtcdOpenError::Login { reason },
            EtcdError::LeaseGone => EtcdOpenError::Taken,
            other => EtcdOpenError::Unreachable { reason: other.to_string() },
        })
    }

    /// The error of opening for the error of a read.
    pub fn read_error(&self, error: EtcdReadError) -> OpenError {
        let prefix = || self.keys.prefix().to_owned();
        match error {
            EtcdReadError::Etcd(error) => self.open_error(error),
            EtcdReadError::Trimmed { first } => OpenError::Etcd(EtcdOpenError::Corrupt {
                key: String::from_utf8_lossy(&self.keys.log(first)).into_owned(),
                reason: "the log starts here, and no snapshot covers the batches before".to_owned(),
            }),
            EtcdReadError::Corrupt { key, reason } => OpenError::Etcd(EtcdOpenError::Corrupt { key, reason }),
            EtcdReadError::Meta(MetaError::Newer(have)) => {
                OpenError::Etcd(EtcdOpenError::Newer { prefix: prefix(), have, want: FORMAT })
            }
            EtcdReadError::Meta(MetaError::Foreign) => {
                OpenError::Etcd(EtcdOpenError::Foreign { prefix: prefix(), key: format!("{}meta", prefix()) })
            }
        }
    }
}

/// Error of a replay.
enum ReplayError {
    /// The read failed.
    Read(EtcdReadError),
    /// The replay refused a batch.
    Refused(OpenError),
}

/// The error for a batch or a snapshot that the replay refuses.
pub fn corrupt(key: &[u8], error: CorruptionError) -> OpenError {
    OpenError::Corrupt {
        file: String::from_utf8_lossy(key).into_owned().into(),
        offset: error.at as u64,
        reason: error.problem.to_owned(),
    }
}
