//! Text with styles for a terminal. Everything in it is escaped: the only control sequences are the styles of [`Style`].
//!
//! A style repeats what the words say. Without colors the styles are removed, and nothing is lost.

use std::borrow::Cow;

use crate::terminal_text::{escape_line, escape_lines};

/// A style of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Titles of columns.
    Heading,
    /// Nothing is wrong.
    Good,
    /// Needs attention.
    Warning,
    /// Is wrong.
    Bad,
    /// Less important than the rest.
    Dim,
}

impl Style {
    const fn sequence(self) -> &'static str {
        match self {
            Self::Heading => "\u{1b}[1m",
            Self::Good => "\u{1b}[32m",
            Self::Warning => "\u{1b}[33m",
            Self::Bad => "\u{1b}[1;31m",
            Self::Dim => "\u{1b}[2m",
        }
    }
}

/// Ends a style.
const RESET: &str = "\u{1b}[0m";

/// Escaped text of several lines, with styles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StyledText(String);

impl StyledText {
    /// One piece on one line, in a style.
    pub fn styled(text: &str, style: Option<Style>) -> Self {
        let text = escape_line(text);
        match style {
            Some(style) if !text.is_empty() => Self(format!("{}{text}{RESET}", style.sequence())),
            _ => Self(text.into_owned()),
        }
    }

    /// The pieces with `separator` between them, which is plain text.
    pub fn join(pieces: impl IntoIterator<Item = Self>, separator: &str) -> Self {
        let pieces: Vec<_> = pieces.into_iter().map(|piece| piece.0).collect();
        Self(pieces.join(separator))
    }

    /// The lines, without trailing spaces.
    pub fn lines(&self) -> impl Iterator<Item = Self> {
        self.0.lines().map(|line| Self(line.trim_end().to_owned()))
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text for a terminal, or for another reader.
    pub fn render(&self, has_color: bool) -> Cow<'_, str> {
        if has_color { Cow::Borrowed(&self.0) } else { without_styles(&self.0) }
    }

    /// The first `width` characters of one line. Styles have no width.
    pub fn cropped(&self, width: usize) -> Self {
        if without_styles(&self.0).chars().count() <= width {
            return self.clone();
        }
        let (mut kept, mut count, mut in_style) = (String::new(), 0, false);
        for c in self.0.chars() {
            match c {
                '\u{1b}' => in_style = true,
                _ if in_style => in_style = c != 'm',
                _ if count + 1 >= width => break,
                _ => count += 1,
            }
            kept.push(c);
        }
        Self(format!("{kept}…{RESET}"))
    }
}

impl From<String> for StyledText {
    fn from(text: String) -> Self {
        Self(match escape_lines(&text) {
            Cow::Borrowed(_) => text,
            Cow::Owned(escaped) => escaped,
        })
    }
}

/// Removes the styles. The text is escaped, so that an escape character always starts one.
fn without_styles(text: &str) -> Cow<'_, str> {
    if !text.contains('\u{1b}') {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut in_style = false;
    for c in text.chars() {
        match c {
            '\u{1b}' => in_style = true,
            _ if in_style => in_style = c != 'm',
            _ => plain.push(c),
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_styles_reach_the_terminal() {
        let hostile = "a\u{1b}[31mb";
        let text = StyledText::join(
            [StyledText::from(hostile.to_owned()), StyledText::styled(hostile, Some(Style::Bad))],
            "\n",
        );
        assert_eq!(text.render(true), "a\\u{1b}[31mb\n\u{1b}[1;31ma\\u{1b}[31mb\u{1b}[0m");
        assert_eq!(text.render(false), "a\\u{1b}[31mb\na\\u{1b}[31mb");
        assert_eq!(StyledText::from("a\nb".to_owned()).render(false), "a\nb", "text of several lines keeps them");
    }

    #[test]
    fn a_line_is_cropped_by_what_is_visible() {
        let line =
            StyledText::join([StyledText::styled("ab", Some(Style::Good)), StyledText::from("cd".to_owned())], "");
        assert_eq!(line.cropped(4), line);
        assert_eq!(line.cropped(3).render(false), "ab…");
        assert!(line.cropped(2).render(true).ends_with("…\u{1b}[0m"), "a style never continues after the line");
    }
}
