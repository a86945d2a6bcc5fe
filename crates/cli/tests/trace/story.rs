//! The story of every post-mortem: a holder falls silent, its lease expires, a successor claims, and the target refuses the first.

use std::path::Path;
use std::process::Command;

use leasehold::report::{FenceMode, Reporter};
use leasehold::{Client, Endpoints};
use leasehold_fence::FenceId;
use leasehold_fence::sqlite::Fence;
use rusqlite::Connection;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{CommandRun, Server, leasehold, run, text};

pub const RESOURCE: &str = "jobs/settle";

/// A server with a seal key on which the story has happened.
pub struct Story {
    pub folder: TempDir,
    pub server: Server,
    /// Token numbers of the two holders.
    pub numbers: [String; 2],
    /// Texts of their tokens.
    pub tokens: [String; 2],
}

impl Story {
    pub async fn play() -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let path = |name: &str| folder.path().join(name).to_str().expect("a UTF-8 path").to_owned();
        run(&mut leasehold(&["keys", "create", "--keys", &path("keys")])).ok();
        let server = serve(folder.path());
        let mut db = Connection::open(path("ledger.db")).expect("a database");
        db.pragma_update(None, "journal_mode", "wal").expect("a mode");
        db.pragma_update(None, "synchronous", "FULL").expect("a setting");
        db.execute_batch("CREATE TABLE paid (invoice INTEGER PRIMARY KEY) STRICT").expect("a table");
        let ledger = format!("sqlite:{}", path("ledger.db"));
        server.run(&["fence", "arm", &ledger, "--resource", RESOURCE]).ok();
        let first = server.json(&["acquire", RESOURCE, "--holder", "worker <1>", "--ttl", "300ms"]);
        server.acquire("jobs/other", "bystander");
        // It waits until the first lease has expired.
        let second = ["acquire", RESOURCE, "--holder", "worker-2", "--ttl", "60s", "--wait", "60s"];
        let second = server.json(&second);
        let [zombie, successor] = [&first, &second].map(|grant| text(&grant["token"]));

        let client = Client::from(Endpoints::parse(&server.address).expect("an address with a port"));
        let cluster = text(&server.json(&["status"])["cluster"]).parse().expect("a cluster id");
        let reporter = Reporter::new(&client, cluster).expect("a reporter");
        let observer = reporter.target("ledger", FenceMode::Cooperative).expect("a name");
        let fence = Fence::new(&FenceId::new(cluster, RESOURCE).expect("a name")).with_observer(observer);
        fence.claim(&mut db, &zombie).expect("the first holder claims");
        fence.claim(&mut db, &successor).expect("the second holder claims");
        for _ in 0..2 {
            let late = fence.write(&mut db, &zombie, |tx| tx.execute("INSERT INTO paid VALUES (7)", []));
            late.expect_err("the fence refuses a former holder");
        }
        reporter.flush().await.expect("the grantor is there");
        reporter.close().await.expect("nothing is left");
        let numbers = [&first, &second].map(|grant| text(&grant["token_number"]));
        Self { folder, server, numbers, tokens: [zombie, successor] }
    }

    /// Stops the server and starts it again; it signs the end of its audit log.
    pub fn restart(&mut self) {
        self.server.signal("TERM");
        assert_eq!(self.server.wait(), Some(0));
        self.server = serve(self.folder.path());
    }

    pub fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("a UTF-8 path").to_owned()
    }

    pub fn trace(&self, args: &[&str]) -> CommandRun {
        run(&mut self.command(args))
    }

    pub fn command(&self, args: &[&str]) -> Command {
        self.server.command(&[&["trace", RESOURCE][..], args].concat())
    }

    /// Writes a page and returns its path.
    pub fn page(&self, name: &str, args: &[&str]) -> String {
        let file = self.path(name);
        self.trace(&[&["--html", "--out", &file][..], args].concat()).ok();
        file
    }
}

fn serve(folder: &Path) -> Server {
    let path = |name: &str| folder.join(name).to_str().expect("a UTF-8 path").to_owned();
    Server::with_flags(&["--listen", "127.0.0.1:0", "--data", &path("data"), "--keys", &path("keys")])
}

fn events(trace: &Value) -> Vec<String> {
    let events = trace["events"].as_array().unwrap_or_else(|| panic!("{trace}"));
    events
        .iter()
        .map(|event| format!("{} {}", text(&event["event"]), event["holder"].as_str().unwrap_or("-")))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_shows_the_story_in_lines_and_as_json() {
    let story = Story::play().await;
    let traced = story.trace(&[]).ok();
    assert_eq!(traced.err, "", "nothing was left out");
    let lines: Vec<&str> = traced.out.lines().collect();
    assert!(lines[1].starts_with("state     Held by worker-2 for "), "{traced:?}");
    assert!(lines[3].starts_with("TIME (UTC)"), "{traced:?}");
    let line = |event: &str, holder: &str| {
        let found = lines.iter().find(|line| line.contains(event) && line.contains(holder));
        *found.unwrap_or_else(|| panic!("no line with {event} of {holder}:\n{}", traced.out))
    };
    assert!(line("granted", "worker <1>").contains("ttl 300 ms"), "{traced:?}");
    assert!(line("silent", "worker <1>").contains("no renewal arrives from here on"), "{traced:?}");
    assert!(line("ended", "worker <1>").contains("expired: ttl"), "{traced:?}");
    assert!(line("granted", "worker-2").contains("gap "), "{traced:?}");
    assert!(line("first report", "-").contains("target ledger, cooperative"), "{traced:?}");
    let refused = line("refused", "worker <1>");
    assert!(refused.contains("ledger refused 2 writes") && refused.contains(&story.numbers[0]), "{refused}");
    assert!(refused.contains(&format!("its mark is {}", story.numbers[1])), "{refused}");
    assert!(!traced.out.contains("bystander"), "{traced:?}");

    let json = story.trace(&["--json"]).ok().json();
    let found = events(&json);
    let position =
        |event: &str| found.iter().position(|one| one == event).unwrap_or_else(|| panic!("no {event} in {found:?}"));
    let order = ["granted worker <1>", "ended worker <1>", "granted worker-2", "refused worker <1>"].map(position);
    assert!(order.windows(2).all(|pair| pair[0] < pair[1]), "{found:?}");
    assert!(position("silent worker <1>") < order[1], "{found:?}");
    let second = &json["events"][order[2]];
    assert!(second["gap_ms"].is_u64() && second["overlap_ms"].is_null(), "{second}");
    assert_eq!(json["has_older"], false);

    // A range and a moment, as times of the server's clock.
    let at = second["at_ms"].as_u64().expect("a time");
    let later = story.trace(&["--json", "--from", &at.to_string()]).ok().json();
    assert!(!events(&later).contains(&"granted worker <1>".to_owned()), "{later}");
    assert!(events(&later).contains(&"granted worker-2".to_owned()), "{later}");
    let marked = story.trace(&["--at", &at.to_string()]).ok().out;
    assert_eq!(marked.lines().filter(|line| line.ends_with("<--")).count(), 1, "{marked}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drawing_and_a_page_stand_alone_and_contain_no_token() {
    let story = Story::play().await;
    let svg = story.trace(&["--svg"]).ok().out;
    assert!(svg.starts_with("<svg class=\"timeline\" xmlns=\"http://www.w3.org/2000/svg\""), "{svg}");
    let page = std::fs::read_to_string(story.page("incident.html", &[])).expect("the file exists");
    let printed = story.trace(&["--html", "--out", "-"]).ok().out;
    assert_eq!(printed.matches("<tr").count(), page.matches("<tr").count(), "standard output gets the same page");
    for (name, document) in [("svg", &svg), ("page", &page)] {
        for part in ["tl-hatch", "gap ", "tl-refused", "prefers-color-scheme: dark", "worker &lt;1&gt;"] {
            assert!(document.contains(part), "no {part} in the {name}");
        }
        let other = document.replace("http://www.w3.org/2000/svg", "");
        for part in ["<script", "http:", "https:", " src=", "url(/", "url(h", "@import", "<link"] {
            assert!(!other.contains(part), "{part} in the {name}");
        }
        assert!(
            story.tokens.iter().all(|token| token.starts_with("lh2-") && !document.contains(token.as_str())),
            "{name}"
        );
    }
    assert!(page.contains("Content-Security-Policy") && page.contains("default-src 'none'"), "{page}");
    assert!(page.contains("bystander"), "the chain contains every entry");
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_have_lines_and_turnovers_of_their_own() {
    let server = Server::start();
    let acquire = |holder: &str| {
        let grant = server.json(&["acquire", "pool", "--holder", holder, "--ttl", "60s", "--slots", "2"]);
        (text(&grant["token"]), grant["slot"].as_u64().expect("a slot"))
    };
    let (first, slot) = acquire("a");
    let (_, other) = acquire("b");
    assert_ne!(slot, other);
    server.run(&["release", "pool", "--token", &first]).ok();
    assert_eq!(acquire("c").1, slot);
    let trace = server.json(&["trace", "pool"]);
    let of = |holder: &str| {
        let events = trace["events"].as_array().expect("a list").iter();
        events.clone().find(|event| event["holder"] == holder && event["event"] == "granted").expect("a grant").clone()
    };
    assert_eq!((of("b")["slot"].as_u64(), of("b")["gap_ms"].is_null()), (Some(other), true), "{trace}");
    assert_eq!((of("c")["slot"].as_u64(), of("c")["gap_ms"].is_u64()), (Some(slot), true), "{trace}");
    assert!(server.run(&["trace", "pool", "--svg"]).ok().out.contains("gap "), "the drawing has the gap");
}
