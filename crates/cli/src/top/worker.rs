//! The thread that talks to the server. It does one job after the other, so that a slow server is never asked twice at a time. A refresh
//! gives way to what the user does meanwhile.

mod history_cache;
mod pages;

use std::collections::VecDeque;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use leasehold::admin::{AfterRevocation, HandoffMode, Revoke};
use leasehold::json::{ResourceBody, TargetCoverageBody};
use leasehold::types::{EndReason, Handoff, LeaseId, LeaseSelector};
use leasehold::{Client, Code, Endpoints, Error};
use leasehold_core::coverage::Hole;
use leasehold_server::dashboard::action_effects::{
    ActionFacts, AffectedLease, AffectedTarget, EffectSentence, EffectText, OperatorAction,
};
use tokio::sync::mpsc::UnboundedReceiver;

use super::counters::{ServerCounters, ServerRates};
use super::job::{PreviewText, ServerAnswer, ServerJob, ServerOverview};
use super::message::ScreenMessage;
use history_cache::HistoryCache;

/// Shortest time between two readings of the metrics, which contain much more than is shown.
const METRICS_PAUSE: Duration = Duration::from_secs(2);

/// Does jobs until the screen is gone. Runs on a thread of its own.
pub fn run(
    endpoints: Endpoints,
    mut jobs: UnboundedReceiver<ServerJob>,
    messages: &Sender<ScreenMessage>,
) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start the runtime: {error}"))?;
    runtime.block_on(async {
        let mut worker = ServerWorker {
            client: Client::from(endpoints),
            counters: None,
            rates: None,
            history: HistoryCache::default(),
        };
        let mut queue = VecDeque::new();
        loop {
            let next = match queue.pop_front() {
                None => jobs.recv().await,
                queued => queued,
            };
            let Some(job) = next else { break };
            let answer = tokio::select! {
                answer = worker.answer(job.clone()) => answer,
                newer = jobs.recv(), if matches!(job, ServerJob::Refresh(_)) => match newer {
                    None => break,
                    // A refresh may be slow. It gives way, and is repeated unless another one replaces it.
                    Some(newer) => {
                        let replaces = matches!(newer, ServerJob::Refresh(_));
                        queue.push_back(newer);
                        queue.extend((!replaces).then_some(job));
                        continue;
                    }
                },
            };
            if messages.send(ScreenMessage::Answer(Box::new(answer))).is_err() {
                break;
            }
        }
    });
    Ok(())
}

struct ServerWorker {
    client: Client,
    /// The last reading of the metrics.
    counters: Option<(ServerCounters, Instant)>,
    rates: Option<ServerRates>,
    history: HistoryCache,
}

impl ServerWorker {
    async fn answer(&mut self, job: ServerJob) -> ServerAnswer {
        match job {
            ServerJob::Refresh(query) => {
                let started = Instant::now();
                let overview = self.overview().await;
                let page = match &overview {
                    Ok(overview) => self.page(&query, overview).await.map_err(|error| error.to_string()),
                    // The page would fail for the same reason.
                    Err(error) => Err(error.to_string()),
                };
                let took_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
                let overview = overview.map(Box::new).map_err(|error| error.to_string());
                ServerAnswer::Refreshed { query, overview, page, took_ms }
            }
            ServerJob::Preview(action, resource) => {
                let result = self.preview(action, &resource).await.map_err(|error| error.to_string());
                ServerAnswer::Preview { action, resource, result }
            }
            ServerJob::Act(action, resource, leases, reason) => {
                let result = self.act(action, &resource, &leases, &reason).await.map_err(|error| error.to_string());
                ServerAnswer::Acted { action, resource, reason, result }
            }
        }
    }

    async fn overview(&mut self) -> Result<ServerOverview, Error> {
        let status = self.client.status().await?;
        let cluster = self.client.cluster().await.ok();
        if self.counters.is_none_or(|(_, read)| read.elapsed() >= METRICS_PAUSE) {
            self.read_counters().await;
        }
        Ok(ServerOverview { status, cluster, counters: self.counters.map(|(counters, _)| counters), rates: self.rates })
    }

    async fn read_counters(&mut self) {
        let now = Instant::now();
        let Ok(text) = self.client.metrics().await else {
            // Not allowed, or the server is gone, which the next query reports.
            (self.counters, self.rates) = (None, None);
            return;
        };
        let counters = ServerCounters::parse(&text);
        self.rates = self.counters.and_then(|(before, read)| ServerRates::between(&before, &counters, now - read));
        self.counters = Some((counters, now));
    }

    async fn preview(&self, action: OperatorAction, resource: &str) -> Result<PreviewText, Error> {
        let view = self.client.show(resource).await?;
        if action.is_of_leases() && view.held != view.leases.len() as u64 {
            let message =
                format!("{resource} has {} leases, more than one dialog acts on; use `leasehold revoke`", view.held);
            return Err(Error::new(Code::ResourceExhausted, message));
        }
        let ids = lease_ids(&view)?;
        let next = self.client.first_waiters(resource, 1).await?;
        let charter = self.client.charters(Some(resource)).await?.into_iter().next().map(|(_, charter)| charter);
        let coverage = self.client.coverage(resource).await.ok();
        let leases = view.leases.iter().map(|lease| AffectedLease {
            holder: &lease.holder,
            token: lease.token_number.parse().unwrap_or(0),
            has_session: lease.session.is_some(),
            remaining_ms: lease.remaining_ms,
        });
        let terms = charter.as_ref().and_then(|charter| charter.handoff.as_ref());
        let target = |target: TargetCoverageBody| AffectedTarget {
            mode: target.mode.unwrap_or_default(),
            is_open: target.hole.is_some(),
            hole: target.hole.as_deref().and_then(Hole::from_word),
            name: target.name,
        };
        let facts = ActionFacts {
            action,
            leases: leases.collect(),
            held: view.held,
            next: next.first().map(|waiter| waiter.holder.as_str()),
            blocks_after_revocation: charter
                .as_ref()
                .is_some_and(|charter| charter.after_revocation == AfterRevocation::HoldForOperator),
            overlaps: terms.is_some_and(|terms| terms.mode == HandoffMode::Overlap),
            drain_ms: terms.map(|terms| terms.drain_ms),
            held_for_operator: view.held_for_operator,
            quarantine_ms: None,
            targets: coverage.map(|coverage| coverage.targets.into_iter().map(target).collect()),
        };
        let targets = facts
            .target_outcome()
            .map(|outcome| (outcome.is_fenced, outcome.summary, outcome.lines.into_iter().map(sentence).collect()));
        Ok(PreviewText { leases: ids, effects: facts.effects().into_iter().map(sentence).collect(), targets })
    }

    async fn act(&self, action: OperatorAction, resource: &str, leases: &[LeaseId], reason: &str) -> Result<(), Error> {
        if action.is_of_leases() && self.lease_ids(resource).await? != leases {
            return Err(other_leases());
        }
        match action {
            OperatorAction::Revoke => {
                for lease in leases {
                    let selector = LeaseSelector::Id(*lease);
                    let revoke = Revoke { selector, reason: EndReason::Operator, comment: reason, grace_ms: 0 };
                    self.client.revoke(&revoke).await?;
                }
                Ok(())
            }
            OperatorAction::Handoff => {
                let selector = LeaseSelector::Id(*leases.first().ok_or_else(other_leases)?);
                let handoff = Handoff { selector, number: None, to: None, mode: None, drain_ms: None };
                self.client.handoff(&handoff, None).await
            }
            OperatorAction::Free => self.client.free(resource, reason).await,
            OperatorAction::Waive => self.client.waive_quarantine(reason).await,
        }
    }

    /// The leases of a resource now. An action is for those of its preview: the ids select no later ones.
    async fn lease_ids(&self, resource: &str) -> Result<Vec<LeaseId>, Error> {
        match self.client.show(resource).await {
            Err(error) if error.code() == Some(Code::NotFound) => Ok(Vec::new()),
            other => lease_ids(&other?),
        }
    }
}

/// The ids of the leases of a resource.
fn lease_ids(view: &ResourceBody) -> Result<Vec<LeaseId>, Error> {
    let ids: Result<Vec<LeaseId>, _> = view.leases.iter().map(|lease| lease.lease.parse()).collect();
    ids.map_err(|error| Error::new(Code::Corrupt, format!("a lease id of the server: {error}")))
}

fn other_leases() -> Error {
    let message = "other leases than in the preview; nothing was done; press Esc and look again";
    Error::new(Code::Conflict, message)
}

fn sentence(parts: EffectSentence) -> String {
    let text = |part| match part {
        EffectText::Plain(text) | EffectText::Name(text) => text,
        EffectText::Token(number) => number.to_string(),
    };
    parts.into_iter().map(text).collect()
}
