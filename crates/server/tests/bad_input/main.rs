//! Invalid requests over every transport of a running server.
//!
//! Each invalid request is refused with its code and field and a message that says what is allowed. It changes nothing, it is
//! counted once, and its connection serves the next request.

mod amounts;
mod bodies;
mod connections;
mod frames;
mod messages;
mod names;
mod ownership;
mod rates;
mod test_server;
mod transports;
mod waits;
