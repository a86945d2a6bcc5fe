//! The state of the screen. It knows no terminal and no server: messages change it ([`ScreenModel::update`] in `update.rs`), and `draw` shows it.

use leasehold::types::LeaseSort;
use leasehold_server::dashboard::action_effects::OperatorAction;

use super::filter::Filter;
use super::job::{LeaseQuery, PageData, PreviewText, ScreenQuery, ServerOverview};
use super::page_content::{PageContent, Tone};
use super::pages;
use super::view::TopView;

/// What the keys act on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Focus {
    /// The page.
    #[default]
    Page,
    /// The words after `:`.
    Command(String),
    /// The filter after `/`.
    Filter(String),
    Help,
    Action(ActionDialog),
}

/// An action that is being prepared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionDialog {
    pub action: OperatorAction,
    pub resource: String,
    /// What it would do; none until the server has answered.
    pub preview: Option<Result<PreviewText, String>>,
    pub reason: String,
    /// The action was sent and not answered yet.
    pub sent: bool,
    /// Why it cannot be done.
    pub problem: Option<String>,
}

/// An action that was done, for the record that is printed at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoneAction {
    pub action: OperatorAction,
    pub resource: String,
    pub reason: String,
    /// Milliseconds since 1970.
    pub wall_ms: u64,
}

/// Where a page of a listing starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PageCursor {
    #[default]
    First,
    /// A cursor of leases.
    Cursor(String),
    /// A resource number or an audit entry.
    Number(u64),
}

/// The state of the screen.
#[derive(Debug)]
pub struct ScreenModel {
    pub view: TopView,
    /// The resource that is described, on top of the view.
    pub resource: Option<String>,
    pub filter: Filter,
    /// Only stuck leases are listed.
    pub stuck: bool,
    pub sort: Option<LeaseSort>,
    pub descending: bool,
    /// Starts of the pages before the current one, and of the current one.
    pub starts: Vec<PageCursor>,
    /// Where the next page starts; none on the last one.
    pub next: Option<PageCursor>,
    pub selected: usize,
    /// The first row that is drawn.
    pub scroll: usize,
    /// What is shown, and the query that it answers.
    pub content: PageContent,
    pub content_of: Option<ScreenQuery>,
    pub overview: Option<Box<ServerOverview>>,
    /// Why the last refresh failed.
    pub problem: Option<String>,
    /// When the last answer arrived, in milliseconds of the screen's clock.
    pub answered_ms: Option<u64>,
    pub paused: bool,
    /// The query of the refresh that was requested last and not answered yet.
    pub in_flight: Option<ScreenQuery>,
    /// When the next refresh is due.
    pub due_ms: u64,
    pub interval_ms: u64,
    pub focus: Focus,
    pub message: Option<(String, Tone)>,
    /// Columns and rows of the terminal.
    pub size: (u16, u16),
    pub done: Vec<DoneAction>,
    /// The time of the screen's clock.
    pub now_ms: u64,
    /// The wall clock, in milliseconds since 1970.
    pub wall_ms: u64,
}

/// Rows of the header, by the rows of the terminal.
pub const fn header_rows(rows: u16) -> u16 {
    match rows {
        0..8 => 0,
        8..16 => 1,
        _ => 4,
    }
}

impl ScreenModel {
    pub fn new(interval_ms: u64, size: (u16, u16)) -> Self {
        Self {
            view: TopView::Leases,
            resource: None,
            filter: Filter::default(),
            stuck: false,
            sort: None,
            descending: false,
            starts: vec![PageCursor::First],
            next: None,
            selected: 0,
            scroll: 0,
            content: PageContent::default(),
            content_of: None,
            overview: None,
            problem: None,
            answered_ms: None,
            paused: false,
            in_flight: None,
            due_ms: 0,
            interval_ms,
            focus: Focus::Page,
            message: None,
            size,
            done: Vec::new(),
            now_ms: 0,
            wall_ms: 0,
        }
    }

    /// Rows of a table or lines of a text that fit. One row each is the title, the column titles and the last line.
    pub fn page_rows(&self) -> usize {
        let titles = if self.resource.is_some() { 2 } else { 3 };
        usize::from(self.size.1.saturating_sub(header_rows(self.size.1) + titles)).max(1)
    }

    /// The query of the current page.
    pub fn query(&self) -> ScreenQuery {
        if let Some(resource) = &self.resource {
            return ScreenQuery::Resource(resource.clone());
        }
        let rows = u32::try_from(self.page_rows()).unwrap_or(u32::MAX);
        let start = self.starts.last().cloned().unwrap_or_default();
        let number = match start {
            PageCursor::Number(number) => number,
            _ => 0,
        };
        match self.view {
            TopView::Leases => ScreenQuery::Leases(LeaseQuery {
                filter: self.filter.clone(),
                stuck: self.stuck,
                sort: self.sort,
                descending: self.descending,
                cursor: if let PageCursor::Cursor(cursor) = start { cursor } else { String::new() },
                rows,
            }),
            TopView::Waits => ScreenQuery::Waits,
            TopView::Deadlocks => ScreenQuery::Deadlocks,
            TopView::Coverage => {
                let cursor = u32::try_from(number).unwrap_or(0);
                ScreenQuery::Coverage { prefix: self.filter.prefix.clone(), cursor, rows }
            }
            TopView::Handovers => ScreenQuery::Handovers,
            TopView::Cluster => ScreenQuery::Cluster,
            TopView::Audit => ScreenQuery::Audit { resource: self.filter.prefix.clone(), before: number, rows },
        }
    }

    /// Takes over the data of a page.
    pub fn show(&mut self, query: ScreenQuery, data: &PageData) {
        let is_same = self.content_of.as_ref() == Some(&query);
        self.next = match data {
            PageData::Leases { next, .. } => next.clone().map(PageCursor::Cursor),
            PageData::Coverage { next, .. } => next.map(|next| PageCursor::Number(next.into())),
            PageData::Audit { next, .. } => next.map(PageCursor::Number),
            _ => None,
        };
        let time_ms = self.overview.as_ref().map_or(0, |overview| overview.status.time_ms);
        // The selection follows its resource, because rows move.
        let selected = self.selected_resource().filter(|_| is_same);
        self.content = pages::content(data, time_ms, self.wall_ms);
        if let (Some(selected), PageContent::Table(table)) = (selected, &self.content) {
            let is_still = table.rows.get(self.selected).is_some_and(|row| row.resource.as_ref() == Some(&selected));
            let found = table.rows.iter().position(|row| row.resource.as_ref() == Some(&selected));
            self.selected = found.filter(|_| !is_still).unwrap_or(self.selected);
        }
        self.content_of = Some(query);
        self.keep_selection_visible();
    }

    /// The resource that keys act on.
    pub fn selected_resource(&self) -> Option<String> {
        match (&self.resource, &self.content) {
            (Some(resource), _) => Some(resource.clone()),
            (None, PageContent::Table(table)) => table.rows.get(self.selected)?.resource.clone(),
            (None, PageContent::Lines(_)) => None,
        }
    }

    /// Keeps the selected row inside of the table, and on the screen.
    pub fn keep_selection_visible(&mut self) {
        let (count, rows) = (self.content.len(), self.page_rows());
        self.selected = self.selected.min(count.saturating_sub(1));
        if matches!(self.content, PageContent::Lines(_)) {
            // Lines have no selection: the position is the first line that is shown.
            self.selected = self.selected.min(count.saturating_sub(rows));
            self.scroll = self.selected;
            return;
        }
        if self.selected < self.scroll {
            self.scroll = self.selected;
        }
        if self.selected >= self.scroll + rows {
            self.scroll = self.selected + 1 - rows;
        }
        self.scroll = self.scroll.min(count.saturating_sub(rows));
    }
}
