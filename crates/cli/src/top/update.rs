//! What keys, answers and time do to the model.

use leasehold::types::LeaseSort;
use leasehold_server::dashboard::action_effects::OperatorAction;

use super::filter::Filter;
use super::job::{PageData, ServerAnswer, ServerJob};
use super::key::Key;
use super::model::{ActionDialog, DoneAction, Focus, PageCursor, ScreenModel};
use super::page_content::{PageContent, Tone};
use super::view::TopView;

/// Longest text of an input line.
const MAX_INPUT: usize = 512;
/// A refresh that takes long is repeated after this many times its duration, so that the screen costs the server little.
const REST: u64 = 4;
/// Time between attempts to reach the servers.
const RETRY_MS: u64 = 1_000;

/// What has to be done after an update.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Update {
    pub jobs: Vec<ServerJob>,
    pub quit: bool,
}

impl Update {
    fn job(job: ServerJob) -> Self {
        Self { jobs: vec![job], quit: false }
    }

    fn quit() -> Self {
        Self { jobs: Vec::new(), quit: true }
    }
}

impl ScreenModel {
    /// Time has passed.
    pub fn tick(&mut self, now_ms: u64, wall_ms: u64) -> Update {
        (self.now_ms, self.wall_ms) = (now_ms, wall_ms);
        if self.in_flight.is_some() || self.paused || now_ms < self.due_ms {
            return Update::default();
        }
        self.refresh()
    }

    /// The terminal has another size.
    pub fn resize(&mut self, size: (u16, u16)) -> Update {
        self.size = size;
        self.keep_selection_visible();
        self.refresh_now()
    }

    /// A key was pressed.
    pub fn key(&mut self, key: Key) -> Update {
        if key == Key::CtrlC {
            return Update::quit();
        }
        match std::mem::take(&mut self.focus) {
            Focus::Page => self.page_key(key),
            Focus::Command(text) => self.command_key(text, key),
            Focus::Filter(text) => self.filter_key(text, key),
            // Any key closes the help.
            Focus::Help => {
                if key == Key::Char('q') {
                    Update::quit()
                } else {
                    Update::default()
                }
            }
            Focus::Action(dialog) => self.action_key(dialog, key),
        }
    }

    /// The server has answered.
    pub fn answer(&mut self, answer: ServerAnswer) -> Update {
        match answer {
            ServerAnswer::Refreshed { query, overview, page, took_ms } => {
                self.in_flight = None;
                let pause = self.interval_ms.max(took_ms.saturating_mul(REST));
                self.due_ms = self.now_ms + pause;
                match overview {
                    Ok(overview) => {
                        self.overview = Some(overview);
                        self.answered_ms = Some(self.now_ms);
                    }
                    Err(problem) => {
                        self.problem = Some(problem);
                        self.due_ms = self.now_ms + pause.max(RETRY_MS);
                        return Update::default();
                    }
                }
                if query != self.query() {
                    // The screen shows something else by now.
                    return self.refresh();
                }
                match page {
                    Ok(data) => {
                        if self.problem.take().is_some() {
                            self.message = Some(("the server answers again".to_owned(), Tone::Good));
                        }
                        let is_past_end = self.starts.len() > 1 && is_empty(&data);
                        self.show(query, &data);
                        if is_past_end {
                            self.go_to_first_page();
                            return self.refresh();
                        }
                        Update::default()
                    }
                    Err(problem) => {
                        self.problem = Some(problem);
                        // A cursor ends with its server, and a sorted listing after a minute.
                        if self.starts.len() > 1 {
                            self.go_to_first_page();
                        }
                        Update::default()
                    }
                }
            }
            ServerAnswer::Preview { action, resource, result } => {
                if let Focus::Action(dialog) = &mut self.focus
                    && dialog.action == action
                    && dialog.resource == resource
                {
                    dialog.preview = Some(result);
                }
                Update::default()
            }
            ServerAnswer::Acted { action, resource, reason, result } => self.acted(action, resource, reason, result),
        }
    }

    fn acted(
        &mut self,
        action: OperatorAction,
        resource: String,
        reason: String,
        result: Result<(), String>,
    ) -> Update {
        let is_open = matches!(&self.focus, Focus::Action(dialog) if dialog.sent && dialog.resource == resource);
        match result {
            Ok(()) => {
                if is_open {
                    self.focus = Focus::Page;
                }
                self.message = Some((format!("{} {resource}: done", action.title().to_lowercase()), Tone::Good));
                self.done.push(DoneAction { action, resource, reason, wall_ms: self.wall_ms });
                self.refresh_now()
            }
            Err(problem) => {
                if let Focus::Action(dialog) = &mut self.focus
                    && is_open
                {
                    (dialog.sent, dialog.problem) = (false, Some(problem));
                } else {
                    self.message = Some((problem, Tone::Bad));
                }
                Update::default()
            }
        }
    }

    fn refresh(&mut self) -> Update {
        let query = self.query();
        self.in_flight = Some(query.clone());
        Update::job(ServerJob::Refresh(query))
    }

    /// Refreshes, unless the same refresh is awaited. The thread of the server drops an earlier one.
    fn refresh_now(&mut self) -> Update {
        self.due_ms = self.now_ms;
        if self.in_flight.as_ref() == Some(&self.query()) { Update::default() } else { self.refresh() }
    }

    fn go_to_first_page(&mut self) {
        self.starts = vec![PageCursor::First];
        (self.next, self.selected, self.scroll) = (None, 0, 0);
    }

    /// Shows something else.
    fn go_to(&mut self, view: TopView, resource: Option<String>) -> Update {
        if view != self.view {
            self.filter = Filter::default();
        }
        (self.view, self.resource) = (view, resource);
        self.content = PageContent::default();
        self.content_of = None;
        self.go_to_first_page();
        self.refresh_now()
    }

    fn page_key(&mut self, key: Key) -> Update {
        self.message = None;
        match key {
            Key::Char('q') => return Update::quit(),
            Key::Char(':') => self.focus = Focus::Command(String::new()),
            Key::Char('?') => self.focus = Focus::Help,
            Key::Char('p') => {
                self.paused = !self.paused;
                if !self.paused {
                    return self.refresh_now();
                }
            }
            Key::Char(digit @ '1'..='7') => {
                let at = digit as usize - '1' as usize;
                return self.go_to(TopView::ALL[at], None);
            }
            Key::Char('/') => match self.view.filter_hint().filter(|_| self.resource.is_none()) {
                Some(_) => self.focus = Focus::Filter(self.filter.to_string()),
                None => self.say("this view has no filter; `:leases` has one"),
            },
            Key::Esc => return self.back(),
            Key::Enter | Key::Char('d') => match self.selected_resource().filter(|_| self.resource.is_none()) {
                Some(resource) => return self.go_to(self.view, Some(resource)),
                None if self.resource.is_none() => self.say("no resource is selected"),
                None => {}
            },
            Key::Char('r') => return self.prepare(OperatorAction::Revoke),
            Key::Char('h') => return self.prepare(OperatorAction::Handoff),
            Key::Char('s' | 'S' | '!') => return self.order_key(key),
            _ => return self.move_key(key),
        }
        Update::default()
    }

    fn say(&mut self, text: &str) {
        self.message = Some((text.to_owned(), Tone::Warn));
    }

    /// Back from a resource, then to the unfiltered view.
    fn back(&mut self) -> Update {
        if self.resource.is_some() {
            return self.go_to(self.view, None);
        }
        if self.filter.is_empty() && !self.stuck {
            return Update::default();
        }
        (self.filter, self.stuck) = (Filter::default(), false);
        self.go_to(self.view, None)
    }

    /// The server sorts and selects.
    fn order_key(&mut self, key: Key) -> Update {
        if self.view != TopView::Leases || self.resource.is_some() {
            self.say("only leases are sorted; `:leases`");
            return Update::default();
        }
        match key {
            Key::Char('!') => self.stuck = !self.stuck,
            Key::Char('S') => self.descending = self.sort.is_some() && !self.descending,
            _ => {
                let order = [None].into_iter().chain(LeaseSort::ALL.map(Some)).collect::<Vec<_>>();
                let at = order.iter().position(|sort| *sort == self.sort).unwrap_or(0);
                self.sort = order[(at + 1) % order.len()];
                // What an operator looks for comes first.
                self.descending =
                    matches!(self.sort, Some(LeaseSort::Age | LeaseSort::LastProgress | LeaseSort::Waiters));
            }
        }
        self.go_to_first_page();
        self.refresh_now()
    }

    fn move_key(&mut self, key: Key) -> Update {
        let (count, rows) = (self.content.len(), self.page_rows());
        let last = count.saturating_sub(1);
        match key {
            Key::Down | Key::Char('j') if self.selected < last => self.selected += 1,
            Key::Up | Key::Char('k') if self.selected > 0 => self.selected -= 1,
            Key::Down | Key::Char('j') | Key::PageDown | Key::Char(']' | ' ') if self.selected + rows > last => {
                return self.next_page();
            }
            Key::Up | Key::Char('k') | Key::PageUp | Key::Char('[') if self.selected == 0 => {
                return self.previous_page();
            }
            Key::PageDown | Key::Char(']' | ' ') => self.selected = (self.selected + rows).min(last),
            Key::PageUp | Key::Char('[') => self.selected = self.selected.saturating_sub(rows),
            Key::Home | Key::Char('g') if self.starts.len() > 1 => {
                self.go_to_first_page();
                return self.refresh_now();
            }
            Key::Home | Key::Char('g') => self.selected = 0,
            Key::End | Key::Char('G') => self.selected = last,
            _ => return Update::default(),
        }
        self.keep_selection_visible();
        Update::default()
    }

    fn next_page(&mut self) -> Update {
        let Some(next) = self.next.take() else {
            self.selected = self.content.len().saturating_sub(1);
            self.keep_selection_visible();
            return Update::default();
        };
        self.starts.push(next);
        (self.selected, self.scroll) = (0, 0);
        self.refresh_now()
    }

    fn previous_page(&mut self) -> Update {
        if self.starts.len() < 2 {
            return Update::default();
        }
        self.starts.pop();
        (self.next, self.selected, self.scroll) = (None, 0, 0);
        self.refresh_now()
    }

    fn command_key(&mut self, mut text: String, key: Key) -> Update {
        match key {
            Key::Esc => {}
            Key::Enter if matches!(text.trim(), "q" | "quit") => return Update::quit(),
            Key::Enter => match TopView::from_command(&text) {
                Some(view) => return self.go_to(view, None),
                None if text.trim().is_empty() => {}
                None => {
                    let words = TopView::ALL.map(TopView::word).join(", ");
                    self.message = Some((format!("no view `{}`; use {words} or q", text.trim()), Tone::Bad));
                }
            },
            Key::Tab => {
                let full = TopView::from_command(&text).map_or(text, |view| view.word().to_owned());
                self.focus = Focus::Command(full);
            }
            _ => {
                if edit(&mut text, key) {
                    self.focus = Focus::Command(text);
                }
            }
        }
        Update::default()
    }

    fn filter_key(&mut self, mut text: String, key: Key) -> Update {
        match key {
            Key::Esc => {}
            Key::Enter => {
                self.filter = match self.view {
                    TopView::Leases => Filter::parse(&text),
                    _ => Filter { prefix: text.trim().to_owned(), holder: None },
                };
                self.go_to_first_page();
                return self.refresh_now();
            }
            _ => {
                edit(&mut text, key);
                self.focus = Focus::Filter(text);
            }
        }
        Update::default()
    }

    /// Asks what an action would do.
    fn prepare(&mut self, action: OperatorAction) -> Update {
        let Some(resource) = self.selected_resource() else {
            self.say("no resource is selected");
            return Update::default();
        };
        self.focus = Focus::Action(ActionDialog {
            action,
            resource: resource.clone(),
            preview: None,
            reason: String::new(),
            sent: false,
            problem: None,
        });
        Update::job(ServerJob::Preview(action, resource))
    }

    fn action_key(&mut self, mut dialog: ActionDialog, key: Key) -> Update {
        if key == Key::Esc {
            if dialog.sent {
                self.say("the action was sent; its outcome is shown when the server has answered");
            }
            return Update::default();
        }
        let mut update = Update::default();
        match key {
            _ if dialog.sent => {}
            Key::Enter => {
                let reason = dialog.reason.trim().to_owned();
                dialog.problem = match &dialog.preview {
                    None => Some("wait for the preview".to_owned()),
                    Some(Err(_)) => Some("without a preview nothing is done; press Esc".to_owned()),
                    Some(Ok(_)) if reason.is_empty() => Some("a reason is required".to_owned()),
                    Some(Ok(_)) => None,
                };
                if dialog.problem.is_none()
                    && let Some(Ok(preview)) = &dialog.preview
                {
                    let leases = preview.leases.clone();
                    dialog.sent = true;
                    update = Update::job(ServerJob::Act(dialog.action, dialog.resource.clone(), leases, reason));
                }
            }
            _ => {
                edit(&mut dialog.reason, key);
            }
        }
        self.focus = Focus::Action(dialog);
        update
    }
}

/// Edits an input line. False if the line was empty and backspace leaves it.
fn edit(text: &mut String, key: Key) -> bool {
    match key {
        Key::Char(letter) if text.chars().count() < MAX_INPUT => text.push(letter),
        Key::Backspace => return text.pop().is_some(),
        Key::CtrlU => text.clear(),
        _ => {}
    }
    true
}

fn is_empty(data: &PageData) -> bool {
    match data {
        PageData::Leases { leases, next } => leases.is_empty() && next.is_none(),
        PageData::Coverage { resources, next } => resources.is_empty() && next.is_none(),
        PageData::Audit { entries, .. } => entries.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
pub mod tests;
