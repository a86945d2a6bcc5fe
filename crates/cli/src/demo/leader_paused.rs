//! Scenario: the leader is paused and another server takes over. Holders keep their leases, and when the old leader resumes
//! with its old state in memory, it cannot decide anything (L7).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use leasehold::Client;
use serde_json::json;

use super::setup::{DemoSetup, TIMEOUT, pause, resume};
use super::timeline::Timeline;
use super::two_holders::{GrantorCheck, TwoHolders};
use super::{DemoPlan, DemoVerdict, UNEXPECTED, failed};
use crate::output::CommandError;

/// A free resource: a leader grants it immediately.
const FREE: &str = "accounts/8";

pub async fn run(plan: DemoPlan, timeline: &mut Timeline) -> Result<DemoVerdict, CommandError> {
    let setup = DemoSetup::with_etcd(plan, timeline).await?;
    let servers = setup.servers()?;
    let old = servers.wait_leader().await?;
    let old_address = servers.addresses()[old].to_owned();
    let mut holders = TwoHolders::start(&setup, plan, timeline).await?;

    pause(servers.process(old).id())?;
    let stopped = Instant::now();
    timeline.record("grantor", &format!("{old_address}, the leader, is paused"));
    // This request waits at the paused server, and is the first one that it reads when it resumes.
    let late = tokio::task::spawn_blocking({
        let address = old_address.clone();
        move || acquire_at(&address)
    });
    let new = loop {
        let leads = async |at: usize| servers.cluster_view(at).await.is_some_and(|view| view.role == "leader");
        let others: Vec<_> = (0..servers.addresses().len()).filter(|at| *at != old).collect();
        let mut found = None;
        for at in others {
            if leads(at).await {
                found = Some(at);
            }
        }
        match found {
            Some(at) => break at,
            None if stopped.elapsed() > TIMEOUT => return Err(failed("no other server takes over")),
            None => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    let new_address = servers.addresses()[new].to_owned();
    timeline.record("grantor", &format!("{new_address} becomes leader after {:.1} s", stopped.elapsed().as_secs_f64()));
    let GrantorCheck { same, higher } = holders.check_grantor(plan, timeline, "the new leader").await?;
    tokio::time::sleep(plan.pause.saturating_sub(stopped.elapsed())).await;
    resume(servers.process(old).id())?;
    timeline.record("grantor", &format!("{old_address} resumes, with a pending request for {FREE}"));
    let response = late.await.map_err(|error| failed(&error.to_string()))?;
    let refused = !response.contains("lh1-");
    let event =
        if refused { "grants nothing: its batch is rejected" } else { "GRANTED a lease while another server leads" };
    timeline.record("grantor", &format!("{old_address} {event}"));
    let began = Instant::now();
    while servers.cluster_view(old).await.is_none_or(|view| view.role != "standby") {
        if began.elapsed() > TIMEOUT {
            return Err(failed("the old leader does not become a standby"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    timeline.record("grantor", &format!("{old_address} becomes a standby of {new_address}"));
    let client = Client::from(leasehold::Endpoints::parse(&new_address)?);
    let unheld = client.show(FREE).await.map_or(true, |passed| passed.held == 0);
    let passed = refused && unheld && same && higher;
    let summary = if passed {
        "Another server took over with all leases. The old leader resumed with its old state and could decide nothing: etcd\n\
         compares every batch with the current leader, and rejected its batch."
    } else {
        UNEXPECTED
    };
    let grantor = json!({
        "resumed_leader_granted": !(refused && unheld), "same_token": same, "next_token_higher": higher
    });
    Ok(DemoVerdict { passed, summary: summary.to_owned(), targets: json!({ "grantor": grantor }) })
}

/// Requests a lease from one server and no other. Returns its response, or an empty text if it closed the connection.
fn acquire_at(address: &str) -> String {
    let request = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let body = r#"{"holder":"late","ttl":"60s"}"#;
        let head = format!("POST /v1/leases/{FREE}:acquire HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
        write!(stream, "{head}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        Ok(response)
    };
    request().unwrap_or_default()
}
