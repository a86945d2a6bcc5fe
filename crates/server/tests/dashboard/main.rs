//! The dashboard over HTTP against running servers: the content of each view, escaping, rights, headers, and actions.

#[path = "../access/access_server.rs"]
#[allow(dead_code, reason = "each test program uses its own part")]
mod access_server;
mod actions;
mod escaping;
mod handovers;
#[path = "../http_client/mod.rs"]
mod http_client;
mod log_collector;
mod origins;
mod rights;
mod scene;
#[path = "../bad_input/transport_clients.rs"]
#[allow(dead_code, reason = "each test program uses its own part")]
mod transport_clients;
mod updates;
mod views;
