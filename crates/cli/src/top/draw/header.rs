//! The header: leader, counts, rates, and ends of leases by reason.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Modifier, Style};

use super::{Lines, put_line};
use crate::table::format_duration;
use crate::top::job::ServerOverview;
use crate::top::model::ScreenModel;
use crate::top::page_content::{Tone, ToneText};

/// Age of an answer, in intervals, from which on it is shown.
const STALE_INTERVALS: u64 = 3;

/// Draws the first lines of the header that fit into `rows`.
pub fn draw(model: &ScreenModel, lines: &mut Lines, buffer: &mut Buffer, rows: u16) {
    let texts: [fn(&ServerOverview) -> Vec<ToneText>; 3] = [counts, work, ends];
    for row in 0..rows {
        let line = lines.take();
        match (row, &model.overview) {
            (0, _) => first_line(model, line, buffer),
            (row, Some(overview)) => {
                if let Some(text) = texts.get(usize::from(row) - 1) {
                    put_line(buffer, line, &text(overview));
                }
            }
            (_, None) => {}
        }
    }
}

/// The name of the cluster and its leader, and whether the screen is current.
fn first_line(model: &ScreenModel, line: Rect, buffer: &mut Buffer) {
    buffer.set_style(line, Style::new().add_modifier(Modifier::BOLD));
    let mut texts = vec![ToneText::new("leasehold top", Tone::Strong)];
    if let Some(overview) = &model.overview {
        texts.push(ToneText::dim("  cluster "));
        texts.push(ToneText::plain(&overview.status.cluster));
        texts.push(ToneText::dim("  leader "));
        let leader = overview.cluster.as_ref().and_then(|cluster| cluster.leader.clone());
        texts.push(leader.map_or_else(|| ToneText::new("none", Tone::Bad), ToneText::plain));
        texts.push(ToneText::dim(format!("  tenure {}", overview.status.tenure)));
    }
    put_line(buffer, line, &texts);
    let state = state(model);
    let width = u16::try_from(state.text.chars().count()).unwrap_or(u16::MAX).min(line.width);
    put_line(buffer, Rect { x: line.right() - width, width, ..line }, &[state]);
}

/// Whether the screen is current, on the right.
fn state(model: &ScreenModel) -> ToneText {
    let age = model.answered_ms.map(|at| model.now_ms.saturating_sub(at));
    match (model.paused, &model.problem, age) {
        (true, _, _) => ToneText::new(" paused", Tone::Warn),
        (_, Some(_), Some(age)) => ToneText::new(format!(" no answer for {}", format_duration(age)), Tone::Bad),
        (_, Some(_), None) => ToneText::new(" no answer", Tone::Bad),
        (_, None, Some(age)) if age > model.interval_ms.saturating_mul(STALE_INTERVALS).max(3_000) => {
            ToneText::new(format!(" {} old", format_duration(age)), Tone::Warn)
        }
        (_, None, Some(_)) => ToneText::new(" live", Tone::Good),
        (_, None, None) => ToneText::dim(" connecting"),
    }
}

fn value(texts: &mut Vec<ToneText>, label: &str, value: impl Into<String>, tone: Tone) {
    let gap = if texts.is_empty() { "" } else { "   " };
    texts.push(ToneText::dim(format!("{gap}{label} ")));
    texts.push(ToneText::new(value, tone));
}

fn counts(overview: &ServerOverview) -> Vec<ToneText> {
    let (status, mut texts) = (&overview.status, Vec::new());
    value(&mut texts, "leases", status.held.to_string(), Tone::Strong);
    value(&mut texts, "waiters", status.waiters.to_string(), if status.waiters > 0 { Tone::Warn } else { Tone::Plain });
    value(&mut texts, "sessions", status.sessions.to_string(), Tone::Plain);
    let tone = if status.deadlocks > 0 { Tone::Warn } else { Tone::Plain };
    value(&mut texts, "deadlocks", status.deadlocks.to_string(), tone);
    if let Some(left) = status.quarantine_ms {
        value(&mut texts, "quarantine", format_duration(left), Tone::Bad);
    }
    texts
}

fn work(overview: &ServerOverview) -> Vec<ToneText> {
    let mut texts = Vec::new();
    let rates = overview.rates;
    let renewals = rates.map_or_else(|| "-".to_owned(), |rates| format!("{:.1}", rates.renewals_per_second));
    value(&mut texts, "renewals/s", renewals, Tone::Plain);
    let sync = rates.and_then(|rates| rates.sync_ms).map_or_else(|| "-".to_owned(), |ms| format!("{ms:.2}ms"));
    value(&mut texts, "journal sync", sync, Tone::Plain);
    let count = |number: f64| (number.round() as u64).to_string();
    let counter = |number: Option<f64>| number.map_or_else(|| "-".to_owned(), count);
    let tone = |number: Option<f64>| if number.is_some_and(|number| number > 0.0) { Tone::Bad } else { Tone::Plain };
    let zombies = overview.counters.map(|counters| counters.zombies);
    value(&mut texts, "zombies refused", counter(zombies), tone(zombies));
    let holes = overview.counters.map(|counters| counters.holes);
    value(&mut texts, "holes", counter(holes), tone(holes));
    texts
}

fn ends(overview: &ServerOverview) -> Vec<ToneText> {
    let mut texts = vec![ToneText::dim("ended")];
    let rows = overview.status.ended.iter().filter(|row| row.count > 0);
    for row in rows {
        let tone = match row.state.as_str() {
            "revoked" => Tone::Bad,
            "expired" if row.reason != "handed_off" => Tone::Warn,
            _ => Tone::Plain,
        };
        texts.push(ToneText::dim(format!("  {} ", row.reason.replace('_', " "))));
        texts.push(ToneText::new(row.count.to_string(), tone));
    }
    if texts.len() == 1 {
        texts.push(ToneText::plain(" 0"));
    }
    texts
}
