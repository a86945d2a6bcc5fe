//! Invalid requests over every transport of a running server.
//!
//! Each invalid request is refused with its code and field and a message that says what is allowed. It changes nothing, it is
//! counted once, and its connection serves the next request.

mod amounts;
mod connections;
mod deadlocks_and_expiries;
mod frames;
mod http2_connection;
mod http2_floods;
mod http_requests;
mod names;
mod ownership;
mod rates;
mod session_streams;
mod test_server;
mod transport_clients;
