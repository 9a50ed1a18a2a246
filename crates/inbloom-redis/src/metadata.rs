//! What a server holds about a filter: one JSON text that never changes, in two copies under `ib:m:NAME`
//! and `ib:c:{TAG}:NAME`.
//!
//! ```json
//! {"v":1,"id":"5f0c...","kind":"blocked","items":1000000,"rate":0.01,"bits":10124288,"probes":8,
//!  "lines":1,"chunk_blocks":16383,"chunks":2,"groups":2,"hash":1,"hash_value":"0","created":1795000000}
//! ```
//!
//! The fields come in any order. `id` identifies one creation of the filter. The keys of its chunks
//! contain it, so a filter that is deleted and created again shares no key with the earlier one.
//! `hash` is the number of the hash scheme as in files (docs/format.md), `hash_value` its seed or
//! the check of its secret key, in hexadecimal. `note` and `normalization` exist if the filter has
//! them. `pushed` has two counts from the header of a pushed file: the keys that were new, and the
//! bits that are set.
//!
//! The two copies together give the state of the filter (`description.rs` has the order in which
//! they are written):
//!
//! | `ib:m:` | `ib:c:` | the filter |
//! |---|---|---|
//! | there | the same text | is there |
//! | there, lasting | none, or another text | is lost: a server lost the copy |
//! | there, fading | any | is there |
//! | none | there, lasting | is lost: a server lost the first |
//! | none | none, or fading | is missing |
//!
//! A copy is fading if it expires within a minute. That covers clients that stop between two
//! commands, and differences of up to a minute between the servers' clocks.

use std::time::Duration;

use inbloom::internals::chunks::Chunks;
use inbloom::{Kind, Plan};
use serde_json::{Map, Value};

use crate::layout::groups;

/// The version that is written, and the only one that is read.
const VERSION: u64 = 1;

/// The longest description that is read: two texts of 64 KiB, each byte escaped, and the fields.
pub(crate) const MAX_BYTES: usize = (2 * 6 * (64 << 10)) + 4096;

/// What a server holds about a filter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Metadata {
    /// Names this incarnation of the filter.
    pub id: u64,
    pub plan: Plan,
    /// The number of the hash scheme, and its seed or the check of its key.
    pub hash: (u16, u64),
    pub note: String,
    pub normalization: String,
    /// Seconds since 1970.
    pub created: u64,
    pub pushed: Option<Pushed>,
}

/// What the header of a pushed file counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pushed {
    /// Keys that were new.
    pub inserted: u64,
    /// Bits that are set. As long as the server has as many, `inserted` holds.
    pub ones: u64,
}

/// A copy that has at most so long to live says nothing about the other.
pub(crate) const FADING: Duration = Duration::from_secs(60);

/// What a server answered about one copy of a description.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reply {
    /// Empty if it is not there.
    pub json: Vec<u8>,
    /// As PTTL has it: -1 if it does not expire, -2 if it is not there.
    pub millis_left: i64,
}

/// One copy of a description.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Held {
    pub json: Vec<u8>,
    pub metadata: Metadata,
    /// Whether it is not fading.
    lasts: bool,
}

impl Held {
    fn decode(reply: &Reply) -> Result<Option<Held>, String> {
        let Reply { json, millis_left } = reply;
        if json.is_empty() || *millis_left == -2 {
            return Ok(None);
        }
        let lasts = *millis_left == -1 || i128::from(*millis_left) > FADING.as_millis() as i128;
        Ok(Some(Held { json: json.clone(), metadata: Metadata::decode(json)?, lasts }))
    }
}

/// Both copies of a description, as far as they are there.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Copies {
    pub first: Option<Held>,
    pub second: Option<Held>,
}

/// What both copies say about a filter.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "one at a time, beside calls over a network")]
pub(crate) enum Verdict {
    /// There is none.
    Missing,
    /// It is there.
    Whole(Held),
    /// A server has lost one of the copies.
    Half(Copies),
}

impl Copies {
    /// Reads both. Returns what is wrong with one of them.
    pub fn decode(first: &Reply, second: &Reply) -> Result<Copies, String> {
        Ok(Copies { first: Held::decode(first)?, second: Held::decode(second)? })
    }

    /// Returns what they say together: the table above.
    pub fn judge(self) -> Verdict {
        match (&self.first, &self.second) {
            (Some(first), Some(second)) if first.json == second.json => {
                Verdict::Whole(first.clone())
            }
            (Some(first), _) if !first.lasts => Verdict::Whole(first.clone()),
            (None, Some(second)) if !second.lasts => Verdict::Missing,
            (None, None) => Verdict::Missing,
            _ => Verdict::Half(self),
        }
    }
}

impl Metadata {
    /// Returns the text that the server keeps. Fails for plans that cannot be kept in Redis.
    pub fn encode(&self) -> inbloom::Result<String> {
        let (plan, chunks) = (&self.plan, Chunks::new(&self.plan)?);
        let mut fields = Map::new();
        let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
        set("v", VERSION.into());
        set("id", format!("{:016x}", self.id).into());
        set("kind", plan.kind().to_string().into());
        set("items", plan.items().into());
        set("rate", plan.rate().into());
        set("bits", plan.bits().into());
        set("probes", plan.probes().into());
        set("lines", plan.lines().into());
        set("chunk_blocks", (chunks.bytes(0) / Chunks::BLOCK).into());
        set("chunks", chunks.count().into());
        set("groups", groups(chunks.count()).into());
        set("hash", self.hash.0.into());
        set("hash_value", format!("{:x}", self.hash.1).into());
        set("created", self.created.into());
        for (name, text) in [("note", &self.note), ("normalization", &self.normalization)] {
            if !text.is_empty() {
                set(name, text.as_str().into());
            }
        }
        if let Some(Pushed { inserted, ones }) = self.pushed {
            set("pushed", vec![inserted, ones].into());
        }
        Ok(Value::Object(fields).to_string())
    }

    /// Reads a text that a server has. Returns what is wrong with it.
    pub fn decode(text: &[u8]) -> Result<Metadata, String> {
        if text.len() > MAX_BYTES {
            return Err(format!("it is longer than {MAX_BYTES} bytes"));
        }
        let value: Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let field = |name: &str| value.get(name).ok_or_else(|| format!("{name:?} is missing"));
        let number = |name: &str| {
            field(name)?.as_u64().ok_or_else(|| format!("{name:?} is not a whole number"))
        };
        let hexadecimal = |name: &str| {
            let digits = field(name)?.as_str().and_then(|text| u64::from_str_radix(text, 16).ok());
            digits.ok_or_else(|| format!("{name:?} is not a hexadecimal number"))
        };
        let text = |name: &str| match value.get(name) {
            None => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(_) => Err(format!("{name:?} is not a text")),
        };
        match number("v")? {
            VERSION => {}
            other => {
                return Err(format!(
                    "version {other}, this inbloom reads version {VERSION}: upgrade inbloom"
                ));
            }
        }
        if text("kind")? != Kind::Blocked.to_string() {
            return Err(format!("kind {:?} cannot be kept in Redis, only blocked", text("kind")?));
        }
        let rate = field("rate")?.as_f64().ok_or("\"rate\" is not a number")?;
        let small = |name: &str| {
            u32::try_from(number(name)?).map_err(|_| format!("{name:?} is out of range"))
        };
        let (probes, lines) = (small("probes")?, small("lines")?);
        let plan = Plan::blocked(number("items")?, rate, number("bits")?, probes, lines);
        let plan = plan.map_err(|error| error.to_string())?;
        // What follows from the plan is there for readers of other languages, and must be right.
        let chunks = Chunks::new(&plan).map_err(|error| error.to_string())?;
        for (name, expected) in [
            ("chunk_blocks", (chunks.bytes(0) / Chunks::BLOCK) as u64),
            ("chunks", chunks.count()),
            ("groups", groups(chunks.count())),
        ] {
            let got = number(name)?;
            if got != expected {
                return Err(format!("{name:?} is {got}, but {expected} follow from the plan"));
            }
        }
        let pushed = match value.get("pushed").map(|pushed| pushed.as_array().map(Vec::as_slice)) {
            None => None,
            Some(Some([inserted, ones])) => match (inserted.as_u64(), ones.as_u64()) {
                (Some(inserted), Some(ones)) => Some(Pushed { inserted, ones }),
                _ => return Err("\"pushed\" are not two whole numbers".to_owned()),
            },
            Some(_) => return Err("\"pushed\" are not two whole numbers".to_owned()),
        };
        let hash = u16::try_from(number("hash")?).map_err(|_| "\"hash\" is out of range")?;
        Ok(Metadata {
            id: hexadecimal("id")?,
            plan,
            hash: (hash, hexadecimal("hash_value")?),
            note: text("note")?,
            normalization: text("normalization")?,
            created: number("created")?,
            pushed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Metadata {
        let plan = Plan::builder(Kind::Blocked).items(3_000_000).rate(0.001 / 3.0);
        Metadata {
            id: 0x0012_3456_789a_bcde,
            plan: plan.build().expect("a plan"),
            hash: (2, u64::MAX),
            note: "quotes \" and \n".to_owned(),
            normalization: "url".to_owned(),
            created: 1_795_000_000,
            pushed: Some(Pushed { inserted: 5, ones: 40 }),
        }
    }

    #[test]
    fn what_was_encoded_is_decoded() {
        let full = sample();
        let bare = Metadata {
            note: String::new(),
            normalization: String::new(),
            pushed: None,
            ..full.clone()
        };
        for metadata in [full, bare] {
            let text = metadata.encode().expect("a blocked plan");
            assert_eq!(Metadata::decode(text.as_bytes()).as_ref(), Ok(&metadata), "{text}");
        }
    }

    /// Servers keep it: what was written once is read forever.
    #[test]
    fn the_first_version_stays_readable() {
        let text = r#"{"v":1,"id":"00123456789abcde","kind":"blocked","items":1000,"rate":0.01,
            "bits":10240,"probes":8,"lines":1,"chunk_blocks":20,"chunks":1,"groups":1,"hash":1,
            "hash_value":"2a","created":1795000000}"#;
        let metadata = Metadata::decode(text.as_bytes()).expect("it is valid");
        let plan = Plan::blocked(1000, 0.01, 10_240, 8, 1).expect("a plan");
        assert_eq!((metadata.plan, metadata.hash), (plan, (1, 42)));
        assert_eq!((metadata.id, metadata.created), (0x0012_3456_789a_bcde, 1_795_000_000));
    }

    #[test]
    fn one_copy_without_the_other_is_a_loss_unless_it_fades() {
        let text = |id| Metadata { id, ..sample() }.encode().expect("a blocked plan").into_bytes();
        let reply = |id: u64, millis_left| match id {
            0 => Reply { json: Vec::new(), millis_left: -2 },
            _ => Reply { json: text(id), millis_left },
        };
        let minute = 60_000;
        for (first, second, expected) in [
            ((0, -2), (0, -2), "missing"),
            ((1, -1), (1, -1), "whole"),
            ((1, -1), (1, minute), "whole"),
            ((1, minute), (1, minute), "whole"),
            ((1, minute), (0, -2), "whole"),
            ((1, minute), (2, -1), "whole"),
            ((1, minute + 1), (0, -2), "half"),
            ((1, -1), (0, -2), "half"),
            ((1, -1), (2, -1), "half"),
            ((1, -1), (2, minute), "half"),
            ((0, -2), (1, -1), "half"),
            ((0, -2), (1, minute + 1), "half"),
            ((0, -2), (1, minute), "missing"),
            ((0, -2), (1, 0), "missing"),
        ] {
            let copies = Copies::decode(&reply(first.0, first.1), &reply(second.0, second.1));
            let got = match copies.expect("valid").judge() {
                Verdict::Missing => "missing",
                Verdict::Whole(held) => {
                    assert_eq!(held.metadata.id, first.0);
                    "whole"
                }
                Verdict::Half(_) => "half",
            };
            assert_eq!(got, expected, "{first:?} {second:?}");
        }
        // One that was deleted between the two commands that read it.
        let gone = Reply { json: text(1), millis_left: -2 };
        let copies = Copies::decode(&gone, &gone).expect("valid");
        assert_eq!(copies.judge(), Verdict::Missing);
        let damaged = Reply { json: b"hello".to_vec(), millis_left: -1 };
        assert!(Copies::decode(&gone, &damaged).is_err());
    }

    #[test]
    fn what_is_damaged_is_refused_and_named() {
        let text = sample().encode().expect("a blocked plan");
        let replaced = |from: &str, to: &str| {
            assert!(text.contains(from), "{text}");
            text.replace(from, to)
        };
        for (text, problem) in [
            (String::new(), "EOF"),
            ("[]".to_owned(), "\"v\" is missing"),
            (replaced("\"v\":1", "\"v\":2"), "upgrade inbloom"),
            (replaced("\"kind\":\"blocked\"", "\"kind\":\"cuckoo\""), "only blocked"),
            (replaced("\"probes\":12", "\"probes\":7"), "probes is 7"),
            (replaced("\"chunks\":", "\"chunks\":1"), "follow from the plan"),
            (replaced("\"id\":\"00", "\"id\":\"xx"), "hexadecimal"),
            (replaced("\"pushed\":[5,40]", "\"pushed\":[5]"), "pushed"),
            (replaced("\"pushed\":[5,40]", "\"pushed\":7"), "pushed"),
            (" ".repeat(MAX_BYTES + 1), "longer than"),
        ] {
            let error = Metadata::decode(text.as_bytes()).expect_err("it is damaged");
            assert!(error.contains(problem), "{error}");
        }
        for end in 0..text.len() {
            assert!(Metadata::decode(&text.as_bytes()[..end]).is_err());
        }
    }
}
