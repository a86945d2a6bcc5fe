//! `leasehold fences`: every target that a lease covers, who proved to check the token, and the holes.

use leasehold::json::{CoveredBody, FencesBody, PlaceBody};
use leasehold::{Code, Error};
use leasehold_core::coverage::Hole;
use leasehold_core::token::Cluster;
use serde_json::{Value, json};

use crate::connection::Everywhere;
use crate::operate::in_writing;
use crate::table::{Table, moment, or_dash};
use crate::target::{Place, Probed, Target};
use crate::told::{Answer, Failure, Outcome, json as spelled};

/// Show which targets a lease covers, and where a zombie could get through
///
/// A target is known from the charter, from the reports of its fence, or both. What does not fit together is a hole, and
/// then the exit code is 8. Checks are counted since the server was started; zombies are kept for good. --probe shows each
/// target a token below its mark, in a transaction that is given up, and expects the refusal.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  leasehold fences jobs/settle --probe --target ledger=sqlite:/var/lib/app/ledger.db"
)]
pub struct Args {
    /// The resource
    name: String,
    /// Show each target a stale token and expect that it is refused
    #[arg(long)]
    probe: bool,
    /// Where a target is, if the charter does not say it: NAME=ADDRESS
    #[arg(long = "target", value_name = "NAME=ADDRESS", requires = "probe", value_parser = called)]
    targets: Vec<(String, Target)>,
    /// Say that a target is no more
    #[arg(long, value_name = "TARGET", requires = "reason", conflicts_with = "probe")]
    forget: Option<String>,
    /// Why it is forgotten; it goes on record
    #[arg(long, value_name = "TEXT", requires = "forget", value_parser = in_writing)]
    reason: Option<String>,
}

fn called(text: &str) -> Result<(String, Target), Error> {
    match text.split_once('=') {
        Some((name, address)) if !name.is_empty() => Ok((name.to_owned(), Target::parse(address)?)),
        _ => Err(Error::new(Code::InvalidArgument, "write NAME=ADDRESS, with the name that the charter has")),
    }
}

/// Anything that is a hole ends with this.
const EXIT_HOLE: u8 = 8;

pub fn run(args: &Args, ask: &Everywhere) -> Outcome {
    if let (Some(target), Some(reason)) = (&args.forget, &args.reason) {
        ask.ask(async |client| client.forget_target(&args.name, target, reason).await)?;
        return Ok(ask.done(format!("{target} is no target of {} any more", args.name)));
    }
    let (mut fences, probes) = ask.run(async |client| {
        let fences = client.fences(&args.name).await?;
        let probes = if args.probe {
            probe(args, &fences, client.status().await?.cluster.parse().ok()).await
        } else {
            Vec::new()
        };
        Ok((fences, probes))
    })?;
    // A target that was only named here is shown too.
    fences.targets.retain(|target| !target.name.is_empty() || probes.is_empty());
    let known: Vec<String> = fences.targets.iter().map(|target| target.name.clone()).collect();
    let named = probes.iter().filter(|(name, _)| !known.contains(name));
    fences.targets.extend(named.map(|(name, _)| undeclared(name)));
    let rows: Vec<(CoveredBody, Option<Result<Probed, String>>)> = fences
        .targets
        .into_iter()
        .map(|target| {
            let probed = probes.iter().find(|(name, _)| *name == target.name).map(|(_, probed)| probed.clone());
            (target, probed)
        })
        .collect();
    let holes: Vec<String> = rows.iter().filter_map(|(target, probed)| hole(target, probed.as_ref())).collect();
    let text = if ask.json { spelled(&in_json(&fences.resource, &rows)) } else { for_people(&rows) };
    if holes.is_empty() {
        return Ok(Answer::from(text));
    }
    let note = format!("{} hole(s) in the coverage of {}:\n  {}", holes.len(), fences.resource, holes.join("\n  "));
    Ok(Answer::but(text, note, EXIT_HOLE))
}

fn undeclared(name: &str) -> CoveredBody {
    let (at, mode, places) = (String::new(), None, Vec::new());
    CoveredBody {
        name: name.to_owned(),
        at,
        declared: false,
        mode,
        places,
        hole: Some(Hole::Undeclared.word().to_owned()),
    }
}

/// Shows every target whose address is known a stale token.
async fn probe(args: &Args, fences: &FencesBody, cluster: Option<Cluster>) -> Vec<(String, Result<Probed, String>)> {
    let mut probed = Vec::new();
    let Some(cluster) = cluster else { return probed };
    let named = args.targets.iter().map(|(name, _)| name.as_str());
    let declared = fences.targets.iter().map(|target| target.name.as_str()).filter(|name| !name.is_empty());
    let mut names: Vec<&str> = declared.collect();
    names.extend(named.filter(|name| !fences.targets.iter().any(|target| target.name == **name)));
    for name in names {
        let covered = fences.targets.iter().find(|target| target.name == name);
        // What checks nothing by its charter is a hole already, and what the grantor keeps has no address.
        if covered
            .and_then(|target| target.mode.as_deref())
            .is_some_and(|mode| !["forced", "cooperative"].contains(&mode))
        {
            continue;
        }
        let given = args.targets.iter().find(|(known, _)| known == name).map(|(_, target)| target.clone());
        let address = given.map_or_else(|| Target::parse(covered.map_or("", |target| &target.at)), Ok);
        let slots: Vec<u32> =
            covered.map_or(Vec::new(), |target| target.places.iter().map(|place| place.slot).collect());
        let slots = if slots.is_empty() { vec![0] } else { slots };
        let answer = match address {
            Err(error) => Err(format!("its address cannot be used: {}", error.message())),
            Ok(target) => all_slots(&target, cluster, &args.name, &slots).await,
        };
        probed.push((name.to_owned(), answer));
    }
    probed
}

/// The worst answer of a target's slots: the first that is no refusal.
async fn all_slots(target: &Target, cluster: Cluster, resource: &str, slots: &[u32]) -> Result<Probed, String> {
    let mut last = Probed::Missing;
    for slot in slots {
        let place = Place::new(cluster, resource, *slot).map_err(|error| error.message().to_owned())?;
        last = target.probe(&place).await.map_err(|failure| match failure {
            Failure::Coded(error) | Failure::Ending(error, _) => error.to_string(),
            Failure::Other(why) => why,
        })?;
        if !matches!(last, Probed::Refused { .. }) {
            return Ok(last);
        }
    }
    Ok(last)
}

/// What a probe found, in one stable word.
fn word(probed: &Result<Probed, String>) -> &'static str {
    match probed {
        Ok(Probed::Refused { .. }) => "refused",
        Ok(Probed::Lost) => "lost",
        Ok(Probed::Admitted) => "admitted",
        Ok(Probed::Missing) => "missing",
        Ok(Probed::Fresh) => "fresh",
        Err(_) => "unreachable",
    }
}

/// What is missing at a target, with the next step.
fn hole(target: &CoveredBody, probed: Option<&Result<Probed, String>>) -> Option<String> {
    let name = if target.name.is_empty() { "no target" } else { &target.name };
    let found = match probed {
        Some(Ok(Probed::Admitted)) => {
            Some("a stale token was admitted; install its fence again, and look who wrote".to_owned())
        }
        Some(Ok(Probed::Missing)) => {
            Some("there is no fence for this resource; arm it with leasehold fence arm".to_owned())
        }
        Some(Ok(Probed::Fresh)) => {
            Some("no token was ever shown there; let its holder claim it, then probe again".to_owned())
        }
        Some(Err(why)) => Some(format!("it could not be probed: {why}")),
        Some(Ok(Probed::Refused { .. } | Probed::Lost)) | None => None,
    };
    // A proof beats a report that never came.
    let proven = matches!(probed, Some(Ok(Probed::Refused { .. } | Probed::Lost)));
    let told = target.hole.as_deref().filter(|word| !(proven && *word == Hole::NeverReported.word()));
    let told = told.map(|word| Hole::from_word(word).map_or_else(|| word.to_owned(), |hole| hole.advice().to_owned()));
    found.or(told).map(|what| format!("{name}: {what}"))
}

fn for_people(rows: &[(CoveredBody, Option<Result<Probed, String>>)]) -> String {
    let head =
        ["TARGET", "SLOT", "DECLARED", "REPORTED", "CHECKS", "LAST CHECK", "ZOMBIES", "LAST ZOMBIE", "PROBE", "HOLE"];
    let mut table = Table::new(head);
    for (target, probed) in rows {
        let declared = if target.declared { target.mode.clone().unwrap_or_else(|| "?".into()) } else { "-".into() };
        let name = if target.name.is_empty() { "(none)".to_owned() } else { target.name.clone() };
        let probe = or_dash(probed.as_ref().map(word));
        let places: Vec<Option<&PlaceBody>> =
            if target.places.is_empty() { vec![None] } else { target.places.iter().map(Some).collect() };
        for place in places {
            let last = place.and_then(|place| place.last.as_ref()).map(|last| {
                let who = last.holder.as_deref().unwrap_or("nobody known");
                format!("{who}, {} below {}, {}", last.presented, last.mark, moment(last.at_ms))
            });
            table.row([
                name.clone(),
                or_dash(place.map(|place| place.slot)),
                declared.clone(),
                or_dash(place.map(|place| place.mode.clone())),
                or_dash(place.map(|place| place.checks)),
                or_dash(place.and_then(|place| place.checked_ms).map(moment)),
                or_dash(place.map(|place| place.zombies)),
                or_dash(last),
                probe.clone(),
                or_dash(target.hole.clone()),
            ]);
        }
    }
    table.text()
}

fn in_json(resource: &str, rows: &[(CoveredBody, Option<Result<Probed, String>>)]) -> Value {
    let row = |(target, probed): &(CoveredBody, Option<Result<Probed, String>>)| {
        let mut body = json!(target);
        if let Some(probed) = probed {
            let mut found = json!({ "found": word(probed) });
            match probed {
                Ok(Probed::Refused { presented, mark }) => {
                    found["presented"] = json!(presented.to_string());
                    found["mark"] = json!(mark.to_string());
                }
                Err(why) => found["why"] = json!(why),
                Ok(_) => {}
            }
            body["probe"] = found;
        }
        body
    };
    let holes: Vec<String> = rows.iter().filter_map(|(target, probed)| hole(target, probed.as_ref())).collect();
    json!({ "resource": resource, "targets": rows.iter().map(row).collect::<Vec<_>>(), "holes": holes })
}
