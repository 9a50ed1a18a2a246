//! The settings file of the server: `inbloom serve --config FILE`, read at the start and on SIGHUP.
//!
//! A line is a name and a value, as in redis.conf. Names are those of the options of `serve`,
//! without the dashes, and those of CONFIG SET; a misspelt one is an error that names the nearest. What is
//! given on the command line or in the environment wins over the file.
//!
//! ```text
//! # Who may connect, and how much they may store.
//! listen        0.0.0.0:7379
//! max-memory    8gb
//! bf-error-rate 0.001
//! ```
//!
//! What CONFIG SET can change is changed on SIGHUP too; for the rest, a changed line is reported,
//! and waits for a restart.

use crate::output::problem;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result, anyhow, bail};
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, FromArgMatches};
use inbloom_server::{OPTION_NAMES, Refused, Server, Settings, nearest};

/// A file whose lines make sense.
pub struct SettingsFile {
    path: PathBuf,
    /// The options of `serve`.
    command: Command,
    /// As the command line and the environment have it.
    given: ArgMatches,
    lines: Vec<Line>,
}

/// A line that is not overridden by the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    number: usize,
    /// The option's name, where there is one, else that of CONFIG SET.
    name: String,
    value: String,
}

impl SettingsFile {
    /// Reads a file for a server with these options, which was started by these words.
    pub fn read(path: &Path, command: Command, words: &[OsString]) -> Result<SettingsFile> {
        let path = path.to_owned();
        let given = command.clone().try_get_matches_from(words)?;
        let mut file = SettingsFile { path, command, given, lines: Vec::new() };
        file.lines = file.read_lines()?;
        Ok(file)
    }

    /// The options, those of the file among them. Err: the file gives one a value that it cannot
    /// have.
    pub fn options<A: FromArgMatches>(&self, words: &[OsString]) -> Result<A> {
        let mut words = words.to_vec();
        for line in self.lines.iter().filter(|line| !line.is_live()) {
            let option = self.option(&line.name).expect("checked by `read_lines`");
            if option.get_action().takes_values() {
                words.push(format!("--{}={}", line.name, line.value).into());
            } else if is_yes(line).with_context(|| self.place(line))? {
                words.push(format!("--{}", line.name).into());
            }
        }
        let matches = self.command.clone().try_get_matches_from(&words);
        // Its own text speaks of the command line, in several lines, the first of which has it all.
        let matches = matches.map_err(|error| {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
            anyhow!("{}: {first}", self.path.display())
        })?;
        Ok(A::from_arg_matches(&matches)?)
    }

    /// Puts into effect what can change while the server runs, at its start.
    pub fn apply(&self, settings: &mut Settings) -> Result<()> {
        for line in self.lines.iter().filter(|line| line.is_live()) {
            settings.change(&line.name, &line.value).with_context(|| self.place(line))?;
        }
        Ok(())
    }

    /// From now on, the file is read again whenever the server is asked to reload. `base`: the
    /// settings without the file, to which those return whose line is taken away.
    pub fn follow(self, server: &Server, base: Settings) {
        let last = Mutex::new(self.lines.clone());
        server.reloads.add("settings", move |server| {
            let mut last = last.lock().expect("nothing panics while it is locked");
            let lines = self.read_lines().map_err(|error| format!("{error:#}"))?;
            self.change(server, &base, &last, &lines).map_err(|error| format!("{error:#}"))?;
            *last = lines;
            Ok(())
        });
    }

    fn change(&self, server: &Server, base: &Settings, last: &[Line], now: &[Line]) -> Result<()> {
        let before = server.settings();
        let is_named = |name: &str| now.iter().any(|line| line.name == name);
        server.set(|settings| {
            for line in last.iter().filter(|line| line.is_live() && !is_named(&line.name)) {
                let value = base.value(&line.name).unwrap_or_default();
                settings.change(&line.name, &value).with_context(|| self.place(line))?;
            }
            for line in now.iter().filter(|line| line.is_live()) {
                settings.change(&line.name, &line.value).with_context(|| self.place(line))?;
            }
            anyhow::Ok(())
        })?;
        let after = server.settings();
        let names: BTreeSet<&str> = last.iter().chain(now).map(|line| &*line.name).collect();
        for name in names {
            let value_in = |lines: &[Line]| {
                lines.iter().find(|line| line.name == name).map(|line| line.value.clone())
            };
            if before.value(name) != after.value(name) {
                let value = after.shown(name).unwrap_or_default();
                tracing::info!(setting = name, value, "changed by the settings file");
            } else if before.value(name).is_none() && value_in(last) != value_in(now) {
                tracing::warn!(
                    setting = name,
                    "setting changed in the file: restart the server to apply it"
                );
            }
        }
        Ok(())
    }

    /// The lines that the command line does not override.
    fn read_lines(&self) -> Result<Vec<Line>> {
        let text = fs::read_to_string(&self.path).with_context(|| cannot_read(&self.path))?;
        let mut lines: Vec<Line> = Vec::new();
        // In their order, as some values are judged by others that stand before them.
        let mut trial = Settings::default();
        for (number, text) in text.lines().enumerate().map(|(at, text)| (at + 1, text.trim())) {
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let (name, value) = text.split_once([' ', '\t']).unwrap_or((text, ""));
            let name = option_name(&name.to_ascii_lowercase()).to_owned();
            let line = Line { number, name, value: unquoted(value.trim()).to_owned() };
            self.check(&line, &mut trial).with_context(|| self.place(&line))?;
            if let Some(other) = lines.iter().find(|other| other.name == line.name) {
                bail!(
                    "{}: setting \"{}\" is also in line {}",
                    self.place(&line),
                    line.name,
                    other.number
                );
            }
            lines.push(line);
        }
        lines.retain(|line| !self.is_given(&line.name));
        Ok(lines)
    }

    /// Whether there is such a setting, and if it can change while the server runs, such a value.
    fn check(&self, line: &Line, trial: &mut Settings) -> Result<()> {
        if line.name == "config" {
            bail!("a settings file cannot name another settings file");
        }
        match trial.change(&line.name, &line.value) {
            Err(Refused::Unknown { .. } | Refused::Fixed(_))
                if self.option(&line.name).is_some() =>
            {
                Ok(())
            }
            Err(Refused::Unknown { name, .. }) => {
                let mut names: Vec<&str> = Settings::names().collect();
                names.extend(self.command.get_arguments().filter_map(clap::Arg::get_long));
                match nearest(&name, names) {
                    Some(near) => bail!(problem(
                        format!("no setting \"{name}\""),
                        format!("did you mean \"{near}\"?")
                    )),
                    None => bail!("no setting \"{name}\""),
                }
            }
            result => Ok(result?),
        }
    }

    fn option(&self, name: &str) -> Option<&clap::Arg> {
        self.command.get_arguments().find(|option| option.get_long() == Some(name))
    }

    /// Whether the command line or the environment has it.
    fn is_given(&self, name: &str) -> bool {
        let source =
            self.option(name).and_then(|option| self.given.value_source(option.get_id().as_str()));
        matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
    }

    fn place(&self, line: &Line) -> String {
        format!("{}, line {}", self.path.display(), line.number)
    }
}

impl Line {
    /// Whether it can change while the server runs.
    fn is_live(&self) -> bool {
        Settings::can_change(&self.name)
    }
}

fn cannot_read(path: &Path) -> String {
    format!("cannot read the settings file {}", path.display())
}

/// The name of the option, for a setting that has one under another name.
fn option_name(name: &str) -> &str {
    OPTION_NAMES.iter().find(|(_, setting)| *setting == name).map_or(name, |(option, _)| option)
}

/// As redis.conf has it: quotes are there for values that are empty, or begin or end with a space.
fn unquoted(value: &str) -> &str {
    let inner = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    inner.unwrap_or(value)
}

fn is_yes(line: &Line) -> Result<bool> {
    match &*line.value.to_ascii_lowercase() {
        "yes" => Ok(true),
        "no" => Ok(false),
        other => bail!("setting \"{}\" must be yes or no, not \"{other}\"", line.name),
    }
}
