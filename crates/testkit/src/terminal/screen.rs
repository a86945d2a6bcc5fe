//! The screen of a terminal, as far as programs under test use one: text, places, clearing, and the alternate screen.

/// What a terminal shows.
#[derive(Debug)]
pub struct Screen {
    columns: usize,
    rows: Vec<Vec<char>>,
    /// The main screen while the alternate one is shown.
    main: Option<Vec<Vec<char>>>,
    row: usize,
    column: usize,
    is_cursor_visible: bool,
    /// Bytes of an incomplete sequence or character.
    pending: Vec<u8>,
}

impl Screen {
    /// An empty screen.
    pub fn new(columns: u16, rows: u16) -> Self {
        let columns = usize::from(columns);
        Self {
            columns,
            rows: vec![vec![' '; columns]; usize::from(rows)],
            main: None,
            row: 0,
            column: 0,
            is_cursor_visible: true,
            pending: Vec::new(),
        }
    }

    /// Another size. The program draws again.
    pub fn resize(&mut self, columns: u16, rows: u16) {
        let main = self.main.take();
        *self = Self { main, ..Self::new(columns, rows) };
    }

    /// The lines without spaces at their ends.
    pub fn text(&self) -> String {
        let line = |row: &Vec<char>| row.iter().collect::<String>().trim_end().to_owned();
        self.rows.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// One line.
    pub fn line(&self, row: usize) -> String {
        self.rows.get(row).map(|row| row.iter().collect::<String>().trim_end().to_owned()).unwrap_or_default()
    }

    /// Whether the alternate screen is shown.
    pub const fn is_alternate(&self) -> bool {
        self.main.is_some()
    }

    /// Whether the cursor is visible.
    pub const fn is_cursor_visible(&self) -> bool {
        self.is_cursor_visible
    }

    /// Takes over what a program writes.
    pub fn write(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        let bytes = std::mem::take(&mut self.pending);
        let mut rest = bytes.as_slice();
        while let Some(used) = self.step(rest) {
            rest = &rest[used..];
        }
        self.pending = rest.to_vec();
    }

    /// Handles the first character or sequence. Returns its length; none if it is incomplete.
    fn step(&mut self, bytes: &[u8]) -> Option<usize> {
        match *bytes.first()? {
            0x1b => self.escape(bytes),
            b'\r' => {
                self.column = 0;
                Some(1)
            }
            b'\n' => {
                self.line_feed();
                Some(1)
            }
            byte if byte < 0x20 => Some(1),
            byte => {
                let length = match byte {
                    0..0x80 => 1,
                    0xc0..0xe0 => 2,
                    0xe0..0xf0 => 3,
                    _ => 4,
                };
                let text = std::str::from_utf8(bytes.get(..length)?).unwrap_or("\u{fffd}");
                text.chars().for_each(|letter| self.put(letter));
                Some(length)
            }
        }
    }

    fn escape(&mut self, bytes: &[u8]) -> Option<usize> {
        match *bytes.get(1)? {
            b'[' => {
                let end = bytes[2..].iter().position(|byte| (0x40..0x7f).contains(byte))? + 2;
                let parameters = String::from_utf8_lossy(&bytes[2..end]).into_owned();
                self.control(&parameters, bytes[end]);
                Some(end + 1)
            }
            // A title ends with a bell or a string terminator.
            b']' => bytes.iter().position(|byte| *byte == 7).map(|end| end + 1),
            _ => Some(2),
        }
    }

    fn control(&mut self, parameters: &str, action: u8) {
        let number = |at: usize| parameters.split(';').nth(at).and_then(|text| text.parse::<usize>().ok());
        match (parameters, action) {
            ("?1049", b'h') if self.main.is_none() => {
                let empty = vec![vec![' '; self.columns]; self.rows.len()];
                self.main = Some(std::mem::replace(&mut self.rows, empty));
            }
            ("?1049", b'l') => {
                if let Some(main) = self.main.take() {
                    self.rows = main;
                    (self.row, self.column) = (0, 0);
                }
            }
            ("?25", b'h') => self.is_cursor_visible = true,
            ("?25", b'l') => self.is_cursor_visible = false,
            (_, b'H') => {
                self.row = number(0).unwrap_or(1).saturating_sub(1);
                self.column = number(1).unwrap_or(1).saturating_sub(1);
            }
            ("2", b'J') => self.rows.iter_mut().for_each(|row| row.fill(' ')),
            ("" | "0", b'J') => {
                let (row, column) = (self.row, self.column);
                self.rows.iter_mut().skip(row + 1).for_each(|line| line.fill(' '));
                if let Some(line) = self.rows.get_mut(row) {
                    line.iter_mut().skip(column).for_each(|cell| *cell = ' ');
                }
            }
            ("" | "0", b'K') => {
                let column = self.column;
                if let Some(line) = self.rows.get_mut(self.row) {
                    line.iter_mut().skip(column).for_each(|cell| *cell = ' ');
                }
            }
            // Colors, attributes and modes change no text.
            _ => {}
        }
    }

    fn put(&mut self, letter: char) {
        if self.column >= self.columns {
            self.column = 0;
            self.line_feed();
        }
        if let Some(cell) = self.rows.get_mut(self.row).and_then(|row| row.get_mut(self.column)) {
            *cell = letter;
        }
        self.column += 1;
    }

    fn line_feed(&mut self) {
        self.row += 1;
        if self.row >= self.rows.len() && !self.rows.is_empty() {
            self.rows.remove(0);
            self.rows.push(vec![' '; self.columns]);
            self.row = self.rows.len() - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_placed_cleared_and_restored_however_it_arrives() {
        let bytes = "shell\r\n\u{1b}[?1049h\u{1b}[?25l\u{1b}[2;3Hä─b\u{1b}[1;31m!\u{1b}[0m\u{1b}[1;1Hx".as_bytes();
        for step in [1, 3, 1_000] {
            let mut screen = Screen::new(8, 3);
            bytes.chunks(step).for_each(|chunk| screen.write(chunk));
            assert_eq!(screen.text(), "x\n  ä─b!\n");
            assert!(screen.is_alternate() && !screen.is_cursor_visible());
            screen.write(b"\x1b[2;4H\x1b[K");
            assert_eq!(screen.line(1), "  ä");
            screen.write(b"\x1b[?1049l\x1b[?25h");
            assert_eq!(screen.text(), "shell\n\n");
            assert!(!screen.is_alternate() && screen.is_cursor_visible());
        }
    }

    #[test]
    fn a_long_text_wraps_and_scrolls() {
        let mut screen = Screen::new(3, 2);
        screen.write(b"abcdefgh");
        assert_eq!(screen.text(), "def\ngh");
    }
}
