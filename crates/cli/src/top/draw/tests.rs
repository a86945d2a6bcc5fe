//! The drawing of every view, of small screens and of hostile names, on the backend for tests.

use leasehold::json::{AuditEntryBody, ClusterBody, CoverageBody, DeadlockBody, TargetCoverageBody, UsageRowBody};
use leasehold_server::dashboard::action_effects::OperatorAction;
use ratatui_core::backend::TestBackend;
use ratatui_core::terminal::Terminal;

use super::*;
use crate::top::counters::{ServerCounters, ServerRates};
use crate::top::job::{PageData, PreviewText, ResourceData, ResourceWaiters, ServerOverview};
use crate::top::model::ActionDialog;
use crate::top::update::tests::{listed, status};

/// Clears the screen, sets a title, reverses the writing direction, starts a line.
const HOSTILE: &str = "x\u{1b}[2J\u{7}\u{1b}]0;t\u{7}\u{202e}\ny";

fn model(size: (u16, u16)) -> ScreenModel {
    let mut model = ScreenModel::new(1_000, size);
    let ended = vec![UsageRowBody { state: "expired".into(), reason: "ttl".into(), count: 3, held_ms: 1 }];
    let cluster = ClusterBody { leader: Some("10.0.0.1:7421".into()), ..ClusterBody::default() };
    let counters = ServerCounters { zombies: 4.0, holes: 2.0, ..ServerCounters::default() };
    model.overview = Some(Box::new(ServerOverview {
        status: leasehold::json::StatusBody { ended, waiters: 5, ..status() },
        cluster: Some(cluster),
        counters: Some(counters),
        rates: Some(ServerRates { renewals_per_second: 512.25, sync_ms: Some(0.421) }),
    }));
    model.answered_ms = Some(0);
    model
}

/// The lines of the screen, and the cursor.
fn screen(model: &ScreenModel) -> (Vec<String>, Option<(u16, u16)>) {
    let mut terminal = Terminal::new(TestBackend::new(model.size.0, model.size.1)).expect("a terminal in memory");
    let mut cursor = None;
    terminal.draw(|frame| cursor = draw(model, frame.buffer_mut())).expect("a terminal in memory");
    let buffer = terminal.backend().buffer();
    let width = usize::from(buffer.area.width).max(1);
    let lines = buffer.content().chunks(width).map(|cells| cells.iter().map(|cell| cell.symbol()).collect()).collect();
    (lines, cursor)
}

fn show(model: &mut ScreenModel, data: &PageData) {
    let query = model.query();
    model.show(query, data);
}

/// Data for every view, with hostile names.
fn all_data() -> Vec<(TopView, PageData)> {
    let mut lease = listed(HOSTILE);
    lease.lease.holder = HOSTILE.into();
    let contended = ResourceWaiters {
        resource: HOSTILE.into(),
        holders: vec![HOSTILE.into()],
        waiters: 3,
        first: vec![("w2".into(), 1_000)],
    };
    let deadlock = DeadlockBody {
        at_ms: 1,
        cycle: vec![leasehold::json::CycleMemberBody { holder: HOSTILE.into(), waits_for: "r".into() }],
        length: 1,
        victim: Some(HOSTILE.into()),
    };
    let target = TargetCoverageBody {
        name: HOSTILE.into(),
        at: String::new(),
        declared: true,
        mode: None,
        slots: Vec::new(),
        hole: Some("no_mode".into()),
    };
    let coverage = CoverageBody { resource: HOSTILE.into(), targets: vec![target] };
    let entry =
        AuditEntryBody { entry: 9, kind: HOSTILE.into(), comment: Some(HOSTILE.into()), ..AuditEntryBody::default() };
    let resource = ResourceData {
        view: Err(HOSTILE.into()),
        ages: std::collections::BTreeMap::default(),
        waiters: Err(HOSTILE.into()),
        coverage: Ok(coverage.clone()),
        history: Ok(vec![entry.clone()]),
    };
    let cluster = ClusterBody { problem: Some(HOSTILE.into()), ..ClusterBody::default() };
    vec![
        (TopView::Leases, PageData::Leases { leases: vec![lease], next: Some("1".into()) }),
        (TopView::Waits, PageData::Waits(vec![contended])),
        (TopView::Deadlocks, PageData::Deadlocks(vec![deadlock])),
        (TopView::Coverage, PageData::Coverage { resources: vec![coverage], next: None }),
        (TopView::Handovers, PageData::Handovers { rows: Vec::new(), entries: 5 }),
        (TopView::Cluster, PageData::Cluster { first: cluster, servers: vec![("a".into(), Err(HOSTILE.into()))] }),
        (TopView::Audit, PageData::Audit { entries: vec![entry], next: None }),
        (TopView::Leases, PageData::Resource(Box::new(resource))),
    ]
}

#[test]
fn the_screen_shows_the_header_the_page_and_the_keys() {
    let mut model = model((100, 24));
    let mut stuck = listed("jobs/b");
    (stuck.stuck, stuck.lease.remaining_ms, stuck.silent_ms) = (true, 1_000, 9_000);
    show(&mut model, &PageData::Leases { leases: vec![listed("jobs/a"), stuck], next: None });
    let (lines, cursor) = screen(&model);
    let text = lines.join("\n");
    for part in [
        "cluster c1  leader 10.0.0.1:7421  tenure 2",
        "leases 2   waiters 5   sessions 1   deadlocks 0",
        "renewals/s 512.2   journal sync 0.42ms   zombies refused 4   holes 2",
        "ended  ttl 3",
        "? help",
    ] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
    assert!(lines[0].trim_end().ends_with("live"), "{}", lines[0]);
    let row =
        |name: &str| lines.iter().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name}:\n{text}"));
    assert!(row("jobs/a").contains("██████░░░░") && row("jobs/a").contains("active"), "{text}");
    assert!(row("jobs/b").contains("█░░░░░░░░░") && row("jobs/b").contains("stuck"), "{text}");
    assert_eq!(cursor, None);
}

#[test]
fn names_of_callers_cannot_control_the_terminal() {
    for (view, data) in all_data() {
        for size in [(200, 40), (80, 24)] {
            let mut model = model(size);
            model.view = view;
            if matches!(data, PageData::Resource(_)) {
                model.resource = Some(HOSTILE.into());
            }
            show(&mut model, &data);
            model.problem = Some(HOSTILE.into());
            let (lines, _) = screen(&model);
            let found = lines.iter().flat_map(|line| line.chars()).find(|c| c.is_control() || *c == '\u{202e}');
            assert_eq!(found, None, "{view:?} {lines:?}");
            assert!(
                matches!(view, TopView::Handovers | TopView::Waits)
                    || lines.iter().any(|line| line.contains("\\u{1b}")),
                "{view:?} {lines:?}"
            );
        }
    }
}

#[test]
fn no_size_and_no_state_makes_the_drawing_fail() {
    let dialog = ActionDialog {
        action: OperatorAction::Revoke,
        resource: "ä".repeat(300),
        preview: Some(Ok(PreviewText {
            leases: Vec::new(),
            effects: vec!["w loses token 7. ".repeat(30); 20],
            targets: Some((false, "holes".into(), vec!["t".into(); 30])),
        })),
        reason: "日本語".repeat(100),
        sent: false,
        problem: None,
    };
    let focuses = [
        Focus::Page,
        Focus::Help,
        Focus::Command("x".repeat(300)),
        Focus::Filter("日本".repeat(100)),
        Focus::Action(dialog.clone()),
        Focus::Action(ActionDialog { preview: None, ..dialog }),
    ];
    let widths = [1, 2, 3, 5, 10, 20, 40, 79, 80, 200];
    for (view, data) in all_data() {
        for size in widths.into_iter().flat_map(|width| [1, 2, 3, 4, 7, 8, 12, 24, 60].map(|height| (width, height))) {
            let mut model = model(size);
            (model.view, model.paused, model.stuck) = (view, true, true);
            show(&mut model, &data);
            for focus in &focuses {
                model.focus = focus.clone();
                let (_, cursor) = screen(&model);
                assert!(cursor.is_none_or(|(x, y)| x < size.0 && y < size.1), "{size:?} {focus:?} {cursor:?}");
            }
        }
    }
}

#[test]
fn an_action_shows_its_effects_before_it_is_done() {
    let mut model = model((80, 24));
    model.focus = Focus::Action(ActionDialog {
        action: OperatorAction::Revoke,
        resource: "jobs/a".into(),
        preview: Some(Ok(PreviewText {
            leases: Vec::new(),
            effects: vec!["w loses token 7. Its session is notified at once.".into(), "Next in line is w-2.".into()],
            targets: Some((
                false,
                "The old holder can still write where there is a hole:".into(),
                vec!["ledger: open".into()],
            )),
        })),
        reason: "stuck".into(),
        sent: false,
        problem: None,
    });
    let (lines, cursor) = screen(&model);
    let text = lines.join("\n");
    for part in
        ["Revoke jobs/a", "w loses token 7", "Next in line is w-2.", "ledger: open", "Reason: stuck", "Enter revokes"]
    {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
    let (x, y) = cursor.expect("the reason is typed");
    assert!(lines[usize::from(y)].starts_with("  Reason: stuck"), "{text}");
    assert_eq!(usize::from(x), "  Reason: stuck".len());
}

#[test]
fn the_help_fits_the_usual_terminal() {
    let mut model = model((80, 24));
    model.focus = Focus::Help;
    let text = screen(&model).0.join("\n");
    assert!(
        text.contains("hand off, after a preview") && TopView::ALL.iter().all(|view| text.contains(view.meaning())),
        "{text}"
    );
}

#[test]
fn a_server_that_does_not_answer_is_visible() {
    let mut model = model((80, 24));
    show(&mut model, &PageData::Leases { leases: vec![listed("jobs/a")], next: None });
    (model.now_ms, model.problem) = (65_000, Some("UNAVAILABLE: no server answered".into()));
    let (lines, _) = screen(&model);
    assert!(lines[0].contains("no answer for 1m05s"), "{}", lines[0]);
    assert!(lines[23].contains("UNAVAILABLE") && lines.iter().any(|line| line.starts_with("jobs/a")), "{lines:?}");
}
