//! `--role` and `--prefix`: the grants of a new identity, and how they are printed.

use leasehold_core::access::AccessGrant;
use serde_json::{Value, json};

/// Grants of the identity: the first role belongs to the first prefix, and so on
#[derive(clap::Args)]
pub struct GrantArgs {
    /// Role under the prefix of the same place: holder, observer, operator, reporter, approver or admin
    #[arg(long = "role", value_name = "ROLE")]
    pub roles: Vec<String>,
    /// Prefix of resource names, in whole segments; "" for all names
    #[arg(long = "prefix", value_name = "PREFIX")]
    pub prefixes: Vec<String>,
}

/// A grant in JSON output.
pub fn grant_json(grant: &AccessGrant) -> Value {
    json!({ "role": grant.role.word(), "prefix": grant.prefix })
}
