//! Where `--watch` shows results: redrawn in place on a terminal, or printed when they change.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::duration::HumanDuration;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::output::{
    CommandError, CommandOutput, message_text, print_line, print_note, print_problem, print_text, write_stderr,
};
use crate::output_format::{OutputFormat, OutputStyle, is_dumb_terminal};
use crate::styled_text::{Style, StyledText};
use crate::table::{format_time, terminal_size};

/// Opens the second screen of the terminal and hides the cursor.
const OPEN: &str = "\u{1b}[?1049h\u{1b}[?25l";
/// Shows the cursor and the first screen again.
const CLOSE: &str = "\u{1b}[?25h\u{1b}[?1049l";
/// Size of a terminal that does not report it.
const DEFAULT_SIZE: (usize, usize) = (80, 24);
/// How often a reader that closed standard output is noticed.
const READER_CHECK: Duration = Duration::from_millis(500);

/// Shows results.
pub enum WatchScreen {
    Terminal(Terminal),
    Stream(ResultStream),
}

impl WatchScreen {
    /// Results for people are redrawn if standard output is a terminal that can; all others are printed.
    pub fn open(style: OutputStyle, interval: HumanDuration) -> Self {
        if style.format.is_text() && io::stdout().is_terminal() && !is_dumb_terminal() {
            Self::Terminal(Terminal::open(style.has_color, interval))
        } else {
            Self::Stream(ResultStream { style, interval, is_first: true, has_problem: false })
        }
    }

    /// Shows a result. Returns false if the reader has closed standard output.
    pub fn show(&mut self, output: CommandOutput, is_changed: bool) -> Result<bool, CommandError> {
        match self {
            Self::Terminal(terminal) => {
                terminal.output = output;
                terminal.draw()
            }
            Self::Stream(stream) if is_changed => stream.print(&output),
            Self::Stream(_) => Ok(true),
        }
    }

    /// The last query failed and is retried, or succeeded again.
    pub fn set_problem(&mut self, problem: Option<CommandError>) {
        match self {
            Self::Terminal(terminal) => terminal.problem = problem.map(|error| error.to_string()),
            Self::Stream(stream) => stream.set_problem(problem),
        }
    }

    pub fn redraw(&mut self) -> Result<bool, CommandError> {
        match self {
            Self::Terminal(terminal) => terminal.draw(),
            Self::Stream(_) => Ok(true),
        }
    }

    /// Waits until the next query is due. Returns false if the reader has closed standard output.
    pub async fn wait(&mut self, interval: Duration) -> bool {
        let due = tokio::time::Instant::now() + interval;
        match self {
            Self::Terminal(terminal) => loop {
                let Some(resized) = &mut terminal.resized else {
                    tokio::time::sleep_until(due).await;
                    return true;
                };
                tokio::select! {
                    () = tokio::time::sleep_until(due) => return true,
                    _ = resized.recv() => if !terminal.draw().is_ok_and(|is_open| is_open) { return false },
                }
            },
            Self::Stream(_) => loop {
                if is_reader_gone() {
                    return false;
                }
                let check = tokio::time::Instant::now() + READER_CHECK;
                tokio::time::sleep_until(check.min(due)).await;
                if tokio::time::Instant::now() >= due {
                    return !is_reader_gone();
                }
            },
        }
    }

    /// Leaves the terminal as it was, with the last result in it.
    pub fn close(self) -> Result<(), CommandError> {
        let Self::Terminal(mut terminal) = self else { return Ok(()) };
        terminal.leave();
        if let Some(text) = terminal.output.text() {
            print_text(text, terminal.has_color)?;
        }
        terminal.output.notes().iter().for_each(|note| print_note(note));
        Ok(())
    }
}

/// Whether the reader of standard output has closed it. Otherwise a watch without changes would never end.
fn is_reader_gone() -> bool {
    let out = io::stdout();
    let mut polled = [PollFd::new(&out, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0)
        && polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL)
}

/// A terminal on whose second screen each result replaces the previous one.
pub struct Terminal {
    has_color: bool,
    interval: HumanDuration,
    output: CommandOutput,
    problem: Option<String>,
    resized: Option<Signal>,
    is_open: bool,
}

impl Terminal {
    fn open(has_color: bool, interval: HumanDuration) -> Self {
        let is_open = write(OPEN).is_ok();
        let resized = signal(SignalKind::window_change()).ok();
        Self { has_color, interval, output: CommandOutput::EMPTY, problem: None, resized, is_open }
    }

    fn draw(&mut self) -> Result<bool, CommandError> {
        let (width, height) = terminal_size().filter(|(_, rows)| *rows > 0).unwrap_or(DEFAULT_SIZE);
        let lines = self.lines(width, height);
        let mut frame = "\u{1b}[H".to_owned();
        for (at, line) in lines.iter().enumerate() {
            frame.push_str(if at == 0 { "" } else { "\r\n" });
            frame.push_str(&line.cropped(width).render(self.has_color));
            frame.push_str("\u{1b}[K");
        }
        frame.push_str("\u{1b}[J");
        match write(&frame) {
            Ok(()) => Ok(true),
            // The terminal was closed.
            Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(CommandError::Other(format!("cannot write to the terminal: {error}"))),
        }
    }

    /// A status line, the result, and what belongs to it.
    fn lines(&self, width: usize, height: usize) -> Vec<StyledText> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = format_time(u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
        let status = format!("{now}, every {}; Ctrl-C ends", self.interval);
        let mut lines = vec![StyledText::styled(&status, Some(Style::Dim)).cropped(width)];
        let note = |note: &String| StyledText::from(format!("leasehold: {note}"));
        let mut last: Vec<_> = self.output.notes().iter().map(note).collect();
        let problem = self.problem.as_ref().map(|problem| format!("retrying, and the result above is old: {problem}"));
        last.extend(problem.map(|problem| StyledText::styled(&format!("leasehold: {problem}"), Some(Style::Bad))));
        let last: Vec<_> = last.iter().flat_map(|text| text.lines().collect::<Vec<_>>()).collect();
        let body: Vec<_> = self.output.text().into_iter().flat_map(StyledText::lines).collect();
        let room = height.saturating_sub(lines.len() + last.len()).max(1);
        if body.len() > room {
            let hidden = body.len() - (room - 1);
            lines.extend(body.into_iter().take(room - 1));
            lines.push(StyledText::styled(&format!("… {hidden} more lines"), Some(Style::Dim)));
        } else {
            lines.extend(body);
        }
        lines.extend(last);
        lines.truncate(height);
        lines
    }

    fn leave(&mut self) {
        if std::mem::take(&mut self.is_open) {
            // A terminal that is gone needs no repair.
            let _ = write(CLOSE);
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.leave();
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// A reader that gets each changed result once.
pub struct ResultStream {
    style: OutputStyle,
    interval: HumanDuration,
    is_first: bool,
    has_problem: bool,
}

impl ResultStream {
    fn print(&mut self, output: &CommandOutput) -> Result<bool, CommandError> {
        let is_first = std::mem::take(&mut self.is_first);
        let is_open = match self.style.format {
            OutputFormat::Json => true,
            OutputFormat::Yaml => print_line("---")?,
            // An empty line ends a result.
            OutputFormat::Table | OutputFormat::Wide | OutputFormat::Name => is_first || print_line("")?,
        };
        let is_open = is_open && output.text().map_or(Ok(true), |text| print_text(text, self.style.has_color))?;
        output.notes().iter().for_each(|note| print_note(note));
        Ok(is_open)
    }

    /// Reports an outage once, and its end once.
    fn set_problem(&mut self, problem: Option<CommandError>) {
        let had_problem = std::mem::replace(&mut self.has_problem, problem.is_some());
        match problem {
            Some(error) if !had_problem => {
                print_problem(&error, self.style.format);
                self.print_message(&format!("retrying every {}", self.interval));
            }
            None if had_problem => self.print_message("reconnected"),
            _ => {}
        }
    }

    fn print_message(&self, message: &str) {
        write_stderr(&message_text(self.style.format, message));
    }
}
