use std::{
    path::Path,
    sync::{
        atomic::AtomicBool,
        mpsc::{Receiver, channel},
    },
    time::Instant,
};

use nix::libc::ENOSPC;
use serde_json::json;

use super::*;
use crate::journal::{
    Entry, RecoverOptions, recover,
    recovery::CheckpointUse,
    testing::{Content, FaultyDisk, Kind, batch},
};

const DEADLINE: Duration = Duration::from_secs(20);

struct Rig {
    handle: WriterHandle,
    notices: Receiver<Notice>,
    leads: Arc<AtomicBool>,
}

fn rig(dir: &Path, options: WriterOptions, disk: FaultyDisk) -> Rig {
    let recovered = recover(dir, RecoverOptions::default()).unwrap();
    let (send, notices) = channel();
    let leads = Arc::new(AtomicBool::new(true));
    let fence = Arc::clone(&leads);
    let hooks = Hooks {
        fence: Arc::new(move || fence.load(Ordering::Relaxed)),
        notice: Box::new(move |notice| drop(send.send(notice))),
        checkpoint: Box::new(|| CheckpointData { last: vec![], extra: json!({ "budget": 3 }) }),
    };
    Rig { handle: start_with(options, &recovered, hooks, Box::new(disk)).unwrap(), notices, leads }
}

impl Rig {
    fn next(&self) -> Notice {
        self.notices.recv_timeout(DEADLINE).expect("a notice comes")
    }

    /// The number up to which source 7 is acknowledged, once it is at least `up_to`.
    fn acked(&self, up_to: u64) -> u64 {
        loop {
            if let Notice::Committed(commit) = self.next()
                && let Some((_, acked)) = commit.acks.iter().find(|(source, acked)| *source == 7 && *acked >= up_to)
            {
                return *acked;
            }
        }
    }
}

fn slow() -> WriterOptions {
    WriterOptions { commit_interval: Duration::from_secs(3600), ..WriterOptions::default() }
}

#[test]
fn the_first_readings_are_committed_at_once_and_later_ones_as_a_group() {
    let dir = tempfile::tempdir().unwrap();
    let options = WriterOptions { commit_interval: Duration::from_millis(30), ..WriterOptions::default() };
    let rig = rig(dir.path(), options, FaultyDisk::healthy());
    rig.handle.append(batch(0, 3)).unwrap();
    assert_eq!(rig.acked(3), 3);
    for n in 3..20 {
        rig.handle.append(batch(n, n + 1)).unwrap();
    }
    assert_eq!(rig.acked(20), 20);
    let stats = rig.handle.stats();
    assert!(stats.commits < 10 && stats.records == 20 && stats.pending_bytes == 0, "{stats:?}");
    assert!(Content::read(dir.path()).values.iter().copied().eq(0..20));
}

#[test]
fn a_full_group_and_an_urgent_batch_do_not_wait() {
    let dir = tempfile::tempdir().unwrap();
    let rig = rig(dir.path(), WriterOptions { commit_bytes: 4096, ..slow() }, FaultyDisk::healthy());
    rig.handle.append(batch(0, 1)).unwrap();
    rig.acked(1);
    rig.handle.append(batch(1, 100)).unwrap();
    rig.acked(100);
    rig.handle.append(batch(100, 101)).unwrap();
    let fields = serde_json::Map::new();
    let write = Entry::Other { kind: "write", ts: Wall::now(), fields };
    rig.handle.append(Batch { urgent: true, ..Batch::own(write) }).unwrap();
    rig.acked(101);
}

#[test]
fn closing_commits_what_waits_and_writes_a_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let rig = rig(dir.path(), slow(), FaultyDisk::healthy());
    for n in 0..50 {
        rig.handle.append(batch(n, n + 1)).unwrap();
    }
    let report = rig.handle.close(DEADLINE);
    assert_eq!(report, CloseReport { in_time: true, last_seq: 50, unwritten: 0, trouble: None, checkpointed: true });
    assert_eq!(rig.handle.append(batch(50, 51)).unwrap_err().why, RejectedWhy::Closed);
    let recovered = recover(dir.path(), RecoverOptions::default()).unwrap();
    assert_eq!((recovered.report.checkpoint, recovered.report.records), (CheckpointUse::Used, 0));
    assert_eq!(recovered.caller.extra, json!({ "budget": 3 }));
    assert_eq!(recovered.sources.get(7).map(|p| (p.up_to, p.is_whole())), Some((50, true)));
}

#[test]
fn an_idle_leader_leaves_no_file_and_each_leader_has_its_own_segment() {
    let dir = tempfile::tempdir().unwrap();
    let segments = || std::fs::read_dir(dir.path().join("journal")).unwrap().count();
    assert!(rig(dir.path(), slow(), FaultyDisk::healthy()).handle.close(DEADLINE).in_time);
    assert_eq!(segments(), 0);
    for epoch in 1..=3 {
        let rig = rig(dir.path(), WriterOptions { epoch, ..slow() }, FaultyDisk::healthy());
        rig.handle.append(batch(epoch - 1, epoch)).unwrap();
        assert_eq!(rig.handle.close(DEADLINE).last_seq, epoch);
    }
    assert_eq!(segments(), 3);
    let content = Content::read(dir.path());
    assert!(content.has_no_gap() && content.faults.is_empty());
}

/// Takes something away from under a writer that has committed ten readings in each of some segments, goes on, and holds
/// what comes after to: told once, nothing of it lost, numbers going on.
fn removed_beneath(what: &str, take_away: impl Fn(&Path), lost: u64) {
    let outer = tempfile::tempdir().unwrap();
    let dir = outer.path().join("state");
    // Two commits make a segment of at least 64 KiB full.
    let options = WriterOptions { segment_bytes: 64 * 1024, ..WriterOptions::default() };
    let rig = rig(&dir, options, FaultyDisk::healthy());
    let journal_id = std::fs::read_to_string(dir.join("journal_id")).unwrap();
    for n in 0..3 {
        rig.handle.append(batch(n * 300, (n + 1) * 300)).unwrap();
        rig.acked((n + 1) * 300);
    }
    assert_eq!(std::fs::read_dir(dir.join("journal")).unwrap().count(), 3);
    take_away(&dir);
    rig.handle.append(batch(900, 910)).unwrap();
    let Notice::Trouble(why) = rig.next() else { panic!("{what}: trouble is told") };
    assert!(why.contains("was removed or replaced"), "{what}: {why}");
    assert_eq!(rig.next(), Notice::Recovered, "{what}");
    assert_eq!(rig.acked(910), 910, "{what}");
    let stats = rig.handle.stats();
    assert_eq!((stats.trouble, stats.removed, stats.last_seq), (None, lost, 911), "{what}");
    rig.handle.append(batch(910, 920)).unwrap();
    assert_eq!(rig.acked(920), 920);
    assert!(rig.handle.close(DEADLINE).checkpointed);
    let content = Content::read(&dir);
    let there: Vec<u64> = content.values.iter().copied().filter(|v| *v >= 900).collect();
    assert!(there.iter().copied().eq(900..920), "{what}: {there:?}");
    assert_eq!(content.events, ["records_lost"], "{what}");
    let recovered = recover(&dir, RecoverOptions::default()).unwrap();
    assert_eq!((recovered.last_seq, recovered.report.checkpoint), (921, CheckpointUse::Used), "{what}");
    assert_eq!(std::fs::read_to_string(dir.join("journal_id")).unwrap(), journal_id, "{what}");
}

fn newest(dir: &Path) -> std::path::PathBuf {
    let names = std::fs::read_dir(dir.join("journal")).unwrap().map(|e| e.unwrap().path());
    names.max().unwrap()
}

#[test]
fn files_that_are_removed_beneath_a_writer_are_noticed_and_made_anew() {
    removed_beneath("the state folder", |dir| std::fs::remove_dir_all(dir).unwrap(), 900);
    removed_beneath("the journal's folder", |dir| std::fs::remove_dir_all(dir.join("journal")).unwrap(), 900);
    removed_beneath("the segment", |dir| std::fs::remove_file(newest(dir)).unwrap(), 300);
    let moved = |dir: &Path| std::fs::rename(dir.join("journal"), dir.join("journal.old")).unwrap();
    removed_beneath("a folder that is moved away", moved, 900);
    let replaced = |dir: &Path| {
        let copy = dir.join("copy");
        std::fs::copy(newest(dir), &copy).unwrap();
        std::fs::rename(copy, newest(dir)).unwrap();
    };
    removed_beneath("a segment that is replaced by a copy", replaced, 300);
}

#[test]
fn closing_writes_what_waits_into_a_new_segment_when_the_old_one_was_removed() {
    let dir = tempfile::tempdir().unwrap();
    let rig = rig(dir.path(), slow(), FaultyDisk::healthy());
    rig.handle.append(batch(0, 10)).unwrap();
    rig.acked(10);
    rig.handle.append(batch(10, 20)).unwrap();
    std::fs::remove_dir_all(dir.path().join("journal")).unwrap();
    let report = rig.handle.close(DEADLINE);
    assert_eq!((report.unwritten, report.trouble, report.checkpointed), (0, None, true));
    assert!(Content::read(dir.path()).values.iter().copied().eq(10..20));
}

#[test]
fn an_older_segment_that_is_removed_is_told_when_the_next_one_begins() {
    let dir = tempfile::tempdir().unwrap();
    let options = WriterOptions { segment_bytes: 64 * 1024, ..WriterOptions::default() };
    let rig = rig(dir.path(), options, FaultyDisk::healthy());
    for n in 0..5 {
        rig.handle.append(batch(n * 300, (n + 1) * 300)).unwrap();
        rig.acked((n + 1) * 300);
        if n == 1 {
            std::fs::remove_file(dir.path().join("journal").join("00000000000000000001-0000000001.jsonl")).unwrap();
        }
    }
    assert_eq!((rig.handle.stats().removed, rig.handle.stats().first_seq), (300, 301));
    assert_eq!(Content::read(dir.path()).events, ["records_lost"]);
}

#[test]
fn a_full_disk_is_told_once_and_left_behind_when_space_returns() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::healthy();
    let rig = rig(dir.path(), WriterOptions::default(), disk.clone());
    rig.handle.append(batch(0, 10)).unwrap();
    rig.acked(10);
    disk.fail_from_now_on(Kind::Short(ENOSPC));
    rig.handle.append(batch(10, 20)).unwrap();
    let Notice::Trouble(why) = rig.next() else { panic!("trouble is told") };
    assert!(why.contains("cannot write to the journal segment"), "{why}");
    assert!(rig.handle.stats().trouble.is_some());
    rig.handle.append(batch(20, 30)).unwrap();
    disk.heal();
    assert_eq!(rig.next(), Notice::Recovered);
    assert_eq!(rig.acked(30), 30);
    assert_eq!(rig.handle.stats().trouble, None);
    let content = Content::read(dir.path());
    assert!(content.values.iter().copied().eq(0..30) && content.has_no_gap() && content.only_leftovers());
}

#[test]
fn memory_is_bounded_while_the_disk_is_full_and_what_was_lost_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::healthy();
    let options = WriterOptions { memory_bytes: 200_000, ..WriterOptions::default() };
    let rig = rig(dir.path(), options, disk.clone());
    disk.fail_from_now_on(Kind::Errno(ENOSPC));
    for n in 0..10_000 {
        rig.handle.append(batch(n, n + 1)).unwrap();
        assert!(rig.handle.stats().pending_bytes <= 200_000);
    }
    disk.heal();
    // Those that were lost are acknowledged as well: no worker holds them for ever.
    assert_eq!(rig.acked(10_000), 10_000);
    let lost = rig.handle.stats().dropped_memory;
    let content = Content::read(dir.path());
    assert!(lost > 0 && content.values.len() as u64 + lost == 10_000, "{lost} lost");
    // Told with each commit that follows a loss: once, or twice when the disk was tried in between.
    assert!(!content.events.is_empty() && content.events.iter().all(|e| e == "records_lost"), "{:?}", content.events);
    assert!(content.has_no_gap() && content.values.last() == Some(&9_999));
}

#[test]
fn with_stop_polling_the_caller_is_told_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::healthy();
    let options = WriterOptions { memory_bytes: 50_000, overflow: Overflow::StopPolling, ..WriterOptions::default() };
    let rig = rig(dir.path(), options, disk.clone());
    disk.fail_from_now_on(Kind::Errno(ENOSPC));
    let mut taken = 0;
    let rejected = loop {
        match rig.handle.append(batch(taken, taken + 1)) {
            Ok(()) => taken += 1,
            Err(rejected) => break rejected,
        }
    };
    assert_eq!((rejected.why, rejected.batch.up_to), (RejectedWhy::Full, taken + 1));
    disk.heal();
    rig.acked(taken);
    assert!(Content::read(dir.path()).values.iter().copied().eq(0..taken));
}

#[test]
fn a_fenced_writer_ends_tells_it_and_touches_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::healthy();
    let rig = rig(dir.path(), WriterOptions::default(), disk.clone());
    rig.handle.append(batch(0, 1)).unwrap();
    rig.acked(1);
    rig.leads.store(false, Ordering::Relaxed);
    let steps = disk.log().len();
    rig.handle.append(batch(1, 2)).unwrap();
    assert_eq!(rig.next(), Notice::Failed(Failure::Fenced));
    assert_eq!(disk.log().len(), steps);
    assert!(!rig.handle.is_alive());
    assert_eq!(rig.handle.append(batch(2, 3)).unwrap_err().why, RejectedWhy::Closed);
    let report = rig.handle.close(DEADLINE);
    assert!(report.in_time && report.unwritten == 1 && report.trouble.is_some());
}

#[test]
fn a_panic_in_the_thread_is_a_failure_that_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let recovered = recover(dir.path(), RecoverOptions::default()).unwrap();
    let (send, notices) = channel();
    let hooks = Hooks {
        fence: Arc::new(|| true),
        notice: Box::new(move |notice| match notice {
            Notice::Committed(_) => panic!("a defect"),
            other => drop(send.send(other)),
        }),
        checkpoint: Box::new(CheckpointData::default),
    };
    let handle = start(WriterOptions::default(), &recovered, hooks).unwrap();
    handle.append(batch(0, 1)).unwrap();
    let failed = notices.recv_timeout(DEADLINE).unwrap();
    assert_eq!(failed, Notice::Failed(Failure::Panicked("a defect".into())));
    assert!(!handle.is_alive());
}

#[test]
fn closing_on_a_dead_disk_reports_what_could_not_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::healthy();
    let rig = rig(dir.path(), slow(), disk.clone());
    disk.fail_from_now_on(Kind::Errno(ENOSPC));
    rig.handle.append(batch(0, 5)).unwrap();
    let began = Instant::now();
    let report = rig.handle.close(DEADLINE);
    assert!(began.elapsed() < DEADLINE);
    assert_eq!((report.in_time, report.unwritten, report.last_seq), (true, 5, 0));
    assert!(report.trouble.is_some());
}

#[test]
fn a_subscriber_gets_committed_lines() {
    let dir = tempfile::tempdir().unwrap();
    let rig = rig(dir.path(), WriterOptions::default(), FaultyDisk::healthy());
    let mut subscription = rig.handle.subscribe(1 << 20);
    rig.handle.append(batch(0, 3)).unwrap();
    rig.acked(3);
    let (lost, chunk) = subscription.try_next().unwrap();
    assert_eq!((lost, chunk.first_seq, chunk.last_seq), (0, 1, 3));
    let on_disk = std::fs::read_dir(dir.path().join("journal")).unwrap().next().unwrap().unwrap();
    assert_eq!(std::fs::read(on_disk.path()).unwrap(), chunk.lines);
}

#[test]
fn the_last_handle_that_goes_ends_the_writer_after_what_waits() {
    let dir = tempfile::tempdir().unwrap();
    let Rig { handle, notices, .. } = rig(dir.path(), slow(), FaultyDisk::healthy());
    handle.append(batch(0, 2)).unwrap();
    drop(handle);
    // The thread owns the sender: the channel ends with it.
    while notices.recv_timeout(DEADLINE).is_ok() {}
    assert_eq!(Content::read(dir.path()).values, [0, 1]);
}

#[test]
fn a_journal_full_of_unsent_records_goes_on_when_the_uplink_has_taken_them() {
    let dir = tempfile::tempdir().unwrap();
    let options = WriterOptions { max_bytes: 1 << 20, overflow: Overflow::StopPolling, ..WriterOptions::default() };
    let rig = rig(dir.path(), options, FaultyDisk::healthy());
    rig.handle.set_retain_from(Some(1));
    for n in 0..100 {
        rig.handle.append(batch(n * 100, n * 100 + 100)).unwrap();
    }
    let why = loop {
        if let Notice::Trouble(why) = rig.next() {
            break why;
        }
    };
    assert!(why.contains("no uplink has taken"), "{why}");
    assert!(rig.handle.stats().bytes <= 1 << 20);
    rig.handle.set_retain_from(Some(9_000));
    assert_eq!(rig.acked(10_000), 10_000);
    let stats = rig.handle.stats();
    assert!(stats.bytes <= 1 << 20 && stats.first_seq > 1 && stats.first_seq < 9_000, "{stats:?}");
    assert_eq!(stats.dropped_unsent, 0);
}
