//! Formats of results, `--watch`, completion of names and `leasehold doctor`, with real servers, terminals and shells.

#[allow(dead_code, reason = "the tests of clusters use all of it")]
#[path = "../cluster/harness.rs"]
mod cluster;
mod completion;
mod doctor;
mod doctor_servers;
mod output_formats;
mod pseudo_terminal;
#[path = "../support/mod.rs"]
mod support;
#[allow(dead_code, reason = "the tests of TLS use all of it")]
#[path = "../tls/harness.rs"]
mod tls;
mod watching;
