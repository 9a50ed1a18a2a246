//! What is read again while the server runs, when the operator asks for it: on SIGHUP, that is.

use parking_lot::Mutex;

use super::Server;

/// Reads something again. Err: why it could not; then all is as it was before.
type Action = Box<dyn Fn(&Server) -> Result<(), String> + Send + Sync>;

/// Actions, in the order in which they were added.
#[derive(Default)]
pub struct Reloads {
    actions: Mutex<Vec<(&'static str, Action)>>,
}

impl Reloads {
    /// Adds something that can be read again, with a name for the log.
    pub fn add(
        &self,
        name: &'static str,
        action: impl Fn(&Server) -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.actions.lock().push((name, Box::new(action)));
    }
}

impl Server {
    /// Reads again what can be. One that fails leaves its own part as it was, and does not keep the
    /// others from theirs. Everything is logged; true if all went well.
    pub fn reload(&self) -> bool {
        let actions = self.reloads.actions.lock();
        if actions.is_empty() {
            tracing::info!("nothing to reload: no settings file");
        }
        let mut is_well = true;
        for (name, action) in &*actions {
            match action(self) {
                Ok(()) => tracing::info!(part = name, "reloaded"),
                Err(error) => {
                    is_well = false;
                    tracing::error!(part = name, error, "reload failed, settings unchanged");
                }
            }
        }
        is_well
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use crate::{Config, Server};

    #[test]
    fn one_that_fails_does_not_keep_the_others_from_being_reloaded() {
        let server = Server::new(Config::default());
        assert!(server.reload(), "nothing can go wrong with nothing");
        let count = Arc::new(AtomicU32::new(0));
        server.reloads.add("broken", |_| Err("no such file".into()));
        let counted = Arc::clone(&count);
        server.reloads.add("sound", move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        assert!(!server.reload());
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}
