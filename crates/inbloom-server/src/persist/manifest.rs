//! Which files count: a text that is replaced as a whole when a snapshot is complete.
//!
//! ```text
//!   inbloom data 1
//!   hash xxh3-128
//!   log 52
//!   tail 90
//!   next 1007
//!   pack 12
//!   pack 977
//!   sum 0123456789abcdef
//! ```
//!
//! In words: the hash of its filters; the first record of the log that is still needed; the first
//! record of the log's newest file when this was written; a number that neither a filter nor a file has
//! had; the files of snapshots, the oldest first. What a later one says of
//! a filter is newer. The sum is XXH3-64 of all lines before.

use std::io::{self, Read};

use inbloom::Hasher;
use xxhash_rust::xxh3::xxh3_64;

use super::disk::Disk;
use super::{Error, segment};

/// The name of the file.
pub const NAME: &str = "MANIFEST";
const DRAFT: &str = "MANIFEST.new";
/// The version that is written, and the newest that is read.
const VERSION: u32 = 1;
/// Some thousand files of snapshots; there are never so many.
const LONGEST: u64 = 1 << 20;

/// What the text says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// How the keys of filters are hashed; a keyed hash with a check of its key.
    pub hash: String,
    /// The first record of the log that is needed.
    pub log: u64,
    /// The first record of a file of the log that is there, with all records before it.
    pub tail: u64,
    /// No filter and no file has this number or a larger one.
    pub next: u64,
    /// The files of snapshots, the oldest first.
    pub packs: Vec<u64>,
}

/// How a hash is recognized: by its name, and by what it makes of a text.
pub fn hash_name(hasher: &Hasher) -> String {
    format!("{} {:016x}", hasher.name().replace(' ', "_"), hasher.digest("inbloom").place)
}

impl Manifest {
    /// Of a new folder.
    pub fn new(hasher: &Hasher) -> Manifest {
        Manifest { hash: hash_name(hasher), log: 1, tail: 1, next: 1, packs: Vec::new() }
    }

    fn text(&self) -> String {
        let mut text = format!(
            "inbloom data {VERSION}\nhash {}\nlog {}\ntail {}\nnext {}\n",
            self.hash, self.log, self.tail, self.next
        );
        for pack in &self.packs {
            text += &format!("pack {pack}\n");
        }
        let sum = xxh3_64(text.as_bytes());
        text + &format!("sum {sum:016x}\n")
    }

    fn parse(text: &str) -> Result<Manifest, Error> {
        let damaged = |what: &str| Error::Manifest { what: what.to_owned() };
        let version = text.lines().next().and_then(|line| line.strip_prefix("inbloom data "));
        let version: u32 = version
            .and_then(|version| version.parse().ok())
            .ok_or_else(|| damaged("it does not begin with 'inbloom data' and a version"))?;
        if version > VERSION {
            return Err(Error::Newer { what: NAME.to_owned(), version, known: VERSION });
        }
        let at = text.rfind("sum ").ok_or_else(|| damaged("it has no sum"))?;
        let (lines, sum) = text.split_at(at);
        if sum.trim_end() != format!("sum {:016x}", xxh3_64(lines.as_bytes())) {
            return Err(damaged("its sum is wrong"));
        }
        let hash = String::new();
        let mut manifest = Manifest { hash, log: 0, tail: 0, next: 0, packs: Vec::new() };
        for line in lines.lines().skip(1) {
            let (word, value) =
                line.split_once(' ').ok_or_else(|| damaged("a line of one word"))?;
            let number = || value.parse::<u64>().map_err(|_| damaged(line));
            match word {
                "hash" => manifest.hash = value.to_owned(),
                "log" => manifest.log = number()?,
                "tail" => manifest.tail = number()?,
                "next" => manifest.next = number()?,
                "pack" => manifest.packs.push(number()?),
                _ => return Err(damaged(line)),
            }
        }
        if manifest.hash.is_empty() || manifest.log == 0 || manifest.next == 0 {
            return Err(damaged("it has no hash, no log or no next"));
        }
        if manifest.tail == 0 {
            return Err(Error::Older { line: "tail" });
        }
        if manifest.tail < manifest.log {
            return Err(damaged("its tail is before its log"));
        }
        Ok(manifest)
    }

    /// That of a folder; None if it has none.
    pub fn read(disk: &dyn Disk) -> Result<Option<Manifest>, Error> {
        let file = match disk.open(NAME) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("cannot open", NAME)(error)),
        };
        let mut text = String::new();
        match file.take(LONGEST).read_to_string(&mut text) {
            Ok(_) => Manifest::parse(&text).map(Some),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(Error::Manifest { what: "it is not UTF-8 text".to_owned() })
            }
            Err(error) => Err(Error::io("cannot read", NAME)(error)),
        }
    }

    /// Puts it in the place of the old one: all of it or nothing.
    pub fn write(&self, disk: &dyn Disk) -> io::Result<()> {
        let file = disk.create(DRAFT)?;
        file.append(self.text().as_bytes())?;
        file.sync()?;
        disk.rename(DRAFT, NAME)?;
        disk.sync_names()
    }

    /// Whether a file of the folder belongs to it. Others are left-overs of a snapshot that was not
    /// completed, or none of ours.
    pub fn needs(&self, name: &str) -> bool {
        name == NAME
            || segment::first_of(name).is_some_and(|first| first >= self.log)
            || self.packs.iter().any(|pack| segment::pack_name(*pack) == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let hash = hash_name(&Hasher::default());
        Manifest { hash, log: 52, tail: 90, next: 1007, packs: vec![12, 977] }
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written() {
        let manifest = manifest();
        assert_eq!(Manifest::parse(&manifest.text()).expect("sound"), manifest);
    }

    #[test]
    fn a_damaged_manifest_is_refused() {
        let text = manifest().text();
        for cut in 0..text.len() - 1 {
            assert!(Manifest::parse(&text[..cut]).is_err(), "cut at {cut}");
        }
        for at in 0..text.len() - 1 {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            if let Ok(text) = String::from_utf8(bytes) {
                assert!(Manifest::parse(&text).is_err(), "changed at {at}");
            }
        }
    }

    #[test]
    fn a_newer_version_is_told_with_the_remedy() {
        let text = manifest().text().replace("inbloom data 1", "inbloom data 2");
        let error = Manifest::parse(&text).expect_err("newer");
        assert!(error.to_string().contains("upgrade"), "{error}");
    }

    #[test]
    fn a_manifest_of_before_there_was_a_tail_is_told_from_a_damaged_one() {
        let text = manifest().text().replace("tail 90\n", "");
        let (lines, _) = text.split_at(text.rfind("sum ").expect("a sum"));
        let sum = xxh3_64(lines.as_bytes());
        let error = Manifest::parse(&format!("{lines}sum {sum:016x}\n")).expect_err("older");
        let error = error.to_string();
        assert!(error.contains("an older inbloom wrote this folder"), "{error}");
        assert!(error.contains("DUMP and RESTORE") && !error.contains("damaged"), "{error}");
    }

    #[test]
    fn hashes_differ_by_scheme_and_key() {
        let key = |byte| inbloom::Hasher::sip13(inbloom::SecretKey::new([byte; 16]));
        let names = [Hasher::default(), Hasher::xxh3(1), key(1), key(2)].map(|it| hash_name(&it));
        let distinct: std::collections::HashSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), 4);
    }
}
