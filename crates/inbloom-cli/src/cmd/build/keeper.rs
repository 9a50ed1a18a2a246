//! Keeps the state of a build in the background, while the build goes on.
//!
//! To have hundreds of megabytes on disk takes a second or more. A checkpoint is therefore a task for
//! another thread, and its steps keep their order there: first what the state tells of is on disk,
//! then the state is, and only then may something be dropped that an older state needs. One task runs
//! at a time, so that states are kept in their order too.

use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};

use super::unfinished::Unfinished;

/// What is kept of a build, and the task that keeps more of it.
pub struct Keeper {
    unfinished: Arc<Mutex<Unfinished>>,
    task: Option<JoinHandle<Result<()>>>,
}

const WHOLE: &str = "the panic of a task is passed on before";

impl Keeper {
    pub fn new(unfinished: Unfinished) -> Keeper {
        Keeper { unfinished: Arc::new(Mutex::new(unfinished)), task: None }
    }

    /// Returns whether a task is running.
    pub fn is_busy(&self) -> bool {
        self.task.as_ref().is_some_and(|task| !task.is_finished())
    }

    /// Waits for the task, and returns what is kept, or what went wrong with the task.
    pub fn wait(&mut self) -> Result<MutexGuard<'_, Unfinished>> {
        if let Some(task) = self.task.take() {
            task.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        }
        Ok(self.unfinished.lock().expect(WHOLE))
    }

    /// Waits for the task before, and starts another one.
    pub fn start(
        &mut self,
        task: impl FnOnce(&mut Unfinished) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        drop(self.wait()?);
        let unfinished = Arc::clone(&self.unfinished);
        let task = thread::Builder::new().spawn(move || {
            let mut unfinished = unfinished.lock().expect(WHOLE);
            task(&mut unfinished)
        });
        self.task = Some(task.context("cannot start a thread")?);
        Ok(())
    }

    /// Waits for the task, however it ends, and returns what is kept.
    pub fn end(mut self) -> Unfinished {
        // Where it failed, the build has ended for that reason already, or for another one.
        drop(self.wait());
        let unfinished = Arc::into_inner(self.unfinished).expect("the task has ended");
        unfinished.into_inner().expect(WHOLE)
    }
}
