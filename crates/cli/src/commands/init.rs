//! `leasehold init`: creates everything that a server needs to listen beyond its own machine.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use leasehold::Error;
use leasehold_core::access::{AccessGrant, Role};
use leasehold_seal::{SealKey, wall_ms};
use leasehold_server::access::PrincipalGrant;
use leasehold_server::keys::{CLUSTER_KEY, new_cluster_key};
use leasehold_server::sealing::key_file_name;
use serde_json::json;
use time::OffsetDateTime;

use crate::file_set::{FileAccess, FileSet};
use crate::global_args::GlobalArgs;
use crate::output::{CommandError, CommandResult};
use crate::pki::{
    ACCESS, CA_CERTIFICATE, CA_KEY, CONFIG, CertificateAuthority, CertificateUsage, Credential, ISSUED, MAX_DAYS,
    REVOKED, RevokedCertificates, ServerName, SubjectNames, TrustDomain, absolute_path, date_text, grant_text,
    parse_credential_name, parse_server_name,
};
use crate::profile::{self, PROFILE_FILE, Profile};
use crate::serve::parse_listen;
use crate::shell_text::quote;

/// Name of the server's certificate.
const SERVER: &str = "server";
/// Name of the administrator's certificate, and last segment of its identity.
const ADMIN: &str = "admin";
/// Name of the key directory.
const KEYS: &str = "keys";
const DEFAULT_PORT: u16 = 7421;

/// Create a CA, certificates, an access file and a configuration for a server with TLS
///
/// Writes to the directory: ca.pem and ca.key (the CA, for 10 years), server.pem and server.key, admin.pem and admin.key (a
/// client that may do everything), crl.pem (revoked certificates), access.toml (who may do what), keys/ (the secret key of the
/// cluster, and the key that signs tokens), leasehold.toml (the configuration of `leasehold serve`) and issued/ (a copy of each
/// certificate). Also creates the profile `admin` for --as.
///
/// Existing files are never replaced. If a step fails, nothing is left behind. Move ca.key to a safe place afterwards: it is
/// needed only to issue, renew and revoke certificates.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  leasehold init\n  leasehold init /etc/leasehold --name leases.example.com --name 192.0.2.10"
)]
pub struct Args {
    /// Directory for the files; created if its parent exists
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// DNS name or IP address under which clients reach the server, besides localhost; repeatable. The server then listens on
    /// all interfaces
    #[arg(long = "name", value_name = "HOST", value_parser = parse_server_name)]
    names: Vec<ServerName>,
    /// IP address and port to listen on [default: 127.0.0.1:7421, or 0.0.0.0:7421 with --name]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_listen)]
    listen: Option<SocketAddr>,
    /// Trust domain of all identities: the part of spiffe://TRUST-DOMAIN/PATH before the path
    #[arg(long, value_name = "NAME", default_value = TrustDomain::DEFAULT)]
    trust_domain: TrustDomain,
    /// Name of the cluster in the identity of its servers: spiffe://TRUST-DOMAIN/leasehold/NAME
    #[arg(long, value_name = "NAME", default_value = "main", value_parser = parse_credential_name)]
    cluster: String,
    /// Days until the certificates of server and administrator end
    #[arg(long, value_name = "N", default_value_t = 90, value_parser = clap::value_parser!(i64).range(1..MAX_DAYS))]
    days: i64,
    /// Name of the administrator's profile
    #[arg(long, value_name = "NAME", default_value = ADMIN, value_parser = parse_credential_name)]
    profile: String,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let directory = future_path(&args.dir)?;
    let now = OffsetDateTime::now_utc();
    let listen = args.listen.unwrap_or_else(|| {
        let host = if args.names.is_empty() { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED };
        SocketAddr::new(IpAddr::V4(host), DEFAULT_PORT)
    });
    if listen.port() == 0 {
        let message = "listen: port 0 is another port at each start, and clients could not find it; write for example 127.0.0.1:7421";
        return Err(Error::config("listen", message).into());
    }
    let hosts = hosts(&args.names, listen.ip());

    let domain = &args.trust_domain;
    let (authority, ca) = CertificateAuthority::create(domain, now)?;
    let names = SubjectNames::server(domain.server(&args.cluster), &hosts);
    let server = authority.issue(SERVER, &names, CertificateUsage::Server, (now, args.days))?;
    let admin_id = domain.client(ADMIN);
    let admin_names = SubjectNames::client(admin_id.clone());
    let admin = authority.issue(ADMIN, &admin_names, CertificateUsage::Client, (now, args.days))?;
    let revoked = authority.sign_list(&RevokedCertificates::default(), now)?;
    let grant = AccessGrant { role: Role::Admin, prefix: "".into() };
    let grant = PrincipalGrant { principal: admin_id.to_string().into(), grant };

    let mut files = FileSet::default();
    files.directory(&directory, 0o755);
    files.new_directory(&directory.join(ISSUED), 0o755)?;
    files.new_directory(&directory.join(KEYS), 0o700)?;
    let mut create = |name: &str, access, text: String| files.create(directory.join(name), access, text);
    create(CA_CERTIFICATE, FileAccess::Public, ca.certificate)?;
    create(CA_KEY, FileAccess::Private, ca.key)?;
    for (name, Credential { certificate, key, serial, .. }) in [(SERVER, &server), (ADMIN, &admin)] {
        create(&format!("{ISSUED}/{serial}.pem"), FileAccess::Public, certificate.clone())?;
        create(&format!("{name}.pem"), FileAccess::Public, certificate.clone())?;
        create(&format!("{name}.key"), FileAccess::Private, key.clone())?;
    }
    let seal_key = SealKey::generate(wall_ms()).map_err(|error| Error::config("keys", error.to_string()))?;
    let seal_text = seal_key.to_file_text().map_err(|error| Error::config("keys", error.to_string()))?;
    create(&format!("{KEYS}/{}", key_file_name(seal_key.kid())), FileAccess::Private, seal_text.to_string())?;
    create(&format!("{KEYS}/{CLUSTER_KEY}"), FileAccess::Private, new_cluster_key().to_string())?;
    create(REVOKED, FileAccess::Public, revoked)?;
    create(ACCESS, FileAccess::Public, access_text(&grant))?;
    create(CONFIG, FileAccess::Public, config_text(&directory, listen, &hosts, domain))?;
    let profile_file = profile::add_directory(&mut files, &args.profile)?.join(PROFILE_FILE);
    let addr = format!("https://{}", client_address(&hosts, listen.port()));
    files.create(
        profile_file.clone(),
        FileAccess::Public,
        Profile::text(&args.profile, &addr, ADMIN, Some(&directory)),
    )?;
    let written = files.commit()?;

    let config = directory.join(CONFIG);
    let next = [
        format!("leasehold serve --config {}", quote(&config.to_string_lossy())),
        format!("leasehold --as {} ls", args.profile),
    ];
    let body = json!({
        "directory": directory.display().to_string(),
        "files": written.iter().map(|path| path.display().to_string()).collect::<Vec<_>>(),
        "trust_domain": domain.to_string(),
        "ca_not_after": date_text(ca.not_after),
        "server": { "identity": domain.server(&args.cluster).to_string(), "hosts": host_texts(&names.hosts) },
        "admin": { "identity": admin_id.to_string(), "profile": args.profile },
        "not_after": date_text(admin.not_after),
        "next": next,
    });
    Ok(global.output(&body, || {
        let (at, end, ca_end) = (directory.display(), date_text(admin.not_after), date_text(ca.not_after));
        format!(
            "created in {at}:\n  \
             ca.pem, ca.key          CA of the trust domain {domain}, until {ca_end}\n  \
             server.pem, server.key  for {}, until {end}\n  \
             admin.pem, admin.key    {admin_id}, until {end}\n  \
             keys/cluster.key        secret key of the cluster; every server on etcd has the same\n  \
             keys/seal-{}.key  signs tokens; every server of the cluster has the same\n  \
             access.toml, crl.pem, leasehold.toml, issued/\n\
             created the profile {} in {}\n\n\
             Move ca.key off this machine. It is needed only to issue, renew and revoke certificates.\n\n\
             Next:\n  {}\n  {}",
            names.host_text(),
            seal_key.kid(),
            args.profile,
            profile_file.display(),
            next[0],
            next[1],
        )
    }))
}

/// The absolute path of a directory that may not exist yet.
fn future_path(path: &Path) -> Result<PathBuf, CommandError> {
    if path.exists() {
        return Ok(absolute_path(path)?);
    }
    let Some(name) = path.file_name() else { return Ok(absolute_path(path)?) };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(absolute_path(parent)?.join(name))
}

/// Names of the server: those of the command line, and a single address that it listens on.
fn hosts(names: &[ServerName], listen: IpAddr) -> Vec<ServerName> {
    let mut hosts = names.to_vec();
    if !listen.is_unspecified() && !listen.is_loopback() && !hosts.contains(&ServerName::Ip(listen)) {
        hosts.push(ServerName::Ip(listen));
    }
    hosts
}

fn host_texts(hosts: &[ServerName]) -> Vec<String> {
    hosts.iter().map(ToString::to_string).collect()
}

/// The address that clients use.
fn client_address(hosts: &[ServerName], port: u16) -> String {
    match hosts.first() {
        Some(ServerName::Ip(IpAddr::V6(address))) => format!("[{address}]:{port}"),
        Some(host) => format!("{host}:{port}"),
        None => format!("localhost:{port}"),
    }
}

fn access_text(admin: &PrincipalGrant) -> String {
    let roles = Role::ALL.map(Role::word).join(", ");
    format!(
        "# Who may do what. Everything that is not granted here is refused.\n\
         # principal: spiffe://TRUST-DOMAIN/PATH or dns:NAME of a certificate, uid:N of a caller on the unix socket, anonymous.\n\
         # role: {roles}.\n\
         # prefix: whole segments of names; \"\" for all names.\n\
         # SIGHUP reloads this file. leasehold ca issue adds grants to it.\n\n{}",
        grant_text(admin)
    )
}

fn config_text(directory: &Path, listen: SocketAddr, hosts: &[ServerName], domain: &TrustDomain) -> String {
    let quoted = |text: &str| toml::Value::from(text).to_string();
    let path = |name: &str| directory.join(name).to_string_lossy().into_owned();
    let dns = hosts.iter().filter_map(|host| if let ServerName::Dns(name) = host { Some(name.clone()) } else { None });
    let dns: Vec<_> = dns.collect();
    let mut text = format!(
        "# Configuration of leasehold serve, written by leasehold init. SIGHUP reloads it.\nlisten = {}\n",
        quoted(&listen.to_string())
    );
    if !hosts.is_empty() {
        text += &format!("advertise = {}\n", quoted(&client_address(hosts, listen.port())));
    }
    if !dns.is_empty() {
        text += &format!("allowed_hosts = {}\n", toml::Value::from(dns));
    }
    text += &format!("data = {}\n", quoted(&path("leasehold-data")));
    text += &format!("tls_cert = {}\n", quoted(&path(&format!("{SERVER}.pem"))));
    text += &format!("tls_key = {}\n", quoted(&path(&format!("{SERVER}.key"))));
    text += &format!("client_ca = [{}]\n", quoted(&format!("{domain}={}", path(CA_CERTIFICATE))));
    text += &format!("client_crl = [{}]\n", quoted(&path(REVOKED)));
    text += &format!("access = {}\n", quoted(&path(ACCESS)));
    text + &format!("keys = {}\n", quoted(&path(KEYS)))
}
