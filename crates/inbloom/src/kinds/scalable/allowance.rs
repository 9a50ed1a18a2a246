//! The memory that tables take in all, and how much of it growth may take.
//!
//! A growth asks before it allocates, and while it lasts the old tables and the new ones both
//! count: so the limit holds at every moment, and not only afterwards.

use alloc::format;

use crate::error::{Result, no_memory};
use crate::sync::{AtomicU64, Ordering};

/// Bytes that are taken, and how many may be.
pub(super) struct Account {
    taken: AtomicU64,
    limit: AtomicU64,
}

impl Account {
    /// So many bytes are taken. There is no limit yet.
    pub(super) fn new(taken: u64) -> Account {
        Account { taken: AtomicU64::new(taken), limit: AtomicU64::new(u64::MAX) }
    }

    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    pub(super) fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn give_back(&self, bytes: u64) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn take(&self, bytes: u64) -> Result<()> {
        let limit = self.limit.load(Ordering::Relaxed);
        let within = |taken: u64| taken.checked_add(bytes).filter(|all| *all <= limit);
        let order = Ordering::Relaxed;
        self.taken.fetch_update(order, order, within).map(drop).map_err(|taken| {
            no_memory(bytes, format!("the limit is {limit} bytes, and {taken} are in use"))
        })
    }
}

/// What one growth takes. It is given back if the growth fails, however that comes about.
pub(super) struct Allowance<'a> {
    account: Option<&'a Account>,
    taken: u64,
}

impl<'a> Allowance<'a> {
    /// As much as the system gives.
    pub(super) fn any() -> Allowance<'static> {
        Allowance { account: None, taken: 0 }
    }

    /// As much as an account has left.
    pub(super) fn of(account: &'a Account) -> Allowance<'a> {
        Allowance { account: Some(account), taken: 0 }
    }

    /// Asks for the bytes of one more table.
    pub(super) fn take(&mut self, bytes: u64) -> Result<()> {
        self.account.map_or(Ok(()), |account| account.take(bytes))?;
        self.taken += bytes;
        Ok(())
    }

    /// A table that was asked for is gone.
    pub(super) fn give_back(&mut self, bytes: u64) {
        self.account.inspect(|account| account.give_back(bytes));
        self.taken -= bytes;
    }

    /// The growth has succeeded: the tables are there to stay.
    pub(super) fn keep(mut self) {
        self.account = None;
    }
}

impl Drop for Allowance<'_> {
    fn drop(&mut self) {
        self.account.inspect(|account| account.give_back(self.taken));
    }
}
