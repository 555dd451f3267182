use std::{collections::VecDeque, path::Path, time::Duration};

use nix::libc::{EDQUOT, EIO, ENOSPC, EROFS};

use super::*;
use crate::{
    clock::Boot,
    journal::{
        Batch, Overflow, RecoverOptions, Recovered,
        queue::Pending,
        recovery::recover_with,
        segment::folder,
        testing::{Content, FaultyDisk, Kind, batch},
    },
};

const NOW: Wall = Wall(1_796_040_000_123_456);

fn bounds() -> Bounds {
    Bounds { max_bytes: 1 << 30, max_age: Duration::from_secs(86_400), overflow: Overflow::DropOldest }
}

fn core(dir: &Path, epoch: u64, recovered: &Recovered, bounds: Bounds, disk: FaultyDisk) -> Core {
    let options = CoreOptions {
        folder: folder(dir),
        fence: Arc::new(|| true),
        epoch,
        // A group of two or three lines, a segment of a few groups.
        commit_bytes: 400,
        segment_bytes: 1500,
        bounds,
        sealed: recovered.segments.clone(),
        next_seq: recovered.last_seq + 1,
        sources: recovered.sources.clone(),
    };
    Core::new(options, Box::new(disk))
}

/// Feeds batches through a queue, one try for each, then tries until all is written or the tries are used up. Returns the
/// highest acknowledged number.
fn feed(core: &mut Core, batches: Vec<Batch>, tries: usize) -> u64 {
    let mut pending = Pending::new(1 << 20, Overflow::DropOldest);
    let mut acked = 0;
    let mut attempt = |pending: &mut Pending| {
        let mut taken: VecDeque<_> = pending.take(400);
        if let Ok(done) = core.commit(&mut taken, None, NOW) {
            acked = done.acks.get(&7).copied().unwrap_or(acked);
            pending.release(&done.finished);
        }
        pending.put_back(taken);
    };
    for batch in batches {
        pending.push(batch, Boot::default()).unwrap();
        attempt(&mut pending);
    }
    for _ in 0..tries {
        attempt(&mut pending);
    }
    core.seal();
    acked
}

fn recover(dir: &Path) -> Recovered {
    recover_with(dir, RecoverOptions::default(), &mut FaultyDisk::healthy()).unwrap()
}

/// 30 readings in batches of 1 to 5.
fn batches() -> Vec<Batch> {
    let ends = [1, 4, 6, 11, 12, 15, 20, 22, 25, 30];
    let mut from = 0;
    ends.into_iter().map(|to| batch(std::mem::replace(&mut from, to), to)).collect()
}

fn kinds() -> [Kind; 5] {
    [Kind::Errno(ENOSPC), Kind::Errno(EROFS), Kind::Short(EDQUOT), Kind::Short(EIO), Kind::LosesPages]
}

#[test]
fn a_disk_that_fails_at_any_step_for_any_while_loses_and_doubles_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let healthy = FaultyDisk::healthy();
    let mut plain = core(dir.path(), 1, &Recovered::default(), bounds(), healthy.clone());
    assert_eq!(feed(&mut plain, batches(), 20), 30);
    let steps = healthy.log().len();
    assert!(steps > 30, "{steps}");
    for kind in kinds() {
        for first in 0..steps {
            for length in [1, 3] {
                let case = format!("{kind:?} from step {first} for {length}");
                let dir = tempfile::tempdir().unwrap();
                let disk = FaultyDisk::new(first..first + length, kind);
                let mut core = core(dir.path(), 1, &Recovered::default(), bounds(), disk);
                assert_eq!(feed(&mut core, batches(), 40), 30, "{case}");
                let content = Content::read(dir.path());
                assert!(content.values.iter().copied().eq(0..30), "{case}: {content:?}");
                assert!(content.has_no_gap() && content.only_leftovers(), "{case}: {content:?}");
                let recovered = recover(dir.path());
                assert_eq!(recovered.last_seq, 30, "{case}: {:?}", recovered.report);
                assert!(Content::read(dir.path()).values.iter().copied().eq(0..30), "{case}: after recovery");
            }
        }
    }
}

#[test]
fn after_a_death_at_any_step_the_next_leader_knows_what_is_committed_to_the_record() {
    for kind in [Kind::Errno(EIO), Kind::Short(EIO)] {
        for death in 0..60 {
            let case = format!("{kind:?}, dead from step {death} on");
            let dir = tempfile::tempdir().unwrap();
            let disk = FaultyDisk::new(death..usize::MAX, kind);
            let acked = feed(&mut core(dir.path(), 1, &Recovered::default(), bounds(), disk), batches(), 20);
            let recovered = recover(dir.path());
            let there = recovered.last_seq;
            assert!(there >= acked, "{case}: acknowledged {acked}, there {there}");
            // The batches' numbers are those of their readings, so the position names the next reading.
            let next = recovered.sources.get(7).map_or(0, |p| p.up_to - p.of + p.records);
            assert_eq!(next, there, "{case}: {:?}", recovered.sources);
            let rest = if next < 30 { vec![batch(next, 30)] } else { vec![] };
            let mut core = core(dir.path(), 2, &recovered, bounds(), FaultyDisk::healthy());
            feed(&mut core, rest, 20);
            let content = Content::read(dir.path());
            assert!(content.values.iter().copied().eq(0..30), "{case}: {content:?}");
            assert!(
                content.has_no_gap() && content.faults.is_empty() && content.tails.is_empty(),
                "{case}: {content:?}"
            );
        }
    }
}

#[test]
fn a_leader_that_is_fenced_writes_nothing_more() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::healthy();
    let mut core = core(dir.path(), 1, &Recovered::default(), bounds(), disk.clone());
    core.fence = Arc::new(|| false);
    assert_eq!(feed(&mut core, batches(), 1), 0);
    assert!(disk.log().is_empty());
}

#[test]
fn unsent_records_that_had_to_go_are_told_in_the_very_commit() {
    let dir = tempfile::tempdir().unwrap();
    let bounds = Bounds { max_bytes: 4000, ..bounds() };
    let mut core = core(dir.path(), 1, &Recovered::default(), bounds, FaultyDisk::healthy());
    let mut pending = Pending::new(1 << 20, Overflow::DropOldest);
    for n in 0..200 {
        pending.push(batch(n, n + 1), Boot::default()).unwrap();
        let mut taken = pending.take(400);
        let done = core.commit(&mut taken, Some(10), NOW).unwrap();
        pending.release(&done.finished);
        let on_disk: u64 =
            std::fs::read_dir(folder(dir.path())).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
        assert!(on_disk <= 4000 + 400, "{on_disk}");
        assert_eq!(on_disk, core.bytes());
    }
    let content = Content::read(dir.path());
    assert!(content.faults.is_empty() && content.events.iter().any(|e| e == "records_lost"), "{content:?}");
    assert_eq!(content.seqs[0], core.first_seq());
    assert_eq!(core.dropped_unsent, content.seqs[0] - 10);
}

#[test]
fn with_stop_polling_unsent_records_stay_and_nothing_more_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let bounds = Bounds { max_bytes: 4000, overflow: Overflow::StopPolling, ..bounds() };
    let mut core = core(dir.path(), 1, &Recovered::default(), bounds, FaultyDisk::healthy());
    let mut pending = Pending::new(1 << 20, Overflow::StopPolling);
    for n in 0..40 {
        pending.push(batch(n, n + 1), Boot::default()).unwrap();
    }
    let mut stopped = false;
    for _ in 0..40 {
        let mut taken = pending.take(400);
        match core.commit(&mut taken, Some(1), NOW) {
            Ok(done) => pending.release(&done.finished),
            Err(CommitError::FullOfUnsent) => stopped = true,
            Err(other) => panic!("{other}"),
        }
        pending.put_back(taken);
    }
    assert!(stopped && pending.records() > 0);
    assert_eq!(Content::read(dir.path()).seqs[0], 1);
    while pending.records() > 0 {
        let mut taken = pending.take(400);
        let done = core.commit(&mut taken, None, NOW).unwrap();
        pending.release(&done.finished);
        pending.put_back(taken);
    }
    assert_eq!(core.last_seq(), 40);
}
