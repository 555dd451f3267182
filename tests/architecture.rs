//! The arrows between modules, read from the `use` lines.

#![allow(clippy::unwrap_used)]

use std::{fs, path::Path};

/// What a module of the root crate may import of it, besides itself.
const ALLOWED: &[(&str, &[&str])] = &[
    ("clock", &[]),
    ("status", &[]),
    ("memory", &[]),
    ("coordination", &["clock", "status"]),
    ("metrics", &["clock", "status"]),
    ("lifecycle", &["clock", "status", "coordination", "metrics"]),
    ("registry", &[]),
    ("config", &["clock", "status", "registry"]),
    ("journal", &["clock", "status"]),
    ("lease", &["clock", "status", "coordination"]),
    ("rpc", &["clock", "status", "lifecycle"]),
    ("worker", &["clock", "status", "memory", "coordination"]),
    ("sim", &["clock"]),
    (
        "supervisor",
        &[
            "clock",
            "status",
            "memory",
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

/// Every `crate::…` path in a text, with one level of a braced list behind it taken apart.
fn imports(text: &str) -> Vec<String> {
    let code: String = text.lines().filter(|l| !l.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let mut all = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        if let Some(list) = rest.strip_prefix('{') {
            let mut depth = 0;
            let mut item = String::new();
            for c in list.chars() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => all.push(std::mem::take(&mut item)),
                    _ => {}
                }
                if c != ',' || depth > 0 {
                    item.push(c);
                }
            }
            all.push(item);
        } else {
            all.push(rest.chars().take_while(|c| c.is_alphanumeric() || "_:".contains(*c)).collect());
        }
    }
    all.into_iter().map(|s| s.trim().to_owned()).filter(|s| !s.is_empty()).collect()
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
