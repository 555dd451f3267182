//! The real threads over a store that can be made to fail.

use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{sync::mpsc::Receiver, time::timeout};

use super::{
    store::{FileStore, Store},
    *,
};
use crate::{clock::Boot, status::Role};

struct Failing {
    inner: FileStore,
    fails: Arc<AtomicBool>,
    panics: Arc<AtomicBool>,
}

impl Store for Failing {
    fn read(&mut self) -> Result<Option<Record>, RecordError> {
        self.inner.read()
    }

    fn write(&mut self, record: &Record) -> io::Result<()> {
        assert!(!self.panics.load(Ordering::Relaxed), "asked to");
        if self.fails.load(Ordering::Relaxed) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        self.inner.write(record)
    }

    fn check(&mut self) {
        self.inner.check();
    }
}

fn options(dir: &Path, instance: &str, ttl_ms: u64) -> LeaseOptions {
    LeaseOptions {
        run_dir: dir.join("run"),
        state_dir: dir.join("state"),
        instance: instance.to_owned(),
        ttl: Duration::from_millis(ttl_ms),
        build: "0.1.0".to_owned(),
        epoch_floor: Box::new(|| 40),
    }
}

async fn next(events: &mut Receiver<LeaseEvent>) -> LeaseEvent {
    timeout(Duration::from_secs(10), events.recv()).await.expect("an event in time").expect("the lease lives")
}

#[tokio::test]
async fn a_lease_is_taken_held_handed_over_and_taken_again() {
    let dir = tempfile::tempdir().unwrap();
    let (a, mut events_a) = Lease::start(options(dir.path(), "a", 300)).unwrap();
    let first = next(&mut events_a).await;
    assert_eq!(first, LeaseEvent::Promoted { epoch: 41, why: "first to start".to_owned() });
    assert_eq!(a.fence().check(), Ok(41));
    let (b, mut events_b) = Lease::start(options(dir.path(), "b", 300)).unwrap();
    let LeaseEvent::Following { leader: Some(leader) } = next(&mut events_b).await else { panic!("b does not follow") };
    assert_eq!((leader.instance.as_str(), leader.epoch), ("a", 41));
    assert_eq!(b.view().role, Role::Follower);
    assert_eq!(b.view().epoch, 41);
    assert!(b.fence().check().is_err());
    // Longer than the fence is open for: only renewals keep it so.
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(a.fence().check(), Ok(41));
    assert!(a.view().renewals >= 3);

    a.release("upgrade").await.unwrap();
    a.release("again").await.unwrap();
    assert!(a.fence().check().is_err());
    let second = next(&mut events_b).await;
    assert_eq!(second, LeaseEvent::Promoted { epoch: 42, why: "leader a handed over: upgrade".to_owned() });
    a.rejoin().unwrap();
    assert!(matches!(next(&mut events_a).await, LeaseEvent::Following { .. }));
    b.shutdown().await.unwrap();
    loop {
        match next(&mut events_a).await {
            LeaseEvent::Promoted { epoch, why } => {
                assert_eq!((epoch, why.as_str()), (43, "leader b handed over: shut down"));
                break;
            }
            LeaseEvent::Following { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn one_id_runs_once() {
    let dir = tempfile::tempdir().unwrap();
    let (a, _events) = Lease::start(options(dir.path(), "a", 300)).unwrap();
    assert!(matches!(Lease::start(options(dir.path(), "a", 300)), Err(LeaseError::AlreadyRunning { .. })));
    a.shutdown().await.unwrap();
    Lease::start(options(dir.path(), "a", 300)).unwrap();
}

#[test]
fn bad_options_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for id in ["", "a/b", "..", "ü", &"x".repeat(33)] {
        assert!(matches!(Lease::start(options(dir.path(), id, 300)), Err(LeaseError::Instance { .. })), "{id}");
    }
    for ttl in [0, 99, 60_001] {
        assert!(matches!(Lease::start(options(dir.path(), "a", ttl)), Err(LeaseError::Ttl { .. })));
    }
}

#[tokio::test]
async fn a_leader_that_cannot_renew_stops_at_two_thirds_and_keeps_the_lock() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("run")).unwrap();
    let (fails, panics) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let inner = FileStore::new(dir.path().join("run/lease"));
    let store = Failing { inner, fails: Arc::clone(&fails), panics };
    let (a, mut events) = Lease::start_with(options(dir.path(), "a", 600), Box::new(store)).unwrap();
    assert!(matches!(next(&mut events).await, LeaseEvent::Promoted { .. }));
    fails.store(true, Ordering::Relaxed);
    let failing = Boot::now();
    let LeaseEvent::Fenced { why } = next(&mut events).await else { panic!("not fenced") };
    let took = Boot::now().since(failing);
    assert!(took <= Duration::from_millis(400 + 300), "{took:?}");
    assert!(why.contains("could not renew"), "{why}");
    assert!(a.fence().check().is_err());
    // Renewals work again, and it stays stopped; nobody else leads while the process lives.
    fails.store(false, Ordering::Relaxed);
    let (b, mut events_b) = Lease::start(options(dir.path(), "b", 600)).unwrap();
    loop {
        match next(&mut events_b).await {
            // The follower will not end itself: the leader is this very process.
            LeaseEvent::CannotFence { why } => break assert!(why.contains("this very process"), "{why}"),
            LeaseEvent::Following { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(a.fence().check().is_err());
    assert_eq!(a.view().fencings, 1);
    assert_eq!(b.view().role, Role::Follower);
    assert!(b.view().trouble.is_some());
    a.release("stopped").await.unwrap();
    assert!(matches!(next(&mut events_b).await, LeaseEvent::Promoted { epoch: 42, .. }));
}

#[tokio::test]
async fn a_dead_thread_is_told_and_closes_the_fence() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("run")).unwrap();
    let (fails, panics) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let inner = FileStore::new(dir.path().join("run/lease"));
    let store = Failing { inner, fails, panics: Arc::clone(&panics) };
    let (a, mut events) = Lease::start_with(options(dir.path(), "a", 300), Box::new(store)).unwrap();
    assert!(matches!(next(&mut events).await, LeaseEvent::Promoted { .. }));
    panics.store(true, Ordering::Relaxed);
    assert!(matches!(next(&mut events).await, LeaseEvent::Lost { .. }));
    assert!(a.fence().check().is_err());
    assert!(!a.view().alive);
    assert!(matches!(a.release("too late").await, Err(LeaseError::NotReleased)));
}

#[tokio::test]
async fn epochs_rise_over_boots_and_without_a_disk() {
    let dir = tempfile::tempdir().unwrap();
    for expected in [41, 1_042] {
        let (a, mut events) = Lease::start(options(dir.path(), "a", 300)).unwrap();
        assert!(matches!(next(&mut events).await, LeaseEvent::Promoted { epoch, .. } if epoch == expected));
        let ceiling = || std::fs::read_to_string(dir.path().join("state/epoch")).unwrap_or_default();
        let wanted = format!("{} ", expected + 1_000);
        timeout(Duration::from_secs(10), async {
            while !ceiling().starts_with(&wanted) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .unwrap();
        a.shutdown().await.unwrap();
        // What a boot does to the run folder.
        std::fs::remove_file(dir.path().join("run/lease")).unwrap();
    }
    // Corrupt, and not to be written: it leads, tells, and is above the journal's epoch.
    std::fs::remove_file(dir.path().join("state/epoch")).unwrap();
    std::fs::create_dir(dir.path().join("state/epoch")).unwrap();
    let (_a, mut events) = Lease::start(options(dir.path(), "a", 300)).unwrap();
    assert!(matches!(next(&mut events).await, LeaseEvent::EpochNotReserved { .. }));
    assert!(matches!(next(&mut events).await, LeaseEvent::Promoted { epoch: 41, .. }));
    assert!(matches!(next(&mut events).await, LeaseEvent::EpochNotReserved { .. }));
}
