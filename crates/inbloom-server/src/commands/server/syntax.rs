//! The arguments of a command, read from the line that documents them, so that COMMAND DOCS can
//! tell them one by one without their being written down a second time.
//!
//! The notation is that of Redis's documentation:
//!
//! ```text
//!   key                     a name: stands for a value
//!   NONSCALING              capitals: the word itself, a token
//!   EXPANSION expansion     a token and what belongs to it
//!   [ ... ]                 may be left out
//!   A|B                     one of these words
//!   < a b | C d >           one of these sequences
//!   item [item ...]         one or more
//! ```
//!
//! It is read in two steps: into [`Element`]s, which are what stands there and can be spelt again,
//! and from those into [`Argument`]s, which are what it means.

/// An argument, as COMMAND DOCS tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// What it is called.
    pub name: String,
    /// The word that comes first.
    pub token: Option<String>,
    /// It may be left out.
    pub is_optional: bool,
    /// There may be more of them.
    pub is_multiple: bool,
    /// Each of them with the token.
    pub repeats_token: bool,
    /// What it consists of.
    pub content: Content,
}

/// What an argument consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing but the token.
    Token,
    /// A value.
    Value,
    /// One of these.
    Choice(Vec<Argument>),
    /// All of these, in order.
    Block(Vec<Argument>),
}

/// Returns the arguments that a line of documentation names.
pub fn arguments(syntax: &str) -> Vec<Argument> {
    meaning(&Reader { rest: syntax }.sequence())
}

/// A part of the line.
#[derive(Debug, PartialEq, Eq)]
enum Element<'a> {
    /// `key`, `NX|XX`.
    Word(&'a str),
    /// `...`
    More,
    /// `[a | b]`
    Optional(Vec<Vec<Element<'a>>>),
    /// `<a | b>`
    Group(Vec<Vec<Element<'a>>>),
}

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    /// Up to a bracket or bar that is not of this sequence, or the end.
    fn sequence(&mut self) -> Vec<Element<'a>> {
        let mut elements = Vec::new();
        loop {
            self.rest = self.rest.trim_start();
            match self.rest.chars().next() {
                None | Some(']' | '>' | '|') => return elements,
                Some('[') => elements.push(Element::Optional(self.alternatives())),
                Some('<') => elements.push(Element::Group(self.alternatives())),
                Some(_) => {
                    let end = self.rest.find([' ', '[', ']', '<', '>']);
                    let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
                    self.rest = rest;
                    let is_more = word == "...";
                    elements.push(if is_more { Element::More } else { Element::Word(word) });
                }
            }
        }
    }

    /// Returns what is between this bracket and its counterpart. One that is missing is taken as
    /// being at the end: the tests see to it that none is.
    fn alternatives(&mut self) -> Vec<Vec<Element<'a>>> {
        let mut alternatives = Vec::new();
        loop {
            self.rest = self.rest.get(1..).unwrap_or_default();
            alternatives.push(self.sequence());
            if !self.rest.starts_with('|') {
                self.rest = self.rest.get(1..).unwrap_or_default();
                return alternatives;
            }
        }
    }
}

/// Returns what a sequence means.
fn meaning(elements: &[Element<'_>]) -> Vec<Argument> {
    let mut arguments: Vec<Argument> = Vec::new();
    let mut elements = elements.iter().peekable();
    while let Some(element) = elements.next() {
        match element {
            Element::Word(word) if is_token(word) => {
                let mut own = Vec::new();
                while let Some(next) = elements.next_if(|next| belongs_to_token(next)) {
                    own.push(value(next));
                }
                arguments.push(with_token(word, own));
            }
            Element::Word(_) => arguments.push(value(element)),
            Element::Group(alternatives) => arguments.push(choice(alternatives)),
            Element::Optional(alternatives) => {
                if !repeats(&mut arguments, alternatives) {
                    let inner = choice(alternatives);
                    arguments.push(Argument { is_optional: true, ..inner });
                }
            }
            Element::More => {
                if let Some(last) = arguments.last_mut() {
                    last.is_multiple = true;
                }
            }
        }
    }
    arguments
}

/// Capitals only, as in `NX`, `NO-EVICT`.
fn is_token(word: &str) -> bool {
    !word.contains('|') && word.chars().any(char::is_alphabetic) && word == word.to_uppercase()
}

fn belongs_to_token(element: &Element<'_>) -> bool {
    match element {
        Element::Word(word) => !is_token(word),
        Element::Group(_) => true,
        Element::Optional(_) | Element::More => false,
    }
}

fn value(element: &Element<'_>) -> Argument {
    match element {
        Element::Group(alternatives) => choice(alternatives),
        Element::Word(word) if word.contains('|') => one_of(word.split('|').map(single).collect()),
        Element::Word(word) => single(word),
        Element::Optional(_) | Element::More => unreachable!("see the callers"),
    }
}

fn single(word: &str) -> Argument {
    if is_token(word) { with_token(word, Vec::new()) } else { plain(word, Content::Value) }
}

fn plain(name: &str, content: Content) -> Argument {
    Argument {
        name: name.to_lowercase(),
        token: None,
        is_optional: false,
        is_multiple: false,
        repeats_token: false,
        content,
    }
}

fn with_token(token: &str, mut own: Vec<Argument>) -> Argument {
    let argument = match own.len() {
        0 => plain(token, Content::Token),
        1 => own.remove(0),
        _ => plain(token, Content::Block(own)),
    };
    Argument { token: Some(token.to_owned()), ..argument }
}

fn one_of(choices: Vec<Argument>) -> Argument {
    let names: Vec<&str> = choices.iter().map(|choice| choice.name.as_str()).collect();
    plain(&names.join("-or-"), Content::Choice(choices))
}

fn choice(alternatives: &[Vec<Element<'_>>]) -> Argument {
    let mut choices: Vec<Argument> =
        alternatives.iter().map(|alternative| together(meaning(alternative))).collect();
    if choices.len() == 1 { choices.remove(0) } else { one_of(choices) }
}

fn together(mut arguments: Vec<Argument>) -> Argument {
    if arguments.len() == 1 {
        return arguments.remove(0);
    }
    let name = arguments.first().map(|first| first.name.clone()).unwrap_or_default();
    plain(&name, Content::Block(arguments))
}

/// Returns whether these brackets only say that what stands before them may be repeated, as the
/// second half of `item [item ...]` or of `[GET pattern [GET pattern ...]]`; then it is marked so.
fn repeats(arguments: &mut Vec<Argument>, alternatives: &[Vec<Element<'_>>]) -> bool {
    let [alternative] = alternatives else { return false };
    let Some((Element::More, repeated)) = alternative.split_last() else { return false };
    let repeated = meaning(repeated);
    let Some(first) = arguments.len().checked_sub(repeated.len()) else { return false };
    // The token of `ITEMS item [item ...]` is not said again.
    let same = |(index, argument): (usize, &Argument)| {
        let token = if index == 0 { repeated[0].token.clone() } else { argument.token.clone() };
        Argument { token, ..argument.clone() } == repeated[index]
    };
    if repeated.is_empty() || !arguments[first..].iter().enumerate().all(same) {
        return false;
    }
    let mut argument = together(arguments.split_off(first));
    argument.is_multiple = true;
    argument.repeats_token = repeated[0].token.is_some() && argument.token.is_some();
    arguments.push(argument);
    true
}

#[cfg(test)]
mod tests {
    use std::fmt::{self, Display, Formatter};

    use super::*;

    /// Spells the elements as they are read.
    struct Spelling<'e, 'a>(&'e [Element<'a>]);

    impl Display for Spelling<'_, '_> {
        fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
            for (index, element) in self.0.iter().enumerate() {
                if index > 0 {
                    formatter.write_str(" ")?;
                }
                let (open, alternatives, close) = match element {
                    Element::Word(word) => {
                        formatter.write_str(word)?;
                        continue;
                    }
                    Element::More => {
                        formatter.write_str("...")?;
                        continue;
                    }
                    Element::Optional(alternatives) => ("[", alternatives, "]"),
                    Element::Group(alternatives) => ("<", alternatives, ">"),
                };
                formatter.write_str(open)?;
                for (index, alternative) in alternatives.iter().enumerate() {
                    let bar = if index > 0 { " | " } else { "" };
                    write!(formatter, "{bar}{}", Spelling(alternative))?;
                }
                formatter.write_str(close)?;
            }
            Ok(())
        }
    }

    #[test]
    fn every_line_of_the_table_is_spelt_as_it_was_read() {
        let rows = crate::commands::table::commands();
        for command in rows.flat_map(|row| std::iter::once(row).chain(row.subcommands)) {
            let elements = Reader { rest: command.syntax }.sequence();
            assert_eq!(Spelling(&elements).to_string(), command.syntax, "{}", command.name);
        }
    }

    /// As short as can be: `token:name`, `?` for optional, `+` for multiple.
    fn brief(arguments: &[Argument]) -> String {
        let brief_one = |argument: &Argument| {
            let token = argument.token.as_deref().map(|token| format!("{token}:"));
            let content = match &argument.content {
                Content::Token => "!".to_owned(),
                Content::Value => argument.name.clone(),
                Content::Choice(choices) => format!("({})", brief(choices).replace(' ', "|")),
                Content::Block(parts) => format!("{{{}}}", brief(parts)),
            };
            let optional = if argument.is_optional { "?" } else { "" };
            let multiple = match (argument.is_multiple, argument.repeats_token) {
                (true, true) => "++",
                (true, false) => "+",
                _ => "",
            };
            format!("{}{content}{optional}{multiple}", token.unwrap_or_default())
        };
        arguments.iter().map(brief_one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn lines_of_documentation_mean_what_they_say() {
        for (syntax, expected) in [
            ("", ""),
            ("key", "key"),
            ("key item [item ...]", "key item+"),
            ("key [item ...]", "key item?+"),
            ("[section [section ...]]", "section?+"),
            ("parameter value [parameter value ...]", "{parameter value}+"),
            ("key [EXPANSION expansion] [NONSCALING]", "key EXPANSION:expansion? NONSCALING:!?"),
            ("key [NOCREATE] ITEMS item [item ...]", "key NOCREATE:!? ITEMS:item+"),
            ("key [NX|XX]", "key (NX:!|XX:!)?"),
            ("[KIND blocked|classic]", "KIND:(blocked|classic)?"),
            ("<host port | NO ONE>", "({host|port}|{NO:!|ONE:!})"),
            ("[GET pattern [GET pattern ...]]", "GET:pattern?++"),
            (
                "[protover [AUTH username password] [SETNAME name]]",
                "{protover AUTH:{username password}? SETNAME:name?}?",
            ),
        ] {
            assert_eq!(brief(&arguments(syntax)), expected, "{syntax}");
        }
    }
}
