//! How far a long run has come: on standard error, if that is a terminal, and nowhere else.

use std::env;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::blocks::Reader;
use crate::input::Input;
use crate::numbers;

/// What else is written while the progress is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    Nothing,
    /// Lines on standard output: on the same terminal the two would overwrite each other.
    Lines,
}

pub struct Progress {
    bar: ProgressBar,
    /// Bytes that have come, counted by the reader.
    read: Arc<AtomicU64>,
    records: u64,
    /// Whether records are steps, of which the number is known.
    in_steps: bool,
}

impl Progress {
    /// `what` is being done with the lines of these inputs.
    pub fn new(what: &'static str, inputs: &[Input], reader: &Reader, beside: Beside) -> Progress {
        // A pipe does not say how long it is: then there is no time of arrival.
        let total = inputs.iter().map(Input::file_size).sum::<Option<u64>>();
        let template = match total {
            Some(_) => "{prefix}: {msg}{bytes} of {total_bytes}, {bytes_per_sec}, {eta} left",
            None => "{prefix}: {msg}{bytes}, {bytes_per_sec}, {elapsed}",
        };
        let bar = ProgressBar::with_draw_target(total, target(beside));
        bar.set_style(ProgressStyle::with_template(template).expect("the templates are correct"));
        bar.set_prefix(format!("inbloom: {what}"));
        Progress { bar, read: reader.progress(), records: 0, in_steps: false }
    }

    /// `what` is being done in so many steps.
    pub fn steps(what: &'static str, total: u64) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(total), target(Beside::Nothing));
        let template = "{prefix}: {percent}%, {elapsed}, {eta} left";
        bar.set_style(ProgressStyle::with_template(template).expect("the template is correct"));
        bar.set_prefix(format!("inbloom: {what}"));
        Progress { bar, read: Arc::default(), records: 0, in_steps: true }
    }

    /// Returns the bytes that have come, for those who count them without a reader.
    pub fn bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.read)
    }

    /// So many more records are done, or 0 if they are not counted.
    pub fn step(&mut self, records: usize) {
        self.records += records as u64;
        if self.bar.is_hidden() {
            return;
        }
        if self.in_steps {
            self.bar.set_position(self.records);
        } else {
            if self.records > 0 {
                self.bar.set_message(format!("{}, ", numbers::lines(self.records)));
            }
            self.bar.set_position(self.read.load(Ordering::Relaxed));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn target(beside: Beside) -> ProgressDrawTarget {
    let dumb = env::var_os("TERM").is_none_or(|term| term == "dumb");
    let overwrites = beside == Beside::Lines && io::stdout().is_terminal();
    match io::stderr().is_terminal() && !dumb && !overwrites {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    }
}
