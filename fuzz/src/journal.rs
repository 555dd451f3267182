//! The journal, the checkpoint and the lease's record: whatever lies on disk, no panic, and every byte accounted for.

use std::{
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use sensor_poll::{
    journal::{
        Record, RecoverOptions,
        checkpoint::Checkpoint,
        reader::{Item, Start, walk},
        recover,
        scan::{Found, Place, Scanner},
        segment::{self, SegmentId},
    },
    lease,
};

/// The checksum's key, eight digits, quote and brace.
const TAIL: usize = 18;

/// A line, as it is and with a checksum that is right.
pub fn line(data: &[u8]) {
    parse(data);
    parse(&sealed(data));
}

fn parse(line: &[u8]) {
    let Ok(record) = Record::parse(line) else { return };
    assert_eq!(record.line, line);
    let (content, end) = record.bare();
    assert!(line.starts_with(content) && end == b"}");
    assert!(record.point_key().is_none_or(|key| key.starts_with(b"\"station\":\"") && key.ends_with(b"\"")));
    assert!(record.seq.is_some() || record.kind == "ack");
    let _ = record.station();
}

/// The content of a line with the checksum that belongs to it. An old checksum goes.
fn sealed(content: &[u8]) -> Vec<u8> {
    let content = content.strip_suffix(b"\n").unwrap_or(content);
    let old = content.len().checked_sub(TAIL).filter(|at| content[*at..].starts_with(b",\"crc\":\""));
    let content = &content[..old.unwrap_or(content.len())];
    let crc = crc32c::crc32c(content);
    [content, format!(",\"crc\":\"{crc:08x}\"}}").as_bytes()].concat()
}

/// Byte 0 says what is done to the rest: lines sealed anew or not, a checkpoint or not, two segments or one. Then a scan
/// finds every byte once, recovery mends, and a second recovery finds nothing more to mend.
pub fn recovery(data: &[u8]) {
    let [how, file @ ..] = data else { return };
    let dir = tempfile::tempdir().expect("a temporary folder");
    let state = dir.path();
    let (checkpoint, file) = if how & 2 == 0 {
        (None, file)
    } else {
        let end = file.iter().position(|b| *b == b'\n').map_or(file.len(), |at| at + 1);
        (Some(sealed(&file[..end])), &file[end..])
    };
    let lines = |bytes: &[u8]| -> Vec<u8> {
        let each = bytes.split_inclusive(|b| *b == b'\n');
        if how & 1 == 0 {
            bytes.to_vec()
        } else {
            each.flat_map(|line| [sealed(line), b"\n".to_vec()].concat()).collect()
        }
    };
    let cut = if how & 4 == 0 { file.len() } else { file.len() / 2 };
    put(&state.join("journal_id"), b"ab\n");
    put(&segment(state, 1, 1), &lines(&file[..cut]));
    if cut < file.len() {
        put(&segment(state, 3, 2), &lines(&file[cut..]));
    }
    if let Some(checkpoint) = checkpoint {
        put(&state.join("checkpoint.json"), &checkpoint);
    }
    for entry in fs::read_dir(state.join("journal")).expect("it was made").flatten() {
        scan(&entry.path());
    }
    assert_recovery_settles(state);
}

fn segment(state: &Path, first_seq: u64, epoch: u64) -> PathBuf {
    segment::folder(state).join(SegmentId { first_seq, epoch, attempt: 0 }.to_string())
}

fn put(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder can be made");
    fs::write(path, bytes).expect("a file can be written");
}

/// What is found covers the file, in order and without a gap.
fn scan(path: &Path) {
    let len = fs::metadata(path).expect("it is there").len();
    let mut scanner = Scanner::open(path, Place { line: 1, offset: 0 }).expect("it opens");
    let mut at = 0;
    while let Some(found) = scanner.find().expect("it reads") {
        let (place, end) = match found {
            Found::Record { record, place, newline } => {
                (place, place.offset + record.line.len() as u64 + u64::from(newline))
            }
            Found::Damage { place, end, .. } => (place, end),
        };
        assert_eq!(place.offset, at, "no byte twice and none left out");
        at = end;
    }
    assert_eq!((at, scanner.place().offset), (len, len));
}

fn assert_recovery_settles(state: &Path) {
    let options = RecoverOptions { last_values: 100 };
    let first = recover(state, options).expect("damage is no error");
    assert!(first.last_seq < u64::MAX && first.epoch < u64::MAX, "there is always a next one");
    let second = recover(state, options).expect("damage is no error");
    assert_eq!(second.report.repairs, 0, "{:?} after {:?}", second.report, first.report);
    assert_eq!((first.last_seq, first.epoch), (second.last_seq, second.epoch));
    // A checkpoint that did not fit because of a torn tail may fit once that is cut.
    if first.report.checkpoint == second.report.checkpoint {
        assert_eq!(first.sources, second.sources);
    }
    assert_eq!(first.segments.len(), second.segments.len());
    let mut last = None;
    walk(state, Start::Beginning, &mut |item| {
        if let Item::Record { record, .. } = item
            && let Some(seq) = record.seq
        {
            assert!(last < Some(seq), "numbers rise");
            last = Some(seq);
        }
        ControlFlow::Continue(())
    })
    .expect("the folder can be listed");
}

/// A checkpoint, as it is and with a checksum that is right.
pub fn checkpoint(data: &[u8]) {
    for bytes in [data.to_vec(), sealed(data)] {
        let Ok(read) = Checkpoint::decode(&bytes) else { continue };
        let again = Checkpoint::decode(&read.encode()).expect("what was read can be written");
        assert_eq!(format!("{again:?}"), format!("{read:?}"));
    }
}

/// A lease's record, as it is and with a checksum that is right.
pub fn lease(data: &[u8]) {
    const CRC_LINE: usize = 19;
    let mut bytes = data.to_vec();
    for _ in 0..2 {
        if let Ok(record) = lease::Record::decode(&bytes) {
            let again = lease::Record::decode(&record.encode()).expect("what was read can be written");
            assert_eq!((again.epoch, again.process, again.ttl), (record.epoch, record.process, record.ttl));
        }
        let Some(end) = bytes.len().checked_sub(CRC_LINE) else { return };
        let crc = crc32c::crc32c(&bytes[..end]);
        bytes.splice(end.., format!("crc       {crc:08x}\n").bytes());
    }
}
