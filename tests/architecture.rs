//! The arrows between modules, read from the `use` lines.

#![allow(clippy::unwrap_used)]

use std::{fs, path::Path};

/// What a module of the root crate may import of it, besides itself.
const ALLOWED: &[(&str, &[&str])] = &[
    ("clock", &[]),
    ("errors", &[]),
    ("status", &[]),
    ("memory", &[]),
    ("coordination", &["clock", "status"]),
    ("metrics", &["clock", "status"]),
    ("lifecycle", &["clock", "status", "coordination", "metrics"]),
    ("registry", &[]),
    ("config", &["clock", "status", "registry"]),
    ("journal", &["clock", "status"]),
    ("lease", &["clock", "status", "errors", "coordination"]),
    ("rpc", &["clock", "status", "lifecycle"]),
    ("worker", &["errors", "clock", "status", "memory", "coordination"]),
    ("sim", &["clock"]),
    (
        "supervisor",
        &[
            "clock",
            "status",
            "memory",
            "errors",
            "coordination",
            "metrics",
            "lifecycle",
            "registry",
            "config",
            "journal",
            "lease",
            "rpc",
            // The wire is shared by both ends of it.
            "worker::wire",
            "worker::spool",
        ],
    ),
];

fn files(dir: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// Every `crate::…` path in a text, with braced lists taken apart.
fn imports(text: &str) -> Vec<String> {
    let code: String = text.lines().filter(|l| !l.trim_start().starts_with("//")).collect::<Vec<_>>().join(" ");
    let mut all = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        expand("", &code[at + "crate::".len()..], &mut all);
    }
    all
}

/// Adds the paths at the start of a text, each with what stands before it; gives what follows them.
fn expand<'t>(before: &str, text: &'t str, all: &mut Vec<String>) -> &'t str {
    let text = text.trim_start();
    let end = text.find(|c: char| !(c.is_alphanumeric() || "_:*".contains(c))).unwrap_or(text.len());
    let path = format!("{before}{}", &text[..end]);
    let Some(mut rest) = text[end..].strip_prefix('{') else {
        all.push(path.trim_end_matches(':').to_owned());
        return &text[end..];
    };
    loop {
        rest = expand(&path, rest, all).trim_start();
        match rest.strip_prefix(',') {
            Some(more) if !more.trim_start().starts_with('}') => rest = more,
            Some(more) => return more.trim_start().strip_prefix('}').unwrap_or(more),
            None => return rest.strip_prefix('}').unwrap_or(rest),
        }
    }
}

#[test]
fn lists_are_taken_apart() {
    let text = "use crate::{\n  a::{b, c::{self, D}},\n  e,\n};\ncrate::f::g();";
    assert_eq!(imports(text), ["a::b", "a::c::self", "a::c::D", "e", "f::g"]);
}

#[test]
fn imports_point_down_only() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    files(&root, &mut found);
    assert!(found.len() > 20);
    let mut wrong = Vec::new();
    for path in found {
        let relative = path.strip_prefix(&root).unwrap();
        let module = relative.components().next().unwrap().as_os_str().to_str().unwrap().trim_end_matches(".rs");
        let Some((_, allowed)) = ALLOWED.iter().find(|(m, _)| *m == module) else { continue };
        for import in imports(&fs::read_to_string(&path).unwrap()) {
            let to = import.split([':', '{']).next().unwrap_or("").trim();
            let known = ALLOWED.iter().any(|(m, _)| *m == to);
            let fine = to == module || allowed.iter().any(|a| import == *a || import.starts_with(&format!("{a}::")));
            if (known || to == "cli") && !fine {
                wrong.push(format!("{} imports crate::{import}", relative.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "arrows that are not allowed:\n{}", wrong.join("\n"));
}

#[test]
fn a_protocol_crate_sees_the_contract_alone() {
    let manifest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("workers/modbus/Cargo.toml")).unwrap();
    assert!(manifest.contains("worker-contract"));
    assert!(!manifest.lines().any(|l| l.starts_with("sensor-poll")));
}

#[test]
fn only_the_registry_names_a_protocol_crate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    files(&root, &mut found);
    for path in found.iter().filter(|p| !p.ends_with("registry.rs")) {
        assert!(!fs::read_to_string(path).unwrap().contains("worker_modbus"), "{}", path.display());
    }
}
