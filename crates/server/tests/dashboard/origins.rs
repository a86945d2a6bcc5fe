//! Pages of other sites reach no page of the dashboard, except that a person may follow a link.

use leasehold_server::journal::memory::Memory;
use leasehold_server::server::start;

use crate::http_client::{free_port_config, http_with};
use crate::scene::VIEWS;
use crate::transport_clients::HttpConnection;

const LINK: &str =
    "sec-fetch-site: cross-site\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\nsec-fetch-user: ?1\r\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_other_sites_and_under_other_names_are_refused() {
    let server = start(Memory::default(), free_port_config()).await.expect("a server starts on a free port");
    let paths = VIEWS.into_iter().chain(["/ui/changes", "/ui/assets/dashboard.js"]);
    for path in paths {
        for headers in [
            "origin: http://evil.test\r\n",
            "sec-fetch-site: cross-site\r\n",
            "sec-fetch-site: cross-site\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: iframe\r\nsec-fetch-user: ?1\r\n",
        ] {
            let (status, text) = http_with(server.address, "GET", path, headers, "").await;
            assert_eq!(status, 403, "{path} {headers}: {text}");
        }
        let mut rebound = HttpConnection::connect(server.address).await;
        rebound
            .send(format!("GET {path} HTTP/1.1\r\nhost: evil.test\r\n\r\n").as_bytes())
            .await
            .expect("the server reads");
        let (status, text) = rebound.response().await.expect("a response");
        assert_eq!(status, 403, "{path}: {text}");
        assert!(text.contains("is not a name of this server"), "{text}");
    }
    for path in VIEWS {
        let (status, text) = http_with(server.address, "GET", path, LINK, "").await;
        assert_eq!(status, 200, "{path}: {text}");
    }
    let (status, text) = http_with(server.address, "GET", "/v1/leases", LINK, "").await;
    assert_eq!(status, 403, "the API is not a page: {text}");
    server.stop().await;
}
