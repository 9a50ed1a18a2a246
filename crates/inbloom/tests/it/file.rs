//! Filters in files: what is saved is there, whole, whatever happens on the way; what is opened costs
//! nothing until it is asked, however large it is; and nobody changes a file by opening it.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use inbloom::internals::file;
use inbloom::internals::kinds::blocked::SharedBlocked;
use inbloom::{BloomFilter, Error, Filter, Hasher, Kind, OpenOptions, Plan, SecretKey};
use tempfile::TempDir;
use xxhash_rust::xxh3::xxh3_64;

const KEY: SecretKey = SecretKey::new([7; 16]);

fn plan() -> Plan {
    Plan::builder(Kind::Blocked).items(1000).rate(0.001).build().unwrap()
}

fn filled(plan: Plan, keys: std::ops::Range<u64>) -> Filter {
    let mut filter = Filter::new(plan).unwrap();
    for key in keys {
        filter.insert(key.to_le_bytes()).unwrap();
    }
    filter
}

fn holds(filter: &Filter, mut keys: std::ops::Range<u64>) -> bool {
    keys.all(|key| filter.contains(key.to_le_bytes()))
}

/// A folder of its own, and a path in it.
fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("seen.ib");
    (folder, path)
}

#[test]
fn who_asks_for_one_file_never_gets_shards_in_its_place() {
    let (_folder, path) = place();
    let mut shards = Filter::sharded(plan(), 3).unwrap();
    shards.insert("alice").unwrap();
    shards.save(&path).unwrap();
    assert!(OpenOptions::new().open(&path).unwrap().contains("alice"));
    let is_missing = |error: Error| matches!(error, Error::Io { cause, .. } if cause.kind() == ErrorKind::NotFound);
    assert!(is_missing(OpenOptions::new().open_file(&path).unwrap_err()));
    assert!(is_missing(BloomFilter::open(&path).unwrap_err()));
    let shard = file::shard_path(file::stem_of(&path), shards.shard_of("alice"), 3);
    assert!(OpenOptions::new().open_file(shard).unwrap().contains("alice"));
}

fn names(folder: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

// --------------------------------------------------------------------------------------- round trips

#[test]
fn what_is_saved_is_what_is_opened() {
    let dense = Plan::builder(Kind::Bitmap).universe(5000).build().unwrap();
    let sparse = Plan::builder(Kind::Bitmap).universe(1 << 50).items(1000).build().unwrap();
    // The last is large enough to start on a page of its own, and to be given huge pages.
    let large = Plan::exact(Kind::Blocked, 512 * 100_000, 8).unwrap();
    let classic = Plan::exact(Kind::Classic, 10_007, 5).unwrap();
    let of = |kind: Kind| Plan::builder(kind).items(1000).rate(0.001).build().unwrap();
    // Of several generations.
    let window = Plan::builder(Kind::Window).last(1000).generations(3).build().unwrap();
    let of_time = Plan::builder(Kind::Window).window(Duration::from_secs(60)).items(1000).build();
    let (counting, cuckoo) = (of(Kind::Counting), of(Kind::Cuckoo));
    let others = [counting, cuckoo, window, of_time.unwrap()];
    for plan in [plan(), classic, dense, sparse, large].into_iter().chain(others) {
        let (folder, path) = place();
        let mut filter = filled(plan, 0..1000);
        filter.set_note("a note").unwrap();
        filter.save(&path).unwrap();
        assert_eq!(names(&folder), ["seen.ib"]);
        file::verify(&path).unwrap();
        for opened in
            [Filter::open(&path).unwrap(), OpenOptions::new().writable(true).open(&path).unwrap()]
        {
            assert!(opened == filter, "{plan:?}");
            assert!(holds(&opened, 0..1000), "{plan:?}");
            assert_eq!((opened.note(), opened.inserted()), ("a note", filter.inserted()));
        }
    }
}

#[test]
fn a_keyed_filter_opens_with_its_key_only() {
    let (_folder, path) = place();
    let mut filter = Filter::with_hasher(plan(), Hasher::sip13(KEY)).unwrap();
    filter.insert("alice").unwrap();
    filter.save(&path).unwrap();
    assert!(OpenOptions::new().secret(&KEY).open(&path).unwrap().contains("alice"));
    assert!(OpenOptions::new().secret(&KEY).writable(true).open(&path).unwrap().contains("alice"));
    file::verify(&path).expect("checked without the key");
    let other = SecretKey::new([8; 16]);
    for error in [
        Filter::open(&path).unwrap_err(),
        OpenOptions::new().writable(true).open(&path).unwrap_err(),
        OpenOptions::new().secret(&other).open(&path).unwrap_err(),
        OpenOptions::new().secret(&other).writable(true).open(&path).unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(matches!(error, Error::Key { .. }), "{text}");
        assert!(text.contains("open it with the secret key that it was built with"), "{text}");
    }
}

#[test]
fn a_relative_path_without_a_folder_is_beside_us() {
    let (folder, path) = place();
    filled(plan(), 0..10).save(&path).unwrap();
    let status = this_test("child_saves_to_a_bare_name").current_dir(folder.path()).status();
    assert!(status.unwrap().success());
    assert_eq!(names(&folder), ["bare.ib", "seen.ib"]);
}

#[test]
#[ignore = "run by a_relative_path_without_a_folder_is_beside_us"]
fn child_saves_to_a_bare_name() {
    if is_child() {
        filled(plan(), 0..10).save("bare.ib").unwrap();
        assert!(holds(&Filter::open("bare.ib").unwrap(), 0..10));
    }
}

// ---------------------------------------------------------------------------- opening changes nothing

#[test]
fn an_open_filter_refuses_changes_and_says_what_to_do() {
    let (_folder, path) = place();
    for plan in [
        plan(),
        Plan::exact(Kind::Classic, 10_007, 5).unwrap(),
        Plan::builder(Kind::Bitmap).universe(5000).build().unwrap(),
        Plan::builder(Kind::Counting).items(1000).build().unwrap(),
        Plan::builder(Kind::Cuckoo).items(1000).build().unwrap(),
    ] {
        let saved = filled(plan, 0..10);
        saved.save(&path).unwrap();
        let mut filter = Filter::open(&path).unwrap();
        assert!(filter.is_read_only());
        let refusals = [
            filter.insert(77u64.to_le_bytes()).map(drop),
            filter.insert_many(&[77u64.to_le_bytes()], &mut Vec::new()),
            filter.merge(&saved),
            filter.intersect(&saved),
            filter.clear(),
        ];
        for refusal in refusals {
            let error = refusal.unwrap_err();
            assert!(matches!(error, Error::ReadOnly), "{error:?}");
            assert_eq!(
                error.to_string(),
                "the filter was opened read-only; open it with OpenOptions::writable, change it, and save \
                 it as a new file"
            );
        }
        assert!(filter == saved && filter.inserted() == saved.inserted());
        // A copy is the caller's own.
        let mut copy = filter.clone();
        copy.insert(77u64.to_le_bytes()).unwrap();
        assert!(copy.contains(77u64.to_le_bytes()) && !copy.is_read_only());
    }
}

#[test]
fn opening_to_change_leaves_the_file_alone_until_it_is_saved() {
    let (_folder, path) = place();
    filled(plan(), 0..500).save(&path).unwrap();
    let before = fs::read(&path).unwrap();
    let mut filter = OpenOptions::new().writable(true).open(&path).unwrap();
    for key in 500..1000u64 {
        filter.insert(key.to_le_bytes()).unwrap();
    }
    assert!(holds(&filter, 0..1000));
    assert!(fs::read(&path).unwrap() == before, "the file has changed");
    assert!(!holds(&Filter::open(&path).unwrap(), 500..1000));

    // Over the very file that it is mapped from.
    filter.save(&path).unwrap();
    assert!(holds(&filter, 0..1000));
    file::verify(&path).unwrap();
    let again = Filter::open(&path).unwrap();
    assert!(again == filter && holds(&again, 0..1000));
    assert!(again == filled(plan(), 0..1000), "other bits than in one go");
}

#[test]
fn a_filter_opened_to_change_can_be_shared() {
    let (_folder, path) = place();
    filled(plan(), 0..500).save(&path).unwrap();
    let shared = OpenOptions::new().writable(true).open(&path).unwrap().into_shared().unwrap();
    shared.insert(500u64.to_le_bytes()).unwrap();
    assert!(holds(&shared.into_exclusive(), 0..501));
    // One that was opened to query is copied first.
    let shared = Filter::open(&path).unwrap().into_shared().unwrap();
    shared.insert(500u64.to_le_bytes()).unwrap();
    assert!(holds(&shared.into_exclusive(), 0..501));
    assert!(Filter::open(&path).unwrap() == filled(plan(), 0..500));
}

#[test]
fn an_open_filter_goes_on_answering_after_the_file_is_replaced_or_removed() {
    let (_folder, path) = place();
    filled(plan(), 0..500).save(&path).unwrap();
    let (query, change) =
        (Filter::open(&path).unwrap(), OpenOptions::new().writable(true).open(&path).unwrap());
    let other = Plan::exact(Kind::Classic, 100, 3).unwrap();
    Filter::new(other).unwrap().save(&path).unwrap();
    assert!(holds(&query, 0..500) && holds(&change, 0..500));
    fs::remove_file(&path).unwrap();
    assert!(holds(&query, 0..500) && holds(&change, 0..500));
}

/// Whoever opens a path while others replace it gets one of the files, never parts of two.
#[test]
fn a_path_that_is_replaced_all_the_time_opens_as_one_file_or_the_other() {
    let (_folder, path) = place();
    let filters: Vec<Filter> = [(512, 4), (512 * 4096, 8)]
        .iter()
        .zip(1..)
        .map(|((bits, probes), seed)| {
            let plan = Plan::exact(Kind::Blocked, *bits, *probes).unwrap();
            let mut filter = Filter::with_hasher(plan, Hasher::xxh3(seed)).unwrap();
            for key in 0..20u64 {
                filter.insert(key.to_le_bytes()).unwrap();
            }
            filter
        })
        .collect();
    filters[0].save(&path).unwrap();
    let end = Instant::now() + Duration::from_millis(500);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for filter in filters.iter().cycle().take_while(|_| Instant::now() < end) {
                filter.save(&path).unwrap();
            }
        });
        while Instant::now() < end {
            for opened in [
                Filter::open(&path).unwrap(),
                OpenOptions::new().writable(true).open(&path).unwrap(),
            ] {
                assert!(holds(&opened, 0..20), "parts of two files");
                assert!(filters.contains(&opened));
            }
        }
    });
}

// --------------------------------------------------------------------------------------------- saving

#[cfg(unix)]
#[test]
fn an_existing_files_permissions_are_kept_and_a_new_one_gets_the_usual() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let (folder, path) = place();
    let ordinary = folder.path().join("ordinary");
    File::create(&ordinary).unwrap();

    filled(plan(), 0..10).save(&path).unwrap();
    assert_eq!(mode(&path), mode(&ordinary));
    for kept in [0o600, 0o640, 0o444] {
        fs::set_permissions(&path, fs::Permissions::from_mode(kept)).unwrap();
        filled(plan(), 0..20).save(&path).unwrap();
        assert_eq!(mode(&path), kept);
        assert!(holds(&Filter::open(&path).unwrap(), 0..20));
    }
}

#[cfg(unix)]
#[test]
fn a_link_stays_a_link_and_leads_to_the_new_filter() {
    let (folder, path) = place();
    let link = folder.path().join("link.ib");
    filled(plan(), 0..10).save(&path).unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    filled(plan(), 0..20).save(&link).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(holds(&Filter::open(&path).unwrap(), 0..20));
    assert_eq!(names(&folder), ["link.ib", "seen.ib"]);
}

#[cfg(unix)]
#[test]
fn a_link_to_nothing_stays_a_link_and_what_it_leads_to_is_made() {
    use std::os::unix::fs::symlink;
    let (folder, path) = place();
    let (link, chain) = (folder.path().join("link.ib"), folder.path().join("chain.ib"));
    symlink("seen.ib", &link).unwrap();
    symlink(&link, &chain).unwrap();
    filled(plan(), 0..20).save(&chain).unwrap();
    for link in [&link, &chain] {
        assert!(fs::symlink_metadata(link).unwrap().is_symlink());
    }
    assert!(holds(&Filter::open(&path).unwrap(), 0..20));
    assert_eq!(names(&folder), ["chain.ib", "link.ib", "seen.ib"]);

    let circle = folder.path().join("circle.ib");
    symlink(&circle, &circle).unwrap();
    let error = filled(plan(), 0..20).save(&circle).unwrap_err().to_string();
    assert!(error.contains("in a circle"), "{error}");
}

#[cfg(unix)]
#[test]
fn unfinished_files_are_written_through_no_link() {
    use std::os::unix::fs::symlink;
    let (folder, path) = place();
    fs::write(&path, "precious").unwrap();
    let (link, second) = (folder.path().join("link"), folder.path().join("second"));
    symlink(&path, &link).unwrap();
    fs::hard_link(&path, &second).unwrap();
    let plan = Plan::builder(Kind::Blocked).items(1000).build().unwrap();
    let like = Filter::new(plan).unwrap();
    for (there, problem) in [(&link, "a symbolic link"), (&second, "a symbolic or hard link")] {
        let error = file::BlockedWriter::create(there, plan, &like).expect_err("it is refused");
        assert!(error.to_string().contains(problem), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }
    let dangling = folder.path().join("dangling");
    symlink(folder.path().join("elsewhere"), &dangling).unwrap();
    assert!(file::BlockedWriter::create(&dangling, plan, &like).is_err());
    assert!(!folder.path().join("elsewhere").exists());
}

#[test]
fn a_save_that_cannot_be_leaves_nothing_behind_and_names_the_path() {
    let (folder, path) = place();
    let filter = filled(plan(), 0..10);

    let missing = folder.path().join("no such folder").join("seen.ib");
    let error = filter.save(&missing).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.starts_with("cannot create a temporary file for ") && text.contains("no such folder")
    );
    assert!(names(&folder).is_empty());

    fs::create_dir(&path).unwrap();
    let error = filter.save(&path).unwrap_err();
    assert!(error.to_string().contains("seen.ib"), "{error}");
    assert_eq!(names(&folder), ["seen.ib"]);
    assert!(path.is_dir());

    // A file where a folder should be.
    File::create(folder.path().join("file")).unwrap();
    let below = folder.path().join("file").join("seen.ib");
    assert!(matches!(filter.save(below).unwrap_err(), Error::Io { .. }));
    assert_eq!(names(&folder), ["file", "seen.ib"]);
}

#[test]
fn what_cannot_be_opened_is_named() {
    let (folder, path) = place();
    for result in [
        Filter::open(&path),
        OpenOptions::new().writable(true).open(&path),
        Filter::open(folder.path()),
    ] {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error:?}");
        assert!(error.to_string().starts_with("cannot open "), "{error}");
        let source = std::error::Error::source(&error).expect("the system's reason");
        let cause = source.downcast_ref::<std::io::Error>().expect("an I/O error");
        assert!(error.to_string().ends_with(&cause.to_string()), "{error}");
    }
    assert!(file::verify(&path).unwrap_err().to_string().contains("seen.ib"));
}

/// The disk is full, or as good as: the system lets no file of the child grow past a limit.
#[cfg(unix)]
#[test]
fn a_full_disk_leaves_the_old_file_and_no_other() {
    let (folder, path) = place();
    filled(plan(), 0..500).save(&path).unwrap();
    let before = fs::read(&path).unwrap();
    let output = limited("trap '' XFSZ;", &path);
    let report = format!("{output:?}");
    assert!(output.status.success(), "{report}");
    assert!(report.contains("refused: cannot write "), "{report}");
    assert_eq!(names(&folder), ["seen.ib"]);
    assert!(fs::read(&path).unwrap() == before);
}

/// Killed while it writes, a program can clean up nothing. The old file is whole all the same.
#[cfg(unix)]
#[test]
fn a_writer_that_is_killed_leaves_the_old_file() {
    let (folder, path) = place();
    filled(plan(), 0..500).save(&path).unwrap();
    let before = fs::read(&path).unwrap();
    let output = limited("", &path);
    assert!(!output.status.success(), "{output:?}");
    assert!(fs::read(&path).unwrap() == before);
    assert!(holds(&Filter::open(&path).unwrap(), 0..500));
    let killed = std::os::unix::process::ExitStatusExt::signal(&output.status);
    assert!(killed.is_some(), "it was not killed: {output:?}");
    let left = names(&folder);
    if cfg!(target_os = "linux") {
        assert_eq!(left, ["seen.ib"], "what has no name goes with its process");
        return;
    }
    let temporary = |name: &String| name.starts_with(".inbloom-") && name.ends_with(".tmp");
    assert!(left.len() == 2 && left.iter().any(temporary), "killed too early? {left:?}");
    // And nobody takes what was left for a filter.
    let half = folder.path().join(left.iter().find(|name| temporary(name)).unwrap());
    let error = Filter::open(&half).unwrap_err();
    assert!(matches!(error, Error::Format { .. } | Error::NotAFilter { .. }), "{error}");
}

/// Saves several MB over `path` in a child that may write files of some hundred KB. Past the limit the
/// system sends SIGXFSZ, which kills; where `prelude` has it ignored, the write fails instead.
#[cfg(unix)]
fn limited(prelude: &str, path: &Path) -> std::process::Output {
    let child = this_test("child_saves_a_large_filter");
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("{prelude} ulimit -f 500; exec \"$@\"")).arg("sh");
    shell.arg(child.get_program()).args(child.get_args());
    shell.env("INBLOOM_CHILD", path).output().unwrap()
}

#[test]
#[ignore = "run by tests that limit what it may write"]
fn child_saves_a_large_filter() {
    if let Some(path) = std::env::var_os("INBLOOM_CHILD") {
        let large = Filter::new(Plan::exact(Kind::Blocked, 512 * 100_000, 8).unwrap()).unwrap();
        println!("refused: {}", large.save(path).unwrap_err());
    }
}

/// This program again, to run one of its tests that does nothing unless it is a child.
fn this_test(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", &format!("file::{name}"), "--ignored", "--nocapture"])
        .env("INBLOOM_CHILD", "1");
    command
}

fn is_child() -> bool {
    std::env::var_os("INBLOOM_CHILD").is_some()
}

// ------------------------------------------------------------------------------------------ large files

/// The offset of the payload of a large file without texts: a page.
const PAYLOAD: u64 = 4096;

/// A file of an empty filter of any size, of which only the header takes room on disk. The payload's
/// checksum is not that of the zeros, which only `verify` would find out.
fn sparse_file(plan: &Plan) -> tempfile::NamedTempFile {
    let shape = match plan.kind() {
        Kind::Bitmap => Plan::builder(Kind::Bitmap).universe(64).build(),
        Kind::Classic => Plan::exact(Kind::Classic, 64, plan.probes()),
        _ => Plan::exact(Kind::Blocked, 1024, plan.probes()),
    };
    let mut header = Vec::new();
    Filter::new(shape.unwrap()).unwrap().write_to(&mut header).unwrap();
    header.truncate(160);
    let mut put = |at: usize, value: u64| header[at..at + 8].copy_from_slice(&value.to_le_bytes());
    put(16, PAYLOAD + plan.bytes());
    put(24, plan.items());
    put(40, plan.bits());
    put(136, PAYLOAD);
    put(144, plan.bytes());
    header[52] = plan.lines() as u8;
    header[120..128].fill(0);
    let checksum = xxh3_64(&header);
    header[120..128].copy_from_slice(&checksum.to_le_bytes());

    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&header).unwrap();
    file.as_file().set_len(PAYLOAD + plan.bytes()).unwrap();
    file
}

/// Just above 2^36 bits, 8 GiB, in every kind that has an array of bits.
fn large_plans() -> [Plan; 4] {
    let two_lines = Plan::builder(Kind::Blocked).items(1 << 32).bytes((1 << 33) + (1 << 20));
    [
        Plan::exact(Kind::Blocked, (1 << 36) + 512, 8).unwrap(),
        two_lines.lines(2).probes(16).build().unwrap(),
        Plan::exact(Kind::Classic, (1 << 36) + 1, 7).unwrap(),
        Plan::builder(Kind::Bitmap).universe((1 << 36) + 1).items(1 << 36).build().unwrap(),
    ]
}

/// Keys that every kind can hold: integers, spread over the universe if that matters.
fn spread(i: u64) -> [u8; 8] {
    (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 28).to_le_bytes() // below 2^36
}

/// The memory that mappings of this file really take, in bytes; None where the system does not tell.
/// (That of the whole process would count what other tests do meanwhile.)
fn resident(path: &Path) -> Option<u64> {
    let maps = fs::read_to_string("/proc/self/smaps").ok()?;
    let name = path.file_name()?.to_str()?;
    let (mut total, mut ours) = (0, false);
    for line in maps.lines() {
        let mut fields = line.split_whitespace();
        match fields.next() {
            Some("Rss:") if ours => total += fields.next()?.parse::<u64>().ok()? * 1024,
            // "VmFlags: ..." and the like; what is no such line opens the next mapping.
            Some(word) if !word.ends_with(':') => ours = line.ends_with(name),
            _ => {}
        }
    }
    Some(total)
}

/// The places in memory that this many keys touch at most.
fn touched(plan: &Plan, keys: u64) -> u64 {
    let places = if plan.kind() == Kind::Classic { plan.probes() } else { plan.lines() };
    keys * u64::from(places)
}

fn best_of<T>(times: u32, mut action: impl FnMut() -> T) -> (Duration, T) {
    (0..times)
        .map(|_| {
            let start = Instant::now();
            let result = action();
            (start.elapsed(), result)
        })
        .min_by_key(|(spent, _)| *spent)
        .expect("at least once")
}

#[test]
fn filters_over_2_to_the_35_bits_open_at_once_and_take_inserts_everywhere() {
    for plan in large_plans() {
        let context = format!("{} with {} lines", plan.kind(), plan.lines());
        let saved = sparse_file(&plan);
        let (spent, mut filter) =
            best_of(5, || OpenOptions::new().writable(true).open(saved.path()).unwrap());
        println!("{context}: {} bytes opened to change in {spent:?}", plan.bytes());
        assert!(spent < Duration::from_millis(200), "{context}: {spent:?}");
        assert_eq!(filter.plan().bits(), plan.bits());

        let mut beyond = [false; 3]; // below 2^32, from there on, and from 2^35 on
        for i in 0..3000 {
            assert!(filter.insert(spread(i)).unwrap(), "{context}: key {i} is not new");
            for position in filter.positions(spread(i)).unwrap() {
                assert!(position < plan.bits());
                beyond[usize::from(position >> 32 != 0) + usize::from(position >> 35 != 0)] = true;
            }
        }
        assert_eq!(beyond, [true; 3], "{context}: a part of the filter is never used");
        assert!((0..3000).all(|i| filter.contains(spread(i))), "{context}");
        assert!((3000..6000).all(|i| !filter.contains(spread(i))), "{context}");
        let mut found = Vec::new();
        filter.contains_many(&(0..6000).map(spread).collect::<Vec<_>>(), &mut found);
        assert!(found.iter().enumerate().all(|(i, found)| *found == (i < 3000)), "{context}");
        if let Some(memory) = resident(saved.path()) {
            println!("{context}: {memory} bytes of memory after 3000 inserts and 6000 queries");
            // A page for each place that was touched, and a few neighbours.
            assert!(memory <= 2 * 4096 * touched(&plan, 6000), "{context}: {memory}");
        }
        drop(filter);
        assert!((0..100).all(|i| !Filter::open(saved.path()).unwrap().contains(spread(i))));
    }
}

#[cfg(unix)]
#[test]
fn a_large_file_is_queried_in_place_without_being_read() {
    use std::os::unix::fs::FileExt;
    for plan in large_plans() {
        let context = format!("{} with {} lines", plan.kind(), plan.lines());
        let saved = sparse_file(&plan);
        let empty = Filter::open(saved.path()).unwrap();
        // Somebody else has written these into the file: bit by bit.
        for position in (0..500).flat_map(|i| empty.positions(spread(i)).unwrap()) {
            let (at, mut byte) = (PAYLOAD + position / 8, [0]);
            saved.as_file().read_exact_at(&mut byte, at).unwrap();
            byte[0] |= 1 << (position % 8);
            saved.as_file().write_all_at(&byte, at).unwrap();
        }
        drop(empty);

        let (spent, filter) = best_of(5, || Filter::open(saved.path()).unwrap());
        let opened = resident(saved.path());
        println!("{context}: {} bytes opened to query in {spent:?}", plan.bytes());
        assert!(spent < Duration::from_millis(200), "{context}: {spent:?}");
        assert!((0..500).all(|i| filter.contains(spread(i))), "{context}: a member is denied");
        assert!((500..1000).all(|i| !filter.contains(spread(i))), "{context}");
        if let (Some(opened), Some(after)) = (opened, resident(saved.path())) {
            println!("{context}: {opened} bytes of memory, {after} after 1000 queries");
            assert!(opened <= 64 << 10, "{context}: opening took {opened}");
            assert!(after <= opened + 2 * 4096 * touched(&plan, 1000), "{context}: {after}");
        }
    }
}

/// The same with a file that is really there: 4 GiB, full to what it was planned for.
#[test]
#[ignore = "takes 4 GiB of memory and of disk, and a minute"]
fn four_gibibytes_open_in_ten_milliseconds() {
    let (_folder, path) = place();
    let plan = Plan::builder(Kind::Blocked).bytes(4 << 30).rate(0.001).build().unwrap();
    let keys = 50_000_000;
    let mut filter = Filter::new(plan).unwrap();
    let mut new = Vec::new();
    for first in (0..keys).step_by(1 << 20) {
        let batch: Vec<_> = (first..keys.min(first + (1 << 20))).map(u64::to_le_bytes).collect();
        filter.insert_many(&batch, &mut new).unwrap();
    }
    filter.save(&path).unwrap();
    drop(filter);

    let (spent, filter) = best_of(5, || Filter::open(&path).unwrap());
    let opened = resident(&path);
    let start = Instant::now();
    assert!(holds(&filter, 0..500), "a member is denied");
    let false_positives =
        (keys..keys + 500).filter(|key| filter.contains(key.to_le_bytes())).count();
    println!(
        "{} bytes opened in {spent:?}, {opened:?} bytes of memory; 1000 queries in {:?}, \
         {false_positives} false positives",
        fs::metadata(&path).unwrap().len(),
        start.elapsed(),
    );
    assert!(spent < Duration::from_millis(10), "{spent:?}");
    assert!(false_positives <= 5, "{false_positives} of 500 at 0.001");
    assert!(opened.is_none_or(|opened| opened <= 64 << 10), "{opened:?}");
    file::verify(&path).unwrap();
}

// -------------------------------------------------------------------------------- for many threads

/// A shared filter, and what it writes in pieces.
fn in_pieces(items: u64, keys: std::ops::Range<u64>) -> (SharedBlocked, Vec<u8>) {
    let plan = Plan::builder(Kind::Blocked).items(items).rate(0.001).build().unwrap();
    let shared = SharedBlocked::from_filter(filled(plan, keys.clone())).unwrap();
    let mut written = Vec::new();
    let put = |at: u64, bytes: &[u8]| {
        written.resize(written.len().max(at as usize + bytes.len()), 0);
        written[at as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    };
    shared.write_in_pieces(Hasher::default(), keys.end, put).unwrap();
    (shared, written)
}

#[test]
fn what_is_written_in_pieces_is_the_file_of_a_snapshot() {
    // Within a piece, and several of them: the last one shorter.
    for items in [1000, 2_000_000] {
        let (shared, written) = in_pieces(items, 0..1000);
        let mut file = Vec::new();
        shared.snapshot(Hasher::default(), 1000).unwrap().write_to(&mut file).unwrap();
        assert!(written == file, "{items} items");
    }
}

#[test]
fn a_filter_is_opened_for_many_threads_and_its_file_stays_as_it_is() {
    let (_folder, path) = place();
    let (_, written) = in_pieces(1000, 0..500);
    fs::write(&path, &written).unwrap();
    let shared = file::open_shared(&path, &Hasher::default()).unwrap();
    for key in 500..1000u64 {
        shared.insert(Hasher::default().digest(key.to_le_bytes()));
    }
    assert!(holds(&shared.snapshot(Hasher::default(), 1000).unwrap(), 0..1000));
    assert!(fs::read(&path).unwrap() == written);
}

#[test]
fn what_is_opened_for_many_threads_was_checked_whole() {
    let (_folder, path) = place();
    let (_, written) = in_pieces(1000, 0..500);
    // From the payload on, which follows the header and 32 bytes of padding.
    for at in 192..written.len() {
        let mut damaged = written.clone();
        damaged[at] ^= 1 << (at % 8);
        fs::write(&path, damaged).unwrap();
        let result = file::open_shared(&path, &Hasher::default());
        assert!(matches!(result, Err(Error::Format { .. })), "byte {at}");
        let result = OpenOptions::new().writable(true).verify(true).open(&path);
        assert!(matches!(result, Err(Error::Format { .. })), "byte {at}");
    }
}

#[test]
fn a_reserved_bit_is_refused_although_the_checksums_are_right() {
    let (_folder, path) = place();
    let (_, mut written) = in_pieces(1000, 0..500);
    let last = written.len() - 1;
    written[last] |= 0x80;
    let sum = xxh3_64(&written[192..]);
    written[152..160].copy_from_slice(&sum.to_le_bytes());
    written[120..128].fill(0);
    let sum = xxh3_64(&written[..160]);
    written[120..128].copy_from_slice(&sum.to_le_bytes());
    fs::write(&path, &written).unwrap();
    let error = file::open_shared(&path, &Hasher::default()).err().unwrap();
    assert!(error.to_string().contains("unused bits"), "{error}");
}

#[test]
fn only_a_blocked_filter_of_the_same_hash_is_opened_for_many_threads() {
    let (_folder, path) = place();
    fs::write(&path, in_pieces(1000, 0..500).1).unwrap();
    let refused = |hasher: Hasher| file::open_shared(&path, &hasher).err().unwrap();
    assert!(matches!(refused(Hasher::xxh3(1)), Error::Mismatch { field: "hash seed", .. }));
    assert!(matches!(refused(Hasher::sip13(KEY)), Error::Mismatch { field: "hash", .. }));
    let classic = Plan::builder(Kind::Classic).items(1000).build().unwrap();
    filled(classic, 0..500).save(&path).unwrap();
    assert!(matches!(refused(Hasher::default()), Error::Unsupported { .. }));
    let mut clearing = filled(plan(), 0..500);
    clearing.set_auto_clear(Some(0.5)).unwrap();
    clearing.save(&path).unwrap();
    assert!(matches!(refused(Hasher::default()), Error::Unsupported { .. }));
}

// ------------------------------------------------------------------------------ larger than memory

/// Reading ahead would bring in megabytes for every key that is asked for.
#[cfg(target_os = "linux")]
#[test]
fn the_system_is_told_that_a_large_file_is_read_at_random() {
    let large = Plan::exact(Kind::Blocked, 8 * (16 << 20), 8).unwrap();
    for (plan, at_random) in [(large, true), (plan(), false)] {
        let (_folder, path) = place();
        Filter::new(plan).unwrap().save(&path).unwrap();
        let path = fs::canonicalize(path).unwrap();
        for options in [OpenOptions::new(), OpenOptions::new().writable(true)] {
            let filter = options.open(&path).unwrap();
            assert_eq!(is_read_at_random(&path), at_random);
            // A pass over all of it is told of too, but only while it lasts.
            let _ = (filter.profile(4), filter.clone());
            filter.sweep_digests(&[filter.digest("alice")], &mut Vec::new());
            assert_eq!(is_read_at_random(&path), at_random);
        }
    }
}

/// Whether the one mapping of a file has the flag `rr`, of "random read".
#[cfg(target_os = "linux")]
fn is_read_at_random(path: &Path) -> bool {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut maps = maps.split_inclusive("\nVmFlags:").collect::<Vec<_>>().into_iter();
    // Its flags are at the beginning of the next piece.
    maps.find(|map| map.contains(path.to_str().unwrap())).expect("the file is mapped");
    let flags = maps.next().and_then(|piece| piece.lines().next()).expect("it has flags");
    flags.split_whitespace().any(|flag| flag == "rr")
}
