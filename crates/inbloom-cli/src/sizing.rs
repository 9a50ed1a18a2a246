//! The options from which a plan is computed, the same for every subcommand that makes one.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use inbloom::{Kind, Plan, Tier};

use crate::numbers::{parse_bytes, parse_count, parse_positive, parse_rate};

#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Size")]
pub struct Sizing {
    /// Number of keys to plan for: 1000000, 10e9, 2.5M
    #[arg(short = 'n', long, value_name = "N", allow_hyphen_values = true)]
    #[arg(value_parser = parse_count)]
    pub items: Option<u64>,

    /// Share of absent keys that may be reported present: 0.01, 1e-4, 0.01%
    #[arg(short = 'p', long, value_name = "P", allow_hyphen_values = true)]
    #[arg(value_parser = parse_rate)]
    pub rate: Option<f64>,

    /// Memory to use: 64MiB, 25GB
    #[arg(long, value_name = "B", value_parser = parse_bytes, group = "memory")]
    pub bytes: Option<u64>,

    /// Memory per key, in bits
    #[arg(long, value_name = "BITS", value_parser = parse_positive, group = "memory")]
    pub bits_per_key: Option<f64>,

    /// Bits set and tested per key; the best number is computed if not given
    #[arg(long, value_name = "K")]
    pub probes: Option<u32>,

    /// Memory per key, by name
    #[arg(long, value_name = "TIER", value_parser = tier_parser(), group = "memory")]
    pub tier: Option<Tier>,

    /// For bitmaps: the number of possible values, which are 0 to U-1
    #[arg(long, value_name = "U", value_parser = parse_count)]
    pub universe: Option<u64>,
}

impl Sizing {
    /// The plan of these options for one kind; what was not given is left to the library.
    pub fn plan(&self, kind: Kind) -> inbloom::Result<Plan> {
        let mut plan = Plan::new(kind);
        if let Some(items) = self.items {
            plan = plan.items(items);
        }
        if let Some(rate) = self.rate {
            plan = plan.rate(rate);
        }
        if let Some(bytes) = self.bytes {
            plan = plan.bytes(bytes);
        }
        if let Some(bits) = self.bits_per_key {
            plan = plan.bits_per_key(bits);
        }
        if let Some(probes) = self.probes {
            plan = plan.probes(probes);
        }
        if let Some(tier) = self.tier {
            plan = plan.tier(tier);
        }
        if let Some(universe) = self.universe {
            plan = plan.universe(universe);
        }
        plan.build()
    }
}

/// Takes the names of the library's kinds, and lists them in help and errors.
pub fn kind_parser() -> impl TypedValueParser<Value = Kind> {
    PossibleValuesParser::new(Kind::ALL.iter().map(|kind| kind.name()))
        .map(|name| name.parse().expect("the name is one of Kind::ALL"))
}

fn tier_parser() -> impl TypedValueParser<Value = Tier> {
    let described = |tier: &Tier| {
        PossibleValue::new(tier.name()).help(format!("{} bits per key", tier.bits_per_key()))
    };
    PossibleValuesParser::new(Tier::ALL.iter().map(described))
        .map(|name| name.parse().expect("the name is one of Tier::ALL"))
}
