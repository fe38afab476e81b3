//! Random values from the operating system.

use std::io;
use std::sync::LazyLock;

use super::hex;

/// Fills `buffer` from the operating system's generator. Waits only before that is seeded. Fails only where the
/// operating system has no generator: what must be secret must not be made then.
pub fn random_bytes(buffer: &mut [u8]) -> io::Result<()> {
    getrandom::fill(buffer).map_err(io::Error::from)
}

/// `bytes` random bytes as hex, for ids. Secrets are made with [`random_bytes`], whose failure must not be hidden.
pub fn random_hex(bytes: usize) -> String {
    let mut buffer = vec![0_u8; bytes];
    let filled = random_bytes(&mut buffer);
    debug_assert!(filled.is_ok(), "the operating system has a generator");
    hex(&buffer)
}

/// Random characters for people to type: no vowels, so that they spell no words (and none of ours), and
/// nothing that looks like something else.
pub fn random_code(length: usize) -> String {
    let mut code = String::new();
    while code.len() < length {
        let random = random_hex(1);
        let number = usize::from_str_radix(&random, 16).unwrap_or(usize::MAX);
        // Numbers beyond the last whole alphabet are thrown again: every character is as likely.
        if number < usize::from(u8::MAX) / CODE_ALPHABET.len() * CODE_ALPHABET.len() {
            code.extend(CODE_ALPHABET.get(number % CODE_ALPHABET.len()).map(|byte| char::from(*byte)));
        }
    }
    code
}

/// What codes are made of.
pub const CODE_ALPHABET: &[u8] = b"2346789BCDFGHJKMNPQRTVWXZ";

/// Another one in each process: for keys of what is never repeated by the next one. A process id would not
/// do, because in a container it is the same each time.
pub fn this_process() -> &'static str {
    static NONCE: LazyLock<String> = LazyLock::new(|| random_hex(4));
    &NONCE
}
