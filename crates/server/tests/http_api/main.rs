//! The HTTP API as a plain client uses it: sessions with their leases and events, and everything that a lease can guard.

#[path = "../bad_input/transport_clients.rs"]
#[allow(dead_code, reason = "each test program uses its own part")]
mod transport_clients;

mod api_client;
mod client_idempotency_keys;
mod event_stream_reader;
mod leases;
mod listings;
mod payloads;
mod queues;
mod sessions;
