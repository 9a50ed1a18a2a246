//! A list of spam addresses, built once, saved, and mapped by every mail server: a sixteenth
//! of the bytes. The few customers that would be false positives are found when it is opened, and
//! go into an allow-list. Run it with `cargo run --release -p inbloom --example spam_addresses`.

use std::collections::HashSet;

use inbloom::{Filter, Kind, Measurement, Plan, measure_absent};

const SPAMMERS: u64 = 200_000;
const CUSTOMERS: u64 = 300_000;
const RATE: f64 = 0.001;

fn spammer(number: u64) -> String {
    format!("Win-{number}@offers-{}.example.net", number % 977)
}

fn customer(number: u64) -> String {
    format!("customer.{number}@mail-{}.example.org", number % 31)
}

fn normalized(address: &str) -> String {
    address.trim().to_lowercase()
}

struct MailServer {
    spam: Filter,
    allowed: HashSet<String>,
}

impl MailServer {
    fn is_spam(&self, sender: &str) -> bool {
        let sender = normalized(sender);
        self.spam.contains(&sender) && !self.allowed.contains(&sender)
    }
}

struct Outcome {
    text_bytes: u64,
    file_bytes: u64,
    measured: Measurement,
    allowed: usize,
    spam_let_in: u64,
    customers_refused: u64,
}

fn run() -> inbloom::Result<Outcome> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("spam.ib");

    // Once, somewhere: the list becomes a file. How its keys were written is noted in it.
    let mut list = Filter::new(Plan::builder(Kind::Blocked).items(SPAMMERS).rate(RATE).build()?)?;
    list.set_normalization("trimmed, lower case")?;
    let addresses: Vec<String> = (0..SPAMMERS).map(|n| normalized(&spammer(n))).collect();
    list.insert_many(&addresses, &mut Vec::new())?;
    list.save(&path)?;

    // On every mail server: the file is mapped, not read.
    let spam = Filter::open(&path)?;
    let measured = measure_absent(&spam, (0..CUSTOMERS).map(customer));
    let allowed: HashSet<String> =
        (0..CUSTOMERS).map(customer).filter(|address| spam.contains(address)).collect();
    let server = MailServer { spam, allowed };

    let count = |senders: u64, wrong: &dyn Fn(u64) -> bool| {
        (0..senders).filter(|number| wrong(*number)).count() as u64
    };
    Ok(Outcome {
        text_bytes: addresses.iter().map(|address| address.len() as u64 + 1).sum(),
        file_bytes: std::fs::metadata(&path).expect("the file was just saved").len(),
        measured,
        allowed: server.allowed.len(),
        spam_let_in: count(SPAMMERS, &|number| !server.is_spam(&spammer(number))),
        customers_refused: count(CUSTOMERS, &|number| server.is_spam(&customer(number))),
    })
}

fn main() -> inbloom::Result<()> {
    let outcome = run()?;
    let (rate, target) = (outcome.measured.rate * 100.0, RATE * 100.0);
    println!("{SPAMMERS} addresses: {} bytes as text", outcome.text_bytes);
    println!("as a filter: {} bytes", outcome.file_bytes);
    println!("false positives: {rate:.3}% of {CUSTOMERS} customers, target {target}%");
    println!("with an allow-list of {} addresses:", outcome.allowed);
    println!("  spam let in: {}", outcome.spam_let_in);
    println!("  customers refused: {}", outcome.customers_refused);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_spam_is_refused_and_no_customer() {
        let outcome = run().unwrap();
        assert_eq!((outcome.spam_let_in, outcome.customers_refused), (0, 0));
        assert!(outcome.file_bytes * 10 < outcome.text_bytes);
        let (matched, expected) = (outcome.allowed as f64, CUSTOMERS as f64 * RATE);
        assert!((matched - expected).abs() < 5.0 * expected.sqrt(), "{matched} matched");
        assert_eq!(outcome.measured.false_positives, outcome.allowed as u64);
    }
}
