//! Steps of the runner itself: faults of servers, drivers and connections, commands of the operator, and the server's view.

use std::time::{Duration, Instant};

use leasehold_testkit::tcp_proxy::Flow;
use serde_json::{Value, json};

use crate::environment::FencedService;
use crate::expectation::mismatch;
use crate::failure::{ScenarioFailure, broken, unexpected};
use crate::scenario::Step;
use crate::scenario_run::ScenarioRun;
use crate::variables::number;

/// Time for a condition to become true; generous for busy machines.
const TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Performs a step with `do`.
pub fn perform(run: &mut ScenarioRun<'_>, step: &Step) -> Result<(), ScenarioFailure> {
    match step.text("do").unwrap_or_default() {
        "kill_server" | "stop_server" | "start_server" | "pause_server" | "resume_server" => server_fault(run, step),
        "await_leader" => await_leader(run, step),
        "pause_driver" | "resume_driver" | "kill_driver" => driver_fault(run, step),
        "proxy" => proxy(run, step),
        "disconnect" => {
            proxy_of(run, step)?.disconnect_all();
            Ok(())
        }
        "connections" => {
            let count = proxy_of(run, step)?.connection_count();
            check(step, "expect", &json!(count))
        }
        "view" => view(run, step),
        "stays" => stays(run, step),
        "deadline" => deadline(run, step),
        "status" => poll(|| {
            let status = run.servers.request("GET", "/v1/status", None)?.json();
            Ok(mismatch(step.fields.get("until").unwrap_or(&Value::Null), &status))
        }),
        "pending" => match run.is_pending(step.text("request").unwrap_or_default())? {
            true => Ok(()),
            false => unexpected("the request has already replied"),
        },
        "cli" => {
            let words = step.fields.get("words").and_then(Value::as_array).into_iter().flatten();
            let words: Vec<_> = words.filter_map(Value::as_str).map(str::to_owned).collect();
            run.servers.run_cli(&words).map(|_| ()).map_err(ScenarioFailure::from)
        }
        "http" => http(run, step),
        "sleep" => {
            std::thread::sleep(ttls(run, step)?);
            Ok(())
        }
        "mark" => {
            run.marks.insert(step.text("name").unwrap_or_default().to_owned(), Instant::now());
            Ok(())
        }
        "elapsed" => {
            let Some(mark) = run.marks.get(step.text("since").unwrap_or_default()) else { return broken("no mark") };
            let elapsed = u64::try_from(mark.elapsed().as_millis()).unwrap_or(u64::MAX);
            run.variables.set(step.text("save").unwrap_or("elapsed"), elapsed);
            check(step, "expect", &json!(elapsed))
        }
        "check" => check(step, "expect", step.fields.get("value").unwrap_or(&Value::Null)),
        "fence" => fence(run, step),
        "applied" => {
            let Some(fence) = &run.fence else { return broken("no fence was started") };
            check(step, "expect", &json!(fence.applied()))
        }
        other => broken(format!("no step {other}")),
    }
}

/// A request of the operator, which is repeated until its response matches if the step has `until`.
fn http(run: &ScenarioRun<'_>, step: &Step) -> Result<(), ScenarioFailure> {
    let (method, path) = (step.text("method").unwrap_or("POST"), step.text("path").unwrap_or("/"));
    let request = || -> std::io::Result<Value> {
        let response = run.servers.request(method, path, step.fields.get("body"))?;
        Ok(json!({ "status": response.status, "body": response.json() }))
    };
    match step.fields.get("until") {
        Some(pattern) => poll(|| Ok(mismatch(pattern, &request()?))),
        None => check(step, "expect", &request()?),
    }
}

/// Compares a value with the pattern in a field of the step.
fn check(step: &Step, field: &str, value: &Value) -> Result<(), ScenarioFailure> {
    let Some(pattern) = step.fields.get(field) else { return Ok(()) };
    match mismatch(pattern, value) {
        None => Ok(()),
        Some(reason) => unexpected(format!("{}{reason}", step.text("do").unwrap_or_default())),
    }
}

/// Polls until there is no mismatch. An error of a request counts as one: the server may be restarting.
fn poll(mut look: impl FnMut() -> std::io::Result<Option<String>>) -> Result<(), ScenarioFailure> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let reason = match look() {
            Ok(None) => return Ok(()),
            Ok(Some(reason)) => reason,
            Err(error) => format!(": {error}"),
        };
        if Instant::now() > deadline {
            return unexpected(format!("not within {TIMEOUT:?}{reason}"));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn server_fault(run: &ScenarioRun<'_>, step: &Step) -> Result<(), ScenarioFailure> {
    let at = run.servers.find(step.fields.get("server").unwrap_or(&json!(0)))?;
    let mut server = run.servers.server(at);
    match step.text("do").unwrap_or_default() {
        "kill_server" => server.kill(),
        "stop_server" => server.shut_down()?,
        "start_server" => server.restart()?,
        "pause_server" => server.pause(),
        _ => server.resume(),
    }
    Ok(())
}

/// Waits until a server leads that is not `other_than`, and saves its address.
fn await_leader(run: &mut ScenarioRun<'_>, step: &Step) -> Result<(), ScenarioFailure> {
    let (old, deadline) = (step.text("other_than").unwrap_or_default().to_owned(), Instant::now() + 2 * TIMEOUT);
    loop {
        let leader = run.servers.server(run.servers.leader()?).address.clone();
        if leader != old {
            run.variables.set("leader", leader);
            return Ok(());
        }
        if Instant::now() > deadline {
            return broken("no other server leads");
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn driver_fault(run: &ScenarioRun<'_>, step: &Step) -> Result<(), ScenarioFailure> {
    let actor = step.text("actor").unwrap_or_default();
    let Some(driver) = run.drivers.get(actor) else { return broken(format!("no driver of {actor}")) };
    match step.text("do").unwrap_or_default() {
        "pause_driver" => driver.pause(),
        "resume_driver" => driver.resume(),
        _ => driver.kill(),
    }
    Ok(())
}

fn proxy_of<'a>(
    run: &'a ScenarioRun<'_>,
    step: &Step,
) -> Result<&'a leasehold_testkit::tcp_proxy::TcpProxy, ScenarioFailure> {
    let actor = step.text("actor").unwrap_or_default();
    match run.proxies.get(actor) {
        Some(proxy) => Ok(proxy),
        None => broken(format!("no proxy of {actor} in the environment {}", run.environment.name())),
    }
}

fn proxy(run: &ScenarioRun<'_>, step: &Step) -> Result<(), ScenarioFailure> {
    let flow = |field: &str| match step.text(field).unwrap_or("pass") {
        "pass" => Ok(Flow::Pass),
        "hold" => Ok(Flow::Hold),
        "drop" => Ok(Flow::Drop),
        other => broken(format!("{field}: {other}")),
    };
    proxy_of(run, step)?.set_flow(flow("requests")?, flow("replies")?);
    Ok(())
}

fn resource_of(run: &ScenarioRun<'_>, step: &Step) -> String {
    format!("{}/{}", run.namespace, step.text("resource").unwrap_or_default())
}

/// Waits until the server's view of a resource matches, and saves parts of it.
fn view(run: &mut ScenarioRun<'_>, step: &Step) -> Result<(), ScenarioFailure> {
    let (resource, pattern) = (resource_of(run, step), step.fields.get("until").unwrap_or(&Value::Null));
    let (servers, mut last) = (run.servers.clone(), Value::Null);
    poll(|| {
        last = servers.view(&resource)?;
        Ok(mismatch(pattern, &last))
    })?;
    if let Some(Value::Object(names)) = step.fields.get("save") {
        for (variable, pointer) in names {
            let found = last.pointer(pointer.as_str().unwrap_or_default()).cloned();
            let Some(value) = found else { return unexpected(format!("no {pointer} in {last}")) };
            run.variables.set(variable, value);
        }
    }
    Ok(())
}

/// Requires that the server's view of a resource matches for some time.
fn stays(run: &ScenarioRun<'_>, step: &Step) -> Result<(), ScenarioFailure> {
    let (resource, pattern) = (resource_of(run, step), step.fields.get("view").unwrap_or(&Value::Null));
    let deadline = Instant::now() + ttls(run, step)?;
    loop {
        let view = run.servers.view(&resource)?;
        if let Some(reason) = mismatch(pattern, &view) {
            return unexpected(format!("the server's view of {resource} changed{reason}"));
        }
        if Instant::now() > deadline {
            return Ok(());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Requires for some time, and at least once, that a client does not believe in more time than the grantor.
fn deadline(run: &ScenarioRun<'_>, step: &Step) -> Result<(), ScenarioFailure> {
    let (actor, lease) = (step.text("actor").unwrap_or_default(), step.text("lease").unwrap_or_default());
    let Some(driver) = run.drivers.get(actor) else { return broken(format!("no driver of {actor}")) };
    let fields = json!({ "lease": run.lease_handle(actor, lease) });
    let (resource, until) = (resource_of(run, step), Instant::now() + ttls(run, step)?);
    loop {
        let asked = Instant::now();
        let believed = driver.request("remaining", fields.clone(), TIMEOUT)?["ms"].as_u64();
        let granted = run.servers.view(&resource)?["leases"][0]["remaining_ms"].as_u64().unwrap_or(0);
        let Some(believed) = believed else { return unexpected("remaining: no `ms`") };
        // The view is as old as the belief, or newer.
        let later = u64::try_from(asked.elapsed().as_millis()).unwrap_or(u64::MAX) + 1;
        if believed > granted + later {
            return unexpected(format!(
                "{believed} ms are left for the client, {granted} for the server {later} ms later"
            ));
        }
        if Instant::now() > until {
            return Ok(());
        }
        std::thread::sleep(4 * POLL_INTERVAL);
    }
}

/// The time of a step, in multiples of the session ttl.
fn ttls(run: &ScenarioRun<'_>, step: &Step) -> Result<Duration, ScenarioFailure> {
    match step.fields.get("ttls").and_then(number) {
        Some(ttls) => Ok(Duration::from_millis(run.scenario.session_ttl_ms).mul_f64(ttls)),
        None => broken("no number `ttls`"),
    }
}

/// Starts a service behind the fence of a resource; `$fence` is its URL.
fn fence(run: &mut ScenarioRun<'_>, step: &Step) -> Result<(), ScenarioFailure> {
    let status = run.servers.request("GET", "/v1/status", None)?.json();
    let Some(cluster) = status["cluster"].as_str() else { return broken(format!("no cluster: {status}")) };
    let fence = FencedService::start(run.shared.binary(), cluster, &resource_of(run, step))?;
    run.variables.set("fence", fence.url.clone());
    run.fence = Some(fence);
    Ok(())
}
