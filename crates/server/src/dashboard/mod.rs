//! The pages of the dashboard as HTML, made from the answers of queries. Nothing here reads the state or decides who may see what:
//! [`crate::api`] does, with the queries and checks of every other client.
//!
//! Pages work without JavaScript. With it, `htmx` replaces the part of a page that changes, and `dashboard.js` adds keys. No page
//! loads anything from another origin, and none contains an inline script or style.

pub mod action_effects;
pub mod actions;
pub mod assets;
pub mod audit;
pub mod audit_entry_table;
pub mod chart;
pub mod cluster;
pub mod coverage;
pub mod handovers;
pub mod hold_reason;
pub mod leases;
pub mod overview;
pub mod page;
pub mod renewal_ages;
pub mod resource;
pub mod sample_ring;
pub mod text;
pub mod timeline;
pub mod trace_file;
pub mod waits;

pub use assets::{Asset, CONTENT_SECURITY_POLICY, asset};
pub use page::{Page, REFERRER_POLICY, View};
pub use renewal_ages::RenewalAges;
pub use sample_ring::{SampleRing, ServerSample};
