//! `--comment`: the operator's text that the audit log stores with a change.

/// Parses a comment. A blank one is refused, because the comment is all that a later reader finds.
pub fn parse_comment(text: &str) -> Result<String, &'static str> {
    if text.trim().is_empty() {
        Err("a comment must not be blank; the audit log records it")
    } else {
        Ok(text.to_owned())
    }
}
