//! Access control against running servers: the permission matrix over every transport, hidden names, reloads and owners.

mod access_server;
mod approvals;
mod endpoints;
mod every_action;
mod hidden_names;
#[path = "../http_client/mod.rs"]
mod http_client;
mod limits;
mod matrix;
mod open_services;
mod ownership;
mod reload;
mod rollback_evidence;
mod same_identity;
mod stamps;
#[path = "../bad_input/transport_clients.rs"]
#[allow(dead_code, reason = "each suite uses its own part")]
mod transport_clients;
