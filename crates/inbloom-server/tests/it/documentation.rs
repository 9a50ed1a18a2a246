//! Checks docs/commands.md against the table of commands, and the table against its own rules.

use std::collections::HashSet;
use std::fmt::Write;
use std::path::Path;

use inbloom_server::command::{Command, Flag, Keys, OnStore};
use inbloom_server::command_table::commands;
use inbloom_server::users::{Class, Role};

/// The groups, in the order of the document, with their titles.
const GROUPS: &[(&str, &str)] = &[
    ("bf", "Bloom filters"),
    ("cf", "Cuckoo filters"),
    ("ib", "Beyond RedisBloom"),
    ("generic", "Keys"),
    ("connection", "Connections"),
    ("transactions", "Transactions"),
    ("cluster", "Cluster (not supported)"),
    ("pubsub", "Publish and subscribe (not supported)"),
    ("server", "Server"),
];

const HEAD: &str = "\
# Commands

This page lists every command that the server knows. A test writes it from the table of commands,
which `COMMAND DOCS` returns too. The rows are in `crates/inbloom-server/src/commands/`, and
`table.rs` joins them. To change a row, edit its file, and run
`UPDATE_DOCS=1 cargo test -p inbloom-server --test it documentation`.

In lines of syntax, `[ ]` is optional, `|` separates choices, and `...` may be repeated. Words in
capitals are literal, in upper or lower case. Flags are those of `COMMAND INFO`.

The last word of each entry is the role that a user of `--users` needs at least: `read-only`,
`read-write` or `admin`, or `anybody` for none. Without `--users` every client is an admin.

With `--store` filters are on Redis. Commands work there too, unless their entry says \"Refused\".
";

#[test]
fn the_document_says_what_the_table_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
    let expected = document();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &expected).expect("docs/ can be written to");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let differing = found.lines().zip(expected.lines()).position(|(found, row)| found != row);
    assert!(
        found == expected,
        "docs/commands.md differs from the table, from line {} on: run UPDATE_DOCS=1 cargo test -p \
         inbloom-server --test it documentation, and look at the difference",
        differing.unwrap_or(found.lines().count().min(expected.lines().count())) + 1,
    );
}

fn document() -> String {
    let mut text = HEAD.to_owned();
    for (group, title) in GROUPS {
        let mut rows: Vec<&Command> = commands().filter(|row| row.group == *group).collect();
        rows.sort_unstable_by_key(|row| row.name);
        if !rows.is_empty() {
            writeln!(text, "\n## {title}").expect("memory takes any text");
        }
        for row in rows {
            if row.subcommands.is_empty() {
                describe(&mut text, row);
            }
            row.subcommands.iter().for_each(|row| describe(&mut text, row));
        }
    }
    text
}

fn describe(text: &mut String, row: &Command) {
    let name = row.name.to_uppercase().replace('|', " ");
    let call = format!("{name} {}", row.syntax);
    let mut facts = row.complexity.to_owned();
    let flags: Vec<&str> = row.flags.names().collect();
    if !flags.is_empty() {
        write!(facts, "; {}", flags.join(", ")).expect("memory takes any text");
    }
    let role = Role::ALL.into_iter().find(|role| role.may(row.class()));
    let role = match row.class() {
        Class::Open => "anybody",
        _ => role.expect("an admin may run everything").name(),
    };
    write!(text, "\n### {name}\n\n    {}\n\n{}.\n{facts}; {role}.\n", call.trim_end(), row.summary)
        .expect("memory takes any text");
    if let OnStore::Refused(reason) = row.on_store {
        writeln!(text, "Refused with `--store`: {reason}.").expect("memory takes any text");
    }
}

fn rows() -> impl Iterator<Item = &'static Command> {
    commands().flat_map(|row| std::iter::once(row).chain(row.subcommands))
}

#[test]
fn every_name_is_in_the_table_once() {
    let mut names = HashSet::new();
    rows().for_each(|row| assert!(names.insert(row.name), "{} is there twice", row.name));
}

#[test]
fn every_row_is_whole() {
    let groups: Vec<&str> = GROUPS.iter().map(|(group, _)| *group).collect();
    for row in rows() {
        let name = row.name;
        assert_eq!(name, name.to_lowercase());
        assert!(
            inbloom_server::command_table::find(name.as_bytes()).is_some() || name.contains('|')
        );
        assert!(groups.contains(&row.group), "{name} is in group '{}'", row.group);
        assert!(!row.summary.is_empty() && !row.summary.ends_with('.'), "{name}: {}", row.summary);
        assert!(!row.complexity.is_empty(), "{name}");
        assert_ne!(row.arity, 0, "{name}");
        // A call has at least a key, but for those that RedisBloom lets check their words alone.
        assert!(row.keys.first < row.arity.abs() || row.arity == -1, "{name}");
        let is_both = row.has(Flag::Write) && row.has(Flag::ReadOnly);
        assert!(!is_both, "{name} cannot both write and only read");
        // A run compares name and key, and takes the third word for the item.
        let is_single = row.arity == 3 && row.keys == Keys::ONE;
        assert!(row.batched.is_none() || is_single, "{name} has no single item");
    }
}

#[test]
fn the_name_of_a_subcommand_begins_with_its_command() {
    for row in commands() {
        for subcommand in row.subcommands {
            let tail =
                subcommand.name.strip_prefix(row.name).and_then(|rest| rest.strip_prefix('|'));
            assert!(tail.is_some_and(|tail| !tail.contains('|')), "{}", subcommand.name);
            assert!(subcommand.subcommands.is_empty(), "{}", subcommand.name);
        }
    }
}
