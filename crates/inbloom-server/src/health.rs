//! Whether the server can do its work, and if not, why: what `/healthz` answers.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// What is wrong at the moment, each trouble under the name of the part that has it, which also
/// says when it is over. Nothing: all is well.
#[derive(Debug, Default)]
pub struct Health {
    troubles: Mutex<BTreeMap<&'static str, String>>,
}

/// The part that reads filters from disk at the start. As long as it has trouble, INFO says that
/// the server is loading.
pub const LOADING: &str = "loading";

impl Health {
    /// A part of the server cannot do its work; a new reason replaces the one it gave before.
    /// Logged when it begins.
    pub fn suffer(&self, part: &'static str, reason: impl Into<String>) {
        let reason = reason.into();
        let before = self.troubles.lock().insert(part, reason.clone());
        if before.is_none() && part != LOADING {
            tracing::warn!(part, reason, "health check failed");
        }
    }

    /// It can again.
    pub fn recover(&self, part: &'static str) {
        let before = self.troubles.lock().remove(part);
        if before.is_some() && part != LOADING {
            tracing::info!(part, "health check passed again");
        }
    }

    /// Whether a part has trouble.
    pub fn suffers(&self, part: &str) -> bool {
        self.troubles.lock().contains_key(part)
    }

    /// Returns all that is wrong: the part and the reason.
    pub fn list(&self) -> Vec<(&'static str, String)> {
        let troubles = self.troubles.lock();
        troubles.iter().map(|(part, reason)| (*part, reason.clone())).collect()
    }

    /// All that is wrong, as `part: reason`; None if nothing is.
    pub fn troubles(&self) -> Option<String> {
        let lines: Vec<String> =
            self.list().iter().map(|(part, reason)| format!("{part}: {reason}")).collect();
        (!lines.is_empty()).then(|| lines.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_recovers_for_itself() {
        let health = Health::default();
        assert_eq!(health.troubles(), None);
        health.suffer(LOADING, "3 of 10 filters are read");
        health.suffer("log", "no space left on device");
        health.suffer(LOADING, "4 of 10 filters are read");
        let both = "loading: 4 of 10 filters are read; log: no space left on device";
        assert_eq!(health.troubles().as_deref(), Some(both));
        health.recover(LOADING);
        assert!(!health.suffers(LOADING) && health.suffers("log"));
        health.recover("log");
        assert_eq!(health.troubles(), None);
    }
}
