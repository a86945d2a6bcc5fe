//! Files that pages load: style sheets, scripts and the icon. They are part of the binary.

use std::sync::LazyLock;

use sha2::{Digest, Sha256};

use super::timeline::STYLE;
use crate::hex::hex;

/// What a page may load: files of this server. Inline scripts and styles are refused, and no page can be framed.
pub const CONTENT_SECURITY_POLICY: &str =
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'";

/// A file that pages load.
pub struct Asset {
    /// Its name in `/ui/assets/`.
    pub name: &'static str,
    /// Its content type.
    pub content_type: &'static str,
    /// Its content.
    pub content: &'static [u8],
    /// The first digits of its SHA-256; pages add it to the address, so that a browser may store the file.
    pub version: String,
}

impl Asset {
    fn new(name: &'static str, content_type: &'static str, content: &'static [u8]) -> Self {
        let mut version = hex(&Sha256::digest(content).into());
        version.truncate(12);
        Self { name, content_type, content, version }
    }

    /// The address that pages use.
    pub fn path(&self) -> String {
        format!("/ui/assets/{}?{}", self.name, self.version)
    }
}

const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

/// Names of the files.
pub const STYLE_SHEET: &str = "dashboard.css";
/// The style sheet of timelines.
pub const TIMELINE_STYLE_SHEET: &str = "timeline.css";
/// The script with the keys.
pub const SCRIPT: &str = "dashboard.js";
/// htmx, from the npm package `htmx.org`.
pub const HTMX: &str = "htmx-2.0.11.min.js";
/// Its extension for server-sent events, from the npm package `htmx-ext-sse`.
pub const HTMX_SSE: &str = "htmx-sse-2.2.4.min.js";
/// The icon.
pub const ICON: &str = "icon.svg";

static ASSETS: LazyLock<[Asset; 6]> = LazyLock::new(|| {
    [
        Asset::new(STYLE_SHEET, CSS, include_bytes!("assets/dashboard.css")),
        Asset::new(TIMELINE_STYLE_SHEET, CSS, STYLE.as_bytes()),
        Asset::new(SCRIPT, JAVASCRIPT, include_bytes!("assets/dashboard.js")),
        Asset::new(HTMX, JAVASCRIPT, include_bytes!("assets/htmx-2.0.11.min.js")),
        Asset::new(HTMX_SSE, JAVASCRIPT, include_bytes!("assets/htmx-sse-2.2.4.min.js")),
        Asset::new(ICON, "image/svg+xml", include_bytes!("assets/icon.svg")),
    ]
});

/// The file of this name.
pub fn asset(name: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.name == name)
}

/// The address of a file that exists.
pub(super) fn path_of(name: &'static str) -> String {
    asset(name).expect("pages name files that exist").path()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of others are exactly those of their packages. A new version changes its name, its digest here, and its row in `NOTICE`.
    #[test]
    fn vendored_scripts_are_those_of_their_packages() {
        let digests = [
            (HTMX, "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717"),
            (HTMX_SSE, "98a46496de0c3605fbffdce9167ba427bdd9553184f83f149c261891a92c0136"),
        ];
        for (name, digest) in digests {
            let content = asset(name).expect("the file is listed").content;
            assert_eq!(hex(&Sha256::digest(content).into()), digest, "{name}");
        }
        let notice = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../NOTICE"));
        for row in ["htmx.org 2.0.11 (0BSD)", "htmx-ext-sse 2.2.4 (0BSD)"] {
            assert!(notice.contains(row), "NOTICE lists {row}");
        }
    }

    #[test]
    fn no_file_of_ours_names_another_origin() {
        for name in [STYLE_SHEET, TIMELINE_STYLE_SHEET, SCRIPT] {
            let content = String::from_utf8_lossy(asset(name).expect("the file is listed").content);
            assert!(!content.contains("://") && !content.contains("@import"), "{name}");
        }
    }
}
