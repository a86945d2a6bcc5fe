//! What keys and answers of the server do to the state of the screen.

use leasehold::json::{LeaseBody, ListedLeaseBody, StatusBody};

use super::*;
use crate::top::job::{LeaseQuery, PreviewText, ScreenQuery, ServerOverview};
use leasehold::types::LeaseId;

pub fn status() -> StatusBody {
    StatusBody {
        cluster: "c1".into(),
        incarnation: "i".into(),
        generation: 1,
        tenure: 2,
        validity: "session".into(),
        time_ms: 100_000,
        counter: "9".into(),
        max_ttl_ms: 1,
        held: 2,
        sessions: 1,
        waiters: 0,
        ended: Vec::new(),
        deadlocks: 0,
        quarantine_ms: None,
        rolled_back: false,
        stalled_ms: 0,
        position: 1,
    }
}

pub fn overview() -> Box<ServerOverview> {
    Box::new(ServerOverview { status: status(), cluster: None, counters: None, rates: None })
}

pub fn listed(resource: &str) -> ListedLeaseBody {
    let lease = LeaseBody {
        resource: resource.into(),
        lease: "1.0".into(),
        holder: "w".into(),
        session: None,
        token_number: "7".into(),
        access: "exclusive".into(),
        units: None,
        slot: Some(0),
        ttl_ms: Some(10_000),
        remaining_ms: 6_000,
        granted_ms: 40_000,
        validity: "session".into(),
        state: "held".into(),
        priority: 100,
        draining: None,
        drain_ms: None,
        predecessor: false,
        progress: None,
        metadata: String::new(),
    };
    ListedLeaseBody { lease, age_ms: 60_000, silent_ms: 4_000, idle_ms: None, stuck: false, waiters: 0 }
}

fn leases(names: &[&str], next: Option<&str>) -> PageData {
    PageData::Leases { leases: names.iter().map(|name| listed(name)).collect(), next: next.map(str::to_owned) }
}

/// A screen of 80 columns and 24 rows that has asked for its first page.
fn model() -> ScreenModel {
    let mut model = ScreenModel::new(1_000, (80, 24));
    let query = model.query();
    assert_eq!(model.tick(0, 5), Update::job(ServerJob::Refresh(query)));
    model
}

fn answer(model: &mut ScreenModel, data: PageData) -> Update {
    let query = model.query();
    model.answer(ServerAnswer::Refreshed { query, overview: Ok(overview()), page: Ok(data), took_ms: 10 })
}

fn keys(model: &mut ScreenModel, text: &str) -> Vec<ServerJob> {
    text.chars()
        .flat_map(|letter| model.key(if letter == '\n' { Key::Enter } else { Key::Char(letter) }).jobs)
        .collect()
}

/// The query of a job.
fn query(job: &ServerJob) -> &ScreenQuery {
    match job {
        ServerJob::Refresh(query) => query,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_refresh_is_requested_when_it_is_due_and_only_one_at_a_time() {
    let mut model = model();
    assert_eq!(model.tick(5_000, 0), Update::default(), "one is on its way");
    answer(&mut model, leases(&["a"], None));
    assert_eq!(model.tick(5_900, 0), Update::default(), "not due");
    assert_eq!(model.tick(6_000, 0).jobs.len(), 1);
    let query = model.query();
    model.answer(ServerAnswer::Refreshed {
        query,
        overview: Ok(overview()),
        page: Ok(leases(&[], None)),
        took_ms: 2_000,
    });
    assert_eq!(model.tick(13_900, 0), Update::default(), "a slow refresh is repeated less often");
    assert_eq!(model.tick(14_000, 0).jobs.len(), 1);
    answer(&mut model, leases(&["a"], None));
    keys(&mut model, "p");
    assert_eq!(model.tick(99_000, 0), Update::default(), "paused");
    assert_eq!(keys(&mut model, "p").len(), 1);
}

#[test]
fn a_problem_keeps_what_is_shown_and_ends_with_the_next_answer() {
    let mut model = model();
    answer(&mut model, leases(&["a"], None));
    model.tick(2_000, 0);
    let query = model.query();
    let failed =
        ServerAnswer::Refreshed { query, overview: Err("no server".into()), page: Err(String::new()), took_ms: 1 };
    model.answer(failed);
    assert_eq!((model.problem.as_deref(), model.content.len()), (Some("no server"), 1));
    assert_eq!(model.tick(2_500, 0), Update::default());
    assert_eq!(model.tick(3_000, 0).jobs.len(), 1, "it tries again");
    answer(&mut model, leases(&["a"], None));
    assert_eq!(model.problem, None);
    assert!(model.message.as_ref().is_some_and(|(text, _)| text.contains("answers again")));
}

#[test]
fn an_answer_to_an_earlier_page_is_dropped_and_the_current_page_is_requested() {
    let mut model = model();
    let earlier = model.query();
    assert_eq!(
        keys(&mut model, ":wai\n"),
        [ServerJob::Refresh(ScreenQuery::Waits)],
        "the worker drops the earlier one"
    );
    let update = model.answer(ServerAnswer::Refreshed {
        query: earlier,
        overview: Ok(overview()),
        page: Ok(leases(&["a"], None)),
        took_ms: 1,
    });
    assert_eq!(update.jobs, [ServerJob::Refresh(ScreenQuery::Waits)]);
    assert_eq!(model.content.len(), 0);
}

#[test]
fn filter_sort_and_stuck_are_part_of_the_query() {
    let mut model = model();
    answer(&mut model, leases(&["a"], Some("5")));
    let jobs = keys(&mut model, "/jobs @w 7\n");
    let expected = Filter { prefix: "jobs".into(), holder: Some("w 7".into()) };
    assert!(matches!(query(&jobs[0]), ScreenQuery::Leases(LeaseQuery { filter, .. }) if *filter == expected));
    answer(&mut model, leases(&["jobs/a"], None));
    let jobs = keys(&mut model, "ss");
    assert_eq!(jobs.len(), 2, "the second replaces the first");
    answer(&mut model, leases(&["jobs/a"], None));
    assert_eq!((model.sort, model.descending), (Some(LeaseSort::Age), true));
    keys(&mut model, "S!");
    let ScreenQuery::Leases(query) = model.query() else { panic!("leases") };
    assert_eq!((query.sort, query.descending, query.stuck), (Some(LeaseSort::Age), false, true));
    answer(&mut model, leases(&[], None));
    model.key(Key::Esc);
    assert!(model.filter.is_empty() && !model.stuck, "Esc removes the filter");
    assert_eq!(model.sort, Some(LeaseSort::Age));
}

#[test]
fn pages_follow_the_cursor_and_lead_back() {
    let mut model = model();
    answer(&mut model, leases(&["a", "b"], Some("77")));
    keys(&mut model, "j");
    assert_eq!(model.selected, 1);
    let jobs = keys(&mut model, "j");
    assert!(matches!(query(&jobs[0]), ScreenQuery::Leases(LeaseQuery { cursor, .. }) if cursor == "77"));
    answer(&mut model, leases(&["c"], None));
    assert_eq!((model.selected, model.selected_resource().as_deref()), (0, Some("c")));
    assert_eq!(keys(&mut model, "j"), [], "the last page");
    let jobs = keys(&mut model, "k");
    assert!(matches!(query(&jobs[0]), ScreenQuery::Leases(LeaseQuery { cursor, .. }) if cursor.is_empty()));
    // A page that has become empty leads to the first one.
    answer(&mut model, leases(&["a", "b"], Some("77")));
    keys(&mut model, "]");
    let update = answer(&mut model, leases(&[], None));
    assert_eq!((update.jobs.len(), model.starts.len()), (1, 1));
}

#[test]
fn the_selection_follows_its_resource() {
    let mut model = model();
    answer(&mut model, leases(&["a", "b", "c"], None));
    keys(&mut model, "j");
    answer(&mut model, leases(&["z", "a", "b"], None));
    assert_eq!(model.selected_resource().as_deref(), Some("b"));
    answer(&mut model, leases(&["z"], None));
    assert_eq!(model.selected_resource().as_deref(), Some("z"), "its resource is gone");
}

#[test]
fn a_resource_is_described_and_left() {
    let mut model = model();
    answer(&mut model, leases(&["a"], None));
    let jobs = keys(&mut model, "d");
    assert_eq!(query(&jobs[0]), &ScreenQuery::Resource("a".into()));
    model.key(Key::Esc);
    assert!(matches!(model.query(), ScreenQuery::Leases(_)));
}

#[test]
fn an_action_needs_a_preview_and_a_reason() {
    let mut model = model();
    answer(&mut model, leases(&["a"], None));
    assert_eq!(keys(&mut model, "r"), [ServerJob::Preview(OperatorAction::Revoke, "a".into())]);
    assert_eq!(keys(&mut model, "stuck\n"), [], "no preview yet");
    let leases = vec![LeaseId { slot: 3, reuse: 1 }];
    let preview = PreviewText { leases: leases.clone(), effects: vec!["w loses token 7.".into()], targets: None };
    let (action, resource) = (OperatorAction::Revoke, "a".to_owned());
    model.answer(ServerAnswer::Preview { action, resource: resource.clone(), result: Ok(preview.clone()) });
    model.key(Key::CtrlU);
    assert_eq!(keys(&mut model, "  \n"), [], "a blank reason");
    assert!(matches!(&model.focus, Focus::Action(dialog) if dialog.problem.as_deref() == Some("a reason is required")));
    let jobs = keys(&mut model, "worker q is stuck\n");
    assert_eq!(jobs, [ServerJob::Act(action, "a".into(), leases, "worker q is stuck".into())]);
    assert_eq!(keys(&mut model, "\n\nq"), [], "it is sent once, and letters quit nothing");
    let refused = ServerAnswer::Acted {
        action,
        resource: resource.clone(),
        reason: "x".into(),
        result: Err("PERMISSION_DENIED".into()),
    };
    model.answer(refused);
    assert!(matches!(&model.focus, Focus::Action(dialog) if dialog.problem.as_deref() == Some("PERMISSION_DENIED")));
    assert_eq!(keys(&mut model, "\n").len(), 1, "it can be tried again");
    model.tick(0, 1_700_000_000_000);
    let update =
        model.answer(ServerAnswer::Acted { action, resource, reason: "worker q is stuck".into(), result: Ok(()) });
    assert_eq!((model.focus == Focus::Page, update.jobs.len()), (true, 1), "the page is read again");
    assert_eq!((model.done.len(), model.done[0].wall_ms), (1, 1_700_000_000_000));
}

#[test]
fn a_failed_preview_allows_no_action_and_escape_cancels() {
    let mut model = model();
    answer(&mut model, leases(&["a"], None));
    keys(&mut model, "h");
    let (action, resource) = (OperatorAction::Handoff, "a".to_owned());
    model.answer(ServerAnswer::Preview { action, resource, result: Err("PERMISSION_DENIED".into()) });
    assert_eq!(keys(&mut model, "why\n"), []);
    model.key(Key::Esc);
    assert_eq!(model.focus, Focus::Page);
    model.answer(ServerAnswer::Preview { action, resource: "a".into(), result: Ok(PreviewText::default()) });
    assert_eq!(model.focus, Focus::Page, "a late preview opens nothing");
}

#[test]
fn commands_switch_views_and_unknown_ones_say_what_exists() {
    let mut model = model();
    answer(&mut model, leases(&["a"], None));
    keys(&mut model, ":clu\n");
    assert_eq!(model.view, TopView::Cluster);
    keys(&mut model, ":pods\n");
    assert!(
        model.message.as_ref().is_some_and(|(text, _)| text.contains("no view `pods`") && text.contains("handovers"))
    );
    keys(&mut model, ":");
    model.key(Key::Char('d'));
    model.key(Key::Tab);
    assert_eq!(model.focus, Focus::Command("deadlocks".into()));
    assert!(!model.key(Key::Enter).quit && model.view == TopView::Deadlocks);
    keys(&mut model, "7");
    assert_eq!(model.view, TopView::Audit);
    keys(&mut model, ":");
    model.key(Key::Backspace);
    assert_eq!(model.focus, Focus::Page, "backspace leaves an empty command");
}

#[test]
fn q_and_ctrl_c_quit_where_nothing_is_typed_and_ctrl_c_everywhere() {
    assert!(model().key(Key::Char('q')).quit);
    let mut model = model();
    keys(&mut model, "?");
    assert_eq!(model.focus, Focus::Help);
    keys(&mut model, "/");
    assert_eq!(model.focus, Focus::Page, "any key closes the help");
    for start in ["/", ":", "?"] {
        keys(&mut model, start);
        assert!(model.key(Key::CtrlC).quit, "{start}");
        model.focus = Focus::Page;
    }
    keys(&mut model, "/q");
    assert_eq!(model.focus, Focus::Filter("q".into()));
    model.key(Key::Esc);
    keys(&mut model, ":q");
    assert!(model.key(Key::Enter).quit);
}

#[test]
fn another_size_asks_for_as_many_rows_as_fit() {
    let mut model = model();
    answer(&mut model, leases(&["a"], None));
    let update = model.resize((40, 50));
    assert!(matches!(query(&update.jobs[0]), ScreenQuery::Leases(LeaseQuery { rows: 43, .. })), "{update:?}");
    for size in [(0, 0), (1, 1), (3, 7)] {
        model.resize(size);
        assert!(model.page_rows() >= 1);
    }
}
