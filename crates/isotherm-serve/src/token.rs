//! The token: who knows it may read. It is random, part of every address, and compared in constant time.

use anyhow::{Context, Result, bail};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use subtle::ConstantTimeEq;

/// Random bytes of a new token, which has two digits for each.
const BYTES: usize = 16;
/// What a token from a file may have.
const LENGTHS: std::ops::RangeInclusive<usize> = 16..=128;

/// A secret of letters, digits, `-` and `_`.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// A new one.
    pub fn random() -> Result<Token> {
        let mut bytes = [0_u8; BYTES];
        getrandom::fill(&mut bytes).context("make a token: the system has no random numbers")?;
        Ok(Token(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// The one in a file that only its owner may read.
    pub fn read(path: &Path) -> Result<Token> {
        Token::of_text(path, fs::read_to_string(path))
    }

    /// The same. Writes a new one if there is no such file.
    pub fn from_file(path: &Path) -> Result<Token> {
        match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let token = Token::random()?;
                let doing = || format!("write a token to {}", path.display());
                new_file(path, |mut file| writeln!(file, "{}", token.0)).with_context(doing)?;
                Ok(token)
            }
            text => Token::of_text(path, text),
        }
    }

    fn of_text(path: &Path, text: io::Result<String>) -> Result<Token> {
        let text = text.with_context(|| format!("read the token in {}", path.display()))?;
        Token::checked(path, text.trim())
    }

    fn checked(path: &Path, text: &str) -> Result<Token> {
        let at = path.display();
        let mode = File::open(path).and_then(|file| file.metadata()).map_or(0, |file| file.mode());
        if mode & 0o007 != 0 {
            bail!("read the token in {at}: every user may; `chmod 600 {at}`, and change the token");
        }
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if !LENGTHS.contains(&text.len()) || !text.bytes().all(is_plain) {
            bail!(
                "read the token in {at}: it needs {LENGTHS:?} letters, digits, `-` or `_`; remove the file to get a new one"
            );
        }
        Ok(Token(text.to_owned()))
    }

    /// Whether this is it. Takes the same time whatever differs.
    pub fn is(&self, other: &str) -> bool {
        self.0.as_bytes().ct_eq(other.as_bytes()).into()
    }

    /// The token itself, for the one line that prints it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

/// It does not appear in messages.
impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Makes a file for its owner only, and removes it again if it cannot be filled: a part of a token would be refused at each later start.
fn new_file(path: &Path, fill: impl FnOnce(File) -> io::Result<()>) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    fill(file).inspect_err(|_| drop(fs::remove_file(path)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn tokens_are_random_and_compared_as_a_whole() {
        let (one, other) = (Token::random().unwrap(), Token::random().unwrap());
        assert_eq!(one.reveal().len(), 32);
        assert!(one.is(one.reveal()) && !one.is(other.reveal()) && !one.is("") && !one.is(&one.reveal()[..31]));
        assert!(!format!("{one:?}").contains(one.reveal()));
    }

    #[test]
    fn a_token_that_could_not_be_written_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let full = |mut file: File| writeln!(file, "a part").and(Err(io::ErrorKind::StorageFull.into()));
        assert_eq!(new_file(&path, full).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(!path.exists());
        Token::from_file(&path).unwrap();
    }

    #[test]
    fn a_file_keeps_a_token_and_is_its_owners() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let made = Token::from_file(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(Token::from_file(&path).unwrap().is(made.reveal()));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Token::from_file(&path).unwrap_err().to_string().contains("chmod 600"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        for bad in ["", "short", "0123456789abcdef/../x", &"x".repeat(200)] {
            fs::write(&path, bad).unwrap();
            assert!(Token::from_file(&path).unwrap_err().to_string().contains("letters, digits"), "{bad}");
        }
    }
}
