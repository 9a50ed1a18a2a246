//! The server's log: lines on standard error, for people or for programs.

use clap::ValueEnum;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::time::SystemTime;

use crate::output;

#[derive(clap::Args)]
pub struct Options {
    /// Least severe level to log [default: warn, or info in JSON]
    #[arg(long, value_name = "LEVEL", env = "INBLOOM_LOG")]
    log_level: Option<Level>,

    /// Format of the log: text for people, JSON for programs
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum Level {
    Error,
    Warn,
    Info,
    Debug,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

impl Options {
    /// Starts the log.
    pub fn start(&self) {
        // Start and end are lines of their own for people, and log events for programs.
        let usual = match self.log_format {
            Format::Text => Level::Warn,
            Format::Json => Level::Info,
        };
        let level = match self.log_level.unwrap_or(usual) {
            Level::Error => LevelFilter::ERROR,
            Level::Warn => LevelFilter::WARN,
            Level::Info => LevelFilter::INFO,
            Level::Debug => LevelFilter::DEBUG,
        };
        let log = tracing_subscriber::fmt()
            .with_writer(std::io::stderr)
            .with_max_level(level)
            .with_timer(SystemTime)
            .with_target(false);
        match self.log_format {
            Format::Text => log.init(),
            Format::Json => log.json().flatten_event(true).init(),
        }
    }

    /// Prints a line for the user who started the server, whatever the level of the log. Prints
    /// nothing if the log is in JSON, because its events have the same information.
    pub fn say(&self, line: &str) {
        if self.log_format == Format::Text {
            output::say(line);
        }
    }
}
