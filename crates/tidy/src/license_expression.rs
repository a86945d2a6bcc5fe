//! License expressions of packages (SPDX), and whether a list of licenses satisfies one.

/// Whether the allowed licenses satisfy an expression such as `(MIT OR Apache-2.0) AND Unicode-3.0`. Some packages write `/` for `OR`.
///
/// An expression that cannot be read is not satisfied.
pub fn is_satisfied(expression: &str, allowed: &[&str]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = &words[..];
    matches!(any_of(&mut rest, allowed), Some(true)) && rest.is_empty()
}

fn any_of(words: &mut &[&str], allowed: &[&str]) -> Option<bool> {
    let mut satisfied = all_of(words, allowed)?;
    while let ["OR", rest @ ..] = words {
        *words = rest;
        satisfied |= all_of(words, allowed)?;
    }
    Some(satisfied)
}

fn all_of(words: &mut &[&str], allowed: &[&str]) -> Option<bool> {
    let mut satisfied = one(words, allowed)?;
    while let ["AND", rest @ ..] = words {
        *words = rest;
        satisfied &= one(words, allowed)?;
    }
    Some(satisfied)
}

fn one(words: &mut &[&str], allowed: &[&str]) -> Option<bool> {
    match words {
        ["(", rest @ ..] => {
            *words = rest;
            let satisfied = any_of(words, allowed)?;
            let [")", rest @ ..] = words else { return None };
            *words = rest;
            Some(satisfied)
        }
        [")" | "AND" | "OR" | "WITH", ..] | [] => None,
        [license, "WITH", exception, rest @ ..] => {
            let whole = format!("{license} WITH {exception}");
            *words = rest;
            Some(allowed.contains(&whole.as_str()))
        }
        [license, rest @ ..] => {
            *words = rest;
            Some(allowed.contains(license))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_satisfied;

    #[test]
    fn every_part_of_an_expression_counts() {
        let allowed = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"];
        let good = ["MIT", "MIT OR GPL-3.0-only", "GPL-3.0-only/MIT", "(GPL-3.0-only OR MIT) AND ISC", "MIT AND ISC"];
        for expression in good.into_iter().chain(["Apache-2.0 WITH LLVM-exception OR Apache-2.0"]) {
            assert!(is_satisfied(expression, &allowed), "{expression}");
        }
        let bad =
            ["", "GPL-3.0-only", "MIT AND GPL-3.0-only", "(MIT", "MIT)", "MIT OR", "OR MIT", "MIT ISC", "Apache-2.0"];
        for expression in bad.into_iter().chain(["ISC AND (Apache-2.0 OR GPL-3.0-only)"]) {
            assert!(!is_satisfied(expression, &allowed), "{expression}");
        }
    }
}
