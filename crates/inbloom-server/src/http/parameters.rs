//! The parameters of a request: what is behind the question mark.

use std::ops::RangeInclusive;

use super::api::ApiError;
use super::names::percent_decode;

/// Parameters that are still to be read. Those that nobody reads are errors: a misspelt one would be ignored
/// otherwise.
pub struct Parameters {
    all: Vec<(String, Vec<u8>)>,
}

/// More than any address has use for.
const MOST: usize = 64;

impl Parameters {
    /// Reads a query.
    ///
    /// # Errors
    ///
    /// One that is not percent-encoded, or names a parameter twice.
    pub fn parse(query: &str) -> Result<Parameters, ApiError> {
        let mut all: Vec<(String, Vec<u8>)> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decode = |text: &str| percent_decode(&text.replace('+', "%20"));
            let read =
                decode(name).and_then(|name| String::from_utf8(name).ok()).zip(decode(value));
            let (name, value) =
                read.ok_or_else(|| ApiError::request("the query is not percent-encoded"))?;
            if all.iter().any(|(other, _)| *other == name) {
                return Err(ApiError::parameter(&name, format!("'{name}' is given twice")));
            }
            if all.len() == MOST {
                return Err(ApiError::request(format!("more than {MOST} parameters")));
            }
            all.push((name, value));
        }
        Ok(Parameters { all })
    }

    /// Takes the bytes of a parameter.
    pub fn bytes(&mut self, name: &str) -> Option<Vec<u8>> {
        let at = self.all.iter().position(|(other, _)| other == name)?;
        Some(self.all.swap_remove(at).1)
    }

    /// Takes a parameter that is text. An empty one counts as missing, as forms send it.
    ///
    /// # Errors
    ///
    /// It is not UTF-8.
    pub fn text(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        let Some(bytes) = self.bytes(name).filter(|bytes| !bytes.is_empty()) else {
            return Ok(None);
        };
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(ApiError::parameter(name, format!("'{name}' is not UTF-8"))),
        }
    }

    /// Takes a parameter that `read` understands.
    ///
    /// # Errors
    ///
    /// What `read` says.
    pub fn read<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, ApiError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        match read(&text) {
            Ok(value) => Ok(Some(value)),
            Err(wrong) => Err(ApiError::parameter(name, format!("'{name}': {wrong}"))),
        }
    }

    /// Takes a whole number.
    ///
    /// # Errors
    ///
    /// It is none, or not in the range.
    pub fn number(
        &mut self,
        name: &str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, ApiError> {
        self.read(name, |text| {
            let number = text.parse().ok().filter(|number| range.contains(number));
            let (least, most) = (range.start(), range.end());
            number.ok_or_else(|| format!("expected a number from {least} to {most}, got {text:?}"))
        })
    }

    /// Takes one of several words.
    ///
    /// # Errors
    ///
    /// It is none of them.
    pub fn choice<T: Copy>(
        &mut self,
        name: &str,
        choices: &[(&str, T)],
    ) -> Result<Option<T>, ApiError> {
        self.read(name, |text| {
            let found = choices.iter().find(|(word, _)| *word == text);
            found.map(|(_, choice)| *choice).ok_or_else(|| {
                let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
                format!("expected one of {}, got {text:?}", words.join(", "))
            })
        })
    }

    /// Refuses parameters that nobody has taken.
    pub fn check_rest(&self) -> Result<(), ApiError> {
        match self.all.first() {
            None => Ok(()),
            Some((name, _)) => {
                let shown: String = name.chars().take(64).collect();
                Err(ApiError::parameter(&shown, format!("unknown parameter '{shown}'")))
            }
        }
    }
}
