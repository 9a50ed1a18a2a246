//! A build whose machine loses its power at any instant: afterwards it goes on, or begins anew, or was
//! finished, and its file is the same to the byte.
//!
//! The real program builds a filter under `strace`, which records every change of a file or folder,
//! and every sync. From that record a disk is staged as it may be found after the power went at some
//! instant: what was synced before is there, of the rest any part. Then the program is started again
//! there, with `--resume`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use inbloom_testing::{Random, program};

use crate::cli::folder::{Folder, numbers};

/// What is lost of what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// All of it.
    All,
    /// Of each file and folder what was changed last, down to the middle of a write.
    Tail,
    /// Any sectors, any names.
    Anything,
}

const SECTOR: usize = 512;

/// A change of a file, by its number, or of a folder, by its path.
#[derive(Debug)]
enum Change {
    Write { file: usize, at: usize, bytes: Vec<u8> },
    Cut { file: usize, length: usize },
    Create { path: String, file: usize },
    MakeFolder { path: String },
    Rename { from: String, to: String },
    Remove { path: String },
}

/// What was synced by a call that began and ended at these moments.
#[derive(Debug)]
struct Synced {
    target: Target,
    began: usize,
    ended: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    File(usize),
    Folder(String),
}

/// All that a program did to the files below a folder. Moments are lines of the record.
#[derive(Default)]
struct Recording {
    changes: Vec<(usize, Change)>,
    syncs: Vec<Synced>,
    /// The files that have names now, and the next number.
    names: BTreeMap<String, usize>,
    files: usize,
    /// Where writes without a place go on.
    positions: BTreeMap<usize, usize>,
}

const CALLS: &str = "openat,open,write,pwrite64,writev,pwritev,fdatasync,fsync,ftruncate,rename,\
                     renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,linkat,lseek";

impl Recording {
    /// Runs the program in a folder; None where there is no strace.
    fn of(folder: &Folder, arguments: &str) -> Option<Recording> {
        let mut command = program("strace", "strace")?;
        let record = Folder::new();
        command.args(["-f", "-qq", "-y", "-xx", "-s", "100000000", "-e"]);
        command.arg(format!("trace={CALLS}")).arg("-o").arg(record.path("record"));
        command.arg(env!("CARGO_BIN_EXE_inbloom"));
        folder.run_command(folder.prepared(command, arguments), b"").expect(0);
        let text = String::from_utf8(record.read("record")).expect("ASCII");
        let root = fs::canonicalize(folder.path("")).expect("it is there");
        let root = format!("{}/", root.display());
        let mut recording = Recording::default();
        let mut begun: BTreeMap<&str, (usize, String)> = BTreeMap::new();
        for (moment, line) in text.lines().enumerate() {
            let (process, call) = line.split_once(' ').expect("a process and its call");
            let call = call.trim_start();
            if let Some(start) = call.strip_suffix(" <unfinished ...>") {
                begun.insert(process, (moment, start.to_owned()));
            } else if let Some((_, end)) = call.split_once(" resumed>") {
                let (began, start) = begun.remove(process).expect("it began");
                recording.take(began, moment, &(start + end), &root);
            } else {
                recording.take(moment, moment, call, &root);
            }
        }
        Some(recording)
    }

    /// Notes what a call did, if it was below the root.
    fn take(&mut self, began: usize, ended: usize, call: &str, root: &str) {
        let Some((name, rest)) = call.split_once('(') else { return };
        let Some((arguments, result)) = rest.rsplit_once(" = ") else { return };
        let Some(arguments) = arguments.trim_end().strip_suffix(')') else { return };
        if result.starts_with('-') || result.starts_with('?') {
            return;
        }
        let texts: Vec<Vec<u8>> = arguments.split('"').skip(1).step_by(2).map(unescaped).collect();
        let path = |at: usize| {
            let path = String::from_utf8(texts[at].clone()).expect("a path is text");
            path.strip_prefix(root).unwrap_or(&path).to_owned()
        };
        // What a descriptor stands for.
        let of = |text: &str| {
            let (_, rest) = text.split_once('<')?;
            let path = String::from_utf8(unescaped(rest.split_once('>')?.0)).expect("text");
            match path == root.trim_end_matches('/') {
                true => Some(String::new()),
                false => path.strip_prefix(root).map(str::to_owned),
            }
        };
        let number = |at: usize| -> usize {
            let argument = arguments.rsplit(", ").nth(at).expect("an argument");
            argument.parse().expect("a number")
        };
        match name {
            "open" | "openat" if arguments.contains("O_CREAT") => {
                let Some(path) = of(result) else { return };
                if let Some(file) = self.names.get(&path) {
                    if arguments.contains("O_TRUNC") {
                        self.changes.push((ended, Change::Cut { file: *file, length: 0 }));
                    }
                    return;
                }
                self.names.insert(path.clone(), self.files);
                self.changes.push((ended, Change::Create { path, file: self.files }));
                self.files += 1;
            }
            "mkdir" => self.changes.push((ended, Change::MakeFolder { path: path(0) })),
            "rename" => {
                let (from, to) = (path(0), path(1));
                let file = self.names.remove(&from).expect("it was created");
                self.names.insert(to.clone(), file);
                self.changes.push((ended, Change::Rename { from, to }));
            }
            "unlink" | "rmdir" => {
                self.names.remove(&path(0));
                self.changes.push((ended, Change::Remove { path: path(0) }));
            }
            "write" | "pwrite64" | "ftruncate" | "fsync" | "fdatasync" | "lseek" => {
                let Some(path) = of(arguments) else { return };
                let Some(file) = self.names.get(&path).copied() else {
                    if name == "fsync" {
                        self.syncs.push(Synced { target: Target::Folder(path), began, ended });
                    }
                    return;
                };
                match name {
                    "fsync" | "fdatasync" => {
                        self.syncs.push(Synced { target: Target::File(file), began, ended });
                    }
                    "ftruncate" => {
                        self.changes.push((ended, Change::Cut { file, length: number(0) }));
                    }
                    "lseek" => drop(self.positions.insert(file, result.parse().expect("a place"))),
                    _ => {
                        let bytes = texts[0].clone();
                        assert_eq!(
                            bytes.len(),
                            result.parse::<usize>().expect("a length"),
                            "all is written"
                        );
                        let at = match name {
                            "pwrite64" => number(0),
                            _ => *self.positions.entry(file).or_default(),
                        };
                        if name == "write" {
                            self.positions.insert(file, at + bytes.len());
                        }
                        self.changes.push((ended, Change::Write { file, at, bytes }));
                    }
                }
            }
            "open" | "openat" => {}
            other => panic!("{other} is not staged"),
        }
    }

    /// Stages the disk in a folder as it may be found when the power went at a moment. Returns how
    /// many changes were lost.
    fn stage(&self, folder: &Path, moment: usize, loss: Loss, random: &mut Random) -> usize {
        let mut lost = BTreeSet::new();
        let mut torn = BTreeSet::new();
        let mut by_target: BTreeMap<Target, Vec<usize>> = BTreeMap::new();
        for (at, (when, change)) in self.changes.iter().enumerate() {
            if *when >= moment {
                lost.insert(at);
            } else {
                by_target.entry(change.target()).or_default().push(at);
            }
        }
        let ended = lost.len();
        for (target, changes) in by_target {
            // What was done before a sync began is safe once it has ended.
            let syncs = self.syncs.iter().filter(|it| it.target == target && it.ended < moment);
            let safe = syncs.map(|sync| sync.began).max();
            let is_safe = |at: &usize| safe.is_some_and(|safe| self.changes[*at].0 < safe);
            let mut open = changes.into_iter().filter(|at| !is_safe(at)).collect::<Vec<_>>();
            match loss {
                Loss::All => lost.extend(open),
                Loss::Tail => {
                    let lasting = random.index(open.len() + 1);
                    let rest = open.split_off(lasting);
                    torn.extend(rest.first());
                    lost.extend(rest.into_iter().skip(1));
                }
                Loss::Anything => torn.extend(open),
            }
        }
        let mut files: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        let mut names: BTreeMap<String, Option<usize>> = BTreeMap::new();
        for (at, (_, change)) in self.changes.iter().enumerate() {
            if lost.contains(&at) {
                continue;
            }
            let is_torn = torn.contains(&at);
            match change {
                Change::Write { file, at, bytes } => {
                    let content = files.entry(*file).or_default();
                    let end = if is_torn { random.index(bytes.len() + 1) } else { bytes.len() };
                    for start in (0..end).step_by(SECTOR) {
                        let sector = start..end.min(start + SECTOR);
                        if is_torn && loss == Loss::Anything && random.one_in(2) {
                            continue;
                        }
                        let to = at + sector.start..at + sector.end;
                        if content.len() < to.end {
                            content.resize(to.end, 0);
                        }
                        content[to].copy_from_slice(&bytes[sector]);
                    }
                }
                // A name or a length changes or not.
                _ if is_torn && random.one_in(2) => {}
                Change::Cut { file, length } => files.entry(*file).or_default().resize(*length, 0),
                Change::Create { path, file } => drop(names.insert(path.clone(), Some(*file))),
                Change::MakeFolder { path } => drop(names.insert(path.clone(), None)),
                Change::Rename { from, to } => {
                    if let Some(file) = names.remove(from) {
                        names.insert(to.clone(), file);
                    }
                }
                Change::Remove { path } => drop(names.remove(path)),
            }
        }
        for (path, file) in &names {
            if file.is_none() {
                fs::create_dir(folder.join(path)).expect("its folder is there");
            }
        }
        for (path, file) in names {
            // What is in a folder that was lost is lost.
            let is_there = folder.join(&path).parent().is_some_and(Path::is_dir);
            if let Some(file) = file.filter(|_| is_there) {
                let content = files.remove(&file).unwrap_or_default();
                fs::write(folder.join(path), content).expect("its folder is there");
            }
        }
        lost.len() - ended + torn.len()
    }

    /// The moments just before and behind everything that makes one state of the disk count instead
    /// of another: renames, syncs of folders, files that are emptied or removed.
    fn turning_points(&self) -> Vec<usize> {
        let changes = self.changes.iter().filter_map(|(moment, change)| match change {
            Change::Rename { .. } | Change::Cut { .. } | Change::Remove { .. } => Some(*moment),
            _ => None,
        });
        let syncs = self.syncs.iter().filter_map(|sync| match sync.target {
            Target::Folder(_) => Some(sync.ended),
            Target::File(_) => None,
        });
        let moments: BTreeSet<usize> =
            changes.chain(syncs).flat_map(|moment| [moment, moment + 1]).collect();
        moments.into_iter().collect()
    }
}

impl Change {
    /// What has to be synced to have it on disk.
    fn target(&self) -> Target {
        let folder = |path: &str| path.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
        match self {
            Change::Write { file, .. } | Change::Cut { file, .. } => Target::File(*file),
            Change::Create { path, .. } | Change::MakeFolder { path } | Change::Remove { path } => {
                Target::Folder(folder(path))
            }
            Change::Rename { to, .. } => Target::Folder(folder(to)),
        }
    }
}

/// The bytes of `\x61\x62`.
fn unescaped(text: &str) -> Vec<u8> {
    let digit = |digit: u8| (digit as char).to_digit(16).expect("a digit") as u8;
    let (pieces, rest) = text.as_bytes().as_chunks::<4>();
    assert!(rest.is_empty(), "all bytes are escaped");
    pieces.iter().map(|piece| digit(piece[2]) << 4 | digit(piece[3])).collect()
}

/// Removes what a build has made.
fn clear(folder: &Folder) {
    for name in folder.names().iter().filter(|name| name.contains("f.ib")) {
        let path = folder.path(name);
        match path.is_dir() {
            true => fs::remove_dir_all(path).expect("it is there"),
            false => fs::remove_file(path).expect("it is there"),
        }
    }
}

/// Loses the power so many times in a build.
fn survive(options: &str, times: usize) {
    let folder = Folder::new();
    // There is a checkpoint while they are read, after 2 million.
    folder.write("keys.txt", numbers(0, 2_300_000));
    let build = format!("build -p 1e-4 {options} keys.txt -o f.ib");
    let Some(recording) = Recording::of(&folder, &build) else { return };
    let whole = folder.read("f.ib");
    assert_eq!(folder.run("check -c f.ib keys.txt").expect(0).text(), "2300000\n");
    let end = recording.changes.last().expect("there are changes").0 + 2;
    let mut random = Random(end as u64);
    let turning = recording.turning_points();
    let (mut lost, mut resumed, mut finished) = (0, 0, 0);
    for time in 0..times {
        // Evenly over the build, and at what matters in it.
        let moment = match time % 3 {
            0 => end * time / times,
            _ => turning[turning.len() * time / times],
        };
        let loss = [Loss::All, Loss::Anything, Loss::Tail, Loss::All][time % 4];
        clear(&folder);
        lost += recording.stage(&folder.path(""), moment, loss, &mut random);
        let context = format!("{options}: moment {moment} of {end}, {loss:?} lost");
        if folder.path("f.ib").exists() {
            assert!(folder.read("f.ib") == whole, "{context}: it had its name");
            finished += 1;
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_inbloom"));
        command.stderr(Stdio::piped());
        let command = folder.prepared(command, &format!("{build} --resume"));
        let outcome = folder.run_command(command, b"");
        assert_eq!(outcome.code, 0, "{context}: {}", outcome.stderr);
        resumed += usize::from(outcome.stderr.contains("continuing in"));
        assert!(folder.read("f.ib") == whole, "{context}: {}", outcome.stderr);
    }
    assert!(lost > 0 && resumed > 0, "{lost} changes lost, {resumed} builds went on");
    println!("{options}: {lost} changes lost, {resumed} went on, {finished} were finished");
    is_found_out(&folder, &build, recording);
}

/// The test finds what it is for: had the spill not been synced before the state that tells of it, the
/// build could not go on.
fn is_found_out(folder: &Folder, build: &str, mut recording: Recording) {
    let is_spill = |change: &Change, wanted: usize| match change {
        Change::Create { path, file } => path.contains("/spill-") && *file == wanted,
        _ => false,
    };
    let changes = &recording.changes;
    recording.syncs.retain(|sync| match sync.target {
        Target::File(file) => !changes.iter().any(|(_, change)| is_spill(change, file)),
        Target::Folder(_) => true,
    });
    let is_state = |change: &Change| match change {
        Change::Rename { to, .. } => to.ends_with("/state"),
        _ => false,
    };
    let kept = changes.iter().find(|(_, change)| is_state(change)).expect("a state was kept").0;
    let synced = recording.syncs.iter().find(|sync| sync.began > kept).expect("its folder is");
    clear(folder);
    recording.stage(&folder.path(""), synced.ended + 1, Loss::All, &mut Random(7));
    let outcome = folder.run(&format!("{build} --resume"));
    assert_eq!(outcome.code, 2, "what was lost is missed: {}", outcome.stderr);
    assert!(
        outcome.stderr.contains("a temporary file does not hold what was written"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn a_build_survives_a_loss_of_power_in_each_phase() {
    survive("--kind ribbon -n 40M --memory 8M", 12);
}

#[test]
#[ignore = "long: hundreds of builds"]
fn builds_of_all_sorts_survive_hundreds_of_losses_of_power() {
    survive("--kind ribbon -n 40M --memory 8M", 240);
    survive("--kind ribbon --memory 8M", 120);
    survive("--kind blocked --memory 8M", 120);
}

#[test]
fn what_was_not_synced_is_lost_on_a_staged_disk() {
    let write = |at: usize| Change::Write { file: 0, at, bytes: vec![7; 2000] };
    let sync = |target, moment| Synced { target, began: moment, ended: moment };
    let recording = Recording {
        changes: vec![
            (0, Change::Create { path: "a".to_owned(), file: 0 }),
            (1, write(0)),
            (4, write(2000)),
            (6, Change::Rename { from: "a".to_owned(), to: "b".to_owned() }),
        ],
        syncs: vec![sync(Target::Folder(String::new()), 2), sync(Target::File(0), 3)],
        ..Recording::default()
    };
    for (moment, loss, expected) in [
        (1, Loss::All, vec![]),
        (3, Loss::All, vec![("a", 0)]),
        (4, Loss::All, vec![("a", 2000)]),
        (7, Loss::All, vec![("a", 2000)]),
    ] {
        let folder = Folder::new();
        recording.stage(&folder.path(""), moment, loss, &mut Random(1));
        let there = folder.names();
        let found: Vec<_> =
            there.iter().map(|name| (name.as_str(), folder.read(name).len())).collect();
        assert_eq!(found, expected, "{moment}, {loss:?}");
    }
    let mut seen = BTreeSet::new();
    for seed in 0..60 {
        let folder = Folder::new();
        recording.stage(&folder.path(""), 7, Loss::Anything, &mut Random(seed));
        let name = folder.names().remove(0);
        let bytes = folder.read(&name);
        assert!(bytes.len() >= 2000 && bytes[..2000].iter().all(|byte| *byte == 7), "synced");
        seen.insert((name, bytes.len() > 2000, bytes[2000..].contains(&0)));
    }
    assert!(seen.len() > 4, "any part of the rest: {seen:?}");
}
