//! The fuzz targets on the stable compiler: over their corpus, its beginnings, and inputs made from it by a seeded
//! generator, for a bounded time. `fuzz/README.md` says how to run them for longer.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "../fuzz/src/journal.rs"]
mod journal;
#[path = "../fuzz/src/talk.rs"]
mod talk;
#[path = "../fuzz/src/text.rs"]
mod text;

use std::{
    env, fs,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// How long the generator makes inputs for one target.
const SPAN: Duration = Duration::from_millis(700);
/// Beginnings of the corpus take this long at most.
const BEGINNINGS: Duration = Duration::from_millis(700);
/// No input is longer.
const LONGEST: usize = 8192;
/// One input takes no longer, on a busy machine and without optimisation.
const SLOWEST: Duration = Duration::from_secs(5);
/// The process never holds more than this many KiB.
const MOST_MEMORY: u64 = 768 * 1024;

/// Pieces that formats are made of, and numbers at their edges.
const WORDS: &[&[u8]] = &[
    b"0",
    b"-1",
    b"65535",
    b"65536",
    b"4294967296",
    b"9007199254740991",
    b"9223372036854775807",
    b"18446744073709551614",
    b"18446744073709551615",
    b"18446744073709551616",
    b"1e999",
    b"nan",
    b"null",
    b"true",
    b"\"",
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"\n",
    b"\r\n",
    b"\0\0\0\0",
    b"\xff\xff\xff\xff",
    b"\xc3",
    b"\xe2\x80\xa8",
    b"{",
    b"}",
    b"[[",
    b"]]",
    b"{\"seq\":",
    b",\"crc\":\"",
    b",\"src\":\"1:2:3\"",
    b"\"kind\":\"reading\"",
    b"\"kind\":\"ack\"",
    b"\"id\":",
    b"\"params\":[",
    b"\"\"\"",
    b"'''",
    b" = ",
    b"#",
    b"hr:",
    b"[[stations]]\n",
    b"[[stations.points]]\n",
    b"[[connections]]\n",
];

/// xorshift64*: the same inputs in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() >> 16) as usize % end.max(1)
    }

    fn part(&mut self, len: usize) -> std::ops::Range<usize> {
        let from = self.below(len + 1);
        from..from + self.below((len - from).min(256) + 1)
    }

    fn input(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut data = corpus[self.below(corpus.len())].clone();
        for _ in 0..=self.below(6) {
            self.change(&mut data, corpus);
        }
        data.truncate(LONGEST);
        data
    }

    fn change(&mut self, data: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        let at = self.below(data.len());
        match self.below(9) {
            0 if !data.is_empty() => data[at] ^= 1 << self.below(8),
            1 if !data.is_empty() => data[at] = self.next() as u8,
            2 => drop(data.drain(self.part(data.len()))),
            3 => {
                let part = data[self.part(data.len())].to_vec();
                data.splice(at..at, part);
            }
            4 => {
                let other = &corpus[self.below(corpus.len())];
                let part = other[self.part(other.len())].to_vec();
                let over = if self.below(2) == 0 { at..at } else { self.part(data.len()) };
                data.splice(over, part);
            }
            5 => data.truncate(at),
            6 => self.number(data),
            _ => {
                let word = WORDS[self.below(WORDS.len())];
                data.splice(at..at, word.iter().copied());
            }
        }
    }

    /// Another number in place of one that is written in digits.
    fn number(&mut self, data: &mut Vec<u8>) {
        let from = self.below(data.len());
        let Some(start) = data[from..].iter().position(u8::is_ascii_digit).map(|at| from + at) else { return };
        let len = data[start..].iter().take_while(|b| b.is_ascii_digit()).count();
        let word = WORDS[self.below(12)];
        data.splice(start..start + len, word.iter().copied());
    }
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    // The generator's choices hang on the order.
    files.sort();
    assert!(files.len() >= 9, "the corpus is there");
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

/// Runs one input; a panic goes on after the input was kept.
fn check(target: &str, run: fn(&[u8]), data: &[u8]) {
    let began = Instant::now();
    let ended = catch_unwind(AssertUnwindSafe(|| run(data)));
    let took = began.elapsed();
    if ended.is_ok() && took <= SLOWEST {
        return;
    }
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{target}-{:08x}", crc32c::crc32c(data)));
    fs::write(&file, data).unwrap();
    eprintln!("{target} failed after {took:?} on {}:\n{}", file.display(), data.escape_ascii());
    match ended {
        Err(panic) => resume_unwind(panic),
        Ok(()) => panic!("{target} took {took:?}"),
    }
}

fn fuzz(target: &str, run: fn(&[u8])) {
    let corpus = corpus(target);
    corpus.iter().for_each(|data| check(target, run, data));
    let began = Instant::now();
    // The long way round the lengths, so that a short time still tries each region.
    'all: for step in [101, 13, 1] {
        for data in &corpus {
            for end in (0..data.len().min(LONGEST)).step_by(step) {
                if began.elapsed() > BEGINNINGS {
                    break 'all;
                }
                check(target, run, &data[..end]);
            }
        }
    }
    let seconds = env::var("SENSOR_POLL_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let span = seconds.map_or(SPAN, Duration::from_secs);
    let mut random = Random(u64::from(crc32c::crc32c(target.as_bytes())) | 1);
    let (began, mut inputs) = (Instant::now(), 0_u64);
    while began.elapsed() < span {
        check(target, run, &random.input(&corpus));
        inputs += 1;
    }
    println!("{target}: {inputs} inputs");
    let memory = peak_memory();
    assert!(memory < MOST_MEMORY, "{memory} KiB at the most");
}

fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

macro_rules! targets {
    ($($name:ident: $run:path,)*) => {$(
        #[test]
        fn $name() {
            fuzz(stringify!($name), $run);
        }
    )*};
}

targets! {
    journal_line: journal::line,
    journal_recovery: journal::recovery,
    checkpoint: journal::checkpoint,
    lease_record: journal::lease,
    worker_wire: talk::wire,
    rpc_calls: talk::calls,
    rpc_answers: talk::answers,
    simulator: talk::simulator,
    manifest: text::manifest,
    instances: text::instances,
    listen: text::listen,
}
