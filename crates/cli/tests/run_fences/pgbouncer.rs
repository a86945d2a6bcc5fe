//! PgBouncer in front of the database: it refuses or ignores startup options, which `--fence` must notice.

use std::os::unix::fs::PermissionsExt;

use leasehold_testkit::process::{TestProcess, tied_command};
use tempfile::TempDir;

use crate::RESOURCE;
use crate::database::FencedDatabase;
use crate::harness::wait_until;
use crate::support::run;

/// Name of the socket; no TCP port is opened.
const PORT: &str = "6432";

struct PgBouncer {
    dir: TempDir,
    process: TestProcess,
}

impl PgBouncer {
    /// Starts it in transaction mode. It refuses root, as PostgreSQL does.
    fn start(base: &FencedDatabase, settings: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().to_str().expect("plain");
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).expect("own directory");
        let ini = dir.path().join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = host={} user=leasehold\n[pgbouncer]\nlisten_addr =\nlisten_port = {PORT}\nunix_socket_dir = {path}\n\
             auth_type = any\npool_mode = transaction\nlogfile = {path}/log\n{settings}\n",
            base.host()
        );
        std::fs::write(&ini, text).expect("written");
        let ini = ini.to_str().expect("plain");
        let program =
            if std::path::Path::new("/usr/sbin/pgbouncer").exists() { "/usr/sbin/pgbouncer" } else { "pgbouncer" };
        let command = if rustix::process::geteuid().is_root() {
            tied_command("KILL", &["--reuid=65534", "--regid=65534", "--clear-groups", program, ini])
        } else {
            tied_command("KILL", &[program, ini])
        };
        let process = TestProcess::spawn_tied(command).expect("./test installs pgbouncer");
        let bouncer = Self { dir, process };
        let socket = bouncer.dir.path().join(format!(".s.PGSQL.{PORT}"));
        wait_until("pgbouncer listens", || socket.exists());
        bouncer
    }

    fn url(&self, base: &FencedDatabase) -> String {
        let host = self.dir.path().to_str().expect("plain").replace('/', "%2F");
        format!("postgres://leasehold@{host}:{PORT}/{}", base.name)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pgbouncer_in_transaction_mode_is_refused_whether_it_refuses_options_or_ignores_them() {
    let base = FencedDatabase::new().await;
    for (settings, reason) in [
        ("", "unsupported startup parameter"),
        ("ignore_startup_parameters = options", "the setting leasehold.token did not arrive"),
    ] {
        let mut bouncer = PgBouncer::start(&base, settings);
        let url = bouncer.url(&base);
        // It serves the database: only the options are missing.
        let psql = ["-X", "-At", "-h", bouncer.dir.path().to_str().expect("plain"), "-p", PORT, "-U", "leasehold"];
        let mut direct = std::process::Command::new("psql");
        direct.args(psql).args(["-c", "SELECT 'served'", &base.name]).env_remove("PGOPTIONS");
        assert_eq!(run(&mut direct).ok().out, "served\n");
        let refused = run(&mut base.command(&["run", RESOURCE, "--fence", &url, "--", "echo", "ran"]));
        let refused = refused.fails(78, "leasehold: CONFIG{fence}: ");
        assert!(refused.err.contains(reason) && refused.err.contains("PgBouncer"), "{refused:?}");
        assert!(refused.err.contains("leasehold.admit in each transaction"), "the next step: {refused:?}");
        bouncer.process.kill();
    }
    base.run("true").ok();
}
