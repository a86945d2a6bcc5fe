//! `leasehold token` as someone at a terminal sees it.

use std::process::{Command, Output};

const TOKEN: &str = "lh1-00c0ffee00c0ffee-0badcafe-1122334455667788-w00000003-0258755447193600007-5cc3aa73";

fn leasehold(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_leasehold")).args(args).output().expect("the binary was built for this test")
}

fn told(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the binary prints text")
}

#[test]
fn a_token_is_told_part_by_part() {
    let output = leasehold(&["token", TOKEN]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(told(&output.stderr), "");
    assert_eq!(
        told(&output.stdout),
        "number       258755447193600007\n\
         cluster      00c0ffee00c0ffee\n\
         incarnation  0badcafe\n\
         resource     1122334455667788 (hash of the name)\n\
         reach        writes, slot 3\n"
    );
}

#[test]
fn in_json_the_number_is_a_text() {
    let output = leasehold(&["token", "--json", TOKEN]);
    assert_eq!(output.status.code(), Some(0));
    let parts: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON value");
    let expected = serde_json::json!({
        "number": "258755447193600007",
        "cluster": "00c0ffee00c0ffee",
        "incarnation": "0badcafe",
        "resource": "1122334455667788",
        "reach": "slot",
        "slot": 3,
    });
    assert_eq!(parts, expected);
}

#[test]
fn a_changed_token_is_refused_with_its_code_and_the_next_step() {
    let changed = TOKEN.replace("600007", "600008");
    let output = leasehold(&["token", &changed]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(told(&output.stdout), "");
    assert!(told(&output.stderr).starts_with("leasehold: TOKEN_INVALID{checksum}: "), "{}", told(&output.stderr));

    let output = leasehold(&["token", "--json", &changed]);
    assert_eq!(output.status.code(), Some(2));
    let refusal: serde_json::Value = serde_json::from_slice(&output.stderr).expect("one JSON value");
    assert_eq!((&refusal["code"], &refusal["reason"]), (&"TOKEN_INVALID".into(), &"checksum".into()));
}

#[test]
fn no_text_at_all_is_no_token() {
    for text in ["", "-1", "0", "lh1-", " ", "lh2-00"] {
        let output = leasehold(&["token", text]);
        assert_eq!(output.status.code(), Some(2), "{text:?}");
        assert_eq!(told(&output.stdout), "", "{text:?}");
    }
}

#[test]
fn help_promises_only_what_is_there() {
    let output = leasehold(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = told(&output.stdout);
    let (_, rest) = help.split_once("Commands:\n").expect("help lists commands");
    let (commands, _) = rest.split_once("\n\n").expect("and then options");
    let listed: Vec<_> = commands.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let all = "serve acquire renew release run elect progress check handoff revoke free quarantine ls show held-by waiters \
               deadlocks watch history usage status cluster step-down charter fences fence backup restore bench demo dev-cluster \
               config token trail completions help";
    assert_eq!(listed, all.split_whitespace().collect::<Vec<_>>());
}

#[test]
fn a_reader_that_went_away_is_no_failure() {
    let (reader, writer) = std::io::pipe().expect("a pipe can be made");
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .args(["token", TOKEN])
        .stdout(writer)
        .output()
        .expect("the binary was built for this test");
    assert_eq!(told(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}
