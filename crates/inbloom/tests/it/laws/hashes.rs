//! Hashes: seeds, secret keys, and which go with which kind.

use super::*;

#[test]
fn seeds_and_secret_keys_make_different_filters_of_the_same_keys() {
    let plan = Plan::builder(Kind::Blocked).items(1000).rate(0.01).build().unwrap();
    let hashers = [
        Hasher::xxh3(0),
        Hasher::xxh3(1),
        Hasher::sip13(SecretKey::new([1; 16])),
        Hasher::sip13(SecretKey::new([2; 16])),
    ];
    let filters: Vec<Filter> = hashers
        .iter()
        .map(|hasher| {
            let mut filter = Filter::with_hasher(plan, *hasher).unwrap();
            filter.insert_many(&keys(0..1000), &mut Vec::new()).unwrap();
            assert_members(&filter, &keys(0..1000), hasher.name());
            assert_eq!(filter.hasher(), hasher);
            filter
        })
        .collect();
    for (i, one) in filters.iter().enumerate() {
        for other in &filters[i + 1..] {
            assert!(one != other);
            // What one claims wrongly, the other denies: of 1% few are in common.
            let foreign = keys(1000..101_000);
            let both = foreign.iter().filter(|key| one.contains(key) && other.contains(key));
            let both = both.count();
            assert!(both < 40, "{both} of 100,000 claimed by both, 10 expected");
        }
    }
}

#[test]
fn a_hash_that_does_not_fit_the_kind_is_refused() {
    let text = |plan: Plan, hasher| Filter::with_hasher(plan, hasher).unwrap_err().to_string();
    let bitmap = Plan::builder(Kind::Bitmap).universe(10).build().unwrap();
    assert_eq!(
        text(bitmap, Hasher::default()),
        "kind bitmap cannot hash its keys; use Hasher::integers()"
    );
    for (_, plan) in shapes(10) {
        let kind = plan.kind();
        if kind == Kind::Bitmap {
            continue;
        }
        assert_eq!(
            text(plan, Hasher::integers()),
            format!("kind {kind} cannot do without a hash; use Hasher::xxh3 or Hasher::sip13")
        );
    }
}
