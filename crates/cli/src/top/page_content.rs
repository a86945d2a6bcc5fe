//! What a view shows, apart from how it is drawn: a table, or lines of text.

/// How a text is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    #[default]
    Plain,
    Dim,
    Strong,
    Good,
    Warn,
    Bad,
}

/// A text with its tone. It comes from callers and is escaped where it is drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToneText {
    pub text: String,
    pub tone: Tone,
}

impl ToneText {
    pub fn new(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone }
    }

    pub fn plain(text: impl Into<String>) -> Self {
        Self::new(text, Tone::Plain)
    }

    pub fn dim(text: impl Into<String>) -> Self {
        Self::new(text, Tone::Dim)
    }
}

/// A cell of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableCell {
    Text(ToneText),
    /// The remaining part of a time.
    Countdown {
        left_ms: u64,
        of_ms: u64,
    },
}

impl TableCell {
    pub fn plain(text: impl Into<String>) -> Self {
        Self::Text(ToneText::plain(text))
    }

    pub fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self::Text(ToneText::new(text, tone))
    }

    pub fn dim(text: impl Into<String>) -> Self {
        Self::toned(text, Tone::Dim)
    }

    /// A name or value, or a dash.
    pub fn or_dash(text: Option<impl Into<String>>) -> Self {
        text.map_or_else(|| Self::dim("-"), Self::plain)
    }
}

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableColumn {
    pub title: &'static str,
    /// Its width; zero for a column that takes a share of the remaining width.
    pub width: u16,
    /// The width of a terminal from which on it is shown.
    pub from_width: u16,
}

impl TableColumn {
    /// A column of a fixed width.
    pub const fn fixed(title: &'static str, width: u16) -> Self {
        Self { title, width, from_width: 0 }
    }

    /// A column that takes a share of the remaining width.
    pub const fn flexible(title: &'static str) -> Self {
        Self::fixed(title, 0)
    }

    /// The same column, shown only in wide terminals.
    pub const fn shown_from(self, from_width: u16) -> Self {
        Self { from_width, ..self }
    }
}

/// A row of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableRow {
    pub cells: Vec<TableCell>,
    /// The resource that the row is about, for `Enter` and for actions.
    pub resource: Option<String>,
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageTable {
    pub columns: Vec<TableColumn>,
    pub rows: Vec<TableRow>,
    /// What is shown instead of rows.
    pub empty: String,
    /// What the table does not say.
    pub footer: String,
}

/// The content of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageContent {
    Table(PageTable),
    Lines(Vec<Vec<ToneText>>),
}

impl Default for PageContent {
    fn default() -> Self {
        Self::Lines(Vec::new())
    }
}

impl PageContent {
    /// Number of rows or lines.
    pub fn len(&self) -> usize {
        match self {
            Self::Table(table) => table.rows.len(),
            Self::Lines(lines) => lines.len(),
        }
    }
}
