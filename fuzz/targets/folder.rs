//! The data folder of a server, as anybody may leave it: the files of a sound one, whose frames are
//! damaged, mixed and repeated, with checksums that are right all the same. An error, or a server that
//! works, and whose folder can be opened again.
#![no_main]

use std::collections::BTreeMap;
use std::io::{self, Cursor, Read};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex};

use arbitrary::Arbitrary;
use inbloom_server::persist::disk::{Disk, DiskFile};
use inbloom_server::persist::recovery::{self, Access};
use inbloom_server::session::Place;
use inbloom_server::{Config, Server, Session};
use libfuzzer_sys::fuzz_target;
use xxhash_rust::xxh3::xxh3_64;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    edits: Vec<Edit<'a>>,
    /// Bytes that are changed when all else is done, and nothing is made right again.
    damage: Vec<(u8, u16, u8)>,
    repair: bool,
}

#[derive(Arbitrary, Debug)]
enum Edit<'a> {
    /// Bytes of a frame.
    Change { file: u8, frame: u8, at: u16, byte: u8 },
    /// A frame is gone.
    Drop { file: u8, frame: u8 },
    /// A frame comes twice, or in another file.
    Repeat { from: u8, frame: u8, to: u8 },
    /// A frame of any bytes.
    Add { file: u8, body: &'a [u8] },
}

/// A folder in memory.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<BTreeMap<String, Vec<u8>>>>);

impl Memory {
    fn file(&self, name: &str) -> io::Result<Vec<u8>> {
        let files = self.0.lock().expect("no panic");
        files.get(name).cloned().ok_or(io::ErrorKind::NotFound.into())
    }
}

impl Disk for Memory {
    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.0.lock().expect("no panic").keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(Cursor::new(self.file(name)?)))
    }

    fn length(&self, name: &str) -> io::Result<u64> {
        Ok(self.file(name)?.len() as u64)
    }

    fn path(&self, _: &str) -> Option<PathBuf> {
        None
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.0.lock().expect("no panic").insert(name.to_owned(), Vec::new());
        Ok(Box::new(File(self.clone(), name.to_owned())))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.0.lock().expect("no panic");
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.lock().expect("no panic").remove(name);
        Ok(())
    }

    fn sync(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        Ok(())
    }
}

struct File(Memory, String);

impl File {
    fn change(&self, change: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        // Written to after it was removed: nobody will see it.
        if let Some(file) = self.0.0.lock().expect("no panic").get_mut(&self.1) {
            change(file);
        }
        Ok(())
    }
}

impl DiskFile for File {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.change(|file| file.extend_from_slice(bytes))
    }

    fn overwrite(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let at = at as usize;
        self.change(|file| {
            file.resize(file.len().max(at + bytes.len()), 0);
            file[at..at + bytes.len()].copy_from_slice(bytes);
        })
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.change(|file| file.truncate(length as usize))
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Commands that make one filter of each form, and change it.
const COMMANDS: &[&str] = &[
    "BF.MADD a 1 2 3",
    "BF.RESERVE b 0.01 30 KIND counting",
    "BF.MADD b 1 2 3",
    "IB.DEL b 2",
    "BF.RESERVE c 0.01 30 KIND cuckoo",
    "BF.MADD c 1 2 3",
    "BF.RESERVE d 0.01 30 WINDOW 1h",
    "BF.MADD d 1 2 3",
    "BF.RESERVE e 0.01 4 KIND redisbloom",
    "BF.MADD e 1 2 3 4 5 6",
    "CF.RESERVE f 8",
    "CF.INSERT f ITEMS 1 2 3",
    "CF.DEL f 2",
    "IB.MERGE g a",
    "BF.RESERVE h 0.01 4",
    "BF.MADD h 1 2 3 4 5 6 7 8",
    "IB.MERGE a g",
    "RENAME g i",
    "PEXPIREAT i 4000000000000",
    "DEL c",
];

fn say(server: &Server, session: &mut Session, line: &str) {
    let mut input = line.as_bytes().to_vec();
    input.extend(b"\r\n");
    let mut out = Vec::new();
    session.process(server, &input, &mut out, Place::Own);
    assert!(!out.is_empty(), "{line} has no reply");
    if let Some(log) = server.log() {
        let _ = log.make_safe();
    }
}

fn session(server: &Server) -> Session {
    let client = server.clients.enter("127.0.0.1:1".into(), "127.0.0.1:2".into());
    Session::new(client, server)
}

/// A folder with a snapshot and a log behind it.
static SOUND: LazyLock<BTreeMap<String, Vec<u8>>> = LazyLock::new(|| {
    let disk = Memory::default();
    let server = Server::new(Config::default());
    let opened = recovery::open(&server, Arc::new(disk.clone()), Access::Use);
    let store = Arc::new(opened.expect("empty").0.expect("to be used"));
    server.set_store(Arc::clone(&store));
    let mut session = session(&server);
    COMMANDS.iter().for_each(|line| say(&server, &mut session, line));
    store.snapshot(&server).expect("memory does not fail");
    for line in COMMANDS {
        say(&server, &mut session, &line.to_lowercase().replace(" i ", " j "));
    }
    let files = disk.0.lock().expect("no panic").clone();
    files
});

const HEADER: usize = 32;

/// The bodies of a file's frames.
fn frames(file: &[u8]) -> Vec<Vec<u8>> {
    let (mut frames, mut at) = (Vec::new(), HEADER);
    while let Some(length) = file.get(at..at + 4) {
        let length = u32::from_le_bytes(length.try_into().expect("4 bytes")) as usize;
        let Some(body) = file.get(at + 8..at + 8 + length) else { break };
        frames.push(body.to_vec());
        at += 8 + length;
    }
    frames
}

/// A file with these frames.
fn file(header: &[u8], frames: &[Vec<u8>], is_pack: bool) -> Vec<u8> {
    let mut file = header.to_vec();
    let mut last = 0;
    for body in frames {
        last = file.len() as u64;
        file.extend((body.len() as u32).to_le_bytes());
        file.extend((xxh3_64(body) as u32).to_le_bytes());
        file.extend(body);
    }
    if is_pack {
        file.extend(last.to_le_bytes());
        file.extend(xxh3_64(&last.to_le_bytes()).to_le_bytes());
    }
    file
}

fuzz_target!(|input: Input| {
    let mut sound = SOUND.clone();
    let names: Vec<String> =
        sound.keys().filter(|name| !name.starts_with("MANIFEST")).cloned().collect();
    let mut all: Vec<Vec<Vec<u8>>> = names.iter().map(|name| frames(&sound[name])).collect();
    let files = all.len();
    let pick = |number: u8, of: usize| usize::from(number) % of.max(1);
    for edit in input.edits.iter().take(16) {
        match *edit {
            Edit::Change { file, frame, at, byte } => {
                let frames = &mut all[pick(file, files)];
                let count = frames.len();
                if let Some(body) = frames.get_mut(pick(frame, count)) {
                    let length = body.len();
                    if let Some(place) = body.get_mut(usize::from(at) % length.max(1)) {
                        *place = byte;
                    }
                }
            }
            Edit::Drop { file, frame } => {
                let frames = &mut all[pick(file, files)];
                if !frames.is_empty() {
                    frames.remove(pick(frame, frames.len()));
                }
            }
            Edit::Repeat { from, frame, to } => {
                let frames = &all[pick(from, files)];
                if let Some(body) = frames.get(pick(frame, frames.len())).cloned() {
                    let to = &mut all[pick(to, files)];
                    let at = pick(frame, to.len());
                    to.insert(at, body);
                }
            }
            Edit::Add { file, body } => {
                let frames = &mut all[pick(file, files)];
                let at = frames.len().saturating_sub(1);
                frames.insert(at, body.to_vec());
            }
        }
    }
    for (name, frames) in names.iter().zip(&all) {
        let header = sound[name][..HEADER].to_vec();
        sound.insert(name.clone(), file(&header, frames, name.starts_with("pack-")));
    }
    for (number, at, byte) in &input.damage {
        let name = &names[pick(*number, names.len())];
        let file = sound.get_mut(name).expect("named");
        let length = file.len();
        file[usize::from(*at) % length] ^= byte;
    }
    let disk = Memory(Arc::new(Mutex::new(sound)));
    let server = Server::new(Config::default());
    let access = if input.repair { Access::Repair } else { Access::Use };
    let Ok((Some(store), _)) = recovery::open(&server, Arc::new(disk.clone()), access) else {
        return;
    };
    let store = Arc::new(store);
    server.set_store(Arc::clone(&store));
    let mut session = session(&server);
    COMMANDS.iter().for_each(|line| say(&server, &mut session, line));
    store.snapshot(&server).expect("memory does not fail");
    let again = Server::new(Config::default());
    let (_, found) =
        recovery::open(&again, Arc::new(disk), Access::Use).expect("it was written a moment ago");
    assert!(found.damaged.is_empty(), "{:?}", found.damaged);
    for database in 0..16 {
        assert_eq!(again.keyspace.len(database), server.keyspace.len(database));
    }
});
