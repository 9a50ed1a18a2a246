//! The options from which a plan is computed, the same for every subcommand that makes one.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use inbloom::{Kind, Plan, Span, Tier};
use inbloom_server::calculator::Question;
use inbloom_server::units::{
    self, parse_bytes, parse_count, parse_keys, parse_positive, parse_share, parse_window,
};

use crate::numbers;
use crate::overfull::Overfull;

#[derive(Args, Clone, Copy, Debug, Default, PartialEq)]
#[command(next_help_heading = "Size")]
pub struct Sizing {
    /// Number of keys to plan for: 1000000, 10e9, 2.5M
    #[arg(short = 'n', long, value_name = "N", allow_hyphen_values = true)]
    #[arg(value_parser = parse_keys)]
    pub items: Option<u64>,

    /// Target false-positive rate: 0.01, 1e-4, 0.01%
    #[arg(short = 'p', long, value_name = "P", allow_hyphen_values = true)]
    #[arg(value_parser = parse_rate)]
    pub rate: Option<f64>,

    /// Memory to use: 64MiB, 25G (25 * 10^9 bytes; 25GB is 25GiB)
    #[arg(long, value_name = "B", value_parser = parse_bytes, group = "memory")]
    pub bytes: Option<u64>,

    /// Memory per key, in bits
    #[arg(long, value_name = "BITS", value_parser = parse_positive, group = "memory")]
    pub bits_per_key: Option<f64>,

    /// Bits to set and test per key [default: the best number]. Without a rate or memory per key, -k
    /// K stands for the rate 2^-K
    #[arg(short = 'k', long, value_name = "K")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=255))]
    pub probes: Option<u32>,

    /// Memory per key, by name
    #[arg(long, value_name = "TIER", value_parser = tier_parser(), group = "memory")]
    pub tier: Option<Tier>,

    /// For bitmaps: the number of possible integers, which are 0 to U-1
    #[arg(long, value_name = "U", value_parser = parse_count)]
    pub universe: Option<u64>,

    /// For windows: what to keep, a time (7d, 12h, 30m, 10s) or a number of keys
    #[arg(long, value_name = "W", allow_hyphen_values = true, value_parser = parse_window)]
    pub window: Option<Span>,

    /// For windows: the number of generations, 1 to 64 [default: 4]
    #[arg(long, value_name = "G")]
    pub generations: Option<u32>,

    /// For counting filters: the bits of a counter, 2, 3, 4 or 8 [default: 3]
    #[arg(long, value_name = "BITS")]
    pub width: Option<u32>,

    /// For scalable filters: the factor to grow by when full, 2, 4 or 8, or 0 to not grow [default: 2]
    #[arg(long, value_name = "F")]
    pub growth: Option<u32>,

    /// For scalable filters: the share of the unspent rate that each growth leaves to later ones, 0.5
    /// to 0.99 [default: 0.8]
    #[arg(long, value_name = "T", value_parser = parse_share)]
    pub tightening: Option<f64>,
}

/// The library's default number of steps of a window.
const DEFAULT_GENERATIONS: u32 = 4;

impl Sizing {
    /// The steps of a window.
    pub fn steps(&self) -> u64 {
        u64::from(self.generations.unwrap_or(DEFAULT_GENERATIONS))
    }

    /// A given value that differs from that of a plan: name, given, found.
    pub fn against(&self, plan: &Plan) -> Vec<(&'static str, String, String)> {
        let given = |name, asked: Option<String>, found: String| Some((name, asked?, found));
        let count = |number: Option<u64>| number.map(numbers::exact);
        let small = |number: Option<u32>| number.map(|number| number.to_string());
        let real = |number: Option<f64>| number.map(|number| number.to_string());
        let span = |span: Span| match span {
            Span::Items(items) => format!("{} keys", numbers::exact(items)),
            Span::Millis(_) => span.to_string(),
        };
        let bits = self.bits_per_key.or(self.tier.map(Tier::bits_per_key));
        // Memory is rounded to what a kind can use.
        let near = |asked: f64, found: f64| (0.9..1.1).contains(&(found / asked));
        let used = |asked, found| if near(asked, found) { asked } else { found };
        let bytes = self.bytes.map_or(0, |bytes| used(bytes as f64, plan.bytes() as f64) as u64);
        let per_key = bits.map_or(0.0, |bits| used(bits, plan.bits_per_key()));
        // As `dedup` plans it: as many in each step as in the whole time.
        let items = match plan.span() {
            Some(Span::Millis(_)) => plan.items() / u64::from(plan.generations().max(1)),
            _ => plan.items(),
        };
        let found_span = plan.span().map_or("none".to_string(), span);
        [
            given("-n", count(self.items), numbers::exact(items)),
            given("-p", real(self.rate), plan.rate().to_string()),
            given("--bytes", count(self.bytes), numbers::exact(bytes)),
            given("--bits-per-key", real(bits), per_key.to_string()),
            given("-k", small(self.probes), plan.probes().to_string()),
            given("--universe", count(self.universe), numbers::exact(plan.bits())),
            given("--window", self.window.map(span), found_span),
            given("--generations", small(self.generations), plan.generations().to_string()),
            given("--width", small(self.width), plan.width().to_string()),
            given("--growth", small(self.growth), plan.growth().to_string()),
            given("--tightening", real(self.tightening), plan.tightening().to_string()),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Returns all options by name, each with its value as it is typed, or nothing if it was not
    /// given.
    pub fn options(&self) -> [(&'static str, String); 12] {
        fn typed<T: ToString>(value: Option<T>) -> String {
            value.map_or(String::new(), |value| value.to_string())
        }
        let window = self.window.map(|span| match span {
            Span::Items(items) => items.to_string(),
            Span::Millis(_) => span.to_string(),
        });
        [
            ("-n", typed(self.items)),
            ("-p", self.rate.map_or(String::new(), numbers::typed_rate)),
            ("--bytes", typed(self.bytes)),
            ("--bits-per-key", typed(self.bits_per_key)),
            ("-k", typed(self.probes)),
            ("--tier", typed(self.tier.map(Tier::name))),
            ("--universe", typed(self.universe)),
            ("--window", typed(window)),
            ("--generations", typed(self.generations)),
            ("--width", typed(self.width)),
            ("--growth", typed(self.growth)),
            ("--tightening", typed(self.tightening)),
        ]
    }

    /// Returns the plan of these options for one kind. The library chooses what was not given.
    pub fn plan(&self, kind: Kind) -> inbloom::Result<Plan> {
        self.question().plan(kind)
    }

    /// Does the same, with room for a growing part if the filter may grow.
    pub fn plan_for(&self, kind: Kind, overfull: Overfull) -> inbloom::Result<Plan> {
        match overfull {
            Overfull::Grow => self.question().builder(kind).growing().build(),
            Overfull::Stop | Overfull::Continue => self.plan(kind),
        }
    }

    /// Returns the calculator's question with these options.
    pub fn question(&self) -> Question {
        let Sizing { items, rate, bytes, bits_per_key, probes, tier, .. } = *self;
        let Sizing { universe, window, generations, width, growth, tightening, .. } = *self;
        Question {
            items,
            rate,
            bytes,
            bits_per_key,
            probes,
            tier,
            universe,
            window,
            generations,
            width,
            growth,
            tightening,
        }
    }
}

/// Parses a rate. The error for 0 names the commands that are exact.
fn parse_rate(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text);
    match number.parse() {
        Ok(0.0) => Err("only --kind bitmap and 'dedup --exact' have a rate of 0; expected a rate \
                        between 0 and 1 such as 0.01, 1e-4 or 0.01%"
            .to_string()),
        _ => units::parse_rate(text),
    }
}

/// Returns the names of the kinds that can do something, such as `blocked and classic`, the default
/// kind first.
pub fn kinds_that(can: impl Fn(Kind) -> bool) -> String {
    let mut kinds: Vec<Kind> = Kind::offered().filter(|kind| can(*kind)).collect();
    kinds.sort_by_key(|kind| (*kind != Kind::default(), *kind));
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
    match names.split_last() {
        Some((last, [])) => last.to_string(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => "none".to_string(),
    }
}

/// Takes the names of the library's kinds, and lists them in help and errors.
pub fn kind_parser() -> impl TypedValueParser<Value = Kind> {
    let described = |kind: &Kind| PossibleValue::new(kind.name()).hide(kind.is_experimental());
    PossibleValuesParser::new(Kind::ALL.iter().map(described))
        .map(|name| name.parse().expect("the name is one of Kind::ALL"))
}

fn tier_parser() -> impl TypedValueParser<Value = Tier> {
    let described = |tier: &Tier| {
        PossibleValue::new(tier.name()).help(format!("{} bits per key", tier.bits_per_key()))
    };
    PossibleValuesParser::new(Tier::ALL.iter().map(described))
        .map(|name| name.parse().expect("the name is one of Tier::ALL"))
}
