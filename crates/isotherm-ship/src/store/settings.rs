//! Settings and credentials of a store, by the names that `object_store` reads from the environment: `AWS_...`, `GOOGLE_...`, `AZURE_...`.
//!
//! They come from the environment and from a file, which wins. They are never arguments, which every user of the machine can read, and
//! are printed nowhere: [`Settings`] shows only its names.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The names that are settings of a store.
const PREFIXES: [&str; 3] = ["AWS_", "GOOGLE_", "AZURE_"];

/// Settings of a store.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Settings(BTreeMap<String, String>);

impl Settings {
    /// From variables of the environment. Others are skipped.
    pub fn from_environment(variables: impl Iterator<Item = (String, String)>) -> Settings {
        Settings(variables.filter(|(name, _)| is_setting(name)).collect())
    }

    /// Adds those of a file, which only its owner and group may read. The error names the file, and never a value.
    pub fn add_file(&mut self, path: &Path) -> Result<(), String> {
        let failed = |what: String| format!("read the credentials of {}: {what}", path.display());
        let mode = fs::metadata(path).map_err(|error| failed(error.to_string()))?.permissions().mode();
        if mode & 0o007 != 0 {
            return Err(failed(format!(
                "all users can reach it (mode {:03o}): chmod o= {}",
                mode & 0o777,
                path.display()
            )));
        }
        let text = fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        self.0.extend(parse(&text).map_err(failed)?);
        Ok(())
    }

    /// Names in lower case, as `object_store` parses them, with their values.
    pub fn iter(&self) -> impl Iterator<Item = (String, &str)> {
        self.0.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.as_str()))
    }

    /// Files that are read later on, such as tokens that are replaced from time to time.
    pub fn files(&self) -> Vec<PathBuf> {
        let is_file = |name: &str| name.ends_with("_FILE") || name.ends_with("_CREDENTIALS") || name.ends_with("_PATH");
        self.0.iter().filter(|(name, _)| is_file(name)).map(|(_, value)| PathBuf::from(value)).collect()
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

fn is_setting(name: &str) -> bool {
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Lines `NAME=value`, as an environment file has them: blank lines, comments and quotes around a value are allowed.
fn parse(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut found = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let at = number + 1;
        let (name, value) = line.split_once('=').ok_or_else(|| format!("line {at}: expected NAME=value"))?;
        let name = name.strip_prefix("export ").unwrap_or(name).trim();
        if !is_setting(name) {
            return Err(format!("line {at}: expected a name that begins with AWS_, GOOGLE_ or AZURE_"));
        }
        let value = value.trim();
        let quoted = ['"', '\''].iter().find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote));
        found.insert(name.to_owned(), quoted.unwrap_or(value).to_owned());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_settings_wins_over_the_environment() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("credentials");
        fs::write(&path, "# a key\n\nAWS_ACCESS_KEY_ID = key\nexport AWS_SECRET_ACCESS_KEY=\"a=b\"\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let environment = [("AWS_REGION", "r"), ("AWS_ACCESS_KEY_ID", "old"), ("HOME", "/")];
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut settings = Settings::from_environment(environment);
        settings.add_file(&path).unwrap();
        let found: Vec<(String, &str)> = settings.iter().collect();
        let expected = [("aws_access_key_id", "key"), ("aws_region", "r"), ("aws_secret_access_key", "a=b")];
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value)));
        assert!(!format!("{settings:?}").contains("a=b"), "values are not shown");
    }

    #[test]
    fn a_file_that_all_can_read_or_that_is_damaged_is_refused_without_its_values() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("credentials");
        for (text, mode) in [("AWS_SECRET_ACCESS_KEY=hidden", 0o644), ("hidden", 0o600), ("SECRET=hidden", 0o600)] {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = Settings::default().add_file(&path).unwrap_err();
            assert!(error.contains("credentials") && !error.contains("hidden"), "{error}");
        }
        assert!(Settings::default().add_file(&dir.path().join("none")).is_err());
    }

    #[test]
    fn files_that_are_read_later_are_known() {
        let variables =
            [("AWS_WEB_IDENTITY_TOKEN_FILE", "/t"), ("GOOGLE_APPLICATION_CREDENTIALS", "/g"), ("AWS_REGION", "r")];
        let settings = Settings::from_environment(variables.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())));
        assert_eq!(settings.files(), [PathBuf::from("/t"), PathBuf::from("/g")]);
    }
}
