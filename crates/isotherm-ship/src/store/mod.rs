//! Where objects go: a folder, or an object store beyond this machine. One operation: create an object if there is none of its name.
//!
//! `object_store` is asked not to repeat requests: when to try again is decided by `plan`, for all objects together.
//!
//! A folder is `object_store`'s, with what it leaves open done here. It writes `<name>#1`, syncs it (`with_fsync`), links it to its name
//! and syncs the folder of the link. Folders that another put or an earlier, killed process has just made may not be synced then, so the
//! folders up to the root are synced here before an object counts as sent. A file `<name>#1` that a killed process has left is removed
//! before the first put of an object: an object has one sender, of which an earlier put may still be under way. Files and folders have the modes that the umask leaves; the program adds to that that only the owner writes.

mod remote;
mod settings;

pub use settings::Settings;

use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, PutMode, PutOptions, PutPayload};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A result of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a store could not be opened or written to. Without credentials and queries of addresses: it is logged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store could not be opened.
    #[error("open the store {to}: {what}")]
    Open {
        /// The store.
        to: String,
        /// What is wrong, and what to do.
        what: String,
    },
    /// An object could not be put.
    #[error("put {path}: {what}")]
    Put {
        /// The object.
        path: String,
        /// What the store said.
        what: String,
    },
}

/// Which store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum To {
    /// A folder of this machine.
    Folder(PathBuf),
    /// A store beyond it, such as `s3://bucket/prefix`.
    Remote(String),
}

impl To {
    /// From what a user writes. The error says what would be right.
    pub fn parse(text: &str) -> std::result::Result<To, String> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return if text.is_empty() {
                Err("expected a folder or an address".into())
            } else {
                Ok(To::Folder(text.into()))
            };
        };
        let feature = match scheme {
            "file" if rest.starts_with('/') => return Ok(To::Folder(rest.into())),
            "file" => return Err("expected three slashes: file:///folder".into()),
            "s3" => "aws",
            "gs" => "gcp",
            "az" => "azure",
            _ => return Err(format!("{scheme}:// is not known; expected a folder, file://, s3://, gs:// or az://")),
        };
        if rest.contains(['@', '?', '#']) {
            return Err(format!(
                "expected {scheme}://bucket/prefix; credentials go into the environment or a --credentials file"
            ));
        }
        if rest.split('/').next().is_none_or(str::is_empty) {
            return Err(format!("expected a bucket: {scheme}://bucket/prefix"));
        }
        if remote::SCHEMES.contains(&scheme) {
            Ok(To::Remote(text.to_owned()))
        } else {
            Err(format!(
                "this isotherm-ship was built without {scheme}://; build it by make build-ship SHIP_FEATURES={feature} (cargo's --features {feature})"
            ))
        }
    }

    /// For messages.
    pub fn name(&self) -> String {
        match self {
            To::Folder(path) => path.display().to_string(),
            To::Remote(url) => url.clone(),
        }
    }
}

/// What became of an object that is in the store now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It was created.
    New,
    /// It was there.
    AlreadyThere,
}

/// An open store.
#[derive(Clone, Debug)]
pub struct Store {
    inner: Arc<dyn ObjectStore>,
    prefix: ObjectPath,
    /// The root, if it is a folder.
    folder: Option<PathBuf>,
    /// It is of the S3 protocol, in which a conflict means that another put of the object has not ended yet.
    is_s3: bool,
    timeout: Duration,
    /// Objects of a folder of which a put has begun and not ended well. It may still be under way: a mount that does not answer outlasts the timeout.
    begun: Arc<Mutex<BTreeMap<String, Begun>>>,
}

/// How far the first put of an object has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begun {
    /// What an earlier process has left of it is being removed.
    Removing,
    /// That is done. A put may be under way.
    Put,
}

impl Store {
    /// Opens a store. Makes the folder if it is one. Nothing is sent yet. An object has to be put within `timeout`.
    pub fn open(to: &To, settings: &Settings, timeout: Duration) -> Result<Store> {
        let failed = |what: String| Error::Open { to: to.name(), what: brief(&without_queries(&what)) };
        match to {
            To::Folder(path) => {
                fs::create_dir_all(path).map_err(|error| failed(error.to_string()))?;
                let path = fs::canonicalize(path).map_err(|error| failed(error.to_string()))?;
                let local = LocalFileSystem::new_with_prefix(&path)
                    .map_err(|error| failed(error.to_string()))?
                    .with_fsync(true);
                Ok(Store {
                    inner: Arc::new(local),
                    prefix: ObjectPath::default(),
                    folder: Some(path),
                    is_s3: false,
                    timeout,
                    begun: Arc::default(),
                })
            }
            To::Remote(url) => {
                let (inner, prefix) = remote::open(url, settings, timeout).map_err(failed)?;
                Ok(Store {
                    inner,
                    prefix,
                    folder: None,
                    is_s3: url.starts_with("s3://"),
                    timeout,
                    begun: Arc::default(),
                })
            }
        }
    }

    /// The folder, if the store is one.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Creates an object. When this returns, it outlasts a loss of power of this machine.
    pub async fn put(&self, path: &str, bytes: Vec<u8>) -> Result<Put> {
        let failed = |what: String| Error::Put { path: path.to_owned(), what: brief(&without_queries(&what)) };
        let object = ObjectPath::parse(path).map_err(|error| failed(error.to_string()))?;
        let object: ObjectPath = self.prefix.parts().chain(object.parts()).collect();
        if let Some(folder) = &self.folder {
            self.remove_left(folder, path).await.map_err(failed)?;
        }
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let put = self.inner.put_opts(&object, PutPayload::from(bytes), options);
        let put = match tokio::time::timeout(self.timeout, put).await {
            Ok(Ok(_)) => Put::New,
            Ok(Err(object_store::Error::AlreadyExists { source, .. })) if self.is_s3 && !is_of_condition(&*source) => {
                return Err(failed("another put of it has not ended (409)".to_owned()));
            }
            Ok(Err(object_store::Error::AlreadyExists { .. })) => Put::AlreadyThere,
            Ok(Err(error)) => return Err(failed(with_causes(&error))),
            Err(_) => return Err(failed(self.no_answer())),
        };
        if let Some(folder) = &self.folder {
            let (path, folder) = (folder.join(path), folder.clone());
            let synced = self.blocking(move || sync_up(&path, &folder)).await;
            synced.map_err(|what| failed(format!("sync its folder: {what}")))?;
        }
        self.begun().remove(path);
        Ok(put)
    }

    /// Removes what an earlier process has left of an object, if this is its first put. Later it may be what an earlier put of ours is writing: if another took
    /// its place, that put would link it to its name when it is half written. So no put begins either before the removal has ended.
    async fn remove_left(&self, folder: &Path, object: &str) -> std::result::Result<(), String> {
        match self.begun().entry(object.to_owned()) {
            Entry::Occupied(begun) if *begun.get() == Begun::Put => return Ok(()),
            Entry::Occupied(_) => return Err(self.no_answer()),
            Entry::Vacant(new) => new.insert(Begun::Removing),
        };
        let (path, begun, object) = (folder.join(object), Arc::clone(&self.begun), object.to_owned());
        self.blocking(move || {
            let removed = remove_staged(&path);
            let mut begun = begun.lock().unwrap_or_else(PoisonError::into_inner);
            match &removed {
                Ok(()) => begun.insert(object, Begun::Put),
                Err(_) => begun.remove(&object),
            };
            removed
        })
        .await
    }

    fn begun(&self) -> MutexGuard<'_, BTreeMap<String, Begun>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does this on another thread: on a mount that does not answer it takes for ever, and this one keeps rows and is to end in time.
    async fn blocking(
        &self,
        work: impl FnOnce() -> std::io::Result<()> + Send + 'static,
    ) -> std::result::Result<(), String> {
        match tokio::time::timeout(self.timeout, tokio::task::spawn_blocking(work)).await {
            Ok(Ok(done)) => done.map_err(|error| error.to_string()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(self.no_answer()),
        }
    }

    fn no_answer(&self) -> String {
        format!("no answer within {} s", self.timeout.as_secs_f64())
    }
}

/// Whether the object is there: the condition that none of its name is was not met. A conflict (409), too, is called so by `object_store`. It says
/// that a put is under way, of which nobody knows how it ends.
fn is_of_condition(source: &(dyn std::error::Error + 'static)) -> bool {
    use object_store::Error::{NotModified, Precondition};
    matches!(source.downcast_ref::<object_store::Error>(), Some(Precondition { .. } | NotModified { .. }))
}

/// Removes what a killed process has left of a put to a folder.
fn remove_staged(path: &Path) -> std::io::Result<()> {
    for number in 1.. {
        let mut staged = path.as_os_str().to_owned();
        staged.push(format!("#{number}"));
        match fs::remove_file(&staged) {
            Ok(()) => {}
            Err(error) if [std::io::ErrorKind::NotFound, std::io::ErrorKind::NotADirectory].contains(&error.kind()) => {
                break;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Syncs the folders of a file, up to the root.
fn sync_up(path: &Path, root: &Path) -> std::io::Result<()> {
    for folder in path.ancestors().skip(1).take_while(|folder| folder.starts_with(root)) {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

/// What a library says, with what was behind it: "error sending request" alone helps nobody.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

/// What a library says, without the queries of addresses: they may be signed.
fn without_queries(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let end = rest[at..].find(|c: char| c.is_whitespace() || "()\"'<>,".contains(c)).map_or(rest.len(), |n| at + n);
        let url = &rest[..end];
        out.push_str(url.split_once('?').map_or(url, |(before, _)| before));
        if url.contains('?') {
            out.push_str("?...");
        }
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

/// Longest error text that is logged, in characters.
const MAX_ERROR_CHARS: usize = 500;

/// An error without the document that the store answered with. Of XML the code and the message are kept: other fields repeat what was signed.
/// A proxy may answer with a whole page. It fits in a line.
fn brief(text: &str) -> String {
    let is_tag = |at: &usize| text[at + 1..].starts_with(|c: char| c == '?' || c == '!' || c.is_ascii_alphabetic());
    let document = text.match_indices('<').map(|(at, _)| at).find(is_tag);
    let (before, document) = text.split_at(document.unwrap_or(text.len()));
    let field = |name: &str| Some(document.split_once(&format!("<{name}>"))?.1.split_once('<')?.0);
    let said = field("Code").map(|code| format!("{code}: {}", field("Message").unwrap_or_default()));
    let text = [before, &said.unwrap_or_default()].concat();
    text.trim_end().chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_ERROR_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    const PATH: &str = "v1/heat/date=2026-11-24/hour=07/0123.parquet";

    fn put(store: &Store, bytes: &[u8]) -> Result<Put> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(store.put(PATH, bytes.to_vec()))
    }

    fn open(folder: &Path) -> Store {
        Store::open(&To::Folder(folder.to_owned()), &Settings::default(), Duration::from_secs(30)).unwrap()
    }

    #[test]
    fn an_object_is_created_once_and_never_changed() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&dir.path().join("new/store"));
        assert_eq!(put(&store, b"first"), Ok(Put::New));
        assert_eq!(put(&store, b"second"), Ok(Put::AlreadyThere));
        let file = dir.path().join("new/store").join(PATH);
        assert_eq!(fs::read(&file).unwrap(), b"first");
        // As the umask of this test has it, which cannot be asked without being changed.
        let plain = dir.path().join("plain");
        fs::write(&plain, "").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&file), mode(&plain), "a file like any other, that data tools can read");
    }

    #[test]
    fn a_folder_that_does_not_answer_is_given_up_after_the_timeout() {
        let dir = tempfile::tempdir().unwrap();
        let store =
            Store::open(&To::Folder(dir.path().to_owned()), &Settings::default(), Duration::from_millis(20)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (hangs, ends) = std::sync::mpsc::channel::<()>();
        let hung = runtime.block_on(store.blocking(move || Ok(_ = ends.recv())));
        assert_eq!(hung, Err("no answer within 0.02 s".to_owned()));
        drop(hangs);
    }

    #[test]
    fn what_another_put_of_this_process_is_writing_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let staged = dir.path().join(format!("{PATH}#1"));
        fs::create_dir_all(staged.parent().unwrap()).unwrap();
        let store = open(dir.path());
        // It was given up after its timeout, and goes on.
        store.begun().insert(PATH.to_owned(), Begun::Put);
        fs::write(&staged, "half").unwrap();
        assert_eq!(put(&store, b"whole"), Ok(Put::New));
        assert_eq!(
            (fs::read(&staged).unwrap(), fs::read(dir.path().join(PATH)).unwrap()),
            (b"half".into(), b"whole".into())
        );
        assert!(store.begun().is_empty(), "one that has ended well is forgotten");
        // Its folder does not answer while what was left is removed.
        store.begun().insert(PATH.to_owned(), Begun::Removing);
        assert!(put(&store, b"whole").unwrap_err().to_string().contains("no answer"));
    }

    #[test]
    fn what_a_killed_put_has_left_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(PATH);
        let folder = file.parent().unwrap();
        fs::create_dir_all(folder).unwrap();
        for left in ["0123.parquet#1", "0123.parquet#2"] {
            fs::write(folder.join(left), "half").unwrap();
        }
        fs::write(folder.join("4567.parquet#1"), "of another host").unwrap();
        assert_eq!(put(&open(dir.path()), b"whole"), Ok(Put::New));
        let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["0123.parquet", "4567.parquet#1"]);
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error_that_names_the_object() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("v1"), "a file in the way").unwrap();
        let error = put(&open(dir.path()), b"x").unwrap_err().to_string();
        assert!(error.starts_with(&format!("put {PATH}: ")), "{error}");
    }

    /// Answers each request with the next of these, and then ends.
    #[cfg(feature = "aws")]
    fn server(answers: &'static [&'static str]) -> std::net::SocketAddr {
        use std::io::{BufRead as _, BufReader, Read as _, Write as _};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for answer in answers {
                let (stream, _) = listener.accept().unwrap();
                let mut reader = BufReader::new(&stream);
                let mut length = 0;
                loop {
                    let mut line = String::new();
                    reader.read_line(&mut line).unwrap();
                    if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                        length = value.trim().parse().unwrap();
                    }
                    if line.trim().is_empty() {
                        break;
                    }
                }
                reader.read_exact(&mut vec![0; length]).unwrap();
                let head = "Content-Length: 0\r\nConnection: close\r\nETag: \"1\"\r\n\r\n";
                (&stream).write_all(format!("HTTP/1.1 {answer}\r\n{head}").as_bytes()).unwrap();
            }
        });
        address
    }

    #[cfg(feature = "aws")]
    #[test]
    fn a_put_that_meets_another_which_has_not_ended_has_failed() {
        let address = server(&["409 Conflict", "412 Precondition Failed", "200 OK"]);
        let variables = [
            ("AWS_ENDPOINT", format!("http://{address}")),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_ACCESS_KEY_ID", "key".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "secret".to_owned()),
        ];
        let settings = Settings::from_environment(variables.into_iter().map(|(name, value)| (name.to_owned(), value)));
        let to = To::parse("s3://bucket/prefix").unwrap();
        let store = Store::open(&to, &settings, Duration::from_secs(30)).unwrap();
        let error = put(&store, b"x").unwrap_err().to_string();
        assert!(error.contains("409"), "{error}");
        assert_eq!(put(&store, b"x"), Ok(Put::AlreadyThere));
        assert_eq!(put(&store, b"x"), Ok(Put::New));
    }

    #[test]
    fn stores_by_their_address() {
        assert_eq!(To::parse("out"), Ok(To::Folder("out".into())));
        assert_eq!(To::parse("file:///a/b"), Ok(To::Folder("/a/b".into())));
        for bad in ["", "file://a", "ftp://a", "s3://", "s3:///a", "s3://key:secret@bucket/a", "s3://bucket/a?x=y"] {
            assert!(To::parse(bad).is_err(), "{bad}");
        }
        let s3 = To::parse("s3://bucket/prefix");
        assert_eq!(s3.is_ok(), cfg!(feature = "aws"), "{s3:?}");
        assert_eq!(To::parse("gs://bucket").is_ok(), cfg!(feature = "gcp"));
        assert_eq!(To::parse("az://bucket").is_ok(), cfg!(feature = "azure"));
    }

    #[test]
    fn an_error_has_its_causes_once() {
        let io = std::io::Error::other("connection refused");
        let error = object_store::Error::Generic {
            store: "S3",
            source: Box::new(std::io::Error::other(Error::Put { path: "p".into(), what: "q".into() })),
        };
        assert_eq!(with_causes(&error), "Generic S3 error: put p: q");
        #[derive(Debug, thiserror::Error)]
        #[error("error sending request")]
        struct Sending(#[source] std::io::Error);
        assert_eq!(with_causes(&Sending(io)), "error sending request: connection refused");
    }

    #[test]
    fn errors_are_logged_without_queries() {
        let said =
            "error sending request for url (https://a.example/b/c?sig=SECRET&x=1): timed out, see http://d?e f?g";
        let expected = "error sending request for url (https://a.example/b/c?...): timed out, see http://d?... f?g";
        assert_eq!(without_queries(said), expected);
        assert_eq!(without_queries("no address?"), "no address?");
    }

    #[test]
    fn the_document_that_a_store_answers_with_is_not_logged() {
        let said = "Error performing PUT, after 0 retries: 403 Forbidden: <?xml version=\"1.0\"?><Error><Code>SignatureDoesNotMatch</Code>\
            <Message>The signature does not match</Message><CanonicalRequest>x-amz-security-token:SECRET</CanonicalRequest></Error>";
        let expected =
            "Error performing PUT, after 0 retries: 403 Forbidden: SignatureDoesNotMatch: The signature does not match";
        assert_eq!(brief(said), expected);
        let page = format!("502 Bad Gateway: <!DOCTYPE html><html>{}</html>", "x".repeat(100_000));
        assert_eq!(brief(&page), "502 Bad Gateway:");
        assert_eq!(brief("limit < 5 and <= 6: é<"), "limit < 5 and <= 6: é<");
        assert_eq!(brief("{\n\"error\": 403}"), "{ \"error\": 403}");
        assert_eq!(brief(&"é".repeat(1000)).chars().count(), MAX_ERROR_CHARS);
    }
}
