//! `leasehold token`: text, JSON and errors.

use std::process::{Command, Output};

const TOKEN: &str = "lh1-00c0ffee00c0ffee-0badcafe-1122334455667788-w00000003-0258755447193600007-5cc3aa73";

fn leasehold(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_leasehold")).args(args).output().expect("the binary was built for this test")
}

fn utf8(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the output is UTF-8")
}

#[test]
fn the_parts_of_a_token_are_printed() {
    let output = leasehold(&["token", TOKEN]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(utf8(&output.stderr), "");
    assert_eq!(
        utf8(&output.stdout),
        "number       258755447193600007\n\
         cluster      00c0ffee00c0ffee\n\
         incarnation  0badcafe\n\
         resource     1122334455667788 (hash of the name)\n\
         scope        writes, slot 3\n\
         sealed       no\n"
    );
}

#[test]
fn in_json_the_number_is_a_string() {
    let output = leasehold(&["token", "--json", TOKEN]);
    assert_eq!(output.status.code(), Some(0));
    let parts: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON value");
    let expected = serde_json::json!({
        "number": "258755447193600007",
        "cluster": "00c0ffee00c0ffee",
        "incarnation": "0badcafe",
        "resource": "1122334455667788",
        "scope": "slot",
        "slot": 3,
        "kid": null,
    });
    assert_eq!(parts, expected);
}

#[test]
fn a_modified_token_is_rejected_with_code_and_next_step() {
    let changed = TOKEN.replace("600007", "600008");
    let output = leasehold(&["token", &changed]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(utf8(&output.stdout), "");
    assert!(utf8(&output.stderr).starts_with("leasehold: TOKEN_INVALID{checksum}: "), "{}", utf8(&output.stderr));

    let output = leasehold(&["token", "--json", &changed]);
    assert_eq!(output.status.code(), Some(2));
    let refusal: serde_json::Value = serde_json::from_slice(&output.stderr).expect("one JSON value");
    assert_eq!((&refusal["code"], &refusal["reason"]), (&"TOKEN_INVALID".into(), &"checksum".into()));
}

/// The text and the key of `crates/seal/testdata`.
#[test]
fn the_seal_of_a_token_is_verified_without_a_server() {
    let text = include_str!("../../seal/testdata/sealed_token.txt").trim_end();
    let directory = tempfile::tempdir().expect("a directory");
    let keys = directory.path().join("keys.json");
    let set = serde_json::json!({ "version": 1, "keys": [{ "kid": "0c349504",
        "public": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", "active_ms": 1 }] });
    std::fs::write(&keys, set.to_string()).expect("the file is writable");
    let verify = |name: &str, text: &str| {
        leasehold(&["token", "verify", "--keys", keys.to_str().expect("UTF-8"), "--name", name, text])
    };
    let output = verify("db/orders", text);
    assert_eq!(output.status.code(), Some(0), "{}", utf8(&output.stderr));
    assert!(utf8(&output.stdout).contains("sealed       by key 0c349504\n"), "{}", utf8(&output.stdout));
    assert_eq!(leasehold(&["token", text]).status.code(), Some(0), "its parts are printed without the keys");
    for (name, text) in [("db/other", text), ("db/orders", TOKEN), ("db/orders", &text.replace("-kOpF", "-kOpG"))] {
        let output = verify(name, text);
        assert_eq!(output.status.code(), Some(2));
        assert!(utf8(&output.stderr).starts_with("leasehold: TOKEN_INVALID"), "{}", utf8(&output.stderr));
        assert_eq!(utf8(&output.stdout), "");
    }
    std::fs::write(&keys, set.to_string().replace("0c349504", "0c349505")).expect("the file is writable");
    let output = verify("db/orders", text);
    assert_eq!(output.status.code(), Some(78));
    assert!(utf8(&output.stderr).contains("the key's id is 0c349504"), "{}", utf8(&output.stderr));
}

#[test]
fn malformed_tokens_are_rejected() {
    for text in ["", "-1", "0", "lh1-", " ", "lh2-00"] {
        let output = leasehold(&["token", text]);
        assert_eq!(output.status.code(), Some(2), "{text:?}");
        assert_eq!(utf8(&output.stdout), "", "{text:?}");
    }
}

#[test]
fn help_lists_exactly_the_existing_commands() {
    let output = leasehold(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = utf8(&output.stdout);
    let (_, rest) = help.split_once("Commands:\n").expect("help lists commands");
    let (commands, _) = rest.split_once("\n\n").expect("help lists options");
    let listed: Vec<_> = commands.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let all = "serve init ca bearer keys acquire renew release run elect progress check handoff revoke free quarantine proposals approve \
               ls show held-by waiters deadlocks watch history trace top usage status health cluster step-down charter coverage fence backup restore bench demo dev-cluster \
               config token audit doctor completions help";
    assert_eq!(listed, all.split_whitespace().collect::<Vec<_>>());
}

#[test]
fn a_closed_standard_output_is_not_an_error() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .args(["token", TOKEN])
        .stdout(writer)
        .output()
        .expect("the binary was built for this test");
    assert_eq!(utf8(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}
