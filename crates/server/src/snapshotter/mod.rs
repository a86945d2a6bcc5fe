//! Snapshots and the audit log, written by a background thread that turns never wait for.
//!
//! [`SnapshotHandle`] is the way to the thread; [`Snapshotter`] is the work it does.

mod head_log;
mod replay;
mod worker;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use leasehold_core::token::Cluster;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::audit::{AuditHead, AuditWriteError, HeadSigner, RecentEntries, Retention};
use crate::identity_permits::{IdentityPermits, PermitLimits};
use crate::journal::{AuditFiles, JournalError, ReadError, SnapshotStore};
use crate::metrics::{IDENTITY_AUDIT_READS, SnapshotMetrics};
use crate::recovery::Backlog;

pub use replay::StateSnapshot;
pub use worker::Snapshotter;

/// Backups and exports that may be sent at the same time.
const MAX_TRANSFERS: usize = 2;
/// Reads of the audit log that run at the same time; each holds one of its files in memory.
const AUDIT_READERS: PermitLimits = PermitLimits {
    limit: IDENTITY_AUDIT_READS,
    work: "reads of the audit log",
    permits: 4,
    per_identity: 2,
    requests: 32,
};

/// When snapshots are taken, and how much of the audit log is retained.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotConfig {
    /// A snapshot is taken when the journal after the newest one has this many bytes, or as many as that snapshot if that is more.
    pub log_bytes: u64,
    /// A snapshot is taken when the journal after the newest one has this many batches.
    pub log_batches: u64,
    /// Retention of the audit log.
    pub audit: Retention,
    /// Receives warnings for the operator, one line each.
    pub warn: fn(&str),
}

impl Default for SnapshotConfig {
    fn default() -> Self {
        Self {
            log_bytes: 64 << 20,
            log_batches: 1 << 20,
            audit: Retention::default(),
            warn: |line| eprintln!("leasehold: {line}"),
        }
    }
}

/// A snapshot was not taken, or the audit log was not written. The server continues unless the journal itself failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotError {
    /// The journal did not store it.
    Journal(JournalError),
    /// The journal could not be read.
    Read(ReadError),
    /// The journal contains an impossible record (V2).
    Corrupt {
        /// The batch, or the batch that the snapshot covers.
        sequence: u64,
        /// The error.
        reason: String,
    },
    /// Another server owns the journal.
    Fenced,
    /// The server is shutting down.
    Stopping,
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Journal(error) => error.fmt(f),
            Self::Read(error) => error.fmt(f),
            Self::Corrupt { sequence, reason } => write!(f, "journal batch {sequence}: {reason}"),
            Self::Fenced => f.write_str("another server has taken over the journal"),
            Self::Stopping => f.write_str("the server is shutting down"),
        }
    }
}

impl std::error::Error for SnapshotError {}

impl From<JournalError> for SnapshotError {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}

impl From<ReadError> for SnapshotError {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

impl From<AuditWriteError> for SnapshotError {
    fn from(error: AuditWriteError) -> Self {
        match error {
            AuditWriteError::Journal(error) => Self::Journal(error),
            AuditWriteError::Read(error) => Self::Read(error),
            AuditWriteError::Fenced => Self::Fenced,
        }
    }
}

/// A task for the thread.
enum Task {
    /// Take a snapshot if the journal has reached its limit.
    SnapshotIfDue,
    /// Take a snapshot now and return it.
    Snapshot(oneshot::Sender<Result<(Arc<StateSnapshot>, TransferPermit), SnapshotError>>, TransferPermit),
    /// Write the audit log and sign its head.
    SignHead,
    /// Write the audit log up to what is durable now.
    WriteAudit(oneshot::Sender<Result<AuditHead, SnapshotError>>),
    /// End the thread.
    Stop,
}

/// Permission to send a backup or an export, returned when it is dropped.
pub type TransferPermit = OwnedSemaphorePermit;

/// Handle to the snapshotter's thread, for the driver and the API. The driver's calls never wait for the thread.
pub struct SnapshotHandle {
    tasks: Sender<Task>,
    stopping: AtomicBool,
    /// Journal after the newest snapshot. Signed, because a batch may be covered a moment before it is counted.
    bytes: AtomicI64,
    batches: AtomicI64,
    max_bytes: AtomicU64,
    max_batches: u64,
    /// Whether the thread was already woken because a snapshot is due.
    notified: AtomicBool,
    metrics: SnapshotMetrics,
    /// Limits the states that are in memory because they are being sent.
    transfers: Arc<Semaphore>,
    /// Shares reads of the audit log between identities.
    audit_readers: IdentityPermits,
    /// The end of the audit log when it was last written.
    audit_head: Mutex<Option<AuditHead>>,
    recent_entries: Arc<RecentEntries>,
    audit_files: Mutex<Option<Arc<dyn AuditFiles>>>,
    /// Bytes that were appended since the start.
    appended: AtomicU64,
    /// The keys that count for heads of this cluster.
    head_signer: OnceLock<(Cluster, Arc<dyn HeadSigner>)>,
}

/// The running thread.
pub struct SnapshotThread {
    handle: Arc<SnapshotHandle>,
    thread: JoinHandle<()>,
}

/// Starts the snapshotter on a thread of its own.
pub fn start<S: SnapshotStore>(snapshotter: Snapshotter<S>) -> SnapshotThread {
    let warn = snapshotter.config().warn;
    let handle = snapshotter.handle().clone();
    handle.notify_if_due();
    let run = move || {
        let _warning = WarnOnPanic(warn);
        snapshotter.run();
    };
    let thread = std::thread::Builder::new().name("snapshotter".into()).spawn(run).expect("a thread can be spawned");
    SnapshotThread { handle, thread }
}

/// Warns if the thread panics: the server continues, but the journal would grow without notice.
struct WarnOnPanic(fn(&str));

impl Drop for WarnOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (self.0)(
                "the snapshotter panicked; no snapshot is taken and the journal grows; restart the server and report this bug",
            );
        }
    }
}

impl SnapshotThread {
    /// The handle to the thread.
    pub fn handle(&self) -> &Arc<SnapshotHandle> {
        &self.handle
    }

    /// Cancels the current task and joins the thread. Afterwards it no longer uses the journal.
    pub fn stop(self) {
        self.handle.stopping.store(true, Ordering::Relaxed);
        // Fails if the thread has ended already.
        let _ = self.handle.tasks.send(Task::Stop);
        let _ = self.thread.join();
        self.handle.audit_files.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl SnapshotHandle {
    fn new(
        audit_files: Arc<dyn AuditFiles>,
        config: &SnapshotConfig,
        backlog: Backlog,
        metrics: SnapshotMetrics,
    ) -> (Arc<Self>, Receiver<Task>) {
        let (tasks, receiver) = channel();
        let handle = Self {
            tasks,
            stopping: AtomicBool::new(false),
            bytes: AtomicI64::new(signed(backlog.bytes)),
            batches: AtomicI64::new(signed(backlog.batches)),
            max_bytes: AtomicU64::new(config.log_bytes.max(backlog.snapshot)),
            max_batches: config.log_batches,
            notified: AtomicBool::new(false),
            metrics,
            transfers: Arc::new(Semaphore::new(MAX_TRANSFERS)),
            audit_readers: IdentityPermits::new(AUDIT_READERS),
            audit_head: Mutex::new(None),
            recent_entries: Arc::default(),
            audit_files: Mutex::new(Some(audit_files)),
            appended: AtomicU64::new(0),
            head_signer: OnceLock::new(),
        };
        handle.metrics.set_backlog(handle.backlog_bytes());
        (Arc::new(handle), receiver)
    }

    /// A handle without a thread, for a standby: the leader takes the snapshots.
    pub fn absent(metrics: SnapshotMetrics) -> Self {
        Self {
            tasks: channel().0,
            stopping: AtomicBool::new(true),
            bytes: AtomicI64::new(0),
            batches: AtomicI64::new(0),
            max_bytes: AtomicU64::new(u64::MAX),
            max_batches: u64::MAX,
            notified: AtomicBool::new(false),
            metrics,
            transfers: Arc::new(Semaphore::new(0)),
            audit_readers: IdentityPermits::new(AUDIT_READERS),
            audit_head: Mutex::new(None),
            recent_entries: Arc::default(),
            audit_files: Mutex::new(None),
            appended: AtomicU64::new(0),
            head_signer: OnceLock::new(),
        }
    }

    /// A batch became durable.
    pub fn appended(&self, bytes: usize) {
        self.bytes.fetch_add(signed(bytes as u64), Ordering::Relaxed);
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.appended.fetch_add(bytes as u64, Ordering::Relaxed);
        self.metrics.set_backlog(self.backlog_bytes());
        self.notify_if_due();
    }

    /// Takes a snapshot now and returns it. The permit is held until the snapshot is done, even if the caller is cancelled.
    pub async fn snapshot(
        &self,
        permit: TransferPermit,
    ) -> Result<(Arc<StateSnapshot>, TransferPermit), SnapshotError> {
        let (to, snapshot) = oneshot::channel();
        self.tasks.send(Task::Snapshot(to, permit)).map_err(|_| SnapshotError::Stopping)?;
        snapshot.await.map_err(|_| SnapshotError::Stopping)?
    }

    /// Writes the audit log up to what is durable now, and returns its end.
    pub async fn write_audit(&self) -> Result<AuditHead, SnapshotError> {
        let (to, head) = oneshot::channel();
        self.tasks.send(Task::WriteAudit(to)).map_err(|_| SnapshotError::Stopping)?;
        head.await.map_err(|_| SnapshotError::Stopping)?
    }

    /// The files of the audit log, while the server runs. The journal's directory stays locked as long as the result lives.
    pub fn audit_files(&self) -> Result<Arc<dyn AuditFiles>, SnapshotError> {
        self.audit_files.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or(SnapshotError::Stopping)
    }

    /// A permit to send a backup or an export; `None` if too many are being sent.
    pub fn try_transfer(&self) -> Option<TransferPermit> {
        self.transfers.clone().try_acquire_owned().ok()
    }

    /// Permits to read the audit log.
    pub fn audit_readers(&self) -> &IdentityPermits {
        &self.audit_readers
    }

    /// The latest entries of the audit log.
    pub fn recent_entries(&self) -> &Arc<RecentEntries> {
        &self.recent_entries
    }

    /// The end of the audit log when it was last written; none before the first time.
    pub fn audit_head(&self) -> Option<AuditHead> {
        *self.audit_head.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_audit_head(&self, head: AuditHead) {
        *self.audit_head.lock().unwrap_or_else(PoisonError::into_inner) = Some(head);
    }

    /// Bytes of the journal after the newest snapshot.
    pub fn backlog_bytes(&self) -> u64 {
        u64::try_from(self.bytes.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Bytes that were appended since the start.
    fn appended_bytes(&self) -> u64 {
        self.appended.load(Ordering::Relaxed)
    }

    fn set_head_signer(&self, cluster: Cluster, signer: Option<Arc<dyn HeadSigner>>) {
        if let Some(signer) = signer {
            // Set once, before the thread starts.
            let _ = self.head_signer.set((cluster, signer));
        }
    }

    /// The cluster and the keys that count for heads of its audit log; none without a seal key.
    pub fn head_signer(&self) -> Option<&(Cluster, Arc<dyn HeadSigner>)> {
        self.head_signer.get()
    }

    fn is_due(&self) -> bool {
        let batches = u64::try_from(self.batches.load(Ordering::Relaxed)).unwrap_or(0);
        self.backlog_bytes() > self.max_bytes.load(Ordering::Relaxed) || batches > self.max_batches
    }

    /// Wakes the thread once each time the limit is passed.
    fn notify_if_due(&self) {
        if self.is_due() && !self.notified.swap(true, Ordering::Relaxed) {
            // Fails if the thread has ended; then the journal has failed, and the next turn reports it.
            let _ = self.tasks.send(Task::SnapshotIfDue);
        }
    }

    /// A snapshot covers `bytes` and `batches` of the journal; the next one is due after `max_bytes`.
    fn covered(&self, bytes: u64, batches: u64, max_bytes: u64) {
        self.bytes.fetch_sub(signed(bytes), Ordering::Relaxed);
        self.batches.fetch_sub(signed(batches), Ordering::Relaxed);
        self.max_bytes.store(max_bytes, Ordering::Relaxed);
        self.metrics.set_backlog(self.backlog_bytes());
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
