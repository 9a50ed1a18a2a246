//! Keys in lines of JSON: the value at a path.
//!
//! A line is parsed up to its end, but only the value that is asked for is kept. A string is the key
//! without its quotes and escapes, so that it equals the same text in a plain list. Numbers, `true`
//! and `false` are keys as they are written: `1` and `1.0` are two keys. A line has no key where
//! nothing is at the path, or `null`, an object or an array, and where it is not JSON.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The names on the way to a value, from the outermost object inwards; an element of an array is
/// named by its number, from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path(Vec<String>);

/// Parses a path: `user.id`, or as RFC 6901 has it `/user/id`, where names contain dots.
pub fn parse_path(text: &str) -> Result<Path, String> {
    let names: Vec<String> = match text.strip_prefix('/') {
        Some(rest) => {
            rest.split('/').map(|name| name.replace("~1", "/").replace("~0", "~")).collect()
        }
        None => text.split('.').map(str::to_owned).collect(),
    };
    if !text.starts_with('/') && names.iter().any(String::is_empty) {
        return Err("a name is missing; expected names with dots between them, such as id or \
                    user.id, or a JSON Pointer such as /user/id"
            .to_string());
    }
    Ok(Path(names))
}

impl fmt::Display for Path {
    /// As it is typed, as a JSON Pointer where dots would not do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.iter().all(|name| !name.is_empty() && !name.contains(['.', '/'])) {
            return f.write_str(&self.0.join("."));
        }
        let escaped = |name: &String| format!("/{}", name.replace('~', "~0").replace('/', "~1"));
        self.0.iter().try_for_each(|name| f.write_str(&escaped(name)))
    }
}

impl Path {
    /// Returns the key of a line, unless it has none.
    pub fn select<'a>(&self, line: &'a [u8], scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        let mut deserializer = serde_json::Deserializer::from_slice(line);
        let value = At(&self.0).deserialize(&mut deserializer).ok()??;
        deserializer.end().ok()?;
        match value.get().as_bytes() {
            [b'"', ..] => {
                // Without escapes it is borrowed.
                let Text(text) = serde_json::from_str(value.get()).ok()?;
                match text {
                    Cow::Borrowed(text) => Some(text.as_bytes()),
                    Cow::Owned(text) => {
                        *scratch = text.into_bytes();
                        Some(scratch)
                    }
                }
            }
            [b'{' | b'[' | b'n', ..] => None,
            text => Some(text),
        }
    }
}

/// A string, borrowed where it has no escapes.
struct Text<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text<'de>, D::Error> {
        struct Borrowing;
        impl<'de> Visitor<'de> for Borrowing {
            type Value = Text<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                formatter.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Borrowing)
    }
}

/// Finds what is at the end of a path. All else is parsed and dropped.
struct At<'p>(&'p [String]);

impl<'de> DeserializeSeed<'de> for At<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        match self.0 {
            [] => <&RawValue>::deserialize(deserializer).map(Some),
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for At<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("JSON")
    }

    /// Of a name that comes twice, the last counts, as for most readers of JSON.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (name, inner) = self.0.split_first().expect("an empty path asks for the value");
        let mut found = None;
        while let Some(is_it) = map.next_key_seed(Is(name))? {
            match is_it {
                true => found = map.next_value_seed(At(inner))?,
                false => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let (name, inner) = self.0.split_first().expect("an empty path asks for the value");
        let wanted: Option<usize> = name.parse().ok();
        let mut found = None;
        for index in 0.. {
            if Some(index) == wanted {
                match array.next_element_seed(At(inner))? {
                    Some(value) => found = value,
                    None => break,
                }
            } else if array.next_element::<IgnoredAny>()?.is_none() {
                break;
            }
        }
        Ok(found)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

/// Whether a name is this one.
struct Is<'p>(&'p str);

impl<'de> DeserializeSeed<'de> for Is<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Is<'_> {
    type Value = bool;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn key(path: &str, line: &str) -> Option<String> {
        let mut scratch = b"left over".to_vec();
        let path = parse_path(path).expect(path);
        let key = path.select(line.as_bytes(), &mut scratch)?;
        Some(String::from_utf8(key.to_vec()).expect("JSON is UTF-8"))
    }

    #[test]
    fn the_key_is_the_value_at_the_path() {
        for (path, line, expected) in [
            ("id", r#"{"id":"alice"}"#, Some("alice")),
            ("id", r#" { "x" : {"id":"no"}, "id" : "a\"b\u00e9\n" } "#, Some("a\"b\u{e9}\n")),
            ("id", r#"{"id":7}"#, Some("7")),
            ("id", r#"{"id":1.0}"#, Some("1.0")),
            (
                "id",
                r#"{"id":123456789012345678901234567890}"#,
                Some("123456789012345678901234567890"),
            ),
            ("id", r#"{"id":true}"#, Some("true")),
            ("id", r#"{"id":""}"#, Some("")),
            ("id", r#"{"id":"a","id":"b"}"#, Some("b")),
            ("user.id", r#"{"user":{"name":"x","id":"y"}}"#, Some("y")),
            ("/user/id", r#"{"user":{"id":"y"}}"#, Some("y")),
            ("/a.b/c~1d/e~0f", r#"{"a.b":{"c/d":{"e~f":"z"}}}"#, Some("z")),
            ("tags.1", r#"{"tags":["a","b","c"]}"#, Some("b")),
            ("0", r#"["a","b"]"#, Some("a")),
            // No key.
            ("id", r#"{"id":null}"#, None),
            ("id", r#"{"id":{"a":1}}"#, None),
            ("id", r#"{"id":[1]}"#, None),
            ("id", r#"{"name":"x"}"#, None),
            ("user.id", r#"{"user":"x"}"#, None),
            ("user.id", r#"{"user":7}"#, None),
            ("tags.9", r#"{"tags":["a"]}"#, None),
            ("tags.x", r#"{"tags":["a"]}"#, None),
            ("id", r#"[{"id":"x"}]"#, None),
            // Not JSON, also where the value comes before the mistake.
            ("id", "", None),
            ("id", "id: alice", None),
            ("id", r#"{"id":"alice""#, None),
            ("id", r#"{"id":"alice"} x"#, None),
            ("id", r#"{"id":"\ud800"}"#, None),
        ] {
            assert_eq!(key(path, line).as_deref(), expected, "{path} of {line}");
        }
        assert_eq!(key("id", &"{\"id\":".repeat(100_000)), None, "deep nesting is no overflow");
    }

    #[test]
    fn strings_are_what_a_whole_parse_finds() {
        for text in ["plain", "tab\t", "quote\"", "back\\slash", "\u{1F600}", "\u{7}"] {
            let line = serde_json::json!({"a": 1, "b": {"c": text}}).to_string();
            let whole: Value = serde_json::from_str(&line).expect("it was written so");
            assert_eq!(key("b.c", &line).as_deref(), whole["b"]["c"].as_str());
        }
    }

    #[test]
    fn paths_without_a_name_are_refused() {
        for text in ["", ".", "a.", ".a", "a..b"] {
            assert!(parse_path(text).expect_err(text).starts_with("a name is missing"), "{text}");
        }
        assert_eq!(parse_path("/"), Ok(Path(vec![String::new()])));
    }
}
