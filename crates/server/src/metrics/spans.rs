//! Metrics of the export of spans.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Why a span was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanDrop {
    /// The queue was full.
    QueueFull,
    /// The collector refused it.
    Refused,
    /// No collector took it in time.
    Unreachable,
}

impl SpanDrop {
    const ALL: [Self; 3] = [Self::QueueFull, Self::Refused, Self::Unreachable];

    const fn label(self) -> DropLabel {
        let reason = match self {
            Self::QueueFull => "queue_full",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
        };
        DropLabel { reason }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DropLabel {
    reason: &'static str,
}

/// Metrics of the export of spans. Clones share their values.
#[derive(Clone)]
pub struct SpanMetrics {
    exported: Counter,
    dropped: Family<DropLabel, Counter>,
    failures: Counter,
}

impl SpanMetrics {
    /// Registers the metrics.
    pub(super) fn new(registry: &mut Registry) -> Self {
        let metrics = Self { exported: Counter::default(), dropped: Family::default(), failures: Counter::default() };
        for reason in SpanDrop::ALL {
            metrics.dropped.get_or_create(&reason.label()).inc_by(0);
        }
        registry.register("spans_exported", "Spans that a collector took", metrics.exported.clone());
        registry.register("spans_dropped", "Spans that were not exported, by reason", metrics.dropped.clone());
        let about = "Attempts to export spans that failed";
        registry.register("span_export_failures", about, metrics.failures.clone());
        metrics
    }

    /// A collector took this many spans.
    pub fn exported(&self, spans: u64) {
        self.exported.inc_by(spans);
    }

    /// This many spans were dropped.
    pub fn dropped(&self, reason: SpanDrop, spans: u64) {
        self.dropped.get_or_create(&reason.label()).inc_by(spans);
    }

    /// An attempt failed.
    pub fn attempt_failed(&self) {
        self.failures.inc();
    }
}
