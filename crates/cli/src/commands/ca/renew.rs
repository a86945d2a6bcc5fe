//! `leasehold ca renew`: a new certificate for the names and the key of an earlier one.

use std::path::PathBuf;

use leasehold::Error;
use serde_json::json;
use time::OffsetDateTime;

use super::{CaKeyArgs, DirectoryArgs, RELOAD, ValidityArgs};
use crate::file_set::{FileAccess, FileSet};
use crate::global_args::GlobalArgs;
use crate::output::CommandResult;
use crate::pki::{CaDirectory, CertificateUsage, date_text, parse_credential_name};

/// Renew a certificate
///
/// Identity, hosts and key stay the same, so the key of the CA is needed and the key of the certificate is not. NAME.pem is
/// replaced in one step. The earlier certificate stays valid until its end; to stop it, revoke the name.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  leasehold ca renew server\n  leasehold ca renew worker --days 30 --out ./worker")]
pub struct Args {
    /// Name of the certificate, as `leasehold ca list` shows it
    #[arg(value_parser = parse_credential_name)]
    name: String,
    #[command(flatten)]
    validity: ValidityArgs,
    #[command(flatten)]
    directory: DirectoryArgs,
    #[command(flatten)]
    key: CaKeyArgs,
    /// Existing directory for NAME.pem, if it was issued with --out [default: the directory of the CA]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let directory = CaDirectory::open_locked(&args.directory.dir)?;
    let issued = directory.issued_as(&args.name)?;
    let newest = issued.last().expect("a name has at least one certificate");
    if directory.revoked()?.contains(&newest.serial) {
        let name = &args.name;
        let message = format!("{name:?} was revoked; issue a certificate with another name");
        return Err(Error::config("name", message).into());
    }
    let authority = directory.authority(args.key.ca_key.as_deref())?;
    let renewed = authority.renew(newest, (OffsetDateTime::now_utc(), args.validity.days))?;

    let mut files = FileSet::default();
    files.create(directory.record(&renewed.serial), FileAccess::Public, renewed.certificate.clone())?;
    let file = args.out.as_deref().unwrap_or(&directory.path).join(format!("{}.pem", args.name));
    if file.exists() {
        files.replace(file.clone(), renewed.certificate);
    } else {
        files.create(file.clone(), FileAccess::Public, renewed.certificate)?;
    }
    files.commit()?;

    let (identity, end) = (newest.identity(), date_text(renewed.not_after));
    let body = json!({
        "name": args.name,
        "identity": identity,
        "serial": renewed.serial,
        "not_after": end,
        "file": file.display().to_string(),
    });
    let note = (newest.usage == CertificateUsage::Server).then(|| RELOAD.to_owned());
    let text = || format!("renewed {} ({identity}), until {end}\nwrote {}", args.name, file.display());
    Ok(global.output(&body, text).with_note(note))
}
