//! Each view shows only what its reader may see, and says why a part is missing.

use crate::scene::{Scene, VIEWS, page};

const GRANTS: [(&str, &str, &str); 4] = [
    ("uid:1", "observer", "jobs"),
    ("uid:2", "holder", "disks"),
    ("uid:3", "reporter", "jobs"),
    ("uid:4", "observer", ""),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_of_a_prefix_sees_that_prefix_on_every_view() {
    let mut scene = Scene::start(&GRANTS).await;
    let mut observer = scene.server.http_as("uid:1").await;
    let mut all = scene.server.http_as("uid:4").await;
    for path in VIEWS {
        let (seen, everything) = (page(&mut observer, path).await, page(&mut all, path).await);
        assert!(!seen.contains("disks"), "{path}: {seen}");
        // The comparison is not between two empty pages.
        let shows_disks = ["/", "/ui/leases", "/ui/coverage", "/ui/audit"].contains(&path);
        assert_eq!(everything.contains("disks/d1"), shows_disks, "{path}: {everything}");
    }
    // What another reader has just seen is not shown to this one.
    assert!(page(&mut all, "/ui/resource/disks/d1").await.contains("worker-1, token"));
    let hidden = page(&mut observer, "/ui/resource/disks/d1").await;
    let missing = page(&mut observer, "/ui/resource/disks/d2").await;
    let strip = |page: String, name: &str| {
        let page = page.replace(name, "NAME");
        // The position moves on with the clock of the server.
        page.split("<p class=\"proof\">").next().unwrap_or_default().to_owned()
    };
    assert_eq!(
        strip(hidden, "disks/d1"),
        strip(missing, "disks/d2"),
        "what may not be seen answers as what does not exist"
    );
    assert!(
        page(&mut observer, "/").await.contains("the role observer is missing here"),
        "charts are of the whole cluster"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_sees_leases_and_is_refused_the_rest_by_part() {
    let mut scene = Scene::start(&GRANTS).await;
    let mut holder = scene.server.http_as("uid:2").await;
    let leases = page(&mut holder, "/ui/leases").await;
    assert!(leases.contains("disks/d1") && !leases.contains("jobs/report"), "{leases}");
    let resource = page(&mut holder, "/ui/resource/disks/d1").await;
    assert!(resource.contains("Held by worker-1 for"), "{resource}");
    assert!(resource.contains("role observer is missing") && !resource.contains("class=\"timeline\""), "{resource}");
    for path in ["/ui/coverage", "/ui/handovers", "/ui/audit", "/ui/audit/verify"] {
        let (status, text) = holder.request(&format!("GET {path}"), "", "").await;
        assert_eq!(status, 403, "{path}: {text}");
        assert!(
            text.contains("permission denied") && text.contains("</html>") && !text.contains("jobs/report"),
            "{path}: {text}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coverage_that_a_reader_may_not_see_is_not_called_covered() {
    let mut scene = Scene::start(&[("uid:1", "observer", "jobs"), ("uid:1", "holder", "disks")]).await;
    let mut reader = scene.server.http_as("uid:1").await;
    // The targets of jobs are covered; disks/d1 has a hole that this reader may not see.
    let coverage = page(&mut reader, "/ui/coverage").await;
    assert!(coverage.contains("disks/d1") && coverage.contains("not visible to you"), "{coverage}");
    assert!(coverage.contains("Every target that you may see refuses a stale token"), "{coverage}");
    assert!(coverage.contains("You may not see the targets of 1 resource."), "{coverage}");
    let disks = page(&mut reader, "/ui/coverage?prefix=disks").await;
    assert!(disks.contains("the targets of no resource") && !disks.contains("covered</span>"), "{disks}");
    assert!(page(&mut reader, "/ui/resource/disks/d1").await.contains("You may not see its targets."));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_no_grant_sees_nothing() {
    let mut scene = Scene::start(&GRANTS).await;
    for principal in ["uid:9", "anonymous"] {
        let mut stranger = scene.server.http_as(principal).await;
        for path in
            VIEWS.into_iter().chain(["/ui/changes", "/ui/actions/revoke?resource=jobs/report", "/ui/audit/verify"])
        {
            let (status, text) = stranger.request(&format!("GET {path}"), "", "").await;
            assert_eq!(status, 403, "{principal} {path}: {text}");
            assert!(!text.contains("worker-") && !text.contains("ledger"), "{path}: {text}");
        }
    }
    let mut reporter = scene.server.http_as("uid:3").await;
    let (status, text) = reporter.request("GET /ui/leases", "", "").await;
    assert_eq!(status, 403, "{text}");
}
