//! The whole story on one open page: a holder is paused, a successor follows, and PostgreSQL refuses the late write of the first.

use std::process::{Command, Stdio};

use leasehold_testkit::process::TestProcess;
use serde_json::{Value, json};

use crate::chromium::Chromium;
use crate::images;
use crate::page::{DESKTOP, Page, Screen};
use crate::scene::{RESOURCE, api};
use crate::server::Server as PostgresServer;
use crate::support::Server;
use crate::views::assert_quiet;
use crate::worker::{ROLE, TARGET};

/// Long enough that someone sees the silence of the holder before the lease ends.
const TTL_MS: &str = "6000";

/// A server, and a database whose table `paid` is protected by the resource.
struct Story {
    server: Server,
    postgres: PostgresServer,
    runtime: tokio::runtime::Runtime,
}

impl Story {
    fn start() -> Self {
        let (server, postgres) = (Server::start(), PostgresServer::start(&[]));
        let runtime = tokio::runtime::Runtime::new().expect("threads start");
        let socket = postgres.socket().to_str().expect("a plain path").replace('/', "%2F");
        let url = format!("postgres://leasehold@{socket}/postgres");
        let story = Self { server, postgres, runtime };
        story.sql("CREATE TABLE paid (invoice bigint)");
        story.server.run(&["fence", "arm", &url, "--resource", RESOURCE]).ok();
        story.server.run(&["fence", "protect", &url, "--resource", RESOURCE, "--table", "paid"]).ok();
        let target = json!({ "name": TARGET, "at": "postgres://db/billing", "mode": "forced" });
        let charter = json!({ "charter": { "targets": [target] }, "comment": "agreed with finance" });
        api(&story.server, "PUT", "/v1/charters/billing", &charter);
        story
    }

    fn sql(&self, statement: &str) -> Vec<i64> {
        self.runtime.block_on(async {
            let db = self.postgres.connect("leasehold", "postgres").await.expect("connected");
            let rows = db.query(statement, &[]).await.expect("the statement is correct");
            rows.iter().map(|row| row.get(0)).collect()
        })
    }

    fn worker(&self, holder: &str) -> TestProcess {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args([ROLE, &self.server.address, RESOURCE, holder, TTL_MS]).arg(self.postgres.socket());
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        TestProcess::spawn(piped).expect("this program starts")
    }
}

/// The bar of a holder.
fn bar(holder: &str) -> String {
    format!(
        "[...document.querySelectorAll('.tl-hold')].find(one => one.querySelector('title').textContent.startsWith('{holder}, token'))"
    )
}

pub fn a_paused_holder_its_successor_and_the_refused_write_appear_while_they_happen(browser: &Chromium) {
    let story = Story::start();
    let page = Page::open(browser);
    page.goto(&format!("http://{}/ui/resource/{RESOURCE}", story.server.address));
    page.eval("window.isFirst = true");
    page.wait_for_text("Nothing has happened to this resource");

    let mut first = story.worker("settle-1");
    let old = first.stdout().wait_for_rest("granted ");
    page.wait_for(&format!("{}?.querySelector('.tl-bar-open')", bar("settle-1")));
    first.stdout().wait_for("claimed");
    first.send_line("1");
    first.stdout().wait_for("written");
    page.wait_for(
        "document.querySelector('.tl-claim title')?.textContent.startsWith('first report of ledger, forced')",
    );
    // An image shows more of its work.
    let renewals = if images::is_blessed() { 5 } else { 2 };
    page.wait_for(&format!("document.querySelectorAll('.tl-renewal').length >= {renewals}"));

    let mut second = story.worker("settle-2");
    second.stdout().wait_for("waiting");
    page.wait_for("[...document.querySelectorAll('h2')].find(one => one.textContent.startsWith('Waiters')).parentElement.textContent.includes('settle-2')");

    first.stop();
    page.wait_for(&format!("{}.querySelector('.tl-hatch')", bar("settle-1")));
    let new = second.stdout().wait_for_rest("granted ");
    page.wait_for(&format!("{}.querySelector('.tl-end-expired')", bar("settle-1")));
    page.wait_for(&format!("{}?.querySelector('.tl-bar-open')", bar("settle-2")));
    page.wait_for(
        "[...document.querySelectorAll('.tl-turnover')].some(one => /^gap [0-9.]+ m?s$/.test(one.textContent))",
    );
    assert_eq!(page.count("path.tl-refused"), 0, "nothing has been refused yet");
    second.stdout().wait_for("claimed");
    second.send_line("2");
    second.stdout().wait_for("written");

    // The write is in the input of the paused process: it is the first thing that it does when it resumes.
    first.send_line("3");
    first.resume();
    let refusal = first.stdout().wait_for_rest("refused ");
    assert!(refusal.contains(&old) && refusal.contains(&new), "the fence names both numbers: {refusal}");
    page.wait_for("document.querySelector('path.tl-refused')");
    let mark = page.eval("document.querySelector('path.tl-refused').parentElement.querySelector('title').textContent");
    let sentence = format!("ledger refused 1 write of settle-1 with token {old} at ");
    assert!(
        mark.as_str().is_some_and(|mark| mark.starts_with(&sentence) && mark.ends_with(&format!("its mark is {new}"))),
        "{mark}"
    );
    assert_eq!(page.count("path.tl-tail"), 1, "a line leads from the end of its lease to the mark");
    assert_eq!(
        story.sql("SELECT invoice FROM paid ORDER BY invoice"),
        [1, 2],
        "the database has no write of the zombie"
    );
    assert_eq!(
        page.eval("window.isFirst"),
        json!(true),
        "all of this appeared on one page, which was never loaded again"
    );
    assert_quiet(&page);

    if images::is_blessed() {
        // The successor goes on for a while.
        page.wait_for("document.querySelectorAll('.tl-renewal').length >= 9");
    }
    images::keep(&page, "timeline", Screen { height: 640, ..DESKTOP });
    page.set_colors("dark");
    images::keep(&page, "timeline-dark", Screen { height: 640, ..DESKTOP });
    page.set_colors("light");

    // The mark leads to its entry in the history.
    page.eval("document.querySelector('path.tl-refused').closest('a').dispatchEvent(new MouseEvent('click', { bubbles: true, cancelable: true }))");
    page.wait_for("document.querySelector('tr:target')?.textContent.includes('zombie')");
    page.goto(&format!("http://{}/", story.server.address));
    page.wait_for_text("refused 1 write");
    let value = "[...document.querySelectorAll('.stats .label')].find(one => one.textContent.startsWith('zombie'))?.nextElementSibling.textContent";
    page.wait_for(&format!("{value} === '1'"));
    let coverage: Value = story.server.run(&["coverage", RESOURCE, "--json"]).ok().json();
    assert_eq!(coverage["targets"][0]["slots"][0]["zombies"], json!(1), "{coverage}");
    assert_quiet(&page);
}
