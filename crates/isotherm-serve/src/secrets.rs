//! The token and the certificates. Both are read again while the server runs, when their files have changed or at SIGHUP: a certificate is
//! renewed every few weeks, and a restart would forget what is kept in memory. In a pod nothing sends signals, so it has to notice by itself.

use crate::args::Args;
use crate::net;
use crate::token::Token;
use anyhow::{Context, Result};
use isotherm_sandbox::Files;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use tokio_rustls::rustls::ServerConfig;

/// What may be replaced while others use it.
#[derive(Debug)]
pub struct Current<T>(Arc<RwLock<T>>);

impl<T> Clone for Current<T> {
    fn clone(&self) -> Current<T> {
        Current(Arc::clone(&self.0))
    }
}

impl<T: Clone> Current<T> {
    /// This, until something else is set.
    pub fn new(value: T) -> Current<T> {
        Current(Arc::new(RwLock::new(value)))
    }

    /// What it is now.
    pub fn get(&self) -> T {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, value: T) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = value;
    }
}

/// What distinguishes files from those that have replaced them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamps(Vec<Option<Stamp>>);

/// Device, inode, size, and time of the last change.
type Stamp = (u64, u64, u64, (i64, i64));

/// Who may read, and by which certificate we are known.
#[derive(Debug)]
pub struct Secrets {
    /// `None`: everybody may read.
    pub token: Current<Option<Token>>,
    /// `None`: without TLS.
    pub tls: Option<Current<Arc<ServerConfig>>>,
    token_file: Option<PathBuf>,
    /// The files of the certificate and of its key.
    tls_files: Option<(PathBuf, PathBuf)>,
}

impl Secrets {
    /// Those that the command line names. Makes a token where it names none, and writes one where its file is not there.
    pub fn open(args: &Args) -> Result<Secrets> {
        let absolute = |path: &PathBuf| std::path::absolute(path).with_context(|| format!("find {}", path.display()));
        // In the sandbox, relative paths lead nowhere.
        let token_file = args.token_file.as_ref().map(absolute).transpose()?;
        let tls_files = args.tls_cert.as_ref().zip(args.tls_key.as_ref());
        let tls_files =
            tls_files.map(|(cert, key)| Ok::<_, anyhow::Error>((absolute(cert)?, absolute(key)?))).transpose()?;
        let token = match &token_file {
            _ if args.no_token => None,
            Some(path) => Some(Token::from_file(path)?),
            None => Some(Token::random()?),
        };
        let tls = tls_files.as_ref().map(|(cert, key)| net::tls(cert, key)).transpose()?;
        Ok(Secrets { token: Current::new(token), tls: tls.map(Current::new), token_file, tls_files })
    }

    /// Reads them again. If that fails, those before stay in force.
    pub fn read_again(&self) -> Result<()> {
        let token = self.token_file.as_deref().map(Token::read).transpose()?;
        let tls = self.tls_files.as_ref().map(|(cert, key)| net::tls(cert, key)).transpose()?;
        if let Some(token) = token {
            self.token.set(Some(token));
        }
        if let (Some(current), Some(tls)) = (&self.tls, tls) {
            current.set(tls);
        }
        Ok(())
    }

    /// Which files these are now, and of when.
    pub fn stamps(&self) -> Stamps {
        let stamp = |file: &PathBuf| {
            let found = file.metadata().ok()?;
            Some((found.dev(), found.ino(), found.size(), (found.mtime(), found.mtime_nsec())))
        };
        Stamps(self.files().map(stamp).collect())
    }

    fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.token_file.iter().chain(self.tls_files.iter().flat_map(|(cert, key)| [cert, key]))
    }

    /// The folders in which they lie: a renewed file is another file of the same name, or behind the same link.
    pub fn folders(&self) -> Vec<PathBuf> {
        self.files().flat_map(|file| Files::folders_of(file)).collect()
    }
}
