//! TLS, bearer tokens, unix sockets and reloads of certificates, tried with real programs: openssl, curl and the command line (A2, A3, A10, A16).

mod attribution;
mod bearer_streams;
mod bearer_tokens;
mod clients;
mod config;
mod connection_limits;
mod handshakes;
mod harness;
mod jwt_tokens;
mod open_streams;
mod python_grpc;
mod removal;
mod rotation;
#[path = "../support/mod.rs"]
mod support;
mod unix_socket;
mod who_gets_in;
