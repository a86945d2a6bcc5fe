//! Splits the start of a command line into words, as a shell does: quotes and backslashes.

/// The words, and the last one as it is written. The last one is empty after a space.
pub fn split(line: &str) -> (Vec<String>, String) {
    let mut words = Vec::new();
    let (mut word, mut raw, mut is_open) = (String::new(), String::new(), false);
    let mut quote = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        if quote.is_none() && c.is_whitespace() {
            if is_open {
                words.push(std::mem::take(&mut word));
            }
            raw.clear();
            is_open = false;
            continue;
        }
        is_open = true;
        raw.push(c);
        match (quote, c) {
            (Some(open), c) if open == c => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None | Some('"'), '\\') => {
                if let Some(next) = chars.next() {
                    raw.push(next);
                    word.push(next);
                }
            }
            _ => word.push(c),
        }
    }
    words.push(word);
    (words, raw)
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn words_are_those_of_a_shell() {
        let of = |line: &str| {
            let (words, raw) = split(line);
            (words.join("|"), raw)
        };
        assert_eq!(of("leasehold show jobs/"), ("leasehold|show|jobs/".into(), "jobs/".into()));
        assert_eq!(of("leasehold show "), ("leasehold|show|".into(), String::new()));
        assert_eq!(of("leasehold  held-by 'my ho"), ("leasehold|held-by|my ho".into(), "'my ho".into()));
        assert_eq!(of("leasehold held-by my\\ ho"), ("leasehold|held-by|my ho".into(), "my\\ ho".into()));
        assert_eq!(of("leasehold --addr \"a b\" ls"), ("leasehold|--addr|a b|ls".into(), "ls".into()));
        assert_eq!(of("leasehold usage '' x"), ("leasehold|usage||x".into(), "x".into()));
        assert_eq!(of(""), (String::new(), String::new()));
    }
}
