//! Which holders wait for which, as a tree: a holder, the resources that it holds, and those who wait for them.

use std::collections::{BTreeMap, BTreeSet};

use crate::table::format_duration;
use crate::top::job::ResourceWaiters;
use crate::top::page_content::{PageTable, TableCell, TableColumn, TableRow, Tone};

/// Levels of the tree; deeper chains are cut.
const MAX_DEPTH: usize = 12;

pub fn table(resources: &[ResourceWaiters]) -> PageTable {
    let mut tree = WaitTree { held: by_holder(resources), shown: BTreeSet::new(), rows: Vec::new() };
    let waiting: BTreeSet<&str> =
        resources.iter().flat_map(|resource| &resource.first).map(|(holder, _)| holder.as_str()).collect();
    let mut roots: Vec<&str> = tree.held.keys().filter(|holder| !waiting.contains(**holder)).copied().collect();
    // Holders that wait for each other have no root.
    roots.extend(tree.held.keys().filter(|holder| waiting.contains(**holder)).copied());
    for root in roots {
        if !tree.shown.contains(root) {
            tree.holder(root, None, &[], 0);
        }
    }
    PageTable {
        columns: vec![TableColumn::flexible("HOLDER AND RESOURCE"), TableColumn::fixed("GIVES UP IN", 12)],
        rows: tree.rows,
        empty: "No one waits.".to_owned(),
        footer: String::new(),
    }
}

/// Resources by the names of their holders.
fn by_holder(resources: &[ResourceWaiters]) -> BTreeMap<&str, Vec<&ResourceWaiters>> {
    let mut held: BTreeMap<&str, Vec<&ResourceWaiters>> = BTreeMap::new();
    for resource in resources {
        for holder in &resource.holders {
            held.entry(holder).or_default().push(resource);
        }
    }
    held
}

struct WaitTree<'a> {
    held: BTreeMap<&'a str, Vec<&'a ResourceWaiters>>,
    shown: BTreeSet<&'a str>,
    rows: Vec<TableRow>,
}

impl<'a> WaitTree<'a> {
    /// Adds a holder. `branches` says for each level above whether more follows there.
    fn holder(&mut self, holder: &'a str, wait_ms: Option<u64>, branches: &[bool], depth: usize) {
        let is_first = self.shown.insert(holder);
        let resources = self.held.get(holder).cloned().unwrap_or_default();
        let note = if !is_first && !resources.is_empty() { " (shown above)" } else { "" };
        let wait = wait_ms.map_or_else(|| TableCell::plain(""), |ms| TableCell::plain(format_duration(ms)));
        self.row(branches, format!("{holder}{note}"), Tone::Strong, wait, None);
        if !is_first || depth >= MAX_DEPTH {
            return;
        }
        for (at, resource) in resources.iter().enumerate() {
            let below = [branches, &[at + 1 < resources.len()]].concat();
            let waits = if resource.waiters == 1 { "1 waits".to_owned() } else { format!("{} wait", resource.waiters) };
            let text = format!("holds {}, {waits}", resource.resource);
            self.row(&below, text, Tone::Plain, TableCell::plain(""), Some(&resource.resource));
            let more = resource.waiters.saturating_sub(resource.first.len() as u64);
            for (at, (waiter, wait_ms)) in resource.first.iter().enumerate() {
                let is_last = at + 1 == resource.first.len() && more == 0;
                self.holder(waiter, Some(*wait_ms), &[&below[..], &[!is_last]].concat(), depth + 1);
            }
            if more > 0 {
                let below = [&below[..], &[false]].concat();
                self.row(&below, format!("and {more} more"), Tone::Dim, TableCell::plain(""), Some(&resource.resource));
            }
        }
    }

    fn row(&mut self, branches: &[bool], text: String, tone: Tone, wait: TableCell, resource: Option<&str>) {
        let mut line = String::new();
        if let Some((last, above)) = branches.split_last() {
            above.iter().for_each(|more| line.push_str(if *more { "│  " } else { "   " }));
            line.push_str(if *last { "├─ " } else { "└─ " });
        }
        line.push_str(&text);
        let cells = vec![TableCell::toned(line, tone), wait];
        self.rows.push(TableRow { cells, resource: resource.map(str::to_owned) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contended(resource: &str, holder: &str, waiters: &[&str], all: u64) -> ResourceWaiters {
        ResourceWaiters {
            resource: resource.into(),
            holders: vec![holder.into()],
            waiters: all,
            first: waiters.iter().map(|name| ((*name).to_owned(), 5_000)).collect(),
        }
    }

    fn lines(resources: &[ResourceWaiters]) -> Vec<String> {
        let text = |row: TableRow| match &row.cells[0] {
            TableCell::Text(text) => text.text.clone(),
            TableCell::Countdown { .. } => String::new(),
        };
        table(resources).rows.into_iter().map(text).collect()
    }

    #[test]
    fn a_chain_is_one_tree_and_each_holder_is_expanded_once() {
        let found = lines(&[
            contended("r1", "a", &["b"], 1),
            contended("r2", "b", &["c", "d"], 5),
            contended("r0", "a", &["d"], 1),
        ]);
        assert_eq!(
            found,
            [
                "a",
                "├─ holds r1, 1 waits",
                "│  └─ b",
                "│     └─ holds r2, 5 wait",
                "│        ├─ c",
                "│        ├─ d",
                "│        └─ and 3 more",
                "└─ holds r0, 1 waits",
                "   └─ d",
            ]
        );
    }

    #[test]
    fn holders_that_wait_for_each_other_are_shown_once() {
        let found = lines(&[contended("r1", "a", &["b"], 1), contended("r2", "b", &["a"], 1)]);
        assert_eq!(found[0], "a");
        assert!(found.last().is_some_and(|line| line.ends_with("a (shown above)")), "{found:?}");
        assert_eq!(found.iter().filter(|line| line.contains("holds r1")).count(), 1, "{found:?}");
    }
}
