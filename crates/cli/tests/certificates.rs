//! `leasehold init` and `leasehold ca`: certificates as openssl sees them, files, grants and profiles.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use support::{CommandRun, leasehold, run, spawn_piped, text, wait_for_output};
use tempfile::TempDir;

/// An empty directory for a CA, and a home directory.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().expect("a directory"));
        fs::create_dir(place.0.path().join("home")).expect("the directory is writable");
        place
    }

    /// A place with a CA.
    fn with_ca() -> Self {
        let place = Self::new();
        place.run(&["init", "ca"]).ok();
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.at(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = leasehold(args);
        command.current_dir(self.0.path()).env("HOME", self.at("home")).env_remove("XDG_CONFIG_HOME");
        command
    }

    #[track_caller]
    fn run(&self, args: &[&str]) -> CommandRun {
        run(&mut self.command(args))
    }

    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        let mut with = args.to_vec();
        with.push("--json");
        self.run(&with).ok().json()
    }

    fn openssl(&self, args: &str) -> CommandRun {
        let mut command = Command::new("openssl");
        run(command.args(args.split(' ')).current_dir(self.0.path()))
    }

    /// Every file below the place with its mode and its contents.
    fn snapshot(&self) -> Vec<(String, u32, Vec<u8>)> {
        let (mut folders, mut found) = (vec![self.0.path().to_owned()], Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).expect("the folder exists").flatten() {
                let path = entry.path();
                let name = path.strip_prefix(self.0.path()).expect("it is below").to_string_lossy().into_owned();
                let mode = entry.metadata().expect("it is there").permissions().mode() & 0o777;
                if path.is_dir() {
                    found.push((name, mode, Vec::new()));
                    folders.push(path);
                } else {
                    found.push((name, mode, fs::read(&path).unwrap_or_default()));
                }
            }
        }
        found.sort();
        found
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder exists").flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// What openssl prints about a certificate.
fn x509(place: &Place, file: &str) -> String {
    place.openssl(&format!("x509 -in {file} -noout -text")).ok().out
}

#[track_caller]
fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in:\n{text}");
    }
}

#[test]
fn openssl_accepts_the_certificates_of_init_for_their_purpose_only() {
    let place = Place::new();
    let created = place.json(&["init", "ca", "--name", "Leases.example.com", "--name", "192.0.2.10"]);
    assert_eq!(created["trust_domain"], "leasehold.internal");
    assert_eq!(created["server"]["identity"], "spiffe://leasehold.internal/leasehold/main");

    let ca = x509(&place, "ca/ca.pem");
    assert_contains(
        &ca,
        &[
            "CA:TRUE, pathlen:0",
            "Certificate Sign, CRL Sign",
            "ASN1 OID: prime256v1",
            "URI:spiffe://leasehold.internal\n",
            "ecdsa-with-SHA256",
        ],
    );
    let server = x509(&place, "ca/server.pem");
    assert_contains(
        &server,
        &[
            "CA:FALSE",
            "TLS Web Server Authentication\n",
            "Digital Signature\n",
            "DNS:leases.example.com, IP Address:192.0.2.10, DNS:localhost, IP Address:127.0.0.1, IP \
         Address:0:0:0:0:0:0:0:1, URI:spiffe://leasehold.internal/leasehold/main\n",
            "Authority Key Identifier",
        ],
    );
    let admin = x509(&place, "ca/admin.pem");
    assert_contains(&admin, &["TLS Web Client Authentication\n", "    URI:spiffe://leasehold.internal/admin\n"]);
    assert_eq!(admin.matches("URI:").count(), 1, "exactly one identity");
    assert!(!admin.contains("DNS:"), "{admin}");

    for host in
        ["-verify_hostname leases.example.com", "-verify_ip 192.0.2.10", "-verify_hostname localhost", "-verify_ip ::1"]
    {
        place.openssl(&format!("verify -x509_strict -CAfile ca/ca.pem -purpose sslserver {host} ca/server.pem")).ok();
    }
    place.openssl("verify -x509_strict -CAfile ca/ca.pem -purpose sslclient ca/admin.pem").ok();
    for refused in [
        "-purpose sslclient ca/server.pem",
        "-purpose sslserver ca/admin.pem",
        "-purpose sslserver -verify_hostname other.example.com ca/server.pem",
    ] {
        assert_ne!(place.openssl(&format!("verify -CAfile ca/ca.pem {refused}")).exit, 0, "{refused}");
    }
    // Ninety days for certificates, ten years for the CA.
    const DAY: u64 = 86_400;
    for (file, days) in [("server.pem", 90), ("admin.pem", 90), ("ca.pem", 3650)] {
        let ends = |seconds: u64| place.openssl(&format!("x509 -in ca/{file} -noout -checkend {seconds}")).exit != 0;
        assert!(!ends(days * DAY - DAY) && ends(days * DAY + DAY), "{file} ends after {days} days");
    }
    let list = place.openssl("crl -in ca/crl.pem -CAfile ca/ca.pem -noout -text").ok();
    assert_contains(&(list.out + &list.err), &["verify OK", "No Revoked Certificates"]);
    for name in ["server", "admin"] {
        let public = place.openssl(&format!("x509 -in ca/{name}.pem -noout -pubkey")).ok().out;
        assert_eq!(place.openssl(&format!("pkey -in ca/{name}.key -pubout")).ok().out, public, "the key of {name}");
    }
    assert_ne!(place.read("ca/admin.key"), place.read("ca/server.key"));
}

#[test]
fn init_writes_all_files_with_private_keys_and_the_next_commands() {
    let place = Place::new();
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 0; exec \"$0\" init ca", env!("CARGO_BIN_EXE_leasehold")]);
    let result =
        run(shell.current_dir(place.0.path()).env("HOME", place.at("home")).env_remove("XDG_CONFIG_HOME")).ok();
    let config = place.at("ca").canonicalize().expect("it exists").join("leasehold.toml");
    let serve = format!("leasehold serve --config {}", config.display());
    assert_contains(&result.out, &["Move ca.key off this machine", &serve, "leasehold --as admin ls"]);
    let expected = ["access.toml", "admin.key", "admin.pem", "ca.key", "ca.pem", "crl.pem", "issued", "keys"];
    let names = names_in(&place.at("ca"));
    assert_eq!(names[..8], expected);
    assert_eq!(names[8..], ["leasehold.toml", "server.key", "server.pem"]);
    assert_eq!(place.read("ca/keys/cluster.key").trim().len(), 64);
    for (name, mode, _) in place.snapshot() {
        let expected = match &*name {
            _ if name.ends_with(".key") => 0o600,
            "home/.config" | "home/.config/leasehold" | "home/.config/leasehold/admin" | "ca/keys" => 0o700,
            _ if place.at(&name).is_dir() => continue,
            _ => 0o644,
        };
        assert_eq!(mode, expected, "{name}: {mode:o}");
    }
    let access: toml::Table = place.read("ca/access.toml").parse().expect("it is TOML");
    let grants = access["grant"].as_array().expect("grants");
    assert_eq!(grants.len(), 1);
    assert_eq!(grants[0]["principal"].as_str(), Some("spiffe://leasehold.internal/admin"));
    assert_eq!((grants[0]["role"].as_str(), grants[0]["prefix"].as_str()), (Some("admin"), Some("")));
    let config: toml::Table = place.read("ca/leasehold.toml").parse().expect("it is TOML");
    assert_eq!(config["listen"].as_str(), Some("127.0.0.1:7421"));
    assert!(!config.contains_key("advertise") && !config.contains_key("allowed_hosts"));
    let trusted = config["client_ca"][0].as_str().and_then(|text| text.split_once('=')).expect("DOMAIN=FILE");
    assert_eq!(trusted.0, "leasehold.internal");
    for file in [trusted.1, config["tls_cert"].as_str().expect("a path"), config["access"].as_str().expect("a path")] {
        assert!(Path::new(file).is_absolute() && Path::new(file).is_file(), "{file}");
    }
    let profile: toml::Table = place.read("home/.config/leasehold/admin/profile.toml").parse().expect("it is TOML");
    assert_eq!(profile["addr"].as_str(), Some("https://localhost:7421"));
}

#[test]
fn names_decide_where_the_server_listens_and_how_clients_address_it() {
    let table: [(&[&str], &str, Option<&str>, &str); 5] = [
        (&["--name", "a.example"], "0.0.0.0:7421", Some("a.example:7421"), "https://a.example:7421"),
        (&["--name", "2001:db8::1"], "0.0.0.0:7421", Some("[2001:db8::1]:7421"), "https://[2001:db8::1]:7421"),
        (&["--listen", "192.0.2.10:1"], "192.0.2.10:1", Some("192.0.2.10:1"), "https://192.0.2.10:1"),
        (&["--listen", "127.0.0.1:2"], "127.0.0.1:2", None, "https://localhost:2"),
        (&["--listen", "[::]:3", "--name", "b"], "[::]:3", Some("b:3"), "https://b:3"),
    ];
    for (flags, listen, advertise, addr) in table {
        let place = Place::new();
        place.run(&[&["init", "ca"], flags].concat()).ok();
        let config: toml::Table = place.read("ca/leasehold.toml").parse().expect("it is TOML");
        let profile: toml::Table = place.read("home/.config/leasehold/admin/profile.toml").parse().expect("it is TOML");
        assert_eq!(config["listen"].as_str(), Some(listen), "{flags:?}");
        assert_eq!(config.get("advertise").and_then(toml::Value::as_str), advertise, "{flags:?}");
        assert_eq!(profile["addr"].as_str(), Some(addr), "{flags:?}");
    }
}

#[test]
fn init_replaces_nothing_and_leaves_nothing_behind() {
    let files = ["ca.pem", "ca.key", "server.key", "admin.pem", "crl.pem", "access.toml", "leasehold.toml", "issued"];
    for file in
        files.map(|name| format!("ca/{name}")).into_iter().chain(["home/.config/leasehold/admin/profile.toml".into()])
    {
        let place = Place::new();
        fs::create_dir_all(place.at(&file).parent().expect("a folder")).expect("the directory is writable");
        fs::write(place.at(&file), "precious").expect("the directory is writable");
        let before = place.snapshot();
        let result = place.run(&["init", "ca"]).fails(78, "leasehold: CONFIG{");
        assert!(result.err.contains(&format!("{file} already exists")), "{result:?}");
        assert_eq!(place.snapshot(), before, "{file}");
    }
    // A later step fails: the directory for profiles is a file.
    let place = Place::new();
    fs::write(place.at("home/.config"), "a file").expect("the directory is writable");
    let before = place.snapshot();
    place.run(&["init", "ca"]).fails(78, "leasehold: CONFIG{");
    assert_eq!(place.snapshot(), before);
    let result = run(place.command(&["init", "ca"]).env_remove("HOME")).fails(78, "leasehold: CONFIG{");
    assert!(result.err.contains("XDG_CONFIG_HOME"), "{result:?}");
    place.run(&["init", "no/such/parent"]).fails(78, "leasehold: CONFIG{");
    assert_eq!(place.snapshot(), before);
}

#[test]
fn invalid_options_of_init_are_refused_by_name() {
    let place = Place::new();
    let table: [(&[&str], &str); 7] = [
        (&["--name", "*.example.com"], "--name"),
        (&["--name", "a:7421"], "--name"),
        (&["--name", "0.0.0.0"], "address of one machine"),
        (&["--trust-domain", "Example.com"], "--trust-domain"),
        (&["--cluster", "a/b"], "--cluster"),
        (&["--days", "0"], "--days"),
        (&["--days", "4000"], "--days"),
    ];
    for (flags, part) in table {
        let result = place.run(&[&["init", "ca"], flags].concat());
        assert_eq!(result.exit, 2, "{result:?}");
        assert!(result.err.contains(part), "{flags:?}: {result:?}");
    }
    let result = place.run(&["init", "ca", "--listen", "127.0.0.1:0"]).fails(78, "leasehold: CONFIG{");
    assert!(result.err.contains("listen: port 0"), "{result:?}");
    assert!(!place.at("ca").exists());
}

#[test]
fn issue_writes_a_certificate_its_grants_and_a_profile() {
    let place = Place::with_ca();
    let before = format!("{}\n# a comment at the end", place.read("ca/access.toml"));
    fs::write(place.at("ca/access.toml"), &before).expect("the file is writable");
    fs::set_permissions(place.at("ca/access.toml"), fs::Permissions::from_mode(0o640)).expect("the file is ours");
    let grants = ["--role", "holder", "--prefix", "jobs", "--role", "observer", "--prefix", ""];
    let id = "spiffe://leasehold.internal/jobs/worker";
    let issued =
        place.json(&[&["ca", "issue", "worker", "--dir", "ca", "--id", id, "--days", "7"], &grants[..]].concat());
    assert_eq!((&issued["identity"], &issued["usage"]), (&id.into(), &"client".into()));
    assert_eq!(issued["grants"][1], serde_json::json!({ "role": "observer", "prefix": "" }));

    place.openssl("verify -x509_strict -CAfile ca/ca.pem -purpose sslclient ca/worker.pem").ok();
    let certificate = x509(&place, "ca/worker.pem");
    assert_contains(&certificate, &["    URI:spiffe://leasehold.internal/jobs/worker\n", "CN = worker"]);
    assert_ne!(place.openssl("x509 -in ca/worker.pem -noout -checkend 691200").exit, 0, "it ends after seven days");
    let mode = |name: &str| place.at(name).metadata().expect("it is there").permissions().mode() & 0o777;
    assert_eq!((mode("ca/worker.key"), mode("ca/access.toml")), (0o600, 0o640));
    let after = place.read("ca/access.toml");
    assert!(after.starts_with(&before), "comments and order stay: {after}");
    let access: toml::Table = after.parse().expect("it is TOML");
    let added = &access["grant"].as_array().expect("grants")[1..];
    let entry = |grant: &toml::Value| (grant["role"].to_string(), grant["prefix"].to_string());
    assert_eq!(
        added.iter().map(entry).collect::<Vec<_>>(),
        [("\"holder\"".to_owned(), "\"jobs\"".to_owned()), ("\"observer\"".to_owned(), "\"\"".to_owned())]
    );
    assert!(added.iter().all(|grant| grant["principal"].as_str() == Some(id)));
    assert_contains(
        &place.read("home/.config/leasehold/worker/profile.toml"),
        &["addr = \"https://localhost:7421\"", "worker.key"],
    );

    // A second certificate of the same identity needs no further grants.
    place.run(&["ca", "issue", "worker-2", "--dir", "ca", "--id", id]).ok();
    assert_eq!(place.read("ca/access.toml"), after);
}

#[test]
fn issue_writes_a_directory_for_another_machine() {
    let place = Place::new();
    place.run(&["init", "ca", "--name", "leases.example.com"]).ok();
    fs::create_dir(place.at("safe")).expect("the directory is writable");
    fs::rename(place.at("ca/ca.key"), place.at("safe/ca.key")).expect("the key is moved");
    let arguments = ["ca", "issue", "dash", "--dir", "ca", "--role", "observer", "--prefix", "", "--out", "dash"];
    let missing = place.run(&arguments).fails(78, "leasehold: CONFIG{");
    assert!(missing.err.contains("--ca-key") && !place.at("dash").exists(), "{missing:?}");
    place.run(&[&arguments[..], &["--ca-key", "safe/ca.key"]].concat()).ok();
    assert_eq!(names_in(&place.at("dash")), ["ca.pem", "dash.key", "dash.pem", "profile.toml"]);
    let profile: toml::Table = place.read("dash/profile.toml").parse().expect("it is TOML");
    assert_eq!(profile["addr"].as_str(), Some("https://leases.example.com:7421"));
    assert_eq!(profile["tls_key"].as_str(), Some("dash.key"), "relative to the profile");
    assert!(!place.at("home/.config/leasehold/dash").exists() && !place.at("ca/dash.key").exists());
    place.openssl("verify -CAfile dash/ca.pem -purpose sslclient dash/dash.pem").ok();
}

#[test]
fn issue_creates_certificates_for_further_servers() {
    let place = Place::new();
    place.run(&["init", "ca", "--cluster", "east", "--trust-domain", "example.org"]).ok();
    let before = place.read("ca/access.toml");
    let issued = place.json(&["ca", "issue", "lease-2", "--dir", "ca", "--server", "--name", "lease-2.example.com"]);
    assert_eq!(issued["usage"], "server");
    place
        .openssl("verify -CAfile ca/ca.pem -purpose sslserver -verify_hostname lease-2.example.com ca/lease-2.pem")
        .ok();
    assert_contains(&x509(&place, "ca/lease-2.pem"), &["URI:spiffe://example.org/leasehold/east\n"]);
    assert_eq!(place.read("ca/access.toml"), before, "a server has no grants");
    assert_eq!(place.run(&["ca", "issue", "lease-3", "--dir", "ca", "--server"]).exit, 2, "without a name");
}

#[test]
fn a_refused_certificate_changes_nothing() {
    let place = Place::with_ca();
    let other = Place::with_ca();
    let holder: &[&str] = &["--role", "holder", "--prefix", "jobs"];
    let table: [(&str, &[&str], &str); 10] = [
        ("admin", holder, "already issued"),
        ("ca", &["--role", "holder", "--prefix", "jobs", "--out", "elsewhere"], "name of a file of the CA"),
        ("w", &[], "no grant yet"),
        ("w", &["--role", "holder"], "one --prefix for each --role"),
        ("w", &["--role", "root", "--prefix", ""], "is not a role"),
        ("w", &["--role", "admin", "--prefix", "jobs"], "whole cluster"),
        ("w", &["--role", "holder", "--prefix", "jobs/"], "is not a prefix"),
        ("w", &["--id", "spiffe://other/w", "--role", "holder", "--prefix", ""], "not in the trust domain"),
        (
            "w",
            &["--id", "spiffe://leasehold.internal/leasehold/main", "--role", "holder", "--prefix", ""],
            "reserved for servers",
        ),
        ("w", &["--role", "holder", "--prefix", "", "--days", "3650"], "the CA itself ends on"),
    ];
    let before = place.snapshot();
    for (name, flags, part) in table {
        let result =
            place.run(&[&["ca", "issue", name, "--dir", "ca"], flags].concat()).fails(78, "leasehold: CONFIG{");
        assert!(result.err.contains(part), "{flags:?}: {result:?}");
        assert_eq!(place.snapshot(), before, "{flags:?}");
    }
    // Files that do not fit, each restored afterwards.
    let issue = |place: &Place| place.run(&[&["ca", "issue", "w", "--dir", "ca"], holder].concat());
    let broken: [(&str, Option<Vec<u8>>, &str); 6] = [
        ("ca/access.toml", Some(b"[[grant]]\nprincipal = \"a\"\n".to_vec()), "access.toml"),
        ("ca/access.toml", None, "access.toml"),
        ("ca/ca.key", Some(fs::read(other.at("ca/ca.key")).expect("a key")), "is not the key of"),
        ("ca/ca.key", Some(b"nonsense".to_vec()), "no private key"),
        ("ca/ca.pem", Some(b"nonsense".to_vec()), "no PEM block"),
        ("ca/ca.pem", Some(fs::read(place.at("ca/server.pem")).expect("a certificate")), "not the certificate of a CA"),
    ];
    for (file, contents, part) in broken {
        let good = fs::read(place.at(file)).expect("it is there");
        match &contents {
            Some(bytes) => fs::write(place.at(file), bytes).expect("the file is writable"),
            None => fs::remove_file(place.at(file)).expect("the file is there"),
        }
        let before = place.snapshot();
        let result = issue(&place).fails(78, "leasehold: CONFIG{");
        assert!(result.err.contains(part), "{file}: {result:?}");
        assert_eq!(place.snapshot(), before, "{file}");
        fs::write(place.at(file), good).expect("the file is writable");
    }
    fs::set_permissions(place.at("ca/ca.key"), fs::Permissions::from_mode(0o640)).expect("the file is ours");
    let result = issue(&place).fails(78, "leasehold: CONFIG{");
    assert!(result.err.contains("chmod 600"), "{result:?}");
    fs::set_permissions(place.at("ca/ca.key"), fs::Permissions::from_mode(0o600)).expect("the file is ours");
    issue(&place).ok();
}

#[test]
fn certificates_that_are_issued_at_the_same_time_all_get_their_grants() {
    let place = Place::with_ca();
    let names: Vec<_> = (0..8).map(|number| format!("worker-{number}")).collect();
    let issue = |name: &String| {
        spawn_piped(&mut place.command(&["ca", "issue", name, "--dir", "ca", "--role", "holder", "--prefix", "jobs"]))
    };
    let children: Vec<_> = names.iter().map(issue).collect();
    for child in children {
        wait_for_output(child).ok();
    }
    let access: toml::Table = place.read("ca/access.toml").parse().expect("it is TOML");
    assert_eq!(access["grant"].as_array().map(Vec::len), Some(9));
}

#[test]
fn a_renewed_certificate_has_the_same_identity_and_key() {
    let place = Place::with_ca();
    place.run(&["ca", "issue", "worker", "--dir", "ca", "--role", "holder", "--prefix", "jobs", "--days", "2"]).ok();
    let public = |place: &Place| place.openssl("x509 -in ca/worker.pem -noout -pubkey -ext subjectAltName").ok().out;
    let serial = |place: &Place| place.openssl("x509 -in ca/worker.pem -noout -serial").ok().out;
    let (key, first) = (public(&place), serial(&place));
    let renewed = place.json(&["ca", "renew", "worker", "--dir", "ca", "--days", "20"]);
    assert_eq!(renewed["identity"], "spiffe://leasehold.internal/worker");
    assert_eq!(public(&place), key);
    assert_ne!(serial(&place), first, "a new serial number");
    place.openssl("verify -x509_strict -CAfile ca/ca.pem -purpose sslclient ca/worker.pem").ok();
    place.openssl("x509 -in ca/worker.pem -noout -checkend 1641600").ok();
    // The server's certificate keeps its hosts.
    place.run(&["ca", "renew", "server", "--dir", "ca"]).ok();
    place.openssl("verify -CAfile ca/ca.pem -purpose sslserver -verify_hostname localhost ca/server.pem").ok();
    let result = place.run(&["ca", "renew", "nobody", "--dir", "ca"]).fails(78, "leasehold: CONFIG{");
    assert!(result.err.contains("leasehold ca list"), "{result:?}");
}

#[test]
fn revoked_certificates_are_listed_and_lose_their_grants() {
    let place = Place::with_ca();
    let id = "spiffe://leasehold.internal/worker";
    place.run(&["ca", "issue", "worker", "--dir", "ca", "--role", "holder", "--prefix", "jobs"]).ok();
    place.run(&["ca", "issue", "twin", "--dir", "ca", "--id", id]).ok();
    fs::copy(place.at("ca/worker.pem"), place.at("first.pem")).expect("copied");
    place.run(&["ca", "renew", "worker", "--dir", "ca"]).ok();

    let with_list =
        |file: &str| place.openssl(&format!("verify -crl_check -CAfile ca/ca.pem -CRLfile ca/crl.pem {file}")).exit;
    assert_eq!([with_list("ca/worker.pem"), with_list("first.pem"), with_list("ca/twin.pem")], [0, 0, 0]);
    let revoked = place.json(&["ca", "revoke", "worker", "--dir", "ca"]);
    assert_eq!(revoked["serials"].as_array().map(Vec::len), Some(2), "the renewed one and the first one");
    assert_eq!(revoked["removed_grants"], 0, "another certificate has this identity");
    assert!(with_list("ca/worker.pem") != 0 && with_list("first.pem") != 0);
    assert_eq!(with_list("ca/twin.pem"), 0);
    assert!(place.read("ca/access.toml").contains(id));

    assert_eq!(place.json(&["ca", "revoke", "twin", "--dir", "ca"])["removed_grants"], 1);
    assert!(!place.read("ca/access.toml").contains(id));
    assert!(with_list("ca/twin.pem") != 0 && with_list("first.pem") != 0, "earlier revocations stay");
    let list = place.openssl("crl -in ca/crl.pem -CAfile ca/ca.pem -noout -text").ok();
    assert_contains(&(list.out + &list.err), &["verify OK", "X509v3 CRL Number: \n                3\n"]);

    let listed = place.json(&["ca", "list", "--dir", "ca"]);
    let states: Vec<_> = listed["certificates"]
        .as_array()
        .expect("certificates")
        .iter()
        .map(|one| (text(&one["name"]), text(&one["state"])))
        .collect();
    let expected = [("admin", "valid"), ("server", "valid"), ("twin", "revoked"), ("worker", "revoked")];
    assert_eq!(states, expected.map(|(name, state)| (name.to_owned(), state.to_owned())));
    assert_eq!(listed["certificates"][0]["grants"][0]["role"], "admin");
    place.run(&["ca", "renew", "worker", "--dir", "ca"]).fails(78, "leasehold: CONFIG{");
    place.run(&["ca", "revoke", "worker", "--dir", "ca"]).fails(78, "leasehold: CONFIG{");
    let last = place.run(&["ca", "revoke", "admin", "--dir", "ca"]).fails(78, "leasehold: CONFIG{");
    assert!(last.err.contains("the last grants"), "{last:?}");
    assert_eq!(with_list("ca/admin.pem"), 0, "nothing was changed");
}

/// What `--as` and the environment lead to, seen in the message of a command that cannot connect.
#[test]
fn a_profile_supplies_address_and_files_and_is_not_needed_to_create_one() {
    let place = Place::new();
    // The variable names a profile that does not exist yet.
    let with = |args: &[&str]| run(place.command(args).env("LEASEHOLD_PROFILE", "admin"));
    let missing = with(&["ls"]).fails(78, "leasehold: CONFIG{");
    assert!(missing.err.contains("admin/profile.toml does not exist"), "{missing:?}");
    with(&["init", "ca", "--listen", "127.0.0.1:1"]).ok();
    for unreachable in [with(&["ls"]), place.run(&["--as", "admin", "ls"]), place.run(&["ls", "--as", "admin"])] {
        assert_eq!(unreachable.exit, 5, "{unreachable:?}");
        assert!(unreachable.err.contains("localhost:1"), "the address of the profile: {unreachable:?}");
    }
    let other = place.run(&["--as", "admin", "--addr", "https://127.0.0.1:2", "ls"]);
    assert!(other.exit == 5 && other.err.contains("127.0.0.1:2"), "a flag overrides the profile: {other:?}");
    let half = place.run(&["--as", "admin", "--tls-cert", "ca/server.pem", "ls"]).fails(78, "leasehold: CONFIG{");
    assert!(half.err.contains("tls_key"), "a certificate keeps its key: {half:?}");
    fs::remove_file(place.at("ca/admin.key")).expect("it is there");
    let gone = place.run(&["--as", "admin", "ls"]).fails(78, "leasehold: CONFIG{");
    assert!(gone.err.contains("admin/profile.toml, tls_key}: tls_key: "), "{gone:?}");
    for name in ["../admin", "a/b", "."] {
        let refused = place.run(&["--as", name, "ls"]).fails(78, "leasehold: CONFIG{");
        assert!(refused.err.contains("is not a name"), "{refused:?}");
    }
}
