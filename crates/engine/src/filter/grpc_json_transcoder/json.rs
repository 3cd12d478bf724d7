//! JSON as clients write it, by the rules of Protocol Buffers' own reader, which takes more than RFC 8259 does: keys
//! without quotes, single quotes, a comma before the end, and any byte in a string but its quote.
//!
//! Arrives: a whole text. Leaves: its value, with members in their order; or what is wrong with it and where.

#![expect(clippy::wildcard_enum_match_arm, reason = "JSON will have no other values")]

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Json {
    Null,
    Bool(bool),
    /// Where it begins with a minus sign.
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(String),
    List(Vec<Self>),
    Object(Members),
}

/// In their order, and as often as they were written.
pub(super) type Members = Vec<(String, Json)>;

/// Reads a text, of which nothing is left over. Values nest so deep at most.
pub(super) fn parse(text: &[u8], most_depth: usize) -> Result<Json, String> {
    let (valid, is_cut) = match std::str::from_utf8(text) {
        Ok(valid) => (valid, false),
        Err(error) => {
            let valid = text.get(..error.valid_up_to()).unwrap_or_default();
            (std::str::from_utf8(valid).unwrap_or_default(), true)
        }
    };
    let mut parser = Parser { text: valid.as_bytes(), at: 0, base: 0, depth: 0, most_depth };
    let wrong = |parser: Parser<'_>, wrong| match wrong {
        // What follows would have been looked at.
        Wrong::End(_) if is_cut => {
            let rest = String::from_utf8_lossy(text.get(parser.at..).unwrap_or_default());
            let rest: String = rest.chars().take(CONTEXT).collect();
            format!("Encountered non UTF-8 code points.\n{rest}\n^")
        }
        Wrong::End(what) => parser.told(&what, true),
        Wrong::Here(what) => parser.told(what, false),
        Wrong::Alone(what) => what,
    };
    let value = match parser.value() {
        Ok(value) => value,
        Err(error) => return Err(wrong(parser, error)),
    };
    parser.skip_blanks();
    match parser.at < parser.text.len() {
        true => Err(wrong(parser, Wrong::Here("Parsing terminated before end of input."))),
        false if is_cut => Err(wrong(parser, Wrong::End(String::new()))),
        false => Ok(value),
    }
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    /// Where what errors show begins: the last place at which more was waited for.
    base: usize,
    depth: usize,
    most_depth: usize,
}

/// What is wrong.
enum Wrong {
    /// More might have made it right.
    End(String),
    /// It is wrong here.
    Here(&'static str),
    /// It has no place.
    Alone(String),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    Object,
    List,
    Text,
    Number,
    True,
    False,
    Null,
    Key,
    ObjectEnd,
    ListEnd,
    Colon,
    Comma,
    Unknown,
}

impl Parser<'_> {
    fn value(&mut self) -> Result<Json, Wrong> {
        let token = self.token();
        self.value_of(token, "")
    }

    /// A value that begins with a token, of a member of that name.
    fn value_of(&mut self, token: Token, key: &str) -> Result<Json, Wrong> {
        match token {
            Token::Object => self.object(key),
            Token::List => self.list(),
            Token::Text => self.string().map(Json::Text),
            Token::Number => self.number(),
            Token::True => Ok(self.word(4, Json::Bool(true))),
            Token::False => Ok(self.word(5, Json::Bool(false))),
            Token::Null => Ok(self.word(4, Json::Null)),
            Token::Unknown => Err(self.unknown("Expected a value.")),
            Token::Key | Token::ObjectEnd | Token::ListEnd | Token::Colon | Token::Comma => {
                if self.rest().len() < "false".len() {
                    self.base = self.at;
                }
                Err(Wrong::Here("Unexpected token."))
            }
        }
    }

    fn word(&mut self, length: usize, value: Json) -> Json {
        self.at += length;
        value
    }

    fn object(&mut self, key: &str) -> Result<Json, Wrong> {
        self.deeper(Some(key))?;
        let mut members = Members::new();
        loop {
            const WANTED: &str = "Expected an object key or }.";
            let key = match self.token() {
                Token::Unknown => return Err(self.unknown(WANTED)),
                Token::ObjectEnd => break,
                Token::Text => self.string()?,
                Token::Key | Token::Null | Token::True | Token::False => {
                    let key = self.bare_key();
                    if matches!(&*key, "null" | "true" | "false") {
                        return Err(Wrong::Here(WANTED));
                    }
                    key
                }
                Token::Object
                | Token::List
                | Token::Number
                | Token::ListEnd
                | Token::Colon
                | Token::Comma => return Err(Wrong::Here(WANTED)),
            };
            self.expect(Token::Colon, "Expected : between key:value pair.")?;
            self.at += 1;
            let token = self.token();
            let value = self.value_of(token, &key)?;
            members.push((key, value));
            if !self.goes_on(Token::ObjectEnd, "Expected , or } after key:value pair.")? {
                break;
            }
        }
        self.at += 1;
        self.depth -= 1;
        Ok(Json::Object(members))
    }

    fn list(&mut self) -> Result<Json, Wrong> {
        self.deeper(None)?;
        let mut items = Vec::new();
        loop {
            match self.token() {
                Token::ListEnd => break,
                Token::Unknown => {
                    return Err(self.unknown("Expected a value or ] within an array."));
                }
                token => items.push(self.value_of(token, "")?),
            }
            if !self.goes_on(Token::ListEnd, "Expected , or ] after array value.")? {
                break;
            }
        }
        self.at += 1;
        self.depth -= 1;
        Ok(Json::List(items))
    }

    fn deeper(&mut self, key: Option<&str>) -> Result<(), Wrong> {
        self.at += 1;
        self.depth += 1;
        if self.depth > self.most_depth {
            let place = key.map_or_else(|| "in array".into(), |key| format!("for key '{key}'"));
            let text = format!("Message too deep. Max recursion depth reached {place}");
            return Err(Wrong::Alone(text));
        }
        Ok(())
    }

    /// Passes a comma, or comes to the end.
    fn goes_on(&mut self, end: Token, wanted: &'static str) -> Result<bool, Wrong> {
        match self.token() {
            Token::Comma => {
                self.at += 1;
                Ok(true)
            }
            Token::Unknown => Err(self.unknown(wanted)),
            token if token == end => Ok(false),
            _ => Err(Wrong::Here(wanted)),
        }
    }

    fn expect(&mut self, wanted: Token, text: &'static str) -> Result<(), Wrong> {
        match self.token() {
            token if token == wanted => Ok(()),
            Token::Unknown => Err(self.unknown(text)),
            _ => Err(Wrong::Here(text)),
        }
    }

    fn bare_key(&mut self) -> String {
        let is_inside = |byte: &u8| is_letter(*byte) || byte.is_ascii_digit();
        let length = self.rest().iter().take_while(|byte| is_inside(byte)).count();
        let key = String::from_utf8_lossy(&self.rest()[..length]).into_owned();
        self.at += length;
        key
    }

    fn string(&mut self) -> Result<String, Wrong> {
        let quote = self.text.get(self.at).copied().unwrap_or(b'"');
        self.at += 1;
        let mut value = Vec::new();
        loop {
            let rest = self.rest();
            let special = memchr::memchr2(quote, b'\\', rest);
            let Some(length) = special else {
                self.at = self.text.len();
                return Err(Wrong::End("Closing quote expected in string.".into()));
            };
            value.extend_from_slice(&rest[..length]);
            let is_over = rest[length] == quote;
            self.at += length;
            if is_over {
                self.at += 1;
                break;
            }
            let Some(&escaped) = self.text.get(self.at + 1) else {
                return Err(Wrong::End("Closing quote expected in string.".into()));
            };
            if escaped == b'u' {
                let character = self.escape()?;
                value.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            self.at += 2;
            value.push(match escaped {
                b'b' => 8,
                b'f' => 12,
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'v' => 11,
                other => other,
            });
        }
        // What is cut at a backslash before a longer character is put together again.
        String::from_utf8(value).map_err(|_| Wrong::Here("Invalid escape sequence."))
    }

    /// `\uXXXX`, or two of them for one character.
    fn escape(&mut self) -> Result<char, Wrong> {
        let first = self.unit(0, "Illegal hex string.")?;
        if !(0xd800..0xdc00).contains(&first) {
            let character = char::from_u32(first);
            let character = character.ok_or(Wrong::Here("Invalid unicode code point."))?;
            self.at += UNIT;
            return Ok(character);
        }
        match self.rest().get(UNIT..UNIT + 2) {
            Some(br"\u") => {}
            Some(_) if self.rest().len() >= 2 * UNIT => {
                return Err(Wrong::Here("Missing low surrogate."));
            }
            _ => return Err(Wrong::End("Missing low surrogate.".into())),
        }
        let second = self.unit(UNIT, "Missing low surrogate.")?;
        if !(0xdc00..0xe000).contains(&second) {
            return Err(Wrong::Here("Invalid low surrogate."));
        }
        let code = 0x10000 + ((first & 0x3ff) << 10 | (second & 0x3ff));
        self.at += 2 * UNIT;
        char::from_u32(code).ok_or(Wrong::Here("Invalid unicode code point."))
    }

    fn unit(&self, skipped: usize, wanted: &str) -> Result<u32, Wrong> {
        let Some(digits) = self.rest().get(skipped + 2..skipped + UNIT) else {
            return Err(Wrong::End(wanted.into()));
        };
        digits.iter().try_fold(0, |code, digit| {
            let digit = char::from(*digit).to_digit(16);
            digit.map(|digit| code << 4 | digit).ok_or(Wrong::Here("Invalid escape sequence."))
        })
    }

    fn number(&mut self) -> Result<Json, Wrong> {
        let rest = self.rest();
        let is_part = |byte: &&u8| byte.is_ascii_digit() || b".eE+-x".contains(byte);
        let length = rest.iter().take_while(is_part).count();
        if length == rest.len() {
            self.base = self.at;
        }
        let number = std::str::from_utf8(&self.rest()[..length]).unwrap_or_default();
        let is_float = number.bytes().any(|byte| b".eE".contains(&byte));
        let digits = number.strip_prefix('-');
        let unsigned = digits.unwrap_or(number);
        if !is_float && unsigned.len() >= 2 && unsigned.starts_with('0') {
            return Err(Wrong::Here("Octal/hex numbers are not valid JSON values."));
        }
        let whole = match digits {
            _ if is_float => None,
            None => number.parse().ok().map(Json::Uint),
            Some(_) => number.parse().ok().map(Json::Int),
        };
        let value = match whole {
            Some(value) => value,
            None => {
                let value: f64 =
                    number.parse().map_err(|_| Wrong::Here("Unable to parse number."))?;
                if !value.is_finite() {
                    return Err(Wrong::Here("Number exceeds the range of double."));
                }
                Json::Double(value)
            }
        };
        self.at += length;
        Ok(value)
    }

    fn token(&mut self) -> Token {
        self.skip_blanks();
        let rest = self.rest();
        let Some(&first) = rest.first() else { return Token::Unknown };
        match first {
            b'"' | b'\'' => Token::Text,
            b'-' | b'0'..=b'9' => Token::Number,
            _ if rest.starts_with(b"true") => Token::True,
            _ if rest.starts_with(b"false") => Token::False,
            _ if rest.starts_with(b"null") => Token::Null,
            b'{' => Token::Object,
            b'}' => Token::ObjectEnd,
            b'[' => Token::List,
            b']' => Token::ListEnd,
            b':' => Token::Colon,
            b',' => Token::Comma,
            _ if is_letter(first) => Token::Key,
            _ => Token::Unknown,
        }
    }

    fn skip_blanks(&mut self) {
        self.at += self.rest().iter().take_while(|byte| is_blank(**byte)).count();
    }

    fn rest(&self) -> &[u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// What more might have become something.
    fn unknown(&mut self, wanted: &'static str) -> Wrong {
        if self.rest().is_empty() {
            return Wrong::End(format!("Unexpected end of string. {wanted}"));
        }
        self.base = self.at;
        Wrong::Here(wanted)
    }

    fn told(&self, what: &str, is_end: bool) -> String {
        let base = if is_end { self.at } else { self.base };
        let from = base.max(self.at.saturating_sub(CONTEXT)).min(self.text.len());
        let to = (self.at + CONTEXT).min(self.text.len());
        let shown = String::from_utf8_lossy(&self.text[from..to]);
        format!("{what}\n{shown}\n{:>width$}", '^', width = self.at - from + 1)
    }
}

const fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte == b'$'
}

pub(super) const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// How much of the text errors show before and behind their place.
const CONTEXT: usize = 20;
/// The length of `\uXXXX`.
const UNIT: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Json, String> {
        parse(text.as_bytes(), 100)
    }

    fn text(value: &str) -> Json {
        Json::Text(value.into())
    }

    #[test]
    fn more_is_read_than_json() {
        let members = vec![
            ("a".into(), Json::Uint(1)),
            ("b".into(), Json::List(vec![Json::Int(-2), Json::Double(0.5)])),
            ("c".into(), text("it's\t\u{1f600}q")),
            ("a".into(), Json::Null),
        ];
        let written = r#" {"a":1, b :[ -2,5e-1,], 'c': 'it\'s\t\ud83d\ude00\q', a:null,} "#;
        assert_eq!(read(written), Ok(Json::Object(members)));
        assert_eq!(read("18446744073709551615"), Ok(Json::Uint(u64::MAX)));
        assert_eq!(read("18446744073709551616"), Ok(Json::Double(18_446_744_073_709_551_616.0)));
        assert_eq!(read("\"a\nb\""), Ok(text("a\nb")));
    }

    #[test]
    fn errors_show_their_place() {
        let wrong = [
            ("", "Unexpected end of string. Expected a value.\n\n^"),
            (r#"{"a":"#, "Unexpected end of string. Expected a value.\n\n^"),
            (r#"{"a"x"#, "Expected : between key:value pair.\n{\"a\"x\n    ^"),
            (r#"{"a":1}}"#, "Parsing terminated before end of input.\n{\"a\":1}}\n       ^"),
            (r#"{"a":"b"#, "Closing quote expected in string.\n\n^"),
            (r#"{"a":bad}"#, "Unexpected token.\nbad}\n^"),
            (r#"{"a":@}"#, "Expected a value.\n@}\n^"),
            ("[1 2]", "Expected , or ] after array value.\n[1 2]\n   ^"),
            (r#"{"a":01}"#, "Octal/hex numbers are not valid JSON values.\n{\"a\":01}\n     ^"),
            (r#"{"a":1-1}"#, "Unable to parse number.\n{\"a\":1-1}\n     ^"),
            (r#"{"a":1e999}"#, "Number exceeds the range of double.\n{\"a\":1e999}\n     ^"),
            (r#"["\ud83d.     "]"#, "Missing low surrogate.\n[\"\\ud83d.     \"]\n  ^"),
            (r#"["\ud83d\u0041"]"#, "Invalid low surrogate.\n[\"\\ud83d\\u0041\"]\n  ^"),
            (r#"["\udc00"]"#, "Invalid unicode code point.\n[\"\\udc00\"]\n  ^"),
        ];
        for (written, told) in wrong {
            assert_eq!(read(written), Err(told.into()), "{written}");
        }
        let long = format!("[{}!]", "1,".repeat(30));
        let told = "Expected a value or ] within an array.\n!]\n^";
        assert_eq!(read(&long), Err(told.into()));
        let cut = parse(b"{\"a\":\"\xff\"}", 100);
        assert!(cut.unwrap_err().starts_with("Encountered non UTF-8 code points.\n"));
    }

    #[test]
    fn depth_is_limited() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(read(&nested(100)).is_ok());
        let told = "Message too deep. Max recursion depth reached in array";
        assert_eq!(read(&nested(101)), Err(told.into()));
        assert_eq!(read(&"[".repeat(1_000_000)), Err(told.into()));
    }

    #[test]
    fn a_text_that_is_cut_is_wrong_and_nothing_panics() {
        let whole = r#"{"a":[1,-2.5e3,"\ud83d\ude00\n"],'b':{c:true,d:null,e:false}}"#;
        assert!(read(whole).is_ok());
        for cut in 0..whole.len() {
            assert!(read(&whole[..cut]).is_err(), "cut at {cut}");
        }
    }
}
