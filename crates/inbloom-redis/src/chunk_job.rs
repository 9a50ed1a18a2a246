//! Commands that every chunk of a filter gets.

use redis::Value;

use crate::client::Job;
use crate::command::Commands;
use crate::error::Result;
use crate::layout::Layout;

/// A job whose items are the chunks of a filter.
pub(crate) struct EachChunk<'a, W, R> {
    pub layout: &'a Layout,
    /// The replies of a chunk, and the chunks of a pipeline.
    pub replies: usize,
    pub batch: usize,
    /// Adds the commands of a chunk.
    pub write: W,
    /// Takes its replies.
    pub read: R,
}

impl<W, R> Job for EachChunk<'_, W, R>
where
    W: Fn(u64, &mut Commands),
    R: FnMut(u64, &[Value]) -> Result<()>,
{
    fn slot(&self, item: usize) -> u16 {
        self.layout.slot(item as u64)
    }

    fn write(&self, item: usize, commands: &mut Commands) {
        (self.write)(item as u64, commands);
    }

    fn replies(&self) -> usize {
        self.replies
    }

    fn batch(&self) -> usize {
        self.batch
    }

    fn accept(&mut self, item: usize, replies: &[Value]) -> Result<()> {
        (self.read)(item as u64, replies)
    }
}
