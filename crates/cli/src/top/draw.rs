//! Draws the model into a buffer of cells. Texts of callers are escaped here, so that none controls the terminal.

mod dialog;
mod header;
mod table;

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};

use super::model::{Focus, ScreenModel, header_rows};
use super::page_content::{PageContent, Tone, ToneText};
use super::view::TopView;
use crate::terminal_text::escape_line;

/// Draws the screen. Returns the place of the cursor, if a text is being typed.
pub fn draw(model: &ScreenModel, buffer: &mut Buffer) -> Option<(u16, u16)> {
    let area = buffer.area;
    let mut lines = Lines { area, next: area.y };
    header::draw(model, &mut lines, buffer, header_rows(area.height));
    title(model, lines.take(), buffer);
    let last = if area.height > 1 { 1 } else { 0 };
    let body = lines.rest(last);
    match &model.content {
        _ if model.content_of.is_none() && model.problem.is_none() => {
            put_line(
                buffer,
                Rect { height: body.height.min(1), ..body },
                &[ToneText::dim("waiting for the server...")],
            );
        }
        PageContent::Table(table) => table::draw(table, model.selected, model.scroll, body, buffer),
        PageContent::Lines(text) => {
            let shown = text.iter().skip(model.scroll).take(usize::from(body.height));
            for (line, y) in shown.zip(body.y..) {
                put_line(buffer, Rect { y, height: 1, ..body }, line);
            }
        }
    }
    let bottom = Rect { y: area.bottom().saturating_sub(1), height: last, ..area };
    let cursor = bottom_line(model, bottom, buffer);
    match &model.focus {
        Focus::Help => {
            dialog::help(area, buffer);
            None
        }
        Focus::Action(action) => dialog::action(action, body, buffer),
        Focus::Page | Focus::Command(_) | Focus::Filter(_) => cursor,
    }
}

/// Lines of the screen, from the top.
struct Lines {
    area: Rect,
    next: u16,
}

impl Lines {
    /// The next line, which is empty at the end of the screen.
    fn take(&mut self) -> Rect {
        let height = u16::from(self.next < self.area.bottom());
        let line = Rect { y: self.next, height, ..self.area };
        self.next = self.next.saturating_add(height);
        line
    }

    /// The lines that remain, without the last ones.
    fn rest(&self, last: u16) -> Rect {
        let height = self.area.bottom().saturating_sub(self.next).saturating_sub(last);
        Rect { y: self.next, height, ..self.area }
    }
}

/// The style of a tone.
fn style(tone: Tone) -> Style {
    match tone {
        Tone::Plain => Style::new(),
        Tone::Dim => Style::new().add_modifier(Modifier::DIM),
        Tone::Strong => Style::new().add_modifier(Modifier::BOLD),
        Tone::Good => Style::new().fg(Color::Green),
        Tone::Warn => Style::new().fg(Color::Yellow),
        Tone::Bad => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
    }
}

/// Writes texts one after the other into a line, cut at its end. Returns the column after them.
fn put_line(buffer: &mut Buffer, line: Rect, texts: &[ToneText]) -> u16 {
    let mut x = line.x;
    for text in texts {
        x = put(buffer, Rect { x, width: line.right().saturating_sub(x), ..line }, &text.text, style(text.tone));
    }
    x
}

/// Writes a text into a line, cut at its end. Returns the column after it.
fn put(buffer: &mut Buffer, line: Rect, text: &str, style: Style) -> u16 {
    if line.width == 0 || line.height == 0 {
        return line.x;
    }
    buffer.set_stringn(line.x, line.y, escape_line(text), usize::from(line.width), style).0
}

/// Which page this is, and what is selected.
fn title(model: &ScreenModel, line: Rect, buffer: &mut Buffer) {
    let mut texts = Vec::new();
    match &model.resource {
        Some(resource) => {
            texts.push(ToneText::dim("resource "));
            texts.push(ToneText::new(resource, Tone::Strong));
        }
        None => {
            texts.push(ToneText::new(model.view.word(), Tone::Strong));
            if !model.filter.is_empty() {
                texts.push(ToneText::dim("  filter "));
                texts.push(ToneText::plain(model.filter.to_string()));
            }
            if model.stuck {
                texts.push(ToneText::new("  only stuck", Tone::Warn));
            }
            if let Some(sort) = model.sort.filter(|_| model.view == TopView::Leases) {
                let direction = if model.descending { "largest first" } else { "smallest first" };
                texts.push(ToneText::dim("  sorted by "));
                texts.push(ToneText::plain(format!("{}, {direction}", sort.word().replace('_', " "))));
            }
            if model.starts.len() > 1 {
                texts.push(ToneText::dim(format!("  page {}", model.starts.len())));
            }
        }
    }
    // The rows are still those of the page before.
    if model.content_of.as_ref() != Some(&model.query()) {
        texts.push(ToneText::dim("  loading"));
    }
    buffer.set_style(line, Style::new().add_modifier(Modifier::UNDERLINED));
    put_line(buffer, line, &texts);
}

/// What is typed, a message, or the keys.
fn bottom_line(model: &ScreenModel, line: Rect, buffer: &mut Buffer) -> Option<(u16, u16)> {
    let typed = |buffer: &mut Buffer, start: &str, text: &str| {
        // The end of a long text is what is being typed.
        let room = usize::from(line.width).saturating_sub(start.len() + 1);
        let escaped = escape_line(text);
        let skip = escaped.chars().count().saturating_sub(room);
        let shown: String = escaped.chars().skip(skip).collect();
        let x = put_line(buffer, line, &[ToneText::new(start, Tone::Strong), ToneText::plain(shown)]);
        Some((x.min(line.right().saturating_sub(1)), line.y)).filter(|_| line.height > 0 && line.width > 0)
    };
    match &model.focus {
        Focus::Command(text) => return typed(buffer, ":", text),
        Focus::Filter(text) => {
            let hint = model.view.filter_hint().unwrap_or_default();
            return typed(buffer, &format!("/ {hint}: "), text);
        }
        Focus::Page | Focus::Help | Focus::Action(_) => {}
    }
    if let Some((text, tone)) = &model.message {
        put_line(buffer, line, &[ToneText::new(text, *tone)]);
        return None;
    }
    if let Some(problem) = &model.problem {
        put_line(buffer, line, &[ToneText::new(problem, Tone::Bad)]);
        return None;
    }
    let keys = match (&model.resource, model.view) {
        (Some(_), _) => "Esc back  r revoke  h hand off  j/k scroll  ? help  q quit",
        (None, TopView::Leases) => {
            "Enter describe  / filter  s sort  ! stuck  : view  r revoke  h hand off  ? help  q quit"
        }
        (None, _) => "Enter describe  : view  j/k select  p pause  ? help  q quit",
    };
    let footer = match &model.content {
        PageContent::Table(table) if !table.footer.is_empty() => format!("{}   ", table.footer),
        _ => String::new(),
    };
    put_line(buffer, line, &[ToneText::plain(footer), ToneText::dim(keys)]);
    None
}

#[cfg(test)]
mod tests;
