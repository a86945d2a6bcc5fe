//! The trace that the environment names.

use leasehold_core::trace_context::TraceContext;

/// Variable with the `traceparent` of the operation that started this process, as CI systems and tracing wrappers set it.
const VARIABLE: &str = "TRACEPARENT";

/// The operation of a distributed trace that started this process, from the variable `TRACEPARENT`; `None` without it, or if it is
/// invalid.
pub fn traceparent_from_env() -> Option<TraceContext> {
    TraceContext::parse(&std::env::var(VARIABLE).ok()?)
}
