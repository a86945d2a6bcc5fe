//! Images of the dashboard in `docs/images/`, written only with `LEASEHOLD_BLESS=1`. They are never compared: another version of the browser
//! or another font draws other pixels.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::page::{Page, Screen};
use crate::scene::{Scene, api};
use crate::support::text;

/// Largest size of an image, so that the repository stays small.
const MAX_BYTES: usize = 150_000;

/// Images of all pages.
pub const IMAGES: [&str; 6] = ["timeline", "timeline-dark", "overview-dark", "revoke", "deadlock", "phone"];

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images")
}

/// Whether images are written.
pub fn is_blessed() -> bool {
    std::env::var_os("LEASEHOLD_BLESS").is_some_and(|value| value == "1")
}

/// Writes an image of a page, or checks that it is in the repository and small.
pub fn keep(page: &Page<'_>, name: &str, screen: Screen) {
    assert!(IMAGES.contains(&name), "{name} is listed");
    let path = directory().join(format!("dashboard-{name}.png"));
    if is_blessed() {
        page.set_screen(screen);
        // Two frames: the first one lays the page out again.
        page.eval("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))");
        std::fs::create_dir_all(directory()).expect("docs exist");
        std::fs::write(&path, page.image()).expect("the directory is writable");
    }
    let image = std::fs::read(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; write it with LEASEHOLD_BLESS=1", path.display()));
    assert!(image.starts_with(b"\x89PNG"), "{} is an image", path.display());
    assert!(image.len() <= MAX_BYTES, "{} has {} bytes", path.display(), image.len());
}

/// Lets programs work with leases for some minutes, so that the charts of an image have a shape.
pub fn work(scene: &Scene) {
    let began = Instant::now();
    let mut held: VecDeque<(String, String)> = VecDeque::new();
    for step in 0_u64.. {
        let seconds = began.elapsed().as_secs_f64();
        if seconds > 270.0 {
            return;
        }
        // Jobs come in waves. A few of them end without a release, or are revoked.
        let wave = 3.2 + 2.4 * (seconds / 35.0).sin() + 1.3 * (seconds / 6.0).sin();
        for part in 0..wave.round() as u64 {
            let name = format!("jobs/batch-{step}-{part}");
            let is_lost = (step + part).is_multiple_of(9);
            let body = json!({ "holder": format!("batch-{part}"), "ttl": if is_lost { "4s" } else { "60s" } });
            let granted = api(&scene.server, "POST", &format!("/v1/leases/{name}:acquire"), &body);
            if !is_lost {
                held.push_back((name, text(&granted["token"])));
            }
        }
        let keep = 18 + (8.0 * (seconds / 25.0).cos()) as usize;
        while held.len() > keep {
            let (name, token) = held.pop_front().expect("there are some");
            let (verb, body) = match (step + held.len() as u64) % 17 {
                0 => ("revoke", json!({ "comment": "replaced by a new version" })),
                _ => ("release", json!({ "token": token })),
            };
            api(&scene.server, "POST", &format!("/v1/leases/{name}:{verb}"), &body);
        }
        for (name, token) in held.iter().take(1 + (wave * 2.0) as usize) {
            api(&scene.server, "POST", &format!("/v1/leases/{name}:renew"), &json!({ "token": token }));
        }
        std::thread::sleep(Duration::from_millis(900));
    }
}
