//! Restores the filters of a server from the files of its folder.
//!
//! Recovery first reads the snapshots: the last image of every filter, on as many threads as there
//! are cores. Then it replays the log after them, record by record. Meanwhile filters are
//! identified by their number, because names may be out of date until the last record. Then all
//! names are set at once.
//!
//! **What is torn.** A log ends with its last complete record. Bytes after it were not acknowledged
//! or not yet synced; recovery cuts them off and reports them. If complete records follow, the
//! bytes may also be damage, so recovery keeps what it cuts off. If those records are in a later
//! file, it must be damage, because a file is synced before the next one begins: the server then
//! does not start without `--repair`. A damaged image is set aside with its filter; all other
//! filters start.
//!
//! **What another version wrote.** An image may be intact but have a layout that this inbloom does
//! not read: a retired one, or one of a newer inbloom. Unless the log removes the filter, the
//! server does not start without `--repair`, because nothing is lost with an inbloom that reads the
//! layout.
//!
//! **What is missing.** The manifest names the snapshots, the first file of the log and the newest
//! one that there was when it was written. If one of them is missing, or if records before the
//! newest are missing, the server does not start without `--repair` either. With `--repair`, the
//! missing data and everything after it count as lost.
//!
//! Recovery does not write, rename or remove anything before it is certain that the server starts.

mod packs;
mod replay;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use super::disk::Disk;
use super::image::{NeededVersion, OutlineShapes, Surroundings};
use super::log::{Border, Log};
use super::manifest::{self, Manifest};
use super::segment;
use super::snapshot::SnapshotState;
use super::{Error, Owner, Store};
use crate::keyspace::Restored;

/// What was found in a folder.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Filters.
    pub filters: u64,
    /// Records of the log that were replayed.
    pub records: u64,
    /// Bytes at the end of the log that were no whole record, and are not among what is damaged.
    pub cut: u64,
    /// What could not be read, and was set aside.
    pub damaged: Vec<String>,
    /// Milliseconds.
    pub millis: u64,
}

/// How a folder is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// To be used.
    #[default]
    Use,
    /// To be used, even if acknowledged records are lost by damage.
    Repair,
    /// To be looked at: nothing is written, removed or renamed.
    Check,
}

/// Fills an empty keyspace with what a folder has. With [`Access::Check`] no store is returned.
pub fn open(
    owner: &dyn Owner,
    disk: Arc<dyn Disk>,
    access: Access,
) -> Result<(Option<Store>, Found), Error> {
    let begun = Instant::now();
    let names = disk.names().map_err(Error::io("cannot read", "the data folder"))?;
    let written = Manifest::read(&*disk)?;
    let is_new = written.is_none();
    let mut manifest = match written {
        Some(manifest) => manifest,
        None => {
            // The first file of the log is begun before the manifest that names it is written.
            let is_begun = |name: &String| {
                let length = disk.length(name).unwrap_or(u64::MAX);
                segment::first_of(name) == Some(1) && length <= segment::HEADER as u64
            };
            let is_ours = |name: &&String| {
                (name.starts_with("log-") || name.starts_with("pack-")) && !is_begun(name)
            };
            if let Some(found) = names.iter().find(is_ours) {
                return Err(Error::NoManifest { found: found.clone() });
            }
            Manifest::new(owner.hasher())
        }
    };
    let expected = manifest::hash_name(owner.hasher());
    if manifest.hash != expected {
        return Err(Error::Hash { found: manifest.hash, expected });
    }
    let mut recovery = Recovery {
        owner,
        disk: &*disk,
        access,
        shapes: OutlineShapes::default(),
        filters: HashMap::new(),
        files: HashMap::new(),
        removed: Vec::new(),
        next: manifest.next,
        found: Found::default(),
        aside: Vec::new(),
        unreadable: BTreeMap::new(),
        has_damaged_packs: false,
        newest: 0,
        answers: Vec::new(),
    };
    let (live, sizes) = recovery.load_packs(&manifest)?;
    let (last, bytes) = match is_new {
        true => (0, 0),
        false => recovery.replay(&manifest, &names)?,
    };
    recovery.refuse_unreadable()?;
    recovery.settle_names();
    recovery.put_aside()?;
    let Recovery { filters, files, removed, next, mut found, has_damaged_packs, .. } = recovery;
    found.filters = filters.len() as u64;
    let next = next.max(last_number(&names) + 1);
    owner.keyspace().restore(next, filters.into_values().map(|filter| filter.restored));
    found.millis = begun.elapsed().as_millis() as u64;
    if access == Access::Check {
        return Ok((None, found));
    }
    // What no image and no record names is of a snapshot that was not completed.
    let in_use: HashSet<&String> = files.values().flatten().collect();
    for name in &names {
        let is_record = name.starts_with("log-") || name.starts_with("pack-");
        let is_old = is_record && !manifest.needs(name)
            || name.starts_with("filter-") && !in_use.contains(name);
        if is_old {
            let _ = disk.remove(name);
        }
    }
    // What was replayed counts as safe from now on.
    for name in &names {
        if segment::first_of(name).is_some_and(|first| first >= manifest.log && first <= last) {
            disk.sync(name).map_err(Error::io("cannot sync", name))?;
        }
    }
    let border = Border::at_start(last, removed, bytes);
    let log = Log::begin(Arc::clone(&disk), border);
    let log = log.map_err(Error::io("cannot begin a file of", "the log"))?;
    if access == Access::Repair && segment_is_missing(&names, manifest.log) {
        manifest.log = last + 1; // What it named is given up, and with it all that came after.
    }
    if is_new || manifest.tail != last + 1 {
        manifest.tail = last + 1;
        manifest.write(&*disk).map_err(Error::io("cannot write", manifest::NAME))?;
    }
    let kept = SnapshotState { manifest, sizes, live, is_damaged: has_damaged_packs };
    Ok((Some(Store::new(disk, log, kept, files)), found))
}

/// Whether the file of the log that begins with a record is not there.
fn segment_is_missing(names: &[String], first: u64) -> bool {
    !names.contains(&segment::name(first))
}

/// The largest number in the name of a file of ours.
fn last_number(names: &[String]) -> u64 {
    let number = |name: &String| {
        let rest = name.strip_prefix("filter-").or_else(|| name.strip_prefix("pack-"))?;
        let digits = rest.split('.').next()?;
        digits.parse::<u64>().ok()
    };
    names.iter().filter_map(number).max().unwrap_or(0)
}

/// A filter that was found.
struct FoundFilter {
    restored: Restored,
    /// The last record that is in it.
    sequence: u64,
}

struct Recovery<'a> {
    owner: &'a dyn Owner,
    disk: &'a dyn Disk,
    access: Access,
    shapes: OutlineShapes,
    filters: HashMap<u64, FoundFilter>,
    files: HashMap<u64, Vec<String>>,
    /// Filters that the log removes, of which the snapshots may have images.
    removed: Vec<u64>,
    /// A number that none of them has.
    next: u64,
    found: Found,
    /// What is to be kept for repair, when it is clear that the server starts.
    aside: Vec<Aside>,
    /// By the numbers of filters, what of them is intact and cannot be read.
    unreadable: BTreeMap<u64, Vec<Damage>>,
    has_damaged_packs: bool,
    /// The newest record that any image has.
    newest: u64,
    /// Of the last change, for nobody.
    answers: Vec<bool>,
}

/// What is set aside.
enum Aside {
    /// A file gets another name.
    Rename(String),
    /// Bytes get a file.
    Keep(String, Vec<u8>),
}

/// An image that makes no filter.
struct Damage {
    what: String,
    frame: Vec<u8>,
    at: (u64, u64),
    files: Vec<String>,
    /// It is a file that IB.OPEN has opened, and there is no folder to look for it.
    needs_import: bool,
    /// If it is intact: which inbloom reads it.
    reader: Option<NeededVersion>,
}

impl Recovery<'_> {
    fn surroundings(&self) -> Surroundings<'_> {
        Surroundings {
            hasher: self.owner.hasher(),
            disk: self.disk,
            shapes: &self.shapes,
            import_dir: self.owner.import_dir(),
        }
    }

    /// Takes note of an image of a filter that could not be read.
    fn note_damage(&mut self, id: u64, damage: Damage) {
        match damage.reader {
            Some(_) => self.unreadable.entry(id).or_default().push(damage),
            None => self.set_aside(damage),
        }
    }

    /// Refuses images that another inbloom can read. With [`Access::Repair`] they are set aside.
    fn refuse_unreadable(&mut self) -> Result<(), Error> {
        let all: Vec<Damage> =
            std::mem::take(&mut self.unreadable).into_values().flatten().collect();
        if self.access == Access::Repair {
            all.into_iter().for_each(|damage| self.set_aside(damage));
            return Ok(());
        }
        let more = all.len().saturating_sub(1);
        match all.into_iter().next() {
            Some(Damage { what, reader: Some(reader), .. }) => {
                Err(Error::Unreadable { what, more, reader })
            }
            _ => Ok(()),
        }
    }

    /// Keeps what could not be read, and logs it.
    fn set_aside(&mut self, damage: Damage) {
        let (pack, position) = damage.at;
        let name = format!("damaged-{pack}-{position}");
        self.report(format!("{}; what remains is kept as {name}", damage.what));
        self.found.damaged.push(damage.what);
        self.aside.push(Aside::Keep(name, damage.frame));
        self.aside.extend(damage.files.into_iter().map(Aside::Rename));
    }

    /// Names are unique when all is read. If two filters have one, the younger keeps it.
    fn settle_names(&mut self) {
        let mut owners: HashMap<(usize, &[u8]), u64> = HashMap::new();
        let mut losers = Vec::new();
        for (id, filter) in &self.filters {
            let rival = owners.insert(filter.restored.key(), *id);
            if let Some(rival) = rival {
                owners.insert(filter.restored.key(), rival.max(*id));
                losers.push(rival.min(*id));
            }
        }
        for id in losers {
            self.report(format!(
                "two filters have the same name: number {id}, the older one, is left out"
            ));
            self.remove(id);
        }
    }

    /// Writes and renames what was set aside.
    fn put_aside(&mut self) -> Result<(), Error> {
        if self.access == Access::Check || self.aside.is_empty() {
            return Ok(());
        }
        for aside in std::mem::take(&mut self.aside) {
            match aside {
                Aside::Keep(name, bytes) => {
                    let kept = self.disk.create(&name).and_then(|file| {
                        file.append(&bytes)?;
                        file.sync()
                    });
                    kept.map_err(Error::io("cannot write", name))?;
                }
                Aside::Rename(name) => {
                    // One that is missing cannot be kept.
                    let _ = self.disk.rename(&name, &format!("damaged-{name}"));
                }
            }
        }
        self.disk.sync_names().map_err(Error::io("cannot sync", "the data folder"))
    }

    fn report(&self, text: String) {
        tracing::error!(what = text, "data folder damaged");
    }

    fn remove(&mut self, id: u64) {
        // Its files are removed with the next snapshot: until then the last one names them.
        let unreadable = self.unreadable.remove(&id);
        if self.filters.remove(&id).is_some() || unreadable.is_some() {
            self.removed.push(id);
        }
        for damage in unreadable.into_iter().flatten() {
            self.files.entry(id).or_default().extend(damage.files);
        }
    }
}
