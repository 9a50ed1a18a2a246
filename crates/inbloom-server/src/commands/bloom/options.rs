//! The options of BF.RESERVE and BF.INSERT.

use std::num::NonZeroU32;
use std::time::Duration;

use inbloom::Kind;

use crate::parse;
use crate::reply_error::{ReplyError, excerpt};
use crate::resp::Arguments;
use crate::server::Server;
use crate::settings::Settings;
use crate::units;
use crate::value::bloom::Wish;
use crate::value::spec::Spec;

/// The largest rate, as RedisBloom has it: above, it takes this one without a word.
const MOST_RATE: f64 = 0.25;
/// RedisBloom's ceiling of capacity, which its texts name and we do not have.
const RANGE: &str = "[1, 1073741824]";

/// What a client reads that asks for a filter which grows, where filters are on a store.
pub const NO_GROWTH_ON_STORE: &str = "ERR EXPANSION does not work with --store, whose filters have a fixed size: reserve the capacity \
 that you need";

/// What BF.RESERVE asks for.
pub fn wish(server: &Server, words: Arguments<'_>) -> Result<(Wish, Options), ReplyError> {
    let settings = server.settings();
    // RedisBloom's own options are three words at most.
    let is_ours =
        |word: &[u8]| ["KIND", "WINDOW", "AUTOCLEAR"].iter().any(|option| parse::is(word, option));
    if words.len() < 4 || words.len() > 7 && !words.skip(4).iter().any(is_ours) {
        return Err(ReplyError::arity("bf.reserve"));
    }
    let rate = parse::fraction(&words[2]).ok_or(ReplyError::new("ERR bad error rate"))?;
    if !(rate > 0.0 && rate < 1.0) {
        let text = "ERR error rate must be in the range (0.000000, 1.000000)";
        return Err(ReplyError::new(text));
    }
    let capacity = parse::integer(&words[3]).ok_or(ReplyError::new("ERR bad capacity"))?;
    let capacity = u64::try_from(capacity).ok().filter(|capacity| *capacity > 0);
    let capacity = capacity
        .ok_or_else(|| ReplyError::with(format!("ERR capacity must be in the range {RANGE}")))?;
    let options = Options::parse(words.skip(4))?;
    options.check_expansion(settings.bf_expansion_factor)?;
    let growth = options.growth(settings.bf_expansion_factor);
    Ok((Wish::new(rate.min(MOST_RATE), capacity, growth), options))
}

/// The options of BF.RESERVE.
#[derive(Default)]
pub struct Options {
    is_fixed: bool,
    /// The word after EXPANSION.
    expansion: Option<i64>,
    kind: Option<Choice>,
    span: Option<Duration>,
    clear: Option<f64>,
}

/// What KIND may say.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    Ours(Kind),
    RedisBloom,
}

impl Options {
    /// Whether it is the filter that everybody gets.
    pub(super) fn is_plain(&self) -> bool {
        self.kind.is_none() && self.span.is_none() && self.clear.is_none()
    }

    /// Why a filter like this cannot be on a store, if so: filters there are blocked, and do not grow.
    pub fn refusal_on_store(&self) -> Option<&'static str> {
        let is_blocked = self.kind.is_none_or(|kind| kind == Choice::Ours(Kind::default()));
        if !is_blocked {
            Some(
                "ERR KIND does not work with --store, whose filters are of kind blocked: leave \
                 KIND out",
            )
        } else if self.span.is_some() {
            Some("ERR WINDOW does not work with --store: leave WINDOW out")
        } else if self.clear.is_some() {
            Some("ERR AUTOCLEAR does not work with --store: leave AUTOCLEAR out")
        } else {
            self.expansion.is_some_and(|expansion| expansion > 0).then_some(NO_GROWTH_ON_STORE)
        }
    }

    fn parse(words: Arguments<'_>) -> Result<Options, ReplyError> {
        let mut options = Options::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if parse::is(word, "NONSCALING") {
                options.is_fixed = true;
            } else if parse::is(word, "EXPANSION") {
                let value = words.next().ok_or(ReplyError::new("ERR no expansion"))?;
                let value = parse::integer(value).ok_or(ReplyError::new("ERR bad expansion"))?;
                options.expansion = Some(value);
            } else if parse::is(word, "KIND") {
                options.kind = Some(choice(words.next())?);
            } else if parse::is(word, "WINDOW") {
                options.span = Some(span(words.next())?);
            } else if parse::is(word, "AUTOCLEAR") {
                options.clear = Some(share(words.next())?);
            } else {
                let word = excerpt(word, 64);
                return Err(ReplyError::with(format!(
                    "ERR unknown option '{word}': expected EXPANSION, NONSCALING, KIND, WINDOW or \
                     AUTOCLEAR"
                )));
            }
        }
        Ok(options)
    }

    fn check_expansion(&self, default: u32) -> Result<(), ReplyError> {
        let Some(expansion) = self.expansion else { return Ok(()) };
        if (self.is_fixed || default == 0) && expansion != 0 {
            return Err(ReplyError::new("Nonscaling filters cannot expand"));
        }
        if !(0..=32768).contains(&expansion) {
            return Err(ReplyError::new("ERR expansion must be in the range [0, 32768]"));
        }
        Ok(())
    }

    /// By what it grows, if it does.
    fn growth(&self, default: u32) -> Option<NonZeroU32> {
        if self.is_fixed {
            return None;
        }
        let asked = self.expansion.map(|expansion| expansion as u32);
        NonZeroU32::new(asked.unwrap_or(default))
    }

    /// What the filter is made of.
    pub(super) fn spec(&self, wish: Wish) -> Result<Spec, ReplyError> {
        let is_special = self.span.is_some() || self.clear.is_some();
        match self.kind {
            None if !is_special => Ok(Spec::Bloom(wish)),
            Some(Choice::Ours(kind)) if kind == Kind::default() && !is_special => {
                Ok(Spec::Bloom(wish))
            }
            Some(Choice::RedisBloom) if !is_special => Ok(Spec::RedisBloom {
                rate: wish.rate(),
                capacity: wish.capacity,
                growth: wish.expansion.map_or(0, NonZeroU32::get),
            }),
            kind => self.other(wish, kind),
        }
    }

    /// A filter of a kind that does not grow.
    fn other(&self, wish: Wish, kind: Option<Choice>) -> Result<Spec, ReplyError> {
        if self.expansion.is_some_and(|expansion| expansion > 0) {
            let text = "ERR EXPANSION cannot be combined with KIND (other than blocked and redisbloom), \
             WINDOW or AUTOCLEAR";
            return Err(ReplyError::new(text));
        }
        let (kind, span, clear) = match (kind, self.span, self.clear) {
            (None, Some(span), None) => (Kind::Window, Some(span), None),
            (Some(Choice::Ours(kind)), None, clear) => (kind, None, clear),
            (None, None, clear) => (Kind::default(), None, clear),
            _ => {
                let text = "ERR WINDOW cannot be combined with KIND or AUTOCLEAR, nor AUTOCLEAR with KIND \
                 redisbloom";
                return Err(ReplyError::new(text));
            }
        };
        Ok(Spec::Filter { kind, items: wish.capacity, rate: wish.rate(), span, clear })
    }
}

fn choice(word: Option<&[u8]>) -> Result<Choice, ReplyError> {
    let word = word.unwrap_or_default();
    if parse::is(word, "REDISBLOOM") {
        return Ok(Choice::RedisBloom);
    }
    let found = reservable().into_iter().find(|kind| parse::is(word, kind.name()));
    found.map(Choice::Ours).ok_or_else(|| {
        let offered = reservable().into_iter().filter(|kind| !kind.is_experimental());
        let names: Vec<&str> = offered.map(Kind::name).collect();
        ReplyError::with(format!(
            "ERR unknown KIND '{1}': expected {0} or redisbloom",
            names.join(", "),
            excerpt(word, 64)
        ))
    })
}

/// The kinds that are made from a capacity and a rate and stay as large, the default one first.
fn reservable() -> Vec<Kind> {
    let is_other = |kind: &Kind| kind.is_exact() || kind.is_static() || kind.forgets();
    let all = Kind::ALL.iter().copied();
    let mut kinds: Vec<Kind> = all.filter(|kind| !is_other(kind) && !kind.can_grow()).collect();
    kinds.sort_by_key(|kind| *kind != Kind::default());
    kinds
}

/// As `90s`, `15m`, `12h`, `7d`, `2w`; `500ms`.
fn span(word: Option<&[u8]>) -> Result<Duration, ReplyError> {
    let word = word.unwrap_or_default();
    let span = std::str::from_utf8(word).ok().and_then(|text| units::parse_time(text).ok());
    span.filter(|span| !span.is_zero()).ok_or_else(|| {
        let word = excerpt(word, 64);
        ReplyError::with(format!(
            "ERR invalid WINDOW '{word}': expected a time such as 90s, 15m, 12h or 7d"
        ))
    })
}

fn share(word: Option<&[u8]>) -> Result<f64, ReplyError> {
    let word = word.unwrap_or_default();
    parse::fraction(word).filter(|share| *share > 0.0 && *share < 1.0).ok_or_else(|| {
        let word = excerpt(word, 64);
        let text = format!(
            "ERR invalid AUTOCLEAR '{word}': expected the share of set bits at which the filter \
             empties itself, above 0 and below 1"
        );
        ReplyError::with(text)
    })
}

/// What BF.INSERT asks for.
pub struct InsertOptions<'a> {
    /// The items to add, at least one.
    pub items: Arguments<'a>,
    /// Whether a filter that is missing is an error.
    pub only_existing: bool,
    rate: f64,
    capacity: Option<u64>,
    expansion: u32,
    /// Whether EXPANSION asks for a filter that grows.
    pub asks_for_growth: bool,
    is_fixed: bool,
}

impl<'a> InsertOptions<'a> {
    /// Reads all words of a BF.INSERT.
    pub fn parse(
        words: Arguments<'a>,
        settings: &Settings,
    ) -> Result<InsertOptions<'a>, ReplyError> {
        let mut asked = InsertOptions {
            items: words.skip(words.len()),
            only_existing: false,
            rate: settings.bf_error_rate,
            capacity: None,
            expansion: settings.bf_expansion_factor,
            asks_for_growth: false,
            is_fixed: false,
        };
        let missing = || ReplyError::arity("bf.insert");
        let mut at = 2;
        loop {
            let word = words.get(at).ok_or_else(missing)?;
            let value = || words.get(at + 1).ok_or_else(missing);
            at += match option(word)? {
                Insert::Items => {
                    asked.items = words.skip(at + 1);
                    break;
                }
                Insert::Capacity => {
                    let capacity = parse::integer(value()?).filter(|capacity| *capacity > 0);
                    let capacity = capacity.ok_or(ReplyError::new("Bad capacity"))?;
                    asked.capacity = Some(capacity as u64);
                    2
                }
                Insert::Rate => {
                    let rate = parse::fraction(value()?).filter(|rate| *rate > 0.0 && *rate < 1.0);
                    asked.rate = rate.ok_or(ReplyError::new("Bad error rate"))?.min(MOST_RATE);
                    2
                }
                Insert::Expansion => {
                    let factor = parse::integer(value()?).filter(|it| (0..=32768).contains(it));
                    let factor = factor.ok_or(ReplyError::new("Bad expansion"))? as u32;
                    // A default of 0 means that filters do not grow, whatever is asked for here.
                    asked.expansion = if settings.bf_expansion_factor == 0 { 0 } else { factor };
                    asked.asks_for_growth = factor > 0;
                    2
                }
                Insert::OnlyExisting => {
                    asked.only_existing = true;
                    1
                }
                Insert::Fixed => {
                    asked.is_fixed = true;
                    1
                }
            };
        }
        if asked.items.is_empty() { Err(missing()) } else { Ok(asked) }
    }

    /// The filter to create if there is none, for so many items where CAPACITY does not say.
    pub fn wish(&self, default_capacity: u64) -> Wish {
        let growth = NonZeroU32::new(self.expansion).filter(|_| !self.is_fixed);
        Wish::new(self.rate, self.capacity.unwrap_or(default_capacity), growth)
    }
}

/// The options of BF.INSERT.
pub(super) enum Insert {
    Items,
    Capacity,
    Rate,
    Expansion,
    OnlyExisting,
    Fixed,
}

impl Insert {
    pub(super) fn is_items(&self) -> bool {
        matches!(self, Insert::Items)
    }
}

pub(super) fn option(word: &[u8]) -> Result<Insert, ReplyError> {
    let options = ["ITEMS", "CAPACITY", "ERROR", "EXPANSION", "NOCREATE", "NONSCALING"];
    match parse::abbreviated(word, &options) {
        Some("ITEMS") => Ok(Insert::Items),
        Some("CAPACITY") => Ok(Insert::Capacity),
        Some("ERROR") => Ok(Insert::Rate),
        Some("EXPANSION") => Ok(Insert::Expansion),
        Some("NOCREATE") => Ok(Insert::OnlyExisting),
        Some("NONSCALING") => Ok(Insert::Fixed),
        _ => Err(ReplyError::new("Unknown argument received")),
    }
}
