//! The help, and the preview of an action with its reason.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::Style;

use super::put_line;
use crate::terminal_text::escape_line;
use crate::top::model::ActionDialog;
use crate::top::page_content::{Tone, ToneText};
use crate::top::view::TopView;
use leasehold_server::dashboard::action_effects::OperatorAction;

/// The keys of the page.
const KEYS: [(&str, &str); 14] = [
    ("j k, arrows", "select a row, or scroll"),
    ("] [, PgDn PgUp", "next and previous page"),
    ("g G", "first page, last row"),
    ("Enter, d", "describe the resource"),
    ("/", "filter by prefix, @holder or both; the server filters"),
    ("s S", "sort by the next key, reverse; the server sorts"),
    ("!", "only stuck leases"),
    ("r", "revoke, after a preview"),
    ("h", "hand off, after a preview"),
    ("p", "pause"),
    ("Esc", "back, and remove the filter"),
    (":", "a view: its word, or a start of it"),
    ("1-7", "the same, by number"),
    ("q, Ctrl-C", "quit"),
];

/// Draws the help.
pub fn help(area: Rect, buffer: &mut Buffer) {
    let key = |(key, meaning): &(&str, &str)| {
        vec![ToneText::new(format!("{key:<16}"), Tone::Strong), ToneText::plain(*meaning)]
    };
    let view = |view: &TopView| {
        vec![ToneText::new(format!(":{:<15}", view.word()), Tone::Strong), ToneText::plain(view.meaning())]
    };
    let lines: Vec<_> = KEYS.iter().map(key).chain([Vec::new()]).chain(TopView::ALL.iter().map(view)).collect();
    put_box(area, buffer, "Keys", &lines);
}

/// Draws an action. Returns the place of the cursor.
pub fn action(dialog: &ActionDialog, area: Rect, buffer: &mut Buffer) -> Option<(u16, u16)> {
    let width = usize::from(area.width.saturating_sub(4)).max(1);
    let wrapped = |text: &str, indent: &str, tone: Tone| -> Vec<Vec<ToneText>> {
        let lines = wrap(&escape_line(text), width.saturating_sub(indent.len()).max(1));
        lines.into_iter().map(|line| vec![ToneText::new(format!("{indent}{line}"), tone)]).collect()
    };
    let mut lines = Vec::new();
    match &dialog.preview {
        None => lines.push(vec![ToneText::dim("asking the server what would happen...")]),
        Some(Err(problem)) => lines.extend(wrapped(problem, "", Tone::Bad)),
        Some(Ok(preview)) => {
            for effect in &preview.effects {
                lines.extend(wrapped(effect, "", Tone::Plain));
            }
            if let Some((is_fenced, summary, targets)) =
                preview.targets.as_ref().filter(|_| dialog.action != OperatorAction::Free)
            {
                lines.extend(wrapped(summary, "", if *is_fenced { Tone::Good } else { Tone::Bad }));
                for target in targets {
                    lines.extend(wrapped(target, "  ", Tone::Dim));
                }
            }
        }
    }
    // The end of a list gives way to what has to be typed.
    let room = usize::from(area.height.saturating_sub(6));
    if lines.len() > room {
        let more = lines.len() + 1 - room.max(1);
        lines.truncate(room.saturating_sub(1));
        lines.push(vec![ToneText::dim(format!("and {more} more lines"))]);
    }
    lines.push(Vec::new());
    let label = "Reason: ";
    let typed = escape_line(&dialog.reason);
    let skip = typed.chars().count().saturating_sub(width.saturating_sub(label.len() + 1));
    let shown: String = typed.chars().skip(skip).collect();
    let typed_width = shown.chars().count();
    lines.push(vec![ToneText::new(label, Tone::Strong), ToneText::plain(shown)]);
    let reason_line = lines.len() - 1;
    let hint = match dialog.action {
        OperatorAction::Handoff => {
            "Enter hands off, Esc cancels. The reason is printed at the end; the audit log has none for a handoff."
        }
        _ => "Enter revokes, Esc cancels. The audit log records the reason.",
    };
    match (&dialog.problem, dialog.sent) {
        (_, true) => lines.push(vec![ToneText::new("sent, waiting for the answer...", Tone::Warn)]),
        (Some(problem), _) => lines.extend(wrapped(problem, "", Tone::Bad)),
        (None, _) => lines.extend(wrapped(hint, "", Tone::Dim)),
    }
    let title = format!("{} {}", dialog.action.title(), dialog.resource);
    let inner = put_box(area, buffer, &title, &lines);
    let column = u16::try_from(label.len() + typed_width).unwrap_or(u16::MAX);
    let (x, y) =
        (inner.x.saturating_add(column), inner.y.saturating_add(u16::try_from(reason_line).unwrap_or(u16::MAX)));
    (x < inner.right() && y < inner.bottom()).then_some((x, y))
}

/// Draws lines in a frame, over what is there. Returns the place of the lines.
fn put_box(area: Rect, buffer: &mut Buffer, title: &str, lines: &[Vec<ToneText>]) -> Rect {
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(area.height);
    let area = Rect { height, ..area };
    for y in area.top()..area.bottom() {
        for x in area.left()..area.right() {
            buffer[(x, y)].reset();
        }
    }
    let line = |y: u16| Rect { y, height: u16::from(y < area.bottom()), ..area };
    let rule = "─".repeat(usize::from(area.width));
    for y in [area.top(), area.bottom().saturating_sub(1).max(area.top())] {
        super::put(buffer, line(y), &rule, Style::new());
    }
    let title_line = line(area.top());
    let inset = title_line.width.min(2);
    let title_place = Rect { x: title_line.x + inset, width: title_line.width - inset, ..title_line };
    put_line(buffer, title_place, &[ToneText::new(format!(" {title} "), Tone::Strong)]);
    let inset = area.width.min(2);
    let inner = Rect {
        x: area.x + inset,
        y: area.y.saturating_add(1),
        width: area.width.saturating_sub(2 * inset),
        height: area.height.saturating_sub(2),
    };
    for (text, y) in lines.iter().zip(inner.top()..inner.bottom()) {
        put_line(buffer, Rect { y, height: 1, ..inner }, text);
    }
    inner
}

/// Lines of at most `width` characters, broken between words where possible.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let mut rest: Vec<char> = word.chars().collect();
        if used > 0 && used + 1 + rest.len() > width {
            lines.push(String::new());
            used = 0;
        }
        let line = lines.last_mut().expect("there is a line");
        if used > 0 {
            line.push(' ');
            used += 1;
        }
        while rest.len() > width {
            let line = lines.last_mut().expect("there is a line");
            line.extend(rest.drain(..width));
            lines.push(String::new());
            used = 0;
        }
        let line = lines.last_mut().expect("there is a line");
        used += rest.len();
        line.extend(rest);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::wrap;

    #[test]
    fn lines_break_between_words_and_long_words_are_cut() {
        assert_eq!(wrap("a bc def", 4), ["a bc", "def"]);
        assert_eq!(wrap("abcdefgh i", 3), ["abc", "def", "gh", "i"]);
        assert_eq!(wrap("", 3), [""]);
        assert!(wrap("ä".repeat(50).as_str(), 7).iter().all(|line| line.chars().count() <= 7));
    }
}
