//! `leasehold bearer create`: a new token, its digest in the bearer file, and the grants of its principal.

use std::path::PathBuf;

use leasehold::Error;
use leasehold::duration::HumanDuration;
use leasehold_server::bearer::{BearerEntry, NewToken, timestamp_text};
use leasehold_server::principal_name::check_principal;
use serde_json::json;

use super::BearerDirectoryArgs;
use super::bearer_directory::{BearerDirectory, now};
use crate::commands::access_grant_args::{GrantArgs, grant_json};
use crate::file_set::{FileAccess, FileSet};
use crate::global_args::GlobalArgs;
use crate::output::CommandResult;
use crate::pki::parse_credential_name;

/// Longest life of a token, in seconds: that of a CA of `leasehold init`.
const MAX_SECONDS: u64 = crate::pki::MAX_DAYS as u64 * 86_400;

/// Create a bearer token, with the grants of its principal
///
/// Prints the token once, or writes it to a new file that only you can read (--out). Adds its digest to bearers.toml and the
/// grants to access.toml. --role and --prefix can be repeated; the first role belongs to the first prefix, and so on.
///
/// A principal can have several tokens. To replace one without an interruption, create another one of the same name, use it
/// everywhere, and revoke the old one by its id.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  leasehold bearer create ci --role holder --prefix builds --out ci.token\n  \
                        leasehold bearer create ci --expires 30d > ci.token")]
pub struct Args {
    /// Name of the token; its principal is bearer:NAME unless --principal is given
    #[arg(value_parser = parse_credential_name)]
    name: String,
    #[command(flatten)]
    grants: GrantArgs,
    /// Principal that the token proves, for example the SPIFFE id of the same person's certificate [default: bearer:NAME]
    #[arg(long, value_name = "PRINCIPAL", value_parser = parse_principal)]
    principal: Option<String>,
    /// Time until the token ends
    #[arg(long, value_name = "DURATION", default_value = "90d", value_parser = parse_lifetime)]
    expires: HumanDuration,
    #[command(flatten)]
    directory: BearerDirectoryArgs,
    /// Write the token to this new file with mode 0600 instead of printing it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let mut directory = BearerDirectory::open(&args.directory.dir)?;
    let principal = args.principal.clone().unwrap_or_else(|| format!("bearer:{}", args.name));
    let access = directory.access()?;
    let added = access.missing_grants(&principal, &args.grants.roles, &args.grants.prefixes)?;
    let (created, token) = (now(), NewToken::generate());
    if directory.file.entries.iter().any(|entry| entry.id == token.id) {
        return Err(Error::config("name", "the random id is taken already; run the command again").into());
    }
    let expires = created + args.expires.millis() / 1_000;
    directory.file.entries.push(BearerEntry {
        id: token.id.clone(),
        principal: principal.clone(),
        digest: token.digest,
        created,
        expires,
        revoked: None,
    });
    let mut files = FileSet::default();
    directory.write(&mut files)?;
    if let Some(out) = &args.out {
        files.create(out.clone(), FileAccess::Private, format!("{}\n", token.text))?;
    }
    let end = timestamp_text(expires);
    if !added.is_empty() {
        let comment = format!("{}, bearer token {}", args.name, token.id);
        files.replace(directory.access_path(), access.with_grants(&comment, &added)?);
    }
    let written = files.commit()?;

    let shown = args.out.is_none().then_some(token.text.as_str());
    let grants: Vec<_> = added.iter().map(|added| grant_json(&added.grant)).collect();
    let body = json!({
        "id": token.id,
        "principal": principal,
        "expires": end,
        "grants": grants,
        "files": written.iter().map(|path| path.display().to_string()).collect::<Vec<_>>(),
        "token": shown,
    });
    let mut lines = vec![format!("created the bearer token {} of {principal}, until {end}", token.id)];
    lines.extend(added.iter().map(|added| format!("granted {} under {:?}", added.grant.role, added.grant.prefix)));
    lines.extend(written.iter().map(|path| format!("wrote {}", path.display())));
    lines.push(format!(
        "a server with bearers = {:?} accepts it within 60 seconds, or at once after SIGHUP",
        directory.bearer_path()
    ));
    let lines = lines.join("\n");
    // Only the token itself on standard output, so that it can be redirected to a file.
    Ok(match shown {
        Some(token) if !global.format().is_document() => {
            global.output(&body, || token.to_owned()).with_note(Some(lines))
        }
        _ => global.output(&body, || lines),
    })
}

fn parse_principal(text: &str) -> Result<String, String> {
    check_principal(text)?;
    if text == "anonymous" {
        return Err("a token proves an identity, and anonymous is none; write for example bearer:ci".to_owned());
    }
    Ok(text.to_owned())
}

fn parse_lifetime(text: &str) -> Result<HumanDuration, String> {
    let lifetime: HumanDuration = text.parse().map_err(|error| format!("{error}"))?;
    match lifetime.millis() / 1_000 {
        1..=MAX_SECONDS => Ok(lifetime),
        _ => Err(format!("{lifetime} is not in the range from 1s to {}d; for example 90d", MAX_SECONDS / 86_400)),
    }
}
