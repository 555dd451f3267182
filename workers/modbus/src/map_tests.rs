use super::*;
use proptest::prelude::*;

const fn order(words_reversed: bool, bytes_swapped: bool) -> Order {
    Order { words_reversed, bytes_swapped }
}

const AS_IS: Order = order(false, false);
const WORDS: Order = order(true, false);
const BYTES: Order = order(false, true);
const BOTH: Order = order(true, true);

fn decoded(kind: Number, order: Order, wire: &[u8]) -> Sample {
    decode(Decoder::Number(kind, order), wire, 0)
}

// The bytes below were computed by packing each value big-endian and putting its bytes into the order's letters,
// outside this crate.

#[test]
fn m14_a_double_is_read_in_every_order() {
    for (order, wire) in [
        (AS_IS, [0xC0, 0x93, 0x4A, 0x45, 0x6D, 0x5C, 0xFA, 0xAD]),
        (WORDS, [0xFA, 0xAD, 0x6D, 0x5C, 0x4A, 0x45, 0xC0, 0x93]),
        (BYTES, [0x93, 0xC0, 0x45, 0x4A, 0x5C, 0x6D, 0xAD, 0xFA]),
        (BOTH, [0xAD, 0xFA, 0x5C, 0x6D, 0x45, 0x4A, 0x93, 0xC0]),
    ] {
        assert_eq!(decoded(Number::F64, order, &wire), Ok(Value::F64(-1234.5678)), "{order:?}");
    }
    for (order, wire) in [
        (AS_IS, [0xEE, 0xDD, 0xEF, 0x0B, 0x82, 0x16, 0x7E, 0xEB]),
        (WORDS, [0x7E, 0xEB, 0x82, 0x16, 0xEF, 0x0B, 0xEE, 0xDD]),
        (BYTES, [0xDD, 0xEE, 0x0B, 0xEF, 0x16, 0x82, 0xEB, 0x7E]),
        (BOTH, [0xEB, 0x7E, 0x16, 0x82, 0x0B, 0xEF, 0xDD, 0xEE]),
    ] {
        assert_eq!(decoded(Number::I64, order, &wire), Ok(Value::Int(-1_234_567_890_123_456_789)), "{order:?}");
    }
    for (order, wire) in [
        (AS_IS, [0xFE, 0xDC, 0xBA, 0x98, 0x76, 0x54, 0x32, 0x10]),
        (WORDS, [0x32, 0x10, 0x76, 0x54, 0xBA, 0x98, 0xFE, 0xDC]),
        (BYTES, [0xDC, 0xFE, 0x98, 0xBA, 0x54, 0x76, 0x10, 0x32]),
        (BOTH, [0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE]),
    ] {
        assert_eq!(decoded(Number::U64, order, &wire), Ok(Value::UInt(18_364_758_544_493_064_720)), "{order:?}");
    }
}

#[test]
fn two_registers_are_read_in_every_order() {
    for (order, wire) in [
        (AS_IS, [0x41, 0xAC, 0xCC, 0xCD]),
        (WORDS, [0xCC, 0xCD, 0x41, 0xAC]),
        (BYTES, [0xAC, 0x41, 0xCD, 0xCC]),
        (BOTH, [0xCD, 0xCC, 0xAC, 0x41]),
    ] {
        assert_eq!(decoded(Number::F32, order, &wire), Ok(Value::F32(21.6)), "{order:?}");
    }
    for (order, wire) in [
        (AS_IS, [0xF8, 0xA4, 0x32, 0xEB]),
        (WORDS, [0x32, 0xEB, 0xF8, 0xA4]),
        (BYTES, [0xA4, 0xF8, 0xEB, 0x32]),
        (BOTH, [0xEB, 0x32, 0xA4, 0xF8]),
    ] {
        assert_eq!(decoded(Number::I32, order, &wire), Ok(Value::Int(-123_456_789)), "{order:?}");
        assert_eq!(decoded(Number::U32, order, &wire), Ok(Value::Int(4_171_510_507)), "{order:?}");
    }
}

#[test]
fn one_register_is_read_in_both_orders() {
    assert_eq!(decoded(Number::I16, AS_IS, &[0xCF, 0xC7]), Ok(Value::Int(-12345)));
    assert_eq!(decoded(Number::I16, BYTES, &[0xC7, 0xCF]), Ok(Value::Int(-12345)));
    assert_eq!(decoded(Number::U16, AS_IS, &[0xCF, 0xC7]), Ok(Value::Int(53191)));
}

#[test]
fn decimal_digits_are_read_and_other_nibbles_are_no_value() {
    assert_eq!(decoded(Number::Bcd16, AS_IS, &[0x12, 0x34]), Ok(Value::Int(1234)));
    assert_eq!(decoded(Number::Bcd32, AS_IS, &[0x12, 0x34, 0x56, 0x78]), Ok(Value::Int(12_345_678)));
    assert_eq!(decoded(Number::Bcd32, WORDS, &[0x56, 0x78, 0x12, 0x34]), Ok(Value::Int(12_345_678)));
    assert_eq!(decoded(Number::Bcd64, AS_IS, &[0x99; 8]), Ok(Value::Int(9_999_999_999_999_999)));
    assert_eq!(decoded(Number::Bcd16, AS_IS, &[0x12, 0x3A]), Err(Reason::Decode));
    assert_eq!(decoded(Number::Bcd16, AS_IS, &[0xFF, 0xFF]), Err(Reason::Decode));
}

#[test]
fn bits_count_from_the_least_significant_one() {
    let wire = [0x80, 0x01];
    let bits: Vec<u8> = (0..16).filter(|b| decode(Decoder::Bit(*b), &wire, 0) == Ok(Value::Bool(true))).collect();
    assert_eq!(bits, [0, 15]);
    // Coils 27 to 38 of the specification's own example: CD 6B 05 holds 1100 1101, 0110 1011, 0000 0101.
    let wire = [0xCD, 0x6B, 0x05];
    let on: Vec<u16> = (0..20).filter(|i| decode(Decoder::Coil, &wire, *i) == Ok(Value::Bool(true))).collect();
    assert_eq!(on, [0, 2, 3, 6, 7, 8, 9, 11, 13, 14, 16, 18]);
}

#[test]
fn m14_a_string_is_read_in_every_layout() {
    let text = |wire: &[u8], length, layout| decode(Decoder::Text(length, layout, Encoding::Ascii), wire, 0);
    let pump = |found| assert_eq!(found, Ok(Value::Text("PUMP 7".into())));
    pump(text(b"PUMP 7", 6, Layout::HighLow));
    pump(text(b"UPPM7 ", 6, Layout::LowHigh));
    pump(text(b"P\0U\0M\0P\0 \x007\0", 6, Layout::High));
    pump(text(b"\0P\0U\0M\0P\0 \x007", 6, Layout::Low));
    // One character a register, and rubbish in the other byte.
    pump(text(b"PxUxMxPx x7x", 6, Layout::High));
    // An odd length leaves half a register unread; a NUL ends it; padding goes.
    assert_eq!(text(b"ABCDEF", 5, Layout::HighLow), Ok(Value::Text("ABCDE".into())));
    pump(text(b"PUMP 7\0\0", 8, Layout::HighLow));
    pump(text(b"PUMP 7  ", 8, Layout::HighLow));
    pump(text(b"PUMP 7\0Z", 8, Layout::HighLow));
    assert_eq!(text(b"\0\0\0\0", 4, Layout::HighLow), Ok(Value::Text(String::new())));
}

#[test]
fn bytes_that_are_no_text_of_the_encoding_are_no_value() {
    let text = |wire: &[u8], encoding| decode(Decoder::Text(wire.len() as u8, Layout::HighLow, encoding), wire, 0);
    assert_eq!(text(b"21\xB0C", Encoding::Latin1), Ok(Value::Text("21°C".into())));
    assert_eq!(text(b"21\xB0C", Encoding::Ascii), Err(Reason::Decode));
    assert_eq!(text(b"21\xB0C", Encoding::Utf8), Err(Reason::Decode));
    assert_eq!(text("1\u{b0}C".as_bytes(), Encoding::Utf8), Ok(Value::Text("1°C".into())));
}

#[test]
fn an_answer_that_is_too_short_is_no_value() {
    assert_eq!(decoded(Number::F64, AS_IS, &[0; 7]), Err(Reason::Decode));
    assert_eq!(decode(Decoder::Number(Number::U16, AS_IS), &[0; 4], 2), Err(Reason::Decode));
    assert_eq!(decode(Decoder::Coil, &[0xFF], 8), Err(Reason::Decode));
    assert_eq!(decode(Decoder::Bit(3), &[], 65535), Err(Reason::Decode));
}

proptest! {
    #[test]
    fn undoing_an_order_gives_the_value_back(value: u64, words: bool, bytes: bool) {
        let put = |letters: &str| -> Vec<u8> {
            let all = value.to_be_bytes();
            letters.bytes().map(|l| all[usize::from(l - b'A')]).collect()
        };
        let (two, four) = match (words, bytes) {
            (false, false) => ("ABCD", "ABCDEFGH"),
            (true, false) => ("CDAB", "GHEFCDAB"),
            (false, true) => ("BADC", "BADCFEHG"),
            (true, true) => ("DCBA", "HGFEDCBA"),
        };
        prop_assert_eq!(decoded(Number::U64, order(words, bytes), &put(four)), Ok(Value::from(value)));
        prop_assert_eq!(decoded(Number::U32, order(words, bytes), &put(two)), Ok(Value::from(value >> 32)));
    }
}
