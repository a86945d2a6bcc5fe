//! OpenAPI specification of health, metrics and this document.

use super::Document;
use super::operation::OperationSpec;

pub fn describe(document: &mut Document) {
    let server = |id: &str, summary: &str| OperationSpec::new("server", id, summary);
    let alive =
        server("isAlive", "Check that the process answers").responds_raw("200", "text/plain", "Alive", Some("alive\n"));
    document.get("/healthz", alive);
    let ready = server("isReady", "Check that a turn and the journal answer")
        .responds_raw("200", "text/plain", "Ready", Some("ready\n"))
        .responds_raw("503", "text/plain", "Not ready", Some("unavailable\n"));
    document.get("/readyz", ready);
    let metrics = server("getMetrics", "Get metrics for Prometheus")
        .responds_raw("200", "application/openmetrics-text", "Metrics", Some("leasehold_leases_held 1\n# EOF\n"))
        .responds_raw("503", "text/plain", "Not ready", None);
    document.get("/metrics", metrics);
    let document_spec = server("getOpenApi", "Get this document")
        .responds_raw("200", "application/json", "OpenAPI 3.1", None)
        .problems(&[]);
    document.get("/v1/openapi.json", document_spec);
}
