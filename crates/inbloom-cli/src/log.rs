//! The server's log: lines on standard error, for people or for programs.

use clap::ValueEnum;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::time::SystemTime;

use crate::output;

#[derive(clap::Args)]
pub struct Options {
    /// What is logged: errors only, or more [default: warn, and info in JSON]
    #[arg(long, value_name = "LEVEL", env = "INBLOOM_LOG")]
    log_level: Option<Level>,

    /// How it is logged: lines for people, or JSON for programs
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
    /// From here on, what happens is logged.
    pub fn start(&self) {
        // People are told of start and end by lines of their own, programs only by the log.
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

    /// A line for whoever started the server, logged or not. Programs that read JSON are told the
    /// same by the log.
    pub fn say(&self, line: &str) {
        if self.log_format == Format::Text {
            output::say(line);
        }
    }
}
