//! `leasehold fence arm`, `rearm`, `lost` and `adopt`: what only people know about a target.

use leasehold::{Client, Code, Error};
use leasehold_core::token::{Cluster, Incarnation, Number};

use crate::connection::Everywhere;
use crate::target::{Place, Target};
use crate::told::{Failure, Outcome};

/// Which fences of a target.
#[derive(clap::Args)]
struct Which {
    /// The target
    #[arg(value_name = "TARGET", value_parser = Target::parse)]
    target: Target,
    /// The resource; without it all that the target keeps marks for
    #[arg(long, value_name = "NAME")]
    resource: Option<String>,
    /// Its slot
    #[arg(long, value_name = "N", default_value_t = 0, requires = "resource")]
    slot: u32,
}

impl Which {
    /// The places that are meant, as the target knows them.
    async fn places(&self) -> Result<Vec<Place>, Failure> {
        let marks = self.target.marks().await?;
        let mut places = Vec::new();
        for kept in &marks {
            let place = match &self.resource {
                Some(resource) => Place::new(kept.cluster, resource, self.slot)?,
                None => Place::new(kept.cluster, kept.name.as_deref().ok_or_else(nameless)?, kept.slot)?,
            };
            if self.resource.is_none() || place.is_at(kept) {
                places.push(place);
            }
        }
        if places.is_empty() {
            let missing = "the target keeps no mark for that; list what it keeps, or arm it";
            return Err(Error::new(Code::NotFound, missing).then("leasehold fence marks TARGET").into());
        }
        Ok(places)
    }
}

/// A log keeps no name, only its hash: nobody can guess it.
fn nameless() -> Error {
    Error::new(Code::InvalidArgument, "the target keeps no names of resources").then("Name one with --resource.")
}

/// Arm a fence for a resource under which nothing was written yet
///
/// Installs the fence in the target if it is not there. A mark that is kept already stays.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold fence arm sqlite:/var/lib/app/ledger.db --resource jobs/settle")]
pub struct Arm {
    /// The target
    #[arg(value_name = "TARGET", value_parser = Target::parse)]
    target: Target,
    /// The resource
    #[arg(long, value_name = "NAME")]
    resource: String,
    /// Its slot
    #[arg(long, value_name = "N", default_value_t = 0)]
    slot: u32,
    /// Whose tokens; without it the server is asked
    #[arg(long, value_name = "CLUSTER")]
    cluster: Option<Cluster>,
}

pub fn arm(args: &Arm, ask: &Everywhere) -> Outcome {
    ask.run(async |client| {
        let cluster = match args.cluster {
            Some(cluster) => cluster,
            None => status(&client).await?.0,
        };
        args.target.arm(&Place::new(cluster, &args.resource, args.slot)?).await
    })?;
    Ok(ask.done(format!("{} is fenced at {}", args.resource, args.target.shown())))
}

/// The cluster, and the highest number that it has given out.
async fn status(client: &Client) -> Result<(Cluster, Number), Failure> {
    let status = client.status().await?;
    let garbled = || Failure::Other("the server told a status that cannot be".to_owned());
    let cluster = status.cluster.parse().map_err(|_| garbled())?;
    let counter = status.counter.parse().ok().and_then(Number::new).ok_or_else(garbled)?;
    Ok((cluster, counter))
}

/// Re-arm fences after their target was restored or failed over
///
/// Sets the mark to a number that no earlier holder lies above: the highest that the server has given out, or --floor. Who
/// holds now must acquire again before it writes there. A floor below what was seen is refused.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold fence rearm postgres://app@db/ledger --resource jobs/settle")]
pub struct Rearm {
    #[command(flatten)]
    which: Which,
    /// The floor; without it the server is asked
    #[arg(long, value_name = "NUMBER", value_parser = number)]
    floor: Option<Number>,
}

pub fn number(text: &str) -> Result<Number, String> {
    text.parse().ok().and_then(Number::new).ok_or_else(|| "a token number, from 1 to 9223372036854775807".to_owned())
}

pub fn rearm(args: &Rearm, ask: &Everywhere) -> Outcome {
    let (places, floor) = ask.run(async |client| {
        let places = args.which.places().await?;
        let floor = match args.floor {
            Some(floor) => floor,
            None => {
                let (cluster, counter) = status(&client).await?;
                if let Some(other) = places.iter().find(|place| place.cluster != cluster) {
                    let wrong =
                        format!("{} is fenced for cluster {}, the server is {cluster}", other.resource, other.cluster);
                    return Err(Error::new(Code::WrongCluster, wrong).then("Ask the server of that cluster.").into());
                }
                counter
            }
        };
        for place in &places {
            args.which.target.rearm(place, floor).await?;
        }
        Ok((places, floor))
    })?;
    Ok(ask.done(told(&places, &format!("is re-armed at {floor}"))))
}

/// Say that the marks of a target are lost, so that it refuses everything until re-armed
///
/// After the target was put back from a copy, which brings its old marks with it, unseen.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold fence lost sqlite:/var/lib/app/ledger.db")]
pub struct Lose {
    #[command(flatten)]
    which: Which,
}

pub fn lose(args: &Lose, ask: &Everywhere) -> Outcome {
    let places = ask.run(async |_| {
        let places = args.which.places().await?;
        for place in &places {
            args.which.target.declare_lost(place).await?;
        }
        Ok(places)
    })?;
    Ok(ask.done(told(&places, "refuses everything until it is re-armed")))
}

/// Let a strict target follow a cluster that was restored
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold fence adopt sqlite:/var/lib/app/ledger.db --incarnation 0badcafe")]
pub struct Adopt {
    #[command(flatten)]
    which: Which,
    /// The incarnation, as `leasehold status` prints it
    #[arg(long, value_name = "INCARNATION")]
    incarnation: Incarnation,
}

pub fn adopt(args: &Adopt, ask: &Everywhere) -> Outcome {
    let places = ask.run(async |_| {
        let places = args.which.places().await?;
        for place in &places {
            args.which.target.adopt(place, args.incarnation).await?;
        }
        Ok(places)
    })?;
    Ok(ask.done(told(&places, &format!("follows incarnation {}", args.incarnation))))
}

fn told(places: &[Place], what: &str) -> String {
    let line = |place: &Place| format!("{} slot {} {what}", place.resource, place.slot);
    places.iter().map(line).collect::<Vec<_>>().join("\n")
}
