//! Wrapper commands (`strace`) that make a process's disk fail, fill up or respond slowly.

use leasehold_sim::rng::SimRng;

fn strace(call: &str, inject: &str) -> Vec<String> {
    // With `-D` the tracer is a child process, so that the traced process keeps its id.
    let words = ["strace", "-D", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e"];
    let inject = [format!("trace={call}"), "-e".to_owned(), format!("inject={call}:{inject}")];
    words.into_iter().map(str::to_owned).chain(inject).collect()
}

/// A wrapper for a server, often empty, and whether it may make the server exit.
pub fn server(rng: &mut SimRng, on_etcd: bool) -> (Vec<String>, bool) {
    let slow = strace("fdatasync", &format!("delay_enter={}", rng.between(5_000, 250_000)));
    let when = rng.between(30, 250);
    match rng.below(8) {
        0 | 1 => (slow, false),
        2 if !on_etcd => (strace("fdatasync", &format!("error=EIO:when={when}")), true),
        3 if !on_etcd => (strace("fdatasync", &format!("error=ENOSPC:when={when}")), true),
        4 if !on_etcd => (strace("pwrite64", &format!("error=EIO:when={when}")), true),
        5 if !on_etcd => (strace("pwrite64", &format!("error=ENOSPC:when={when}..{}", when + 5)), false),
        _ => (Vec::new(), false),
    }
}

/// A wrapper for an etcd member: empty, or a slow disk.
pub fn member(rng: &mut SimRng) -> Vec<String> {
    if rng.one_in(2) {
        return Vec::new();
    }
    strace("fdatasync", &format!("delay_enter={}", rng.between(5_000, 100_000)))
}

/// Text for traces.
pub fn describe(wrapper: &[String]) -> String {
    wrapper.last().map_or("on a good disk".to_owned(), |inject| format!("with {inject}"))
}
