//! `--alone`: executes a command that needs two identities without the second one, for a reason that the server records.

use leasehold::Client;

use super::comment_arg::parse_comment;

/// The option `--alone` of commands that can need the approval of a second identity.
#[derive(clap::Args)]
pub struct AloneArg {
    /// In an emergency, execute this without the approval of a second identity, and say why; only if the access file lets this
    /// identity act alone. The server logs and records the reason
    #[arg(long, value_name = "WHY", value_parser = parse_comment)]
    alone: Option<String>,
}

impl AloneArg {
    /// A client that acts alone, if there is a reason.
    pub fn apply(&self, client: &Client) -> Client {
        self.alone.as_deref().map_or_else(|| client.clone(), |reason| client.acting_alone(reason))
    }
}
