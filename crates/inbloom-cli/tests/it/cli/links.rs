//! Links, folders and names that others may have put where a command writes or reads.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::cli::folder::{Folder, numbers};

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink())
}

/// Keys that do not fit into 8 MiB, so that a build keeps them in a folder.
fn with_many_keys() -> Folder {
    let folder = Folder::new();
    folder.write("keys.txt", numbers(0, 700_000));
    folder.write("precious.txt", "precious");
    folder
}

const BUILD: &str = "build --kind ribbon -p 1e-4 --memory 8MiB -o f.ib keys.txt";

#[test]
fn a_build_in_parts_follows_no_link_in_its_folder() {
    let folder = with_many_keys();
    for name in ["lock", "state", "state.new", "chunks", "parts", "spill-00"] {
        fs::create_dir(folder.path("f.ib.building")).expect("it is free");
        let link = folder.path(&format!("f.ib.building/{name}"));
        for hard in [false, true] {
            match hard {
                false => symlink("../precious.txt", &link).expect("it is linked"),
                true => fs::hard_link(folder.path("precious.txt"), &link).expect("it is linked"),
            }
            let resume = if name == "state" { "--resume" } else { "" };
            folder.run(&format!("{BUILD} {resume}")).expect_error(&["f.ib.building", name]);
            assert_eq!(folder.read("precious.txt"), b"precious", "{name}");
            fs::remove_file(&link).expect("it was left");
        }
        fs::remove_dir(folder.path("f.ib.building")).expect("nothing else was made in it");
    }
    folder.run(BUILD).expect(0);
    assert_eq!(folder.names(), ["f.ib", "keys.txt", "precious.txt"]);
}

#[test]
fn a_build_in_parts_takes_no_folder_that_is_not_its_own() {
    let folder = with_many_keys();
    let building = folder.path("f.ib.building");
    fs::create_dir(folder.path("elsewhere")).expect("it is free");
    symlink("elsewhere", &building).expect("it is linked");
    folder.run(BUILD).expect_error(&["f.ib.building is a symbolic link"]);
    symlink("nowhere", folder.path("g.ib.building")).expect("it is linked");
    folder.run(&BUILD.replace("f.ib", "g.ib")).expect_error(&["g.ib.building is a symbolic link"]);
    assert!(!folder.path("nowhere").exists());
    fs::remove_file(&building).expect("it was left");

    // Somebody's own files, of the same names as ours and of others: nothing is removed.
    fs::create_dir(&building).expect("it is free");
    folder.write("f.ib.building/state", "of Denmark");
    folder.write("f.ib.building/parts", "of speech");
    folder.write("f.ib.building/thesis.txt", "precious");
    fs::remove_file(folder.path("f.ib.building/state")).expect("it was made");
    folder
        .run(BUILD)
        .expect_error(&["f.ib.building holds thesis.txt", "does not belong to a build"]);
    assert_eq!(folder.read("f.ib.building/parts"), b"of speech");
    fs::remove_dir_all(&building).expect("it was left");

    // Of another user, where the tests may make such a folder.
    fs::create_dir(&building).expect("it is free");
    if std::os::unix::fs::chown(&building, Some(12_345), None).is_ok() {
        folder.run(BUILD).expect_error(&["f.ib.building belongs to another user"]);
    }
}

#[test]
fn an_unfinished_output_is_written_through_no_link() {
    let folder = with_many_keys();
    let shards = "build --kind classic --shards 2 --memory 8MiB -o f.ib keys.txt";
    let blocked = "build --memory 8MiB -o f.ib keys.txt";
    for (command, name) in [
        (BUILD, "f.ib.partial"),
        (BUILD, "f.ib.base"),
        (blocked, "f.ib.partial"),
        (shards, "f.000-of-002.ib.partial"),
        (shards, "f.001-of-002.ib.partial"),
    ] {
        symlink("precious.txt", folder.path(name)).expect("it is linked");
        folder.run(command).expect_error(&[name, "symbolic link"]);
        assert_eq!(folder.read("precious.txt"), b"precious", "{name}");
        fs::remove_file(folder.path(name)).expect("it was left");
    }
    assert_eq!(folder.names(), ["keys.txt", "precious.txt"]);
}

#[test]
fn an_output_that_is_a_link_stays_one_and_what_it_leads_to_is_replaced() {
    let folder = Folder::with_names();
    fs::create_dir(folder.path("real")).expect("it is free");
    folder.write("new.txt", "dave\n");
    let counts = |name: &str| folder.info(name)["inserted"].as_u64().expect("a number");
    for command in [
        "build --kind counting -n 9 -p 1e-9 -o link.ib names.txt",
        "build --memory 8MiB -n 9 -p 1e-9 -o link.ib names.txt",
        "build --kind ribbon -p 1e-9 -o link.ib names.txt",
        "dedup -q -n 9 --filter link.ib names.txt",
        "merge -o link.ib names.ib names.ib",
    ] {
        // First to nothing, then to what the first run has made.
        symlink("real/f.ib", folder.path("link.ib")).expect("it is linked");
        for _ in 0..2 {
            folder.run(command).expect(0);
            assert!(is_link(&folder.path("link.ib")), "{command}");
            assert!(!is_link(&folder.path("real/f.ib")), "{command}");
            assert_eq!(counts("real/f.ib"), 3, "{command}");
        }
        if command.contains("counting") {
            folder.run("add link.ib new.txt").expect(0);
            assert_eq!((counts("real/f.ib"), is_link(&folder.path("link.ib"))), (4, true));
            folder.run("remove link.ib new.txt").expect(0);
            assert_eq!((counts("real/f.ib"), is_link(&folder.path("link.ib"))), (3, true));
        }
        let names: Vec<_> = fs::read_dir(folder.path("real")).expect("it is there").collect();
        assert_eq!(names.len(), 1, "{command}: {names:?}");
        fs::remove_file(folder.path("link.ib")).expect("it is there");
        fs::remove_file(folder.path("real/f.ib")).expect("it is there");
    }
    symlink("circle.ib", folder.path("circle.ib")).expect("it is linked");
    folder.run("build -o circle.ib names.txt").expect_error(&["circle.ib", "circle"]);
}

#[test]
fn a_kill_while_a_filter_is_saved_leaves_no_temporary_file() {
    let folder = Folder::with_names();
    for wait in (1..10).map(|step| Duration::from_millis(40 * step)) {
        // 127 MB: most of the time is spent on writing them.
        let build = "build -n 100M -o f.ib names.txt";
        let mut child = folder.command(build).spawn().expect("it starts");
        thread::sleep(wait);
        let kill = Command::new("kill").args(["-9", &child.id().to_string()]).status();
        kill.expect("kill can be run");
        child.wait().expect("it was started");
        let left: Vec<_> =
            folder.names().into_iter().filter(|name| name.ends_with(".tmp")).collect();
        assert!(left.is_empty(), "after {wait:?}: {left:?}");
    }
}

#[test]
fn names_of_files_do_not_command_the_terminal() {
    let folder = Folder::with_names();
    let name = "a\u{1b}]0;title\u{7}\u{1b}[31m\nb.txt";
    folder.write(name, "alice\n");
    let escaped = "a\\x1b]0;title\\x07\\x1b[31m\\nb.txt";
    let run = |arguments: &[&str]| {
        let output = folder.command("").args(arguments).output().expect("it starts");
        (String::from_utf8_lossy(&output.stderr).into_owned(), output.stdout)
    };
    let arguments: [&[&str]; 4] = [
        &["info", name],
        &["check", name],
        &["check", "names.ib", "--max-line", "2", name],
        &["build", "-o", name, "names.txt"],
    ];
    for arguments in arguments {
        let (stderr, _) = run(arguments);
        assert!(!stderr.contains(['\u{1b}', '\u{7}']), "{arguments:?}: {stderr:?}");
        assert!(stderr.contains("\\x1b["), "{arguments:?}: {stderr:?}");
    }
    folder.write(name, "alice\n");
    let usage = folder.run_on_terminal("check --odd\u{1b}[31m\u{7}", &[]);
    assert!(usage.contains("--odd") && !usage.contains(['\u{1b}', '\u{7}']), "{usage:?}");
    // For programs names are what they are, on a terminal what can be shown.
    let (stderr, stdout) = run(&["check", "-H", "names.ib", name]);
    assert_eq!((stderr.as_str(), stdout), ("", format!("{name}:alice\n").into_bytes()));
    folder.write("-b\u{1b}[31m.txt", "bob\n");
    let shown =
        folder.run_on_terminal("check -H names.ib -- -b\u{1b}[31m.txt", &[("NO_COLOR", "1")]);
    assert!(shown.contains("-b\\x1b[31m.txt:bob"), "{shown:?}");
    let (stderr, _) = run(&["check", "names.ib", "--max-line", "2", name]);
    assert!(stderr.contains(escaped), "{stderr}");
}
