//! A stream ends when the bearer token of its opening request is revoked or over; the session lives to its ttl (A10).

use std::path::Path;

use leasehold::{BearerTokenFile, Client, ClientBuilder, TlsOptions};

use crate::bearer_tokens::{BearerFiles, CI, grant, read};
use crate::harness::{TlsServer, WORKER, replace, until};
use crate::open_streams::OpenStreams;

fn builder(server: &TlsServer, token: &Path) -> ClientBuilder {
    let builder = Client::builder(&format!("https://{}", server.server.address)).expect("a valid address");
    builder.tls(TlsOptions::without_certificate(&server.servers.cert)).bearer_file(BearerTokenFile::new(token))
}

/// How a token stops to count.
#[derive(Clone, Copy, Debug, PartialEq)]
enum TokenEnd {
    Revocation,
    Expiry,
    Grants,
}

async fn ends_while_streams_are_open(how: TokenEnd) {
    let files = BearerFiles::new();
    let expires = if how == TokenEnd::Expiry { "10s" } else { "1h" };
    let (id, created) = files.create("ci", &["--expires", expires]);
    let (_, of_other) = files.create("other", &["--principal", WORKER]);
    let server = files.serve(&["--file-check", "1"]);
    // The file of the client, which a later token replaces.
    let token = files.path("current.token");
    replace(&token, read(&created).as_bytes());
    let [session, watcher, other] = [&token, &created, &of_other].map(|token| builder(&server, token));
    let mut streams = OpenStreams::open(session, watcher, other).await;
    match how {
        // Noticed by the look at the files, without a signal.
        TokenEnd::Revocation => files.revoke(&id),
        TokenEnd::Expiry => {}
        TokenEnd::Grants => grant(&server, &[WORKER]),
    }
    let end = streams.watch_end().await;
    println!("{how:?}: the watch ended with: {end}");
    let word = match how {
        TokenEnd::Revocation => "revoked",
        TokenEnd::Expiry => "expired",
        TokenEnd::Grants => "not allowed",
    };
    assert!(end.contains(word), "{how:?}: {end}");
    until("the stream of the session has ended", async || streams.guard.check().await.is_err()).await;
    assert!(streams.client.status().await.is_err(), "{how:?}: no new request either");
    streams.assert_nothing_else_ended().await;
    if how == TokenEnd::Grants {
        return;
    }
    // A new token of the same principal resumes the session, because the file is read again.
    let (_, next) = files.create("ci", &[]);
    assert_eq!(next.exists(), created.exists(), "{CI} has a new token");
    replace(&token, read(&next).as_bytes());
    until("the session is resumed with the new token", async || streams.guard.check().await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_does_not_outlive_the_revocation_of_its_token() {
    ends_while_streams_are_open(TokenEnd::Revocation).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_does_not_outlive_its_token() {
    ends_while_streams_are_open(TokenEnd::Expiry).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_does_not_outlive_the_grants_of_its_token() {
    ends_while_streams_are_open(TokenEnd::Grants).await;
}
