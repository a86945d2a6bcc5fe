//! Text that a shell reads as one word, for commands that a message proposes.

/// Quotes a word if it contains characters with a meaning for the shell.
pub fn quote(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-:=@,+".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::quote;

    #[test]
    fn a_word_stays_one_word() {
        assert_eq!(quote("/etc/leasehold.toml"), "/etc/leasehold.toml");
        assert_eq!(quote("my files"), "'my files'");
        assert_eq!(quote("it's"), "'it'\\''s'");
        assert_eq!(quote(""), "''");
    }
}
