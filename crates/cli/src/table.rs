//! Text tables, durations and times for human-readable output, fitted to the terminal width.

use std::io::IsTerminal;

use leasehold_core::time::DurationText;

use crate::styled_text::{Style, StyledText};
use crate::terminal_text::escape_line;

/// Minimum width to which a column is narrowed.
const MIN_WIDTH: usize = 8;
const SEPARATOR: &str = "  ";

/// A cell: one line of text, in a style.
#[derive(Clone, Debug)]
pub struct Cell {
    text: String,
    style: Option<Style>,
}

impl Cell {
    pub fn styled(text: impl Into<String>, style: Style) -> Self {
        Self { style: Some(style), ..Self::from(text.into()) }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text: escape_line(&text).into_owned(), style: None }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// A table with a header row. Wide columns follow the others, and are shown only on request.
pub struct TextTable {
    rows: Vec<Vec<Cell>>,
    is_wide: bool,
}

impl TextTable {
    /// Creates a table with these column titles.
    pub fn new<const N: usize>(header: [&str; N]) -> Self {
        Self { rows: vec![header.map(heading).to_vec()], is_wide: false }
    }

    /// Adds columns that only a wide table shows. A wide table is not narrowed.
    pub fn with_wide<const N: usize>(mut self, is_wide: bool, header: [&str; N]) -> Self {
        self.is_wide = is_wide;
        if is_wide {
            self.rows[0].extend(header.map(heading));
        }
        self
    }

    /// Adds a row.
    pub fn row<const N: usize, C: Into<Cell>>(&mut self, cells: [C; N]) {
        self.row_with::<N, 0, C, &str>(cells, []);
    }

    /// Adds a row with the cells of the wide columns.
    pub fn row_with<const N: usize, const M: usize, C: Into<Cell>, W: Into<Cell>>(
        &mut self,
        cells: [C; N],
        wide: [W; M],
    ) {
        let mut row: Vec<Cell> = cells.map(Into::into).to_vec();
        if self.is_wide {
            row.extend(wide.map(Into::into));
        }
        debug_assert_eq!(row.len(), self.rows[0].len(), "a row has as many cells as the header");
        self.rows.push(row);
    }

    /// Renders the table for standard output, narrowed if that is a terminal.
    pub fn text(&self) -> StyledText {
        self.render(if self.is_wide { None } else { terminal_width() })
    }

    fn render(&self, width: Option<usize>) -> StyledText {
        let mut widths = self.widths();
        if let Some(width) = width {
            narrow(&mut widths, width);
        }
        let line = |row: &Vec<Cell>| {
            let last = row.iter().rposition(|cell| !cell.text.is_empty()).unwrap_or(0);
            let cells = row.iter().zip(&widths).take(last + 1).enumerate();
            let cells = cells.map(|(at, (cell, width))| {
                let (text, padding) = fit(&cell.text, *width);
                let padding = " ".repeat(if at == last { 0 } else { padding });
                StyledText::join([StyledText::styled(&text, cell.style), StyledText::from(padding)], "")
            });
            StyledText::join(cells, SEPARATOR)
        };
        StyledText::join(self.rows.iter().map(line), "\n")
    }

    fn widths(&self) -> Vec<usize> {
        let columns = self.rows[0].len();
        (0..columns).map(|at| self.rows.iter().map(|row| row[at].text.chars().count()).max().unwrap_or(0)).collect()
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

fn heading(title: &str) -> Cell {
    Cell::styled(title, Style::Heading)
}

/// The part of a cell that fits, and the width that remains.
fn fit(cell: &str, width: usize) -> (String, usize) {
    let length = cell.chars().count();
    if length <= width {
        return (cell.to_owned(), width - length);
    }
    let prefix: String = cell.chars().take(width.saturating_sub(1)).collect();
    (format!("{prefix}…"), 0)
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
    terminal_size().map(|(width, _)| width)
}

/// Columns and rows of standard output, if that is a terminal that reports them.
pub fn terminal_size() -> Option<(usize, usize)> {
    let out = std::io::stdout();
    let size = out.is_terminal().then(|| rustix::termios::tcgetwinsize(&out).ok()).flatten()?;
    (size.ws_col > 0).then_some((usize::from(size.ws_col), usize::from(size.ws_row)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(is_wide: bool) -> TextTable {
        let mut table = TextTable::new(["RESOURCE", "HOLDER", "LEFT"]).with_wide(is_wide, ["SESSION"]);
        table.row_with(["team/a/a-rather-long-name", "w1", "29.9s"], ["7"]);
        table.row_with(["b\u{1b}[31m", "wörker", "-"], ["-"]);
        table
    }

    fn plain(width: Option<usize>) -> String {
        table(false).render(width).render(false).into_owned()
    }

    #[test]
    fn cells_are_not_truncated_without_a_terminal() {
        let wide = "RESOURCE                   HOLDER  LEFT\n\
                    team/a/a-rather-long-name  w1      29.9s\n\
                    b\\u{1b}[31m                wörker  -";
        assert_eq!(plain(None), wide);
    }

    #[test]
    fn the_widest_column_is_narrowed_first() {
        let narrow = plain(Some(30));
        assert!(narrow.lines().all(|line| line.chars().count() <= 30), "{narrow}");
        assert!(narrow.contains("team/a/a-rathe…"), "{narrow}");
        assert!(narrow.contains("29.9s"), "{narrow}");
        assert!(plain(Some(1)).contains("team/a/…"), "a column keeps its minimum width");
    }

    #[test]
    fn wide_columns_are_shown_on_request() {
        let wide = table(true).text().render(false).into_owned();
        assert!(wide.starts_with("RESOURCE                   HOLDER  LEFT   SESSION\n"), "{wide}");
        assert!(wide.lines().nth(1).is_some_and(|row| row.ends_with("29.9s  7")), "{wide}");
    }

    #[test]
    fn styles_do_not_change_the_columns() {
        let mut table = TextTable::new(["A", "B"]);
        table.row([Cell::styled("x", Style::Bad), "y".into()]);
        table.row(["long", ""]);
        let text = table.render(None);
        assert_eq!(text.render(false), "A     B\nx     y\nlong");
        let colored = "\u{1b}[1mA\u{1b}[0m     \u{1b}[1mB\u{1b}[0m\n\u{1b}[1;31mx\u{1b}[0m     y\nlong";
        assert_eq!(text.render(true), colored);
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
