//! What BF.CARD, BF.INFO and BF.DEBUG report.

use std::num::NonZeroU32;

use super::find;
use crate::command::Call;
use crate::parse;
use crate::reply_error::ReplyError;
use crate::resp::{Protocol, Reply};
use crate::value::Value;
use crate::value::bloom::layers;

pub(super) fn card(call: &mut Call<'_>) -> Result<(), ReplyError> {
    let items = match find(call)? {
        Some(entry) => Facts::of(&entry.value).items,
        None => 0,
    };
    call.reply.integer(items as i64);
    Ok(())
}

/// What BF.INFO tells.
pub struct Facts {
    /// Keys that it is for.
    pub capacity: u64,
    /// Bytes.
    pub size: u64,
    /// Layers, as RedisBloom would have them.
    pub filters: u64,
    /// Keys that were new.
    pub items: u64,
    /// By what it grows.
    pub expansion: Option<u32>,
}

impl Facts {
    /// Those of a filter of BF.*.
    pub fn of(value: &Value) -> Facts {
        let size = value.size();
        match value {
            Value::Bloom(bloom) => {
                let items = bloom.items();
                let (filters, capacity) = layers(bloom.reserved(), bloom.expansion(), items);
                let expansion = bloom.expansion().map(NonZeroU32::get);
                Facts { capacity, size, filters, items, expansion }
            }
            Value::Filter(guarded) => guarded.read(|filter| Facts {
                capacity: filter.plan().items(),
                size,
                filters: 1,
                items: filter.inserted(),
                expansion: None,
            }),
            Value::RedisBloom(guarded) => guarded.read(|bloom| Facts {
                capacity: bloom.capacity(),
                size,
                filters: bloom.links().count() as u64,
                items: bloom.items(),
                expansion: bloom.growth(),
            }),
            Value::Cuckoo(_) => unreachable!("of another type, which was asked before"),
        }
    }
}

pub(super) fn info(call: &mut Call<'_>) -> Result<(), ReplyError> {
    if call.arguments.len() > 3 {
        return Err(ReplyError::arity(call.command.name));
    }
    let entry = find(call)?.ok_or(ReplyError::NOT_FOUND)?;
    Facts::of(&entry.value).reply(call)
}

impl Facts {
    /// Replies what BF.INFO was asked for.
    pub fn reply(&self, call: &mut Call<'_>) -> Result<(), ReplyError> {
        let fields: [(&str, &str, Option<u64>); 5] = [
            ("CAPACITY", "Capacity", Some(self.capacity)),
            ("SIZE", "Size", Some(self.size)),
            ("FILTERS", "Number of filters", Some(self.filters)),
            ("ITEMS", "Number of items inserted", Some(self.items)),
            ("EXPANSION", "Expansion rate", self.expansion.map(u64::from)),
        ];
        let number = |reply: &mut Reply<'_>, value: Option<u64>| match value {
            Some(value) => reply.integer(value as i64),
            None => reply.null(),
        };
        let Some(word) = call.arguments.get(2) else {
            call.reply.map(fields.len());
            for (_, name, value) in fields {
                call.reply.simple(name);
                number(&mut call.reply, value);
            }
            return Ok(());
        };
        let (_, name, value) = fields
            .into_iter()
            .find(|(option, ..)| parse::is(word, option))
            .ok_or(ReplyError::new("Invalid information value"))?;
        if call.reply.protocol() == Protocol::Resp3 {
            call.reply.map(1);
            call.reply.simple(name);
        } else {
            call.reply.array(1);
        }
        number(&mut call.reply, value);
        Ok(())
    }
}

pub(super) fn debug(call: &mut Call<'_>) -> Result<(), ReplyError> {
    if call.arguments.len() != 2 {
        return Err(ReplyError::arity(call.command.name));
    }
    let entry = find(call)?.ok_or(ReplyError::NOT_FOUND)?;
    let mut lines = vec![format!("size:{}", Facts::of(&entry.value).items)];
    match &entry.value {
        Value::Bloom(bloom) => {
            let (base, plan) = (bloom.base(), bloom.base().plan());
            let in_rest = bloom.rest().map_or(0, |rest| rest.len());
            lines.push(format!(
                "bytes:{} bits:{} hashes:{} hashwidth:128 capacity:{} size:{} ratio:{}",
                base.bytes(),
                plan.bits(),
                plan.probes(),
                plan.items(),
                bloom.items().saturating_sub(in_rest),
                general(plan.rate()),
            ));
            lines.extend(bloom.rest().map(|rest| {
                let (bytes, size) = (rest.bucket_bytes(), rest.len());
                let rate = general(rest.plan().rate());
                format!("bytes:{bytes} kind:scalable size:{size} ratio:{rate}")
            }));
        }
        Value::Filter(guarded) => guarded.read(|filter| {
            let plan = filter.plan();
            let (kind, bytes) = (plan.kind(), filter.bytes());
            let (probes, items, rate) = (plan.probes(), plan.items(), general(plan.rate()));
            let size = filter.inserted();
            lines.push(format!(
                "bytes:{bytes} kind:{kind} hashes:{probes} hashwidth:128 capacity:{items} \
                 size:{size} ratio:{rate}"
            ));
        }),
        Value::RedisBloom(guarded) => guarded.read(|bloom| {
            lines.extend(bloom.links().map(|link| {
                format!(
                    "bytes:{} bits:{} hashes:{} hashwidth:64 capacity:{} size:{} ratio:{}",
                    link.bytes,
                    link.bits,
                    link.hashes,
                    link.entries,
                    link.size,
                    general(link.rate),
                )
            }));
        }),
        Value::Cuckoo(_) => unreachable!("of another type, which `find` refuses"),
    }
    call.reply.array(lines.len());
    lines.iter().for_each(|line| call.reply.text(line));
    Ok(())
}

/// Returns a number as C's `%g` prints it: six digits, without zeros at the end.
fn general(number: f64) -> String {
    let text = format!("{number:.5e}");
    let (digits, exponent) = text.split_once('e').expect("the form says so");
    let exponent: i32 = exponent.parse().expect("the form says so");
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..6).contains(&exponent) {
        return trimmed(&format!("{number:.*}", (5 - exponent) as usize));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(digits), exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::general;

    #[test]
    fn numbers_are_printed_as_c_prints_them() {
        for (number, text) in [
            (0.0005, "0.0005"),
            (0.001, "0.001"),
            (5e-6, "5e-06"),
            (0.00000244140625, "2.44141e-06"),
            (0.009000000000000001, "0.009"),
            (0.25, "0.25"),
            (1.0, "1"),
            (1234567.0, "1.23457e+06"),
        ] {
            assert_eq!(general(number), text);
        }
    }
}
