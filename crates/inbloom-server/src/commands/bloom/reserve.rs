//! BF.RESERVE, and filters that come into being with their first items.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::find;
use super::options::wish;
use crate::command::Call;
use crate::keyspace::{Created, Entry, Key};
use crate::reply_error::ReplyError;
use crate::value::Value;
use crate::value::bloom::Wish;
use crate::value::spec::Spec;

pub(super) fn reserve(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let (wish, options) = wish(call.server, call.arguments)?;
    let key = Key { database: call.session.database, name: &call.arguments[1] };
    if find(call)?.is_some() {
        return Err(ReplyError::EXISTS);
    }
    match call.server.create(key, &options.spec(wish)?, call.now)? {
        Created::New(_) => call.reply.ok(),
        Created::Taken(entry, _) => {
            let is_cuckoo = matches!(entry.value, Value::Cuckoo(_));
            return Err(if is_cuckoo { ReplyError::WRONG_TYPE } else { ReplyError::EXISTS });
        }
    }
    Ok(())
}

/// Returns the filter of a name, which is created with the defaults if there is none.
pub(super) fn find_or_create(call: &Call<'_>) -> Result<Arc<Entry>, ReplyError> {
    let name = &call.arguments[1];
    if let Some(entry) = find(call)? {
        return Ok(entry);
    }
    let settings = call.server.settings();
    let growth = NonZeroU32::new(settings.bf_expansion_factor);
    create(call, name, Wish::new(settings.bf_error_rate, settings.bf_initial_size, growth))
}

pub(super) fn create(call: &Call<'_>, name: &[u8], wish: Wish) -> Result<Arc<Entry>, ReplyError> {
    let key = Key { database: call.session.database, name };
    match call.server.create(key, &Spec::Bloom(wish), call.now)? {
        Created::Taken(entry, _) if matches!(entry.value, Value::Cuckoo(_)) => {
            Err(ReplyError::WRONG_TYPE)
        }
        Created::New(entry) | Created::Taken(entry, _) => Ok(entry),
    }
}
