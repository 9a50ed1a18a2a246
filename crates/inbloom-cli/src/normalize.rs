//! Normalizes a key before it is hashed, so that different spellings of the same thing are one key.
//!
//! The choice is recorded in the filter's file and applied again on every query, so its meaning
//! must never change: every rule is defined here on bytes, in terms of ASCII only. Rules are
//! applied in one order, whatever the order in which they were given:
//!
//! 1. `crlf` strips one carriage return at the end, what a line of a Windows text file ends with.
//! 2. `trim` strips ASCII whitespace at both ends.
//! 3. `lower` makes ASCII letters lowercase. Others stay as they are: the tables of Unicode change
//!    from version to version, and every version must find the key.
//! 4. `url` is the normalization by syntax and by scheme of RFC 3986, sections 6.2.2 and 6.2.3:
//!
//! ```text
//!   HTTP://user@www.EXAMPLE.com:80/%7esmith/a/./b/../c?q=%c3%bc#top
//!   http://user@www.example.com/~smith/a/c?q=%C3%BC
//! ```
//!
//!    Scheme and host become lowercase; a default or empty port and the fragment are removed;
//!    escapes of letters, digits and `-._~` are decoded, the digits of other escapes become
//!    uppercase; dot segments are resolved; an empty path becomes `/`. Everything else stays: user,
//!    query, the order of its parameters, a trailing slash. A key that does not begin with
//!    `scheme://` does not change.
//!
//! Normalizing a normalized key does not change it (except that `crlf` alone removes a second
//! carriage return). Three cases need care for that:
//!
//! - `%%34%31` would become `%41`, and `A` the next time. So an escape is not decoded where a
//!   `%` that begins none stands right before it, or one hexadecimal digit further to the left.
//! - With `lower`, `%41` is `a`, as `A` is.
//! - With `trim`, `http://host/a #top` loses its space too once the fragment is gone.

use std::fmt;

use clap::ValueEnum;
use memchr::{memchr, memchr2, memrchr};

/// Which normalizations are applied to a key before it is hashed; recorded in the filter's file
/// and applied again on query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Normalization {
    pub crlf: bool,
    pub trim: bool,
    pub lower: bool,
    pub url: bool,
}

/// A normalization that can be asked for by name; `crlf` follows from how records are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Rule {
    /// Make ASCII letters lowercase: Alice and ALICE become alice
    Lower,
    /// Strip ASCII whitespace at both ends
    Trim,
    /// Normalize URLs as in RFC 3986: lowercase host, no default port, fragment or dot segments
    Url,
}

impl FromIterator<Rule> for Normalization {
    fn from_iter<I: IntoIterator<Item = Rule>>(rules: I) -> Normalization {
        let mut chosen = Normalization::default();
        for rule in rules {
            match rule {
                Rule::Lower => chosen.lower = true,
                Rule::Trim => chosen.trim = true,
                Rule::Url => chosen.url = true,
            }
        }
        chosen
    }
}

/// The names of those that are on, in the order in which they are applied: `trim,url`. Files hold
/// this text.
impl fmt::Display for Normalization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all =
            [(self.crlf, "crlf"), (self.trim, "trim"), (self.lower, "lower"), (self.url, "url")];
        let mut separator = "";
        for (_, name) in all.iter().filter(|(on, _)| *on) {
            write!(f, "{separator}{name}")?;
            separator = ",";
        }
        Ok(())
    }
}

impl Normalization {
    /// From what a filter's file records: the text that `Display` writes, `""` for none.
    ///
    /// None for any other text. Users of the library record their own words, and what only
    /// resembles ours may mean something else.
    pub fn parse(text: &str) -> Option<Normalization> {
        let mut parsed = Normalization::default();
        for name in text.split(',').filter(|_| !text.is_empty()) {
            match name {
                "crlf" => parsed.crlf = true,
                "trim" => parsed.trim = true,
                "lower" => parsed.lower = true,
                "url" => parsed.url = true,
                _ => return None,
            }
        }
        (parsed.to_string() == text).then_some(parsed)
    }

    pub fn is_none(&self) -> bool {
        *self == Normalization::default()
    }

    /// The key as it is hashed: borrowed from the record where possible, otherwise written into
    /// `scratch`, whose contents do not matter.
    #[inline]
    pub fn apply<'a>(&self, key: &'a [u8], scratch: &'a mut Vec<u8>) -> &'a [u8] {
        if self.is_none() { key } else { self.apply_some(key, scratch) }
    }

    fn apply_some<'a>(&self, mut key: &'a [u8], scratch: &'a mut Vec<u8>) -> &'a [u8] {
        if self.crlf {
            key = key.strip_suffix(b"\r").unwrap_or(key);
        }
        if self.trim {
            key = trim_end(trim_start(key));
        }
        let small = !self.lower || !has_capital(key);
        let scheme = if self.url { scheme_length(key) } else { None };
        match scheme {
            Some(scheme) if !small || !is_normal(key, scheme) => {
                self.write_url(key, scheme, scratch);
                scratch
            }
            None if !small => {
                scratch.clear();
                scratch.extend_from_slice(key);
                scratch.make_ascii_lowercase();
                scratch
            }
            _ => key,
        }
    }

    /// Writes `url`, which begins with a scheme of this length and `://`, in normal form.
    ///
    /// Escapes are decoded before anything is compared, since `%2E` is a dot and `%38%30` port 80.
    /// Characters that divide a URL into its parts are never decoded, so this is safe.
    fn write_url(&self, url: &[u8], scheme: usize, out: &mut Vec<u8>) {
        let mut url = until(url, memchr(b'#', url)).0;
        if self.trim {
            url = trim_end(url);
        }
        let behind_slashes = &url[scheme + 3..];
        let (authority, rest) = until(behind_slashes, memchr2(b'/', b'?', behind_slashes));
        let (path, query) = until(rest, memchr(b'?', rest));

        out.clear();
        out.extend_from_slice(&url[..scheme]);
        out.make_ascii_lowercase();
        out.extend_from_slice(b"://");

        let start = out.len();
        self.write_decoded(authority, out);
        let host = memrchr(b'@', &out[start..]).map_or(start, |at| start + at + 1);
        lower_host(&mut out[host..]);
        let port = port_length(&out[host..], default_port(&out[..scheme]));
        out.truncate(out.len() - port);

        let start = out.len();
        self.write_decoded(if path.is_empty() { b"/" } else { path }, out);
        remove_dot_segments(out, start);
        self.write_decoded(query, out);
    }

    /// Appends one part of a URL, its escapes decoded or with large digits.
    fn write_decoded(&self, part: &[u8], out: &mut Vec<u8>) {
        let mut rest = part;
        loop {
            let (literal, escaped) = until(rest, memchr(b'%', rest));
            let start = out.len();
            out.extend_from_slice(literal);
            if self.lower {
                out[start..].make_ascii_lowercase();
            }
            let Some(byte) = escape(escaped) else {
                // The end, or a percent sign that begins no escape.
                let Some((percent, behind)) = escaped.split_first() else { return };
                out.push(*percent);
                rest = behind;
                continue;
            };
            if is_unreserved(byte) && !ends_in_half_an_escape(out) {
                out.push(if self.lower { byte.to_ascii_lowercase() } else { byte });
            } else {
                out.extend(escaped[..3].iter().map(u8::to_ascii_uppercase));
            }
            rest = &escaped[3..];
        }
    }
}

/// Splits at a position that was searched for, or at the end if it was not found.
fn until(text: &[u8], position: Option<usize>) -> (&[u8], &[u8]) {
    text.split_at(position.unwrap_or(text.len()))
}

/// What isspace(3) says in the C locale. `u8::is_ascii_whitespace` leaves out the vertical tab.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

fn trim_start(mut text: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = text
        && is_space(*first)
    {
        text = rest;
    }
    text
}

fn trim_end(mut text: &[u8]) -> &[u8] {
    while let [rest @ .., last] = text
        && is_space(*last)
    {
        text = rest;
    }
    text
}

/// Looks at every byte, without an early end: so the compiler compares 16 and more at once.
fn has_capital(text: &[u8]) -> bool {
    text.iter().fold(false, |found, byte| found | byte.is_ascii_uppercase())
}

/// The length of the scheme, if the text begins with one and `://`.
fn scheme_length(text: &[u8]) -> Option<usize> {
    let in_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    let length = text.iter().position(|byte| !in_scheme(byte))?;
    (text[length..].starts_with(b"://") && text[0].is_ascii_alphabetic()).then_some(length)
}

/// Whether a URL is certainly in normal form, found in one pass: true saves the work of writing
/// it, false may be wrong (for a port, an escape or a segment that begins with a dot).
fn is_normal(url: &[u8], scheme: usize) -> bool {
    let (scheme, rest) = url.split_at(scheme);
    let rest = &rest[3..];
    let doubtful = |byte: &u8| byte.is_ascii_uppercase() || b"/?#%:".contains(byte);
    let Some(authority) = rest.iter().position(doubtful) else { return false };
    let rest = &rest[authority..];
    // A fold, as in `has_capital`.
    let escape_fragment_or_dot = rest.iter().zip(&rest[1..]).fold(false, |found, (byte, next)| {
        found | (*next == b'%') | (*next == b'#') | ((*byte == b'/') & (*next == b'.'))
    });
    rest[0] == b'/' && !escape_fragment_or_dot && !has_capital(scheme)
}

/// The byte that the escape at the beginning stands for: 0x7E for `%7e...`.
fn escape(text: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = text else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()
}

/// RFC 3986, section 2.3: characters that mean the same escaped and as they are.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// Whether one or two more bytes could complete an escape. Whole escapes are written at once, so
/// a `%` this near to the end began none.
fn ends_in_half_an_escape(out: &[u8]) -> bool {
    match out {
        [.., b'%'] => true,
        [.., b'%', digit] => digit.is_ascii_hexdigit(),
        _ => false,
    }
}

/// Makes the letters of a host small, but not those of its escapes.
fn lower_host(mut host: &mut [u8]) {
    while !host.is_empty() {
        let step = if escape(host).is_some() { 3 } else { 1 };
        let (done, rest) = host.split_at_mut(step);
        if step == 1 {
            done.make_ascii_lowercase();
        }
        host = rest;
    }
}

/// The schemes of the IANA registry that people keep by the million. Never add to this list: keys
/// of existing filters would change.
fn default_port(scheme: &[u8]) -> &'static [u8] {
    match scheme {
        b"http" | b"ws" => b"80",
        b"https" | b"wss" => b"443",
        b"ftp" => b"21",
        _ => b"",
    }
}

/// How many bytes at the end of `host[:port]` say nothing: `:` alone, or with the default port.
///
/// The port begins at the first colon, not the last: in `host::80` this is no port, and stays.
fn port_length(host: &[u8], default: &[u8]) -> usize {
    let name = if host.starts_with(b"[") {
        // An IPv6 address has colons of its own.
        memchr(b']', host).map_or(host.len(), |bracket| bracket + 1)
    } else {
        memchr(b':', host).unwrap_or(host.len())
    };
    match &host[name..] {
        [b':', port @ ..] if port.is_empty() || port == default => 1 + port.len(),
        _ => 0,
    }
}

/// RFC 3986, section 5.2.4, for the absolute path from `start` to the end, in place: `/a/./b/../c`
/// is `/a/c`, `/a/..` is `/`, and nothing is above the root.
fn remove_dot_segments(out: &mut Vec<u8>, start: usize) {
    let mut kept = start;
    let mut read = start;
    // `read` is at the slash before a segment, `kept` never behind it.
    while read < out.len() {
        let end = memchr(b'/', &out[read + 1..]).map_or(out.len(), |at| read + 1 + at);
        let is_last = end == out.len();
        match &out[read + 1..end] {
            b"." | b".." => {
                if end - read == 3 {
                    kept = memrchr(b'/', &out[start..kept]).map_or(start, |at| start + at);
                }
                if is_last {
                    out[kept] = b'/';
                    kept += 1;
                }
            }
            _ => {
                out.copy_within(read..end, kept);
                kept += end - read;
            }
        }
        read = end;
    }
    out.truncate(kept);
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: Normalization = Normalization { crlf: false, trim: false, lower: false, url: true };

    fn every_normalization() -> impl Iterator<Item = Normalization> {
        (0..16).map(|bits| Normalization {
            crlf: bits & 1 != 0,
            trim: bits & 2 != 0,
            lower: bits & 4 != 0,
            url: bits & 8 != 0,
        })
    }

    fn applied(normalization: &Normalization, key: &[u8]) -> Vec<u8> {
        normalization.apply(key, &mut b"left over".to_vec()).to_vec()
    }

    fn named(names: &str, key: &str) -> String {
        let normalization = Normalization::parse(names).expect(names);
        String::from_utf8(applied(&normalization, key.as_bytes()))
            .expect("the test's keys are UTF-8")
    }

    /// Strings of pieces that are hard on a parser of URLs, most of them behind a scheme.
    fn hostile_keys(number: usize) -> impl Iterator<Item = Vec<u8>> {
        const STARTS: [&str; 8] =
            ["http://", "HTTPs://", "ws://h", "http://h/", "x://[", " ", "a", ""];
        const PIECES: [&str; 36] = [
            "a", "A", "f", "F", "G", "4", "1", "2", "5", "e", "E", "%", "%", "%2e", "%2E", "%34",
            "%25", "%41", "%c3", "/", "/", ".", "..", ":", "80", "%38", "443", "?", "#", "[", "]",
            "@", "\r", " ", "://", "\u{e9}",
        ];
        let mut random = inbloom_testing::Random(1);
        (0..number).map(move |_| {
            let start = STARTS[random.index(STARTS.len())];
            let mut key = start.as_bytes().to_vec();
            for _ in 0..random.below(12) {
                let piece = PIECES[random.index(PIECES.len())];
                key.extend_from_slice(piece.as_bytes());
            }
            key
        })
    }

    #[test]
    fn what_is_recorded_is_read_back_and_other_words_are_not() {
        for normalization in every_normalization() {
            assert_eq!(Normalization::parse(&normalization.to_string()), Some(normalization));
        }
        assert_eq!(Normalization::default().to_string(), "");
        let all = Normalization { crlf: true, trim: true, lower: true, url: true };
        assert_eq!(all.to_string(), "crlf,trim,lower,url");
        for text in [",", "lower,trim", "trim,trim", "trim,", ",trim", "trim, url", "Trim", "nfc"] {
            assert_eq!(Normalization::parse(text), None, "{text}");
        }
    }

    #[test]
    fn rules_make_the_same_normalization_in_any_order() {
        let expected = Normalization { crlf: false, trim: true, lower: true, url: true };
        for rules in [[Rule::Url, Rule::Lower, Rule::Trim], [Rule::Trim, Rule::Url, Rule::Lower]] {
            assert_eq!(Normalization::from_iter(rules), expected);
        }
        assert!(Normalization::from_iter([]).is_none());
        // The names on the command line are those in the file.
        for rule in Rule::value_variants() {
            let name = rule.to_possible_value().expect("no rule is hidden");
            assert_eq!(Normalization::from_iter([*rule]).to_string(), name.get_name());
        }
    }

    #[test]
    fn each_rule_does_what_it_says_and_no_more() {
        for (names, key, expected) in [
            ("", " A\r", " A\r"),
            ("crlf", "a\r", "a"),
            ("crlf", "a\r\r", "a\r"),
            ("crlf", "\ra ", "\ra "),
            ("crlf", "", ""),
            ("trim", " \t\r\n\u{b}\u{c}a b \t\r\n\u{b}\u{c}", "a b"),
            ("trim", " \t ", ""),
            ("trim", "\u{a0}a\u{85}", "\u{a0}a\u{85}"),
            ("crlf,trim", " a \r", "a"),
            ("lower", "AZaz09@[`{", "azaz09@[`{"),
            // Letters beyond ASCII keep their case.
            ("lower", "\u{c9}T\u{c9} \u{130}", "\u{c9}t\u{c9} \u{130}"),
            ("crlf,trim,lower", " Alice \r", "alice"),
        ] {
            assert_eq!(named(names, key), expected, "{names} of {key:?}");
        }
        let not_utf8 = Normalization { lower: true, ..Normalization::default() };
        assert_eq!(applied(&not_utf8, b"\xFFA\x80"), b"\xFFa\x80");
    }

    #[test]
    fn urls_that_the_standard_calls_equivalent_are_one_key() {
        for (key, expected) in [
            (
                "HTTP://www.EXAMPLE.com:80/%7esmith/a/./b/../c#x",
                "http://www.example.com/~smith/a/c",
            ),
            // The examples of section 6.2.2, 6.2.2.1 to 6.2.2.3, and 6.2.3.
            ("eXAMPLE://a/./b/../b/%63/%7bfoo%7d", "example://a/b/c/%7Bfoo%7D"),
            ("HTTP://www.EXAMPLE.com/", "http://www.example.com/"),
            ("http://example.com", "http://example.com/"),
            ("http://example.com/", "http://example.com/"),
            ("http://example.com:/", "http://example.com/"),
            ("http://example.com:80/", "http://example.com/"),
            // Of section 5.4, dot segments behind a base.
            ("http://a/b/c/./g", "http://a/b/c/g"),
            ("http://a/b/c/g/.", "http://a/b/c/g/"),
            ("http://a/b/c/..", "http://a/b/"),
            ("http://a/b/c/../..", "http://a/"),
            ("http://a/../../../g", "http://a/g"),
            ("http://a/b/c/g.", "http://a/b/c/g."),
            ("http://a/b/c/..g", "http://a/b/c/..g"),
            ("http://a/b/c/g;x=1/../y", "http://a/b/c/y"),
            ("http://a/b/c/g?y/../x", "http://a/b/c/g?y/../x"),
            ("http://a/mid/content=5/../6", "http://a/mid/6"),
            ("http://a//b//../c", "http://a//b/c"),
            // Ports, by scheme.
            ("https://h:443", "https://h/"),
            ("ftp://h:21/a", "ftp://h/a"),
            ("ws://h:80/", "ws://h/"),
            ("WSS://h:443?q", "wss://h/?q"),
            ("http://h:%38%30/", "http://h/"),
            ("http://u:80@h:80/", "http://u:80@h/"),
            ("http://[2001:DB8::1]:80/", "http://[2001:db8::1]/"),
            ("http://[::80]", "http://[::80]/"),
            ("http://[::1]:8080/", "http://[::1]:8080/"),
            ("http://h:443/", "http://h:443/"),
            ("https://h:80/", "https://h:80/"),
            ("http://h::80/", "http://h::80/"),
            // Escapes: dots before they are removed, none twice, hosts in lowercase.
            ("http://h/a/%2E%2e/b", "http://h/b"),
            ("http://h/%252E%252e/b", "http://h/%252E%252e/b"),
            ("http://EX%41mple%2fcom/", "http://example%2Fcom/"),
            ("http://h/%c3%bc?%41%3d%26", "http://h/%C3%BC?A%3D%26"),
            ("http://Us%65r@H/", "http://User@h/"),
            ("http://h/%zz%4", "http://h/%zz%4"),
            ("http://h/%%34%31%4%31", "http://h/%%341%4%31"),
            // Empty parts.
            ("http://h?", "http://h/?"),
            ("http://h#", "http://h/"),
            ("file:///a/../B", "file:///B"),
            ("http://", "http:///"),
        ] {
            assert_eq!(named("url", key), expected, "{key}");
        }
    }

    #[test]
    fn urls_that_may_differ_stay_different() {
        let keys = [
            "http://h/a",
            "http://h/a/",
            "http://h/A",
            "http://h/a?",
            "http://h/a?x=1&y=2",
            "http://h/a?y=2&x=1",
            "http://h//a",
            "https://h/a",
            "http://h:81/a",
            "http://h./a",
            "http://www.h/a",
            "http://u@h/a",
            "http://U@h/a",
            "http://@h/a",
            "http://h/%2Fa",
            "http://h/%252Fa",
            "http://h/a?x=1+2",
            "http://h/a?x=1%202",
        ];
        let normalized: std::collections::HashSet<_> =
            keys.iter().map(|key| named("url", key)).collect();
        assert_eq!(normalized.len(), keys.len(), "{normalized:?}");
    }

    #[test]
    fn what_is_no_url_is_left_as_it_is() {
        for key in [
            "",
            ":",
            "://",
            "://H/..",
            "A",
            "A/../b#c",
            "//H/a",
            "http:/H/a",
            "http:H",
            "1x://H/..",
            "mailto:A%41@B",
            " http://H/",
            "h_p://H",
            "/a/../b",
            "Http",
            "Http:",
            "Http:/",
            "%41",
        ] {
            assert_eq!(named("url", key), key);
        }
    }

    #[test]
    fn rules_together_treat_decoded_letters_and_uncovered_spaces_like_others() {
        for (names, key, expected) in [
            ("lower,url", "http://h/%41%c3%4", "http://h/a%C3%4"),
            ("lower,url", "http://h/A", "http://h/a"),
            ("lower,url", "No URL", "no url"),
            ("trim,url", " http://H/a/. #x ", "http://h/a/"),
            ("trim,url", "http:// #x", "http:///"),
            ("crlf,url", "http://H\r", "http://h/"),
            ("crlf,trim,lower,url", " HTTP://H/B?C=D%2f \r", "http://h/b?c=d%2F"),
        ] {
            assert_eq!(named(names, key), expected, "{names} of {key:?}");
        }
    }

    #[test]
    fn what_is_normalized_stays_the_same() {
        // By itself, crlf takes a second carriage return.
        let stable = |normalization: &Normalization| normalization.trim || !normalization.crlf;
        let normalizations: Vec<_> = every_normalization().filter(stable).collect();
        for key in hostile_keys(200_000) {
            for normalization in &normalizations {
                let once = applied(normalization, &key);
                let twice = applied(normalization, &once);
                assert!(
                    once == twice,
                    "{normalization}: {} became {} and then {}",
                    key.escape_ascii(),
                    once.escape_ascii(),
                    twice.escape_ascii()
                );
            }
        }
    }

    #[test]
    fn every_short_path_and_authority_is_stable() {
        let alphabet = b"%42eG./:?@[]";
        for prefix in ["http://", "http://h/"] {
            for number in 0..alphabet.len().pow(5) {
                let mut key = prefix.as_bytes().to_vec();
                let mut digits = number;
                for _ in 0..5 {
                    key.push(alphabet[digits % alphabet.len()]);
                    digits /= alphabet.len();
                }
                let once = applied(&URL, &key);
                assert!(applied(&URL, &once) == once, "{}", key.escape_ascii());
            }
        }
    }

    #[test]
    fn the_quick_answer_is_that_of_the_careful_one() {
        let mut quick = 0;
        for key in hostile_keys(200_000) {
            let Some(scheme) = scheme_length(&key) else { continue };
            if is_normal(&key, scheme) {
                let mut careful = Vec::new();
                URL.write_url(&key, scheme, &mut careful);
                assert!(careful == key, "{}", key.escape_ascii());
                quick += 1;
            }
        }
        assert!(quick > 1_000, "only {quick} keys took the quick way");
    }

    #[test]
    fn normal_keys_are_borrowed() {
        let all = Normalization { crlf: true, trim: true, lower: true, url: true };
        for key in ["http://example.com/a/b.html?q=1", "alice", "", "alice\r"] {
            let mut scratch = Vec::new();
            all.apply(key.as_bytes(), &mut scratch);
            assert_eq!(scratch.capacity(), 0, "{key}");
        }
    }
}
