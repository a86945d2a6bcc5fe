//! One run of a scenario in one environment: its drivers, proxies, servers and variables, and its steps in order.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use leasehold_testkit::tcp_proxy::{Flow, TcpProxy};
use serde_json::{Map, Value, json};

use crate::driver_process::DriverProcess;
use crate::environment::{
    EnvironmentKind, FencedService, NewerServer, ServerGroup, ServerKind, SharedServers, SlowLink,
};
use crate::expectation::mismatch;
use crate::failure::{ScenarioFailure, broken, unexpected};
use crate::scenario::{Scenario, Step};
use crate::variables::Variables;

/// Time for a reply beyond what the request itself may take.
const REPLY_TIMEOUT: Duration = Duration::from_secs(45);
/// Time to close the clients of a scenario that is over.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Fields of a step that the runner reads and does not send.
const RUNNER_FIELDS: [&str; 8] = ["actor", "op", "expect", "start", "label", "save", "retry_on", "note"];
/// Fields whose text is a name at the server. Each run has names of its own.
const NAME_FIELDS: [&str; 3] = ["resource", "queue", "prefix"];

/// A request that was started and not awaited yet.
struct StartedRequest {
    actor: String,
    op: String,
    id: u64,
    fields: Map<String, Value>,
    reply: Receiver<Value>,
}

/// Performs a step of the runner itself.
pub type RunnerAction = fn(&mut ScenarioRun<'_>, &Step) -> Result<(), ScenarioFailure>;

/// State of a run.
pub struct ScenarioRun<'a> {
    /// The scenario.
    pub scenario: &'a Scenario,
    /// Where it runs.
    pub environment: EnvironmentKind,
    /// Prefix of all names of this run.
    pub namespace: String,
    /// The servers.
    pub servers: Arc<ServerGroup>,
    /// Drivers by actor.
    pub drivers: HashMap<String, Arc<DriverProcess>>,
    /// Proxies by actor, in the environment `proxy`.
    pub proxies: HashMap<String, TcpProxy>,
    /// Saved values.
    pub variables: Variables,
    /// Times by name.
    pub marks: HashMap<String, Instant>,
    /// The fence, once a step has started it.
    pub fence: Option<FencedService>,
    /// The `leasehold` program.
    pub shared: &'a SharedServers,
    started: HashMap<String, StartedRequest>,
    /// Actors and handles of the clients that were created.
    clients: Vec<(String, Value)>,
    /// Ids of requests by label, for `cancel` and `resolve`.
    ids: HashMap<String, u64>,
    _newer: Option<NewerServer>,
    _slow: Option<SlowLink>,
}

impl<'a> ScenarioRun<'a> {
    /// Prepares servers, proxies and variables.
    pub fn prepare(
        scenario: &'a Scenario,
        environment: EnvironmentKind,
        namespace: String,
        shared: &'a SharedServers,
        drivers: HashMap<String, Arc<DriverProcess>>,
    ) -> Result<Self, ScenarioFailure> {
        let mut variables = Variables::default();
        let servers = match scenario.server {
            ServerKind::Tls => {
                let identities = shared.identities()?;
                identities.set_variables(&mut variables);
                Arc::new(identities.serve(shared.binary())?)
            }
            _ if scenario.needs_own_servers() => Arc::new(shared.own(environment)?),
            _ => shared.shared(environment)?,
        };
        let addresses = servers.addresses();
        let newer = match scenario.server {
            ServerKind::Newer => Some(NewerServer::start(&addresses[0])?),
            _ => None,
        };
        let first = newer.as_ref().map_or_else(|| addresses[0].clone(), |newer| newer.address.to_string());
        let slow = match scenario.reply_delay_ms {
            0 => None,
            delay => Some(SlowLink::start(&first, Duration::from_millis(delay))?),
        };
        let upstream = slow.as_ref().map_or_else(|| first.clone(), |slow| slow.address.to_string());
        let proxies = match environment {
            EnvironmentKind::Proxy => {
                scenario.actors().into_iter().map(|actor| (actor.to_owned(), TcpProxy::start(&upstream))).collect()
            }
            _ => HashMap::new(),
        };
        let leader = servers.leader()?;
        variables.set("ns", namespace.clone());
        variables.set("ttl", scenario.session_ttl_ms);
        variables.set("server", first.clone());
        variables.set("servers", if newer.is_some() { json!([first]) } else { json!(addresses) });
        variables.set("leader", addresses[leader].clone());
        variables.set("standby", addresses[(leader + 1) % addresses.len()].clone());
        variables.set("socket", servers.server(0).socket().to_string_lossy().into_owned());
        Ok(Self {
            scenario,
            environment,
            namespace,
            servers,
            drivers,
            proxies,
            variables,
            marks: HashMap::new(),
            fence: None,
            shared,
            started: HashMap::new(),
            clients: Vec::new(),
            ids: HashMap::new(),
            _newer: newer,
            _slow: slow,
        })
    }

    /// Performs all steps. The error names the step that failed.
    pub fn perform(&mut self, runner_action: RunnerAction) -> Result<(), ScenarioFailure> {
        let scenario = self.scenario;
        for step in &scenario.steps {
            self.step(step, runner_action).map_err(|failure| failure.at(&step.place))?;
        }
        Ok(())
    }

    /// Closes all clients, so that a driver process that others share keeps none of them. How that ends does not matter any more.
    pub fn close_clients(&self) {
        self.proxies.values().for_each(|proxy| proxy.set_both(Flow::Pass));
        let close = |(actor, client): &(String, Value)| {
            let driver = self.drivers.get(actor)?;
            driver.send("close", Map::from_iter([("client".to_owned(), client.clone())])).ok()
        };
        let closing: Vec<_> = self.clients.iter().filter_map(close).collect();
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        for (_, reply) in closing {
            let _ = reply.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        }
    }

    /// Breaks a property of all drivers, before the first step.
    pub fn break_property(&self, property: &str) -> Result<(), ScenarioFailure> {
        for driver in self.drivers.values() {
            let (_, reply) = driver.send("break", Map::from_iter([("property".to_owned(), json!(property))]))?;
            let reply = reply.recv_timeout(REPLY_TIMEOUT).unwrap_or_default();
            if reply.get("ok").is_none() {
                return broken(format!("the driver does not break {property}: {reply}"));
            }
        }
        Ok(())
    }

    fn step(&mut self, step: &Step, runner_action: RunnerAction) -> Result<(), ScenarioFailure> {
        let fields = self.variables.expand_fields(&step.fields)?;
        let step = Step { place: step.place.clone(), fields };
        if let Some(label) = step.text("await") {
            let Some(started) = self.started.remove(label) else { return broken(format!("no request {label}")) };
            return self.finish(&step, started);
        }
        if step.text("do").is_some() {
            return runner_action(self, &step);
        }
        let (Some(actor), Some(op)) = (step.text("actor"), step.text("op")) else { return broken("no actor or op") };
        let fields = self.request_fields(actor, op, &step)?;
        if let (true, Some(client)) = (op == "connect", fields.get("client")) {
            self.clients.push((actor.to_owned(), client.clone()));
        }
        let started = self.send(actor, op, fields)?;
        if let Some(label) = step.text("start").or_else(|| step.text("label")) {
            self.ids.insert(label.to_owned(), started.id);
        }
        match step.text("start") {
            Some(label) => {
                self.started.insert(label.to_owned(), started);
                Ok(())
            }
            None => self.finish(&step, started),
        }
    }

    fn send(&self, actor: &str, op: &str, fields: Map<String, Value>) -> Result<StartedRequest, ScenarioFailure> {
        let Some(driver) = self.drivers.get(actor) else { return broken(format!("no driver of {actor}")) };
        let (id, reply) = driver.send(op, fields.clone())?;
        Ok(StartedRequest { actor: actor.to_owned(), op: op.to_owned(), id, fields, reply })
    }

    /// Waits for the reply, and compares it with the expectation.
    fn finish(&mut self, step: &Step, mut started: StartedRequest) -> Result<(), ScenarioFailure> {
        let deadline = Instant::now() + REPLY_TIMEOUT + longest(&started.fields);
        let reply = loop {
            let reply = self.reply(&started, deadline)?;
            let code = reply["error"]["code"].as_str().unwrap_or_default();
            match code {
                "DRIVER" | "UNSUPPORTED_OP" => return broken(format!("{}: {reply}", started.op)),
                _ if code.is_empty() || step.text("retry_on") != Some(code) => break reply,
                _ if Instant::now() > deadline => return unexpected(format!("{}: still {reply}", started.op)),
                _ => started = self.send(&started.actor, &started.op, started.fields.clone())?,
            }
        };
        let default = json!({ "ok": {} });
        let expected = step.fields.get("expect").unwrap_or(&default);
        if let Some(reason) = mismatch(&expected_reply(expected), &reply) {
            return unexpected(format!("{} of {}{reason}; reply: {}", started.op, started.actor, without_id(&reply)));
        }
        if let (Some(error), true) = (reply.get("error"), reply["error"]["next_step"].as_str().unwrap_or("").is_empty())
        {
            return unexpected(format!("{}: an error without next_step: {error}", started.op));
        }
        if let Some(Value::Object(names)) = step.fields.get("save") {
            for (variable, pointer) in names {
                let pointer = pointer.as_str().unwrap_or_default();
                let Some(value) = reply.pointer(pointer) else { return unexpected(format!("no {pointer} in {reply}")) };
                self.variables.set(variable, value.clone());
            }
        }
        Ok(())
    }

    fn reply(&self, started: &StartedRequest, deadline: Instant) -> Result<Value, ScenarioFailure> {
        let remaining = deadline.saturating_duration_since(Instant::now());
        match started.reply.recv_timeout(remaining) {
            Ok(reply) => Ok(reply),
            Err(RecvTimeoutError::Timeout) => unexpected(format!("{} of {}: no reply", started.op, started.actor)),
            Err(RecvTimeoutError::Disconnected) => {
                let words = self.drivers.get(&started.actor).map(|driver| driver.last_words()).unwrap_or_default();
                broken(format!("{}: the driver of {} has ended{words}", started.op, started.actor))
            }
        }
    }

    /// Whether a started request has not replied yet.
    pub fn is_pending(&mut self, label: &str) -> Result<bool, ScenarioFailure> {
        let Some(started) = self.started.get_mut(label) else { return broken(format!("no request {label}")) };
        match started.reply.try_recv() {
            Err(_) => Ok(true),
            Ok(reply) => {
                let (sender, receiver) = std::sync::mpsc::channel();
                // The receiver is in scope.
                let _ = sender.send(reply);
                started.reply = receiver;
                Ok(false)
            }
        }
    }

    /// The handle of a lease of this run. Actors may share a driver process with those of other runs.
    pub fn lease_handle(&self, actor: &str, lease: &str) -> String {
        self.handle(&format!("{actor}.{lease}"))
    }

    fn handle(&self, name: &str) -> String {
        format!("{}.{name}", self.namespace)
    }

    fn id_of(&self, label: &str) -> Result<u64, ScenarioFailure> {
        match self.ids.get(label) {
            Some(id) => Ok(*id),
            None => broken(format!("no request {label}")),
        }
    }

    /// What the driver gets: the fields of the step, with defaults, and with handles and names of this run.
    fn request_fields(&self, actor: &str, op: &str, step: &Step) -> Result<Map<String, Value>, ScenarioFailure> {
        let mut fields = step.fields.clone();
        RUNNER_FIELDS.iter().for_each(|name| drop(fields.remove(*name)));
        for name in NAME_FIELDS {
            if let Some(Value::String(text)) = fields.get_mut(name) {
                *text = format!("{}/{text}", self.namespace);
            }
        }
        if let Some(Value::Array(resources)) = fields.get_mut("resources") {
            for resource in resources.iter_mut().filter_map(|entry| entry.get_mut("resource")) {
                *resource = json!(format!("{}/{}", self.namespace, resource.as_str().unwrap_or_default()));
            }
        }
        let handle = |name: &str| json!(self.handle(name));
        let needs_client = ["connect", "close", "session", "hold_many", "held_count", "acquire", "acquire_all", "get"];
        if needs_client.contains(&op) || op.starts_with("queue_") {
            let client = handle(fields.get("client").and_then(Value::as_str).unwrap_or(actor));
            fields.insert("client".to_owned(), client);
        }
        if let Some(lease) = fields.get("lease").and_then(Value::as_str) {
            let lease = json!(self.lease_handle(actor, lease));
            fields.insert("lease".to_owned(), lease);
        }
        if let Some(Value::Array(leases)) = fields.get_mut("leases") {
            for lease in leases {
                *lease = json!(self.lease_handle(actor, lease.as_str().unwrap_or_default()));
            }
        }
        if let (true, Some(label)) = (op == "cancel" || op == "resolve", fields.get("request").and_then(Value::as_str))
        {
            let id = self.id_of(label)?;
            fields.insert("request".to_owned(), json!(id));
        }
        if op == "connect" {
            self.add_connect_defaults(actor, &mut fields);
        }
        Ok(fields)
    }

    fn add_connect_defaults(&self, actor: &str, fields: &mut Map<String, Value>) {
        let servers = match self.proxies.get(actor) {
            Some(proxy) => json!([proxy.address().to_string()]),
            None => self.variables.get("servers").cloned().unwrap_or_default(),
        };
        fields.entry("servers").or_insert(servers);
        fields.entry("holder").or_insert(json!(format!("holder-{actor}")));
        fields.entry("session_ttl_ms").or_insert(json!(self.scenario.session_ttl_ms));
    }
}

/// An expectation in its short forms: `{"error":"BUSY"}` is `{"error":{"code":"BUSY"}}`.
fn expected_reply(expected: &Value) -> Value {
    match expected {
        Value::Object(fields) => {
            let mut fields = fields.clone();
            if let Some(code) = fields.get("error").filter(|error| error.is_string() || error.get("any").is_some()) {
                let code = code.clone();
                fields.insert("error".to_owned(), json!({ "code": code }));
            }
            if let Some(Value::Array(patterns)) = fields.get_mut("any") {
                patterns.iter_mut().for_each(|pattern| *pattern = expected_reply(pattern));
            }
            Value::Object(fields)
        }
        other => other.clone(),
    }
}

fn without_id(reply: &Value) -> Value {
    let mut reply = reply.clone();
    if let Value::Object(fields) = &mut reply {
        fields.remove("id");
    }
    reply
}

/// The longest time that a request says it may take.
fn longest(fields: &Map<String, Value>) -> Duration {
    let times = fields.iter().filter(|(name, _)| *name == "ms" || name.ends_with("_ms"));
    Duration::from_millis(times.filter_map(|(_, value)| value.as_u64()).max().unwrap_or(0))
}
