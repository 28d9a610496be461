//! Names of the kernel's functions by their addresses, from `/proc/kallsyms`.

use std::io;
use std::path::Path;

/// Functions of the kernel and its modules, sorted by address. Names stay in the text that was read: 200,000 of them
/// take about 12 MB while this exists.
#[derive(Debug)]
pub struct Symbols {
    text: String,
    /// The address, and where in `text` the name is.
    functions: Vec<(u64, u32, u32)>,
}

impl Symbols {
    /// Reads `path`, which is `/proc/kallsyms` except in tests. About 50 ms.
    pub fn read(path: &Path) -> io::Result<Symbols> {
        std::fs::read_to_string(path).map(Symbols::parse)
    }

    /// Lines such as `ffffffff815bc070 t vmstat_update`, maybe followed by the name of a module in brackets. Lines that
    /// are no function, or have no address, are skipped.
    fn parse(text: String) -> Symbols {
        let mut functions = Vec::new();
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            let mut words = line.split_ascii_whitespace();
            if let (Some(address), Some("t" | "T" | "w" | "W"), Some(name)) = (words.next(), words.next(), words.next())
                && let Ok(address @ 1..) = u64::from_str_radix(address, 16)
                // 16 digits, a blank, a letter and a blank come before it. The kernel may change that, so search for
                // the name.
                && let Some(at) = line.rfind(name)
                && let (Ok(at), Ok(len)) = (u32::try_from(start + at), u32::try_from(name.len()))
            {
                functions.push((address, at, len));
            }
            start += line.len();
        }
        functions.sort_unstable_by_key(|f| f.0);
        Symbols { text, functions }
    }

    /// Whether every address is hidden: the file has lines, but none with an address.
    pub fn are_hidden(&self) -> bool {
        self.functions.is_empty() && !self.text.is_empty()
    }

    /// The start of a function. The compiler's suffixes (`.isra.0`, `.constprop.0`) are not part of its name; its cold
    /// half is another function.
    pub fn address(&self, name: &str) -> Option<u64> {
        let is_it = |full: &str| full == name || (base(full) == name && !full.contains(".cold"));
        self.functions.iter().find(|f| is_it(self.name(f))).map(|f| f.0)
    }

    /// The function that contains an address, without the compiler's suffixes. The file has no lengths, so an address
    /// past the end of a function counts as inside it.
    pub fn function(&self, address: u64) -> Option<&str> {
        let after = self.functions.partition_point(|f| f.0 <= address);
        self.functions.get(after.checked_sub(1)?).map(|f| base(self.name(f)))
    }

    fn name(&self, function: &(u64, u32, u32)) -> &str {
        let (start, len) = (function.1 as usize, function.2 as usize);
        &self.text[start..start + len]
    }
}

fn base(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "0000000000000000 A fixed_percpu_data
ffffffff81001000 T _stext
ffffffff815bc070 t vmstat_update.cold
ffffffff815bbd70 t refresh_cpu_vm_stats.isra.0
ffffffff815bc100 t vmstat_update
ffffffff82000000 D contig_page_data
ffffffffc0201000 t nf_hook\t[nf_tables]
";

    #[test]
    fn functions_are_found_by_name_and_by_address() {
        let symbols = Symbols::parse(TEXT.to_owned());
        assert!(!symbols.are_hidden());
        assert_eq!(symbols.address("vmstat_update"), Some(0xffff_ffff_815b_c100));
        assert_eq!(symbols.address("refresh_cpu_vm_stats"), Some(0xffff_ffff_815b_bd70));
        assert_eq!(symbols.address("contig_page_data"), None);
        assert_eq!(symbols.address("vmstat"), None);
        assert_eq!(symbols.function(0xffff_ffff_815b_bd70), Some("refresh_cpu_vm_stats"));
        assert_eq!(symbols.function(0xffff_ffff_815b_c0ff), Some("vmstat_update"));
        assert_eq!(symbols.function(0xffff_ffff_c020_1fff), Some("nf_hook"));
        assert_eq!(symbols.function(0x1000), None);
    }

    #[test]
    fn zeros_are_no_addresses() {
        let symbols =
            Symbols::parse(TEXT.replace("ffffffff8", "000000000").replace("ffffffffc0201000", "0000000000000000"));
        // Those that are left of what was replaced are small numbers, but for the module's.
        assert_eq!(symbols.address("nf_hook"), None);
        let hidden = "0000000000000000 T _stext\n0000000000000000 t vmstat_update\n";
        assert!(Symbols::parse(hidden.to_owned()).are_hidden());
        assert!(!Symbols::parse(String::new()).are_hidden());
    }
}
