//! A whole run: round after round, what was seen in each, and one line that sums it up.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use leasehold::duration::Lasting;
use serde::Serialize;

use crate::read::tally::Tally;
use crate::round::{self, Least, Outcome};
use crate::stage::Plan;

/// How long a round is at most: its journal and its history must fit a checker.
const ROUND: Duration = Duration::from_secs(60);

/// What is asked for.
#[derive(clap::Args)]
pub struct Run {
    /// How long strikes fall, in rounds of a minute at most; each has the next seed and starts anew.
    #[arg(long = "for", value_name = "DURATION", default_value = "60s")]
    lasting: Lasting,
    /// What the strikes of the first round are drawn from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One server on a file journal, or three on etcd.
    #[arg(long, default_value = "1", value_parser = ["1", "3"])]
    servers: String,
    /// How many holders.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(3..=24))]
    holders: u32,
    /// Pauses beyond the ttl that each minute must have; a round goes on until it has its share.
    #[arg(long, default_value_t = 10)]
    pauses: u64,
    /// Late writes that each minute must have.
    #[arg(long, default_value_t = 10)]
    late: u64,
    /// Holders write to the unfenced twins alone, to see the run go red.
    #[arg(long)]
    fence_off: bool,
    /// Prints the summary as one JSON document.
    #[arg(long)]
    json: bool,
    /// Prints every strike of the round as it is judged.
    #[arg(long)]
    verbose: bool,
    /// The binary `leasehold`, if not the one beside this one.
    #[arg(long, value_name = "FILE")]
    leasehold: Option<PathBuf>,
    /// Keeps what the round left in this directory, which must not be there yet.
    #[arg(long, value_name = "DIRECTORY")]
    keep: Option<PathBuf>,
}

/// What a run comes to.
#[derive(Debug, Default, Serialize)]
struct Sum {
    servers: usize,
    seed: u64,
    rounds: u64,
    seconds: f64,
    pauses: u64,
    pauses_beyond_ttl: u64,
    #[serde(flatten)]
    tally: Tally,
    strikes: BTreeMap<&'static str, u64>,
    notes: Vec<String>,
    broken: Vec<crate::verdict::Found>,
}

impl Run {
    /// Plays it. True if every promise held; a run without fences holds none.
    pub fn play(&self) -> io::Result<bool> {
        let lasting = Duration::from_millis(self.lasting.millis());
        let beside = std::env::current_exe()?.with_file_name("leasehold");
        let binary = self.leasehold.clone().unwrap_or(beside);
        if !binary.exists() {
            let next = "build it (cargo build -p leasehold-cli), or name it with --leasehold";
            return Err(io::Error::other(format!("{} is not there; {next}", binary.display())));
        }
        let servers = if self.servers == "3" { 3 } else { 1 };
        let mut sum = Sum { servers, seed: self.seed, ..Sum::default() };
        let bar = if io::stderr().is_terminal() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        bar.set_style(ProgressStyle::with_template("{spinner} {msg}").map_err(io::Error::other)?);
        let mut left = lasting;
        while !left.is_zero() && sum.broken.is_empty() {
            let now = left.min(ROUND);
            left -= now;
            let seed = self.seed + sum.rounds;
            let plan = Plan { seed, servers, holders: self.holders, fenced: !self.fence_off, binary: binary.clone() };
            let share = |each_minute: u64| (each_minute * now.as_millis() as u64).div_ceil(60_000);
            let least = Least { pauses: share(self.pauses), late: share(self.late) };
            let said = |what: &str| bar.set_message(format!("seed {seed}: {what}"));
            let outcome = self.round(&plan, now, least, &said)?;
            self.tell(&outcome, &bar);
            sum.add(outcome);
        }
        bar.finish_and_clear();
        self.tell_all(&sum)?;
        Ok(sum.broken.is_empty())
    }

    fn round(&self, plan: &Plan, lasting: Duration, least: Least, each: &dyn Fn(&str)) -> io::Result<Outcome> {
        match &self.keep {
            Some(keep) => {
                let above = keep.join(format!("seed-{}", plan.seed));
                std::fs::create_dir_all(&above)?;
                round::play(plan, &above, lasting, least, each)
            }
            None => {
                let above = tempfile::tempdir()?;
                let mut outcome = match round::play(plan, above.path(), lasting, least, each) {
                    Ok(outcome) => outcome,
                    Err(error) => {
                        let error = format!("{error}; what is left lies in {}", above.keep().display());
                        return Err(io::Error::other(error));
                    }
                };
                // What is left of a round that failed is evidence; one that was meant to fail leaves none.
                if !outcome.broken.is_empty() && plan.fenced {
                    outcome.notes.push(format!("what is left lies in {}", above.keep().display()));
                }
                Ok(outcome)
            }
        }
    }

    /// One line for each round.
    fn tell(&self, outcome: &Outcome, bar: &ProgressBar) {
        bar.suspend(|| {
            if self.json {
                return;
            }
            let tally = &outcome.tally;
            println!(
                "seed {}: {:.0} s, {} grants, {} writes, {} pauses ({} beyond the ttl), {} late writes ({} accepted), {} batches",
                outcome.seed,
                outcome.seconds,
                tally.grants,
                tally.writes,
                outcome.pauses,
                outcome.pauses_beyond_ttl,
                tally.late,
                tally.late_accepted,
                outcome.batches,
            );
            if self.verbose {
                outcome.struck.iter().for_each(|line| println!("  {line}"));
            }
        });
    }

    fn tell_all(&self, sum: &Sum) -> io::Result<()> {
        if self.json {
            println!("{}", serde_json::to_string(sum)?);
            return Ok(());
        }
        sum.notes.iter().for_each(|note| println!("note: {note}"));
        for found in &sum.broken {
            println!("BROKEN {} ({}): {}", found.promise, found.by, found.why);
            found.events.iter().for_each(|event| println!("  {event}"));
        }
        let strikes: Vec<_> = sum.strikes.iter().map(|(word, count)| format!("{word} {count}")).collect();
        println!("strikes: {}", strikes.join(", "));
        let tally = &sum.tally;
        println!(
            "chaos: {} servers, seeds {} to {}, {:.0} s: {} grants, {} pauses ({} beyond the ttl), {} late writes: {} refused, \
             {} unanswered, {} accepted; {} writes corrupted the unfenced twins; {} promises broken",
            sum.servers,
            sum.seed,
            sum.seed + sum.rounds.saturating_sub(1),
            sum.seconds,
            tally.grants,
            sum.pauses,
            sum.pauses_beyond_ttl,
            tally.late,
            tally.late_refused,
            tally.late_unknown,
            tally.late_accepted,
            tally.corrupted,
            sum.broken.len(),
        );
        Ok(())
    }
}

impl Sum {
    fn add(&mut self, outcome: Outcome) {
        self.rounds += 1;
        self.seconds += outcome.seconds;
        self.pauses += outcome.pauses;
        self.pauses_beyond_ttl += outcome.pauses_beyond_ttl;
        self.tally.add(&outcome.tally);
        for (word, count) in outcome.strikes {
            *self.strikes.entry(word).or_default() += count;
        }
        self.notes.extend(outcome.notes.into_iter().map(|note| format!("seed {}: {note}", outcome.seed)));
        self.broken.extend(outcome.broken);
    }
}
