//! The terminal: lines out, keys in. It is left as it was found, however the program ends.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use super::screen::ScreenLine;

/// A key that somebody pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Character(char),
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    Backspace,
    /// Ctrl-C, or nobody is there any more.
    Interrupt,
}

/// The screen beside the usual one, no cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// A terminal that shows nothing but our lines.
pub struct Terminal {
    before: Termios,
    shown: Vec<String>,
    size: (usize, usize),
    has_color: bool,
    /// Bytes that came together, the first one last.
    pending: Vec<u8>,
}

impl Terminal {
    pub fn open() -> Result<Terminal> {
        let stdin = rustix::stdio::stdin();
        let before = tcgetattr(stdin).context("cannot read the state of the terminal")?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin, OptionalActions::Now, &raw).context("cannot change the terminal")?;
        // From here on, dropping it puts the terminal right.
        let has_color = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let terminal =
            Terminal { before, shown: Vec::new(), size: (0, 0), has_color, pending: Vec::new() };
        write(ENTER)?;
        Ok(terminal)
    }

    /// Columns and rows.
    pub fn size(&mut self) -> (usize, usize) {
        let size = tcgetwinsize(rustix::stdio::stdout());
        let size = size.map_or((80, 24), |size| (size.ws_col.into(), size.ws_row.into()));
        // Some terminals know no size.
        let size = if size.0 == 0 || size.1 == 0 { (80, 24) } else { size };
        if size != self.size {
            self.size = size;
            self.shown.clear();
        }
        size
    }

    /// Shows lines from the top, and writes only those that have changed.
    pub fn draw(&mut self, lines: &[ScreenLine]) -> Result<()> {
        let mut text = String::new();
        if self.shown.is_empty() {
            text.push_str("\x1b[2J");
        }
        let (_, height) = self.size;
        let lines: Vec<String> =
            lines.iter().take(height).map(|line| line.ansi(self.has_color)).collect();
        for row in 0..height {
            let line = lines.get(row).map_or("", String::as_str);
            if self.shown.get(row).map(String::as_str) != Some(line) {
                text.push_str(&format!("\x1b[{};1H{line}\x1b[0m\x1b[K", row + 1));
            }
        }
        self.shown = lines;
        self.shown.resize(height, String::new());
        if text.is_empty() { Ok(()) } else { write(&text) }
    }

    /// Returns the next key, if one comes in time.
    pub fn key(&mut self, wait: Duration) -> Result<Option<Key>> {
        if self.pending.is_empty() {
            let stdin = rustix::stdio::stdin();
            let wait = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
            let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
            match poll(&mut polled, Some(&wait)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
                Ok(_) => {}
                Err(error) => return Err(error).context("cannot wait for keys"),
            }
            let mut bytes = [0; 64];
            let count = match rustix::io::read(stdin, &mut bytes) {
                // The terminal was closed.
                Ok(0) | Err(rustix::io::Errno::IO) => return Ok(Some(Key::Interrupt)),
                Ok(count) => count,
                Err(rustix::io::Errno::INTR) => return Ok(None),
                Err(error) => return Err(error).context("cannot read keys"),
            };
            self.pending.extend(bytes[..count].iter().rev());
        }
        Ok(next_key(&mut self.pending))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // There is nobody to tell of a failure.
        let _ = write(LEAVE);
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &self.before);
    }
}

fn write(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    written.context("cannot write to the terminal")
}

/// Takes a key off bytes, the first of which is the last. None for a key that means nothing here.
fn next_key(bytes: &mut Vec<u8>) -> Option<Key> {
    let first = bytes.pop()?;
    Some(match first {
        0x03 => Key::Interrupt,
        b'\r' | b'\n' => Key::Enter,
        0x7f | 0x08 => Key::Backspace,
        0x1b => return escape(bytes),
        0x20..=0x7e => Key::Character(char::from(first)),
        // A character of several bytes, which came together.
        0xc2..=0xf4 => {
            let rest = match first {
                0xc2..=0xdf => 1,
                0xe0..=0xef => 2,
                _ => 3,
            };
            let mut all = vec![first];
            all.extend((0..rest).map_while(|_| bytes.pop()));
            let text = std::str::from_utf8(&all).ok()?;
            Key::Character(text.chars().next()?)
        }
        _ => return None,
    })
}

/// Returns the key of a sequence that begins with Escape: alone, `ESC [ A`, `ESC O A` or `ESC [ 5
/// ~`.
fn escape(bytes: &mut Vec<u8>) -> Option<Key> {
    if !matches!(bytes.last(), Some(b'[' | b'O')) {
        return Some(Key::Escape);
    }
    bytes.pop();
    let mut parameters = Vec::new();
    loop {
        match bytes.pop()? {
            byte @ (b'0'..=b'9' | b';') => parameters.push(byte),
            b'~' => {
                return match &*parameters {
                    b"5" => Some(Key::PageUp),
                    b"6" => Some(Key::PageDown),
                    b"1" | b"7" => Some(Key::Home),
                    b"4" | b"8" => Some(Key::End),
                    _ => None,
                };
            }
            b'A' => return Some(Key::Up),
            b'B' => return Some(Key::Down),
            b'H' => return Some(Key::Home),
            b'F' => return Some(Key::End),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_from_the_bytes_that_terminals_send() {
        let keys = |bytes: &[u8]| {
            let mut bytes: Vec<u8> = bytes.iter().rev().copied().collect();
            let mut keys = Vec::new();
            while !bytes.is_empty() {
                keys.extend(next_key(&mut bytes));
            }
            keys
        };
        use Key::*;
        assert_eq!(keys(b"a\x1b[Aq"), [Character('a'), Up, Character('q')]);
        assert_eq!(keys(b"\x1b[5~\x1b[6~\x1bOB\x1b[H\x1b[4~"), [PageUp, PageDown, Down, Home, End]);
        assert_eq!(keys(b"\x1b"), [Escape]);
        assert_eq!(keys(b"\x7f\r\x03"), [Backspace, Enter, Interrupt]);
        assert_eq!(keys("\u{4e2d}x".as_bytes()), [Character('\u{4e2d}'), Character('x')]);
        // What means nothing here, or is cut off.
        for odd in [&b"\x1b[1;5D"[..], b"\x1b[", b"\xff", b"\xe4\xb8", b"\x01"] {
            assert_eq!(keys(odd), [], "{odd:?}");
        }
    }
}
