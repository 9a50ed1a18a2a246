//! `inbloom man`: the help texts as manual pages.
//!
//! Options are rendered by clap. The text after them, which we write by hand, is divided at its
//! headings ("Examples:", "Exit status:") into the sections that readers of manual pages look for;
//! what comes before the first heading belongs to the description.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::output::problem;
use crate::{Cli, output};

/// Print a manual page
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The page of this subcommand; without it that of inbloom itself
    subcommand: Option<String>,

    /// Write all pages into this folder instead: inbloom.1, inbloom-plan.1, ...
    #[arg(short, long, value_name = "DIR", conflicts_with = "subcommand")]
    output: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
Examples:
  inbloom man check | man -l -                        read the page of 'inbloom check'
  inbloom man --output ~/.local/share/man/man1        install all pages; then: man inbloom-check

Exit status:
  0  the page was printed, or all pages were written
  2  an error";

pub fn run(args: &Args) -> Result<ExitCode> {
    let mut inbloom = Cli::command().disable_help_subcommand(true);
    // Gives the subcommands their full names.
    inbloom.build();
    match (&args.output, &args.subcommand) {
        (Some(folder), _) => write_all(&inbloom, folder)?,
        (None, Some(name)) => output::print(&page(subcommand(&inbloom, name)?)?)?,
        (None, None) => output::print(&page(&inbloom)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn subcommand<'a>(inbloom: &'a Command, name: &str) -> Result<&'a Command> {
    let Some(command) = inbloom.find_subcommand(name) else {
        let names: Vec<&str> = inbloom.get_subcommands().map(Command::get_name).collect();
        bail!(problem(
            format!("no subcommand \"{name}\""),
            format!("choose one of {}", names.join(", "))
        ));
    };
    Ok(command)
}

fn write_all(inbloom: &Command, folder: &Path) -> Result<()> {
    for command in inbloom.get_subcommands().chain([inbloom]) {
        let path = folder.join(format!("{}.1", full_name(command)));
        fs::write(&path, page(command)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// `inbloom`, or for a subcommand `inbloom-plan`.
fn full_name(command: &Command) -> &str {
    command.get_display_name().unwrap_or(command.get_name())
}

fn page(command: &Command) -> Result<Vec<u8>> {
    let man = Man::new(command.clone())
        .title(full_name(command))
        .source(concat!("inbloom ", env!("CARGO_PKG_VERSION")))
        .manual("inbloom");
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (description, sections) = divide(&after);

    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    render(&description).to_writer(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    for (heading, lines) in sections {
        Roff::new().control("SH", [heading.to_uppercase().as_str()]).to_writer(&mut page)?;
        render(&lines).to_writer(&mut page)?;
    }
    Ok(page)
}

/// What help texts are divided by.
const HEADINGS: [&str; 2] = ["Examples", "Exit status"];

/// The lines of a help text before its first heading, and those after each heading.
fn divide(text: &str) -> (Vec<&str>, Vec<(&str, Vec<&str>)>) {
    let mut description = Vec::new();
    let mut sections: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in text.lines() {
        let heading = HEADINGS.iter().find(|heading| line.strip_suffix(':') == Some(heading));
        match (heading, sections.last_mut()) {
            (Some(heading), _) => sections.push((*heading, Vec::new())),
            (None, Some((_, lines))) => lines.push(line),
            (None, None) => description.push(line),
        }
    }
    (description, sections)
}

/// Lines as they are where they are indented, and otherwise as paragraphs.
fn render(lines: &[&str]) -> Roff {
    let mut roff = Roff::new();
    let mut verbatim = false;
    let mut between = true;
    for line in lines {
        if verbatim != line.starts_with(' ') && !line.is_empty() {
            verbatim = !verbatim;
            roff.control(if verbatim { "nf" } else { "fi" }, []);
        }
        if line.is_empty() {
            between = true;
        } else {
            if between {
                roff.control("PP", []);
            }
            roff.text([roman(*line)]);
            between = false;
        }
    }
    if verbatim {
        roff.control("fi", []);
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_divided_at_its_headings() {
        let text = "One: two.\n\nThree:\n\nExamples:\n  a: b\n\nExit status:\n  0  c\n\nD.";
        let (description, sections) = divide(text);
        assert_eq!(description, ["One: two.", "", "Three:", ""]);
        let examples = ("Examples", vec!["  a: b", ""]);
        assert_eq!(sections, [examples, ("Exit status", vec!["  0  c", "", "D."])]);
    }
}
