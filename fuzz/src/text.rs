//! Text that people, scripts and the service manager write: no panic, and nothing that is told twice as large as it came.

use std::path::Path;

use sensor_poll::{
    config,
    coordination::{Process, Registration, Registry},
    lifecycle::{inherited::Passed, listen::Addr},
    registry,
    status::Role,
};

/// A manifest against the protocols of this build, and what follows from one that is right: its workers and requests.
pub fn manifest(data: &[u8]) {
    let path = Path::new("plant.toml");
    match config::load_bytes(path, data, registry::protocols()) {
        Ok(loaded) => {
            loaded.warnings.iter().for_each(|warning| drop(warning.to_string()));
            let again = config::load_bytes(path, data, registry::protocols()).expect("it was right before");
            assert!(config::diff(&loaded.manifest, &again.manifest).is_empty(), "the same as itself");
        }
        Err(error) => {
            assert!(!error.faults.is_empty(), "a refusal says why");
            assert!(error.faults.iter().all(|fault| fault.line >= 1 && fault.column >= 1));
            let _ = error.to_string();
        }
    }
}

/// `registry.json`: read, and rebuilt by the next registration.
pub fn instances(data: &[u8]) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(dir.path().join("registry.json"), data).expect("a file can be written");
    let instances = Registry::new(dir.path());
    let _ = instances.list().expect("garbage reads as an empty one");
    let process = Process::current().expect("this process is there");
    let new = Registration {
        id: "a".to_owned(),
        role: Role::Leader,
        process,
        build: "0".to_owned(),
        started_at: "t".to_owned(),
    };
    let registered = instances.register(&new).expect("garbage does not hinder a start");
    let listed = instances.list().expect("it was just written");
    let own: Vec<_> = listed.iter().filter(|i| i.id == "a").collect();
    assert!(matches!(own[..], [own] if own.generation == registered.generation), "{listed:?}");
}

/// Lines are `LISTEN_PID`, `LISTEN_FDS`, `LISTEN_FDNAMES`, then an address; an empty line is a variable that is not set.
pub fn listen(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.split('\n').map(|line| (!line.is_empty()).then_some(line));
    let mut next = || lines.next().flatten();
    let (pid, count, names, addr) = (next(), next(), next(), next());
    match Passed::read(pid, count, names, 7) {
        Passed::Ours(names) => {
            assert_eq!(pid.and_then(|pid| pid.parse().ok()), Some(7), "only what is meant for us");
            assert!(names.len() <= 64 && names.iter().all(|name| !name.is_empty()));
        }
        Passed::Nothing | Passed::Foreign(_) | Passed::Broken(_) => {}
    }
    if let Some(Ok(addr)) = addr.map(str::parse::<Addr>) {
        assert_eq!(addr.to_string().parse(), Ok(addr));
    }
}
