//! `inbloom man`.

use std::fs;

use crate::cli::folder::Folder;

/// The names of all subcommands, as the help lists them.
pub fn subcommands() -> Vec<String> {
    let help = Folder::new().run("--help").expect(0).text();
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names: Vec<String> = commands
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_string)
        .collect();
    assert!(names.len() >= 8 && names.contains(&"plan".to_string()), "{names:?}");
    names
}

/// A page has these sections, and what the help says.
#[track_caller]
fn check_page(page: &str, name: &str) {
    for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "\"EXIT STATUS\""] {
        assert!(page.contains(&format!("\n.SH {section}\n")), "{name}: no {section}:\n{page}");
    }
    let escaped = name.replace('-', "\\-");
    assert!(page.contains(&format!("\n.SH NAME\n{escaped} \\- ")), "{name}:\n{page}");
    assert!(page.contains(&format!("\n.TH {name} 1 ")), "{name}:\n{page}");
}

#[test]
fn every_subcommand_has_a_page() {
    let folder = Folder::new();
    let page = folder.run("man").expect(0).text();
    check_page(&page, "inbloom");
    assert!(page.contains("inbloom\\-check"), "the page of inbloom refers to the others");
    for name in subcommands() {
        let page = folder.run(&format!("man {name}")).expect(0).text();
        check_page(&page, &format!("inbloom-{name}"));
    }
    let check = folder.run("man check").expect(0).text();
    assert!(check.contains("  1  no line was selected\n"), "{check}");
    let prose = check.find("is certainly not in the filter").expect("what stands before Examples");
    assert!(prose < check.find(".SH OPTIONS").expect("a section"), "it is part of the description");
}

#[test]
fn all_pages_are_written_into_a_folder() {
    let folder = Folder::new();
    fs::create_dir(folder.path("man1")).expect("a new folder");
    let outcome = folder.run("man --output man1").expect(0);
    assert!(outcome.stdout.is_empty());
    let mut expected = subcommands();
    expected.iter_mut().for_each(|name| *name = format!("inbloom-{name}.1"));
    expected.push("inbloom.1".to_string());
    for name in &expected {
        let page = folder.read(&format!("man1/{name}"));
        check_page(&String::from_utf8(page).expect("ASCII"), name.trim_end_matches(".1"));
    }
    let written = fs::read_dir(folder.path("man1")).expect("it is there").count();
    assert_eq!(written, expected.len());
    folder.run("man --output missing").expect_error(&["missing", "No such file"]);
}

#[test]
fn a_page_of_nothing_is_refused() {
    let folder = Folder::new();
    folder.run("man frobnicate").expect_error(&["\"frobnicate\"", "plan", "check"]);
    folder.run("man plan --output .").expect_error(&["--output"]);
}
