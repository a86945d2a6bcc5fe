//! What a process is started under so that its disk fails, fills up or answers late.

use leasehold_sim::chance::Chance;

fn strace(call: &str, inject: &str) -> Vec<String> {
    // Its tracer is a child of its own, so that the process keeps its id.
    let words = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e"];
    let inject = [format!("trace={call}"), "-e".to_owned(), format!("inject={call}:{inject}")];
    words.into_iter().map(str::to_owned).chain(inject).collect()
}

/// For a server: often nothing, and whether it may end by what it gets.
pub fn server(chance: &mut Chance, on_etcd: bool) -> (Vec<String>, bool) {
    let slow = strace("fdatasync", &format!("delay_enter={}", chance.between(5_000, 250_000)));
    let when = chance.between(30, 250);
    match chance.below(8) {
        0 | 1 => (slow, false),
        2 if !on_etcd => (strace("fdatasync", &format!("error=EIO:when={when}")), true),
        3 if !on_etcd => (strace("fdatasync", &format!("error=ENOSPC:when={when}")), true),
        4 if !on_etcd => (strace("pwrite64", &format!("error=EIO:when={when}")), true),
        5 if !on_etcd => (strace("pwrite64", &format!("error=ENOSPC:when={when}..{}", when + 5)), false),
        _ => (Vec::new(), false),
    }
}

/// For a member of etcd: nothing, or a slow disk.
pub fn member(chance: &mut Chance) -> Vec<String> {
    if chance.one_in(2) {
        return Vec::new();
    }
    strace("fdatasync", &format!("delay_enter={}", chance.between(5_000, 100_000)))
}

/// The same for the eye.
pub fn words(under: &[String]) -> String {
    under.last().map_or("on a good disk".to_owned(), |inject| format!("with {inject}"))
}
