//! What may not be seen answers like what does not exist: with the same code and the same bytes (A5).

use leasehold_wire::v1;
use prost::Message;
use tonic::{Response, Status};

use crate::access_server::{ADMIN, AccessServer};
use crate::every_action::Subject;
use crate::http_client::raw;
use crate::transport_clients::GrpcClient;

const EXISTING: &str = "secret/exists";
const MISSING: &str = "secret/absent";

/// A response without its date, and with one placeholder for both names.
async fn http_response(address: std::net::SocketAddr, method: &str, path: &str, body: &str) -> String {
    let (status, head, body) = raw(address, method, path, body).await;
    let head: Vec<_> = head.lines().filter(|line| !line.starts_with("date:")).collect();
    let text = format!("{status}\n{}\n{}", head.join("\n"), String::from_utf8_lossy(&body));
    text.replace(EXISTING, "NAME").replace(MISSING, "NAME")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forbidden_and_unknown_names_get_the_same_bytes_over_http() {
    let mut server = AccessServer::start(&[("uid:1", "operator", "jobs"), ("uid:1", "holder", "jobs")]).await;
    let mut admin = server.client_as(ADMIN).await;
    let subject = Subject::create(&mut admin, EXISTING, server.handle.issuer.cluster).await;
    let address = server.listen_as("uid:1").await;
    let number = subject.lease.token_number;
    let comment = r#"{"comment":"c"}"#;
    let requests: [(&str, &str, &str); 14] = [
        ("GET", "/v1/leases/NAME", ""),
        ("GET", "/v1/leases?prefix=NAME", ""),
        ("GET", "/v1/waiters/NAME", ""),
        ("GET", "/v1/ended-leases/NAME", ""),
        ("GET", "/v1/history/NAME", ""),
        ("GET", "/v1/coverage/NAME", ""),
        ("GET", "/v1/charters?resource=NAME", ""),
        ("POST", "/v1/leases/NAME:acquire", r#"{"holder":"w","ttl":"60s"}"#),
        ("POST", "/v1/leases/NAME:revoke", comment),
        ("POST", "/v1/leases/NAME:free", comment),
        ("POST", "/v1/leases/NAME:capacity", r#"{"units":2}"#),
        ("POST", "/v1/leases/NAME:handoff", "{}"),
        ("POST", "/v1/leases/NAME:collect", r#"{"below":"1"}"#),
        ("DELETE", "/v1/coverage/NAME?target=target&comment=c", ""),
    ];
    for (method, path, body) in requests {
        let existing = http_response(address, method, &path.replace("NAME", EXISTING), body).await;
        let missing = http_response(address, method, &path.replace("NAME", MISSING), body).await;
        assert_eq!(existing, missing, "{method} {path}");
        assert!(
            !existing.contains(&number.to_string()) && !existing.contains(crate::every_action::HOLDER),
            "{method} {path}: {existing}"
        );
    }
    // What is addressed by id is judged by its resource, and an id that exists is answered like one that does not.
    let lease = leasehold_wire::lease_id(subject.lease.lease);
    for (method, rest, body) in [
        ("POST", ":renew", "{}"),
        ("POST", ":reconcile", r#"{"leases":[]}"#),
        ("POST", ":cancel", r#"{"sequence":"1"}"#),
        ("POST", ":close", "{}"),
        ("GET", "/leases", ""),
        ("GET", "/events", ""),
    ] {
        let session = leasehold_wire::session_id(subject.session);
        let existing = http_response(address, method, &format!("/v1/sessions/{session}{rest}"), body).await;
        let missing = http_response(address, method, &format!("/v1/sessions/4000.7{rest}"), body).await;
        assert_eq!(existing, missing, "{rest}");
    }
    let by_id = |id: String| format!(r#"{{"comment":"c","lease":"{id}"}}"#);
    let existing = http_response(address, "POST", "/v1/leases/jobs/x:revoke", &by_id(lease.to_string())).await;
    let missing = http_response(address, "POST", "/v1/leases/jobs/x:revoke", &by_id("4000.7".into())).await;
    assert_eq!(existing, missing, "revoke by id");
    let held = admin.show(v1::ShowRequest { resource: EXISTING.into(), min_position: 0 }).await.expect("it exists");
    assert_eq!(held.into_inner().held, 1, "nothing was revoked");
}

/// The message of a result as bytes, or its status.
fn bytes<T: Message>(result: Result<Response<T>, Status>) -> String {
    match result {
        Ok(response) => {
            format!("{:?}", response.into_inner().encode_to_vec()).replace(&ascii(EXISTING), &ascii(MISSING))
        }
        Err(status) => format!("{:?} {} {:?}", status.code(), status.message(), status.details()),
    }
}

/// A text as the debug form of its bytes, without the brackets.
fn ascii(text: &str) -> String {
    let shown = format!("{:?}", text.as_bytes());
    shown[1..shown.len() - 1].to_owned()
}

async fn queries(client: &mut GrpcClient, name: &str) -> Vec<String> {
    let resource = || name.to_owned();
    vec![
        bytes(client.show(v1::ShowRequest { resource: resource(), min_position: 0 }).await),
        bytes(client.waiters(v1::WaitersRequest { resource: resource(), ..Default::default() }).await),
        bytes(client.history(v1::HistoryRequest { resource: resource(), limit: 0 }).await),
        bytes(client.state(v1::StateRequest { resource: resource(), ..Default::default() }).await),
        bytes(client.queue(v1::QueueRequest { queue: resource(), ..Default::default() }).await),
        bytes(client.coverage(v1::CoverageRequest { resource: resource(), min_position: 0 }).await),
        bytes(client.charters(v1::ChartersRequest { resource: resource(), ..Default::default() }).await),
        bytes(client.audit(v1::AuditRequest { resource: resource(), ..Default::default() }).await),
        bytes(client.list(v1::ListRequest { prefix: resource(), ..Default::default() }).await),
        bytes(client.list_leases(v1::ListLeasesRequest { prefix: resource(), ..Default::default() }).await),
        bytes(client.list_leases(v1::ListLeasesRequest { prefix: resource(), sort: 2, ..Default::default() }).await),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forbidden_and_unknown_names_get_the_same_bytes_over_grpc() {
    let mut server = AccessServer::start(&[("uid:1", "observer", "jobs"), ("uid:2", "observer", "secret")]).await;
    let mut admin = server.client_as(ADMIN).await;
    Subject::create(&mut admin, EXISTING, server.handle.issuer.cluster).await;
    let mut stranger = server.client_as("uid:1").await;
    let (existing, missing) = (queries(&mut stranger, EXISTING).await, queries(&mut stranger, MISSING).await);
    assert_eq!(existing, missing);
    // Who may see it gets something else, so the comparison is not between two empty servers.
    let mut observer = server.client_as("uid:2").await;
    let seen = queries(&mut observer, EXISTING).await;
    for (at, (seen, hidden)) in seen.iter().zip(&existing).enumerate().filter(|(at, _)| ![1, 3, 4, 6].contains(at)) {
        assert_ne!(seen, hidden, "query {at}");
    }
}

/// A listing shows only what may be seen, whatever page and limit are chosen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_contain_only_visible_names() {
    let mut server = AccessServer::start(&[("uid:1", "holder", "team/a"), ("uid:2", "observer", "")]).await;
    let mut admin = server.client_as(ADMIN).await;
    for number in 0..40 {
        for prefix in ["team/a", "team/ab", "team/b"] {
            let request = crate::transport_clients::acquire(&format!("{prefix}/{number}"), "same holder");
            admin.acquire(request).await.expect("the name is free");
        }
    }
    for limit in [0, 1, 7] {
        for (principal, count) in [("uid:1", 40), ("uid:2", 120)] {
            let mut client = server.client_as(principal).await;
            let (mut found, mut cursor) = (Vec::new(), 0);
            loop {
                let request = v1::ListRequest { limit, cursor, ..Default::default() };
                let page = client.list(request).await.expect("a list").into_inner();
                assert!(limit == 0 || page.resources.len() <= limit as usize);
                found.extend(page.resources.into_iter().map(|resource| resource.resource));
                let Some(next) = page.next_cursor else { break };
                assert!(next > cursor, "a page makes progress");
                cursor = next;
            }
            assert_eq!(found.len(), count, "{principal}");
            assert!(principal == "uid:2" || found.iter().all(|name| name.starts_with("team/a/")), "{found:?}");
            let request = v1::HeldByRequest { holder: "same holder".into(), after: 0, limit };
            let held = client.held_by(request).await.expect("leases").into_inner().leases;
            let expected = if limit == 0 { count } else { count.min(limit as usize) };
            assert_eq!(held.len(), expected, "{principal}");
            assert!(principal == "uid:2" || held.iter().all(|lease| lease.resource.starts_with("team/a/")));
        }
    }
}

/// The names of a page of leases.
fn names(page: &v1::ListedLeases) -> Vec<String> {
    page.leases.iter().map(|one| one.lease.as_ref().expect("a lease").resource.clone()).collect()
}

/// Pages and cursors of leases show only what their caller may see at that time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_leases_contain_only_visible_names_and_serve_only_their_caller() {
    let grants = [("uid:1", "holder", "team/a"), ("uid:2", "observer", "")];
    let mut server = AccessServer::start(&grants).await;
    let mut admin = server.client_as(ADMIN).await;
    for number in 0..20 {
        for prefix in ["team/a", "team/ab", "team/b"] {
            let request = crate::transport_clients::acquire(&format!("{prefix}/{number}"), "same holder");
            admin.acquire(request).await.expect("the name is free");
        }
    }
    let (mut holder, mut observer) = (server.client_as("uid:1").await, server.client_as("uid:2").await);
    for sort in [v1::LeaseSort::Unspecified, v1::LeaseSort::Name, v1::LeaseSort::Age].map(i32::from) {
        for (client, count) in [(&mut holder, 20), (&mut observer, 60)] {
            let mut request = v1::ListLeasesRequest { sort, limit: 7, ..Default::default() };
            let (mut found, mut pages) = (Vec::new(), 0);
            loop {
                let page = client.list_leases(request.clone()).await.expect("a page").into_inner();
                found.extend(names(&page));
                pages += 1;
                if page.next_cursor.is_empty() {
                    break;
                }
                request.cursor = page.next_cursor;
            }
            assert!(count == 60 || found.iter().all(|name| name.starts_with("team/a/")), "{found:?}");
            assert!(sort == 0 || pages == usize::div_ceil(count, 7), "{pages} pages show nothing of {count}");
            found.sort_unstable();
            found.dedup();
            assert_eq!(found.len(), count);
        }
    }
    let request = v1::ListLeasesRequest { sort: v1::LeaseSort::Name.into(), limit: 7, ..Default::default() };
    let first = observer.list_leases(request.clone()).await.expect("a page").into_inner();
    let next = v1::ListLeasesRequest { cursor: first.next_cursor, ..request };
    let refused = holder.list_leases(next.clone()).await.expect_err("the cursor of another identity");
    assert_eq!(leasehold_wire::problem_from_status(&refused).code, "NOT_FOUND");
    let fewer = crate::access_server::access_file(&[("uid:1", "holder", "team/a"), ("uid:2", "observer", "team/ab")]);
    assert!(server.control.reload(&fewer));
    let page = observer.list_leases(v1::ListLeasesRequest { limit: 500, ..next }).await.expect("a page").into_inner();
    assert_eq!(page.leases.len(), 20, "{:?}", names(&page));
    assert!(names(&page).iter().all(|name| name.starts_with("team/ab/")), "{:?}", names(&page));
}
