//! Tables: columns share the width, and narrow terminals show fewer of them.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Modifier, Style};

use super::{put, style};
use crate::top::page_content::{PageTable, TableCell, TableColumn, Tone};

/// Space between two columns.
const GAP: u16 = 1;
/// Width to which a flexible column is at least drawn.
const MIN_FLEXIBLE: u16 = 4;

/// Draws a table with its column titles.
pub fn draw(table: &PageTable, selected: usize, scroll: usize, area: Rect, buffer: &mut Buffer) {
    let widths = widths(&table.columns, area.width);
    let line = |y: u16| Rect { y, height: u16::from(y < area.bottom()), ..area };
    let titles = table.columns.iter().map(|column| column.title);
    put_cells(buffer, line(area.y), &widths, titles.map(|title| TableCell::toned(title, Tone::Dim)));
    let first = area.y.saturating_add(1);
    if table.rows.is_empty() {
        put(buffer, line(first), &table.empty, style(Tone::Dim));
        return;
    }
    let shown = table.rows.iter().enumerate().skip(scroll).take(usize::from(area.height.saturating_sub(1)));
    for ((index, row), y) in shown.zip(first..) {
        put_cells(buffer, line(y), &widths, row.cells.iter().cloned());
        if index == selected {
            buffer.set_style(line(y), Style::new().add_modifier(Modifier::REVERSED));
        }
    }
}

/// The width of each column; zero if it is not shown.
fn widths(columns: &[TableColumn], width: u16) -> Vec<u16> {
    let is_shown = |column: &&TableColumn| column.from_width <= width;
    let shown = columns.iter().filter(is_shown).count() as u16;
    let fixed: u16 = columns.iter().filter(is_shown).map(|column| column.width).sum();
    let flexible = columns.iter().filter(is_shown).filter(|column| column.width == 0).count() as u16;
    let free = width.saturating_sub(fixed).saturating_sub(GAP * shown.saturating_sub(1));
    let (share, mut rest) = (free / flexible.max(1), free % flexible.max(1));
    let column_width = |column: &TableColumn| {
        if column.from_width > width {
            return 0;
        }
        if column.width > 0 {
            return column.width;
        }
        let extra = u16::from(rest > 0);
        rest = rest.saturating_sub(1);
        (share + extra).max(MIN_FLEXIBLE)
    };
    columns.iter().map(column_width).collect()
}

fn put_cells(buffer: &mut Buffer, line: Rect, widths: &[u16], cells: impl Iterator<Item = TableCell>) {
    let mut x = line.x;
    for (cell, width) in cells.zip(widths).filter(|(_, width)| **width > 0) {
        let place = Rect { x, width: (*width).min(line.right().saturating_sub(x)), ..line };
        match cell {
            TableCell::Text(text) => {
                put(buffer, place, &shortened(&text.text, usize::from(place.width)), style(text.tone));
            }
            TableCell::Countdown { left_ms, of_ms } => put_countdown(buffer, place, left_ms, of_ms),
        }
        x = x.saturating_add(*width + GAP);
        if x >= line.right() {
            return;
        }
    }
}

/// A text whose end is replaced if it is too long.
fn shortened(text: &str, width: usize) -> String {
    let text = crate::terminal_text::escape_line(text);
    if text.chars().count() <= width {
        return text.into_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// A bar that shrinks with the remaining time.
fn put_countdown(buffer: &mut Buffer, place: Rect, left_ms: u64, of_ms: u64) {
    let width = u64::from(place.width);
    // Rounded up, so that something is left until the end.
    let filled = (left_ms.saturating_mul(width)).div_ceil(of_ms.max(1)).min(width) as usize;
    let tone = match left_ms.saturating_mul(4) / of_ms.max(1) {
        0 => Tone::Bad,
        1 => Tone::Warn,
        _ => Tone::Good,
    };
    let x = put(buffer, place, &"█".repeat(filled), style(tone));
    let rest = Rect { x, width: place.right().saturating_sub(x), ..place };
    put(buffer, rest, &"░".repeat(usize::from(rest.width)), style(Tone::Dim));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_share_the_width_and_narrow_terminals_drop_some() {
        let columns = [
            TableColumn::flexible("A"),
            TableColumn::flexible("B"),
            TableColumn::fixed("C", 10),
            TableColumn::fixed("D", 8).shown_from(60),
        ];
        assert_eq!(widths(&columns, 81), [30, 30, 10, 8]);
        assert_eq!(widths(&columns, 82), [31, 30, 10, 8]);
        assert_eq!(widths(&columns, 50), [19, 19, 10, 0]);
        assert_eq!(widths(&columns, 3), [4, 4, 10, 0], "what does not fit is cut");
    }
}
