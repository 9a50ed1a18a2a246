//! Two programs that change one filter at once: the second is refused before it has done anything,
//! or waits.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::process::{Child, ChildStdin};
use std::thread;
use std::time::Duration;

use crate::cli::folder::{Folder, exit_code, numbers, within_ten_seconds};

/// Starts a program that changes `f.ib` and is given the line `slow`, which is new. Returns when it
/// has printed that: it has the filter then.
fn holder(folder: &Folder) -> (Child, ChildStdin) {
    let mut command = folder.command("dedup -q --filter f.ib -n 1000");
    let mut child = command.spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(b"slow\n").expect("it reads");
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    let read = move || stdout.read_line(&mut String::new()).expect("it prints");
    within_ten_seconds(read);
    (child, stdin)
}

#[test]
fn the_second_program_is_refused_before_it_prints_a_line() {
    let folder = Folder::new();
    folder.run_with("dedup --filter f.ib -n 1000", "a\n").expect(0);
    folder.write("keys.txt", "quick\n");
    let before = folder.read("f.ib");
    let (child, stdin) = holder(&folder);
    let pid = child.id().to_string();
    for command in [
        "dedup --filter f.ib keys.txt",
        "add f.ib keys.txt",
        "remove f.ib keys.txt",
        "merge -o f.ib f.ib f.ib",
        "build -o f.ib keys.txt",
        "build -o f.ib -n 10 --memory 8MiB keys.txt",
        "dedup --filter f.ib --wait=10ms keys.txt",
    ] {
        folder.run(command).expect_error(&["f.ib", &pid, "--wait"]);
        assert!(folder.read("f.ib") == before, "{command}");
    }
    // Readers do not wait.
    assert_eq!(folder.run_with("check f.ib", "a\nslow\n").expect(0).text(), "a\n");
    folder.run("info --verify f.ib").expect(0);
    drop(stdin);
    assert_eq!(exit_code(child), 0, "the first one knows nothing of it");
    assert_eq!(folder.run_with("check f.ib", "a\nslow\n").expect(0).text(), "a\nslow\n");
    assert_eq!(folder.names(), ["f.ib", "keys.txt"], "no lock stays");
}

#[test]
fn the_lock_of_another_program_is_not_removed() {
    let folder = Folder::new();
    let (child, stdin) = holder(&folder);
    // Somebody removes the lock, and another program takes its own.
    fs::remove_file(folder.path(".f.ib.lock")).expect("it is there");
    folder.write(".f.ib.lock", "inbloom 1\n");
    drop(stdin);
    assert_eq!(exit_code(child), 0);
    assert_eq!(folder.read(".f.ib.lock"), b"inbloom 1\n");
}

#[test]
fn a_filter_that_does_not_exist_yet_is_locked_too() {
    let folder = Folder::new();
    let (child, stdin) = holder(&folder);
    folder.run_with("dedup --filter f.ib", "quick\n").expect_error(&["f.ib", "--wait"]);
    drop(stdin);
    assert_eq!(exit_code(child), 0);
}

#[test]
fn a_link_has_the_lock_of_what_it_leads_to() {
    let folder = Folder::new();
    folder.run_with("dedup --filter f.ib -n 1000", "a\n").expect(0);
    symlink("f.ib", folder.path("link.ib")).expect("a link");
    let (child, stdin) = holder(&folder);
    folder.run_with("dedup --filter link.ib", "quick\n").expect_error(&["link.ib", "--wait"]);
    drop(stdin);
    assert_eq!(exit_code(child), 0);
}

#[test]
fn who_waits_comes_after_the_first_and_sees_what_it_saw() {
    let folder = Folder::new();
    let (child, stdin) = holder(&folder);
    let waiting = |options: &str| {
        let mut child = folder.command(options).spawn().expect("it starts");
        let mut stdin = child.stdin.take().expect("it is piped");
        stdin.write_all(b"slow\nquick\n").expect("a pipe holds it");
        child
    };
    let second = waiting("dedup -q --filter f.ib --wait");
    let third = waiting("add f.ib --wait=10min");
    thread::sleep(Duration::from_millis(100));
    drop(stdin);
    assert_eq!(exit_code(child), 0);
    let ended = [second, third].map(|child| child.wait_with_output().expect("it ends"));
    assert!(ended.iter().all(|output| output.status.success()), "{ended:?}");
    let [dedup, add] = ended.map(|output| String::from_utf8(output.stdout).expect("text"));
    // Whichever of the two came next found the new line.
    let orders = [("quick\n", "0 new of 2 keys\n"), ("", "1 new of 2 keys\n")];
    assert!(orders.contains(&(dedup.as_str(), add.as_str())), "{dedup:?} {add:?}");
    folder.run_with("check -v f.ib", "slow\nquick\n").expect(1);
}

#[test]
fn no_lock_is_left_by_kill_9() {
    let folder = Folder::new();
    let (mut child, stdin) = holder(&folder);
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    drop(stdin);
    folder.run_with("dedup -q --filter f.ib -n 1000", "a\n").expect(0);
    assert_eq!(folder.names(), ["f.ib"]);
}

#[test]
fn programs_that_start_together_lose_nothing_of_each_other() {
    let folder = Folder::new();
    for round in 0..5 {
        let children: Vec<Child> = (0..4)
            .map(|part| {
                let from = round * 4000 + part * 1000;
                let name = format!("in-{part}.txt");
                folder.write(&name, numbers(from, from + 1000));
                let dedup = format!("dedup -q --filter f.ib -n 100k --wait {name}");
                // A file takes what is printed at once, whichever of them has the filter.
                let output = File::create(folder.path(&format!("out-{part}.txt")));
                let mut command = folder.command(&dedup);
                command.stdout(output.expect("a new file")).spawn().expect("it starts")
            })
            .collect();
        assert!(children.into_iter().all(|child| exit_code(child) == 0));
        let lines = |part| folder.read(&format!("out-{part}.txt")).split(|b| *b == b'\n').count();
        assert_eq!((0..4).map(|part| lines(part) - 1).sum::<usize>(), 4000);
        folder.run_with("check -v f.ib", numbers(0, (round + 1) * 4000)).expect(1);
    }
}

#[test]
fn a_lock_that_is_not_ours_is_neither_followed_nor_overwritten() {
    let folder = Folder::with_names();
    folder.write("precious.txt", "precious\n");
    symlink("precious.txt", folder.path(".names.ib.lock")).expect("a link");
    folder.run_with("add names.ib", "dave\n").expect_error(&[".names.ib.lock", "remove it"]);
    fs::remove_file(folder.path(".names.ib.lock")).expect("a link");
    folder.write(".names.ib.lock", "precious\n");
    folder.run_with("add names.ib", "dave\n").expect_error(&[".names.ib.lock", "remove it"]);
    assert_eq!(folder.read(".names.ib.lock"), b"precious\n");
    assert_eq!(folder.read("precious.txt"), b"precious\n");
    // What a kill has left is ours.
    folder.write(".names.ib.lock", "inbloom 4294967295\n");
    folder.run_with("add names.ib", "dave\n").expect(0);
    assert_eq!(folder.names(), ["names.ib", "names.txt", "precious.txt"]);
    // Held by somebody who does not say who it is.
    let lock = File::create(folder.path(".names.ib.lock")).expect("a new file");
    lock.lock().expect("it can be locked");
    folder.run_with("add names.ib", "erin\n").expect_error(&["names.ib", "--wait"]);
}
