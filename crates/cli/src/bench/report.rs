//! What was measured, as a table for people and as one JSON document.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::line::Stretch;

/// One measured line.
pub struct Row {
    /// What was done.
    pub what: String,
    /// How often in a second; none where time alone counts.
    pub per_second: Option<f64>,
    /// How long one waited: half of them at most, and 99 of 100.
    pub waited: Option<(Duration, Duration)>,
    /// Processor time of the server for each, where it is our own.
    pub processor: Option<Duration>,
    /// Anything else, by name and with its unit.
    pub more: Vec<(&'static str, f64, &'static str)>,
}

impl Row {
    pub fn named(what: impl Into<String>) -> Self {
        Self { what: what.into(), per_second: None, waited: None, processor: None, more: Vec::new() }
    }

    /// A row for a stretch, and what the server used for it.
    pub fn of(what: impl Into<String>, stretch: &Stretch, used: Option<Duration>) -> Self {
        Self {
            per_second: Some(stretch.per_second()),
            waited: Some((quantile(stretch, 0.5), quantile(stretch, 0.99))),
            processor: used.map(|used| used.div_f64(stretch.count.max(1) as f64)),
            ..Self::named(what)
        }
    }

    pub fn with(mut self, name: &'static str, value: f64, unit: &'static str) -> Self {
        self.more.push((name, value, unit));
        self
    }

    pub fn json(&self) -> Value {
        let mut row = Map::new();
        row.insert("what".into(), json!(self.what));
        let mut put = |name: &str, value: Option<f64>| {
            if let Some(value) = value {
                row.insert(name.into(), json!((value * 1_000.0).round() / 1_000.0));
            }
        };
        put("per_second", self.per_second);
        put("p50_ms", self.waited.map(|(half, _)| half.as_secs_f64() * 1e3));
        put("p99_ms", self.waited.map(|(_, most)| most.as_secs_f64() * 1e3));
        put("server_cpu_us", self.processor.map(|used| used.as_secs_f64() * 1e6));
        for (name, value, unit) in &self.more {
            put(&format!("{name}_{unit}"), Some(*value));
        }
        Value::Object(row)
    }

    pub fn cells(&self) -> [String; 6] {
        let (half, most) = self.waited.unzip();
        let milli =
            |time: Option<Duration>| time.map_or_else(String::new, |time| format!("{:.3}", time.as_secs_f64() * 1e3));
        [
            self.what.clone(),
            self.per_second.map_or_else(String::new, |rate| grouped(rate as u64)),
            milli(half),
            milli(most),
            self.processor.map_or_else(String::new, |used| format!("{:.2}", used.as_secs_f64() * 1e6)),
            self.more
                .iter()
                .map(|(name, value, unit)| format!("{name} {value:.2} {unit}"))
                .collect::<Vec<_>>()
                .join(", "),
        ]
    }
}

fn quantile(stretch: &Stretch, quantile: f64) -> Duration {
    Duration::from_nanos(stretch.waited.value_at_quantile(quantile))
}

/// A number with its thousands apart.
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

/// The rows side by side, each column as wide as it must be.
pub fn table(rows: &[Row]) -> String {
    let head = ["what", "per second", "p50 ms", "p99 ms", "server CPU µs", "more"].map(str::to_owned);
    let cells: Vec<[String; 6]> = std::iter::once(head).chain(rows.iter().map(Row::cells)).collect();
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
    fn thousands_stand_apart() {
        assert_eq!(grouped(7), "7");
        assert_eq!(grouped(123_456), "123,456");
        assert_eq!(grouped(1_000_000), "1,000,000");
    }

    #[test]
    fn a_row_tells_only_what_was_measured() {
        let row = Row::named("restart").with("ready", 0.5, "s");
        assert_eq!(row.json(), json!({ "what": "restart", "ready_s": 0.5 }));
        assert!(table(&[row]).ends_with("ready 0.50 s"));
    }
}
