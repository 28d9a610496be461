//! Parses what the kernel prints:
//!
//! ```text
//! memcg     2 /a
//!  node     0
//!           0       4120        489           0
//!       generation age_ms  anon_pages  file_pages
//! ```

use super::memcg::{Generation, Memcg, Node};

/// What went wrong: the line, counted from 1, what was expected there, and what was there.
pub(super) type Wrong = (usize, &'static str, String);

pub(super) fn parse(text: &str) -> Result<Vec<Memcg>, Wrong> {
    let mut memcgs: Vec<Memcg> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let wrong = |expected| (index + 1, expected, line.chars().take(80).collect());
        if let Some(rest) = line.strip_prefix("memcg") {
            // A path may hold spaces, and is empty where there are no memory cgroups.
            let (id, path) = rest.trim_start().split_once(' ').ok_or_else(|| wrong("memcg ID PATH"))?;
            let id = id.parse().map_err(|_| wrong("memcg ID PATH"))?;
            memcgs.push(Memcg { id, path: path.to_owned(), nodes: Vec::new() });
        } else if let Some(id) = line.trim_start().strip_prefix("node") {
            let memcg = memcgs.last_mut().ok_or_else(|| wrong("memcg before node"))?;
            let id = id.trim().parse().map_err(|_| wrong("node ID"))?;
            memcg.nodes.push(Node { id, generations: Vec::new() });
        } else {
            let node = memcgs.last_mut().and_then(|m| m.nodes.last_mut()).ok_or_else(|| wrong("node before counts"))?;
            let generation = generation(line).ok_or_else(|| wrong("four numbers"))?;
            if node.generations.last().is_some_and(|last| last.number + 1 != generation.number) {
                return Err(wrong("the next generation"));
            }
            node.generations.push(generation);
        }
    }
    Ok(memcgs)
}

fn generation(line: &str) -> Option<Generation> {
    let mut numbers = line.split_ascii_whitespace().map(|word| word.parse().ok());
    let mut next = || numbers.next()?;
    let generation = Generation { number: next()?, age_ms: next()?, anon_pages: next()?, file_pages: next()? };
    numbers.next().is_none().then_some(generation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_real_file_is_read_whole() {
        let memcgs = parse(include_str!("two_nodes.txt")).unwrap();
        let paths: Vec<_> = memcgs.iter().map(|m| (m.id, m.path.as_str())).collect();
        assert_eq!(paths, [(1, "/"), (2, "/a")]);
        assert!(memcgs.iter().all(|m| m.nodes.iter().map(|n| n.id).eq([0, 1])));
        let expected = Generation { number: 2, age_ms: 4120, anon_pages: 489, file_pages: 0 };
        assert_eq!(memcgs[0].nodes[0].generations[2], expected);
        assert_eq!(memcgs[0].nodes[0].span(), Some((0, 3)));
    }

    #[test]
    fn paths_may_hold_spaces_or_be_missing() {
        assert_eq!(parse("memcg     7 /my slice/x 2\n node 0\n").unwrap()[0].path, "/my slice/x 2");
        assert_eq!(parse("memcg     0 \n node     0\n 5 1 2 3 \n").unwrap()[0].nodes[0].generations.len(), 1);
        assert_eq!(parse("").unwrap(), []);
    }

    #[test]
    fn other_text_is_refused_with_its_line() {
        for (text, line) in [
            (" node 0\n", 1),
            ("memcg 1 /\n 0 1 2 3\n", 2),
            ("memcg 1 /\n node 0\n 0 1 2\n", 3),
            ("memcg 1 /\n node 0\n 0 1 2 3 4\n", 3),
            ("memcg 1 /\n node 0\n 0 1 2 3\n 2 1 2 3\n", 4),
            ("memcg one /\n", 1),
            ("memcg 1 /\n node x\n", 2),
        ] {
            assert_eq!(parse(text).unwrap_err().0, line, "{text}");
        }
    }
}
