//! Commands as the server reads them, packed one behind the other into one buffer.

use std::fmt;

/// A key that ends in a number: that of a chunk. It is written where it is needed, and never kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NumberedKey<'a>(pub &'a str, pub u64);

impl fmt::Display for NumberedKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.0, self.1)
    }
}

/// Commands in one buffer, sent with one write.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    buffer: Vec<u8>,
}

impl Commands {
    /// Returns the bytes to send.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// Begins a command of so many arguments, its name included.
    pub fn begin(&mut self, arguments: usize) {
        self.buffer.push(b'*');
        self.digits(arguments as u64);
        self.end();
    }

    /// Adds the commands of another buffer.
    pub fn append(&mut self, other: &Commands) {
        self.buffer.extend_from_slice(&other.buffer);
    }

    /// Adds a whole command.
    pub fn command(&mut self, arguments: &[&[u8]]) {
        self.begin(arguments.len());
        arguments.iter().for_each(|argument| self.slice(argument));
    }

    pub fn key(&mut self, NumberedKey(text, number): NumberedKey<'_>) {
        let length = text.len() as u64 + u64::from(number.checked_ilog10().unwrap_or(0)) + 1;
        self.buffer.push(b'$');
        self.digits(length);
        self.end();
        self.buffer.extend_from_slice(text.as_bytes());
        self.digits(number);
        self.end();
    }

    pub fn text(&mut self, text: &str) {
        self.slice(text.as_bytes());
    }

    pub fn slice(&mut self, bytes: &[u8]) {
        self.buffer.push(b'$');
        self.digits(bytes.len() as u64);
        self.end();
        self.buffer.extend_from_slice(bytes);
        self.end();
    }

    pub fn number(&mut self, number: u64) {
        self.key(NumberedKey("", number));
    }

    /// Adds four arguments of a BITFIELD: set the bit at this offset. An add has up to 32 of them.
    pub fn set_bit(&mut self, offset: u64) {
        self.buffer.extend_from_slice(b"$3\r\nSET\r\n$2\r\nu1\r\n");
        self.number(offset);
        self.buffer.extend_from_slice(b"$1\r\n1\r\n");
    }

    fn digits(&mut self, mut number: u64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.buffer.extend_from_slice(&digits[at..]);
    }

    fn end(&mut self) {
        self.buffer.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_packed_as_the_protocol_has_them() {
        let mut commands = Commands::default();
        commands.command(&[b"SET", b"a", b""]);
        commands.begin(3);
        commands.text("GETRANGE");
        commands.key(NumberedKey("key:", 10));
        commands.number(0);
        commands.begin(5);
        commands.text("BITFIELD");
        commands.set_bit(1009);
        let expected = "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$0\r\n\r\n\
            *3\r\n$8\r\nGETRANGE\r\n$6\r\nkey:10\r\n$1\r\n0\r\n\
            *5\r\n$8\r\nBITFIELD\r\n$3\r\nSET\r\n$2\r\nu1\r\n$4\r\n1009\r\n$1\r\n1\r\n";
        assert_eq!(commands.bytes(), expected.as_bytes());
    }
}
