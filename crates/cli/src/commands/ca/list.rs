//! `leasehold ca list`: the newest certificate of each name, with the grants of its identity.

use leasehold_core::access::AccessGrant;
use serde_json::json;
use time::OffsetDateTime;

use super::DirectoryArgs;
use crate::commands::grant_args::grant_json;
use crate::global_args::GlobalArgs;
use crate::output::CommandResult;
use crate::pki::{CaDirectory, CertificateUsage, IssuedCertificate, date_text};
use crate::table::TextTable;

/// List the issued certificates with identity, grants and end
///
/// Of each name the newest certificate is listed. The key of the CA is not needed.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold ca list --dir /etc/leasehold")]
pub struct Args {
    #[command(flatten)]
    directory: DirectoryArgs,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let directory = CaDirectory::open(&args.directory.dir)?;
    let (issued, access, revoked) = (directory.issued()?, directory.access()?, directory.revoked()?);
    let now = OffsetDateTime::now_utc();
    let newest =
        issued.iter().enumerate().filter(|(at, one)| issued.get(at + 1).is_none_or(|next| next.name != one.name));
    let rows: Vec<_> = newest
        .map(|(_, certificate)| {
            let state = match () {
                () if revoked.contains(&certificate.serial) => "revoked",
                () if certificate.not_after < now => "expired",
                () => "valid",
            };
            (certificate, access.grants_of(&certificate.identity()).cloned().collect::<Vec<_>>(), state)
        })
        .collect();
    let body = json!({
        "certificates": rows.iter().map(|(certificate, grants, state)| json!({
            "name": certificate.name,
            "identity": certificate.identity(),
            "usage": certificate.usage.word(),
            "hosts": certificate.names.hosts.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "grants": grants.iter().map(grant_json).collect::<Vec<_>>(),
            "serial": certificate.serial,
            "not_after": date_text(certificate.not_after),
            "state": state,
        })).collect::<Vec<_>>(),
    });
    Ok(global.output(&body, || {
        let mut table = TextTable::new(["NAME", "IDENTITY", "GRANTS", "END", "STATE"]);
        for (certificate, grants, state) in &rows {
            table.row([
                certificate.name.clone(),
                certificate.identity(),
                grants_text(certificate, grants),
                date_text(certificate.not_after),
                (*state).to_owned(),
            ]);
        }
        table.text()
    }))
}

fn grants_text(certificate: &IssuedCertificate, grants: &[AccessGrant]) -> String {
    if certificate.usage == CertificateUsage::Server {
        return "server".to_owned();
    }
    let texts = grants.iter().map(|grant| match &*grant.prefix {
        "" => grant.role.to_string(),
        prefix => format!("{}:{prefix}", grant.role),
    });
    let texts: Vec<_> = texts.collect();
    if texts.is_empty() { "-".to_owned() } else { texts.join(",") }
}
