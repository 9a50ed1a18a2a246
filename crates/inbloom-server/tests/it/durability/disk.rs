//! A disk that can lose its power: what was synced is there afterwards, of the rest any part.

use std::collections::BTreeMap;
use std::io::{self, Cursor, Read};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use inbloom_server::persist::disk::{Disk, DiskFile};
use inbloom_testing::Random;

/// What is lost when the power goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Nothing: the process was killed, the system goes on.
    Nothing,
    /// Of each file what was written last, down to the middle of a write.
    Tail,
    /// Any sectors, any names.
    Anything,
    /// All that was not synced.
    All,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan {
    /// After so many operations every further one fails: the power is gone.
    pub dies_after: Option<u64>,
    /// This sync fails, and what it was to save is lost although later ones succeed.
    pub failing_sync: Option<u64>,
    /// From this operation to that one the disk is full.
    pub full: Option<(u64, u64)>,
}

/// The disk, shared with whoever looks at it.
#[derive(Clone, Default)]
pub struct Staged(Arc<Mutex<State>>, Arc<Mutex<Option<Meanwhile>>>);

/// What others do while a snapshot is written.
type Meanwhile = Box<dyn FnMut() + Send>;

#[derive(Default)]
struct State {
    plan: Plan,
    operations: u64,
    syncs: u64,
    next: u64,
    files: BTreeMap<u64, Content>,
    /// Names as the system sees them,
    names: BTreeMap<String, u64>,
    /// and as they would be found after a loss of power, with what was done since.
    safe_names: BTreeMap<String, u64>,
    unsafe_names: Vec<Naming>,
}

#[derive(Clone, Default)]
struct Content {
    bytes: Vec<u8>,
    safe: Vec<u8>,
    /// IntervalSet of `bytes` that were written since, the oldest first.
    writes: Vec<(usize, usize)>,
}

#[derive(Clone)]
enum Naming {
    Create(String, u64),
    Rename(String, String),
    Remove(String),
}

const SECTOR: usize = 64; // Smaller than a real one: more to lose.

impl Staged {
    /// Nothing on it.
    pub fn new(plan: Plan) -> Staged {
        let staged = Staged::default();
        staged.state().plan = plan;
        staged
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics with it")
    }

    /// Operations so far.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Syncs so far.
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// What is found when the power is back, on a disk that works.
    pub fn after(&self, loss: Loss, seed: u64) -> Staged {
        let state = self.state();
        let mut random = Random(seed | 1);
        let mut next = State { next: state.next, ..State::default() };
        if loss == Loss::Nothing {
            // The system has all of it, the disk still has not.
            next.files = state.files.clone();
            next.names = state.names.clone();
            next.safe_names = state.safe_names.clone();
            next.unsafe_names = state.unsafe_names.clone();
            return Staged(Arc::new(Mutex::new(next)), Arc::default());
        }
        next.names = match loss {
            Loss::Nothing => unreachable!("see above"),
            Loss::All => state.safe_names.clone(),
            Loss::Tail | Loss::Anything => {
                let mut names = state.safe_names.clone();
                let kept = random.below(state.unsafe_names.len() as u64 + 1) as usize;
                for (at, naming) in state.unsafe_names.iter().enumerate() {
                    let is_kept = match loss {
                        Loss::Tail => at < kept,
                        _ => random.below(2) == 0,
                    };
                    if is_kept {
                        naming.apply(&mut names);
                    }
                }
                names
            }
        };
        next.safe_names = next.names.clone();
        for id in next.names.values() {
            let content = &state.files[id];
            let bytes = match loss {
                Loss::Nothing => unreachable!("see above"),
                Loss::All => content.safe.clone(),
                Loss::Tail => content.with_tail(&mut random),
                Loss::Anything => content.with_sectors(&mut random),
            };
            next.files.insert(*id, Content { safe: bytes.clone(), bytes, writes: Vec::new() });
        }
        Staged(Arc::new(Mutex::new(next)), Arc::default())
    }

    /// Does something whenever a file of a snapshot is begun, written or synced; nothing after the last call
    /// of this with None.
    pub fn meanwhile(&self, work: Option<Meanwhile>) {
        *self.1.lock().expect("no panic") = work;
    }

    fn pass_time(&self) {
        // Whoever works is not interrupted by himself.
        let work = self.1.lock().expect("no panic").take();
        if let Some(mut work) = work {
            work();
            *self.1.lock().expect("no panic") = Some(work);
        }
    }

    /// Changes one byte of a file, as a bad sector does.
    pub fn damage(&self, name: &str, at: usize) {
        let mut state = self.state();
        let id = state.names[name];
        let content = state.files.get_mut(&id).expect("named");
        content.bytes[at] ^= 0x40;
    }

    /// The bytes of a file.
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        let state = self.state();
        state.files[&state.names[name]].bytes.clone()
    }

    /// Puts bytes in a file.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let mut state = self.state();
        let id = state.names[name];
        state.files.get_mut(&id).expect("named").bytes = bytes.to_vec();
    }
}

impl Naming {
    fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            Naming::Create(name, id) => drop(names.insert(name.clone(), *id)),
            Naming::Rename(from, to) => {
                if let Some(id) = names.remove(from) {
                    names.insert(to.clone(), id);
                }
            }
            Naming::Remove(name) => drop(names.remove(name)),
        }
    }
}

impl Content {
    /// The first writes of those that were not synced, the last of them torn.
    fn with_tail(&self, random: &mut Random) -> Vec<u8> {
        let mut bytes = self.safe.clone();
        let kept = random.below(self.writes.len() as u64 + 1) as usize;
        for (at, (from, to)) in self.writes.iter().enumerate().take(kept + 1) {
            let whole = to.min(&self.bytes.len()).saturating_sub(*from);
            let length = if at < kept { whole } else { random.below(whole as u64 + 1) as usize };
            if bytes.len() < from + length {
                bytes.resize(from + length, 0);
            }
            bytes[*from..from + length].copy_from_slice(&self.bytes[*from..from + length]);
        }
        bytes
    }

    /// Any of the sectors that were not synced; zeros in the place of others.
    fn with_sectors(&self, random: &mut Random) -> Vec<u8> {
        let mut bytes = self.safe.clone();
        for (from, to) in &self.writes {
            let to = *to.min(&self.bytes.len());
            for start in (*from..to).step_by(SECTOR) {
                if random.below(2) == 0 {
                    continue;
                }
                let end = to.min(start + SECTOR);
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[start..end].copy_from_slice(&self.bytes[start..end]);
            }
        }
        bytes
    }
}

impl State {
    /// Counts an operation that changes something, and fails if it has to.
    fn begin(&mut self) -> io::Result<()> {
        self.operations += 1;
        if self.plan.dies_after.is_some_and(|last| self.operations > last) {
            return Err(io::Error::other("the power is gone"));
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.plan.full.is_some_and(|(from, to)| (from..to).contains(&self.operations))
    }
}

impl Disk for Staged {
    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.state().names.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        let state = self.state();
        let id = state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(Cursor::new(state.files[id].bytes.clone())))
    }

    fn length(&self, name: &str) -> io::Result<u64> {
        let state = self.state();
        let id = state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(state.files[id].bytes.len() as u64)
    }

    fn path(&self, _: &str) -> Option<PathBuf> {
        None
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let is_log = name.starts_with("log-");
        if !is_log {
            self.pass_time();
        }
        let mut state = self.state();
        state.begin()?;
        if state.is_full() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.next += 1;
        let id = state.next;
        state.files.insert(id, Content::default());
        let naming = Naming::Create(name.to_owned(), id);
        naming.apply(&mut state.names);
        state.unsafe_names.push(naming);
        Ok(Box::new(StagedFile { disk: self.clone(), id, is_log }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        state.begin()?;
        let naming = Naming::Rename(from.to_owned(), to.to_owned());
        naming.apply(&mut state.names);
        state.unsafe_names.push(naming);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.begin()?;
        let naming = Naming::Remove(name.to_owned());
        naming.apply(&mut state.names);
        state.unsafe_names.push(naming);
        Ok(())
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        let id = *self.state().names.get(name).ok_or(io::ErrorKind::NotFound)?;
        StagedFile { disk: self.clone(), id, is_log: true }.sync()
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut state = self.state();
        state.begin()?;
        state.safe_names = state.names.clone();
        state.unsafe_names.clear();
        Ok(())
    }
}

struct StagedFile {
    disk: Staged,
    id: u64,
    is_log: bool,
}

impl StagedFile {
    fn write(&self, at: Option<u64>, bytes: &[u8]) -> io::Result<()> {
        if !self.is_log {
            self.disk.pass_time();
        }
        let mut state = self.disk.state();
        let begun = state.begin();
        let is_full = state.is_full();
        let content = state.files.get_mut(&self.id).expect("created");
        let at = at.map_or(content.bytes.len(), |at| at as usize);
        // What fails may have been done in part.
        let length = if begun.is_err() || is_full { bytes.len() / 2 } else { bytes.len() };
        if content.bytes.len() < at + length {
            content.bytes.resize(at + length, 0);
        }
        content.bytes[at..at + length].copy_from_slice(&bytes[..length]);
        content.writes.push((at, at + length));
        begun?;
        if is_full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl DiskFile for StagedFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.write(None, bytes)
    }

    fn overwrite(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write(Some(at), bytes)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.begin()?;
        let content = state.files.get_mut(&self.id).expect("created");
        content.bytes.truncate(length as usize);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        if !self.is_log {
            self.disk.pass_time();
        }
        let mut state = self.disk.state();
        state.begin()?;
        state.syncs += 1;
        let fails = state.plan.failing_sync == Some(state.syncs);
        let content = state.files.get_mut(&self.id).expect("created");
        if fails {
            // The system takes the pages for written from now on, and what is in memory goes with them.
            content.writes.clear();
            return Err(io::Error::other("the disk has not taken it"));
        }
        if content.writes.is_empty() && content.safe.len() < content.bytes.len() {
            return Ok(()); // Lost by a sync that has failed.
        }
        content.safe = content.bytes.clone();
        content.writes.clear();
        Ok(())
    }
}
