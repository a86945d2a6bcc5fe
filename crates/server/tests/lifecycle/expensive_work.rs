//! Expensive work of several identities: one that floods is refused, and holds up no other (A12).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::access::Action;
use leasehold_server::access::{AccessControl, AccessFile};
use leasehold_server::audit::AuditQuery;
use leasehold_server::identity::{Identity, Via, on_behalf_of};
use leasehold_server::journal::memory::Memory;
use leasehold_server::server::{ServerConfig, start};
use leasehold_wire::{problem_from_status, v1};
use tonic::Status;

use crate::fair_turns::client_as;
use crate::transport_clients::{SessionStream, acquire, with_timeout};
use crate::turn_size::{BlockableLocation, JournalControl, wait_for_queue};

const FLOODER: &str = "uid:1";
const WORKER: &str = "uid:2";

fn rules(grants: &[(&str, &str, &str)]) -> AccessFile {
    let grant = |(principal, role, prefix): &(&str, &str, &str)| {
        format!("[[grant]]\nprincipal = {principal:?}\nrole = {role:?}\nprefix = {prefix:?}\n")
    };
    AccessFile::parse(&grants.iter().map(grant).collect::<String>()).expect("the file is valid")
}

fn config(access: &Arc<AccessControl>) -> ServerConfig {
    ServerConfig { listen: SocketAddr::from(([127, 0, 0, 1], 0)), access: access.clone(), ..ServerConfig::default() }
}

async fn until(mut is_so: impl FnMut() -> bool) {
    with_timeout(async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// While nothing is answered, the listings of one identity fill its own places and no others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sorted_listings_of_one_identity_are_refused_and_those_of_another_are_collected() {
    const FLOOD: usize = 30;
    let roles = |principal| [(principal, "holder", ""), (principal, "observer", "")];
    let access = Arc::new(AccessControl::new(&rules(&[roles(FLOODER), roles(WORKER)].concat())));
    let control = Arc::new(JournalControl::default());
    let server = start(BlockableLocation(control.clone()), config(&access)).await.expect("a server starts");
    let (blocker, _serves_blocker) = client_as(&server, &access, WORKER).await;
    let mut blocker = SessionStream::open(blocker).await;
    let (flooder, _serves_flooder) = client_as(&server, &access, FLOODER).await;
    let (mut worker, _serves_worker) = client_as(&server, &access, WORKER).await;
    control.block(&mut blocker).await;
    let sorted = v1::ListLeasesRequest { sort: v1::LeaseSort::Age.into(), ..Default::default() };
    let flood: Vec<_> = (0..FLOOD)
        .map(|_| {
            let (mut client, request) = (flooder.clone(), sorted.clone());
            tokio::spawn(async move { client.list_leases(request).await })
        })
        .collect();
    // Those that may wait are the only ones that are left.
    until(|| flood.iter().filter(|listing| listing.is_finished()).count() >= FLOOD - 8).await;
    let others = tokio::spawn(async move { worker.list_leases(sorted).await });
    // One query of each identity: the other one does not wait for those of the flood.
    wait_for_queue(&server, 2).await;
    control.unblock();
    with_timeout(others).await.expect("no panic").expect("it is collected");
    let mut refused = 0;
    for listing in flood {
        let Err(status) = with_timeout(listing).await.expect("no panic") else { continue };
        assert_eq!(limit_of(&status), ("identity_sorted_listings".to_owned(), 8, 9));
        refused += 1;
    }
    assert_eq!(refused, FLOOD - 8);
    server.stop().await;
}

fn limit_of(status: &Status) -> (String, u64, u64) {
    let problem = problem_from_status(status);
    assert_eq!(problem.code, "RESOURCE_EXHAUSTED", "{problem:?}");
    assert!(problem.message.contains("retry when one has ended"), "{problem:?}");
    (problem.limit, problem.max.expect("a maximum"), problem.got.expect("a count"))
}

/// Open pages show what this server has written, from memory: they neither read files nor wait for those who do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_the_newest_entries_wait_for_no_reader_of_the_log() {
    let grants = [(FLOODER, "holder", ""), (FLOODER, "observer", ""), (WORKER, "observer", "jobs")];
    let access = Arc::new(AccessControl::new(&rules(&grants)));
    let server = start(Memory::default(), config(&access)).await.expect("a server starts");
    let (mut client, _serving) = client_as(&server, &access, FLOODER).await;
    for name in ["jobs/a", "other/b"] {
        client.acquire(acquire(name, "w")).await.expect("the resource is free");
    }
    let api = server.api().clone();
    let readers = api.snapshots.audit_readers();
    let mut permits = Vec::new();
    for _ in 0..4 {
        permits.push(readers.acquire(None).await.expect("without an identity nothing is counted"));
    }
    for (principal, expected) in [(FLOODER, vec!["other/b", "jobs/a"]), (WORKER, vec!["jobs/a"])] {
        let identity = Identity { principal: principal.into(), via: Via::Uid, ..Identity::local(None) };
        let api = api.clone();
        let pages = on_behalf_of(Arc::new(identity), async move {
            let entries = &api.dashboard.entries;
            let visible = entries.latest_visible(&api, 12).await.expect("the overview").entries;
            let visible: Vec<_> = visible.into_iter().filter_map(|entry| entry.resource).collect();
            let of_resource = entries.latest(&api, "jobs/a", 10).await.expect("a resource").entries.len();
            let page = api.audit(AuditQuery { limit: 1, ..AuditQuery::default() }).await.expect("the audit log").0;
            (visible, of_resource, page.entries.len())
        });
        let expected: Vec<_> = expected.into_iter().map(str::to_owned).collect();
        assert_eq!(with_timeout(pages).await, (expected, 1, 1), "{principal}");
    }
    drop(permits);
    server.stop().await;
}

/// The rules change while a page of a reader without rights waits to read the log. What it did not find is not missing for others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_during_a_page_hides_no_entry_from_others() {
    let journal = Memory::default();
    let before =
        start(journal.clone(), config(&Arc::new(AccessControl::unrestricted()))).await.expect("a server starts");
    let mut client = crate::transport_clients::connect(before.address).await;
    client.acquire(acquire("jobs/a", "w")).await.expect("the resource is free");
    before.api().audit(AuditQuery::default()).await.expect("the audit log is written");
    before.stop().await;
    // The entry is in a file now, and not among those that this server wrote.
    let hidden = rules(&[(FLOODER, "observer", "other"), (WORKER, "observer", "")]);
    let visible = rules(&[(FLOODER, "observer", ""), (WORKER, "observer", "")]);
    let access = Arc::new(AccessControl::new(&hidden));
    let server = start(journal, config(&access)).await.expect("a server starts");
    let api = server.api().clone();
    let latest = |principal: &str| {
        let identity = Identity { principal: principal.into(), via: Via::Uid, ..Identity::local(None) };
        let api = api.clone();
        on_behalf_of(Arc::new(identity), async move { api.dashboard.entries.latest(&api, "jobs/a", 10).await })
    };
    let readers = api.snapshots.audit_readers();
    let mut permits = Vec::new();
    for _ in 0..4 {
        permits.push(readers.acquire(None).await.expect("without an identity nothing is counted"));
    }
    let page = tokio::spawn(latest(FLOODER));
    until(|| page.is_finished() || readers.requests_of(FLOODER) > 0).await;
    assert!(access.reload(&visible));
    drop(permits);
    let found = with_timeout(page).await.expect("no panic").expect("the reader may read the audit log");
    assert!(found.entries.is_empty(), "what began before the reload sees nothing");
    assert!(api.authorize(&Arc::new(Identity::local(None)), Action::Audit).is_err(), "the rules apply");
    for principal in [WORKER, FLOODER] {
        let found = with_timeout(latest(principal)).await.expect("the reader may read the audit log");
        let kinds: Vec<_> = found.entries.iter().map(|entry| &*entry.kind).collect();
        assert_eq!(kinds.last(), Some(&"granted"), "{principal}: {kinds:?}");
    }
    server.stop().await;
}
