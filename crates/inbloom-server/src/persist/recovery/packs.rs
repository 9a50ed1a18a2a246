//! The snapshots: of every filter its last image, read by as many threads as there are cores.

use std::collections::HashMap;
use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use parking_lot::Mutex;

use super::{Access, Aside, Damage, FoundFilter, Recovery};
use crate::keyspace::{Entry, Restored};
use crate::persist::Error;
use crate::persist::disk::Disk;
use crate::persist::image::{self, Surroundings};
use crate::persist::manifest::Manifest;
use crate::persist::record::next_frame;
use crate::persist::segment::{self, Frames};
use crate::persist::snapshot::{Index, PackItem, index_of, open_pack};

/// Of filters, the pack and the place in it of the last image.
type Places = HashMap<u64, (u64, u64)>;
/// Of packs.
type Bytes = HashMap<u64, Vec<u8>>;

/// Frames of some images, with the pack and the place that they came from.
type PackBatch = Vec<(u64, u64, Vec<u8>)>;

/// What became of the frames of a batch.
#[derive(Default)]
struct Loaded {
    filters: Vec<(u64, FoundFilter, Vec<String>)>,
    damaged: Vec<(u64, Damage)>,
}

impl Recovery<'_> {
    /// Reads the last image of every filter. Returns the bytes of all packs, and of each.
    pub(super) fn load_packs(
        &mut self,
        manifest: &Manifest,
    ) -> Result<(u64, HashMap<u64, u64>), Error> {
        let (last, damaged) = self.last_images(&manifest.packs)?;
        let mut sizes = HashMap::new();
        let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let (sender, receiver) = sync_channel::<PackBatch>(threads * 2);
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
                let bytes = self.disk.length(&name).map_err(Error::io("cannot read", name))?;
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
            if let Some((_, damage)) = loaded.damaged.iter().find(|(_, damage)| damage.needs_import)
            {
                return Err(Error::Import { what: damage.what.clone() });
            }
            self.has_damaged_packs |= !loaded.damaged.is_empty();
            loaded.damaged.into_iter().for_each(|(id, damage)| self.note_damage(id, damage));
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

    /// Sets aside all packs up to one with unknown content, so that it is also unknown of which
    /// filters it had newer images.
    fn give_up(&mut self, packs: &[u64]) -> Result<(), Error> {
        self.has_damaged_packs = true;
        let names: Vec<String> = packs.iter().map(|pack| segment::pack_name(*pack)).collect();
        let last = names.last().map_or("", String::as_str);
        self.report(format!("{last} and the snapshots before it cannot be used"));
        for name in names {
            // It is there until the next snapshot, in case of another start before.
            match open_all(self.disk, &name)? {
                Some(bytes) => self.aside.push(Aside::Keep(format!("damaged-{name}"), bytes)),
                None => tracing::debug!(name, "nothing to keep"),
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
            let frame =
                frames.next().map_err(Error::io("cannot read", segment::pack_name(pack)))?;
            match frame.and_then(PackItem::parse) {
                Some(PackItem::Image(image)) => index.images.push((image.id, position)),
                Some(PackItem::Removed(ids)) => index.removed.extend(ids),
                Some(PackItem::Index(_)) => return Ok(None),
                None => return Ok(Some(position)),
            }
        }
    }

    /// Finds what is sound in a pack that is damaged at a place, by its index. Returns the filters
    /// whose images are not; None if that is unknown.
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
                what: format!("{name}: its index is damaged, its filters are intact"),
                frame: bytes[at..].to_vec(),
                at: (pack, position),
                files: Vec::new(),
                needs_import: false,
                reader: None,
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
            let item = next_frame(frame).and_then(|(body, _)| PackItem::parse(body));
            if matches!(item, Some(PackItem::Image(image)) if image.id == *id) {
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
                reader: None,
            });
        }
        if lost.is_empty() {
            self.set_aside(Damage {
                what: format!("{name} at byte {position}: the damaged bytes are not a filter"),
                frame: bytes[..at.min(1 << 20)].to_vec(),
                at: (pack, position),
                files: Vec::new(),
                needs_import: false,
                reader: None,
            });
        }
        Some(lost)
    }
}

/// Sends the images of a pack that are the last of their filters to those who make filters of them.
fn send_images(
    disk: &dyn Disk,
    pack: u64,
    last: &Places,
    sender: &SyncSender<PackBatch>,
) -> Result<(), Error> {
    /// Bytes of a batch, about.
    const BATCH: usize = 256 << 10;
    let mut frames = open_pack(disk, pack)?;
    let failed = |error| Error::io("cannot read", segment::pack_name(pack))(error);
    let (mut batch, mut bytes) = (PackBatch::new(), 0);
    loop {
        let position = frames.position();
        let Some(body) = frames.next().map_err(failed)? else { break };
        match PackItem::parse(body) {
            Some(PackItem::Image(image)) if last.get(&image.id) == Some(&(pack, position)) => {
                bytes += body.len();
                batch.push((pack, position, body.to_vec()));
            }
            Some(PackItem::Index(_)) => break,
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
    read.map(|_| bytes).map_err(Error::io("cannot read", name))
}

/// Makes filters of images, until there are no more.
fn load(batches: &Mutex<Receiver<PackBatch>>, with: &Surroundings<'_>) -> Loaded {
    let mut loaded = Loaded::default();
    loop {
        let Ok(batch) = batches.lock().recv() else { return loaded };
        for (pack, position, body) in batch {
            let Some(PackItem::Image(found)) = PackItem::parse(&body) else { continue };
            let files = image::files(found.image).unwrap_or_default();
            match image::read(found.image, with) {
                Ok(value) => {
                    let entry = Arc::new(Entry::new(found.id, value, found.expires));
                    let restored = Restored::new(found.database, found.name, entry);
                    let filter = FoundFilter { restored, sequence: found.sequence };
                    loaded.filters.push((found.id, filter, files));
                }
                Err(error) => {
                    let name = String::from_utf8_lossy(found.name).into_owned();
                    let what = format!("the filter {name:?} of the snapshot: {error}");
                    let at = (pack, position);
                    let needs_import = matches!(error, image::ImageError::Import { .. })
                        && with.import_dir.is_none();
                    let (id, reader) = (found.id, error.reader());
                    let damage = Damage { what, frame: body, at, files, needs_import, reader };
                    loaded.damaged.push((id, damage));
                }
            }
        }
    }
}
