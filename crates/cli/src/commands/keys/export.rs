//! `leasehold keys export`: the public keys for fences.

use std::path::PathBuf;

use leasehold::json::SealKeySetBody;

use super::load;
use crate::global_args::GlobalArgs;
use crate::output::{CommandResult, document};
use crate::output_format::OutputFormat;

/// Print the public keys that verify sealed tokens
///
/// The output is the key file of a fence, in JSON. It holds no secret. Without --keys a server is asked.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  leasehold keys export > keys.json\n  \
                        leasehold keys export --keys /etc/leasehold/keys > keys.json")]
pub struct Args {
    /// Key directory of a server, instead of asking one
    #[arg(long, value_name = "DIR")]
    keys: Option<PathBuf>,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let text = match &args.keys {
        Some(directory) => load(directory)?.public().to_json(),
        None => set_text(&global.call(async |client| client.seal_keys().await)?),
    };
    if global.format() == OutputFormat::Yaml {
        let keys: serde_json::Value = serde_json::from_str(&text).expect("the keys are JSON");
        return Ok(document(OutputFormat::Yaml, &keys).into());
    }
    Ok(text.trim_end().to_owned().into())
}

fn set_text(set: &SealKeySetBody) -> String {
    serde_json::to_string_pretty(set).expect("texts and numbers are JSON")
}
