//! Results as JSON files, and the page with the matrix of clients and scenarios.

mod client_results;
mod matrix;

pub use client_results::{ClientResults, ServerBuild, save_red};
pub use matrix::update_page;
