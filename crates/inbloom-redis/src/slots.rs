//! The 16,384 slots of a Redis cluster, and hash tags that lie in a chosen one.
//!
//! A key is in the slot CRC16(tag) mod 16384, where the tag is what stands between the first `{` of
//! the key and the next `}`, or the whole key (Redis cluster specification, "Key distribution
//! model").

/// The slots of a cluster.
pub(crate) const SLOTS: u16 = 16_384;

/// Returns the slot of a key.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    crc16(0, tag_of(key)) % SLOTS
}

/// Returns what decides the slot of a key.
fn tag_of(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else { return key };
    let rest = &key[open + 1..];
    match rest.iter().position(|byte| *byte == b'}') {
        None | Some(0) => key,
        Some(close) => &rest[..close],
    }
}

/// Returns texts that follow `prefix` in a tag, one for each of the slots that are wanted: the first
/// numbers, in base 36, that lead there.
pub(crate) fn suffixes(prefix: &[u8], wanted: &[u16]) -> Vec<String> {
    let start = crc16(0, prefix);
    let mut found: Vec<Option<String>> = vec![None; wanted.len()];
    let mut places = vec![Vec::new(); usize::from(SLOTS)];
    for (place, slot) in wanted.iter().enumerate() {
        places[usize::from(*slot)].push(place);
    }
    let mut missing = wanted.len();
    let mut number = 0;
    // CRC16 maps the numbers of four digits evenly onto all slots, so that this ends.
    while missing > 0 {
        let text = base_36(number);
        let slot = crc16(start, text.as_bytes()) % SLOTS;
        // Slots that are wanted twice get two texts.
        if let Some(place) = places[usize::from(slot)].pop() {
            found[place] = Some(text);
            missing -= 1;
        }
        number += 1;
    }
    found.into_iter().flatten().collect()
}

/// Returns a tag whose slot is at most `distance` from one: the first number, in base 36, that leads there.
pub(crate) fn tag_near(slot: u16, distance: u16) -> String {
    let is_near = |text: &str| {
        let apart = slot.abs_diff(slot_of(text.as_bytes()));
        apart.min(SLOTS - apart) <= distance
    };
    // Numbers of four digits lead to every slot.
    (0..).map(base_36).find(|text| is_near(text)).expect("CRC16 maps them onto all slots")
}

fn base_36(mut number: u32) -> String {
    let mut digits = Vec::new();
    loop {
        digits.push(b"0123456789abcdefghijklmnopqrstuvwxyz"[number as usize % 36]);
        number /= 36;
        if number == 0 {
            break;
        }
    }
    digits.iter().rev().map(|digit| char::from(*digit)).collect()
}

/// CRC-16/XMODEM (polynomial 0x1021), which goes on from `crc`.
fn crc16(crc: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(crc, |crc, byte| crc << 8 ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)])
}

const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = (index as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value of the cluster specification, and slots that `redis-cli cluster keyslot`
    /// reports.
    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!(crc16(0, b"123456789"), 0x31c3);
        for (key, slot) in [
            ("foo", 12_182),
            ("", 0),
            ("{user1000}.following", 3443),
            ("user1000", 3443),
            ("foo{}{bar}", 8363),
            ("foo{{bar}}zap", 4015),
            ("foo{bar}{zap}", 5061),
            ("bar", 5061),
            ("{bar", 4015),
        ] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
    }

    #[test]
    fn a_tag_leads_near_every_slot() {
        for slot in 0..SLOTS {
            for distance in [0, 128].into_iter().skip(usize::from(slot % 64 != 0)) {
                let tag = tag_near(slot, distance);
                let apart = slot.abs_diff(slot_of(tag.as_bytes()));
                assert!(apart <= distance || SLOTS - apart <= distance, "{tag}: {slot}");
                assert!(tag.len() <= if distance == 0 { 4 } else { 3 }, "{tag}: {slot}");
            }
        }
    }

    #[test]
    fn suffixes_lead_to_the_slots_that_are_wanted() {
        let wanted: Vec<u16> = (0..1024).map(|group| group * 16).chain([7, 7, 16_383]).collect();
        let suffixes = suffixes(b"0123456789abcdef", &wanted);
        assert_eq!(suffixes.len(), wanted.len());
        for (suffix, slot) in suffixes.iter().zip(&wanted) {
            assert_eq!(slot_of(format!("ib:{{0123456789abcdef{suffix}}}:5").as_bytes()), *slot);
            assert!(suffix.len() <= 4, "{suffix}");
        }
        assert_ne!(suffixes[1024], suffixes[1025]);
    }
}
