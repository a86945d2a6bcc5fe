//! The work of the snapshotter: replay the journal, write the audit log, save a snapshot, trim the journal.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::replay::{AuditedReplay, StateSnapshot};
use super::{SnapshotConfig, SnapshotError, SnapshotHandle, Task};
use crate::audit::{AuditHead, AuditWriter};
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
}

impl<S: SnapshotStore> Snapshotter<S> {
    /// A snapshotter without tasks.
    pub fn new(store: S, config: SnapshotConfig, backlog: Backlog, metrics: SnapshotMetrics) -> Self {
        let (handle, tasks) = SnapshotHandle::new(Arc::new(store.clone()), &config, backlog, metrics.clone());
        Self { store, config, handle, tasks, metrics, replay: None, writer: None }
    }

    /// The handle to it.
    pub fn handle(&self) -> &Arc<SnapshotHandle> {
        &self.handle
    }

    /// Runs tasks until it is stopped.
    pub(super) fn run(mut self) {
        // Of this thread only; where this is not allowed, the thread keeps the default priority.
        let _ = rustix::process::setpriority_process(None, NICE);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("the runtime of a thread can be built");
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
                Task::WriteAudit(to) if to.is_closed() => {}
                Task::WriteAudit(to) => {
                    let done = runtime.block_on(self.write_audit());
                    self.report_failure(&done);
                    let _ = to.send(done);
                }
            }
        }
    }

    /// The next task; a failed snapshot is retried after a pause.
    fn next_task(&mut self, retry_at: Option<Instant>) -> Option<Task> {
        if self.replay.as_ref().is_some_and(|replay| !replay.is_small(SMALL_BYTES)) {
            match self.tasks.recv_timeout(LARGE_STATE_TTL) {
                Ok(task) => return Some(task),
                Err(RecvTimeoutError::Timeout) => self.replay = None,
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        match retry_at {
            None => self.tasks.recv().ok(),
            Some(at) => match self.tasks.recv_timeout(at.saturating_duration_since(Instant::now())) {
                Ok(task) => Some(task),
                Err(RecvTimeoutError::Timeout) => Some(Task::SnapshotIfDue),
                Err(RecvTimeoutError::Disconnected) => None,
            },
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
            None => AuditWriter::open(&self.store, self.config.audit)?,
        };
        replay.catch_up(&self.store, &self.handle, &mut writer).await?;
        let head = writer.head();
        self.metrics.set_audit_entries(head.entries);
        self.writer = Some(writer);
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
