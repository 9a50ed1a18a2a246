//! What a line is.

use crate::folder::Folder;

#[test]
fn a_last_line_without_newline_counts() {
    let folder = Folder::with_names();
    folder.run_with("build -o f.ib", "a\nb").expect(0);
    assert_eq!(folder.run_with("check f.ib", "b").expect(0).text(), "b\n");
    folder.write("keys.txt", "a\nb");
    folder.run("build -o g.ib keys.txt").expect(0);
    assert_eq!(folder.info("g.ib")["planned_items"], 2);
}

#[test]
fn an_empty_input_gives_an_empty_filter() {
    let folder = Folder::new();
    folder.write("empty.txt", "");
    for build in ["build -o f.ib", "build -o f.ib empty.txt", "build -n 0 -o f.ib"] {
        let build = folder.run(build).expect(0);
        assert!(build.stderr.contains("0 keys read, 0 new"), "{}", build.stderr);
        assert_eq!(folder.info("f.ib")["ones"], 0);
        folder.run_with("check f.ib", "a\n\n").expect(1);
        folder.run("info f.ib").expect(0);
    }
    folder.run("check f.ib empty.txt").expect(1);
}

#[test]
fn an_empty_line_is_a_key() {
    let folder = Folder::with_names();
    folder.run_with("check -c names.ib", "\n").expect(1);
    folder.run_with("build -p 1e-6 -o f.ib", "a\n\n").expect(0);
    assert_eq!(folder.run_with("check f.ib", "\nb\n").expect(0).text(), "\n");
}

#[test]
fn lines_are_bytes_not_text() {
    let folder = Folder::new();
    let keys = b"nul \0 inside\n\xff\xfe not utf-8\ncarriage return\r\n";
    folder.run_with("build -p 1e-6 -o f.ib", keys).expect(0);
    assert_eq!(folder.run_with("check f.ib", keys).expect(0).stdout, keys);
    folder.run_with("check f.ib", "carriage return\nnul \n").expect(1);
}

#[test]
fn nul_terminated_records_may_hold_newlines() {
    let folder = Folder::new();
    folder.run_with("build -0 -p 1e-6 -o f.ib", "a\nb\0c\0").expect(0);
    let found = folder.run_with("check -0 f.ib", "x\0a\nb\0c").expect(0);
    assert_eq!(found.stdout, b"a\nb\0c\0");
    folder.run_with("check f.ib", "a\nb\n").expect(1);
}

#[test]
fn a_line_may_be_twenty_megabytes_long() {
    let folder = Folder::new();
    let long = "x".repeat(20 << 20);
    let keys = format!("short\n{long}\nafter\n");
    folder.write("keys.txt", &keys);
    folder.run("build -p 1e-6 -o f.ib keys.txt").expect(0);
    assert_eq!(folder.info("f.ib")["inserted"], 3);
    assert!(folder.run_with("check f.ib", &keys).expect(0).stdout == keys.as_bytes());
    folder.run_with("check f.ib", &long[1..]).expect(1);
}
