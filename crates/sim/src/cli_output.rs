//! Results of a command, as text for people or as one line of JSON.

use std::fmt::Write;
use std::time::Duration;

use leasehold_sim::runner::RunReport;
use serde_json::json;

/// Result of many seeds.
pub struct RunSummary<'a> {
    pub report: &'a RunReport,
    pub missing: &'a [(&'static str, &'static str)],
    /// Options that plant the same fault again.
    pub repeat_options: String,
    pub took: Duration,
}

impl RunSummary<'_> {
    fn per_second(&self) -> f64 {
        self.report.runs as f64 / self.took.as_secs_f64().max(0.001)
    }

    pub fn text(&self) -> String {
        let mut out = String::new();
        for failure in &self.report.failures {
            let _ = writeln!(out, "seed {}: {} ({})", failure.seed, failure.violation, failure.by);
        }
        if let Some(first) = self.report.failures.first() {
            let _ = writeln!(out, "replay it: leasehold-sim replay {}{}", first.seed, self.repeat_options);
        }
        for (fault, kind) in self.missing {
            let _ = writeln!(out, "never tried: {fault} while {kind} was in flight");
        }
        let (runs, repeated, failed) = (self.report.runs, self.report.repeated, self.report.failures.len());
        let speed = self.per_second();
        let _ = writeln!(out, "{runs} seeds, {repeated} of them twice, {failed} failed, {speed:.0} per second");
        out
    }

    pub fn json(&self) -> String {
        let failures = self.report.failures.iter().map(|failure| {
            let violation = &failure.violation;
            let (promise, at_us, detail) = (violation.promise, violation.at, &violation.detail);
            json!({"seed": failure.seed, "by": failure.by, "promise": promise, "at_us": at_us, "detail": detail})
        });
        let line = json!({
            "runs": self.report.runs,
            "repeated": self.report.repeated,
            "failures": failures.collect::<Vec<_>>(),
            "missing": self.missing,
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

    use leasehold_sim::mutation_run::MutantResult;
    use serde_json::json;

    /// Result of each fault.
    pub struct Mutants<'a> {
        pub rows: &'a [MutantResult],
        pub not_served: &'a [MutantResult],
    }

    impl Mutants<'_> {
        pub fn survivors(&self) -> Vec<&str> {
            let all = self.rows.iter().chain(self.not_served);
            all.filter(|row| row.by.is_none()).map(|row| row.fault.as_str()).collect()
        }

        pub fn text(&self) -> String {
            let mut out = format!("{:<8} {:<24} {:<28} median seeds\n", "promise", "fault", "found by");
            for row in self.rows {
                let by = row.by.as_deref().unwrap_or("SURVIVES");
                let _ = writeln!(out, "{:<8} {:<24} {by:<28} {}", row.promise, row.fault, row.seeds);
            }
            for row in self.not_served {
                let by = row.by.as_deref().unwrap_or("SURVIVES");
                let _ = writeln!(out, "{:<8} {:<24} not here: {by}", row.promise, row.fault);
            }
            let survivors = self.survivors();
            let (here, there) = (self.rows.len(), self.not_served.len());
            let _ = writeln!(out, "{here} faults here, {there} elsewhere, {} survive", survivors.len());
            if !survivors.is_empty() {
                let _ = writeln!(out, "survivors: {}", survivors.join(" "));
            }
            out
        }

        pub fn json(&self) -> String {
            let row = |row: &MutantResult, here: bool| json!({"promise": row.promise, "fault": row.fault, "by": row.by, "here": here, "seeds": here.then_some(row.seeds)});
            let here = self.rows.iter().map(|of| row(of, true));
            let all: Vec<_> = here.chain(self.not_served.iter().map(|of| row(of, false))).collect();
            format!("{}\n", json!({"faults": all, "survivors": self.survivors()}))
        }
    }
}
