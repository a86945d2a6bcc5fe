//! The queue of ended holds, and the task that exports them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use leasehold_core::grantor::EndedHold;
use prost::Message;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::http_post::{ExportReceipt, PostError, post};
use super::{CollectorSettings, SpanSource};
use crate::metrics::{SpanDrop, SpanMetrics};
use crate::random;

/// Holds in the queue, beyond which spans are dropped.
const MAX_QUEUED: usize = 1 << 13;
/// Spans of one request, the default of OpenTelemetry's batch processor.
const MAX_BATCH: usize = 512;
/// Time that an ended hold waits for others, so that they share a request.
const BATCH_INTERVAL: Duration = Duration::from_secs(1);
/// The first pause after a failed attempt. It doubles up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// Longest pause that a collector can ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(120);
/// Time after which a batch that no collector takes is dropped.
const MAX_RETRY_TIME: Duration = Duration::from_secs(300);
/// Time at the end for spans that are still queued.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The sending half: the driver adds holds after their ends are durable.
pub struct SpanQueue {
    sender: mpsc::Sender<EndedHold>,
    metrics: SpanMetrics,
}

impl SpanQueue {
    /// Adds the holds whose trace is sampled, or that belong to none, as far as there is room. Never waits.
    pub fn offer(&self, holds: &mut Vec<EndedHold>) {
        for hold in holds.drain(..) {
            if hold.trace.is_none_or(|trace| trace.is_sampled()) && self.sender.try_send(hold).is_err() {
                self.metrics.dropped(SpanDrop::QueueFull, 1);
            }
        }
    }
}

/// The task that exports spans.
#[derive(Debug)]
pub struct SpanExporter {
    task: JoinHandle<()>,
    closing: watch::Sender<bool>,
}

/// Starts to export.
pub fn start(settings: Arc<CollectorSettings>, source: SpanSource, metrics: SpanMetrics) -> (SpanQueue, SpanExporter) {
    let (sender, holds) = mpsc::channel(MAX_QUEUED);
    let (closing, is_closing) = watch::channel(false);
    let queue = SpanQueue { sender, metrics: metrics.clone() };
    let worker = ExportWorker { settings, source, metrics, is_closing, is_failing: false };
    (queue, SpanExporter { task: tokio::spawn(worker.run(holds)), closing })
}

impl SpanExporter {
    /// Exports what is queued, for a short time. The queue must have no sender any more.
    pub async fn close(mut self) {
        let _ = self.closing.send(true);
        if tokio::time::timeout(CLOSE_TIMEOUT, &mut self.task).await.is_err() {
            tracing::warn!("spans were not exported: the collector did not take them in time");
            self.task.abort();
        }
    }
}

struct ExportWorker {
    settings: Arc<CollectorSettings>,
    source: SpanSource,
    metrics: SpanMetrics,
    is_closing: watch::Receiver<bool>,
    /// Whether the last attempt failed, so that the log has one line for a long outage.
    is_failing: bool,
}

impl ExportWorker {
    /// Whether the exporter is closed, or was dropped.
    fn is_closing(&self) -> bool {
        *self.is_closing.borrow() || self.is_closing.has_changed().is_err()
    }

    async fn run(mut self, mut holds: mpsc::Receiver<EndedHold>) {
        let mut batch = Vec::with_capacity(MAX_BATCH);
        while holds.recv_many(&mut batch, MAX_BATCH).await > 0 {
            self.fill(&mut batch, &mut holds).await;
            self.export(&batch).await;
            batch.clear();
        }
    }

    /// Waits for more holds, up to a full batch.
    async fn fill(&mut self, batch: &mut Vec<EndedHold>, holds: &mut mpsc::Receiver<EndedHold>) {
        let until = tokio::time::Instant::now() + BATCH_INTERVAL;
        while batch.len() < MAX_BATCH && !self.is_closing() {
            let left = MAX_BATCH - batch.len();
            tokio::select! {
                more = holds.recv_many(batch, left) => if more == 0 { return },
                () = tokio::time::sleep_until(until) => return,
                _ = self.is_closing.changed() => return,
            }
        }
    }

    /// Sends a batch until a collector takes it, or never will.
    async fn export(&mut self, batch: &[EndedHold]) {
        let spans = batch.len() as u64;
        let body = Bytes::from(self.source.request(&self.settings, batch).encode_to_vec());
        let (started, mut pause) = (Instant::now(), FIRST_PAUSE);
        loop {
            let after = match post(&self.settings, body.clone()).await {
                Ok(accepted) => return self.accepted(spans, &accepted),
                Err(PostError::Permanent { reason }) => {
                    self.metrics.attempt_failed();
                    tracing::warn!(collector = %self.settings.url(), spans, reason, "spans refused by the collector");
                    return self.metrics.dropped(SpanDrop::Refused, spans);
                }
                Err(PostError::Retryable { after, reason }) => {
                    self.failed(&reason);
                    after
                }
            };
            if self.is_closing() || started.elapsed() > MAX_RETRY_TIME {
                return self.metrics.dropped(SpanDrop::Unreachable, spans);
            }
            let wait = after.map_or_else(|| jittered(pause), |after| after.min(MAX_RETRY_AFTER));
            pause = (pause * 2).min(MAX_PAUSE);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                // Then one last attempt, without a pause.
                _ = self.is_closing.changed() => {}
            }
        }
    }

    fn accepted(&mut self, spans: u64, accepted: &ExportReceipt) {
        let rejected = accepted.rejected.min(spans);
        self.metrics.exported(spans - rejected);
        if rejected > 0 {
            self.metrics.dropped(SpanDrop::Refused, rejected);
        }
        if !accepted.message.is_empty() {
            tracing::warn!(
                collector = %self.settings.url(), rejected, message = accepted.message, "spans partly refused by the collector"
            );
        }
        if std::mem::take(&mut self.is_failing) {
            tracing::info!(collector = %self.settings.url(), "spans are exported again");
        }
    }

    fn failed(&mut self, reason: &str) {
        self.metrics.attempt_failed();
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::warn!(
                collector = %self.settings.url(), reason, "spans cannot be exported; they are queued as far as there is room"
            );
        }
    }
}

/// Between half of a pause and the whole of it, so that servers that fail together do not try again together.
fn jittered(pause: Duration) -> Duration {
    let [byte] = random::bytes::<1>();
    pause / 2 + pause.mul_f64(f64::from(byte) / 510.0)
}
