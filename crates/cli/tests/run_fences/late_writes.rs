//! A worker without a line of code for leases is paused past its ttl: the database refuses its late write.

use rustix::process::{Pid, Signal, kill_process};

use crate::RESOURCE;
use crate::database::FencedDatabase;
use crate::drivers::python;
use crate::harness::{WrapperProcess, is_stopped, wait_until};

/// The parent of a process.
fn parent(pid: Pid) -> Pid {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).expect("it runs");
    let (_, fields) = stat.rsplit_once(')').expect("the name is in parentheses");
    fields.split_whitespace().nth(1).and_then(|parent| Pid::from_raw(parent.parse().ok()?)).expect("it has a parent")
}

/// Pauses the worker, its supervisor and its wrapper, as a suspended machine would, until a successor has claimed and written. Then
/// resumes the worker alone, so that nothing but the database can stop its write.
async fn pause_past_the_ttl(base: &FencedDatabase, wrapper: &WrapperProcess, worker: Pid) {
    let family = [wrapper.pid(), parent(worker), worker];
    for pid in family {
        kill_process(pid, Signal::STOP).expect("it runs");
        wait_until("the process is stopped", || is_stopped(pid));
    }
    let before = base.rows().await;
    let write = "psql -X -v ON_ERROR_STOP=1 -c 'INSERT INTO paid VALUES (8, 1)'";
    let url = base.url();
    let args = ["run", RESOURCE, "--wait", "60s", "--fence", &url, "--", "sh", "-c", write];
    let successor = WrapperProcess::start(&mut base.command(&args)).wait_exit();
    assert_eq!(successor.exit, 0, "{successor:?}");
    assert_eq!(base.rows().await, before + 1, "the successor has written");
    kill_process(worker, Signal::CONT).expect("it is stopped");
}

async fn resume_wrapper(wrapper: WrapperProcess, supervisor: Pid) -> String {
    kill_process(supervisor, Signal::CONT).expect("it is stopped");
    wrapper.signal(Signal::CONT);
    let result = wrapper.wait_exit();
    assert_eq!(result.exit, 3, "the lease was lost: {result:?}");
    result.errors
}

/// A worker as someone wrote it before there were leases. It ends with the first error.
const WORKER: &str = r#"
import os, time, psycopg
db = psycopg.connect(autocommit=True)
while True:
    db.execute("INSERT INTO paid VALUES (7, 1200)")
    print("worker", os.getpid(), flush=True)
    time.sleep(0.02)
"#;

#[tokio::test(flavor = "multi_thread")]
async fn the_late_write_of_a_paused_python_worker_is_refused() {
    let base = FencedDatabase::new().await;
    let (python, url) = (python(), base.url());
    let python = python.to_str().expect("plain");
    let args = ["run", RESOURCE, "--ttl", "2s", "--fence", &url, "--", python, "-u", "-c", WORKER];
    let wrapper = WrapperProcess::start(&mut base.command(&args));
    let worker = wrapper.wait_pid("worker");
    let supervisor = parent(worker);
    pause_past_the_ttl(&base, &wrapper, worker).await;
    wrapper.wait_stderr("STALE_TOKEN");
    let errors = resume_wrapper(wrapper, supervisor).await;
    assert!(errors.contains("a later holder has claimed"), "{errors}");
    let last = "SELECT invoice FROM paid ORDER BY ctid DESC LIMIT 1";
    let last: i64 = base.connect().await.query_one(last, &[]).await.expect("read").get(0);
    assert_eq!(last, 8, "nothing was written after the successor");
    base.fixture.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_late_write_of_a_paused_psql_is_refused() {
    let base = FencedDatabase::new().await;
    let url = base.url();
    let script = "echo worker $$; exec psql -X -q -v VERBOSITY=verbose -v ON_ERROR_STOP=1 -f -";
    let mut wrapper = WrapperProcess::start(
        &mut base.command(&["run", RESOURCE, "--ttl", "2s", "--fence", &url, "--", "sh", "-c", script]),
    );
    let worker = wrapper.wait_pid("worker");
    let supervisor = parent(worker);
    wrapper.write_stdin("INSERT INTO paid VALUES (7, 1200); SELECT 'written';\n");
    wrapper.wait_text("written");
    pause_past_the_ttl(&base, &wrapper, worker).await;
    wrapper.write_stdin("INSERT INTO paid VALUES (7, 1200);\n");
    wrapper.wait_stderr("LH001");
    let errors = resume_wrapper(wrapper, supervisor).await;
    assert!(errors.contains("STALE_TOKEN"), "{errors}");
    let rows = base.connect().await.query("SELECT invoice FROM paid", &[]).await.expect("read");
    assert_eq!(rows.iter().map(|row| row.get(0)).collect::<Vec<i64>>(), [7, 8]);
    base.fixture.assert_clean();
}
