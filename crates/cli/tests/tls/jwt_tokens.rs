//! Who gets in with a JWT: keys and tokens made by Python's `cryptography`, presented by curl and grpcio (A3).

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::bearer_tokens::grant;
use crate::harness::{TlsServer, WORKER};
use crate::python_grpc::by_grpcio_with;
use crate::support::{leasehold, run};

const ALICE: &str = "jwt:https://one.example#alice";

/// Creates keys and tokens below a directory; returns the tokens by the names of their cases.
fn tokens(directory: &Path) -> BTreeMap<String, String> {
    let environment = std::env::var("LEASEHOLD_MOTO").expect("./test installs the environment and names it");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls/jwt_tokens.py");
    let output = Command::new(Path::new(&environment).join("bin/python")).arg(script).arg(directory).output();
    let output = output.expect("python starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("the script prints JSON")
}

/// A configuration with two issuers.
fn config(directory: &Path) -> String {
    let table = |name: &str| {
        let jwks = directory.join(format!("{name}.jwks"));
        format!("[[jwt]]\nissuer = \"https://{name}.example\"\naudience = \"leasehold\"\njwks = {jwks:?}\n\n")
    };
    let path = directory.join("leasehold.toml");
    std::fs::write(&path, table("one") + &table("two")).expect("the file is writable");
    path.to_str().expect("a UTF-8 path").to_owned()
}

#[test]
fn only_a_jwt_of_a_configured_issuer_with_its_own_key_gets_in() {
    let folder = tempfile::tempdir().expect("a directory");
    let tokens = tokens(folder.path());
    let server = TlsServer::with_flags(&["--config", &config(folder.path())]);
    grant(&server, &[WORKER, ALICE]);
    let worker = server.client("worker", WORKER);
    let mut table = vec![format!("{:<50} {:<5} {:<18} expected", "token", "curl", "grpcio")];
    let mut wrong = Vec::new();
    for (name, token) in &tokens {
        let expected = match name.split(' ').next() {
            Some("ok") => (200, "OK"),
            Some("denied") => (403, "PERMISSION_DENIED"),
            _ => (401, "UNAUTHENTICATED"),
        };
        let header = format!("authorization: Bearer {token}");
        let by_curl = server.curl(None, &["-H", &header]);
        let file = folder.path().join("token");
        std::fs::write(&file, token).expect("the file is writable");
        let by_grpcio = by_grpcio_with(&server, None, Some(&file));
        table.push(format!("{name:<50} {by_curl:<5} {by_grpcio:<18} {expected:?}"));
        if (by_curl, by_grpcio.as_str()) != expected {
            wrong.push(server.openssl_with(None, &[], &format!("{header}\r\n")));
        }
        assert_eq!(server.curl(Some(&worker), &["-H", &header]), 401, "{name}: beside the certificate of another");
    }
    println!("{}", table.join("\n"));
    assert!(wrong.is_empty(), "{}\n{}", table.join("\n"), wrong.join("\n"));
    assert!(tokens.len() > 30, "{}", tokens.len());

    // A key that its issuer withdrew counts no more.
    let good = format!("authorization: Bearer {}", tokens["ok EdDSA"]);
    std::fs::copy(folder.path().join("two.jwks"), folder.path().join("one.jwks")).expect("the keys are replaced");
    server.server.signal("HUP");
    server.server.wait_for_log("bearer tokens reloaded");
    assert_eq!(server.curl(None, &["-H", &good]), 401);

    // Another audience needs a restart, and the log says so.
    let file = config(folder.path());
    let changed = std::fs::read_to_string(&file).expect("the file is readable").replace("\"leasehold\"", "\"other\"");
    std::fs::write(&file, changed).expect("the file is writable");
    server.server.signal("HUP");
    server.server.wait_for_log("the audience and keys of [[jwt]] stay as they are; restart the server to change them");

    // The log shows refusals, and no token.
    server.server.signal("TERM");
    let lines = server.server.all_log_lines();
    assert!(lines.iter().any(|line| line.contains("bearer token refused")), "{lines:?}");
    for token in tokens.values().filter(|token| token.len() > 20) {
        assert!(lines.iter().all(|line| !line.contains(&token[token.len() - 20..])), "{lines:?}");
    }
}

#[test]
fn an_incomplete_issuer_is_a_configuration_error() {
    let folder = tempfile::tempdir().expect("a directory");
    tokens(folder.path());
    let jwks = folder.path().join("one.jwks");
    let access = folder.path().join("access.toml");
    crate::harness::write_access(&access, &[ALICE]);
    let check = |text: &str| {
        let path = folder.path().join("leasehold.toml");
        std::fs::write(&path, format!("access = {access:?}\n{text}")).expect("the file is writable");
        run(leasehold(&["config", "check"]).arg(&path))
    };
    let table = |issuer: &str, audience: &str| {
        format!("[[jwt]]\nissuer = \"{issuer}\"\naudience = \"{audience}\"\njwks = {jwks:?}\n")
    };
    check(&table("https://one.example", "leasehold")).ok();
    for (text, part) in [
        (format!("[[jwt]]\nissuer = \"https://a\"\njwks = {jwks:?}\n"), "audience"),
        (format!("[[jwt]]\naudience = \"a\"\njwks = {jwks:?}\n"), "issuer"),
        ("[[jwt]]\nissuer = \"https://a\"\naudience = \"a\"\n".to_owned(), "jwks"),
        (table("https://a", ""), "audience"),
        (table("https://a#b", "a"), "issuer"),
        (table("https://a", "a").repeat(2), "twice"),
        (table("https://a", "a") + "algorithms = [\"none\"]\n", "algorithms"),
        (table("https://a", "a").replace("one.jwks", "missing"), "does not exist"),
        (table("https://a", "a").replace("one.jwks", "access.toml"), "key set"),
    ] {
        let refused = check(&text);
        assert!(refused.exit == 78 && refused.err.contains(part), "{text}: {}", refused.err);
    }
}
