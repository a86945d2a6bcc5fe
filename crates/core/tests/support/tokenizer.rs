//! Splits a line of a story into words and parses durations.

use std::str::FromStr;

/// A cursor over the words of a line.
#[derive(Clone, Copy)]
pub struct WordReader<'a> {
    rest: &'a [String],
}

impl<'a> WordReader<'a> {
    pub fn new(words: &'a [String]) -> Self {
        Self { rest: words }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn peek(&self) -> Option<&'a str> {
        self.rest.first().map(String::as_str)
    }

    /// Returns the next word.
    pub fn word(&mut self, what: &str) -> Result<&'a str, String> {
        let (first, rest) = self.rest.split_first().ok_or_else(|| format!("the line ends before {what}"))?;
        self.rest = rest;
        Ok(first)
    }

    /// Consumes this phrase if it is next.
    pub fn take(&mut self, phrase: &str) -> bool {
        let count = phrase.split(' ').count();
        let found = self.rest.len() >= count && phrase.split(' ').zip(self.rest).all(|(a, b)| a == b);
        if found {
            self.rest = &self.rest[count..];
        }
        found
    }

    /// Consumes this phrase, which must be next.
    pub fn must(&mut self, phrase: &str) -> Result<(), String> {
        if self.take(phrase) { Ok(()) } else { Err(format!("expected `{phrase}` before {:?}", self.rest)) }
    }

    pub fn number<T: FromStr>(&mut self, what: &str) -> Result<T, String> {
        let word = self.word(what)?;
        word.parse().map_err(|_| format!("{word} is not {what}"))
    }

    pub fn millis(&mut self, what: &str) -> Result<u64, String> {
        let word = self.word(what)?;
        millis(word).ok_or_else(|| format!("{word} is not {what}; write 5s, 500ms or 2m"))
    }

    /// Consumes the remaining words as text.
    pub fn text(&mut self) -> String {
        let text = self.rest.join(" ");
        self.rest = &[];
        text
    }

    pub fn end(&self) -> Result<(), String> {
        if self.rest.is_empty() { Ok(()) } else { Err(format!("unknown words {:?}", self.rest.join(" "))) }
    }
}

/// Splits at white space. Quotes group words; a trailing comma is its own word.
pub fn split(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => match rest.split_once(char::is_whitespace) {
                Some((word, after)) => (word, after),
                None => (rest, ""),
            },
        };
        match word.strip_suffix(',') {
            Some(word) if !rest.starts_with('"') => words.extend([word.to_owned(), ",".to_owned()]),
            _ => words.push(word.to_owned()),
        }
        rest = after.trim_start();
    }
    words.retain(|word| !word.is_empty() || text.contains("\"\""));
    words
}

/// `5s`, `500ms`, `2m`, `1h`.
pub fn millis(word: &str) -> Option<u64> {
    let digits = word.len() - word.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = word.split_at(digits);
    let unit = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// Formats a duration canonically.
pub fn span(ms: u64) -> String {
    match ms {
        0 => "0s".to_owned(),
        _ if ms.is_multiple_of(3_600_000) => format!("{}h", ms / 3_600_000),
        _ if ms.is_multiple_of(60_000) => format!("{}m", ms / 60_000),
        _ if ms.is_multiple_of(1_000) => format!("{}s", ms / 1_000),
        _ => format!("{ms}ms"),
    }
}
