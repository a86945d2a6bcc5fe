//! What callers get wrong, row by row, over every door of a really started server.
//!
//! Each row is refused by its code and field, in words that say what is allowed; it changes nothing, it is counted once,
//! and the connection it came over answers the next row.

mod amounts;
mod bodies;
mod connections;
mod frames;
mod messages;
mod names;
mod ownership;
mod rates;
mod transports;
mod waits;
