//! A page that was changed does not verify, whatever was changed.

use std::fs;

use leasehold_server::audit::{HeadCheck, hex};
use leasehold_server::dashboard::trace_file::{TraceFile, TraceHead, TraceParameters, chain_of, read_chain};

use crate::story::{RESOURCE, Story};
use crate::support::{keys, text};
use crate::verify;

#[tokio::test(flavor = "multi_thread")]
async fn an_untouched_page_verifies_offline_and_a_changed_one_does_not() {
    let story = Story::play().await;
    let file = story.page("incident.html", &["--at", "1s"]);
    let page = fs::read_to_string(&file).expect("the file exists");
    drop(story.server);

    let proof = verify(&file, &[]).ok();
    assert!(proof.out.contains("complete") && proof.out.contains("entries of jobs/settle in the chain"), "{proof:?}");
    let json = verify(&file, &["--json"]).ok().json();
    assert_eq!(keys(&json), ["entries", "first", "hash", "intact", "last", "page"]);
    let (entry, hash) = (json["last"].as_u64().expect("a number"), text(&json["hash"]));
    verify(&file, &["--expect", &format!("{entry}:{hash}")]).ok();

    let forged = story.folder.path().join("forged.html");
    let path = forged.to_str().expect("a UTF-8 path");
    let refused = |what: &str, changed: &str| {
        assert_ne!(changed, page, "{what} changes something");
        fs::write(path, changed).expect("the directory is writable");
        verify(path, &[]).fails(65, "leasehold: CORRUPT").err
    };
    // What a reader sees: a name, the reason of an end, a whole row, a mark, a rule that hides it.
    let edited = refused(
        "a name in a row",
        &page.replacen("<bdi class=\"name\">worker-2</bdi>", "<bdi class=\"name\">worker-3</bdi>", 1),
    );
    assert!(edited.contains("the page was changed in the row of entry"), "{edited}");
    refused("a reason", &page.replacen("expired ttl", "revoked operator", 1));
    let row =
        page.find("<tr").and_then(|head| page[head + 3..].find("<tr").map(|next| head + 3 + next)).expect("a row");
    let end = row + page[row..].find("</tr>").expect("its end") + 5;
    refused("a row", &format!("{}{}", &page[..row], &page[end..]));
    refused("a mark in the drawing", &page.replacen("class=\"tl-refused\"", "class=\"tl-claim\"", 1));
    refused("a rule", &page.replacen("</style>", ".tl-refused { display: none }</style>", 1));
    refused("a script", &page.replacen("</main>", "<script>document.body.remove()</script></main>", 1));
    // What it was made from: an entry of the resource, one of another resource, a missing entry, the end.
    let chain = refused(
        "an entry",
        &page.replacen("&quot;holder&quot;:&quot;worker-2&quot;", "&quot;holder&quot;:&quot;worker-3&quot;", 1),
    );
    assert!(chain.contains("the hash does not follow the previous entry"), "{chain}");
    refused("an entry of another resource", &page.replacen("bystander", "by-stander", 1));
    let line = page.lines().position(|line| line.contains("bystander")).expect("a line of the chain");
    let without: String =
        page.split_inclusive('\n').enumerate().filter(|(at, _)| *at != line).map(|(_, line)| line).collect();
    refused("a missing entry", &without);
    let cut = refused("the end of the file", &page[..page.len() - 40]);
    assert!(cut.contains("the page is cut"), "{cut}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_was_drawn_again_from_a_cut_chain_is_revealed_by_a_noted_entry_and_by_signed_heads() {
    let mut story = Story::play().await;
    let file = story.page("incident.html", &[]);
    story.restart();
    let (heads, key_file) = (story.path("heads.jsonl"), story.path("keys.json"));
    assert!(story.server.json(&["audit", "heads", &heads])["heads"].as_u64() >= Some(1));
    fs::write(&key_file, story.server.run(&["keys", "export"]).ok().out).expect("the directory is writable");
    let page = fs::read_to_string(&file).expect("the file exists");
    let proof = verify(&file, &["--json"]).ok().json();
    let noted = format!("{}:{}", proof["last"], text(&proof["hash"]));
    // The chain and the heads agree; a head may be younger than the page.
    let whole = story.page("later.html", &[]);
    let agreed = verify(&whole, &["--heads", &heads, "--keys", &key_file]).ok();
    assert!(agreed.out.contains("signed heads agree"), "{agreed:?}");

    // Without the refused writes: the last entries are cut, the chain is closed again, and the page is drawn from it.
    let chain = chain_of(&page).expect("a chain");
    let lines: Vec<&str> = chain.lines().collect();
    let zombie = lines.iter().position(|line| line.contains("\"kind\":\"zombie\"")).expect("the refusal");
    let last: serde_json::Value = serde_json::from_str(lines[zombie - 1]).expect("an entry");
    let end = serde_json::json!({ "end": last["entry"], "hash": last["hash"] });
    let cut = format!("{}\n{end}\n", lines[..zombie].join("\n"));
    let parameters = TraceParameters::new(RESOURCE, 1_900_000_000_000);
    let (proof, entries) = read_chain(&cut, RESOURCE, HeadCheck::default()).expect("it is closed");
    let head = TraceHead { entry: proof.last, hash: hex(&proof.hash) };
    let forged = TraceFile { parameters: &parameters, entries: &entries, head, chain: Some(&cut) }.html();
    let forged_file = story.path("forged.html");
    fs::write(&forged_file, forged).expect("the directory is writable");
    verify(&forged_file, &[]).ok();
    let refused = verify(&forged_file, &["--expect", &noted]).fails(65, "leasehold: CORRUPT");
    assert!(refused.err.contains("were cut"), "{refused:?}");
    let refused = verify(&forged_file, &["--heads", &heads, "--keys", &key_file]).fails(65, "leasehold: CORRUPT");
    assert!(refused.err.contains("were cut"), "{refused:?}");
}
