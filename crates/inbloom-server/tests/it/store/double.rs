//! A store in memory, which fails as a test asks.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use inbloom::{Filter, Kind, Plan};
use inbloom_server::filter_store::{Added, FilterStore, Lookup, StoreError};

/// What goes wrong.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Fault {
    #[default]
    None,
    /// Nothing is answered in time.
    Down,
    /// First answers do not arrive, so that adds are repeated.
    Unknown,
    /// The bits of all items are gone but those of `kept`.
    Lost,
}

fn is_lost(item: &[u8]) -> bool {
    item != b"kept"
}

fn outcome(is_lost: bool) -> Result<(), StoreError> {
    if is_lost { Err(StoreError::Lost("the bits are gone".into())) } else { Ok(()) }
}

/// A filter, and when it expires.
type Kept = (Filter, Option<u64>);

#[derive(Default)]
pub struct Double {
    filters: Mutex<HashMap<Vec<u8>, Kept>>,
    fault: Mutex<Fault>,
    requests: AtomicU64,
}

impl Double {
    pub fn set(&self, fault: Fault) {
        *self.fault.lock().unwrap() = fault;
    }

    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    fn fault(&self) -> Result<Fault, StoreError> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        match *self.fault.lock().unwrap() {
            Fault::Down => Err(StoreError::Unavailable("the store is down".into())),
            fault => Ok(fault),
        }
    }

    fn with<T>(
        &self,
        name: &[u8],
        work: impl FnOnce(&mut Filter, &mut Option<u64>, Fault) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let fault = self.fault()?;
        let mut filters = self.filters.lock().unwrap();
        let (filter, expiry) = filters.get_mut(name).ok_or(StoreError::Missing)?;
        work(filter, expiry, fault)
    }
}

impl FilterStore for Double {
    fn address(&self) -> &str {
        "double://"
    }

    fn ping(&self) -> Result<(), StoreError> {
        self.fault().map(|_| ())
    }

    fn plan_for(&self, items: u64, rate: f64) -> inbloom::Result<Plan> {
        Plan::builder(Kind::Blocked).items(items).rate(rate).build()
    }

    fn create(&self, name: &[u8], plan: &Plan) -> Result<bool, StoreError> {
        self.fault()?;
        let mut filters = self.filters.lock().unwrap();
        if filters.contains_key(name) {
            return Ok(false);
        }
        filters.insert(name.to_vec(), (Filter::new(*plan).unwrap(), None));
        Ok(true)
    }

    fn add(
        &self,
        name: &[u8],
        items: &[&[u8]],
        answers: &mut Vec<Added>,
    ) -> Result<(), StoreError> {
        *answers = vec![Added::Failed; items.len()];
        self.with(name, |filter, _, fault| {
            let answer = |item: &&[u8]| match fault {
                Fault::Lost if is_lost(item) => Added::Failed,
                _ => match (filter.insert(*item).unwrap(), fault) {
                    (_, Fault::Unknown) => Added::Unknown,
                    (true, _) => Added::New,
                    (false, _) => Added::Present,
                },
            };
            *answers = items.iter().map(answer).collect();
            outcome(answers.contains(&Added::Failed))
        })
    }

    fn contains(
        &self,
        name: &[u8],
        items: &[&[u8]],
        answers: &mut Vec<Lookup>,
    ) -> Result<(), StoreError> {
        *answers = vec![Lookup::Failed; items.len()];
        self.with(name, |filter, _, fault| {
            let answer = |item: &&[u8]| match fault {
                Fault::Lost if is_lost(item) => Lookup::Failed,
                _ if filter.contains(*item) => Lookup::Present,
                _ => Lookup::Absent,
            };
            *answers = items.iter().map(answer).collect();
            outcome(answers.contains(&Lookup::Failed))
        })
    }

    fn plan(&self, name: &[u8]) -> Result<Plan, StoreError> {
        self.with(name, |filter, _, _| Ok(*filter.plan()))
    }

    fn estimate(&self, name: &[u8]) -> Result<f64, StoreError> {
        self.with(name, |filter, _, fault| match fault {
            Fault::Lost => outcome(true).map(|()| 0.0),
            _ => Ok(filter.estimated_items().items),
        })
    }

    fn delete(&self, name: &[u8]) -> Result<bool, StoreError> {
        self.fault()?;
        Ok(self.filters.lock().unwrap().remove(name).is_some())
    }

    fn expiry(&self, name: &[u8]) -> Result<Option<u64>, StoreError> {
        self.with(name, |_, expiry, _| Ok(*expiry))
    }

    fn set_expiry(&self, name: &[u8], at: Option<u64>) -> Result<(), StoreError> {
        self.with(name, |_, expiry, _| {
            *expiry = at;
            Ok(())
        })
    }

    fn names(&self) -> Result<Vec<Vec<u8>>, StoreError> {
        self.fault()?;
        Ok(self.filters.lock().unwrap().keys().cloned().collect())
    }
}
