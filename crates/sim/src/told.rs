//! What a command found, in words for people and in one line of JSON for programs.

use std::fmt::Write;
use std::time::Duration;

use leasehold_sim::runs::Report;
use serde_json::json;

/// What many seeds came to.
pub struct Run<'a> {
    pub report: &'a Report,
    pub missing: &'a [(&'static str, &'static str)],
    /// What must be said to plant the same fault again.
    pub again: String,
    pub took: Duration,
}

impl Run<'_> {
    fn per_second(&self) -> f64 {
        self.report.played as f64 / self.took.as_secs_f64().max(0.001)
    }

    pub fn words(&self) -> String {
        let mut out = String::new();
        for failure in &self.report.failures {
            let _ = writeln!(out, "seed {}: {} ({})", failure.seed, failure.violation, failure.by);
        }
        if let Some(first) = self.report.failures.first() {
            let _ = writeln!(out, "see it again: leasehold-sim replay {}{}", first.seed, self.again);
        }
        for (fault, kind) in self.missing {
            let _ = writeln!(out, "never met: {fault} while {kind} was under way");
        }
        let (played, twice, failed) = (self.report.played, self.report.twice, self.report.failures.len());
        let speed = self.per_second();
        let _ = writeln!(out, "{played} seeds, {twice} of them twice, {failed} failed, {speed:.0} a second");
        out
    }

    pub fn json(&self) -> String {
        let failures = self.report.failures.iter().map(|failure| {
            let violation = &failure.violation;
            let (promise, at_us, why) = (violation.promise, violation.at, &violation.why);
            json!({"seed": failure.seed, "by": failure.by, "promise": promise, "at_us": at_us, "why": why})
        });
        let line = json!({
            "played": self.report.played,
            "twice": self.report.twice,
            "failures": failures.collect::<Vec<_>>(),
            "never_met": self.missing,
            "seconds": self.took.as_secs_f64(),
            "per_second": self.per_second(),
        });
        format!("{line}\n")
    }
}

#[cfg(feature = "mutants")]
pub use mutants::Mutants;

#[cfg(feature = "mutants")]
mod mutants {
    use std::fmt::Write;

    use leasehold_sim::killing::Killed;
    use serde_json::json;

    /// What became of every fault.
    pub struct Mutants<'a> {
        pub rows: &'a [Killed],
        pub elsewhere: &'a [Killed],
    }

    impl Mutants<'_> {
        pub fn survivors(&self) -> Vec<&str> {
            let all = self.rows.iter().chain(self.elsewhere);
            all.filter(|row| row.by.is_none()).map(|row| row.fault.as_str()).collect()
        }

        pub fn words(&self) -> String {
            let mut out = format!("{:<8} {:<24} {:<28} median seeds\n", "promise", "fault", "found by");
            for row in self.rows {
                let by = row.by.as_deref().unwrap_or("SURVIVES");
                let _ = writeln!(out, "{:<8} {:<24} {by:<28} {}", row.promise, row.fault, row.seeds);
            }
            for row in self.elsewhere {
                let by = row.by.as_deref().unwrap_or("SURVIVES");
                let _ = writeln!(out, "{:<8} {:<24} not here: {by}", row.promise, row.fault);
            }
            let survivors = self.survivors();
            let (here, there) = (self.rows.len(), self.elsewhere.len());
            let _ = writeln!(out, "{here} faults here, {there} elsewhere, {} survive", survivors.len());
            if !survivors.is_empty() {
                let _ = writeln!(out, "survivors: {}", survivors.join(" "));
            }
            out
        }

        pub fn json(&self) -> String {
            let row = |row: &Killed, here: bool| json!({"promise": row.promise, "fault": row.fault, "by": row.by, "here": here, "seeds": here.then_some(row.seeds)});
            let here = self.rows.iter().map(|of| row(of, true));
            let all: Vec<_> = here.chain(self.elsewhere.iter().map(|of| row(of, false))).collect();
            format!("{}\n", json!({"faults": all, "survivors": self.survivors()}))
        }
    }
}
