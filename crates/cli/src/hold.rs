//! `leasehold renew`, `release` and `check`: what whoever has the token may do.

use std::io::Read;

use leasehold::duration::Lasting;
use leasehold::json::CurrentBody;
use leasehold::{Error, Held};
use leasehold_core::refusal::Refusal;
use leasehold_core::token::Token;

use crate::connection::Everywhere;
use crate::table::{block, lasting};
use crate::told::Outcome;

/// The token of a grant
#[derive(clap::Args)]
pub struct Shown {
    /// The token's text; `-` reads it from standard input
    #[arg(long, env = "LEASEHOLD_TOKEN", hide_env_values = true, value_name = "TOKEN", allow_hyphen_values = true)]
    token: String,
}

/// No token's text is longer.
const TOKEN_BYTES: u64 = 1_024;

impl Shown {
    /// The token, checked for its form.
    pub fn read(&self) -> Result<Token, Error> {
        if self.token != "-" {
            return parse(&self.token);
        }
        let mut text = String::new();
        let read = std::io::stdin().lock().take(TOKEN_BYTES).read_to_string(&mut text);
        read.map_err(|_| Error::from(&Refusal::Invalid { field: "token", reason: "not a text on standard input" }))?;
        parse(text.strip_suffix('\n').unwrap_or(&text))
    }
}

pub fn parse(text: &str) -> Result<Token, Error> {
    Token::parse(text).map_err(|error| Error::from(&Refusal::Token(error)))
}

/// Extend a lease
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold renew jobs/settle --token \"$LEASEHOLD_TOKEN\"")]
pub struct Renew {
    /// The resource
    name: String,
    #[command(flatten)]
    shown: Shown,
    /// A new ttl, if it should change
    #[arg(long, value_name = "DURATION")]
    ttl: Option<Lasting>,
    /// How far the work is; must rise
    #[arg(long, value_name = "N")]
    progress: Option<u64>,
}

pub fn renew(args: &Renew, ask: &Everywhere) -> Outcome {
    let held = Held::of(&args.name, args.shown.read()?);
    let ttl = args.ttl.map(Lasting::millis);
    let renewed = ask.ask(async |client| client.renew(&held, ttl, args.progress).await)?;
    let body = renewed.body(&args.name);
    Ok(ask.answer(&body, || current(&body)))
}

/// Give a lease back
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold release jobs/settle --token \"$LEASEHOLD_TOKEN\"")]
pub struct Release {
    /// The resource
    name: String,
    #[command(flatten)]
    shown: Shown,
}

pub fn release(args: &Release, ask: &Everywhere) -> Outcome {
    let held = Held::of(&args.name, args.shown.read()?);
    ask.ask(async |client| client.release(&held).await)?;
    Ok(ask.done(format!("released {}", args.name)))
}

/// Ask whether a lease is current
///
/// The answer is true of a moment inside of the call. Exit 0: it is current. Exit 3: it is not, and standard error says
/// why. It is no fence: only the check inside of the target stops a late write.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold check jobs/settle --token - < token.txt")]
pub struct Check {
    /// The resource
    name: String,
    #[command(flatten)]
    shown: Shown,
}

pub fn check(args: &Check, ask: &Everywhere) -> Outcome {
    let held = Held::of(&args.name, args.shown.read()?);
    let body = ask.ask(async |client| client.confirm(&held).await)?.body(&args.name);
    Ok(ask.answer(&body, || current(&body)))
}

fn current(body: &CurrentBody) -> String {
    let mut lines = vec![
        ("resource", body.resource.clone()),
        ("state", body.state.clone()),
        ("number", body.token_number.clone()),
        ("remaining", lasting(body.remaining_ms)),
    ];
    if let Some(token) = &body.token {
        lines.push(("token", token.clone()));
    }
    if let Some(ms) = body.drain_ms {
        lines.push(("drain", format!("give it up within {}", lasting(ms))));
    }
    if let Some(ms) = body.overlaps_ms {
        lines.push(("overlaps", format!("the predecessor drains for {}", lasting(ms))));
    }
    block(&lines)
}
