//! The same content by another way: shared between threads, in a file, in lent bytes.

use super::*;

/// A sequence of every verb that changes, through both handles.
#[test]
fn a_shared_filter_becomes_what_an_exclusive_one_becomes() {
    for (name, plan) in shapes_for(2000, 4000) {
        let mut exclusive = Filter::new(plan).unwrap();
        let shared = Filter::new(plan).unwrap().into_shared().unwrap();
        for key in keys(0..300).iter().chain(&keys(200..400)) {
            assert_eq!(exclusive.insert(key).unwrap(), shared.insert(key).unwrap(), "{name}");
        }
        for key in keys(350..500) {
            let here = exclusive.insert_if_absent(key).unwrap();
            assert_eq!(here, shared.insert_if_absent(key).unwrap(), "{name}");
        }
        let (mut here, mut there) = (Vec::new(), Vec::new());
        exclusive.insert_many(&keys(450..1500), &mut here).unwrap();
        shared.insert_many(&keys(450..1500), &mut there).unwrap();
        assert_eq!(here, there, "{name}");
        if plan.kind().can_remove() {
            for key in keys(0..700) {
                assert_eq!(exclusive.remove(key).unwrap(), shared.remove(key).unwrap(), "{name}");
            }
        }
        match plan.kind() {
            Kind::Window => {
                for now in [5, 500, 400, 900] {
                    exclusive.advance(now).unwrap();
                    shared.advance(now).unwrap();
                    exclusive.insert(key(now)).unwrap();
                    shared.insert(key(now)).unwrap();
                }
            }
            kind => {
                let expected = format!(
                    "kind {kind} cannot follow a clock: only a window forgets; \
                     plan one with Kind::Window"
                );
                assert_eq!(exclusive.advance(5).expect_err("a refusal").to_string(), expected);
                assert_eq!(shared.advance(5).expect_err("a refusal").to_string(), expected);
            }
        }
        for key in keys(0..3000) {
            assert_eq!(exclusive.contains(key), shared.contains(key), "{name}");
            assert_eq!(exclusive.count(key), shared.count(key), "{name}");
        }
        assert_eq!(exclusive.inserted(), shared.inserted(), "{name}");
        assert_eq!(
            (exclusive.occupied(), exclusive.fill()),
            (shared.occupied(), shared.fill()),
            "{name}"
        );
        assert_eq!(exclusive.estimated_items(), shared.estimated_items(), "{name}");
        assert_eq!(exclusive.rate(), shared.rate(), "{name}");
        let back = shared.into_exclusive();
        assert!(back == exclusive && back.inserted() == exclusive.inserted(), "{name}");
        assert!(file_of(&back) == file_of(&exclusive), "{name}");
    }
}

#[test]
fn a_saved_filter_is_the_same_by_every_way_in_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("seen.ib");
    for (name, plan) in shapes_for(2000, 4000) {
        let mut filter = with_keys(plan, &keys(0..1000));
        if plan.kind() == Kind::Window {
            filter.advance(1000).unwrap();
        }
        file::save(&filter, &path).unwrap();
        file::verify(&path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let mut opened = file::open(&path).unwrap();
        let mut changed = file::open_mut(&path).unwrap();
        let read = Filter::read_from(&bytes[..]).unwrap();
        let view = Filter::view(&bytes).unwrap();
        for other in [&opened, &changed, &read, &*view] {
            assert!(*other == filter, "{name}");
            assert_eq!(other.plan(), filter.plan(), "{name}");
            assert_eq!(
                (other.inserted(), other.occupied(), other.bytes()),
                (filter.inserted(), filter.occupied(), filter.bytes()),
                "{name}"
            );
            assert_eq!(other.estimated_items(), filter.estimated_items(), "{name}");
            assert_eq!(
                (other.rate(), other.details()),
                (filter.rate(), filter.details()),
                "{name}"
            );
            let (mut here, mut there) = (Vec::new(), Vec::new());
            filter.contains_many(&keys(0..3000), &mut here);
            other.contains_many(&keys(0..3000), &mut there);
            assert_eq!(here, there, "{name}");
            let count = |key: &[u8; 8]| other.count(key) == filter.count(key);
            assert!(keys(0..3000).iter().all(count), "{name}");
            assert!(file_of(other) == bytes, "{name}: written again, other bytes");
        }
        if opened.is_read_only() {
            let mut refusals = vec![opened.insert(key(0)).map(drop), opened.clear()];
            if plan.kind().can_remove() {
                refusals.push(opened.remove(key(0)).map(drop));
            }
            if plan.kind() == Kind::Window {
                refusals.push(opened.advance(2000));
            }
            assert!(refusals.iter().all(|one| matches!(one, Err(Error::ReadOnly))), "{name}");
            assert!(opened == filter, "{name}: refused, and changed");
            assert!(plan.kind() == Kind::Bitmap || opened.merge(&read).is_err(), "{name}");
        }
        // One that is opened to change goes on as the one in memory does; so does a shared one.
        let shared = file::open(&path).unwrap().into_shared().unwrap();
        for number in 900..1900 {
            filter.insert(key(number)).unwrap();
            changed.insert(key(number)).unwrap();
            shared.insert(key(number)).unwrap();
            if plan.kind().can_remove() {
                filter.remove(key(number - 900)).unwrap();
                changed.remove(key(number - 900)).unwrap();
                shared.remove(key(number - 900)).unwrap();
            }
        }
        if plan.kind() == Kind::Window {
            filter.advance(1400).unwrap();
            changed.advance(1400).unwrap();
            shared.advance(1400).unwrap();
        }
        for other in [&changed, &shared.into_exclusive()] {
            assert!(*other == filter && other.inserted() == filter.inserted(), "{name}");
            assert_members(other, &keys(1000..1900), &name);
        }
        assert!(std::fs::read(&path).unwrap() == bytes, "{name}: the file has changed");
        file::save(&changed, &path).unwrap();
        file::verify(&path).unwrap();
        assert!(file::open(&path).unwrap() == filter, "{name}");
    }
}
