//! Files of other packages that are part of this repository and of the binary.

use std::fs;

use serde_json::{Value, json};

use crate::third_party::root;

/// A file from a package of npm.
pub struct VendoredFile {
    /// Name of the package.
    pub name: &'static str,
    /// Version of the package.
    pub version: &'static str,
    /// The license as an SPDX expression.
    pub license: &'static str,
    /// Where its sources are published.
    pub repository: &'static str,
    /// SHA-256 of the file.
    pub sha256: &'static str,
    /// The file of the license, from the root.
    pub license_file: &'static str,
}

/// All of them. A test of the server compares the files with these digests.
pub const VENDORED: [VendoredFile; 2] = [
    VendoredFile {
        name: "htmx-ext-sse",
        version: "2.2.4",
        license: "0BSD",
        repository: "https://github.com/bigskysoftware/htmx-extensions",
        sha256: "98a46496de0c3605fbffdce9167ba427bdd9553184f83f149c261891a92c0136",
        license_file: "crates/server/src/dashboard/assets/LICENSE-htmx-sse",
    },
    VendoredFile {
        name: "htmx.org",
        version: "2.0.11",
        license: "0BSD",
        repository: "https://github.com/bigskysoftware/htmx",
        sha256: "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717",
        license_file: "crates/server/src/dashboard/assets/LICENSE-htmx",
    },
];

impl VendoredFile {
    /// The package URL.
    pub fn reference(&self) -> String {
        format!("pkg:npm/{}@{}", self.name, self.version)
    }

    /// Its row in `NOTICE`.
    pub fn notice(&self) -> String {
        format!("{} {} ({}), {}", self.name, self.version, self.license, self.repository)
    }

    /// The text of its license.
    pub fn license_text(&self) -> String {
        fs::read_to_string(root().join(self.license_file)).expect("a vendored file has its license next to it")
    }

    /// Its row in the bill of materials.
    pub fn component(&self) -> Value {
        json!({
            "type": "library",
            "bom-ref": self.reference(),
            "name": self.name,
            "version": self.version,
            "purl": self.reference(),
            "licenses": [{ "expression": self.license }],
            "hashes": [{ "alg": "SHA-256", "content": self.sha256 }],
            "externalReferences": [{ "type": "vcs", "url": self.repository }],
        })
    }
}
