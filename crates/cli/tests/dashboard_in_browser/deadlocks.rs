//! Deadlocks on the page of waits: drawn with the victim, replayed, and resolved.

use std::time::Duration;

use leasehold::{Client, Code, Guard};
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::chromium::Chromium;
use crate::images;
use crate::page::{DESKTOP, Page, Screen};
use crate::scene::api;
use crate::support::Server;
use crate::views::assert_quiet;

/// Transfers between accounts, each of which holds one account.
struct Transfers {
    server: Server,
    runtime: Runtime,
    clients: Vec<Client>,
    held: Vec<Guard>,
}

const ACCOUNTS: [&str; 3] = ["accounts/1042", "accounts/2077", "accounts/3110"];
const HOLDERS: [&str; 3] = ["transfer-a", "transfer-b", "transfer-c"];

impl Transfers {
    fn start(count: usize) -> Self {
        let server = Server::start();
        let runtime = Runtime::new().expect("threads start");
        let mut transfers = Self { server, runtime, clients: Vec::new(), held: Vec::new() };
        for (account, holder) in ACCOUNTS.into_iter().zip(HOLDERS).take(count) {
            let client = Client::new(&transfers.server.address).expect("an address");
            let lock = client.lock(account).holder(holder).ttl(Duration::from_secs(30));
            transfers.held.push(transfers.runtime.block_on(lock.acquire()).expect("the account is free"));
            transfers.clients.push(client);
        }
        transfers
    }

    /// Lets a transfer wait for another account, and returns when it waits or is refused.
    fn wait_for(&self, transfer: usize, account: usize) -> JoinHandle<Result<Guard, Option<Code>>> {
        let lock =
            self.clients[transfer].lock(ACCOUNTS[account]).holder(HOLDERS[transfer]).ttl(Duration::from_secs(30));
        let lock = lock.wait(Duration::from_secs(3_600));
        self.runtime.spawn(async move { lock.acquire().await.map_err(|error| error.into_error().code()) })
    }

    fn url(&self) -> String {
        format!("http://{}/ui/waits", self.server.address)
    }
}

pub fn a_deadlock_is_drawn_with_its_victim_and_replayed(browser: &Chromium) {
    let mut transfers = Transfers::start(3);
    let page = Page::open(browser);
    page.goto(&transfers.url());
    page.wait_for_text("No one waits.");
    let first = transfers.wait_for(0, 1);
    transfers.server.wait_for_waiter(ACCOUNTS[1]);
    let second = transfers.wait_for(1, 2);
    transfers.server.wait_for_waiter(ACCOUNTS[2]);
    // A chain is a tree: each holder is below the one it waits for.
    page.wait_for("/transfer-c[^]*accounts\\/3110[^]*transfer-b[^]*accounts\\/2077[^]*transfer-a/.test(document.querySelector('.tree')?.innerText)");
    assert_eq!(page.count("svg.cycle"), 0);

    let refused = transfers.runtime.block_on(transfers.wait_for(2, 0)).expect("no panic");
    assert_eq!(refused.expect_err("the wait would never end"), Some(Code::Deadlock));
    page.wait_for("document.querySelectorAll('svg.cycle').length === 1");
    assert_eq!(page.eval("document.querySelector('svg.cycle .victim text').textContent"), json!("transfer-c"));
    assert_eq!(page.count("svg.cycle .member"), 3);
    let caption = page.eval("document.querySelector('figcaption').innerText");
    assert!(
        caption.as_str().is_some_and(|text| text.contains("3 members") && text.contains("transfer-c")),
        "{caption}"
    );

    page.click("figure a.button", "Replay");
    page.wait_for("location.search.includes('replay=')");
    let steps = page.eval("[...document.querySelectorAll('#replay ol li')].map(one => one.innerText)");
    let expected = [
        "transfer-a waits for accounts/2077, which transfer-b holds.",
        "transfer-b waits for accounts/3110, which transfer-c holds.",
        "transfer-c waits for accounts/1042, which transfer-a holds.",
    ];
    let steps: Vec<&str> = steps.as_array().expect("a list").iter().filter_map(|step| step.as_str()).collect();
    assert_eq!(steps.len(), 4, "{steps:?}");
    for step in expected {
        assert!(steps[..3].contains(&step), "{step} in {steps:?}");
    }
    assert!(steps[3].contains("transfer-c") && steps[3].contains("victim"), "{steps:?}");
    // The arrows appear one after the other.
    let visible = |seconds: f64| {
        page.eval("document.querySelector('#replay svg').pauseAnimations()");
        page.eval(&format!("document.querySelector('#replay svg').setCurrentTime({seconds})"));
        page.eval("[...document.querySelectorAll('#replay svg g.wait')].filter(one => getComputedStyle(one).opacity === '1').length").as_u64()
    };
    assert_eq!((visible(0.1), visible(100.0)), (Some(1), Some(3)));
    page.eval("scrollTo(0, 0)");
    images::keep(&page, "deadlock", Screen { height: 560, ..DESKTOP });

    // The victim gives up what it holds, and the others go on.
    page.goto(&transfers.url());
    let victim = transfers.held.pop().expect("it holds an account");
    transfers.runtime.block_on(victim.release()).expect("it is held");
    let granted = transfers.runtime.block_on(second).expect("no panic").expect("the account is free");
    page.wait_for("!document.querySelector('.tree')?.innerText.includes('accounts/3110')");
    let second = transfers.held.pop().expect("it holds an account");
    transfers.runtime.block_on(second.release()).expect("it is held");
    let last = transfers.runtime.block_on(first).expect("no panic").expect("the account is free");
    page.wait_for_text("No one waits.");
    assert_eq!(page.count("svg.cycle"), 1, "the deadlock of the past is still drawn");
    assert_quiet(&page);
    drop((granted, last));
}

pub fn a_deadlock_that_is_only_reported_is_drawn_until_an_operator_resolves_it(browser: &Chromium) {
    let transfers = Transfers::start(2);
    let charter = json!({ "charter": { "deadlock": "report" }, "comment": "found by people" });
    api(&transfers.server, "PUT", "/v1/charters/accounts", &charter);
    let page = Page::open(browser);
    page.goto(&transfers.url());
    let first = transfers.wait_for(0, 1);
    transfers.server.wait_for_waiter(ACCOUNTS[1]);
    let second = transfers.wait_for(1, 0);
    transfers.server.wait_for_waiter(ACCOUNTS[0]);
    page.wait_for("document.querySelector('.tree')?.innerText.includes('(shown above)')");
    page.wait_for("document.querySelectorAll('svg.cycle .member').length === 2");
    assert!(page.text().contains("only reported: the charter chooses no victim"), "{}", page.text());
    assert_eq!(page.count(".victim"), 0);
    transfers.server.run(&["revoke", ACCOUNTS[0], "--comment", "breaks the cycle"]).ok();
    let granted = transfers.runtime.block_on(second).expect("no panic").expect("the account is free");
    page.wait_for("!document.querySelector('.tree')?.innerText.includes('(shown above)')");
    page.wait_for("/transfer-b[^]*accounts\\/2077[^]*transfer-a/.test(document.querySelector('.tree').innerText)");
    assert_quiet(&page);
    first.abort();
    drop(granted);
}
