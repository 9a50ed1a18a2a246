//! A spell checker, one of the first uses of Bloom filters: two bytes per word instead of the
//! words, no correct word is reported, and one misspelling in a thousand slips through. Run it with
//! `cargo run --release -p inbloom --example spell_checker`.

use std::collections::BTreeSet;

use inbloom::{Filter, Kind, Plan};

const RATE: f64 = 0.001;

const WORDS: &str = "\
    a about across add again age all also am an and animal answer apple area around as at back \
    ball beautiful because bed before began begin believe best between bird blue body book box \
    bread bring build business but buy call can captain car care catch century chair change child \
    choose circle class clear clock cloud colour common compare complete contain control could \
    count course cover cry dance dark day dead decide describe did different difficult discover \
    do dog doubt down dream drive each earth east edge eight else energy engine enter even ever \
    example except experience face fair family famous fast fear few fight figure find finish \
    first five floor fly food for foreign forest forward four fresh from front full garden gave \
    get girl glass gold govern green ground grow guide had half happy hard have he head heart \
    help her high him his history home hope hot hours how hundred hurry idea imagine in industry \
    interest iron is island it join just keep king lady language large last late laugh law learn \
    left less let level light line little live look love machine make man map market may mean \
    measure men method might milk mind miss money moon morning most mountain much must name \
    nation near need new night no not now ocean off often old once only or order our over page \
    part pass path perhaps picture place plan play point possible present press produce proper \
    public push put quick rain read real reason record remember result ride right road room rule \
    safe same save school sea see seem send separate set several shall ship should side since \
    sing six sleep snow some song sound space special stand star state still stop street strong \
    such sun table talk tall tell than the them then these thing this though thought three time \
    to together top toward travel true turn under unit up use very wait walk want warm watch way \
    we week well were what wheel where while who why wide will window wish woman wonder word \
    world write yes yet young";

const TEXT: &str = "He could not find the diffrence between a large animal and an iron mashine, \
    but the captain did: he had experience. His freind began to laugh, becuase it is difficult \
    to dicide what a machine can do in a hundred hours.";

struct Outcome {
    words: usize,
    bytes: u64,
    bits_per_word: f64,
    /// The words of the text that are certainly not in the list.
    unknown: Vec<String>,
    misspellings: usize,
    slipped_through: usize,
}

fn run() -> inbloom::Result<Outcome> {
    let words: BTreeSet<&str> = WORDS.split_whitespace().collect();
    // The kind with the fewest bits.
    let plan = Plan::builder(Kind::Classic).items(words.len() as u64).rate(RATE).build()?;
    let mut dictionary = Filter::new(plan)?;
    for word in &words {
        dictionary.insert(word)?;
    }
    let text = TEXT.split(|letter: char| !letter.is_alphabetic()).filter(|word| !word.is_empty());
    let unknown: Vec<String> =
        text.map(str::to_lowercase).filter(|word| !dictionary.contains(word)).collect();
    let mut misspellings: BTreeSet<String> = words.iter().flat_map(|word| edits(word)).collect();
    misspellings.retain(|word| !words.contains(word.as_str())); // no list catches those
    Ok(Outcome {
        words: words.len(),
        bytes: dictionary.bytes(),
        bits_per_word: plan.bits_per_key(),
        unknown,
        misspellings: misspellings.len(),
        slipped_through: misspellings.iter().filter(|word| dictionary.contains(word)).count(),
    })
}

/// What one missing, superfluous or wrong letter makes of a word.
fn edits(word: &str) -> Vec<String> {
    let mut edits = Vec::new();
    for at in 0..=word.len() {
        let (before, after) = word.split_at(at);
        let rest = after.get(1..).unwrap_or("");
        edits.push(format!("{before}{rest}"));
        for letter in 'a'..='z' {
            edits.push(format!("{before}{letter}{after}"));
            edits.push(format!("{before}{letter}{rest}"));
        }
    }
    edits
}

fn main() -> inbloom::Result<()> {
    let outcome = run()?;
    let (words, bytes, bits) = (outcome.words, outcome.bytes, outcome.bits_per_word);
    println!("unknown words: {}", outcome.unknown.join(", "));
    println!("{words} words in {bytes} bytes, {bits:.1} bits per word");
    println!("the words themselves take {} bytes", WORDS.len());
    let (slipped, all) = (outcome.slipped_through, outcome.misspellings);
    println!(
        "{slipped} of {all} misspellings slip through, {:.3}%",
        100.0 * slipped as f64 / all as f64
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_correct_word_is_reported_and_few_misspellings_slip_through() {
        let outcome = run().unwrap();
        let planted = ["diffrence", "mashine", "freind", "becuase", "dicide"];
        assert!(outcome.unknown.iter().all(|word| planted.contains(&word.as_str())));
        assert!(outcome.unknown.len() >= 4, "one may slip through: {:?}", outcome.unknown);
        let (slipped, expected) =
            (outcome.slipped_through as f64, outcome.misspellings as f64 * RATE);
        assert!(slipped < expected + 5.0 * expected.sqrt(), "{slipped} slipped through");
    }
}
