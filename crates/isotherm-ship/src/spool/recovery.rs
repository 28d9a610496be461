//! Puts a spool in order after a crash: what was begun is either finished or undone.

use super::{
    Header, Log, MAKING, OPEN, ObjectId, READY, Result, Spool, doing, files, names, parts, record, remove_folder,
};
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

impl Spool {
    pub(super) fn recover(&mut self) -> Result<()> {
        // Objects that were being made: their batches are still there.
        for (_, path) in entries(&self.root.join(MAKING))? {
            remove_folder(&path).map_err(doing("remove", &path))?;
        }
        self.finish_removal()?;
        // Logs first: what those cover that are removed with `recover_objects` is remembered.
        for (name, path) in entries(&self.root.join(OPEN))? {
            self.recover_log(&name, &path)?;
        }
        for (name, path) in entries(&self.root.join(READY))? {
            self.recover_objects(&name, &path)?;
        }
        let seen = self.logs.keys().copied().chain(self.ready.keys().map(|id| id.sequence)).max();
        if let Some(seen) = seen.filter(|seen| *seen >= self.counts.next_sequence) {
            // Its counts are lost, so nobody knows which numbers were used since.
            self.counts.next_sequence = seen.saturating_add(1 << 20);
        }
        // The disk may be full. What waits has to be sent then, and the counts are written with the next change.
        let _ = self.write_counts();
        Ok(())
    }

    /// The object that was counted last may still be there.
    fn finish_removal(&self) -> Result<()> {
        let Some((folder, file)) = &self.counts.removing else { return Ok(()) };
        if names::sequence_of(folder).is_none() || names::path_of(file).is_none() {
            return Ok(());
        }
        let path = self.root.join(READY).join(folder).join(file);
        files::remove(&path).map_err(doing("remove", &path))
    }

    fn recover_objects(&mut self, name: &str, folder: &Path) -> Result<()> {
        let Some(sequence) = names::sequence_of(name) else { return Ok(()) };
        // The folder is complete: it was renamed as a whole. So the batches count no more.
        if self.logs.contains_key(&sequence) && self.forget_log(sequence).is_err() {
            // A full disk, as it may have been when the log could not be removed before. What it takes makes room for the counts, which are written at
            // the end.
            self.logs.remove(&sequence);
            let path = self.log_path(sequence);
            files::remove(&path).map_err(doing("remove", &path))?;
        }
        let mut waiting = 0;
        for (name, path) in entries(folder)? {
            let Some(object) = names::path_of(&name) else { continue };
            let bytes = fs::metadata(&path).map_err(doing("read", &path))?.len();
            self.ready.insert(ObjectId { sequence, path: object }, bytes);
            waiting += 1;
        }
        if waiting == 0 {
            remove_folder(folder).map_err(doing("remove", folder))?;
        }
        Ok(())
    }

    fn recover_log(&mut self, name: &str, path: &Path) -> Result<()> {
        let Some(sequence) = name.strip_suffix(".log").and_then(names::sequence_of) else { return Ok(()) };
        let bytes = fs::read(path).map_err(doing("read", path))?;
        let found = record::scan(&bytes);
        let header = found.first().and_then(|body| serde_json::from_slice::<Header>(body).ok());
        let whole = if header.is_some() { found.whole_bytes } else { 0 };
        self.counts.torn_bytes += (bytes.len() - whole) as u64;
        let Some(header) = header else {
            // Its first batch was never confirmed, or nobody knows whose batches these are.
            self.counts.dropped_batches += found.others().count() as u64;
            return files::remove(path).map_err(doing("remove", path));
        };
        let file = OpenOptions::new().append(true).open(path).map_err(doing("open", path))?;
        if whole < bytes.len() {
            file.set_len(whole as u64).and_then(|()| file.sync_all()).map_err(doing("cut the torn end of", path))?;
        }
        let batches = found.bodies.len() as u64 - 1;
        let until_unix_ns = found.others().filter_map(|body| Some(parts(body)?.0)).max().unwrap_or(0);
        self.logs.insert(sequence, Log { header, file, bytes: whole as u64, batches, until_unix_ns });
        Ok(())
    }
}

/// What is in a folder, sorted by name.
fn entries(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let read = || -> std::io::Result<Vec<(String, PathBuf)>> {
        let entries = fs::read_dir(folder)?.collect::<std::io::Result<Vec<_>>>()?;
        let named = entries.into_iter().filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())));
        Ok(named.collect())
    };
    let mut found = read().map_err(doing("read", folder))?;
    found.sort();
    Ok(found)
}
