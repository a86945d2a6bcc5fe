//! Reaches each configured server step by step: name, connection, TLS, health, API, clock and version.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use leasehold::json::ClusterBody;
use leasehold::{Address, Client, Code, Endpoints, Error, TlsOptions};

use super::certificates;
use super::cluster_checks;
use super::finding::Finding;
use super::http_probe::{ConnectError, HttpResponse, ProbeConnection, connect, within};
use super::metrics_page::MetricsPage;
use super::server_answers::ServerAnswers;
use crate::global_args::GlobalArgs;
use crate::output::CommandError;

/// Differences of the wall clocks that need attention, and that are wrong. The header has whole seconds.
const CLOCK_WARNING_MS: u64 = 2_000;
const CLOCK_ERROR_MS: u64 = 60_000;

/// Checks all servers, and the service that they provide together.
pub async fn check(global: &GlobalArgs, limit: Duration) -> Result<Vec<Finding>, CommandError> {
    let tls = global.tls();
    let endpoints = global.endpoints().and_then(|endpoints| Ok((endpoints, tls?, global.uses_tls()?)));
    let (endpoints, tls, uses_tls) = match endpoints {
        Ok(found) => found,
        Err(error) => {
            let next = format!("{}; correct the options of the connection", error.next_step().trim_end_matches('.'));
            let found = Finding::error("connection", error.message().to_owned(), next);
            return Ok([found].into_iter().chain(cluster_checks::not_checked()).collect());
        }
    };
    let tls = tls.filter(|_| uses_tls);
    if uses_tls && tls.is_none() {
        let found = Finding::error(
            "tls",
            "an address requires TLS, and no CA certificate is given",
            "pass --tls-ca with --tls-cert and --tls-key, or with --bearer-file",
        );
        return Ok([found].into_iter().chain(cluster_checks::not_checked()).collect());
    }
    let bearer = global.bearer().and_then(|file| std::fs::read_to_string(file).ok()).map(|text| text.trim().to_owned());
    let each = endpoints.addresses().iter().map(|address| {
        let at = global.endpoints_at(address);
        check_server(address, at, tls.as_ref(), bearer.as_deref(), limit)
    });
    let (mut findings, mut answers) = (Vec::new(), Vec::new());
    for (found, answer) in futures::future::join_all(each).await {
        findings.extend(found);
        answers.push(answer);
    }
    findings.extend(cluster_checks::check(&Client::from(endpoints), &answers, limit).await);
    Ok(findings)
}

async fn check_server(
    address: &Address,
    endpoints: Result<Endpoints, Error>,
    tls: Option<&TlsOptions>,
    bearer: Option<&str>,
    limit: Duration,
) -> (Vec<Finding>, ServerAnswers) {
    let mut answers = ServerAnswers { address: address.clone(), cluster: None, metrics: None };
    // A unix socket needs no TLS.
    let tls = tls.filter(|_| address.unix_path().is_none());
    let bearer = bearer.filter(|_| tls.is_some() || address.unix_path().is_some());
    let mut findings = match connect(address, tls, limit).await {
        Ok(connection) => check_connected(address, connection, tls.is_some(), limit).await,
        Err(error) => connect_failure(&error),
    };
    if !findings.iter().any(|finding| {
        finding.next_step.is_some() && finding.check != "certificate" && finding.check != "clock_difference"
    }) {
        let (found, cluster) = check_api(endpoints, limit).await;
        findings.push(found);
        answers.cluster = cluster;
        let (found, metrics) = check_version(address, tls, bearer, limit).await;
        findings.push(found);
        answers.metrics = metrics;
    } else {
        let skipped = ["api", "version"].map(|check| {
            Finding::not_checked(check, "the server does not answer", "solve the problem above, then run this again")
        });
        findings.extend(skipped);
    }
    (findings.into_iter().map(|finding| finding.about(address.as_str())).collect(), answers)
}

fn connect_failure(error: &ConnectError) -> Vec<Finding> {
    match error {
        ConnectError::Resolve(error) => {
            let message = format!("the name cannot be resolved: {error}");
            vec![Finding::error("connection", message, "correct --addr, or the name service of this machine")]
        }
        ConnectError::Connect(error) => {
            let next = "start the server, correct --addr, or allow the connection in the firewall";
            vec![Finding::error("connection", format!("cannot connect: {error}"), next)]
        }
        ConnectError::Tls(error) => {
            let text = error.to_string();
            let next = if text.contains("UnknownIssuer") || text.contains("BadSignature") {
                "pass --tls-ca with the CA that issued the certificate of the server"
            } else if text.contains("NotValidForName") {
                "issue the certificate for this name, or use a name that it has"
            } else if text.contains("Expired") || text.contains("NotValidYet") {
                "renew the certificate of the server, or correct the clock"
            } else if text.contains("InvalidContentType") || text.contains("corrupt message") {
                "the server may not use TLS; omit https:// and --tls-ca, or set tls_cert at the server"
            } else {
                "compare the certificates of both sides, and see the log of the server"
            };
            let connected = Finding::ok("connection", "the server accepts connections");
            vec![connected, Finding::error("tls", format!("the handshake failed: {error}"), next)]
        }
    }
}

/// Checks what a connected server answers without any rights.
async fn check_connected(
    address: &Address,
    connection: ProbeConnection,
    has_tls: bool,
    limit: Duration,
) -> Vec<Finding> {
    let mut findings = vec![Finding::ok("connection", "the server accepts connections")];
    if has_tls {
        findings.push(Finding::ok("tls", "the certificate of the server is valid for this address"));
    }
    findings.extend(connection.certificate.as_deref().map(certificates::check_presented));
    let (sent, sent_at) = (Instant::now(), wall_ms());
    match connection.get(address, "/readyz", None, limit).await {
        Ok(response) => {
            let round_trip = u64::try_from(sent.elapsed().as_millis()).unwrap_or(u64::MAX);
            findings.push(health(&response, has_tls));
            findings.push(clock_difference(&response, sent_at, round_trip));
        }
        Err(error) => findings.push(no_health(&error, has_tls)),
    }
    findings
}

/// A server with TLS refuses a plain request.
const PLAIN_NEXT: &str =
    "if the server uses TLS, write https:// in --addr and pass --tls-ca; otherwise check the address and its log";

fn health(response: &HttpResponse, has_tls: bool) -> Finding {
    const CHECK: &str = "health";
    let state = response.body.trim();
    match response.status {
        200 if state == "standby" => Finding::ok(CHECK, "the server stands by"),
        200 => Finding::ok(CHECK, "the server is ready"),
        503 => Finding::error(
            CHECK,
            "the server is not ready: it completes no turn",
            "see its log; its disk or its etcd may be unavailable",
        ),
        status => {
            let message = format!("/readyz answers HTTP {status}");
            let next = match has_tls {
                true => "check that the address is that of a Leasehold server, and its allowed_hosts",
                false => PLAIN_NEXT,
            };
            Finding::error(CHECK, message, next)
        }
    }
}

fn no_health(error: &std::io::Error, has_tls: bool) -> Finding {
    let message = format!("no answer from /readyz: {error}");
    let next = if error.to_string().contains("alert") {
        "the server refused the certificate of this client; issue one with leasehold ca issue"
    } else if has_tls {
        "see the log of the server"
    } else {
        PLAIN_NEXT
    };
    Finding::error("health", message, next)
}

fn wall_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Compares the wall clocks. Leases do not depend on them; certificates, bearer tokens and seal keys do.
fn clock_difference(response: &HttpResponse, sent_at: u64, round_trip: u64) -> Finding {
    const CHECK: &str = "clock_difference";
    let Some(server) = response.header("date").and_then(date_ms) else {
        return Finding::not_checked(CHECK, "the reply has no date", "compare the clocks by hand");
    };
    // The date is the start of its second.
    let (server, here) = (server + 500, sent_at + round_trip / 2);
    let difference = server.abs_diff(here).saturating_sub(500 + round_trip / 2);
    let direction = if server > here { "ahead" } else { "behind" };
    let message =
        format!("the clock of the server is {}.{} s {direction}", difference / 1_000, difference % 1_000 / 100);
    let next = "synchronize both clocks; certificates, bearer tokens and seal keys depend on them";
    match difference {
        CLOCK_ERROR_MS.. => Finding::error(CHECK, message, next),
        CLOCK_WARNING_MS.. => Finding::warning(CHECK, message, next),
        _ => Finding::ok(CHECK, "the clock of the server agrees, to two seconds"),
    }
}

/// Milliseconds since 1970 of a date like `Thu, 19 Nov 2026 19:45:00 GMT`.
fn date_ms(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let words: Vec<_> = text.split([' ', ':', ',']).filter(|word| !word.is_empty()).collect();
    let [_, day, month, year, hour, minute, second, "GMT"] = words[..] else { return None };
    let month = u8::try_from(MONTHS.iter().position(|name| *name == month)? + 1).ok()?;
    let month = time::Month::try_from(month).ok()?;
    let date = time::Date::from_calendar_date(year.parse().ok()?, month, day.parse().ok()?).ok()?;
    let at = date.with_hms(hour.parse().ok()?, minute.parse().ok()?, second.parse().ok()?).ok()?.assume_utc();
    u64::try_from(at.unix_timestamp()).ok().map(|seconds| seconds * 1_000)
}

/// Calls the gRPC API with the credentials of this client.
async fn check_api(endpoints: Result<Endpoints, Error>, limit: Duration) -> (Finding, Option<ClusterBody>) {
    const CHECK: &str = "api";
    let result = match endpoints {
        Ok(endpoints) => {
            let client = Client::from(endpoints);
            within(limit, async { Ok(client.cluster().await) }).await.map_err(|error| error.to_string())
        }
        Err(error) => Ok(Err(error)),
    };
    match result {
        Ok(Ok(cluster)) => {
            let role = if cluster.role.is_empty() { "of unknown role".to_owned() } else { cluster.role.clone() };
            (Finding::ok(CHECK, format!("leasehold.v1 over gRPC works; this server is {role}")), Some(cluster))
        }
        Ok(Err(error)) => {
            let next = match error.code() {
                Some(Code::PermissionDenied | Code::Unauthenticated) => {
                    "pass the credentials of an identity with a grant (--as PROFILE, or --tls-cert and --tls-key)"
                }
                Some(Code::Unavailable) => "see the log of the server",
                _ => error.next_step(),
            };
            (Finding::error(CHECK, format!("leasehold.v1 over gRPC: {}", error.message()), next), None)
        }
        Err(message) => {
            (Finding::error(CHECK, format!("leasehold.v1 over gRPC: {message}"), "see the log of the server"), None)
        }
    }
}

/// Compares the versions of both sides. Metrics show the version of the server.
async fn check_version(
    address: &Address,
    tls: Option<&TlsOptions>,
    bearer: Option<&str>,
    limit: Duration,
) -> (Finding, Option<MetricsPage>) {
    const CHECK: &str = "version";
    let not_checked = |message: String| {
        Finding::not_checked(CHECK, message, "use an identity with the role observer for all resources")
    };
    let Ok(connection) = connect(address, tls, limit).await else {
        return (not_checked("the server accepts no second connection".to_owned()), None);
    };
    match connection.get(address, "/metrics", bearer, limit).await {
        Ok(response) if response.status == 200 => {
            let page = MetricsPage::new(response.body);
            (compare_versions(page.version(), env!("CARGO_PKG_VERSION")), Some(page))
        }
        Ok(response) => (not_checked(format!("the server does not show its metrics (HTTP {})", response.status)), None),
        Err(error) => (not_checked(format!("the server does not show its metrics: {error}")), None),
    }
}

fn compare_versions(server: Option<&str>, own: &str) -> Finding {
    const CHECK: &str = "version";
    let Some(server) = server else {
        return Finding::not_checked(
            CHECK,
            "the server does not show its version",
            "compare leasehold --version there",
        );
    };
    // Before 1.0 the second number is the one that may change everything.
    let compatible = |version: &str| {
        let mut numbers = version.split('.').map(str::to_owned);
        match numbers.next().unwrap_or_default() {
            major if major == "0" => format!("0.{}", numbers.next().unwrap_or_default()),
            major => major,
        }
    };
    if server == own {
        Finding::ok(CHECK, format!("server and client are {own}"))
    } else if compatible(server) == compatible(own) {
        Finding::ok(CHECK, format!("the server is {server} and the client {own}, which are compatible"))
    } else {
        let message = format!("the server is {server} and the client {own}, which may not be compatible");
        Finding::warning(CHECK, message, "read the changelog, and upgrade the older one")
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::FindingStatus;
    use super::*;

    #[test]
    fn dates_of_http_are_read() {
        assert_eq!(date_ms("Thu, 01 Jan 1970 00:00:01 GMT"), Some(1_000));
        assert_eq!(date_ms("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777_000));
        for invalid in ["", "today", "Thu, 01 Jan 1970 00:00:01 CET", "Thu, 32 Jan 1970 00:00:01 GMT"] {
            assert_eq!(date_ms(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn versions_are_compatible_within_a_major_version() {
        let status = |server: &str, own: &str| compare_versions(Some(server), own).status;
        assert_eq!((status("0.1.0", "0.1.0"), status("0.1.3", "0.1.0")), (FindingStatus::Ok, FindingStatus::Ok));
        assert_eq!((status("1.9.0", "1.0.0"), status("2.0.0", "1.0.0")), (FindingStatus::Ok, FindingStatus::Warning));
        assert_eq!(status("0.2.0", "0.1.0"), FindingStatus::Warning);
        assert_eq!(compare_versions(None, "0.1.0").status, FindingStatus::NotChecked);
    }
}
