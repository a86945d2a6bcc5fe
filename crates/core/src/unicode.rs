//! Character classes for text that people compare and read: invisible characters, and characters that mislead a reader.
//!
//! The ranges follow Unicode 16. Later versions may add characters; a name that was valid stays valid. So private-use and unassigned code
//! points are allowed: the first are visible where a font defines them, and the second become characters of later versions, which
//! can only be distinguished with a table of all assigned ones. Two names that differ only in such code points may look alike where no
//! font has them. Noncharacters never become characters and are refused.

/// Whether a character is not visible in a name: two names that differ only in it look alike.
///
/// These are `Default_Ignorable_Code_Point`, the format characters (`Cf`), every space but U+0020 (`Zs`), the line and
/// paragraph separators (`Zl`, `Zp`), two symbols with an empty glyph (U+2800, U+1D159), two marks without a glyph (U+1107F,
/// U+16FE4), and the noncharacters, which have none by definition.
pub const fn is_invisible(c: char) -> bool {
    is_noncharacter(c)
        || matches!(
            c,
            // Soft hyphen, grapheme joiner, Arabic and Syriac marks.
            '\u{AD}' | '\u{34F}' | '\u{600}'..='\u{605}' | '\u{61C}' | '\u{6DD}' | '\u{70F}' | '\u{890}'..='\u{891}' | '\u{8E2}'
            // Hangul fillers, Khmer vowels without a glyph, Mongolian separators and variation selectors.
            | '\u{115F}'..='\u{1160}' | '\u{17B4}'..='\u{17B5}' | '\u{180B}'..='\u{180F}' | '\u{3164}' | '\u{FFA0}'
            // Spaces other than U+0020.
            | '\u{A0}' | '\u{1680}' | '\u{2000}'..='\u{200A}' | '\u{202F}' | '\u{205F}' | '\u{3000}'
            // Zero-width characters, separators, direction marks and overrides, invisible operators.
            | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{FEFF}'
            // Variation selectors, and the specials.
            | '\u{FE00}'..='\u{FE0F}' | '\u{FFF0}'..='\u{FFFB}'
            // Format characters of other scripts, shorthand and music.
            | '\u{110BD}' | '\u{110CD}' | '\u{13430}'..='\u{1343F}' | '\u{1BCA0}'..='\u{1BCA3}' | '\u{1D173}'..='\u{1D17A}'
            // Tag characters and the variation selectors supplement.
            | '\u{E0000}'..='\u{E0FFF}'
            // Symbols with an empty glyph.
            | '\u{2800}' | '\u{1D159}'
            // The Brahmi number joiner and the Khitan filler.
            | '\u{1107F}' | '\u{16FE4}'
        )
}

/// Whether a code point is reserved permanently: U+FDD0 to U+FDEF, and the last two of each plane.
const fn is_noncharacter(c: char) -> bool {
    matches!(c, '\u{FDD0}'..='\u{FDEF}') || c as u32 & 0xFFFE == 0xFFFE
}

/// Whether a character can make text display as something else than it contains: a control character (C0, DEL, C1), a
/// direction mark or override, a line or paragraph separator, or a tag character. Prose may contain all others.
pub const fn is_misleading(c: char) -> bool {
    matches!(
        c,
        '\0'..='\u{1F}' | '\u{7F}'..='\u{9F}' | '\u{61C}' | '\u{200E}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{206F}' | '\u{E0000}'..='\u{E007F}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noncharacters_and_marks_without_a_glyph_are_invisible() {
        let noncharacters = (0..=0x10_u32).flat_map(|plane| [plane << 16 | 0xFFFE, plane << 16 | 0xFFFF]);
        for code in noncharacters.chain(0xFDD0..=0xFDEF).chain([0x1_107F, 0x1_6FE4]) {
            let c = char::from_u32(code).expect("a scalar value");
            assert!(is_invisible(c), "U+{code:04X}");
        }
    }

    #[test]
    fn neighbors_of_noncharacters_private_use_and_unassigned_code_points_are_allowed() {
        for c in [
            '\u{FDCF}',
            '\u{FDF0}',
            '\u{FFFD}',
            '\u{10000}',
            '\u{E000}',
            '\u{F8FF}',
            '\u{F0000}',
            '\u{10FFFD}',
            '\u{378}',
        ] {
            assert!(!is_invisible(c), "{c:?}");
        }
    }
}
