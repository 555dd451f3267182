use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::FileExt,
};

use nix::libc::EROFS;
use serde_json::json;

use super::*;
use crate::journal::{
    disk::replace_whole,
    record::Encoder,
    segment::SegmentId,
    testing::{Content, FaultyDisk, Kind, batch},
};

/// Readings with the values `from..to`, numbered from `from + 1`, as lines.
fn lines(epoch: u64, from: u64, to: u64) -> Vec<u8> {
    let mut out = Vec::new();
    Encoder::new(epoch).lines(&mut out, &batch(from, to).entries[0], 0, from + 1, None, usize::MAX);
    out
}

fn name(first_seq: u64, epoch: u64) -> String {
    SegmentId { first_seq, epoch, attempt: 0 }.to_string()
}

struct Journal(tempfile::TempDir);

impl Journal {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("journal")).unwrap();
        Self(dir)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join("journal").join(name)
    }

    fn with(self, first_seq: u64, epoch: u64, content: &[u8]) -> Self {
        fs::write(self.file(&name(first_seq, epoch)), content).unwrap();
        self
    }

    fn recover(&self) -> Recovered {
        recover(self.0.path(), RecoverOptions::default()).unwrap()
    }

    fn content(&self) -> Content {
        Content::read(self.0.path())
    }
}

#[test]
fn a_new_journal_has_an_identity_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let first = recover(dir.path(), RecoverOptions::default()).unwrap();
    assert_eq!((first.first_seq, first.last_seq, first.epoch), (0, 0, 0));
    assert!(first.report.is_clean() && first.journal_id.as_ref().is_some_and(|id| id.len() == 32));
    assert_eq!(recover(dir.path(), RecoverOptions::default()).unwrap().journal_id, first.journal_id);
}

#[test]
fn each_torn_tail_is_cut_and_told_with_its_range() {
    let whole = lines(1, 0, 10);
    let last = lines(1, 10, 11);
    let half_character = last.iter().position(|b| *b == 0xc2).unwrap() + 1;
    let tails: [&[u8]; 5] = [&last[..40], &last[..half_character], &[0; 4096], b"\n\n", &last[..last.len() - 2]];
    for tail in tails {
        let journal = Journal::new().with(1, 1, &[&whole[..], tail].concat());
        let recovered = journal.recover();
        assert_eq!((recovered.first_seq, recovered.last_seq), (1, 10));
        let report = &recovered.report;
        assert_eq!((report.repairs, report.cut_bytes, report.fault_count), (1, tail.len() as u64, 1), "{report:?}");
        let fault = &report.faults[0];
        assert_eq!(fault.place, Place { line: 11, offset: whole.len() as u64 });
        assert_eq!(fault.what, What::Cut { end: (whole.len() + tail.len()) as u64 });
        assert_eq!(fs::read(journal.file(&name(1, 1))).unwrap(), whole);
        assert!(journal.recover().report.is_clean());
    }
}

#[test]
fn a_last_record_that_lost_its_newline_alone_is_kept() {
    let whole = lines(1, 0, 10);
    for end in [&b""[..], b"\x0b", &[0; 4096]] {
        let journal = Journal::new().with(1, 1, &[&whole[..whole.len() - 1], end].concat());
        let recovered = journal.recover();
        assert_eq!((recovered.last_seq, recovered.report.repairs), (10, 1));
        assert_eq!(fs::read(journal.file(&name(1, 1))).unwrap(), whole);
    }
}

#[test]
fn a_flipped_byte_in_the_middle_costs_that_record_and_no_other() {
    let whole = lines(1, 0, 10);
    let third = memchr::memchr_iter(b'\n', &whole).nth(1).unwrap() + 1;
    let fourth = memchr::memchr_iter(b'\n', &whole).nth(2).unwrap() + 1;
    for at in [third, third + 30, fourth - 3] {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x20;
        let journal = Journal::new().with(1, 1, &flipped);
        let recovered = journal.recover();
        let report = &recovered.report;
        assert_eq!((recovered.last_seq, report.damaged, report.missing, report.repairs), (10, 1, 1, 0), "{report:?}");
        assert_eq!(report.faults[0].place, Place { line: 3, offset: third as u64 });
        assert!(report.faults[0].to_string().starts_with(&format!("journal/{}: line 3, byte {third}: ", name(1, 1))));
        assert_eq!(report.faults[1].what, What::Hole { from: 3, to: 3 });
        assert_eq!(journal.content().values, [0, 1, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(fs::read(journal.file(&name(1, 1))).unwrap(), flipped);
    }
}

#[test]
fn a_flipped_newline_or_nul_bytes_in_the_middle_cost_no_whole_record() {
    let whole = lines(1, 0, 10);
    let newline = memchr::memchr_iter(b'\n', &whole).nth(4).unwrap();
    let mut flipped = whole.clone();
    flipped[newline] = 0x0b;
    let journal = Journal::new().with(1, 1, &flipped);
    assert_eq!(journal.recover().report.damaged, 1);
    assert!(journal.content().values.iter().copied().eq(0..10));
    let nul = [&whole[..=newline], &[0; 4096], &whole[newline + 1..]].concat();
    let journal = Journal::new().with(1, 1, &nul);
    assert_eq!((journal.recover().last_seq, journal.content().values.len()), (10, 10));
}

#[test]
fn empty_and_garbage_segments_go_and_are_told() {
    for garbage in [&b""[..], &[0; 4096], b"{\"seq\":", &[0xff; 100_000]] {
        let journal = Journal::new().with(1, 1, &lines(1, 0, 10)).with(11, 2, garbage);
        let recovered = journal.recover();
        assert_eq!((recovered.last_seq, recovered.epoch), (10, 1));
        assert_eq!(recovered.report.cut_bytes, garbage.len() as u64);
        assert!(!journal.file(&name(11, 2)).exists());
        assert!(recovered.report.faults.iter().any(|f| f.what == What::Removed), "{:?}", recovered.report);
        let alone = Journal::new().with(1, 1, garbage);
        assert_eq!(alone.recover().last_seq, 0);
    }
}

#[test]
fn the_tail_of_each_leader_is_repaired_not_only_the_newest() {
    let journal = Journal::new()
        .with(1, 1, &[&lines(1, 0, 5)[..], b"torn"].concat())
        .with(6, 2, &[&lines(2, 5, 8)[..], b"torn as well"].concat())
        .with(9, 3, &lines(3, 8, 9));
    let recovered = journal.recover();
    assert_eq!((recovered.last_seq, recovered.epoch, recovered.report.repairs), (9, 3, 2));
    assert!(journal.recover().report.is_clean() && journal.content().has_no_gap());
}

#[test]
fn damage_at_the_end_of_a_sealed_segment_is_kept_and_the_missing_records_are_told() {
    let mut first = lines(1, 0, 5);
    let len = first.len();
    first[len - 30] ^= 1;
    let journal = Journal::new().with(1, 1, &first).with(6, 1, &lines(1, 5, 8));
    let recovered = journal.recover();
    let whats: Vec<_> = recovered.report.faults.iter().map(|f| &f.what).collect();
    assert!(matches!(whats[..], [What::Damaged { .. }, What::Hole { from: 5, to: 5 }]), "{whats:?}");
    assert_eq!(fs::read(journal.file(&name(1, 1))).unwrap(), first);
}

#[test]
fn holes_duplicates_and_foreign_files_are_told() {
    let twice = [lines(1, 0, 3), lines(1, 1, 2), lines(1, 3, 4)].concat();
    let journal = Journal::new().with(1, 1, &twice).with(8, 2, &lines(2, 7, 9));
    fs::write(journal.file("notes.txt"), "hello").unwrap();
    let recovered = journal.recover();
    let whats: Vec<_> = recovered.report.faults.iter().map(|f| f.what.clone()).collect();
    assert_eq!(whats, [What::Foreign, What::Duplicate { from: 2, to: 2 }, What::Hole { from: 5, to: 7 }]);
    assert_eq!(journal.content().values, [0, 1, 2, 3, 7, 8]);
    assert!(journal.file("notes.txt").exists());
}

#[test]
fn what_a_later_segment_holds_again_counts_there() {
    let journal = Journal::new().with(1, 1, &lines(1, 0, 6)).with(4, 1, &lines(1, 3, 8));
    let recovered = journal.recover();
    assert_eq!(recovered.last_seq, 8);
    assert_eq!(recovered.report.faults[0].what, What::Superseded { from: 4, to: 6 });
    assert!(journal.content().values.iter().copied().eq(0..8));
}

#[test]
fn a_segment_of_garbage_does_not_hide_the_records_before_it() {
    let journal = Journal::new().with(1, 1, &lines(1, 0, 6)).with(4, 2, &[0xff; 500]);
    assert_eq!(journal.recover().last_seq, 6);
}

fn checkpoint(journal: &Journal, seq: u64, segment: &str, offset: u64) -> Checkpoint {
    Checkpoint {
        version: crate::journal::checkpoint::VERSION,
        journal_id: journal.recover().journal_id.unwrap(),
        seq,
        epoch: 1,
        segment: segment.to_owned(),
        offset,
        line: seq + 1,
        caller: CheckpointData { last: vec![], extra: json!({ "alarms": ["a"] }) },
        ..Checkpoint::default()
    }
}

#[test]
fn with_a_checkpoint_only_the_tail_is_read() {
    let journal = Journal::new().with(1, 1, &lines(1, 0, 10)).with(11, 1, &lines(1, 10, 20));
    let offset = lines(1, 10, 15).len() as u64;
    checkpoint(&journal, 15, &name(11, 1), offset).store(&mut SystemDisk, journal.0.path()).unwrap();
    // Damage before the checkpoint is not even looked at.
    OpenOptions::new().write(true).open(journal.file(&name(1, 1))).unwrap().write_all_at(b"x", 20).unwrap();
    let recovered = journal.recover();
    assert_eq!(recovered.report.checkpoint, CheckpointUse::Used);
    assert_eq!((recovered.report.records, recovered.first_seq, recovered.last_seq), (5, 1, 20));
    assert!(recovered.report.is_clean(), "{:?}", recovered.report);
    assert_eq!(recovered.caller.extra, json!({ "alarms": ["a"] }));
    assert_eq!(recovered.caller.last.len(), 1);
    assert_eq!(recovered.caller.last[0].value, Some(json!(19)));
}

#[test]
fn newest_values_of_a_checkpoint_are_replaced_by_those_of_the_tail_and_the_rest_stay() {
    let journal = Journal::new().with(1, 1, &lines(1, 0, 10));
    let mut point = checkpoint(&journal, 5, &name(1, 1), lines(1, 0, 5).len() as u64);
    let reading = |station: &str, point: &str| {
        serde_json::from_value(json!({ "station": station, "point": point, "ts": "t", "value": 1, "quality": "good" }))
            .unwrap()
    };
    point.caller.last = vec![reading("other", "a\"b"), reading("boiler", "temperature")];
    point.store(&mut SystemDisk, journal.0.path()).unwrap();
    let last = journal.recover().caller.last;
    let values: Vec<_> = last.iter().map(|l| (l.station.as_str(), l.value.clone().unwrap())).collect();
    assert_eq!(values, [("other", json!(1)), ("boiler", json!(9))]);
}

#[test]
fn a_checkpoint_of_no_use_is_ignored_and_told() {
    let journal = Journal::new().with(1, 1, &lines(1, 0, 10));
    let path = crate::journal::checkpoint::path(journal.0.path());
    let good = checkpoint(&journal, 5, &name(1, 1), lines(1, 0, 5).len() as u64);
    let cases: [(&str, Vec<u8>); 5] = [
        ("empty", vec![]),
        ("damaged", vec![0; 4096]),
        ("another journal", Checkpoint { journal_id: "other".into(), ..good.clone() }.encode()),
        ("points past", Checkpoint { offset: 7, ..good.clone() }.encode()),
        ("points past", Checkpoint { offset: 1 << 40, ..good.clone() }.encode()),
    ];
    for (why, bytes) in cases {
        replace_whole(&mut SystemDisk, &path, &bytes).unwrap();
        let recovered = journal.recover();
        assert_eq!((recovered.last_seq, recovered.report.records), (10, 10));
        let CheckpointUse::Ignored(told) = &recovered.report.checkpoint else { panic!("{why}") };
        assert!(told.contains(why), "{told}");
        assert!(recovered.report.fields().contains_key("checkpoint_ignored"));
        assert_eq!((recovered.report.fault_count, recovered.report.repairs), (1, 0));
        let fault = recovered.report.faults[0].to_string();
        assert!(fault.starts_with("checkpoint.json: of no use: ") && fault.contains(why), "{fault}");
    }
}

#[test]
fn numbers_before_the_checkpoint_are_never_given_again() {
    let journal = Journal::new().with(1, 1, &lines(1, 0, 10));
    let point = checkpoint(&journal, 10, &name(1, 1), lines(1, 0, 10).len() as u64);
    point.store(&mut SystemDisk, journal.0.path()).unwrap();
    fs::remove_file(journal.file(&name(1, 1))).unwrap();
    let gone = journal.recover();
    assert_eq!((gone.last_seq, gone.report.checkpoint.clone()), (10, CheckpointUse::Used));
    assert_eq!((gone.report.missing, gone.report.is_clean()), (10, false), "{:?}", gone.report);
    let told = gone.report.faults[0].to_string();
    assert_eq!(told, "checkpoint.json: records 1 to 10 are missing: the checkpoint knows them");
    let journal = journal.with(1, 1, &lines(1, 0, 4));
    let recovered = journal.recover();
    assert_eq!(recovered.last_seq, 10);
    fs::write(journal.file(&name(1, 1)), &lines(1, 0, 4)[..9]).unwrap();
    let torn = journal.recover();
    assert_eq!((torn.last_seq, torn.epoch), (10, 1), "nor is an epoch");
    assert!(
        recovered.report.faults.iter().any(|f| f.what == What::Vanished { from: 5, to: 10 }),
        "{:?}",
        recovered.report
    );
}

#[test]
fn a_disk_that_refuses_repairs_is_told_and_stops_nothing() {
    let journal = Journal::new().with(1, 1, &[&lines(1, 0, 10)[..], b"torn"].concat()).with(11, 2, b"");
    let mut disk = FaultyDisk::new(0..usize::MAX, Kind::Errno(EROFS));
    let recovered = recover_with(journal.0.path(), RecoverOptions::default(), &mut disk).unwrap();
    assert_eq!((recovered.last_seq, recovered.journal_id.clone()), (10, None));
    let refused = recovered.report.faults.iter().filter(|f| matches!(f.what, What::NotRepaired { .. })).count();
    assert_eq!(refused, 4, "{:?}", recovered.report);
}

#[test]
fn the_report_is_bounded_however_much_is_wrong() {
    let mut content = Vec::new();
    for seq in 0..500 {
        content.write_all(b"damage\n").unwrap();
        content.extend(lines(1, seq * 2, seq * 2 + 1));
    }
    let recovered = Journal::new().with(1, 1, &content).recover();
    assert_eq!((recovered.report.faults.len(), recovered.report.fault_count), (RecoveryReport::MOST, 999));
    assert_eq!((recovered.report.damaged, recovered.report.missing), (500, 499));
}

#[test]
fn a_region_of_damage_is_one_fault_with_its_range_and_one_hole() {
    let whole = lines(1, 0, 110);
    let end = |n: usize| memchr::memchr_iter(b'\n', &whole).nth(n - 1).unwrap() + 1;
    let mut damaged = whole.clone();
    damaged[end(2)..end(106)].iter_mut().filter(|b| **b != b'\n').for_each(|b| *b = b'x');
    let journal = Journal::new().with(1, 1, &damaged);
    let report = journal.recover().report;
    assert_eq!((report.fault_count, report.damaged, report.missing, report.repairs), (2, 104, 104, 0), "{report:?}");
    let told = report.faults[0].to_string();
    let place = format!("journal/{}: lines 3 to 106, byte {}: 104 lines: ", name(1, 1), end(2));
    assert!(told.starts_with(&place) && told.ends_with(&format!("byte {}", end(106))), "{told}");
    // A line without an end is one as well, longer than all that the scanner holds at once.
    let endless = [&whole[..end(5)], &vec![b'x'; 3 << 20], b"\n", &whole[end(5)..]].concat();
    let report = Journal::new().with(1, 1, &endless).recover().report;
    assert_eq!((report.fault_count, report.damaged), (1, 1), "{report:?}");
    assert!(
        matches!(report.faults[0].what, What::Damaged { end, .. } if end == (self::lines(1, 0, 5).len() + (3 << 20) + 1) as u64)
    );
}

#[test]
fn a_segment_that_is_not_what_its_name_says_is_told_and_hides_nothing() {
    let whole = lines(1, 0, 20);
    // Behind all others, before them, and of another epoch.
    for (first_seq, epoch) in [(9999, 9), (9999, 1), (0, 1), (1, 9), (5, 1)] {
        let journal = Journal::new().with(1, 1, &whole).with(first_seq, epoch, &lines(1, 0, 10));
        let recovered = journal.recover();
        let told = &recovered.report.faults;
        let right = SegmentId { first_seq: 1, epoch: 1, attempt: 0 };
        assert_eq!(told.iter().map(|f| f.what.clone()).collect::<Vec<_>>(), [What::Misnamed { right }], "{first_seq}");
        assert_eq!((told[0].file.clone(), recovered.last_seq), (name(first_seq, epoch), 20));
        assert_eq!(recovered.segments.iter().map(|s| s.id).collect::<Vec<_>>(), [right]);
        assert!(journal.content().values.iter().copied().eq(0..20), "{first_seq}");
        assert!(journal.file(&name(first_seq, epoch)).exists());
    }
    // One that lost its first records to damage is still what its name says.
    let first = memchr::memchr(b'\n', &whole).unwrap();
    let journal = Journal::new().with(1, 1, &[b"x", &whole[first..]].concat());
    assert!(!journal.recover().report.faults.iter().any(|f| matches!(f.what, What::Misnamed { .. })));
}

#[test]
fn doubled_records_and_records_of_another_epoch_are_told_by_the_run() {
    let journal = Journal::new().with(1, 1, &[lines(1, 0, 20), lines(1, 0, 20), lines(7, 20, 40)].concat());
    let whats: Vec<_> = journal.recover().report.faults.iter().map(|f| f.what.clone()).collect();
    assert_eq!(whats, [What::Duplicate { from: 1, to: 20 }, What::Epoch { epoch: 7 }]);
}

#[test]
fn the_newest_values_are_bounded() {
    let journal = Journal::new().with(1, 1, &lines(1, 0, 10));
    let none = recover(journal.0.path(), RecoverOptions { last_values: 0 }).unwrap();
    assert!(none.caller.last.is_empty());
}
