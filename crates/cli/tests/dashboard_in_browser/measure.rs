//! Prints how long pages take with many leases, and what an open dashboard costs the server. It asserts nothing: times are those of a machine.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::chromium::Chromium;
use crate::crowded_server::FullServer;
use crate::many_leases::paths;
use crate::page::Page;
use crate::support::Server;

/// Argument that selects this role.
pub const ROLE: &str = "measure";

/// Loads of each page.
const LOADS: usize = 5;
/// Updates of each page.
const UPDATES: usize = 20;
/// Rounds of each load, in turn with and without open pages.
const ROUNDS: usize = 3;
const ROUND: Duration = Duration::from_secs(10);
/// Leases of one renewal batch.
const BATCH: usize = 1_000;

/// `[LEASES [WAITERS [OPEN_PAGES]]]`
pub fn run(args: &[String]) {
    let number = |at: usize, default: usize| args.get(at).map_or(default, |text| text.parse().expect("a number"));
    let (leases, waiters, open) = (number(0, 100_000), number(1, 10_000), number(2, 20));
    let began = Instant::now();
    let mut full = FullServer::start(Server::start(), leases, waiters);
    println!(
        "{leases} leases and {waiters} waiters after {:.1} s; journal in a directory, synced",
        began.elapsed().as_secs_f64()
    );
    pages(&full);
    unused();
    renewals(&mut full, open);
}

/// The value in the middle.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// First paint with an empty cache, and the time from the report of a change to the changed page.
fn pages(full: &FullServer) {
    let browser = Chromium::start();
    println!(
        "\n{:<46} {:>9} {:>11} {:>12} {:>10} {:>10}",
        "page", "bytes", "server ms", "first paint", "update ms", "longest"
    );
    for path in paths() {
        let url = format!("http://{}{path}", full.server.address);
        let (mut answered, mut painted, mut updated) = (Vec::new(), Vec::new(), Vec::new());
        let mut bytes = 0;
        for _ in 0..LOADS {
            let page = Page::open(&browser);
            page.goto(&url);
            page.wait_for("performance.getEntriesByName('first-contentful-paint').length === 1");
            let entry = "performance.getEntriesByType('navigation')[0]";
            bytes = page.eval(&format!("{entry}.encodedBodySize")).as_u64().expect("a size");
            answered.push(page.eval(&format!("{entry}.responseEnd - {entry}.requestStart")).as_f64().expect("a time"));
            painted.push(
                page.eval("performance.getEntriesByName('first-contentful-paint')[0].startTime")
                    .as_f64()
                    .expect("a time"),
            );
            if updated.is_empty() && page.eval("document.querySelector('#live').hasAttribute('hx-get')") == true {
                for _ in 0..UPDATES {
                    let update = page.eval(
                        "new Promise(done => { const began = performance.now();
                           document.body.addEventListener('htmx:afterSettle', () => requestAnimationFrame(() => done(performance.now() - began)), { once: true });
                           htmx.trigger('#live', 'sse:refresh'); })",
                    );
                    updated.push(update.as_f64().expect("a time"));
                }
            }
        }
        let longest = updated.iter().copied().fold(0.0, f64::max);
        let update = if updated.is_empty() { "-".to_owned() } else { format!("{:.1}", median(&mut updated)) };
        println!(
            "{path:<46} {bytes:>9} {:>11.1} {:>12.1} {update:>10} {longest:>10.1}",
            median(&mut answered),
            median(&mut painted)
        );
    }
}

/// What the dashboard costs a server on which no one opens a page: its sampler runs every five seconds. An empty server does next to
/// nothing else, so the seconds with a sample are compared with the others. The largest of the five is taken for the one with the
/// sample, so that the result is rather too high.
fn unused() {
    let server = Server::start();
    let mut seconds = [const { Vec::new() }; 5];
    let began = Instant::now();
    let mut before = run_times(&server);
    for at in 0..60_u32 {
        std::thread::sleep((began + Duration::from_secs(1) * (at + 1)).saturating_duration_since(Instant::now()));
        let now = run_times(&server);
        let used = now.iter().map(|(thread, now)| now - before.get(thread).copied().unwrap_or(0)).sum::<u64>();
        seconds[at as usize % 5].push(used as f64 / 1e6);
        before = now;
    }
    let mut medians = seconds.map(|mut values| median(&mut values));
    medians.sort_by(f64::total_cmp);
    let (others, with_sample) = (medians[2], medians[4]);
    println!(
        "\nempty server, no open page, CPU time of a second: {with_sample:.3} ms with a sample, {others:.3} ms without"
    );
    println!("so the unused dashboard costs {:.4} % of one core", (with_sample - others).max(0.0) / 5_000.0 * 100.0);
}

/// CPU time of each thread so far, in nanoseconds.
fn run_times(server: &Server) -> BTreeMap<OsString, u64> {
    let threads = std::fs::read_dir(format!("/proc/{}/task", server.id())).expect("the server runs");
    let of = |thread: std::io::Result<std::fs::DirEntry>| {
        let thread = thread.ok()?;
        // The thread may have ended.
        let stat = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        Some((thread.file_name(), stat.split(' ').next()?.parse().ok()?))
    };
    threads.filter_map(of).collect()
}

/// Renewals with and without open pages, in turn.
fn renewals(full: &mut FullServer, open: usize) {
    println!(
        "\n{:<22} {:>12} {:>11} {:>11} {:>11} {:>12} {:>12} {:>12} {:>10}",
        "open pages", "renewals/s", "p50 ms", "p99 ms", "longest ms", "turn mean", "turn p99 <=", "longest <=", "CPU %"
    );
    for round in 0..2 * ROUNDS {
        let readers = if round % 2 == 0 { 0 } else { open };
        let (is_done, reads) = (AtomicBool::new(false), AtomicU64::new(0));
        let paths = paths();
        std::thread::scope(|scope| {
            let server = &full.server;
            for reader in 0..readers {
                let (path, is_done, reads) = (&paths[reader % paths.len()], &is_done, &reads);
                // An open page is read again once a second while something changes.
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(reader as u64 * 1_000 / readers as u64));
                    while !is_done.load(Ordering::Relaxed) {
                        assert!(server.http("GET", path, "", "").starts_with("HTTP/1.1 200"), "{path}");
                        reads.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(Duration::from_secs(1));
                    }
                });
            }
            let (turns, used) = (Turns::read(server), cpu_time(server));
            let began = Instant::now();
            let mut latencies = full.runtime.block_on(full.holder.renew(&full.leases, BATCH, ROUND));
            let elapsed = began.elapsed().as_secs_f64();
            let (turns, used) = (Turns::read(server).since(&turns), cpu_time(server) - used);
            is_done.store(true, Ordering::Relaxed);
            latencies.sort();
            let ms = |at: usize| latencies[at.min(latencies.len() - 1)].as_secs_f64() * 1e3;
            let label = format!("{readers} ({:.1} reads/s)", reads.load(Ordering::Relaxed) as f64 / elapsed);
            println!(
                "{label:<22} {:>12.0} {:>11.2} {:>11.2} {:>11.2} {:>12.3} {:>12.3} {:>12.3} {:>10.1}",
                (latencies.len() * BATCH) as f64 / elapsed,
                ms(latencies.len() / 2),
                ms(latencies.len() * 99 / 100),
                ms(latencies.len()),
                turns.seconds / turns.count.max(1.0) * 1e3,
                turns.quantile(0.99) * 1e3,
                turns.quantile(1.0) * 1e3,
                used.as_secs_f64() / elapsed * 100.0,
            );
        });
    }
}

/// The durations of turns, as `/metrics` has them.
struct Turns {
    /// Upper bounds in seconds, with the number of turns up to them.
    buckets: Vec<(f64, f64)>,
    seconds: f64,
    count: f64,
}

impl Turns {
    fn read(server: &Server) -> Self {
        let metrics = server.http("GET", "/metrics", "", "");
        let value = |line: &str| line.rsplit(' ').next().and_then(|text| text.parse::<f64>().ok()).expect("a number");
        let of = |name: &str| {
            metrics.lines().find(|line| line.starts_with(&format!("leasehold_turn_seconds_{name} "))).map_or(0.0, value)
        };
        let bounds = metrics.lines().filter(|line| line.starts_with("leasehold_turn_seconds_bucket{le="));
        let bucket = |line: &str| {
            let bound = line.split('"').nth(1).expect("a bound");
            (bound.parse().unwrap_or(f64::INFINITY), value(line))
        };
        Self { buckets: bounds.map(bucket).collect(), seconds: of("sum"), count: of("count") }
    }

    fn since(self, before: &Self) -> Self {
        let buckets = self.buckets.iter().zip(&before.buckets).map(|(now, then)| (now.0, now.1 - then.1)).collect();
        Self { buckets, seconds: self.seconds - before.seconds, count: self.count - before.count }
    }

    /// The upper bound of the bucket that contains a quantile.
    fn quantile(&self, quantile: f64) -> f64 {
        self.buckets.iter().find(|(_, count)| *count >= self.count * quantile).map_or(f64::NAN, |(bound, _)| *bound)
    }
}

/// CPU time of a server so far.
fn cpu_time(server: &Server) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.id())).expect("the server runs");
    // The name may contain spaces; the fields follow its closing parenthesis.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<u64>().expect("a number");
    Duration::from_millis((ticks(11) + ticks(12)) * 1_000 / rustix::param::clock_ticks_per_second())
}
