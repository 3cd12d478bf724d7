//! Texts and numbers as JSON has them.

/// A number as JSON has it; what JSON has not is `null`.
pub(crate) fn number_text(number: f64) -> String {
    if !number.is_finite() {
        return "null".to_owned();
    }
    let size = number.abs();
    if number == 0.0 || (1e-4..1e17).contains(&size) {
        return number.to_string();
    }
    // As C's `%g` has it: a sign and two digits at least.
    let text = format!("{number:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
    format!("{digits}e{sign}{exponent:0>2}")
}

/// Appends `bytes` as a JSON string. What is not UTF-8 is taken byte by byte as Latin-1.
pub fn json_string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    let start = out.len();
    out.extend_from_slice(bytes);
    escape_tail(out, start);
    out.push(b'"');
}

/// Escapes what was appended since `start`. Most values need nothing and are only looked at.
pub(crate) fn escape_tail(out: &mut Vec<u8>, start: usize) {
    if has_escaped(&out[start..]) {
        escape(out, start);
    }
}

/// Whether a string of JSON has these bytes in another form.
pub(crate) fn has_escaped(bytes: &[u8]) -> bool {
    // Without a branch for each byte.
    bytes.iter().fold(false, |some, byte| some | IS_ESCAPED[usize::from(*byte)])
}

#[cold]
fn escape(out: &mut Vec<u8>, start: usize) {
    let text = out.split_off(start);
    let utf8 = std::str::from_utf8(&text).is_ok();
    for byte in text {
        match (byte, short_escape(byte.into()).filter(|_| utf8)) {
            (_, Some(short)) => out.extend_from_slice(short.as_bytes()),
            (0x7f.., None) if utf8 => out.push(byte),
            (b' ' | b'!' | b'#'..=b'[' | b']'..=b'~', None) => out.push(byte),
            (control, None) => {
                out.extend_from_slice(br"\u00");
                out.push(HEX[usize::from(control >> 4)]);
                out.push(HEX[usize::from(control & 15)]);
            }
        }
    }
}

/// All but what is ASCII, is no control character, and has no meaning in a string.
const IS_ESCAPED: [bool; 256] = {
    let mut all = [true; 256];
    let mut byte = b' ';
    while byte <= b'~' {
        all[byte as usize] = matches!(byte, b'"' | b'\\');
        byte += 1;
    }
    all
};

/// The characters that have an escape of their own (RFC 8259 §7).
pub(crate) const fn short_escape(character: char) -> Option<&'static str> {
    Some(match character {
        '"' => r#"\""#,
        '\\' => r"\\",
        '\n' => r"\n",
        '\r' => r"\r",
        '\t' => r"\t",
        '\u{8}' => r"\b",
        '\u{c}' => r"\f",
        _ => return None,
    })
}

const HEX: &[u8; 16] = b"0123456789abcdef";
