//! The work of the snapshotter: replay the journal, write the audit log, save a snapshot, trim the journal.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use leasehold_core::token::Cluster;

use super::head_log::HeadLog;
use super::replay::{AuditedReplay, StateSnapshot};
use super::{SnapshotConfig, SnapshotError, SnapshotHandle, Task};
use crate::audit::{AuditHead, AuditWriter, HeadSigner};
use crate::journal::{AppendOutcome, SnapshotStore};
use crate::metrics::SnapshotMetrics;
use crate::recovery::Backlog;

/// Niceness of the thread, so that turns have priority.
const NICE: i32 = 15;
/// Pause after a failure.
const RETRY_PAUSE: Duration = Duration::from_secs(10);
/// A state up to this size stays in memory between two snapshots.
const SMALL_BYTES: u64 = 8 << 20;
/// A larger state stays in memory this long after a query of the audit log, because queries come in series.
const LARGE_STATE_TTL: Duration = Duration::from_secs(5);

/// Time between two looks at whether a head is due.
const HEAD_LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Takes snapshots of one journal, trims it and writes its audit log.
pub struct Snapshotter<S> {
    store: S,
    config: SnapshotConfig,
    handle: Arc<SnapshotHandle>,
    tasks: Receiver<Task>,
    metrics: SnapshotMetrics,
    /// The state after the last task, if it is small.
    replay: Option<AuditedReplay>,
    writer: Option<AuditWriter>,
    heads: Option<HeadLog>,
    /// The end of the audit log when the newest snapshot was taken, as the recovery found it.
    saved_head: Option<AuditHead>,
}

impl<S: SnapshotStore> Snapshotter<S> {
    /// A snapshotter without tasks.
    pub fn new(store: S, config: SnapshotConfig, backlog: Backlog, metrics: SnapshotMetrics) -> Self {
        let (handle, tasks) = SnapshotHandle::new(Arc::new(store.clone()), &config, backlog, metrics.clone());
        Self { store, config, handle, tasks, metrics, replay: None, writer: None, heads: None, saved_head: None }
    }

    /// The end of the audit log that the newest snapshot contains. It is compared when the thread starts.
    pub fn with_saved_head(self, saved_head: Option<AuditHead>) -> Self {
        Self { saved_head, ..self }
    }

    /// Signs heads of the audit log of a cluster, and compares it with those that are stored.
    pub fn with_heads(self, cluster: Cluster, signer: Option<Arc<dyn HeadSigner>>) -> Self {
        self.handle.set_head_signer(cluster, signer.clone());
        Self { heads: signer.map(|signer| HeadLog::new(cluster, signer)), ..self }
    }

    /// The handle to it.
    pub fn handle(&self) -> &Arc<SnapshotHandle> {
        &self.handle
    }

    pub(super) fn config(&self) -> &SnapshotConfig {
        &self.config
    }

    /// Runs tasks until it is stopped.
    pub(super) fn run(mut self) {
        // Of this thread only; where this is not allowed, the thread keeps the default priority.
        let _ = rustix::process::setpriority_process(None, NICE);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("the runtime of a thread can be built");
        self.check_audit_end();
        let mut retry_at: Option<Instant> = None;
        while let Some(task) = self.next_task(retry_at) {
            if self.handle.is_stopping() {
                return;
            }
            match task {
                Task::Stop => return,
                // A turn may have notified while the snapshot failed.
                Task::SnapshotIfDue if retry_at.is_some_and(|at| at > Instant::now()) => {}
                Task::SnapshotIfDue => {
                    // Notifications from here on concern batches that this task does not see.
                    self.handle.notified.store(false, Ordering::Relaxed);
                    let done = if self.handle.is_due() { runtime.block_on(self.snapshot()).map(drop) } else { Ok(()) };
                    retry_at = self.report_failure(&done).then(|| Instant::now() + RETRY_PAUSE);
                    // After a failure turns do not notify: the thread retries by itself.
                    self.handle.notified.store(retry_at.is_some(), Ordering::Relaxed);
                    self.handle.notify_if_due();
                }
                // The caller may be cancelled before or during the task.
                Task::Snapshot(to, _) if to.is_closed() => {}
                Task::Snapshot(to, permit) => {
                    let done = runtime.block_on(self.snapshot());
                    self.report_failure(&done);
                    let _ = to.send(done.map(|snapshot| (snapshot, permit)));
                }
                Task::SignHead => {
                    let done = runtime.block_on(self.write_audit());
                    self.report_failure(&done);
                }
                Task::WriteAudit(to) if to.is_closed() => {}
                Task::WriteAudit(to) => {
                    let done = runtime.block_on(self.write_audit());
                    self.report_failure(&done);
                    let _ = to.send(done);
                }
            }
        }
    }

    /// The next task; a failed snapshot is retried after a pause, and a head is signed when it is due.
    fn next_task(&mut self, retry_at: Option<Instant>) -> Option<Task> {
        let is_large = self.replay.as_ref().is_some_and(|replay| !replay.is_small(SMALL_BYTES));
        let mut forget_at = is_large.then(|| Instant::now() + LARGE_STATE_TTL);
        loop {
            let look_at = self.heads.is_some().then(|| Instant::now() + HEAD_LOOK_INTERVAL);
            let received = match [forget_at, retry_at, look_at].into_iter().flatten().min() {
                None => self.tasks.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => self.tasks.recv_timeout(at.saturating_duration_since(Instant::now())),
            };
            match received {
                Ok(task) => return Some(task),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = Instant::now();
            if forget_at.is_some_and(|at| at <= now) {
                (forget_at, self.replay) = (None, None);
            }
            if retry_at.is_some_and(|at| at <= now) {
                return Some(Task::SnapshotIfDue);
            }
            if self.heads.as_ref().is_some_and(|heads| heads.is_due(now, self.handle.appended_bytes())) {
                return Some(Task::SignHead);
            }
        }
    }

    fn open_audit_log(&self) -> Result<AuditWriter, SnapshotError> {
        let writer = AuditWriter::open(&self.store, self.config.audit)?;
        Ok(writer.with_recent(self.handle.recent_entries().clone()))
    }

    /// Compares the end of the audit log with the newest known one, before anything is written to it, and reports what is missing.
    /// The entries are derived again if the journal has their batches; otherwise the next write records a gap.
    pub fn check_audit_end(&mut self) {
        let opened = self.open_audit_log();
        let loaded = opened.and_then(|writer| {
            let signed = self.heads.as_mut().map(|heads| heads.load(&self.store, self.config.warn)).transpose()?;
            Ok((writer, signed.flatten()))
        });
        let (writer, signed) = match loaded {
            Ok(loaded) => loaded,
            Err(error) => {
                self.report_failure::<()>(&Err(error));
                return;
            }
        };
        let last = writer.head().entries;
        self.writer = Some(writer);
        let known = [(self.saved_head, "the newest snapshot"), (signed, "a signed head")];
        let known = known.into_iter().filter_map(|(head, source)| Some((head?.entries, source)));
        if let Some((entries, source)) = known.max().filter(|(entries, _)| *entries > last) {
            self.metrics.audit_lost(entries - last);
            (self.config.warn)(&format!(
                "the audit log ends at entry {last}, but {source} names entry {entries}: entries {} to {entries} are missing; \
                 compare it with an export, and find out who changed the files",
                last + 1
            ));
        }
    }

    /// Saves the state as of now and trims the journal, which the audit log covers by then.
    pub async fn snapshot(&mut self) -> Result<Arc<StateSnapshot>, SnapshotError> {
        let started = Instant::now();
        let (mut replay, head) = self.catch_up().await?;
        let snapshot = Arc::new(replay.snapshot(head)?);
        let bytes = snapshot.bytes.len() as u64;
        let backlog = replay.backlog();
        if backlog.batches > 0 {
            let file = replay.snapshot_file(&snapshot, self.store.is_local().then_some(head));
            check_durable(self.store.save(snapshot.sequence, &file).await?)?;
            drop(file);
            self.handle.covered(backlog.bytes, backlog.batches, self.config.log_bytes.max(bytes));
            replay.saved(bytes);
            self.retain_if_small(replay);
            check_durable(self.store.trim(snapshot.sequence).await?)?;
            self.metrics.saved(bytes, started.elapsed());
        } else {
            self.retain_if_small(replay);
        }
        Ok(snapshot)
    }

    /// Writes the audit log up to what is durable now.
    pub async fn write_audit(&mut self) -> Result<AuditHead, SnapshotError> {
        let (replay, head) = self.catch_up().await?;
        self.replay = Some(replay);
        Ok(head)
    }

    /// Replays what is durable now. The state and the writer of the last task are reused; after a failure both are read again.
    async fn catch_up(&mut self) -> Result<(AuditedReplay, AuditHead), SnapshotError> {
        let mut replay = match self.replay.take() {
            Some(replay) => replay,
            None => AuditedReplay::load(&self.store).await?,
        };
        let mut writer = match self.writer.take() {
            Some(writer) => writer,
            None => self.open_audit_log()?,
        };
        let (started, appended) = (Instant::now(), self.handle.appended_bytes());
        let signed = self.heads.as_ref().and_then(HeadLog::unchecked);
        replay.catch_up(&self.store, &self.handle, &mut writer, signed).await?;
        let head = writer.head();
        self.metrics.set_audit_entries(head.entries);
        self.handle.set_audit_head(head);
        self.writer = Some(writer);
        if let Some(heads) = &mut self.heads {
            heads.caught_up(started, appended);
            if heads.sign_if_due(&self.store, head)? {
                self.metrics.head_signed();
            }
        }
        Ok((replay, head))
    }

    /// Keeps a small state in memory for the next task.
    fn retain_if_small(&mut self, replay: AuditedReplay) {
        self.replay = replay.is_small(SMALL_BYTES).then_some(replay);
    }

    /// Reports a failure. It does not stop the server: a journal that failed permanently stops the driver itself (V3).
    fn report_failure<T>(&self, done: &Result<T, SnapshotError>) -> bool {
        match done {
            Ok(_) | Err(SnapshotError::Stopping) => false,
            Err(error) => {
                self.metrics.failed();
                (self.config.warn)(&format!("snapshot failed: {error}"));
                true
            }
        }
    }
}

fn check_durable(outcome: AppendOutcome) -> Result<(), SnapshotError> {
    match outcome {
        AppendOutcome::Durable => Ok(()),
        AppendOutcome::Fenced => Err(SnapshotError::Fenced),
    }
}
