//! `/api/plan`: the calculator.

use axum::http::StatusCode;
use inbloom::{Kind, Plan, Tier};
use serde_json::{Value, json};

use super::api::ApiError;
use super::parameters::Parameters;
use crate::calculator::advice::{Needs, commands, curves, recommend};
use crate::calculator::{Question, Scope, row_as_json, rows_as_json};
use crate::units;

/// Plans every kind from what is known.
pub fn answer(parameters: &mut Parameters) -> Result<Value, ApiError> {
    let question = question(parameters)?;
    let kind: Option<Kind> = parameters.read("kind", |text| {
        let unknown = |_| format!("unknown kind {text:?}");
        text.parse().map_err(unknown)
    })?;
    let needs = parameters.read("need", Needs::parse)?.unwrap_or_default();
    let comparison = question.compare();
    if let Some(refusal) = comparison.refusal(&question) {
        let rows = comparison.rows.iter().map(|row| row_as_json(row, comparison.scope));
        let error = ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "unplannable", refusal);
        return Err(error.with("kinds", rows.collect()));
    }
    let recommendation = recommend(&question, needs, &comparison);
    let chosen = kind.or(recommendation.as_ref().map(|it| it.kind));
    let is_chosen = |plan: &&Plan| Some(plan.kind()) == chosen;
    let plans = comparison.rows.iter().filter_map(|row| row.plan.as_ref().ok());
    let plan = plans.into_iter().find(is_chosen);
    let has_totals = comparison.scope == Scope::AllKeys;
    Ok(json!({
        "kinds": rows_as_json(&comparison),
        "chosen": plan.map(|plan| plan.kind().name()),
        "recommendation": recommendation.map(|it| it.as_json(comparison.scope)),
        "implied_rate": question.rate_of_probes(),
        "curves": plan.filter(|_| has_totals).map(|plan| curves(&question, plan)),
        // No command makes a filter of the rate 1.
        "commands": plan.filter(|plan| has_totals && plan.rate() < 1.0).map(commands),
    }))
}

fn question(parameters: &mut Parameters) -> Result<Question, ApiError> {
    let whole = |text: &str| {
        let number = text.parse().ok().filter(|number| (0..=255).contains(number));
        number.ok_or_else(|| format!("expected a number from 0 to 255, got {text:?}"))
    };
    let bits = parameters.read("bits", units::parse_count)?;
    let bytes = parameters.read("bytes", units::parse_bytes)?.or(bits.map(|bits| bits / 8));
    let tier: Option<Tier> = parameters.read("tier", |text| {
        let names = || Tier::ALL.iter().map(|tier| tier.name()).collect::<Vec<_>>().join(", ");
        text.parse().map_err(|_| format!("expected one of {}, got {text:?}", names()))
    })?;
    Ok(Question {
        items: parameters.read("items", units::parse_keys)?,
        rate: parameters.read("rate", units::parse_rate)?,
        bytes,
        bits_per_key: parameters.read("bits_per_key", units::parse_positive)?,
        probes: parameters.read("probes", whole)?.filter(|probes| *probes > 0),
        tier,
        universe: parameters.read("universe", units::parse_count)?,
        window: parameters.read("window", units::parse_window)?,
        generations: parameters.read("generations", whole)?,
        width: parameters.read("width", whole)?,
        growth: parameters.read("growth", whole)?,
        tightening: parameters.read("tightening", units::parse_share)?,
    })
}
