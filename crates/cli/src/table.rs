//! Tables and figures that people can read, as wide as their terminal and no wider.

use std::fmt::Write;
use std::io::IsTerminal;

/// No column is made narrower than this.
const NARROWEST: usize = 8;
const BETWEEN: &str = "  ";

/// Rows under a head.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub fn new<const N: usize>(head: [&str; N]) -> Self {
        Self { rows: vec![head.map(str::to_owned).to_vec()] }
    }

    /// One more row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        debug_assert_eq!(N, self.rows[0].len(), "a row has the columns of its head");
        self.rows.push(cells.map(|cell| plain(&cell)).to_vec());
    }

    /// The table for whoever reads standard output: a terminal's width, or as wide as it is.
    pub fn text(&self) -> String {
        self.within(terminal_width())
    }

    fn within(&self, width: Option<usize>) -> String {
        let mut widths = self.widths();
        if let Some(width) = width {
            narrow(&mut widths, width);
        }
        let mut text = String::new();
        for row in &self.rows {
            let cells = row.iter().zip(&widths).map(|(cell, width)| fit(cell, *width));
            let line = cells.collect::<Vec<_>>().join(BETWEEN);
            writeln!(text, "{}", line.trim_end()).expect("a string takes all");
        }
        text.truncate(text.trim_end_matches('\n').len());
        text
    }

    fn widths(&self) -> Vec<usize> {
        let columns = self.rows[0].len();
        (0..columns).map(|at| self.rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0)).collect()
    }
}

/// Takes from the widest column until everything fits, or nothing can be taken any more.
fn narrow(widths: &mut [usize], width: usize) {
    let gaps = BETWEEN.len() * widths.len().saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > width {
        match widths.iter_mut().max() {
            Some(widest) if *widest > NARROWEST => *widest -= 1,
            _ => return,
        }
    }
}

fn fit(cell: &str, width: usize) -> String {
    let length = cell.chars().count();
    if length <= width {
        return format!("{cell}{}", " ".repeat(width - length));
    }
    let kept: String = cell.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// Names and words come from others: what would move the cursor is not printed.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Names on the left, what they stand for on the right.
pub fn block(lines: &[(&str, String)]) -> String {
    let widest = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, value): &(&str, String)| format!("{name:widest$}  {}", plain(value));
    lines.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// How long, for people: two figures are enough.
pub fn lasting(ms: u64) -> String {
    let (s, m, h) = (ms / 1_000, ms / 60_000, ms / 3_600_000);
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..60_000 => format!("{s}.{}s", ms % 1_000 / 100),
        60_000..3_600_000 => format!("{m}m{:02}s", s % 60),
        3_600_000..86_400_000 => format!("{h}h{:02}m", m % 60),
        _ => format!("{}d{:02}h", h / 24, h % 24),
    }
}

/// A wall clock's milliseconds since 1970, for people: in UTC, to the second.
pub fn moment(wall_ms: u64) -> String {
    let (seconds, days) = (wall_ms / 1_000 % 86_400, wall_ms / 86_400_000);
    // Years that begin in March have their odd day at the end; 400 of them have 146097 days.
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

    fn table() -> Table {
        let mut table = Table::new(["RESOURCE", "HOLDER", "LEFT"]);
        table.row(["team/a/a-rather-long-name".into(), "w1".into(), "29.9s".into()]);
        table.row(["b\u{1b}[31m".into(), "wörker".into(), "-".into()]);
        table
    }

    #[test]
    fn without_a_terminal_nothing_is_cut() {
        let wide = "RESOURCE                   HOLDER  LEFT\n\
                    team/a/a-rather-long-name  w1      29.9s\n\
                    b\u{fffd}[31m                     wörker  -";
        assert_eq!(table().within(None), wide);
    }

    #[test]
    fn the_widest_column_gives_way_first() {
        let narrow = table().within(Some(30));
        assert!(narrow.lines().all(|line| line.chars().count() <= 30), "{narrow}");
        assert!(narrow.contains("team/a/a-rathe…"), "{narrow}");
        assert!(narrow.contains("29.9s"), "{narrow}");
        assert!(table().within(Some(1)).contains("team/a/…"), "a column stays readable");
    }

    #[test]
    fn lengths_of_time_have_two_figures() {
        let table = [(0, "0ms"), (999, "999ms"), (29_960, "29.9s"), (61_000, "1m01s"), (3_660_000, "1h01m")];
        for (ms, text) in table {
            assert_eq!(lasting(ms), text);
        }
        assert_eq!(lasting(90_000_000), "1d01h");
    }
    #[test]
    fn a_moment_is_a_date_and_a_time_in_utc() {
        let table = [
            (0, "1970-01-01 00:00:00Z"),
            (951_782_399_999, "2000-02-28 23:59:59Z"),
            (951_782_400_000, "2000-02-29 00:00:00Z"),
            (1_709_251_199_000, "2024-02-29 23:59:59Z"),
            (1_770_000_000_020, "2026-02-02 02:40:00Z"),
            (4_107_542_400_000, "2100-03-01 00:00:00Z"),
        ];
        for (wall_ms, text) in table {
            assert_eq!(moment(wall_ms), text);
        }
    }
}
