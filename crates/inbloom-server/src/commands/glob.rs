//! Patterns of KEYS, SCAN and CONFIG GET, as Redis reads them.
//!
//! | in a pattern | stands for |
//! |---|---|
//! | `*` | any bytes, or none |
//! | `?` | any byte |
//! | `[ab]`, `[a-c]`, `[^a-c]` | one of these, of a range, none of it; the last `]` may be missing |
//! | `\x` | `x` itself, also in a class |
//!
//! Everything but a star stands for exactly one byte. So if the pattern fails behind a star, only
//! the last star has to be tried further: what an earlier one has left is enough for the later
//! ones wherever they begin. One place to go back to, no recursion (Redis's own overflowed the
//! stack: CVE-2024-31228), and at most the product of both lengths in steps.

/// Returns whether a pattern matches the whole of a text.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut done) = (0, 0);
    // Behind the last star, and up to where it reached so far.
    let mut star = None;
    while done < text.len() {
        let fits = match pattern.get(at) {
            Some(b'*') => {
                at += 1;
                if at == pattern.len() {
                    return true;
                }
                star = Some((at, done));
                continue;
            }
            Some(_) => one(&pattern[at..], text[done]),
            None => None,
        };
        match (fits, star) {
            (Some(length), _) => {
                at += length;
                done += 1;
            }
            (None, Some((behind, reached))) => {
                star = Some((behind, reached + 1));
                (at, done) = (behind, reached + 1);
            }
            (None, None) => return false,
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// Matches the first element of a pattern, not a star, with a byte. Its length if it fits.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'[', ..] => class(pattern, byte),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [literal, ..] => (*literal == byte).then_some(1),
        [] => None,
    }
}

/// Matches a class, which begins with its bracket.
fn class(pattern: &[u8], byte: u8) -> Option<usize> {
    let is_negated = pattern.get(1) == Some(&b'^');
    let mut at = if is_negated { 2 } else { 1 };
    let mut found = false;
    let end = loop {
        let (fits, length) = match &pattern[at..] {
            [] => break at,
            [b'\\', escaped, ..] => (*escaped == byte, 2),
            [b']', ..] => break at + 1,
            // Either end may be the larger one.
            [from, b'-', to, ..] => ((*from.min(to)..=*from.max(to)).contains(&byte), 3),
            [literal, ..] => (*literal == byte, 1),
        };
        found |= fits;
        at += length;
    };
    (found != is_negated).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The plain definition: read the pattern into elements, then try every length of every star.
    enum Element {
        Star,
        Any,
        Literal(u8),
        Class { is_negated: bool, ranges: Vec<(u8, u8)> },
    }

    fn elements(pattern: &[u8]) -> Vec<Element> {
        let mut rest = pattern.iter().copied().peekable();
        let mut elements = Vec::new();
        while let Some(byte) = rest.next() {
            elements.push(match byte {
                b'*' => Element::Star,
                b'?' => Element::Any,
                b'\\' => Element::Literal(rest.next().unwrap_or(b'\\')),
                b'[' => {
                    let is_negated = rest.next_if_eq(&b'^').is_some();
                    let mut ranges = Vec::new();
                    while let Some(first) = rest.next() {
                        let mut ahead = rest.clone();
                        let range = (ahead.next(), ahead.next());
                        match (first, range) {
                            (b'\\', (Some(escaped), _)) => {
                                ranges.push((escaped, escaped));
                                rest.next();
                            }
                            (b']', _) => break,
                            (from, (Some(b'-'), Some(to))) => {
                                ranges.push((from.min(to), from.max(to)));
                                rest = ahead;
                            }
                            (literal, _) => ranges.push((literal, literal)),
                        }
                    }
                    Element::Class { is_negated, ranges }
                }
                literal => Element::Literal(literal),
            });
        }
        elements
    }

    fn naive(elements: &[Element], text: &[u8]) -> bool {
        let Some((first, others)) = elements.split_first() else { return text.is_empty() };
        if let Element::Star = first {
            return (0..=text.len()).any(|length| naive(others, &text[length..]));
        }
        let Some((byte, rest)) = text.split_first() else { return false };
        let fits = match first {
            Element::Star | Element::Any => true,
            Element::Literal(literal) => literal == byte,
            Element::Class { is_negated, ranges } => {
                ranges.iter().any(|(from, to)| (from..=to).contains(&byte)) != *is_negated
            }
        };
        fits && naive(others, rest)
    }

    #[test]
    fn every_element_matches_what_redis_says() {
        let yes = [
            ("", ""),
            ("*", ""),
            ("*", "any"),
            ("h?llo", "hello"),
            ("h*llo", "hllo"),
            ("h[ae]llo", "hallo"),
            ("h[^e]llo", "hallo"),
            ("h[a-b]llo", "hbllo"),
            ("h[b-a]llo", "hallo"),
            ("[a-c^]", "^"),
            ("[a-c^]", "b"),
            ("a\\*b", "a*b"),
            ("a\\", "a\\"),
            ("[\\]]", "]"),
            ("[\\-x]", "-"),
            ("[abc", "c"),
            ("[a-]", "_"),
            ("[^]", "x"),
            ("*[0-9]", "key7"),
            ("a**b", "ab"),
            ("\\a", "a"),
        ];
        let no = [
            ("[", "["),
            ("", "a"),
            ("a", ""),
            ("?", ""),
            ("h?llo", "hllo"),
            ("h[^e]llo", "hello"),
            ("a\\*b", "axb"),
            ("[]", "]"),
            ("[]a]", "a"),
            ("*a", "ab"),
            ("a*b*c", "acb"),
            ("hello", "HELLO"),
            ("[\\-x]", "\\"),
            ("[a-c]", "d"),
        ];
        for (pattern, text) in yes {
            assert!(matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        for (pattern, text) in no {
            assert!(!matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
    }

    #[test]
    fn all_short_patterns_match_what_the_plain_definition_matches() {
        // 300,000 pairs: patterns of up to 7 and texts of up to 6 bytes, from a fixed generator.
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 33) as usize % below
        };
        let mut hits = 0;
        for _ in 0..300_000 {
            let pattern: Vec<u8> = (0..random(8)).map(|_| b"ab*?[]^-\\c"[random(10)]).collect();
            let text: Vec<u8> = (0..random(7)).map(|_| b"abc]-^\\"[random(7)]).collect();
            let expected = naive(&elements(&pattern), &text);
            hits += usize::from(expected);
            assert_eq!(matches(&pattern, &text), expected, "{pattern:?} {text:?}");
        }
        assert!(hits > 10_000, "only {hits} pairs matched: the generator tests nothing");
    }

    #[test]
    fn a_hostile_pattern_takes_no_more_than_the_product_of_the_lengths() {
        // Exponential or recursive matchers do not come back from this, or overflow the stack.
        let text = vec![b'a'; 10_000];
        let mut pattern = b"*a".repeat(5_000);
        assert!(matches(&pattern, &text));
        pattern.push(b'b');
        assert!(!matches(&pattern, &text));
        assert!(matches(&vec![b'*'; 1_000_000], b"x"));
    }
}
