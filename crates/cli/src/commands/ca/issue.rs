//! `leasehold ca issue`: a certificate with its key, the grants of its identity, and a profile.

use std::path::{Path, PathBuf};

use leasehold::Error;
use leasehold_core::access::{Action, Permission, Role};
use leasehold_server::access::PrincipalGrant;
use serde_json::json;
use time::OffsetDateTime;

use super::{CaKeyArgs, DirectoryArgs, RELOAD, ValidityArgs};
use crate::commands::access_grant_args::{GrantArgs, grant_json};
use crate::file_set::{FileAccess, FileSet};
use crate::global_args::GlobalArgs;
use crate::input_file;
use crate::output::{CommandError, CommandResult};
use crate::pki::{
    ACCESS, CA_CERTIFICATE, CaDirectory, CertificateAuthority, CertificateUsage, IssuedCertificate, ServerName,
    SpiffeId, SubjectNames, date_text, parse_credential_name, parse_server_name,
};
use crate::profile::{self, PROFILE_FILE, Profile};

/// Issue a certificate, with the grants of its identity
///
/// For a client: writes NAME.pem and NAME.key, adds the grants to access.toml, and creates the profile NAME for --as. --role
/// and --prefix can be repeated; the first role belongs to the first prefix, and so on. An identity that already has grants
/// needs no further ones.
///
/// For a further server of the cluster: --server with the --name of each host.
///
/// Existing files are never replaced. If a step fails, nothing is left behind.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  leasehold ca issue worker --role holder --prefix jobs\n  \
                        leasehold ca issue dashboard --role observer --prefix \"\" --out ./dashboard\n  \
                        leasehold ca issue lease-2 --server --name lease-2.example.com")]
pub struct Args {
    /// Name of the certificate: of its files, of its profile, and of its identity unless --id is given
    #[arg(value_parser = parse_credential_name)]
    name: String,
    #[command(flatten)]
    grants: GrantArgs,
    /// Identity in the certificate [default: spiffe://TRUST-DOMAIN/NAME]
    #[arg(long, value_name = "SPIFFE-ID")]
    id: Option<SpiffeId>,
    /// Issue the certificate of a server
    #[arg(long, requires = "hosts", conflicts_with_all = ["roles", "prefixes", "id"])]
    server: bool,
    /// DNS name or IP address of the server, besides localhost; repeatable
    #[arg(long = "name", id = "hosts", value_name = "HOST", requires = "server", value_parser = parse_server_name)]
    hosts: Vec<ServerName>,
    #[command(flatten)]
    validity: ValidityArgs,
    #[command(flatten)]
    directory: DirectoryArgs,
    #[command(flatten)]
    key: CaKeyArgs,
    /// Write certificate, key, ca.pem and profile.toml to this new directory, which can be copied to another machine, instead
    /// of creating a profile here
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Names of which the files exist already: the CA and its revocation list.
const RESERVED: [&str; 2] = ["ca", "crl"];

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let directory = CaDirectory::open_locked(&args.directory.dir)?;
    let authority = directory.authority(args.key.ca_key.as_deref())?;
    let issued = directory.issued()?;
    if RESERVED.contains(&args.name.as_str()) {
        let message = format!("{:?} is the name of a file of the CA; choose another name", args.name);
        return Err(Error::config("name", message).into());
    }
    if issued.iter().any(|issued| issued.name == args.name) {
        let name = &args.name;
        let message =
            format!("{name:?} was already issued; renew it with leasehold ca renew {name}, or choose another name");
        return Err(Error::config("name", message).into());
    }
    let now = OffsetDateTime::now_utc();
    let (names, usage) = subject(args, &authority, &issued)?;
    let credential = authority.issue(&args.name, &names, usage, (now, args.validity.days))?;
    let identity = names.id.as_ref().map(ToString::to_string).unwrap_or_default();

    let mut files = FileSet::default();
    let target = args.out.as_deref().unwrap_or(&directory.path);
    files.directory(target, 0o700);
    files.create(directory.record(&credential.serial), FileAccess::Public, credential.certificate.clone())?;
    files.create(target.join(format!("{}.pem", args.name)), FileAccess::Public, credential.certificate)?;
    files.create(target.join(format!("{}.key", args.name)), FileAccess::Private, credential.key)?;
    if args.out.is_some() {
        let ca = input_file::read(&directory.file(CA_CERTIFICATE))?;
        files.create(target.join(CA_CERTIFICATE), FileAccess::Public, ca)?;
    }
    let mut added = Vec::new();
    let mut profile = None;
    if usage == CertificateUsage::Client {
        added = directory.access()?.missing_grants(&identity, &args.grants.roles, &args.grants.prefixes)?;
        profile = Some(add_profile(args, &directory, target, &mut files)?);
    }
    if !added.is_empty() {
        let comment = format!("{}, issued {}", args.name, date_text(now));
        files.replace(directory.file(ACCESS), directory.access()?.with_grants(&comment, &added)?);
    }
    let written = files.commit()?;

    let files: Vec<_> = written.iter().map(|path| path.display().to_string()).collect();
    let end = date_text(credential.not_after);
    let body = json!({
        "name": args.name,
        "identity": identity,
        "usage": usage.word(),
        "hosts": names.hosts.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "serial": credential.serial,
        "not_after": end,
        "grants": added.iter().map(|added| grant_json(&added.grant)).collect::<Vec<_>>(),
        "files": files,
        "profile": profile.as_ref().map(|path| path.display().to_string()),
    });
    let note = (!added.is_empty()).then(|| RELOAD.to_owned());
    Ok(global
        .output(&body, || {
            let mut lines = vec![format!("issued {} as {identity}, until {end}", args.name)];
            if usage == CertificateUsage::Server {
                lines.push(format!("hosts: {}", names.host_text()));
            }
            lines.extend(
                added
                    .iter()
                    .map(|PrincipalGrant { grant, .. }| format!("granted {} under {:?}", grant.role, grant.prefix)),
            );
            lines.extend(files.iter().map(|file| format!("wrote {file}")));
            match (&args.out, &profile) {
                (None, Some(_)) => {
                    lines.push(format!("Next:\n  leasehold --as {} {}", args.name, first_command(&args.grants.roles)))
                }
                (Some(out), Some(_)) => lines.push(format!(
                    "Next: copy {} to ~/.config/leasehold/{} of the other machine, for leasehold --as {}",
                    out.display(),
                    args.name,
                    args.name
                )),
                _ => {}
            }
            lines.join("\n")
        })
        .with_note(note))
}

/// A command that a new identity may run. Without a role in the arguments, its grants are not known here.
fn first_command(roles: &[String]) -> &'static str {
    let may = |action: Action| {
        let roles = roles.iter().filter_map(|role| Role::parse(role));
        roles.into_iter().any(|role| action.permission(role) != Permission::No)
    };
    let commands = [(Action::List, "ls"), (Action::Proposals, "proposals")];
    commands.into_iter().find(|(action, _)| may(*action)).map_or("status", |(_, command)| command)
}

fn subject(
    args: &Args,
    authority: &CertificateAuthority,
    issued: &[IssuedCertificate],
) -> Result<(SubjectNames, CertificateUsage), Error> {
    let domain = &authority.trust_domain;
    if args.server {
        // Servers of one cluster have one identity.
        let mut servers = issued.iter().rev().filter(|issued| issued.usage == CertificateUsage::Server);
        let Some(id) = servers.find_map(|server| server.names.id.clone()) else {
            let message = "server: no certificate of a server was issued here; name the directory of leasehold init";
            return Err(Error::config("server", message));
        };
        return Ok((SubjectNames::server(id, &args.hosts), CertificateUsage::Server));
    }
    let id = args.id.clone().unwrap_or_else(|| domain.client(&args.name));
    if id.domain != *domain {
        let message = format!("id: {id} is not in the trust domain of the CA; write spiffe://{domain}/PATH");
        return Err(Error::config("id", message));
    }
    if id.is_server() {
        let message = format!("id: {id} is reserved for servers; choose a path that does not start with leasehold");
        return Err(Error::config("id", message));
    }
    Ok((SubjectNames::client(id), CertificateUsage::Client))
}

/// Adds a profile: with absolute paths below the home directory, or with relative ones in `--out`.
fn add_profile(
    args: &Args,
    directory: &CaDirectory,
    target: &Path,
    files: &mut FileSet,
) -> Result<PathBuf, CommandError> {
    let address = directory.server_address()?;
    let (folder, paths) = match &args.out {
        Some(_) => (target.to_owned(), None),
        None => (profile::add_directory(files, &args.name)?, Some(directory.path.as_path())),
    };
    let file = folder.join(PROFILE_FILE);
    files.create(file.clone(), FileAccess::Public, Profile::text(&args.name, &address, &args.name, paths))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_command_is_one_that_the_role_may_run() {
        let of = |roles: &[&str]| first_command(&roles.iter().map(ToString::to_string).collect::<Vec<_>>());
        for role in ["holder", "observer", "operator", "admin"] {
            assert_eq!(of(&[role]), "ls", "{role}");
        }
        assert_eq!(of(&["approver"]), "proposals");
        assert_eq!(of(&["approver", "holder"]), "ls");
        assert_eq!((of(&["reporter"]), of(&[])), ("status", "status"));
    }
}
