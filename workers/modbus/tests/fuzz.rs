//! The fuzz targets, over their corpus and random bytes: a short run for every build. A long one needs `cargo fuzz`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "../../../fuzz/src/modbus.rs"]
mod targets;

use proptest::prelude::*;

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = format!("{}/../../fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
    let inputs: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect();
    assert!(inputs.len() >= 9, "the corpus is there");
    inputs
}

#[test]
fn the_corpus_breaks_nothing_and_neither_do_its_beginnings() {
    for input in corpus("modbus_frames") {
        for end in 0..=input.len() {
            targets::frames(&input[..end]);
        }
    }
    for input in corpus("modbus_registers") {
        for end in 0..=input.len() {
            targets::registers(&input[..end]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn random_bytes_break_no_frame_decoder(data in prop::collection::vec(any::<u8>(), 0..600)) {
        targets::frames(&data);
    }

    #[test]
    fn flipped_bytes_of_good_traffic_break_no_frame_decoder(
        which: prop::sample::Index,
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let corpus = corpus("modbus_frames");
        let mut data = corpus[which.index(corpus.len())].clone();
        for (at, byte) in flips {
            let at = at.index(data.len());
            data[at] = byte;
        }
        targets::frames(&data);
    }

    #[test]
    fn random_bytes_break_no_register_decoder(
        table in 0_u8..4,
        kind in prop_oneof![0_u8..11, Just(0x20), Just(0x21), Just(0x40)],
        a: u8,
        b in prop_oneof![any::<u8>(), Just(0x02), Just(0x12), Just(0x21)],
        offset in 0_u8..4,
        answer in prop::collection::vec(any::<u8>(), 0..520),
    ) {
        targets::registers(&[&[table, 0, 0, kind, a, b, 0, offset][..], &answer].concat());
    }
}
