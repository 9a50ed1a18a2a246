//! Snapshots: the content of filters, after which the earlier log can be removed.
//!
//! A snapshot writes an image of every filter that has changed since the last one, one after
//! another, while clients continue. Each image has the number of the last record that it certainly
//! includes: replay begins after that. Small filters share one file, a *pack*; large parts of a
//! filter have files of their own (see `image`). Images are read from the live filters in chunks,
//! without a fork or a copy.
//!
//! ```text
//!   pack  = header (see `segment`) | frames (see `record`) | u64 where the last frame is | u64 check
//!   frame 1  image    id, sequence, database, expires + 1 or 0, name, image
//!         2  removed  id, id, ...
//!         3  index    number of removed, id, id, ..., then of every image: id, place in the file
//! ```
//!
//! The index is the last frame. It is needed when another frame is damaged. It shows which filters
//! the damaged frame had, so recovery does not use an older image of them, and where the next frame
//! begins.
//!
//! When there are many packs, or most of their content is old, they are merged into one, from file
//! to file and without reading filters.
//!
//! **Order.** A crash at any moment leaves a valid folder, because the steps are in this order: the
//! log begins a new file; images are written and synced; the manifest names them; files that it no
//! longer names are removed.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use inbloom::internals::codec::{Decoder, put_bytes, put_time, put_varint};
use xxhash_rust::xxh3::xxh3_64;

use super::disk::{Disk, DiskFile};
use super::image::{self, Fixed};
use super::log::Border;
use super::manifest::{self, Manifest};
use super::record::{FRAME, next_frame, seal};
use super::segment::{self, Frames};
use super::throttled_disk::ThrottledDisk;
use super::{Error, Owner, Store};
use crate::clock::now;
use crate::keyspace::{DATABASES, Entry};
use crate::value::Value;

/// What a frame of a pack says.
pub enum PackItem<'a> {
    /// A filter, as it was after a record.
    Image(PackedImage<'a>),
    /// Filters that are gone.
    Removed(Vec<u64>),
    /// What came before.
    Index(Index),
}

/// What is in a pack.
#[derive(Default)]
pub struct Index {
    /// Filters that are gone.
    pub removed: Vec<u64>,
    /// Filters, and where in the file their images are.
    pub images: Vec<(u64, u64)>,
}

/// A filter in a pack.
pub struct PackedImage<'a> {
    /// The filter's number.
    pub id: u64,
    /// The last record that is in it for certain.
    pub sequence: u64,
    /// Its database.
    pub database: usize,
    /// Until when it lives.
    pub expires: Option<u64>,
    /// Its name.
    pub name: &'a [u8],
    /// See `image`.
    pub image: &'a [u8],
}

impl<'a> PackItem<'a> {
    /// From the body of a frame.
    pub fn parse(body: &'a [u8]) -> Option<PackItem<'a>> {
        let mut fields = Decoder(body);
        match fields.u8()? {
            1 => Some(PackItem::Image(PackedImage {
                id: fields.varint()?,
                sequence: fields.varint()?,
                database: usize::try_from(fields.varint()?).ok().filter(|it| *it < DATABASES)?,
                expires: fields.time()?,
                name: fields.bytes()?,
                image: fields.rest(),
            })),
            2 => {
                let mut ids = Vec::new();
                while !fields.0.is_empty() {
                    ids.push(fields.varint()?);
                }
                Some(PackItem::Removed(ids))
            }
            3 => {
                let mut index = Index::default();
                for _ in 0..fields.varint()? {
                    index.removed.push(fields.varint()?);
                }
                while !fields.0.is_empty() {
                    index.images.push((fields.varint()?, fields.varint()?));
                }
                Some(PackItem::Index(index))
            }
            _ => None,
        }
    }
}

/// A pack that is being written.
struct Pack {
    file: Box<dyn DiskFile>,
    buffer: Vec<u8>,
    /// Bytes of the file before the buffer.
    bytes: u64,
    index: Index,
}

/// So many bytes are written at once.
const CHUNK: usize = 1 << 20;

impl Pack {
    fn begin(disk: &dyn Disk, number: u64) -> io::Result<Pack> {
        let file = disk.create(&segment::pack_name(number))?;
        let buffer = segment::pack_header(number).to_vec();
        Ok(Pack { file, buffer, bytes: 0, index: Index::default() })
    }

    /// Adds a frame with what `fill` writes.
    fn add(&mut self, fill: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let at = self.buffer.len();
        self.buffer.extend_from_slice(&[0; FRAME]);
        fill(&mut self.buffer);
        seal(&mut self.buffer, at);
        self.flush_beyond(CHUNK)
    }

    /// Adds the image of a filter.
    fn add_image(&mut self, id: u64, fill: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        self.index.images.push((id, self.position()));
        self.add(fill)
    }

    fn position(&self) -> u64 {
        self.bytes + self.buffer.len() as u64
    }

    fn is_empty(&self) -> bool {
        self.index.images.is_empty() && self.index.removed.is_empty()
    }

    fn flush_beyond(&mut self, most: usize) -> io::Result<()> {
        if self.buffer.len() > most {
            self.file.append(&self.buffer)?;
            self.bytes += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(())
    }

    fn add_removed(&mut self, ids: &[u64]) -> io::Result<()> {
        self.index.removed.extend_from_slice(ids);
        ids.chunks(100_000).try_for_each(|ids| {
            self.add(|out| {
                out.push(2);
                ids.iter().for_each(|id| put_varint(out, *id));
            })
        })
    }

    /// Completes the file, and returns its bytes.
    fn end(mut self) -> io::Result<u64> {
        let (index, at) = (std::mem::take(&mut self.index), self.position());
        self.add(|out| {
            out.push(3);
            put_varint(out, index.removed.len() as u64);
            index.removed.iter().for_each(|id| put_varint(out, *id));
            for (id, place) in &index.images {
                put_varint(out, *id);
                put_varint(out, *place);
            }
        })?;
        self.buffer.extend_from_slice(&at.to_le_bytes());
        self.buffer.extend_from_slice(&xxh3_64(&at.to_le_bytes()).to_le_bytes());
        self.flush_beyond(0)?;
        self.file.sync()?;
        Ok(self.bytes)
    }
}

/// What a snapshot has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Filters that had changed.
    pub filters: u64,
    /// Bytes of files that were written.
    pub bytes: u64,
    /// Milliseconds.
    pub millis: u64,
}

impl Store {
    /// Saves what has changed since the last snapshot. One at a time: others wait.
    pub fn snapshot(&self, owner: &dyn Owner) -> Result<Done, Error> {
        let mut kept = self.kept.lock();
        let _busy = self.log.keep_busy();
        let begun = Instant::now();
        self.is_saving.store(true, Ordering::Relaxed);
        let result = self.save(owner, &mut kept);
        self.is_saving.store(false, Ordering::Relaxed);
        let mut status = self.status.lock();
        match result {
            Ok(mut done) => {
                done.millis = begun.elapsed().as_millis() as u64;
                status.saved = now();
                status.done = done;
                status.error = None;
                let Done { filters, bytes, millis } = done;
                tracing::info!(filters, bytes, millis, "snapshot finished");
                Ok(done)
            }
            Err(error) => {
                tracing::error!(%error, "snapshot failed, log kept");
                status.error = Some(error.to_string());
                Err(error)
            }
        }
    }

    fn save(&self, owner: &dyn Owner, kept: &mut SnapshotState) -> Result<Done, Error> {
        owner.keyspace().prepare_visit();
        let border = self.log.divide().map_err(|error| {
            owner.keyspace().abandon_visit();
            Error::io("cannot begin a file of", "the log")(error)
        })?;
        owner.keyspace().begin_visit();
        if kept.is_damaged {
            // What is in memory is all there is: none of the old files is built upon.
            owner.keyspace().set_all_changed();
        }
        let written = self.write_pack(owner, &border);
        let (pack, images) = match written {
            Ok(written) => written,
            Err(error) => {
                self.log.give_back(border);
                return Err(error);
            }
        };
        // Images say which records they have: these must not come again under other changes.
        let result = self.log.make_safe().map_err(Error::io("cannot sync", "the log"));
        let result = result.and_then(|()| self.publish(owner, kept, &border, pack));
        let bytes = pack.map_or(0, |(_, bytes)| bytes);
        let mut done = Done { filters: images.len() as u64, bytes, millis: 0 };
        let mut files = self.files.lock();
        let mut old: HashSet<String> = HashSet::new();
        for image in images {
            done.bytes += image.bytes;
            if result.is_err() {
                image.entry.set_changed();
            }
            let names = files.entry(image.entry.id).or_default();
            names.extend(image.files);
            if result.is_ok() {
                names.retain(|name| !image.before.contains(name));
                old.extend(image.before);
            }
            if names.is_empty() {
                files.remove(&image.entry.id);
            }
        }
        if let Err(error) = result {
            // Whether the new manifest counts is unknown: both find their files.
            drop(files);
            self.log.give_back(border);
            return Err(error);
        }
        old.extend(border.removed.iter().filter_map(|id| files.remove(id)).flatten());
        drop(files);
        for name in self.disk.names().unwrap_or_default() {
            let is_record = name.starts_with("log-") || name.starts_with("pack-");
            if is_record && !kept.manifest.needs(&name) || old.contains(&name) {
                // What cannot be removed now will be when the server starts next.
                let _ = self.disk.remove(&name);
            }
        }
        Ok(done)
    }

    /// Makes a pack count, and all before the border not any more.
    fn publish(
        &self,
        owner: &dyn Owner,
        kept: &mut SnapshotState,
        border: &Border,
        pack: Option<WrittenPack>,
    ) -> Result<(), Error> {
        let mut manifest = kept.manifest.clone();
        let mut sizes = kept.sizes.clone();
        if kept.is_damaged {
            manifest.packs.clear();
        }
        if let Some((number, bytes)) = pack {
            manifest.packs.push(number);
            sizes.insert(number, bytes);
        }
        let total: u64 = manifest.packs.iter().filter_map(|pack| sizes.get(pack)).sum();
        let (mut live, mut is_damaged) = (kept.live, false);
        if manifest.packs.len() > MOST_PACKS || total > 2 * live + SLACK {
            let number = owner.keyspace().number();
            match self.merge_packs(&manifest.packs, number) {
                Ok(bytes) => {
                    live = bytes;
                    (manifest.packs, sizes) = (vec![number], HashMap::from([(number, live)]));
                }
                Err(error) => {
                    // They count as they are; if one is damaged, the next snapshot saves all anew.
                    tracing::error!(%error, "cannot compact snapshots");
                    is_damaged = matches!(error, Error::Damaged { .. });
                    let _ = self.disk.remove(&segment::pack_name(number));
                }
            }
        }
        manifest.log = border.last + 1;
        manifest.tail = manifest.log;
        manifest.next = owner.keyspace().number();
        manifest.write(&*self.disk).map_err(Error::io("cannot write", manifest::NAME))?;
        *kept = SnapshotState { manifest, sizes, live, is_damaged };
        self.log.saved(border);
        self.saved.store(border.last, Ordering::Relaxed);
        Ok(())
    }

    /// Writes what has changed; no file if nothing has.
    fn write_pack(
        &self,
        owner: &dyn Owner,
        border: &Border,
    ) -> Result<(Option<WrittenPack>, Vec<Saved>), Error> {
        let number = owner.keyspace().number();
        let failed = || Error::io("cannot write", segment::pack_name(number));
        let begun = Pack::begin(&*self.disk, number).and_then(|mut pack| {
            pack.add_removed(&border.removed)?;
            Ok(pack)
        });
        let mut pack = begun.map_err(|error| {
            owner.keyspace().abandon_visit();
            failed()(error)
        })?;
        let removed: HashSet<u64> = border.removed.iter().copied().collect();
        let (mut images, mut result) = (Vec::new(), Ok(()));
        owner.keyspace().visit_changed(|database, name, entry| {
            if result.is_err() || removed.contains(&entry.id) || !entry.take_changed() {
                return;
            }
            match self.add_image(owner, &mut pack, database, name, entry) {
                Ok(saved) => images.push(saved),
                Err(error) => {
                    entry.set_changed();
                    result = Err(error);
                }
            }
        });
        let is_empty = pack.is_empty();
        let ended = result.and_then(|()| pack.end().map_err(failed()));
        let ended =
            ended.and_then(|bytes| self.disk.sync_names().map_err(failed()).map(|()| bytes));
        match ended {
            Ok(bytes) if !is_empty => Ok((Some((number, bytes)), images)),
            ended => {
                let _ = self.disk.remove(&segment::pack_name(number));
                for saved in &images {
                    saved.entry.set_changed();
                    saved.files.iter().for_each(|name| drop(self.disk.remove(name)));
                }
                ended.map(|_| (None, Vec::new()))
            }
        }
    }

    fn add_image(
        &self,
        owner: &dyn Owner,
        pack: &mut Pack,
        database: usize,
        name: &[u8],
        entry: &Arc<Entry>,
    ) -> Result<Saved, Error> {
        // Whatever file is known of now belongs to a record that the image will have.
        let before = self.files.lock().get(&entry.id).cloned().unwrap_or_default();
        let stem = format!("filter-{}", owner.keyspace().number());
        let mut image = Vec::new();
        let fix = || match &entry.value {
            Value::Bloom(bloom) => {
                bloom.at_rest(|| Fixed { sequence: self.log.last(), items: bloom.items() })
            }
            _ => Fixed { sequence: self.log.last(), items: 0 },
        };
        // Filters behind a lock have it while they are written, and those who wait are in a hurry too.
        let throttled = ThrottledDisk(&*self.disk);
        let is_hurried = owner.is_stopping() || self.log.is_distrusted();
        let disk: &dyn Disk = match &entry.value {
            Value::Bloom(_) if !is_hurried => &throttled,
            _ => &*self.disk,
        };
        let image::WrittenImage { fixed, files } =
            image::write(&entry.value, owner.hasher(), disk, &stem, &mut image, fix)?;
        pack.add_image(entry.id, |out| {
            out.push(1);
            put_varint(out, entry.id);
            put_varint(out, fixed.sequence);
            put_varint(out, database as u64);
            put_time(out, entry.expires());
            put_bytes(out, name);
            out.extend_from_slice(&image);
        })
        .map_err(Error::io("cannot write", "a snapshot"))?;
        let length = |name: &String| self.disk.length(name).unwrap_or(0);
        let bytes = files.iter().map(length).sum();
        Ok(Saved { entry: Arc::clone(entry), before, files, bytes })
    }

    /// Puts packs together: of each filter the last image, of the removed nothing.
    fn merge_packs(&self, packs: &[u64], number: u64) -> Result<u64, Error> {
        // Where the last image of each filter is.
        let mut last: HashMap<u64, (u64, u64)> = HashMap::new();
        for pack in packs {
            let mut frames = open_pack(&*self.disk, *pack)?;
            loop {
                let position = frames.position();
                let body =
                    frames.next().map_err(Error::io("cannot read", segment::pack_name(*pack)))?;
                match body.and_then(PackItem::parse) {
                    Some(PackItem::Image(image)) => {
                        last.insert(image.id, (*pack, position));
                    }
                    Some(PackItem::Removed(ids)) => ids.iter().for_each(|id| {
                        last.remove(id);
                    }),
                    Some(PackItem::Index(_)) => break,
                    None => {
                        let name = segment::pack_name(*pack);
                        return Err(Error::Damaged { what: name, at: position });
                    }
                }
            }
        }
        let failed = || Error::io("cannot write", segment::pack_name(number));
        let mut merged = Pack::begin(&*self.disk, number).map_err(failed())?;
        for pack in packs {
            let mut frames = open_pack(&*self.disk, *pack)?;
            loop {
                let position = frames.position();
                let body =
                    frames.next().map_err(Error::io("cannot read", segment::pack_name(*pack)))?;
                let Some(body) = body else { break };
                if let Some(PackItem::Image(image)) = PackItem::parse(body)
                    && last.get(&image.id) == Some(&(*pack, position))
                {
                    merged
                        .add_image(image.id, |out| out.extend_from_slice(body))
                        .map_err(failed())?;
                }
            }
        }
        let bytes = merged.end().map_err(failed())?;
        self.disk.sync_names().map_err(failed())?;
        Ok(bytes)
    }
}

/// The index at the end of a pack, and where it is; None instead of one that is damaged.
pub fn index_of(pack: &[u8]) -> Option<(usize, Option<Index>)> {
    let (rest, check) = pack.split_last_chunk::<8>()?;
    let (_, at) = rest.split_last_chunk::<8>()?;
    if xxh3_64(at) != u64::from_le_bytes(*check) {
        return None;
    }
    let at = usize::try_from(u64::from_le_bytes(*at)).ok()?;
    let index = match next_frame(pack.get(at..)?).and_then(|(body, _)| PackItem::parse(body)) {
        Some(PackItem::Index(index)) => Some(index),
        _ => None,
    };
    Some((at, index))
}

/// The frames of a pack.
pub fn open_pack(disk: &dyn Disk, number: u64) -> Result<Frames, Error> {
    let name = segment::pack_name(number);
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => {
            Error::Missing { what: name.clone(), lost: "the filters of that snapshot" }
        }
        _ => Error::io("cannot read", name.clone())(error),
    };
    let length = disk.length(&name).map_err(failed)?;
    let file = disk.open(&name).map_err(failed)?;
    match Frames::of_pack(file, length, number).map_err(failed)? {
        Ok(frames) => Ok(frames),
        Err(segment::Beginning::Newer(version)) => {
            Err(Error::Newer { what: name, version, known: segment::VERSION })
        }
        Err(segment::Beginning::Damaged) => Err(Error::Damaged { what: name, at: 0 }),
    }
}

/// More packs are put together,
const MOST_PACKS: usize = 16;
/// and so are packs of twice the bytes of the last time and these.
const SLACK: u64 = 64 << 20;

/// What is safe.
pub struct SnapshotState {
    /// Which files count.
    pub manifest: Manifest,
    /// The bytes of packs.
    pub sizes: HashMap<u64, u64>,
    /// The bytes of the packs when they were last put together.
    pub live: u64,
    /// Something was found damaged: nothing of what is there is built upon.
    pub is_damaged: bool,
}

/// A pack that was written: its number, and its bytes.
type WrittenPack = (u64, u64);

/// A filter whose image was written.
struct Saved {
    entry: Arc<Entry>,
    /// The files that it had,
    before: Vec<String>,
    /// and has now,
    files: Vec<String>,
    /// of so many bytes.
    bytes: u64,
}
