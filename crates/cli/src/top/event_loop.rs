//! The loop of the screen: messages change the model, the model is drawn, and jobs go to the thread of the server.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui_core::terminal::Terminal;
use signal_hook::consts::{SIGHUP, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::sync::mpsc::UnboundedSender;

use super::draw::draw;
use super::job::ServerJob;
use super::key::Key;
use super::message::ScreenMessage;
use super::model::{DoneAction, ScreenModel};
use super::terminal::{ScreenGuard, TerminalWriter};
use super::update::Update;

/// Longest time without a look at the clock.
const TICK: Duration = Duration::from_millis(200);

/// Shows the screen until the user quits. Returns the actions that were done.
pub fn run(
    interval: Duration,
    messages: &Receiver<ScreenMessage>,
    jobs: &UnboundedSender<ServerJob>,
) -> Result<Vec<DoneAction>, String> {
    let failed = |error: std::io::Error| format!("cannot draw on the terminal: {error}");
    let guard = ScreenGuard::new().map_err(failed)?;
    let mut terminal = Terminal::new(TerminalWriter::new()).map_err(failed)?;
    let size = terminal.size().map_err(failed)?;
    let interval_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
    let mut model = ScreenModel::new(interval_ms, (size.width, size.height));
    let started = Instant::now();
    loop {
        let now_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut update = model.tick(now_ms, wall_ms());
        send(&mut update, jobs)?;
        let drawn = terminal.draw(|frame| {
            let cursor = draw(&model, frame.buffer_mut());
            if let Some(cursor) = cursor {
                frame.set_cursor_position(cursor);
            }
        });
        drawn.map_err(failed)?;
        let mut update = match messages.recv_timeout(TICK) {
            Ok(ScreenMessage::Key(key)) => model.key(key),
            Ok(ScreenMessage::Resize(columns, rows)) => model.resize((columns, rows)),
            Ok(ScreenMessage::Answer(answer)) => model.answer(*answer),
            Ok(ScreenMessage::Terminate) => Update { jobs: Vec::new(), quit: true },
            Ok(ScreenMessage::Failed(problem)) => return Err(problem),
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Err("a thread has ended".to_owned()),
        };
        send(&mut update, jobs)?;
        if update.quit {
            drop(guard);
            return Ok(model.done);
        }
    }
}

fn send(update: &mut Update, jobs: &UnboundedSender<ServerJob>) -> Result<(), String> {
    for job in update.jobs.drain(..) {
        jobs.send(job).map_err(|_| "the thread of the server has ended".to_owned())?;
    }
    Ok(())
}

fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Reads keys until the screen is gone. Runs on a thread of its own.
pub fn read_keys(messages: &Sender<ScreenMessage>) {
    loop {
        let message = match crossterm::event::read() {
            Ok(Event::Key(event)) => match key(event) {
                Some(key) => ScreenMessage::Key(key),
                None => continue,
            },
            Ok(Event::Resize(columns, rows)) => ScreenMessage::Resize(columns, rows),
            Ok(_) => continue,
            Err(error) => ScreenMessage::Failed(format!("cannot read the terminal: {error}")),
        };
        let has_failed = matches!(message, ScreenMessage::Failed(_));
        if messages.send(message).is_err() || has_failed {
            return;
        }
    }
}

/// Reports signals that end the process, so that it restores the terminal first. Runs on a thread of its own.
pub fn wait_for_signals(mut signals: Signals, messages: &Sender<ScreenMessage>) {
    for _ in signals.forever() {
        if messages.send(ScreenMessage::Terminate).is_err() {
            return;
        }
    }
}

/// The signals that end the process.
pub const SIGNALS: [i32; 2] = [SIGTERM, SIGHUP];

fn key(event: KeyEvent) -> Option<Key> {
    if event.kind == KeyEventKind::Release {
        return None;
    }
    if event.modifiers.contains(KeyModifiers::CONTROL) {
        return match event.code {
            KeyCode::Char('c') => Some(Key::CtrlC),
            KeyCode::Char('u') => Some(Key::CtrlU),
            KeyCode::Char('d') => Some(Key::PageDown),
            KeyCode::Char('b') => Some(Key::PageUp),
            _ => None,
        };
    }
    match event.code {
        KeyCode::Char(letter) if !event.modifiers.contains(KeyModifiers::ALT) => Some(Key::Char(letter)),
        KeyCode::Enter => Some(Key::Enter),
        KeyCode::Esc => Some(Key::Esc),
        KeyCode::Tab => Some(Key::Tab),
        KeyCode::Backspace => Some(Key::Backspace),
        KeyCode::Up => Some(Key::Up),
        KeyCode::Down => Some(Key::Down),
        KeyCode::PageUp => Some(Key::PageUp),
        KeyCode::PageDown => Some(Key::PageDown),
        KeyCode::Home => Some(Key::Home),
        KeyCode::End => Some(Key::End),
        _ => None,
    }
}
