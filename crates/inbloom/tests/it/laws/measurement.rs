//! Measurements of the rate.

use super::*;

#[test]
fn a_measurement_finds_the_promise_kept() {
    const PROBES: u64 = 2_000_000;
    for (name, plan) in shapes(2000) {
        if plan.is_sparse() {
            continue; // fills half of its universe, which is too large here
        }
        let probes = if plan.kind() == Kind::Bitmap { 100_000 } else { PROBES };
        let measured = measure(&plan, probes, 7).unwrap();
        assert!(measured.meets_target(), "{name}: {measured:?}");
        assert_eq!(measured.target, plan.rate());
        assert_eq!(measured.probed, probes);
        assert_eq!(measured.rate, measured.false_positives as f64 / probes as f64);
        assert!(measured.low <= measured.rate && measured.rate <= measured.high, "{measured:?}");
        if plan.kind() == Kind::Bitmap {
            assert_eq!((measured.false_positives, measured.inserted), (0, UNIVERSE / 2));
        } else {
            assert_eq!(measured.inserted, plan.items());
            // The promise is what the model says, so it is within the interval and not only above;
            // but one of a window's generations is not filled, and the scalable kind has a reserve.
            let filled = f64::from(plan.generations().max(1)) / f64::from(plan.generations() + 1);
            // And of small filters with the same plan some are much better than others.
            let share = if plan.kind() == Kind::Scalable { 0.0 } else { 0.6 * filled };
            let model = plan.rate_at(plan.items() as f64).min(plan.rate());
            assert!(plan.rate() < 1e-4 || measured.high >= model * share, "{name}: {measured:?}");
        }
    }
}

#[test]
fn a_measurement_finds_a_broken_promise() {
    for kind in [Kind::Classic, Kind::Blocked] {
        let plan = Plan::builder(kind).items(2000).rate(0.01).build().unwrap();
        let foreign = || (1 << 30..(1 << 30) + 100_000_u64).map(u64::to_le_bytes);
        let kept = measure_absent(&with_keys(plan, &keys(0..2000)), foreign());
        assert!(kept.meets_target(), "{kind}: {kept:?}");
        let overfull = measure_absent(&with_keys(plan, &keys(0..2600)), foreign());
        assert!(!overfull.meets_target(), "{kind}: {overfull:?}");
        assert!(overfull.low > 0.01 && overfull.rate > 0.015, "{kind}: {overfull:?}");
        assert_eq!(overfull.probed, 100_000);
        let nothing = measure_absent(&Filter::new(plan).unwrap(), [[0; 8]; 0]);
        assert!(nothing.meets_target() && nothing.probed == 0, "{kind}: {nothing:?}");
    }
}
