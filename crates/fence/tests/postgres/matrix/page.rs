//! The matrix as a page.

use std::fmt::Write as _;

use super::Outcome;
use super::layout::{Attacker, TableLayout};
use super::writes::{REASONS, WritePath, WriteStatement};

/// Outcomes of one path; a cell without an attack has a reason.
pub struct WriteRow {
    pub path: WritePath,
    pub cells: Vec<Result<Vec<Outcome>, &'static str>>,
}

/// Outcomes of one command, by role.
pub struct DdlRow {
    pub sql: &'static str,
    pub layouts: Vec<TableLayout>,
    pub outcomes: Vec<Outcome>,
}

const HEAD: &str = "# Attacks on a protected PostgreSQL table

After this page you know which attacks on a protected table are tested, and what happens to each. A test runs every cell against a real server and compares
this page: `cargo test -p leasehold-fence --test postgres matrix`. `LEASEHOLD_BLESS=1` writes it. Tested with PostgreSQL 15.

Each attack runs without a token, with a stale one and with a current one, as six roles. None of them is a superuser, and all may call the fence:

- **writer**: may read and write all tables, and set `session_replication_role`.
- **table owner**: owns the tables.
- **type owner**: has no right on the tables, and owns the types, the function and the extension that their columns use.
- **database owner**: owns the database and the schema.
- **data writer**: a member of `pg_read_all_data` and `pg_write_all_data`.
- **heir**: may read and write all tables; before the installation the installer granted it all rights on future objects (`ALTER DEFAULT PRIVILEGES`).

After each attack the rows, the definition and the guards of the table are compared with those before.

| word | meaning |
|---|---|
| token | refused without a token and with a stale one, allowed with a current one |
| never | refused by the fence, also with a current token |
| rights | PostgreSQL refuses it: the role has no right |
| server | PostgreSQL does not support it for this layout |
| free | allowed without a token: rows, definition and guards stay as they are |

";

const TAIL: &str = "
## Out of reach

These can bypass the fence and are not attacked above:

- a superuser, and the owner of schema `leasehold`: they can disable triggers, change marks and replace functions. `leasehold.list_guards` shows it,
  unless they also change that function or the stored digests.
- an installation without a superuser: it has no event triggers, so the DDL cells above do not hold.
- dropping the database, or replacing its files. A database that is dropped and created again from an older copy under the same OID
  (`CREATE DATABASE … TEMPLATE … OID`) is not recognized as a copy: re-arm it.
- a member of `pg_write_all_data` who sets the value of a sequence `leasehold.token_cache_*` to the digest of a stale or forged token: the table then admits
  that text. PostgreSQL has no triggers for sequences. A text without the form of a token of this cluster, resource and slot is refused.
- a function that a generated column, default or check constraint calls: its owner can change what later writes compute, not the stored rows.
- sequences, large objects, and tables that are not protected.
";

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::NeedsToken => "token",
        Outcome::AlwaysRefused => "never",
        Outcome::NoRight => "rights",
        Outcome::NotSupported => "server",
        Outcome::Harmless => "free",
    }
}

/// The roles' outcomes in the order of the roles, or one word if all are equal.
fn words(outcomes: &[Outcome]) -> String {
    if outcomes.iter().all(|outcome| *outcome == outcomes[0]) {
        return word(outcomes[0]).to_owned();
    }
    outcomes.iter().map(|outcome| word(*outcome)).collect::<Vec<_>>().join(", ")
}

pub fn render(
    writes: &[(TableLayout, Vec<WriteRow>)],
    commands: &[DdlRow],
    replicated: &[(TableLayout, Vec<(&'static str, &'static str)>)],
) -> String {
    let mut page = HEAD.to_owned();
    let roles = Attacker::ALL.map(Attacker::title).join(", ");
    let _ = write!(
        page,
        "## Writes\n\nA cell with several words lists them by role: {roles}. A number is a reason why there is no attack:\n\n"
    );
    for (index, reason) in REASONS.iter().enumerate() {
        let _ = writeln!(page, "{}. {reason}", index + 1);
    }
    for (layout, rows) in writes {
        let _ = write!(page, "\n### {}\n\n| path |", capitalized(layout.title()));
        for statement in WriteStatement::ALL {
            let _ = write!(page, " {} |", statement.title());
        }
        let _ = writeln!(page, "\n|---|{}", "---|".repeat(WriteStatement::ALL.len()));
        for row in rows {
            let _ = write!(page, "| {} |", row.path.title());
            for cell in &row.cells {
                match cell {
                    Ok(outcomes) => write!(page, " {} |", words(outcomes)),
                    Err(reason) => {
                        let index = REASONS.iter().position(|known| known == reason).expect("every reason is listed");
                        write!(page, " {} |", index + 1)
                    }
                }
                .expect("a string");
            }
            page.push('\n');
        }
    }
    page.push_str("\n## Changes from a subscription\n\nA subscription belongs to a superuser and presents no token, so what it applies to a protected table is always refused.\n\n| layout | change | outcome |\n|---|---|---|\n");
    for (layout, changes) in replicated {
        for (change, outcome) in changes {
            let _ = writeln!(page, "| {} | {change} | {outcome} |", layout.title());
        }
    }
    page.push_str("\n## DDL\n\n| command | layouts |");
    for attacker in Attacker::ALL {
        let _ = write!(page, " {} |", attacker.title());
    }
    let _ = writeln!(page, "\n|---|---|{}", "---|".repeat(Attacker::ALL.len()));
    for row in commands {
        let layouts = if row.layouts.len() == TableLayout::ALL.len() {
            "all".to_owned()
        } else {
            row.layouts.iter().map(|layout| layout.title()).collect::<Vec<_>>().join("; ")
        };
        let _ = write!(page, "| `{}` | {layouts} |", row.sql);
        for outcome in &row.outcomes {
            let _ = write!(page, " {} |", word(*outcome));
        }
        page.push('\n');
    }
    page.push_str(TAIL);
    page
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().collect::<String>() + chars.as_str()).unwrap_or_default()
}
