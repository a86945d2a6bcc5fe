//! A gate before an HTTP or gRPC service: a layer that refuses the zombie, also the one whose request is on its way.
//!
//! Asking the rule and then passing a request on would be check-then-act: the request of a paused holder could still be on
//! its way when its successor writes. So a request is **inside** until its answer is through, and the mark is raised only
//! when nothing is inside: who raises it waits for the lower ones, up to a bound, and is told `UNAVAILABLE` with nothing
//! changed if they do not leave. An outcome that nobody knows (the connection broke, the caller went away, the process died)
//! keeps the gate shut for a stated bound. The mark is durable in a file before anything under it passes.
//!
//! ```
//! # use std::convert::Infallible;
//! # use leasehold_core::{name::Name, token::{Cluster, Incarnation, Number, Reach, Token}};
//! # use http::{Request, Response};
//! # use tower::{Layer, ServiceExt, service_fn};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let marks = dir.path().join("marks");
//! # let cluster = Cluster(*b"examples");
//! # let token = Token { cluster, incarnation: Incarnation(1), resource: leasehold_core::name::resource_hash("jobs/settle"),
//! #     reach: Reach::Slot(0), number: Number::FIRST }.to_string();
//! use leasehold_fence::http::{Bounds, Fence, Rules, Under};
//!
//! let rules = Rules::new(Under::new(Name::parse("jobs/settle")?, 0)).free("/search", &[])?;
//! Fence::arm(&marks, cluster, &rules)?; // once
//! let fence = Fence::open(&marks, cluster, rules, Bounds::default())?;
//! let service = fence.layer().layer(service_fn(|_: Request<_>| async {
//!     Ok::<_, Infallible>(Response::new(String::from("paid")))
//! }));
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let shown = Request::post("/invoices").header("lease-token", token).body(String::new())?;
//! assert_eq!(service.clone().oneshot(shown).await?.status(), 200);
//! let bare = Request::post("/invoices").body(String::new())?;
//! assert_eq!(service.clone().oneshot(bare).await?.status(), 400);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok(())
//! # }
//! ```

mod body;
mod figures;
mod gate;
mod heard;
mod layer;
mod marks;
mod rules;
mod standing;
mod told;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::name::Name;
use leasehold_core::token::Cluster;

use crate::file::Log;
use crate::observer::Watch;
use crate::place::Place;
use crate::{Counters, Error, Kept, Mark, Observer};
pub use body::{Answered, Carried};
use figures::Figures;
pub use figures::Seen;
use gate::Gate;
pub use heard::heard;
pub use layer::{CLAIM, CLAIM_GRPC, FenceLayer, Fenced, LEASE_APPLIED, LEASE_SEQUENCE, LEASE_TOKEN, Outcome};
use marks::Marks;
pub use rules::{Rules, Under};
pub use told::{CODES, Problem, Row};

/// How long things may take. A claim gets in at the latest `longest` + `settle` after the last request of a lower token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// How long one who raises the mark waits for those inside before it is told `UNAVAILABLE`.
    pub patience: Duration,
    /// How long a request may be inside; then it is cut off, and its outcome is unknown.
    pub longest: Duration,
    /// For how long nothing higher comes in after an outcome was unknown: the time within which the target applies a
    /// request, or never does, after whoever sent it has gone.
    pub settle: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { patience: seconds(5), longest: seconds(30), settle: seconds(30) }
    }
}

/// The fence before a service. Clones are the same fence.
#[derive(Clone, Debug)]
pub struct Fence(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    rules: Rules,
    /// One for each place of the rules, in their order.
    gates: Vec<Arc<Gate>>,
    watch: Watch,
    figures: Figures,
}

/// How one place stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crowd {
    /// The place.
    pub under: Under,
    /// Its mark.
    pub mark: Mark,
    /// How many requests are inside.
    pub inside: usize,
    /// For how long nothing higher comes in, because an outcome is unknown.
    pub shut_for: Duration,
}

impl Fence {
    /// Makes a mark file, armed as fresh, for each place of the rules. One that is there already is left alone and refused.
    pub fn arm(marks: &Path, cluster: Cluster, rules: &Rules) -> Result<(), Error> {
        rules.places().iter().enumerate().try_for_each(|(index, under)| {
            let file = file(marks, index, &place(cluster, under)?);
            Log::create(&file, cluster, name(under)?, under.slot)
        })
    }

    /// Opens the fence. A mark file that is missing or not whole refuses, and so does one that another process gates by.
    pub fn open(marks: &Path, cluster: Cluster, rules: Rules, bounds: Bounds) -> Result<Self, Error> {
        let gates = rules.places().iter().enumerate().map(|(index, under)| {
            let place = place(cluster, under)?;
            let path = file(marks, index, &place);
            let (marks, found) = Marks::open(&path, cluster, name(under)?, under.slot, bounds.patience)?;
            Ok(Gate::new(place, path, marks, found, &bounds))
        });
        let gates = gates.collect::<Result<_, Error>>()?;
        let (watch, figures) = (Watch::default(), Figures::default());
        Ok(Self(Arc::new(Shared { rules, gates, watch, figures })))
    }

    /// Whose tokens a mark file takes.
    pub fn cluster(marks: &Path) -> Result<Cluster, Error> {
        let kept = Log::survey(marks)?;
        Ok(kept.first().expect("a log keeps one mark").cluster)
    }

    /// Every mark that is kept, with the name of its resource.
    pub fn survey(&self) -> Result<Vec<Kept>, Error> {
        let mut all = Vec::new();
        for (gate, under) in self.0.gates.iter().zip(self.0.rules.places()) {
            let named = |kept| Kept { name: Some(under.resource.clone()), ..kept };
            all.extend(Log::survey(&gate.path)?.into_iter().map(named));
        }
        Ok(all)
    }

    /// Who is told every answer. Set it before the first layer is made.
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> Result<Self, Error> {
        let shared = Arc::get_mut(&mut self.0);
        let shared = shared.ok_or(Error::Misplaced("the fence is in use already; set the observer first"))?;
        shared.watch.observer = Some(observer);
        Ok(self)
    }

    /// What puts a service behind this fence.
    pub fn layer(&self) -> FenceLayer {
        FenceLayer(self.0.clone())
    }

    /// What this fence answered.
    pub fn counters(&self) -> &Counters {
        &self.0.watch.counters
    }

    /// What it saw beside that.
    pub fn seen(&self) -> Seen {
        self.0.figures.read()
    }

    /// How each place stands.
    pub fn crowds(&self) -> Vec<Crowd> {
        let stands = self.0.gates.iter().zip(self.0.rules.places()).map(|(gate, under)| {
            let (inside, shut_for, mark) = gate.crowd();
            Crowd { under: under.clone(), mark, inside, shut_for }
        });
        stands.collect()
    }

    /// Says in the mark files that nothing is on its way any more, so that the next process need not wait. Call it when
    /// no request comes any more; whether every outcome was known.
    pub fn settle(&self) -> Result<bool, Error> {
        self.0.gates.iter().try_fold(true, |all, gate| Ok(gate.settle()? && all))
    }
}

/// The mark file of the main place has the name that was given; the others stand beside it.
fn file(marks: &Path, index: usize, place: &Place) -> PathBuf {
    if index == 0 {
        return marks.to_owned();
    }
    let mut beside = marks.as_os_str().to_owned();
    beside.push(format!(".{}-{}", place.resource(), place.guarded.slot));
    beside.into()
}

fn place(cluster: Cluster, under: &Under) -> Result<Place, Error> {
    Ok(Place::new(cluster, name(under)?, under.slot))
}

fn name(under: &Under) -> Result<Name<'_>, Error> {
    Name::parse(&under.resource).map_err(|_| Error::Misplaced("a place of the rules is not a resource name"))
}
