//! Which kind to take, how its numbers move, and what to type: as codes and numbers, so that a page
//! can put them into any language.

use inbloom::{Kind, Plan, Span};
use serde_json::{Value, json};

use super::{Comparison, Question, Row, Scope, rate_at};

/// What the filter must be able to do, beyond adding and asking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Keys are removed again.
    pub remove: bool,
    /// The number of keys is not known in advance.
    pub grow: bool,
    /// Old keys are forgotten by time or number.
    pub forget: bool,
    /// Filters are united.
    pub merge: bool,
    /// All keys are known when it is built, and it never changes.
    pub is_static: bool,
}

impl Needs {
    /// Reads a list such as `remove,merge`.
    ///
    /// # Errors
    ///
    /// A word that is none of them.
    pub fn parse(text: &str) -> Result<Needs, String> {
        let mut needs = Needs::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            *match word {
                "remove" => &mut needs.remove,
                "grow" => &mut needs.grow,
                "forget" => &mut needs.forget,
                "merge" => &mut needs.merge,
                "static" => &mut needs.is_static,
                _ => {
                    return Err(format!(
                        "expected remove, grow, forget, merge or static, got {word:?}"
                    ));
                }
            } = true;
        }
        Ok(needs)
    }

    fn are_met_by(self, kind: Kind) -> bool {
        (!self.remove || kind.can_remove())
            && (!self.grow || kind.can_grow())
            && (!self.forget || kind.forgets())
            && (!self.merge || kind.can_merge())
            && (!self.is_static || kind.is_static())
    }
}

/// A kind to take, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Recommendation {
    /// `default`, `smaller`, `exact`, `forget`, `grow`, `remove`, `static`, `merge` or `only`.
    pub code: &'static str,
    /// The kind.
    pub kind: Kind,
    /// Its memory.
    pub bytes: u64,
    /// Its rate.
    pub rate: f64,
    /// Another kind that does better in one respect.
    pub alternative: Option<Alternative>,
}

/// A kind that does better than the recommended one in one respect.
#[derive(Clone, Debug, PartialEq)]
pub struct Alternative {
    /// `static_smaller`: smaller, if the keys never change. `faster`: one cache line for each key.
    pub code: &'static str,
    /// The kind.
    pub kind: Kind,
    /// Its memory.
    pub bytes: u64,
    /// The share of the recommended kind's memory that it saves; below 0 if it takes more.
    pub saves: f64,
}

/// A kind is worth leaving the default for if it saves this share of the memory: the default asks one
/// cache line for each key.
const WORTH: f64 = 0.2;

/// Returns the kind to take; None if no kind can be planned that meets the needs.
pub fn recommend(
    question: &Question,
    needs: Needs,
    comparison: &Comparison,
) -> Option<Recommendation> {
    let needs = Needs { forget: needs.forget || question.window.is_some(), ..needs };
    let planned = |row: &Row| row.plan.as_ref().ok().copied();
    let plans: Vec<Plan> = comparison.rows.iter().filter_map(planned).collect();
    let exact = plans.iter().find(|plan| plan.kind().is_exact() && question.universe.is_some());
    // What nobody asked for has a price: growing and forgetting take memory, a static filter cannot
    // be changed, and an exact one is only for integers.
    let is_plain = |kind: Kind| {
        !kind.is_exact()
            && kind.can_grow() == needs.grow
            && kind.forgets() == needs.forget
            && kind.is_static() == needs.is_static
    };
    let suits = |plan: &&Plan| needs.are_met_by(plan.kind());
    let suitable: Vec<&Plan> =
        plans.iter().filter(suits).filter(|plan| is_plain(plan.kind())).collect();
    let smallest = suitable.iter().copied().min_by_key(|plan| plan.bytes());
    let default = suitable.iter().copied().find(|plan| plan.kind() == Kind::default());
    let (code, plan) = match (exact, default, smallest) {
        (Some(exact), ..) if needs == Needs::default() => ("exact", exact),
        (_, Some(default), Some(smallest)) if saves(smallest, default) < WORTH => {
            (if needs.merge { "merge" } else { "default" }, default)
        }
        (_, Some(_), Some(smallest)) => ("smaller", smallest),
        (_, None, Some(smallest)) if needs.forget => ("forget", smallest),
        (_, None, Some(smallest)) if needs.grow => ("grow", smallest),
        (_, None, Some(smallest)) if needs.is_static => ("static", smallest),
        (_, None, Some(smallest)) if needs.remove => ("remove", smallest),
        (_, None, Some(smallest)) => ("only", smallest),
        (_, _, None) => ("only", plans.iter().find(suits)?),
    };
    let alternative = alternative(plan, needs, &plans);
    Some(Recommendation {
        code,
        kind: plan.kind(),
        bytes: plan.bytes(),
        rate: plan.rate(),
        alternative,
    })
}

fn saves(plan: &Plan, of: &Plan) -> f64 {
    1.0 - plan.bytes() as f64 / of.bytes() as f64
}

fn alternative(plan: &Plan, needs: Needs, plans: &[Plan]) -> Option<Alternative> {
    if needs != Needs::default() || plan.kind().is_exact() {
        return None;
    }
    let of = |code, other: &Plan| {
        let saves = saves(other, plan);
        Alternative { code, kind: other.kind(), bytes: other.bytes(), saves }
    };
    let fixed = plans.iter().find(|other| other.kind().is_static());
    let fixed = fixed.map(|other| of("static_smaller", other)).filter(|it| it.saves >= WORTH / 2.0);
    let default = plans.iter().find(|other| other.kind() == Kind::default());
    let default = default.filter(|other| other.kind() != plan.kind());
    fixed.or(default.map(|other| of("faster", other)))
}

impl Recommendation {
    /// As `/api/plan` has it. Without totals where only bits per key were asked for.
    pub fn as_json(&self, scope: Scope) -> Value {
        let total = |bytes: u64| (scope == Scope::AllKeys).then_some(bytes);
        let alternative = self.alternative.as_ref().map(|other| {
            json!({
                "code": other.code,
                "kind": other.kind.name(),
                "bytes": total(other.bytes),
                "saves": other.saves,
            })
        });
        json!({
            "code": self.code,
            "kind": self.kind.name(),
            "bytes": total(self.bytes),
            "rate": self.rate,
            "alternative": alternative,
        })
    }
}

/// Points of the curve of the rate, from no keys to twice the planned ones.
const RATE_POINTS: u32 = 60;
/// Rates of the curve of the memory: 1 and 3.16 in each power of ten.
const BYTES_POINTS: u32 = 18;

/// Returns the curves of a plan: its rate against the number of keys, and its memory against the rate.
pub fn curves(question: &Question, plan: &Plan) -> Value {
    let rate = |step: u32| {
        let items = plan.items() as f64 * 2.0 * f64::from(step) / f64::from(RATE_POINTS);
        json!({ "items": items.round(), "rate": rate_at(plan, items) })
    };
    // The memory for the same keys at other rates: whatever else gave the rate or the memory is
    // left out.
    let asked = |rate: f64| Question {
        items: Some(plan.items()),
        rate: Some(rate),
        bytes: None,
        bits_per_key: None,
        tier: None,
        probes: None,
        ..*question
    };
    let bytes = |step: u32| {
        let rate = if step == 0 { 0.5 } else { 10f64.powf(-f64::from(step) / 2.0) };
        let plan = asked(rate).plan_among_others(plan.kind()).ok()?;
        Some(json!({ "rate": rate, "bytes": plan.bytes() }))
    };
    let has_rate = !plan.kind().is_exact();
    let by_rate = (0..=BYTES_POINTS).filter(|_| has_rate).filter_map(bytes);
    json!({
        "rate_by_keys": (0..=RATE_POINTS).map(rate).collect::<Vec<_>>(),
        "bytes_by_rate": by_rate.collect::<Vec<_>>(),
        "point": { "items": plan.items(), "rate": plan.rate(), "bytes": plan.bytes() },
    })
}

/// Returns what to type for a plan, in four languages; null where it has no such form.
pub fn commands(plan: &Plan) -> Value {
    let kind = plan.kind();
    let (name, items, rate) = (kind.name(), plan.items(), plan.rate());
    let span = plan.span().map(|span| match span {
        Span::Items(items) => items.to_string(),
        Span::Millis(millis) => format!("{}s", millis / 1000),
    });
    let cli = if kind.is_exact() {
        format!("inbloom build -o filter.ib --kind {name} --universe {}", plan.bits())
    } else if let Some(span) = &span {
        format!("inbloom dedup --filter filter.ib --window {span} -n {items} -p {rate}")
    } else {
        format!("inbloom build -o filter.ib --kind {name} -n {items} -p {rate}")
    };
    let options = match plan.span() {
        Some(Span::Millis(_)) => span.map(|span| format!(" WINDOW {span}")),
        // WINDOW takes a time only.
        Some(Span::Items(_)) => None,
        // What BF.RESERVE makes by default is of the default kind, and takes more memory to grow later.
        None if kind == Kind::default() => Some(" NONSCALING".to_string()),
        None if kind.can_grow() => Some(String::new()),
        None if kind.is_exact() || kind.is_static() => None,
        None => Some(format!(" KIND {name}")),
    };
    let reserve = options.as_ref().map(|it| format!("BF.RESERVE filter {rate} {items}{it}"));
    let python = options.as_ref().map(|options| {
        let mut words: Vec<String> = ["BF.RESERVE", "filter"].map(|it| format!("{it:?}")).into();
        words.extend([rate.to_string(), items.to_string()]);
        words.extend(options.split_whitespace().map(|word| format!("{word:?}")));
        let reserve = format!("server.execute_command({})", words.join(", "));
        format!("import redis\n\nserver = redis.Redis(port=7379)\n{reserve}")
    });
    json!({ "cli": cli, "reserve": reserve, "rust": rust(plan), "python": python })
}

fn rust(plan: &Plan) -> String {
    let kind = plan.kind();
    let mut calls = format!("Plan::builder(Kind::{kind:?})");
    match plan.span() {
        _ if kind.is_exact() => calls.push_str(&format!(".universe({})", plan.bits())),
        Some(Span::Items(items)) => calls.push_str(&format!(".last({items})")),
        Some(Span::Millis(millis)) => {
            let duration = format!("Duration::from_millis({millis})");
            calls.push_str(&format!(".window({duration}).items({})", plan.items()));
        }
        None => calls.push_str(&format!(".items({})", plan.items())),
    }
    if !kind.is_exact() {
        calls.push_str(&format!(".rate({})", plan.rate()));
    }
    let filter = match kind.is_static() {
        true => "let filter = Filter::build(plan, Hasher::default(), &digests)?;",
        false => "let mut filter = Filter::new(plan)?;",
    };
    format!("let plan = {calls}.build()?;\n{filter}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recommended(question: Question, needs: &str) -> Recommendation {
        let needs = Needs::parse(needs).unwrap();
        recommend(&question, needs, &question.compare()).expect("something can do it")
    }

    #[test]
    fn bf_reserve_is_of_the_size_that_was_computed() {
        let reserve = |kind: Kind| {
            let plan = asked(10_000_000, 0.001).plan(kind).unwrap();
            commands(&plan)["reserve"].as_str().unwrap().to_owned()
        };
        assert_eq!(reserve(Kind::Blocked), "BF.RESERVE filter 0.001 10000000 NONSCALING");
        assert_eq!(reserve(Kind::Scalable), "BF.RESERVE filter 0.001 10000000");
        assert_eq!(reserve(Kind::Classic), "BF.RESERVE filter 0.001 10000000 KIND classic");
    }

    fn asked(items: u64, rate: f64) -> Question {
        Question { items: Some(items), rate: Some(rate), ..Question::default() }
    }

    #[test]
    fn what_is_recommended_meets_the_needs() {
        for rate in [0.1, 0.01, 1e-4, 1e-6] {
            for needs in ["", "remove", "grow", "forget", "merge", "static", "remove,merge"] {
                let question = asked(1_000_000, rate);
                let parsed = Needs::parse(needs).unwrap();
                let Some(found) = recommend(&question, parsed, &question.compare()) else {
                    panic!("nothing for {needs} at {rate}")
                };
                assert!(parsed.are_met_by(found.kind), "{needs} at {rate}: {found:?}");
            }
        }
    }

    #[test]
    fn the_default_is_recommended_unless_another_saves_a_fifth() {
        let common = recommended(asked(1_000_000, 0.01), "");
        assert_eq!((common.code, common.kind), ("default", Kind::default()));
        let other = common.alternative.expect("a static filter is smaller");
        assert!(other.code == "static_smaller" && other.saves > 0.2, "{other:?}");
        let rare = recommended(asked(1_000_000, 1e-7), "");
        assert!(rare.code == "smaller" && rare.kind != Kind::default(), "{rare:?}");
        let exact = recommended(Question { universe: Some(1000), ..asked(10, 0.01) }, "");
        assert_eq!((exact.code, exact.rate), ("exact", 0.0));
        let impossible = Needs::parse("grow,static").unwrap();
        let question = asked(1000, 0.01);
        assert_eq!(recommend(&question, impossible, &question.compare()), None);
        assert!(Needs::parse("fly").unwrap_err().contains("fly"));
    }

    #[test]
    fn curves_pass_through_their_point() {
        let question = asked(1_000_000, 0.01);
        for row in question.compare().rows {
            let Ok(plan) = row.plan else { continue };
            let curves = curves(&question, &plan);
            let middle = &curves["rate_by_keys"][30];
            assert_eq!(middle["items"], plan.items() as f64, "{}", row.kind);
            let rate = middle["rate"].as_f64().expect("as many as planned fit");
            assert!(rate <= plan.rate() * 1.000_001, "{}: {rate}", row.kind);
            let bytes = curves["bytes_by_rate"].as_array().unwrap();
            let at = |rate: f64| bytes.iter().find(|it| it["rate"].as_f64().unwrap() == rate);
            if let Some(point) = at(0.01) {
                assert_eq!(point["bytes"], plan.bytes(), "{}", row.kind);
            }
        }
    }
}
