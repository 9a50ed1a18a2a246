//! The one JSON object that `MarshalJSON` writes: `{"m":<integer>,"k":<integer>,"b":"<base64>"}`.
//!
//! Go's reader takes the fields in any order and with spaces between them, and so does this one.

use crate::error::{Error, Result, mismatch};

/// The three fields.
pub(super) struct Object<'a> {
    pub m: u64,
    pub k: u64,
    pub b: &'a str,
}

fn unexpected(expected: &'static str) -> Error {
    mismatch("JSON", expected, "other text")
}

/// What is left of the text.
struct JsonText<'a>(&'a str);

impl<'a> JsonText<'a> {
    /// Takes a character, with the spaces before it.
    fn take(&mut self, character: char) -> bool {
        let text = self.0.trim_ascii_start();
        text.strip_prefix(character).map(|rest| self.0 = rest).is_some()
    }

    /// Takes a string without escapes: base64 and the names of the fields have none.
    fn string(&mut self) -> Result<&'a str> {
        if !self.take('"') {
            return Err(unexpected("a string"));
        }
        let (string, rest) = self.0.split_once('"').ok_or_else(|| unexpected("a closing quote"))?;
        if string.contains('\\') {
            return Err(unexpected("a string without escapes"));
        }
        self.0 = rest;
        Ok(string)
    }

    fn integer(&mut self) -> Result<u64> {
        let text = self.0.trim_ascii_start();
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, rest) = text.split_at(end);
        self.0 = rest;
        digits.parse().map_err(|_| unexpected("an integer below 2^64"))
    }
}

pub(super) fn parse(bytes: &[u8]) -> Result<Object<'_>> {
    let text = std::str::from_utf8(bytes).map_err(|_| unexpected("UTF-8"))?;
    let mut text = JsonText(text);
    let (mut m, mut k, mut b) = (None, None, None);
    if !text.take('{') {
        return Err(unexpected("an object"));
    }
    loop {
        let name = text.string()?;
        if !text.take(':') {
            return Err(unexpected("a colon"));
        }
        let is_repeated = match name {
            "m" => m.replace(text.integer()?).is_some(),
            "k" => k.replace(text.integer()?).is_some(),
            "b" => b.replace(text.string()?).is_some(),
            _ => return Err(unexpected("the fields m, k and b")),
        };
        if is_repeated {
            return Err(unexpected("each field once"));
        }
        if text.take('}') {
            break;
        }
        if !text.take(',') {
            return Err(unexpected("a comma or the end of the object"));
        }
    }
    if !text.0.trim_ascii().is_empty() {
        return Err(unexpected("nothing after the object"));
    }
    match (m, k, b) {
        (Some(m), Some(k), Some(b)) => Ok(Object { m, k, b }),
        _ => Err(unexpected("the fields m, k and b")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_in_any_order_and_once() {
        let parsed = parse(b" { \"b\" : \"AA==\", \"k\":3,\n\"m\":100 }\n").unwrap();
        assert_eq!((parsed.m, parsed.k, parsed.b), (100, 3, "AA=="));
        for text in [
            "",
            "{",
            "{}",
            "[]",
            r#"{"m":100,"k":3}"#,
            r#"{"m":100,"k":3,"b":"AA==""#,
            r#"{"m":100,"k":3,"b":"AA==",}"#,
            r#"{"m":100,"k":3,"b":"AA=="}x"#,
            r#"{"m":-1,"k":3,"b":"AA=="}"#,
            r#"{"m":1.5,"k":3,"b":"AA=="}"#,
            r#"{"m":18446744073709551616,"k":3,"b":"AA=="}"#,
            r#"{"m":1,"m":1,"k":3,"b":"AA=="}"#,
            r#"{"m":1,"k":3,"b":"\u0041A=="}"#,
            r#"{"m":1,"k":3,"c":1,"b":"AA=="}"#,
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
