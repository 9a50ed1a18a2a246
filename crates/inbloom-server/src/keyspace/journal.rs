//! What a keyspace tells a journal: one record for each change, in the order in which they were made.

use std::borrow::Cow;

use crate::value::change::Effect;

/// Keeps changes. The keyspace does not know how, or where.
pub trait Journal: Send + Sync {
    /// Takes a record, at once: it is called under the lock that makes a change and its record one step.
    fn record(&self, record: &Record<'_>);
}

/// A change of one filter, or of its name. Filters go by their number.
#[derive(Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A filter comes into being, in the place of another or of none (0).
    Create {
        /// Its number.
        id: u64,
        /// The filter that had the name.
        replaced: u64,
        /// Where the name is.
        database: usize,
        /// Until when it lives, if not for good.
        expires: Option<u64>,
        /// Its name.
        name: &'a [u8],
        /// What it is made of: see `value::spec`.
        birth: &'a [u8],
    },
    /// Filters are gone.
    Remove {
        /// Their numbers.
        ids: Cow<'a, [u64]>,
    },
    /// A filter has another name, in the place of another filter or of none (0).
    Rename {
        /// Its number.
        id: u64,
        /// The filter that had the name.
        replaced: u64,
        /// Where the new name is.
        database: usize,
        /// The new name.
        name: &'a [u8],
    },
    /// A filter lives until then, or for good.
    Expire {
        /// Its number.
        id: u64,
        /// Milliseconds since 1970.
        at: Option<u64>,
    },
    /// The content of a filter is another.
    Change {
        /// Its number.
        id: u64,
        /// What was done.
        effect: Effect<'a>,
    },
}

impl Record<'_> {
    /// Returns the filters that are gone by it.
    pub fn removed(&self) -> &[u64] {
        match self {
            Record::Create { replaced, .. } | Record::Rename { replaced, .. } => match replaced {
                0 => &[],
                id => std::slice::from_ref(id),
            },
            Record::Remove { ids } => ids,
            Record::Expire { .. } | Record::Change { .. } => &[],
        }
    }
}
