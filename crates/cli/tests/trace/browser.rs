//! The page in a real browser: it is readable, logs nothing, and asks for nothing.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::story::Story;

/// What a browser did with a file.
struct Visit {
    /// The document after it was loaded.
    dom: String,
    /// Messages of the console.
    console: Vec<String>,
    /// Addresses that the page asked for.
    requests: Vec<String>,
}

/// Opens a file in a browser with an empty profile.
fn visit(file: &Path) -> Visit {
    let profile = tempfile::tempdir().expect("a directory");
    let net_log = profile.path().join("net.json");
    let mut command = Command::new("chromium");
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage"]);
    command.args(["--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]);
    command.args(["--enable-logging=stderr", "--v=0", "--dump-dom"]);
    command.arg(format!("--log-net-log={}", net_log.display()));
    command.arg(format!("--user-data-dir={}", profile.path().join("profile").display()));
    let output = command.arg(format!("file://{}", file.display())).stdin(Stdio::null()).output();
    let output = output.expect("chromium is installed, see ./test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let log = String::from_utf8_lossy(&output.stderr);
    let console = log.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
    let net: Value =
        serde_json::from_slice(&std::fs::read(&net_log).expect("the log exists")).expect("the log is JSON");
    // What the browser asks for by itself has no origin as its initiator.
    let of_page = |event: &Value| {
        let parameters = &event["params"];
        let initiator = parameters["initiator"].as_str().filter(|initiator| *initiator != "not an origin")?;
        Some(format!("{} for {initiator}", parameters["url"].as_str()?))
    };
    let events = net["events"].as_array().expect("a list of events");
    let requests = events.iter().filter_map(of_page).collect();
    Visit { dom: String::from_utf8_lossy(&output.stdout).into_owned(), console, requests }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_shows_the_story_without_an_error_and_without_a_request() {
    let story = Story::play().await;
    let file = story.page("incident.html", &[]);
    let seen = visit(Path::new(&file));
    let (numbers, dom) = (&story.numbers, &seen.dom);
    let first = format!("#{}", numbers[0]);
    for part in [
        "Timeline of jobs/settle",
        "worker &lt;1&gt;",
        "worker-2",
        "ledger",
        first.as_str(),
        "gap ",
        "refused 2 writes",
    ] {
        assert!(dom.contains(part), "no {part} in {dom}");
    }
    assert_eq!((seen.console, seen.requests), (Vec::<String>::new(), Vec::<String>::new()));

    // The same look finds a message and a request where there are some.
    let page = std::fs::read_to_string(&file).expect("the file exists");
    let open = page.replacen("default-src 'none'", "default-src * 'unsafe-inline'", 1);
    let active = "<script>console.error('seen')</script><img src=\"http://127.0.0.1:1/pixel.png\"></main>";
    let changed = story.folder.path().join("changed.html");
    std::fs::write(&changed, open.replacen("</main>", active, 1)).expect("the directory is writable");
    let seen = visit(&changed);
    assert!(seen.console.iter().any(|line| line.contains("seen")), "{:?}", seen.console);
    assert!(seen.requests.iter().any(|request| request.contains("127.0.0.1:1/pixel.png")), "{:?}", seen.requests);
    // And the policy of the page stops both.
    std::fs::write(&changed, page.replacen("</main>", active, 1)).expect("the directory is writable");
    let seen = visit(&changed);
    assert!(!seen.console.iter().any(|line| line.contains("\"seen\"")), "{:?}", seen.console);
    assert!(seen.console.iter().any(|line| line.contains("Content Security Policy")), "{:?}", seen.console);
    assert_eq!(seen.requests, Vec::<String>::new());
}
