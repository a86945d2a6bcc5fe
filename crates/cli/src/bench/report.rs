//! Results of a benchmark, as a table for people and as one JSON document.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::session_load::Sample;

/// Result of one measurement.
pub struct BenchRow {
    pub name: String,
    /// Operations per second; `None` if only the time counts.
    pub per_second: Option<f64>,
    /// Latency: median and 99th percentile.
    pub latency: Option<(Duration, Duration)>,
    /// CPU time of a local server for each operation.
    pub cpu_time: Option<Duration>,
    /// Other values: name, value and unit.
    pub values: Vec<(&'static str, f64, &'static str)>,
}

impl BenchRow {
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), per_second: None, latency: None, cpu_time: None, values: Vec::new() }
    }

    /// A row for a sample. `used` is the CPU time of the server.
    pub fn from_sample(name: impl Into<String>, sample: &Sample, used: Option<Duration>) -> Self {
        Self {
            per_second: Some(sample.per_second()),
            latency: Some((quantile(sample, 0.5), quantile(sample, 0.99))),
            cpu_time: used.map(|used| used.div_f64(sample.count.max(1) as f64)),
            ..Self::named(name)
        }
    }

    pub fn with(mut self, name: &'static str, value: f64, unit: &'static str) -> Self {
        self.values.push((name, value, unit));
        self
    }

    pub fn json(&self) -> Value {
        let mut row = Map::new();
        row.insert("name".into(), json!(self.name));
        let mut put = |name: &str, value: Option<f64>| {
            if let Some(value) = value {
                row.insert(name.into(), json!((value * 1_000.0).round() / 1_000.0));
            }
        };
        put("per_second", self.per_second);
        put("p50_ms", self.latency.map(|(p50, _)| p50.as_secs_f64() * 1e3));
        put("p99_ms", self.latency.map(|(_, p99)| p99.as_secs_f64() * 1e3));
        put("server_cpu_us", self.cpu_time.map(|used| used.as_secs_f64() * 1e6));
        for (name, value, unit) in &self.values {
            put(&format!("{}_{unit}", name.replace(' ', "_")), Some(*value));
        }
        Value::Object(row)
    }

    pub fn cells(&self) -> [String; 6] {
        let (p50, p99) = self.latency.unzip();
        let milli =
            |time: Option<Duration>| time.map_or_else(String::new, |time| format!("{:.3}", time.as_secs_f64() * 1e3));
        [
            self.name.clone(),
            self.per_second.map_or_else(String::new, |rate| grouped(rate as u64)),
            milli(p50),
            milli(p99),
            self.cpu_time.map_or_else(String::new, |used| format!("{:.2}", used.as_secs_f64() * 1e6)),
            self.values
                .iter()
                .map(|(name, value, unit)| format!("{name} {value:.2} {unit}"))
                .collect::<Vec<_>>()
                .join(", "),
        ]
    }
}

fn quantile(sample: &Sample, quantile: f64) -> Duration {
    Duration::from_nanos(sample.latency.value_at_quantile(quantile))
}

/// Formats a number with thousands separators.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats the rows as an aligned table.
pub fn table(rows: &[BenchRow]) -> String {
    let head = ["name", "per second", "p50 ms", "p99 ms", "server CPU µs", "more"].map(str::to_owned);
    let cells: Vec<[String; 6]> = std::iter::once(head).chain(rows.iter().map(BenchRow::cells)).collect();
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..6).map(width).collect();
    let line = |row: &[String; 6]| {
        let mut text = format!("{:<w$}", row[0], w = widths[0]);
        for column in 1..5 {
            text.push_str(&format!("  {:>w$}", row[column], w = widths[column]));
        }
        format!("{text}  {}", row[5]).trim_end().to_owned()
    };
    cells.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated_by_commas() {
        assert_eq!(grouped(7), "7");
        assert_eq!(grouped(123_456), "123,456");
        assert_eq!(grouped(1_000_000), "1,000,000");
    }

    #[test]
    fn a_row_contains_only_measured_values() {
        let row = BenchRow::named("restart").with("ready", 0.5, "s");
        assert_eq!(row.json(), json!({ "name": "restart", "ready_s": 0.5 }));
        assert!(table(&[row]).ends_with("ready 0.50 s"));
    }
}
