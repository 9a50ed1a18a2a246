//! The log, record by record: what was changed after the images is changed once more.

use std::sync::Arc;

use super::{Access, Aside, Damage, FoundFilter, Recovery, segment_is_missing};
use crate::keyspace::journal::Record;
use crate::keyspace::{Entry, Restored};
use crate::persist::Error;
use crate::persist::image::{self, ImageError, NeededVersion};
use crate::persist::manifest::Manifest;
use crate::persist::record::{HashBuffers, next_frame, parse};
use crate::persist::segment::{self, Beginning, Frames};
use crate::value::Value;
use crate::value::change::{Change, Effect, Terms};
use crate::value::spec::{Birth, Granted, Materials};

impl Recovery<'_> {
    /// Replays the log. Returns the number of the last record, and the bytes of all.
    pub(super) fn replay(
        &mut self,
        manifest: &Manifest,
        names: &[String],
    ) -> Result<(u64, u64), Error> {
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
        let mut buffers = HashBuffers::default();
        // Where the records that are whole ended, if something else came behind, and its part of `cut`.
        let mut torn: Option<(String, u64, u64)> = None;
        for &first in &firsts {
            let name = segment::name(first);
            let failed = |error| Error::io("cannot read", name.clone())(error);
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
                    torn.get_or_insert((name, 0, length));
                    continue;
                }
            };
            let is_next = first == last + 1;
            let mut is_first = true;
            loop {
                let position = frames.position();
                let body = frames.next().map_err(failed)?;
                let Some(record) = body.and_then(|body| parse(body, &mut buffers)) else { break };
                if is_first && !is_next {
                    let (what, at, cut) = torn.take().unwrap_or((segment::name(last + 1), 0, 0));
                    if self.access != Access::Repair {
                        return Err(Error::Damaged { what, at });
                    }
                    self.report(format!(
                        "{what} is damaged at byte {at}: records after it are lost"
                    ));
                    self.found.cut -= cut;
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
                let (at, mut cut) = (frames.position(), frames.rest());
                let tail = frames.tail().map_err(failed)?;
                if has_whole_frame(&tail) {
                    // Written out of order before a power loss, or damaged since.
                    let kept = format!("damaged-{name}-{at}");
                    let length = tail.len();
                    self.report(format!(
                        "{name} is damaged at byte {at}: the {length} bytes from there on hold \
                         whole records, which are lost and kept as {kept}"
                    ));
                    self.found
                        .damaged
                        .push(format!("{name} at byte {at}, {length} bytes to its end"));
                    self.aside.push(Aside::Keep(kept, tail));
                    cut = 0;
                }
                self.found.cut += cut;
                torn = Some((name, at, cut));
            }
        }
        if last + 1 < manifest.tail || last < self.newest {
            // All records before its newest file were synced when that was begun, and all that an
            // image has before the snapshot counted.
            let (what, at, cut) = torn.unwrap_or((segment::name(last + 1), 0, 0));
            if self.access != Access::Repair {
                return Err(Error::Damaged { what, at });
            }
            self.report(format!("{what} is damaged at byte {at}: records after it are lost"));
            self.found.cut -= cut;
            self.found.damaged.push(format!("{what} at byte {at}, and the log after it"));
        }
        if self.found.cut > 0 {
            tracing::warn!(bytes = self.found.cut, "log ends in an incomplete record");
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
                if self.filters.contains_key(&id) || self.unreadable.contains_key(&id) {
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
                        self.filters.insert(id, FoundFilter { restored, sequence });
                    }
                    Err(Unborn { what, reader }) => {
                        let name = String::from_utf8_lossy(name);
                        let files = match Birth::parse(birth) {
                            Some(Birth::Image(image)) => image::files(image).unwrap_or_default(),
                            _ => Vec::new(),
                        };
                        let damage = Damage {
                            what: format!("the filter {name:?} of the log: {what}"),
                            frame: birth.to_vec(),
                            at: (sequence, position),
                            files,
                            needs_import: false,
                            reader,
                        };
                        self.note_damage(id, damage);
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
            Record::Change { id, effect } => self.change(sequence, position, id, effect),
        }
    }

    /// Changes a filter once more, unless its image has the change.
    fn change(&mut self, sequence: u64, position: u64, id: u64, effect: Effect<'_>) {
        let Some(filter) = self.filters.get_mut(&id).filter(|it| it.sequence < sequence) else {
            return;
        };
        let entry = &mut filter.restored.entry;
        entry.set_changed();
        let (image, count) = match effect {
            Effect::Items { items, new } => {
                let change = Change::Items { items, terms: Terms::Recorded { new } };
                let applied = self.owner.keyspace().apply(entry, &change, &mut self.answers);
                if let Err(error) = applied {
                    tracing::error!(%error, "cannot replay the items of a filter");
                }
                return;
            }
            Effect::Merge { image, count } => (image, count),
        };
        // What it is merged into is nobody else's yet.
        let hasher = *self.owner.hasher();
        let read = image::read(image, &self.surroundings());
        let filter = self.filters.get_mut(&id).expect("it is there");
        let entry = Arc::get_mut(&mut filter.restored.entry).expect("nobody else has it yet");
        let merged = read.map_err(Unborn::from).and_then(|from| {
            let merged = entry.value.merge_alone(&from, hasher, Some(count));
            merged.map_err(|refusal| Unborn::because(refusal.to_string()))
        });
        let files = image::files(image).unwrap_or_default();
        match merged {
            Ok(()) if files.is_empty() => {}
            Ok(()) => self.files.entry(id).or_default().extend(files),
            Err(Unborn { what, reader }) => {
                let damage = Damage {
                    what: format!("a merge of the log: {what}"),
                    frame: image.to_vec(),
                    at: (sequence, position),
                    files,
                    needs_import: false,
                    reader,
                };
                self.note_damage(id, damage);
            }
        }
    }

    /// The filter that a record makes.
    fn born(&self, birth: &[u8]) -> Result<(Value, Vec<String>), Unborn> {
        let parsed = Birth::parse(birth);
        match parsed.ok_or_else(|| Unborn::because("its start is not readable".to_owned()))? {
            Birth::Empty(spec, time) => {
                let materials =
                    Materials { hasher: self.owner.hasher(), shapes: self.owner.shapes() };
                let value = spec.value(&materials, time, &Granted);
                let value = value.map_err(|it| Unborn::because(it.text().to_owned()))?.0;
                Ok((value, Vec::new()))
            }
            Birth::Image(image) => {
                let value = image::read(image, &self.surroundings());
                Ok((value?, image::files(image)?))
            }
        }
    }
}

/// Why a record makes no filter.
struct Unborn {
    what: String,
    /// Which inbloom reads the image in it, if this one does not.
    reader: Option<NeededVersion>,
}

impl Unborn {
    fn because(what: String) -> Unborn {
        Unborn { what, reader: None }
    }
}

impl From<ImageError> for Unborn {
    fn from(error: ImageError) -> Unborn {
        Unborn { what: error.to_string(), reader: error.reader() }
    }
}

/// Whether there is a record somewhere in what follows damage. Chance makes one of four billion places
/// look like one.
fn has_whole_frame(tail: &[u8]) -> bool {
    /// Further than that is not looked.
    const FAR: usize = 1 << 20;
    let mut buffers = HashBuffers::default();
    (1..tail.len().min(FAR)).any(|at| {
        let near = &tail[at..tail.len().min(at + FAR)];
        next_frame(near).is_some_and(|(body, _)| parse(body, &mut buffers).is_some())
    })
}
