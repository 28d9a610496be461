//! Which host a row is of.
//!
//! The id of a machine is a secret of that machine: systemd asks not to send it over a network. So it is used as a key, by the rule
//! of `sd_id128_get_machine_app_specific`: others cannot find the id from it, and it is the same whenever it is made. Clones of an
//! image share a machine id. Their names differ as a rule, and their boots always do.
//!
//! Nothing is read here: the caller reads the files.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// The id of this application, in the place of a secret of ours: `systemd-id128 machine-id --app-specific` takes it.
pub const APPLICATION_ID: [u8; 16] =
    [0x9f, 0x1c, 0x42, 0xe6, 0x0b, 0x7d, 0x4e, 0x53, 0xa8, 0x36, 0xd4, 0x5b, 0x21, 0xcf, 0x70, 0x9a];

/// A host as its rows name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// 16 hexadecimal digits, of the machine id and the name.
    pub key: String,
    /// Its name.
    pub hostname: String,
    /// Its machine id as a key of this application, 32 hexadecimal digits; empty if it has none.
    pub machine_id: String,
    /// Its boot; empty if it is not known, as of a recording.
    pub boot_id: String,
}

impl Host {
    /// Whether this is a machine id: 32 hexadecimal digits, with or without dashes.
    pub fn is_machine_id(text: &str) -> bool {
        parse_id(text).is_some()
    }

    /// Of the contents of `/etc/machine-id`, the name of the host, and the contents of `/proc/sys/kernel/random/boot_id`. What is no
    /// id counts as none.
    pub fn new(machine_id: &str, hostname: &str, boot_id: &str) -> Host {
        let machine_id = parse_id(machine_id).map(|id| hex(&application_key(&id))).unwrap_or_default();
        let boot_id = parse_id(boot_id).map(|id| hex(&id)).unwrap_or_default();
        let key = digest(&[b"host", machine_id.as_bytes(), hostname.as_bytes()]);
        Host { key: hex(&key[..8]), hostname: hostname.to_owned(), machine_id, boot_id }
    }
}

/// 32 hexadecimal digits, with or without dashes.
fn parse_id(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u32> = text.trim().chars().filter(|c| *c != '-').map(|c| c.to_digit(16)).collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits.chunks_exact(2).filter_map(|pair| u8::try_from(pair[0] << 4 | pair[1]).ok()).collect();
    bytes.try_into().ok().filter(|_| digits.len() == 32)
}

/// HMAC-SHA256 of the application with the id as the key, marked as a random UUID.
fn application_key(machine_id: &[u8; 16]) -> [u8; 16] {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(machine_id) else { return [0; 16] };
    mac.update(&APPLICATION_ID);
    let mut key = [0; 16];
    key.copy_from_slice(&mac.finalize().into_bytes()[..16]);
    key[6] = key[6] & 0x0f | 0x40;
    key[8] = key[8] & 0x3f | 0x80;
    key
}

/// SHA-256 of some parts, each with its length before it.
pub(crate) fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef\n";

    #[test]
    fn a_machine_id_is_never_shown_and_its_key_is_a_uuid() {
        let host = Host::new(ID, "db-1", "11111111-2222-4333-8444-555555555555\n");
        assert_eq!(host.boot_id, "11111111222243338444555555555555");
        assert_eq!((host.key.len(), host.machine_id.len()), (16, 32));
        assert!(!host.machine_id.contains("0123456789abcdef"));
        assert_eq!((&host.machine_id[12..13], "89ab".contains(&host.machine_id[16..17])), ("4", true));
        assert_eq!(host, Host::new("01234567-89ab-cdef-0123-456789abcdef", "db-1", "11111111222243338444555555555555"));
    }

    #[test]
    fn hosts_differ_by_their_name_and_by_their_id() {
        let key = |id: &str, name: &str| Host::new(id, name, "").key;
        let keys = [key(ID, "a"), key(ID, "b"), key(&ID.replace('0', "1"), "a"), key("", "a")];
        let different = std::collections::BTreeSet::from(keys);
        assert_eq!(different.len(), 4);
        let none = Host::new("uninitialized\n", "a", "");
        assert_eq!((none.machine_id.as_str(), none.key), ("", key("", "a")));
    }
}
