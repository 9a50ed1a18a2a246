//! From the files of a folder to the filters of a server.
//!
//! First the snapshots: of every filter its last image, read by as many threads as there are cores.
//! Then the log after them, record by record. While that goes on filters are found by their number:
//! names may be out of date until the last record is read, and then are right all at once.
//!
//! **What is torn.** A log ends where its last record that is whole ends: what comes behind was never
//! acknowledged, or not synced, and is cut off and reported. If there are whole records behind it, it
//! may also be damage: what is cut off is kept then. If they are in a later file it must be, as a file
//! is synced before the next one begins: the server does not start, unless it is told to `--repair`. An
//! image that cannot be read is set aside, and the filter with it; all others start.
//!
//! **What is missing.** The manifest names the snapshots, the first file of the log and the newest one
//! that there was when it was written. If one of them is gone, or records before the newest, the server
//! does not start either, unless it is told to `--repair`: then what was in it counts as lost, and what
//! comes after it with it.
//!
//! Nothing is written, renamed or removed before it is clear that the server starts.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

use inbloom::Digest;
use inbloom::interop::redisbloom::{self, Hash, Pair};
use parking_lot::Mutex;

use super::disk::Disk;
use super::image::{self, Shapes, Surroundings};
use super::log::{Border, Log};
use super::manifest::{self, Manifest};
use super::record::{Record, Verb, hashes, next_frame};
use super::segment::{self, Beginning, Frames};
use super::snapshot::{Index, Item, Kept, index_of, open_pack};
use super::{Error, Store};
use crate::commands::{bloom, extensions};
use crate::keyspace::{Entry, Restored};
use crate::server::Server;
use crate::value::Value;
use crate::value::spec::{Birth, Memory};

/// What was found in a folder.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Filters.
    pub filters: u64,
    /// Records of the log that were replayed.
    pub records: u64,
    /// Bytes at the end of the log that were no whole record.
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

/// Fills an empty server with what a folder has. With [`Access::Check`] no store is returned.
pub fn open(
    server: &Server,
    disk: Arc<dyn Disk>,
    access: Access,
) -> Result<(Option<Store>, Found), Error> {
    let begun = Instant::now();
    let names = disk.names().map_err(Error::io("reading", "the data folder"))?;
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
            Manifest::new(&server.hasher)
        }
    };
    let expected = manifest::hash_name(&server.hasher);
    if manifest.hash != expected {
        return Err(Error::Hash { found: manifest.hash, expected });
    }
    let mut recovery = Recovery {
        server,
        disk: &*disk,
        access,
        shapes: Shapes::default(),
        filters: HashMap::new(),
        files: HashMap::new(),
        removed: Vec::new(),
        next: manifest.next,
        found: Found::default(),
        aside: Vec::new(),
        has_damaged_packs: false,
        newest: 0,
    };
    let (live, sizes) = recovery.load_packs(&manifest)?;
    let (last, bytes) = match is_new {
        true => (0, 0),
        false => recovery.replay(&manifest, &names)?,
    };
    recovery.settle_names();
    recovery.put_aside()?;
    let Recovery { filters, files, removed, next, mut found, has_damaged_packs, .. } = recovery;
    found.filters = filters.len() as u64;
    let next = next.max(last_number(&names) + 1);
    server.keyspace.restore(next, filters.into_values().map(|filter| filter.restored));
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
            disk.sync(name).map_err(Error::io("syncing", name))?;
        }
    }
    let border = Border::at_start(last, removed, bytes);
    let log = Log::begin(Arc::clone(&disk), border, server.settings().fsync);
    let log = log.map_err(Error::io("beginning a file of", "the log"))?;
    if access == Access::Repair && segment_is_missing(&names, manifest.log) {
        manifest.log = last + 1; // What it named is given up, and with it all that came after.
    }
    if is_new || manifest.tail != last + 1 {
        manifest.tail = last + 1;
        manifest.write(&*disk).map_err(Error::io("writing", manifest::NAME))?;
    }
    let kept = Kept { manifest, sizes, live, is_damaged: has_damaged_packs };
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
struct Filter {
    restored: Restored,
    /// The last record that is in it.
    sequence: u64,
}

struct Recovery<'a> {
    server: &'a Server,
    disk: &'a dyn Disk,
    access: Access,
    shapes: Shapes,
    filters: HashMap<u64, Filter>,
    files: HashMap<u64, Vec<String>>,
    /// Filters that the log removes, of which the snapshots may have images.
    removed: Vec<u64>,
    /// A number that none of them has.
    next: u64,
    found: Found,
    /// What is to be kept for whoever can read it, when it is clear that the server starts.
    aside: Vec<Aside>,
    has_damaged_packs: bool,
    /// The newest record that any image has.
    newest: u64,
}

/// What is set aside.
enum Aside {
    /// A file gets another name.
    Rename(String),
    /// Bytes get a file.
    Keep(String, Vec<u8>),
}

/// Of filters, the pack and the place in it of the last image.
type Places = HashMap<u64, (u64, u64)>;
/// Of packs.
type Bytes = HashMap<u64, Vec<u8>>;

/// Frames of some images, with the pack and the place that they came from.
type Batch = Vec<(u64, u64, Vec<u8>)>;

/// What became of the frames of a batch.
#[derive(Default)]
struct Loaded {
    filters: Vec<(u64, Filter, Vec<String>)>,
    damaged: Vec<Damage>,
}

/// An image that makes no filter.
struct Damage {
    what: String,
    frame: Vec<u8>,
    at: (u64, u64),
    files: Vec<String>,
    /// It is a file that IB.OPEN has opened, and there is no folder to look for it.
    needs_import: bool,
}

impl Recovery<'_> {
    fn surroundings(&self) -> Surroundings<'_> {
        Surroundings {
            hasher: &self.server.hasher,
            disk: self.disk,
            shapes: &self.shapes,
            import_dir: self.server.config.import_dir.as_deref(),
        }
    }

    /// Reads the last image of every filter. Returns the bytes of all packs, and of each.
    fn load_packs(&mut self, manifest: &Manifest) -> Result<(u64, HashMap<u64, u64>), Error> {
        let (last, damaged) = self.last_images(&manifest.packs)?;
        let mut sizes = HashMap::new();
        let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let (sender, receiver) = sync_channel::<Batch>(threads * 2);
        let receiver = Mutex::new(receiver);
        let surroundings = self.surroundings();
        let (sent, loaded) = std::thread::scope(|scope| {
            let work = || load(&receiver, &surroundings);
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let sent = manifest.packs.iter().try_for_each(|pack| {
                if let Some(bytes) = damaged.get(pack) {
                    let of_pack = last.values().filter(|(of, _)| of == pack);
                    let batch = of_pack.filter_map(|(_, place)| {
                        let (body, _) = next_frame(&bytes[*place as usize..])?;
                        Some((*pack, *place, body.to_vec()))
                    });
                    let _ = sender.send(batch.collect());
                    return Ok(());
                }
                let name = segment::pack_name(*pack);
                if !last.values().any(|(of, _)| of == pack) {
                    return Ok(());
                }
                let bytes = self.disk.length(&name).map_err(Error::io("reading", name))?;
                sizes.insert(*pack, bytes);
                send_images(self.disk, *pack, &last, &sender)
            });
            drop(sender);
            let loaded: Vec<Loaded> =
                workers.into_iter().map(|it| it.join().expect("no image makes it panic")).collect();
            (sent, loaded)
        });
        sent?;
        for loaded in loaded {
            for (id, filter, files) in loaded.filters {
                if !files.is_empty() {
                    self.files.insert(id, files);
                }
                self.next = self.next.max(id + 1);
                self.newest = self.newest.max(filter.sequence);
                self.filters.insert(id, filter);
            }
            if let Some(damage) = loaded.damaged.iter().find(|damage| damage.needs_import) {
                return Err(Error::Import { what: damage.what.clone() });
            }
            self.has_damaged_packs |= !loaded.damaged.is_empty();
            loaded.damaged.into_iter().for_each(|damage| self.set_aside(damage));
        }
        Ok((sizes.values().sum(), sizes))
    }

    /// Where the last image of every filter is: the pack, and the place in it; and the bytes of packs
    /// that are damaged. A filter with a damaged image is not brought back by an older one.
    fn last_images(&mut self, packs: &[u64]) -> Result<(Places, Bytes), Error> {
        let (mut last, mut damaged) = (Places::new(), Bytes::new());
        for (at, pack) in packs.iter().enumerate() {
            let mut index = Index::default();
            let position = match open_pack(self.disk, *pack) {
                Ok(mut frames) => self.scan(*pack, &mut frames, &mut index)?,
                Err(Error::Damaged { .. }) => Some(0),
                Err(Error::Missing { .. }) if self.access == Access::Repair => {
                    self.report(format!("{} is missing", segment::pack_name(*pack)));
                    self.give_up(&packs[..=at])?;
                    last.clear();
                    continue;
                }
                Err(other) => return Err(other),
            };
            if let Some(position) = position {
                self.has_damaged_packs = true;
                let bytes = read_all(self.disk, &segment::pack_name(*pack))?;
                let Some(lost) = self.salvage(*pack, &bytes, position, &mut index) else {
                    self.give_up(&packs[..=at])?;
                    last.clear();
                    continue;
                };
                last.retain(|id, _| !lost.contains(id));
                damaged.insert(*pack, bytes);
            }
            for id in &index.removed {
                last.remove(id);
            }
            last.extend(index.images.iter().map(|(id, place)| (*id, (*pack, *place))));
        }
        Ok((last, damaged))
    }

    /// Sets aside all packs up to one of which it cannot be told what was in it, and so not of which
    /// filters it had newer images.
    fn give_up(&mut self, packs: &[u64]) -> Result<(), Error> {
        self.has_damaged_packs = true;
        let names: Vec<String> = packs.iter().map(|pack| segment::pack_name(*pack)).collect();
        let last = names.last().map_or("", String::as_str);
        self.report(format!("{last} and snapshots before it cannot be used"));
        for name in names {
            // It is there until the next snapshot, in case of another start before.
            match open_all(self.disk, &name)? {
                Some(bytes) => self.aside.push(Aside::Keep(format!("damaged-{name}"), bytes)),
                None => tracing::debug!(name, "nothing of it can be kept"),
            }
            self.found.damaged.push(name);
        }
        Ok(())
    }

    /// Reads what is in a pack. Returns where it is damaged, if it is.
    fn scan(
        &self,
        pack: u64,
        frames: &mut Frames,
        index: &mut Index,
    ) -> Result<Option<u64>, Error> {
        loop {
            let position = frames.position();
            let frame = frames.next().map_err(Error::io("reading", segment::pack_name(pack)))?;
            match frame.and_then(Item::parse) {
                Some(Item::Image(image)) => index.images.push((image.id, position)),
                Some(Item::Removed(ids)) => index.removed.extend(ids),
                Some(Item::Index(_)) => return Ok(None),
                None => return Ok(Some(position)),
            }
        }
    }

    /// Finds what is sound in a pack that is damaged at a place, by its index. Returns the filters whose
    /// images are not; None if that cannot be told.
    fn salvage(
        &mut self,
        pack: u64,
        bytes: &[u8],
        position: u64,
        index: &mut Index,
    ) -> Option<Vec<u64>> {
        let name = segment::pack_name(pack);
        let (at, complete) = index_of(bytes)?;
        if position as usize == at {
            // All images are before.
            self.set_aside(Damage {
                what: format!("{name}: its index is damaged, its filters are not"),
                frame: bytes[at..].to_vec(),
                at: (pack, position),
                files: Vec::new(),
                needs_import: false,
            });
            return Some(Vec::new());
        }
        let complete = complete?;
        let mut lost = Vec::new();
        index.removed = complete.removed;
        index.images.clear();
        let ends = complete.images.iter().skip(1).map(|(_, place)| *place).chain([at as u64]);
        for ((id, place), end) in complete.images.iter().zip(ends) {
            let frame = bytes.get(*place as usize..end as usize)?;
            let item = next_frame(frame).and_then(|(body, _)| Item::parse(body));
            if matches!(item, Some(Item::Image(image)) if image.id == *id) {
                index.images.push((*id, *place));
                continue;
            }
            lost.push(*id);
            self.set_aside(Damage {
                what: format!("{name} at byte {place}: the checksum of filter {id} is wrong"),
                frame: frame.to_vec(),
                at: (pack, *place),
                files: Vec::new(),
                needs_import: false,
            });
        }
        if lost.is_empty() {
            self.set_aside(Damage {
                what: format!("{name} at byte {position}: what is damaged is no filter"),
                frame: bytes[..at.min(1 << 20)].to_vec(),
                at: (pack, position),
                files: Vec::new(),
                needs_import: false,
            });
        }
        Some(lost)
    }

    /// Keeps what could not be read for whoever can, and says so.
    fn set_aside(&mut self, damage: Damage) {
        let (pack, position) = damage.at;
        let name = format!("damaged-{pack}-{position}");
        self.report(format!("{}; what there is of it is kept as {name}", damage.what));
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
            self.report(format!("two filters have one name: number {id}, the older, is left out"));
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
                    kept.map_err(Error::io("writing", name))?;
                }
                Aside::Rename(name) => {
                    // One that is missing cannot be kept.
                    let _ = self.disk.rename(&name, &format!("damaged-{name}"));
                }
            }
        }
        self.disk.sync_names().map_err(Error::io("syncing", "the data folder"))
    }

    fn report(&self, text: String) {
        tracing::error!("{text}");
    }

    /// Replays the log. Returns the number of the last record, and the bytes of all.
    fn replay(&mut self, manifest: &Manifest, names: &[String]) -> Result<(u64, u64), Error> {
        let mut firsts: Vec<u64> = names
            .iter()
            .filter_map(|name| segment::first_of(name))
            .filter(|first| *first >= manifest.log)
            .collect();
        firsts.sort_unstable();
        for first in [manifest.log, manifest.tail] {
            if segment_is_missing(names, first) {
                self.miss(first)?;
            }
        }
        let (mut last, mut bytes) = (manifest.log - 1, 0);
        // Where the records that are whole ended, if something else came behind.
        let mut torn: Option<(String, u64)> = None;
        for &first in &firsts {
            let name = segment::name(first);
            let failed = |error| Error::io("reading", name.clone())(error);
            let length = self.disk.length(&name).map_err(failed)?;
            let file = self.disk.open(&name).map_err(failed)?;
            let mut frames = match Frames::of_log(file, length, first).map_err(failed)? {
                Ok(frames) => frames,
                Err(Beginning::Newer(version)) => {
                    return Err(Error::Newer { what: name, version, known: segment::VERSION });
                }
                Err(Beginning::Damaged) => {
                    // It was begun and nothing in it was acknowledged, unless another one follows.
                    self.found.cut += length;
                    torn.get_or_insert((name, 0));
                    continue;
                }
            };
            let is_next = first == last + 1;
            let mut is_first = true;
            loop {
                let position = frames.position();
                let body = frames.next().map_err(failed)?;
                let Some(record) = body.and_then(Record::parse) else { break };
                if is_first && !is_next {
                    let (what, at) = torn.take().unwrap_or((segment::name(last + 1), 0));
                    if self.access != Access::Repair {
                        return Err(Error::Damaged { what, at });
                    }
                    self.report(format!(
                        "{what} is damaged at byte {at}: records after it are lost"
                    ));
                    self.found.damaged.push(format!("{what} at byte {at}, and the log after it"));
                    let lost = firsts.iter().filter(|later| **later >= first);
                    self.aside.extend(lost.map(|first| Aside::Rename(segment::name(*first))));
                    return Ok((self.after_loss(last), bytes));
                }
                is_first = false;
                last += 1;
                self.apply(last, position, record);
                self.found.records += 1;
            }
            bytes += frames.position();
            if frames.rest() > 0 {
                let at = frames.position();
                self.found.cut += frames.rest();
                let tail = frames.tail().map_err(failed)?;
                if has_whole_frame(&tail) {
                    // Written out of order before a loss of power, or damaged since: who knows.
                    let kept = format!("damaged-{name}-{at}");
                    let length = tail.len();
                    self.report(format!(
                        "{name} is damaged at byte {at}; the {length} bytes from there on have whole \
                         records, which are lost, and are kept as {kept}"
                    ));
                    self.found
                        .damaged
                        .push(format!("{name} at byte {at}, {length} bytes to its end"));
                    self.aside.push(Aside::Keep(kept, tail));
                }
                torn = Some((name, at));
            }
        }
        if self.found.cut > 0 {
            let cut = self.found.cut;
            tracing::warn!(bytes = cut, "the log ends in what is no whole record: it is cut off");
        }
        if last + 1 < manifest.tail || last < self.newest {
            // All records before its newest file were synced when that was begun, and all that an
            // image has before the snapshot counted.
            let (what, at) = torn.unwrap_or((segment::name(last + 1), 0));
            if self.access != Access::Repair {
                return Err(Error::Damaged { what, at });
            }
            self.report(format!("{what} is damaged at byte {at}: records after it are lost"));
            self.found.damaged.push(format!("{what} at byte {at}, and the log after it"));
        }
        if self.access == Access::Repair && !self.found.damaged.is_empty() {
            last = self.after_loss(last);
        }
        Ok((last, bytes))
    }

    /// A file of the log is not there: an error, unless its loss is accepted.
    fn miss(&mut self, first: u64) -> Result<(), Error> {
        let what = segment::name(first);
        if self.access != Access::Repair {
            let lost = "changes since the last snapshot";
            return Err(Error::Missing { what, lost });
        }
        self.report(format!("{what} is missing: the changes in it and after it are lost"));
        self.found.damaged.push(format!("{what} is missing, with the changes in it and after it"));
        Ok(())
    }

    /// The number of the last record when some are lost. Images may have some of these, and would
    /// not take new changes of their numbers for new when the log is read again.
    fn after_loss(&self, last: u64) -> u64 {
        last.max(self.newest)
    }

    /// Does again what a record says.
    fn apply(&mut self, sequence: u64, position: u64, record: Record<'_>) {
        match record {
            Record::Create { id, replaced, database, expires, name, birth } => {
                self.remove(replaced);
                self.next = self.next.max(id + 1);
                if self.filters.contains_key(&id) {
                    return; // Its image is younger.
                }
                match self.born(birth) {
                    Ok((value, files)) => {
                        if !files.is_empty() {
                            self.files.insert(id, files);
                        }
                        let entry = Arc::new(Entry::new(id, value, expires));
                        entry.set_changed();
                        let restored = Restored::new(database, name, entry);
                        self.filters.insert(id, Filter { restored, sequence });
                    }
                    Err(what) => {
                        let name = String::from_utf8_lossy(name);
                        let files = match Birth::parse(birth) {
                            Some(Birth::Image(image)) => image::files(image).unwrap_or_default(),
                            _ => Vec::new(),
                        };
                        self.set_aside(Damage {
                            what: format!("the filter {name:?} of the log: {what}"),
                            frame: birth.to_vec(),
                            at: (sequence, position),
                            files,
                            needs_import: false,
                        });
                    }
                }
            }
            Record::Remove { ids } => ids.iter().for_each(|id| self.remove(*id)),
            Record::Rename { id, replaced, database, name } => {
                self.remove(replaced);
                if let Some(filter) = self.filters.get_mut(&id) {
                    filter.restored.rename(database, name);
                    filter.restored.entry.set_changed();
                }
            }
            Record::Expire { id, at } => {
                if let Some(filter) = self.filters.get(&id) {
                    filter.restored.entry.set_expires(at);
                    filter.restored.entry.set_changed();
                }
            }
            Record::Change { id, verb, time, new, hashes } => {
                if let Some(filter) = self.filters.get(&id).filter(|it| it.sequence < sequence) {
                    change(&filter.restored.entry.value, verb, time, new, hashes);
                    filter.restored.entry.set_changed();
                }
            }
            Record::Merge { id, items, image } => {
                if self.filters.get(&id).is_none_or(|filter| filter.sequence >= sequence) {
                    return;
                }
                let from = image::read(image, &self.surroundings());
                let filter = self.filters.get_mut(&id).expect("it is there");
                let merged = from
                    .map_err(|error| error.to_string())
                    .and_then(|from| unite(self.server, &mut filter.restored.entry, &from, items));
                let files = image::files(image).unwrap_or_default();
                if let Err(what) = merged {
                    self.set_aside(Damage {
                        what: format!("a merge of the log: {what}"),
                        frame: image.to_vec(),
                        at: (sequence, position),
                        files,
                        needs_import: false,
                    });
                } else if !files.is_empty() {
                    self.files.entry(id).or_default().extend(files);
                }
            }
        }
    }

    fn remove(&mut self, id: u64) {
        // Its files are removed with the next snapshot: until then the last one names them.
        if self.filters.remove(&id).is_some() {
            self.removed.push(id);
        }
    }

    /// The filter that a record makes.
    fn born(&self, birth: &[u8]) -> Result<(Value, Vec<String>), String> {
        match Birth::parse(birth).ok_or("its beginning is not understood")? {
            Birth::Empty(spec, time) => {
                let value = spec.value(self.server, time, Memory::Granted);
                value.map(|(value, _)| (value, Vec::new())).map_err(|it| it.text().to_owned())
            }
            Birth::Image(image) => {
                let value = image::read(image, &self.surroundings());
                let value = value.map_err(|error| error.to_string())?;
                Ok((value, image::files(image).map_err(|error| error.to_string())?))
            }
        }
    }
}

/// Sends the images of a pack that are the last of their filters to those who make filters of them.
fn send_images(
    disk: &dyn Disk,
    pack: u64,
    last: &Places,
    sender: &SyncSender<Batch>,
) -> Result<(), Error> {
    /// Bytes of a batch, about.
    const BATCH: usize = 256 << 10;
    let mut frames = open_pack(disk, pack)?;
    let failed = |error| Error::io("reading", segment::pack_name(pack))(error);
    let (mut batch, mut bytes) = (Batch::new(), 0);
    loop {
        let position = frames.position();
        let Some(body) = frames.next().map_err(failed)? else { break };
        match Item::parse(body) {
            Some(Item::Image(image)) if last.get(&image.id) == Some(&(pack, position)) => {
                bytes += body.len();
                batch.push((pack, position, body.to_vec()));
            }
            Some(Item::Index(_)) => break,
            _ => {}
        }
        if bytes > BATCH {
            // The workers are there until the sender is dropped.
            let _ = sender.send(std::mem::take(&mut batch));
            bytes = 0;
        }
    }
    let _ = sender.send(batch);
    Ok(())
}

/// Whether there is a record somewhere in what follows damage. Chance makes one of four billion places
/// look like one.
fn has_whole_frame(tail: &[u8]) -> bool {
    /// Further than that is not looked.
    const FAR: usize = 1 << 20;
    (1..tail.len().min(FAR)).any(|at| {
        let near = &tail[at..tail.len().min(at + FAR)];
        next_frame(near).is_some_and(|(body, _)| Record::parse(body).is_some())
    })
}

/// All bytes of a file; None if there is none.
fn open_all(disk: &dyn Disk, name: &str) -> Result<Option<Vec<u8>>, Error> {
    match read_all(disk, name) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Error::Io { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn read_all(disk: &dyn Disk, name: &str) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let read = disk.open(name).and_then(|mut file| file.read_to_end(&mut bytes));
    read.map(|_| bytes).map_err(Error::io("reading", name))
}

/// Makes filters of images, until there are no more.
fn load(batches: &Mutex<Receiver<Batch>>, with: &Surroundings<'_>) -> Loaded {
    let mut loaded = Loaded::default();
    loop {
        let Ok(batch) = batches.lock().recv() else { return loaded };
        for (pack, position, body) in batch {
            let Some(Item::Image(found)) = Item::parse(&body) else { continue };
            let files = image::files(found.image).unwrap_or_default();
            match image::read(found.image, with) {
                Ok(value) => {
                    let entry = Arc::new(Entry::new(found.id, value, found.expires));
                    let restored = Restored::new(found.database, found.name, entry);
                    let filter = Filter { restored, sequence: found.sequence };
                    loaded.filters.push((found.id, filter, files));
                }
                Err(error) => {
                    let name = String::from_utf8_lossy(found.name).into_owned();
                    let what = format!("the filter {name:?} of the snapshot: {error}");
                    let at = (pack, position);
                    let needs_import =
                        matches!(error, image::Error::Import { .. }) && with.import_dir.is_none();
                    loaded.damaged.push(Damage { what, frame: body, at, files, needs_import });
                }
            }
        }
    }
}

/// Changes items of a filter once more.
fn change(value: &Value, verb: Verb, time: u64, new: u64, bytes: &[u8]) {
    match (value, verb) {
        (Value::Bloom(bloom), Verb::Add) => {
            let digests: Vec<Digest> = hashes(verb, bytes);
            if let Err(error) = bloom.replay(&digests, new) {
                tracing::error!(%error, "a filter of the log cannot take its items again");
            }
        }
        (Value::Filter(guarded), Verb::Insert) => guarded.change(
            |filter| {
                // As it was then: what is refused now was not acknowledged, or is there.
                let _ = bloom::advance(filter, time);
                for digest in hashes::<Digest>(verb, bytes) {
                    let _ = bloom::insert_one(filter, digest);
                }
            },
            inbloom::Filter::memory,
        ),
        (Value::Filter(guarded), Verb::Remove) => guarded.change(
            |filter| {
                for digest in hashes::<Digest>(verb, bytes) {
                    let _ = filter.remove_digest(digest);
                }
            },
            inbloom::Filter::memory,
        ),
        (Value::RedisBloom(guarded), Verb::AddPairs) => guarded.change(
            |bloom| {
                for pair in hashes::<Pair>(verb, bytes) {
                    let _ = bloom.insert_pair(pair, u64::MAX);
                }
            },
            redisbloom::Bloom::memory,
        ),
        (Value::Cuckoo(guarded), Verb::AddHashes | Verb::RemoveHashes) => guarded.change(
            |cuckoo| {
                for hash in hashes::<Hash>(verb, bytes) {
                    match verb {
                        Verb::AddHashes => drop(cuckoo.insert_hash(hash, u64::MAX)),
                        _ => drop(cuckoo.remove_hash(hash)),
                    }
                }
            },
            redisbloom::Cuckoo::memory,
        ),
        (Value::Cuckoo(guarded), Verb::Compact) => guarded.change(
            |cuckoo| {
                cuckoo.compact_step(new as usize);
            },
            redisbloom::Cuckoo::memory,
        ),
        (_, verb) => tracing::error!(?verb, "a change of the log is of a filter of another kind"),
    }
}

/// Adds all of another filter once more, whatever the state.
fn unite(server: &Server, into: &mut Arc<Entry>, from: &Value, items: u64) -> Result<(), String> {
    into.set_changed();
    let into = Arc::get_mut(into).expect("nobody else has it yet");
    if let (Value::Bloom(into), Value::Bloom(from)) = (&mut into.value, from) {
        let merged = into.replay_merge(from, server.hasher, items);
        return merged.map_err(|error| error.to_string());
    }
    let united = extensions::unite(server, &into.value, from, Memory::Granted, |_| ());
    united.map_err(|failure| failure.text().to_owned())
}
