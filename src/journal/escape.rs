//! JSON string escapes.

use std::borrow::Cow;

/// Where text goes: a string when names are prepared, bytes when records are written.
pub(super) trait Text {
    fn put(&mut self, piece: &str);
}

impl Text for String {
    fn put(&mut self, piece: &str) {
        self.push_str(piece);
    }
}

impl Text for Vec<u8> {
    fn put(&mut self, piece: &str) {
        self.extend_from_slice(piece.as_bytes());
    }
}

/// Appends `raw` with what JSON wants escaped: quotes, backslashes, control characters.
pub(super) fn push(out: &mut impl Text, raw: &str) {
    const HEX: &str = "0123456789abcdef";
    let mut start = 0;
    for (at, byte) in raw.bytes().enumerate() {
        let short = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0..=0x1f => "",
            _ => continue,
        };
        // All bytes handled here are ASCII, so each place is between characters.
        out.put(&raw[start..at]);
        start = at + 1;
        if short.is_empty() {
            out.put(if byte < 0x10 { "\\u000" } else { "\\u001" });
            let low = usize::from(byte & 0xf);
            out.put(&HEX[low..=low]);
        } else {
            out.put(short);
        }
    }
    out.put(&raw[start..]);
}

/// The text that was escaped.
pub(super) fn undo(escaped: &str) -> Cow<'_, str> {
    if !escaped.contains('\\') {
        return Cow::Borrowed(escaped);
    }
    serde_json::from_str(&format!("\"{escaped}\"")).map_or(Cow::Borrowed(escaped), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_escaped_is_read_back_by_any_json_reader(raw in any::<String>()) {
            let mut out = String::new();
            push(&mut out, &raw);
            prop_assert_eq!(serde_json::from_str::<String>(&format!("\"{out}\"")).unwrap(), raw.clone());
            prop_assert_eq!(undo(&out), raw);
        }
    }
}
