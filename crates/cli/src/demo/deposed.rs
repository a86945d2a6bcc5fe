//! The grantor that leads is stopped, and another server takes its place: holders keep what they have, and when the old
//! leader wakes, with its old state in memory, it decides nothing (L7).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use leasehold::Client;
use serde_json::json;

use super::pair::{Pair, Seen};
use super::stage::{PATIENCE, Stage, go_on, stop};
use super::timeline::Timeline;
use super::{Plan, Verdict, failed};
use crate::told::Failure;

/// What nobody holds: a leader would grant it at once.
const FREE: &str = "accounts/8";

pub async fn play(plan: Plan, timeline: &mut Timeline) -> Result<Verdict, Failure> {
    let stage = Stage::set_over_etcd(plan, timeline).await?;
    let servers = stage.servers()?;
    let old = servers.leader().await?;
    let old_address = servers.addresses()[old].to_owned();
    let mut pair = Pair::take_places(&stage, plan, timeline).await?;

    stop(servers.process(old).id())?;
    let stopped = Instant::now();
    timeline.tell("grantor", &format!("{old_address}, which leads, is stopped"));
    // It lies at the door of whoever is stopped, and is the first thing that it hears when it wakes.
    let late = tokio::task::spawn_blocking({
        let address = old_address.clone();
        move || ask(&address)
    });
    let new = loop {
        let leads = async |at: usize| servers.view(at).await.is_some_and(|view| view.role == "leads");
        let others: Vec<_> = (0..servers.addresses().len()).filter(|at| *at != old).collect();
        let mut found = None;
        for at in others {
            if leads(at).await {
                found = Some(at);
            }
        }
        match found {
            Some(at) => break at,
            None if stopped.elapsed() > PATIENCE => return Err(failed("nobody takes its place")),
            None => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    let new_address = servers.addresses()[new].to_owned();
    timeline.tell("grantor", &format!("{new_address} leads, {:.1} s later", stopped.elapsed().as_secs_f64()));
    let Seen { same, higher } = pair.go_on(plan, timeline, "the new one").await?;
    tokio::time::sleep(plan.pause.saturating_sub(stopped.elapsed())).await;
    go_on(servers.process(old).id())?;
    timeline.tell("grantor", &format!("{old_address} is continued, with a question for {FREE} at its door"));
    let answer = late.await.map_err(|error| failed(&error.to_string()))?;
    let refused = !answer.contains("lh1-");
    let words = if refused { "and grants nothing: its batch was refused" } else { "and GRANTED, though another leads" };
    timeline.tell("grantor", &format!("{old_address} wakes {words}"));
    let began = Instant::now();
    while servers.view(old).await.is_none_or(|view| view.role != "stands_by") {
        if began.elapsed() > PATIENCE {
            return Err(failed("the old leader does not stand by"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    timeline.tell("grantor", &format!("{old_address} stands by and points at {new_address}"));
    let client = Client::connect(leasehold::Endpoints::parse(&new_address)?);
    let unheld = client.show(FREE).await.map_or(true, |shown| shown.held == 0);
    let shown = refused && unheld && same && higher;
    let words = if shown {
        "Another server took over with every lease. The old leader woke with its old state and could do nothing: each of its\n\
         batches is compared with who leads, and is refused."
    } else {
        "This is not what must happen."
    };
    let grantor = json!({
        "woken_leader_granted": !(refused && unheld), "kept_its_token": same, "next_is_higher": higher
    });
    Ok(Verdict { shown, words: words.to_owned(), targets: json!({ "grantor": grantor }) })
}

/// Asks one server and no other for a lease. What it says, or nothing if it closed the door.
fn ask(address: &str) -> String {
    let asked = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let body = r#"{"holder":"late","ttl":"60s"}"#;
        let head = format!("POST /v1/leases/{FREE}:acquire HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
        write!(stream, "{head}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    asked().unwrap_or_default()
}
