//! Access rules of a server: which identity has which role under which prefix, and its limits.
//!
//! An [`AccessFile`] is parsed and validated as a whole; [`AccessControl`] holds the rules in effect and replaces them as a whole. The
//! core decides with them; this module only finds the rights of an identity.

mod access_file;
mod control;
mod denials;
mod limits_text;
mod principal_limits;
mod stream_access;

pub use access_file::{AccessFile, PrincipalGrant};
pub use control::{AccessControl, AccessRules};
pub use denials::{DenialEntry, DenialLog, UnissuedNumber};
pub use principal_limits::PrincipalLimits;
pub use stream_access::StreamAccess;
