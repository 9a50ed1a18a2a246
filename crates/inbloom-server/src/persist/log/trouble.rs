//! What happens when the log cannot be written: nothing is acknowledged, and no change is begun, until
//! it can be again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Log;
use crate::reply_error::ReplyError;

/// Why nothing is acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    text: Arc<str>,
    /// The content of the file with this number, and of those before, is unknown.
    distrusted: Option<u64>,
}

impl Log {
    /// Why no change is taken, if so.
    pub fn trouble(&self) -> Option<ReplyError> {
        if !self.is_in_trouble.load(Ordering::Acquire) {
            return None;
        }
        self.trouble.lock().as_ref().map(|trouble| ReplyError::with(trouble.text.to_string()))
    }

    /// Whether only a new snapshot helps.
    pub fn is_distrusted(&self) -> bool {
        self.trouble.lock().as_ref().is_some_and(|trouble| trouble.distrusted.is_some())
    }

    /// Whether it is this file, or a later one, that is not trusted.
    pub(super) fn distrusts(&self, file: u64) -> bool {
        let distrusted = self.trouble.lock().as_ref().and_then(|trouble| trouble.distrusted);
        distrusted.is_some_and(|distrusted| distrusted >= file)
    }

    pub(super) fn fail(&self, doing: &str, error: &io::Error, distrusted: Option<u64>) {
        let remedy = if distrusted.is_some() {
            "a new snapshot is tried twice a second"
        } else {
            "it is tried again twice a second"
        };
        let text = format!(
            "MISCONF {doing} the log in --dir failed: {error}; changes are refused until it works \
             again ({remedy}), queries are answered"
        );
        let mut trouble = self.trouble.lock();
        if trouble.is_none() {
            tracing::error!(doing, %error, "log failed, changes are refused");
        }
        let distrusted = distrusted.max(trouble.as_ref().and_then(|trouble| trouble.distrusted));
        *trouble = Some(Trouble { text: text.into(), distrusted });
        self.is_in_trouble.store(true, Ordering::Release);
        drop(trouble);
        self.progress.notify_waiters();
    }

    /// Ends the trouble, unless a file is not trusted that is not among those before `file`.
    pub(super) fn recover(&self, file: u64) {
        let mut trouble = self.trouble.lock();
        match &*trouble {
            Some(Trouble { distrusted: Some(distrusted), .. }) if *distrusted >= file => return,
            Some(_) => tracing::warn!("log works again"),
            None => return,
        }
        *trouble = None;
        self.is_in_trouble.store(false, Ordering::Release);
    }
}

/// What is said of a write to a file that is not trusted.
pub(super) fn distrusted() -> io::Error {
    io::Error::other("an earlier sync failed, so the content of the file is unknown")
}
