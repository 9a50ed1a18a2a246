//! What a filter would cost, before anything is built: what `inbloom plan` prints and `/api/plan`
//! answers.
//!
//! A [`Question`] holds what is known: keys, rate, memory, probes, and what only one kind has.
//! [`Question::compare`] plans every kind from it, side by side. No size is computed here: the library's
//! `Plan` does that.

pub mod advice;
mod json;

use std::time::Duration;

use inbloom::{Error, Kind, Plan, PlanBuilder, Span, Tier};

pub use json::{COLUMNS, particulars, row_as_json, rows_as_json};

/// What is known of a filter that is to be planned.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Question {
    /// Keys to plan for.
    pub items: Option<u64>,
    /// Share of absent keys that may be reported present.
    pub rate: Option<f64>,
    /// Memory in all.
    pub bytes: Option<u64>,
    /// Memory for each key.
    pub bits_per_key: Option<f64>,
    /// Bits tested for each key.
    pub probes: Option<u32>,
    /// Memory for each key, by name.
    pub tier: Option<Tier>,
    /// For bitmaps: the number of possible values.
    pub universe: Option<u64>,
    /// For windows: how far back they reach.
    pub window: Option<Span>,
    /// For windows: the steps in which they forget.
    pub generations: Option<u32>,
    /// For counting filters: the bits of a counter.
    pub width: Option<u32>,
    /// For scalable filters: how many times as large they get when full.
    pub growth: Option<u32>,
    /// For scalable filters: the share of the rate that each growth leaves to later ones.
    pub tightening: Option<f64>,
}

/// What was asked about: a filter of so many keys, or what each key takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Keys or memory are known, so that totals are known.
    AllKeys,
    /// Only what a key takes.
    OneKey,
}

/// One kind with its plan, or with why it has none.
pub struct Row {
    /// The kind.
    pub kind: Kind,
    /// Its plan.
    pub plan: inbloom::Result<Plan>,
}

/// The plans of several kinds.
pub struct Comparison {
    /// What they are about.
    pub scope: Scope,
    /// A row for each kind.
    pub rows: Vec<Row>,
}

/// The number of keys at which bits per key are shown if there is no number: as good as any large
/// one, since they differ only in small filters.
const MANY: u64 = 1_000_000_000;

impl Question {
    /// Plans every kind, each from what concerns it.
    pub fn compare(&self) -> Comparison {
        let (scope, question) = self.in_scope();
        let plan = |kind| Row { kind, plan: question.plan_among_others(kind) };
        Comparison { scope, rows: Kind::offered().map(plan).collect() }
    }

    /// Plans one kind from everything that is known.
    pub fn only(&self, kind: Kind) -> Comparison {
        let (scope, question) = self.in_scope();
        Comparison { scope, rows: vec![Row { kind, plan: question.with_window(kind).plan(kind) }] }
    }

    /// Probes and a rate, or probes and bits per key, hold for any number of keys: then one is assumed.
    fn in_scope(&self) -> (Scope, Question) {
        let per_key = self.rate.is_some() || self.bits_per_key.is_some() || self.tier.is_some();
        let total = self.items.is_some() || self.bytes.is_some() || self.window.is_some();
        match self.probes.is_some() && per_key && !total {
            true => (Scope::OneKey, Question { items: Some(MANY), ..*self }),
            false => (Scope::AllKeys, *self),
        }
    }

    /// The plan for one kind; what is not known is left to the library.
    ///
    /// # Errors
    ///
    /// Too little is known, or the kind cannot do it.
    pub fn plan(&self, kind: Kind) -> inbloom::Result<Plan> {
        self.builder(kind).build()
    }

    /// The plan of one kind among others, which is given only what concerns it: a bitmap is sized by
    /// its universe and has no rate, the others have no universe, and so on.
    fn plan_among_others(&self, kind: Kind) -> inbloom::Result<Plan> {
        let Question { items, universe, window, generations, width, growth, tightening, .. } =
            *self;
        let common = Question {
            universe: None,
            window: None,
            generations: None,
            width: None,
            growth: None,
            tightening: None,
            ..*self
        };
        if kind.can_grow() && items.is_none() {
            // It could start with any number, but a comparison needs one.
            return Err(Error::Underspecified { kind, needs: "the number of keys to start with" });
        }
        let question = if kind.is_exact() {
            Question { items, universe, ..Question::default() }
        } else if kind.chooses_width() {
            Question { width, ..common }
        } else if kind.can_grow() {
            Question { growth, tightening, ..common }
        } else if kind.forgets() {
            Question { window, generations, ..common }
        } else {
            common
        };
        question.with_window(kind).plan(kind)
    }

    /// A window that is not said to reach back further is one of the keys it is planned for.
    fn with_window(&self, kind: Kind) -> Question {
        match kind.forgets() {
            true => Question { window: self.window.or(self.items.map(Span::Items)), ..*self },
            false => *self,
        }
    }

    /// Returns the library's builder with everything that is known.
    pub fn builder(&self, kind: Kind) -> PlanBuilder {
        let mut plan = Plan::builder(kind);
        if let Some(items) = self.items {
            plan = plan.items(items);
        }
        if let Some(rate) = self.rate.or(self.rate_of_probes()) {
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
        match self.window {
            Some(Span::Millis(millis)) => plan = plan.window(Duration::from_millis(millis)),
            Some(Span::Items(items)) => plan = plan.last(items),
            None => {}
        }
        if let Some(generations) = self.generations {
            plan = plan.generations(generations);
        }
        if let Some(width) = self.width {
            plan = plan.width(width);
        }
        if let Some(growth) = self.growth {
            plan = plan.growth(growth);
        }
        if let Some(tightening) = self.tightening {
            plan = plan.tightening(tightening);
        }
        plan
    }

    /// Returns the rate that a number of probes stands for, if nothing else tells the rate: a classic
    /// filter of k probes is smallest where half of its bits are set, which gives 2^-k.
    pub fn rate_of_probes(&self) -> Option<f64> {
        let has_items = self.items.is_some() || matches!(self.window, Some(Span::Items(_)));
        let per_key = self.bits_per_key.is_some() || self.tier.is_some();
        let follows = self.rate.is_some() || per_key || (has_items && self.bytes.is_some());
        match self.probes {
            Some(probes @ 1..) if !follows => Some(0.5_f64.powf(f64::from(probes))),
            _ => None,
        }
    }
}

impl Comparison {
    /// Returns why no kind can be planned; None if at least one can.
    pub fn refusal(&self, question: &Question) -> Option<String> {
        if self.rows.iter().any(|row| row.plan.is_ok()) {
            return None;
        }
        let lacks = |row: &Row| matches!(row.plan, Err(Error::Underspecified { .. }));
        let Question { items, bytes, universe, window, .. } = *question;
        let has_size = items.or(bytes).or(universe).is_some() || window.is_some();
        if !has_size && self.rows.iter().any(lacks) {
            let known = match question.rate.is_some() || question.probes.is_some() {
                true => "this gives the rate of a filter, not its size",
                false => "nothing gives the size of a filter",
            };
            return Some(format!(
                "{known}: add the number of keys (-n 1M) or the memory (--bytes 64MiB, -m 512M){}",
                if self.rows.iter().any(|row| row.kind.is_exact()) {
                    ", or for a bitmap the number of possible integers (--universe 10M)"
                } else {
                    ""
                }
            ));
        }
        let refusal = |row: &Row| match &row.plan {
            Err(reason) => format!("\n  {}: {reason}", row.kind),
            Ok(_) => String::new(),
        };
        let refusals: String = self.rows.iter().map(refusal).collect();
        Some(format!("no kind can be planned with these options{refusals}"))
    }
}

/// Returns the rate with so many keys; None if the filter refuses some of them, because it is full.
pub fn rate_at(plan: &Plan, items: f64) -> Option<f64> {
    let most = plan.capacity().map_or(f64::INFINITY, |capacity| capacity as f64);
    (items <= most).then(|| plan.rate_at(items))
}

/// Returns the bits tested per key, in kinds that test bits; the others compare fingerprints.
pub fn probes(plan: &Plan) -> Option<u32> {
    plan.kind().has_probes().then_some(plan.probes())
}
