//! List, then watch, for ever, and what follows from each failure.
//!
//! | what | what follows |
//! |---|---|
//! | a watch ends after its period | the next goes on where it ended |
//! | the connection is lost | the same, after a pause: the first one if it had lasted |
//! | 410, as an answer or as an event | a new list |
//! | something that cannot be read, or an event with another error | a new list, after a pause: what came between is not known |
//! | 401 | the token is read again, as for each request |
//!
//! Pauses double from a second to a minute, with a random part, so that the nodes of a cluster do not come back at the same time.

use crate::api::{Api, Error};
use crate::wire::{Event, Pod};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::Sender;

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A watch that has lasted this long was none that failed at once.
const LASTED: Duration = Duration::from_secs(10);

/// What has become known.
#[derive(Debug)]
pub enum Update {
    /// All pods.
    Listed(Vec<Pod>),
    /// A change.
    Event(Event),
    /// For the log.
    Note(String),
}

/// How long to wait.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Of a watch.
    pub period: Duration,
    /// The first pause.
    pub first_pause: Duration,
}

/// How a watch has ended.
enum Ended {
    /// Go on after this version.
    Goes(String),
    /// A new list is needed.
    Lost,
}

/// Follows the pods of a node until nobody receives updates.
pub async fn follow(api: &Api, timing: Timing, updates: &Sender<Update>) {
    let mut pause = Pause { next: timing.first_pause, first: timing.first_pause };
    let mut version: Option<String> = None;
    while !updates.is_closed() {
        let began = Instant::now();
        let step = match version.take() {
            None => list(api, updates).await.map(Ended::Goes),
            Some(from) => watch(api, from, timing.period, updates).await,
        };
        let lasted = began.elapsed() >= LASTED;
        match step {
            Ok(Ended::Goes(to)) => version = Some(to),
            Ok(Ended::Lost) => {}
            Err(error) => {
                let _ = updates.send(Update::Note(error.error.to_string())).await;
                version = error.goes_on;
                pause.wait(lasted).await;
                continue;
            }
        }
        if lasted {
            pause.next = pause.first;
        } else if began.elapsed() < pause.first {
            // A server that ends each watch at once, or has always forgotten the version, is not asked without end.
            tokio::time::sleep(pause.first.saturating_sub(began.elapsed())).await;
        }
    }
}

/// A failure, and the version from which a watch can go on all the same.
struct Failure {
    error: Error,
    goes_on: Option<String>,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure { error, goes_on: None }
    }
}

async fn list(api: &Api, updates: &Sender<Update>) -> Result<String, Failure> {
    let page = api.list().await?;
    let _ = updates.send(Update::Listed(page.pods)).await;
    Ok(page.version)
}

async fn watch(api: &Api, mut version: String, period: Duration, updates: &Sender<Update>) -> Result<Ended, Failure> {
    // What fails for a while, such as a connection or a token, makes no list necessary.
    let goes_on = |error: Error, version: &str| {
        let is_known = !matches!(error, Error::Malformed(_) | Error::Expired);
        Failure { error, goes_on: is_known.then(|| version.to_owned()) }
    };
    let mut watch = match api.watch(&version, period).await {
        Ok(watch) => watch,
        Err(Error::Expired) => return Ok(Ended::Lost),
        Err(error) => return Err(goes_on(error, &version)),
    };
    loop {
        let event = match watch.next().await {
            Ok(Some(event)) => event,
            Ok(None) => return Ok(Ended::Goes(version)),
            Err(error) => return Err(goes_on(error, &version)),
        };
        match &event {
            Event::Put(_, at) | Event::Gone(_, at) | Event::Bookmark(at) if !at.is_empty() => version.clone_from(at),
            Event::Put(..) | Event::Gone(..) | Event::Bookmark(_) => {
                return Err(Error::Malformed("an event without a version".to_owned()).into());
            }
            Event::Expired => return Ok(Ended::Lost),
            Event::Failed(why) => return Err(Error::Malformed(format!("an error: {why}")).into()),
        }
        if updates.send(Update::Event(event)).await.is_err() {
            return Ok(Ended::Lost);
        }
    }
}

struct Pause {
    next: Duration,
    first: Duration,
}

impl Pause {
    async fn wait(&mut self, lasted: bool) {
        let random = getrandom::u32().unwrap_or_default();
        let half = self.after(lasted) / 2;
        tokio::time::sleep(half + half.mul_f64(f64::from(random) / f64::from(u32::MAX))).await;
    }

    /// The pause after a failure of what had lasted, or not. The one after it is twice as long.
    fn after(&mut self, lasted: bool) -> Duration {
        let now = if lasted { self.first } else { self.next };
        self.next = (now * 2).min(LONGEST_PAUSE);
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_and_begin_anew_after_what_has_lasted() {
        let seconds = Duration::from_secs;
        let mut pause = Pause { next: seconds(1), first: seconds(1) };
        assert_eq!([false; 8].map(|lasted| pause.after(lasted).as_secs()), [1, 2, 4, 8, 16, 32, 60, 60]);
        // A load balancer that ends each quiet connection after a while.
        assert_eq!([true; 3].map(|lasted| pause.after(lasted).as_secs()), [1, 1, 1]);
        assert_eq!(pause.after(false).as_secs(), 2);
    }
}
