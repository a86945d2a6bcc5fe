//! Export of one span for each hold to an OpenTelemetry collector, over OTLP (HTTP with Protocol Buffers).
//!
//! A turn only adds the holds that ended to a bounded queue, after their ends are durable. A task of its own exports them in batches.
//! A full queue drops spans, and a metric counts them: no turn and no shutdown waits for a collector. The operator alone names the
//! collector (A17).

mod endpoint;
mod exporter;
mod http_post;
mod pb;
mod settings;
mod span;

pub use endpoint::{CollectorUrl, CollectorUrlError};
pub use exporter::{SpanExporter, SpanQueue, start};
pub use settings::{CollectorSettings, CollectorSettingsError, parse_header_file, parse_pairs};
pub use span::SpanSource;
