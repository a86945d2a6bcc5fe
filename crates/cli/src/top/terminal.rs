//! The terminal: raw mode and the alternate screen while the screen is shown, and a backend that writes cells.
//!
//! The terminal is restored when the program ends, fails or panics. It is restored once: the panic hook runs before the guard is
//! dropped.

use std::io::{self, IsTerminal, Stdout, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::style::{Attribute, Color as TerminalColor, Print, SetAttribute, SetForegroundColor};
use crossterm::terminal::{
    Clear, ClearType as TerminalClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
    enable_raw_mode,
};
use crossterm::{execute, queue};
use ratatui_core::backend::{Backend, ClearType, WindowSize};
use ratatui_core::buffer::Cell;
use ratatui_core::layout::{Position, Size};
use ratatui_core::style::{Color, Modifier};

/// Whether the terminal has to be restored.
static IS_CHANGED: AtomicBool = AtomicBool::new(false);

/// Whether standard input and output are a terminal that can be drawn on.
pub fn is_usable() -> bool {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    io::stdin().is_terminal() && io::stdout().is_terminal() && !is_dumb
}

/// The terminal while the screen is shown. Dropping it restores the terminal.
pub struct ScreenGuard(());

impl ScreenGuard {
    /// Takes over the terminal, also for a panic.
    pub fn new() -> io::Result<Self> {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            restore();
            hook(info);
        }));
        enable_raw_mode()?;
        IS_CHANGED.store(true, Ordering::SeqCst);
        let guard = Self(());
        execute!(io::stdout(), EnterAlternateScreen, Hide, Clear(TerminalClearType::All))?;
        Ok(guard)
    }
}

impl Drop for ScreenGuard {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    if IS_CHANGED.swap(false, Ordering::SeqCst) {
        // A terminal that is gone needs nothing.
        let _ = execute!(io::stdout(), SetAttribute(Attribute::Reset), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// Writes cells to the terminal.
pub struct TerminalWriter {
    out: Stdout,
}

impl TerminalWriter {
    pub fn new() -> Self {
        Self { out: io::stdout() }
    }
}

impl Backend for TerminalWriter {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let mut out = self.out.lock();
        let mut last: Option<(u16, u16)> = None;
        let (mut color, mut modifier) = (Color::Reset, Modifier::empty());
        for (x, y, cell) in content {
            if last.is_none_or(|last| last != (x.wrapping_sub(1), y)) {
                queue!(out, MoveTo(x, y))?;
            }
            last = Some((x, y));
            if cell.modifier != modifier || cell.fg != color {
                (color, modifier) = (cell.fg, cell.modifier);
                queue!(out, SetAttribute(Attribute::Reset))?;
                // First: with NO_COLOR, the library writes a reset instead of a color.
                if color != Color::Reset {
                    queue!(out, SetForegroundColor(terminal_color(color)))?;
                }
                for (has, attribute) in ATTRIBUTES {
                    if modifier.contains(has) {
                        queue!(out, SetAttribute(attribute))?;
                    }
                }
            }
            queue!(out, Print(cell.symbol()))?;
        }
        queue!(out, SetAttribute(Attribute::Reset))
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        execute!(self.out, Hide)
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        execute!(self.out, Show)
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        // Asking the terminal would wait for its answer among the keys; nothing here needs the position.
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        let Position { x, y } = position.into();
        execute!(self.out, MoveTo(x, y))
    }

    fn clear(&mut self) -> io::Result<()> {
        self.clear_region(ClearType::All)
    }

    fn clear_region(&mut self, region: ClearType) -> io::Result<()> {
        let region = match region {
            ClearType::All => TerminalClearType::All,
            ClearType::AfterCursor => TerminalClearType::FromCursorDown,
            ClearType::BeforeCursor => TerminalClearType::FromCursorUp,
            ClearType::CurrentLine => TerminalClearType::CurrentLine,
            ClearType::UntilNewLine => TerminalClearType::UntilNewLine,
        };
        execute!(self.out, Clear(region))
    }

    fn size(&self) -> io::Result<Size> {
        crossterm::terminal::size().map(|(width, height)| Size { width, height })
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize { columns_rows: self.size()?, pixels: Size::default() })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Attributes of cells that are drawn.
const ATTRIBUTES: [(Modifier, Attribute); 4] = [
    (Modifier::BOLD, Attribute::Bold),
    (Modifier::DIM, Attribute::Dim),
    (Modifier::UNDERLINED, Attribute::Underlined),
    (Modifier::REVERSED, Attribute::Reverse),
];

/// The colors of the terminal's own palette, so that light and dark terminals both are readable.
const fn terminal_color(color: Color) -> TerminalColor {
    match color {
        Color::Red => TerminalColor::DarkRed,
        Color::Green => TerminalColor::DarkGreen,
        Color::Yellow => TerminalColor::DarkYellow,
        _ => TerminalColor::Reset,
    }
}
