//! `--token`: the fencing token that renew, release and check present.

use std::io::Read;

use leasehold::{Error, FencingToken};
use leasehold_core::refusal::Refusal;

/// The option `--token`.
#[derive(clap::Args)]
pub struct TokenArg {
    /// Token of the grant; `-` reads it from standard input
    #[arg(long, env = "LEASEHOLD_TOKEN", hide_env_values = true, value_name = "TOKEN", allow_hyphen_values = true)]
    token: String,
}

/// Limit for standard input. Every token is shorter.
const MAX_TOKEN_BYTES: u64 = 1_024;

impl TokenArg {
    /// Reads and parses the token. Only its form is checked, not whether it is stale.
    pub fn read(&self) -> Result<FencingToken, Error> {
        if self.token != "-" {
            return parse_token(&self.token);
        }
        let mut text = String::new();
        let read = std::io::stdin().lock().take(MAX_TOKEN_BYTES).read_to_string(&mut text);
        read.map_err(|_| {
            Error::from(&Refusal::Invalid { field: "token", reason: "standard input is not UTF-8 text" })
        })?;
        parse_token(text.strip_suffix('\n').unwrap_or(&text))
    }
}

pub fn parse_token(text: &str) -> Result<FencingToken, Error> {
    FencingToken::parse(text).map_err(|error| Error::from(&Refusal::Token(error)))
}
