//! `leasehold ca revoke`: lists the certificates of a name as revoked, and removes the grants of its identity.

use leasehold::Error;
use serde_json::json;
use time::OffsetDateTime;

use super::{CaKeyArgs, DirectoryArgs, RELOAD};
use crate::file_set::FileSet;
use crate::global_args::GlobalArgs;
use crate::output::CommandResult;
use crate::pki::{ACCESS, CaDirectory, REVOKED, parse_credential_name};

/// Revoke the certificates of a name
///
/// Adds all certificates of the name that have not ended, renewed ones too, to crl.pem. Removes the grants of the identity
/// from access.toml, unless another valid certificate has the same identity.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold ca revoke worker --dir /etc/leasehold")]
pub struct Args {
    /// Name of the certificate, as `leasehold ca list` shows it
    #[arg(value_parser = parse_credential_name)]
    name: String,
    #[command(flatten)]
    directory: DirectoryArgs,
    #[command(flatten)]
    key: CaKeyArgs,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let directory = CaDirectory::open_locked(&args.directory.dir)?;
    let issued = directory.issued()?;
    let own = directory.issued_as(&args.name)?;
    let now = OffsetDateTime::now_utc();
    let mut list = directory.revoked()?;
    let added: Vec<_> =
        own.iter().filter(|one| one.not_after > now && !list.contains(&one.serial)).map(|one| &one.serial).collect();
    if added.is_empty() {
        let name = &args.name;
        let message = format!("no certificate of {name:?} is valid any more; nothing was changed");
        return Err(Error::config("name", message).into());
    }
    let authority = directory.authority(args.key.ca_key.as_deref())?;
    for serial in &added {
        list.add(serial, now);
    }
    let identity = own.last().map(crate::pki::IssuedCertificate::identity).unwrap_or_default();
    let is_shared = issued.iter().any(|other| {
        other.name != args.name
            && other.identity() == identity
            && other.not_after > now
            && !list.contains(&other.serial)
    });
    let access = directory.access()?;
    let removed = if is_shared { 0 } else { access.grants_of(&identity).count() };

    let mut files = FileSet::default();
    files.replace(directory.file(REVOKED), authority.sign_list(&list, now)?);
    if removed > 0 {
        files.replace(directory.file(ACCESS), access.without(&identity)?);
    }
    files.commit()?;

    let body = json!({ "name": args.name, "identity": identity, "serials": added, "removed_grants": removed });
    let text = || {
        let grants = match (removed, is_shared) {
            (_, true) => "its grants stay, because another valid certificate has this identity".to_owned(),
            (0, false) => "it had no grants".to_owned(),
            (1, false) => "removed 1 grant".to_owned(),
            (count, false) => format!("removed {count} grants"),
        };
        let certificates =
            if added.len() == 1 { "1 certificate".to_owned() } else { format!("{} certificates", added.len()) };
        format!("revoked {certificates} of {} ({identity}); {grants}", args.name)
    };
    Ok(global.output(&body, text).with_note(Some(RELOAD.to_owned())))
}
