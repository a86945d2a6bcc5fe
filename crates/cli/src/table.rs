//! Text tables, durations and times for human-readable output, fitted to the terminal width.

use std::fmt::Write;
use std::io::IsTerminal;

use leasehold_core::time::DurationText;

use crate::terminal_text::escape_line;

/// Minimum width to which a column is narrowed.
const MIN_WIDTH: usize = 8;
const SEPARATOR: &str = "  ";

/// A table with a header row.
pub struct TextTable {
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// Creates a table with these column titles.
    pub fn new<const N: usize>(header: [&str; N]) -> Self {
        Self { rows: vec![header.map(str::to_owned).to_vec()] }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        debug_assert_eq!(N, self.rows[0].len(), "a row has as many cells as the header");
        self.rows.push(cells.map(|cell| escape_line(&cell).into_owned()).to_vec());
    }

    /// Renders the table for standard output, narrowed if that is a terminal.
    pub fn text(&self) -> String {
        self.render(terminal_width())
    }

    fn render(&self, width: Option<usize>) -> String {
        let mut widths = self.widths();
        if let Some(width) = width {
            narrow(&mut widths, width);
        }
        let mut text = String::new();
        for row in &self.rows {
            let cells = row.iter().zip(&widths).map(|(cell, width)| fit(cell, *width));
            let line = cells.collect::<Vec<_>>().join(SEPARATOR);
            writeln!(text, "{}", line.trim_end()).expect("writing to a string cannot fail");
        }
        text.truncate(text.trim_end_matches('\n').len());
        text
    }

    fn widths(&self) -> Vec<usize> {
        let columns = self.rows[0].len();
        (0..columns).map(|at| self.rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0)).collect()
    }
}

/// Narrows the widest column step by step until the table fits or all columns have the minimum width.
fn narrow(widths: &mut [usize], width: usize) {
    let gaps = SEPARATOR.len() * widths.len().saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > width {
        match widths.iter_mut().max() {
            Some(widest) if *widest > MIN_WIDTH => *widest -= 1,
            _ => return,
        }
    }
}

fn fit(cell: &str, width: usize) -> String {
    let length = cell.chars().count();
    if length <= width {
        return format!("{cell}{}", " ".repeat(width - length));
    }
    let prefix: String = cell.chars().take(width.saturating_sub(1)).collect();
    format!("{prefix}…")
}

/// Renders aligned key-value lines.
pub fn key_values(lines: &[(&str, String)]) -> String {
    let widest = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, value): &(&str, String)| format!("{name:widest$}  {}", escape_line(value));
    lines.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// A duration with its two largest units.
pub fn format_duration(ms: u64) -> String {
    DurationText(ms).to_string()
}

/// A wall-clock time (milliseconds since 1970) in UTC, to the second.
pub fn format_time(wall_ms: u64) -> String {
    let (seconds, days) = (wall_ms / 1_000 % 86_400, wall_ms / 86_400_000);
    // Years that start in March have the leap day at their end; 400 of them have 146097 days.
    let since = days + 719_468;
    let (era, day) = (since / 146_097, since % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = 400 * era + year + next;
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}Z")
}

/// A value, or a dash where there is none.
pub fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn terminal_width() -> Option<usize> {
    let out = std::io::stdout();
    let size = out.is_terminal().then(|| rustix::termios::tcgetwinsize(&out).ok()).flatten()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> TextTable {
        let mut table = TextTable::new(["RESOURCE", "HOLDER", "LEFT"]);
        table.row(["team/a/a-rather-long-name".into(), "w1".into(), "29.9s".into()]);
        table.row(["b\u{1b}[31m".into(), "wörker".into(), "-".into()]);
        table
    }

    #[test]
    fn cells_are_not_truncated_without_a_terminal() {
        let wide = "RESOURCE                   HOLDER  LEFT\n\
                    team/a/a-rather-long-name  w1      29.9s\n\
                    b\\u{1b}[31m                wörker  -";
        assert_eq!(table().render(None), wide);
    }

    #[test]
    fn the_widest_column_is_narrowed_first() {
        let narrow = table().render(Some(30));
        assert!(narrow.lines().all(|line| line.chars().count() <= 30), "{narrow}");
        assert!(narrow.contains("team/a/a-rathe…"), "{narrow}");
        assert!(narrow.contains("29.9s"), "{narrow}");
        assert!(table().render(Some(1)).contains("team/a/…"), "a column keeps its minimum width");
    }

    #[test]
    fn times_are_formatted_in_utc() {
        let table = [
            (0, "1970-01-01 00:00:00Z"),
            (951_782_399_999, "2000-02-28 23:59:59Z"),
            (951_782_400_000, "2000-02-29 00:00:00Z"),
            (1_709_251_199_000, "2024-02-29 23:59:59Z"),
            (1_770_000_000_020, "2026-02-02 02:40:00Z"),
            (4_107_542_400_000, "2100-03-01 00:00:00Z"),
        ];
        for (wall_ms, text) in table {
            assert_eq!(format_time(wall_ms), text);
        }
    }
}
