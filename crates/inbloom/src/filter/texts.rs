//! What users write about a filter: a note, and how its keys were normalized.

use super::Filter;
use crate::compose::sharded::Sharded;
use crate::error::{Error, Result};

/// What users write about a filter. Most write nothing, so that it takes one word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Texts(Option<Box<[String; 2]>>);

impl Texts {
    pub(crate) const NOTE: usize = 0;
    pub(crate) const NORMALIZATION: usize = 1;

    pub(crate) fn get(&self, which: usize) -> &str {
        self.0.as_ref().map_or("", |texts| &texts[which])
    }

    pub(crate) fn set(&mut self, which: usize, text: String) {
        if !text.is_empty() || self.0.is_some() {
            self.0.get_or_insert_default()[which] = text;
        }
    }
}

impl Filter {
    /// Free text about the filter, kept in its file.
    #[must_use]
    pub fn note(&self) -> &str {
        self.texts.get(Texts::NOTE)
    }

    /// Sets the note: at most 64 KiB.
    pub fn set_note(&mut self, text: &str) -> Result<()> {
        check_text("note", text)?;
        self.set_text(Texts::NOTE, text);
        Ok(())
    }

    /// How keys were normalised before they were inserted, in the words of whoever did it. Queries
    /// should do the same.
    #[must_use]
    pub fn normalization(&self) -> &str {
        self.texts.get(Texts::NORMALIZATION)
    }

    /// Sets the normalisation: at most 64 KiB.
    pub fn set_normalization(&mut self, text: &str) -> Result<()> {
        check_text("normalization", text)?;
        self.set_text(Texts::NORMALIZATION, text);
        Ok(())
    }

    /// Every shard has the texts of the whole, so that its file does.
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
