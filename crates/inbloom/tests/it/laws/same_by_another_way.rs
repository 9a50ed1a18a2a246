//! The same content by another way: shared between threads, in a file, in lent bytes.

use super::*;

/// A sequence of every verb that changes, through both handles.
#[test]
fn a_shared_filter_becomes_what_an_exclusive_one_becomes() {
    for shape in every_shape(2000, 4000) {
        let (name, plan) = (&shape.name, shape.plan);
        let mut exclusive = shape.filter();
        let shared = shape.filter().into_shared().unwrap();
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
        if plan.kind().can_remove() || shape.is_overlay() {
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
                    "kind {kind} cannot follow a clock; use kind window, the only one whose keys expire"
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
    for shape in every_shape(2000, 4000) {
        let (name, plan) = (&shape.name, shape.plan);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seen.ib");
        let mut filter = shape.with_keys(&keys(0..1000));
        if plan.kind() == Kind::Window {
            filter.advance(1000).unwrap();
        }
        filter.save(&path).unwrap();
        let files = match filter.shards().len() {
            1 => vec![path.clone()],
            _ => file::shard_paths(file::stem_of(&path)).unwrap(),
        };
        files.iter().for_each(|file| file::verify(file).unwrap());
        let contents = || files.iter().flat_map(|file| std::fs::read(file).unwrap());
        let bytes: Vec<u8> = contents().collect();
        let mut opened = Filter::open(&path).unwrap();
        let mut changed = inbloom::OpenOptions::new().writable(true).open(&path).unwrap();
        let read = read(&bytes);
        let files_of_shards = filter.shards().iter().map(file_of).collect::<Vec<_>>();
        for (file, shard) in files_of_shards.iter().zip(filter.shards()) {
            let view = Filter::view(file).unwrap();
            assert!(*view == *shard && view.inserted() == shard.inserted(), "{name}");
            assert_eq!((view.rate(), view.details()), (shard.rate(), shard.details()), "{name}");
            let digests = digests(name, 3000);
            assert_eq!(found(&view, &digests), found(shard, &digests), "{name}");
            assert!(file_of(&view) == *file && file_of(&view.clone()) == *file, "{name}");
        }
        for other in [&opened, &changed, &read] {
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
        if shape.is_overlay() {
            // What is read from a file takes changes only when it is made an overlay again.
            assert!(changed.insert(key(2000)).is_err(), "{name}");
            let (mut changed, mut filter) = (changed.into_overlay(1e-3).unwrap(), filter);
            let keys = keys(900..1900);
            changed.insert_many(&keys, &mut Vec::new()).unwrap();
            filter.insert_many(&keys, &mut Vec::new()).unwrap();
            assert!(changed == filter, "{name}");
            continue;
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
        let shared = Filter::open(&path).unwrap().into_shared().unwrap();
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
            assert_members(other, &keys(1000..1900), name);
        }
        assert!(contents().eq(bytes), "{name}: the file has changed");
        changed.save(&path).unwrap();
        files.iter().for_each(|file| file::verify(file).unwrap());
        assert!(Filter::open(&path).unwrap() == filter, "{name}");
    }
}

fn found(filter: &Filter, digests: &[Digest]) -> Vec<bool> {
    let mut found = Vec::new();
    filter.contains_digests(digests, &mut found);
    found
}

#[test]
fn shards_are_not_saved_beside_a_file_that_would_hide_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("seen.ib");
    let plan = Plan::builder(Kind::Blocked).items(1000).build().unwrap();
    Filter::new(plan).unwrap().save(&path).unwrap();
    let error = Filter::sharded(plan, 3).unwrap().save(&path).unwrap_err().to_string();
    assert!(error.contains("cannot save shards beside") && error.contains("seen.ib"), "{error}");
    assert!(file::shard_paths(file::stem_of(&path)).unwrap().is_empty());
}

#[cfg(feature = "serde")]
#[test]
fn every_content_is_the_same_after_serialization() {
    for shape in every_shape(500, 500) {
        let filter = shape.with_keys(&keys(0..300));
        let text = serde_json::to_string(&filter).unwrap();
        let again: Filter = serde_json::from_str(&text).unwrap();
        assert!(again == filter && again.shards().len() == filter.shards().len(), "{}", shape.name);
        let lone = &filter.shards()[0];
        let text = serde_json::to_string(lone).unwrap();
        assert!(serde_json::from_str::<Filter>(&text).unwrap() == *lone, "{}", shape.name);
    }
}
