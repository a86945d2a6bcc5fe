//! `--token`: the fencing token that renew, release and check present.

use std::io::Read;

use leasehold::Error;
use leasehold_core::refusal::Refusal;
use leasehold_core::token::Token;

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
    pub fn read(&self) -> Result<Token, Error> {
        parse_token(&self.read_text()?)
    }

    /// Reads the text of the token, unchecked.
    pub fn read_text(&self) -> Result<String, Error> {
        if self.token != "-" {
            return Ok(self.token.clone());
        }
        let mut text = String::new();
        let read = std::io::stdin().lock().take(MAX_TOKEN_BYTES).read_to_string(&mut text);
        read.map_err(|_| {
            Error::from(&Refusal::Invalid { field: "token", reason: "standard input is not UTF-8 text" })
        })?;
        Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
    }
}

pub fn parse_token(text: &str) -> Result<Token, Error> {
    Token::parse(text).map_err(|error| Error::from(&Refusal::Token(error)))
}
