//! What machines look at.

use super::Document;
use super::describe::Describe;

pub fn describe(document: &mut Document) {
    let server = |id: &str, summary: &str| Describe::new("server", id, summary);
    let alive = server("isAlive", "Whether the process answers").gives("200", "text/plain", "It does", Some("alive\n"));
    document.get("/healthz", alive);
    let ready = server("isReady", "Whether a turn answers, and so the journal")
        .gives("200", "text/plain", "It does", Some("ready\n"))
        .gives("503", "text/plain", "None did for two seconds", Some("no turn has answered for two seconds\n"));
    document.get("/readyz", ready);
    let metrics = server("getMetrics", "Figures for Prometheus")
        .gives("200", "application/openmetrics-text", "Figures", Some("leasehold_held 1\n# EOF\n"))
        .gives("503", "text/plain", "No turn answers", None);
    document.get("/metrics", metrics);
    let described =
        server("getOpenApi", "This description").gives("200", "application/json", "OpenAPI 3.1", None).refuses(&[]);
    document.get("/v1/openapi.json", described);
}
