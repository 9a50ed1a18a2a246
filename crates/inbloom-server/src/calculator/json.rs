//! Plans as JSON: the rows of `inbloom plan --json` and of `/api/plan`.

use inbloom::{Plan, Span};
use serde_json::{Value, json};

use super::{Comparison, Row, Scope, probes, rate_at};

/// Shares of the planned number of keys at which the curve of a row has the rate.
const CURVE: [f64; 6] = [0.25, 0.5, 0.75, 1.0, 1.5, 2.0];

/// The fields of a row but the curve, and why a kind was refused: the columns of `--csv`.
pub const COLUMNS: [&str; 20] = [
    "kind",
    "items",
    "rate",
    "bits",
    "bits_per_key",
    "bytes",
    "probes",
    "cache_lines",
    "merge",
    "remove",
    "grow",
    "static",
    "forget",
    "width",
    "growth",
    "tightening",
    "window_ms",
    "window_keys",
    "generations",
    "refused",
];

/// Returns all rows, each with a curve.
pub fn rows_as_json(comparison: &Comparison) -> Vec<Value> {
    let scope = comparison.scope;
    let with_curve = |row: &Row| {
        let mut fields = row_as_json(row, scope);
        if let Ok(plan) = &row.plan {
            let point = |share: f64| {
                let items = plan.items() as f64 * share;
                let shown = total(scope, json!(items));
                json!({ "share": share, "items": shown, "rate": rate_at(plan, items) })
            };
            fields["curve"] = json!(CURVE.map(point));
        }
        fields
    };
    comparison.rows.iter().map(with_curve).collect()
}

/// Returns a row without a curve.
pub fn row_as_json(row: &Row, scope: Scope) -> Value {
    match &row.plan {
        Ok(plan) => plan_as_json(plan, scope),
        Err(reason) => json!({ "kind": row.kind.to_string(), "refused": reason.to_string() }),
    }
}

fn plan_as_json(plan: &Plan, scope: Scope) -> Value {
    let mut fields = json!({
        "kind": plan.kind().to_string(),
        "items": total(scope, json!(plan.items())),
        "rate": plan.rate(),
        "bits": total(scope, json!(plan.bits())),
        "bits_per_key": plan.bits_per_key(),
        "bytes": total(scope, json!(plan.bytes())),
        "probes": probes(plan),
        "cache_lines": plan.cache_lines(),
        "merge": plan.kind().can_merge(),
        "remove": plan.kind().can_remove(),
        "grow": plan.kind().can_grow(),
        "static": plan.kind().is_static(),
        "forget": plan.span().is_some(),
    });
    for (name, value) in particulars(plan) {
        fields[name] = value;
    }
    fields
}

/// Returns a number that depends on how many keys there are, if they were asked about.
fn total(scope: Scope, value: Value) -> Value {
    if scope == Scope::AllKeys { value } else { Value::Null }
}

/// Returns the parameters that only some kinds have, by name; null for the others.
pub fn particulars(plan: &Plan) -> [(&'static str, Value); 6] {
    let kind = plan.kind();
    let (millis, keys) = match plan.span() {
        Some(Span::Millis(millis)) => (json!(millis), Value::Null),
        Some(Span::Items(items)) => (Value::Null, json!(items)),
        None => (Value::Null, Value::Null),
    };
    let of = |has: bool, value: Value| if has { value } else { Value::Null };
    [
        ("width", of(kind.has_wide_cells(), json!(plan.width()))),
        ("growth", of(kind.can_grow(), json!(plan.growth()))),
        ("tightening", of(kind.can_grow(), json!(plan.tightening()))),
        ("window_ms", millis),
        ("window_keys", keys),
        ("generations", of(kind.forgets(), json!(plan.generations()))),
    ]
}
