//! Landlock: only named files and folders can be reached. It needs no privilege, and Linux 5.13.

use crate::Part;
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use std::fs;
use std::path::{Path, PathBuf};

/// The newest rights that are taken away. Older kernels know fewer of them.
const NEWEST: ABI = ABI::V6;

/// All that can be reached. Paths that do not exist are skipped.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// Files, and folders with all below them.
    pub read: Vec<PathBuf>,
    /// Folders in which files are written, renamed and removed, with all below them. They can be read too.
    pub written: Vec<PathBuf>,
}

impl Files {
    /// The folders to read, so that a file can be read again after it was replaced: the one that its name is in and, where the name is
    /// a link, the one that the file is in. A link may later lead to another file there, as those of certbot and of Kubernetes do.
    pub fn folders_of(file: &Path) -> Vec<PathBuf> {
        let found = fs::canonicalize(file);
        let mut folders: Vec<PathBuf> = [Some(file), found.as_deref().ok()]
            .into_iter()
            .flatten()
            .filter_map(Path::parent)
            .map(Path::to_owned)
            .collect();
        folders.dedup();
        folders
    }

    /// What finding a server by name takes: `/etc`, and where its files really are. What configures the network replaces them, and a rule for a
    /// file would be for the old one.
    pub fn of_names() -> Vec<PathBuf> {
        let files = ["/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf"];
        let mut folders: Vec<PathBuf> = files.iter().flat_map(|file| Files::folders_of(Path::new(file))).collect();
        // Where a link of these names may lead later.
        folders.extend(["/run/systemd/resolve", "/run/NetworkManager", "/run/resolvconf"].map(PathBuf::from));
        folders.sort();
        folders.dedup();
        folders
    }
}

/// Restricts this thread, and those that it starts later. Of TCP, connecting is left if `connects`.
pub fn restrict(files: &Files, connects: bool) -> Part {
    match status(files, connects) {
        Ok(RulesetStatus::NotEnforced) => Part::Unsupported("needs Linux 5.13 with CONFIG_SECURITY_LANDLOCK".into()),
        Ok(RulesetStatus::PartiallyEnforced | RulesetStatus::FullyEnforced) => Part::On,
        Err(error) => Part::Unsupported(error.to_string()),
    }
}

fn status(files: &Files, connects: bool) -> Result<RulesetStatus, RulesetError> {
    let all = AccessFs::from_all(NEWEST);
    let network = if connects { AccessNet::BindTcp.into() } else { AccessNet::from_all(NEWEST) };
    let rules = |paths: &[PathBuf], access| {
        let opened: Vec<PathFd> = paths.iter().filter_map(|path| PathFd::new(path).ok()).collect();
        opened.into_iter().map(move |fd| Ok::<_, RulesetError>(PathBeneath::new(fd, access)))
    };
    let read = AccessFs::from_read(NEWEST) & !AccessFs::Execute;
    let created = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .handle_access(network)?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    let created = created.add_rules(rules(&files.read, read))?;
    let written = created.add_rules(rules(&files.written, all & !AccessFs::Execute))?;
    Ok(written.restrict_self()?.ruleset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_has_the_folder_of_its_name_and_that_which_it_is_in() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        let (live, archive) = (root.join("live"), root.join("archive"));
        fs::create_dir(&live).unwrap();
        fs::create_dir(&archive).unwrap();
        fs::write(archive.join("cert1.pem"), "").unwrap();
        symlink("../archive/cert1.pem", live.join("cert.pem")).unwrap();
        assert_eq!(Files::folders_of(&live.join("cert.pem")), [live.clone(), archive.clone()]);
        assert_eq!(Files::folders_of(&archive.join("cert1.pem")), [archive]);
        assert_eq!(Files::folders_of(&live.join("none")), [live], "it may be made later");
    }

    #[test]
    fn a_file_that_is_replaced_is_reached_by_its_folder() {
        let dir = tempfile::tempdir().unwrap();
        let (root, allowed) = (fs::canonicalize(dir.path()).unwrap(), Files::of_names());
        assert!(allowed.contains(&PathBuf::from("/etc")), "{allowed:?}");
        let name = root.join("resolv.conf");
        let after_a_rename = |rule: Vec<PathBuf>| {
            fs::write(&name, "old").unwrap();
            let (restricted, is_restricted) = std::sync::mpsc::channel();
            let (renamed, is_renamed) = std::sync::mpsc::channel();
            let path = name.clone();
            let reader = std::thread::spawn(move || {
                let part = restrict(&Files { read: rule, written: Vec::new() }, false);
                restricted.send(()).unwrap();
                is_renamed.recv().unwrap();
                (part, fs::read_to_string(path))
            });
            is_restricted.recv().unwrap();
            fs::write(root.join("new"), "new").unwrap();
            fs::rename(root.join("new"), &name).unwrap();
            renamed.send(()).unwrap();
            reader.join().unwrap()
        };
        let (part, by_file) = after_a_rename(vec![name.clone()]);
        if let Part::Unsupported(why) = part {
            return println!("skipped: needs Landlock: {why}");
        }
        assert!(by_file.is_err(), "a rule for a file is for the old one");
        assert_eq!(after_a_rename(Files::folders_of(&name)).1.unwrap(), "new");
    }
}
