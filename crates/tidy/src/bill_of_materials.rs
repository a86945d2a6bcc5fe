//! The bill of materials of a release: CycloneDX 1.6 in JSON. It depends on `Cargo.lock` and the manifests alone, so it can be rebuilt.

use serde_json::{Value, json};

use crate::third_party::{RegistryPackage, ThirdParty};
use crate::vendored::VENDORED;

const OWN: &str = "leasehold";

/// The document.
pub fn document(shipped: &ThirdParty) -> Value {
    let own = format!("pkg:cargo/{OWN}-cli@{}", shipped.version);
    let edges = shipped.packages.iter().map(|package| {
        json!({ "ref": reference(&package.name, &package.version), "dependsOn": references(&package.dependencies) })
    });
    let vendored = VENDORED.iter().map(|file| json!({ "ref": file.reference(), "dependsOn": [] }));
    let direct = references(&shipped.direct).into_iter().chain(VENDORED.iter().map(|file| file.reference()));
    let first = json!({ "ref": own, "dependsOn": direct.collect::<Vec<_>>() });
    let edges: Vec<_> = [first].into_iter().chain(edges).chain(vendored).collect();
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": { "type": "application", "bom-ref": own, "name": OWN, "version": shipped.version, "purl": own },
        },
        "components": shipped.packages.iter().map(component).chain(VENDORED.iter().map(|file| file.component())).collect::<Vec<_>>(),
        "dependencies": edges,
    })
}

/// The document as text.
pub fn text(shipped: &ThirdParty) -> String {
    format!("{:#}\n", document(shipped))
}

fn component(package: &RegistryPackage) -> Value {
    let reference = reference(&package.name, &package.version);
    let mut component = json!({
        "type": "library",
        "bom-ref": reference,
        "name": package.name,
        "version": package.version,
        "purl": reference,
        "licenses": [{ "expression": package.license.replace(" / ", "/").replace('/', " OR ") }],
    });
    if let Some(checksum) = &package.checksum {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    if let Some(repository) = &package.repository {
        component["externalReferences"] = json!([{ "type": "vcs", "url": repository }]);
    }
    component
}

fn references(packages: &[(String, String)]) -> Vec<String> {
    packages.iter().map(|(name, version)| reference(name, version)).collect()
}

/// The package URL. The `+` before build metadata must be escaped.
fn reference(name: &str, version: &str) -> String {
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}
