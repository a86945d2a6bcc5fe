//! Pages of other sites, in a real browser: a person may follow a link to a page, and nothing else reaches the server. What scripts of
//! such a page can try is in `tests/browser`.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

use serde_json::json;

use crate::chromium::Chromium;
use crate::page::Page;
use crate::scene::Scene;

/// The page of another site, with the address of the server.
const PAGE: &str = r#"<!doctype html><title>another site</title>
<a href="SERVER/ui/leases" target="_blank" rel="opener">leases</a>
<button onclick="document.querySelector('form').submit()">act</button>
<form method="post" action="SERVER/ui/actions/revoke"><input name="resource" value="billing/settle"><input name="comment" value="evil"></form>
<iframe src="SERVER/ui/leases"></iframe>"#;

/// Serves a page on a free port.
fn serve(page: String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("a bound address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // The browser may close a connection at any time.
            let _ = respond(stream, &page);
        }
    });
    port
}

fn respond(mut stream: TcpStream, page: &str) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
    }
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/html; charset=utf-8\r\nconnection: close\r\n";
    write!(stream, "{head}content-length: {}\r\n\r\n{page}", page.len())
}

pub fn a_link_opens_a_page_and_nothing_else_does(browser: &Chromium) {
    let scene = Scene::start();
    let site = format!("http://evil.test:{}/", serve(PAGE.replace("SERVER", &scene.url(""))));
    let page = Page::open(browser);
    page.goto(&site);
    let frame = scene.url("/ui/leases");
    page.wait_for("document.querySelector('iframe') !== null");
    assert_eq!(page.statuses(&frame), [403], "a page of the server in a frame of another site");

    // A person follows the link.
    page.click("a", "leases");
    let opened = page.opened();
    opened.wait_for("document.title.startsWith('Leases')");
    assert!(opened.text().contains("media/transcode/4711"), "{}", opened.text());
    assert_eq!(opened.eval("window.opener"), json!(null), "the two pages have no hold on each other");
    drop(opened);

    // A script leads to the same address.
    let own = Page::open(browser);
    own.goto(&site);
    own.eval(&format!("location.assign({})", json!(frame)));
    own.wait_for(
        "document.title.startsWith('Problem') || document.body.innerText.includes('another site may not send')",
    );
    assert!(!own.text().contains("media/transcode/4711"), "{}", own.text());

    // A form of the other site acts, even by the click of a person.
    let form = Page::open(browser);
    form.goto(&site);
    form.click("button", "act");
    form.wait_for("location.pathname === '/ui/actions/revoke'");
    form.wait_for("document.body.innerText.includes('a web page of another origin may not send requests')");
    let shown = scene.server.json(&["show", "billing/settle"]);
    assert_eq!(shown["leases"][0]["holder"], json!("settle-2"), "{shown}");
}

pub fn a_page_under_another_name_shows_nothing(browser: &Chromium) {
    let scene = Scene::start();
    let port = scene.server.address.rsplit(':').next().expect("a port").to_owned();
    let page = Page::open(browser);
    for (path, _) in
        crate::scene::VIEWS.into_iter().chain([("/ui/changes", ""), ("/ui/actions/revoke?resource=billing/settle", "")])
    {
        let url = format!("http://evil.test:{port}{path}");
        page.goto(&url);
        assert_eq!(page.statuses(&url), [403], "{path}");
        let text = page.text();
        assert!(text.contains("is not a name of this server"), "{path}: {text}");
        assert!(!text.contains("settle-2") && !text.contains("transcode"), "{path}: {text}");
    }
    page.goto(&format!("http://localhost:{port}/ui/leases"));
    assert!(page.text().contains("media/transcode/4711"), "under its own name it answers: {}", page.text());
}
