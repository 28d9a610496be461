//! The number of a group by its name.

use std::fs;

/// Where groups are listed.
const GROUPS: &str = "/etc/group";

/// The number of a group. Read from the file and not through the C library, whose services would be loaded into a process
/// with privileges; a group that only they know is given by its number.
pub(crate) fn group_id(name: &str) -> std::result::Result<u32, String> {
    if let Ok(id) = name.parse() {
        return Ok(id);
    }
    let groups = fs::read_to_string(GROUPS).map_err(|error| format!("read {GROUPS}: {error}"))?;
    id_in(&groups, name).ok_or_else(|| format!("no group {name} in {GROUPS}; create it, or give its number"))
}

fn id_in(groups: &str, name: &str) -> Option<u32> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_by_its_whole_name() {
        let groups = "root:x:0:\nadm:x:4:syslog,me\nadmin:x:117:\nbroken\n";
        let ids = ["root", "adm", "admin", "ad", "broken", "me"].map(|name| id_in(groups, name));
        assert_eq!(ids, [Some(0), Some(4), Some(117), None, None, None]);
        assert_eq!(group_id("1234"), Ok(1234));
        assert!(group_id("no such group").unwrap_err().contains("give its number"));
    }
}
