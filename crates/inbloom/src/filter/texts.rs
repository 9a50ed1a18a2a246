//! Facts about a filter beside its content: a note, how its keys were normalized and encoded, and
//! the format of its file.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::Filter;
use crate::compose::sharded::Sharded;
use crate::error::{Error, Result};
use crate::foreign::Container;

/// Facts about a filter beside its content. Most filters have none, so the type takes one word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Texts(Option<Box<Particulars>>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Particulars {
    texts: [String; 3],
    /// The bytes that the file of another program has beside its filter.
    attached: Vec<u8>,
    container: Option<Container>,
}

impl Texts {
    pub(crate) const NOTE: usize = 0;
    pub(crate) const NORMALIZATION: usize = 1;
    pub(crate) const ENCODING: usize = 2;

    pub(crate) fn get(&self, which: usize) -> &str {
        self.0.as_ref().map_or("", |kept| &kept.texts[which])
    }

    pub(crate) fn set(&mut self, which: usize, text: String) {
        if !text.is_empty() || self.0.is_some() {
            self.0.get_or_insert_default().texts[which] = text;
        }
    }

    pub(crate) fn attached(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |kept| &kept.attached)
    }

    pub(crate) fn attach(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() || self.0.is_some() {
            self.0.get_or_insert_default().attached = bytes;
        }
    }

    pub(crate) fn container(&self) -> Option<Container> {
        self.0.as_ref().and_then(|kept| kept.container)
    }

    pub(crate) fn set_container(&mut self, container: Option<Container>) {
        if container.is_some() || self.0.is_some() {
            self.0.get_or_insert_default().container = container;
        }
    }
}

impl Filter {
    /// Returns the note: free text about the filter, kept in its file.
    #[must_use]
    pub fn note(&self) -> &str {
        self.texts.get(Texts::NOTE)
    }

    /// Sets the note.
    ///
    /// # Errors
    ///
    /// Refuses more than 64 KiB.
    pub fn set_note(&mut self, text: &str) -> Result<()> {
        check_text("note", text)?;
        self.set_text(Texts::NOTE, text);
        Ok(())
    }

    /// Returns how keys were normalized before they were inserted, in the words of the program that
    /// did it. Normalize keys in the same way before you query them.
    #[must_use]
    pub fn normalization(&self) -> &str {
        self.texts.get(Texts::NORMALIZATION)
    }

    /// Sets the normalization.
    ///
    /// # Errors
    ///
    /// Refuses more than 64 KiB.
    pub fn set_normalization(&mut self, text: &str) -> Result<()> {
        check_text("normalization", text)?;
        self.set_text(Texts::NORMALIZATION, text);
        Ok(())
    }

    /// Returns the name of the encoding that turned text into the bytes of keys: see `inbloom build
    /// --key-encoding`. It is empty if keys are the text itself.
    #[must_use]
    pub fn key_encoding(&self) -> &str {
        self.texts.get(Texts::ENCODING)
    }

    /// Sets the name of the encoding of keys. inbloom's own file format records it; formats of
    /// other programs do not.
    ///
    /// # Errors
    ///
    /// Refuses more than 64 KiB.
    pub fn set_key_encoding(&mut self, name: &str) -> Result<()> {
        check_text("key encoding", name)?;
        self.set_text(Texts::ENCODING, name);
        Ok(())
    }

    /// Sets a text in the filter and in every shard, because each shard has a file of its own.
    fn set_text(&mut self, which: usize, text: &str) {
        for shard in self.as_sharded_mut().map_or(&mut [][..], Sharded::shards_mut) {
            shard.texts.set(which, text.to_owned());
        }
        self.texts.set(which, text.to_owned());
    }
}

/// The longest note.
pub(crate) const MAX_TEXT: usize = 64 << 10;

fn check_text(name: &'static str, text: &str) -> Result<()> {
    if text.len() <= MAX_TEXT {
        return Ok(());
    }
    let got = format!("{} bytes long", text.len());
    Err(Error::Parameter { name, got, expected: format!("at most {MAX_TEXT} bytes long") })
}
